//! Softmax of attention scores.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::model::{backends, numbers};

/// Positions in the cache: a short context, a typical one and a long one.
const POSITIONS: [usize; 3] = [128, 1024, 8192];

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("softmax in cache");
    for n in POSITIONS {
        group.throughput(Throughput::ElementsAndBytes {
            elements: n as u64,
            bytes: 2 * 4 * n as u64,
        });
        for kernels in backends() {
            let id = BenchmarkId::new(kernels.backend().name(), format!("{n} positions"));
            group.bench_function(id, |b| {
                // In place: from the second time on the scores are probabilities, which takes the same number of
                // instructions.
                let mut x = numbers(n);
                b.iter(|| kernels.softmax(black_box(&mut x)));
            });
        }
    }
    group.finish();
}
