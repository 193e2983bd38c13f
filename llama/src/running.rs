//! What callbacks store while a pass runs. What it was is found afterwards: see `recorder.rs`.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;

use brickscope::Clock;

use crate::executed::Listed;

/// Nodes that are listed, and readings in a pass, for which there is room. llama.cpp's largest graphs have some ten thousand
/// nodes, and a pass of many tokens computes several graphs.
const MOST_NODES: usize = 1 << 16;
/// Graphs, or parts of them, in a pass.
const MOST_PARTS: usize = 1 << 10;
/// Different graphs that are described: each has other shapes.
const MOST_GRAPHS: usize = 4096;

/// The pass that runs, and the graphs that were seen so far.
#[derive(Debug)]
pub(crate) struct Running {
    clock: Clock,
    /// The nodes of the part that is being listed or computed. Pointers, as atomics since those may go to other threads.
    nodes: Vec<AtomicPtr<c_void>>,
    hash: u64,
    is_listing: bool,
    pub(crate) parts: Vec<Part>,
    /// When each node ended, of all parts.
    pub(crate) readings: Vec<u64>,
    /// What didn't fit.
    pub(crate) is_full: bool,
    /// Whether a callback panicked.
    pub(crate) has_failed: bool,
    known: HashMap<u64, usize>,
    pub(crate) graphs: Vec<Vec<Listed>>,
}

/// A graph, or a part of one that was listed and computed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Nodes that were listed.
    pub(crate) listed: usize,
    /// When the first one was, and when the last one was.
    pub(crate) listed_at: [u64; 2],
    /// The index of its first reading.
    pub(crate) first: usize,
    /// Its index in `graphs`; `None` if no node of it ended.
    pub(crate) graph: Option<usize>,
    /// Until when it was described, after its first node, if it hadn't been seen before.
    pub(crate) described_at: Option<u64>,
}

impl Running {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            nodes: Vec::with_capacity(MOST_NODES),
            hash: 0,
            is_listing: false,
            parts: Vec::with_capacity(MOST_PARTS),
            readings: Vec::with_capacity(MOST_NODES),
            is_full: false,
            has_failed: false,
            known: HashMap::new(),
            graphs: Vec::new(),
        }
    }

    /// Forgets the last pass.
    pub(crate) fn begin(&mut self) {
        self.is_listing = false;
        self.parts.clear();
        self.readings.clear();
        self.is_full = false;
        self.has_failed = false;
    }

    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
    }

    /// A node of a graph that will be computed. `mix` adds it to a hash.
    #[inline]
    pub(crate) fn node_listed(&mut self, node: *mut c_void, mix: impl FnOnce(u64) -> u64) {
        if !self.is_listing {
            self.is_listing = true;
            self.nodes.clear();
            self.hash = 0;
            let first = self.readings.len();
            let listed_at = [self.clock.now(); 2];
            let part = Part { listed: 0, listed_at, first, graph: None, described_at: None };
            push(&mut self.parts, part, &mut self.is_full);
        }
        push(&mut self.nodes, AtomicPtr::new(node), &mut self.is_full);
        self.hash = mix(self.hash);
        let now = self.clock.now();
        if let Some(part) = self.parts.last_mut() {
            part.listed += 1;
            part.listed_at[1] = now;
        }
    }

    /// A node has been computed. `list` says what nodes are.
    #[inline]
    pub(crate) fn node_ended(&mut self, list: impl FnOnce(&[AtomicPtr<c_void>]) -> Vec<Listed>) {
        let now = self.clock.now();
        push(&mut self.readings, now, &mut self.is_full);
        if self.is_listing {
            self.is_listing = false;
            self.find_graph(list);
        }
    }

    /// Which graph it is. One that hasn't been seen is described now, while its nodes are there: when the pass ends, the
    /// next graph may have taken their place.
    fn find_graph(&mut self, list: impl FnOnce(&[AtomicPtr<c_void>]) -> Vec<Listed>) {
        let Some(part) = self.parts.last_mut() else { return };
        if let Some(&graph) = self.known.get(&self.hash)
            && self.graphs.get(graph).is_some_and(|nodes| nodes.len() == part.listed)
        {
            part.graph = Some(graph);
            return;
        }
        if self.is_full || self.graphs.len() == MOST_GRAPHS {
            self.is_full = true;
            return;
        }
        let graph = self.graphs.len();
        self.graphs.push(list(&self.nodes));
        self.known.insert(self.hash, graph);
        part.graph = Some(graph);
        part.described_at = Some(self.clock.now());
    }
}

/// Without taking memory: callbacks wait for nothing.
#[inline(always)]
fn push<T>(to: &mut Vec<T>, what: T, is_full: &mut bool) {
    if to.len() < to.capacity() {
        to.push(what);
    } else {
        *is_full = true;
    }
}
