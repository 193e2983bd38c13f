//! `brickscope import`: reads a file of another program as a run.

use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use brickscope::Profile;
use brickscope::load::{self, Limit};
use brickscope_analysis::view::{host_to_record, wrap};
use brickscope_formats::import::{
    Format, Map, Options, add_limits, join, read_capture_file, read_file, state_limits,
};
use brickscope_runs::{folder_of, is_ours, settings};

use crate::machine_name;
use crate::measure::ceilings_here;
use crate::output;
use crate::progress;
use crate::runs::{self, RunDir};
use crate::source;
use crate::text::{count, printable_text};

/// Read a file of another program as a run, for `show`, `compare` and `export`.
///
/// `import` reads the results of llama-bench, Chrome traces (such as candle's --tracing), the traces of
/// PyTorch's profiler (also vLLM's and SGLang's), JAX's and ONNX Runtime's, the SQLite export of Nsight Systems, the files of AMD's
/// rocprofv3, the JSON of NCCL's Inspector, what SGLang and Dynamo record of each forward pass (DYN_FPM_TRACE=1), the output
/// of ggml's Vulkan backend with GGML_VK_PERF_LOGGER=1, and folded stacks, also compressed by gzip, but for databases. All times are those in the file. What the file lacks is marked absent in the run. docs/import.md
/// describes each format.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llama-bench -m model.gguf -o json > bench.json\n  brickscope import bench.json --out brickscope-runs/llama\n  brickscope show llama\n  brickscope import bench.json --ceilings-here\n  brickscope import trace.json --decode forward --out brickscope-runs/candle\n  brickscope import rank0.pt.trace.json.gz\n  brickscope import rank*.pt.trace.json.gz --out brickscope-runs/ranks\n  brickscope import trace.json.gz --prefill prefill --decode decode\n  nsys export --type sqlite report.nsys-rep\n  brickscope import report.sqlite --out brickscope-runs/nsys\n  brickscope import server.log --format vk-perf-logger\n  brickscope import stacks.folded --unit us"
)]
pub(crate) struct ImportArgs {
    /// The file to read; of several ranks of a job, the traces of all of them, which become one run.
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// The format of the file. By default it is detected.
    #[arg(long, value_enum, default_value_t = ImportFormat::Auto)]
    pub(crate) format: ImportFormat,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Then add the run to this lake, as `brickscope collect` does. BRICKSCOPE_MACHINE names the machine in it, and
    /// BRICKSCOPE_COMMIT the engine's commit.
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) lake: Option<PathBuf>,

    /// For folded stacks: the unit of their weights, which the file doesn't state.
    #[arg(long, value_enum)]
    pub(crate) unit: Option<WeightUnit>,

    /// For llama-bench: read only these rows, counted from 1. A run has one prompt test and one generation
    /// test, measured under the same settings.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) rows: Vec<usize>,

    /// For a profiler's trace: each event with this name is a prefill pass. `*` stands for any text. After the name may
    /// come [args.KEY=VALUE], an argument of the event, and [N], [N..] or [N..M], which of these events, counted from 1.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) prefill: Option<String>,

    /// For a profiler's trace: each event with this name is a decode pass, in the same form. An event that both patterns
    /// match is a decode pass. Without either, the steps of vLLM and SGLang are passes, of the phase that their names
    /// tell; where there are none, the steps of PyTorch's profiler (ProfilerStep#*), of training, prefill or decode.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) decode: Option<String>,

    /// For a trace with kernels: a table in TOML that tells which bricks its events are. It comes before the
    /// table that is built in. docs/import.md describes it.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) map: Option<PathBuf>,

    /// For a trace of PyTorch's profiler: a trace of the capture of the CUDA or HIP graphs in it, which tells layers and
    /// bricks of their kernels. It may be given several times. docs/import.md says how to record one.
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Vec<PathBuf>,

    /// For llama-bench on a CPU: measure the limits of this machine, on which the file was made, with as many threads, and
    /// add them to the run. `findings` then says how far each test is from them. This takes some seconds.
    #[arg(long)]
    pub(crate) ceilings_here: bool,

    /// For a profiler's trace: the limits of its device, as `brickscope machine --backend cuda --json` printed them on one of
    /// that name, or a run with limits. `show` then says how near to them the products are whose shapes the trace has.
    #[arg(long, value_name = "FILE", conflicts_with = "stated_limits")]
    pub(crate) ceilings: Option<PathBuf>,

    /// The same, as you state them: "3350 GB/s, 989 TFLOP/s". Each screen calls them stated, not measured.
    #[arg(long, value_name = "RATES")]
    pub(crate) stated_limits: Option<String>,

    /// Print the run's folder and what the file lacks as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The formats of `brickscope import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// Detect the format.
    Auto,
    /// The output of llama-bench in any of its forms; json and jsonl have the times of repetitions.
    LlamaBench,
    /// Chrome trace events.
    Chrome,
    /// The SQLite export of Nsight Systems.
    Nsight,
    /// Results of rocprofv3: JSON, or rocpd's SQLite.
    Rocprof,
    /// The JSON of NCCL's Inspector.
    NcclInspector,
    /// What SGLang and Dynamo record of each forward pass.
    ForwardPassMetrics,
    /// The output of ggml's Vulkan backend.
    VkPerfLogger,
    /// Folded stacks.
    Folded,
}

impl ImportFormat {
    /// `None` if it is to be detected.
    fn known(self) -> Option<Format> {
        Some(match self {
            Self::Auto => return None,
            Self::LlamaBench => Format::LlamaBench,
            Self::Chrome => Format::Chrome,
            Self::Nsight => Format::Nsight,
            Self::Rocprof => Format::Rocprof,
            Self::NcclInspector => Format::NcclInspector,
            Self::ForwardPassMetrics => Format::ForwardPassMetrics,
            Self::VkPerfLogger => Format::VkPerfLogger,
            Self::Folded => Format::Folded,
        })
    }
}

/// The unit of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightUnit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Samples, which aren't times.
    Samples,
}

impl From<WeightUnit> for brickscope_formats::import::WeightUnit {
    fn from(unit: WeightUnit) -> Self {
        match unit {
            WeightUnit::Ns => Self::Nanoseconds,
            WeightUnit::Us => Self::Microseconds,
            WeightUnit::Ms => Self::Milliseconds,
            WeightUnit::Samples => Self::Samples,
        }
    }
}

/// Refuses a folder where a file that was read would be taken for one of the run's, and removed with it.
fn is_not_in(out: &Path, file: &Path) -> Result<()> {
    let at = |folder: &Path| fs::canonicalize(folder).ok();
    let is_there = at(out).is_some_and(|out| Some(out) == at(folder_of(file)));
    ensure!(
        !(is_there && file.file_name().is_some_and(is_ours)),
        "{} would be taken for a file of the run, and removed with it: name another folder with --out",
        output::shown(file)
    );
    Ok(())
}

const MAP_LIMIT: Limit = Limit { bytes: 1 << 20, instead: "shorten it" };

pub(crate) fn run(args: &ImportArgs) -> Result<()> {
    runs::ready_for_lake(args.lake.as_deref())?;
    let note = progress::note("reading");
    let map = |path: &PathBuf| -> Result<Map> {
        let text = load::text(path, MAP_LIMIT).with_context(|| path.display().to_string())?;
        Ok(Map { path: path.clone(), text })
    };
    let mut options = Options {
        map: args.map.as_ref().map(map).transpose()?,
        unit: args.unit.map(WeightUnit::into),
        rows: args.rows.clone(),
        prefill: args.prefill.clone(),
        decode: args.decode.clone(),
        captures: Vec::new(),
    };
    let captures = args.capture.iter().map(|file| read_capture_file(file, &options));
    options.captures = captures.collect::<Result<_, _>>()?;
    let read = |file: &PathBuf| -> Result<(PathBuf, Profile)> {
        Ok((file.clone(), read_file(file, args.format.known(), &options)?))
    };
    let mut profile = join(args.files.iter().map(read).collect::<Result<_>>()?)?;
    let format = profile.imported.as_ref().map_or("", |imported| &*imported.format).to_owned();
    if args.ceilings_here && format != Format::LlamaBench.name() {
        bail!("--ceilings-here is for files of llama-bench, and this is {format}");
    }
    if args.ceilings_here {
        drop(note);
        add_ceilings(&mut profile, args)?;
    }
    if let Some(text) = &args.stated_limits {
        state_limits(&mut profile, text)
            .map_err(|why| anyhow!("--stated-limits: {}", printable_text(&why)))?;
    }
    if let Some(file) = &args.ceilings {
        add_limits(&mut profile, file)
            .map_err(|why| anyhow!("--ceilings: {}", printable_text(&why)))?;
    }
    // A file of defaults names the limits of one device, and traces are of others, too.
    let unfit = match &settings::current().ceilings {
        Some(file) if args.ceilings.is_none() && args.stated_limits.is_none() => {
            let has_devices = !profile.devices.is_empty();
            has_devices.then(|| add_limits(&mut profile, file).err()).flatten()
        }
        _ => None,
    };
    let note = progress::note("writing the run");
    if let Some(out) = &args.out {
        args.files.iter().chain(&args.capture).try_for_each(|file| is_not_in(out, file))?;
    }
    let dir = RunDir::create(args.out.as_deref(), &Profile::empty(Default::default()).created)?;
    profile.named = machine_name::named();
    dir.save_import(&mut profile)?;
    note.finish_and_clear();
    if let Some(why) = unfit {
        tell_wrapped(&format!("without the ceilings that {} names: {why}", settings::FILE));
    }
    let path = output::shown(dir.path());
    runs::into_lake(args.lake.as_deref(), Some(dir.path()))?;
    if args.json {
        let imported = serde_json::json!({ "run": dir.path().display().to_string(), "imported": profile.imported });
        return output::print(format!("{imported}\n"));
    }
    for (why, number) in profile.imported.iter().flat_map(|imported| &imported.left_out) {
        tell_wrapped(&format!("left out: {why}: {number}"));
    }
    for doubt in profile.imported.iter().flat_map(|imported| &imported.doubts) {
        tell_wrapped(doubt);
    }
    let imported = profile.imported.as_ref();
    let tests = imported.map_or(0, |imported| imported.tests.len());
    if tests > 0 && profile.passes.is_empty() {
        let why = imported.iter().flat_map(|imported| &imported.lacks).map(|lack| &*lack.reason);
        let why = why
            .filter(|why| why.starts_with("passes: ") || why.starts_with("times of repetitions"));
        tell_wrapped(&format!(
            "{} as a list, without {}",
            count(tests as u64, "test"),
            why.collect::<Vec<_>>().join("; ")
        ));
    }
    let has_events = [Format::Chrome, Format::Nsight, Format::Rocprof];
    if has_events.iter().any(|of| of.name() == format) && has_no_passes(&profile) {
        let none = "no event is a pass, so there is no time of a token:";
        match host_to_record(&profile) {
            Some(how) => tell_wrapped(&format!(
                "{none} the file has nothing of the host, which launches them; record it, too ({how})"
            )),
            None => tell_wrapped(&format!(
                "{none} say which are, with --prefill and --decode; docs/import.md has examples"
            )),
        }
    }
    output::print(path + "\n")
}

/// A note in lines of 80 characters.
fn tell_wrapped(what: &str) {
    tell!("note: {}", wrap(&printable_text(what), 74).join("\n"));
}

/// Adds this machine's limits to a run of llama-bench, and what its model weighs if the file is here.
fn add_ceilings(profile: &mut Profile, args: &ImportArgs) -> Result<()> {
    let file = args.files.first().map_or(String::new(), |file| file.display().to_string());
    let file = printable_text(&file);
    let run = profile.run.as_ref();
    let backend = run.map_or("", |run| run.backend.as_str());
    if !backend.split(',').all(|one| matches!(one.trim(), "CPU" | "BLAS")) {
        let backend = printable_text(backend);
        bail!("{file} was made on {backend}: --ceilings-here measures the CPU");
    }
    if run.is_none_or(|run| run.threads == 0) {
        bail!("{file} doesn't state its number of threads, which --ceilings-here measures with");
    }
    let conditions = profile.imported.iter().flat_map(|imported| &imported.conditions);
    let mut cpus = conditions.filter(|(name, _)| name == "cpu_info").map(|(_, cpu)| cpu.trim());
    let here = brickscope::machine::detect().cpu;
    if let (Some(there), Some(here)) = (cpus.next().filter(|cpu| !cpu.is_empty()), here)
        && there != here.trim()
    {
        bail!(
            "{file} was made on another machine: {}. This one is {}, so its limits say nothing of that run",
            printable_text(there),
            printable_text(&here)
        );
    }
    let ceilings = ceilings_here(profile, None, &file)?;
    profile.ceilings = Some(ceilings);
    profile.ceilings_absent = None;
    if let Some(model) = &mut profile.model {
        let weights = source::describe_file(Path::new(&model.path)).weights;
        let bytes = weights.iter().fold(0, |sum, group| u64::saturating_add(sum, group.bytes));
        // Else it is another file of that name.
        if bytes.abs_diff(model.file_bytes) <= model.file_bytes / 100 {
            model.weights = weights;
        }
    }
    Ok(())
}

fn has_no_passes(profile: &Profile) -> bool {
    let mut streams = profile.devices.iter().flat_map(|device| &device.streams);
    profile.passes.is_empty() && streams.all(|stream| stream.passes.is_empty())
}
