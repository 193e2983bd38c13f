//! Eight lanes at a time: names for what both AVX2 and NEON can do, and further functions that kernels share.
//!
//! A loop over eight floats is written once, in a module `eight_lanes` beside its scalar reference. It is compiled for the
//! instructions of its architecture: one register of 256 bits with AVX2, two of 128 with NEON. Both round in the same way
//! and add in the same order, so the results have the same bits.
//!
//! The intrinsics that access memory take raw pointers and are `unsafe`. The wrappers here take references to arrays of
//! the right length, which makes them sound. Arithmetic needs no wrapper for that: inside a function with the target
//! feature it is safe.
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

/// How far ahead of the load a weight stream is prefetched. The hardware prefetcher stops at the end of a 4 KiB page, and
/// each restart costs more than the page's arithmetic.
const PREFETCH_BYTES: usize = 4096;

/// `N` bytes of a block, from `at` on. With both known at compile time, the bounds check is optimised away.
#[inline(always)]
pub(crate) fn piece<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("a block's parts lie inside it")
}

/// Prefetches the cache line 4 KiB past the beginning of `data`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
pub(crate) fn prefetch_ahead<T>(data: &[T]) {
    prefetch::<PREFETCH_BYTES, T>(data);
}
