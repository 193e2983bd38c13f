//! Takes data out of all caches, so that the next read of it comes from memory, however large the caches are.
#![allow(unsafe_code)]

use crate::kernels::Kernels;

impl Kernels {
    /// Whether [`evict`](Self::evict) takes data out of the caches, and the loops that write to memory bypass them.
    #[must_use]
    pub fn evicts(self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let evicts = self.has_eight_lanes() && x86::has_clflushopt();
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let evicts = false;
        evicts
    }

    /// Takes `words` out of all caches of all cores, and waits until that is done; does nothing where
    /// [`evicts`](Self::evicts) is false.
    pub fn evict(self, words: &[f64]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.evicts() {
            // SAFETY: the CPU has the instruction, as `evicts` found.
            unsafe {
                x86::evict(words);
            }
        }
        let _ = words;
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, _mm_mfence};
    use std::sync::OnceLock;

    use super::super::step::LINE;

    /// Bit 23 of EBX in leaf 7 of CPUID (Intel SDM, volume 2A, CPUID). The standard library doesn't know its name.
    pub(super) fn has_clflushopt() -> bool {
        static HAS: OnceLock<bool> = OnceLock::new();
        #[allow(
            unused_unsafe,
            reason = "it is safe in later compilers than the oldest that builds this"
        )]
        // SAFETY: each x86-64 processor has CPUID; those with AVX2, of which this is asked, have leaf 7.
        *HAS.get_or_init(|| unsafe { __cpuid_count(7, 0) }.ebx & (1 << 23) != 0)
    }

    /// # Safety
    ///
    /// The CPU has `clflushopt`.
    pub(super) unsafe fn evict(words: &[f64]) {
        for line in words.chunks(LINE) {
            // SAFETY: the address is in `words`, and no value changes; the caller promises the instruction.
            unsafe {
                asm!("clflushopt [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags));
            }
        }
        // The last line, if `words` doesn't begin where a line does.
        if let Some(last) = words.last() {
            // SAFETY: as above.
            unsafe {
                asm!("clflushopt [{}]", in(reg) last, options(nostack, preserves_flags));
            }
        }
        // Without it, later reads could overtake.
        // SAFETY: each x86-64 processor has SSE2.
        unsafe { _mm_mfence() };
    }
}

#[cfg(test)]
mod tests {
    use crate::Kernels;

    #[test]
    fn what_was_evicted_has_the_same_values() {
        let words: Vec<f64> = (0..1000).map(f64::from).collect();
        for kernels in [Kernels::best(), Kernels::new(crate::Backend::Scalar).unwrap()] {
            for range in [0..0, 0..1, 3..20, 1..1000] {
                kernels.evict(&words[range]);
            }
            assert!(words.iter().copied().eq((0..1000).map(f64::from)));
        }
    }
}
