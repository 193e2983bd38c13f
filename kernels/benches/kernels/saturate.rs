//! The ceilings: loops that only do what their names say.

use std::cell::LazyCell;
use std::hint::black_box;

use brickscope_kernels::{Kernels, ThreadPool};
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};

use crate::flops::Flops;
use crate::model::{backends, is_test, numbers};

/// More bytes than any cache holds, of which about a matrix's worth is read at a time.
const MEMORY: usize = 512 << 20;
const PIECE: usize = 16 << 20;
/// Bytes that the smallest first-level cache holds.
const CACHE: usize = 16 << 10;

pub(crate) fn benches(c: &mut Criterion<Flops>) {
    let mut group = c.benchmark_group("saturate");
    let rounds = 10_000;
    for kernels in backends() {
        let flops = (rounds * Kernels::FLOPS_PER_ROUND) as u64;
        group.throughput(Throughput::Elements(flops));
        let id = BenchmarkId::new("multiply_add", kernels.backend());
        group.bench_function(id, |b| b.iter(|| kernels.multiply_add(black_box(rounds))));
    }
    group.finish();
}

/// Adds the rows that kernels from memory are compared with: reading, on one thread and on all.
pub(crate) fn read_memory(group: &mut BenchmarkGroup<'_, Flops>, pool: &ThreadPool) {
    let bytes = if is_test() { PIECE } else { MEMORY };
    let words = LazyCell::new(|| words(bytes));
    group.throughput(Throughput::Bytes(PIECE as u64));
    // Which of these is fastest differs between processors and page sizes.
    for streams in [1, 2, 4] {
        let id = BenchmarkId::new("read, 1 thread", format!("{streams} streams"));
        group.bench_function(id, |b| {
            let mut turn = words.chunks_exact(PIECE / 8).cycle();
            b.iter(|| Kernels::best().read_streams(turn.next().expect("a piece"), streams));
        });
        let threads = pool.threads();
        let id = BenchmarkId::new(format!("read, {threads} threads"), format!("{streams} streams"));
        group.bench_function(id, |b| {
            let mut turn = words.chunks_exact(PIECE / 8).cycle();
            b.iter(|| {
                let piece = turn.next().expect("a piece");
                let share = piece.len().div_ceil(threads);
                pool.run(&|thread| {
                    if let Some(part) = piece.chunks(share).nth(thread) {
                        black_box(Kernels::best().read_streams(part, streams));
                    }
                });
            });
        });
    }
}

/// Likewise from the first-level cache, on one thread.
pub(crate) fn read_cache(group: &mut BenchmarkGroup<'_, WallTime>) {
    let words = words(CACHE);
    group.throughput(Throughput::ElementsAndBytes {
        elements: words.len() as u64,
        bytes: CACHE as u64,
    });
    group.bench_function("read", |b| {
        b.iter(|| Kernels::best().read_streams(black_box(&words), 1));
    });
}

fn words(bytes: usize) -> Vec<f64> {
    let some: Vec<f64> = numbers(4096).into_iter().map(f64::from).collect();
    some.iter().copied().cycle().take(bytes / 8).collect()
}
