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
//! | `ggml_graph_compute` | a graph, or the part of it that the CPU computes, begins and ends: see [`graphs`] |
//! | `ggml_cpu_extra_compute_forward` | which node begins, on each thread |
//! | `ggml_compute_forward_rms_norm_mul_fused` | which two nodes begin that are computed as one |
//! | `ggml_barrier` | when the next node begins; where that was asked for, how long a thread waits for the others, see [`shares`] |
//! | `ggml_backend_sched_graph_compute_async` | a graph begins and ends, of which other backends may compute parts; a pass, if it is in none: see [`scheduled`] |
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
mod copies;
mod environment;
mod experts;
mod file;
#[allow(dead_code, reason = "each side uses its half")]
#[path = "../src/recording/format.rs"]
mod format;
mod ggml;
mod graphs;
mod hooks;
mod http;
mod load;
mod node;
mod objects;
mod offload;
mod passes;
mod running;
mod scheduled;
mod shares;
mod sockets;
mod symbols;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use copies::Known;
use file::Recording;
use format::Record;
use ggml::Tensor;
use hooks::COPIES;
use running::this_thread;

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

/// Notes once that something isn't recorded.
#[cold]
fn lose(what: &str) {
    if let Some(state) = &mut *lock() {
        state.recording.lose(what);
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
