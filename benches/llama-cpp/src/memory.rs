//! The speed of memory right before and right after a turn.
//!
//! The CPUs of a virtual machine may be two cores in one second and two threads of one core in the next, as the host
//! decides. Two threads then read half as much, whichever engine runs. The engines' speed in each of these states says
//! more than their average over whatever the host did.

use std::sync::{Mutex, PoisonError};

use brickscope_engine::executor::Cpu;

/// Bytes that each thread reads: four times the last-level cache of most machines, some milliseconds.
const BYTES: usize = 128 << 20;

/// A turn had all of memory if at least this share of the best rate could be read before and after it.
const ALL: f64 = 0.7;

/// Reads memory that nothing else uses.
pub(crate) struct Probe {
    cpu: Cpu,
    arrays: Vec<Mutex<Vec<f64>>>,
}

impl Probe {
    pub(crate) fn new(cpu: &Cpu) -> Self {
        let arrays: Vec<Mutex<Vec<f64>>> =
            (0..cpu.pool().threads()).map(|_| Mutex::default()).collect();
        let len = BYTES / size_of::<f64>();
        // Written by the thread that reads it, and not zeros, which the system would map to one page.
        cpu.pool().run(&|thread| *lock(&arrays[thread]) = vec![1.0; len]);
        Self { cpu: cpu.clone(), arrays }
    }

    /// The bytes per second that all threads together read.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        let pool = self.cpu.pool();
        // Wakes the threads.
        pool.run(&|_| ());
        let began = std::time::Instant::now();
        pool.run(&|thread| {
            std::hint::black_box(self.cpu.kernels.read_streams(&lock(&self.arrays[thread]), 1));
        });
        (pool.threads() * BYTES) as f64 / began.elapsed().as_secs_f64()
    }
}

fn lock(array: &Mutex<Vec<f64>>) -> std::sync::MutexGuard<'_, Vec<f64>> {
    array.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What could be read around turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// As much as ever, before and after.
    All,
    /// Less, before and after.
    Less,
    /// It changed in between.
    Changed,
}

impl Memory {
    /// Classifies the rates around any number of turns, given the best rate.
    pub(crate) fn new(rates: impl IntoIterator<Item = f64>, best: f64) -> Self {
        let (mut all, mut less) = (true, true);
        for rate in rates {
            let is_all = rate >= least(best);
            (all, less) = (all && is_all, less && !is_all);
        }
        match (all, less) {
            (true, _) => Self::All,
            (false, true) => Self::Less,
            (false, false) => Self::Changed,
        }
    }
}

/// The rate that counts as all of memory, given the best rate.
pub(crate) fn least(best: f64) -> f64 {
    ALL * best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_it_was_before_and_after() {
        assert_eq!(Memory::new([100.0, 70.0], 100.0), Memory::All);
        assert_eq!(Memory::new([69.0, 10.0], 100.0), Memory::Less);
        assert_eq!(Memory::new([100.0, 69.0], 100.0), Memory::Changed);
    }
}
