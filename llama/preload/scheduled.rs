//! Graphs of which a scheduler gives parts to other backends than the CPU, and what is written of these parts. How they are
//! split is in [`offload`].

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use crate::copies::{Known, is_known};
use crate::format::{Head, Record};
use crate::ggml::{self, Cgraph, Tensor};
use crate::hooks::Hook;
use crate::offload::{self, Callback, Offloaded, Parts, Scheduler};
use crate::passes::{Of, pass};
use crate::running::{RUNNING, look_at_cache, running, this_thread};
use crate::{IS_ON, IS_TURNING, MOST_NODES, guarded, lock, lose, real};

/// In the place of ggml's function, which computes a graph on several backends.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn ggml_backend_sched_graph_compute_async<const COPY: usize>(
    scheduler: *mut Scheduler,
    graph: *mut Cgraph,
) -> i32 {
    type Compute = unsafe extern "C-unwind" fn(*mut Scheduler, *mut Cgraph) -> i32;
    let real = real!(Hook::Scheduled, COPY, Compute);
    // SAFETY: the arguments are the caller's.
    let whole = || unsafe { real(scheduler, graph) };
    if !IS_ON.load(Relaxed) || !is_known(Known::Scheduled, COPY) {
        return whole();
    }
    let running = running();
    // SAFETY: it is this thread's, and nobody else has a reference to it.
    if unsafe { (*running).depth } == 0 {
        // Nobody says what is around it, nor that its parts may be split.
        let untimed = || {
            // SAFETY: the arguments are the caller's, and `running` as above.
            unsafe {
                if let Ok(Some(offloaded)) = Offloaded::find(COPY, scheduler, graph) {
                    (*running).offloaded = Some(offloaded);
                    (*running).has_untimed = true;
                }
            }
            whole()
        };
        // SAFETY: there is no context.
        return unsafe { pass(None, Of::Graph, untimed) };
    }
    // SAFETY: the arguments are the caller's.
    let offloaded = match unsafe { Offloaded::find(COPY, scheduler, graph) } {
        Ok(Some(offloaded)) => offloaded,
        Ok(None) => {
            // Nodes of the graph before may be gone when the pass ends.
            // SAFETY: as above.
            unsafe {
                if let Some(before) = &mut (*running).offloaded {
                    before.forget_nodes();
                }
            }
            return whole();
        }
        Err(why) => {
            lose(&format!("nodes of other backends than the CPU, if there were any: {why}"));
            return whole();
        }
    };
    // SAFETY: as above.
    let is_split = unsafe {
        (*running).offloaded = Some(offloaded);
        if (*running).is_bare {
            return whole();
        }
        // Where whole passes are taken for comparison anyway, these are the others.
        let is_split = || IS_TURNING.load(Relaxed) || offload::is_turn_to_split(&offloaded, graph);
        *(*running).is_split.get_or_insert_with(is_split)
    };
    if !is_split {
        return whole();
    }
    // SAFETY: as above; the parts are never freed, and the callback knows them by this thread's graph.
    let split = unsafe {
        look_at_cache(running);
        if (*running).parts.is_null() {
            (*running).parts = Box::into_raw(Box::new(Parts::new()));
        }
        let parts = (*running).parts;
        let split = offload::split(offloaded, parts, on_node, running.cast(), whole);
        write_part(&mut *parts);
        split
    };
    split.unwrap_or_else(|| {
        // SAFETY: as above.
        unsafe {
            (*running).is_split = None;
            (*running).has_untimed = true;
        }
        lose(
            "nodes of other backends than the CPU: the program has a callback of its own for nodes (cb_eval), which was \
             left in place",
        );
        // SAFETY: the arguments are the caller's.
        unsafe { real(scheduler, graph) }
    })
}

/// In the place of ggml's function, which sets the callback of a scheduler.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn ggml_backend_sched_set_eval_callback<const COPY: usize>(
    scheduler: *mut Scheduler,
    callback: Option<Callback>,
    data: *mut c_void,
) {
    type Set = unsafe extern "C-unwind" fn(*mut Scheduler, Option<Callback>, *mut c_void);
    let real = real!(Hook::SetCallback, COPY, Set);
    if IS_ON.load(Relaxed) {
        guarded((), || offload::set_own(scheduler, callback, data));
    }
    // SAFETY: the arguments are the caller's.
    unsafe { real(scheduler, callback, data) }
}

/// ggml asks whether a node is to be computed by itself, or tells that it has been.
unsafe extern "C-unwind" fn on_node(
    node: *const Tensor,
    is_question: bool,
    data: *mut c_void,
) -> bool {
    let running = RUNNING.get();
    if running.is_null() || running.cast() != data {
        lose("nodes that ggml told of on another thread than the one that computes the graph");
        // To the question: no; to the other: go on.
        return !is_question;
    }
    // SAFETY: the thread's own, which has parts where this callback is set, and is in none of its functions now.
    unsafe {
        let parts = &mut *(*running).parts;
        if is_question {
            return parts.ask(node, write_part);
        }
        parts.end(node);
    }
    true
}

/// Writes the nodes that another backend has computed since the last ones were written.
pub(crate) fn write_part(parts: &mut Parts) {
    let n = parts.n.min(MOST_NODES);
    let (lost, hash) = (n < parts.n, parts.hash);
    (parts.n, parts.hash) = (0, 0);
    if n == 0 {
        return;
    }
    let (name, backend) = parts.backend();
    let mut state = lock();
    let Some(state) = &mut *state else { return };
    if lost {
        state.recording.lose("nodes beyond 65,536 in a part of a graph");
    }
    let hash = ggml::mixed_words(hash, [n as u64, backend]);
    if let Some(number) =
        state.number_of((Known::Scheduled, parts.copy()), hash, Some(&name), &parts.nodes[..n])
    {
        let times = parts.times[..n].as_flattened();
        let head = Head { number, threads: 0, of_thread: this_thread() };
        if state.recording.write_words(Record::Part, &[head.word()], times) {
            let running = RUNNING.get();
            if !running.is_null() {
                // SAFETY: the thread's own; the callers have a reference to its parts only, which lie elsewhere.
                let grown = unsafe { &(*running).grown };
                if !grown.is_empty() {
                    state.recording.write_words(Record::Cached, grown, &[]);
                }
            }
            return;
        }
    }
    let running = RUNNING.get();
    if !running.is_null() {
        // SAFETY: the thread's own; the callers have a reference to its parts only, which lie elsewhere.
        unsafe { (*running).is_incomplete = true };
    }
}
