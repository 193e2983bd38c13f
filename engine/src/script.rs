//! Passes whose clock is read, and which are told afterwards what it was read for.
//!
//! A pass of one token takes the way of the one before it, but for the work of attention, which grows with each token
//! by as much. So its way is kept: made by walking the forward pass without its kernels, at two positions. What is left
//! to do in a pass is to read the clock, and afterwards to go through a list.

use std::cell::RefCell;
use std::mem::discriminant;

use brickscope::{BrickId, KernelId, PassReadings, ToldKernels, ToldLayer, ToldPass, Work};

use crate::executor::Routine;
use crate::probe::{KernelProbe, Probe};

/// Reads the clock, and does nothing else.
#[derive(Debug)]
pub(crate) struct Timed<'p>(PassReadings<'p>);

impl<'p> Timed<'p> {
    pub(crate) fn new(readings: PassReadings<'p>) -> Self {
        Self(readings)
    }

    /// Room for the readings of a pass of so many layers: far more than any architecture takes.
    pub(crate) fn room(n_layers: usize) -> Vec<u64> {
        vec![0; 64 * n_layers + 64]
    }

    pub(crate) fn tell(self) -> Option<ToldPass<'p>> {
        self.0.tell()
    }
}

impl Probe for Timed<'_> {
    #[inline(always)]
    fn layer(&self, _: usize, run: impl FnOnce()) {
        self.0.take();
        run();
        self.0.take();
    }

    #[inline(always)]
    fn brick(&self, _: BrickId, _: Work, run: impl FnOnce()) {
        self.0.take();
        run();
        self.0.take();
    }

    #[inline(always)]
    fn brick_kernel(&self, _: BrickId, _: Routine, _: Work, run: impl FnOnce()) {
        self.0.take();
        run();
        self.0.take();
    }

    #[inline(always)]
    fn brick_kernels<'a>(&'a self, _: BrickId, _: Work, run: impl FnOnce(&mut Self::Kernels<'a>)) {
        let mut kernels = TimedKernels { readings: &self.0, has_any: false };
        run(&mut kernels);
        if kernels.has_any {
            self.0.take();
        }
    }

    type Kernels<'a>
        = TimedKernels<'a>
    where
        Self: 'a;
}

/// Reads the clock where a kernel begins.
#[derive(Debug)]
pub(crate) struct TimedKernels<'a> {
    readings: &'a PassReadings<'a>,
    has_any: bool,
}

impl KernelProbe for TimedKernels<'_> {
    #[inline(always)]
    fn kernel(&mut self, _: Routine, _: Work, run: impl FnOnce()) {
        self.readings.take();
        self.has_any = true;
        run();
    }
}

/// What the next readings are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Brick(BrickId),
    BrickKernel(BrickId, Routine),
    FirstKernel(BrickId, Routine),
    NextKernel(Routine),
    LastKernel,
    Layer(u16),
    LayerEnd,
}

/// Hears of a pass, and runs nothing of it.
#[derive(Debug, Default)]
pub(crate) struct Walk(RefCell<Vec<(Of, Work)>>);

impl Walk {
    fn hear(&self, of: Of, work: Work) {
        self.0.borrow_mut().push((of, work));
    }
}

impl Probe for Walk {
    fn layer(&self, index: usize, run: impl FnOnce()) {
        self.hear(Of::Layer(index as u16), Work::default());
        run();
        self.hear(Of::LayerEnd, Work::default());
    }

    fn brick(&self, brick: BrickId, work: Work, _: impl FnOnce()) {
        self.hear(Of::Brick(brick), work);
    }

    fn brick_kernel(&self, brick: BrickId, routine: Routine, work: Work, _: impl FnOnce()) {
        self.hear(Of::BrickKernel(brick, routine), work);
    }

    fn brick_kernels<'a>(
        &'a self,
        brick: BrickId,
        work: Work,
        run: impl FnOnce(&mut Self::Kernels<'a>),
    ) {
        let mut kernels = WalkedKernels { walk: self, first_of: Some(brick) };
        run(&mut kernels);
        if kernels.first_of.is_none() {
            self.hear(Of::LastKernel, work);
        }
    }

    type Kernels<'a> = WalkedKernels<'a>;
}

/// Hears of the kernels of a brick.
#[derive(Debug)]
pub(crate) struct WalkedKernels<'a> {
    walk: &'a Walk,
    first_of: Option<BrickId>,
}

impl KernelProbe for WalkedKernels<'_> {
    fn kernel(&mut self, routine: Routine, work: Work, _: impl FnOnce()) {
        let of = match self.first_of.take() {
            Some(brick) => Of::FirstKernel(brick, routine),
            None => Of::NextKernel(routine),
        };
        self.walk.hear(of, work);
    }
}

/// What readings of a pass are of at any position, in the order in which they are taken.
#[derive(Debug)]
pub(crate) struct Script {
    steps: Vec<Step>,
    /// By how much work grows with each token before it. The first one not at all.
    growths: Vec<Work>,
}

#[derive(Debug)]
struct Step {
    /// At position 0, or what it would be if work grew so from there on.
    work: Work,
    of: Of,
    growth: u16,
}

impl Script {
    /// From the walks at the position before a pass's, and at its own, whose routines it has: rows may be dealt out
    /// otherwise from here on. `None` if one does what the other doesn't.
    pub(crate) fn new(walks: [Walk; 2], position: usize) -> Option<Self> {
        let [before, here] = walks.map(|walk| walk.0.into_inner());
        if before.len() != here.len() {
            return None;
        }
        let mut growths = vec![Work::default()];
        let steps = before.into_iter().zip(here).map(|((of_before, before), (of, here))| {
            let growth = combine(here, before, u64::wrapping_sub);
            let known = growths.iter().position(|known| *known == growth);
            let index = known.unwrap_or_else(|| {
                growths.push(growth);
                growths.len() - 1
            });
            let work = combine(here, times(growth, position), u64::wrapping_sub);
            let is_alike = discriminant(&of) == discriminant(&of_before);
            is_alike.then_some(Step { work, of, growth: u16::try_from(index).ok()? })
        });
        let steps = steps.collect::<Option<_>>()?;
        Some(Self { steps, growths })
    }

    /// Says of a pass at `position` what was read in it. `kernels` are a profiler's numbers for the routines.
    pub(crate) fn tell(&self, mut pass: ToldPass<'_>, position: usize, kernels: &[KernelId]) {
        let (mut brick, mut layer): (Option<ToldKernels>, Option<ToldLayer>) = (None, None);
        for step in &self.steps {
            let mut work = step.work;
            if step.growth != 0 {
                let grown = times(self.growths[usize::from(step.growth)], position);
                work = combine(work, grown, u64::wrapping_add);
            }
            let kernel = |routine: Routine| kernels[routine.index()];
            match step.of {
                Of::Brick(of) => pass.brick(of, work),
                Of::BrickKernel(of, routine) => pass.brick_kernel(of, kernel(routine), work),
                Of::FirstKernel(of, routine) => {
                    brick = Some(pass.begin_kernels(of, kernel(routine), work));
                }
                Of::NextKernel(routine) => {
                    if let Some(brick) = &mut brick {
                        pass.next_kernel(brick, kernel(routine), work);
                    }
                }
                Of::LastKernel => {
                    if let Some(brick) = brick.take() {
                        pass.end_kernels(brick, work);
                    }
                }
                Of::Layer(index) => layer = Some(pass.begin_layer(index)),
                Of::LayerEnd => {
                    if let Some(layer) = layer.take() {
                        pass.end_layer(layer);
                    }
                }
            }
        }
    }
}

fn combine(a: Work, b: Work, of_two: fn(u64, u64) -> u64) -> Work {
    Work {
        elements: of_two(a.elements, b.elements),
        flops: of_two(a.flops, b.flops),
        bytes: of_two(a.bytes, b.bytes),
    }
}

fn times(work: Work, n: usize) -> Work {
    let n = n as u64;
    Work {
        elements: work.elements.wrapping_mul(n),
        flops: work.flops.wrapping_mul(n),
        bytes: work.bytes.wrapping_mul(n),
    }
}
