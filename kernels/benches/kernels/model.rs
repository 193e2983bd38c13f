//! Shapes of real models, data of these shapes, and the available backends.

use std::cell::LazyCell;
use std::num::NonZeroUsize;

use brickscope_kernels::{Backend, Kernels, Matrix, QuantType, ThreadPool, quant};

/// The dimensions that determine the shapes of a model's operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) dim: usize,
    pub(crate) ffn_dim: usize,
    pub(crate) head_dim: usize,
    /// Elements from one cached key to the next: the number of key heads times their dimension.
    pub(crate) kv_dim: usize,
}

/// The synthetic 110m and 1b (TinyLlama's shape), and the 7b of Llama 2.
pub(crate) const SHAPES: [Shape; 3] = [
    Shape { name: "110m", dim: 768, ffn_dim: 2048, head_dim: 64, kv_dim: 768 },
    Shape { name: "1b", dim: 2048, ffn_dim: 5632, head_dim: 64, kv_dim: 256 },
    Shape { name: "7b", dim: 4096, ffn_dim: 11008, head_dim: 128, kv_dim: 4096 },
];

/// Whether to run everything just once, as a test.
pub(crate) fn is_test() -> bool {
    std::env::args().any(|arg| arg == "--test")
}

/// The backends that this machine supports.
pub(crate) fn backends() -> impl Iterator<Item = Kernels> {
    Backend::ALL.into_iter().filter_map(|backend| Kernels::new(backend).ok())
}

/// A pool of all threads that this process may use.
pub(crate) fn pool() -> ThreadPool {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    ThreadPool::new(threads).expect("the system starts as many threads as it has processors")
}

/// Pseudo-random numbers between -1 and 1: the top bits of Knuth's linear congruential generator.
pub(crate) fn numbers(n: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// More bytes than the caches of a machine with a few cores hold; a large last level belongs to many cores.
const BEYOND_CACHES: usize = 512 << 20;

/// Weight matrices of one type, made on first use, since most runs select only some benchmarks.
pub(crate) struct Weights {
    kind: QuantType,
    rows: usize,
    cols: usize,
    matrix_bytes: usize,
    bytes: LazyCell<Vec<u8>, Box<dyn FnOnce() -> Vec<u8>>>,
}

impl Weights {
    /// So many matrices that reading one after the other reads memory. Only one in test runs.
    pub(crate) fn beyond_caches(kind: QuantType, rows: usize, cols: usize) -> Self {
        let one = Self::new(kind, rows, cols, 1).matrix_bytes;
        let many = if is_test() { 1 } else { BEYOND_CACHES.div_ceil(one) };
        Self::new(kind, rows, cols, many)
    }

    /// One matrix.
    pub(crate) fn one(kind: QuantType, rows: usize, cols: usize) -> Self {
        Self::new(kind, rows, cols, 1)
    }

    fn new(kind: QuantType, rows: usize, cols: usize, n: usize) -> Self {
        let matrix_bytes = kind.matrix_bytes(rows as u64, cols as u64).expect("a real shape");
        let matrix_bytes = matrix_bytes as usize;
        let make = move || {
            // The same rows repeatedly: quantising millions of weights would take longer than the benchmark, and no kernel
            // notices repeated rows.
            let mut matrix = Vec::with_capacity(matrix_bytes);
            if kind == QuantType::I2_S {
                quant::quantize_i2_s(&numbers(rows * cols), &mut matrix);
            } else {
                let mut some = Vec::new();
                quant::quantize_row(kind, &numbers(rows.min(64) * cols), &mut some);
                while matrix.len() < matrix_bytes {
                    let rest = matrix_bytes - matrix.len();
                    matrix.extend_from_slice(&some[..some.len().min(rest)]);
                }
            }
            matrix.repeat(n)
        };
        Self { kind, rows, cols, matrix_bytes, bytes: LazyCell::new(Box::new(make)) }
    }

    /// The bytes that one product reads.
    pub(crate) fn bytes_of_one(&self) -> u64 {
        self.matrix_bytes as u64
    }

    /// Views of all matrices.
    pub(crate) fn matrices(&self) -> Vec<Matrix<'_>> {
        let matrices = self.bytes.chunks_exact(self.matrix_bytes);
        let matrix = |bytes| Matrix::new(self.kind, self.rows, self.cols, bytes);
        matrices.map(|bytes| matrix(bytes).expect("whole blocks")).collect()
    }
}
