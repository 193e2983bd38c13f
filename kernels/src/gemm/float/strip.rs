//! The inner loop: 8 rows of weights with up to 32 tokens.

use std::arch::x86_64::*;
use std::ops::Range;

use super::DEPTH;
use super::tokens::{Column, LANES};
use crate::gemm::pieces::{bytes_of, group_of};
use crate::interleave::GROUP_ROWS;
use crate::lanes::wide::{
    load_bf16_bytes, load_f16_bytes, load_f32_bytes, load_f32x16, store_f32x16,
};
use crate::lanes::{load, store};
use crate::quant::eight_lanes::decode_row;
use crate::{Matrix, QuantType};

pub(super) const STRIP_ROWS: usize = 8;

/// Decoded weights.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Strip {
    weights: [f32; GROUP_ROWS * DEPTH],
    order: Order,
    /// Whether this is the second of a group's two strips.
    is_second: bool,
}

/// The order of the weights, which is that of the matrix: a weight can be broadcast from anywhere.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// Row by row, each at a multiple of `DEPTH`.
    Rows,
    /// Column by column, for both strips of a group.
    Columns,
}

impl Default for Strip {
    fn default() -> Self {
        Self { weights: [0.0; GROUP_ROWS * DEPTH], order: Order::Rows, is_second: false }
    }
}

/// The sums of each row of a strip with each token of a tile.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Sums(pub(super) [[[f32; LANES]; 2]; STRIP_ROWS]);

#[expect(
    clippy::needless_range_loop,
    reason = "by number loops are unrolled, and sums stay in registers"
)]
impl Strip {
    /// Decodes some columns of up to 8 rows. The contents of missing rows are unspecified.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn decode(&mut self, w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
        if w.is_interleaved() {
            self.order = Order::Columns;
            return self.decode_columns(w, rows.start, depth);
        }
        self.order = Order::Rows;
        let bytes = bytes_of(w, depth.clone());
        for (weights, row) in self.weights.chunks_exact_mut(DEPTH).zip(rows) {
            let bytes = &w.rows_bytes(row..row + 1)[bytes.clone()];
            decode_row(w.kind(), bytes, w.tensor_scale(), &mut weights[..depth.len()]);
        }
    }

    /// Decodes interleaved rows from `first` on. The first half of a group includes the other, which comes next.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn decode_columns(&mut self, w: &Matrix, first: usize, depth: Range<usize>) {
        self.is_second = !first.is_multiple_of(GROUP_ROWS);
        if self.is_second {
            return;
        }
        let group = group_of(w, first / GROUP_ROWS, depth);
        let columns = self.weights.as_chunks_mut::<GROUP_ROWS>().0.iter_mut();
        // A macro, since the loops differ only in the conversion.
        macro_rules! decode {
            ($load:ident) => {
                for (weights, column) in columns.zip(group.as_chunks().0) {
                    store_f32x16(weights, $load(column));
                }
            };
        }
        match w.kind() {
            QuantType::F32 => decode!(load_f32_bytes),
            QuantType::F16 => decode!(load_f16_bytes),
            QuantType::BF16 => decode!(load_bf16_bytes),
            kind => unreachable!("{kind} has an integer loop"),
        }
    }

    /// Adds the products of some columns with `n` tokens to `sums`.
    ///
    /// A token's sums have the same bits whatever `n` is.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn add(&self, sums: &mut Sums, columns: &[Column], n: usize) {
        match (n, self.order) {
            (..=8, Order::Rows) => self.add_eight::<false>(sums, columns),
            (..=8, Order::Columns) => self.add_eight::<true>(sums, columns),
            (9..=LANES, Order::Rows) => self.add_lanes::<1, false>(sums, columns),
            (9..=LANES, Order::Columns) => self.add_lanes::<1, true>(sums, columns),
            (_, Order::Rows) => self.add_lanes::<2, false>(sums, columns),
            (_, Order::Columns) => self.add_lanes::<2, true>(sums, columns),
        }
    }

    /// The weights by row.
    #[inline(always)]
    fn rows(&self) -> &[[f32; DEPTH]; STRIP_ROWS] {
        self.weights.as_chunks().0.first_chunk().expect("there is room for two strips")
    }

    /// The weights by column, for each strip.
    #[inline(always)]
    fn columns(&self) -> &[[[f32; STRIP_ROWS]; 2]; DEPTH] {
        self.weights
            .as_chunks()
            .0
            .as_chunks()
            .0
            .first_chunk()
            .expect("there is room for two strips")
    }

    /// With `V` vectors of tokens.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn add_lanes<const V: usize, const BY_COLUMN: bool>(
        &self,
        sums: &mut Sums,
        columns: &[Column],
    ) {
        assert!(columns.len() <= DEPTH);
        let (by_row, by_column, strip) = (self.rows(), self.columns(), usize::from(self.is_second));
        let mut acc = [[_mm512_setzero_ps(); V]; STRIP_ROWS];
        for (k, column) in columns.iter().enumerate() {
            let mut x = [_mm512_setzero_ps(); V];
            for v in 0..V {
                x[v] = load_f32x16(&column.0[v]);
            }
            for r in 0..STRIP_ROWS {
                let weight = if BY_COLUMN { by_column[k][strip][r] } else { by_row[r][k] };
                let weight = _mm512_set1_ps(weight);
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

    /// For up to 8 tokens: half a vector each, so twice as many multiply-adds fit in the same time.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn add_eight<const BY_COLUMN: bool>(&self, sums: &mut Sums, columns: &[Column]) {
        assert!(columns.len() <= DEPTH);
        let (by_row, by_column, strip) = (self.rows(), self.columns(), usize::from(self.is_second));
        let mut acc = [_mm256_setzero_ps(); STRIP_ROWS];
        for (k, column) in columns.iter().enumerate() {
            let x = load(&column.0[0].as_chunks().0[0]);
            for r in 0..STRIP_ROWS {
                let weight = if BY_COLUMN { by_column[k][strip][r] } else { by_row[r][k] };
                acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(weight), x, acc[r]);
            }
        }
        for r in 0..STRIP_ROWS {
            let sums = &mut sums.0[r][0].as_chunks_mut().0[0];
            store(sums, _mm256_add_ps(load(sums), acc[r]));
        }
    }
}
