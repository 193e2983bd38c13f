//! Q8_0: 32 weights in 34 bytes.
//!
//! ```text
//! d: f16 │ qs: 32 signed bytes
//! w = d * q
//! ```

use super::half::{f16_at, f32_to_f16};
use super::round::{inverse, largest_magnitude, nearest};

pub(crate) const LEN: usize = 32;
pub(crate) const BYTES: usize = 34;
const _: () = assert!(BYTES == 2 + LEN);

#[inline(always)]
pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (out, q) in out.iter_mut().zip(&block[2..]) {
        *out = d * f32::from(*q as i8);
    }
}

#[inline(always)]
pub(crate) fn encode(x: &[f32; LEN]) -> [u8; BYTES] {
    let largest = largest_magnitude(x);
    let inverse = inverse(127.0, largest);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f32_to_f16(largest / 127.0).to_le_bytes());
    for (q, x) in block[2..].iter_mut().zip(x) {
        *q = nearest(x * inverse) as u8;
    }
    block
}

/// Eight weights at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{BYTES, LEN};
    use crate::lanes::{f16, load_i8, mul, piece, splat, store, to_floats};

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let d = splat(f16(*piece(block, 0)));
        for (i, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
            let q = to_floats(load_i8(piece(block, 2 + 8 * i)));
            store(out, mul(d, q));
        }
    }
}
