//! What happens a few times in a pass, or once: passes, layers, hand-offs, tiles, and bricks that were timed elsewhere.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{Disturbance, Phase, Source, Work};

use super::log::{Open, ThreadLog};
use super::marking::Range;
use super::stays::Stays;
use super::{OFF, Recorder, TAIL, thread};
use crate::clock::Clock;
use crate::machine::LoadReading;
use crate::row::{
    Event, Figures, Mark, NONE, NameIdx, PassEnd, Product, Record, Span, SpanKind, Tile, TileWork,
    flag,
};
use crate::sync::lock;

/// When a pass has ended, rows beyond this part of the tail are folded.
const NEARLY_FULL: usize = TAIL / 4;

/// What lies between two passes counts as part of the second if it is shorter than this, or than this part of the
/// first: choosing a token takes as long. A longer pause may have its own disturbance, so the second pass begins with
/// a look.
const SHORT_PAUSE_NS: u64 = 50_000;
const SHORT_PAUSE: u64 = 16;

/// A pass that has begun. Dropped without an end, by a panic say, it is abandoned: what its bricks
/// took was measured, but there is no wall to hold it against, so it counts outside of passes.
///
/// It stays on its thread, since only that thread may write to the log.
#[derive(Debug)]
pub(crate) struct OpenPass {
    /// `None` once it has ended.
    pub(super) log: Option<Arc<ThreadLog>>,
    start: u64,
    serial: u32,
    /// `covered` of the thread before the pass.
    outside: u64,
    /// How many spans had begun and ended on the thread before it.
    counts: (u64, u16),
    /// When it ended, if that was before its timestamps were labelled.
    pub(super) ended: Cell<Option<u64>>,
    /// Whether its timestamps were asked for.
    pub(super) has_timestamps: Cell<bool>,
    _stays: Stays,
}

impl OpenPass {
    /// Its number.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }
}

impl Drop for OpenPass {
    fn drop(&mut self) {
        if let Some(log) = self.log.take()
            && log.close_pass(self.serial, self.outside).is_some()
        {
            log.push_event(self.serial, Event::Abandoned);
        }
    }
}

/// Where a thread stands: its log, its pass, and `covered`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    home: u64,
    covered: u64,
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
    /// What happened since the last look, of which a pause is a part that belongs to no pass.
    AtMost(Disturbance),
}

/// Looks at what others do: is given the last reading, and may replace it.
pub(crate) trait Look: FnOnce(&mut Option<LoadReading>) -> Looked {}

impl<F: FnOnce(&mut Option<LoadReading>) -> Looked> Look for F {}

impl Recorder {
    /// Begins a pass on this thread. `None` if recording is off, or if a pass is open already.
    /// `look` is called before the clock is read, if it is due: see [`look`](Self::look).
    pub(crate) fn begin_pass(&self, phase: Phase, look: impl Look) -> Option<OpenPass> {
        let log = self.log_if_on()?;
        if log.pass() != 0 {
            log.push_event(0, Event::NestedPass);
            return None;
        }
        let due = log.pause_due.load(Relaxed);
        if due == 0 || self.clock.now() >= due {
            log.look(&self.clock, look);
        }
        let serial = self.written.next_pass.fetch_add(1, Relaxed);
        let outside = log.covered.load(Relaxed);
        let mut open = OpenPass {
            log: Some(Arc::clone(log)),
            start: 0,
            serial,
            outside,
            counts: log.begun_and_ended(),
            ended: Cell::new(None),
            has_timestamps: Cell::new(false),
            _stays: Stays::HERE,
        };
        self.begin_pass_mark(log, serial, phase);
        open.start = self.clock.now();
        log.covered.store(0, Relaxed);
        // What began before the pass is not of the pass.
        log.last_end.store(open.start, Relaxed);
        log.set_pass(serial);
        Some(open)
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
        if !self.owns_pass(&open) {
            return;
        }
        let Some(log) = open.log.take() else { return };
        self.end_pass_mark(&log, open.serial);
        let Some(covered) = log.close_pass(open.serial, open.outside) else { return };
        log.note_left_open(open.counts);
        let end = end.max(log.last_end.load(Relaxed));
        let (start, wall) = (open.start, end.saturating_sub(open.start));
        let end_of_pass = PassEnd { phase, start, wall, covered, tokens, position };
        log.push_event(open.serial, Event::Pass(end_of_pass));
        if end >= log.look_due.load(Relaxed) {
            log.look(&self.clock, look);
        }
        let due = log.look_due.load(Relaxed);
        if due != 0 {
            // A reading that isn't due at the end of this pass isn't at the begin of the next.
            let pause = end.saturating_add(SHORT_PAUSE_NS.max(wall / SHORT_PAUSE));
            log.pause_due.store(due.max(pause), Relaxed);
        }
        // Now, so that the next pass finds room.
        if log.next_row() >= log.kept + NEARLY_FULL {
            log.start_tail_over();
        }
    }

    /// Ends a pass that is not wanted.
    pub(crate) fn discard_pass(&self, mut open: OpenPass) {
        if !self.owns_pass(&open) {
            return;
        }
        let Some(log) = open.log.take() else { return };
        self.end_pass_mark(&log, open.serial);
        if log.close_pass(open.serial, open.outside).is_none() {
            return;
        }
        log.note_left_open(open.counts);
        log.push_event(open.serial, Event::Discarded);
        // The next pass begins with a look, so that what disturbed this one isn't taken for a disturbance of others.
        log.pause_due.store(0, Relaxed);
    }

    /// Has `look` tell what disturbed the passes that ended on this thread since it last did. After a pause, what it tells
    /// is of the pause, too.
    pub(crate) fn look(&self, look: impl Look) {
        let state = self.state.load(Relaxed);
        let thread = thread::here();
        // A thread that never recorded has no log, and needs none for this.
        let log = thread.is_numbered().then(|| self.slot(thread.index())?.get()).flatten();
        if let Some(log) = log
            && state != OFF
            && log.key.load(Relaxed) == thread.key_of(state >> 1)
        {
            let paused = self.clock.now() >= log.pause_due.load(Relaxed);
            log.look(&self.clock, |since: &mut _| match look(since) {
                Looked::Since(disturbance) if paused => Looked::AtMost(disturbance),
                looked => looked,
            });
        }
    }

    /// Sets the layer that this thread works on and begins its span; returns what it was before.
    pub(crate) fn begin_layer(&self, layer: u16) -> (Open, u16) {
        let Some(log) = self.log_if_on() else { return (Open::OFF, NONE) };
        let open = log.begin(layer, 1);
        let before = log.layer();
        log.set_layer(layer);
        self.begin_mark(open, Range::Layer(layer));
        (Open { start: self.clock.now(), ..open }, before)
    }

    pub(crate) fn end_layer(&self, open: Open, before: u16) {
        if open.is_off() {
            return;
        }
        if let Some((end, log)) = self.end_in_log(&open, 0) {
            log.note_layer_end(&open);
            log.end_detail(SpanKind::Layer, open, end, Work::default());
        }
        self.end_mark(open);
        // The layer of another pass, or of another thread, is over.
        if let Some(log) = self.log_here(self.generation.load(Relaxed))
            && open.home == log.home.load(Relaxed)
        {
            log.set_layer(before);
        }
    }

    /// Notes a point of this thread's work that work of others waits for; its number, which is never
    /// 0. `None` if recording is off.
    pub(crate) fn hand_off(&self) -> Option<u64> {
        let log = self.log_if_on()?;
        let number = self.written.next_hand_off.fetch_add(1, Relaxed);
        let mark = Mark { at: self.clock.now(), number };
        log.push_event(log.pass(), Event::HandOff(mark));
        Some(number)
    }

    /// Notes that what this thread does next had to wait for a hand-off.
    pub(crate) fn take_over(&self, number: u64) {
        if let Some(log) = self.log_if_on() {
            let mark = Mark { at: self.clock.now(), number };
            log.push_event(log.pass(), Event::TakeOver(mark));
        }
    }

    /// Makes this thread's log with its room for tiles, where it has none.
    pub(crate) fn prepare_thread(&self) {
        if let Some(log) = self.log_if_on() {
            log.tiles();
        }
    }

    /// Ends a tile that began at `start`.
    #[inline]
    pub(crate) fn add_tile(&self, level: u16, start: u64, work: TileWork) {
        self.add_tile_of(level, start, self.clock.now(), work);
    }

    /// Adds a tile, or a run of them, that began and ended at these readings.
    #[inline]
    pub(crate) fn add_tile_of(&self, level: u16, start: u64, end: u64, work: TileWork) {
        let Some(log) = self.log_if_on() else { return };
        let duration = end.saturating_sub(start);
        log.push_tile(Event::Tile(Tile { level, start, duration, work }));
    }

    /// Adds a product that threads shared. They could have worked for the time `offered` together while its longest
    /// share, which began at `start`, took `longest`.
    pub(crate) fn add_product(&self, start: u64, longest: u64, offered: u64) {
        if let Some(log) = self.log_if_on() {
            log.push_tile(Event::Product(Product { start, longest, offered }));
        }
    }

    /// A brick that somebody else timed, ending now.
    pub(crate) fn add_elapsed(&self, name: NameIdx, elapsed: u64, work: Work) {
        let end = self.clock.now();
        let Some(log) = self.log_if_on() else { return };
        let start = end.saturating_sub(elapsed);
        // If a brick ended inside it, what it explains on its own can't be told.
        let alone = log.last_end.load(Relaxed) <= start && elapsed <= end;
        let open = Open { start, ..log.begin(name, 1) };
        let open = if alone { open } else { open.homeless() };
        log.end_brick(Source::Host, open, start + elapsed, work);
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
    /// counts twice. Both their times are known, so they are recorded though recording may be off by now.
    pub(crate) fn add_settled(
        &self,
        since: Option<Standing>,
        first_start: u64,
        spans: &[(NameIdx, u64, u64, Work)],
    ) {
        let now = self.clock.now();
        let Some(log) = self.log_here(self.generation.load(Relaxed)) else { return };
        let untouched = since.is_some_and(|since| {
            since.home == log.home.load(Relaxed) && since.covered == log.covered.load(Relaxed)
        })
            && log.last_end.load(Relaxed) <= first_start
            // An end that hasn't come yet is no reading of this clock.
            && spans.last().is_some_and(|last| last.1 + last.2 <= now);
        for (index, &(name, start, duration, work)) in spans.iter().enumerate() {
            let open = Open { start, ..log.begin(name, 1) };
            if untouched {
                log.end_brick(Source::HostOrder, open, start + duration, work);
                continue;
            }
            log.end_no_earlier_than((start + duration).min(now));
            let span = Span {
                kind: SpanKind::Brick,
                start,
                duration,
                exclusive: duration,
                work,
                name,
                layer: log.layer(),
                // Once for all of them.
                flags: if index == 0 { flag::OVERLAPPING } else { 0 },
                source: Source::HostOrder,
            };
            log.push(&Record { pass: 0, order: open.order(), event: Event::Span(span) });
        }
    }
}

impl ThreadLog {
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
        self.pause_due.store(due, Relaxed);
        match looked {
            Looked::No => {}
            Looked::Anew => self.push_event(0, Event::LoadUnknown),
            Looked::Since(disturbance) => {
                self.push_event(0, Event::Load(Figures::from(&disturbance)));
            }
            Looked::AtMost(disturbance) => {
                self.push_event(0, Event::LoadAtMost(Figures::from(&disturbance)));
            }
        }
    }
}
