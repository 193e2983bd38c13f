//! What Q4_0, Q4_1, Q5_0 and Q5_1 share: blocks of 32 codes with 4 or 5 bits, packed at the end of the block.
//!
//! ```text
//! … │ qh: 4 bytes, only if codes have 5 bits │ qs: 16 bytes
//! ```
//!
//! The low four bits of weight `j` are the low half of byte `j` of `qs`, those of weight `j + 16` the high half. The
//! fifth bit of weight `j` is bit `j` of `qh`.

use super::half::f32_to_f16;
use super::round::{inverse, range, to_code};

const LEN: usize = 32;
const QS_BYTES: usize = 16;
const QH_BYTES: usize = 4;

/// Encodes `w = d * (q - zero)`, with codes up to `2 * zero - 1`: the weight of the largest magnitude becomes `-zero *
/// d`, whatever its sign.
#[inline(always)]
pub(super) fn encode_symmetric<const BYTES: usize>(x: &[f32; LEN], zero: u8) -> [u8; BYTES] {
    let max = x.iter().fold(0.0f32, |max, &x| if x.abs() > max.abs() { x } else { max });
    let d = max / -f32::from(zero);
    let inverse = inverse(1.0, d);
    let (zero, most) = (f32::from(zero) + 0.5, 2 * i32::from(zero) - 1);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    pack(&mut block, x, most, |x| ((x * inverse + zero) as i32).clamp(0, most) as u8);
    block
}

/// Encodes `w = d * q + m`, with codes from 0 for the smallest weight to `most` for the largest.
#[inline(always)]
pub(super) fn encode_with_minimum<const BYTES: usize>(x: &[f32; LEN], most: u8) -> [u8; BYTES] {
    let (low, high) = range(x);
    let d = (high - low) / f32::from(most);
    let inverse = inverse(1.0, d);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    block[2..4].copy_from_slice(&f32_to_f16(low).to_le_bytes());
    let quantize = |x: f32| to_code((x - low) * inverse, f32::from(most)) as u8;
    pack(&mut block, x, most.into(), quantize);
    block
}

/// Writes the codes of `x`, which go up to `most`.
#[inline(always)]
fn pack(block: &mut [u8], x: &[f32; LEN], most: i32, quantize: impl Fn(f32) -> u8) {
    let qs = block.len() - QS_BYTES;
    let mut fifth_bits = 0u32;
    for j in 0..LEN / 2 {
        let (q, q_2) = (quantize(x[j]), quantize(x[j + 16]));
        block[qs + j] = (q & 15) | (q_2 & 15) << 4;
        fifth_bits |= u32::from(q >> 4) << j | u32::from(q_2 >> 4) << (j + 16);
    }
    if most > 15 {
        block[qs - QH_BYTES..qs].copy_from_slice(&fifth_bits.to_le_bytes());
    }
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{QH_BYTES, QS_BYTES};
    use crate::lanes::{I32x8, f16, fifth_bits, halves, load_u8, or, piece};

    /// The first two half floats of a block: `d` and `m`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn scale_and_minimum<const BYTES: usize>(block: &[u8; BYTES]) -> (f32, f32) {
        (f16(*piece(block, 0)), f16(*piece(block, 2)))
    }

    /// The 4-bit codes of weights `8i..` and `16 + 8i..`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn codes_of_4_bits<const BYTES: usize>(block: &[u8; BYTES], i: usize) -> [I32x8; 2] {
        halves(load_u8(piece(block, BYTES - QS_BYTES + 8 * i)))
    }

    /// The 5-bit codes of weights `8i..` and `16 + 8i..`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn codes_of_5_bits<const BYTES: usize>(block: &[u8; BYTES], i: usize) -> [I32x8; 2] {
        let [low, high] = codes_of_4_bits(block, i);
        let bits = u32::from_le_bytes(*piece(block, BYTES - QS_BYTES - QH_BYTES));
        [or(low, fifth_bits(bits >> (8 * i))), or(high, fifth_bits(bits >> (16 + 8 * i)))]
    }
}
