//! The memory layout of a graph: a row of 40 bytes for each node, nine bytes for each edge, and each name
//! once. Ten million nodes with two edges each take less than a gigabyte.

use std::collections::HashMap;
use std::sync::Arc;

use super::node::{
    EdgeType, ExecutionEdge, ExecutionNode, ExecutionNodeId, HostLaunch, TransferDirection,
};
use crate::brick::BrickId;

/// The values for no name and no time.
const NO_NAME: u32 = u32::MAX;
const NO_TIME: u64 = u64::MAX;

/// When and where a node ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeTime {
    /// When it began, in nanoseconds of the run's clock.
    pub start_ns: u64,
    /// From begin to end, in nanoseconds.
    pub duration_ns: u64,
    /// The thread or stream: an index into the lanes of the profile.
    pub lane: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RowKind {
    Brick,
    NamedBrick,
    Kernel,
    Transfer,
    Function,
    Layer,
    AsyncTask,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) kind: RowKind,
    /// For a brick its [`BrickId`], for a transfer its direction, for a kernel the rates that it has, for a
    /// function whether it is a point.
    small: u8,
    lane: u16,
    name: u32,
    /// For a kernel its launch, for a transfer its destination, for a function its file, for a layer its
    /// index, for a task its entry in `tasks`.
    more: u32,
    duration: u64,
    start: u64,
    /// Elements, bytes, a line, or two rates.
    amount: u64,
}

/// What repeated launches of a kernel have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Launch {
    ptx_hash: u64,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    shared_mem: u32,
    host: Option<HostLaunch>,
}

const HAS_INTENSITY: u8 = 1;
const HAS_TFLOPS: u8 = 2;
/// For a function: see [`Store::mark_as_point`].
const IS_POINT: u8 = 1;

const DIRECTIONS: [TransferDirection; 3] =
    [TransferDirection::H2D, TransferDirection::D2H, TransferDirection::D2D];

/// The kinds of edges, by number; a transfer's direction is added to the last.
const CALLS: u8 = 0;
const CONTAINS: u8 = 1;
const LAUNCHES: u8 = 2;
const SEQUENCE: u8 = 3;
const DEPENDS_ON: u8 = 4;
const TRANSFER: u8 = 5;
/// Set for an edge with an entry in `unusual`.
const IS_UNUSUAL: u8 = 0x80;

/// Texts, each stored once.
#[derive(Debug, Clone, Default)]
struct Symbols {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Symbols {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.texts.len() as u32;
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    fn bytes(&self) -> usize {
        // The text with its two counts, its entry in each table, and a byte of the hash table itself.
        let each = 2 * size_of::<usize>() + 2 * size_of::<Arc<str>>() + size_of::<u32>() + 1;
        self.texts.iter().map(|text| text.len() + each).sum()
    }
}

/// A task's polls, yields, and nanoseconds in polls.
type Task = (u64, u64, u64);

#[derive(Debug, Clone, Default)]
pub(super) struct Store {
    rows: Vec<Row>,
    ends: Vec<(u32, u32)>,
    edge_kinds: Vec<u8>,
    /// Weights other than 1, and the bytes of transfers.
    unusual: HashMap<u32, (f32, u64)>,
    symbols: Symbols,
    launches: Vec<Arc<Launch>>,
    launch_numbers: HashMap<Arc<Launch>, u32>,
    tasks: Vec<Task>,
}

/// Grows by an eighth, not by half, so that a large graph doesn't take twice its size.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 8).max(64));
    }
    list.push(item);
}

impl Store {
    pub(super) fn n_nodes(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn n_edges(&self) -> usize {
        self.ends.len()
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let launches = self.launches.iter().map(|launch| {
            let shape = launch.host.as_ref().map_or(0, |host| host.shape.len());
            size_of::<Launch>() + 2 * size_of::<usize>() * 2 + size_of::<u32>() + 1 + shape
        });
        self.rows.capacity() * size_of::<Row>()
            + self.ends.capacity() * size_of::<(u32, u32)>()
            + self.edge_kinds.capacity()
            + self.unusual.capacity() * (size_of::<(u32, (f32, u64))>() + 1)
            + self.symbols.bytes()
            + launches.sum::<usize>()
            + self.tasks.capacity() * size_of::<Task>()
    }

    pub(super) fn row(&self, index: usize) -> &Row {
        &self.rows[index]
    }

    pub(super) fn ends(&self) -> &[(u32, u32)] {
        &self.ends
    }

    pub(super) fn add_node(&mut self, node: &ExecutionNode) -> u32 {
        // A node has two events in a schedule, and their numbers fit 32 bits.
        let id = u32::try_from(self.rows.len()).ok().filter(|&id| id < 1 << 31);
        let id = id.expect("a graph has at most 2^31 nodes");
        let row = self.row_of(node);
        push(&mut self.rows, row);
        id
    }

    fn row_of(&mut self, node: &ExecutionNode) -> Row {
        let mut row = Row {
            kind: RowKind::Layer,
            small: 0,
            lane: 0,
            name: NO_NAME,
            more: NO_NAME,
            duration: node.timing_ns().map_or(NO_TIME, |ns| ns.min(NO_TIME - 1)),
            start: NO_TIME,
            amount: 0,
        };
        match node {
            ExecutionNode::Brick { id, elements, .. } => {
                row.kind = RowKind::Brick;
                row.small = *id as u8;
                row.amount = *elements;
            }
            ExecutionNode::NamedBrick { name, elements, .. } => {
                row.kind = RowKind::NamedBrick;
                row.name = self.symbols.number(name);
                row.amount = *elements;
            }
            ExecutionNode::Kernel {
                name,
                ptx_hash,
                grid,
                block,
                shared_mem,
                arithmetic_intensity,
                achieved_tflops,
                ..
            } => {
                row.kind = RowKind::Kernel;
                row.name = self.symbols.number(name);
                row.more = self.launch(Launch {
                    ptx_hash: *ptx_hash,
                    grid: *grid,
                    block: *block,
                    shared_mem: *shared_mem,
                    host: None,
                });
                row.set_rates(*arithmetic_intensity, *achieved_tflops);
            }
            ExecutionNode::Routine {
                name, launch, arithmetic_intensity, achieved_tflops, ..
            } => {
                row.kind = RowKind::Kernel;
                row.name = self.symbols.number(name);
                row.more = self.launch(Launch {
                    ptx_hash: 0,
                    grid: (1, 1, 1),
                    block: (1, 1, 1),
                    shared_mem: 0,
                    host: Some(launch.clone()),
                });
                row.set_rates(*arithmetic_intensity, *achieved_tflops);
            }
            ExecutionNode::Transfer { src, dst, bytes, direction, .. } => {
                row.kind = RowKind::Transfer;
                row.small = direction_number(*direction);
                row.name = self.symbols.number(src);
                row.more = self.symbols.number(dst);
                row.amount = *bytes;
            }
            ExecutionNode::Function { name, file, line } => {
                row.kind = RowKind::Function;
                row.name = self.symbols.number(name);
                row.more = file.as_ref().map_or(NO_NAME, |file| self.symbols.number(file));
                row.amount = line.map_or(u64::MAX, u64::from);
            }
            ExecutionNode::Layer { index } => row.more = *index,
            ExecutionNode::AsyncTask { name, poll_count, yield_count, total_poll_ns } => {
                row.kind = RowKind::AsyncTask;
                row.name = self.symbols.number(name);
                row.more = self.tasks.len() as u32;
                self.tasks.push((*poll_count, *yield_count, *total_poll_ns));
            }
        }
        row
    }

    fn launch(&mut self, launch: Launch) -> u32 {
        if let Some(&number) = self.launch_numbers.get(&launch) {
            return number;
        }
        let number = self.launches.len() as u32;
        let launch = Arc::new(launch);
        self.launches.push(Arc::clone(&launch));
        self.launch_numbers.insert(launch, number);
        number
    }

    pub(super) fn node(&self, index: usize) -> Option<ExecutionNode> {
        let row = self.rows.get(index)?;
        let text = |number| self.symbols.text(number).to_owned();
        let timing_ns = row.duration();
        Some(match row.kind {
            RowKind::Brick => ExecutionNode::Brick {
                id: row.brick()?,
                timing_ns: timing_ns.unwrap_or_default(),
                elements: row.amount,
            },
            RowKind::NamedBrick => ExecutionNode::NamedBrick {
                name: text(row.name),
                timing_ns: timing_ns.unwrap_or_default(),
                elements: row.amount,
            },
            RowKind::Kernel => {
                let Launch { ptx_hash, grid, block, shared_mem, host } =
                    &*self.launches[row.more as usize];
                let (arithmetic_intensity, achieved_tflops) = row.rates();
                let name = text(row.name);
                if let Some(launch) = host.clone() {
                    return Some(ExecutionNode::Routine {
                        name,
                        launch,
                        timing_ns,
                        arithmetic_intensity,
                        achieved_tflops,
                    });
                }
                ExecutionNode::Kernel {
                    name,
                    ptx_hash: *ptx_hash,
                    grid: *grid,
                    block: *block,
                    shared_mem: *shared_mem,
                    timing_ns,
                    arithmetic_intensity,
                    achieved_tflops,
                }
            }
            RowKind::Transfer => ExecutionNode::Transfer {
                src: text(row.name),
                dst: text(row.more),
                bytes: row.amount,
                direction: row.direction(),
                timing_ns,
            },
            RowKind::Function => ExecutionNode::Function {
                name: text(row.name),
                file: (row.more != NO_NAME).then(|| text(row.more)),
                line: u32::try_from(row.amount).ok(),
            },
            RowKind::Layer => ExecutionNode::Layer { index: row.more },
            RowKind::AsyncTask => {
                let (poll_count, yield_count, total_poll_ns) = self.tasks[row.more as usize];
                let name = text(row.name);
                ExecutionNode::AsyncTask { name, poll_count, yield_count, total_poll_ns }
            }
        })
    }

    /// Marks a function as a point between spans.
    pub(super) fn mark_as_point(&mut self, index: usize) {
        self.rows[index].small = IS_POINT;
    }

    pub(super) fn set_time(&mut self, index: usize, time: NodeTime) {
        let row = &mut self.rows[index];
        row.start = time.start_ns.min(NO_TIME - 1);
        row.duration = time.duration_ns.min(NO_TIME - 1);
        row.lane = time.lane;
    }

    /// Whether [`ExecutionNode::name`] of the node is `name`, without building it.
    pub(super) fn is_named(&self, index: usize, name: &str) -> bool {
        let row = &self.rows[index];
        match row.kind {
            RowKind::Brick => row.brick().is_some_and(|id| id.name() == name),
            RowKind::Layer => {
                let index = name.strip_prefix("Layer ").and_then(|index| index.parse().ok());
                index == Some(row.more)
            }
            RowKind::Transfer => self.node(index).is_some_and(|node| node.name() == name),
            _ => self.symbols.text(row.name) == name,
        }
    }

    /// The two names of a transfer.
    pub(super) fn places(&self, row: &Row) -> (&str, &str) {
        (self.symbols.text(row.name), self.symbols.text(row.more))
    }

    pub(super) fn add_edge(&mut self, edge: &ExecutionEdge) {
        let id = u32::try_from(self.ends.len()).expect("a graph has fewer than 2^32 edges");
        let (mut kind, bytes) = match edge.edge_type {
            EdgeType::Calls => (CALLS, 0),
            EdgeType::Contains => (CONTAINS, 0),
            EdgeType::Launches => (LAUNCHES, 0),
            EdgeType::Sequence => (SEQUENCE, 0),
            EdgeType::DependsOn => (DEPENDS_ON, 0),
            EdgeType::Transfer { bytes, direction } => {
                (TRANSFER + direction_number(direction), bytes)
            }
        };
        if edge.weight != 1.0 || bytes > 0 {
            kind |= IS_UNUSUAL;
            self.unusual.insert(id, (edge.weight, bytes));
        }
        push(&mut self.ends, (edge.src.0, edge.dst.0));
        push(&mut self.edge_kinds, kind);
    }

    pub(super) fn edge(&self, index: usize) -> ExecutionEdge {
        let (src, dst) = self.ends[index];
        let kind = self.edge_kinds[index];
        let unusual = (kind & IS_UNUSUAL != 0).then(|| self.unusual.get(&(index as u32))).flatten();
        let &(weight, bytes) = unusual.unwrap_or(&(1.0, 0));
        let edge_type = match kind & !IS_UNUSUAL {
            CALLS => EdgeType::Calls,
            CONTAINS => EdgeType::Contains,
            LAUNCHES => EdgeType::Launches,
            SEQUENCE => EdgeType::Sequence,
            DEPENDS_ON => EdgeType::DependsOn,
            kind => {
                let direction = DIRECTIONS[usize::from(kind - TRANSFER) % DIRECTIONS.len()];
                EdgeType::Transfer { bytes, direction }
            }
        };
        ExecutionEdge { src: ExecutionNodeId(src), dst: ExecutionNodeId(dst), edge_type, weight }
    }

    /// Whether the edge says that one node lies inside the other, rather than after it.
    pub(super) fn nests(&self, edge: usize) -> bool {
        self.edge_kinds[edge] & !IS_UNUSUAL <= LAUNCHES
    }
}

fn direction_number(direction: TransferDirection) -> u8 {
    match direction {
        TransferDirection::H2D => 0,
        TransferDirection::D2H => 1,
        TransferDirection::D2D => 2,
    }
}

impl Row {
    pub(super) fn duration(&self) -> Option<u64> {
        (self.duration != NO_TIME).then_some(self.duration)
    }

    pub(super) fn time(&self) -> Option<NodeTime> {
        let duration_ns = self.duration()?;
        let lane = self.lane;
        (self.start != NO_TIME).then_some(NodeTime { start_ns: self.start, duration_ns, lane })
    }

    pub(super) fn is_point(&self) -> bool {
        self.kind == RowKind::Function && self.small == IS_POINT
    }

    pub(super) fn is_brick(&self) -> bool {
        matches!(self.kind, RowKind::Brick | RowKind::NamedBrick)
    }

    fn brick(&self) -> Option<BrickId> {
        BrickId::ALL.get(usize::from(self.small)).copied()
    }

    pub(super) fn direction(&self) -> TransferDirection {
        DIRECTIONS[usize::from(self.small) % DIRECTIONS.len()]
    }

    /// Bytes of a transfer.
    pub(super) fn bytes(&self) -> u64 {
        self.amount
    }

    fn set_rates(&mut self, intensity: Option<f32>, tflops: Option<f32>) {
        let bits = |rate: Option<f32>| u64::from(rate.unwrap_or_default().to_bits());
        self.small =
            u8::from(intensity.is_some()) * HAS_INTENSITY + u8::from(tflops.is_some()) * HAS_TFLOPS;
        self.amount = bits(intensity) << 32 | bits(tflops);
    }

    /// FLOPs per byte, and TFLOP/s, of a kernel.
    pub(super) fn rates(&self) -> (Option<f32>, Option<f32>) {
        let rate = |flag, bits| (self.small & flag != 0).then(|| f32::from_bits(bits));
        (rate(HAS_INTENSITY, (self.amount >> 32) as u32), rate(HAS_TFLOPS, self.amount as u32))
    }
}

/// Each node's edges, in the order in which they were added.
#[derive(Debug, Clone)]
pub(super) struct Index {
    outgoing: Lists,
    incoming: Lists,
}

#[derive(Debug, Clone)]
struct Lists {
    /// The index in `edges` at which each node's list begins, plus one for the end.
    begins: Vec<u32>,
    edges: Vec<u32>,
}

impl Lists {
    fn new(n_nodes: usize, keys: impl Iterator<Item = u32> + Clone) -> Self {
        let mut begins = vec![0_u32; n_nodes + 1];
        for key in keys.clone() {
            begins[key as usize + 1] += 1;
        }
        for node in 0..n_nodes {
            begins[node + 1] += begins[node];
        }
        let mut edges = vec![0; begins[n_nodes] as usize];
        // `begins` serves as the position to write to, and is restored afterwards.
        for (edge, key) in (0..).zip(keys) {
            let place = &mut begins[key as usize];
            edges[*place as usize] = edge;
            *place += 1;
        }
        begins.copy_within(0..n_nodes, 1);
        begins[0] = 0;
        Self { begins, edges }
    }

    fn of(&self, node: usize) -> &[u32] {
        match self.begins.get(node..node + 2) {
            Some(&[begin, end]) => &self.edges[begin as usize..end as usize],
            _ => &[],
        }
    }

    fn bytes(&self) -> usize {
        (self.begins.capacity() + self.edges.capacity()) * size_of::<u32>()
    }
}

impl Index {
    pub(super) fn new(store: &Store) -> Self {
        let n_nodes = store.n_nodes();
        Self {
            outgoing: Lists::new(n_nodes, store.ends.iter().map(|&(src, _)| src)),
            incoming: Lists::new(n_nodes, store.ends.iter().map(|&(_, dst)| dst)),
        }
    }

    /// The indices of the edges that begin at a node; none if the node doesn't exist.
    pub(super) fn outgoing(&self, node: usize) -> &[u32] {
        self.outgoing.of(node)
    }

    pub(super) fn incoming(&self, node: usize) -> &[u32] {
        self.incoming.of(node)
    }

    pub(super) fn bytes(&self) -> usize {
        self.outgoing.bytes() + self.incoming.bytes()
    }
}
