//! 32 rows of unpacked weights: one byte per code, four columns of sixteen rows to a vector.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::gemm::pieces::{Aligned, bytes_of, group_of};
use crate::lanes::wide::store_u8x64;
use crate::{Matrix, QuantType};

pub(super) const PANEL_ROWS: usize = 32;
/// The rows of a panel fill two vectors.
pub(super) const LANES: usize = 16;
/// How many columns are written together: eight vectors of four.
pub(super) const RUN: usize = 32;

/// A piece of 32 rows.
#[derive(Default)]
pub(super) struct Panel {
    /// For each four columns.
    pub(super) codes: Vec<Aligned<[[u8; 64]; 2]>>,
    /// For each run of columns with one scale.
    pub(super) scales: Vec<Aligned<[[f32; LANES]; 2]>>,
    /// The factor of the activations' sum, for each block.
    pub(super) minimums: Vec<Aligned<[[f32; LANES]; 2]>>,
    /// For each two runs of columns: the minimums of both in units of the block's, 16 bits each.
    pub(super) pairs: Vec<Aligned<[[u8; 64]; 2]>>,
}

impl Panel {
    /// Unpacks some columns, whole blocks, of 1 to 32 rows. The lanes of missing rows are unspecified.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn fill(&mut self, w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
        self.make_room(w.kind(), depth.len());
        if w.is_interleaved() {
            // All shares begin and end with whole groups.
            assert!(rows.start.is_multiple_of(LANES), "rows {rows:?} begin inside a group");
            for half in 0..2 {
                // A missing group is replaced by the last one.
                let group = (rows.start / LANES + half).min((rows.end - 1) / LANES);
                self.unpack_group(half, w.kind(), group_of(w, group, depth.clone()));
            }
            return;
        }
        let bytes = bytes_of(w, depth.clone());
        for half in 0..2 {
            let mut sixteen: [&[u8]; LANES] = [&[]; LANES];
            for (i, row) in sixteen.iter_mut().enumerate() {
                // Missing rows are replaced by the last one.
                let i = (rows.start + LANES * half + i).min(rows.end - 1);
                *row = &w.rows_bytes(i..i + 1)[bytes.clone()];
            }
            self.unpack(half, w, sixteen);
        }
    }

    fn make_room(&mut self, kind: QuantType, cols: usize) {
        let blocks = cols / kind.block_len();
        let (scales, minimums, pairs) = match kind {
            QuantType::Q4_1 | QuantType::Q5_1 => (blocks, blocks, 0),
            QuantType::Q4_K | QuantType::Q5_K => (8 * blocks, blocks, 4 * blocks),
            QuantType::Q6_K => (16 * blocks, 0, 0),
            _ => (blocks, 0, 0),
        };
        self.codes.resize(cols / 4, Aligned([[0; 64]; 2]));
        self.scales.resize(scales, Aligned([[0.0; LANES]; 2]));
        self.minimums.resize(minimums, Aligned([[0.0; LANES]; 2]));
        self.pairs.resize(pairs, Aligned([[0; 64]; 2]));
    }

    /// Writes the codes of columns from `32 * run` on.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    pub(super) fn set_codes(&mut self, half: usize, run: usize, columns: [__m512i; RUN / 4]) {
        let run = &mut self.codes.as_chunks_mut::<{ RUN / 4 }>().0[run];
        for (codes, columns) in run.iter_mut().zip(columns) {
            store_u8x64(&mut codes.0[half], columns);
        }
    }
}
