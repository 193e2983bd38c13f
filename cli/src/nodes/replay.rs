//! From what was recorded to a profile: readings are labelled with the nodes that they belong to, and recorded as passes.

use std::collections::HashMap;

use brickscope::{
    Between, BrickKey, BrickProfiler, Calls, Phase, Profile, Share, SyncMode, TimedPass, TimedSpan,
    TimedWork, Work,
};
use brickscope_llama::bricks::{self, Brick};
use brickscope_llama::file::{CALLS, Graph, INSIDE, Pass, Recorded, Shares};
use brickscope_llama::{Labels, LooksAt, Node, Ran};

use super::groups::Group;
use super::passes::{Found, Passes, Waits};
use super::turns::{InTurn, Turns};
use super::warm_up::{Mark, leave_out_warm_up};

/// The most rows of single spans: half a gigabyte. Beyond, passes are summed.
const MOST_ROWS: usize = 1 << 23;

/// Time in a pass that the library took to describe a graph.
const DESCRIBING: &str = "(brickscope)";

/// More tokens than this of which each has an output are taken for a prompt, where sequences aren't known.
const MOST_OUTPUTS: u64 = 32;

/// A recording as a profile.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) profile: Profile,
    pub(crate) threads: u32,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    /// What isn't in the profile, and why, as sentences.
    pub(crate) notes: Vec<String>,
    /// The walls in nanoseconds of passes of one token that follow each other: one whose nodes were not timed, and one
    /// whose nodes were.
    pub(crate) turns: Vec<(f64, f64)>,
    /// Whether another backend than the CPU computed nodes of these passes that were not timed.
    pub(crate) has_untimed: bool,
    /// What lies between the passes that decode.
    pub(crate) between: Option<Between>,
    /// Whether these are passes of llama.cpp, and not another program's graphs.
    pub(crate) is_llama: bool,
}

/// Labels what was recorded of a group. The clock of `profiler` is the processor's counter, and was made before the recording
/// began.
pub(crate) fn replay(recorded: &Recorded, group: &Group, profiler: BrickProfiler) -> Replayed {
    let of_group = || Passes::of(recorded).filter(|found| group.has(recorded, found));
    let spans: usize = of_group().map(|found| rows(&found)).sum();
    let profiler = profiler.with_log_capacity(spans.min(MOST_ROWS));
    profiler.enable();
    let mut labels = Graphs { profiler: &profiler, recorded, known: HashMap::new() };
    let mut counts = Counts::default();
    let mut marks: Vec<Mark> = Vec::new();
    let mut gaps: Vec<Option<Gap>> = Vec::new();
    let mut turns = Turns::default();
    let mut waits = Waits::default();
    let mut in_turn = InTurn::default();
    for found in of_group() {
        let at = |count: u64| time_of(&profiler, count);
        let wall_ns = at(found.pass.end).saturating_sub(at(found.pass.begin));
        turns.add(&found, wall_ns);
        if found.pass.is_bare {
            counts.bare += 1;
            in_turn.pass(&found, &labels, wall_ns, None);
            continue;
        }
        if found.pass.is_whole {
            in_turn.pass(&found, &labels, wall_ns, None);
            continue;
        }
        let Some((pass, spans)) = labels.pass(&found, &mut counts) else { continue };
        match profiler.record_pass(&pass, &spans) {
            Ok(()) => {
                in_turn.pass(&found, &labels, wall_ns, Some(pass.phase));
                gaps.push(Gap::of(&found, at));
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
            Err(_) => counts.misfits += 1,
        }
    }
    let mut profile = profiler.profile();
    // What this process did meanwhile says nothing of the other one.
    profile.other_load = None;
    profile.cpu_waits = waits.all();
    leave_out_warm_up(&mut profile, &marks, &mut counts);
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
    let notes = counts.notes();
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

/// The time before a pass, since its thread's pass before.
#[derive(Debug)]
struct Gap {
    ns: u64,
    calls: [[u64; 2]; CALLS.len()],
}

impl Gap {
    fn of(found: &Found<'_>, at: impl Fn(u64) -> u64) -> Option<Self> {
        let before = found.before?;
        let begin = at(found.pass.begin);
        // Counts of calls are those of the same clock, so many of them from any moment on.
        let ns = |counts: u64| begin.saturating_sub(at(found.pass.begin.saturating_sub(counts)));
        let ns_of = |[calls, counts]: [u64; 2]| [calls, ns(counts)];
        Some(Self { ns: begin.saturating_sub(at(before.ended)), calls: before.calls.map(ns_of) })
    }
}

/// What lies between passes that decode; `None` if there are none after others.
fn between(profile: &Profile, gaps: &[Option<Gap>]) -> Option<Between> {
    let mut between = Between::default();
    let mut sums = [[0_u64; 2]; CALLS.len()];
    let decodes = |pass: &&brickscope::Pass| pass.phase == Phase::Decode && !pass.is_left_out;
    for pass in profile.passes.iter().filter(decodes) {
        let nth = (pass.serial as usize).checked_sub(1);
        let Some(gap) = nth.and_then(|nth| gaps.get(nth)?.as_ref()) else { continue };
        between.passes += 1;
        for (sum, more) in [
            (&mut between.tokens, pass.tokens),
            (&mut between.passes_ns, pass.wall_ns),
            (&mut between.between_ns, gap.ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in sums.as_flattened_mut().iter_mut().zip(gap.calls.as_flattened()) {
            *sum = sum.saturating_add(*more);
        }
    }
    let calls = CALLS.iter().zip(sums).filter(|(_, [calls, _])| *calls > 0);
    between.calls =
        calls.map(|(name, [calls, ns])| Calls { name: (*name).to_owned(), calls, ns }).collect();
    (between.passes > 0).then_some(between)
}

/// What a recording lacks, whatever is shown of it.
pub(crate) fn lacks(recorded: &Recorded) -> Vec<String> {
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
fn rows(found: &Found<'_>) -> usize {
    let of_graph = |graph: &&Graph| 3 * graph.nodes.len() + 2;
    4 + found.described.len()
        + found.inside.len()
        + found.graphs.iter().map(of_graph).sum::<usize>()
}

/// What is counted on the way.
#[derive(Debug, Default)]
pub(super) struct Counts {
    threads: u32,
    prompt_tokens: u64,
    generated_tokens: u64,
    /// Passes that llama.cpp said had failed.
    failed: u64,
    /// Passes of which not all readings are there.
    incomplete: u64,
    /// Whether another backend computed nodes of passes that were timed in none.
    has_untimed: bool,
    /// Whether a pass was a call of llama.cpp, or looked up tokens as that does.
    is_llama: bool,
    /// Passes of which no node was timed, since another backend than the CPU computed them.
    elsewhere: u64,
    /// Graphs by themselves that no model is computed by.
    no_products: u64,
    /// Passes whose nodes were not timed, since they were compared with those whose nodes were.
    bare: u64,
    /// Passes with a graph that wasn't described, or whose readings don't fit.
    misfits: u64,
    /// Passes whose position isn't known.
    no_position: u64,
    pub(super) warm_up: u64,
    /// Passes by which the program itself warms up.
    pub(super) own_warm_up: u64,
    /// Passes that read a prompt of one sequence and decode another.
    mixed: u64,
}

impl Counts {
    fn add_tokens(&mut self, phase: Phase, tokens: u64) {
        let sum = match phase {
            Phase::Prefill | Phase::Encode | Phase::Training => &mut self.prompt_tokens,
            Phase::Decode => &mut self.generated_tokens,
        };
        *sum = sum.saturating_add(tokens);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("{count} {}{what}", if count == 1 { "pass" } else { "passes" }));
            }
        };
        say(
            self.warm_up,
            " left out: the first of each shape warms up, and their graphs were described in them",
        );
        say(self.own_warm_up, " left out: the program warms up by them");
        say(self.failed, " left out: llama.cpp returned an error");
        say(
            self.elsewhere,
            " not seen: the CPU computed nothing of them, so another backend did (a GPU?), whose nodes could not be \
             timed. Run with `-ngl 0`, or see what the backend's own profiler tells",
        );
        say(self.bare, " left out: their nodes were not timed, to measure what that costs");
        say(
            self.no_products,
            " left out: they multiply no matrix, so no model is computed by them",
        );
        say(self.incomplete, " left out: not all of their readings could be written");
        say(self.misfits, " left out: their readings do not fit their graphs");
        say(
            self.no_position,
            " counted as at position 0: this version does not say what is in the cache",
        );
        say(
            self.mixed,
            " read a prompt and decoded other sequences at once: prefill, with the tokens of both",
        );
        notes
    }
}

/// What the nodes of the graphs are, with the profiler's numbers.
pub(super) struct Graphs<'p> {
    profiler: &'p BrickProfiler,
    pub(super) recorded: &'p Recorded,
    known: HashMap<(u32, u32), Labels>,
}

impl Graphs<'_> {
    /// A pass and its spans. `None`, and counted, if it can't be one.
    fn pass(
        &mut self,
        found: &Found<'_>,
        counts: &mut Counts,
    ) -> Option<(TimedPass, Vec<TimedSpan>)> {
        let Pass { begin, end, .. } = found.pass;
        let sequences = &found.pass.sequences;
        let position = found.pass.position();
        let refuse = |count: &mut u64| {
            *count += 1;
            None
        };
        if found.pass.status != 0 {
            return refuse(&mut counts.failed);
        }
        if found.pass.is_incomplete {
            return refuse(&mut counts.incomplete);
        }
        if found.graphs.is_empty() {
            return refuse(&mut counts.elsewhere);
        }
        counts.has_untimed |= found.pass.has_untimed;
        let shapes = found.graphs.iter().map(|graph| self.recorded.graphs.get(&graph.number));
        let nodes: Option<Vec<&Vec<Node>>> = shapes.collect();
        let fits = |nodes: &Vec<&Vec<Node>>| {
            nodes.iter().zip(&found.graphs).all(|(nodes, graph)| nodes.len() == graph.nodes.len())
        };
        let Some(nodes) = nodes.filter(fits) else { return refuse(&mut counts.misfits) };
        let all = || nodes.iter().flat_map(|nodes| nodes.iter());
        let looked_up: Vec<u64> = nodes.iter().map(|nodes| tokens_of(nodes)).collect();
        let mut embedded = looked_up.iter().fold(0, |sum: u64, more| sum.saturating_add(*more));
        let mut outputs = all().map(output_rows).fold(0, u64::saturating_add);
        counts.is_llama |= !found.pass.is_graph || embedded > 0;
        // A program that doesn't name its weights looks up its tokens first, and its last product are the outputs.
        if found.pass.is_graph && embedded == 0 {
            let rows = |node: Option<&Node>| node.map_or(0, |node| node.out.ne[1]);
            embedded = rows(all().find(|node| node.op == "GET_ROWS"));
            outputs = rows(all().rfind(|node| node.op == "MUL_MAT"));
        }
        let encodes = match found.pass {
            // A picture or a sound has no tokens.
            Pass { is_graph: true, .. } => embedded == 0,
            Pass { is_decode: false, .. } => true,
            // Where another backend computed nodes, attention may be among those that weren't seen.
            _ => {
                let is_whole = found.graphs.iter().all(|graph| graph.threads > 0);
                self.embeds(&found.pass)
                    || is_whole && !found.pass.has_untimed && keeps_nothing(all())
            }
        };
        // Such as one that moves what is in a cache.
        if found.pass.is_graph && !all().any(|node| node.op.starts_with("MUL_MAT")) {
            return refuse(&mut counts.no_products);
        }
        let tokens = found.pass.tokens.unwrap_or(embedded);
        if tokens == 0 && !encodes {
            return refuse(&mut counts.misfits);
        }
        let phase = if encodes { Phase::Encode } else { phase_of(tokens, outputs, sequences) };
        if position.is_none() && !encodes {
            counts.no_position += 1;
        }
        if phase == Phase::Prefill && outputs > 1 && sequences.len() > 1 {
            counts.mixed += u64::from(sequences.iter().any(|[before, after]| {
                // It had its prompt before, and gets one more.
                *before > 0 && *after == before.saturating_add(1)
            }));
        }
        let looks_at = LooksAt::several(sequences)
            .or_else(|| position.map(|position| LooksAt::one(position, tokens)));
        let at = |count: u64| time_of(self.profiler, count);
        let ns = |[from, to]: [u64; 2]| at(to).saturating_sub(at(from));
        let pass = TimedPass {
            phase,
            start_ns: at(begin),
            end_ns: at(end),
            tokens,
            position: position.unwrap_or(0),
            disturbance: found.looked.as_ref().and_then(|looked| looked.disturbance(ns)),
        };
        let mut spans = Vec::new();
        // A pass of more tokens than a micro-batch computes several graphs, each with some of them.
        let mut before = 0_u64;
        for (graph, tokens) in found.graphs.iter().zip(looked_up) {
            counts.threads = counts.threads.max(graph.threads);
            let own = LooksAt::several(&graph.sequences).or_else(|| match tokens {
                0 => looks_at.clone(),
                _ => looks_at.as_ref()?.part(before, tokens),
            });
            before = before.saturating_add(tokens);
            let looks_at = own.map(|own| self.windows(&found.pass, own));
            let ran = Ran { looks_at, experts: &graph.experts };
            self.labels(graph).add_spans_of(&mut spans, &times(graph, at), &ran);
        }
        for (what, [begin, end]) in &found.inside {
            let name = INSIDE.get(*what).copied().unwrap_or("Inside");
            let brick = self.profiler.named_brick(name, brickscope::BrickCategory::Other);
            let what = TimedWork::Brick(brick);
            let (start_ns, end_ns) = (at(*begin), at(*end));
            spans.push(TimedSpan { what, start_ns, end_ns, work: Work::default(), layer: None });
        }
        let describing = self.profiler.named_brick(DESCRIBING, brickscope::BrickCategory::Other);
        // Of old recordings, where graphs are passes, it comes after them.
        for [begin, end] in found.described.iter().filter(|of| of[1] <= found.pass.end) {
            let what = TimedWork::Brick(describing);
            let (start_ns, end_ns) = (at(*begin), at(*end));
            spans.push(TimedSpan { what, start_ns, end_ns, work: Work::default(), layer: None });
        }
        spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
        Some((pass, spans))
    }

    /// What attention looks at in a pass, of a model some layers of which may look at a window.
    fn windows(&self, pass: &Pass, looks_at: LooksAt) -> LooksAt {
        let context = pass.context.and_then(|context| self.recorded.contexts.get(&context));
        match context.and_then(|of| of.model.as_ref()) {
            Some(model) => model.looks_at(looks_at),
            None => looks_at,
        }
    }

    /// Whether the context of a pass makes embeddings of texts.
    pub(super) fn embeds(&self, pass: &Pass) -> bool {
        let context = pass.context.and_then(|context| self.recorded.contexts.get(&context));
        context.and_then(|of| of.pooling).is_some_and(|pooling| pooling > 0)
    }

    /// Records what the threads did of a pass.
    fn share(&mut self, found: &Found<'_>, phase: Phase) {
        for graph in &found.graphs {
            let profiler = self.profiler;
            let labels = self.labels(graph);
            for shares in &graph.shares {
                for (brick, share) in shares_of(labels.bricks(), shares, |counts| {
                    let at = |count: u64| time_of(profiler, count);
                    at(graph.begin.saturating_add(counts)).saturating_sub(at(graph.begin))
                }) {
                    profiler.record_share(phase, shares.thread, brick, share);
                }
            }
        }
    }

    fn labels(&mut self, graph: &Graph) -> &Labels {
        let Self { profiler, recorded, .. } = *self;
        self.known.entry((graph.number, graph.threads)).or_insert_with(|| {
            let nodes = recorded.graphs.get(&graph.number).map_or(&[][..], Vec::as_slice);
            match recorded.backends.get(&graph.number) {
                Some(backend) => Labels::of_backend(profiler, nodes, backend),
                None => Labels::new(profiler, nodes, graph.threads),
            }
        })
    }
}

/// What a thread did of each brick of a graph: nodes that follow each other are one share. `ns` is the nanoseconds of so
/// many counts.
fn shares_of(
    bricks: impl Iterator<Item = Option<BrickKey>>,
    shares: &Shares,
    ns: impl Fn(u64) -> u64,
) -> Vec<(BrickKey, Share)> {
    // Summed as counts, so that rounding adds nothing.
    let mut sums: Vec<(BrickKey, u64, [u64; 2])> = Vec::new();
    let mut before = None;
    for (brick, [worked, waited]) in bricks.zip(&shares.nodes) {
        let Some(key) = brick else { continue };
        let at = sums.iter().position(|sum| sum.0 == key).unwrap_or_else(|| {
            sums.push((key, 0, [0; 2]));
            sums.len() - 1
        });
        sums[at].1 += u64::from(before != Some(key));
        for (sum, counts) in sums[at].2.iter_mut().zip([*worked, *waited]) {
            *sum = sum.saturating_add(counts);
        }
        before = brick;
    }
    let share = |(key, count, [worked, waited]): (BrickKey, u64, [u64; 2])| {
        (key, Share { count, worked_ns: ns(worked), waited_ns: ns(waited) })
    };
    sums.into_iter().map(share).collect()
}

/// The tokens that a graph looks up.
pub(super) fn tokens_of(nodes: &[Node]) -> u64 {
    nodes.iter().map(Node::looked_up).fold(0, u64::saturating_add)
}

/// Whether a graph attends to nothing but its own tokens: it has attention, and writes to no cache.
fn keeps_nothing<'n>(nodes: impl Iterator<Item = &'n Node> + Clone) -> bool {
    let reads = |node: &Node| node.src.iter().any(|src| src.name.starts_with("cache_"));
    // A router has a softmax, too, without a mask.
    let is_attention = |node: &Node| match &*node.op {
        "SOFT_MAX" => node.src.len() > 1 || node.out.name.starts_with("kq"),
        op => op == "FLASH_ATTN_EXT",
    };
    nodes.clone().any(is_attention)
        && !nodes.clone().any(|node| reads(node) || node.out.name.starts_with("cache_"))
}

/// Tokens whose logits are computed.
fn output_rows(node: &Node) -> u64 {
    let is_head = bricks::describe(node).brick == Brick::Known(brickscope::BrickId::LmHead);
    if is_head { node.out.ne[1] } else { 0 }
}

/// A pass that adds one token to each of its sequences decodes them. So does one that computes the logits of each of its
/// tokens after others that were there, to check what a draft model chose, or of sequences that aren't known. Others read a
/// prompt.
pub(super) fn phase_of(tokens: u64, outputs: u64, sequences: &[[u32; 2]]) -> Phase {
    let is_one_each = sequences.len() as u64 == tokens
        && sequences.iter().all(|[before, after]| after.checked_sub(*before) == Some(1));
    let goes_on = sequences.iter().all(|[before, _]| *before > 0);
    if tokens == 1 || is_one_each || tokens == outputs && tokens <= MOST_OUTPUTS && goes_on {
        Phase::Decode
    } else {
        Phase::Prefill
    }
}

/// When each node of a graph began and ended. Of the CPU's, a node lasts until the next one begins: all threads begin
/// together.
fn times(graph: &Graph, at: impl Fn(u64) -> u64) -> Vec<[u64; 2]> {
    let next = graph.nodes.iter().skip(1).copied().chain([graph.end]);
    let own = graph.ends.iter().copied();
    let ends: Vec<u64> = if graph.ends.is_empty() { next.collect() } else { own.collect() };
    // The clock of the core that the thread has moved to may be some counts behind.
    let mut last = 0;
    graph
        .nodes
        .iter()
        .zip(ends)
        .map(|(&begin, end)| {
            let begin = at(begin).max(last);
            last = at(end).max(begin);
            [begin, last]
        })
        .collect()
}

#[cfg(test)]
mod tests;
