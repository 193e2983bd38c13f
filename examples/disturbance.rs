//! Plants disturbances and holds what the profiler says of each pass against the kernel's own counters:
//!
//! ```sh
//! cargo run --release --example disturbance [KiB]
//! ```
//!
//! Passes in which each of two threads reads so many KiB (2048 by default, about a millisecond) run three times: while
//! nothing else is started, while other processes spin on all CPUs, and while those spin in bursts; then the same in
//! bursts of five passes with pauses, as in a server. The truth of a pass is the longest wait of a thread in
//! `/proc/self/task/*/schedstat`, read by this program before and after it. Prints precision and recall, and what a look
//! at the load costs. Linux only. It measures, so it is no test of CI: there, counters are simulated.

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use brickscope::{BrickId, BrickProfiler, Phase, Work};
use brickscope_kernels::ThreadPool;

const PASSES: usize = 400;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, _, on_ms, off_ms] = &args[..] {
        return spin(on_ms.parse().expect("a number"), off_ms.parse().expect("a number"));
    }
    if waits().is_empty() {
        return eprintln!("this kernel keeps no /proc/self/task/*/schedstat");
    }
    let part = args.get(1).map_or(2048, |kib| kib.parse().expect("a number of KiB")) << 10;
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    println!("load     passes  waited  called  unknown  precision  recall  own threads");
    let mut any_is_low = false;
    for server in [false, true] {
        for (name, burst) in
            [("none", None), ("steady", Some((1000, 0))), ("bursts", Some((30, 60)))]
        {
            let mut burners: Vec<Child> = burst
                .map(|(on, off)| (0..cpus).map(|_| burner(on, off)).collect())
                .unwrap_or_default();
            let row = measure(server, part);
            for burner in &mut burners {
                let _ = burner.kill();
                let _ = burner.wait();
            }
            let name = if server { format!("{name}, 5") } else { name.to_owned() };
            any_is_low |= row.print(&name);
        }
    }
    cost();
    if any_is_low {
        println!("below 95 %: see the lines above");
        std::process::exit(1);
    }
}

/// Another process that spins for `on` milliseconds, and sleeps for `off`.
fn burner(on: u64, off: u64) -> Child {
    let program = std::env::current_exe().expect("this program");
    let args = ["spin".to_owned(), on.to_string(), off.to_string()];
    Command::new(program).args(args).spawn().expect("a process")
}

fn spin(on: u64, off: u64) {
    loop {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(on) {
            black_box(0);
        }
        std::thread::sleep(Duration::from_millis(off));
    }
}

/// How long each thread of this process has waited for a CPU.
fn waits() -> HashMap<String, u64> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return HashMap::new() };
    let tasks = tasks.filter_map(|task| {
        let task = task.ok()?;
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let wait = text.split(' ').nth(1)?.parse().ok()?;
        Some((task.file_name().to_string_lossy().into_owned(), wait))
    });
    tasks.collect()
}

#[derive(Default)]
struct Row {
    waited: u32,
    called: u32,
    both: u32,
    unknown: u32,
    own: u32,
}

impl Row {
    /// Prints it; whether precision or recall is below 95 %, of enough passes to tell.
    fn print(&self, name: &str) -> bool {
        let Self { waited, called, both, unknown, own } = *self;
        let part = |of: u32| {
            if of == 0 {
                "-".to_owned()
            } else {
                format!("{:.1} %", 100.0 * f64::from(both) / f64::from(of))
            }
        };
        println!(
            "{name:10} {PASSES:4} {waited:7} {called:7} {unknown:8} {:>10} {:>7} {own:12}",
            part(called),
            part(waited)
        );
        let is_low = |of: u32| of >= 40 && f64::from(both) < 0.95 * f64::from(of);
        is_low(called) || is_low(waited)
    }
}

fn measure(server: bool, part: usize) -> Row {
    let pool = ThreadPool::new(NonZeroUsize::new(2).expect("not 0")).expect("threads");
    let profiler = BrickProfiler::enabled();
    let weights = vec![1_u8; 2 * part];
    let mut truth = Vec::new();
    for nth in 0..PASSES {
        if server && nth % 5 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = waits();
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        pool.run(&|thread| {
            let half = &weights[thread * part..(thread + 1) * part];
            black_box(half.iter().step_by(4).map(|&byte| u64::from(byte)).sum::<u64>());
        });
        profiler.stop_brick_with(timer, Work::default());
        profiler.end_pass(pass, 1, nth as u64);
        let grown = waits().into_iter().map(|(task, wait)| wait - before.get(&task).unwrap_or(&0));
        truth.push(grown.max().unwrap_or(0));
    }
    profiler.disable();
    let profile = profiler.profile();
    let mut row = Row::default();
    for (pass, wait) in profile.passes.iter().zip(truth) {
        let waited = wait > pass.wall_ns / 100;
        row.waited += u32::from(waited);
        row.called += u32::from(pass.is_disturbed());
        row.both += u32::from(waited && pass.is_disturbed());
        row.unknown += u32::from(pass.disturbance.is_none());
        let by = pass.disturbance.and_then(|of| of.disturber());
        row.own += u32::from(by == Some(brickscope::Disturber::OwnThreads));
    }
    row
}

/// What a pass costs with and without looks, while the caches are full of other things.
fn cost() {
    let mut other = vec![0_u64; 8 << 20];
    let mut medians = [0; 2];
    for (watch, median) in [true, false].into_iter().zip(&mut medians) {
        let profiler = BrickProfiler::new();
        profiler.watch_load(watch);
        profiler.enable();
        let mut times: Vec<u128> = (0..101)
            .map(|_| {
                let pass = profiler.begin_pass(Phase::Decode);
                other.iter_mut().step_by(8).for_each(|word| *word += 1);
                let begin = Instant::now();
                profiler.end_pass(pass, 1, 0);
                begin.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        *median = times[50];
    }
    let [with, without] = medians;
    println!(
        "the end of a pass takes {with} ns with a look and {without} ns without, one thread, cold caches"
    );
}
