//! The forward pass. `Pass::forward` has one brick a line: read it next to the profile that it makes. What each
//! brick computes is below it.
//!
//! ```text
//! x = embedding[tokens]
//! each layer:  x += Wo · attention(rope(Wq·h), rope(Wk·h), Wv·h)      h = norm(x)
//!              x += Wdown · (f(Wgate·h) · Wup·h)                      h = norm(x)
//! logits = head · norm(x)
//! ```
//!
//! The RoPE brick also writes keys and values to the KV cache, which is laid out head by head; projections
//! put them out token by token. Scales, biases and the residual additions belong to the projections before them.
//! `f` is SiLU, or squared ReLU in `bitnet-b1.58`.

use brickscope::BrickId::{self, *};
use brickscope_kernels::{Inputs, TileWatch, rope_tables};

use crate::config::{Activation, Config};
use crate::cpu::{Cpu, Deal, MULTIPLY_ADDS_OF_SOFTMAX};
use crate::kv_cache::{Heads, KvCache, KvLayer};
use crate::model::Model;
use crate::probe::{KernelProbe, Probe};
use crate::routines::{ByWidth, Routine, Routines};
use crate::value::{Operation, Value};
use crate::weights::Tensor;
use crate::work;

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

/// The passes that a run of `tokens` takes, at most `batch` tokens each. Only the last one computes logits, those of its
/// last token.
pub(crate) fn passes(tokens: &[u32], batch: usize) -> impl Iterator<Item = (&[u32], Outputs)> {
    let n_passes = tokens.len().div_ceil(batch);
    tokens
        .chunks(batch)
        .zip(1..)
        .map(move |(pass, i)| (pass, if i < n_passes { Outputs::None } else { Outputs::Last }))
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
    /// Numbers in the scratch for up to `n` tokens.
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

/// The routine for the width of a projection.
fn for_width_of(projection: Value, routines: ByWidth) -> Routine {
    match projection {
        Value::Q => routines.q,
        Value::K | Value::V => routines.kv,
        Value::Gate | Value::Up => routines.ffn,
        Value::Logits => routines.vocab,
        _ => routines.dim,
    }
}

/// How the rows of attention's products, and those of its softmax, are dealt out to threads. Rows grow with the
/// position, so each pass decides anew.
pub(crate) fn deals_of_attention(cpu: &Cpu, c: &Config, pos: usize, n: usize) -> [Deal; 2] {
    let seen = work::pairs(c.n_heads, pos, n);
    [c.head_dim, MULTIPLY_ADDS_OF_SOFTMAX].map(|each| cpu.deal(n, c.n_heads, seen * each))
}

/// The rows of attention: row `t · n_heads + j` is query head `j` of token `t`.
#[derive(Clone, Copy)]
struct AttentionRows {
    pos: usize,
    n_heads: usize,
    heads_per_kv: usize,
}

impl AttentionRows {
    /// Tokens that the row's token sees.
    #[inline(always)]
    fn visible(self, row: usize) -> usize {
        self.pos + row / self.n_heads + 1
    }

    /// The key head that serves the row's query head.
    #[inline(always)]
    fn kv_head(self, row: usize) -> usize {
        row % self.n_heads / self.heads_per_kv
    }
}

/// One pass of `n` tokens: what runs it, and where in the sequence it is.
pub(crate) struct Pass<'a, P> {
    model: &'a Model,
    cpu: &'a Cpu,
    routines: &'a Routines,
    probe: &'a P,
    n: usize,
    pos: usize, // of the first token
    rows: AttentionRows,
    dots: Deal,    // of the rows of `q·k` and `p·v`
    softmax: Deal, // of the rows of the softmax
}

impl<'a, P: Probe> Pass<'a, P> {
    pub(crate) fn new(
        model: &'a Model,
        cpu: &'a Cpu,
        routines: &'a Routines,
        probe: &'a P,
        pos: usize,
        n: usize,
    ) -> Self {
        let c = &model.config;
        let heads_per_kv = c.n_heads / c.n_kv_heads;
        let rows = AttentionRows { pos, n_heads: c.n_heads, heads_per_kv };
        let [dots, softmax] = deals_of_attention(cpu, c, pos, n);
        Self { model, cpu, routines, probe, n, pos, rows, dots, softmax }
    }

    /// Runs `tokens` through the model, after those in `kv`. Returns the logits of the tokens in `outputs`, one row
    /// of the vocabulary each. The caller advances the cache: nothing outside the probes' calls leaves a trace, so a
    /// probe may skip all bricks and only listen.
    ///
    /// The caller has checked the number of tokens against scratch and cache, and their ids against the vocabulary.
    pub(crate) fn forward<'s>(
        &self,
        scratch: &'s mut Scratch,
        kv: &mut KvCache,
        tokens: &[u32],
        outputs: Outputs,
    ) -> &'s [f32] {
        let Self { model, routines, probe: p, n, .. } = *self;
        let (c, w) = (&model.config, &model.weights);
        let (dim, ffn, n_pairs) = (c.dim, c.ffn_dim, c.n_rot / 2);
        let (q_dim, kv_dim) = (c.q_dim(), c.kv_dim());

        let x = &mut scratch.x[..n * dim];
        let h = &mut scratch.h[..n * dim];
        let y = &mut scratch.y[..n * dim];
        let q = &mut scratch.q[..n * q_dim];
        let k = &mut scratch.k[..n * kv_dim];
        let v = &mut scratch.v[..n * kv_dim];
        let a = &mut scratch.a[..n * q_dim];
        let s = &mut scratch.s[..n * c.n_heads * (self.pos + n)];
        let gate = &mut scratch.gate[..n * ffn];
        let up = &mut scratch.up[..n * ffn];
        let cos = &mut scratch.cos[..n * n_pairs];
        let sin = &mut scratch.sin[..n * n_pairs];
        let n_out = outputs.count(n);
        scratch.logits.resize(n_out * c.n_vocab, 0.0);

        p.begin();
        self.embed(x, tokens);
        self.rope_angles(cos, sin); // the same in all layers
        for (i, (w, mut kv)) in w.layers.iter().zip(kv.layers_mut()).enumerate() {
            p.layer(i, || {
                self.norm(Value::AttentionNorm, routines.rms_norm, h, x, &w.attn_norm);
                // The first kernel that needs an input in another form makes it for all that share it.
                let input = &mut Inputs::new(h, n);
                let work = work::sum([&w.q, &w.k, &w.v].map(|w| work::matmul(w, n)));
                p.brick_kernels(QkvProjection, work, |p| {
                    self.matmul(p, Value::Q, q, &w.q, input);
                    self.matmul(p, Value::K, k, &w.k, input);
                    self.matmul(p, Value::V, v, &w.v, input);
                    self.add_bias(p, Value::Q, q, w.q_bias.as_deref());
                    self.add_bias(p, Value::K, k, w.k_bias.as_deref());
                    self.add_bias(p, Value::V, v, w.v_bias.as_deref());
                });
                if let (Some(q_norm), Some(k_norm)) = (&w.q_norm, &w.k_norm) {
                    self.norm_in_place(Value::NormedQ, routines.head_norm, q, q_norm);
                    self.norm_in_place(Value::NormedK, routines.head_norm, k, k_norm);
                }
                self.rope_and_cache([&mut *q, &mut *k], v, [&*cos, &*sin], &mut kv);
                self.scores(s, q, &mut kv.k);
                self.softmax(s);
                self.weighted_sum(a, s, &mut kv.v);
                if let Some(norm) = &w.attn_sub_norm {
                    self.norm_in_place(Value::AttentionSubNorm, routines.attn_sub_norm, a, norm);
                }
                p.brick_kernels(OutputProjection, work::matmul(&w.output, n), |p| {
                    self.matmul(p, Value::Output, y, &w.output, &mut Inputs::new(a, n));
                    self.add_bias(p, Value::Output, y, w.output_bias.as_deref());
                    self.add(p, Value::AttentionResidual, x, y);
                });

                self.norm(Value::FfnNorm, routines.rms_norm, h, x, &w.ffn_norm);
                let input = &mut Inputs::new(h, n);
                self.matmul_brick(Value::Gate, gate, &w.gate, w.gate_bias.as_deref(), input);
                self.matmul_brick(Value::Up, up, &w.up, w.up_bias.as_deref(), input);
                self.activation(gate, up);
                if let Some(norm) = &w.ffn_sub_norm {
                    self.norm_in_place(Value::FfnSubNorm, routines.ffn_sub_norm, gate, norm);
                }
                p.brick_kernels(DownProjection, work::matmul(&w.down, n), |p| {
                    self.matmul(p, Value::Down, y, &w.down, &mut Inputs::new(gate, n));
                    self.add_bias(p, Value::Down, y, w.down_bias.as_deref());
                    self.add(p, Value::FfnResidual, x, y);
                });
            });
        }
        if n_out > 0 {
            let h = &mut h[..n_out * dim];
            let x = &x[(n - n_out) * dim..];
            self.norm(Value::OutputNorm, routines.rms_norm, h, x, &w.output_norm);
            let (logits, input) = (&mut scratch.logits, &mut Inputs::new(h, n_out));
            self.matmul_brick(Value::Logits, logits, &w.head, w.head_bias.as_deref(), input);
        }
        &scratch.logits
    }

    /// `x[t] = table[token[t]]`.
    #[inline(always)]
    fn embed(&self, x: &mut [f32], tokens: &[u32]) {
        let Self { model, .. } = *self;
        let w = &model.weights.embedding;
        let routine = self.routines.embed;
        let work = work::embed(w, self.n);
        self.probe.brick_kernel(Embedding, routine, work, || {
            let table = w.matrix(&model.gguf);
            for (x, &token) in x.chunks_exact_mut(model.config.dim).zip(tokens) {
                table.dequantize_row(token as usize, x);
            }
        });
        self.probe.tap(Value::Embedding, Some(routine), Operation::Exact, x);
    }

    /// The cosines and sines of RoPE's angles at the positions of this pass.
    #[inline(always)]
    fn rope_angles(&self, cos: &mut [f32], sin: &mut [f32]) {
        let (c, n_pairs) = (&self.model.config, self.model.config.n_rot / 2);
        let work = brickscope::Work::elements((self.n * n_pairs) as u64);
        self.probe.brick(RopeEmbedding, work, || {
            let angles = cos.chunks_exact_mut(n_pairs).zip(sin.chunks_exact_mut(n_pairs));
            for (i, (cos, sin)) in angles.enumerate() {
                let (pos, factors) = (self.pos + i, self.model.weights.rope_factors.as_deref());
                rope_tables(pos, c.rope_base, c.n_rot, factors, c.rope_scale, cos, sin);
            }
        });
        self.probe.tap(Value::Cos, None, Operation::Exact, cos);
        self.probe.tap(Value::Sin, None, Operation::Exact, sin);
    }

    /// `out = norm(x)`; `out` and `x` are rows of `weight.len()`.
    #[inline(always)]
    fn norm(&self, value: Value, routine: Routine, out: &mut [f32], x: &[f32], weight: &[f32]) {
        let (width, eps) = (weight.len(), self.model.config.norm_eps);
        let work = work::rms_norm(width, x.len());
        self.probe.brick_kernel(RmsNorm, routine, work, || {
            for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                self.cpu.kernels.rms_norm(out, x, weight, eps);
            }
        });
        self.probe.tap(value, Some(routine), Operation::RmsNorm { width }, out);
    }

    /// `x = norm(x)`, likewise.
    #[inline(always)]
    fn norm_in_place(&self, value: Value, routine: Routine, x: &mut [f32], weight: &[f32]) {
        let (width, eps) = (weight.len(), self.model.config.norm_eps);
        let work = work::rms_norm(width, x.len());
        self.probe.brick_kernel(RmsNorm, routine, work, || {
            for x in x.chunks_exact_mut(width) {
                self.cpu.kernels.rms_norm_in_place(x, weight, eps);
            }
        });
        self.probe.tap(value, Some(routine), Operation::RmsNorm { width }, x);
    }

    /// Rotates Q and K, then writes K and V to the cache.
    #[inline(always)]
    fn rope_and_cache(
        &self,
        [q, k]: [&mut [f32]; 2],
        v: &[f32],
        [cos, sin]: [&[f32]; 2],
        kv: &mut KvLayer<'_>,
    ) {
        let (c, n_pairs) = (&self.model.config, self.model.config.n_rot / 2);
        let (q_dim, kv_dim) = (c.q_dim(), c.kv_dim());
        let pairs = c.architecture.rope_pairs();
        let routine = self.routines.rope;
        let work = work::sum([work::rope(q_dim + kv_dim, self.n), work::cache(kv_dim, self.n)]);
        self.probe.brick_kernel(RopeEmbedding, routine, work, || {
            for (rows, width) in [(&mut *q, q_dim), (&mut *k, kv_dim)] {
                for (t, row) in rows.chunks_exact_mut(width).enumerate() {
                    let angles = t * n_pairs..(t + 1) * n_pairs;
                    let (cos, sin) = (&cos[angles.clone()], &sin[angles]);
                    for x in row.chunks_exact_mut(c.head_dim) {
                        self.cpu.kernels.rope(x, cos, sin, pairs);
                    }
                }
            }
            self.probe.tap(Value::RotatedQ, Some(routine), Operation::Rope, q);
            self.probe.tap(Value::RotatedK, Some(routine), Operation::Rope, k);
            kv.k.put(self.pos, k);
            kv.v.put(self.pos, v);
        });
    }

    /// `s = q·k / √head_dim` for the keys that each token sees.
    #[inline(always)]
    fn scores(&self, s: &mut [f32], q: &[f32], keys: &mut Heads<'_>) {
        let Self { cpu, rows, dots, .. } = *self;
        let (c, context) = (&self.model.config, self.pos + self.n);
        let (head, scale) = (c.head_dim, 1.0 / (c.head_dim as f32).sqrt());
        let read_keys = self.probe.tap_cache(Value::CachedKeys, keys, context);
        let routine = self.routines.scores.pick(dots);
        let work = work::scores(c.n_heads, head, c.kv_dim(), self.pos, self.n);
        self.probe.brick_kernel(AttentionScore, routine, work, || {
            cpu.each_row(dots, s, context, |row, s| {
                let q = &q[row * head..(row + 1) * head];
                let keys = keys.head(rows.kv_head(row));
                cpu.kernels.scores(&mut s[..rows.visible(row)], q, keys, head, scale);
            });
        });
        let operation = Operation::Scores { q, keys: &read_keys };
        self.probe.tap(Value::Scores, Some(routine), operation, s);
    }

    /// `s = softmax(s)` over the keys that each token sees.
    #[inline(always)]
    fn softmax(&self, s: &mut [f32]) {
        let Self { cpu, rows, softmax, .. } = *self;
        let routine = self.routines.softmax.pick(softmax);
        let work = work::softmax(self.model.config.n_heads, self.pos, self.n);
        self.probe.brick_kernel(AttentionSoftmax, routine, work, || {
            cpu.each_row(softmax, s, self.pos + self.n, |row, s| {
                cpu.kernels.softmax(&mut s[..rows.visible(row)]);
            });
        });
        self.probe.tap(Value::Probabilities, Some(routine), Operation::Softmax, s);
    }

    /// `a = Σ s·v` over the values that each token sees.
    #[inline(always)]
    fn weighted_sum(&self, a: &mut [f32], s: &[f32], values: &mut Heads<'_>) {
        let Self { cpu, rows, dots, .. } = *self;
        let (c, context) = (&self.model.config, self.pos + self.n);
        let head = c.head_dim;
        let read_values = self.probe.tap_cache(Value::CachedValues, values, context);
        let routine = self.routines.weighted_sum.pick(dots);
        let work = work::weighted_sum(c.n_heads, head, c.kv_dim(), self.pos, self.n);
        self.probe.brick_kernel(AttentionOutput, routine, work, || {
            cpu.each_row(dots, a, head, |row, a| {
                let s = &s[row * context..][..rows.visible(row)];
                cpu.kernels.weighted_sum(a, s, values.head(rows.kv_head(row)), head);
            });
        });
        let operation = Operation::WeightedSum { p: s, values: &read_values };
        self.probe.tap(Value::Attention, Some(routine), operation, a);
    }

    /// `gate = f(gate) · up`.
    #[inline(always)]
    fn activation(&self, gate: &mut [f32], up: &[f32]) {
        let (c, kernels) = (&self.model.config, self.cpu.kernels);
        let routine = self.routines.activation;
        let work = work::activation(c.activation, c.ffn_dim, self.n);
        self.probe.brick_kernel(BrickId::Activation, routine, work, || match c.activation {
            Activation::Silu => kernels.silu_mul(gate, up),
            Activation::ReluSquared => kernels.relu_squared_mul(gate, up),
        });
        let operation = match c.activation {
            Activation::Silu => Operation::SiluMul { up },
            Activation::ReluSquared => Operation::ReluSquaredMul,
        };
        self.probe.tap(Value::Activation, Some(routine), operation, gate);
    }

    /// `out = X·Wᵀ`. Out of line: all matrices of a layer share its code, and its callers are so short that the
    /// compiler inlines them with and without probes.
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

    /// `out = X·Wᵀ`, as a kernel of the running brick, and its scale as another. Inlined, so that without a probe
    /// nothing is computed for it.
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
        if let Some(scale) = w.scale {
            self.scale(p, value, out, scale);
        }
    }

    /// `out = X·Wᵀ + bias`, as a brick of its own. Inlined likewise.
    #[inline(always)]
    fn matmul_brick(
        &self,
        value: Value,
        out: &mut [f32],
        w: &Tensor,
        bias: Option<&[f32]>,
        x: &mut Inputs<'_>,
    ) {
        if w.scale.is_some() || bias.is_some() {
            let work = work::matmul(w, x.n());
            return self.probe.brick_kernels(value.brick(), work, |p| {
                self.matmul(p, value, out, w, x);
                self.add_bias(p, value, out, bias);
            });
        }
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

    /// `x += bias` on each row of a projection, where there is one.
    fn add_bias(
        &self,
        p: &mut P::Kernels<'_>,
        projection: Value,
        x: &mut [f32],
        bias: Option<&[f32]>,
    ) {
        let Some(bias) = bias else { return };
        let routine = for_width_of(projection, self.routines.add_bias);
        p.kernel(routine, work::add(x.len(), 1), || {
            self.cpu.kernels.add_bias(x, bias);
        });
        let value = projection.biased().unwrap_or(projection);
        self.probe.tap(value, Some(routine), Operation::Exact, x);
    }

    /// `x *= scale`, for a projection.
    fn scale(&self, p: &mut P::Kernels<'_>, projection: Value, x: &mut [f32], scale: f32) {
        let routine = for_width_of(projection, self.routines.scale);
        p.kernel(routine, work::scale(x.len()), || {
            self.cpu.kernels.scale(x, scale);
        });
        let value = projection.scaled().unwrap_or(projection);
        self.probe.tap(value, Some(routine), Operation::Exact, x);
    }
}
