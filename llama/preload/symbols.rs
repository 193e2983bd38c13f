//! Asks llama.cpp, ggml and the system for what else is recorded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::ggml::Context;
use crate::hooks::{self, Hook};
use crate::node::quoted;

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// A copy of ggml.
pub(crate) struct Library {
    file: String,
    version: Option<String>,
    commit: Option<String>,
}

/// Asks the copy that has the real function.
pub(crate) fn library(hook: Hook, copy: usize) -> Library {
    let ask = |name: &CStr| {
        type Text = unsafe extern "C" fn() -> *const c_char;
        let at = hooks::beside(hook, copy, name).ok()?;
        // SAFETY: the functions have had this type since they were added, and return a text that is kept.
        unsafe {
            let text = std::mem::transmute::<*const c_void, Text>(at)();
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    Library {
        file: hooks::file(hook, copy),
        version: ask(c"ggml_version"),
        commit: ask(c"ggml_commit"),
    }
}

impl Library {
    /// Its file's name, and the version that it states.
    pub(crate) fn name(&self) -> String {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        let file = if file.is_empty() { "the program's own ggml" } else { file };
        self.version.as_ref().map_or_else(|| file.to_owned(), |of| format!("{file} (ggml {of})"))
    }

    /// A line of JSON: `{"library", "file", "version", "commit"}`.
    pub(crate) fn described(&self, number: usize) -> String {
        let mut text = format!("{{\"library\":{number},\"file\":");
        quoted(&mut text, &self.file);
        for (name, value) in [("version", &self.version), ("commit", &self.commit)] {
            if let Some(value) = value {
                text.push_str(&format!(",\"{name}\":"));
                quoted(&mut text, value);
            }
        }
        text.push('}');
        text
    }
}

/// Sequences that are looked at: a server has one for each client.
const MOST_SEQUENCES: u32 = 256;

/// Adds how many tokens the cache of a context has for each sequence. Nothing if llama.cpp doesn't say. The context is one
/// that the real function of this number is called with.
///
/// # Safety
///
/// It is there, or null.
pub(crate) unsafe fn cached(hook: Hook, copy: usize, context: *const Context, all: &mut Vec<u32>) {
    type Memory = unsafe extern "C" fn(*const Context) -> *mut c_void;
    type Last = unsafe extern "C" fn(*mut c_void, i32) -> i32;
    type Sequences = unsafe extern "C" fn(*const Context) -> u32;
    type Functions = (usize, usize, Option<usize>);
    // Those of each copy of llama.cpp, by the function that was called.
    type Known = Mutex<Vec<((Hook, usize, u32), Option<Functions>)>>;
    static FUNCTIONS: Known = Mutex::new(Vec::new());
    if context.is_null() {
        return;
    }
    let lock = || FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let copy_of = hooks::identity(hook, copy);
    let known = lock().iter().find(|(of, _)| *of == copy_of).map(|(_, functions)| *functions);
    let functions = known.unwrap_or_else(|| {
        // Without the lock, since the linker is asked.
        let find = |name| hooks::beside(hook, copy, name).ok().map(|at| at as usize);
        let memory = find(c"llama_get_memory").zip(find(c"llama_memory_seq_pos_max"));
        let functions = memory.map(|(memory, last)| (memory, last, find(c"llama_n_seq_max")));
        lock().push((copy_of, functions));
        functions
    });
    let Some((memory, last, sequences)) = functions else { return };
    // SAFETY: they are the functions of these names, which have had these types since they were added, and the context is
    // the caller's.
    unsafe {
        let memory = std::mem::transmute::<usize, Memory>(memory);
        let last = std::mem::transmute::<usize, Last>(last);
        let memory = memory(context);
        if memory.is_null() {
            return;
        }
        let sequences =
            sequences.map_or(1, |at| std::mem::transmute::<usize, Sequences>(at)(context));
        // -1 if the cache is empty.
        all.extend((0..sequences.min(MOST_SEQUENCES)).map(|n| (last(memory, n as i32) + 1) as u32));
    }
}

/// The GGUF files that this process has mapped.
pub(crate) fn mapped_models() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut models: Vec<String> = Vec::new();
    for line in maps.lines() {
        let path = line.find('/').map(|at| &line[at..]);
        if let Some(path) = path.filter(|path| path.ends_with(".gguf"))
            && !models.iter().any(|known| known == path)
        {
            models.push(path.to_owned());
        }
    }
    models
}

/// Calls `child` in each process that this one forks.
pub(crate) fn at_fork(child: fn()) {
    static CHILD: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();
    extern "C" fn in_child() {
        if let Some(child) = CHILD.get() {
            child();
        }
    }
    if CHILD.set(child).is_ok() {
        // SAFETY: the function only stores a flag, which is allowed in the child of a process with threads.
        unsafe { pthread_atfork(None, None, Some(in_child)) };
    }
}
