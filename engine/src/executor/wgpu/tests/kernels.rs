//! Each kernel alone, against the scalar one of the CPU, over shapes of all kinds.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use brickscope_kernels::{
    Backend, Kernels as CpuKernels, Matrix, QuantType, RopePairs, attention, quant, rms_norm, rope,
    rope_tables,
};
use proptest::prelude::*;
use wgpu::{Buffer, BufferUsages};

use super::super::adapter::OpenDevice;
use super::super::kernels::{Kernel, Kernels};
use super::super::launch::{Draft, Prepared, embed, linear, matmul};
use super::super::memory::{Weight, format, row_bytes};
use super::super::{Commands, fetch};
use super::skipped;

/// What no kernel writes.
const UNTOUCHED: f32 = -7.5e7;

/// A device, and the kernels that were compiled for it.
struct Bench {
    gpu: OpenDevice,
    kernels: Kernels,
    params: Buffer,
}

/// Opened once: that takes longer than all that is done with it. `None` where there is no device.
fn bench() -> Option<MutexGuard<'static, Bench>> {
    static BENCH: OnceLock<Option<Mutex<Bench>>> = OnceLock::new();
    let open = || match OpenDevice::open() {
        Ok(gpu) => {
            let usage = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
            let params = gpu.buffer("params", 16, usage).expect("it is small");
            Some(Mutex::new(Bench { gpu, kernels: Kernels::default(), params }))
        }
        Err(why) => skipped(why),
    };
    let bench = BENCH.get_or_init(open).as_ref()?;
    Some(bench.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Bench {
    fn buffer<T: bytemuck::Pod>(&self, values: &[T]) -> Buffer {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let buffer = self.gpu.buffer("a test", bytes.len() as u64, usage).expect("it is small");
        self.gpu.queue.write_buffer(&buffer, 0, bytes);
        buffer
    }

    /// A matrix; if it is to be in parts, on a device that binds no more than 64 rows and some padding.
    fn upload(
        &mut self,
        kind: QuantType,
        rows: usize,
        cols: usize,
        bytes: &[u8],
        in_parts: bool,
    ) -> Weight {
        let matrix = Matrix::new(kind, rows, cols, bytes).expect("it fits");
        let limit = self.gpu.limits.max_storage_buffer_binding_size;
        if in_parts {
            let row: usize = row_bytes(format(kind), cols.div_ceil(32)).iter().sum();
            self.gpu.limits.max_storage_buffer_binding_size = 65 * (row as u64 + 1);
        }
        let weight = Weight::upload(&self.gpu, matrix);
        self.gpu.limits.max_storage_buffer_binding_size = limit;
        weight.expect("it is small")
    }

    fn run(&mut self, position: usize, drafts: Vec<Draft<'_>>) {
        let Self { gpu, kernels, params } = self;
        let prepared =
            Prepared::from_drafts(gpu, kernels, params, vec![drafts]).expect("it compiles");
        gpu.queue.write_buffer(params, 0, bytemuck::cast_slice(&[position as u32, 0]));
        let mut commands = Commands::new(gpu);
        let pass = commands.pass.as_mut().expect("it was begun");
        prepared.steps[0].iter().for_each(|launch| launch.record(pass));
        drop(commands.pass);
        gpu.queue.submit([commands.encoder.finish()]);
        gpu.check("run").expect("the driver takes it");
    }

    fn read(&self, buffer: &Buffer) -> Vec<f32> {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let staging = self.gpu.buffer("a test", buffer.size(), usage).expect("it is small");
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.gpu.queue.submit([encoder.finish()]);
        let mut values = vec![0.0; buffer.size() as usize / 4];
        fetch(&self.gpu, &staging, &mut values).expect("it ran");
        values
    }
}

/// Numbers from a seed, of ordinary size.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: impl Fn(usize) -> f32) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance(i), "{i} is {found}, not {expected}");
    }
}

/// A matrix of any type, its bytes, and its weights.
fn weights(kind: QuantType, rows: usize, cols: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let values = noise(seed, rows * cols);
    let mut bytes = Vec::new();
    if kind == QuantType::I2_S {
        quant::quantize_i2_s(&values, &mut bytes);
    } else {
        quant::quantize_row(kind, &values, &mut bytes);
    }
    let matrix = Matrix::new(kind, rows, cols, &bytes).expect("it fits");
    let mut decoded = vec![0.0; rows * cols];
    for (row, decoded) in decoded.chunks_exact_mut(cols).enumerate() {
        matrix.dequantize_row(row, decoded);
    }
    (bytes, decoded)
}

fn kind() -> impl Strategy<Value = QuantType> {
    prop::sample::select(&QuantType::ALL[..])
}

/// Columns of a type: whole blocks, or where a block is one weight any number.
fn cols(kind: QuantType, some: usize) -> usize {
    if kind.block_len() == 1 { some } else { kind.block_len() * (1 + some % 3) }
}

proptest! {
    #![proptest_config(brickscope_testing::cases(40))]

    #[test]
    fn matmul_of_every_type(
        kind in kind(),
        rows in 1..150usize,
        some in 1..300usize,
        n in prop_oneof![Just(1usize), 1..70usize],
        position in prop_oneof![Just(None), (0..3usize).prop_map(Some)],
        in_parts in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let Some(mut bench) = bench() else { return Ok(()) };
        let cols = cols(kind, some);
        let (bytes, decoded) = weights(kind, rows, cols, seed);
        let weight = bench.upload(kind, rows, cols, &bytes, in_parts);
        prop_assert_eq!(weight.parts.len(), if in_parts { rows.div_ceil(64) } else { 1 });
        let x = noise(!seed, n * cols);
        let first = position.unwrap_or(0);
        let out = bench.buffer(&vec![UNTOUCHED; (first + n + 1) * rows]);
        let on_device = bench.buffer(&x);
        let drafts = matmul(&weight, n, &on_device, &out, u32::from(position.is_some()));
        // Where it isn't a cache the position is of no account.
        bench.run(if position.is_some() { first } else { 5 }, drafts);
        let found = bench.read(&out);
        let (before, rest) = found.split_at(first * rows);
        let (found, after) = rest.split_at(n * rows);
        prop_assert!(before.iter().chain(after).all(|&value| value == UNTOUCHED));
        for (t, (found, x)) in found.chunks_exact(rows).zip(x.chunks_exact(cols)).enumerate() {
            for (row, (found, w)) in found.iter().zip(decoded.chunks_exact(cols)).enumerate() {
                let products = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
                let sum: f64 = products.clone().sum();
                let size: f64 = products.map(f64::abs).sum();
                let error = (f64::from(*found) - sum).abs();
                prop_assert!(error <= 2e-6 * size, "{kind} {rows}×{cols}, {n}: {row} of {t} is {found}, not {sum}");
            }
        }
    }

    #[test]
    fn rows_of_every_type_are_embedded(
        kind in kind(),
        rows in 1..200usize,
        some in 1..300usize,
        tokens in prop::collection::vec(any::<prop::sample::Index>(), 1..9),
        in_parts in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let Some(mut bench) = bench() else { return Ok(()) };
        let cols = cols(kind, some);
        let (bytes, decoded) = weights(kind, rows, cols, seed);
        let weight = bench.upload(kind, rows, cols, &bytes, in_parts);
        let tokens: Vec<u32> = tokens.iter().map(|token| token.index(rows) as u32).collect();
        let out = bench.buffer(&vec![UNTOUCHED; tokens.len() * cols]);
        let on_device = bench.buffer(&tokens);
        let drafts = embed(&weight, tokens.len(), &on_device, &out);
        bench.run(3, drafts);
        let row = |token: &u32| decoded[*token as usize * cols..][..cols].iter().copied();
        let expected: Vec<f32> = tokens.iter().flat_map(row).collect();
        // The scale of Q4_K times its scale, and so on: rounded in the same places or once less.
        assert_close(&bench.read(&out), &expected, |i| 1e-6 * (1.0 + expected[i].abs()));
    }
}

proptest! {
    // Few: a device is slow to compile and to answer.
    #![proptest_config(brickscope_testing::cases(12))]

    #[test]
    fn norms(
        width in 1..400usize,
        rows_per_token in 1..4usize,
        n in 1..5usize,
        first in 0..3usize,
        position in prop_oneof![Just(None), (0..3usize).prop_map(Some)],
        seed in any::<u64>(),
    ) {
        let Some(mut bench) = bench() else { return Ok(()) };
        let in_place = position.is_some();
        // In place it begins with the first token, as that is where it ends up.
        let first = if in_place { 0 } else { first };
        let at = position.unwrap_or(0) * rows_per_token * width;
        let len = n * rows_per_token * width;
        let weight = noise(seed, width);
        let x = noise(!seed, at + first * rows_per_token * width + len);
        let (weights, xs) = (bench.buffer(&weight), bench.buffer(&x));
        let out = bench.buffer(&vec![UNTOUCHED; len]);
        let to = if in_place { &xs } else { &out };
        let eps = 1e-5f32;
        let args = [width, rows_per_token, first, n * rows_per_token].map(|n| n as u32);
        let args = [&args[..], &[eps.to_bits(), u32::from(in_place)]].concat();
        let mut buffers = vec![&weights, to];
        if !in_place {
            buffers.push(&xs);
        }
        let grid = linear(n * rows_per_token);
        let draft = Draft { kernel: Kernel::RmsNorm { in_place }, args, buffers, grid };
        bench.run(position.unwrap_or(9), vec![draft]);
        let found = bench.read(to);
        let from = at + first * rows_per_token * width;
        let mut expected = vec![0.0; len];
        let rows = expected.chunks_exact_mut(width).zip(x[from..].chunks_exact(width));
        rows.for_each(|(out, x)| rms_norm::scalar::rms_norm(out, x, &weight, eps));
        prop_assert_eq!(&found[..at], &x[..if in_place { at } else { 0 }]);
        assert_close(&found[at..], &expected, |i| 2e-6 * (1.0 + expected[i].abs()));
    }

    #[test]
    fn sums_and_activations(width in 1..300usize, n in 1..5usize, position in 0..3usize, seed in any::<u64>()) {
        let Some(mut bench) = bench() else { return Ok(()) };
        let cpu = CpuKernels::new(Backend::Scalar).expect("scalar");
        let len = n * width;
        let x: Vec<f32> = noise(seed, len).iter().map(|x| 12.0 * x).collect();
        let y = noise(!seed, len);
        type Op = fn(CpuKernels, &mut [f32], &[f32]);
        let ops: [(Kernel, Op); 3] = [
            (Kernel::Add, CpuKernels::add),
            (Kernel::SiluMul, CpuKernels::silu_mul),
            (Kernel::ReluSquaredMul, CpuKernels::relu_squared_mul),
        ];
        for (kernel, op) in ops {
            let (xs, ys) = (bench.buffer(&x), bench.buffer(&y));
            let (args, grid) = (vec![len as u32], linear(len.div_ceil(64)));
            bench.run(position, vec![Draft { kernel, args, buffers: vec![&xs, &ys], grid }]);
            let mut expected = x.clone();
            op(cpu, &mut expected, &y);
            assert_close(&bench.read(&xs), &expected, |i| 2e-6 * (1.0 + expected[i].abs()));
        }
        let old = noise(seed ^ 1, position * width);
        let xs = bench.buffer(&[&old[..], &x].concat());
        let bias = noise(seed ^ 2, width);
        let biases = bench.buffer(&bias);
        let (args, grid) = (vec![len as u32, width as u32, 1], linear(len.div_ceil(64)));
        let buffers = vec![&xs, &biases];
        bench.run(position, vec![Draft { kernel: Kernel::AddBias, args, buffers, grid }]);
        let mut expected = x;
        cpu.add_bias(&mut expected, &bias);
        prop_assert_eq!(bench.read(&xs), [old, expected].concat());
    }

    #[test]
    fn rotations(
        heads in 1..4usize,
        pairs in 1..40usize,
        unrotated in 0..5usize,
        n in 1..5usize,
        position in 0..9usize,
        is_cache in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let Some(mut bench) = bench() else { return Ok(()) };
        let head_dim = 2 * pairs + unrotated;
        let capacity = position + n;
        let (mut cos, mut sin) = (vec![0.0; capacity * pairs], vec![0.0; capacity * pairs]);
        let rows = cos.chunks_exact_mut(pairs).zip(sin.chunks_exact_mut(pairs));
        rows.enumerate().for_each(|(at, (cos, sin))| {
            rope_tables(at, 10_000.0, 2 * pairs, None, 1.0, cos, sin);
        });
        let (cosines, sines) = (bench.buffer(&cos), bench.buffer(&sin));
        let row = heads * head_dim;
        let first = if is_cache { position } else { 0 };
        let x = noise(seed, (first + n) * row);
        for kind in [RopePairs::Norm, RopePairs::Neox] {
            let xs = bench.buffer(&x);
            let len = n * heads * pairs;
            let args = [heads, head_dim, pairs, len, usize::from(is_cache)].map(|n| n as u32).to_vec();
            let buffers = vec![&xs, &cosines, &sines];
            let grid = linear(len.div_ceil(64));
            bench.run(position, vec![Draft { kernel: Kernel::Rope(kind), args, buffers, grid }]);
            let mut expected = x.clone();
            for (t, row) in expected[first * row..].chunks_exact_mut(row).enumerate() {
                let angles = (position + t) * pairs..(position + t + 1) * pairs;
                for head in row.chunks_exact_mut(head_dim) {
                    rope::scalar::rope(head, &cos[angles.clone()], &sin[angles.clone()], kind);
                }
            }
            assert_close(&bench.read(&xs), &expected, |_| 1e-6);
        }
    }

    #[test]
    fn the_parts_of_attention(
        kv_heads in 1..3usize,
        heads_per_kv in 1..4usize,
        head_dim in 1..80usize,
        n in 1..5usize,
        position in 0..600usize,
        room in 0..40usize,
        shares in 1..9u32,
        seed in any::<u64>(),
    ) {
        let Some(mut bench) = bench() else { return Ok(()) };
        let (heads, kv_dim) = (kv_heads * heads_per_kv, kv_heads * head_dim);
        let (context, capacity) = (position + n, position + n + room);
        let q = noise(seed, n * heads * head_dim);
        let cached = noise(!seed, capacity * kv_dim);
        let scale = 1.0 / (head_dim as f32).sqrt();
        let args = [heads, heads_per_kv, head_dim, kv_dim, capacity].map(|n| n as u32);
        let args = [&args[..], &[scale.to_bits()]].concat();
        let scores = bench.buffer(&vec![UNTOUCHED; n * heads * capacity]);
        let (qs, cache) = (bench.buffer(&q), bench.buffer(&cached));
        let draft = |kernel, buffers, grid| vec![Draft { kernel, args: args.clone(), buffers, grid }];
        let (h, t) = (heads as u32, n as u32);
        let grid = [shares, h, t];
        bench.run(position, draft(Kernel::Scores, vec![&scores, &qs, &cache], grid));
        let found = bench.read(&scores);
        let visible = |row: usize| position + row / heads + 1;
        let kv_head = |row: usize| row % heads / heads_per_kv * head_dim;
        let mut expected = vec![UNTOUCHED; n * heads * capacity];
        for (row, out) in expected.chunks_exact_mut(capacity).enumerate() {
            let q = &q[row * head_dim..][..head_dim];
            let out = &mut out[..visible(row)];
            attention::scalar::scores(out, q, &cached[kv_head(row)..], kv_dim, scale);
        }
        prop_assert!(context <= capacity);
        assert_close(&found, &expected, |_| 1e-5);

        // From here on with what the device has, so that errors don't add up.
        let cpu = CpuKernels::new(Backend::Scalar).expect("scalar");
        let mut expected = found;
        for (row, out) in expected.chunks_exact_mut(capacity).enumerate() {
            cpu.softmax(&mut out[..visible(row)]);
        }
        bench.run(position, draft(Kernel::Softmax, vec![&scores], [h, t, 1]));
        let found = bench.read(&scores);
        assert_close(&found, &expected, |i| 4e-6 * expected[i].abs());

        let out = bench.buffer(&vec![UNTOUCHED; n * heads * head_dim]);
        bench.run(position, draft(Kernel::WeightedSum, vec![&out, &scores, &cache], [h, t, 1]));
        let mut expected = vec![0.0; n * heads * head_dim];
        for (row, out) in expected.chunks_exact_mut(head_dim).enumerate() {
            let p = &found[row * capacity..][..visible(row)];
            attention::scalar::weighted_sum(out, p, &cached[kv_head(row)..], kv_dim);
        }
        assert_close(&bench.read(&out), &expected, |_| 2e-6);
    }
}

#[test]
fn long_grids_are_folded() {
    for workgroups in [0, 1, 65_535, 65_536, 200_000] {
        let [x, y, z] = linear(workgroups);
        assert!(x <= 65_535 && y <= 65_535 && z == 1);
        assert!(x as usize * y as usize >= workgroups, "{workgroups}");
    }
}
