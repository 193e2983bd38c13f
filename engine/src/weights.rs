//! The weights of a model: their names in model files, and the shapes that they must have.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

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
    /// What its products are multiplied by, from a tensor of one number beside it.
    pub(crate) scale: Option<f32>,
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
    pub(crate) output_bias: Option<Vec<f32>>,   // (dim)
    pub(crate) ffn_norm: Vec<f32>,              // (dim)
    pub(crate) gate: Tensor,                    // (ffn_dim, dim)
    pub(crate) gate_bias: Option<Vec<f32>>,     // (ffn_dim)
    pub(crate) up: Tensor,                      // (ffn_dim, dim)
    pub(crate) up_bias: Option<Vec<f32>>,       // (ffn_dim)
    pub(crate) ffn_sub_norm: Option<Vec<f32>>,  // (ffn_dim)
    pub(crate) down: Tensor,                    // (dim, ffn_dim)
    pub(crate) down_bias: Option<Vec<f32>>,     // (dim)
}

/// All weights of a model.
#[derive(Debug)]
pub struct Weights {
    pub(crate) embedding: Tensor,              // (n_vocab, dim)
    pub(crate) rope_factors: Option<Vec<f32>>, // (n_rot / 2)
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: Vec<f32>,       // (dim)
    pub(crate) head: Tensor,                // (n_vocab, dim); the embedding where they are tied
    pub(crate) head_bias: Option<Vec<f32>>, // (n_vocab)
}

impl Layer {
    /// Which of the matrices have biases, in the order of [`matrices`](Self::matrices).
    pub(crate) fn biases(&self) -> [bool; 7] {
        let attention = [&self.q_bias, &self.k_bias, &self.v_bias, &self.output_bias];
        let [q, k, v, output] = attention.map(Option::is_some);
        let [gate, up, down] =
            [&self.gate_bias, &self.up_bias, &self.down_bias].map(Option::is_some);
        [q, k, v, output, gate, up, down]
    }

    /// Which of the matrices have scales, in the same order.
    pub(crate) fn scales(&self) -> [bool; 7] {
        self.matrices().map(|w| w.scale.is_some())
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
    /// Which tensors an architecture has is what llama.cpp's loader of it reads (`load_arch_tensors` in its
    /// `src/models`), or bitnet.cpp's for `bitnet-b1.58`.
    ///
    /// # Errors
    ///
    /// If a tensor is missing, or of a shape or type that doesn't fit, or if there is one that the engine doesn't
    /// compute with.
    pub fn find(gguf: &Gguf, config: &Config) -> Result<Self, Error> {
        let file = File { gguf, n_matrices: Cell::new(0), used: RefCell::default() };
        let &Config { dim, head_dim, ffn_dim, n_vocab, architecture, .. } = config;
        let (q_dim, kv_dim) = (config.q_dim(), config.kv_dim());
        let has = architecture.tensors();
        let embedding = file.matrix("token_embd.weight", n_vocab, dim)?;
        let head = match gguf.tensor("output.weight") {
            Some(_) if has.head => file.matrix("output.weight", n_vocab, dim)?,
            _ => embedding.clone(),
        };
        let layers = (0..config.n_layers)
            .map(|i| {
                let name = |part: &str| format!("blk.{i}.{part}");
                let matrix = |part: &str, rows, cols| {
                    let mut w = file.matrix(&name(&format!("{part}.weight")), rows, cols)?;
                    let scale = name(&format!("{part}.scale"));
                    w.scale = file.vector_if_there(has.scales, &scale, 1)?.map(|scale| scale[0]);
                    Ok::<_, Error>(w)
                };
                let bias = |has, part: &str, len| {
                    file.vector_if_there(has, &name(&format!("{part}.bias")), len)
                };
                let norm = |part: &str, len| file.vector(&name(&format!("{part}.weight")), len);
                let norm_if = |has: bool, part: &str, len| has.then(|| norm(part, len)).transpose();
                Ok(Layer {
                    attn_norm: norm("attn_norm", dim)?,
                    q: matrix("attn_q", q_dim, dim)?,
                    k: matrix("attn_k", kv_dim, dim)?,
                    v: matrix("attn_v", kv_dim, dim)?,
                    q_bias: bias(true, "attn_q", q_dim)?,
                    k_bias: bias(true, "attn_k", kv_dim)?,
                    v_bias: bias(true, "attn_v", kv_dim)?,
                    q_norm: norm_if(has.qk_norms, "attn_q_norm", head_dim)?,
                    k_norm: norm_if(has.qk_norms, "attn_k_norm", head_dim)?,
                    attn_sub_norm: norm_if(has.sub_norms, "attn_sub_norm", q_dim)?,
                    output: matrix("attn_output", dim, q_dim)?,
                    output_bias: bias(has.output_bias, "attn_output", dim)?,
                    ffn_norm: norm("ffn_norm", dim)?,
                    gate: matrix("ffn_gate", ffn_dim, dim)?,
                    gate_bias: bias(has.ffn_biases, "ffn_gate", ffn_dim)?,
                    up: matrix("ffn_up", ffn_dim, dim)?,
                    up_bias: bias(has.ffn_biases, "ffn_up", ffn_dim)?,
                    ffn_sub_norm: norm_if(has.sub_norms, "ffn_sub_norm", ffn_dim)?,
                    down: matrix("ffn_down", dim, ffn_dim)?,
                    down_bias: bias(has.ffn_biases, "ffn_down", dim)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let n_factors = config.n_rot / 2;
        let weights = Self {
            embedding,
            rope_factors: file.vector_if_there(has.rope_factors, "rope_freqs.weight", n_factors)?,
            layers,
            output_norm: file.vector("output_norm.weight", dim)?,
            head,
            head_bias: file.vector_if_there(has.head_bias, "output.bias", n_vocab)?,
        };
        file.refuse_unused(architecture)?;
        Ok(weights)
    }
}

/// Looks up tensors and reports what is wrong with them.
struct File<'g> {
    gguf: &'g Gguf,
    /// Matrices found so far.
    n_matrices: Cell<usize>,
    /// Names of the tensors found so far.
    used: RefCell<HashSet<&'g str>>,
}

impl<'g> File<'g> {
    /// A tensor of just this shape, in GGUF's order of dimensions; ones at the end don't count.
    fn find(&self, name: &str, dims: &[usize]) -> Result<&'g TensorInfo, Error> {
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
        self.used.borrow_mut().insert(&info.name);
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
        Ok(Tensor { kind, rows, cols, index, scale: None, info: info.clone() })
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

    /// A vector that files of the architecture may have. If `may` says that they may not, it stays unused.
    fn vector_if_there(
        &self,
        may: bool,
        name: &str,
        len: usize,
    ) -> Result<Option<Vec<f32>>, Error> {
        let is_there = may && self.gguf.tensor(name).is_some();
        is_there.then(|| self.vector(name, len)).transpose()
    }

    /// An error if there are tensors that nothing has looked up. Each may change the result: a bias, a scale, an
    /// expert, another head. To ignore one would be a silent fault, so there is no list of exceptions. llama.cpp
    /// has none either for these architectures: it counts the tensors that it has used, and refuses a file with more.
    fn refuse_unused(&self, architecture: Architecture) -> Result<(), Error> {
        let used = self.used.borrow();
        let unused: Vec<_> =
            self.gguf.tensors.iter().filter(|info| !used.contains(&info.name[..])).collect();
        let Some(first) = unused.first() else { return Ok(()) };
        Err(Error::UnusedTensors {
            file: self.gguf.path.clone(),
            architecture: architecture.name(),
            count: unused.len(),
            names: unused.iter().take(3).map(|info| info.name.clone()).collect(),
            at: self.gguf.range(first).start as u64,
        })
    }
}
