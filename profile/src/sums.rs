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
    /// The phase.
    pub phase: Phase,
    /// The number of passes.
    pub passes: u64,
    /// How many of them were disturbed: by other programs, own threads on one CPU, a quota or the hypervisor.
    #[serde(default)]
    pub disturbed: u64,
    /// Of how many of them it is not known whether they were disturbed: nobody looked in time. `None` if nobody looked
    /// at all, and in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwatched: Option<u64>,
    /// Tokens that the passes processed.
    pub tokens: u64,
    /// Wall time: from the begin to the end of each pass, summed.
    pub wall_ns: u64,
    /// The part of it that is attributed to bricks.
    pub attributed_ns: u64,
    /// The part of it outside of all bricks.
    pub unattributed_ns: u64,
}

impl PhaseTotal {
    /// Tokens per second of wall time. `None` without wall time or tokens: an imported file may lack the
    /// number of tokens.
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
    /// How a kernel runs on a device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceLaunch>,
    /// The sums.
    #[serde(flatten)]
    pub stats: BrickStats,
    /// The standard deviation of the spans, in nanoseconds; `None` for fewer than two.
    #[serde(default)]
    pub std_dev_ns: Option<f64>,
    /// Percentiles of the spans, as far as there are enough of them.
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// The hardware counters over these spans, including what lies inside of them.
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
    /// Wall time: from its begin to its end.
    pub wall_ns: u64,
    /// The part of it that is attributed to bricks.
    pub attributed_ns: u64,
    /// The part of it outside of all bricks.
    pub unattributed_ns: u64,
    /// How other processes disturbed it, or it and its neighbours; `None` if that wasn't watched.
    #[serde(default)]
    pub disturbance: Option<Disturbance>,
    /// Whether it was left out of the statistics because it was disturbed.
    #[serde(default)]
    pub is_left_out: bool,
}

impl Pass {
    /// Whether it was disturbed, by whomever. `false` if that is not known.
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
    /// The layer; `None` before and after the layers.
    pub layer: Option<u16>,
    /// The brick.
    pub name: String,
    /// Spans.
    pub count: u64,
    /// From begin to end, summed, in nanoseconds.
    pub total_ns: u64,
    /// The total minus the time of the bricks inside, in nanoseconds.
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
        "{what} took {explained} ns, and {unattributed} ns are unattributed, but the wall time is {wall} ns"
    ))
}
