//! Q4_0 rows. The layout is drawn in `quant/q4_0.rs`.
//!
//! A block contributes `d * (Σ q·x - 8 * Σ x)`. The sums of `x` are the same for all rows.

use std::arch::x86_64::*;

use super::avx2::sums;
use crate::lanes::{f16, load, load_u8, piece, prefetch_ahead, sum};
use crate::quant::q4_0::{BYTES, LEN};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &[f32]) {
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
                let d = f16(*piece(&pair[i], 0));
                acc[i] = _mm256_fmadd_ps(_mm256_set1_ps(d), products(&pair[i], &x[i]), acc[i]);
                offsets[i] = d.mul_add(x_sum[i], offsets[i]);
            }
        }
        for ((block, x), x_sum) in last.iter().zip(x_last).zip(sum_last) {
            let d = f16(*piece(block, 0));
            acc[0] = _mm256_fmadd_ps(_mm256_set1_ps(d), products(block, x), acc[0]);
            offsets[0] = d.mul_add(*x_sum, offsets[0]);
        }
        *out = sum(_mm256_add_ps(acc[0], acc[1])) - 8.0 * (offsets[0] + offsets[1]);
    }
}

/// `q·x`, eight sums of four.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn products(block: &[u8; BYTES], x: &[f32; LEN]) -> __m256 {
    let x = x.as_chunks::<8>().0;
    let low_half = _mm256_set1_epi32(15);
    let (mut low, mut high) = (_mm256_setzero_ps(), _mm256_setzero_ps());
    for i in 0..2 {
        let q = load_u8(piece(block, 2 + 8 * i));
        let q_low = _mm256_and_si256(q, low_half);
        let q_high = _mm256_srli_epi32::<4>(q);
        low = _mm256_fmadd_ps(_mm256_cvtepi32_ps(q_low), load(&x[i]), low);
        high = _mm256_fmadd_ps(_mm256_cvtepi32_ps(q_high), load(&x[i + 2]), high);
    }
    _mm256_add_ps(low, high)
}
