//! Every flag of the command.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use brickscope::{Backend, SyncMode};
use brickscope_analysis::export::prometheus::Names;
use brickscope_engine::synth::{Shape, SynthQuant};
use clap::{Parser, Subcommand, ValueEnum};

/// See where an LLM's time goes: brick by brick, measured.
#[derive(Debug, Parser)]
#[command(
    name = "brickscope",
    version,
    about,
    max_term_width = 80,
    after_help = "Examples:\n  brickscope profile model.gguf --prompt \"Once upon a time\" --tokens 64\n\nDid a change make it slower?\n  brickscope benchmark model.gguf --processes 10 --out runs/main\n  brickscope verify-receipt runs/main/1\n  brickscope benchmark model.gguf --processes 10 --out runs/pr\n  brickscope compare runs/main runs/pr\n  brickscope gate --baseline baseline --update runs/main\n  brickscope gate --baseline baseline runs/pr -o md\n  brickscope history runs"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Profile(ProfileArgs),
    Benchmark(BenchmarkArgs),
    Compare(CompareArgs),
    Gate(GateArgs),
    Show(ShowArgs),
    Top(TopArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Report(ReportArgs),
    Logits(LogitsArgs),
    Diverge(DivergeArgs),
    VerifyReceipt(VerifyReceiptArgs),
    Receipt(ReceiptArgs),
    Tokenize(TokenizeArgs),
    Synth(SynthArgs),
    Doctor(DoctorArgs),
    Machine(MachineArgs),
    Selftest(SelftestArgs),
    History(HistoryArgs),
    Flamegraph(FlamegraphArgs),
}

/// Run a model and report where its time went.
///
/// Without a model, a small one with random weights is made (110 million weights, q8_0) and kept in
/// the cache folder (BRICKSCOPE_CACHE names another): its timings are real, its text is noise. The run is written to a folder, which
/// `brickscope show` reads.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope profile\n  brickscope profile model.gguf --prompt \"Hello\" --tokens 128 --threads 2\n  brickscope profile model.gguf --json | jq .phases\n  brickscope profile --check-overhead --threads 2\n  brickscope profile model.gguf --compare-backends --tokens 16"
)]
pub(crate) struct ProfileArgs {
    /// The GGUF file to run.
    pub(crate) model: Option<PathBuf>,

    /// The text to go on from. By default some sentences about profilers, some 100 tokens.
    #[arg(long, default_value = DEFAULT_PROMPT, hide_default_value = true)]
    pub(crate) prompt: String,

    /// Tokens to generate. A token that ends the text doesn't stop the run, so that runs compare.
    #[arg(long, default_value_t = 64, allow_negative_numbers = true)]
    pub(crate) tokens: usize,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print the profile as JSON instead of the report.
    #[arg(long)]
    pub(crate) json: bool,

    /// How often to wait for a device: after every brick, every layer, or once for a pass, with bricks
    /// timed by the device's own clock. Bricks on the CPU are timed alike in all modes but `none`, which
    /// times nothing.
    #[arg(long, value_enum, default_value_t = Sync::Deferred)]
    pub(crate) sync: Sync,

    /// On a device: what has a time of its own. By default as fine as it can be for 1 % of a pass, by what a
    /// time stamp costs; the report says which, and why.
    #[arg(long, value_enum)]
    pub(crate) grain: Option<Grain>,

    /// Choose tokens at random, by the softmax of the logits over this, instead of the likeliest.
    #[arg(long, value_name = "T", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,

    /// With --temperature: only among the K likeliest tokens; 0 for all.
    #[arg(long, value_name = "K", default_value_t = 40, requires = "temperature")]
    pub(crate) top_k: usize,

    /// With --temperature: only among the fewest tokens that together have this probability.
    #[arg(long, value_name = "P", default_value_t = 0.95, requires = "temperature", value_parser = probability)]
    pub(crate) top_p: f32,

    /// With --temperature: the same seed gives the same tokens.
    #[arg(long, default_value_t = 42, requires = "temperature")]
    pub(crate) seed: u64,

    /// Measure what profiling costs, instead of profiling: decode each token twice without the
    /// profiler and twice with it, in turns, and print the slow-down with its 95 % interval. A
    /// process ends when its own is ±0.1 %. Writes no run; --json has every single time.
    #[arg(long, conflicts_with_all = NOT_WITH_MEASUREMENTS)]
    pub(crate) check_overhead: bool,

    /// With --check-overhead: measure for so many seconds at the most, loading and warm-up not counted.
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

    /// With --check-overhead: divide the time among so many processes, one after the other. Where memory lies
    /// differs from one to the next, and the slow-down with it, so the interval is that of their mean.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        requires = "check_overhead",
        conflicts_with_all = NOT_WITH_MEASUREMENTS,
        value_parser = clap::value_parser!(u32).range(1..=100),
    )]
    pub(crate) overhead_processes: u32,

    /// One of those processes: prints JSON.
    #[arg(long, hide = true, requires = "check_overhead")]
    pub(crate) overhead_process: bool,

    /// Hold the backends of this CPU against each other, instead of profiling one: one table of bricks by
    /// backend, with time, GB/s, GFLOP/s and the part of that backend's measured roof. Each runs the same
    /// prompt and the same tokens, in turns. Writes no run; --json has the time of every round.
    #[arg(
        long,
        conflicts_with_all = NOT_WITH_MEASUREMENTS,
        conflicts_with_all = NOT_WITH_COMPARE_BACKENDS
    )]
    pub(crate) compare_backends: bool,

    /// With --compare-backends: how many turns each backend has. Of each brick the round counts whose
    /// time is in the middle.
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

    /// Read hardware counters at each brick: cycles, instructions, cache and branch misses. Short
    /// bricks become slower by it.
    #[arg(long)]
    pub(crate) counters: bool,

    /// Record each thread's share of each kernel, too: the critical path then says which thread the
    /// others waited for. Short kernels become slower by it.
    #[arg(long)]
    pub(crate) shares: bool,

    /// Time the tiles that products of several tokens are cut into: each thread's share, the blocks that stay
    /// in a core's caches, and the runs of register tiles in these. The report gets GFLOP/s of each level, and
    /// how evenly threads shared the work. Short prompts and small matrices become slower by it.
    #[arg(long)]
    pub(crate) tiles: bool,

    /// Leave passes that other work on this machine disturbed out of the tables. They are counted in
    /// any case, and stay in the run's file.
    #[arg(long)]
    pub(crate) leave_out_disturbed: bool,

    /// Let others on this machine watch the run: `brickscope top --attach PID`. It costs nothing while nobody
    /// does.
    #[arg(long)]
    pub(crate) live: bool,

    /// Run the prompt and the answer again and again until standard input ends, and write no run.
    #[arg(long, hide = true, requires = "live", conflicts_with_all = ["out", "json"])]
    pub(crate) endless: bool,

    /// Begin when somebody watches.
    #[arg(long, hide = true, requires = "live")]
    pub(crate) await_watcher: bool,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

/// Rounds of a comparison of backends at most.
const MAX_ROUNDS: i64 = 100;

/// What has no meaning where the overhead is measured or backends are compared, or would disturb that. Also what goes
/// with one of these: where what a flag requires conflicts with another that is there, clap takes `requires` for
/// settled.
const NOT_WITH_MEASUREMENTS: [&str; 15] = [
    "out",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "counters",
    "shares",
    "tiles",
    "leave_out_disturbed",
    "live",
    "endless",
    "await_watcher",
    "metrics",
    "metrics_names",
    "metrics_public",
];

/// What else has none where backends are compared.
const NOT_WITH_COMPARE_BACKENDS: [&str; 6] =
    ["check_overhead", "overhead_seconds", "overhead_processes", "sync", "grain", "backend"];

/// Metrics of a run while it runs.
#[derive(Debug, clap::Args)]
pub(crate) struct MetricsArgs {
    /// While the model runs, serve Prometheus metrics at http://ADDR/metrics: 127.0.0.1:9187, say. Port 0
    /// takes any that is free; which, is said on standard error. A scrape takes some CPU time from what is
    /// measured. docs/metrics.md lists them.
    #[arg(long, value_name = "ADDR", value_parser = socket_addr)]
    pub(crate) metrics: Option<SocketAddr>,

    /// With --metrics: by which names.
    #[arg(long, value_enum, value_name = "NAMES", default_value_t = MetricsNames::Brickscope, requires = "metrics")]
    pub(crate) metrics_names: MetricsNames,

    /// With --metrics: the address may be one that other machines reach. Metrics name the model and its
    /// file, nothing is encrypted, and nobody is asked who they are.
    #[arg(long, requires = "metrics")]
    pub(crate) metrics_public: bool,
}

/// [`Names`], as the command line spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricsNames {
    /// `brickscope_…`: all that is known.
    Brickscope,
    /// `llamacpp:…`: those of llama.cpp's server, as far as we measure the same.
    Llamacpp,
    /// Both.
    Both,
}

impl From<MetricsNames> for Names {
    fn from(names: MetricsNames) -> Self {
        match names {
            MetricsNames::Brickscope => Self::Brickscope,
            MetricsNames::Llamacpp => Self::LlamaCpp,
            MetricsNames::Both => Self::Both,
        }
    }
}

/// What runs a model.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecutorArgs {
    /// Threads that share the work. By default all that this process may use.
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// The kernels: scalar, avx2, avx512 or neon (tested under qemu, never run on silicon), or a device,
    /// wgpu or cuda. By default the fastest that run on this CPU.
    #[arg(long)]
    pub(crate) backend: Option<Backend>,

    /// Leave the weights in the file, mapped, rather than copy them into large pages of memory, from which
    /// a CPU reads faster, and put them there in the order that the kernels read fastest. For a device, and by
    /// `logits`, they are never copied.
    #[arg(long)]
    pub(crate) mmap: bool,
}

impl ExecutorArgs {
    /// The words of a command line that say the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let Self { threads, backend, mmap } = self;
        let threads = threads.map(|threads| format!("--threads={threads}"));
        let backend = backend.map(|backend| format!("--backend={}", backend.name()));
        let mmap = mmap.then(|| "--mmap".to_owned());
        [threads, backend, mmap].into_iter().flatten().collect()
    }
}

/// Measure how fast a model runs, repeatedly, and write a receipt.
///
/// Two kinds of test, as in llama-bench: pp512, the prefill of 512 random tokens, and tg128, 128
/// decode passes of one token. Each is run until its times agree, and then so often as
/// --repetitions says. All single times, and what they were measured with and under, are written to
/// receipt.json in the run's folder; docs/benchmark.md says what is inside of each number.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope benchmark model.gguf --threads 2\n  brickscope benchmark model.gguf --tokens 64 --depth 0,512 -o json\n  brickscope benchmark model.gguf --processes 5 --out runs/today"
)]
pub(crate) struct BenchmarkArgs {
    /// The GGUF file to run. Without one, the same stands in as for `profile`.
    pub(crate) model: Option<PathBuf>,

    /// Tokens of the prompt, drawn at random from the vocabulary; 0 for no prefill test.
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = count)]
    pub(crate) prompt_tokens: usize,

    /// Tokens to generate; 0 for no decode test.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128, value_parser = passes)]
    pub(crate) tokens: usize,

    /// Tokens in the KV cache before each test; several, separated by commas, for a test of each.
    #[arg(short, long, value_name = "D", value_delimiter = ',', default_value = "0", value_parser = count)]
    pub(crate) depth: Vec<usize>,

    /// Measured repetitions of each test, after those of the warm-up. An interval takes 2.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=MAX_REPETITIONS))]
    pub(crate) repetitions: u32,

    /// What the tokens of the prompt are drawn with.
    #[arg(long, default_value_t = 42, value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub(crate) seed: u64,

    /// Measure without the profiler, and so without what it costs. The receipt then has no bricks and
    /// no kernels, and `verify-receipt` refuses it, since nothing shows what ran.
    #[arg(long)]
    pub(crate) no_profiler: bool,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// With --out: write over the run or the set that the folder holds.
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,

    /// Measure in so many processes of its own, one after the other, each into a folder of its own.
    /// Times differ more from process to process than within one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MAX_PROCESSES))]
    pub(crate) processes: u32,

    /// Which process of a set this one is: for those who start the processes of a set themselves.
    #[arg(long, value_name = "K", requires = "set", hide = true)]
    pub(crate) process: Option<u32>,

    /// The name of the set.
    #[arg(long, value_name = "NAME", requires = "process", hide = true)]
    pub(crate) set: Option<String>,

    /// In which form to print the results. All but md are for programs: nothing else is printed.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Md)]
    pub(crate) output: Format,

    /// The same as --output json.
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,

    /// Let others on this machine watch: `brickscope top --attach PID`. It costs nothing while nobody does;
    /// who watches takes CPU time from what is measured.
    #[arg(long)]
    pub(crate) live: bool,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

impl BenchmarkArgs {
    /// The form to print in.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }
}

/// The forms in which llama-bench prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people, and what there is to say about it.
    Md,
    /// An array with an object for each test.
    Json,
    /// An object a line.
    Jsonl,
    /// A line of names, and a line for each test.
    Csv,
    /// A table `llama_bench`.
    Sql,
}

/// Say what became slower or faster from A to B: tests, categories and bricks.
///
/// A and B are each a receipt, a run's folder, or a folder of run folders, as `benchmark --processes`
/// writes it; or two builds of brickscope, which --processes has measured in turns A B B A. Processes
/// are what is compared: 5 a side to see large changes, 20 for 3 %. Two single runs tell nothing, and
/// that is what is said then.
///
/// The exit code is 0 if nothing is slower and every test has a verdict, 1 if something is slower, 3 if
/// that can't be told, 2 if the comparison can't be made. docs/compare.md says how it is decided.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope compare runs/before runs/after\n  brickscope compare runs/before runs/after --threshold 5% -o md\n  brickscope compare old/brickscope new/brickscope --processes 20 --model model.gguf -- --tokens 32"
)]
pub(crate) struct CompareArgs {
    /// What to compare with.
    pub(crate) a: PathBuf,

    /// What may have changed.
    pub(crate) b: PathBuf,

    #[command(flatten)]
    pub(crate) how: ComparisonArgs,

    /// A and B are programs: run the benchmark in so many processes of each, in turns A B B A.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_PROCESSES))]
    pub(crate) processes: Option<u32>,

    /// With --processes: the GGUF file to run. Without one, the same stands in as for `benchmark`.
    #[arg(long, value_name = "FILE", requires = "processes")]
    pub(crate) model: Option<PathBuf>,

    /// With --processes: the folder for their runs, `a/1`, `b/1` and so on. By default a new one in
    /// `brickscope-runs`.
    #[arg(long, value_name = "DIR", requires = "processes")]
    pub(crate) out: Option<PathBuf>,

    /// With --processes: what to pass on to `benchmark`.
    #[arg(last = true, value_name = "BENCHMARK ARGS", requires = "processes")]
    pub(crate) benchmark: Vec<OsString>,
}

/// Hold a run against a baseline: `compare` for CI.
///
/// The exit code is 0 if nothing is slower and every test has a verdict, 1 if something is slower, 3 if
/// that can't be told (more processes are needed), 2 if the comparison can't be made.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope benchmark model.gguf --processes 20 --out run\n  brickscope gate --baseline baseline --update run\n  brickscope gate --baseline baseline run --threshold 3% -o md"
)]
pub(crate) struct GateArgs {
    /// The run to judge: a receipt, a run's folder, or a folder of run folders. By default the newest
    /// in `brickscope-runs`.
    pub(crate) run: Option<PathBuf>,

    /// The folder of the baseline.
    #[arg(long, value_name = "DIR")]
    pub(crate) baseline: PathBuf,

    /// Make the run the new baseline, instead of judging it.
    #[arg(long)]
    pub(crate) update: bool,

    #[command(flatten)]
    pub(crate) how: ComparisonArgs,
}

/// How to compare, and how to print it.
#[derive(Debug, clap::Args)]
pub(crate) struct ComparisonArgs {
    /// The smallest change that matters.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = threshold, allow_hyphen_values = true)]
    pub(crate) threshold: f64,

    /// Don't judge bricks that take less of their test than this.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = share, allow_hyphen_values = true)]
    pub(crate) min_share: f64,

    /// Compare even what ran under unlike conditions. That is printed on top.
    #[arg(long)]
    pub(crate) force: bool,

    /// In which form to print.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ComparisonFormat::Text)]
    pub(crate) output: ComparisonFormat,

    /// The same as --output json.
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparisonFormat {
    /// A sentence and tables, for people.
    Text,
    /// Markdown: a comment on a pull request.
    Md,
    /// Every figure.
    Json,
    /// Side B in Bencher Metric Format.
    Bmf,
}

/// Draw where time went: exact from measured spans, or from samples of the running program.
///
/// WHAT is a GGUF file to run, the folder of a run, a perf.data, or a file of folded stacks; a COMMAND
/// after `--` is run and sampled. Without either, the same model stands in as for `profile`.
/// Everything is written to one folder: flamegraph.svg, .md, .json and .folded, speedscope.json,
/// profile.pb.gz for pprof, and the run itself.
///
/// With --diff the exit code is 0 if no share grew by more than its error and the threshold, 1 if one
/// did, 3 if that can't be told, 2 if the two can't be compared.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope flamegraph model.gguf\n  brickscope flamegraph model.gguf --via spans --by brick\n  brickscope flamegraph RUN\n  brickscope flamegraph -o flames -- ./my-engine model.gguf\n  brickscope flamegraph perf.data --run RUN\n  brickscope flamegraph model.gguf --diff flames/main --threshold 3"
)]
pub(crate) struct FlamegraphArgs {
    /// The GGUF file to run; or the folder of a run, a perf.data or folded stacks to draw.
    #[arg(conflicts_with = "command")]
    pub(crate) what: Option<PathBuf>,

    /// The program to sample, with its arguments. Built with brickscope, it may lay its spans beside
    /// the samples by `Profile::save_where_asked`.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// Where stacks come from. By default `sampler` for what is run, and for a run what it holds.
    #[arg(long, value_enum)]
    pub(crate) via: Option<Via>,

    /// The folder to write to. By default that of the run that is drawn, else a new one in
    /// `brickscope-runs`.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Samples in a second of each thread's CPU time.
    #[arg(long, value_name = "HZ", default_value_t = 999, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) frequency: u32,

    /// What stacks begin with; by default `layer`.
    #[arg(long, value_enum)]
    pub(crate) by: Option<By>,

    /// With samples of a perf.data: the run to lay them beside.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<PathBuf>,

    /// Compare with this flamegraph: its folder, its flamegraph.json or its folded stacks.
    #[arg(long, value_name = "BASELINE")]
    pub(crate) diff: Option<PathBuf>,

    /// With --diff: how many points of the total something may move.
    #[arg(long, value_name = "POINTS", default_value_t = 3.0, requires = "diff", value_parser = points, allow_negative_numbers = true)]
    pub(crate) threshold: f64,

    /// With --diff: compare even what is of unlike models, units or sources.
    #[arg(long, requires = "diff")]
    pub(crate) force: bool,

    /// The text to go on from. By default as for `profile`.
    #[arg(long, default_value = DEFAULT_PROMPT, hide_default_value = true)]
    pub(crate) prompt: String,

    /// Tokens to generate.
    #[arg(long, default_value_t = 128, allow_negative_numbers = true)]
    pub(crate) tokens: usize,

    /// Print flamegraph.json instead of its tables; with --diff the comparison.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

/// Where the stacks of a flamegraph come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// The measured spans of a run: exact, on any machine.
    Spans,
    /// Samples by brickscope: no privilege, no other program.
    Sampler,
    /// Samples by timers of the program itself, which must be brickscope: where the system refuses
    /// the sampler.
    Timer,
    /// Samples by `perf record`.
    Perf,
}

/// What the stacks of a flamegraph begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Phase, layer, brick, kernel.
    Layer,
    /// Phase, brick, kernel: all layers together.
    Brick,
    /// The thread, then as by layer.
    Thread,
}

/// Watch a running engine: rates, bricks, layers, memory, load.
///
/// Of a model it runs one itself, again and again, or once with --tokens; with --attach it watches any
/// process that publishes: `brickscope profile --live`, or an engine that starts a publisher (docs/live.md).
/// Times are the engine's own, by its clock. Press ? for the keys.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope top model.gguf\n  brickscope top model.gguf --tokens 256 --out runs/today\n  brickscope top --attach 4711\n  brickscope top --attach 4711 --once --json | jq .latency.per_token"
)]
pub(crate) struct TopArgs {
    /// The GGUF file to run. Without one, and without --attach, the same stands in as for `profile`.
    #[arg(conflicts_with = "attach")]
    pub(crate) model: Option<PathBuf>,

    /// Watch this process, by its number or by its socket.
    #[arg(long, value_name = "PID|SOCKET", conflicts_with_all = ["tokens", "prompt", "out", "threads", "backend"])]
    pub(crate) attach: Option<String>,

    /// Print one picture when its figures have settled, or with --tokens when the run has ended.
    #[arg(long)]
    pub(crate) once: bool,

    /// With --once: print the figures as JSON.
    #[arg(long, requires = "once")]
    pub(crate) json: bool,

    /// Frames in a second.
    #[arg(long, value_name = "HZ", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rate: u32,

    /// Generate so many tokens once, and write the run as `profile` does.
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<usize>,

    /// The text to go on from. By default as for `profile`.
    #[arg(long)]
    pub(crate) prompt: Option<String>,

    /// With --tokens: the folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(long, value_name = "DIR", requires = "tokens")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

/// Write a run in the form that another program reads.
///
/// Without -o the file is put into the run's folder. Its path is printed; a large timeline becomes
/// several files, a path for each. docs/export.md says what opens a form, what it carries and what it lacks.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope export RUN --format perfetto\n  brickscope export RUN --format chrome --part-size 64M -o trace.json\n  brickscope export RUN --format csv --table totals -o - | column -s, -t\n  brickscope export RUN --format parquet -o spans.parquet\n  brickscope export RUN --format folded --by thread -o -\n  brickscope export RUN --format prometheus -o -"
)]
pub(crate) struct ExportArgs {
    /// The run's folder, or its profile.json.
    pub(crate) run: PathBuf,

    /// In which form.
    #[arg(short, long, value_enum)]
    pub(crate) format: ExportFormat,

    /// The file to write; `-` for standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// With speedscope, folded and pprof: what comes first in a stack.
    #[arg(long, value_enum)]
    pub(crate) by: Option<By>,

    /// With csv: of what there is a line each. By default of each span.
    #[arg(long, value_enum)]
    pub(crate) table: Option<Table>,

    /// With perfetto and chrome: the most bytes of a file, such as 64M or 1G. Larger timelines become
    /// several, cut where passes begin, each of which opens by itself. By default 256M.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) part_size: Option<u64>,

    /// With prometheus: by which names.
    #[arg(long, value_enum)]
    pub(crate) names: Option<MetricsNames>,
}

/// The tables of `brickscope export --format csv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// Each brick and kernel of each phase, with its sums.
    Totals,
    /// Each pass.
    Passes,
    /// Each layer, brick and kernel that was kept.
    Spans,
}

/// The forms of `brickscope export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A timeline for ui.perfetto.dev and its trace processor.
    Perfetto,
    /// A timeline as JSON, for chrome://tracing and scripts.
    Chrome,
    /// Stacks for speedscope.app.
    Speedscope,
    /// Stacks, a line each, for inferno, FlameGraph and scripts.
    Folded,
    /// Stacks for `go tool pprof`.
    Pprof,
    /// A table for spreadsheets and scripts.
    Csv,
    /// A table of all spans for DuckDB, Polars, pandas and the like.
    #[cfg(feature = "parquet")]
    Parquet,
    /// Metrics in Prometheus' text format: docs/metrics.md lists them.
    Prometheus,
    /// The same metrics as OpenTelemetry's JSON, which a collector takes at /v1/metrics.
    OtlpJson,
}

/// Read a file of another program as a run, for `show`, `compare` and `export`.
///
/// Times are those that the file states; what it can't tell is absent, and the run says so. Times of
/// llama-bench, Chrome traces (candle's --tracing), what ggml's Vulkan backend prints with
/// GGML_VK_PERF_LOGGER=1, and folded stacks; gzip's files are unpacked. docs/import.md says what becomes of
/// each.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llama-bench -m model.gguf -o json > bench.json\n  brickscope import bench.json --out runs/llama\n  brickscope show runs/llama\n  brickscope import trace.json --decode forward --out runs/candle\n  brickscope import server.log --format vk-perf-logger\n  brickscope import stacks.folded --unit us"
)]
pub(crate) struct ImportArgs {
    /// The file.
    pub(crate) file: PathBuf,

    /// Its format. By default what it looks like.
    #[arg(long, value_enum, default_value_t = ImportFormat::Auto)]
    pub(crate) format: ImportFormat,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Of folded stacks: what their weights count, which the file doesn't say.
    #[arg(long, value_enum)]
    pub(crate) unit: Option<WeightUnit>,

    /// Of llama-bench: only these rows, by their numbers from 1 on. A run has one test of prompts and one of
    /// generation, measured alike.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) rows: Vec<usize>,

    /// Of a Chrome trace: each event of this name is a prefill pass.
    #[arg(long, value_name = "EVENT")]
    pub(crate) prefill: Option<String>,

    /// Of a Chrome trace: each event of this name is a decode pass.
    #[arg(long, value_name = "EVENT")]
    pub(crate) decode: Option<String>,

    /// Print JSON: the run's folder, and what the file lacks.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The formats of `brickscope import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// What the file looks like.
    Auto,
    /// `llama-bench -o json` or `-o jsonl`.
    LlamaBench,
    /// Chrome's trace events.
    Chrome,
    /// What ggml's Vulkan backend prints.
    VkPerfLogger,
    /// Folded stacks.
    Folded,
}

/// What weights count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightUnit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Samples, which are no times.
    Samples,
}

impl From<WeightUnit> for brickscope_analysis::import::WeightUnit {
    fn from(unit: WeightUnit) -> Self {
        match unit {
            WeightUnit::Ns => Self::Nanoseconds,
            WeightUnit::Us => Self::Microseconds,
            WeightUnit::Ms => Self::Milliseconds,
            WeightUnit::Samples => Self::Samples,
        }
    }
}

/// Show a run that was written before.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope show RUN\n  brickscope show RUN --as tree --fold --min-share 1%\n  brickscope show RUN --as tree --layer 3 --depth 2\n  brickscope show RUN --as svg > graph.svg\n  brickscope show RUN --as path --what-if QkvProjection=0.5\n  brickscope show RUN --as kernels\n  brickscope show RUN --as kernels --ptx q4k_gemv > q4k_gemv.ptx\n  brickscope show RUN --device 0 --as statistics\n  brickscope show RUN --as graph-json | jq '.nodes | length'"
)]
pub(crate) struct ShowArgs {
    /// The run's folder, or its profile.json.
    pub(crate) run: PathBuf,

    /// In which form.
    #[arg(long = "as", value_enum, default_value_t = View::Report)]
    pub(crate) view: View,

    /// With --as tree: at most so many levels. Lines say how much is inside that isn't shown.
    #[arg(long, value_name = "LEVELS", value_parser = levels)]
    pub(crate) depth: Option<usize>,

    /// With --as tree: only this transformer layer.
    #[arg(long, value_name = "I")]
    pub(crate) layer: Option<u32>,

    /// With --as tree: only what took at least this share of the time, such as 1%. The rest is
    /// counted and summed.
    #[arg(long, value_name = "PERCENT", value_parser = share, allow_hyphen_values = true)]
    pub(crate) min_share: Option<f64>,

    /// With --as tree: layers of the same bricks and kernels as one, with the sums of their times and
    /// the least and most of a layer.
    #[arg(long)]
    pub(crate) fold: bool,

    /// With --as kernels: print the PTX source of this kernel, or of this hash.
    #[arg(long, value_name = "NAME")]
    pub(crate) ptx: Option<String>,

    /// Leave passes that other work on the machine disturbed out of the tables.
    #[arg(long)]
    pub(crate) leave_out_disturbed: bool,

    /// Only what this device did, by its own clock. The forms other than the report and JSON show the
    /// first device by themselves where the host did nothing but issue work to it and wait.
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,

    /// With --device: only this stream of it.
    #[arg(long, value_name = "N", requires = "device")]
    pub(crate) stream: Option<usize>,

    /// Only what the host did, of a run on a device.
    #[arg(long, conflicts_with = "device")]
    pub(crate) host: bool,

    /// With --as path: predict the pass if all bricks or kernels of this name took so many times as
    /// long; may be given again.
    #[arg(long, value_name = "NAME=FACTOR", value_parser = what_if)]
    pub(crate) what_if: Vec<(String, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Grain {
    /// Bricks, and the kernels inside them.
    Kernels,
    /// Bricks.
    Bricks,
    /// Layers, and nothing inside them.
    Layers,
    /// Nothing smaller than a pass.
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

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum View {
    /// What was printed after the run.
    Report,
    /// Count, mean, deviation and percentiles of every brick and kernel.
    Statistics,
    /// The whole tree of one decode pass, every layer of it.
    Tree,
    /// The same for Graphviz.
    Dot,
    /// The same, drawn by Graphviz, which must be installed.
    Svg,
    /// The same as JSON: nodes and edges.
    GraphJson,
    /// Every kernel: launches, time, shape or grid and block, and its PTX source.
    Kernels,
    /// What decides how long that pass took: its critical path.
    Path,
    /// Work against what the machine can do: a plot and a table.
    Roofline,
    /// The same as a picture: an SVG file.
    RooflineSvg,
    /// All that was recorded, and the roofline.
    Json,
}

/// Write a run as one HTML file that needs nothing else, to open or to send; or two, side by side.
///
/// It has what `show` has and more: bricks, layers, a timeline, a flame view, the roofline, the critical
/// path, tokens, the machine. Each number says where in profile.json it is from; docs/report.md says how.
/// Two runs are compared as `compare` does it, and two single runs can't be told apart.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope report RUN -o report.html\n  brickscope report runs/before runs/after -o diff.html\n  brickscope report RUN -o - | gzip > report.html.gz"
)]
pub(crate) struct ReportArgs {
    /// The run's folder, or its profile.json.
    pub(crate) run: PathBuf,

    /// Another run to lay beside it: then the first is A, and this one is B.
    pub(crate) other: Option<PathBuf>,

    /// The file to write, `-` for standard output. By default report.html in the run's folder, of two runs
    /// comparison.html in that of the second.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Of two runs: compare even what ran under unlike conditions.
    #[arg(long, requires = "other")]
    pub(crate) force: bool,

    /// Print what was written as JSON: file, bytes, headline.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a model's logits for given tokens, in the LGT1 format, to compare engines.
///
/// LGT1, little endian: "LGT1", u32 tokens, u32 vocabulary, u32 0, u32 0, i32 ids, then for each
/// token the f32 logits that follow it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  brickscope logits model.gguf --ids 1,263,29871 -o ours.logits.bin"
)]
pub(crate) struct LogitsArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// Token ids, separated by commas.
    #[arg(long, value_delimiter = ',', required = true, value_parser = token_id)]
    pub(crate) ids: Vec<u32>,

    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Run the tokens one by one, as in decoding, instead of in batches.
    #[arg(long)]
    pub(crate) steps: bool,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

/// Find the first kernel whose output differs between two backends.
///
/// Both sides run the same tokens in lockstep. After each kernel b's output is held against a's, to
/// the rounding of that one kernel, and then replaced by a's: so a difference is the kernel's own,
/// never one that it inherited. Sides with the same kernels must be equal to the bit.
///
/// The exit code is 0 if all differences are rounding, 1 if there is a divergence, 2 if the
/// comparison can't be made.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope diverge model.gguf --a scalar --b avx2\n  brickscope diverge model.gguf --a avx2 --b avx2 --threads-b 2 --tokens 32\n  brickscope diverge model.gguf --a cpu --b wgpu\n  brickscope diverge model.gguf --b-model other.gguf --json | jq .first"
)]
pub(crate) struct DivergeArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// The kernels of side a, the reference: scalar, avx2, avx512, neon, `cpu` for the fastest that run on this CPU,
    /// or a device, wgpu or cuda.
    #[arg(long, value_name = "BACKEND", default_value = "scalar")]
    pub(crate) a: CpuOr,

    /// The kernels of side b, likewise.
    #[arg(long, value_name = "BACKEND", default_value = "cpu")]
    pub(crate) b: CpuOr,

    /// Another file for side b, of the same shape.
    #[arg(long, value_name = "FILE")]
    pub(crate) b_model: Option<PathBuf>,

    /// The text to go on from.
    #[arg(long, default_value = DIVERGE_PROMPT, conflicts_with = "ids")]
    pub(crate) prompt: String,

    /// Token ids instead of a text, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = token_id)]
    pub(crate) ids: Vec<u32>,

    /// Tokens to go on with: the likeliest by side a, for both sides.
    #[arg(long, default_value_t = 8, allow_negative_numbers = true)]
    pub(crate) tokens: usize,

    /// Threads of side a. By default half of those that this process may use: both sides run at once.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads_a: Option<NonZeroUsize>,

    /// Threads of side b, likewise.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads_b: Option<NonZeroUsize>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A backend; `None` is the fastest of the CPU's, spelled `cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuOr(pub(crate) Option<Backend>);

impl std::str::FromStr for CpuOr {
    type Err = <Backend as std::str::FromStr>::Err;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "cpu" { Ok(Self(None)) } else { name.parse().map(Some).map(Self) }
    }
}

/// Say whether a receipt can be what it says, and if not, why.
///
/// Its fields, its hash and signatures, the figures anew from the raw times, the tokens, the clock,
/// the kernels, and what the machine can do: docs/receipts.md lists every check, and what none of
/// them can prove. What couldn't be checked is listed, too.
///
/// The exit code is 0 if the receipt is accepted, 1 if it is refused, 2 if it can't be checked: there
/// is no such file, or the rerun failed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope verify-receipt brickscope-runs/20261121-104812\n  brickscope verify-receipt receipt.json --model model.gguf --json | jq '.refusals[].code'\n  brickscope verify-receipt receipt.json --rerun model.gguf --tolerance 5%"
)]
pub(crate) struct VerifyReceiptArgs {
    /// The receipt, or the folder of its run.
    #[arg(value_name = "FILE")]
    pub(crate) receipt: PathBuf,

    /// Refuse a receipt without GPU kernels, whatever its backend is said to be.
    #[arg(long)]
    pub(crate) require_gpu_kernels: bool,

    /// The model that it is of: its hash and size are held against the receipt's.
    #[arg(long, value_name = "MODEL", conflicts_with = "rerun")]
    pub(crate) model: Option<PathBuf>,

    /// Run the benchmark again with this model, and refuse the receipt if the tokens are others or a
    /// median rate is off by more than --tolerance.
    #[arg(long, value_name = "MODEL")]
    pub(crate) rerun: Option<PathBuf>,

    /// By how much a rate may be off in the rerun.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = share, allow_hyphen_values = true)]
    pub(crate) tolerance: f64,

    /// Refuse a receipt that this public key (64 hexadecimal digits) hasn't signed.
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    pub(crate) signed_by: Option<String>,

    /// Print JSON: accepted, refusals with code and sentence, what wasn't checked.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sign receipts, and make keys for that.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope receipt keygen ~/.brickscope-key\n  brickscope receipt sign brickscope-runs/20261121-104812 --key ~/.brickscope-key"
)]
pub(crate) struct ReceiptArgs {
    #[command(subcommand)]
    pub(crate) command: ReceiptCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptCommand {
    /// Add an ed25519 signature to a receipt. A receipt that was changed isn't signed.
    #[command(
        after_help = "Example:\n  brickscope receipt sign receipt.json --key ~/.brickscope-key"
    )]
    Sign {
        /// The receipt, or the folder of its run.
        #[arg(value_name = "FILE")]
        receipt: PathBuf,

        /// The file of the secret key.
        #[arg(long, value_name = "KEYFILE")]
        key: PathBuf,
    },
    /// Make a secret key in a new file that only you can read, and print the public key.
    #[command(after_help = "Example:\n  brickscope receipt keygen ~/.brickscope-key")]
    Keygen {
        /// The file to make.
        #[arg(value_name = "KEYFILE")]
        key_file: PathBuf,
    },
}

/// Print the token ids of a text, one line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  brickscope tokenize model.gguf \"Hello, world!\"")]
pub(crate) struct TokenizeArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// The text.
    pub(crate) text: String,

    /// Leave out the tokens that begin or end a text.
    #[arg(long)]
    pub(crate) no_special: bool,

    /// Read control tokens such as `</s>` in the text as those tokens.
    #[arg(long)]
    pub(crate) parse_special: bool,

    /// Print a JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a model file of a real shape with random weights.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  brickscope synth --shape 1b --quant q4_k_m -o 1b-q4_k_m.gguf")]
pub(crate) struct SynthArgs {
    /// tiny (2 layers of 256), 110m (12 of 768) or 1b (22 of 2048).
    #[arg(long, default_value = "tiny")]
    pub(crate) shape: Shape,

    /// How to store the weights: tq2_0, q4_0, q4_k, q4_k_m, q5_k_m, q6_k, q8_0, f16 or f32. The two that end
    /// in _m are llama.cpp's mixtures; q4_k has 4 bits in all layers.
    #[arg(long, default_value = "q8_0")]
    pub(crate) quant: SynthQuant,

    /// The same seed gives the same file.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Say what this machine lets a profiler measure, and how to get what it doesn't.
///
/// Each line is a capability: clock, counters, SIMD, limits, load by others, GPUs. A cross comes with
/// what to do about it. It is a report, so the exit code is 0 even with crosses.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope doctor\n  brickscope doctor --json | jq '.[] | select(.ok | not)'"
)]
pub(crate) struct DoctorArgs {
    /// Print a JSON array of {name, ok, found, fix}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure what this machine can do at best: bandwidths and operations in a second.
///
/// Reading, writing, copying and triad (a = b + s·c) from each level of cache and from memory, and
/// multiply-adds of each backend, on 1, 2, 4, … and all threads. Takes some seconds, and is kept in
/// the cache folder (BRICKSCOPE_CACHE names another), where `brickscope profile` finds it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope machine\n  brickscope machine --fresh --threads 4\n  brickscope machine --json | jq '.peaks[] | {backend, numbers, threads, ops_per_second}'"
)]
pub(crate) struct MachineArgs {
    /// Print everything as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Measure anew, whatever was kept.
    #[arg(long)]
    pub(crate) fresh: bool,

    /// The most threads to measure with. By default all that this process may use.
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// Check on a real device what no test can without one.
///
/// Whether its times are right and what they cost: passes with and without them in turns, the sum of
/// bricks against the span of the graph, events against the device's own clock, that clock's step, and the
/// logits against the CPU's; and, where CUPTI is installed (BRICKSCOPE_CUPTI may name its file), kernels
/// against its records. Takes half a minute.
///
/// The exit code is 0 if all that is asked for holds, 1 if something doesn't, 2 if there is no device.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope selftest --backend cuda\n  brickscope selftest --backend cuda model.gguf --json | jq '.checks[] | select(.ok == false)'"
)]
pub(crate) struct SelftestArgs {
    /// The GGUF file to run. By default that of `brickscope profile`.
    pub(crate) model: Option<PathBuf>,

    /// The backend to check: cuda.
    #[arg(long)]
    pub(crate) backend: Backend,

    /// Print the checks as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how a folder of benchmarks developed: each test over time, and where it changed for good.
///
/// All receipts in the folder and the folders in it are read: files called `receipt.json` or ending in
/// `.receipt.json`. There is a line for each test of a model, with the same threads and kernels, on the
/// same kind of machine; the processes of a set are one point.
///
/// From 12 points on, changes of the level are marked, with the bricks behind them. If each run is
/// disturbed by itself, at most 1 in 100 series without a change get one. Where the machine's own
/// speed comes and goes it is more: of windows of 30 runs of one program on a shared machine 2 of 27
/// (prefill) and 0 of 27 (decode), of 60 runs none. Ask `compare` whether a certain program is slower.
///
/// Flamegraphs in the folder (files called `flamegraph.json` or ending in `.flamegraph.json`) follow:
/// the shares of bricks, functions and classes, and which moved by more than their error.
///
/// What can't be read, and receipts whose seal is broken, are named, and are in no line.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope history\n  brickscope history runs --test tg128\n  brickscope history runs --brick QkvProjection\n  brickscope history runs -o svg > history.svg\n  brickscope history runs --flamegraphs\n  brickscope history runs -o json | jq '.series[] | {test: .kind.test, changes}'"
)]
pub(crate) struct HistoryArgs {
    /// The folder, or a receipt or flamegraph.json.
    #[arg(default_value = "brickscope-runs")]
    pub(crate) dir: PathBuf,

    /// Only this test, such as tg128.
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,

    /// Only this model: its name or, if it has none, its path; or the first digits (4 or more) of its
    /// file's SHA-256.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// The time per token of this brick, instead of tokens per second.
    #[arg(long, value_name = "NAME")]
    pub(crate) brick: Option<String>,

    /// Only flamegraphs: their shares over time.
    #[arg(long, conflicts_with_all = ["test", "brick"])]
    pub(crate) flamegraphs: bool,

    /// In which form.
    #[arg(short, long, value_enum, default_value_t = HistoryForm::Text)]
    pub(crate) output: HistoryForm,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum HistoryForm {
    /// Tables with sparklines.
    Text,
    /// Markdown.
    Md,
    /// All that is known of each point and change.
    Json,
    /// A picture, of speeds only.
    Svg,
    /// A line for each point or, with --flamegraphs, for each share at each point.
    Csv,
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

/// Long enough that prefill is more than a handful of tokens.
const DEFAULT_PROMPT: &str = "A profiler is an instrument. Like every instrument it disturbs what \
    it measures, and like every honest instrument it says by how much. It does not guess, it does \
    not divide a total by a table of shares, and where it could not look it says so. ";

/// A sentence: enough for a pass of several tokens.
const DIVERGE_PROMPT: &str = "Once upon a time there was a profiler that told the truth.";

const MIN_PART_BYTES: u64 = 1 << 16;

/// More threads than any machine of today has are a slip of the keyboard.
const MAX_THREADS: usize = 1024;

/// As many as a model of today was made for.
const MAX_TOKENS: usize = 1 << 20;

/// Each pass of a benchmark is kept, and there is room for twice as many.
const MAX_PASSES: usize = 1 << 15;

/// More would fill the longest receipt.
const MAX_REPETITIONS: i64 = 10_000;

const MAX_PROCESSES: i64 = 1_000;

/// What every JSON reader reads alike.
const MAX_SEED: u64 = 1 << 53;

/// A day.
const MAX_SECONDS: f64 = 86_400.0;

/// Bytes, by multiples of 1024 where there is a letter.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes) if bytes >= MIN_PART_BYTES => Ok(bytes),
        Some(_) => {
            Err("must be 64K at least: a file has its names and its run in it, too".to_owned())
        }
        None => Err(format!("`{text}` is not a size: a number of bytes, or one with K, M or G")),
    }
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let n: usize = text.parse().map_err(|_| format!("`{text}` is not a number of threads"))?;
    match NonZeroUsize::new(n) {
        Some(threads) if n <= MAX_THREADS => Ok(threads),
        _ => Err(format!("must be 1 to {MAX_THREADS}")),
    }
}

/// An address of a socket; `localhost` may stand for its own.
fn socket_addr(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|| text.parse().ok()).ok_or_else(|| {
        "must be an address and a port, such as 127.0.0.1:9187 or localhost:0".to_owned()
    })
}

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

fn token_id(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a token id"))
}

fn positive(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("must be a number above 0".to_owned()),
    }
}

fn levels(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(levels) if levels > 0 => Ok(levels),
        _ => Err("must be a number of levels, at least 1".to_owned()),
    }
}

/// A percentage with its sign, since a bare number could mean either.
fn share(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').map(|percent| percent.trim().parse::<f64>()) {
        Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("must be a percentage from 0% to 100%, such as 1%".to_owned()),
    }
}

fn public_key(text: &str) -> Result<String, String> {
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => {
            Err("must be 64 hexadecimal digits, as `brickscope receipt keygen` prints".to_owned())
        }
    }
}

/// As [`share`], above 0: every change would matter otherwise, and none could be excluded.
fn threshold(text: &str) -> Result<f64, String> {
    match share(text) {
        Ok(part) if part > 0.0 => Ok(part),
        _ => Err("must be a percentage above 0% and at most 100%, such as 3%".to_owned()),
    }
}

/// Points of a total of 100.
fn points(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(points) if (0.0..=100.0).contains(&points) => Ok(points),
        _ => Err("must be a number of points from 0 to 100, such as 3".to_owned()),
    }
}

/// What takes a million times as long is no prediction any more.
const MOST_FACTOR: f64 = 1e6;

fn what_if(text: &str) -> Result<(String, f64), String> {
    let (name, factor) = text.rsplit_once('=').ok_or("must be NAME=FACTOR")?;
    match factor.parse::<f64>() {
        Ok(factor) if (0.0..=MOST_FACTOR).contains(&factor) => Ok((name.to_owned(), factor)),
        _ => Err(format!("`{factor}` is no factor: a number from 0 to {MOST_FACTOR}")),
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
