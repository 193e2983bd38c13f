//! Operations as functions of one instruction set, as brickscope's predecessor has them. RMS norm has weights of 1 and an
//! epsilon of 1e-5. AVX-512 has no loops of its own for these. New code should call [`Kernels`], which has
//! all operations.
#![allow(unsafe_code)]

use crate::{Backend, Kernels, rms_norm};

const EPS: f32 = 1e-5;

fn check(input: usize, output: usize) {
    assert!(
        input == output,
        "rms_norm: input has {input} and output {output} elements, but the lengths must be equal"
    );
}

fn scale(input: &[f32], output: &mut [f32], inverse_rms: f32) {
    for (output, input) in output.iter_mut().zip(input) {
        *output = input * inverse_rms;
    }
}

/// `output = input / sqrt(mean(input²) + 1e-5)`, in plain Rust.
///
/// # Panics
///
/// If the lengths differ.
pub fn rms_norm_scalar(input: &[f32], output: &mut [f32]) {
    check(input.len(), output.len());
    scale(input, output, rms_norm::scalar::inverse_rms(input, EPS));
}

/// `output = input / sqrt(mean(input²) + 1e-5)`, with AVX2.
///
/// # Panics
///
/// If the lengths differ, or this CPU lacks AVX2, FMA or F16C.
#[cfg(target_arch = "x86_64")]
pub fn rms_norm_avx2(input: &[f32], output: &mut [f32]) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn rms_norm(input: &[f32], output: &mut [f32]) {
        // Plain Rust, but inlined here it is compiled for AVX2.
        scale(input, output, rms_norm::eight_lanes::inverse_rms(input, EPS));
    }

    check(input.len(), output.len());
    assert!(
        crate::backend::has_avx2(),
        "rms_norm_avx2: this CPU has no AVX2, FMA and F16C: use rms_norm_scalar"
    );
    // SAFETY: the check above found what the function is compiled for.
    unsafe { rms_norm(input, output) }
}

fn kernels(backend: Backend, name: &str) -> Kernels {
    Kernels::new(backend).unwrap_or_else(|why| panic!("{name}: {why}"))
}

macro_rules! on {
    ($backend:ident: $softmax:ident, $silu_mul:ident, $add:ident) => {
        /// [`Kernels::softmax`] on this instruction set.
        ///
        /// # Panics
        ///
        /// If this CPU lacks it.
        pub fn $softmax(x: &mut [f32]) {
            kernels(Backend::$backend, stringify!($softmax)).softmax(x);
        }

        /// [`Kernels::silu_mul`] on this instruction set.
        ///
        /// # Panics
        ///
        /// If the lengths differ, or this CPU lacks it.
        pub fn $silu_mul(gate: &mut [f32], up: &[f32]) {
            kernels(Backend::$backend, stringify!($silu_mul)).silu_mul(gate, up);
        }

        /// [`Kernels::add`] on this instruction set.
        ///
        /// # Panics
        ///
        /// If the lengths differ, or this CPU lacks it.
        pub fn $add(x: &mut [f32], y: &[f32]) {
            kernels(Backend::$backend, stringify!($add)).add(x, y);
        }
    };
}

on!(Scalar: softmax_scalar, silu_mul_scalar, add_scalar);
#[cfg(target_arch = "x86_64")]
on!(Avx2: softmax_avx2, silu_mul_avx2, add_avx2);
#[cfg(target_arch = "aarch64")]
on!(Neon: softmax_neon, silu_mul_neon, add_neon);

/// `output = input / sqrt(mean(input²) + 1e-5)`, with NEON.
///
/// # Panics
///
/// If the lengths differ, or this CPU lacks NEON.
#[cfg(target_arch = "aarch64")]
pub fn rms_norm_neon(input: &[f32], output: &mut [f32]) {
    check(input.len(), output.len());
    let weights = vec![1.0; input.len()];
    kernels(Backend::Neon, "rms_norm_neon").rms_norm(output, input, &weights, EPS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_computes_what_its_name_says() {
        let mut x = [0.0, 1.0, f32::NEG_INFINITY];
        softmax_scalar(&mut x);
        let e = std::f32::consts::E;
        assert!((x[1] - e / (1.0 + e)).abs() < 1e-6 && x[2] == 0.0, "{x:?}");
        let mut gate = [0.0, 1.0, -2.0];
        silu_mul_scalar(&mut gate, &[5.0, 2.0, 3.0]);
        let silu = |x: f32| x / (1.0 + (-x).exp());
        assert_eq!(gate[0], 0.0);
        assert!((gate[1] - 2.0 * silu(1.0)).abs() < 1e-6, "{gate:?}");
        assert!((gate[2] - 3.0 * silu(-2.0)).abs() < 1e-6, "{gate:?}");
        let mut sum = [1.0, 2.0];
        add_scalar(&mut sum, &[10.0, 20.0]);
        assert_eq!(sum, [11.0, 22.0]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn other_operations_agree_with_scalar_too() {
        if !crate::backend::has_avx2() {
            return eprintln!("skipped: no AVX2");
        }
        for len in [1, 7, 8, 31, 100] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
            let y: Vec<f32> = (0..len).map(|i| (i as f32 * 0.3).cos()).collect();
            let both = |scalar: &dyn Fn(&mut [f32]), avx2: &dyn Fn(&mut [f32])| {
                let (mut a, mut b) = (x.clone(), x.clone());
                scalar(&mut a);
                avx2(&mut b);
                for (a, b) in a.iter().zip(&b) {
                    assert!((a - b).abs() <= 2e-6 * a.abs().max(1e-3), "{len}: {a} {b}");
                }
            };
            both(&softmax_scalar, &softmax_avx2);
            both(&|x| silu_mul_scalar(x, &y), &|x| silu_mul_avx2(x, &y));
            both(&|x| add_scalar(x, &y), &|x| add_avx2(x, &y));
        }
    }

    #[test]
    fn three_and_four_are_divided_by_the_root_of_twelve_and_a_half() {
        let mut out = [0.0; 2];
        rms_norm_scalar(&[3.0, 4.0], &mut out);
        let rms = 12.500_01f32.sqrt();
        assert!((out[0] - 3.0 / rms).abs() < 1e-6 && (out[1] - 4.0 / rms).abs() < 1e-6, "{out:?}");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn avx2_agrees_with_scalar() {
        if !crate::backend::has_avx2() {
            return eprintln!("skipped: no AVX2");
        }
        for len in [1, 7, 8, 9, 31, 32, 100, 4096] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
            let (mut scalar, mut avx2) = (vec![0.0; len], vec![0.0; len]);
            rms_norm_scalar(&x, &mut scalar);
            rms_norm_avx2(&x, &mut avx2);
            for (a, b) in scalar.iter().zip(&avx2) {
                assert!((a - b).abs() <= 2e-6 * a.abs(), "{len}: {a} {b}");
            }
        }
    }

    #[test]
    #[should_panic = "input has 3 and output 2 elements"]
    fn lengths_that_differ_are_refused() {
        rms_norm_scalar(&[1.0; 3], &mut [0.0; 2]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    #[should_panic = "input has 3 and output 2 elements"]
    fn lengths_that_differ_are_refused_by_avx2_too() {
        rms_norm_avx2(&[1.0; 3], &mut [0.0; 2]);
    }
}
