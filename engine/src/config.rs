//! A model's shape, read from its file and checked before anything is allocated from it.

use std::ops::RangeInclusive;

use brickscope_kernels::RopePairs;

use crate::error::Error;
use crate::gguf::{Gguf, Value};

/// What is added to a mean square in a norm. Models have 1e-6 to 1e-5.
const NORM_EPSILONS: RangeInclusive<f32> = 0.0..=1.0;
/// Bases of RoPE's frequencies. Models have 1e4 to 4e9.
const ROPE_BASES: RangeInclusive<f32> = 1.0..=1e15;
/// Factors by which RoPE's angles are divided. Models have 1 to 64.
const ROPE_FACTORS: RangeInclusive<f32> = 1e-3..=1e6;

/// The model families that the engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 1 to 3, Mistral, and others of their shape.
    Llama,
    /// Qwen 2: biases on Q, K and V.
    Qwen2,
    /// Qwen 3: Q and K are normalised head by head.
    Qwen3,
    /// BitNet b1.58 as 1bitLLM's models have it: ternary weights, norms before the output and down projections.
    BitNet,
    /// Microsoft's BitNet b1.58 2B4T: as BitNet, with a gate of squared ReLU.
    BitNetB158,
}

/// The function in the gate of the feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `g / (1 + exp(-g))`.
    Silu,
    /// `max(g, 0)²`.
    ReluSquared,
}

/// Which tensors the files of an architecture may or must have, beside those that all have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensors {
    /// A head of its own may be there; otherwise it is always the embedding.
    pub(crate) head: bool,
    /// Norms of each head of Q and K.
    pub(crate) qk_norms: bool,
    /// Norms before the output and down projections.
    pub(crate) sub_norms: bool,
    /// A scale of one number for each matrix may be there.
    pub(crate) scales: bool,
    /// A bias of the output projection may be there.
    pub(crate) output_bias: bool,
    /// Biases of gate, up and down may be there.
    pub(crate) ffn_biases: bool,
    /// A bias of the head may be there.
    pub(crate) head_bias: bool,
    /// Factors of RoPE's frequencies may be there.
    pub(crate) rope_factors: bool,
}

impl Architecture {
    /// Every architecture.
    pub const ALL: [Self; 5] =
        [Self::Llama, Self::Qwen2, Self::Qwen3, Self::BitNet, Self::BitNetB158];

    /// The name in model files (`general.architecture`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::BitNet => "bitnet",
            Self::BitNetB158 => "bitnet-b1.58",
        }
    }

    /// Which elements of a head RoPE rotates together.
    #[must_use]
    pub const fn rope_pairs(self) -> RopePairs {
        match self {
            // The converter has permuted the rows of Q and K, so that neighbours are pairs.
            Self::Llama => RopePairs::Norm,
            Self::Qwen2 | Self::Qwen3 | Self::BitNet | Self::BitNetB158 => RopePairs::Neox,
        }
    }

    /// The tensors of its files, by the loaders of llama.cpp and, for `bitnet-b1.58`, of bitnet.cpp.
    pub(crate) const fn tensors(self) -> Tensors {
        let none = Tensors {
            head: false,
            qk_norms: false,
            sub_norms: false,
            scales: false,
            output_bias: false,
            ffn_biases: false,
            head_bias: false,
            rope_factors: false,
        };
        match self {
            Self::Llama => Tensors {
                head: true,
                output_bias: true,
                ffn_biases: true,
                rope_factors: true,
                ..none
            },
            Self::Qwen2 => Tensors { head: true, head_bias: true, ..none },
            Self::Qwen3 => Tensors { head: true, qk_norms: true, ..none },
            Self::BitNet => Tensors { sub_norms: true, scales: true, ..none },
            // bitnet.cpp also loads `output.weight` and the biases of the feed-forward network, and then computes
            // without them. Whoever wrote such tensors meant something else, so they are refused.
            Self::BitNetB158 => {
                Tensors { sub_norms: true, output_bias: true, rope_factors: true, ..none }
            }
        }
    }
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// Transformer layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; each serves `n_heads / n_kv_heads` query heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward network.
    pub ffn_dim: usize,
    /// Tokens of the vocabulary.
    pub n_vocab: usize,
    /// The longest context that the model was made for, in tokens.
    pub context_length: usize,
    /// Added to the mean square in RMS norms.
    pub norm_eps: f32,
    /// Base of RoPE's frequencies.
    pub rope_base: f32,
    /// Elements of a head that RoPE rotates.
    pub n_rot: usize,
    /// Factor on RoPE's angles: the inverse of a linear scaling factor.
    pub rope_scale: f32,
    /// The function in the gate of the feed-forward network.
    pub activation: Activation,
}

/// Refuses files in the same format that go with a model.
pub(crate) fn is_a_model(gguf: &Gguf) -> Result<(), Error> {
    let meta = &gguf.metadata;
    let text = |key: &str| match meta.get(key) {
        Some(Value::String(text)) => text.as_str(),
        _ => "",
    };
    let is_lora = gguf.tensors.iter().any(|tensor| tensor.name.ends_with(".lora_a"));
    let adapter = if is_lora { "lora" } else { text("adapter.type") };
    let what = match (text("general.type"), adapter, text("general.architecture")) {
        ("adapter", "lora" | "", _) | (_, "lora", _) => {
            "a LoRA adapter, which changes the weights of a model and is none itself: name the model that it is for"
        }
        ("adapter", ..) => {
            "an adapter, which goes with a model and is none itself: name the model that it is for"
        }
        ("mmproj", ..) | (.., "clip") => {
            "a projector of pictures or sound, which goes with a model and is none itself: name the model"
        }
        ("imatrix", ..) | (.., "imatrix") => {
            "an importance matrix, which a model is quantised by and is none itself: name the model"
        }
        _ => return Ok(()),
    };
    Err(Error::NoModel { file: gguf.path.clone(), what })
}

impl Config {
    /// Reads the shape from a model file.
    ///
    /// # Errors
    ///
    /// If a key is missing or of the wrong type, if the architecture or one of its features isn't supported, or if
    /// the numbers contradict each other.
    pub fn read(gguf: &Gguf) -> Result<Self, Error> {
        is_a_model(gguf)?;
        let meta = &gguf.metadata;
        let file = || gguf.path.clone();
        let name = meta.str("general.architecture")?;
        let architecture = Architecture::ALL
            .into_iter()
            .find(|architecture| architecture.name() == name)
            .ok_or_else(|| Error::UnknownArchitecture {
                file: file(),
                name: name.to_owned(),
                at: meta.at("general.architecture"),
            })?;
        let key = |suffix: &str| format!("{name}.{suffix}");
        let bad = |suffix: &str, value: String, why: String| Error::BadConfig {
            file: file(),
            key: key(suffix),
            value,
            why,
            at: meta.at(&key(suffix)),
        };

        let positive = |suffix: &str| {
            let value = meta.usize(&key(suffix))?;
            if value == 0 {
                return Err(bad(suffix, value.to_string(), "must be at least 1".to_owned()));
            }
            Ok(value)
        };
        // NaN is in no range.
        let number = |suffix: &str, range: RangeInclusive<f32>| {
            let Some(value) = meta.opt_f32(&key(suffix))? else { return Ok(None) };
            if !range.contains(&value) {
                let why = format!("must be from {} to {}", range.start(), range.end());
                return Err(bad(suffix, value.to_string(), why));
            }
            Ok(Some(value))
        };
        // A view shows it.
        meta.opt_str("general.name")?;
        if meta.opt_usize(&key("vocab_size"))?.is_some() {
            positive("vocab_size")?;
        }
        let n_layers = positive("block_count")?;
        // Layers are numbered with 16 bits in profiles.
        if n_layers >= usize::from(u16::MAX) {
            return Err(bad(
                "block_count",
                n_layers.to_string(),
                "is more than any model has".to_owned(),
            ));
        }
        let dim = positive("embedding_length")?;
        let n_heads = positive("attention.head_count")?;
        let n_kv_heads = match meta.opt_usize(&key("attention.head_count_kv"))? {
            None => n_heads,
            Some(n) if n > 0 && n_heads.is_multiple_of(n) => n,
            Some(n) => {
                let why = format!("must divide the {n_heads} query heads");
                return Err(bad("attention.head_count_kv", n.to_string(), why));
            }
        };
        let head_dim = match meta.opt_usize(&key("attention.key_length"))? {
            Some(n) if n > 0 => n,
            Some(n) => {
                let why = "must be at least 1".to_owned();
                return Err(bad("attention.key_length", n.to_string(), why));
            }
            None if dim.is_multiple_of(n_heads) => dim / n_heads,
            None => {
                let why = format!("must divide the width, {dim}");
                return Err(bad("attention.head_count", n_heads.to_string(), why));
            }
        };
        // All heads together are a row of a matrix; no tensor has rows beyond this.
        if (n_heads as u64).checked_mul(head_dim as u64).is_none_or(|q_dim| q_dim > 1 << 31) {
            let why = format!("times a head of {head_dim} is more than any model has");
            return Err(bad("attention.head_count", n_heads.to_string(), why));
        }
        if let Some(n) = meta.opt_usize(&key("attention.value_length"))?
            && n != head_dim
        {
            let why = format!("differs from the key length, {head_dim}, which is not supported");
            return Err(bad("attention.value_length", n.to_string(), why));
        }
        let n_rot = meta.opt_usize(&key("rope.dimension_count"))?.unwrap_or(head_dim);
        if n_rot == 0 || !n_rot.is_multiple_of(2) || n_rot > head_dim {
            let why = format!("must be even and at most the head size, {head_dim}");
            return Err(bad("rope.dimension_count", n_rot.to_string(), why));
        }
        let rope_base = number("rope.freq_base", ROPE_BASES)?.unwrap_or(10_000.0);
        let norm_eps = "attention.layer_norm_rms_epsilon";
        meta.f32(&key(norm_eps))?;
        let norm_eps = number(norm_eps, NORM_EPSILONS)?.unwrap_or_default();
        if let Some(experts) = meta.opt_usize(&key("expert_count"))?
            && experts > 0
        {
            let why = "mixtures of experts are not supported".to_owned();
            return Err(bad("expert_count", experts.to_string(), why));
        }
        let rope_scale = match meta.opt_str(&key("rope.scaling.type"))? {
            None | Some("none" | "linear") => {
                // As in llama.cpp, 0 means that there is none.
                let scale = |name: &str| match meta.f32(&key(name)) {
                    Ok(0.0) => Ok(None),
                    _ => number(name, ROPE_FACTORS),
                };
                let older = scale("rope.scale_linear")?;
                let factor = scale("rope.scaling.factor")?.or(older).unwrap_or(1.0);
                // With `none`, a factor in the file doesn't apply.
                let none = meta.opt_str(&key("rope.scaling.type"))? == Some("none");
                if none { 1.0 } else { 1.0 / factor }
            }
            Some(kind) => {
                let why = "is a scaling that is not supported".to_owned();
                return Err(bad("rope.scaling.type", format!("`{}`", kind.escape_debug()), why));
            }
        };
        let activation = match architecture {
            Architecture::Llama | Architecture::Qwen2 | Architecture::Qwen3 => Activation::Silu,
            // The same key as in llama.cpp. Older files of either function don't have it.
            Architecture::BitNet => match meta.opt_str(&key("hidden_activation"))? {
                None | Some("silu" | "swish" | "swiglu") => Activation::Silu,
                Some("relu2") => Activation::ReluSquared,
                Some(name) => {
                    let why = "is a function that is not supported".to_owned();
                    return Err(bad(
                        "hidden_activation",
                        format!("`{}`", name.escape_debug()),
                        why,
                    ));
                }
            },
            Architecture::BitNetB158 => Activation::ReluSquared,
        };
        Ok(Self {
            architecture,
            n_layers,
            dim,
            n_heads,
            n_kv_heads,
            head_dim,
            ffn_dim: positive("feed_forward_length")?,
            // By the embedding table, against which the other weights are checked.
            n_vocab: gguf.tensor("token_embd.weight").map_or(0, |table| table.n_rows()),
            context_length: positive("context_length")?,
            norm_eps,
            rope_base,
            n_rot,
            rope_scale,
            activation,
        })
    }

    /// Elements of all query heads of a token.
    #[must_use]
    pub fn q_dim(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of all key heads of a token; as many as of all value heads.
    #[must_use]
    pub fn kv_dim(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }
}
