//! Rows of Q4_K and Q5_K. `quant/q4_k.rs` and `quant/q5_k.rs` describe the layouts.
//!
//! A sub-block contributes `d * scale * Σ q·x - dmin * min * Σ x`, and within a block everything but `d` and `dmin` is an
//! integer. A lane's sum of four products is at most 4 · 31 · 127, which fits in 16 bits: so the sums of four sub-blocks
//! are packed into one vector, which is multiplied with all four scales at once. The heads of four rows' blocks are
//! unpacked together, since that is as much work as the codes of one block.

use std::arch::x86_64::*;

use super::{by_fours, side_by_side};
use crate::activations::Activations;
use crate::lanes::wide::{
    load_i8x16, load_i8x64, load_i16x8, load_u8, load_u8x64, store_f32x16, sum_fourths,
    sum_neighbours,
};
use crate::lanes::{piece, prefetch_ahead_of_four};
use crate::quant::q4_k::{HEAD, LEN};

/// The activations of one block.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Block {
    /// For sub-blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7: the order of the lower halves of 64 bytes of codes, their
    /// upper halves, and those of the other 64 bytes.
    q: [[i8; 64]; 4],
    /// The sum of each sub-block.
    sums: [i16; 8],
    scale: f32,
}

pub(super) fn arrange(x: &Activations) -> Vec<Block> {
    let blocks = x.q.as_chunks::<LEN>().0.iter().zip(x.sums.as_chunks::<8>().0).zip(&x.scales);
    let blocks = blocks.map(|((q, sums), scale)| {
        let mut x = Block { q: [[0; 64]; 4], sums: [0; 8], scale: *scale };
        for (s, q) in q.as_chunks::<32>().0.iter().enumerate() {
            x.q[s / 4 * 2 + s % 2][s / 2 % 2 * 32..][..32].copy_from_slice(q);
            // At most 32 · 127.
            x.sums[s] = sums[s] as i16;
        }
        x
    });
    blocks.collect()
}

/// A macro, because a function that is passed in isn't inlined where the target feature would have to come
/// from its caller.
macro_rules! gemv {
    ($name:ident, $bytes:expr, $codes_at:expr, $fifth:expr) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &[Block]) {
            const BYTES: usize = $bytes;
            const CODES: usize = $codes_at;

            let row_bytes = x.len() * BYTES;
            let spread = [0, 1, 2, 3].map(|row| [0, 1].map(|half| scales_of_fours(row, half)));
            let nibble = _mm512_set1_epi8(15);
            for at in by_fours(out.len()) {
                let rows = at.map(|i| &bytes[i * row_bytes..][..row_bytes]);
                let (mut acc, mut mins_acc) = (_mm512_setzero_ps(), _mm512_setzero_ps());
                for (blocks, x) in side_by_side::<BYTES>(rows).zip(x) {
                    for block in blocks {
                        for line in [0, 64, 128] {
                            prefetch_ahead_of_four(&block[line..]);
                        }
                    }
                    let heads = heads(blocks.map(|block| piece(block, 0)));
                    let [scales, mins] = scales_and_mins(heads);
                    let [d, dmin] = factors(heads, x.scale);
                    let sums = _mm512_broadcast_i32x4(load_i16x8(&x.sums));
                    let mins = _mm512_cvtepi32_ps(_mm512_madd_epi16(mins, sums));
                    mins_acc = _mm512_fmadd_ps(dmin, mins, mins_acc);

                    let mut totals = [_mm512_setzero_si512(); 4];
                    for (total, (block, spread)) in
                        totals.iter_mut().zip(blocks.iter().zip(&spread))
                    {
                        for (half, spread) in spread.iter().enumerate() {
                            let codes = load_u8x64(piece(*block, CODES + 64 * half));
                            let low = _mm512_and_si512(codes, nibble);
                            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), nibble);
                            let [low, high] = $fifth(*block, half, [low, high]);
                            let zero = _mm512_setzero_si512();
                            let low = _mm512_dpbusd_epi32(zero, low, load_i8x64(&x.q[2 * half]));
                            let high =
                                _mm512_dpbusd_epi32(zero, high, load_i8x64(&x.q[2 * half + 1]));
                            let both = _mm512_packs_epi32(low, high);
                            let scales = _mm512_permutexvar_epi16(*spread, scales);
                            *total = _mm512_dpwssd_epi32(*total, both, scales);
                        }
                    }
                    acc = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum_neighbours(totals)), acc);
                }
                let mut mins = [0.0; 16];
                store_f32x16(&mut mins, mins_acc);
                let mins = mins.as_chunks::<4>().0.iter().map(|four| four.iter().sum::<f32>());
                for ((i, sum), mins) in at.into_iter().zip(sum_fourths(acc)).zip(mins) {
                    out[i] = sum - mins;
                }
            }
        }
    };
}

gemv!(gemv_q4_k, crate::quant::q4_k::BYTES, HEAD, |_, _, codes| codes);
gemv!(gemv_q5_k, crate::quant::q5_k::BYTES, crate::quant::q5_k::QS, |block, half, codes| {
    with_fifth_bits(codes, piece(block, crate::quant::q5_k::QH), 4 * half)
});

/// Adds 16 to the codes whose bit is set: in the lower halves those of sub-blocks `first` and `first + 2`, in the upper
/// halves those of the following sub-blocks.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn with_fifth_bits([low, high]: [__m512i; 2], bits: &[u8; 32], first: usize) -> [__m512i; 2] {
    let bits = _mm512_broadcast_i64x4(load_u8(bits));
    // The shift that moves the sub-block's bit to bit 4 of its byte.
    let turn = |s: usize| {
        let [low, high] = [s, s + 2].map(|s| ((4 + 32 - s) % 32) as i32);
        _mm512_inserti64x4::<1>(_mm512_set1_epi32(low), _mm256_set1_epi32(high))
    };
    let fifth = _mm512_set1_epi8(16);
    // a | b & c
    [
        _mm512_ternarylogic_epi32::<0xf8>(low, _mm512_rolv_epi32(bits, turn(first)), fifth),
        _mm512_ternarylogic_epi32::<0xf8>(high, _mm512_rolv_epi32(bits, turn(first + 1)), fifth),
    ]
}

/// The 16-byte heads of four blocks.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn heads(of: [&[u8; HEAD]; 4]) -> __m512i {
    let [a, b, c, d] = of.map(|head| load_i8x16(head));
    let ab = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
    let cd = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(c), d);
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(ab), cd)
}

/// `scale` times `d` of each block, in the order of [`sum_neighbours`], and times `dmin`, each four times.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn factors(heads: __m512i, scale: f32) -> [__m512; 2] {
    // Of a block's 16-bit words, `d` is the first and `dmin` the second.
    let d = _mm512_set1_epi64(24 << 48 | 16 << 32 | 8 << 16);
    let four = |block: i64| (8 * block + 1) * 0x0001_0001_0001_0001;
    let dmin = _mm512_setr_epi64(four(0), four(1), four(2), four(3), 0, 0, 0, 0);
    let scale = _mm512_set1_ps(scale);
    [d, dmin].map(|words| {
        let halves = _mm512_castsi512_si256(_mm512_permutexvar_epi16(words, heads));
        _mm512_mul_ps(_mm512_cvtph_ps(halves), scale)
    })
}

/// The eight scales and the eight minimums of each of four blocks, as 16-bit words.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_and_mins(heads: __m512i) -> [__m512i; 2] {
    // The four bytes with the low bits of scales 0-3, scales 4-7, minimums 0-3, minimums 4-7.
    let low = _mm512_shuffle_epi32::<0b11_10_11_01>(heads);
    let in_each = |[a, b, c, d]: [i32; 4]| _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d));
    let low = _mm512_srlv_epi32(low, in_each([0, 0, 0, 4]));
    let six = 0x3f3f_3f3f;
    let low = _mm512_and_si512(low, in_each([six, 0x0f0f_0f0f, six, 0x0f0f_0f0f]));
    // The upper two bits of scales 4-7 and of minimums 4-7.
    let high = _mm512_srli_epi32::<2>(_mm512_shuffle_epi32::<0b10_10_01_01>(heads));
    let high_bits = in_each([0, 0x3030_3030, 0, 0x3030_3030]);
    // a | b & c
    let bytes = _mm512_ternarylogic_epi32::<0xf8>(low, high, high_bits);
    let zero = _mm512_setzero_si512();
    [_mm512_unpacklo_epi8(bytes, zero), _mm512_unpackhi_epi8(bytes, zero)]
}

/// The order of four blocks' scales that matches `_mm512_packs_epi32` of one block's sums of sub-blocks `s`, `s + 2` and
/// of `s + 1`, `s + 3`: in the lower half four of `s`, then four of the next, twice.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_of_fours(block: i64, half: i64) -> __m512i {
    let four = |s: i64| (8 * block + 4 * half + s) * 0x0001_0001_0001_0001;
    _mm512_setr_epi64(four(0), four(1), four(0), four(1), four(2), four(3), four(2), four(3))
}
