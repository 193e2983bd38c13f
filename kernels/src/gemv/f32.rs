//! F32 rows. Their bytes come from a file and may be unaligned.

use crate::lanes::{add, load, load_f32_bytes, mul_add, piece, prefetch_ahead, sum, zero};

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(4 * x.len())) {
        let (lines, tail) = row.as_chunks::<128>();
        let (x_lines, x_tail) = x.as_chunks::<32>();
        let mut acc = [zero(); 4];
        for (line, x) in lines.iter().zip(x_lines) {
            prefetch_ahead(line);
            prefetch_ahead(&line[64..]);
            for (i, acc) in acc.iter_mut().enumerate() {
                let w = load_f32_bytes(piece(line, 32 * i));
                *acc = mul_add(w, load(&x.as_chunks().0[i]), *acc);
            }
        }
        let [a, b, c, d] = acc;
        let mut total = sum(add(add(a, b), add(c, d)));
        for (w, x) in tail.as_chunks().0.iter().zip(x_tail) {
            total = f32::from_le_bytes(*w).mul_add(*x, total);
        }
        *out = total;
    }
}
