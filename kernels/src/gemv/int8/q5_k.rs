//! Q5_K rows. The layout is drawn in `quant/q5_k.rs`.
//!
//! As Q4_K, but with an instruction more for each few codes, so that loads of activations are shared by four
//! rows. A lane's sum of four products is 4 · 31 · 127 at most, which still fits into 16 bits.

use std::arch::x86_64::*;

use super::q4_k::{Ordered, in_order_of_codes};
use super::{by_fours, side_by_side};
use crate::activations::Activations;
use crate::lanes::wide::{
    load_i8x16, load_i8x64, load_i16x8, load_u8, load_u8x64, sum_fourths, sum_neighbours,
    sum_neighbours4,
};
use crate::lanes::{piece, prefetch_ahead_of_four, store4};
use crate::quant::q4_k::HEAD;
use crate::quant::q5_k::{BYTES, LEN, QH, QS};

/// What a block is multiplied with.
struct OfBlock {
    q: Ordered,
    /// The sum of each sub-block: at most 32 · 127.
    sums: [i16; 8],
    scale: f32,
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &Activations) {
    let blocks = x.q.as_chunks::<LEN>().0.iter().zip(x.sums.as_chunks::<8>().0).zip(&x.scales);
    let blocks = blocks.map(|((q, sums), scale)| OfBlock {
        q: in_order_of_codes(q),
        sums: sums.map(|sum| sum as i16),
        scale: *scale,
    });
    let x: Vec<OfBlock> = blocks.collect();
    let row_bytes = x.len() * BYTES;
    let spread = [scales_of_fours(0), scales_of_fours(1)];
    for at in by_fours(out.len()) {
        let rows = at.map(|i| &bytes[i * row_bytes..][..row_bytes]);
        let (mut acc, mut mins_acc) = (_mm512_setzero_ps(), _mm_setzero_ps());
        for (blocks, x) in side_by_side::<BYTES>(rows).zip(&x) {
            let mut totals = [_mm512_setzero_si512(); 4];
            let (mut mins, mut heads) = ([_mm_setzero_si128(); 4], [0; 4]);
            for r in 0..4 {
                for line in [0, 64, 128] {
                    prefetch_ahead_of_four(&blocks[r][line..]);
                }
                heads[r] = i32::from_le_bytes(*piece(blocks[r], 0));
                let scales = scales_and_mins(piece(blocks[r], 0));
                mins[r] =
                    _mm_madd_epi16(_mm256_extracti128_si256::<1>(scales), load_i16x8(&x.sums));
                totals[r] = products(blocks[r], &x.q, _mm512_castsi256_si512(scales), &spread);
            }
            let [d, dmin] = floats_of_heads(heads);
            let x_scale = _mm_set1_ps(x.scale);
            let d = _mm512_broadcast_f32x4(_mm_mul_ps(d, x_scale));
            acc = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum_neighbours(totals)), acc);
            let mins = _mm_cvtepi32_ps(sum_neighbours4(mins));
            mins_acc = _mm_fmadd_ps(_mm_mul_ps(dmin, x_scale), mins, mins_acc);
        }
        let (sums, mut mins) = (sum_fourths(acc), [0.0; 4]);
        store4(&mut mins, mins_acc);
        for r in 0..4 {
            out[at[r]] = sums[r] - mins[r];
        }
    }
}

/// The products of a block, times the scales of their sub-blocks, in sixteen sums.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn products(block: &[u8; BYTES], x: &Ordered, scales: __m512i, spread: &[__m512i; 2]) -> __m512i {
    let zero = _mm512_setzero_si512();
    let nibble = _mm512_set1_epi8(15);
    let bits = _mm512_broadcast_i64x4(load_u8(piece(block, QH)));
    let mut total = zero;
    for (half, spread) in spread.iter().enumerate() {
        let codes = load_u8x64(piece(block, QS + 64 * half));
        let low = _mm512_and_si512(codes, nibble);
        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), nibble);
        let [low, high] = with_fifth_bits([low, high], bits, 4 * half);
        let low = _mm512_dpbusd_epi32(zero, low, load_i8x64(&x.0[2 * half]));
        let high = _mm512_dpbusd_epi32(zero, high, load_i8x64(&x.0[2 * half + 1]));
        let both = _mm512_packs_epi32(low, high);
        let scales = _mm512_permutexvar_epi16(*spread, scales);
        total = _mm512_dpwssd_epi32(total, both, scales);
    }
    total
}

/// Adds 16 where a bit is set: for the lower halves that of sub-blocks `first` and `first + 2`, for the upper
/// those after them.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn with_fifth_bits([low, high]: [__m512i; 2], bits: __m512i, first: usize) -> [__m512i; 2] {
    // Where the bit of the sub-block comes to be the fifth of its byte.
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

/// The eight scales and the eight minimums of a block's head, as words.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_and_mins(head: &[u8; HEAD]) -> __m256i {
    let head = load_i8x16(head);
    // The four bytes that have the low bits of scales 0-3, scales 4-7, minimums 0-3, minimums 4-7.
    let low = _mm_shuffle_epi32::<0b11_10_11_01>(head);
    let low = _mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4));
    let six = 0x3f3f_3f3f;
    let low = _mm_and_si128(low, _mm_setr_epi32(six, 0x0f0f_0f0f, six, 0x0f0f_0f0f));
    // The upper two bits of scales 4-7 and of minimums 4-7.
    let high = _mm_srli_epi32::<2>(_mm_shuffle_epi32::<0b10_10_01_01>(head));
    let high_bits = _mm_setr_epi32(0, 0x3030_3030, 0, 0x3030_3030);
    // a | b & c
    _mm256_cvtepu8_epi16(_mm_ternarylogic_epi32::<0xf8>(low, high, high_bits))
}

/// Which of eight scales go where, so that `_mm512_packs_epi32` of the sums of sub-blocks `s`, `s + 2` and of
/// `s + 1`, `s + 3` meets the scale of each: in the lower half four of `s`, then four of the next, twice.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_of_fours(half: i64) -> __m512i {
    let four = |s: i64| (4 * half + s) * 0x0001_0001_0001_0001;
    _mm512_setr_epi64(four(0), four(1), four(0), four(1), four(2), four(3), four(2), four(3))
}

/// `d` and `dmin` of four blocks.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn floats_of_heads([a, b, c, d]: [i32; 4]) -> [__m128; 2] {
    let apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let floats = _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_setr_epi32(a, b, c, d), apart));
    [_mm256_castps256_ps128(floats), _mm256_extractf128_ps::<1>(floats)]
}
