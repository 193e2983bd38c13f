//! Passes that are summed one by one, while they are recorded.

use std::collections::{BTreeMap, HashMap};
use std::mem::take;

use brickscope::keep::{Chosen, Times};
use brickscope::{BrickProfiler, Phase, Profile, TimedPass, TimedSpan};

use super::between::{Gap, Sums};
use super::counts::Counts;
use super::graphs::Graphs;
use super::judge::{Is, Judge, Seen};
use super::time_of;
use crate::recording::part::{AllPasses, merge_sums};
use crate::recording::passes::{Found, Waits};

/// The most bytes of passes of which it isn't decided whether they count.
const MOST_WAITING: usize = 4 << 20;

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
    judge: Judge,
    /// Those that aren't judged yet, by their numbers, and their bytes.
    waiting: HashMap<u64, Waiting>,
    waiting_bytes: usize,
    /// Passes that count though their graphs were described in them, since others of their kind would have come too late.
    described: u64,
}

/// A pass that is added once it is known that it counts.
#[derive(Debug, Clone)]
struct Waiting {
    pass: TimedPass,
    spans: Vec<TimedSpan>,
    gap: Option<Gap>,
}

/// Passes that were judged, by their numbers, with the phase and the tokens of those that count.
pub(crate) type Judged = Vec<(u64, Option<(Phase, u64)>)>;

impl Summed {
    /// A profiler that only sums. As for [`replay`](super::replay), the clock counts since the recording began.
    pub(crate) fn profiler(clock: brickscope::Clock) -> BrickProfiler {
        let profiler = BrickProfiler::with_clock(clock).with_log_capacity(0);
        profiler.sum_layers(true);
        profiler.enable();
        profiler
    }

    /// Adds a pass with its number. Returns which are judged now: it, or others, or none.
    pub(crate) fn add(
        &mut self,
        serial: u64,
        profiler: &BrickProfiler,
        labels: &mut Graphs<'_>,
        found: &Found<'_>,
    ) -> Judged {
        let not_counted = vec![(serial, None)];
        if found.pass.is_bare || found.pass.is_whole {
            self.untimed += 1;
            return not_counted;
        }
        if found.pass.is_warm_up {
            self.counts.own_warm_up += 1;
            return not_counted;
        }
        let Some((pass, spans)) = labels.pass(found, &mut self.counts) else { return not_counted };
        let at = |count: u64| time_of(profiler, count);
        let is_described = !found.described.is_empty();
        if !is_described {
            labels.share(found, pass.phase);
            let ns = |[from, to]: [u64; 2]| at(to).saturating_sub(at(from));
            self.waits.add(pass.phase, found.looked.as_ref(), ns);
        }
        let (phase, tokens, position) = (pass.phase, pass.tokens, found.pass.position());
        let gap = if phase == Phase::Decode { Gap::of(found, at) } else { None };
        self.waiting_bytes += size_of_val(&*spans);
        self.waiting.insert(serial, Waiting { pass, spans, gap });
        let mut judged = Vec::new();
        self.judge.add(Seen { serial, phase, tokens, position, is_described }, &mut judged);
        let mut all = self.judged(profiler, judged);
        while self.waiting_bytes > MOST_WAITING {
            let mut judged = Vec::new();
            self.judge.give_up(&mut judged);
            if judged.is_empty() {
                break;
            }
            all.extend(self.judged(profiler, judged));
        }
        all
    }

    /// Labels a pass that waits with the names of another profiler, by which it will be recorded. One that can't be is counted as
    /// one that doesn't fit its graph.
    pub(crate) fn label_anew(&mut self, serial: u64, labels: &mut Graphs<'_>, found: &Found<'_>) {
        // It was counted when it came.
        let Some((_, spans)) = labels.pass(found, &mut Counts::default()) else {
            self.counts.misfits += 1;
            self.waiting.remove(&serial);
            return;
        };
        if let Some(waiting) = self.waiting.get_mut(&serial) {
            waiting.spans = spans;
        }
    }

    /// No pass follows: those that waited for one are judged.
    pub(crate) fn end(&mut self, profiler: &BrickProfiler) -> Judged {
        let mut judged = Vec::new();
        self.judge.finish(&mut judged);
        self.judged(profiler, judged)
    }

    fn judged(&mut self, profiler: &BrickProfiler, judged: Vec<(u64, Is)>) -> Judged {
        let of_one = |(serial, is): (u64, Is)| (serial, self.count(profiler, serial, is));
        judged.into_iter().map(of_one).collect()
    }

    /// Adds a pass that waited, if it counts.
    fn count(&mut self, profiler: &BrickProfiler, serial: u64, is: Is) -> Option<(Phase, u64)> {
        let Waiting { pass, spans, gap } = self.waiting.remove(&serial)?;
        self.waiting_bytes = self.waiting_bytes.saturating_sub(size_of_val(&*spans));
        match is {
            Is::WarmUp => self.counts.warm_up += 1,
            Is::OwnWarmUp => self.counts.own_warm_up += 1,
            Is::Described => self.described += 1,
            Is::Counted => {}
        }
        if matches!(is, Is::WarmUp | Is::OwnWarmUp) {
            return None;
        }
        if profiler.record_pass(&pass, &spans).is_err() {
            self.counts.misfits += 1;
            return None;
        }
        self.counts.add_tokens(pass.phase, pass.tokens);
        let wall_ns = pass.end_ns.saturating_sub(pass.start_ns);
        self.walls.entry(pass.phase).or_default().add(wall_ns);
        if let Some(gap) = gap {
            self.between.add(pass.tokens, wall_ns, &gap);
        }
        Some((pass.phase, pass.tokens))
    }

    /// All of it, with the sums of its profiler, and of others that summed the last passes apart, and which passes were kept.
    pub(crate) fn finish(
        self,
        profiler: &BrickProfiler,
        apart: &[&BrickProfiler],
        chosen: Chosen,
    ) -> AllPasses {
        let mut sums = sums_of(profiler);
        for more in apart {
            // What sums don't tell of both is that of the passes before.
            let (latency, shares) = (take(&mut sums.latency), take(&mut sums.shares));
            merge_sums(&mut sums, &sums_of(more));
            (sums.latency, sums.shares) = (latency, shares);
            sums.phases.sort_by_key(|of| of.phase);
        }
        sums.cpu_waits = self.waits.all();
        sums.dropped.warm_up_passes = self.counts.warm_up.saturating_add(self.counts.own_warm_up);
        let mut notes = self.counts.notes();
        if self.described > 0 {
            notes.push(format!(
                "{} passes count though graphs were described in them: no other of as many tokens came soon",
                self.described
            ));
        }
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

/// The sums of a profiler, without the passes.
fn sums_of(profiler: &BrickProfiler) -> Profile {
    let mut sums = profiler.profile();
    let with_layers = profiler.snapshot();
    sums.layers = with_layers.layers;
    sums.brick_kernels = with_layers.brick_kernels;
    sums.latency = with_layers.latency;
    sums.passes.clear();
    sums
}
