//! The graph of a pass that really ran, from its spans and from what waited for what.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::node::gpu_kernel;
use super::{EdgeType, ExecutionGraph, ExecutionNode, ExecutionNodeId, NodeTime};
use crate::brick::{BrickId, Phase};
use crate::profile::{Name, NameKind, Pass, Point, Profile, Span};

impl Profile {
    /// The graph of one recorded pass: the pass, its layers, their bricks, and the kernels that these
    /// launched, each with its times. Siblings on one thread follow each other in sequence. What other
    /// threads did for the pass is there if it was [taken over](crate::BrickProfiler::take_over) from
    /// it, with its dependencies.
    ///
    /// The pass is there with its wall if it ended; then the makespan of the graph is that wall at
    /// least, and what no brick explains is the pass's own time.
    ///
    /// `None` if no span of that pass was kept.
    #[must_use]
    pub fn execution_graph(&self, pass: u32) -> Option<ExecutionGraph> {
        let spans = self.spans_for(pass);
        if spans.is_empty() {
            return None;
        }
        let mut graph = ExecutionGraph::new();
        let ended = self.passes.iter().find(|ended| ended.serial == pass);
        let root = ended.map(|pass| add_pass(&mut graph, pass));
        // Where each span stands in the graph. Parents come before their children.
        let mut nodes: HashMap<u32, ExecutionNodeId> = HashMap::new();
        for &index in &spans {
            let span = &self.spans[index as usize];
            let id = graph.add_node(self.node_of(span));
            let lane = u16::try_from(span.lane).unwrap_or(u16::MAX);
            let (start_ns, duration_ns) = (span.start_ns, span.duration_ns);
            graph.set_time(id, NodeTime { start_ns, duration_ns, lane });
            nodes.insert(index, id);
        }
        // The order of the edges: who contains whom by the spans of a thread; then by hand-offs; then
        // what is left is the pass's.
        let around = |span: &Span| span.parent.and_then(|parent| nodes.get(&parent)).copied();
        for &index in &spans {
            if let Some(parent) = around(&self.spans[index as usize]) {
                let id = nodes[&index];
                graph.add_edge(parent, id, nesting(&graph, id));
            }
        }
        let mut is_inside: Vec<bool> = vec![false; graph.num_nodes()];
        // Work that is handed off and comes back says twice that it lies inside.
        let mut told: HashSet<(u32, u32, bool)> = HashSet::new();
        for dependency in &self.dependencies {
            let ends = self.edge_of(&dependency.from, &dependency.to);
            if let Some((src, dst, nests)) = ends.filter(|&ends| told.insert(ends))
                && let (Some(&src), Some(&dst)) = (nodes.get(&src), nodes.get(&dst))
            {
                let edge = if nests { nesting(&graph, dst) } else { EdgeType::DependsOn };
                is_inside[dst.0 as usize] |= nests;
                graph.add_edge(src, dst, edge);
            }
        }
        let mut last_on: HashMap<(u32, Option<u32>), ExecutionNodeId> = HashMap::new();
        for &index in &spans {
            let (span, id) = (&self.spans[index as usize], nodes[&index]);
            if around(span).is_none()
                && !is_inside[id.0 as usize]
                && let Some(root) = root
            {
                graph.add_edge(root, id, nesting(&graph, id));
            }
            let parent = span.parent.filter(|parent| nodes.contains_key(parent));
            if let Some(before) = last_on.insert((span.lane, parent), id) {
                // Spans that overlap without nesting are in no sequence.
                let ends =
                    |id| graph.time(id).map(|time| time.start_ns.saturating_add(time.duration_ns));
                if ends(before) <= Some(span.start_ns) {
                    graph.add_edge(before, id, EdgeType::Sequence);
                }
            }
        }
        Some(graph)
    }

    /// The spans of a pass, and those of other threads that worked for it, by index.
    fn spans_for(&self, pass: u32) -> Vec<u32> {
        let mut wanted: Vec<u32> = (0..)
            .zip(&self.spans)
            .filter(|(_, span)| span.pass == Some(pass))
            .map(|(index, _)| index)
            .collect();
        if self.dependencies.is_empty() || wanted.is_empty() {
            return wanted;
        }
        let wall = self.passes.iter().find(|ended| ended.serial == pass);
        let wall = wall.map(|pass| (pass.start_ns, pass.start_ns.saturating_add(pass.wall_ns)));
        // When each thread turned to something else.
        let mut turns: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for dependency in &self.dependencies {
            turns.entry(dependency.to.lane).or_default().push(dependency.to.at_ns);
        }
        turns.values_mut().for_each(|turns| turns.sort_unstable());
        let mut by_lane: HashMap<u32, Vec<u32>> = HashMap::new();
        for (index, span) in (0..).zip(&self.spans) {
            by_lane.entry(span.lane).or_default().push(index);
        }
        let mut is_wanted: Vec<bool> = vec![false; self.spans.len()];
        wanted.iter().for_each(|&index| is_wanted[index as usize] = true);
        // In the order of time, so that whoever hands on what was handed to it comes later.
        for dependency in &self.dependencies {
            let Point { lane, at_ns, inside, after, .. } = dependency.from;
            let from_here = [inside, after]
                .into_iter()
                .flatten()
                .any(|index| is_wanted.get(index as usize).copied().unwrap_or_default())
                || inside.is_none()
                    && after.is_none()
                    && wall.is_some_and(|(begin, end)| begin <= at_ns && at_ns <= end)
                    && self.passes.iter().any(|ended| ended.serial == pass && ended.lane == lane);
            if !from_here {
                continue;
            }
            let to = &dependency.to;
            let turn = turns.get(&to.lane).and_then(|turns| {
                turns.get(turns.partition_point(|&turn| turn <= to.at_ns)).copied()
            });
            let until = turn.unwrap_or(u64::MAX).min(wall.map_or(u64::MAX, |(_, end)| end));
            for &index in by_lane.get(&to.lane).into_iter().flatten() {
                let span = &self.spans[index as usize];
                let end = span.start_ns.saturating_add(span.duration_ns);
                if span.pass.is_none() && to.at_ns <= span.start_ns && end <= until {
                    is_wanted[index as usize] = true;
                }
            }
        }
        wanted.clear();
        wanted.extend((0..).zip(&is_wanted).filter(|&(_, &is)| is).map(|(index, _)| index));
        wanted
    }

    /// What a hand-off says of two spans: that the second begins after the end of the first, or
    /// (`true`) that the second lies inside the first. `None` if it says neither.
    fn edge_of(&self, from: &Point, to: &Point) -> Option<(u32, u32, bool)> {
        let span = |index: u32| self.spans.get(index as usize);
        let lies_in = |inner: u32, outer: u32| {
            let (inner, outer) = (span(inner)?, span(outer)?);
            let end = |span: &Span| span.start_ns.saturating_add(span.duration_ns);
            (outer.start_ns <= inner.start_ns && end(inner) <= end(outer)).then_some(())
        };
        match (from.after, from.inside, to.before, to.inside) {
            (Some(ended), _, Some(begins), _) => Some((ended, begins, false)),
            // It waited for the begin of the span that handed off.
            (None, Some(outer), Some(begins), _) => {
                lies_in(begins, outer).map(|()| (outer, begins, true))
            }
            // Its end waited.
            (Some(ended), _, None, Some(outer)) => {
                lies_in(ended, outer).map(|()| (outer, ended, true))
            }
            _ => None,
        }
    }

    fn node_of(&self, span: &Span) -> ExecutionNode {
        let (timing_ns, elements) = (span.duration_ns, span.work.elements);
        let Some(index) = span.name else {
            return ExecutionNode::Layer { index: span.layer.unwrap_or_default().into() };
        };
        let unknown = Name { name: format!("#{index}"), kind: NameKind::Brick, host: None };
        let name = self.names.get(usize::from(index)).unwrap_or(&unknown);
        match name.kind {
            NameKind::Kernel => {
                let mut kernel = gpu_kernel(&name.name, 0, (1, 1, 1), (1, 1, 1), 0);
                if let ExecutionNode::Kernel {
                    timing_ns: timing,
                    host,
                    arithmetic_intensity,
                    achieved_tflops,
                    ..
                } = &mut kernel
                {
                    let (flops, bytes) = (span.work.flops as f64, span.work.bytes as f64);
                    *timing = Some(timing_ns);
                    *host = name.host.clone();
                    *arithmetic_intensity =
                        (bytes > 0.0 && flops > 0.0).then(|| (flops / bytes) as f32);
                    // FLOPs in a nanosecond are thousandths of TFLOP/s.
                    *achieved_tflops = (flops > 0.0 && timing_ns > 0)
                        .then(|| (flops / timing_ns as f64 / 1e3) as f32);
                }
                let source = self.ptx.resolve(&kernel).map_or(0, |source| source.hash);
                if let ExecutionNode::Kernel { ptx_hash, .. } = &mut kernel {
                    *ptx_hash = source;
                }
                kernel
            }
            NameKind::Brick => match BrickId::from_str(&name.name) {
                Some(id) => ExecutionNode::Brick { id, timing_ns, elements },
                None => ExecutionNode::NamedBrick { name: name.name.clone(), timing_ns, elements },
            },
        }
    }
}

fn add_pass(graph: &mut ExecutionGraph, pass: &Pass) -> ExecutionNodeId {
    let phase = match pass.phase {
        Phase::Prefill => "Prefill",
        Phase::Decode => "Decode",
    };
    let name = format!("{phase} pass");
    let root = graph.add_node(ExecutionNode::Function { name, file: None, line: None });
    let lane = u16::try_from(pass.lane).unwrap_or(u16::MAX);
    graph.set_time(root, NodeTime { start_ns: pass.start_ns, duration_ns: pass.wall_ns, lane });
    root
}

/// How a node is inside another.
fn nesting(graph: &ExecutionGraph, inner: ExecutionNodeId) -> EdgeType {
    let is_kernel = graph.node(inner).is_some_and(|node| node.is_kernel());
    if is_kernel { EdgeType::Launches } else { EdgeType::Contains }
}
