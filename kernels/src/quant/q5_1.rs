//! Q5_1: 32 weights in 24 bytes.
//!
//! ```text
//! d: f16 │ m: f16 │ qh: 4 bytes │ qs: 16 bytes
//! w = d * q + m
//! ```
//!
//! The low four bits of weight j are the low half of byte j of `qs`, those of weight j + 16 the high half.
//! The fifth bit of each weight is its bit of `qh`.

use super::half::{f16_at, f32_to_f16};
use super::round::{inverse, range, to_code};

pub(crate) const LEN: usize = 32;
pub(crate) const BYTES: usize = 24;
pub(crate) const QH: usize = 4;
pub(crate) const QS: usize = QH + 4;
const _: () = assert!(BYTES == QS + LEN / 2);

#[inline(always)]
pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    let high = u32::from_le_bytes([block[QH], block[QH + 1], block[QH + 2], block[QH + 3]]);
    let bit = |j: usize| ((high >> j & 1) << 4) as u8;
    for j in 0..16 {
        let q = block[QS + j];
        out[j] = d * f32::from(q & 15 | bit(j)) + m;
        out[j + 16] = d * f32::from(q >> 4 | bit(j + 16)) + m;
    }
}

/// From the least weight to the largest.
#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    let (low, high) = range(x);
    let d = (high - low) / 31.0;
    let inverse = inverse(1.0, d);
    let quantize = |x: f32| to_code((x - low) * inverse, 31.0) as u8;
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    block[2..4].copy_from_slice(&f32_to_f16(low).to_le_bytes());
    let mut high = 0u32;
    for j in 0..16 {
        let (q, q_2) = (quantize(x[j]), quantize(x[j + 16]));
        block[QS + j] = (q & 15) | (q_2 & 15) << 4;
        high |= u32::from(q >> 4) << j | u32::from(q_2 >> 4) << (j + 16);
    }
    block[QH..QS].copy_from_slice(&high.to_le_bytes());
    block
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{BYTES, QH, QS};
    use crate::lanes::{I32x8, f16, fifth_bits, halves, load_u8, or, piece};

    /// `d`, and what is added to its multiples.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn scale(block: &[u8; BYTES]) -> (f32, f32) {
        (f16(*piece(block, 0)), f16(*piece(block, 2)))
    }

    /// The codes of weights `8i..` and `16 + 8i..`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn codes(block: &[u8; BYTES], i: usize) -> [I32x8; 2] {
        let [low, high] = halves(load_u8(piece(block, QS + 8 * i)));
        let bits = u32::from_le_bytes(*piece(block, QH));
        [or(low, fifth_bits(bits >> (8 * i))), or(high, fifth_bits(bits >> (16 + 8 * i)))]
    }
}
