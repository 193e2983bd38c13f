//! One record of a log, as its own thread writes it and as anyone reads it back.

use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::brick::{Source, Work};
use brickscope_profile::machine::{CounterReading, Disturbance};

use super::{NONE, NameIdx};
use crate::sync::AtomicU64;

/// A cache line: start, duration, exclusive, elements, flops, bytes, then
/// `flags << 48 | source << 40 | kind << 32 | pass` and `order << 32 | layer << 16 | name`: so that
/// the words of an [`Open`](super::Open) become these with little ado.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Row([AtomicU64; 8]);

impl Default for Row {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// In the place of a kind: a brick and the one kernel that is all of it. The kernel's name is where flags
/// would be, and all else is the brick's. Read back it is two records.
const BOTH: u64 = 255 << 32;

/// In the place of a kind: the rows that come next are readings of the clock, eight in each, of which a script
/// says what they are of. Read back they are as many records as that has spans.
const TOLD: u64 = 254 << 32;
const KIND: u64 = 0xff << 32;

const KERNEL: u64 = (Kind::Kernel as u64) << 32;

/// What stands before readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// The number of the script in the log.
    pub(super) script: u32,
    pub(super) readings: usize,
    pub(super) position: u64,
    pub(super) pass: u32,
    /// The place of the first span in the order of begins.
    pub(super) order: u32,
    /// That of spans that the script has in none.
    pub(super) layer: u16,
}

impl Told {
    /// How many rows follow with the readings.
    pub(super) fn rows(readings: usize) -> usize {
        readings.div_ceil(8)
    }
}

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A brick: takes part in exclusive time.
    Brick = 0,
    /// A kernel launch inside a brick: detail, which explains no time that its brick doesn't.
    Kernel = 1,
    /// A layer around bricks: likewise.
    Layer = 2,
    /// A pass that ended: its wall, and what its bricks cover of it as `exclusive`; tokens as
    /// `elements`, the position as `flops`, the phase as `name`.
    Pass = 3,
    /// A pass that never ended: what was recorded in it counts outside of passes.
    Abandoned = 4,
    /// A tile; its level as `name`.
    Tile = 5,
    /// What disturbed the passes that ended since the last such row: see [`Record::disturbance`].
    Load = 6,
    /// What was counted in the brick whose end came last: see [`Record::counters`].
    Counters = 7,
    /// What the thread did up to here, others may wait for; the number as `elements`.
    HandOff = 8,
    /// What the thread does from here on had to wait for the hand-off of this number.
    TakeOver = 9,
}

impl Kind {
    /// Whether the trace shows it as a span.
    pub(crate) fn is_span(self) -> bool {
        matches!(self, Self::Brick | Self::Kernel | Self::Layer)
    }

    fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Brick,
            1 => Self::Kernel,
            2 => Self::Layer,
            3 => Self::Pass,
            4 => Self::Abandoned,
            5 => Self::Tile,
            6 => Self::Load,
            7 => Self::Counters,
            8 => Self::HandOff,
            _ => Self::TakeOver,
        }
    }
}

/// What went otherwise than its caller meant. None of it loses a measured time.
pub(crate) mod flag {
    /// It ended on another thread than it began on.
    pub(crate) const MOVED: u16 = 1;
    /// It began and ended in different passes.
    pub(crate) const STRADDLING: u16 = 2;
    /// It overlaps another brick without nesting.
    pub(crate) const OVERLAPPING: u16 = 4;
    /// A pass was begun inside this one.
    pub(crate) const NESTED_PASS: u16 = 8;
    /// Of a load: nothing is known of the passes before.
    pub(crate) const ANEW: u16 = 16;
    /// Of figures: from this bit on, one for each that is known.
    pub(crate) const KNOWN: u16 = 256;
}

/// One record, read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) start: u64,
    pub(crate) duration: u64,
    pub(crate) exclusive: u64,
    pub(crate) work: Work,
    pub(crate) pass: u32,
    /// Its place in the order of begins; its place in the log is that of ends.
    pub(crate) order: u32,
    pub(crate) name: NameIdx,
    pub(crate) layer: u16,
    pub(crate) flags: u16,
    pub(crate) kind: Kind,
    pub(crate) source: Source,
}

impl Record {
    /// A record of no time, and no name.
    pub(super) fn nothing(pass: u32) -> Self {
        Self {
            start: 0,
            duration: 0,
            exclusive: 0,
            work: Work::default(),
            pass,
            order: 0,
            name: NONE,
            layer: NONE,
            flags: 0,
            kind: Kind::Brick,
            source: Source::Host,
        }
    }

    #[inline(always)]
    pub(crate) fn span(&self) -> Span {
        let Self { duration, exclusive, work, pass, name, source, .. } = *self;
        Span { duration, exclusive, work, pass, name, source }
    }

    /// Inlined, so that what is constant at the caller is packed by the compiler.
    #[inline(always)]
    pub(super) fn packed(&self) -> [u64; 8] {
        let Self { start, duration, exclusive, work, .. } = *self;
        let how = u64::from(self.flags) << 48
            | (self.source as u64) << 40
            | (self.kind as u64) << 32
            | u64::from(self.pass);
        let what = u64::from(self.order) << 32 | u64::from(self.layer) << 16 | u64::from(self.name);
        [start, duration, exclusive, work.elements, work.flops, work.bytes, how, what]
    }
}

/// Of a brick or a kernel, what there are sums of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) duration: u64,
    pub(crate) exclusive: u64,
    pub(crate) work: Work,
    pub(crate) pass: u32,
    pub(crate) name: NameIdx,
    pub(crate) source: Source,
}

/// Up to four figures, of which some may not be known, as flags and numbers.
fn to_figures(figures: [Option<u64>; 4]) -> (u16, [u64; 4]) {
    let known = figures.iter().zip(0..).filter(|(figure, _)| figure.is_some());
    let flags = known.fold(0, |flags, (_, i)| flags | flag::KNOWN << i);
    (flags, figures.map(Option::unwrap_or_default))
}

fn from_figures(flags: u16, numbers: [u64; 4]) -> [Option<u64>; 4] {
    std::array::from_fn(|i| (flags & flag::KNOWN << i != 0).then_some(numbers[i]))
}

impl Record {
    /// This record, as one that carries what disturbed a pass.
    pub(crate) fn with_disturbance(self, disturbance: &Disturbance) -> Self {
        let Disturbance {
            involuntary_switches, run_queue_wait_ns, longest_wait_ns, steal_ns, ..
        } = *disturbance;
        let figures = [involuntary_switches, run_queue_wait_ns, longest_wait_ns, steal_ns];
        let (flags, [start, duration, exclusive, elements]) = to_figures(figures);
        let work = Work::elements(elements);
        Self { kind: Kind::Load, flags, start, duration, exclusive, work, ..self }
    }

    pub(crate) fn disturbance(&self) -> Disturbance {
        let numbers = [self.start, self.duration, self.exclusive, self.work.elements];
        let [involuntary_switches, run_queue_wait_ns, longest_wait_ns, steal_ns] =
            from_figures(self.flags, numbers);
        Disturbance {
            involuntary_switches,
            run_queue_wait_ns,
            longest_wait_ns,
            steal_ns,
            ..Disturbance::default()
        }
    }

    /// This record, as one that carries what was counted in a brick.
    pub(crate) fn with_counters(self, reading: &CounterReading) -> Self {
        let CounterReading { cycles, instructions, llc_misses, branch_misses, .. } = *reading;
        let (flags, [start, duration, exclusive, elements]) =
            to_figures([cycles, instructions, llc_misses, branch_misses]);
        let work = Work { elements, flops: reading.wanted_ns, bytes: reading.counted_ns };
        Self { kind: Kind::Counters, flags, start, duration, exclusive, work, ..self }
    }

    pub(crate) fn counters(&self) -> CounterReading {
        let numbers = [self.start, self.duration, self.exclusive, self.work.elements];
        let [cycles, instructions, llc_misses, branch_misses] = from_figures(self.flags, numbers);
        CounterReading {
            cycles,
            instructions,
            llc_misses,
            branch_misses,
            wanted_ns: self.work.flops,
            counted_ns: self.work.bytes,
        }
    }
}

impl Row {
    /// What [`Record::packed`] makes of a brick or a kernel of which there is nothing else to tell.
    /// `home` and `what` are as in an [`Open`](super::Open), the layer is shifted to its place.
    #[inline(always)]
    pub(super) fn ordinary(
        [start, duration, exclusive]: [u64; 3],
        work: Work,
        [home, what]: [u64; 2],
        layer: u32,
        kind: Kind,
    ) -> [u64; 8] {
        let how = u64::from(home as u32) | (kind as u64) << 32;
        [
            start,
            duration,
            exclusive,
            work.elements,
            work.flops,
            work.bytes,
            how,
            what | u64::from(layer),
        ]
    }

    /// A brick and the one kernel that is all of it, likewise; the kernel comes after the brick in the order
    /// of begins.
    #[inline(always)]
    pub(super) fn both(
        times: [u64; 3],
        work: Work,
        [home, what]: [u64; 2],
        layer: u32,
        kernel: NameIdx,
    ) -> [u64; 8] {
        let [start, duration, exclusive, elements, flops, bytes, how, what] =
            Self::ordinary(times, work, [home, what], layer, Kind::Brick);
        let how = how | BOTH | u64::from(kernel) << 48;
        [start, duration, exclusive, elements, flops, bytes, how, what]
    }

    /// Whether it is of a brick and its kernel.
    #[inline(always)]
    pub(super) fn is_both(&self) -> bool {
        const KIND_AND_SOURCE: u64 = 0xffff << 32;
        self.0[6].load(Relaxed) & KIND_AND_SOURCE == BOTH
    }

    /// The kernel and the brick, which ends after it, of a row that [is both](Self::is_both).
    #[inline(always)]
    pub(super) fn load_both(&self) -> [Record; 2] {
        let row = self.load();
        let brick = Record { flags: 0, kind: Kind::Brick, ..row };
        let kernel = Record {
            exclusive: 0,
            order: row.order.wrapping_add(1),
            name: row.flags,
            kind: Kind::Kernel,
            ..brick
        };
        [kernel, brick]
    }

    /// Makes it what stands before readings.
    pub(super) fn store_told(&self, told: &Told) {
        let Told { script, readings, position, pass, order, layer } = *told;
        let how = TOLD | u64::from(pass);
        let what = u64::from(order) << 32 | u64::from(layer) << 16;
        self.store([script.into(), readings as u64, position, 0, 0, 0, how, what]);
    }

    #[inline(always)]
    pub(super) fn is_told(&self) -> bool {
        self.0[6].load(Relaxed) & KIND == TOLD
    }

    /// If it [is](Self::is_told) what stands before readings.
    pub(super) fn load_told(&self) -> Told {
        let [script, readings, position, _, _, _, how, what] = self.words();
        Told {
            script: script as u32,
            readings: readings as usize,
            position,
            pass: how as u32,
            order: (what >> 32) as u32,
            layer: (what >> 16) as u16,
        }
    }

    /// A reading in this row, by its number among all.
    #[inline(always)]
    pub(super) fn reading(&self, number: usize) -> u64 {
        self.0[number % 8].load(Relaxed)
    }

    /// All that it is a record of, in the order of ends, where it is by itself.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + use<> {
        let records =
            if self.is_both() { self.load_both().map(Some) } else { [None, Some(self.load())] };
        records.into_iter().flatten()
    }

    #[inline(always)]
    fn words(&self) -> [u64; 8] {
        std::array::from_fn(|i| self.0[i].load(Relaxed))
    }

    #[inline(always)]
    pub(super) fn store(&self, values: [u64; 8]) {
        for (cell, value) in self.0.iter().zip(values) {
            cell.store(value, Relaxed);
        }
    }

    /// A brick or a kernel, timed by the host's clock, of which there is nothing else to tell: nearly
    /// all rows are of such.
    #[inline(always)]
    pub(super) fn load_ordinary(&self) -> Option<Span> {
        let how = self.0[6].load(Relaxed);
        // Flags, source and all bits of the kind but the one that tells kernels from bricks.
        let is_ordinary = how & !(KERNEL | u64::from(u32::MAX)) == 0;
        is_ordinary.then(|| self.span_of(how as u32))
    }

    /// The same, if it is of no pass.
    #[inline(always)]
    pub(super) fn load_ordinary_outside(&self) -> Option<Span> {
        (self.0[6].load(Relaxed) & !KERNEL == 0).then(|| self.span_of(0))
    }

    #[inline(always)]
    fn span_of(&self, pass: u32) -> Span {
        let word = |i: usize| self.0[i].load(Relaxed);
        Span {
            duration: word(1),
            exclusive: word(2),
            work: Work { elements: word(3), flops: word(4), bytes: word(5) },
            pass,
            name: word(7) as u16,
            source: Source::Host,
        }
    }

    /// Whether it is of no pass.
    #[inline(always)]
    pub(super) fn is_outside(&self) -> bool {
        self.0[6].load(Relaxed) as u32 == 0
    }

    /// Whether it says how the pass ended that the rows before it are of.
    #[inline(always)]
    pub(super) fn ends_pass(&self) -> bool {
        const PASS: u64 = (Kind::Pass as u64) << 32;
        const ABANDONED: u64 = (Kind::Abandoned as u64) << 32;
        // A pass inside a pass has no number, and ends none.
        let how = self.0[6].load(Relaxed);
        matches!(how & KIND, PASS | ABANDONED) && how as u32 != 0
    }

    /// The record of a row that is of one thing.
    #[inline(always)]
    pub(super) fn load(&self) -> Record {
        let [start, duration, exclusive, elements, flops, bytes, how, what] = self.words();
        Record {
            start,
            duration,
            exclusive,
            work: Work { elements, flops, bytes },
            pass: how as u32,
            order: (what >> 32) as u32,
            name: what as u16,
            layer: (what >> 16) as u16,
            flags: (how >> 48) as u16,
            kind: Kind::from_bits((how >> 32) as u8),
            source: if (how >> 40) as u8 == 0 { Source::Host } else { Source::HostOrder },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PLAIN: Record = Record {
        start: 1,
        duration: 2,
        exclusive: 3,
        work: Work { elements: 4, flops: 5, bytes: 6 },
        pass: 7,
        order: 8,
        name: 9,
        layer: 10,
        flags: flag::MOVED | flag::OVERLAPPING,
        kind: Kind::Layer,
        source: Source::HostOrder,
    };

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let row = Row::default();
        for bits in 0..10 {
            let record = Record { kind: Kind::from_bits(bits), ..PLAIN };
            assert_eq!(record.kind as u8, bits);
            row.store(record.packed());
            assert_eq!(row.records().collect::<Vec<_>>(), [record]);
        }
    }

    #[test]
    fn a_brick_and_its_kernel_are_read_back_as_two() {
        let brick = Record { flags: 0, kind: Kind::Brick, source: Source::Host, ..PLAIN };
        let kernel = Record {
            exclusive: 0,
            order: brick.order + 1,
            name: 65_000,
            kind: Kind::Kernel,
            ..brick
        };
        let row = Row::default();
        let home = u64::from(brick.pass) | 99 << 32;
        let what = u64::from(brick.order) << 32 | u64::from(brick.name);
        let times = [brick.start, brick.duration, brick.exclusive];
        let layer = u32::from(brick.layer) << 16;
        row.store(Row::both(times, brick.work, [home, what], layer, kernel.name));
        assert!(row.is_both() && !row.is_outside());
        assert_eq!([row.load_ordinary(), row.load_ordinary_outside()], [None; 2]);
        assert_eq!(row.records().collect::<Vec<_>>(), [kernel, brick]);
        row.store(Row::both(times, brick.work, [0, what], layer, 0));
        assert!(row.is_both() && row.is_outside());
        assert_eq!([row.load_ordinary(), row.load_ordinary_outside()], [None; 2]);
        row.store(brick.packed());
        assert!(!row.is_both());
        assert_eq!(row.records().collect::<Vec<_>>(), [brick]);
    }

    #[test]
    fn what_stands_before_readings_is_read_back() {
        let told = Told {
            script: u32::MAX,
            readings: 17,
            position: 1 << 40,
            pass: 7,
            order: u32::MAX - 1,
            layer: NONE,
        };
        let row = Row::default();
        row.store_told(&told);
        assert!(
            row.is_told() && !row.is_both() && row.load_ordinary().is_none() && !row.ends_pass()
        );
        assert_eq!(row.load_told(), told);
        row.store_told(&Told { pass: 0, ..told });
        assert_eq!([row.load_ordinary(), row.load_ordinary_outside()], [None; 2]);
        assert_eq!([0, 1, 8, 9].map(Told::rows), [0, 1, 1, 2]);
        row.store([10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!([0, 7, 8, 18].map(|number| row.reading(number)), [10, 17, 10, 12]);
    }

    #[test]
    fn only_bricks_and_kernels_with_nothing_else_to_tell_are_ordinary() {
        let row = Row::default();
        let plain = Record { flags: 0, kind: Kind::Brick, source: Source::Host, ..PLAIN };
        let load = |record: Record| {
            row.store(record.packed());
            [row.load_ordinary(), row.load_ordinary_outside()]
        };
        for record in [plain, Record { kind: Kind::Kernel, ..plain }] {
            assert_eq!(load(record), [Some(record.span()), None]);
            let outside = Record { pass: 0, ..record };
            assert_eq!(load(outside), [Some(outside.span()); 2]);
        }
        for pass in [0, plain.pass] {
            let plain = Record { pass, ..plain };
            assert_eq!(load(Record { flags: flag::MOVED, ..plain }), [None; 2]);
            assert_eq!(load(Record { source: Source::HostOrder, ..plain }), [None; 2]);
            for bits in 2..10 {
                assert_eq!(load(Record { kind: Kind::from_bits(bits), ..plain }), [None; 2]);
            }
        }
    }

    #[test]
    fn figures_that_are_not_known_stay_unknown() {
        let disturbance = Disturbance { run_queue_wait_ns: Some(0), ..Disturbance::default() };
        assert_eq!(PLAIN.with_disturbance(&disturbance).disturbance(), disturbance);
        let reading = CounterReading {
            cycles: Some(5),
            branch_misses: Some(0),
            wanted_ns: 3,
            counted_ns: 2,
            ..CounterReading::default()
        };
        let row = Row::default();
        row.store(PLAIN.with_counters(&reading).packed());
        assert_eq!(row.load().counters(), reading);
    }
}
