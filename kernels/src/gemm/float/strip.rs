//! The inner loop: 8 rows of weights with up to 32 tokens.

use std::arch::x86_64::*;
use std::ops::Range;

use super::DEPTH;
use super::tokens::{Column, LANES};
use crate::Matrix;
use crate::gemm::pieces::bytes_of;
use crate::lanes::wide::{load_f32x16, store_f32x16};
use crate::lanes::{load, store};
use crate::quant::eight_lanes::decode_row;

pub(super) const STRIP_ROWS: usize = 8;

/// Decoded weights.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Strip(pub(super) [[f32; DEPTH]; STRIP_ROWS]);

impl Default for Strip {
    fn default() -> Self {
        Self([[0.0; DEPTH]; STRIP_ROWS])
    }
}

/// Of each row of a strip with the tokens of a tile.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Sums(pub(super) [[[f32; LANES]; 2]; STRIP_ROWS]);

#[expect(
    clippy::needless_range_loop,
    reason = "by number loops are unrolled, and sums stay in registers"
)]
impl Strip {
    /// Decodes some columns of up to 8 rows. In the place of rows that aren't there may be anything.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn decode(&mut self, w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
        let bytes = bytes_of(w, depth.clone());
        for (weights, row) in self.0.iter_mut().zip(rows) {
            let bytes = &w.rows_bytes(row..row + 1)[bytes.clone()];
            decode_row(w.kind(), bytes, w.tensor_scale(), &mut weights[..depth.len()]);
        }
    }

    /// Adds the products with some columns of `n` tokens to `sums`.
    ///
    /// A token's sums are the same to the bit whatever `n` is.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn add(&self, sums: &mut Sums, columns: &[Column], n: usize) {
        match n {
            ..=8 => self.add_eight(sums, columns),
            9..=LANES => self.add_lanes::<1>(sums, columns),
            _ => self.add_lanes::<2>(sums, columns),
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn add_lanes<const V: usize>(&self, sums: &mut Sums, columns: &[Column]) {
        assert!(columns.len() <= DEPTH);
        let mut acc = [[_mm512_setzero_ps(); V]; STRIP_ROWS];
        for (k, column) in columns.iter().enumerate() {
            let mut x = [_mm512_setzero_ps(); V];
            for v in 0..V {
                x[v] = load_f32x16(&column.0[v]);
            }
            for r in 0..STRIP_ROWS {
                let weight = _mm512_set1_ps(self.0[r][k]);
                for v in 0..V {
                    acc[r][v] = _mm512_fmadd_ps(weight, x[v], acc[r][v]);
                }
            }
        }
        for r in 0..STRIP_ROWS {
            for v in 0..V {
                let sum = load_f32x16(&sums.0[r][v]);
                store_f32x16(&mut sums.0[r][v], _mm512_add_ps(sum, acc[r][v]));
            }
        }
    }

    /// For up to 8 tokens: twice as many multiply-adds of half a vector in the same time.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn add_eight(&self, sums: &mut Sums, columns: &[Column]) {
        assert!(columns.len() <= DEPTH);
        let mut acc = [_mm256_setzero_ps(); STRIP_ROWS];
        for (k, column) in columns.iter().enumerate() {
            let x = load(&column.0[0].as_chunks().0[0]);
            for r in 0..STRIP_ROWS {
                acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(self.0[r][k]), x, acc[r]);
            }
        }
        for r in 0..STRIP_ROWS {
            let sums = &mut sums.0[r][0].as_chunks_mut().0[0];
            store(sums, _mm256_add_ps(load(sums), acc[r]));
        }
    }
}
