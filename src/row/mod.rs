//! One row of a log: what its own thread writes, and what everybody reads back.

mod record;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

/// The name of a span: an index into the profiler's table of names.
pub(crate) use brickscope_profile::name::NameIdx;
use brickscope_profile::{Data, Phase, Source, Work};

pub(crate) use self::record::{
    Counted, Event, Figures, Mark, NONE, PassEnd, Product, Record, Span, SpanKind, Tile, TileWork,
    Timing, flag,
};
use crate::sync::AtomicU64;

/// A cache line of eight words. The seventh says what the others are:
/// `pass << 32 | flags << 16 | source << 8 | kind`. In a span the others are start, duration, exclusive, elements,
/// flops, bytes and, last, `order << 32 | layer << 16 | name`, so that the words of an open span become these with
/// little ado.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Row([AtomicU64; 8]);

impl Default for Row {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Row {
    /// How many are made in one piece.
    #[cfg(not(loom))]
    const AT_ONCE: usize = 64;

    /// So many rows, each written once: the first touch of new memory costs more than many spans. In pieces, since an
    /// embedder's debug build calls several functions for each item of an iterator, and a log has tens of thousands.
    #[cfg(not(loom))]
    pub(crate) fn zeros(n: usize) -> Box<[Self]> {
        let mut rows = Vec::with_capacity(n);
        for _ in 0..n / Self::AT_ONCE {
            let piece = [const { Self([const { AtomicU64::new(0) }; 8]) }; Self::AT_ONCE];
            rows.append(&mut Vec::from(piece));
        }
        rows.resize_with(n, Self::default);
        rows.into_boxed_slice()
    }

    /// A model checker's atomics are no constants.
    #[cfg(loom)]
    pub(crate) fn zeros(n: usize) -> Box<[Self]> {
        (0..n).map(|_| Self::default()).collect()
    }
}

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    // These two first: a single bit tells one from the other.
    Brick = 0,
    Kernel = 1,
    Layer = 2,
    NestedPass = 3,
    Tile = 4,
    Product = 5,
    Load = 6,
    LoadUnknown = 7,
    LoadAtMost = 8,
    Counters = 9,
    HandOff = 10,
    TakeOver = 11,
    /// A brick and the one kernel that is all of it. The kernel's name is where flags would be, and all else is the
    /// brick's. Read back it is two records.
    BrickKernel = 12,
    /// The rows that come next are timestamps, eight in each, which a template labels. Read back they are as many
    /// records as the template has spans.
    Block = 13,
    // The ends of passes last: one comparison tells them from all others.
    Pass = 14,
    Abandoned = 15,
    Discarded = 16,
}

impl Kind {
    const ALL: [Self; 17] = [
        Self::Brick,
        Self::Kernel,
        Self::Layer,
        Self::NestedPass,
        Self::Tile,
        Self::Product,
        Self::Load,
        Self::LoadUnknown,
        Self::LoadAtMost,
        Self::Counters,
        Self::HandOff,
        Self::TakeOver,
        Self::BrickKernel,
        Self::Block,
        Self::Pass,
        Self::Abandoned,
        Self::Discarded,
    ];
}

/// What stands before the timestamps of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// The number of the template in the log.
    pub(crate) template: u32,
    pub(crate) timestamps: usize,
    pub(crate) position: u64,
    pub(crate) pass: u32,
    /// The place of the first span in the order of begins.
    pub(crate) order: u32,
    /// The layer of spans that the template has in none.
    pub(crate) layer: u16,
}

impl Block {
    /// How many rows follow with the timestamps.
    pub(crate) fn rows(timestamps: usize) -> usize {
        timestamps.div_ceil(8)
    }
}

/// Where the two bits are in the word of the bytes that say what they are: 0 nobody said, 1 activations, 2 weights,
/// 3 the KV cache.
const DATA_SHIFT: u32 = 62;
const MOST_BYTES: u64 = (1 << DATA_SHIFT) - 1;

/// Elements, FLOPs and bytes as three words. Of weights and KV cache, the upper half of the elements' word has the
/// bytes that are activations. Where that doesn't fit (more than 2³² elements or bytes of activations in one span), it
/// is lost what the bytes are.
#[inline(always)]
fn packed_work(Work { elements, flops, bytes, data }: Work) -> [u64; 3] {
    let (kind, once) = match data {
        Data::Unstated => return [elements, flops, bytes.min(MOST_BYTES)],
        Data::Activations => return [elements, flops, 1 << DATA_SHIFT | bytes.min(MOST_BYTES)],
        Data::Weights(once) => (2, once),
        Data::Kv(once) => (3, once),
    };
    let rest = bytes.wrapping_sub(once);
    if (elements | rest) >> 32 != 0 || bytes > MOST_BYTES {
        return [elements, flops, bytes.min(MOST_BYTES)];
    }
    [rest << 32 | elements, flops, kind << DATA_SHIFT | bytes]
}

#[inline(always)]
fn unpacked_work([elements, flops, word]: [u64; 3]) -> Work {
    let bytes = word & MOST_BYTES;
    let kind = word >> DATA_SHIFT;
    if kind < 2 {
        let data = if kind == 0 { Data::Unstated } else { Data::Activations };
        return Work { elements, flops, bytes, data };
    }
    let once = bytes.wrapping_sub(elements >> 32);
    let data = if kind == 2 { Data::Weights(once) } else { Data::Kv(once) };
    Work { elements: elements & u64::from(u32::MAX), flops, bytes, data }
}

/// Where the layer is in the last word of a row.
const LAYER: u64 = 0xFFFF_0000;

#[inline(always)]
fn how(pass: u32, flags: u16, source: Source, kind: Kind) -> u64 {
    u64::from(pass) << 32 | u64::from(flags) << 16 | (source as u64) << 8 | kind as u64
}

#[inline(always)]
fn what(order: u32, layer: u16, name: u16) -> u64 {
    u64::from(order) << 32 | u64::from(layer) << 16 | u64::from(name)
}

/// As [`Phase`] is stored.
fn phase_of(number: u64) -> Phase {
    Phase::ALL[(number as usize).min(Phase::ALL.len() - 1)]
}

impl Record {
    /// Inlined, so that what is constant at the caller is packed by the compiler.
    #[inline(always)]
    fn packed(&self) -> [u64; 8] {
        let Self { pass, order, event } = *self;
        let host = |kind| how(pass, 0, Source::Host, kind);
        let place = what(order, NONE, NONE);
        let mark = |kind, Mark { at, number }: Mark| [at, number, 0, 0, 0, 0, host(kind), place];
        let load = |kind, Figures { known, numbers: [a, b, c, d, e, f] }: Figures| {
            [a, b, c, d, e, f, how(pass, known, Source::Host, kind), place]
        };
        match event {
            Event::Span(span) => {
                let Span { start, duration, exclusive, work, name, layer, flags, source, kind } =
                    span;
                let kind = match kind {
                    SpanKind::Brick => Kind::Brick,
                    SpanKind::Kernel => Kind::Kernel,
                    SpanKind::Layer => Kind::Layer,
                };
                let [elements, flops, bytes] = packed_work(work);
                [
                    start,
                    duration,
                    exclusive,
                    elements,
                    flops,
                    bytes,
                    how(pass, flags, source, kind),
                    what(order, layer, name),
                ]
            }
            Event::Pass(PassEnd { phase, start, wall, covered, tokens, position }) => {
                [start, wall, covered, tokens, position, phase as u64, host(Kind::Pass), place]
            }
            Event::NestedPass => [0, 0, 0, 0, 0, 0, host(Kind::NestedPass), place],
            Event::Abandoned => [0, 0, 0, 0, 0, 0, host(Kind::Abandoned), place],
            Event::Discarded => [0, 0, 0, 0, 0, 0, host(Kind::Discarded), place],
            Event::Tile(Tile { level, start, duration, work }) => {
                let TileWork { tiles, elements, flops } = work;
                let level = level.into();
                [start, duration, tiles, elements, flops, level, host(Kind::Tile), place]
            }
            Event::Product(Product { start, longest, offered }) => {
                [start, longest, offered, 0, 0, 0, host(Kind::Product), place]
            }
            Event::Load(figures) => load(Kind::Load, figures),
            Event::LoadAtMost(figures) => load(Kind::LoadAtMost, figures),
            Event::LoadUnknown => [0, 0, 0, 0, 0, 0, host(Kind::LoadUnknown), place],
            Event::Counters(Counted { brick, figures, wanted_ns, counted_ns }) => {
                let Figures { known, numbers: [a, b, c, d, ..] } = figures;
                let how = how(pass, known, Source::Host, Kind::Counters);
                [a, b, c, d, wanted_ns, counted_ns, how, what(order, NONE, brick)]
            }
            Event::HandOff(point) => mark(Kind::HandOff, point),
            Event::TakeOver(point) => mark(Kind::TakeOver, point),
        }
    }
}

impl Row {
    /// Makes it a record. With constants for most of it this is eight stores.
    #[inline(always)]
    pub(crate) fn store(&self, record: &Record) {
        self.store_words(record.packed());
    }

    /// Makes it a brick without flags. `home` and `what` are those of an open span, and `layer` is shifted to its place.
    #[inline(always)]
    pub(crate) fn store_brick(
        &self,
        times: [u64; 3],
        work: Work,
        [home, what]: [u64; 2],
        layer: u32,
    ) {
        self.store_plain(times, work, home << 32 | Kind::Brick as u64, what, layer);
    }

    /// Likewise a kernel.
    #[inline(always)]
    pub(crate) fn store_kernel(
        &self,
        times: [u64; 3],
        work: Work,
        [home, what]: [u64; 2],
        layer: u32,
    ) {
        self.store_plain(times, work, home << 32 | Kind::Kernel as u64, what, layer);
    }

    /// Likewise a brick and the one kernel that is all of it; the kernel comes after the brick in the order of begins.
    #[inline(always)]
    pub(crate) fn store_brick_kernel(
        &self,
        times: [u64; 3],
        work: Work,
        [home, what]: [u64; 2],
        layer: u32,
        kernel: NameIdx,
    ) {
        let how = home << 32 | u64::from(kernel) << 16 | Kind::BrickKernel as u64;
        self.store_plain(times, work, how, what, layer);
    }

    #[inline(always)]
    fn store_plain(&self, times: [u64; 3], work: Work, how: u64, what: u64, layer: u32) {
        let ([start, duration, exclusive], [elements, flops, bytes]) = (times, packed_work(work));
        // An open span has something else in the place of the layer.
        let what = what & !LAYER | u64::from(layer);
        self.store_words([start, duration, exclusive, elements, flops, bytes, how, what]);
    }

    /// Makes it what stands before timestamps.
    pub(crate) fn store_block(&self, block: &Block) {
        let Block { template, timestamps, position, pass, order, layer } = *block;
        let how = how(pass, 0, Source::Host, Kind::Block);
        let what = what(order, layer, 0);
        self.store_words([template.into(), timestamps as u64, position, 0, 0, 0, how, what]);
    }

    /// Makes it eight timestamps.
    pub(crate) fn store_timestamps(&self, timestamps: [u64; 8]) {
        self.store_words(timestamps);
    }

    #[inline(always)]
    fn store_words(&self, words: [u64; 8]) {
        for (cell, word) in self.0.iter().zip(words) {
            cell.store(word, Relaxed);
        }
    }

    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        self.0[i].load(Relaxed)
    }

    #[inline(always)]
    fn how(&self) -> u64 {
        self.word(6)
    }

    #[inline(always)]
    fn has_kind(&self, kind: Kind) -> bool {
        self.how() as u8 == kind as u8
    }

    /// Whether it is a brick with its kernel.
    #[inline(always)]
    pub(crate) fn is_brick_kernel(&self) -> bool {
        self.has_kind(Kind::BrickKernel)
    }

    /// Whether it stands before timestamps.
    #[inline(always)]
    pub(crate) fn is_block(&self) -> bool {
        self.has_kind(Kind::Block)
    }

    /// Whether it is of no pass.
    #[inline(always)]
    pub(crate) fn is_outside(&self) -> bool {
        self.how() >> 32 == 0
    }

    /// Whether it ends the pass that the rows before it are of.
    #[inline(always)]
    pub(crate) fn ends_pass(&self) -> bool {
        self.how() as u8 >= Kind::Pass as u8 && !self.is_outside()
    }

    /// A brick or a kernel that was timed by the host's clock and has no flags, as nearly all rows are.
    #[inline(always)]
    pub(crate) fn load_plain(&self) -> Option<Timing> {
        let how = self.how();
        // Flags, source and all bits of the kind but the one that tells kernels from bricks.
        (how as u32 & !(Kind::Kernel as u32) == 0).then(|| self.timing((how >> 32) as u32))
    }

    /// The same, if it is of no pass.
    #[inline(always)]
    pub(crate) fn load_plain_outside(&self) -> Option<Timing> {
        (self.how() & !(Kind::Kernel as u64) == 0).then(|| self.timing(0))
    }

    #[inline(always)]
    fn work(&self) -> Work {
        unpacked_work([3, 4, 5].map(|i| self.word(i)))
    }

    #[inline(always)]
    fn timing(&self, pass: u32) -> Timing {
        Timing {
            duration: self.word(1),
            exclusive: self.word(2),
            work: self.work(),
            pass,
            name: self.word(7) as u16,
            source: Source::Host,
        }
    }

    /// The kernel and then the brick, which ends after it, of a [brick with its kernel](Self::is_brick_kernel).
    #[inline(always)]
    pub(crate) fn load_brick_kernel(&self) -> [Record; 2] {
        let (pass, order) = ((self.how() >> 32) as u32, (self.word(7) >> 32) as u32);
        let brick = Span { flags: 0, ..self.load_span(SpanKind::Brick) };
        let name = (self.how() >> 16) as NameIdx;
        let kernel = Span { kind: SpanKind::Kernel, exclusive: 0, name, ..brick };
        [(kernel, order.wrapping_add(1)), (brick, order)].map(|(span, order)| Record {
            pass,
            order,
            event: Event::Span(span),
        })
    }

    /// What stands before timestamps, if that [is](Self::is_block) what it is.
    pub(crate) fn load_block(&self) -> Block {
        let what = self.word(7);
        Block {
            template: self.word(0) as u32,
            timestamps: self.word(1) as usize,
            position: self.word(2),
            pass: (self.how() >> 32) as u32,
            order: (what >> 32) as u32,
            layer: (what >> 16) as u16,
        }
    }

    /// A timestamp in this row, by its number among all of its block.
    #[inline(always)]
    pub(crate) fn timestamp(&self, number: usize) -> u64 {
        self.word(number % 8)
    }

    /// All its records, in the order of ends, if it stands by itself.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + use<> {
        let records = if self.is_brick_kernel() {
            self.load_brick_kernel().map(Some)
        } else {
            [None, self.load()]
        };
        records.into_iter().flatten()
    }

    #[inline(always)]
    fn load_span(&self, kind: SpanKind) -> Span {
        let (how, what) = (self.how(), self.word(7));
        Span {
            kind,
            start: self.word(0),
            duration: self.word(1),
            exclusive: self.word(2),
            work: self.work(),
            name: what as u16,
            layer: (what >> 16) as u16,
            flags: (how >> 16) as u16,
            source: if (how >> 8) as u8 == 0 { Source::Host } else { Source::HostOrder },
        }
    }

    /// The record of a row that is one record by itself.
    #[inline(always)]
    pub(crate) fn load(&self) -> Option<Record> {
        let [a, b, c, d, e, f, how, what]: [u64; 8] = std::array::from_fn(|i| self.word(i));
        let known = (how >> 16) as u16;
        let figures = Figures { known, numbers: [a, b, c, d, e, f] };
        let event = match *Kind::ALL.get(usize::from(how as u8))? {
            Kind::Brick => Event::Span(self.load_span(SpanKind::Brick)),
            Kind::Kernel => Event::Span(self.load_span(SpanKind::Kernel)),
            Kind::Layer => Event::Span(self.load_span(SpanKind::Layer)),
            Kind::Pass => Event::Pass(PassEnd {
                phase: phase_of(f),
                start: a,
                wall: b,
                covered: c,
                tokens: d,
                position: e,
            }),
            Kind::NestedPass => Event::NestedPass,
            Kind::Abandoned => Event::Abandoned,
            Kind::Discarded => Event::Discarded,
            Kind::Tile => {
                let work = TileWork { tiles: c, elements: d, flops: e };
                Event::Tile(Tile { level: f as u16, start: a, duration: b, work })
            }
            Kind::Product => Event::Product(Product { start: a, longest: b, offered: c }),
            Kind::Load => Event::Load(figures),
            Kind::LoadUnknown => Event::LoadUnknown,
            Kind::LoadAtMost => Event::LoadAtMost(figures),
            Kind::Counters => {
                let (brick, wanted_ns, counted_ns) = (what as u16, e, f);
                let figures = Figures { known, numbers: [a, b, c, d, 0, 0] };
                Event::Counters(Counted { brick, figures, wanted_ns, counted_ns })
            }
            Kind::HandOff => Event::HandOff(Mark { at: a, number: b }),
            Kind::TakeOver => Event::TakeOver(Mark { at: a, number: b }),
            Kind::BrickKernel | Kind::Block => return None,
        };
        Some(Record { pass: (how >> 32) as u32, order: (what >> 32) as u32, event })
    }
}
