//! The CPU executor: kernels of one backend, shared out over the threads of a pool.

mod shares;

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use brickscope_kernels::{Inputs, Kernels, Matrix, ThreadPool, TileWatch};

pub(crate) use shares::Shares;
pub use shares::thread_shares;

/// The fewest multiply-adds for which rows are handed to other threads. So many take 2 to 10 µs on
/// one thread: 0.05 to 0.09 ns each in caches, for `q·k` and `p·v` with AVX2, and up to 0.3 where keys
/// come out of memory, as they do after the weights of a pass have evicted them; 3 to 20 µs with the scalar
/// kernels. The hand-over takes 0.1 µs where the workers spin, as they do between the matrices of a pass,
/// 0.7 where they yield their cores, and perhaps 2 where the cores share no cache. So splitting
/// the rows between two threads pays nearly everywhere. It hasn't been measured with NEON.
const WORTH: usize = 1 << 15;

/// What a score costs in a softmax, in multiply-adds out of memory: 0.6 ns from a cache with AVX2.
pub(crate) const MULTIPLY_ADDS_OF_SOFTMAX: usize = 3;

/// How the rows of a brick are dealt out to threads. Rows don't depend on each other, so each has the
/// same bits on any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deal {
    /// The calling thread takes all rows.
    Alone,
    /// Each thread takes a contiguous run of rows: the heads of one token, where those that read the same keys are
    /// neighbours.
    Together {
        /// Threads of the pool that take part.
        threads: usize,
    },
    /// Each thread takes the next few rows when it is done with its last, since causal attention makes
    /// later tokens' rows longer.
    Interleaved,
}

/// How many of `threads` threads share one token's heads.
pub(crate) fn together(n_heads: usize, threads: usize) -> usize {
    n_heads.clamp(1, threads)
}

/// Runs operations on the CPU.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// The kernels of its backend.
    pub kernels: Kernels,
    pool: Arc<ThreadPool>,
}

impl Cpu {
    /// Starts a pool of `n_threads` threads, the calling one among them.
    ///
    /// # Errors
    ///
    /// If the system can't start that many threads.
    pub fn new(kernels: Kernels, n_threads: NonZeroUsize) -> io::Result<Self> {
        Ok(Self { kernels, pool: Arc::new(ThreadPool::new(n_threads)?) })
    }

    /// Threads that share the work, the calling one among them.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The threads.
    #[must_use]
    pub fn pool(&self) -> &ThreadPool {
        &self.pool
    }

    /// `out = X·Wᵀ` for all tokens of `x`, on all threads. Reports its tiles to `tiles`.
    pub(crate) fn matmul(
        &self,
        out: &mut [f32],
        w: Matrix<'_>,
        x: &mut Inputs<'_>,
        tiles: Option<&dyn TileWatch>,
    ) {
        self.kernels.matmul_inputs(&self.pool, out, w, x, tiles);
    }

    /// How to deal out the rows of `n_heads` heads of `n_tokens` tokens, which take `multiply_adds` in all.
    pub(crate) fn deal(&self, n_tokens: usize, n_heads: usize, multiply_adds: usize) -> Deal {
        let threads = self.threads();
        if threads == 1 || multiply_adds < WORTH {
            Deal::Alone
        } else if n_tokens > 1 && n_tokens * n_heads >= threads {
            Deal::Interleaved
        } else {
            match together(n_heads, threads) {
                1 => Deal::Alone,
                threads => Deal::Together { threads },
            }
        }
    }

    /// Calls `run(i, row)` for each row of `rows`, on the threads that `deal` says.
    // Always inlined, or the compiler's choice would depend on the rest of the pass: it called this with taps in
    // the source and inlined it without. Each call has a closure of its own, so there is one copy in any case.
    #[inline(always)]
    pub(crate) fn each_row(
        &self,
        deal: Deal,
        rows: &mut [f32],
        row_len: usize,
        run: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        match deal {
            Deal::Alone => {
                rows.chunks_exact_mut(row_len).enumerate().for_each(|(i, row)| run(i, row));
                return;
            }
            Deal::Together { threads } => return self.pool.run_rows(threads, rows, row_len, run),
            Deal::Interleaved => {}
        }
        let n_rows = rows.len() / row_len;
        let rows_at_once = n_rows.div_ceil(8 * self.threads()).max(1);
        let shares = Mutex::new(rows.chunks_mut(rows_at_once * row_len).enumerate());
        self.pool.run(&|_| {
            loop {
                let share = shares.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((index, share)) = share else { break };
                for (i, row) in share.chunks_exact_mut(row_len).enumerate() {
                    run(index * rows_at_once + i, row);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use brickscope_kernels::Backend;

    use super::*;

    fn cpu(backend: Backend, threads: usize) -> Cpu {
        let kernels = Kernels::new(backend).expect("it runs here");
        Cpu::new(kernels, NonZeroUsize::new(threads).expect("not 0")).expect("threads")
    }

    #[test]
    fn rows_are_dealt_out_where_they_are_worth_the_hand_over() {
        let three = cpu(Backend::Scalar, 3);
        let (short, long) = (WORTH - 1, WORTH);
        for (tokens, heads, multiply_adds, expected) in [
            (1, 32, short, Deal::Alone),
            (1, 32, long, Deal::Together { threads: 3 }),
            (1, 2, long, Deal::Together { threads: 2 }),
            (1, 1, long, Deal::Alone),
            (2, 32, short, Deal::Alone),
            (2, 32, long, Deal::Interleaved),
            // Fewer rows than threads.
            (2, 1, long, Deal::Alone),
            (3, 1, long, Deal::Interleaved),
        ] {
            let what = format!("{tokens} tokens, {heads} heads, {multiply_adds}");
            assert_eq!(three.deal(tokens, heads, multiply_adds), expected, "{what}");
            assert_eq!(cpu(Backend::Scalar, 1).deal(tokens, heads, multiply_adds), Deal::Alone);
        }
    }

    #[test]
    fn each_row_is_run_once_however_they_are_dealt_out() {
        for threads in 1..4 {
            let cpu = cpu(Backend::Scalar, threads);
            for deal in [Deal::Alone, Deal::Together { threads: 2 }, Deal::Interleaved] {
                let mut rows = [0.0; 2 * 13];
                cpu.each_row(deal, &mut rows, 2, |i, row| {
                    row.iter_mut().for_each(|x| *x += 1.0 + i as f32);
                });
                let expected: Vec<f32> = (0..13).flat_map(|i| [1.0 + i as f32; 2]).collect();
                assert_eq!(rows[..], expected, "{deal:?} on {threads} threads");
            }
        }
    }
}
