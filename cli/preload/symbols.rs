//! Finds the functions that ours stand for, and asks llama.cpp and the system for what else is recorded.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use crate::ggml::Context;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dl_iterate_phdr(
        see: unsafe extern "C" fn(*const ObjectInfo, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// `struct dl_phdr_info`: its first fields.
#[repr(C)]
struct ObjectInfo {
    base: usize,
    name: *const c_char,
}

const NEXT: *mut c_void = -1_isize as *mut c_void;
const LAZY: c_int = 1;
/// Only what is loaded already.
const NO_LOAD: c_int = 4;

/// Which library a function is in: its file's name begins so.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Library {
    GgmlCpu,
    Llama,
    /// Any of ggml's.
    Ggml,
}

impl Library {
    fn begins(self) -> &'static [&'static str] {
        match self {
            // Older versions have all of ggml in one library.
            Self::GgmlCpu => &["libggml-cpu", "libggml."],
            Self::Llama => &["libllama."],
            Self::Ggml => &["libggml"],
        }
    }
}

/// A function that is looked for at its first call.
pub(crate) struct Real {
    name: &'static CStr,
    library: Library,
    at: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr, library: Library) -> Self {
        Self { name, library, at: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const c_void {
        let at = self.at.load(Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *const c_void {
        let Some(found) = find(self.name, self.library) else {
            // Somebody called it, so it is there; a library that renames it can't be served, and returning would be wrong.
            eprintln!(
                "brickscope: {} isn't in any library that is loaded",
                self.name.to_string_lossy()
            );
            std::process::abort();
        };
        self.at.store(found.cast_mut(), Relaxed);
        found
    }
}

/// The function of this name after ours. `RTLD_NEXT` doesn't see libraries that were opened with `RTLD_LOCAL`, as
/// Python's ctypes and ggml's own loader do, so those are looked for among all that are loaded.
fn find(name: &CStr, library: Library) -> Option<*const c_void> {
    // SAFETY: the name ends with a zero byte.
    let next = unsafe { dlsym(NEXT, name.as_ptr()) };
    if !next.is_null() {
        return Some(next);
    }
    objects().iter().find_map(|path| {
        let file = path.to_string_lossy();
        let file = file.rsplit('/').next().unwrap_or_default();
        if !library.begins().iter().any(|begin| file.starts_with(begin)) {
            return None;
        }
        // SAFETY: both names end with a zero byte. The library stays loaded: the handle is never closed.
        let found = unsafe {
            let handle = dlopen(path.as_ptr(), LAZY | NO_LOAD);
            if handle.is_null() { ptr::null_mut() } else { dlsym(handle, name.as_ptr()) }
        };
        (!found.is_null()).then_some(found.cast_const())
    })
}

/// A function of ggml that is no hook of ours.
pub(crate) fn function(name: &CStr) -> Result<*const c_void, String> {
    find(name, Library::Ggml)
        .ok_or_else(|| format!("ggml's {} isn't there", name.to_string_lossy()))
}

/// The files of all objects that are loaded.
fn objects() -> Vec<CString> {
    unsafe extern "C" fn see(info: *const ObjectInfo, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the linker passes a valid structure, and our vector.
        unsafe {
            let found = &mut *found.cast::<Vec<CString>>();
            if !(*info).name.is_null() {
                found.push(CStr::from_ptr((*info).name).to_owned());
            }
        }
        0
    }
    let mut found: Vec<CString> = Vec::new();
    // SAFETY: the function is called before this one returns, with the vector.
    unsafe { dl_iterate_phdr(see, (&raw mut found).cast()) };
    found
}

/// Sequences that are looked at: a server has one for each client.
const MOST_SEQUENCES: u32 = 256;

/// How many tokens the cache of a context has for each sequence, in the place of what `all` had. Empty if llama.cpp doesn't
/// say.
pub(crate) fn cached(context: *const Context, all: &mut Vec<u32>) {
    type Memory = unsafe extern "C" fn(*const Context) -> *mut c_void;
    type Last = unsafe extern "C" fn(*mut c_void, i32) -> i32;
    type Sequences = unsafe extern "C" fn(*const Context) -> u32;
    type Functions = (usize, usize, Option<usize>);
    static FUNCTIONS: std::sync::OnceLock<Option<Functions>> = std::sync::OnceLock::new();
    all.clear();
    let Some((memory, last, sequences)) = *FUNCTIONS.get_or_init(|| {
        let memory = find(c"llama_get_memory", Library::Llama)?;
        let last = find(c"llama_memory_seq_pos_max", Library::Llama)?;
        let sequences = find(c"llama_n_seq_max", Library::Llama);
        Some((memory as usize, last as usize, sequences.map(|at| at as usize)))
    }) else {
        return;
    };
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
