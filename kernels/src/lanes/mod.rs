//! Eight lanes at a time: names for what AVX2 and NEON can both do, and what else the kernels share.
//!
//! A loop over eight floats is written once, in a module `eight_lanes` beside its scalar reference, and compiled
//! for the instructions that its architecture has: one register of 256 bits with AVX2, two of 128 with
//! NEON. Both round alike and add in the same order, so its results are the same to the bit.
//!
//! The intrinsics that touch memory take raw pointers and are `unsafe`; here they take references
//! to arrays of the right length, which is all that makes them sound. Arithmetic needs no wrapper for
//! that: inside a function with the target feature it is safe as it is.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
pub(crate) mod wide;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::*;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::*;

/// How far ahead of the load a weight stream is fetched. The hardware prefetcher stops at the end
/// of a 4 KiB page, and each time it starts anew costs more than the page's arithmetic.
const PREFETCH_BYTES: usize = 4096;

/// `N` bytes of a block, from `at` on. With both known at compile time the check goes away.
#[inline(always)]
pub(crate) fn piece<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("a block's parts lie inside it")
}

/// Asks for the cache line that is 4 KiB past `bytes`, on its way to being needed.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
pub(crate) fn prefetch_ahead<T>(data: &[T]) {
    prefetch::<PREFETCH_BYTES, T>(data);
}
