//! A few tokens with interleaved rows.
//!
//! Each lane is a row: each column of sixteen rows is loaded once, in memory order, and multiplied with one activation
//! per token. Nothing is decoded beforehand or reread from a cache, so a few tokens are as fast as one, until there are
//! more multiply-adds than loads.
//!
//! The sum of a row and a token is added up in the same order as in `strip.rs`, and has the same bits.

use std::arch::x86_64::*;

use super::tokens::{LANES, Tile};
use super::{DEPTH, ROWS};
use crate::columns::Columns;
use crate::gemv::groups::in_order;
use crate::interleave::GROUP_ROWS;
use crate::lanes::wide::{load_bf16_bytes, load_f16_bytes, load_f32_bytes, store_f32x16};
use crate::tiles::{self, TileLevel, TileSink};
use crate::{Matrix, QuantType};

/// The most tokens that this loop takes. Each has a register.
pub(super) const MOST: usize = LANES;

/// Computes the columns of `out` that belong to this thread, whole groups, for the tokens of a tile.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn multiply(out: &mut Columns, w: &Matrix, tile: &Tile, sink: impl TileSink) {
    // A missing token costs as much as a present one.
    match tile.n() {
        0..=2 => multiply_some::<2>(out, w, tile, sink),
        3..=4 => multiply_some::<4>(out, w, tile, sink),
        5..=6 => multiply_some::<6>(out, w, tile, sink),
        7..=8 => multiply_some::<8>(out, w, tile, sink),
        9..=12 => multiply_some::<12>(out, w, tile, sink),
        _ => multiply_some::<MOST>(out, w, tile, sink),
    }
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
fn multiply_some<const TOKENS: usize>(
    out: &mut Columns,
    w: &Matrix,
    tile: &Tile,
    sink: impl TileSink,
) {
    let (rows, n) = (out.columns(), tile.n());
    let columns = tile.columns(0..w.cols()).iter();
    // More compact than for many tokens, since they are reread for each group. Each thread repeats this for each
    // product; the measurements included it.
    let x = columns.map(|column| *column.0[0].first_chunk().expect("few tokens have a vector"));
    let x: Vec<[f32; TOKENS]> = x.collect();
    let mut midi_begun = sink.now();
    for first in rows.clone().step_by(ROWS) {
        let last = rows.end.min(first + ROWS);
        let mut begun = midi_begun;
        for top in (first..last).step_by(GROUP_ROWS) {
            let group = top / GROUP_ROWS;
            let bytes = w.groups_bytes(group..group + 1);
            let sums = match w.kind() {
                QuantType::F32 => group_of_f32(bytes, &x),
                QuantType::F16 => group_of_f16(bytes, &x),
                QuantType::BF16 => group_of_bf16(bytes, &x),
                kind => unreachable!("{kind} has an integer loop"),
            };
            for (token, sums) in sums.iter().enumerate().take(n) {
                out.set_run(token, top, sums);
            }
            let done = sink.now();
            let work = || tiles::work(TileLevel::Micro, 1, GROUP_ROWS, w.cols(), n);
            sink.tile(work, begun, done);
            begun = done;
        }
        let work = || tiles::work(TileLevel::Midi, 1, last - first, w.cols(), n);
        sink.tile(work, midi_begun, begun);
        midi_begun = begun;
    }
}

// Sixteen rows. The functions differ only in the conversion. A function passed in would not be inlined, because the
// function that passes it on lacks the target feature.
macro_rules! group {
    ($name:ident, $bytes:literal, $load:ident) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline]
        fn $name<const TOKENS: usize>(
            group: &[u8],
            x: &[[f32; TOKENS]],
        ) -> [[f32; GROUP_ROWS]; TOKENS] {
            let mut sums = [_mm512_setzero_ps(); TOKENS];
            let pieces = group.chunks($bytes * GROUP_ROWS * DEPTH);
            for (piece, x) in pieces.zip(x.chunks(DEPTH)) {
                let mut acc = [_mm512_setzero_ps(); TOKENS];
                for (column, x) in piece.as_chunks().0.iter().zip(x) {
                    in_order();
                    let weights = $load(column);
                    for t in 0..TOKENS {
                        acc[t] = _mm512_fmadd_ps(weights, _mm512_set1_ps(x[t]), acc[t]);
                    }
                }
                for t in 0..TOKENS {
                    sums[t] = _mm512_add_ps(sums[t], acc[t]);
                }
            }
            let mut out = [[0.0; GROUP_ROWS]; TOKENS];
            for t in 0..TOKENS {
                store_f32x16(&mut out[t], sums[t]);
            }
            out
        }
    };
}

group!(group_of_f32, 4, load_f32_bytes);
group!(group_of_f16, 2, load_f16_bytes);
group!(group_of_bf16, 2, load_bf16_bytes);
