//! Q4_1: 32 weights in 20 bytes.
//!
//! ```text
//! d: f16 │ m: f16 │ qs: 16 bytes, weight j in the low half of byte j, weight j + 16 in the high half
//! w = d * q + m
//! ```

use super::half::{f16_at, f32_to_f16};
use super::round::{inverse, range, to_code};

pub(crate) const LEN: usize = 32;
pub(crate) const BYTES: usize = 20;
pub(crate) const QS: usize = 2 + 2;
const _: () = assert!(BYTES == QS + LEN / 2);

#[inline(always)]
pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for j in 0..16 {
        let q = block[QS + j];
        out[j] = d * f32::from(q & 15) + m;
        out[j + 16] = d * f32::from(q >> 4) + m;
    }
}

/// From the least weight to the largest.
#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    let (low, high) = range(x);
    let d = (high - low) / 15.0;
    let inverse = inverse(1.0, d);
    let quantize = |x: f32| to_code((x - low) * inverse, 15.0) as u8;
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    block[2..4].copy_from_slice(&f32_to_f16(low).to_le_bytes());
    for j in 0..16 {
        block[QS + j] = quantize(x[j]) | quantize(x[j + 16]) << 4;
    }
    block
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{BYTES, QS};
    use crate::lanes::{I32x8, f16, halves, load_u8, piece};

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
        halves(load_u8(piece(block, QS + 8 * i)))
    }
}
