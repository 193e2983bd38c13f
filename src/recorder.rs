//! The hot path. All that a span costs while a model runs is in this file.
//!
//! ```text
//! begin ── on? ── own thread's log: begun += 1, remember `covered` ── read clock ──► Open
//!   … the work …
//! end ──── was it on? ── read clock ── own thread's log: sums += span, covered += its own share
//!                                                        └► one record, while there is room
//! ```
//!
//! Every thread writes to a log of its own, so recording takes no lock. The log is made at a
//! thread's first span and stays until the recorder forgets it, whether or not the thread lives.
//! Nothing here knows a name, a statistic, a graph or a format: spans carry a number, sums are
//! sums, and the rest is made from them later.
//!
//! **Exclusive time.** A thread's `covered` is the time that its ended spans explain, each
//! nanosecond once. A span remembers `covered` when it begins; what has been added when it ends
//! lies inside it, so its own share is its length less that, and `covered` grows by this share.
//! Hence the shares of all spans in a pass add up to `covered`, and `wall - covered` is what no
//! brick explains. No stack is kept, so a panic that skips an `end` leaves nothing behind;
//! a pass that is dropped without an end is abandoned.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::brick::{Phase, Source, Work};
use crate::clock::Clock;
use crate::stats::BrickStats;

/// What a span is of: an index into the profiler's table of names.
pub(crate) type NameIdx = u16;

/// How many names a log has room for. The profiler gives out no more than that.
pub(crate) const MAX_NAMES: usize = CHUNKS * CHUNK;
const CHUNK: usize = 64;
const CHUNKS: usize = 64;

/// No layer, or no name.
pub(crate) const NONE: u16 = u16::MAX;

/// The serial of no log.
const NO_LOG: u32 = 0;

/// How many passes a thread keeps one by one; the sums of all passes are exact in any case.
const MAX_PASSES: usize = 1 << 16;

/// A span that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    start: u64,
    covered: u64,
    /// The log that it began in; [`NO_LOG`] if recording was off, so that turning it on in
    /// mid-span can't invent a duration.
    log: u32,
    pass: u32,
    /// Its place in the order of begins on its thread.
    order: u32,
    name: NameIdx,
}

impl Open {
    const OFF: Self = Self { start: 0, covered: 0, log: NO_LOG, pass: 0, order: 0, name: NONE };
}

/// A pass that has begun. Dropped without an end, by a panic say, it is abandoned: what its bricks
/// took was measured, but there is no wall to hold it against, so it counts outside of passes.
///
/// It stays on its thread, since only that thread may write to the log.
#[derive(Debug)]
pub(crate) struct OpenPass {
    /// `None` once it has ended.
    log: Option<Arc<ThreadLog>>,
    start: u64,
    serial: u32,
    /// `covered` of the thread before the pass.
    outside: u64,
    stays: PhantomData<*const ()>,
}

impl Drop for OpenPass {
    fn drop(&mut self) {
        if let Some(log) = self.log.take()
            && log.close_pass(self.serial, self.outside).is_some()
        {
            add(&log.abandoned_passes, 1);
            let _held = lock(&log.passes);
            log.fold(Slot::Outside);
        }
    }
}

/// What a record in the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A brick: takes part in exclusive time.
    Brick = 0,
    /// A kernel launch inside a brick: detail, which explains no time that its brick doesn't.
    Kernel = 1,
    /// A layer around bricks: likewise.
    Layer = 2,
}

/// One span, as read back from a log.
#[derive(Debug, Clone, Copy)]
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
    pub(crate) kind: Kind,
    pub(crate) source: Source,
}

/// One pass, as read back from a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassRecord {
    pub(crate) serial: u32,
    pub(crate) phase: Phase,
    pub(crate) start: u64,
    pub(crate) wall: u64,
    pub(crate) covered: u64,
    pub(crate) tokens: u64,
    pub(crate) position: u64,
}

/// The sums of all passes of one phase.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PassSums {
    pub(crate) count: u64,
    pub(crate) tokens: u64,
    pub(crate) wall: u64,
    pub(crate) covered: u64,
}

/// Things that went otherwise than a caller meant. None of them loses a measured time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Oddities {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) moved: u64,
    pub(crate) straddling: u64,
    pub(crate) overlapping: u64,
    pub(crate) nested_passes: u64,
    pub(crate) abandoned_passes: u64,
    pub(crate) open_passes: u64,
    pub(crate) log_full: u64,
    pub(crate) passes_full: u64,
}

/// Where a thread's spans come together. Only its own thread writes to it; anyone may read.
///
/// Single-writer, hence plain loads and stores instead of read-modify-write operations.
#[derive(Debug)]
pub(crate) struct ThreadLog {
    /// Unique over all recorders of the process; never 0.
    serial: u32,
    thread_name: Option<String>,
    covered: AtomicU64,
    /// When the last brick ended.
    last_end: AtomicU64,
    /// The pass that is open; 0 outside of passes.
    pass: AtomicU32,
    layer: AtomicU32,
    begun: AtomicU64,
    ended: AtomicU64,
    moved: AtomicU64,
    straddling: AtomicU64,
    overlapping: AtomicU64,
    nested_passes: AtomicU64,
    abandoned_passes: AtomicU64,
    log_full: AtomicU64,
    passes_full: AtomicU64,
    /// Sums by source, then by [`Slot`], then by name.
    sums: [[Sums; 4]; 2],
    /// By source, a bit for each name that has sums in the open pass.
    touched: [[AtomicU64; CHUNKS]; 2],
    tiles: [Sum; 3],
    trace: Box<[Row]>,
    /// Rows written. Stored with `Release` after the row, so that a reader who sees the count
    /// (`Acquire`) sees the rows.
    trace_len: AtomicUsize,
    /// Locked by its own thread when a pass has ended, and by whoever collects: held, the sums and
    /// the passes belong together.
    passes: Mutex<Passes>,
}

/// The passes of a thread that have ended.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// The first [`MAX_PASSES`] of them.
    pub(crate) kept: Vec<PassRecord>,
    /// All of them, by phase.
    pub(crate) sums: [PassSums; 2],
}

/// What sums are kept apart. Those of an open pass have no wall yet, so they are added to their
/// phase only when the pass ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Outside,
    Prefill,
    Decode,
    Open,
}

impl Slot {
    pub(crate) const ALL: [Self; 4] = [Self::Outside, Self::Prefill, Self::Decode, Self::Open];
}

impl From<Phase> for Slot {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Prefill => Self::Prefill,
            Phase::Decode => Self::Decode,
        }
    }
}

/// Sums of up to [`MAX_NAMES`] names, made 64 at a time when one of them is first seen.
#[derive(Debug)]
struct Sums([OnceLock<Box<[Sum; CHUNK]>>; CHUNKS]);

/// The sums of one name. Read through its version: odd while the writer is at it.
#[derive(Debug, Default)]
struct Sum {
    version: AtomicU64,
    count: AtomicU64,
    total: AtomicU64,
    exclusive: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    elements: AtomicU64,
    flops: AtomicU64,
    bytes: AtomicU64,
}

/// One record: start, duration, exclusive, elements, flops, bytes, then
/// `pass << 32 | layer << 16 | name` and
/// `order << 32 | source << 8 | kind`.
#[derive(Debug, Default)]
struct Row([AtomicU64; 8]);

impl Row {
    fn copy(&self) -> Self {
        Self(std::array::from_fn(|i| AtomicU64::new(self.0[i].load(Relaxed))))
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Sum {
    fn add(&self, total: u64, exclusive: u64, work: Work) {
        let version = self.version.load(Relaxed);
        // A seqlock's writer: no store of the new sums may be seen before the odd version is.
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        let count = self.count.load(Relaxed);
        let min = if count == 0 { total } else { total.min(self.min.load(Relaxed)) };
        self.min.store(min, Relaxed);
        self.max.store(total.max(self.max.load(Relaxed)), Relaxed);
        self.count.store(count + 1, Relaxed);
        add(&self.total, total);
        add(&self.exclusive, exclusive);
        add(&self.elements, work.elements);
        add(&self.flops, work.flops);
        add(&self.bytes, work.bytes);
        self.version.store(version.wrapping_add(2), Release);
    }

    /// Adds all of `other`, which is then empty. Both belong to the calling thread.
    fn take(&self, other: &Self) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        let [count, other_count] = [self, other].map(|sum| sum.count.load(Relaxed));
        if other_count > 0 {
            let [min, other_min] = [self, other].map(|sum| sum.min.load(Relaxed));
            self.min.store(if count == 0 { other_min } else { min.min(other_min) }, Relaxed);
            self.max.store(self.max.load(Relaxed).max(other.max.load(Relaxed)), Relaxed);
        }
        for (mine, others) in [
            (&self.count, &other.count),
            (&self.total, &other.total),
            (&self.exclusive, &other.exclusive),
            (&self.elements, &other.elements),
            (&self.flops, &other.flops),
            (&self.bytes, &other.bytes),
        ] {
            add(mine, others.load(Relaxed));
        }
        self.version.store(version.wrapping_add(2), Release);
        other.forget();
    }

    fn forget(&self) {
        for cell in [&self.count, &self.total, &self.exclusive, &self.min, &self.max] {
            cell.store(0, Relaxed);
        }
        for cell in [&self.elements, &self.flops, &self.bytes] {
            cell.store(0, Relaxed);
        }
    }

    fn read_into(&self, stats: &mut BrickStats) {
        let one = loop {
            let before = self.version.load(Acquire);
            let count = self.count.load(Relaxed);
            let one = BrickStats {
                name: String::new(),
                count,
                total_ns: self.total.load(Relaxed),
                exclusive_ns: self.exclusive.load(Relaxed),
                min_ns: if count == 0 { u64::MAX } else { self.min.load(Relaxed) },
                max_ns: self.max.load(Relaxed),
                total_elements: self.elements.load(Relaxed),
                total_flops: self.flops.load(Relaxed),
                total_bytes: self.bytes.load(Relaxed),
            };
            fence(Acquire);
            if before.is_multiple_of(2) && self.version.load(Relaxed) == before {
                break one;
            }
            std::hint::spin_loop();
        };
        stats.merge(&one);
    }
}

impl Sums {
    fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    fn of(&self, name: NameIdx) -> &Sum {
        let name = usize::from(name);
        let chunk =
            self.0[name / CHUNK].get_or_init(|| Box::new(std::array::from_fn(|_| Sum::default())));
        &chunk[name % CHUNK]
    }

    fn read_into(&self, name: NameIdx, stats: &mut BrickStats) {
        if let Some(chunk) = self.0[usize::from(name) / CHUNK].get() {
            chunk[usize::from(name) % CHUNK].read_into(stats);
        }
    }
}

impl ThreadLog {
    /// A log that keeps its records in `trace`, whatever is in there now.
    fn new(serial: u32, trace: Box<[Row]>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            serial,
            thread_name: std::thread::current().name().map(str::to_owned),
            covered: zero(),
            last_end: zero(),
            pass: AtomicU32::new(0),
            layer: AtomicU32::new(u32::from(NONE)),
            begun: zero(),
            ended: zero(),
            moved: zero(),
            straddling: zero(),
            overlapping: zero(),
            nested_passes: zero(),
            abandoned_passes: zero(),
            log_full: zero(),
            passes_full: zero(),
            sums: std::array::from_fn(|_| std::array::from_fn(|_| Sums::new())),
            touched: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            tiles: std::array::from_fn(|_| Sum::default()),
            trace,
            trace_len: AtomicUsize::new(0),
            passes: Mutex::default(),
        }
    }

    fn push(&self, record: &Record) {
        let len = self.trace_len.load(Relaxed);
        // Growing here would charge the model for an allocation, so a full log drops and counts.
        let Some(Row(row)) = self.trace.get(len) else {
            // A log of no capacity was not asked for; it drops nothing.
            add(&self.log_full, u64::from(!self.trace.is_empty()));
            return;
        };
        let place =
            u64::from(record.pass) << 32 | u64::from(record.layer) << 16 | u64::from(record.name);
        let values = [
            record.start,
            record.duration,
            record.exclusive,
            record.work.elements,
            record.work.flops,
            record.work.bytes,
            place,
            u64::from(record.order) << 32 | (record.source as u64) << 8 | record.kind as u64,
        ];
        for (cell, value) in row.iter().zip(values) {
            cell.store(value, Relaxed);
        }
        self.trace_len.store(len + 1, Release);
    }

    fn end_brick(&self, source: Source, open: Open, end: u64, work: Work) {
        let duration = end.saturating_sub(open.start);
        let pass = self.pass.load(Relaxed);
        let at_home = open.log == self.serial && open.pass == pass;
        let exclusive = if at_home {
            let since = self.covered.load(Relaxed).wrapping_sub(open.covered);
            // What was covered since it began lies between its begin and the last end, unless a
            // span that began before it has ended in it: they overlap instead of nesting.
            let room = self.last_end.load(Relaxed).saturating_sub(open.start);
            add(&self.overlapping, u64::from(since > room));
            let exclusive = duration.saturating_sub(since.min(room));
            add(&self.covered, exclusive);
            exclusive
        } else {
            // Begun on another thread or in another pass: its time was measured, but belongs to
            // no wall that this thread keeps.
            add(&self.straddling, u64::from(open.log == self.serial));
            add(&self.moved, u64::from(open.log != self.serial && open.log != NO_LOG));
            duration
        };
        add(&self.ended, 1);
        self.last_end.store(end, Relaxed);
        let in_pass = at_home && pass != 0;
        self.sum(source, in_pass, open.name).add(duration, exclusive, work);
        self.push(&Record {
            start: open.start,
            duration,
            exclusive,
            work,
            pass: if at_home { pass } else { 0 },
            order: self.order_of(open),
            name: open.name,
            layer: self.layer.load(Relaxed) as u16,
            kind: Kind::Brick,
            source,
        });
    }

    /// Where a span of `name` is summed.
    fn sum(&self, source: Source, in_pass: bool, name: NameIdx) -> &Sum {
        if !in_pass {
            return self.sums[source as usize][Slot::Outside as usize].of(name);
        }
        let touched = &self.touched[source as usize][usize::from(name) / CHUNK];
        touched.store(touched.load(Relaxed) | 1 << (usize::from(name) % CHUNK), Relaxed);
        self.sums[source as usize][Slot::Open as usize].of(name)
    }

    /// A span's place among the begins of this thread. One that began on another thread is taken
    /// to begin where it ends, so that nothing of this thread seems to lie inside it.
    fn order_of(&self, open: Open) -> u32 {
        let began_here = open.log == self.serial || open.log == NO_LOG;
        if began_here { open.order } else { self.begun.load(Relaxed) as u32 }
    }

    /// Ends the pass `serial`, if it is the open one; returns what its bricks cover.
    fn close_pass(&self, serial: u32, outside: u64) -> Option<u64> {
        if self.pass.load(Relaxed) != serial {
            return None;
        }
        let covered = self.covered.load(Relaxed);
        // A brick around the pass doesn't explain anew what bricks in the pass explain.
        self.covered.store(outside.wrapping_add(covered), Relaxed);
        self.pass.store(0, Relaxed);
        self.layer.store(u32::from(NONE), Relaxed);
        Some(covered)
    }

    /// Adds the sums of the pass that was open to those of `slot`. `passes` is locked meanwhile.
    fn fold(&self, slot: Slot) {
        for (touched, sums) in self.touched.iter().zip(&self.sums) {
            for (word, chunk) in touched.iter().zip(0..) {
                let mut bits = word.load(Relaxed);
                word.store(0, Relaxed);
                while bits != 0 {
                    let name = chunk * CHUNK as NameIdx + bits.trailing_zeros() as NameIdx;
                    sums[slot as usize].of(name).take(sums[Slot::Open as usize].of(name));
                    bits &= bits - 1;
                }
            }
        }
    }

    /// A span that begins now, but for its start. `at_home` is false for one timed elsewhere that
    /// explains nothing of this thread's time.
    fn begin(&self, at_home: bool, name: NameIdx) -> Open {
        let order = self.begun.load(Relaxed);
        self.begun.store(order + 1, Relaxed);
        Open {
            start: 0,
            covered: self.covered.load(Relaxed),
            log: if at_home { self.serial } else { NO_LOG },
            pass: self.pass.load(Relaxed),
            order: order as u32,
            name,
        }
    }

    fn end_detail(&self, kind: Kind, open: Open, end: u64, work: Work) {
        let duration = end.saturating_sub(open.start);
        let pass = self.pass.load(Relaxed);
        let at_home = open.log == self.serial && open.pass == pass;
        add(&self.ended, 1);
        add(&self.moved, u64::from(open.log != self.serial));
        let layer = self.layer.load(Relaxed) as u16;
        if kind == Kind::Kernel {
            self.sum(Source::Host, at_home && pass != 0, open.name).add(duration, 0, work);
        }
        self.push(&Record {
            start: open.start,
            duration,
            exclusive: 0,
            work,
            pass: if at_home { pass } else { 0 },
            order: self.order_of(open),
            name: open.name,
            layer: if kind == Kind::Layer { open.name } else { layer },
            kind,
            source: Source::Host,
        });
    }

    pub(crate) fn thread_name(&self) -> Option<&str> {
        self.thread_name.as_deref()
    }

    /// Keeps the sums and the passes as they are to each other, while the guard lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Passes> {
        lock(&self.passes)
    }

    /// Adds this thread's sums of `name` in `slot` to `stats`.
    pub(crate) fn read_sums(
        &self,
        source: Source,
        slot: Slot,
        name: NameIdx,
        stats: &mut BrickStats,
    ) {
        self.sums[source as usize][slot as usize].read_into(name, stats);
    }

    /// Starts the sums of all tiles anew. Meant for a time when the thread times no tile: one that
    /// ends at this very moment may be lost or kept.
    pub(crate) fn forget_tiles(&self) {
        self.tiles.iter().for_each(Sum::forget);
    }

    /// Adds this thread's sums of a tile level to `stats`.
    pub(crate) fn read_tiles(&self, level: usize, stats: &mut BrickStats) {
        self.tiles[level].read_into(stats);
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let len = self.trace_len.load(Acquire);
        self.trace[..len].iter().map(|Row(row)| {
            let [start, duration, exclusive, elements, flops, bytes, place, what] =
                std::array::from_fn(|i| row[i].load(Relaxed));
            Record {
                start,
                duration,
                exclusive,
                work: Work { elements, flops, bytes },
                pass: (place >> 32) as u32,
                order: (what >> 32) as u32,
                layer: (place >> 16) as u16,
                name: place as u16,
                kind: match what as u8 {
                    0 => Kind::Brick,
                    1 => Kind::Kernel,
                    _ => Kind::Layer,
                },
                source: if (what >> 8) as u8 == 0 { Source::Host } else { Source::HostOrder },
            }
        })
    }

    pub(crate) fn oddities(&self) -> Oddities {
        Oddities {
            begun: self.begun.load(Relaxed),
            ended: self.ended.load(Relaxed),
            moved: self.moved.load(Relaxed),
            straddling: self.straddling.load(Relaxed),
            overlapping: self.overlapping.load(Relaxed),
            nested_passes: self.nested_passes.load(Relaxed),
            abandoned_passes: self.abandoned_passes.load(Relaxed),
            open_passes: u64::from(self.pass.load(Relaxed) != 0),
            log_full: self.log_full.load(Relaxed),
            passes_full: self.passes_full.load(Relaxed),
        }
    }
}

thread_local! {
    /// This thread's logs, the last used at the end, each with the identity it was made for.
    static LOGS: RefCell<Vec<(u64, Arc<ThreadLog>)>> = const { RefCell::new(Vec::new()) };
}

static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1);
static NEXT_LOG: AtomicU32 = AtomicU32::new(1);

/// Records spans from any thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    clock: Clock,
    active: AtomicBool,
    /// Threads find their log by it. A new one makes them start anew, which is how a reset works.
    identity: AtomicU64,
    /// Logs with a lower serial are from before the last reset.
    first_log: AtomicU32,
    next_pass: AtomicU32,
    capacity: usize,
    logs: Mutex<Vec<Arc<ThreadLog>>>,
    /// Calls that found no way to their thread's log.
    homeless: AtomicU64,
}

impl Recorder {
    pub(crate) fn new(clock: Clock, capacity: usize) -> Self {
        Self {
            clock,
            active: AtomicBool::new(false),
            identity: AtomicU64::new(NEXT_IDENTITY.fetch_add(1, Relaxed)),
            first_log: AtomicU32::new(NO_LOG),
            next_pass: AtomicU32::new(1),
            capacity,
            logs: Mutex::default(),
            homeless: AtomicU64::new(0),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        // Relaxed: a span that begins while somebody else flips the switch may go either way.
        self.active.load(Relaxed)
    }

    pub(crate) fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
    }

    /// Begins a span. Off, it reads neither the clock nor anything else.
    #[inline]
    pub(crate) fn begin(&self, name: NameIdx) -> Open {
        if !self.is_active() {
            return Open::OFF;
        }
        let here = self.with_log(|log| log.begin(true, name));
        let Some(open) = here else { return Open::OFF };
        // Last, so that the book-keeping above is not in the span.
        Open { start: self.clock.now(), ..open }
    }

    /// Ends a brick.
    #[inline]
    pub(crate) fn end_brick(&self, open: Open, work: Work) {
        let Some(end) = self.end_reading(open) else { return };
        self.with_log(|log| {
            if !self.is_forgotten(open, log) {
                log.end_brick(Source::Host, open, end, work);
            }
        });
    }

    /// Ends a kernel or a layer.
    #[inline]
    pub(crate) fn end_detail(&self, kind: Kind, open: Open, work: Work) {
        let Some(end) = self.end_reading(open) else { return };
        self.with_log(|log| {
            if !self.is_forgotten(open, log) {
                log.end_detail(kind, open, end, work);
            }
        });
    }

    /// Whether a span was begun before a reset.
    fn is_forgotten(&self, open: Open, log: &ThreadLog) -> bool {
        open.log != log.serial && open.log < self.first_log.load(Relaxed)
    }

    /// The clock at the end of a span, first of all. `None` if it was begun while off, or if
    /// recording was turned off since: then it stays unfinished, and is counted as such.
    #[inline]
    fn end_reading(&self, open: Open) -> Option<u64> {
        (open.log != NO_LOG && self.is_active()).then(|| self.clock.now())
    }

    /// A brick that somebody else timed, ending now.
    pub(crate) fn add_elapsed(&self, name: NameIdx, elapsed: u64, work: Work) {
        if !self.is_active() {
            return;
        }
        let end = self.clock.now();
        self.with_log(|log| {
            let start = end.saturating_sub(elapsed);
            // If a brick ended inside it, what it explains on its own can't be told.
            let alone = log.last_end.load(Relaxed) <= start && elapsed <= end;
            let open = Open { start, ..log.begin(alone, name) };
            log.end_brick(Source::Host, open, start + elapsed, work);
        });
    }

    /// Ends a tile that began at `start`.
    pub(crate) fn add_tile(&self, level: usize, start: u64, work: Work) {
        let elapsed = self.clock.now().saturating_sub(start);
        self.with_log(|log| log.tiles[level].add(elapsed, elapsed, work));
    }

    /// Sets the layer that this thread works on and begins its span; returns what it was before.
    pub(crate) fn begin_layer(&self, layer: u16) -> (Open, u16) {
        let open = self.begin(layer);
        if open.log == NO_LOG {
            return (open, NONE);
        }
        let before = self.with_log(|log| {
            let before = log.layer.load(Relaxed) as u16;
            log.layer.store(u32::from(layer), Relaxed);
            before
        });
        (open, before.unwrap_or(NONE))
    }

    pub(crate) fn end_layer(&self, open: Open, before: u16) {
        if open.log == NO_LOG {
            return;
        }
        self.end_detail(Kind::Layer, open, Work::default());
        self.with_log(|log| log.layer.store(u32::from(before), Relaxed));
    }

    /// Begins a pass on this thread. `None` if recording is off, or if a pass is open already.
    pub(crate) fn begin_pass(&self) -> Option<OpenPass> {
        if !self.is_active() {
            return None;
        }
        let open = self.with_log(|log| {
            if log.pass.load(Relaxed) != 0 {
                add(&log.nested_passes, 1);
                return None;
            }
            let serial = self.next_pass.fetch_add(1, Relaxed);
            let outside = log.covered.load(Relaxed);
            let start = self.clock.now();
            log.covered.store(0, Relaxed);
            // What began before the pass is not of the pass.
            log.last_end.store(start, Relaxed);
            log.pass.store(serial, Relaxed);
            let log = Some(Arc::clone(log));
            Some(OpenPass { log, start, serial, outside, stays: PhantomData })
        });
        open.flatten()
    }

    /// Ends a pass: wall, and what bricks explain of it.
    pub(crate) fn end_pass(&self, mut open: OpenPass, phase: Phase, tokens: u64, position: u64) {
        let end = self.clock.now();
        let Some(log) = open.log.take() else { return };
        let Some(covered) = log.close_pass(open.serial, open.outside) else { return };
        let wall = end.saturating_sub(open.start);
        let mut passes = lock(&log.passes);
        log.fold(phase.into());
        let sums = &mut passes.sums[phase as usize];
        sums.count += 1;
        sums.tokens += tokens;
        sums.wall += wall;
        sums.covered += covered;
        if passes.kept.len() < MAX_PASSES {
            let (serial, start) = (open.serial, open.start);
            passes.kept.push(PassRecord { serial, phase, start, wall, covered, tokens, position });
        } else {
            add(&log.passes_full, 1);
        }
    }

    /// Where this thread stands: its log, its pass, and `covered`.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.with_log(|log| Standing {
            log: log.serial,
            pass: log.pass.load(Relaxed),
            covered: log.covered.load(Relaxed),
        })
    }

    /// Records bricks that were timed elsewhere: back to back from `since` on, `(name, start,
    /// duration, work)` each.
    ///
    /// They explain time of the pass that is open on this thread if they were issued from it and
    /// no brick was timed here meanwhile; else they are kept outside of it, so that nothing
    /// counts twice.
    pub(crate) fn add_settled(
        &self,
        since: Standing,
        first_start: u64,
        spans: &[(NameIdx, u64, u64, Work)],
    ) {
        let now = self.clock.now();
        self.with_log(|log| {
            let untouched = since.log == log.serial
                && since.pass == log.pass.load(Relaxed)
                && since.covered == log.covered.load(Relaxed)
                && log.last_end.load(Relaxed) <= first_start
                // An end that hasn't come yet is no reading of this clock.
                && spans.last().is_some_and(|last| last.1 + last.2 <= now);
            if !untouched {
                add(&log.overlapping, 1);
            }
            for &(name, start, duration, work) in spans {
                let open = Open { start, ..log.begin(untouched, name) };
                log.end_brick(Source::HostOrder, open, start + duration, work);
            }
        });
    }

    /// Forgets all that was recorded. Spans open now are forgotten too.
    pub(crate) fn reset(&self) {
        let mut logs = self.logs();
        self.first_log.store(NEXT_LOG.load(Relaxed), Relaxed);
        self.identity.store(NEXT_IDENTITY.fetch_add(1, Relaxed), Relaxed);
        logs.clear();
        self.homeless.store(0, Relaxed);
    }

    /// The logs of all threads that ever recorded, oldest first.
    pub(crate) fn logs(&self) -> MutexGuard<'_, Vec<Arc<ThreadLog>>> {
        lock(&self.logs)
    }

    pub(crate) fn homeless(&self) -> u64 {
        self.homeless.load(Relaxed)
    }

    /// Calls `f` with this thread's log. `None` where there is no way to it: the thread is being
    /// torn down, or `f` of another call is running (an allocator that records, say).
    #[inline]
    fn with_log<R>(&self, f: impl FnOnce(&Arc<ThreadLog>) -> R) -> Option<R> {
        let identity = self.identity.load(Relaxed);
        let result = LOGS.try_with(|logs| {
            let mut logs = logs.try_borrow_mut().ok()?;
            if let Some((last, log)) = logs.last()
                && *last == identity
            {
                return Some(f(log));
            }
            Some(f(self.find_or_register(&mut logs)))
        });
        let result = result.ok().flatten();
        if result.is_none() {
            self.homeless.fetch_add(1, Relaxed);
        }
        result
    }

    #[cold]
    fn find_or_register<'l>(&self, logs: &'l mut Vec<(u64, Arc<ThreadLog>)>) -> &'l Arc<ThreadLog> {
        let identity = self.identity.load(Relaxed);
        let entry = match logs.iter().position(|(known, _)| *known == identity) {
            Some(index) => logs.remove(index),
            None => self.register(logs),
        };
        logs.push(entry);
        &logs.last().expect("an entry was just pushed").1
    }

    fn register(&self, logs: &mut Vec<(u64, Arc<ThreadLog>)>) -> (u64, Arc<ThreadLog>) {
        // Under the lock that `reset` holds while it changes the identity: a log can't end up in
        // the list of an identity that it wasn't made for.
        let mut all = self.logs();
        // Rows that nobody will write to any more are taken over: touching megabytes of new memory
        // would take a millisecond, and threads that come and go would each leave some behind.
        let mut rows = None;
        // Logs that only this thread still holds are from before a reset, or of recorders that are
        // gone.
        logs.retain_mut(|(_, log)| {
            let Some(log) = Arc::get_mut(log) else { return true };
            if log.trace.len() == self.capacity {
                rows = Some(std::mem::take(&mut log.trace));
            }
            false
        });
        // Logs that only this recorder still holds are of threads that have ended.
        for log in all.iter_mut().filter_map(Arc::get_mut) {
            let used = *log.trace_len.get_mut();
            if log.trace.len() == self.capacity && used < self.capacity {
                let kept = log.trace[..used].iter().map(Row::copy).collect();
                rows = Some(std::mem::replace(&mut log.trace, kept));
            }
        }
        let rows = rows.unwrap_or_else(|| (0..self.capacity).map(|_| Row::default()).collect());
        let serial = NEXT_LOG.fetch_add(1, Relaxed);
        let log = Arc::new(ThreadLog::new(serial, rows));
        all.push(Arc::clone(&log));
        (self.identity.load(Relaxed), log)
    }
}

/// See [`Recorder::standing`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    log: u32,
    pass: u32,
    covered: u64,
}

/// Locks, and carries on where another thread panicked: the data are sums, valid at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
