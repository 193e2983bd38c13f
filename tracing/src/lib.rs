//! A layer for [`tracing_subscriber`] that records the spans of candle, or of any engine that has `tracing` spans, into a
//! [`BrickProfiler`]: which operation of which layer took how long, in each pass.
//!
//! ```
//! use std::sync::Arc;
//!
//! use brickscope::{BrickProfiler, Phase};
//! use brickscope_analysis::Report;
//! use brickscope_tracing::{BrickLayer, Map};
//! use tracing_subscriber::prelude::*;
//!
//! let profiler = Arc::new(BrickProfiler::enabled());
//! let layer = BrickLayer::new(&profiler, Map::candle_quantized_llama());
//! tracing_subscriber::registry().with(layer.clone()).init(); // before the model is loaded
//!
//! let pass = layer.begin_pass(Phase::Decode, 1, 94); // one token, with 94 before it
//! // let logits = model.forward(&token, 94)?;
//! pass.end();
//!
//! println!("{}", profiler.report());
//! println!("{}", layer.seen()); // what isn't in it, and why
//! assert_eq!(profiler.profile().check(), Ok(())); // bricks + unattributed = wall, to the nanosecond
//! ```
//!
//! # What is recorded
//!
//! Each span that is entered in a pass, on the pass's thread: a brick from one reading of the clock to another. Where spans
//! lie in a span, it is recorded in pieces, which lie between them; so the count of such a brick is that of its pieces, and
//! their times are its own. Maps of candle name the pieces that compute something apart from the others. Time of the pass that
//! is in no span is unattributed.
//!
//! What is not recorded is [counted](BrickLayer::seen): spans outside of passes, and on other threads. Their time is not of
//! the pass's thread, so it can't be a part of the pass's wall time.
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `thread.rs` | **the hot path**: entering and exiting a span in a pass |
//! | `table.rs` | what each live span is, found without a lock |
//! | `bricks.rs` | bricks and products by small numbers |
//! | `map.rs`, `role.rs` | what spans mean |
//! | `order.rs` | finds a model's spans by the order in which they are made |
//! | `candle.rs` | that order, for candle's models |
//! | `seen.rs` | what was seen and not recorded |

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::ThreadId;

use brickscope::{BrickCategory, BrickProfiler, PassTimer, Phase};
use tracing_core::callsite::Identifier;
use tracing_core::span::{Attributes, Id};
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

mod bricks;
mod candle;
mod map;
mod order;
mod role;
mod seen;
mod table;
#[cfg(test)]
mod tests;
mod thread;

pub use self::map::{Map, NewSpan};
pub use self::role::{Role, Weight};
pub use self::seen::{Seen, Unmapped};

use self::bricks::{Bricks, Pieces, Product, Products, lock};
use self::map::Kind;
use self::order::Loading;
use self::role::{InLayer, What};
use self::table::{Entry, LayerOf, Table};

/// Only spans of its own may disturb the order of candle's.
const CANDLE: &str = "candle_transformers::";

/// Records spans as bricks. Clones are the same layer: give one to the subscriber, and keep one to begin passes with. Give it
/// to one subscriber only: each has ids of spans of its own.
#[derive(Clone)]
pub struct BrickLayer {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// Tells layers apart. Never 0.
    serial: u64,
    profiler: Arc<BrickProfiler>,
    map: Map,
    table: Table,
    bricks: Bricks,
    products: Products,
    pieces: Pieces,
    sites: RwLock<HashMap<Identifier, Arc<Site>>>,
    /// Those of the same target and name are one, wherever they are.
    by_name: Mutex<HashMap<(&'static str, &'static str), Arc<Site>>>,
    loading: Mutex<HashMap<ThreadId, Loading<Arc<Site>>>>,
    passes: Mutex<HashMap<u64, (Phase, u64, u64)>>,
    outside: AtomicU64,
    out_of_order: AtomicU64,
}

/// A target and a name of spans.
#[derive(Debug)]
struct Site {
    target: &'static str,
    name: &'static str,
    made: AtomicU64,
    unmapped: AtomicU64,
}

/// A pass that has begun. [End](Self::end) it on the same thread.
///
/// A pass that is dropped, for example by `?`, is [abandoned](brickscope::Dropped::abandoned_passes).
#[must_use = "a pass that is dropped is abandoned"]
pub struct Pass {
    shared: Arc<Shared>,
    timer: Option<PassTimer>,
    tokens: u64,
    position: u64,
    /// Whether spans are recorded for it.
    has_spans: bool,
    stays: PhantomData<*const ()>,
}

impl BrickLayer {
    /// A layer that records into `profiler` what `map` says. Give it to the subscriber before the model is loaded: what a
    /// span is, is decided when it is made.
    ///
    /// While the profiler is off, spans are noted when they are made, and no more.
    #[must_use]
    pub fn new(profiler: &Arc<BrickProfiler>, map: Map) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let shared = Shared {
            serial: NEXT.fetch_add(1, Relaxed),
            profiler: Arc::clone(profiler),
            map,
            table: Table::new(),
            bricks: Bricks::new(),
            products: Products::new(),
            pieces: Pieces::new(),
            sites: RwLock::default(),
            by_name: Mutex::default(),
            loading: Mutex::default(),
            passes: Mutex::default(),
            outside: AtomicU64::new(0),
            out_of_order: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Begins a pass on this thread, of `tokens` tokens with `position` tokens in the KV cache before it. Spans that are
    /// entered on this thread until its end are recorded.
    ///
    /// A pass within a pass of this thread has no spans, and counts as
    /// [nested](brickscope::Dropped::nested_passes). Use this instead of [`BrickProfiler::begin_pass`].
    pub fn begin_pass(&self, phase: Phase, tokens: u64, position: u64) -> Pass {
        let timer = Some(self.shared.profiler.begin_pass(phase));
        let has_spans = thread::begin(&self.shared, tokens);
        let shared = Arc::clone(&self.shared);
        Pass { shared, timer, tokens, position, has_spans, stays: PhantomData }
    }

    /// What was seen so far and is not in the profile as the map meant it, or not at all.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let sites = lock(&self.shared.by_name);
        let mut unmapped: Vec<Unmapped> = sites
            .values()
            .filter(|site| site.unmapped.load(Relaxed) > 0)
            .map(|site| Unmapped {
                target: site.target,
                name: site.name,
                made: site.unmapped.load(Relaxed),
            })
            .collect();
        unmapped.sort_by_key(|unmapped| (unmapped.target, unmapped.name));
        Seen {
            made: sites.values().map(|site| site.made.load(Relaxed)).sum(),
            unmapped,
            outside: self.shared.outside.load(Relaxed),
            out_of_order: self.shared.out_of_order.load(Relaxed),
        }
    }
}

impl fmt::Debug for BrickLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrickLayer")
            .field("map", &self.shared.map)
            .field("seen", &self.seen())
            .finish_non_exhaustive()
    }
}

impl Pass {
    /// Ends the pass. Spans that are still entered end with it.
    pub fn end(mut self) {
        self.end_spans();
        if let Some(timer) = self.timer.take() {
            self.shared.profiler.end_pass(timer, self.tokens, self.position);
        }
    }

    fn end_spans(&mut self) {
        if std::mem::take(&mut self.has_spans) {
            thread::end(&self.shared);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.end_spans();
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("tokens", &self.tokens)
            .field("position", &self.position)
            .field("has_spans", &self.has_spans)
            .finish_non_exhaustive()
    }
}

impl<S: Subscriber> Layer<S> for BrickLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        self.shared.note(attributes, id.into_u64());
    }

    #[inline]
    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        thread::enter(&self.shared, id.into_u64());
    }

    #[inline]
    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        thread::exit(&self.shared, id.into_u64());
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.shared.forget(id.into_u64());
    }

    fn on_id_change(&self, old: &Id, new: &Id, _: Context<'_, S>) {
        if let Some(entry) = self.shared.table.get(old.into_u64()) {
            self.shared.table.set(new.into_u64(), entry);
        }
    }
}

impl Shared {
    /// Notes what a span is.
    fn note(&self, attributes: &Attributes<'_>, id: u64) {
        let metadata = attributes.metadata();
        let site = self.site(metadata);
        let nth = site.made.fetch_add(1, Relaxed);
        match &self.map.0 {
            Kind::Function(role_of) => {
                let role = role_of(&NewSpan { attributes, nth });
                self.table.set(id, self.entry(id, &role, &site));
            }
            Kind::Order { order, weights }
                if site.target.starts_with(CANDLE) && order.has(site.name) =>
            {
                self.table.set(id, self.entry(id, &Role::unknown(), &site).ordered());
                let here = std::thread::current().id();
                let mut threads = lock(&self.loading);
                let loading = threads.entry(here).or_default();
                for placed in loading.add(order, id, site.name, site) {
                    let role = placed.role(weights.as_deref());
                    let entry = self.entry(placed.id, &role, &placed.with);
                    self.table.set(placed.id, entry.ordered());
                    placed.with.unmapped.fetch_sub(1, Relaxed);
                }
                if loading.is_idle() {
                    threads.remove(&here);
                }
            }
            Kind::Order { .. } => self.table.set(id, self.entry(id, &Role::unknown(), &site)),
        }
    }

    fn forget(&self, id: u64) {
        let Some(entry) = self.table.get(id) else { return };
        self.table.remove(id);
        if entry.is_pass() {
            lock(&self.passes).remove(&id);
        }
        if entry.is_ordered() {
            lock(&self.loading).values_mut().for_each(|loading| loading.closed(id));
        }
    }

    fn site(&self, metadata: &'static Metadata<'static>) -> Arc<Site> {
        let callsite = metadata.callsite();
        let sites = self.sites.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(site) = sites.get(&callsite) {
            return Arc::clone(site);
        }
        drop(sites);
        let (target, name) = (metadata.target(), metadata.name());
        let new = || Site { target, name, made: AtomicU64::new(0), unmapped: AtomicU64::new(0) };
        let mut by_name = lock(&self.by_name);
        let site = by_name.entry((target, name)).or_insert_with(|| Arc::new(new()));
        let mut sites = self.sites.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(sites.entry(callsite).or_insert_with(|| Arc::clone(site)))
    }

    fn entry(&self, id: u64, role: &Role, site: &Site) -> Entry {
        let brick = match &role.what {
            What::Brick(_) | What::Named(..) => self.brick(&role.what),
            What::Unknown => {
                site.unmapped.fetch_add(1, Relaxed);
                Some(self.bricks.number(site.name, BrickCategory::Other))
            }
            What::Pass(phase, tokens, position) => {
                lock(&self.passes).insert(id, (*phase, *tokens, *position));
                return Entry::PASS;
            }
            What::Layer(_) | What::Around => None,
        };
        let layer = match (&role.what, role.layer) {
            (What::Layer(Some(index)), _) => LayerOf::Is(*index),
            (_, InLayer::Index(index)) => LayerOf::Index(index),
            (_, InLayer::Open) => LayerOf::Open,
            (_, InLayer::None) => LayerOf::None,
        };
        let last_token = role.last_token;
        let product =
            role.weight.and_then(|weight| self.products.number(Product { weight, last_token }));
        let pieces: Vec<u16> = role.pieces.iter().filter_map(|piece| self.brick(piece)).collect();
        let Some(&first) = pieces.first() else { return Entry::new(brick, layer, product) };
        let entry = Entry::new(Some(first), layer, None);
        self.pieces.number(pieces).map_or(entry, |pieces| entry.in_pieces(pieces))
    }

    fn brick(&self, what: &What) -> Option<u16> {
        match what {
            What::Brick(brick) => Some(*brick as u16),
            What::Named(name, category) => Some(self.bricks.number(name, *category)),
            _ => None,
        }
    }

    fn pass_of(&self, id: u64) -> Option<(Phase, u64, u64)> {
        lock(&self.passes).get(&id).copied()
    }
}
