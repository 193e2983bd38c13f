//! Other ways to time bricks: laps, guards and the macro.

use std::hint::black_box;
use std::time::Instant;

use brickscope::{BrickId, BrickProfiler, brick};

use crate::ours::{ROOM, Room, one};
use crate::raw::ONE;
use crate::row::{Row, timed};

pub(crate) fn rows<'a>() -> Vec<Row<'a>> {
    let row = |id, name, batch: fn(&BrickProfiler, usize) -> f64, spans_each: usize| {
        let profiler = BrickProfiler::enabled().with_log_capacity(ROOM);
        let mut room = Room::default();
        let row = Row::new(id, name, move |spans| {
            room.make(&profiler, spans_each * spans + 2);
            // Makes the log.
            one(&profiler);
            batch(black_box(&profiler), spans)
        });
        row.most(ROOM / 4)
    };
    vec![
        row("lap", "lap, each brick", laps, 1).at_most_times(1.4, ONE, "one raw reading"),
        row("guards", "guard in a guard, each span", guards, 2).at_most(1.4),
        row("macro", "brick! in brick!, each span", macros, 2).at_most(1.4),
    ]
}

fn laps(profiler: &BrickProfiler, spans: usize) -> f64 {
    let mut timer = profiler.start_brick(BrickId::RmsNorm);
    let start = Instant::now();
    for _ in 0..spans {
        timer = profiler.lap(timer, 768, BrickId::RmsNorm);
    }
    let nanos = start.elapsed().as_nanos() as f64 / spans as f64;
    profiler.stop_brick(timer, 768);
    nanos
}

fn guards(profiler: &BrickProfiler, pairs: usize) -> f64 {
    let nanos = timed(pairs, || {
        let mut outer = profiler.brick(BrickId::OutputProjection);
        {
            let mut inner = profiler.brick(BrickId::RmsNorm);
            inner.elements(768);
        }
        outer.elements(768);
    });
    nanos / 2.0
}

fn macros(profiler: &BrickProfiler, pairs: usize) -> f64 {
    let nanos = timed(pairs, || {
        brick!(profiler, BrickId::OutputProjection, 768, {
            brick!(profiler, BrickId::RmsNorm, 768, {});
        });
    });
    nanos / 2.0
}
