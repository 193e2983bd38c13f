//! The names of bricks and kernels, and their numbers.

use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use brickscope_profile::name::{NameIdx, OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::{BrickCategory, BrickId, Name, NameKind, Route};

use super::BrickProfiler;
use crate::names::{ANY_PROFILER, BrickKey, KernelId, Names, brick_name};

/// What is timed under keys of another profiler, whose names this one doesn't know.
const FOREIGN: &str = "(another profiler's key)";

impl BrickProfiler {
    /// The number of a brick's name. Of a well-known brick the compiler knows it, and compares nothing.
    #[inline(always)]
    pub(crate) fn brick_of(&self, key: BrickKey) -> NameIdx {
        if key.of != ANY_PROFILER && key.of != self.recorder.number() {
            return self.foreign(NameKind::Brick);
        }
        key.name
    }

    /// The number of a kernel's name.
    #[inline(always)]
    pub(crate) fn kernel_of(&self, key: KernelId) -> NameIdx {
        if key.of != self.recorder.number() {
            return self.foreign(NameKind::Kernel);
        }
        key.name
    }

    /// Counts the use of another profiler's key, and says what its time is recorded as.
    #[cold]
    #[inline(never)]
    fn foreign(&self, kind: NameKind) -> NameIdx {
        if !self.recorder.is_active() {
            return OTHER_BRICK;
        }
        self.recorder.note_foreign_key();
        self.index_of(Name { kind, ..brick_name(FOREIGN) })
    }

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

    /// The number of a brick of this name, which is in this category unless it is well known or has been given another
    /// one before.
    pub(super) fn categorised_index(&self, name: &str, category: BrickCategory) -> NameIdx {
        let index = self.brick_index(name);
        let mut names = self.write_names();
        if let Some(known) = names.list.get_mut(usize::from(index))
            && BrickId::from_str(name).is_none()
        {
            known.category.get_or_insert(category);
        }
        index
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
