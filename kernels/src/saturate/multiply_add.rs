//! Multiplying and adding in registers.

use crate::kernels::Kernels;

/// Accumulators, each of its own chain: more than latency times throughput of any FMA unit so far.
const CHAINS: usize = 12;
const LANES: usize = 8;

impl Kernels {
    /// Does `rounds` rounds of [`FLOPS_PER_ROUND`](Self::FLOPS_PER_ROUND) multiplications and
    /// additions, in independent chains and without touching memory; returns what comes out.
    pub fn multiply_add(self, rounds: usize) -> f32 {
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
