//! Rows of the ternary formats. The layouts are drawn in `quant/ternary.rs`.
//!
//! A code is the weight plus one, so a block contributes `d * (Σ code·x - Σ x)`, with sums of `x`
//! that are the same for all rows.

use std::arch::x86_64::*;

use super::avx2::sums;
use crate::lanes::{f16, load, load_u8, piece, prefetch_ahead, sum};
use crate::quant::ternary::{I2_S_BYTES, I2_S_LEN, LEN, TQ1_0_BYTES, TQ2_0_BYTES};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gemv_tq2_0(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    let x_sums = sums::<LEN>(x);
    let x = x.as_chunks::<LEN>().0;
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * TQ2_0_BYTES)) {
        let mut acc = _mm256_setzero_ps();
        let mut offset = 0.0;
        for ((block, x), x_sum) in row.as_chunks::<TQ2_0_BYTES>().0.iter().zip(x).zip(&x_sums) {
            prefetch_ahead(block);
            let d = f16(*piece(block, 64));
            let halves = x.as_chunks::<128>().0;
            let low = products(piece(block, 0), &halves[0], [0, 1, 2, 3]);
            let high = products(piece(block, 32), &halves[1], [0, 1, 2, 3]);
            acc = _mm256_fmadd_ps(_mm256_set1_ps(d), _mm256_add_ps(low, high), acc);
            offset = d.mul_add(*x_sum, offset);
        }
        *out = sum(acc) - offset;
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gemv_i2_s(out: &mut [f32], bytes: &[u8], scale: f32, x: &[f32]) {
    let x_sum: f32 = sums::<I2_S_LEN>(x).iter().sum();
    let x = x.as_chunks::<I2_S_LEN>().0;
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * I2_S_BYTES)) {
        let mut acc = [_mm256_setzero_ps(); 2];
        let (pairs, last) = row.as_chunks::<I2_S_BYTES>().0.as_chunks::<2>();
        let (x_pairs, x_last) = x.as_chunks::<2>();
        for (pair, x) in pairs.iter().zip(x_pairs) {
            prefetch_ahead(&pair[0]);
            acc[0] = _mm256_add_ps(acc[0], products(&pair[0], &x[0], [3, 2, 1, 0]));
            acc[1] = _mm256_add_ps(acc[1], products(&pair[1], &x[1], [3, 2, 1, 0]));
        }
        for (block, x) in last.iter().zip(x_last) {
            acc[0] = _mm256_add_ps(acc[0], products(block, x, [3, 2, 1, 0]));
        }
        *out = scale * (sum(_mm256_add_ps(acc[0], acc[1])) - x_sum);
    }
}

/// `code·x` for 128 weights in 32 bytes, eight sums of sixteen. Run `i` of 32 weights has its codes in
/// the pair of bits `order[i]`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn products(codes: &[u8; 32], x: &[f32; 128], order: [usize; 4]) -> __m256 {
    let x = x.as_chunks::<8>().0;
    let pair = _mm256_set1_epi32(3);
    let mut acc = [_mm256_setzero_ps(); 4];
    for i in 0..4 {
        let byte = load_u8(piece(codes, 8 * i));
        let pairs = [
            _mm256_and_si256(byte, pair),
            _mm256_and_si256(_mm256_srli_epi32::<2>(byte), pair),
            _mm256_and_si256(_mm256_srli_epi32::<4>(byte), pair),
            _mm256_srli_epi32::<6>(byte),
        ];
        for run in 0..4 {
            let code = _mm256_cvtepi32_ps(pairs[order[run]]);
            acc[run] = _mm256_fmadd_ps(code, load(&x[4 * run + i]), acc[run]);
        }
    }
    let [a, b, c, d] = acc;
    _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gemv_tq1_0(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    let x_sums = sums::<LEN>(x);
    let x = x.as_chunks::<LEN>().0;
    // The four bytes of the last run fill half the lanes. The other half is one digit ahead.
    let one_ahead = _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3);
    let low_byte = _mm256_set1_epi32(0xff);
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * TQ1_0_BYTES)) {
        let mut acc = _mm256_setzero_ps();
        let mut offset = 0.0;
        for ((block, x), x_sum) in row.as_chunks::<TQ1_0_BYTES>().0.iter().zip(x).zip(&x_sums) {
            prefetch_ahead(block);
            let x = x.as_chunks::<8>().0;
            let mut runs = [_mm256_setzero_ps(); 4];
            for i in 0..4 {
                let mut digits = load_u8(piece(block, 8 * i));
                for n in 0..5 {
                    let (code, rest) = next_digit(digits);
                    runs[i] = _mm256_fmadd_ps(code, load(&x[4 * n + i]), runs[i]);
                    digits = rest;
                }
            }
            for i in 0..2 {
                let mut digits = load_u8(piece(block, 32 + 8 * i));
                for n in 0..5 {
                    let (code, rest) = next_digit(digits);
                    runs[i] = _mm256_fmadd_ps(code, load(&x[20 + 2 * n + i]), runs[i]);
                    digits = rest;
                }
            }
            let last = i32::from_le_bytes(*piece(block, 48));
            let twice = _mm256_cvtepu8_epi32(_mm_set1_epi32(last));
            let digits = _mm256_and_si256(_mm256_mullo_epi16(twice, one_ahead), low_byte);
            let (code, rest) = next_digit(digits);
            runs[2] = _mm256_fmadd_ps(code, load(&x[30]), runs[2]);
            let two_ahead = _mm256_mullo_epi16(rest, _mm256_set1_epi32(3));
            let (code, _) = next_digit(_mm256_and_si256(two_ahead, low_byte));
            runs[3] = _mm256_fmadd_ps(code, load(&x[31]), runs[3]);

            let d = f16(*piece(block, 52));
            let [a, b, c, e] = runs;
            let total = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, e));
            acc = _mm256_fmadd_ps(_mm256_set1_ps(d), total, acc);
            offset = d.mul_add(*x_sum, offset);
        }
        *out = sum(acc) - offset;
    }
}

/// The digit in base 3 that comes next in eight fractions of 256ths, and what follows it: three times
/// the fraction is the digit and the rest.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn next_digit(fractions: __m256i) -> (__m256, __m256i) {
    let three_times = _mm256_add_epi32(fractions, _mm256_slli_epi32::<1>(fractions));
    let digit = _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(three_times));
    (digit, _mm256_and_si256(three_times, _mm256_set1_epi32(0xff)))
}
