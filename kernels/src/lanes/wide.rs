//! What the kernels for AVX-512 load and store besides.

use std::arch::x86_64::*;

/// 32 signed bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i8(bytes: &[i8; 32]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// 16 signed bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i8x16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array has the 16 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// 32 unsigned bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_u8(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Eight integers.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i32(x: &[i32; 8]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

/// Writes eight integers as bytes; one that doesn't fit becomes the nearest that does.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn store_i8x8(out: &mut [i8; 8], v: __m256i) {
    let bytes = _mm_cvtsi128_si64(_mm256_cvtsepi32_epi8(v));
    *out = bytes.to_le_bytes().map(|byte| byte.cast_signed());
}

/// A half float in the file's byte order, in all lanes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn f16_everywhere(bytes: [u8; 2]) -> __m256 {
    _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(bytes)))
}
