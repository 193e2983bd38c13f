//! What contains or launches what, as the tree needs it.

use crate::graph::{EdgeType, ExecutionGraph, ExecutionNode, ExecutionNodeId};

/// No node.
const NONE: u32 = u32::MAX;

/// The nodes of a graph, each below the first that contains or launches it.
pub(super) struct Nesting<'g> {
    graph: &'g ExecutionGraph,
    parents: Vec<u32>,
    /// The children of node `i` are `children[starts[i]..starts[i + 1]]`, in the order of edges.
    starts: Vec<u32>,
    children: Vec<u32>,
    roots: Vec<u32>,
    /// All nodes that can be reached from the roots, parents first. The others lie in a cycle.
    order: Vec<u32>,
    /// Nodes below each node.
    inside: Vec<u32>,
    times: Vec<Time>,
}

/// What is known of a node's time.
#[derive(Clone, Copy, Default)]
struct Time {
    /// Its own, or the sum of those of its children.
    nanos: u64,
    /// Whether it, or all that it is the sum of, was measured.
    is_whole: bool,
}

impl<'g> Nesting<'g> {
    pub(super) fn new(graph: &'g ExecutionGraph) -> Self {
        let n_nodes = graph.num_nodes();
        let mut parents = vec![NONE; n_nodes];
        let mut starts = vec![0; n_nodes + 1];
        let mut nested = Vec::new();
        for edge in graph.edges() {
            let (src, dst) = (edge.src.0, edge.dst.0);
            let nests =
                matches!(edge.edge_type, EdgeType::Contains | EdgeType::Launches | EdgeType::Calls);
            // Points only order what is shown.
            let is_shown = !graph.is_point(edge.dst);
            if nests && is_shown && src != dst && parents[dst as usize] == NONE {
                parents[dst as usize] = src;
                starts[src as usize + 1] += 1;
                nested.push(dst);
            }
        }
        for i in 0..n_nodes {
            starts[i + 1] += starts[i];
        }
        let mut free = starts.clone();
        let mut children = vec![0; nested.len()];
        for child in nested {
            let next = &mut free[parents[child as usize] as usize];
            children[*next as usize] = child;
            *next += 1;
        }
        let is_root = |&i: &u32| parents[i as usize] == NONE && !graph.is_point(ExecutionNodeId(i));
        let roots = (0..n_nodes as u32).filter(is_root).collect();
        let (inside, times) = (vec![0; n_nodes], vec![Time::default(); n_nodes]);
        let order = Vec::with_capacity(n_nodes);
        let mut nesting = Self { graph, parents, starts, children, roots, order, inside, times };
        nesting.put_in_order();
        nesting.sum_up();
        nesting
    }

    /// No recursion: a graph may be deeper than the stack.
    fn put_in_order(&mut self) {
        let mut todo: Vec<u32> = self.roots.iter().rev().copied().collect();
        while let Some(node) = todo.pop() {
            self.order.push(node);
            todo.extend(self.children(node).iter().rev());
        }
    }

    fn sum_up(&mut self) {
        for at in (0..self.order.len()).rev() {
            let node = self.order[at];
            let children = self.children(node);
            let mut inside = 0;
            let mut sum = Time { nanos: 0, is_whole: !children.is_empty() };
            for &child in children {
                inside += 1 + self.inside[child as usize];
                let Time { nanos, is_whole } = self.times[child as usize];
                sum.nanos = sum.nanos.saturating_add(nanos);
                sum.is_whole &= is_whole;
            }
            self.inside[node as usize] = inside;
            self.times[node as usize] = match self.own_time(node) {
                Some(nanos) => Time { nanos, is_whole: true },
                None => sum,
            };
        }
    }

    /// The number of nodes that a tree shows.
    pub(super) fn n_shown(&self) -> u64 {
        let is_shown = |&i: &u32| !self.graph.is_point(ExecutionNodeId(i));
        (0..self.parents.len() as u32).filter(is_shown).count() as u64
    }

    pub(super) fn n_nodes(&self) -> u64 {
        self.parents.len() as u64
    }

    pub(super) fn node(&self, node: u32) -> ExecutionNode {
        self.graph.node(ExecutionNodeId(node)).expect("its number was taken from the graph")
    }

    /// The node's own time, if it was measured.
    pub(super) fn own_time(&self, node: u32) -> Option<u64> {
        match self.node(node) {
            ExecutionNode::AsyncTask { total_poll_ns, .. } => Some(total_poll_ns),
            _ => self.graph.timing_ns(ExecutionNodeId(node)),
        }
    }

    /// The number of a transformer layer; `None` of other nodes.
    pub(super) fn layer(&self, node: u32) -> Option<u32> {
        match self.node(node) {
            ExecutionNode::Layer { index } => Some(index),
            _ => None,
        }
    }

    pub(super) fn children(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.children[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    pub(super) fn parent(&self, node: u32) -> Option<u32> {
        Some(self.parents[node as usize]).filter(|&parent| parent != NONE)
    }

    /// The nodes that lie inside no other.
    pub(super) fn roots(&self) -> &[u32] {
        &self.roots
    }

    /// All nodes that a tree can show, parents first.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// The number of nodes below this one.
    pub(super) fn inside(&self, node: u32) -> u64 {
        self.inside[node as usize].into()
    }

    /// The node's own measured time or, if it has none, the sum of its children's; `None` unless all
    /// of them have one.
    pub(super) fn time(&self, node: u32) -> Option<u64> {
        let Time { nanos, is_whole } = self.times[node as usize];
        is_whole.then_some(nanos)
    }

    /// The same, counting children without a known time as 0: a lower bound.
    pub(super) fn known_time(&self, node: u32) -> u64 {
        self.times[node as usize].nanos
    }
}
