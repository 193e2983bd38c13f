//! Loads, stores and sums of the AVX-512 kernels.

use std::arch::asm;
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

/// Eight 16-bit integers.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i16x8(x: &[i16; 8]) -> __m128i {
    // SAFETY: the array has the 16 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm_loadu_si128(x.as_ptr().cast()) }
}

/// 32 unsigned bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_u8(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// 64 signed bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i8x64(bytes: &[i8; 64]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// 64 unsigned bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_u8x64(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// 32 16-bit integers.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i16x32(x: &[i16; 32]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

/// Sixteen 32-bit integers.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i32x16(x: &[i32; 16]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

/// Sixteen floats.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_f32x16(x: &[f32; 16]) -> __m512 {
    // SAFETY: the array has the 64 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

/// Eight 32-bit integers.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_i32(x: &[i32; 8]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

/// Writes 64 bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn store_u8x64(out: &mut [u8; 64], v: __m512i) {
    // SAFETY: the array has the 64 bytes that are written; `storeu` needs no alignment.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
}

/// Writes sixteen floats.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn store_f32x16(out: &mut [f32; 16], v: __m512) {
    // SAFETY: the array has the 64 bytes that are written; `storeu` needs no alignment.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
}

/// Eight 64-bit integers.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_u64x8(x: &[u64; 8]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

/// Sixteen little-endian floats from a file's bytes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_f32_bytes(bytes: &[u8; 64]) -> __m512 {
    // SAFETY: the array has the 64 bytes that are read; `loadu` needs no alignment.
    unsafe { _mm512_loadu_ps(bytes.as_ptr().cast()) }
}

/// Sixteen half floats as floats.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_f16_bytes(bytes: &[u8; 32]) -> __m512 {
    _mm512_cvtph_ps(load_u8(bytes))
}

/// Sixteen brain floats as floats.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_bf16_bytes(bytes: &[u8; 32]) -> __m512 {
    let wide = _mm512_cvtepu16_epi32(load_u8(bytes));
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
}

/// Sixteen half floats, given by their bits, as floats.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn load_f16x16(bits: &[u16; 16]) -> __m512 {
    // SAFETY: the array has the 32 bytes that are read; `loadu` needs no alignment.
    let bits = unsafe { _mm256_loadu_si256(bits.as_ptr().cast()) };
    _mm512_cvtph_ps(bits)
}

/// Prefetches all cache lines of `bytes` into the first-level cache: on Zen 4, the second level hardly helped.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
#[allow(unused_unsafe, reason = "older standard libraries call the prefetch unsafe")]
pub(crate) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: a prefetch is a hint. It reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
    }
}

/// Where a loop prefetches to, as a constant that it is compiled with. This: nowhere.
pub(crate) const NOWHERE: u8 = 0;
/// Into the second-level cache.
pub(crate) const INTO_L2: u8 = 1;
/// Into the first-level cache.
pub(crate) const INTO_L1: u8 = 2;

/// How far ahead of a load interleaved weights are prefetched into the second-level cache, on Intel's processors, and into
/// the first, on Zen 5: of 1 to 32 KiB, the fastest in turns.
const AHEAD_INTO_L2: usize = 12 << 10;
const AHEAD_INTO_L1: usize = 6 << 10;

/// Prefetches the lines that come `AHEAD_INTO_…` bytes after these, if `TO` says where to. All at once: between two
/// prefetches, the compiler doesn't make an instruction load its operand by itself.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
#[allow(unused_unsafe, reason = "older standard libraries call the prefetch unsafe")]
pub(crate) fn prefetch_after<const TO: u8>(lines: &[[u8; 64]]) {
    for line in lines {
        // SAFETY: a prefetch is a hint. It reads nothing that the program could see and doesn't fault, wherever it
        // points.
        unsafe {
            match TO {
                INTO_L2 => _mm_prefetch::<_MM_HINT_T1>(ahead::<AHEAD_INTO_L2>(line)),
                INTO_L1 => _mm_prefetch::<_MM_HINT_NTA>(ahead::<AHEAD_INTO_L1>(line)),
                _ => (),
            }
        }
    }
}

fn ahead<const BYTES: usize>(line: &[u8; 64]) -> *const i8 {
    line.as_ptr().wrapping_add(BYTES).cast()
}

/// Keeps the compiler from computing this later, with what it is computed from in memory until then. Emits no
/// instruction.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn computed(v: __m512i) -> __m512i {
    let mut v = v;
    // SAFETY: the assembly is empty.
    unsafe { asm!("/* {0} */", inout(zmm_reg) v, options(nomem, nostack, preserves_flags)) };
    v
}

/// The twelve letters of this processor's maker.
#[allow(unused_unsafe, reason = "newer standard libraries call it safe")]
pub(crate) fn maker() -> [u8; 12] {
    // SAFETY: every 64-bit processor has this instruction.
    let words = unsafe { __cpuid(0) };
    let mut letters = [0; 12];
    for (of, word) in letters.as_chunks_mut().0.iter_mut().zip([words.ebx, words.edx, words.ecx]) {
        *of = word.to_le_bytes();
    }
    letters
}

/// Its family and model, with their extensions: `Fn0000_0001_EAX` in AMD's Architecture Programmer's Manual, volume 3.
#[allow(unused_unsafe, reason = "newer standard libraries call it safe")]
pub(crate) fn family_and_model() -> (u32, u32) {
    // SAFETY: every 64-bit processor has this instruction, and this leaf of it.
    let version = unsafe { __cpuid(1) }.eax;
    let bits = |from: u32, mask: u32| version >> from & mask;
    let extended = if bits(8, 0xf) == 0xf { bits(20, 0xff) } else { 0 };
    (bits(8, 0xf) + extended, bits(16, 0xf) << 4 | bits(4, 0xf))
}

/// Adds to each lane of `sum` the products of the two signed 16-bit integers in that lane of `a` and `b`.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn add_products_i16(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    let mut sum = sum;
    // Of the intrinsic the compiler makes a product and an addition.
    // SAFETY: the instruction reads and writes these registers only, and is in the features above.
    unsafe {
        asm!(
            "vpdpwssd {0}, {1}, {2}",
            inout(zmm_reg) sum,
            in(zmm_reg) a,
            in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Three times each byte, modulo 256.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn three_times(v: __m512i) -> __m512i {
    let mut twice = _mm512_add_epi8(v, v);
    // If the compiler saw 3 · 3 · x it would compute 9 · x, for which there is no instruction, so this hides the first
    // product from it.
    // SAFETY: the assembly is empty.
    unsafe {
        asm!("/* {0} */", inout(zmm_reg) twice, options(pure, nomem, nostack, preserves_flags))
    };
    _mm512_add_epi8(twice, v)
}

/// The sums of each four neighbouring lanes of four vectors: first those of each vector's first four, then of the next.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn sum_neighbours([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// Transposes sixteen rows of sixteen lanes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn transpose(rows: [__m512; 16]) -> [__m512; 16] {
    // In each quarter of the vectors, transpose four rows of four lanes, four adjacent rows at a time.
    let mut fours = [[_mm512_setzero_ps(); 4]; 4];
    for (fours, rows) in fours.iter_mut().zip(rows.as_chunks::<4>().0) {
        let [a, b, c, d] = *rows;
        let low = |a, b| _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
        let high = |a, b| _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        let (ab, cd) = (low(a, b), low(c, d));
        fours[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        fours[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
        let (ab, cd) = (high(a, b), high(c, d));
        fours[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        fours[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
    }
    // Then move the quarters to their vectors.
    let mut columns = [_mm512_setzero_ps(); 16];
    for i in 0..4 {
        let [a, b, c, d] = fours.map(|fours| fours[i]);
        let ab = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
        let cd = _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d);
        columns[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd);
        columns[8 + i] = _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd);
        let ab = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
        let cd = _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d);
        columns[4 + i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd);
        columns[12 + i] = _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd);
    }
    columns
}

/// The sums of lanes 0, 4, 8, 12, of lanes 1, 5, 9, 13, and so on.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn sum_fourths(v: __m512) -> [f32; 4] {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let mut sums = [0.0; 4];
    super::store4(&mut sums, four);
    sums
}

/// The sum of sixteen lanes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn sum16(v: __m512) -> f32 {
    super::sum(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)))
}

/// Writes sixteen integers as bytes, saturating.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn store_i8x16(out: &mut [i8; 16], v: __m512i) {
    // SAFETY: the array has the 16 bytes that are written; `storeu` needs no alignment.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(v)) }
}

/// Likewise, four to a word, beginning with the lowest byte.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn store_i8x16_in_words(out: &mut [i32; 4], v: __m512i) {
    // SAFETY: the array has the 16 bytes that are written; `storeu` needs no alignment.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(v)) }
}

/// A half float in the file's byte order, in all lanes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn f16_everywhere(bytes: [u8; 2]) -> __m256 {
    _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(bytes)))
}

/// Four half floats in the file's byte order.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
pub(crate) fn f16x4([a, b, c, d]: [[u8; 2]; 4]) -> __m128 {
    let [a, b, c, d] = [
        i16::from_le_bytes(a),
        i16::from_le_bytes(b),
        i16::from_le_bytes(c),
        i16::from_le_bytes(d),
    ];
    _mm_cvtph_ps(_mm_setr_epi16(a, b, c, d, 0, 0, 0, 0))
}
