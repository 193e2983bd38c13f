//! Q8_0 rows. The layout is drawn in `quant/q8_0.rs`.

use std::arch::x86_64::*;

use crate::lanes::{f16, load, load_i8, piece, prefetch_ahead, sum};
use crate::quant::q8_0::{BYTES, LEN};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    let x = x.as_chunks::<LEN>().0;
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * BYTES)) {
        let blocks = row.as_chunks::<BYTES>().0;
        let mut acc = [_mm256_setzero_ps(); 2];
        let (pairs, last) = blocks.as_chunks::<2>();
        let (x_pairs, x_last) = x.as_chunks::<2>();
        for (pair, x) in pairs.iter().zip(x_pairs) {
            prefetch_ahead(&pair[0]);
            acc[0] = _mm256_fmadd_ps(scale(&pair[0]), products(&pair[0], &x[0]), acc[0]);
            acc[1] = _mm256_fmadd_ps(scale(&pair[1]), products(&pair[1], &x[1]), acc[1]);
        }
        for (block, x) in last.iter().zip(x_last) {
            acc[0] = _mm256_fmadd_ps(scale(block), products(block, x), acc[0]);
        }
        *out = sum(_mm256_add_ps(acc[0], acc[1]));
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn scale(block: &[u8; BYTES]) -> __m256 {
    _mm256_set1_ps(f16(*piece(block, 0)))
}

/// `q·x`, eight sums of four.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn products(block: &[u8; BYTES], x: &[f32; LEN]) -> __m256 {
    let x = x.as_chunks::<8>().0;
    let q = |i: usize| _mm256_cvtepi32_ps(load_i8(piece(block, 2 + 8 * i)));
    let a = _mm256_mul_ps(q(0), load(&x[0]));
    let b = _mm256_mul_ps(q(1), load(&x[1]));
    let a = _mm256_fmadd_ps(q(2), load(&x[2]), a);
    let b = _mm256_fmadd_ps(q(3), load(&x[3]), b);
    _mm256_add_ps(a, b)
}
