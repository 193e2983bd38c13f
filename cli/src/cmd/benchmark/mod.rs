//! `brickscope benchmark`: measures how fast a model runs, in a way that others can check.

mod set;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use brickscope::{
    Absent, Ceilings, Clock, CpuLimit, LoadWatch, NotFinite, Phase, Profile, Profiled, Repeated,
    Repetition,
};
use brickscope_analysis::receipt::MAX_BYTES;
use brickscope_analysis::receipt::v1::{Load, Run, Sample, Test};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{AnySession, Model, Session};
use brickscope_kernels::Backend;
use brickscope_live::socket::{Facts, Publisher};

use crate::benchmark::measure::{Bench, Measured, Profilers, Settings};
use crate::benchmark::plan::Plan;
use crate::benchmark::receipt::{self, After, Before, DEVICE_MEMORY};
use crate::benchmark::rows::{self, Answer, Format, Measurement, ModelRow};
use crate::benchmark::table;
use crate::benchmark::warm_up::Rule;
use crate::flags::{ExecutorArgs, MAX_PROCESSES, MetricsArgs, OtlpArgs};
use crate::live::Live;
use crate::measure::log_capacity;
use crate::runs::otlp::{Pushing, Target};
use crate::runs::{self, Places, RunDir, Written};
use crate::{
    ceilings_cache, device, interrupt, machine_name, metrics, output, progress, source, text,
};

/// Measure how fast a model runs, repeatedly, and write a receipt.
///
/// There are two kinds of test, as in llama-bench: pp512, the prefill of 512 random tokens, and tg128,
/// 128 decode passes of one token. Each is repeated until its times agree, and then as often as
/// --repetitions says. All single times, the settings and the conditions are written to receipt.json in
/// the run's folder; docs/benchmark.md says what each number includes. With --backend cuda or wgpu the
/// model runs on a device, and each pass includes the wait for it.
///
/// Ctrl-C or SIGTERM ends it after the repetition that runs, with the figures until then and without a
/// receipt; the exit code is 130 or 143. A second signal ends it at once.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope benchmark model.gguf --threads 2\n  brickscope benchmark model.gguf --tokens 64 --depth 0,512 --format json\n  brickscope benchmark model.gguf --backend cuda\n  brickscope benchmark model.gguf --processes 5 --out runs/today"
)]
pub(crate) struct BenchmarkArgs {
    /// The GGUF file to run. By default the same model as for `profile`.
    pub(crate) model: Option<PathBuf>,

    /// The same as naming the file without a flag.
    #[arg(long = "model", value_name = "MODEL", hide = true, conflicts_with = "model")]
    pub(crate) named_model: Option<PathBuf>,

    /// Tokens of the prompt, drawn at random from the vocabulary; 0 for no prefill test.
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = count)]
    pub(crate) prompt_tokens: usize,

    /// Tokens to generate; 0 for no decode test.
    #[arg(short = 'n', long, alias = "max-tokens", value_name = "N", default_value_t = 128, value_parser = passes)]
    pub(crate) tokens: usize,

    /// Tokens in the KV cache before each test. A list separated by commas runs each test at each depth.
    #[arg(short, long, value_name = "D", value_delimiter = ',', default_value = "0", value_parser = count)]
    pub(crate) depth: Vec<usize>,

    /// Measured repetitions of each test, after its warm-up. An interval needs at least 2.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=MAX_REPETITIONS))]
    pub(crate) repetitions: u32,

    /// The seed for the random tokens of the prompt.
    #[arg(long, default_value_t = 42, value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub(crate) seed: u64,

    /// Measure without the profiler and its overhead. The receipt then lists no bricks and no kernels, and
    /// `verify-receipt` refuses it, since nothing shows what ran.
    #[arg(long)]
    pub(crate) no_profiler: bool,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Then add the run to this lake, as `brickscope collect` does. BRICKSCOPE_MACHINE names the machine in it, and
    /// BRICKSCOPE_COMMIT the engine's commit.
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) lake: Option<PathBuf>,

    /// With --out: overwrite the run or the set in the folder.
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,

    /// With --processes and --out: go on with the set in the folder that was cut short. What was measured is kept, if it is of
    /// the same model, flags and build.
    #[arg(long, requires = "out", conflicts_with_all = ["overwrite", "set"])]
    pub(crate) resume: bool,

    /// Measure in this many separate processes, one after the other, each with its own folder. Times vary
    /// more between processes than within one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MAX_PROCESSES))]
    pub(crate) processes: u32,

    /// The number of this process in its set, for callers that start the processes of a set themselves.
    #[arg(long, value_name = "K", requires = "set", hide = true)]
    pub(crate) process: Option<u32>,

    /// The name of the set.
    #[arg(long, value_name = "NAME", requires = "process", hide = true)]
    pub(crate) set: Option<String>,

    /// The output format. All formats but md are for programs: nothing else is printed.
    #[arg(short, long, alias = "output", short_alias = 'o', value_enum, value_name = "FORMAT", default_value_t = Format::Md)]
    pub(crate) format: Format,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    /// Let `brickscope top --attach PID` on this machine watch. It costs nothing while nobody watches; a
    /// watcher takes CPU time from what is measured.
    #[arg(long)]
    pub(crate) live: bool,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,

    #[command(flatten)]
    pub(crate) otlp: OtlpArgs,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

impl BenchmarkArgs {
    /// The output format.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

impl BenchmarkArgs {
    /// The file to run, if one was named.
    fn model(&self) -> Option<&Path> {
        self.model.as_deref().or(self.named_model.as_deref())
    }
}

/// The longest context of today's models.
const MAX_TOKENS: usize = 1 << 20;

/// A benchmark keeps each of its passes, and has room for twice as many.
const MAX_PASSES: usize = 1 << 15;

/// More would exceed the size of the longest receipt.
const MAX_REPETITIONS: i64 = 10_000;

/// The largest integer that all JSON readers read exactly.
const MAX_SEED: u64 = 1 << 53;

fn count(text: &str) -> Result<usize, String> {
    at_most(text, MAX_TOKENS)
}

fn passes(text: &str) -> Result<usize, String> {
    at_most(text, MAX_PASSES)
}

fn at_most(text: &str, most: usize) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(n) if n <= most => Ok(n),
        _ => Err(format!("must be 0 to {most} tokens")),
    }
}

/// The results of one process or of several.
struct Done {
    measurements: Vec<Measurement>,
    model: ModelRow,
    folder: PathBuf,
    /// How it was cut short.
    cut_short: Option<String>,
    /// What went wrong after the measurement.
    trouble: Option<anyhow::Error>,
    pushing: Option<Pushing>,
}

pub(crate) fn run(args: &BenchmarkArgs) -> Result<()> {
    let plans = Plan::all(args.prompt_tokens, args.tokens, &args.depth);
    if plans.is_empty() {
        bail!("there is nothing to measure: --prompt-tokens or --tokens must be above 0");
    }
    if args.resume && args.processes == 1 {
        bail!("--resume: it is about the processes of a set, and --processes doesn't ask for one");
    }
    if args.processes > 1 && args.metrics.metrics.is_some() {
        bail!("--metrics: with --processes all processes would serve at the same address");
    }
    if args.processes > 1 && args.live {
        bail!("--live: with --processes there is a new process for each run");
    }
    if args.processes > 1 && args.otlp.otlp_every.is_some() {
        bail!(
            "--otlp-every: with --processes there is a new process for each run; --otlp pushes each"
        );
    }
    if args.no_profiler && args.otlp.otlp.is_some() {
        bail!("--otlp: with --no-profiler there are no metrics to push");
    }
    if let Some(backend) = device::asked(&args.executor) {
        device::check(&args.executor, backend)?;
        ensure!(
            !args.executor.mmap && !args.executor.small_pages,
            "--mmap and --small-pages are about the CPU's memory, and --backend {backend} runs on a device"
        );
    }
    let target = Target::of(&args.otlp)?;
    if args.process.is_some_and(|process| !(1..=args.processes).contains(&process)) {
        bail!("--process: must be 1 to {}, the number of processes", args.processes);
    }
    let repetitions = u64::from(args.repetitions) + Rule::default().most as u64;
    let bytes: u64 = plans.iter().map(|plan| plan.receipt_bytes()).sum();
    let bytes = bytes.saturating_mul(repetitions);
    if bytes > MAX_BYTES {
        bail!(
            "--repetitions: the receipt would have about {:.0} MB, and brickscope reads at most {:.0} MB: \
            use fewer repetitions, tokens or depths",
            bytes as f64 / 1e6,
            MAX_BYTES as f64 / 1e6
        );
    }
    runs::ready_for_lake(args.lake.as_deref())?;
    interrupt::watch()?;
    let Done { measurements, model, folder, cut_short, trouble, pushing } =
        if args.processes > 1 && args.process.is_none() {
            measure_apart(args)?
        } else {
            measure(args, &plans, target.as_ref())?
        };
    let is_cut_short = cut_short.is_some();
    let text = match args.format() {
        Format::Md => {
            let mut text = table::not_finite(&measurements);
            let note = cut_short.map(|how| format!("note: cut short: {how}\n\n"));
            text += &note.unwrap_or_default();
            text += &table::markdown(&measurements, &model);
            if let [measurement] = &measurements[..] {
                text += &table::notes(measurement);
            } else {
                text += &table::across(&measurements, &folder);
            }
            text
        }
        format => {
            if let Some(how) = cut_short {
                tell!("note: cut short: {how}");
            }
            rows::render(&measurements, &model, format)
        }
    };
    let printed = output::print(text);
    // A part of a benchmark is in no lake, and isn't pushed.
    let whole = (!is_cut_short && trouble.is_none()).then_some(&*folder);
    let pushed: Vec<&Path> = match whole {
        Some(_) => measurements.iter().map(|measured| &*measured.folder).collect(),
        None => Vec::new(),
    };
    let target = target.as_ref();
    let sent = runs::send(whole, &pushed, Places { lake: args.lake.as_deref(), target, pushing });
    sent.and(trouble.map_or(printed, Err))
}

/// Measures in separate processes, one after the other.
fn measure_apart(args: &BenchmarkArgs) -> Result<Done> {
    let started = Profile::empty(Default::default()).created;
    let model = source::model(args.model())?;
    let mut measurements = set::finished(args, &model)?;
    let goes_on = !measurements.is_empty();
    let dir = RunDir::open(args.out.as_deref(), &started, args.overwrite || goes_on)?;
    // A process that is cut short ends by itself, and this one has to report the others.
    interrupt::keep();
    let bar = progress::steps("processes", u64::from(args.processes));
    let mut show = |process: u32| bar.set_position(u64::from(process) - 1);
    let trouble = set::run(args, &dir, &mut show, &mut measurements).err();
    bar.finish_and_clear();
    if measurements.is_empty() {
        return Err(trouble.unwrap_or_else(|| interrupt::Nothing.into()));
    }
    let cut_short = interrupt::was_heeded().then(|| {
        format!("interrupted after {} of {} processes", measurements.len(), args.processes)
    });
    let (model, folder) = (ModelRow::of(&model), dir.path().to_owned());
    Ok(Done { measurements, model, folder, cut_short, trouble, pushing: None })
}

/// What is said of an error in mid-run, such as a device that is lost.
const ENDED_EARLY: &str = "the benchmark ended early, and no receipt is written";

/// Measures in this process, and writes the run.
fn measure(args: &BenchmarkArgs, plans: &[Plan], target: Option<&Target>) -> Result<Done> {
    let started = Profile::empty(Default::default()).created;
    let live = Live::begin(args.live, true)?;
    let mut model = source::model_with(args.model(), &|done, total| {
        live.say_bytes("making a model", done, total);
    })?;
    let backend = device::asked(&args.executor);
    if backend.is_none() {
        source::copy_weights(&mut model, &args.executor, &|done, total| {
            live.say_bytes("loading the weights", done, total);
        })?;
    }
    let context = plans.iter().map(Plan::context).max().unwrap_or_default();
    // Before the weights, since this needs memory as well.
    let mut of_device = backend.map(device::ceilings);
    let (cpu, mut session) = session(args, &model, backend, context, &live)?;
    let dir = RunDir::open_late(args.out.as_deref(), &started, args.overwrite)?;
    live.say("hashing the model, measuring what this machine can do");
    let mut before = before(args, &model, &*session, cpu.as_ref(), backend)?;

    let settings = Settings {
        seed: args.seed,
        repetitions: args.repetitions,
        profiled: !args.no_profiler,
        backend: backend.map(Backend::name),
        warm_up: Rule::default(),
    };
    // The profile is to have one prefill and one decode test: those with the smallest depth.
    let kept = |is_decode| {
        let plans = plans.iter().filter(|plan| plan.is_decode() == is_decode);
        plans.min_by_key(|plan| plan.n_depth).copied()
    };
    let kept = [kept(false), kept(true)];
    let tokens = kept.iter().flatten().map(|plan| plan.n_prompt + plan.n_gen).sum();
    let capacity = log_capacity(&model, session.batch(), tokens);
    let profilers = Profilers::new(Clock::default(), capacity, backend.is_some());
    let mut bench = Bench::new(&mut *session, settings, &profilers)?;
    let mut served = {
        let model = source::describe(&model);
        let ceilings = before.ceilings.as_ref().ok().cloned();
        metrics::serve(&args.metrics, target, bench.current(), move |profile| {
            profile.model = Some(model.clone());
            profile.ceilings = ceilings.clone();
        })?
    };
    let live = publish(live, &model, &before, of_device.as_ref(), &bench)?;
    let load_before = load_average();
    let throttled_before = throttled();
    let watch = LoadWatch::start();
    let note = progress::note("measuring");
    let mut show = |what: String| {
        note.set_message(what);
        note.tick();
    };
    let mut tests: Vec<Measured> = Vec::new();
    for &plan in plans {
        if !tests.is_empty() && interrupt::is_asked() {
            break;
        }
        let measured = bench.run(plan, kept.contains(&Some(plan)), &mut show);
        tests.extend(measured.context(ENDED_EARLY)?);
    }
    let cut_short = interrupt::was_heeded().then(|| {
        let counted = |measured: &Measured| {
            let samples = measured.test.samples.iter();
            let counted = samples.filter(|sample| !sample.is_warm_up).count();
            format!("{} of {} repetitions of {}", counted, args.repetitions, measured.test.name)
        };
        let left_out = match plans.len() - tests.len() {
            0 => String::new(),
            n => format!(", and without {}", text::count(n as u64, "further test")),
        };
        let counted: Vec<String> = tests.iter().map(counted).collect();
        format!("interrupted after {}{left_out}; no receipt is written", counted.join(", "))
    });
    note.finish_and_clear();
    drop(live);
    let pushing = served.stop_pushing();

    let load = load(load_before, watch);
    let throttled = throttled().saturating_sub(throttled_before);
    let of_profile: Vec<Plan> = kept.iter().flatten().copied().collect();
    // On a device, what is kept runs once more, and only if nothing was cut short.
    if bench.is_on_device() && cut_short.is_some() {
        tests.iter_mut().for_each(|of| of.profiled = Profiled::No);
    }
    let profile = bench.profile(&of_profile, cut_short.is_some());
    let mut profile = profile.context(ENDED_EARLY)?;
    let mut not_finite = tests.iter().filter_map(|measured| measured.not_finite.clone());
    profile.not_finite = not_finite.next().map(|first| not_finite.fold(first, NotFinite::and));
    profile.model = Some(source::describe(&model));
    profile.machine = Some(brickscope::machine::detect());
    if let (Ok(ceilings), Some(cpu)) = (&mut before.ceilings, &cpu) {
        ceilings_cache::measure_again(&model, cpu.kernels, cpu.pool(), ceilings);
    }
    match &before.ceilings {
        Ok(ceilings) => profile.ceilings = Some(ceilings.clone()),
        Err(absent) => profile.ceilings_absent = Some(absent.clone()),
    }
    drop(session);
    if let (Some(backend), Some(Ok(ceilings))) = (backend, &mut of_device) {
        device::measure_again(backend, ceilings);
    }
    if let Some(ceilings) = of_device {
        device::add_ceilings(&mut profile, ceilings);
    }
    profile.named = machine_name::named();
    profile.run = Some(brickscope::Run {
        prompt_tokens: kept[0].map_or(0, |plan| plan.n_prompt as u64),
        generated_tokens: kept[1].map_or(0, |plan| plan.n_gen as u64),
        cut_short: cut_short.clone(),
        repeated: tests.iter().map(|of| repeated(&of.test, of.profiled)).collect(),
        ..described(&before)
    });
    let choosing = tests.iter().map(|measured| measured.choosing).collect();
    let after =
        After { timestamp: profile.created.clone(), tests, profile: &profile, load, throttled };
    let mut receipt = receipt::receipt(before, after);
    let written = if cut_short.is_some() {
        // A receipt of a part could pass for one of the whole, and a part of a set for one of its runs.
        let is_kept = args.set.is_none() && !profile.passes.is_empty();
        match is_kept && !dir.holds_a_run() {
            true => dir.write(|dir| dir.save(&profile)),
            false => Written { folder: None, trouble: None },
        }
    } else {
        receipt = receipt.sealed()?;
        dir.write(|dir| dir.save_benchmark(&receipt, settings.profiled.then_some(&profile)))
    };
    let Written { folder, trouble } = written;
    let folder = folder.unwrap_or_else(|| PathBuf::from("(nothing is written)"));
    let answer = settings.profiled.then(|| Answer::of(&profile));
    let measurements = vec![Measurement { receipt, folder: folder.clone(), answer, choosing }];
    Ok(Done { measurements, model: ModelRow::of(&model), folder, cut_short, trouble, pushing })
}

/// The repetitions of a test that count, as its receipt has them.
fn repeated(test: &Test, profiled: Profiled) -> Repeated {
    let counted = test.samples.iter().filter(|sample| !sample.is_warm_up);
    let repetition = |sample: &Sample| Repetition {
        tokens: sample.tokens,
        wall_ns: sample.wall_ns,
        disturbed: sample.disturbed,
    };
    Repeated {
        test: test.name.clone(),
        phase: if test.n_gen > 0 { Phase::Decode } else { Phase::Prefill },
        prompt_tokens: test.n_prompt,
        generated_tokens: test.n_gen,
        depth: test.n_depth,
        repetitions: counted.map(repetition).collect(),
        profiled,
    }
}

/// Lets others watch the repetition that runs, if asked for.
fn publish(
    live: Live,
    model: &Model,
    before: &Before,
    of_device: Option<&Result<Ceilings, Absent>>,
    bench: &Bench<'_, '_>,
) -> Result<Option<Publisher>> {
    let facts = || Facts {
        run: Some(described(before)),
        model: Some(source::describe(model)),
        machine: Some(brickscope::machine::detect()),
        ceilings: before.ceilings.as_ref().ok().cloned(),
        ceilings_absent: before.ceilings.as_ref().err().cloned(),
        device_ceilings: of_device.and_then(|of| of.as_ref().ok().cloned()),
        device_ceilings_absent: of_device.and_then(|of| of.as_ref().err().cloned()),
    };
    let current = bench.current();
    let profiler = move || Arc::clone(&*current.lock().unwrap_or_else(PoisonError::into_inner));
    live.publish(profiler, facts)
}

/// The run as a profile describes it. On a device no threads share the work.
fn described(before: &Before) -> brickscope::Run {
    brickscope::Run {
        command: before.run.command.clone(),
        backend: before.run.kernels.clone(),
        threads: if before.device.is_some() { 0 } else { before.run.threads },
        ..brickscope::Run::default()
    }
}

/// A session on the CPU, with its threads, or on a device.
fn session<'m>(
    args: &BenchmarkArgs,
    model: &'m Model,
    backend: Option<Backend>,
    context: usize,
    live: &Live,
) -> Result<(Option<Cpu>, Box<dyn AnySession<'m> + 'm>)> {
    let Some(backend) = backend else {
        let cpu = source::cpu(&args.executor)?;
        return Ok((Some(cpu.clone()), Box::new(Session::new(model, cpu, context)?)));
    };
    let what = "uploading the weights";
    live.say(what);
    let note = progress::note(what);
    let session = device::session(backend, model, context)?;
    note.finish_and_clear();
    Ok((None, session))
}

fn before(
    args: &BenchmarkArgs,
    model: &Model,
    session: &dyn AnySession<'_>,
    cpu: Option<&Cpu>,
    backend: Option<Backend>,
) -> Result<Before> {
    let hashed = receipt::model(model)?;
    let ceilings = match cpu {
        Some(cpu) => {
            let note = progress::note("measuring what this machine can do");
            let ceilings = ceilings_cache::sure_ceilings(model, cpu.kernels, cpu.pool());
            note.finish_and_clear();
            ceilings
        }
        None => Err(Absent { reason: device::NO_CEILINGS.to_owned() }),
    };
    let kernels = backend.or(cpu.map(|cpu| cpu.kernels.backend()));
    let run = Run {
        command: text::command_line(),
        kernels: kernels.map_or(String::new(), |backend| backend.name().to_owned()),
        // A device's work is issued by one.
        threads: cpu.map_or(1, |cpu| cpu.threads() as u32),
        batch: session.batch() as u64,
        sampling: "greedy".to_owned(),
        seed: args.seed,
        repetitions: args.repetitions,
        process: args.process.unwrap_or(1),
        processes: args.processes,
        set: args.set.clone(),
        profiled: !args.no_profiler,
    };
    Ok(Before {
        model: hashed,
        run,
        device: session.device().map(receipt::device),
        weights: match cpu {
            Some(_) => source::weights_in(model).unwrap_or_else(|| "buffer".to_owned()),
            None => DEVICE_MEMORY.to_owned(),
        },
        ceilings,
    })
}

/// The number of periods so far in which the control group's CPU limit stopped this process.
fn throttled() -> u64 {
    CpuLimit::read().and_then(|limit| limit.throttled_periods).unwrap_or_default()
}

/// The system's load average over the last minute.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn load(before: Option<f64>, watch: Result<LoadWatch, Absent>) -> Load {
    let load = Load { before, ..Load::default() };
    match watch.and_then(|watch| watch.so_far()) {
        Ok(others) => Load {
            others_share: Some(others.others_share()),
            steal_share: others.steal_share(),
            absent: others
                .steal_ns
                .is_none()
                .then(|| "the kernel doesn't report stolen time".to_owned()),
            ..load
        },
        Err(absent) => Load { absent: Some(absent.reason), ..load },
    }
}
