//! Eight lanes in two registers, with NEON.

#[cfg(target_endian = "big")]
compile_error!("blocks of weights are little endian, and these loads take them as they are");

use std::arch::aarch64::*;
use std::arch::asm;

/// Eight floats.
#[derive(Clone, Copy)]
pub(crate) struct F32x8(float32x4_t, float32x4_t);

/// Eight 32-bit integers.
#[derive(Clone, Copy)]
pub(crate) struct I32x8(int32x4_t, int32x4_t);

/// The result of comparing eight lanes.
#[derive(Clone, Copy)]
pub(crate) struct Mask(uint32x4_t, uint32x4_t);

// Functions that do the same to both halves.
macro_rules! on_halves {
    ($($(#[$doc:meta])* fn $name:ident($($x:ident: $in:ty),*) -> $out:ident = $half:expr;)*) => {
        $($(#[$doc])*
        #[target_feature(enable = "neon")]
        #[inline]
        pub(crate) fn $name($($x: $in),*) -> $out {
            $out(on_halves!(($($x),*), 0, $half), on_halves!(($($x),*), 1, $half))
        })*
    };
    (($($x:ident),*), $i:tt, $half:expr) => {{
        $(let $x = $x.$i;)*
        $half
    }};
}

on_halves! {
    /// `a + b`.
    fn add(a: F32x8, b: F32x8) -> F32x8 = vaddq_f32(a, b);
    /// `a - b`.
    fn sub(a: F32x8, b: F32x8) -> F32x8 = vsubq_f32(a, b);
    /// `a * b`.
    fn mul(a: F32x8, b: F32x8) -> F32x8 = vmulq_f32(a, b);
    /// `a / b`.
    fn div(a: F32x8, b: F32x8) -> F32x8 = vdivq_f32(a, b);
    /// `a * b + c`, rounded once.
    fn mul_add(a: F32x8, b: F32x8, c: F32x8) -> F32x8 = vfmaq_f32(c, a, b);
    /// `a * b - c`, rounded once.
    fn mul_sub(a: F32x8, b: F32x8, c: F32x8) -> F32x8 = vfmaq_f32(vnegq_f32(c), a, b);
    /// `c - a * b`, rounded once.
    fn neg_mul_add(a: F32x8, b: F32x8, c: F32x8) -> F32x8 = vfmsq_f32(c, a, b);
    /// The larger; `b` where either is NaN.
    fn max(a: F32x8, b: F32x8) -> F32x8 = vbslq_f32(vcgtq_f32(a, b), a, b);
    /// The smaller; `b` where either is NaN.
    fn min(a: F32x8, b: F32x8) -> F32x8 = vbslq_f32(vcltq_f32(a, b), a, b);
    /// The nearest integer, ties to even.
    fn round(x: F32x8) -> F32x8 = vrndnq_f32(x);
    /// Neighbours swapped: `b a d c f e h g`.
    fn swap_pairs(x: F32x8) -> F32x8 = vrev64q_f32(x);
    /// True where `a < b`; false where either is NaN.
    fn less(a: F32x8, b: F32x8) -> Mask = vcltq_f32(a, b);
    /// `x`, but 0 where `mask` is true.
    fn zero_where(mask: Mask, x: F32x8) -> F32x8 =
        vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), mask));
    /// `a` where `mask` is true, else `b`.
    fn choose(mask: Mask, a: F32x8, b: F32x8) -> F32x8 = vbslq_f32(mask, a, b);

    /// `a + b`.
    fn add_int(a: I32x8, b: I32x8) -> I32x8 = vaddq_s32(a, b);
    /// `a - b`.
    fn sub_int(a: I32x8, b: I32x8) -> I32x8 = vsubq_s32(a, b);
    /// `a * b`, for products that fit in 16 unsigned bits.
    fn mul_u16(a: I32x8, b: I32x8) -> I32x8 = vmulq_s32(a, b);
    /// Bitwise and.
    fn and(a: I32x8, b: I32x8) -> I32x8 = vandq_s32(a, b);
    /// Bitwise or.
    fn or(a: I32x8, b: I32x8) -> I32x8 = vorrq_s32(a, b);
    /// Integers as floats of the same value.
    fn to_floats(x: I32x8) -> F32x8 = vcvtq_f32_s32(x);
    /// Floats that are whole numbers, as integers.
    fn to_ints(x: F32x8) -> I32x8 = vcvtnq_s32_f32(x);
    /// The floats with these bits.
    fn from_bits(x: I32x8) -> F32x8 = vreinterpretq_f32_s32(x);
}

/// 0 in each lane.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn zero() -> F32x8 {
    splat(0.0)
}

/// `x` in each lane.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn splat(x: f32) -> F32x8 {
    F32x8(vdupq_n_f32(x), vdupq_n_f32(x))
}

/// `x` in each lane.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn splat_int(x: i32) -> I32x8 {
    splat_halves(x, x)
}

/// `low` in the lower four lanes, `high` in the others.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn splat_halves(low: i32, high: i32) -> I32x8 {
    I32x8(vdupq_n_s32(low), vdupq_n_s32(high))
}

/// `a * b - c` in lanes 0, 2, 4 and 6, and `a * b + c` in the others.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn mul_sub_add(a: F32x8, b: F32x8, c: F32x8) -> F32x8 {
    // Flips the sign in the lanes that are subtracted.
    let signs = vreinterpretq_u32_u64(vdupq_n_u64(1 << 31));
    let flip = |c| vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(c), signs));
    mul_add(a, b, F32x8(flip(c.0), flip(c.1)))
}

/// Each lane shifted to the left.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn shift_left<const BITS: i32>(x: I32x8) -> I32x8 {
    I32x8(vshlq_n_s32::<BITS>(x.0), vshlq_n_s32::<BITS>(x.1))
}

/// Each lane shifted to the right, filling with zeros.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn shift_right<const BITS: i32>(x: I32x8) -> I32x8 {
    let shift = |x| vreinterpretq_s32_u32(vshrq_n_u32::<BITS>(vreinterpretq_u32_s32(x)));
    I32x8(shift(x.0), shift(x.1))
}

/// Each lane shifted by `by` bits to the right, filling with zeros.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn shift_right_by(x: I32x8, by: i32) -> I32x8 {
    let by = vdupq_n_s32(-by);
    let shift = |x| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), by));
    I32x8(shift(x.0), shift(x.1))
}

/// Eight floats.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn load(x: &[f32; 8]) -> F32x8 {
    let (low, high) = x.split_at(4);
    // SAFETY: each half has the 16 bytes that are read, which need no more alignment than it has.
    unsafe { F32x8(vld1q_f32(low.as_ptr()), vld1q_f32(high.as_ptr())) }
}

/// Writes eight floats.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn store(out: &mut [f32; 8], v: F32x8) {
    let (low, high) = out.split_at_mut(4);
    // SAFETY: each half has the 16 bytes that are written, which need no more alignment than it has.
    unsafe {
        vst1q_f32(low.as_mut_ptr(), v.0);
        vst1q_f32(high.as_mut_ptr(), v.1);
    }
}

/// Four floats, each twice: `a a b b c c d d`.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn load4_twice(x: &[f32; 4]) -> F32x8 {
    // SAFETY: the array has the 16 bytes that are read.
    let four = unsafe { vld1q_f32(x.as_ptr()) };
    F32x8(vzip1q_f32(four, four), vzip2q_f32(four, four))
}

#[target_feature(enable = "neon")]
#[inline]
fn load_16_bytes(bytes: &[u8]) -> uint8x16_t {
    let bytes: &[u8; 16] = bytes.first_chunk().expect("sixteen bytes");
    // SAFETY: the array has the 16 bytes that are read.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn load_8_bytes(bytes: &[u8; 8]) -> uint8x8_t {
    // SAFETY: the array has the eight bytes that are read.
    unsafe { vld1_u8(bytes.as_ptr()) }
}

/// Eight little-endian floats from a file's bytes.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn load_f32_bytes(bytes: &[u8; 32]) -> F32x8 {
    let (low, high) = bytes.split_at(16);
    F32x8(vreinterpretq_f32_u8(load_16_bytes(low)), vreinterpretq_f32_u8(load_16_bytes(high)))
}

/// Eight half floats as floats.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn load_f16_bytes(bytes: &[u8; 16]) -> F32x8 {
    let halves = load_16_bytes(bytes);
    let (low, high): (float32x4_t, float32x4_t);
    // Inline assembly, since the type of the intrinsic's argument isn't stable.
    // SAFETY: every ARM with NEON converts half floats (ARMv8.0); two registers are written and nothing
    // else is touched.
    unsafe {
        asm!(
            "fcvtl {low:v}.4s, {halves:v}.4h",
            "fcvtl2 {high:v}.4s, {halves:v}.8h",
            halves = in(vreg) halves,
            low = out(vreg) low,
            high = lateout(vreg) high,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    F32x8(low, high)
}

/// A half float in the file's byte order.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn f16(bytes: [u8; 2]) -> f32 {
    let float: f32;
    // SAFETY: as above.
    unsafe {
        asm!(
            "fcvt {float:s}, {half:h}",
            half = in(vreg) i16::from_le_bytes(bytes),
            float = lateout(vreg) float,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    float
}

/// Eight brain floats as floats.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn load_bf16_bytes(bytes: &[u8; 16]) -> F32x8 {
    let halves = vreinterpretq_u16_u8(load_16_bytes(bytes));
    F32x8(
        vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(halves))),
        vreinterpretq_f32_u32(vshll_high_n_u16::<16>(halves)),
    )
}

/// Eight unsigned bytes as 32-bit integers.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn load_u8(bytes: &[u8; 8]) -> I32x8 {
    widen(load_8_bytes(bytes))
}

/// Eight signed bytes as 32-bit integers.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn load_i8(bytes: &[u8; 8]) -> I32x8 {
    let wide = vmovl_s8(vreinterpret_s8_u8(load_8_bytes(bytes)));
    I32x8(vmovl_s16(vget_low_s16(wide)), vmovl_high_s16(wide))
}

/// The bytes of `bytes` as integers, the lowest first.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn bytes_of(bytes: u64) -> I32x8 {
    widen(vcreate_u8(bytes))
}

/// Four unsigned bytes as integers, in both halves.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn four_bytes_twice(bytes: [u8; 4]) -> I32x8 {
    widen(vreinterpret_u8_u32(vdup_n_u32(u32::from_le_bytes(bytes))))
}

#[target_feature(enable = "neon")]
#[inline]
fn widen(bytes: uint8x8_t) -> I32x8 {
    let wide = vmovl_u8(bytes);
    I32x8(
        vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide))),
        vreinterpretq_s32_u32(vmovl_high_u16(wide)),
    )
}

/// The lower and the upper four bits of bytes.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn halves(bytes: I32x8) -> [I32x8; 2] {
    [and(bytes, splat_int(15)), shift_right::<4>(bytes)]
}

/// Eight lanes: 16 where the bit of the lane's number is set, otherwise 0.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn fifth_bits(bits: u32) -> I32x8 {
    let each = splat_int(bits.cast_signed());
    let own = I32x8(int32x4(1, 2, 4, 8), int32x4(16, 32, 64, 128));
    let sixteen = vdupq_n_u32(16);
    // All bits of a lane whose own bit is set.
    let has = |each, own| vreinterpretq_s32_u32(vandq_u32(vtstq_s32(each, own), sixteen));
    I32x8(has(each.0, own.0), has(each.1, own.1))
}

#[target_feature(enable = "neon")]
#[inline]
fn int32x4(a: i32, b: i32, c: i32, d: i32) -> int32x4_t {
    // SAFETY: the array has the 16 bytes that are read.
    unsafe { vld1q_s32([a, b, c, d].as_ptr()) }
}

/// Prefetches the cache line `BYTES` past the beginning of `data`.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn prefetch<const BYTES: usize, T>(data: &[T]) {
    let ahead = data.as_ptr().cast::<u8>().wrapping_add(BYTES);
    // Inline assembly, since the intrinsic isn't stable.
    // SAFETY: a prefetch is a hint. It reads nothing that the program could see and doesn't fault,
    // wherever it points.
    unsafe {
        asm!("prfm pldl1keep, [{ahead}]", ahead = in(reg) ahead, options(nostack, preserves_flags, readonly));
    }
}

/// The sum of eight lanes, added in the same order as in [`sum4`].
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn sum(v: F32x8) -> f32 {
    let pairs = vpaddq_f32(v.0, v.1);
    let fours = vpaddq_f32(pairs, pairs);
    vpadds_f32(vget_low_f32(fours))
}

/// The sums of the lanes of four vectors, at little more than the cost of one.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn sum4(v: [F32x8; 4]) -> [f32; 4] {
    let [a, b, c, d] = v;
    let low = vpaddq_f32(vpaddq_f32(a.0, b.0), vpaddq_f32(c.0, d.0));
    let high = vpaddq_f32(vpaddq_f32(a.1, b.1), vpaddq_f32(c.1, d.1));
    let mut sums = [0.0; 4];
    // SAFETY: the array has the 16 bytes that are written.
    unsafe { vst1q_f32(sums.as_mut_ptr(), vaddq_f32(low, high)) };
    sums
}
