//! Q5_K: 256 weights in 176 bytes, as eight sub-blocks of 32 with a scale and a minimum each.
//!
//! ```text
//! d: f16 │ dmin: f16 │ scales: 12 bytes │ qh: 32 bytes │ qs: 128 bytes
//! w = d * scale[s] * q - dmin * min[s]
//! ```
//!
//! Like Q4_K, with a fifth bit: that of weight `l` of sub-block `s` is bit `s` of byte `l` of `qh`.

use super::q4_k::{HEAD, decode_scales, encode_scales, head_of};
use super::round::to_code;

pub(crate) const LEN: usize = 256;
pub(crate) const BYTES: usize = 176;
pub(crate) const QH: usize = HEAD;
pub(crate) const QS: usize = QH + 32;
const _: () = assert!(BYTES == QS + LEN / 2);

#[inline(always)]
pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let subs = decode_scales(head_of(block));
    for c in 0..4 {
        let ((scale, min), (scale_2, min_2)) = (subs[2 * c], subs[2 * c + 1]);
        for l in 0..32 {
            let (q, high) = (block[QS + 32 * c + l], block[QH + l] >> (2 * c));
            out[64 * c + l] = scale * f32::from(q & 15 | (high & 1) << 4) - min;
            out[64 * c + 32 + l] = scale_2 * f32::from(q >> 4 | (high & 2) << 3) - min_2;
        }
    }
}

#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    let (head, factors) = encode_scales(x, 31.0);
    let mut block = [0; BYTES];
    block[..HEAD].copy_from_slice(&head);
    let subs = x.as_chunks::<32>().0;
    for c in 0..4 {
        let ((low, low_min), (high, high_min)) = (factors[2 * c], factors[2 * c + 1]);
        let (x_low, x_high) = (&subs[2 * c], &subs[2 * c + 1]);
        for l in 0..32 {
            let q = to_code(x_low[l] * low + low_min, 31.0);
            let q_2 = to_code(x_high[l] * high + high_min, 31.0);
            block[QS + 32 * c + l] = (q & 15 | (q_2 & 15) << 4) as u8;
            block[QH + l] |= ((q >> 4 | q_2 >> 4 << 1) << (2 * c)) as u8;
        }
    }
    block
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{BYTES, LEN, QH, QS};
    use crate::lanes::{
        I32x8, and, f16, halves, load_u8, mul_sub, or, piece, shift_left, shift_right_by, splat,
        splat_int, store, to_floats,
    };
    use crate::quant::q4_k::eight_lanes::decode_sub_blocks;
    use crate::quant::q4_k::{head_of, unpack_scales};

    /// The codes of weights `8i..` of sub-blocks `2c` and `2c + 1`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn codes(block: &[u8; BYTES], c: usize, i: usize) -> [I32x8; 2] {
        let [low, high] = halves(load_u8(piece(block, QS + 32 * c + 8 * i)));
        let bits = load_u8(piece(block, QH + 8 * i));
        let bits = shift_right_by(bits, 2 * c as i32);
        let fifth = shift_left::<4>(and(bits, splat_int(1)));
        let fifth_2 = shift_left::<3>(and(bits, splat_int(2)));
        [or(low, fifth), or(high, fifth_2)]
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        decode_sub_blocks!(block, out);
    }
}
