//! The forward pass as a list of kernels, for devices: what to launch, in which order, for which brick.
//!
//! It restates `forward.rs` for executors whose kernels run elsewhere and later. Kernels read the position from
//! the device and a [`Plan`] doesn't contain it, so one plan serves every pass of as many tokens, and can be
//! recorded once and replayed.

use brickscope::{BrickId, Work};

use crate::config::{self, Config};
use crate::error::GpuError;
use crate::executor::gpu::fused::Fused;
use crate::forward::Outputs;
use crate::value::Value;
use crate::weights::{Layer, Tensor, Weights};
use crate::work;

/// What a kernel reads or writes in the device's memory: F32, row-major, of up to a batch of `n` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// `(n, dim)`, the residual stream.
    X,
    /// `(n, dim)`, normalised.
    H,
    /// `(n, dim)`, what is added to the stream.
    Y,
    /// `(n, q_dim)`.
    Q,
    /// `(n, q_dim)`, the output of attention.
    A,
    /// `(n, n_heads, capacity)`: scores, then probabilities. Each row has room for every key.
    S,
    /// `(n, ffn_dim)`.
    Gate,
    /// `(n, ffn_dim)`.
    Up,
    /// `(outputs, n_vocab)`.
    Logits,
    /// `(capacity, kv_dim)`, the keys of this layer. New rows begin at row `position`.
    K(usize),
    /// `(capacity, kv_dim)`, the values of this layer. New rows begin at row `position`.
    V(usize),
}

impl Operand {
    /// Whether a pass writes from row `position` on, instead of from row 0.
    pub(crate) fn is_cache(self) -> bool {
        matches!(self, Self::K(_) | Self::V(_))
    }
}

/// What a kernel computes.
///
/// `tokens` is that of the [`Step`]. The cosines and sines of all positions, `(capacity, n_rot / 2)` each, are
/// computed on the host, by the code that the CPU executor uses, and uploaded once.
#[derive(Debug, Clone, Copy)]
pub enum Op<'m> {
    /// `X[t] = table[token[t]]`.
    Embed {
        /// `(n_vocab, dim)`.
        table: &'m Tensor,
    },
    /// Each of `tokens · rows_per_token` rows of `weight.len()`:
    /// `out = x · weight / sqrt(mean(x²) + eps)`.
    RmsNorm {
        /// The output; may be `x`.
        out: Operand,
        /// The input.
        x: Operand,
        /// The weight, once for each element of a row.
        weight: &'m [f32],
        /// Rows per token.
        rows_per_token: usize,
        /// The first token of `x` to read; `out` begins at 0.
        first: usize,
    },
    /// `out[t] = W · x[t]`.
    Matmul {
        /// `(tokens, w.rows)`.
        out: Operand,
        /// The weights.
        w: &'m Tensor,
        /// `(tokens, w.cols)`.
        x: Operand,
    },
    /// `x[t] += bias`.
    AddBias {
        /// `(tokens, bias.len())`.
        x: Operand,
        /// The bias.
        bias: &'m [f32],
    },
    /// Rotates each head of `x`, `(tokens, heads, head_dim)`, by the angles of its token's position.
    Rope {
        /// What to rotate.
        x: Operand,
        /// Heads of `x`.
        heads: usize,
    },
    /// `S[t, h, j] = Q[t, h] · K[j, kv_head(h)] / sqrt(head_dim)` for `j <= position + t`.
    Scores {
        /// The layer of the keys.
        layer: usize,
    },
    /// Over `j <= position + t` of each row of `S`, in place.
    Softmax,
    /// `A[t, h] = Σ_j S[t, h, j] · V[j, kv_head(h)]`.
    WeightedSum {
        /// The layer of the values.
        layer: usize,
    },
    /// `Gate = silu(Gate) · Up`.
    SiluMul,
    /// `Gate = max(Gate, 0)² · Up`.
    ReluSquaredMul,
    /// `x += y`.
    Add {
        /// The sum.
        x: Operand,
        /// The addend.
        y: Operand,
    },
    /// Several of these in one kernel, for a single token.
    Fused(Fused<'m>),
}

/// One kernel launch.
#[derive(Debug, Clone, Copy)]
pub struct Step<'m> {
    /// The transformer layer.
    pub(crate) layer: Option<u16>,
    /// The brick that it belongs to. Consecutive steps of the same brick are one brick, unless
    /// [`begins_brick`](Self::begins_brick) says otherwise.
    pub(crate) brick: BrickId,
    /// The name of the brick, if it is none of the well-known ones.
    pub(crate) brick_name: Option<&'static str>,
    /// Whether a new brick begins here.
    pub(crate) begins_brick: bool,
    /// The value that it makes.
    pub(crate) value: Value,
    /// Where the value is.
    pub(crate) out: Operand,
    /// Tokens that it works on.
    pub(crate) tokens: usize,
    /// What to compute.
    pub(crate) op: Op<'m>,
}

/// The kernels of a pass of `n` tokens.
#[derive(Debug)]
pub struct Plan<'m> {
    pub(crate) n: usize,
    pub(crate) n_outputs: usize,
    pub(crate) steps: Vec<Step<'m>>,
}

impl<'m> Plan<'m> {
    /// A pass of `n` tokens.
    pub(crate) fn new(c: &Config, w: &'m Weights, n: usize, outputs: Outputs) -> Self {
        use BrickId::*;
        use Operand::*;
        let mut steps = List { steps: Vec::new(), layer: None, tokens: n };
        let norm = |out, x, weight: &'m [f32], rows_per_token| Op::RmsNorm {
            out,
            x,
            weight,
            rows_per_token,
            first: 0,
        };

        let bias = |value, x, bias: &'m Option<Vec<f32>>| {
            bias.as_deref().map(|bias| (value, x, Op::AddBias { x, bias }))
        };
        let activation = match c.activation {
            config::Activation::Silu => Op::SiluMul,
            config::Activation::ReluSquared => Op::ReluSquaredMul,
        };
        steps.brick(Embedding, [(Value::Embedding, X, Op::Embed { table: &w.embedding })]);
        for (i, w) in w.layers.iter().enumerate() {
            steps.layer = Some(i as u16);
            let (k, v) = (K(i), V(i));
            steps.brick(RmsNorm, [(Value::AttentionNorm, H, norm(H, X, &w.attn_norm, 1))]);
            let matmul = |out, w, x| Op::Matmul { out, w, x };
            let qkv = [
                Some((Value::Q, Q, matmul(Q, &w.q, H))),
                Some((Value::K, k, matmul(k, &w.k, H))),
                Some((Value::V, v, matmul(v, &w.v, H))),
                bias(Value::BiasedQ, Q, &w.q_bias),
                bias(Value::BiasedK, k, &w.k_bias),
                bias(Value::BiasedV, v, &w.v_bias),
            ];
            steps.brick(QkvProjection, qkv.into_iter().flatten());
            if let (Some(q_norm), Some(k_norm)) = (&w.q_norm, &w.k_norm) {
                steps.brick(RmsNorm, [(Value::NormedQ, Q, norm(Q, Q, q_norm, c.n_heads))]);
                steps.brick(RmsNorm, [(Value::NormedK, k, norm(k, k, k_norm, c.n_kv_heads))]);
            }
            steps.brick(
                RopeEmbedding,
                [
                    (Value::RotatedQ, Q, Op::Rope { x: Q, heads: c.n_heads }),
                    (Value::RotatedK, k, Op::Rope { x: k, heads: c.n_kv_heads }),
                ],
            );
            steps.brick(AttentionScore, [(Value::Scores, S, Op::Scores { layer: i })]);
            steps.brick(AttentionSoftmax, [(Value::Probabilities, S, Op::Softmax)]);
            steps.brick(AttentionOutput, [(Value::Attention, A, Op::WeightedSum { layer: i })]);
            if let Some(sub_norm) = &w.attn_sub_norm {
                steps.brick(RmsNorm, [(Value::AttentionSubNorm, A, norm(A, A, sub_norm, 1))]);
            }
            let output = [
                Some((Value::Output, Y, matmul(Y, &w.output, A))),
                bias(Value::BiasedOutput, Y, &w.output_bias),
                Some((Value::AttentionResidual, X, Op::Add { x: X, y: Y })),
            ];
            steps.brick(OutputProjection, output.into_iter().flatten());

            steps.brick(RmsNorm, [(Value::FfnNorm, H, norm(H, X, &w.ffn_norm, 1))]);
            let gate = [
                Some((Value::Gate, Gate, matmul(Gate, &w.gate, H))),
                bias(Value::BiasedGate, Gate, &w.gate_bias),
            ];
            steps.brick(GateProjection, gate.into_iter().flatten());
            let up = [
                Some((Value::Up, Up, matmul(Up, &w.up, H))),
                bias(Value::BiasedUp, Up, &w.up_bias),
            ];
            steps.brick(UpProjection, up.into_iter().flatten());
            steps.brick(Activation, [(Value::Activation, Gate, activation)]);
            if let Some(sub_norm) = &w.ffn_sub_norm {
                steps.brick(RmsNorm, [(Value::FfnSubNorm, Gate, norm(Gate, Gate, sub_norm, 1))]);
            }
            let down = [
                Some((Value::Down, Y, matmul(Y, &w.down, Gate))),
                bias(Value::BiasedDown, Y, &w.down_bias),
                Some((Value::FfnResidual, X, Op::Add { x: X, y: Y })),
            ];
            steps.brick(DownProjection, down.into_iter().flatten());
        }
        steps.layer = None;

        let n_outputs = outputs.count(n);
        if n_outputs > 0 {
            steps.tokens = n_outputs;
            let first = n - n_outputs;
            let weight = &w.output_norm[..];
            let norm = Op::RmsNorm { out: H, x: X, weight, rows_per_token: 1, first };
            steps.brick(RmsNorm, [(Value::OutputNorm, H, norm)]);
            let head = Op::Matmul { out: Logits, w: &w.head, x: H };
            let head = [
                Some((Value::Logits, Logits, head)),
                bias(Value::BiasedLogits, Logits, &w.head_bias),
            ];
            steps.brick(LmHead, head.into_iter().flatten());
        }
        Self { n, n_outputs, steps: steps.steps }
    }

    /// The work of the brick that begins at step `index`: that of its matrix products if it has any, as the additions
    /// after them are negligible; otherwise of all its steps.
    pub(crate) fn brick_work(&self, index: usize, c: &Config, position: usize) -> Work {
        let steps = &self.steps[index..];
        let len = 1 + steps[1..].iter().take_while(|step| !step.begins_brick).count();
        let is_matmul = |step: &&Step<'_>| matches!(step.op, Op::Matmul { .. });
        let has_matmul = steps[..len].iter().any(|step| is_matmul(&step));
        let parts = steps[..len].iter().filter(|step| !has_matmul || is_matmul(step));
        parts.fold(Work::default(), |sum, step| work::sum([sum, step.work(c, position)]))
    }

    /// Checks that a plan can say all that the model computes.
    ///
    /// # Errors
    ///
    /// If the model has scales: old files of `bitnet` have, and no device multiplies with them.
    pub(crate) fn check(w: &Weights, device: &str) -> Result<(), GpuError> {
        let mut matrices = w.layers.iter().flat_map(Layer::matrices);
        if matrices.any(|w| w.scale.is_some()) {
            let what = "the model has a scale beside a matrix (`….scale`)".to_owned();
            return Err(GpuError::Unsupported { device: device.to_owned(), what });
        }
        Ok(())
    }

    /// Every weight matrix that the steps read, once each.
    #[allow(dead_code)]
    pub(crate) fn matrices(w: &'m Weights) -> Vec<&'m Tensor> {
        let mut seen = Vec::new();
        w.matrices()
            .filter(|tensor| {
                let is_new = !seen.contains(&tensor.index);
                seen.push(tensor.index);
                is_new
            })
            .collect()
    }
}

impl Op<'_> {
    /// Its work on `n` tokens in a pass that begins at `position`, by the formulas of the CPU's kernels (`work.rs`).
    pub(crate) fn work(&self, n: usize, c: &Config, position: usize) -> Work {
        match *self {
            Self::Embed { table } => work::embed(table, n),
            Self::RmsNorm { weight, rows_per_token, .. } => {
                work::rms_norm(weight.len(), n * rows_per_token * weight.len())
            }
            Self::Matmul { w, .. } => work::matmul(w, n),
            Self::AddBias { bias, .. } => work::add(bias.len(), n),
            Self::Rope { heads, .. } => work::rope(heads * c.head_dim, n),
            Self::Scores { .. } => work::scores(c.n_heads, c.head_dim, c.kv_dim(), position, n),
            Self::Softmax => work::softmax(c.n_heads, position, n),
            Self::WeightedSum { .. } => {
                work::weighted_sum(c.n_heads, c.head_dim, c.kv_dim(), position, n)
            }
            Self::SiluMul => work::silu_mul(c.ffn_dim, n),
            Self::ReluSquaredMul => work::relu_squared_mul(c.ffn_dim, n),
            Self::Add { .. } => work::add(c.dim, n),
            Self::Fused(fused) => fused.work(c, position),
        }
    }
}

impl Step<'_> {
    /// Its work in a pass that begins at `position`.
    pub(crate) fn work(&self, c: &Config, position: usize) -> Work {
        self.op.work(self.tokens, c, position)
    }

    /// The name of its brick.
    pub(crate) fn brick_name(&self) -> &'static str {
        self.brick_name.unwrap_or_else(|| self.brick.name())
    }
}

struct List<'m> {
    steps: Vec<Step<'m>>,
    layer: Option<u16>,
    tokens: usize,
}

impl<'m> List<'m> {
    fn brick(
        &mut self,
        brick: BrickId,
        kernels: impl IntoIterator<Item = (Value, Operand, Op<'m>)>,
    ) {
        let (layer, tokens) = (self.layer, self.tokens);
        let steps = kernels.into_iter().enumerate().map(|(i, (value, out, op))| Step {
            layer,
            brick,
            brick_name: None,
            begins_brick: i == 0,
            value,
            out,
            tokens,
            op,
        });
        self.steps.extend(steps);
    }
}
