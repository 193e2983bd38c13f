//! Float products with sixteen tokens in a vector of AVX-512.
//!
//! ```text
//!           256 columns
//! 8 rows    ┌──────────┬─ ─ ─     a strip of decoded weights, 8 KiB: stays in L1
//!           └──────────┴─ ─ ─
//! n tokens  ┌──────────┬─ ─ ─     activations, those of a column side by side: come from L2, once
//!           └──────────┴─ ─ ─     for each strip of 128 rows
//! ```
//!
//! A strip and 32 tokens have 16 sums in registers. For each column, two vectors of activations are loaded, and each of
//! 8 weights is broadcast to a third: 10 loads for 16 multiply-adds, which the loads don't slow down. Each lane is a
//! token, so no lanes are added up. A token's products are added from the first column of a piece to the last, and then
//! to the sum of the previous pieces, whatever the other tokens are.
//!
//! Tokens are put side by side once for all threads (`tokens.rs`); sums are transposed back when they are written. While
//! a strip is multiplied the next one is prefetched, some lines with each tile of tokens: its rows are short pieces of
//! memory far from each other, none of which the hardware would prefetch.
//!
//! Up to 16 tokens with interleaved rows have a loop of their own (`few.rs`).
//!
//! In terms of tiles, 256 columns of 128 rows with all tokens, from decoding to sums, are a midi tile; a strip of them
//! with up to 32 tokens is a micro tile. The micro tiles of a strip are timed together. In `few.rs`, 128 rows with all
//! columns are a midi tile, and a group of 16 rows a micro tile.

mod few;
mod strip;
mod tokens;

pub(crate) use tokens::Packed;

use std::arch::x86_64::_mm512_setzero_ps;
use std::ops::Range;

use super::pieces::prefetch_rows;
use crate::Matrix;
use crate::columns::Columns;
use crate::interleave::GROUP_ROWS;
use crate::lanes::wide::{load_f32x16, store_f32x16, transpose};
use crate::scratch::Scratch;
use crate::tiles::{self, NoSink, TileLevel, TileSink};
use strip::{STRIP_ROWS, Strip, Sums};
use tokens::{LANES, Tile};

/// How many columns are multiplied before moving on.
const DEPTH: usize = 256;
/// With how many rows: whole groups of interleaved ones.
const ROWS: usize = 128;
const _: () = assert!(ROWS.is_multiple_of(GROUP_ROWS));

static SUMS: Scratch<Sums> = Scratch::new();

/// Computes the columns of `out` that belong to this thread, for all tokens of all parts.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn gemm_columns(out: &mut Columns, w: Matrix, parts: &[Packed]) {
    match out.tiles() {
        None => multiply(out, w, parts, NoSink),
        Some(sink) => multiply(out, w, parts, sink),
    }
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
fn multiply(out: &mut Columns, w: Matrix, parts: &[Packed], sink: impl TileSink) {
    let (rows, cols) = (out.columns(), w.cols());
    let of_tokens: Vec<&Tile> = parts.iter().flat_map(Packed::tiles).collect();
    assert!(
        !w.is_interleaved() || rows.start.is_multiple_of(GROUP_ROWS),
        "a share of rows side by side begins with a group"
    );
    if w.is_interleaved()
        && let [tile] = of_tokens[..]
        && tile.n() <= few::MOST
    {
        return few::multiply(out, &w, tile, sink);
    }
    let n_tokens = of_tokens.iter().map(|tile| tile.n()).sum();
    let mut strip = Strip::default();
    let mut sums = SUMS.take();
    // One tile with all strips, then the next tile.
    let n_strips = rows.len().min(ROWS).div_ceil(STRIP_ROWS);
    sums.resize(n_strips * of_tokens.len(), Sums::default());
    let mut begun = sink.now();
    for first in rows.clone().step_by(ROWS) {
        let last = rows.end.min(first + ROWS);
        for at in (0..cols).step_by(DEPTH) {
            let depth = at..cols.min(at + DEPTH);
            let (next, next_depth) = match depth.end < cols {
                true => (first, depth.end..cols.min(depth.end + DEPTH)),
                false => (last, 0..cols.min(DEPTH)),
            };
            for (i, top) in (first..last).step_by(STRIP_ROWS).enumerate() {
                let bottom = last.min(top + STRIP_ROWS);
                strip.decode(&w, top..bottom, depth.clone());
                let decoded = sink.now();
                // The second strip of a group is decoded together with the first.
                let ahead = bottom + if w.is_interleaved() { STRIP_ROWS } else { 0 };
                let (from, to, next_depth) = match ahead < last {
                    true => (ahead, last, depth.clone()),
                    false => (next + ahead - last, rows.end, next_depth.clone()),
                };
                let next = from.min(to)..to.min(from + STRIP_ROWS);
                let share = |tile: usize| next.start + next.len() * tile / of_tokens.len();
                for (t, tile) in of_tokens.iter().enumerate() {
                    prefetch_rows(&w, share(t)..share(t + 1), next_depth.clone());
                    let sums = &mut sums[n_strips * t + i];
                    if at == 0 {
                        *sums = Sums::default();
                    }
                    strip.add(sums, tile.columns(depth.clone()), tile.n());
                }
                let work = |rows| {
                    tiles::work(TileLevel::Micro, of_tokens.len(), rows, depth.len(), n_tokens)
                };
                sink.tile(|| work(bottom - top), decoded, sink.now());
            }
            if depth.end == cols {
                let mut token = 0;
                for (tile, sums) in of_tokens.iter().zip(sums.chunks_exact(n_strips)) {
                    write(out, sums, first..last, token..token + tile.n());
                    token += tile.n();
                }
            }
            // Each piece begins at the reading at which the previous one ended.
            let done = sink.now();
            let work = || tiles::work(TileLevel::Midi, 1, last - first, depth.len(), n_tokens);
            sink.tile(work, begun, done);
            begun = done;
        }
    }
    SUMS.put(sums);
}

/// Writes the sums of some rows for the tokens of a tile.
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
