//! Passes whose clock is read, and which are told afterwards what it was read for.
//!
//! A pass of one token takes the way of the one before it, but for the work of attention, which grows with each token
//! by as much. So its way is kept, as a script: made by walking the forward pass without its kernels, at two positions.
//! What is left to do in a pass is to read the clock.

use std::cell::RefCell;
use std::mem::discriminant;

use brickscope::{BrickId, GrowingWork, KernelId, PassReadings, PassScript, UntoldPass, Work};

use crate::executor::Routine;
use crate::probe::{KernelProbe, Probe};

/// Reads the clock, and does nothing else. Once where a brick ends and one of kernels begins, or a layer: between them
/// there is nothing to do.
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

    pub(crate) fn end(self) -> Option<UntoldPass<'p>> {
        self.0.end()
    }
}

impl Probe for Timed<'_> {
    #[inline(always)]
    fn begin(&self) {
        self.0.take();
    }

    #[inline(always)]
    fn layer(&self, _: usize, run: impl FnOnce()) {
        run();
        // What bricks had in common is freed after the last one.
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

/// Reads the clock where a kernel begins, but for the first one.
#[derive(Debug)]
pub(crate) struct TimedKernels<'a> {
    readings: &'a PassReadings<'a>,
    has_any: bool,
}

impl KernelProbe for TimedKernels<'_> {
    #[inline(always)]
    fn kernel(&mut self, _: Routine, _: Work, run: impl FnOnce()) {
        if self.has_any {
            self.readings.take();
        }
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

/// What readings of a pass are of at any position, from the walks at the position before a pass's, and at its own.
/// `kernels` are a profiler's numbers for the routines, which are those of its own position: rows may be dealt out
/// otherwise from here on. `None` if one walk does what the other doesn't.
pub(crate) fn script(
    walks: [Walk; 2],
    position: usize,
    kernels: &[KernelId],
) -> Option<PassScript> {
    let [before, here] = walks.map(|walk| walk.0.into_inner());
    if before.len() != here.len() {
        return None;
    }
    let mut script = PassScript::builder();
    let kernel = |routine: Routine| kernels[routine.index()];
    // The brick of some kernels that is open.
    let mut open: Option<(BrickId, Vec<(KernelId, GrowingWork)>)> = None;
    for ((of_before, before), (of, here)) in before.into_iter().zip(here) {
        if discriminant(&of) != discriminant(&of_before) {
            return None;
        }
        let work = growing(before, here, position as u64);
        // As they are taken.
        if !matches!(of, Of::Brick(_) | Of::LayerEnd) {
            script.lap();
        }
        match of {
            Of::Brick(brick) => script.brick(brick, work),
            Of::BrickKernel(brick, routine) => script.brick_kernel(brick, kernel(routine), work),
            Of::FirstKernel(brick, routine) => open = Some((brick, vec![(kernel(routine), work)])),
            Of::NextKernel(routine) => open.as_mut()?.1.push((kernel(routine), work)),
            Of::LastKernel => {
                let (brick, kernels) = open.take()?;
                script.brick_kernels(brick, work, &kernels);
            }
            Of::Layer(index) => script.begin_layer(index),
            Of::LayerEnd => script.end_layer(),
        }
    }
    Some(script.build())
}

/// Work that is so much at a position, and was so much at the one before it.
fn growing(before: Work, here: Work, position: u64) -> GrowingWork {
    let minus = |a: Work, b: Work, n: u64| Work {
        elements: a.elements.wrapping_sub(b.elements.wrapping_mul(n)),
        flops: a.flops.wrapping_sub(b.flops.wrapping_mul(n)),
        bytes: a.bytes.wrapping_sub(b.bytes.wrapping_mul(n)),
    };
    let per_token = minus(here, before, 1);
    GrowingWork { at_start: minus(here, per_token, position), per_token }
}
