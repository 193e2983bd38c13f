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
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use crate::lanes::{
        F32x8, add, add_int, choose, from_bits, less, load, max, min, mul, mul_add, neg_mul_add,
        round, shift_left, splat, splat_int, store, sub, sum, to_ints, zero, zero_where,
    };

    /// `exp` of eight floats, with a relative error of at most 2e-7.
    ///
    /// Below -87.33, where the result would be denormal, it is 0, and above 88.37 (a third of a
    /// power of e early) it is infinite. NaN stays NaN.
    ///
    /// `exp(x) = 2^n · exp(r)` with `n = round(x / ln 2)`, so `|r| <= ln 2 / 2`, where the
    /// polynomial of Cephes' `expf` (Moshier, 1989) is good to the last bit or so. `ln 2` is
    /// subtracted in two parts, the first of which is exact for every `n`.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn exp(x: F32x8) -> F32x8 {
        const LOWEST: f32 = -87.3365;
        const HIGHEST: f32 = 88.376;
        const LN_2_HIGH: f32 = 355.0 / 512.0;
        const LN_2_LOW: f32 = -2.121_944_4e-4;
        const COEFFICIENTS: [f32; 6] =
            [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

        let too_low = less(x, splat(LOWEST));
        let too_high = less(splat(HIGHEST), x);
        // With the constant first, a NaN in `x` is what these two return.
        let x = min(splat(HIGHEST), x);
        let x = max(splat(LOWEST), x);

        let n = round(mul(x, splat(std::f32::consts::LOG2_E)));
        let r = neg_mul_add(n, splat(LN_2_HIGH), x);
        let r = neg_mul_add(n, splat(LN_2_LOW), r);

        let mut p = splat(COEFFICIENTS[0]);
        for c in &COEFFICIENTS[1..] {
            p = mul_add(p, r, splat(*c));
        }
        let p = mul_add(p, mul(r, r), r);
        let p = add(p, splat(1.0));

        // 2^n, put together from its exponent. The bounds above keep `n` in -126..=127.
        let n = add_int(to_ints(n), splat_int(127));
        let power = from_bits(shift_left::<23>(n));
        let e = zero_where(too_low, mul(p, power));
        choose(too_high, splat(f32::INFINITY), e)
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn softmax(x: &mut [f32]) {
        let (eights, tail) = x.as_chunks_mut::<8>();

        let mut maxima = splat(f32::NEG_INFINITY);
        for x in eights.iter() {
            maxima = max(load(x), maxima);
        }
        let mut lanes = [0.0; 8];
        store(&mut lanes, maxima);
        let max = lanes.iter().chain(tail.iter()).copied().fold(f32::NEG_INFINITY, f32::max);

        let mut sums = zero();
        for x in eights.iter_mut() {
            let e = exp(sub(load(x), splat(max)));
            store(x, e);
            sums = add(sums, e);
        }
        let mut total = sum(sums);
        // The rest goes through the same polynomial: a score's result must not depend on the number of scores.
        let mut last = [f32::NEG_INFINITY; 8];
        last[..tail.len()].copy_from_slice(tail);
        let e = exp(sub(load(&last), splat(max)));
        store(&mut last, e);
        for (x, e) in tail.iter_mut().zip(last) {
            *x = e;
            total += e;
        }

        let scale = 1.0 / total;
        for x in eights {
            store(x, mul(load(x), splat(scale)));
        }
        for x in tail {
            *x *= scale;
        }
    }
}
