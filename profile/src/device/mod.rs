//! Devices, their clocks, and what ran on them.

mod busy;
mod clock;
mod grain;
mod launch;
mod profile;
mod serialised;

pub use busy::Busy;
pub use clock::{Alignment, Bracket, Drift, Ticks};
pub use grain::{Grain, GrainChoice, StampCost};
#[doc(hidden)]
pub use launch::launch_of;
pub use launch::{ClockMisfits, Launch, LaunchKind};
#[doc(hidden)]
pub use profile::issued;
pub use profile::{DeviceProfile, DeviceStream, GrainTotal, LayerTotal};
use serde::{Deserialize, Serialize};
pub use serialised::Serialised;

/// How often to wait for an asynchronous device while profiling.
///
/// A `DeviceTimer` waits for its device as the mode says. Bricks that the host itself runs are timed
/// the same way in every mode but [`SyncMode::None`], which times nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// Wait after every brick: it has its device time, and a host time that contains the wait. The
    /// run is serialised.
    Immediate,
    /// Wait once for each transformer layer. Layers have device times; bricks inside have none.
    PerLayer,
    /// Wait once for each pass at most, and settle the bricks then, by the device's own clock.
    #[default]
    Deferred,
    /// Time nothing.
    None,
}

impl SyncMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Immediate, Self::PerLayer, Self::Deferred, Self::None];

    /// The name on the command line, in reports and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::PerLayer => "per_layer",
            Self::Deferred => "deferred",
            Self::None => "none",
        }
    }
}
