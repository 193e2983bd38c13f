//! Rotary position embedding (Su et al., "RoFormer", 2021): pairs of elements of a head are
//! rotated by an angle that grows with the position.
//!
//! [`rope_tables`] computes the angles of one position; all heads of all layers share them.

/// Which elements form a pair. `n_rot` is how many elements of the head are rotated at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopePairs {
    /// Neighbours: `(2i, 2i + 1)`. LLaMA and Mistral, in GGUF's order of rows.
    Norm,
    /// Halves: `(i, i + n_rot / 2)`. GPT-NeoX, Qwen, BitNet.
    Neox,
}

/// Fills `cos` and `sin` with the rotations at position `pos`.
///
/// The angle of pair `i` is `pos * base^(-2i / n_rot) / freq_factors[i] * freq_scale`, computed in
/// `f64`. The factors are LLaMA 3's `rope_freqs.weight`; `freq_scale` is the inverse of a linear
/// scaling factor, else 1.
///
/// # Panics
///
/// If `n_rot` is odd, or `cos`, `sin` or the factors aren't `n_rot / 2` long.
pub fn rope_tables(
    pos: usize,
    base: f32,
    n_rot: usize,
    freq_factors: Option<&[f32]>,
    freq_scale: f32,
    cos: &mut [f32],
    sin: &mut [f32],
) {
    let n_pairs = n_rot / 2;
    assert!(n_rot.is_multiple_of(2), "rope_tables: {n_rot} elements don't form pairs");
    assert!(
        cos.len() == n_pairs
            && sin.len() == n_pairs
            && freq_factors.is_none_or(|f| f.len() == n_pairs),
        "rope_tables: {n_pairs} pairs need as many cosines, sines and factors, but there are {}, {} and {:?}",
        cos.len(),
        sin.len(),
        freq_factors.map(<[f32]>::len),
    );
    for i in 0..n_pairs {
        let frequency = f64::from(base).powf(-2.0 * i as f64 / n_rot as f64);
        let factor = freq_factors.map_or(1.0, |f| f64::from(f[i]));
        let theta = pos as f64 * frequency / factor * f64::from(freq_scale);
        cos[i] = theta.cos() as f32;
        sin[i] = theta.sin() as f32;
    }
}

fn check(x: usize, cos: usize, sin: usize) {
    assert!(
        cos == sin && 2 * cos <= x,
        "rope: {cos} cosines and {sin} sines for a head of {x} elements"
    );
}

/// The reference.
pub mod scalar {
    use super::{RopePairs, check};

    /// Rotates one head. Elements past `2 * cos.len()` are left alone.
    ///
    /// # Panics
    ///
    /// If `cos` and `sin` differ in length, or there are more pairs than the head has.
    pub fn rope(x: &mut [f32], cos: &[f32], sin: &[f32], pairs: RopePairs) {
        check(x.len(), cos.len(), sin.len());
        let half = cos.len();
        for i in 0..half {
            let (a, b) = match pairs {
                RopePairs::Norm => (2 * i, 2 * i + 1),
                RopePairs::Neox => (i, i + half),
            };
            let (xa, xb) = (x[a], x[b]);
            x[a] = xa * cos[i] - xb * sin[i];
            x[b] = xa * sin[i] + xb * cos[i];
        }
    }
}

/// Four or eight pairs at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{RopePairs, check};
    use crate::lanes::{load, load4_twice, mul, mul_add, mul_sub, mul_sub_add, store, swap_pairs};

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn rope(x: &mut [f32], cos: &[f32], sin: &[f32], pairs: RopePairs) {
        check(x.len(), cos.len(), sin.len());
        let x = &mut x[..2 * cos.len()];
        match pairs {
            RopePairs::Norm => norm(x, cos, sin),
            RopePairs::Neox => neox(x, cos, sin),
        }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    fn norm(x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let (x, x_tail) = x.as_chunks_mut::<8>();
        let (cos, cos_tail) = cos.as_chunks::<4>();
        let (sin, sin_tail) = sin.as_chunks::<4>();
        for ((x, cos), sin) in x.iter_mut().zip(cos).zip(sin) {
            let cos = load4_twice(cos);
            let sin = load4_twice(sin);
            let v = load(x);
            let swapped = swap_pairs(v);
            // Subtracts in even lanes and adds in odd ones.
            store(x, mul_sub_add(v, cos, mul(swapped, sin)));
        }
        super::scalar::rope(x_tail, cos_tail, sin_tail, RopePairs::Norm);
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    fn neox(x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let (a, b) = x.split_at_mut(cos.len());
        let (a, a_tail) = a.as_chunks_mut::<8>();
        let (b, b_tail) = b.as_chunks_mut::<8>();
        let (cos, cos_tail) = cos.as_chunks::<8>();
        let (sin, sin_tail) = sin.as_chunks::<8>();
        for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
            let (va, vb, cos, sin) = (load(a), load(b), load(cos), load(sin));
            store(a, mul_sub(va, cos, mul(vb, sin)));
            store(b, mul_add(va, sin, mul(vb, cos)));
        }
        for (((a, b), cos), sin) in a_tail.iter_mut().zip(b_tail).zip(cos_tail).zip(sin_tail) {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
}
