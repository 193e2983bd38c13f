//! Rows of Q4_0, Q4_1, Q5_0 and Q5_1, four blocks at a time. The layouts are drawn in `quant/`, in the files
//! of these names.
//!
//! A block contributes `d * Σ q·x + offset * Σ x`, where the offset is a multiple of `d` or the block's
//! minimum. All parts of a block have an even place in it, so `vpermt2w` gathers those of four blocks from
//! two loads: the first 64 bytes and the last.

use std::arch::x86_64::*;

use super::{by_fours, side_by_side};
use crate::activations::Activations;
use crate::lanes::wide::{load_i8x64, load_i16x32, load_u8x64, sum16};
use crate::lanes::{load4, piece, prefetch_ahead};

/// What four blocks are multiplied with.
#[repr(align(64))]
struct OfFour {
    /// With the lower halves of 16 bytes of each block.
    low: [i8; 64],
    /// With the upper halves.
    high: [i8; 64],
    scales: [f32; 4],
    /// The sum of each block's activations, times as much as its factor is added.
    sums: [f32; 4],
}

/// Activations in the order of the codes, followed by zeros up to whole fours.
fn in_fours(x: &Activations, times: f32) -> Vec<OfFour> {
    let blocks = x.q.as_chunks::<32>().0.chunks(4).zip(x.scales.chunks(4).zip(x.sums.chunks(4)));
    let fours = blocks.map(|(blocks, (scales, sums))| {
        let mut four = OfFour { low: [0; 64], high: [0; 64], scales: [0.0; 4], sums: [0.0; 4] };
        for (i, q) in blocks.iter().enumerate() {
            four.low[16 * i..][..16].copy_from_slice(&q[..16]);
            four.high[16 * i..][..16].copy_from_slice(&q[16..]);
            four.scales[i] = scales[i];
            four.sums[i] = times * sums[i] as f32 * scales[i];
        }
        four
    });
    fours.collect()
}

/// A word for each lane of 16 bits: that which is `at` bytes from the start of block `b`, as `vpermt2w`
/// counts the words of the first 64 and the last 64 of `4 * bytes`.
const fn word(bytes: usize, b: usize, at: usize) -> i16 {
    let from = b * bytes + at;
    let word = if from + 2 <= 64 { from / 2 } else { 32 + (from + 64 - 4 * bytes) / 2 };
    word as i16
}

/// Eight words of each block, from `at` on, `step` lanes for each.
const fn eights(bytes: usize, at: usize, step: usize) -> [i16; 32] {
    let mut words = [0; 32];
    let mut i = 0;
    while i < 32 {
        words[i] = word(bytes, i / 8, at + i % 8 / step * 2);
        i += 1;
    }
    words
}

/// The word at `at` of each block.
const fn one_each(bytes: usize, at: usize) -> [i16; 32] {
    let mut words = [0; 32];
    let mut i = 0;
    while i < 32 {
        words[i] = word(bytes, i % 4, at);
        i += 1;
    }
    words
}

/// A macro, because the lengths of arrays can't be worked out of a parameter.
macro_rules! gemv {
    ($name:ident, $format:ident, $factor:literal times $times:literal, $fifth:expr) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &Activations) {
            use crate::quant::$format::{BYTES, QS};

            const FOUR: usize = 4 * BYTES;
            const CODES: [i16; 32] = eights(BYTES, QS, 1);
            const D: [i16; 32] = one_each(BYTES, 0);
            const FACTOR: [i16; 32] = one_each(BYTES, $factor);

            #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[inline]
            fn add(acc: &mut __m512, offsets: &mut __m128, four: &[u8; FOUR], x: &OfFour) {
                let words = [load_u8x64(piece(four, 0)), load_u8x64(piece(four, FOUR - 64))];
                let [low, high] = halves(pick(words, &CODES));
                let [low, high] = $fifth(words, [low, high]);
                let dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, load_i8x64(&x.low));
                let dot = _mm512_dpbusd_epi32(dot, high, load_i8x64(&x.high));
                let d = halves_to_floats(pick(words, &D));
                let factor = if $factor == 0 { d } else { halves_to_floats(pick(words, &FACTOR)) };
                let scales = everywhere_in_four(_mm_mul_ps(d, load4(&x.scales)));
                *acc = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(dot), *acc);
                *offsets = _mm_fmadd_ps(factor, load4(&x.sums), *offsets);
            }

            let row_bytes = x.scales.len() * BYTES;
            let x = in_fours(x, $times);
            let (x_whole, x_rest) = x.split_at(row_bytes / FOUR);
            for (out, rows) in by_fours(out, bytes, row_bytes) {
                let mut acc = [_mm512_setzero_ps(); 4];
                let mut offsets = [_mm_setzero_ps(); 4];
                for (fours, x) in side_by_side(rows).zip(x_whole) {
                    for r in 0..4 {
                        prefetch_ahead(fours[r]);
                        if FOUR > 80 {
                            prefetch_ahead(&fours[r][64..]);
                        }
                        add(&mut acc[r], &mut offsets[r], fours[r], x);
                    }
                }
                for x in x_rest {
                    for r in 0..4 {
                        let rest = row_bytes - row_bytes % FOUR;
                        let mut four = [0; FOUR];
                        four[..row_bytes % FOUR].copy_from_slice(&rows[r][rest..]);
                        add(&mut acc[r], &mut offsets[r], &four, x);
                    }
                }
                for (r, out) in out.iter_mut().enumerate() {
                    *out = sum16(_mm512_add_ps(acc[r], _mm512_zextps128_ps512(offsets[r])));
                }
            }
        }
    };
}

gemv!(gemv_q4_0, q4_0, 0 times -8.0, |_, codes| codes);
gemv!(gemv_q4_1, q4_1, 2 times 1.0, |_, codes| codes);
gemv!(gemv_q5_0, q5_0, 0 times -16.0, |words, codes| {
    const BITS: [i16; 32] = eights(BYTES, crate::quant::q5_0::QH, 4);
    with_fifth_bits(codes, pick(words, &BITS))
});
gemv!(gemv_q5_1, q5_1, 2 times 1.0, |words, codes| {
    const BITS: [i16; 32] = eights(BYTES, crate::quant::q5_1::QH, 4);
    with_fifth_bits(codes, pick(words, &BITS))
});

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn pick(words: [__m512i; 2], which: &[i16; 32]) -> __m512i {
    _mm512_permutex2var_epi16(words[0], load_i16x32(which), words[1])
}

/// The lower and the upper four bits of bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn halves(bytes: __m512i) -> [__m512i; 2] {
    let low = _mm512_set1_epi8(15);
    [_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low)]
}

/// Adds 16 where a bit is set. Of each block's 16 bytes of bits, the first word is of the lower halves and
/// the fifth of the upper.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn with_fifth_bits([low, high]: [__m512i; 2], bits: __m512i) -> [__m512i; 2] {
    let bytes = |at: i64| {
        // One with eight bits for each eight codes.
        let eight = 0x0101_0101_0101_0101;
        let which = _mm_set_epi64x(eight * (at + 1), eight * at);
        _mm512_shuffle_epi8(bits, _mm512_broadcast_i32x4(which))
    };
    let each = _mm512_set1_epi64(0x8040_2010_0804_0201_u64.cast_signed());
    let sixteen = _mm512_set1_epi8(16);
    [
        _mm512_mask_add_epi8(low, _mm512_test_epi8_mask(bytes(0), each), low, sixteen),
        _mm512_mask_add_epi8(high, _mm512_test_epi8_mask(bytes(8), each), high, sixteen),
    ]
}

/// The first four half floats.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn halves_to_floats(halves: __m512i) -> __m128 {
    _mm_cvtph_ps(_mm512_castsi512_si128(halves))
}

/// Each of four floats in the four lanes that a block has.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn everywhere_in_four(v: __m128) -> __m512 {
    let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(v))
}
