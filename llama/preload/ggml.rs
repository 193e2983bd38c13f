//! ggml's structures, as far as they are read, and the check that they look so in the library that is loaded.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::chosen::Unread;

/// `ggml_tensor`, up to its name. The same since 2024.
#[repr(C)]
pub(crate) struct Tensor {
    pub(crate) kind: i32,
    pub(crate) buffer: *const c_void,
    pub(crate) ne: [i64; 4],
    pub(crate) nb: [usize; 4],
    pub(crate) op: i32,
    op_params: [i32; 16],
    flags: i32,
    pub(crate) src: [*const Tensor; 10],
    view_src: *const Tensor,
    view_offs: usize,
    data: *const c_void,
    name: [c_char; 64],
}

/// `ggml_compute_params`: its first fields.
#[repr(C)]
pub(crate) struct Params {
    pub(crate) ith: i32,
    nth: i32,
}

/// `ggml_cplan`: its first fields.
#[repr(C)]
pub(crate) struct Cplan {
    work_size: usize,
    work_data: *mut u8,
    pub(crate) n_threads: i32,
}

/// `llama_batch`, whose fields have been these for as long as there has been a `llama_context::decode`.
#[repr(C)]
pub(crate) struct Batch {
    pub(crate) n_tokens: i32,
    token: *const i32,
    embd: *const f32,
    pos: *const i32,
    pub(crate) n_seq_id: *const i32,
    pub(crate) seq_id: *const *const i32,
    pub(crate) logits: *const i8,
}

/// `ggml_cgraph` and `llama_context`, of which nothing is read.
pub(crate) type Cgraph = c_void;
pub(crate) type Context = c_void;

type OpDesc = unsafe extern "C" fn(*const Tensor) -> *const c_char;
type TypeName = unsafe extern "C" fn(i32) -> *const c_char;
type NBytes = unsafe extern "C" fn(*const Tensor) -> usize;
type GetName = unsafe extern "C" fn(*const Tensor) -> *const c_char;
type NElements = unsafe extern "C" fn(*const Tensor) -> i64;
/// Whether a buffer is in the host's memory.
pub(crate) type IsHost = unsafe extern "C" fn(*const c_void) -> bool;

/// ggml's own functions, which say what a tensor is.
pub(crate) struct Layout {
    op_desc: OpDesc,
    type_name: TypeName,
    nbytes: NBytes,
    /// The number of the operation that multiplies with experts' matrices; -1 if this version has none.
    pub(crate) experts: i32,
    pub(crate) is_host: Option<IsHost>,
}

/// The experts that tokens chose: so many for each token.
pub(crate) struct Ids {
    data: *const c_void,
    pub(crate) used: usize,
    pub(crate) tokens: usize,
    strides: [usize; 2],
}

impl Ids {
    /// Calls back with each number, token by token.
    ///
    /// # Safety
    ///
    /// The CPU is about to compute the product that reads them.
    #[inline(always)]
    pub(crate) unsafe fn each(&self, mut with: impl FnMut(i32)) {
        for token in 0..self.tokens {
            for nth in 0..self.used {
                let at = token * self.strides[1] + nth * self.strides[0];
                // SAFETY: it is one of the tensor's numbers, which the CPU reads next.
                with(unsafe { self.data.byte_add(at).cast::<i32>().read_unaligned() });
            }
        }
    }
}

/// Products are among as many first operations in all versions.
const MOST_OPERATIONS: i32 = 60;

impl Layout {
    /// Finds functions of a copy of ggml and checks with them that tensors look as [`Tensor`] does.
    pub(crate) fn check(
        find: impl Fn(&CStr) -> Result<*const c_void, String>,
    ) -> Result<Self, String> {
        // SAFETY: the functions have had these types in all versions.
        let (mut layout, get_name, nelements) = unsafe {
            let op_desc = find(c"ggml_op_desc")?;
            let type_name = find(c"ggml_type_name")?;
            let nbytes = find(c"ggml_nbytes")?;
            let get_name = find(c"ggml_get_name")?;
            let nelements = find(c"ggml_nelements")?;
            let layout = Self {
                op_desc: std::mem::transmute::<*const c_void, OpDesc>(op_desc),
                type_name: std::mem::transmute::<*const c_void, TypeName>(type_name),
                nbytes: std::mem::transmute::<*const c_void, NBytes>(nbytes),
                experts: -1,
                // Without it, the CPU computes with what there is: it has all of that in its reach.
                is_host: find(c"ggml_backend_buffer_is_host")
                    .ok()
                    .map(|found| std::mem::transmute::<*const c_void, IsHost>(found)),
            };
            let get_name = std::mem::transmute::<*const c_void, GetName>(get_name);
            let nelements = std::mem::transmute::<*const c_void, NElements>(nelements);
            (layout, get_name, nelements)
        };
        // Room for a larger structure, too.
        #[repr(C)]
        struct Probe {
            tensor: Tensor,
            rest: [u64; 64],
        }
        // SAFETY: all of it is numbers and pointers, for which zero is a value.
        let mut probe: Probe = unsafe { std::mem::zeroed() };
        probe.tensor.ne = [2, 3, 5, 7];
        // SAFETY: the functions read `ne`, and add to an address, of a tensor that is larger than any.
        let (offset, elements) = unsafe {
            let at = ptr::from_ref(&probe.tensor);
            ((get_name(at) as usize).wrapping_sub(at as usize), nelements(at))
        };
        if offset != std::mem::offset_of!(Tensor, name) || elements != 2 * 3 * 5 * 7 {
            return Err(format!(
                "this version of ggml has other tensors than brickscope knows (name at {offset}, {elements} elements)"
            ));
        }
        // The first operation after none has been DUP in all versions, and the sizes of a tensor of f32 (type 0) are known.
        probe.tensor.op = 1;
        probe.tensor.nb = [4, 8, 24, 120];
        // SAFETY: as above; they read the type, the operation, `ne` and `nb`.
        let (op, bytes) = unsafe {
            let at = ptr::from_ref(&probe.tensor);
            (text((layout.op_desc)(at)), (layout.nbytes)(at))
        };
        if op != "DUP" || bytes != 4 * 2 * 3 * 5 * 7 {
            return Err(format!(
                "this version of ggml has other tensors than brickscope knows (operation {op}, {bytes} bytes)"
            ));
        }
        // An operation behind the last one has no name, and to ask for it may end the program: none is asked for but up to
        // that of products, which all have, and the one behind it, which is that of experts where there is one.
        let mut name_of = |op: i32| {
            probe.tensor.op = op;
            layout.op(&probe.tensor)
        };
        let products = (1..MOST_OPERATIONS).find(|&op| name_of(op) == "MUL_MAT");
        let experts = products.map(|op| op + 1).filter(|&op| name_of(op) == "MUL_MAT_ID");
        layout.experts = experts.unwrap_or(-1);
        Ok(layout)
    }

    /// The operation of a node: `MUL_MAT`; of a unary one, which: `SILU`.
    pub(crate) fn op(&self, tensor: &Tensor) -> String {
        // SAFETY: the tensor is one of ggml's.
        unsafe { text((self.op_desc)(tensor)) }
    }

    /// The name of the type of a tensor's numbers: `q4_K`.
    pub(crate) fn type_name(&self, tensor: &Tensor) -> String {
        // SAFETY: the type is that of one of ggml's tensors.
        unsafe { text((self.type_name)(tensor.kind)) }
    }

    /// The bytes that a tensor spans.
    pub(crate) fn nbytes(&self, tensor: &Tensor) -> u64 {
        // SAFETY: the tensor is one of ggml's.
        unsafe { (self.nbytes)(tensor) as u64 }
    }
}

impl Tensor {
    /// What tells the numbers of a weight without a name from others': a hash of 64 bytes at its begin, in its middle, and at
    /// its end, as `brickscope_llama::whisper::numbers` has it of a file.
    ///
    /// # Safety
    ///
    /// The CPU has just computed with the tensor, and what it read is still there.
    pub(crate) unsafe fn numbers(&self, layout: &Layout) -> Option<u64> {
        let is_leaf = self.op == 0 && self.view_src.is_null() && !self.data.is_null();
        let bytes = layout.nbytes(self) as usize;
        // A graph calls those without a name `leaf_7`.
        let has_name = self.name[0] != 0 && !self.name().starts_with("leaf_");
        if !is_leaf || has_name || bytes == 0 {
            return None;
        }
        let len = bytes.min(64);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for at in [0, (bytes - len) / 2, bytes - len] {
            // SAFETY: it has so many bytes from there on, and the caller says that they are there.
            let some = unsafe { std::slice::from_raw_parts(self.data.cast::<u8>().add(at), len) };
            for byte in some {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        Some(hash)
    }

    /// Where the numbers of the experts are that the tokens of a product chose.
    ///
    /// # Safety
    ///
    /// The CPU is about to compute the product, so its sources are there; the function is that of its copy of ggml.
    pub(crate) unsafe fn ids(&self, is_host: Option<IsHost>) -> Result<Ids, Unread> {
        /// The number of the type of 32-bit integers, in all versions.
        const I32: i32 = 26;
        const MOST_USED: i64 = 1 << 12;
        const MOST_TOKENS: i64 = 1 << 24;
        // SAFETY: the sources of a node live as long as it does.
        let ids = unsafe { self.src[2].as_ref() }.ok_or(Unread::Form)?;
        let is_known = ids.kind == I32 && !ids.data.is_null() && ids.ne[2..] == [1, 1];
        let [used, tokens, ..] = ids.ne;
        if !is_known || !(1..=MOST_USED).contains(&used) || !(1..=MOST_TOKENS).contains(&tokens) {
            return Err(Unread::Form);
        }
        // SAFETY: what a view is of lives as long as it does.
        let whole = unsafe { ids.view_src.as_ref() }.filter(|_| ids.buffer.is_null());
        let buffer = whole.map_or(ids.buffer, |whole| whole.buffer);
        // Without a buffer it is in a context's own memory.
        if let Some(is_host) = is_host.filter(|_| !buffer.is_null()) {
            // SAFETY: the function is ggml's, and so is the buffer.
            if !unsafe { is_host(buffer) } {
                return Err(Unread::Place);
            }
        }
        let strides = [ids.nb[0], ids.nb[1]];
        Ok(Ids { data: ids.data, used: used as usize, tokens: tokens as usize, strides })
    }

    pub(crate) fn name(&self) -> String {
        let bytes: Vec<u8> =
            self.name.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// # Safety
///
/// `text` is null or ends with a zero byte.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "?".to_owned();
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Adds what tells a node from others to a hash of those before it: where it lies, what it computes, and shapes. Names
/// aren't read: they lie in further cache lines, which the node itself doesn't need.
///
/// # Safety
///
/// `node` is one of ggml's tensors.
#[inline(always)]
pub(crate) unsafe fn mixed(hash: u64, node: *const Tensor) -> u64 {
    // SAFETY: the caller says so, and the sources of a node live as long as it does.
    let words = unsafe {
        let node = &*node;
        // Of attention, only the second source says how many tokens are in the cache.
        let second = node.src[1].as_ref().map_or(0, |src| src.ne[1] as u64);
        // Another model may lie where one was that has been freed, with the same shapes in other formats.
        let format = node.src[0].as_ref().map_or(0, |src| src.kind as u64);
        let [a, b, c, d] = node.ne.map(|n| n as u64);
        let shape = a ^ b.rotate_left(16) ^ c.rotate_left(32) ^ d.rotate_left(48);
        let place = ptr::from_ref(node) as u64 ^ (node.src[0] as u64).rotate_left(21);
        [place ^ (node.op as u64 ^ format << 8).rotate_left(48), shape ^ second.rotate_left(24)]
    };
    mixed_words(hash, words)
}

/// Adds two words to a hash. The multiplier is that of FxHash.
#[inline(always)]
pub(crate) fn mixed_words(hash: u64, words: [u64; 2]) -> u64 {
    words
        .iter()
        .fold(hash, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The number of the type of 32-bit integers.
    pub(crate) const I32: i32 = 26;

    /// A tensor of numbers of four bytes, in rows that follow each other.
    pub(crate) fn tensor(kind: i32, ne: [i64; 4], data: *const c_void) -> Tensor {
        // SAFETY: all of it is numbers and pointers, for which zero is a value.
        let mut tensor: Tensor = unsafe { std::mem::zeroed() };
        (tensor.kind, tensor.ne, tensor.data) = (kind, ne, data);
        tensor.nb[0] = 4;
        for n in 1..4 {
            tensor.nb[n] = tensor.nb[n - 1].wrapping_mul(ne[n - 1] as usize);
        }
        tensor
    }
}
