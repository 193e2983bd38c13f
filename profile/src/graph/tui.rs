//! The execution graph as a tree of the terminal widgets in the crate `presentar-terminal`.

use presentar_terminal::{Color, TreeNode};

use crate::graph::nesting::Nesting;
use crate::graph::tree::label;
use crate::graph::{ExecutionGraph, ExecutionNode};
use crate::text::printable;

/// The most levels that are converted: the widget, and the drop of its nodes, recurse.
const MOST_LEVELS: usize = 256;

/// Ids of nodes that are not in the graph count down from here.
const NOT_IN_GRAPH: u64 = u64::MAX;

impl ExecutionGraph {
    /// The graph as a widget's tree: names are labels, times and launches info, the numbers of nodes
    /// ids. Several roots are put into a node `Execution Graph`.
    ///
    /// The widget recurses, so levels beyond 256 are left out; a node `… 12 inside` counts them.
    ///
    /// ```
    /// use brickscope::{ExecutionGraph, ExecutionNode};
    /// use presentar_terminal::Tree;
    ///
    /// let mut graph = ExecutionGraph::new();
    /// graph.push_scope(ExecutionNode::Layer { index: 0 });
    /// graph.record_kernel_launch("gemv", 0, (32, 1, 1), (256, 1, 1), 0);
    /// let tree = Tree::new().with_root(graph.to_tree_node()).expand_all();
    /// assert_eq!(tree.visible_lines(), 2);
    /// ```
    #[must_use]
    pub fn to_tree_node(&self) -> TreeNode {
        let nesting = Nesting::new(self);
        let n_nodes = nesting.n_shown();
        if n_nodes == 0 {
            return TreeNode::new(NOT_IN_GRAPH, "Empty Graph");
        }
        let mut levels = vec![1; n_nodes as usize];
        for &node in nesting.order() {
            if let Some(parent) = nesting.parent(node) {
                levels[node as usize] = levels[parent as usize] + 1;
            }
        }
        let mut done: Vec<Option<TreeNode>> = vec![None; n_nodes as usize];
        // Children before their parents.
        for &node in nesting.order().iter().rev() {
            let level = levels[node as usize];
            if level > MOST_LEVELS {
                continue;
            }
            let inside = nesting.inside(node);
            let children = if level == MOST_LEVELS && inside > 0 {
                let id = NOT_IN_GRAPH - 1 - u64::from(node);
                vec![TreeNode::new(id, format!("… {inside} inside"))]
            } else {
                take(nesting.children(node), &mut done)
            };
            let converted = convert(&nesting, node).with_children(children);
            done[node as usize] = Some(converted);
        }
        let mut roots = take(nesting.roots(), &mut done);
        let circle = n_nodes - nesting.order().len() as u64;
        if circle > 0 {
            let text = format!("… in a cycle: {circle} more");
            roots.push(TreeNode::new(NOT_IN_GRAPH - 1 - n_nodes, text));
        }
        match roots.len() {
            1 => roots.remove(0),
            _ => TreeNode::new(NOT_IN_GRAPH, "Execution Graph").with_children(roots),
        }
    }
}

fn take(nodes: &[u32], done: &mut [Option<TreeNode>]) -> Vec<TreeNode> {
    nodes.iter().filter_map(|&node| done[node as usize].take()).collect()
}

/// A node without its children.
fn convert(nesting: &Nesting<'_>, number: u32) -> TreeNode {
    let node = nesting.node(number);
    let mut line = String::new();
    label(&node, nesting.own_time(number)).write(None, &mut line);
    let name = printable(&node.name());
    let (label, info) = match line.strip_prefix(&name) {
        Some(info) if !matches!(node, ExecutionNode::Function { .. }) => (name, info.trim_start()),
        _ => (line.clone(), ""),
    };
    let (r, g, b) = match &node {
        ExecutionNode::Layer { .. } => (0.4, 0.6, 1.0),
        ExecutionNode::Brick { .. } | ExecutionNode::NamedBrick { .. } => (0.4, 0.8, 0.4),
        ExecutionNode::Kernel { .. } | ExecutionNode::Routine { .. } => (1.0, 0.8, 0.3),
        ExecutionNode::Function { .. } => (0.7, 0.7, 0.7),
        ExecutionNode::Transfer { .. } => (0.8, 0.4, 0.8),
        ExecutionNode::AsyncTask { .. } => (0.4, 0.8, 0.8),
    };
    let tree_node = TreeNode::new(number.into(), label).with_color(Color::new(r, g, b, 1.0));
    if info.is_empty() { tree_node } else { tree_node.with_info(info) }
}

#[cfg(test)]
mod tests {
    use presentar_terminal::Tree;

    use super::*;
    use crate::brick::BrickId;
    use crate::graph::EdgeType;

    #[test]
    fn a_tree_of_labels_and_infos() {
        let mut graph = ExecutionGraph::new();
        assert_eq!(graph.to_tree_node().label, "Empty Graph");
        graph.push_scope(ExecutionNode::Layer { index: 0 });
        let (id, timing_ns, elements) = (BrickId::RmsNorm, 50_000, 4096);
        graph.push_scope(ExecutionNode::Brick { id, timing_ns, elements });
        graph.record_kernel_launch("rms\nnorm", 1, (16, 1, 1), (256, 1, 1), 1024);
        let layer = graph.to_tree_node();
        assert_eq!((layer.label.as_str(), layer.info.as_deref()), ("Layer 0", None));
        let brick = &layer.children[0];
        assert_eq!(brick.label, "RmsNorm");
        assert_eq!(brick.info.as_deref(), Some("50.0µs (4096 elem)"));
        let kernel = &brick.children[0];
        assert_eq!(kernel.label, "rms\\nnorm");
        assert_eq!(kernel.info.as_deref(), Some("<<<16,256,1>>> smem=1024B"));
        assert_eq!((layer.depth(), layer.count_nodes()), (3, 3));
    }

    #[test]
    fn several_roots_and_a_circle_hang_under_one() {
        let mut graph = ExecutionGraph::new();
        let nodes: Vec<_> =
            (0..4).map(|index| graph.add_node(ExecutionNode::Layer { index })).collect();
        graph.add_edge(nodes[2], nodes[3], EdgeType::Contains);
        graph.add_edge(nodes[3], nodes[2], EdgeType::Contains);
        let root = graph.to_tree_node();
        let labels: Vec<&str> = root.children.iter().map(|child| child.label.as_str()).collect();
        assert_eq!(root.label, "Execution Graph");
        assert_eq!(labels, ["Layer 0", "Layer 1", "… in a cycle: 2 more"]);
    }

    #[test]
    fn what_is_too_deep_for_a_widget_that_recurses_is_counted() {
        let mut graph = ExecutionGraph::new();
        for index in 0..100_000 {
            graph.push_scope(ExecutionNode::Layer { index });
        }
        let root = graph.to_tree_node();
        assert_eq!(root.depth(), MOST_LEVELS + 1);
        let mut deepest = &root;
        while let Some(child) = deepest.children.first() {
            deepest = child;
        }
        assert_eq!(deepest.label, "… 99744 inside");
        assert_eq!(Tree::new().with_root(root).expand_all().visible_lines(), MOST_LEVELS + 1);
    }
}
