//! `cargo bench -p brickscope-engine --features wgpu --bench wgpu_time [-- tiny|110m [PASSES]]`: how true
//! the times of a device are, and what they cost.
//!
//! One token at a time after the same prompt, in each way by turns: A B C D E, then E D C B A. On Mesa's
//! lavapipe set `LP_NUM_THREADS=0`, else each stamp wakes its threads.
//!
//! `deferred` is as `profile` does it: as fine as a hundredth of the pass allows, by what a stamp was found to
//! cost. `each kernel` is Deferred with a stamp between any two kernels, whatever it costs.
//!
//! - Durations: none may be negative (a pass whose marks are out of order has no times) or zero.
//! - Agreement: a brick in a Deferred pass against the same brick submitted alone and waited for, both by
//!   the device's clock. Host times of the latter show what the device's clock is for.
//! - Cost: passes in each mode beside those in mode None, by their walls; on Linux also by the CPU time of all
//!   threads, which other work on the machine hardly disturbs. A software device's work is in that.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use brickscope::{BrickProfiler, NameKind, PairedRatio, Profile, SyncMode};
use brickscope_engine::executor::Wgpu;
use brickscope_engine::synth::{self, Shape, SynthQuant};
use brickscope_engine::{GpuProbe, GpuSession, Model};

const PROMPT: [u32; 8] = [1, 20, 300, 4, 50, 60, 7, 80];
/// The ways in which passes are run.
const ARMS: [(&str, SyncMode); 5] = [
    ("none", SyncMode::None),
    ("deferred", SyncMode::Deferred),
    ("deferred, each kernel", SyncMode::Deferred),
    ("per_layer", SyncMode::PerLayer),
    ("immediate", SyncMode::Immediate),
];
const BUDGETED: usize = 1;
const EACH_KERNEL: usize = 2;
const IMMEDIATE: usize = 4;
/// What agreement is asked of, in nanoseconds: shorter bricks are noise and stamps.
const LONG: u64 = 200_000;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        println!("nothing to test here: `cargo bench` runs this");
        return ExitCode::SUCCESS;
    }
    let mut words = args.iter().filter(|arg| !arg.starts_with("--"));
    let shape = words.next().map_or("tiny", String::as_str);
    let passes = words.next().and_then(|passes| passes.parse().ok()).unwrap_or(60);
    match run(shape, passes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(shape: &str, passes: usize) -> Result<(), Box<dyn Error>> {
    let shape =
        Shape::ALL.into_iter().find(|known| known.name() == shape).ok_or("no such shape")?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    synth::write(shape, SynthQuant::Q4_K, 1, &path, &mut |_, _| ())?;
    measure(&Model::open(&path)?, passes)
}

fn measure(model: &Model, passes: usize) -> Result<(), Box<dyn Error>> {
    let mut session = GpuSession::new(model, Wgpu::new(model, 64)?);
    let profilers = ARMS.map(|(_, mode)| {
        let profiler = BrickProfiler::enabled();
        profiler.set_sync_mode(mode);
        profiler
    });
    let mut probes: Vec<GpuProbe<'_>> =
        profilers.iter().map(|profiler| session.profiled(profiler)).collect::<Result<_, _>>()?;
    let info = probes[0].timer().info().clone();
    probes[BUDGETED].timer().calibrate(session.gpu())?;
    session.forward(&PROMPT)?;
    session.forward(&[9])?;
    let mut walls = vec![Vec::new(); ARMS.len()];
    let mut cpu = walls.clone();
    for pass in 0..passes {
        for turn in 0..ARMS.len() {
            let arm = if pass % 2 == 0 { turn } else { ARMS.len() - 1 - turn };
            session.truncate(PROMPT.len());
            let (start, cpu_start) = (Instant::now(), cpu_seconds());
            session.forward_with(&mut probes[arm], &[9])?;
            walls[arm].push(start.elapsed().as_secs_f64());
            cpu[arm].extend(cpu_start.zip(cpu_seconds()).map(|(start, end)| end - start));
            // The next arm writes into the same sets of marks.
            probes[arm].timer().settle(session.gpu(), true)?;
        }
    }
    for probe in probes {
        session.finish(probe)?;
    }
    let profiles = profilers.map(|profiler| profiler.profile());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{} ({}, {})", info.name, info.api, info.driver);
    println!("load average at the end: {}", load.trim());
    for choice in &profiles[BUDGETED].devices[0].grains {
        println!("deferred, {}: {}", choice.phase.name(), choice.reason);
    }
    durations(&profiles[EACH_KERNEL])?;
    cost(&walls, "wall")?;
    if cpu[0].len() == passes {
        cost(&cpu, "CPU time")?;
    }
    agreement(&profiles[EACH_KERNEL], &profiles[IMMEDIATE])
}

fn durations(profile: &Profile) -> Result<(), Box<dyn Error>> {
    let gpu = profile.on_device(0, 0).ok_or("no stream")?;
    gpu.check().map_err(|why| format!("it doesn't add up: {why:?}"))?;
    let zero = gpu.spans.iter().filter(|span| span.duration_ns == 0).count();
    let shortest = gpu.spans.iter().map(|span| span.duration_ns).min().unwrap_or(0);
    let disordered = profile.devices[0].disordered_passes;
    println!(
        "durations: {} in {} passes, {zero} zero, {disordered} passes out of order; shortest {shortest} ns",
        gpu.spans.len(),
        gpu.passes.len(),
    );
    let alignment = profile.devices[0].alignment.ok_or("no alignment")?;
    println!("the device's clock lies beside the host's to {} ns\n", alignment.error_ns);
    Ok(())
}

/// The time that all threads have been on a CPU.
fn cpu_seconds() -> Option<f64> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let nanos = threads.map(|thread| {
        let stat = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Some(nanos.sum::<Option<u64>>()? as f64 / 1e9)
}

fn cost(walls: &[Vec<f64>], what: &str) -> Result<(), Box<dyn Error>> {
    println!("| mode | {what}, median | beside None | 95 % interval |\n|---|---|---|---|");
    for ((name, _), times) in ARMS.iter().zip(walls) {
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let wall = sorted[sorted.len() / 2] * 1e6;
        let pairs: Vec<(f64, f64)> = walls[0].iter().copied().zip(times.iter().copied()).collect();
        let ratio = PairedRatio::new(&pairs)?;
        let percent = [ratio.estimate, ratio.low, ratio.high].map(|part| 100.0 * part);
        println!(
            "| {name} | {wall:.0} µs | {:+.2} % | {:+.2} to {:+.2} % |",
            percent[0], percent[1], percent[2]
        );
    }
    println!();
    Ok(())
}

/// A brick, all layers together: its shortest tenth's end and its median, in nanoseconds.
struct Brick {
    name: String,
    tenth: u64,
    median: u64,
    spans: usize,
}

fn bricks(profile: &Profile) -> Vec<Brick> {
    let mut names: Vec<(String, Vec<u64>)> = Vec::new();
    for span in &profile.spans {
        let Some(name) = span.name.map(|index| &profile.names[usize::from(index)]) else {
            continue;
        };
        if name.kind != NameKind::Brick {
            continue;
        }
        match names.iter_mut().find(|(known, _)| *known == name.name) {
            Some((_, times)) => times.push(span.duration_ns),
            None => names.push((name.name.clone(), vec![span.duration_ns])),
        }
    }
    let brick = |(name, mut times): (String, Vec<u64>)| {
        times.sort_unstable();
        let [tenth, median] = [10, 2].map(|part| times[times.len() / part]);
        Brick { name, tenth, median, spans: times.len() }
    };
    names.into_iter().map(brick).collect()
}

fn agreement(deferred: &Profile, immediate: &Profile) -> Result<(), Box<dyn Error>> {
    let device = |profile: &Profile| profile.on_device(0, 0).ok_or("no stream").map(|p| bricks(&p));
    let (deferred, alone, host) = (device(deferred)?, device(immediate)?, bricks(immediate));
    println!("A tenth of the spans takes no longer than:\n");
    println!("| brick | spans | Deferred | alone | apart | apart, medians | alone, by the host |");
    println!("|---|---|---|---|---|---|---|");
    for brick in deferred {
        let of = |table: &[Brick]| {
            let found = table.iter().find(|other| other.name == brick.name);
            found.map_or([f64::NAN; 2], |other| [other.tenth, other.median].map(|ns| ns as f64))
        };
        let ([alone, alone_median], [host, _]) = (of(&alone), of(&host));
        let mark = if brick.tenth >= LONG { "" } else { " (short)" };
        println!(
            "| {}{mark} | {} | {:.1} µs | {:.1} µs | {:+.1} % | {:+.1} % | {:.1} µs |",
            brick.name,
            brick.spans,
            brick.tenth as f64 / 1e3,
            alone / 1e3,
            100.0 * (brick.tenth as f64 / alone - 1.0),
            100.0 * (brick.median as f64 / alone_median - 1.0),
            host / 1e3,
        );
    }
    Ok(())
}
