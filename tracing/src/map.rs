//! What spans mean: which brick, which layer, which pass.

use std::borrow::Cow;
use std::fmt;

use brickscope::{BrickCategory, BrickId, Phase};
use tracing_core::Field;
use tracing_core::field::Visit;
use tracing_core::span::Attributes;

use crate::order::{Order, Weights};

/// Says what each span of an engine is. See [`BrickLayer::new`](crate::BrickLayer::new).
///
/// For models of candle there are maps that know the order in which candle makes its spans; they are listed in
/// [docs/candle.md](https://github.com/brickscope/brickscope/blob/main/docs/candle.md). For any other engine, write a
/// function:
///
/// ```
/// use brickscope::{BrickCategory, BrickId, Phase};
/// use brickscope_tracing::{Map, Role};
///
/// let map = Map::new(|span| match span.name() {
///     "block" => Role::layer(span.number("index")),
///     "attention" => Role::named("Attention", BrickCategory::Attention),
///     "mlp" => Role::named("FeedForward", BrickCategory::Ffn),
///     "lm_head" => Role::brick(BrickId::LmHead),
///     "request" => Role::around(),
///     _ => Role::unknown(),
/// });
/// # drop(map);
/// ```
pub struct Map(pub(crate) Kind);

pub(crate) enum Kind {
    Function(Box<Function>),
    Order { order: &'static Order, weights: Option<Box<Weights>> },
}

type Function = dyn Fn(&NewSpan<'_>) -> Role + Send + Sync;

impl Map {
    /// A map of your own. The function is called when a span is made, not when it is entered.
    pub fn new(role_of: impl Fn(&NewSpan<'_>) -> Role + Send + Sync + 'static) -> Self {
        Self(Kind::Function(Box::new(role_of)))
    }

    pub(crate) fn of_order(order: &'static Order) -> Self {
        Self(Kind::Order { order, weights: None })
    }

    /// States the sizes of the model's matrices, which are all that FLOPs, bytes and a roofline of the products need.
    ///
    /// `weight` is asked for each matrix as the model is loaded, by its name in GGUF files (`blk.3.attn_q.weight`);
    /// `None` leaves the work of that product unstated. A map [of your own](Self::new) asks for none:
    /// see [`Role::with_weight`].
    #[must_use]
    pub fn with_weights(
        mut self,
        weight: impl Fn(&str) -> Option<Weight> + Send + Sync + 'static,
    ) -> Self {
        if let Kind::Order { weights, .. } = &mut self.0 {
            *weights = Some(Box::new(weight));
        }
        self
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Function(_) => f.write_str("Map of a function"),
            Kind::Order { order, .. } => write!(f, "Map of candle's {}", order.model),
        }
    }
}

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

/// A span that is being made, for a [`Map`].
pub struct NewSpan<'a> {
    pub(crate) attributes: &'a Attributes<'a>,
    pub(crate) nth: u64,
}

impl NewSpan<'_> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.attributes.metadata().name()
    }

    /// Its target: the path of the module that makes it, unless that says otherwise.
    #[must_use]
    pub fn target(&self) -> &'static str {
        self.attributes.metadata().target()
    }

    /// How many spans with this target and name were made before it.
    #[must_use]
    pub fn nth(&self) -> u64 {
        self.nth
    }

    /// The value of a field that is a number and not negative, as it is when the span is made.
    #[must_use]
    pub fn number(&self, field: &str) -> Option<u64> {
        let mut find = Find { field, number: None, text: None };
        self.attributes.record(&mut find);
        find.number
    }

    /// The value of a field that is text.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<String> {
        let mut find = Find { field, number: None, text: None };
        self.attributes.record(&mut find);
        find.text
    }
}

impl fmt::Debug for NewSpan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{} ({})", self.target(), self.name(), self.nth)
    }
}

struct Find<'f> {
    field: &'f str,
    number: Option<u64>,
    text: Option<String>,
}

impl Visit for Find<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == self.field {
            self.number = Some(value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == self.field {
            self.number = u64::try_from(value).ok();
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == self.field {
            self.text = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == self.field {
            self.text = Some(format!("{value:?}"));
        }
    }
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
        Self { what, layer: InLayer::Open, weight: None, last_token: false }
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
