//! Q4_K rows. The layout is drawn in `quant/q4_k.rs`.
//!
//! A sub-block contributes `d * scale * Σ q·x - dmin * min * Σ x`, and within a block all but `d` and `dmin`
//! are whole numbers. A lane's sum of four products is 4 · 15 · 127 at most, which fits into 16 bits: so the
//! sums of two sub-blocks become one vector, which is multiplied with the scales of both at once.

use std::arch::x86_64::*;

use crate::activations::Activations;
use crate::lanes::wide::{f16_everywhere, load_i8, load_i32, load_u8};
use crate::lanes::{f16, piece, prefetch_ahead, sum};
use crate::quant::q4_k::{BYTES, HEAD, LEN, head_of, unpack_scales};

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &Activations) {
    let (q, sums) = (x.q.as_chunks::<LEN>().0, x.sums.as_chunks::<8>().0);
    let nibble = _mm256_set1_epi8(15);
    let spread = [0, 1, 2, 3].map(|pair| scales_of_pair(2 * pair));
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(q.len() * BYTES)) {
        let (mut acc, mut mins_acc) = (_mm256_setzero_ps(), _mm256_setzero_ps());
        let x_blocks = q.iter().zip(sums).zip(&x.scales);
        for (block, ((q, sums), x_scale)) in row.as_chunks::<BYTES>().0.iter().zip(x_blocks) {
            for line in [0, 64, 128] {
                prefetch_ahead(&block[line..]);
            }
            let (scales, mins) = unpack_scales(head_of(block));
            let scales = _mm256_set1_epi64x(scales.cast_signed());
            let mins = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(mins.cast_signed()));
            let mins = _mm256_cvtepi32_ps(_mm256_mullo_epi32(mins, load_i32(sums)));
            let dmin = _mm256_set1_ps(f16(*piece(block, 2)) * x_scale);
            mins_acc = _mm256_fmadd_ps(dmin, mins, mins_acc);

            let q = q.as_chunks::<32>().0;
            let mut total = _mm256_setzero_si256();
            for c in 0..4 {
                let codes = load_u8(piece(block, HEAD + 32 * c));
                let low = _mm256_and_si256(codes, nibble);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), nibble);
                let zero = _mm256_setzero_si256();
                let low = _mm256_dpbusd_epi32(zero, low, load_i8(&q[2 * c]));
                let high = _mm256_dpbusd_epi32(zero, high, load_i8(&q[2 * c + 1]));
                let both = _mm256_packs_epi32(low, high);
                let scales = _mm256_shuffle_epi8(scales, spread[c]);
                total = _mm256_dpwssd_epi32(total, both, scales);
            }
            let d = _mm256_mul_ps(f16_everywhere(*piece(block, 0)), _mm256_set1_ps(*x_scale));
            acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(total), acc);
        }
        *out = sum(_mm256_sub_ps(acc, mins_acc));
    }
}

/// Which of eight bytes go where, so that `_mm256_packs_epi32` of the sums of sub-blocks `first` and the
/// next meets the scale of each: in both halves four of the one, then four of the other, in 16 bits each.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_of_pair(first: i16) -> __m256i {
    // The upper byte of each is set to zero.
    let (one, other) = (first | i16::MIN, (first + 1) | i16::MIN);
    _mm256_set_epi16(
        other, other, other, other, one, one, one, one, other, other, other, other, one, one, one,
        one,
    )
}
