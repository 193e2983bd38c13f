//! One query head against a cache of keys and values: the two halves of
//! `softmax(q·Kᵀ / √d)·V`, with [`softmax`](crate::softmax) between them.
//!
//! The cache is `f32`, one row per past token. Rows of one head lie `stride` elements apart (the
//! heads of a token are neighbours); the last row needs only the head's own elements.

fn check(op: &str, rows: usize, head: usize, cache: usize, stride: usize) {
    assert!(stride >= head, "{op}: a stride of {stride} is less than the head's {head} elements");
    if rows > 0 {
        let needed = (rows - 1) * stride + head;
        assert!(
            cache >= needed,
            "{op}: {rows} rows of {head}, {stride} apart, need {needed} elements, but the cache has {cache}"
        );
    }
}

/// The reference.
pub mod scalar {
    use super::check;
    use crate::dot::scalar::dot;

    /// `out[t] = scale * q·k[t]` for each cached row `t` of `out.len()`.
    ///
    /// # Panics
    ///
    /// If `k` is too short for that many rows, or `stride` is less than `q.len()`.
    pub fn scores(out: &mut [f32], q: &[f32], k: &[f32], stride: usize, scale: f32) {
        check("scores", out.len(), q.len(), k.len(), stride);
        for (t, out) in out.iter_mut().enumerate() {
            *out = scale * dot(q, &k[t * stride..][..q.len()]);
        }
    }

    /// `out = Σ p[t] * v[t]` over the cached rows `t` of `p.len()`. `out` is one head long.
    ///
    /// # Panics
    ///
    /// If `v` is too short for that many rows, or `stride` is less than `out.len()`.
    pub fn weighted_sum(out: &mut [f32], p: &[f32], v: &[f32], stride: usize) {
        check("weighted_sum", p.len(), out.len(), v.len(), stride);
        out.fill(0.0);
        for (t, p) in p.iter().enumerate() {
            for (out, v) in out.iter_mut().zip(&v[t * stride..]) {
                *out += p * v;
            }
        }
    }
}

/// Four keys at a time, or 64 elements of a value.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::check;
    use crate::dot::eight_lanes::tile;
    use crate::lanes::{load, mul_add, splat, store, zero};

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn scores(out: &mut [f32], q: &[f32], k: &[f32], stride: usize, scale: f32) {
        check("scores", out.len(), q.len(), k.len(), stride);
        let key = |t: usize| &k[t * stride..][..q.len()];
        let (fours, rest) = out.as_chunks_mut::<4>();
        let first_of_rest = 4 * fours.len();
        for (i, out) in fours.iter_mut().enumerate() {
            let t = 4 * i;
            let dots = tile([key(t), key(t + 1), key(t + 2), key(t + 3)], [q]);
            *out = dots.map(|[dot]| scale * dot);
        }
        for (i, out) in rest.iter_mut().enumerate() {
            let [[dot]] = tile([key(first_of_rest + i)], [q]);
            *out = scale * dot;
        }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn weighted_sum(out: &mut [f32], p: &[f32], v: &[f32], stride: usize) {
        check("weighted_sum", p.len(), out.len(), v.len(), stride);
        let (wide, rest) = out.as_chunks_mut::<64>();
        for (i, out) in wide.iter_mut().enumerate() {
            columns::<8>(out.as_chunks_mut().0, p, v, 64 * i, stride);
        }
        let at = 64 * wide.len();
        let (eights, tail) = rest.as_chunks_mut::<8>();
        for (i, out) in eights.iter_mut().enumerate() {
            columns::<1>(std::slice::from_mut(out), p, v, at + 8 * i, stride);
        }
        let at = at + 8 * eights.len();
        for (i, out) in tail.iter_mut().enumerate() {
            *out = p.iter().enumerate().map(|(t, p)| p * v[t * stride + at + i]).sum();
        }
    }

    /// `8 * N` columns of the sum, kept in registers over all rows.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    fn columns<const N: usize>(
        out: &mut [[f32; 8]],
        p: &[f32],
        v: &[f32],
        at: usize,
        stride: usize,
    ) {
        let mut acc = [zero(); N];
        for (t, p) in p.iter().enumerate() {
            let row = &v[t * stride + at..][..8 * N];
            let p = splat(*p);
            for (acc, v) in acc.iter_mut().zip(row.as_chunks::<8>().0) {
                *acc = mul_add(p, load(v), *acc);
            }
        }
        for (out, acc) in out.iter_mut().zip(acc) {
            store(out, acc);
        }
    }
}
