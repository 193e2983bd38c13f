//! Every operation on every backend that this CPU has, against an `f64` reference written from the formula, over many
//! shapes.

use std::num::NonZeroUsize;

use brickscope_testing::cases;
use proptest::prelude::*;

use crate::*;

mod same_bits;

/// All kernels that this CPU can run.
fn backends() -> Vec<Kernels> {
    let made = [Backend::Scalar, Backend::Avx2, Backend::Avx512, Backend::Neon]
        .map(|backend| Kernels::new(backend).inspect_err(|why| eprintln!("skipped: {why}")).ok());
    made.into_iter().flatten().collect()
}

/// `|a - b| <= tolerance` where that makes sense; NaN is expected only where the reference has it.
fn close(actual: f32, expected: f64, tolerance: f64) -> bool {
    let actual = f64::from(actual);
    (actual - expected).abs() <= tolerance || actual.is_nan() && expected.is_nan()
}

fn assert_all_close(
    kernels: Kernels,
    actual: &[f32],
    expected: &[f64],
    tolerance: impl Fn(usize) -> f64,
) {
    assert_eq!(actual.len(), expected.len());
    for (i, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!(
            close(*actual, *expected, tolerance(i)),
            "{}: element {i} is {actual}, not {expected}",
            kernels.backend()
        );
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Floats of ordinary size, with zeros and denormals among them.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -4.0f32..4.0,
        1 => Just(0.0f32),
        1 => Just(1e-40f32),
        1 => -1000.0f32..1000.0,
    ]
}

/// Seeded random numbers, for data that proptest would take too long to make.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// A matrix of these bytes, which are in file order. If it is to be interleaved, they are rearranged in place.
pub(crate) fn laid_out(
    kind: QuantType,
    [rows, cols]: [usize; 2],
    is_interleaved: bool,
    bytes: &mut [u8],
) -> Matrix<'_> {
    if is_interleaved {
        interleave(kind, cols, bytes);
        return Matrix::interleaved(kind, rows, cols, bytes).unwrap();
    }
    Matrix::new(kind, rows, cols, bytes).unwrap()
}

/// `x`, whole blocks, as weights of a type.
pub(crate) fn encode(kind: QuantType, x: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match kind {
        QuantType::I2_S => quant::quantize_i2_s(x, &mut bytes),
        _ => quant::quantize_row(kind, x, &mut bytes),
    }
    bytes
}

mod elementwise {
    use super::*;

    fn rms_norm_reference(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
        let squares: f64 = wide(x).iter().map(|x| x * x).sum();
        let rms = (squares / x.len() as f64 + f64::from(eps)).sqrt();
        wide(x).iter().zip(wide(weight)).map(|(x, w)| x / rms * w).collect()
    }

    proptest! {
        #![proptest_config(cases(128))]

        #[test]
        fn rms_norm_is_the_formula(x in prop::collection::vec((value(), value()), 1..300)) {
            let (x, weight): (Vec<f32>, Vec<f32>) = x.into_iter().unzip();
            let expected = rms_norm_reference(&x, &weight, 1e-5);
            for kernels in backends() {
                let mut out = vec![f32::NAN; x.len()];
                kernels.rms_norm(&mut out, &x, &weight, 1e-5);
                let tolerance = |i: usize| 2e-6 * expected[i].abs() + 1e-30;
                assert_all_close(kernels, &out, &expected, tolerance);

                let mut in_place = x.clone();
                kernels.rms_norm_in_place(&mut in_place, &weight, 1e-5);
                prop_assert_eq!(in_place, out);
            }
        }

        #[test]
        fn softmax_is_the_formula(
            mut x in prop::collection::vec(prop_oneof![
                8 => -20.0f32..20.0, 1 => -200.0f32..0.0, 1 => Just(f32::NEG_INFINITY)
            ], 1..100),
            at in any::<prop::sample::Index>(),
        ) {
            // At least one score isn't masked.
            *at.get_mut(&mut x) = 3.0;
            let max = wide(&x).into_iter().fold(f64::NEG_INFINITY, f64::max);
            let exps: Vec<f64> = wide(&x).iter().map(|x| (x - max).exp()).collect();
            let sum: f64 = exps.iter().sum();
            let expected: Vec<f64> = exps.iter().map(|e| e / sum).collect();
            for kernels in backends() {
                let mut out = x.clone();
                kernels.softmax(&mut out);
                // Absolutely for what is too small for a normal float. The subtraction of the
                // maximum rounds too, by up to 2^-24 of 200.
                let tolerance = |i: usize| {
                    let subtraction = (f64::from(x[i]) - max).abs().min(300.0) * 6e-8;
                    expected[i] * (1e-6 + subtraction) + 1.3e-38
                };
                assert_all_close(kernels, &out, &expected, tolerance);
                for (x, out) in x.iter().zip(&out) {
                    prop_assert!(*x > f32::NEG_INFINITY || *out == 0.0, "a masked score is 0");
                }
            }
        }

        #[test]
        fn gates_are_the_formula(x in prop::collection::vec((value(), value()), 0..100)) {
            let (gate, up): (Vec<f32>, Vec<f32>) = x.into_iter().unzip();
            let silu: Vec<f64> = wide(&gate)
                .iter()
                .zip(wide(&up))
                .map(|(g, up)| g / (1.0 + (-g).exp()) * up)
                .collect();
            let relu: Vec<f64> = wide(&gate)
                .iter()
                .zip(wide(&up))
                .map(|(g, up)| g.max(0.0).powi(2) * up)
                .collect();
            for kernels in backends() {
                let mut out = gate.clone();
                kernels.silu_mul(&mut out, &up);
                assert_all_close(kernels, &out, &silu, |i| 1e-6 * silu[i].abs() + 1e-30);
                let mut out = gate.clone();
                kernels.relu_squared_mul(&mut out, &up);
                assert_all_close(kernels, &out, &relu, |i| 2e-7 * relu[i].abs() + 1e-30);
            }
        }

        #[test]
        fn sums_are_those_of_f32(
            x in prop::collection::vec((value(), value()), 0..100), n in 0usize..4
        ) {
            let (x, y): (Vec<f32>, Vec<f32>) = x.into_iter().unzip();
            let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            for kernels in backends() {
                let mut out = x.clone();
                kernels.add(&mut out, &y);
                prop_assert_eq!(&out, &sum);

                let mut rows = x.repeat(n);
                kernels.add_bias(&mut rows, &y);
                prop_assert_eq!(rows, sum.repeat(n));

                let factor = y.first().copied().unwrap_or(0.5);
                let product: Vec<f32> = x.iter().map(|x| x * factor).collect();
                let mut out = x.clone();
                kernels.scale(&mut out, factor);
                prop_assert_eq!(out, product);
            }
        }

        #[test]
        fn rope_turns_pairs_and_leaves_the_rest(
            x in prop::collection::vec(value(), 0..140),
            pairs in any::<prop::sample::Index>(),
            pos in 0usize..5000,
        ) {
            let n_pairs = pairs.index(x.len() / 2 + 1);
            let (mut cos, mut sin) = (vec![0.0; n_pairs], vec![0.0; n_pairs]);
            rope_tables(pos, 10_000.0, 2 * n_pairs, None, 1.0, &mut cos, &mut sin);
            for order in [RopePairs::Norm, RopePairs::Neox] {
                let mut expected = wide(&x);
                for i in 0..n_pairs {
                    let (a, b) = match order {
                        RopePairs::Norm => (2 * i, 2 * i + 1),
                        RopePairs::Neox => (i, i + n_pairs),
                    };
                    let theta = pos as f64 * 10_000f64.powf(-(i as f64) / n_pairs as f64);
                    let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
                    expected[a] = xa * theta.cos() - xb * theta.sin();
                    expected[b] = xa * theta.sin() + xb * theta.cos();
                }
                for kernels in backends() {
                    let mut out = x.clone();
                    kernels.rope(&mut out, &cos, &sin, order);
                    assert_all_close(kernels, &out, &expected, |_| 4e-4);
                    prop_assert_eq!(&out[2 * n_pairs..], &x[2 * n_pairs..]);
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_so_behind_a_gate() {
        for kernels in backends() {
            for (gate, place) in [(f32::NAN, 2), (-f32::NAN, 9), (f32::INFINITY, 16)] {
                for op in [Kernels::silu_mul, Kernels::relu_squared_mul] {
                    let mut out = [0.5; 17];
                    out[place] = gate;
                    op(kernels, &mut out, &[2.0; 17]);
                    let bad: Vec<usize> = (0..17).filter(|&i| !out[i].is_finite()).collect();
                    assert_eq!(bad, [place], "{gate}, {}", kernels.backend());
                }
            }
        }
    }

    #[test]
    fn rope_tables_divide_by_factors_and_multiply_by_the_scale() {
        let (mut cos, mut sin) = ([0.0; 2], [0.0; 2]);
        rope_tables(6, 100.0, 4, Some(&[2.0, 4.0]), 0.5, &mut cos, &mut sin);
        // 6 · 100^0 / 2 · 0.5 and 6 · 100^(-1/2) / 4 · 0.5.
        for (i, theta) in [1.5f64, 0.075].into_iter().enumerate() {
            assert!(close(cos[i], theta.cos(), 1e-7) && close(sin[i], theta.sin(), 1e-7));
        }
    }

    #[test]
    fn huge_gates_neither_overflow_nor_leak() {
        for kernels in backends() {
            let mut gate = [-3e38, -1000.0, -90.0, -88.5, 88.5, 1000.0, 3e38, f32::NAN, -100.0];
            kernels.silu_mul(&mut gate, &[1.0; 9]);
            let name = kernels.backend();
            for small in [0, 1, 2, 3, 8] {
                assert!(gate[small].abs() < 1e-30, "{name}: {gate:?}");
            }
            assert_eq!(gate[4..7], [88.5, 1000.0, 3e38], "{name}");
            assert!(gate[7].is_nan(), "{name}");
        }
    }

    #[test]
    fn softmax_of_nothing_is_nothing_and_of_masks_alone_is_nan() {
        for kernels in backends() {
            kernels.softmax(&mut []);
            for len in [1, 8, 11] {
                let mut masks = vec![f32::NEG_INFINITY; len];
                kernels.softmax(&mut masks);
                assert!(masks.iter().all(|x| x.is_nan()));
                let mut one_nan = vec![1.0; len];
                one_nan[len / 2] = f32::NAN;
                kernels.softmax(&mut one_nan);
                assert!(one_nan.iter().all(|x| x.is_nan()));
            }
        }
    }

    #[test]
    fn softmax_of_large_scores_does_not_overflow() {
        for kernels in backends() {
            let mut x = [3e38, 3e38, -3e38, 0.0, 3e38, 1.0, 2.0, 3.0, 3e38];
            kernels.softmax(&mut x);
            assert_eq!(x, [0.25, 0.25, 0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.25]);
        }
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn the_polynomial_exp_is_good_to_2e_7() {
        if !Kernels::best().has_eight_lanes() {
            return eprintln!("skipped: no AVX2");
        }
        for x in (0..200_000).map(|i| -87.3 + i as f32 * (175.6 / 200_000.0)) {
            let expected = f64::from(x).exp();
            assert!(close(exp(x), expected, 2e-7 * expected), "exp({x}) = {}", exp(x));
        }
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[allow(unsafe_code, reason = "calls what its caller detected")]
    fn exp(x: f32) -> f32 {
        use crate::lanes::{splat, store};

        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
        #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
        fn exp(x: f32) -> f32 {
            let mut lanes = [0.0; 8];
            store(&mut lanes, softmax::eight_lanes::exp(splat(x)));
            lanes[7]
        }
        assert!(Kernels::best().has_eight_lanes());
        // SAFETY: asserted in the line above.
        unsafe { exp(x) }
    }
}

mod attention {
    use super::*;

    proptest! {
        #![proptest_config(cases(128))]

        #[test]
        fn scores_and_weighted_sums_are_dot_products(
            head in prop_oneof![Just(64usize), Just(128), 1usize..90],
            n_ctx in 0usize..20,
            gap in prop_oneof![Just(0usize), 1usize..30],
            seed in any::<u64>(),
        ) {
            let stride = head + gap;
            // The last row ends with the head.
            let cache = noise(seed, if n_ctx == 0 { 0 } else { (n_ctx - 1) * stride + head });
            let (q, p) = (noise(!seed, head), noise(seed ^ 9, n_ctx));
            let row = |t: usize| wide(&cache[t * stride..][..head]);

            let scores: Vec<f64> = (0..n_ctx)
                .map(|t| 0.125 * row(t).iter().zip(&q).map(|(k, &q)| k * f64::from(q)).sum::<f64>())
                .collect();
            let sum: Vec<f64> = (0..head)
                .map(|i| (0..n_ctx).map(|t| f64::from(p[t]) * row(t)[i]).sum())
                .collect();
            for kernels in backends() {
                let mut out = vec![f32::NAN; n_ctx];
                kernels.scores(&mut out, &q, &cache, stride, 0.125);
                assert_all_close(kernels, &out, &scores, |_| 1e-6 * head as f64);
                let mut out = vec![f32::NAN; head];
                kernels.weighted_sum(&mut out, &p, &cache, stride);
                assert_all_close(kernels, &out, &sum, |_| 1e-6 * n_ctx as f64);
            }
        }
    }
}

mod products {
    use super::*;

    /// A matrix's bytes in file order, and in its layout: the same, or interleaved.
    struct Stored {
        kind: QuantType,
        rows: usize,
        cols: usize,
        by_row: Vec<u8>,
        interleaved: Option<Vec<u8>>,
    }

    impl Stored {
        fn matrix(&self) -> Matrix<'_> {
            match &self.interleaved {
                Some(bytes) => Matrix::interleaved(self.kind, self.rows, self.cols, bytes).unwrap(),
                None => self.by_row(),
            }
        }

        fn by_row(&self) -> Matrix<'_> {
            Matrix::new(self.kind, self.rows, self.cols, &self.by_row).unwrap()
        }
    }

    /// A matrix of every type that allows `cols` columns, in every layout that allows `rows` rows.
    fn matrices(rows: usize, cols: usize, seed: u64) -> Vec<Stored> {
        let kinds = QuantType::ALL.into_iter();
        let kinds = kinds.filter(|kind| cols.is_multiple_of(kind.block_len()));
        let by_row = kinds.map(|kind| {
            let by_row = encode(kind, &noise(seed, rows * cols));
            Stored { kind, rows, cols, by_row, interleaved: None }
        });
        with_interleaved(by_row.collect())
    }

    /// Each matrix, and its interleaved twin if it can have one.
    fn with_interleaved(by_row: Vec<Stored>) -> Vec<Stored> {
        let both = by_row.into_iter().flat_map(|stored| {
            let Stored { kind, rows, cols, .. } = stored;
            let can_be = can_be_interleaved(kind) && rows.is_multiple_of(GROUP_ROWS);
            let twin = can_be.then(|| {
                let by_row = stored.by_row.clone();
                let mut interleaved = by_row.clone();
                interleave(kind, cols, &mut interleaved);
                Stored { kind, rows, cols, by_row, interleaved: Some(interleaved) }
            });
            std::iter::once(stored).chain(twin)
        });
        both.collect()
    }

    /// Up to `most` rows; whole groups half of the time.
    fn rows(most: usize) -> impl Strategy<Value = usize> {
        prop_oneof![0..most, (0..4usize).prop_map(|groups| GROUP_ROWS * groups)]
    }

    /// `W·x` in `f64` from the weights as stored, and `Σ |w·x|`, to which the rounding error of a sum is proportional.
    fn reference(w: Matrix, x: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let mut weights = vec![0.0; w.cols()];
        (0..w.rows())
            .map(|row| {
                w.dequantize_row(row, &mut weights);
                let products = || weights.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                (products().sum::<f64>(), products().map(f64::abs).sum::<f64>())
            })
            .unzip()
    }

    /// Sums of codes whose offset is subtracted at the end cancel more than the weights do: up to 32 times in Q6_K.
    const RELATIVE: f64 = 2e-6;

    /// Multiplies in every type, on every backend and in every way.
    fn check(rows: usize, cols: usize, n: usize, seed: u64) {
        for stored in matrices(rows, cols, seed) {
            let (kind, w) = (stored.kind, stored.matrix());
            let x = noise(seed ^ 0xabcd, n * cols);
            for kernels in backends() {
                let name = format!("{} {w:?}", kernels.matmul_name(kind, n));
                let mut gemm = vec![f32::NAN; n * rows];
                kernels.gemm(&mut gemm, w, &x, n);
                for i in 0..n {
                    let token = &x[i * cols..][..cols];
                    let mut gemv = vec![f32::NAN; rows];
                    kernels.gemv(&mut gemv, w, token);
                    for (n, actual) in [(1, &gemv[..]), (n, &gemm[i * rows..][..rows])] {
                        let taken_for = kernels.rounded_activations(kind, token, n);
                        let (expected, magnitude) = reference(stored.by_row(), &taken_for);
                        for row in 0..rows {
                            let tolerance = RELATIVE * magnitude[row] + 1e-12;
                            assert!(
                                close(actual[row], expected[row], tolerance),
                                "{name}: row {row} of token {i} is {}, not {}",
                                actual[row],
                                expected[row]
                            );
                        }
                    }
                    if n == 1 {
                        assert_eq!(gemv, gemm, "{name}");
                    }

                    // Some rows give the same bits as all of them.
                    let some = rows / 3..rows - rows / 4;
                    let mut part = vec![f32::NAN; some.len()];
                    kernels.gemv_rows(&mut part, w, some.clone(), token);
                    assert_eq!(part, gemv[some], "{name}");
                }
                // Where interleaved rows aren't faster they take the same loop, and so do products of several tokens once
                // weights are unpacked.
                let is_same = n != 1 || kernels.backend() != Backend::Avx512;
                if stored.interleaved.is_some() && is_same {
                    let mut by_row = vec![f32::NAN; n * rows];
                    kernels.gemm(&mut by_row, stored.by_row(), &x, n);
                    assert_eq!(by_row, gemm, "{name}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(cases(32))]

        #[test]
        fn products_of_block_shapes_agree_with_f64(
            rows in rows(21), blocks in 0usize..6, n in 0usize..8, seed in any::<u64>()
        ) {
            check(rows, 256 * blocks, n, seed);
        }

        #[test]
        fn products_of_small_blocks_agree_with_f64(
            rows in rows(10), blocks in 0usize..9, n in 0usize..4, seed in any::<u64>()
        ) {
            check(rows, 32 * blocks, n, seed);
        }

        #[test]
        fn products_of_odd_shapes_agree_with_f64(
            rows in 0usize..40, cols in 0usize..100, n in 0usize..8, seed in any::<u64>()
        ) {
            check(rows, cols, n, seed);
        }
    }

    #[test]
    fn rows_longer_than_a_piece_of_gemm_agree_with_f64() {
        let blocks = if cfg!(miri) { 3 } else { 9 };
        check(18, 256 * blocks, 5, 1);
        check(48, 256 * blocks, 7, 1);
        check(3, 1027, 4, 2);
    }

    #[test]
    fn any_bytes_at_all_are_multiplied_alike_on_every_backend() {
        // Every bit pattern of codes and packed scales, not only those that the quantisers write. The half-float
        // scales are set, so that there are no infinities to compare.
        let rows = GROUP_ROWS;
        let n_blocks = 3 * rows;
        for kind in QuantType::ALL {
            if kind.block_len() == 1 {
                continue;
            }
            for seed in 0..if cfg!(miri) { 1 } else { 20 } {
                let mut bytes: Vec<u8> = noise(seed, n_blocks * kind.block_bytes())
                    .iter()
                    .map(|x| ((x + 1.0) * 128.0) as u8)
                    .collect();
                for block in bytes.chunks_exact_mut(kind.block_bytes()) {
                    let d = quant::half::f32_to_f16(0.01 * seed as f32 - 0.05).to_le_bytes();
                    match kind {
                        QuantType::Q6_K => block[208..].copy_from_slice(&d),
                        QuantType::TQ1_0 => block[52..].copy_from_slice(&d),
                        QuantType::TQ2_0 => block[64..].copy_from_slice(&d),
                        QuantType::I2_S => {}
                        QuantType::Q4_K | QuantType::Q5_K | QuantType::Q4_1 | QuantType::Q5_1 => {
                            block[..2].copy_from_slice(&d);
                            block[2..4].copy_from_slice(&d);
                        }
                        _ => block[..2].copy_from_slice(&d),
                    }
                }
                if kind == QuantType::I2_S {
                    bytes.extend(0.3f32.to_le_bytes());
                    bytes.extend([0; 28]);
                }
                let cols = n_blocks / rows * kind.block_len();
                let stored = Stored { kind, rows, cols, by_row: bytes, interleaved: None };
                let x = noise(seed + 100, cols);
                for stored in with_interleaved(vec![stored]) {
                    let w = stored.matrix();
                    for kernels in backends() {
                        let expected = |n| {
                            let x = kernels.rounded_activations(kind, &x, n);
                            reference(stored.by_row(), &x)
                        };
                        let (one, magnitude) = expected(1);
                        let tolerance = |i: usize| 3e-6 * magnitude[i] + 1e-12;
                        let mut out = [f32::NAN; GROUP_ROWS];
                        kernels.gemv(&mut out, w, &x);
                        assert_all_close(kernels, &out, &one, tolerance);
                        let (expected, magnitude) = expected(2);
                        let tolerance = |i: usize| 3e-6 * magnitude[i] + 1e-12;
                        // The same token twice, to go through gemm's decoders.
                        let mut out = [f32::NAN; 2 * GROUP_ROWS];
                        kernels.gemm(&mut out, w, &x.repeat(2), 2);
                        assert_all_close(kernels, &out[..rows], &expected, tolerance);
                        assert_all_close(kernels, &out[rows..], &expected, tolerance);
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_denormals_and_large_activations_come_through() {
        for stored in matrices(GROUP_ROWS, 256, 3) {
            let (kind, w) = (stored.kind, stored.matrix());
            for scale in [0.0, 1e-39, 1e30] {
                let x: Vec<f32> = noise(4, 256).iter().map(|x| x * scale).collect();
                for kernels in backends() {
                    let x = kernels.rounded_activations(kind, &x, 1);
                    let (expected, magnitude) = reference(stored.by_row(), &x);
                    let mut out = [f32::NAN; GROUP_ROWS];
                    kernels.gemv(&mut out, w, &x);
                    // A denormal has few bits: each product may be off by its last bit.
                    let tolerance = |i: usize| RELATIVE * magnitude[i] + 256.0 * 64.0 * 1.5e-45;
                    assert_all_close(kernels, &out, &expected, tolerance);
                }
            }
        }
    }

    #[test]
    fn weights_need_no_alignment() {
        for stored in matrices(GROUP_ROWS, 256, 5) {
            let (kind, aligned) = (stored.kind, stored.matrix());
            let x = noise(6, 256);
            let shifted =
                [&[7][..], stored.interleaved.as_ref().unwrap_or(&stored.by_row)].concat();
            let shifted = match stored.interleaved {
                Some(_) => Matrix::interleaved(kind, GROUP_ROWS, 256, &shifted[1..]).unwrap(),
                None => Matrix::new(kind, GROUP_ROWS, 256, &shifted[1..]).unwrap(),
            };
            for kernels in backends() {
                let (mut a, mut b) = ([0.0; GROUP_ROWS], [1.0; GROUP_ROWS]);
                kernels.gemv(&mut a, aligned, &x);
                kernels.gemv(&mut b, shifted, &x);
                assert_eq!(a, b, "{kind}");
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let (shapes, cols) = if cfg!(miri) { ([33, 32], 256) } else { ([100, 112], 512) };
        for n_threads in 1..=3 {
            let pool = ThreadPool::new(NonZeroUsize::new(n_threads).unwrap()).unwrap();
            for stored in shapes.into_iter().flat_map(|rows| matrices(rows, cols, 7)) {
                let (kind, rows, w) = (stored.kind, stored.rows, stored.matrix());
                for kernels in backends() {
                    for n in [0, 1, 2, 5] {
                        let x = noise(8, n * cols);
                        let (mut alone, mut shared) = (vec![0.0; n * rows], vec![1.0; n * rows]);
                        kernels.gemm(&mut alone, w, &x, n);
                        kernels.matmul(&pool, &mut shared, w, &x, n);
                        assert_eq!(alone, shared, "{kind}, {n} tokens, {n_threads} threads");
                    }
                }
            }
        }
    }

    #[test]
    fn threads_that_share_the_rounding_give_the_same_bits() {
        if cfg!(miri) {
            return;
        }
        // Enough activations to be shared; fewer tokens than threads, and more.
        for (rows, cols, n) in [(3, 32_768, 2), (17, 512, 129), (32, 512, 129)] {
            for n_threads in 2..=3 {
                let pool = ThreadPool::new(NonZeroUsize::new(n_threads).unwrap()).unwrap();
                for stored in matrices(rows, cols, 7) {
                    let (kind, w) = (stored.kind, stored.matrix());
                    let kernels = Kernels::best();
                    let x = noise(8, n * cols);
                    let (mut alone, mut shared) = (vec![0.0; n * rows], vec![1.0; n * rows]);
                    kernels.gemm(&mut alone, w, &x, n);
                    kernels.matmul(&pool, &mut shared, w, &x, n);
                    assert_eq!(alone, shared, "{kind}, {n} tokens, {n_threads} threads");
                }
            }
        }
    }

    #[test]
    fn a_token_has_the_same_bits_whatever_tokens_are_beside_it() {
        let (shapes, cols, n) = if cfg!(miri) { ([3, 16], 256, 3) } else { ([37, 48], 768, 15) };
        for stored in shapes.into_iter().flat_map(|rows| matrices(rows, cols, 1)) {
            let (kind, rows, w) = (stored.kind, stored.rows, stored.matrix());
            let x = noise(2, n * cols);
            for kernels in backends() {
                let mut all = vec![0.0; n * rows];
                kernels.gemm(&mut all, w, &x, n);
                for n in 2..n {
                    let mut some = vec![0.0; n * rows];
                    kernels.gemm(&mut some, w, &x[..n * cols], n);
                    assert_eq!(some, all[..n * rows], "{kind}, {n} tokens");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_comes_through_for_its_token_alone() {
        let (rows, cols, n) = (GROUP_ROWS, 512, 3);
        for stored in matrices(rows, cols, 11) {
            let (kind, w) = (stored.kind, stored.matrix());
            for bad in [f32::NAN, f32::INFINITY] {
                let mut x = noise(12, n * cols);
                x[cols + 300] = bad;
                for kernels in backends() {
                    let name = kernels.matmul_name(kind, n);
                    let mut out = vec![0.0; n * rows];
                    kernels.gemm(&mut out, w, &x, n);
                    for (i, token) in out.chunks_exact(rows).enumerate() {
                        let finite = token.iter().all(|y| y.is_finite());
                        assert_eq!(finite, i != 1, "{name}, token {i}: {token:?}");
                        if i == 1 && kernels.rounds_activations(kind, n) {
                            assert!(token.iter().all(|y| y.is_nan()), "{name}: {token:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_of_i2_s_share_the_scale_at_the_end() {
        let mut bytes = vec![0b10_01_01_00; 64]; // weights 0-31 are +1, 96-127 are -1
        bytes.extend(0.5f32.to_le_bytes());
        bytes.extend([0; 28]);
        let w = Matrix::new(QuantType::I2_S, 2, 128, &bytes).unwrap();
        let mut row = [f32::NAN; 128];
        w.dequantize_row(1, &mut row);
        for (i, weight) in row.into_iter().enumerate() {
            let expected = [0.5, 0.0, 0.0, -0.5][i / 32];
            assert_eq!(weight, expected, "weight {i}");
        }
    }
}

mod misuse {
    use super::*;

    /// The message of the panic that `call` ends in, on every backend.
    fn refusal(call: impl Fn(Kernels)) -> String {
        let mut messages: Vec<String> = backends()
            .into_iter()
            .map(|kernels| {
                let call = std::panic::AssertUnwindSafe(|| call(kernels));
                let panic = std::panic::catch_unwind(call).expect_err("a panic");
                panic.downcast_ref::<String>().expect("a message with the lengths").clone()
            })
            .collect();
        messages.dedup();
        assert_eq!(messages.len(), 1, "all backends say the same: {messages:?}");
        messages.remove(0)
    }

    #[test]
    fn lengths_that_do_not_fit_are_told() {
        let check = |call: &dyn Fn(Kernels), expected: &str| {
            let message = refusal(call);
            assert!(message.contains(expected), "{message}");
        };
        let (x2, x3) = ([1.0; 2], [1.0; 3]);
        let bytes = [0; 6 * 4];
        let w = Matrix::new(QuantType::F32, 2, 3, &bytes).unwrap();
        let pool = ThreadPool::new(NonZeroUsize::new(2).unwrap()).unwrap();

        check(&|k| k.rms_norm(&mut [0.0; 2], &x3, &x3, 1e-5), "out has 2, x 3 and weight 3");
        check(&|k| k.rms_norm(&mut [0.0; 3], &x3, &x2, 1e-5), "out has 3, x 3 and weight 2");
        check(&|k| k.rms_norm_in_place(&mut [0.0; 3], &x2, 1e-5), "x 3 and weight 2");
        check(
            &|k| k.rope(&mut [0.0; 3], &x2, &x2, RopePairs::Norm),
            "2 cosines and 2 sines for a head of 3 elements",
        );
        check(&|k| k.rope(&mut [0.0; 9], &x2, &x3, RopePairs::Neox), "2 cosines and 3 sines");
        check(&|k| k.silu_mul(&mut [0.0; 3], &x2), "silu_mul: gate has 3 and up 2");
        check(&|k| k.relu_squared_mul(&mut [0.0; 2], &x3), "relu_squared_mul: gate has 2 and up 3");
        check(&|k| k.add(&mut [0.0; 3], &x2), "x has 3 and y 2");
        check(&|k| k.add_bias(&mut [0.0; 3], &x2), "3 elements aren't rows of 2");
        check(&|k| k.add_bias(&mut [0.0; 3], &[]), "3 elements aren't rows of 0");
        check(
            &|k| k.scores(&mut [0.0; 2], &x3, &[0.0; 6], 4, 1.0),
            "2 rows of 3, 4 apart, need 7 elements, but the cache has 6",
        );
        check(&|k| k.scores(&mut [], &x3, &[], 2, 1.0), "a stride of 2 is less than the head's 3");
        check(
            &|k| k.weighted_sum(&mut [0.0; 3], &x2, &[0.0; 6], 4),
            "2 rows of 3, 4 apart, need 7 elements, but the cache has 6",
        );
        check(&|k| k.gemv(&mut [0.0; 2], w, &x2), "x has 2 elements, but Matrix(f32 2x3) has 3");
        check(&|k| k.gemv(&mut [0.0; 3], w, &x3), "out has 3 elements for 2 rows");
        check(&|k| k.gemv_rows(&mut [0.0; 2], w, 1..3, &x3), "rows 1..3 of Matrix(f32 2x3)");
        check(&|k| k.gemm(&mut [0.0; 3], w, &[0.0; 6], 2), "out has 3 elements");
        check(&|k| k.gemm(&mut [0.0; 4], w, &[0.0; 5], 2), "x has 5 elements");
        check(&|k| k.matmul(&pool, &mut [0.0; 3], w, &[0.0; 6], 2), "out has 3 elements");
        check(&|k| k.matmul(&pool, &mut [0.0; 4], w, &[0.0; 5], 2), "x has 5 elements");
        check(&|k| k.matmul(&pool, &mut [0.0; 3], w, &x3, 1), "out has 3 elements");
    }

    #[test]
    fn a_matrix_says_what_is_wrong_with_its_bytes() {
        let error = |kind, rows, cols, bytes: &[u8]| {
            Matrix::new(kind, rows, cols, bytes).unwrap_err().to_string()
        };
        assert_eq!(
            error(QuantType::Q4_K, 1, 300, &[]),
            "a row of 300 weights isn't a whole number of q4_k blocks, which have 256 weights"
        );
        assert_eq!(
            error(QuantType::Q8_0, 2, 32, &[0; 67]),
            "a q8_0 matrix of 2 by 32 has 68 bytes, but 67 were given"
        );
        assert!(error(QuantType::Q8_0, 2, 32, &[0; 69]).contains("68 bytes, but 69 were given"));
        assert_eq!(
            error(QuantType::I2_S, 1, 128, &[0; 32]),
            "a i2_s matrix of 1 by 128 has 64 bytes, but 32 were given"
        );
        assert!(error(QuantType::F32, usize::MAX, 4, &[]).contains("overflows"));
        let error = |kind, rows, cols, bytes: &[u8]| {
            Matrix::interleaved(kind, rows, cols, bytes).unwrap_err().to_string()
        };
        assert_eq!(error(QuantType::Q5_1, 16, 32, &[0; 16 * 64]), "q5_1 has no interleaved layout");
        assert_eq!(
            error(QuantType::Q4_K, 17, 256, &[0; 17 * 144]),
            "17 rows of q4_k can't be interleaved: the number must be a multiple of 16"
        );
        assert!(error(QuantType::Q4_K, 16, 256, &[0; 144]).contains("2304 bytes, but 144 were"));
    }

    #[test]
    fn backends_without_kernels_are_refused_with_a_reason() {
        let error = |backend| Kernels::new(backend).unwrap_err().to_string();
        assert!(error(Backend::Cuda).contains("cuda is a GPU backend"));
        assert!(error(Backend::Wgpu).contains("wgpu is a GPU backend"));
    }
}

#[test]
fn names_say_which_routine_runs() {
    for kernels in backends() {
        let own = kernels.backend().name();
        // Where AVX-512 gains nothing, AVX2's run.
        let isa = if kernels.backend() == Backend::Avx512 { "avx2" } else { own };
        for kind in QuantType::ALL {
            assert_eq!(kernels.matmul_name(kind, 1), format!("gemv_{kind}_{own}"));
            assert_eq!(kernels.matmul_name(kind, 2), format!("gemm_{kind}_{own}"));
        }
        assert_eq!(kernels.rms_norm_name(), format!("rms_norm_{isa}"));
        assert_eq!(kernels.relu_squared_mul_name(), format!("relu_squared_mul_{isa}"));
        assert_eq!(kernels.scale_name(), format!("scale_{isa}"));
        assert_eq!(kernels.scores_name(), format!("scores_{own}"));
        assert_eq!(kernels.weighted_sum_name(), format!("weighted_sum_{own}"));
    }
    assert_eq!(Kernels::best(), *backends().last().unwrap(), "the last is the fastest");
}

#[test]
fn as_many_threads_share_a_matmul_as_there_are_shares_of_16_rows() {
    let cases = [(128, 16, 8), (128, 2, 2), (16, 2, 1), (40, 2, 2), (0, 4, 1)];
    for (rows, threads, busy) in cases {
        for n in [1, 2] {
            let of = crate::threads_for_rows(rows, n, threads);
            assert_eq!(of, busy, "{rows} rows, {n} tokens, {threads} threads");
        }
    }
    // In equal shares of 32 rows four threads have some; one after another seven shares of 16.
    assert_eq!([1, 2].map(|n| crate::threads_for_rows(100, n, 6)), [6, 4]);
}
