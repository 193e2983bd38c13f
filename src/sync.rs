//! Atomics and locks. Under `--cfg loom` the same names are those of the model checker loom, which tries
//! every order of events that the memory model allows.

use std::sync::PoisonError;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Loom has no `OnceLock`. This one has an atomic flag, so that loom sees what `get` synchronises with.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: loom::sync::atomic::AtomicBool,
}

#[cfg(loom)]
impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        let is_set = loom::sync::atomic::AtomicBool::new(false);
        Self { value: std::sync::OnceLock::new(), is_set }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let is_set = self.is_set.load(std::sync::atomic::Ordering::Acquire);
        is_set.then(|| self.value.get()).flatten()
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(make);
        self.is_set.store(true, std::sync::atomic::Ordering::Release);
        value
    }
}

/// Locks a mutex, ignoring poison: the values locked here are valid at every step, even if a thread panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`lock`], for a mutex that loom doesn't model: off the hot path, models use the real one too.
pub(crate) fn lock_unmodelled<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
