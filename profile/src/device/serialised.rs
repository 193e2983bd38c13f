//! Operations that a device ran one at a time, so that the host could time them.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::brick::Phase;
use crate::stats::PairedRatio;

/// Where the host waited for a device after each operation, to time it by its own clock: a device of another program can't
/// be timed otherwise. The time of such an operation has its launch and the wait in it, and what the device would have
/// computed together or at once was computed one by one.
///
/// So passes took turns. Those that were timed so are the phase's passes; what it costs is measured against the others,
/// whose operations on devices were left whole. These are only here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Serialised {
    /// The phase.
    pub phase: Phase,
    /// The devices, as the program names them.
    pub devices: Vec<String>,
    /// Passes that were left whole, but those right after split ones, where a device may have to get ready again.
    pub whole_passes: u64,
    /// Their tokens.
    pub whole_tokens: u64,
    /// Their wall time.
    pub whole_wall_ns: u64,
    /// Half of them took as long or longer; `None` without any.
    #[serde(default)]
    pub whole_p50_ns: Option<u64>,
    /// How much longer passes took whose operations ran one at a time, each compared with a whole one near it.
    #[serde(default)]
    pub cost: Option<PairedRatio>,
    /// Why that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_absent: Option<Absent>,
}

impl Serialised {
    /// Tokens per second of the passes that were left whole. `None` without any.
    #[must_use]
    pub fn whole_tokens_per_second(&self) -> Option<f64> {
        (self.whole_wall_ns > 0 && self.whole_tokens > 0)
            .then(|| self.whole_tokens as f64 * 1e9 / self.whole_wall_ns as f64)
    }

    /// Why there is no roof over such a phase.
    #[must_use]
    pub fn no_roof(&self) -> Absent {
        Absent {
            reason: format!(
                "operations ran on {}, one at a time; the limits of the CPU don't hold for it, and its own were not \
                 measured",
                self.devices.join(", ")
            ),
        }
    }
}
