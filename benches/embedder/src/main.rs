//! What a span costs a program that embeds brickscope and is built with Cargo's default release profile: no link-time
//! optimisation, 16 codegen units. `cargo bench --bench hot_path` at the root of the repository prints these rows first.

#[path = "../../peers/src/hot_path/calm.rs"]
mod calm;
#[path = "../../peers/src/hot_path/counter.rs"]
mod counter;
#[path = "../../peers/src/hot_path/raw.rs"]
mod raw;
#[path = "../../peers/src/hot_path/report.rs"]
mod report;
#[path = "../../peers/src/hot_path/row.rs"]
#[allow(dead_code, reason = "peers have targets and room that these rows don't")]
mod row;
#[path = "../../peers/src/hot_path/series.rs"]
mod series;
#[path = "../../peers/src/hot_path/table.rs"]
mod table;

use std::hint::black_box;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use brickscope::{BrickId, BrickProfiler};

use crate::raw::ONE;
use crate::report::Args;
use crate::row::{Row, timed};

/// Any engine's log is full after its first seconds: 65 536 spans are kept, all others are only summed.
const BEFORE: usize = 4_000_000;

fn main() -> ExitCode {
    let args = match Args::read() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let mut remarks: Vec<String> = report::other_load().into_iter().collect();
    let pinned = report::pin(&mut remarks);
    let mut rows = rows();
    rows.extend(raw::rows());
    report::run(&args, rows, pinned, remarks)
}

fn rows<'a>() -> Vec<Row<'a>> {
    let full = Rc::new(BrickProfiler::enabled());
    start_and_stop(&full, BEFORE);
    let (full_of_laps, off) = (full.clone(), BrickProfiler::new());
    vec![
        Row::new("embedder", "embedder: start + stop, log full", move |spans| {
            start_and_stop(&full, spans)
        })
        .at_most(1.2),
        Row::new("embedder_lap", "embedder: lap, log full", move |spans| {
            laps(&full_of_laps, spans)
        })
        .at_most_times(1.4, ONE, "one raw reading"),
        Row::new("embedder_off", "embedder: start + stop, off", move |spans| {
            start_and_stop(&off, spans)
        })
        .at_most(0.03),
    ]
}

fn start_and_stop(profiler: &BrickProfiler, spans: usize) -> f64 {
    let profiler = black_box(profiler);
    timed(spans, || {
        let timer = profiler.start_brick(BrickId::RmsNorm);
        profiler.stop_brick(timer, 768);
    })
}

fn laps(profiler: &BrickProfiler, spans: usize) -> f64 {
    let profiler = black_box(profiler);
    let mut timer = profiler.start_brick(BrickId::RmsNorm);
    let start = Instant::now();
    for _ in 0..spans {
        timer = profiler.lap(timer, 768, BrickId::RmsNorm);
    }
    let nanos = start.elapsed().as_nanos() as f64 / spans as f64;
    profiler.stop_brick(timer, 768);
    nanos
}
