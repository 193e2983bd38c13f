//! NVIDIA devices, through CUDA's driver, which is loaded at run time.
//!
//! [`Cuda`] runs the plan of a pass. Weights are copied once. Kernels read the position from the device,
//! so a decode pass is captured as a graph once and replayed for each token (`graph.rs`). Kernels note
//! when they begin, or events do (`clock.rs`); CUPTI's timings are an optional
//! cross-check (`cupti/`). [`CudaExecutor`] is a session with a profiler, under the names of the
//! predecessor's engine.
//!
//! Tests check what they can without a device: the order of calls, against a driver that allows no
//! illegal one (`engine/fake-cuda/`), and the kernels, by running their sources on the CPU.
//! `brickscope selftest --backend cuda` checks the rest on a device; `docs/evidence/gpu.md` says where it did.

mod bricks;
mod ceilings;
mod clock;
mod cupti;
mod driver;
mod error;
mod graph;
pub(crate) mod kernels;
mod launch;
mod measure;
mod memory;
mod ptx;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use brickscope::{
    BrickCategory, BrickProfiler, DeviceError, DeviceLaunch, PtxRegistry, TransferDirection,
};

pub use bricks::{CudaBrickTimer, CudaExecutor};
pub use ceilings::{measure_ceilings, measure_memory};
pub use clock::Stamps;
pub use cupti::{
    Agreement, Apart, Cupti, CuptiError, CuptiRecords, KernelRecord, Pair, Recorded, Stamped,
    StampedPass,
};
pub use error::CudaError;
pub use graph::GraphCost;
pub use measure::{EventCost, KernelResources};

use crate::executor::gpu::fused::{ATTENTION, GATE_UP};
use crate::executor::gpu::{Gpu, GpuError, Operand, Plan, Timed};
use crate::model::Model;
use clock::Marks;
use driver::{Arg, Buffer, Context, Download, Event, Function, Module, Stream};
use graph::Graphs;
use kernels::{Params, of_passes, resources};
use launch::{Places, Ready};
use memory::{DeviceWeights, Operands, Transfer, lasted};

/// The most tokens in one pass.
const BATCH: usize = 128;

/// Plans that are kept prepared: of a batch, of the rest after batches, of one token, and some that vary.
const MAX_PREPARED: usize = 16;

/// Options of a CUDA executor.
#[derive(Debug, Clone)]
pub struct CudaOptions {
    /// The ordinal of the device.
    pub device: usize,
    /// Whether decode passes are captured as graphs and replayed.
    pub graphs: bool,
    /// One in this many timed decode passes is replayed with timestamps in it; the others run plain. Half as many are once
    /// [`Cuda::graph_cost`], or the calibration of a timer, found that a pass takes less than 500 µs. At least 1, which
    /// times all of them.
    pub sample_every: u32,
    /// How the device records times.
    pub stamps: Stamps,
    /// Whether decode passes run several steps in one kernel where they can. Then RmsNorm, RoPE and the parts of attention
    /// are no bricks of their own: they are in QkvProjection, FlashAttention, GateUpProjection and LmHead.
    pub fused: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self { device: 0, graphs: true, sample_every: 16, stamps: Stamps::default(), fused: true }
    }
}

/// Runs a model on an NVIDIA device.
#[derive(Debug)]
pub struct Cuda<'m> {
    // Dropped in this order: graphs use what is below them.
    graphs: Graphs,
    /// By tokens, outputs and steps.
    prepared: HashMap<(usize, usize, usize), Arc<Vec<Prepared>>>,
    kernels: HashMap<&'static str, Kernel>,
    download: Download,
    marks: Marks,
    operands: Operands,
    weights: DeviceWeights,
    /// [`Params`].
    params: Buffer,
    tokens: Buffer,
    /// Copies since the last [`record_transfers`](Gpu::record_transfers).
    transfers: Vec<Transfer>,
    stream: Stream,
    context: Arc<Context>,
    model: &'m Model,
    options: CudaOptions,
    capacity: usize,
    batch: usize,
    /// Logits of the last pass.
    n_logits: usize,
    /// Whether copies are recorded: only if a profiler keeps a graph to add them to.
    notes_copies: bool,
    /// Events around the copy of the inputs, and its bytes until it is recorded.
    inputs: (Event, Event, Option<u64>),
    /// Why the device is lost, if it is.
    lost: Option<String>,
}

/// A compiled kernel, and what is known of it.
#[derive(Debug)]
struct Kernel {
    function: Arc<Function>,
    /// The hash of its module's PTX.
    hash: u64,
    registers: u32,
    /// `None` on a device for which ptxas wasn't run.
    spill_bytes: Option<u32>,
}

/// A step, ready to be launched.
#[derive(Debug)]
struct Prepared {
    function: Arc<Function>,
    ready: Ready,
}

/// The names of all devices.
///
/// # Errors
///
/// If there is no driver, it is too old, or it offers no device; says which in one line.
pub fn devices() -> Result<Vec<String>, CudaError> {
    let n = driver::probe()?;
    if n == 0 {
        return Err(CudaError::NoDevice { ordinal: 0, devices: 0 });
    }
    (0..n).map(|ordinal| Ok(Context::new(ordinal)?.name.clone())).collect()
}

impl<'m> Cuda<'m> {
    /// An executor with room for `capacity` positions: compiles the kernels for the device, and copies
    /// the weights there.
    ///
    /// # Errors
    ///
    /// If there is no driver or device, or too little memory, or if the model has what only the CPU computes with.
    pub fn new(model: &'m Model, capacity: usize, options: CudaOptions) -> Result<Self, CudaError> {
        let c = &model.config;
        Plan::check(&model.weights, "cuda")
            .map_err(|cause| CudaError::Pass { what: cause.to_string() })?;
        let context = Context::new(options.device)?;
        let capacity = capacity.max(1);
        let batch = BATCH.min(capacity);
        check_memory(&context, model, batch, capacity)?;

        let stream = Stream::new(&context)?;
        let mut kernels = HashMap::new();
        for source in of_passes() {
            let module = Module::load(&context, source.path, source.ptx)?;
            let hash = PtxRegistry::hash_ptx(source.ptx);
            for name in source.kernels() {
                let function = Arc::new(module.function(name)?);
                let (major, minor) = context.capability;
                // ptxas tells spills apart from other local memory, the driver doesn't.
                let spill_bytes = resources(name, major, minor).map(|known| known.spill_bytes);
                let registers = function.registers;
                kernels.insert(name, Kernel { function, hash, registers, spill_bytes });
            }
        }
        let weights = DeviceWeights::upload(&context, &stream, model, capacity)?;
        let transfers = weights.uploads.clone();
        let operands = Operands::new(&context, &stream, c, batch, capacity)?;
        let params = Buffer::new(&context, size_of::<Params>())?;
        let tokens = Buffer::new(&context, batch * size_of::<u32>())?;
        let download = Download::new(&context, c.n_vocab)?;
        let inputs = (Event::new(&context)?, Event::new(&context)?, None);
        // At most a brick and a kernel for each step, and an end.
        let plan = Plan::new(c, &model.weights, 1, crate::forward::Outputs::Last);
        let n_marks = 2 * plan.steps.len() + 2;
        let marks = Marks::new(&context, &stream, n_marks as u32, options.stamps, &kernels)?;
        // The weights have arrived, and buffers are zero.
        stream.synchronize()?;
        Ok(Self {
            graphs: Graphs::default(),
            prepared: HashMap::new(),
            kernels,
            download,
            marks,
            operands,
            weights,
            params,
            tokens,
            transfers,
            stream,
            context,
            model,
            options,
            capacity,
            batch,
            n_logits: 0,
            notes_copies: true,
            inputs,
            lost: None,
        })
    }

    /// The device's name, by its driver.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Its compute capability, and the version of CUDA that the driver implements.
    #[must_use]
    pub fn versions(&self) -> ((u32, u32), u32) {
        (self.context.capability, self.context.driver_version)
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &CudaOptions {
        &self.options
    }

    /// A plan's steps ready to launch, prepared on first use.
    fn prepared(&mut self, plan: &Plan<'_>) -> Result<Arc<Vec<Prepared>>, CudaError> {
        let key = (plan.n, plan.n_outputs, plan.steps.len());
        if let Some(prepared) = self.prepared.get(&key) {
            return Ok(Arc::clone(prepared));
        }
        if self.operands.make_room(&self.context, &self.model.config, plan.n_outputs)? {
            // These contain the old address of the logits.
            self.prepared.clear();
            self.graphs.clear();
            self.download =
                Download::new(&self.context, plan.n_outputs * self.model.config.n_vocab)?;
        }
        let places = self.places();
        let steps = plan.steps.iter().map(|step| {
            let ready = places.ready(step)?;
            let kernel = self.known(&ready.kernel)?;
            Ok(Prepared { function: Arc::clone(&kernel.function), ready })
        });
        let prepared = Arc::new(steps.collect::<Result<Vec<_>, CudaError>>()?);
        if self.prepared.len() >= MAX_PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(key, Arc::clone(&prepared));
        Ok(prepared)
    }

    fn places(&self) -> Places<'_> {
        Places {
            config: &self.model.config,
            weights: &self.weights,
            operands: &self.operands,
            params: self.params.address(),
            tokens: self.tokens.address(),
            capacity: self.capacity,
            multiprocessors: self.context.multiprocessors,
        }
    }

    fn known(&self, name: &str) -> Result<&Kernel, CudaError> {
        let missing = || CudaError::NoKernel { kernel: name.to_owned() };
        self.kernels.get(name).ok_or_else(missing)
    }

    /// Copies the tokens and the position to where kernels read them.
    fn upload_inputs(&mut self, tokens: &[u32], position: usize) -> Result<(), CudaError> {
        let int = |n: usize| {
            let what = || format!("{n} positions or tokens");
            u32::try_from(n).map_err(|_| CudaError::Pass { what: what() })
        };
        let params = Params { position: int(position)?, n: int(tokens.len())? };
        let params = [params.position, params.n].map(u32::to_le_bytes).concat();
        let tokens: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        // A mark of before is of before the copies.
        self.marks.flush(&self.stream)?;
        if self.notes_copies {
            self.inputs.0.record(&self.stream)?;
        }
        self.stream.upload(&self.params, 0, &params)?;
        self.stream.upload(&self.tokens, 0, &tokens)?;
        if self.notes_copies {
            self.inputs.1.record(&self.stream)?;
            self.inputs.2 = Some((params.len() + tokens.len()) as u64);
        }
        Ok(())
    }

    fn check(&self, plan: &Plan<'_>, tokens: &[u32], position: usize) -> Result<(), CudaError> {
        let n = tokens.len();
        if plan.n != n || n == 0 || n > self.batch || position + n > self.capacity {
            let what = format!(
                "{n} tokens at position {position} by a plan for {}, where batches are of {} and there is \
                 room for {}",
                plan.n, self.batch, self.capacity
            );
            return Err(CudaError::Pass { what });
        }
        Ok(())
    }

    /// Runs calls on the device, unless an earlier error has lost it.
    fn on_device<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        if let Some(cause) = &self.lost {
            return Err(CudaError::Lost { cause: cause.clone() });
        }
        let result = self.context.bind().and_then(|()| run(self));
        result.map_err(|error| {
            if error.is_lost() {
                let cause = error.to_string();
                self.lost = Some(cause.clone());
                return CudaError::Lost { cause };
            }
            error
        })
    }

    fn launch_step(&mut self, step: &Prepared) -> Result<(), CudaError> {
        let Ready { launch, args, .. } = &step.ready;
        let mut own = [Arg::U32(0); driver::MAX_ARGS];
        let Some(own) = own.get_mut(..args.len()) else {
            let what = format!("{} arguments of {}", args.len(), step.ready.kernel);
            return Err(CudaError::Pass { what });
        };
        own.copy_from_slice(args);
        if let Some(began) = own.last_mut() {
            *began = Arg::Address(self.marks.take_pending());
        }
        self.stream.launch(&step.function, *launch, own)
    }

    /// The byte offset of float `first` of an operand.
    fn byte_offset(first: usize) -> Result<usize, CudaError> {
        let what = || format!("float {first} of an operand");
        first.checked_mul(size_of::<f32>()).ok_or_else(|| CudaError::Pass { what: what() })
    }
}

/// Checks that what an executor allocates fits the device's free memory, before it allocates any; all but some numbers for
/// each head and each mark.
fn check_memory(
    context: &Context,
    model: &Model,
    batch: usize,
    capacity: usize,
) -> Result<(), CudaError> {
    let c = &model.config;
    // The least that they take: some formats are converted to larger ones.
    let weights: u128 =
        Plan::matrices(&model.weights).iter().map(|tensor| u128::from(tensor.n_bytes())).sum();
    let of_token = [3 * c.dim, 2 * c.q_dim(), 2 * c.ffn_dim].map(|width| width as u128);
    let scores = c.n_heads as u128 * capacity as u128;
    let activations = batch as u128 * (of_token.iter().sum::<u128>() + scores);
    let of_position = 2 * c.n_layers as u128 * c.kv_dim() as u128 + c.n_rot as u128;
    let floats = activations + capacity as u128 * of_position + c.n_vocab as u128;
    let asked = u64::try_from(weights + 4 * floats).unwrap_or(u64::MAX);
    let (free, _) = context.memory()?;
    if asked > free {
        return Err(CudaError::Memory { asked, free });
    }
    Ok(())
}

impl Gpu for Cuda<'_> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn memory_bytes(&self) -> Option<u64> {
        let memory = self.context.bind().and_then(|()| self.context.memory());
        memory.ok().map(|(_, all)| all)
    }

    fn fuse<'p>(&self, plan: Plan<'p>) -> Plan<'p> {
        if self.options.fused { plan.fused(&self.model.config, &self.places()) } else { plan }
    }

    fn kernel(&self, plan: &Plan<'_>, step: usize) -> (String, DeviceLaunch) {
        let described = self.places().ready(&plan.steps[step]).and_then(|ready| {
            let kernel = self.known(&ready.kernel)?;
            let triple = |[x, y, z]: [u32; 3]| (x, y, z);
            let launch = DeviceLaunch {
                shape: ready.shape,
                grid: triple(ready.launch.grid),
                block: triple(ready.launch.block),
                shared_mem: ready.launch.shared_bytes + kernel.function.static_shared,
                ptx_hash: kernel.hash,
                registers: Some(kernel.registers),
                spill_bytes: kernel.spill_bytes,
            };
            Ok((ready.kernel, launch))
        });
        // The launch will say why.
        described.unwrap_or_else(|_| ("unknown".to_owned(), DeviceLaunch::default()))
    }

    fn register_sources(&self, profiler: &BrickProfiler) {
        for (name, category) in
            [(ATTENTION, BrickCategory::Attention), (GATE_UP, BrickCategory::Ffn)]
        {
            // So that reports know the category.
            let _ = profiler.named_brick(name, category);
        }
        for source in of_passes() {
            for kernel in source.kernels() {
                profiler.graph().register_ptx(kernel, source.ptx, Some(Path::new(source.path)));
            }
        }
    }

    // In the order of the copies: the weights first.
    fn record_transfers(&mut self, profiler: &BrickProfiler) {
        // Two events around each copy cost more than the copy does.
        self.notes_copies = profiler.is_graph_enabled();
        for copy in self.transfers.drain(..) {
            let device = format!("{}:{}", self.context.name, copy.what);
            let (src, dst) = match copy.direction {
                TransferDirection::H2D => ("host", device.as_str()),
                TransferDirection::D2H | TransferDirection::D2D => (device.as_str(), "host"),
            };
            let (bytes, direction) = (copy.bytes, copy.direction);
            profiler.graph().record_transfer(src, dst, bytes, direction, copy.device_ns);
        }
    }

    fn start(&mut self, plan: &Plan<'_>, tokens: &[u32], position: usize) -> Result<(), GpuError> {
        self.start_pass(plan, tokens, position)
    }

    fn launch(&mut self, plan: &Plan<'_>, step: usize) -> Result<(), GpuError> {
        Ok(self.on_device(|this| {
            let prepared = this.prepared(plan)?;
            this.launch_step(&prepared[step])
        })?)
    }

    fn finish(&mut self, plan: &Plan<'_>) -> Result<(), GpuError> {
        Ok(self.on_device(|this| {
            this.n_logits = plan.n_outputs * this.model.config.n_vocab;
            if this.n_logits == 0 {
                return Ok(());
            }
            this.marks.flush(&this.stream)?;
            let logits = this.operands.buffer(Operand::Logits)?;
            this.download.start(&this.stream, logits, 0, this.n_logits, this.notes_copies)
        })?)
    }

    fn run(
        &mut self,
        plan: &Plan<'_>,
        tokens: &[u32],
        position: usize,
        timed: Option<&mut Timed<'_, '_>>,
    ) -> Result<(), GpuError> {
        self.start(plan, tokens, position)?;
        if !(self.options.graphs && graph::is_replayed(plan, timed.as_deref())) {
            self.run_eagerly(plan, timed)?;
        } else {
            self.replay(plan, timed)?;
        }
        self.finish(plan)
    }

    fn logits(&mut self, out: &mut Vec<f32>) -> Result<(), GpuError> {
        Ok(self.on_device(|this| {
            out.clear();
            if this.n_logits == 0 {
                this.stream.synchronize()?;
            } else {
                // The only wait of an untimed pass.
                let copied = this.download.wait(&this.stream)?;
                out.extend(copied.iter().map(|&bits| f32::from_bits(bits)));
            }
            if let Some(bytes) = this.inputs.2.take() {
                let device_ns = lasted(this.inputs.1.since(&this.inputs.0)?);
                let (what, direction) = ("tokens and position".to_owned(), TransferDirection::H2D);
                this.note_transfer(Transfer { what, direction, bytes, device_ns });
            }
            if this.n_logits == 0 {
                return Ok(());
            }
            if let Some(ns) = this.download.took_ms()?.and_then(lasted) {
                let bytes = size_of_val(out.as_slice()) as u64;
                let (what, direction) = ("Logits".to_owned(), TransferDirection::D2H);
                this.note_transfer(Transfer { what, direction, bytes, device_ns: Some(ns) });
            }
            Ok(())
        })?)
    }

    fn read(&mut self, operand: Operand, first: usize, out: &mut [f32]) -> Result<(), GpuError> {
        Ok(self.on_device(|this| {
            let at = Self::byte_offset(first)?;
            this.marks.flush(&this.stream)?;
            let (start, end) = this.marks.pair();
            start.record(&this.stream)?;
            this.stream.read(this.operands.buffer(operand)?, at, out)?;
            end.record(&this.stream)?;
            end.synchronize()?;
            let device_ns = lasted(end.since(start)?);
            let (what, direction) = (format!("{operand:?}"), TransferDirection::D2H);
            let bytes = size_of_val(out) as u64;
            this.note_transfer(Transfer { what, direction, bytes, device_ns });
            Ok(())
        })?)
    }

    fn write(&mut self, operand: Operand, first: usize, values: &[f32]) -> Result<(), GpuError> {
        Ok(self.on_device(|this| {
            let at = Self::byte_offset(first)?;
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            this.marks.flush(&this.stream)?;
            let (start, end) = this.marks.pair();
            start.record(&this.stream)?;
            this.stream.upload(this.operands.buffer(operand)?, at, &bytes)?;
            end.record(&this.stream)?;
            end.synchronize()?;
            let device_ns = lasted(end.since(start)?);
            let (what, direction) = (format!("{operand:?}"), TransferDirection::H2D);
            this.note_transfer(Transfer { what, direction, bytes: bytes.len() as u64, device_ns });
            Ok(())
        })?)
    }
}

/// The most copies to keep until they are collected.
const MAX_TRANSFERS: usize = 1 << 16;

impl Cuda<'_> {
    fn note_transfer(&mut self, transfer: Transfer) {
        if self.notes_copies && self.transfers.len() < MAX_TRANSFERS {
            self.transfers.push(transfer);
        }
    }

    fn start_pass(
        &mut self,
        plan: &Plan<'_>,
        tokens: &[u32],
        position: usize,
    ) -> Result<(), GpuError> {
        self.check(plan, tokens, position)?;
        Ok(self.on_device(|this| {
            this.prepared(plan)?;
            this.upload_inputs(tokens, position)
        })?)
    }

    /// Launches the steps one by one.
    fn run_eagerly(
        &mut self,
        plan: &Plan<'_>,
        timed: Option<&mut Timed<'_, '_>>,
    ) -> Result<(), GpuError> {
        let prepared = self.on_device(|this| this.prepared(plan))?;
        let Some(timed) = timed else {
            let launch_all =
                |this: &mut Self| prepared.iter().try_for_each(|step| this.launch_step(step));
            return Ok(self.on_device(launch_all)?);
        };
        self.marks.joins_kernels = true;
        let issued = self.issue_timed(&prepared, timed);
        self.marks.joins_kernels = false;
        issued
    }

    fn issue_timed(
        &mut self,
        prepared: &[Prepared],
        timed: &mut Timed<'_, '_>,
    ) -> Result<(), GpuError> {
        timed.begin(self)?;
        for (index, step) in prepared.iter().enumerate() {
            timed.step(self, index)?;
            self.on_device(|this| this.launch_step(step))?;
        }
        timed.end(self)?;
        Ok(self.on_device(|this| this.marks.flush(&this.stream))?)
    }
}

impl CudaError {
    /// As an error of any device.
    pub(crate) fn into_gpu(self) -> GpuError {
        match self {
            Self::NoLibrary | Self::TooOld { .. } | Self::NoDevice { .. } => {
                GpuError::NoDevice { api: "cuda", reason: self.to_string() }
            }
            Self::Memory { asked, free } => GpuError::TooLarge {
                device: "the CUDA device".to_owned(),
                what: "the model with its cache".to_owned(),
                bytes: asked,
                limit: format!("and {free} are free"),
            },
            error => GpuError::Device(error.into_device()),
        }
    }

    pub(crate) fn into_device(self) -> DeviceError {
        match self {
            Self::Lost { cause } => DeviceError::Lost { reason: cause },
            error if error.is_lost() => DeviceError::Lost { reason: error.to_string() },
            error => DeviceError::Failed {
                what: "run the pass on the CUDA device".to_owned(),
                reason: error.to_string(),
            },
        }
    }
}

impl From<CudaError> for GpuError {
    fn from(error: CudaError) -> Self {
        error.into_gpu()
    }
}

impl Drop for Cuda<'_> {
    fn drop(&mut self) {
        // Running work uses what is dropped next. A lost device runs nothing.
        if self.context.bind().is_ok() {
            let _ = self.stream.synchronize();
        }
    }
}
