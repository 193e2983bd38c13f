//! The CPU: kernels of one backend, shared out over the threads of a pool.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use brickscope_kernels::{Inputs, Kernels, Matrix, ThreadPool, TileWatch};

/// From so many multiply-adds on, rows are worth the hand-over to other threads. They take 2 to 10 µs on
/// one thread: 0.05 to 0.09 ns each in caches, for `q·k` and `p·v` with AVX2, and up to 0.3 where keys
/// come out of memory, as they do once the weights of a pass have gone by; 3 to 20 µs with the scalar
/// kernels. The hand-over is 0.1 µs where the workers spin, as they do between the matrices of a pass,
/// 0.7 where they offer their cores to others, and perhaps 2 where the cores share no cache. So two
/// threads that halve the rows save more than it costs nearly everywhere. With NEON nobody has measured it.
const WORTH: usize = 1 << 15;

/// How many multiply-adds of those, out of memory, a score takes in a softmax, out of a cache: 0.6 ns with AVX2.
pub(crate) const MULTIPLY_ADDS_OF_SOFTMAX: usize = 3;

/// How the rows of a brick are dealt out to threads. Rows don't depend on each other, so each is the
/// same to the bit whoever has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deal {
    /// The calling thread has all.
    Alone,
    /// So many threads have some each that lie together: the heads of one token, of which those that
    /// read the same keys are neighbours.
    Together {
        /// Of the pool's.
        threads: usize,
    },
    /// All threads take the next few rows when they are done with their last: causal attention makes
    /// later tokens' rows longer.
    Interleaved,
}

/// On how many of `threads` threads a token's heads are dealt out together.
pub(crate) fn together(n_heads: usize, threads: usize) -> usize {
    n_heads.clamp(1, threads)
}

/// Runs operations on the CPU.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// The kernels, of a backend chosen once.
    pub kernels: Kernels,
    pool: Arc<ThreadPool>,
}

impl Cpu {
    /// Starts a pool of so many threads, the calling one among them.
    ///
    /// # Errors
    ///
    /// If the system can't start so many threads.
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

    /// `out = X·Wᵀ` for all tokens of `x`, on all threads. `tiles` is told of its tiles.
    pub(crate) fn matmul(
        &self,
        out: &mut [f32],
        w: Matrix<'_>,
        x: &mut Inputs<'_>,
        tiles: Option<&dyn TileWatch>,
    ) {
        self.kernels.matmul_inputs(&self.pool, out, w, x, tiles);
    }

    /// How rows are dealt out, `n_heads` of each of `n_tokens` tokens, that take so many multiply-adds
    /// together.
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

    /// Calls `run(i, row)` for each row of `rows`, as they are dealt out.
    // Always, since the compiler's mind would otherwise hang on what else is in the pass: with taps in
    // its source it was called, without them it wasn't. There is one copy in any case, as each call
    // has a closure of its own.
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
