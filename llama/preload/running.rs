//! What a thread keeps of the graph that it computes, and of the pass that is open.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use crate::experts::Experts;
use crate::format::word;
use crate::ggml::{self, Tensor};
use crate::hooks::Hook;
use crate::offload::{Offloaded, Parts};
use crate::{MOST_NODES, batch, guarded, symbols};

/// Threads that have computed graphs so far.
static THREADS: AtomicU16 = AtomicU16::new(0);

/// The graph that a thread computes.
pub(crate) struct Running {
    pub(crate) counts: Box<[u64]>,
    pub(crate) nodes: Box<[[*const Tensor; 2]]>,
    pub(crate) n: usize,
    pub(crate) hash: u64,
    /// Which copy of ggml computes the graph.
    pub(crate) copy: usize,
    /// The number of the thread among those that compute graphs.
    pub(crate) thread: u16,
    /// The last graph and its number.
    pub(crate) last: Option<(u64, u32)>,
    /// How many passes are open: one is computed by another where an interface calls an older one.
    pub(crate) depth: u32,
    /// Graphs that were computed in the open pass.
    pub(crate) graphs: u32,
    /// Whether the open pass is not looked at.
    pub(crate) is_bare: bool,
    /// Whether readings of the open pass could not be written.
    pub(crate) is_incomplete: bool,
    /// Whether another backend computed nodes of the open pass that nobody times, in any pass.
    pub(crate) has_untimed: bool,
    /// How many tokens the cache had for each sequence before the open pass, and after it.
    pub(crate) cached: [Vec<u32>; 2],
    /// What the open pass's batch has of each sequence, once that is wanted.
    pub(crate) sequences: Vec<batch::OfSequence>,
    /// The context of the open pass, if it may compute several graphs, each with some of its tokens.
    pub(crate) context: Option<(Hook, usize, *const ggml::Context)>,
    /// How many tokens the cache has for each sequence with those of the last graph, and for each that this one adds to, as
    /// before | after << 32.
    pub(crate) filled: Vec<u32>,
    pub(crate) grown: Vec<u64>,
    /// Which experts its tokens choose.
    pub(crate) experts: Experts,
    /// When this thread left the last barrier since the last node began; 0 for none.
    pub(crate) left_barrier: u64,
    /// The last graph of the open pass of which another backend computes nodes.
    pub(crate) offloaded: Option<Offloaded>,
    /// Whether such graphs are split in the open pass: decided at the first one.
    pub(crate) is_split: Option<bool>,
    /// What other backends compute; null in a process that has none.
    pub(crate) parts: *mut Parts,
}

thread_local! {
    /// This thread's, from its first graph on.
    pub(crate) static RUNNING: Cell<*mut Running> = const { Cell::new(ptr::null_mut()) };
    /// The same while a graph is computed, else null: finding a variable of a thread takes a call, so nodes look at one.
    pub(crate) static IN_GRAPH: Cell<*mut Running> = const { Cell::new(ptr::null_mut()) };
}

/// This thread's graph, which is made at its first one and kept until the process ends: a thread that has computed a
/// graph computes more.
pub(crate) fn running() -> *mut Running {
    let running = RUNNING.get();
    if !running.is_null() {
        return running;
    }
    let made = Box::new(Running {
        counts: vec![0; MOST_NODES].into_boxed_slice(),
        nodes: vec![[ptr::null(); 2]; MOST_NODES].into_boxed_slice(),
        n: 0,
        hash: 0,
        copy: 0,
        thread: THREADS.fetch_add(1, Relaxed),
        last: None,
        depth: 0,
        graphs: 0,
        is_bare: false,
        is_incomplete: false,
        has_untimed: false,
        cached: [Vec::new(), Vec::new()],
        sequences: Vec::new(),
        context: None,
        filled: Vec::new(),
        grown: Vec::new(),
        experts: Experts::new(),
        left_barrier: 0,
        offloaded: None,
        is_split: None,
        parts: ptr::null_mut(),
    });
    let made = Box::into_raw(made);
    RUNNING.set(made);
    made
}

/// The number of this thread among those that compute graphs.
pub(crate) fn this_thread() -> u16 {
    let running = RUNNING.get();
    // SAFETY: it is this thread's, and a number in it is read, which never changes.
    if running.is_null() { 0 } else { unsafe { (*running).thread } }
}

/// Asks how many tokens the cache has now: llama.cpp has added those of the graph that it computes next.
///
/// # Safety
///
/// `running` is this thread's, and no reference to it is there.
pub(crate) unsafe fn look_at_cache(running: *mut Running) {
    // SAFETY: the caller says so; the context is that of the open pass.
    guarded((), || unsafe {
        let running = &mut *running;
        let Some((hook, copy, context)) = running.context else { return };
        let mut now = Vec::with_capacity(running.filled.len());
        symbols::cached(hook, copy, context, &mut now);
        let both = running.filled.iter().zip(&now);
        let grown: Vec<u64> = both
            .filter(|(before, after)| before < after)
            .map(|(&before, &after)| word([before, after]))
            .collect();
        // Another part of the same graph adds nothing.
        if !grown.is_empty() {
            running.grown = grown;
        }
        running.filled = now;
    });
}
