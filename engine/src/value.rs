//! The values of a forward pass: what each kernel puts out, and what attention reads from the KV cache.

use brickscope::BrickId;

use crate::routines::Routine;
use crate::weights::Tensor;

/// A value of the forward pass. `n` tokens each; shapes are row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// `(n, dim)`, the tokens' rows of the embedding.
    Embedding,
    /// `(n, n_rot / 2)`, the cosines of RoPE's angles.
    Cos,
    /// `(n, n_rot / 2)`, their sines.
    Sin,
    /// `(n, dim)`, the input of the attention block.
    AttentionNorm,
    /// `(n, q_dim)`, the projection alone.
    Q,
    /// `(n, kv_dim)`, the projection alone.
    K,
    /// `(n, kv_dim)`, the projection alone.
    V,
    /// `(n, q_dim)`, times the scale of its matrix.
    ScaledQ,
    /// `(n, kv_dim)`, times the scale of its matrix.
    ScaledK,
    /// `(n, kv_dim)`, times the scale of its matrix.
    ScaledV,
    /// `(n, q_dim)`, with its bias.
    BiasedQ,
    /// `(n, kv_dim)`, with its bias.
    BiasedK,
    /// `(n, kv_dim)`, with its bias.
    BiasedV,
    /// `(n, q_dim)`, normalised head by head.
    NormedQ,
    /// `(n, kv_dim)`, normalised head by head.
    NormedK,
    /// `(n, q_dim)`, rotated.
    RotatedQ,
    /// `(n, kv_dim)`, rotated: the new rows of the KV cache. The CPU writes them there next; a device already has.
    RotatedK,
    /// `(position + n, kv_dim)`, all keys that attention is about to read. One row per position, whatever the
    /// layout of the KV cache.
    CachedKeys,
    /// `(n, n_heads, position + n)`. Token `t` has `position + t + 1` scores; those after them have no meaning.
    Scores,
    /// As the scores.
    Probabilities,
    /// `(position + n, kv_dim)`, all values that attention is about to read. One row per position, too.
    CachedValues,
    /// `(n, q_dim)`, the values weighted by the probabilities.
    Attention,
    /// `(n, q_dim)`, the input of the output projection, where it has a norm of its own.
    AttentionSubNorm,
    /// `(n, dim)`, the output projection alone.
    Output,
    /// `(n, dim)`, times the scale of its matrix.
    ScaledOutput,
    /// `(n, dim)`, with its bias.
    BiasedOutput,
    /// `(n, dim)`, the residual stream after attention.
    AttentionResidual,
    /// `(n, dim)`, the input of the feed-forward block.
    FfnNorm,
    /// `(n, ffn_dim)`, the projection alone.
    Gate,
    /// `(n, ffn_dim)`, times the scale of its matrix.
    ScaledGate,
    /// `(n, ffn_dim)`, with its bias.
    BiasedGate,
    /// `(n, ffn_dim)`, the projection alone.
    Up,
    /// `(n, ffn_dim)`, times the scale of its matrix.
    ScaledUp,
    /// `(n, ffn_dim)`, with its bias.
    BiasedUp,
    /// `(n, ffn_dim)`, `silu(gate) · up` or `max(gate, 0)² · up`.
    Activation,
    /// `(n, ffn_dim)`, the input of the down projection, where it has a norm of its own.
    FfnSubNorm,
    /// `(n, dim)`, the down projection alone.
    Down,
    /// `(n, dim)`, times the scale of its matrix.
    ScaledDown,
    /// `(n, dim)`, with its bias.
    BiasedDown,
    /// `(n, dim)`, the residual stream after the layer.
    FfnResidual,
    /// `(outputs, dim)`, the input of the head.
    OutputNorm,
    /// `(outputs, n_vocab)`, the head alone.
    Logits,
    /// `(outputs, n_vocab)`, with the head's bias.
    BiasedLogits,
}

impl Value {
    /// The brick that makes it, or for the KV cache the one that reads it.
    #[must_use]
    pub const fn brick(self) -> BrickId {
        match self {
            Self::Embedding => BrickId::Embedding,
            Self::Cos | Self::Sin | Self::RotatedQ | Self::RotatedK => BrickId::RopeEmbedding,
            Self::Q
            | Self::K
            | Self::V
            | Self::ScaledQ
            | Self::ScaledK
            | Self::ScaledV
            | Self::BiasedQ
            | Self::BiasedK
            | Self::BiasedV => BrickId::QkvProjection,
            Self::AttentionNorm
            | Self::NormedQ
            | Self::NormedK
            | Self::AttentionSubNorm
            | Self::FfnNorm
            | Self::FfnSubNorm
            | Self::OutputNorm => BrickId::RmsNorm,
            Self::CachedKeys | Self::Scores => BrickId::AttentionScore,
            Self::Probabilities => BrickId::AttentionSoftmax,
            Self::CachedValues | Self::Attention => BrickId::AttentionOutput,
            Self::Output | Self::ScaledOutput | Self::BiasedOutput | Self::AttentionResidual => {
                BrickId::OutputProjection
            }
            Self::Gate | Self::ScaledGate | Self::BiasedGate => BrickId::GateProjection,
            Self::Up | Self::ScaledUp | Self::BiasedUp => BrickId::UpProjection,
            Self::Activation => BrickId::Activation,
            Self::Down | Self::ScaledDown | Self::BiasedDown | Self::FfnResidual => {
                BrickId::DownProjection
            }
            Self::Logits | Self::BiasedLogits => BrickId::LmHead,
        }
    }

    /// A readable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Cos => "cosines",
            Self::Sin => "sines",
            Self::AttentionNorm => "attention norm",
            Self::Q => "Q",
            Self::K => "K",
            Self::V => "V",
            Self::ScaledQ => "Q · scale",
            Self::ScaledK => "K · scale",
            Self::ScaledV => "V · scale",
            Self::BiasedQ => "Q + bias",
            Self::BiasedK => "K + bias",
            Self::BiasedV => "V + bias",
            Self::NormedQ => "Q norm",
            Self::NormedK => "K norm",
            Self::RotatedQ => "rotated Q",
            Self::RotatedK => "rotated K",
            Self::CachedKeys => "keys read from the KV cache",
            Self::Scores => "scores",
            Self::Probabilities => "probabilities",
            Self::CachedValues => "values read from the KV cache",
            Self::Attention => "attention",
            Self::AttentionSubNorm => "attention sub-norm",
            Self::Output => "output projection",
            Self::ScaledOutput => "output projection · scale",
            Self::BiasedOutput => "output projection + bias",
            Self::AttentionResidual => "residual after attention",
            Self::FfnNorm => "FFN norm",
            Self::Gate => "gate",
            Self::ScaledGate => "gate · scale",
            Self::BiasedGate => "gate + bias",
            Self::Up => "up",
            Self::ScaledUp => "up · scale",
            Self::BiasedUp => "up + bias",
            Self::Activation => "activation",
            Self::FfnSubNorm => "FFN sub-norm",
            Self::Down => "down projection",
            Self::ScaledDown => "down projection · scale",
            Self::BiasedDown => "down projection + bias",
            Self::FfnResidual => "residual after the FFN",
            Self::OutputNorm => "output norm",
            Self::Logits => "logits",
            Self::BiasedLogits => "logits + bias",
        }
    }

    /// The value that a scale of the matrix makes of this one, if it is a projection.
    pub(crate) const fn scaled(self) -> Option<Self> {
        match self {
            Self::Q => Some(Self::ScaledQ),
            Self::K => Some(Self::ScaledK),
            Self::V => Some(Self::ScaledV),
            Self::Output => Some(Self::ScaledOutput),
            Self::Gate => Some(Self::ScaledGate),
            Self::Up => Some(Self::ScaledUp),
            Self::Down => Some(Self::ScaledDown),
            _ => None,
        }
    }

    /// The value that a bias makes of this one, if it is a projection.
    pub(crate) const fn biased(self) -> Option<Self> {
        match self {
            Self::Q => Some(Self::BiasedQ),
            Self::K => Some(Self::BiasedK),
            Self::V => Some(Self::BiasedV),
            Self::Output => Some(Self::BiasedOutput),
            Self::Gate => Some(Self::BiasedGate),
            Self::Up => Some(Self::BiasedUp),
            Self::Down => Some(Self::BiasedDown),
            Self::Logits => Some(Self::BiasedLogits),
            _ => None,
        }
    }

    /// Whether it is part of the KV cache, with one row for each position so far.
    #[must_use]
    pub const fn is_cache(self) -> bool {
        matches!(self, Self::CachedKeys | Self::CachedValues)
    }
}

/// The operation that made a value, with those of its inputs that haven't been overwritten: what a bound on its
/// rounding errors needs.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// Rounds at most once, or runs the same code everywhere: must be equal to the bit.
    Exact,
    /// `X·Wᵀ`.
    Matmul {
        /// The weights.
        w: &'a Tensor,
        /// `(n, w.cols)`.
        x: &'a [f32],
    },
    /// An RMS norm of rows of this width.
    RmsNorm {
        /// Elements that are normalised together.
        width: usize,
    },
    /// Rotated pairs.
    Rope,
    /// `q·k / √head_dim`.
    Scores {
        /// `(n, q_dim)`.
        q: &'a [f32],
        /// `(position + n, kv_dim)`.
        keys: &'a [f32],
    },
    /// A softmax over what a token sees, in place.
    Softmax,
    /// `Σ p·v`.
    WeightedSum {
        /// `(n, n_heads, position + n)`.
        p: &'a [f32],
        /// `(position + n, kv_dim)`.
        values: &'a [f32],
    },
    /// `silu(gate) · up`, in place of the gate.
    SiluMul {
        /// `(n, ffn_dim)`.
        up: &'a [f32],
    },
    /// `max(gate, 0)² · up`, in place of the gate.
    ReluSquaredMul,
}

/// Which value of a run it is, and what made it.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The position of the pass's first token.
    pub position: usize,
    /// Tokens in the pass.
    pub n_tokens: usize,
    /// The transformer layer; `None` outside of layers.
    pub layer: Option<usize>,
    /// Which value.
    pub value: Value,
    /// The kernel that made it, if one did.
    pub routine: Option<Routine>,
    /// The operation that made it.
    pub operation: Operation<'a>,
}
