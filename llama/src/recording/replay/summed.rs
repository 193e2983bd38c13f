//! Passes that are summed one by one, while they are recorded.

use std::collections::BTreeMap;

use brickscope::keep::{Chosen, Times};
use brickscope::{BrickProfiler, Phase, TimedPass};

use super::between::{Gap, Sums};
use super::counts::Counts;
use super::graphs::Graphs;
use super::time_of;
use crate::recording::part::AllPasses;
use crate::recording::passes::{Found, Waits};

/// What is known of the passes so far, besides the sums that a profiler has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summed {
    counts: Counts,
    between: Sums,
    waits: Waits,
    walls: BTreeMap<Phase, Times>,
    pub(crate) intervals: Times,
    /// Passes whose nodes were left whole.
    untimed: u64,
}

impl Summed {
    /// A profiler that only sums.
    pub(crate) fn profiler(clock: brickscope::Clock) -> BrickProfiler {
        let profiler = BrickProfiler::with_clock(clock).with_log_capacity(0);
        profiler.sum_layers(true);
        // Passes are read after they ran, so the first of them begin before it is made. Nobody could call it otherwise.
        profiler.warn_of_misuse(false);
        profiler.enable();
        profiler
    }

    /// Adds a pass. `None` if it doesn't count.
    pub(crate) fn add(
        &mut self,
        profiler: &BrickProfiler,
        labels: &mut Graphs<'_>,
        found: &Found<'_>,
    ) -> Option<TimedPass> {
        if found.pass.is_bare || found.pass.is_whole {
            self.untimed += 1;
            return None;
        }
        if found.pass.is_warm_up {
            self.counts.own_warm_up += 1;
            return None;
        }
        let (pass, spans) = labels.pass(found, &mut self.counts)?;
        if profiler.record_pass(&pass, &spans).is_err() {
            self.counts.misfits += 1;
            return None;
        }
        let at = |count: u64| time_of(profiler, count);
        if found.described.is_empty() {
            labels.share(found, pass.phase);
            let ns = |[from, to]: [u64; 2]| at(to).saturating_sub(at(from));
            self.waits.add(pass.phase, found.looked.as_ref(), ns);
        }
        self.counts.add_tokens(pass.phase, pass.tokens);
        let wall_ns = pass.end_ns.saturating_sub(pass.start_ns);
        self.walls.entry(pass.phase).or_default().add(wall_ns);
        if pass.phase == Phase::Decode
            && let Some(gap) = Gap::of(found, at)
        {
            self.between.add(pass.tokens, wall_ns, &gap);
        }
        Some(pass)
    }

    /// All of it, with the sums of its profiler, and which passes were kept.
    pub(crate) fn finish(self, profiler: &BrickProfiler, chosen: Chosen) -> AllPasses {
        let mut sums = profiler.profile();
        let with_layers = profiler.snapshot();
        sums.layers = with_layers.layers;
        sums.brick_kernels = with_layers.brick_kernels;
        sums.latency = with_layers.latency;
        sums.cpu_waits = self.waits.all();
        sums.passes.clear();
        let mut notes = self.counts.notes();
        if self.untimed > 0 {
            notes.push(format!(
                "{} passes in no figure: another backend than the CPU computed them as they are, so their nodes were not \
                 timed",
                self.untimed
            ));
        }
        AllPasses {
            sums,
            chosen,
            walls: self.walls,
            intervals: self.intervals,
            between: self.between.finish(),
            threads: self.counts.threads,
            prompt_tokens: self.counts.prompt_tokens,
            generated_tokens: self.counts.generated_tokens,
            has_untimed: self.counts.has_untimed,
            is_llama: self.counts.is_llama,
            notes,
        }
    }
}
