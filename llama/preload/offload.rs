//! Nodes that other backends than the CPU compute, such as a GPU's.
//!
//! ggml hands such a backend a whole part of a graph at once, and nobody outside of the backend sees where a node ends. Its
//! scheduler has a callback for that: where it asks for a node, the backend computes that node by itself, and is waited
//! for. So a time from the question to the end is the node's, with its launch and the wait. It costs time, so passes take
//! turns: two are split so, and the next ones are left whole. Nodes of the CPU are never asked for: they are timed as
//! ever.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use crate::ggml::{self, Cgraph, Tensor};
use crate::hooks::{self, Hook};
use crate::{MOST_NODES, count};

/// `ggml_backend_sched` and `ggml_backend`, of which nothing is read.
pub(crate) type Scheduler = c_void;
pub(crate) type Backend = c_void;

/// What is asked before a node, and told after it.
pub(crate) type Callback = unsafe extern "C-unwind" fn(*const Tensor, bool, *mut c_void) -> bool;

/// Operations that compute nothing, so that nobody need wait for them.
const EMPTY: [&CStr; 5] = [c"NONE", c"RESHAPE", c"VIEW", c"PERMUTE", c"TRANSPOSE"];

/// The begin of the name of backends that run in another process. To wait for one of them is to wait until it has been
/// sent what to do; only its answer to a question tells that it has done that.
const REMOTE: &[u8] = b"RPC";

macro_rules! functions {
    ($($field:ident: $name:literal, $type:ty;)*) => {
        /// ggml's functions.
        pub(crate) struct Ggml {
            $($field: $type,)*
        }

        impl Ggml {
            fn find(copy: usize) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: the functions have had these types in all versions that have them.
                    $($field: unsafe {
                        std::mem::transmute::<*const c_void, $type>(hooks::beside(Hook::Scheduled, copy, $name)?)
                    },)*
                })
            }
        }
    };
}

functions! {
    set_callback: c"ggml_backend_sched_set_eval_callback",
        unsafe extern "C-unwind" fn(*mut Scheduler, Option<Callback>, *mut c_void);
    synchronize: c"ggml_backend_sched_synchronize", unsafe extern "C-unwind" fn(*mut Scheduler);
    backends: c"ggml_backend_sched_get_n_backends", unsafe extern "C-unwind" fn(*mut Scheduler) -> c_int;
    backend: c"ggml_backend_sched_get_backend",
        unsafe extern "C-unwind" fn(*mut Scheduler, c_int) -> *const Backend;
    splits: c"ggml_backend_sched_get_n_splits", unsafe extern "C-unwind" fn(*mut Scheduler) -> c_int;
    backend_of: c"ggml_backend_sched_get_tensor_backend",
        unsafe extern "C-unwind" fn(*mut Scheduler, *const Tensor) -> *const Backend;
    name: c"ggml_backend_name", unsafe extern "C-unwind" fn(*const Backend) -> *const c_char;
    nodes: c"ggml_graph_n_nodes", unsafe extern "C-unwind" fn(*mut Cgraph) -> c_int;
    node: c"ggml_graph_node", unsafe extern "C-unwind" fn(*mut Cgraph, c_int) -> *const Tensor;
    read: c"ggml_backend_tensor_get",
        unsafe extern "C-unwind" fn(*const Tensor, *mut c_void, usize, usize);
    op: c"ggml_op_desc", unsafe extern "C-unwind" fn(*const Tensor) -> *const c_char;
    nbytes: c"ggml_nbytes", unsafe extern "C-unwind" fn(*const Tensor) -> usize;
}

/// Those of a copy of ggml, looked for at its first graph.
fn functions(copy: usize) -> Result<&'static Ggml, &'static str> {
    type Found = &'static Result<Ggml, String>;
    type Known = Mutex<Vec<((Hook, usize, u32), Found)>>;
    static KNOWN: Known = Mutex::new(Vec::new());
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let copy_of = hooks::identity(Hook::Scheduled, copy);
    let known = lock().iter().find(|(of, _)| *of == copy_of).map(|(_, found)| *found);
    let found = known.unwrap_or_else(|| {
        // Without the lock, since the linker is asked.
        let found: Found = Box::leak(Box::new(Ggml::find(copy)));
        lock().push((copy_of, found));
        found
    });
    found.as_ref().map_err(String::as_str)
}

impl Ggml {
    /// Whether a node computes nothing.
    ///
    /// # Safety
    ///
    /// It is one of ggml's.
    unsafe fn is_empty(&self, node: *const Tensor) -> bool {
        // SAFETY: the caller says so; the name is a constant.
        let op = unsafe { (self.op)(node) };
        // SAFETY: as above.
        !op.is_null() && EMPTY.contains(&unsafe { CStr::from_ptr(op) })
    }

    /// # Safety
    ///
    /// The backend is one of ggml's.
    unsafe fn name<'b>(&self, backend: *const Backend) -> &'b CStr {
        // SAFETY: the caller says so; the name is kept as long as the backend.
        let name = unsafe { (self.name)(backend) };
        // SAFETY: as above.
        if name.is_null() { c"another backend" } else { unsafe { CStr::from_ptr(name) } }
    }

    /// Returns when another process has computed a node: it does one thing after the other, and the last one is to tell a
    /// few bytes of the node's result.
    ///
    /// # Safety
    ///
    /// The node is one of ggml's, in a buffer.
    unsafe fn ask_remote(&self, node: *const Tensor) {
        let mut bytes = [0_u8; 4];
        // SAFETY: the caller says so, and no more is read than there is, and fits.
        unsafe {
            let some = (self.nbytes)(node).min(bytes.len());
            (self.read)(node, bytes.as_mut_ptr().cast(), 0, some);
        }
    }
}

/// A graph of which another backend than the CPU computes nodes.
#[derive(Clone, Copy)]
pub(crate) struct Offloaded {
    ggml: &'static Ggml,
    copy: usize,
    scheduler: *mut Scheduler,
    cpu: *const Backend,
    /// The last node of such a backend, and the backend.
    last: *const Tensor,
    backend: *const Backend,
}

impl Offloaded {
    /// `None` if the CPU computes all of the graph. It is asked before the graph is computed, in a pass of llama.cpp, which
    /// has told the scheduler by then.
    ///
    /// # Errors
    ///
    /// If ggml's functions aren't there, so that nobody knows.
    ///
    /// # Safety
    ///
    /// Both are ggml's.
    pub(crate) unsafe fn find(
        copy: usize,
        scheduler: *mut Scheduler,
        graph: *mut Cgraph,
    ) -> Result<Option<Self>, &'static str> {
        let ggml = functions(copy)?;
        // SAFETY: the caller says so; nodes and backends are ggml's then, and have indices below their numbers.
        unsafe {
            let backends = (ggml.backends)(scheduler);
            if backends < 2 {
                return Ok(None);
            }
            // ggml demands that the last one is the CPU's.
            let cpu = (ggml.backend)(scheduler, backends - 1);
            let is_one = (ggml.splits)(scheduler) == 1;
            for n in (0..(ggml.nodes)(graph)).rev() {
                let last = (ggml.node)(graph, n);
                if ggml.is_empty(last) {
                    continue;
                }
                let backend = (ggml.backend_of)(scheduler, last);
                if !backend.is_null() && backend != cpu {
                    return Ok(Some(Self { ggml, copy, scheduler, cpu, last, backend }));
                }
                // Then the others are on the same one.
                if is_one {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Waits until all backends have computed what they were told to.
    ///
    /// # Safety
    ///
    /// The graph is the last one that its context has computed, and the context is still there.
    pub(crate) unsafe fn wait(&self) {
        let ggml = self.ggml;
        // SAFETY: the caller says so.
        unsafe {
            (ggml.synchronize)(self.scheduler);
            if !self.last.is_null() && ggml.name(self.backend).to_bytes().starts_with(REMOTE) {
                ggml.ask_remote(self.last);
            }
        }
    }

    /// Forgets the graph, since its scheduler has been given another one: then nobody knows for how long its nodes live.
    pub(crate) fn forget_nodes(&mut self) {
        self.last = ptr::null();
    }
}

/// Whether a pass is split at the nodes of other backends: two, of which one follows whole ones and one is followed by
/// them. Passes of several tokens take turns of their own, and of these there are few, so that only two are whole then.
///
/// After passes of one token that were split, six are whole: a backend that captures graphs, as CUDA's does, captures this
/// one anew, and only then are passes as fast as if none were split.
///
/// # Safety
///
/// The graph is one of ggml's with a node.
pub(crate) unsafe fn is_turn_to_split(of: &Offloaded, graph: *mut Cgraph) -> bool {
    // Each scheduler, of which a context has one, takes turns of its own.
    static PASSES: [[AtomicU32; 2]; 64] = [const { [const { AtomicU32::new(0) }; 2] }; 64];
    let scheduler = (of.scheduler as usize as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
    let passes = &PASSES[scheduler as usize];
    // SAFETY: the caller says so. The first node looks up tokens.
    let tokens = unsafe { (*(of.ggml.node)(graph, 0)).ne[1] };
    let (nth, of) = if tokens > 1 { (&passes[1], 4) } else { (&passes[0], 8) };
    nth.fetch_add(1, Relaxed) % of < 2
}

/// The schedulers that the program has set a callback of its own for, and that callback.
static OWN: Mutex<Vec<(usize, Callback, usize)>> = Mutex::new(Vec::new());

fn own() -> std::sync::MutexGuard<'static, Vec<(usize, Callback, usize)>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The callback that the program has set for a scheduler, and its data.
fn set_by_program(scheduler: *mut Scheduler) -> Option<(Callback, usize)> {
    let own = own();
    own.iter().find(|known| known.0 == scheduler as usize).map(|known| (known.1, known.2))
}

/// The program has set its callback.
pub(crate) fn set_own(scheduler: *mut Scheduler, callback: Option<Callback>, data: *mut c_void) {
    let mut own = own();
    own.retain(|known| known.0 != scheduler as usize);
    own.extend(callback.map(|callback| (scheduler as usize, callback, data as usize)));
}

/// The nodes of other backends in the part of a graph that is being computed.
pub(crate) struct Parts {
    /// The graph, while it is split.
    graph: Option<Offloaded>,
    /// The copy of ggml that computes it, or that has computed the last one.
    ggml: Option<&'static Ggml>,
    copy: usize,
    /// Whose nodes these are; null if none has begun.
    backend: *const Backend,
    is_remote: bool,
    begin: u64,
    /// The begin and the end of each node.
    pub(crate) times: Box<[[u64; 2]]>,
    pub(crate) nodes: Box<[[*const Tensor; 2]]>,
    pub(crate) n: usize,
    pub(crate) hash: u64,
}

impl Parts {
    pub(crate) fn new() -> Self {
        Self {
            graph: None,
            ggml: None,
            copy: 0,
            backend: ptr::null(),
            is_remote: false,
            begin: 0,
            times: vec![[0; 2]; MOST_NODES].into_boxed_slice(),
            nodes: vec![[ptr::null(); 2]; MOST_NODES].into_boxed_slice(),
            n: 0,
            hash: 0,
        }
    }

    pub(crate) fn copy(&self) -> usize {
        self.copy
    }

    /// The name of the backend of these nodes, and what tells it from others.
    pub(crate) fn backend(&self) -> (String, u64) {
        let ggml = self.ggml.filter(|_| !self.backend.is_null());
        // SAFETY: the graph is still there, and so are its backends.
        let name = ggml.map(|ggml| unsafe { ggml.name(self.backend) });
        let name = name.map(|name| name.to_string_lossy().into_owned());
        (name.unwrap_or_default(), self.backend as u64)
    }

    /// A node will be computed. Whether it is to be computed by itself; `write` writes what is of another backend.
    ///
    /// # Safety
    ///
    /// The scheduler asks, of a node of its graph.
    pub(crate) unsafe fn ask(
        &mut self,
        node: *const Tensor,
        write: impl FnOnce(&mut Self),
    ) -> bool {
        let Some(graph) = self.graph else { return false };
        let ggml = graph.ggml;
        // SAFETY: the caller says so.
        let (backend, is_empty) =
            unsafe { ((ggml.backend_of)(graph.scheduler, node), ggml.is_empty(node)) };
        if backend.is_null() || backend == graph.cpu || is_empty {
            return false;
        }
        if backend != self.backend {
            write(self);
            self.backend = backend;
            // SAFETY: the scheduler has it.
            self.is_remote = unsafe { ggml.name(backend) }.to_bytes().starts_with(REMOTE);
        }
        self.begin = count();
        true
    }

    /// A node that was to be computed by itself has been.
    ///
    /// # Safety
    ///
    /// As for [`ask`](Self::ask).
    pub(crate) unsafe fn end(&mut self, node: *const Tensor) {
        let Some(graph) = self.graph else { return };
        if self.is_remote {
            // SAFETY: the caller says so, and the node has a result.
            unsafe { graph.ggml.ask_remote(node) };
        }
        let now = count();
        if let (Some(slot), Some(kept)) = (self.times.get_mut(self.n), self.nodes.get_mut(self.n)) {
            *slot = [self.begin, now];
            *kept = [node, ptr::null()];
            // SAFETY: the caller says so.
            self.hash = unsafe { ggml::mixed(self.hash, node) };
        }
        self.n += 1;
    }
}

/// Computes a graph that is split at the nodes of other backends: `callback` is called for each node, with `data`, whose
/// parts are `parts`. `None`, and nothing is computed, if the program has a callback of its own.
///
/// # Safety
///
/// `compute` computes the graph on this thread, and `parts` is valid. The callback may be called with the data.
pub(crate) unsafe fn split<R>(
    graph: Offloaded,
    parts: *mut Parts,
    callback: Callback,
    data: *mut c_void,
    compute: impl FnOnce() -> R,
) -> Option<R> {
    /// A graph that is split, whatever ends it.
    struct Split {
        graph: Offloaded,
        parts: *mut Parts,
    }
    impl Drop for Split {
        fn drop(&mut self) {
            // What the program has set meanwhile, or nothing.
            let set = set_by_program(self.graph.scheduler);
            let data = set.map_or(ptr::null_mut(), |(_, data)| data as *mut c_void);
            // SAFETY: the scheduler has computed its graph, and only the callback had a reference to the parts.
            unsafe {
                (self.graph.ggml.set_callback)(self.graph.scheduler, set.map(|(of, _)| of), data);
                (*self.parts).graph = None;
            }
        }
    }
    if set_by_program(graph.scheduler).is_some() {
        return None;
    }
    // SAFETY: the caller says so. While the graph is computed, only the callback has a reference to the parts.
    unsafe {
        (*parts).graph = Some(graph);
        (*parts).ggml = Some(graph.ggml);
        (*parts).copy = graph.copy;
        (*parts).backend = ptr::null();
        (*parts).n = 0;
        (*parts).hash = 0;
        (graph.ggml.set_callback)(graph.scheduler, Some(callback), data);
    }
    let _split = Split { graph, parts };
    Some(compute())
}
