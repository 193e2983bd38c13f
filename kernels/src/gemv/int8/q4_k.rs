//! Q4_K rows. The layout is drawn in `quant/q4_k.rs`.
//!
//! A sub-block contributes `d * scale * Σ q·x - dmin * min * Σ x`, and within a block all but `d` and `dmin`
//! are whole numbers. A lane's sum of four products is 4 · 15 · 127 at most, which fits into 16 bits: so two
//! vectors of sums become one, which is multiplied with the scales of four sub-blocks at once.

use std::arch::x86_64::*;

use crate::activations::Activations;
use crate::lanes::wide::{f16_everywhere16, load_i8x64, load_i32, load_u8x64};
use crate::lanes::{f16, piece, prefetch_ahead, sum};
use crate::quant::q4_k::{BYTES, HEAD, LEN, head_of, unpack_scales};

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &Activations) {
    let q: Vec<Ordered> = x.q.as_chunks::<LEN>().0.iter().map(in_order_of_codes).collect();
    let sums = x.sums.as_chunks::<8>().0;
    let nibble = _mm512_set1_epi8(15);
    let spread = [scales_of_four(0), scales_of_four(4)];
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(q.len() * BYTES)) {
        let (mut acc, mut mins_acc) = (_mm512_setzero_ps(), _mm256_setzero_ps());
        let x_blocks = q.iter().zip(sums).zip(&x.scales);
        for (block, ((q, sums), x_scale)) in row.as_chunks::<BYTES>().0.iter().zip(x_blocks) {
            for line in [0, 64, 128] {
                prefetch_ahead(&block[line..]);
            }
            let (scales, mins) = unpack_scales(head_of(block));
            let scales = _mm512_set1_epi64(scales.cast_signed());
            let mins = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(mins.cast_signed()));
            let dmin = _mm256_set1_ps(f16(*piece(block, 2)) * x_scale);
            let mins = _mm256_cvtepi32_ps(_mm256_mullo_epi32(mins, load_i32(sums)));
            mins_acc = _mm256_fmadd_ps(dmin, mins, mins_acc);

            let zero = _mm512_setzero_si512();
            let mut total = zero;
            for (half, spread) in spread.iter().enumerate() {
                let codes = load_u8x64(piece(block, HEAD + 64 * half));
                let low = _mm512_and_si512(codes, nibble);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), nibble);
                let low = _mm512_dpbusd_epi32(zero, low, load_i8x64(&q.0[2 * half]));
                let high = _mm512_dpbusd_epi32(zero, high, load_i8x64(&q.0[2 * half + 1]));
                let both = _mm512_packs_epi32(low, high);
                total = _mm512_dpwssd_epi32(total, both, _mm512_shuffle_epi8(scales, *spread));
            }
            let d = _mm512_mul_ps(f16_everywhere16(*piece(block, 0)), _mm512_set1_ps(*x_scale));
            acc = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(total), acc);
        }
        *out = difference_of_sums(acc, mins_acc);
    }
}

/// The sum of the one less that of the other, for the price of one.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn difference_of_sums(a: __m512, b: __m256) -> f32 {
    let halves = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
    sum(_mm256_sub_ps(halves, b))
}

/// The activations of a block, in the order in which its codes come. Aligned, as a load that crosses a cache
/// line takes two.
#[repr(align(64))]
pub(super) struct Ordered(pub(super) [[i8; 64]; 4]);

/// 64 bytes of codes have two sub-blocks in their low halves, the first and the third of four, and the
/// others in their high halves.
pub(super) fn in_order_of_codes(q: &[i8; LEN]) -> Ordered {
    let subs = q.as_chunks::<32>().0;
    let mut ordered = [[0; 64]; 4];
    for (i, both) in ordered.iter_mut().enumerate() {
        let first = 4 * (i / 2) + i % 2;
        both[..32].copy_from_slice(&subs[first]);
        both[32..].copy_from_slice(&subs[first + 2]);
    }
    Ordered(ordered)
}

/// Which of eight bytes go where, so that `_mm512_packs_epi32` of the sums of low and of high halves meets
/// the scale of each, in 16 bits: four of the one and four of the other in each 128, of sub-blocks `first`
/// and the next in the lower 256, and of the two after them in the upper.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_of_four(first: i64) -> __m512i {
    // The upper byte of each is set to zero.
    let four = |sub: i64| (0x8000 | sub).wrapping_mul(0x0001_0001_0001_0001);
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| four(first + i));
    _mm512_set_epi64(d, c, d, c, b, a, b, a)
}
