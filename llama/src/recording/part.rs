//! What is known of all passes of a recording, where only some of them are among its events.

use std::collections::BTreeMap;

use brickscope::keep::{Asked, Chosen, Fired, KeptRequests, Timed, Times, When};
use brickscope::{Between, BrickKernel, LayerBrick, Part as OfRequest, Phase, Profile, Request};

/// What tells passes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Id {
    /// Calls of llama.cpp with a context.
    Context(u16),
    /// Calls of llama.cpp whose context isn't known, by the copy of ggml that computed them, if that is.
    Calls(Option<u32>),
    /// Graphs that no call is around.
    Graphs(Option<u32>),
}

/// How often a condition came true, by what tells the passes apart in which it did.
#[derive(Debug, Clone)]
pub(crate) struct AllFired {
    pub(crate) when: When,
    pub(crate) of: BTreeMap<Id, Fired>,
    /// The requests of the program.
    pub(crate) asked: Asked,
}

impl AllFired {
    /// In passes of these. First tokens are the program's: each of its runs has all.
    pub(crate) fn of(&self, ids: &[Id]) -> Fired {
        let mut sum = Fired::none(self.when);
        let is_of_all = self.when.timed() == Timed::FirstToken;
        let here = self.of.iter().filter(|(id, _)| is_of_all || ids.contains(id));
        here.for_each(|(_, fired)| sum.merge(fired));
        sum.asked = is_of_all.then_some(self.asked);
        sum
    }

    /// The same where nothing was left out of the recording.
    pub(crate) fn all_whole(mut self) -> Self {
        self.of.values_mut().for_each(|fired| *fired = fired.all_whole());
        self
    }
}

/// The sums of all passes, by what tells these apart.
#[derive(Debug, Clone, Default)]
pub struct Part {
    pub(crate) of: BTreeMap<Id, AllPasses>,
    /// The requests that were kept, of a server.
    pub(crate) requests: Option<KeptOnes>,
}

/// Requests that were kept, with the passes that ran meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptOnes {
    /// In the order in which they came.
    pub(crate) requests: Vec<Request>,
    /// In the order in which they ended.
    pub(crate) passes: Vec<RanPass>,
    pub(crate) kept: KeptRequests,
}

/// A pass of which only is known when it ran, and for whom.
#[derive(Debug, Clone)]
pub(crate) struct RanPass {
    pub(crate) id: Id,
    pub(crate) thread: u16,
    /// When it began, in counts.
    pub(crate) begin: u64,
    /// When it ran, in nanoseconds.
    pub(crate) times: [u64; 2],
    pub(crate) position: u64,
    /// By indexes of requests.
    pub(crate) parts: Vec<OfRequest>,
}

/// The sums of all passes, kept or not.
#[derive(Debug, Clone)]
pub(crate) struct AllPasses {
    /// Its sums; it has no passes and spans.
    pub(crate) sums: Profile,
    /// Which passes were kept, by their numbers among all.
    pub(crate) chosen: Chosen,
    pub(crate) walls: BTreeMap<Phase, Times>,
    pub(crate) intervals: Times,
    pub(crate) between: Option<Between>,
    pub(crate) threads: u32,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) has_untimed: bool,
    pub(crate) is_llama: bool,
    pub(crate) notes: Vec<String>,
}

impl AllPasses {
    /// Adds those of a context that came after.
    pub(crate) fn merge(&mut self, other: &Self) {
        merge_sums(&mut self.sums, &other.sums);
        self.chosen.slowest.extend(&other.chosen.slowest);
        self.chosen.around.extend(&other.chosen.around);
        self.chosen.samples.extend(other.chosen.samples.iter().cloned());
        for (phase, walls) in &other.walls {
            self.walls.entry(*phase).or_default().merge(walls);
        }
        self.intervals.merge(&other.intervals);
        if let Some(more) = &other.between {
            add_between(self.between.get_or_insert_default(), more);
        }
        self.threads = self.threads.max(other.threads);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.generated_tokens = self.generated_tokens.saturating_add(other.generated_tokens);
        self.has_untimed |= other.has_untimed;
        self.is_llama |= other.is_llama;
        self.notes.extend(other.notes.iter().cloned());
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn add_between(between: &mut Between, more: &Between) {
    add(&mut between.passes, more.passes);
    add(&mut between.tokens, more.tokens);
    add(&mut between.passes_ns, more.passes_ns);
    add(&mut between.between_ns, more.between_ns);
    for calls in &more.calls {
        match between.calls.iter_mut().find(|of| of.name == calls.name) {
            Some(of) => {
                add(&mut of.calls, calls.calls);
                add(&mut of.ns, calls.ns);
            }
            None => between.calls.push(calls.clone()),
        }
    }
}

/// Adds sums of other passes. What these are of both together, sums don't tell in all: that is cleared.
pub(crate) fn merge_sums(sums: &mut Profile, other: &Profile) {
    for more in &other.phases {
        let Some(of) = sums.phases.iter_mut().find(|of| of.phase == more.phase) else {
            sums.phases.push(*more);
            continue;
        };
        of.unwatched = of.unwatched.zip(more.unwatched).map(|(a, b)| a.saturating_add(b));
        for (sum, more) in [
            (&mut of.passes, more.passes),
            (&mut of.disturbed, more.disturbed),
            (&mut of.tokens, more.tokens),
            (&mut of.wall_ns, more.wall_ns),
            (&mut of.attributed_ns, more.attributed_ns),
            (&mut of.unattributed_ns, more.unattributed_ns),
        ] {
            add(sum, more);
        }
    }
    for more in &other.totals {
        let is_it = |of: &&mut brickscope::Total| {
            (of.phase, of.kind, of.source) == (more.phase, more.kind, more.source)
                && of.stats.name == more.stats.name
                && of.host == more.host
                && of.device == more.device
        };
        let Some(of) = sums.totals.iter_mut().find(is_it) else {
            sums.totals.push(more.clone());
            continue;
        };
        of.stats.merge(&more.stats);
        (of.std_dev_ns, of.percentiles) = (of.stats.std_dev_ns(), of.stats.percentiles());
    }
    for more in &other.layers {
        let is_it = |of: &&mut LayerBrick| {
            (of.phase, of.layer, &of.name) == (more.phase, more.layer, &more.name)
        };
        match sums.layers.iter_mut().find(is_it) {
            Some(of) => {
                add(&mut of.count, more.count);
                add(&mut of.total_ns, more.total_ns);
                add(&mut of.exclusive_ns, more.exclusive_ns);
            }
            None => sums.layers.push(more.clone()),
        }
    }
    for more in &other.brick_kernels {
        let is_it = |of: &&mut BrickKernel| {
            (of.phase, &of.brick, &of.kernel) == (more.phase, &more.brick, &more.kernel)
        };
        match sums.brick_kernels.iter_mut().find(is_it) {
            Some(of) => {
                add(&mut of.count, more.count);
                add(&mut of.total_ns, more.total_ns);
            }
            None => sums.brick_kernels.push(more.clone()),
        }
    }
    add(&mut sums.dropped.spans, other.dropped.spans);
    add(&mut sums.dropped.warm_up_passes, other.dropped.warm_up_passes);
    add(&mut sums.dropped.disturbed_passes, other.dropped.disturbed_passes);
    add(&mut sums.overhead.spans, other.overhead.spans);
    // What these are of both together, sums don't tell.
    sums.latency = brickscope::Latency::default();
    sums.shares.clear();
    sums.cpu_waits.clear();
}
