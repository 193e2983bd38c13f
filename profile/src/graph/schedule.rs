//! When each node can run at the earliest and must run at the latest: critical path, slack, what-if.
//!
//! Every node has a begin and an end. The nodes that it contains, launches or calls lie between the two; the
//! nodes that follow in sequence or depend on it begin after its end. This is the network of the critical
//! path method (Kelley, Walker, "Critical-Path Planning and Scheduling", 1959), on begins and ends so that
//! nodes can nest:
//!
//! ```text
//! begin(parent) ──► begin(child) ──► end(child) ──► end(parent) ──► begin(followers)
//! ```
//!
//! The measured time of a node includes the nodes inside it. The time beyond what they need is its *own*
//! time, and lies after them; so nested time counts once. A node that took no longer than they did, for
//! example since it waited for another thread, has no time of its own.
//!
//! All of it is linear in nodes and edges, and nothing recurses.

use std::fmt;
use std::ops::Index as At;

use super::store::{Index, Store};
use super::{ExecutionGraph, ExecutionNodeId};

/// Nodes that wait for each other in a cycle, so that none of them could ever run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// Each waits for the one before it, and the first for the last.
    pub nodes: Vec<ExecutionNodeId>,
    /// Their names.
    names: Vec<String>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More names than this don't help.
        const MOST: usize = 8;
        f.write_str("the graph has a cycle, so it has no path: ")?;
        let named = self.names.iter().zip(&self.nodes).take(MOST);
        for (name, id) in named {
            write!(f, "{} (node {}) → ", crate::text::printable(name), id.0)?;
        }
        if self.nodes.len() > MOST {
            write!(f, "{} more → ", self.nodes.len() - MOST)?;
        }
        match self.names.first() {
            Some(name) => f.write_str(&crate::text::printable(name)),
            None => f.write_str("(nothing)"),
        }
    }
}

impl std::error::Error for Cycle {}

/// The earliest begins and ends of all nodes, and the latest that don't make the whole longer.
///
/// Times are in nanoseconds from the begin of the whole. Nodes that no edge orders are assumed to be free to
/// run at the same time.
#[derive(Debug, Clone)]
pub struct Schedule<'g> {
    graph: &'g ExecutionGraph,
    makespan: u64,
    /// By node, its time outside of the nodes inside it.
    own: Vec<u64>,
    earliest_begin: Vec<u64>,
    earliest_end: Vec<u64>,
    latest_end: Vec<u64>,
    /// The begins and ends in an order that respects all edges: twice the node's index, plus one for an
    /// end.
    order: Vec<u32>,
}

/// A node of the critical path, and how much of the path is its own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The node.
    pub node: ExecutionNodeId,
    /// Nanoseconds outside of the nodes inside it.
    pub own_ns: u64,
    /// Whether a node inside it is on the path, too.
    pub is_around_others: bool,
}

/// How far nodes can be delayed without making the whole longer, in nanoseconds.
///
/// ```
/// # use brickscope::{BrickId, ExecutionGraph, ExecutionNode};
/// # let mut graph = ExecutionGraph::new();
/// # graph.add_node(ExecutionNode::Brick { id: BrickId::LmHead, timing_ns: 5, elements: 1 });
/// for (node, slack_ns) in &graph.compute_slack() {
///     println!("node {} can be {slack_ns} ns later", node.0);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slack {
    nanos: Vec<u64>,
}

impl Slack {
    /// The slack of one node.
    #[must_use]
    pub fn get(&self, node: &ExecutionNodeId) -> Option<&u64> {
        self.nanos.get(node.0 as usize)
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nanos.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nanos.is_empty()
    }

    /// All nodes with their slack, in the order of the graph.
    pub fn iter(&self) -> impl Iterator<Item = (ExecutionNodeId, &u64)> {
        (0..).map(ExecutionNodeId).zip(&self.nanos)
    }
}

impl At<&ExecutionNodeId> for Slack {
    type Output = u64;

    /// # Panics
    ///
    /// If the graph doesn't have the node.
    fn index(&self, node: &ExecutionNodeId) -> &u64 {
        &self.nanos[node.0 as usize]
    }
}

impl<'s> IntoIterator for &'s Slack {
    type Item = (ExecutionNodeId, &'s u64);
    type IntoIter = std::iter::Zip<
        std::iter::Map<std::ops::RangeFrom<u32>, fn(u32) -> ExecutionNodeId>,
        std::slice::Iter<'s, u64>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        let ids: std::iter::Map<_, fn(u32) -> ExecutionNodeId> = (0..).map(ExecutionNodeId);
        ids.zip(&self.nanos)
    }
}

/// The effect of a change on the whole, by the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// The name of the bricks or kernels that change.
    pub name: String,
    /// The factor that their time is multiplied by.
    pub factor: f64,
    /// The number of nodes with that name.
    pub nodes: usize,
    /// The present length of the whole.
    pub before_ns: u64,
    /// The length that it would have.
    pub after_ns: u64,
}

impl WhatIf {
    /// How much shorter the whole would be; negative if it would be longer.
    #[must_use]
    pub fn gain_ns(&self) -> i128 {
        i128::from(self.before_ns) - i128::from(self.after_ns)
    }
}

fn begin(node: usize) -> u32 {
    // A graph has fewer than 2^31 nodes here: see `Schedule::new`.
    2 * node as u32
}

fn end(node: usize) -> u32 {
    begin(node) + 1
}

/// The node of an event's number, and whether it is the end.
fn event(number: u32) -> (usize, bool) {
    ((number / 2) as usize, number % 2 == 1)
}

/// The graph, with only the edges that matter here.
#[derive(Clone, Copy)]
struct Network<'g> {
    store: &'g Store,
    index: &'g Index,
}

impl Network<'_> {
    fn neighbours(
        self,
        edges: &[u32],
        nests: bool,
        pick: impl Fn((u32, u32)) -> u32,
    ) -> impl Iterator<Item = usize> {
        edges.iter().filter_map(move |&edge| {
            let (src, dst) = self.store.ends()[edge as usize];
            // An edge may say that a node is inside itself.
            let is_wanted = self.store.nests(edge as usize) == nests && !(nests && src == dst);
            is_wanted.then(|| pick((src, dst)) as usize)
        })
    }

    fn children(self, node: usize) -> impl Iterator<Item = usize> {
        self.neighbours(self.index.outgoing(node), true, |(_, dst)| dst)
    }

    fn parents(self, node: usize) -> impl Iterator<Item = usize> {
        self.neighbours(self.index.incoming(node), true, |(src, _)| src)
    }

    fn followers(self, node: usize) -> impl Iterator<Item = usize> {
        self.neighbours(self.index.outgoing(node), false, |(_, dst)| dst)
    }

    fn predecessors(self, node: usize) -> impl Iterator<Item = usize> {
        self.neighbours(self.index.incoming(node), false, |(src, _)| src)
    }

    /// The events directly after an event.
    fn after(self, number: u32, mut visit: impl FnMut(u32)) {
        let (node, is_end) = event(number);
        if is_end {
            self.parents(node).for_each(|parent| visit(end(parent)));
            self.followers(node).for_each(|follower| visit(begin(follower)));
        } else {
            visit(end(node));
            self.children(node).for_each(|child| visit(begin(child)));
        }
    }

    /// Some wanted event directly before an event.
    fn before(self, number: u32, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let (node, is_end) = event(number);
        if is_end {
            let own = Some(begin(node)).filter(|&event| is_wanted(event));
            own.or_else(|| self.children(node).map(end).find(|&event| is_wanted(event)))
        } else {
            let parent = self.parents(node).map(begin).find(|&event| is_wanted(event));
            parent.or_else(|| self.predecessors(node).map(end).find(|&event| is_wanted(event)))
        }
    }

    /// All events in an order that respects all edges (Kahn, "Topological sorting of large networks",
    /// 1962), or a cycle.
    fn order(self) -> Result<Vec<u32>, Vec<usize>> {
        let n_events = 2 * self.store.n_nodes();
        let mut waits_for = vec![0_u32; n_events];
        for number in 0..n_events as u32 {
            self.after(number, |next| waits_for[next as usize] += 1);
        }
        let mut order: Vec<u32> = Vec::with_capacity(n_events);
        order.extend((0..n_events as u32).filter(|&number| waits_for[number as usize] == 0));
        let mut at = 0;
        while let Some(&number) = order.get(at) {
            at += 1;
            self.after(number, |next| {
                waits_for[next as usize] -= 1;
                if waits_for[next as usize] == 0 {
                    order.push(next);
                }
            });
        }
        if order.len() == n_events { Ok(order) } else { Err(self.cycle(&waits_for)) }
    }

    /// The nodes of a cycle, in order, among the events that still wait.
    fn cycle(self, waits_for: &[u32]) -> Vec<usize> {
        let is_stuck = |event: u32| waits_for[event as usize] > 0;
        let Some(first) = (0..waits_for.len() as u32).find(|&event| is_stuck(event)) else {
            return Vec::new();
        };
        // Each waiting event has another waiting one before it, so going back ends in a cycle.
        let mut seen = vec![false; waits_for.len()];
        let mut at = first;
        while !std::mem::replace(&mut seen[at as usize], true) {
            at = self.before(at, is_stuck).unwrap_or(at);
        }
        let start = at;
        let mut nodes = Vec::new();
        loop {
            let (node, _) = event(at);
            if nodes.last() != Some(&node) {
                nodes.push(node);
            }
            at = self.before(at, is_stuck).unwrap_or(start);
            if at == start {
                break;
            }
        }
        if nodes.len() > 1 && nodes.first() == nodes.last() {
            nodes.pop();
        }
        nodes.reverse();
        let first = (0..nodes.len()).min_by_key(|&at| nodes[at]).unwrap_or(0);
        nodes.rotate_left(first);
        nodes
    }
}

impl<'g> Schedule<'g> {
    fn new(graph: &'g ExecutionGraph) -> Result<Self, Cycle> {
        let network = graph.network();
        let order = network.order().map_err(|nodes| {
            let name = |&node: &usize| graph.store.node(node).map(|node| node.name());
            Cycle {
                names: nodes.iter().filter_map(name).collect(),
                nodes: nodes.into_iter().map(|node| ExecutionNodeId(node as u32)).collect(),
            }
        })?;
        let n = graph.num_nodes();
        let mut schedule = Self {
            graph,
            makespan: 0,
            own: vec![0; n],
            earliest_begin: vec![0; n],
            earliest_end: vec![0; n],
            latest_end: Vec::new(),
            order,
        };
        // The nodes inside a node end at `inner`; only then its own time is known.
        let durations = |node: usize, begin: u64, inner: u64| {
            let whole = begin.saturating_add(graph.store.row(node).duration().unwrap_or(0));
            whole.max(inner) - inner
        };
        let own = schedule.run_forward(durations);
        schedule.own = own;
        schedule.run_backward();
        Ok(schedule)
    }

    /// Fills in the earliest times. `own` returns the own time of a node, given when the node begins and
    /// when the last node inside it ends. Returns these own times.
    fn run_forward(&mut self, own: impl Fn(usize, u64, u64) -> u64) -> Vec<u64> {
        let network = self.graph.network();
        let mut owns = vec![0; self.earliest_begin.len()];
        self.earliest_begin.fill(0);
        // Until a node has ended, its entry is the end of the last node inside it.
        self.earliest_end.fill(0);
        self.makespan = 0;
        for &number in &self.order {
            let (node, is_end) = event(number);
            let begin = self.earliest_begin[node];
            if is_end {
                let inner = self.earliest_end[node].max(begin);
                owns[node] = own(node, begin, inner);
                let end = inner.saturating_add(owns[node]);
                self.earliest_end[node] = end;
                self.makespan = self.makespan.max(end);
                for parent in network.parents(node) {
                    let inner = &mut self.earliest_end[parent];
                    *inner = (*inner).max(end);
                }
                for follower in network.followers(node) {
                    let begin = &mut self.earliest_begin[follower];
                    *begin = (*begin).max(end);
                }
            } else {
                for child in network.children(node) {
                    let child_begin = &mut self.earliest_begin[child];
                    *child_begin = (*child_begin).max(begin);
                }
            }
        }
        owns
    }

    /// Fills in the latest ends.
    fn run_backward(&mut self) {
        let network = self.graph.network();
        let n = self.own.len();
        let mut latest_end = vec![self.makespan; n];
        let mut latest_begin = vec![self.makespan; n];
        for &number in self.order.iter().rev() {
            let (node, is_end) = event(number);
            if is_end {
                let parents = network
                    .parents(node)
                    .map(|parent| latest_end[parent].saturating_sub(self.own[parent]));
                let followers = network.followers(node).map(|follower| latest_begin[follower]);
                latest_end[node] = parents.chain(followers).fold(self.makespan, u64::min);
            } else {
                let own = latest_end[node].saturating_sub(self.own[node]);
                let children = network.children(node).map(|child| latest_begin[child]);
                latest_begin[node] = children.fold(own, u64::min);
            }
        }
        self.latest_end = latest_end;
    }

    /// The shortest time that the whole can take.
    #[must_use]
    pub fn makespan_ns(&self) -> u64 {
        self.makespan
    }

    /// The earliest begin of a node, and its end in that case; `None` if the node doesn't exist.
    #[must_use]
    pub fn earliest(&self, node: ExecutionNodeId) -> Option<(u64, u64)> {
        let node = node.0 as usize;
        Some((*self.earliest_begin.get(node)?, *self.earliest_end.get(node)?))
    }

    /// The part of a node's time outside of the nodes inside it.
    #[must_use]
    pub fn own_ns(&self, node: ExecutionNodeId) -> Option<u64> {
        self.own.get(node.0 as usize).copied()
    }

    /// How far each node's end can be delayed without making the whole longer.
    #[must_use]
    pub fn slack(&self) -> Slack {
        let ends = self.latest_end.iter().zip(&self.earliest_end);
        Slack { nanos: ends.map(|(latest, earliest)| latest.saturating_sub(*earliest)).collect() }
    }

    /// The critical path, from first to last: the steps that decide how long the whole takes. Their own
    /// times add up to the makespan; nodes without any are left out.
    #[must_use]
    pub fn critical_path(&self) -> Vec<Step> {
        let network = self.graph.network();
        let mut steps = Vec::new();
        // The first of those that end last; nodes inside it are found from there. Outer nodes come
        // before inner ones.
        let last = (0..self.own.len()).find(|&node| self.earliest_end[node] == self.makespan);
        let mut at = last.map(end);
        while let Some(number) = at {
            let (node, is_end) = event(number);
            if is_end {
                let inner_end = self.earliest_end[node] - self.own[node];
                // A node inside that took time, rather than one that only waited.
                let ends_then = |&child: &usize| self.earliest_end[child] == inner_end;
                let took_time = |&child: &usize| self.earliest_begin[child] < inner_end;
                let inside = || network.children(node).filter(ends_then);
                let inner = inside().find(took_time).or_else(|| inside().next());
                let inner = inner.filter(|_| self.earliest_begin[node] < inner_end);
                if self.own[node] > 0 {
                    let node = ExecutionNodeId(node as u32);
                    let is_around_others = inner.is_some();
                    let own_ns = self.own[node.0 as usize];
                    steps.push(Step { node, own_ns, is_around_others });
                }
                at = Some(inner.map_or(begin(node), end));
            } else {
                let begins = self.earliest_begin[node];
                if begins == 0 {
                    break;
                }
                let before =
                    network.predecessors(node).find(|&before| self.earliest_end[before] == begins);
                let outer =
                    || network.parents(node).find(|&outer| self.earliest_begin[outer] == begins);
                at = before.map(end).or_else(|| outer().map(begin));
            }
        }
        steps.reverse();
        steps
    }

    /// The makespan if nodes had other own times: `own_ns` returns that of each node, given its present
    /// one.
    #[must_use]
    pub fn makespan_if(&self, own_ns: impl Fn(ExecutionNodeId, u64) -> u64) -> u64 {
        let mut other = self.clone();
        other.run_forward(|node, _, _| own_ns(ExecutionNodeId(node as u32), self.own[node]));
        other.makespan
    }

    /// The effect on the whole if every node called `name` took `factor` times as long, including the nodes
    /// inside it. `None` if no node has that name.
    ///
    /// # Panics
    ///
    /// If `factor` is negative or not a number.
    #[must_use]
    pub fn what_if(&self, name: &str, factor: f64) -> Option<WhatIf> {
        assert!(factor >= 0.0, "{factor} is not a factor of a time");
        let network = self.graph.network();
        let mut is_changed = vec![false; self.own.len()];
        let mut nodes = 0;
        // Nodes that begin after their parents in the order inherit from them.
        for &number in &self.order {
            let (node, is_end) = event(number);
            if !is_end {
                let is_named = self.graph.store.is_named(node, name);
                nodes += usize::from(is_named);
                is_changed[node] =
                    is_named || network.parents(node).any(|parent| is_changed[parent]);
            }
        }
        let after_ns = self.makespan_if(|node, own| {
            // A product above 2^64 saturates.
            if is_changed[node.0 as usize] { (own as f64 * factor).round() as u64 } else { own }
        });
        let before_ns = self.makespan;
        let name = name.to_owned();
        (nodes > 0).then_some(WhatIf { name, factor, nodes, before_ns, after_ns })
    }
}

/// Critical path, slack and what-if.
impl ExecutionGraph {
    fn network(&self) -> Network<'_> {
        Network { store: &self.store, index: self.index() }
    }

    /// The earliest and latest times of all nodes.
    ///
    /// # Errors
    ///
    /// If nodes wait for each other in a cycle.
    pub fn schedule(&self) -> Result<Schedule<'_>, Cycle> {
        Schedule::new(self)
    }

    /// The nodes that decide how long the whole takes, from first to last, and that length in
    /// nanoseconds.
    ///
    /// Time inside a node counts once, and the path names the innermost nodes: a brick that launches a timed
    /// kernel gives way to it, unless more than half of its time is its own. The whole path with each
    /// node's part is [`Schedule::critical_path`]. A graph with a cycle has an empty path:
    /// [`schedule`](Self::schedule) says where the cycle is.
    #[must_use]
    pub fn critical_path(&self) -> (Vec<ExecutionNodeId>, u64) {
        match self.schedule() {
            Ok(schedule) => (
                self.named_steps(&schedule.critical_path()).map(|step| step.node).collect(),
                schedule.makespan_ns(),
            ),
            Err(_) => (Vec::new(), 0),
        }
    }

    /// The steps that name a path; the others only wrap them.
    pub(crate) fn named_steps<'s>(&self, steps: &'s [Step]) -> impl Iterator<Item = &'s Step> {
        steps.iter().filter(|step| {
            let whole = self.store.row(step.node.0 as usize).duration().unwrap_or_default();
            !step.is_around_others || step.own_ns > whole / 2
        })
    }

    /// How far each node can be delayed without making the whole longer; empty for a graph with a cycle.
    #[must_use]
    pub fn compute_slack(&self) -> Slack {
        self.schedule().map(|schedule| schedule.slack()).unwrap_or_default()
    }

    /// The effect on the whole if every node called `name` took `factor` times as long: see
    /// [`Schedule::what_if`].
    ///
    /// # Errors
    ///
    /// If nodes wait for each other in a cycle.
    ///
    /// # Panics
    ///
    /// If `factor` is negative or not a number.
    pub fn what_if(&self, name: &str, factor: f64) -> Result<Option<WhatIf>, Cycle> {
        Ok(self.schedule()?.what_if(name, factor))
    }
}
