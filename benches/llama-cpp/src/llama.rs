//! All calls into llama.cpp, and all `unsafe` code of this package.
//!
//! Lifetimes enforce the order in which things are freed: a [`Context`] borrows its [`Model`], which borrows the
//! [`Library`].

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use llama_cpp_sys_2 as sys;

/// How many bytes of error messages are kept.
const COMPLAINTS: usize = 4096;

/// llama.cpp's error messages since they were last read.
static SAID: Mutex<String> = Mutex::new(String::new());

/// llama.cpp, initialised.
#[derive(Debug)]
pub(crate) struct Library(());

impl Library {
    /// Initialises it, and keeps it from printing messages.
    pub(crate) fn start() -> Self {
        // SAFETY: `keep` has the required signature, needs no user data and never unwinds. Both calls may come first.
        unsafe {
            sys::llama_log_set(Some(keep), ptr::null_mut());
            sys::llama_backend_init();
        }
        Self(())
    }

    /// The version of its tensor library, which contains the kernels.
    pub(crate) fn version(&self) -> String {
        // SAFETY: it returns a zero-terminated string that lives as long as the program.
        unsafe { text(sys::ggml_version()) }
    }

    /// The features it was built with: `AVX2`, `OPENMP`, …
    pub(crate) fn built_with(&self) -> BTreeSet<String> {
        // SAFETY: it returns a zero-terminated string that is valid until the next such call, which can't come before
        // it is copied: there is one thread.
        set(&unsafe { text(sys::llama_print_system_info()) })
    }
}

/// The features that are set in `AVX2 = 1 | OPENMP = 1 | …`.
pub(crate) fn set(info: &str) -> BTreeSet<String> {
    let set = |part: &str| {
        let name = part.trim().strip_suffix("= 1")?;
        // The first one follows the name of a backend: `CPU : SSE3 = 1`.
        Some(name.rsplit(':').next()?.trim().to_owned())
    };
    info.split('|').filter_map(set).collect()
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: everything that borrowed `self` is gone: no model and no context is left.
        unsafe { sys::llama_backend_free() };
    }
}

/// A loaded model.
#[derive(Debug)]
pub(crate) struct Model<'l> {
    raw: NonNull<sys::llama_model>,
    library: PhantomData<&'l Library>,
}

impl<'l> Model<'l> {
    /// Loads a file. With `repacked`, weights may be copied into layouts that suit the CPU.
    pub(crate) fn load(_: &'l Library, path: &Path, repacked: bool) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .with_context(|| format!("{}: the name has a zero byte", path.display()))?;
        complaints();
        // SAFETY: the parameters are llama.cpp's defaults except for two plain ones, `name` is a C string that outlives
        // the call, and `_` proves that the library was initialised.
        let raw = unsafe {
            let mut params = sys::llama_model_default_params();
            params.n_gpu_layers = 0;
            params.use_extra_bufts = repacked;
            sys::llama_model_load_from_file(name.as_ptr(), params)
        };
        match NonNull::new(raw) {
            Some(raw) => Ok(Self { raw, library: PhantomData }),
            None => bail!("{}: llama.cpp can't load it: {}", path.display(), complaints()),
        }
    }
}

impl Drop for Model<'_> {
    fn drop(&mut self) {
        // SAFETY: it is ours, and the contexts that borrowed it are gone.
        unsafe { sys::llama_model_free(self.raw.as_ptr()) };
    }
}

/// A conversation with a model on a number of threads.
#[derive(Debug)]
pub(crate) struct Context<'m> {
    raw: NonNull<sys::llama_context>,
    n_vocab: usize,
    room: usize,
    n_tokens: usize,
    model: PhantomData<&'m Model<'m>>,
}

impl<'m> Context<'m> {
    /// A context for `room` tokens, with llama.cpp's default settings.
    pub(crate) fn new(model: &'m Model<'_>, threads: NonZeroUsize, room: usize) -> Result<Self> {
        let n_ctx = u32::try_from(room).context("a context of more than 2³² tokens")?;
        let n_threads = i32::try_from(threads.get()).context("more than 2³¹ threads")?;
        complaints();
        // SAFETY: the model is loaded and outlives the context, as the lifetime shows. The parameters are llama.cpp's
        // defaults except for sizes.
        let raw = unsafe {
            let mut params = sys::llama_context_default_params();
            params.n_ctx = n_ctx;
            // Longer batches would end the program.
            params.n_batch = params.n_batch.max(n_ctx);
            params.n_threads = n_threads;
            params.n_threads_batch = n_threads;
            params.no_perf = true;
            sys::llama_init_from_model(model.raw.as_ptr(), params)
        };
        let Some(raw) = NonNull::new(raw) else {
            bail!("llama.cpp has no context for {room} tokens: {}", complaints());
        };
        // SAFETY: the vocabulary belongs to the model, and lives as long.
        let n_vocab =
            unsafe { sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model.raw.as_ptr())) };
        let n_vocab = usize::try_from(n_vocab).context("a vocabulary of less than no tokens")?;
        Ok(Self { raw, n_vocab, room, n_tokens: 0, model: PhantomData })
    }

    /// Forgets all tokens.
    pub(crate) fn clear(&mut self) {
        self.n_tokens = 0;
        // SAFETY: the memory belongs to the context. Its contents may stay, since no position refers to them.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(self.raw.as_ptr()), false) };
    }

    /// Runs `tokens` after those so far.
    pub(crate) fn forward(&mut self, tokens: &[u32]) -> Result<()> {
        ensure!(!tokens.is_empty(), "a forward pass needs at least one token");
        ensure!(self.n_tokens + tokens.len() <= self.room, "the context is full");
        let mut ids = Vec::with_capacity(tokens.len());
        for &token in tokens {
            ensure!((token as usize) < self.n_vocab, "token {token} isn't one of llama.cpp's");
            ids.push(token as sys::llama_token);
        }
        // SAFETY: the batch points to `ids`, which outlives the call; their number fits the context and therefore an
        // `i32`, and each of them is in the vocabulary.
        let status = unsafe {
            let batch = sys::llama_batch_get_one(ids.as_mut_ptr(), ids.len() as i32);
            sys::llama_decode(self.raw.as_ptr(), batch)
        };
        ensure!(status == 0, "llama.cpp's forward pass failed ({status}): {}", complaints());
        self.n_tokens += tokens.len();
        // Waits for the pass, as who samples does.
        self.last()?;
        Ok(())
    }

    /// The logits that follow the last token.
    pub(crate) fn logits(&mut self) -> Result<Vec<f32>> {
        Ok(self.last()?.to_vec())
    }

    fn last(&mut self) -> Result<&[f32]> {
        ensure!(self.n_tokens > 0, "no token has run");
        // SAFETY: the last token of a batch of `llama_batch_get_one` has logits. The call waits for them.
        let logits = unsafe { sys::llama_get_logits_ith(self.raw.as_ptr(), -1) };
        ensure!(!logits.is_null(), "llama.cpp has no logits: {}", complaints());
        // SAFETY: there is one for each token of the vocabulary, and they are valid until the next pass, which takes
        // `&mut self` and so can't come while they are borrowed.
        Ok(unsafe { slice::from_raw_parts(logits, self.n_vocab) })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: it is ours, and its model still exists.
        unsafe { sys::llama_free(self.raw.as_ptr()) };
    }
}

/// Keeps llama.cpp's error messages, up to [`COMPLAINTS`] bytes.
unsafe extern "C" fn keep(level: sys::ggml_log_level, message: *const c_char, _: *mut c_void) {
    if level != sys::GGML_LOG_LEVEL_ERROR || message.is_null() {
        return;
    }
    // SAFETY: messages are zero-terminated, and valid until this function returns.
    let message = unsafe { text(message) };
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() + message.len() <= COMPLAINTS {
        said.push_str(&message);
    }
}

/// The error messages since the last call, on one line.
fn complaints() -> String {
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "it gives no reason".to_owned() } else { lines.join("; ") }
}

/// Copies a C string.
///
/// # Safety
///
/// It must be zero-terminated, and not change during the call.
unsafe fn text(raw: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}
