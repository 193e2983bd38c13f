//! Q6_K rows. `quant/q6_k.rs` describes the layout.
//!
//! A sub-block contributes `d * scale * (Σ q·x - 32 * Σ x)`. The sums of `x` are the same for all
//! rows, so the offsets of a whole block cost two multiply-adds.

use super::eight_lanes::sums;
use crate::lanes::{
    add, f16, load, load_i8, mul, mul_add, neg_mul_add, piece, prefetch_ahead, splat, store, sum,
    to_floats, zero,
};
use crate::quant::q6_k::eight_lanes::codes;
use crate::quant::q6_k::{BYTES, D, LEN, SCALES};

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    let x_sums = sums::<16>(x);
    let (x, x_sums) = (x.as_chunks::<LEN>().0, x_sums.as_chunks::<16>().0);
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * BYTES)) {
        let mut acc = [zero(); 4];
        let mut offsets = zero();
        for ((block, x), x_sums) in row.as_chunks::<BYTES>().0.iter().zip(x).zip(x_sums) {
            for line in [0, 64, 128, 192] {
                prefetch_ahead(&block[line..]);
            }
            let d = splat(f16(*piece(block, D)));
            let mut scales = [[0.0; 8]; 2];
            for (h, scales) in scales.iter_mut().enumerate() {
                let eight = to_floats(load_i8(piece(block, SCALES + 8 * h)));
                let eight = mul(eight, d);
                offsets = mul_add(eight, load(&x_sums.as_chunks().0[h]), offsets);
                store(scales, eight);
            }

            let x = x.as_chunks::<8>().0;
            for h in 0..2 {
                // Sixteen weights of each quarter share a scale, hence two steps of eight.
                for is in 0..2 {
                    let mut quarter = [zero(); 4];
                    for step in 2 * is..2 * is + 2 {
                        let q = codes(block, h, step);
                        for i in 0..4 {
                            let x = load(&x[16 * h + 4 * i + step]);
                            quarter[i] = mul_add(to_floats(q[i]), x, quarter[i]);
                        }
                    }
                    for i in 0..4 {
                        let scale = splat(scales[h][is + 2 * i]);
                        acc[i] = mul_add(scale, quarter[i], acc[i]);
                    }
                }
            }
        }
        let [a, b, c, d] = acc;
        let total = add(add(a, b), add(c, d));
        *out = sum(neg_mul_add(splat(32.0), offsets, total));
    }
}
