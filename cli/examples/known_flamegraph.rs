//! A program with a known flamegraph, to test samplers:
//!
//! ```sh
//! cargo build --release -p brickscope-cli --example known_flamegraph
//! brickscope flamegraph -- target/release/examples/known_flamegraph plain 4000
//! brickscope flamegraph -- target/release/examples/known_flamegraph forward model.gguf 600
//! ```
//!
//! `plain MILLISECONDS` computes for that long, three quarters of it in one function and a quarter in
//! another. `forward MODEL TOKENS` decodes on two threads, and spins in DownProjection of layer 3 in each
//! pass, for half as long as a pass takes without it.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brickscope::BrickProfiler;
use brickscope_engine::executor::Cpu;
use brickscope_engine::{Model, Session};
use brickscope_kernels::{Kernels, Watch};
use brickscope_sampler::{resolve, timer};

type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anyhow<()> {
    let args: Vec<String> = std::env::args().collect();
    // For `--via timer`, which needs a program that samples itself.
    let timer = timer::start_if_asked()?;
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "plain", millis] => plain(Duration::from_millis(millis.parse()?)),
        [_, "forward", model, tokens] => forward(model.as_ref(), tokens.parse()?)?,
        _ => return Err("usage: known_flamegraph plain MILLISECONDS | forward MODEL TOKENS".into()),
    }
    if let Some((sampler, path)) = timer {
        let sampled = resolve(&sampler.finish(), &mut |_, _| ());
        std::fs::write(path, serde_json::to_vec(&sampled)?)?;
    }
    Ok(())
}

fn plain(total: Duration) {
    let end = Instant::now() + total;
    while Instant::now() < end {
        three_quarters(Duration::from_micros(300));
        one_quarter(Duration::from_micros(100));
    }
}

#[inline(never)]
fn three_quarters(time: Duration) {
    spin(time);
    black_box(());
}

#[inline(never)]
fn one_quarter(time: Duration) {
    spin(time);
    black_box(());
}

/// Inlined, so that a sampler has to separate inlined functions from their callers.
#[inline(always)]
fn spin(time: Duration) {
    let start = Instant::now();
    let mut sum = 0_u64;
    while start.elapsed() < time {
        for i in 0..256 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(i));
        }
    }
}

/// Spins at the beginning of one of the jobs that a pass hands to the pool.
struct Planted {
    /// Jobs that have begun.
    jobs: AtomicU64,
    /// The number of jobs of a pass.
    per_pass: AtomicU64,
    /// The job that spins; `u64::MAX` for none.
    at: AtomicU64,
    nanos: AtomicU64,
}

impl Watch for Planted {
    fn job_begins(&self) {
        let job = self.jobs.fetch_add(1, Ordering::Relaxed);
        if job % self.per_pass.load(Ordering::Relaxed) == self.at.load(Ordering::Relaxed) {
            planted_spin(Duration::from_nanos(self.nanos.load(Ordering::Relaxed)));
        }
    }

    fn share_begins(&self, _: usize) {}
    fn share_ends(&self, _: usize) {}
    fn job_ends(&self) {}
}

#[inline(never)]
fn planted_spin(time: Duration) {
    spin(time);
    black_box(());
}

fn forward(model: &Path, tokens: usize) -> Anyhow<()> {
    const LAYER: u64 = 3;
    let model = Model::open(model)?;
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::new(2).expect("two"))?;
    // Short, so that attention stays on one thread and all passes have the same number of jobs.
    let context = 8 + tokens.min(8);
    let mut session = Session::new(&model, cpu, context)?;
    let planted = Arc::new(Planted {
        jobs: AtomicU64::new(0),
        per_pass: AtomicU64::new(u64::MAX),
        at: AtomicU64::new(u64::MAX),
        nanos: AtomicU64::new(0),
    });
    session.cpu().pool().watch(Some(Arc::clone(&planted) as Arc<dyn Watch>));

    // Find the number of jobs of a pass, and its time.
    session.forward(&[1, 2, 3, 4])?;
    session.forward(&[5])?;
    planted.jobs.store(0, Ordering::Relaxed);
    let start = Instant::now();
    session.forward(&[6])?;
    let wall = start.elapsed();
    let per_pass = planted.jobs.swap(0, Ordering::Relaxed);
    // The last job is the head's; the last one of a layer is its DownProjection's.
    let layers = model.config.n_layers as u64;
    let per_layer = (per_pass - 1) / layers;
    assert_eq!(per_layer * layers + 1, per_pass, "every layer hands out as many jobs");
    planted.per_pass.store(per_pass, Ordering::Relaxed);
    planted.at.store(LAYER * per_layer + per_layer - 1, Ordering::Relaxed);
    planted.nanos.store(wall.as_nanos() as u64 / 2, Ordering::Relaxed);

    let profiler = BrickProfiler::new().with_log_capacity(tokens * 40 * (layers as usize + 1));
    profiler.enable();
    for token in 0..tokens {
        if session.room() == 0 {
            session.truncate(6);
        }
        session.forward_profiled(&profiler, &[token as u32 % 100])?;
    }
    profiler.disable();
    profiler.profile().save_where_asked()?;
    Ok(())
}
