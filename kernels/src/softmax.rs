//! Softmax with the maximum subtracted first, so that no exponential overflows:
//! `x[i] = exp(x[i] - max) / Σ exp(x[j] - max)`.
//!
//! Masked scores are `-inf` and come out as exactly 0. If every score is `-inf`, or one is NaN or
//! `+inf`, the result is NaN everywhere, in both versions. An empty slice stays empty.

/// The reference.
pub mod scalar {
    /// Turns scores into probabilities.
    pub fn softmax(x: &mut [f32]) {
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for x in x.iter_mut() {
            *x = (*x - max).exp();
            sum += f64::from(*x);
        }
        let scale = (1.0 / sum) as f32;
        for x in x {
            *x *= scale;
        }
    }
}

/// Eight scores at a time.
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2 {
    use std::arch::x86_64::*;

    use crate::lanes::{load, store, sum};

    /// `exp` of eight floats, with a relative error of at most 2e-7.
    ///
    /// Below -87.33, where the result would be denormal, it is 0, and above 88.37 (a third of a
    /// power of e early) it is infinite. NaN stays NaN.
    ///
    /// `exp(x) = 2^n · exp(r)` with `n = round(x / ln 2)`, so `|r| <= ln 2 / 2`, where the
    /// polynomial of Cephes' `expf` (Moshier, 1989) is good to the last bit or so. `ln 2` is
    /// subtracted in two parts, the first of which is exact for every `n`.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(crate) fn exp(x: __m256) -> __m256 {
        const LOWEST: f32 = -87.3365;
        const HIGHEST: f32 = 88.376;
        const LN_2_HIGH: f32 = 355.0 / 512.0;
        const LN_2_LOW: f32 = -2.121_944_4e-4;
        const COEFFICIENTS: [f32; 6] =
            [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

        let too_low = _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(LOWEST));
        let too_high = _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_set1_ps(HIGHEST));
        // With the constant first, a NaN in `x` is what these two return.
        let x = _mm256_min_ps(_mm256_set1_ps(HIGHEST), x);
        let x = _mm256_max_ps(_mm256_set1_ps(LOWEST), x);

        let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(
            _mm256_mul_ps(x, _mm256_set1_ps(std::f32::consts::LOG2_E)),
        );
        let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN_2_HIGH), x);
        let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN_2_LOW), r);

        let mut p = _mm256_set1_ps(COEFFICIENTS[0]);
        for c in &COEFFICIENTS[1..] {
            p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(*c));
        }
        let p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
        let p = _mm256_add_ps(p, _mm256_set1_ps(1.0));

        // 2^n, put together from its exponent. The bounds above keep `n` in -126..=127.
        let n = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n));
        let e = _mm256_andnot_ps(too_low, _mm256_mul_ps(p, power));
        _mm256_blendv_ps(e, _mm256_set1_ps(f32::INFINITY), too_high)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn softmax(x: &mut [f32]) {
        let (eights, tail) = x.as_chunks_mut::<8>();

        let mut maxima = _mm256_set1_ps(f32::NEG_INFINITY);
        for x in eights.iter() {
            maxima = _mm256_max_ps(load(x), maxima);
        }
        let mut lanes = [0.0; 8];
        store(&mut lanes, maxima);
        let max = lanes.iter().chain(tail.iter()).copied().fold(f32::NEG_INFINITY, f32::max);

        let mut sums = _mm256_setzero_ps();
        for x in eights.iter_mut() {
            let e = exp(_mm256_sub_ps(load(x), _mm256_set1_ps(max)));
            store(x, e);
            sums = _mm256_add_ps(sums, e);
        }
        let mut total = sum(sums);
        // The last few go through the same polynomial: what a score turns into must not depend
        // on how many there are.
        let mut last = [f32::NEG_INFINITY; 8];
        last[..tail.len()].copy_from_slice(tail);
        let e = exp(_mm256_sub_ps(load(&last), _mm256_set1_ps(max)));
        store(&mut last, e);
        for (x, e) in tail.iter_mut().zip(last) {
            *x = e;
            total += e;
        }

        let scale = 1.0 / total;
        for x in eights {
            store(x, _mm256_mul_ps(load(x), _mm256_set1_ps(scale)));
        }
        for x in tail {
            *x *= scale;
        }
    }
}
