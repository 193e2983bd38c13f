//! What a program calls between passes: how long it samples, tokenizes, and reads results. And what llama.cpp does in a pass
//! before and after its graphs.
//!
//! Only a call that isn't part of another one counts, but for a grammar's in sampling, and none in a pass. They are summed until the thread's next pass. A
//! thread that has computed none has no time between passes.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::format::{CALLS, Call, Head, Inside, Record};
use crate::hooks::Hook;
use crate::running::{IN_GRAPH, RUNNING};
use crate::{IS_ON, State, count, real};

/// Calls, and for how many counts, of each kind.
type Sums = [[u64; 2]; CALLS.len()];

thread_local! {
    static SUMS: Cell<Sums> = const { Cell::new([[0; 2]; CALLS.len()]) };
    /// What this thread's call is for, and for how many counts others were that are told apart from it.
    static IN_CALL: Cell<Option<(Call, u64)>> = const { Cell::new(None) };
}

/// Runs a call, and adds how long it took. A grammar's that is a part of another one is taken from that.
#[inline(always)]
fn timed<R>(what: Call, call: impl FnOnce() -> R) -> R {
    /// A call, whatever ends it.
    struct InCall {
        what: Call,
        began: u64,
        /// What the call around it was for, and what of that was other calls'.
        around: Option<(Call, u64)>,
    }
    impl Drop for InCall {
        fn drop(&mut self) {
            let took = count().wrapping_sub(self.began);
            let inner = IN_CALL.get().map_or(0, |(_, inner)| inner);
            IN_CALL.set(self.around.map(|(what, inner)| (what, inner.wrapping_add(took))));
            add(self.what, took.saturating_sub(inner));
        }
    }
    let running = RUNNING.get();
    // SAFETY: it is this thread's, and a number in it is read.
    let is_between = !running.is_null() && unsafe { (*running).depth } == 0;
    if !is_between || !IS_ON.load(Relaxed) {
        return call();
    }
    let around = IN_CALL.get();
    let is_part = match around {
        Some((Call::Sampling, _)) => !matches!(what, Call::Grammar),
        Some(_) => true,
        None => false,
    };
    if is_part {
        return call();
    }
    IN_CALL.set(Some((what, 0)));
    let _in_call = InCall { what, began: count(), around };
    call()
}

fn add(what: Call, took: u64) {
    let mut sums = SUMS.get();
    let [calls, counts] = &mut sums[what as usize];
    *calls += 1;
    *counts = counts.wrapping_add(took);
    SUMS.set(sums);
}

/// Writes what this thread called since its last pass. The pass that has just ended is about to be written.
pub(crate) fn write(state: &mut State, thread: u16) {
    let sums = SUMS.replace([[0; 2]; CALLS.len()]);
    if sums.iter().any(|[calls, _]| *calls > 0) {
        let head = [u64::from(thread)];
        state.recording.write_words(Record::Calls, &head, sums.as_flattened());
    }
}

/// An argument or a result: a number or a pointer, in a register or a word of the stack. Nothing is done with them, so what
/// they mean, and in older versions how many there are, doesn't matter.
type Word = usize;

/// A function in the place of one of llama.cpp's, which times it.
macro_rules! call {
    ($name:ident, $hook:ident, $what:expr, $($arg:ident),*) => {
        #[doc = concat!("In the place of [`Hook::", stringify!($hook), "`].")]
        ///
        /// # Safety
        ///
        /// As the function that it stands for.
        pub(crate) unsafe extern "C-unwind" fn $name<const COPY: usize>($($arg: Word),*) -> Word {
            type Real = unsafe extern "C-unwind" fn($(call!(@word $arg)),*) -> Word;
            let real = real!(Hook::$hook, COPY, Real);
            // SAFETY: the arguments are the caller's.
            timed($what, || unsafe { real($($arg),*) })
        }
    };
    (@word $arg:ident) => { Word };
}

/// Runs what is done in a pass, and writes down when it began and ended.
#[inline(always)]
fn inside<R>(what: Inside, call: impl FnOnce() -> R) -> R {
    let running = RUNNING.get();
    // SAFETY: it is this thread's, and fields of it are read.
    let is_timed = !running.is_null() && unsafe { (*running).depth == 1 && !(*running).is_bare };
    if !is_timed || !IN_GRAPH.get().is_null() || !IS_ON.load(Relaxed) {
        return call();
    }
    let begin = count();
    let result = call();
    let end = count();
    crate::guarded((), || {
        // SAFETY: as above.
        let thread = unsafe { (*running).thread };
        if let Some(state) = &mut *crate::lock() {
            let head = Head { number: what as u32, threads: 0, of_thread: thread };
            state.recording.write_words(Record::Inside, &[head.word(), begin, end], &[]);
        }
    });
    result
}

/// A function in the place of one that a pass calls besides its graphs.
macro_rules! inside {
    ($name:ident, $hook:ident, $what:expr, $($arg:ident),*) => {
        #[doc = concat!("In the place of [`Hook::", stringify!($hook), "`].")]
        ///
        /// # Safety
        ///
        /// As the function that it stands for.
        pub(crate) unsafe extern "C-unwind" fn $name<const COPY: usize>($($arg: Word),*) -> Word {
            type Real = unsafe extern "C-unwind" fn($(call!(@word $arg)),*) -> Word;
            let real = real!(Hook::$hook, COPY, Real);
            // SAFETY: the arguments are the caller's.
            inside($what, || unsafe { real($($arg),*) })
        }
    };
}

// Older versions return an object, for which some processors have a register of its own: these have another name.
inside!(build, Build, Inside::Build, model, params);
inside!(alloc, Alloc, Inside::Alloc, scheduler, graph);
inside!(inputs, Inputs, Inside::Inputs, result, batch);
inside!(results, Results, Inside::Results, backend, tensor, to, from, size);

call!(sample, Sample, Call::Sampling, sampler, context, index);
call!(sample_common, SampleCommon, Call::Sampling, sampler, context, index, is_grammar_first);
call!(accept, Accept, kind_of(sampler), sampler, token);
call!(accept_common, AcceptCommon, Call::Sampling, sampler, token, by_grammar);
call!(apply, Apply, kind_of(sampler), sampler, candidates);
call!(tokenize_timed, Tokenize, Call::Tokenizing, vocab, text, len, tokens, most, special, parse);
call!(piece, Piece, Call::Text, vocab, token, text, len, strip, special);
call!(detokenize, Detokenize, Call::Text, vocab, tokens, n, text, len, remove, unparse);
call!(logits, Logits, Call::Results, context);
call!(logits_ith, LogitsIth, Call::Results, context, index);
call!(embeddings, Embeddings, Call::Results, context);
call!(embeddings_ith, EmbeddingsIth, Call::Results, context, index);
call!(embeddings_seq, EmbeddingsSeq, Call::Results, context, sequence);
call!(synchronize, Synchronize, Call::Results, context);

/// In the place of [`Hook::Tokenize`].
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn tokenize<const COPY: usize>(
    vocab: Word,
    text: Word,
    len: Word,
    tokens: Word,
    most: Word,
    special: Word,
    parse: Word,
) -> Word {
    // SAFETY: the arguments are the caller's.
    let made = unsafe { tokenize_timed::<COPY>(vocab, text, len, tokens, most, special, parse) };
    crate::sockets::tokenized(made);
    made
}

/// The samplers that are grammars, by where they lie; 0 for none. More are taken for others.
static GRAMMARS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
/// Whether there ever was one.
static HAS_GRAMMARS: AtomicBool = AtomicBool::new(false);

fn kind_of(sampler: usize) -> Call {
    // A sampler has a name, too, but a program's own may have none, or a function for it that does anything.
    let is_grammar = HAS_GRAMMARS.load(Relaxed)
        && sampler != 0
        && GRAMMARS.iter().any(|known| known.load(Relaxed) == sampler);
    if is_grammar { Call::Grammar } else { Call::Sampling }
}

/// A function in the place of one that makes a grammar.
macro_rules! grammar {
    ($name:ident, $hook:ident, $($arg:ident),*) => {
        #[doc = concat!("In the place of [`Hook::", stringify!($hook), "`].")]
        ///
        /// # Safety
        ///
        /// As the function that it stands for.
        pub(crate) unsafe extern "C-unwind" fn $name<const COPY: usize>($($arg: Word),*) -> Word {
            type Real = unsafe extern "C-unwind" fn($(call!(@word $arg)),*) -> Word;
            let real = real!(Hook::$hook, COPY, Real);
            // SAFETY: the arguments are the caller's.
            let made = unsafe { real($($arg),*) };
            if made != 0 {
                HAS_GRAMMARS.store(true, Relaxed);
                let is_free = |known: &&AtomicUsize| {
                    known.compare_exchange(0, made, Relaxed, Relaxed).is_ok()
                };
                let _ = GRAMMARS.iter().find(is_free);
            }
            made
        }
    };
}

grammar!(grammar, Grammar, vocab, text, root);
grammar!(grammar_lazy, GrammarLazy, vocab, text, root, patterns, n, tokens, n_tokens);

/// In the place of the function that frees a sampler: another one may lie where a grammar was.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn free<const COPY: usize>(sampler: Word) {
    type Free = unsafe extern "C-unwind" fn(Word);
    let real = real!(Hook::FreeSampler, COPY, Free);
    if HAS_GRAMMARS.load(Relaxed) && sampler != 0 {
        for known in &GRAMMARS {
            let _ = known.compare_exchange(sampler, 0, Relaxed, Relaxed);
        }
    }
    // SAFETY: the argument is the caller's.
    unsafe { real(sampler) }
}
