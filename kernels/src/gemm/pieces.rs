//! Pieces of a matrix: some columns of some rows, which are multiplied before moving on.

use std::ops::Range;

use crate::Matrix;
use crate::interleave::{self, GROUP_ROWS};
use crate::lanes::wide::prefetch;

/// A value that begins at a cache line, so that no vector in it crosses one.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Where some columns, whole blocks, lie within a row.
pub(super) fn bytes_of(w: &Matrix, depth: Range<usize>) -> Range<usize> {
    let bytes_of = |cols: usize| cols / w.kind().block_len() * w.kind().block_bytes();
    bytes_of(depth.start)..bytes_of(depth.end)
}

/// Prefetches what a piece will need.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn prefetch_rows(w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
    if w.is_interleaved() {
        return prefetch_groups(w, rows, depth);
    }
    let bytes = bytes_of(w, depth);
    for row in rows {
        prefetch(&w.rows_bytes(row..row + 1)[bytes.clone()]);
    }
}

/// Of interleaved rows, prefetches as large a part of the group's bytes as the rows are of the group.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
fn prefetch_groups(w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
    let mut next = rows.start;
    while next < rows.end {
        let group = next / GROUP_ROWS;
        let bytes = group_of(w, group, depth.clone());
        let end = rows.end.min((group + 1) * GROUP_ROWS);
        let lines = bytes.len().div_ceil(64);
        let part = |row: usize| 64 * (lines * (row - group * GROUP_ROWS) / GROUP_ROWS);
        prefetch(&bytes[part(next)..part(end).min(bytes.len())]);
        next = end;
    }
}

/// Some columns of an interleaved group: whole blocks, as many as a piece has.
pub(super) fn group_of<'a>(w: &Matrix<'a>, group: usize, depth: Range<usize>) -> &'a [u8] {
    let block = w.kind().block_len();
    let blocks = depth.start / block..depth.end / block;
    interleave::part(w.kind(), w.groups_bytes(group..group + 1), blocks)
}
