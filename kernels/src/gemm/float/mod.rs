//! Floats times floats, sixteen tokens to a vector of AVX-512.
//!
//! ```text
//!             256 columns
//! 128 rows   ┌──────────┬─ ─ ─     decoded weights, 128 KiB per piece: stay in L2, and come out of it by
//!            └──────────┴─ ─ ─     strips of 8 rows
//! 32 tokens  ┌──────────┬─ ─ ─     activations, the 32 of a column side by side, 32 KiB per piece: stay
//!            └──────────┴─ ─ ─     in L1 while all strips are multiplied with them
//! ```
//!
//! A strip and 32 tokens have 16 sums in registers. For each column two vectors of activations are loaded, and
//! each of 8 weights is put into all lanes of a third: 10 loads for 16 multiply-adds, which is less than a CPU
//! can load beside them. Lanes are added up nowhere: a lane is a token. Its products are added from the first
//! column of a piece to the last and then to the sum of the pieces before, whatever tokens are beside it.
//!
//! Tokens are put side by side once for all threads (`tokens.rs`), sums are turned back where they are written.
//! While a piece is multiplied the next is fetched, a few lines with each strip: its rows are short pieces of
//! memory far from each other, of which the hardware would fetch none ahead.

mod strip;
mod tokens;

pub(crate) use tokens::Packed;

use std::ops::Range;

use super::pieces::{bytes_of, prefetch_rows};
use crate::Matrix;
use crate::lanes::wide::{load_f32x16, store_f32x16, transpose};
use crate::matmul::Columns;
use crate::quant::avx2::decode_row;
use strip::{STRIP_ROWS, Strip, Sums};
use tokens::{LANES, Tile};

/// How many columns are decoded at a time.
const DEPTH: usize = 256;
/// Of how many rows.
const ROWS: usize = 128;

/// The columns of `out` that this thread has to fill, with all tokens of all parts.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn gemm_columns(out: &mut Columns, w: Matrix, parts: &[Packed]) {
    let (rows, cols) = (out.columns(), w.cols());
    let n_strips = rows.len().min(ROWS).div_ceil(STRIP_ROWS);
    let tiles: Vec<&Tile> = parts.iter().flat_map(Packed::tiles).collect();
    let mut strips = vec![Strip::default(); n_strips];
    let mut sums = vec![Sums::default(); n_strips * tiles.len()];
    for first in rows.clone().step_by(ROWS) {
        let last = rows.end.min(first + ROWS);
        let n_strips = (last - first).div_ceil(STRIP_ROWS);
        for at in (0..cols).step_by(DEPTH) {
            let depth = at..cols.min(at + DEPTH);
            decode(&mut strips, &w, first..last, depth.clone());
            let (next, next_depth) = match depth.end < cols {
                true => (first..last, depth.end..cols.min(depth.end + DEPTH)),
                false => (last..rows.end.min(last + ROWS), 0..cols.min(DEPTH)),
            };
            let steps = tiles.len() * n_strips;
            let share = |step: usize| next.start + next.len() * step / steps;
            let mut step = 0;
            let mut token = 0;
            for (tile, sums) in tiles.iter().zip(sums.chunks_exact_mut(strips.len())) {
                let sums = &mut sums[..n_strips];
                if at == 0 {
                    sums.fill(Sums::default());
                }
                for (strip, sums) in strips.iter().zip(&mut *sums) {
                    prefetch_rows(&w, share(step)..share(step + 1), next_depth.clone());
                    step += 1;
                    strip.add(sums, tile.columns(depth.clone()), tile.n());
                }
                if depth.end == cols {
                    write(out, sums, first..last, token..token + tile.n());
                }
                token += tile.n();
            }
        }
    }
}

/// Decodes some columns of some rows. What is in the rows of the last strip that aren't there is anything.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
fn decode(strips: &mut [Strip], w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
    let bytes = bytes_of(w, depth.clone());
    let weights = strips.iter_mut().flat_map(|strip| &mut strip.0);
    for (weights, row) in weights.zip(rows) {
        let bytes = &w.row_bytes(row)[bytes.clone()];
        decode_row(w.kind(), bytes, w.tensor_scale(), &mut weights[..depth.len()]);
    }
}

/// Writes the sums of some rows with the tokens of a tile.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
fn write(out: &mut Columns, sums: &[Sums], rows: Range<usize>, tokens: Range<usize>) {
    for (half, first) in tokens.clone().step_by(LANES).enumerate() {
        let mut turned = [[0.0; ROWS]; LANES];
        for (i, pair) in sums.chunks(2).enumerate() {
            let mut lanes = [std::arch::x86_64::_mm512_setzero_ps(); LANES];
            for (lanes, sums) in lanes.iter_mut().zip(pair.iter().flat_map(|sums| &sums.0)) {
                *lanes = load_f32x16(&sums[half]);
            }
            for (turned, lanes) in turned.iter_mut().zip(transpose(lanes)) {
                store_f32x16(&mut turned.as_chunks_mut().0[i], lanes);
            }
        }
        for (token, turned) in (first..tokens.end).zip(&turned) {
            out.set_run(token, rows.start, &turned[..rows.len()]);
        }
    }
}
