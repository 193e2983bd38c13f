//! The step that SPM and BPE share: merge the best pair of neighbours until none is left.
//!
//! ```text
//! symbols   ▁ ⇄ a ⇄ b ⇄ c        a linked list in a vector, so that a merge is O(1)
//! queue     (ab, 0.9) (bc, 0.5)   best first, then leftmost; stale entries are skipped when met
//! ```
//!
//! Each merge removes one symbol and queues at most two pairs, so `n` symbols take O(n log n)
//! whatever the text is. The loop has no recursion: depth doesn't grow with the text.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// No neighbour.
const NONE: usize = usize::MAX;

/// A stretch of the text that is one token, or that no token stands for (yet).
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) id: Option<u32>,
    pub(super) start: usize,
    // 0 once it was merged into its left neighbour.
    pub(super) len: usize,
    prev: usize,
    next: usize,
}

/// A pair that could be merged. It is stale if either side has grown or gone since.
#[derive(Debug)]
struct Pair<P> {
    priority: P,
    left: usize,
    right: usize,
    len: usize,
    id: u32,
}

impl<P: Ord> Ord for Pair<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.priority, Reverse(self.left)).cmp(&(&other.priority, Reverse(other.left)))
    }
}

impl<P: Ord> PartialOrd for Pair<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Ord> PartialEq for Pair<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P: Ord> Eq for Pair<P> {}

/// Merges symbols; keeps its allocations from one piece of text to the next.
#[derive(Debug)]
pub(super) struct Merger<P> {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Pair<P>>,
}

impl<P: Ord> Merger<P> {
    pub(super) fn new() -> Self {
        Self { symbols: Vec::new(), queue: BinaryHeap::new() }
    }

    /// Begins a new piece.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Adds a symbol of `len` bytes (at least one) to the right of the last one.
    pub(super) fn push(&mut self, id: Option<u32>, len: usize) {
        let index = self.symbols.len();
        let (start, prev) = match self.symbols.last_mut() {
            Some(last) => {
                last.next = index;
                (last.start + last.len, index - 1)
            }
            None => (0, NONE),
        };
        self.symbols.push(Symbol { id, start, len, prev, next: NONE });
    }

    /// Merges until `find` knows no neighbours that go together. It says how good a pair is
    /// (greater is better) and which token the pair becomes.
    pub(super) fn merge(&mut self, mut find: impl FnMut(Symbol, Symbol) -> Option<(P, u32)>) {
        for right in 1..self.symbols.len() {
            self.queue_pair(right - 1, right, &mut find);
        }
        while let Some(pair) = self.queue.pop() {
            let (left, right) = (self.symbols[pair.left], self.symbols[pair.right]);
            // Symbols only ever grow or go, so an equal sum means that neither did.
            if left.len == 0 || right.len == 0 || left.len + right.len != pair.len {
                continue;
            }
            self.symbols[pair.right].len = 0;
            let merged = &mut self.symbols[pair.left];
            merged.id = Some(pair.id);
            merged.len = pair.len;
            merged.next = right.next;
            if right.next != NONE {
                self.symbols[right.next].prev = pair.left;
            }
            self.queue_pair(left.prev, pair.left, &mut find);
            self.queue_pair(pair.left, right.next, &mut find);
        }
    }

    /// What is left, from left to right.
    pub(super) fn symbols(&self) -> impl Iterator<Item = Symbol> {
        self.symbols.iter().copied().filter(|symbol| symbol.len > 0)
    }

    fn queue_pair(
        &mut self,
        left: usize,
        right: usize,
        find: &mut impl FnMut(Symbol, Symbol) -> Option<(P, u32)>,
    ) {
        if left == NONE || right == NONE {
            return;
        }
        let (a, b) = (self.symbols[left], self.symbols[right]);
        if let Some((priority, id)) = find(a, b) {
            self.queue.push(Pair { priority, left, right, len: a.len + b.len, id });
        }
    }
}
