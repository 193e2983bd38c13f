//! The critical path as text.

use std::collections::HashMap;
use std::fmt::Write;

use crate::graph::{
    ExecutionGraph, ExecutionNode, ExecutionNodeId, Schedule, Step, TransferDirection,
};
use crate::text::{
    MOST_ROWS, count, micros, percent, printable, printable_text, screened_lines, shortened,
};

impl ExecutionGraph {
    /// The critical path from the first node to the last, then the nodes with the most slack.
    ///
    /// Nodes that only wrap others on the path have no line of their own; if they took time themselves,
    /// one line has its sum.
    #[must_use]
    pub fn critical_path_summary(&self) -> String {
        let schedule = match self.schedule() {
            Ok(schedule) => schedule,
            Err(cycle) => return format!("{cycle}\n"),
        };
        let steps = schedule.critical_path();
        let named: Vec<&Step> = self.named_steps(&steps).collect();
        let total = schedule.makespan_ns();
        let mut text =
            format!("Critical Path: {:.2}ms ({} nodes)\n", total as f64 / 1e6, named.len());
        text.push_str(&"─".repeat(50));
        text.push('\n');
        for (i, step) in named.iter().enumerate() {
            let prefix = match i {
                0 => "┌",
                _ if i + 1 == named.len() => "└",
                _ => "│",
            };
            let _ = writeln!(text, "{prefix} {} ({}µs)", self.label(step.node), ns(step.own_ns));
        }
        let listed = named.iter().fold(0, |sum, step| u64::saturating_add(sum, step.own_ns));
        if total > listed {
            let _ = writeln!(text, "  the nodes around them ({}µs)", ns(total - listed));
        }
        let late = late(self, &schedule, &self.are_around_time());
        if !late.is_empty() {
            text.push_str("\nParallelization Opportunities (high slack):\n");
            for (id, nanos) in late.into_iter().take(5) {
                let _ = writeln!(text, "  {} slack={}µs", self.label(id), ns(nanos));
            }
        }
        screened_lines(text)
    }

    fn label(&self, id: ExecutionNodeId) -> String {
        self.node(id).map_or_else(String::new, |node| printable(&node.name()))
    }
}

fn ns(nanos: u64) -> String {
    micros(nanos as f64)
}

/// What decides how long a pass took: the critical path, summed up by kind of step; then how long the
/// pass would take if the bricks or kernels of the given names took that many times as long (a name that
/// the graph lacks is reported as such); then the copies that undo each other.
///
/// # Panics
///
/// If a factor is negative or not a number.
#[must_use]
pub fn critical_path(graph: &ExecutionGraph, what_if: &[(String, f64)]) -> String {
    let schedule = match graph.schedule() {
        Ok(schedule) => schedule,
        Err(cycle) => return format!("{cycle}\n"),
    };
    let Some(mut text) = path_table(graph, MOST_ROWS) else {
        return "Nothing in this graph has a time.\n".to_owned();
    };
    for (name, factor) in what_if {
        let named = printable(name);
        let _ = match schedule.what_if(name, *factor) {
            None => writeln!(text, "\nwhat if {named} × {factor}: no node has that name"),
            Some(what_if) => writeln!(
                text,
                "\nwhat if {named} × {factor} ({}): {} µs instead of {} ({}{})",
                count(what_if.nodes as u64, "node"),
                ns(what_if.after_ns),
                ns(what_if.before_ns),
                if what_if.gain_ns() < 0 { "+" } else { "-" },
                micros(what_if.gain_ns().unsigned_abs() as f64),
            ),
        };
    }
    for found in graph.ping_pong_findings() {
        let (there, back) = match found.direction {
            TransferDirection::H2D => ("to the device", "back"),
            TransferDirection::D2H | TransferDirection::D2D => ("to the host", "back"),
        };
        let by = |scope: &Option<String>| {
            scope.as_ref().map_or(String::new(), |scope| format!(" by {}", printable(scope)))
        };
        let time = found.total_ns.map_or(String::new(), |nanos| format!(", {} µs", ns(nanos)));
        let _ = writeln!(
            text,
            "\nping-pong: {}, {} bytes, {} ×: {there}{}, {back}{}{time}",
            printable(&found.tensor),
            found.bytes,
            found.times,
            by(&found.there),
            by(&found.back),
        );
    }
    screened_lines(text)
}

/// A critical path, summed up by what its steps are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathSummary {
    /// The shortest time that the whole can take. The `own_ns` of `rows` and `rest` add up to it.
    pub makespan_ns: u64,
    /// Each kind of step, the longest first.
    pub rows: Vec<PathRow>,
    /// The sum of the remaining kinds, and how many there are.
    pub rest: Option<(PathRow, usize)>,
    /// The innermost nodes that took time and could end later without making the whole longer, those
    /// with the most slack first.
    pub slack: Vec<SlackRow>,
}

/// A kind of step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathRow {
    /// The brick and kernel, or a description of the time between them.
    pub label: String,
    /// Nanoseconds of the path that these steps took themselves.
    pub own_ns: u64,
    /// The number of these steps.
    pub times: u64,
    /// Nanoseconds by which the whole would be shorter if all of these took half as long; `None` for
    /// time that belongs to no named brick or kernel.
    pub saves_ns: Option<u64>,
}

/// A node that is not on the critical path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlackRow {
    /// The brick and kernel.
    pub label: String,
    /// Nanoseconds that it took.
    pub timing_ns: u64,
    /// Nanoseconds by which it could end later.
    pub slack_ns: u64,
}

/// The critical path of a graph, summed up by kind of step, with at most `most_rows` rows of each
/// kind.
///
/// `None` for a graph with a cycle, or without any time.
#[must_use]
pub fn path_summary(graph: &ExecutionGraph, most_rows: usize) -> Option<PathSummary> {
    let schedule = graph.schedule().ok()?;
    let total = schedule.makespan_ns();
    if total == 0 {
        return None;
    }
    let (bricks, is_around) = (graph.bricks_around(), graph.are_around_time());
    let labels: Vec<Label> = graph
        .with_ids()
        .map(|(id, node)| {
            let at = id.0 as usize;
            label(graph, id, &node, bricks[at], is_around[at])
        })
        .collect();
    // A number for each label: numbers compare faster than names.
    let mut numbers: HashMap<&Label, u32> = HashMap::new();
    let by_node: Vec<u32> = labels
        .iter()
        .map(|label| {
            let next = numbers.len() as u32;
            *numbers.entry(label).or_insert(next)
        })
        .collect();
    let rows = rows(&schedule, &labels);
    let (shown, rest) = rows.split_at(most_rows.min(rows.len()));
    let saves = |label: &Label| match label {
        // Time without a name can't be made faster by name.
        Label::Between(_) => None,
        Label::Named(_) => {
            let number = numbers.get(label).copied();
            let is_one = |id: ExecutionNodeId| Some(by_node[id.0 as usize]) == number;
            let halved = schedule.makespan_if(|id, own| if is_one(id) { own / 2 } else { own });
            Some(total.saturating_sub(halved))
        }
    };
    let shown = shown.iter().map(|row| PathRow {
        label: row.label.text().to_owned(),
        own_ns: row.nanos,
        times: row.times,
        saves_ns: saves(row.label),
    });
    let more = PathRow {
        label: format!("{} more", rest.len()),
        own_ns: rest.iter().fold(0, |sum, row| u64::saturating_add(sum, row.nanos)),
        times: rest.iter().map(|row| row.times).sum(),
        saves_ns: None,
    };
    let mut late: Vec<(ExecutionNodeId, u64)> = late(graph, &schedule, &is_around);
    late.truncate(most_rows);
    let slack = late.into_iter().map(|(id, slack_ns)| SlackRow {
        label: labels[id.0 as usize].text().to_owned(),
        timing_ns: graph.timing_ns(id).unwrap_or_default(),
        slack_ns,
    });
    Some(PathSummary {
        makespan_ns: total,
        rows: shown.collect(),
        rest: (!rest.is_empty()).then_some((more, rest.len())),
        slack: slack.collect(),
    })
}

/// The innermost nodes that took time and have slack, those with the most first.
fn late(
    graph: &ExecutionGraph,
    schedule: &Schedule<'_>,
    is_around: &[bool],
) -> Vec<(ExecutionNodeId, u64)> {
    let is_innermost = |id: ExecutionNodeId| {
        graph.timing_ns(id).is_some_and(|nanos| nanos > 0) && !is_around[id.0 as usize]
    };
    let mut late: Vec<(ExecutionNodeId, u64)> = schedule
        .slack()
        .iter()
        .map(|(id, &nanos)| (id, nanos))
        .filter(|&(id, nanos)| nanos > 0 && is_innermost(id))
        .collect();
    late.sort_by_key(|&(id, nanos)| (std::cmp::Reverse(nanos), id));
    late
}

/// The path of one pass summed up by kind of step, the longest first: how much of the pass each kind
/// takes, and what the pass would gain if it took half as long.
///
/// `None` for a graph with a cycle, or without any time.
#[doc(hidden)]
#[must_use]
pub fn path_table(graph: &ExecutionGraph, most_rows: usize) -> Option<String> {
    let PathSummary { makespan_ns: total, rows, rest, .. } = path_summary(graph, most_rows)?;
    let mut text = format!(
        "{:38} {:>10} {:>7} {:>6} {:>14}\n{}\n",
        "Critical path",
        "µs",
        "share",
        "times",
        "halving saves",
        "-".repeat(79)
    );
    for row in rows {
        let saves = row.saves_ns.map_or_else(String::new, ns);
        let line = format!(
            "{:38} {:>10} {:>7} {:>6} {saves:>14}",
            shortened(&row.label, 38, ""),
            ns(row.own_ns),
            percent(row.own_ns as f64, total as f64),
            row.times
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some((row, _)) = rest {
        let (nanos, share) = (ns(row.own_ns), percent(row.own_ns as f64, total as f64));
        let _ = writeln!(text, "{:38} {nanos:>10} {share:>7} {:>6}", row.label, row.times);
    }
    Some(text)
}

/// How a step is described.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Label {
    Named(String),
    /// Own time of passes, layers, and of bricks around their kernels.
    Between(&'static str),
}

impl Label {
    fn text(&self) -> &str {
        match self {
            Self::Named(text) => text,
            Self::Between(text) => text,
        }
    }
}

fn label(
    graph: &ExecutionGraph,
    id: ExecutionNodeId,
    node: &ExecutionNode,
    brick: Option<ExecutionNodeId>,
    is_around_time: bool,
) -> Label {
    match node {
        ExecutionNode::Layer { .. } => Label::Between("between the bricks of layers"),
        ExecutionNode::Function { .. } if graph.parent(id).is_none() => {
            Label::Between("unattributed")
        }
        // Time before a hand-off belongs to the brick; outside of bricks it is unattributed.
        ExecutionNode::Function { .. } if graph.is_point(id) && brick.is_none() => {
            Label::Between("unattributed")
        }
        ExecutionNode::Function { .. } if graph.is_point(id) => {
            Label::Between("in bricks, before hand-offs")
        }
        node if node.is_brick() && is_around_time => {
            Label::Between("between the kernels of bricks")
        }
        node if node.is_kernel() && is_around_time => {
            Label::Between("around the shares of kernels")
        }
        node => {
            // Labels tell steps apart, so they are longer than shown names.
            let name = printable_text(&node.name());
            Label::Named(match brick.and_then(|brick| graph.node(brick)) {
                Some(brick) => format!("{} › {name}", printable_text(&brick.name())),
                None => name,
            })
        }
    }
}

struct StepSum<'l> {
    label: &'l Label,
    nanos: u64,
    times: u64,
}

fn rows<'l>(schedule: &Schedule<'_>, labels: &'l [Label]) -> Vec<StepSum<'l>> {
    let mut rows: Vec<StepSum<'l>> = Vec::new();
    let mut known: HashMap<&Label, usize> = HashMap::new();
    for step in schedule.critical_path() {
        let label = &labels[step.node.0 as usize];
        let at = *known.entry(label).or_insert_with(|| {
            rows.push(StepSum { label, nanos: 0, times: 0 });
            rows.len() - 1
        });
        rows[at].nanos = rows[at].nanos.saturating_add(step.own_ns);
        rows[at].times += 1;
    }
    // Stable, so that equals stay in the order of the path.
    rows.sort_by_key(|row| std::cmp::Reverse(row.nanos));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brick::BrickId;
    use crate::graph::EdgeType;

    #[test]
    fn a_summary_adds_up_and_says_what_could_wait() {
        let mut graph = ExecutionGraph::new();
        let brick = |id, timing_ns| ExecutionNode::Brick { id, timing_ns, elements: 1 };
        let first = graph.add_node(brick(BrickId::RmsNorm, 1_000));
        let long = graph.add_node(brick(BrickId::LmHead, 9_000));
        let short = graph.add_node(brick(BrickId::Sampling, 2_000));
        graph.add_edge(first, long, EdgeType::Sequence);
        graph.add_dependency(first, short);
        let summary = path_summary(&graph, 1).expect("it has times");
        assert_eq!(summary.makespan_ns, 10_000);
        let row = |label: &str, own_ns, saves_ns| PathRow {
            label: label.to_owned(),
            own_ns,
            times: 1,
            saves_ns,
        };
        assert_eq!(summary.rows, [row("LmHead", 9_000, Some(4_500))]);
        assert_eq!(summary.rest, Some((row("1 more", 1_000, None), 1)));
        let slack = SlackRow { label: "Sampling".to_owned(), timing_ns: 2_000, slack_ns: 7_000 };
        assert_eq!(summary.slack, [slack]);
        assert_eq!(path_summary(&ExecutionGraph::new(), 1), None);
    }
}
