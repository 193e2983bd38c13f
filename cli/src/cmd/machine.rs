//! `brickscope machine`: measures the peak rates of this machine.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use brickscope::{Absent, CeilingReading, Ceilings, DeviceProfile, Profile, Survey};
use brickscope_analysis::view;
use brickscope_kernels::{Backend, Kernels};
use serde::Serialize;

use crate::ceilings_cache::{self, Cached, Identity};
use crate::flags::threads;
use crate::measure::{AFTER, ceilings_here};
use crate::text::printable_text;
use crate::{device, output, progress, runs};

/// Measure the peak rates of this machine, or of a device: memory bandwidths and operations per second.
///
/// Measures read, write, copy and triad (a = b + s·c) for each level of cache and for memory, and the
/// multiply-adds of each backend, on 1, 2, 4, … and all threads; and how fast our kernels take weights in
/// from L1 and L2, on one thread and on all. This takes some seconds. The result is stored in the cache
/// folder, which BRICKSCOPE_CACHE overrides, and `brickscope profile` uses it.
///
/// With --backend, it measures how fast a device reads its memory and its cache, and multiplies and adds floats, by the
/// device's clock. The result isn't stored: `brickscope profile --backend …` measures it each time.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope machine\n  brickscope machine --fresh --threads 4\n  brickscope machine --backend cuda\n  brickscope machine --add-to runs/mine\n  brickscope machine --json | jq '.peaks[] | {backend, numbers, threads, ops_per_second}'"
)]
pub(crate) struct MachineArgs {
    /// Print all results as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Measure again, even if there are stored results.
    #[arg(long)]
    pub(crate) fresh: bool,

    /// The most threads to measure with. By default all that this process may use, or with --add-to as many as the run
    /// had.
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Measure a device instead of the CPU: `cuda`, or `wgpu`.
    #[arg(long, conflicts_with_all = ["fresh", "threads"])]
    pub(crate) backend: Option<Backend>,

    /// Add this machine's ceilings to a run that was made on it without them, such as one of an engine of your own; with
    /// --backend, those of the device that it ran on. `show`, `report` and the others then say how far its bricks are from
    /// the roof.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["json", "fresh"])]
    pub(crate) add_to: Option<PathBuf>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'k> {
    #[serde(flatten)]
    survey: &'k Survey,
    identity: &'k Identity,
    others_share: Option<f64>,
    /// Whether this is a stored result of an earlier measurement.
    is_kept: bool,
    kept_in: Option<String>,
    /// Each measurement of memory's bandwidth that is kept.
    memory: Vec<CeilingReading>,
}

pub(crate) fn run(args: &MachineArgs) -> Result<()> {
    if let Some(backend) = args.backend {
        ensure!(
            device::is_device(backend),
            "--backend {backend}: without --backend all backends of the CPU are measured; cuda and wgpu are devices"
        );
        return match &args.add_to {
            Some(run) => add_to_device(&runs::named(run)?, backend),
            None => of_device(backend, args.json),
        };
    }
    if let Some(run) = &args.add_to {
        return add_to(&runs::named(run)?, args.threads);
    }
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let steps = brickscope::machine::survey_steps(threads, brickscope::machine::caches().len());
    let bar = progress::steps("measuring", steps as u64);
    let (cached, source) = ceilings_cache::survey(threads, args.fresh, &mut || bar.inc(1))
        .map_err(|absent| anyhow!("{}", absent.reason))?;
    bar.finish_and_clear();
    let Cached { identity, others_share, value: survey } = &cached;
    let readings = ceilings_cache::memory_readings();
    let kept_in = source.path.as_ref().map(|path| path.display().to_string());
    let text = if args.json {
        let (others_share, is_kept) = (*others_share, source.is_cached);
        let json = Json { survey, identity, others_share, is_kept, kept_in, memory: readings };
        serde_json::to_string_pretty(&json)? + "\n"
    } else {
        let mut text = identity.line() + &view::machine(survey);
        let ceilings = Ceilings { readings: readings.clone(), ..Ceilings::default() };
        text += &view::memory_readings(&ceilings);
        if let Some(caveat) = Kernels::best().backend().caveat() {
            text += &format!("note: {caveat}\n");
        }
        if let Some(remark) = ceilings_cache::remark(*others_share) {
            text += &format!("note: {remark}\n");
        }
        if let Some(path) = kept_in {
            let how = if source.is_cached { "stored earlier" } else { "stored" };
            text += &format!("{how} in {}\n", printable_text(&path));
        }
        text
    };
    output::print(text)
}

/// Prints what a device does at best.
fn of_device(backend: Backend, as_json: bool) -> Result<()> {
    let ceilings =
        device::ceilings(backend).map_err(|Absent { reason }| anyhow!("{backend}: {reason}"))?;
    if as_json {
        return output::print(serde_json::to_string_pretty(&ceilings)? + "\n");
    }
    let basis = format!("device    {}\n", printable_text(&device::of(&ceilings)));
    output::print(basis + &view::ceilings(&ceilings))
}

/// Adds the ceilings of a device to a run that was made on it.
fn add_to_device(run: &Path, backend: Backend) -> Result<()> {
    let mut profile = runs::load(run)?;
    let shown = printable_text(&run.display().to_string());
    let Some(first) = profile.devices.first() else {
        bail!("{shown} ran on no device, or tells of none");
    };
    let first = format!("{}, {}", first.name, first.api);
    let mut ceilings =
        device::ceilings(backend).map_err(|Absent { reason }| anyhow!("{backend}: {reason}"))?;
    let here = device::of(&ceilings);
    let is_here = |of: &&mut DeviceProfile| here == format!("{}, {}", of.name, of.api);
    let Some(of) = profile.devices.iter_mut().find(is_here) else {
        bail!(
            "{shown} was made on {}; here is {}, whose ceilings say nothing of that run",
            printable_text(&first),
            printable_text(&here)
        );
    };
    // Those may be measured again.
    let is_later = |of: &Ceilings| of.basis.starts_with(AFTER);
    ensure!(
        of.ceilings.as_ref().is_none_or(is_later),
        "{shown} has ceilings of its device already, measured around the run"
    );
    // Anything may have happened between the run and now.
    ceilings.readings.clear();
    ceilings.basis = ceilings.basis.replace("measured before the run", AFTER);
    let text = added(&shown, &ceilings);
    of.ceilings = Some(ceilings);
    of.ceilings_absent = None;
    save(run, &profile)?;
    output::print(text)
}

fn added(run: &str, ceilings: &Ceilings) -> String {
    format!(
        "added to {run}: reads {:.1} GB/s, computes {:.1} GFLOP/s ({})\n",
        ceilings.read_bytes_per_second / 1e9,
        ceilings.peak_per_second() / 1e9,
        printable_text(&ceilings.basis)
    )
}

fn save(run: &Path, profile: &Profile) -> Result<()> {
    let file = if run.is_dir() { runs::profile_in(run) } else { run.to_owned() };
    Ok(profile.save(&file)?)
}

/// Adds ceilings to a run.
fn add_to(run: &Path, threads: Option<NonZeroUsize>) -> Result<()> {
    let mut profile = runs::load(run)?;
    let shown = printable_text(&run.display().to_string());
    if profile.ceilings.is_some() {
        bail!("{shown} has ceilings already, measured around the run");
    }
    if !profile.devices.is_empty() {
        bail!(
            "{shown} ran on a device, and these would be the ceilings of the CPU: --backend measures the device"
        );
    }
    let ceilings = ceilings_here(&profile, threads, &shown)?;
    let text = added(&shown, &ceilings);
    profile.ceilings = Some(ceilings);
    profile.ceilings_absent = None;
    save(run, &profile)?;
    output::print(text)
}
