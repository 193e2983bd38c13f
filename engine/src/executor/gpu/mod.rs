//! What executors on devices share: the [`Plan`] of a pass, and the session that runs it.

mod error;
pub(crate) mod plan;
#[cfg(test)]
mod reference;
mod session;
mod tapped;

use brickscope::{
    BrickProfiler, Device, DeviceError, DeviceLaunch, DeviceTimer, Issued, KernelId, Phase,
    StreamId, SyncMode, Work,
};

use crate::config::Config;
pub use error::GpuError;
pub use plan::{Op, Plan, Slot, Step};
pub use session::{GpuProbe, GpuSession};

/// The stream that passes run on.
pub(crate) const STREAM: StreamId = StreamId(0);

/// An executor on a device, made for one model and a number of positions. It holds the weights, the KV
/// cache and the activations.
pub trait Gpu: Device {
    /// Positions that there is room for.
    fn capacity(&self) -> usize;

    /// Tokens in one pass at most.
    fn batch(&self) -> usize;

    /// The kernel that runs step `step`, and how it is launched.
    fn kernel(&self, plan: &Plan<'_>, step: usize) -> (String, DeviceLaunch);

    /// Makes the sources of its kernels known to a profiler, if they have any.
    fn register_sources(&self, _: &BrickProfiler) {}

    /// Adds the copies between host and device since the last call to the graph of a profiler, if they
    /// were noted.
    fn record_transfers(&mut self, _: &BrickProfiler) {}

    /// Makes ready for a pass: the tokens and the position are put where kernels read them.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn start(&mut self, plan: &Plan<'_>, tokens: &[u32], position: usize) -> Result<(), GpuError>;

    /// Puts the kernel of a step into the stream, after the steps before it.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn launch(&mut self, plan: &Plan<'_>, step: usize) -> Result<(), GpuError>;

    /// All steps were launched: sees to it that they run, and that the logits are copied to where
    /// [`logits`](Self::logits) finds them. Waits for nothing.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn finish(&mut self, plan: &Plan<'_>) -> Result<(), GpuError>;

    /// A pass, from start to finish; `timed` hears of each step before it is launched. An executor that
    /// records passes and replays them has its own way.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn run(
        &mut self,
        plan: &Plan<'_>,
        tokens: &[u32],
        position: usize,
        timed: Option<&mut Timed<'_, '_>>,
    ) -> Result<(), GpuError>
    where
        Self: Sized,
    {
        self.start(plan, tokens, position)?;
        match timed {
            None => (0..plan.steps.len()).try_for_each(|step| self.launch(plan, step))?,
            Some(timed) => {
                timed.begin(self)?;
                for step in 0..plan.steps.len() {
                    timed.step(self, step)?;
                    self.launch(plan, step)?;
                }
                timed.end(self)?;
            }
        }
        self.finish(plan)
    }

    /// Waits for the pass that was finished last; puts its logits, `(outputs, n_vocab)`, into `out`. Of a
    /// plan without outputs there are none, and it only waits.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn logits(&mut self, out: &mut Vec<f32>) -> Result<(), GpuError>;

    /// Runs what was launched so far, waits for it, and reads numbers of a slot, from number `first` on.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn read(&mut self, slot: Slot, first: usize, out: &mut [f32]) -> Result<(), GpuError>;

    /// Overwrites numbers of a slot, likewise, before what is launched next.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn write(&mut self, slot: Slot, first: usize, values: &[f32]) -> Result<(), GpuError>;
}

/// Tells a [`DeviceTimer`] of the steps of one pass.
#[derive(Debug)]
pub struct Timed<'t, 'p> {
    timer: &'t mut DeviceTimer<'p>,
    plan: &'t Plan<'t>,
    config: &'t Config,
    /// By step.
    kernels: &'t [KernelId],
    phase: Phase,
    position: usize,
}

impl<'p> Timed<'_, 'p> {
    /// The books that it writes to.
    pub fn timer(&mut self) -> &mut DeviceTimer<'p> {
        self.timer
    }

    /// The profiler's numbers for the kernels, by step.
    #[must_use]
    pub fn kernels(&self) -> &[KernelId] {
        self.kernels
    }

    /// Which part of generation the pass belongs to.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// When the next pass is to be waited for.
    #[must_use]
    pub fn wanted_mode(&self) -> SyncMode {
        self.timer.wanted_mode()
    }

    /// Begins the pass.
    ///
    /// # Errors
    ///
    /// As [`DeviceTimer::begin_pass`].
    pub fn begin(&mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        let (n, position) = (self.plan.n as u64, self.position as u64);
        self.timer.begin_pass(device, self.phase, n, position)
    }

    /// Says that a step is launched next.
    ///
    /// # Errors
    ///
    /// As [`DeviceTimer::brick`].
    pub fn step(&mut self, device: &mut impl Device, index: usize) -> Result<(), DeviceError> {
        let step = &self.plan.steps[index];
        if step.begins_brick {
            let work = self.plan.brick_work(index, self.config, self.position);
            self.timer.brick(device, STREAM, step.layer, step.brick, work)?;
        }
        let work = step.work(self.config, self.position);
        self.timer.kernel(device, STREAM, self.kernels[index], work)
    }

    /// Ends the pass.
    ///
    /// # Errors
    ///
    /// As [`DeviceTimer::end_pass`].
    pub fn end(&mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        self.timer.end_pass(device)
    }

    /// Says that the device runs this plan as it was recorded: `recorded` is what
    /// [`DeviceTimer::issued`] gave then, at every grain.
    ///
    /// # Errors
    ///
    /// As [`DeviceTimer::replayed`].
    pub fn replayed(
        &mut self,
        device: &mut impl Device,
        recorded: &Issued,
    ) -> Result<(), DeviceError> {
        // In the order of the calls of `step`.
        let mut works: Vec<Work> = Vec::new();
        for (index, step) in self.plan.steps.iter().enumerate() {
            if step.begins_brick {
                works.push(self.plan.brick_work(index, self.config, self.position));
            }
            works.push(step.work(self.config, self.position));
        }
        let (n, position) = (self.plan.n as u64, self.position as u64);
        let mut work = |index: usize, then| works.get(index).copied().unwrap_or(then);
        self.timer.replayed(device, recorded, n, position, &mut work)
    }
}
