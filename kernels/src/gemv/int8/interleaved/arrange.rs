//! Activations as the loops over interleaved rows read them: rounded, by fours, with the sums that they need.

use std::arch::x86_64::*;

use crate::activations::avx512::round_vectors;
use crate::lanes::wide::store_i8x16_in_words;
use crate::quant::q4_k::LEN;
use crate::quant::{q4_0, q8_0, ternary};

/// The activations of one block of Q4_K or Q5_K.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct BlockWithMinimums {
    /// By fours, in the order of the columns.
    pub(super) q: [i32; LEN / 4],
    /// The sums of the sub-blocks divided by [`LOW_SUM`], rounded down, four in 8 bits each.
    pub(super) high_sums: [i32; 2],
    /// What is left of the sums.
    pub(super) low_sums: [i32; 2],
    pub(super) scale: f32,
}

/// A sum of 32 activations, at most 32 · 127, is split at this power of two: both parts fit in signed bytes.
const LOW_SUM: i32 = 1 << LOW_SUM_BITS;
pub(super) const LOW_SUM_BITS: u32 = 6;
const _: () = assert!(32 * 127 / LOW_SUM < 128 && LOW_SUM <= 128);

/// The activations of one block of Q6_K.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct BlockOfSixteens {
    /// By fours, in the order of the columns.
    pub(super) q: [i32; LEN / 4],
    /// The initial value of each sum of eight: it cancels the 32 added to each code.
    pub(super) begin: [[i32; 2]; 16],
    /// The initial value of each sum of sixteen products with fourfold codes.
    pub(super) begin_4: [i32; 4],
    pub(super) scale: f32,
}

/// The activations of one block with one scale.
#[derive(Debug)]
pub(crate) struct Block<const FOURS: usize> {
    /// By fours, in the order of the columns.
    pub(super) q: [i32; FOURS],
    /// The initial value of the sum: it cancels the offset added to each code.
    pub(super) begin: i32,
    pub(super) scale: f32,
}

/// For Q4_0 and Q8_0.
pub(crate) type Block32 = Block<8>;
/// For TQ2_0.
pub(crate) type Block256 = Block<64>;
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
pub(crate) fn with_minimums(x: &[f32]) -> Vec<BlockWithMinimums> {
    let blocks = blocks::<{ LEN / 16 }>(x).iter().map(|x| {
        let mut block =
            BlockWithMinimums { q: [0; LEN / 4], high_sums: [0; 2], low_sums: [0; 2], scale: 0.0 };
        let (rounded, scale) = round_to(&mut block.q, x);
        block.scale = scale;
        for (s, two) in rounded.as_chunks::<2>().0.iter().enumerate() {
            let sum = _mm512_reduce_add_epi32(_mm512_add_epi32(two[0], two[1]));
            let [high, low] = [sum.div_euclid(LOW_SUM), sum.rem_euclid(LOW_SUM)];
            block.high_sums[s / 4] |= (high & 0xff) << (8 * (s % 4));
            block.low_sums[s / 4] |= low << (8 * (s % 4));
        }
        block
    });
    blocks.collect()
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn of_sixteens(x: &[f32]) -> Vec<BlockOfSixteens> {
    let blocks = blocks::<{ LEN / 16 }>(x).iter().map(|x| {
        let mut block =
            BlockOfSixteens { q: [0; LEN / 4], begin: [[0; 2]; 16], begin_4: [0; 4], scale: 0.0 };
        let (rounded, scale) = round_to(&mut block.q, x);
        block.scale = scale;
        for (begin, sixteen) in block.begin.iter_mut().zip(rounded) {
            let eights = [0x00ff, 0xff00].map(|eight| _mm512_mask_reduce_add_epi32(eight, sixteen));
            *begin = eights.map(|sum| -32 * sum);
        }
        for (i, begin) in block.begin_4.iter_mut().enumerate() {
            // The last quarter of each half.
            let [a, b] = block.begin[8 * (i / 2) + 6 + i % 2];
            *begin = 4 * (a + b);
        }
        block
    });
    blocks.collect()
}

/// The activations for codes with `offset` added. Blocks have `V` vectors, which are four times as many fours.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn in_blocks<const V: usize, const FOURS: usize>(
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
