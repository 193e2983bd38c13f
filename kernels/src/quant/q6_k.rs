//! Q6_K: 256 weights in 210 bytes, as sixteen sub-blocks of 16 with a scale each.
//!
//! ```text
//! ql: 128 bytes │ qh: 64 bytes │ scales: 16 signed bytes │ d: f16
//! w = d * scale[i / 16] * (q - 32)
//! ```
//!
//! Each half of 128 weights has 64 bytes of `ql` and 32 of `qh`. Weights `l`, `l + 32`, `l + 64` and `l + 96` of a half
//! take their low four bits from the low half of `ql[l]`, the low half of `ql[l + 32]`, the high half of `ql[l]` and the
//! high half of `ql[l + 32]`, and their upper two bits from `qh[l]`, beginning with the lowest pair.

use super::half::{f16_at, f32_to_f16};
use super::round::{inverse, nearest};

pub(crate) const LEN: usize = 256;
pub(crate) const BYTES: usize = 210;
pub(crate) const QH: usize = 128;
pub(crate) const SCALES: usize = 192;
pub(crate) const D: usize = 208;
const _: () = assert!(BYTES == LEN / 2 + LEN / 4 + LEN / 16 + 2);

#[inline(always)]
pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, D);
    for h in 0..2 {
        for is in 0..2 {
            let scale = |i: usize| d * f32::from(block[SCALES + 8 * h + is + 2 * i] as i8);
            let scales = [scale(0), scale(1), scale(2), scale(3)];
            for l in 16 * is..16 * is + 16 {
                let (a, b) = (block[64 * h + l], block[64 * h + l + 32]);
                let high = block[QH + 32 * h + l];
                let q = [
                    (a & 15) | (high & 3) << 4,
                    (b & 15) | ((high >> 2) & 3) << 4,
                    (a >> 4) | ((high >> 4) & 3) << 4,
                    (b >> 4) | (high >> 6) << 4,
                ];
                for i in 0..4 {
                    out[128 * h + 32 * i + l] = scales[i] * (i32::from(q[i]) - 32) as f32;
                }
            }
        }
    }
}

/// The weight of the largest magnitude in a sub-block becomes -32, whatever its sign, and the largest scale becomes
/// -128.
#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    let largest =
        |x: &[f32]| x.iter().fold(0.0f32, |max, &x| if x.abs() > max.abs() { x } else { max });
    let mut scales = [0.0f32; 16];
    for (scale, x) in scales.iter_mut().zip(x.as_chunks::<16>().0) {
        *scale = largest(x) / -32.0;
    }
    let d = largest(&scales) / -128.0;
    let inverse_d = inverse(1.0, d);

    let mut block = [0; BYTES];
    block[D..].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    let d = f16_at(&block, D);
    let mut q = [0u8; LEN];
    for s in 0..16 {
        let scale = nearest(scales[s] * inverse_d).clamp(-128, 127);
        block[SCALES + s] = scale as u8;
        let scale = d * scale as f32;
        let inverse = inverse(1.0, scale);
        for i in 16 * s..16 * s + 16 {
            let x = x[i] * inverse;
            let x = if x > -32.0 { x } else { -32.0 };
            q[i] = (nearest(if x < 31.0 { x } else { 31.0 }) + 32) as u8;
        }
    }
    for h in 0..2 {
        for l in 0..32 {
            let q = |i: usize| q[128 * h + 32 * i + l];
            block[64 * h + l] = (q(0) & 15) | (q(2) & 15) << 4;
            block[64 * h + l + 32] = (q(1) & 15) | (q(3) & 15) << 4;
            block[QH + 32 * h + l] =
                (q(0) >> 4) | (q(1) >> 4) << 2 | (q(2) >> 4) << 4 | (q(3) >> 4) << 6;
        }
    }
    block
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{BYTES, D, LEN, QH, SCALES};
    use crate::lanes::{
        I32x8, and, f16, load_u8, mul, or, piece, shift_left, shift_right, splat, splat_int, store,
        sub_int, to_floats,
    };

    /// The codes, 0 to 63, of the eight weights from `8 * step` on in each quarter of half `h`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn codes(block: &[u8; BYTES], h: usize, step: usize) -> [I32x8; 4] {
        let low_4 = splat_int(0x0f);
        let bits_45 = splat_int(0x30);
        let a = load_u8(piece(block, 64 * h + 8 * step));
        let b = load_u8(piece(block, 64 * h + 32 + 8 * step));
        let high = load_u8(piece(block, QH + 32 * h + 8 * step));
        let high = [shift_left::<4>(high), shift_left::<2>(high), high, shift_right::<2>(high)];
        let low = [and(a, low_4), and(b, low_4), shift_right::<4>(a), shift_right::<4>(b)];
        let mut codes = low;
        for i in 0..4 {
            codes[i] = or(low[i], and(high[i], bits_45));
        }
        codes
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let d = f16(*piece(block, D));
        let offset = splat_int(32);
        let out = out.as_chunks_mut().0;
        for h in 0..2 {
            for step in 0..4 {
                let codes = codes(block, h, step);
                for i in 0..4 {
                    let scale = d * f32::from(block[SCALES + 8 * h + 2 * i + step / 2] as i8);
                    let q = to_floats(sub_int(codes[i], offset));
                    store(&mut out[16 * h + 4 * i + step], mul(splat(scale), q));
                }
            }
        }
    }
}
