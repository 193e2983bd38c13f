//! Timing a device that runs its work later than the host issues it.
//!
//! An executor implements [`Device`]: marks in its streams, reading back their times, and reading both clocks at
//! the same moment. A [`DeviceTimer`](crate::DeviceTimer) records the marks of a pass while it is issued. Settled
//! passes go to [`Profile::devices`](crate::Profile::devices).
//!
//! Without a device clock there is only the order of issue (`deferred.rs`).

mod budget;
mod deferred;
mod error;
mod executor;
mod issued;
mod log;
mod simulated;

#[doc(no_inline)]
pub use brickscope_profile::device::*;
pub(crate) use deferred::{Pending, partition};
pub use error::{DeviceError, DeviceMisuse};
pub use executor::{Device, DeviceInfo, MarkCost, StreamId};
pub use issued::Issued;
pub(crate) use issued::{Event, NEXT_MARK, Needs, What};
pub(crate) use log::{DeviceLog, State};
pub use simulated::SimulatedDevice;
