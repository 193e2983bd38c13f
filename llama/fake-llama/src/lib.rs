//! What stands for a package of bindings: declarations as bindgen makes them of `llama.h`, as far as they are needed, with
//! functions that compute nothing. `llama_decode` goes through a graph as llama.cpp's CPU backend does: it lists the nodes,
//! and calls back after each that is computed.
#![allow(dead_code, missing_docs, unreachable_pub, non_camel_case_types, unsafe_code, clippy::all)]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

pub type ggml_type = u32;
pub const GGML_TYPE_F32: ggml_type = 0;
pub const GGML_TYPE_Q8_0: ggml_type = 8;
pub type ggml_op = u32;
pub const OPS: [(&CStr, bool); 12] = [
    (c"NONE", false),
    (c"MUL", true),
    (c"ADD", true),
    (c"RMS_NORM", true),
    (c"MUL_MAT", true),
    (c"GET_ROWS", true),
    (c"ROPE", true),
    (c"FLASH_ATTN_EXT", true),
    (c"SWIGLU", true),
    (c"RESHAPE", false),
    (c"VIEW", false),
    (c"SET_ROWS", true),
];

pub struct ggml_backend_buffer(pub &'static CStr);

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ggml_tensor {
    pub type_: ggml_type,
    pub buffer: *mut ggml_backend_buffer,
    pub ne: [i64; 4usize],
    pub nb: [usize; 4usize],
    pub op: ggml_op,
    pub op_params: [i32; 16usize],
    pub flags: i32,
    pub src: [*mut ggml_tensor; 10usize],
    pub view_src: *mut ggml_tensor,
    pub view_offs: usize,
    pub data: *mut c_void,
    pub name: [c_char; 64usize],
    pub extra: *mut c_void,
    pub padding: [c_char; 8usize],
}

pub type ggml_backend_sched_eval_callback =
    Option<unsafe extern "C" fn(t: *mut ggml_tensor, ask: bool, user_data: *mut c_void) -> bool>;
pub type ggml_abort_callback = Option<unsafe extern "C" fn(data: *mut c_void) -> bool>;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct llama_context_params {
    pub n_threads: i32,
    pub cb_eval: ggml_backend_sched_eval_callback,
    pub cb_eval_user_data: *mut c_void,
    pub abort_callback: ggml_abort_callback,
    pub abort_callback_data: *mut c_void,
}

pub struct llama_model;
pub struct llama_context(pub llama_context_params);
pub type llama_token = i32;
#[derive(Clone, Copy)]
pub struct llama_batch {
    pub n_tokens: i32,
}

pub unsafe fn ggml_get_name(tensor: *const ggml_tensor) -> *const c_char {
    // SAFETY: the caller has it from a graph, whose tensors are never freed.
    unsafe { (&raw const (*tensor).name).cast() }
}
pub unsafe fn ggml_op_desc(tensor: *const ggml_tensor) -> *const c_char {
    // SAFETY: as for `ggml_get_name`.
    unsafe { OPS[(*tensor).op as usize].0.as_ptr() }
}
pub unsafe fn ggml_type_name(kind: ggml_type) -> *const c_char {
    if kind == GGML_TYPE_F32 { c"f32".as_ptr() } else { c"q8_0".as_ptr() }
}
pub unsafe fn ggml_nbytes(tensor: *const ggml_tensor) -> usize {
    // SAFETY: as for `ggml_get_name`.
    unsafe { (*tensor).ne.iter().product::<i64>() as usize * (*tensor).nb[0] }
}
pub unsafe fn ggml_backend_buffer_name(buffer: *mut ggml_backend_buffer) -> *const c_char {
    // SAFETY: it is the buffer of a tensor, which is never freed.
    unsafe { (*buffer).0.as_ptr() }
}
pub unsafe fn ggml_backend_buffer_is_host(buffer: *mut ggml_backend_buffer) -> bool {
    // SAFETY: as for `ggml_backend_buffer_name`.
    unsafe { (*buffer).0 == c"CPU" }
}

pub unsafe fn llama_context_default_params() -> llama_context_params {
    llama_context_params {
        n_threads: 1,
        cb_eval: None,
        cb_eval_user_data: null_mut(),
        abort_callback: None,
        abort_callback_data: null_mut(),
    }
}
pub unsafe fn llama_init_from_model(
    _: *mut llama_model,
    params: llama_context_params,
) -> *mut llama_context {
    Box::into_raw(Box::new(llama_context(params)))
}
pub unsafe fn llama_free(context: *mut llama_context) {
    // SAFETY: `llama_init_from_model` has made it, and the caller frees it once.
    drop(unsafe { Box::from_raw(context) });
}
pub unsafe fn llama_batch_get_one(_: *mut llama_token, n_tokens: i32) -> llama_batch {
    llama_batch { n_tokens }
}

/// A tensor, and in which order its graph has it.
pub fn tensor(op: &str, name: &str, ne: [i64; 4]) -> Box<ggml_tensor> {
    let op = OPS.iter().position(|(known, _)| known.to_bytes() == op.as_bytes());
    let mut text = [0; 64];
    for (to, from) in text.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Box::new(ggml_tensor {
        type_: GGML_TYPE_F32,
        buffer: null_mut(),
        ne,
        nb: [4, 4, 4, 4],
        op: op.unwrap_or(0) as u32,
        op_params: [0; 16],
        flags: COMPUTE,
        src: [null_mut(); 10],
        view_src: null_mut(),
        view_offs: 0,
        data: null_mut(),
        name: text,
        extra: null_mut(),
        padding: [0; 8],
    })
}
pub const COMPUTE: i32 = 16;

/// A graph: nodes in order, and the weights and inputs that they read. Pointers into it stay, since each is in a box.
#[derive(Default)]
pub struct Graph {
    pub nodes: Vec<*mut ggml_tensor>,
    /// Nodes after which the CPU backend calls back.
    pub calls: usize,
    /// Called before each of these calls, with its number: a test moves its clock.
    pub before_call: Option<Box<dyn Fn(usize)>>,
    /// The same for listing a node.
    pub before_list: Option<Box<dyn Fn()>>,
}

impl Graph {
    pub fn leaf(&mut self, name: &str, ne: [i64; 4]) -> *mut ggml_tensor {
        Box::into_raw(tensor("NONE", name, ne))
    }
    pub fn node(
        &mut self,
        op: &str,
        name: &str,
        ne: [i64; 4],
        src: &[*mut ggml_tensor],
    ) -> *mut ggml_tensor {
        let mut made = tensor(op, name, ne);
        made.src[..src.len()].copy_from_slice(src);
        let made = Box::into_raw(made);
        self.nodes.push(made);
        made
    }
    /// The same on a backend that isn't the CPU's: its nodes lie in this buffer, and nothing is called back.
    pub fn on_device(mut self, buffer: &'static CStr) -> Self {
        let buffer = Box::into_raw(Box::new(ggml_backend_buffer(buffer)));
        for &node in &self.nodes {
            // SAFETY: the graph has made it, and nobody else looks at it now.
            unsafe { (*node).buffer = buffer };
        }
        self.calls = 0;
        self
    }
    pub fn timed(mut self, before_call: impl Fn(usize) + 'static) -> Self {
        self.before_call = Some(Box::new(before_call));
        self
    }
    /// As ggml's scheduler and its CPU backend.
    ///
    /// # Safety
    ///
    /// The callbacks are functions of these types.
    pub unsafe fn compute(&self, params: &llama_context_params) {
        // SAFETY: the caller says what the callbacks are; nodes are never freed.
        unsafe {
            if let Some(list) = params.cb_eval {
                for &node in &self.nodes {
                    if let Some(before) = &self.before_list {
                        before();
                    }
                    assert!(!list(node, true, params.cb_eval_user_data), "the graph is not split");
                }
            }
            for call in 0..self.calls {
                if let Some(before) = &self.before_call {
                    before(call);
                }
                if let Some(after) = params.abort_callback {
                    assert!(!after(params.abort_callback_data), "nothing is aborted");
                }
            }
        }
    }
}

thread_local! {
    /// What `llama_decode` computes, one after the other; a layer of a transformer unless a test sets it.
    pub static GRAPHS: RefCell<Vec<Graph>> = RefCell::new(vec![layer(1)]);
}

/// An embedding, a layer, and a head, for so many tokens.
pub fn layer(tokens: i64) -> Graph {
    let mut graph = Graph::default();
    let g = &mut graph;
    let [wide, row] = [[64, tokens, 1, 1], [64, 1, 1, 1]];
    let table = g.leaf("token_embd.weight", [64, 100, 1, 1]);
    let embd = g.node("GET_ROWS", "embd", wide, &[table]);
    let norm = g.node("RMS_NORM", "norm-0", wide, &[embd]);
    let weights = g.leaf("blk.0.attn_norm.weight", row);
    let normed = g.node("MUL", "attn_norm-0", wide, &[norm, weights]);
    let query = g.leaf("blk.0.attn_q.weight", [64, 64, 1, 1]);
    let q = g.node("MUL_MAT", "Qcur-0", wide, &[query, normed]);
    let q = g.node("RESHAPE", "Qcur-0 (reshaped)", [16, 4, tokens, 1], &[q]);
    let q = g.node("ROPE", "Qcur-0", [16, 4, tokens, 1], &[q]);
    let [k, v] = ["cache_k_l0", "cache_v_l0"].map(|name| g.leaf(name, [16, 256, 4, 1]));
    let attended = g.node("FLASH_ATTN_EXT", "kqv_out-0", wide, &[q, k, v]);
    let output = g.leaf("blk.0.attn_output.weight", [64, 64, 1, 1]);
    let out = g.node("MUL_MAT", "attn_out-0", wide, &[output, attended]);
    let sum = g.node("ADD", "ffn_inp-0", wide, &[out, embd]);
    let head = g.leaf("output.weight", [64, 100, 1, 1]);
    g.node("MUL_MAT", "result_output", [100, tokens, 1, 1], &[head, sum]);
    // Of ten, a norm and its product are computed as one, and a view isn't computed.
    g.calls = 8;
    graph
}

pub unsafe fn llama_decode(context: *mut llama_context, batch: llama_batch) -> i32 {
    if batch.n_tokens <= 0 {
        return -1;
    }
    GRAPHS.with_borrow(|graphs| {
        // SAFETY: the context is there, and its callbacks have their types.
        graphs.iter().for_each(|graph| unsafe { graph.compute(&(*context).0) })
    });
    0
}
