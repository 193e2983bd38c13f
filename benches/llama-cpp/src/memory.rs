//! How fast memory is right before and right after a turn.
//!
//! A virtual machine's CPUs may be two cores in one second and the two threads of one core in the next, as its host
//! likes. Two threads then read half as much, whoever runs. What both engines do in either state says more than
//! what they do on average over what a host did.

use std::sync::{Mutex, PoisonError};

use brickscope_engine::executor::Cpu;

/// Bytes that each thread reads: four times the last level of cache of most machines, some milliseconds.
const BYTES: usize = 128 << 20;

/// A turn had all of memory if before and after it as much as this part of the best could be read.
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
        // By the thread that reads it; no zeros, of which the system would give the same page over and over.
        cpu.pool().run(&|thread| *lock(&arrays[thread]) = vec![1.0; len]);
        Self { cpu: cpu.clone(), arrays }
    }

    /// Bytes that all threads together read in a second.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        let pool = self.cpu.pool();
        // Threads wake up.
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
    /// What rates of any number of turns say, if at best so much could be read.
    pub(crate) fn of(rates: impl IntoIterator<Item = f64>, best: f64) -> Self {
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

/// What has to be read for it to be all, if at best so much could be.
pub(crate) fn least(best: f64) -> f64 {
    ALL * best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_it_was_before_and_after() {
        assert_eq!(Memory::of([100.0, 70.0], 100.0), Memory::All);
        assert_eq!(Memory::of([69.0, 10.0], 100.0), Memory::Less);
        assert_eq!(Memory::of([100.0, 69.0], 100.0), Memory::Changed);
    }
}
