//! The execution graph, recorded or built by hand, and the sources of kernels.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{
    BrickId, ExecutionGraph, ExecutionNode, ExecutionNodeId, PtxRegistry, Registered,
    TransferDirection,
};

use super::BrickProfiler;
use crate::sync::lock_unmodelled as lock;

/// Records a profiler's execution graph, and registers the sources of kernels. Made by [`BrickProfiler::graph`].
///
/// The graph is off by default. While it is on, passes, layers, bricks and kernels that timers record are nodes of it.
/// A caller who records layers, bricks or kernels by hand gets these instead, as they were recorded.
/// [`Profile::execution_graph`](crate::Profile::execution_graph) has the graph of a single pass, and needs none of this.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, ExecutionNode};
///
/// let profiler = BrickProfiler::enabled();
/// let graph = profiler.graph();
/// graph.enable();
/// graph.push_scope(ExecutionNode::Layer { index: 0 });
/// graph.record_brick(BrickId::QkvProjection, 200_000, 4096);
/// graph.pop_scope();
/// println!("{}", graph.current().to_ascii_tree());
/// # assert_eq!(graph.current().num_nodes(), 2);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct GraphRecorder<'p>(pub(super) &'p BrickProfiler);

/// When a profiler's graph was on, and when copies were added to it by hand: readings of the clock.
#[derive(Debug, Default)]
pub(super) struct GraphTimes {
    /// From and until; `u64::MAX` while it is on.
    spells: Vec<(u64, u64)>,
    /// In the order of the nodes.
    copies: Vec<u64>,
}

/// # Building the graph by hand
///
/// These return `None`, and change nothing, while the graph is off. They work whether or not the profiler is on.
impl GraphRecorder<'_> {
    /// Turns the graph on.
    pub fn enable(self) {
        let mut times = lock(&self.0.graph_times);
        if !self.0.graph_enabled.swap(true, Relaxed) {
            times.spells.push((self.0.recorder.clock().now(), u64::MAX));
        }
    }

    /// Turns the graph off. What was recorded stays.
    pub fn disable(self) {
        let mut times = lock(&self.0.graph_times);
        if self.0.graph_enabled.swap(false, Relaxed)
            && let Some((_, until)) = times.spells.last_mut()
        {
            *until = self.0.recorder.clock().now();
        }
    }

    /// Whether the graph is on.
    #[must_use]
    pub fn is_enabled(self) -> bool {
        self.0.graph_enabled.load(Relaxed)
    }

    /// Adds a node to the open scope and opens it as the innermost scope.
    pub fn push_scope(self, node: ExecutionNode) -> Option<ExecutionNodeId> {
        self.change(|graph| graph.push_scope(node))
    }

    /// Closes the innermost scope. Also `None` if no scope is open.
    pub fn pop_scope(self) -> Option<ExecutionNodeId> {
        self.change(ExecutionGraph::pop_scope).flatten()
    }

    /// Adds a brick to the open scope.
    pub fn record_brick(
        self,
        brick: BrickId,
        timing_ns: u64,
        elements: u64,
    ) -> Option<ExecutionNodeId> {
        self.change(|graph| {
            graph.add_node_in_scope(ExecutionNode::Brick { id: brick, timing_ns, elements })
        })
    }

    /// Adds a kernel launch. The launcher is the innermost scope if that is a brick, else the brick last recorded
    /// in that scope, else the scope.
    pub fn record_kernel(
        self,
        name: &str,
        ptx_hash: u64,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared_mem: u32,
    ) -> Option<ExecutionNodeId> {
        self.change(|graph| {
            let kernel =
                brickscope_profile::graph::gpu_kernel(name, ptx_hash, grid, block, shared_mem);
            let launcher = graph.launcher();
            graph.add_kernel(launcher, kernel)
        })
    }

    /// Adds a copy of `bytes` bytes from `src` to `dst` to the open scope, with its time if that was measured.
    pub fn record_transfer(
        self,
        src: &str,
        dst: &str,
        bytes: u64,
        direction: TransferDirection,
        timing_ns: Option<u64>,
    ) -> Option<ExecutionNodeId> {
        self.change(|graph| {
            lock(&self.0.graph_times).copies.push(self.0.recorder.clock().now());
            graph.record_transfer(src, dst, bytes, direction, timing_ns)
        })
    }

    fn change<R>(self, change: impl FnOnce(&mut ExecutionGraph) -> R) -> Option<R> {
        self.is_enabled().then(|| change(Arc::make_mut(&mut lock(&self.0.graph))))
    }
}

/// # The graph and the sources
impl GraphRecorder<'_> {
    /// The graph as it is now: the nodes that were added by hand, or, if these are copies at most, what timers recorded
    /// while the graph was on, and the copies.
    ///
    /// Passes follow each other. Where a device timed passes, they are there as the device saw them, and the passes of the
    /// host, which wait for it, are not. The first pass depends on the copies that were added before it.
    #[must_use]
    pub fn current(self) -> Arc<ExecutionGraph> {
        let by_hand = self.by_hand();
        if !by_hand.is_scope_balanced() || !by_hand.nodes().all(|node| node.is_transfer()) {
            return by_hand;
        }
        let GraphTimes { spells, copies } = {
            let times = lock(&self.0.graph_times);
            GraphTimes { spells: times.spells.clone(), copies: times.copies.clone() }
        };
        if spells.is_empty() {
            return by_hand;
        }
        let is_on = |at: u64| spells.iter().any(|&(from, until)| from <= at && at < until);
        let mut graph = self.0.recorded().recorded_graph(is_on);
        if graph.num_nodes() == 0 {
            return by_hand;
        }
        let begin_of = |id| Some((graph.time(id)?.start_ns, id));
        let first = (0..graph.num_nodes() as u32).map(ExecutionNodeId).filter_map(begin_of).min();
        let added = graph.append(&by_hand);
        if let Some((begin, first)) = first {
            for (id, _) in (added.0..).zip(copies).filter(|&(_, at)| at <= begin) {
                graph.add_dependency(ExecutionNodeId(id), first);
            }
        }
        Arc::new(graph)
    }

    /// The nodes that were added by hand.
    pub(super) fn by_hand(self) -> Arc<ExecutionGraph> {
        Arc::clone(&lock(&self.0.graph))
    }

    /// Forgets the graph and its open scopes. What timers recorded up to now is in the profile, but no longer in the graph.
    pub fn clear(self) {
        *lock(&self.0.graph) = Arc::default();
        let mut times = lock(&self.0.graph_times);
        *times = GraphTimes::default();
        if self.is_enabled() {
            times.spells.push((self.0.recorder.clock().now(), u64::MAX));
        }
    }

    /// Registers the source of a kernel, whether or not the graph or the profiler is on. The profile then has the
    /// source, and kernels of this name or hash lead to it. [`BrickProfiler::reset`] keeps it.
    pub fn register_ptx(self, name: &str, ptx: &str, path: Option<&Path>) -> Registered {
        lock(&self.0.ptx).register(name, ptx, path)
    }

    /// The sources that were registered.
    #[must_use]
    pub fn ptx_registry(self) -> PtxRegistry {
        lock(&self.0.ptx).clone()
    }
}
