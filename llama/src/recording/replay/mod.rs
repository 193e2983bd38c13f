//! From what was recorded to a profile: readings are labelled with the nodes that they belong to, and recorded as passes.

mod between;
mod counts;
mod experts;
mod graphs;
mod judge;
mod kept;
mod phase;
mod ran;
mod shares;
mod summed;
mod turns;
mod warm_up;

use brickscope::{
    Between, BrickProfiler, Part as OfRequest, PartKind, Pass, PassPart, Phase, Profile, SyncMode,
};

use self::between::{Gap, between};
use self::counts::Counts;
use self::experts::add_experts;
pub(crate) use self::graphs::Graphs;
use self::ran::RanPasses;
pub(crate) use self::summed::Summed;
use self::turns::{InTurn, Turns};
use self::warm_up::{Mark, leave_out_warm_up};
use super::events::{Graph, Recorded};
use super::groups::Group;
use super::part::{AllPasses, KeptOnes, Part};
use super::passes::{Found, Passes, Waits};
use super::requests::Requests;

/// The most rows of single spans: half a gigabyte. Beyond, passes are summed.
pub(crate) const MOST_ROWS: usize = 1 << 23;

/// A recording as a profile.
#[derive(Debug)]
pub struct Replayed {
    /// Its passes that count, without what is known of the engine, the machine and the model.
    pub profile: Profile,
    /// The most that computed a graph.
    pub threads: u32,
    /// Tokens that were read.
    pub prompt_tokens: u64,
    /// Tokens that were decoded.
    pub generated_tokens: u64,
    /// What isn't in the profile, and why, as sentences.
    pub notes: Vec<String>,
    /// The walls in nanoseconds of passes of one token that follow each other: one whose nodes were not timed, and one
    /// whose nodes were.
    pub turns: Vec<(f64, f64)>,
    /// Whether another backend than the CPU computed nodes of these passes that were not timed.
    pub has_untimed: bool,
    /// What lies between the passes that decode.
    pub between: Option<Between>,
    /// Whether these are passes of llama.cpp, and not another program's graphs.
    pub is_llama: bool,
}

/// Labels what was recorded of a group. The clock of `profiler` is the processor's counter since the recording began
/// ([`counter_since`](brickscope::Clock::counter_since)): by any other, passes that ran before the profiler was made are misuse.
#[must_use]
pub fn replay(recorded: &Recorded, group: &Group, profiler: BrickProfiler) -> Replayed {
    let of_group = || Passes::of(recorded).filter(|found| group.has(recorded, found));
    let spans: usize = of_group().map(|found| rows(&found)).sum();
    let profiler = profiler.with_log_capacity(spans.min(MOST_ROWS));
    profiler.enable();
    let mut labels = Graphs::new(&profiler, recorded);
    let mut counts = Counts::default();
    let mut marks: Vec<Mark> = Vec::new();
    let mut gaps: Vec<Option<Gap>> = Vec::new();
    let mut graphs: Vec<Vec<&Graph>> = Vec::new();
    let mut turns = Turns::default();
    let mut waits = Waits::default();
    let mut in_turn = InTurn::default();
    let at = |count: u64| time_of(&profiler, count);
    let requests = Requests::of(recorded, of_group(), at);
    let served = recorded.part.as_ref().and_then(|part| part.requests.as_ref());
    let all = served.map_or_else(|| requests.all(recorded, at), |served| served.requests.clone());
    let all = all.into_iter();
    let numbers: Vec<u32> = all.map(|of| profiler.requests().record(of)).collect();
    let parts_of = requests.parts(&numbers);
    let mut ran = served.map(|served| RanPasses::of(served, group));
    let mut unseen: Vec<Unseen> = Vec::new();
    for found in of_group() {
        let parts = match &mut ran {
            Some(ran) => ran.parts_of(&found),
            None => parts_of(&found),
        };
        let wall_ns = at(found.pass.end).saturating_sub(at(found.pass.begin));
        turns.add(&found, wall_ns);
        let mut is_unseen = || {
            if !numbers.is_empty() && served.is_none() {
                let position = found.pass.position().unwrap_or(0);
                let start_ns = at(found.pass.begin);
                unseen.push(Unseen { start_ns, wall_ns, position, parts: parts.clone() });
            }
        };
        if found.pass.is_bare {
            counts.bare += 1;
            in_turn.pass(&found, &labels, wall_ns, None);
            is_unseen();
            continue;
        }
        if found.pass.is_whole {
            in_turn.pass(&found, &labels, wall_ns, None);
            is_unseen();
            continue;
        }
        let Some((pass, spans)) = labels.pass(&found, &mut counts) else {
            is_unseen();
            continue;
        };
        match profiler.record_pass_of(&pass, &spans, &parts) {
            Ok(()) => {
                in_turn.pass(&found, &labels, wall_ns, Some(pass.phase));
                gaps.push(Gap::of(&found, at));
                graphs.push(found.graphs.clone());
                marks.push(Mark {
                    is_described: !found.described.is_empty(),
                    is_warm_up: found.pass.is_warm_up,
                    position: found.pass.position(),
                });
                if found.described.is_empty() && !found.pass.is_warm_up {
                    labels.share(&found, pass.phase);
                    let ns = |[from, to]: [u64; 2]| at(to).saturating_sub(at(from));
                    waits.add(pass.phase, found.looked.as_ref(), ns);
                }
                counts.add_tokens(pass.phase, pass.tokens);
            }
            Err(_) => {
                counts.misfits += 1;
                is_unseen();
            }
        }
    }
    let mut profile = profiler.profile();
    // What this process did meanwhile says nothing of the other one.
    profile.other_load = None;
    profile.cpu_waits = waits.all();
    // Of passes that were kept by how slow they are, sums say nothing: those of all take their place.
    if recorded.part.is_none() {
        leave_out_warm_up(&mut profile, &marks, &mut counts);
        add_experts(&mut profile, &graphs, &mut labels);
    }
    let between = between(&profile, &gaps);
    in_turn.find();
    for turn in in_turn.0.iter().filter(|turn| turn.is_whole && !turn.is_bare) {
        if let (Some(phase), Some(tokens)) = (turn.phase, turn.tokens) {
            counts.add_tokens(phase, tokens);
        }
    }
    profile.serialised = in_turn.serialised();
    if !profile.serialised.is_empty() {
        profile.sync_mode = SyncMode::Immediate;
    }
    // By themselves they are nothing to show.
    if !profile.passes.is_empty() && !numbers.is_empty() {
        // Those of other contexts ran meanwhile, for nobody who is known here.
        let is_others = |found: &Found<'_>| served.is_none() && !group.has(recorded, found);
        let of_others = Passes::of(recorded).filter(is_others);
        unseen.extend(ran.into_iter().flat_map(RanPasses::others));
        unseen.extend(of_others.map(|found| {
            let (start_ns, position) = (at(found.pass.begin), found.pass.position().unwrap_or(0));
            let wall_ns = at(found.pass.end).saturating_sub(start_ns);
            Unseen { start_ns, wall_ns, position, parts: Vec::new() }
        }));
        let last = profile.passes.iter().map(|pass| pass.serial).max().unwrap_or(0);
        for (pass, serial) in unseen.into_iter().zip(last.saturating_add(1)..) {
            pass.add_to(&mut profile, serial);
        }
    }
    let mut notes = counts.notes();
    notes.extend(not_tied(requests.untied()));
    profile.fired = recorded.fired.as_ref().map(|fired| fired.of(group.ids()));
    if let Some(part) = &recorded.part
        && let Some(all) = kept::state(&mut profile, part, group)
    {
        return of_all(profile, part, all);
    }
    Replayed {
        profile,
        threads: counts.threads,
        prompt_tokens: counts.prompt_tokens,
        generated_tokens: counts.generated_tokens,
        notes,
        turns: turns.pairs(),
        has_untimed: counts.has_untimed,
        is_llama: counts.is_llama,
        between,
    }
}

/// A profile of which only some passes were kept, with what is known of all.
fn of_all(profile: Profile, part: &Part, all: AllPasses) -> Replayed {
    let mut notes = all.notes;
    if let Some(KeptOnes { kept, .. }) = &part.requests {
        notes.extend(not_tied(kept.untied));
        if kept.too_long > 0 {
            let n = kept.too_long;
            notes.push(format!("requests of which only sums are kept, since they were long: {n}"));
        }
    }
    Replayed {
        profile,
        threads: all.threads,
        prompt_tokens: all.prompt_tokens,
        generated_tokens: all.generated_tokens,
        notes,
        turns: Vec::new(),
        has_untimed: all.has_untimed,
        is_llama: all.is_llama,
        between: all.between,
    }
}

fn not_tied(n: u64) -> Option<String> {
    let what = if n == 1 { "request is" } else { "requests are" };
    (n > 0).then(|| {
        format!(
            "{n} {what} tied to no passes: by time and by lengths none could be meant, or several"
        )
    })
}

/// A pass that isn't among those that count. Requests waited for it, or got a token by it.
struct Unseen {
    start_ns: u64,
    wall_ns: u64,
    position: u64,
    parts: Vec<OfRequest>,
}

impl Unseen {
    /// As one that is left out: nothing of it is in any sum.
    fn add_to(self, profile: &mut Profile, serial: u32) {
        let Self { start_ns, wall_ns, position, parts } = self;
        let has_prompt = parts.iter().any(|part| part.kind == PartKind::Prompt);
        profile.passes.push(Pass {
            serial,
            phase: if has_prompt { Phase::Prefill } else { Phase::Decode },
            lane: 0,
            tokens: parts.iter().fold(0, |sum, part| u64::saturating_add(sum, part.tokens)),
            position,
            start_ns,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
            disturbance: None,
            is_left_out: true,
        });
        profile.parts.extend(parts.into_iter().map(|part| PassPart { pass: serial, part }));
    }
}

/// What a recording lacks, whatever is shown of it.
#[must_use]
pub fn lacks(recorded: &Recorded) -> Vec<String> {
    let refused = (recorded.refused > 0)
        .then(|| format!("{} records did not fit the file of 1 GiB", recorded.refused));
    let lost = recorded.lost.iter().map(|what| format!("not recorded: {what}"));
    let fault = recorded.fault.iter().map(|why| format!("the recording ended early: {why}"));
    refused.into_iter().chain(lost).chain(fault).collect()
}

/// The nanoseconds of a count of the profiler's clock. That of another clock is taken for nanoseconds: tests have one.
fn time_of(profiler: &BrickProfiler, count: u64) -> u64 {
    profiler.clock().time_of_count(count).unwrap_or(count)
}

/// Rows that a pass takes at most: a brick and a kernel for each node, and layers.
pub(crate) fn rows(found: &Found<'_>) -> usize {
    let of_graph = |graph: &&Graph| 3 * graph.nodes.len() + 2;
    4 + found.described.len()
        + found.inside.len()
        + found.graphs.iter().map(of_graph).sum::<usize>()
}

#[cfg(test)]
mod tests;
