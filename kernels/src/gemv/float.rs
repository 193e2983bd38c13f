//! Rows of floats, sixteen lanes at a time: F32, F16 (converted by the CPU) and BF16 (shifted).
//!
//! Of rows in file order, one from each quarter of the matrix is read at the same time, since a CPU's prefetchers follow
//! four streams in different pages further than one. Interleaved rows are one stream, and run at memory speed.

use std::arch::x86_64::*;

use super::groups::{in_order, of_groups};
use super::int8::{by_fours, side_by_side};
use crate::lanes::wide::{
    load_bf16_bytes, load_f16_bytes, load_f32_bytes, load_f32x16, prefetch_after, sum16,
};
use crate::lanes::{piece, prefetch_ahead_of_four};
use crate::quant::half::{bf16_to_f32, f16_to_f32};

/// How many columns are multiplied at a time.
const RUN: usize = 32;

// The loops differ only in the conversion. A function passed in would not be inlined, because the function that passes
// it on lacks the target feature, so they share their source instead.
macro_rules! gemv {
    ($name:ident, $bytes:literal, $load:ident, $convert:expr) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(super) fn $name(out: &mut [f32], bytes: &[u8], x: &[f32]) {
            let row_bytes = $bytes * x.len();
            let (x_runs, x_tail) = x.as_chunks::<RUN>();
            for rows in by_fours(out.len()) {
                let bytes = rows.map(|row| &bytes[row * row_bytes..][..row_bytes]);
                let mut acc = [[_mm512_setzero_ps(); 2]; 4];
                let runs = side_by_side::<{ $bytes * RUN }>(bytes);
                for (runs, x) in runs.zip(x_runs) {
                    let x = x.as_chunks().0;
                    let x = [load_f32x16(&x[0]), load_f32x16(&x[1])];
                    for (acc, run) in acc.iter_mut().zip(runs) {
                        for line in run.chunks(64) {
                            prefetch_ahead_of_four(line);
                        }
                        for i in 0..2 {
                            let w = $load(piece(run, $bytes * 16 * i));
                            acc[i] = _mm512_fmadd_ps(w, x[i], acc[i]);
                        }
                    }
                }
                for ((row, bytes), [a, b]) in rows.into_iter().zip(bytes).zip(acc) {
                    let mut total = sum16(_mm512_add_ps(a, b));
                    let tail = &bytes[$bytes * RUN * x_runs.len()..];
                    for (w, x) in tail.as_chunks().0.iter().zip(x_tail) {
                        total = $convert(*w).mul_add(*x, total);
                    }
                    out[row] = total;
                }
            }
        }
    };
}

gemv!(gemv_f32, 4, load_f32_bytes, f32::from_le_bytes);
gemv!(gemv_f16, 2, load_f16_bytes, |w| f16_to_f32(u16::from_le_bytes(w)));
gemv!(gemv_bf16, 2, load_bf16_bytes, |w| bf16_to_f32(u16::from_le_bytes(w)));

/// How many columns of sixteen rows are multiplied at a time, in independent sums.
const COLUMNS: usize = 8;

// Sixteen interleaved rows: each lane is a row, and each column of them is multiplied with one activation.
macro_rules! group {
    ($name:ident, $bytes:literal, $load:ident) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline]
        fn $name<const TO: u8>(group: &[u8], x: &[f32]) -> __m512 {
            let (runs, rest) = group.as_chunks::<{ 16 * $bytes * COLUMNS }>();
            let (x_runs, x_rest) = x.as_chunks::<COLUMNS>();
            let mut acc = [_mm512_setzero_ps(); COLUMNS];
            for (run, x) in runs.iter().zip(x_runs) {
                in_order();
                prefetch_after::<TO>(run.as_chunks().0);
                for i in 0..COLUMNS {
                    let w = $load(piece(run, 16 * $bytes * i));
                    acc[i] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[i]), acc[i]);
                }
            }
            for (column, x) in rest.as_chunks().0.iter().zip(x_rest) {
                acc[0] = _mm512_fmadd_ps($load(column), _mm512_set1_ps(*x), acc[0]);
            }
            let [a, b, c, d, e, f, g, h] = acc;
            let sum = |a, b, c, d| _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
            _mm512_add_ps(sum(a, b, c, d), sum(e, f, g, h))
        }
    };
}

group!(group_of_f32, 4, load_f32_bytes);
group!(group_of_f16, 2, load_f16_bytes);
group!(group_of_bf16, 2, load_bf16_bytes);

of_groups!(pub(super) gemv_groups_f32, f32, group_of_f32, false);
of_groups!(pub(super) gemv_groups_f16, f32, group_of_f16, true);
of_groups!(pub(super) gemv_groups_bf16, f32, group_of_bf16, false);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interleave::GROUP_ROWS;
    use crate::lanes::wide::{INTO_L1, INTO_L2, NOWHERE, store_f32x16};
    use crate::tests::{encode, noise};
    use crate::{Backend, Kernels, QuantType, interleave};

    #[test]
    #[allow(unsafe_code, reason = "calls what was found to be there")]
    fn prefetching_changes_nothing() {
        if Kernels::new(Backend::Avx512).is_err() {
            return eprintln!("skipped: no AVX-512 VNNI");
        }
        for cols in [1, 7, 8, 9, 100] {
            let (weights, x) = (noise(1, GROUP_ROWS * cols), noise(2, cols));
            macro_rules! check {
                ($kind:expr, $group:ident) => {
                    let mut group = encode($kind, &weights);
                    interleave($kind, cols, &mut group);
                    let (mut without, mut with) = ([0.0; GROUP_ROWS], [[1.0; GROUP_ROWS]; 2]);
                    // SAFETY: the CPU has it, as was asked above.
                    unsafe {
                        store_f32x16(&mut without, $group::<NOWHERE>(&group, &x));
                        store_f32x16(&mut with[0], $group::<INTO_L2>(&group, &x));
                        store_f32x16(&mut with[1], $group::<INTO_L1>(&group, &x));
                    }
                    assert_eq!([without; 2], with, "{}, {cols} columns", $kind);
                };
            }
            check!(QuantType::F32, group_of_f32);
            check!(QuantType::F16, group_of_f16);
            check!(QuantType::BF16, group_of_bf16);
        }
    }
}
