//! Whole numbers times whole numbers: activations are rounded to 8 bits, and `vpdpbusd` (AVX-512 VNNI) adds
//! up 32 products at a time.
//!
//! `vpdpbusd` multiplies unsigned with signed bytes. Weights are the unsigned side: their codes as they are
//! stored, or with an offset that makes them so. What the offset adds is the same for all rows, a multiple
//! of the sum of some activations, and these sums are made once.

mod q4_k;
mod q6_k;
mod q8_0;

use std::ops::Range;

use crate::activations::Activations;
use crate::{Matrix, QuantType};

/// Whether there is such a loop for this type.
pub(crate) fn is_written(kind: QuantType) -> bool {
    matches!(kind, QuantType::Q8_0 | QuantType::Q4_K | QuantType::Q6_K)
}

/// `out = W[rows]·x`, of a type that there is a loop for.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn gemv_rows(out: &mut [f32], w: Matrix, rows: Range<usize>, x: &Activations) {
    let bytes = w.rows_bytes(rows);
    match w.kind() {
        QuantType::Q8_0 => q8_0::gemv(out, bytes, x),
        QuantType::Q4_K => q4_k::gemv(out, bytes, x),
        QuantType::Q6_K => q6_k::gemv(out, bytes, x),
        kind => unreachable!("no int8 loop for {kind}"),
    }
}
