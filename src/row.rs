//! One row of a log: what its own thread writes, and what everybody reads back.

use std::sync::atomic::Ordering::Relaxed;

/// The name of a span: an index into the profiler's table of names.
pub(crate) use brickscope_profile::name::NameIdx;
use brickscope_profile::{CounterReading, Data, Disturbance, Phase, Source, Work};

use crate::sync::AtomicU64;

/// No layer, or no name.
pub(crate) const NONE: u16 = u16::MAX;

/// One record, read back from one or more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// The pass that it belongs to; 0 outside of passes.
    pub(crate) pass: u32,
    /// Its place in the order of begins. Its place in the log is its place in the order of ends.
    pub(crate) order: u32,
    pub(crate) event: Event,
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A brick, a kernel or a layer ended.
    Span(Span),
    /// The record's pass ended.
    Pass(PassEnd),
    /// A pass was begun inside the open pass, and not recorded.
    NestedPass,
    /// The record's pass never ended: its spans count as outside of passes.
    Abandoned,
    /// The record's pass is not wanted, and neither are its spans.
    Discarded,
    Tile(Tile),
    Product(Product),
    /// What disturbed the passes that ended since the last such record.
    Load(Figures),
    /// What disturbed the passes that ended since the last such record is not known.
    LoadUnknown,
    /// At most this disturbed the passes that ended since the last such record: a pause is part of the figures.
    LoadAtMost(Figures),
    /// What was counted in the brick whose record came last.
    Counters(Counted),
    /// Other threads may wait for what this thread did up to here.
    HandOff(Mark),
    /// What this thread does from here on had to wait for the hand-off of the same number.
    TakeOver(Mark),
}

/// A brick, a kernel or a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) kind: SpanKind,
    pub(crate) start: u64,
    pub(crate) duration: u64,
    pub(crate) exclusive: u64,
    pub(crate) work: Work,
    /// [`NONE`] for a layer.
    pub(crate) name: NameIdx,
    /// The layer that it is or lies in; [`NONE`] outside of layers.
    pub(crate) layer: u16,
    /// Of [`flag`].
    pub(crate) flags: u16,
    pub(crate) source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    /// Takes part in exclusive time.
    Brick,
    /// A kernel launch inside a brick: detail, which explains no time that its brick doesn't.
    Kernel,
    /// A layer around bricks: likewise.
    Layer,
}

/// What was irregular about a span. No flag means that a measured time is lost.
pub(crate) mod flag {
    /// It ended on another thread than it began on.
    pub(crate) const MOVED: u16 = 1;
    /// It began and ended in different passes.
    pub(crate) const STRADDLING: u16 = 2;
    /// It overlaps another brick without nesting.
    pub(crate) const OVERLAPPING: u16 = 4;
}

/// The end of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassEnd {
    pub(crate) phase: Phase,
    pub(crate) start: u64,
    pub(crate) wall: u64,
    /// How much of the wall bricks cover.
    pub(crate) covered: u64,
    pub(crate) tokens: u64,
    pub(crate) position: u64,
}

/// A tile, or a run of tiles that were timed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) level: u16,
    pub(crate) start: u64,
    pub(crate) duration: u64,
    pub(crate) work: TileWork,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TileWork {
    pub(crate) tiles: u64,
    pub(crate) elements: u64,
    pub(crate) flops: u64,
}

/// A product that several threads shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Product {
    /// When its longest share began, and how long that share took.
    pub(crate) start: u64,
    pub(crate) longest: u64,
    /// How long all threads together could have worked meanwhile.
    pub(crate) offered: u64,
}

/// A point in the work of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: u64,
    /// The number of the hand-off.
    pub(crate) number: u64,
}

/// Up to six figures, some of which may not be known. [`Disturbance`] has eight: see where it becomes these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Figures {
    /// A bit for each figure that is known.
    known: u16,
    numbers: [u64; 6],
}

/// What was counted in a brick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) brick: NameIdx,
    figures: Figures,
    wanted_ns: u64,
    counted_ns: u64,
}

/// What sums need of a brick or a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) duration: u64,
    pub(crate) exclusive: u64,
    pub(crate) work: Work,
    pub(crate) pass: u32,
    pub(crate) name: NameIdx,
    pub(crate) source: Source,
}

impl Record {
    /// The span, if it is one.
    pub(crate) fn span(&self) -> Option<&Span> {
        match &self.event {
            Event::Span(span) => Some(span),
            _ => None,
        }
    }

    pub(crate) fn is_span(&self) -> bool {
        self.span().is_some()
    }

    /// Whether it is a point of a hand-off.
    pub(crate) fn is_mark(&self) -> bool {
        matches!(self.event, Event::HandOff(_) | Event::TakeOver(_))
    }
}

impl Span {
    #[inline(always)]
    pub(crate) fn timing(&self, pass: u32) -> Timing {
        let Self { duration, exclusive, work, name, source, .. } = *self;
        Timing { duration, exclusive, work, pass, name, source }
    }
}

impl Figures {
    fn new(figures: [Option<u64>; 6]) -> Self {
        let known = figures.iter().zip(0..).filter(|(figure, _)| figure.is_some());
        let known = known.fold(0, |known, (_, i)| known | 1 << i);
        Self { known, numbers: figures.map(Option::unwrap_or_default) }
    }

    fn get(&self) -> [Option<u64>; 6] {
        std::array::from_fn(|i| (self.known & 1 << i != 0).then_some(self.numbers[i]))
    }

    /// As they were made from it.
    pub(crate) fn disturbance(&self) -> Disturbance {
        let [faults, wait_or_switches, longest_wait_ns, steal_ns, own_wait_ns, throttled_ns] =
            self.get();
        let is_known = |bit: u16| self.known & bit != 0;
        let half = |bit: u16, shift: u32| {
            let word = faults.unwrap_or_default() >> shift;
            is_known(bit).then_some(word & u64::from(u32::MAX))
        };
        let are_switches = is_known(ARE_SWITCHES);
        Disturbance {
            involuntary_switches: wait_or_switches.filter(|_| are_switches),
            run_queue_wait_ns: wait_or_switches.filter(|_| !are_switches),
            longest_wait_ns,
            steal_ns,
            own_wait_ns,
            throttled_ns,
            page_faults: half(HAS_PAGE_FAULTS, 0),
            disk_faults: half(HAS_DISK_FAULTS, u32::BITS),
            ..Disturbance::default()
        }
    }
}

/// Among the bits of known figures: the second is switches, which are read only where the waits are not known.
const ARE_SWITCHES: u16 = 1 << 6;
/// The lower half of the first figure is known.
const HAS_PAGE_FAULTS: u16 = 1 << 7;
/// Its upper half.
const HAS_DISK_FAULTS: u16 = 1 << 8;

impl From<&Disturbance> for Figures {
    fn from(disturbance: &Disturbance) -> Self {
        let Disturbance {
            involuntary_switches,
            run_queue_wait_ns,
            longest_wait_ns,
            steal_ns,
            own_wait_ns,
            throttled_ns,
            page_faults,
            disk_faults,
            ..
        } = *disturbance;
        // Four billion faults in a pass are as many as more.
        let half = |faults: Option<u64>| faults.unwrap_or_default().min(u32::MAX.into());
        let faults = half(page_faults) | half(disk_faults) << u32::BITS;
        let mut figures = Self::new([
            page_faults.or(disk_faults).map(|_| faults),
            run_queue_wait_ns.or(involuntary_switches),
            longest_wait_ns,
            steal_ns,
            own_wait_ns,
            throttled_ns,
        ]);
        for (is_so, bit) in [
            (run_queue_wait_ns.is_none() && involuntary_switches.is_some(), ARE_SWITCHES),
            (page_faults.is_some(), HAS_PAGE_FAULTS),
            (disk_faults.is_some(), HAS_DISK_FAULTS),
        ] {
            figures.known |= if is_so { bit } else { 0 };
        }
        figures
    }
}

impl Counted {
    pub(crate) fn new(brick: NameIdx, reading: &CounterReading) -> Self {
        let CounterReading {
            cycles,
            instructions,
            llc_misses,
            branch_misses,
            wanted_ns,
            counted_ns,
        } = *reading;
        let figures = Figures::new([cycles, instructions, llc_misses, branch_misses, None, None]);
        Self { brick, figures, wanted_ns, counted_ns }
    }

    pub(crate) fn reading(&self) -> CounterReading {
        let [cycles, instructions, llc_misses, branch_misses, ..] = self.figures.get();
        let Self { wanted_ns, counted_ns, .. } = *self;
        CounterReading { cycles, instructions, llc_misses, branch_misses, wanted_ns, counted_ns }
    }
}

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SPAN: Span = Span {
        kind: SpanKind::Layer,
        start: 1,
        duration: 2,
        exclusive: 3,
        work: Work { elements: 4, flops: 5, bytes: 6, data: Data::Weights(2) },
        name: 9,
        layer: 10,
        flags: flag::MOVED | flag::OVERLAPPING,
        source: Source::HostOrder,
    };

    const PLAIN: Span = Span { kind: SpanKind::Brick, flags: 0, source: Source::Host, ..SPAN };

    #[test]
    fn what_bytes_are_is_kept_where_it_fits_and_amounts_always() {
        let work = |elements, bytes, data| Work { elements, flops: 7, bytes, data };
        let most = u64::from(u32::MAX);
        for kept in [
            work(u64::MAX, 5, Data::Unstated),
            work(u64::MAX, 5, Data::Activations),
            work(most, 1 << 40, Data::Weights((1 << 40) - most)),
            work(0, 0, Data::Weights(0)),
            work(1, 9, Data::Kv(9)),
        ] {
            assert_eq!(unpacked_work(packed_work(kept)), kept);
        }
        // Too many elements, too many activations, and less than nothing of them.
        for lost in [
            work(most + 1, 9, Data::Weights(8)),
            work(1, 1 << 40, Data::Kv(1)),
            work(1, 8, Data::Weights(9)),
        ] {
            let unstated = Work { data: Data::Unstated, ..lost };
            assert_eq!(unpacked_work(packed_work(lost)), unstated);
        }
        // More bytes than a row has room for: 4.6 exabytes.
        let all = work(1, u64::MAX, Data::Unstated);
        assert_eq!(unpacked_work(packed_work(all)), Work { bytes: MOST_BYTES, ..all });
    }

    fn record(span: Span) -> Record {
        Record { pass: 7, order: 8, event: Event::Span(span) }
    }

    /// An event of each kind that is neither a brick nor a kernel.
    fn other_events() -> Vec<Event> {
        let mark = Mark { at: 11, number: 12 };
        let figures = Figures::new([Some(1), None, Some(0), Some(u64::MAX), Some(6), None]);
        let reading = CounterReading {
            cycles: Some(5),
            branch_misses: Some(0),
            wanted_ns: 3,
            counted_ns: 2,
            ..CounterReading::default()
        };
        let ends = Phase::ALL.map(|phase| {
            Event::Pass(PassEnd { phase, start: 1, wall: 2, covered: 3, tokens: 4, position: 5 })
        });
        let work = TileWork { tiles: 5, elements: 6, flops: 7 };
        let others = [
            Event::Span(SPAN),
            Event::NestedPass,
            Event::Abandoned,
            Event::Discarded,
            Event::Tile(Tile { level: 2, start: 3, duration: 4, work }),
            Event::Product(Product { start: 3, longest: 4, offered: 5 }),
            Event::Load(figures),
            Event::LoadUnknown,
            Event::LoadAtMost(figures),
            Event::Counters(Counted::new(9, &reading)),
            Event::HandOff(mark),
            Event::TakeOver(mark),
        ];
        others.into_iter().chain(ends).collect()
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let row = Row::default();
        let spans =
            [SpanKind::Brick, SpanKind::Kernel].map(|kind| Event::Span(Span { kind, ..SPAN }));
        for event in other_events().into_iter().chain(spans) {
            let record = Record { event, ..record(SPAN) };
            row.store(&record);
            assert_eq!(row.records().collect::<Vec<_>>(), [record]);
        }
    }

    #[test]
    fn every_kind_of_a_row_is_read_back() {
        for (kind, bits) in Kind::ALL.into_iter().zip(0..) {
            assert_eq!(kind as u8, bits);
        }
    }

    #[test]
    fn a_brick_and_its_kernel_are_read_back_as_two() {
        let brick = record(PLAIN);
        let kernel = Span { kind: SpanKind::Kernel, exclusive: 0, name: 65_000, ..PLAIN };
        let kernel = Record { order: brick.order + 1, ..record(kernel) };
        let row = Row::default();
        let home = u64::from(brick.pass) | 99 << 32;
        let what = u64::from(brick.order) << 32 | u64::from(PLAIN.name);
        let times = [PLAIN.start, PLAIN.duration, PLAIN.exclusive];
        let layer = u32::from(PLAIN.layer) << 16;
        row.store_brick_kernel(times, PLAIN.work, [home, what], layer, 65_000);
        assert!(row.is_brick_kernel() && !row.is_outside());
        assert_eq!([row.load_plain(), row.load_plain_outside()], [None; 2]);
        assert_eq!(row.records().collect::<Vec<_>>(), [kernel, brick]);
        row.store_brick_kernel(times, PLAIN.work, [0, what], layer, 0);
        assert!(row.is_brick_kernel() && row.is_outside());
        assert_eq!([row.load_plain(), row.load_plain_outside()], [None; 2]);
        row.store_brick(times, PLAIN.work, [home, what], layer);
        assert!(!row.is_brick_kernel());
        assert_eq!(row.records().collect::<Vec<_>>(), [brick]);
        row.store_kernel(times, PLAIN.work, [home, what], layer);
        let kernel = record(Span { kind: SpanKind::Kernel, ..PLAIN });
        assert_eq!(row.records().collect::<Vec<_>>(), [kernel]);
    }

    #[test]
    fn what_stands_before_timestamps_is_read_back() {
        let block = Block {
            template: u32::MAX,
            timestamps: 17,
            position: 1 << 40,
            pass: 7,
            order: u32::MAX - 1,
            layer: NONE,
        };
        let row = Row::default();
        row.store_block(&block);
        assert!(row.is_block() && !row.is_brick_kernel());
        assert!(row.load_plain().is_none() && !row.ends_pass());
        assert_eq!(row.load_block(), block);
        row.store_block(&Block { pass: 0, ..block });
        assert_eq!([row.load_plain(), row.load_plain_outside()], [None; 2]);
        assert_eq!([0, 1, 8, 9].map(Block::rows), [0, 1, 1, 2]);
        row.store_timestamps([10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!([0, 7, 8, 18].map(|number| row.timestamp(number)), [10, 17, 10, 12]);
    }

    #[test]
    fn only_bricks_and_kernels_with_nothing_else_to_tell_are_plain() {
        let row = Row::default();
        let load = |record: Record| {
            row.store(&record);
            [row.load_plain(), row.load_plain_outside()]
        };
        for span in [PLAIN, Span { kind: SpanKind::Kernel, ..PLAIN }] {
            assert_eq!(load(record(span)), [Some(span.timing(7)), None]);
            let outside = Record { pass: 0, ..record(span) };
            assert_eq!(load(outside), [Some(span.timing(0)); 2]);
        }
        for pass in [0, 7] {
            let load = |event| load(Record { pass, order: 8, event });
            assert_eq!(load(Event::Span(Span { flags: flag::MOVED, ..PLAIN })), [None; 2]);
            assert_eq!(load(Event::Span(Span { source: Source::HostOrder, ..PLAIN })), [None; 2]);
            for event in other_events() {
                assert_eq!(load(event), [None; 2]);
            }
        }
    }

    #[test]
    fn only_the_end_of_a_pass_and_its_abandonment_end_it() {
        let row = Row::default();
        for event in other_events() {
            let ends = matches!(event, Event::Pass(_) | Event::Abandoned | Event::Discarded);
            row.store(&Record { pass: 7, order: 0, event });
            assert_eq!(row.ends_pass(), ends, "{event:?}");
            row.store(&Record { pass: 0, order: 0, event });
            assert!(!row.ends_pass());
        }
    }

    #[test]
    fn figures_that_are_not_known_stay_unknown() {
        let waits = Disturbance {
            run_queue_wait_ns: Some(0),
            throttled_ns: Some(7),
            page_faults: Some(u32::MAX.into()),
            ..Disturbance::default()
        };
        let switches = Disturbance {
            involuntary_switches: Some(5),
            disk_faults: Some(0),
            ..Disturbance::default()
        };
        for disturbance in [waits, switches, Disturbance::default()] {
            assert_eq!(Figures::from(&disturbance).disturbance(), disturbance);
        }
        let reading = CounterReading {
            cycles: Some(5),
            branch_misses: Some(0),
            wanted_ns: 3,
            counted_ns: 2,
            ..CounterReading::default()
        };
        let row = Row::default();
        row.store(&Record { pass: 1, order: 2, event: Event::Counters(Counted::new(3, &reading)) });
        let Some(Record { event: Event::Counters(counted), .. }) = row.load() else {
            panic!("{row:?}");
        };
        assert_eq!((counted.brick, counted.reading()), (3, reading));
    }
}
