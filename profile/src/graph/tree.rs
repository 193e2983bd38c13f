//! The execution graph as a tree of text.

use std::collections::HashMap;
use std::fmt::Write;

use crate::graph::nesting::Nesting;
use crate::graph::{ExecutionGraph, ExecutionNode};
use crate::text::{cut_in_the_middle, micros, printable, printable_text, screened_lines};

/// Which part of a graph a tree shows. By default all of it.
///
/// A line that begins with `…` counts what is left out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TreeOptions {
    /// At most this many levels; a line whose children are left out says how many nodes are inside.
    pub depth: Option<usize>,
    /// Only this transformer layer.
    pub layer: Option<u32>,
    /// Only nodes that took at least this share, 0 to 1, of the time of everything in the tree. Nodes
    /// that weren't timed stay, since their share is unknown.
    pub min_share: Option<f64>,
    /// Sibling layers of the same bricks and kernels become one line, `Layers 0–21  ×22`. The lines
    /// below it have the sums of their measured times, so that the lines of a tree add up, and for
    /// bricks the minimum and maximum of one layer, so that a layer that differs can't hide.
    pub fold: bool,
}

/// The most levels that are indented. Deeper lines state their level instead, counted as for
/// [`TreeOptions::depth`]; otherwise a graph of 100 000 levels would take gigabytes of blanks.
const MOST_INDENTED: usize = 16;

impl ExecutionGraph {
    /// The graph as a tree: what contains or launches what.
    ///
    /// Deterministic, without a final line break, and without recursion, so no graph is too deep;
    /// beyond 16 levels, lines state their level instead of being indented further. A node that
    /// several others contain is shown under the first of them.
    #[must_use]
    pub fn to_ascii_tree(&self) -> String {
        self.to_tree(&TreeOptions::default())
    }

    /// As [`to_ascii_tree`](Self::to_ascii_tree), of a part of the graph or with layers folded.
    ///
    /// ```
    /// use brickscope::{BrickId, ExecutionGraph, ExecutionNode, TreeOptions};
    ///
    /// let mut graph = ExecutionGraph::new();
    /// for (index, timing_ns) in [(0, 90_000), (1, 110_000), (2, 100_000)] {
    ///     graph.push_scope(ExecutionNode::Layer { index });
    ///     let id = BrickId::QkvProjection;
    ///     graph.add_node_in_scope(ExecutionNode::Brick { id, timing_ns, elements: 4096 });
    ///     graph.pop_scope();
    /// }
    /// let options = TreeOptions { fold: true, ..TreeOptions::default() };
    /// assert_eq!(
    ///     graph.to_tree(&options),
    ///     "Layers 0–2  ×3, 300.0µs sum, 90.0–110.0µs each\n\
    ///      └── QkvProjection  300.0µs sum, 90.0–110.0µs each (4096 elem)"
    /// );
    /// ```
    #[must_use]
    pub fn to_tree(&self, options: &TreeOptions) -> String {
        let nesting = Nesting::new(self);
        if nesting.roots().is_empty() {
            return match self.num_nodes() {
                0 => "(empty graph)".to_owned(),
                // Every node is contained in another, so the edges form a cycle.
                _ => "(every node is inside another: the graph has a cycle)".to_owned(),
            };
        }
        let shapes = if options.fold { shapes(&nesting) } else { Vec::new() };
        let mut tree = Tree { nesting, shapes, options: *options, least_ns: 0.0 };
        match tree.top() {
            Ok(lines) => screened_lines(tree.write(lines)),
            Err(why) => why,
        }
    }
}

/// Nodes that a drawing has one box for: one, or those of folded layers that differ only in their times.
pub(super) struct Group {
    pub(super) nodes: Vec<u32>,
    /// The group that contains it, by number.
    pub(super) parent: Option<usize>,
}

/// The lines of a tree as groups, parents first. There are none if there is no such layer, or nothing that
/// lies in no other.
pub(super) fn groups(
    nesting: Nesting<'_>,
    layer: Option<u32>,
    fold: bool,
) -> (Nesting<'_>, Vec<Group>) {
    let shapes = if fold { shapes(&nesting) } else { Vec::new() };
    let tops = match layer {
        Some(layer) => only_layer(&nesting, layer).0,
        None => nesting.roots().to_vec(),
    };
    let options = TreeOptions { fold, layer, ..TreeOptions::default() };
    let tree = Tree { nesting, shapes, options, least_ns: 0.0 };
    let folded = |nodes: Vec<Nodes>| if fold { tree.fold(nodes) } else { nodes };
    let mut groups: Vec<Group> = Vec::new();
    let mut todo: Vec<(Nodes, Option<usize>)> =
        folded(tops.into_iter().map(Nodes::One).collect()).into_iter().map(|n| (n, None)).collect();
    todo.reverse();
    while let Some((nodes, parent)) = todo.pop() {
        let number = groups.len();
        let children = folded(tree.children(&nodes));
        todo.extend(children.into_iter().rev().map(|child| (child, Some(number))));
        groups.push(Group { nodes: nodes.as_slice().to_vec(), parent });
    }
    (tree.nesting, groups)
}

/// A tree that is being written.
struct Tree<'g> {
    nesting: Nesting<'g>,
    /// If layers are folded, a number for each node that identifies what is below it.
    shapes: Vec<u32>,
    options: TreeOptions,
    /// Nodes that take less are left out.
    least_ns: f64,
}

/// One node, or nodes of folded layers that differ only in their times.
enum Nodes {
    One(u32),
    Same(Vec<u32>),
}

impl Nodes {
    fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(node) => std::slice::from_ref(node),
            Self::Same(nodes) => nodes,
        }
    }
}

/// A line of the tree.
enum Line {
    Nodes(Nodes),
    /// A count of what is left out.
    Rest {
        what: &'static str,
        rest: Rest,
    },
}

/// Nodes that are left out.
#[derive(Default)]
struct Rest {
    nodes: u64,
    inside: u64,
    nanos: u64,
    is_timed: bool,
}

impl Rest {
    fn add(&mut self, nesting: &Nesting<'_>, node: u32) {
        let time = nesting.time(node);
        self.is_timed = time.is_some() && (self.is_timed || self.nodes == 0);
        self.nodes += 1;
        self.inside += nesting.inside(node);
        self.nanos = self.nanos.saturating_add(time.unwrap_or_default());
    }
}

impl Tree<'_> {
    /// The lines of the first level, or why there are none.
    fn top(&mut self) -> Result<Vec<Line>, String> {
        let nesting = &self.nesting;
        let mut tops = nesting.roots().to_vec();
        let mut others = Rest::default();
        if let Some(layer) = self.options.layer {
            (tops, others) = only_layer(nesting, layer);
            if tops.is_empty() {
                return Err(format!("(no layer {layer})"));
            }
        }
        if let Some(share) = self.options.min_share {
            let total = tops
                .iter()
                .fold(0, |sum, &node| u64::saturating_add(sum, nesting.known_time(node)));
            self.least_ns = share * total as f64;
        }
        let nesting = &self.nesting;
        let circle = self.nesting.n_shown() - nesting.order().len() as u64;
        let mut lines = self.lines(tops.into_iter().map(Nodes::One).collect(), 0);
        if others.nodes > 0 {
            lines.push(Line::Rest { what: "outside of this layer: ", rest: others });
        }
        if circle > 0 {
            let rest = Rest { nodes: circle, ..Rest::default() };
            lines.push(Line::Rest { what: "in a cycle: ", rest });
        }
        Ok(lines)
    }

    fn write(&self, lines: Vec<Line>) -> String {
        /// Siblings that are still to be written, and how much of the prefix is before them.
        struct Level {
            lines: std::vec::IntoIter<Line>,
            prefix_len: usize,
        }
        let mut text = String::new();
        // A single root stands at the margin.
        let margin = usize::from(lines.len() == 1);
        if margin == 0 {
            text.push_str("Execution Graph\n");
        }
        let mut prefix = String::new();
        let mut levels = vec![Level { lines: lines.into_iter(), prefix_len: 0 }];
        while let Some(level) = levels.last_mut() {
            prefix.truncate(level.prefix_len);
            let Some(line) = level.lines.next() else {
                levels.pop();
                continue;
            };
            let is_last = level.lines.as_slice().is_empty();
            let depth = levels.len();
            let indent = depth - margin;
            text.push_str(&prefix);
            match (indent, is_last) {
                (0, _) => {}
                (indent, _) if indent > MOST_INDENTED => {
                    let _ = write!(text, "{}─{depth}─ ", if is_last { '└' } else { '├' });
                }
                (_, true) => text.push_str("└── "),
                (_, false) => text.push_str("├── "),
            }
            match line {
                Line::Nodes(nodes) => {
                    self.write_nodes(&nodes, depth, &mut text);
                    if self.options.depth.is_none_or(|most| depth < most) {
                        if (1..MOST_INDENTED).contains(&indent) {
                            prefix.push_str(if is_last { "    " } else { "│   " });
                        }
                        let lines = self.lines(self.children(&nodes), depth);
                        levels.push(Level { lines: lines.into_iter(), prefix_len: prefix.len() });
                    }
                }
                Line::Rest { what, rest } => write_rest(what, &rest, &mut text),
            }
            text.push('\n');
        }
        text.pop();
        text
    }

    /// The line of a node, or of several that differ only in their times.
    fn write_nodes(&self, nodes: &Nodes, depth: usize, text: &mut String) {
        let nesting = &self.nesting;
        let members = nodes.as_slice();
        let first = nesting.node(members[0]);
        // The sum of children's times, for a node whose own was not measured.
        let mut sum = self.time(nodes).filter(|_| nesting.own_time(members[0]).is_none());
        match nodes {
            Nodes::One(node) => label(&first, nesting.own_time(*node)).write_in_line(None, text),
            Nodes::Same(_) => {
                let times = Times::of(members.iter().map(|&node| nesting.time(node)));
                match &first {
                    ExecutionNode::Layer { .. } => {
                        let _ = write!(
                            text,
                            "{}  ×{}",
                            ranges(members.iter().filter_map(|&node| nesting.layer(node))),
                            members.len()
                        );
                        if let Some(times) = times {
                            let _ = write!(text, ", {}", times.in_full());
                        }
                        sum = None;
                    }
                    node => {
                        let range = times.filter(|_| node.is_brick()).map(Times::in_full);
                        let times = range.or(times.map(Times::sum));
                        label(node, nesting.own_time(members[0]))
                            .write_in_line(times.as_deref(), text);
                    }
                }
            }
        }
        let inside: u64 = members.iter().map(|&node| nesting.inside(node)).sum();
        if inside > 0 && self.options.depth.is_some_and(|most| depth >= most) {
            let _ = write!(text, "  … {inside} inside");
            if let Some(nanos) = sum {
                let _ = write!(text, ", {}µs sum", micros(nanos as f64));
            }
        }
    }

    /// The sum of the nodes' times, if all are known.
    fn time(&self, nodes: &Nodes) -> Option<u64> {
        let mut times = nodes.as_slice().iter().map(|&node| self.nesting.time(node));
        times.try_fold(0, |sum, time| Some(u64::saturating_add(sum, time?)))
    }

    /// The children of nodes: the n-th children of nodes of one shape are of one shape too.
    fn children(&self, nodes: &Nodes) -> Vec<Nodes> {
        match nodes {
            Nodes::One(node) => {
                self.nesting.children(*node).iter().map(|&node| Nodes::One(node)).collect()
            }
            Nodes::Same(members) => {
                let nth =
                    |n: usize| members.iter().map(move |&node| self.nesting.children(node)[n]);
                let n_children = self.nesting.children(members[0]).len();
                (0..n_children).map(|n| Nodes::Same(nth(n).collect())).collect()
            }
        }
    }

    /// The lines of siblings at `depth` + 1: layers folded, what is left out summed up.
    fn lines(&self, siblings: Vec<Nodes>, depth: usize) -> Vec<Line> {
        let siblings = if self.options.fold { self.fold(siblings) } else { siblings };
        let mut rest = Rest::default();
        let is_too_deep = self.options.depth.is_some_and(|most| depth >= most);
        let mut lines = Vec::with_capacity(siblings.len());
        for nodes in siblings {
            let is_short = self.time(&nodes).is_some_and(|nanos| (nanos as f64) < self.least_ns);
            if is_short || is_too_deep {
                nodes.as_slice().iter().for_each(|&node| rest.add(&self.nesting, node));
            } else {
                lines.push(Line::Nodes(nodes));
            }
        }
        if rest.nodes > 0 {
            lines.push(Line::Rest { what: "", rest });
        }
        lines
    }

    /// Folds layers of the same shape, as far as only layers lie between them.
    fn fold(&self, siblings: Vec<Nodes>) -> Vec<Nodes> {
        let mut folded: Vec<Nodes> = Vec::new();
        // The index in `folded` of each shape, by stretch of consecutive layers.
        let mut known: HashMap<(usize, u32), usize> = HashMap::new();
        let mut stretch = 0;
        for nodes in siblings {
            let first = nodes.as_slice()[0];
            if self.nesting.layer(first).is_none() {
                stretch += 1;
                folded.push(nodes);
                continue;
            }
            let at = *known.entry((stretch, self.shapes[first as usize])).or_insert(folded.len());
            match folded.get_mut(at) {
                None => folded.push(nodes),
                Some(Nodes::Same(all)) => all.extend(nodes.as_slice()),
                Some(one) => *one = Nodes::Same([one.as_slice(), nodes.as_slice()].concat()),
            }
        }
        folded
    }
}

/// The layers with this number, and what is outside of them.
fn only_layer(nesting: &Nesting<'_>, layer: u32) -> (Vec<u32>, Rest) {
    #[derive(Clone, Copy, PartialEq)]
    enum Is {
        Other,
        /// Something in it is shown.
        Above,
        Shown,
    }
    let mut nodes = vec![Is::Other; nesting.n_nodes() as usize];
    let mut shown = Vec::new();
    for &node in nesting.order() {
        let parent = nesting.parent(node);
        if parent.is_some_and(|parent| nodes[parent as usize] == Is::Shown) {
            nodes[node as usize] = Is::Shown;
        } else if nesting.layer(node) == Some(layer) {
            nodes[node as usize] = Is::Shown;
            shown.push(node);
            let mut above = parent;
            while let Some(node) = above.filter(|&node| nodes[node as usize] == Is::Other) {
                nodes[node as usize] = Is::Above;
                above = nesting.parent(node);
            }
        }
    }
    let mut rest = Rest::default();
    let mut n_above = 0;
    for &node in nesting.order() {
        let is_top = nesting.parent(node).is_none_or(|parent| nodes[parent as usize] == Is::Above);
        match nodes[node as usize] {
            Is::Other if is_top => rest.add(nesting, node),
            Is::Above => n_above += 1,
            Is::Other | Is::Shown => {}
        }
    }
    rest.nodes += n_above;
    (shown, rest)
}

fn write_rest(what: &str, rest: &Rest, text: &mut String) {
    let _ = write!(text, "… {what}{} more", rest.nodes);
    if rest.inside > 0 {
        let _ = write!(text, " with {} inside", rest.inside);
    }
    if rest.is_timed {
        let _ = write!(text, ", {}µs", micros(rest.nanos as f64));
    }
}

/// The measured times of nodes that are shown as one.
#[derive(Clone, Copy)]
pub(super) struct Times {
    sum: u64,
    least: u64,
    most: u64,
}

impl Times {
    /// `None` unless all are known.
    pub(super) fn of(times: impl Iterator<Item = Option<u64>>) -> Option<Self> {
        let mut all = Self { sum: 0, least: u64::MAX, most: 0 };
        for time in times {
            let nanos = time?;
            all.sum = all.sum.saturating_add(nanos);
            all.least = all.least.min(nanos);
            all.most = all.most.max(nanos);
        }
        Some(all)
    }

    pub(super) fn sum(self) -> String {
        format!("{}µs sum", micros(self.sum as f64))
    }

    pub(super) fn in_full(self) -> String {
        let (least, most) = (micros(self.least as f64), micros(self.most as f64));
        let each = if least == most { least } else { format!("{least}–{most}") };
        format!("{}, {each}µs each", self.sum())
    }
}

/// `Layers 0–3, 6, 9–11`; a long list is cut short.
pub(super) fn ranges(layers: impl Iterator<Item = u32>) -> String {
    /// As many as fit in a line beside the times.
    const MOST_RANGES: usize = 6;
    let mut numbers: Vec<u32> = layers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    let runs: Vec<&[u32]> = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b)).collect();
    let mut parts: Vec<String> = runs
        .iter()
        .take(MOST_RANGES)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}–{last}"),
            [] => String::new(),
        })
        .collect();
    if runs.len() > MOST_RANGES {
        parts.push("…".to_owned());
    }
    format!("{} {}", if numbers.len() == 1 { "Layer" } else { "Layers" }, parts.join(", "))
}

/// A number for each node's subtree: two nodes have the same number if and only if the trees below
/// them differ only in times.
fn shapes(nesting: &Nesting<'_>) -> Vec<u32> {
    let mut shapes = vec![0; nesting.n_nodes() as usize];
    let mut labels = HashMap::new();
    let mut known = HashMap::new();
    // Children before their parents, so that a shape is a list of two numbers for each child.
    for &node in nesting.order().iter().rev() {
        let children = nesting.children(node).iter();
        let below: Vec<(u32, u32)> = children
            .map(|&child| {
                let node = nesting.node(child);
                let Label { head, time, tail, .. } = label(&node, nesting.own_time(child));
                let next = labels.len() as u32;
                let label = *labels.entry((head, time.is_some(), tail)).or_insert(next);
                (label, shapes[child as usize])
            })
            .collect();
        let next = known.len() as u32;
        shapes[node as usize] = *known.entry(below).or_insert(next);
    }
    shapes
}

/// A node's name and what is known of it.
pub(super) struct Label {
    head: String,
    /// How many characters of it are the name.
    name_len: usize,
    /// Between head and time.
    gap: &'static str,
    time: Option<u64>,
    tail: String,
}

/// The most columns of a line, as long as there is room for [`LEAST_NAME`].
const COLUMNS: usize = 80;
/// The most characters of a name, wherever it is.
const MOST_NAME: usize = 200;
/// The fewest characters of a name that is cut.
const LEAST_NAME: usize = 20;

impl Label {
    /// Writes the label behind what the last line of `text` has, with its name cut in the middle if the line would be too
    /// long.
    fn write_in_line(mut self, times: Option<&str>, text: &mut String) {
        let before = text.rsplit('\n').next().map_or(0, |line| line.chars().count());
        let mut label = String::new();
        self.write(times, &mut label);
        let over = (before + label.chars().count()).saturating_sub(COLUMNS);
        if over > 0 && self.name_len > LEAST_NAME {
            let name: String = self.head.chars().take(self.name_len).collect();
            let rest: String = self.head.chars().skip(self.name_len).collect();
            let width = self.name_len.saturating_sub(over).max(LEAST_NAME);
            self.head = cut_in_the_middle(&name, width) + &rest;
        }
        self.write(times, text);
    }

    /// Writes the label, with `times` instead of its own time where there are several.
    pub(super) fn write(&self, times: Option<&str>, text: &mut String) {
        text.push_str(&self.head);
        if let Some(nanos) = self.time {
            text.push_str(self.gap);
            match times {
                Some(times) => text.push_str(times),
                None => {
                    let _ = write!(text, "{}µs", micros(nanos as f64));
                }
            }
        }
        text.push_str(&self.tail);
    }
}

/// `time`: the node's own, if it was measured.
pub(super) fn label(node: &ExecutionNode, time: Option<u64>) -> Label {
    let name = cut_in_the_middle(&node.name(), MOST_NAME);
    let name_len = name.chars().count();
    let (head, gap, tail) = match node {
        ExecutionNode::Layer { .. } => (name, "  ", String::new()),
        ExecutionNode::Brick { elements, .. } | ExecutionNode::NamedBrick { elements, .. } => {
            // Nobody stated them.
            let stated = (*elements > 0).then(|| format!(" ({elements} elem)"));
            (name, "  ", stated.unwrap_or_default())
        }
        ExecutionNode::Routine { launch: host, .. } => {
            let shape = printable(&host.shape);
            let gap = if shape.is_empty() { "" } else { "  " };
            let threads = if host.threads > 1 {
                format!("  {} threads", host.threads)
            } else {
                String::new()
            };
            (format!("{name}{gap}{shape}{threads}"), "  ", String::new())
        }
        ExecutionNode::Kernel { grid, block, shared_mem, .. } => {
            (format!("{name}  {} smem={shared_mem}B", launch(*grid, *block)), "  ", String::new())
        }
        ExecutionNode::Function { file, line, .. } => {
            let head = match (file, line) {
                (Some(file), Some(line)) => format!("{name} ({}:{line})", printable_text(file)),
                (Some(file), None) => format!("{name} ({})", printable_text(file)),
                (None, _) => name,
            };
            (head, "  ", String::new())
        }
        ExecutionNode::Transfer { bytes, .. } => (format!("{name}  {bytes}B"), " ", String::new()),
        ExecutionNode::AsyncTask { poll_count, yield_count, .. } => {
            let share = node.poll_efficiency();
            let share = share.map(|share| format!(" ({:.0}% eff)", 100.0 * share));
            let head = format!("{name}  polls:{poll_count} yields:{yield_count}");
            (head, " ", share.unwrap_or_default())
        }
    };
    Label { head, name_len, gap, time, tail }
}

type Dimensions = (u32, u32, u32);

/// `<<<blocks,threads,1>>>` of a launch in one dimension; in full where there are more.
#[must_use]
pub fn launch(grid: Dimensions, block: Dimensions) -> String {
    let flat = |d: Dimensions| d.1 == 1 && d.2 == 1;
    if flat(grid) && flat(block) {
        format!("<<<{},{},{}>>>", grid.0, block.0, block.1)
    } else {
        format!("<<<({},{},{}),({},{},{})>>>", grid.0, grid.1, grid.2, block.0, block.1, block.2)
    }
}
