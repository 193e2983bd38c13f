//! The names of spans: bricks and kernels.

use serde::{Deserialize, Serialize};

use crate::brick::{BrickCategory, BrickId};
use crate::graph::{DeviceLaunch, HostLaunch, TransferDirection};

/// Whether a name belongs to a brick or a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// A brick.
    Brick,
    /// A kernel.
    Kernel,
}

/// A brick or kernel that spans belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Whether it is a brick or a kernel.
    pub kind: NameKind,
    /// The category of a brick that isn't well known, if its engine says one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub category: Option<BrickCategory>,
    /// How a kernel runs on the CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostLaunch>,
    /// How it runs on a device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceLaunch>,
    /// The source and destination, if the brick is a copy between memories.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transfer: Option<Route>,
}

impl Name {
    /// The category of a brick: its own if it is well known, else what its engine says, else
    /// [`BrickCategory::Other`]. `None` for a kernel.
    #[must_use]
    pub fn brick_category(&self) -> Option<BrickCategory> {
        if self.kind != NameKind::Brick {
            return None;
        }
        let known = BrickId::from_str(&self.name).map(BrickId::category);
        Some(known.or(self.category).unwrap_or_default())
    }
}

/// The source and destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The source.
    pub src: String,
    /// The destination.
    pub dst: String,
    /// The memories that it copies between.
    pub direction: TransferDirection,
}

/// The number of a name: an index into [`Profile::names`](crate::Profile::names).
#[doc(hidden)]
pub type NameIdx = u16;

/// The size of the table of names. Each thread has sums for every name, so each name costs memory.
const MAX_NAMES: usize = 4096;

/// The number of all bricks whose names did not fit the table.
#[doc(hidden)]
pub const OTHER_BRICK: NameIdx = (MAX_NAMES - 1) as NameIdx;

/// The number of all kernels whose names did not fit the table.
#[doc(hidden)]
pub const OTHER_KERNEL: NameIdx = (MAX_NAMES - 2) as NameIdx;

/// The category of the brick with this name: [`BrickCategory::Other`] unless it is well known.
#[doc(hidden)]
#[must_use]
pub fn category_of(name: &str) -> BrickCategory {
    BrickId::from_str(name).map_or(BrickCategory::Other, BrickId::category)
}
