//! Q6_K rows. `quant/q6_k.rs` describes the layout.
//!
//! A sub-block of 16 contributes `d * scale * (Σ q·x - 32 * Σ x)`, and within a block everything but `d` is an integer. A
//! lane's sum of four products is at most 4 · 63 · 127, which fits in 16 bits: so two vectors of sums are packed into
//! one, which is multiplied with all four scales at once.

use std::arch::x86_64::*;

use crate::activations::Activations;
use crate::lanes::wide::{f16_everywhere, load_i8, load_i8x16, load_i32, load_u8};
use crate::lanes::{piece, prefetch_ahead, sum};
use crate::quant::q6_k::{BYTES, D, LEN, QH, SCALES};

/// Activations in the form that the loop reads.
#[derive(Debug)]
pub(super) struct Arranged {
    q: Vec<Aligned>,
    /// Of each sixteen.
    sums: Vec<i32>,
    scales: Vec<f32>,
}

pub(super) fn arrange(x: Activations) -> Arranged {
    let q = x.q.as_chunks::<LEN>().0.iter().map(|q| Aligned(*q)).collect();
    Arranged { q, sums: x.sums, scales: x.scales }
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &Arranged) {
    let q = &x.q;
    let sums = x.sums.as_chunks::<16>().0;
    let spread = [0, 4, 8, 12].map(|first| scales_of_pair(first));
    let (nibble, pair) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
    let zero = _mm256_setzero_si256();
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(q.len() * BYTES)) {
        let mut acc = _mm256_setzero_ps();
        let x_blocks = q.iter().zip(sums).zip(&x.scales);
        for (block, ((q, sums), x_scale)) in row.as_chunks::<BYTES>().0.iter().zip(x_blocks) {
            for line in [0, 64, 128, 192] {
                prefetch_ahead(&block[line..]);
            }
            let scales = _mm256_cvtepi8_epi16(load_i8x16(piece(block, SCALES)));
            let [low_sums, high_sums] = [0, 1].map(|i| load_i32(&sums.as_chunks::<8>().0[i]));
            let sums =
                _mm256_set_m128i(_mm256_cvtepi32_epi16(high_sums), _mm256_cvtepi32_epi16(low_sums));
            // Sums of 16 fit in 16 bits; 32 times their products with scales fit in 32.
            let offset = _mm256_slli_epi32::<5>(_mm256_madd_epi16(scales, sums));
            let mut total = _mm256_sub_epi32(zero, offset);

            let q = q.0.as_chunks::<32>().0;
            for h in 0..2 {
                let (a, b) = (load_u8(piece(block, 64 * h)), load_u8(piece(block, 64 * h + 32)));
                let high = load_u8(piece(block, QH + 32 * h));
                let codes = [
                    (_mm256_and_si256(a, nibble), _mm256_slli_epi16::<4>(high)),
                    (_mm256_and_si256(b, nibble), _mm256_slli_epi16::<2>(high)),
                    (_mm256_and_si256(_mm256_srli_epi16::<4>(a), nibble), high),
                    (
                        _mm256_and_si256(_mm256_srli_epi16::<4>(b), nibble),
                        _mm256_srli_epi16::<2>(high),
                    ),
                ];
                let mut dots = [zero; 4];
                for i in 0..4 {
                    let (low, high) = codes[i];
                    let code = _mm256_or_si256(low, _mm256_and_si256(high, pair));
                    dots[i] = _mm256_dpbusd_epi32(zero, code, load_i8(&q[4 * h + i]));
                }
                for i in 0..2 {
                    let both = _mm256_packs_epi32(dots[2 * i], dots[2 * i + 1]);
                    let scales = _mm256_permutexvar_epi16(spread[2 * h + i], scales);
                    total = _mm256_dpwssd_epi32(total, both, scales);
                }
            }
            let d = _mm256_mul_ps(f16_everywhere(*piece(block, D)), _mm256_set1_ps(*x_scale));
            acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(total), acc);
        }
        *out = sum(acc);
    }
}

/// The activations of a block, aligned because a load that crosses a cache line takes two.
#[derive(Debug)]
#[repr(align(64))]
struct Aligned([i8; LEN]);

/// The order of sixteen scales that matches `_mm256_packs_epi32` of the sums of 32 weights and of the next 32, whose
/// scales begin at `first`: the lower half has the first 16 weights of both, the upper half the others.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_of_pair(first: i16) -> __m256i {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| first + i);
    _mm256_set_epi16(d, d, d, d, b, b, b, b, c, c, c, c, a, a, a, a)
}
