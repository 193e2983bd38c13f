//! Views of columns of a row-major matrix, of which each thread has its own.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use crate::TileWatch;

/// A view of some columns of a row-major matrix, for writing.
pub(crate) struct Columns<'a> {
    // Invariant: valid for writes of `n_rows * stride` elements during `'a`, in which nothing else accesses the
    // elements of `columns`; and `columns.end <= stride`.
    start: *mut f32,
    n_rows: usize,
    stride: usize,
    columns: Range<usize>,
    matrix: PhantomData<&'a mut [f32]>,
    // Told of the tiles as they are computed.
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

    /// What to tell of the tiles as they are computed.
    pub(crate) fn tiles(&self) -> Option<&'a dyn TileWatch> {
        self.tiles
    }

    /// The same, which tells of its tiles.
    pub(crate) fn telling(self, tiles: Option<&'a dyn TileWatch>) -> Self {
        Self { tiles, ..self }
    }

    /// Writes one element.
    #[inline]
    pub(crate) fn set(&mut self, row: usize, column: usize, value: f32) {
        assert!(row < self.n_rows && self.columns.contains(&column));
        // SAFETY: checked to be one of this view's elements, which by the invariant are valid and accessed only
        // through it.
        unsafe { self.start.add(row * self.stride + column).write(value) }
    }

    /// Writes adjacent elements of one row.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn set_run(&mut self, row: usize, first: usize, values: &[f32]) {
        let columns = &self.columns;
        assert!(row < self.n_rows && columns.start <= first && first <= columns.end);
        assert!(values.len() <= columns.end - first);
        // SAFETY: checked to be elements of this view, which by the invariant are valid and accessed only through
        // it; so `values` doesn't overlap with them.
        unsafe {
            let start = self.start.add(row * self.stride + first);
            start.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
    }
}

/// A matrix whose columns are divided among threads.
pub(crate) struct Shared<'a> {
    start: *mut f32,
    n_rows: usize,
    stride: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer comes from a `&mut [f32]` that is borrowed for as long as this lives, and `share` requires
// of its callers that no two of them write the same element.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// Of a view of all columns.
    pub(crate) fn new(all: Columns<'a>) -> Self {
        let Columns { start, n_rows, stride, matrix, .. } = all;
        assert_eq!(all.columns, 0..stride);
        Self { start, n_rows, stride, matrix }
    }

    /// # Safety
    ///
    /// While the result lives, no other view may have a column in `columns`, and the matrix must stay
    /// borrowed.
    pub(crate) unsafe fn share(&self, columns: Range<usize>) -> Columns<'_> {
        assert!(columns.start <= columns.end && columns.end <= self.stride);
        let Self { start, n_rows, stride, .. } = *self;
        Columns { start, n_rows, stride, columns, matrix: PhantomData, tiles: None }
    }

    /// Some elements of a matrix with one row.
    ///
    /// # Safety
    ///
    /// While the result lives, nobody else may use these elements.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that no two of them overlap")]
    pub(crate) unsafe fn row(&self, columns: Range<usize>) -> &mut [f32] {
        assert!(self.n_rows == 1 && columns.start <= columns.end && columns.end <= self.stride);
        // SAFETY: checked to lie in the matrix, which is borrowed; the caller promises that nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(columns.start), columns.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "assertion failed"]
    fn a_column_of_another_thread_cannot_be_written() {
        let mut out = [0.0; 8];
        let shared = Shared::new(Columns::new(&mut out, 2, 4));
        // SAFETY: the only view, and `out` lives on.
        let mut left = unsafe { shared.share(0..2) };
        left.set(1, 1, 1.0);
        left.set(0, 2, 1.0);
    }

    #[test]
    fn what_threads_write_to_their_columns_is_all_of_a_matrix() {
        let mut out = [0.0; 6];
        let shared = Shared::new(Columns::new(&mut out, 2, 3));
        // SAFETY: no two of these have a column in common, and `out` lives on.
        let (mut left, mut right) = unsafe { (shared.share(0..1), shared.share(1..3)) };
        for row in 0..2 {
            left.set(row, 0, 1.0);
            right.set(row, 1, 2.0);
            right.set(row, 2, 3.0);
        }
        assert_eq!(out, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
        let shared = Shared::new(Columns::new(&mut out, 1, 6));
        // SAFETY: the only view, and `out` lives on.
        unsafe { shared.row(1..3) }.copy_from_slice(&[8.0, 9.0]);
        assert_eq!(out, [1.0, 8.0, 9.0, 1.0, 2.0, 3.0]);
    }
}
