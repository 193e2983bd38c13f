//! Integer products: activations are rounded to 8 bits, and `vpdpbusd` (AVX-512 VNNI) adds 64 products at a time.
//!
//! ```text
//!           512 columns
//! 32 rows ┌──────────┬─ ─ ─     codes, a byte each, 16 KiB per piece: stay in L1. Four columns of sixteen
//!         └──────────┴─ ─ ─     rows are a vector
//! n rows  ┌──────────┬─ ─ ─     activations, 6 rows at a time against 32 of weights: 12 sums in
//!         └──────────┴─ ─ ─     registers, 8 loads for 12 instructions of 64 multiply-adds
//! ```
//!
//! One loop multiplies all formats. Besides the codes, it reads the scales of each run of columns that has its own,
//! sixteen rows to a vector, and the minimums of formats that have them. An offset that is the same for all rows (128 makes
//! Q8_0's codes unsigned; Q4_0's code 0 stands for -8) is subtracted from the initial value of an integer sum: it is a
//! multiple of the sum of some activations.
//!
//! While a piece is multiplied the next one is prefetched: its rows are short pieces of memory far from each other, none
//! of which the hardware would prefetch.
//!
//! In terms of tiles, a thread's share of rows is a macro tile; a panel with all tokens, from unpacking to results, is a
//! midi tile; 32 rows by 6 tokens are a micro tile. A micro tile takes about half a microsecond, as long as a few clock
//! readings, so the micro tiles of a panel are timed together.
//!
//! `unpack.rs` fills the panel in `panel.rs` with weights, `tokens.rs` rounds activations, and `tile.rs` multiplies.

mod panel;
mod tile;
mod tokens;
mod unpack;

pub(crate) use tokens::Rounded;

use std::ops::Range;

use super::pieces::prefetch_rows;
use crate::columns::Columns;
use crate::tiles::{self, NoSink, TileLevel, TileSink};
use crate::{Matrix, QuantType};
use panel::{PANEL_ROWS, Panel};
use tokens::{Block, Blocks};

/// The most tokens in a tile.
const TILE_TOKENS: usize = 6;
/// How many columns are unpacked at a time: a multiple of all formats' blocks.
const DEPTH: usize = 512;
// Two blocks of interleaved rows share a line of half floats.
const _: () = assert!(DEPTH.is_multiple_of(2 * 256));

/// Whether there is an integer loop for this type.
pub(crate) fn is_written(kind: QuantType) -> bool {
    !matches!(kind, QuantType::F32 | QuantType::F16 | QuantType::BF16)
}

/// Computes the columns of `out` that belong to this thread, for all tokens of all parts.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn gemm_columns(out: &mut Columns, w: Matrix, parts: &[Rounded]) {
    /// Calls `multiply` with the rows of all parts.
    macro_rules! multiply {
        ($of:ident, $groups:literal, $minimums:literal) => {{
            let mut tokens = Vec::new();
            for part in parts {
                let Blocks::$of(blocks) = part.blocks() else {
                    unreachable!("activations rounded for {}", w.kind())
                };
                tokens.extend(blocks.chunks_exact(blocks.len() / part.n()));
            }
            match out.tiles() {
                None => multiply::<_, _, $groups, $minimums>(out, w, &tokens, NoSink),
                Some(sink) => multiply::<_, _, $groups, $minimums>(out, w, &tokens, sink),
            }
        }};
    }
    match w.kind() {
        QuantType::Q8_0 | QuantType::Q4_0 | QuantType::Q5_0 => multiply!(Len32, 1, false),
        QuantType::Q4_1 | QuantType::Q5_1 => multiply!(Len32, 1, true),
        QuantType::Q4_K | QuantType::Q5_K => multiply!(WithMinimums, 8, true),
        QuantType::Q6_K => multiply!(SumsOf16, 16, false),
        QuantType::TQ1_0 | QuantType::TQ2_0 => multiply!(Len256, 1, false),
        QuantType::I2_S => multiply!(Len128, 1, false),
        kind @ (QuantType::F32 | QuantType::F16 | QuantType::BF16) => {
            unreachable!("{kind} has no integer loop")
        }
    }
}

/// Multiplies blocks of `4 * WORDS` activations, each with `GROUPS` scales per row of weights.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
fn multiply<const WORDS: usize, const SUMS: usize, const GROUPS: usize, const MINIMUMS: bool>(
    out: &mut Columns,
    w: Matrix,
    tokens: &[&[Block<WORDS, SUMS>]],
    sink: impl TileSink,
) {
    let (rows, cols) = (out.columns(), w.cols());
    let mut panel = Panel::default();
    let mut sums = vec![[[0.0; 16]; 2]; tokens.len()];
    // Tiles as even as possible, since a tile of few tokens loads as many weights as one of many.
    let tiles = tokens.len().div_ceil(TILE_TOKENS);
    // Each panel begins at the reading at which the previous one ended.
    let mut begun = sink.now();
    for first in rows.clone().step_by(PANEL_ROWS) {
        let last = rows.end.min(first + PANEL_ROWS);
        for at in (0..cols).step_by(DEPTH) {
            let depth = at..cols.min(at + DEPTH);
            panel.fill(&w, first..last, depth.clone());
            let filled = sink.now();
            let (next, next_depth) = match depth.end < cols {
                true => (first..last, depth.end..cols.min(depth.end + DEPTH)),
                false => (last..rows.end.min(last + PANEL_ROWS), 0..cols.min(DEPTH)),
            };
            let blocks = at / (4 * WORDS)..depth.end / (4 * WORDS);
            for tile in 0..tiles {
                let share = |n: usize| next.start + next.len() * n / tiles;
                prefetch_rows(&w, share(tile)..share(tile + 1), next_depth.clone());

                let few = tokens.len() * tile / tiles..tokens.len() * (tile + 1) / tiles;
                let sums = &mut sums[few.clone()];
                if at == 0 {
                    sums.fill([[0.0; 16]; 2]);
                }
                let (few, token) = (&tokens[few.clone()], few.start);
                add_tile::<WORDS, SUMS, GROUPS, MINIMUMS>(&panel, few, blocks.clone(), sums);
                if depth.end == cols {
                    // Each of these lines is far from the previous one. Written now, they can reach memory during the
                    // next tile.
                    for (i, sums) in sums.iter().enumerate() {
                        out.set_run(token + i, first, &sums.as_flattened()[..last - first]);
                    }
                }
            }
            let done = sink.now();
            let work = |level, n| tiles::work(level, n, last - first, depth.len(), tokens.len());
            sink.tile(|| work(TileLevel::Micro, tiles), filled, done);
            sink.tile(|| work(TileLevel::Midi, 1), begun, done);
            begun = done;
        }
    }
}

/// Adds to `sums` the products of a panel with some blocks of at most [`TILE_TOKENS`] tokens.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn add_tile<const WORDS: usize, const SUMS: usize, const GROUPS: usize, const MINIMUMS: bool>(
    panel: &Panel,
    tokens: &[&[Block<WORDS, SUMS>]],
    blocks: Range<usize>,
    sums: &mut [[[f32; 16]; 2]],
) {
    macro_rules! tile_of {
        ($($n:literal),*) => {
            match tokens.len() {
                $($n => {
                    let mut few: [&[Block<WORDS, SUMS>]; $n] = [&[]; $n];
                    for (few, token) in few.iter_mut().zip(tokens) {
                        *few = &token[blocks.clone()];
                    }
                    let sums = sums.first_chunk_mut().expect("as many as tokens");
                    tile::tile::<WORDS, SUMS, GROUPS, MINIMUMS, $n>(panel, few, sums);
                })*
                n => unreachable!("a tile of {n} tokens"),
            }
        };
    }
    const { assert!(TILE_TOKENS == 6) }
    tile_of!(1, 2, 3, 4, 5, 6);
}
