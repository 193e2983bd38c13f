//! Rows of Q4_0, Q4_1, Q5_0 and Q5_1. The layouts are drawn in `quant/`, in the files of these names.
//!
//! A block contributes `d * Σ q·x + offset * Σ x`, where the offset is a multiple of `d` or the block's
//! minimum. The sums of `x` are the same for all rows.

use std::arch::x86_64::*;

use super::avx2::sums;
use crate::lanes::{load, prefetch_ahead, sum};

/// A macro, because a function that is passed in isn't inlined where the target feature would have to come
/// from its caller.
macro_rules! gemv {
    ($name:ident, $format:ident) => {
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &[f32]) {
            use crate::quant::$format::avx2::{codes, scale};
            use crate::quant::$format::{BYTES, LEN};

            /// `q·x`, eight sums of four.
            #[target_feature(enable = "avx2,fma,f16c")]
            #[inline]
            fn products(block: &[u8; BYTES], x: &[f32; LEN]) -> __m256 {
                let x = x.as_chunks::<8>().0;
                let mut acc = [_mm256_setzero_ps(); 2];
                for i in 0..2 {
                    let q = codes(block, i);
                    for half in 0..2 {
                        let q = _mm256_cvtepi32_ps(q[half]);
                        acc[half] = _mm256_fmadd_ps(q, load(&x[2 * half + i]), acc[half]);
                    }
                }
                _mm256_add_ps(acc[0], acc[1])
            }

            let x_sums = sums::<LEN>(x);
            let x = x.as_chunks::<LEN>().0;
            for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * BYTES)) {
                let blocks = row.as_chunks::<BYTES>().0;
                let (mut acc, mut offsets) = ([_mm256_setzero_ps(); 2], [0.0; 2]);
                let (pairs, last) = blocks.as_chunks::<2>();
                let (x_pairs, x_last) = x.as_chunks::<2>();
                let (sum_pairs, sum_last) = x_sums.as_chunks::<2>();
                for ((pair, x), x_sum) in pairs.iter().zip(x_pairs).zip(sum_pairs) {
                    prefetch_ahead(&pair[0]);
                    for i in 0..2 {
                        let (d, offset) = scale(&pair[i]);
                        let d = _mm256_set1_ps(d);
                        acc[i] = _mm256_fmadd_ps(d, products(&pair[i], &x[i]), acc[i]);
                        offsets[i] = offset.mul_add(x_sum[i], offsets[i]);
                    }
                }
                for ((block, x), x_sum) in last.iter().zip(x_last).zip(sum_last) {
                    let (d, offset) = scale(block);
                    acc[0] = _mm256_fmadd_ps(_mm256_set1_ps(d), products(block, x), acc[0]);
                    offsets[0] = offset.mul_add(*x_sum, offsets[0]);
                }
                *out = sum(_mm256_add_ps(acc[0], acc[1])) + (offsets[0] + offsets[1]);
            }
        }
    };
}

gemv!(gemv_q4_0, q4_0);
gemv!(gemv_q4_1, q4_1);
gemv!(gemv_q5_0, q5_0);
gemv!(gemv_q5_1, q5_1);
