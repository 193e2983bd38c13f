//! The execution graph in Graphviz's format.

use std::fmt::Write;

use crate::graph::tree::launch;
use crate::graph::{EdgeType, ExecutionGraph, ExecutionNode};
use crate::text::{micros, printable, screened};

impl ExecutionGraph {
    /// The graph in Graphviz's DOT language; `dot -Tsvg` draws it. Names are escaped; of those longer
    /// than 200 characters the rest is left out, and `…` says so.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut dot =
            String::from("digraph ExecutionGraph {\n  rankdir=TB;\n  node [shape=box];\n\n");
        for (id, node) in self.with_ids() {
            let (label, color) = label(&node, self.timing_ns(id));
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
        screened(dot)
    }
}

/// A node's lines of text, escaped and joined, and its colour.
fn label(node: &ExecutionNode, time: Option<u64>) -> (String, &'static str) {
    let micros = |ns: u64| format!("{}µs", micros(ns as f64));
    let mut lines = vec![node.name()];
    let color = match node {
        ExecutionNode::Layer { .. } => {
            lines.extend(time.map(micros));
            "lightblue"
        }
        ExecutionNode::Brick { timing_ns, .. } | ExecutionNode::NamedBrick { timing_ns, .. } => {
            lines.push(micros(*timing_ns));
            "lightgreen"
        }
        ExecutionNode::Kernel { grid, block, timing_ns, .. } => {
            lines.push(launch(*grid, *block));
            lines.extend(timing_ns.map(micros));
            "lightyellow"
        }
        ExecutionNode::Routine { launch, timing_ns, .. } => {
            lines.push(launch.shape.clone());
            lines.extend(timing_ns.map(micros));
            "lightyellow"
        }
        ExecutionNode::Transfer { bytes, timing_ns, .. } => {
            lines.push(match *bytes {
                // Fewer would be 0.0 MB.
                bytes @ 0..50_000 => format!("{bytes}B"),
                bytes => format!("{:.1}MB", bytes as f64 / 1e6),
            });
            lines.extend(timing_ns.map(micros));
            "lightsalmon"
        }
        ExecutionNode::Function { file, line, .. } => {
            if let (Some(file), Some(line)) = (file, line) {
                lines.push(format!("{file}:{line}"));
            }
            lines.extend(time.map(micros));
            "lightgray"
        }
        ExecutionNode::AsyncTask { poll_count, yield_count, total_poll_ns, .. } => {
            lines.push(format!("polls:{poll_count} yields:{yield_count}"));
            let share = node.poll_efficiency().map(|share| format!(" ({:.0}%)", 100.0 * share));
            lines.push(micros(*total_poll_ns) + &share.unwrap_or_default());
            "lightcyan"
        }
    };
    lines.retain(|line| !line.is_empty());
    let lines: Vec<String> = lines.iter().map(|line| escape(&printable(line))).collect();
    (lines.join("\\n"), color)
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
