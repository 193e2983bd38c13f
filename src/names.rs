//! The table of names, and kernels' numbers in it.

use std::collections::HashMap;

use brickscope_profile::name::NameIdx;
use brickscope_profile::{BrickId, Name, NameKind};

/// Tells the profilers of a process apart, since numbers of names mean nothing in another one.
pub(crate) type ProfilerNo = u16;

/// Of a key that any profiler knows.
pub(crate) const ANY_PROFILER: ProfilerNo = 0;

/// The number of a kernel's name, for the profiler that gave it out. See
/// [`BrickProfiler::kernel`](crate::BrickProfiler::kernel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelId {
    pub(crate) name: NameIdx,
    pub(crate) of: ProfilerNo,
}

/// A brick to time: a well-known one, or one of your own. See
/// [`BrickProfiler::named_brick`](crate::BrickProfiler::named_brick).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BrickKey {
    pub(crate) name: NameIdx,
    /// [`ANY_PROFILER`] of a well-known one.
    pub(crate) of: ProfilerNo,
}

impl From<BrickId> for BrickKey {
    #[inline(always)]
    fn from(brick: BrickId) -> Self {
        Self { name: brick as NameIdx, of: ANY_PROFILER }
    }
}

/// The table of names. Bricks and kernels share the numbers; the well-known bricks come first.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) list: Vec<Name>,
    /// By their names without a category, of which a brick has one at most.
    pub(crate) index: HashMap<Name, NameIdx>,
    /// Uses of names that did not fit the table.
    pub(crate) refused: u64,
}

impl Names {
    pub(crate) fn new() -> Self {
        let list: Vec<Name> = BrickId::ALL.iter().map(|brick| brick_name(brick.name())).collect();
        let index = list.iter().cloned().zip(0..).collect();
        Self { list, index, refused: 0 }
    }
}

pub(crate) fn brick_name(name: &str) -> Name {
    let kind = NameKind::Brick;
    Name { name: name.to_owned(), kind, category: None, host: None, device: None, transfer: None }
}
