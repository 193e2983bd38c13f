//! One query head against a cache of keys and values: the two halves of
//! `softmax(q·Kᵀ / √d)·V`, with [`softmax`](crate::softmax) between them.
//!
//! The cache is `f32`, one row per past token. Rows of one head lie `stride` elements apart, since the heads of a token
//! are adjacent; the last row needs only the head's own elements.

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

/// Like AVX2, with vectors of twice the length.
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use std::arch::x86_64::*;

    use super::check;
    use crate::dot::scalar::dot;
    use crate::lanes::sum4;
    use crate::lanes::wide::{load_f32x16, store_f32x16};

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn scores(out: &mut [f32], q: &[f32], k: &[f32], stride: usize, scale: f32) {
        check("scores", out.len(), q.len(), k.len(), stride);
        macro_rules! of_vectors {
            ($($n:literal),*) => {
                match q.len() {
                    $(n if n == 16 * $n => scores_of::<$n, false>(out, q, k, stride, scale),)*
                    _ => scores_of::<0, true>(out, q, k, stride, scale),
                }
            };
        }
        // The head sizes of common models, whose query stays in registers.
        of_vectors!(2, 4, 5, 6, 7, 8, 12, 16);
    }

    /// For heads of `V` vectors or, with `ANY`, for all others.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn scores_of<const V: usize, const ANY: bool>(
        out: &mut [f32],
        q: &[f32],
        k: &[f32],
        stride: usize,
        scale: f32,
    ) {
        let key = |t: usize| &k[t * stride..][..q.len()];
        let (fours, rest) = out.as_chunks_mut::<4>();
        let first_of_rest = 4 * fours.len();
        for (i, out) in fours.iter_mut().enumerate() {
            let t = 4 * i;
            let keys = [key(t), key(t + 1), key(t + 2), key(t + 3)];
            let dots = if ANY { dots(keys, q) } else { dots_of::<V>(keys, q) };
            *out = dots.map(|dot| scale * dot);
        }
        for (i, out) in rest.iter_mut().enumerate() {
            // The same key four times, so that it is summed in the same order as in a group.
            let keys = [key(first_of_rest + i); 4];
            let [dot, ..] = if ANY { dots(keys, q) } else { dots_of::<V>(keys, q) };
            *out = scale * dot;
        }
    }

    /// The dot products of four keys, all as long as `q`: `V` vectors.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn dots_of<const V: usize>(keys: [&[f32]; 4], q: &[f32]) -> [f32; 4] {
        let vectors = |x| <[f32]>::as_chunks::<16>(x).0.first_chunk::<V>().expect("V vectors");
        let (q, keys) = (vectors(q), keys.map(vectors));
        let mut acc = [_mm512_setzero_ps(); 4];
        for i in 0..V {
            let q = load_f32x16(&q[i]);
            for r in 0..4 {
                acc[r] = _mm512_fmadd_ps(load_f32x16(&keys[r][i]), q, acc[r]);
            }
        }
        sums(acc)
    }

    /// The dot products of four keys, all as long as `q`.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn dots(keys: [&[f32]; 4], q: &[f32]) -> [f32; 4] {
        let (q16, tail) = q.as_chunks::<16>();
        let mut acc = [_mm512_setzero_ps(); 4];
        for (i, q) in q16.iter().enumerate() {
            for r in 0..4 {
                let key = load_f32x16(&keys[r].as_chunks().0[i]);
                acc[r] = _mm512_fmadd_ps(key, load_f32x16(q), acc[r]);
            }
        }
        let mut dots = sums(acc);
        for (sum, key) in dots.iter_mut().zip(keys) {
            *sum += dot(&key[16 * q16.len()..], tail);
        }
        dots
    }

    /// The sums of the lanes of four vectors.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn sums(acc: [__m512; 4]) -> [f32; 4] {
        let mut halves = [_mm256_setzero_ps(); 4];
        for r in 0..4 {
            let high = _mm512_extractf32x8_ps::<1>(acc[r]);
            halves[r] = _mm256_add_ps(_mm512_castps512_ps256(acc[r]), high);
        }
        sum4(halves)
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn weighted_sum(out: &mut [f32], p: &[f32], v: &[f32], stride: usize) {
        check("weighted_sum", p.len(), out.len(), v.len(), stride);
        let mut at = 0;
        let (widest, rest) = out.as_chunks_mut::<128>();
        for out in widest {
            columns::<8>(out.as_chunks_mut().0, p, v, at, stride);
            at += 128;
        }
        let (wide, rest) = rest.as_chunks_mut::<64>();
        for out in wide {
            columns::<4>(out.as_chunks_mut().0, p, v, at, stride);
            at += 64;
        }
        let (sixteens, tail) = rest.as_chunks_mut::<16>();
        for out in sixteens {
            columns::<1>(std::slice::from_mut(out), p, v, at, stride);
            at += 16;
        }
        for (i, out) in tail.iter_mut().enumerate() {
            *out = p.iter().enumerate().map(|(t, p)| p * v[t * stride + at + i]).sum();
        }
    }

    /// `16 * N` columns of the sum, kept in registers over all rows.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn columns<const N: usize>(
        out: &mut [[f32; 16]],
        p: &[f32],
        v: &[f32],
        at: usize,
        stride: usize,
    ) {
        let mut acc = [_mm512_setzero_ps(); N];
        for (t, p) in p.iter().enumerate() {
            let row = &v[t * stride + at..][..16 * N];
            let p = _mm512_set1_ps(*p);
            // Indexed by number, so that the sums stay in registers.
            let row = row.as_chunks().0.first_chunk::<N>().expect("cut to so many");
            for i in 0..N {
                acc[i] = _mm512_fmadd_ps(p, load_f32x16(&row[i]), acc[i]);
            }
        }
        for (out, acc) in out.iter_mut().zip(acc) {
            store_f32x16(out, acc);
        }
    }
}
