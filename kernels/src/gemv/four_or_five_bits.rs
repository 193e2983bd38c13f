//! Rows of Q4_0, Q4_1, Q5_0 and Q5_1. The files of these names in `quant/` describe the layouts.
//!
//! A block contributes `d * Σ q·x + offset * Σ x`, where the offset is a multiple of `d` or the block's
//! minimum. The sums of `x` are the same for all rows.

use super::eight_lanes::sums;
use crate::lanes::{F32x8, add, load, mul_add, prefetch_ahead, splat, sum, to_floats, zero};

// A macro, because a function that is passed in isn't inlined where the target feature would have to come from its
// caller.
macro_rules! gemv {
    ($name:ident, $format:ident) => {
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
        #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &[f32]) {
            use crate::quant::$format::eight_lanes::{codes, scale};
            use crate::quant::$format::{BYTES, LEN};

            /// `q·x`, eight sums of four.
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
            #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
            #[inline]
            fn products(block: &[u8; BYTES], x: &[f32; LEN]) -> F32x8 {
                let x = x.as_chunks::<8>().0;
                let mut acc = [zero(); 2];
                for i in 0..2 {
                    let q = codes(block, i);
                    for half in 0..2 {
                        let q = to_floats(q[half]);
                        acc[half] = mul_add(q, load(&x[2 * half + i]), acc[half]);
                    }
                }
                add(acc[0], acc[1])
            }

            let x_sums = sums::<LEN>(x);
            let x = x.as_chunks::<LEN>().0;
            for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * BYTES)) {
                let blocks = row.as_chunks::<BYTES>().0;
                let (mut acc, mut offsets) = ([zero(); 2], [0.0; 2]);
                let (pairs, last) = blocks.as_chunks::<2>();
                let (x_pairs, x_last) = x.as_chunks::<2>();
                let (sum_pairs, sum_last) = x_sums.as_chunks::<2>();
                for ((pair, x), x_sum) in pairs.iter().zip(x_pairs).zip(sum_pairs) {
                    prefetch_ahead(&pair[0]);
                    for i in 0..2 {
                        let (d, offset) = scale(&pair[i]);
                        let d = splat(d);
                        acc[i] = mul_add(d, products(&pair[i], &x[i]), acc[i]);
                        offsets[i] = offset.mul_add(x_sum[i], offsets[i]);
                    }
                }
                for ((block, x), x_sum) in last.iter().zip(x_last).zip(sum_last) {
                    let (d, offset) = scale(block);
                    acc[0] = mul_add(splat(d), products(block, x), acc[0]);
                    offsets[0] = offset.mul_add(*x_sum, offsets[0]);
                }
                *out = sum(add(acc[0], acc[1])) + (offsets[0] + offsets[1]);
            }
        }
    };
}

gemv!(gemv_q4_0, q4_0);
gemv!(gemv_q4_1, q4_1);
gemv!(gemv_q5_0, q5_0);
gemv!(gemv_q5_1, q5_1);
