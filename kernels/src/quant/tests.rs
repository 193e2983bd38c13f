//! Blocks written by hand, whose values follow from the layout alone, and the quantisers checked against the decoders
//! that these verify.

use proptest::prelude::*;

use super::*;

/// Decodes blocks into as many weights as they hold.
fn decode(kind: QuantType, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; len];
    dequantize_row(kind, bytes, &mut out);
    out
}

fn encode(kind: QuantType, x: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match kind {
        QuantType::I2_S => quantize_i2_s(x, &mut bytes),
        _ => quantize_row(kind, x, &mut bytes),
    }
    bytes
}

/// All weights are 0 except at these indices.
fn assert_only(weights: &[f32], nonzero: &[(usize, f32)]) {
    for (i, weight) in weights.iter().enumerate() {
        let expected = nonzero.iter().find(|(at, _)| *at == i).map_or(0.0, |(_, value)| *value);
        assert_eq!(*weight, expected, "weight {i}");
    }
}

const HALF: [u8; 2] = [0x00, 0x38]; // 0.5 as a half float
const ONE: [u8; 2] = [0x00, 0x3c];
const TWO: [u8; 2] = [0x00, 0x40];

#[test]
fn floats_are_read_in_little_endian_at_any_alignment() {
    let bytes = [9, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc1];
    assert_eq!(decode(QuantType::F32, &bytes[1..], 2), [1.0, -10.0]);
    assert_eq!(decode(QuantType::F16, &[0x00, 0x3c, 0x00, 0xc9], 2), [1.0, -10.0]);
    assert_eq!(decode(QuantType::BF16, &[0x80, 0x3f, 0x20, 0xc1], 2), [1.0, -10.0]);
}

#[test]
fn q4_0_has_the_first_sixteen_weights_in_the_low_halves() {
    let mut block = [0x88; 18]; // 8 is zero
    block[..2].copy_from_slice(&HALF);
    block[2] = 0x8f; // weight 0: 15
    block[2 + 5] = 0x08; // weight 21: 0
    block[2 + 15] = 0x91; // weights 15 and 31: 1 and 9
    assert_only(
        &decode(QuantType::Q4_0, &block, 32),
        &[(0, 3.5), (21, -4.0), (15, -3.5), (31, 0.5)],
    );
}

#[test]
fn q4_1_has_a_minimum() {
    let mut block = [0; 20];
    block[..2].copy_from_slice(&HALF);
    block[2..4].copy_from_slice(&0xc000u16.to_le_bytes()); // -2
    block[4..].fill(0x44); // 4 is zero
    block[4] = 0x4f; // weight 0: 15
    block[4 + 5] = 0x04; // weight 21: 0
    block[4 + 15] = 0x51; // weights 15 and 31: 1 and 5
    assert_only(
        &decode(QuantType::Q4_1, &block, 32),
        &[(0, 5.5), (21, -2.0), (15, -1.5), (31, 0.5)],
    );
}

#[test]
fn the_fifth_bits_of_q5_0_are_in_the_order_of_the_weights() {
    // All q are 16, which is zero: low bits 0, fifth bits set.
    let mut zero = [0; 22];
    zero[..2].copy_from_slice(&HALF);
    zero[2..6].fill(0xff);
    assert_only(&decode(QuantType::Q5_0, &zero, 32), &[]);
    for at in 0..32 {
        let mut block = zero;
        block[6 + at % 16] = if at < 16 { 0x03 } else { 0x30 };
        assert_only(&decode(QuantType::Q5_0, &block, 32), &[(at, 1.5)]);
        block[2 + at / 8] &= !(1 << (at % 8));
        assert_only(&decode(QuantType::Q5_0, &block, 32), &[(at, -6.5)]);
    }
}

#[test]
fn q5_1_has_a_minimum_before_its_fifth_bits() {
    let mut zero = [0; 24];
    zero[..2].copy_from_slice(&HALF);
    zero[2..4].copy_from_slice(&0xc000u16.to_le_bytes()); // -2
    zero[8..].fill(0x44); // 4 is zero
    assert_only(&decode(QuantType::Q5_1, &zero, 32), &[]);
    for at in 0..32 {
        let mut block = zero;
        block[4 + at / 8] |= 1 << (at % 8);
        assert_only(&decode(QuantType::Q5_1, &block, 32), &[(at, 8.0)]);
        block[8 + at % 16] = if at < 16 { 0x47 } else { 0x74 };
        assert_only(&decode(QuantType::Q5_1, &block, 32), &[(at, 9.5)]);
    }
}

#[test]
fn q5_k_is_q4_k_with_a_bit_for_each_sub_block_in_every_byte() {
    // Scales of 1 and minimums of 0 in all sub-blocks.
    let mut zero = [0; 176];
    zero[..2].copy_from_slice(&HALF);
    zero[4..8].fill(1);
    zero[12..16].fill(1);
    assert_only(&decode(QuantType::Q5_K, &zero, 256), &[]);
    for sub in 0..8 {
        for l in [0, 1, 7, 8, 15, 31] {
            let at = 32 * sub + l;
            let mut block = zero;
            block[48 + 32 * (sub / 2) + l] = if sub % 2 == 0 { 0x03 } else { 0x30 };
            assert_only(&decode(QuantType::Q5_K, &block, 256), &[(at, 1.5)]);
            block[16 + l] = 1 << sub;
            assert_only(&decode(QuantType::Q5_K, &block, 256), &[(at, 9.5)]);
        }
    }
    // A minimum of its own.
    let mut block = zero;
    block[2..4].copy_from_slice(&TWO);
    block[4 + 4 + 2] = 3;
    let third: Vec<(usize, f32)> = (64..96).map(|at| (at, -6.0)).collect();
    assert_only(&decode(QuantType::Q5_K, &block, 256), &third);
}

#[test]
fn q8_0_has_signed_bytes() {
    let mut block = [0; 34];
    block[..2].copy_from_slice(&TWO);
    block[2] = 1;
    block[2 + 9] = 127;
    block[2 + 31] = 0x80; // -128
    assert_only(&decode(QuantType::Q8_0, &block, 32), &[(0, 2.0), (9, 254.0), (31, -256.0)]);
}

#[test]
fn q4_k_takes_each_scale_and_minimum_from_where_it_is_packed() {
    // The bits of each sub-block's scale and minimum: (byte, shift, bits), the low part first.
    let scale_bits: [&[(usize, u32, u32)]; 8] = [
        &[(0, 0, 6)],
        &[(1, 0, 6)],
        &[(2, 0, 6)],
        &[(3, 0, 6)],
        &[(8, 0, 4), (0, 6, 2)],
        &[(9, 0, 4), (1, 6, 2)],
        &[(10, 0, 4), (2, 6, 2)],
        &[(11, 0, 4), (3, 6, 2)],
    ];
    let min_bits: [&[(usize, u32, u32)]; 8] = [
        &[(4, 0, 6)],
        &[(5, 0, 6)],
        &[(6, 0, 6)],
        &[(7, 0, 6)],
        &[(8, 4, 4), (4, 6, 2)],
        &[(9, 4, 4), (5, 6, 2)],
        &[(10, 4, 4), (6, 6, 2)],
        &[(11, 4, 4), (7, 6, 2)],
    ];
    let put = |block: &mut [u8], bits: &[(usize, u32, u32)], mut value: u8| {
        for &(byte, shift, n) in bits {
            block[4 + byte] |= (value & ((1 << n) - 1)) << shift;
            value >>= n;
        }
        assert_eq!(value, 0);
    };
    for s in 0..8 {
        for value in [1, 15, 16, 32, 42, 63] {
            // A scale alone: every weight has q = 3.
            let mut block = [0x33; 144];
            block[..16].fill(0);
            block[..2].copy_from_slice(&HALF);
            block[2..4].copy_from_slice(&TWO);
            put(&mut block, scale_bits[s], value);
            let expected: Vec<f32> =
                (0..256).map(|i| if i / 32 == s { 1.5 * f32::from(value) } else { 0.0 }).collect();
            assert_eq!(decode(QuantType::Q4_K, &block, 256), expected, "scale {s} is {value}");

            // A minimum alone.
            block[4..16].fill(0);
            put(&mut block, min_bits[s], value);
            let expected: Vec<f32> =
                (0..256).map(|i| if i / 32 == s { -2.0 * f32::from(value) } else { 0.0 }).collect();
            assert_eq!(decode(QuantType::Q4_K, &block, 256), expected, "minimum {s} is {value}");
        }
    }
}

#[test]
fn q4_k_alternates_runs_of_32_between_low_and_high_halves() {
    let mut block = [0; 144];
    block[..2].copy_from_slice(&ONE);
    block[4..8].fill(1); // scales 0 to 3 are 1
    block[12..16].fill(1); // scales 4 to 7 are 1
    block[16] = 0x21; // weights 0 and 32
    block[16 + 31] = 0x43; // weights 31 and 63
    block[16 + 32] = 0x65; // weights 64 and 96
    block[16 + 127] = 0x87; // weights 223 and 255
    assert_only(
        &decode(QuantType::Q4_K, &block, 256),
        &[(0, 1.0), (32, 2.0), (31, 3.0), (63, 4.0), (64, 5.0), (96, 6.0), (223, 7.0), (255, 8.0)],
    );
}

#[test]
fn q6_k_takes_four_quarters_of_each_half_from_two_places() {
    // All q are 32, which is zero: low bits 0, upper bits 2.
    let mut zero = [0; 210];
    zero[128..192].fill(0b10_10_10_10);
    zero[192..208].fill(1);
    zero[208..].copy_from_slice(&HALF);
    assert_only(&decode(QuantType::Q6_K, &zero, 256), &[]);

    for half in 0..2 {
        for l in [0, 1, 15, 16, 31] {
            for quarter in 0..4 {
                // q = 0b01_1011 = 27 is 5 below zero: low bits 0xb, upper bits 1.
                let mut block = zero;
                let low = 64 * half + l + 32 * (quarter % 2);
                block[low] |= if quarter < 2 { 0x0b } else { 0xb0 };
                let high = 128 + 32 * half + l;
                block[high] &= !(3 << (2 * quarter));
                block[high] |= 1 << (2 * quarter);
                let at = 128 * half + 32 * quarter + l;
                assert_only(&decode(QuantType::Q6_K, &block, 256), &[(at, -2.5)]);
                // Its scale is that of its sub-block of sixteen, and signed.
                block[192 + at / 16] = -3i8 as u8;
                assert_only(&decode(QuantType::Q6_K, &block, 256), &[(at, 7.5)]);
            }
        }
    }
}

#[test]
fn tq2_0_counts_pairs_of_bits_from_the_lowest() {
    let mut block = [0b01_01_01_01; 66]; // 1 is zero
    block[64..].copy_from_slice(&HALF);
    block[0] = 0b01_01_01_10; // weight 0: +1
    block[1] = 0b01_01_00_01; // weight 33: -1
    block[31] = 0b10_01_01_01; // weight 127: +1
    block[32] = 0b01_00_01_01; // weight 192: -1
    block[63] = 0b00_01_01_01; // weight 255: -1
    assert_only(
        &decode(QuantType::TQ2_0, &block, 256),
        &[(0, 0.5), (33, -0.5), (127, 0.5), (192, -0.5), (255, -0.5)],
    );
}

#[test]
fn i2_s_counts_pairs_of_bits_from_the_highest_and_ends_with_its_scale() {
    let mut tensor = vec![0b01_01_01_01; 64]; // two blocks of zeros
    tensor.extend(1.5f32.to_le_bytes());
    tensor.extend([0xff; 28]); // padding, which must be ignored
    tensor[0] = 0b10_01_01_01; // weight 0
    tensor[1] = 0b01_00_01_01; // weight 33
    tensor[31] = 0b01_01_01_10; // weight 127
    tensor[32] = 0b01_01_00_01; // weight 192
    assert_only(
        &decode(QuantType::I2_S, &tensor, 256),
        &[(0, 1.5), (33, -1.5), (127, 1.5), (192, -1.5)],
    );
}

#[test]
fn tq1_0_finds_five_digits_in_base_three_in_a_byte() {
    // ceil(256 * 0.abcde) in base 3, as GGML packs them.
    let pack = |digits: [u32; 5]| {
        let value = digits.iter().fold(0, |q, d| 3 * q + d);
        (value * 256).div_ceil(243) as u8
    };
    let zeros = pack([1; 5]);
    let mut zero = [zeros; 54];
    zero[52..].copy_from_slice(&HALF);
    assert_only(&decode(QuantType::TQ1_0, &zero, 256), &[]);

    // The runs: first byte, number of bytes, first weight, digits.
    for (first, n_bytes, weight, n_digits) in [(0, 32, 0, 5), (32, 16, 160, 5), (48, 4, 240, 4)] {
        for m in [0, 1, n_bytes - 1] {
            for n in 0..n_digits {
                for digit in [0, 2] {
                    let mut digits = [1; 5];
                    digits[n] = digit;
                    let mut block = zero;
                    block[first + m] = pack(digits);
                    let value = 0.5 * (digit as f32 - 1.0);
                    assert_only(
                        &decode(QuantType::TQ1_0, &block, 256),
                        &[(weight + n_bytes * n + m, value)],
                    );
                }
            }
        }
    }
}

#[test]
fn sizes_are_those_of_ggml() {
    let sizes: Vec<_> = QuantType::ALL
        .iter()
        .map(|kind| (kind.name(), kind.ggml_id(), kind.block_len(), kind.block_bytes()))
        .collect();
    assert_eq!(
        sizes,
        [
            ("f32", 0, 1, 4),
            ("f16", 1, 1, 2),
            ("bf16", 30, 1, 2),
            ("q4_0", 2, 32, 18),
            ("q4_1", 3, 32, 20),
            ("q5_0", 6, 32, 22),
            ("q5_1", 7, 32, 24),
            ("q8_0", 8, 32, 34),
            ("q4_k", 12, 256, 144),
            ("q5_k", 13, 256, 176),
            ("q6_k", 14, 256, 210),
            ("tq1_0", 34, 256, 54),
            ("tq2_0", 35, 256, 66),
            ("i2_s", 36, 128, 32),
        ]
    );
    for kind in QuantType::ALL {
        assert_eq!(QuantType::from_ggml(kind.ggml_id()), Some(kind));
    }
    assert_eq!(QuantType::from_ggml(10), None);
}

#[test]
fn a_matrix_has_whole_blocks_and_a_size_that_fits() {
    assert_eq!(QuantType::Q4_K.matrix_bytes(3, 512), Some(3 * 2 * 144));
    assert_eq!(QuantType::Q4_K.matrix_bytes(3, 511), None);
    assert_eq!(QuantType::I2_S.matrix_bytes(3, 256), Some(3 * 64 + 32));
    assert_eq!(QuantType::I2_S.matrix_bytes(3, 64), None);
    assert_eq!(QuantType::F32.matrix_bytes(u64::MAX, 1), None);
    assert_eq!(QuantType::F32.matrix_bytes(1, u64::MAX), None);
    assert_eq!(QuantType::I2_S.matrix_bytes(u64::MAX, 128), None);
    assert_eq!(QuantType::F32.matrix_bytes(u64::MAX, 0), Some(0));
}

/// How far a decoded weight may be from the original, given the block's largest magnitude: half a step, plus the
/// rounding error of the scales; a scale too small for a normal half float is a multiple of 6e-8.
fn tolerance(kind: QuantType, largest: f32, x: f32) -> f32 {
    const HALF: f32 = 3.1e-8;
    match kind {
        QuantType::F32 => 0.0,
        QuantType::F16 => x.abs() / 2048.0 + HALF,
        QuantType::BF16 => x.abs() / 256.0,
        // A step is an eighth of the largest, and one end of the range is a step short.
        QuantType::Q4_0 => largest / 8.0 * 1.01 + 8.0 * HALF,
        // Fifteen or 31 steps over up to twice the largest; scale and minimum are half floats.
        QuantType::Q4_1 => largest * (1.0 / 15.0 + 3.0 / 2048.0) * 1.01 + 16.0 * HALF,
        QuantType::Q5_0 => largest / 16.0 * 1.01 + 16.0 * HALF,
        QuantType::Q5_1 => largest * (1.0 / 31.0 + 3.0 / 2048.0) * 1.01 + 32.0 * HALF,
        QuantType::Q8_0 => largest / 254.0 * 1.14 + 127.0 * HALF,
        // Fifteen steps, each with an error of up to half a 63rd, over twice the largest. The ends of the range may be
        // off by that and by the minimum's error.
        QuantType::Q4_K => {
            largest * (1.0 / 15.0 + 1.0 / 63.0 + 0.5 / 63.0) * 1.01 + (15.0 + 1.0) * 63.0 * HALF
        }
        // Likewise.
        QuantType::Q5_K => {
            largest * (1.0 / 31.0 + 1.0 / 63.0 + 0.5 / 63.0) * 1.01 + (31.0 + 1.0) * 63.0 * HALF
        }
        // A step is a 32nd, and one end of the range is a step short. A scale is a multiple of a 128th, and 128 of them
        // exist with one sign only.
        QuantType::Q6_K => largest * (1.0 / 32.0 + 1.0 / 128.0) * 1.01 + 32.0 * 128.0 * HALF,
        QuantType::TQ1_0 | QuantType::TQ2_0 | QuantType::I2_S => largest * 0.501 + HALF,
    }
}

fn weights() -> impl Strategy<Value = Vec<f32>> {
    let scale = prop_oneof![Just(0.0f32), Just(1e-3), Just(0.02), Just(1.0), Just(50.0)];
    (scale, prop::collection::vec(-1.0f32..1.0, 512))
        .prop_map(|(scale, x)| x.into_iter().map(|x| x * scale).collect())
}

proptest! {
    #![proptest_config(brickscope_testing::cases(64))]

    #[test]
    fn what_is_encoded_comes_back_to_within_the_format_s_step(x in weights()) {
        for kind in QuantType::ALL {
            let decoded = decode(kind, &encode(kind, &x), x.len());
            let block = if kind == QuantType::I2_S { 512 } else { kind.block_len() };
            for (x, decoded) in x.chunks(block).zip(decoded.chunks(block)) {
                let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                for (x, decoded) in x.iter().zip(decoded) {
                    prop_assert!(
                        (x - decoded).abs() <= tolerance(kind, largest, *x),
                        "{} {} became {}, largest {}", kind, x, decoded, largest
                    );
                }
            }
        }
    }

    #[test]
    fn ternary_weights_come_back_exactly(codes in prop::collection::vec(-1i8..=1, 512)) {
        let mut x: Vec<f32> = codes.into_iter().map(|code| 0.75 * f32::from(code)).collect();
        // Each block must use its own scale.
        (x[0], x[256]) = (0.75, -0.75);
        for kind in [QuantType::TQ1_0, QuantType::TQ2_0, QuantType::I2_S] {
            prop_assert_eq!(decode(kind, &encode(kind, &x), x.len()), x.clone(), "{}", kind);
        }
    }

    #[test]
    fn no_weight_makes_a_quantiser_panic(bits in prop::collection::vec(any::<u32>(), 256)) {
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for kind in QuantType::ALL {
            prop_assert_eq!(
                encode(kind, &x).len() as u64,
                kind.matrix_bytes(1, 256).unwrap(),
                "{}", kind
            );
        }
    }
}

#[test]
fn special_blocks_encode_to_what_they_can() {
    for kind in QuantType::ALL {
        // Denormals are too small for any scale, and become 0 in formats with a scale.
        let tiny = decode(kind, &encode(kind, &[1e-40; 256]), 256);
        for weight in tiny {
            assert!((0.0..=1.0001e-40).contains(&weight), "{kind}: {weight}");
        }
        // One outlier and zeros.
        let mut x = [0.0; 256];
        x[77] = -3.0;
        let decoded = decode(kind, &encode(kind, &x), 256);
        assert!((decoded[77] + 3.0).abs() < 0.01, "{kind}: {}", decoded[77]);
        assert!(decoded[..77].iter().all(|&w| w.abs() < 0.01), "{kind}");
    }
}

#[test]
fn encoding_appends() {
    let mut bytes = vec![1, 2, 3];
    quantize_row(QuantType::Q8_0, &[1.0; 32], &mut bytes);
    assert_eq!((&bytes[..3], bytes.len()), (&[1, 2, 3][..], 3 + 34));
}

#[test]
#[should_panic = "33 weights aren't whole blocks of q8_0"]
fn half_a_block_is_refused() {
    quantize_row(QuantType::Q8_0, &[0.0; 33], &mut Vec::new());
}

#[test]
#[should_panic = "32 weights of q8_0 aren't 33 bytes"]
fn bytes_of_another_length_are_refused() {
    dequantize_row(QuantType::Q8_0, &[0; 33], &mut [0.0; 32]);
}

#[test]
#[should_panic = "one scale per tensor"]
fn a_row_of_i2_s_is_refused() {
    quantize_row(QuantType::I2_S, &[0.0; 128], &mut Vec::new());
}
