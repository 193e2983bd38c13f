//! Any Vulkan, Metal or DX12 device, through wgpu: the plan of a pass as WGSL kernels.
//!
//! A pass is one compute pass of one command buffer; each kernel waits for those whose output it
//! reads.

mod adapter;
mod error;
mod kernels;
mod launch;
mod memory;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub use adapter::{WgpuDevice, devices};
pub use error::GpuError;

use adapter::Gpu;
use kernels::Kernels;
use launch::Prepared;
use memory::Memory;

use crate::config::Config;
use crate::executor::gpu::plan::{Plan, Slot};
use crate::forward::Outputs;
use crate::model::Model;

/// Tokens in one pass at most.
const BATCH: usize = 128;
/// Plans that are kept ready: as many as there are sizes of batches in most runs.
const PREPARED: usize = 16;

/// Runs passes of one model on a device of Vulkan, Metal or DX12.
#[derive(Debug)]
pub struct Wgpu {
    gpu: Gpu,
    config: Config,
    kernels: Kernels,
    memory: Memory,
    batch: usize,
    capacity: usize,
    /// By tokens and outputs, which is all that plans of one model differ by.
    prepared: HashMap<(usize, usize), Prepared>,
    open: Option<Open>,
    /// The last pass's logits, on their way to the host.
    logits: Logits,
}

/// Commands that have not been submitted.
#[derive(Debug)]
struct Open {
    // Before its encoder, so that it ends before that is finished.
    pass: wgpu::ComputePass<'static>,
    encoder: wgpu::CommandEncoder,
}

#[derive(Debug, Default)]
struct Logits {
    staging: Option<wgpu::Buffer>,
    /// Floats that are on their way.
    pending: usize,
    host: Vec<f32>,
}

impl Wgpu {
    /// Opens the first device of this machine and uploads the weights. Makes room for `context` tokens.
    ///
    /// # Errors
    ///
    /// If there is no device, it can't be opened, or it hasn't the memory.
    pub fn new(model: &Model, context: usize) -> Result<Self, GpuError> {
        let gpu = Gpu::open()?;
        let capacity = context.max(1);
        let batch = BATCH.min(capacity);
        let config = model.config.clone();
        let plan = Plan::new(&config, &model.weights, 1, Outputs::Last);
        let memory = Memory::new(&gpu, model, &plan, batch, capacity)?;
        Ok(Self {
            gpu,
            config,
            kernels: Kernels::default(),
            memory,
            batch,
            capacity,
            prepared: HashMap::new(),
            open: None,
            logits: Logits::default(),
        })
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.gpu.info.name
    }

    /// Tokens in one pass at most.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// One pass: launches the plan's kernels in order, and starts reading back the logits if there
    /// are any. Returns before they are done.
    pub(crate) fn run(
        &mut self,
        plan: &Plan<'_>,
        tokens: &[u32],
        position: usize,
    ) -> Result<(), GpuError> {
        self.gpu.check("an earlier pass")?;
        let key = self.prepare(plan)?;
        let queue = &self.gpu.queue;
        queue.write_buffer(
            &self.memory.params,
            0,
            bytemuck::cast_slice(&[position as u32, plan.n as u32]),
        );
        queue.write_buffer(&self.memory.tokens, 0, bytemuck::cast_slice(tokens));
        let prepared = &self.prepared[&key];
        for launches in &prepared.steps {
            let open = self.open.get_or_insert_with(|| Open::new(&self.gpu));
            for launch in launches {
                open.pass.set_pipeline(&launch.pipeline);
                open.pass.set_bind_group(0, &launch.bindings, &[]);
                let [x, y, z] = launch.grid;
                open.pass.dispatch_workgroups(x, y, z);
            }
        }
        let floats = plan.n_outputs * self.config.n_vocab;
        self.finish(floats)?;
        self.gpu.check("a pass")
    }

    /// Compiles what the plan needs, if that hasn't been done.
    fn prepare(&mut self, plan: &Plan<'_>) -> Result<(usize, usize), GpuError> {
        let key = (plan.n, plan.n_outputs);
        if plan.n_outputs > self.memory.outputs {
            self.memory.grow_logits(&self.gpu, &self.config, plan.n_outputs)?;
            // They are bound to the smaller ones.
            self.prepared.retain(|&(_, n_outputs), _| n_outputs == 0);
        }
        if !self.prepared.contains_key(&key) {
            if self.prepared.len() >= PREPARED {
                self.prepared.clear();
            }
            let Self { gpu, kernels, memory, config, capacity, .. } = self;
            let prepared = Prepared::new(gpu, kernels, memory, config, *capacity, plan)?;
            self.prepared.insert(key, prepared);
        }
        Ok(key)
    }

    /// Submits what is open, with a copy of so many logits to the host.
    fn finish(&mut self, logits: usize) -> Result<(), GpuError> {
        let mut open = self.open.take().unwrap_or_else(|| Open::new(&self.gpu));
        drop(open.pass);
        let bytes = 4 * logits as u64;
        if let Some(buffer) = self.memory.slot(Slot::Logits).filter(|_| logits > 0) {
            let staging = match self.logits.staging.take() {
                Some(staging) if staging.size() >= bytes => staging,
                _ => {
                    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                    self.gpu.buffer("logits on the host", bytes, usage)?
                }
            };
            open.encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, bytes);
            self.logits.staging = Some(staging);
            self.logits.pending = logits;
        }
        self.gpu.queue.submit([open.encoder.finish()]);
        Ok(())
    }

    /// Waits for the last pass; its logits, `(outputs, n_vocab)`.
    pub(crate) fn logits(&mut self) -> Result<&[f32], GpuError> {
        let floats = std::mem::take(&mut self.logits.pending);
        if let Some(staging) = self.logits.staging.as_ref().filter(|_| floats > 0) {
            self.logits.host.resize(floats, 0.0);
            fetch(&self.gpu, staging, &mut self.logits.host)?;
        }
        Ok(&self.logits.host)
    }

    /// Reads a slot's floats from `first` on.
    pub(crate) fn read(
        &mut self,
        slot: Slot,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), GpuError> {
        let bytes = 4 * out.len() as u64;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = self.gpu.buffer("a slot on the host", bytes, usage)?;
        let from = self.slot(slot, first, out.len())?;
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(from, 4 * first as u64, &staging, 0, bytes);
        self.gpu.queue.submit([encoder.finish()]);
        fetch(&self.gpu, &staging, out)
    }

    /// Overwrites a slot's floats from `first` on.
    pub(crate) fn write(
        &mut self,
        slot: Slot,
        first: usize,
        values: &[f32],
    ) -> Result<(), GpuError> {
        let to = self.slot(slot, first, values.len())?;
        self.gpu.queue.write_buffer(to, 4 * first as u64, bytemuck::cast_slice(values));
        self.gpu.queue.submit([]);
        self.gpu.check("writing to a slot")
    }

    /// The memory of a slot that has so many floats from `first` on.
    fn slot(&self, slot: Slot, first: usize, len: usize) -> Result<&wgpu::Buffer, GpuError> {
        let end = 4 * (first as u64 + len as u64);
        self.memory.slot(slot).filter(|buffer| buffer.size() >= end).ok_or_else(|| {
            self.gpu
                .fault("reaching for a slot", format!("{slot:?} has no {len} floats at {first}"))
        })
    }
}

impl Open {
    fn new(gpu: &Gpu) -> Self {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
        Self { pass, encoder }
    }
}

/// Waits for a buffer of the host's, and copies its floats.
fn fetch(gpu: &Gpu, staging: &wgpu::Buffer, out: &mut [f32]) -> Result<(), GpuError> {
    let slice = staging.slice(..4 * out.len() as u64);
    slice.map_async(wgpu::MapMode::Read, |_| ());
    gpu.wait(None)?;
    let bytes = slice.get_mapped_range().map_err(|e| gpu.fault("reading back", e.to_string()))?;
    out.copy_from_slice(bytemuck::cast_slice(&bytes));
    drop(bytes);
    staging.unmap();
    Ok(())
}
