//! Floats times floats, sixteen tokens to a vector of AVX-512.
//!
//! ```text
//!           256 columns
//! 8 rows    ┌──────────┬─ ─ ─     a strip of decoded weights, 8 KiB: stays in L1
//!           └──────────┴─ ─ ─
//! n tokens  ┌──────────┬─ ─ ─     activations, those of a column side by side: come out of L2, again for
//!           └──────────┴─ ─ ─     each strip of 128 rows
//! ```
//!
//! A strip and 32 tokens have 16 sums in registers. For each column two vectors of activations are loaded, and
//! each of 8 weights is put into all lanes of a third: 10 loads for 16 multiply-adds, fewer than a CPU can do
//! beside them. A lane is a token, so no lanes are added up. Its products are added from the first column of a
//! piece to the last and then to the sum of the pieces before, whatever tokens are beside it.
//!
//! Tokens are put side by side once for all threads (`tokens.rs`), sums are turned back where they are written.
//! While a strip is multiplied the next is fetched, some lines with each tile of tokens: its rows are short pieces
//! of memory far from each other, of which the hardware would fetch none ahead.

mod strip;
mod tokens;

pub(crate) use tokens::Packed;

use std::arch::x86_64::_mm512_setzero_ps;
use std::ops::Range;

use super::pieces::prefetch_rows;
use crate::Matrix;
use crate::lanes::wide::{load_f32x16, store_f32x16, transpose};
use crate::matmul::Columns;
use crate::spare::Spare;
use strip::{STRIP_ROWS, Strip, Sums};
use tokens::{LANES, Tile};

/// How many columns are multiplied before going on.
const DEPTH: usize = 256;
/// With how many rows.
const ROWS: usize = 128;

static SUMS: Spare<Sums> = Spare::new();

/// The columns of `out` that this thread has to fill, with all tokens of all parts.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn gemm_columns(out: &mut Columns, w: Matrix, parts: &[Packed]) {
    let (rows, cols) = (out.columns(), w.cols());
    let tiles: Vec<&Tile> = parts.iter().flat_map(Packed::tiles).collect();
    let mut strip = Strip::default();
    let mut sums = SUMS.take();
    // Of a tile with all strips, then of the next.
    let n_strips = rows.len().min(ROWS).div_ceil(STRIP_ROWS);
    sums.resize(n_strips * tiles.len(), Sums::default());
    for first in rows.clone().step_by(ROWS) {
        let last = rows.end.min(first + ROWS);
        for at in (0..cols).step_by(DEPTH) {
            let depth = at..cols.min(at + DEPTH);
            let (next, next_depth) = match depth.end < cols {
                true => (first, depth.end..cols.min(depth.end + DEPTH)),
                false => (last, 0..cols.min(DEPTH)),
            };
            for (i, top) in (first..last).step_by(STRIP_ROWS).enumerate() {
                strip.decode(&w, top..last.min(top + STRIP_ROWS), depth.clone());
                let (next, next_depth) = match top + STRIP_ROWS < last {
                    true => (top + STRIP_ROWS..last.min(top + 2 * STRIP_ROWS), depth.clone()),
                    false => (next..rows.end.min(next + STRIP_ROWS), next_depth.clone()),
                };
                let share = |tile: usize| next.start + next.len() * tile / tiles.len();
                for (t, tile) in tiles.iter().enumerate() {
                    prefetch_rows(&w, share(t)..share(t + 1), next_depth.clone());
                    let sums = &mut sums[n_strips * t + i];
                    if at == 0 {
                        *sums = Sums::default();
                    }
                    strip.add(sums, tile.columns(depth.clone()), tile.n());
                }
            }
        }
        let mut token = 0;
        for (tile, sums) in tiles.iter().zip(sums.chunks_exact(n_strips)) {
            write(out, sums, first..last, token..token + tile.n());
            token += tile.n();
        }
    }
    SUMS.put(sums);
}

/// Writes the sums of some rows with the tokens of a tile.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
fn write(out: &mut Columns, sums: &[Sums], rows: Range<usize>, tokens: Range<usize>) {
    let sums = &sums[..rows.len().div_ceil(STRIP_ROWS)];
    for (half, first) in tokens.clone().step_by(LANES).enumerate() {
        let mut turned = [[0.0; ROWS]; LANES];
        for (i, pair) in sums.chunks(LANES / STRIP_ROWS).enumerate() {
            let mut lanes = [_mm512_setzero_ps(); LANES];
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
