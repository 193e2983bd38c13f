//! Bricks: the kinds of operations in a forward pass, their categories, and how their times are obtained.
//!
//! A *brick* is a kind of operation in a forward pass. Fifteen are well known ([`BrickId`]); an
//! engine may add any number of its own by name. Names, order and numbers of the well-known ones are
//! fixed, since profiles and receipts contain them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A well-known kind of operation in the forward pass of a transformer.
///
/// The number of a variant is its index in [`BrickId::ALL`] and in every per-brick array.
///
/// ```
/// use brickscope::{BrickCategory, BrickId};
///
/// assert_eq!(BrickId::RmsNorm.name(), "RmsNorm");
/// assert_eq!(BrickId::RmsNorm.category(), BrickCategory::Norm);
/// assert_eq!(BrickId::from_str("RmsNorm"), Some(BrickId::RmsNorm));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum BrickId {
    /// Root-mean-square normalisation.
    RmsNorm = 0,
    /// Layer normalisation.
    LayerNorm = 1,
    /// The Q, K and V projections, fused or separate.
    QkvProjection = 2,
    /// Rotary position embedding of Q and K.
    RopeEmbedding = 3,
    /// Attention scores, Q · Kᵀ.
    AttentionScore = 4,
    /// Softmax over the attention scores.
    AttentionSoftmax = 5,
    /// The values weighted by the scores.
    AttentionOutput = 6,
    /// The projection after attention.
    OutputProjection = 7,
    /// The gate projection of a gated feed-forward network.
    GateProjection = 8,
    /// The up projection.
    UpProjection = 9,
    /// The feed-forward activation: SiLU, GELU or ReLU².
    Activation = 10,
    /// The down projection.
    DownProjection = 11,
    /// The token embedding lookup.
    Embedding = 12,
    /// The language model head, which computes the logits.
    LmHead = 13,
    /// Choosing the next token from the logits.
    Sampling = 14,
}

impl BrickId {
    /// How many well-known bricks there are.
    pub const COUNT: usize = 15;

    /// Every brick, in order of its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::RmsNorm,
        Self::LayerNorm,
        Self::QkvProjection,
        Self::RopeEmbedding,
        Self::AttentionScore,
        Self::AttentionSoftmax,
        Self::AttentionOutput,
        Self::OutputProjection,
        Self::GateProjection,
        Self::UpProjection,
        Self::Activation,
        Self::DownProjection,
        Self::Embedding,
        Self::LmHead,
        Self::Sampling,
    ];

    /// The name in reports, files and [`BrickId::from_str`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RmsNorm => "RmsNorm",
            Self::LayerNorm => "LayerNorm",
            Self::QkvProjection => "QkvProjection",
            Self::RopeEmbedding => "RopeEmbedding",
            Self::AttentionScore => "AttentionScore",
            Self::AttentionSoftmax => "AttentionSoftmax",
            Self::AttentionOutput => "AttentionOutput",
            Self::OutputProjection => "OutputProjection",
            Self::GateProjection => "GateProjection",
            Self::UpProjection => "UpProjection",
            Self::Activation => "Activation",
            Self::DownProjection => "DownProjection",
            Self::Embedding => "Embedding",
            Self::LmHead => "LmHead",
            Self::Sampling => "Sampling",
        }
    }

    /// The group that this brick is counted in.
    #[must_use]
    pub const fn category(self) -> BrickCategory {
        match self {
            Self::RmsNorm | Self::LayerNorm => BrickCategory::Norm,
            Self::QkvProjection
            | Self::RopeEmbedding
            | Self::AttentionScore
            | Self::AttentionSoftmax
            | Self::AttentionOutput
            | Self::OutputProjection => BrickCategory::Attention,
            Self::GateProjection | Self::UpProjection | Self::Activation | Self::DownProjection => {
                BrickCategory::Ffn
            }
            Self::Embedding | Self::LmHead | Self::Sampling => BrickCategory::Other,
        }
    }

    /// The brick of this name, or of one of the short names that engines use for it (`Qkv`,
    /// `Rope`, `Softmax`, `OutProj`, `Gate`, `Up`, `SiLU`, `Down`, `Embed`, `Head`, `Sample`, …).
    ///
    /// An inherent function that returns an `Option`, as in the predecessor, so that existing callers
    /// compile unchanged.
    #[expect(clippy::should_implement_trait, reason = "the signature that existing callers use")]
    #[must_use]
    pub fn from_str(name: &str) -> Option<Self> {
        Some(match name {
            "Qkv" => Self::QkvProjection,
            "Rope" | "RoPE" => Self::RopeEmbedding,
            "Softmax" => Self::AttentionSoftmax,
            "OutProj" => Self::OutputProjection,
            "Gate" => Self::GateProjection,
            "Up" => Self::UpProjection,
            "SiLU" | "GELU" | "ReLU" => Self::Activation,
            "Down" => Self::DownProjection,
            "Embed" => Self::Embedding,
            "Head" => Self::LmHead,
            "Sample" => Self::Sampling,
            _ => return Self::ALL.into_iter().find(|brick| brick.name() == name),
        })
    }
}

impl fmt::Display for BrickId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A group of bricks.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[repr(u8)]
pub enum BrickCategory {
    /// Normalisation.
    Norm = 0,
    /// Everything from the QKV projection to the output projection.
    Attention = 1,
    /// The feed-forward network.
    Ffn = 2,
    /// Embedding, head, sampling, and every brick that isn't well known.
    #[default]
    Other = 3,
}

impl BrickCategory {
    /// How many categories there are.
    pub const COUNT: usize = 4;

    /// Every category, in order of its number.
    pub const ALL: [Self; Self::COUNT] = [Self::Norm, Self::Attention, Self::Ffn, Self::Other];

    /// The name in reports and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Norm => "Norm",
            Self::Attention => "Attention",
            Self::Ffn => "FFN",
            Self::Other => "Other",
        }
    }
}

impl fmt::Display for BrickCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Processing the prompt, many tokens at a time.
    Prefill,
    /// Generating the answer, one token at a time.
    Decode,
    /// Encoding a text or a sound, for embeddings or for a decoder: nothing is generated, and nothing is kept in a KV cache.
    Encode,
    /// A step of training: forward, backward and the optimizer. Only files of other programs have it.
    Training,
}

impl Phase {
    /// All phases, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Prefill, Self::Decode, Self::Encode, Self::Training];

    /// All phases, what a user waits for first.
    pub const SHOWN: [Self; 4] = [Self::Decode, Self::Prefill, Self::Encode, Self::Training];

    /// The name in reports and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Encode => "encode",
            Self::Training => "training",
        }
    }
}

impl Phase {
    /// The name at the begin of a line: `Decode`.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Prefill => "Prefill",
            Self::Decode => "Decode",
            Self::Encode => "Encode",
            Self::Training => "Training",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a time was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Two readings of the host's clock, directly around the work.
    Host = 0,
    /// The host's order of issue: a brick lasts until the next one is issued, and the last brick until
    /// the synchronisation. This partitions the time, but it is the time of execution only as far as
    /// the device kept up with the host.
    HostOrder = 1,
    /// Two readings of a device's clock, in the stream of the work, directly around it.
    Device = 2,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 3] = [Self::Host, Self::HostOrder, Self::Device];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::HostOrder => "host order",
            Self::Device => "device",
        }
    }
}

/// The work of a span. Zero means "not stated".
///
/// ```
/// # use brickscope_profile::{Data, Work};
/// // A product of 768 × 768 weights of one byte with a vector of floats.
/// let (weights, activations) = (768 * 768, 4 * (768 + 768));
/// let work = Work {
///     elements: 768,
///     flops: 2 * 768 * 768,
///     bytes: weights + activations,
///     data: Data::Weights(weights),
/// };
/// assert_eq!(work.activations(), Some(activations));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Work {
    /// Elements processed. The caller decides what an element is.
    pub elements: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that must move between memory and the processor.
    pub bytes: u64,
    /// What these bytes are. A roofline needs it, to tell from which level of the memory they come.
    #[serde(default, skip_serializing_if = "Data::is_unstated")]
    pub data: Data,
}

/// What the bytes of a span are, and so when they are used again: weights and the KV cache in the next pass,
/// activations by the next operation.
///
/// A span that reads both weights and the KV cache counts the smaller part with the larger one: they are used again
/// equally late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Nobody said.
    #[default]
    Unstated,
    /// Activations only.
    Activations,
    /// So many bytes of weights; the others are activations.
    Weights(u64),
    /// So many bytes of the KV cache; the others are activations.
    Kv(u64),
}

impl Data {
    fn is_unstated(&self) -> bool {
        *self == Self::Unstated
    }
}

impl Work {
    /// Work with a known number of elements and nothing else stated.
    #[must_use]
    pub const fn elements(elements: u64) -> Self {
        Self { elements, flops: 0, bytes: 0, data: Data::Unstated }
    }

    /// The bytes that are activations; `None` if nobody said what the bytes are.
    #[must_use]
    pub const fn activations(&self) -> Option<u64> {
        match self.data {
            Data::Unstated => None,
            Data::Activations => Some(self.bytes),
            Data::Weights(bytes) | Data::Kv(bytes) => Some(self.bytes.saturating_sub(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_fifteen_bricks_and_each_knows_its_own_index() {
        assert_eq!(BrickId::COUNT, 15);
        for (index, brick) in BrickId::ALL.into_iter().enumerate() {
            assert_eq!(brick as usize, index, "{brick}");
            assert_eq!(BrickId::from_str(brick.name()), Some(brick));
        }
    }

    #[test]
    fn every_brick_is_in_the_category_of_its_place_in_the_layer() {
        let categories = BrickId::ALL.map(BrickId::category);
        use BrickCategory::*;
        assert_eq!(
            categories,
            [
                Norm, Norm, Attention, Attention, Attention, Attention, Attention, Attention, Ffn,
                Ffn, Ffn, Ffn, Other, Other, Other
            ]
        );
        assert_eq!(BrickCategory::ALL.map(|category| category as usize), [0, 1, 2, 3]);
    }

    #[test]
    fn short_names_are_known_and_unknown_names_are_not_guessed() {
        assert_eq!(BrickId::from_str("RoPE"), Some(BrickId::RopeEmbedding));
        assert_eq!(BrickId::from_str("Head"), Some(BrickId::LmHead));
        assert_eq!(BrickId::from_str("rmsnorm"), None);
        assert_eq!(BrickId::from_str(""), None);
    }
}
