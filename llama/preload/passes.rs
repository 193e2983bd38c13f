//! Passes: calls of llama.cpp that compute, and graphs that no such call is around.

use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::batch::{self, OfSequence};
use crate::format::{OfPass, Record, UNKNOWN, word};
use crate::ggml::{Batch, Context};
use crate::hooks::Hook;
use crate::running::{Running, running};
use crate::{IS_ON, IS_TURNING, calls, contexts, count, guarded, is_ready, lock, real, symbols};

/// Passes so far of each context, where that matters.
static PASSES: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// What a pass is of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of {
    /// A call of llama.cpp that decodes, or only encodes: of the context that has the function.
    Llama { hook: Hook, copy: usize, is_decode: bool },
    /// A graph that no call of llama.cpp is around.
    Graph,
}

/// Runs a pass and writes when it began and ended.
///
/// # Safety
///
/// Of a call of llama.cpp, the context is the caller's, or null.
pub(crate) unsafe fn pass(
    of_llama: Option<(*const Context, Option<i32>)>,
    of: Of,
    run: impl FnOnce() -> i32,
) -> i32 {
    /// A pass that is open, whatever ends it.
    struct Open(*mut Running);
    impl Drop for Open {
        fn drop(&mut self) {
            // SAFETY: it is this thread's, and nobody has a reference to it when a pass ends.
            unsafe { (*self.0).depth -= 1 }
        }
    }
    if !IS_ON.load(Relaxed) || !guarded(false, is_ready) {
        return run();
    }
    let running = running();
    let by = match of {
        Of::Llama { hook, copy, .. } => {
            let context = of_llama.map(|(context, _)| context);
            // SAFETY: the context is the caller's, or null.
            let known = |context| guarded(None, || unsafe { contexts::known(hook, copy, context) });
            context.and_then(known)
        }
        Of::Graph => None,
    };
    // SAFETY: it is this thread's, and no reference to it lives on across the call.
    let depth = unsafe {
        (*running).depth += 1;
        if (*running).depth == 1 {
            (*running).graphs = 0;
            (*running).offloaded = None;
            (*running).is_split = None;
            (*running).is_incomplete = false;
            (*running).has_untimed = false;
            // Two of four, the ones in the middle, so that what changes steadily is on both sides alike.
            // Each context takes turns of its own: they may be used in turns, too.
            let of = by.map_or(0, |by| usize::from(by.number)) % PASSES.len();
            let nth = || PASSES[of].fetch_add(1, Relaxed) % 4;
            (*running).is_bare = IS_TURNING.load(Relaxed) && matches!(nth(), 1 | 2);
        }
        (*running).depth
    };
    let open = Open(running);
    // Asked before the pass begins. In an inner pass the caches are as the outer one found them.
    if depth == 1 {
        // SAFETY: as above; the context is the caller's.
        unsafe {
            ask(running, 0, of, of_llama);
            (*running).filled.clone_from(&(*running).cached[0]);
            (*running).grown.clear();
            // A token for each sequence is one graph. To ask costs old versions a look at each cell of the cache, so it isn't
            // asked within such passes.
            let sequences = (&(*running).cached)[0].len().max(1);
            let is_more = |tokens: i32| usize::try_from(tokens).is_ok_and(|n| n > sequences);
            let may_be_several = of_llama.is_some_and(|(_, tokens)| tokens.is_none_or(is_more));
            (*running).context = match (of, of_llama) {
                (Of::Llama { hook, copy, .. }, Some((context, _))) if may_be_several => {
                    Some((hook, copy, context))
                }
                _ => None,
            };
        }
    }
    let begin = count();
    let status = run();
    // SAFETY: as above. The context has the scheduler of a graph that it has just computed.
    unsafe {
        // Another backend may be computing still, and the program waits for it as soon as it asks for a result.
        if let (1, 0, Some(offloaded)) = (depth, status, &(*running).offloaded) {
            offloaded.wait();
        }
    }
    let end = count();
    drop(open);
    if depth == 1 {
        // SAFETY: as above. The program may free the context now.
        unsafe {
            (*running).context = None;
            ask(running, 1, of, of_llama);
        }
        guarded((), || {
            // SAFETY: as above.
            let running = unsafe { &*running };
            let tokens = of_llama.and_then(|(_, tokens)| tokens);
            write_pass(running, (of, by), tokens, [begin, end], status);
        });
    }
    status
}

/// Asks how many tokens the cache has for each sequence, before a pass or after it.
///
/// # Safety
///
/// `running` is this thread's, and no reference to it is there; the context is the caller's.
unsafe fn ask(
    running: *mut Running,
    nth: usize,
    of: Of,
    of_llama: Option<(*const Context, Option<i32>)>,
) {
    // SAFETY: the caller says so.
    guarded((), || unsafe {
        let all = &mut (*running).cached[nth];
        all.clear();
        if let (Of::Llama { hook, copy, .. }, Some((context, _))) = (of, of_llama) {
            symbols::cached(hook, copy, context, all);
        }
    });
}

fn write_pass(
    running: &Running,
    (of, by): (Of, Option<contexts::Known>),
    tokens: Option<i32>,
    [begin, end]: [u64; 2],
    status: i32,
) {
    let cached = &running.cached;
    let position = cached[0].first().map(|&tokens| i64::from(tokens));
    let sequences = (0..).zip(cached[0].iter().zip(&cached[1]));
    let (numbers, sequences): (Vec<u64>, Vec<u64>) = sequences
        .filter(|(_, (before, after))| before < after)
        .map(|(number, (&before, &after))| {
            let of = running.sequences.iter().find(|(of, _)| *of == number);
            let outputs = of.map_or(0, |(_, outputs)| outputs.saturating_add(1));
            (word([number, outputs]), word([before, after]))
        })
        .unzip();
    let mut state = lock();
    let Some(state) = &mut *state else { return };
    calls::write(state, running.thread);
    let known = |value: Option<i64>| value.map_or(UNKNOWN, |value| value as u64);
    let is_decode = matches!(of, Of::Llama { is_decode: true, .. });
    let is_whole = running.is_split == Some(false);
    let of_pass = OfPass {
        graphs: running.graphs,
        is_decode,
        is_bare: running.is_bare,
        is_whole,
        is_incomplete: running.is_incomplete,
        has_untimed: running.has_untimed,
        is_graph: matches!(of, Of::Graph),
        is_warm_up: by.is_some_and(|by| by.is_warm_up),
        context: by.map_or(0, |by| by.number),
        of_thread: running.thread,
    };
    let words =
        [begin, end, known(tokens.map(i64::from)), known(position), status as u64, of_pass.word()];
    // Only a server's matter: the others' have no number that anybody asks for.
    if !numbers.is_empty() && !running.sequences.is_empty() {
        state.recording.write_words(Record::Numbers, &[], &numbers);
    }
    state.recording.write_words(Record::Pass, &words, &sequences);
    if let Some(words) = state.load.due(end) {
        state.recording.write_words(Record::Load, &words, &[]);
    }
    // With contexts, each one's are told.
    if by.is_none() && state.models.is_empty() {
        state.tell_models();
    }
    state.recording.make_room();
}

/// A function in the place of a method of `llama_context`, which runs a pass.
macro_rules! computes {
    ($name:ident, $hook:ident, $batch:ty, $tokens:expr, $sequences:path, $is_decode:literal) => {
        #[doc = concat!("In the place of [`Hook::", stringify!($hook), "`].")]
        ///
        /// # Safety
        ///
        /// As the method that it stands for.
        pub(crate) unsafe extern "C-unwind" fn $name<const COPY: usize>(
            context: *const Context,
            batch: *const $batch,
        ) -> i32 {
            type Run = unsafe extern "C-unwind" fn(*const Context, *const $batch) -> i32;
            let real = real!(Hook::$hook, COPY, Run);
            let tokens: fn(*const $batch) -> Option<i32> = $tokens;
            // SAFETY: the batch is the caller's.
            look(|all| unsafe { $sequences(batch, all) });
            let of = Of::Llama { hook: Hook::$hook, copy: COPY, is_decode: $is_decode };
            // SAFETY: the arguments are the caller's.
            unsafe { pass(Some((context, tokens(batch))), of, || real(context, batch)) }
        }
    };
}

/// Looks at what a batch has, before the outermost pass of this thread.
fn look(at: impl FnOnce(&mut Vec<OfSequence>)) {
    if !batch::IS_WANTED.load(Relaxed) || !IS_ON.load(Relaxed) {
        return;
    }
    guarded((), || {
        let running = running();
        // SAFETY: it is this thread's, and no other reference to it is there.
        unsafe {
            if (*running).depth == 0 {
                at(&mut (*running).sequences);
            }
        }
    });
}

fn tokens_of(batch: *const Batch) -> Option<i32> {
    // SAFETY: the caller's batch, whose first field has been the number of its tokens in all versions.
    Some(unsafe { (*batch).n_tokens })
}

/// Of a `llama_batch_ext` nothing is read.
fn unknown(_: *const c_void) -> Option<i32> {
    None
}

computes!(decode, Decode, Batch, tokens_of, batch::of, true);
computes!(decode_old, DecodeOld, Batch, tokens_of, batch::of, true);
computes!(decode_ext, DecodeExt, c_void, unknown, batch::of_ext, true);
computes!(encode, Encode, Batch, tokens_of, batch::of, false);
computes!(encode_old, EncodeOld, Batch, tokens_of, batch::of, false);
computes!(encode_ext, EncodeExt, c_void, unknown, batch::of_ext, false);
