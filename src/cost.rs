//! The cost of the profiler itself, measured once.

use std::sync::OnceLock;

use brickscope_profile::{BrickId, Work};

use crate::clock::Clock;
use crate::recorder::Recorder;
use crate::row::NameIdx;

/// Nanoseconds from the begin of an empty span to the begin of the next one. Measured once per process
/// for each kind of clock, in about a millisecond.
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
    let recorder = Recorder::new(clock.clone(), SPANS);
    recorder.set_active(true);
    let span = || {
        let open = recorder.begin_brick(BrickId::RmsNorm as NameIdx);
        recorder.end_brick(open, Work::elements(1));
    };
    let mut batches: Vec<u64> = (0..9)
        .map(|_| {
            recorder.reset();
            // Creates the log before the clock is read, as in a run.
            span();
            let start = clock.now();
            for _ in 1..SPANS {
                span();
            }
            clock.now() - start
        })
        .collect();
    batches.sort_unstable();
    batches[batches.len() / 2] as f64 / (SPANS - 1) as f64
}
