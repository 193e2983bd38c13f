//! Each loop over interleaved rows against sums of integers.

use super::*;
use crate::lanes::wide::{INTO_L2, NOWHERE};
use crate::quant::{q5_k, q6_k, ternary};
use crate::tests::{encode, noise};
use crate::{Backend, Kernels, Matrix, interleave};

/// Bytes of a block, row by row: random ones and the extremes of codes, scales and minimums.
fn blocks(bytes: usize) -> Vec<Vec<u8>> {
    let random = |seed| {
        let noise = noise(seed, GROUP_ROWS * bytes);
        noise.iter().map(|x| ((x + 1.0) * 128.0) as u8).collect()
    };
    let same = [0x00, 0x0f, 0x3f, 0x7f, 0x80, 0xc0, 0xf0, 0xff];
    let same = same.map(|byte| vec![byte; GROUP_ROWS * bytes]);
    (1..20).map(random).chain(same).collect()
}

/// Activations that are rounded to themselves.
fn activations(len: usize) -> Vec<Vec<f32>> {
    let mut all: Vec<Vec<f32>> =
        (1..4).map(|seed| noise(seed, len).iter().map(|x| (x * 127.0).round()).collect()).collect();
    all.extend([127.0, -127.0].map(|x| vec![x; len]));
    all.push((0..len).map(|i| if i % 2 == 0 { 127.0 } else { -127.0 }).collect());
    all.push((0..len).map(|i| if i % 64 < 32 { 127.0 } else { -127.0 }).collect());
    for x in &mut all {
        x[len / 2] = 127.0;
    }
    all
}

/// The sum of integer products of each row, if these half floats of each block are as given.
fn sums(kind: QuantType, bytes: &[u8], halves: &[(usize, f32)], x: &[f32]) -> Vec<f32> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(kind.block_bytes()) {
        for &(at, value) in halves {
            let half = crate::quant::half::f32_to_f16(value);
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    let w = Matrix::new(kind, GROUP_ROWS, x.len(), &bytes).unwrap();
    let mut weights = vec![0.0; x.len()];
    let sum = |row| {
        w.dequantize_row(row, &mut weights);
        weights.iter().zip(x).map(|(w, x)| *w as i64 * *x as i64).sum::<i64>() as f32
    };
    (0..GROUP_ROWS).map(sum).collect()
}

#[test]
fn a_block_is_its_sum_of_integers() {
    let Ok(kernels) = Kernels::new(Backend::Avx512) else {
        return eprintln!("skipped: no AVX-512 VNNI");
    };
    // Where the factors of scales and minimums are in a block.
    let kinds: [(_, usize, Option<usize>); 6] = [
        (QuantType::Q4_K, 0, Some(2)),
        (QuantType::Q5_K, 0, Some(2)),
        (QuantType::Q6_K, q6_k::D, None),
        (QuantType::Q8_0, 0, None),
        (QuantType::Q4_0, 0, None),
        (QuantType::TQ2_0, ternary::TQ2_0_BYTES - 2, None),
    ];
    const { assert!(q5_k::LEN == LEN && q6_k::LEN == LEN) };
    for (kind, d, dmin) in kinds {
        let len = kind.block_len();
        for bytes in blocks(kind.block_bytes()) {
            for x in activations(len) {
                let halves = |of_d, of_dmin| {
                    [Some((d, of_d)), dmin.map(|at| (at, of_dmin))].into_iter().flatten()
                };
                let sums_with = |of_d, of_dmin| {
                    let halves: Vec<_> = halves(of_d, of_dmin).collect();
                    sums(kind, &bytes, &halves, &x)
                };
                // Sums may be larger than what a float holds exactly, so products and minimums are rounded each by
                // itself, as the kernel does.
                let products = sums_with(1.0, 0.0);
                let minimums = sums_with(0.0, 1.0);
                let mut lines = bytes.clone();
                for block in lines.chunks_exact_mut(kind.block_bytes()) {
                    for (at, value) in halves(1.0, 1.0) {
                        let half = crate::quant::half::f32_to_f16(value).to_le_bytes();
                        block[at..at + 2].copy_from_slice(&half);
                    }
                }
                interleave(kind, len, &mut lines);
                let w = Matrix::interleaved(kind, GROUP_ROWS, len, &lines).unwrap();
                let mut out = [0.0; GROUP_ROWS];
                kernels.gemv(&mut out, w, &x);
                for row in 0..GROUP_ROWS {
                    let expected = products[row] + if dmin.is_some() { minimums[row] } else { 0.0 };
                    assert_eq!(out[row], expected, "{kind}, row {row}");
                }
                for sums in each(kind, &lines, &x) {
                    assert_eq!(sums, out, "{kind}: prefetching changes nothing");
                }
            }
        }
    }
}

#[test]
fn prefetching_changes_nothing_in_rows_of_several_blocks() {
    if Kernels::new(Backend::Avx512).is_err() {
        return eprintln!("skipped: no AVX-512 VNNI");
    }
    let kinds = [
        QuantType::Q4_K,
        QuantType::Q5_K,
        QuantType::Q6_K,
        QuantType::Q8_0,
        QuantType::Q4_0,
        QuantType::TQ2_0,
    ];
    for kind in kinds {
        // Two pairs of blocks, and one.
        let len = 5 * kind.block_len();
        let mut group = encode(kind, &noise(1, GROUP_ROWS * len));
        interleave(kind, len, &mut group);
        let [never, l2, l1] = each(kind, &group, &noise(2, len));
        assert!(never.iter().all(|sum| sum.is_finite() && *sum != 0.0), "{kind}: {never:?}");
        assert_eq!([l2, l1], [never; 2], "{kind}");
    }
}

/// One group's products, without prefetches and with both kinds.
#[allow(unsafe_code, reason = "calls what was found to be there")]
fn each(kind: QuantType, group: &[u8], x: &[f32]) -> [[f32; GROUP_ROWS]; 3] {
    use crate::lanes::wide::store_f32x16;

    macro_rules! each {
        ($group:ident, $x:expr) => {{
            let mut out = [[0.0; GROUP_ROWS]; 3];
            // SAFETY: the caller found that the CPU has AVX-512.
            unsafe {
                let x = $x;
                store_f32x16(&mut out[0], $group::<NOWHERE>(group, &x));
                store_f32x16(&mut out[1], $group::<INTO_L2>(group, &x));
                store_f32x16(&mut out[2], $group::<INTO_L1>(group, &x));
            }
            out
        }};
    }
    match kind {
        QuantType::Q4_K => each!(group_of_q4_k, with_minimums(x)),
        QuantType::Q5_K => each!(group_of_q5_k, with_minimums(x)),
        QuantType::Q6_K => each!(group_of_q6_k, of_sixteens(x)),
        QuantType::Q8_0 => each!(group_of_q8_0, in_blocks::<2, 8>(x, 128)),
        QuantType::Q4_0 => each!(group_of_q4_0, in_blocks::<2, 8>(x, 8)),
        _ => each!(group_of_tq2_0, in_blocks::<16, 64>(x, 1)),
    }
}
