//! llama.cpp's side: ggml's tensors, read through the user's own bindings, and the callbacks. All `unsafe` of this package
//! is here.
#![allow(unsafe_code, reason = "it reads tensors of C, and its functions are called by C")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use crate::executed::{Listed, Source};
use crate::running::Running;
use crate::{Node, Tensor};

/// What [`bindings!`](crate::bindings) makes of a package with bindings of llama.cpp: how ggml's tensors are read.
#[derive(Debug, Clone, Copy)]
pub struct Bindings {
    mix: Mix,
    fields: Fields,
    texts: Texts,
    buffers: Buffers,
}

type Mix = unsafe fn(*const c_void, u64) -> u64;
type Fields = unsafe fn(*const c_void) -> Raw;
type Texts = unsafe fn(*const c_void) -> RawTexts;

/// Where a tensor lies: its buffer, or null; and of a buffer, whether the CPU can compute in it, and its name.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    pub of: unsafe fn(*const c_void) -> *const c_void,
    pub is_host: unsafe fn(*const c_void) -> bool,
    pub name: unsafe fn(*const c_void) -> *const c_char,
}

/// What is read of a tensor's fields, by code that [`bindings!`](crate::bindings) makes.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Raw {
    pub ne: [i64; 4],
    pub element_bytes: usize,
    pub flags: i32,
    pub is_view: bool,
    pub src: [*const c_void; SOURCES],
}

/// What ggml's functions say of a tensor.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct RawTexts {
    pub name: *const c_char,
    pub op: *const c_char,
    pub kind: *const c_char,
    /// The name of the buffer that it lies in.
    pub buffer: *const c_char,
    pub bytes: usize,
}

/// The most sources of a tensor: `GGML_MAX_SRC`.
#[doc(hidden)]
pub const SOURCES: usize = 10;

/// `GGML_TENSOR_FLAG_OUTPUT`, and `GGML_TENSOR_FLAG_COMPUTE`, which versions of 2025 don't have.
const OUTPUT: i32 = 2;
const COMPUTE: i32 = 16;

impl Bindings {
    /// For [`bindings!`](crate::bindings) only.
    ///
    /// # Safety
    ///
    /// The functions may be called with any tensor of the graph that is being computed, and with its sources. The texts are
    /// null or end with a zero byte, and live as long as the tensor.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn of(mix: Mix, fields: Fields, texts: Texts, buffers: Buffers) -> Self {
        Self { mix, fields, texts, buffers }
    }
}

/// Makes [`Bindings`] of a package that `bindgen` has made of `llama.h`, such as `llama_cpp_sys_2`, or of a module with
/// such declarations: `bindings!(crate::sys)`.
///
/// It uses the fields `type_`, `buffer`, `ne`, `nb`, `op`, `flags`, `src` and `view_src` of `ggml_tensor`, and the functions
/// `ggml_get_name`, `ggml_op_desc`, `ggml_type_name`, `ggml_nbytes`, `ggml_backend_buffer_name` and
/// `ggml_backend_buffer_is_host`. What is missing or of another type is a compiler error.
///
/// ```
/// let bindings = brickscope_llama::bindings!(llama_cpp_sys_2);
/// ```
#[macro_export]
macro_rules! bindings {
    ($($sys:tt)+) => {{
        use $($sys)+ as __sys;
        use ::std::ffi::c_void as __void;
        // SAFETY: these are ggml's own declarations of tensors and functions.
        #[allow(unsafe_code, clippy::unnecessary_cast)]
        let bindings = unsafe {
            $crate::Bindings::of(
                |tensor: *const __void, hash: u64| {
                    let tensor = tensor.cast::<__sys::ggml_tensor>();
                    let [a, b, c, d] = (*tensor).ne;
                    let (first, second) = ((*tensor).src[0], (*tensor).src[1]);
                    let (mut first_kind, mut rows) = (0, 0);
                    if !first.is_null() {
                        first_kind = (*first).type_ as u64;
                    }
                    if !second.is_null() {
                        rows = (*second).ne[1] as u64;
                    }
                    let op = (*tensor).op as u64;
                    let kind = (*tensor).type_ as u64;
                    $crate::__private::mixed(
                        hash,
                        [tensor as usize as u64, first as usize as u64],
                        [a as u64, b as u64, c as u64, d as u64, rows],
                        [op, kind, first_kind],
                    )
                },
                |tensor: *const __void| {
                    let tensor = tensor.cast::<__sys::ggml_tensor>();
                    let mut src = [::std::ptr::null(); $crate::__private::SOURCES];
                    for (to, from) in src.iter_mut().zip((*tensor).src) {
                        *to = from as *const __void;
                    }
                    $crate::__private::Raw {
                        ne: (*tensor).ne,
                        element_bytes: (*tensor).nb[0] as usize,
                        flags: (*tensor).flags as i32,
                        is_view: !(*tensor).view_src.is_null(),
                        src,
                    }
                },
                |tensor: *const __void| {
                    let tensor = tensor.cast::<__sys::ggml_tensor>();
                    let buffer = (*tensor).buffer;
                    $crate::__private::RawTexts {
                        name: __sys::ggml_get_name(tensor),
                        op: __sys::ggml_op_desc(tensor),
                        kind: __sys::ggml_type_name((*tensor).type_),
                        buffer: if buffer.is_null() {
                            ::std::ptr::null()
                        } else {
                            __sys::ggml_backend_buffer_name(buffer)
                        },
                        bytes: __sys::ggml_nbytes(tensor) as usize,
                    }
                },
                $crate::__private::Buffers {
                    of: |tensor: *const __void| {
                        (*tensor.cast::<__sys::ggml_tensor>()).buffer as *const __void
                    },
                    is_host: |buffer: *const __void| {
                        __sys::ggml_backend_buffer_is_host(buffer as *mut _)
                    },
                    name: |buffer: *const __void| {
                        __sys::ggml_backend_buffer_name(buffer as *mut _)
                    },
                },
            )
        };
        bindings
    }};
}

/// Adds what tells a node from others to a hash of those before it: where it and its first source lie, shapes, and what it
/// computes of what types. The multiplier is that of FxHash.
#[doc(hidden)]
#[inline(always)]
#[must_use]
pub fn mixed(hash: u64, places: [u64; 2], shapes: [u64; 5], kinds: [u64; 3]) -> u64 {
    let [a, b, c, d, rows] = shapes;
    let [op, kind, first_kind] = kinds;
    let shape = a ^ b.rotate_left(16) ^ c.rotate_left(32) ^ d.rotate_left(48);
    let place = places[0] ^ places[1].rotate_left(21);
    let kinds = op ^ kind.rotate_left(16) ^ first_kind.rotate_left(32);
    [place, shape, kinds ^ rows.rotate_left(40)]
        .iter()
        .fold(hash, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95))
}

thread_local! {
    /// The pass that this thread runs. Null outside of passes, so callbacks do nothing then, whoever still has them.
    static OPEN: Cell<*mut Callbacks> = const { Cell::new(ptr::null_mut()) };
}

/// What callbacks work with.
#[derive(Debug)]
pub(crate) struct Callbacks {
    pub(crate) bindings: Bindings,
    pub(crate) running: Running,
}

impl Callbacks {
    /// Runs `run`, and stores what callbacks on this thread say meanwhile.
    pub(crate) fn during<R>(&mut self, run: impl FnOnce() -> R) -> R {
        struct Restore(*mut Callbacks);
        impl Drop for Restore {
            fn drop(&mut self) {
                OPEN.set(self.0);
            }
        }
        // Also if `run` panics: the reference ends with this function.
        let _restore = Restore(OPEN.replace(self));
        run()
    }
}

fn with_open(then: impl FnOnce(&mut Callbacks)) {
    let open = OPEN.get();
    if open.is_null() {
        return;
    }
    // SAFETY: `during` has set it on this thread, borrows it until it takes it back, and doesn't use it meanwhile. No callback
    // calls another, so there is no second reference.
    let callbacks = unsafe { &mut *open };
    // A panic mustn't leave a function that C has called. What it left half done isn't used any more.
    if catch_unwind(AssertUnwindSafe(|| then(&mut *callbacks))).is_err() {
        callbacks.running.fail();
    }
}

/// For `cb_eval` of `llama_context_params`: lists the nodes of a graph before it is computed, and asks for none of them, so
/// the graph stays whole.
///
/// ```
/// # let mut params = unsafe { llama_cpp_sys_2::llama_context_default_params() };
/// params.cb_eval = Some(brickscope_llama::on_node);
/// ```
///
/// # Safety
///
/// llama.cpp calls it. In a [`pass`](crate::Recorder::pass), `node` is a tensor as the recorder's [`Bindings`] have it.
pub unsafe extern "C" fn on_node<T>(node: *mut T, ask: bool, _: *mut c_void) -> bool {
    if ask && !node.is_null() {
        with_open(|Callbacks { bindings, running }| {
            let node = node.cast::<c_void>();
            // SAFETY: the caller says that it is a tensor.
            let buffer = unsafe { (bindings.buffers.of)(node) };
            // SAFETY: as above.
            running.node_listed(node, |hash| unsafe { (bindings.mix)(node, hash) });
            // Here, since the tensor is there. Where another backend computes, no node ends, so that the next graph may
            // be listed after this one, which is no more.
            if running.is_new_buffer(buffer.addr())
                // SAFETY: it is the buffer of a tensor.
                && unsafe { !(bindings.buffers.is_host)(buffer) }
            {
                // SAFETY: as above; the text is ggml's.
                running.go_elsewhere(unsafe { text((bindings.buffers.name)(buffer)) });
            }
        });
    }
    false
}

/// For `abort_callback` of `llama_context_params`, or for `llama_set_abort_callback`: notes when a node has been computed,
/// and never aborts.
///
/// ```
/// # let mut params = unsafe { llama_cpp_sys_2::llama_context_default_params() };
/// params.abort_callback = Some(brickscope_llama::after_node);
/// ```
///
/// # Safety
///
/// llama.cpp calls it.
pub unsafe extern "C" fn after_node(_: *mut c_void) -> bool {
    // SAFETY: the caller is llama.cpp.
    unsafe { node_ended() };
    false
}

/// What [`after_node`] does, for a program that has an abort callback of its own: call it there first, each time.
///
/// # Safety
///
/// llama.cpp has called the abort callback that calls this, so the nodes that it has listed are there.
#[inline]
pub unsafe fn node_ended() {
    let open = OPEN.get();
    if open.is_null() {
        return;
    }
    // SAFETY: as in `with_open`. This can't panic.
    let is_first = unsafe { (*open).running.node_ended() };
    if is_first {
        // SAFETY: the caller says so.
        unsafe { find_graph() };
    }
}

/// Out of line, since it is called once in a graph.
///
/// # Safety
///
/// As for [`node_ended`].
#[cold]
unsafe fn find_graph() {
    with_open(|Callbacks { bindings, running }| {
        running.find_graph(|nodes| {
            let nodes = nodes.iter().map(|node| node.load(Relaxed));
            // SAFETY: they were listed for the graph that is being computed: a node of it has just ended, and all that were
            // listed in this pass are for the CPU, whose graphs end before the next one is listed.
            nodes.map(|node| unsafe { bindings.listed(node) }).collect()
        });
    });
}

impl Bindings {
    /// # Safety
    ///
    /// `node` is a node of the graph that is being computed.
    unsafe fn listed(&self, node: *const c_void) -> Listed {
        // SAFETY: the caller says so; the sources of a node live as long as it does.
        let (fields, texts) = unsafe { ((self.fields)(node), (self.texts)(node)) };
        let sources = fields.src.iter().take_while(|src| !src.is_null());
        let sources: Vec<(*const c_void, Raw, RawTexts)> = sources
            // SAFETY: as above.
            .map(|&src| unsafe { (src, (self.fields)(src), (self.texts)(src)) })
            .collect();
        // SAFETY: the texts are ggml's, of tensors that are there.
        unsafe {
            Listed {
                place: node.addr(),
                node: Node {
                    op: text(texts.op),
                    out: tensor(&fields, &texts),
                    src: sources.iter().map(|(_, fields, texts)| tensor(fields, texts)).collect(),
                    then: None,
                },
                sources: sources
                    .iter()
                    .map(|(src, fields, _)| Source {
                        place: src.addr(),
                        element_bytes: fields.element_bytes,
                    })
                    .collect(),
                is_computed: fields.flags & COMPUTE != 0,
                is_output: fields.flags & OUTPUT != 0,
                is_view: fields.is_view,
                buffer: text(texts.buffer),
            }
        }
    }
}

/// # Safety
///
/// The texts are null or end with a zero byte.
unsafe fn tensor(fields: &Raw, texts: &RawTexts) -> Tensor {
    Tensor {
        // SAFETY: the caller says so.
        name: unsafe { text(texts.name) },
        // SAFETY: as above.
        kind: unsafe { text(texts.kind) },
        ne: fields.ne.map(|n| n.try_into().unwrap_or(0)),
        bytes: texts.bytes as u64,
        numbers: None,
    }
}

/// # Safety
///
/// `text` is null or ends with a zero byte.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
