//! The bricks of a pass that is open on this thread, one after the other.
//!
//! Between two bricks of a model the caches are full of weights. What a span then costs are the lines
//! that it touches, of code as of data: with 1 MB read in between a timer's begin and end take twice as
//! long as in a loop. So here is what knows its log, which need not be looked up, and keeps the open
//! span to itself, so that a caller passes some numbers and nothing else.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{NO_KERNEL, NameIdx, OFF, Open, OpenPass, Recorder, Relaxed, ThreadLog, thread, upper};
use crate::brick::Work;

/// One brick at a time, each of one kernel or of some, one after the other.
#[derive(Debug)]
pub(crate) struct InPass<'p> {
    recorder: &'p Recorder,
    /// `None` if nothing records the pass.
    log: Option<&'p ThreadLog>,
    /// Whose the log was when the pass began, and for which generation.
    owner: u64,
    /// The brick, as the words of an [`Open`]; its home is 0 while none is open.
    start: Cell<u64>,
    covered: Cell<u64>,
    home: Cell<u64>,
    what: Cell<u64>,
    /// The kernel that runs: when it began and what it is, [`NO_KERNEL`] if none was begun because recording
    /// was off.
    kernel_start: Cell<u64>,
    kernel_what: Cell<u64>,
    /// The home of the kernel, which is the brick's unless a pass has begun or ended in between.
    kernel_home: Cell<u64>,
    kernel_work: Cell<Work>,
    /// Only the thread of the pass may write to its log.
    stays: PhantomData<*const ()>,
}

impl Recorder {
    /// The bricks of a pass, which [`begin_pass`](Self::begin_pass) of this recorder began, on its thread.
    pub(crate) fn in_pass<'p>(&'p self, pass: Option<&'p OpenPass>) -> InPass<'p> {
        let log = self.log_of(pass);
        let zero = || Cell::new(0);
        InPass {
            recorder: self,
            log,
            owner: log.map_or(0, |log| log.owner.load(Relaxed)),
            start: zero(),
            covered: zero(),
            home: zero(),
            what: zero(),
            kernel_start: zero(),
            kernel_what: zero(),
            kernel_home: zero(),
            kernel_work: Cell::default(),
            stays: PhantomData,
        }
    }

    /// The log that a pass is recorded in, on its thread.
    pub(super) fn log_of<'p>(&self, pass: Option<&'p OpenPass>) -> Option<&'p ThreadLog> {
        let log = pass?.log.as_ref()?;
        // A pass of somebody else's is none that this recorder's bricks can be in.
        let own = self.near_log(thread::here(), self.active.load(Relaxed));
        own.is_some_and(|own| Arc::ptr_eq(own, log)).then_some(log)
    }
}

impl InPass<'_> {
    /// The log, where all is [`plain`](Recorder::plain) and still as it was when the pass began.
    #[inline(always)]
    fn plain_log(&self) -> Option<&ThreadLog> {
        let log = self.log?;
        let is_as_before = log.owner.load(Relaxed) == self.owner
            // No log is of the generation that is off.
            && self.recorder.plain.load(Relaxed) == self.owner as u32;
        is_as_before.then_some(log)
    }

    #[inline(always)]
    fn brick(&self) -> Open {
        Open {
            start: self.start.get(),
            covered: self.covered.get(),
            home: self.home.get(),
            what: self.what.get(),
        }
    }

    #[inline(always)]
    fn kernel(&self) -> Open {
        Open {
            start: self.kernel_start.get(),
            home: self.kernel_home.get(),
            what: self.kernel_what.get(),
            ..self.brick()
        }
    }

    #[inline(always)]
    fn set_brick(&self, open: Open) {
        self.start.set(open.start);
        self.covered.set(open.covered);
        self.home.set(open.home);
        self.kernel_home.set(open.home);
        self.what.set(open.what);
    }

    /// Begins a brick and its first kernel. A brick that is open stays unfinished.
    #[inline(always)]
    pub(crate) fn begin(&self, brick: NameIdx, kernel: NameIdx, work: Work) {
        self.kernel_work.set(work);
        let Some(log) = self.plain_log() else { return self.begin_with_care(brick, kernel) };
        let open = log.begin_several(brick, 2);
        self.set_brick(open);
        self.kernel_what.set(open.inner(kernel).what);
        let last_end = log.last_end.load(Relaxed);
        let start = self.recorder.plain_now().max(last_end);
        self.start.set(start);
        self.kernel_start.set(start);
    }

    #[cold]
    #[inline(never)]
    fn begin_with_care(&self, brick: NameIdx, kernel: NameIdx) {
        let open = self.recorder.begin_both(brick);
        self.set_brick(open);
        self.kernel_start.set(open.start);
        self.kernel_what.set(open.inner(kernel).what);
    }

    /// Ends the running kernel and begins the next one of the brick.
    #[inline(always)]
    pub(crate) fn next(&self, kernel: NameIdx, work: Work) {
        let ended = self.kernel_work.replace(work);
        let open = self.kernel();
        if self.home.get() == 0 || open.what == NO_KERNEL {
            return;
        }
        let now = self.plain_end();
        let log = self.plain_log().filter(|_| now != 0);
        let log = log.and_then(|log| log.end_ordinary_kernel(&open, now, ended).map(|()| log));
        let Some(log) = log else { return self.next_with_care(kernel, ended, now) };
        self.kernel_what.set(log.begin(kernel).what);
        self.kernel_start.set(now);
    }

    #[cold]
    #[inline(never)]
    fn next_with_care(&self, kernel: NameIdx, ended: Work, now: u64) {
        let (start, covered, home, what) = self.kernel().words();
        let Work { elements, flops, bytes } = ended;
        let next = self
            .recorder
            .next_detail_with_care(start, covered, home, what, kernel, elements, flops, bytes, now);
        self.kernel_start.set(next.start);
        self.kernel_home.set(next.home);
        self.kernel_what.set(if next.is_off() { NO_KERNEL } else { next.what });
    }

    /// Ends a brick that is a single kernel, whose work is the brick's.
    #[inline(always)]
    pub(crate) fn end(&self) {
        let now = self.plain_end();
        if self.end_ordinary(now).is_none() {
            self.end_with_care(now);
        }
    }

    #[inline(always)]
    fn end_ordinary(&self, now: u64) -> Option<()> {
        let log = self.plain_log()?;
        let (open, kernel) = (self.brick(), self.kernel_what.get());
        // It is the only kernel, since it is the one after the brick; a clock that stands at 0 can't be told
        // from one that wasn't read.
        if now == 0 || upper(kernel) != open.order().wrapping_add(1) {
            return None;
        }
        // No log's home is 0, which is that of a brick that isn't open.
        log.end_ordinary_both(&open, kernel as NameIdx, now, self.kernel_work.get())?;
        self.home.set(0);
        Some(())
    }

    #[cold]
    #[inline(never)]
    fn end_with_care(&self, now: u64) {
        let open = self.brick();
        if open.is_off() {
            return;
        }
        let (start, covered, home, what) = open.words();
        let (kernel, work) = (self.kernel_what.get(), self.kernel_work.get());
        if upper(kernel) != open.order().wrapping_add(1) {
            // It had others before.
            return self.end_several_at(now, work);
        }
        self.home.set(0);
        let (kernel, Work { elements, flops, bytes }) = (kernel as NameIdx, work);
        self.recorder
            .end_both_with_care(start, covered, home, what, kernel, elements, flops, bytes, now);
    }

    /// Ends the last of several kernels and the brick, which had this work to do.
    #[inline(always)]
    pub(crate) fn end_several(&self, work: Work) {
        if self.home.get() != 0 {
            self.end_several_at(self.plain_end(), work);
        }
    }

    #[inline(always)]
    fn end_several_at(&self, now: u64, work: Work) {
        if self.end_ordinary_several(now, work).is_none() {
            self.end_several_with_care(work, now);
        }
        self.home.set(0);
    }

    #[inline(always)]
    fn end_ordinary_several(&self, now: u64, work: Work) -> Option<()> {
        let log = self.plain_log()?;
        let (open, kernel) = (self.brick(), self.kernel());
        if now == 0 || kernel.what == NO_KERNEL {
            return None;
        }
        log.end_ordinary_pair((&kernel, self.kernel_work.get()), (&open, work), now)
    }

    #[cold]
    #[inline(never)]
    fn end_several_with_care(&self, work: Work, now: u64) {
        let (start, covered, home, what) = self.brick().words();
        let is_here = self.kernel_home.get() == home;
        let kernel_what = if is_here { self.kernel_what.get() } else { NO_KERNEL };
        let kernel = (self.kernel_start.get(), kernel_what);
        let [first, second] = [self.kernel_work.get(), work];
        let works =
            [first.elements, first.flops, first.bytes, second.elements, second.flops, second.bytes];
        self.recorder
            .end_last_with_care(start, covered, home, what, kernel.0, kernel.1, works, now);
    }

    /// The clock, first of all; 0 where not all is plain.
    #[inline(always)]
    fn plain_end(&self) -> u64 {
        if self.recorder.plain.load(Relaxed) == OFF { 0 } else { self.recorder.plain_now() }
    }
}
