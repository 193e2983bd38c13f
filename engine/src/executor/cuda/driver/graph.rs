//! Passes that were captured, as graphs that can be launched again.

use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;

use super::super::error::CudaError;
use super::super::kernels::Launch;
use super::{Context, Stream, check, ignore, ignore_bind};

/// A node of a graph, by the driver's handle of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) struct Node(pub(super) usize);

#[cfg(test)]
impl Node {
    /// A node of no graph.
    pub(in super::super) fn numbered(number: usize) -> Self {
        Self(number)
    }
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum NodeKind {
    /// Runs a kernel.
    Kernel(Launch),
    /// Records the time.
    EventRecord,
    /// Something else, by the driver's number for it.
    Other(u32),
}

/// A captured graph.
pub(in super::super) struct Graph {
    pub(super) context: Arc<Context>,
    pub(super) raw: sys::CUgraph,
}

impl Graph {
    /// All nodes, in no particular order.
    pub(in super::super) fn nodes(&self) -> Result<Vec<(Node, NodeKind)>, CudaError> {
        let mut n = 0;
        // SAFETY: without an array the call only counts.
        let result = unsafe { sys::cuGraphGetNodes(self.raw, null_mut(), &raw mut n) };
        check("cuGraphGetNodes", result)?;
        let mut nodes = vec![null_mut(); n];
        // SAFETY: the array has `n` elements.
        let result = unsafe { sys::cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &raw mut n) };
        check("cuGraphGetNodes", result)?;
        nodes.truncate(n);
        nodes.into_iter().map(|node| Ok((Node(node as usize), kind_of(node)?))).collect()
    }

    /// The graph, ready to be launched.
    pub(in super::super) fn instantiate(self) -> Result<GraphExec, CudaError> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a handle that outlives the call; there are no flags.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut raw, self.raw, 0) };
        check("cuGraphInstantiate", result)?;
        Ok(GraphExec { context: Arc::clone(&self.context), raw, _graph: self })
    }
}

fn kind_of(node: sys::CUgraphNode) -> Result<NodeKind, CudaError> {
    use sys::CUgraphNodeType::*;
    let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the node is one of a graph that lives; the pointer outlives the call.
    check("cuGraphNodeGetType", unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) })?;
    Ok(match kind {
        CU_GRAPH_NODE_TYPE_KERNEL => {
            let mut params = std::mem::MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
            // SAFETY: the node is a kernel's, and the pointer outlives the call.
            let result = unsafe { sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr()) };
            check("cuGraphKernelNodeGetParams", result)?;
            // SAFETY: it consists of integers and pointers, for which zeros are values.
            let params = unsafe { params.assume_init() };
            NodeKind::Kernel(Launch {
                grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
                block: [params.blockDimX, params.blockDimY, params.blockDimZ],
                shared_bytes: params.sharedMemBytes,
            })
        }
        CU_GRAPH_NODE_TYPE_EVENT_RECORD => NodeKind::EventRecord,
        other => NodeKind::Other(other as u32),
    })
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

// SAFETY: as of streams: it has one owner.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: captured once and destroyed once.
        ignore(unsafe { sys::cuGraphDestroy(self.raw) });
    }
}

/// A graph that can be launched, any number of times.
pub(in super::super) struct GraphExec {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    /// Keeps the handles of its nodes valid.
    _graph: Graph,
}

impl GraphExec {
    /// Uploads the graph, so that the first launch isn't slower.
    pub(in super::super) fn upload(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(self.raw, stream.raw) })
    }

    /// Runs all of it once.
    pub(in super::super) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live; what its nodes use is the executor's, which drops this first.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.raw, stream.raw) })
    }
}

impl fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphExec").finish_non_exhaustive()
    }
}

// SAFETY: likewise.
unsafe impl Send for GraphExec {}

impl Drop for GraphExec {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: instantiated once and destroyed once.
        ignore(unsafe { sys::cuGraphExecDestroy(self.raw) });
    }
}
