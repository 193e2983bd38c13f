//! Which kernel computes a step of the plan, on which grid, with which arguments.
//!
//! Nothing here depends on the position of a pass, which kernels read from the device. So the launches of a plan are
//! made once, and a graph of them can be replayed.

use brickscope_kernels::RopePairs;

use super::driver::Arg;
use super::error::CudaError;
use super::kernels::{Launch, MOST_SHARED};
use super::memory::{DeviceWeights, Operands};
use crate::config::Config;
use crate::executor::gpu::fused::{Fused, Fuses};
use crate::executor::gpu::plan::{Op, Operand, Step};
use crate::weights::Tensor;

/// A step, ready to be launched.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ready {
    /// The kernel's name.
    pub(super) kernel: String,
    pub(super) launch: Launch,
    /// The last is where the kernel notes when it begins, or 0.
    pub(super) args: Vec<Arg>,
    /// The shape that it works on, for people.
    pub(super) shape: String,
}

/// The addresses of everything that steps refer to.
pub(super) struct Places<'a> {
    pub(super) config: &'a Config,
    pub(super) weights: &'a DeviceWeights,
    pub(super) operands: &'a Operands,
    /// `{position, n}`, both u32.
    pub(super) params: u64,
    /// The tokens of the pass.
    pub(super) tokens: u64,
    /// The capacity of the KV cache, in tokens.
    pub(super) capacity: usize,
    /// How many multiprocessors the device has.
    pub(super) multiprocessors: u32,
}

impl Places<'_> {
    /// The launch of one step.
    pub(super) fn ready(&self, step: &Step<'_>) -> Result<Ready, CudaError> {
        let c = self.config;
        let n = step.tokens;
        let params = Arg::Address(self.params);
        let (heads, kv_heads, head_dim) = (int(c.n_heads), int(c.n_kv_heads), int(c.head_dim));
        let attention = || format!("{} heads of {}", c.n_heads, c.head_dim);
        let mut ready = match step.op {
            Op::Embed { table } => {
                let w = self.weights.matrix(table.index)?;
                Ready {
                    kernel: format!("embed_{}", w.format.name()),
                    launch: Launch::embed(u(table.cols), u(n)),
                    args: vec![
                        self.at(step.out)?,
                        Arg::Address(w.buffer.address()),
                        Arg::Address(self.tokens),
                        int(table.cols),
                    ],
                    shape: w.shape.clone(),
                }
            }
            Op::RmsNorm { out, x, weight, rows_per_token, first } => {
                let width = weight.len();
                let skipped = 4 * first * rows_per_token * width;
                Ready {
                    kernel: "rms_norm".to_owned(),
                    launch: Launch::rms_norm(u(width), u(n * rows_per_token)),
                    args: vec![
                        self.at(out)?,
                        Arg::Address(self.operands.buffer(x)?.address() + skipped as u64),
                        Arg::Address(self.weights.vector(weight)?),
                        params,
                        int(width),
                        Arg::F32(c.norm_eps),
                        self.stride(out),
                        self.stride(x),
                    ],
                    shape: width.to_string(),
                }
            }
            Op::Matmul { out, w: tensor, x } => {
                let w = self.weights.matrix(tensor.index)?;
                let mut args = vec![
                    self.at(out)?,
                    Arg::Address(w.buffer.address()),
                    self.at(x)?,
                    params,
                    int(tensor.rows),
                    int(tensor.cols),
                    self.stride(out),
                ];
                let format = w.format.name();
                let (kernel, launch) = if n == 1 {
                    (format!("gemv_{format}"), self.gemv(tensor.rows, tensor.cols, 2))
                } else {
                    args.push(int(n));
                    (format!("gemm_{format}"), Launch::gemm(u(tensor.rows), u(n)))
                };
                Ready { kernel, launch, args, shape: w.shape.clone() }
            }
            Op::AddBias { x, bias } => {
                let len = n * bias.len();
                Ready {
                    kernel: "add_bias".to_owned(),
                    launch: Launch::elementwise(u(len)),
                    args: vec![
                        self.at(x)?,
                        Arg::Address(self.weights.vector(bias)?),
                        params,
                        int(bias.len()),
                        int(len),
                        self.stride(x),
                    ],
                    shape: bias.len().to_string(),
                }
            }
            Op::Rope { x, heads } => {
                let n_pairs = c.n_rot / 2;
                let is_neox = c.architecture.rope_pairs() == RopePairs::Neox;
                Ready {
                    kernel: "rope".to_owned(),
                    launch: Launch::rope(u(heads), u(n_pairs), u(n)),
                    args: vec![
                        self.at(x)?,
                        Arg::Address(self.weights.cos.address()),
                        Arg::Address(self.weights.sin.address()),
                        params,
                        int(heads),
                        head_dim,
                        int(n_pairs),
                        Arg::U32(is_neox.into()),
                        self.stride(x),
                    ],
                    shape: format!("{heads} heads of {}", c.head_dim),
                }
            }
            Op::Scores { layer } => Ready {
                kernel: "scores".to_owned(),
                launch: Launch::scores(u(c.n_heads), u(c.head_dim), u(self.capacity), u(n)),
                args: vec![
                    self.at(Operand::S)?,
                    self.at(Operand::Q)?,
                    self.at(Operand::K(layer))?,
                    params,
                    heads,
                    kv_heads,
                    head_dim,
                    Arg::F32(1.0 / (c.head_dim as f32).sqrt()),
                    int(self.capacity),
                ],
                shape: attention(),
            },
            Op::Softmax => Ready {
                kernel: "softmax".to_owned(),
                launch: Launch::softmax(u(c.n_heads), u(self.capacity), u(n)),
                args: vec![self.at(Operand::S)?, params, heads, int(self.capacity)],
                shape: attention(),
            },
            Op::WeightedSum { layer } => Ready {
                kernel: "weighted_sum".to_owned(),
                launch: Launch::weighted_sum(u(c.n_heads), u(c.head_dim), u(n)),
                args: vec![
                    self.at(Operand::A)?,
                    self.at(Operand::S)?,
                    self.at(Operand::V(layer))?,
                    params,
                    heads,
                    kv_heads,
                    head_dim,
                    int(self.capacity),
                ],
                shape: attention(),
            },
            Op::SiluMul | Op::ReluSquaredMul => Ready {
                kernel: match step.op {
                    Op::SiluMul => "silu_mul".to_owned(),
                    _ => "relu_squared_mul".to_owned(),
                },
                launch: Launch::elementwise(u(n * c.ffn_dim)),
                args: vec![self.at(Operand::Gate)?, self.at(Operand::Up)?, int(n * c.ffn_dim)],
                shape: c.ffn_dim.to_string(),
            },
            Op::Add { x, y } => Ready {
                kernel: "add".to_owned(),
                launch: Launch::elementwise(u(n * c.dim)),
                args: vec![self.at(x)?, self.at(y)?, int(n * c.dim)],
                shape: c.dim.to_string(),
            },
            Op::Fused(fused) => self.fused(fused)?,
        };
        // Nobody asks when it begins.
        ready.args.push(Arg::Address(0));
        Ok(ready)
    }

    /// The launch of several steps at once, but for its last argument.
    fn fused(&self, fused: Fused<'_>) -> Result<Ready, CudaError> {
        let c = self.config;
        let params = Arg::Address(self.params);
        let (heads, kv_heads, head_dim) = (int(c.n_heads), int(c.n_kv_heads), int(c.head_dim));
        let vector = |values| Ok::<_, CudaError>(Arg::Address(self.weights.vector(values)?));
        let address = |w: &Tensor| {
            Ok::<_, CudaError>(Arg::Address(self.weights.matrix(w.index)?.buffer.address()))
        };
        let format = |w: &Tensor| Ok::<_, CudaError>(self.weights.matrix(w.index)?.format.name());
        let shape = |w: &Tensor| Ok::<_, CudaError>(self.weights.matrix(w.index)?.shape.clone());
        let eps = Arg::F32(c.norm_eps);
        Ok(match fused {
            Fused::QkvRope { norm, q, k, v, layer } => {
                let is_neox = c.architecture.rope_pairs() == RopePairs::Neox;
                let rows = q.rows + k.rows + v.rows;
                Ready {
                    kernel: format!("norm_qkv_rope_{}", format(q)?),
                    launch: self.gemv(rows, q.cols, 1),
                    args: vec![
                        self.at(Operand::Q)?,
                        self.at(Operand::K(layer))?,
                        self.at(Operand::V(layer))?,
                        address(q)?,
                        address(k)?,
                        address(v)?,
                        self.at(Operand::X)?,
                        vector(norm)?,
                        Arg::Address(self.weights.cos.address()),
                        Arg::Address(self.weights.sin.address()),
                        params,
                        heads,
                        kv_heads,
                        head_dim,
                        int(c.n_rot / 2),
                        Arg::U32(is_neox.into()),
                        int(q.cols),
                        eps,
                    ],
                    shape: format!("{rows}×{} {}", q.cols, format(q)?),
                }
            }
            Fused::Attention { layer } => Ready {
                kernel: "attention".to_owned(),
                launch: Launch::attention(u(c.n_heads), u(c.head_dim), u(self.capacity)),
                args: vec![
                    self.at(Operand::A)?,
                    Arg::Address(self.operands.parts.address()),
                    Arg::Address(self.operands.arrived.address()),
                    self.at(Operand::Q)?,
                    self.at(Operand::K(layer))?,
                    self.at(Operand::V(layer))?,
                    params,
                    heads,
                    kv_heads,
                    head_dim,
                    Arg::F32(1.0 / (c.head_dim as f32).sqrt()),
                ],
                shape: format!("{} heads of {}", c.n_heads, c.head_dim),
            },
            Fused::MatmulAdd { w, x } => Ready {
                kernel: format!("gemv_add_{}", format(w)?),
                launch: self.gemv(w.rows, w.cols, 2),
                args: vec![
                    self.at(Operand::X)?,
                    address(w)?,
                    self.at(x)?,
                    int(w.rows),
                    int(w.cols),
                ],
                shape: shape(w)?,
            },
            Fused::GateUp { norm, gate, up, is_squared } => Ready {
                kernel: format!("norm_gate_up_{}", format(gate)?),
                launch: self.gemv(2 * gate.rows, gate.cols, 1),
                args: vec![
                    self.at(Operand::Gate)?,
                    address(gate)?,
                    address(up)?,
                    self.at(Operand::X)?,
                    vector(norm)?,
                    int(gate.rows),
                    int(gate.cols),
                    eps,
                    Arg::U32(is_squared.into()),
                ],
                shape: format!("{}×{} {}", 2 * gate.rows, gate.cols, format(gate)?),
            },
            Fused::Head { norm, w } => Ready {
                kernel: format!("norm_gemv_{}", format(w)?),
                launch: self.gemv(w.rows, w.cols, 1),
                args: vec![
                    self.at(Operand::Logits)?,
                    address(w)?,
                    self.at(Operand::X)?,
                    vector(norm)?,
                    int(w.rows),
                    int(w.cols),
                    eps,
                ],
                shape: shape(w)?,
            },
        })
    }

    /// The launch of products with `rows`, two of which `split` warps have, as the kernel says.
    fn gemv(&self, rows: usize, cols: usize, split: u32) -> Launch {
        Launch::gemv(u(rows), u(cols), split, self.multiprocessors)
    }

    fn at(&self, operand: Operand) -> Result<Arg, CudaError> {
        Ok(Arg::Address(self.operands.buffer(operand)?.address()))
    }

    /// Floats per position if a pass works at its position, else 0.
    fn stride(&self, operand: Operand) -> Arg {
        int(if operand.is_cache() { self.config.kv_dim() } else { 0 })
    }
}

impl Fuses for Places<'_> {
    fn in_one_kernel(&self, weights: &[&Tensor]) -> bool {
        let formats = weights.iter().map(|w| self.weights.matrix(w.index).map(|w| w.format));
        let formats: Result<Vec<_>, _> = formats.collect();
        formats.is_ok_and(|formats| formats.windows(2).all(|pair| pair[0] == pair[1]))
    }

    fn attends(&self, c: &Config) -> bool {
        let launch = Launch::attention(u(c.n_heads), u(c.head_dim), u(self.capacity));
        c.head_dim.is_multiple_of(4) && c.head_dim <= 256 && launch.shared_bytes <= MOST_SHARED
    }
}

/// A size as kernels take it. Models with more than 2³² of anything were refused when memory was allocated.
fn u(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn int(n: usize) -> Arg {
    Arg::U32(u(n))
}
