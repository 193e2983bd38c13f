//! Steps of a plan that an executor can run in one kernel, when there is a single token.
//!
//! A token's products take a few microseconds each on a fast device, and each launch takes about two. So the steps between
//! products are computed where a product begins or ends.

use brickscope::Work;

use crate::config::Config;
use crate::executor::gpu::plan::{Op, Operand, Plan, Step};
use crate::weights::Tensor;
use crate::work;

/// The name of the brick of [`Fused::Attention`].
pub(crate) const ATTENTION: &str = "FlashAttention";
/// The name of the brick of [`Fused::GateUp`].
pub(crate) const GATE_UP: &str = "GateUpProjection";

/// What one kernel computes. `h` is `X`, normalised by its root mean square and `norm`.
#[derive(Debug, Clone, Copy)]
pub enum Fused<'m> {
    /// `Q = wq · h`, `K = wk · h`, `V = wv · h`; and `Q` and `K` are rotated by the token's angles.
    QkvRope {
        /// `(dim)`.
        norm: &'m [f32],
        /// `(q_dim, dim)`.
        q: &'m Tensor,
        /// `(kv_dim, dim)`.
        k: &'m Tensor,
        /// `(kv_dim, dim)`.
        v: &'m Tensor,
        /// The layer of the cache.
        layer: usize,
    },
    /// `A = softmax(Q · Kᵀ / sqrt(head_dim)) · V`.
    Attention {
        /// The layer of keys and values.
        layer: usize,
    },
    /// `X += w · x`.
    MatmulAdd {
        /// `(dim, w.cols)`.
        w: &'m Tensor,
        /// `(w.cols)`.
        x: Operand,
    },
    /// `Gate = f(gate · h) · (up · h)`.
    GateUp {
        /// `(dim)`.
        norm: &'m [f32],
        /// `(ffn_dim, dim)`.
        gate: &'m Tensor,
        /// `(ffn_dim, dim)`.
        up: &'m Tensor,
        /// Whether `f` is `max(·, 0)²` and not SiLU.
        is_squared: bool,
    },
    /// `Logits = w · h`.
    Head {
        /// `(dim)`.
        norm: &'m [f32],
        /// `(n_vocab, dim)`.
        w: &'m Tensor,
    },
}

impl<'m> Fused<'m> {
    /// The operations that it is the same as.
    pub(super) fn parts(self, c: &Config) -> Vec<Op<'m>> {
        use Operand::{Gate, H, K, Logits, Q, Up, V, X, Y};
        let norm = |weight| Op::RmsNorm { out: H, x: X, weight, rows_per_token: 1, first: 0 };
        let matmul = |out, w, x| Op::Matmul { out, w, x };
        match self {
            Self::QkvRope { norm: weight, q, k, v, layer } => vec![
                norm(weight),
                matmul(Q, q, H),
                matmul(K(layer), k, H),
                matmul(V(layer), v, H),
                Op::Rope { x: Q, heads: c.n_heads },
                Op::Rope { x: K(layer), heads: c.n_kv_heads },
            ],
            Self::Attention { layer } => {
                vec![Op::Scores { layer }, Op::Softmax, Op::WeightedSum { layer }]
            }
            Self::MatmulAdd { w, x } => vec![matmul(Y, w, x), Op::Add { x: X, y: Y }],
            Self::GateUp { norm: weight, gate, up, is_squared } => vec![
                norm(weight),
                matmul(Gate, gate, H),
                matmul(Up, up, H),
                if is_squared { Op::ReluSquaredMul } else { Op::SiluMul },
            ],
            Self::Head { norm: weight, w } => vec![norm(weight), matmul(Logits, w, H)],
        }
    }

    /// Its work, by the same rule as [`Plan::brick_work`].
    pub(super) fn work(self, c: &Config, position: usize) -> Work {
        let parts = self.parts(c);
        let is_matmul = |op: &Op<'_>| matches!(op, Op::Matmul { .. });
        let has_matmul = parts.iter().any(is_matmul);
        let counted = parts.into_iter().filter(|op| !has_matmul || is_matmul(op));
        counted.fold(Work::default(), |sum, op| work::sum([sum, op.work(1, c, position)]))
    }
}

/// What an executor's kernels can do.
pub(crate) trait Fuses {
    /// Whether one kernel can multiply with all of these.
    fn in_one_kernel(&self, weights: &[&Tensor]) -> bool;

    /// Whether attention to heads of this size is one kernel.
    fn attends(&self, c: &Config) -> bool;
}

impl<'m> Plan<'m> {
    /// The same plan with fewer steps, if it is of one token.
    pub(crate) fn fused(self, c: &Config, executor: &impl Fuses) -> Self {
        if self.n != 1 {
            return self;
        }
        let mut left = &self.steps[..];
        let mut steps = Vec::new();
        while let Some((first, rest)) = left.split_first() {
            let (step, n) = first_fused(left, c, executor).unwrap_or((*first, 1));
            steps.push(step);
            left = if n == 1 { rest } else { &left[n..] };
        }
        Self { steps, ..self }
    }
}

/// The step that does what the first of these do, and how many those are.
fn first_fused<'m>(
    steps: &[Step<'m>],
    c: &Config,
    executor: &impl Fuses,
) -> Option<(Step<'m>, usize)> {
    use Operand::{A, Gate, H, K, Logits, Q, Up, V, X, Y};
    let ops: Vec<Op<'m>> = steps.iter().take(6).map(|step| step.op).collect();
    // The brick of one of them, as the only step of its brick.
    let of = |index: usize, n: usize, name, fused| {
        let last = &steps[n - 1];
        let step = Step {
            brick: steps[index].brick,
            brick_name: name,
            begins_brick: true,
            op: Op::Fused(fused),
            ..*last
        };
        Some((step, n))
    };
    // An output or a bias after the last of them would be of the same brick.
    let ends_brick = |n: usize| steps.get(n).is_none_or(|next| next.begins_brick);
    match ops[..] {
        [
            Op::RmsNorm { out: H, x: X, weight: norm, rows_per_token: 1, first: 0 },
            Op::Matmul { out: Q, w: q, x: H },
            Op::Matmul { out: K(layer), w: k, x: H },
            Op::Matmul { out: V(_), w: v, x: H },
            Op::Rope { x: Q, .. },
            Op::Rope { x: K(_), .. },
        ] if c.head_dim.is_multiple_of(2) && executor.in_one_kernel(&[q, k, v]) => {
            of(1, 6, None, Fused::QkvRope { norm, q, k, v, layer })
        }
        [Op::Scores { layer }, Op::Softmax, Op::WeightedSum { .. }, ..] if executor.attends(c) => {
            of(2, 3, Some(ATTENTION), Fused::Attention { layer })
        }
        [Op::Matmul { out: Y, w, x: x @ (A | Gate) }, Op::Add { x: X, y: Y }, ..] => {
            of(0, 2, None, Fused::MatmulAdd { w, x })
        }
        [
            Op::RmsNorm { out: H, x: X, weight: norm, rows_per_token: 1, first: 0 },
            Op::Matmul { out: Gate, w: gate, x: H },
            Op::Matmul { out: Up, w: up, x: H },
            activation @ (Op::SiluMul | Op::ReluSquaredMul),
            ..,
        ] if executor.in_one_kernel(&[gate, up]) => {
            let is_squared = matches!(activation, Op::ReluSquaredMul);
            of(1, 4, Some(GATE_UP), Fused::GateUp { norm, gate, up, is_squared })
        }
        [
            Op::RmsNorm { out: H, x: X, weight: norm, rows_per_token: 1, first: 0 },
            Op::Matmul { out: Logits, w, x: H },
            ..,
        ] if ends_brick(2) => of(1, 2, None, Fused::Head { norm, w }),
        _ => None,
    }
}
