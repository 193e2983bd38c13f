//! Residuals and biases, elementwise sums; and the scale of a matrix, an elementwise product.

fn check_add(x: usize, y: usize) {
    assert!(x == y, "add: x has {x} and y {y} elements, but the lengths must be equal");
}

fn check_add_bias(x: usize, bias: usize) {
    assert!(
        if bias == 0 { x == 0 } else { x.is_multiple_of(bias) },
        "add_bias: {x} elements aren't rows of {bias}"
    );
}

/// The reference.
pub mod scalar {
    /// `x += y`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add(x: &mut [f32], y: &[f32]) {
        super::check_add(x.len(), y.len());
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }

    /// Adds `bias` to each row of `x`, `(n, bias.len())`.
    ///
    /// # Panics
    ///
    /// If `x` isn't whole rows of `bias.len()`.
    pub fn add_bias(x: &mut [f32], bias: &[f32]) {
        super::check_add_bias(x.len(), bias.len());
        for row in x.chunks_exact_mut(bias.len().max(1)) {
            add(row, bias);
        }
    }

    /// `x *= factor`.
    pub fn scale(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

/// Eight floats at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use crate::lanes::{self, load, mul, splat, store};

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn add(x: &mut [f32], y: &[f32]) {
        super::check_add(x.len(), y.len());
        let (x, x_tail) = x.as_chunks_mut::<8>();
        let (y, y_tail) = y.as_chunks::<8>();
        for (x, y) in x.iter_mut().zip(y) {
            store(x, lanes::add(load(x), load(y)));
        }
        super::scalar::add(x_tail, y_tail);
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn add_bias(x: &mut [f32], bias: &[f32]) {
        super::check_add_bias(x.len(), bias.len());
        for row in x.chunks_exact_mut(bias.len().max(1)) {
            add(row, bias);
        }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn scale(x: &mut [f32], factor: f32) {
        let (x, x_tail) = x.as_chunks_mut::<8>();
        for x in x {
            store(x, mul(load(x), splat(factor)));
        }
        super::scalar::scale(x_tail, factor);
    }
}
