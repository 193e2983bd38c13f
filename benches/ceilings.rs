//! `cargo bench --bench ceilings`: checks that the bandwidths which brickscope measures are ceilings.
//!
//! It compares them with loops that share no code with ours: plain Rust over `f64` arrays on standard threads, vectorised
//! by the compiler, after John McCalpin's STREAM (<https://www.cs.virginia.edu/stream/ref.html>). The two take turns, and
//! the best run of each counts. A ratio below 0.95 means that ours isn't a ceiling. Above 1.05, ours does something that
//! plain code doesn't: still a ceiling, but one that the comparison doesn't confirm.
//!
//! `-- --check` exits with 1 if the target is missed.

use std::env;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use brickscope::{CacheLevel, Move};

/// How often our loops and the plain loops take turns.
const ROUNDS: usize = 3;
/// How long the plain loops run in a turn.
const TURN: Duration = Duration::from_millis(400);
/// The lowest ratio of ours to plain at which ours counts as a ceiling.
const LEAST: f64 = 0.95;

fn main() -> ExitCode {
    if !env::args().any(|arg| arg == "--bench") {
        println!("nothing to test here: `cargo bench --bench ceilings` runs this");
        return ExitCode::SUCCESS;
    }
    let most = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let places: Vec<(String, Option<CacheLevel>)> = brickscope::machine::caches()
        .into_iter()
        .map(|cache| (cache.name(), Some(cache)))
        .chain([("memory".to_owned(), None)])
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}: ours …");
        let survey = match brickscope::machine::measure_survey(most, &mut || ()) {
            Ok(survey) => survey,
            Err(error) => {
                eprintln!("can't start {most} threads: {error}");
                return ExitCode::FAILURE;
            }
        };
        eprintln!("round {round} of {ROUNDS}: plain …");
        for (threads, (level, cache)) in brickscope::machine::survey_thread_counts(most)
            .into_iter()
            .flat_map(|n| places.iter().map(move |p| (n, p)))
        {
            for how in Move::ALL {
                let bandwidth = survey.bandwidth.iter().find(|b| {
                    b.level == *level && b.how == how && b.threads as usize == threads.get()
                });
                let Some(ours) = bandwidth.and_then(|b| b.bytes_per_second) else { continue };
                // As many bytes as ours. STREAM's rule for memory is four times the last-level cache.
                let set = bandwidth.and_then(|b| b.working_set).unwrap_or(0) as usize;
                let other = other(how, threads.get(), set / threads.get(), cache.is_some());
                let row = rows.iter_mut().find(|row| {
                    row.level == *level && row.how == how && row.threads == threads.get()
                });
                match row {
                    Some(row) => {
                        row.ours = row.ours.max(ours);
                        row.other = row.other.max(other);
                    }
                    None => rows.push(Row {
                        level: level.clone(),
                        how,
                        threads: threads.get(),
                        ours,
                        other,
                    }),
                }
            }
        }
    }
    println!(
        "{:8} {:>7} {:8} {:>12} {:>12} {:>8}",
        "level", "threads", "", "ours GB/s", "plain", "ratio"
    );
    let mut all_ceilings = true;
    for Row { level, how, threads, ours, other } in rows {
        let ratio = ours / other;
        all_ceilings &= ratio >= LEAST;
        let verdict = match ratio {
            ..LEAST => "  not a ceiling",
            ..=1.05 => "",
            _ => "  plain code is slower",
        };
        let (name, ours, other) = (how.name(), ours / 1e9, other / 1e9);
        println!("{level:8} {threads:7} {name:8} {ours:12.1} {other:12.1} {ratio:8.3}{verdict}");
    }
    let verdict = if all_ceilings { "all are ceilings" } else { "MISSED: some aren't ceilings" };
    println!("target, a ratio of at least {LEAST}: {verdict}");
    let checks = env::args().any(|arg| arg == "--check");
    if checks && !all_ceilings { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Row {
    level: String,
    how: Move,
    threads: usize,
    ours: f64,
    other: f64,
}

/// The bytes per second that the plain loop moves on `threads` threads, with `set` bytes each.
fn other(how: Move, threads: usize, set: usize, in_cache: bool) -> f64 {
    let arrays = match how {
        Move::Read | Move::Write => 1,
        Move::Copy => 2,
        Move::Triad => 3,
    };
    let len = set / arrays / size_of::<f64>();
    // A run must take much longer than a barrier.
    let times = if in_cache { (64 << 20) / set.max(1) + 1 } else { 1 };
    let barrier = Barrier::new(threads);
    let work = |is_first: bool| {
        let mut best = f64::INFINITY;
        let mut a = vec![1.0f64; len];
        let b = vec![2.0f64; if arrays > 1 { len } else { 0 }];
        let c = vec![3.0f64; if arrays > 2 { len } else { 0 }];
        // All threads must stop after the same round, so the limit is a number of rounds, not a time.
        let mut rounds = usize::MAX;
        let begin = Instant::now();
        let mut n = 0;
        while n < rounds {
            barrier.wait();
            let start = Instant::now();
            for _ in 0..times {
                plain(how, &mut a, &b, &c);
            }
            barrier.wait();
            let took = start.elapsed().as_secs_f64();
            best = best.min(took);
            n += 1;
            if n == 3 {
                // All threads measure about the same time, so the first decides.
                let each = begin.elapsed().as_secs_f64() / 3.0;
                let wanted = (TURN.as_secs_f64() / each) as usize;
                if is_first {
                    ROUNDS_OF_ALL
                        .store(wanted.clamp(3, 100_000), std::sync::atomic::Ordering::SeqCst);
                }
                barrier.wait();
                rounds = ROUNDS_OF_ALL.load(std::sync::atomic::Ordering::SeqCst);
            }
        }
        best
    };
    let best = thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| work(false));
        }
        work(true)
    });
    (times * threads * arrays * len * size_of::<f64>()) as f64 / best
}

/// The number of rounds that a measurement's first thread decided on.
static ROUNDS_OF_ALL: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

#[inline(never)]
fn plain(how: Move, a: &mut [f64], b: &[f64], c: &[f64]) {
    use std::hint::black_box;
    match how {
        Move::Read => {
            // Eight sums, since the compiler may not reorder the additions of a single one.
            let mut sums = [0.0; 8];
            for chunk in a.chunks_exact(8) {
                for (sum, number) in sums.iter_mut().zip(chunk) {
                    *sum += number;
                }
            }
            black_box(sums);
        }
        Move::Write => {
            let value = black_box(4.0);
            for a in &mut *a {
                *a = value;
            }
        }
        Move::Copy => {
            for (a, b) in a.iter_mut().zip(b) {
                *a = *b;
            }
        }
        Move::Triad => {
            let factor = black_box(0.5);
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                *a = b + factor * c;
            }
        }
    }
    black_box(a);
}
