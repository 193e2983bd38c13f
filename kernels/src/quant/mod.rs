//! How GGUF files store weights: the block formats of GGML, and BitNet's `I2_S`.
//!
//! Each format has its own file, which describes the block and decodes it. This decoding is the reference for the SIMD
//! kernels of [`gemv`](crate::gemv), and what [`gemm`](crate::gemm) runs once per weight row. The layouts are those of
//! `ggml-quants.c`; all numbers are little endian.
//!
//! The quantisers are simple and fast: they make synthetic models and test data. A tool that converts real models
//! searches for better scales.

pub(crate) mod f32;
pub mod half;
pub(crate) mod packed;
pub(crate) mod q4_0;
pub(crate) mod q4_1;
pub(crate) mod q4_k;
pub(crate) mod q5_0;
pub(crate) mod q5_1;
pub(crate) mod q5_k;
pub(crate) mod q6_k;
pub(crate) mod q8_0;
mod round;
pub(crate) mod ternary;

use std::fmt;

/// How weights are stored. The names are GGML's.
#[allow(non_camel_case_types, reason = "Q4_K is what everyone calls it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuantType {
    /// 32-bit floats.
    F32,
    /// IEEE half floats.
    F16,
    /// Brain floats: the upper half of an `f32`.
    BF16,
    /// 4 bits and one scale per 32 weights.
    Q4_0,
    /// 4 bits, with a scale and a minimum per 32 weights.
    Q4_1,
    /// 5 bits and one scale per 32 weights.
    Q5_0,
    /// 5 bits, with a scale and a minimum per 32 weights.
    Q5_1,
    /// 8 bits and one scale per 32 weights.
    Q8_0,
    /// 4 bits, with a 6-bit scale and minimum per 32 weights.
    Q4_K,
    /// 5 bits, with a 6-bit scale and minimum per 32 weights.
    Q5_K,
    /// 6 bits, with an 8-bit scale per 16 weights.
    Q6_K,
    /// Ternary, five weights per byte.
    TQ1_0,
    /// Ternary, four weights per byte.
    TQ2_0,
    /// Ternary, four weights per byte, one scale for the whole tensor, 128 weights interleaved
    /// (bitnet.cpp's x86 layout).
    I2_S,
}

impl QuantType {
    /// Every type, in the order of the declaration.
    pub const ALL: [Self; 14] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::TQ1_0,
        Self::TQ2_0,
        Self::I2_S,
    ];

    /// The type with this number in a GGUF file, if it is one of these.
    ///
    /// 36 is read as bitnet.cpp's [`I2_S`](Self::I2_S); upstream GGML has retired the number.
    pub fn from_ggml(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.ggml_id() == id)
    }

    /// The type's number in a GGUF file.
    pub const fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q4_K => 12,
            Self::Q5_K => 13,
            Self::Q6_K => 14,
            Self::BF16 => 30,
            Self::TQ1_0 => 34,
            Self::TQ2_0 => 35,
            Self::I2_S => 36,
        }
    }

    /// The lower-case name, such as `q4_k`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q4_K => "q4_k",
            Self::Q5_K => "q5_k",
            Self::Q6_K => "q6_k",
            Self::TQ1_0 => "tq1_0",
            Self::TQ2_0 => "tq2_0",
            Self::I2_S => "i2_s",
        }
    }

    /// How many weights a block holds.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 => q4_0::LEN,
            Self::Q4_1 => q4_1::LEN,
            Self::Q5_0 => q5_0::LEN,
            Self::Q5_1 => q5_1::LEN,
            Self::Q8_0 => q8_0::LEN,
            Self::Q4_K => q4_k::LEN,
            Self::Q5_K => q5_k::LEN,
            Self::Q6_K => q6_k::LEN,
            Self::TQ1_0 | Self::TQ2_0 => ternary::LEN,
            Self::I2_S => ternary::I2_S_LEN,
        }
    }

    /// How many bytes a block has. For [`I2_S`](Self::I2_S) these are only the codes; the tensor's scale follows all of
    /// them.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => q4_0::BYTES,
            Self::Q4_1 => q4_1::BYTES,
            Self::Q5_0 => q5_0::BYTES,
            Self::Q5_1 => q5_1::BYTES,
            Self::Q8_0 => q8_0::BYTES,
            Self::Q4_K => q4_k::BYTES,
            Self::Q5_K => q5_k::BYTES,
            Self::Q6_K => q6_k::BYTES,
            Self::TQ1_0 => ternary::TQ1_0_BYTES,
            Self::TQ2_0 => ternary::TQ2_0_BYTES,
            Self::I2_S => ternary::I2_S_BYTES,
        }
    }

    /// The size in bytes of a tensor of `rows` rows with `cols` weights each.
    ///
    /// `None` if a row isn't a whole number of blocks, or the size doesn't fit in 64 bits.
    pub const fn matrix_bytes(self, rows: u64, cols: u64) -> Option<u64> {
        if !cols.is_multiple_of(self.block_len() as u64) {
            return None;
        }
        let Some(row) = (cols / self.block_len() as u64).checked_mul(self.block_bytes() as u64)
        else {
            return None;
        };
        let Some(bytes) = row.checked_mul(rows) else { return None };
        match self {
            Self::I2_S => bytes.checked_add(ternary::I2_S_TAIL as u64),
            _ => Some(bytes),
        }
    }
}

impl fmt::Display for QuantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Decodes `bytes`, the blocks of `out.len()` weights.
///
/// For [`QuantType::I2_S`] they are a whole tensor of one row, with its scale and padding;
/// [`Matrix::dequantize_row`](crate::Matrix::dequantize_row) reads rows of larger ones.
///
/// # Panics
///
/// If `out` isn't a whole number of blocks, or `bytes` doesn't have their size.
pub fn dequantize_row(kind: QuantType, bytes: &[u8], out: &mut [f32]) {
    assert!(
        kind.matrix_bytes(1, out.len() as u64) == Some(bytes.len() as u64),
        "dequantize_row: {} weights of {kind} aren't {} bytes",
        out.len(),
        bytes.len(),
    );
    match kind {
        QuantType::I2_S => {
            let (codes, tail) = bytes.split_at(out.len() / 4);
            decode_row(kind, codes, ternary::i2_s_scale(tail), out);
        }
        _ => decode_row(kind, bytes, 1.0, out),
    }
}

/// Decodes one row's blocks. `tensor_scale` matters only to I2_S, whose blocks have none.
///
/// Inlined into its callers, one of which may be compiled for AVX2, where the compiler generates wider code from the
/// same source.
#[inline(always)]
pub(crate) fn decode_row(kind: QuantType, bytes: &[u8], tensor_scale: f32, out: &mut [f32]) {
    match kind {
        QuantType::F32 => decode_blocks(bytes, out, f32::decode),
        QuantType::F16 => decode_blocks(bytes, out, half::decode_f16),
        QuantType::BF16 => decode_blocks(bytes, out, half::decode_bf16),
        QuantType::Q4_0 => decode_blocks(bytes, out, q4_0::decode),
        QuantType::Q4_1 => decode_blocks(bytes, out, q4_1::decode),
        QuantType::Q5_0 => decode_blocks(bytes, out, q5_0::decode),
        QuantType::Q5_1 => decode_blocks(bytes, out, q5_1::decode),
        QuantType::Q8_0 => decode_blocks(bytes, out, q8_0::decode),
        QuantType::Q4_K => decode_blocks(bytes, out, q4_k::decode),
        QuantType::Q5_K => decode_blocks(bytes, out, q5_k::decode),
        QuantType::Q6_K => decode_blocks(bytes, out, q6_k::decode),
        QuantType::TQ1_0 => decode_blocks(bytes, out, ternary::decode_tq1_0),
        QuantType::TQ2_0 => decode_blocks(bytes, out, ternary::decode_tq2_0),
        QuantType::I2_S => {
            decode_blocks(bytes, out, |block, out| ternary::decode_i2_s(block, tensor_scale, out));
        }
    }
}

#[inline(always)]
fn decode_blocks<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, out) = (bytes.as_chunks::<BYTES>().0, out.as_chunks_mut::<LEN>().0);
    for (block, out) in blocks.iter().zip(out) {
        decode(block, out);
    }
}

/// [`decode_row`] for formats that the compiler doesn't vectorise well by itself.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use super::{QuantType, half, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};
    use crate::lanes::{load_f16_bytes, mul_add, splat, store, to_floats};

    /// A macro, because a function that is passed in isn't inlined where the target feature would
    /// have to come from its caller.
    macro_rules! decode_blocks {
        ($format:ident, $bytes:ident, $out:ident) => {{
            let blocks = $bytes.as_chunks::<{ $format::BYTES }>().0;
            for (block, out) in blocks.iter().zip($out.as_chunks_mut().0) {
                $format::eight_lanes::decode(block, out);
            }
        }};
    }

    /// Likewise, for codes with one scale and an offset.
    macro_rules! decode_blocks_of_32 {
        ($format:ident, $bytes:ident, $out:ident) => {{
            let blocks = $bytes.as_chunks::<{ $format::BYTES }>().0;
            for (block, out) in blocks.iter().zip($out.as_chunks_mut::<32>().0) {
                let (d, offset) = $format::eight_lanes::scale(block);
                let (d, offset) = (splat(d), splat(offset));
                let out = out.as_chunks_mut().0;
                for i in 0..2 {
                    for (half, q) in $format::eight_lanes::codes(block, i).into_iter().enumerate() {
                        let w = mul_add(to_floats(q), d, offset);
                        store(&mut out[2 * half + i], w);
                    }
                }
            }
        }};
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn decode_row(kind: QuantType, bytes: &[u8], tensor_scale: f32, out: &mut [f32]) {
        match kind {
            QuantType::F16 => {
                let (eights, tail) = bytes.as_chunks::<16>();
                let (out, out_tail) = out.as_chunks_mut::<8>();
                for (bytes, out) in eights.iter().zip(out) {
                    store(out, load_f16_bytes(bytes));
                }
                super::decode_blocks(tail, out_tail, half::decode_f16);
            }
            QuantType::Q4_0 => decode_blocks_of_32!(q4_0, bytes, out),
            QuantType::Q4_1 => decode_blocks_of_32!(q4_1, bytes, out),
            QuantType::Q5_0 => decode_blocks_of_32!(q5_0, bytes, out),
            QuantType::Q5_1 => decode_blocks_of_32!(q5_1, bytes, out),
            QuantType::Q8_0 => decode_blocks!(q8_0, bytes, out),
            QuantType::Q4_K => decode_blocks!(q4_k, bytes, out),
            QuantType::Q5_K => decode_blocks!(q5_k, bytes, out),
            QuantType::Q6_K => decode_blocks!(q6_k, bytes, out),
            _ => super::decode_row(kind, bytes, tensor_scale, out),
        }
    }
}

/// Encodes `x` and appends its blocks to `out`.
///
/// Weights should be finite, and small enough for a block's half-float scale (up to some millions). Others are encoded
/// wrongly, but never cause a panic.
///
/// # Panics
///
/// If `x` isn't a whole number of blocks, or `kind` is [`QuantType::I2_S`], whose scale belongs to the whole tensor: see
/// [`quantize_i2_s`].
pub fn quantize_row(kind: QuantType, x: &[f32], out: &mut Vec<u8>) {
    assert!(
        x.len().is_multiple_of(kind.block_len()),
        "quantize_row: {} weights aren't whole blocks of {kind}, which have {}",
        x.len(),
        kind.block_len(),
    );
    match kind {
        QuantType::F32 => encode_blocks(x, out, f32::encode),
        QuantType::F16 => encode_blocks(x, out, half::encode_f16),
        QuantType::BF16 => encode_blocks(x, out, half::encode_bf16),
        QuantType::Q4_0 => encode_blocks(x, out, q4_0::encode),
        QuantType::Q4_1 => encode_blocks(x, out, q4_1::encode),
        QuantType::Q5_0 => encode_blocks(x, out, q5_0::encode),
        QuantType::Q5_1 => encode_blocks(x, out, q5_1::encode),
        QuantType::Q8_0 => encode_blocks(x, out, q8_0::encode),
        QuantType::Q4_K => encode_blocks(x, out, q4_k::encode),
        QuantType::Q5_K => encode_blocks(x, out, q5_k::encode),
        QuantType::Q6_K => encode_blocks(x, out, q6_k::encode),
        QuantType::TQ1_0 => encode_blocks(x, out, ternary::encode_tq1_0),
        QuantType::TQ2_0 => encode_blocks(x, out, ternary::encode_tq2_0),
        QuantType::I2_S => panic!("quantize_row: i2_s has one scale per tensor, not per row"),
    }
}

#[inline(always)]
fn encode_blocks<const LEN: usize, const BYTES: usize>(
    x: &[f32],
    out: &mut Vec<u8>,
    encode: impl Fn(&[f32; LEN]) -> [u8; BYTES],
) {
    let blocks = x.as_chunks::<LEN>().0;
    let at = out.len();
    out.resize(at + blocks.len() * BYTES, 0);
    for (x, out) in blocks.iter().zip(out[at..].as_chunks_mut::<BYTES>().0) {
        *out = encode(x);
    }
}

/// Encodes a whole tensor as [`QuantType::I2_S`] and appends it to `out`: each weight becomes -1, 0
/// or 1 times the largest magnitude, whichever is nearest.
///
/// # Panics
///
/// If the length of `x` isn't a multiple of 128.
pub fn quantize_i2_s(x: &[f32], out: &mut Vec<u8>) {
    let kind = QuantType::I2_S;
    assert!(
        x.len().is_multiple_of(kind.block_len()),
        "quantize_i2_s: {} weights aren't whole blocks of 128",
        x.len()
    );
    let scale = x.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
    encode_blocks(x, out, |x| ternary::encode_i2_s(x, scale));
    out.extend(scale.to_le_bytes());
    out.resize(out.len() + ternary::I2_S_TAIL - 4, 0);
}

#[cfg(test)]
mod tests;
