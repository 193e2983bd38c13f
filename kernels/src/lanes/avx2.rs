//! Eight lanes in one register, with AVX2, FMA and F16C.

use std::arch::x86_64::*;

use super::PREFETCH_BYTES;

/// Eight floats.
pub(crate) type F32x8 = __m256;

/// Eight 32-bit integers.
pub(crate) type I32x8 = __m256i;

/// The result of comparing eight lanes.
pub(crate) type Mask = __m256;

// Functions that compile to at most one instruction.
macro_rules! same_as {
    ($($(#[$doc:meta])* fn $name:ident($($x:ident: $in:ty),*) -> $out:ty = $intrinsic:expr;)*) => {
        $($(#[$doc])*
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        pub(crate) fn $name($($x: $in),*) -> $out {
            $intrinsic
        })*
    };
}

same_as! {
    /// 0 in each lane.
    fn zero() -> F32x8 = _mm256_setzero_ps();
    /// `x` in each lane.
    fn splat(x: f32) -> F32x8 = _mm256_set1_ps(x);
    /// `a + b`.
    fn add(a: F32x8, b: F32x8) -> F32x8 = _mm256_add_ps(a, b);
    /// `a - b`.
    fn sub(a: F32x8, b: F32x8) -> F32x8 = _mm256_sub_ps(a, b);
    /// `a * b`.
    fn mul(a: F32x8, b: F32x8) -> F32x8 = _mm256_mul_ps(a, b);
    /// `a / b`.
    fn div(a: F32x8, b: F32x8) -> F32x8 = _mm256_div_ps(a, b);
    /// `a * b + c`, rounded once.
    fn mul_add(a: F32x8, b: F32x8, c: F32x8) -> F32x8 = _mm256_fmadd_ps(a, b, c);
    /// `a * b - c`, rounded once.
    fn mul_sub(a: F32x8, b: F32x8, c: F32x8) -> F32x8 = _mm256_fmsub_ps(a, b, c);
    /// `c - a * b`, rounded once.
    fn neg_mul_add(a: F32x8, b: F32x8, c: F32x8) -> F32x8 = _mm256_fnmadd_ps(a, b, c);
    /// `a * b - c` in lanes 0, 2, 4 and 6, and `a * b + c` in the others.
    fn mul_sub_add(a: F32x8, b: F32x8, c: F32x8) -> F32x8 = _mm256_fmaddsub_ps(a, b, c);
    /// The larger; `b` where either is NaN.
    fn max(a: F32x8, b: F32x8) -> F32x8 = _mm256_max_ps(a, b);
    /// The smaller; `b` where either is NaN.
    fn min(a: F32x8, b: F32x8) -> F32x8 = _mm256_min_ps(a, b);
    /// The nearest integer, ties to even.
    fn round(x: F32x8) -> F32x8 =
        _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
    /// Neighbours swapped: `b a d c f e h g`.
    fn swap_pairs(x: F32x8) -> F32x8 = _mm256_permute_ps::<0b10_11_00_01>(x);
    /// True where `a < b`; false where either is NaN.
    fn less(a: F32x8, b: F32x8) -> Mask = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
    /// `x`, but 0 where `mask` is true.
    fn zero_where(mask: Mask, x: F32x8) -> F32x8 = _mm256_andnot_ps(mask, x);
    /// `a` where `mask` is true, else `b`.
    fn choose(mask: Mask, a: F32x8, b: F32x8) -> F32x8 = _mm256_blendv_ps(b, a, mask);

    /// `x` in each lane.
    fn splat_int(x: i32) -> I32x8 = _mm256_set1_epi32(x);
    /// `a + b`.
    fn add_int(a: I32x8, b: I32x8) -> I32x8 = _mm256_add_epi32(a, b);
    /// `a - b`.
    fn sub_int(a: I32x8, b: I32x8) -> I32x8 = _mm256_sub_epi32(a, b);
    /// `a * b`, for products that fit in 16 unsigned bits.
    fn mul_u16(a: I32x8, b: I32x8) -> I32x8 = _mm256_mullo_epi16(a, b);
    /// Bitwise and.
    fn and(a: I32x8, b: I32x8) -> I32x8 = _mm256_and_si256(a, b);
    /// Bitwise or.
    fn or(a: I32x8, b: I32x8) -> I32x8 = _mm256_or_si256(a, b);
    /// Each lane shifted by `by` bits to the right, filling with zeros.
    fn shift_right_by(x: I32x8, by: i32) -> I32x8 = _mm256_srlv_epi32(x, _mm256_set1_epi32(by));
    /// Integers as floats of the same value.
    fn to_floats(x: I32x8) -> F32x8 = _mm256_cvtepi32_ps(x);
    /// Floats that are whole numbers, as integers.
    fn to_ints(x: F32x8) -> I32x8 = _mm256_cvtps_epi32(x);
    /// The floats with these bits.
    fn from_bits(x: I32x8) -> F32x8 = _mm256_castsi256_ps(x);
    /// The bytes of `bytes` as integers, the lowest first.
    fn bytes_of(bytes: u64) -> I32x8 = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes as i64));
    /// Four unsigned bytes as integers, in both halves.
    fn four_bytes_twice(bytes: [u8; 4]) -> I32x8 =
        _mm256_cvtepu8_epi32(_mm_set1_epi32(i32::from_le_bytes(bytes)));
    /// `low` in the lower four lanes, `high` in the others.
    fn splat_halves(low: i32, high: i32) -> I32x8 =
        _mm256_setr_epi32(low, low, low, low, high, high, high, high);
}

/// Each lane shifted to the left.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn shift_left<const BITS: i32>(x: I32x8) -> I32x8 {
    _mm256_slli_epi32::<BITS>(x)
}

/// Each lane shifted to the right, filling with zeros.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn shift_right<const BITS: i32>(x: I32x8) -> I32x8 {
    _mm256_srli_epi32::<BITS>(x)
}

/// Eight floats.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn load(x: &[f32; 8]) -> F32x8 {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

/// Writes eight floats.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn store(out: &mut [f32; 8], v: F32x8) {
    // SAFETY: the array has the 32 bytes that are written; `storeu` needs no alignment.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) }
}

/// Four floats, each twice: `a a b b c c d d`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn load4_twice(x: &[f32; 4]) -> F32x8 {
    // SAFETY: the array has the 16 bytes that are read; `loadu` needs no alignment.
    let four = unsafe { _mm_loadu_ps(x.as_ptr()) };
    let twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four), twice)
}

/// Writes four floats.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn store4(out: &mut [f32; 4], v: __m128) {
    // SAFETY: the array has the 16 bytes that are written; `storeu` needs no alignment.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), v) }
}

/// Eight little-endian floats from a file's bytes.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn load_f32_bytes(bytes: &[u8; 32]) -> F32x8 {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm256_loadu_ps(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn load_16_bytes(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array has the 16 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn load_8_bytes(bytes: &[u8; 8]) -> __m128i {
    // SAFETY: `loadl` reads the eight bytes of the array; it needs no alignment.
    unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) }
}

/// Eight half floats as floats.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn load_f16_bytes(bytes: &[u8; 16]) -> F32x8 {
    _mm256_cvtph_ps(load_16_bytes(bytes))
}

/// Eight brain floats as floats.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn load_bf16_bytes(bytes: &[u8; 16]) -> F32x8 {
    let wide = _mm256_cvtepu16_epi32(load_16_bytes(bytes));
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
}

/// Eight unsigned bytes as 32-bit integers.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn load_u8(bytes: &[u8; 8]) -> I32x8 {
    _mm256_cvtepu8_epi32(load_8_bytes(bytes))
}

/// Eight signed bytes as 32-bit integers.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn load_i8(bytes: &[u8; 8]) -> I32x8 {
    _mm256_cvtepi8_epi32(load_8_bytes(bytes))
}

/// The lower and the upper four bits of bytes.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn halves(bytes: I32x8) -> [I32x8; 2] {
    [_mm256_and_si256(bytes, _mm256_set1_epi32(15)), _mm256_srli_epi32::<4>(bytes)]
}

/// Eight lanes: 16 where the bit of the lane's number is set, otherwise 0.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn fifth_bits(bits: u32) -> I32x8 {
    let each = _mm256_set1_epi32(bits.cast_signed());
    let shifted = _mm256_srlv_epi32(each, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    _mm256_slli_epi32::<4>(_mm256_and_si256(shifted, _mm256_set1_epi32(1)))
}

/// A half float in the file's byte order.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn f16(bytes: [u8; 2]) -> f32 {
    let half = _mm_cvtsi32_si128(i32::from(u16::from_le_bytes(bytes)));
    _mm_cvtss_f32(_mm_cvtph_ps(half))
}

/// Prefetches the cache line `BYTES` past the beginning of `data`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn prefetch<const BYTES: usize, T>(data: &[T]) {
    prefetch_as::<BYTES, T, _MM_HINT_T0>(data);
}

/// Prefetches the line 1 KiB past `data`, one of four streams read in step, into the second-level cache: on Zen 4 that is
/// 5 to 25 % faster than into the first.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn prefetch_ahead_of_four<T>(data: &[T]) {
    prefetch_as::<{ PREFETCH_BYTES / 4 }, T, _MM_HINT_T1>(data);
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
#[allow(unused_unsafe, reason = "older standard libraries call the prefetch unsafe")]
fn prefetch_as<const BYTES: usize, T, const HINT: i32>(data: &[T]) {
    let ahead = data.as_ptr().cast::<u8>().wrapping_add(BYTES);
    // SAFETY: a prefetch is a hint. It reads nothing that the program could see and doesn't fault,
    // wherever it points.
    unsafe { _mm_prefetch::<HINT>(ahead.cast()) }
}

/// The sum of eight lanes, added in the same order as in [`sum4`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn sum(v: F32x8) -> f32 {
    let pairs = _mm256_hadd_ps(v, v);
    let fours = _mm256_hadd_ps(pairs, pairs);
    _mm_cvtss_f32(_mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours)))
}

/// The sums of the lanes of four vectors, at little more than the cost of one.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn sum4(v: [F32x8; 4]) -> [f32; 4] {
    let [a, b, c, d] = v;
    let fours = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let mut sums = [0.0; 4];
    store4(&mut sums, _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours)));
    sums
}
