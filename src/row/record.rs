//! What a record says, as it is read back from rows.

use brickscope_profile::name::NameIdx;
use brickscope_profile::{CounterReading, Disturbance, Phase, Source, Work};

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
    pub(super) known: u16,
    pub(super) numbers: [u64; 6],
}

/// What was counted in a brick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) brick: NameIdx,
    pub(super) figures: Figures,
    pub(super) wanted_ns: u64,
    pub(super) counted_ns: u64,
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
    pub(super) fn new(figures: [Option<u64>; 6]) -> Self {
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
