//! Graphs, or parts of them, that the CPU computes: when each one begins and ends, and when each of its nodes begins.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use crate::copies::{Known, is_known};
use crate::format::{Head, Record};
use crate::ggml::{self, Cgraph, Cplan, Params, Tensor};
use crate::hooks::{self, Hook};
use crate::passes::{Of, pass};
use crate::running::{IN_GRAPH, Running, look_at_cache, running};
use crate::scheduled::write_part;
use crate::{IS_ON, MOST_NODES, count, guarded, lock, real, shares};

/// A node begins. Only the thread that called for the graph stores it; the others work at the same node.
///
/// It began when the thread left the barrier after the node before: between the two, ggml passes over views and looks
/// whether nodes can be computed as one, which takes longer than some nodes do, and is no part of the node before.
#[inline(always)]
unsafe fn begin_node(params: *const Params, node: *const Tensor, fused: *const Tensor) {
    // SAFETY: ggml passes its own structures, whose layout was checked when the graph began: outside of a graph, and of a
    // process that records, `IN_GRAPH` is null. The number of the thread has always been the first field.
    unsafe {
        if shares::are_on() {
            shares::begin_node((*params).ith);
        }
        if (*params).ith != 0 {
            return;
        }
        let Some(running) = IN_GRAPH.get().as_mut() else { return };
        let left_barrier = std::mem::take(&mut running.left_barrier);
        let now = if left_barrier == 0 { count() } else { left_barrier };
        if let (Some(slot), Some(kept)) =
            (running.counts.get_mut(running.n), running.nodes.get_mut(running.n))
        {
            *slot = now;
            *kept = [node, fused];
            running.hash = ggml::mixed(running.hash, node);
        }
        running.n += 1;
        if (*node).op == running.experts.op {
            running.experts.add(node);
        }
    }
}

/// In the place of ggml's function, which dispatches a node to special buffers.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn ggml_cpu_extra_compute_forward<const COPY: usize>(
    params: *const Params,
    node: *const Tensor,
) -> bool {
    type Forward = unsafe extern "C-unwind" fn(*const Params, *const Tensor) -> bool;
    let real = real!(Hook::Node, COPY, Forward);
    // SAFETY: the arguments are the caller's.
    unsafe {
        begin_node(params, node, ptr::null());
        real(params, node)
    }
}

/// In the place of ggml's function, which computes a norm and the product that follows it.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn ggml_compute_forward_rms_norm_mul_fused<
    const COPY: usize,
>(
    params: *const Params,
    norm: *const Tensor,
    product: *const Tensor,
) {
    type Forward = unsafe extern "C-unwind" fn(*const Params, *const Tensor, *const Tensor);
    let real = real!(Hook::Fused, COPY, Forward);
    // SAFETY: the arguments are the caller's.
    unsafe {
        begin_node(params, norm, product);
        real(params, norm, product);
    }
}

/// In the place of ggml's function, which lets the threads of a graph wait for each other.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn ggml_barrier<const COPY: usize>(pool: *const c_void) {
    type Barrier = unsafe extern "C-unwind" fn(*const c_void);
    let real = real!(Hook::Barrier, COPY, Barrier);
    // SAFETY: the argument is the caller's.
    let barrier = || unsafe { real(pool) };
    if shares::are_on() {
        shares::wait(barrier);
    } else {
        barrier();
    }
    // SAFETY: it is this thread's, and nobody has a reference to it across the calls of a graph.
    if let Some(running) = unsafe { IN_GRAPH.get().as_mut() } {
        running.left_barrier = count();
    }
}

/// In the place of ggml's function, which computes a graph on the CPU.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn ggml_graph_compute<const COPY: usize>(
    graph: *mut Cgraph,
    plan: *const Cplan,
) -> i32 {
    type Compute = unsafe extern "C-unwind" fn(*mut Cgraph, *const Cplan) -> i32;
    let real = real!(Hook::Graph, COPY, Compute);
    // SAFETY: the arguments are the caller's.
    let run = || unsafe { real(graph, plan) };
    // A graph in a graph is a node of the outer one.
    if !IS_ON.load(Relaxed) || !IN_GRAPH.get().is_null() || !is_known(Known::Graph, COPY) {
        return run();
    }
    let running = running();
    // SAFETY: it is this thread's, and nobody else has a reference to it.
    if unsafe { (*running).depth } > 0 {
        // SAFETY: as above; the plan is the caller's.
        return unsafe { timed_graph(running, COPY, plan, run) };
    }
    // Nobody says what is around it.
    let timed = || {
        // SAFETY: as above.
        unsafe { timed_graph(running, COPY, plan, run) }
    };
    // SAFETY: there is no context.
    unsafe { pass(None, Of::Graph, timed) }
}

/// Computes a graph, or a part of it, on the CPU, and writes down its readings.
///
/// # Safety
///
/// `running` is this thread's, and the plan is the caller's.
unsafe fn timed_graph(
    running: *mut Running,
    copy: usize,
    plan: *const Cplan,
    run: impl FnOnce() -> i32,
) -> i32 {
    /// Whatever ends the graph.
    struct InGraph;
    impl Drop for InGraph {
        fn drop(&mut self) {
            IN_GRAPH.set(ptr::null_mut());
        }
    }
    // SAFETY: the caller says so.
    unsafe {
        if (*running).is_bare {
            (*running).graphs += 1;
            return run();
        }
        // What came before it in the same graph.
        if let Some(parts) = (*running).parts.as_mut() {
            guarded((), || write_part(parts));
        }
        (*running).n = 0;
        (*running).hash = 0;
        (*running).copy = copy;
        (*running).left_barrier = 0;
        (*running).experts.begin_graph(copy);
        look_at_cache(running);
    }
    let graph_in_turn = shares::are_on().then(shares::begin_graph);
    IN_GRAPH.set(running);
    let in_graph = InGraph;
    let begin = count();
    let status = run();
    let end = count();
    drop(in_graph);
    // SAFETY: as above; the plan's threads have joined.
    unsafe {
        (*running).graphs += 1;
        guarded((), || {
            write_graph(&mut *running, (*plan).n_threads, [begin, end], graph_in_turn);
        });
    }
    status
}

/// Writes the readings of a graph, and, if it has not been seen before, what its nodes are.
fn write_graph(running: &mut Running, threads: i32, [begin, end]: [u64; 2], in_turn: Option<u64>) {
    let mut shares = Vec::new();
    let are_whole = in_turn.is_none_or(|graph| {
        let tell = |number: u64, words: &[u64]| shares.push((number, words.to_vec()));
        shares::end_graph(graph, threads, running.n, tell)
    });
    let [used, chosen] = running.experts.end_graph();
    let mut state = lock();
    let Some(state) = &mut *state else { return };
    if !are_whole {
        state.recording.lose(
            "shares of threads in some graphs: two were computed at once, or their threads did not run the same nodes",
        );
    }
    let n = running.n.min(MOST_NODES);
    if n < running.n {
        state.recording.lose("nodes beyond 65,536 in a graph");
    }
    let (_, copy, generation) = hooks::identity(Hook::Graph, running.copy);
    let hash = ggml::mixed_words(running.hash, [n as u64, threads as u64]);
    let hash = ggml::mixed_words(hash, [copy as u64, u64::from(generation)]);
    let number = match running.last {
        Some((last, number)) if last == hash => Some(number),
        _ => state.number_of((Known::Graph, running.copy), hash, None, &running.nodes[..n]),
    };
    let Some(number) = number else {
        running.is_incomplete = true;
        return;
    };
    running.last = Some((hash, number));
    let head = Head { number, threads: threads as u16, of_thread: running.thread };
    let head = [head.word(), begin, end];
    // Shares follow their graph, or are not there.
    if state.recording.write_words(Record::Graph, &head, &running.counts[..n]) {
        for (number, words) in shares {
            state.recording.write_words(Record::Shares, &[number], &words);
        }
        for (kind, words) in
            [(Record::Cached, &running.grown), (Record::Experts, &used), (Record::Chosen, &chosen)]
        {
            if !words.is_empty() {
                state.recording.write_words(kind, words, &[]);
            }
        }
    } else {
        running.is_incomplete = true;
    }
}
