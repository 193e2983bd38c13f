//! Measuring what the machine can do at best: loops that do nothing else, timed.

use std::hint::black_box;

use brickscope_kernels::{Kernels, ThreadPool};

use crate::clock::Clock;
use crate::machine::{Ceilings, available_memory};
use crate::profile::Absent;

/// Bytes that each thread reads in one go, at most: more than its caches hold.
const READ_BYTES: u64 = 128 << 20;
/// Bytes that all threads read in one go, at most.
const ALL_READ_BYTES: u64 = 1 << 30;
/// With fewer bytes a thread, caches would be measured and not memory.
const LEAST_READ_BYTES: u64 = 16 << 20;
/// Rounds of multiplications in one go: some milliseconds.
const ROUNDS: usize = 2_000_000;
/// For how long each loop is run again and again; the best run counts, since others on the machine
/// only slow it down. A scheduler may take a while to give each thread a core of its own.
const NANOS: u64 = 250_000_000;

impl Ceilings {
    /// Measures what the threads of `pool` reach together with `kernels`. Takes half a second, and
    /// 128 MiB of memory for each thread, but at most a gigabyte and an eighth of what is free.
    ///
    /// # Errors
    ///
    /// Why there are none, if there isn't that memory.
    pub fn measure(kernels: Kernels, pool: &ThreadPool) -> Result<Self, Absent> {
        let n_threads = pool.threads();
        let most = available_memory().map_or(ALL_READ_BYTES, |free| ALL_READ_BYTES.min(free / 8));
        let read_bytes = READ_BYTES.min(most / n_threads as u64);
        let share = read_bytes as usize / size_of::<u64>();
        let mut words: Vec<u64> = Vec::new();
        if read_bytes < LEAST_READ_BYTES || words.try_reserve_exact(n_threads * share).is_err() {
            return Err(Absent {
                reason: format!(
                    "not measured: reading memory on {n_threads} threads, \
                     {} MB each, takes more than an eighth of the memory that is free",
                    LEAST_READ_BYTES >> 20
                ),
            });
        }
        // Filled, so that each page is there and none is the shared page of zeros.
        words.resize(n_threads * share, 1);
        let read_ns = best_of(&|| {
            pool.run(&|thread| {
                black_box(kernels.read_stream(&words[thread * share..][..share]));
            });
        });
        let compute_ns = best_of(&|| {
            pool.run(&|_| {
                black_box(kernels.multiply_add(black_box(ROUNDS)));
            });
        });
        let per_second = |amount: usize, ns: u64| amount as f64 * 1e9 / ns as f64;
        Ok(Self {
            read_bytes_per_second: per_second(size_of_val(words.as_slice()), read_ns),
            flops_per_second: per_second(n_threads * ROUNDS * Kernels::FLOPS_PER_ROUND, compute_ns),
            basis: format!(
                "measured before the run: {n_threads} thread{}, {}",
                if n_threads == 1 { "" } else { "s" },
                kernels.backend()
            ),
        })
    }
}

/// The least time that `run` took, in nanoseconds, and at least one.
fn best_of(run: &dyn Fn()) -> u64 {
    let clock = Clock::os();
    let mut best = u64::MAX;
    while clock.now() < NANOS {
        let start = clock.now();
        run();
        best = best.min(clock.now() - start);
    }
    best.max(1)
}
