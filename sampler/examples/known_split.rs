//! Spends CPU time in two functions, some three quarters of it in one, for samplers to find.
//!
//! `known_split THREADS MILLISECONDS` spends that much CPU time on each thread. It prints the addresses of the two
//! functions and the number of rounds. If `BRICKSCOPE_TIMER_SAMPLES` is set, it samples itself and prints the number of
//! samples.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The least number of loop iterations per round.
const TURNS: u64 = 20_000;

#[allow(dead_code, reason = "the tests include this file")]
fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().ok());
    let (Some(Some(threads)), Some(Some(milliseconds))) = (numbers.next(), numbers.next()) else {
        eprintln!("usage: known_split THREADS MILLISECONDS");
        std::process::exit(2);
    };
    let sampler = brickscope_sampler::timer::start_if_asked().expect("it can be sampled");
    run(threads, milliseconds);
    if let Some((sampler, _path)) = sampler {
        let recording = sampler.finish();
        let (n_samples, lost) = (recording.samples.len(), recording.lost);
        println!("samples {n_samples}, lost {lost}: {:?}", recording.notes);
    }
}

/// Spends `milliseconds` of CPU time on each of `threads` threads. Returns the share of the second function as the clock finds
/// it: where a loop's code lies, and what runs on the same core, can make its turns a third longer than those of the other.
pub(crate) fn run(threads: u64, milliseconds: u64) -> f64 {
    let [seldom_at, often_at] = places();
    println!("seldom {seldom_at:#x}");
    println!("often {often_at:#x}");
    let work = move || {
        let end = cpu_time() + Duration::from_millis(milliseconds);
        let mut rounds: Vec<[Duration; 2]> = Vec::new();
        while cpu_time() < end {
            // Rounds of varying length, so that a sampler's period can't be a multiple of theirs.
            let turns = TURNS + (rounds.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % TURNS;
            let begun = Instant::now();
            black_box(seldom(black_box(turns)));
            let between = begun.elapsed();
            black_box(often(black_box(turns)));
            rounds.push([between, begun.elapsed() - between]);
        }
        rounds
    };
    let spawn = |index| {
        let name = format!("worker-{index}");
        std::thread::Builder::new().name(name).spawn(work).expect("a thread")
    };
    let workers: Vec<_> = (0..threads).map(spawn).collect();
    let rounds: Vec<[Duration; 2]> =
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect();
    println!("rounds {}", rounds.len());
    // Not those in which it waited for a CPU.
    let mut lengths: Vec<Duration> = rounds.iter().map(|[one, other]| *one + *other).collect();
    lengths.sort();
    let most = lengths.get(lengths.len() / 2).map_or(Duration::MAX, |median| *median * 3);
    let mut all = [Duration::ZERO; 2];
    for [one, other] in rounds.iter().filter(|[one, other]| *one + *other <= most) {
        all[0] += *one;
        all[1] += *other;
    }
    let share = all[1].as_secs_f64() / (all[0] + all[1]).as_secs_f64();
    println!("share {share}");
    share
}

/// The addresses of the function that takes a quarter of the time, and of the one that takes three quarters.
pub(crate) fn places() -> [u64; 2] {
    [seldom, often].map(|function: fn(u64) -> u64| function as usize as u64)
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let nanoseconds = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

macro_rules! spin {
    ($turns:expr) => {{
        let mut value: u64 = $turns;
        let mut left: u64 = $turns;
        // Without calls, even if nothing is inlined: a chain of operations that takes the same time in each
        // iteration.
        while left > 0 {
            value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (value >> 17);
            left -= 1;
        }
        value
    }};
}

/// A quarter of the time.
#[inline(never)]
fn seldom(turns: u64) -> u64 {
    spin!(turns)
}

/// Three quarters of the time.
#[inline(never)]
fn often(turns: u64) -> u64 {
    spin!(3 * turns)
}
