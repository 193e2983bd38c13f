//! Loops that do nothing but saturate the machine: reading memory, and multiplying and adding.
//!
//! They are the work behind a measured ceiling. Whoever times them knows how many bytes were read
//! ([`Kernels::read_stream`]) and how many operations were done ([`Kernels::multiply_add`]).

use crate::kernels::Kernels;

/// Accumulators, each of its own chain: more than latency times throughput of any FMA unit so far.
const CHAINS: usize = 12;
const LANES: usize = 8;

impl Kernels {
    /// Reads all of `words` once, in order, prefetching past the ends of pages as the GEMV kernels
    /// do; returns their sum, so that no compiler can leave it out.
    pub fn read_stream(self, words: &[u64]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.backend() == crate::Backend::Avx2 {
            // SAFETY: the AVX2 backend exists only where the CPU has AVX2, FMA and F16C.
            #[allow(unsafe_code)]
            return unsafe { avx2::read_stream(words) };
        }
        read_stream(words)
    }

    /// Does `rounds` rounds of [`FLOPS_PER_ROUND`](Self::FLOPS_PER_ROUND) multiplications and
    /// additions, in independent chains and without touching memory; returns what comes out.
    pub fn multiply_add(self, rounds: usize) -> f32 {
        #[cfg(target_arch = "x86_64")]
        if self.backend() == crate::Backend::Avx2 {
            // SAFETY: the AVX2 backend exists only where the CPU has AVX2, FMA and F16C.
            #[allow(unsafe_code)]
            return unsafe { avx2::multiply_add(rounds) };
        }
        multiply_add(rounds)
    }

    /// Floating-point operations of one round of [`multiply_add`](Self::multiply_add).
    pub const FLOPS_PER_ROUND: usize = CHAINS * LANES * 2;
}

fn read_stream(words: &[u64]) -> u64 {
    let mut sums = [0u64; LANES];
    let chunks = words.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (sum, &word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(word);
        }
    }
    sums.iter().chain(rest).fold(0, |a, &b| a.wrapping_add(b))
}

fn multiply_add(rounds: usize) -> f32 {
    let mut chains = [[1.0f32; LANES]; CHAINS];
    let (factor, term) = (std::hint::black_box(0.999), std::hint::black_box(0.001));
    for _ in 0..rounds {
        for lane in chains.as_flattened_mut() {
            *lane = *lane * factor + term;
        }
    }
    chains.as_flattened().iter().sum()
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{CHAINS, LANES};
    use crate::lanes::prefetch_ahead;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn read_stream(words: &[u64]) -> u64 {
        const LINE: usize = 64 / size_of::<u64>();
        let lines = words.chunks_exact(2 * LINE);
        let rest = lines.remainder();
        let mut sums = [_mm256_setzero_si256(); 4];
        for two in lines {
            prefetch_ahead(two);
            prefetch_ahead(&two[LINE..]);
            let at = two.as_ptr().cast::<i8>();
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: `two` has 128 bytes, and the last load begins at byte 96 of it.
                let words = unsafe { _mm256_loadu_si256(at.add(i * 32).cast()) };
                *sum = _mm256_add_epi64(*sum, words);
            }
        }
        let sum = sums.into_iter().reduce(|a, b| _mm256_add_epi64(a, b)).expect("four sums");
        let mut lanes = [0u64; 4];
        // SAFETY: `lanes` has the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        lanes.iter().chain(rest).fold(0, |a, &b| a.wrapping_add(b))
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn multiply_add(rounds: usize) -> f32 {
        let mut chains = [_mm256_set1_ps(1.0); CHAINS];
        let factor = _mm256_set1_ps(std::hint::black_box(0.999));
        let term = _mm256_set1_ps(std::hint::black_box(0.001));
        for _ in 0..rounds {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, term);
            }
        }
        let mut lanes = [0.0f32; LANES];
        let sum = chains.into_iter().reduce(|a, b| _mm256_add_ps(a, b)).expect("some chains");
        // SAFETY: `lanes` has the 32 bytes that are written.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
        lanes.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Backend, Kernels};

    #[test]
    fn every_word_is_read_once_on_every_backend() {
        let words: Vec<u64> = (0..1003u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        for kernels in [Kernels::new(Backend::Scalar).unwrap(), Kernels::best()] {
            for len in [0, 1, 15, 16, 17, 1003] {
                let expected = words[..len].iter().fold(0u64, |a, &b| a.wrapping_add(b));
                assert_eq!(kernels.read_stream(&words[..len]), expected);
            }
        }
    }

    #[test]
    fn every_round_of_multiplications_is_done() {
        for kernels in [Kernels::new(Backend::Scalar).unwrap(), Kernels::best()] {
            // x → 0.999 x + 0.001 stays at 1, in each of the 96 lanes.
            assert!((kernels.multiply_add(1000) - 96.0).abs() < 1e-2);
            assert_eq!(kernels.multiply_add(0), 96.0);
        }
    }
}
