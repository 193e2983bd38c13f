//! From the steps of a plan to launches: which kernel, bound to what, with which numbers, on what grid.

use brickscope::DeviceLaunch;
use wgpu::BufferUsages;

use super::adapter::OpenDevice;
use super::kernels::{Kernel, Kernels};
use super::memory::{Memory, Weight};
use crate::config::Config;
use crate::executor::gpu::{GpuError, Op, Plan, Slot, Step};
use crate::weights::Tensor;

/// Workgroups in one dimension of a grid, on every device.
const GRID: u32 = 65_535;
/// Workgroups that share the keys of a row of scores. Grids don't depend on the position, so the
/// keys that there are so far are dealt out to a fixed number of workgroups.
const SHARES: u32 = 8;

/// A kernel that is ready to be launched.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) bindings: wgpu::BindGroup,
    pub(super) grid: [u32; 3],
}

/// A plan whose kernels are ready.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Of each step; a matrix of several parts takes several.
    pub(super) steps: Vec<Vec<Launch>>,
}

/// What a kernel is to be launched with.
struct Draft<'b> {
    kernel: Kernel,
    /// The fields of its `Args`, in their order.
    args: Vec<u32>,
    buffers: Vec<&'b wgpu::Buffer>,
    grid: [u32; 3],
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
        let drafts = plan
            .steps
            .iter()
            .map(|step| Drafter { memory, c, capacity }.step(step))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| gpu.fault("read the plan", "it is of another model".to_owned()))?;

        // The numbers of all launches in one buffer, each at a place where a binding may begin.
        let stride = gpu.limits.min_uniform_buffer_offset_alignment.max(64) as usize;
        let n_launches = drafts.iter().map(Vec::len).sum::<usize>();
        let usage = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let args = gpu.buffer("the kernels' numbers", (n_launches * stride) as u64, usage)?;
        let mut bytes = vec![0; n_launches * stride];
        let all = drafts.iter().flatten();
        for (place, draft) in bytes.chunks_exact_mut(stride).zip(all) {
            for (place, word) in place.chunks_exact_mut(4).zip(&draft.args) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
        }
        gpu.queue.write_buffer(&args, 0, &bytes);

        let mut at = 0;
        let mut steps = Vec::with_capacity(drafts.len());
        for step in drafts {
            let mut launches = Vec::with_capacity(step.len());
            for draft in step {
                let compiled = kernels.get(gpu, draft.kernel)?;
                let args = wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &args,
                    offset: at,
                    size: std::num::NonZeroU64::new(64),
                });
                let buffers = draft.buffers.iter().map(|buffer| buffer.as_entire_binding());
                let entries: Vec<_> = (0..)
                    .zip([memory.params.as_entire_binding(), args].into_iter().chain(buffers))
                    .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
                    .collect();
                let bindings = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout: &compiled.layout,
                    entries: &entries,
                });
                launches.push(Launch {
                    pipeline: compiled.pipeline.clone(),
                    bindings,
                    grid: draft.grid,
                });
                at += stride as u64;
            }
            steps.push(launches);
        }
        gpu.check("prepare kernels")?;
        Ok(Self { steps })
    }
}

/// The kernel of a step, and how it is launched. Of a matrix in several parts, as its first part is.
pub(super) fn describe(
    memory: &Memory,
    c: &Config,
    capacity: usize,
    step: &Step<'_>,
) -> (String, DeviceLaunch) {
    let heads = || format!("{} heads of {}", c.n_heads, c.head_dim);
    let weight = |tensor: &Tensor| memory.weights.get(&tensor.index);
    let shape = match step.op {
        Op::Embed { table: w } | Op::Matmul { w, .. } => {
            weight(w).map_or_else(String::new, Weight::shape)
        }
        Op::RmsNorm { weight, .. } => weight.len().to_string(),
        Op::AddBias { bias, .. } => bias.len().to_string(),
        Op::Rope { .. } => c.head_dim.to_string(),
        Op::Scores { .. } | Op::Softmax | Op::WeightedSum { .. } => heads(),
        Op::SiluMul => c.ffn_dim.to_string(),
        Op::Add { .. } => c.dim.to_string(),
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

/// A grid of so many workgroups, folded where one dimension has no room for them.
fn linear(workgroups: usize) -> [u32; 3] {
    let workgroups = u32::try_from(workgroups).unwrap_or(u32::MAX);
    let rows = workgroups.div_ceil(GRID).max(1);
    [workgroups.div_ceil(rows), rows, 1]
}

/// A number for a kernel. All of them have been held against what a buffer may be.
fn word(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

struct Drafter<'a> {
    memory: &'a Memory,
    c: &'a Config,
    capacity: usize,
}

impl<'a> Drafter<'a> {
    /// The launches of a step. `None` if the plan names what isn't on the device.
    fn step(&self, step: &Step<'_>) -> Option<Vec<Draft<'a>>> {
        let Self { memory, c, .. } = *self;
        let slot = |slot| memory.slot(slot);
        let is_cache = |slot: Slot| u32::from(slot.is_cache());
        let vector = || memory.vectors.get(&(step.layer, step.value));
        let n = step.tokens;
        let one = |kernel, args, buffers, grid| vec![Draft { kernel, args, buffers, grid }];
        let elementwise = |kernel, x, y, len: usize| {
            Some(one(kernel, vec![word(len)], vec![slot(x)?, slot(y)?], linear(len.div_ceil(64))))
        };
        Some(match step.op {
            Op::Embed { table } => {
                let weight = memory.weights.get(&table.index)?;
                let out = slot(step.out)?;
                weight
                    .parts
                    .iter()
                    .map(|part| Draft {
                        kernel: Kernel::Embed(weight.format),
                        args: [weight.cols, weight.blocks, part.scales, part.first_row, part.rows]
                            .map(word)
                            .to_vec(),
                        buffers: vec![&part.buffer, &memory.tokens, out],
                        grid: [word(n), 1, 1],
                    })
                    .collect()
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
                let mut buffers = vec![vector()?, slot(out)?];
                if !in_place {
                    buffers.push(slot(x)?);
                }
                one(Kernel::RmsNorm { in_place }, args, buffers, linear(rows))
            }
            Op::Matmul { out, w, x } => {
                let weight = memory.weights.get(&w.index)?;
                self.matmul(weight, w.rows, n, slot(x)?, slot(out)?, is_cache(out))
            }
            Op::AddBias { x, bias } => {
                let args = vec![word(n * bias.len()), word(bias.len()), is_cache(x)];
                let grid = linear((n * bias.len()).div_ceil(64));
                one(Kernel::AddBias, args, vec![slot(x)?, vector()?], grid)
            }
            Op::Rope { x, heads } => {
                let pairs = c.n_rot / 2;
                let len = n * heads * pairs;
                let mut args = [heads, c.head_dim, pairs, len].map(word).to_vec();
                args.push(is_cache(x));
                let buffers = vec![slot(x)?, &memory.cosines, &memory.sines];
                let kernel = Kernel::Rope(c.architecture.rope_pairs());
                one(kernel, args, buffers, linear(len.div_ceil(64)))
            }
            Op::Scores { layer } => {
                let buffers = vec![slot(Slot::S)?, slot(Slot::Q)?, slot(Slot::K(layer))?];
                let shares = word(self.capacity.div_ceil(64)).min(SHARES);
                let grid = [shares, word(c.n_heads), word(n)];
                one(Kernel::Scores, self.attention(), buffers, grid)
            }
            Op::Softmax => {
                let grid = [word(c.n_heads), word(n), 1];
                one(Kernel::Softmax, self.attention(), vec![slot(Slot::S)?], grid)
            }
            Op::WeightedSum { layer } => {
                let buffers = vec![slot(Slot::A)?, slot(Slot::S)?, slot(Slot::V(layer))?];
                let grid = [word(c.n_heads), word(n), 1];
                one(Kernel::WeightedSum, self.attention(), buffers, grid)
            }
            Op::SiluMul => elementwise(Kernel::SiluMul, Slot::Gate, Slot::Up, n * c.ffn_dim)?,
            Op::Add { x, y } => elementwise(Kernel::Add, x, y, n * c.dim)?,
        })
    }

    /// The numbers that the three kernels of attention share.
    fn attention(&self) -> Vec<u32> {
        let c = self.c;
        let scale = 1.0 / (c.head_dim as f32).sqrt();
        let heads_per_kv = c.n_heads / c.n_kv_heads;
        let mut args =
            [c.n_heads, heads_per_kv, c.head_dim, c.kv_dim(), self.capacity].map(word).to_vec();
        args.push(scale.to_bits());
        args
    }

    fn matmul(
        &self,
        weight: &'a Weight,
        rows: usize,
        n: usize,
        x: &'a wgpu::Buffer,
        out: &'a wgpu::Buffer,
        is_cache: u32,
    ) -> Vec<Draft<'a>> {
        let (format, ragged) = (weight.format, !weight.cols.is_multiple_of(4));
        let draft = |part: &'a super::memory::Part| {
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
}
