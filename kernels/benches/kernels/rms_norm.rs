//! RMS normalisation of a token.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::model::{SHAPES, backends, numbers};
use crate::saturate::read_cache;

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("rms_norm in cache");
    read_cache(&mut group);
    for shape in SHAPES {
        let n = shape.dim;
        let (x, weight, mut out) = (numbers(n), numbers(n), vec![0.0; n]);
        // Reads the token and the weights, and writes the result.
        group.throughput(Throughput::ElementsAndBytes {
            elements: n as u64,
            bytes: 3 * 4 * n as u64,
        });
        for kernels in backends() {
            let id = BenchmarkId::new(kernels.backend().name(), format!("{n} of {}", shape.name));
            group.bench_function(id, |b| {
                b.iter(|| {
                    kernels.rms_norm(black_box(&mut out), black_box(&x), black_box(&weight), 1e-5);
                });
            });
        }
    }
    group.finish();
}
