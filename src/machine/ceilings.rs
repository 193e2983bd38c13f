//! Measuring what the machine can do at best: loops that do nothing else, timed.

use std::hint::black_box;

use brickscope_kernels::{Kernels, ThreadPool};

use crate::clock::Clock;
use crate::machine::Ceilings;

/// Bytes that each thread reads in one go: more than its caches hold.
const READ_BYTES: usize = 128 << 20;
/// Rounds of multiplications in one go: some milliseconds.
const ROUNDS: usize = 2_000_000;
/// For how long each loop is run again and again; the best run counts, since others on the machine
/// only slow it down. A scheduler may take a while to give each thread a core of its own.
const NANOS: u64 = 250_000_000;

impl Ceilings {
    /// Measures what the threads of `pool` reach together with `kernels`. Takes half a second and
    /// 128 MiB of memory for each thread.
    #[must_use]
    pub fn measure(kernels: Kernels, pool: &ThreadPool) -> Self {
        let n_threads = pool.threads();
        // Filled, so that each page is there and none is the shared page of zeros.
        let words = vec![1u64; n_threads * (READ_BYTES / size_of::<u64>())];
        let share = words.len() / n_threads;
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
        Self {
            read_bytes_per_second: per_second(n_threads * READ_BYTES, read_ns),
            flops_per_second: per_second(n_threads * ROUNDS * Kernels::FLOPS_PER_ROUND, compute_ns),
            basis: format!(
                "measured before the run: {n_threads} thread{}, {}",
                if n_threads == 1 { "" } else { "s" },
                kernels.backend()
            ),
        }
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
