//! Which copies of ggml look as they should, so that something is read of their graphs.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use crate::format::Record;
use crate::hooks::{self, COPIES, Hook};
use crate::{experts, ggml, guarded, is_ready, lock, symbols};

/// Whether a copy of ggml is looked at, by the function that was called.
static COPIES_KNOWN: [[AtomicU8; COPIES]; 2] =
    [const { [const { AtomicU8::new(UNKNOWN) }; COPIES] }; 2];
const UNKNOWN: u8 = 0;
const LOOKED_AT: u8 = 1;
const REFUSED: u8 = 2;

/// The functions by which a copy is known.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    Graph,
    Scheduled,
}

impl Known {
    fn hook(self) -> Hook {
        match self {
            Self::Graph => Hook::Graph,
            Self::Scheduled => Hook::Scheduled,
        }
    }
}

/// Whether a copy of ggml looks as it should, which is checked at its first graph.
#[inline(always)]
pub(crate) fn is_known(by: Known, copy: usize) -> bool {
    match COPIES_KNOWN[by as usize][copy].load(Relaxed) {
        UNKNOWN => guarded(false, || look_at(by, copy)),
        known => known == LOOKED_AT,
    }
}

/// A function gets the number of one that is gone.
pub(crate) fn forget(hook: Hook, copy: usize) {
    for by in [Known::Graph, Known::Scheduled] {
        if by.hook() == hook {
            COPIES_KNOWN[by as usize][copy].store(UNKNOWN, Relaxed);
        }
    }
}

#[cold]
fn look_at(by: Known, copy: usize) -> bool {
    if !is_ready() {
        return false;
    }
    // The linker is asked, so nobody waits for us meanwhile.
    let layout = ggml::Layout::check(|name| hooks::beside(by.hook(), copy, name));
    let library = symbols::library(by.hook(), copy);
    let mut state = lock();
    let Some(state) = &mut *state else { return false };
    let known = &COPIES_KNOWN[by as usize][copy];
    // Another thread may have looked meanwhile.
    if known.load(Relaxed) != UNKNOWN {
        return known.load(Relaxed) == LOOKED_AT;
    }
    match layout {
        Ok(layout) => {
            if let Known::Graph = by {
                experts::know(copy, &layout);
            }
            state.layouts[by as usize][copy] = Some((state.libraries, layout));
            if let Known::Graph = by {
                let text = library.described(state.libraries);
                state.recording.write(Record::Library, text.as_bytes());
                state.libraries += 1;
            }
            known.store(LOOKED_AT, Relaxed);
        }
        Err(why) => {
            state.recording.lose(&format!("graphs of {}: {why}", library.name()));
            known.store(REFUSED, Relaxed);
        }
    }
    known.load(Relaxed) == LOOKED_AT
}
