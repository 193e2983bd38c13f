//! What the profiler itself costs: measured, once.

use std::sync::OnceLock;

use brickscope_profile::brick::BrickId;

use crate::clock::Clock;
use crate::profiler::BrickProfiler;

/// Nanoseconds from the begin of a span to that of the next one, if there is nothing in it or
/// between them. Measured once in a process for each kind of clock, in about a millisecond.
pub(crate) fn of_a_span(clock: &Clock) -> Option<f64> {
    static COUNTER: OnceLock<f64> = OnceLock::new();
    static OS: OnceLock<f64> = OnceLock::new();
    if clock.is_mock() {
        return None;
    }
    let known = if clock.source() == "os" { &OS } else { &COUNTER };
    Some(*known.get_or_init(|| measure(clock)))
}

fn measure(clock: &Clock) -> f64 {
    const SPANS: usize = if cfg!(miri) { 10 } else { 2_000 };
    let probe = BrickProfiler::with_clock(clock.clone()).with_log_capacity(SPANS);
    probe.record_without_watching();
    let mut batches: Vec<u64> = (0..9)
        .map(|_| {
            probe.reset();
            // The log is made before the clock is read, as in a run.
            probe.stop_brick(probe.start_brick(BrickId::RmsNorm), 1);
            let start = clock.now();
            for _ in 1..SPANS {
                probe.stop_brick(probe.start_brick(BrickId::RmsNorm), 1);
            }
            clock.now() - start
        })
        .collect();
    batches.sort_unstable();
    batches[batches.len() / 2] as f64 / (SPANS - 1) as f64
}
