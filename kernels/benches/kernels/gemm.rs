//! `Y = X·Wᵀ` by weight format: the work of prefill. Limited by arithmetic, not by where the weights are, since each is
//! used for every token.

use std::hint::black_box;

use brickscope_kernels::{Kernels, QuantType};
use criterion::{BenchmarkId, Criterion, Throughput};

use crate::flops::Flops;
use crate::model::{SHAPES, Weights, backends, numbers, pool};

/// Tokens in a batch.
const TOKENS: usize = 128;

pub(crate) fn benches(c: &mut Criterion<Flops>) {
    let mut group = c.benchmark_group(format!("gemm of {TOKENS} tokens"));
    let pool = pool();
    for kind in QuantType::ALL {
        for shape in SHAPES {
            let (rows, cols) = (shape.dim, shape.dim);
            let weights = Weights::one(kind, rows, cols);
            let moved = 4 * TOKENS * (rows + cols);
            group.throughput(Throughput::ElementsAndBytes {
                elements: (2 * rows * cols * TOKENS) as u64,
                bytes: weights.bytes_of_one() + moved as u64,
            });
            let parameter = format!("{rows}x{cols} of {}", shape.name);
            for kernels in backends() {
                let is_best = kernels == Kernels::best();
                // The scalar reference takes a tenth of a second even for the smallest shape.
                let is_wanted = if is_best { shape.name != "7b" } else { shape.name == "110m" };
                if !is_wanted {
                    continue;
                }
                let name = format!("{kind} {}, 1 thread", kernels.backend());
                group.bench_function(BenchmarkId::new(name, &parameter), |b| {
                    let w = weights.matrices()[0];
                    let (x, mut y) = (numbers(TOKENS * cols), vec![0.0; TOKENS * rows]);
                    b.iter(|| kernels.gemm(black_box(&mut y), w, black_box(&x), TOKENS));
                });
            }
            if shape.name == "1b" {
                let kernels = Kernels::best();
                let name = format!("{kind} {}, {} threads", kernels.backend(), pool.threads());
                group.bench_function(BenchmarkId::new(name, &parameter), |b| {
                    let w = weights.matrices()[0];
                    let (x, mut y) = (numbers(TOKENS * cols), vec![0.0; TOKENS * rows]);
                    b.iter(|| kernels.matmul(&pool, black_box(&mut y), w, black_box(&x), TOKENS));
                });
            }
        }
    }
    group.finish();
}
