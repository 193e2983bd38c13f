//! From a pass that was recorded to its spans: readings are labelled with the nodes that they belong to.

use std::cmp::Reverse;
use std::collections::HashMap;

use brickscope::{BrickCategory, BrickProfiler, Phase, TimedPass, TimedSpan, TimedWork, Work};

use super::counts::Counts;
use super::phase::{keeps_nothing, output_rows, phase_of, tokens_of};
use super::shares::shares_of;
use super::time_of;
use crate::bricks::Experts;
use crate::recording::events::{Graph, Pass, Recorded};
use crate::recording::format::INSIDE;
use crate::recording::passes::Found;
use crate::{Labels, LooksAt, Node, Ran};

/// Time in a pass that the library took to describe a graph.
const DESCRIBING: &str = "(brickscope)";

/// What the nodes of the graphs are, with the profiler's numbers.
pub(crate) struct Graphs<'p> {
    profiler: &'p BrickProfiler,
    pub(crate) recorded: &'p Recorded,
    known: HashMap<(u32, u32), Labels>,
}

impl<'p> Graphs<'p> {
    pub(crate) fn new(profiler: &'p BrickProfiler, recorded: &'p Recorded) -> Self {
        Self { profiler, recorded, known: HashMap::new() }
    }

    /// A pass and its spans. `None`, and counted, if it can't be one.
    pub(crate) fn pass(
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
            let brick = self.profiler.named_brick(name, BrickCategory::Other);
            let what = TimedWork::Brick(brick);
            let (start_ns, end_ns) = (at(*begin), at(*end));
            spans.push(TimedSpan { what, start_ns, end_ns, work: Work::default(), layer: None });
        }
        let describing = self.profiler.named_brick(DESCRIBING, BrickCategory::Other);
        // Of old recordings, where graphs are passes, it comes after them.
        for [begin, end] in found.described.iter().filter(|of| of[1] <= found.pass.end) {
            let what = TimedWork::Brick(describing);
            let (start_ns, end_ns) = (at(*begin), at(*end));
            spans.push(TimedSpan { what, start_ns, end_ns, work: Work::default(), layer: None });
        }
        spans.sort_by_key(|span| (span.start_ns, Reverse(span.end_ns)));
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
    pub(crate) fn embeds(&self, pass: &Pass) -> bool {
        let context = pass.context.and_then(|context| self.recorded.contexts.get(&context));
        context.and_then(|of| of.pooling).is_some_and(|pooling| pooling > 0)
    }

    /// Records what the threads did of a pass.
    pub(crate) fn share(&mut self, found: &Found<'_>, phase: Phase) {
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

    /// The products of a graph with experts' matrices, in order: their layers, and what experts they have.
    pub(crate) fn experts(&mut self, graph: &Graph) -> Vec<(Option<u16>, Experts)> {
        self.labels(graph).experts().collect()
    }

    /// Why it isn't known what the tokens of a graph chose, if its recording doesn't have it.
    pub(crate) fn no_choice(&self, graph: &Graph) -> String {
        match self.recorded.backends.get(&graph.number) {
            Some(on) => {
                format!("the numbers of the chosen experts are in the memory of {on}")
            }
            None => "the recording does not have the numbers of the chosen experts".to_owned(),
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
