//! How finely a pass is timed on a device, and what that costs.

use serde::{Deserialize, Serialize};

use crate::brick::Phase;

/// What has a device time of its own; the rest is inside.
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
    /// Every grain, the coarsest first.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Layer, Self::Brick, Self::Kernel];

    /// What is timed, in the plural.
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

/// What a mark costs, as measured on this device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StampCost {
    /// Nanoseconds of the host, for each call.
    pub host_ns: f64,
    /// Nanoseconds of the device: from one mark to the next, with nothing between them; or, if that is more,
    /// by how much a mark between two kernels makes them longer, on a device that has
    /// work to put there (`Device::fill`).
    pub device_ns: f64,
    /// How many marks in a row this is the mean of.
    pub marks: u32,
    /// Nanoseconds by which a pass takes longer, whatever number of marks it has: they are brought to the host.
    /// `None` where it wasn't measured, or was lost in the noise.
    #[serde(default)]
    pub pass_ns: Option<f64>,
}

impl StampCost {
    /// The larger of the two: host and device work side by side, and a pass takes as long as the one that
    /// takes longer.
    #[must_use]
    pub fn ns(&self) -> f64 {
        self.host_ns.max(self.device_ns)
    }

    /// Of a pass with so many marks.
    #[doc(hidden)]
    pub fn of_pass(&self, marks: u32) -> f64 {
        self.pass_ns.unwrap_or(0.0) + f64::from(marks) * self.ns()
    }
}

/// How fine the passes of a phase were timed in the end, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrainChoice {
    /// The phase.
    pub phase: Phase,
    /// What had times of its own.
    pub grain: Grain,
    /// A sentence.
    pub reason: String,
    /// How often it was changed.
    pub changes: u64,
}
