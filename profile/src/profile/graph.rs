//! The graph of a recorded pass, from its spans and dependencies.
//!
//! A hand-off between threads is two points, each between two spans of its thread. A point is a node: it
//! lies in the span around it, after the spans that ended before it, and before those that begin later. The
//! time from the end of the span before a hand-off to the hand-off is the hand-off's own, since the waiting
//! thread waits for that time too. A take-over has no time of its own: its thread was waiting.
//!
//! ```text
//! thread 0   [ norm ]→[ gate: hand-off ·············· take-over ]→[ down ]
//!                              └──────┐                  ▲
//! thread 1                        take-over→[ share ]→hand-off
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::brick::BrickId;
use crate::graph::{
    EdgeType, ExecutionGraph, ExecutionNode, ExecutionNodeId, NodeTime, gpu_kernel,
};
use crate::name::{Name, NameKind, Route};
use crate::profile::Profile;
use crate::profile::graph_layers::{LayerAround, LayersAround};
use crate::span::{Dependency, Span};
use crate::sums::Pass;

/// The parts of a pass: spans by index, and the hand-offs between them.
struct Parts {
    spans: Vec<u32>,
    dependencies: Vec<usize>,
}

/// The begin and end of a pass.
#[derive(Clone, Copy)]
struct Wall {
    lane: u32,
    begin: u64,
    end: u64,
}

impl Wall {
    fn of(pass: &Pass) -> Self {
        let Pass { lane, start_ns: begin, wall_ns, .. } = *pass;
        Self { lane, begin, end: begin.saturating_add(wall_ns) }
    }
}

/// A position in the sequence of a thread within one span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: u64,
    /// A point comes before a span that begins at the same time.
    is_span: bool,
    nth: u32,
}

fn end_of(span: &Span) -> u64 {
    span.start_ns.saturating_add(span.duration_ns)
}

impl Profile {
    /// The graph of one recorded pass: the pass, its layers, their bricks, and the kernels that these
    /// launched, each with its times. Siblings on one thread are in sequence. Work that other threads took
    /// over from the pass (`BrickProfiler::take_over`) is included, with its dependencies.
    ///
    /// Where kernels of another program's trace, or bricks that were timed elsewhere, state their layer, it is from the begin
    /// of its first one to the end of its last.
    ///
    /// If the pass ended, its node has the wall time: the makespan of the graph is at least that, and the
    /// pass's own time is the unattributed time.
    ///
    /// `None` if no span of that pass was kept.
    #[must_use]
    pub fn execution_graph(&self, pass: u32) -> Option<ExecutionGraph> {
        let wall = self.wall(pass)?;
        let parts = self.parts(pass, wall);
        let ended = self.passes.iter().find(|ended| ended.serial == pass).copied();
        Some(self.graph_of(&parts, &[wall], ended.as_slice(), true))
    }

    /// The graph of all that was recorded at times that are wanted: passes one after the other, as
    /// [`execution_graph`](Self::execution_graph) has each, and what ran outside of passes.
    ///
    /// Where a device has timed passes, they are there as the device saw them, without the passes of the host, which
    /// wait for it. The host's spans outside of passes are there in any case. Passes that began at times that aren't
    /// wanted are left out as a whole.
    #[doc(hidden)]
    #[must_use]
    pub fn recorded_graph(&self, is_wanted: impl Fn(u64) -> bool) -> ExecutionGraph {
        let devices = (0..self.devices.len()).filter_map(|device| {
            // Without an alignment its times are not the host's.
            let is_aligned = self.devices[device].alignment.is_some();
            let on_device = self.whole_device(device)?;
            let is_wanted = |at: u64| !is_aligned || is_wanted(at);
            Some(on_device.graph_of_all(&is_wanted, true))
        });
        let devices: Vec<_> = devices.filter(|graph| graph.num_nodes() > 0).collect();
        let mut graph = self.graph_of_all(&is_wanted, devices.is_empty());
        for device in &devices {
            graph.append(device);
        }
        graph
    }

    fn graph_of_all(&self, is_wanted: &dyn Fn(u64) -> bool, with_passes: bool) -> ExecutionGraph {
        // When each pass began: an open one with its first span.
        let mut begins: HashMap<u32, u64> = HashMap::new();
        for span in &self.spans {
            if let Some(pass) = span.pass {
                let begin = begins.entry(pass).or_insert(span.start_ns);
                *begin = span.start_ns.min(*begin);
            }
        }
        let passes: Vec<&Pass> =
            self.passes.iter().filter(|pass| begins.contains_key(&pass.serial)).collect();
        begins.extend(passes.iter().map(|pass| (pass.serial, pass.start_ns)));
        let wanted = (0..).zip(&self.spans).filter(|(_, span)| match span.pass {
            Some(pass) => with_passes && is_wanted(begins[&pass]),
            None => is_wanted(span.start_ns),
        });
        let spans: Vec<u32> = wanted.map(|(index, _)| index).collect();
        let dependencies = (0..self.dependencies.len()).filter(|&index| {
            let Dependency { from, to } = &self.dependencies[index];
            is_wanted(from.at_ns) && is_wanted(to.at_ns)
        });
        let parts = Parts { spans, dependencies: dependencies.collect() };
        let roots: Vec<Pass> = passes
            .into_iter()
            .filter(|pass| with_passes && is_wanted(pass.start_ns))
            .copied()
            .collect();
        let walls: Vec<Wall> = roots.iter().map(Wall::of).collect();
        self.graph_of(&parts, &walls, &roots, false)
    }

    /// The graph of some spans and hand-offs, with the passes `roots` around them. If it is of `one` pass, what other
    /// threads do for it lies in that pass.
    fn graph_of(&self, parts: &Parts, walls: &[Wall], roots: &[Pass], one: bool) -> ExecutionGraph {
        let mut graph = ExecutionGraph::new();
        let roots: Vec<(&Pass, ExecutionNodeId)> =
            roots.iter().map(|pass| (pass, add_pass(&mut graph, pass))).collect();
        let root_of: HashMap<u32, ExecutionNodeId> =
            roots.iter().map(|&(pass, root)| (pass.serial, root)).collect();
        let only_root = roots.first().map(|&(_, root)| root).filter(|_| one);
        // The last pass that began on a thread by some time, if it went on then.
        let by_begin: BTreeMap<(u32, u64), (u64, usize)> =
            walls.iter().zip(0..).map(|(w, nth)| ((w.lane, w.begin), (w.end, nth))).collect();
        let pass_at = |lane: u32, at: u64| {
            let (_, &(end, nth)) = by_begin.range((lane, 0)..=(lane, at)).next_back()?;
            (at <= end).then_some(nth)
        };
        let layers = self.layers_around(parts, walls);
        let mut layer_nodes: HashMap<usize, ExecutionNodeId> = HashMap::new();
        // The node of each span. Parents come before their children.
        let mut nodes: HashMap<u32, ExecutionNodeId> = HashMap::new();
        for &index in &parts.spans {
            let span = &self.spans[index as usize];
            if let Some((nth, layer)) = layers.around(index) {
                layer_nodes.entry(nth).or_insert_with(|| add_layer(&mut graph, layer, span.lane));
            }
            let id = graph.add_node(self.node_of(span));
            let lane = u16::try_from(span.lane).unwrap_or(u16::MAX);
            let (start_ns, duration_ns) = (span.start_ns, span.duration_ns);
            graph.set_time(id, NodeTime { start_ns, duration_ns, lane });
            nodes.insert(index, id);
        }
        // The span, perhaps of another thread, around the work that a thread took over.
        let with_passes: HashSet<u32> = walls.iter().map(|wall| wall.lane).collect();
        let mut givers: BTreeMap<(u32, u64), Option<u32>> = BTreeMap::new();
        for &index in &parts.dependencies {
            let (from, to) = (&self.dependencies[index].from, &self.dependencies[index].to);
            if !with_passes.contains(&to.lane) {
                let outer = from.inside.filter(|outer| nodes.contains_key(outer));
                givers.insert((to.lane, to.at_ns), outer);
            }
        }
        let around = |lane: u32, parent: Option<u32>, pass: Option<u32>, begin: u64, end: u64| {
            let parent = parent.and_then(|parent| nodes.get(&parent));
            let giver = || {
                let (_, outer) = givers.range((lane, 0)..=(lane, begin)).next_back()?;
                let outer = (*outer)?;
                let span = &self.spans[outer as usize];
                let is_in = span.start_ns <= begin && end <= end_of(span);
                nodes.get(&outer).filter(|_| is_in)
            };
            let root = || root_of.get(&pass?);
            parent.or_else(giver).or_else(root).copied().or(only_root)
        };
        // The sequence of nodes, by thread and by the span around them, or else the pass.
        type Lanes = BTreeMap<(u32, Option<u32>, Option<usize>), BTreeMap<Place, ExecutionNodeId>>;
        let mut lanes = Lanes::new();
        for &(pass, root) in roots.iter().filter(|_| !one) {
            let nth = u32::MAX - pass.serial;
            let place = Place { at: pass.start_ns, is_span: true, nth };
            lanes.entry((pass.lane, None, None)).or_default().insert(place, root);
        }
        // The same inside of layers, by layer and thread.
        let mut in_layers: BTreeMap<(usize, u32), BTreeMap<Place, ExecutionNodeId>> =
            BTreeMap::new();
        for &index in &parts.spans {
            let (span, id) = (&self.spans[index as usize], nodes[&index]);
            if let Some((nth, layer)) = layers.around(index) {
                let around_it = layer_nodes[&nth];
                // The layer is where its owner would be.
                if layer.owner == index {
                    let outer = around(span.lane, None, span.pass, layer.begin, layer.end);
                    if let Some(outer) = outer {
                        graph.add_edge(outer, around_it, EdgeType::Contains);
                    }
                    let place = Place { at: layer.begin, is_span: true, nth: index };
                    let pass = span.pass.and_then(|_| pass_at(span.lane, span.start_ns));
                    lanes.entry((span.lane, None, pass)).or_default().insert(place, around_it);
                }
                graph.add_edge(around_it, id, nesting(&graph, id));
                let place = Place { at: span.start_ns, is_span: true, nth: index };
                in_layers.entry((nth, span.lane)).or_default().insert(place, id);
                continue;
            }
            let parent = span.parent.filter(|parent| nodes.contains_key(parent));
            if let Some(outer) = around(span.lane, parent, span.pass, span.start_ns, end_of(span)) {
                graph.add_edge(outer, id, nesting(&graph, id));
            }
            let place = Place { at: span.start_ns, is_span: true, nth: index };
            let of_pass = span.pass.is_some() && parent.is_none();
            let pass = if of_pass { pass_at(span.lane, span.start_ns) } else { None };
            lanes.entry((span.lane, parent, pass)).or_default().insert(place, id);
        }
        // Each point once, however many threads took over from it.
        let mut points: BTreeMap<(u32, u32), ExecutionNodeId> = BTreeMap::new();
        for &index in &parts.dependencies {
            let dependency = self.dependencies[index];
            let ends = [(dependency.from, "hand-off"), (dependency.to, "take-over")];
            let [from, to] = ends.map(|(point, name)| {
                *points.entry((point.lane, point.nth)).or_insert_with(|| {
                    let id = graph.add_point(name);
                    let inside = point.inside.filter(|inside| nodes.contains_key(inside));
                    let pass = pass_at(point.lane, point.at_ns);
                    let serial = pass.and_then(|nth| Some(roots.get(nth)?.0.serial));
                    if let Some(outer) =
                        around(point.lane, inside, serial, point.at_ns, point.at_ns)
                    {
                        graph.add_edge(outer, id, EdgeType::Contains);
                    }
                    let place = Place { at: point.at_ns, is_span: false, nth: point.nth };
                    let pass = pass.filter(|_| inside.is_none());
                    lanes.entry((point.lane, inside, pass)).or_default().insert(place, id);
                    let lane = u16::try_from(point.lane).unwrap_or(u16::MAX);
                    let (start_ns, duration_ns) = (point.at_ns, 0);
                    graph.set_time(id, NodeTime { start_ns, duration_ns, lane });
                    id
                })
            });
            graph.add_dependency(from, to);
        }
        for ((_, parent, pass), places) in lanes {
            let begin = match parent {
                Some(parent) => Some(self.spans[parent as usize].start_ns),
                None => pass.map(|nth| walls[nth].begin),
            };
            in_sequence(&mut graph, begin, places);
        }
        in_layers.into_values().for_each(|places| in_sequence(&mut graph, None, places));
        graph
    }

    /// The layers that spans state without a span around them. Points between spans end them, as do passes.
    fn layers_around(&self, parts: &Parts, walls: &[Wall]) -> LayersAround {
        let edges = parts.dependencies.iter().map(|&index| &self.dependencies[index]);
        let points = edges.flat_map(|edge| [edge.from, edge.to]);
        let points = points.map(|point| (point.lane, point.at_ns)).collect();
        let begins = walls.iter().map(|wall| wall.begin).collect();
        LayersAround::of(&self.spans, &parts.spans, points, begins)
    }

    /// The begin and end of a pass, from its spans if it never ended. `None` if it has none.
    fn wall(&self, pass: u32) -> Option<Wall> {
        let mut spans = self.spans.iter().filter(|span| span.pass == Some(pass));
        let first = spans.next()?;
        if let Some(ended) = self.passes.iter().find(|ended| ended.serial == pass) {
            return Some(Wall::of(ended));
        }
        let start = Wall { lane: first.lane, begin: first.start_ns, end: end_of(first) };
        Some(spans.fold(start, |wall, span| Wall {
            begin: wall.begin.min(span.start_ns),
            end: wall.end.max(end_of(span)),
            ..wall
        }))
    }

    /// The spans and hand-offs of a pass, and those of other threads that worked for it.
    ///
    /// A thread's work from a take-over to its next one belongs to the pass if the take-over does and the
    /// work ended before the pass did.
    fn parts(&self, pass: u32, wall: Wall) -> Parts {
        let mut is_wanted: Vec<bool> =
            self.spans.iter().map(|span| span.pass == Some(pass)).collect();
        let mut is_included = vec![false; self.dependencies.len()];
        // By thread, in the order of time: hand-offs, take-overs, and what runs outside of passes.
        let mut handed: HashMap<u32, Vec<(u64, usize)>> = HashMap::new();
        let mut turns: HashMap<u32, Vec<u64>> = HashMap::new();
        let mut by_lane: HashMap<u32, Vec<(u64, u32)>> = HashMap::new();
        if !self.dependencies.is_empty() {
            for (index, dependency) in self.dependencies.iter().enumerate() {
                let (from, to) = (&dependency.from, &dependency.to);
                handed.entry(from.lane).or_default().push((from.at_ns, index));
                turns.entry(to.lane).or_default().push(to.at_ns);
            }
            for (index, span) in (0..).zip(&self.spans).filter(|(_, span)| span.pass.is_none()) {
                by_lane.entry(span.lane).or_default().push((span.start_ns, index));
            }
            handed.values_mut().for_each(|list| list.sort_unstable());
            turns.values_mut().for_each(|list| list.sort_unstable());
            by_lane.values_mut().for_each(|list| list.sort_unstable());
        }
        // Half-open intervals of a thread's time that belong to the pass.
        let mut todo = vec![(wall.lane, wall.begin, wall.end.saturating_add(1))];
        while let Some((lane, begin, end)) = todo.pop() {
            for &(_, index) in within(handed.get(&lane), begin, end, |&(at, _)| at) {
                if std::mem::replace(&mut is_included[index], true) {
                    continue;
                }
                let to = &self.dependencies[index].to;
                if to.lane == wall.lane || to.at_ns > wall.end {
                    continue;
                }
                let lane_turns = turns.get(&to.lane).map_or(&[][..], Vec::as_slice);
                let next = lane_turns.partition_point(|&turn| turn <= to.at_ns);
                let until = lane_turns.get(next).copied().unwrap_or(u64::MAX);
                for &(_, index) in within(by_lane.get(&to.lane), to.at_ns, until, |&(at, _)| at) {
                    is_wanted[index as usize] |= end_of(&self.spans[index as usize]) <= wall.end;
                }
                todo.push((to.lane, to.at_ns, until));
            }
        }
        let spans = (0..).zip(&is_wanted).filter(|&(_, &is)| is).map(|(index, _)| index).collect();
        // Nothing in the pass waits for what comes after it.
        let dependencies = (0..self.dependencies.len())
            .filter(|&index| is_included[index] && self.dependencies[index].to.at_ns <= wall.end)
            .collect();
        Parts { spans, dependencies }
    }

    fn node_of(&self, span: &Span) -> ExecutionNode {
        let (timing_ns, elements) = (span.duration_ns, span.work.elements);
        let Some(index) = span.name else {
            return ExecutionNode::Layer { index: span.layer.unwrap_or_default().into() };
        };
        let unknown = Name {
            name: format!("#{index}"),
            kind: NameKind::Brick,
            category: None,
            host: None,
            device: None,
            transfer: None,
        };
        let name = self.names.get(usize::from(index)).unwrap_or(&unknown);
        if let Some(Route { src, dst, direction }) = &name.transfer {
            let (src, dst, direction) = (src.clone(), dst.clone(), *direction);
            let (bytes, timing_ns) = (span.work.bytes, Some(timing_ns));
            return ExecutionNode::Transfer { src, dst, bytes, direction, timing_ns };
        }
        match name.kind {
            NameKind::Kernel => {
                let (flops, bytes) = (span.work.flops as f64, span.work.bytes as f64);
                let intensity = (bytes > 0.0 && flops > 0.0).then(|| (flops / bytes) as f32);
                // One FLOP per nanosecond is a thousandth of a TFLOP/s.
                let tflops =
                    (flops > 0.0 && timing_ns > 0).then(|| (flops / timing_ns as f64 / 1e3) as f32);
                if let Some(launch) = name.host.clone() {
                    return ExecutionNode::Routine {
                        name: name.name.clone(),
                        launch,
                        timing_ns: Some(timing_ns),
                        arithmetic_intensity: intensity,
                        achieved_tflops: tflops,
                    };
                }
                let one = (1, 1, 1);
                let mut kernel = match &name.device {
                    Some(on) => {
                        gpu_kernel(&name.name, on.ptx_hash, on.grid, on.block, on.shared_mem)
                    }
                    None => gpu_kernel(&name.name, 0, one, one, 0),
                };
                if let ExecutionNode::Kernel {
                    timing_ns: timing,
                    arithmetic_intensity,
                    achieved_tflops,
                    ..
                } = &mut kernel
                {
                    *timing = Some(timing_ns);
                    (*arithmetic_intensity, *achieved_tflops) = (intensity, tflops);
                }
                let source = self.ptx.resolve(&kernel).map(|source| source.hash);
                if let ExecutionNode::Kernel { ptx_hash, .. } = &mut kernel {
                    *ptx_hash = source.unwrap_or(*ptx_hash);
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
    let name = format!("{} pass", pass.phase.heading());
    let root = graph.add_node(ExecutionNode::Function { name, file: None, line: None });
    let lane = u16::try_from(pass.lane).unwrap_or(u16::MAX);
    graph.set_time(root, NodeTime { start_ns: pass.start_ns, duration_ns: pass.wall_ns, lane });
    root
}

fn add_layer(graph: &mut ExecutionGraph, of: &LayerAround, lane: u32) -> ExecutionNodeId {
    let id = graph.add_node(ExecutionNode::Layer { index: of.layer.into() });
    let lane = u16::try_from(lane).unwrap_or(u16::MAX);
    let (start_ns, duration_ns) = (of.begin, of.end.saturating_sub(of.begin));
    graph.set_time(id, NodeTime { start_ns, duration_ns, lane });
    id
}

/// The type of edge for a node inside another.
fn nesting(graph: &ExecutionGraph, inner: ExecutionNodeId) -> EdgeType {
    let is_kernel = graph.node(inner).is_some_and(|node| node.is_kernel());
    if is_kernel { EdgeType::Launches } else { EdgeType::Contains }
}

/// The part of a sorted list that lies in an interval of time.
fn within<T>(list: Option<&Vec<T>>, begin: u64, end: u64, at: impl Fn(&T) -> u64) -> &[T] {
    let list = list.map_or(&[][..], Vec::as_slice);
    let first = list.partition_point(|item| at(item) < begin);
    let last = list.partition_point(|item| at(item) < end);
    list.get(first..last).unwrap_or_default()
}

/// Adds the sequence of the spans and points of one thread within one span that began at `begin`. A
/// hand-off gets the time since the node before it; if there is none, its time is unknown.
fn in_sequence(
    graph: &mut ExecutionGraph,
    begin: Option<u64>,
    places: BTreeMap<Place, ExecutionNodeId>,
) {
    let mut before: Option<ExecutionNodeId> = None;
    let mut free_from = begin;
    for (place, id) in places {
        let Some(time) = graph.time(id) else { continue };
        // Spans that overlap without nesting are in no sequence.
        if let Some(before) = before
            && free_from <= Some(place.at)
        {
            graph.add_edge(before, id, EdgeType::Sequence);
        }
        if !place.is_span
            && let Some(since) = free_from
            && graph.node(id).is_some_and(|node| node.name() == "hand-off")
        {
            let start_ns = since.min(place.at);
            graph.set_time(id, NodeTime { start_ns, duration_ns: place.at - start_ns, ..time });
        }
        before = Some(id);
        free_from = Some(if place.is_span {
            time.start_ns.saturating_add(time.duration_ns)
        } else {
            place.at
        });
    }
}
