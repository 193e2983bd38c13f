//! Every flag of the command.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use brickscope::{Backend, SyncMode};
use brickscope_engine::synth::{Shape, SynthQuant};
use clap::{Parser, Subcommand, ValueEnum};

/// See where an LLM's time goes: brick by brick, measured.
#[derive(Debug, Parser)]
#[command(
    name = "brickscope",
    version,
    about,
    max_term_width = 80,
    after_help = "Example:\n  brickscope profile model.gguf --prompt \"Once upon a time\" --tokens 64"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Profile(ProfileArgs),
    Show(ShowArgs),
    Logits(LogitsArgs),
    Diverge(DivergeArgs),
    Tokenize(TokenizeArgs),
    Synth(SynthArgs),
    Doctor(DoctorArgs),
    Machine(MachineArgs),
    History(HistoryArgs),
}

/// Run a model and report where its time went.
///
/// Without a model, a small one with random weights is made (110 million weights, q8_0) and kept in
/// the cache folder (BRICKSCOPE_CACHE names another): its timings are real, its text is noise. The run is written to a folder, which
/// `brickscope show` reads.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope profile\n  brickscope profile model.gguf --prompt \"Hello\" --tokens 128 --threads 2\n  brickscope profile model.gguf --json | jq .phases\n  brickscope profile --check-overhead --threads 2"
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

    /// How often to wait for an asynchronous device. Bricks on the CPU are timed alike in all modes
    /// but `none`, which times nothing.
    #[arg(long, value_enum, default_value_t = Sync::Deferred)]
    pub(crate) sync: Sync,

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
    /// profiler and twice with it, in turns, and print the slow-down with its 95 % interval. Ends
    /// when that is known to ±0.1 %. Writes no run; --json has every single time.
    #[arg(long, conflicts_with_all = ["out", "sync", "temperature", "counters", "shares", "leave_out_disturbed"])]
    pub(crate) check_overhead: bool,

    /// With --check-overhead: end after so many seconds at the latest.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 20.0,
        requires = "check_overhead",
        // Where one of these is there, clap takes `requires` for settled.
        conflicts_with_all = ["out", "sync", "temperature", "counters", "shares", "leave_out_disturbed"],
        value_parser = seconds,
        allow_negative_numbers = true
    )]
    pub(crate) overhead_seconds: f64,

    /// Read hardware counters at each brick: cycles, instructions, cache and branch misses. Short
    /// bricks become slower by it.
    #[arg(long)]
    pub(crate) counters: bool,

    /// Record each thread's share of each kernel, too: the critical path then says which thread the
    /// others waited for. Short kernels become slower by it.
    #[arg(long)]
    pub(crate) shares: bool,

    /// Leave passes that other work on this machine disturbed out of the tables. They are counted in
    /// any case, and stay in the run's file.
    #[arg(long)]
    pub(crate) leave_out_disturbed: bool,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

/// What runs a model.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecutorArgs {
    /// Threads that share the work. By default all that this process may use.
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// The kernels: scalar or avx2. By default the fastest that run here.
    #[arg(long)]
    pub(crate) backend: Option<Backend>,
}

/// Show a run that was written before.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope show RUN\n  brickscope show RUN --as tree --fold --min-share 1%\n  brickscope show RUN --as tree --layer 3 --depth 2\n  brickscope show RUN --as svg > graph.svg\n  brickscope show RUN --as path --what-if QkvProjection=0.5\n  brickscope show RUN --as kernels\n  brickscope show RUN --as kernels --ptx q4k_gemv > q4k_gemv.ptx\n  brickscope show RUN --as graph-json | jq '.nodes | length'"
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

    /// With --as path: predict the pass if all bricks or kernels of this name took so many times as
    /// long; may be given again.
    #[arg(long, value_name = "NAME=FACTOR", value_parser = what_if)]
    pub(crate) what_if: Vec<(String, f64)>,
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
    after_help = "Examples:\n  brickscope diverge model.gguf --a scalar --b avx2\n  brickscope diverge model.gguf --a avx2 --b avx2 --threads-b 2 --tokens 32\n  brickscope diverge model.gguf --b-model other.gguf --json | jq .first"
)]
pub(crate) struct DivergeArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// The kernels of side a, the reference.
    #[arg(long, value_name = "BACKEND", default_value = "scalar")]
    pub(crate) a: Backend,

    /// The kernels of side b. By default the fastest that run here.
    #[arg(long, value_name = "BACKEND")]
    pub(crate) b: Option<Backend>,

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
#[command(after_help = "Example:\n  brickscope synth --shape 1b --quant q4_k -o 1b-q4_k.gguf")]
pub(crate) struct SynthArgs {
    /// tiny (2 layers of 256), 110m (12 of 768) or 1b (22 of 2048).
    #[arg(long, default_value = "tiny")]
    pub(crate) shape: Shape,

    /// How to store the weights: q8_0, q4_k, f16 or f32.
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

/// Show how a folder of benchmarks developed: each test over time, and where it changed for good.
///
/// All receipts in the folder and the folders in it are read: files called `receipt.json` or ending in
/// `.receipt.json`. There is a line for each test of a model, with the same threads and kernels, on the
/// same kind of machine; the processes of a set are one point. A change is marked by a test
/// that at most 1 in 100 series without one pass, from 12 points on, with the bricks behind it.
/// Receipts that can't be read or whose seal is broken are named, and are in no line.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope history\n  brickscope history runs --test tg128\n  brickscope history runs --brick QkvProjection\n  brickscope history runs -o svg > history.svg\n  brickscope history runs -o json | jq '.series[] | {test: .kind.test, changes}'"
)]
pub(crate) struct HistoryArgs {
    /// The folder, or a receipt.
    #[arg(default_value = "brickscope-runs")]
    pub(crate) dir: PathBuf,

    /// Only this test, such as tg128.
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,

    /// Only this model: its name, or the first digits of its file's SHA-256.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// The time per token of this brick, instead of tokens per second.
    #[arg(long, value_name = "NAME")]
    pub(crate) brick: Option<String>,

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
    /// A picture.
    Svg,
    /// A line for each point.
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

/// More threads than any machine of today has are a slip of the keyboard.
const MAX_THREADS: usize = 1024;

/// A day.
const MAX_SECONDS: f64 = 86_400.0;

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let n: usize = text.parse().map_err(|_| format!("`{text}` is not a number of threads"))?;
    match NonZeroUsize::new(n) {
        Some(threads) if n <= MAX_THREADS => Ok(threads),
        _ => Err(format!("must be 1 to {MAX_THREADS}")),
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
