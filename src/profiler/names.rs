//! The names of bricks and kernels, and their numbers.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use super::BrickProfiler;
use crate::brick::{BrickCategory, BrickId};
use crate::profile::{Name, NameKind, Route};
use crate::recorder::NameIdx;

/// The number of a kernel's name. See [`BrickProfiler::kernel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelId(pub(crate) NameIdx);

/// How many names there is room for. Each thread keeps sums for each of them.
const MAX_NAMES: usize = 4096;

/// The number of all bricks whose names found no room.
pub(crate) const OTHER_BRICK: NameIdx = (MAX_NAMES - 1) as NameIdx;
/// The number of all kernels whose names found no room.
pub(crate) const OTHER_KERNEL: NameIdx = (MAX_NAMES - 2) as NameIdx;

/// The table of names. Bricks and kernels share the numbers; the well-known bricks come first.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) list: Vec<Name>,
    pub(super) index: HashMap<Name, NameIdx>,
    /// Uses of names for which there was no room.
    pub(super) refused: u64,
}

impl Names {
    pub(super) fn new() -> Self {
        let list: Vec<Name> = BrickId::ALL.iter().map(|brick| brick_name(brick.name())).collect();
        let index = list.iter().cloned().zip(0..).collect();
        Self { list, index, refused: 0 }
    }
}

pub(super) fn brick_name(name: &str) -> Name {
    let kind = NameKind::Brick;
    Name { name: name.to_owned(), kind, host: None, device: None, transfer: None }
}

pub(crate) fn category_of(name: &str) -> BrickCategory {
    BrickId::from_str(name).map_or(BrickCategory::Other, BrickId::category)
}

impl BrickProfiler {
    pub(crate) fn brick_index(&self, name: &str) -> NameIdx {
        match BrickId::from_str(name) {
            Some(brick) => brick as NameIdx,
            None => self.index_of(brick_name(name)),
        }
    }

    /// The number of a brick that is a copy, named as graphs name it.
    pub(crate) fn transfer_index(&self, route: Route) -> NameIdx {
        let Route { src, dst, direction } = &route;
        let name = format!("{}: {src} → {dst}", direction.name());
        self.index_of(Name { transfer: Some(route), ..brick_name(&name) })
    }

    pub(super) fn index_of(&self, name: Name) -> NameIdx {
        if let Some(&index) = self.read_names().index.get(&name) {
            return index;
        }
        let mut names = self.write_names();
        // Another thread may have been quicker.
        if let Some(&index) = names.index.get(&name) {
            return index;
        }
        let index = names.list.len() as NameIdx;
        if index >= OTHER_KERNEL {
            names.refused += 1;
            return match name.kind {
                NameKind::Brick => OTHER_BRICK,
                NameKind::Kernel => OTHER_KERNEL,
            };
        }
        names.list.push(name.clone());
        names.index.insert(name, index);
        index
    }

    pub(super) fn read_names(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_names(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}
