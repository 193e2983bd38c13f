//! Matrix times vector, `out = W·x`: where decoding spends nearly all of its time.
//!
//! The speed is limited by how fast the weights arrive from memory, so they are read once, in their stored format, and
//! decoded in registers. On AVX2 and NEON, activations stay `f32`: unlike llama.cpp, these kernels don't round them to
//! 8 bits, and each product is that of the decoded weights up to the rounding of `f32` sums. The AVX-512 kernels in
//! `int8/` do round them; those for float weights (`float.rs`) don't.
//!
//! Each format's loop over eight lanes has a file: `four_or_five_bits.rs` for the formats with 32 weights per scale and fewer than
//! 8 bits, `with_minimums.rs` for Q4_K and Q5_K, and the others under their own names. A row's sum doesn't depend on
//! which other rows are computed, so dividing a matrix among threads doesn't change the results.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod f32;
#[cfg(target_arch = "x86_64")]
mod float;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod four_or_five_bits;
#[cfg(target_arch = "x86_64")]
pub(crate) mod groups;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod half;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod q6_k;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod q8_0;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod ternary;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod with_minimums;

#[cfg(target_arch = "x86_64")]
pub(crate) mod int8;

use std::ops::Range;

use crate::Matrix;

/// A vector of activations in the form that a kernel multiplies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Vector<'a> {
    /// As floats.
    Floats(&'a [f32]),
    /// Rounded to 8 bits for the integer kernels.
    #[cfg(target_arch = "x86_64")]
    Arranged(&'a int8::Arranged),
}

/// # Panics
///
/// If a length differs, or `w` doesn't have these rows.
pub(crate) fn check(out: usize, w: &Matrix, rows: &Range<usize>, x: usize) {
    assert!(x == w.cols(), "gemv: x has {x} elements, but {w:?} has {} columns", w.cols());
    assert!(rows.start <= rows.end && rows.end <= w.rows(), "gemv: rows {rows:?} of {w:?}");
    assert!(out == rows.len(), "gemv: out has {out} elements for {} rows", rows.len());
}

/// The reference: decodes each row, then multiplies it.
pub mod scalar {
    use std::ops::Range;

    use crate::Matrix;
    use crate::dot::scalar::dot;

    /// `out = W[rows]·x`.
    ///
    /// # Panics
    ///
    /// If `x` isn't as long as `w` has columns, `out` isn't as long as `rows`, or `w` doesn't have these rows.
    pub fn gemv_rows(out: &mut [f32], w: Matrix, rows: Range<usize>, x: &[f32]) {
        super::check(out.len(), &w, &rows, x.len());
        let mut weights = vec![0.0; w.cols()];
        for (out, row) in out.iter_mut().zip(rows) {
            w.dequantize_row(row, &mut weights);
            *out = dot(&weights, x);
        }
    }
}

/// Float activations, sixteen at a time. Arranged ones go to `int8/`.
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use std::ops::Range;

    use super::float;
    use crate::{Matrix, QuantType};

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn gemv_rows(out: &mut [f32], w: Matrix, rows: Range<usize>, x: &[f32]) {
        super::check(out.len(), &w, &rows, x.len());
        if x.is_empty() {
            return out.fill(0.0);
        }
        if w.is_interleaved() {
            return match w.kind() {
                QuantType::F32 => float::gemv_groups_f32(out, &w, rows, x),
                QuantType::F16 => float::gemv_groups_f16(out, &w, rows, x),
                QuantType::BF16 => float::gemv_groups_bf16(out, &w, rows, x),
                kind => unreachable!("activations for {kind} are arranged"),
            };
        }
        let bytes = w.rows_bytes(rows);
        match w.kind() {
            QuantType::F32 => float::gemv_f32(out, bytes, x),
            QuantType::F16 => float::gemv_f16(out, bytes, x),
            QuantType::BF16 => float::gemv_bf16(out, bytes, x),
            kind => unreachable!("activations for {kind} are arranged"),
        }
    }
}

/// Decodes weights in registers, eight at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use std::ops::Range;

    use crate::interleave::GROUP_ROWS;
    use crate::{Matrix, QuantType};

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn gemv_rows(out: &mut [f32], w: Matrix, rows: Range<usize>, x: &[f32]) {
        super::check(out.len(), &w, &rows, x.len());
        if x.is_empty() {
            return out.fill(0.0);
        }
        if !w.is_interleaved() {
            return multiply(out, &w, w.rows_bytes(rows), x);
        }
        // These loops read rows in file order: some interleaved rows are gathered, and then read from the cache.
        let mut bytes = Vec::new();
        for (out, first) in out.chunks_mut(GROUP_ROWS).zip(rows.step_by(GROUP_ROWS)) {
            w.gather(first..first + out.len(), &mut bytes);
            multiply(out, &w, &bytes, x);
        }
    }

    /// Multiplies the rows in `bytes`, which are of `w`'s type and in file order.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    fn multiply(out: &mut [f32], w: &Matrix, bytes: &[u8], x: &[f32]) {
        match w.kind() {
            QuantType::F32 => super::f32::gemv(out, bytes, x),
            QuantType::F16 => super::half::gemv_f16(out, bytes, x),
            QuantType::BF16 => super::half::gemv_bf16(out, bytes, x),
            QuantType::Q4_0 => super::four_or_five_bits::gemv_q4_0(out, bytes, x),
            QuantType::Q4_1 => super::four_or_five_bits::gemv_q4_1(out, bytes, x),
            QuantType::Q5_0 => super::four_or_five_bits::gemv_q5_0(out, bytes, x),
            QuantType::Q5_1 => super::four_or_five_bits::gemv_q5_1(out, bytes, x),
            QuantType::Q8_0 => super::q8_0::gemv(out, bytes, x),
            QuantType::Q4_K => super::with_minimums::gemv_q4_k(out, bytes, x),
            QuantType::Q5_K => super::with_minimums::gemv_q5_k(out, bytes, x),
            QuantType::Q6_K => super::q6_k::gemv(out, bytes, x),
            QuantType::TQ1_0 => super::ternary::gemv_tq1_0(out, bytes, x),
            QuantType::TQ2_0 => super::ternary::gemv_tq2_0(out, bytes, x),
            QuantType::I2_S => super::ternary::gemv_i2_s(out, bytes, w.tensor_scale(), x),
        }
    }

    /// The sum of each `N` neighbours in `x`. A minimum or an offset that the weights of a sub-block share is
    /// multiplied with it once, instead of being added to each weight of each row.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(super) fn sums<const N: usize>(x: &[f32]) -> Vec<f32> {
        use crate::lanes::{add, load, sum, zero};

        let mut sums = Vec::with_capacity(x.len() / N);
        for group in x.as_chunks::<N>().0 {
            let mut acc = zero();
            for eight in group.as_chunks::<8>().0 {
                acc = add(acc, load(eight));
            }
            sums.push(sum(acc));
        }
        sums
    }
}
