//! Integer products: activations are rounded to 8 bits, and `vpdpbusd` (AVX-512 VNNI) adds four products in each of
//! eight or sixteen lanes.
//!
//! `vpdpbusd` multiplies unsigned with signed bytes. The weights are the unsigned side: their codes as stored, or with
//! an offset that makes them unsigned. What the offset adds is the same for all rows, a multiple of the sum of some
//! activations, and these sums are computed once.
//!
//! Where instructions are the bottleneck instead of memory, vectors are 64 bytes long, activations are rearranged once
//! into the order in which the codes are unpacked, and four rows share each load of them. Activations that are rounded
//! and in order are [`Arranged`]: once for all threads and all matrices of a type. Interleaved rows have loops of their
//! own, in `interleaved.rs`, which need half as many instructions.

mod four_or_five_bits;
pub(crate) mod interleaved;
mod q6_k;
mod q8_0;
mod ternary;
mod with_minimums;

use std::ops::Range;

use crate::activations::Activations;
use crate::{Matrix, QuantType};

/// Whether there is an integer loop for this type.
pub(crate) fn is_written(kind: QuantType) -> bool {
    use QuantType::{I2_S, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, TQ1_0, TQ2_0};
    let is_block_of_32 = matches!(kind, Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0);
    is_block_of_32 || matches!(kind, Q4_K | Q5_K | Q6_K | TQ1_0 | TQ2_0 | I2_S)
}

/// A vector of activations as the loop for a type reads them: rounded to 8 bits, in the order of its codes.
#[derive(Debug)]
pub(crate) struct Arranged {
    len: usize,
    order: Order,
}

#[derive(Debug)]
enum Order {
    Q8_0(q8_0::Arranged),
    FourOrFiveBits(four_or_five_bits::Arranged),
    WithMinimums(Vec<with_minimums::Block>),
    Q6K(q6_k::Arranged),
    TQ1(Vec<ternary::DigitBlock>),
    TQ2(Vec<(ternary::PairBlock, f32)>),
    I2S(ternary::ArrangedI2S),
    InterleavedWithMinimums(Vec<interleaved::BlockWithMinimums>),
    InterleavedQ6K(Vec<interleaved::BlockOfSixteens>),
    /// For Q4_0 or Q8_0.
    Interleaved32(Vec<interleaved::Block32>),
    InterleavedTQ2(Vec<interleaved::Block256>),
}

impl Arranged {
    /// Prepares `x`, whole blocks of a type that has a loop, for interleaved rows or rows in file order.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn new(kind: QuantType, is_interleaved: bool, x: &[f32]) -> Self {
        let order = if is_interleaved {
            Self::interleaved(kind, x)
        } else {
            Self::by_row(kind, Activations::rounded_avx512(kind, x))
        };
        Self { len: x.len(), order }
    }

    /// Rounds block by block into what the loops read. Caches have little room for it, since the weights go by between
    /// two products.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn interleaved(kind: QuantType, x: &[f32]) -> Order {
        match kind {
            QuantType::Q4_K | QuantType::Q5_K => {
                Order::InterleavedWithMinimums(interleaved::with_minimums(x))
            }
            QuantType::Q6_K => Order::InterleavedQ6K(interleaved::of_sixteens(x)),
            QuantType::Q8_0 => Order::Interleaved32(interleaved::in_blocks::<2, 8>(x, 128)),
            QuantType::Q4_0 => Order::Interleaved32(interleaved::in_blocks::<2, 8>(
                x,
                four_or_five_bits::offset(kind),
            )),
            QuantType::TQ2_0 => Order::InterleavedTQ2(interleaved::in_blocks::<16, 64>(x, 1)),
            kind => {
                unreachable!("interleaved rows of {kind} have no integer loop")
            }
        }
    }

    fn by_row(kind: QuantType, rounded: Activations) -> Order {
        match kind {
            QuantType::Q8_0 => Order::Q8_0(q8_0::arrange(&rounded)),
            QuantType::Q4_0 | QuantType::Q4_1 | QuantType::Q5_0 | QuantType::Q5_1 => {
                Order::FourOrFiveBits(four_or_five_bits::arrange(
                    &rounded,
                    four_or_five_bits::offset(kind),
                ))
            }
            QuantType::Q4_K | QuantType::Q5_K => {
                Order::WithMinimums(with_minimums::arrange(&rounded))
            }
            QuantType::Q6_K => Order::Q6K(q6_k::arrange(rounded)),
            QuantType::TQ1_0 => Order::TQ1(ternary::arrange_tq1_0(&rounded)),
            QuantType::TQ2_0 => Order::TQ2(ternary::arrange_tq2_0(&rounded)),
            QuantType::I2_S => Order::I2S(ternary::arrange_i2_s(&rounded)),
            kind @ (QuantType::F32 | QuantType::F16 | QuantType::BF16) => {
                unreachable!("{kind} has no integer loop")
            }
        }
    }
}

/// `out = W[rows]·x`, for a type and layout that `x` was arranged for, or another type that reads it in the same way.
///
/// # Panics
///
/// If a length differs, or `w` doesn't have these rows.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn gemv_rows(out: &mut [f32], w: Matrix, rows: Range<usize>, x: &Arranged) {
    super::check(out.len(), &w, &rows, x.len);
    if w.is_interleaved() {
        return match (w.kind(), &x.order) {
            (QuantType::Q4_K, Order::InterleavedWithMinimums(x)) => {
                interleaved::gemv_q4_k(out, &w, rows, x);
            }
            (QuantType::Q5_K, Order::InterleavedWithMinimums(x)) => {
                interleaved::gemv_q5_k(out, &w, rows, x);
            }
            (QuantType::Q6_K, Order::InterleavedQ6K(x)) => {
                interleaved::gemv_q6_k(out, &w, rows, x);
            }
            (QuantType::Q8_0, Order::Interleaved32(x)) => {
                interleaved::gemv_q8_0(out, &w, rows, x);
            }
            (QuantType::Q4_0, Order::Interleaved32(x)) => {
                interleaved::gemv_q4_0(out, &w, rows, x);
            }
            (QuantType::TQ2_0, Order::InterleavedTQ2(x)) => {
                interleaved::gemv_tq2_0(out, &w, rows, x);
            }
            _ => unreachable!("activations were arranged for another matrix than {w:?}"),
        };
    }
    let bytes = w.rows_bytes(rows);
    match (w.kind(), &x.order) {
        (QuantType::Q8_0, Order::Q8_0(x)) => q8_0::gemv(out, bytes, x),
        (QuantType::Q4_0, Order::FourOrFiveBits(x)) => four_or_five_bits::gemv_q4_0(out, bytes, x),
        (QuantType::Q4_1, Order::FourOrFiveBits(x)) => four_or_five_bits::gemv_q4_1(out, bytes, x),
        (QuantType::Q5_0, Order::FourOrFiveBits(x)) => four_or_five_bits::gemv_q5_0(out, bytes, x),
        (QuantType::Q5_1, Order::FourOrFiveBits(x)) => four_or_five_bits::gemv_q5_1(out, bytes, x),
        (QuantType::TQ1_0, Order::TQ1(x)) => ternary::gemv_tq1_0(out, bytes, x),
        (QuantType::TQ2_0, Order::TQ2(x)) => ternary::gemv_tq2_0(out, bytes, x),
        (QuantType::I2_S, Order::I2S(x)) => ternary::gemv_i2_s(out, bytes, w.tensor_scale(), x),
        (QuantType::Q4_K, Order::WithMinimums(x)) => with_minimums::gemv_q4_k(out, bytes, x),
        (QuantType::Q5_K, Order::WithMinimums(x)) => with_minimums::gemv_q5_k(out, bytes, x),
        (QuantType::Q6_K, Order::Q6K(x)) => q6_k::gemv(out, bytes, x),
        (kind, _) => unreachable!("activations were arranged for another type than {kind}"),
    }
}

/// Which rows are multiplied together: one from each quarter, since a CPU's prefetchers follow four streams in
/// different pages, but not four in one. The last four may contain the same row twice.
pub(super) fn by_fours(n_rows: usize) -> impl Iterator<Item = [usize; 4]> {
    let quarter = n_rows.div_ceil(4);
    (0..quarter).map(move |i| [0, 1, 2, 3].map(|r| (r * quarter + i).min(n_rows - 1)))
}

/// The blocks of four rows, in step.
#[inline(always)]
pub(super) fn side_by_side<const BYTES: usize>(
    rows: [&[u8]; 4],
) -> impl Iterator<Item = [&[u8; BYTES]; 4]> {
    let [a, b, c, d] = rows.map(|row| row.as_chunks::<BYTES>().0.iter());
    a.zip(b).zip(c.zip(d)).map(|((a, b), (c, d))| [a, b, c, d])
}

#[cfg(test)]
mod tests {
    use crate::tests::encode;
    use crate::{Backend, Kernels, Matrix, QuantType, can_be_interleaved, interleave};

    #[test]
    fn every_row_is_in_one_of_the_fours() {
        for n_rows in 0..20 {
            let mut rows: Vec<usize> = super::by_fours(n_rows).flatten().collect();
            rows.sort();
            rows.dedup();
            assert_eq!(rows, (0..n_rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_no_number_is_in_every_row() {
        let Ok(kernels) = Kernels::new(Backend::Avx512) else {
            return eprintln!("skipped: no AVX-512 VNNI");
        };
        for kind in QuantType::ALL.into_iter().filter(|kind| super::is_written(*kind)) {
            // Blocks that aren't a multiple of what is multiplied at a time.
            let (rows, cols) = (5, 3 * kind.block_len());
            let bytes = encode(kind, &vec![0.0; 16 * cols]);
            let row_bytes = cols / kind.block_len() * kind.block_bytes();
            let some = match kind {
                QuantType::I2_S => encode(kind, &vec![0.0; rows * cols]),
                _ => bytes[..rows * row_bytes].to_vec(),
            };
            let mut matrices = vec![Matrix::new(kind, rows, cols, &some).unwrap()];
            let mut interleaved = bytes;
            if can_be_interleaved(kind) {
                interleave(kind, cols, &mut interleaved);
                matrices.push(Matrix::interleaved(kind, 16, cols, &interleaved).unwrap());
            }
            for (w, at) in matrices.into_iter().flat_map(|w| [(w, 0), (w, cols - 1)]) {
                let mut x = vec![1.0; cols];
                x[at] = f32::INFINITY;
                let mut out = vec![0.0; w.rows()];
                kernels.gemv(&mut out, w, &x);
                assert!(out.iter().all(|y| y.is_nan()), "{w:?}: {out:?}");
            }
        }
    }
}
