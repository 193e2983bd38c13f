//! What a span can be.

use std::borrow::Cow;

use brickscope::{BrickCategory, BrickId, Phase};

/// A matrix of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Elements of the result, for each token.
    pub rows: u64,
    /// Elements of the input, for each token.
    pub columns: u64,
    /// The bytes of the whole matrix as it lies in memory.
    pub bytes: u64,
}

/// What a span is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Role {
    pub(crate) what: What,
    pub(crate) layer: InLayer,
    pub(crate) weight: Option<Weight>,
    /// Whether it sees the last token of a pass only.
    pub(crate) last_token: bool,
    /// What each piece of it is, by how many bricks in it have ended; the last one for all further pieces. Empty if all are
    /// alike.
    pub(crate) pieces: &'static [What],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Brick(BrickId),
    Named(Cow<'static, str>, BrickCategory),
    Layer(Option<u16>),
    Pass(Phase, u64, u64),
    Around,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InLayer {
    Open,
    Index(u16),
    None,
}

impl Role {
    pub(crate) const fn of(what: What) -> Self {
        Self { what, layer: InLayer::Open, weight: None, last_token: false, pieces: &[] }
    }

    /// A well-known brick.
    pub const fn brick(brick: BrickId) -> Self {
        Self::of(What::Brick(brick))
    }

    /// A brick with a name of your own, which reports count in `category`.
    pub fn named(name: impl Into<Cow<'static, str>>, category: BrickCategory) -> Self {
        Self::of(What::Named(name.into(), category))
    }

    /// A transformer layer, counted from 0: the spans in it belong to it. Time in it that no brick explains is
    /// unattributed. Without an index, or with one that is over 65 534, it is a span [around](Self::around) others.
    pub fn layer(index: impl Into<Option<u64>>) -> Self {
        Self::of(What::Layer(as_layer(index.into())))
    }

    /// A forward pass: it begins when the span is entered and ends when it is exited. It processes `tokens` tokens with
    /// `position` tokens in the KV cache before it. Inside of another pass it is a span [around](Self::around) others.
    pub const fn pass(phase: Phase, tokens: u64, position: u64) -> Self {
        Self::of(What::Pass(phase, tokens, position))
    }

    /// No brick: its time is that of the brick around it, or is unattributed.
    pub const fn around() -> Self {
        Self::of(What::Around)
    }

    /// A span that the map doesn't know. It becomes a brick with the span's own name, and is
    /// [listed](crate::Seen::unmapped).
    pub const fn unknown() -> Self {
        Self::of(What::Unknown)
    }

    /// Belongs to this layer, counted from 0. For engines without a span for a layer: the layer begins with the first
    /// span that belongs to it, and lasts until a span of another layer, or of [none](Self::outside_layers), begins.
    pub fn in_layer(mut self, index: u64) -> Self {
        self.layer = as_layer(Some(index)).map_or(InLayer::Open, InLayer::Index);
        self
    }

    /// Belongs to no layer, as the language model head does: one that [lasts until then](Self::in_layer) ends.
    pub fn outside_layers(mut self) -> Self {
        self.layer = InLayer::None;
        self
    }

    /// Multiplies this matrix with each token of the pass: states FLOPs (2 · rows · columns for each token) and bytes
    /// (the matrix once, and inputs and results of four bytes).
    pub fn with_weight(mut self, weight: Weight) -> Self {
        self.weight = Some(weight);
        self
    }
}

fn as_layer(index: Option<u64>) -> Option<u16> {
    // The largest number is the recorder's own: no layer.
    index.and_then(|index| u16::try_from(index).ok()).filter(|&index| index != u16::MAX)
}
