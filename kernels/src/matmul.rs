//! One matrix, many threads: each takes a contiguous share of the weight rows, or of a vector's product some after
//! another.
//!
//! With one token the results of a share lie together. With `n` they are a column of `out`, so the
//! threads' shares interleave in memory and can't be handed out as slices. [`Columns`] is the view
//! that each gets instead, and the only unsafe code here.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tiles::{self, TileLevel};
use crate::{Inputs, Kernels, Matrix, ThreadPool, TileWatch};

/// Some columns of a row-major matrix, to be written.
pub(crate) struct Columns<'a> {
    // Invariant: valid for writes of `n_rows * stride` elements during `'a`, in which nobody else
    // touches the elements of `columns`; and `columns.end <= stride`.
    start: *mut f32,
    n_rows: usize,
    stride: usize,
    columns: Range<usize>,
    matrix: PhantomData<&'a mut [f32]>,
    // Who is told of the tiles that are computed.
    tiles: Option<&'a dyn TileWatch>,
}

impl<'a> Columns<'a> {
    /// All columns of `out`, which is `(n_rows, n_columns)`.
    ///
    /// # Panics
    ///
    /// If `out` has another length.
    pub(crate) fn new(out: &'a mut [f32], n_rows: usize, n_columns: usize) -> Self {
        assert!(
            Some(out.len()) == n_rows.checked_mul(n_columns),
            "matmul: out has {} elements, but needs {n_rows} times {n_columns}",
            out.len()
        );
        Self {
            start: out.as_mut_ptr(),
            n_rows,
            stride: n_columns,
            columns: 0..n_columns,
            matrix: PhantomData,
            tiles: None,
        }
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub(crate) fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Who is told of the tiles that are computed.
    pub(crate) fn tiles(&self) -> Option<&'a dyn TileWatch> {
        self.tiles
    }

    /// Writes one element.
    #[inline]
    pub(crate) fn set(&mut self, row: usize, column: usize, value: f32) {
        assert!(row < self.n_rows && self.columns.contains(&column));
        // SAFETY: checked to be one of this view's elements, which by the invariant are valid and
        // nobody else's.
        unsafe { self.start.add(row * self.stride + column).write(value) }
    }

    /// Writes neighbours of one row.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn set_run(&mut self, row: usize, first: usize, values: &[f32]) {
        let columns = &self.columns;
        assert!(row < self.n_rows && columns.start <= first && first <= columns.end);
        assert!(values.len() <= columns.end - first);
        // SAFETY: checked to be elements of this view, which by the invariant are valid and nobody
        // else's; so `values` doesn't overlap with them.
        unsafe {
            let start = self.start.add(row * self.stride + first);
            start.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
    }
}

/// A matrix whose columns are dealt out to threads.
struct Shared {
    start: *mut f32,
    n_rows: usize,
    stride: usize,
}

// SAFETY: the pointer comes from a `&mut [f32]` that is borrowed for as long as the threads run, and
// `share` makes it its caller's duty that no two of them write the same element.
unsafe impl Sync for Shared {}

impl Shared {
    /// # Safety
    ///
    /// While the result lives, no other view may have a column in `columns`, and the matrix must stay
    /// borrowed.
    unsafe fn share(&self, columns: Range<usize>) -> Columns<'_> {
        assert!(columns.start <= columns.end && columns.end <= self.stride);
        let Self { start, n_rows, stride } = *self;
        Columns { start, n_rows, stride, columns, matrix: PhantomData, tiles: None }
    }
}

/// Results that lie in one cache line.
const FLOATS_PER_LINE: usize = 16;

/// How many of `threads` threads have a share of `rows` weight rows times `n` tokens in
/// [`Kernels::matmul`]: fewer than all where there are few rows. Of one token so many at most, since threads take
/// rows as they come.
pub fn threads_for_rows(rows: usize, n: usize, threads: usize) -> usize {
    if n == 1 {
        return rows.div_ceil(FLOATS_PER_LINE).clamp(1, threads.max(1));
    }
    rows.div_ceil(share_size(rows, threads).max(1)).max(1)
}

/// How many weight rows a thread takes, but for the last: see [`share`].
fn share_size(rows: usize, threads: usize) -> usize {
    rows.div_ceil(threads).next_multiple_of(FLOATS_PER_LINE)
}

/// Which of `rows` weight rows the thread takes: as many as the others, in whole cache lines of
/// `out` so that two threads don't write to one.
fn share(rows: usize, thread: usize, threads: usize) -> Range<usize> {
    let size = share_size(rows, threads);
    (thread * size).min(rows)..((thread + 1) * size).min(rows)
}

/// The weight rows of a matrix times one vector, for threads that take more when they are done: memory serves one
/// faster than another, and not always the same.
struct Shares {
    rows: usize,
    threads: usize,
    taken: AtomicUsize,
}

impl Shares {
    fn new(rows: usize, threads: usize) -> Self {
        Self { rows, threads, taken: AtomicUsize::new(0) }
    }

    /// The next rows that nobody has: large shares first, as a stream is read best from its start to its end, and
    /// smaller ones the fewer there are left, so that all threads end together.
    fn take(&self) -> Option<Range<usize>> {
        let end = |taken: usize| {
            let left = self.rows - taken;
            let size = if self.threads == 1 { left } else { left / (2 * self.threads) };
            self.rows.min(taken + size.next_multiple_of(FLOATS_PER_LINE).max(FLOATS_PER_LINE))
        };
        let next = |taken| (taken < self.rows).then(|| end(taken));
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(taken..end(taken))
    }
}

/// `out = X·Wᵀ` on all threads of the pool.
pub(crate) fn matmul(
    kernels: Kernels,
    pool: &ThreadPool,
    out: &mut [f32],
    w: Matrix,
    x: &mut Inputs<'_>,
    tiles: Option<&dyn TileWatch>,
) {
    let n = x.n();
    assert!(
        Some(x.x().len()) == n.checked_mul(w.cols()),
        "matmul: x has {} elements, but {n} rows of {w:?}'s columns are needed",
        x.x().len()
    );
    let Columns { start, n_rows, stride, .. } = Columns::new(out, n, w.rows());
    let shared = &Shared { start, n_rows, stride };
    let threads = pool.threads();
    if n == 1 {
        let x = x.vector(kernels, &w);
        let shares = &Shares::new(w.rows(), threads);
        return pool.run(&|_| {
            while let Some(rows) = shares.take() {
                // SAFETY: no two shares have a row in common, and all end at `w.rows()`, which is the
                // length of `out` when `n` is 1; `out` stays borrowed until `run` has returned.
                let out = unsafe {
                    std::slice::from_raw_parts_mut(shared.start.add(rows.start), rows.len())
                };
                kernels.gemv_vector(out, w, rows, x);
            }
        });
    }
    let x = x.tokens(kernels, Some(pool), w.kind());
    let gemm = |thread, tiles| {
        // SAFETY: the shares of the threads are disjoint, and `out` stays borrowed until `run` has
        // returned.
        let mut out = unsafe { shared.share(share(w.rows(), thread, threads)) };
        out.tiles = tiles;
        kernels.gemm_columns(&mut out, w, x, n);
    };
    let Some(watch) = tiles else { return pool.run(&|thread| gemm(thread, None)) };
    let shares: Vec<OnceLock<Range<u64>>> = (0..threads).map(|_| OnceLock::new()).collect();
    pool.run(&|thread| {
        let rows = share(w.rows(), thread, threads).len();
        if rows == 0 {
            return;
        }
        let from = watch.now();
        gemm(thread, Some(watch));
        let to = watch.now();
        if let (Some(from), Some(to)) = (from, to) {
            // Nobody else has this thread's cell.
            let _ = shares[thread].set(from..to);
            watch.tile(tiles::work(TileLevel::Macro, 1, rows, w.cols(), n), from..to);
        }
    });
    let shares: Vec<_> = shares.into_iter().filter_map(OnceLock::into_inner).collect();
    watch.product(&shares, threads);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_exactly_one_share() {
        for rows in [0, 1, 15, 16, 17, 100, 256, 2049] {
            for threads in 1..6 {
                let mut next = 0;
                for thread in 0..threads {
                    let share = share(rows, thread, threads);
                    assert!(share.start == next.min(rows), "{rows} rows, thread {thread}");
                    next = share.end;
                }
                assert_eq!(next, rows, "{rows} rows on {threads} threads");
            }
        }
    }

    #[test]
    fn every_row_is_taken_once_in_whole_lines_and_the_last_are_few() {
        for rows in [0, 1, 15, 16, 17, 100, 256, 2049] {
            for threads in 1..6 {
                let shares = Shares::new(rows, threads);
                let taken: Vec<_> = std::iter::from_fn(|| shares.take()).collect();
                let mut next = 0;
                for share in &taken {
                    assert_eq!(share.start, next, "{taken:?}");
                    assert!(share.end == rows || share.end.is_multiple_of(FLOATS_PER_LINE));
                    next = share.end;
                }
                assert_eq!(next, rows, "{taken:?}");
                let is_one = taken.len() == usize::from(rows > 0);
                assert!(if threads == 1 { is_one } else { taken.iter().all(|s| s.len() <= 528) });
                let last = taken.last().map_or(0, Range::len);
                assert!(threads == 1 || last <= FLOATS_PER_LINE, "{taken:?}");
                assert_eq!(shares.take(), None);
            }
        }
        // A stream is as long as it may be at first.
        let shares = Shares::new(5632, 2);
        assert_eq!([shares.take(), shares.take()], [Some(0..1408), Some(1408..2464)]);
    }

    #[test]
    #[should_panic = "assertion failed"]
    fn a_column_of_another_thread_cannot_be_written() {
        let mut out = [0.0; 8];
        let Columns { start, n_rows, stride, .. } = Columns::new(&mut out, 2, 4);
        let shared = Shared { start, n_rows, stride };
        // SAFETY: the only view, and `out` lives on.
        let mut left = unsafe { shared.share(0..2) };
        left.set(1, 1, 1.0);
        left.set(0, 2, 1.0);
    }
}
