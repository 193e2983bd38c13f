//! The library that `brickscope run` loads into a command, so that an unmodified llama.cpp tells when each node of its
//! graphs begins.
//!
//! These functions are put into the tables through which libraries call ggml's and llama.cpp's of the same names: see
//! [`hooks`]. Each one takes a reading of the clock and calls the one that it stands for. What the CPU computes of the graph
//! stays whole, and nothing of it is changed; the parts of other backends, such as a GPU's, are split by a callback, in
//! turns: see [`offload`].
//!
//! | function | tells |
//! |---|---|
//! | `llama_context::decode`, `encode` | a pass begins and ends |
//! | `llama_context::set_warmup`, `~llama_context` | whether the program's passes warm up, and that another context may lie there |
//! | `llama_sampler_*`, `llama_tokenize`, `llama_get_logits*` and the like | how long the program does that between passes |
//! | `ggml_graph_compute` | a graph, or the part of it that the CPU computes, begins and ends |
//! | `ggml_cpu_extra_compute_forward` | which node begins, on each thread |
//! | `ggml_compute_forward_rms_norm_mul_fused` | which two nodes begin that are computed as one |
//! | `ggml_barrier` | when the next node begins; where that was asked for, how long a thread waits for the others, see [`shares`] |
//! | `ggml_backend_sched_graph_compute_async` | a graph begins and ends, of which other backends may compute parts; a pass, if it is in none |
//! | `llama_batch_ext_*` | which sequences a pass has tokens of: see [`batch`] |
//! | `accept`, `recv`, `send` | a request came to a server, or a piece of its answer left: see [`sockets`] |
//! | `socket`, `socketpair` | that a number of a file is no longer a connection's |
//! | `ggml_backend_sched_set_eval_callback` | the program has a callback of its own, so that ours isn't set |
//!
//! It stands in the place of `execve` and the like as well, so that a program that becomes another one is recorded, and what
//! it starts is not: see [`environment`].
//!
//! Readings are stored in memory while a graph is computed, and written to a file when it has been: see [`format`]. Which
//! node each belongs to is found then. What ggml's structures look like is checked before anything is read of them: see
//! [`ggml`].
//!
//! This library has no dependencies but the standard library, since it is compiled by a build script, and since what it needs, the profiled program has to load. It has no threads, prints nothing and never
//! ends the program: on a fault it writes down why, and records no more. Exceptions of C++ pass through it.

#![allow(unsafe_code, non_snake_case, reason = "it stands in the place of functions of C and C++")]

mod answers;
mod batch;
mod calls;
#[allow(dead_code, unreachable_pub, reason = "each side uses its half")]
#[path = "../src/recording/chosen.rs"]
mod chosen;
mod connections;
mod contexts;
mod environment;
mod experts;
mod file;
#[allow(dead_code, reason = "each side uses its half")]
#[path = "../src/recording/format.rs"]
mod format;
mod ggml;
mod hooks;
mod http;
mod load;
mod node;
mod objects;
mod offload;
mod passes;
mod shares;
mod sockets;
mod symbols;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32};
use std::sync::{Mutex, MutexGuard, PoisonError};

use experts::Experts;
use file::Recording;
use format::{Head, Record, word};
use ggml::{Cgraph, Cplan, Params, Tensor};
use hooks::{COPIES, Hook};
use offload::{Callback, Offloaded, Parts, Scheduler};
use passes::{Of, pass};

/// Nodes of a graph that are timed. llama.cpp's largest graphs have some ten thousand.
const MOST_NODES: usize = 1 << 16;
/// Different graphs that are described: each has other shapes, or another number of tokens.
const MOST_GRAPHS: usize = 4096;

/// Whether this process records. It doesn't once anything went wrong, and in the child of a fork.
static IS_ON: AtomicBool = AtomicBool::new(true);
static STATE: Mutex<Option<State>> = Mutex::new(None);
/// Whether there is one, or one is being made.
static HAS_STATE: AtomicBool = AtomicBool::new(false);
/// Whether only every other pass is looked at, so that what that costs can be measured.
static IS_TURNING: AtomicBool = AtomicBool::new(false);
/// Threads that have computed graphs so far.
static THREADS: AtomicU16 = AtomicU16::new(0);
/// Passes so far of each context, where that matters.
static PASSES: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Whether a copy of ggml is looked at, by the function that was called.
static COPIES_KNOWN: [[AtomicU8; COPIES]; 2] =
    [const { [const { AtomicU8::new(UNKNOWN) }; COPIES] }; 2];
const UNKNOWN: u8 = 0;
const LOOKED_AT: u8 = 1;
const REFUSED: u8 = 2;

/// The functions by which a copy is known.
#[derive(Debug, Clone, Copy)]
enum Known {
    Graph,
    Scheduled,
}

impl Known {
    fn hook(self) -> Hook {
        match self {
            Self::Graph => Hook::Graph,
            Self::Scheduled => Hook::Scheduled,
        }
    }
}

/// What all threads share.
struct State {
    recording: Recording,
    /// The numbers of the graphs that were described, by a hash of their nodes.
    known: HashMap<u64, u32>,
    /// What is known of each copy of ggml, by the function that was called: its number in the file, and how to read it.
    layouts: [[Option<(usize, ggml::Layout)>; COPIES]; 2],
    /// How many copies have been numbered.
    libraries: usize,
    load: load::Load,
    /// The files of models that were written down.
    models: Vec<String>,
    sockets: sockets::Sockets,
}

/// The graph that a thread computes.
struct Running {
    counts: Box<[u64]>,
    nodes: Box<[[*const Tensor; 2]]>,
    n: usize,
    hash: u64,
    /// Which copy of ggml computes the graph.
    copy: usize,
    /// The number of the thread among those that compute graphs.
    thread: u16,
    /// The last graph and its number.
    last: Option<(u64, u32)>,
    /// How many passes are open: one is computed by another where an interface calls an older one.
    depth: u32,
    /// Graphs that were computed in the open pass.
    graphs: u32,
    /// Whether the open pass is not looked at.
    is_bare: bool,
    /// Whether readings of the open pass could not be written.
    is_incomplete: bool,
    /// Whether another backend computed nodes of the open pass that nobody times, in any pass.
    has_untimed: bool,
    /// How many tokens the cache had for each sequence before the open pass, and after it.
    cached: [Vec<u32>; 2],
    /// What the open pass's batch has of each sequence, once that is wanted.
    sequences: Vec<batch::OfSequence>,
    /// The context of the open pass, if it may compute several graphs, each with some of its tokens.
    context: Option<(Hook, usize, *const ggml::Context)>,
    /// How many tokens the cache has for each sequence with those of the last graph, and for each that this one adds to, as
    /// before | after << 32.
    filled: Vec<u32>,
    grown: Vec<u64>,
    /// Which experts its tokens choose.
    experts: Experts,
    /// When this thread left the last barrier since the last node began; 0 for none.
    left_barrier: u64,
    /// The last graph of the open pass of which another backend computes nodes.
    offloaded: Option<Offloaded>,
    /// Whether such graphs are split in the open pass: decided at the first one.
    is_split: Option<bool>,
    /// What other backends compute; null in a process that has none.
    parts: *mut Parts,
}

thread_local! {
    /// This thread's, from its first graph on.
    static RUNNING: Cell<*mut Running> = const { Cell::new(ptr::null_mut()) };
    /// The same while a graph is computed, else null: finding a variable of a thread takes a call, so nodes look at one.
    static IN_GRAPH: Cell<*mut Running> = const { Cell::new(ptr::null_mut()) };
}

/// The clock: the processor's counter, which is as fast as a reading can be. `brickscope run` uses this library only where
/// it trusts it.
#[inline(always)]
fn count() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it, and no memory is touched.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: it reads a register that programs may read, and touches no memory.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
        count
    }
}

/// Ends the recording for a reason that the user can do something about. What was recorded is kept.
#[cold]
fn give_up(why: &str) {
    if IS_ON.swap(false, Relaxed) {
        match &mut *lock() {
            Some(state) => state.recording.write(Record::Fault, why.as_bytes()),
            None => file::say(why),
        }
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Does work of ours, which must not end the program: if it fails, nothing more is recorded. Nor is it where the program can
/// end a thread, since what is called by this is none of its calls.
fn guarded<R>(otherwise: R, work: impl FnOnce() -> R) -> R {
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: it writes a number.
    let is_set = unsafe { pthread_setcancelstate(DISABLE, &raw mut before) } == 0;
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        give_up("a mistake in brickscope's library");
        otherwise
    });
    if is_set {
        // SAFETY: it takes a number, and writes one.
        unsafe { pthread_setcancelstate(before, &raw mut before) };
    }
    done
}

/// Called by the linker before the program begins.
extern "C" fn begin() {
    // A panic prints nothing: what standard error gets is the program's.
    std::panic::set_hook(Box::new(|_| {}));
    guarded((), || {
        environment::take();
        // In the child of a fork another thread may have the lock.
        symbols::at_fork(|| {
            if HAS_STATE.load(Relaxed) {
                IS_ON.store(false, Relaxed);
            }
        });
        file::greet();
        hooks::look();
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

thread_local! {
    /// Whether this thread has the lock, or waits for it.
    static HAS_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// What all threads share, for as long as this is there.
struct Locked {
    state: MutexGuard<'static, Option<State>>,
    // Dropped after the lock is free.
    _has_lock: HasLock,
}

struct HasLock;

impl Drop for HasLock {
    fn drop(&mut self) {
        HAS_LOCK.set(false);
    }
}

impl Deref for Locked {
    type Target = Option<State>;

    fn deref(&self) -> &Option<State> {
        &self.state
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Option<State> {
        &mut self.state
    }
}

fn lock() -> Locked {
    HAS_LOCK.set(true);
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    Locked { state, _has_lock: HasLock }
}

/// This thread's graph, which is made at its first one and kept until the process ends: a thread that has computed a
/// graph computes more.
fn running() -> *mut Running {
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
fn this_thread() -> u16 {
    let running = RUNNING.get();
    // SAFETY: it is this thread's, and a number in it is read, which never changes.
    if running.is_null() { 0 } else { unsafe { (*running).thread } }
}

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

/// Asks how many tokens the cache has now: llama.cpp has added those of the graph that it computes next.
///
/// # Safety
///
/// `running` is this thread's, and no reference to it is there.
unsafe fn look_at_cache(running: *mut Running) {
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

/// The function that ours stands in for.
macro_rules! real {
    ($hook:expr, $copy:expr, $type:ty) => {
        // SAFETY: the function has this type in all versions of llama.cpp that are recorded.
        unsafe {
            std::mem::transmute::<*const std::ffi::c_void, $type>(crate::hooks::real($hook, $copy))
        }
    };
}
use real;

/// In the place of ggml's function, which dispatches a node to special buffers.
///
/// # Safety
///
/// As the function that it stands for.
unsafe extern "C-unwind" fn ggml_cpu_extra_compute_forward<const COPY: usize>(
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
unsafe extern "C-unwind" fn ggml_compute_forward_rms_norm_mul_fused<const COPY: usize>(
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
unsafe extern "C-unwind" fn ggml_barrier<const COPY: usize>(pool: *const c_void) {
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
unsafe extern "C-unwind" fn ggml_graph_compute<const COPY: usize>(
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

/// In the place of ggml's function, which computes a graph on several backends.
///
/// # Safety
///
/// As the function that it stands for.
unsafe extern "C-unwind" fn ggml_backend_sched_graph_compute_async<const COPY: usize>(
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
unsafe extern "C-unwind" fn ggml_backend_sched_set_eval_callback<const COPY: usize>(
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

/// Notes once that something isn't recorded.
#[cold]
fn lose(what: &str) {
    if let Some(state) = &mut *lock() {
        state.recording.lose(what);
    }
}

/// Writes the nodes that another backend has computed since the last ones were written.
fn write_part(parts: &mut Parts) {
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

/// Makes the recording at the first pass, and says whether there is one.
fn is_ready() -> bool {
    HAS_STATE.store(true, Release);
    let mut state = lock();
    if state.is_some() {
        return true;
    }
    match Recording::create() {
        Ok(recording) => {
            *state = Some(State {
                recording,
                known: HashMap::new(),
                layouts: [const { [const { None }; COPIES] }; 2],
                libraries: 0,
                load: load::Load::new(),
                models: Vec::new(),
                sockets: sockets::Sockets::default(),
            });
            let asked = environment::asked();
            if asked.shares {
                shares::turn_on();
            }
            IS_TURNING.store(asked.turns, Relaxed);
            true
        }
        Err(why) => {
            drop(state);
            give_up(&why);
            false
        }
    }
}

/// Whether a copy of ggml looks as it should, which is checked at its first graph.
#[inline(always)]
fn is_known(by: Known, copy: usize) -> bool {
    match COPIES_KNOWN[by as usize][copy].load(Relaxed) {
        UNKNOWN => guarded(false, || look_at(by, copy)),
        known => known == LOOKED_AT,
    }
}

/// A function gets the number of one that is gone.
fn forget(hook: Hook, copy: usize) {
    for by in [Known::Graph, Known::Scheduled] {
        if by.hook() == hook {
            COPIES_KNOWN[by as usize][copy].store(UNKNOWN, Relaxed);
        }
    }
}

#[cold]
fn look_at(by: Known, copy: usize) -> bool {
    if !is_ready() {
        return false;
    }
    // The linker is asked, so nobody waits for us meanwhile.
    let layout = ggml::Layout::check(|name| hooks::beside(by.hook(), copy, name));
    let library = symbols::library(by.hook(), copy);
    let mut state = lock();
    let Some(state) = &mut *state else { return false };
    let known = &COPIES_KNOWN[by as usize][copy];
    // Another thread may have looked meanwhile.
    if known.load(Relaxed) != UNKNOWN {
        return known.load(Relaxed) == LOOKED_AT;
    }
    match layout {
        Ok(layout) => {
            if let Known::Graph = by {
                experts::know(copy, &layout);
            }
            state.layouts[by as usize][copy] = Some((state.libraries, layout));
            if let Known::Graph = by {
                let text = library.described(state.libraries);
                state.recording.write(Record::Library, text.as_bytes());
                state.libraries += 1;
            }
            known.store(LOOKED_AT, Relaxed);
        }
        Err(why) => {
            state.recording.lose(&format!("graphs of {}: {why}", library.name()));
            known.store(REFUSED, Relaxed);
        }
    }
    known.load(Relaxed) == LOOKED_AT
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

impl State {
    /// Writes which files of models are mapped, those that were not before.
    fn tell_models(&mut self) {
        for model in symbols::mapped_models() {
            if !self.models.contains(&model) {
                self.recording.write(Record::Model, model.as_bytes());
                self.models.push(model);
            }
        }
    }

    /// The number of a graph. It is described at its first time, which takes a while: the time is written down, so that it
    /// isn't taken for the program's.
    fn number_of(
        &mut self,
        (by, copy): (Known, usize),
        hash: u64,
        on: Option<&str>,
        nodes: &[[*const Tensor; 2]],
    ) -> Option<u32> {
        // Another copy may lie where one was.
        let (library, layout) = self.layouts[by as usize][copy].as_ref()?;
        let hash = ggml::mixed_words(hash, [*library as u64, by as u64]);
        if let Some(&number) = self.known.get(&hash) {
            return Some(number);
        }
        if self.known.len() == MOST_GRAPHS {
            self.recording.lose("graphs of more than 4096 shapes");
            return None;
        }
        let begin = count();
        let number = self.known.len() as u32;
        let library = matches!(by, Known::Graph).then_some(*library);
        let text = node::describe(number, library, on, nodes, layout);
        self.recording.write(Record::Nodes, text.as_bytes());
        self.known.insert(hash, number);
        self.recording.write_words(
            Record::Described,
            &[begin, count(), u64::from(this_thread())],
            &[],
        );
        Some(number)
    }
}
