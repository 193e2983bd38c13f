//! What was called otherwise than it is meant to be, counted from what was recorded.

use std::sync::atomic::Ordering::Relaxed;

use super::Recorder;

/// How often each thing happened that adds up all the same.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Misused {
    pub(crate) unended_passes: u64,
    pub(crate) nested_passes: u64,
    pub(crate) unended_spans: u64,
    pub(crate) spans_without_pass: u64,
    pub(crate) crossing_bricks: u64,
    pub(crate) crossing_layers: u64,
    pub(crate) foreign_passes: u64,
    pub(crate) foreign_timers: u64,
    pub(crate) moved_timers: u64,
    pub(crate) straddling_bricks: u64,
    pub(crate) settled_apart: u64,
}

impl Recorder {
    /// `is_over` says that nothing goes on any more. Else other threads may be within their passes, and what is open
    /// there may end yet.
    pub(crate) fn misused(&self, is_over: bool) -> Misused {
        let mut sum = Misused {
            foreign_passes: self.written.foreign_passes.load(Relaxed),
            foreign_timers: self.written.foreign_timers.load(Relaxed),
            ..Misused::default()
        };
        let (mut begun, mut ended, mut apart) = (0, 0, 0);
        let (mut has_passes, mut runs_elsewhere) = (false, false);
        self.collect(|log| {
            let (fold, in_pass) = (log.fold(), log.in_pass());
            let odd = fold.oddities;
            let is_left_open = in_pass && (is_over || log.is_here());
            sum.unended_passes += odd.abandoned_passes + u64::from(is_left_open);
            sum.nested_passes += odd.nested_passes;
            sum.crossing_bricks += odd.overlapping.saturating_sub(odd.settled_apart);
            sum.settled_apart += odd.settled_apart;
            sum.crossing_layers += log.crossing_layers();
            sum.moved_timers += odd.moved;
            sum.straddling_bricks += odd.straddling;
            runs_elsewhere |= in_pass && !is_left_open;
            has_passes |= in_pass || fold.has_passes();
            apart += fold.spans_without_pass(in_pass);
            begun += log.begun();
            ended += odd.ended;
        });
        if !runs_elsewhere {
            // Of all logs together, since a span may begin on one thread and end on another.
            sum.unended_spans = u64::saturating_sub(begun, ended);
        }
        // Who times bricks alone has no passes to miss.
        sum.spans_without_pass = if has_passes { apart } else { 0 };
        sum
    }
}
