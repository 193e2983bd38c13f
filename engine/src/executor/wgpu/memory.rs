//! Memory on the device: weights in the layouts that kernels read, and the operands of a pass.

use std::collections::HashMap;

use brickscope_kernels::{Matrix, QuantType, rope_tables};
use wgpu::BufferUsages;

use super::adapter::OpenDevice;
use super::codes::{self, Codes};
use super::kernels::Format;
use crate::config::Config;
use crate::executor::gpu::{GpuError, Op, Operand, Plan};
use crate::model::Model;
use crate::value::Value;

/// Weights that kernels read at a time.
pub(super) const BLOCK: usize = 32;
/// Bytes that are uploaded at a time.
const CHUNK: usize = 8 << 20;
/// Parts of a matrix have a multiple of this many rows, so that tiles and vectors of scales end with them.
const ROWS: usize = 64;

/// Rows of a matrix, as many as fit the largest binding.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) buffer: wgpu::Buffer,
    pub(super) first_row: usize,
    pub(super) rows: usize,
    /// Where the scales begin, in vectors of 16 bytes.
    pub(super) scales: usize,
}

/// A matrix on the device.
#[derive(Debug)]
pub(super) struct Weight {
    pub(super) format: Format,
    /// Its type in the file.
    pub(super) kind: QuantType,
    pub(super) cols: usize,
    /// Blocks of [`BLOCK`] weights in a row.
    pub(super) blocks: usize,
    pub(super) parts: Vec<Part>,
}

/// The format of a tensor on the device: that of the file if there is a kernel for it, otherwise one that holds
/// its weights exactly.
pub(super) fn format(kind: QuantType) -> Format {
    match kind {
        // With a minimum, weights aren't multiples of one scale.
        QuantType::F32 | QuantType::BF16 | QuantType::Q4_1 | QuantType::Q5_1 | QuantType::Q5_K => {
            Format::F32
        }
        QuantType::F16 => Format::F16,
        QuantType::Q8_0 => Format::Q8_0,
        QuantType::Q4_K => Format::Q4_K,
        QuantType::Q4_0
        | QuantType::Q5_0
        | QuantType::Q6_K
        | QuantType::TQ1_0
        | QuantType::TQ2_0
        | QuantType::I2_S => Format::I8,
    }
}

/// Bytes of a row in a format, and of its scales if they are stored apart.
pub(super) fn row_bytes(format: Format, blocks: usize) -> [usize; 2] {
    match format {
        Format::F32 => [blocks * BLOCK * 4, 0],
        Format::F16 => [blocks * BLOCK * 2, 0],
        Format::Q8_0 => [blocks * BLOCK, blocks * 2],
        Format::Q4_K => [blocks / 8 * 144, 0],
        Format::I8 => [blocks * BLOCK, blocks * (BLOCK / codes::LEN * 4)],
    }
}

impl Weight {
    /// `2048×768 q6_k as i8`.
    pub(super) fn shape(&self) -> String {
        let rows: usize = self.parts.iter().map(|part| part.rows).sum();
        let (kind, format) = (self.kind.name(), self.format.name());
        let cast = if kind == format { String::new() } else { format!(" as {format}") };
        format!("{rows}×{} {kind}{cast}", self.cols)
    }

    /// Uploads a matrix.
    pub(super) fn upload(gpu: &OpenDevice, matrix: Matrix<'_>) -> Result<Self, GpuError> {
        let (kind, cols) = (matrix.kind(), matrix.cols());
        let format = format(kind);
        let blocks = cols.div_ceil(BLOCK);
        let row_bytes = row_bytes(format, blocks).iter().sum::<usize>();
        let limit = gpu.max_binding();
        // One byte per row more, for the padding between quants and scales.
        let fit = usize::try_from(limit / (row_bytes as u64 + 1)).unwrap_or(usize::MAX);
        let rows_of_part = (fit / ROWS * ROWS).max(ROWS);
        let mut weight = Self { format, kind, cols, blocks, parts: Vec::new() };
        for first_row in (0..matrix.rows()).step_by(rows_of_part) {
            let rows = rows_of_part.min(matrix.rows() - first_row);
            weight.parts.push(weight.part(gpu, matrix, first_row, rows)?);
        }
        Ok(weight)
    }

    fn part(
        &self,
        gpu: &OpenDevice,
        matrix: Matrix<'_>,
        first_row: usize,
        rows: usize,
    ) -> Result<Part, GpuError> {
        let [row_bytes, row_scales] = row_bytes(self.format, self.blocks);
        let scales_at = (rows * row_bytes).next_multiple_of(16);
        let bytes = (scales_at + rows * row_scales).next_multiple_of(16);
        let what = format!("a part of the weights ({} × {})", rows, self.cols);
        let buffer =
            gpu.buffer(&what, bytes as u64, BufferUsages::STORAGE | BufferUsages::COPY_DST)?;
        let send = |at: usize, bytes: &mut Vec<u8>| {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            gpu.queue.write_buffer(&buffer, at as u64, bytes);
            bytes.clear();
        };
        // An even number of rows has an even number of scales, four bytes.
        let rows_at_once = (CHUNK / row_bytes.max(1)).max(1).next_multiple_of(2);
        let (mut quants, mut scales) = (Vec::new(), Vec::new());
        let mut values = vec![0.0; self.cols];
        let mut codes = Codes::default();
        for start in (0..rows).step_by(rows_at_once) {
            for row in first_row + start..first_row + rows.min(start + rows_at_once) {
                match self.format {
                    Format::F16 | Format::Q4_K => quants.extend_from_slice(&matrix.row_bytes(row)),
                    Format::I8 => codes.split(matrix, row, &mut quants, &mut scales),
                    Format::Q8_0 => {
                        for block in matrix.row_bytes(row).chunks_exact(34) {
                            scales.extend_from_slice(&block[..2]);
                            quants.extend_from_slice(&block[2..]);
                        }
                    }
                    Format::F32 => {
                        matrix.dequantize_row(row, &mut values);
                        quants.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                    }
                }
                let row = row - first_row - start;
                quants.resize((row + 1) * row_bytes, 0);
            }
            send(start * row_bytes, &mut quants);
            send(scales_at + start * row_scales, &mut scales);
            // Pending uploads take memory until they are submitted.
            gpu.queue.submit([]);
            gpu.wait(None)?;
        }
        Ok(Part { buffer, first_row, rows, scales: scales_at / 16 })
    }
}

/// All that is on the device for one model.
#[derive(Debug)]
pub(super) struct Memory {
    /// By the index of the matrix.
    pub(super) weights: HashMap<usize, Weight>,
    /// Weights of norms and biases, by layer and the value that they make.
    pub(super) vectors: HashMap<(Option<u16>, Value), wgpu::Buffer>,
    pub(super) cosines: wgpu::Buffer,
    pub(super) sines: wgpu::Buffer,
    pub(super) params: wgpu::Buffer,
    pub(super) tokens: wgpu::Buffer,
    operands: HashMap<Operand, wgpu::Buffer>,
    /// Rows of logits that fit.
    pub(super) outputs: usize,
}

impl Memory {
    /// Uploads the weights that `plan` reads, and makes room for passes of up to `batch` tokens.
    pub(super) fn new(
        gpu: &OpenDevice,
        model: &Model,
        plan: &Plan<'_>,
        batch: usize,
        capacity: usize,
    ) -> Result<Self, GpuError> {
        let c = &model.config;
        let mut weights = HashMap::new();
        for tensor in Plan::matrices(&model.weights) {
            weights.insert(tensor.index, Weight::upload(gpu, tensor.matrix(&model.gguf))?);
        }
        let mut vectors = HashMap::new();
        for step in &plan.steps {
            if let Op::RmsNorm { weight: values, .. } | Op::AddBias { bias: values, .. } = step.op {
                vectors.insert((step.layer, step.value), vector(gpu, "a vector", values)?);
            }
        }
        let operands = operands(c, batch, capacity)
            .into_iter()
            .map(|(operand, floats)| Ok((operand, self::operand(gpu, operand, floats)?)))
            .collect::<Result<_, GpuError>>()?;
        // After the operands, which are larger, so that an error for want of memory names one of those.
        let (cosines, sines) = angles(model, capacity);
        let uniform = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let storage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        Ok(Self {
            weights,
            vectors,
            cosines: vector(gpu, "cosines", &cosines)?,
            sines: vector(gpu, "sines", &sines)?,
            params: gpu.buffer("a position", 16, uniform)?,
            tokens: gpu.buffer("tokens", 4 * batch as u64, storage)?,
            operands,
            outputs: 0,
        })
    }

    /// The buffer of an operand. The logits have one once there is room for some.
    pub(super) fn operand(&self, operand: Operand) -> Option<&wgpu::Buffer> {
        self.operands.get(&operand)
    }

    /// Makes room for `outputs` rows of logits.
    pub(super) fn grow_logits(
        &mut self,
        gpu: &OpenDevice,
        c: &Config,
        outputs: usize,
    ) -> Result<(), GpuError> {
        let logits = operand(gpu, Operand::Logits, outputs as u128 * c.n_vocab as u128)?;
        self.operands.insert(Operand::Logits, logits);
        self.outputs = outputs;
        Ok(())
    }
}

/// The most tokens of a pass, up to `most`, with which each activation fits a binding as a whole. The widest are scores
/// of a long context and logits of a large vocabulary.
pub(super) fn batch(c: &Config, most: usize, capacity: usize, max_binding: u64) -> usize {
    let widths = [c.dim, c.q_dim(), c.ffn_dim, c.n_vocab, c.n_heads.saturating_mul(capacity)];
    let widest = widths.into_iter().max().unwrap_or(1).max(1) as u128;
    let fit = u128::from(max_binding) / (4 * widest);
    usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, most)
}

/// Each operand but the logits, and its number of floats.
fn operands(c: &Config, batch: usize, capacity: usize) -> Vec<(Operand, u128)> {
    let rows = |width: usize| batch as u128 * width as u128;
    let cache = capacity as u128 * c.kv_dim() as u128;
    let mut operands = vec![
        (Operand::X, rows(c.dim)),
        (Operand::H, rows(c.dim)),
        (Operand::Y, rows(c.dim)),
        (Operand::Q, rows(c.q_dim())),
        (Operand::A, rows(c.q_dim())),
        (Operand::S, rows(c.n_heads) * capacity as u128),
        (Operand::Gate, rows(c.ffn_dim)),
        (Operand::Up, rows(c.ffn_dim)),
    ];
    operands.extend((0..c.n_layers).flat_map(|i| [(Operand::K(i), cache), (Operand::V(i), cache)]));
    operands
}

fn operand(gpu: &OpenDevice, operand: Operand, floats: u128) -> Result<wgpu::Buffer, GpuError> {
    let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
    let bytes = u64::try_from(floats.saturating_mul(4)).unwrap_or(u64::MAX);
    let what = match operand {
        Operand::S => "the scores of attention".to_owned(),
        Operand::K(layer) => format!("the keys of layer {layer}"),
        Operand::V(layer) => format!("the values of layer {layer}"),
        Operand::Logits => "the logits".to_owned(),
        other => format!("the activation {other:?}"),
    };
    gpu.buffer(&what, bytes, usage)
}

/// A buffer with these floats.
pub(super) fn vector(
    gpu: &OpenDevice,
    what: &str,
    values: &[f32],
) -> Result<wgpu::Buffer, GpuError> {
    let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
    let buffer = gpu.buffer(what, 4 * values.len() as u64, usage)?;
    gpu.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(values));
    Ok(buffer)
}

/// The cosines and sines of all positions, computed as on the CPU.
fn angles(model: &Model, capacity: usize) -> (Vec<f32>, Vec<f32>) {
    let c = &model.config;
    let pairs = c.n_rot / 2;
    let mut cosines = vec![0.0; capacity * pairs];
    let mut sines = vec![0.0; capacity * pairs];
    let factors = model.weights.rope_factors.as_deref();
    let rows = cosines.chunks_exact_mut(pairs).zip(sines.chunks_exact_mut(pairs));
    for (position, (cos, sin)) in rows.enumerate() {
        rope_tables(position, c.rope_base, c.n_rot, factors, c.rope_scale, cos, sin);
    }
    (cosines, sines)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_long_context_makes_smaller_batches() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
        let model = Model::open(&folder.join("tiny-F16.gguf")).expect("a model");
        let c = &model.config;
        assert_eq!(batch(c, 128, 64, 128 << 20), 128);
        // Four heads of 2^20 scores are 16 MiB a token.
        assert_eq!(batch(c, 128, 1 << 20, 128 << 20), 8);
        assert_eq!(batch(c, 128, 1 << 40, 128 << 20), 1);
    }
}
