//! Buffers that one product leaves to the next.
//!
//! A large buffer that is given back to the system comes anew as pages that have to be cleared and mapped, one
//! by one: for the activations of 128 tokens that takes longer than to fill them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is kept at most, in bytes.
const MOST: usize = 32 << 20;

/// Buffers that nobody uses.
pub(crate) struct Spare<T>(Mutex<Vec<Vec<T>>>);

impl<T> Spare<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The one that was left last, with whatever is in it, or a new one.
    pub(crate) fn take(&self) -> Vec<T> {
        self.buffers().pop().unwrap_or_default()
    }

    /// Leaves a buffer to others, if there aren't too many.
    pub(crate) fn put(&self, buffer: Vec<T>) {
        let mut buffers = self.buffers();
        let capacity: usize = buffers.iter().chain([&buffer]).map(Vec::capacity).sum();
        if capacity.saturating_mul(size_of::<T>()) <= MOST {
            buffers.push(buffer);
        }
    }

    /// Of a thread that panicked no buffer is left half done: they are moved in and out as a whole.
    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_taken_again() {
        let spare = Spare::new();
        assert_eq!(spare.take(), Vec::<u8>::new());
        spare.put(vec![1, 2]);
        assert_eq!((spare.take(), spare.take()), (vec![1, 2], vec![]));
    }

    #[test]
    fn no_more_is_kept_than_a_bound() {
        let spare = Spare::<u64>::new();
        for _ in 0..5 {
            spare.put(Vec::with_capacity(MOST / 8 / 2));
        }
        assert_eq!(spare.buffers().len(), 2);
    }
}
