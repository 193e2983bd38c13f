//! What was called otherwise than it is meant to be, counted from what was recorded.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::BrickId;

use super::{Recorder, thread};
use crate::fold::Slot;
use crate::row::NameIdx;

/// How often each thing happened that adds up all the same.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Misused {
    pub(crate) abandoned_passes: u64,
    /// Passes that may end yet.
    pub(crate) open_passes: u64,
    pub(crate) nested_passes: u64,
    /// Spans that may end yet, or never will.
    pub(crate) unended_spans: u64,
    /// Of those, such as no pass can have any more: theirs have ended.
    pub(crate) left_open: u64,
    pub(crate) spans_without_pass: u64,
    pub(crate) crossing_bricks: u64,
    pub(crate) crossing_layers: u64,
    pub(crate) straddling_layers: u64,
    pub(crate) foreign_passes: u64,
    pub(crate) foreign_timers: u64,
    pub(crate) foreign_keys: u64,
    pub(crate) early_passes: u64,
    pub(crate) moved_timers: u64,
    pub(crate) straddling_bricks: u64,
    pub(crate) settled_apart: u64,
}

impl Recorder {
    /// `is_over` says that nothing goes on any more. Else other threads may be within their passes, and what is open
    /// there may end yet. `has_idle_workers`: threads joined a pass, and timed no share of it.
    pub(crate) fn misused(&self, is_over: bool, has_idle_workers: bool) -> Misused {
        let mut sum = Misused {
            foreign_passes: self.written.foreign_passes.load(Relaxed),
            foreign_timers: self.written.foreign_timers.load(Relaxed),
            foreign_keys: self.written.foreign_keys.load(Relaxed),
            early_passes: self.written.early_passes.load(Relaxed),
            ..Misused::default()
        };
        let (first_pass, in_passes) = self.first_pass();
        // Before anything is folded, which takes a while: a thread that goes on meanwhile would seem to have left open what
        // it began since.
        let (begun_before, mut runs_elsewhere) = self.begun_and_running(is_over);
        let (mut begun, mut ended) = (0, 0);
        self.collect(|log| {
            let (fold, in_pass) = (log.fold(), log.in_pass());
            let odd = fold.oddities;
            let is_left_open = in_pass && (is_over || log.is_here());
            sum.abandoned_passes += odd.abandoned_passes;
            sum.open_passes += u64::from(is_left_open);
            sum.nested_passes += odd.nested_passes;
            sum.crossing_bricks += odd.overlapping.saturating_sub(odd.settled_apart);
            sum.settled_apart += odd.settled_apart;
            sum.crossing_layers += log.crossing_layers();
            sum.straddling_layers += log.straddling_layers();
            sum.left_open += log.left_open();
            sum.moved_timers += odd.moved;
            sum.straddling_bricks += odd.straddling;
            runs_elsewhere |= in_pass && !is_left_open;
            // Who times bricks alone has no passes to miss.
            if let Some(first_pass) = first_pass {
                let this = (!in_pass, log.last_end());
                let apart = fold.spans_without_pass(this, first_pass);
                // The well-known bricks are parts of passes. Of other names, only who gave them knows.
                let is_known = |name: NameIdx| usize::from(name) < BrickId::COUNT;
                let of_passes =
                    |name: NameIdx| has_idle_workers || is_known(name) || in_passes.contains(&name);
                sum.spans_without_pass += apart.min(fold.spans_outside(of_passes));
            }
            begun += log.begun();
            ended += odd.ended;
        });
        if !runs_elsewhere && begun == begun_before {
            // Of all logs together, since a span may begin on one thread and end on another.
            sum.unended_spans = u64::saturating_sub(begun, ended);
        }
        // What ended later, or on another thread, is told as that.
        let ended_late = sum.straddling_bricks + sum.straddling_layers + sum.moved_timers;
        let never_ended = begun_before.saturating_sub(ended);
        sum.left_open = sum.left_open.saturating_sub(ended_late).min(never_ended);
        sum.unended_spans = sum.unended_spans.max(sum.left_open);
        sum
    }

    /// When the first pass began, of those that have ended, and the names of what ran in passes.
    fn first_pass(&self) -> (Option<u64>, BTreeSet<NameIdx>) {
        let mut first: Option<u64> = None;
        let mut names = BTreeSet::new();
        self.collect(|log| {
            let starts = log.fold().passes.iter().map(|pass| pass.start);
            first = first.into_iter().chain(starts).min();
            let in_passes = log.fold().all_sums().filter(|(_, _, slot, _)| *slot != Slot::Outside);
            names.extend(in_passes.map(|(name, ..)| name));
        });
        (first, names)
    }

    /// How many spans were begun, and whether a pass goes on on another thread.
    fn begun_and_running(&self, is_over: bool) -> (u64, bool) {
        let generation = self.generation.load(Relaxed);
        let here = thread::here().key_of(generation);
        let logs = self.all_logs().filter(|log| log.generation.load(Relaxed) == generation);
        logs.fold((0, false), |(begun, runs), log| {
            // In this order: what began in a pass that is over by the second reading has ended by then.
            let begun_there = log.begun.load(Relaxed);
            let runs_there = log.pass() != 0 && !is_over && log.key.load(Relaxed) != here;
            (begun + begun_there, runs || runs_there)
        })
    }
}
