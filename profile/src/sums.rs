//! Sums by phase, pass, brick, kernel and layer.

use serde::{Deserialize, Serialize};

use crate::brick::{BrickCategory, Phase, Source};
use crate::graph::{DeviceLaunch, HostLaunch};
use crate::machine::{CounterSums, Disturbance};
use crate::name::NameKind;
use crate::stats::{BrickStats, Percentiles};

/// The sums of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTotal {
    /// Which.
    pub phase: Phase,
    /// Passes.
    pub passes: u64,
    /// How many of them other work on the machine disturbed.
    #[serde(default)]
    pub disturbed: u64,
    /// Tokens that they processed.
    pub tokens: u64,
    /// From begin to end of each pass, summed.
    pub wall_ns: u64,
    /// What bricks explain of it.
    pub attributed_ns: u64,
    /// What no brick explains.
    pub unattributed_ns: u64,
}

impl PhaseTotal {
    /// Tokens per second of wall; `None` without a wall or a token: an imported file may not say how many
    /// there were.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.wall_ns > 0 && self.tokens > 0)
            .then(|| self.tokens as f64 * 1e9 / self.wall_ns as f64)
    }
}

/// The sums of one brick or kernel in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// The phase; `None` outside of passes.
    pub phase: Option<Phase>,
    /// A brick or a kernel.
    pub kind: NameKind,
    /// The category of a brick.
    pub category: Option<BrickCategory>,
    /// How the times were obtained.
    pub source: Source,
    /// How a kernel runs on the CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostLaunch>,
    /// How it runs on a device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceLaunch>,
    /// The sums.
    #[serde(flatten)]
    pub stats: BrickStats,
    /// The standard deviation of a span, in nanoseconds; `None` for fewer than two.
    #[serde(default)]
    pub std_dev_ns: Option<f64>,
    /// Percentiles of a span, as far as there are enough of them.
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// What hardware counters counted in it, as a whole, with what lies inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<CounterSums>,
}

/// One pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// Its number in `spans`.
    pub serial: u32,
    /// The phase.
    pub phase: Phase,
    /// The thread that ran it: an index into `lanes`.
    pub lane: u32,
    /// Tokens processed.
    pub tokens: u64,
    /// Tokens in the KV cache when it began.
    pub position: u64,
    /// When it began, in nanoseconds of the clock.
    pub start_ns: u64,
    /// From begin to end.
    pub wall_ns: u64,
    /// What bricks explain of it.
    pub attributed_ns: u64,
    /// What no brick explains.
    pub unattributed_ns: u64,
    /// What others did to it, or to it and its neighbours; `None` if nobody looked.
    #[serde(default)]
    pub disturbance: Option<Disturbance>,
    /// Whether it was left out of the statistics for that.
    #[serde(default)]
    pub is_left_out: bool,
}

impl Pass {
    /// Whether other work on the machine disturbed it, as far as that is known.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.disturbance.is_some_and(|disturbance| disturbance.is_disturbed())
    }
}

/// The sums of one brick in one layer and phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerBrick {
    /// The phase; `None` outside of passes.
    pub phase: Option<Phase>,
    /// The layer; `None` for what ran before and after the layers.
    pub layer: Option<u16>,
    /// The brick.
    pub name: String,
    /// Spans.
    pub count: u64,
    /// From begin to end, summed, in nanoseconds.
    pub total_ns: u64,
    /// What of it no brick inside explains.
    pub exclusive_ns: u64,
}

/// The sums of one kernel in the bricks of one name and phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrickKernel {
    /// The phase; `None` outside of passes.
    pub phase: Option<Phase>,
    /// The brick.
    pub brick: String,
    /// The kernel.
    pub kernel: String,
    /// Spans.
    pub count: u64,
    /// From begin to end, summed, in nanoseconds.
    pub total_ns: u64,
}

pub(crate) fn sum_is_wall(
    what: &str,
    explained: u64,
    unattributed: u64,
    wall: u64,
) -> Result<(), String> {
    if explained.checked_add(unattributed) == Some(wall) {
        return Ok(());
    }
    Err(format!(
        "{what} explain {explained} ns, and {unattributed} ns are unattributed, but the wall is {wall} ns"
    ))
}
