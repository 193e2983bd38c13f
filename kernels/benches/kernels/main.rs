//! `cargo bench -p brickscope-kernels`: the speed of each kernel by itself, with criterion's statistics.
//!
//! There is a file for each operation, as in `src/`. Groups say where the data is: *from memory* streams weights through
//! the caches, as a decode pass does; *in cache* works on the same few kilobytes again and again. A row `read` in the
//! same group is the ceiling: a loop that only reads.
//!
//! Throughput is in elements and bytes per second. An element is one that the operation produces or, for a product, a
//! weight (for a GEMM, a weight times a token, so two FLOPs). Bytes are the least that must be moved: each input once,
//! each output once.
//!
//! `-- gemv` runs the benchmarks with this in their name; `-- --test` runs each once, untimed. Leave the cores to it
//! alone: nothing here notices other load.

mod add;
mod attention;
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
    name = kernels;
    config = config();
    targets =
        saturate::benches,
        gemv::benches,
        gemm::benches,
        rms_norm::benches,
        softmax::benches,
        rope::benches,
        silu_mul::benches,
        add::benches,
        attention::benches,
}
criterion_main!(kernels);
