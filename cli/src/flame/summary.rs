//! What is kept of a flamegraph beside its picture: where shares stood, for comparisons and history.

use brickscope::stacks::{Class, Unit};
use brickscope::{Absent, Machine, Model, Phase, Run};
use serde::{Deserialize, Serialize};

/// The version of `flamegraph.json`.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The file `flamegraph.json` of a flamegraph's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// [`SCHEMA_VERSION`] of the brickscope that wrote it.
    pub(crate) schema_version: u32,
    pub(crate) brickscope_version: String,
    /// When the samples were taken or the spans measured, RFC 3339 in UTC.
    pub(crate) generated: String,
    pub(crate) source: Source,
    /// What `total` and the weights count.
    pub(crate) unit: Unit,
    /// Of all stacks that were drawn.
    pub(crate) total: u64,
    /// What was lost or limits what is shown, a sentence each.
    #[serde(rename = "doubts")]
    pub(crate) warnings: Vec<String>,
    pub(crate) model: Option<Model>,
    pub(crate) run: Option<Run>,
    pub(crate) machine: Option<Machine>,
    /// The command that was sampled, if it wasn't brickscope itself.
    pub(crate) command: Option<Vec<String>>,
    /// What brickscope was called with, the program first.
    #[serde(default)]
    pub(crate) command_line: Vec<String>,
    /// The compiler and its flags that brickscope was built with.
    pub(crate) build: String,
    /// By self weight: what is drawn on top. The largest first.
    pub(crate) classes: Vec<Share<Class>>,
    /// What lies in each brick, with what lies inside but other bricks. `unattributed` is one.
    pub(crate) bricks: Vec<Share<String>>,
    /// What lies in each function, with the functions that it calls.
    pub(crate) functions: Vec<Share<String>>,
    /// Sampled shares beside measured ones.
    pub(crate) agreement: Option<Agreement>,
    /// Why there is none, of a sampled flamegraph.
    pub(crate) agreement_absent: Option<Absent>,
}

/// Where stacks come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// `spans`, `sampler`, `timer`, `perf` or `folded`.
    pub(crate) via: String,
    /// What was counted down to the next sample.
    pub(crate) event: Option<String>,
    /// Samples asked for in a second of a thread's CPU time.
    pub(crate) frequency: Option<u64>,
}

/// How much of the weight something has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Share<T> {
    pub(crate) name: T,
    /// The phase, of bricks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<Phase>,
    /// With all that is inside.
    pub(crate) weight: u64,
    /// Without.
    pub(crate) self_weight: u64,
    /// `weight` in each block of time; empty if times aren't known.
    pub(crate) by_block: Vec<u64>,
}

/// Sampled shares of bricks beside the measured ones, of the threads that ran the passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Agreement {
    /// Samples inside of passes.
    pub(crate) samples: u64,
    /// Whether passes are among them that other work disturbed, for want of others.
    #[serde(default)]
    pub(crate) disturbed: bool,
    pub(crate) bricks: Vec<Compared>,
}

/// One brick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compared {
    pub(crate) phase: Phase,
    pub(crate) brick: String,
    /// Share of the phase's wall, 0 to 1.
    pub(crate) measured: f64,
    /// Share of the phase's samples, 0 to 1.
    pub(crate) sampled: f64,
    /// The most that they may differ by for want of samples: beyond it lies any of a table's bricks in
    /// one table of a hundred.
    pub(crate) allowed: f64,
}
