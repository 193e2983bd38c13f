//! A thread's log: what spans and passes need of it, and how a record gets into it.

use std::sync::atomic::Ordering::{Relaxed, Release};

use brickscope_profile::CounterReading;

use super::drain::Drained;
use super::thread::{self, Thread};
use super::{NO_LOG, TAIL};
use crate::machine;
use crate::machine::LoadReading;
use crate::row::{Event, NONE, NameIdx, Record, Row, flag};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, OnceLock, lock};

/// Rows for tiles, which are only summed.
const TILE_ROWS: usize = 256;

/// What a log's [place](ThreadLog::place) is made of: the number of a row, and above it a layer and a count of ends.
const LAYER_SHIFT: u32 = 32;
const ENDED_SHIFT: u32 = 48;

/// Added to the count of ends where it is not to agree with what open spans remember. The fraction of the golden ratio:
/// its multiples stay far from 0, where a few open spans would make up for them.
const UNSETTLED: u64 = 0x9E37;

/// The key of a log that is nobody's yet.
const NO_KEY: u64 = u64::MAX;

static NEXT_LOG: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

/// A span that has begun. Four words, each stored and compared at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(super) start: u64,
    pub(super) covered: u64,
    /// The log and the pass that it began in: see [`ThreadLog::home`]. 0 if recording was off, so
    /// that turning it on in mid-span can't invent a duration.
    pub(super) home: u64,
    /// `order << 32 | ended << 16 | name`; the order is its place in the order of begins on its thread, and `ended` is the
    /// log's [count of ends](ThreadLog::place) when it began.
    pub(super) what: u64,
}

impl Open {
    pub(crate) const OFF: Self = Self { start: 0, covered: 0, home: 0, what: NONE as u64 };

    #[inline(always)]
    pub(crate) fn is_off(&self) -> bool {
        self.home == 0
    }

    /// The kernel that began together with this brick: see [`Recorder::begin_both`](super::Recorder::begin_both).
    #[inline(always)]
    pub(crate) fn inner(self, kernel: NameIdx) -> Self {
        let order = self.order().wrapping_add(1);
        Self {
            what: u64::from(order) << 32 | u64::from(self.ended()) << 16 | u64::from(kernel),
            ..self
        }
    }

    /// In two pairs, each of which goes to a function in registers.
    #[inline(always)]
    pub(super) fn halves(self) -> ((u64, u64), (u64, u64)) {
        ((self.start, self.covered), (self.home, self.what))
    }

    #[inline(always)]
    pub(super) fn from_halves((start, covered): (u64, u64), (home, what): (u64, u64)) -> Self {
        Self { start, covered, home, what }
    }

    /// The serial of the log that it began in.
    pub(super) fn log(&self) -> u32 {
        (self.home >> 32) as u32
    }

    pub(super) fn pass(&self) -> u32 {
        self.home as u32
    }

    #[inline(always)]
    pub(super) fn order(&self) -> u32 {
        (self.what >> 32) as u32
    }

    fn ended(&self) -> u16 {
        (self.what >> 16) as u16
    }

    pub(super) fn name(&self) -> NameIdx {
        self.what as NameIdx
    }

    /// As if it had begun in no log, but in the same pass.
    pub(super) fn homeless(self) -> Self {
        Self { home: u64::from(NO_LOG) << 32 | u64::from(self.pass()), ..self }
    }
}

/// Where a thread's spans come together. Only its own thread writes to it; anyone may read.
///
/// Single-writer, hence plain loads and stores instead of read-modify-write operations. Aligned, so
/// that no other thread's log shares a cache line, nor the pair of lines that is fetched together.
///
/// All that an ordinary span needs is in the first line, since between two bricks the caches are full
/// of weights.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ThreadLog {
    /// Whose it is and for which generation: [`Thread::key`]. Changed while `drained` is locked.
    pub(super) key: AtomicU64,
    /// `serial << 32 | pass`: what a span that begins now belongs to. The serial is unique over all
    /// recorders of the process, and new whenever the owner changes; never 0. The pass is 0 outside
    /// of passes.
    pub(super) home: AtomicU64,
    /// How much of this thread's time its ended spans explain.
    pub(super) covered: AtomicU64,
    /// When the last brick ended.
    pub(super) last_end: AtomicU64,
    /// How many spans were begun.
    pub(super) begun: AtomicU64,
    /// `ended << 48 | layer << 32 | row`. The row is the one to write next; stored with `Release` after the row before it,
    /// so that a reader who sees it (`Acquire`) sees that row. The layer is the one that the thread works on. `ended`
    /// counts spans that ended, modulo 65 536: see [`holds_open`](Self::holds_open).
    pub(super) place: AtomicU64,
    pub(super) rows: Box<[Row]>,
    /// Records for which there was neither room nor a way to make some.
    pub(super) homeless: AtomicU64,
    /// Layers that ended while another one or a brick was open that began in them, or the other way round.
    pub(super) crossing_layers: AtomicU64,
    /// Layers that ended in another pass than they began in.
    pub(super) straddling_layers: AtomicU64,
    /// Spans that began in passes which ended before them.
    pub(super) left_open: AtomicU64,
    /// How often the count of ends was [unsettled](Self::unsettle).
    unsettled: AtomicU64,
    /// How many of `rows`, from the first, are never written twice.
    pub(super) kept: usize,
    /// When to look next at what others do; 0 for whenever there is an occasion. Here, so that a pass which doesn't
    /// look finds out by a line that it needs anyway.
    pub(super) look_due: AtomicU64,
    /// The same at the begin of a pass: later, unless there was a pause.
    pub(super) pause_due: AtomicU64,
    /// The generation that `key` is of; 0 while it is nobody's. Changed while `drained` is locked.
    pub(super) generation: AtomicU32,
    pub(super) tiles: OnceLock<Box<Tiles>>,
    /// What counters said when bricks began that have not ended, by their order.
    pub(super) counting: Mutex<Vec<(u32, CounterReading)>>,
    /// The template that was used last: where it lies, and its number.
    pub(super) template: [AtomicUsize; 2],
    /// The last look at what others do.
    pub(super) load: Mutex<Option<LoadReading>>,
    /// Bricks that ended while others seemed to be open that had begun inside them.
    pub(super) crossings: Crossings,
    /// Likewise layers.
    pub(super) crossed_layers: Crossings,
    pub(super) drained: Mutex<Drained>,
}

// What model checkers put in the place of an atomic is larger.
#[cfg(not(loom))]
const _: () = assert!(std::mem::offset_of!(ThreadLog, homeless) <= 64);

#[derive(Debug)]
pub(super) struct Tiles {
    pub(super) rows: [Row; TILE_ROWS],
    pub(super) next: AtomicUsize,
}

/// How people and the system call a thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owner {
    pub(crate) name: Option<String>,
    pub(crate) tid: Option<u32>,
}

impl Owner {
    fn here() -> Self {
        Self {
            name: std::thread::current().name().map(str::to_owned),
            tid: machine::os::thread_id(),
        }
    }
}

impl ThreadLog {
    pub(super) fn new(kept: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            key: AtomicU64::new(NO_KEY),
            generation: AtomicU32::new(0),
            home: zero(),
            covered: zero(),
            last_end: zero(),
            begun: zero(),
            place: AtomicU64::new(u64::from(NONE) << LAYER_SHIFT),
            homeless: zero(),
            crossing_layers: zero(),
            straddling_layers: zero(),
            left_open: zero(),
            unsettled: zero(),
            rows: Row::zeros(kept.saturating_add(TAIL)),
            kept,
            look_due: zero(),
            pause_due: zero(),
            tiles: OnceLock::new(),
            counting: Mutex::default(),
            template: [AtomicUsize::new(0), AtomicUsize::new(0)],
            load: Mutex::default(),
            crossings: Crossings::default(),
            crossed_layers: Crossings::default(),
            drained: Mutex::default(),
        }
    }

    /// Makes the log the calling thread's.
    pub(super) fn adopt(&self, thread: Thread, generation: u32, sums_layers: bool) {
        let mut drained = lock(&self.drained);
        if self.generation.load(Relaxed) == generation {
            // The thread before it has ended, and its number was given out again.
            self.drain(&mut drained);
            drained.leave(self);
        } else {
            *drained = Drained::default();
            self.template[0].store(0, Relaxed);
            self.begun.store(0, Relaxed);
            self.homeless.store(0, Relaxed);
            self.crossing_layers.store(0, Relaxed);
            self.straddling_layers.store(0, Relaxed);
            self.left_open.store(0, Relaxed);
        }
        *lock(&self.load) = None;
        self.look_due.store(0, Relaxed);
        self.pause_due.store(0, Relaxed);
        lock(&self.counting).clear();
        if let Some(tiles) = self.tiles.get() {
            tiles.next.store(0, Relaxed);
        }
        self.place.store(u64::from(NONE) << LAYER_SHIFT, Relaxed);
        self.covered.store(0, Relaxed);
        self.last_end.store(0, Relaxed);
        let serial = NEXT_LOG.fetch_add(1, Relaxed);
        drained.begin(serial, Owner::here(), self.kept == 0, sums_layers);
        self.home.store(u64::from(serial) << 32, Relaxed);
        self.generation.store(generation, Relaxed);
        self.key.store(thread.key_of(generation), Relaxed);
    }

    /// Notes when its making began and ended, for the thread that made and [adopted](Self::adopt) it.
    pub(super) fn note_preparation(&self, start: u64, end: u64) {
        lock(&self.drained).prepared = Some([start, end]);
    }

    /// The serial that the next log will have, or one after it.
    pub(super) fn next_serial() -> u32 {
        NEXT_LOG.load(Relaxed)
    }

    pub(super) fn serial(&self) -> u32 {
        (self.home.load(Relaxed) >> 32) as u32
    }

    /// The pass that is open; 0 outside of passes.
    pub(super) fn pass(&self) -> u32 {
        self.home.load(Relaxed) as u32
    }

    pub(super) fn set_pass(&self, pass: u32) {
        self.home.store(u64::from(self.serial()) << 32 | u64::from(pass), Relaxed);
        self.set_layer(NONE);
    }

    pub(super) fn layer(&self) -> u16 {
        (self.place.load(Relaxed) >> LAYER_SHIFT) as u16
    }

    pub(super) fn set_layer(&self, layer: u16) {
        let place = self.place.load(Relaxed) & !(u64::from(NONE) << LAYER_SHIFT);
        // Whoever reads the number of the row here sees the rows before it, too.
        self.place.store(place | u64::from(layer) << LAYER_SHIFT, Release);
    }

    /// To be called before a layer of this thread ends: counts it if it crosses another one or a brick that ended in it, or
    /// if it began in another pass. What is open in it may cross it, and is counted when it ends.
    pub(super) fn note_layer_end(&self, open: &Open) {
        let layer = self.layer();
        if open.home != self.home.load(Relaxed) {
            if self.oddity(*open) == flag::STRADDLING {
                add(&self.straddling_layers, 1);
            }
        } else if layer != open.name() && layer != NONE
            || self.crossings.crossed_by(*open).next().is_some()
        {
            add(&self.crossing_layers, 1);
        } else if self.holds_open(open, self.place.load(Relaxed), 1) {
            self.note(&self.crossed_layers, open, 0);
        }
    }

    /// To be called before a brick ends that may be odd: counts it if it began in a layer that has ended.
    pub(super) fn note_layer_crossed_by(&self, open: Open) {
        if self.crossed_layers.crossed_by(open).next().is_some() {
            add(&self.crossing_layers, 1);
        }
    }

    /// How many spans were begun, and how many ended, modulo 65 536.
    pub(super) fn begun_and_ended(&self) -> (u64, u16) {
        let counted = (self.place.load(Relaxed) >> ENDED_SHIFT) as u16;
        let added = self.unsettled.load(Relaxed).wrapping_mul(UNSETTLED) as u16;
        (self.begun.load(Relaxed), counted.wrapping_sub(added))
    }

    /// To be called when a pass ends: counts the spans that began in it, since when so many [had begun and
    /// ended](Self::begun_and_ended), and are open still.
    pub(super) fn note_left_open(&self, (begun, ended): (u64, u16)) {
        let (begun_now, ended_now) = self.begun_and_ended();
        let begun = begun_now.wrapping_sub(begun) as u16;
        let open = begun.wrapping_sub(ended_now.wrapping_sub(ended)) as i16;
        if open > 0 {
            add(&self.left_open, open.unsigned_abs().into());
        }
    }

    /// The number of the row to write next, for whoever wrote the rows before it.
    pub(super) fn next_row(&self) -> usize {
        row_of(self.place.load(Relaxed))
    }

    /// Moves on by some rows that were written, in which so many spans ended.
    #[inline(always)]
    pub(super) fn advance(&self, place: u64, rows: u64, ended: u64) {
        self.place.store(place.wrapping_add(ended << ENDED_SHIFT) + rows, Release);
    }

    /// Whether a span that ends now may hold others that are still open, or others that began before it may have ended in
    /// it. The span ends together with others that began with it, `spans` in all.
    ///
    /// As many spans as began since it did have ended since, if all of them nest. A timer that was dropped never ends, so a
    /// `true` is a suspicion; a `false` is none, since whatever could make up for such a difference
    /// [unsettles](Self::unsettle) the count.
    #[inline(always)]
    pub(super) fn holds_open(&self, open: &Open, place: u64, spans: u64) -> bool {
        let begun = self.begun.load(Relaxed).wrapping_sub(open.what >> 32);
        let ended = (place >> ENDED_SHIFT).wrapping_sub(open.what >> 16);
        begun.wrapping_sub(ended) as u16 != spans as u16
    }

    /// Makes all spans that are open now look [odd](Self::holds_open) when they end.
    pub(super) fn unsettle(&self) {
        add(&self.unsettled, 1);
        self.advance(self.place.load(Relaxed), 0, UNSETTLED);
    }

    /// The first of some spans that begin now, each inside the one before it; but for its start.
    #[inline(always)]
    pub(super) fn begin(&self, name: NameIdx, spans: u64) -> Open {
        let order = self.begun.load(Relaxed);
        self.begun.store(order + spans, Relaxed);
        let (covered, home) = (self.covered.load(Relaxed), self.home.load(Relaxed));
        let ended = self.place.load(Relaxed) >> (ENDED_SHIFT - 16) & 0xFFFF_0000;
        Open { start: 0, covered, home, what: order << 32 | ended | u64::from(name) }
    }

    /// The next `N` rows, and the [place](Self::place) of the first.
    #[inline(always)]
    pub(super) fn next_rows<const N: usize>(&self) -> Option<(u64, &[Row; N])> {
        let place = self.place.load(Relaxed);
        Some((place, self.rows.get(row_of(place)..)?.first_chunk()?))
    }

    /// Writes a record that has the place in the order of begins that the next span has.
    pub(super) fn push_event(&self, pass: u32, event: Event) {
        self.push(&Record { pass, order: self.begun.load(Relaxed) as u32, event });
    }

    /// Writes a record.
    #[inline]
    pub(super) fn push(&self, record: &Record) {
        let place = self.place.load(Relaxed);
        match self.rows.get(row_of(place)) {
            Some(row) => {
                row.store(record);
                self.advance(place, 1, record.is_span().into());
            }
            None => self.push_to_full(record),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_to_full(&self, record: &Record) {
        if self.start_tail_over().is_some() {
            self.rows[self.kept].store(record);
            self.advance(self.place.load(Relaxed), 1, record.is_span().into());
        } else {
            // An allocator that records while the sums allocate, say.
            add(&self.homeless, 1);
        }
    }

    /// Folds the tail, and goes on at its beginning. `None` from within itself.
    pub(super) fn start_tail_over(&self) -> Option<()> {
        thread::not_within_itself(|| {
            let mut drained = lock(&self.drained);
            // Sums allocate, and an allocator may record.
            while !drained.is_up_to(self.next_row()) {
                self.drain(&mut drained);
            }
            drained.start_tail_over(self.kept);
            // Whoever collects next locks after this, so nobody reads what is overwritten.
            let place = self.place.load(Relaxed) & !u64::from(u32::MAX);
            self.place.store(place | self.kept as u64, Relaxed);
        })
    }

    pub(super) fn tiles(&self) -> &Tiles {
        self.tiles.get_or_init(|| {
            let rows = std::array::from_fn(|_| Row::default());
            Box::new(Tiles { rows, next: AtomicUsize::new(0) })
        })
    }

    /// Writes a tile or a product.
    pub(super) fn push_tile(&self, event: Event) {
        let tiles = self.tiles();
        let mut at = tiles.next.load(Relaxed);
        if at == TILE_ROWS {
            let made_room = thread::not_within_itself(|| {
                let mut drained = lock(&self.drained);
                self.drain(&mut drained);
                drained.start_tiles_over();
                tiles.next.store(0, Relaxed);
            });
            if made_room.is_none() {
                return add(&self.homeless, 1);
            }
            at = 0;
        }
        tiles.rows[at].store(&Record { pass: 0, order: 0, event });
        tiles.next.store(at + 1, Release);
    }
}

#[inline(always)]
pub(super) fn row_of(place: u64) -> usize {
    place as u32 as usize
}

/// The layer of a [place](ThreadLog::place), where rows have it.
#[inline(always)]
pub(super) fn layer_of(place: u64) -> u32 {
    (place >> (LAYER_SHIFT - 16)) as u32 & 0xFFFF_0000
}

/// How many ended bricks are remembered that may have held open ones. Beyond that the oldest is forgotten, as most of
/// them can be: what they seem to hold are timers that were dropped.
const MOST_CROSSINGS: usize = 16;

/// Bricks or layers that ended while other spans seemed to be open that had begun inside them. Only the log's own thread
/// has to do with them. Without memory of their own, since an allocator may record.
#[derive(Debug, Default)]
pub(super) struct Crossings {
    kept: [[Word; 4]; MOST_CROSSINGS],
    noted: Word,
}

/// Of one thread alone, so no model checker has to look at it.
type Word = std::sync::atomic::AtomicU64;

/// A brick or a layer that ended while others seemed to be open that had begun inside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crossing {
    home: u64,
    order: u32,
    /// How many spans had begun.
    begun: u32,
    pub(super) end: u64,
    /// What the thread's spans explained then.
    pub(super) covered: u64,
}

impl Crossing {
    /// Whether this span began inside it.
    fn is_crossed_by(&self, open: &Open) -> bool {
        let is_before = |a: u32, b: u32| b.wrapping_sub(a) as i32 > 0;
        let order = open.order();
        self.home == open.home && is_before(self.order, order) && is_before(order, self.begun)
    }
}

impl ThreadLog {
    /// Remembers that a brick has ended, at `end`, while others were open, if any began inside it.
    pub(super) fn note_crossing(&self, open: &Open, end: u64) {
        if self.note(&self.crossings, open, end) {
            self.unsettle();
        }
    }

    /// Remembers it among those. Returns whether any span began inside it.
    fn note(&self, among: &Crossings, open: &Open, end: u64) -> bool {
        let begun = self.begun.load(Relaxed) as u32;
        if begun == open.order().wrapping_add(1) {
            return false;
        }
        let noted = among.noted.load(Relaxed);
        let words = [
            open.home,
            u64::from(open.order()) << 32 | u64::from(begun),
            end,
            self.covered.load(Relaxed),
        ];
        for (cell, word) in among.kept[noted as usize % MOST_CROSSINGS].iter().zip(words) {
            cell.store(word, Relaxed);
        }
        among.noted.store(noted.wrapping_add(1), Relaxed);
        true
    }
}

impl Crossings {
    /// Those that ended inside this span and had begun before it, the last first.
    pub(super) fn crossed_by(&self, open: Open) -> impl Iterator<Item = Crossing> {
        let noted = self.noted.load(Relaxed);
        (1..=MOST_CROSSINGS as u64)
            .map(move |ago| {
                let words = &self.kept[noted.wrapping_sub(ago) as usize % MOST_CROSSINGS];
                let [home, orders, end, covered] = std::array::from_fn(|i| words[i].load(Relaxed));
                let (order, begun) = ((orders >> 32) as u32, orders as u32);
                Crossing { home, order, begun, end, covered }
            })
            .filter(move |crossing| crossing.is_crossed_by(&open))
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}
