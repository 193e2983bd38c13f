//! Which sequences a batch has tokens of, and for which of them llama.cpp computes logits. It is looked at once the process has
//! had a request: then somebody wants to know whom a pass is for.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::ggml::Batch;
use crate::hooks::Hook;
use crate::{IS_ON, guarded, real};

/// Whether batches are looked at.
pub(crate) static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// The most tokens of a batch that are looked at.
const MOST_TOKENS: usize = 1 << 20;
/// The most batches of a thread.
const MOST_BATCHES: usize = 16;

/// What a batch has of a sequence: its number, and how many outputs.
pub(crate) type OfSequence = (u32, u32);

/// An entry of a `llama_batch_ext`: its sequence, and whether it has an output.
type Entry = (i32, bool);

/// A `llama_batch_ext` that a thread fills, since it was cleared.
struct Filled {
    at: usize,
    entries: Vec<Entry>,
    /// Whether entries were added that weren't seen.
    has_gaps: bool,
}

thread_local! {
    static FILLED: RefCell<Vec<Filled>> = const { RefCell::new(Vec::new()) };
}

fn count_in(all: &mut Vec<OfSequence>, sequence: i32, has_output: bool) {
    let Ok(sequence) = u32::try_from(sequence) else { return };
    match all.iter_mut().rfind(|of| of.0 == sequence) {
        Some(of) => of.1 += u32::from(has_output),
        None => all.push((sequence, u32::from(has_output))),
    }
}

/// What a `llama_batch` has.
///
/// # Safety
///
/// It is one that llama.cpp is about to decode.
pub(crate) unsafe fn of(batch: *const Batch, all: &mut Vec<OfSequence>) {
    all.clear();
    if !IS_WANTED.load(Relaxed) || batch.is_null() {
        return;
    }
    // SAFETY: the arrays that are there have as many elements as there are tokens, and each list of sequences as many as is
    // said of it. Where one isn't there, llama.cpp takes the first sequence, and the last token for that with an output.
    unsafe {
        let Batch { n_tokens, n_seq_id, seq_id, logits, .. } = *batch;
        let n = usize::try_from(n_tokens).unwrap_or(0).min(MOST_TOKENS);
        for nth in 0..n {
            let has_output = if logits.is_null() { nth + 1 == n } else { *logits.add(nth) != 0 };
            if n_seq_id.is_null() || seq_id.is_null() {
                count_in(all, 0, has_output);
                continue;
            }
            let sequences = *seq_id.add(nth);
            for of in 0..usize::try_from(*n_seq_id.add(nth)).unwrap_or(0) {
                count_in(all, *sequences.add(of), has_output);
            }
        }
    }
}

/// What a `llama_batch_ext` has that this thread has filled.
///
/// # Safety
///
/// As [`of`]'s, though nothing of it is read.
pub(crate) unsafe fn of_ext(batch: *const c_void, all: &mut Vec<OfSequence>) {
    all.clear();
    with(batch, |filled| {
        if !filled.has_gaps {
            let entries = filled.entries.iter();
            entries.for_each(|&(sequence, has_output)| count_in(all, sequence, has_output));
        }
    });
}

/// Looks at a batch.
fn with(batch: *const c_void, look: impl FnOnce(&mut Filled)) {
    if !IS_WANTED.load(Relaxed) || !IS_ON.load(Relaxed) {
        return;
    }
    let at = batch as usize;
    guarded((), || {
        // A thread that ends may free batches when it has none of this any more.
        let _ = FILLED.try_with(|all| {
            let Ok(mut all) = all.try_borrow_mut() else { return };
            if !all.iter().any(|filled| filled.at == at) {
                if all.len() == MOST_BATCHES {
                    all.remove(0);
                }
                all.push(Filled { at, entries: Vec::new(), has_gaps: false });
            }
            all.iter_mut().find(|filled| filled.at == at).into_iter().for_each(look_once(look));
        });
    });
}

/// Something to be done once, as something that may be done more often.
fn look_once(look: impl FnOnce(&mut Filled)) -> impl FnMut(&mut Filled) {
    let mut look = Some(look);
    move |filled| {
        if let Some(look) = look.take() {
            look(filled);
        }
    }
}

/// Whether the entry at an index has an output.
fn set(batch: *const c_void, index: c_int, has_output: bool) {
    with(batch, |filled| {
        match usize::try_from(index).ok().and_then(|index| filled.entries.get_mut(index)) {
            Some(entry) => entry.1 = has_output,
            None => filled.has_gaps = true,
        }
    });
}

/// An entry was added at this index, or none if that is below 0.
fn added(batch: *const c_void, sequence: c_int, index: c_int) {
    let Ok(index) = usize::try_from(index) else { return };
    with(batch, |filled| {
        if index == filled.entries.len() && index < MOST_TOKENS {
            filled.entries.push((sequence, false));
        } else {
            filled.has_gaps = true;
        }
    });
}

fn emptied(batch: *const c_void) {
    with(batch, |filled| {
        filled.entries.clear();
        filled.has_gaps = false;
    });
}

/// `struct llama_embd`, which is passed as it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Embd {
    data: *const f32,
    rows: usize,
    width: usize,
}

/// In the place of llama.cpp's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn clear<const COPY: usize>(batch: *mut c_void) {
    type Clear = unsafe extern "C-unwind" fn(*mut c_void);
    let real = real!(Hook::BatchClear, COPY, Clear);
    emptied(batch);
    // SAFETY: the argument is the caller's.
    unsafe { real(batch) }
}

/// In the place of llama.cpp's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn free<const COPY: usize>(batch: *mut c_void) {
    type Free = unsafe extern "C-unwind" fn(*mut c_void);
    let real = real!(Hook::BatchFree, COPY, Free);
    emptied(batch);
    // SAFETY: the argument is the caller's.
    unsafe { real(batch) }
}

/// In the place of llama.cpp's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn add_token<const COPY: usize>(
    batch: *mut c_void,
    sequence: c_int,
    token: c_int,
) -> c_int {
    type Add = unsafe extern "C-unwind" fn(*mut c_void, c_int, c_int) -> c_int;
    let real = real!(Hook::BatchToken, COPY, Add);
    // SAFETY: the arguments are the caller's.
    let index = unsafe { real(batch, sequence, token) };
    added(batch, sequence, index);
    index
}

/// In the place of llama.cpp's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn add_embd<const COPY: usize>(
    batch: *mut c_void,
    sequence: c_int,
    embd: Embd,
) -> c_int {
    type Add = unsafe extern "C-unwind" fn(*mut c_void, c_int, Embd) -> c_int;
    let real = real!(Hook::BatchEmbd, COPY, Add);
    // SAFETY: the arguments are the caller's.
    let index = unsafe { real(batch, sequence, embd) };
    added(batch, sequence, index);
    index
}

/// In the place of llama.cpp's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn set_output<const COPY: usize>(
    batch: *mut c_void,
    index: c_int,
    value: bool,
) -> bool {
    type Set = unsafe extern "C-unwind" fn(*mut c_void, c_int, bool) -> bool;
    let real = real!(Hook::BatchOutput, COPY, Set);
    set(batch, index, value);
    // SAFETY: the arguments are the caller's.
    unsafe { real(batch, index, value) }
}

/// In the place of llama.cpp's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn set_output_embd<const COPY: usize>(
    batch: *mut c_void,
    index: c_int,
    value: bool,
) -> bool {
    type Set = unsafe extern "C-unwind" fn(*mut c_void, c_int, bool) -> bool;
    let real = real!(Hook::BatchOutputEmbd, COPY, Set);
    set(batch, index, value);
    // SAFETY: the arguments are the caller's.
    unsafe { real(batch, index, value) }
}

/// In the place of llama.cpp's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn add<const COPY: usize>(
    batch: *mut c_void,
    sequence: c_int,
) -> c_int {
    type Add = unsafe extern "C-unwind" fn(*mut c_void, c_int) -> c_int;
    let real = real!(Hook::BatchAny, COPY, Add);
    // SAFETY: the arguments are the caller's.
    let index = unsafe { real(batch, sequence) };
    added(batch, sequence, index);
    index
}
