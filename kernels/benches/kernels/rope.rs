//! Rotary position embedding for all heads of a token's query.

use std::hint::black_box;

use brickscope_kernels::{RopePairs, rope_tables};
use criterion::{BenchmarkId, Criterion, Throughput};

use crate::model::{SHAPES, backends, numbers};

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("rope in cache");
    for shape in SHAPES {
        let (mut cos, mut sin) = (vec![0.0; shape.head_dim / 2], vec![0.0; shape.head_dim / 2]);
        rope_tables(100, 10_000.0, shape.head_dim, None, 1.0, &mut cos, &mut sin);
        group.throughput(Throughput::ElementsAndBytes {
            elements: shape.dim as u64,
            bytes: 4 * (2 * shape.dim + shape.head_dim) as u64,
        });
        for (pairs, layout) in [(RopePairs::Norm, "norm"), (RopePairs::Neox, "neox")] {
            for kernels in backends() {
                let name = format!("{} {layout}", kernels.backend());
                let parameter = format!(
                    "{} heads of {} of {}",
                    shape.dim / shape.head_dim,
                    shape.head_dim,
                    shape.name
                );
                group.bench_function(BenchmarkId::new(name, parameter), |b| {
                    // Rotation preserves lengths, so it can be repeated in place.
                    let mut query = numbers(shape.dim);
                    b.iter(|| {
                        for head in black_box(&mut query).chunks_exact_mut(shape.head_dim) {
                            kernels.rope(head, &cos, &sin, pairs);
                        }
                    });
                });
            }
        }
    }
    group.finish();
}
