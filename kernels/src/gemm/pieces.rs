//! Pieces of a matrix: some columns of some rows, which are multiplied before going on.

use std::ops::Range;

use crate::Matrix;
use crate::lanes::wide::prefetch;

/// What begins at a cache line, so that no vector is in two.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Where some columns, whole blocks, are in a row.
pub(super) fn bytes_of(w: &Matrix, depth: Range<usize>) -> Range<usize> {
    let bytes_of = |cols: usize| cols / w.kind().block_len() * w.kind().block_bytes();
    bytes_of(depth.start)..bytes_of(depth.end)
}

/// Asks for what a piece will need.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn prefetch_rows(w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
    let bytes = bytes_of(w, depth);
    for row in rows {
        prefetch(&w.row_bytes(row)[bytes.clone()]);
    }
}
