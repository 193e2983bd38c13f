//! Q4_K: 256 weights in 144 bytes, as eight sub-blocks of 32 with a scale and a minimum each.
//!
//! ```text
//! d: f16 │ dmin: f16 │ scales: 12 bytes │ qs: 128 bytes
//! w = d * scale[s] * q - dmin * min[s]
//! ```
//!
//! Byte `32c + l` of `qs` holds weight `64c + l` in its low half and `64c + 32 + l` in its high half. The 6-bit scales
//! and minimums of sub-blocks 0 to 3 are the low six bits of bytes 0-3 and 4-7 of `scales`. Those of sub-blocks 4 to 7
//! have their low four bits in bytes 8-11 (scale in the low half, minimum in the high half) and their upper two bits in
//! the upper two bits of the first eight bytes.

use super::half::{f16_at, f32_to_f16};
use super::round::{inverse, nearest, range, to_code};

pub(crate) const LEN: usize = 256;
pub(crate) const BYTES: usize = 144;
const _: () = assert!(BYTES == HEAD + LEN / 2);

/// The size of the head, which precedes the codes in Q4_K and Q5_K.
pub(crate) const HEAD: usize = 2 + 2 + 12;

/// The eight scales and the eight minimums in a block's head, one per byte, beginning with the lowest.
#[inline(always)]
pub(crate) fn unpack_scales(block: &[u8; HEAD]) -> (u64, u64) {
    const LOW_6: u32 = 0x3f3f_3f3f;
    const LOW_4: u32 = 0x0f0f_0f0f;
    const LOW_2: u32 = 0x0303_0303;
    let word =
        |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let (scales, mins, rest) = (word(4), word(8), word(12));
    let high_scales = (rest & LOW_4) | ((scales >> 6) & LOW_2) << 4;
    let high_mins = ((rest >> 4) & LOW_4) | ((mins >> 6) & LOW_2) << 4;
    (
        u64::from(scales & LOW_6) | u64::from(high_scales) << 32,
        u64::from(mins & LOW_6) | u64::from(high_mins) << 32,
    )
}

fn pack_scales(scales: [u8; 8], mins: [u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = scales[j] | (scales[j + 4] >> 4) << 6;
        packed[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
        packed[j + 8] = (scales[j + 4] & 15) | (mins[j + 4] & 15) << 4;
    }
    packed
}

#[inline(always)]
pub(crate) fn head_of<const BYTES: usize>(block: &[u8; BYTES]) -> &[u8; HEAD] {
    block.first_chunk().expect("a block begins with its head")
}

/// The scale and the minimum of each sub-block.
#[inline(always)]
pub(crate) fn decode_scales(head: &[u8; HEAD]) -> [(f32, f32); 8] {
    let (d, dmin) = (f16_at(head, 0), f16_at(head, 2));
    let (scales, mins) = unpack_scales(head);
    let (scales, mins) = (scales.to_le_bytes(), mins.to_le_bytes());
    std::array::from_fn(|s| (d * f32::from(scales[s]), dmin * f32::from(mins[s])))
}

#[inline(always)]
pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let subs = decode_scales(head_of(block));
    for c in 0..4 {
        let ((scale, min), (scale_2, min_2)) = (subs[2 * c], subs[2 * c + 1]);
        for l in 0..32 {
            let q = block[HEAD + 32 * c + l];
            out[64 * c + l] = scale * f32::from(q & 15) - min;
            out[64 * c + 32 + l] = scale_2 * f32::from(q >> 4) - min_2;
        }
    }
}

/// Encodes the head of a block whose codes go up to `most`. Also returns, for each sub-block, the factor and the summand
/// that turn a weight into its code. Each sub-block's range is from its minimum, or 0 if that is smaller, to its
/// maximum.
#[inline(always)]
pub(crate) fn encode_scales(x: &[f32; LEN], most: f32) -> ([u8; HEAD], [(f32, f32); 8]) {
    let (mut scales, mut mins) = ([0.0f32; 8], [0.0f32; 8]);
    for (s, sub) in x.as_chunks::<32>().0.iter().enumerate() {
        let (low, high) = range(sub);
        let low = low.min(0.0);
        scales[s] = (high - low).max(0.0) / most;
        mins[s] = -low;
    }
    // Six bits each, in units of 1/63 of the largest.
    let (d, packed_scales) = to_six_bits(scales);
    let (dmin, packed_mins) = to_six_bits(mins);
    let mut head = [0; HEAD];
    head[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    head[2..4].copy_from_slice(&f32_to_f16(dmin).to_le_bytes());
    head[4..].copy_from_slice(&pack_scales(packed_scales, packed_mins));
    // Uses the scales as a reader will decode them.
    let subs = decode_scales(&head).map(|(scale, min)| {
        let inverse = inverse(1.0, scale);
        (inverse, min * inverse)
    });
    (head, subs)
}

#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    let (head, factors) = encode_scales(x, 15.0);
    let mut block = [0; BYTES];
    block[..HEAD].copy_from_slice(&head);
    let subs = x.as_chunks::<32>().0;
    for c in 0..4 {
        let ((low, low_min), (high, high_min)) = (factors[2 * c], factors[2 * c + 1]);
        let (x_low, x_high) = (&subs[2 * c], &subs[2 * c + 1]);
        for l in 0..32 {
            let q = to_code(x_low[l] * low + low_min, 15.0);
            let q_2 = to_code(x_high[l] * high + high_min, 15.0);
            block[HEAD + 32 * c + l] = (q | q_2 << 4) as u8;
        }
    }
    block
}

#[inline(always)]
fn to_six_bits(values: [f32; 8]) -> (f32, [u8; 8]) {
    let largest = values.into_iter().fold(0.0, f32::max);
    let inverse = inverse(63.0, largest);
    (largest / 63.0, values.map(|v| nearest(v * inverse).clamp(0, 63) as u8))
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{BYTES, HEAD, LEN, head_of, unpack_scales};
    use crate::lanes::{I32x8, f16, halves, load_u8, mul_sub, piece, splat, store, to_floats};

    /// The codes of weights `8i..` of sub-blocks `2c` and `2c + 1`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn codes(block: &[u8; BYTES], c: usize, i: usize) -> [I32x8; 2] {
        halves(load_u8(piece(block, HEAD + 32 * c + 8 * i)))
    }

    /// Decodes a block of Q4_K or Q5_K with the function `codes` of the caller's module. A macro, because a function
    /// that is passed in isn't inlined where the target feature would have to come from its caller.
    macro_rules! decode_sub_blocks {
        ($block:ident, $out:ident) => {{
            let (d, dmin) = (f16(*piece($block, 0)), f16(*piece($block, 2)));
            let (scales, mins) = unpack_scales(head_of($block));
            let (scales, mins) = (scales.to_le_bytes(), mins.to_le_bytes());
            let out = $out.as_chunks_mut().0;
            for c in 0..4 {
                for i in 0..4 {
                    for (half, q) in codes($block, c, i).into_iter().enumerate() {
                        let s = 2 * c + half;
                        let scale = splat(d * f32::from(scales[s]));
                        let min = splat(dmin * f32::from(mins[s]));
                        let w = mul_sub(to_floats(q), scale, min);
                        store(&mut out[4 * s + i], w);
                    }
                }
            }
        }};
    }
    pub(crate) use decode_sub_blocks;

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        decode_sub_blocks!(block, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_scales_come_back() {
        let scales = [1, 63, 17, 32, 63, 5, 48, 21];
        let mins = [62, 0, 33, 9, 16, 63, 2, 47];
        let mut head = [0; HEAD];
        head[4..].copy_from_slice(&pack_scales(scales, mins));
        let (unpacked_scales, unpacked_mins) = unpack_scales(&head);
        assert_eq!(unpacked_scales.to_le_bytes(), scales);
        assert_eq!(unpacked_mins.to_le_bytes(), mins);
    }
}
