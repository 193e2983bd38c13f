//! Two ways to record the passes of an asynchronous engine: see docs/embedding.md.
//!
//! Run with `cargo run --release --example async_engine`. It prints the report of a few tokens.

use std::sync::Arc;
use std::time::Duration;

use brickscope::{
    BrickId, BrickProfiler, Phase, TimedPass, TimedPassError, TimedSpan, TimedWork, Work,
};
use brickscope_analysis::Report;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profiler = Arc::new(BrickProfiler::enabled());
    for position in 0..8 {
        let on_this_thread = Arc::clone(&profiler);
        tokio::task::spawn_blocking(move || compute(&on_this_thread, position)).await?;
    }
    // Two requests, whose passes take turns on one thread.
    let [first, second] = [8, 9].map(|position| {
        let profiler = Arc::clone(&profiler);
        tokio::spawn(async move { wait_for_device(&profiler, position).await })
    });
    first.await??;
    second.await??;

    println!("{}", profiler.report());
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(profile.phases[0].passes, 10);
    assert!(profiler.misuse().is_empty(), "{:?}", profiler.misuse());
    Ok(())
}

/// A pass that computes: it begins and ends on one thread, with nothing awaited in between.
fn compute(profiler: &BrickProfiler, position: u64) {
    let pass = profiler.begin_pass(Phase::Decode);
    let timer = profiler.start_brick(BrickId::QkvProjection);
    std::thread::sleep(Duration::from_micros(200));
    let timer = profiler.lap(timer, 4096, BrickId::AttentionScore);
    std::thread::sleep(Duration::from_micros(100));
    profiler.stop_brick(timer, 4096);
    profiler.end_pass(pass, 1, position);
}

/// A pass that awaits: it takes readings, and is recorded when it is over.
async fn wait_for_device(profiler: &BrickProfiler, position: u64) -> Result<(), TimedPassError> {
    // Who takes the CPU meanwhile.
    let load = profiler.mark_load();
    let mut readings = vec![profiler.clock().now()];
    let bricks = [BrickId::QkvProjection, BrickId::AttentionScore];
    for _ in bricks {
        device_is_done().await;
        readings.push(profiler.clock().now());
    }
    let span = |(brick, times): (BrickId, &[u64])| TimedSpan {
        what: TimedWork::Brick(brick.into()),
        start_ns: times[0],
        end_ns: times[1],
        work: Work::elements(4096),
        layer: None,
    };
    let spans: Vec<TimedSpan> = bricks.into_iter().zip(readings.windows(2)).map(span).collect();
    let pass = TimedPass {
        phase: Phase::Decode,
        start_ns: readings[0],
        end_ns: readings[bricks.len()],
        tokens: 1,
        position,
        disturbance: profiler.disturbance_since(load),
    };
    profiler.record_pass(&pass, &spans)
}

/// Stands for a device or another machine: other tasks run meanwhile.
async fn device_is_done() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}
