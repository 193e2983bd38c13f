//! Records spans: every thread writes to a log of its own, so recording takes no lock.
//!
//! ```text
//! begin ── on? ── own thread's log: begun += 1, remember `covered` ── read clock ──► Open
//!   … the work …
//! end ──── was it on? ── read clock ── own thread's log: covered += its own share, write one row
//! ```
//!
//! | file | what it has |
//! |---|---|
//! | [`hot`] | begin, end and lap of bricks and kernels: the short ways |
//! | [`careful`] | the same for whatever is irregular |
//! | [`log`] | a thread's log |
//! | [`passes`] | passes, layers, hand-offs, tiles |
//! | [`timestamps`] | passes that only read the clock, and are labelled afterwards |
//! | [`timed`] | passes that were timed elsewhere |
//! | [`counting`] | hardware counters around bricks |
//! | [`marking`] | ranges that another tool shows |
//! | [`whose`], [`misused`], [`spots`] | spans and passes of another recorder; what was called amiss, and where |
//! | [`drain`] | from rows to sums and to records |
//! | [`thread`], [`stays`] | numbers for threads; what can't leave its thread |
//!
//! A log is made at a thread's first span and outlives the thread. Nothing here knows a name, a statistic, a graph or
//! a format: rows carry numbers, and sums are made of them later, by `fold`.
//!
//! **A log** is an array of rows, one for each span, or for a brick and the kernel that is all of it; or, of a pass that
//! is labelled afterwards, the number of a template and then timestamps, eight in a row. The first ones are kept: they are
//! the trace. The last ones, the tail, are used again and again: when they are full, their own thread folds them into
//! sums and starts over with the tail. So sums are exact whatever happens to the trace. A collector folds what was
//! written since the last time; a mutex makes sure that only one does. The log's own thread takes the mutex only between
//! two spans: when the tail is full, when a pass has ended and the tail is nearly full, and when a pass is labelled by
//! another template than the one before it.
//!
//! **Exclusive time.** A thread's `covered` is the time that its ended spans explain, each
//! nanosecond once. A span remembers `covered` when it begins; what has been added when it ends
//! lies inside it, so its own share is its length less that, and `covered` grows by this share.
//! Hence the shares of all spans in a pass add up to `covered`, and `wall - covered` is what no
//! brick explains. No stack is kept, so a panic that skips an `end` leaves nothing behind;
//! a pass that is dropped without an end is abandoned.

mod careful;
mod counting;
mod drain;
#[cfg(all(test, not(loom)))]
mod equivalence;
mod hot;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod marking;
mod misused;
mod passes;
mod spots;
mod stays;
mod thread;
mod timed;
mod timestamps;
mod whose;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use self::drain::Lane;
use self::log::ThreadLog;
pub(crate) use self::log::{Open, Owner};
pub(crate) use self::marking::{MarkRanges, Range};
pub(crate) use self::passes::{Looked, OpenPass, Standing};
pub(crate) use self::spots::{Spot, Spots};
use self::thread::Thread;
pub(crate) use self::timed::{Timed, TimedEnd, Unfit};
pub(crate) use self::timestamps::{Timestamps, Unlabelled};
use crate::clock::{Clock, Ticks};
use crate::machine::ReadCounters;
use crate::names::{ANY_PROFILER, ProfilerNo};
use crate::sync::{AtomicU32, AtomicU64, Mutex, OnceLock, lock};

/// The serial of no log.
const NO_LOG: u32 = 0;

/// What [`Recorder::state`] holds while recording is off.
const OFF: u32 = 0;

/// The bit of [`Recorder::state`] that opens the short ways.
const PLAIN: u32 = 1;

/// Generations fit 30 bits, so that one of them, its [`PLAIN`] bit and a thread's number add up without a carry.
const MOST_GENERATIONS: u32 = 1 << 30;

/// Whether every clock is good enough for the short ways, and not the counter alone: where speed is no matter, so that
/// model checkers and tests with a clock turned by hand see the code that runs elsewhere.
const HAS_PLAIN_CLOCK: bool = cfg!(any(miri, loom, debug_assertions));

/// Rows that are used again and again: a decode pass of a model of 22 layers fits, so that it is
/// folded after its end. Few under Miri, which writes them slowly and is to see them folded, too.
const TAIL: usize = match (cfg!(loom), cfg!(miri)) {
    (true, _) => 1,
    (_, true) => 64,
    _ => 1024,
};

/// Recorders are told apart while there are less than 65 536.
static NEXT_NUMBER: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(ANY_PROFILER);

type Slot = OnceLock<Arc<ThreadLog>>;

/// How many threads find their log in one step.
const NEAR: usize = if cfg!(loom) { 4 } else { 64 };
/// Blocks of further threads, each twice as large as the one before.
const BLOCKS: usize = if cfg!(loom) { 1 } else { 26 };

/// Records spans from any thread. As in a log, the first line has all that a span needs; it is hardly
/// ever written to.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Recorder {
    /// [`OFF`], or twice the generation that is recorded, with [`PLAIN`] where a span is no more than two readings of
    /// the processor's counter and a row: without it there is another clock, hardware counters are read, or another tool is
    /// told of ranges.
    state: AtomicU32,
    /// Whether counters are read at the begin and the end of each brick.
    is_counting: AtomicU32,
    /// Logs with a lower serial are from before the last reset.
    first_log: AtomicU32,
    /// Logs of another generation are forgotten; each thread starts its own anew.
    generation: AtomicU32,
    /// Whose keys name its spans.
    number: ProfilerNo,
    /// What a reading of the clock takes, if it is the processor's counter.
    ticks: Ticks,
    /// The logs of threads by their index: the first ones here, the others in `far`.
    near: [Slot; NEAR],
    clock: Clock,
    /// When it was made.
    made: u64,
    capacity: usize,
    /// From here on it is written to by threads that record.
    written: Written,
    far: [OnceLock<Box<[Slot]>>; BLOCKS],
    switch: Mutex<()>,
    counters: Mutex<Option<Box<dyn ReadCounters>>>,
    /// Whether bricks are summed by layer, too.
    sums_layers: AtomicBool,
    /// Who is told of ranges.
    marks: std::sync::OnceLock<Arc<dyn MarkRanges>>,
}

#[cfg(not(loom))]
const _: () = assert!(std::mem::offset_of!(Recorder, near) < 64);

/// On lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Written {
    next_pass: AtomicU32,
    next_hand_off: AtomicU64,
    /// Calls that found no way to their thread's log.
    homeless: AtomicU64,
    /// Spans and passes of other recorders that were to be ended here.
    foreign_timers: AtomicU64,
    foreign_passes: AtomicU64,
    /// Uses of keys that another profiler gave out.
    foreign_keys: AtomicU64,
    /// Passes that were timed elsewhere, and began before this was made.
    early_passes: AtomicU64,
    /// The serials that logs had while they were those of threads that have ended.
    retired: Mutex<Vec<u32>>,
}

impl Recorder {
    pub(crate) fn new(clock: Clock, capacity: usize) -> Self {
        Self {
            ticks: clock.ticks().unwrap_or_default(),
            number: NEXT_NUMBER.fetch_add(1, Relaxed) % ProfilerNo::MAX + 1,
            // Turned by hand, a clock may stand before what it times.
            made: if clock.is_mock() { 0 } else { clock.now() },
            clock,
            state: AtomicU32::new(OFF),
            generation: AtomicU32::new(1),
            first_log: AtomicU32::new(NO_LOG),
            // The number of a row fits 32 bits.
            capacity: capacity.min(u32::MAX as usize / 2),
            written: Written {
                next_pass: AtomicU32::new(1),
                next_hand_off: AtomicU64::new(1),
                homeless: AtomicU64::new(0),
                foreign_timers: AtomicU64::new(0),
                foreign_passes: AtomicU64::new(0),
                foreign_keys: AtomicU64::new(0),
                early_passes: AtomicU64::new(0),
                retired: Mutex::default(),
            },
            near: std::array::from_fn(|_| OnceLock::new()),
            far: std::array::from_fn(|_| OnceLock::new()),
            switch: Mutex::new(()),
            is_counting: AtomicU32::new(0),
            counters: Mutex::default(),
            sums_layers: AtomicBool::new(false),
            marks: std::sync::OnceLock::new(),
        }
    }

    /// The same for keys and for what began before it as the one that it takes the place of.
    pub(crate) fn in_place_of(self, before: &Self) -> Self {
        Self { number: before.number, made: before.made, marks: before.marks.clone(), ..self }
    }

    /// Nobody has used it up to now.
    pub(crate) fn is_made_now(&mut self) {
        self.made = self.clock.now();
    }

    /// Whose keys name its spans: of another one they mean something else.
    #[inline(always)]
    pub(crate) fn number(&self) -> ProfilerNo {
        self.number
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
        self.state.load(Relaxed) != OFF
    }

    pub(crate) fn set_active(&self, active: bool) {
        let _held = lock(&self.switch);
        self.set_state(active);
    }

    /// To be called after anything that the state depends on has changed, with the switch held.
    fn set_state(&self, active: bool) {
        let has_clock = HAS_PLAIN_CLOCK || self.clock.ticks().is_some();
        let is_plain =
            has_clock && self.is_counting.load(Relaxed) == 0 && self.marks.get().is_none();
        let generation = self.generation.load(Relaxed);
        let on = generation << 1 | if is_plain { PLAIN } else { 0 };
        self.state.store(if active { on } else { OFF }, Relaxed);
    }

    /// Begins another generation: the logs of the one before are forgotten. The switch is held.
    fn begin_generation(&self) -> u32 {
        let generation = (self.generation.load(Relaxed) + 1) % MOST_GENERATIONS;
        let generation = generation.max(1);
        self.generation.store(generation, Relaxed);
        self.set_state(self.is_active());
        generation
    }

    /// This thread's log, if it is among the first ones, is there already, and `state` is [`PLAIN`].
    #[inline(always)]
    fn near_log(&self, here: Thread, state: u32) -> Option<&Arc<ThreadLog>> {
        let log = self.near[here.index() % NEAR].get()?;
        (log.key.load(Relaxed) == here.key(state)).then_some(log)
    }

    /// The clock, where [`state`](Self::state) is [`PLAIN`].
    #[inline(always)]
    fn plain_now(&self) -> u64 {
        if HAS_PLAIN_CLOCK { self.clock.now() } else { self.ticks.now() }
    }

    fn all_logs(&self) -> impl Iterator<Item = &Arc<ThreadLog>> {
        let far = self.far.iter().filter_map(OnceLock::get).flat_map(|block| block.iter());
        self.near.iter().chain(far).filter_map(OnceLock::get)
    }

    #[inline]
    fn log_if_on(&self) -> Option<&Arc<ThreadLog>> {
        let state = self.state.load(Relaxed);
        if state == OFF { None } else { self.log_here(state >> 1) }
    }

    /// This thread's log. `None` where there is no way to it: the thread is being torn down, or its
    /// log is just being made (by an allocator that records, say).
    #[inline(always)]
    fn log_here(&self, generation: u32) -> Option<&Arc<ThreadLog>> {
        match self.near_log(thread::here(), generation << 1 | PLAIN) {
            Some(log) => Some(log),
            None => self.find_or_make_log(generation),
        }
    }

    #[cold]
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
                && log.key.load(Relaxed) == thread.key_of(generation)
            {
                return Some(log);
            }
            thread::not_within_itself(|| {
                let mut made_since = None;
                let log = slot.get_or_init(|| {
                    // A clock that is turned by hand stands still meanwhile.
                    made_since = (!self.clock.is_mock()).then(|| self.clock.now());
                    Arc::new(ThreadLog::new(self.capacity))
                });
                self.retire(log, generation);
                log.adopt(thread, generation, self.sums_layers.load(Relaxed));
                if let Some(start) = made_since {
                    log.note_preparation(start, self.clock.now());
                }
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
