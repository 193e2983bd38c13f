//! The execution graph: which layer contains which brick, which brick launched which kernel, and what
//! had to wait for what.
//!
//! A graph is filled by hand (the `graph_*` calls of `BrickProfiler`, or
//! the methods here), or made from a recorded pass by
//! [`Profile::execution_graph`](crate::Profile::execution_graph).

mod critical_path_text;
mod dot;
mod nesting;
mod node;
mod ptx;
mod schedule;
mod store;
mod transfer;
mod tree;
#[cfg(feature = "presentar-tui")]
mod tui;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize, Serializer};

#[doc(hidden)]
pub use self::critical_path_text::path_table;
pub use self::critical_path_text::{PathRow, PathSummary, SlackRow, critical_path, path_summary};
pub use self::dot::DotOptions;
#[doc(hidden)]
pub use self::node::gpu_kernel;
pub use self::node::{
    DeviceLaunch, EdgeType, ExecutionEdge, ExecutionNode, ExecutionNodeId, HostLaunch,
    TransferDirection,
};
pub use self::ptx::{PtxName, PtxRegistry, PtxSource, Registered};
pub use self::schedule::{Cycle, Schedule, Slack, Step, WhatIf};
pub use self::store::NodeTime;
use self::store::{Index, RowKind, Store};
pub use self::transfer::PingPong;
pub use self::tree::TreeOptions;
#[doc(hidden)]
pub use self::tree::launch as launch_text;

/// What ran, and how the parts are connected.
///
/// ```
/// use brickscope::{BrickId, ExecutionGraph, ExecutionNode};
///
/// let mut graph = ExecutionGraph::new();
/// graph.push_scope(ExecutionNode::Layer { index: 0 });
/// graph.push_scope(ExecutionNode::Brick {
///     id: BrickId::QkvProjection,
///     timing_ns: 200_000,
///     elements: 4096,
/// });
/// graph.record_kernel_launch("batched_q4k_gemv", 0xDEAD_BEEF, (32, 1, 1), (256, 1, 1), 4096);
/// graph.pop_scope();
/// graph.pop_scope();
/// assert_eq!(
///     graph.to_ascii_tree(),
///     "Layer 0\n\
///      └── QkvProjection  200.0µs (4096 elem)\n    \
///          └── batched_q4k_gemv  <<<32,256,1>>> smem=4096B"
/// );
/// ```
#[derive(Clone, Default, Deserialize)]
#[serde(try_from = "Stored")]
pub struct ExecutionGraph {
    store: Store,
    /// Made on first use, and dropped at the next change.
    index: OnceLock<Index>,
    scopes: Vec<ExecutionNodeId>,
    /// The last node added to each scope.
    last_in_scope: Vec<Option<ExecutionNodeId>>,
}

/// A graph as in a file, not yet checked.
#[derive(Serialize, Deserialize)]
struct Stored {
    nodes: Vec<ExecutionNode>,
    edges: Vec<ExecutionEdge>,
    /// Node, start, duration and lane, where known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    times: Vec<(u32, u64, u64, u16)>,
}

impl TryFrom<Stored> for ExecutionGraph {
    type Error = String;

    fn try_from(Stored { nodes, edges, times }: Stored) -> Result<Self, String> {
        let n_nodes = nodes.len();
        let is_there = |node: u32| (node as usize) < n_nodes;
        let mut graph = Self::new();
        for node in &nodes {
            graph.store.add_node(node);
        }
        for (index, edge) in edges.iter().enumerate() {
            if let Some(end) = [edge.src, edge.dst].iter().find(|id| !is_there(id.0)) {
                return Err(format!(
                    "edge {index} names node {}, but the graph has {n_nodes} nodes",
                    end.0
                ));
            }
            graph.store.add_edge(edge);
        }
        for (index, &(node, start_ns, duration_ns, lane)) in times.iter().enumerate() {
            if !is_there(node) {
                return Err(format!(
                    "time {index} names node {node}, but the graph has {n_nodes} nodes"
                ));
            }
            graph.store.set_time(node as usize, NodeTime { start_ns, duration_ns, lane });
        }
        Ok(graph)
    }
}

impl Serialize for ExecutionGraph {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let times = (0..self.num_nodes()).filter_map(|node| {
            let NodeTime { start_ns, duration_ns, lane } = self.store.row(node).time()?;
            Some((node as u32, start_ns, duration_ns, lane))
        });
        let (nodes, edges) = (self.nodes().collect(), self.edges().collect());
        Stored { nodes, edges, times: times.collect() }.serialize(to)
    }
}

impl PartialEq for ExecutionGraph {
    fn eq(&self, other: &Self) -> bool {
        let times = |graph: &Self| -> Vec<_> {
            (0..graph.num_nodes()).map(|node| graph.store.row(node).time()).collect()
        };
        self.nodes().eq(other.nodes())
            && self.edges().eq(other.edges())
            && times(self) == times(other)
            && self.scopes == other.scopes
    }
}

impl fmt::Debug for ExecutionGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionGraph")
            .field("nodes", &self.num_nodes())
            .field("edges", &self.num_edges())
            .field("open_scopes", &self.scopes.len())
            .finish_non_exhaustive()
    }
}

impl ExecutionGraph {
    /// An empty graph.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node that is not connected to anything.
    ///
    /// # Panics
    ///
    /// If the graph has 2³¹ nodes.
    pub fn add_node(&mut self, node: ExecutionNode) -> ExecutionNodeId {
        self.index.take();
        ExecutionNodeId(self.store.add_node(&node))
    }

    /// Adds a point between spans, which orders them but isn't shown.
    pub(crate) fn add_point(&mut self, name: &str) -> ExecutionNodeId {
        let name = name.to_owned();
        let id = self.add_node(ExecutionNode::Function { name, file: None, line: None });
        self.store.mark_as_point(id.0 as usize);
        id
    }

    /// Whether a node is such a point.
    pub(crate) fn is_point(&self, node: ExecutionNodeId) -> bool {
        self.store.row(node.0 as usize).is_point()
    }

    /// Sets when and where a node ran, replacing the node's own time.
    ///
    /// # Panics
    ///
    /// If it isn't a node of this graph.
    pub fn set_time(&mut self, node: ExecutionNodeId, time: NodeTime) {
        assert!(
            (node.0 as usize) < self.num_nodes(),
            "node {} has a time, but the graph has {} nodes",
            node.0,
            self.num_nodes()
        );
        self.store.set_time(node.0 as usize, time);
    }

    /// How long a node took, in nanoseconds, if that was measured. The time of layers and functions is
    /// available only here.
    #[must_use]
    pub fn timing_ns(&self, node: ExecutionNodeId) -> Option<u64> {
        let index = node.0 as usize;
        if index < self.num_nodes() { self.store.row(index).duration() } else { None }
    }

    /// When and where a node ran, if it was recorded.
    #[must_use]
    pub fn time(&self, node: ExecutionNodeId) -> Option<NodeTime> {
        let index = node.0 as usize;
        if index < self.num_nodes() { self.store.row(index).time() } else { None }
    }

    /// Adds an edge of weight 1.0.
    ///
    /// # Panics
    ///
    /// If one of its ends is not a node of this graph.
    pub fn add_edge(&mut self, src: ExecutionNodeId, dst: ExecutionNodeId, edge_type: EdgeType) {
        self.add_weighted_edge(src, dst, edge_type, 1.0);
    }

    /// Adds an edge.
    ///
    /// # Panics
    ///
    /// If one of its ends is not a node of this graph.
    pub fn add_weighted_edge(
        &mut self,
        src: ExecutionNodeId,
        dst: ExecutionNodeId,
        edge_type: EdgeType,
        weight: f32,
    ) {
        for end in [src, dst] {
            assert!(
                (end.0 as usize) < self.num_nodes(),
                "an edge names node {}, but the graph has {} nodes",
                end.0,
                self.num_nodes()
            );
        }
        self.index.take();
        self.store.add_edge(&ExecutionEdge { src, dst, edge_type, weight });
    }

    /// Adds a node to the open scope and opens it as a scope of its own.
    pub fn push_scope(&mut self, node: ExecutionNode) -> ExecutionNodeId {
        let id = self.add_node_in_scope(node);
        self.scopes.push(id);
        self.last_in_scope.push(None);
        id
    }

    /// Closes the innermost scope; `None` if none is open.
    pub fn pop_scope(&mut self) -> Option<ExecutionNodeId> {
        self.last_in_scope.pop();
        self.scopes.pop()
    }

    /// The innermost open scope.
    #[must_use]
    pub fn current_scope(&self) -> Option<ExecutionNodeId> {
        self.scopes.last().copied()
    }

    /// Adds a node to the open scope, if there is one.
    pub fn add_node_in_scope(&mut self, node: ExecutionNode) -> ExecutionNodeId {
        let id = self.add_node(node);
        if let Some(scope) = self.current_scope() {
            self.add_edge(scope, id, EdgeType::Contains);
            self.last_in_scope.last_mut().into_iter().for_each(|last| *last = Some(id));
        }
        id
    }

    /// Adds a kernel that the open scope launches.
    pub fn record_kernel_launch(
        &mut self,
        name: &str,
        ptx_hash: u64,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared_mem: u32,
    ) -> ExecutionNodeId {
        let kernel = gpu_kernel(name, ptx_hash, grid, block, shared_mem);
        self.add_kernel(self.current_scope(), kernel)
    }

    /// Adds a kernel that the open scope launches, with its measurements: nanoseconds, FLOPs per byte, and
    /// TFLOP/s.
    #[expect(clippy::too_many_arguments, reason = "the signature that existing callers use")]
    pub fn record_kernel_launch_with_metrics(
        &mut self,
        name: &str,
        ptx_hash: u64,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared_mem: u32,
        timing_ns: u64,
        arithmetic_intensity: f32,
        achieved_tflops: f32,
    ) -> ExecutionNodeId {
        let mut kernel = gpu_kernel(name, ptx_hash, grid, block, shared_mem);
        if let ExecutionNode::Kernel {
            timing_ns: timing,
            arithmetic_intensity: intensity,
            achieved_tflops: tflops,
            ..
        } = &mut kernel
        {
            *timing = Some(timing_ns);
            *intensity = Some(arithmetic_intensity);
            *tflops = Some(achieved_tflops);
        }
        self.add_kernel(self.current_scope(), kernel)
    }

    /// The node that launches a kernel recorded now: the innermost scope if that is a brick, else the
    /// brick last recorded in that scope, else the scope itself.
    #[doc(hidden)]
    pub fn launcher(&self) -> Option<ExecutionNodeId> {
        let scope = self.current_scope()?;
        if self.store.row(scope.0 as usize).is_brick() {
            return Some(scope);
        }
        let last = self.last_in_scope.last().copied().flatten();
        last.filter(|last| self.store.row(last.0 as usize).is_brick()).or(Some(scope))
    }

    /// Adds a kernel launched by `launcher`.
    #[doc(hidden)]
    pub fn add_kernel(
        &mut self,
        launcher: Option<ExecutionNodeId>,
        kernel: ExecutionNode,
    ) -> ExecutionNodeId {
        let id = self.add_node(kernel);
        if let Some(launcher) = launcher {
            self.add_edge(launcher, id, EdgeType::Launches);
            if self.current_scope() == Some(launcher) {
                self.last_in_scope.last_mut().into_iter().for_each(|last| *last = Some(id));
            }
        }
        id
    }

    /// Adds a copy of `bytes` from `src` to `dst`, which took `timing_ns` if that was measured.
    pub fn record_transfer(
        &mut self,
        src: &str,
        dst: &str,
        bytes: u64,
        direction: TransferDirection,
        timing_ns: Option<u64>,
    ) -> ExecutionNodeId {
        self.add_node_in_scope(ExecutionNode::Transfer {
            src: src.to_owned(),
            dst: dst.to_owned(),
            bytes,
            direction,
            timing_ns,
        })
    }

    /// Adds all nodes and edges of another graph after those of this one, and returns the new id of its first node. Its
    /// scopes stay its own.
    ///
    /// # Panics
    ///
    /// If both have 2³¹ nodes together.
    pub fn append(&mut self, other: &Self) -> ExecutionNodeId {
        let first = self.num_nodes() as u32;
        let moved = |id: ExecutionNodeId| ExecutionNodeId(id.0 + first);
        for (index, node) in (0..).zip(other.nodes()) {
            let (old, id) = (ExecutionNodeId(index), self.add_node(node));
            if other.is_point(old) {
                self.store.mark_as_point(id.0 as usize);
            }
            if let Some(time) = other.time(old) {
                self.set_time(id, time);
            }
        }
        for edge in other.edges() {
            let ExecutionEdge { src, dst, edge_type, weight } = edge;
            self.add_weighted_edge(moved(src), moved(dst), edge_type, weight);
        }
        ExecutionNodeId(first)
    }

    /// Records that `to` waits for `from`.
    pub fn add_dependency(&mut self, from: ExecutionNodeId, to: ExecutionNodeId) {
        self.add_edge(from, to, EdgeType::DependsOn);
    }

    /// A copy of a node, since nodes are stored in a denser form.
    #[must_use]
    pub fn node(&self, id: ExecutionNodeId) -> Option<ExecutionNode> {
        self.store.node(id.0 as usize)
    }

    /// The first node of this name.
    #[must_use]
    pub fn node_by_name(&self, name: &str) -> Option<(ExecutionNodeId, ExecutionNode)> {
        let id = self.nodes_by_name(name).next()?;
        Some((id, self.node(id)?))
    }

    /// All nodes of this name, in the order in which they were added.
    pub fn nodes_by_name(&self, name: &str) -> impl Iterator<Item = ExecutionNodeId> {
        let named = (0..self.num_nodes()).filter(move |&node| self.store.is_named(node, name));
        named.map(|node| ExecutionNodeId(node as u32))
    }

    /// All nodes, in the order in which they were added.
    pub fn nodes(&self) -> impl Iterator<Item = ExecutionNode> {
        (0..self.num_nodes()).filter_map(|node| self.store.node(node))
    }

    /// All edges, in the order in which they were added.
    pub fn edges(&self) -> impl Iterator<Item = ExecutionEdge> {
        (0..self.num_edges()).map(|edge| self.store.edge(edge))
    }

    /// The edges that begin at a node; none if the node doesn't exist. The first call after a change visits
    /// every edge twice; later ones visit only these edges.
    pub fn outgoing_edges(&self, node: ExecutionNodeId) -> impl Iterator<Item = ExecutionEdge> {
        self.index().outgoing(node.0 as usize).iter().map(|&edge| self.store.edge(edge as usize))
    }

    /// The edges that end at a node, likewise.
    pub fn incoming_edges(&self, node: ExecutionNodeId) -> impl Iterator<Item = ExecutionEdge> {
        self.index().incoming(node.0 as usize).iter().map(|&edge| self.store.edge(edge as usize))
    }

    /// The node that contains, launches or calls a node; the first, if there are several.
    #[must_use]
    pub fn parent(&self, node: ExecutionNodeId) -> Option<ExecutionNodeId> {
        let incoming = self.index().incoming(node.0 as usize).iter();
        let mut nesting = incoming.filter(|&&edge| self.store.nests(edge as usize));
        let &edge = nesting.find(|&&edge| self.store.ends()[edge as usize].0 != node.0)?;
        Some(ExecutionNodeId(self.store.ends()[edge as usize].0))
    }

    /// For each node the nearest brick around it; none for scopes in a cycle.
    pub(crate) fn bricks_around(&self) -> Vec<Option<ExecutionNodeId>> {
        let mut around: Vec<Option<ExecutionNodeId>> = vec![None; self.num_nodes()];
        let mut is_known = vec![false; self.num_nodes()];
        // Nodes with the same brick around them, innermost first.
        let mut alike = Vec::new();
        for node in 0..self.num_nodes() {
            let mut at = node;
            let mut brick = None;
            while !std::mem::replace(&mut is_known[at], true) {
                alike.push(at);
                match self.parent(ExecutionNodeId(at as u32)) {
                    Some(parent) if self.store.row(parent.0 as usize).is_brick() => {
                        brick = Some(parent);
                        break;
                    }
                    Some(parent) => {
                        at = parent.0 as usize;
                        brick = around[at];
                    }
                    None => break,
                }
            }
            alike.drain(..).for_each(|node| around[node] = brick);
        }
        around
    }

    /// For each node, whether something inside it, however deep, took time.
    pub(crate) fn are_around_time(&self) -> Vec<bool> {
        let mut is_around = vec![false; self.num_nodes()];
        for node in 0..self.num_nodes() {
            if self.store.row(node).duration().is_none_or(|nanos| nanos == 0) {
                continue;
            }
            let mut at = node;
            while let Some(parent) = self.parent(ExecutionNodeId(at as u32)) {
                at = parent.0 as usize;
                if std::mem::replace(&mut is_around[at], true) {
                    break;
                }
            }
        }
        is_around
    }

    /// The nodes that a node contains, launches or calls, in the order in which they were added.
    pub fn inside(&self, node: ExecutionNodeId) -> impl Iterator<Item = ExecutionNodeId> {
        let outgoing = self.index().outgoing(node.0 as usize).iter();
        let nesting = outgoing.filter(|&&edge| self.store.nests(edge as usize));
        nesting
            .map(|&edge| ExecutionNodeId(self.store.ends()[edge as usize].1))
            .filter(move |&id| id != node)
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::new(&self.store))
    }

    /// The number of nodes.
    #[must_use]
    pub fn num_nodes(&self) -> usize {
        self.store.n_nodes()
    }

    /// The number of edges.
    #[must_use]
    pub fn num_edges(&self) -> usize {
        self.store.n_edges()
    }

    /// Heap memory of the graph in bytes, including the index of its edges if it was made.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.store.bytes() + self.index.get().map_or(0, Index::bytes)
    }

    /// All kernels.
    pub fn kernel_nodes(&self) -> impl Iterator<Item = (ExecutionNodeId, ExecutionNode)> {
        let is_kernel = |&node: &usize| self.store.row(node).kind == RowKind::Kernel;
        (0..self.num_nodes()).filter(is_kernel).filter_map(|node| {
            let id = ExecutionNodeId(node as u32);
            Some((id, self.node(id)?))
        })
    }

    /// The brick that took longest among those that launched a kernel, with its nanoseconds.
    #[must_use]
    pub fn slowest_kernel(&self) -> Option<(ExecutionNodeId, ExecutionNode, u64)> {
        let is_kernel = |node: u32| self.store.row(node as usize).kind == RowKind::Kernel;
        let launches = self.store.ends().iter().filter(|&&(_, dst)| is_kernel(dst));
        let timed = launches.filter_map(|&(src, _)| {
            let row = self.store.row(src as usize);
            row.duration().filter(|_| row.is_brick()).map(|timing_ns| (src, timing_ns))
        });
        // The first of equal ones, whatever order an iterator prefers.
        let (node, timing_ns) =
            timed.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        Some((ExecutionNodeId(node), self.store.node(node as usize)?, timing_ns))
    }

    /// How far each kernel is below the roof of a machine with `peak_tflops` TFLOP/s and `peak_gb_s` GB/s:
    /// 0.0 on the roof, towards 1.0 far below it. Kernels without rates
    /// ([`record_kernel_launch_with_metrics`](Self::record_kernel_launch_with_metrics)) are left out; so
    /// are those whose roof is 0, and rates that are NaN.
    ///
    /// The roof is min(peak FLOP/s, intensity × peak bytes/s): Williams, Waterman, Patterson,
    /// "Roofline", 2009. A kernel above its roof has distance 0.0; that is an error of the peaks or of
    /// the work, which the report's table shows.
    #[must_use]
    pub fn roofline_distance(
        &self,
        peak_tflops: f32,
        peak_gb_s: f32,
    ) -> BTreeMap<ExecutionNodeId, f32> {
        let kernels = (0..self.num_nodes()).map(|node| (node, self.store.row(node)));
        let kernels = kernels.filter(|(_, row)| row.kind == RowKind::Kernel);
        kernels
            .filter_map(|(node, row)| {
                let (Some(intensity), Some(attained)) = row.rates() else { return None };
                let roof = peak_tflops.min(intensity * peak_gb_s / 1000.0);
                let distance = 1.0 - (attained / roof).min(1.0);
                // `min` ignores NaN.
                let are_numbers = !intensity.is_nan() && !attained.is_nan();
                let is_told = are_numbers && roof > 0.0 && distance >= 0.0;
                is_told.then_some((ExecutionNodeId(node as u32), distance))
            })
            .collect()
    }

    /// Removes all nodes, edges and open scopes.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether every opened scope has been closed.
    #[must_use]
    pub fn is_scope_balanced(&self) -> bool {
        self.scopes.is_empty()
    }

    /// The nodes with their ids.
    pub(crate) fn with_ids(&self) -> impl Iterator<Item = (ExecutionNodeId, ExecutionNode)> {
        (0..).map(ExecutionNodeId).zip(self.nodes())
    }
}
