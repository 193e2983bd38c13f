//! Ranges that another tool shows, around passes, layers, bricks and kernels. The careful ways call this: while no tool is
//! there, nobody pays for it.

use std::cell::RefCell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::Phase;

use super::log::{Open, ThreadLog};
use super::{PLAIN, Recorder, thread};
use crate::names::ProfilerNo;
use crate::row::NameIdx;
use crate::sync::lock;

/// Ranges deeper than this aren't shown: spans that never end leave theirs open.
const MOST: usize = 1024;

/// What a range is of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Range {
    Pass(Phase),
    Layer(u16),
    Named(NameIdx),
}

/// A tool that is told of ranges. They nest on each thread.
pub(crate) trait MarkRanges: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// A range begins on this thread, inside of those that are open.
    fn begin(&self, range: Range);
    /// The one that began last on this thread ends.
    fn end(&self);
}

/// Whose a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Pass {
        log: u32,
        serial: u32,
    },
    Span {
        log: u32,
        order: u32,
    },
    /// What is being issued on a stream of a device.
    Issued {
        of: ProfilerNo,
        stream: u16,
    },
}

impl Whose {
    fn span(open: &Open) -> Self {
        Self::Span { log: open.log(), order: open.order() }
    }
}

thread_local! {
    /// The ranges that are open on this thread, the innermost last.
    static OPEN: RefCell<Vec<Whose>> = const { RefCell::new(Vec::new()) };
}

/// Not while the thread is torn down, nor from within itself: then there is no range.
fn with_open(f: impl FnOnce(&mut Vec<Whose>)) {
    thread::not_within_itself(|| {
        let _ = OPEN.try_with(|open| {
            if let Ok(mut open) = open.try_borrow_mut() {
                f(&mut open);
            }
        });
    });
}

impl Recorder {
    /// Has `marks` told of ranges from now on. Only the first one is: what it was told the begin of, it is told the end of.
    pub(crate) fn mark(&self, marks: Arc<dyn MarkRanges>) {
        let _held = lock(&self.switch);
        let _ = self.marks.set(marks);
        self.set_state(self.is_active());
    }

    /// To be called before a span's clock is read.
    #[inline]
    pub(super) fn begin_mark(&self, open: Open, range: Range) {
        if self.may_mark() {
            self.begin_range(Whose::span(&open), range);
        }
    }

    /// To be called after a span's clock was read. One that began on another thread has no range on this one.
    #[inline]
    pub(super) fn end_mark(&self, open: Open) {
        if self.may_mark() {
            self.end_ranges(|of| *of == Whose::span(&open));
        }
    }

    #[inline]
    pub(super) fn begin_pass_mark(&self, log: &ThreadLog, serial: u32, phase: Phase) {
        if self.may_mark() {
            let log = log.serial();
            // A pass that was dropped without an end has left its range open.
            self.end_ranges(|of| matches!(of, Whose::Pass { log: other, .. } if *other == log));
            self.begin_range(Whose::Pass { log, serial }, Range::Pass(phase));
        }
    }

    #[inline]
    pub(super) fn end_pass_mark(&self, log: &ThreadLog, serial: u32) {
        if self.may_mark() {
            let whose = Whose::Pass { log: log.serial(), serial };
            self.end_ranges(|of| *of == whose);
        }
    }

    /// From here on a brick of this name is issued on a stream; or nothing.
    #[inline]
    pub(crate) fn mark_issued(&self, stream: u16, name: Option<NameIdx>) {
        if self.may_mark() {
            let whose = Whose::Issued { of: self.number, stream };
            self.end_ranges(|of| *of == whose);
            if let Some(name) = name {
                self.begin_range(whose, Range::Named(name));
            }
        }
    }

    /// Nothing is issued on any stream from here on.
    #[inline]
    pub(crate) fn mark_all_issued(&self) {
        if self.may_mark() {
            let own = self.number;
            self.end_ranges(|of| matches!(of, Whose::Issued { of, .. } if *of == own));
        }
    }

    /// While a tool is told of ranges the short ways are closed, which the recorder's first line says.
    #[inline]
    fn may_mark(&self) -> bool {
        self.state.load(Relaxed) & PLAIN == 0
    }

    #[cold]
    fn begin_range(&self, whose: Whose, range: Range) {
        let Some(marks) = self.marks.get() else { return };
        with_open(|open| {
            if open.len() < MOST {
                open.push(whose);
                marks.begin(range);
            }
        });
    }

    /// Ends the outermost range for which `is` holds, and those inside of it, which were left open.
    #[cold]
    fn end_ranges(&self, is: impl Fn(&Whose) -> bool) {
        let Some(marks) = self.marks.get() else { return };
        with_open(|open| {
            if let Some(at) = open.iter().position(is) {
                open.drain(at..).for_each(|_| marks.end());
            }
        });
    }
}
