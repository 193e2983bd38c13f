//! The weights of a model: their names in model files, and the shapes that they must have.

use std::cell::Cell;

use brickscope_kernels::{Matrix, QuantType};

use crate::config::{Architecture, Config};
use crate::error::Error;
use crate::gguf::{Gguf, TensorInfo};

/// A weight matrix in the file. `rows` outputs, `cols` inputs.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// How the weights are stored.
    pub kind: QuantType,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Its index among the matrices of the model.
    pub(crate) index: usize,
    /// Where it is in the file.
    info: TensorInfo,
}

impl Tensor {
    /// The matrix, in the bytes of the file that it is from.
    ///
    /// # Panics
    ///
    /// If `gguf` is another file.
    #[inline]
    #[must_use]
    pub fn matrix<'g>(&self, gguf: &'g Gguf) -> Matrix<'g> {
        let bytes = gguf.bytes(&self.info);
        let matrix = match self.info.is_interleaved {
            true => Matrix::interleaved(self.kind, self.rows, self.cols, bytes),
            false => Matrix::new(self.kind, self.rows, self.cols, bytes),
        };
        matrix.expect("the shape was checked against the bytes when the model was opened")
    }

    /// Whether its rows are interleaved: see [`Model::interleave`](crate::Model::interleave).
    #[must_use]
    pub fn is_interleaved(&self) -> bool {
        self.info.is_interleaved
    }

    /// Where it is in the file.
    pub(crate) fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// Marks its rows as interleaved, if they are.
    pub(crate) fn set_interleaved(&mut self, is_interleaved: bool) {
        self.info.is_interleaved |= is_interleaved;
    }

    /// Bytes of the weights.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.info.n_bytes as u64
    }
}

/// The weights of one layer.
#[derive(Debug)]
pub struct Layer {
    pub(crate) attn_norm: Vec<f32>,             // (dim)
    pub(crate) q: Tensor,                       // (q_dim, dim)
    pub(crate) k: Tensor,                       // (kv_dim, dim)
    pub(crate) v: Tensor,                       // (kv_dim, dim)
    pub(crate) q_bias: Option<Vec<f32>>,        // (q_dim)
    pub(crate) k_bias: Option<Vec<f32>>,        // (kv_dim)
    pub(crate) v_bias: Option<Vec<f32>>,        // (kv_dim)
    pub(crate) q_norm: Option<Vec<f32>>,        // (head_dim)
    pub(crate) k_norm: Option<Vec<f32>>,        // (head_dim)
    pub(crate) attn_sub_norm: Option<Vec<f32>>, // (q_dim)
    pub(crate) output: Tensor,                  // (dim, q_dim)
    pub(crate) ffn_norm: Vec<f32>,              // (dim)
    pub(crate) gate: Tensor,                    // (ffn_dim, dim)
    pub(crate) up: Tensor,                      // (ffn_dim, dim)
    pub(crate) ffn_sub_norm: Option<Vec<f32>>,  // (ffn_dim)
    pub(crate) down: Tensor,                    // (dim, ffn_dim)
}

/// All weights of a model.
#[derive(Debug)]
pub struct Weights {
    pub(crate) embedding: Tensor,              // (n_vocab, dim)
    pub(crate) rope_factors: Option<Vec<f32>>, // (n_rot / 2)
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: Vec<f32>, // (dim)
    pub(crate) head: Tensor,          // (n_vocab, dim); the embedding where they are tied
}

impl Layer {
    /// Whether Q, K and V have biases.
    pub(crate) fn biases(&self) -> [bool; 3] {
        [&self.q_bias, &self.k_bias, &self.v_bias].map(Option::is_some)
    }

    /// The matrices, in the order in which a pass reads them.
    pub(crate) fn matrices(&self) -> [&Tensor; 7] {
        [&self.q, &self.k, &self.v, &self.output, &self.gate, &self.up, &self.down]
    }

    fn matrices_mut(&mut self) -> [&mut Tensor; 7] {
        let Self { q, k, v, output, gate, up, down, .. } = self;
        [q, k, v, output, gate, up, down]
    }
}

impl Weights {
    /// Every matrix, in order of its index; a tied head is the embedding again.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &Tensor> {
        let layers = self.layers.iter().flat_map(Layer::matrices);
        std::iter::once(&self.embedding).chain([&self.head]).chain(layers)
    }

    pub(crate) fn matrices_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let layers = self.layers.iter_mut().flat_map(Layer::matrices_mut);
        [&mut self.embedding, &mut self.head].into_iter().chain(layers)
    }

    /// Finds the weights in a model file and checks their shapes against `config`.
    ///
    /// # Errors
    ///
    /// If a tensor is missing, or of a shape or type that doesn't fit.
    pub fn find(gguf: &Gguf, config: &Config) -> Result<Self, Error> {
        let file = File { gguf, n_matrices: Cell::new(0) };
        let &Config { dim, head_dim, ffn_dim, n_vocab, architecture, .. } = config;
        let (q_dim, kv_dim) = (config.q_dim(), config.kv_dim());
        let embedding = file.matrix("token_embd.weight", n_vocab, dim)?;
        // BitNet's head is always the embedding.
        let untied = architecture != Architecture::BitNet;
        let head = match gguf.tensor("output.weight") {
            Some(_) if untied => file.matrix("output.weight", n_vocab, dim)?,
            _ => embedding.clone(),
        };
        let layers = (0..config.n_layers)
            .map(|i| {
                let name = |part: &str| format!("blk.{i}.{part}");
                let matrix = |part: &str, rows, cols| file.matrix(&name(part), rows, cols);
                let vector = |part: &str, len| file.vector(&name(part), len);
                let optional = |part: &str, len| file.optional_vector(&name(part), len);
                file.refuse(&name("attn_output.bias"))?;
                file.refuse(&name("ffn_gate_inp.weight"))?;
                let wants_qk_norm = architecture == Architecture::Qwen3;
                let wants_sub_norm = architecture == Architecture::BitNet;
                Ok(Layer {
                    attn_norm: vector("attn_norm.weight", dim)?,
                    q: matrix("attn_q.weight", q_dim, dim)?,
                    k: matrix("attn_k.weight", kv_dim, dim)?,
                    v: matrix("attn_v.weight", kv_dim, dim)?,
                    q_bias: optional("attn_q.bias", q_dim)?,
                    k_bias: optional("attn_k.bias", kv_dim)?,
                    v_bias: optional("attn_v.bias", kv_dim)?,
                    q_norm: file.vector_if(wants_qk_norm, &name("attn_q_norm.weight"), head_dim)?,
                    k_norm: file.vector_if(wants_qk_norm, &name("attn_k_norm.weight"), head_dim)?,
                    attn_sub_norm: file.vector_if(
                        wants_sub_norm,
                        &name("attn_sub_norm.weight"),
                        q_dim,
                    )?,
                    output: matrix("attn_output.weight", dim, q_dim)?,
                    ffn_norm: vector("ffn_norm.weight", dim)?,
                    gate: matrix("ffn_gate.weight", ffn_dim, dim)?,
                    up: matrix("ffn_up.weight", ffn_dim, dim)?,
                    ffn_sub_norm: file.vector_if(
                        wants_sub_norm,
                        &name("ffn_sub_norm.weight"),
                        ffn_dim,
                    )?,
                    down: matrix("ffn_down.weight", dim, ffn_dim)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self {
            embedding,
            rope_factors: file.optional_vector("rope_freqs.weight", config.n_rot / 2)?,
            layers,
            output_norm: file.vector("output_norm.weight", dim)?,
            head,
        })
    }
}

/// Looks up tensors and reports what is wrong with them.
struct File<'g> {
    gguf: &'g Gguf,
    /// Matrices found so far.
    n_matrices: Cell<usize>,
}

impl File<'_> {
    /// A tensor of just this shape, in GGUF's order of dimensions; ones at the end don't count.
    fn find(&self, name: &str, dims: &[usize]) -> Result<&TensorInfo, Error> {
        let gguf = self.gguf;
        let info = gguf.tensor(name).ok_or_else(|| Error::MissingTensor {
            file: gguf.path.clone(),
            name: name.to_owned(),
        })?;
        let n_dims = info.dims.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
        let wanted = dims.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
        if info.dims[..n_dims] != dims[..wanted] {
            return Err(Error::TensorShape {
                file: gguf.path.clone(),
                name: name.to_owned(),
                at: gguf.range(info).start as u64,
                found: info.dims.clone(),
                expected: dims.to_vec(),
            });
        }
        Ok(info)
    }

    fn kind(&self, info: &TensorInfo) -> Result<QuantType, Error> {
        QuantType::from_ggml(info.kind.id()).ok_or_else(|| Error::TensorKind {
            file: self.gguf.path.clone(),
            name: info.name.clone(),
            at: self.gguf.range(info).start as u64,
            kind: info.kind,
        })
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Tensor, Error> {
        let info = self.find(name, &[cols, rows])?;
        let kind = self.kind(info)?;
        // Checked here once, so that `Tensor::matrix` can't fail later.
        Matrix::new(kind, rows, cols, self.gguf.bytes(info)).map_err(|cause| Error::BadConfig {
            file: self.gguf.path.clone(),
            key: name.to_owned(),
            value: format!("{cols} × {rows}"),
            why: format!("does not work: {cause}"),
            at: self.gguf.range(info).start as u64,
        })?;
        let index = self.n_matrices.replace(self.n_matrices.get() + 1);
        Ok(Tensor { kind, rows, cols, index, info: info.clone() })
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        let info = self.find(name, &[len])?;
        let kind = self.kind(info)?;
        if kind == QuantType::I2_S {
            // Its scale is that of a whole matrix.
            return Err(Error::TensorKind {
                file: self.gguf.path.clone(),
                name: name.to_owned(),
                at: self.gguf.range(info).start as u64,
                kind: info.kind,
            });
        }
        let mut values = vec![0.0; len];
        brickscope_kernels::quant::dequantize_row(kind, self.gguf.bytes(info), &mut values);
        Ok(values)
    }

    fn optional_vector(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        self.gguf.tensor(name).map(|_| self.vector(name, len)).transpose()
    }

    /// A vector that the architecture has, or must not have.
    fn vector_if(&self, has: bool, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        if has {
            return self.vector(name, len).map(Some);
        }
        self.refuse(name)?;
        Ok(None)
    }

    /// An error if the tensor is there: ignoring one that changes the result would be a silent fault.
    fn refuse(&self, name: &str) -> Result<(), Error> {
        let Some(info) = self.gguf.tensor(name) else { return Ok(()) };
        Err(Error::BadConfig {
            file: self.gguf.path.clone(),
            key: name.to_owned(),
            value: "a tensor of the file".to_owned(),
            why: "this architecture is not computed with here".to_owned(),
            at: self.gguf.range(info).start as u64,
        })
    }
}
