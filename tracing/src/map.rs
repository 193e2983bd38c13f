//! What spans mean: which brick, which layer, which pass.

use std::fmt;

use tracing_core::Field;
use tracing_core::field::Visit;
use tracing_core::span::Attributes;

use crate::order::{Order, Weights};
use crate::role::{Role, Weight};

/// Says what each span of an engine is. See [`BrickLayer::new`](crate::BrickLayer::new).
///
/// For models of candle there are maps that know the order in which candle makes its spans; they are listed in
/// [docs/rust.md](https://github.com/brickscope/brickscope/blob/main/docs/rust.md). For any other engine, write a
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
