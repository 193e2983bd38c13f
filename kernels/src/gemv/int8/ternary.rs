//! Rows of the ternary formats. `quant/ternary.rs` describes the layouts.
//!
//! Few bytes hold many weights here, so instructions are the bottleneck. Vectors are 64 bytes long (256 weights in TQ2_0
//! and I2_S), and the activations are rearranged once into the order in which the codes are unpacked. A code is the
//! weight plus one: the sum of the activations is subtracted from a lane's initial value.

use std::arch::x86_64::*;

use super::{by_fours, side_by_side};
use crate::activations::Activations;
use crate::lanes::wide::{
    f16x4, load_f32x16, load_i8x64, load_i32x16, load_u8, load_u8x64, sum_fourths, sum_neighbours,
    three_times,
};
use crate::lanes::{piece, prefetch_ahead_of_four};
use crate::quant::ternary::{I2_S_BYTES, I2_S_LEN, LEN, TQ1_0_BYTES, TQ2_0_BYTES};

/// The activations for 64 bytes of four codes each.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct PairBlock {
    /// For the lowest bit pairs of all bytes, then for the next.
    q: [[i8; 64]; 4],
    /// The initial values of the sums of sixteen lanes.
    begin: [i32; 16],
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv_tq2_0(out: &mut [f32], bytes: &[u8], x: &[(PairBlock, f32)]) {
    let row_bytes = x.len() * TQ2_0_BYTES;
    for at in by_fours(out.len()) {
        let rows = at.map(|i| &bytes[i * row_bytes..][..row_bytes]);
        let mut acc = _mm512_setzero_ps();
        for (blocks, (x, scale)) in side_by_side::<TQ2_0_BYTES>(rows).zip(x) {
            let (mut dots, mut d) = ([_mm512_setzero_si512(); 4], [[0; 2]; 4]);
            for r in 0..4 {
                prefetch_ahead_of_four(blocks[r]);
                dots[r] = products(piece(blocks[r], 0), x);
                d[r] = *piece(blocks[r], 64);
            }
            let scales = _mm_mul_ps(f16x4(d), _mm_set1_ps(*scale));
            let dots = _mm512_cvtepi32_ps(sum_neighbours(dots));
            acc = _mm512_fmadd_ps(_mm512_broadcast_f32x4(scales), dots, acc);
        }
        let sums = sum_fourths(acc);
        for r in 0..4 {
            out[at[r]] = sums[r];
        }
    }
}

/// For each block, with its scale.
pub(super) fn arrange_tq2_0(x: &Activations) -> Vec<(PairBlock, f32)> {
    let blocks = x.q.as_chunks::<LEN>().0.iter().zip(&x.scales);
    blocks.map(|(q, scale)| (block_tq2_0(q), *scale)).collect()
}

/// The first 32 bytes have the codes of the first half.
fn block_tq2_0(q: &[i8; LEN]) -> PairBlock {
    let mut x = PairBlock { q: [[0; 64]; 4], begin: [0; 16] };
    for (i, run) in q.as_chunks::<32>().0.iter().enumerate() {
        x.q[i % 4][32 * (i / 4)..][..32].copy_from_slice(run);
    }
    x.begin[0] = -sum_of(q);
    x
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv_i2_s(out: &mut [f32], bytes: &[u8], scale: f32, x: &ArrangedI2S) {
    let row_bytes = x.n_blocks * I2_S_BYTES;
    let (x_whole, x_rest) = x.pairs.split_at(row_bytes / 64);
    for at in by_fours(out.len()) {
        let rows = at.map(|i| &bytes[i * row_bytes..][..row_bytes]);
        let mut acc = _mm512_setzero_ps();
        for (pairs, (x, scales)) in side_by_side(rows).zip(x_whole) {
            let mut dots = [_mm512_setzero_si512(); 4];
            for r in 0..4 {
                prefetch_ahead_of_four(pairs[r]);
                dots[r] = products(pairs[r], x);
            }
            let dots = _mm512_cvtepi32_ps(sum_neighbours(dots));
            acc = _mm512_fmadd_ps(load_f32x16(scales), dots, acc);
        }
        for (x, scales) in x_rest {
            let mut dots = [_mm512_setzero_si512(); 4];
            for r in 0..4 {
                let mut pair = [0; 64];
                pair[..I2_S_BYTES].copy_from_slice(&rows[r][row_bytes - I2_S_BYTES..]);
                dots[r] = products(&pair, x);
            }
            let dots = _mm512_cvtepi32_ps(sum_neighbours(dots));
            acc = _mm512_fmadd_ps(load_f32x16(scales), dots, acc);
        }
        let sums = sum_fourths(acc);
        for r in 0..4 {
            out[at[r]] = scale * sums[r];
        }
    }
}

/// For two blocks each, with the scales of sixteen lanes. If there is no second block, its scale is zero.
#[derive(Debug)]
pub(super) struct ArrangedI2S {
    n_blocks: usize,
    pairs: Vec<(PairBlock, [f32; 16])>,
}

pub(super) fn arrange_i2_s(x: &Activations) -> ArrangedI2S {
    let pairs = x.q.as_chunks::<I2_S_LEN>().0.chunks(2).zip(x.scales.chunks(2));
    let pairs = pairs.map(|(pair, pair_scales)| {
        let mut x = PairBlock { q: [[0; 64]; 4], begin: [0; 16] };
        let mut scales = [0.0; 16];
        for (i, (q, scale)) in pair.iter().zip(pair_scales).enumerate() {
            for (run, q) in q.as_chunks::<32>().0.iter().enumerate() {
                // In I2_S the highest bit pair comes first.
                x.q[3 - run][32 * i..][..32].copy_from_slice(q);
            }
            x.begin[8 * i] = -sum_of(q);
            scales[8 * i..][..8].fill(*scale);
        }
        (x, scales)
    });
    ArrangedI2S { n_blocks: x.scales.len(), pairs: pairs.collect() }
}

fn sum_of(q: &[i8]) -> i32 {
    q.iter().map(|&q| i32::from(q)).sum()
}

/// The products of 256 weights: sixteen sums of sixteen.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn products(codes: &[u8; 64], x: &PairBlock) -> __m512i {
    let codes = load_u8x64(codes);
    let pair = _mm512_set1_epi8(3);
    let mut dot = load_i32x16(&x.begin);
    dot = _mm512_dpbusd_epi32(dot, _mm512_and_si512(codes, pair), load_i8x64(&x.q[0]));
    let codes_1 = _mm512_and_si512(_mm512_srli_epi16::<2>(codes), pair);
    dot = _mm512_dpbusd_epi32(dot, codes_1, load_i8x64(&x.q[1]));
    let codes_2 = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), pair);
    dot = _mm512_dpbusd_epi32(dot, codes_2, load_i8x64(&x.q[2]));
    let codes_3 = _mm512_and_si512(_mm512_srli_epi16::<6>(codes), pair);
    _mm512_dpbusd_epi32(dot, codes_3, load_i8x64(&x.q[3]))
}

/// The activations for the 52 bytes of a block, as two loads of 32 bytes see them: the last twelve bytes of the first
/// load come again in the second, with activations of zero.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct DigitBlock {
    /// For the bytes whose digits come next, one array per digit. The last has zeros for the four bytes that have only
    /// four digits.
    q: [[i8; 64]; 5],
    /// The same, negated.
    negative: [[i8; 64]; 5],
    /// The initial values of the sums of sixteen lanes.
    begin: [i32; 16],
    scale: f32,
}

/// Three times a byte is 256 times its next digit plus the rest, the byte that holds the following digits. So no digit
/// is ever extracted: `256 * Σ digit·x` is `3 * Σ byte·x - Σ rest·x`.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv_tq1_0(out: &mut [f32], bytes: &[u8], x: &[DigitBlock]) {
    let row_bytes = x.len() * TQ1_0_BYTES;
    for at in by_fours(out.len()) {
        let rows = at.map(|i| &bytes[i * row_bytes..][..row_bytes]);
        let mut acc = _mm512_setzero_ps();
        for (blocks, x) in side_by_side::<TQ1_0_BYTES>(rows).zip(x) {
            let mut rest = [_mm512_setzero_si512(); 4];
            let mut whole = [_mm512_setzero_si512(); 4];
            let mut left = [load_i32x16(&x.begin); 4];
            let mut d = [[0; 2]; 4];
            for r in 0..4 {
                prefetch_ahead_of_four(blocks[r]);
                let (first, last) = (load_u8(piece(blocks[r], 0)), load_u8(piece(blocks[r], 20)));
                rest[r] = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), last);
                d[r] = *piece(blocks[r], 52);
            }
            for n in 0..5 {
                for r in 0..4 {
                    whole[r] = _mm512_dpbusd_epi32(whole[r], rest[r], load_i8x64(&x.q[n]));
                    rest[r] = three_times(rest[r]);
                    left[r] = _mm512_dpbusd_epi32(left[r], rest[r], load_i8x64(&x.negative[n]));
                }
            }
            let (whole, left) = (sum_neighbours(whole), sum_neighbours(left));
            let twice = _mm512_add_epi32(whole, whole);
            let dots = _mm512_add_epi32(_mm512_add_epi32(whole, left), twice);
            let scales = _mm_mul_ps(f16x4(d), _mm_set1_ps(x.scale));
            let scales = _mm512_broadcast_f32x4(scales);
            acc = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(dots), acc);
        }
        let sums = sum_fourths(acc);
        for r in 0..4 {
            out[at[r]] = sums[r];
        }
    }
}

pub(super) fn arrange_tq1_0(x: &Activations) -> Vec<DigitBlock> {
    let blocks = x.q.as_chunks::<LEN>().0.iter().zip(&x.scales);
    blocks.map(|(q, scale)| block_tq1_0(q, *scale)).collect()
}

fn block_tq1_0(q: &[i8; LEN], scale: f32) -> DigitBlock {
    let mut x = DigitBlock {
        q: [[0; 64]; 5],
        negative: [[0; 64]; 5],
        begin: [0; 16],
        scale: scale / 256.0,
    };
    for (n, to) in x.q.iter_mut().enumerate() {
        to[..32].copy_from_slice(&q[32 * n..][..32]);
        to[44..60].copy_from_slice(&q[160 + 16 * n..][..16]);
        if n < 4 {
            to[60..].copy_from_slice(&q[240 + 4 * n..][..4]);
        }
    }
    for (to, from) in x.negative.as_flattened_mut().iter_mut().zip(x.q.as_flattened()) {
        *to = -from;
    }
    x.begin[0] = -256 * sum_of(q);
    x
}
