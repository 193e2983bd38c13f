//! RMS norm under the names of brickscope's predecessor, with weights of 1 and an epsilon of 1e-5. New code should call
//! [`Kernels::rms_norm`](crate::Kernels::rms_norm).
#![allow(unsafe_code)]

use crate::rms_norm;

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

#[cfg(test)]
mod tests {
    use super::*;

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
