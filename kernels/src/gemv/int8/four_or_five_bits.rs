//! Rows of Q4_0, Q4_1, Q5_0 and Q5_1, four blocks at a time. The files of these names in `quant/` describe the layouts.
//!
//! A block contributes `d * Σ q·x + offset * Σ x`, where the offset is a multiple of `d` or the block's minimum. All parts
//! of a block begin at even bytes, so `vpermt2w` gathers those of four blocks from two loads: the first 64 bytes and the
//! last 64.

use std::arch::x86_64::*;

use super::{by_fours, side_by_side};
use crate::QuantType;
use crate::activations::Activations;
use crate::lanes::wide::{load_i8x64, load_i16x32, load_i32x16, load_u8x64, sum16};
use crate::lanes::{load, piece, prefetch_ahead_of_four};

/// Activations in the order of the codes, padded with zeros to a multiple of four blocks.
#[derive(Debug)]
pub(super) struct Arranged {
    n_blocks: usize,
    fours: Vec<FourBlocks>,
}

/// The activations of four blocks.
#[derive(Debug)]
#[repr(align(64))]
struct FourBlocks {
    /// For the lower halves of 16 bytes of each block.
    low: [i8; 64],
    /// For the upper halves.
    high: [i8; 64],
    /// The initial values of the sums: four lanes for each block.
    begin: [i32; 16],
    /// For two rows.
    scales: [f32; 8],
    /// The sum of each block's activations, for two rows.
    sums: [f32; 8],
}

/// Arranges activations for codes that have `offset` added: see [`offset`].
pub(super) fn arrange(x: &Activations, offset: i32) -> Arranged {
    let blocks = x.q.as_chunks::<32>().0.chunks(4).zip(x.scales.chunks(4).zip(x.sums.chunks(4)));
    let fours = blocks.map(|(blocks, (scales, sums))| {
        let mut four = FourBlocks {
            low: [0; 64],
            high: [0; 64],
            begin: [0; 16],
            scales: [0.0; 8],
            sums: [0.0; 8],
        };
        for (i, q) in blocks.iter().enumerate() {
            four.low[16 * i..][..16].copy_from_slice(&q[..16]);
            four.high[16 * i..][..16].copy_from_slice(&q[16..]);
            four.begin[4 * i] = -offset * sums[i];
            for row in 0..2 {
                four.scales[4 * row + i] = scales[i];
                four.sums[4 * row + i] = sums[i] as f32 * scales[i];
            }
        }
        four
    });
    Arranged { n_blocks: x.scales.len(), fours: fours.collect() }
}

/// The offset that a type's codes have from the weights, in units of the scale.
pub(super) fn offset(kind: QuantType) -> i32 {
    match kind {
        QuantType::Q4_0 => 8,
        QuantType::Q5_0 => 16,
        _ => 0,
    }
}

/// The index of the 16-bit word `at` bytes from the start of block `b`, as `vpermt2w` counts the words of the first 64
/// and the last 64 of `4 * bytes` bytes.
const fn word(bytes: usize, b: usize, at: usize) -> i16 {
    let from = b * bytes + at;
    let word = if from + 2 <= 64 { from / 2 } else { 32 + (from + 64 - 4 * bytes) / 2 };
    word as i16
}

/// Eight words of each block from byte `at` on, each repeated in `step` lanes.
const fn eights(bytes: usize, at: usize, step: usize) -> [i16; 32] {
    let mut words = [0; 32];
    let mut i = 0;
    while i < 32 {
        words[i] = word(bytes, i / 8, at + i % 8 / step * 2);
        i += 1;
    }
    words
}

/// The word at byte `at` of each block.
const fn one_each(bytes: usize, at: usize) -> [i16; 32] {
    let mut words = [0; 32];
    let mut i = 0;
    while i < 32 {
        words[i] = word(bytes, i % 4, at);
        i += 1;
    }
    words
}

/// The word at byte `at` of each block in the first 64 bytes of one row, then of another.
const fn one_each_of_two(bytes: usize, at: usize) -> [i16; 32] {
    let mut words = [0; 32];
    let mut i = 0;
    while i < 8 {
        words[i] = (i / 4 * 32 + (i % 4 * bytes + at) / 2) as i16;
        i += 1;
    }
    words
}

// A macro, because array lengths can't be computed from generic parameters.
macro_rules! gemv {
    ($name:ident, $format:ident, minimum at $minimum:literal, $fifth:expr) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &Arranged) {
            use crate::quant::$format::{BYTES, QS};

            const FOUR: usize = 4 * BYTES;
            const CODES: [i16; 32] = eights(BYTES, QS, 1);
            // No block begins with its minimum, so 0 means that there is none.
            const MINIMUM: usize = $minimum;

            /// The products of four blocks, four sums of eight for each.
            #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[inline]
            fn products(words: [__m512i; 2], x: &FourBlocks) -> __m512 {
                let [low, high] = nibbles(pick(words, &CODES));
                let [low, high] = $fifth(words, [low, high]);
                let dot = _mm512_dpbusd_epi32(load_i32x16(&x.begin), low, load_i8x64(&x.low));
                _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(dot, high, load_i8x64(&x.high)))
            }

            /// The half float at `AT` of each block of two rows.
            #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[inline]
            fn floats<const AT: usize>(words: [[__m512i; 2]; 2]) -> __m256 {
                let halves = if 3 * BYTES + AT + 2 <= 64 {
                    let which = const { one_each_of_two(BYTES, AT) };
                    _mm512_castsi512_si128(pick([words[0][0], words[1][0]], &which))
                } else {
                    let which = const { one_each(BYTES, AT) };
                    _mm_unpacklo_epi64(
                        _mm512_castsi512_si128(pick(words[0], &which)),
                        _mm512_castsi512_si128(pick(words[1], &which)),
                    )
                };
                _mm256_cvtph_ps(halves)
            }

            /// Adds the products of two rows.
            #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[inline]
            fn add(
                acc: &mut [__m512; 2],
                mins: &mut __m256,
                fours: [&[u8; FOUR]; 2],
                x: &FourBlocks,
            ) {
                let words = [
                    [load_u8x64(piece(fours[0], 0)), load_u8x64(piece(fours[0], FOUR - 64))],
                    [load_u8x64(piece(fours[1], 0)), load_u8x64(piece(fours[1], FOUR - 64))],
                ];
                let scales = _mm256_mul_ps(floats::<0>(words), load(&x.scales));
                for row in 0..2 {
                    let scale = everywhere_in_four(scales, row as i32);
                    acc[row] = _mm512_fmadd_ps(scale, products(words[row], x), acc[row]);
                }
                if MINIMUM > 0 {
                    let minimums = floats::<MINIMUM>(words);
                    *mins = _mm256_fmadd_ps(minimums, load(&x.sums), *mins);
                }
            }

            let row_bytes = x.n_blocks * BYTES;
            let (x_whole, x_rest) = x.fours.split_at(row_bytes / FOUR);
            for at in by_fours(out.len()) {
                let rows = at.map(|i| &bytes[i * row_bytes..][..row_bytes]);
                let mut acc = [[_mm512_setzero_ps(); 2]; 2];
                let mut mins = [_mm256_setzero_ps(); 2];
                for (fours, x) in side_by_side::<FOUR>(rows).zip(x_whole) {
                    for four in fours {
                        prefetch_ahead_of_four(four);
                        prefetch_ahead_of_four(&four[64..]);
                    }
                    add(&mut acc[0], &mut mins[0], [fours[0], fours[1]], x);
                    add(&mut acc[1], &mut mins[1], [fours[2], fours[3]], x);
                }
                for x in x_rest {
                    let mut fours = [[0; FOUR]; 4];
                    for (four, row) in fours.iter_mut().zip(rows) {
                        let rest = row.as_chunks::<FOUR>().1;
                        four[..rest.len()].copy_from_slice(rest);
                    }
                    add(&mut acc[0], &mut mins[0], [&fours[0], &fours[1]], x);
                    add(&mut acc[1], &mut mins[1], [&fours[2], &fours[3]], x);
                }
                for two in 0..2 {
                    let mins =
                        [_mm256_castps256_ps128(mins[two]), _mm256_extractf128_ps::<1>(mins[two])];
                    for row in 0..2 {
                        let total = _mm512_add_ps(acc[two][row], _mm512_zextps128_ps512(mins[row]));
                        out[at[2 * two + row]] = sum16(total);
                    }
                }
            }
        }
    };
}

gemv!(gemv_q4_0, q4_0, minimum at 0, |_, codes| codes);
gemv!(gemv_q4_1, q4_1, minimum at 2, |_, codes| codes);
gemv!(gemv_q5_0, q5_0, minimum at 0, |words, codes| {
    const BITS: [i16; 32] = eights(BYTES, crate::quant::q5_0::QH, 4);
    with_fifth_bits(codes, pick(words, &BITS))
});
gemv!(gemv_q5_1, q5_1, minimum at 2, |words, codes| {
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
fn nibbles(bytes: __m512i) -> [__m512i; 2] {
    let low = _mm512_set1_epi8(15);
    [_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low)]
}

/// Adds 16 where a bit is set. Of each block's 16 bytes of bits, the first word belongs to the lower halves and the
/// fifth to the upper halves.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn with_fifth_bits([low, high]: [__m512i; 2], bits: __m512i) -> [__m512i; 2] {
    let bytes = |at: i64| {
        // One byte with eight bits for each eight codes.
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

/// Each of a row's four floats in the four lanes of its block.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn everywhere_in_four(v: __m256, row: i32) -> __m512 {
    let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    let lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(4 * row));
    _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(v))
}
