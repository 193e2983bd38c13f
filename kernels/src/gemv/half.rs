//! F16 rows (converted by the CPU) and BF16 rows (shifted).

use crate::lanes::{
    add, load, load_bf16_bytes, load_f16_bytes, mul_add, piece, prefetch_ahead, sum, zero,
};
use crate::quant::half::{bf16_to_f32, f16_to_f32};

// The two loops differ only in the conversion. A function passed in would not be inlined, because the function that
// passes it on lacks the target feature, so they share their source instead.
macro_rules! gemv {
    ($name:ident, $load:ident, $convert:ident) => {
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
        #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &[f32]) {
            for (out, row) in out.iter_mut().zip(bytes.chunks_exact(2 * x.len())) {
                let (lines, tail) = row.as_chunks::<64>();
                let (x_lines, x_tail) = x.as_chunks::<32>();
                let mut acc = [zero(); 4];
                for (line, x) in lines.iter().zip(x_lines) {
                    prefetch_ahead(line);
                    for (i, acc) in acc.iter_mut().enumerate() {
                        let w = $load(piece(line, 16 * i));
                        *acc = mul_add(w, load(&x.as_chunks().0[i]), *acc);
                    }
                }
                let [a, b, c, d] = acc;
                let mut total = sum(add(add(a, b), add(c, d)));
                for (w, x) in tail.as_chunks().0.iter().zip(x_tail) {
                    total = $convert(u16::from_le_bytes(*w)).mul_add(*x, total);
                }
                *out = total;
            }
        }
    };
}

gemv!(gemv_f16, load_f16_bytes, f16_to_f32);
gemv!(gemv_bf16, load_bf16_bytes, bf16_to_f32);
