//! The execution graph: which layer contains which brick, and which brick launched which kernel.
//!
//! A graph is filled by hand (the `graph_*` calls of [`BrickProfiler`](crate::BrickProfiler), or
//! the methods here), or made from a recorded pass by
//! [`Profile::execution_graph`](crate::Profile::execution_graph).

mod ptx;

use serde::{Deserialize, Serialize};

pub use self::ptx::{PtxName, PtxRegistry, PtxSource, Registered};
use crate::brick::BrickId;

/// A node's place in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExecutionNodeId(pub u32);

/// A thing that ran, or a group of such things.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExecutionNode {
    /// A well-known brick.
    Brick {
        /// Which one.
        id: BrickId,
        /// How long it took, in nanoseconds.
        timing_ns: u64,
        /// Elements that it processed.
        elements: u64,
    },
    /// A brick with a name of its own.
    NamedBrick {
        /// Its name.
        name: String,
        /// How long it took, in nanoseconds.
        timing_ns: u64,
        /// Elements that it processed.
        elements: u64,
    },
    /// One launch of a kernel, or of a CPU routine.
    Kernel {
        /// Its name.
        name: String,
        /// [`PtxRegistry::hash_ptx`] of its source; 0 for a CPU routine.
        ptx_hash: u64,
        /// Blocks in the grid.
        grid: (u32, u32, u32),
        /// Threads in a block.
        block: (u32, u32, u32),
        /// Bytes of shared memory.
        shared_mem: u32,
        /// How long it took, in nanoseconds, if that was measured.
        timing_ns: Option<u64>,
        /// FLOPs for each byte that it moves, if known.
        arithmetic_intensity: Option<f32>,
        /// TFLOP/s, if known.
        achieved_tflops: Option<f32>,
        /// Set for a routine that ran on the CPU, where a grid means nothing.
        host: Option<HostLaunch>,
    },
    /// A copy of data between memories.
    Transfer {
        /// From where.
        src: String,
        /// To where.
        dst: String,
        /// Bytes copied.
        bytes: u64,
        /// Between which memories.
        direction: TransferDirection,
        /// How long it took, in nanoseconds, if that was measured.
        timing_ns: Option<u64>,
    },
    /// A function of the program.
    Function {
        /// Its name.
        name: String,
        /// The file that defines it.
        file: Option<String>,
        /// The line in that file.
        line: Option<u32>,
    },
    /// A transformer layer.
    Layer {
        /// Which one, from 0.
        index: u32,
    },
    /// An asynchronous task.
    AsyncTask {
        /// Its name.
        name: String,
        /// How often it was polled.
        poll_count: u64,
        /// How often that returned `Pending`.
        yield_count: u64,
        /// Nanoseconds spent in polls.
        total_poll_ns: u64,
    },
}

/// How a routine ran on the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostLaunch {
    /// What it worked on, such as `768×2048 q8_0`; may be empty.
    pub shape: String,
    /// On how many threads.
    pub threads: u32,
}

impl ExecutionNode {
    /// The name to show.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Brick { id, .. } => id.name().to_owned(),
            Self::NamedBrick { name, .. }
            | Self::Kernel { name, .. }
            | Self::Function { name, .. }
            | Self::AsyncTask { name, .. } => name.clone(),
            Self::Layer { index } => format!("Layer {index}"),
            Self::Transfer { src, dst, direction, .. } => {
                format!("{}: {src} → {dst}", direction.name())
            }
        }
    }

    /// Whether this is a kernel.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel { .. })
    }

    /// Whether this is a brick, well known or not.
    #[must_use]
    pub fn is_brick(&self) -> bool {
        matches!(self, Self::Brick { .. } | Self::NamedBrick { .. })
    }

    /// Whether this is a transfer.
    #[must_use]
    pub fn is_transfer(&self) -> bool {
        matches!(self, Self::Transfer { .. })
    }

    /// How long it took, in nanoseconds, where that is known.
    #[must_use]
    pub fn timing_ns(&self) -> Option<u64> {
        match self {
            Self::Brick { timing_ns, .. } | Self::NamedBrick { timing_ns, .. } => Some(*timing_ns),
            Self::Kernel { timing_ns, .. } | Self::Transfer { timing_ns, .. } => *timing_ns,
            Self::Function { .. } | Self::Layer { .. } | Self::AsyncTask { .. } => None,
        }
    }

    /// The hash of a kernel's PTX source.
    #[must_use]
    pub fn ptx_hash(&self) -> Option<u64> {
        match self {
            Self::Kernel { ptx_hash, host: None, .. } => Some(*ptx_hash),
            _ => None,
        }
    }
}

/// What an edge says of its two ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EdgeType {
    /// A function calls a function.
    Calls,
    /// A layer contains bricks.
    Contains,
    /// A brick launches a kernel.
    Launches,
    /// One comes after the other.
    Sequence,
    /// One waits for the other.
    DependsOn,
    /// Data moves from one to the other.
    Transfer {
        /// Bytes moved.
        bytes: u64,
        /// Between which memories.
        direction: TransferDirection,
    },
}

/// The memories between which data is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransferDirection {
    /// Host to device.
    H2D,
    /// Device to host.
    D2H,
    /// Device to device.
    D2D,
}

impl TransferDirection {
    /// The name in reports and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::H2D => "H2D",
            Self::D2H => "D2H",
            Self::D2D => "D2D",
        }
    }
}

/// An edge of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionEdge {
    /// Where it begins.
    pub src: ExecutionNodeId,
    /// Where it ends.
    pub dst: ExecutionNodeId,
    /// What it says.
    pub edge_type: EdgeType,
    /// How much it counts; 1.0 unless said otherwise.
    pub weight: f32,
}

/// What ran, and how it hangs together.
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct ExecutionGraph {
    nodes: Vec<ExecutionNode>,
    edges: Vec<ExecutionEdge>,
    #[serde(skip)]
    scopes: Vec<ExecutionNodeId>,
}

/// A graph as a file has it: nobody has looked at it yet.
#[derive(Deserialize)]
struct Stored {
    nodes: Vec<ExecutionNode>,
    edges: Vec<ExecutionEdge>,
}

impl TryFrom<Stored> for ExecutionGraph {
    type Error = String;

    fn try_from(Stored { nodes, edges }: Stored) -> Result<Self, String> {
        for (index, edge) in edges.iter().enumerate() {
            if let Some(end) = [edge.src, edge.dst].iter().find(|id| id.0 as usize >= nodes.len()) {
                let n_nodes = nodes.len();
                return Err(format!(
                    "edge {index} names node {}, but the graph has {n_nodes} nodes",
                    end.0
                ));
            }
        }
        Ok(Self { nodes, edges, scopes: Vec::new() })
    }
}

impl ExecutionGraph {
    /// A graph of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node that is not connected to anything.
    ///
    /// # Panics
    ///
    /// If the graph has 2³² nodes.
    pub fn add_node(&mut self, node: ExecutionNode) -> ExecutionNodeId {
        let id = u32::try_from(self.nodes.len()).expect("a graph has fewer than 2^32 nodes");
        self.nodes.push(node);
        ExecutionNodeId(id)
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
                (end.0 as usize) < self.nodes.len(),
                "an edge names node {}, but the graph has {} nodes",
                end.0,
                self.nodes.len()
            );
        }
        self.edges.push(ExecutionEdge { src, dst, edge_type, weight });
    }

    /// Adds a node to the open scope and opens it as a scope of its own.
    pub fn push_scope(&mut self, node: ExecutionNode) -> ExecutionNodeId {
        let id = self.add_node_in_scope(node);
        self.scopes.push(id);
        id
    }

    /// Closes the innermost scope; `None` if none is open.
    pub fn pop_scope(&mut self) -> Option<ExecutionNodeId> {
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

    /// Adds a kernel that the open scope launches, with what was measured of it: nanoseconds,
    /// FLOPs for each byte, and TFLOP/s.
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

    /// Who launches a kernel that is recorded now: the innermost scope if that is a brick, else the
    /// brick last recorded in that scope, else the scope itself.
    pub(crate) fn launcher(&self) -> Option<ExecutionNodeId> {
        let scope = self.current_scope()?;
        if self.nodes[scope.0 as usize].is_brick() {
            return Some(scope);
        }
        // The last edge out of the scope; only the kernels of its brick can have come since.
        let last = self.edges.iter().rev().find(|edge| edge.src == scope).map(|edge| edge.dst);
        last.filter(|last| self.nodes[last.0 as usize].is_brick()).or(Some(scope))
    }

    /// Adds a kernel launched by `launcher`.
    pub(crate) fn add_kernel(
        &mut self,
        launcher: Option<ExecutionNodeId>,
        kernel: ExecutionNode,
    ) -> ExecutionNodeId {
        let id = self.add_node(kernel);
        if let Some(launcher) = launcher {
            self.add_edge(launcher, id, EdgeType::Launches);
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

    /// Says that `to` waits for `from`.
    pub fn add_dependency(&mut self, from: ExecutionNodeId, to: ExecutionNodeId) {
        self.add_edge(from, to, EdgeType::DependsOn);
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: ExecutionNodeId) -> Option<&ExecutionNode> {
        self.nodes.get(id.0 as usize)
    }

    /// All nodes, in the order in which they were added.
    #[must_use]
    pub fn nodes(&self) -> &[ExecutionNode] {
        &self.nodes
    }

    /// All edges, in the order in which they were added.
    #[must_use]
    pub fn edges(&self) -> &[ExecutionEdge] {
        &self.edges
    }

    /// How many nodes there are.
    #[must_use]
    pub fn num_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many edges there are.
    #[must_use]
    pub fn num_edges(&self) -> usize {
        self.edges.len()
    }

    /// All kernels.
    pub fn kernel_nodes(&self) -> impl Iterator<Item = (ExecutionNodeId, &ExecutionNode)> {
        self.with_ids().filter(|(_, node)| node.is_kernel())
    }

    /// The brick that took longest among those that launched a kernel, with its nanoseconds.
    #[must_use]
    pub fn slowest_kernel(&self) -> Option<(ExecutionNodeId, &ExecutionNode, u64)> {
        let launches = self.edges.iter().filter(|edge| self.nodes[edge.dst.0 as usize].is_kernel());
        launches
            .filter_map(|edge| {
                let node = &self.nodes[edge.src.0 as usize];
                let timing = if node.is_brick() { node.timing_ns() } else { None };
                timing.map(|timing_ns| (edge.src, node, timing_ns))
            })
            // The first of equals, whatever order an iterator prefers.
            .reduce(|best, next| if next.2 > best.2 { next } else { best })
    }

    /// Forgets all nodes, edges and open scopes.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether every scope that was opened has been closed.
    #[must_use]
    pub fn is_scope_balanced(&self) -> bool {
        self.scopes.is_empty()
    }

    /// The nodes with their places.
    pub(crate) fn with_ids(&self) -> impl Iterator<Item = (ExecutionNodeId, &ExecutionNode)> {
        self.nodes.iter().enumerate().map(|(index, node)| (ExecutionNodeId(index as u32), node))
    }
}

/// A kernel on a device, of which nothing was measured yet.
pub(crate) fn gpu_kernel(
    name: &str,
    ptx_hash: u64,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    shared_mem: u32,
) -> ExecutionNode {
    ExecutionNode::Kernel {
        name: name.to_owned(),
        ptx_hash,
        grid,
        block,
        shared_mem,
        timing_ns: None,
        arithmetic_intensity: None,
        achieved_tflops: None,
        host: None,
    }
}
