//! Matrix times matrix, `out = X·Wᵀ`: the product for all tokens of a prompt at once.
//!
//! Every weight is used once per token, so it pays to decode a row of weights once into `f32` and multiply it with all
//! tokens. AVX2 and NEON do that for sixteen rows at a time, in pieces of 512 columns:
//!
//! ```text
//!           512 columns
//! 16 rows ┌──────────┬─ ─ ─     decoded weights, 32 KiB per piece: stay in L1 and L2
//!         └──────────┴─ ─ ─
//! n rows  ┌──────────┬─ ─ ─     activations, 3 rows at a time against 4 of weights:
//!         └──────────┴─ ─ ─     12 sums in registers, 7 loads for 12 multiply-adds
//! ```
//!
//! NEON takes two rows of activations at a time, because it has fewer registers.
//!
//! So an activation row is fetched once per sixteen rows of weights, which even L3 can keep up with.
//!
//! In terms of tiles, a thread's share of rows is a macro tile; sixteen rows with all tokens, from decoding to results,
//! are a midi tile; four rows by three tokens (two on NEON) are a micro tile. A micro tile takes no longer than a few
//! clock readings, so the micro tiles of a piece are timed together. The scalar loops aren't blocked: they only have
//! shares.
//!
//! On AVX-512, activations are rounded to 8 bits, once for all threads, and multiplied with the codes of quantised
//! weights as integers: see `int8/`. With float weights they stay floats, and are transposed so that a vector holds
//! sixteen tokens: see `float/`.

#[cfg(target_arch = "x86_64")]
pub(crate) mod float;
#[cfg(target_arch = "x86_64")]
pub(crate) mod int8;
#[cfg(target_arch = "x86_64")]
mod pieces;

use std::ops::Range;

use crate::Matrix;
use crate::columns::Columns;

/// Tokens are best prepared in multiples of this number.
#[cfg(target_arch = "x86_64")]
pub(crate) const TILE_TOKENS: usize = 32;

/// Rows of activations in the form that a kernel multiplies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tokens<'a> {
    /// As floats.
    Floats(&'a [f32]),
    /// Rounded to 8 bits for the integer kernels. Each part has some of the rows.
    #[cfg(target_arch = "x86_64")]
    Rounded(&'a [int8::Rounded]),
    /// As floats, with several tokens side by side. Each part has some of the rows.
    #[cfg(target_arch = "x86_64")]
    Packed(&'a [float::Packed]),
}

impl<'a> Tokens<'a> {
    fn floats(self) -> &'a [f32] {
        match self {
            Self::Floats(x) => x,
            #[cfg(target_arch = "x86_64")]
            Self::Rounded(_) | Self::Packed(_) => {
                unreachable!("only the kernels for AVX-512 make activations anew")
            }
        }
    }
}

/// # Panics
///
/// If `x`, the number of activations, doesn't match `n` rows.
pub(crate) fn check_tokens(w: &Matrix, x: usize, n: usize) {
    assert!(
        Some(x) == n.checked_mul(w.cols()),
        "gemm: x has {x} elements, but {n} rows of {} columns need {:?}",
        w.cols(),
        n.checked_mul(w.cols())
    );
}

fn check(out: &Columns, w: &Matrix, rows: &Range<usize>, n: usize) {
    assert!(
        out.n_rows() == n && out.columns() == *rows && rows.end <= w.rows(),
        "gemm: out has {} rows with columns {:?}, but needs {n} with {rows:?} of {w:?}",
        out.n_rows(),
        out.columns(),
    );
}

/// The reference.
pub mod scalar {
    use super::{Tokens, check};
    use crate::Matrix;
    use crate::columns::Columns;
    use crate::dot::scalar::dot;

    /// `out = X·Wᵀ`: `x` is `(n, cols)` and `out` is `(n, rows)`, both row-major.
    ///
    /// # Panics
    ///
    /// If `x` or `out` has another length.
    pub fn gemm(out: &mut [f32], w: Matrix, x: &[f32], n: usize) {
        let mut out = Columns::new(out, n, w.rows());
        super::check_tokens(&w, x.len(), n);
        gemm_columns(&mut out, w, Tokens::Floats(x), n);
    }

    /// Computes the columns of `out` that belong to this thread.
    pub(crate) fn gemm_columns(out: &mut Columns, w: Matrix, x: Tokens, n: usize) {
        let rows = out.columns();
        let x = x.floats();
        check(out, &w, &rows, n);
        let mut weights = vec![0.0; w.cols()];
        for row in rows {
            w.dequantize_row(row, &mut weights);
            for i in 0..n {
                out.set(i, row, dot(&weights, &x[i * w.cols()..][..w.cols()]));
            }
        }
    }
}

/// Integer products where weights have 8 bits or fewer; otherwise sixteen tokens at a time.
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use super::{Tokens, check, float, int8};
    use crate::Matrix;
    use crate::columns::Columns;

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn gemm_columns(out: &mut Columns, w: Matrix, x: Tokens, n: usize) {
        match x {
            // No tokens, or no columns.
            Tokens::Floats(_) => super::eight_lanes::gemm_columns(out, w, x, n),
            Tokens::Rounded(parts) => {
                check(out, &w, &out.columns(), n);
                int8::gemm_columns(out, w, parts);
            }
            Tokens::Packed(parts) => {
                check(out, &w, &out.columns(), n);
                float::gemm_columns(out, w, parts);
            }
        }
    }
}

/// Sixteen rows of weights at a time, in tiles of four by three.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use std::ops::Range;

    use super::{Tokens, check};
    use crate::Matrix;
    use crate::columns::Columns;
    use crate::dot::eight_lanes::tile;
    use crate::quant::eight_lanes::decode_row;
    use crate::tiles::{self, NoSink, TileLevel, TileSink};

    /// How many rows of weights are decoded at a time.
    const GROUP: usize = 16;
    /// How many of their columns are multiplied before moving on.
    const DEPTH: usize = 512;
    /// How many tokens four rows of weights are multiplied with at a time. Three tokens' sums take three quarters of
    /// AVX2's registers. NEON has twice as many registers of half the width, and with three tokens the compiler runs
    /// out of them.
    const TOKENS: usize = if cfg!(target_arch = "x86_64") { 3 } else { 2 };

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn gemm_columns(out: &mut Columns, w: Matrix, x: Tokens, n: usize) {
        match out.tiles() {
            None => multiply(out, w, x, n, NoSink),
            Some(sink) => multiply(out, w, x, n, sink),
        }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    fn multiply(out: &mut Columns, w: Matrix, x: Tokens, n: usize, sink: impl TileSink) {
        let rows = out.columns();
        let x = x.floats();
        check(out, &w, &rows, n);
        let cols = w.cols();
        let mut weights = vec![0.0; GROUP.min(rows.len()) * cols];
        let mut gathered = Vec::new();
        let mut sums = vec![[0.0; GROUP]; n];

        // Each group begins at the reading at which the previous one ended.
        let mut begun = sink.now();
        for first in rows.clone().step_by(GROUP) {
            let group = first..rows.end.min(first + GROUP);
            for (i, row) in group.clone().enumerate() {
                let weights = &mut weights[i * cols..][..cols];
                let row = w.row_in(row, &mut gathered);
                decode_row(w.kind(), row, w.tensor_scale(), weights);
            }
            sums.fill([0.0; GROUP]);
            for at in (0..cols).step_by(DEPTH) {
                let depth = at..cols.min(at + DEPTH);
                let row = |r: usize| &weights[r * cols..][..cols][depth.clone()];
                let from = sink.now();
                let mut r = 0;
                while r + 4 <= group.len() {
                    let rows = [row(r), row(r + 1), row(r + 2), row(r + 3)];
                    all_tokens(rows, r, &mut sums, x, cols, depth.clone());
                    r += 4;
                }
                while r < group.len() {
                    all_tokens([row(r)], r, &mut sums, x, cols, depth.clone());
                    r += 1;
                }
                let of_rows = group.len() / 4 + group.len() % 4;
                let micro = || {
                    let tiles = of_rows * n.div_ceil(TOKENS);
                    tiles::work(TileLevel::Micro, tiles, group.len(), depth.len(), n)
                };
                sink.tile(micro, from, sink.now());
            }
            for (i, sums) in sums.iter().enumerate() {
                for (row, sum) in group.clone().zip(sums) {
                    out.set(i, row, *sum);
                }
            }
            let done = sink.now();
            let midi = || tiles::work(TileLevel::Midi, 1, group.len(), cols, n);
            sink.tile(midi, begun, done);
            begun = done;
        }
    }

    /// Adds the products of all of `x` with `R` rows of weights, from row `first` on.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    fn all_tokens<const R: usize>(
        rows: [&[f32]; R],
        first: usize,
        sums: &mut [[f32; GROUP]],
        x: &[f32],
        cols: usize,
        depth: Range<usize>,
    ) {
        let token = |i: usize| &x[i * cols..][..cols][depth.clone()];
        let (tiles, rest) = sums.as_chunks_mut::<TOKENS>();
        let n_tiled = TOKENS * tiles.len();
        for (i, sums) in tiles.iter_mut().enumerate() {
            let mut tokens: [&[f32]; TOKENS] = [&[]; TOKENS];
            for (n, own) in tokens.iter_mut().enumerate() {
                *own = token(TOKENS * i + n);
            }
            let tile = tile(rows, tokens);
            for r in 0..R {
                for i in 0..TOKENS {
                    sums[i][first + r] += tile[r][i];
                }
            }
        }
        match rest {
            [] => {}
            [sums] => {
                let tile = tile(rows, [token(n_tiled)]);
                for r in 0..R {
                    sums[first + r] += tile[r][0];
                }
            }
            rest => {
                let tile = tile(rows, [token(n_tiled), token(n_tiled + 1)]);
                for r in 0..R {
                    for i in 0..2 {
                        rest[i][first + r] += tile[r][i];
                    }
                }
            }
        }
    }
}
