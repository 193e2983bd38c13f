//! What the forward pass tells of itself: to nobody, or to a profiler. (A tap is in `tap.rs`.)

use std::ops::Range;

use brickscope::{BrickId, BrickKernelsTimer, BrickProfiler, KernelId, Work};
use brickscope_kernels::{TileLevel, TileWatch, TileWork};

use crate::executor::{Routine, Routines};
use crate::tap::{Operation, Value};

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
    /// Runs one brick of some kernels, one after the other, and nothing between them. A brick without
    /// any is not told of.
    fn brick_kernels<'a, R>(
        &'a self,
        brick: BrickId,
        work: Work,
        run: impl FnOnce(&mut Self::Kernels<'a>) -> R,
    ) -> R;

    /// Sees what a kernel has put out, or what attention is about to read, and may change it. Most
    /// probes don't look.
    #[inline(always)]
    fn tap(&self, _: Value, _: Option<Routine>, _: Operation<'_>, _: &mut [f32]) {}

    /// Who is told of the tiles of products, if anybody.
    #[inline(always)]
    fn tiles(&self) -> Option<&dyn TileWatch> {
        None
    }

    /// What hears of them.
    type Kernels<'a>: KernelProbe
    where
        Self: 'a;
}

/// Hears of the kernels of one brick.
pub trait KernelProbe {
    /// Runs the next kernel.
    fn kernel<R>(&mut self, routine: Routine, work: Work, run: impl FnOnce() -> R) -> R;
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
    fn brick_kernels<'a, R>(
        &'a self,
        _: BrickId,
        _: Work,
        run: impl FnOnce(&mut Self::Kernels<'a>) -> R,
    ) -> R {
        run(&mut NoProbe)
    }

    type Kernels<'a> = Self;
}

impl KernelProbe for NoProbe {
    #[inline(always)]
    fn kernel<R>(&mut self, _: Routine, _: Work, run: impl FnOnce() -> R) -> R {
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
    fn brick_kernels<'a, R>(
        &'a self,
        brick: BrickId,
        work: Work,
        run: impl FnOnce(&mut Self::Kernels<'a>) -> R,
    ) -> R {
        let mut kernels = ProfiledKernels { probe: self, brick, running: None };
        let result = run(&mut kernels);
        if let Some((timer, kernel_work)) = kernels.running {
            self.profiler.stop_kernels(timer, kernel_work, work);
        }
        result
    }

    #[inline]
    fn tiles(&self) -> Option<&dyn TileWatch> {
        self.profiler.is_tile_profiling_enabled().then_some(self)
    }

    type Kernels<'a>
        = ProfiledKernels<'a>
    where
        Self: 'a;
}

impl TileWatch for Profiled<'_> {
    #[inline]
    fn now(&self) -> Option<u64> {
        self.profiler.tile_reading()
    }

    #[inline]
    fn tile(&self, work: TileWork, readings: Range<u64>) {
        let level = match work.level {
            TileLevel::Macro => brickscope::TileLevel::Macro,
            TileLevel::Midi => brickscope::TileLevel::Midi,
            TileLevel::Micro => brickscope::TileLevel::Micro,
        };
        self.profiler.add_tiles(level, readings, work.tiles, work.elements, work.flops);
    }

    fn product(&self, shares: &[Range<u64>], threads: usize) {
        let length = |share: &&Range<u64>| share.end.saturating_sub(share.start);
        if let Some(slowest) = shares.iter().max_by_key(length) {
            self.profiler.add_tiled_product(slowest.clone(), threads as u64);
        }
    }
}

/// Tells a profiler of the kernels of a brick. Each begins where the one before it ended.
#[derive(Debug)]
pub struct ProfiledKernels<'a> {
    probe: &'a Profiled<'a>,
    brick: BrickId,
    /// The last kernel that began, and its work.
    running: Option<(BrickKernelsTimer, Work)>,
}

impl KernelProbe for ProfiledKernels<'_> {
    #[inline]
    fn kernel<R>(&mut self, routine: Routine, work: Work, run: impl FnOnce() -> R) -> R {
        let Profiled { profiler, kernels } = self.probe;
        let kernel = kernels[routine.index()];
        let timer = match self.running.take() {
            None => profiler.start_kernels(self.brick, kernel),
            Some((timer, work)) => profiler.next_kernel(timer, work, kernel),
        };
        self.running = Some((timer, work));
        run()
    }
}
