//! Activations rounded to 8 bits, in blocks as long as those of the weights: the operands of the integer kernels.

use crate::QuantType;

/// Rows of activations: element `i` is about `scales[i / block] * q[i]`, within half of that scale.
///
/// If a block contains an infinity or NaN, its scale is NaN, and so is every product with it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Activations {
    /// From −127 to 127.
    pub(crate) q: Vec<i8>,
    /// One per block: 1/127 of the largest magnitude.
    pub(crate) scales: Vec<f32>,
    /// The sums of neighbours in `q`, [`sum_group`] at a time.
    pub(crate) sums: Vec<i32>,
}

/// How many neighbours each sum covers: as many as share a scale, a minimum or an offset.
pub(crate) const fn sum_group(kind: QuantType) -> usize {
    match kind {
        // One lane of `vpdpbusd`.
        QuantType::Q8_0 => 4,
        QuantType::Q6_K => 16,
        _ => 32,
    }
}

/// Below this a block's inverse scale would overflow, and the block is negligible beside any other.
const LEAST: f32 = f32::MIN_POSITIVE * 256.0;

/// Adds up groups of neighbours.
#[inline(always)]
fn sums(q: &[i8], group: usize) -> Vec<i32> {
    let sum = |group: &[i8]| group.iter().map(|&q| i32::from(q)).sum::<i32>();
    match group {
        // With the length known at compile time these are a few instructions each.
        4 => q.as_chunks::<4>().0.iter().map(|group| sum(group)).collect(),
        16 => q.as_chunks::<16>().0.iter().map(|group| sum(group)).collect(),
        32 => q.as_chunks::<32>().0.iter().map(|group| sum(group)).collect(),
        _ => q.chunks_exact(group).map(sum).collect(),
    }
}

/// The reference.
pub(crate) mod scalar {
    use super::{Activations, LEAST, sum_group};
    use crate::QuantType;

    impl Activations {
        /// Rounds `x`, whole blocks of the type, to the nearest integer, ties to even.
        pub(crate) fn rounded(kind: QuantType, x: &[f32]) -> Self {
            let block = kind.block_len();
            let mut q = Vec::with_capacity(x.len());
            let mut scales = Vec::with_capacity(x.len() / block);
            for x in x.chunks_exact(block) {
                let most = x.iter().fold(0.0, |most: f32, x| match x.is_nan() {
                    true => f32::INFINITY,
                    false => most.max(x.abs()),
                });
                let (inverse, scale) = match most {
                    _ if most == f32::INFINITY => (0.0, f32::NAN),
                    _ if most < LEAST => (0.0, 0.0),
                    _ => (127.0 / most, most / 127.0),
                };
                // A block with an infinity or NaN has no codes.
                let code = |x: &f32| (x * inverse).round_ties_even() as i8;
                q.extend(x.iter().map(code));
                scales.push(scale);
            }
            let sums = super::sums(&q, sum_group(kind));
            Self { q, scales, sums }
        }

        /// The values that the codes stand for.
        pub(crate) fn values(&self) -> impl Iterator<Item = f32> {
            let block = self.q.len().checked_div(self.scales.len()).unwrap_or(1);
            let blocks = self.q.chunks_exact(block.max(1)).zip(&self.scales);
            blocks.flat_map(|(q, scale)| q.iter().map(move |&q| scale * f32::from(q)))
        }
    }
}

/// Sixteen at a time.
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use std::arch::x86_64::*;

    use super::{Activations, LEAST, sum_group};
    use crate::QuantType;
    use crate::lanes::wide::{load_f32x16, store_i8x16};

    impl Activations {
        /// Like [`rounded`](Self::rounded), with the same bits.
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(crate) fn rounded_avx512(kind: QuantType, x: &[f32]) -> Self {
            let block = kind.block_len();
            let mut q = vec![0; x.len()];
            let mut scales = Vec::with_capacity(x.len() / block);
            for (q, x) in q.chunks_exact_mut(block).zip(x.chunks_exact(block)) {
                scales.push(round_block(q, x));
            }
            let sums = super::sums(&q, sum_group(kind));
            Self { q, scales, sums }
        }
    }

    /// Rounds a block whose length is a multiple of sixteen. Returns its scale.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    pub(crate) fn round_block(q: &mut [i8], x: &[f32]) -> f32 {
        let (q, x) = (q.as_chunks_mut::<16>().0, x.as_chunks::<16>().0);
        let (inverse, scale) = scale_of(x);
        match inverse {
            None => q.as_flattened_mut().fill(0),
            Some(inverse) => {
                for (q, x) in q.iter_mut().zip(x) {
                    store_i8x16(q, round(x, inverse));
                }
            }
        }
        scale
    }

    /// Rounds a block of `16 * V` into registers. Also returns its scale.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    pub(crate) fn round_vectors<const V: usize>(x: &[[f32; 16]; V]) -> ([__m512i; V], f32) {
        let (inverse, scale) = scale_of(x);
        let mut rounded = [_mm512_setzero_si512(); V];
        if let Some(inverse) = inverse {
            for (rounded, x) in rounded.iter_mut().zip(x) {
                *rounded = round(x, inverse);
            }
        }
        (rounded, scale)
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn round(x: &[f32; 16], inverse: f32) -> __m512i {
        _mm512_cvtps_epi32(_mm512_mul_ps(load_f32x16(x), _mm512_set1_ps(inverse)))
    }

    /// The factor by which a block is multiplied before rounding, if it isn't negligible, and the block's scale.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn scale_of(x: &[[f32; 16]]) -> (Option<f32>, f32) {
        let magnitude = _mm512_set1_epi32(i32::MAX);
        let mut most = _mm512_setzero_si512();
        for x in x {
            // Magnitudes compare as integers the same way, with NaN above infinity, so no NaN is lost.
            let bits = _mm512_and_si512(_mm512_castps_si512(load_f32x16(x)), magnitude);
            most = _mm512_max_epi32(most, bits);
        }
        match f32::from_bits(_mm512_reduce_max_epi32(most).cast_unsigned()) {
            most if !most.is_finite() => (None, f32::NAN),
            most if most < LEAST => (None, 0.0),
            most => (Some(127.0 / most), most / 127.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_rounded_to_127ths_of_its_largest() {
        let mut x = [0.0; 32];
        (x[0], x[1], x[2], x[3]) = (-254.0, 1.0, 3.0, 5.0);
        let a = Activations::rounded(QuantType::Q8_0, &x);
        // Ties go to even.
        assert_eq!((a.q[..4].to_vec(), a.scales[0]), (vec![-127, 0, 2, 2], 2.0));
        assert_eq!(a.sums, [-123, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(a.values().take(4).collect::<Vec<_>>(), [-254.0, 0.0, 4.0, 4.0]);
    }

    #[test]
    fn what_is_no_number_is_in_every_product_of_its_block() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 64];
            x[40] = bad;
            let a = Activations::rounded(QuantType::Q4_0, &x);
            assert!(!a.scales[0].is_nan() && a.scales[1].is_nan(), "{bad}");
            assert!(a.q[32..].iter().all(|&q| q == 0));
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "calls what was found to be there")]
    fn avx_512_rounds_alike() {
        if !crate::backend::has_avx512() {
            return eprintln!("skipped: no AVX-512 VNNI");
        }
        let same = |x: &[f32]| {
            for kind in [QuantType::Q8_0, QuantType::I2_S, QuantType::Q6_K, QuantType::Q4_K] {
                let expected = Activations::rounded(kind, x);
                // SAFETY: the CPU has it, as was asked above.
                let actual = unsafe { Activations::rounded_avx512(kind, x) };
                assert_eq!(actual.q, expected.q, "{kind}");
                let bits = |a: &[f32]| a.iter().map(|x| x.is_nan() as u32 + x.to_bits()).collect();
                let [a, b]: [Vec<u32>; 2] = [bits(&actual.scales), bits(&expected.scales)];
                assert_eq!(a, b, "{kind}");
                assert_eq!(actual.sums, expected.sums, "{kind}");
            }
        };
        let mut state = 1u32;
        for scale in [1.0, 1e-39, 1e-36, 1e30] {
            let x: Vec<f32> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .take(2048)
            .map(|x| x * scale)
            .collect();
            same(&x);
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = x.clone();
                x[700] = bad;
                same(&x);
            }
        }
        same(&[0.0; 256]);
        same(&[]);
    }
}
