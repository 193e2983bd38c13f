//! The flags of `profile`, which makes runs, and of what makes them again.

use std::path::{Path, PathBuf};

use brickscope::SyncMode;
use brickscope_engine::Sampling;
use clap::ValueEnum;

use super::{DEFAULT_PROMPT, EXECUTION, ExecutorArgs, MetricsArgs, OtlpArgs, WATCHING};

/// The headings of its flags in `--help`. `-h` has a page, and leaves out what few need.
const SAMPLING: &str = "Sampling";
const RECORDING: &str = "What is recorded";
const INSTEAD: &str = "Instead of a run";

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
    #[arg(
        long = "model",
        short_alias = 'm',
        value_name = "MODEL",
        hide = true,
        conflicts_with = "model"
    )]
    pub(crate) named_model: Option<PathBuf>,

    /// The prompt. By default a few sentences about profilers, about 100 tokens.
    #[arg(long, short_alias = 'p', default_value = DEFAULT_PROMPT, hide_default_value = true)]
    pub(crate) prompt: String,

    /// Tokens to generate. An end-of-text token doesn't stop the run, so that runs can be compared.
    // Short as in llama.cpp, whose users type them.
    #[arg(
        long,
        short_alias = 'n',
        alias = "max-tokens",
        default_value_t = 64,
        allow_negative_numbers = true
    )]
    pub(crate) tokens: usize,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(short, long, value_name = "DIR")]
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
    #[arg(long, value_enum, default_value_t = Sync::Deferred, hide_short_help = true, help_heading = RECORDING)]
    pub(crate) sync: Sync,

    /// On a device: the smallest thing to time. By default the finest grain whose timestamps cost at most
    /// 1 % of a pass; the report names it and says why.
    #[arg(long, value_enum, hide_short_help = true, help_heading = RECORDING)]
    pub(crate) grain: Option<Grain>,

    /// Sample tokens at this temperature (softmax of logits / T). At 0, as without this flag, take the likeliest.
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true, help_heading = SAMPLING)]
    pub(crate) temperature: Option<f32>,

    /// Take the likeliest token, as without --temperature.
    #[arg(long, hide = true)]
    pub(crate) greedy: bool,

    /// With --temperature: sample among the K likeliest tokens only; 0 for all.
    #[arg(long, value_name = "K", default_value_t = 40, requires = "temperature", hide_short_help = true, help_heading = SAMPLING)]
    pub(crate) top_k: usize,

    /// With --temperature: sample among the fewest tokens whose probabilities add up to at least P.
    #[arg(long, value_name = "P", default_value_t = 0.95, requires = "temperature", value_parser = probability, hide_short_help = true, help_heading = SAMPLING)]
    pub(crate) top_p: f32,

    /// With --temperature: the random seed. The same seed gives the same tokens.
    #[arg(long, default_value_t = 42, requires = "temperature", hide_short_help = true, help_heading = SAMPLING)]
    pub(crate) seed: u64,

    /// Measure the cost of profiling: decode each token twice without the profiler and twice with it, in
    /// turns, and print the slow-down with its 95 % interval. A process stops once its interval is within
    /// ±0.1 %. Writes no run; --json prints every single time.
    #[arg(long, conflicts_with_all = NOT_WITH_MEASUREMENTS, help_heading = INSTEAD)]
    pub(crate) check_overhead: bool,

    /// With --check-overhead: measure for at most this many seconds, without loading and warm-up.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 20.0,
        requires = "check_overhead",
        conflicts_with_all = NOT_WITH_MEASUREMENTS,
        value_parser = seconds,
        allow_negative_numbers = true,
        hide_short_help = true,
        help_heading = INSTEAD
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
        hide_short_help = true,
        help_heading = INSTEAD
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
        conflicts_with_all = NOT_WITH_COMPARE_BACKENDS,
        help_heading = INSTEAD
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
        value_parser = clap::value_parser!(u32).range(1..=MAX_ROUNDS),
        hide_short_help = true,
        help_heading = INSTEAD
    )]
    pub(crate) rounds: u32,

    /// Read hardware counters at each brick: cycles, instructions, cache and branch misses. This slows
    /// short bricks down.
    #[arg(long, help_heading = RECORDING)]
    pub(crate) counters: bool,

    /// Also record each thread's share of each kernel, so that the critical path names the thread that the
    /// others waited for. This slows short kernels down.
    #[arg(long, hide_short_help = true, help_heading = RECORDING)]
    pub(crate) shares: bool,

    /// Time the tiles of matrix products over several tokens: each thread's share, the blocks that fit a
    /// core's caches, and the runs of register tiles inside them. `--full` then shows the GFLOP/s of
    /// each level and how evenly the threads shared the work. This slows short prompts and small matrices
    /// down.
    #[arg(long, hide_short_help = true, help_heading = RECORDING)]
    pub(crate) tiles: bool,

    /// Keep each thread on a CPU of its own during the run. By default the system places them, and may put
    /// two on one CPU.
    #[arg(long, hide_short_help = true, help_heading = EXECUTION)]
    pub(crate) pin: bool,

    /// Leave out of --json the passes that were disturbed or had a stall, and of the report also where
    /// fewer than five others remain. The report leaves them out anyway if it can, and counts them. A
    /// phase of which no pass would remain keeps all, with a note. They stay in the run's file.
    #[arg(long, hide_short_help = true, help_heading = RECORDING)]
    pub(crate) leave_out_disturbed: bool,

    /// Let `brickscope top --attach PID` on this machine watch the run. It costs nothing while nobody
    /// watches.
    #[arg(long, help_heading = WATCHING)]
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

    /// How tokens are chosen.
    pub(crate) fn sampling(&self) -> Sampling {
        match self.temperature() {
            None => Sampling::Greedy,
            Some(temperature) => {
                let (top_k, top_p, seed) = (self.top_k, self.top_p, self.seed);
                Sampling::Random { temperature, top_k, top_p, seed }
            }
        }
    }

    /// The temperature, if tokens are drawn at random.
    pub(crate) fn temperature(&self) -> Option<f32> {
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
