//! Buffers that one product reuses after another.
//!
//! The system takes a large freed buffer back, and hands out a new one as pages that must be cleared and mapped one
//! by one. For the activations of 128 tokens, that takes longer than filling the buffer.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most memory that is kept, in bytes.
const MAX_BYTES: usize = 32 << 20;

/// Buffers that are free for reuse.
pub(crate) struct Scratch<T>(Mutex<Vec<Vec<T>>>);

impl<T> Scratch<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The buffer returned last, with its old contents, or a new one.
    pub(crate) fn take(&self) -> Vec<T> {
        self.buffers().pop().unwrap_or_default()
    }

    /// Returns a buffer for reuse; drops it if too much is kept already.
    pub(crate) fn put(&self, buffer: Vec<T>) {
        let mut buffers = self.buffers();
        let capacity: usize = buffers.iter().chain([&buffer]).map(Vec::capacity).sum();
        if capacity.saturating_mul(size_of::<T>()) <= MAX_BYTES {
            buffers.push(buffer);
        }
    }

    /// Buffers move in and out whole, so a panic elsewhere can't have left one half written.
    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_taken_again() {
        let scratch = Scratch::new();
        assert_eq!(scratch.take(), Vec::<u8>::new());
        scratch.put(vec![1, 2]);
        assert_eq!((scratch.take(), scratch.take()), (vec![1, 2], vec![]));
    }

    #[test]
    fn no_more_is_kept_than_a_bound() {
        let scratch = Scratch::<u64>::new();
        for _ in 0..5 {
            scratch.put(Vec::with_capacity(MAX_BYTES / 8 / 2));
        }
        assert_eq!(scratch.buffers().len(), 2);
    }
}
