//! A device for tests: it computes on the host, one step at a time with scalar code, and its clock is
//! a simulated one. So the plan, the session and the timer are tested without a device.

use brickscope::{
    Bracket, Clock, Device, DeviceError, DeviceInfo, DeviceLaunch, SimulatedDevice, StreamId,
};
use brickscope_kernels::{Backend, Kernels, rope_tables};
use std::collections::HashMap;

use super::fused::Fuses;
use super::{Gpu, GpuError, Op, Operand, Plan, STREAM};
use crate::config::Config;
use crate::model::Model;
use crate::weights::Tensor;

pub(crate) struct Reference<'m> {
    pub(crate) device: SimulatedDevice,
    model: &'m Model,
    capacity: usize,
    operands: HashMap<Operand, Vec<f32>>,
    tokens: Vec<u32>,
    position: usize,
    n_outputs: usize,
    /// Whether it runs several steps in one.
    pub(crate) fuses: bool,
}

impl<'m> Reference<'m> {
    pub(crate) fn new(model: &'m Model, capacity: usize) -> Self {
        let device = SimulatedDevice::new(1);
        let (operands, tokens) = (HashMap::new(), Vec::new());
        Self { device, model, capacity, operands, tokens, position: 0, n_outputs: 0, fuses: false }
    }

    /// An operand, as long as needed.
    fn operand(&mut self, operand: Operand, len: usize) -> &mut Vec<f32> {
        let found = self.operands.entry(operand).or_default();
        found.resize(found.len().max(len), f32::NAN);
        found
    }

    /// Numbers of an operand from the row on that a pass writes at.
    fn rows(&self, operand: Operand, width: usize, n: usize) -> std::ops::Range<usize> {
        let first = if operand.is_cache() { self.position } else { 0 };
        first * width..(first + n) * width
    }

    fn get(&mut self, operand: Operand, width: usize, first: usize, n: usize) -> Vec<f32> {
        let range = self.rows(operand, width, first + n);
        self.operand(operand, range.end)[range][first * width..].to_vec()
    }

    fn put(&mut self, operand: Operand, width: usize, values: &[f32]) {
        let range = self.rows(operand, width, values.len() / width);
        self.operand(operand, range.end)[range].copy_from_slice(values);
    }

    fn compute(&mut self, op: Op<'_>, n: usize) {
        let (c, w) = (&self.model.config, &self.model.weights);
        let kernels = Kernels::new(Backend::Scalar).expect("everywhere");
        let (head, kv_dim, capacity) = (c.head_dim, c.kv_dim(), self.capacity);
        let heads_per_kv = c.n_heads / c.n_kv_heads;
        match op {
            Op::Embed { table } => {
                let mut x = vec![0.0; n * c.dim];
                let table = table.matrix(&self.model.gguf);
                for (x, &token) in x.chunks_exact_mut(c.dim).zip(&self.tokens) {
                    table.dequantize_row(token as usize, x);
                }
                self.put(Operand::X, c.dim, &x);
            }
            Op::RmsNorm { out, x, weight, rows_per_token, first } => {
                let width = weight.len() * rows_per_token;
                let mut values = self.get(x, width, first, n);
                for row in values.chunks_exact_mut(weight.len()) {
                    kernels.rms_norm_in_place(row, weight, c.norm_eps);
                }
                self.put(out, width, &values);
            }
            Op::Matmul { out, w, x } => {
                let x = self.get(x, w.cols, 0, n);
                let mut row = vec![0.0; w.cols];
                let mut result = vec![0.0; n * w.rows];
                for i in 0..w.rows {
                    w.matrix(&self.model.gguf).dequantize_row(i, &mut row);
                    for (t, x) in x.chunks_exact(w.cols).enumerate() {
                        result[t * w.rows + i] = row.iter().zip(x).map(|(a, b)| a * b).sum();
                    }
                }
                self.put(out, w.rows, &result);
            }
            Op::AddBias { x, bias } => {
                let mut values = self.get(x, bias.len(), 0, n);
                kernels.add_bias(&mut values, bias);
                self.put(x, bias.len(), &values);
            }
            Op::Rope { x, heads } => {
                let pairs = c.architecture.rope_pairs();
                let mut values = self.get(x, heads * head, 0, n);
                let (mut cos, mut sin) = (vec![0.0; c.n_rot / 2], vec![0.0; c.n_rot / 2]);
                for (t, row) in values.chunks_exact_mut(heads * head).enumerate() {
                    let factors = w.rope_factors.as_deref();
                    let at = self.position + t;
                    rope_tables(
                        at,
                        c.rope_base,
                        c.n_rot,
                        factors,
                        c.rope_scale,
                        &mut cos,
                        &mut sin,
                    );
                    for x in row.chunks_exact_mut(head) {
                        kernels.rope(x, &cos, &sin, pairs);
                    }
                }
                self.put(x, heads * head, &values);
            }
            Op::Scores { layer } => {
                let q = self.get(Operand::Q, c.n_heads * head, 0, n);
                let keys = self.operand(Operand::K(layer), capacity * kv_dim).clone();
                let mut s = vec![f32::NAN; n * c.n_heads * capacity];
                for (row, s) in s.chunks_exact_mut(capacity).enumerate() {
                    let visible = self.position + row / c.n_heads + 1;
                    let keys = &keys[row % c.n_heads / heads_per_kv * head..];
                    let q = &q[row * head..(row + 1) * head];
                    kernels.scores(&mut s[..visible], q, keys, kv_dim, 1.0 / (head as f32).sqrt());
                }
                self.put(Operand::S, c.n_heads * capacity, &s);
            }
            Op::Softmax => {
                let mut s = self.get(Operand::S, c.n_heads * capacity, 0, n);
                for (row, s) in s.chunks_exact_mut(capacity).enumerate() {
                    kernels.softmax(&mut s[..self.position + row / c.n_heads + 1]);
                }
                self.put(Operand::S, c.n_heads * capacity, &s);
            }
            Op::WeightedSum { layer } => {
                let s = self.get(Operand::S, c.n_heads * capacity, 0, n);
                let values = self.operand(Operand::V(layer), capacity * kv_dim).clone();
                let mut a = vec![0.0; n * c.n_heads * head];
                for (row, a) in a.chunks_exact_mut(head).enumerate() {
                    let visible = self.position + row / c.n_heads + 1;
                    let values = &values[row % c.n_heads / heads_per_kv * head..];
                    kernels.weighted_sum(a, &s[row * capacity..][..visible], values, kv_dim);
                }
                self.put(Operand::A, c.n_heads * head, &a);
            }
            Op::SiluMul | Op::ReluSquaredMul => {
                let mut gate = self.get(Operand::Gate, c.ffn_dim, 0, n);
                let up = self.get(Operand::Up, c.ffn_dim, 0, n);
                match op {
                    Op::SiluMul => kernels.silu_mul(&mut gate, &up),
                    _ => kernels.relu_squared_mul(&mut gate, &up),
                }
                self.put(Operand::Gate, c.ffn_dim, &gate);
            }
            Op::Add { x, y } => {
                let mut values = self.get(x, c.dim, 0, n);
                let y = self.get(y, c.dim, 0, n);
                kernels.add(&mut values, &y);
                self.put(x, c.dim, &values);
            }
            Op::Fused(fused) => fused.parts(c).into_iter().for_each(|op| self.compute(op, n)),
        }
    }
}

impl Fuses for Reference<'_> {
    fn in_one_kernel(&self, _: &[&Tensor]) -> bool {
        true
    }

    fn attends(&self, _: &Config) -> bool {
        true
    }
}

impl Gpu for Reference<'_> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn batch(&self) -> usize {
        4
    }

    fn kernel(&self, plan: &Plan<'_>, step: usize) -> (String, DeviceLaunch) {
        let name = format!("{:?}", plan.steps[step].op);
        let name = name.split([' ', '{']).next().unwrap_or_default().to_lowercase();
        (name, DeviceLaunch::default())
    }

    fn start(&mut self, plan: &Plan<'_>, tokens: &[u32], position: usize) -> Result<(), GpuError> {
        assert_eq!(tokens.len(), plan.n);
        self.tokens = tokens.to_vec();
        self.position = position;
        Ok(())
    }

    fn fuse<'p>(&self, plan: Plan<'p>) -> Plan<'p> {
        if self.fuses { plan.fused(&self.model.config, self) } else { plan }
    }

    fn launch(&mut self, plan: &Plan<'_>, step: usize) -> Result<(), GpuError> {
        let step = &plan.steps[step];
        self.compute(step.op, step.tokens);
        // As long as it has numbers to put out.
        self.device.launch(STREAM, 1_000 * step.tokens as u64);
        Ok(())
    }

    fn finish(&mut self, plan: &Plan<'_>) -> Result<(), GpuError> {
        self.n_outputs = plan.n_outputs;
        Ok(())
    }

    fn logits(&mut self, out: &mut Vec<f32>) -> Result<(), GpuError> {
        self.device.wait(STREAM)?;
        if self.n_outputs > 0 {
            let n_vocab = self.model.config.n_vocab;
            *out = self.get(Operand::Logits, n_vocab, 0, self.n_outputs);
        }
        Ok(())
    }

    fn read(&mut self, operand: Operand, first: usize, out: &mut [f32]) -> Result<(), GpuError> {
        let end = first + out.len();
        out.copy_from_slice(&self.operand(operand, end)[first..end]);
        Ok(())
    }

    fn write(&mut self, operand: Operand, first: usize, values: &[f32]) -> Result<(), GpuError> {
        let end = first + values.len();
        self.operand(operand, end)[first..end].copy_from_slice(values);
        Ok(())
    }
}

impl Device for Reference<'_> {
    fn describe(&self) -> DeviceInfo {
        self.device.describe()
    }

    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError> {
        self.device.begin_set(set)
    }

    fn mark(&mut self, stream: StreamId, set: u32, mark: u32) -> Result<(), DeviceError> {
        self.device.mark(stream, set, mark)
    }

    fn wait(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        self.device.wait(stream)
    }

    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError> {
        self.device.resolve(set, n_marks, wait, ticks)
    }

    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError> {
        self.device.bracket(host)
    }
}
