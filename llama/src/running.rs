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
    hot: Hot,
    /// The nodes of the part that is being listed or computed. Pointers, as atomics since those may go to other threads.
    nodes: Vec<AtomicPtr<c_void>>,
    hash: u64,
    pub(crate) parts: Vec<Part>,
    /// Whether something didn't fit.
    is_full: bool,
    /// Whether a callback panicked.
    pub(crate) has_failed: bool,
    /// The buffer of the last node.
    last_buffer: usize,
    /// The name of a buffer of this pass that isn't the CPU's.
    pub(crate) elsewhere: Option<String>,
    known: HashMap<u64, usize>,
    pub(crate) graphs: Vec<Vec<Listed>>,
}

/// What each node that ends needs, in one cache line: nodes stream weights through the caches, so that each line is a miss.
#[derive(Debug)]
#[repr(align(64))]
struct Hot {
    clock: Clock,
    /// When each node ended, of all parts.
    readings: Box<[u64]>,
    /// How many ended, whether or not there was room.
    ended: u32,
    is_listing: bool,
}

const _: () = assert!(size_of::<Hot>() == 64);

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
            hot: Hot {
                clock,
                readings: vec![0; MOST_NODES].into_boxed_slice(),
                ended: 0,
                is_listing: false,
            },
            nodes: Vec::with_capacity(MOST_NODES),
            hash: 0,
            parts: Vec::with_capacity(MOST_PARTS),
            is_full: false,
            has_failed: false,
            last_buffer: 0,
            elsewhere: None,
            known: HashMap::new(),
            graphs: Vec::new(),
        }
    }

    /// Forgets the last pass.
    pub(crate) fn begin(&mut self) {
        self.hot.is_listing = false;
        self.hot.ended = 0;
        self.parts.clear();
        self.is_full = false;
        self.has_failed = false;
        // Buffers may have been freed since.
        self.last_buffer = 0;
        self.elsewhere = None;
    }

    /// Whether a node lies in another buffer than the one before; not if it lies in none.
    #[inline]
    pub(crate) fn is_new_buffer(&mut self, buffer: usize) -> bool {
        buffer != 0 && std::mem::replace(&mut self.last_buffer, buffer) != buffer
    }

    /// A part of the pass is computed by another backend than the CPU's, in this buffer.
    pub(crate) fn go_elsewhere(&mut self, buffer: String) {
        self.elsewhere.get_or_insert(buffer);
    }

    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
    }

    /// A node of a graph that will be computed. `mix` adds it to a hash.
    #[inline]
    pub(crate) fn node_listed(&mut self, node: *mut c_void, mix: impl FnOnce(u64) -> u64) {
        if !self.hot.is_listing {
            self.hot.is_listing = true;
            self.nodes.clear();
            self.hash = 0;
            let first = self.hot.ended as usize;
            let listed_at = [self.hot.clock.now(); 2];
            let part = Part { listed: 0, listed_at, first, graph: None, described_at: None };
            push(&mut self.parts, part, &mut self.is_full);
        }
        push(&mut self.nodes, AtomicPtr::new(node), &mut self.is_full);
        self.hash = mix(self.hash);
        let now = self.hot.clock.now();
        if let Some(part) = self.parts.last_mut() {
            part.listed += 1;
            part.listed_at[1] = now;
        }
    }

    /// A node has been computed. Whether it is the first of a part: then [`find_graph`](Self::find_graph) comes next.
    #[inline(always)]
    pub(crate) fn node_ended(&mut self) -> bool {
        let hot = &mut self.hot;
        let now = hot.clock.now();
        if let Some(slot) = hot.readings.get_mut(hot.ended as usize) {
            *slot = now;
        }
        hot.ended = hot.ended.saturating_add(1);
        std::mem::replace(&mut hot.is_listing, false)
    }

    /// When each node ended, of all parts.
    pub(crate) fn readings(&self) -> &[u64] {
        let ended = (self.hot.ended as usize).min(self.hot.readings.len());
        &self.hot.readings[..ended]
    }

    /// Whether something didn't fit.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full || self.hot.ended as usize > self.hot.readings.len()
    }

    /// Which graph the part is. One that hasn't been seen is described now, by `list`, while its nodes are there: when the pass ends, the
    /// next graph may have taken their place.
    pub(crate) fn find_graph(&mut self, list: impl FnOnce(&[AtomicPtr<c_void>]) -> Vec<Listed>) {
        let Some(part) = self.parts.last_mut() else { return };
        if self.elsewhere.is_some() {
            return;
        }
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
        part.described_at = Some(self.hot.clock.now());
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
