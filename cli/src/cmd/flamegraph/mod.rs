//! `brickscope flamegraph`: draws where time went.

#[cfg(feature = "flamegraph")]
mod drawing;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::flags::{By, DEFAULT_PROMPT, ExecutorArgs, Via};

/// Draw a flamegraph, from exact measured spans or from samples of the running program.
///
/// WHAT is a GGUF file to run, the folder of a run, a perf.data file, or a file of folded stacks. A
/// COMMAND after `--` is run and sampled. Without either, the same model runs as for `profile`. All
/// output goes to one folder: flamegraph.svg, .md, .json and .folded, speedscope.json, profile.pb.gz
/// for pprof, and the run itself.
///
/// With --diff the exit code is 0 if no share grew by more than its error and the threshold, 1 if one
/// did, 3 if the samples don't decide it or passes were disturbed, 2 if the two can't be compared.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope flamegraph model.gguf\n  brickscope flamegraph model.gguf --via spans --by layer\n  brickscope flamegraph RUN\n  brickscope flamegraph -o flames -- ./my-engine model.gguf\n  brickscope flamegraph perf.data --run RUN\n  brickscope flamegraph model.gguf --diff flames/main --threshold 3\n\nOne brick: a click on it, in flamegraph.svg or in the report's flame view, shows\nit alone. A picture of it:\n  grep ';LmHead' flamegraph.folded > lm-head.folded\n  brickscope flamegraph lm-head.folded"
)]
pub(crate) struct FlamegraphArgs {
    /// The GGUF file to run, or a run, a perf.data file or folded stacks to draw. A run is named by its folder, its tag, the
    /// beginning of its name, or `@` for the newest.
    #[arg(conflicts_with = "command")]
    pub(crate) what: Option<PathBuf>,

    /// The same as WHAT, for a GGUF file.
    #[arg(long = "model", value_name = "MODEL", hide = true, conflicts_with_all = ["what", "command"])]
    pub(crate) named_model: Option<PathBuf>,

    /// The program to sample, with its arguments. If it is built with brickscope and calls
    /// `Profile::save_where_asked`, its spans are joined with the samples.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// The source of the stacks. By default `sampler` for a model or a command, and for a run the samples
    /// or spans that it holds.
    #[arg(long, value_enum)]
    pub(crate) via: Option<Via>,

    /// The folder to write to. By default the folder of the run that is drawn, or else a new one in
    /// `brickscope-runs`.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// With --out: replace the flamegraph in the folder, and the run that it was drawn from.
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,

    /// With --overwrite: keep a copy of what is replaced in the folder `archives` beside it.
    #[arg(long, requires = "overwrite")]
    pub(crate) archive: bool,

    /// Draw nothing, but write README.md of a folder with folders of flamegraphs: which there are, how they differ, and how
    /// to make them again.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["what", "named_model", "command", "out", "diff", "json"])]
    pub(crate) index: Option<PathBuf>,

    /// Samples per second of each thread's CPU time.
    #[arg(long, value_name = "HZ", default_value_t = 999, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) frequency: u32,

    /// What the stacks begin with. By default `brick`; with --diff, `layer` if the baseline has layers.
    #[arg(long, value_enum)]
    pub(crate) by: Option<By>,

    /// With a perf.data file: the run whose spans to join with its samples.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<PathBuf>,

    /// With the folder of a run: draw only what ran on this device, timed by its own clock. By default the first device if the
    /// host only issued work to it and waited, or if the run is a trace of a GPU.
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,

    /// With the folder of a run: draw only the host's spans of a run on a device.
    #[arg(long, conflicts_with = "device")]
    pub(crate) host: bool,

    /// Compare with this flamegraph: its folder, its flamegraph.json or its folded stacks.
    #[arg(long, value_name = "BASELINE")]
    pub(crate) diff: Option<PathBuf>,

    /// With --diff: how many percentage points a share may grow.
    #[arg(long, value_name = "POINTS", default_value_t = 3.0, requires = "diff", value_parser = points, allow_negative_numbers = true)]
    pub(crate) threshold: f64,

    /// With --diff: compare even if models, units or sources differ.
    #[arg(long, requires = "diff")]
    pub(crate) force: bool,

    /// The prompt. By default the same as for `profile`.
    #[arg(long, default_value = DEFAULT_PROMPT, hide_default_value = true)]
    pub(crate) prompt: String,

    /// Tokens to generate.
    #[arg(long, alias = "max-tokens", default_value_t = 128, allow_negative_numbers = true)]
    pub(crate) tokens: usize,

    /// Print flamegraph.json instead of its tables, or with --diff the comparison as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

/// Percentage points.
fn points(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(points) if (0.0..=100.0).contains(&points) => Ok(points),
        _ => Err("must be a number of points from 0 to 100, such as 3".to_owned()),
    }
}

#[cfg(feature = "flamegraph")]
pub(crate) use self::drawing::run;

/// Says how to get a build that has it.
#[cfg(not(feature = "flamegraph"))]
pub(crate) fn run(_: &FlamegraphArgs) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!(
        "flamegraph: this brickscope was built without it; `cargo install --path cli --profile dist --features full` has it"
    )
}
