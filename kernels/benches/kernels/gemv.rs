//! `y = W·x` by weight format: the work of a decode pass.

use std::hint::black_box;

use brickscope_kernels::{Kernels, QuantType, ThreadPool};
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};

use crate::flops::Flops;
use crate::model::{SHAPES, Shape, Weights, backends, numbers, pool};
use crate::saturate::read_memory;

pub(crate) fn benches(c: &mut Criterion<Flops>) {
    let mut group = c.benchmark_group("gemv from memory");
    let pool = pool();
    read_memory(&mut group, &pool);
    for kind in QuantType::ALL {
        for shape in SHAPES {
            // The largest matrix in a layer.
            let weights = Weights::beyond_caches(kind, shape.ffn_dim, shape.dim);
            for kernels in backends() {
                // The scalar reference is for correctness: one shape shows how much slower it is.
                if kernels == Kernels::best() || shape.name == "110m" {
                    one_thread(&mut group, kernels, kind, &shape, &weights);
                }
            }
            if shape.name == "1b" {
                all_threads(&mut group, &pool, kind, &shape, &weights);
            }
        }
    }
    group.finish();
}

fn one_thread(
    group: &mut BenchmarkGroup<'_, Flops>,
    kernels: Kernels,
    kind: QuantType,
    shape: &Shape,
    weights: &Weights,
) {
    group.throughput(throughput(shape, weights));
    let name = format!("{kind} {}, 1 thread", kernels.backend());
    group.bench_function(BenchmarkId::new(name, parameter(shape)), |b| {
        let matrices = weights.matrices();
        let (x, mut y) = (numbers(shape.dim), vec![0.0; shape.ffn_dim]);
        let mut turn = matrices.iter().cycle();
        b.iter(|| {
            let w = turn.next().expect("a matrix");
            kernels.gemv(black_box(&mut y), *w, black_box(&x));
        });
    });
}

fn all_threads(
    group: &mut BenchmarkGroup<'_, Flops>,
    pool: &ThreadPool,
    kind: QuantType,
    shape: &Shape,
    weights: &Weights,
) {
    group.throughput(throughput(shape, weights));
    let kernels = Kernels::best();
    let name = format!("{kind} {}, {} threads", kernels.backend(), pool.threads());
    group.bench_function(BenchmarkId::new(name, parameter(shape)), |b| {
        let matrices = weights.matrices();
        let (x, mut y) = (numbers(shape.dim), vec![0.0; shape.ffn_dim]);
        let mut turn = matrices.iter().cycle();
        b.iter(|| {
            let w = turn.next().expect("a matrix");
            kernels.matmul(pool, black_box(&mut y), *w, black_box(&x), 1);
        });
    });
}

fn throughput(shape: &Shape, weights: &Weights) -> Throughput {
    Throughput::ElementsAndBytes {
        elements: (2 * shape.dim * shape.ffn_dim) as u64,
        bytes: weights.bytes_of_one() + 4 * (shape.dim + shape.ffn_dim) as u64,
    }
}

fn parameter(shape: &Shape) -> String {
    format!("{}x{} of {}", shape.ffn_dim, shape.dim, shape.name)
}
