//! Any Vulkan, Metal or DX12 device, through wgpu: the plan of a pass as WGSL kernels.
//!
//! A pass is one compute pass of one command buffer; wgpu makes each kernel wait for those whose
//! output it reads. Kernels that don't depend on each other may overlap, so a brick lasts from the end of
//! the one before it to its own end.

mod adapter;
mod ceilings;
mod codes;
mod filler;
mod kernels;
mod launch;
mod marks;
mod memory;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use brickscope::{
    Bracket, Clock, Device, DeviceError, DeviceInfo, DeviceLaunch, LaunchKind, StreamId, Ticks,
};

use adapter::{OpenDevice, Stamps};
pub use ceilings::{measure_ceilings, measure_memory};
use filler::Filler;
use kernels::Kernels;
use launch::Prepared;
use marks::Marks;
use memory::Memory;

use crate::config::Config;
use crate::executor::gpu::{Gpu, GpuError, Operand, Plan};
use crate::forward::Outputs;
use crate::model::Model;

/// The most tokens in one pass.
const BATCH: usize = 128;
/// Plans that are kept prepared: enough for the batch sizes of most runs.
const PREPARED: usize = 16;

/// Runs passes of one model on a device of Vulkan, Metal or DX12.
///
/// All work goes to one queue. Weights of a type that no kernel reads are converted on upload, without loss, to a
/// larger one; a kernel's shape says so, as in `2048×768 q6_k as i8`.
#[derive(Debug)]
pub struct Wgpu {
    gpu: OpenDevice,
    config: Config,
    kernels: Kernels,
    memory: Memory,
    batch: usize,
    capacity: usize,
    /// By tokens and outputs: plans of one model differ in nothing else.
    prepared: HashMap<(usize, usize), Arc<Prepared>>,
    /// The kernels of the pass that is being launched.
    running: Option<Arc<Prepared>>,
    commands: Option<Commands>,
    logits: Logits,
    marks: Marks,
    /// Compiled on first use.
    filler: Option<Filler>,
    /// The smallest step of the device's clock, if it could be measured.
    resolution_ns: Option<f64>,
}

/// Commands that have not been submitted.
#[derive(Debug)]
struct Commands {
    /// `None` only while it is being replaced.
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: wgpu::CommandEncoder,
}

/// The logits on their way to the host.
#[derive(Debug, Default)]
struct Logits {
    staging: Option<wgpu::Buffer>,
    /// Floats that the next submission computes.
    ready: usize,
    /// Floats that were submitted and not fetched yet.
    sent: usize,
}

impl Wgpu {
    /// Opens the first device of this machine, uploads the weights, and makes room for `context` tokens.
    ///
    /// # Errors
    ///
    /// If there is no device, it can't be opened, it hasn't the memory, or the model has what only the CPU computes
    /// with.
    pub fn new(model: &Model, context: usize) -> Result<Self, GpuError> {
        Plan::check(&model.weights, "wgpu")?;
        let gpu = OpenDevice::open()?;
        let capacity = context.max(1);
        let config = model.config.clone();
        let batch = memory::batch(&config, BATCH.min(capacity), capacity, gpu.max_binding());
        let plan = Plan::new(&config, &model.weights, 1, Outputs::Last);
        let memory = Memory::new(&gpu, model, &plan, batch, capacity)?;
        let step = match gpu.stamps {
            Stamps::Kernels | Stamps::Passes => marks::step(&gpu)?,
            Stamps::None(_) => None,
        };
        Ok(Self {
            resolution_ns: step.map(|ticks| ticks as f64 * gpu.ns_per_tick()),
            gpu,
            config,
            kernels: Kernels::default(),
            memory,
            batch,
            capacity,
            prepared: HashMap::new(),
            running: None,
            commands: None,
            logits: Logits::default(),
            marks: Marks::default(),
            filler: None,
        })
    }

    /// The plan's kernels, compiled on first use.
    fn prepare(&mut self, plan: &Plan<'_>) -> Result<Arc<Prepared>, GpuError> {
        let key = (plan.n, plan.n_outputs);
        if plan.n_outputs > self.memory.outputs {
            self.memory.grow_logits(&self.gpu, &self.config, plan.n_outputs)?;
            // These are bound to the smaller buffer.
            self.prepared.retain(|&(_, n_outputs), _| n_outputs == 0);
        }
        if let Some(prepared) = self.prepared.get(&key) {
            return Ok(Arc::clone(prepared));
        }
        if self.prepared.len() >= PREPARED {
            self.prepared.clear();
        }
        let Self { gpu, kernels, memory, config, capacity, .. } = self;
        let prepared = Arc::new(Prepared::new(gpu, kernels, memory, config, *capacity, plan)?);
        self.prepared.insert(key, Arc::clone(&prepared));
        Ok(prepared)
    }

    /// Submits what was launched. With `send`, also copies new logits and timestamps to the host.
    fn submit(&mut self, send: bool) -> Result<(), GpuError> {
        let mut encoder = match self.commands.take() {
            Some(commands) => {
                drop(commands.pass);
                commands.encoder
            }
            None if send => self.gpu.device.create_command_encoder(&Default::default()),
            None => return Ok(()),
        };
        if send {
            self.send_logits(&mut encoder)?;
            self.marks.send(&self.gpu, &mut encoder)?;
        }
        let submission = self.gpu.queue.submit([encoder.finish()]);
        if send {
            self.marks.sent(&submission);
        }
        self.gpu.check("submit work")
    }

    fn send_logits(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), GpuError> {
        let floats = std::mem::take(&mut self.logits.ready);
        let bytes = 4 * floats as u64;
        let Some(buffer) = self.memory.operand(Operand::Logits).filter(|_| floats > 0) else {
            return Ok(());
        };
        let staging = match self.logits.staging.take() {
            Some(staging) if staging.size() >= bytes => staging,
            _ => {
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                self.gpu.buffer("the logits on the host", bytes, usage)?
            }
        };
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, bytes);
        self.logits.staging = Some(staging);
        self.logits.sent = floats;
        Ok(())
    }

    /// The buffer of an operand, which must have `len` floats from `first` on.
    fn operand(
        &self,
        operand: Operand,
        first: usize,
        len: usize,
    ) -> Result<&wgpu::Buffer, GpuError> {
        let end = (first as u64).saturating_add(len as u64).saturating_mul(4);
        self.memory.operand(operand).filter(|buffer| buffer.size() >= end).ok_or_else(|| {
            self.gpu.fault(
                "find an operand",
                format!("{operand:?} has no {len} floats from {first} on"),
            )
        })
    }
}

impl Gpu for Wgpu {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn kernel(&self, plan: &Plan<'_>, step: usize) -> (String, DeviceLaunch) {
        launch::describe(&self.memory, &self.config, self.capacity, &plan.steps[step])
    }

    fn start(&mut self, plan: &Plan<'_>, tokens: &[u32], position: usize) -> Result<(), GpuError> {
        self.gpu.check("go on")?;
        self.running = Some(self.prepare(plan)?);
        let params = [position as u32, plan.n as u32];
        let queue = &self.gpu.queue;
        queue.write_buffer(&self.memory.params, 0, bytemuck::cast_slice(&params));
        queue.write_buffer(&self.memory.tokens, 0, bytemuck::cast_slice(tokens));
        Ok(())
    }

    fn launch(&mut self, plan: &Plan<'_>, step: usize) -> Result<(), GpuError> {
        let launches = self.running.as_ref().and_then(|prepared| prepared.steps.get(step));
        let commands = self.commands.get_or_insert_with(|| Commands::new(&self.gpu));
        let Some((launches, pass)) = launches.zip(commands.pass.as_mut()) else {
            return Err(self.gpu.fault("launch a kernel", "its pass was not started".to_owned()));
        };
        launches.iter().for_each(|launch| launch.record(pass));
        if step + 1 == plan.steps.len() {
            self.logits.ready = plan.n_outputs * self.config.n_vocab;
        }
        Ok(())
    }

    fn finish(&mut self, _: &Plan<'_>) -> Result<(), GpuError> {
        // A timer may have submitted it already.
        if self.commands.is_some() || self.logits.ready > 0 {
            self.submit(true)?;
        }
        Ok(())
    }

    fn logits(&mut self, out: &mut Vec<f32>) -> Result<(), GpuError> {
        let floats = std::mem::take(&mut self.logits.sent);
        match &self.logits.staging {
            Some(staging) if floats > 0 => {
                out.resize(floats, 0.0);
                fetch(&self.gpu, staging, out)
            }
            _ => self.gpu.wait(None),
        }
    }

    fn read(&mut self, operand: Operand, first: usize, out: &mut [f32]) -> Result<(), GpuError> {
        self.submit(false)?;
        let bytes = 4 * out.len() as u64;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = self.gpu.buffer("an operand on the host", bytes, usage)?;
        let from = self.operand(operand, first, out.len())?;
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(from, 4 * first as u64, &staging, 0, bytes);
        self.gpu.queue.submit([encoder.finish()]);
        fetch(&self.gpu, &staging, out)
    }

    fn write(&mut self, operand: Operand, first: usize, values: &[f32]) -> Result<(), GpuError> {
        // Earlier launches must read the old values.
        self.submit(false)?;
        let to = self.operand(operand, first, values.len())?;
        self.gpu.queue.write_buffer(to, 4 * first as u64, bytemuck::cast_slice(values));
        self.gpu.check("write to an operand")
    }
}

impl Device for Wgpu {
    fn describe(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.gpu.info.name.clone(),
            api: self.gpu.info.backend.to_str().to_owned(),
            driver: adapter::driver(&self.gpu.info),
            ticks: Ticks {
                ns_per_tick: self.gpu.ns_per_tick(),
                resolution_ns: self.resolution_ns,
                // wgpu doesn't say. If a counter wraps at fewer, one pass has marks out of order, which is detected.
                valid_bits: 64,
            },
            streams: vec!["queue".to_owned()],
            sets: marks::SETS,
            marks: marks::MARKS,
        }
    }

    fn launches(&self) -> LaunchKind {
        LaunchKind::Recorded
    }

    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError> {
        self.marks.begin(set);
        Ok(())
    }

    fn mark(&mut self, _: StreamId, set: u32, mark: u32) -> Result<(), DeviceError> {
        let (queries, index) = self.marks.next(&self.gpu, set, mark);
        let commands = self.commands.get_or_insert_with(|| Commands::new(&self.gpu));
        match self.gpu.stamps {
            Stamps::Kernels => {
                if let Some(pass) = &mut commands.pass {
                    pass.write_timestamp(queries, index);
                }
            }
            Stamps::Passes => {
                // An encoder has one pass at a time.
                commands.pass = None;
                commands.pass = Some(marks::stamped_pass(&mut commands.encoder, queries, index));
            }
            Stamps::None(why) => return Err(untimed(why)),
        }
        Ok(())
    }

    fn fill(&mut self, _: StreamId) -> Result<bool, DeviceError> {
        if self.filler.is_none() {
            self.filler = Some(Filler::new(&self.gpu)?);
        }
        let commands = self.commands.get_or_insert_with(|| Commands::new(&self.gpu));
        if let Some((filler, pass)) = self.filler.as_ref().zip(commands.pass.as_mut()) {
            filler.record(pass);
        }
        Ok(true)
    }

    fn wait(&mut self, _: StreamId) -> Result<(), DeviceError> {
        self.submit(false)?;
        Ok(self.gpu.wait(None)?)
    }

    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError> {
        if self.commands.is_some() || !self.marks.are_sent(set, n_marks) {
            self.submit(true)?;
        }
        Ok(self.marks.take(&self.gpu, set, n_marks, wait, ticks)?)
    }

    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError> {
        if let Stamps::None(why) = self.gpu.stamps {
            return Err(untimed(why));
        }
        self.submit(false)?;
        Ok(marks::bracket(&self.gpu, host)?)
    }
}

fn untimed(why: &str) -> DeviceError {
    DeviceError::Failed { what: "time what runs on it".to_owned(), reason: why.to_owned() }
}

impl From<GpuError> for DeviceError {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Device(error) => error,
            other => Self::Failed { what: "use the device".to_owned(), reason: other.to_string() },
        }
    }
}

impl Commands {
    fn new(gpu: &OpenDevice) -> Self {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
        Self { pass: Some(pass), encoder }
    }
}

/// Waits for a submitted staging buffer, and copies its floats.
fn fetch(gpu: &OpenDevice, staging: &wgpu::Buffer, out: &mut [f32]) -> Result<(), GpuError> {
    let slice = staging.slice(..4 * out.len() as u64);
    slice.map_async(wgpu::MapMode::Read, |_| ());
    gpu.wait(None)?;
    let bytes = slice.get_mapped_range().map_err(|e| gpu.fault("read back", e.to_string()))?;
    out.copy_from_slice(bytemuck::cast_slice(&bytes));
    drop(bytes);
    staging.unmap();
    Ok(())
}
