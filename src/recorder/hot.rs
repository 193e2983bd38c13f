//! The hot path: all that an ordinary span runs is in this file.
//!
//! Nearly every span begins and ends on one thread, nests, finds room in the log, and is timed by the processor's
//! counter: for these each call has a short way. Where anything is otherwise it gives up, having written nothing, and a
//! [careful](super::careful) way does the same. `equivalence.rs` checks that both write the same rows.
//!
//! The short ways are `#[inline]`, so that they are compiled with their caller, in another crate too: without calls, with
//! the span in registers. A library finds the thread's number by a call, around which registers are saved; so functions
//! that are not inlined are given it.

use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::Work;

use super::careful::{carefully, carefully_begun};
use super::log::{Open, ThreadLog, layer_of};
use super::thread::{self, Thread};
use super::{OFF, PLAIN, Recorder};
use crate::row::NameIdx;

/// A way to end a span. Out of line, if the compiler has it so, all its words are in registers.
macro_rules! ending {
    ($(#[$about:meta])* $end:ident, $end_open:ident, $plain:ident, $care:ident $(, $kernel:ident)?) => {
        $(#[$about])*
        #[inline(always)]
        pub(crate) fn $end(&self, open: Open, $($kernel: NameIdx,)? work: Work) {
            if !open.is_off() {
                let (when, which) = open.halves();
                self.$end_open(thread::here(), when, which, $($kernel,)? work);
            }
        }

        #[inline]
        fn $end_open(
            &self, here: Thread, when: (u64, u64), which: (u64, u64), $($kernel: NameIdx,)? work: Work,
        ) {
            let open = Open::from_halves(when, which);
            let ended = self.end_plain(here, |log, end| log.$plain(&open, $($kernel,)? end, work));
            if let Err(end) = ended {
                carefully(move || self.$care(open, $($kernel,)? end, work));
            }
        }
    };
}

impl Recorder {
    /// Begins a brick. Off, it reads neither the clock nor anything else.
    #[inline]
    pub(crate) fn begin_brick(&self, name: NameIdx) -> Open {
        self.begin_spans(name, 1)
    }

    /// Begins a brick and its first kernel with one reading of the clock.
    #[inline]
    pub(crate) fn begin_both(&self, brick: NameIdx) -> Open {
        self.begin_spans(brick, 2)
    }

    #[inline]
    fn begin_spans(&self, name: NameIdx, spans: u64) -> Open {
        let state = self.state.load(Relaxed);
        if state == OFF {
            return Open::OFF;
        }
        let Some(log) = self.near_log(thread::here(), state) else {
            return carefully_begun(move || self.begin_brick_with_care(name, spans));
        };
        let open = log.begin(name, spans);
        let last_end = log.last_end.load(Relaxed);
        // The clock last, so that the book-keeping is not in the span. No brick begins before the last one ended,
        // though the clock of the core that the thread has moved to may say so.
        Open { start: self.plain_now().max(last_end), ..open }
    }

    /// Begins a kernel.
    #[inline]
    pub(crate) fn begin_detail(&self, name: NameIdx) -> Open {
        let state = self.state.load(Relaxed);
        if state == OFF {
            return Open::OFF;
        }
        let Some(log) = self.near_log(thread::here(), state) else {
            return carefully_begun(move || self.begin_detail_with_care(name));
        };
        let open = log.begin(name, 1);
        Open { start: self.plain_now(), ..open }
    }

    ending! {
        /// Ends a brick. Begun while off, it ends here.
        end_brick, end_open_brick, end_plain_brick, end_brick_with_care
    }
    ending! {
        /// Ends a kernel.
        end_kernel, end_open_kernel, end_plain_kernel, end_kernel_with_care
    }
    ending! {
        /// Ends a brick and the one kernel that is all of it with one reading.
        end_both, end_open_both, end_plain_both, end_both_with_care, kernel
    }

    /// Ends a brick and begins the next one with the same reading.
    #[inline(always)]
    pub(crate) fn lap(&self, open: Open, work: Work, next: NameIdx) -> Open {
        if open.is_off() {
            return self.begin_brick(next);
        }
        let begun = self.end_plain(thread::here(), |log, now| {
            log.end_plain_brick(&open, now, work)?;
            Some(Open { start: now, ..log.begin(next, 1) })
        });
        match begun {
            Ok(begun) => begun,
            Err(now) => carefully_begun(move || self.lap_with_care(open, now, work, next)),
        }
    }

    /// Ends a brick and the one kernel that is all of it, and begins another such pair, with one reading.
    #[inline(always)]
    pub(crate) fn lap_both(&self, open: Open, kernel: NameIdx, work: Work, next: NameIdx) -> Open {
        if open.is_off() {
            return self.begin_both(next);
        }
        let begun = self.end_plain(thread::here(), |log, now| {
            log.end_plain_both(&open, kernel, now, work)?;
            Some(Open { start: now, ..log.begin(next, 2) })
        });
        match begun {
            Ok(begun) => begun,
            Err(now) => {
                carefully_begun(move || self.lap_both_with_care(open, kernel, now, work, next))
            }
        }
    }

    /// Ends a kernel and begins the next one of the same brick with the same reading.
    #[inline]
    pub(crate) fn next_detail(&self, open: Open, work: Work, next: NameIdx) -> Open {
        if open.is_off() {
            return Open::OFF;
        }
        let begun = self.end_plain(thread::here(), |log, now| {
            log.end_plain_kernel(&open, now, work)?;
            Some(Open { start: now, ..log.begin(next, 1) })
        });
        match begun {
            Ok(begun) => begun,
            Err(now) => carefully_begun(move || self.next_detail_with_care(open, now, work, next)),
        }
    }

    /// Ends the last kernel of a brick, and the brick, with one reading.
    #[inline]
    pub(crate) fn end_last(&self, brick: Open, kernel: Open, kernel_work: Work, work: Work) {
        if brick.is_off() {
            return;
        }
        let pair = [(&kernel, kernel_work), (&brick, work)];
        if let Err(end) = self.end_plain(thread::here(), |log, end| log.end_plain_pair(pair, end)) {
            carefully(move || self.end_last_with_care([brick, kernel], end, [kernel_work, work]));
        }
    }

    /// Reads the clock, before all but finding the thread's number, and calls `f` with this thread's log and the reading.
    /// Where `f` gave up: the reading, or 0 without one (another clock than the counter, or hardware counters in use).
    #[inline(always)]
    fn end_plain<T>(
        &self,
        here: Thread,
        f: impl FnOnce(&ThreadLog, u64) -> Option<T>,
    ) -> Result<T, u64> {
        let state = self.state.load(Relaxed);
        if state & PLAIN == 0 {
            return Err(0);
        }
        let end = self.plain_now();
        self.near_log(here, state).and_then(|log| f(log, end)).ok_or(end)
    }
}

impl ThreadLog {
    #[inline(always)]
    fn end_plain_brick(&self, open: &Open, end: u64, work: Work) -> Option<()> {
        let (place, [row]) = self.next_rows()?;
        let times = self.cover(open, place, 1, end)?;
        row.store_brick(times, work, [open.home, open.what], layer_of(place));
        self.advance(place, 1, 1);
        Some(())
    }

    #[inline(always)]
    pub(super) fn end_plain_both(
        &self,
        open: &Open,
        of: NameIdx,
        end: u64,
        work: Work,
    ) -> Option<()> {
        let (place, [row]) = self.next_rows()?;
        let times = self.cover(open, place, 2, end)?;
        row.store_brick_kernel(times, work, [open.home, open.what], layer_of(place), of);
        self.advance(place, 1, 2);
        Some(())
    }

    #[inline(always)]
    fn end_plain_kernel(&self, open: &Open, end: u64, work: Work) -> Option<()> {
        let (place, [row]) = self.next_rows()?;
        if open.home != self.home.load(Relaxed)
            || self.holds_open(open, place, 1)
            || end < open.start
        {
            return None;
        }
        let times = [open.start, end - open.start, 0];
        row.store_kernel(times, work, [open.home, open.what], layer_of(place));
        self.advance(place, 1, 1);
        Some(())
    }

    /// A kernel, and the brick that ends with it.
    #[inline(always)]
    fn end_plain_pair(&self, [kernel, brick]: [(&Open, Work); 2], end: u64) -> Option<()> {
        let (place, [first, second]) = self.next_rows()?;
        let ((kernel, kernel_work), (brick, work)) = (kernel, brick);
        // A kernel that began before the brick is none of the spans that the brick holds. (`what` begins with the order.)
        if kernel.home != brick.home || kernel.what < brick.what || end < kernel.start {
            return None;
        }
        let times = self.cover(brick, place, 2, end)?;
        let (layer, kernel_times) = (layer_of(place), [kernel.start, end - kernel.start, 0]);
        first.store_kernel(kernel_times, kernel_work, [kernel.home, kernel.what], layer);
        second.store_brick(times, work, [brick.home, brick.what], layer);
        self.advance(place, 2, 2);
        Some(())
    }

    /// A brick's start, how long it took, and what of that is its own. The thread's time is then covered up to `end`.
    /// `None` unless it began here and nests. `spans` end here: the brick, and its kernel if that is open.
    #[inline(always)]
    fn cover(&self, open: &Open, place: u64, spans: u64, end: u64) -> Option<[u64; 3]> {
        let (covered, last_end) = (self.covered.load(Relaxed), self.last_end.load(Relaxed));
        // Clocks of two cores may be some counts apart.
        if open.home != self.home.load(Relaxed)
            || self.holds_open(open, place, spans)
            || end < last_end
            || end < open.start
        {
            return None;
        }
        // What was covered since it began lies between its begin and the last end, unless it is a time of somebody else's
        // that began earlier.
        let since = covered.wrapping_sub(open.covered);
        if since > 0 && (last_end < open.start || since > last_end - open.start) {
            return None;
        }
        let duration = end - open.start;
        let exclusive = duration - since;
        self.covered.store(covered.wrapping_add(exclusive), Relaxed);
        self.last_end.store(end, Relaxed);
        Some([open.start, duration, exclusive])
    }
}
