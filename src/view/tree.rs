//! The execution graph as a tree of text.

use std::fmt::Write;

use crate::graph::{EdgeType, ExecutionGraph, ExecutionNode, ExecutionNodeId};
use crate::view::{micros, printable};

impl ExecutionGraph {
    /// The graph as a tree: what contains or launches what.
    ///
    /// Deterministic, without a line break at the end, and free of recursion, so that no depth is
    /// too deep. A node that several others contain is shown under the first of them.
    #[must_use]
    pub fn to_ascii_tree(&self) -> String {
        self.tree(false)
    }

    /// As [`to_ascii_tree`](Self::to_ascii_tree), with layers of the same bricks and kernels shown
    /// once: times are those of the first of them.
    #[must_use]
    pub fn to_folded_tree(&self) -> String {
        self.tree(true)
    }

    fn tree(&self, fold: bool) -> String {
        let (children, roots) = self.children();
        let mut text = String::new();
        // What is still to be written: a line's prefix for its children, and its own start.
        let mut todo: Vec<(Line, String, &str)> = Vec::new();
        let plan = |lines: Vec<Line>, prefix: &str, todo: &mut Vec<(Line, String, &str)>| {
            let n_lines = lines.len();
            for (i, line) in lines.into_iter().enumerate().rev() {
                let connector = if i + 1 == n_lines { "└── " } else { "├── " };
                todo.push((line, prefix.to_owned(), connector));
            }
        };
        match roots.as_slice() {
            [] if self.num_nodes() == 0 => return "(empty graph)".to_owned(),
            // Every node is contained in another: the edges go in a circle.
            [] => return "(every node is inside another: the graph has a cycle)".to_owned(),
            [root] => todo.push((Line::Node(*root), String::new(), "")),
            _ => {
                text.push_str("Execution Graph\n");
                plan(self.lines(&roots, &children, fold), "", &mut todo);
            }
        }
        while let Some((line, prefix, connector)) = todo.pop() {
            match line {
                Line::Node(index) => {
                    let label = label(&self.node_at(index));
                    let _ = writeln!(text, "{prefix}{connector}{label}");
                    let below = match connector {
                        "" => String::new(),
                        "└── " => format!("{prefix}    "),
                        _ => format!("{prefix}│   "),
                    };
                    plan(self.lines(&children[index as usize], &children, fold), &below, &mut todo);
                }
                Line::Folded { first, last, like } => {
                    let n_layers = u64::from(last - first) + 1;
                    let layers = if first == last {
                        format!("Layer {first}")
                    } else {
                        format!("Layers {first}–{last}")
                    };
                    let _ = writeln!(
                        text,
                        "{prefix}{connector}{layers}  ×{n_layers}, the same bricks as layer {like}"
                    );
                }
            }
        }
        text.pop();
        text
    }

    fn node_at(&self, index: u32) -> ExecutionNode {
        self.node(ExecutionNodeId(index)).expect("its number was taken from the graph")
    }

    /// Who contains or launches whom, and who is in nobody. Each node is in one list at most.
    fn children(&self) -> (Vec<Vec<u32>>, Vec<u32>) {
        let mut children = vec![Vec::new(); self.num_nodes()];
        let mut has_parent = vec![false; self.num_nodes()];
        for edge in self.edges() {
            let (src, dst) = (edge.src.0 as usize, edge.dst.0 as usize);
            let nests = matches!(edge.edge_type, EdgeType::Contains | EdgeType::Launches);
            if nests && src != dst && !has_parent[dst] {
                has_parent[dst] = true;
                children[src].push(edge.dst.0);
            }
        }
        let roots = (0..self.num_nodes() as u32).filter(|&i| !has_parent[i as usize]).collect();
        (children, roots)
    }

    /// The lines for some siblings: one each, or one for a run of layers that look like one that
    /// has been shown.
    fn lines(&self, siblings: &[u32], children: &[Vec<u32>], fold: bool) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        let mut shown: Vec<(u32, Vec<String>)> = Vec::new();
        for &index in siblings {
            let layer = match self.node_at(index) {
                ExecutionNode::Layer { index: layer } if fold => layer,
                _ => {
                    lines.push(Line::Node(index));
                    continue;
                }
            };
            let shape = self.shape(index, children);
            let like = shown.iter().find(|(_, known)| *known == shape).map(|&(like, _)| like);
            match (like, lines.last_mut()) {
                (None, _) => {
                    shown.push((layer, shape));
                    lines.push(Line::Node(index));
                }
                (Some(like), Some(Line::Folded { last, like: before, .. }))
                    if *before == like && last.checked_add(1) == Some(layer) =>
                {
                    *last = layer;
                }
                (Some(like), _) => lines.push(Line::Folded { first: layer, last: layer, like }),
            }
        }
        lines
    }

    /// The names of all that is below a node, in order, with their depths.
    fn shape(&self, index: u32, children: &[Vec<u32>]) -> Vec<String> {
        let mut shape = Vec::new();
        let mut todo: Vec<(u32, usize)> =
            children[index as usize].iter().rev().map(|&child| (child, 1)).collect();
        while let Some((index, depth)) = todo.pop() {
            shape.push(format!("{depth} {}", self.node_at(index).name()));
            todo.extend(children[index as usize].iter().rev().map(|&child| (child, depth + 1)));
        }
        shape
    }
}

/// A line of the tree.
enum Line {
    Node(u32),
    /// Layers `first` to `last` have the same shape as layer `like`.
    Folded {
        first: u32,
        last: u32,
        like: u32,
    },
}

/// A node's name and what is known of it.
fn label(node: &ExecutionNode) -> String {
    let name = printable(&node.name());
    let micros = |ns: u64| format!("{}µs", micros(ns as f64));
    match node {
        ExecutionNode::Layer { .. } => name,
        ExecutionNode::Brick { timing_ns, elements, .. }
        | ExecutionNode::NamedBrick { timing_ns, elements, .. } => {
            format!("{name}  {} ({elements} elem)", micros(*timing_ns))
        }
        ExecutionNode::Kernel { host: Some(host), timing_ns, .. } => {
            let shape = printable(&host.shape);
            let gap = if shape.is_empty() { "" } else { "  " };
            let threads = if host.threads > 1 {
                format!("  {} threads", host.threads)
            } else {
                String::new()
            };
            let time = timing_ns.map(|ns| format!("  {}", micros(ns))).unwrap_or_default();
            format!("{name}{gap}{shape}{threads}{time}")
        }
        ExecutionNode::Kernel { grid, block, shared_mem, timing_ns, .. } => {
            let time = timing_ns.map(|ns| format!("  {}", micros(ns))).unwrap_or_default();
            format!("{name}  {} smem={shared_mem}B{time}", launch(*grid, *block))
        }
        ExecutionNode::Function { file, line, .. } => match (file, line) {
            (Some(file), Some(line)) => format!("{name} ({}:{line})", printable(file)),
            (Some(file), None) => format!("{name} ({})", printable(file)),
            (None, _) => name,
        },
        ExecutionNode::Transfer { bytes, timing_ns, .. } => {
            let time = timing_ns.map(|ns| format!(" {}", micros(ns))).unwrap_or_default();
            format!("{name}  {bytes}B{time}")
        }
        ExecutionNode::AsyncTask { poll_count, yield_count, total_poll_ns, .. } => {
            format!("{name}  polls:{poll_count} yields:{yield_count} {}", micros(*total_poll_ns))
        }
    }
}

type Dimensions = (u32, u32, u32);

/// `<<<blocks,threads,1>>>` of a launch in one dimension; in full where there are more.
pub(super) fn launch(grid: Dimensions, block: Dimensions) -> String {
    let flat = |d: Dimensions| d.1 == 1 && d.2 == 1;
    if flat(grid) && flat(block) {
        format!("<<<{},{},{}>>>", grid.0, block.0, block.1)
    } else {
        format!("<<<({},{},{}),({},{},{})>>>", grid.0, grid.1, grid.2, block.0, block.1, block.2)
    }
}
