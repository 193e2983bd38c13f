//! Root mean square normalisation: `out[i] = x[i] / sqrt(mean(x²) + eps) * weight[i]`.
//!
//! From Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019), with `eps` inside the
//! root, where every LLaMA-like model has it.

fn check(out: usize, x: usize, weight: usize) {
    assert!(
        out == x && weight == x,
        "rms_norm: out has {out}, x {x} and weight {weight} elements, but the lengths must be equal"
    );
}

/// The reference.
pub mod scalar {
    use super::check;

    /// `1 / sqrt(mean(x²) + eps)`. The squares are summed in `f64`, as in GGML.
    ///
    /// For an empty `x` it is NaN.
    pub fn inverse_rms(x: &[f32], eps: f32) -> f32 {
        let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        (1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt()) as f32
    }

    /// Normalises `x` into `out`.
    ///
    /// # Panics
    ///
    /// If the three lengths differ.
    pub fn rms_norm(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
        check(out.len(), x.len(), weight.len());
        let scale = inverse_rms(x, eps);
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    }

    /// Normalises `x` where it is.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
        check(x.len(), x.len(), weight.len());
        let scale = inverse_rms(x, eps);
        for (x, weight) in x.iter_mut().zip(weight) {
            *x = *x * scale * weight;
        }
    }
}

/// Eight floats at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::check;
    use crate::lanes::{add, load, mul, mul_add, splat, store, sum, zero};

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
        let (eights, tail) = x.as_chunks::<8>();
        let (quads, singles) = eights.as_chunks::<4>();
        let mut acc = [zero(); 4];
        for quad in quads {
            for (acc, v) in acc.iter_mut().zip(quad) {
                let v = load(v);
                *acc = mul_add(v, v, *acc);
            }
        }
        for v in singles {
            let v = load(v);
            acc[0] = mul_add(v, v, acc[0]);
        }
        let [a, b, c, d] = acc;
        let mut squares = sum(add(add(a, b), add(c, d)));
        for v in tail {
            squares = v.mul_add(*v, squares);
        }
        1.0 / (squares / x.len() as f32 + eps).sqrt()
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn rms_norm(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
        check(out.len(), x.len(), weight.len());
        let scale = inverse_rms(x, eps);
        let (x, x_tail) = x.as_chunks::<8>();
        let (weight, weight_tail) = weight.as_chunks::<8>();
        let (out, out_tail) = out.as_chunks_mut::<8>();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            let x = mul(load(x), splat(scale));
            store(out, mul(x, load(weight)));
        }
        for ((out, x), weight) in out_tail.iter_mut().zip(x_tail).zip(weight_tail) {
            *out = x * scale * weight;
        }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
        check(x.len(), x.len(), weight.len());
        let scale = inverse_rms(x, eps);
        let (x, x_tail) = x.as_chunks_mut::<8>();
        let (weight, weight_tail) = weight.as_chunks::<8>();
        for (x, weight) in x.iter_mut().zip(weight) {
            let scaled = mul(load(x), splat(scale));
            store(x, mul(scaled, load(weight)));
        }
        for (x, weight) in x_tail.iter_mut().zip(weight_tail) {
            *x = *x * scale * weight;
        }
    }
}
