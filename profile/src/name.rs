//! What spans are of.

use serde::{Deserialize, Serialize};

use crate::brick::{BrickCategory, BrickId};
use crate::graph::{DeviceLaunch, HostLaunch, TransferDirection};

/// Whether a name is that of a brick or of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// A brick.
    Brick,
    /// A kernel.
    Kernel,
}

/// What a span can be of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Of a brick or of a kernel.
    pub kind: NameKind,
    /// How a kernel runs on the CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostLaunch>,
    /// How it runs on a device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceLaunch>,
    /// What is copied, of a brick that is a copy between memories.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transfer: Option<Route>,
}

/// From where to where data is copied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// From where.
    pub src: String,
    /// To where.
    pub dst: String,
    /// Between which memories.
    pub direction: TransferDirection,
}

/// The number of a name: an index into [`Profile::names`](crate::Profile::names).
#[doc(hidden)]
pub type NameIdx = u16;

/// How many names there is room for: sums take memory for each of them on each thread.
const MAX_NAMES: usize = 4096;

/// The number for all bricks for whose names there is no room.
#[doc(hidden)]
pub const OTHER_BRICK: NameIdx = (MAX_NAMES - 1) as NameIdx;

/// The number for all kernels for whose names there is no room.
#[doc(hidden)]
pub const OTHER_KERNEL: NameIdx = (MAX_NAMES - 2) as NameIdx;

/// The category of the brick of a name: [`BrickCategory::Other`] where it is none of the well-known ones.
#[doc(hidden)]
#[must_use]
pub fn category_of(name: &str) -> BrickCategory {
    BrickId::from_str(name).map_or(BrickCategory::Other, BrickId::category)
}
