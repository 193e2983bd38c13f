//! One query head against a cache: both halves of attention.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::flops::Flops;
use crate::model::{SHAPES, backends, numbers};

/// Positions in the cache. With this many, the keys of one layer take 0.5 to 8 MB, of which a head reads its part: one
/// layer's cache stays in a level of cache from one head to the next.
const POSITIONS: usize = 512;

pub(crate) fn benches(c: &mut Criterion<Flops>) {
    let mut group = c.benchmark_group(format!("attention in cache, {POSITIONS} positions"));
    for shape in SHAPES {
        let (head, stride) = (shape.head_dim, shape.kv_dim);
        let cache = numbers(POSITIONS * stride);
        group.throughput(Throughput::ElementsAndBytes {
            elements: (2 * POSITIONS * head) as u64,
            bytes: 4 * (POSITIONS * head + POSITIONS + head) as u64,
        });
        for kernels in backends() {
            let parameter = format!("head of {head}, {stride} apart, of {}", shape.name);
            let name = format!("scores {}", kernels.backend());
            group.bench_function(BenchmarkId::new(name, &parameter), |b| {
                let (q, mut out) = (numbers(head), vec![0.0; POSITIONS]);
                b.iter(|| {
                    kernels.scores(black_box(&mut out), black_box(&q), &cache, stride, 0.125);
                });
            });
            let name = format!("weighted_sum {}", kernels.backend());
            group.bench_function(BenchmarkId::new(name, &parameter), |b| {
                let (p, mut out) = (numbers(POSITIONS), vec![0.0; head]);
                b.iter(|| {
                    kernels.weighted_sum(black_box(&mut out), black_box(&p), &cache, stride);
                });
            });
        }
    }
    group.finish();
}
