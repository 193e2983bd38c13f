//! Every kernel, run on the CPU by the shim, against the CPU's scalar kernels.
//!
//! Each launch is repeated with the threads in other orders, which must change no bit. A launch that reads
//! or writes outside of its buffers fails.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use brickscope_kernels::{Backend, Kernels, Matrix, QuantType, RopePairs, quant, rope_tables};
use brickscope_testing::cuda_shim::Shim;
use proptest::prelude::*;

use super::{Launch, MODULES, Module, Params};

/// What a kernel is given.
enum Value {
    /// A buffer.
    Bytes(Vec<u8>),
    /// The buffer of an earlier argument.
    Same(usize),
    U32(u32),
    F32(f32),
}

fn floats(x: &[f32]) -> Value {
    Value::Bytes(x.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// What a kernel writes: NaN, so that what it doesn't is seen.
fn unwritten(len: usize) -> Value {
    floats(&vec![f32::NAN; len])
}

fn words(x: &[u32]) -> Value {
    Value::Bytes(x.iter().flat_map(|x| x.to_le_bytes()).collect())
}

fn params(position: usize, n: usize) -> Value {
    let Params { position, n } = Params { position: position as u32, n: n as u32 };
    words(&[position, n])
}

fn num(n: usize) -> Value {
    Value::U32(n as u32)
}

/// A device's buffer, aligned as one.
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
    len: usize,
}

impl Buffer {
    fn new(content: &[u8]) -> Self {
        const ALIGNMENT: usize = 256;
        let len = content.len();
        let mut bytes = vec![0; ALIGNMENT + len];
        let at = bytes.as_ptr().align_offset(ALIGNMENT);
        bytes[at..at + len].copy_from_slice(content);
        Self { bytes, at, len }
    }

    fn pointer(&mut self) -> *mut c_void {
        self.bytes[self.at..].as_mut_ptr().cast()
    }

    fn content(&self) -> &[u8] {
        &self.bytes[self.at..][..self.len]
    }
}

/// `__launch_bounds__` of a kernel, which a launch may not exceed.
fn most_threads(kernel: &str) -> Option<u32> {
    let entry = format!(".visible .entry {kernel}(");
    let after = MODULES.into_iter().find_map(|module| Some(module.ptx.split_once(&entry)?.1))?;
    let (threads, _) = after.split_once(".maxntid ")?.1.split_once(',')?;
    threads.parse().ok()
}

/// The order of threads is the library's, so one test at a time has it.
static ORDER: Mutex<()> = Mutex::new(());

/// Runs a kernel with its threads in one order. The buffers afterwards, in the order of `values`.
fn run_in_order(
    shim: &Shim,
    order: u32,
    kernel: &str,
    launch: Launch,
    values: &[Value],
) -> Result<Vec<Vec<u8>>, String> {
    if MODULES.into_iter().flat_map(Module::kernels).any(|name| name == kernel) {
        let threads = launch.block.iter().product::<u32>();
        assert!(most_threads(kernel).is_some_and(|most| threads <= most), "{kernel}: {launch:?}");
    }
    let mut buffers: Vec<Buffer> = values
        .iter()
        .filter_map(|value| if let Value::Bytes(b) = value { Some(Buffer::new(b)) } else { None })
        .collect();
    let mut left = buffers.iter_mut();
    let mut arguments: Vec<u64> = Vec::new();
    for value in values {
        arguments.push(match value {
            Value::Bytes(_) => left.next().expect("as many buffers").pointer() as u64,
            Value::Same(earlier) => arguments[*earlier],
            Value::U32(number) => u64::from(*number),
            Value::F32(number) => u64::from(number.to_bits()),
        });
    }
    // In one order nobody asks when a kernel begins.
    let mut began = Buffer::new(&[0; 8]);
    let notes_begin = !["stamp", "tick"].contains(&kernel) && !kernel.starts_with("planted");
    if notes_begin {
        arguments.push(if order == 0 { 0 } else { began.pointer() as u64 });
    }
    let mut pointers: Vec<*mut c_void> =
        arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
    let _alone = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    shim.set_order(order);
    for buffer in buffers.iter_mut().chain([&mut began]) {
        shim.add_memory(buffer.pointer(), buffer.len);
    }
    // SAFETY: the values are what the kernel's table of arguments says, and a kernel that leaves its
    // buffers is stopped before it does.
    let outcome = unsafe {
        shim.launch(kernel, launch.grid, launch.block, launch.shared_bytes, &mut pointers)
    };
    for buffer in buffers.iter_mut().chain([&mut began]) {
        shim.remove_memory(buffer.pointer());
    }
    outcome?;
    assert_eq!(began.content() != [0; 8], notes_begin && order != 0, "{kernel}");
    Ok(buffers.iter().map(|buffer| buffer.content().to_vec()).collect())
}

/// Runs a kernel, to the same result in any order of threads. What is in argument `out` afterwards.
fn run(shim: &Shim, kernel: &str, launch: Launch, values: &[Value], out: usize) -> Vec<u8> {
    let run = |order| {
        run_in_order(shim, order, kernel, launch, values).unwrap_or_else(|fault| panic!("{fault}"))
    };
    let mut buffers = run(0);
    for order in [1, 2] {
        assert!(run(order) == buffers, "{kernel}: another order of threads, another result");
    }
    let is_buffer = |value: &&Value| matches!(value, Value::Bytes(_));
    let before = values[..out].iter().filter(is_buffer).count();
    let inputs = values.iter().filter_map(|value| match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    });
    for (i, input) in inputs.enumerate() {
        assert!(i == before || buffers[i] == *input, "{kernel}: buffer {i} is no output");
    }
    buffers.swap_remove(before)
}

/// The same, as floats.
fn floats_of(shim: &Shim, kernel: &str, launch: Launch, values: &[Value], out: usize) -> Vec<f32> {
    let bytes = run(shim, kernel, launch, values, out);
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn scalar() -> Kernels {
    Kernels::new(Backend::Scalar).expect("every CPU has it")
}

/// Random numbers with a seed, in -1..1.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// `|a - b| <= tolerance`, element by element.
fn assert_close(actual: &[f32], expected: &[f32], tolerance: impl Fn(usize) -> f32) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance(i), "element {i} is {a}, not {e} ± {}", tolerance(i));
    }
}

/// Where the new rows of a cache are, and all else as it was.
fn assert_rest_unwritten(cache: &[f32], new: std::ops::Range<usize>) {
    for (i, x) in cache.iter().enumerate() {
        assert!(new.contains(&i) || x.is_nan(), "element {i} was written, outside {new:?}");
    }
}

const FORMATS: [(QuantType, &str); 4] = [
    (QuantType::F32, "f32"),
    (QuantType::F16, "f16"),
    (QuantType::Q8_0, "q8_0"),
    (QuantType::Q4_K, "q4_k"),
];

/// A format's number, rows, and columns that it can have.
fn matrix() -> impl Strategy<Value = (usize, usize, usize)> {
    (0..FORMATS.len(), 1usize..80).prop_flat_map(|(format, rows)| {
        let cols = match FORMATS[format].0 {
            // Aligned rows and others.
            QuantType::F32 | QuantType::F16 => prop_oneof![
                (1usize..400).boxed(),
                (1usize..300).prop_map(|eights| 8 * eights).boxed(),
            ]
            .boxed(),
            kind => (1..2500 / kind.block_len()).prop_map(move |n| n * kind.block_len()).boxed(),
        };
        // Some with more columns than a piece of x has, and more than two pieces.
        let wide =
            prop_oneof![Just(8192usize - 256), Just(8192), Just(8192 + 256), Just(16384 + 512)];
        let few = rows.min(5);
        prop_oneof![
            9 => (Just(format), Just(rows), cols),
            1 => (Just(format), Just(few), wide.boxed()),
        ]
    })
}

fn encode(kind: QuantType, x: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    quant::quantize_row(kind, x, &mut bytes);
    bytes
}

/// Those rows as a device has them: see `weights.cuh`.
fn on_device(kind: QuantType, rows: usize, bytes: &[u8]) -> Value {
    let mut packed = Vec::new();
    for row in bytes.chunks_exact(bytes.len() / rows) {
        match kind {
            QuantType::Q8_0 => {
                for block in row.chunks_exact(34) {
                    packed.extend(&block[2..]);
                }
                for block in row.chunks_exact(34) {
                    packed.extend(&block[..2]);
                }
            }
            _ => packed.extend(row),
        }
        let border = if kind == QuantType::F32 { 32 } else { 16 };
        packed.resize(packed.len().next_multiple_of(border), 0);
    }
    Value::Bytes(packed)
}

/// `run` for some random cases of `strategy`, where there is a shim.
fn hold<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, run: impl Fn(&Shim, T)) {
    let Some(shim) = Shim::load() else { return };
    let mut runner = proptest::test_runner::TestRunner::new(brickscope_testing::cases(32));
    let outcome = runner.run(&strategy, |case| {
        run(&shim, case);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn embed() {
    hold((matrix(), 1usize..5, any::<u64>()), |shim, ((format, vocab, dim), n, seed)| {
        let (kind, name) = FORMATS[format];
        let table = encode(kind, &noise(seed, vocab * dim));
        let tokens: Vec<u32> = (0..n).map(|i| (i * 7 % vocab) as u32).collect();
        let matrix = Matrix::new(kind, vocab, dim, &table).unwrap();
        let mut expected = vec![0.0; n * dim];
        for (token, row) in tokens.iter().zip(expected.chunks_exact_mut(dim)) {
            matrix.dequantize_row(*token as usize, row);
        }
        let values = [unwritten(n * dim), on_device(kind, vocab, &table), words(&tokens), num(dim)];
        let launch = Launch::embed(dim as u32, n as u32);
        let actual = floats_of(shim, &format!("embed_{name}"), launch, &values, 0);
        assert_eq!(actual, expected);
    });
}

/// What a product may be off by: a rounding for each term, of the size of the largest.
fn product_tolerance(w: Matrix<'_>, row: usize, x: &[f32]) -> f32 {
    let mut weights = vec![0.0f32; w.cols()];
    w.dequantize_row(row, &mut weights);
    let largest = weights.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    2e-6 * largest * x.iter().map(|x| x.abs()).sum::<f32>() + 1e-30
}

#[test]
fn gemv() {
    let strategy = (matrix(), 0usize..4, any::<bool>(), any::<u64>());
    hold(strategy, |shim, ((format, rows, cols), position, into_cache, seed)| {
        let (kind, name) = FORMATS[format];
        let weights = encode(kind, &noise(seed, rows * cols));
        let x = noise(!seed, cols);
        let matrix = Matrix::new(kind, rows, cols, &weights).unwrap();
        let mut expected = vec![0.0; rows];
        scalar().gemv(&mut expected, matrix, &x);
        let stride = if into_cache { rows } else { 0 };
        let at = position * stride;
        let values = [
            unwritten(at + rows + stride),
            on_device(kind, rows, &weights),
            floats(&x),
            params(position, 1),
            num(rows),
            num(cols),
            num(stride),
        ];
        let launch = Launch::gemv(rows as u32, cols as u32, 2, 1 + seed as u32 % 3);
        let actual = floats_of(shim, &format!("gemv_{name}"), launch, &values, 0);
        assert_rest_unwritten(&actual, at..at + rows);
        assert_close(&actual[at..at + rows], &expected, |row| product_tolerance(matrix, row, &x));
    });
}

/// `weights * rms_norm(x)`, by the CPU.
fn of_normed(matrix: Matrix<'_>, x: &[f32], norm: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut h = vec![0.0; x.len()];
    scalar().rms_norm(&mut h, x, norm, 1e-5);
    let mut out = vec![0.0; matrix.rows()];
    scalar().gemv(&mut out, matrix, &h);
    (out, h)
}

const EPS: Value = Value::F32(1e-5);

#[test]
fn gemv_add_and_norm_gemv() {
    hold((matrix(), any::<u64>()), |shim, ((format, rows, cols), seed)| {
        let (kind, name) = FORMATS[format];
        let weights = encode(kind, &noise(seed, rows * cols));
        let (x, norm, before) = (noise(!seed, cols), noise(seed ^ 1, cols), noise(seed ^ 2, rows));
        let matrix = Matrix::new(kind, rows, cols, &weights).unwrap();
        let mut expected = vec![0.0; rows];
        scalar().gemv(&mut expected, matrix, &x);
        scalar().add(&mut expected, &before);
        let w = || on_device(kind, rows, &weights);
        // Few blocks, so that each has several turns.
        let launch = |split| Launch::gemv(rows as u32, cols as u32, split, 1 + seed as u32 % 3);
        let values = [floats(&before), w(), floats(&x), num(rows), num(cols)];
        let actual = floats_of(shim, &format!("gemv_add_{name}"), launch(2), &values, 0);
        assert_close(&actual, &expected, |row| product_tolerance(matrix, row, &x) + 2e-7);

        let (expected, h) = of_normed(matrix, &x, &norm);
        let values = [unwritten(rows), w(), floats(&x), floats(&norm), num(rows), num(cols), EPS];
        let actual = floats_of(shim, &format!("norm_gemv_{name}"), launch(1), &values, 0);
        assert_close(&actual, &expected, |row| 2.0 * product_tolerance(matrix, row, &h));
    });
}

#[test]
fn norm_gate_up() {
    hold((matrix(), any::<bool>(), any::<u64>()), |shim, ((format, rows, cols), squared, seed)| {
        let (kind, name) = FORMATS[format];
        let [gate, up] = [seed, seed ^ 1].map(|seed| encode(kind, &noise(seed, rows * cols)));
        let (x, norm) = (noise(!seed, cols), noise(seed ^ 2, cols));
        let of = |weights| of_normed(Matrix::new(kind, rows, cols, weights).unwrap(), &x, &norm);
        let ((mut expected, h), (up_expected, _)) = (of(&gate), of(&up));
        let tolerances: Vec<f32> = (0..rows)
            .map(|row| {
                let of = |weights| {
                    product_tolerance(Matrix::new(kind, rows, cols, weights).unwrap(), row, &h)
                };
                let (g, u) = (expected[row].abs(), up_expected[row].abs());
                let slope = if squared { 2.0 * g + 1.0 } else { 1.1 };
                4.0 * (slope * of(&gate) * (u + 1.0) + (g * g + g) * of(&up))
                    + 1e-6 * (g * g + g) * u
            })
            .collect();
        match squared {
            true => scalar().relu_squared_mul(&mut expected, &up_expected),
            false => scalar().silu_mul(&mut expected, &up_expected),
        }
        let values = [
            unwritten(rows),
            on_device(kind, rows, &gate),
            on_device(kind, rows, &up),
            floats(&x),
            floats(&norm),
            num(rows),
            num(cols),
            EPS,
            num(squared.into()),
        ];
        let launch = Launch::gemv(2 * rows as u32, cols as u32, 1, 1 + seed as u32 % 3);
        let actual = floats_of(shim, &format!("norm_gate_up_{name}"), launch, &values, 0);
        assert_close(&actual, &expected, |row| tolerances[row]);
    });
}

#[test]
fn norm_qkv_rope() {
    let strategy = (
        (0..FORMATS.len(), 1usize..4, 1usize..4, 1usize..12, 0usize..3),
        (0usize..9, any::<bool>(), any::<u64>()),
    );
    hold(strategy, |shim, ((format, group, kv_heads, n_pairs, rest), (position, neox, seed))| {
        let (kind, name) = FORMATS[format];
        let cols = if kind.block_len() == 1 { 37 } else { 3 * kind.block_len() };
        let (heads, head_dim) = (group * kv_heads, 2 * (n_pairs + rest));
        let rows = [heads, kv_heads, kv_heads].map(|heads| heads * head_dim);
        let (x, norm) = (noise(!seed, cols), noise(seed ^ 3, cols));
        let weights: Vec<_> =
            (0..3).map(|i| encode(kind, &noise(seed ^ i as u64, rows[i] * cols))).collect();
        let matrix = |i: usize| Matrix::new(kind, rows[i], cols, &weights[i]).unwrap();
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in 0..=position {
            let (mut c, mut s) = (vec![0.0; n_pairs], vec![0.0; n_pairs]);
            rope_tables(position, 10000.0, 2 * n_pairs, None, 1.0, &mut c, &mut s);
            cos.extend(c);
            sin.extend(s);
        }
        let pairs = if neox { RopePairs::Neox } else { RopePairs::Norm };
        let of = position * n_pairs..(position + 1) * n_pairs;
        let mut expected: Vec<Vec<f32>> =
            (0..3).map(|i| of_normed(matrix(i), &x, &norm).0).collect();
        for out in &mut expected[..2] {
            for head in out.chunks_exact_mut(head_dim) {
                scalar().rope(head, &cos[of.clone()], &sin[of.clone()], pairs);
            }
        }
        let (_, h) = of_normed(matrix(0), &x, &norm);
        let cache = |i: usize| unwritten((position + 2) * rows[i]);
        let values = [
            unwritten(rows[0]),
            cache(1),
            cache(2),
            on_device(kind, rows[0], &weights[0]),
            on_device(kind, rows[1], &weights[1]),
            on_device(kind, rows[2], &weights[2]),
            floats(&x),
            floats(&norm),
            floats(&cos),
            floats(&sin),
            params(position, 1),
            num(heads),
            num(kv_heads),
            num(head_dim),
            num(n_pairs),
            num(neox.into()),
            num(cols),
            EPS,
        ];
        let launch =
            Launch::gemv(rows.iter().sum::<usize>() as u32, cols as u32, 1, 1 + seed as u32 % 3);
        for order in [0, 1, 2] {
            let kernel = format!("norm_qkv_rope_{name}");
            let buffers = run_in_order(shim, order, &kernel, launch, &values)
                .unwrap_or_else(|fault| panic!("{fault}"));
            for (i, expected) in expected.iter().enumerate() {
                let bytes = buffers[i].as_chunks::<4>().0;
                let all: Vec<f32> = bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
                let at = if i == 0 { 0 } else { position * rows[i] };
                assert_rest_unwritten(&all, at..at + rows[i]);
                // A rotation adds up two of them.
                let most = (0..rows[i]).map(|row| product_tolerance(matrix(i), row, &h));
                let most = 4.0 * most.fold(0.0f32, f32::max);
                assert_close(&all[at..at + rows[i]], expected, |_| most);
            }
        }
    });
}

#[test]
fn gemm() {
    let n = prop_oneof![1usize..20, 1usize..140];
    let strategy = (matrix(), n, 0usize..4, any::<bool>(), any::<u64>());
    hold(strategy, |shim, ((format, rows, cols), n, position, into_cache, seed)| {
        let (kind, name) = FORMATS[format];
        // Time is short: the columns are what takes it.
        let cols = if kind.block_len() == 1 { cols.min(100) } else { cols.min(512) };
        let weights = encode(kind, &noise(seed, rows * cols));
        let x = noise(!seed, n * cols);
        let matrix = Matrix::new(kind, rows, cols, &weights).unwrap();
        let mut expected = vec![0.0; n * rows];
        scalar().gemm(&mut expected, matrix, &x, n);
        let stride = if into_cache { rows } else { 0 };
        let at = position * stride;
        let values = [
            unwritten(at + n * rows + stride),
            on_device(kind, rows, &weights),
            floats(&x),
            params(position, n),
            num(rows),
            num(cols),
            num(stride),
            num(n),
        ];
        let launch = Launch::gemm(rows as u32, n as u32);
        let actual = floats_of(shim, &format!("gemm_{name}"), launch, &values, 0);
        assert_rest_unwritten(&actual, at..at + n * rows);
        assert_close(&actual[at..at + n * rows], &expected, |i| {
            product_tolerance(matrix, i % rows, &x[i / rows * cols..][..cols])
        });
    });
}

#[test]
fn rms_norm() {
    let strategy = (1usize..1500, 1usize..6, 0usize..4, any::<bool>(), any::<u64>());
    hold(strategy, |shim, (width, rows, position, in_cache, seed)| {
        let x = noise(seed, rows * width);
        let weight = noise(!seed, width);
        let mut expected = vec![0.0; rows * width];
        for (out, x) in expected.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            scalar().rms_norm(out, x, &weight, 1e-5);
        }
        let stride = if in_cache { rows * width } else { 0 };
        let at = position * stride;
        let mut cache = vec![f32::NAN; at + rows * width + stride];
        cache[at..at + rows * width].copy_from_slice(&x);
        let tail = |out, x| {
            let (width, stride) = (num(width), num(stride));
            let p = params(position, rows);
            [out, x, floats(&weight), p, width, Value::F32(1e-5), stride, Value::U32(0)]
        };
        let launch = Launch::rms_norm(width as u32, rows as u32);
        let elsewhere = tail(unwritten(at + rows * width), floats(&x));
        let mut in_place = tail(floats(&cache), Value::Same(0));
        in_place[7] = num(stride);
        for values in [elsewhere, in_place] {
            let actual = floats_of(shim, "rms_norm", launch, &values, 0);
            assert_rest_unwritten(&actual, at..at + rows * width);
            let tolerance = |i: usize| 2e-6 * expected[i].abs() + 1e-30;
            assert_close(&actual[at..at + rows * width], &expected, tolerance);
        }
    });
}

#[test]
fn add_silu_mul_and_relu_squared_mul() {
    hold((1usize..5000, any::<u64>()), |shim, (len, seed)| {
        let (x, y) = (noise(seed, len), noise(!seed, len));
        let launch = Launch::elementwise(len as u32);
        let values = [floats(&x), floats(&y), num(len)];
        let mut sum = x.clone();
        scalar().add(&mut sum, &y);
        assert_eq!(floats_of(shim, "add", launch, &values, 0), sum);

        // As large as gates get, where the exponential is large or nothing.
        let wide: Vec<f32> = x.iter().map(|x| 120.0 * x * x * x).collect();
        let mut gate = wide.clone();
        scalar().silu_mul(&mut gate, &y);
        let values = [floats(&wide), floats(&y), num(len)];
        let actual = floats_of(shim, "silu_mul", launch, &values, 0);
        assert_close(&actual, &gate, |i| 2e-6 * gate[i].abs() + 1e-30);

        let mut gate = x.clone();
        scalar().relu_squared_mul(&mut gate, &y);
        let values = [floats(&x), floats(&y), num(len)];
        assert_eq!(floats_of(shim, "relu_squared_mul", launch, &values, 0), gate);
    });
}

#[test]
fn add_bias() {
    let strategy = (1usize..700, 1usize..6, 0usize..4, any::<bool>(), any::<u64>());
    hold(strategy, |shim, (width, n, position, in_cache, seed)| {
        let (x, bias) = (noise(seed, n * width), noise(!seed, width));
        let mut expected = x.clone();
        for row in expected.chunks_exact_mut(width) {
            scalar().add_bias(row, &bias);
        }
        let stride = if in_cache { width } else { 0 };
        let at = position * stride;
        let mut cache = vec![f32::NAN; at + n * width + stride];
        cache[at..at + n * width].copy_from_slice(&x);
        let p = params(position, n);
        let values = [floats(&cache), floats(&bias), p, num(width), num(n * width), num(stride)];
        let launch = Launch::elementwise((n * width) as u32);
        let actual = floats_of(shim, "add_bias", launch, &values, 0);
        assert_rest_unwritten(&actual, at..at + n * width);
        assert_eq!(actual[at..at + n * width], expected);
    });
}

#[test]
fn rope() {
    let strategy = (
        (1usize..40, 0usize..20, 1usize..5, 1usize..5),
        (0usize..30, any::<bool>(), any::<bool>(), any::<u64>()),
    );
    hold(strategy, |shim, ((n_pairs, rest, heads, n), (position, neox, in_cache, seed))| {
        let head_dim = 2 * n_pairs + rest;
        let row = heads * head_dim;
        let x = noise(seed, n * row);
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in 0..position + n {
            let (mut c, mut s) = (vec![0.0; n_pairs], vec![0.0; n_pairs]);
            rope_tables(position, 10000.0, 2 * n_pairs, None, 1.0, &mut c, &mut s);
            cos.extend(c);
            sin.extend(s);
        }
        let mut expected = x.clone();
        let pairs = if neox { RopePairs::Neox } else { RopePairs::Norm };
        for (t, row) in expected.chunks_exact_mut(row).enumerate() {
            let at = (position + t) * n_pairs..(position + t + 1) * n_pairs;
            for head in row.chunks_exact_mut(head_dim) {
                scalar().rope(head, &cos[at.clone()], &sin[at.clone()], pairs);
            }
        }
        let stride = if in_cache { row } else { 0 };
        let at = position * stride;
        let mut cache = vec![f32::NAN; at + n * row];
        cache[at..].copy_from_slice(&x);
        let values = [
            floats(&cache),
            floats(&cos),
            floats(&sin),
            params(position, n),
            num(heads),
            num(head_dim),
            num(n_pairs),
            num(neox.into()),
            num(stride),
        ];
        let launch = Launch::rope(heads as u32, n_pairs as u32, n as u32);
        let actual = floats_of(shim, "rope", launch, &values, 0);
        assert_rest_unwritten(&actual, at..at + n * row);
        assert_close(&actual[at..], &expected, |_| 2e-7);
    });
}

#[derive(Debug, Clone, Copy)]
struct Attention {
    n: usize,
    position: usize,
    n_kv_heads: usize,
    group: usize,
    head_dim: usize,
    capacity: usize,
    seed: u64,
}

impl Attention {
    fn some() -> impl Strategy<Value = Self> {
        let head_dim =
            prop_oneof![Just(64), Just(128), (1usize..40).prop_map(|n| 4 * n), 1usize..100];
        (1usize..5, 0usize..150, 1usize..4, 1usize..4, head_dim, 0usize..200, any::<u64>())
            .prop_map(|(n, position, n_kv_heads, group, head_dim, spare, seed)| {
                let capacity = position + n + spare;
                Self { n, position, n_kv_heads, group, head_dim, capacity, seed }
            })
    }

    fn n_heads(self) -> usize {
        self.n_kv_heads * self.group
    }

    /// A cache of keys or values. What no token sees is NaN.
    fn cache(self, seed: u64) -> Vec<f32> {
        let kv_dim = self.n_kv_heads * self.head_dim;
        let mut cache = noise(seed, (self.position + self.n) * kv_dim);
        cache.resize(self.capacity * kv_dim, f32::NAN);
        cache
    }

    /// Each row of scores: its token, its head, that of keys and values, and the keys that it sees.
    fn rows(self) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let n_heads = self.n_heads();
        (0..self.n * n_heads).map(move |row| {
            let (t, h) = (row / n_heads, row % n_heads);
            (t, h, h / self.group, self.position + t + 1)
        })
    }

    fn scores(self, seed: u64) -> Vec<f32> {
        let mut s = vec![f32::NAN; self.n * self.n_heads() * self.capacity];
        for (row, (.., visible)) in s.chunks_exact_mut(self.capacity).zip(self.rows()) {
            row[..visible].copy_from_slice(&noise(seed ^ visible as u64, visible));
        }
        s
    }
}

#[test]
fn scores() {
    hold(Attention::some(), |shim, case| {
        let Attention { n, position, n_kv_heads, head_dim, capacity, seed, .. } = case;
        let n_heads = case.n_heads();
        let (q, k) = (noise(seed, n * n_heads * head_dim), case.cache(!seed));
        let values = [
            unwritten(n * n_heads * capacity),
            floats(&q),
            floats(&k),
            params(position, n),
            num(n_heads),
            num(n_kv_heads),
            num(head_dim),
            Value::F32(0.125),
            num(capacity),
        ];
        let launch = Launch::scores(n_heads as u32, head_dim as u32, capacity as u32, n as u32);
        let actual = floats_of(shim, "scores", launch, &values, 0);
        for (row, (t, h, kv, visible)) in actual.chunks_exact(capacity).zip(case.rows()) {
            let q = &q[(t * n_heads + h) * head_dim..][..head_dim];
            let mut expected = vec![0.0; visible];
            scalar().scores(&mut expected, q, &k[kv * head_dim..], n_kv_heads * head_dim, 0.125);
            assert_rest_unwritten(row, 0..visible);
            assert_close(&row[..visible], &expected, |_| 2e-7 * head_dim as f32);
        }
    });
}

#[test]
fn softmax() {
    hold(Attention::some(), |shim, case| {
        let Attention { n, position, capacity, seed, .. } = case;
        let n_heads = case.n_heads();
        let s: Vec<f32> = case.scores(seed).iter().map(|s| 30.0 * s).collect();
        let values = [floats(&s), params(position, n), num(n_heads), num(capacity)];
        let launch = Launch::softmax(n_heads as u32, capacity as u32, n as u32);
        let actual = floats_of(shim, "softmax", launch, &values, 0);
        let rows = actual.chunks_exact(capacity).zip(s.chunks_exact(capacity));
        for ((row, s), (.., visible)) in rows.zip(case.rows()) {
            let mut expected = s[..visible].to_vec();
            scalar().softmax(&mut expected);
            assert_rest_unwritten(row, 0..visible);
            assert_close(&row[..visible], &expected, |j| 2e-6 * expected[j] + 1e-30);
        }
    });
}

#[test]
fn weighted_sum() {
    hold(Attention::some(), |shim, case| {
        let Attention { n, position, n_kv_heads, head_dim, capacity, seed, .. } = case;
        let n_heads = case.n_heads();
        let (s, v) = (case.scores(seed), case.cache(!seed));
        let values = [
            unwritten(n * n_heads * head_dim),
            floats(&s),
            floats(&v),
            params(position, n),
            num(n_heads),
            num(n_kv_heads),
            num(head_dim),
            num(capacity),
        ];
        let launch = Launch::weighted_sum(n_heads as u32, head_dim as u32, n as u32);
        let actual = floats_of(shim, "weighted_sum", launch, &values, 0);
        let rows = actual.chunks_exact(head_dim).zip(s.chunks_exact(capacity));
        for ((row, s), (_, _, kv, visible)) in rows.zip(case.rows()) {
            let mut expected = vec![0.0; head_dim];
            let v = &v[kv * head_dim..];
            scalar().weighted_sum(&mut expected, &s[..visible], v, n_kv_heads * head_dim);
            assert_close(row, &expected, |_| 2e-7 * visible as f32);
        }
    });
}

#[test]
fn attention() {
    hold((Attention::some(), 1usize..6), |shim, (case, parts)| {
        // Of one token, and heads whose vectors are aligned.
        let head_dim = (case.head_dim.next_multiple_of(4)).min(64 << (case.seed % 5)).min(256);
        let case = Attention { n: 1, head_dim, ..case };
        let Attention { position, n_kv_heads, seed, .. } = case;
        let (n_heads, capacity) = (case.n_heads(), case.capacity);
        let q: Vec<f32> = noise(seed, n_heads * head_dim).iter().map(|q| 3.0 * q).collect();
        let (k, v) = (case.cache(!seed), case.cache(seed ^ 5));
        let values = [
            unwritten(n_heads * head_dim),
            unwritten(n_heads * parts * (head_dim + 2)),
            words(&vec![0; n_heads]),
            floats(&q),
            floats(&k),
            floats(&v),
            params(position, 1),
            num(n_heads),
            num(n_kv_heads),
            num(head_dim),
            Value::F32(0.25),
        ];
        let shared_bytes = 4 * (head_dim + capacity.div_ceil(parts)) as u32;
        let grid = [n_heads as u32, parts as u32, 1];
        let block = [64 << (seed % 5), 1, 1];
        let launch = Launch { grid, block, shared_bytes };
        let kv_dim = n_kv_heads * head_dim;
        let mut first = None;
        for order in [0, 1, 2] {
            let mut buffers = run_in_order(shim, order, "attention", launch, &values)
                .unwrap_or_else(|fault| panic!("{fault}"));
            assert!(buffers[2].iter().all(|byte| *byte == 0), "for the next launch");
            let out = buffers.swap_remove(0);
            let bytes = out.as_chunks::<4>().0;
            let actual: Vec<f32> = bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            assert!(*first.get_or_insert(out.clone()) == out, "another order, another result");
            for (row, (_, h, kv, visible)) in actual.chunks_exact(head_dim).zip(case.rows()) {
                let (mut s, mut expected) = (vec![0.0; visible], vec![0.0; head_dim]);
                let q = &q[h * head_dim..][..head_dim];
                scalar().scores(&mut s, q, &k[kv * head_dim..], kv_dim, 0.25);
                scalar().softmax(&mut s);
                scalar().weighted_sum(&mut expected, &s, &v[kv * head_dim..], kv_dim);
                assert_close(row, &expected, |_| 2e-6 * head_dim as f32);
            }
        }
    });
}

/// What `peak_fill` writes to word `x`.
fn scrambled(x: u32) -> u32 {
    let x = x.wrapping_mul(2_654_435_761);
    let x = (x ^ x >> 15).wrapping_mul(2_246_822_519);
    x ^ x >> 13
}

#[test]
fn what_measures_a_device_at_best_reads_everything_and_leaves_no_product_out() {
    let Some(shim) = Shim::load() else { return };
    let launch = Launch::peak(1);
    let threads = 4 * 256;
    // Fewer than threads, as many, more, and so many that the last threads begin again within eight.
    for units in [3, threads, threads + 5, 6 * threads - 1] {
        let words: Vec<u32> = (0..4 * units as u32).map(scrambled).collect();
        let blank = Value::Bytes(vec![0xff; 16 * units]);
        let filled = run(&shim, "peak_fill", launch, &[blank, num(units)], 0);
        let filled: Vec<u32> =
            filled.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        assert!(filled == words, "{units}");

        let rounds = 3;
        let values = [unwritten(threads), self::words(&words), num(units), num(rounds)];
        let sums = run(&shim, "peak_read", launch, &values, 0);
        let mixed: Vec<u32> =
            words.chunks(4).map(|four| four.iter().fold(0, |mixed, word| mixed ^ word)).collect();
        for (thread, sum) in sums.as_chunks::<4>().0.iter().enumerate() {
            let read = (0..8 * rounds).map(|nth| mixed[(thread + nth * threads) % units]);
            let expected = read.fold(0, u32::wrapping_add);
            assert_eq!(u32::from_le_bytes(*sum), expected, "{units} units, thread {thread}");
        }
    }

    // Each once: their sum is that of all.
    let (launch, rounds) = (Launch::peak_once(600), 2);
    let (threads, units) = (512, 512 * 8 * rounds);
    let words: Vec<u32> = (0..4 * units as u32).map(scrambled).collect();
    let values = [unwritten(threads), self::words(&words), num(units), num(rounds)];
    let sums = run(&shim, "peak_read", launch, &values, 0);
    let sums = sums.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum));
    let all = words.chunks(4).map(|four| four.iter().fold(0, |mixed, word| mixed ^ word));
    assert_eq!(sums.fold(0, u32::wrapping_add), all.fold(0, u32::wrapping_add));

    let rounds = 5;
    let sums = floats_of(&shim, "peak_multiply_add", launch, &[unwritten(threads), num(rounds)], 0);
    for (thread, sum) in sums.into_iter().enumerate() {
        let chain = |k: usize| {
            let first = (thread % 97 + k) as f32 * 0.01;
            (0..16 * rounds).fold(first, |v, _| v.mul_add(v, -1.9))
        };
        assert_eq!(sum, (0..16).map(chain).fold(0.0, |sum, v| sum + v), "{thread}");
    }
}

#[test]
fn a_stamp_hands_over_those_before_it() {
    let Some(shim) = Shim::load() else { return };
    let run = |kernel, launch, values: &[Value], out| {
        let ran = run_in_order(&shim, 0, kernel, launch, values);
        let bytes = ran.unwrap_or_else(|fault| panic!("{fault}")).swap_remove(out);
        let words = bytes.as_chunks::<8>().0;
        words.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect::<Vec<u64>>()
    };
    // More than a block has threads.
    let row: Vec<u8> = (1..=300u64).flat_map(u64::to_le_bytes).collect();
    let values = [Value::Bytes(row), Value::Bytes(vec![0; 8 * 300]), num(290)];
    let host = run("stamp", Launch::stamp(), &values, 1);
    assert_eq!(host[..290], (1..=290).collect::<Vec<u64>>());
    assert!(host[290] > 300, "{}", host[290]);
    assert_eq!(host[291..], [0; 9]);

    let times = run("tick", Launch::one(), &[Value::Bytes(vec![0xff; 8 * 5]), num(5)], 0);
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
}

#[test]
fn the_shim_runs_every_kernel_of_the_ptx() {
    let Some(shim) = Shim::load() else { return };
    for kernel in MODULES.into_iter().flat_map(Module::kernels) {
        assert!(shim.has(kernel), "{kernel} isn't in shim.cpp");
    }
    assert!(!shim.has("gemv_q9_0"));
}

/// The shim finds kernels that break the rules of CUDA.
mod planted {
    use super::*;

    fn launch(kernel: &str, order: u32, values: &[Value]) -> Option<Result<Vec<Vec<u8>>, String>> {
        let shim = Shim::load()?;
        let launch = Launch { grid: [1; 3], block: [32, 1, 1], shared_bytes: 128 };
        Some(run_in_order(&shim, order, kernel, launch, values))
    }

    fn fault(kernel: &str, values: &[Value]) -> Option<String> {
        Some(launch(kernel, 0, values)?.expect_err("it breaks a rule"))
    }

    #[test]
    fn a_missing_barrier_makes_another_order_another_result() {
        let out = || [unwritten(32)];
        let Some(first) = launch("planted_missing_barrier", 0, &out()) else { return };
        let second = launch("planted_missing_barrier", 1, &out()).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_barrier_that_not_all_reach() {
        let Some(fault) = fault("planted_lonely_barrier", &[unwritten(32)]) else { return };
        assert_eq!(
            fault,
            "planted_lonely_barrier: of 32 threads of block (0, 0, 0), 16 wait at __syncthreads, \
             0 in a shuffle, and 16 are done: they wait for ever"
        );
    }

    #[test]
    fn a_shuffle_that_not_all_lanes_reach() {
        let Some(fault) = fault("planted_lonely_shuffle", &[unwritten(32)]) else { return };
        assert!(fault.contains("16 wait at __syncthreads, 16 in a shuffle"), "{fault}");
    }

    #[test]
    fn a_misaligned_pointer() {
        let values = [unwritten(4), floats(&[0.0; 8])];
        let Some(fault) = fault("planted_misaligned", &values) else { return };
        assert!(fault.starts_with("planted.cu:"), "{fault}");
        assert!(fault.contains("float4"), "{fault}");
        assert!(fault.ends_with("has to be at a multiple of 16 bytes, and is 4 behind one"));
    }

    #[test]
    fn a_write_behind_shared_memory() {
        let Some(fault) = fault("planted_overflow", &[floats(&[1.0])]) else { return };
        let expected =
            "planted_overflow: wrote to byte 128 of the 128 of shared memory that it was given";
        assert_eq!(fault, expected);
    }

    #[test]
    fn a_read_behind_a_buffer() {
        let values = [unwritten(1), floats(&[0.0; 8])];
        let Some(fault) = fault("planted_read_behind", &values) else { return };
        assert_eq!(
            fault,
            "planted_read_behind: thread 0 of block (0, 0, 0) reads 4 bytes from byte 32 on of a \
             buffer of 32"
        );
    }

    #[test]
    fn a_warp_that_goes_ahead() {
        let Some(shim) = Shim::load() else { return };
        let launch = Launch { grid: [1; 3], block: [64, 1, 1], shared_bytes: 0 };
        let run = |order| {
            let values = [unwritten(128)];
            run_in_order(&shim, order, "planted_hasty_warp", launch, &values).unwrap()
        };
        assert_ne!(run(0), run(1));
    }

    #[test]
    fn a_launch_goes_on_after_a_fault() {
        let Some(_) = fault("planted_lonely_barrier", &[unwritten(32)]) else { return };
        let values = [floats(&[1.0, 2.0]), floats(&[3.0, 4.0]), num(2)];
        let buffers = launch("add", 0, &values).unwrap().unwrap();
        assert_eq!(buffers[0], [4.0f32.to_le_bytes(), 6.0f32.to_le_bytes()].concat());
    }
}
