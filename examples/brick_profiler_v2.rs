//! Three layers of a small transformer, timed brick by brick, and then some deferred bricks.
//!
//! Run with `cargo run --release --example brick_profiler_v2`. It prints a table of bricks, a table of categories, and the
//! time attributed to three deferred bricks. The work is real: RMS norms and matrix-vector products in the sizes of a
//! model that is 256 wide.

use std::hint::black_box;

use brickscope::{BrickCategory, BrickId, BrickProfiler, SyncMode, detect_backend, simd};

const DIM: usize = 256;
const FFN: usize = 768;

fn main() {
    let profiler = BrickProfiler::new();
    profiler.enable();
    println!("=== BrickProfiler v2 Demo ===\n");
    println!("Backend: {:?}\n", detect_backend());

    let weights: Vec<f32> = (0..FFN * DIM).map(|i| (i % 13) as f32 / 13.0 - 0.5).collect();
    let mut x = vec![1.0; DIM];
    let mut h = vec![0.0; DIM];
    let mut wide = vec![0.0; FFN];
    for _layer in 0..3 {
        let timer = profiler.start_brick(BrickId::RmsNorm);
        simd::rms_norm_scalar(&x, &mut h);
        profiler.stop_brick(timer, DIM as u64);

        let timer = profiler.start_brick(BrickId::QkvProjection);
        matvec(&mut wide, &weights, &h);
        profiler.stop_brick(timer, FFN as u64);

        let timer = profiler.start_brick(BrickId::AttentionScore);
        let score: f32 = wide[..DIM].iter().zip(&wide[DIM..]).map(|(q, k)| q * k).sum();
        profiler.stop_brick(timer, DIM as u64);

        let timer = profiler.start_brick(BrickId::GateProjection);
        matvec(&mut wide, &weights, &h);
        profiler.stop_brick(timer, FFN as u64);

        let timer = profiler.start_brick(BrickId::DownProjection);
        matvec(&mut x, &weights, &wide);
        profiler.stop_brick(timer, DIM as u64);
        black_box(score);
    }

    println!("Per-Brick Timing:");
    println!("{:20} {:>10} {:>10} {:>8}", "Brick", "Avg (µs)", "Total (µs)", "Count");
    println!("{}", "-".repeat(52));
    for brick in BrickId::ALL {
        let stats = profiler.brick_stats(brick);
        if stats.count > 0 {
            let total_us = stats.total_ns as f64 / 1e3;
            let (name, avg, count) = (brick.name(), stats.avg_us(), stats.count);
            println!("{name:20} {avg:>10.1} {total_us:>10.1} {count:>8}");
        }
    }

    println!("\nCategory Breakdown:");
    println!("{:12} {:>10} {:>8} {:>10}", "Category", "Avg (µs)", "Pct", "Samples");
    println!("{}", "-".repeat(44));
    let categories = profiler.category_stats();
    for category in BrickCategory::ALL {
        let stats = categories[category as usize];
        if stats.count > 0 {
            let (avg, share) = (stats.avg_us(), stats.percentage(profiler.total_ns()));
            println!("{:12} {avg:>10.1} {share:>7.1}% {:>10}", category.name(), stats.count);
        }
    }

    // When work is issued now and finished later, only its order is known unless there is a device clock: each brick
    // lasts until the next one starts, and the last one until the end.
    profiler.reset();
    profiler.set_sync_mode(SyncMode::Deferred);
    profiler.reset_epoch();
    for brick in [BrickId::RmsNorm, BrickId::QkvProjection, BrickId::AttentionScore] {
        let start = profiler.elapsed_ns();
        matvec(&mut wide, &weights, &h);
        profiler.record_deferred(brick, start, DIM as u64);
    }
    let pending = profiler.pending_count();
    let end = profiler.elapsed_ns();
    profiler.finalize(end);
    println!("\nDeferred: {pending} pending, then {} pending", profiler.pending_count());
    let attributed = profiler.total_ns() as f64 / 1e3;
    println!("Attributed to them: {attributed:.1} µs of a pass of {:.1} µs.", end as f64 / 1e3);
}

/// `out = W·x`, where `W` has a row of `x.len()` weights for each element of `out`.
fn matvec(out: &mut [f32], weights: &[f32], x: &[f32]) {
    for (out, row) in out.iter_mut().zip(weights.chunks_exact(x.len()).cycle()) {
        *out = row.iter().zip(x).map(|(w, x)| w * x).sum();
    }
}
