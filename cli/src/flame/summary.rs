//! The summary of a flamegraph, `flamegraph.json`: its shares, for comparisons and history.

use brickscope::{Absent, Machine, Model, Phase, Run};
use brickscope_analysis::stacks::{Class, Unit};
use serde::{Deserialize, Serialize};

/// The version of `flamegraph.json`.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The file `flamegraph.json` of a flamegraph's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The [`SCHEMA_VERSION`] with which it was written.
    pub(crate) schema_version: u32,
    pub(crate) brickscope_version: String,
    /// When the samples were taken or the spans measured, RFC 3339 in UTC.
    pub(crate) generated: String,
    pub(crate) source: Source,
    /// The unit of `total` and the weights.
    pub(crate) unit: Unit,
    /// The weight of all drawn stacks.
    pub(crate) total: u64,
    /// Losses and limits, a sentence each.
    #[serde(rename = "doubts")]
    pub(crate) warnings: Vec<String>,
    pub(crate) model: Option<Model>,
    pub(crate) run: Option<Run>,
    pub(crate) machine: Option<Machine>,
    /// The sampled command, if it wasn't brickscope itself.
    pub(crate) command: Option<Vec<String>>,
    /// The command line of brickscope, with the program.
    #[serde(default)]
    pub(crate) command_line: Vec<String>,
    /// The compiler and flags with which brickscope was built.
    pub(crate) build: String,
    /// Self weights, the largest first.
    pub(crate) classes: Vec<Share<Class>>,
    /// The weight in each brick, without the bricks inside of it. `unattributed` counts as one.
    pub(crate) bricks: Vec<Share<String>>,
    /// The weight in each function, including callees.
    pub(crate) functions: Vec<Share<String>>,
    /// The comparison of sampled and measured shares.
    pub(crate) agreement: Option<Agreement>,
    /// Why there is none, for a sampled flamegraph.
    pub(crate) agreement_absent: Option<Absent>,
    /// What the picture doesn't show in full; `None` without a picture, or from an older brickscope.
    #[serde(default)]
    pub(crate) hidden: Option<Hidden>,
    /// What the passes took; empty without a run, or from an older brickscope.
    #[serde(default)]
    pub(crate) latency: Vec<Latency>,
    /// What limits the run and what slows it down, a sentence each; likewise.
    #[serde(default)]
    pub(crate) insights: Vec<String>,
}

/// What the passes of a phase took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) phase: Phase,
    pub(crate) passes: u64,
    /// All of them together.
    pub(crate) wall_ns: u64,
    pub(crate) tokens_per_second: Option<f64>,
}

/// What the picture of a flamegraph doesn't show in full. The weight of frames that lie in one another
/// counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hidden {
    /// The width in pixels that names were fitted to.
    pub(crate) width: u32,
    /// Frames that are too narrow to be drawn.
    pub(crate) left_out: Frames,
    /// Frames that are drawn, but too narrow for their name.
    pub(crate) unnamed: Frames,
    /// Frames whose name is shortened.
    pub(crate) shortened: Frames,
}

/// A number of frames, and the weight they hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frames {
    pub(crate) frames: u64,
    pub(crate) weight: u64,
}

/// The source of the stacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// `spans`, `device` (the spans of one in another program's trace), `sampler`, `timer`, `perf` or `folded`.
    pub(crate) via: String,
    /// The event that triggers samples.
    pub(crate) event: Option<String>,
    /// Samples requested per second of a thread's CPU time.
    pub(crate) frequency: Option<u64>,
}

/// The weight of a class, brick or function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Share<T> {
    pub(crate) name: T,
    /// The phase, for bricks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<Phase>,
    /// The weight, including everything inside.
    pub(crate) weight: u64,
    /// The weight without that.
    pub(crate) self_weight: u64,
    /// The `weight` in each block of time; empty if times are unknown.
    pub(crate) by_block: Vec<u64>,
}

/// Sampled and measured shares of bricks, on the threads that ran the passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Agreement {
    /// Samples inside of passes.
    pub(crate) samples: u64,
    /// Whether they include disturbed passes, for lack of undisturbed ones.
    #[serde(default)]
    pub(crate) disturbed: bool,
    pub(crate) bricks: Vec<Compared>,
}

/// One brick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compared {
    pub(crate) phase: Phase,
    pub(crate) brick: String,
    /// Share of the phase's wall time, 0 to 1.
    pub(crate) measured: f64,
    /// Share of the phase's samples, 0 to 1.
    pub(crate) sampled: f64,
    /// The allowed difference, given the number of samples: in one table of a hundred, some brick exceeds
    /// it by chance.
    pub(crate) allowed: f64,
}
