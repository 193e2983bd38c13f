//! Random numbers that are the same on every machine, for ever.
//!
//! Integers, and one multiplication by a float: no `sin`, `ln` or `exp`, whose last bit differs
//! between systems. So a seed names a model file, byte for byte, and changing anything here makes
//! other files: raise [`REVISION`](super::REVISION) then.

use brickscope::stats::SplitMix64;

/// Bits, and numbers made of them.
#[derive(Clone, Debug)]
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    /// The generator for one tensor: its numbers depend on the seed and its name, not on the
    /// tensors before it.
    pub(super) fn for_tensor(seed: u64, name: &str) -> Self {
        Self::new(Self::new(seed ^ fnv1a(name.as_bytes())).next())
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// Fills `out` with numbers around `mean`, bell-shaped, that never leave `mean` ± 3.5
    /// `deviation`.
    pub(super) fn fill(&mut self, out: &mut [f32], mean: f32, deviation: f32) {
        // The sum of four uniform 16-bit numbers: an Irwin-Hall distribution, near enough to a
        // normal one, and an integer. Below 2¹⁸ it is exact as a float. Each of the four has the
        // variance (2³² - 1) / 12.
        const SUM_DEVIATION: f64 = 37_837.227_237;
        const SUM_MEAN: i32 = 2 * 65_535;
        let scale = (f64::from(deviation) / SUM_DEVIATION) as f32;
        for out in out {
            let bits = self.next();
            let sum =
                (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
            *out = mean + (sum as i32 - SUM_MEAN) as f32 * scale;
        }
    }
}

/// FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_mean_and_deviation_asked_for() {
        let mut x = vec![0.0f32; 100_000];
        Random::new(1).fill(&mut x, 1.0, 0.25);
        let n = x.len() as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        assert!((mean - 1.0).abs() < 0.005, "{mean}");
        assert!((variance.sqrt() - 0.25).abs() < 0.005, "{}", variance.sqrt());
        assert!(x.iter().all(|x| (x - 1.0).abs() < 3.5 * 0.25));
    }

    #[test]
    fn tensors_have_numbers_of_their_own() {
        let first = |seed, name| Random::for_tensor(seed, name).next();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }
}
