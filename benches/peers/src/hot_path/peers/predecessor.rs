//! trueno's `BrickProfiler`, today in aprender-compute. It keeps sums, no spans.

use std::hint::black_box;

use trueno::brick::{BrickId, BrickProfiler};

use crate::ours::SUMS;
use crate::row::{Row, timed};

pub(super) fn rows<'a>() -> Vec<Row<'a>> {
    let (mut on, mut off) = (BrickProfiler::enabled(), BrickProfiler::new());
    off.disable();
    vec![
        Row::new("predecessor", "aprender-compute 0.72.3, start + stop", move |spans| {
            start_and_stop(&mut on, spans)
        })
        .more_than_ours(1.8, SUMS),
        Row::new("predecessor_off", "aprender-compute 0.72.3, off", move |spans| {
            start_and_stop(&mut off, spans)
        }),
    ]
}

#[inline(always)]
fn start_and_stop(profiler: &mut BrickProfiler, spans: usize) -> f64 {
    let profiler = black_box(profiler);
    timed(spans, || {
        let timer = profiler.start_brick(BrickId::RmsNorm);
        profiler.stop_brick(timer, 768);
    })
}
