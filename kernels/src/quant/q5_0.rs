//! Q5_0: 32 weights in 22 bytes.
//!
//! ```text
//! d: f16 │ qh: 4 bytes │ qs: 16 bytes
//! w = d * (q - 16)
//! ```
//!
//! `packed.rs` describes `qh` and `qs`.

use super::half::f16_at;
use super::packed;

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

#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    packed::encode_symmetric(x, 16)
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::BYTES;
    use crate::lanes::{f16, piece};
    pub(crate) use crate::quant::packed::eight_lanes::codes_of_5_bits as codes;

    /// `d`, and what is added to its multiples.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn scale(block: &[u8; BYTES]) -> (f32, f32) {
        let d = f16(*piece(block, 0));
        (d, -16.0 * d)
    }
}
