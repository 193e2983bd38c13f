//! What the forward pass tells of itself: to nobody, or to a profiler. (A tap is in `tap.rs`.)

use std::ops::Range;

use brickscope::{BrickId, BrickKernelsTimer, BrickProfiler, KernelId, Work};
use brickscope_kernels::{TileLevel, TileWatch, TileWork};

use crate::executor::{Routine, Routines};
use crate::kv_cache::Heads;
use crate::tap::{Operation, Value};

/// Hears of each layer, brick and kernel while it runs. It may run none of the bricks: then it hears of all that
/// there is, and nothing is computed.
pub trait Probe {
    /// The first brick comes next. A brick that is a kernel, or of some kernels, comes right after what is told of before it:
    /// a reading of the clock may end the one and begin the other. What has to be done between them is done before this,
    /// or at the end of a layer.
    #[inline(always)]
    fn begin(&self) {}

    /// Runs one transformer layer.
    fn layer(&self, index: usize, run: impl FnOnce());
    /// Runs one brick.
    fn brick(&self, brick: BrickId, work: Work, run: impl FnOnce());
    /// Runs one brick that is a single kernel. No other is run inside it, nor inside that of some kernels.
    fn brick_kernel(&self, brick: BrickId, routine: Routine, work: Work, run: impl FnOnce());
    /// Runs one brick of some kernels, one after the other, and nothing between them. A brick without
    /// any is not told of.
    fn brick_kernels<'a>(
        &'a self,
        brick: BrickId,
        work: Work,
        run: impl FnOnce(&mut Self::Kernels<'a>),
    );

    /// Sees what a kernel has put out, or what attention is about to read, and may change it. Most
    /// probes don't look.
    #[inline(always)]
    fn tap(&self, _: Value, _: Option<Routine>, _: Operation<'_>, _: &mut [f32]) {}

    /// The same for the keys or the values that attention is about to read, those of the first `n_tokens`
    /// tokens in the KV cache. Returns them as attention then reads them, `(n_tokens, kv_dim)`; nothing
    /// where nobody looks, as it takes a copy.
    #[inline(always)]
    fn tap_cache(&self, _value: Value, _heads: &mut Heads<'_>, _n_tokens: usize) -> Vec<f32> {
        Vec::new()
    }

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
    fn kernel(&mut self, routine: Routine, work: Work, run: impl FnOnce());
}

/// Tells nobody. A forward pass with it compiles to code without any trace of a probe.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    #[inline(always)]
    fn layer(&self, _: usize, run: impl FnOnce()) {
        run();
    }

    #[inline(always)]
    fn brick(&self, _: BrickId, _: Work, run: impl FnOnce()) {
        run();
    }

    #[inline(always)]
    fn brick_kernel(&self, _: BrickId, _: Routine, _: Work, run: impl FnOnce()) {
        run();
    }

    #[inline(always)]
    fn brick_kernels<'a>(&'a self, _: BrickId, _: Work, run: impl FnOnce(&mut Self::Kernels<'a>)) {
        run(&mut NoProbe);
    }

    type Kernels<'a> = Self;
}

impl KernelProbe for NoProbe {
    #[inline(always)]
    fn kernel(&mut self, _: Routine, _: Work, run: impl FnOnce()) {
        run();
    }
}

/// Tells a profiler of the passes that [`Session::forward_with`](crate::Session::forward_with) runs.
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

    /// The profiler's numbers for the routines.
    pub(crate) fn kernels(&self) -> &[KernelId] {
        &self.kernels
    }
}

impl Probe for Profiled<'_> {
    #[inline]
    fn layer(&self, index: usize, run: impl FnOnce()) {
        let timer = self.profiler.begin_layer(index as u16);
        run();
        self.profiler.end_layer(timer);
    }

    #[inline]
    fn brick(&self, brick: BrickId, work: Work, run: impl FnOnce()) {
        let timer = self.profiler.start_brick(brick);
        run();
        self.profiler.stop_brick_with(timer, work);
    }

    #[inline]
    fn brick_kernel(&self, brick: BrickId, routine: Routine, work: Work, run: impl FnOnce()) {
        let timer = self.profiler.start_brick_kernel(brick, self.kernels[routine.index()]);
        run();
        self.profiler.stop_brick_kernel(timer, work);
    }

    #[inline]
    fn brick_kernels<'a>(
        &'a self,
        brick: BrickId,
        work: Work,
        run: impl FnOnce(&mut Self::Kernels<'a>),
    ) {
        let mut kernels = ProfiledKernels { profiled: self, brick, open: None };
        run(&mut kernels);
        if let Some((timer, last)) = kernels.open {
            self.profiler.stop_kernels(timer, last, work);
        }
    }

    #[inline]
    fn tiles(&self) -> Option<&dyn TileWatch> {
        self.profiler.tiles().is_enabled().then_some(self)
    }

    type Kernels<'a>
        = ProfiledKernels<'a>
    where
        Self: 'a;
}

impl TileWatch for Profiled<'_> {
    #[inline]
    fn now(&self) -> Option<u64> {
        self.profiler.tiles().reading()
    }

    #[inline]
    fn tile(&self, work: TileWork, readings: Range<u64>) {
        let level = match work.level {
            TileLevel::Macro => brickscope::TileLevel::Macro,
            TileLevel::Midi => brickscope::TileLevel::Midi,
            TileLevel::Micro => brickscope::TileLevel::Micro,
        };
        self.profiler.tiles().add(level, readings, work.tiles, work.elements, work.flops);
    }

    fn product(&self, shares: &[Range<u64>], threads: usize) {
        let length = |share: &&Range<u64>| share.end.saturating_sub(share.start);
        if let Some(slowest) = shares.iter().max_by_key(length) {
            self.profiler.tiles().add_product(slowest.clone(), threads as u64);
        }
    }
}

/// Tells a profiler of the kernels of a brick. Each begins where the one before it ended.
#[derive(Debug)]
pub struct ProfiledKernels<'a> {
    profiled: &'a Profiled<'a>,
    brick: BrickId,
    /// The brick with the kernel that runs, and its work. Nothing until the first one begins.
    open: Option<(BrickKernelsTimer, Work)>,
}

impl KernelProbe for ProfiledKernels<'_> {
    #[inline]
    fn kernel(&mut self, routine: Routine, work: Work, run: impl FnOnce()) {
        let Profiled { profiler, kernels } = self.profiled;
        let kernel = kernels[routine.index()];
        let timer = match self.open.take() {
            Some((timer, ended)) => profiler.next_kernel(timer, ended, kernel),
            None => profiler.start_brick_kernel(self.brick, kernel),
        };
        self.open = Some((timer, work));
        run();
    }
}
