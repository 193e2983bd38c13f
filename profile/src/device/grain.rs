//! How finely a pass is timed on a device, and what that costs.

use serde::{Deserialize, Serialize};

use crate::brick::Phase;

/// The finest thing that is timed separately on a device.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Grain {
    /// Nothing smaller than a pass.
    Pass,
    /// Layers, and nothing inside them.
    Layer,
    /// Bricks.
    Brick,
    /// Bricks, and the kernels inside them.
    #[default]
    Kernel,
}

impl Grain {
    /// Every grain, from the coarsest to the finest.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Layer, Self::Brick, Self::Kernel];

    /// The name in reports: what is timed, in the plural.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "passes",
            Self::Layer => "layers",
            Self::Brick => "bricks",
            Self::Kernel => "kernels",
        }
    }
}

/// The cost of a mark, as measured on this device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StampCost {
    /// Nanoseconds of the host, for each call.
    pub host_ns: f64,
    /// Nanoseconds of the device: from one mark to the next with nothing between them. If the device has work
    /// to put between them (`Device::fill`) and a mark between two kernels adds more time, it is that time.
    pub device_ns: f64,
    /// How many marks in a row this is the mean of.
    pub marks: u32,
    /// Nanoseconds that a pass takes longer however many marks it has, since they are copied to the host.
    /// `None` if that wasn't measured, or was lost in the noise.
    #[serde(default)]
    pub pass_ns: Option<f64>,
}

impl StampCost {
    /// The larger of the two costs: host and device work in parallel, so a pass takes as long as the slower
    /// one.
    #[must_use]
    pub fn ns(&self) -> f64 {
        self.host_ns.max(self.device_ns)
    }

    /// The cost of all marks of a pass.
    #[doc(hidden)]
    pub fn of_pass(&self, marks: u32) -> f64 {
        self.pass_ns.unwrap_or(0.0) + f64::from(marks) * self.ns()
    }
}

/// How finely the passes of a phase were timed in the end, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrainChoice {
    /// The phase.
    pub phase: Phase,
    /// The grain.
    pub grain: Grain,
    /// Why, in one sentence.
    pub reason: String,
    /// How often the grain was changed.
    pub changes: u64,
}
