//! Rounding functions that the compiler can vectorise.

/// The nearest integer, ties to even, for `|x| <= 2^22`; wrong for larger values.
///
/// Adding 1.5 · 2^23 leaves no room for a fraction in the mantissa. On x86-64 without SSE4.1, `f32::round_ties_even`
/// would call libm once per weight.
#[inline(always)]
pub(super) fn nearest(x: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (x + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i32
}

/// Rounds to a code from 0 to `most`. Clamps before rounding: every x86-64 CPU has minimum and maximum instructions for
/// floats, but for 32-bit integers only from SSE4.1 on.
#[inline(always)]
pub(super) fn to_code(x: f32, most: f32) -> i32 {
    let x = if x > 0.0 { x } else { 0.0 };
    nearest(if x < most { x } else { most })
}

/// `numerator / scale`, or 0 where that is infinite: for a block of zeros, or of numbers so small that its scale as a
/// half float is 0 anyway.
#[inline(always)]
pub(super) fn inverse(numerator: f32, scale: f32) -> f32 {
    let inverse = numerator / scale;
    if inverse.abs() < f32::INFINITY { inverse } else { 0.0 }
}

/// The largest magnitude in a block.
///
/// Uses eight lanes, because a single running maximum is a dependency chain that can't be vectorised.
#[inline(always)]
pub(super) fn largest_magnitude<const LEN: usize>(x: &[f32; LEN]) -> f32 {
    let mut lanes = [0.0f32; 8];
    for eight in x.as_chunks::<8>().0 {
        for (lane, x) in lanes.iter_mut().zip(eight) {
            let x = x.abs();
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.into_iter().fold(0.0, |max, x| if x > max { x } else { max })
}

/// The smallest and the largest value of a block.
#[inline(always)]
pub(super) fn range<const LEN: usize>(x: &[f32; LEN]) -> (f32, f32) {
    let (mut low, mut high) = ([f32::INFINITY; 8], [f32::NEG_INFINITY; 8]);
    for eight in x.as_chunks::<8>().0 {
        for ((low, high), x) in low.iter_mut().zip(&mut high).zip(eight) {
            *low = if *x < *low { *x } else { *low };
            *high = if *x > *high { *x } else { *high };
        }
    }
    (
        low.into_iter().fold(f32::INFINITY, |m, x| if x < m { x } else { m }),
        high.into_iter().fold(f32::NEG_INFINITY, |m, x| if x > m { x } else { m }),
    )
}
