//! The program's environment: as it would be without this library. What `brickscope run` put there is read when the library
//! is loaded, and taken out before the program begins. So what the program starts isn't recorded, and what it leaves running
//! loads nothing, unless that was asked for.
//!
//! A program that becomes another one, as `env`, `nice` and `numactl` do, is still the one that was to be recorded: what was
//! taken out is passed on by the functions below, which stand in the place of the C library's.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use crate::{format, guarded};

/// The libraries that the linker loads into a program.
const LIST: &[u8] = b"LD_PRELOAD";
const FOLLOW: &[u8] = format::FOLLOW.as_bytes();
const FOLDER: &[u8] = format::FOLDER.as_bytes();
const SHARES: &[u8] = format::SHARES.as_bytes();
const TURNS: &[u8] = format::TURNS.as_bytes();
const ENDLESS: &[u8] = format::ENDLESS.as_bytes();

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The folder to write to.
    pub(crate) folder: Option<OsString>,
    /// Whether what each thread does of each node is timed.
    pub(crate) shares: bool,
    /// Whether only every other pass is looked at.
    pub(crate) turns: bool,
    /// Whether somebody reads the recording while it is written.
    pub(crate) endless: bool,
    /// What was taken out of the environment, as `NAME=value`.
    kept: Vec<CString>,
    /// The process that this was asked of; 0 if nothing was taken out. The child of a fork has another number.
    process: u32,
}

static ASKED: OnceLock<Asked> = OnceLock::new();

/// What was asked for when the library was loaded.
pub(crate) fn asked() -> &'static Asked {
    ASKED.get_or_init(Asked::default)
}

/// Reads what is asked for, and takes it out of the environment. Called before the program begins; a library that was loaded
/// before may have a thread already, which at worst misses a variable at this moment, as with any change of the environment.
/// Not by the C library's functions, in whose place some programs have their own: a shell has.
pub(crate) fn take() {
    let mut asked = Asked { process: std::process::id(), ..Asked::default() };
    let (mut left, mut before) = (Vec::new(), 0);
    // SAFETY: it is a list of texts that ends with null.
    for text in unsafe { texts_of(environ) } {
        before += 1;
        let whole = text.to_bytes();
        let at = whole.iter().position(|&byte| byte == b'=').unwrap_or(whole.len());
        let value = whole.get(at + 1..).unwrap_or_default();
        let kept = match &whole[..at] {
            FOLDER => {
                asked.folder = Some(OsStr::from_bytes(value).to_owned());
                Some(text.to_owned())
            }
            SHARES => {
                asked.shares = true;
                Some(text.to_owned())
            }
            TURNS => {
                asked.turns = true;
                Some(text.to_owned())
            }
            ENDLESS => {
                asked.endless = true;
                Some(text.to_owned())
            }
            FOLLOW => {
                asked.process = 0;
                None
            }
            LIST => {
                let (ours, others): (Vec<&[u8]>, Vec<&[u8]>) =
                    libraries(value).partition(|path| is_this(path));
                // It is read as long as the process runs.
                let others = (!others.is_empty()).then(|| listed(&others)).flatten();
                left.extend(others.map(|others| Box::leak(others.into_boxed_c_str()).as_ptr()));
                listed(&ours)
            }
            _ => None,
        };
        match kept {
            Some(kept) => asked.kept.push(kept),
            None => left.push(text.as_ptr()),
        }
    }
    // SAFETY: it is a variable of the C library.
    if asked.process != 0 && unsafe { !environ.is_null() } {
        // All freed places are null: a program that looks behind the first one, as Go's do for what the kernel put there,
        // finds nothing that was.
        let none = std::iter::repeat_n(ptr::null(), before + 1 - left.len());
        for (nth, text) in left.into_iter().chain(none).enumerate() {
            // SAFETY: the list isn't longer than before, and has a place for null behind it.
            unsafe { environ.add(nth).write(text) };
        }
    }
    let _ = ASKED.set(asked);
    EXECVE.find();
    EXECVPE.find();
}

/// The texts of a list that ends with null, or of none.
///
/// # Safety
///
/// It is null, or such a list, and stays as it is while they are read.
unsafe fn texts_of<'t>(list: *const *const c_char) -> impl Iterator<Item = &'t CStr> {
    (0..).map_while(move |nth| {
        if list.is_null() {
            return None;
        }
        // SAFETY: the caller says so, and no text before this one was the last.
        let text = unsafe { *list.add(nth) };
        // SAFETY: as above.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
    })
}

/// A list of libraries as it is in the environment.
fn listed(libraries: &[&[u8]]) -> Option<CString> {
    CString::new([LIST, b"=", &libraries.join(&b':')].concat()).ok()
}

/// The libraries in a list, which the linker separates by spaces and colons.
fn libraries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| b" :".contains(byte)).filter(|path| !path.is_empty())
}

fn is_this(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.starts_with(b"libbrickscope-")
}

type Texts = *const *const c_char;
type Exec = unsafe extern "C" fn(*const c_char, Texts, Texts) -> c_int;

unsafe extern "C" {
    static environ: *mut *const c_char;
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// Stands for the libraries after this one.
const NEXT: *mut c_void = usize::MAX as *mut c_void;
/// The error where the C library lacks a function.
const NOT_THERE: c_int = 38;

/// A function of the C library, or of another library that stands in its place.
struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

static EXECVE: Real = Real { name: c"execve", at: AtomicPtr::new(ptr::null_mut()) };
static EXECVPE: Real = Real { name: c"execvpe", at: AtomicPtr::new(ptr::null_mut()) };

impl Real {
    /// Null if there is none.
    fn find(&self) -> *mut c_void {
        let known = self.at.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: it takes the name of a function of the C library, and returns where the next one of that name is.
        let at = unsafe { dlsym(NEXT, self.name.as_ptr()) };
        self.at.store(at, Relaxed);
        at
    }
}

/// An environment with what was taken out of this process's. The texts are those of `before`, and of `kept`.
struct PassedOn {
    texts: Vec<*const c_char>,
    _list: Option<CString>,
}

/// # Safety
///
/// `before` is null, or a list of texts that ends with null, and stays as it is.
unsafe fn passed_on(kept: &'static [CString], before: Texts) -> PassedOn {
    let name_of =
        |text: &CStr| text.to_bytes().split(|&byte| byte == b'=').next().map(<[u8]>::to_vec);
    let mut texts = Vec::new();
    let mut others = Vec::new();
    // SAFETY: the caller says so.
    for text in unsafe { texts_of(before) } {
        if name_of(text).as_deref() == Some(LIST) {
            let list = text.to_bytes().get(LIST.len() + 1..).unwrap_or_default();
            others = libraries(list).filter(|path| !is_this(path)).collect();
        } else if !kept.iter().any(|kept| name_of(kept) == name_of(text)) {
            texts.push(text.as_ptr());
        }
    }
    let mut list = None;
    for text in kept {
        if name_of(text).as_deref() == Some(LIST) {
            let ours = libraries(text.to_bytes().get(LIST.len() + 1..).unwrap_or_default());
            list = listed(&ours.chain(others.iter().copied()).collect::<Vec<_>>());
            texts.extend(list.iter().map(|list| list.as_ptr()));
        } else {
            texts.push(text.as_ptr());
        }
    }
    texts.push(ptr::null());
    PassedOn { texts, _list: list }
}

/// Calls a function that replaces the program.
///
/// # Safety
///
/// As of `execve`.
unsafe fn exec(real: &Real, file: *const c_char, args: Texts, before: Texts) -> c_int {
    let real = real.find();
    if real.is_null() {
        // SAFETY: it returns where this thread's number is.
        unsafe { *__errno_location() = NOT_THERE };
        return -1;
    }
    // SAFETY: it has this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Exec>(real) };
    // In the child of a fork, and of one that shares this process's memory, nothing else is done.
    let is_it = |asked: &&Asked| asked.process == std::process::id();
    let Some(asked) = ASKED.get().filter(is_it) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(file, args, before) };
    };
    // SAFETY: the caller's list.
    let environment = guarded(None, || Some(unsafe { passed_on(&asked.kept, before) }));
    let texts = environment.as_ref().map_or(before, |environment| environment.texts.as_ptr());
    // SAFETY: the caller's arguments, and a list of texts that live until it returns, which ends with null.
    unsafe { real(file, args, texts) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(file: *const c_char, args: Texts, environment: Texts) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { exec(&EXECVE, file, args, environment) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(file: *const c_char, args: Texts) -> c_int {
    // SAFETY: the caller's arguments; the environment is the C library's own.
    unsafe { exec(&EXECVE, file, args, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, args: Texts, environment: Texts) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { exec(&EXECVPE, file, args, environment) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, args: Texts) -> c_int {
    // SAFETY: the caller's arguments; the environment is the C library's own.
    unsafe { exec(&EXECVPE, file, args, environ) }
}
