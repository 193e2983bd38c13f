//! Q8_0 rows. The layout is drawn in `quant/q8_0.rs`.
//!
//! Codes are signed, and 128 more is made of each. What that adds to a lane's sum is taken off where the sum
//! begins.

use std::arch::x86_64::*;

use crate::activations::Activations;
use crate::lanes::wide::{f16_everywhere, load_i8, load_i32, load_u8};
use crate::lanes::{piece, prefetch_ahead, sum};
use crate::quant::q8_0::{BYTES, LEN};

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &Activations) {
    let begin: Vec<i32> = x.sums.iter().map(|sum| -128 * sum).collect();
    let begin = begin.as_chunks::<8>().0;
    let (q, scales) = (x.q.as_chunks::<LEN>().0, &x.scales[..]);
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(q.len() * BYTES)) {
        let mut acc = [_mm256_setzero_ps(); 2];
        let (pairs, last) = row.as_chunks::<BYTES>().0.as_chunks::<2>();
        let (q_pairs, q_last) = q.as_chunks::<2>();
        let (begin_pairs, begin_last) = begin.as_chunks::<2>();
        let (scale_pairs, scale_last) = scales.as_chunks::<2>();
        let x_pairs = q_pairs.iter().zip(begin_pairs).zip(scale_pairs);
        for (pair, ((q, begin), scale)) in pairs.iter().zip(x_pairs) {
            prefetch_ahead(&pair[0]);
            for i in 0..2 {
                let (scale, dot) = product(&pair[i], &q[i], &begin[i], scale[i]);
                acc[i] = _mm256_fmadd_ps(scale, dot, acc[i]);
            }
        }
        let x_last = q_last.iter().zip(begin_last).zip(scale_last);
        for (block, ((q, begin), scale)) in last.iter().zip(x_last) {
            let (scale, dot) = product(block, q, begin, *scale);
            acc[0] = _mm256_fmadd_ps(scale, dot, acc[0]);
        }
        *out = sum(_mm256_add_ps(acc[0], acc[1]));
    }
}

/// The scale of a block's products, and their sums by fours.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn product(block: &[u8; BYTES], q: &[i8; LEN], begin: &[i32; 8], scale: f32) -> (__m256, __m256) {
    let codes = _mm256_xor_si256(load_u8(piece(block, 2)), _mm256_set1_epi8(-128));
    let dot = _mm256_dpbusd_epi32(load_i32(begin), codes, load_i8(q));
    let scale = _mm256_mul_ps(f16_everywhere(*piece(block, 0)), _mm256_set1_ps(scale));
    (scale, _mm256_cvtepi32_ps(dot))
}
