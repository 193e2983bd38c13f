//! Interleaved rows of Q4_0, Q8_0, Q4_K, Q5_K, Q6_K and TQ2_0. `interleave.rs` describes the layout, and the files in
//! `quant/` the blocks.
//!
//! Each lane is a row: four codes of each row are multiplied with the same four activations, which `vpdpbusd` loads and
//! broadcasts by itself. The products under one scale are summed as integers, then multiplied with the scales of sixteen
//! rows at once. That takes half as many instructions per row as loops in which a vector holds the codes of one row, so
//! these loops wait for memory, not for arithmetic.
//!
//! Codes aren't moved to the lowest bits of their bytes where that would take an instruction: then they and their sums
//! count four, eight or sixteen times, and one shift for all of a block's sums sets that right. A sum that fits in 16
//! bits is multiplied with its scale by `vpdpwssd`, which takes one operation; `vpmulld` takes two, and an addition.
//! `TO` says where loops prefetch to: see `groups.rs`. With [`INTO_L1`], Q4_K and Q6_K keep a loop that is unrolled
//! otherwise: on Zen 5, prefetchers lose the stream in bodies with many loads.
#![allow(
    clippy::needless_range_loop,
    reason = "by number loops are unrolled, and sums stay in registers"
)]

mod arrange;

use std::arch::x86_64::*;

use crate::QuantType;
use crate::gemv::groups::{in_order, of_groups};
use crate::interleave::{
    FIRST_STEP, GROUP_ROWS, Halves, Line, Q4_0_WORDS, Q4_K_WORDS, Q5_K_WORDS, Q6_K_WORDS,
    Q8_0_WORDS, TQ2_0_WORDS, halves_of, lines_of,
};
use crate::lanes::wide::{
    INTO_L1, add_products_i16, computed, load_f16_bytes, load_u8x64, prefetch_after,
};
use crate::quant::q4_k::{HEAD, LEN};

use arrange::LOW_SUM_BITS;
pub(super) use arrange::{
    Block32, Block256, BlockOfSixteens, BlockWithMinimums, in_blocks, of_sixteens, with_minimums,
};

of_groups!(pub(super) gemv_q4_k, BlockWithMinimums, group_of_q4_k, true);
of_groups!(pub(super) gemv_q5_k, BlockWithMinimums, group_of_q5_k, true);
of_groups!(pub(super) gemv_q6_k, BlockOfSixteens, group_of_q6_k, true);
of_groups!(pub(super) gemv_q4_0, Block32, group_of_q4_0, false);
of_groups!(pub(super) gemv_q8_0, Block32, group_of_q8_0, false);
of_groups!(pub(super) gemv_tq2_0, Block256, group_of_tq2_0, true);

/// Sixteen rows of a type with lone half floats, whose blocks `$total` sums as integers. Blocks are taken in twos: two
/// blocks are a group of their own, and their half floats share a line.
macro_rules! group {
    ($name:ident, $kind:expr, $words:expr, $x:ty, $total:ident) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline]
        fn $name<const TO: u8>(group: &[u8], x: &[$x]) -> __m512 {
            let halves = |few, b| load_f16_bytes(halves_of($kind, few, b));
            let total = |few, b, x| {
                let lines: &[Line; $words] =
                    lines_of($kind, few, b).first_chunk().expect("a line for each word");
                _mm512_cvtepi32_ps($total::<TO>(lines, x))
            };
            let mut acc = _mm512_setzero_ps();
            let (of_twos, of_last) = x.as_chunks::<2>();
            let twos = group.chunks_exact(2 * GROUP_ROWS * $kind.block_bytes());
            let last = twos.remainder();
            for (two, x) in twos.zip(of_twos) {
                in_order();
                prefetch_after::<TO>(&two.as_chunks().0[..1]);
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

/// Sixteen rows of Q4_K or Q5_K, whose blocks `$total` sums as integers.
macro_rules! group_with_minimums {
    ($name:ident, $words:expr, $total:ident) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline]
        fn $name<const TO: u8>(group: &[u8], x: &[BlockWithMinimums]) -> __m512 {
            let lines: &[Line] = group.as_chunks().0;
            let (mut acc, mut mins_acc) = (_mm512_setzero_ps(), _mm512_setzero_ps());
            for (block, x) in lines.as_chunks::<{ $words }>().0.iter().zip(x) {
                in_order();
                let head = block.first_chunk().expect("a block begins with its head");
                prefetch_after::<TO>(head);
                let [scales, mins] = scales_and_minimums(head);
                let [d, dmin] = factors(&head[0]);
                let scale = _mm512_set1_ps(x.scale);
                let total = total_of_minimums(mins, x);
                let dmin = _mm512_mul_ps(dmin, scale);
                mins_acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), dmin, mins_acc);
                let total = $total::<TO>(block, scales, &x.q);
                acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_mul_ps(d, scale), acc);
            }
            _mm512_sub_ps(acc, mins_acc)
        }
    };
}

group_with_minimums!(group_of_q4_k, Q4_K_WORDS, total_of_q4_k);
group_with_minimums!(group_of_q5_k, Q5_K_WORDS, total_of_q5_k);

/// The sum of a block's minimums, each times the sum of its sub-block's activations.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_minimums(mins: [__m512i; 2], x: &BlockWithMinimums) -> __m512i {
    let mut total = _mm512_setzero_si512();
    for i in 0..2 {
        total = _mm512_dpbusd_epi32(total, mins[i], _mm512_set1_epi32(x.high_sums[i]));
    }
    total = _mm512_slli_epi32::<LOW_SUM_BITS>(total);
    for i in 0..2 {
        total = _mm512_dpbusd_epi32(total, mins[i], _mm512_set1_epi32(x.low_sums[i]));
    }
    total
}

/// The products of Q4_K's eight sub-blocks, each times its scale.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_q4_k<const TO: u8>(
    block: &[Line; Q4_K_WORDS],
    scales: [__m512i; 2],
    x: &[i32; LEN / 4],
) -> __m512i {
    let codes: &[Line; 32] = block[HEAD / 4..].first_chunk().expect("codes follow the head");
    let (low_4, high_4) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0xf0_u8.cast_signed()));
    let (mut total, mut total_16) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    // Two sub-blocks that share lines.
    macro_rules! two {
        ($codes:expr, $x:expr, $scales:expr) => {
            in_order();
            prefetch_after::<TO>($codes);
            // Of sixteen products each: at most 16 · 15 · 127, which fits in 16 bits.
            let mut low = [_mm512_setzero_si512(); 2];
            let mut high = [_mm512_setzero_si512(); 2];
            for k in 0..8 {
                let codes = load_u8x64(&$codes[k]);
                let (a, b) = (_mm512_and_si512(codes, low_4), _mm512_and_si512(codes, high_4));
                low[k / 4] = _mm512_dpbusd_epi32(low[k / 4], a, _mm512_set1_epi32($x[k]));
                high[k / 4] = _mm512_dpbusd_epi32(high[k / 4], b, _mm512_set1_epi32($x[8 + k]));
            }
            total = add_products_i16(total, low[0], $scales[0]);
            total = add_products_i16(total, low[1], $scales[0]);
            // Codes in the upper halves of bytes count sixteenfold.
            let high = _mm512_add_epi32(high[0], high[1]);
            total_16 = _mm512_add_epi32(total_16, _mm512_mullo_epi32(high, $scales[1]));
            (total, total_16) = (computed(total), computed(total_16));
        };
    }
    let (eights, x) = (codes.as_chunks::<8>().0, x.as_chunks::<16>().0);
    let scales_of = |c: usize| [0, 1].map(|i| byte(scales[c / 2], c % 2 * 2 + i));
    if TO == INTO_L1 {
        let scales = stored([0, 1, 2, 3].map(scales_of));
        for ((codes, x), scales) in eights.iter().zip(x).zip(&scales) {
            two!(codes, x, scales);
        }
    } else {
        // One by one, since the compiler would keep a loop.
        two!(&eights[0], &x[0], scales_of(0));
        two!(&eights[1], &x[1], scales_of(1));
        two!(&eights[2], &x[2], scales_of(2));
        two!(&eights[3], &x[3], scales_of(3));
    }
    // At most 4 · 16 · 32 · 15 · 127 · 63 and a multiple of sixteen.
    _mm512_add_epi32(total, _mm512_srai_epi32::<4>(total_16))
}

/// Has the compiler store these, so that a loop can read them: it unrolls one that would select them.
#[inline(always)]
fn stored<T>(of: T) -> T {
    std::hint::black_box(of)
}

/// The products of Q5_K's eight sub-blocks, each times its scale.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_q5_k<const TO: u8>(
    block: &[Line; Q5_K_WORDS],
    scales: [__m512i; 2],
    x: &[i32; LEN / 4],
) -> __m512i {
    let mut dots = [_mm512_setzero_si512(); 8];
    for (k, five) in steps_of::<5>(block).iter().enumerate() {
        in_order();
        prefetch_after::<TO>(five);
        let codes = codes_of_q5_k(five);
        for s in 0..8 {
            dots[s] = _mm512_dpbusd_epi32(dots[s], codes[s], _mm512_set1_epi32(x[8 * s + k]));
        }
    }
    let (mut total, mut total_8) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for s in 0..8 {
        let scaled = _mm512_mullo_epi32(dots[s], byte(scales[s / 4], s % 4));
        match s {
            0..5 => total = _mm512_add_epi32(total, scaled),
            _ => total_8 = _mm512_add_epi32(total_8, scaled),
        }
    }
    // At most 3 · 8 · 32 · 31 · 127 · 63 and a multiple of eight.
    _mm512_add_epi32(total, _mm512_srai_epi32::<3>(total_8))
}

/// The lines of Q5_K or Q6_K whose codes were put together.
#[inline(always)]
pub(crate) fn steps_of<const N: usize>(block: &[Line]) -> &[[Line; N]] {
    block[FIRST_STEP..].as_chunks().0
}

/// The codes of four columns of Q5_K's eight sub-blocks, the last three eightfold.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn codes_of_q5_k(five: &[Line; 5]) -> [__m512i; 8] {
    let low_5 = _mm512_set1_epi8(0x1f);
    let high_5 = _mm512_set1_epi8(0xf8_u8.cast_signed());
    let high_3 = _mm512_set1_epi8(0xe0_u8.cast_signed());
    let high_4 = _mm512_set1_epi8(0xf0_u8.cast_signed());
    let lines = five.each_ref().map(|line| load_u8x64(line));
    let whole = lines.map(|line| _mm512_and_si512(line, low_5));
    // Bits that a shift brings in from the neighbouring byte are masked away.
    let a = choose(high_3, lines[0], _mm512_srli_epi16::<3>(lines[1]));
    let b = choose(high_3, lines[2], _mm512_srli_epi16::<3>(lines[3]));
    let c = choose(high_3, lines[4], _mm512_srli_epi16::<1>(lines[1]));
    let c = choose(high_4, c, _mm512_srli_epi16::<2>(lines[3]));
    let [a, b, c] = [a, b, c].map(|code| _mm512_and_si512(code, high_5));
    [whole[0], whole[1], whole[2], whole[3], whole[4], a, b, c]
}

/// The codes of four columns of the quarters of half a block of Q6_K, the last fourfold.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn codes_of_q6_k(three: &[Line; 3]) -> [__m512i; 4] {
    let low_6 = _mm512_set1_epi8(0x3f);
    let high_6 = _mm512_set1_epi8(0xfc_u8.cast_signed());
    let high_2 = _mm512_set1_epi8(0xc0_u8.cast_signed());
    let high_4 = _mm512_set1_epi8(0xf0_u8.cast_signed());
    let lines = three.each_ref().map(|line| load_u8x64(line));
    let whole = lines.map(|line| _mm512_and_si512(line, low_6));
    let last = choose(high_2, lines[0], _mm512_srli_epi16::<2>(lines[1]));
    let last = choose(high_4, last, _mm512_srli_epi16::<4>(lines[2]));
    [whole[0], whole[1], whole[2], _mm512_and_si512(last, high_6)]
}

/// The bits of `a` where `mask` has ones, of `b` elsewhere.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn choose(mask: __m512i, a: __m512i, b: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xca>(mask, a, b)
}

/// Byte `i` of each word, zero-extended.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn byte(words: __m512i, i: usize) -> __m512i {
    // Bytes with the highest bit set select nothing.
    let from = |i: i32| _mm512_set1_epi32(-0x100 | i);
    let of_quarter = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 4, 8, 12));
    match i {
        0 => _mm512_and_si512(words, _mm512_set1_epi32(0xff)),
        1 => _mm512_shuffle_epi8(words, _mm512_add_epi32(from(1), of_quarter)),
        2 => _mm512_shuffle_epi8(words, _mm512_add_epi32(from(2), of_quarter)),
        _ => _mm512_srli_epi32::<24>(words),
    }
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

/// The two half floats of each row: `d` and `dmin` of Q4_K and Q5_K.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn factors(line: &Line) -> [__m512; 2] {
    let halves: &[Halves] = line.as_chunks().0;
    [load_f16_bytes(&halves[0]), load_f16_bytes(&halves[1])]
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_q4_0<const TO: u8>(block: &[Line; Q4_0_WORDS], x: &Block32) -> __m512i {
    prefetch_after::<TO>(block);
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
fn total_of_q8_0<const TO: u8>(block: &[Line; Q8_0_WORDS], x: &Block32) -> __m512i {
    prefetch_after::<TO>(block);
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
fn total_of_tq2_0<const TO: u8>(block: &[Line; TQ2_0_WORDS], x: &Block256) -> __m512i {
    prefetch_after::<TO>(block);
    let pairs = [0b11, 0b1100, 0b11_0000, 0b1100_0000_u8].map(|pair| pair.cast_signed());
    // Two sums of each, since an addition to a sum waits for the one before.
    let mut dots = [[_mm512_setzero_si512(); 4]; 2];
    dots[0][0] = _mm512_set1_epi32(x.begin);
    // Each half of the block has four runs of eight words.
    for (lines, x) in block.as_chunks::<8>().0.iter().zip(x.q.as_chunks::<32>().0) {
        in_order();
        for k in 0..8 {
            let codes = load_u8x64(&lines[k]);
            for l in 0..4 {
                let codes = _mm512_and_si512(codes, _mm512_set1_epi8(pairs[l]));
                let x = _mm512_set1_epi32(x[8 * l + k]);
                let dot = &mut dots[k % 2][l];
                *dot = _mm512_dpbusd_epi32(*dot, codes, x);
            }
        }
    }
    let [a, b, c, d] = [0, 1, 2, 3].map(|l| _mm512_add_epi32(dots[0][l], dots[1][l]));
    let ab = _mm512_add_epi32(a, _mm512_srai_epi32::<2>(b));
    let cd = _mm512_add_epi32(_mm512_srai_epi32::<4>(c), _mm512_srai_epi32::<6>(d));
    _mm512_add_epi32(ab, cd)
}

/// The products of Q6_K's sixteen sub-blocks, each times its scale.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn total_of_q6_k<const TO: u8>(block: &[Line; Q6_K_WORDS], x: &BlockOfSixteens) -> __m512i {
    let (mut total, mut total_4) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    let steps: &[_; 16] = steps_of::<3>(block).first_chunk().expect("sixteen steps");
    // One sub-block of each quarter of half a block: the first or the second.
    macro_rules! four {
        ($h:expr, $s:expr) => {
            in_order();
            prefetch_after::<TO>(steps[8 * $h + 4 * $s..][..4].as_flattened());
            // Of eight products each: at most 8 · 32 · 127, which fits in 16 bits.
            let mut dots = [[_mm512_setzero_si512(); 2]; 3];
            for i in 0..3 {
                dots[i] = x.begin[8 * $h + 2 * i + $s].map(|begin| _mm512_set1_epi32(begin));
            }
            let mut last = _mm512_set1_epi32(x.begin_4[2 * $h + $s]);
            for k in 0..4 {
                let codes = codes_of_q6_k(&steps[8 * $h + 4 * $s + k]);
                let x = |i: usize| _mm512_set1_epi32(x.q[32 * $h + 8 * i + 4 * $s + k]);
                for i in 0..3 {
                    let dot = &mut dots[i][k / 2];
                    *dot = _mm512_dpbusd_epi32(*dot, codes[i], x(i));
                }
                last = _mm512_dpbusd_epi32(last, codes[3], x(3));
            }
            // The scales of the first and second quarters, then of the others, 16 bits each.
            let scales = [2 * $h, 2 * $h + 1].map(|i| {
                let words = load_u8x64(&block[i]);
                let words = if $s == 0 { _mm512_slli_epi16::<8>(words) } else { words };
                _mm512_srai_epi16::<8>(words)
            });
            let low_16 = _mm512_set1_epi32(0xffff);
            let scale = [
                _mm512_and_si512(scales[0], low_16),
                _mm512_srli_epi32::<16>(scales[0]),
                _mm512_and_si512(scales[1], low_16),
            ];
            for i in 0..3 {
                total = add_products_i16(total, dots[i][0], scale[i]);
                total = add_products_i16(total, dots[i][1], scale[i]);
            }
            let scaled = _mm512_mullo_epi32(last, _mm512_srai_epi32::<16>(scales[1]));
            total_4 = _mm512_add_epi32(total_4, scaled);
            (total, total_4) = (computed(total), computed(total_4));
        };
    }
    prefetch_after::<TO>(&block[..FIRST_STEP]);
    if TO == INTO_L1 {
        for h in 0..2 {
            four!(h, 0);
            four!(h, 1);
        }
    } else {
        // One by one, since the compiler would keep a loop.
        four!(0, 0);
        four!(0, 1);
        four!(1, 0);
        four!(1, 1);
    }
    // At most 4 · 4 · 16 · 32 · 127 · 128 and a multiple of four.
    _mm512_add_epi32(total, _mm512_srai_epi32::<2>(total_4))
}

#[cfg(test)]
mod tests;
