//! Converts block formats that no kernel reads to a signed byte for each weight and an F32 scale for
//! each 16. Nothing is rounded, so the device computes with the exact weights of the file.

use brickscope_kernels::quant::half::f16_to_f32;
use brickscope_kernels::{Matrix, QuantType, quant};

/// Weights per scale.
pub(super) const LEN: usize = 16;

/// Where a block keeps its scales: an F16 for the whole block, and signed bytes for 16 weights each.
struct Scales {
    d: usize,
    bytes: Option<usize>,
}

impl Scales {
    /// `None` for a type whose blocks have no scales.
    fn for_kind(kind: QuantType) -> Option<Self> {
        let (d, bytes) = match kind {
            QuantType::Q4_0 | QuantType::Q5_0 => (0, None),
            QuantType::Q6_K => (208, Some(192)),
            QuantType::TQ1_0 => (52, None),
            QuantType::TQ2_0 => (64, None),
            _ => return None,
        };
        Some(Self { d, bytes })
    }
}

/// Buffers for converting a row.
#[derive(Debug, Default)]
pub(super) struct Codes {
    blocks: Vec<u8>,
    values: Vec<f32>,
}

impl Codes {
    /// Appends the codes of a row to `codes` and its scales to `scales`, little endian.
    pub(super) fn split(
        &mut self,
        matrix: Matrix<'_>,
        row: usize,
        codes: &mut Vec<u8>,
        scales: &mut Vec<u8>,
    ) {
        let kind = matrix.kind();
        let Self { blocks, values } = self;
        values.clear();
        values.resize(matrix.cols(), 0.0);
        let Some(at) = Scales::for_kind(kind) else {
            matrix.dequantize_row(row, values);
            // The weights are small multiples of one scale, so the smallest weight has the smallest code.
            let sizes = values.iter().map(|value| value.abs()).filter(|&size| size > 0.0);
            let scale = sizes.reduce(f32::min).unwrap_or(0.0);
            let code = |value: &f32| (value / scale) as i8;
            codes.extend(values.iter().map(|value| code(value).cast_unsigned()));
            scales.extend((0..values.len() / LEN).flat_map(|_| scale.to_le_bytes()));
            return;
        };
        // Blocks whose scales are 1 decode to their codes.
        blocks.clear();
        blocks.extend_from_slice(&matrix.row_bytes(row));
        let groups = kind.block_len() / LEN;
        for block in blocks.chunks_exact_mut(kind.block_bytes()) {
            let d = f16_to_f32(u16::from_le_bytes([block[at.d], block[at.d + 1]]));
            block[at.d..at.d + 2].copy_from_slice(&0x3c00u16.to_le_bytes());
            for i in 0..groups {
                let scale = at.bytes.map_or(1.0, |bytes| {
                    let byte = std::mem::replace(&mut block[bytes + i], 1);
                    f32::from(byte.cast_signed())
                });
                scales.extend((d * scale).to_le_bytes());
            }
        }
        quant::dequantize_row(kind, blocks, values);
        codes.extend(values.iter().map(|&code| (code as i8).cast_unsigned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_times_scales_are_the_weights() {
        let weights: Vec<f32> = (0..512i16).map(|i| f32::from(i % 37 - 18) / 7.0).collect();
        let types =
            [QuantType::Q4_0, QuantType::Q5_0, QuantType::Q6_K, QuantType::TQ1_0, QuantType::TQ2_0];
        for kind in types.into_iter().chain([QuantType::I2_S]) {
            let mut bytes = Vec::new();
            if kind == QuantType::I2_S {
                quant::quantize_i2_s(&weights, &mut bytes);
            } else {
                quant::quantize_row(kind, &weights, &mut bytes);
            }
            let matrix = Matrix::new(kind, 2, 256, &bytes).expect("it fits");
            let mut split = Codes::default();
            for row in 0..2 {
                let (mut codes, mut scales) = (Vec::new(), Vec::new());
                split.split(matrix, row, &mut codes, &mut scales);
                let mut expected = vec![0.0; 256];
                matrix.dequantize_row(row, &mut expected);
                assert!(expected.iter().any(|&value| value < 0.0));
                let scales = scales.as_chunks::<4>().0;
                let found = codes.iter().enumerate().map(|(i, code)| {
                    f32::from_le_bytes(scales[i / LEN]) * f32::from(code.cast_signed())
                });
                assert_eq!(found.collect::<Vec<_>>(), expected, "{kind}");
            }
        }
    }
}
