//! The execution graph that a caller builds by hand, and the sources of kernels.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{
    BrickId, ExecutionGraph, ExecutionNode, ExecutionNodeId, PtxRegistry, Registered,
    TransferDirection,
};

use super::BrickProfiler;
use crate::sync::lock_unmodelled as lock;

/// Builds a profiler's execution graph, and registers the sources of kernels. Made by [`BrickProfiler::graph`].
///
/// The graph is off by default. What was recorded by timers has a graph of its own, which needs none of this:
/// [`Profile::execution_graph`](crate::Profile::execution_graph).
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

/// # Building the graph
///
/// These return `None`, and change nothing, while the graph or the profiler is off.
impl GraphRecorder<'_> {
    /// Turns the graph on.
    pub fn enable(self) {
        self.0.graph_enabled.store(true, Relaxed);
    }

    /// Turns the graph off. What was recorded stays.
    pub fn disable(self) {
        self.0.graph_enabled.store(false, Relaxed);
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
        self.change(|graph| graph.record_transfer(src, dst, bytes, direction, timing_ns))
    }

    fn change<R>(self, change: impl FnOnce(&mut ExecutionGraph) -> R) -> Option<R> {
        let on = self.is_enabled() && self.0.is_enabled();
        on.then(|| change(Arc::make_mut(&mut lock(&self.0.graph))))
    }
}

/// # The graph and the sources
impl GraphRecorder<'_> {
    /// The graph as it is now.
    #[must_use]
    pub fn current(self) -> Arc<ExecutionGraph> {
        Arc::clone(&lock(&self.0.graph))
    }

    /// Forgets the graph and its open scopes.
    pub fn clear(self) {
        *lock(&self.0.graph) = Arc::default();
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
