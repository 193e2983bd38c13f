//! The hot path. All that a span costs while a model runs is in this file and in `readings.rs`.
//!
//! ```text
//! begin ── on? ── own thread's log: begun += 1, remember `covered` ── read clock ──► Open
//!   … the work …
//! end ──── was it on? ── read clock ── own thread's log: covered += its own share, write one row
//! ```
//!
//! Every thread writes to a log of its own, so recording takes no lock. The log is made at a
//! thread's first span and outlives the thread. Nothing here knows a name, a statistic, a graph or
//! a format: rows carry numbers, and sums are made of them later, in `fold.rs`.
//!
//! **Two ways.** Nearly every span begins and ends on one thread, nests, finds room in the log, and is
//! timed by the processor's counter. For these there are short ways: functions that call nothing, so
//! that they save no registers, with a span in words of its own, so that no word waits for another.
//! Whatever is otherwise takes a careful way, out of line and out of sight; both write the same rows,
//! and `ways.rs` holds them to that.
//!
//! **A log** is an array of rows, one for each span, or for a brick and the kernel that is all of it; or, of a pass that
//! is told afterwards, the number of a script and then readings, eight in a row. The first ones are kept: they are the trace. The last ones, the
//! tail, are used again and again: when they are full, their own thread folds them into sums and
//! starts over with the tail. So sums are exact whatever happens to the trace. Who collects folds
//! what was written since; a mutex makes sure that only one does. Its own thread takes it only when
//! the tail is full, or when a pass has ended and the tail is nearly so, or that is told by another script than the
//! one before it: which is nobody's time.
//!
//! **Exclusive time.** A thread's `covered` is the time that its ended spans explain, each
//! nanosecond once. A span remembers `covered` when it begins; what has been added when it ends
//! lies inside it, so its own share is its length less that, and `covered` grows by this share.
//! Hence the shares of all spans in a pass add up to `covered`, and `wall - covered` is what no
//! brick explains. No stack is kept, so a panic that skips an `end` leaves nothing behind;
//! a pass that is dropped without an end is abandoned.

#[cfg(all(test, loom))]
mod model;
mod readings;
mod row;
mod thread;
#[cfg(all(test, not(loom)))]
mod ways;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use brickscope_profile::brick::{Phase, Source, Work};
use brickscope_profile::machine::{CounterReading, Disturbance};

pub(crate) use self::readings::{Readings, Untold};
pub(crate) use self::row::{Kind, Record, Span, flag};
use self::row::{Row, Told};
use self::thread::Thread;
use crate::clock::{Clock, Ticks};
use crate::fold::Fold;
use crate::machine;
use crate::machine::{LoadReading, ReadCounters};
use crate::script::PassScript;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, OnceLock, lock};

/// What a span is of: an index into the profiler's table of names.
pub(crate) type NameIdx = u16;

/// No layer, or no name.
pub(crate) const NONE: u16 = u16::MAX;

/// The serial of no log.
const NO_LOG: u32 = 0;

/// What [`Recorder::active`] holds while recording is off.
const OFF: u32 = 0;

/// Whether every clock is good enough for the short ways (see [`Recorder::plain`]), and not the counter
/// alone: where speed is no matter, so that model checkers and tests with a clock turned by hand see
/// the code that runs elsewhere.
const HAS_PLAIN_CLOCK: bool = cfg!(any(miri, loom, debug_assertions));

/// Rows that are used again and again: a decode pass of a model of 22 layers fits, so that it is
/// folded after its end. Few under Miri, which writes them slowly and is to see them folded, too.
const TAIL: usize = match (cfg!(loom), cfg!(miri)) {
    (true, _) => 1,
    (_, true) => 64,
    _ => 1024,
};

/// When a pass has ended, rows beyond this part of the tail are folded.
const NEARLY_FULL: usize = TAIL / 4;

/// What ended threads leave is kept up to so many times what one may keep. A program that starts a
/// thread for every request would fill the memory otherwise.
const MOST_FORMER: usize = 8;

/// Rows for tiles, which are only summed.
const TILE_ROWS: usize = 256;

/// A span that has begun. Four words, each stored and compared at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    start: u64,
    covered: u64,
    /// The log and the pass that it began in: see [`ThreadLog::home`]. 0 if recording was off, so
    /// that turning it on in mid-span can't invent a duration.
    home: u64,
    /// `order << 32 | name`; the order is its place in the order of begins on its thread.
    what: u64,
}

impl Open {
    pub(crate) const OFF: Self = Self { start: 0, covered: 0, home: 0, what: NONE as u64 };

    #[inline(always)]
    pub(crate) fn is_off(&self) -> bool {
        self.home == 0
    }

    /// The kernel that began together with this brick: see [`Recorder::begin_both`].
    #[inline(always)]
    pub(crate) fn inner(self, kernel: NameIdx) -> Self {
        Self { what: what(self.order().wrapping_add(1), kernel), ..self }
    }

    /// The serial of the log that it began in.
    #[inline(always)]
    fn log(&self) -> u32 {
        upper(self.home)
    }

    #[inline(always)]
    fn pass(&self) -> u32 {
        self.home as u32
    }

    #[inline(always)]
    fn order(&self) -> u32 {
        upper(self.what)
    }

    #[inline(always)]
    fn name(&self) -> NameIdx {
        self.what as NameIdx
    }

    /// In words of their own: a caller keeps them in registers, or loads each as it was stored. What
    /// is stored word by word and copied as a whole has to wait for the stores, which takes as long
    /// as half a reading of the clock.
    #[inline(always)]
    fn words(self) -> (u64, u64, u64, u64) {
        (self.start, self.covered, self.home, self.what)
    }

    /// The same, word by word: see [`words`](Self::words).
    #[inline(always)]
    fn again(self) -> Self {
        let (start, covered, home, what) = self.words();
        Self { start, covered, home, what }
    }

    /// As if it had begun in no log, but in the same pass.
    fn homeless(self) -> Self {
        Self { home: self.pass().into(), ..self }
    }
}

#[inline(always)]
fn what(order: u32, name: NameIdx) -> u64 {
    u64::from(order) << 32 | u64::from(name)
}

#[inline(always)]
fn upper(word: u64) -> u32 {
    (word >> 32) as u32
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
    /// When it ended, if that was before it is told of.
    ended: Cell<Option<u64>>,
    /// Whether it has had its readings.
    is_read: Cell<bool>,
    stays: PhantomData<*const ()>,
}

impl Drop for OpenPass {
    fn drop(&mut self) {
        if let Some(log) = self.log.take()
            && log.close_pass(self.serial, self.outside).is_some()
        {
            log.push(log.mark(Kind::Abandoned, self.serial));
        }
    }
}

/// Where a thread stands: its log, its pass, and `covered`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    home: u64,
    covered: u64,
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
    /// Whose it is and for which generation: see [`owner`]. Changed while `drained` is locked.
    owner: AtomicU64,
    /// `serial << 32 | pass`: what a span that begins now belongs to. The serial is unique over all
    /// recorders of the process, and new whenever the owner changes; never 0. The pass is 0 outside
    /// of passes.
    home: AtomicU64,
    covered: AtomicU64,
    /// When the last brick ended.
    last_end: AtomicU64,
    begun: AtomicU64,
    /// The row to write next. Stored with `Release` after the row before it, so that a reader who
    /// sees it (`Acquire`) sees that row.
    next: AtomicU32,
    /// `layer << 16`: the layer that the thread works on.
    layer: AtomicU32,
    rows: Box<[Row]>,
    /// Records for which there was neither room nor a way to make some.
    homeless: AtomicU64,
    /// How many of `rows`, from the first, are never written twice.
    kept: usize,
    /// When to look next at what others do; 0 for whenever there is an occasion. Here, so that a pass which doesn't
    /// look finds out by a line that it needs anyway.
    look_due: AtomicU64,
    tiles: OnceLock<Box<Tiles>>,
    /// What counters said when bricks began that have not ended, by their order.
    counting: Mutex<Vec<(u32, CounterReading)>>,
    /// The script that was told by last: where it lies, and its number.
    script: [AtomicUsize; 2],
    /// The last look at what others do.
    load: Mutex<Option<LoadReading>>,
    drained: Mutex<Drained>,
}

// What model checkers put in the place of an atomic is larger.
#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(ThreadLog, homeless) <= 64);
    assert!(std::mem::offset_of!(Recorder, near) < 64);
};

#[derive(Debug)]
struct Tiles {
    rows: [Row; TILE_ROWS],
    next: AtomicUsize,
}

/// What has been made of a log's rows so far.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    /// Rows before this one are in `fold`.
    up_to: usize,
    tiles_up_to: usize,
    /// Spans that the trace had no room for.
    dropped: u64,
    fold: Fold,
    /// What readings were told by, by its number.
    scripts: Vec<PassScript>,
    /// The thread that owns the log.
    thread: Owner,
    /// The threads that owned it before and have ended.
    former: Vec<Lane>,
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

/// What a thread left in a log.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The serial of the log while it was that thread's.
    pub(crate) serial: u32,
    pub(crate) thread: Owner,
    /// What was kept, in the order of ends.
    pub(crate) records: Vec<Record>,
}

/// What came of a look at what others do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Looked {
    /// It wasn't the time to look.
    No,
    /// From here on it is known: of passes before there is nothing to tell.
    Anew,
    /// What happened since the last look.
    Since(Disturbance),
}

/// Looks at what others do: is given the last reading, and may replace it.
pub(crate) trait Look: FnOnce(&mut Option<LoadReading>) -> Looked {}

impl<F: FnOnce(&mut Option<LoadReading>) -> Looked> Look for F {}

#[inline(always)]
fn owner(thread: Thread, generation: u32) -> u64 {
    thread.serial_above() | u64::from(generation)
}

const NO_LAYER: u32 = (NONE as u32) << 16;

impl ThreadLog {
    fn new(kept: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            owner: zero(),
            home: zero(),
            covered: zero(),
            last_end: zero(),
            begun: zero(),
            next: AtomicU32::new(0),
            layer: AtomicU32::new(NO_LAYER),
            homeless: zero(),
            // Written one by one: the first touch of new memory costs more than many spans.
            rows: (0..kept.saturating_add(TAIL)).map(|_| Row::default()).collect(),
            kept,
            look_due: zero(),
            tiles: OnceLock::new(),
            counting: Mutex::default(),
            script: [AtomicUsize::new(0), AtomicUsize::new(0)],
            load: Mutex::default(),
            drained: Mutex::default(),
        }
    }

    /// Makes the log the calling thread's.
    fn adopt(&self, thread: Thread, generation: u32, sums_layers: bool) {
        let mut drained = lock(&self.drained);
        let before = self.owner.load(Relaxed);
        if before != 0 && before as u32 == generation {
            // The thread before it has ended, and its number was given out again.
            self.drain(&mut drained);
            drained.fold.abandon();
            if let Some(layers) = &mut drained.fold.layers {
                layers.abandon();
            }
            let kept = drained.up_to.min(self.kept);
            let mut lane = Lane {
                serial: self.serial(),
                thread: std::mem::take(&mut drained.thread),
                records: records_of(&self.rows[..kept], &drained.scripts),
            };
            let held: usize = drained.former.iter().map(|lane| lane.records.len()).sum();
            if held + lane.records.len() > self.kept.saturating_mul(MOST_FORMER) {
                let spans = lane.records.drain(..).filter(|record| record.kind.is_span());
                drained.dropped += spans.count() as u64;
            }
            if !lane.records.is_empty() || drained.fold.has_passes_of(lane.serial) {
                drained.former.push(lane);
            }
        } else {
            *drained = Drained::default();
            self.script[0].store(0, Relaxed);
            self.begun.store(0, Relaxed);
            self.homeless.store(0, Relaxed);
        }
        drained.up_to = 0;
        drained.tiles_up_to = 0;
        drained.fold.forget_unseen();
        drained.fold.forget_newest();
        *lock(&self.load) = None;
        self.look_due.store(0, Relaxed);
        lock(&self.counting).clear();
        drained.thread = Owner::here();
        if let Some(tiles) = self.tiles.get() {
            tiles.next.store(0, Relaxed);
        }
        self.next.store(0, Relaxed);
        self.covered.store(0, Relaxed);
        self.last_end.store(0, Relaxed);
        self.layer.store(NO_LAYER, Relaxed);
        let serial = NEXT_LOG.fetch_add(1, Relaxed);
        drained.fold.log = serial;
        drained.fold.is_small = self.kept == 0;
        if sums_layers {
            drained.fold.layers.get_or_insert_default();
        }
        self.home.store(u64::from(serial) << 32, Relaxed);
        self.owner.store(owner(thread, generation), Relaxed);
    }

    #[inline(always)]
    fn serial(&self) -> u32 {
        upper(self.home.load(Relaxed))
    }

    /// The pass that is open; 0 outside of passes.
    #[inline(always)]
    fn pass(&self) -> u32 {
        self.home.load(Relaxed) as u32
    }

    fn set_pass(&self, pass: u32) {
        self.home.store(u64::from(self.serial()) << 32 | u64::from(pass), Relaxed);
        self.layer.store(NO_LAYER, Relaxed);
    }

    #[inline(always)]
    fn layer(&self) -> u16 {
        (self.layer.load(Relaxed) >> 16) as u16
    }

    /// Folds what was written since the last time.
    fn drain(&self, drained: &mut Drained) {
        let next = self.next.load(Acquire) as usize;
        let (trace, tail) = self.rows.split_at(self.kept);
        let Drained { fold, scripts, up_to, .. } = drained;
        let before = std::mem::replace(up_to, next);
        take_all(fold, scripts, trace.get(before..next.min(self.kept)).unwrap_or_default());
        let ended = fold.ended();
        let tail = &tail[before.saturating_sub(self.kept)..next.saturating_sub(self.kept)];
        take_all(fold, scripts, tail);
        // A log of no capacity was not asked for; it drops nothing.
        if self.kept > 0 {
            drained.dropped += drained.fold.ended() - ended;
        }
        if let Some(tiles) = self.tiles.get() {
            let next = tiles.next.load(Acquire);
            for row in &tiles.rows[drained.tiles_up_to..next] {
                drained.fold.take(&row.load());
            }
            drained.tiles_up_to = next;
        }
    }

    /// Writes a record. With constants for most of it this is eight stores.
    #[inline(always)]
    fn push(&self, record: Record) {
        let at = self.next.load(Relaxed);
        match self.rows.get(at as usize) {
            Some(row) => {
                row.store(record.packed());
                self.next.store(at + 1, Release);
            }
            None => self.push_to_full(record),
        }
    }

    /// Folds the tail, and goes on at its beginning. `None` from within itself.
    fn start_tail_over(&self) -> Option<()> {
        thread::not_within_itself(|| {
            let mut drained = lock(&self.drained);
            // Sums allocate, and an allocator may record.
            while drained.up_to != self.next.load(Relaxed) as usize {
                self.drain(&mut drained);
            }
            drained.up_to = self.kept;
            // Whoever collects next locks after this, so nobody reads what is overwritten.
            self.next.store(self.kept as u32, Relaxed);
        })
    }

    #[cold]
    #[inline(never)]
    fn push_to_full(&self, record: Record) {
        if self.start_tail_over().is_some() {
            self.rows[self.kept].store(record.packed());
            self.next.store(self.kept as u32 + 1, Release);
        } else {
            // An allocator that records while the sums allocate, say.
            add(&self.homeless, 1);
        }
    }

    /// A record of nothing but its place.
    fn mark(&self, kind: Kind, pass: u32) -> Record {
        Record { order: self.begun.load(Relaxed) as u32, kind, ..Record::nothing(pass) }
    }

    /// A span that begins now, but for its start.
    #[inline(always)]
    fn begin(&self, name: NameIdx) -> Open {
        self.begin_several(name, 1)
    }

    /// The first of some spans that begin at once, each inside the one before it.
    #[inline(always)]
    fn begin_several(&self, name: NameIdx, spans: u64) -> Open {
        let order = self.begun.load(Relaxed);
        self.begun.store(order + spans, Relaxed);
        Open {
            start: 0,
            covered: self.covered.load(Relaxed),
            home: self.home.load(Relaxed),
            what: what(order as u32, name),
        }
    }

    /// The next `N` rows, and the number of the first; `None` if there aren't so many.
    #[inline(always)]
    fn next_rows<const N: usize>(&self) -> Option<(u32, &[Row; N])> {
        let at = self.next.load(Relaxed);
        Some((at, self.rows.get(at as usize..)?.first_chunk()?))
    }

    /// How long a brick took, and what of it is its own, if it is one that began here and nests, as
    /// nearly all do. The thread's time is then covered up to `end`.
    #[inline(always)]
    fn cover(&self, open: &Open, end: u64) -> Option<[u64; 2]> {
        let covered = self.covered.load(Relaxed);
        let since = covered.wrapping_sub(open.covered);
        let last_end = self.last_end.load(Relaxed);
        // Clocks of two cores may be some counts apart.
        if open.home != self.home.load(Relaxed) || end < last_end || end < open.start {
            return None;
        }
        // What was covered since it began lies between its begin and the last end, unless a span
        // that began before it has ended in it: they overlap instead of nesting.
        if since > 0 && (last_end < open.start || since > last_end - open.start) {
            return None;
        }
        let duration = end - open.start;
        let exclusive = duration - since;
        self.covered.store(covered.wrapping_add(exclusive), Relaxed);
        self.last_end.store(end, Relaxed);
        Some([duration, exclusive])
    }

    /// Writes a row of a brick or a kernel of which there is nothing else to tell.
    #[inline(always)]
    fn write(&self, row: &Row, kind: Kind, open: &Open, times: [u64; 2], work: Work) {
        let layer = self.layer.load(Relaxed);
        let times = [open.start, times[0], times[1]];
        row.store(Row::ordinary(times, work, [open.home, open.what], layer, kind));
    }

    /// Ends a brick if all is as it mostly is, or else does nothing. So do the next ones.
    #[inline(always)]
    fn end_ordinary_brick(&self, open: &Open, end: u64, work: Work) -> Option<()> {
        let (at, [row]) = self.next_rows()?;
        let times = self.cover(open, end)?;
        self.write(row, Kind::Brick, open, times, work);
        self.next.store(at + 1, Release);
        Some(())
    }

    /// A kernel, and the brick that ends with it: each with what it began as and its work.
    #[inline(always)]
    fn end_ordinary_pair(
        &self,
        (kernel, kernel_work): (&Open, Work),
        (brick, work): (&Open, Work),
        end: u64,
    ) -> Option<()> {
        let (at, [first, second]) = self.next_rows()?;
        if kernel.home != brick.home || end < kernel.start {
            return None;
        }
        let times = self.cover(brick, end)?;
        self.write(first, Kind::Kernel, kernel, [end - kernel.start, 0], kernel_work);
        self.write(second, Kind::Brick, brick, times, work);
        self.next.store(at + 2, Release);
        Some(())
    }

    /// A brick and the one kernel that is all of it.
    #[inline(always)]
    fn end_ordinary_both(&self, open: &Open, kernel: NameIdx, end: u64, work: Work) -> Option<()> {
        let (at, [row]) = self.next_rows()?;
        let [duration, exclusive] = self.cover(open, end)?;
        let layer = self.layer.load(Relaxed);
        let times = [open.start, duration, exclusive];
        row.store(Row::both(times, work, [open.home, open.what], layer, kernel));
        self.next.store(at + 1, Release);
        Some(())
    }

    /// The same, whatever is otherwise: in one row, as mostly, or else in two.
    fn end_both(&self, open: Open, kernel: NameIdx, end: u64, work: Work) {
        if self.next_rows::<1>().is_none() {
            self.start_tail_over();
        }
        if self.end_ordinary_both(&open, kernel, end, work).is_none() {
            self.end_detail(Kind::Kernel, open.inner(kernel), end, work);
            self.end_brick(Source::Host, open, end, work);
        }
    }

    #[inline(always)]
    fn end_ordinary_kernel(&self, open: &Open, end: u64, work: Work) -> Option<()> {
        let (at, [row]) = self.next_rows()?;
        if open.home != self.home.load(Relaxed) || end < open.start {
            return None;
        }
        self.write(row, Kind::Kernel, open, [end - open.start, 0], work);
        self.next.store(at + 1, Release);
        Some(())
    }

    fn end_brick(&self, source: Source, open: Open, end: u64, work: Work) {
        let covered = self.covered.load(Relaxed);
        let since = covered.wrapping_sub(open.covered);
        let last_end = self.last_end.load(Relaxed);
        let room = last_end.saturating_sub(open.start);
        if open.home != self.home.load(Relaxed) || since > room {
            return self.end_odd_brick(source, open, end, work);
        }
        // Clocks of two cores may be some counts apart: `last_end` never falls all the same.
        let end = end.max(last_end);
        let duration = end.saturating_sub(open.start);
        let exclusive = duration.saturating_sub(since);
        self.covered.store(covered.wrapping_add(exclusive), Relaxed);
        self.last_end.store(end, Relaxed);
        self.push(Record {
            start: open.start,
            duration,
            exclusive,
            work,
            pass: open.pass(),
            order: open.order(),
            name: open.name(),
            layer: self.layer(),
            flags: 0,
            kind: Kind::Brick,
            source,
        });
    }

    /// Ends a brick that doesn't nest, or that began somewhere else.
    fn end_odd_brick(&self, source: Source, open: Open, end: u64, work: Work) {
        let duration = end.saturating_sub(open.start);
        let (flags, exclusive, pass) = match self.oddity(open) {
            0 if open.log() != NO_LOG => {
                let covered = self.covered.load(Relaxed);
                let room = self.last_end.load(Relaxed).saturating_sub(open.start);
                let exclusive =
                    duration.saturating_sub(covered.wrapping_sub(open.covered).min(room));
                self.covered.store(covered.wrapping_add(exclusive), Relaxed);
                (flag::OVERLAPPING, exclusive, open.pass())
            }
            // Its time was measured, but belongs to no wall that this thread keeps.
            oddity => (oddity, duration, 0),
        };
        self.end_no_earlier_than(end);
        self.push(Record {
            start: open.start,
            duration,
            exclusive,
            work,
            pass,
            order: self.order_of(open),
            name: open.name(),
            layer: self.layer(),
            flags,
            kind: Kind::Brick,
            source,
        });
    }

    /// `last_end` only grows: what is covered then fits between the begin of the pass and it.
    fn end_no_earlier_than(&self, end: u64) {
        self.last_end.store(self.last_end.load(Relaxed).max(end), Relaxed);
    }

    /// Whether a span began on another thread or in another pass.
    fn oddity(&self, open: Open) -> u16 {
        if open.log() == NO_LOG {
            0
        } else if open.log() != self.serial() {
            flag::MOVED
        } else if open.pass() != self.pass() {
            flag::STRADDLING
        } else {
            0
        }
    }

    /// A span's place among the begins of this thread. One that began on another thread is taken
    /// to begin where it ends, so that nothing of this thread seems to lie inside it.
    fn order_of(&self, open: Open) -> u32 {
        let began_here = open.log() == self.serial() || open.log() == NO_LOG;
        if began_here { open.order() } else { self.begun.load(Relaxed) as u32 }
    }

    fn end_detail(&self, kind: Kind, open: Open, end: u64, work: Work) {
        let (order, pass, flags) = if open.home == self.home.load(Relaxed) {
            (open.order(), open.pass(), 0)
        } else {
            // Details explain no time, so nothing straddles.
            (self.order_of(open), 0, self.oddity(open) & flag::MOVED)
        };
        self.push(Record {
            start: open.start,
            duration: end.saturating_sub(open.start),
            exclusive: 0,
            work,
            pass,
            order,
            name: open.name(),
            layer: if kind == Kind::Layer { open.name() } else { self.layer() },
            flags,
            kind,
            source: Source::Host,
        });
    }

    /// Ends the pass `serial`, if it is the open one; returns what its bricks cover.
    fn close_pass(&self, serial: u32, outside: u64) -> Option<u64> {
        if self.pass() != serial {
            return None;
        }
        let covered = self.covered.load(Relaxed);
        // A brick around the pass doesn't explain anew what bricks in the pass explain.
        self.covered.store(outside.wrapping_add(covered), Relaxed);
        self.set_pass(0);
        Some(covered)
    }

    #[cold]
    #[inline(never)]
    fn look(&self, clock: &Clock, look: impl Look) {
        let mut since = lock(&self.load);
        let looked = look(&mut since);
        let due = since.map_or(0, |since| clock.now().saturating_add(since.lasts_ns));
        drop(since);
        self.look_due.store(due, Relaxed);
        let record = self.mark(Kind::Load, 0);
        match looked {
            Looked::No => {}
            Looked::Anew => self.push(Record { flags: flag::ANEW, ..record }),
            Looked::Since(disturbance) => self.push(record.with_disturbance(&disturbance)),
        }
    }

    fn tiles(&self) -> &Tiles {
        self.tiles.get_or_init(|| {
            let rows = std::array::from_fn(|_| Row::default());
            Box::new(Tiles { rows, next: AtomicUsize::new(0) })
        })
    }

    fn push_tile(&self, record: Record) {
        let tiles = self.tiles();
        let mut at = tiles.next.load(Relaxed);
        if at == TILE_ROWS {
            let made_room = thread::not_within_itself(|| {
                let mut drained = lock(&self.drained);
                self.drain(&mut drained);
                drained.tiles_up_to = 0;
                tiles.next.store(0, Relaxed);
            });
            if made_room.is_none() {
                return add(&self.homeless, 1);
            }
            at = 0;
        }
        tiles.rows[at].store(record.packed());
        tiles.next.store(at + 1, Release);
    }
}

/// What the rows are of from the first on: that one, the readings that it stands before, and all that comes after.
#[inline(always)]
fn split_first(rows: &[Row]) -> Option<(&Row, &[Row], &[Row])> {
    let (first, rest) = rows.split_first()?;
    let readings = if first.is_told() { Told::rows(first.load_told().readings) } else { 0 };
    let (readings, rest) = rest.split_at_checked(readings)?;
    Some((first, readings, rest))
}

/// Calls `f` with what was told, in the order of ends.
#[inline(always)]
fn each_told(told: &Row, readings: &[Row], scripts: &[PassScript], f: impl FnMut(&Record)) -> u64 {
    let Told { script, position, pass, order, layer, .. } = told.load_told();
    let Some(script) = scripts.get(script as usize) else { return 0 };
    let first = Record { order, layer, ..Record::nothing(pass) };
    script.each_record(&first, position, |i| readings[i / 8].reading(i), f);
    script.spans()
}

/// Calls `f` with all that rows are records of, in the order of ends.
fn each_record(mut rows: &[Row], scripts: &[PassScript], mut f: impl FnMut(&Record)) {
    while let Some((row, readings, rest)) = split_first(rows) {
        if row.is_told() {
            each_told(row, readings, scripts, &mut f);
        } else {
            row.records().for_each(|record| f(&record));
        }
        rows = rest;
    }
}

fn records_of(rows: &[Row], scripts: &[PassScript]) -> Vec<Record> {
    let mut records = Vec::with_capacity(rows.len());
    each_record(rows, scripts, |record| records.push(*record));
    records
}

/// The rows up to the first that says how a pass ended, with that one, and how many these are.
fn up_to_pass(rows: &[Row]) -> (Option<&Row>, usize) {
    let mut rest = rows;
    while let Some((row, _, after)) = split_first(rest) {
        rest = after;
        if row.ends_pass() {
            return (Some(row), rows.len() - rest.len());
        }
    }
    (None, rows.len())
}

fn take_all(fold: &mut Fold, scripts: &[PassScript], mut rows: &[Row]) {
    if let Some(layers) = &mut fold.layers {
        each_record(rows, scripts, |record| layers.take(record));
    }
    loop {
        // Read once: it doesn't matter to rows of no pass how the next pass ends.
        rows = take_while(fold, scripts, rows, Row::load_ordinary_outside, Row::is_outside);
        if rows.is_empty() {
            break;
        }
        // Each pass with its own row, which comes last and says where what came before it belongs: so no sums have
        // to wait for it, and to be moved when it comes, which takes longer than all else.
        let (pass, n) = up_to_pass(rows);
        let (of_pass, rest) = rows.split_at(n);
        fold.expect(pass.map(Row::load).as_ref());
        take_while(fold, scripts, of_pass, Row::load_ordinary, |_| true);
        rows = rest;
    }
    fold.expect(None);
}

/// Takes rows, of which `ordinary` has the spans, up to the first that isn't to be taken. That one, and those after it.
fn take_while<'a>(
    fold: &mut Fold,
    scripts: &[PassScript],
    mut rows: &'a [Row],
    ordinary: impl Fn(&Row) -> Option<Span>,
    is_taken: impl Fn(&Row) -> bool,
) -> &'a [Row] {
    let mut ended = 0;
    loop {
        rows = take_ordinary(fold, rows, &ordinary);
        let Some((row, readings, rest)) = split_first(rows).filter(|(row, ..)| is_taken(row))
        else {
            break;
        };
        if row.is_both() {
            ended += 2;
            row.load_both().iter().for_each(|record| fold.take_span(record.span()));
        } else if row.is_told() {
            ended += each_told(row, readings, scripts, |record| {
                if record.kind != Kind::Layer {
                    fold.take_span(record.span());
                }
            });
        } else {
            fold.take(&row.load());
        }
        rows = rest;
    }
    fold.add_ended(ended);
    rows
}

/// Takes the spans that the rows begin with. The rows after them.
#[inline(never)]
fn take_ordinary<'a>(
    fold: &mut Fold,
    rows: &'a [Row],
    span_in: impl Fn(&Row) -> Option<Span>,
) -> &'a [Row] {
    let mut rest = rows.iter();
    while let Some(span) = rest.as_slice().first().and_then(&span_in) {
        fold.take_span(span);
        rest.next();
    }
    let rest = rest.as_slice();
    fold.add_ended((rows.len() - rest.len()) as u64);
    rest
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

static NEXT_LOG: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

/// In the place of a kernel's name and order: there is none to be ended.
const NO_KERNEL: u64 = u64::MAX;

/// The work of a kernel and of its brick, from words.
#[inline(always)]
fn both(works: &[u64; 6]) -> [Work; 2] {
    let work = |at: usize| Work { elements: works[at], flops: works[at + 1], bytes: works[at + 2] };
    [work(0), work(3)]
}

type Slot = OnceLock<Arc<ThreadLog>>;

/// How many threads find their log in one step.
const NEAR: usize = if cfg!(loom) { 4 } else { 64 };
/// Blocks of further threads, each twice as large as the one before.
const BLOCKS: usize = if cfg!(loom) { 1 } else { 26 };

/// Records spans from any thread. Here too the first line has all that a span needs; it is hardly
/// ever written to.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Recorder {
    /// [`OFF`], or the generation that is recorded.
    active: AtomicU32,
    /// The same, but [`OFF`] too where a span is more than two counts of the processor's counter and
    /// a row: with another clock, and while hardware counters are read.
    plain: AtomicU32,
    /// Whether counters are read at the begin and the end of each brick.
    is_counting: AtomicU32,
    /// Logs with a lower serial are from before the last reset.
    first_log: AtomicU32,
    /// Logs of another generation are forgotten; each thread starts its own anew.
    generation: AtomicU32,
    /// What a reading of the clock takes, if it is the processor's counter.
    ticks: Ticks,
    /// The logs of threads by their index: the first ones here, the others in `far`.
    near: [Slot; NEAR],
    clock: Clock,
    capacity: usize,
    /// From here on it is written to by threads that record.
    written: Written,
    far: [OnceLock<Box<[Slot]>>; BLOCKS],
    switch: Mutex<()>,
    counters: Mutex<Option<Box<dyn ReadCounters>>>,
    /// Whether bricks are summed by layer, too.
    sums_layers: AtomicBool,
}

/// On lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Written {
    next_pass: AtomicU32,
    next_hand_off: AtomicU64,
    /// Calls that found no way to their thread's log.
    homeless: AtomicU64,
}

#[allow(
    clippy::too_many_arguments,
    reason = "words in registers: what is stored one by one and copied as a whole waits for the stores"
)]
impl Recorder {
    pub(crate) fn new(clock: Clock, capacity: usize) -> Self {
        Self {
            ticks: clock.ticks().unwrap_or_default(),
            clock,
            active: AtomicU32::new(OFF),
            plain: AtomicU32::new(OFF),
            generation: AtomicU32::new(OFF + 1),
            first_log: AtomicU32::new(NO_LOG),
            // The number of a row fits 32 bits.
            capacity: capacity.min(u32::MAX as usize / 2),
            written: Written {
                next_pass: AtomicU32::new(1),
                next_hand_off: AtomicU64::new(1),
                homeless: AtomicU64::new(0),
            },
            near: std::array::from_fn(|_| OnceLock::new()),
            far: std::array::from_fn(|_| OnceLock::new()),
            switch: Mutex::new(()),
            is_counting: AtomicU32::new(0),
            counters: Mutex::default(),
            sums_layers: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many rows a thread keeps: at least as many spans.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        // Relaxed: a span that begins while somebody else flips the switch may go either way.
        self.active.load(Relaxed) != OFF
    }

    pub(crate) fn set_active(&self, active: bool) {
        let _held = lock(&self.switch);
        let generation = self.generation.load(Relaxed);
        self.active.store(if active { generation } else { OFF }, Relaxed);
        self.set_plain();
    }

    /// After anything that it depends on has changed; the switch is held.
    fn set_plain(&self) {
        let is_plain = HAS_PLAIN_CLOCK || self.clock.ticks().is_some();
        let is_plain = is_plain && self.is_counting.load(Relaxed) == 0;
        let generation = if is_plain { self.active.load(Relaxed) } else { OFF };
        self.plain.store(generation, Relaxed);
    }

    /// The clock, where [`plain`](Self::plain) isn't [`OFF`].
    #[inline(always)]
    fn plain_now(&self) -> u64 {
        if HAS_PLAIN_CLOCK { self.clock.now() } else { self.ticks.now() }
    }

    /// The same in two steps, of which only the first one has to be taken at once.
    #[inline(always)]
    fn plain_count(&self) -> u64 {
        if HAS_PLAIN_CLOCK { self.clock.now() } else { Ticks::count() }
    }

    #[inline(always)]
    fn plain_at(&self, count: u64) -> u64 {
        if HAS_PLAIN_CLOCK { count } else { self.ticks.at(count) }
    }

    /// Begins a brick. Off, it reads neither the clock nor anything else; what it does when on is out
    /// of line, so that what is inlined everywhere is a load and a branch.
    ///
    /// Out of line there are two ways, here and in all that follows: a short one for what is
    /// [`plain`](Self::plain), which calls nothing and so saves no registers, and a careful one.
    #[inline(always)]
    pub(crate) fn begin_brick(&self, name: NameIdx) -> Open {
        if self.is_active() { self.begin_open_brick(name, 1).again() } else { Open::OFF }
    }

    /// Begins a brick and the one kernel that is all of it, with one reading of the clock.
    #[inline(always)]
    pub(crate) fn begin_both(&self, brick: NameIdx) -> Open {
        if self.is_active() { self.begin_open_brick(brick, 2).again() } else { Open::OFF }
    }

    #[inline(never)]
    fn begin_open_brick(&self, name: NameIdx, spans: u64) -> Open {
        let Some(log) = self.plain_log() else {
            return self.begin_brick_with_care(name, spans);
        };
        let open = log.begin_several(name, spans);
        let last_end = log.last_end.load(Relaxed);
        // The clock last, so that the book-keeping is not in the span. No brick begins before the
        // last one ended, though the clock of the core that the thread has moved to may say so.
        Open { start: self.plain_now().max(last_end), ..open }
    }

    #[cold]
    #[inline(never)]
    fn begin_brick_with_care(&self, name: NameIdx, spans: u64) -> Open {
        let Some(log) = self.log_if_on() else { return Open::OFF };
        let open = log.begin_several(name, spans);
        if self.is_counting() {
            self.begin_counting(log, open);
        }
        let last_end = log.last_end.load(Relaxed);
        Open { start: self.clock.now().max(last_end), ..open }
    }

    /// Begins a kernel or a layer.
    #[inline(always)]
    pub(crate) fn begin_detail(&self, name: NameIdx) -> Open {
        if self.is_active() { self.begin_open_detail(name).again() } else { Open::OFF }
    }

    #[inline(never)]
    fn begin_open_detail(&self, name: NameIdx) -> Open {
        let Some(log) = self.plain_log() else { return self.begin_detail_with_care(name) };
        Open { start: self.plain_now(), ..log.begin(name) }
    }

    #[cold]
    #[inline(never)]
    fn begin_detail_with_care(&self, name: NameIdx) -> Open {
        let Some(log) = self.log_if_on() else { return Open::OFF };
        let open = log.begin(name);
        Open { start: self.clock.now(), ..open }
    }

    /// Ends a brick. Begun while off, it ends here.
    #[inline(always)]
    pub(crate) fn end_brick(&self, open: Open, work: Work) {
        if !open.is_off() {
            let (start, covered, home, what) = open.words();
            let Work { elements, flops, bytes } = work;
            self.end_open_brick(start, covered, home, what, elements, flops, bytes);
        }
    }

    #[inline(never)]
    fn end_open_brick(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        elements: u64,
        flops: u64,
        bytes: u64,
    ) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let (end, log) = self.plain_end();
        if log.and_then(|log| log.end_ordinary_brick(&open, end, work)).is_none() {
            self.end_brick_with_care(start, covered, home, what, elements, flops, bytes, end);
        }
    }

    /// At `end`, or now if that is 0. So do the other careful ways.
    #[cold]
    #[inline(never)]
    fn end_brick_with_care(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        elements: u64,
        flops: u64,
        bytes: u64,
        end: u64,
    ) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let Some((end, log)) = self.end_in_log(&open, end) else { return };
        log.end_brick(Source::Host, open, end, work);
        if self.is_counting() {
            self.end_counting(log, open);
        }
    }

    /// Ends both with one reading.
    #[inline(always)]
    pub(crate) fn end_both(&self, open: Open, kernel: NameIdx, work: Work) {
        if !open.is_off() {
            let (start, covered, home, what) = open.words();
            let Work { elements, flops, bytes } = work;
            self.end_open_both(start, covered, home, what, kernel, elements, flops, bytes);
        }
    }

    #[inline(never)]
    fn end_open_both(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        kernel: NameIdx,
        elements: u64,
        flops: u64,
        bytes: u64,
    ) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let (end, log) = self.plain_end();
        if log.and_then(|log| log.end_ordinary_both(&open, kernel, end, work)).is_none() {
            self.end_both_with_care(
                start, covered, home, what, kernel, elements, flops, bytes, end,
            );
        }
    }

    #[cold]
    #[inline(never)]
    fn end_both_with_care(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        kernel: NameIdx,
        elements: u64,
        flops: u64,
        bytes: u64,
        end: u64,
    ) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let Some((end, log)) = self.end_in_log(&open, end) else { return };
        log.end_both(open, kernel, end, work);
        if self.is_counting() {
            self.end_counting(log, open);
        }
    }

    /// Ends a kernel and begins the next one of the same brick with the same reading.
    #[inline(always)]
    pub(crate) fn next_detail(&self, open: Open, work: Work, next: NameIdx) -> Open {
        if open.is_off() {
            return Open::OFF;
        }
        let (start, covered, home, what) = open.words();
        let Work { elements, flops, bytes } = work;
        let (began, next_what) =
            self.next_open_detail(start, covered, home, what, next, elements, flops, bytes);
        if began == 0 {
            let now = next_what;
            return self
                .next_detail_with_care(
                    start, covered, home, what, next, elements, flops, bytes, now,
                )
                .again();
        }
        // A kernel covers nothing.
        Open { start: began, covered, home, what: next_what }
    }

    /// As [`lap_open`](Self::lap_open).
    #[inline(never)]
    fn next_open_detail(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        next: NameIdx,
        elements: u64,
        flops: u64,
        bytes: u64,
    ) -> (u64, u64) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let (now, log) = self.plain_end();
        match log.and_then(|log| log.end_ordinary_kernel(&open, now, work).map(|()| log)) {
            Some(log) => (now, log.begin(next).what),
            None => (0, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn next_detail_with_care(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        next: NameIdx,
        elements: u64,
        flops: u64,
        bytes: u64,
        now: u64,
    ) -> Open {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let Some((now, log)) = self.end_in_log(&open, now) else { return Open::OFF };
        log.end_detail(Kind::Kernel, open, now, work);
        Open { start: now, ..log.begin(next) }
    }

    /// Ends the last kernel of a brick, and the brick, with one reading.
    #[inline(always)]
    pub(crate) fn end_last(&self, brick: Open, kernel: Open, kernel_work: Work, work: Work) {
        if brick.is_off() {
            return;
        }
        let (start, covered, home, what) = brick.words();
        let kernel_what = if kernel.home == home { kernel.what } else { NO_KERNEL };
        let (first, second) = (kernel_work, work);
        let works =
            [first.elements, first.flops, first.bytes, second.elements, second.flops, second.bytes];
        self.end_open_last(start, covered, home, what, kernel.start, kernel_what, &works);
    }

    #[inline(never)]
    fn end_open_last(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        kernel_start: u64,
        kernel_what: u64,
        works: &[u64; 6],
    ) {
        let open = Open { start, covered, home, what };
        let kernel = Open { start: kernel_start, what: kernel_what, ..open };
        let [first, second] = both(works);
        let (end, log) = self.plain_end();
        let log = log.filter(|_| kernel_what != NO_KERNEL);
        if log
            .and_then(|log| log.end_ordinary_pair((&kernel, first), (&open, second), end))
            .is_none()
        {
            let kernel = (kernel_start, kernel_what);
            self.end_last_with_care(start, covered, home, what, kernel.0, kernel.1, *works, end);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_last_with_care(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        kernel_start: u64,
        kernel_what: u64,
        works: [u64; 6],
        end: u64,
    ) {
        let open = Open { start, covered, home, what };
        let [kernel_work, work] = both(&works);
        let Some((end, log)) = self.end_in_log(&open, end) else { return };
        if kernel_what != NO_KERNEL {
            let kernel = Open { start: kernel_start, what: kernel_what, ..open };
            log.end_detail(Kind::Kernel, kernel, end, kernel_work);
        }
        log.end_brick(Source::Host, open, end, work);
        if self.is_counting() {
            self.end_counting(log, open);
        }
    }

    /// Ends a brick and begins the next one with the same reading of the clock.
    #[inline(always)]
    pub(crate) fn lap(&self, open: Open, work: Work, next: NameIdx) -> Open {
        if open.is_off() {
            return self.begin_brick(next);
        }
        let (start, covered, home, what) = open.words();
        let Work { elements, flops, bytes } = work;
        let (began, next_what) =
            self.lap_open(start, covered, home, what, next, elements, flops, bytes);
        if began == 0 {
            let now = next_what;
            return self
                .lap_with_care(start, covered, home, what, next, elements, flops, bytes, now)
                .again();
        }
        // What nested in it was covered before it, and the rest of it is now.
        let covered = covered.wrapping_add(began - start);
        Open { start: began, covered, home, what: next_what }
    }

    /// When the next brick began and what it is, in two registers; or 0 and the reading of the clock.
    #[inline(never)]
    fn lap_open(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        next: NameIdx,
        elements: u64,
        flops: u64,
        bytes: u64,
    ) -> (u64, u64) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let (now, log) = self.plain_end();
        match log.and_then(|log| log.end_ordinary_brick(&open, now, work).map(|()| log)) {
            Some(log) => (now, log.begin(next).what),
            None => (0, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn lap_with_care(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        next: NameIdx,
        elements: u64,
        flops: u64,
        bytes: u64,
        now: u64,
    ) -> Open {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let Some((now, generation)) = self.end_reading(now) else { return Open::OFF };
        let Some(log) = self.log_here(generation) else { return Open::OFF };
        if !self.is_forgotten(&open, log) {
            log.end_brick(Source::Host, open, now, work);
        }
        let start = now.max(log.last_end.load(Relaxed));
        let next = Open { start, ..log.begin(next) };
        if self.is_counting() {
            self.end_counting(log, open);
            self.begin_counting(log, next);
        }
        next
    }

    /// Has `counters` read at the begin and the end of each brick; `None` ends that.
    pub(crate) fn count(&self, counters: Option<Box<dyn ReadCounters>>) {
        let _held = lock(&self.switch);
        self.is_counting.store(u32::from(counters.is_some()), Relaxed);
        self.set_plain();
        *lock(&self.counters) = counters;
    }

    #[inline(always)]
    fn is_counting(&self) -> bool {
        self.is_counting.load(Relaxed) != 0
    }

    /// What the counters say; nothing where they can't be read.
    fn read_counters(&self) -> CounterReading {
        let mut counters = lock(&self.counters);
        counters.as_mut().and_then(|counters| counters.read().ok()).unwrap_or_default()
    }

    #[cold]
    fn begin_counting(&self, log: &ThreadLog, open: Open) {
        /// Bricks that never end leave their readings behind.
        const MOST: usize = 1024;
        thread::not_within_itself(|| {
            let mut counting = lock(&log.counting);
            if counting.len() >= MOST {
                counting.drain(..MOST / 2);
            }
            counting.reserve(1);
            // Last, so that little of the book-keeping is counted.
            counting.push((open.order(), self.read_counters()));
        });
    }

    #[cold]
    fn end_counting(&self, log: &ThreadLog, open: Open) {
        let is_home = log.oddity(open) == 0;
        let readings = thread::not_within_itself(|| {
            let now = self.read_counters();
            let mut counting = lock(&log.counting);
            let at = counting.iter().rposition(|&(order, _)| order == open.order())?;
            Some((now, counting.remove(at).1))
        });
        let reading = match readings.flatten() {
            Some((now, before)) if is_home => now.since(&before),
            // Begun on another thread or before counting: what lies between can't be told.
            _ => CounterReading::default(),
        };
        let mark = log.mark(Kind::Counters, if is_home { open.pass() } else { 0 });
        log.push(Record { name: open.name(), ..mark }.with_counters(&reading));
    }

    /// Ends a kernel.
    #[inline(always)]
    pub(crate) fn end_kernel(&self, open: Open, work: Work) {
        if !open.is_off() {
            let (start, covered, home, what) = open.words();
            let Work { elements, flops, bytes } = work;
            self.end_open_kernel(start, covered, home, what, elements, flops, bytes);
        }
    }

    #[inline(never)]
    fn end_open_kernel(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        elements: u64,
        flops: u64,
        bytes: u64,
    ) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        let (end, log) = self.plain_end();
        if log.and_then(|log| log.end_ordinary_kernel(&open, end, work)).is_none() {
            self.end_kernel_with_care(start, covered, home, what, elements, flops, bytes, end);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_kernel_with_care(
        &self,
        start: u64,
        covered: u64,
        home: u64,
        what: u64,
        elements: u64,
        flops: u64,
        bytes: u64,
        end: u64,
    ) {
        let (open, work) = (Open { start, covered, home, what }, Work { elements, flops, bytes });
        if let Some((end, log)) = self.end_in_log(&open, end) {
            log.end_detail(Kind::Kernel, open, end, work);
        }
    }

    /// The clock at the end of a span, first of all, and this thread's log. The reading is 0, and
    /// there is no log, where not all is [`plain`](Self::plain).
    #[inline(always)]
    fn plain_end(&self) -> (u64, Option<&ThreadLog>) {
        if self.plain.load(Relaxed) == OFF {
            return (0, None);
        }
        let end = self.plain_now();
        // A clock that stands at 0 still can't be told from none.
        (end, if end == 0 { None } else { self.plain_log() })
    }

    /// The clock at the end of a span, if it wasn't read yet, and the generation that is recorded.
    /// `None` if recording was turned off since it began: then it stays unfinished, and is counted
    /// as such.
    fn end_reading(&self, end: u64) -> Option<(u64, u32)> {
        let generation = self.active.load(Relaxed);
        (generation != OFF).then(|| (if end == 0 { self.clock.now() } else { end }, generation))
    }

    /// When a span ended, and the log that it is to be written to. `None` if there is none for it.
    fn end_in_log(&self, open: &Open, end: u64) -> Option<(u64, &ThreadLog)> {
        let (end, generation) = self.end_reading(end)?;
        let log = self.log_here(generation)?;
        (!self.is_forgotten(open, log)).then_some((end, log))
    }

    /// Whether a span was begun before a reset.
    fn is_forgotten(&self, open: &Open, log: &ThreadLog) -> bool {
        open.log() != log.serial() && open.log() < self.first_log.load(Relaxed)
    }

    /// A brick that somebody else timed, ending now.
    pub(crate) fn add_elapsed(&self, name: NameIdx, elapsed: u64, work: Work) {
        let end = self.clock.now();
        let Some(log) = self.log_if_on() else { return };
        let start = end.saturating_sub(elapsed);
        // If a brick ended inside it, what it explains on its own can't be told.
        let alone = log.last_end.load(Relaxed) <= start && elapsed <= end;
        let open = Open { start, ..log.begin(name) };
        let open = if alone { open } else { open.homeless() };
        log.end_brick(Source::Host, open, start + elapsed, work);
    }

    /// Makes this thread's log with its room for tiles, where it has none.
    pub(crate) fn prepare_thread(&self) {
        if let Some(log) = self.log_if_on() {
            log.tiles();
        }
    }

    /// Ends a tile that began at `start`.
    #[inline]
    pub(crate) fn add_tile(&self, level: u16, start: u64, work: Work) {
        self.add_tile_of(level, start, self.clock.now(), work);
    }

    /// Adds a tile that began and ended at these readings.
    #[inline]
    pub(crate) fn add_tile_of(&self, level: u16, start: u64, end: u64, work: Work) {
        let Some(log) = self.log_if_on() else { return };
        let duration = end.saturating_sub(start);
        let mark = log.mark(Kind::Tile, 0);
        log.push_tile(Record { start, duration, name: level, work, ..mark });
    }

    /// Notes a point of this thread's work that work of others waits for; its number, which is never
    /// 0. `None` if recording is off.
    pub(crate) fn hand_off(&self) -> Option<u64> {
        let log = self.log_if_on()?;
        let number = self.written.next_hand_off.fetch_add(1, Relaxed);
        self.note(log, Kind::HandOff, number);
        Some(number)
    }

    /// Notes that what this thread does next had to wait for a hand-off.
    pub(crate) fn take_over(&self, number: u64) {
        if let Some(log) = self.log_if_on() {
            self.note(log, Kind::TakeOver, number);
        }
    }

    fn note(&self, log: &ThreadLog, kind: Kind, number: u64) {
        let start = self.clock.now();
        let mark = log.mark(kind, log.pass());
        log.push(Record { start, work: Work::elements(number), ..mark });
    }

    /// Sets the layer that this thread works on and begins its span; returns what it was before.
    pub(crate) fn begin_layer(&self, layer: u16) -> (Open, u16) {
        let Some(log) = self.log_if_on() else { return (Open::OFF, NONE) };
        let open = log.begin(layer);
        let before = log.layer();
        log.layer.store(u32::from(layer) << 16, Relaxed);
        (Open { start: self.clock.now(), ..open }, before)
    }

    pub(crate) fn end_layer(&self, open: Open, before: u16) {
        if open.is_off() {
            return;
        }
        if let Some((end, log)) = self.end_in_log(&open, 0) {
            log.end_detail(Kind::Layer, open, end, Work::default());
        }
        if let Some(log) = self.log_here(self.generation.load(Relaxed)) {
            log.layer.store(u32::from(before) << 16, Relaxed);
        }
    }

    /// Begins a pass on this thread. `None` if recording is off, or if a pass is open already.
    /// `look` is called before the clock is read, if it is due: see [`look`](Self::look).
    pub(crate) fn begin_pass(&self, look: impl Look) -> Option<OpenPass> {
        let log = self.log_if_on()?;
        if log.pass() != 0 {
            log.push(Record { flags: flag::NESTED_PASS, ..log.mark(Kind::Pass, 0) });
            return None;
        }
        let due = log.look_due.load(Relaxed);
        if due == 0 || self.clock.now() >= due {
            log.look(&self.clock, look);
        }
        let serial = self.written.next_pass.fetch_add(1, Relaxed);
        let outside = log.covered.load(Relaxed);
        let log = Some(Arc::clone(log));
        let open = OpenPass {
            log,
            start: 0,
            serial,
            outside,
            ended: Cell::new(None),
            is_read: Cell::new(false),
            stays: PhantomData,
        };
        Some(self.start_pass(open))
    }

    fn start_pass(&self, mut open: OpenPass) -> OpenPass {
        open.start = self.clock.now();
        if let Some(log) = &open.log {
            log.covered.store(0, Relaxed);
            // What began before the pass is not of the pass.
            log.last_end.store(open.start, Relaxed);
            log.set_pass(open.serial);
        }
        open
    }

    /// Ends a pass: wall, and what bricks explain of it.
    /// `look` is called after the clock was read, if it is due: see [`look`](Self::look).
    pub(crate) fn end_pass(
        &self,
        mut open: OpenPass,
        phase: Phase,
        tokens: u64,
        position: u64,
        look: impl Look,
    ) {
        let end = open.ended.get().unwrap_or_else(|| self.clock.now());
        let Some(log) = open.log.take() else { return };
        let Some(covered) = log.close_pass(open.serial, open.outside) else { return };
        let end = end.max(log.last_end.load(Relaxed));
        log.push(Record {
            start: open.start,
            duration: end.saturating_sub(open.start),
            exclusive: covered,
            work: Work { elements: tokens, flops: position, bytes: 0 },
            name: phase as u16,
            ..log.mark(Kind::Pass, open.serial)
        });
        if end >= log.look_due.load(Relaxed) {
            log.look(&self.clock, look);
        }
        // Now, so that the next pass finds room.
        if log.next.load(Relaxed) as usize >= log.kept + NEARLY_FULL {
            log.start_tail_over();
        }
    }

    /// Has `look` tell what disturbed the passes that ended on this thread since it last did.
    pub(crate) fn look(&self, look: impl Look) {
        let generation = self.active.load(Relaxed);
        let thread = thread::here();
        // A thread that never recorded has no log, and needs none for this.
        let log = thread.is_numbered().then(|| self.slot(thread.index())?.get()).flatten();
        if let Some(log) = log
            && log.owner.load(Relaxed) == owner(thread, generation)
        {
            log.look(&self.clock, look);
        }
    }

    /// Where this thread stands.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let log = self.log_if_on()?;
        Some(Standing { home: log.home.load(Relaxed), covered: log.covered.load(Relaxed) })
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
        let Some(log) = self.log_if_on() else { return };
        let untouched = since.home == log.home.load(Relaxed)
            && since.covered == log.covered.load(Relaxed)
            && log.last_end.load(Relaxed) <= first_start
            // An end that hasn't come yet is no reading of this clock.
            && spans.last().is_some_and(|last| last.1 + last.2 <= now);
        for (index, &(name, start, duration, work)) in spans.iter().enumerate() {
            let open = Open { start, ..log.begin(name) };
            if untouched {
                log.end_brick(Source::HostOrder, open, start + duration, work);
                continue;
            }
            log.end_no_earlier_than((start + duration).min(now));
            log.push(Record {
                start,
                duration,
                exclusive: duration,
                work,
                order: open.order(),
                name,
                layer: log.layer(),
                // Once for all of them.
                flags: if index == 0 { flag::OVERLAPPING } else { 0 },
                source: Source::HostOrder,
                ..log.mark(Kind::Brick, 0)
            });
        }
    }

    /// Forgets all that was recorded. Spans open now are forgotten too.
    pub(crate) fn reset(&self) {
        let _held = lock(&self.switch);
        self.first_log.store(NEXT_LOG.load(Relaxed), Relaxed);
        let generation = self.generation.load(Relaxed).wrapping_add(1).max(OFF + 1);
        self.generation.store(generation, Relaxed);
        if self.is_active() {
            self.active.store(generation, Relaxed);
        }
        self.set_plain();
        thread::not_within_itself(|| {
            for log in self.all_logs() {
                let mut drained = lock(&log.drained);
                // Its thread may have started it over already.
                if log.owner.load(Relaxed) as u32 != generation {
                    // The rest is its own thread's, which starts over when it records again.
                    drained.fold = Fold::default();
                    drained.dropped = 0;
                    drained.former = Vec::new();
                }
            }
        });
        self.written.homeless.store(0, Relaxed);
    }

    fn all_logs(&self) -> impl Iterator<Item = &Arc<ThreadLog>> {
        let far = self.far.iter().filter_map(OnceLock::get).flat_map(|block| block.iter());
        self.near.iter().chain(far).filter_map(OnceLock::get)
    }

    /// Has bricks summed by layer, too, from here on, or no longer.
    pub(crate) fn sum_layers(&self, sums_layers: bool) {
        // What is adopted from here on asks for itself.
        if self.sums_layers.swap(sums_layers, Relaxed) == sums_layers {
            return;
        }
        self.collect(|mut log| {
            let layers = &mut log.drained.fold.layers;
            *layers = sums_layers.then(|| layers.take().unwrap_or_default());
        });
    }

    pub(crate) fn sums_layers(&self) -> bool {
        self.sums_layers.load(Relaxed)
    }

    /// Calls `f` with what came of each log, as of now. Meanwhile its thread may go on until the
    /// tail is full.
    pub(crate) fn collect(&self, mut f: impl FnMut(Collected<'_>)) {
        // An allocator that records would otherwise wait for itself.
        thread::not_within_itself(|| {
            for log in self.all_logs() {
                let mut drained = lock(&log.drained);
                if log.owner.load(Relaxed) as u32 == self.generation.load(Relaxed) {
                    log.drain(&mut drained);
                    f(Collected { log, drained });
                }
            }
        });
    }

    pub(crate) fn homeless(&self) -> u64 {
        let generation = self.generation.load(Relaxed);
        let logs = self
            .all_logs()
            .filter(|log| log.owner.load(Relaxed) as u32 == generation)
            .map(|log| log.homeless.load(Relaxed));
        self.written.homeless.load(Relaxed) + logs.sum::<u64>()
    }

    #[inline]
    fn log_if_on(&self) -> Option<&Arc<ThreadLog>> {
        let generation = self.active.load(Relaxed);
        if generation == OFF { None } else { self.log_here(generation) }
    }

    /// This thread's log, where all is [`plain`](Self::plain) and the log is there already.
    #[inline(always)]
    fn plain_log(&self) -> Option<&ThreadLog> {
        let generation = self.plain.load(Relaxed);
        // No log is of the generation that is off.
        Some(self.near_log(thread::here(), generation)?)
    }

    #[inline(always)]
    fn near_log(&self, thread: Thread, generation: u32) -> Option<&Arc<ThreadLog>> {
        let log = self.near.get(thread.index())?.get()?;
        (log.owner.load(Relaxed) == owner(thread, generation)).then_some(log)
    }

    /// This thread's log. `None` where there is no way to it: the thread is being torn down, or its
    /// log is just being made (by an allocator that records, say).
    #[inline(always)]
    fn log_here(&self, generation: u32) -> Option<&Arc<ThreadLog>> {
        match self.near_log(thread::here(), generation) {
            Some(log) => Some(log),
            None => self.find_or_make_log(generation),
        }
    }

    #[inline(never)]
    fn find_or_make_log(&self, generation: u32) -> Option<&Arc<ThreadLog>> {
        let here = thread::here();
        let thread = if here.is_numbered() {
            Some(here)
        } else {
            thread::not_within_itself(thread::number).flatten()
        };
        let log = thread.and_then(|thread| {
            let slot = self.slot(thread.index())?;
            if let Some(log) = slot.get()
                && log.owner.load(Relaxed) == owner(thread, generation)
            {
                return Some(log);
            }
            thread::not_within_itself(|| {
                let log = slot.get_or_init(|| Arc::new(ThreadLog::new(self.capacity)));
                log.adopt(thread, generation, self.sums_layers.load(Relaxed));
                log
            })
        });
        if log.is_none() {
            self.written.homeless.fetch_add(1, Relaxed);
        }
        log
    }

    fn slot(&self, index: usize) -> Option<&Slot> {
        if let Some(slot) = self.near.get(index) {
            return Some(slot);
        }
        // Block b begins at NEAR << b and has as many slots.
        let block = (index / NEAR).ilog2();
        let first = NEAR << block;
        let slots = self
            .far
            .get(block as usize)?
            .get_or_init(|| (0..first).map(|_| OnceLock::new()).collect());
        slots.get(index - first)
    }
}

/// What came of one log. Holds it still.
pub(crate) struct Collected<'l> {
    log: &'l ThreadLog,
    drained: MutexGuard<'l, Drained>,
}

impl Collected<'_> {
    pub(crate) fn fold(&self) -> &Fold {
        &self.drained.fold
    }

    /// Spans that the trace had no room for.
    pub(crate) fn dropped(&self) -> u64 {
        self.drained.dropped
    }

    /// Spans that were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.log.begun.load(Relaxed)
    }

    /// Whether a pass is open.
    pub(crate) fn in_pass(&self) -> bool {
        self.log.pass() != 0
    }

    pub(crate) fn forget_tiles(&mut self) {
        self.drained.fold.forget_tiles();
    }

    /// The thread that has this log, without what it left.
    pub(crate) fn lane(&self) -> Lane {
        let Drained { fold, thread, .. } = &*self.drained;
        Lane { serial: fold.log, thread: thread.clone(), records: Vec::new() }
    }

    /// What each thread left that had this log, oldest first.
    pub(crate) fn lanes(&mut self) -> Vec<Lane> {
        let kept = self.drained.up_to.min(self.log.kept);
        let last = Lane {
            serial: self.drained.fold.log,
            thread: self.drained.thread.clone(),
            records: records_of(&self.log.rows[..kept], &self.drained.scripts),
        };
        let former = self.drained.former.iter().map(|lane| Lane {
            serial: lane.serial,
            thread: lane.thread.clone(),
            records: lane.records.clone(),
        });
        former.chain([last]).collect()
    }
}
