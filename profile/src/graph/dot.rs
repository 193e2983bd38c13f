//! The execution graph in Graphviz's format.

use std::collections::HashSet;
use std::fmt::Write;

use crate::graph::nesting::Nesting;
use crate::graph::tree::{Group, Times, groups, launch, ranges};
use crate::graph::{EdgeType, ExecutionGraph, ExecutionNode, ExecutionNodeId};
use crate::text::{micros, printable, screened};

/// What a drawing by [`ExecutionGraph::to_dot_with`] shows. By default every node that trees show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DotOptions {
    /// Sibling layers of the same bricks and kernels become one box with the sum of their times, as in
    /// [`TreeOptions::fold`](crate::TreeOptions::fold).
    pub fold: bool,
    /// Only this transformer layer.
    pub layer: Option<u32>,
}

impl ExecutionGraph {
    /// The graph in Graphviz's DOT language; `dot -Tsvg` draws it. Names are escaped; of those longer
    /// than 200 characters the rest is left out, and `…` says so.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut dot =
            String::from("digraph ExecutionGraph {\n  rankdir=TB;\n  node [shape=box];\n\n");
        for (id, node) in self.with_ids() {
            let (lines, color) = label(&node, self.timing_ns(id), &Shown::Own);
            let label = joined(&lines, "\\n");
            let _ =
                writeln!(dot, "  n{} [label=\"{label}\",style=filled,fillcolor={color}];", id.0);
        }
        dot.push('\n');
        for edge in self.edges() {
            let style = style(&edge.edge_type);
            let _ = writeln!(dot, "  n{} -> n{} [{style}];", edge.src.0, edge.dst.0);
        }
        dot.push_str("}\n");
        screened(dot)
    }

    /// As [`to_dot`](Self::to_dot), of a part of the graph or with layers folded, and laid out to fit a page:
    /// from left to right what contains or launches what, and from top to bottom what comes after what.
    ///
    /// Hand-offs between threads are not drawn, as in trees. A line below the drawing says how many nodes
    /// are drawn as how many boxes, and how many are left out. If no node lies outside of all others (a
    /// cycle), it is the same as `to_dot`.
    ///
    /// ```
    /// use brickscope::{BrickId, DotOptions, ExecutionGraph, ExecutionNode};
    ///
    /// let mut graph = ExecutionGraph::new();
    /// for (index, timing_ns) in [(0, 90_000), (1, 110_000), (2, 100_000)] {
    ///     graph.push_scope(ExecutionNode::Layer { index });
    ///     let id = BrickId::QkvProjection;
    ///     graph.add_node_in_scope(ExecutionNode::Brick { id, timing_ns, elements: 4096 });
    ///     graph.pop_scope();
    /// }
    /// let dot = graph.to_dot_with(&DotOptions { fold: true, ..DotOptions::default() });
    /// assert!(dot.contains("Layers 0–2  ×3\\n300.0µs sum, 90.0–110.0µs each"));
    /// assert!(dot.contains("6 nodes as 2 boxes"));
    /// ```
    #[must_use]
    pub fn to_dot_with(&self, options: &DotOptions) -> String {
        let (nesting, groups) = groups(Nesting::new(self), options.layer, options.fold);
        if groups.is_empty() {
            return match options.layer {
                Some(layer) if self.num_nodes() > 0 => {
                    format!("digraph ExecutionGraph {{\n  label=\"no layer {layer}\";\n}}\n")
                }
                _ => self.to_dot(),
            };
        }
        // A smaller font and narrow gaps, so that a page has room for what folded layers have in them.
        let mut dot = String::from(
            "digraph ExecutionGraph {\n  rankdir=LR;\n  ordering=out;\n  nodesep=0.08;\n  \
             ranksep=0.35;\n  fontsize=11;\n  labeljust=l;\n  node [shape=box, fontsize=12, \
             height=0.2, margin=\"0.08,0.03\"];\n  edge [arrowsize=0.6];\n\n",
        );
        let _ = writeln!(dot, "  label=\"{}\";", self.caption(&groups, options));
        let mut group_of = vec![None; self.num_nodes()];
        for (number, group) in groups.iter().enumerate() {
            for &node in &group.nodes {
                group_of[node as usize] = Some(number);
            }
            let (label, color) = label_of(&nesting, group);
            let _ =
                writeln!(dot, "  n{number} [label=\"{label}\",style=filled,fillcolor={color}];");
        }
        dot.push('\n');
        let mut drawn = HashSet::new();
        for edge in self.edges() {
            let ends = [edge.src, edge.dst].map(|end| group_of[end.0 as usize]);
            let [Some(src), Some(dst)] = ends else { continue };
            let style = style(&edge.edge_type);
            // Within a box there is nothing to draw.
            if src == dst || !drawn.insert((src, dst, style)) {
                continue;
            }
            // Only nesting says which column a box is in.
            let is_nesting = groups[dst].parent == Some(src);
            let place = if is_nesting { "" } else { ",constraint=false" };
            let _ = writeln!(dot, "  n{src} -> n{dst} [{style}{place}];");
        }
        dot.push_str("}\n");
        screened(dot)
    }

    /// How many nodes are drawn as how many boxes, and how many are not.
    fn caption(&self, groups: &[Group], options: &DotOptions) -> String {
        let drawn: usize = groups.iter().map(|group| group.nodes.len()).sum();
        let points =
            (0..self.num_nodes() as u32).filter(|&id| self.is_point(ExecutionNodeId(id))).count();
        let rest = self.num_nodes() - drawn - points;
        let several = |n: usize, one: &str, many: &str| match n {
            1 => format!("1 {one}"),
            n => format!("{n} {many}"),
        };
        let mut caption = several(drawn, "node", "nodes");
        if groups.len() < drawn {
            caption += &format!(" as {}", several(groups.len(), "box", "boxes"));
            caption +=
                ": layers of the same bricks and kernels are one, with the sum of their times";
        }
        if rest > 0 {
            let what = if options.layer.is_some() { "outside of this layer" } else { "in a cycle" };
            caption += &format!("; not drawn: {rest} {what}");
        }
        if points > 0 {
            caption += &format!("; not drawn: {}", several(points, "hand-off", "hand-offs"));
        }
        caption
    }
}

fn style(edge: &EdgeType) -> &'static str {
    match edge {
        EdgeType::Calls => "style=solid",
        EdgeType::Contains => "style=dashed",
        EdgeType::Launches => "style=bold,color=red",
        EdgeType::Sequence => "style=dotted",
        EdgeType::DependsOn => "style=solid,color=blue",
        EdgeType::Transfer { .. } => "style=bold,color=orange",
    }
}

/// The times that a label has.
enum Shown {
    /// The node's own.
    Own,
    /// Those of several nodes, if all are known.
    Several(Option<Times>),
}

/// The label of a box and its colour.
fn label_of(nesting: &Nesting<'_>, group: &Group) -> (String, &'static str) {
    let first = group.nodes[0];
    let node = nesting.node(first);
    let shown = match group.nodes[..] {
        [_] => Shown::Own,
        _ => Shown::Several(Times::of(group.nodes.iter().map(|&node| nesting.time(node)))),
    };
    let (mut lines, color) = label(&node, nesting.own_time(first), &shown);
    if let (ExecutionNode::Layer { .. }, Shown::Several(_)) = (&node, &shown) {
        let layers = ranges(group.nodes.iter().filter_map(|&node| nesting.layer(node)));
        lines[0] = format!("{layers}  ×{}", group.nodes.len());
    }
    // A kernel is one line, since a brick may have several.
    let between = if node.is_kernel() { "  " } else { "\\n" };
    (joined(&lines, between), color)
}

/// A node's lines of text and its colour.
fn label(node: &ExecutionNode, time: Option<u64>, shown: &Shown) -> (Vec<String>, &'static str) {
    let own = |ns: u64| format!("{}µs", micros(ns as f64));
    let times = |ns: Option<u64>| match shown {
        Shown::Own => ns.map(own),
        Shown::Several(None) => None,
        Shown::Several(Some(times)) if node.is_kernel() => Some(times.sum()),
        Shown::Several(Some(times)) => Some(times.in_full()),
    };
    let mut lines = vec![node.name()];
    let color = match node {
        ExecutionNode::Layer { .. } => {
            lines.extend(times(time));
            "lightblue"
        }
        ExecutionNode::Brick { timing_ns, .. } | ExecutionNode::NamedBrick { timing_ns, .. } => {
            lines.extend(times(Some(*timing_ns)));
            "lightgreen"
        }
        ExecutionNode::Kernel { grid, block, timing_ns, .. } => {
            lines.push(launch(*grid, *block));
            lines.extend(times(*timing_ns));
            "lightyellow"
        }
        ExecutionNode::Routine { launch, timing_ns, .. } => {
            lines.push(launch.shape.clone());
            lines.extend(times(*timing_ns));
            "lightyellow"
        }
        ExecutionNode::Transfer { bytes, timing_ns, .. } => {
            lines.push(match *bytes {
                // Fewer would be 0.0 MB.
                bytes @ 0..50_000 => format!("{bytes}B"),
                bytes => format!("{:.1}MB", bytes as f64 / 1e6),
            });
            lines.extend(times(*timing_ns));
            "lightsalmon"
        }
        ExecutionNode::Function { file, line, .. } => {
            if let (Some(file), Some(line)) = (file, line) {
                lines.push(format!("{file}:{line}"));
            }
            lines.extend(times(time));
            "lightgray"
        }
        ExecutionNode::AsyncTask { poll_count, yield_count, total_poll_ns, .. } => {
            lines.push(format!("polls:{poll_count} yields:{yield_count}"));
            let share = node.poll_efficiency();
            let share = share.map(|share| format!(" ({:.0}%)", 100.0 * share)).unwrap_or_default();
            lines.extend(times(Some(*total_poll_ns)).map(|times| times + &share));
            "lightcyan"
        }
    };
    (lines, color)
}

/// Lines without empty ones, printable and escaped, with `between` between them.
fn joined(lines: &[String], between: &str) -> String {
    let lines = lines.iter().filter(|line| !line.is_empty());
    lines.map(|line| escape(&printable(line))).collect::<Vec<_>>().join(between)
}

/// Printable `text` inside a double-quoted DOT string that is a label. There a backslash begins an
/// escape (`\n`, `\N`), and an ampersand an entity of HTML (`&lt;`), so those that are meant as
/// themselves are escaped. See <https://graphviz.org/doc/info/lang.html> and
/// <https://graphviz.org/docs/attr-types/escString/>.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '&' => escaped.push_str("&amp;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    /// What names are made of to break a file: what DOT, HTML, XML or terminals take for their own.
    const AWKWARD: [&str; 18] = [
        "",
        "\"",
        "\\",
        "\\\"",
        "a\\",
        "\\N \\G \\l",
        "line\nbreak\r\ttab",
        "nul\0esc\u{1b}[31m",
        "<b>bold</b>",
        "&lt;&#65;&amp",
        "]; evil [label=\"x\"]; //",
        "/* comment */ # hash",
        "{record|<port>}",
        "größe 重み 🦀 e\u{301}",
        "\u{202e}gnihtemos\u{2028}",
        "\u{fffe}\u{ffff}\u{feff}\u{85}",
        "trailing \\\\",
        "-->]]>",
    ];

    fn named(names: &[String]) -> ExecutionGraph {
        let mut graph = ExecutionGraph::new();
        for name in names {
            let (name, file) = (name.clone(), Some(name.clone()));
            graph.push_scope(ExecutionNode::Function { name, file, line: Some(7) });
        }
        graph
    }

    /// Reads what [`ExecutionGraph::to_dot`] writes, by the rules of Graphviz's scanner: in a quoted
    /// string a backslash keeps the next character from ending it. Returns the nodes' labels as
    /// they are drawn, and the number of edges.
    fn parse(dot: &str) -> Result<(Vec<String>, usize), String> {
        let (mut labels, mut n_edges) = (Vec::new(), 0);
        let body = dot
            .strip_prefix("digraph ExecutionGraph {\n  rankdir=TB;\n  node [shape=box];\n\n")
            .and_then(|rest| rest.strip_suffix("}\n"))
            .ok_or("no graph")?;
        let mut rest = body.trim_start();
        while !rest.is_empty() {
            let after_n = rest.strip_prefix('n').ok_or(format!("no node: {rest}"))?;
            let after = after_n.trim_start_matches(|c: char| c.is_ascii_digit());
            if let Some(edge) = after.strip_prefix(" -> n") {
                let end = edge.find("];").ok_or("an edge does not end")?;
                if edge[..end].contains(['"', '\n']) {
                    return Err(format!("an edge with a string: {edge}"));
                }
                n_edges += 1;
                rest = edge[end + 2..].trim_start();
                continue;
            }
            let string = after.strip_prefix(" [label=\"").ok_or(format!("no label: {after}"))?;
            let (label, after) = quoted(string)?;
            let attributes = after.strip_prefix(",style=filled,fillcolor=").ok_or("no colour")?;
            let end = attributes.find("];").ok_or("a node does not end")?;
            if !attributes[..end].bytes().all(|c| c.is_ascii_lowercase()) {
                return Err(format!("no colour: {}", &attributes[..end]));
            }
            labels.push(label);
            rest = attributes[end + 2..].trim_start();
        }
        Ok((labels, n_edges))
    }

    /// A string up to its quote, as it is drawn, and what comes after.
    fn quoted(text: &str) -> Result<(String, &str), String> {
        let mut drawn = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return Ok((drawn, &text[at + 1..])),
                '\\' => match chars.next() {
                    Some((_, 'n')) => drawn.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => drawn.push(c),
                    other => return Err(format!("an escape that we do not write: {other:?}")),
                },
                '&' => {
                    let entity = &text[at..];
                    if !entity.starts_with("&amp;") {
                        return Err(format!("an entity: {entity}"));
                    }
                    chars.nth("amp;".len() - 1);
                    drawn.push('&');
                }
                c if c.is_control() => return Err(format!("a control character: {c:?}")),
                c => drawn.push(c),
            }
        }
        Err("a string does not end".to_owned())
    }

    /// The lines that a function of this name should be drawn with.
    fn drawn(name: &str) -> String {
        let lines = [printable(name), printable(&format!("{name}:7"))];
        lines.iter().filter(|line| !line.is_empty()).cloned().collect::<Vec<_>>().join("\n")
    }

    proptest! {
        #[test]
        fn whatever_names_are_the_labels_are_those(
            parts in prop::collection::vec(
                prop::collection::vec(
                    prop_oneof![prop::sample::select(&AWKWARD[..]).prop_map(str::to_owned), ".{0,9}"],
                    0..4,
                ),
                1..6,
            )
        ) {
            let names: Vec<String> = parts.iter().map(|parts| parts.concat()).collect();
            let (labels, n_edges) = parse(&named(&names).to_dot()).map_err(TestCaseError::fail)?;
            prop_assert_eq!(n_edges, names.len() - 1);
            prop_assert_eq!(labels, names.iter().map(|name| drawn(name)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_name_of_a_megabyte_is_cut_and_says_so() {
        let (labels, _) = parse(&named(&["\\".repeat(1 << 20)]).to_dot()).expect("DOT");
        let line = format!("{}…", "\\".repeat(199));
        assert_eq!(labels, [format!("{line}\n{line}")]);
    }

    /// A pass of layers with a brick and a kernel each, one of them with two, and a head.
    fn layers(n: u32) -> ExecutionGraph {
        let mut graph = ExecutionGraph::new();
        let function =
            |name: &str| ExecutionNode::Function { name: name.to_owned(), file: None, line: None };
        let brick = |id, timing_ns| ExecutionNode::Brick { id, timing_ns, elements: 7 };
        let pass = graph.push_scope(function("Decode pass"));
        let mut before = None;
        for index in 0..n {
            let layer = graph.push_scope(ExecutionNode::Layer { index });
            graph.push_scope(brick(crate::BrickId::QkvProjection, 1_000 * u64::from(index + 1)));
            graph.record_kernel_launch("gemv<\"q\">", 1, (32, 1, 1), (256, 1, 1), 0);
            graph.pop_scope();
            graph.add_node_in_scope(brick(crate::BrickId::DownProjection, 500));
            graph.pop_scope();
            if let Some(before) = before {
                graph.add_edge(before, layer, EdgeType::Sequence);
            }
            before = Some(layer);
        }
        let head = graph.add_node_in_scope(brick(crate::BrickId::LmHead, 9_000));
        graph.add_edge(before.unwrap_or(pass), head, EdgeType::Sequence);
        graph.pop_scope();
        graph
    }

    const FOLDED: DotOptions = DotOptions { fold: true, layer: None };

    #[test]
    fn equal_layers_are_one_box_and_a_line_says_so() {
        let expected = "\
digraph ExecutionGraph {
  rankdir=LR;
  ordering=out;
  nodesep=0.08;
  ranksep=0.35;
  fontsize=11;
  labeljust=l;
  node [shape=box, fontsize=12, height=0.2, margin=\"0.08,0.03\"];
  edge [arrowsize=0.6];

  label=\"18 nodes as 6 boxes: layers of the same bricks and kernels are one, with the sum of their times\";
  n0 [label=\"Decode pass\",style=filled,fillcolor=lightgray];
  n1 [label=\"Layers 0–3  ×4\\n12.0µs sum, 1.5–4.5µs each\",style=filled,fillcolor=lightblue];
  n2 [label=\"QkvProjection\\n10.0µs sum, 1.0–4.0µs each\",style=filled,fillcolor=lightgreen];
  n3 [label=\"gemv<\\\"q\\\">  <<<32,256,1>>>\",style=filled,fillcolor=lightyellow];
  n4 [label=\"DownProjection\\n2.0µs sum, 0.5µs each\",style=filled,fillcolor=lightgreen];
  n5 [label=\"LmHead\\n9.0µs\",style=filled,fillcolor=lightgreen];

  n0 -> n1 [style=dashed];
  n1 -> n2 [style=dashed];
  n2 -> n3 [style=bold,color=red];
  n1 -> n4 [style=dashed];
  n0 -> n5 [style=dashed];
  n1 -> n5 [style=dotted,constraint=false];
}
";
        assert_eq!(layers(4).to_dot_with(&FOLDED), expected);
        // However many there are.
        let boxes = |graph: &ExecutionGraph| graph.to_dot_with(&FOLDED).matches("label=").count();
        assert_eq!(boxes(&layers(400)), boxes(&layers(4)));
        // A layer that differs stays by itself.
        let mut graph = layers(4);
        graph.push_scope(ExecutionNode::Layer { index: 4 });
        graph.pop_scope();
        assert!(graph.to_dot_with(&FOLDED).contains("label=\"Layer 4\""));
    }

    #[test]
    fn one_layer_is_drawn_by_itself_and_the_rest_counted() {
        let of = |layer| DotOptions { fold: true, layer: Some(layer) };
        let dot = layers(4).to_dot_with(&of(2));
        assert!(dot.contains("label=\"4 nodes; not drawn: 14 outside of this layer\""), "{dot}");
        assert!(dot.contains("label=\"Layer 2\\n3.5µs\"") || dot.contains("label=\"Layer 2\""));
        assert!(dot.contains("QkvProjection\\n3.0µs") && !dot.contains("LmHead"), "{dot}");
        assert!(layers(4).to_dot_with(&of(9)).contains("no layer 9"));
    }

    #[test]
    fn a_graph_that_is_a_cycle_or_empty_is_drawn_as_it_is() {
        let mut graph = named(&["a".to_owned(), "b".to_owned()]);
        let [a, b] = [0, 1].map(ExecutionNodeId);
        graph.add_edge(b, a, EdgeType::Contains);
        assert_eq!(graph.to_dot_with(&FOLDED), graph.to_dot());
        let empty = ExecutionGraph::new();
        assert_eq!(empty.to_dot_with(&FOLDED), empty.to_dot());
        // A part that is a cycle is counted.
        graph.add_node(ExecutionNode::Layer { index: 0 });
        let dot = graph.to_dot_with(&FOLDED);
        assert!(dot.contains("label=\"1 node; not drawn: 2 in a cycle\""), "{dot}");
    }

    #[test]
    fn small_figures_are_not_drawn_as_zero() {
        let mut graph = ExecutionGraph::new();
        let h2d = crate::graph::TransferDirection::H2D;
        graph.record_transfer("a", "b", 8, h2d, Some(7));
        let (labels, _) = parse(&graph.to_dot()).expect("DOT");
        assert_eq!(labels, ["H2D: a → b\n8B\n0.007µs"]);
    }

    /// Graphviz itself, where it is installed.
    #[test]
    fn graphviz_draws_every_name_as_it_is() {
        let names = AWKWARD.map(str::to_owned);
        let child = Command::new("dot")
            .arg("-Tsvg")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: Graphviz's `dot` is not installed");
            return;
        };
        let dot = named(&names).to_dot();
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(dot.as_bytes()).expect("dot reads");
        drop(stdin);
        let output = child.wait_with_output().expect("dot ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("syntax error"), "{stderr}");
        let svg = String::from_utf8(output.stdout).expect("UTF-8");
        let mut texts = svg.split("<text").skip(1).map(|text| {
            let text = &text[text.find('>').expect("a tag ends") + 1..];
            unescape_xml(&text[..text.find("</text>").expect("a text ends")])
        });
        for name in names {
            for line in drawn(&name).lines() {
                // Blanks are drawn as blanks that do not break.
                let text = texts.next().map(|text| text.replace('\u{a0}', " "));
                assert_eq!(text.as_deref(), Some(line));
            }
        }
        assert_eq!(texts.next(), None);
    }

    fn unescape_xml(text: &str) -> String {
        let mut parts = text.split('&');
        let mut plain = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (entity, rest) = part.split_once(';').expect("an entity ends");
            plain.push(match entity {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                number => {
                    let number = number.trim_start_matches('#').parse().expect("a number");
                    char::from_u32(number).expect("a character")
                }
            });
            plain.push_str(rest);
        }
        plain
    }
}
