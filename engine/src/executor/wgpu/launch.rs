//! Turns the steps of a plan into launches: the kernel, its bindings, its arguments and its grid.

use brickscope::DeviceLaunch;
use wgpu::BufferUsages;

use super::adapter::OpenDevice;
use super::kernels::{Compiled, Kernel, Kernels};
use super::memory::{BLOCK, Memory, Part, Weight};
use crate::config::Config;
use crate::executor::gpu::{GpuError, Op, Operand, Plan, Step};
use crate::weights::Tensor;

/// The most bytes of a launch's arguments.
const ARGS: u64 = 64;
/// The most workgroups in one dimension of a grid, on every device.
const GRID: u32 = 65_535;
/// Workgroups that share the keys of a row of scores. Grids don't depend on the position, so the
/// present keys are dealt out to a fixed number of workgroups.
const SHARES: u32 = 8;

/// A kernel that is ready to be launched.
#[derive(Debug)]
pub(super) struct Launch {
    pipeline: wgpu::ComputePipeline,
    bindings: wgpu::BindGroup,
    grid: [u32; 3],
}

/// A plan whose kernels are ready.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The launches of each step; a matrix in several parts takes several.
    pub(super) steps: Vec<Vec<Launch>>,
}

/// A launch that isn't bound yet.
pub(super) struct Draft<'b> {
    pub(super) kernel: Kernel,
    /// The fields of its `Args`, in their order.
    pub(super) args: Vec<u32>,
    pub(super) buffers: Vec<&'b wgpu::Buffer>,
    pub(super) grid: [u32; 3],
}

impl Prepared {
    pub(super) fn new(
        gpu: &OpenDevice,
        kernels: &mut Kernels,
        memory: &Memory,
        c: &Config,
        capacity: usize,
        plan: &Plan<'_>,
    ) -> Result<Self, GpuError> {
        let drafter = Drafter { memory, c, capacity };
        let drafts =
            plan.steps
                .iter()
                .map(|step| drafter.step(step))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| gpu.fault("read the plan", "it is of another model".to_owned()))?;
        Self::from_drafts(gpu, kernels, &memory.params, drafts)
    }

    /// Binds the launches of each step. They read a pass's parameters from `params`.
    pub(super) fn from_drafts(
        gpu: &OpenDevice,
        kernels: &mut Kernels,
        params: &wgpu::Buffer,
        drafts: Vec<Vec<Draft<'_>>>,
    ) -> Result<Self, GpuError> {
        // The arguments of all launches in one buffer, each where a binding may begin; zeros after them.
        let stride = gpu.limits.min_uniform_buffer_offset_alignment.max(ARGS as u32) as usize;
        let n_launches = drafts.iter().map(Vec::len).sum::<usize>();
        let usage = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let mut bytes = vec![0; (n_launches + 1) * stride];
        let args = gpu.buffer("the kernels' arguments", bytes.len() as u64, usage)?;
        let all = drafts.iter().flatten();
        for (place, draft) in bytes.chunks_exact_mut(stride).zip(all) {
            for (place, word) in place.chunks_exact_mut(4).zip(&draft.args) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
        }
        gpu.queue.write_buffer(&args, 0, &bytes);

        let bind = |draft: &Draft<'_>, layout: &wgpu::BindGroupLayout, index: usize| {
            let args = wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &args,
                offset: (index * stride) as u64,
                size: std::num::NonZeroU64::new(ARGS),
            });
            let buffers = draft.buffers.iter().map(|buffer| buffer.as_entire_binding());
            let entries: Vec<_> = (0..)
                .zip([params.as_entire_binding(), args].into_iter().chain(buffers))
                .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
                .collect();
            let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
            gpu.device.create_bind_group(&descriptor)
        };
        let (mut steps, mut fresh) = (Vec::with_capacity(drafts.len()), Vec::new());
        let mut index = 0;
        for step in drafts {
            let mut launches = Vec::with_capacity(step.len());
            for draft in step {
                let (compiled, is_new) = kernels.get(gpu, draft.kernel)?;
                let Compiled { pipeline, layout } = compiled;
                if is_new {
                    let bindings = bind(&draft, &layout, n_launches);
                    let pipeline = pipeline.clone();
                    fresh.push(Launch { pipeline, bindings, grid: [1, 1, 1] });
                }
                let bindings = bind(&draft, &layout, index);
                launches.push(Launch { pipeline, bindings, grid: draft.grid });
                index += 1;
            }
            steps.push(launches);
        }
        warm_up(gpu, &fresh)?;
        gpu.check("prepare kernels")?;
        Ok(Self { steps })
    }
}

/// Launches kernels for the first time, which is when drivers compile them for the device. Their arguments
/// are zeros: no rows, no tokens, no length.
fn warm_up(gpu: &OpenDevice, fresh: &[Launch]) -> Result<(), GpuError> {
    if fresh.is_empty() {
        return Ok(());
    }
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    for launch in fresh {
        launch.record(&mut pass);
    }
    drop(pass);
    gpu.queue.submit([encoder.finish()]);
    gpu.wait(None)
}

impl Launch {
    pub(super) fn record(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        let [x, y, z] = self.grid;
        pass.dispatch_workgroups(x, y, z);
    }
}

/// The kernel of a step, and how it is launched; for a matrix in several parts, how its first part is.
pub(super) fn describe(
    memory: &Memory,
    c: &Config,
    capacity: usize,
    step: &Step<'_>,
) -> (String, DeviceLaunch) {
    let weight = |tensor: &Tensor| memory.weights.get(&tensor.index);
    let shape = match step.op {
        Op::Embed { table: w } | Op::Matmul { w, .. } => {
            weight(w).map_or_else(String::new, Weight::shape)
        }
        Op::RmsNorm { weight, .. } => weight.len().to_string(),
        Op::AddBias { bias, .. } => bias.len().to_string(),
        Op::Rope { .. } => c.head_dim.to_string(),
        Op::Scores { .. } | Op::Softmax | Op::WeightedSum { .. } => {
            format!("{} heads of {}", c.n_heads, c.head_dim)
        }
        Op::SiluMul | Op::ReluSquaredMul => c.ffn_dim.to_string(),
        Op::Add { .. } | Op::Fused(_) => c.dim.to_string(),
    };
    let drafts = Drafter { memory, c, capacity }.step(step);
    let Some(draft) = drafts.as_ref().and_then(|drafts| drafts.first()) else {
        return ("unknown".to_owned(), DeviceLaunch::default());
    };
    let [x, y, z] = draft.grid;
    let launch = DeviceLaunch {
        shape,
        grid: (x, y, z),
        block: (draft.kernel.workgroup(), 1, 1),
        shared_mem: draft.kernel.workgroup_bytes(),
        ..DeviceLaunch::default()
    };
    (draft.kernel.name(), launch)
}

/// A grid of `workgroups`, folded into two dimensions if they don't fit one.
pub(super) fn linear(workgroups: usize) -> [u32; 3] {
    let workgroups = u32::try_from(workgroups).unwrap_or(u32::MAX);
    let rows = workgroups.div_ceil(GRID).max(1);
    [workgroups.div_ceil(rows), rows, 1]
}

/// An argument for a kernel. All sizes have been checked against the limits of buffers.
fn word(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

struct Drafter<'a> {
    memory: &'a Memory,
    c: &'a Config,
    capacity: usize,
}

impl<'a> Drafter<'a> {
    /// The launches of a step; `None` if the plan refers to something that isn't on the device.
    fn step(&self, step: &Step<'_>) -> Option<Vec<Draft<'a>>> {
        let Self { memory, c, .. } = *self;
        let operand = |operand| memory.operand(operand);
        let is_cache = |operand: Operand| u32::from(operand.is_cache());
        let vector = || memory.vectors.get(&(step.layer, step.value));
        let n = step.tokens;
        let one = |kernel, args, buffers, grid| vec![Draft { kernel, args, buffers, grid }];
        let elementwise = |kernel, x, y, len: usize| {
            Some(one(
                kernel,
                vec![word(len)],
                vec![operand(x)?, operand(y)?],
                linear(len.div_ceil(64)),
            ))
        };
        Some(match step.op {
            Op::Embed { table } => {
                embed(memory.weights.get(&table.index)?, n, &memory.tokens, operand(step.out)?)
            }
            Op::RmsNorm { out, x, weight, rows_per_token, first } => {
                let in_place = out == x;
                let rows = n * rows_per_token;
                let args = vec![
                    word(weight.len()),
                    word(rows_per_token),
                    word(first),
                    word(rows),
                    c.norm_eps.to_bits(),
                    is_cache(out),
                ];
                let mut buffers = vec![vector()?, operand(out)?];
                if !in_place {
                    buffers.push(operand(x)?);
                }
                one(Kernel::RmsNorm { in_place }, args, buffers, linear(rows))
            }
            Op::Matmul { out, w, x } => {
                let weight = memory.weights.get(&w.index)?;
                matmul(weight, n, operand(x)?, operand(out)?, is_cache(out))
            }
            Op::AddBias { x, bias } => {
                let args = vec![word(n * bias.len()), word(bias.len()), is_cache(x)];
                let grid = linear((n * bias.len()).div_ceil(64));
                one(Kernel::AddBias, args, vec![operand(x)?, vector()?], grid)
            }
            Op::Rope { x, heads } => {
                let pairs = c.n_rot / 2;
                let len = n * heads * pairs;
                let mut args = [heads, c.head_dim, pairs, len].map(word).to_vec();
                args.push(is_cache(x));
                let buffers = vec![operand(x)?, &memory.cosines, &memory.sines];
                let kernel = Kernel::Rope(c.architecture.rope_pairs());
                one(kernel, args, buffers, linear(len.div_ceil(64)))
            }
            Op::Scores { layer } => {
                let buffers =
                    vec![operand(Operand::S)?, operand(Operand::Q)?, operand(Operand::K(layer))?];
                let shares = word(self.capacity.div_ceil(64)).min(SHARES);
                let grid = [shares, word(c.n_heads), word(n)];
                one(Kernel::Scores, self.attention(), buffers, grid)
            }
            Op::Softmax => {
                let grid = [word(c.n_heads), word(n), 1];
                one(Kernel::Softmax, self.attention(), vec![operand(Operand::S)?], grid)
            }
            Op::WeightedSum { layer } => {
                let buffers =
                    vec![operand(Operand::A)?, operand(Operand::S)?, operand(Operand::V(layer))?];
                let grid = [word(c.n_heads), word(n), 1];
                one(Kernel::WeightedSum, self.attention(), buffers, grid)
            }
            Op::SiluMul => elementwise(Kernel::SiluMul, Operand::Gate, Operand::Up, n * c.ffn_dim)?,
            Op::ReluSquaredMul => {
                elementwise(Kernel::ReluSquaredMul, Operand::Gate, Operand::Up, n * c.ffn_dim)?
            }
            Op::Add { x, y } => elementwise(Kernel::Add, x, y, n * c.dim)?,
            // No plan of this executor has one.
            Op::Fused(_) => return None,
        })
    }

    /// The arguments that the three kernels of attention share.
    fn attention(&self) -> Vec<u32> {
        let c = self.c;
        let scale = 1.0 / (c.head_dim as f32).sqrt();
        let heads_per_kv = c.n_heads / c.n_kv_heads;
        let mut args =
            [c.n_heads, heads_per_kv, c.head_dim, c.kv_dim(), self.capacity].map(word).to_vec();
        args.push(scale.to_bits());
        args
    }
}

/// Looks up the rows of `n` tokens: a launch for each part of the table.
pub(super) fn embed<'a>(
    weight: &'a Weight,
    n: usize,
    tokens: &'a wgpu::Buffer,
    out: &'a wgpu::Buffer,
) -> Vec<Draft<'a>> {
    let draft = |part: &'a Part| Draft {
        kernel: Kernel::Embed(weight.format),
        args: [weight.cols, weight.blocks, part.scales, part.first_row, part.rows]
            .map(word)
            .to_vec(),
        buffers: vec![&part.buffer, tokens, out],
        grid: [word(n), 1, 1],
    };
    weight.parts.iter().map(draft).collect()
}

/// `W · x` for `n` tokens: a launch for each part of the rows.
pub(super) fn matmul<'a>(
    weight: &'a Weight,
    n: usize,
    x: &'a wgpu::Buffer,
    out: &'a wgpu::Buffer,
    is_cache: u32,
) -> Vec<Draft<'a>> {
    let (format, ragged) = (weight.format, !weight.cols.is_multiple_of(BLOCK));
    let rows: usize = weight.parts.iter().map(|part| part.rows).sum();
    let draft = |part: &'a Part| {
        let mut args =
            [weight.cols, weight.blocks, part.scales, part.first_row, part.rows, rows, n]
                .map(word)
                .to_vec();
        args.push(is_cache);
        let (kernel, grid) = if n == 1 {
            (Kernel::Gemv { format, ragged }, linear(part.rows.div_ceil(8)))
        } else {
            let tiles = [word(part.rows.div_ceil(32)), word(n.div_ceil(32)), 1];
            (Kernel::Gemm { format, ragged }, tiles)
        };
        Draft { kernel, args, buffers: vec![&part.buffer, x, out], grid }
    };
    weight.parts.iter().map(draft).collect()
}
