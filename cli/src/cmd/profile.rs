//! `brickscope profile`: run a model, and report where its time went.

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brickscope::{
    Absent, BrickId, BrickProfiler, Ceilings, DeviceError, Machine, Profile, Run, SyncMode, view,
};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{
    AnySession, GenerateOptions, Generated, Model, Sampling, Session, generate,
};
use brickscope_kernels::Backend;
use brickscope_live::metrics::MetricsServer;
use brickscope_live::socket::{Facts, Publisher};

use crate::args::ProfileArgs;
use crate::live::Live;
use crate::run_dir::RunDir;
use crate::{device, kept, metrics, progress, source};

/// Rows of the trace kept at most, of all threads that record: half a gigabyte of them.
const MAX_LOG: usize = 1 << 23;
/// For how long a run waits for the view that started it.
const WATCHER_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &ProfileArgs) -> Result<()> {
    // Who started it to watch it reads nothing of what it says.
    let live = Live::begin(args.live, !args.await_watcher)?;
    let mut model = source::model_telling(args.model.as_deref(), &|done, total| {
        live.say_bytes("making a model", done, total);
    })?;
    let prompt = source::prompt(&model, &args.prompt)?;
    let started = Profile::empty(Default::default()).created;
    let ran = match device::asked(&args.executor) {
        Some(backend) => measure_on_device(args, &model, &prompt, backend, (&started, live))?,
        None => {
            let host = prepare(args, &model, &prompt, (&started, &live))?;
            source::copy_weights(&mut model, &args.executor, &|done, total| {
                live.say_bytes("loading the weights", done, total);
            })?;
            measure(args, &model, &prompt, host, live)?
        }
    };
    report(args, &model, &prompt, ran)
}

/// What there is to a run on the CPU before its model is in memory.
struct Host {
    cpu: Cpu,
    dir: RunDir,
    ceilings: Result<Ceilings, Absent>,
    /// Tokens that the run has room for.
    context: usize,
}

fn prepare(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    (started, live): (&str, &Live),
) -> Result<Host> {
    ensure!(args.grain.is_none(), "--grain is about a device's time: add --backend");
    let cpu = source::cpu(&args.executor)?;
    // The last token is chosen and not run.
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));
    // So that what it refuses is refused now.
    drop(Session::new(model, cpu.clone(), context)?);
    // Before the run, so that a folder that can't be written to isn't found out after it.
    let dir = RunDir::create_late(args.out.as_deref(), started)?;
    // Before the weights, since that takes memory, too.
    let what = "measuring what this machine can do";
    live.say(what);
    let note = progress::note(what);
    let ceilings = kept::ceilings(model, cpu.kernels, cpu.pool());
    note.finish_and_clear();
    Ok(Host { cpu, dir, ceilings, context })
}

/// A run, before anything is made of it.
struct Ran {
    dir: RunDir,
    ceilings: Result<Ceilings, Absent>,
    profiler: Arc<BrickProfiler>,
    generated: Generated,
    backend: &'static str,
    threads: usize,
}

// The two halves of a run are functions of their own, so that while the model runs the stack holds
// little else: samplers copy only some kilobytes of it.
#[inline(never)]
fn measure(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    host: Host,
    live: Live,
) -> Result<Ran> {
    let Host { cpu, dir, ceilings, context } = host;
    let mut session = Session::new(model, cpu, context)?;
    live.say("warming up");
    let note = progress::note("warming up");

    let mut capacity = log_capacity(model, session.batch(), context);
    // Nobody will see single spans of a run that is never written.
    if args.endless {
        capacity = 0;
    }
    if args.shares {
        capacity = shares_capacity(capacity, session.cpu().threads());
    } else if args.tiles {
        // All threads record then, and all logs have the same capacity.
        capacity = capacity.min(MAX_LOG / session.cpu().threads());
    }
    let profiler = Arc::new(BrickProfiler::new().with_log_capacity(capacity));
    profiler.set_sync_mode(args.sync.into());
    warm_up(&mut session, prompt)?;
    note.finish_and_clear();
    if args.counters
        && let Err(absent) = profiler.enable_counters()
    {
        // The report says it too, but last; who asked for them should not have to look.
        eprintln!("note: no hardware counters: {}", absent.reason);
    }
    if args.shares {
        session.profile_shares(Some(&profiler));
    }
    let (backend, threads) = (session.cpu().kernels.backend().name(), session.cpu().threads());
    let _served = {
        let described = described(args, prompt, backend, threads, args.tokens);
        let ceilings = ceilings.as_ref().ok().cloned();
        serve(args, model, &profiler, described, ceilings)?
    };
    profiler.enable();
    if args.tiles {
        session.profile_tiles(&profiler);
    }
    let live = publish(args, live, &profiler, || Facts {
        run: Some(described(args, prompt, backend, threads, args.tokens)),
        model: Some(source::describe(model)),
        machine: Some(Machine::detect()),
        ceilings: ceilings.as_ref().ok().cloned(),
        ceilings_absent: ceilings.as_ref().err().cloned(),
    })?;
    let options = GenerateOptions { n_tokens: args.tokens, sampling: sampling(args) };
    let bar = progress::tokens("running", context as u64);
    let mut show = |done: usize| bar.set_position(done as u64);
    let mut probe = session.probe(&profiler)?;
    let generated = loop {
        let generated = generate(&mut session, Some(&mut probe), prompt, options, &mut show)?;
        if !args.endless {
            break generated;
        }
        session.clear();
    };
    bar.finish_and_clear();
    profiler.disable();
    drop(live);
    Ok(Ran { dir, ceilings, profiler, generated, backend, threads })
}

/// Metrics of the run, until what is returned is dropped.
fn serve(
    args: &ProfileArgs,
    model: &Model,
    profiler: &Arc<BrickProfiler>,
    run: Run,
    ceilings: Option<Ceilings>,
) -> Result<Option<MetricsServer>> {
    let model = source::describe(model);
    let current = Arc::new(Mutex::new(Arc::clone(profiler)));
    metrics::serve(&args.metrics, current, move |profile| {
        profile.model = Some(model.clone());
        profile.run = Some(run.clone());
        profile.ceilings = ceilings.clone();
    })
}

/// As [`measure`], on a device. The CPU only issues the work and waits for it.
fn measure_on_device(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    backend: Backend,
    (started, live): (&str, Live),
) -> Result<Ran> {
    let of_the_cpu =
        [("--counters", args.counters), ("--shares", args.shares), ("--tiles", args.tiles)];
    for (flag, is_asked) in of_the_cpu {
        ensure!(
            !is_asked,
            "{flag} is about the CPU's threads, and --backend {backend} runs on a device"
        );
    }
    ensure!(
        args.executor.threads.is_none(),
        "--threads is about the CPU, and --backend {backend} runs on a device"
    );
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));
    let what = "uploading the weights, warming up";
    live.say(what);
    let note = progress::note(what);
    let mut session = device::session(backend, model, context)?;
    let dir = RunDir::create_late(args.out.as_deref(), started)?;
    // The first dispatch of each kernel compiles it, on many drivers.
    for warm_up in [&prompt[..prompt.len().min(session.batch())], &prompt[..1]] {
        session.forward(warm_up)?;
        session.clear();
    }
    note.finish_and_clear();
    let capacity = log_capacity(session.model(), session.batch(), context);
    let profiler = Arc::new(BrickProfiler::new().with_log_capacity(capacity));
    profiler.set_sync_mode(args.sync.into());
    let described_run = described(args, prompt, backend.name(), 0, args.tokens);
    let _served = serve(args, session.model(), &profiler, described_run, None)?;
    profiler.enable();
    let absent = Absent { reason: ON_A_DEVICE.to_owned() };
    let live = publish(args, live, &profiler, || Facts {
        run: Some(described(args, prompt, backend.name(), 0, args.tokens)),
        model: Some(source::describe(session.model())),
        machine: Some(Machine::detect()),
        ceilings: None,
        ceilings_absent: Some(absent.clone()),
    })?;
    let mut probe = session.probe(&profiler)?;
    if let Some((timer, grain)) = probe.timer().zip(args.grain) {
        timer.set_grain(grain.into());
    }
    // Where it can't be measured, the report says why.
    if profiler.sync_mode() != SyncMode::None
        && let Err(lost @ DeviceError::Lost { .. }) = session.calibrate(&mut probe)
    {
        return Err(lost.into());
    }
    let options = GenerateOptions { n_tokens: args.tokens, sampling: sampling(args) };
    let bar = progress::tokens("running", context as u64);
    let mut show = |done: usize| bar.set_position(done as u64);
    let generated = loop {
        let generated = generate(&mut *session, Some(&mut probe), prompt, options, &mut show);
        if !args.endless || generated.is_err() {
            break generated;
        }
        session.clear();
    };
    bar.finish_and_clear();
    // What was settled before a device was lost is kept, and says so.
    let generated = match generated {
        Ok(generated) => generated,
        Err(error) => {
            profiler.disable();
            let mut profile = profiler.profile();
            profile.model = Some(source::describe(session.model()));
            profile.machine = Some(Machine::detect());
            profile.run = Some(described(args, prompt, backend.name(), 0, 0));
            dir.save(&profile)?;
            let kept = dir.path().display().to_string();
            return Err(error)
                .with_context(|| format!("the run ended early; {kept} has what was measured"));
        }
    };
    session.finish(probe)?;
    profiler.disable();
    drop(live);
    let ceilings = Err(absent);
    Ok(Ran { dir, ceilings, profiler, generated, backend: backend.name(), threads: 0 })
}

/// Why a run on a device has no ceilings.
const ON_A_DEVICE: &str = "the work ran on a device, and only what the CPU can do is measured";

/// Lets others watch, if that was asked for: until what this returns is dropped.
fn publish(
    args: &ProfileArgs,
    live: Live,
    profiler: &Arc<BrickProfiler>,
    facts: impl FnOnce() -> Facts,
) -> Result<Option<Arc<Mutex<Option<Publisher>>>>> {
    let profiler = Arc::clone(profiler);
    let Some(publisher) = live.publish(move || Arc::clone(&profiler), facts)? else {
        return Ok(None);
    };
    if args.await_watcher {
        // Who started this and didn't come has its reasons; the run is one all the same.
        let _ = publisher.wait_for_watcher(WATCHER_WITHIN);
    }
    let live = Arc::new(Mutex::new(Some(publisher)));
    if args.endless {
        let live = Arc::clone(&live);
        // Who started this has gone, or wants it to end.
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            drop(live.lock().unwrap_or_else(PoisonError::into_inner).take());
            std::process::exit(0);
        });
    }
    Ok(Some(live))
}

#[inline(never)]
fn report(args: &ProfileArgs, model: &Model, prompt: &[u32], ran: Ran) -> Result<()> {
    let Ran { dir, ceilings, profiler, generated, backend, threads } = ran;

    let mut profile = profiler.profile();
    profile.model = Some(source::describe(model));
    profile.machine = Some(Machine::detect());
    match ceilings {
        Ok(ceilings) => profile.ceilings = Some(ceilings),
        Err(absent) => profile.ceilings_absent = Some(absent),
    }
    profile.run = Some(described(args, prompt, backend, threads, generated.tokens.len()));
    dir.save(&profile)?;
    if std::env::var_os("BRICKSCOPE_TRACE_TIMING")
        .is_some_and(|value| !value.is_empty() && value != "0")
    {
        trace_timing(&profile);
    }
    // The file has all of it: what to leave out can be decided again.
    if args.leave_out_disturbed {
        profile = without_disturbed(profile);
    }
    let text = if args.json {
        view::json(&profile)
    } else {
        let answer = excerpt(model, prompt, &generated.tokens)?;
        let report = view::report(&profile);
        let run_in = dir.path().display();
        format!("{report}{:9} {answer}\n{:9} {run_in}\n", "text", "run in")
    };
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}

fn described(
    args: &ProfileArgs,
    prompt: &[u32],
    backend: &str,
    threads: usize,
    n_generated: usize,
) -> Run {
    Run {
        command: std::env::args().collect(),
        backend: backend.to_owned(),
        threads: threads as u32,
        prompt_tokens: prompt.len() as u64,
        generated_tokens: n_generated as u64,
        seed: args.temperature.map(|_| args.seed),
    }
}

/// The profile of the passes that nobody disturbed; the whole one, and a note, if that can't be had.
pub(super) fn without_disturbed(profile: Profile) -> Profile {
    profile.without_disturbed().unwrap_or_else(|absent| {
        eprintln!("note: {}", absent.reason);
        profile
    })
}

fn sampling(args: &ProfileArgs) -> Sampling {
    match args.temperature {
        None => Sampling::Greedy,
        Some(temperature) => {
            let (top_k, top_p, seed) = (args.top_k, args.top_p, args.seed);
            Sampling::Random { temperature, top_k, top_p, seed }
        }
    }
}

/// Room for every span of the run, so that the trace has no holes.
pub(crate) fn log_capacity(model: &Model, batch: usize, context: usize) -> usize {
    // At most 14 bricks and 22 kernels in a layer, and the layer itself.
    let spans_per_pass = 40 * (model.config.n_layers + 1);
    // Each token of the answer is a pass; the prompt takes fewer.
    let passes = context.div_ceil(batch) + context;
    spans_per_pass.saturating_mul(passes).min(MAX_LOG)
}

/// Room for each thread's share of every kernel too, on each thread: all logs have the same
/// capacity, and share [`MAX_LOG`]. The thread that hands the work out has a row for each other.
fn shares_capacity(capacity: usize, threads: usize) -> usize {
    capacity.saturating_mul(1 + threads).min(MAX_LOG / threads.max(1))
}

/// Brings the weights into memory and the caches to what they will be like, unmeasured.
fn warm_up(session: &mut Session<'_>, prompt: &[u32]) -> Result<()> {
    let prompt = &prompt[..prompt.len().min(session.batch())];
    session.forward(prompt)?;
    session.clear();
    Ok(())
}

/// The beginning of the answer, quoted, on one line.
fn excerpt(model: &Model, prompt: &[u32], tokens: &[u32]) -> Result<String> {
    const WIDTH: usize = 64;
    let mut decoder = model.tokenizer.decoder();
    // What the prompt prints is known; but its end decides how the answer begins.
    for &token in prompt {
        decoder.push(token)?;
    }
    let mut text = String::new();
    for &token in tokens {
        // The table of weights may have more rows than the vocabulary has tokens.
        text.push_str(decoder.push(token).unwrap_or("\u{fffd}"));
    }
    text.push_str(&decoder.finish());
    let mut line: String = text.escape_debug().take(WIDTH).collect();
    if text.escape_debug().count() > WIDTH {
        line.push('…');
    }
    Ok(format!("\"{line}\""))
}

/// One line on standard error for each pass. What a pass didn't do is left out.
fn trace_timing(profile: &Profile) {
    // Where the bricks of each pass that are in the line begin and end.
    let mut bricks: HashMap<(u32, u16), (u64, u64)> = HashMap::new();
    for span in &profile.spans {
        if let (Some(pass), Some(name)) = (span.pass, span.name) {
            let end = span.start_ns + span.duration_ns;
            bricks.entry((pass, name)).or_insert((span.start_ns, end));
        }
    }
    for pass in &profile.passes {
        let of = |brick: BrickId| bricks.get(&(pass.serial, brick as u16)).copied();
        let (embed, logits) = (of(BrickId::Embedding), of(BrickId::LmHead));
        // From the end of the embedding to the start of the head, or to the end of the pass.
        let pass_end = pass.start_ns + pass.wall_ns;
        let forward = embed.map(|(_, start)| (start, logits.map_or(pass_end, |(end, _)| end)));
        let mut line = "timing:".to_owned();
        for (name, span) in [
            ("embed_us", embed),
            ("forward_us", forward),
            ("logits_us", logits),
            ("sample_us", of(BrickId::Sampling)),
        ] {
            if let Some((start, end)) = span {
                line.push_str(&format!(" {name}={}", (end - start) / 1_000));
            }
        }
        eprintln!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_of_all_threads_stay_within_the_bound() {
        // A small run has room for the shares.
        assert_eq!(shares_capacity(1_000, 2), 3_000);
        for threads in [0, 1, 2, 3, 32, 1_000] {
            let each = shares_capacity(usize::MAX, threads);
            assert!(each > 0 && each * threads.max(1) <= MAX_LOG, "{threads} threads: {each}");
        }
    }
}
