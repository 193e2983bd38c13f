//! The values of a forward pass, one by one: what each kernel puts out, and what attention reads
//! from the KV cache.
//!
//! A tap sees a value between two kernels and may change it. That is how two executors are held
//! against each other ([`diverge`](crate::diverge)), and how a test plants a fault.

use std::cell::Cell;

use brickscope::{BrickId, Work};

use crate::executor::Routine;
use crate::kv_cache::Heads;
use crate::probe::{NoProbe, Probe};
use crate::weights::Tensor;

/// A value of the forward pass. `n` tokens each; shapes are row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// `(n, dim)`, the tokens' rows of the embedding.
    Embedding,
    /// `(n, n_rot / 2)`, the cosines of RoPE's angles.
    Cos,
    /// `(n, n_rot / 2)`, their sines.
    Sin,
    /// `(n, dim)`, the input of the attention block.
    AttentionNorm,
    /// `(n, q_dim)`, the projection alone.
    Q,
    /// `(n, kv_dim)`, the projection alone.
    K,
    /// `(n, kv_dim)`, the projection alone.
    V,
    /// `(n, q_dim)`, with its bias.
    BiasedQ,
    /// `(n, kv_dim)`, with its bias.
    BiasedK,
    /// `(n, kv_dim)`, with its bias.
    BiasedV,
    /// `(n, q_dim)`, normalised head by head.
    NormedQ,
    /// `(n, kv_dim)`, normalised head by head.
    NormedK,
    /// `(n, q_dim)`, rotated.
    RotatedQ,
    /// `(n, kv_dim)`, rotated: the new rows of the KV cache. A CPU puts them there next, a device has done so.
    RotatedK,
    /// `(position + n, kv_dim)`, all keys that attention is about to read. One row a position, however they
    /// lie in the KV cache.
    CachedKeys,
    /// `(n, n_heads, position + n)`; token `t` has `position + t + 1` scores, what is after them
    /// has no meaning.
    Scores,
    /// As the scores.
    Probabilities,
    /// `(position + n, kv_dim)`, all values that attention is about to read. One row a position likewise.
    CachedValues,
    /// `(n, q_dim)`, the values weighted by the probabilities.
    Attention,
    /// `(n, q_dim)`, the input of the output projection, where it has a norm of its own.
    AttentionSubNorm,
    /// `(n, dim)`, the output projection alone.
    Output,
    /// `(n, dim)`, the residual stream after attention.
    AttentionResidual,
    /// `(n, dim)`, the input of the feed-forward block.
    FfnNorm,
    /// `(n, ffn_dim)`.
    Gate,
    /// `(n, ffn_dim)`.
    Up,
    /// `(n, ffn_dim)`, `silu(gate) · up`.
    Activation,
    /// `(n, ffn_dim)`, the input of the down projection, where it has a norm of its own.
    FfnSubNorm,
    /// `(n, dim)`, the down projection alone.
    Down,
    /// `(n, dim)`, the residual stream after the layer.
    FfnResidual,
    /// `(outputs, dim)`, the input of the head.
    OutputNorm,
    /// `(outputs, n_vocab)`.
    Logits,
}

impl Value {
    /// The brick that makes it, or for the KV cache the one that reads it.
    #[must_use]
    pub const fn brick(self) -> BrickId {
        match self {
            Self::Embedding => BrickId::Embedding,
            Self::Cos | Self::Sin | Self::RotatedQ | Self::RotatedK => BrickId::RopeEmbedding,
            Self::Q | Self::K | Self::V | Self::BiasedQ | Self::BiasedK | Self::BiasedV => {
                BrickId::QkvProjection
            }
            Self::AttentionNorm
            | Self::NormedQ
            | Self::NormedK
            | Self::AttentionSubNorm
            | Self::FfnNorm
            | Self::FfnSubNorm
            | Self::OutputNorm => BrickId::RmsNorm,
            Self::CachedKeys | Self::Scores => BrickId::AttentionScore,
            Self::Probabilities => BrickId::AttentionSoftmax,
            Self::CachedValues | Self::Attention => BrickId::AttentionOutput,
            Self::Output | Self::AttentionResidual => BrickId::OutputProjection,
            Self::Gate => BrickId::GateProjection,
            Self::Up => BrickId::UpProjection,
            Self::Activation => BrickId::Activation,
            Self::Down | Self::FfnResidual => BrickId::DownProjection,
            Self::Logits => BrickId::LmHead,
        }
    }

    /// A few words for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Cos => "cosines",
            Self::Sin => "sines",
            Self::AttentionNorm => "attention norm",
            Self::Q => "Q",
            Self::K => "K",
            Self::V => "V",
            Self::BiasedQ => "Q + bias",
            Self::BiasedK => "K + bias",
            Self::BiasedV => "V + bias",
            Self::NormedQ => "Q norm",
            Self::NormedK => "K norm",
            Self::RotatedQ => "rotated Q",
            Self::RotatedK => "rotated K",
            Self::CachedKeys => "keys read from the KV cache",
            Self::Scores => "scores",
            Self::Probabilities => "probabilities",
            Self::CachedValues => "values read from the KV cache",
            Self::Attention => "attention",
            Self::AttentionSubNorm => "attention sub-norm",
            Self::Output => "output projection",
            Self::AttentionResidual => "residual after attention",
            Self::FfnNorm => "FFN norm",
            Self::Gate => "gate",
            Self::Up => "up",
            Self::Activation => "activation",
            Self::FfnSubNorm => "FFN sub-norm",
            Self::Down => "down projection",
            Self::FfnResidual => "residual after the FFN",
            Self::OutputNorm => "output norm",
            Self::Logits => "logits",
        }
    }

    /// Whether it is a part of the KV cache, with one row for each position so far.
    #[must_use]
    pub const fn is_cache(self) -> bool {
        matches!(self, Self::CachedKeys | Self::CachedValues)
    }
}

/// The operation that made a value, with those of its inputs that are still there: what a bound on
/// its rounding errors needs.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// One that rounds at most once, or runs the same code everywhere: to be equal to the bit.
    Exact,
    /// `X·Wᵀ`.
    Matmul {
        /// The weights.
        w: &'a Tensor,
        /// `(n, w.cols)`.
        x: &'a [f32],
    },
    /// An RMS norm of rows of this width.
    RmsNorm {
        /// Elements that are normalised together.
        width: usize,
    },
    /// Rotated pairs.
    Rope,
    /// `q·k / √head_dim`.
    Scores {
        /// `(n, q_dim)`.
        q: &'a [f32],
        /// `(position + n, kv_dim)`.
        keys: &'a [f32],
    },
    /// A softmax over what a token sees, in place.
    Softmax,
    /// `Σ p·v`.
    WeightedSum {
        /// `(n, n_heads, position + n)`.
        p: &'a [f32],
        /// `(position + n, kv_dim)`.
        values: &'a [f32],
    },
    /// `silu(gate) · up`, in place of the gate.
    SiluMul {
        /// `(n, ffn_dim)`.
        up: &'a [f32],
    },
}

/// Where in a run a value is.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The position of the pass's first token.
    pub position: usize,
    /// Tokens in the pass.
    pub n_tokens: usize,
    /// The transformer layer; `None` outside of layers.
    pub layer: Option<usize>,
    /// Which value.
    pub value: Value,
    /// The kernel that made it; `None` for what no kernel makes.
    pub routine: Option<Routine>,
    /// How.
    pub operation: Operation<'a>,
}

/// Hands every value of a pass to a function.
pub(crate) struct Tapped<'f> {
    position: usize,
    n_tokens: usize,
    layer: Cell<Option<usize>>,
    tap: &'f dyn Fn(At<'_>, &mut [f32]),
}

impl<'f> Tapped<'f> {
    /// For a pass of so many tokens at `position`.
    pub(crate) fn new(
        position: usize,
        n_tokens: usize,
        tap: &'f dyn Fn(At<'_>, &mut [f32]),
    ) -> Self {
        Self { position, n_tokens, layer: Cell::new(None), tap }
    }
}

impl Probe for Tapped<'_> {
    fn layer(&self, index: usize, run: impl FnOnce()) {
        self.layer.set(Some(index));
        run();
        self.layer.set(None);
    }

    fn brick(&self, _: BrickId, _: Work, run: impl FnOnce()) {
        run();
    }

    fn brick_kernel(&self, _: BrickId, _: Routine, _: Work, run: impl FnOnce()) {
        run();
    }

    fn brick_kernels<'a>(&'a self, _: BrickId, _: Work, run: impl FnOnce(&mut Self::Kernels<'a>)) {
        run(&mut NoProbe);
    }

    fn tap(
        &self,
        value: Value,
        routine: Option<Routine>,
        operation: Operation<'_>,
        out: &mut [f32],
    ) {
        let Self { position, n_tokens, ref layer, tap } = *self;
        tap(At { position, n_tokens, layer: layer.get(), value, routine, operation }, out);
    }

    fn tap_cache(&self, value: Value, heads: &mut Heads<'_>, n_tokens: usize) -> Vec<f32> {
        let mut rows = heads.rows(n_tokens);
        self.tap(value, None, Operation::Exact, &mut rows);
        heads.put(0, &rows);
        rows
    }

    // A tap hears of values, not of kernels.
    type Kernels<'a>
        = NoProbe
    where
        Self: 'a;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::num::NonZeroUsize;
    use std::path::Path;

    use brickscope_kernels::Kernels;

    use super::*;
    use crate::executor::Cpu;
    use crate::model::Model;
    use crate::session::Session;

    /// Runs three tokens, then one; `change` sees their values, and what it leaves of those of layer 1 is
    /// returned, pass by pass.
    fn tapped(change: &dyn Fn(At<'_>, &mut [f32])) -> [Vec<(Value, Vec<f32>)>; 2] {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models");
        let model = Model::open(&models.join("tiny-F16.gguf")).expect("the fixture");
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).expect("one thread");
        let mut session = Session::new(&model, cpu, 4).expect("room for four tokens");
        [&[1, 2, 3][..], &[4]].map(|tokens| {
            let seen = RefCell::new(Vec::new());
            let tap = |at: At<'_>, out: &mut [f32]| {
                if at.layer == Some(1) {
                    change(at, out);
                    seen.borrow_mut().push((at.value, out.to_vec()));
                }
            };
            session.forward_tapped(tokens, &tap).expect("tokens");
            seen.into_inner()
        })
    }

    fn find(pass: &[(Value, Vec<f32>)], value: Value) -> &[f32] {
        &pass.iter().find(|(name, _)| *name == value).expect("the pass has it").1
    }

    #[test]
    fn the_cache_holds_new_keys_and_values_as_taps_left_them() {
        for (new, cached) in [(Value::RotatedK, Value::CachedKeys), (Value::V, Value::CachedValues)]
        {
            let passes = tapped(&|at, out| {
                if at.value == new {
                    (0..).zip(out).for_each(|(i, x)| *x = (100 * at.position + i) as f32);
                }
            });
            let [first, second] = passes.each_ref().map(|pass| find(pass, new));
            assert_eq!((first[1], second[1]), (1.0, 301.0));
            assert_eq!(find(&passes[0], cached), first);
            assert_eq!(find(&passes[1], cached), [first, second].concat());
        }
    }

    #[test]
    fn attention_reads_what_a_tap_of_the_cache_left() {
        // All values are alike, so what the probabilities are is of no matter.
        let passes = tapped(&|at, out| {
            if at.value == Value::CachedValues {
                out.fill(0.5);
            }
        });
        for pass in &passes {
            let attention = find(pass, Value::Attention);
            assert!(attention.iter().all(|x| (x - 0.5).abs() < 1e-5), "{attention:?}");
        }
        // The first pass leaves the first token's key alone; the token of the second has one of its own.
        let passes = tapped(&|at, out| {
            if at.value == Value::CachedKeys && at.position == 0 {
                let row = out.len() / at.n_tokens;
                out[row..].fill(0.0);
            }
        });
        let keys = find(&passes[1], Value::CachedKeys);
        let row = keys.len() / 4;
        assert!(keys[..row].iter().all(|&x| x != 0.0));
        assert!(keys[row..3 * row].iter().all(|&x| x == 0.0));
        for (i, &score) in find(&passes[1], Value::Scores).iter().enumerate() {
            assert_eq!(score == 0.0, [1, 2].contains(&(i % 4)), "score {i} is {score}");
        }
    }
}
