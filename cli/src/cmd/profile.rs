//! `brickscope profile`: runs a model and reports where its time went.

use clap::ValueEnum;
use indicatif::ProgressBar;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brickscope::{
    Absent, BrickProfiler, Ceilings, DeviceError, NotFinite, Pass, Profile, Run, SyncMode,
};
use brickscope_analysis::typical::{Basis, Typical};
use brickscope_analysis::view;
use brickscope_engine::executor::Cpu;
use brickscope_engine::{
    AnySession, GenerateOptions, Generated, Model, Sampling, Session, generate,
};
use brickscope_kernels::Backend;
use brickscope_live::socket::{Facts, Publisher};

use crate::cmd::{collect, trace};
use crate::flags::{DEFAULT_PROMPT, ExecutorArgs, MetricsArgs, OtlpArgs};
use crate::live::Live;
use crate::metrics::Served;
use crate::otlp::{Pushing, Target};
use crate::run_dir::RunDir;
use crate::{
    ceilings_cache, device, family, interrupt, metrics, output, progress, source, summary,
};

/// Run a model and report where its time went.
///
/// Without a model, a small one with random weights is made (110 million weights, q8_0) and stored in
/// the cache folder, which BRICKSCOPE_CACHE overrides. Its timings are real, its text is noise. The run
/// is written to a folder that `brickscope show` reads.
///
/// Ctrl-C or SIGTERM ends the run after its pass, and what ran until then is reported and written, marked
/// as cut short; the exit code is 130 or 143. A second signal ends it at once.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope profile\n  brickscope profile model.gguf --prompt \"Hello\" --tokens 128 --threads 2\n  brickscope profile model.gguf --json | jq .phases\n  brickscope profile --check-overhead --threads 2\n  brickscope profile model.gguf --compare-backends --tokens 16"
)]
pub(crate) struct ProfileArgs {
    /// The GGUF file to run.
    pub(crate) model: Option<PathBuf>,

    /// The same as naming the file without a flag.
    #[arg(long = "model", value_name = "MODEL", hide = true, conflicts_with = "model")]
    pub(crate) named_model: Option<PathBuf>,

    /// The prompt. By default a few sentences about profilers, about 100 tokens.
    #[arg(long, default_value = DEFAULT_PROMPT, hide_default_value = true)]
    pub(crate) prompt: String,

    /// Tokens to generate. An end-of-text token doesn't stop the run, so that runs can be compared.
    #[arg(long, alias = "max-tokens", default_value_t = 64, allow_negative_numbers = true)]
    pub(crate) tokens: usize,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Then add the run to this lake, as `brickscope collect` does. BRICKSCOPE_MACHINE names the machine in it, and
    /// BRICKSCOPE_COMMIT the engine's commit.
    #[arg(long, value_name = "DIR|URL", conflicts_with_all = ["check_overhead", "compare_backends"])]
    pub(crate) lake: Option<PathBuf>,

    /// The folder to write the run to if --out can't be written to any more.
    #[arg(long, value_name = "DIR", hide = true, requires = "out")]
    pub(crate) rescue: Option<PathBuf>,

    /// Print the profile as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the whole report instead of one screen: every table, tokens, a pass as a tree, its critical path, the
    /// clock. `brickscope show RUN --full` prints it later.
    #[arg(long, conflicts_with_all = ["json", "endless"])]
    pub(crate) full: bool,

    /// How often to wait for a device: after every brick, after every layer, or once per pass with bricks
    /// timed by the device's own clock. On the CPU all modes time bricks the same way, except `none`,
    /// which times nothing.
    #[arg(long, value_enum, default_value_t = Sync::Deferred)]
    pub(crate) sync: Sync,

    /// On a device: the smallest thing to time. By default the finest grain whose timestamps cost at most
    /// 1 % of a pass; the report names it and says why.
    #[arg(long, value_enum)]
    pub(crate) grain: Option<Grain>,

    /// Sample tokens at this temperature (softmax of logits / T). At 0, as without this flag, take the likeliest.
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,

    /// Take the likeliest token, as without --temperature.
    #[arg(long, hide = true)]
    pub(crate) greedy: bool,

    /// With --temperature: sample among the K likeliest tokens only; 0 for all.
    #[arg(long, value_name = "K", default_value_t = 40, requires = "temperature")]
    pub(crate) top_k: usize,

    /// With --temperature: sample among the fewest tokens whose probabilities add up to at least P.
    #[arg(long, value_name = "P", default_value_t = 0.95, requires = "temperature", value_parser = probability)]
    pub(crate) top_p: f32,

    /// With --temperature: the random seed. The same seed gives the same tokens.
    #[arg(long, default_value_t = 42, requires = "temperature")]
    pub(crate) seed: u64,

    /// Measure the cost of profiling: decode each token twice without the profiler and twice with it, in
    /// turns, and print the slow-down with its 95 % interval. A process stops once its interval is within
    /// ±0.1 %. Writes no run; --json prints every single time.
    #[arg(long, conflicts_with_all = NOT_WITH_MEASUREMENTS)]
    pub(crate) check_overhead: bool,

    /// With --check-overhead: measure for at most this many seconds, without loading and warm-up.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 20.0,
        requires = "check_overhead",
        conflicts_with_all = NOT_WITH_MEASUREMENTS,
        value_parser = seconds,
        allow_negative_numbers = true
    )]
    pub(crate) overhead_seconds: f64,

    /// With --check-overhead: divide the time among this many processes, one after the other. Memory is
    /// laid out differently in each, which changes the slow-down, so the interval is of their mean.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        requires = "check_overhead",
        conflicts_with_all = NOT_WITH_MEASUREMENTS,
        value_parser = clap::value_parser!(u32).range(1..=100),
    )]
    pub(crate) overhead_processes: u32,

    /// Be one of those processes, and print JSON.
    #[arg(long, hide = true, requires = "check_overhead")]
    pub(crate) overhead_process: bool,

    /// Compare all backends of this CPU: a table of bricks by backend, with time, GB/s, GFLOP/s and the
    /// share of that backend's measured roofline. All run the same prompt and the same tokens, in turns.
    /// Writes no run; --json prints the time of every round.
    #[arg(
        long,
        conflicts_with_all = NOT_WITH_MEASUREMENTS,
        conflicts_with_all = NOT_WITH_COMPARE_BACKENDS
    )]
    pub(crate) compare_backends: bool,

    /// With --compare-backends: the number of rounds. The table shows, for each brick, the round with the
    /// median time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        requires = "compare_backends",
        conflicts_with_all = NOT_WITH_MEASUREMENTS,
        conflicts_with_all = NOT_WITH_COMPARE_BACKENDS,
        value_parser = clap::value_parser!(u32).range(1..=MAX_ROUNDS)
    )]
    pub(crate) rounds: u32,

    /// Read hardware counters at each brick: cycles, instructions, cache and branch misses. This slows
    /// short bricks down.
    #[arg(long)]
    pub(crate) counters: bool,

    /// Also record each thread's share of each kernel, so that the critical path names the thread that the
    /// others waited for. This slows short kernels down.
    #[arg(long)]
    pub(crate) shares: bool,

    /// Time the tiles of matrix products over several tokens: each thread's share, the blocks that fit a
    /// core's caches, and the runs of register tiles inside them. `--full` then shows the GFLOP/s of
    /// each level and how evenly the threads shared the work. This slows short prompts and small matrices
    /// down.
    #[arg(long)]
    pub(crate) tiles: bool,

    /// Keep each thread on a CPU of its own during the run. By default the system places them, and may put
    /// two on one CPU.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Leave out of --json the passes that were disturbed or had a stall, and of the report also where
    /// fewer than five others remain. The report leaves them out anyway if it can, and counts them. A
    /// phase of which no pass would remain keeps all, with a note. They stay in the run's file.
    #[arg(long)]
    pub(crate) leave_out_disturbed: bool,

    /// Let `brickscope top --attach PID` on this machine watch the run. It costs nothing while nobody
    /// watches.
    #[arg(long)]
    pub(crate) live: bool,

    /// Repeat the prompt and the answer until standard input ends, and write no run.
    #[arg(long, hide = true, requires = "live", conflicts_with_all = ["out", "json"])]
    pub(crate) endless: bool,

    /// Wait for a watcher before the run begins.
    #[arg(long, hide = true, requires = "live")]
    pub(crate) await_watcher: bool,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,

    #[command(flatten)]
    pub(crate) otlp: OtlpArgs,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

/// The most rounds of a comparison of backends.
const MAX_ROUNDS: i64 = 100;

/// Flags that mean nothing to a measurement of the overhead or a comparison of backends, or would
/// disturb it. Flags that require one of these are listed too: where a required flag conflicts with
/// another that is given, clap considers the requirement met.
const NOT_WITH_MEASUREMENTS: [&str; 19] = [
    "out",
    "full",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "counters",
    "shares",
    "tiles",
    "leave_out_disturbed",
    "pin",
    "live",
    "endless",
    "await_watcher",
    "metrics",
    "metrics_names",
    "metrics_public",
    "otlp",
    "otlp_every",
];

/// Further flags that mean nothing to a comparison of backends.
const NOT_WITH_COMPARE_BACKENDS: [&str; 6] =
    ["check_overhead", "overhead_seconds", "overhead_processes", "sync", "grain", "backend"];

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Grain {
    /// Kernels, and the bricks around them.
    Kernels,
    /// Bricks.
    Bricks,
    /// Layers only.
    Layers,
    /// Whole passes only.
    Passes,
}

impl From<Grain> for brickscope::Grain {
    fn from(grain: Grain) -> Self {
        match grain {
            Grain::Kernels => Self::Kernel,
            Grain::Bricks => Self::Brick,
            Grain::Layers => Self::Layer,
            Grain::Passes => Self::Pass,
        }
    }
}

/// [`SyncMode`], as the command line spells it.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Sync {
    Immediate,
    #[value(alias = "per_layer")]
    PerLayer,
    Deferred,
    None,
}

impl From<Sync> for SyncMode {
    fn from(sync: Sync) -> Self {
        match sync {
            Sync::Immediate => Self::Immediate,
            Sync::PerLayer => Self::PerLayer,
            Sync::Deferred => Self::Deferred,
            Sync::None => Self::None,
        }
    }
}

/// A day.
const MAX_SECONDS: f64 = 86_400.0;

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("must be 0 or a number above it".to_owned()),
    }
}

impl ProfileArgs {
    /// The words of a command line that makes the same run of a model again: without the model, and without where and how
    /// it is reported.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words =
            vec![format!("--prompt={}", self.prompt), format!("--tokens={}", self.tokens)];
        let name =
            self.sync.to_possible_value().map(|value| format!("--sync={}", value.get_name()));
        words.extend(name);
        let grain = self.grain.and_then(|grain| grain.to_possible_value());
        words.extend(grain.map(|grain| format!("--grain={}", grain.get_name())));
        if let Some(temperature) = self.temperature {
            words.push(format!("--temperature={temperature}"));
            words.push(format!("--top-k={}", self.top_k));
            words.push(format!("--top-p={}", self.top_p));
            words.push(format!("--seed={}", self.seed));
        }
        let flags = [
            ("--counters", self.counters),
            ("--shares", self.shares),
            ("--tiles", self.tiles),
            ("--pin", self.pin),
        ];
        words.extend(flags.iter().filter(|flag| flag.1).map(|flag| flag.0.to_owned()));
        words.extend(self.executor.words());
        words
    }

    /// The file to run, if one was named.
    pub(crate) fn model(&self) -> Option<&Path> {
        self.model.as_deref().or(self.named_model.as_deref())
    }

    /// The temperature, if tokens are drawn at random.
    fn temperature(&self) -> Option<f32> {
        self.temperature.filter(|&temperature| temperature > 0.0)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= MAX_SECONDS => Ok(value),
        _ => Err(format!("must be a number above 0 and at most {MAX_SECONDS}")),
    }
}

fn probability(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("must be a number above 0 and at most 1".to_owned()),
    }
}

/// The most rows of the trace that are kept, summed over all recording threads: half a gigabyte.
const MAX_LOG: usize = 1 << 23;
/// How long a run waits for the view that started it.
const WATCHER_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &ProfileArgs) -> Result<()> {
    collect::ready(args.lake.as_deref())?;
    if let Some(temperature) = args.temperature().filter(|_| args.greedy) {
        bail!("--greedy takes the likeliest token, and --temperature {temperature} does not");
    }
    let target = Target::of(&args.otlp)?;
    interrupt::watch()?;
    // A view that starts this run doesn't read its messages.
    let live = Live::begin(args.live, !args.await_watcher)?;
    let mut model = source::model_with(args.model(), &|done, total| {
        live.say_bytes("making a model", done, total);
    })?;
    let prompt = source::prompt(&model, &args.prompt)?;
    let started = Profile::empty(Default::default()).created;
    let ran = match device::asked(&args.executor) {
        Some(backend) => {
            measure_on_device(args, &model, &prompt, backend, (&started, live), target.as_ref())?
        }
        None => {
            let host = prepare(args, &model, &prompt, (&started, &live))?;
            source::copy_weights(&mut model, &args.executor, &|done, total| {
                live.say_bytes("loading the weights", done, total);
            })?;
            measure(args, &model, &prompt, host, live, target.as_ref())?
        }
    };
    report(args, &model, &prompt, ran, target.as_ref())
}

/// What a run on the CPU knows before its model is in memory.
struct Host {
    cpu: Cpu,
    dir: RunDir,
    ceilings: Result<Ceilings, Absent>,
    /// The number of tokens that the run has room for.
    context: usize,
}

fn prepare(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    (started, live): (&str, &Live),
) -> Result<Host> {
    ensure!(args.grain.is_none(), "--grain is about a device's time: add --backend");
    let cpu = source::cpu(&args.executor)?;
    // The last token is chosen, but not run.
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));
    // Early, so that bad settings are refused before the model is loaded.
    drop(Session::new(model, cpu.clone(), context)?);
    // Before the run, so that an unwritable folder is reported before it and not after.
    let dir = new_folder(args, started)?;
    // Before the weights, since this needs memory as well.
    let what = "measuring what this machine can do";
    live.say(what);
    let note = progress::note(what);
    let ceilings = ceilings_cache::ceilings(model, cpu.kernels, cpu.pool());
    note.finish_and_clear();
    Ok(Host { cpu, dir, ceilings, context })
}

fn new_folder(args: &ProfileArgs, started: &str) -> Result<RunDir> {
    let dir = RunDir::create_late(args.out.as_deref(), started)?;
    Ok(dir.rescued_to(args.rescue.as_deref()))
}

/// What to do after a pass: a signal ends the run, but the pass that ran then is whole. An endless run has
/// no report.
fn go_on(args: &ProfileArgs, bar: &ProgressBar, done: usize) -> ControlFlow<()> {
    bar.set_position(done as u64);
    if args.endless {
        return ControlFlow::Continue(());
    }
    interrupt::keep();
    let is_over = bar.length().is_some_and(|all| done as u64 >= all);
    if !is_over && interrupt::is_asked() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// The ceilings of what ran the bricks.
enum Limits {
    OfHost(Result<Ceilings, Absent>),
    OfDevice(Result<Ceilings, Absent>),
}

/// A finished run, before it is reported or saved.
struct Ran {
    dir: RunDir,
    limits: Limits,
    profiler: Arc<BrickProfiler>,
    generated: Generated,
    not_finite: Option<NotFinite>,
    backend: &'static str,
    threads: usize,
    pushing: Option<Pushing>,
}

// The two halves of a run are separate functions to keep the stack small while the model runs:
// samplers copy only a few kilobytes of it.
#[inline(never)]
fn measure(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    host: Host,
    live: Live,
    target: Option<&Target>,
) -> Result<Ran> {
    let Host { cpu, dir, mut ceilings, context } = host;
    let mut session = Session::new(model, cpu, context)?;
    live.say("warming up");
    let note = progress::note("warming up");

    let mut capacity = log_capacity(model, session.batch(), context);
    // A run that is never written needs no single spans.
    if args.endless {
        capacity = 0;
    }
    if args.shares {
        capacity = shares_capacity(capacity, session.cpu().threads());
    } else if args.tiles {
        // With shares all threads record, and all logs have the same capacity.
        capacity = capacity.min(MAX_LOG / session.cpu().threads());
    }
    let profiler = Arc::new(BrickProfiler::new().with_log_capacity(capacity));
    profiler.set_sync_mode(args.sync.into());
    warm_up(&mut session, prompt)?;
    note.finish_and_clear();
    if args.counters
        && let Err(absent) = profiler.enable_counters()
    {
        // The report says so too, but at its end. The user asked for counters, so say it now.
        tell!("note: no hardware counters: {}", absent.reason);
    }
    if args.shares {
        session.profile_shares(Some(&profiler));
        // Each thread makes the log of its shares when it first records one, which takes as long as some passes.
        profiler.enable();
        warm_up(&mut session, prompt)?;
        profiler.disable();
        profiler.reset();
    }
    let (backend, threads) = (session.cpu().kernels.backend().name(), session.cpu().threads());
    let mut served = {
        let described = described(args, prompt, backend, threads, args.tokens);
        let ceilings = ceilings.as_ref().ok().cloned();
        serve(args, target, model, &profiler, described, ceilings)?
    };
    profiler.enable();
    if args.tiles {
        session.profile_tiles(&profiler);
    }
    let live = publish(args, live, &profiler, || Facts {
        run: Some(described(args, prompt, backend, threads, args.tokens)),
        model: Some(source::describe(model)),
        machine: Some(brickscope::machine::detect()),
        ceilings: ceilings.as_ref().ok().cloned(),
        ceilings_absent: ceilings.as_ref().err().cloned(),
        ..Facts::default()
    })?;
    let options = GenerateOptions { n_tokens: args.tokens, sampling: sampling(args) };
    let bar = progress::tokens("running", context as u64);
    let mut show = |done: usize| go_on(args, &bar, done);
    let mut probe = session.probe(&profiler)?;
    // All threads that don't run the model exist by now, since new ones stay on the CPU of the thread that starts them.
    let pool = session.cpu().clone();
    let pinned = args.pin.then(|| pool.pool().pin()).transpose();
    let pinned = pinned.context("--pin")?;
    let generated = loop {
        let generated = generate(&mut session, Some(&mut probe), prompt, options, &mut show)?;
        if !args.endless {
            break generated;
        }
        session.clear();
    };
    bar.finish_and_clear();
    drop(pinned);
    profiler.disable();
    drop(live);
    let pushing = served.stop_pushing();
    if let Ok(ceilings) = &mut ceilings {
        let cpu = session.cpu();
        ceilings_cache::measure_again(model, cpu.kernels, cpu.pool(), ceilings);
    }
    let not_finite = generated.not_finite(&mut session, prompt)?;
    let limits = Limits::OfHost(ceilings);
    Ok(Ran { dir, limits, profiler, generated, not_finite, backend, threads, pushing })
}

/// Serves and pushes metrics of the run until the returned guard is dropped.
fn serve(
    args: &ProfileArgs,
    target: Option<&Target>,
    model: &Model,
    profiler: &Arc<BrickProfiler>,
    run: Run,
    ceilings: Option<Ceilings>,
) -> Result<Served> {
    let model = source::describe(model);
    let current = Arc::new(Mutex::new(Arc::clone(profiler)));
    metrics::serve(&args.metrics, target, current, move |profile| {
        profile.model = Some(model.clone());
        profile.run = Some(run.clone());
        profile.ceilings = ceilings.clone();
    })
}

/// As [`measure`], on a device. The CPU only issues the work and waits for it.
fn measure_on_device(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    backend: Backend,
    (started, live): (&str, Live),
    target: Option<&Target>,
) -> Result<Ran> {
    let of_the_cpu =
        [("--counters", args.counters), ("--shares", args.shares), ("--tiles", args.tiles)];
    for (flag, is_asked) in of_the_cpu {
        ensure!(
            !is_asked,
            "{flag} is about the CPU's threads, and --backend {backend} runs on a device"
        );
    }
    ensure!(
        !args.pin,
        "--pin is about the CPU's threads, and --backend {backend} runs on a device"
    );
    device::check(&args.executor, backend)?;
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));
    // Before the weights, since this needs memory as well.
    live.say("measuring what the device can do");
    let mut of_device = device::ceilings(backend);
    let what = "uploading the weights, warming up";
    live.say(what);
    let note = progress::note(what);
    let mut session = device::session(backend, model, context)?;
    let dir = new_folder(args, started)?;
    // The first dispatch of each kernel compiles it, on many drivers.
    for warm_up in [&prompt[..prompt.len().min(session.batch())], &prompt[..1]] {
        session.forward(warm_up)?;
        session.clear();
    }
    note.finish_and_clear();
    let capacity = log_capacity(session.model(), session.batch(), context);
    let profiler = Arc::new(BrickProfiler::new().with_log_capacity(capacity));
    profiler.set_sync_mode(args.sync.into());
    let described_run = described(args, prompt, backend.name(), 0, args.tokens);
    let mut served = serve(args, target, session.model(), &profiler, described_run, None)?;
    profiler.enable();
    let absent = Absent { reason: device::NO_CEILINGS.to_owned() };
    let live = publish(args, live, &profiler, || Facts {
        run: Some(described(args, prompt, backend.name(), 0, args.tokens)),
        model: Some(source::describe(session.model())),
        machine: Some(brickscope::machine::detect()),
        ceilings_absent: Some(absent.clone()),
        device_ceilings: of_device.as_ref().ok().cloned(),
        device_ceilings_absent: of_device.as_ref().err().cloned(),
        ..Facts::default()
    })?;
    let mut probe = session.probe(&profiler)?;
    if let Some((timer, grain)) = probe.timer().zip(args.grain) {
        timer.set_grain(grain.into());
    }
    // Where it can't be measured, the report says why.
    if profiler.sync_mode() != SyncMode::None
        && let Err(lost @ DeviceError::Lost { .. }) = session.calibrate(&mut probe)
    {
        return Err(lost.into());
    }
    let options = GenerateOptions { n_tokens: args.tokens, sampling: sampling(args) };
    let bar = progress::tokens("running", context as u64);
    let mut show = |done: usize| go_on(args, &bar, done);
    let generated = loop {
        let generated = generate(&mut *session, Some(&mut probe), prompt, options, &mut show);
        if !args.endless || generated.is_err() {
            break generated;
        }
        session.clear();
    };
    bar.finish_and_clear();
    // What was settled before a device was lost is kept, and says so.
    let generated = match generated {
        Ok(generated) => generated,
        Err(error) => {
            profiler.disable();
            let mut profile = profiler.profile();
            profile.model = Some(source::describe(session.model()));
            profile.machine = Some(brickscope::machine::detect());
            profile.run = Some(described(args, prompt, backend.name(), 0, 0));
            device::add_ceilings(&mut profile, of_device);
            let written = dir.write(|dir| dir.save(&profile));
            let kept = match (&written.folder, &written.trouble) {
                (_, Some(trouble)) => trouble.to_string(),
                (Some(folder), None) => format!("{} has what was measured", folder.display()),
                (None, None) => "nothing was written".to_owned(),
            };
            return Err(error).with_context(|| format!("the run ended early; {kept}"));
        }
    };
    session.finish(probe)?;
    profiler.disable();
    drop(live);
    let pushing = served.stop_pushing();
    let not_finite = generated.not_finite(&mut *session, prompt)?;
    drop(session);
    if let Ok(ceilings) = &mut of_device {
        device::measure_again(backend, ceilings);
    }
    let (limits, backend) = (Limits::OfDevice(of_device), backend.name());
    Ok(Ran { dir, limits, profiler, generated, not_finite, backend, threads: 0, pushing })
}

/// Lets others watch, if asked for, until the returned guard is dropped.
fn publish(
    args: &ProfileArgs,
    live: Live,
    profiler: &Arc<BrickProfiler>,
    facts: impl FnOnce() -> Facts,
) -> Result<Option<Arc<Mutex<Option<Publisher>>>>> {
    let profiler = Arc::clone(profiler);
    let Some(publisher) = live.publish(move || Arc::clone(&profiler), facts)? else {
        return Ok(None);
    };
    if args.await_watcher {
        // Without its watcher the run is still a run.
        let _ = publisher.wait_for_watcher(WATCHER_WITHIN);
    }
    let live = Arc::new(Mutex::new(Some(publisher)));
    if args.endless {
        let live = Arc::clone(&live);
        // The process that started this has gone, or wants it to end.
        family::end_with_input(move || {
            drop(live.lock().unwrap_or_else(PoisonError::into_inner).take());
        })?;
    }
    Ok(Some(live))
}

#[inline(never)]
fn report(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    ran: Ran,
    target: Option<&Target>,
) -> Result<()> {
    let Ran { dir, limits, profiler, generated, not_finite, backend, threads, pushing } = ran;

    let mut profile = profiler.profile();
    profile.model = Some(source::describe(model));
    profile.machine = Some(brickscope::machine::detect());
    match limits {
        Limits::OfHost(Ok(ceilings)) => profile.ceilings = Some(ceilings),
        Limits::OfHost(Err(absent)) => profile.ceilings_absent = Some(absent),
        Limits::OfDevice(ceilings) => device::add_ceilings(&mut profile, ceilings),
    }
    profile.not_finite = not_finite;
    if args.shares {
        profile.shares = brickscope_engine::thread_shares(&profile, threads);
    }
    let n_generated = generated.tokens.len();
    let mut described = described(args, prompt, backend, threads, n_generated);
    if interrupt::was_heeded() {
        described.cut_short =
            Some(format!("interrupted after {n_generated} of {} tokens", args.tokens));
    }
    profile.run = Some(described);
    // An error must not lose the figures: it is told after the report.
    let written = dir.write(|dir| dir.save(&profile));
    trace::where_asked(&profile);
    // The file has all passes, so that `show` can decide again what to leave out.
    if args.leave_out_disturbed {
        profile = without_disturbed(profile, !args.json);
    }
    let printed = if args.json {
        output::print(view::json(&profile))
    } else if args.full {
        let answer = excerpt(model, prompt, &generated.tokens);
        let mut text = format!("{}{:9} {answer}\n", view::report(&profile), "text");
        if let Some(folder) = &written.folder {
            text += &format!("{:9} {}\n", "run in", output::shown(folder));
        }
        output::print(text)
    } else {
        let is_noise = profile.model.as_ref().is_some_and(|model| model.synthetic);
        let answer = (!is_noise && !generated.tokens.is_empty())
            .then(|| format!("Text: {}", excerpt(model, prompt, &generated.tokens)));
        summary::print(&profile, written.folder.as_deref(), answer.as_deref())
    };
    let collected = collect::into_lake(args.lake.as_deref(), written.folder.as_deref());
    // Collectors may be slow, so all else comes first.
    if let Some(pushing) = pushing {
        pushing.finish();
    }
    if let (Some(target), Some(folder)) = (target, &written.folder) {
        target.push_written(folder);
    }
    collected.and(written.trouble.map_or(printed, Err))
}

fn described(
    args: &ProfileArgs,
    prompt: &[u32],
    backend: &str,
    threads: usize,
    n_generated: usize,
) -> Run {
    Run {
        command: crate::text::command_line(),
        backend: backend.to_owned(),
        threads: threads as u32,
        pinned: args.pin,
        prompt_tokens: prompt.len() as u64,
        generated_tokens: n_generated as u64,
        seed: args.temperature().map(|_| args.seed),
        ..Run::default()
    }
}

/// The profile without passes that were disturbed or had a stall. Each phase is decided by itself: one of which no
/// pass would remain keeps all, with a note. A report leaves them out by itself, and says why, unless too few would
/// remain.
pub(super) fn without_disturbed(profile: Profile, is_report: bool) -> Profile {
    let mut out: HashSet<u32> = HashSet::new();
    let mut report_does_it = true;
    for typical in Typical::all(&profile) {
        let phase = typical.phase;
        let stalled: HashSet<u32> = typical.stalls.iter().map(|stall| stall.pass).collect();
        let is_out = |pass: &&Pass| pass.is_disturbed() || stalled.contains(&pass.serial);
        let passes = || profile.passes.iter().filter(|p| p.phase == phase && !p.is_left_out);
        let of_phase: Vec<u32> = passes().filter(is_out).map(|pass| pass.serial).collect();
        if !of_phase.is_empty() && of_phase.len() == passes().count() {
            tell!(
                "note: all passes of {phase} were disturbed or had a stall ({}), so none is left out of it",
                of_phase.len()
            );
            continue;
        }
        report_does_it &= of_phase.is_empty() || typical.basis == Basis::Passes;
        out.extend(of_phase);
    }
    if is_report && report_does_it && !out.is_empty() {
        return profile;
    }
    profile.without(|pass| out.contains(&pass.serial)).unwrap_or_else(|absent| {
        tell!("note: {}", absent.reason);
        profile
    })
}

fn sampling(args: &ProfileArgs) -> Sampling {
    match args.temperature() {
        None => Sampling::Greedy,
        Some(temperature) => {
            let (top_k, top_p, seed) = (args.top_k, args.top_p, args.seed);
            Sampling::Random { temperature, top_k, top_p, seed }
        }
    }
}

/// Room for every span of the run, so that the trace has no holes.
pub(crate) fn log_capacity(model: &Model, batch: usize, context: usize) -> usize {
    // A layer has at most 14 bricks, 33 kernels and a row for itself.
    let spans_per_pass = 48 * (model.config.n_layers + 1);
    // Each token of the answer is a pass; the prompt takes fewer.
    let passes = context.div_ceil(batch) + context;
    spans_per_pass.saturating_mul(passes).min(MAX_LOG)
}

/// Capacity of each thread's log when every kernel also has a row per thread. All logs have the same
/// capacity and share [`MAX_LOG`]. The thread that hands the work out has a row for each other thread.
fn shares_capacity(capacity: usize, threads: usize) -> usize {
    capacity.saturating_mul(1 + threads).min(MAX_LOG / threads.max(1))
}

/// Runs unmeasured passes, which bring the weights into memory and warm up the caches.
fn warm_up(session: &mut Session<'_>, prompt: &[u32]) -> Result<()> {
    let prompt = &prompt[..prompt.len().min(session.batch())];
    session.forward(prompt)?;
    session.clear();
    Ok(())
}

/// The beginning of the answer, quoted, on one line.
fn excerpt(model: &Model, prompt: &[u32], tokens: &[u32]) -> String {
    const WIDTH: usize = 64;
    let mut decoder = model.tokenizer.decoder();
    // Only the answer is printed, but how it begins depends on the end of the prompt.
    for &token in prompt {
        let _ = decoder.push(token);
    }
    let mut text = String::new();
    for &token in tokens {
        // The embedding may have more rows than the vocabulary has tokens.
        text.push_str(decoder.push(token).unwrap_or("\u{fffd}"));
    }
    text.push_str(&decoder.finish());
    let mut line: String = text.escape_debug().take(WIDTH).collect();
    if text.escape_debug().count() > WIDTH {
        line.push('…');
    }
    format!("\"{line}\"")
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, Disturbance, MockClock, Phase};

    use super::*;

    /// Passes of one brick, of a prompt and of an answer. The 20th pass of the answer has a stall, and these of the
    /// prompt were disturbed.
    fn with_both_phases(prompt: usize, disturbed: &[usize]) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for nth in 0..prompt + 40 {
            let phase = if nth < prompt { Phase::Prefill } else { Phase::Decode };
            let pass = profiler.begin_pass(phase);
            for brick in [BrickId::QkvProjection, BrickId::LmHead] {
                let timer = profiler.start_brick(brick);
                hand.advance(if nth == prompt + 20 { 90_000_000 } else { 1_000_000 });
                profiler.stop_brick(timer, 1);
            }
            profiler.end_pass(pass, 1, nth as u64);
        }
        let mut profile = profiler.profile();
        for &pass in disturbed {
            profile.passes[pass].disturbance = Some(Disturbance {
                passes: 1,
                wall_ns: profile.passes[pass].wall_ns,
                longest_wait_ns: Some(1_500_000),
                run_queue_wait_ns: Some(1_500_000),
                ..Disturbance::default()
            });
        }
        let n = profile.passes.iter().filter(|pass| pass.is_disturbed()).count();
        assert_eq!(n, disturbed.len());
        let prefill = profile.phases.iter_mut().find(|total| total.phase == Phase::Prefill);
        prefill.expect("a prompt").disturbed = n as u64;
        profile.dropped.disturbed_passes = n as u64;
        profile.check().expect("it adds up");
        profile
    }

    #[test]
    fn what_is_left_out_of_a_phase_does_not_depend_on_the_other() {
        let passes = |profile: &Profile| {
            [Phase::Prefill, Phase::Decode].map(|phase| profile.phase(phase).map(|of| of.passes))
        };
        // Of three passes of the prompt one was disturbed: fewer than five would remain, and the report by itself
        // leaves none out of this phase.
        let few = with_both_phases(3, &[1]);
        for is_report in [false, true] {
            let rest = without_disturbed(few.clone(), is_report);
            rest.check().expect("it adds up");
            assert_eq!(passes(&rest), [Some(2), Some(39)]);
            assert_eq!((rest.dropped.left_out_passes, rest.dropped.disturbed_passes), (2, 0));
            let left_out = rest.passes.iter().filter(|pass| pass.is_left_out);
            assert_eq!(left_out.map(|pass| pass.serial).collect::<Vec<u32>>(), [2, 24]);
            assert!(view::report(&rest).contains("passes left out of the tables: 2"));
        }
        // Of many the report does it, with the reasons.
        let many = with_both_phases(10, &[1, 4]);
        assert_eq!(passes(&without_disturbed(many.clone(), false)), [Some(8), Some(39)]);
        assert_eq!(without_disturbed(many.clone(), true), many);
        // A phase without any pass would say that it never ran.
        for is_report in [false, true] {
            let rest = without_disturbed(with_both_phases(2, &[0, 1]), is_report);
            let shown = view::json(&rest);
            assert_eq!(passes(&rest)[0], Some(2), "{shown}");
            assert_eq!(passes(&rest)[1], Some(if is_report { 40 } else { 39 }), "{shown}");
        }
    }

    #[test]
    fn the_logs_of_all_threads_stay_within_the_bound() {
        // A small run has room for all shares.
        assert_eq!(shares_capacity(1_000, 2), 3_000);
        for threads in [0, 1, 2, 3, 32, 1_000] {
            let each = shares_capacity(usize::MAX, threads);
            assert!(each > 0 && each * threads.max(1) <= MAX_LOG, "{threads} threads: {each}");
        }
    }
}
