//! Memory on the device: the weights, copied once, and the operands of a pass.

use std::collections::HashMap;
use std::sync::Arc;

use brickscope::TransferDirection;
use brickscope_kernels::quant::half::{f16_to_f32, f32_to_f16};
use brickscope_kernels::{Matrix, QuantType, rope_tables};

use super::driver::{Buffer, Context, Event, Stream};
use super::error::CudaError;
use super::kernels::MOST_PARTS;
use crate::config::Config;
use crate::executor::gpu::plan::{Operand, Plan};
use crate::model::Model;
use crate::weights::Weights;

/// About how many bytes are converted and copied at once.
const CHUNK: usize = 4 << 20;

/// How a matrix is stored on the device: the types that there are kernels for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(non_camel_case_types, reason = "the names that GGML gives them")]
pub(super) enum Format {
    F32,
    F16,
    Q8_0,
    Q4_K,
}

impl Format {
    /// Its name in those of kernels.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_K => "q4_k",
        }
    }

    /// The format of a matrix: its own if there are kernels for it, else F16 if that is lossless,
    /// else F32.
    fn for_matrix(matrix: Matrix<'_>) -> Self {
        match matrix.kind() {
            QuantType::F32 => Self::F32,
            QuantType::F16 => Self::F16,
            QuantType::Q8_0 => Self::Q8_0,
            QuantType::Q4_K => Self::Q4_K,
            _ => {
                let mut row = vec![0.0; matrix.cols()];
                let is_exact = (0..matrix.rows()).all(|i| {
                    matrix.dequantize_row(i, &mut row);
                    row.iter().all(|&x| f16_to_f32(f32_to_f16(x)) == x)
                });
                if is_exact { Self::F16 } else { Self::F32 }
            }
        }
    }

    fn is_native(self, kind: QuantType) -> bool {
        self.name() == kind.name()
    }

    /// Bytes of a row on the device, a multiple of 16: see `kernels/weights.cuh`.
    fn row_bytes(self, matrix: Matrix<'_>) -> usize {
        let bytes = match self {
            Self::F32 => 4 * matrix.cols().next_multiple_of(8),
            Self::F16 => 2 * matrix.cols(),
            Self::Q8_0 | Self::Q4_K => matrix.n_bytes() / matrix.rows().max(1),
        };
        bytes.next_multiple_of(16)
    }

    /// Appends a row of the model's file, which is in this format there, as it is on the device, without padding.
    fn push_row(self, bytes: &mut Vec<u8>, row: &[u8]) {
        match self {
            // The scales are behind the bytes that they belong to.
            Self::Q8_0 => {
                let blocks = row.as_chunks::<34>().0;
                bytes.extend(blocks.iter().flat_map(|block| &block[2..]));
                bytes.extend(blocks.iter().flat_map(|block| &block[..2]));
            }
            _ => bytes.extend_from_slice(row),
        }
    }
}

/// A weight matrix on the device.
#[derive(Debug)]
pub(super) struct DeviceMatrix {
    pub(super) buffer: Buffer,
    pub(super) format: Format,
    /// Such as `2048×768 q6_k as f32`.
    pub(super) shape: String,
}

/// A copy between host and device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Transfer {
    /// What was copied.
    pub(super) what: String,
    pub(super) direction: TransferDirection,
    pub(super) bytes: u64,
    /// The time between two events around the copy, or around several copies.
    pub(super) device_ns: Option<u64>,
}

/// The weights of a model.
#[derive(Debug)]
pub(super) struct DeviceWeights {
    /// By the index of the tensor.
    matrices: Vec<Option<DeviceMatrix>>,
    /// Norms and biases, by their address on the host. The model outlives this, so addresses stay unique.
    vectors: HashMap<usize, Buffer>,
    /// `(capacity, n_rot / 2)`.
    pub(super) cos: Buffer,
    pub(super) sin: Buffer,
    /// The copies that uploaded them.
    pub(super) uploads: Vec<Transfer>,
}

impl DeviceWeights {
    /// Copies all weights of `model`, and the angles of `capacity` positions.
    pub(super) fn upload(
        context: &Arc<Context>,
        stream: &Stream,
        model: &Model,
        capacity: usize,
    ) -> Result<Self, CudaError> {
        let Model { config: c, weights: w, .. } = model;
        let mut upload = Upload {
            context,
            stream,
            start: Event::new(context)?,
            end: Event::new(context)?,
            done: Vec::new(),
        };
        let mut matrices = Vec::new();
        for tensor in Plan::matrices(w) {
            let matrix = tensor.matrix(&model.gguf);
            let uploaded = upload.matrix(tensor.index, matrix)?;
            if tensor.index >= matrices.len() {
                matrices.resize_with(tensor.index + 1, || None);
            }
            matrices[tensor.index] = Some(uploaded);
        }
        let mut vectors = HashMap::new();
        for vector in vectors_of(w) {
            let buffer = upload.floats(&format!("{} floats", vector.len()), vector)?;
            vectors.insert(vector.as_ptr().addr(), buffer);
        }
        let n_pairs = c.n_rot / 2;
        let (mut cos, mut sin) = (vec![0.0; capacity * n_pairs], vec![0.0; capacity * n_pairs]);
        let angles = cos.chunks_exact_mut(n_pairs).zip(sin.chunks_exact_mut(n_pairs));
        for (position, (cos, sin)) in angles.enumerate() {
            let factors = w.rope_factors.as_deref();
            rope_tables(position, c.rope_base, c.n_rot, factors, c.rope_scale, cos, sin);
        }
        let cos = upload.floats("cosines", &cos)?;
        let sin = upload.floats("sines", &sin)?;
        Ok(Self { matrices, vectors, cos, sin, uploads: upload.done })
    }

    /// The matrix at this index.
    pub(super) fn matrix(&self, index: usize) -> Result<&DeviceMatrix, CudaError> {
        let missing = || CudaError::Pass { what: format!("matrix {index} is not on the device") };
        self.matrices.get(index).and_then(Option::as_ref).ok_or_else(missing)
    }

    /// The address of a norm's or bias's values.
    pub(super) fn vector(&self, values: &[f32]) -> Result<u64, CudaError> {
        let missing = || CudaError::Pass { what: "a norm or bias is of another model".to_owned() };
        self.vectors.get(&values.as_ptr().addr()).map(Buffer::address).ok_or_else(missing)
    }
}

/// All norms and biases.
fn vectors_of(w: &Weights) -> impl Iterator<Item = &[f32]> {
    let of_layers = w.layers.iter().flat_map(|layer| {
        let optional = [&layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm]
            .into_iter()
            .chain([&layer.attn_sub_norm, &layer.ffn_sub_norm, &layer.output_bias])
            .chain([&layer.gate_bias, &layer.up_bias, &layer.down_bias]);
        [&layer.attn_norm, &layer.ffn_norm].into_iter().chain(optional.flatten())
    });
    of_layers.chain([&w.output_norm]).chain(&w.head_bias).map(Vec::as_slice)
}

struct Upload<'c> {
    context: &'c Arc<Context>,
    stream: &'c Stream,
    start: Event,
    end: Event,
    done: Vec<Transfer>,
}

impl Upload<'_> {
    fn matrix(&mut self, index: usize, matrix: Matrix<'_>) -> Result<DeviceMatrix, CudaError> {
        let format = Format::for_matrix(matrix);
        let row_bytes = format.row_bytes(matrix);
        let buffer = Buffer::new(self.context, row_bytes.saturating_mul(matrix.rows()))?;
        let kind = matrix.kind();
        let mut shape = format!("{}×{} {}", matrix.rows(), matrix.cols(), kind.name());
        if !format.is_native(kind) {
            shape += &format!(" as {}", format.name());
        }
        let rows_at_once = (CHUNK / row_bytes.max(1)).max(1);
        let mut row = vec![0.0; matrix.cols()];
        let mut bytes = Vec::with_capacity(rows_at_once.min(matrix.rows()) * row_bytes);
        let mut ns = Some(0_u64);
        for first in (0..matrix.rows()).step_by(rows_at_once) {
            bytes.clear();
            for i in first..(first + rows_at_once).min(matrix.rows()) {
                if format.is_native(kind) {
                    format.push_row(&mut bytes, &matrix.row_bytes(i));
                } else {
                    matrix.dequantize_row(i, &mut row);
                    match format {
                        Format::F16 => {
                            bytes.extend(row.iter().flat_map(|&x| f32_to_f16(x).to_le_bytes()));
                        }
                        _ => bytes.extend(row.iter().flat_map(|x| x.to_le_bytes())),
                    }
                }
                bytes.resize((i + 1 - first) * row_bytes, 0);
            }
            let took = self.copy(&buffer, first * row_bytes, &bytes)?;
            ns = ns.zip(took).map(|(ns, took)| ns + took);
        }
        self.note(format!("matrix {index}, {shape}"), buffer.len(), ns);
        Ok(DeviceMatrix { buffer, format, shape })
    }

    fn floats(&mut self, what: &str, values: &[f32]) -> Result<Buffer, CudaError> {
        let buffer = Buffer::new(self.context, size_of_val(values))?;
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let ns = self.copy(&buffer, 0, &bytes)?;
        self.note(what.to_owned(), bytes.len(), ns);
        Ok(buffer)
    }

    /// Copies bytes; returns the device's time by two events, in nanoseconds, to add up over a tensor.
    fn copy(&mut self, to: &Buffer, first: usize, bytes: &[u8]) -> Result<Option<u64>, CudaError> {
        self.start.record(self.stream)?;
        self.stream.upload(to, first, bytes)?;
        self.end.record(self.stream)?;
        self.end.synchronize()?;
        Ok(lasted(self.end.since(&self.start)?))
    }

    fn note(&mut self, what: String, bytes: usize, device_ns: Option<u64>) {
        let direction = TransferDirection::H2D;
        self.done.push(Transfer { what, direction, bytes: bytes as u64, device_ns });
    }
}

/// The driver's milliseconds in nanoseconds, rounded. Negative if the second event was before the
/// first.
pub(super) fn nanos(ms: f32) -> i64 {
    (f64::from(ms) * 1e6).round() as i64
}

/// How long a copy took; `None` if its events are out of order.
pub(super) fn lasted(ms: f32) -> Option<u64> {
    u64::try_from(nanos(ms)).ok()
}

/// The operands of a pass of up to `batch` tokens, and the KV cache.
#[derive(Debug)]
pub(super) struct Operands {
    x: Buffer,
    h: Buffer,
    y: Buffer,
    q: Buffer,
    a: Buffer,
    s: Buffer,
    gate: Buffer,
    up: Buffer,
    logits: Buffer,
    /// What blocks that share a head of attention leave each other.
    pub(super) parts: Buffer,
    /// How many of them are done; zeros between launches.
    pub(super) arrived: Buffer,
    /// `(k, v)` of each layer.
    kv: Vec<(Buffer, Buffer)>,
}

impl Operands {
    pub(super) fn new(
        context: &Arc<Context>,
        stream: &Stream,
        c: &Config,
        batch: usize,
        capacity: usize,
    ) -> Result<Self, CudaError> {
        let floats = |n: usize, width: usize| {
            let bytes = n.saturating_mul(width).saturating_mul(size_of::<f32>());
            let buffer = Buffer::new(context, bytes)?;
            // So that no pass depends on what was there before.
            stream.zero(&buffer)?;
            Ok::<_, CudaError>(buffer)
        };
        let kv_dim = c.kv_dim();
        let kv =
            (0..c.n_layers).map(|_| Ok((floats(capacity, kv_dim)?, floats(capacity, kv_dim)?)));
        Ok(Self {
            x: floats(batch, c.dim)?,
            h: floats(batch, c.dim)?,
            y: floats(batch, c.dim)?,
            q: floats(batch, c.q_dim())?,
            a: floats(batch, c.q_dim())?,
            s: floats(batch, c.n_heads.saturating_mul(capacity))?,
            gate: floats(batch, c.ffn_dim)?,
            up: floats(batch, c.ffn_dim)?,
            logits: floats(1, c.n_vocab)?,
            parts: floats(c.n_heads * MOST_PARTS as usize, c.head_dim + 2)?,
            arrived: floats(1, c.n_heads)?,
            kv: kv.collect::<Result<_, CudaError>>()?,
        })
    }

    /// Makes room for the logits of `outputs` tokens; returns whether they have moved.
    pub(super) fn make_room(
        &mut self,
        context: &Arc<Context>,
        c: &Config,
        outputs: usize,
    ) -> Result<bool, CudaError> {
        let bytes = outputs.saturating_mul(c.n_vocab).saturating_mul(size_of::<f32>());
        if bytes <= self.logits.len() {
            return Ok(false);
        }
        self.logits = Buffer::new(context, bytes)?;
        Ok(true)
    }

    pub(super) fn buffer(&self, operand: Operand) -> Result<&Buffer, CudaError> {
        let layer = |i: usize| {
            let missing = || CudaError::Pass { what: format!("there is no layer {i}") };
            self.kv.get(i).ok_or_else(missing)
        };
        Ok(match operand {
            Operand::X => &self.x,
            Operand::H => &self.h,
            Operand::Y => &self.y,
            Operand::Q => &self.q,
            Operand::A => &self.a,
            Operand::S => &self.s,
            Operand::Gate => &self.gate,
            Operand::Up => &self.up,
            Operand::Logits => &self.logits,
            Operand::K(i) => &layer(i)?.0,
            Operand::V(i) => &layer(i)?.1,
        })
    }
}
