//! Residual connections.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::model::{SHAPES, backends, numbers};

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("add in cache");
    for shape in SHAPES {
        let n = shape.dim;
        group.throughput(Throughput::ElementsAndBytes {
            elements: n as u64,
            bytes: 3 * 4 * n as u64,
        });
        for kernels in backends() {
            let id = BenchmarkId::new(kernels.backend().name(), format!("{n} of {}", shape.name));
            group.bench_function(id, |b| {
                let (mut x, y) = (numbers(n), numbers(n));
                b.iter(|| kernels.add(black_box(&mut x), black_box(&y)));
            });
        }
    }
    group.finish();
}
