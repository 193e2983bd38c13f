//! What a program calls between passes: how long it samples, tokenizes, and reads results.
//!
//! Only a call that isn't part of another one counts, and none in a pass. They are summed until the thread's next pass. A
//! thread that has computed none has no time between passes.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::file::Kind;
use crate::hooks::{self, Hook};
use crate::{IS_ON, RUNNING, State, count, real};

/// What a call is for. The numbers are those in the file.
#[derive(Debug, Clone, Copy)]
enum For {
    Sampling = 0,
    Grammar = 1,
    Tokenizing = 2,
    Text = 3,
    Results = 4,
}

const KINDS: usize = 5;

/// Calls, and for how many counts, of each kind.
type Sums = [[u64; 2]; KINDS];

thread_local! {
    static SUMS: Cell<Sums> = const { Cell::new([[0; 2]; KINDS]) };
    static IS_IN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call, and adds how long it took.
#[inline(always)]
fn timed<R>(what: For, call: impl FnOnce() -> R) -> R {
    /// A call, whatever ends it.
    struct InCall(For, u64);
    impl Drop for InCall {
        fn drop(&mut self) {
            let took = count().wrapping_sub(self.1);
            IS_IN_CALL.set(false);
            add(self.0, took);
        }
    }
    let running = RUNNING.get();
    // SAFETY: it is this thread's, and a number in it is read.
    let is_between = !running.is_null() && unsafe { (*running).depth } == 0;
    if !is_between || IS_IN_CALL.get() || !IS_ON.load(Relaxed) {
        return call();
    }
    IS_IN_CALL.set(true);
    let _in_call = InCall(what, count());
    call()
}

fn add(what: For, took: u64) {
    let mut sums = SUMS.get();
    let [calls, counts] = &mut sums[what as usize];
    *calls += 1;
    *counts = counts.wrapping_add(took);
    SUMS.set(sums);
}

/// Writes what this thread called since its last pass. The pass that has just ended is about to be written.
pub(crate) fn write(state: &mut State, thread: u16) {
    let sums = SUMS.replace([[0; 2]; KINDS]);
    if sums.iter().any(|[calls, _]| *calls > 0) {
        let head = [u64::from(thread)];
        state.recording.write_words(Kind::Calls, &head, sums.as_flattened());
    }
}

/// A function in the place of one of llama.cpp's, which times it.
macro_rules! call {
    ($name:ident, $hook:ident, $what:expr, ($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {
        #[doc = concat!("In the place of [`Hook::", stringify!($hook), "`].")]
        ///
        /// # Safety
        ///
        /// As the function that it stands for.
        pub(crate) unsafe extern "C-unwind" fn $name<const COPY: usize>($($arg: $type),*) $(-> $result)? {
            type Real = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
            let real = real!(Hook::$hook, COPY, Real);
            // SAFETY: the arguments are the caller's.
            timed($what, || unsafe { real($($arg),*) })
        }
    };
}

type Pointer = *const c_void;

call!(sample, Sample, For::Sampling, (sampler: Pointer, context: Pointer, index: i32) -> i32);
call!(sample_common, SampleCommon, For::Sampling,
    (sampler: Pointer, context: Pointer, index: i32, is_grammar_first: u8) -> i32);
call!(accept, Accept, For::Sampling, (sampler: Pointer, token: i32));
call!(accept_common, AcceptCommon, For::Sampling, (sampler: Pointer, token: i32, by_grammar: u8));
call!(apply, Apply, kind_of::<COPY>(sampler), (sampler: Pointer, candidates: Pointer));
call!(tokenize, Tokenize, For::Tokenizing,
    (vocab: Pointer, text: Pointer, len: i32, tokens: Pointer, most: i32, special: u8, parse: u8) -> i32);
call!(piece, Piece, For::Text,
    (vocab: Pointer, token: i32, text: Pointer, len: i32, strip: i32, special: u8) -> i32);
call!(detokenize, Detokenize, For::Text,
    (vocab: Pointer, tokens: Pointer, n: i32, text: Pointer, len: i32, remove: u8, unparse: u8) -> i32);
call!(logits, Logits, For::Results, (context: Pointer) -> Pointer);
call!(logits_ith, LogitsIth, For::Results, (context: Pointer, index: i32) -> Pointer);
call!(embeddings, Embeddings, For::Results, (context: Pointer) -> Pointer);
call!(embeddings_ith, EmbeddingsIth, For::Results, (context: Pointer, index: i32) -> Pointer);
call!(embeddings_seq, EmbeddingsSeq, For::Results, (context: Pointer, sequence: i32) -> Pointer);
call!(synchronize, Synchronize, For::Results, (context: Pointer));

/// What a sampler is for, by its name. The function lies beside the real one, and is looked for once for each copy.
fn kind_of<const COPY: usize>(sampler: Pointer) -> For {
    type Name = unsafe extern "C" fn(Pointer) -> *const c_char;
    const MISSING: u64 = 1;
    static NAMES: [[AtomicU64; 2]; hooks::COPIES] =
        [const { [const { AtomicU64::new(0) }; 2] }; hooks::COPIES];
    if sampler.is_null() || !IS_ON.load(Relaxed) || IS_IN_CALL.get() {
        return For::Sampling;
    }
    let [of, name] = &NAMES[COPY];
    // Another function may have got the number of one that is gone.
    let (.., generation) = hooks::identity(Hook::Apply, COPY);
    if of.load(Relaxed) != u64::from(generation) {
        let found = crate::guarded(None, || {
            hooks::beside(Hook::Apply, COPY, c"llama_sampler_name").ok().map(|at| at as u64)
        });
        name.store(found.unwrap_or(MISSING), Relaxed);
        of.store(u64::from(generation), Relaxed);
    }
    let at = name.load(Relaxed);
    if at <= MISSING {
        return For::Sampling;
    }
    // SAFETY: the function has had this type since it was added, its text is kept, and the sampler is the caller's.
    let is_grammar = unsafe {
        let text = std::mem::transmute::<usize, Name>(at as usize)(sampler);
        !text.is_null() && CStr::from_ptr(text).to_bytes().starts_with(b"grammar")
    };
    if is_grammar { For::Grammar } else { For::Sampling }
}
