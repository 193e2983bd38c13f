//! Rows in file order against interleaved rows, these without prefetching, with prefetching into the second-level cache and
//! into the first: products of the best kernels in turns, on one thread, with loops that only read in between.
//!
//! Engines prefetch on Intel's processors, into the second level, and on Zen 5, into the first where it helps. If yours is
//! another one with AVX-512, and its third or fourth figures of `gemv` from memory are higher than the second ones, please
//! open an issue with what this prints.
//!
//! `cargo bench -p brickscope-kernels --bench layouts -- q6_k q8_0` measures only these types. Weights are in huge pages,
//! as in engines, where Linux provides them on request.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use brickscope_kernels::{
    GROUP_ROWS, Kernels, Matrix, QuantType, can_be_interleaved, interleave, quant,
};

/// More bytes than caches hold; a large last level belongs to many cores.
const MEMORY: usize = 512 << 20;

/// Rows and columns.
const SHAPES: [[usize; 2]; 4] = [[5632, 2048], [4096, 4096], [2048, 5632], [2048, 8192]];

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    // `cargo test --benches` passes neither.
    let is_test = has("--test") || !has("--bench");
    let names = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let names: Vec<String> = names.collect();
    let kernels = Kernels::best();
    let backend = kernels.backend();
    println!(
        "{backend}: best and median of each, by row | interleaved | into L2 | into L1 | read | two streams"
    );
    for kind in QuantType::ALL.into_iter().filter(|kind| can_be_interleaved(*kind)) {
        if !names.is_empty() && !names.contains(&kind.to_string()) {
            continue;
        }
        rearrange(kind, if is_test { 1 } else { 50 });
        gemv(kernels, kind, [256, 2048], 1, if is_test { 1 } else { 400 });
        for shape in SHAPES {
            let (matrices, rounds) = if is_test {
                (1, 1)
            } else {
                let blocks = shape[0] * shape[1] / kind.block_len();
                (MEMORY.div_ceil(blocks * kind.block_bytes()), 40)
            };
            gemv(kernels, kind, shape, matrices, rounds);
        }
        for n in [2, 3, 4, 6, 8, 12, 128] {
            gemm(kernels, kind, n, if is_test { 1 } else { 24 + 400 / n });
        }
    }
}

/// The same matrices in both layouts.
struct Both {
    kind: QuantType,
    shape: [usize; 2],
    by_row: Bytes,
    interleaved: Bytes,
}

impl Both {
    fn new(kind: QuantType, shape: [usize; 2], matrices: usize) -> Self {
        let [rows, cols] = shape;
        let mut some = Vec::new();
        quant::quantize_row(kind, &numbers(GROUP_ROWS * cols), &mut some);
        let groups = matrices * rows / GROUP_ROWS;
        let (by_row, mut interleaved) = (Bytes::new(&some, groups), Bytes::new(&some, groups));
        interleave(kind, cols, interleaved.all_mut());
        Self { kind, shape, by_row, interleaved }
    }

    fn by_row(&self) -> impl Iterator<Item = Matrix<'_>> {
        let Self { kind, shape: [rows, cols], .. } = *self;
        let matrix = move |bytes| Matrix::new(kind, rows, cols, bytes).expect("whole blocks");
        self.by_row.all().chunks_exact(self.bytes_of_one()).map(matrix)
    }

    fn interleaved(&self) -> impl Iterator<Item = Matrix<'_>> {
        let Self { kind, shape: [rows, cols], .. } = *self;
        let matrix = move |bytes| Matrix::interleaved(kind, rows, cols, bytes).expect("groups");
        self.interleaved.all().chunks_exact(self.bytes_of_one()).map(matrix)
    }

    fn bytes_of_one(&self) -> usize {
        let [rows, cols] = self.shape;
        rows * cols / self.kind.block_len() * self.kind.block_bytes()
    }
}

/// Bytes that begin at a huge page, as in an engine.
struct Bytes {
    bytes: Vec<u8>,
    begin: usize,
}

impl Bytes {
    fn new(some: &[u8], n: usize) -> Self {
        const PAGE: usize = 2 << 20;
        let mut bytes = Vec::<u8>::with_capacity(PAGE + n * some.len());
        let begin = bytes.as_ptr().align_offset(PAGE);
        #[cfg(target_os = "linux")]
        // SAFETY: whole pages of memory that nothing else uses. The advice changes how they are mapped, never their
        // contents.
        unsafe {
            let first = bytes.as_mut_ptr().add(begin).cast();
            libc::madvise(first, n * some.len() / PAGE * PAGE, libc::MADV_HUGEPAGE);
        }
        bytes.resize(begin, 0);
        (0..n).for_each(|_| bytes.extend_from_slice(some));
        Self { bytes, begin }
    }

    fn all(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }

    fn all_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..]
    }

    fn words(&self) -> &[f64] {
        // SAFETY: any bytes are valid numbers.
        unsafe { self.all().align_to().1 }
    }
}

/// Prints how fast rows are interleaved, in and out of caches.
fn rearrange(kind: QuantType, rounds: usize) {
    let [rows, cols] = SHAPES[0];
    let bytes = rows * cols / kind.block_len() * kind.block_bytes();
    let mut weights = vec![0; bytes];
    let took = (0..rounds).map(|_| {
        let begun = Instant::now();
        interleave(kind, cols, black_box(&mut weights));
        begun.elapsed().as_secs_f64()
    });
    let best = took.fold(f64::INFINITY, f64::min);
    println!("interleave {kind} {rows}x{cols}, GB/s: {:.1}", bytes as f64 / 1e9 / best);
}

fn gemv(kernels: Kernels, kind: QuantType, shape: [usize; 2], matrices: usize, rounds: usize) {
    let [rows, cols] = shape;
    let both = Both::new(kind, shape, matrices);
    let (x, mut y) = (numbers(cols), vec![0.0; rows]);
    let interleaved = |y: &mut [f32], to: u8| {
        prefetch(to);
        both.interleaved().for_each(|w| kernels.gemv(y, w, black_box(&x)));
    };
    let rates = in_turns(
        rounds,
        both.by_row.all().len() as f64 / 1e9,
        [
            &mut |y: &mut [f32]| both.by_row().for_each(|w| kernels.gemv(y, w, black_box(&x))),
            &mut |y: &mut [f32]| interleaved(y, 0),
            &mut |y: &mut [f32]| interleaved(y, 2),
            &mut |y: &mut [f32]| interleaved(y, 1),
            &mut |_: &mut [f32]| {
                black_box(kernels.read_streams(black_box(both.by_row.words()), 1));
            },
            &mut |_: &mut [f32]| {
                black_box(kernels.read_streams(black_box(both.by_row.words()), 2));
            },
        ],
        &mut y,
    );
    let place = if matrices == 1 { "in cache" } else { "from memory" };
    println!("gemv {kind} {rows}x{cols}, {place}, GB/s: {}", shown(&rates));
}

/// Into which level of the caches products of one token with interleaved rows prefetch from now on; 0: none. Other kernels
/// than those for AVX-512 never do.
fn prefetch(level: u8) {
    #[cfg(target_arch = "x86_64")]
    brickscope_kernels::prefetch_interleaved(match level {
        0 => brickscope_kernels::Prefetch::Never,
        1 => brickscope_kernels::Prefetch::IntoL1,
        _ => brickscope_kernels::Prefetch::IntoL2,
    });
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
}

fn gemm(kernels: Kernels, kind: QuantType, n: usize, rounds: usize) {
    let shape @ [rows, cols] = [2048, 2048];
    let both = Both::new(kind, shape, 1);
    let (x, mut y) = (numbers(n * cols), vec![0.0; n * rows]);
    let rates = in_turns(
        rounds,
        2.0 * (n * rows * cols) as f64 / 1e9,
        [
            &mut |y: &mut [f32]| both.by_row().for_each(|w| kernels.gemm(y, w, black_box(&x), n)),
            &mut |y: &mut [f32]| {
                both.interleaved().for_each(|w| kernels.gemm(y, w, black_box(&x), n));
            },
        ],
        &mut y,
    );
    println!("gemm {kind} {rows}x{cols}, {n} tokens, Gop/s: {}", shown(&rates));
}

/// A product that writes its results to the slice it is given.
type Run<'a> = &'a mut dyn FnMut(&mut [f32]);

/// Times `runs` in turns, and returns the best and the median rate of each, in units of `work` per second.
fn in_turns<const N: usize>(
    rounds: usize,
    work: f64,
    mut runs: [Run<'_>; N],
    out: &mut [f32],
) -> [[f64; 2]; N] {
    let mut took = vec![[0.0; N]; rounds];
    for round in &mut took {
        for (run, took) in runs.iter_mut().zip(round) {
            let begun = Instant::now();
            run(black_box(out));
            *took = begun.elapsed().as_secs_f64();
        }
    }
    std::array::from_fn(|i| {
        let mut of_one: Vec<f64> = took.iter().map(|round| round[i]).collect();
        of_one.sort_by(f64::total_cmp);
        [of_one[0], of_one[rounds / 2]].map(|seconds| work / seconds)
    })
}

fn shown(rates: &[[f64; 2]]) -> String {
    let shown: Vec<String> =
        rates.iter().map(|[best, median]| format!("{best:.1} ({median:.1})")).collect();
    shown.join(" | ")
}

/// Pseudo-random numbers between -1 and 1: the top bits of Knuth's linear congruential generator.
fn numbers(n: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}
