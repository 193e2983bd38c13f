//! Rows of the ternary formats. `quant/ternary.rs` describes the layouts.
//!
//! A code is the weight plus one, so a block contributes `d * (Σ code·x - Σ x)`, with sums of `x`
//! that are the same for all rows.

use super::eight_lanes::sums;
use crate::lanes::{
    F32x8, I32x8, add, add_int, and, f16, four_bytes_twice, load, load_u8, mul_add, mul_u16, piece,
    prefetch_ahead, shift_left, shift_right, splat, splat_halves, splat_int, sum, to_floats, zero,
};
use crate::quant::ternary::{I2_S_BYTES, I2_S_LEN, LEN, TQ1_0_BYTES, TQ2_0_BYTES};

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn gemv_tq2_0(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    let x_sums = sums::<LEN>(x);
    let x = x.as_chunks::<LEN>().0;
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * TQ2_0_BYTES)) {
        let mut acc = zero();
        let mut offset = 0.0;
        for ((block, x), x_sum) in row.as_chunks::<TQ2_0_BYTES>().0.iter().zip(x).zip(&x_sums) {
            prefetch_ahead(block);
            let d = f16(*piece(block, 64));
            let halves = x.as_chunks::<128>().0;
            let low = products(piece(block, 0), &halves[0], [0, 1, 2, 3]);
            let high = products(piece(block, 32), &halves[1], [0, 1, 2, 3]);
            acc = mul_add(splat(d), add(low, high), acc);
            offset = d.mul_add(*x_sum, offset);
        }
        *out = sum(acc) - offset;
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn gemv_i2_s(out: &mut [f32], bytes: &[u8], scale: f32, x: &[f32]) {
    let x_sum: f32 = sums::<I2_S_LEN>(x).iter().sum();
    let x = x.as_chunks::<I2_S_LEN>().0;
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * I2_S_BYTES)) {
        let mut acc = [zero(); 2];
        let (pairs, last) = row.as_chunks::<I2_S_BYTES>().0.as_chunks::<2>();
        let (x_pairs, x_last) = x.as_chunks::<2>();
        for (pair, x) in pairs.iter().zip(x_pairs) {
            prefetch_ahead(&pair[0]);
            acc[0] = add(acc[0], products(&pair[0], &x[0], [3, 2, 1, 0]));
            acc[1] = add(acc[1], products(&pair[1], &x[1], [3, 2, 1, 0]));
        }
        for (block, x) in last.iter().zip(x_last) {
            acc[0] = add(acc[0], products(block, x, [3, 2, 1, 0]));
        }
        *out = scale * (sum(add(acc[0], acc[1])) - x_sum);
    }
}

/// `code·x` for 128 weights in 32 bytes: eight sums of sixteen. The codes of run `i` of 32 weights are the bit pairs
/// `order[i]`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn products(codes: &[u8; 32], x: &[f32; 128], order: [usize; 4]) -> F32x8 {
    let x = x.as_chunks::<8>().0;
    let pair = splat_int(3);
    let mut acc = [zero(); 4];
    for i in 0..4 {
        let byte = load_u8(piece(codes, 8 * i));
        let pairs = [
            and(byte, pair),
            and(shift_right::<2>(byte), pair),
            and(shift_right::<4>(byte), pair),
            shift_right::<6>(byte),
        ];
        for run in 0..4 {
            let code = to_floats(pairs[order[run]]);
            acc[run] = mul_add(code, load(&x[4 * run + i]), acc[run]);
        }
    }
    let [a, b, c, d] = acc;
    add(add(a, b), add(c, d))
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn gemv_tq1_0(out: &mut [f32], bytes: &[u8], x: &[f32]) {
    let x_sums = sums::<LEN>(x);
    let x = x.as_chunks::<LEN>().0;
    // The four bytes of the last run fill half of the lanes. The other half is one digit ahead.
    let one_ahead = splat_halves(1, 3);
    let low_byte = splat_int(0xff);
    for (out, row) in out.iter_mut().zip(bytes.chunks_exact(x.len() * TQ1_0_BYTES)) {
        let mut acc = zero();
        let mut offset = 0.0;
        for ((block, x), x_sum) in row.as_chunks::<TQ1_0_BYTES>().0.iter().zip(x).zip(&x_sums) {
            prefetch_ahead(block);
            let x = x.as_chunks::<8>().0;
            let mut runs = [zero(); 4];
            for i in 0..4 {
                let mut digits = load_u8(piece(block, 8 * i));
                for n in 0..5 {
                    let (code, rest) = next_digit(digits);
                    runs[i] = mul_add(code, load(&x[4 * n + i]), runs[i]);
                    digits = rest;
                }
            }
            for i in 0..2 {
                let mut digits = load_u8(piece(block, 32 + 8 * i));
                for n in 0..5 {
                    let (code, rest) = next_digit(digits);
                    runs[i] = mul_add(code, load(&x[20 + 2 * n + i]), runs[i]);
                    digits = rest;
                }
            }
            let last = four_bytes_twice(*piece(block, 48));
            let digits = and(mul_u16(last, one_ahead), low_byte);
            let (code, rest) = next_digit(digits);
            runs[2] = mul_add(code, load(&x[30]), runs[2]);
            let two_ahead = mul_u16(rest, splat_int(3));
            let (code, _) = next_digit(and(two_ahead, low_byte));
            runs[3] = mul_add(code, load(&x[31]), runs[3]);

            let d = f16(*piece(block, 52));
            let [a, b, c, e] = runs;
            let total = add(add(a, b), add(c, e));
            acc = mul_add(splat(d), total, acc);
            offset = d.mul_add(*x_sum, offset);
        }
        *out = sum(acc) - offset;
    }
}

/// The next base-3 digit of eight fractions in 256ths, and the remaining fractions: three times a fraction is its digit
/// and the rest.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn next_digit(fractions: I32x8) -> (F32x8, I32x8) {
    let three_times = add_int(fractions, shift_left::<1>(fractions));
    let digit = to_floats(shift_right::<8>(three_times));
    (digit, and(three_times, splat_int(0xff)))
}
