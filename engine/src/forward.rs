//! The forward pass. One function, one brick a line; read it next to the profile that it makes.
//!
//! ```text
//! x = embedding[tokens]
//! each layer:  x += Wo · attention(rope(Wq·h), rope(Wk·h), Wv·h)      h = norm(x)
//!              x += Wdown · (silu(Wgate·h) · Wup·h)                   h = norm(x)
//! logits = head · norm(x)
//! ```
//!
//! Keys and values are put into the KV cache when RoPE has rotated the keys, as a part of that brick: the
//! cache lies head by head, projections put out token by token. The residual additions belong to the
//! projections before them.

use brickscope::BrickId::*;
use brickscope_kernels::{Inputs, TileWatch, rope_tables};

use crate::config::Config;
use crate::executor::work;
use crate::executor::{Cpu, Deal, MULTIPLY_ADDS_OF_SOFTMAX, Routine, Routines};
use crate::kv_cache::KvCache;
use crate::model::Model;
use crate::probe::{KernelProbe, Probe};
use crate::tap::{Operation, Value};
use crate::weights::Tensor;

/// Which tokens' logits a pass computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// None: the pass only fills the KV cache.
    None,
    /// The last token's.
    Last,
    /// All tokens'.
    All,
}

impl Outputs {
    pub(crate) fn count(self, n_tokens: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Last => 1,
            Self::All => n_tokens,
        }
    }
}

/// Activations of up to `n` tokens. Allocated once; every pass overwrites them.
#[derive(Debug)]
pub(crate) struct Scratch {
    x: Vec<f32>,      // (n, dim)       the residual stream
    h: Vec<f32>,      // (n, dim)       normalised
    y: Vec<f32>,      // (n, dim)       what is added to the stream
    q: Vec<f32>,      // (n, q_dim)
    k: Vec<f32>,      // (n, kv_dim)    until it is in the KV cache
    v: Vec<f32>,      // (n, kv_dim)    likewise
    a: Vec<f32>,      // (n, q_dim)     the output of attention
    s: Vec<f32>,      // (n, n_heads, context)  scores
    gate: Vec<f32>,   // (n, ffn_dim)
    up: Vec<f32>,     // (n, ffn_dim)
    cos: Vec<f32>,    // (n, n_rot / 2)
    sin: Vec<f32>,    // (n, n_rot / 2)
    logits: Vec<f32>, // (outputs, n_vocab)
}

impl Scratch {
    /// How many numbers the scratch for `n` tokens at a time holds.
    pub(crate) fn floats(c: &Config, n: usize, context: usize) -> u128 {
        let widths = [3 * c.dim, 2 * c.q_dim(), 2 * c.kv_dim(), 2 * c.ffn_dim, c.n_rot];
        let each = widths.iter().map(|&width| width as u128).sum::<u128>()
            + c.n_heads as u128 * context as u128;
        n as u128 * each
    }

    pub(crate) fn new(model: &Model, n: usize, context: usize) -> Self {
        let c = &model.config;
        Self {
            x: vec![0.0; n * c.dim],
            h: vec![0.0; n * c.dim],
            y: vec![0.0; n * c.dim],
            q: vec![0.0; n * c.q_dim()],
            k: vec![0.0; n * c.kv_dim()],
            v: vec![0.0; n * c.kv_dim()],
            a: vec![0.0; n * c.q_dim()],
            s: vec![0.0; n * c.n_heads * context],
            gate: vec![0.0; n * c.ffn_dim],
            up: vec![0.0; n * c.ffn_dim],
            cos: vec![0.0; n * c.n_rot / 2],
            sin: vec![0.0; n * c.n_rot / 2],
            logits: Vec::new(),
        }
    }

    /// The logits of the last pass that computed any.
    pub(crate) fn last_logits(&self) -> &[f32] {
        &self.logits
    }
}

/// Who has the rows of attention's products, and those of its softmax. They are short at first and long at last: it is
/// decided anew in each pass.
pub(crate) fn deals_of_attention(cpu: &Cpu, c: &Config, pos: usize, n: usize) -> [Deal; 2] {
    let seen = work::pairs(c.n_heads, pos, n);
    [c.head_dim, MULTIPLY_ADDS_OF_SOFTMAX].map(|each| cpu.deal(n, c.n_heads, seen * each))
}

/// Where a pass runs, and with what.
pub(crate) struct Pass<'a, P> {
    pub(crate) model: &'a Model,
    pub(crate) cpu: &'a Cpu,
    pub(crate) routines: &'a Routines,
    pub(crate) probe: &'a P,
}

impl<P: Probe> Pass<'_, P> {
    /// `out = X·Wᵀ`. Out of line: the same code for all matrices of a layer, and what calls it is so short that
    /// a compiler inlines it whether there are probes around it or not.
    #[inline(never)]
    fn multiply(
        &self,
        out: &mut [f32],
        w: &Tensor,
        x: &mut Inputs<'_>,
        tiles: Option<&dyn TileWatch>,
    ) {
        self.cpu.matmul(out, w.matrix(&self.model.gguf), x, tiles);
    }

    /// `out = X·Wᵀ`, as a kernel of the running brick. Inlined, so that without a probe nothing is
    /// computed for it.
    #[inline(always)]
    fn matmul(
        &self,
        p: &mut P::Kernels<'_>,
        value: Value,
        out: &mut [f32],
        w: &Tensor,
        x: &mut Inputs<'_>,
    ) {
        let routine = self.routines.matmul(w.index, x.n());
        p.kernel(routine, work::matmul(w, x.n()), || {
            self.multiply(out, w, x, self.probe.tiles());
        });
        self.probe.tap(value, Some(routine), Operation::Matmul { w, x: x.x() }, out);
    }

    /// `out = X·Wᵀ`, as a brick of its own. Inlined likewise.
    #[inline(always)]
    fn matmul_brick(&self, value: Value, out: &mut [f32], w: &Tensor, x: &mut Inputs<'_>) {
        let routine = self.routines.matmul(w.index, x.n());
        self.probe.brick_kernel(value.brick(), routine, work::matmul(w, x.n()), || {
            self.multiply(out, w, x, self.probe.tiles());
        });
        self.probe.tap(value, Some(routine), Operation::Matmul { w, x: x.x() }, out);
    }

    /// `x += y`, as a kernel.
    fn add(&self, p: &mut P::Kernels<'_>, value: Value, x: &mut [f32], y: &[f32]) {
        p.kernel(self.routines.add, work::add(x.len(), 1), || {
            self.cpu.kernels.add(x, y);
        });
        self.probe.tap(value, Some(self.routines.add), Operation::Exact, x);
    }

    /// `x += bias` on each row, where there is one.
    fn add_bias(
        &self,
        p: &mut P::Kernels<'_>,
        value: Value,
        routine: Routine,
        x: &mut [f32],
        bias: Option<&[f32]>,
    ) {
        let Some(bias) = bias else { return };
        p.kernel(routine, work::add(x.len(), 1), || {
            self.cpu.kernels.add_bias(x, bias);
        });
        self.probe.tap(value, Some(routine), Operation::Exact, x);
    }

    /// Runs `tokens` through the model, after those in `kv`. Returns the logits of the tokens in
    /// `outputs`, one row of the vocabulary each. Advancing the cache is the caller's: outside of what probes run
    /// nothing is done here that can't be done again, so that a probe may run nothing, and only hear what there is.
    ///
    /// The caller has held the number of tokens against the scratch and the cache, and their ids
    /// against the vocabulary.
    pub(crate) fn forward<'s>(
        &self,
        scratch: &'s mut Scratch,
        kv: &mut KvCache,
        tokens: &[u32],
        outputs: Outputs,
    ) -> &'s [f32] {
        let Self { model, cpu, routines, probe: p, .. } = *self;
        let (c, w, kernels) = (&model.config, &model.weights, cpu.kernels);
        let (n, pos) = (tokens.len(), kv.len());
        let (dim, head, ffn) = (c.dim, c.head_dim, c.ffn_dim);
        let (q_dim, kv_dim, n_heads) = (c.q_dim(), c.kv_dim(), c.n_heads);
        let context = pos + n; // tokens that the last one sees
        let heads_per_kv = n_heads / c.n_kv_heads;
        let n_pairs = c.n_rot / 2;
        let scale = 1.0 / (head as f32).sqrt();
        let pairs = c.architecture.rope_pairs();
        let [of_dots, of_softmax] = deals_of_attention(cpu, c, pos, n);

        let x = &mut scratch.x[..n * dim];
        let h = &mut scratch.h[..n * dim];
        let y = &mut scratch.y[..n * dim];
        let q = &mut scratch.q[..n * q_dim];
        let k = &mut scratch.k[..n * kv_dim];
        let v = &mut scratch.v[..n * kv_dim];
        let a = &mut scratch.a[..n * q_dim];
        let s = &mut scratch.s[..n * n_heads * context];
        let gate = &mut scratch.gate[..n * ffn];
        let up = &mut scratch.up[..n * ffn];
        let cos = &mut scratch.cos[..n * n_pairs];
        let sin = &mut scratch.sin[..n * n_pairs];

        // Each norm, n rows at once; `out` and `x` are (n, weight.len()).
        let norm = |value, routine, out: &mut [f32], x: &[f32], weight: &[f32]| {
            let width = weight.len();
            let work = work::rms_norm(width, x.len());
            p.brick_kernel(RmsNorm, routine, work, || {
                for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                    kernels.rms_norm(out, x, weight, c.norm_eps);
                }
            });
            p.tap(value, Some(routine), Operation::RmsNorm { width }, out);
        };
        let norm_in_place = |value, routine, x: &mut [f32], weight: &[f32]| {
            let width = weight.len();
            let work = work::rms_norm(width, x.len());
            p.brick_kernel(RmsNorm, routine, work, || {
                for x in x.chunks_exact_mut(width) {
                    kernels.rms_norm_in_place(x, weight, c.norm_eps);
                }
            });
            p.tap(value, Some(routine), Operation::RmsNorm { width }, x);
        };

        let n_out = outputs.count(n);
        scratch.logits.resize(n_out * c.n_vocab, 0.0);

        let work = work::embed(&w.embedding, n);
        p.begin();
        p.brick_kernel(Embedding, routines.embed, work, || {
            let table = w.embedding.matrix(&model.gguf);
            for (x, &token) in x.chunks_exact_mut(dim).zip(tokens) {
                table.dequantize_row(token as usize, x);
            }
        });
        p.tap(Value::Embedding, Some(routines.embed), Operation::Exact, x);
        // The angles are the same in all layers.
        p.brick(RopeEmbedding, brickscope::Work::elements((n * n_pairs) as u64), || {
            let angles = cos.chunks_exact_mut(n_pairs).zip(sin.chunks_exact_mut(n_pairs));
            for (i, (cos, sin)) in angles.enumerate() {
                let factors = w.rope_factors.as_deref();
                rope_tables(pos + i, c.rope_base, c.n_rot, factors, c.rope_scale, cos, sin);
            }
        });
        p.tap(Value::Cos, None, Operation::Exact, cos);
        p.tap(Value::Sin, None, Operation::Exact, sin);

        for (i, (w, mut kv)) in w.layers.iter().zip(kv.layers_mut()).enumerate() {
            p.layer(i, || {
                norm(Value::AttentionNorm, routines.rms_norm, h, x, &w.attn_norm);
                // What kernels make of an input is made in the first that needs it, for all that share it.
                let input = &mut Inputs::new(h, n);
                let parts = [&w.q, &w.k, &w.v].map(|w| work::matmul(w, n));
                p.brick_kernels(QkvProjection, work::sum(parts), |p| {
                    self.matmul(p, Value::Q, q, &w.q, input);
                    self.matmul(p, Value::K, k, &w.k, input);
                    self.matmul(p, Value::V, v, &w.v, input);
                    self.add_bias(p, Value::BiasedQ, routines.add_q_bias, q, w.q_bias.as_deref());
                    self.add_bias(p, Value::BiasedK, routines.add_kv_bias, k, w.k_bias.as_deref());
                    self.add_bias(p, Value::BiasedV, routines.add_kv_bias, v, w.v_bias.as_deref());
                });
                if let (Some(q_norm), Some(k_norm)) = (&w.q_norm, &w.k_norm) {
                    norm_in_place(Value::NormedQ, routines.head_norm, q, q_norm);
                    norm_in_place(Value::NormedK, routines.head_norm, k, k_norm);
                }
                let parts = [work::rope(q_dim + kv_dim, n), work::cache(kv_dim, n)];
                p.brick_kernel(RopeEmbedding, routines.rope, work::sum(parts), || {
                    for (rows, width) in [(&mut *q, q_dim), (&mut *k, kv_dim)] {
                        for (t, row) in rows.chunks_exact_mut(width).enumerate() {
                            let angles = t * n_pairs..(t + 1) * n_pairs;
                            for x in row.chunks_exact_mut(head) {
                                kernels.rope(x, &cos[angles.clone()], &sin[angles.clone()], pairs);
                            }
                        }
                    }
                    p.tap(Value::RotatedQ, Some(routines.rope), Operation::Rope, q);
                    p.tap(Value::RotatedK, Some(routines.rope), Operation::Rope, k);
                    kv.k.put(pos, k);
                    kv.v.put(pos, v);
                });

                // Row t·n_heads + j of the scores is query head j of token t.
                let read_keys = p.tap_cache(Value::CachedKeys, &mut kv.k, context);
                let visible = |row: usize| pos + row / n_heads + 1;
                let kv_head = |row: usize| row % n_heads / heads_per_kv;
                let work = work::scores(n_heads, head, kv_dim, pos, n);
                p.brick_kernel(AttentionScore, routines.scores.pick(of_dots), work, || {
                    cpu.each_row(of_dots, s, context, |row, s| {
                        let q = &q[row * head..(row + 1) * head];
                        let keys = kv.k.head(kv_head(row));
                        kernels.scores(&mut s[..visible(row)], q, keys, head, scale);
                    });
                });
                p.tap(
                    Value::Scores,
                    Some(routines.scores.pick(of_dots)),
                    Operation::Scores { q, keys: &read_keys },
                    s,
                );
                let work = work::softmax(n_heads, pos, n);
                p.brick_kernel(AttentionSoftmax, routines.softmax.pick(of_softmax), work, || {
                    cpu.each_row(of_softmax, s, context, |row, s| {
                        kernels.softmax(&mut s[..visible(row)])
                    });
                });
                p.tap(
                    Value::Probabilities,
                    Some(routines.softmax.pick(of_softmax)),
                    Operation::Softmax,
                    s,
                );
                let read_values = p.tap_cache(Value::CachedValues, &mut kv.v, context);
                let work = work::weighted_sum(n_heads, head, kv_dim, pos, n);
                p.brick_kernel(AttentionOutput, routines.weighted_sum.pick(of_dots), work, || {
                    cpu.each_row(of_dots, a, head, |row, a| {
                        let s = &s[row * context..][..visible(row)];
                        kernels.weighted_sum(a, s, kv.v.head(kv_head(row)), head);
                    });
                });
                p.tap(
                    Value::Attention,
                    Some(routines.weighted_sum.pick(of_dots)),
                    Operation::WeightedSum { p: s, values: &read_values },
                    a,
                );
                if let Some(sub_norm) = &w.attn_sub_norm {
                    norm_in_place(Value::AttentionSubNorm, routines.attn_sub_norm, a, sub_norm);
                }
                p.brick_kernels(OutputProjection, work::matmul(&w.output, n), |p| {
                    self.matmul(p, Value::Output, y, &w.output, &mut Inputs::new(a, n));
                    self.add(p, Value::AttentionResidual, x, y);
                });

                norm(Value::FfnNorm, routines.rms_norm, h, x, &w.ffn_norm);
                let input = &mut Inputs::new(h, n);
                self.matmul_brick(Value::Gate, gate, &w.gate, input);
                self.matmul_brick(Value::Up, up, &w.up, input);
                let work = work::silu_mul(ffn, n);
                p.brick_kernel(Activation, routines.silu_mul, work, || kernels.silu_mul(gate, up));
                let silu_mul = Operation::SiluMul { up };
                p.tap(Value::Activation, Some(routines.silu_mul), silu_mul, gate);
                if let Some(sub_norm) = &w.ffn_sub_norm {
                    norm_in_place(Value::FfnSubNorm, routines.ffn_sub_norm, gate, sub_norm);
                }
                p.brick_kernels(DownProjection, work::matmul(&w.down, n), |p| {
                    self.matmul(p, Value::Down, y, &w.down, &mut Inputs::new(gate, n));
                    self.add(p, Value::FfnResidual, x, y);
                });
            });
        }
        if n_out > 0 {
            let h = &mut h[..n_out * dim];
            let x = &x[(n - n_out) * dim..];
            norm(Value::OutputNorm, routines.rms_norm, h, x, &w.output_norm);
            let input = &mut Inputs::new(h, n_out);
            self.matmul_brick(Value::Logits, &mut scratch.logits, &w.head, input);
        }
        &scratch.logits
    }
}
