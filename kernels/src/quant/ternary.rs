//! The ternary formats: every weight is -1, 0 or 1 times a scale.
//!
//! ```text
//! TQ1_0, 256 weights in 54 bytes   qs: 48 bytes │ qh: 4 bytes │ d: f16
//! TQ2_0, 256 weights in 66 bytes   qs: 64 bytes │ d: f16
//! I2_S,  a whole tensor            n / 4 bytes of codes │ scale: f32 │ 28 bytes of nothing
//! ```
//!
//! A code is the weight plus one. TQ2_0 and I2_S pack four codes in a byte, in opposite orders: the first is the lowest
//! bit pair in TQ2_0 and the highest in I2_S.
//!
//! TQ1_0 packs five digits in a byte that holds the fraction `0.abcde` in base 3, in 256ths. Multiplying by 3 moves the
//! next digit before the point. Multiplying by 3^n modulo 256, and then by 3 once more, moves digit `n` there.

use super::half::{f16_at, f32_to_f16};
use super::round::inverse;

/// For TQ1_0 and TQ2_0.
pub(crate) const LEN: usize = 256;
pub(crate) const TQ1_0_BYTES: usize = 54;
pub(crate) const TQ2_0_BYTES: usize = 66;
const _: () = assert!(TQ1_0_BYTES == 48 + 4 + 2 && 48 * 5 + 4 * 4 == LEN);
const _: () = assert!(TQ2_0_BYTES == LEN / 4 + 2);

/// How many weights of I2_S are interleaved.
pub(crate) const I2_S_LEN: usize = 128;
pub(crate) const I2_S_BYTES: usize = 32;
/// The size of what follows the codes of an I2_S tensor: its scale and padding.
pub(crate) const I2_S_TAIL: usize = 32;
const _: () = assert!(I2_S_BYTES == I2_S_LEN / 4);

const POWERS_OF_3: [u8; 5] = [1, 3, 9, 27, 81];

#[inline(always)]
fn trit(byte: u8, n: usize) -> f32 {
    let rest = byte.wrapping_mul(POWERS_OF_3[n]);
    f32::from(((u16::from(rest) * 3) >> 8) as i16 - 1)
}

/// Three runs: 32 bytes of five weights, 16 bytes of five, 4 bytes of four. In each run the first
/// digits of all its bytes come first.
#[inline(always)]
pub(crate) fn decode_tq1_0(block: &[u8; TQ1_0_BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 52);
    for n in 0..5 {
        for m in 0..32 {
            out[32 * n + m] = d * trit(block[m], n);
        }
        for m in 0..16 {
            out[160 + 16 * n + m] = d * trit(block[32 + m], n);
        }
    }
    for n in 0..4 {
        for m in 0..4 {
            out[240 + 4 * n + m] = d * trit(block[48 + m], n);
        }
    }
}

/// Two runs of 32 bytes; in each, the lowest pairs of bits of all its bytes come first.
#[inline(always)]
pub(crate) fn decode_tq2_0(block: &[u8; TQ2_0_BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 64);
    for run in 0..2 {
        for l in 0..4 {
            for m in 0..32 {
                let code = (block[32 * run + m] >> (2 * l)) & 3;
                out[128 * run + 32 * l + m] = d * (i32::from(code) - 1) as f32;
            }
        }
    }
}

/// The highest pairs of bits of all 32 bytes come first.
#[inline(always)]
pub(crate) fn decode_i2_s(block: &[u8; I2_S_BYTES], scale: f32, out: &mut [f32; I2_S_LEN]) {
    for l in 0..4 {
        for m in 0..32 {
            let code = (block[m] >> (6 - 2 * l)) & 3;
            out[32 * l + m] = scale * (i32::from(code) - 1) as f32;
        }
    }
}

/// The scale of an I2_S tensor, from the bytes after its codes.
pub(crate) fn i2_s_scale(tail: &[u8]) -> f32 {
    f32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]])
}

/// 0, 1 or 2: the nearest of -1, 0 and 1 times the scale, plus one.
#[inline(always)]
fn code(x: f32, inverse: f32) -> u8 {
    (((x * inverse).round() as i32).clamp(-1, 1) + 1) as u8
}

fn scale_and_inverse(x: &[f32]) -> (f32, f32) {
    let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    (largest, inverse(1.0, largest))
}

pub(crate) fn encode_tq1_0(x: &[f32; LEN]) -> [u8; TQ1_0_BYTES] {
    let (d, inverse) = scale_and_inverse(x);
    // Five base-3 digits as a fraction of 256, rounded up so that multiplying restores them.
    let pack = |at: usize, stride: usize, n: usize| {
        let digits = (0..5).fold(0u16, |q, i| {
            3 * q + if i < n { u16::from(code(x[at + stride * i], inverse)) } else { 0 }
        });
        (digits * 256).div_ceil(243) as u8
    };
    let mut block = [0; TQ1_0_BYTES];
    for (m, byte) in block.iter_mut().take(52).enumerate() {
        *byte = match m {
            0..32 => pack(m, 32, 5),
            32..48 => pack(160 + m - 32, 16, 5),
            _ => pack(240 + m - 48, 4, 4),
        };
    }
    block[52..].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    block
}

pub(crate) fn encode_tq2_0(x: &[f32; LEN]) -> [u8; TQ2_0_BYTES] {
    let (d, inverse) = scale_and_inverse(x);
    let mut block = [0; TQ2_0_BYTES];
    for (i, x) in x.iter().enumerate() {
        let (run, l, m) = (i / 128, i / 32 % 4, i % 32);
        block[32 * run + m] |= code(*x, inverse) << (2 * l);
    }
    block[64..].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    block
}

pub(crate) fn encode_i2_s(x: &[f32; I2_S_LEN], scale: f32) -> [u8; I2_S_BYTES] {
    let inverse = inverse(1.0, scale);
    let mut block = [0; I2_S_BYTES];
    for (i, x) in x.iter().enumerate() {
        block[i % 32] |= code(*x, inverse) << (6 - 2 * (i / 32));
    }
    block
}
