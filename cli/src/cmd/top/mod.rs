//! `brickscope top`: a live view of a running engine.

#[cfg(feature = "top")]
mod view;

use std::path::PathBuf;

use crate::flags::ExecutorArgs;

/// Watch a running engine: rates, bricks, layers, memory, load.
///
/// Given a model, `top` runs it repeatedly, or once with --tokens. With --attach it watches a process
/// that publishes: `brickscope profile --live`, or an engine that starts a publisher (docs/live.md).
/// What `brickscope run` records can't be watched: `show` and `requests` print it when it has ended,
/// and under `run --keep tail`, `requests --attach` while it goes on.
/// All times come from the engine's own clock. Press ? for the keys.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope top model.gguf\n  brickscope top model.gguf --tokens 256 --out runs/today\n  brickscope top --attach 4711\n  brickscope top --attach 4711 --once --json | jq .latency.per_token"
)]
pub(crate) struct TopArgs {
    /// The GGUF file to run. By default, without --attach, the same model as for `profile`.
    #[arg(conflicts_with = "attach")]
    pub(crate) model: Option<PathBuf>,

    /// Watch this process, given by its process id or its socket.
    #[arg(long, value_name = "PID|SOCKET", conflicts_with_all = ["tokens", "prompt", "out", "threads", "backend"])]
    pub(crate) attach: Option<String>,

    /// Print one screen when its figures have settled, or with --tokens when the run has ended. If the engine
    /// dies, the exit code is 1, and the screen is its last.
    #[arg(long)]
    pub(crate) once: bool,

    /// With --once: print the figures as JSON.
    #[arg(long, requires = "once")]
    pub(crate) json: bool,

    /// Frames per second.
    #[arg(long, value_name = "HZ", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rate: u32,

    /// Generate this many tokens once, and write the run as `profile` does.
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<usize>,

    /// The prompt. By default the same as for `profile`.
    #[arg(long)]
    pub(crate) prompt: Option<String>,

    /// With --tokens: the folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(short, long, value_name = "DIR", requires = "tokens")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

#[cfg(feature = "top")]
pub(crate) use self::view::run;

/// Says how to get a build that has the view.
#[cfg(not(feature = "top"))]
pub(crate) fn run(_: &TopArgs) -> anyhow::Result<()> {
    anyhow::bail!(
        "top: this brickscope was built without it; `cargo install --path cli --profile dist --features full` has it"
    )
}
