//! Half floats (IEEE 754 binary16) and brain floats, converted by hand: the standard library has no stable conversions,
//! and not every CPU has instructions for them.

/// The value of a half float.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    // Moving the fields into place leaves the exponent 112 too small. A multiplication corrects that, and also
    // normalises denormals.
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let scaled = f32::from_bits(magnitude) * f32::from_bits((254 - 15) << 23);
    let sign = u32::from(bits & 0x8000) << 16;
    // Infinities and NaNs have the exponent 31, which has to become 255.
    let special = if magnitude >= 0x7c00 << 13 { 0xff << 23 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | sign)
}

/// The nearest half float, ties to even. Values too large become infinite; NaN stays NaN.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude >= 0x4780_0000 {
        // 65536 or more, infinity or NaN.
        if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 }
    } else if magnitude < 0x3880_0000 {
        // Below 2^-14 the result is denormal. Adding 0.5 puts the result's last bit at the end of the mantissa, so
        // that the addition rounds.
        let rounded = f32::from_bits(magnitude) + 0.5;
        (rounded.to_bits() - 0.5f32.to_bits()) as u16
    } else {
        // Half of the last kept bit, minus one if that bit is even, so that ties round to even.
        let odd = (magnitude >> 13) & 1;
        ((magnitude + 0x0fff + odd - (112 << 23)) >> 13) as u16
    };
    sign | half
}

/// The value of a brain float.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest brain float, ties to even. A NaN stays one, made quiet.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// A half float in the file's byte order.
#[inline(always)]
pub(crate) fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[inline(always)]
pub(crate) fn decode_f16(block: &[u8; 2], out: &mut [f32; 1]) {
    *out = [f16_to_f32(u16::from_le_bytes(*block))];
}

#[inline(always)]
pub(crate) fn decode_bf16(block: &[u8; 2], out: &mut [f32; 1]) {
    *out = [bf16_to_f32(u16::from_le_bytes(*block))];
}

#[inline(always)]
pub(crate) fn encode_f16(x: &[f32; 1]) -> [u8; 2] {
    f32_to_f16(x[0]).to_le_bytes()
}

#[inline(always)]
pub(crate) fn encode_bf16(x: &[f32; 1]) -> [u8; 2] {
    f32_to_bf16(x[0]).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A half float's value by the definition of the format.
    fn by_definition(bits: u16) -> f64 {
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let (exponent, mantissa) = (i32::from(bits >> 10) & 31, f64::from(bits & 0x3ff));
        sign * match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
        }
    }

    #[test]
    fn every_half_float_has_the_value_of_the_definition_and_comes_back() {
        for bits in 0..=u16::MAX {
            let (value, expected) = (f16_to_f32(bits), by_definition(bits));
            if expected.is_nan() {
                assert!(value.is_nan(), "{bits:#06x}");
                assert!(f16_to_f32(f32_to_f16(value)).is_nan(), "{bits:#06x}");
            } else {
                assert_eq!(f64::from(value), expected, "{bits:#06x}");
                assert_eq!(f32_to_f16(value), bits, "{bits:#06x}");
            }
        }
    }

    #[test]
    fn what_lies_between_two_half_floats_goes_to_the_nearer_and_ties_to_the_even_one() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (by_definition(bits), by_definition(bits + 1));
            // Exact in f32: it has 13 bits more, and a far larger exponent.
            let middle = ((low + high) / 2.0) as f32;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            assert_eq!(f32_to_f16(middle), even, "{bits:#06x}");
            assert_eq!(f32_to_f16(middle.next_down()), bits, "{bits:#06x}");
            assert_eq!(f32_to_f16(middle.next_up()), bits + 1, "{bits:#06x}");
            assert_eq!(f32_to_f16(-middle), even | 0x8000, "{bits:#06x}");
        }
    }

    #[test]
    fn what_is_too_large_for_a_half_float_is_infinite() {
        assert_eq!(f32_to_f16(65504.0), 0x7bff);
        assert_eq!(f32_to_f16(65519.996), 0x7bff);
        for x in [65520.0, 65536.0, 1e9, f32::MAX, f32::INFINITY] {
            assert_eq!((f32_to_f16(x), f32_to_f16(-x)), (0x7c00, 0xfc00), "{x}");
        }
    }

    #[test]
    fn brain_floats_are_the_upper_half_of_a_float_rounded() {
        for bits in 0..=u16::MAX {
            let value = bf16_to_f32(bits);
            assert_eq!(value.to_bits(), u32::from(bits) << 16);
            if value.is_nan() {
                assert!(bf16_to_f32(f32_to_bf16(value)).is_nan());
            } else {
                assert_eq!(f32_to_bf16(value), bits);
            }
        }
        let cases = [
            (0x3f80_8000, 0x3f80), // a tie, and 0x3f80 is even
            (0x3f81_8000, 0x3f82), // a tie, and 0x3f82 is even
            (0x3f80_8001, 0x3f81),
            (0x3f80_7fff, 0x3f80),
            (0x7f7f_ffff, 0x7f80), // the largest float rounds to infinity
            (0x7f80_0001, 0x7fc0), // a signalling NaN becomes a quiet one
        ];
        for (bits, expected) in cases {
            assert_eq!(f32_to_bf16(f32::from_bits(bits)), expected, "{bits:#x}");
        }
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[allow(unsafe_code, reason = "calls what was detected")]
    fn the_cpu_converts_half_floats_in_the_same_way() {
        use crate::lanes;

        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
        #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
        fn convert(bytes: [u8; 2]) -> [f32; 3] {
            let mut eight = [0; 16];
            eight[4..6].copy_from_slice(&bytes);
            eight[14..].copy_from_slice(&bytes);
            let mut out = [0.0; 8];
            lanes::store(&mut out, lanes::load_f16_bytes(&eight));
            [lanes::f16(bytes), out[2], out[7]]
        }

        if !crate::Kernels::best().has_eight_lanes() {
            return eprintln!("skipped: no AVX2");
        }
        for bits in 0..=u16::MAX {
            // SAFETY: the features it is compiled for were detected above.
            for value in unsafe { convert(bits.to_le_bytes()) } {
                let expected = f16_to_f32(bits);
                assert!(value == expected || value.is_nan() && expected.is_nan(), "{bits:#06x}");
            }
        }
    }
}
