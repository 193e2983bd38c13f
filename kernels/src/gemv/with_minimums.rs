//! Rows of Q4_K and Q5_K. `quant/q4_k.rs` and `quant/q5_k.rs` describe the layouts.
//!
//! A sub-block contributes `d * scale * Σ q·x - dmin * min * Σ x`. The sums of `x` are the same for
//! all rows, so the minimums of a whole block cost one multiply-add.

use super::eight_lanes::sums;
use crate::lanes::{
    add, bytes_of, f16, load, mul, mul_add, piece, prefetch_ahead, splat, store, sub, sum,
    to_floats, zero,
};
use crate::quant::q4_k::{head_of, unpack_scales};

// A macro, because a function that is passed in isn't inlined where the target feature would have to come from its
// caller.
macro_rules! gemv {
    ($name:ident, $format:ident, $lines:expr) => {
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
        #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &[f32]) {
            use crate::quant::$format::eight_lanes::codes;
            use crate::quant::$format::{BYTES, LEN};

            let x_sums = sums::<32>(x);
            let (x, x_sums) = (x.as_chunks::<LEN>().0, x_sums.as_chunks::<8>().0);
            for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * BYTES)) {
                let mut acc = [zero(); 2];
                let mut mins_acc = zero();
                for ((block, x), x_sums) in row.as_chunks::<BYTES>().0.iter().zip(x).zip(x_sums) {
                    for line in $lines {
                        prefetch_ahead(&block[line..]);
                    }
                    let (d, dmin) = (f16(*piece(block, 0)), f16(*piece(block, 2)));
                    let (scales, mins) = unpack_scales(head_of(block));
                    let mins = mul(to_floats(bytes_of(mins)), splat(dmin));
                    mins_acc = mul_add(mins, load(x_sums), mins_acc);
                    let mut scale = [0.0; 8];
                    store(&mut scale, mul(to_floats(bytes_of(scales)), splat(d)));

                    let x = x.as_chunks::<8>().0;
                    for c in 0..4 {
                        let (mut low, mut high) = (zero(), zero());
                        for i in 0..4 {
                            let [q_low, q_high] = codes(block, c, i);
                            let (q_low, q_high) = (to_floats(q_low), to_floats(q_high));
                            low = mul_add(q_low, load(&x[8 * c + i]), low);
                            high = mul_add(q_high, load(&x[8 * c + 4 + i]), high);
                        }
                        acc[0] = mul_add(splat(scale[2 * c]), low, acc[0]);
                        acc[1] = mul_add(splat(scale[2 * c + 1]), high, acc[1]);
                    }
                }
                *out = sum(sub(add(acc[0], acc[1]), mins_acc));
            }
        }
    };
}

gemv!(gemv_q4_k, q4_k, [0, 64, 128]);
gemv!(gemv_q5_k, q5_k, [0, 64, 128]);
