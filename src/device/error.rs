//! Errors of devices.

use std::error::Error;
use std::fmt;

/// Why a device can't be timed, or why a single call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device is gone, and with it the passes in flight, which were not read back. Passes that were
    /// settled before stay.
    Lost {
        /// The driver's reason.
        reason: String,
    },
    /// A call failed, but the device still works.
    Failed {
        /// What the call was to do.
        what: String,
        /// The driver's reason.
        reason: String,
    },
    /// Calls in a wrong order or with wrong arguments. The call had no effect.
    Misuse(DeviceMisuse),
}

/// Calls of a [`DeviceTimer`](crate::DeviceTimer) in a wrong order or with wrong arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceMisuse {
    /// A brick, or the end of one, outside of a pass.
    NoPass,
    /// A pass that begins inside another pass.
    PassInPass,
    /// A kernel outside of a brick.
    NoBrick,
    /// A stream that the device doesn't have.
    NoSuchStream {
        /// Which one.
        stream: u16,
        /// How many it has.
        streams: u16,
    },
    /// A recorded pass with a set of marks that the device doesn't have.
    NoSuchSet {
        /// Which one.
        set: u32,
        /// How many it has.
        sets: u32,
    },
    /// A pass with more marks than fit a set.
    TooManyMarks {
        /// The number of marks in a set.
        room: u32,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { reason } => write!(f, "the device is lost: {reason}"),
            Self::Failed { what, reason } => write!(f, "cannot {what}: {reason}"),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl fmt::Display for DeviceMisuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPass => f.write_str("a device brick needs a pass: call begin_pass first"),
            Self::PassInPass => f.write_str("a device pass can't begin inside another"),
            Self::NoBrick => f.write_str("a device kernel needs a brick on its stream"),
            Self::NoSuchStream { stream, streams } => {
                write!(f, "there is no stream {stream}: the device has {streams}")
            }
            Self::NoSuchSet { set, sets } => {
                write!(f, "there is no set {set} of marks: the device has {sets}")
            }
            Self::TooManyMarks { room } => {
                write!(f, "a pass has more marks than the {room} there is room for")
            }
        }
    }
}

impl Error for DeviceError {}

impl From<DeviceMisuse> for DeviceError {
    fn from(misuse: DeviceMisuse) -> Self {
        Self::Misuse(misuse)
    }
}
