//! What the memory loops do with two cache lines: loads, stores that bypass the caches, and the little arithmetic
//! between them.
#![allow(unsafe_code)]

/// Numbers (`f64`) in a cache line.
pub(super) const LINE: usize = 64 / size_of::<f64>();
/// A step is two lines.
pub(super) const STEP: usize = 2 * LINE;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::{Sums, add_bits, fence, load, mul_add, no_sums, splat, store, total};
#[cfg(target_arch = "aarch64")]
pub(super) use neon::{Sums, add_bits, fence, load, mul_add, no_sums, splat, store, total};

/// A step is four vectors.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::STEP;

    pub(in super::super) type Step = [__m256d; 4];
    pub(in super::super) type Sums = [__m256i; 4];

    /// Loads a step.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(in super::super) fn load(step: &[f64; STEP]) -> Step {
        let at = step.as_ptr();
        // SAFETY: a step has 128 bytes, and the last load begins at byte 96 of it.
        unsafe { [0, 4, 8, 12].map(|i| _mm256_loadu_pd(at.add(i))) }
    }

    /// Writes a step. If `FAR`, the stores bypass the caches, and the step must be aligned to 32 bytes.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(in super::super) fn store<const FAR: bool>(step: &mut [f64; STEP], vectors: Step) {
        let at = step.as_mut_ptr();
        for (i, vector) in vectors.into_iter().enumerate() {
            // SAFETY: a step has 128 bytes, and the last store begins at byte 96 of it. The loops
            // begin far ones where a line does.
            unsafe {
                if FAR {
                    debug_assert!(at.cast::<__m256d>().is_aligned());
                    _mm256_stream_pd(at.add(4 * i), vector);
                } else {
                    _mm256_storeu_pd(at.add(4 * i), vector);
                }
            }
        }
    }

    /// Makes stores that bypassed the caches visible to other threads before any later store.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[allow(
        unused_unsafe,
        reason = "it is safe in later compilers than the oldest that builds this"
    )]
    pub(in super::super) fn fence<const FAR: bool>() {
        if FAR {
            // SAFETY: it is of SSE, which AVX2 has, and touches no memory.
            unsafe { _mm_sfence() };
        }
    }

    /// `value` in each lane.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(in super::super) fn splat(value: f64) -> Step {
        [_mm256_set1_pd(value); 4]
    }

    /// `a * b + c`.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(in super::super) fn mul_add(a: Step, b: Step, c: Step) -> Step {
        [0, 1, 2, 3].map(|i| _mm256_fmadd_pd(a[i], b[i], c[i]))
    }

    /// Initial sums.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(in super::super) fn no_sums() -> Sums {
        [_mm256_setzero_si256(); 4]
    }

    /// Adds the bits of a step to sums.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(in super::super) fn add_bits(sums: Sums, step: Step) -> Sums {
        [0, 1, 2, 3].map(|i| _mm256_add_epi64(sums[i], _mm256_castpd_si256(step[i])))
    }

    /// The sum of all lanes.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(in super::super) fn total(sums: Sums) -> u64 {
        let sum = sums.into_iter().reduce(|a, b| _mm256_add_epi64(a, b)).expect("four sums");
        let mut lanes = [0u64; 4];
        // SAFETY: `lanes` has the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        lanes.into_iter().fold(0, |a, b| a.wrapping_add(b))
    }
}

/// A step is eight vectors.
#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;
    use std::arch::asm;
    use std::array::from_fn;

    use super::STEP;

    pub(in super::super) type Step = [float64x2_t; 8];
    pub(in super::super) type Sums = [uint64x2_t; 8];

    /// Loads a step.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(in super::super) fn load(step: &[f64; STEP]) -> Step {
        let at = step.as_ptr();
        // SAFETY: a step has 128 bytes, and the last load begins at byte 112 of it.
        from_fn(|i| unsafe { vld1q_f64(at.add(2 * i)) })
    }

    /// Writes a step. If `FAR`, with the hint that it won't be read soon.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(in super::super) fn store<const FAR: bool>(step: &mut [f64; STEP], vectors: Step) {
        let at = step.as_mut_ptr();
        for (i, &[low, high]) in vectors.as_chunks().0.iter().enumerate() {
            // SAFETY: a step has 128 bytes, and the last pair of stores begins at byte 96 of it.
            unsafe {
                if FAR {
                    // Inline assembly, since there is no intrinsic.
                    asm!(
                        "stnp {low:q}, {high:q}, [{at}]",
                        low = in(vreg) low,
                        high = in(vreg) high,
                        at = in(reg) at.add(4 * i),
                        options(nostack, preserves_flags)
                    );
                } else {
                    vst1q_f64(at.add(4 * i), low);
                    vst1q_f64(at.add(4 * i + 2), high);
                }
            }
        }
    }

    /// Does nothing: the hint of [`store`] doesn't change the order of stores.
    pub(in super::super) fn fence<const FAR: bool>() {}

    /// `value` in each lane.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(in super::super) fn splat(value: f64) -> Step {
        [vdupq_n_f64(value); 8]
    }

    /// `a * b + c`.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(in super::super) fn mul_add(a: Step, b: Step, c: Step) -> Step {
        from_fn(|i| vfmaq_f64(c[i], a[i], b[i]))
    }

    /// Initial sums.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(in super::super) fn no_sums() -> Sums {
        [vdupq_n_u64(0); 8]
    }

    /// Adds the bits of a step to sums.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(in super::super) fn add_bits(sums: Sums, step: Step) -> Sums {
        from_fn(|i| vaddq_u64(sums[i], vreinterpretq_u64_f64(step[i])))
    }

    /// The sum of all lanes.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(in super::super) fn total(sums: Sums) -> u64 {
        let sum = sums.into_iter().reduce(|a, b| vaddq_u64(a, b)).expect("eight sums");
        vaddvq_u64(sum)
    }
}
