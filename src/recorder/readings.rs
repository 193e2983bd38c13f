//! A pass whose clock is read while it runs, and which is told afterwards what the readings were of.
//!
//! Between two bricks of a model the caches are full of weights, so that what a span costs are the lines that it
//! touches: of its code, of the log, and of all that says what it is. Here it is one number, next to the one before
//! it. The rows come when the pass is over, one after the other, by code that is then at hand.

use std::cell::Cell;
use std::marker::PhantomData;

use super::{Kind, NameIdx, Open, OpenPass, Recorder, Relaxed, ThreadLog};
use crate::brick::{Source, Work};

/// The readings of a pass that is open on this thread.
#[derive(Debug)]
pub(crate) struct Readings<'p> {
    recorder: &'p Recorder,
    pass: &'p OpenPass,
    log: &'p ThreadLog,
    /// Whose the log was when the pass began, and for which generation.
    owner: u64,
    /// Where the log stood then.
    stood: [u64; 3],
    room: &'p [Cell<u64>],
    taken: Cell<usize>,
    /// Only the thread of the pass may write to its log.
    stays: PhantomData<*const ()>,
}

impl Recorder {
    /// For a pass that [`begin_pass`](Self::begin_pass) of this recorder began, on its thread. `None` if nothing
    /// records it, or if a brick is more than its readings: where events are counted in each, or the clock isn't the
    /// processor's. And the second time.
    pub(crate) fn readings<'p>(
        &'p self,
        pass: Option<&'p OpenPass>,
        room: &'p mut [u64],
    ) -> Option<Readings<'p>> {
        let pass = pass?;
        let log = self.log_of(Some(pass))?;
        let owner = log.owner.load(Relaxed);
        // No log is of the generation that is off.
        let is_plain = self.plain.load(Relaxed) == owner as u32;
        (is_plain && !pass.is_read.replace(true)).then(|| Readings {
            recorder: self,
            pass,
            log,
            owner,
            stood: log.stands(),
            room: Cell::from_mut(room).as_slice_of_cells(),
            taken: Cell::new(0),
            stays: PhantomData,
        })
    }
}

impl<'p> Readings<'p> {
    /// Reads the clock.
    #[inline(always)]
    pub(crate) fn take(&self) {
        let taken = self.taken.get();
        if let Some(cell) = self.room.get(taken) {
            cell.set(self.recorder.plain_now());
        }
        self.taken.set(taken + 1);
    }

    /// To say what they were of: the pass ends here. `None` if there are more than there was room for, if anything
    /// else was recorded on this thread meanwhile, or if recording isn't what it was: off, or begun anew.
    pub(crate) fn tell(self) -> Option<Told<'p>> {
        self.pass.ended.set(Some(self.recorder.plain_now()));
        let log = self.log;
        let is_as_before = log.owner.load(Relaxed) == self.owner
            && self.recorder.plain.load(Relaxed) == self.owner as u32
            && log.stands() == self.stood;
        let readings = self.room.get(..self.taken.get()).filter(|_| is_as_before)?;
        // From here on those that are left are counted there.
        self.taken.set(0);
        let [.., last_end] = self.stood;
        Some(Told { log, owner: self.owner, readings, last_end, stays: PhantomData })
    }
}

impl Drop for Readings<'_> {
    fn drop(&mut self) {
        self.log.leave_untold(self.taken.get(), self.owner);
    }
}

impl ThreadLog {
    /// What changes with any span.
    fn stands(&self) -> [u64; 3] {
        [&self.begun, &self.covered, &self.last_end].map(|word| word.load(Relaxed))
    }

    /// Counts readings of which nobody said what they were of: as spans that never ended, unless the log has been
    /// left since.
    fn leave_untold(&self, readings: usize, owner: u64) {
        if self.owner.load(Relaxed) == owner {
            self.begun.store(self.begun.load(Relaxed) + readings as u64, Relaxed);
        }
    }
}

/// Readings of a pass that are being told what they were of, one after the other.
///
/// What is told of beyond the last reading is counted as a span that never ended. So is what is left when a brick was
/// recorded otherwise meanwhile: it lies after the readings, and in a log ends only grow.
#[derive(Debug)]
pub(crate) struct Told<'p> {
    log: &'p ThreadLog,
    owner: u64,
    /// Those that are left.
    readings: &'p [Cell<u64>],
    /// Where the last brick ended that was told of.
    last_end: u64,
    stays: PhantomData<*const ()>,
}

/// A brick of some kernels that is being told of.
#[derive(Debug)]
pub(crate) struct ToldBrick {
    brick: Open,
    kernel: Open,
    kernel_work: Work,
}

/// A layer that is being told of.
#[derive(Debug)]
pub(crate) struct ToldLayer {
    open: Open,
    before: u32,
}

impl Told<'_> {
    #[inline(always)]
    fn next_reading(&mut self) -> Option<u64> {
        let (first, rest) = self.readings.split_first()?;
        self.readings = rest;
        Some(first.get())
    }

    /// The first of some spans that begin with the next reading. No brick begins before the last one ended, though the
    /// clock of the core that the thread has moved to may say so.
    #[inline(always)]
    fn begin(&mut self, name: NameIdx, spans: u64) -> Option<Open> {
        let open = self.log.begin_several(name, spans);
        if self.log.last_end.load(Relaxed) != self.last_end {
            return None;
        }
        Some(Open { start: self.next_reading()?.max(self.last_end), ..open })
    }

    #[inline(always)]
    fn ended_brick(&mut self) {
        self.last_end = self.log.last_end.load(Relaxed);
    }

    /// Two readings: a brick without kernels.
    pub(crate) fn brick(&mut self, brick: NameIdx, work: Work) {
        let Some(open) = self.begin(brick, 1) else { return };
        if let Some(end) = self.next_reading() {
            self.log.end_brick(Source::Host, open, end, work);
            self.ended_brick();
        }
    }

    /// Two readings: a brick that is a single kernel.
    pub(crate) fn brick_kernel(&mut self, brick: NameIdx, kernel: NameIdx, work: Work) {
        let Some(open) = self.begin(brick, 2) else { return };
        if let Some(end) = self.next_reading() {
            self.log.end_both(open, kernel, end, work);
            self.ended_brick();
        }
    }

    /// One reading: a brick and its first kernel begin.
    pub(crate) fn begin_kernels(
        &mut self,
        brick: NameIdx,
        kernel: NameIdx,
        kernel_work: Work,
    ) -> Option<ToldBrick> {
        let brick = self.begin(brick, 2)?;
        Some(ToldBrick { brick, kernel: brick.inner(kernel), kernel_work })
    }

    /// One reading: a kernel ends, the next one begins.
    pub(crate) fn next_kernel(
        &mut self,
        told: ToldBrick,
        kernel: NameIdx,
        kernel_work: Work,
    ) -> Option<ToldBrick> {
        let now = self.next_reading()?.max(told.kernel.start);
        self.log.end_detail(Kind::Kernel, told.kernel, now, told.kernel_work);
        let kernel = Open { start: now, ..self.log.begin(kernel) };
        Some(ToldBrick { kernel, kernel_work, ..told })
    }

    /// One reading: the last kernel ends, and the brick.
    pub(crate) fn end_kernels(&mut self, told: &ToldBrick, work: Work) {
        if let Some(end) = self.next_reading() {
            self.log.end_detail(Kind::Kernel, told.kernel, end, told.kernel_work);
            self.log.end_brick(Source::Host, told.brick, end, work);
            self.ended_brick();
        }
    }

    /// One reading: a layer begins.
    pub(crate) fn begin_layer(&mut self, layer: u16) -> Option<ToldLayer> {
        let open = self.begin(layer, 1)?;
        let before = self.log.layer.load(Relaxed);
        self.log.layer.store(u32::from(layer) << 16, Relaxed);
        Some(ToldLayer { open, before })
    }

    /// One reading: it ends.
    pub(crate) fn end_layer(&mut self, told: &ToldLayer) {
        if let Some(end) = self.next_reading() {
            self.log.end_detail(Kind::Layer, told.open, end, Work::default());
        }
        self.log.layer.store(told.before, Relaxed);
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.log.leave_untold(self.readings.len(), self.owner);
    }
}
