//! What each thread does of the nodes of a graph: how long it works, and how long it waits for the others.
//!
//! Each thread writes to arrays of its own. The one that called for the graph reads them when all have passed the last
//! barrier; a thread that is a little late with its last wait loses that one only.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use crate::{MOST_NODES, count};

/// Whether threads are looked at. Set once, before the first graph.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// How many graphs are computed right now.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// The number of the graph that threads are looked at in; 0 for none.
static GRAPH: AtomicU64 = AtomicU64::new(0);
static LAST_GRAPH: AtomicU64 = AtomicU64::new(0);

const MOST_THREADS: usize = 256;
static THREADS: [AtomicPtr<Thread>; MOST_THREADS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST_THREADS];

/// What one thread does of a graph. Counts of the processor's counter.
struct Thread {
    graph: AtomicU64,
    n: AtomicU64,
    begins: Box<[AtomicU64]>,
    waits: Box<[AtomicU64]>,
    /// When it came to the last barrier, and what it had waited in that node before.
    last: AtomicU64,
    before_last: AtomicU64,
}

thread_local! {
    static OWN: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

pub(crate) fn turn_on() {
    IS_ON.store(true, Relaxed);
}

#[inline(always)]
pub(crate) fn are_on() -> bool {
    IS_ON.load(Relaxed)
}

/// This thread's arrays, which are kept until the process ends: a thread that computed a graph computes more.
fn own() -> &'static Thread {
    let own = OWN.get();
    if !own.is_null() {
        // SAFETY: it was leaked below, so it lives as long as the process.
        return unsafe { &*own };
    }
    // Zeros that the system gives take no memory until they are written to.
    let zeros = || {
        let zeros = Box::into_raw(vec![0_u64; MOST_NODES].into_boxed_slice());
        // SAFETY: an `AtomicU64` has the size, the alignment and the values of a `u64`.
        unsafe { Box::from_raw(zeros as *mut [AtomicU64]) }
    };
    let made = Box::leak(Box::new(Thread {
        graph: AtomicU64::new(0),
        n: AtomicU64::new(0),
        begins: zeros(),
        waits: zeros(),
        last: AtomicU64::new(0),
        before_last: AtomicU64::new(0),
    }));
    OWN.set(made);
    made
}

/// A graph begins. Whether threads are looked at in it: not if another one is computed at the same time.
pub(crate) fn begin_graph() -> bool {
    if OPEN.fetch_add(1, Relaxed) > 0 {
        GRAPH.store(0, Release);
        return false;
    }
    GRAPH.store(1 + LAST_GRAPH.fetch_add(1, Relaxed), Release);
    true
}

/// A node begins on this thread.
#[inline(always)]
pub(crate) fn begin_node(ith: i32) {
    let graph = GRAPH.load(Acquire);
    if graph == 0 {
        return;
    }
    let own = own();
    if own.graph.load(Relaxed) != graph {
        own.n.store(0, Relaxed);
        own.last.store(0, Relaxed);
        own.graph.store(graph, Relaxed);
        if let Some(place) = THREADS.get(ith as usize) {
            place.store(ptr::from_ref(own).cast_mut(), Release);
        }
    }
    let n = own.n.load(Relaxed) as usize;
    if let (Some(begin), Some(wait)) = (own.begins.get(n), own.waits.get(n)) {
        begin.store(count(), Relaxed);
        wait.store(0, Relaxed);
    }
    own.n.store(n as u64 + 1, Relaxed);
}

/// This thread waits for the others in `barrier`.
#[inline(always)]
pub(crate) fn wait(barrier: impl FnOnce()) {
    let graph = GRAPH.load(Relaxed);
    let own = OWN.get();
    if graph == 0 || own.is_null() {
        return barrier();
    }
    // SAFETY: as in `own`.
    let own = unsafe { &*own };
    let node = (own.n.load(Relaxed) as usize).wrapping_sub(1);
    let wait = own.waits.get(node).filter(|_| own.graph.load(Relaxed) == graph);
    let Some(wait) = wait else { return barrier() };
    let waited = wait.load(Relaxed);
    let arrived = count();
    own.before_last.store(waited, Relaxed);
    own.last.store(arrived, Relaxed);
    barrier();
    wait.store(waited + count().saturating_sub(arrived), Relaxed);
}

/// The graph ended at `end`, after `n` nodes. Calls `tell` for each thread with its number and, for each node, for how
/// many counts it worked and waited: the one in the lower half of a word, the other in the upper. Returns whether all
/// threads ran these nodes.
pub(crate) fn end_graph(
    is_looked_at: bool,
    threads: i32,
    n: usize,
    end: u64,
    mut tell: impl FnMut(u64, &[u64]),
) -> bool {
    let graph = GRAPH.load(Acquire);
    let others = OPEN.fetch_sub(1, Relaxed) - 1;
    // If another graph has begun meanwhile, it has set this to 0.
    if !is_looked_at || graph == 0 || others > 0 {
        return false;
    }
    let mut words = vec![0; n];
    let threads = usize::try_from(threads).unwrap_or(0).min(MOST_THREADS);
    let mut are_whole = threads > 1;
    for (number, place) in THREADS[..threads].iter().enumerate() {
        // SAFETY: what is stored there was leaked.
        let thread = unsafe { place.load(Acquire).as_ref() };
        let same = |thread: &&Thread| {
            thread.graph.load(Relaxed) == graph && thread.n.load(Relaxed) == n as u64
        };
        let Some(thread) = thread.filter(same).filter(|_| threads > 1) else {
            are_whole = false;
            continue;
        };
        for (node, word) in words.iter_mut().enumerate() {
            let begin = thread.begins[node].load(Relaxed);
            let (until, waited) = match thread.begins.get(node + 1) {
                Some(next) if node + 1 < n => {
                    (next.load(Relaxed), thread.waits[node].load(Relaxed))
                }
                // It may not have stored its last wait yet, so that lasts until the end of the graph.
                _ => match thread.last.load(Relaxed) {
                    last if last >= begin => {
                        let before = thread.before_last.load(Relaxed);
                        (end, before + end.saturating_sub(last))
                    }
                    _ => (end, 0),
                },
            };
            let worked = until.saturating_sub(begin).saturating_sub(waited);
            let half = |count: u64| count.min(u64::from(u32::MAX));
            *word = half(worked) | half(waited) << 32;
        }
        tell(number as u64, &words);
    }
    are_whole || threads == 1
}
