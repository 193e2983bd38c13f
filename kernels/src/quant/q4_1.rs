//! Q4_1: 32 weights in 20 bytes.
//!
//! ```text
//! d: f16 │ m: f16 │ qs: 16 bytes, weight j in the low half of byte j, weight j + 16 in the high half
//! w = d * q + m
//! ```

use super::half::f16_at;
use super::packed;

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

#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    packed::encode_with_minimum(x, 15)
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    pub(crate) use crate::quant::packed::eight_lanes::{
        codes_of_4_bits as codes, scale_and_minimum as scale,
    };
}
