//! The gate of a feed-forward network.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::model::{SHAPES, backends, numbers};

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("silu_mul in cache");
    for shape in SHAPES {
        let n = shape.ffn_dim;
        group.throughput(Throughput::ElementsAndBytes {
            elements: n as u64,
            bytes: 3 * 4 * n as u64,
        });
        for kernels in backends() {
            let id = BenchmarkId::new(kernels.backend().name(), format!("{n} of {}", shape.name));
            group.bench_function(id, |b| {
                // In place, gates would grow to infinity or become denormal, which is slow. With `up` = 1 + exp(-g),
                // silu(g) · up is g, and for g in (-2, 0) rounding errors shrink.
                let mut gate: Vec<f32> = numbers(n).iter().map(|x| 0.9 * x - 1.0).collect();
                let up: Vec<f32> = gate.iter().map(|g| 1.0 + (-g).exp()).collect();
                b.iter(|| kernels.silu_mul(black_box(&mut gate), black_box(&up)));
                assert!(gate.iter().all(|g| (-2.0..-0.05).contains(g)), "it ran off");
            });
        }
    }
    group.finish();
}
