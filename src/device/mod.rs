//! Time on a device that runs its work later than the host issues it.
//!
//! A [`Device`] is what an executor must offer: marks in its streams, their times, all at once, and
//! the same moment by both clocks. A [`DeviceTimer`](crate::DeviceTimer) records the marks of a pass while it is
//! issued. What it settles goes to [`Profile::devices`](crate::Profile::devices).
//!
//! Without a device clock there is only the order of issue (`deferred.rs`).

mod budget;
mod busy;
mod clock;
mod deferred;
mod error;
mod executor;
mod issued;
mod launch;
mod log;
mod profile;
mod simulated;

use serde::{Deserialize, Serialize};

pub use budget::{GrainChoice, StampCost};
pub use busy::Busy;
pub use clock::{Alignment, Bracket, Drift, Ticks};
pub(crate) use deferred::{Pending, partition};
pub use error::{DeviceError, Misuse};
pub use executor::{Device, DeviceInfo, StreamId};
pub(crate) use issued::{Event, NEXT_MARK, Needs, What};
pub use issued::{Grain, Issued};
pub(crate) use launch::launch_of;
pub use launch::{Launch, LaunchKind};
pub(crate) use log::{DeviceLog, State};
pub(crate) use profile::issued;
pub use profile::{DeviceProfile, DeviceStream, GrainTotal, LayerTotal};
pub use simulated::SimulatedDevice;

/// How often to wait for an asynchronous device while profiling.
///
/// A [`DeviceTimer`](crate::DeviceTimer) waits for its device as the mode says. Bricks that the host itself runs are timed
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
