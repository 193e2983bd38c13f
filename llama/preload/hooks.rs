//! Which functions ours stand in for, and where.
//!
//! A library calls the functions of others, and its own if others could replace them, through a table that the dynamic
//! linker fills. Ours are put into these tables, table by table: each place that had a function of ggml's or of llama.cpp's
//! gets one that remembers just that function, so a program with several copies of ggml calls in each what it would have
//! called. Where it isn't known what a place will have, nothing is put, nor where a name isn't one of [`NAMES`]. No name is
//! defined for others but those of [`environment`](crate::environment).
//!
//! What is loaded later is found when the program asks for a function of it, by `dlsym`.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use crate::objects::{self, Maps, Objects};

unsafe extern "C" {
    fn mprotect(at: *mut c_void, len: usize, protection: c_int) -> c_int;
    fn getpagesize() -> c_int;
    fn __errno_location() -> *mut c_int;
}

const WRITE: c_int = 2;

/// How often objects whose tables weren't filled are looked at again.
const MOST_TRIES: u32 = 64;

/// How many functions of one name are told apart.
pub(crate) const COPIES: usize = 8;

macro_rules! hooks {
    ($($hook:ident: $name:literal, $stub:path;)*) => {
        /// A function that one of ours stands in for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Hook {
            $($hook,)*
        }

        const HOOKS: &[Hook] = &[$(Hook::$hook,)*];
        const NAMES: &[&CStr] = &[$($name,)*];

        /// Ours, for the function of this name that has this number.
        fn stub(hook: Hook, copy: usize) -> usize {
            match hook {
                $(Hook::$hook => {
                    use $stub as stub;
                    let all = [
                        stub::<0> as *const () as usize, stub::<1> as *const () as usize,
                        stub::<2> as *const () as usize, stub::<3> as *const () as usize,
                        stub::<4> as *const () as usize, stub::<5> as *const () as usize,
                        stub::<6> as *const () as usize, stub::<7> as *const () as usize,
                    ];
                    all[copy]
                })*
            }
        }
    };
}

hooks! {
    Node: c"ggml_cpu_extra_compute_forward", crate::graphs::ggml_cpu_extra_compute_forward;
    Fused: c"ggml_compute_forward_rms_norm_mul_fused", crate::graphs::ggml_compute_forward_rms_norm_mul_fused;
    Barrier: c"ggml_barrier", crate::graphs::ggml_barrier;
    Graph: c"ggml_graph_compute", crate::graphs::ggml_graph_compute;
    Scheduled: c"ggml_backend_sched_graph_compute_async", crate::scheduled::ggml_backend_sched_graph_compute_async;
    SetCallback: c"ggml_backend_sched_set_eval_callback", crate::scheduled::ggml_backend_sched_set_eval_callback;
    Decode: c"_ZN13llama_context6decodeERK11llama_batch", crate::passes::decode;
    DecodeOld: c"_ZN13llama_context6decodeER11llama_batch", crate::passes::decode_old;
    DecodeExt: c"_ZN13llama_context6decodeERK15llama_batch_ext", crate::passes::decode_ext;
    Encode: c"_ZN13llama_context6encodeERK11llama_batch", crate::passes::encode;
    EncodeOld: c"_ZN13llama_context6encodeER11llama_batch", crate::passes::encode_old;
    EncodeExt: c"_ZN13llama_context6encodeERK15llama_batch_ext", crate::passes::encode_ext;
    WarmUp: c"_ZN13llama_context10set_warmupEb", crate::contexts::set_warmup;
    Freed: c"_ZN13llama_contextD1Ev", crate::contexts::freed;
    Build: c"_ZNK11llama_model11build_graphERK16llm_graph_params", crate::calls::build;
    Alloc: c"ggml_backend_sched_alloc_graph", crate::calls::alloc;
    Inputs: c"_ZN16llm_graph_result10set_inputsEPK12llama_ubatch", crate::calls::inputs;
    Results: c"ggml_backend_tensor_get_async", crate::calls::results;
    Sample: c"llama_sampler_sample", crate::calls::sample;
    SampleCommon: c"_Z21common_sampler_sampleP14common_samplerP13llama_contextib", crate::calls::sample_common;
    Accept: c"llama_sampler_accept", crate::calls::accept;
    AcceptCommon: c"_Z21common_sampler_acceptP14common_samplerib", crate::calls::accept_common;
    Apply: c"llama_sampler_apply", crate::calls::apply;
    Grammar: c"llama_sampler_init_grammar", crate::calls::grammar;
    GrammarLazy: c"llama_sampler_init_grammar_lazy_patterns", crate::calls::grammar_lazy;
    FreeSampler: c"llama_sampler_free", crate::calls::free;
    Tokenize: c"llama_tokenize", crate::calls::tokenize;
    Piece: c"llama_token_to_piece", crate::calls::piece;
    Detokenize: c"llama_detokenize", crate::calls::detokenize;
    Logits: c"llama_get_logits", crate::calls::logits;
    LogitsIth: c"llama_get_logits_ith", crate::calls::logits_ith;
    Embeddings: c"llama_get_embeddings", crate::calls::embeddings;
    EmbeddingsIth: c"llama_get_embeddings_ith", crate::calls::embeddings_ith;
    EmbeddingsSeq: c"llama_get_embeddings_seq", crate::calls::embeddings_seq;
    Synchronize: c"llama_synchronize", crate::calls::synchronize;
    BatchClear: c"llama_batch_ext_clear", crate::batch::clear;
    BatchFree: c"llama_batch_ext_free", crate::batch::free;
    BatchToken: c"llama_batch_ext_add_token", crate::batch::add_token;
    BatchEmbd: c"llama_batch_ext_add_embd", crate::batch::add_embd;
    BatchAny: c"llama_batch_ext_add", crate::batch::add;
    BatchOutput: c"llama_batch_ext_set_output_logits", crate::batch::set_output;
    BatchOutputEmbd: c"llama_batch_ext_set_output_embd", crate::batch::set_output_embd;
    SocketAccept4: c"accept4", crate::sockets::accept4;
    SocketAccept: c"accept", crate::sockets::accept;
    SocketRecv: c"recv", crate::sockets::recv;
    SocketRecvChk: c"__recv_chk", crate::sockets::recv_chk;
    SocketSend: c"send", crate::sockets::send;
    Socket: c"socket", crate::sockets::socket;
    SocketPair: c"socketpair", crate::sockets::socketpair;
    Ask: c"dlsym", ask;
    AskVersion: c"dlvsym", ask_version;
}

/// Names begin so.
const BEGINS: [&[u8; 2]; 9] = [b"gg", b"_Z", b"ll", b"dl", b"ac", b"re", b"se", b"so", b"__"];

impl Hook {
    /// Whether it is a function of the system's library, as which any program may call one of its own.
    fn is_of_system(self) -> bool {
        matches!(
            self,
            Self::SocketAccept4
                | Self::SocketAccept
                | Self::SocketRecv
                | Self::SocketRecvChk
                | Self::SocketSend
                | Self::Socket
                | Self::SocketPair
        )
    }
}

/// Whether an object is the C library, or the part of it that older ones have apart.
fn is_system(object: &objects::Object) -> bool {
    let file = object.file.to_bytes();
    let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or(file);
    name.starts_with(b"libc.so.") || name.starts_with(b"libpthread.so.")
}

/// The functions that ours stand in for.
static REAL: [[AtomicPtr<c_void>; COPIES]; HOOKS.len()] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; COPIES] }; HOOKS.len()];

/// The function that ours of this number stands in for: it was put somewhere, so there is one.
#[inline(always)]
pub(crate) fn real(hook: Hook, copy: usize) -> *const c_void {
    REAL[hook as usize][copy].load(Relaxed)
}

/// How often this number was given to a function: what is known of one that is gone says nothing of the next one.
static GENERATIONS: [[AtomicU32; COPIES]; HOOKS.len()] =
    [const { [const { AtomicU32::new(0) }; COPIES] }; HOOKS.len()];

/// What tells the function that ours of this number stands in for from all before it.
pub(crate) fn identity(hook: Hook, copy: usize) -> (Hook, usize, u32) {
    (hook, copy, GENERATIONS[hook as usize][copy].load(Acquire))
}

/// A function of the library that has the real one, or of those that it needs.
///
/// # Errors
///
/// If it isn't there.
pub(crate) fn beside(hook: Hook, copy: usize, name: &CStr) -> Result<*const c_void, String> {
    let real = real(hook, copy) as usize;
    let found = objects::with(&Maps::read(), |objects| {
        let object = objects.at(real)?;
        let near = objects.near(object, name);
        // One that was linked without what it needs.
        near.or_else(|| objects.only(object.space, name))
    });
    match found.flatten() {
        Some(found) => Ok(found as *const c_void),
        None => Err(format!("ggml's {} isn't there", name.to_string_lossy())),
    }
}

/// The file of the library that has the real function.
pub(crate) fn file(hook: Hook, copy: usize) -> String {
    let real = real(hook, copy) as usize;
    let found = objects::with(&Maps::read(), |objects| objects.at(real).map(|of| of.file.clone()))
        .flatten();
    found.unwrap_or_default().to_string_lossy().into_owned()
}

/// What has been looked at.
struct Seen {
    /// The base and the namespace of each object in whose table nothing is left to do.
    done: Vec<(usize, usize)>,
    unloaded: u64,
    loaded: u64,
    /// How often what was loaded then has been looked at again.
    tries: u32,
    /// The objects that have the functions which are stood in for: hook, number, base and file.
    holders: Vec<(Hook, usize, usize, CString)>,
    /// What could not be stood in for, and why.
    left: Vec<String>,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen {
    done: Vec::new(),
    unloaded: 0,
    loaded: 0,
    tries: 0,
    holders: Vec::new(),
    left: Vec::new(),
});
/// How many objects had been loaded when they were looked at last.
static LOADED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread looks: what it calls may come here again.
    static LOOKS: Cell<bool> = const { Cell::new(false) };
}

/// Puts ours into the tables of what has been loaded since the last call.
pub(crate) extern "C" fn look() {
    if LOOKS.try_with(|looks| looks.replace(true)).unwrap_or(true) {
        return;
    }
    // SAFETY: each thread has one, and what the caller has in it stays.
    let errno = unsafe { *__errno_location() };
    crate::guarded((), || {
        let [loaded, unloaded] = objects::changes();
        if LOADED.load(Acquire) != loaded {
            // A thread that finds another one here would find what that does.
            if let Ok(mut seen) = SEEN.try_lock() {
                look_at_all(&mut seen, [loaded, unloaded]);
            }
        }
    });
    // SAFETY: as above.
    unsafe { *__errno_location() = errno };
    let _ = LOOKS.try_with(|looks| looks.set(false));
}

fn look_at_all(seen: &mut Seen, [loaded, unloaded]: [u64; 2]) {
    // Another one may lie where one was.
    let are_fewer = seen.unloaded != unloaded;
    if are_fewer {
        seen.unloaded = unloaded;
        seen.done.clear();
    }
    // Before the linker's lock is taken.
    let global: Vec<usize> = NAMES.iter().map(|name| objects::global(name)).collect();
    let maps = Maps::read();
    let known = seen.left.len();
    let mut are_all_done = true;
    objects::with(&maps, |objects| {
        let own = look as *const () as usize;
        if are_fewer {
            forget_unloaded(seen, objects);
        }
        for object in objects.iter() {
            let place = (object.base, object.space);
            if seen.done.contains(&place) || object.has(own) {
                continue;
            }
            let mut is_done = true;
            for slot in object.slots(|begin| BEGINS.contains(&begin)) {
                let Some(nth) = NAMES.iter().position(|name| *name == slot.name) else { continue };
                let caller = Caller { objects, object, maps: &maps, own, global: global[nth] };
                let (now, real) = match caller.resolved(&slot) {
                    Found::Function(now, real) => (now, real),
                    Found::Ours => continue,
                    Found::NotYet => {
                        is_done = false;
                        continue;
                    }
                    Found::Unknown => {
                        note(seen, slot.name, object, "which function it calls isn't known");
                        continue;
                    }
                };
                if HOOKS[nth].is_of_system() && !objects.at(real).is_some_and(is_system) {
                    continue;
                }
                let Some(copy) = number(seen, objects, HOOKS[nth], real) else {
                    note(seen, slot.name, object, "there are more than 8 functions of this name");
                    continue;
                };
                if !put(&maps, slot.at, now, stub(HOOKS[nth], copy)) {
                    note(seen, slot.name, object, "its table can't be written to");
                }
            }
            if is_done {
                seen.done.push(place);
            } else {
                are_all_done = false;
            }
        }
    });
    for said in &seen.left[known..] {
        crate::file::say(said);
    }
    // One that is being loaded is looked at again at the next call.
    seen.tries = if seen.loaded == loaded { seen.tries + 1 } else { 0 };
    seen.loaded = loaded;
    if are_all_done || seen.tries == MOST_TRIES {
        LOADED.store(loaded, Release);
    }
}

fn note(seen: &mut Seen, name: &CStr, object: &objects::Object, why: &str) {
    let file = object.file.to_string_lossy();
    let file = if file.is_empty() { "the program" } else { &*file };
    let said = format!("{} in {file}: {why}", name.to_string_lossy());
    if !seen.left.contains(&said) {
        seen.left.push(said);
    }
}

enum Found {
    /// What the slot has now, and the function that will be called by it.
    Function(usize, usize),
    Ours,
    /// The linker hasn't filled the table.
    NotYet,
    Unknown,
}

/// An object that calls a function.
struct Caller<'o> {
    objects: &'o Objects,
    object: &'o objects::Object,
    maps: &'o Maps,
    /// An address of ours.
    own: usize,
    /// The function of this name that is loaded with the program, or for all; or 0.
    global: usize,
}

impl Caller<'_> {
    /// What a slot has, or will have: a table may be filled at the first call of each function.
    fn resolved(&self, slot: &objects::Slot<'_>) -> Found {
        let Self { objects, object, maps, own, global } = *self;
        // SAFETY: it takes nothing.
        let page = unsafe { getpagesize() } as usize;
        // What is mapped since the maps were read is looked at the next time.
        let is_mapped = maps.protection(slot.at as usize).is_some();
        if !is_mapped || object.is_unready(maps, slot.at as usize, page) {
            return Found::NotYet;
        }
        // SAFETY: the slot is the object's, which is loaded, and as all of them aligned.
        let now = unsafe { AtomicU64::from_ptr(slot.at.cast()) }.load(Acquire) as usize;
        if object.is_unmoved(now) && now != global {
            return Found::NotYet;
        }
        let Some(holder) = objects.at(now) else { return Found::NotYet };
        if holder.has(own) {
            return Found::Ours;
        }
        let is_filled = !object.has(now) || object.function(slot.name) == Some(now);
        if is_filled {
            return Found::Function(now, now);
        }
        // What is loaded with the program comes first, then what the object was loaded for, with all that this needs. If
        // both have one, it depends on how the object was loaded.
        let global = if object.space == 0 { global } else { 0 };
        let near = objects.near(object, slot.name).is_some();
        match (global, near) {
            // What has it may be loaded later.
            (0, false) => Found::NotYet,
            // A place in the program's own table is no function.
            (of, false) if object.has(of) => Found::Unknown,
            (of, false) => Found::Function(now, of),
            (of, true) => match objects.near_for_all(object, slot.name) {
                Some(near) if of == 0 || of == near => Found::Function(now, near),
                _ => Found::Unknown,
            },
        }
    }
}

/// The number of a function among those of its name: its own, or one that is free.
fn number(seen: &mut Seen, objects: &Objects, hook: Hook, real: usize) -> Option<usize> {
    let all = &REAL[hook as usize];
    let known = all.iter().position(|of| of.load(Acquire) as usize == real);
    known.or_else(|| {
        let free = all.iter().position(|of| of.load(Acquire).is_null())?;
        GENERATIONS[hook as usize][free].fetch_add(1, AcqRel);
        crate::copies::forget(hook, free);
        all[free].store(real as *mut c_void, Release);
        if let Some(holder) = objects.at(real) {
            seen.holders.push((hook, free, holder.base, holder.file.clone()));
        }
        Some(free)
    })
}

/// Frees the numbers of functions that are gone: ggml loads a library for each kind of processor, to ask whether it suits
/// this one, and unloads the others.
fn forget_unloaded(seen: &mut Seen, objects: &Objects) {
    seen.holders.retain(|(hook, copy, base, file)| {
        let is_there = objects.iter().any(|of| of.base == *base && of.file == *file);
        if !is_there {
            REAL[*hook as usize][*copy].store(std::ptr::null_mut(), Release);
        }
        is_there
    });
}

/// Puts an address into a slot, of which the linker may have taken the right to write. Whether that worked.
fn put(maps: &Maps, slot: *mut usize, now: usize, ours: usize) -> bool {
    let Some(protection) = maps.protection(slot as usize) else { return false };
    let is_writable = protection & WRITE != 0;
    // SAFETY: it takes nothing.
    let page = unsafe { getpagesize() } as usize;
    let begin = (slot as usize & !(page - 1)) as *mut c_void;
    // SAFETY: the page is the table's, which is mapped; it is only made writable for what the linker itself writes there.
    unsafe {
        if !is_writable && mprotect(begin, page, protection | WRITE) != 0 {
            return false;
        }
        // The linker may fill the slot at the same time, with what was found for it.
        let slot = AtomicU64::from_ptr(slot.cast());
        let _ = slot.compare_exchange(now as u64, ours as u64, AcqRel, Acquire);
        if !is_writable {
            mprotect(begin, page, protection);
        }
    }
    true
}

/// Calls [`look`] with the arguments kept, and jumps to the real function.
macro_rules! go_on {
    ($hook:expr) => {{
        #[cfg(target_arch = "x86_64")]
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "call {look}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "mov rax, [rip + {real} + {at}]",
            "jmp rax",
            look = sym look,
            real = sym REAL,
            at = const ($hook as usize * COPIES + COPY) * 8,
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::naked_asm!(
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x29, sp",
            "bl {look}",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            "adrp x16, {real} + {at}",
            "ldr x16, [x16, :lo12:{real} + {at}]",
            "br x16",
            look = sym look,
            real = sym REAL,
            at = const ($hook as usize * COPIES + COPY) * 8,
        );
    }};
}

/// In the place of `dlsym`: looks at what has been loaded, and goes on to the real one as if the caller had called that, which
/// looks at who calls it.
#[unsafe(naked)]
unsafe extern "C" fn ask<const COPY: usize>() {
    go_on!(Hook::Ask)
}

/// As [`ask`], for `dlvsym`.
#[unsafe(naked)]
unsafe extern "C" fn ask_version<const COPY: usize>() {
    go_on!(Hook::AskVersion)
}
