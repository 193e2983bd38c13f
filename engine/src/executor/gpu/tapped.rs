//! A tapped pass on a device. It runs step by step, reads each value back, and writes it again if the tap changed it:
//! slow, but with the same kernels, save those that do [several steps](super::Fused) at once.

use brickscope_kernels::rope_tables;

use crate::error::Error;
use crate::executor::gpu::{Gpu, GpuSession, Op, Operand, Plan, Step};
use crate::forward::Outputs;
use crate::model::Model;
use crate::routines::Routine;
use crate::value::{At, Operation, Value};

impl<G: Gpu> GpuSession<'_, G> {
    /// One pass over checked tokens, at most a batch. `tap` sees each value when it has been made,
    /// in the order of the CPU's forward pass, and may change it before anything reads it.
    pub(crate) fn pass_tapped(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<(), Error> {
        let Self { model, gpu, position, logits, names, .. } = self;
        let (n, position) = (tokens.len(), position);
        let plan = Plan::new(&model.config, &model.weights, n, outputs);
        let model: &Model = model;
        let mut pass = TappedPass { model, gpu, position: *position, n, tap };
        pass.gpu.start(&plan, tokens, *position)?;
        for (index, step) in plan.steps.iter().enumerate() {
            match step.op {
                Op::Scores { layer } => pass.cache(step, Value::CachedKeys, Operand::K(layer))?,
                Op::WeightedSum { layer } => {
                    pass.cache(step, Value::CachedValues, Operand::V(layer))?;
                }
                _ => {}
            }
            pass.gpu.launch(&plan, index)?;
            let (name, launch) = pass.gpu.kernel(&plan, index);
            pass.value(step, names.find_or_add(&name, &launch.shape))?;
            if step.value == Value::Embedding {
                pass.angles();
            }
        }
        gpu.finish(&plan)?;
        gpu.logits(logits)?;
        *position += n;
        Ok(())
    }
}

/// Shows the values of a pass to a tap.
struct TappedPass<'l, 'm, G> {
    model: &'m Model,
    gpu: &'l mut G,
    position: usize,
    n: usize,
    tap: &'l dyn Fn(At<'_>, &mut [f32]),
}

impl<G: Gpu> TappedPass<'_, '_, G> {
    fn at<'a>(
        &self,
        layer: Option<u16>,
        value: Value,
        routine: Option<Routine>,
        operation: Operation<'a>,
    ) -> At<'a> {
        let layer = layer.map(usize::from);
        At { position: self.position, n_tokens: self.n, layer, value, routine, operation }
    }

    /// Floats of an operand; of a cache, the rows of this pass.
    fn get(&mut self, operand: Operand, width: usize, n: usize) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; n * width];
        self.gpu.read(operand, self.first(operand, width), &mut values)?;
        Ok(values)
    }

    fn first(&self, operand: Operand, width: usize) -> usize {
        if operand.is_cache() { self.position * width } else { 0 }
    }

    /// The scores, without the room for later keys.
    fn scores(&mut self, n_rows: usize) -> Result<Vec<f32>, Error> {
        let (capacity, context) = (self.gpu.capacity(), self.position + self.n);
        let all = self.get(Operand::S, capacity, n_rows)?;
        Ok(all.chunks_exact(capacity).flat_map(|row| row[..context].to_vec()).collect())
    }

    fn put_scores(&mut self, values: &[f32]) -> Result<(), Error> {
        let (capacity, context) = (self.gpu.capacity(), self.position + self.n);
        for (row, values) in values.chunks_exact(context).enumerate() {
            self.gpu.write(Operand::S, row * capacity, values)?;
        }
        Ok(())
    }

    /// All rows of a cache that attention is about to read.
    fn cache(&mut self, step: &Step<'_>, value: Value, operand: Operand) -> Result<(), Error> {
        let width = self.model.config.kv_dim();
        let mut values = vec![0.0; (self.position + self.n) * width];
        self.gpu.read(operand, 0, &mut values)?;
        let before = values.clone();
        (self.tap)(self.at(step.layer, value, None, Operation::Exact), &mut values);
        if differs(&before, &values) {
            self.gpu.write(operand, 0, &values)?;
        }
        Ok(())
    }

    /// The cosines and sines, which the host computed. The tap's changes are ignored.
    fn angles(&mut self) {
        let (c, w) = (&self.model.config, &self.model.weights);
        let n_pairs = c.n_rot / 2;
        let (mut cos, mut sin) = (vec![0.0; self.n * n_pairs], vec![0.0; self.n * n_pairs]);
        let angles = cos.chunks_exact_mut(n_pairs).zip(sin.chunks_exact_mut(n_pairs));
        for (i, (cos, sin)) in angles.enumerate() {
            let (factors, at) = (w.rope_factors.as_deref(), self.position + i);
            rope_tables(at, c.rope_base, c.n_rot, factors, c.rope_scale, cos, sin);
        }
        (self.tap)(self.at(None, Value::Cos, None, Operation::Exact), &mut cos);
        (self.tap)(self.at(None, Value::Sin, None, Operation::Exact), &mut sin);
    }

    /// The value of a step.
    fn value(&mut self, step: &Step<'_>, routine: Routine) -> Result<(), Error> {
        let c = &self.model.config;
        let (n, kv_dim) = (step.tokens, c.kv_dim());
        let context = self.position + self.n;
        let layer_operand =
            |operand: fn(usize) -> Operand| operand(step.layer.unwrap_or_default().into());
        let (width, inputs) = match step.op {
            Op::Embed { .. } | Op::Add { .. } => (c.dim, [Vec::new(), Vec::new()]),
            Op::RmsNorm { weight, rows_per_token, .. } => {
                (weight.len() * rows_per_token, Default::default())
            }
            Op::Matmul { w, x, .. } => (w.rows, [self.get(x, w.cols, n)?, Vec::new()]),
            Op::AddBias { bias, .. } => (bias.len(), Default::default()),
            Op::Rope { heads, .. } => (heads * c.head_dim, Default::default()),
            Op::Scores { .. } => {
                let mut keys = vec![0.0; context * kv_dim];
                self.gpu.read(layer_operand(Operand::K), 0, &mut keys)?;
                (c.n_heads * context, [self.get(Operand::Q, c.q_dim(), n)?, keys])
            }
            Op::Softmax => (c.n_heads * context, Default::default()),
            Op::WeightedSum { .. } => {
                let mut values = vec![0.0; context * kv_dim];
                self.gpu.read(layer_operand(Operand::V), 0, &mut values)?;
                (c.q_dim(), [self.scores(n * c.n_heads)?, values])
            }
            // What a tapped pass never has.
            Op::Fused(_) => (0, Default::default()),
            Op::ReluSquaredMul => (c.ffn_dim, Default::default()),
            Op::SiluMul => (c.ffn_dim, [self.get(Operand::Up, c.ffn_dim, n)?, Vec::new()]),
        };
        let mut values = match step.out {
            Operand::S => self.scores(n * c.n_heads)?,
            operand => self.get(operand, width, n)?,
        };
        let before = values.clone();
        let [first, second] = inputs.each_ref().map(|input| &input[..]);
        let operation = match step.op {
            Op::Embed { .. } | Op::Add { .. } | Op::AddBias { .. } | Op::Fused(_) => {
                Operation::Exact
            }
            Op::RmsNorm { weight, .. } => Operation::RmsNorm { width: weight.len() },
            Op::Matmul { w, .. } => Operation::Matmul { w, x: first },
            Op::Rope { .. } => Operation::Rope,
            Op::Scores { .. } => Operation::Scores { q: first, keys: second },
            Op::Softmax => Operation::Softmax,
            Op::WeightedSum { .. } => Operation::WeightedSum { p: first, values: second },
            Op::SiluMul => Operation::SiluMul { up: first },
            Op::ReluSquaredMul => Operation::ReluSquaredMul,
        };
        (self.tap)(self.at(step.layer, step.value, Some(routine), operation), &mut values);
        if differs(&before, &values) {
            match step.out {
                Operand::S => self.put_scores(&values)?,
                operand => self.gpu.write(operand, self.first(operand, width), &values)?,
            }
        }
        Ok(())
    }
}

fn differs(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).any(|(a, b)| a.to_bits() != b.to_bits())
}
