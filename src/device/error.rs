//! What can go wrong with a device.

use std::error::Error;
use std::fmt;

/// Why a device can't be timed, or not this once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// It is gone, and with it what was not read back: the passes in flight. What was settled before
    /// stays.
    Lost {
        /// Why, as the driver says it.
        reason: String,
    },
    /// A call failed; the device goes on.
    Failed {
        /// What was to be done.
        what: String,
        /// Why it wasn't, as the driver says it.
        reason: String,
    },
    /// The calls don't fit one another. Nothing happened.
    Misuse(Misuse),
}

/// Calls of a [`DeviceTimer`](crate::DeviceTimer) that don't fit one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// A brick or an end outside of a pass.
    NoPass,
    /// A pass begun inside a pass.
    PassInPass,
    /// A kernel outside of a brick.
    NoBrick,
    /// A stream that the device hasn't.
    NoSuchStream {
        /// Which one.
        stream: u16,
        /// How many it has.
        streams: u16,
    },
    /// A recorded pass whose set of marks the device hasn't.
    NoSuchSet {
        /// Which one.
        set: u32,
        /// How many it has.
        sets: u32,
    },
    /// A pass with more marks than the device has room for.
    TooManyMarks {
        /// Room.
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

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPass => f.write_str("a device brick needs a pass: begin_pass comes first"),
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

impl From<Misuse> for DeviceError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}
