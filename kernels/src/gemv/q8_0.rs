//! Q8_0 rows. `quant/q8_0.rs` describes the layout.

use crate::lanes::{
    F32x8, add, f16, load, load_i8, mul, mul_add, piece, prefetch_ahead, splat, sum, to_floats,
    zero,
};
use crate::quant::q8_0::{BYTES, LEN};

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    let x = x.as_chunks::<LEN>().0;
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * BYTES)) {
        let blocks = row.as_chunks::<BYTES>().0;
        let mut acc = [zero(); 2];
        let (pairs, last) = blocks.as_chunks::<2>();
        let (x_pairs, x_last) = x.as_chunks::<2>();
        for (pair, x) in pairs.iter().zip(x_pairs) {
            prefetch_ahead(&pair[0]);
            acc[0] = mul_add(scale(&pair[0]), products(&pair[0], &x[0]), acc[0]);
            acc[1] = mul_add(scale(&pair[1]), products(&pair[1], &x[1]), acc[1]);
        }
        for (block, x) in last.iter().zip(x_last) {
            acc[0] = mul_add(scale(block), products(block, x), acc[0]);
        }
        *out = sum(add(acc[0], acc[1]));
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn scale(block: &[u8; BYTES]) -> F32x8 {
    splat(f16(*piece(block, 0)))
}

/// `q·x`, eight sums of four.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn products(block: &[u8; BYTES], x: &[f32; LEN]) -> F32x8 {
    let x = x.as_chunks::<8>().0;
    let q = |i: usize| to_floats(load_i8(piece(block, 2 + 8 * i)));
    let a = mul(q(0), load(&x[0]));
    let b = mul(q(1), load(&x[1]));
    let a = mul_add(q(2), load(&x[2]), a);
    let b = mul_add(q(3), load(&x[3]), b);
    add(a, b)
}
