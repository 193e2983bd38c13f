//! Activations in the form that tiles read: a block's codes, their sums and their scale side by side.

use std::arch::x86_64::*;

use crate::QuantType;
use crate::activations::avx512::round_block;
use crate::lanes::wide::load_i8x16;

/// `4 * WORDS` consecutive activations of one token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<const WORDS: usize, const SUMS: usize> {
    /// By fours, as `vpdpbusd` reads them.
    pub(super) q: [[i8; 4]; WORDS],
    /// The initial values of the sums of products, or the factors of minimums: see [`Blocks`].
    pub(super) sums: [i32; SUMS],
    pub(super) scale: f32,
}

/// Rows of blocks, each as long as the format's.
#[derive(Debug)]
pub(super) enum Blocks {
    /// One sum: the offset of the codes times the sum of the activations or, for formats with minimums, the bits of
    /// the `f32` that the minimum is multiplied with.
    Len32(Vec<Block<8, 1>>),
    /// Likewise.
    Len128(Vec<Block<32, 1>>),
    /// Likewise.
    Len256(Vec<Block<64, 1>>),
    /// With the sums of eight runs of 32, which fit in 16 bits, in pairs.
    WithMinimums(Vec<Block<64, 4>>),
    /// With the offset times the sum of each run of 16.
    SumsOf16(Vec<Block<64, 16>>),
}

/// Rounded activations of some tokens.
#[derive(Debug)]
pub(crate) struct Rounded {
    n: usize,
    blocks: Blocks,
}

impl Rounded {
    /// Rounds `n` rows, at least one, that aren't empty.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn new(kind: QuantType, x: &[f32], n: usize) -> Self {
        let offset = offset(kind);
        let blocks = match kind {
            QuantType::Q4_1 | QuantType::Q5_1 => {
                Blocks::Len32(blocks(x, |q, scale| [(scale * sum(q) as f32).to_bits() as i32]))
            }
            QuantType::Q4_K | QuantType::Q5_K => Blocks::WithMinimums(blocks(x, |q, _| {
                let mut sums = [0; 4];
                for (sums, q) in sums.iter_mut().zip(q.as_chunks::<64>().0) {
                    *sums = sum(&q[..32]) & 0xffff | sum(&q[32..]) << 16;
                }
                sums
            })),
            QuantType::Q6_K => Blocks::SumsOf16(blocks(x, |q, _| {
                let mut sums = [0; 16];
                for (sums, q) in sums.iter_mut().zip(q.as_chunks::<16>().0) {
                    *sums = offset * sum(q);
                }
                sums
            })),
            QuantType::TQ1_0 | QuantType::TQ2_0 => {
                Blocks::Len256(blocks(x, |q, _| [offset * sum(q)]))
            }
            QuantType::I2_S => Blocks::Len128(blocks(x, |q, _| [offset * sum(q)])),
            _ => Blocks::Len32(blocks(x, |q, _| [offset * sum(q)])),
        };
        Self { n, blocks }
    }

    pub(super) fn n(&self) -> usize {
        self.n
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }
}

/// What is added to each code in a panel to get the weight in units of its scale.
fn offset(kind: QuantType) -> i32 {
    match kind {
        QuantType::Q8_0 => -128,
        QuantType::Q6_K => -32,
        QuantType::Q5_0 => -16,
        QuantType::Q4_0 => -8,
        QuantType::TQ1_0 | QuantType::TQ2_0 | QuantType::I2_S => -1,
        _ => 0,
    }
}

/// The sum of codes, whose number is a multiple of sixteen.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn sum(q: &[i8]) -> i32 {
    let ones = _mm_set1_epi8(1);
    let mut fours = _mm_setzero_si128();
    for q in q.as_chunks::<16>().0 {
        fours = _mm_dpbusd_epi32(fours, ones, load_i8x16(&q.map(i8::cast_unsigned)));
    }
    let twos = _mm_add_epi32(fours, _mm_shuffle_epi32::<0b01_00_11_10>(fours));
    _mm_cvtsi128_si32(_mm_add_epi32(twos, _mm_shuffle_epi32::<0b10_11_00_01>(twos)))
}

/// Makes blocks; `sums` computes their sums from the codes and the scale.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn blocks<const WORDS: usize, const SUMS: usize>(
    x: &[f32],
    sums: impl Fn(&[i8], f32) -> [i32; SUMS],
) -> Vec<Block<WORDS, SUMS>> {
    let nothing = Block { q: [[0; 4]; WORDS], sums: [0; SUMS], scale: 0.0 };
    let mut blocks = vec![nothing; x.len() / (4 * WORDS)];
    for (block, x) in blocks.iter_mut().zip(x.chunks_exact(4 * WORDS)) {
        block.scale = round_block(block.q.as_flattened_mut(), x);
        block.sums = sums(block.q.as_flattened(), block.scale);
    }
    blocks
}
