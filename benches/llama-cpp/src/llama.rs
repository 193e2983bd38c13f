//! llama.cpp: every call into it, and all the `unsafe` of this package.
//!
//! Lifetimes hold the order in which things are freed: a [`Context`] borrows its [`Model`], and that
//! the [`Library`].

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

/// Bytes of complaints that are kept.
const COMPLAINTS: usize = 4096;

/// What llama.cpp said went wrong since anybody asked.
static SAID: Mutex<String> = Mutex::new(String::new());

/// llama.cpp, started.
#[derive(Debug)]
pub(crate) struct Library(());

impl Library {
    /// Starts it, and has it keep quiet.
    pub(crate) fn start() -> Self {
        // SAFETY: `keep` has the signature that is asked for, needs no user data and never unwinds.
        // Nothing has to come before either call.
        unsafe {
            sys::llama_log_set(Some(keep), ptr::null_mut());
            sys::llama_backend_init();
        }
        Self(())
    }

    /// The version of its library for tensors, which has the kernels.
    pub(crate) fn version(&self) -> String {
        // SAFETY: It returns a string that ends in a zero and lives as long as the program.
        unsafe { text(sys::ggml_version()) }
    }

    /// What it was built with: `AVX2`, `OPENMP`, …
    pub(crate) fn built_with(&self) -> BTreeSet<String> {
        // SAFETY: It returns a string that ends in a zero and stays until the next such call, which
        // nobody makes before it is copied: there is one thread.
        let info = unsafe { text(sys::llama_print_system_info()) };
        let set = |part: &str| {
            let name = part.trim().strip_suffix("= 1")?;
            // The first one comes after the name of a backend: `CPU : SSE3 = 1`.
            Some(name.rsplit(':').next()?.trim().to_owned())
        };
        info.split('|').filter_map(set).collect()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: What borrowed `self` is gone: no model and no context is left.
        unsafe { sys::llama_backend_free() };
    }
}

/// A model, loaded.
#[derive(Debug)]
pub(crate) struct Model<'l> {
    raw: NonNull<sys::llama_model>,
    library: PhantomData<&'l Library>,
}

impl<'l> Model<'l> {
    /// Loads a file; `repacked` if weights may be copied into layouts that suit the CPU.
    pub(crate) fn load(_: &'l Library, path: &Path, repacked: bool) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .with_context(|| format!("{}: the name has a zero byte", path.display()))?;
        complaints();
        // SAFETY: The parameters are llama.cpp's own but for two plain ones, `name` is a C string that
        // outlives the call, and the library has been started: `_` says so.
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
        // SAFETY: It is ours, and the contexts that borrowed it are gone.
        unsafe { sys::llama_model_free(self.raw.as_ptr()) };
    }
}

/// A conversation with a model, on so many threads.
#[derive(Debug)]
pub(crate) struct Context<'m> {
    raw: NonNull<sys::llama_context>,
    n_vocab: usize,
    room: usize,
    n_tokens: usize,
    model: PhantomData<&'m Model<'m>>,
}

impl<'m> Context<'m> {
    /// A context for `room` tokens with llama.cpp's own settings.
    pub(crate) fn new(model: &'m Model<'_>, threads: NonZeroUsize, room: usize) -> Result<Self> {
        let n_ctx = u32::try_from(room).context("a context of more than 2³² tokens")?;
        let n_threads = i32::try_from(threads.get()).context("more than 2³¹ threads")?;
        complaints();
        // SAFETY: The model is loaded and outlives the context, as its lifetime says. The parameters
        // are llama.cpp's own but for sizes.
        let raw = unsafe {
            let mut params = sys::llama_context_default_params();
            params.n_ctx = n_ctx;
            // Longer batches end the program.
            params.n_batch = params.n_batch.max(n_ctx);
            params.n_threads = n_threads;
            params.n_threads_batch = n_threads;
            params.no_perf = true;
            sys::llama_init_from_model(model.raw.as_ptr(), params)
        };
        let Some(raw) = NonNull::new(raw) else {
            bail!("llama.cpp has no context for {room} tokens: {}", complaints());
        };
        // SAFETY: The vocabulary is the model's, and lives as long as it.
        let n_vocab =
            unsafe { sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model.raw.as_ptr())) };
        let n_vocab = usize::try_from(n_vocab).context("a vocabulary of less than no tokens")?;
        Ok(Self { raw, n_vocab, room, n_tokens: 0, model: PhantomData })
    }

    /// Forgets all tokens.
    pub(crate) fn clear(&mut self) {
        self.n_tokens = 0;
        // SAFETY: The memory is the context's. What is in it may stay: no position refers to it.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(self.raw.as_ptr()), false) };
    }

    /// Runs `tokens` after those so far; returns the logits that follow the last of them.
    pub(crate) fn forward(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        ensure!(!tokens.is_empty(), "a forward pass needs at least one token");
        ensure!(self.n_tokens + tokens.len() <= self.room, "the context is full");
        let mut ids = Vec::with_capacity(tokens.len());
        for &token in tokens {
            ensure!((token as usize) < self.n_vocab, "token {token} isn't one of llama.cpp's");
            ids.push(token as sys::llama_token);
        }
        // SAFETY: The batch points to `ids`, which outlives the call; their number fits the context
        // and so an `i32`, and each of them is in the vocabulary.
        let status = unsafe {
            let batch = sys::llama_batch_get_one(ids.as_mut_ptr(), ids.len() as i32);
            sys::llama_decode(self.raw.as_ptr(), batch)
        };
        ensure!(status == 0, "llama.cpp's forward pass failed ({status}): {}", complaints());
        self.n_tokens += tokens.len();
        // SAFETY: The last token of a batch of `llama_batch_get_one` has logits. The call waits for them.
        let logits = unsafe { sys::llama_get_logits_ith(self.raw.as_ptr(), -1) };
        ensure!(!logits.is_null(), "llama.cpp has no logits: {}", complaints());
        // SAFETY: There is one for each token of the vocabulary, and they stay until the next pass,
        // which takes `&mut self` as long as they are borrowed.
        Ok(unsafe { slice::from_raw_parts(logits, self.n_vocab) })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: It is ours, and its model is still there.
        unsafe { sys::llama_free(self.raw.as_ptr()) };
    }
}

/// Keeps what llama.cpp says of errors, the first [`COMPLAINTS`] bytes of it.
unsafe extern "C" fn keep(level: sys::ggml_log_level, message: *const c_char, _: *mut c_void) {
    if level != sys::GGML_LOG_LEVEL_ERROR || message.is_null() {
        return;
    }
    // SAFETY: Messages end in a zero, and stay until this returns.
    let message = unsafe { text(message) };
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() + message.len() <= COMPLAINTS {
        said.push_str(&message);
    }
}

/// What went wrong since the last time, on one line.
fn complaints() -> String {
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "it doesn't say why".to_owned() } else { lines.join("; ") }
}

/// A copy of a C string.
///
/// # Safety
///
/// It must end in a zero and not change meanwhile.
unsafe fn text(raw: *const c_char) -> String {
    // SAFETY: The caller's promise.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}
