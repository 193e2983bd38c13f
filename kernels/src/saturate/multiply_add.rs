//! Multiplies and adds in registers.

use crate::kernels::Kernels;

/// Accumulators, each a chain of its own: more than latency times throughput of any FMA unit so far.
const CHAINS: usize = 12;
const LANES: usize = 8;

impl Kernels {
    /// Runs `rounds` rounds of [`FLOPS_PER_ROUND`](Self::FLOPS_PER_ROUND) multiplications and additions, in
    /// independent chains and without accessing memory. Returns their sum.
    pub fn multiply_add(self, rounds: usize) -> f32 {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx512() {
            // SAFETY: the line above says that the CPU has what the function needs.
            #[allow(unsafe_code)]
            return unsafe { sixteen_lanes::multiply_add(rounds) };
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if self.has_eight_lanes() {
            // SAFETY: the line above says that the CPU has what the function needs.
            #[allow(unsafe_code)]
            return unsafe { eight_lanes::multiply_add(rounds) };
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

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod eight_lanes {
    use super::{CHAINS, LANES};
    use crate::lanes::{add, mul_add, splat, store};

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(super) fn multiply_add(rounds: usize) -> f32 {
        let mut chains = [splat(1.0); CHAINS];
        let factor = splat(std::hint::black_box(0.999));
        let term = splat(std::hint::black_box(0.001));
        for _ in 0..rounds {
            for chain in &mut chains {
                *chain = mul_add(*chain, factor, term);
            }
        }
        let mut lanes = [0.0f32; LANES];
        let sum = chains.into_iter().reduce(|a, b| add(a, b)).expect("some chains");
        store(&mut lanes, sum);
        lanes.iter().sum()
    }
}

// Some CPUs are twice as fast with sixteen lanes as with eight, others equally fast.
#[cfg(target_arch = "x86_64")]
mod sixteen_lanes {
    use std::arch::x86_64::*;

    use super::{CHAINS, LANES};
    use crate::lanes::store;

    /// Runs two rounds at a time, in chains of twice as many lanes; an odd round counts as two.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn multiply_add(rounds: usize) -> f32 {
        let mut chains = [_mm512_set1_ps(1.0); CHAINS];
        let factor = _mm512_set1_ps(std::hint::black_box(0.999));
        let term = _mm512_set1_ps(std::hint::black_box(0.001));
        for _ in 0..rounds.div_ceil(2) {
            for chain in &mut chains {
                *chain = _mm512_fmadd_ps(*chain, factor, term);
            }
        }
        let mut lanes = [0.0f32; LANES];
        let sum = chains.into_iter().reduce(|a, b| _mm512_add_ps(a, b)).expect("some chains");
        // All lanes are equal, and callers expect those of one round.
        store(&mut lanes, _mm512_castps512_ps256(sum));
        lanes.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Backend, Kernels};

    #[test]
    fn every_round_of_multiplications_is_done() {
        for backend in [Backend::Scalar, Backend::Avx2, Backend::Avx512, Backend::Neon] {
            let Ok(kernels) = Kernels::new(backend) else { continue };
            // x → 0.999 x + 0.001 stays at 1, in each of the 96 lanes.
            assert!((kernels.multiply_add(1000) - 96.0).abs() < 1e-2);
            assert_eq!(kernels.multiply_add(0), 96.0);
        }
    }
}
