//! Q5_0: 32 weights in 22 bytes.
//!
//! ```text
//! d: f16 │ qh: 4 bytes │ qs: 16 bytes
//! w = d * (q - 16)
//! ```
//!
//! The low four bits of weight j are the low half of byte j of `qs`, those of weight j + 16 the high half.
//! The fifth bit of each weight is its bit of `qh`.

use super::half::{f16_at, f32_to_f16};
use super::round::inverse;

pub(crate) const LEN: usize = 32;
pub(crate) const BYTES: usize = 22;
pub(crate) const QH: usize = 2;
pub(crate) const QS: usize = QH + 4;
const _: () = assert!(BYTES == QS + LEN / 2);

#[inline(always)]
pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    let high = u32::from_le_bytes([block[QH], block[QH + 1], block[QH + 2], block[QH + 3]]);
    let bit = |j: usize| ((high >> j & 1) << 4) as u8;
    for j in 0..16 {
        let q = block[QS + j];
        out[j] = d * (i32::from(q & 15 | bit(j)) - 16) as f32;
        out[j + 16] = d * (i32::from(q >> 4 | bit(j + 16)) - 16) as f32;
    }
}

/// The weight of the largest magnitude becomes -16, whichever sign it has.
#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    let max = x.iter().fold(0.0f32, |max, &x| if x.abs() > max.abs() { x } else { max });
    let d = max / -16.0;
    let inverse = inverse(1.0, d);
    let quantize = |x: f32| ((x * inverse + 16.5) as i32).clamp(0, 31) as u8;
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
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
        let d = f16(*piece(block, 0));
        (d, -16.0 * d)
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
