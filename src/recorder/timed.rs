//! Whole passes that were timed elsewhere: by another process, or by hooks that keep their own readings of the clock.

use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{Disturbance, Phase, Source, Work};

use super::Recorder;
use super::log::ThreadLog;
use crate::row::{Event, Figures, NONE, NameIdx, PassEnd, Record, Span, SpanKind};
use crate::sync::AtomicU64;

/// A span of a pass that was timed elsewhere, by readings of the recorder's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) kind: SpanKind,
    /// [`NONE`] for a layer.
    pub(crate) name: NameIdx,
    /// The index of a layer. Of another span: the layer that it belongs to, or [`NONE`] for the one that it lies in.
    pub(crate) layer: u16,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) work: Work,
}

/// What ends a [`Timed`] pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedEnd {
    pub(crate) phase: Phase,
    pub(crate) tokens: u64,
    pub(crate) position: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) disturbance: Option<Disturbance>,
}

/// Why a pass can't be recorded: the index of a span that doesn't fit, or nothing if the pass itself doesn't.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It ends before it begins.
    Backwards(Option<usize>),
    /// It isn't within the pass.
    Outside(usize),
    /// It begins before the span that is listed before it.
    Unordered(usize),
    /// It ends after a span that it began in.
    Crossing(usize),
    /// Another pass is open on this thread.
    Nested,
    /// It ends later than now.
    Future,
}

/// Clocks of two cores may be as far apart.
const APART_NS: u64 = 1_000;

/// A span that has begun and not ended, on the way through the list.
struct Open {
    index: usize,
    order: u32,
    layer: u16,
    /// What bricks inside it account for.
    inside: u64,
}

impl Recorder {
    /// Records a pass. The spans are in the order in which they began; a span that begins with another one and lies in it
    /// comes after it. Returns the number of the pass. Records nothing, and finds no fault, if recording is off.
    pub(crate) fn add_pass(&self, pass: &TimedEnd, spans: &[Timed]) -> Result<Option<u32>, Unfit> {
        let Some(log) = self.log_if_on() else { return Ok(None) };
        check(pass, spans)?;
        if log.pass() != 0 {
            return Err(Unfit::Nested);
        }
        if !self.clock.is_mock() && pass.end > self.clock.now().saturating_add(APART_NS) {
            return Err(Unfit::Future);
        }
        if pass.start < self.made && !self.clock.counts_from_before() {
            self.written.early_passes.fetch_add(1, Relaxed);
        }
        let serial = self.written.next_pass.fetch_add(1, Relaxed);
        let (covered, last_end) = log.push_timed(serial, spans);
        let TimedEnd { phase, tokens, position, start, end, disturbance } = *pass;
        log.covered.store(log.covered.load(Relaxed).wrapping_add(covered), Relaxed);
        raise(&log.last_end, last_end);
        let wall = end - start;
        let end_of_pass = PassEnd { phase, start, wall, covered, tokens, position };
        log.push_event(serial, Event::Pass(end_of_pass));
        if let Some(disturbance) = disturbance {
            log.push_event(0, Event::Load(Figures::from(&disturbance)));
        }
        Ok(Some(serial))
    }
}

fn raise(word: &AtomicU64, least: u64) {
    word.store(word.load(Relaxed).max(least), Relaxed);
}

fn check(pass: &TimedEnd, spans: &[Timed]) -> Result<(), Unfit> {
    if pass.end < pass.start {
        return Err(Unfit::Backwards(None));
    }
    let mut open: Vec<u64> = Vec::new();
    let mut last_start = pass.start;
    for (index, span) in spans.iter().enumerate() {
        if span.end < span.start {
            return Err(Unfit::Backwards(Some(index)));
        }
        if span.start < pass.start || span.end > pass.end {
            return Err(Unfit::Outside(index));
        }
        if span.start < last_start {
            return Err(Unfit::Unordered(index));
        }
        last_start = span.start;
        while open.last().is_some_and(|&end| end <= span.start) {
            // One that begins where another ends lies after it, unless both take no time.
            open.pop();
        }
        if open.last().is_some_and(|&end| span.end > end) {
            return Err(Unfit::Crossing(index));
        }
        open.push(span.end);
    }
    Ok(())
}

impl ThreadLog {
    /// Writes the spans of a pass, which [fit](check), in the order in which they end. What bricks account for, and when
    /// the last one ended.
    fn push_timed(&self, pass: u32, spans: &[Timed]) -> (u64, u64) {
        let first = self.begun.load(Relaxed);
        self.begun.store(first + spans.len() as u64, Relaxed);
        let (mut open, mut covered, mut last_end): (Vec<Open>, u64, u64) = (Vec::new(), 0, 0);
        let mut end = |open: &mut Vec<Open>, last: Open| {
            let span = &spans[last.index];
            let duration = span.end - span.start;
            let is_brick = span.kind == SpanKind::Brick;
            let exclusive = if is_brick { duration - last.inside } else { 0 };
            // A kernel or a layer accounts for no time of its own.
            let inside = if is_brick { duration } else { last.inside };
            match open.last_mut() {
                Some(around) => around.inside += inside,
                None => covered += inside,
            }
            if is_brick {
                last_end = last_end.max(span.end);
            }
            let event = Event::Span(Span {
                kind: span.kind,
                start: span.start,
                duration,
                exclusive,
                work: span.work,
                name: span.name,
                layer: last.layer,
                flags: 0,
                source: Source::Host,
            });
            self.push(&Record { pass, order: last.order, event });
        };
        for (index, span) in spans.iter().enumerate() {
            while open.last().is_some_and(|last| spans[last.index].end <= span.start) {
                let last = open.pop().expect("there is one");
                end(&mut open, last);
            }
            let layer = match span.kind {
                _ if span.layer != NONE => span.layer,
                _ => open.last().map_or(NONE, |around| around.layer),
            };
            open.push(Open { index, order: first as u32 + index as u32, layer, inside: 0 });
        }
        while let Some(last) = open.pop() {
            end(&mut open, last);
        }
        (covered, last_end)
    }
}
