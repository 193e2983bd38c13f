//! Q5_1: 32 weights in 24 bytes.
//!
//! ```text
//! d: f16 │ m: f16 │ qh: 4 bytes │ qs: 16 bytes
//! w = d * q + m
//! ```
//!
//! `packed.rs` describes `qh` and `qs`.

use super::half::f16_at;
use super::packed;

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

#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    packed::encode_with_minimum(x, 31)
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    pub(crate) use crate::quant::packed::eight_lanes::{
        codes_of_5_bits as codes, scale_and_minimum as scale,
    };
}
