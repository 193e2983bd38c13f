//! Interleaved rows of Q4_0, Q8_0, Q4_K, Q5_K, Q6_K and TQ2_0. `interleave.rs` describes the layout, and the files in
//! `quant/` the blocks.
//!
//! Each lane is a row: four codes of each row are multiplied with the same four activations, which `vpdpbusd` loads and
//! broadcasts by itself. The products under one scale are summed as integers, then multiplied with the scales of sixteen
//! rows at once. That takes half as many instructions per row as loops in which a vector holds the codes of one row, so
//! these loops wait for memory, not for arithmetic.
#![allow(
    clippy::needless_range_loop,
    reason = "by number loops are unrolled, and sums stay in registers"
)]

use std::arch::x86_64::*;

use crate::QuantType;
use crate::activations::avx512::round_vectors;
use crate::gemv::groups::{in_order, of_groups};
use crate::interleave::{
    GROUP_ROWS, Line, Q4_0_WORDS, Q4_K_WORDS, Q5_K_WORDS, Q6_K_CODES, Q6_K_WORDS, Q8_0_WORDS,
    TQ2_0_WORDS, halves_of, lines_of,
};
use crate::lanes::wide::{load_f16_bytes, load_u8x64, store_i8x16_in_words};
use crate::quant::q4_k::{HEAD, LEN};
use crate::quant::{q4_0, q8_0, ternary};

/// The activations of one block of Q4_K or Q5_K.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct BlockWithMinimums {
    /// By fours, in the order of the columns.
    q: [i32; LEN / 4],
    /// The sums of sub-blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7, 16 bits each.
    sums: [i32; 4],
    scale: f32,
}

/// The activations of one block of Q6_K.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct BlockOfSixteens {
    /// By fours, in the order of the columns.
    q: [i32; LEN / 4],
    /// The initial value of each sum of sixteen: it cancels the 32 added to each code.
    begin: [i32; 16],
    scale: f32,
}

/// The activations of one block with one scale.
#[derive(Debug)]
pub(super) struct Block<const FOURS: usize> {
    /// By fours, in the order of the columns.
    q: [i32; FOURS],
    /// The initial value of the sum: it cancels the offset added to each code.
    begin: i32,
    scale: f32,
}

/// For Q4_0 and Q8_0.
pub(super) type Block32 = Block<8>;
/// For TQ2_0.
pub(super) type Block256 = Block<64>;
const _: () = assert!(q4_0::LEN == 32 && q8_0::LEN == 32 && ternary::LEN == 256);

/// Rounds a block of `16 * V` and stores it by fours. Also returns it in registers, and its scale.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn round_to<const V: usize>(q: &mut [i32], x: &[[f32; 16]; V]) -> ([__m512i; V], f32) {
    let (rounded, scale) = round_vectors(x);
    for (q, rounded) in q.as_chunks_mut().0.iter_mut().zip(rounded) {
        store_i8x16_in_words(q, rounded);
    }
    (rounded, scale)
}

/// Splits `x` into blocks of `16 * V`.
fn blocks<const V: usize>(x: &[f32]) -> &[[[f32; 16]; V]] {
    x.as_chunks().0.as_chunks().0
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn with_minimums(x: &[f32]) -> Vec<BlockWithMinimums> {
    let blocks = blocks::<{ LEN / 16 }>(x).iter().map(|x| {
        let mut block = BlockWithMinimums { q: [0; LEN / 4], sums: [0; 4], scale: 0.0 };
        let (rounded, scale) = round_to(&mut block.q, x);
        block.scale = scale;
        let mut sums = [0; 8];
        for (sum, two) in sums.iter_mut().zip(rounded.as_chunks::<2>().0) {
            *sum = _mm512_reduce_add_epi32(_mm512_add_epi32(two[0], two[1]));
        }
        // At most 32 · 127 each.
        let two = |s: usize| sums[s] & 0xffff | sums[s + 2] << 16;
        block.sums = [two(0), two(1), two(4), two(5)];
        block
    });
    blocks.collect()
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn of_sixteens(x: &[f32]) -> Vec<BlockOfSixteens> {
    let blocks = blocks::<{ LEN / 16 }>(x).iter().map(|x| {
        let mut block = BlockOfSixteens { q: [0; LEN / 4], begin: [0; 16], scale: 0.0 };
        let (rounded, scale) = round_to(&mut block.q, x);
        block.scale = scale;
        for (begin, sixteen) in block.begin.iter_mut().zip(rounded) {
            *begin = -32 * _mm512_reduce_add_epi32(sixteen);
        }
        block
    });
    blocks.collect()
}

/// The activations for codes with `offset` added. Blocks have `V` vectors, which are four times as many fours.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn in_blocks<const V: usize, const FOURS: usize>(
    x: &[f32],
    offset: i32,
) -> Vec<Block<FOURS>> {
    const { assert!(FOURS == 4 * V) };
    let blocks = blocks::<V>(x).iter().map(|x| {
        let mut block = Block { q: [0; FOURS], begin: 0, scale: 0.0 };
        let (rounded, scale) = round_to(&mut block.q, x);
        block.scale = scale;
        let mut sum = _mm512_setzero_si512();
        for rounded in rounded {
            sum = _mm512_add_epi32(sum, rounded);
        }
        block.begin = -offset * _mm512_reduce_add_epi32(sum);
        block
    });
    blocks.collect()
}

of_groups!(pub(super) gemv_q4_k, BlockWithMinimums, group_with_minimums::<Q4_K_WORDS, false>);
of_groups!(pub(super) gemv_q5_k, BlockWithMinimums, group_with_minimums::<Q5_K_WORDS, true>);
of_groups!(pub(super) gemv_q6_k, BlockOfSixteens, group_of_q6_k);
of_groups!(pub(super) gemv_q4_0, Block32, group_of_q4_0);
of_groups!(pub(super) gemv_q8_0, Block32, group_of_q8_0);
of_groups!(pub(super) gemv_tq2_0, Block256, group_of_tq2_0);

/// Sixteen rows of a type with lone half floats, whose blocks `$total` sums as integers. Blocks are taken in twos: two
/// blocks are a group of their own, and their half floats share a line.
macro_rules! group {
    ($name:ident, $kind:expr, $words:expr, $x:ty, $total:ident) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline]
        fn $name(group: &[u8], x: &[$x]) -> __m512 {
            let halves = |few, b| load_f16_bytes(halves_of($kind, few, b));
            let total = |few, b, x| {
                let lines: &[Line; $words] =
                    lines_of($kind, few, b).first_chunk().expect("a line for each word");
                _mm512_cvtepi32_ps($total(lines, x))
            };
            let mut acc = _mm512_setzero_ps();
            let (of_twos, of_last) = x.as_chunks::<2>();
            let twos = group.chunks_exact(2 * GROUP_ROWS * $kind.block_bytes());
            let last = twos.remainder();
            for (two, x) in twos.zip(of_twos) {
                in_order();
                let d = [halves(two, 0), halves(two, 1)];
                for b in 0..2 {
                    in_order();
                    let total = total(two, b, &x[b]);
                    acc = _mm512_fmadd_ps(
                        total,
                        _mm512_mul_ps(d[b], _mm512_set1_ps(x[b].scale)),
                        acc,
                    );
                }
            }
            if let [x] = of_last {
                in_order();
                let total = total(last, 0, x);
                in_order();
                let d = halves(last, 0);
                acc = _mm512_fmadd_ps(total, _mm512_mul_ps(d, _mm512_set1_ps(x.scale)), acc);
            }
            acc
        }
    };
}

group!(group_of_q6_k, QuantType::Q6_K, Q6_K_WORDS, BlockOfSixteens, total_of_q6_k);
group!(group_of_q4_0, QuantType::Q4_0, Q4_0_WORDS, Block32, total_of_q4_0);
group!(group_of_q8_0, QuantType::Q8_0, Q8_0_WORDS, Block32, total_of_q8_0);
group!(group_of_tq2_0, QuantType::TQ2_0, TQ2_0_WORDS, Block256, total_of_tq2_0);

/// Sixteen rows of Q4_K or, with fifth bits, of Q5_K.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn group_with_minimums<const WORDS: usize, const FIFTH: bool>(
    group: &[u8],
    x: &[BlockWithMinimums],
) -> __m512 {
    let lines: &[Line] = group.as_chunks().0;
    let (mut acc, mut mins_acc) = (_mm512_setzero_ps(), _mm512_setzero_ps());
    for (block, x) in lines.as_chunks::<WORDS>().0.iter().zip(x) {
        let head = block.first_chunk().expect("a block begins with its head");
        let [scales, mins] = scales_and_minimums(head);
        let [d, dmin] = factors(&head[0]);
        let scale = _mm512_set1_ps(x.scale);

        let mut total = _mm512_setzero_si512();
        for (mins, sums) in mins.into_iter().zip(x.sums.as_chunks::<2>().0) {
            let even = _mm512_and_si512(mins, _mm512_set1_epi32(0x00ff_00ff));
            let odd = _mm512_srli_epi16::<8>(mins);
            total = _mm512_dpwssd_epi32(total, even, _mm512_set1_epi32(sums[0]));
            total = _mm512_dpwssd_epi32(total, odd, _mm512_set1_epi32(sums[1]));
        }
        let dmin = _mm512_mul_ps(dmin, scale);
        mins_acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), dmin, mins_acc);

        let dots = if FIFTH { dots_of_q5_k(block, &x.q) } else { dots_of_q4_k(block, &x.q) };
        let mut total = _mm512_setzero_si512();
        for c in 0..4 {
            for i in 0..2 {
                let scale = byte(scales[c / 2], c % 2 * 2 + i);
                total = _mm512_add_epi32(total, _mm512_mullo_epi32(dots[c][i], scale));
            }
        }
        acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_mul_ps(d, scale), acc);
    }
    _mm512_sub_ps(acc, mins_acc)
}

/// The sums of products of Q4_K's eight sub-blocks.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn dots_of_q4_k(block: &[Line], x: &[i32; LEN / 4]) -> [[__m512i; 2]; 4] {
    let codes: &[Line; 32] = block[HEAD / 4..].first_chunk().expect("codes follow the head");
    let (low_4, high_4) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0xf0_u8.cast_signed()));
    let mut dots = [[_mm512_setzero_si512(); 2]; 4];
    for c in 0..4 {
        in_order();
        let [mut low, mut high] = dots[c];
        for k in 0..8 {
            let codes = load_u8x64(&codes[8 * c + k]);
            let (x_low, x_high) = (x[16 * c + k], x[16 * c + 8 + k]);
            let (a, b) = (_mm512_and_si512(codes, low_4), _mm512_and_si512(codes, high_4));
            low = _mm512_dpbusd_epi32(low, a, _mm512_set1_epi32(x_low));
            high = _mm512_dpbusd_epi32(high, b, _mm512_set1_epi32(x_high));
        }
        // Codes in the upper halves of bytes count sixteenfold, and so does their sum.
        dots[c] = [low, _mm512_srai_epi32::<4>(high)];
    }
    dots
}

/// The sums of products of Q5_K's eight sub-blocks.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn dots_of_q5_k(block: &[Line], x: &[i32; LEN / 4]) -> [[__m512i; 2]; 4] {
    let steps: &[[Line; 5]; 8] = block[HEAD / 4..].as_chunks().0.first_chunk().expect("all codes");
    let (low_4, fifth) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x10));
    let mut dots = [[_mm512_setzero_si512(); 2]; 4];
    for (k, [bits, codes @ ..]) in steps.iter().enumerate() {
        in_order();
        let bits = load_u8x64(bits);
        for c in 0..4 {
            let codes = load_u8x64(&codes[c]);
            let bit = [to_fifth(bits, 2 * c), to_fifth(bits, 2 * c + 1)];
            let codes = [codes, _mm512_srli_epi32::<4>(codes)];
            for i in 0..2 {
                // a | b & c
                let code = _mm512_ternarylogic_epi32::<0xf8>(
                    _mm512_and_si512(bit[i], fifth),
                    codes[i],
                    low_4,
                );
                let x = _mm512_set1_epi32(x[16 * c + 8 * i + k]);
                dots[c][i] = _mm512_dpbusd_epi32(dots[c][i], code, x);
            }
        }
    }
    dots
}

/// Moves bit `s` of each byte to bit 4; the other bits of the result are undefined.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn to_fifth(bits: __m512i, s: usize) -> __m512i {
    match s {
        0 => _mm512_slli_epi32::<4>(bits),
        1 => _mm512_slli_epi32::<3>(bits),
        2 => _mm512_slli_epi32::<2>(bits),
        3 => _mm512_slli_epi32::<1>(bits),
        4 => bits,
        5 => _mm512_srli_epi32::<1>(bits),
        6 => _mm512_srli_epi32::<2>(bits),
        _ => _mm512_srli_epi32::<3>(bits),
    }
}

/// Byte `i` of each word, zero-extended.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn byte(words: __m512i, i: usize) -> __m512i {
    let low = _mm512_set1_epi32(0xff);
    match i {
        0 => _mm512_and_si512(words, low),
        1 => _mm512_and_si512(_mm512_srli_epi32::<8>(words), low),
        2 => _mm512_and_si512(_mm512_srli_epi32::<16>(words), low),
        _ => _mm512_srli_epi32::<24>(words),
    }
}

/// Byte `i` of each word, sign-extended.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn signed_byte(words: __m512i, i: usize) -> __m512i {
    _mm512_srai_epi32::<24>(match i {
        0 => _mm512_slli_epi32::<24>(words),
        1 => _mm512_slli_epi32::<16>(words),
        2 => _mm512_slli_epi32::<8>(words),
        _ => words,
    })
}

/// The eight scales and the eight minimums of a block of Q4_K or Q5_K of each row, four to a word.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn scales_and_minimums(head: &[Line; HEAD / 4]) -> [[__m512i; 2]; 2] {
    let six = _mm512_set1_epi32(0x3f3f_3f3f);
    let four = _mm512_set1_epi32(0x0f0f_0f0f);
    let upper_two = _mm512_set1_epi32(0x3030_3030);
    let [scales, mins, rest] = [1, 2, 3].map(|i| load_u8x64(&head[i]));
    // a | b & c
    let with_upper = |low, words| {
        _mm512_ternarylogic_epi32::<0xf8>(low, _mm512_srli_epi32::<2>(words), upper_two)
    };
    let high_scales = with_upper(_mm512_and_si512(rest, four), scales);
    let high_mins = with_upper(_mm512_and_si512(_mm512_srli_epi32::<4>(rest), four), mins);
    [[_mm512_and_si512(scales, six), high_scales], [_mm512_and_si512(mins, six), high_mins]]
}

/// The two half floats in a word of each row: `d` and `dmin` of Q4_K and Q5_K.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn factors(line: &Line) -> [__m512; 2] {
    let words = load_u8x64(line);
    [words, _mm512_srli_epi32::<16>(words)]
        .map(|words| _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)))
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_q4_0(block: &[Line; Q4_0_WORDS], x: &Block32) -> __m512i {
    let (low_4, high_4) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0xf0_u8.cast_signed()));
    let (mut low, mut high) = (_mm512_set1_epi32(x.begin), _mm512_setzero_si512());
    for k in 0..Q4_0_WORDS {
        let codes = load_u8x64(&block[k]);
        let (a, b) = (_mm512_and_si512(codes, low_4), _mm512_and_si512(codes, high_4));
        low = _mm512_dpbusd_epi32(low, a, _mm512_set1_epi32(x.q[k]));
        high = _mm512_dpbusd_epi32(high, b, _mm512_set1_epi32(x.q[Q4_0_WORDS + k]));
    }
    // Codes in the upper halves of bytes count sixteenfold, and so does their sum.
    _mm512_add_epi32(low, _mm512_srai_epi32::<4>(high))
}

/// Codes are signed, so 128 is added to each.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_q8_0(block: &[Line; Q8_0_WORDS], x: &Block32) -> __m512i {
    let mut total = _mm512_set1_epi32(x.begin);
    for k in 0..Q8_0_WORDS {
        let codes = _mm512_xor_si512(load_u8x64(&block[k]), _mm512_set1_epi8(-128));
        total = _mm512_dpbusd_epi32(total, codes, _mm512_set1_epi32(x.q[k]));
    }
    total
}

/// The bit pairs stay where they are in a byte, where they count 4, 16 and 64 times.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_tq2_0(block: &[Line; TQ2_0_WORDS], x: &Block256) -> __m512i {
    let pairs = [0b11, 0b1100, 0b11_0000, 0b1100_0000_u8].map(|pair| pair.cast_signed());
    let mut dots = [_mm512_setzero_si512(); 4];
    dots[0] = _mm512_set1_epi32(x.begin);
    for k in 0..TQ2_0_WORDS {
        let codes = load_u8x64(&block[k]);
        for l in 0..4 {
            let codes = _mm512_and_si512(codes, _mm512_set1_epi8(pairs[l]));
            // Each half of the block has four runs of eight words.
            let x = _mm512_set1_epi32(x.q[32 * (k / 8) + 8 * l + k % 8]);
            dots[l] = _mm512_dpbusd_epi32(dots[l], codes, x);
        }
    }
    let [a, b, c, d] = dots;
    let ab = _mm512_add_epi32(a, _mm512_srai_epi32::<2>(b));
    let cd = _mm512_add_epi32(_mm512_srai_epi32::<4>(c), _mm512_srai_epi32::<6>(d));
    _mm512_add_epi32(ab, cd)
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_q6_k(block: &[Line; Q6_K_WORDS], x: &BlockOfSixteens) -> __m512i {
    let (low_4, bits_45) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
    let mut total = _mm512_setzero_si512();
    for h in 0..2 {
        for s in 0..2 {
            in_order();
            let mut dots = [_mm512_setzero_si512(); 4];
            for i in 0..4 {
                dots[i] = _mm512_set1_epi32(x.begin[8 * h + 2 * i + s]);
            }
            for k in 0..4 {
                let at = Q6_K_CODES + 3 * (8 * h + 4 * s + k);
                let [a, b, high] = [0, 1, 2].map(|i| load_u8x64(&block[at + i]));
                let low = [a, b, _mm512_srli_epi32::<4>(a), _mm512_srli_epi32::<4>(b)];
                let high = [
                    _mm512_slli_epi32::<4>(high),
                    _mm512_slli_epi32::<2>(high),
                    high,
                    _mm512_srli_epi32::<2>(high),
                ];
                for i in 0..4 {
                    let high = _mm512_and_si512(high[i], bits_45);
                    // a | b & c
                    let codes = _mm512_ternarylogic_epi32::<0xf8>(high, low[i], low_4);
                    let x = _mm512_set1_epi32(x.q[32 * h + 8 * i + 4 * s + k]);
                    dots[i] = _mm512_dpbusd_epi32(dots[i], codes, x);
                }
            }
            for i in 0..4 {
                let of = 8 * h + 2 * i + s;
                let scale = signed_byte(load_u8x64(&block[of / 4]), of % 4);
                total = _mm512_add_epi32(total, _mm512_mullo_epi32(dots[i], scale));
            }
        }
    }
    total
}
