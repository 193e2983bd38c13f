//! Decode passes that only read the clock, and are labelled afterwards.
//!
//! A pass of one token runs the same bricks as the one before it; only attention's work grows, by the same amount with
//! each token. So a template is made once, by walking the forward pass at two positions without running its kernels.
//! A pass then only takes timestamps, and the template says afterwards what each of them belongs to.

use std::cell::RefCell;
use std::mem::discriminant;

use brickscope::{
    BrickId, Data, GrowingWork, KernelId, PassTemplate, PassTimestamps, UnlabelledPass, Work,
};

use crate::probe::{KernelProbe, Probe};
use crate::routines::Routine;

/// Reads the clock, and does nothing else. Where a brick ends and a kernel's brick or a layer begins it reads once,
/// since nothing runs in between.
#[derive(Debug)]
pub(crate) struct Timed<'p>(PassTimestamps<'p>);

impl<'p> Timed<'p> {
    pub(crate) fn new(readings: PassTimestamps<'p>) -> Self {
        Self(readings)
    }

    /// Room for the readings of a pass of `n_layers` layers: far more than any architecture takes.
    pub(crate) fn room(n_layers: usize) -> Vec<u64> {
        vec![0; 64 * n_layers + 64]
    }

    pub(crate) fn end(self) -> Option<UnlabelledPass<'p>> {
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
        // What bricks share is freed after the last one.
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

/// Reads the clock where each kernel but the first begins.
#[derive(Debug)]
pub(crate) struct TimedKernels<'a> {
    readings: &'a PassTimestamps<'a>,
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

/// What a pass reports, one event after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Brick(BrickId),
    BrickKernel(BrickId, Routine),
    FirstKernel(BrickId, Routine),
    NextKernel(Routine),
    LastKernel,
    Layer(u16),
    LayerEnd,
}

/// Records the events of a pass without running its bricks.
#[derive(Debug, Default)]
pub(crate) struct Walk(RefCell<Vec<(Event, Work)>>);

impl Walk {
    fn record(&self, event: Event, work: Work) {
        self.0.borrow_mut().push((event, work));
    }
}

impl Probe for Walk {
    fn layer(&self, index: usize, run: impl FnOnce()) {
        self.record(Event::Layer(index as u16), Work::default());
        run();
        self.record(Event::LayerEnd, Work::default());
    }

    fn brick(&self, brick: BrickId, work: Work, _: impl FnOnce()) {
        self.record(Event::Brick(brick), work);
    }

    fn brick_kernel(&self, brick: BrickId, routine: Routine, work: Work, _: impl FnOnce()) {
        self.record(Event::BrickKernel(brick, routine), work);
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
            self.record(Event::LastKernel, work);
        }
    }

    type Kernels<'a> = WalkedKernels<'a>;
}

/// Records the kernels of a brick.
#[derive(Debug)]
pub(crate) struct WalkedKernels<'a> {
    walk: &'a Walk,
    /// The brick, until its first kernel is recorded.
    first_of: Option<BrickId>,
}

impl KernelProbe for WalkedKernels<'_> {
    fn kernel(&mut self, routine: Routine, work: Work, _: impl FnOnce()) {
        let event = match self.first_of.take() {
            Some(brick) => Event::FirstKernel(brick, routine),
            None => Event::NextKernel(routine),
        };
        self.walk.record(event, work);
    }
}

/// The template of a pass at `position` and after it, from the walks at the position before and at `position`. `kernels`
/// are the profiler's numbers for the routines. `None` if the walks differ in more than work.
pub(crate) fn template(
    walks: [Walk; 2],
    position: usize,
    kernels: &[KernelId],
) -> Option<PassTemplate> {
    let [before, here] = walks.map(|walk| walk.0.into_inner());
    if before.len() != here.len() {
        return None;
    }
    let mut template = PassTemplate::builder();
    let kernel = |routine: Routine| kernels[routine.index()];
    // The open brick of several kernels.
    let mut open: Option<(BrickId, Vec<(KernelId, GrowingWork)>)> = None;
    for ((event_before, before), (event, here)) in before.into_iter().zip(here) {
        if discriminant(&event) != discriminant(&event_before) {
            return None;
        }
        let work = growing(before, here, position as u64);
        // One reading ends what was before and begins this, as `Timed` takes them.
        if !matches!(event, Event::Brick(_) | Event::LayerEnd) {
            template.lap();
        }
        match event {
            Event::Brick(brick) => template.brick(brick, work),
            Event::BrickKernel(brick, routine) => {
                template.brick_kernel(brick, kernel(routine), work);
            }
            Event::FirstKernel(brick, routine) => {
                open = Some((brick, vec![(kernel(routine), work)]));
            }
            Event::NextKernel(routine) => open.as_mut()?.1.push((kernel(routine), work)),
            Event::LastKernel => {
                let (brick, kernels) = open.take()?;
                template.brick_kernels(brick, work, &kernels);
            }
            Event::Layer(index) => template.begin_layer(index),
            Event::LayerEnd => template.end_layer(),
        }
    }
    Some(template.build())
}

/// Work that grows with the position, from its amounts at `position` and at the one before.
fn growing(before: Work, here: Work, position: u64) -> GrowingWork {
    let minus = |a: Work, b: Work, n: u64| Work {
        elements: a.elements.wrapping_sub(b.elements.wrapping_mul(n)),
        flops: a.flops.wrapping_sub(b.flops.wrapping_mul(n)),
        bytes: a.bytes.wrapping_sub(b.bytes.wrapping_mul(n)),
        data: match (a.data, b.data) {
            (Data::Weights(a), Data::Weights(b)) => {
                Data::Weights(a.wrapping_sub(b.wrapping_mul(n)))
            }
            (Data::Kv(a), Data::Kv(b)) => Data::Kv(a.wrapping_sub(b.wrapping_mul(n))),
            (data, _) => data,
        },
    };
    let per_token = minus(here, before, 1);
    GrowingWork { at_start: minus(here, per_token, position), per_token }
}
