//! The CPU: kernels of one backend, shared out over the threads of a pool.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use brickscope_kernels::{Kernels, Matrix, ThreadPool};

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

    /// `out = X·Wᵀ` for `n` tokens, on all threads.
    pub(crate) fn matmul(&self, out: &mut [f32], w: Matrix<'_>, x: &[f32], n: usize) {
        self.kernels.matmul(&self.pool, out, w, x, n);
    }

    /// Calls `run(i, row)` for each row of `rows`, on all threads if there are several tokens: the
    /// hand-over to another thread costs more than the rows of one token.
    // Always, since the compiler's mind would otherwise hang on what else is in the pass: with taps in
    // its source it was called, without them it wasn't. There is one copy in any case, as each call
    // has a closure of its own.
    #[inline(always)]
    pub(crate) fn each_row(
        &self,
        n_tokens: usize,
        rows: &mut [f32],
        row_len: usize,
        run: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        if n_tokens == 1 || self.threads() == 1 {
            rows.chunks_exact_mut(row_len).enumerate().for_each(|(i, row)| run(i, row));
            return;
        }
        let n_rows = rows.len() / row_len;
        // Causal attention makes later rows longer, so shares are interleaved: a thread takes the
        // next few rows when it is done with its last.
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
