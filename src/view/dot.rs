//! The execution graph in Graphviz's format.

use std::fmt::Write;

use crate::graph::{EdgeType, ExecutionGraph, ExecutionNode};
use crate::view::tree::launch;

impl ExecutionGraph {
    /// The graph in Graphviz's DOT language; `dot -Tsvg` draws it. Names are escaped.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut dot =
            String::from("digraph ExecutionGraph {\n  rankdir=TB;\n  node [shape=box];\n\n");
        for (id, node) in self.with_ids() {
            let (label, color) = label(&node);
            let _ =
                writeln!(dot, "  n{} [label=\"{label}\",style=filled,fillcolor={color}];", id.0);
        }
        dot.push('\n');
        for edge in self.edges() {
            let style = match edge.edge_type {
                EdgeType::Calls => "style=solid",
                EdgeType::Contains => "style=dashed",
                EdgeType::Launches => "style=bold,color=red",
                EdgeType::Sequence => "style=dotted",
                EdgeType::DependsOn => "style=solid,color=blue",
                EdgeType::Transfer { .. } => "style=bold,color=orange",
            };
            let _ = writeln!(dot, "  n{} -> n{} [{style}];", edge.src.0, edge.dst.0);
        }
        dot.push_str("}\n");
        dot
    }
}

/// A node's lines of text, escaped and joined, and its colour.
fn label(node: &ExecutionNode) -> (String, &'static str) {
    let micros = |ns: u64| format!("{:.1}µs", ns as f64 / 1e3);
    let mut lines = vec![node.name()];
    let color = match node {
        ExecutionNode::Layer { .. } => "lightblue",
        ExecutionNode::Brick { timing_ns, .. } | ExecutionNode::NamedBrick { timing_ns, .. } => {
            lines.push(micros(*timing_ns));
            "lightgreen"
        }
        ExecutionNode::Kernel { host, grid, block, timing_ns, .. } => {
            lines.push(match host {
                Some(host) => host.shape.clone(),
                None => launch(*grid, *block),
            });
            lines.extend(timing_ns.map(micros));
            "lightyellow"
        }
        ExecutionNode::Transfer { bytes, timing_ns, .. } => {
            lines.push(format!("{:.1}MB", *bytes as f64 / 1e6));
            lines.extend(timing_ns.map(micros));
            "lightsalmon"
        }
        ExecutionNode::Function { file, line, .. } => {
            if let (Some(file), Some(line)) = (file, line) {
                lines.push(format!("{file}:{line}"));
            }
            "lightgray"
        }
        ExecutionNode::AsyncTask { poll_count, yield_count, total_poll_ns, .. } => {
            lines.push(format!("polls:{poll_count} yields:{yield_count}"));
            lines.push(micros(*total_poll_ns));
            "lightcyan"
        }
    };
    lines.retain(|line| !line.is_empty());
    let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
    (lines.join("\\n"), color)
}

/// `text` inside a double-quoted DOT string. There a backslash begins an escape (`\n`, `\N`), so
/// one that is meant as itself is doubled; NUL would end the file.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            c if c.is_control() => escaped.extend(c.escape_default().flat_map(|c| {
                // `\n` would be a line break again.
                if c == '\\' { vec!['\\', '\\'] } else { vec![c] }
            })),
            c => escaped.push(c),
        }
    }
    escaped
}
