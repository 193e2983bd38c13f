//! `cargo bench -p brickscope-kernels`: the speed of each kernel by itself, with criterion's statistics.
//!
//! There is a file for each operation, as in `src/`. Groups say where the data is: *from memory* streams weights through
//! the caches, as a decode pass does; *in cache* works on the same few kilobytes again and again. A row `read` in the
//! same group is the ceiling: a loop that only reads.
//!
//! Throughput of products is in GFLOP/s, two FLOPs for each weight and token, and that of other operations in elements
//! that they produce; beside it in bytes per second. Bytes are the least that must be moved: each input once, each
//! output once.
//!
//! `-- gemv` runs the benchmarks with this in their name; `-- --test` runs each once, untimed. Leave the cores to it
//! alone: nothing here notices other load. `--features html_reports` writes `target/criterion/report/index.html`, too, after
//! each benchmark; with plots where gnuplot is installed.

mod add;
mod attention;
mod flops;
mod gemm;
mod gemv;
mod model;
mod rms_norm;
mod rope;
mod saturate;
mod silu_mul;
mod softmax;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

use crate::flops::Flops;

/// Shorter than criterion's 3 and 5 seconds: a hundred benchmarks that take a few minutes are run more often than ones
/// that take a quarter of an hour.
fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1_200))
        .sample_size(20)
        .nresamples(20_000)
}

criterion_group! {
    name = products;
    config = config().with_measurement(Flops);
    targets =
        saturate::benches,
        gemv::benches,
        gemm::benches,
        attention::benches,
}
criterion_group! {
    name = others;
    config = config();
    targets =
        rms_norm::benches,
        softmax::benches,
        rope::benches,
        silu_mul::benches,
        add::benches,
}
criterion_main!(products, others);
