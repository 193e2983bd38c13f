//! Rows of Q4_K and Q5_K. The layouts are drawn in `quant/q4_k.rs` and `quant/q5_k.rs`.
//!
//! A sub-block contributes `d * scale * Σ q·x - dmin * min * Σ x`. The sums of `x` are the same for
//! all rows, so the minimums of a whole block cost one multiply-add.

use std::arch::x86_64::*;

use super::avx2::sums;
use crate::lanes::{f16, load, piece, prefetch_ahead, store, sum};
use crate::quant::q4_k::{head_of, unpack_scales};

/// A macro, because a function that is passed in isn't inlined where the target feature would have to come
/// from its caller.
macro_rules! gemv {
    ($name:ident, $format:ident, $lines:expr) => {
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &[f32]) {
            use crate::quant::$format::avx2::codes;
            use crate::quant::$format::{BYTES, LEN};

            let x_sums = sums::<32>(x);
            let (x, x_sums) = (x.as_chunks::<LEN>().0, x_sums.as_chunks::<8>().0);
            for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * BYTES)) {
                let mut acc = [_mm256_setzero_ps(); 2];
                let mut mins_acc = _mm256_setzero_ps();
                for ((block, x), x_sums) in row.as_chunks::<BYTES>().0.iter().zip(x).zip(x_sums) {
                    for line in $lines {
                        prefetch_ahead(&block[line..]);
                    }
                    let (d, dmin) = (f16(*piece(block, 0)), f16(*piece(block, 2)));
                    let (scales, mins) = unpack_scales(head_of(block));
                    let mins = _mm256_mul_ps(eight_bytes(mins), _mm256_set1_ps(dmin));
                    mins_acc = _mm256_fmadd_ps(mins, load(x_sums), mins_acc);
                    let mut scale = [0.0; 8];
                    store(&mut scale, _mm256_mul_ps(eight_bytes(scales), _mm256_set1_ps(d)));

                    let x = x.as_chunks::<8>().0;
                    for c in 0..4 {
                        let (mut low, mut high) = (_mm256_setzero_ps(), _mm256_setzero_ps());
                        for i in 0..4 {
                            let [q_low, q_high] = codes(block, c, i);
                            let (q_low, q_high) =
                                (_mm256_cvtepi32_ps(q_low), _mm256_cvtepi32_ps(q_high));
                            low = _mm256_fmadd_ps(q_low, load(&x[8 * c + i]), low);
                            high = _mm256_fmadd_ps(q_high, load(&x[8 * c + 4 + i]), high);
                        }
                        acc[0] = _mm256_fmadd_ps(_mm256_set1_ps(scale[2 * c]), low, acc[0]);
                        acc[1] = _mm256_fmadd_ps(_mm256_set1_ps(scale[2 * c + 1]), high, acc[1]);
                    }
                }
                *out = sum(_mm256_sub_ps(_mm256_add_ps(acc[0], acc[1]), mins_acc));
            }
        }
    };
}

gemv!(gemv_q4_k, q4_k, [0, 64, 128]);
gemv!(gemv_q5_k, q5_k, [0, 64, 128]);

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn eight_bytes(bytes: u64) -> __m256 {
    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes as i64)))
}
