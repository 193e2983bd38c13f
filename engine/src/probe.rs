//! What the forward pass tells of itself: to nobody, or to a profiler.

use brickscope::{BrickId, BrickProfiler, KernelId, Work};

use crate::executor::{Routine, Routines};

/// Hears of each layer, brick and kernel while it runs.
pub trait Probe {
    /// Runs one transformer layer.
    fn layer<R>(&self, index: usize, run: impl FnOnce() -> R) -> R;
    /// Runs one brick.
    fn brick<R>(&self, brick: BrickId, work: Work, run: impl FnOnce() -> R) -> R;
    /// Runs one brick that is a single kernel.
    fn brick_kernel<R>(
        &self,
        brick: BrickId,
        routine: Routine,
        work: Work,
        run: impl FnOnce() -> R,
    ) -> R;
    /// Runs one kernel of the brick that is running.
    fn kernel<R>(&self, routine: Routine, work: Work, run: impl FnOnce() -> R) -> R;
}

/// Tells nobody. A forward pass with it compiles to code without any trace of a probe.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    #[inline(always)]
    fn layer<R>(&self, _: usize, run: impl FnOnce() -> R) -> R {
        run()
    }

    #[inline(always)]
    fn brick<R>(&self, _: BrickId, _: Work, run: impl FnOnce() -> R) -> R {
        run()
    }

    #[inline(always)]
    fn brick_kernel<R>(&self, _: BrickId, _: Routine, _: Work, run: impl FnOnce() -> R) -> R {
        run()
    }

    #[inline(always)]
    fn kernel<R>(&self, _: Routine, _: Work, run: impl FnOnce() -> R) -> R {
        run()
    }
}

/// Tells a profiler.
#[derive(Debug)]
pub struct Profiled<'p> {
    profiler: &'p BrickProfiler,
    /// The profiler's numbers for the routines, by [`Routine`].
    kernels: Vec<KernelId>,
}

impl<'p> Profiled<'p> {
    /// Makes the routines known to the profiler, so that a kernel is a number from then on.
    #[must_use]
    pub fn new(profiler: &'p BrickProfiler, routines: &Routines) -> Self {
        let kernels = routines
            .list()
            .iter()
            .map(|(name, launch)| profiler.kernel(name, Some(launch.clone())))
            .collect();
        Self { profiler, kernels }
    }

    /// The profiler that is told.
    #[must_use]
    pub fn profiler(&self) -> &'p BrickProfiler {
        self.profiler
    }
}

impl Probe for Profiled<'_> {
    #[inline]
    fn layer<R>(&self, index: usize, run: impl FnOnce() -> R) -> R {
        let timer = self.profiler.begin_layer(index as u16);
        let result = run();
        self.profiler.end_layer(timer);
        result
    }

    #[inline]
    fn brick<R>(&self, brick: BrickId, work: Work, run: impl FnOnce() -> R) -> R {
        let timer = self.profiler.start_brick(brick);
        let result = run();
        self.profiler.stop_brick_with(timer, work);
        result
    }

    #[inline]
    fn brick_kernel<R>(
        &self,
        brick: BrickId,
        routine: Routine,
        work: Work,
        run: impl FnOnce() -> R,
    ) -> R {
        let timer = self.profiler.start_brick_kernel(brick, self.kernels[routine.index()]);
        let result = run();
        self.profiler.stop_brick_kernel(timer, work);
        result
    }

    #[inline]
    fn kernel<R>(&self, routine: Routine, work: Work, run: impl FnOnce() -> R) -> R {
        let timer = self.profiler.start_kernel(self.kernels[routine.index()]);
        let result = run();
        self.profiler.stop_kernel(timer, work);
        result
    }
}
