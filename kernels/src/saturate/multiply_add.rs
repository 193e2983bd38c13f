//! Multiplying and adding in registers.

use crate::kernels::Kernels;

/// Accumulators, each of its own chain: more than latency times throughput of any FMA unit so far.
const CHAINS: usize = 12;
const LANES: usize = 8;

impl Kernels {
    /// Does `rounds` rounds of [`FLOPS_PER_ROUND`](Self::FLOPS_PER_ROUND) multiplications and
    /// additions, in independent chains and without touching memory; returns what comes out.
    pub fn multiply_add(self, rounds: usize) -> f32 {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            // SAFETY: the line above says that the CPU has AVX2, FMA and F16C.
            #[allow(unsafe_code)]
            return unsafe { avx2::multiply_add(rounds) };
        }
        multiply_add(rounds)
    }

    /// Floating-point operations of one round of [`multiply_add`](Self::multiply_add).
    pub const FLOPS_PER_ROUND: usize = CHAINS * LANES * 2;
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
    fn every_round_of_multiplications_is_done() {
        for kernels in [Kernels::new(Backend::Scalar).unwrap(), Kernels::best()] {
            // x → 0.999 x + 0.001 stays at 1, in each of the 96 lanes.
            assert!((kernels.multiply_add(1000) - 96.0).abs() < 1e-2);
            assert_eq!(kernels.multiply_add(0), 96.0);
        }
    }
}
