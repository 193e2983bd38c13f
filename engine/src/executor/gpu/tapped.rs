//! A pass on a device whose values somebody looks at: step by step, each read back, and written again if
//! it was changed. Slow, and the same kernels.

use brickscope_kernels::rope_tables;

use crate::executor::Routine;
use crate::executor::gpu::{Gpu, GpuSession, Op, Plan, Slot, Step};
use crate::forward::Outputs;
use crate::model::{Error, Model};
use crate::tap::{At, Operation, Value};

impl<G: Gpu> GpuSession<'_, G> {
    /// One pass over tokens that were checked, at most a batch. `tap` sees each value when it was made,
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
        let mut look = Look { model, gpu, position: *position, n, tap };
        look.gpu.start(&plan, tokens, *position)?;
        for (index, step) in plan.steps.iter().enumerate() {
            match step.op {
                Op::Scores { layer } => look.cache(step, Value::CachedKeys, Slot::K(layer))?,
                Op::WeightedSum { layer } => {
                    look.cache(step, Value::CachedValues, Slot::V(layer))?;
                }
                _ => {}
            }
            look.gpu.launch(&plan, index)?;
            let (name, launch) = look.gpu.kernel(&plan, index);
            look.value(step, names.number(&name, &launch.shape))?;
            if step.value == Value::Embedding {
                look.angles();
            }
        }
        gpu.finish(&plan)?;
        gpu.logits(logits)?;
        *position += n;
        Ok(())
    }
}

/// Shows the values of a pass to a tap.
struct Look<'l, 'm, G> {
    model: &'m Model,
    gpu: &'l mut G,
    position: usize,
    n: usize,
    tap: &'l dyn Fn(At<'_>, &mut [f32]),
}

impl<G: Gpu> Look<'_, '_, G> {
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

    /// Numbers of a slot; the rows of this pass, if it is a cache.
    fn get(&mut self, slot: Slot, width: usize, n: usize) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; n * width];
        self.gpu.read(slot, self.first(slot, width), &mut values)?;
        Ok(values)
    }

    fn first(&self, slot: Slot, width: usize) -> usize {
        if slot.is_cache() { self.position * width } else { 0 }
    }

    /// Scores without the room for keys that are not there yet.
    fn scores(&mut self, n_rows: usize) -> Result<Vec<f32>, Error> {
        let (capacity, context) = (self.gpu.capacity(), self.position + self.n);
        let all = self.get(Slot::S, capacity, n_rows)?;
        Ok(all.chunks_exact(capacity).flat_map(|row| row[..context].to_vec()).collect())
    }

    fn put_scores(&mut self, values: &[f32]) -> Result<(), Error> {
        let (capacity, context) = (self.gpu.capacity(), self.position + self.n);
        for (row, values) in values.chunks_exact(context).enumerate() {
            self.gpu.write(Slot::S, row * capacity, values)?;
        }
        Ok(())
    }

    /// All rows of a cache that attention is about to read.
    fn cache(&mut self, step: &Step<'_>, value: Value, slot: Slot) -> Result<(), Error> {
        let width = self.model.config.kv_dim();
        let mut values = vec![0.0; (self.position + self.n) * width];
        self.gpu.read(slot, 0, &mut values)?;
        let before = values.clone();
        (self.tap)(self.at(step.layer, value, None, Operation::Exact), &mut values);
        if differs(&before, &values) {
            self.gpu.write(slot, 0, &values)?;
        }
        Ok(())
    }

    /// The cosines and sines, which the host made. What the tap makes of them is not used.
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

    /// What a step has made.
    fn value(&mut self, step: &Step<'_>, routine: Routine) -> Result<(), Error> {
        let c = &self.model.config;
        let (n, kv_dim) = (step.tokens, c.kv_dim());
        let context = self.position + self.n;
        let layer_slot = |slot: fn(usize) -> Slot| slot(step.layer.unwrap_or_default().into());
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
                self.gpu.read(layer_slot(Slot::K), 0, &mut keys)?;
                (c.n_heads * context, [self.get(Slot::Q, c.q_dim(), n)?, keys])
            }
            Op::Softmax => (c.n_heads * context, Default::default()),
            Op::WeightedSum { .. } => {
                let mut values = vec![0.0; context * kv_dim];
                self.gpu.read(layer_slot(Slot::V), 0, &mut values)?;
                (c.q_dim(), [self.scores(n * c.n_heads)?, values])
            }
            Op::SiluMul => (c.ffn_dim, [self.get(Slot::Up, c.ffn_dim, n)?, Vec::new()]),
        };
        let mut values = match step.out {
            Slot::S => self.scores(n * c.n_heads)?,
            slot => self.get(slot, width, n)?,
        };
        let before = values.clone();
        let [first, second] = inputs.each_ref().map(|input| &input[..]);
        let operation = match step.op {
            Op::Embed { .. } | Op::Add { .. } | Op::AddBias { .. } => Operation::Exact,
            Op::RmsNorm { weight, .. } => Operation::RmsNorm { width: weight.len() },
            Op::Matmul { w, .. } => Operation::Matmul { w, x: first },
            Op::Rope { .. } => Operation::Rope,
            Op::Scores { .. } => Operation::Scores { q: first, keys: second },
            Op::Softmax => Operation::Softmax,
            Op::WeightedSum { .. } => Operation::WeightedSum { p: first, values: second },
            Op::SiluMul => Operation::SiluMul { up: first },
        };
        (self.tap)(self.at(step.layer, step.value, Some(routine), operation), &mut values);
        if differs(&before, &values) {
            match step.out {
                Slot::S => self.put_scores(&values)?,
                slot => self.gpu.write(slot, self.first(slot, width), &values)?,
            }
        }
        Ok(())
    }
}

fn differs(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).any(|(a, b)| a.to_bits() != b.to_bits())
}
