//! The gate of a feed-forward layer: `gate = f(gate) * up`.
//!
//! `f` is SiLU, `g / (1 + exp(-g))`, in SwiGLU (Shazeer, "GLU Variants Improve Transformer",
//! 2020), and `max(g, 0)²` in BitNet b1.58 2B4T.

fn check(op: &str, gate: usize, up: usize) {
    assert!(
        gate == up,
        "{op}: gate has {gate} and up {up} elements, but the lengths must be equal"
    );
}

/// The reference.
pub mod scalar {
    use super::check;

    /// `gate = silu(gate) * up`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
        check("silu_mul", gate.len(), up.len());
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + (-*gate).exp()) * up;
        }
    }

    /// `gate = max(gate, 0)² * up`. NaN stays NaN, so that a fault before it isn't hidden.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn relu_squared_mul(gate: &mut [f32], up: &[f32]) {
        check("relu_squared_mul", gate.len(), up.len());
        for (gate, up) in gate.iter_mut().zip(up) {
            let relu = if *gate < 0.0 { 0.0 } else { *gate };
            *gate = relu * relu * up;
        }
    }
}

/// Eight floats at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::check;
    use crate::lanes::{F32x8, add, div, load, max, mul, splat, store, sub, zero};
    use crate::softmax::eight_lanes::exp;

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn silu_mul(gate: &mut [f32], up: &[f32]) {
        check("silu_mul", gate.len(), up.len());
        let (gate, gate_tail) = gate.as_chunks_mut::<8>();
        let (up, up_tail) = up.as_chunks::<8>();
        for (gate, up) in gate.iter_mut().zip(up) {
            store(gate, silu_mul_8(load(gate), load(up)));
        }
        let mut last = ([0.0; 8], [0.0; 8]);
        last.0[..gate_tail.len()].copy_from_slice(gate_tail);
        last.1[..up_tail.len()].copy_from_slice(up_tail);
        let mut out = [0.0; 8];
        store(&mut out, silu_mul_8(load(&last.0), load(&last.1)));
        gate_tail.copy_from_slice(&out[..gate_tail.len()]);
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    fn silu_mul_8(gate: F32x8, up: F32x8) -> F32x8 {
        let one = splat(1.0);
        let e = exp(sub(zero(), gate));
        mul(div(gate, add(one, e)), up)
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn relu_squared_mul(gate: &mut [f32], up: &[f32]) {
        check("relu_squared_mul", gate.len(), up.len());
        let (gate, gate_tail) = gate.as_chunks_mut::<8>();
        let (up, up_tail) = up.as_chunks::<8>();
        for (gate, up) in gate.iter_mut().zip(up) {
            // The second operand is what a NaN gives.
            let relu = max(zero(), load(gate));
            store(gate, mul(mul(relu, relu), load(up)));
        }
        super::scalar::relu_squared_mul(gate_tail, up_tail);
    }
}
