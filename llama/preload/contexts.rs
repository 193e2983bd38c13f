//! The contexts of llama.cpp: which one computes a pass, of which model, and whether it warms up.

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::format::Record;
use crate::ggml::Context;
use crate::hooks::{self, Hook};
use crate::node::quoted;
use crate::{IS_ON, guarded, lock, real};

/// Contexts with a number of their own: a pass has room for nine bits of it.
const MOST: u16 = 511;

/// A context that is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    at: usize,
    /// From 1 on, or 0 for one that isn't told apart from others.
    pub(crate) number: u16,
    /// Whether the program says that its passes warm up: llama.cpp then uses all of a model's experts.
    pub(crate) is_warm_up: bool,
}

struct Contexts {
    there: Vec<Known>,
    /// How many got a number.
    numbered: u16,
}

fn all() -> MutexGuard<'static, Contexts> {
    static CONTEXTS: Mutex<Contexts> = Mutex::new(Contexts { there: Vec::new(), numbered: 0 });
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contexts {
    fn find(&mut self, at: usize) -> Option<&mut Known> {
        self.there.iter_mut().find(|known| known.at == at)
    }
}

/// What is known of the context that the real function of this number is called with. At its first pass it is described.
///
/// # Safety
///
/// It is there, or null.
pub(crate) unsafe fn known(hook: Hook, copy: usize, context: *const Context) -> Option<Known> {
    if context.is_null() {
        return None;
    }
    let at = context as usize;
    let found = |contexts: &mut Contexts| {
        let is_full = contexts.numbered == MOST;
        let known = contexts.find(at)?;
        (known.number > 0 || is_full).then_some(*known)
    };
    let mut contexts = all();
    if let Some(known) = found(&mut contexts) {
        return Some(known);
    }
    if contexts.numbered == MOST {
        contexts.there.push(Known { at, number: 0, is_warm_up: false });
        drop(contexts);
        crate::lose("which context computed a pass, of those after the first 511");
        return None;
    }
    drop(contexts);
    // Without a lock, since the linker is asked. The program uses a context on one thread at a time.
    // SAFETY: the caller says so.
    let described = unsafe { describe(hook, copy, context) };
    let mut contexts = all();
    // Another thread may have numbered one meanwhile.
    if contexts.numbered == MOST {
        return None;
    }
    let number = contexts.numbered + 1;
    contexts.numbered = number;
    let known = match contexts.find(at) {
        Some(known) => {
            known.number = number;
            *known
        }
        None => {
            let known = Known { at, number, is_warm_up: false };
            contexts.there.push(known);
            known
        }
    };
    drop(contexts);
    if let Some(state) = &mut *lock() {
        let text = format!("{{\"context\":{number}{described}}}");
        state.recording.write(Record::Context, text.as_bytes());
        state.tell_models();
    }
    Some(known)
}

/// The fields of a context and of its model that llama.cpp tells, as JSON: `,"n_ctx":4096,…,"model":{…}`.
///
/// # Safety
///
/// As [`known`]'s.
unsafe fn describe(hook: Hook, copy: usize, context: *const Context) -> String {
    type Number<T> = unsafe extern "C" fn(*const c_void) -> T;
    type Text = unsafe extern "C" fn(*const c_void, *mut c_char, usize) -> i32;
    type Value = unsafe extern "C" fn(*const c_void, *const c_char, *mut c_char, usize) -> i32;
    let find = |name: &CStr| hooks::beside(hook, copy, name).ok();
    // SAFETY: the functions have had these types since they were added, and what they are given is there.
    let of_32 = |name: &CStr, of: *const c_void| unsafe {
        Some(std::mem::transmute::<*const c_void, Number<i32>>(find(name)?)(of))
    };
    // SAFETY: as above.
    let of_64 = |name: &CStr, of: *const c_void| unsafe {
        Some(std::mem::transmute::<*const c_void, Number<u64>>(find(name)?)(of))
    };
    let mut text = String::new();
    for (field, name) in [
        ("n_ctx", c"llama_n_ctx"),
        ("n_batch", c"llama_n_batch"),
        ("n_ubatch", c"llama_n_ubatch"),
        ("n_seq_max", c"llama_n_seq_max"),
        ("threads", c"llama_n_threads"),
        ("threads_batch", c"llama_n_threads_batch"),
        ("pooling", c"llama_pooling_type"),
    ] {
        if let Some(value) = of_32(name, context.cast()) {
            // Some have a sign, and others are as large as 32 bits allow.
            let value = match field {
                "pooling" | "threads" | "threads_batch" => i64::from(value),
                _ => i64::from(value as u32),
            };
            let _ = write!(text, ",\"{field}\":{value}");
        }
    }
    let model = find(c"llama_get_model").map(|at| {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<*const c_void, Number<*const c_void>>(at)(context.cast()) }
    });
    let Some(model) = model.filter(|model| !model.is_null()) else { return text };
    let _ = write!(text, ",\"model\":{{\"at\":{}", model as usize);
    for (field, name) in [("bytes", c"llama_model_size"), ("parameters", c"llama_model_n_params")] {
        if let Some(value) = of_64(name, model) {
            let _ = write!(text, ",\"{field}\":{value}");
        }
    }
    if let Some(tokens) = of_32(c"llama_model_n_swa", model) {
        let _ = write!(text, ",\"n_swa\":{tokens}");
    }
    let mut add = |field: &str, fill: &dyn Fn(*mut c_char, usize) -> i32| {
        let mut bytes = [0_u8; 256];
        let len = fill(bytes.as_mut_ptr().cast(), bytes.len());
        let value = CStr::from_bytes_until_nul(&bytes).ok().filter(|_| len > 0);
        if let Some(value) = value {
            let _ = write!(text, ",\"{field}\":");
            quoted(&mut text, &value.to_string_lossy());
        }
    };
    if let Some(at) = find(c"llama_model_desc") {
        // SAFETY: as above; it writes as many bytes as there are, with a zero.
        let desc = unsafe { std::mem::transmute::<*const c_void, Text>(at) };
        // SAFETY: as above.
        add("kind", &|to, len| unsafe { desc(model, to, len) });
    }
    if let Some(at) = find(c"llama_model_meta_val_str") {
        // SAFETY: as above.
        let value = unsafe { std::mem::transmute::<*const c_void, Value>(at) };
        for (field, key) in [("name", c"general.name"), ("architecture", c"general.architecture")] {
            // SAFETY: as above.
            add(field, &|to, len| unsafe { value(model, key.as_ptr(), to, len) });
        }
    }
    text.push('}');
    text
}

/// In the place of the method of `llama_context` by which a program says that it warms up, or has done so.
///
/// # Safety
///
/// As the method that it stands for.
pub(crate) unsafe extern "C-unwind" fn set_warmup<const COPY: usize>(
    context: *const Context,
    is_on: bool,
) {
    type Set = unsafe extern "C-unwind" fn(*const Context, bool);
    let real = real!(Hook::WarmUp, COPY, Set);
    guarded((), || {
        // In a forked child, another thread may have had the lock.
        if !IS_ON.load(Relaxed) {
            return;
        }
        let at = context as usize;
        let mut contexts = all();
        match contexts.find(at) {
            Some(known) => known.is_warm_up = is_on,
            // It has computed nothing yet.
            None => contexts.there.push(Known { at, number: 0, is_warm_up: is_on }),
        }
    });
    // SAFETY: the arguments are the caller's.
    unsafe { real(context, is_on) }
}

/// In the place of the destructor of `llama_context`: another one may lie where one was.
///
/// # Safety
///
/// As the destructor that it stands for.
pub(crate) unsafe extern "C-unwind" fn freed<const COPY: usize>(context: *const Context) {
    type Free = unsafe extern "C-unwind" fn(*const Context);
    let real = real!(Hook::Freed, COPY, Free);
    guarded((), || {
        if IS_ON.load(Relaxed) {
            all().there.retain(|known| known.at != context as usize);
        }
    });
    // SAFETY: the argument is the caller's.
    unsafe { real(context) }
}
