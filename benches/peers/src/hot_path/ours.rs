//! brickscope, on one thread.

use std::hint::black_box;

use brickscope::{BrickId, BrickProfiler};

use crate::row::{Row, timed};

/// Spans that the log of a thread has room for: the library's own choice.
pub(crate) const ROOM: usize = 1 << 16;

/// Sustained: what a span costs once the log is full, as in a long run.
pub(crate) const SUMS: &str = "sums";

/// Keeps the log of a profiler from getting full, and starts it anew as rarely as it can: in a real
/// run each place of the log is written once, and a log that stays in the cache would flatter.
#[derive(Default)]
pub(crate) struct Room(usize);

impl Room {
    /// Makes room for so many spans on each thread.
    pub(crate) fn make(&mut self, profiler: &BrickProfiler, spans: usize) {
        if self.0 < spans {
            profiler.reset();
            self.0 = ROOM;
        }
        self.0 -= spans;
    }
}

pub(crate) fn rows<'a>() -> Vec<Row<'a>> {
    let logged = BrickProfiler::enabled().with_log_capacity(ROOM);
    let mut room = Room::default();
    let summed = BrickProfiler::enabled().with_log_capacity(0);
    let off = BrickProfiler::new();
    vec![
        Row::new("log", "start + stop, log with room", move |spans| {
            room.make(&logged, spans + 1);
            start_and_stop(&logged, spans)
        })
        .most(ROOM / 4)
        .at_most(1.25),
        Row::new(SUMS, "start + stop, sums only", move |spans| start_and_stop(&summed, spans))
            .at_most(1.25),
        Row::new("off", "start + stop, off", move |spans| start_and_stop(&off, spans))
            .at_most(0.08),
    ]
}

/// A batch of spans.
#[inline(always)]
pub(crate) fn start_and_stop(profiler: &BrickProfiler, spans: usize) -> f64 {
    let profiler = black_box(profiler);
    // The first span of a thread makes its log, which isn't part of any span.
    one(profiler);
    timed(spans, || one(profiler))
}

/// A span.
#[inline(always)]
pub(crate) fn one(profiler: &BrickProfiler) {
    let timer = profiler.start_brick(BrickId::RmsNorm);
    profiler.stop_brick(timer, 768);
}
