//! The parts that executors on devices share: the [`Plan`] of a pass, and the session that runs it.

pub(crate) mod fused;
pub(crate) mod peak;
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
pub use crate::error::GpuError;
pub use fused::Fused;
pub use plan::{Op, Operand, Plan, Step};
pub use session::{GpuProbe, GpuSession};

/// The stream that passes run on.
pub(crate) const STREAM: StreamId = StreamId(0);

/// An executor on a device, made for one model and a number of positions. It owns the weights, the KV
/// cache and the activations.
pub trait Gpu: Device {
    /// Positions that fit.
    fn capacity(&self) -> usize;

    /// The most tokens in one pass.
    fn batch(&self) -> usize;

    /// The device's memory in bytes, if its driver reports it. The default is `None`.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    /// The plan that passes run by: the same, or with steps that one kernel does. The default is the same.
    fn fuse<'p>(&self, plan: Plan<'p>) -> Plan<'p> {
        plan
    }

    /// The kernel of a step, and how it is launched.
    fn kernel(&self, plan: &Plan<'_>, step: usize) -> (String, DeviceLaunch);

    /// Registers the sources of its kernels with a profiler, if there are any.
    fn register_sources(&self, _: &BrickProfiler) {}

    /// Adds the copies between host and device since the last call to the profiler's graph, if they
    /// were recorded.
    fn record_transfers(&mut self, _: &BrickProfiler) {}

    /// Prepares a pass: copies the tokens and the position to where kernels read them.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn start(&mut self, plan: &Plan<'_>, tokens: &[u32], position: usize) -> Result<(), GpuError>;

    /// Issues the kernel of a step, after the steps before it.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn launch(&mut self, plan: &Plan<'_>, step: usize) -> Result<(), GpuError>;

    /// Called after all steps: submits them, and the copy of the logits that
    /// [`logits`](Self::logits) returns. Doesn't wait.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn finish(&mut self, plan: &Plan<'_>) -> Result<(), GpuError>;

    /// Runs a pass from start to finish; reports each step to `timed` before it is launched. An executor that
    /// records and replays passes overrides this.
    ///
    /// # Errors
    ///
    /// If the device fails.
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

    /// Waits for the last finished pass and writes its logits, `(outputs, n_vocab)`, to `out`. If the plan
    /// has no outputs, it only waits.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn logits(&mut self, out: &mut Vec<f32>) -> Result<(), GpuError>;

    /// Runs what was launched so far, waits for it, and reads floats of an operand from index `first` on.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read(&mut self, operand: Operand, first: usize, out: &mut [f32]) -> Result<(), GpuError>;

    /// Overwrites floats of an operand from index `first` on, before what is launched next.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn write(&mut self, operand: Operand, first: usize, values: &[f32]) -> Result<(), GpuError>;
}

/// Reports the steps of one pass to a [`DeviceTimer`].
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
    /// The timer that it reports to.
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

    /// How often the next pass should wait for the device.
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

    /// Reports that a step is launched next.
    ///
    /// # Errors
    ///
    /// As [`DeviceTimer::brick`].
    pub fn step(&mut self, device: &mut impl Device, index: usize) -> Result<(), DeviceError> {
        let step = &self.plan.steps[index];
        if step.begins_brick {
            let work = self.plan.brick_work(index, self.config, self.position);
            match step.brick_name {
                None => self.timer.brick(device, STREAM, step.layer, step.brick, work)?,
                Some(name) => self.timer.brick_named(device, STREAM, step.layer, name, work)?,
            }
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

    /// Reports that the device replays this plan. `recorded` is what [`DeviceTimer::issued`] returned when the plan was
    /// recorded, at every grain.
    ///
    /// # Errors
    ///
    /// As [`DeviceTimer::replayed`].
    pub fn replayed(
        &mut self,
        device: &mut impl Device,
        recorded: &Issued,
    ) -> Result<(), DeviceError> {
        // In the order of the calls to `step`.
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
