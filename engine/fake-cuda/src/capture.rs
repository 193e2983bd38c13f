//! Captured graphs: a chain of nodes, each depending on the one before it.

use crate::launch::Launch;

/// A captured graph.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    nodes: Vec<GraphNode>,
    /// The handles, as an array that outlives a call.
    handles: Vec<u64>,
}

/// A node, with its handle.
#[derive(Clone)]
pub(crate) struct GraphNode {
    pub(crate) handle: u64,
    pub(crate) work: NodeWork,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum NodeWork {
    Kernel(Launch),
    /// Records this event.
    Record(u64),
}

impl Graph {
    pub(crate) fn push(&mut self, node: GraphNode) {
        self.handles.push(node.handle);
        self.nodes.push(node);
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &GraphNode> {
        self.nodes.iter()
    }

    pub(crate) fn handles(&self) -> &[u64] {
        &self.handles
    }
}
