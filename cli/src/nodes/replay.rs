//! From what was recorded to a profile: readings are labelled with the nodes that they belong to, and recorded as passes.

use std::collections::HashMap;

use brickscope::{
    Between, BrickKey, BrickProfiler, Calls, Phase, Profile, Share, SyncMode, TimedPass, TimedSpan,
    TimedWork, Work,
};
use brickscope_llama::bricks::{self, Brick};
use brickscope_llama::file::{CALLS, Graph, INSIDE, Pass, Recorded, Shares};
use brickscope_llama::{Labels, LooksAt, Node};

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
            Phase::Prefill | Phase::Encode => &mut self.prompt_tokens,
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
        let mut embedded = all().map(embedded_rows).fold(0, u64::saturating_add);
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
        for graph in &found.graphs {
            counts.threads = counts.threads.max(graph.threads);
            let labels = self.labels(graph);
            labels.add_spans(&mut spans, &times(graph, at), looks_at);
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

/// Tokens that are looked up.
pub(super) fn embedded_rows(node: &Node) -> u64 {
    let is_it = node.op == "GET_ROWS"
        && node.src.first().is_some_and(|src| src.name == "token_embd.weight");
    if is_it { node.out.ne[1] } else { 0 }
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
mod tests {
    use brickscope::MockClock;
    use brickscope_analysis::typical::{Basis, Typical};
    use brickscope_analysis::view::{self, Size};
    use brickscope_llama::Tensor;
    use brickscope_llama::file::{Event, Load, ThreadLoad};

    use super::super::groups::groups;
    use super::super::passes::Grown;
    use super::*;

    const PASS_NS: u64 = 1_000_000;

    fn tensor(name: &str, ne: [u64; 4]) -> Tensor {
        let bytes = 4 * ne.iter().product::<u64>();
        Tensor { name: name.to_owned(), kind: "f32".to_owned(), ne, bytes, numbers: None }
    }

    fn node(op: &str, name: &str, ne: [u64; 4], src: Vec<Tensor>) -> Node {
        Node { op: op.to_owned(), out: tensor(name, ne), src, then: None }
    }

    /// A product, a rotation and a head, for so many tokens of which so many get logits.
    fn graph(tokens: u64, outputs: u64) -> Vec<Node> {
        let [wide, matrix] = [[64, tokens, 1, 1], [64, 64, 1, 1]];
        let product = vec![tensor("blk.0.attn_q.weight", matrix), tensor("attn_norm-0", wide)];
        let head = vec![tensor("output.weight", [64, 100, 1, 1]), tensor("result_norm", wide)];
        vec![
            node("MUL_MAT", "Qcur-0", wide, product),
            node("ROPE", "Qcur-0", wide, vec![tensor("Qcur-0", wide)]),
            node("MUL_MAT", "result_output", [100, outputs, 1, 1], head),
        ]
    }

    fn pass(nth: u64, sequences: &[[u32; 2]]) -> Pass {
        let begin = PASS_NS * (10 + 2 * nth);
        Pass {
            begin,
            end: begin + PASS_NS,
            tokens: Some(sequences.iter().map(|[from, to]| u64::from(to - from)).sum()),
            position: Some(0),
            sequences: sequences.to_vec(),
            status: 0,
            graphs: 1,
            is_decode: true,
            is_bare: false,
            is_whole: false,
            is_incomplete: false,
            has_untimed: false,
            is_graph: false,
            is_warm_up: false,
            context: None,
            of_thread: 0,
        }
    }

    fn computed(pass: &Pass, number: u32) -> Event {
        let at = |part: u64| pass.begin + PASS_NS * part / 100;
        let nodes = vec![at(2), at(60), at(61)];
        Event::Graph(Graph {
            number,
            threads: 2,
            of_thread: pass.of_thread,
            begin: at(1),
            end: at(99),
            nodes,
            ends: Vec::new(),
            shares: Vec::new(),
        })
    }

    /// Of the group whose passes took longest.
    fn replayed(recorded: &Recorded) -> Replayed {
        replayed_all(recorded).remove(0)
    }

    fn replayed_all(recorded: &Recorded) -> Vec<Replayed> {
        let of = |group: &Group| {
            let profiler = BrickProfiler::with_clock(MockClock::default().clock());
            let replayed = replay(recorded, group, profiler);
            replayed.profile.check().expect("it adds up");
            replayed
        };
        groups(recorded).iter().map(of).collect()
    }

    /// Fifty tokens on two threads. After each pass somebody looks at the threads, which are on `cpus`; the second one waits
    /// for its CPU for so long in each of the passes that `waits` names.
    fn starved(cpus: [u32; 2], wait_ns: u64, waits: impl Fn(u64) -> bool) -> Profile {
        let mut recorded = Recorded { graphs: [(0, graph(1, 1))].into(), ..Recorded::default() };
        let (mut ran_ns, mut waited_ns) = ([0; 2], [0; 2]);
        for nth in 0..50 {
            let pass = pass(nth, &[[6 + nth as u32, 7 + nth as u32]]);
            let at = pass.end;
            recorded.events.push(computed(&pass, 0));
            if nth == 0 {
                recorded.events.push(Event::Described([pass.end - 1000, pass.end - 900], 0));
            }
            recorded.events.push(Event::Pass(pass));
            let wait_ns = if waits(nth) { wait_ns } else { 1_000 };
            for (thread, wait_ns) in [1_000, wait_ns].into_iter().enumerate() {
                ran_ns[thread] += 2 * PASS_NS - wait_ns;
                waited_ns[thread] += wait_ns;
            }
            let threads = [0, 1].map(|n| ThreadLoad {
                thread: 4311 + n as u32,
                cpu: Some(cpus[n]),
                ran_ns: ran_ns[n],
                waited_ns: waited_ns[n],
            });
            recorded.events.push(Event::Load(Load { at, threads: threads.to_vec() }));
        }
        let mut profile = replayed(&recorded).profile;
        let run = brickscope::Run {
            backend: "llama.cpp, CPU".to_owned(),
            threads: 2,
            ..Default::default()
        };
        profile.run = Some(run);
        profile
    }

    fn screen(profile: &Profile) -> String {
        let text = view::summary(profile, Size::default(), None).to_string();
        // As one line, since long ones are wrapped.
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_thread_on_a_busy_core_is_named_by_the_first_screen() {
        let profile = starved([0, 1], 960_000, |_| true);
        let waits: Vec<_> = profile.cpu_waits.iter().map(|of| (of.thread, of.cpu)).collect();
        assert_eq!(waits, [(4311, Some(0)), (4312, Some(1))]);
        // Of 49: the first pass described its graph.
        let second = profile.cpu_waits[1];
        assert_eq!((second.looked_ns, second.waited_ns), (49 * 2 * PASS_NS, 49 * 960_000));
        let screen = screen(&profile);
        for said in [
            "thread 4312 waited for CPU 1 for 48 % of decode: other programs had it",
            "no decode pass is clean, so bricks are by median spans: other programs",
            "Next: stop other programs, which took the CPU in 49 of 49 passes, or run fewer threads (`-t 1`)",
        ] {
            assert!(screen.contains(said), "{said}: {screen}");
        }
        let report = view::report(&profile);
        let said = "thread 4312 waited for CPU 1 for 48.0% of decode; other programs had it";
        assert!(report.contains(said), "{report}");
    }

    #[test]
    fn threads_that_share_a_core_are_named_by_the_first_screen() {
        let screen = screen(&starved([3, 3], 960_000, |_| true));
        for said in [
            "thread 4312 waited for CPU 3 for 48 % of decode: other threads of this process had it",
            "give each thread a CPU (`--cpu-mask`, `--cpu-strict 1`), or run fewer threads (`-t 1`): threads shared a CPU \
             in 49 of 49 passes",
        ] {
            assert!(screen.contains(said), "{said}: {screen}");
        }
    }

    #[test]
    fn threads_that_run_one_after_another_do_not_take_each_others_cpu() {
        let of = |ran_ns, waited_ns, others_ran_ns| {
            Grown { thread: 1, cpu: Some(0), ran_ns, waited_ns, others_ran_ns }.own_ns(1000)
        };
        // It sleeps for 600 while another thread runs, and a program waits in its way for 200.
        assert_eq!(of(200, 200, 600), 0);
        // It neither sleeps nor runs for half of the time: others of its process ran, for as long or less.
        assert_eq!((of(500, 500, 500), of(500, 500, 300), of(500, 500, 900)), (500, 300, 500));
        assert_eq!((of(0, 0, 900), of(900, 200, 0)), (0, 0));
    }

    #[test]
    fn few_disturbed_passes_are_left_out_of_the_tables_and_counted() {
        let profile = starved([0, 1], 960_000, |nth| nth == 20 || nth == 30);
        let typical = Typical::of(&profile, Phase::Decode).expect("it decoded");
        assert_eq!((typical.basis, typical.passes), (Basis::Passes, 47));
        let shown = brickscope_analysis::typical::shown(&profile);
        assert_eq!(shown.phase(Phase::Decode).map(|of| of.passes), Some(47));
        let screen = screen(&profile);
        assert!(screen.contains("2 of 49 decode passes left out"), "{screen}");
        assert!(!screen.contains("waited for CPU"), "2 % of the time are little: {screen}");
    }

    #[test]
    fn each_pass_of_a_server_has_the_phase_and_the_position_of_its_sequences() {
        let mut recorded = Recorded {
            graphs: [(0, graph(5, 1)), (1, graph(2, 2)), (2, graph(6, 2))].into(),
            ..Recorded::default()
        };
        // A prompt of the second client, both decode, and the first one's prompt while the second decodes.
        for (nth, number, sequences) in
            [(0, 0, &[[0, 5]][..]), (1, 1, &[[40, 41], [100, 101]]), (2, 2, &[[10, 15], [30, 31]])]
        {
            let pass = pass(nth, sequences);
            recorded.events.extend([computed(&pass, number), Event::Pass(pass)]);
        }
        let Replayed { profile, notes, prompt_tokens, generated_tokens, .. } = replayed(&recorded);
        let passes: Vec<_> =
            profile.passes.iter().map(|of| (of.phase, of.tokens, of.position)).collect();
        let expected =
            [(Phase::Prefill, 5, 0), (Phase::Decode, 2, 70), (Phase::Prefill, 6, (50 + 30) / 6)];
        assert_eq!(passes, expected);
        assert_eq!((prompt_tokens, generated_tokens), (11, 2));
        assert!(notes[0].starts_with("1 pass read a prompt and decoded"), "{notes:?}");
    }

    /// Adds a pass that described its graph.
    fn add_first(recorded: &mut Recorded, pass: &Pass, number: u32) {
        let described = [99, 100].map(|part| pass.begin + PASS_NS * part / 100);
        recorded.events.extend([
            computed(pass, number),
            Event::Described(described, pass.of_thread),
            Event::Pass(pass.clone()),
        ]);
    }

    fn add(recorded: &mut Recorded, pass: &Pass, number: u32) {
        recorded.events.extend([computed(pass, number), Event::Pass(pass.clone())]);
    }

    /// As `llama-cli` runs: an empty run, the prompt, and tokens.
    #[test]
    fn the_prompt_that_was_asked_for_is_shown_and_the_programs_own_warm_up_is_not() {
        for is_said in [true, false] {
            let mut recorded = Recorded {
                graphs: [(0, graph(2, 2)), (1, graph(41, 1)), (2, graph(1, 1))].into(),
                ..Recorded::default()
            };
            let empty = Pass { is_warm_up: is_said, ..pass(0, &[[0, 2]]) };
            add_first(&mut recorded, &empty, 0);
            add_first(&mut recorded, &pass(1, &[[0, 41]]), 1);
            add_first(&mut recorded, &pass(2, &[[41, 42]]), 2);
            for nth in 3..8 {
                let at = 39 + nth as u32;
                add(&mut recorded, &pass(nth, &[[at, at + 1]]), 2);
            }
            let Replayed { profile, notes, .. } = replayed(&recorded);
            let of = |phase| profile.phase(phase).map(|of| (of.passes, of.tokens));
            assert_eq!(of(Phase::Prefill), Some((1, 41)), "{is_said}: {notes:?}");
            assert_eq!(of(Phase::Decode), Some((5, 5)));
            let said = notes.join("; ");
            assert!(said.contains("1 pass left out: the first of each shape warms up"), "{said}");
            assert!(said.contains("1 pass left out: the program warms up by them"), "{said}");
        }
    }

    #[test]
    fn prompts_of_new_lengths_count_and_of_one_length_the_first_warms_up() {
        let mut recorded = Recorded {
            graphs: [(0, graph(20, 1)), (1, graph(30, 1)), (2, graph(2, 1))].into(),
            ..Recorded::default()
        };
        // A prompt of two tokens that stay in the cache is none that warms up.
        add_first(&mut recorded, &pass(0, &[[0, 2]]), 2);
        add_first(&mut recorded, &pass(1, &[[2, 22]]), 0);
        add_first(&mut recorded, &pass(2, &[[22, 52]]), 1);
        add_first(&mut recorded, &pass(3, &[[52, 72]]), 0);
        let profile = replayed(&recorded).profile;
        assert_eq!(profile.phase(Phase::Prefill).map(|of| (of.passes, of.tokens)), Some((3, 52)));
        assert_eq!(profile.dropped.left_out_passes, 1);
    }

    #[test]
    fn a_pass_that_adds_a_token_to_each_of_many_sequences_decodes() {
        let sequences: Vec<[u32; 2]> = (0..64).map(|n| [100 + n, 101 + n]).collect();
        let mut recorded = Recorded {
            graphs: [(0, graph(64, 64)), (1, graph(64, 64))].into(),
            ..Recorded::default()
        };
        add(&mut recorded, &pass(0, &sequences), 0);
        // As many outputs of one sequence are a prompt whose logits are all asked for.
        add(&mut recorded, &pass(1, &[[0, 64]]), 1);
        let phases: Vec<Phase> =
            replayed(&recorded).profile.passes.iter().map(|pass| pass.phase).collect();
        assert_eq!(phases, [Phase::Decode, Phase::Prefill]);
    }

    #[test]
    fn passes_of_two_threads_at_once_have_their_own_graphs() {
        let mut recorded =
            Recorded { graphs: [(0, graph(5, 1)), (1, graph(1, 1))].into(), ..Recorded::default() };
        let first = pass(0, &[[0, 5]]);
        let second = Pass { of_thread: 1, begin: first.begin + 1000, ..pass(0, &[[7, 8]]) };
        recorded.events.extend([
            computed(&first, 0),
            computed(&second, 1),
            Event::Pass(second.clone()),
            Event::Pass(first.clone()),
        ]);
        // One that ended by an exception leaves its graph.
        let lost = pass(1, &[]);
        recorded.events.push(computed(&lost, 1));
        add(&mut recorded, &pass(2, &[[5, 6]]), 1);
        let found: Vec<Vec<u32>> = Passes::of(&recorded)
            .map(|found| found.graphs.iter().map(|graph| graph.number).collect())
            .collect();
        assert_eq!(found, [[1], [0], [1]]);
    }

    #[test]
    fn two_copies_of_ggml_are_groups_with_names_and_versions() {
        let library = |file: &str, version: &str| brickscope_llama::file::Library {
            file: file.to_owned(),
            version: Some(version.to_owned()),
            commit: None,
        };
        let mut recorded = Recorded {
            graphs: [(0, graph(1, 1)), (1, graph(1, 1))].into(),
            copies: [(0, 0), (1, 1)].into(),
            libraries: [
                (0, library("/a/libggml-cpu.so", "0.26.0")),
                (1, library("/b/w.so", "0.13.1")),
            ]
            .into(),
            ..Recorded::default()
        };
        for nth in 0..6 {
            let number = u32::from(nth >= 4);
            // A graph that no call of llama.cpp is around.
            let of = Pass { is_graph: number == 1, ..pass(nth, &[[nth as u32, nth as u32 + 1]]) };
            add(&mut recorded, &of, number);
        }
        let all = replayed_all(&recorded);
        // The second one's graphs look up no tokens, and no call of llama.cpp is around them.
        let passes: Vec<_> = all.iter().map(|of| (of.profile.passes.len(), of.is_llama)).collect();
        assert_eq!(passes, [(4, true), (2, false)]);
        let groups = groups(&recorded);
        let names: Vec<String> = groups.iter().map(|of| of.name(&groups, None)).collect();
        assert_eq!(names, ["libggml-cpu.so, version 0.26.0", "w.so, version 0.13.1"]);
        assert_eq!(groups[1].engine.version.as_deref(), Some("0.13.1"));
    }

    /// As whisper.cpp's: its weights have no names.
    #[test]
    fn a_graph_by_itself_decodes_as_many_tokens_as_it_looks_up_and_else_encodes() {
        let nameless = |tokens: u64| {
            let [wide, ids] = [[64, tokens, 1, 1], [tokens, 1, 1, 1]];
            let looked_up = vec![tensor("leaf_1", [64, 500, 1, 1]), tensor("embd", ids)];
            let head = vec![tensor("leaf_1", [64, 500, 1, 1]), tensor("node_7", wide)];
            vec![
                node("GET_ROWS", "node_0", wide, looked_up),
                node("ADD", "node_1", wide, vec![tensor("node_0", wide)]),
                node("MUL_MAT", "node_8", [500, tokens, 1, 1], head),
            ]
        };
        let mut recorded = Recorded {
            graphs: [(0, nameless(1)), (1, nameless(5)), (2, graph(9, 1))].into(),
            ..Recorded::default()
        };
        for nth in 0..3 {
            let nothing = Pass { tokens: None, position: None, is_decode: false, ..pass(nth, &[]) };
            add(&mut recorded, &Pass { is_graph: true, ..nothing }, nth as u32);
        }
        let Replayed { profile, notes, is_llama, .. } = replayed(&recorded);
        let passes: Vec<_> = profile.passes.iter().map(|of| (of.phase, of.tokens)).collect();
        let expected = [(Phase::Decode, 1), (Phase::Decode, 5), (Phase::Encode, 0)];
        assert_eq!(passes, expected, "{notes:?}");
        assert!(!is_llama && !notes.iter().any(|note| note.contains("left out")));
    }

    /// Attention over a cache, or over the tokens of the pass alone.
    fn attention(tokens: u64, has_cache: bool) -> Vec<Node> {
        let wide = [64, tokens, 1, 1];
        let keys = if has_cache { "cache_k_l0 (view)" } else { "Kcur-0" };
        let mut nodes = graph(tokens, tokens);
        let read = vec![tensor("Qcur-0", wide), tensor(keys, wide), tensor("Vcur-0", wide)];
        nodes.insert(2, node("FLASH_ATTN_EXT", "fattn-0", wide, read));
        nodes
    }

    #[test]
    fn what_makes_embeddings_or_keeps_no_cache_encodes() {
        let context = brickscope_llama::file::Context { pooling: Some(1), ..Default::default() };
        let mut recorded = Recorded {
            graphs: [(0, attention(5, true)), (1, attention(5, false))].into(),
            contexts: [(1, context)].into(),
            ..Recorded::default()
        };
        let times = |pass: &Pass, number| {
            let at = |part: u64| pass.begin + PASS_NS * part / 100;
            Event::Graph(Graph {
                number,
                threads: 1,
                of_thread: 0,
                begin: at(1),
                end: at(99),
                nodes: vec![at(2), at(30), at(50), at(60)],
                ends: Vec::new(),
                shares: Vec::new(),
            })
        };
        // A prompt; one of a context that pools; one without a cache; a call that only encodes.
        let of = |nth, is_decode| Pass { is_decode, context: Some(2), ..pass(nth, &[[0, 5]]) };
        let all = [
            (of(0, true), 0),
            (Pass { context: Some(1), ..of(1, true) }, 0),
            (of(2, true), 1),
            (of(3, false), 0),
        ];
        for (pass, number) in &all {
            recorded.events.extend([times(pass, *number), Event::Pass(pass.clone())]);
        }
        let all = replayed_all(&recorded);
        let phases: Vec<Vec<Phase>> = all
            .iter()
            .map(|of| of.profile.passes.iter().map(|pass| pass.phase).collect())
            .collect();
        use Phase::{Encode, Prefill};
        assert_eq!(phases, [vec![Prefill, Encode, Encode], vec![Encode]]);
        let tokens: u64 = all[0].profile.phase(Encode).map_or(0, |of| of.tokens);
        assert_eq!((tokens, all[0].prompt_tokens), (10, 15));
    }

    #[test]
    fn tokens_of_a_draft_that_are_checked_decode_and_a_short_prompt_does_not() {
        let phase = |sequences: &[[u32; 2]], tokens, outputs| phase_of(tokens, outputs, sequences);
        assert_eq!(phase(&[[40, 45]], 5, 5), Phase::Decode);
        assert_eq!(phase(&[[0, 5]], 5, 5), Phase::Prefill);
        assert_eq!(phase(&[[40, 45]], 5, 1), Phase::Prefill);
        assert_eq!(phase(&[], 5, 5), Phase::Decode, "whose sequences aren't known");
    }

    /// A server tries its cache with two tokens, warms up, and gets a prompt.
    #[test]
    fn what_a_server_tries_before_its_first_prompt_is_left_out() {
        let mut recorded = Recorded {
            graphs: [(0, graph(2, 2)), (1, graph(41, 1)), (2, graph(1, 1))].into(),
            ..Recorded::default()
        };
        add_first(&mut recorded, &pass(0, &[[0, 2]]), 0);
        add(&mut recorded, &Pass { is_warm_up: true, ..pass(1, &[[0, 2]]) }, 0);
        add(&mut recorded, &pass(2, &[[0, 2]]), 0);
        add_first(&mut recorded, &pass(3, &[[0, 41]]), 1);
        add_first(&mut recorded, &pass(4, &[[41, 42]]), 2);
        add(&mut recorded, &pass(5, &[[42, 43]]), 2);
        let Replayed { profile, notes, .. } = replayed(&recorded);
        let prefill = profile.phase(Phase::Prefill).map(|of| (of.passes, of.tokens));
        assert_eq!(prefill, Some((1, 41)), "{notes:?}");
        assert!(notes.iter().any(|of| of.starts_with("3 passes left out: the program warms up")));
    }

    #[test]
    fn the_time_between_passes_is_that_of_the_thread_and_has_names() {
        let mut recorded =
            Recorded { graphs: [(0, graph(9, 1)), (1, graph(1, 1))].into(), ..Recorded::default() };
        add(&mut recorded, &pass(0, &[[0, 9]]), 0);
        for nth in 1..4 {
            let sampled = 200_000 + nth;
            recorded.events.push(Event::Calls(0, [[2, sampled], [0; 2], [0; 2], [1, 30], [0; 2]]));
            // Of another thread, which is in no pass.
            recorded.events.push(Event::Calls(7, [[1, 999_999]; 5]));
            let at = 8 + nth as u32;
            add(&mut recorded, &pass(nth, &[[at, at + 1]]), 1);
        }
        let between = replayed(&recorded).between.expect("it decoded");
        // A pass of a millisecond every two of them.
        let sums = (between.passes, between.tokens, between.passes_ns, between.between_ns);
        assert_eq!(sums, (3, 3, 3 * PASS_NS, 3 * PASS_NS));
        let calls: Vec<_> = between.calls.iter().map(|of| (&*of.name, of.calls, of.ns)).collect();
        assert_eq!(calls, [("sampling", 6, 600_006), ("making text", 3, 90)]);
        assert_eq!(between.rest_ns(), 3 * PASS_NS - 600_096);
        assert_eq!(between.tokens_per_second(), Some(500.0));
    }

    #[test]
    fn a_wait_for_a_request_and_the_passes_of_another_thread_are_no_time_between_passes() {
        let mut recorded =
            Recorded { graphs: [(0, graph(9, 1)), (1, graph(1, 1))].into(), ..Recorded::default() };
        let of_thread = |thread: u16, pass: Pass| Pass { of_thread: thread, ..pass };
        add(&mut recorded, &pass(0, &[[0, 9]]), 0);
        add(&mut recorded, &pass(1, &[[9, 10]]), 1);
        // The same context on another thread, and back: each gap is of a millisecond.
        add(&mut recorded, &of_thread(1, pass(2, &[[10, 11]])), 1);
        recorded.events.push(Event::Calls(0, [[1, 700_000]; 5]));
        add(&mut recorded, &pass(3, &[[11, 12]]), 1);
        // Long after, a request of which all but a token is in the cache.
        add(&mut recorded, &pass(90, &[[4, 5]]), 1);
        // Its answer goes on.
        add(&mut recorded, &pass(91, &[[5, 6]]), 1);
        let between = replayed(&recorded).between.expect("it decoded");
        assert_eq!((between.passes, between.between_ns), (4, 4 * PASS_NS));
        assert_eq!(between.calls, [], "they were before the other thread's pass");
    }

    #[test]
    fn short_texts_that_are_all_that_was_asked_for_are_no_tries() {
        let mut recorded = Recorded { graphs: [(0, graph(1, 1))].into(), ..Recorded::default() };
        for nth in 0..9 {
            add(&mut recorded, &pass(nth, &[[0, 1]]), 0);
        }
        let profile = replayed(&recorded).profile;
        assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(9));
        // Not more than some are tries, whatever follows.
        add(&mut recorded, &pass(9, &[[1, 2]]), 0);
        let profile = replayed(&recorded).profile;
        assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(6));
    }

    #[test]
    fn the_softmax_of_a_router_is_no_attention() {
        let wide = [64, 5, 1, 1];
        let softmax = |name: &str, src| node("SOFT_MAX", name, wide, src);
        let router = softmax("ffn_moe_probs-0", vec![tensor("ffn_moe_logits-0", wide)]);
        assert!(!keeps_nothing([router].iter()));
        let masked = vec![tensor("kq-0", wide), tensor("KQ_mask", wide)];
        assert!(keeps_nothing([softmax("node_5", masked)].iter()));
        let kept = node("SET_ROWS", "cache_k_l0 (view)", wide, Vec::new());
        let named = softmax("kq_soft_max-0", vec![tensor("kq-0", wide)]);
        assert!(keeps_nothing([named.clone()].iter()) && !keeps_nothing([named, kept].iter()));
    }
}
