//! A program with a known flamegraph, to test samplers:
//!
//! ```sh
//! cargo build --release -p brickscope-cli --features flamegraph --bin brickscope --example known_flamegraph
//! brickscope flamegraph -- target/release/examples/known_flamegraph plain 4000
//! brickscope flamegraph -- target/release/examples/known_flamegraph forward model.gguf 600
//! ```
//!
//! `plain MILLISECONDS` takes that much CPU time, some three quarters of it in one function and a quarter in another; `share`
//! prints which part it is by the clock.
//! `forward MODEL TOKENS` decodes on two threads, and spins in DownProjection of layer 3 in each pass, for half of the
//! CPU time that a pass takes without it. `forward MODEL TOKENS 1` decodes on one.
//!
//! Whatever else runs, it spins for as many turns: by the clock, it would spin less the longer others are on its CPU.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
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
        [_, "share"] => println!("{}", share()),
        [_, "forward", model, tokens] => forward(model.as_ref(), tokens.parse()?, 2)?,
        [_, "forward", model, tokens, threads] => {
            forward(model.as_ref(), tokens.parse()?, threads.parse()?)?;
        }
        _ => {
            let usage = "usage: known_flamegraph plain MILLISECONDS | share | forward MODEL TOKENS [THREADS]";
            return Err(usage.into());
        }
    }
    if let Some((sampler, path)) = timer {
        let sampled = resolve(&sampler.finish(), &mut |_, _| ());
        std::fs::write(path, serde_json::to_vec(&sampled)?)?;
    }
    Ok(())
}

/// The least number of turns of a round, of which the quarter takes some 10 µs.
const TURNS: u64 = 10_000;

fn plain(total: Duration) {
    let end = cpu_time() + total;
    let mut rounds = 0_u64;
    while cpu_time() < end {
        for _ in 0..16 {
            // Of varying length, so that a sampler's period can't be a multiple of theirs.
            let turns = TURNS + rounds.wrapping_mul(0x9E37_79B9_7F4A_7C15) % TURNS;
            three_quarters(turns);
            one_quarter(turns);
            rounds += 1;
        }
    }
}

/// The share of `three_quarters`, of rounds that nothing disturbed: where a loop's code lies can make its turns longer.
fn share() -> f64 {
    let round = |nth: u64| {
        let begun = Instant::now();
        three_quarters(TURNS + nth);
        let first = begun.elapsed();
        one_quarter(TURNS + nth);
        first.as_secs_f64() / begun.elapsed().as_secs_f64()
    };
    let mut shares: Vec<f64> = (0..501).map(round).collect();
    shares.sort_by(f64::total_cmp);
    shares[shares.len() / 2]
}

#[inline(never)]
fn three_quarters(turns: u64) {
    black_box(spin(black_box(3 * turns)));
}

#[inline(never)]
fn one_quarter(turns: u64) {
    black_box(spin(black_box(turns)));
}

/// Inlined, so that a sampler has to separate inlined functions from their callers. A chain of operations that takes the
/// same time in each turn.
#[inline(always)]
fn spin(turns: u64) -> u64 {
    let (mut value, mut left) = (turns, turns);
    while left > 0 {
        value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (value >> 17);
        left -= 1;
    }
    value
}

/// The CPU time of all threads, or the time where the system doesn't say it.
fn cpu_time() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let own = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    match std::fs::read_dir("/proc/self/task") {
        Ok(tasks) => tasks.filter_map(own).sum(),
        Err(_) => BEGAN.get_or_init(Instant::now).elapsed(),
    }
}

/// The turns that take this CPU time.
fn turns_of(time: Duration) -> u64 {
    let begin = cpu_time();
    let mut turns = 0;
    // The system counts CPU time at its ticks, of 1 to 10 ms.
    while cpu_time() < begin + Duration::from_millis(200) {
        black_box(spin(black_box(100 * TURNS)));
        turns += 100 * TURNS;
    }
    (turns as f64 * time.as_secs_f64() / (cpu_time() - begin).as_secs_f64()) as u64
}

/// Spins at the beginning of one of the jobs that a pass hands to the pool.
struct Planted {
    /// Jobs that have begun.
    jobs: AtomicU64,
    /// The number of jobs of a pass.
    per_pass: AtomicU64,
    /// The job that spins; `u64::MAX` for none.
    at: AtomicU64,
    turns: AtomicU64,
}

impl Watch for Planted {
    fn job_begins(&self) {
        let job = self.jobs.fetch_add(1, Ordering::Relaxed);
        if job % self.per_pass.load(Ordering::Relaxed) == self.at.load(Ordering::Relaxed) {
            planted_spin(self.turns.load(Ordering::Relaxed));
        }
    }

    fn share_begins(&self, _: usize) {}
    fn share_ends(&self, _: usize) {}
    fn job_ends(&self) {}
}

#[inline(never)]
fn planted_spin(turns: u64) {
    black_box(spin(black_box(turns)));
}

fn forward(model: &Path, tokens: usize, threads: usize) -> Anyhow<()> {
    const LAYER: u64 = 3;
    let model = Model::open(model)?;
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::new(threads).ok_or("no threads")?)?;
    // Short, so that attention stays on one thread and all passes have the same number of jobs.
    let context = 8 + tokens.min(8);
    let mut session = Session::new(&model, cpu, context)?;
    let planted = Arc::new(Planted {
        jobs: AtomicU64::new(0),
        per_pass: AtomicU64::new(u64::MAX),
        at: AtomicU64::new(u64::MAX),
        turns: AtomicU64::new(0),
    });
    session.cpu().pool().watch(Some(Arc::clone(&planted) as Arc<dyn Watch>));

    // Find the number of jobs of a pass, and its time.
    session.forward(&[1, 2, 3, 4])?;
    session.forward(&[5])?;
    planted.jobs.store(0, Ordering::Relaxed);
    const PASSES: u32 = 8;
    let start = cpu_time();
    for token in 0..PASSES {
        session.truncate(5);
        session.forward(&[token])?;
    }
    let each = (cpu_time() - start) / PASSES;
    let per_pass = planted.jobs.load(Ordering::Relaxed) / u64::from(PASSES);
    // The last job is the head's; the last one of a layer is its DownProjection's.
    let layers = model.config.n_layers as u64;
    let per_layer = (per_pass - 1) / layers;
    assert_eq!(per_layer * layers + 1, per_pass, "every layer hands out as many jobs");
    planted.per_pass.store(per_pass, Ordering::Relaxed);
    planted.at.store(LAYER * per_layer + per_layer - 1, Ordering::Relaxed);
    planted.turns.store(turns_of(each / 2), Ordering::Relaxed);
    planted.jobs.store(0, Ordering::Relaxed);

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
