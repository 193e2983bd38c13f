//! What the methods that begin something return, and the methods that end it take.

use std::fmt;

use brickscope_profile::name::NameIdx;
use brickscope_profile::{Phase, TileLevel, Work};

use crate::recorder::{Open, OpenPass, Recorder, Timestamps, Unlabelled};
use crate::template::PassTemplate;

/// A brick that has begun. Pass it to [`BrickProfiler::stop_brick`](crate::BrickProfiler::stop_brick).
///
/// A brick whose timer is dropped is counted as [unfinished](crate::Dropped::unfinished).
#[derive(Debug)]
#[must_use = "a brick that is never stopped is not recorded"]
pub struct BrickTimer(pub(super) Open);

/// The predecessor's name for the timer of a [`BrickId`](crate::BrickId).
pub type BrickIdTimer = BrickTimer;

/// A kernel that has begun. Pass it to [`BrickProfiler::stop_kernel`](crate::BrickProfiler::stop_kernel).
#[derive(Debug)]
#[must_use = "a kernel that is never stopped is not recorded"]
pub struct KernelTimer(pub(super) Open);

/// A brick that has begun together with its first kernel. Pass it to
/// [`stop_brick_kernel`](crate::BrickProfiler::stop_brick_kernel) if that kernel is all of the brick, else to
/// [`next_kernel`](crate::BrickProfiler::next_kernel) and
/// [`stop_kernels`](crate::BrickProfiler::stop_kernels).
#[derive(Debug)]
#[must_use = "a brick that is never stopped is not recorded"]
pub struct BrickKernelsTimer {
    pub(super) brick: Open,
    pub(super) kernel: RunningKernel,
}

/// Which kernel of a brick is running.
///
/// The first one needs no words of its own, since it began with the brick. Where a timer stays in registers the
/// compiler knows the variant, so a brick of one kernel costs what it would with a timer type of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunningKernel {
    First(NameIdx),
    Later(Open),
}

impl BrickKernelsTimer {
    #[inline(always)]
    pub(super) fn running(&self) -> Open {
        match self.kernel {
            RunningKernel::First(kernel) => self.brick.inner(kernel),
            RunningKernel::Later(open) => open,
        }
    }
}

/// A brick that has begun and ends when this is dropped. Made by
/// [`BrickProfiler::brick`](crate::BrickProfiler::brick).
///
/// If a panic drops it, the brick is counted as unfinished, since its work was not completed.
#[must_use = "the brick ends when this is dropped"]
pub struct BrickGuard<'p> {
    pub(super) recorder: &'p Recorder,
    pub(super) open: Open,
    pub(super) work: Work,
}

impl BrickGuard<'_> {
    /// Sets the number of elements that the brick processed.
    #[inline]
    pub fn elements(&mut self, elements: u64) {
        self.work.elements = elements;
    }

    /// Sets the work that the brick had to do.
    #[inline]
    pub fn work(&mut self, work: Work) {
        self.work = work;
    }
}

impl Drop for BrickGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.open.is_off() && !std::thread::panicking() {
            self.recorder.end_brick(self.open, self.work);
        }
    }
}

impl fmt::Debug for BrickGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrickGuard").field("work", &self.work).finish_non_exhaustive()
    }
}

/// Runs a block as a brick: `brick!(profiler, BrickId::LmHead, elements, { … })`.
///
/// The macro evaluates to the block's value. `elements` is evaluated after the block has run. A block that is
/// left early, by `return` or `?`, ends the brick with no elements.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, brick};
///
/// let profiler = BrickProfiler::enabled();
/// let sum: u64 = brick!(profiler, BrickId::LmHead, 100, { (0..100).sum() });
/// assert_eq!(sum, 4950);
/// assert_eq!(profiler.brick_stats(BrickId::LmHead).total_elements, 100);
/// ```
#[macro_export]
macro_rules! brick {
    ($profiler:expr, $brick:expr, $elements:expr, $run:block) => {{
        let mut guard = $profiler.brick($brick);
        let result = $run;
        guard.elements($elements);
        drop(guard);
        result
    }};
}

/// A layer that has begun. Pass it to [`BrickProfiler::end_layer`](crate::BrickProfiler::end_layer).
#[derive(Debug)]
#[must_use = "a layer that is never ended is not recorded"]
pub struct LayerTimer {
    pub(super) open: Open,
    pub(super) before: u16,
}

/// A pass that has begun. Pass it to [`BrickProfiler::end_pass`](crate::BrickProfiler::end_pass) on the same
/// thread.
///
/// A pass that is dropped, for example by a panic, is abandoned: its bricks count as outside of any pass, and
/// [`Dropped::abandoned_passes`](crate::Dropped::abandoned_passes) counts it.
///
/// It can't leave its thread, so a future that holds it across an `.await` can't be given to a scheduler that moves
/// futures between threads. A pass that changes threads is recorded when it is over, by
/// [`record_pass`](crate::BrickProfiler::record_pass); `docs/embedding.md` shows how.
///
/// ```compile_fail,E0277
/// let profiler = brickscope::BrickProfiler::enabled();
/// let pass = profiler.begin_pass(brickscope::Phase::Decode);
/// // error: a pass can't leave the thread that began it
/// std::thread::scope(|scope| {
///     scope.spawn(|| profiler.end_pass(pass, 1, 0));
/// });
/// ```
#[must_use = "a pass that is dropped is abandoned: its bricks count outside of passes"]
pub struct PassTimer {
    /// `None` if profiling was off.
    pub(super) open: Option<OpenPass>,
    pub(super) phase: Phase,
}

impl PassTimer {
    /// Sets the phase of the pass, where it is known only once the pass runs: by what a scheduler put into its batch, for
    /// one.
    ///
    /// ```
    /// use brickscope::{BrickProfiler, Phase};
    ///
    /// let profiler = BrickProfiler::enabled();
    /// let mut pass = profiler.begin_pass(Phase::Decode);
    /// let tokens = 128; // of the batch
    /// if tokens > 1 {
    ///     pass.set_phase(Phase::Prefill);
    /// }
    /// profiler.end_pass(pass, tokens, 0);
    /// assert_eq!(profiler.profile().phases[0].phase, Phase::Prefill);
    /// ```
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }
}

impl fmt::Debug for PassTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassTimer")
            .field("phase", &self.phase)
            .field("is_recorded", &self.open.is_some())
            .finish_non_exhaustive()
    }
}

/// The timestamps of a pass, which are labelled after the pass. See
/// [`BrickProfiler::timestamps_of`](crate::BrickProfiler::timestamps_of).
///
/// If they are dropped before that, for example by a panic, they are
/// [counted as unfinished](crate::Dropped::unfinished). The value can't leave its thread:
///
/// ```compile_fail
/// fn is_sent<T: Send>(_: T) {}
/// let profiler = brickscope::BrickProfiler::enabled();
/// let pass = profiler.begin_pass(brickscope::Phase::Decode);
/// is_sent(profiler.timestamps_of(&pass, &mut [0; 2]));
/// ```
pub struct PassTimestamps<'p>(pub(super) Timestamps<'p>);

impl<'p> PassTimestamps<'p> {
    /// Takes the next timestamp: reads the clock.
    #[inline(always)]
    pub fn take(&self) {
        self.0.take();
    }

    /// Ends the pass's wall time here, unless more bricks follow in the pass, so that labelling the timestamps doesn't
    /// count as time of the pass.
    ///
    /// Returns `None`, and counts the timestamps as unfinished, if
    ///
    /// - there were more timestamps than `room` for them,
    /// - anything else was timed on this thread in the meantime, since the two might overlap, or
    /// - profiling was turned off, or [reset](crate::BrickProfiler::reset). A reset discards the timestamps instead
    ///   of counting them.
    #[must_use]
    pub fn end(self) -> Option<UnlabelledPass<'p>> {
        self.0.end().map(UnlabelledPass)
    }
}

impl fmt::Debug for PassTimestamps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassTimestamps").finish_non_exhaustive()
    }
}

/// A pass that has ended and whose timestamps have no labels yet. If it is dropped, they are
/// [counted as unfinished](crate::Dropped::unfinished).
#[must_use = "timestamps that are never labelled are counted as unfinished"]
pub struct UnlabelledPass<'p>(Unlabelled<'p>);

impl UnlabelledPass<'_> {
    /// Labels the timestamps with `template`, for a pass with `position` tokens before it. The template's kernels must
    /// come from the same profiler.
    ///
    /// Returns `false`, and counts the timestamps as unfinished, if they come from another one, which
    /// [`misuse`](crate::BrickProfiler::misuse) tells, if the template has another number of timestamps, or if anything
    /// else has been timed on this thread since.
    pub fn label(self, template: &PassTemplate, position: u64) -> bool {
        self.0.label(template, position)
    }
}

impl fmt::Debug for UnlabelledPass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnlabelledPass").finish_non_exhaustive()
    }
}

/// A point in one thread's work that another thread waits for. Made by
/// [`BrickProfiler::hand_off`](crate::BrickProfiler::hand_off).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the thread that waits for this work passes it to `take_over`"]
pub struct HandOff(pub(super) Option<u64>);

/// A tile that has begun. Pass it to [`TileRecorder::stop`](crate::TileRecorder::stop).
#[derive(Debug)]
#[must_use = "a tile that is never stopped is not recorded"]
pub struct TileTimer {
    pub(super) level: TileLevel,
    pub(super) row: u32,
    pub(super) col: u32,
    /// `None` if tiles were not being timed.
    pub(super) start: Option<u64>,
}

impl TileTimer {
    /// The tile's row and column within the tile that contains it, counted in tiles.
    #[must_use]
    pub fn place(&self) -> (u32, u32) {
        (self.row, self.col)
    }
}

// Timers are passed in registers and kept on hot stacks.
const _: () = assert!(size_of::<BrickTimer>() <= 32 && size_of::<KernelTimer>() <= 32);
