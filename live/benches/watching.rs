//! `cargo bench -p brickscope-live --bench watching [-- 110m|1b|MODEL.gguf [THREADS [SECONDS [RATE]]]]`: what
//! being watched costs an engine.
//!
//! Runs decode passes of the same positions in blocks: unwatched, watched, watched, unwatched. The watcher is
//! another process that reads the frames and draws nothing; like `brickscope top`, it may occupy a core that the
//! engine wants. A frame falls into one pass of many, so blocks are compared by their total time. Two more figures
//! help to judge the result: how much the unwatched blocks differ from one another, which is the resolution of
//! the measurement, and the CPU time spent on making and reading the frames, which is their cost on a machine
//! whose cores are all busy.

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, Histogram, PairedRatio};
use brickscope_engine::executor::Cpu;
use brickscope_engine::synth::{self, Shape, SynthQuant};
use brickscope_engine::{Model, Session};
use brickscope_kernels::Kernels;
use brickscope_live::socket::{DEFAULT_RATE, Delta, Facts, Frame, Message, Next, Publisher, Watch};

/// Makes this program the watcher.
const WATCHER: &str = "--watcher";
const PROMPT: [u32; 8] = [1, 20, 300, 4, 50, 60, 7, 80];
/// The name of the publisher's threads.
const THREAD: &str = "brickscope-live";
/// As `brickscope top` does; frames come sooner.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The least time of a block.
const BLOCK: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == WATCHER) {
        return done(watch(&args[at + 1..]));
    }
    if !args.iter().any(|arg| arg == "--bench") {
        println!("nothing to test here: `cargo bench` runs this");
        return ExitCode::SUCCESS;
    }
    let words: Vec<&str> =
        args.iter().filter(|arg| !arg.starts_with("--")).map(String::as_str).collect();
    done(run(&words))
}

fn done(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Watches a process between two lines on standard input: one to begin, one to end. Answers each with the number
/// of frames seen so far.
fn watch(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [pid, rate] = args else { return Err("a process and a rate".into()) };
    let (pid, rate) = (pid.parse()?, rate.parse()?);
    let mut frames = 0u64;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            if tell.send(()).is_err() {
                return;
            }
        }
    });
    while told.recv().is_ok() {
        let mut watch = Watch::process(pid)?;
        watch.ask(rate)?;
        let mut begun = false;
        while told.try_recv().is_err() {
            if let Next::Frame(_) = watch.next(LOOK_EVERY)? {
                frames += 1;
                // Answer after the first frame, so that no block includes the start of a watch.
                if !std::mem::replace(&mut begun, true) {
                    println!("{frames}");
                }
            }
        }
        drop(watch);
        println!("{frames}");
    }
    Ok(())
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let word = |at: usize| words.get(at).copied();
    let name = word(0).unwrap_or("110m");
    let threads: usize = word(1).map_or(Ok(1), str::parse)?;
    let seconds: u64 = word(2).map_or(Ok(60), str::parse)?;
    let rate: u32 = word(3).map_or(Ok(DEFAULT_RATE), str::parse)?;
    let Some(shape) = Shape::ALL.into_iter().find(|shape| shape.name() == name) else {
        return measure(&Model::open(name.as_ref())?, threads, seconds, rate);
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    synth::write(shape, SynthQuant::Q8_0, 1, &path, &mut |_, _| ())?;
    measure(&Model::open(&path)?, threads, seconds, rate)
}

fn measure(model: &Model, threads: usize, seconds: u64, rate: u32) -> Result<(), Box<dyn Error>> {
    let cpu = Cpu::new(Kernels::best(), threads.try_into()?)?;
    let mut session = Session::new(model, cpu, 256)?;
    let profiler = Arc::new(BrickProfiler::enabled());
    let publisher = Publisher::start(&profiler, Facts::default())?;
    let probe = session.profiled(&profiler);
    let mut watcher = Watcher::start(rate)?;

    let mut passes = 1;
    let mut block = |passes: usize| -> Result<f64, Box<dyn Error>> {
        session.clear();
        session.forward_with(&probe, &PROMPT)?;
        let mut wall = 0.0;
        for _ in 0..passes {
            if session.room() == 0 {
                session.truncate(PROMPT.len());
            }
            let start = Instant::now();
            session.forward_with(&probe, &[9])?;
            wall += start.elapsed().as_secs_f64();
        }
        Ok(wall)
    };
    while block(passes)? < BLOCK.as_secs_f64() {
        passes *= 2;
    }
    let (mut pairs, mut alone) = (Vec::new(), Vec::new());
    let until = Instant::now() + Duration::from_secs(seconds);
    while pairs.len() < 6 || Instant::now() < until {
        let a = block(passes)?;
        watcher.turn()?;
        let (b, b2) = (block(passes)?, block(passes)?);
        watcher.turn()?;
        let a2 = block(passes)?;
        pairs.extend([(a, b), (a2, b2)]);
        // Swapped every other time, as the order of the other pairs alternates.
        alone.push(if alone.len() % 2 == 0 { (a, a2) } else { (a2, a) });
    }
    // One long watch, so that its start doesn't count.
    let before = watcher.turn()?;
    let (made, read, began) = (publisher_cpu()?, watcher.cpu()?, Instant::now());
    while began.elapsed() < Duration::from_secs(seconds / 4).max(BLOCK) {
        block(passes)?;
    }
    let watched = began.elapsed().as_secs_f64();
    // Before the watch ends, since the thread that makes the frames ends with it.
    let (made, read) = (publisher_cpu()? - made, watcher.cpu()? - read);
    let frames = watcher.turn()? - before;
    let ratio = PairedRatio::new(&pairs)?;
    let percent = |share: f64| format!("{:+.2} %", 100.0 * share);
    let print = |what: &str, ratio: &PairedRatio| {
        println!(
            "{what}: {} (95 % interval {} to {}), by the sums {}",
            percent(ratio.estimate),
            percent(ratio.low),
            percent(ratio.high),
            percent(ratio.of_totals)
        );
    };
    println!("{passes} passes a block, {} pairs of blocks, {threads} threads", pairs.len());
    println!("{:.1} frames in a second of a long watch", frames as f64 / watched);
    print("watched beside alone", &ratio);
    print("alone beside alone", &PairedRatio::new(&alone)?);
    println!(
        "CPU time: {:.3} % of a core to make and send the frames, {:.3} % to read them",
        made as f64 / watched / 1e7,
        read as f64 / watched / 1e7
    );
    // While somebody watches, since layers are summed only then.
    let result = parts(&profiler);
    drop(watcher);
    drop(publisher);
    result
}

/// Times the steps of making a frame one by one, with warm caches, and prints the length of its line.
fn parts(profiler: &BrickProfiler) -> Result<(), Box<dyn Error>> {
    // The CPU time of a running thread advances in ticks of a few milliseconds.
    const ROUNDS: u32 = 2_000;
    // The main thread's id is the process's.
    let this = format!("/proc/self/task/{}/schedstat", std::process::id());
    let time = |of: &mut dyn FnMut()| -> Result<String, Box<dyn Error>> {
        let before = run_ns(this.as_ref())?;
        (0..ROUNDS).for_each(|_| of());
        let each = (run_ns(this.as_ref())? - before) as f64 / f64::from(ROUNDS);
        Ok(format!("{:.1} µs", each / 1e3))
    };
    let frame = |seq, details| {
        let mut profile =
            if details { profiler.snapshot() } else { profiler.snapshot_without_details() };
        for total in &mut profile.totals {
            total.stats.histogram = Histogram::default();
            // So that all rows differ between frames.
            total.stats.count += seq;
        }
        let (at_ns, requests) = (profiler.clock().now(), None);
        Frame { seq, at_ns, made_ns: 0, last: false, profile, details, requests }
    };
    let whole = frame(1, true);
    let mut next = frame(2, false);
    next.profile.clock = whole.profile.clock.clone();
    let mut detailed = frame(3, true);
    detailed.profile.clock = whole.profile.clock.clone();
    let differs = |frame: &Frame| {
        let delta = Delta::between(&whole, frame.clone());
        delta.map_err(|_| "more than numbers changed").map(Box::new)
    };
    let (delta, details) = (differs(&next)?, differs(&detailed)?);
    println!(
        "warm: a snapshot {}, without details {}",
        time(&mut || drop(black_box(profiler.snapshot())))?,
        time(&mut || drop(black_box(profiler.snapshot_without_details())))?,
    );
    println!(
        "finding differences {}",
        time(&mut || drop(black_box(Delta::between(&whole, next.clone()))))?
    );
    for (what, message) in [
        ("a whole frame", Message::Frame(Box::new(whole.clone()))),
        ("a difference", Message::Delta(delta)),
        ("one with details", Message::Delta(details)),
    ] {
        let write = |message: &Message| serde_json::to_vec(message).expect("it is data");
        let line = write(&message);
        println!(
            "{what}: {} bytes, written in {}, read in {}",
            line.len(),
            time(&mut || drop(black_box(write(&message))))?,
            time(&mut || drop(black_box(serde_json::from_slice::<Message>(&line))))?,
        );
    }
    Ok(())
}

/// The CPU time of the publisher's threads so far, in nanoseconds.
fn publisher_cpu() -> Result<u64, Box<dyn Error>> {
    cpu("self", |thread| thread == THREAD)
}

/// The CPU time of a process's threads with the wanted names so far, in nanoseconds.
fn cpu(process: &str, is_asked_for: impl Fn(&str) -> bool) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.path();
        if is_asked_for(std::fs::read_to_string(thread.join("comm"))?.trim_end()) {
            sum += run_ns(&thread.join("schedstat"))?;
        }
    }
    Ok(sum)
}

/// The CPU time of a thread in nanoseconds, from its `schedstat`.
fn run_ns(stat: &Path) -> Result<u64, Box<dyn Error>> {
    let times = std::fs::read_to_string(stat)?;
    Ok(times.split(' ').next().ok_or("no time")?.parse()?)
}

/// The watching process.
struct Watcher {
    child: Child,
    said: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Watcher {
    fn start(rate: u32) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(env::current_exe()?)
            .args([WATCHER, &std::process::id().to_string(), &rate.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().ok_or("no output")?;
        Ok(Self { child, said: std::io::BufReader::new(said).lines() })
    }

    /// Begins or ends watching, and returns the number of frames so far.
    fn turn(&mut self) -> Result<u64, Box<dyn Error>> {
        self.child.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?;
        Ok(self.said.next().ok_or("the watcher has ended")??.parse()?)
    }

    /// Its CPU time so far, in nanoseconds.
    fn cpu(&self) -> Result<u64, Box<dyn Error>> {
        cpu(&self.child.id().to_string(), |_| true)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
