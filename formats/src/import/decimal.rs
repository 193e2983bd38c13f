//! Decimal numbers as files write them, without rounding to binary fractions.

/// `text`, a number as JSON or C++ streams write it, such as `-12.5` or `1.23457e+06`, in units of
/// 10^-`places`, truncated; `None` if it is not a number, or too large.
///
/// Microseconds with `places` 3 are nanoseconds, with 6 picoseconds.
pub(super) fn scaled(text: &str, places: i32) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let exponent_at = digits.bytes().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match exponent_at.map(|at| (&digits[..at], &digits[at + 1..])) {
        // Nothing measured has more digits than this; a larger exponent is no time.
        Some((mantissa, exponent)) if exponent.len() <= 4 => {
            (mantissa, exponent.parse::<i32>().ok()?)
        }
        Some(_) => return None,
        None => (digits, 0),
    };
    let (whole, fraction) = match mantissa.bytes().position(|byte| byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, ""),
    };
    let is_of_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !whole.is_empty() && is_of_digits(whole) && is_of_digits(fraction);
    if !is_number || mantissa.len() > 64 {
        return None;
    }
    // How many of all digits stand before the point, when it is moved.
    let point = whole.len() as i32 + exponent + places;
    let mut digits = whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0');
    let mut next = || digits.next().unwrap_or(0);
    // Of most numbers 64 bits hold so many digits, and are faster than 128.
    let few = point.clamp(0, 18);
    let mut value = i128::from((0..few).fold(0_u64, |value, _| 10 * value + u64::from(next())));
    for _ in few..point.max(0) {
        let digit = next();
        if value == 0 && digit == 0 {
            continue;
        }
        value = value.checked_mul(10)?.checked_add(i128::from(digit))?;
    }
    Some(if is_negative { -value } else { value })
}

/// Microseconds as the nearest nanoseconds; `None` below 0 or beyond 64 bits.
pub(super) fn micros_as_nanos(text: &str) -> Option<u64> {
    u64::try_from(nearest(scaled(text, 6)?)).ok()
}

/// Picoseconds as the nearest nanoseconds; ties are rounded up.
pub(super) fn nearest(picos: i128) -> i128 {
    (picos + 500).div_euclid(1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimals_keep_their_digits() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("12.345", Some(12_345)),
            ("0.5", Some(500)),
            ("1.23457e+06", Some(1_234_570_000)),
            ("1e-3", Some(1)),
            ("1E-9", Some(0)),
            ("-2.5", Some(-2_500)),
            ("1763719200123456.789", Some(1_763_719_200_123_456_789)),
            // More than 64 bits hold.
            ("99999999999999999999", Some(99_999_999_999_999_999_999_000)),
            ("0.000000000000000000001e21", Some(1_000)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("nan", None),
            ("1e", None),
            ("1e99999", None),
            ("1e300", None),
            ("- 1", None),
        ] {
            assert_eq!(scaled(text, 3), nanos, "{text}");
        }
        assert_eq!(micros_as_nanos("0.0005"), Some(1));
        assert_eq!(micros_as_nanos("0.0004"), Some(0));
        assert_eq!(micros_as_nanos("-1"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_number_or_none(text in "[-0-9.eE+]{0,12}") {
            let ours = scaled(&text, 3);
            if let (Some(ours), Ok(theirs)) = (ours, text.parse::<f64>()) {
                prop_assert!((ours as f64 - theirs * 1e3).abs() <= 1.0 + theirs.abs() * 1e-9);
            }
        }
    }
}
