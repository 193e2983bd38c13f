//! The careful ways: what the [hot path](super::hot) does for spans that are not as nearly all are. A span may have moved
//! to another thread, straddle passes, overlap others, find the log full or no log at all, or have counters read around
//! it; the clock may be another one than the processor's counter.
//!
//! An `end` of 0 is a clock that was not read yet.

use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{Source, Work};

use super::log::{Crossing, Open, ThreadLog};
use super::marking::Range;
use super::{NO_LOG, OFF, Recorder};
use crate::row::{Event, NONE, NameIdx, Record, Span, SpanKind, flag};

/// Runs a careful way, out of line. `f` is to own all that it needs: what has an address at the caller's is kept in memory
/// on the short way, too, and storing by words what is then copied as a whole takes as long as half a reading of the
/// clock.
#[cold]
#[inline(never)]
pub(super) fn carefully<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// The same with a span as its result, which goes through words of its own for the same reason.
#[inline(always)]
pub(super) fn carefully_begun(f: impl FnOnce() -> Open) -> Open {
    let [start, covered, home, what] = carefully(move || {
        let Open { start, covered, home, what } = f();
        [start, covered, home, what]
    });
    Open { start, covered, home, what }
}

impl Recorder {
    #[cold]
    pub(super) fn begin_brick_with_care(&self, name: NameIdx, spans: u64) -> Open {
        let Some(log) = self.log_if_on() else { return Open::OFF };
        let open = log.begin(name, spans);
        self.begin_mark(open, Range::Named(name));
        if self.is_counting() {
            self.begin_counting(log, open);
        }
        let last_end = log.last_end.load(Relaxed);
        Open { start: self.clock.now().max(last_end), ..open }
    }

    #[cold]
    pub(super) fn begin_detail_with_care(&self, name: NameIdx) -> Open {
        let Some(log) = self.log_if_on() else { return Open::OFF };
        let open = log.begin(name, 1);
        self.begin_mark(open, Range::Named(name));
        Open { start: self.clock.now(), ..open }
    }

    #[cold]
    pub(super) fn end_brick_with_care(&self, open: Open, end: u64, work: Work) {
        let Some((end, log)) = self.end_in_log(&open, end) else { return self.end_mark(open) };
        log.end_brick(Source::Host, open, end, work);
        if self.is_counting() {
            self.end_counting(log, open);
        }
        self.end_mark(open);
    }

    #[cold]
    pub(super) fn end_both_with_care(&self, open: Open, kernel: NameIdx, end: u64, work: Work) {
        let Some((end, log)) = self.end_in_log(&open, end) else { return self.end_mark(open) };
        log.end_both(open, kernel, end, work);
        if self.is_counting() {
            self.end_counting(log, open);
        }
        self.end_mark(open);
    }

    #[cold]
    pub(super) fn end_kernel_with_care(&self, open: Open, end: u64, work: Work) {
        if let Some((end, log)) = self.end_in_log(&open, end) {
            log.end_detail(SpanKind::Kernel, open, end, work);
        }
        self.end_mark(open);
    }

    #[cold]
    pub(super) fn lap_with_care(&self, open: Open, now: u64, work: Work, next: NameIdx) -> Open {
        let end = |log: &ThreadLog, now| log.end_brick(Source::Host, open, now, work);
        self.lap_to(open, now, end, next, 1)
    }

    #[cold]
    pub(super) fn lap_both_with_care(
        &self,
        open: Open,
        kernel: NameIdx,
        now: u64,
        work: Work,
        next: NameIdx,
    ) -> Open {
        self.lap_to(open, now, |log, now| log.end_both(open, kernel, now, work), next, 2)
    }

    /// Has `end` end a brick, and begins the next one of so many `spans`.
    fn lap_to(
        &self,
        open: Open,
        now: u64,
        end: impl FnOnce(&ThreadLog, u64),
        next: NameIdx,
        spans: u64,
    ) -> Open {
        let of_generation = self.end_reading(now);
        let here = of_generation.and_then(|(now, of)| Some((now, self.log_here(of)?)));
        let Some((now, log)) = here else {
            self.end_mark(open);
            return Open::OFF;
        };
        if !self.refuses(&open, log) {
            end(log, now);
        }
        let start = now.max(log.last_end.load(Relaxed));
        let next = Open { start, ..log.begin(next, spans) };
        self.end_mark(open);
        self.begin_mark(next, Range::Named(next.name()));
        if self.is_counting() {
            self.end_counting(log, open);
            self.begin_counting(log, next);
        }
        next
    }

    #[cold]
    pub(super) fn next_detail_with_care(
        &self,
        open: Open,
        now: u64,
        work: Work,
        next: NameIdx,
    ) -> Open {
        let Some((now, log)) = self.end_in_log(&open, now) else {
            self.end_mark(open);
            return Open::OFF;
        };
        log.end_detail(SpanKind::Kernel, open, now, work);
        let next = Open { start: now, ..log.begin(next, 1) };
        self.end_mark(open);
        self.begin_mark(next, Range::Named(next.name()));
        next
    }

    #[cold]
    pub(super) fn end_last_with_care(
        &self,
        [brick, kernel]: [Open; 2],
        end: u64,
        [kernel_work, work]: [Work; 2],
    ) {
        let Some((end, log)) = self.end_in_log(&brick, end) else { return self.end_mark(brick) };
        // Else there is none to be ended.
        if kernel.home == brick.home {
            log.end_detail(SpanKind::Kernel, kernel, end, kernel_work);
        }
        log.end_brick(Source::Host, brick, end, work);
        if self.is_counting() {
            self.end_counting(log, brick);
        }
        self.end_mark(brick);
    }

    /// The clock at the end of a span, if it wasn't read yet, and the generation that is recorded.
    /// `None` if recording was turned off since it began: then it stays unfinished, and is counted
    /// as such.
    fn end_reading(&self, end: u64) -> Option<(u64, u32)> {
        let state = self.state.load(Relaxed);
        (state != OFF).then(|| (if end == 0 { self.clock.now() } else { end }, state >> 1))
    }

    /// When a span ended, and the log that it is to be written to. `None` if there is none for it.
    pub(super) fn end_in_log(&self, open: &Open, end: u64) -> Option<(u64, &ThreadLog)> {
        let (end, generation) = self.end_reading(end)?;
        let log = self.log_here(generation)?;
        (!self.refuses(open, log)).then_some((end, log))
    }
}

impl ThreadLog {
    /// Ends a brick and the one kernel that is all of it: in one row, as mostly, or else in two.
    fn end_both(&self, open: Open, kernel: NameIdx, end: u64, work: Work) {
        if self.next_rows::<1>().is_none() {
            self.start_tail_over();
        }
        if self.end_plain_both(&open, kernel, end, work).is_none() {
            self.end_detail(SpanKind::Kernel, open.inner(kernel), end, work);
            self.end_brick(Source::Host, open, end, work);
        }
    }

    pub(super) fn end_brick(&self, source: Source, open: Open, end: u64, work: Work) {
        let covered = self.covered.load(Relaxed);
        let since = covered.wrapping_sub(open.covered);
        let last_end = self.last_end.load(Relaxed);
        let room = last_end.saturating_sub(open.start);
        let holds_open = self.holds_open(&open, self.place.load(Relaxed), 1);
        let is_crossing = holds_open && self.crossings.crossed_by(open).next().is_some();
        if holds_open {
            self.note_layer_crossed_by(open);
        }
        if open.home != self.home.load(Relaxed) || is_crossing || since > room {
            self.end_odd_brick(source, open, is_crossing, end, work);
            if holds_open && self.oddity(open) == 0 {
                self.note_crossing(&open, end);
            }
            return;
        }
        // Clocks of two cores may be some counts apart: `last_end` never falls all the same.
        let end = end.max(last_end);
        let duration = end.saturating_sub(open.start);
        let exclusive = duration.saturating_sub(since);
        self.covered.store(covered.wrapping_add(exclusive), Relaxed);
        self.last_end.store(end, Relaxed);
        let span = Span { duration, exclusive, source, ..self.span(SpanKind::Brick, open, work) };
        self.push(&Record { pass: open.pass(), order: open.order(), event: Event::Span(span) });
        if holds_open {
            self.note_crossing(&open, end);
        }
    }

    /// Ends a brick that doesn't nest, or that began somewhere else. If it `is_crossing`, bricks that began before it have
    /// ended in it.
    fn end_odd_brick(&self, source: Source, open: Open, is_crossing: bool, end: u64, work: Work) {
        let duration = end.saturating_sub(open.start);
        let (flags, exclusive, pass) = match self.oddity(open) {
            0 if open.log() != NO_LOG => {
                let covered = self.covered.load(Relaxed);
                let mut crossings =
                    is_crossing.then(|| self.crossings.crossed_by(open)).into_iter().flatten();
                let last = crossings.next();
                let since = match last {
                    // All of the time up to the end of that brick, and what was covered after it.
                    Some(crossing) => {
                        let shared = crossing.end.saturating_sub(open.start);
                        covered.wrapping_sub(crossing.covered).saturating_add(shared)
                    }
                    None => {
                        let room = self.last_end.load(Relaxed).saturating_sub(open.start);
                        covered.wrapping_sub(open.covered).min(room)
                    }
                };
                // Bricks that end with the same reading nest, and one that begins with another's end follows it.
                let overlaps = |crossing: Crossing| open.start < crossing.end && crossing.end < end;
                let overlaps = last.is_none_or(overlaps) || crossings.any(overlaps);
                let exclusive = duration.saturating_sub(since);
                self.covered.store(covered.wrapping_add(exclusive), Relaxed);
                (if overlaps { flag::OVERLAPPING } else { 0 }, exclusive, open.pass())
            }
            // Its time was measured, but belongs to no wall that this thread keeps.
            oddity => {
                if oddity != 0 {
                    self.unsettle();
                }
                (oddity, duration, 0)
            }
        };
        self.end_no_earlier_than(end);
        let span = self.span(SpanKind::Brick, open, work);
        let span = Span { duration, exclusive, flags, source, ..span };
        self.push(&Record { pass, order: self.order_of(open), event: Event::Span(span) });
    }

    /// Ends a kernel or a layer.
    pub(super) fn end_detail(&self, kind: SpanKind, open: Open, end: u64, work: Work) {
        let (order, pass, flags) = if open.home == self.home.load(Relaxed) {
            // Bricks that are open would count this end as that of something they hold.
            if self.holds_open(&open, self.place.load(Relaxed), 1) {
                self.unsettle();
            }
            (open.order(), open.pass(), 0)
        } else {
            self.unsettle();
            // Details explain no time, so nothing straddles.
            (self.order_of(open), 0, self.oddity(open) & flag::MOVED)
        };
        let duration = end.saturating_sub(open.start);
        let span = Span { duration, flags, ..self.span(kind, open, work) };
        self.push(&Record { pass, order, event: Event::Span(span) });
    }

    /// A span of no time. A layer's number is where other spans have their name.
    fn span(&self, kind: SpanKind, open: Open, work: Work) -> Span {
        let (name, layer) = match kind {
            SpanKind::Layer => (NONE, open.name()),
            _ => (open.name(), self.layer()),
        };
        let (start, source) = (open.start, Source::Host);
        Span { kind, start, duration: 0, exclusive: 0, work, name, layer, flags: 0, source }
    }

    /// `last_end` only grows: what is covered then fits between the begin of the pass and it.
    pub(super) fn end_no_earlier_than(&self, end: u64) {
        self.last_end.store(self.last_end.load(Relaxed).max(end), Relaxed);
    }

    /// Whether a span began on another thread or in another pass.
    pub(super) fn oddity(&self, open: Open) -> u16 {
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
}
