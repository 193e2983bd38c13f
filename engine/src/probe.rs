//! Probes: what the forward pass reports its layers, bricks and kernels to.
//!
//! [`NoProbe`] ignores them, [`Profiled`] passes them on to a profiler; the probes of `template.rs` and `tap.rs` are
//! internal.

use std::ops::Range;

use brickscope::{BrickId, BrickKernelsTimer, BrickProfiler, KernelId, Work};
use brickscope_kernels::{TileLevel, TileWatch, TileWork};

use crate::kv_cache::Heads;
use crate::routines::{Routine, Routines};
use crate::value::{Operation, Value};

/// Runs each layer, brick and kernel of a forward pass. A probe that runs none of the bricks still sees all of them,
/// and nothing is computed.
pub trait Probe {
    /// Called right before the first brick. From here on, a brick of one or more kernels directly follows whatever was
    /// reported before it, so one reading of the clock may end the one and begin the other. Other work is done
    /// before this call, or at the end of a layer.
    #[inline(always)]
    fn begin(&self) {}

    /// Runs one transformer layer.
    fn layer(&self, index: usize, run: impl FnOnce());
    /// Runs one brick.
    fn brick(&self, brick: BrickId, work: Work, run: impl FnOnce());
    /// Runs one brick that is a single kernel. No brick runs inside it.
    fn brick_kernel(&self, brick: BrickId, routine: Routine, work: Work, run: impl FnOnce());
    /// Runs one brick of several kernels, back to back. A brick without any kernel isn't reported. No brick runs
    /// inside it.
    fn brick_kernels<'a>(
        &'a self,
        brick: BrickId,
        work: Work,
        run: impl FnOnce(&mut Self::Kernels<'a>),
    );

    /// Sees a kernel's output, or what attention is about to read, and may change it. Most probes ignore it.
    #[inline(always)]
    fn tap(&self, _: Value, _: Option<Routine>, _: Operation<'_>, _: &mut [f32]) {}

    /// The same for the keys or values of the first `n_tokens` tokens in the KV cache, which attention is about to
    /// read. Returns them as attention then reads them, `(n_tokens, kv_dim)`. That takes a copy, so probes that
    /// ignore values return nothing.
    #[inline(always)]
    fn tap_cache(&self, _value: Value, _heads: &mut Heads<'_>, _n_tokens: usize) -> Vec<f32> {
        Vec::new()
    }

    /// What the tiles of matrix products are reported to, if anything.
    #[inline(always)]
    fn tiles(&self) -> Option<&dyn TileWatch> {
        None
    }

    /// Runs the kernels of a brick.
    type Kernels<'a>: KernelProbe
    where
        Self: 'a;
}

/// Runs the kernels of one brick.
pub trait KernelProbe {
    /// Runs the next kernel.
    fn kernel(&mut self, routine: Routine, work: Work, run: impl FnOnce());
}

/// Reports nothing. A forward pass with it compiles to code without any trace of a probe.
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

/// Reports the passes of [`Session::forward_with`](crate::Session::forward_with) to a profiler.
#[derive(Debug)]
pub struct Profiled<'p> {
    profiler: &'p BrickProfiler,
    /// The profiler's numbers for the routines, by [`Routine`].
    kernels: Vec<KernelId>,
}

impl<'p> Profiled<'p> {
    /// Registers the routines with the profiler, so that each kernel is a number from then on.
    #[must_use]
    pub fn new(profiler: &'p BrickProfiler, routines: &Routines) -> Self {
        let kernels = routines
            .list()
            .iter()
            .map(|(name, launch)| profiler.kernel(name, Some(launch.clone())))
            .collect();
        Self { profiler, kernels }
    }

    /// The profiler that it reports to.
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

/// Reports the kernels of a brick to a profiler. Each begins where the one before it ended.
#[derive(Debug)]
pub struct ProfiledKernels<'a> {
    profiled: &'a Profiled<'a>,
    brick: BrickId,
    /// The timer of the brick and its running kernel, and that kernel's work. `None` until the first one begins.
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
