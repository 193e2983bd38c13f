//! What each thread does of the nodes of a graph: how long it works, and how long it waits for the others.
//!
//! Each thread writes to arrays of its own. The one that called for the graph reads them when all have passed the last
//! barrier. A thread may be a little late to write its wait at that barrier, so what the calling thread read there stands
//! for it: all leave it together.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{MOST_NODES, count};

/// Whether threads are looked at. Set once, before the first graph.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// How many graphs have begun, and in the lower half how many are computed right now.
static GRAPHS: AtomicU64 = AtomicU64::new(0);
/// The number of the graph that threads are looked at in; 0 for none.
static GRAPH: AtomicU64 = AtomicU64::new(0);

const MOST_THREADS: usize = 256;
static THREADS: [AtomicPtr<Thread>; MOST_THREADS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST_THREADS];
/// The arrays of threads that have ended: without a pool, ggml makes its threads anew for each graph.
static FREE: Mutex<Vec<&'static Thread>> = Mutex::new(Vec::new());

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

/// The arrays of this thread, which are given back when it ends.
struct Own(Cell<Option<&'static Thread>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(thread) = self.0.get() {
            free().push(thread);
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

fn free() -> MutexGuard<'static, Vec<&'static Thread>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn turn_on() {
    IS_ON.store(true, Relaxed);
}

#[inline(always)]
pub(crate) fn are_on() -> bool {
    IS_ON.load(Relaxed)
}

/// This thread's arrays. `None` while it ends.
fn own() -> Option<&'static Thread> {
    OWN.try_with(|own| match own.0.get() {
        Some(thread) => thread,
        None => {
            let thread = made();
            own.0.set(Some(thread));
            thread
        }
    })
    .ok()
}

#[cold]
fn made() -> &'static Thread {
    if let Some(thread) = free().pop() {
        return thread;
    }
    // Zeros that the system gives take no memory until they are written to.
    let zeros = || {
        let zeros = Box::into_raw(vec![0_u64; MOST_NODES].into_boxed_slice());
        // SAFETY: an `AtomicU64` has the size, the alignment and the values of a `u64`.
        unsafe { Box::from_raw(zeros as *mut [AtomicU64]) }
    };
    Box::leak(Box::new(Thread {
        graph: AtomicU64::new(0),
        n: AtomicU64::new(0),
        begins: zeros(),
        waits: zeros(),
        last: AtomicU64::new(0),
        before_last: AtomicU64::new(0),
    }))
}

/// A graph begins. Its number; 0 if threads aren't looked at in it, since another one is computed at the same time.
pub(crate) fn begin_graph() -> u64 {
    let before = GRAPHS.fetch_add(1 << 32 | 1, SeqCst);
    let graph = if before as u32 == 0 { (before >> 32) + 1 } else { 0 };
    GRAPH.store(graph, Release);
    graph
}

/// A node begins on this thread.
#[inline(always)]
pub(crate) fn begin_node(ith: i32) {
    let graph = GRAPH.load(Acquire);
    if graph == 0 {
        return;
    }
    let Some(own) = own() else { return };
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
    let own = if graph == 0 { None } else { OWN.try_with(|own| own.0.get()).ok().flatten() };
    let Some(own) = own.filter(|own| own.graph.load(Relaxed) == graph) else { return barrier() };
    let node = (own.n.load(Relaxed) as usize).wrapping_sub(1);
    let Some(wait) = own.waits.get(node) else { return barrier() };
    let waited = wait.load(Relaxed);
    let arrived = count();
    own.before_last.store(waited, Relaxed);
    own.last.store(arrived, Relaxed);
    barrier();
    wait.store(waited + count().saturating_sub(arrived), Relaxed);
}

/// The graph of this number ended, after `n` nodes. Calls `tell` for each thread with its number and two words for each
/// node: for how many counts it worked, and waited. Returns whether all threads ran these nodes and no other graph was
/// computed meanwhile.
pub(crate) fn end_graph(
    graph: u64,
    threads: i32,
    n: usize,
    mut tell: impl FnMut(u64, &[u64]),
) -> bool {
    // From here on no thread is looked at, unless another graph has begun.
    let _ = GRAPH.compare_exchange(graph, 0, AcqRel, Relaxed);
    let before = GRAPHS.fetch_sub(1, SeqCst);
    if graph == 0 || before >> 32 != graph || n > MOST_NODES {
        return false;
    }
    let all = usize::try_from(threads).unwrap_or(0);
    if all == 1 {
        // It waits for nobody.
        return true;
    }
    let fits = |place: &AtomicPtr<Thread>| {
        // SAFETY: what is stored there is never freed.
        let thread = unsafe { place.load(Acquire).as_ref() }?;
        let fits = thread.graph.load(Relaxed) == graph && thread.n.load(Relaxed) == n as u64;
        fits.then_some(thread)
    };
    let Some(first) = fits(&THREADS[0]).filter(|_| n > 0) else { return false };
    // When the calling thread left the last barrier.
    let last_wait =
        first.waits[n - 1].load(Relaxed).saturating_sub(first.before_last.load(Relaxed));
    let end = first.last.load(Relaxed).saturating_add(last_wait);
    let mut words = Vec::with_capacity(2 * n);
    let mut are_whole = all <= MOST_THREADS;
    for (number, place) in THREADS.iter().enumerate().take(all) {
        let Some(thread) = fits(place) else {
            are_whole = false;
            continue;
        };
        words.clear();
        for node in 0..n {
            let begin = thread.begins[node].load(Relaxed);
            let (until, waited) = if node + 1 < n {
                (thread.begins[node + 1].load(Relaxed), thread.waits[node].load(Relaxed))
            } else {
                let before = thread.before_last.load(Relaxed);
                (end, before + end.saturating_sub(thread.last.load(Relaxed).max(begin)))
            };
            words.extend([until.saturating_sub(begin).saturating_sub(waited), waited]);
        }
        tell(number as u64, &words);
    }
    are_whole
}
