//! `brickscope profile`: runs a model and reports where its time went.

pub(crate) mod check_overhead;
mod check_overhead_set;
pub(crate) mod compare_backends;
mod device;
mod host;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use brickscope::{Absent, BrickProfiler, Ceilings, NotFinite, Profile, Run};
use brickscope_analysis::view;
use brickscope_engine::{Generated, Model};
use brickscope_live::socket::{Facts, Publisher};
use indicatif::ProgressBar;

use crate::flags::profile::ProfileArgs;
use crate::live::Live;
use crate::metrics::Served;
use crate::runs::otlp::{Pushing, Target};
use crate::runs::{Places, RunDir, timing, without_disturbed};
use crate::{
    device as devices, family, interrupt, machine_name, metrics, output, runs, source, summary,
};

/// How long a run waits for the view that started it.
const WATCHER_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &ProfileArgs) -> Result<()> {
    runs::ready_for_lake(args.lake.as_deref())?;
    if let Some(temperature) = args.temperature().filter(|_| args.greedy) {
        bail!("--greedy takes the likeliest token, and --temperature {temperature} does not");
    }
    let target = Target::of(&args.otlp)?;
    interrupt::watch()?;
    // A view that starts this run doesn't read its messages.
    let live = Live::begin(args.live, !args.await_watcher)?;
    let mut model = source::model_with(args.model(), &|done, total| {
        live.say_bytes("making a model", done, total);
    })?;
    let prompt = source::prompt(&model, &args.prompt)?;
    let started = Profile::empty(Default::default()).created;
    let ran = match devices::asked(&args.executor) {
        Some(backend) => {
            device::measure(args, &model, &prompt, backend, (&started, live), target.as_ref())?
        }
        None => {
            let host = host::prepare(args, &model, &prompt, (&started, &live))?;
            source::copy_weights(&mut model, &args.executor, &|done, total| {
                live.say_bytes("loading the weights", done, total);
            })?;
            host::measure(args, &model, &prompt, host, live, target.as_ref())?
        }
    };
    report(args, &model, &prompt, ran, target.as_ref())
}

fn new_folder(args: &ProfileArgs, started: &str) -> Result<RunDir> {
    let dir = RunDir::create_late(args.out.as_deref(), started)?;
    Ok(dir.rescued_to(args.rescue.as_deref()))
}

/// What to do after a pass: a signal ends the run, but the pass that ran then is whole. An endless run has
/// no report.
fn go_on(args: &ProfileArgs, bar: &ProgressBar, done: usize) -> ControlFlow<()> {
    bar.set_position(done as u64);
    if args.endless {
        return ControlFlow::Continue(());
    }
    interrupt::keep();
    let is_over = bar.length().is_some_and(|all| done as u64 >= all);
    if !is_over && interrupt::is_asked() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// The ceilings of what ran the bricks.
enum Limits {
    OfHost(Result<Ceilings, Absent>),
    OfDevice(Result<Ceilings, Absent>),
}

/// A finished run, before it is reported or saved.
struct Ran {
    dir: RunDir,
    limits: Limits,
    profiler: Arc<BrickProfiler>,
    generated: Generated,
    not_finite: Option<NotFinite>,
    backend: &'static str,
    threads: usize,
    pushing: Option<Pushing>,
}

/// Shows what is timed in the tool of NVIDIA's that started this program, if one did: `nsys`, say.
fn show_ranges(profiler: &BrickProfiler) {
    if std::env::var_os("NVTX_INJECTION64_PATH").is_some()
        && let Err(absent) = profiler.enable_nvtx()
    {
        tell!("note: no NVTX ranges: {}", absent.reason);
    }
}

/// Serves and pushes metrics of the run until the returned guard is dropped.
fn serve(
    args: &ProfileArgs,
    target: Option<&Target>,
    model: &Model,
    profiler: &Arc<BrickProfiler>,
    run: Run,
    ceilings: Option<Ceilings>,
) -> Result<Served> {
    let model = source::describe(model);
    let current = Arc::new(Mutex::new(Arc::clone(profiler)));
    metrics::serve(&args.metrics, target, current, move |profile| {
        profile.model = Some(model.clone());
        profile.run = Some(run.clone());
        profile.ceilings = ceilings.clone();
    })
}

/// Lets others watch, if asked for, until the returned guard is dropped.
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
        // Without its watcher the run is still a run.
        let _ = publisher.wait_for_watcher(WATCHER_WITHIN);
    }
    let live = Arc::new(Mutex::new(Some(publisher)));
    if args.endless {
        let live = Arc::clone(&live);
        // The process that started this has gone, or wants it to end.
        family::end_with_input(move || {
            drop(live.lock().unwrap_or_else(PoisonError::into_inner).take());
        })?;
    }
    Ok(Some(live))
}

#[inline(never)]
fn report(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    ran: Ran,
    target: Option<&Target>,
) -> Result<()> {
    let Ran { dir, limits, profiler, generated, not_finite, backend, threads, pushing } = ran;

    let mut profile = profiler.profile();
    profile.model = Some(source::describe(model));
    profile.machine = Some(brickscope::machine::detect());
    match limits {
        Limits::OfHost(Ok(ceilings)) => profile.ceilings = Some(ceilings),
        Limits::OfHost(Err(absent)) => profile.ceilings_absent = Some(absent),
        Limits::OfDevice(ceilings) => devices::add_ceilings(&mut profile, ceilings),
    }
    profile.not_finite = not_finite;
    if args.shares {
        profile.shares = brickscope_engine::thread_shares(&profile, threads);
    }
    let n_generated = generated.tokens.len();
    let mut described = described(args, prompt, backend, threads, n_generated);
    if interrupt::was_heeded() {
        described.cut_short =
            Some(format!("interrupted after {n_generated} of {} tokens", args.tokens));
    }
    profile.run = Some(described);
    profile.named = machine_name::named();
    // An error must not lose the figures: it is told after the report.
    let written = dir.write(|dir| dir.save(&profile));
    timing::where_asked(&profile);
    // The file has all passes, so that `show` can decide again what to leave out.
    if args.leave_out_disturbed {
        profile = without_disturbed(profile, !args.json);
    }
    let places = Places { lake: args.lake.as_deref(), pushing, target };
    runs::finish(written, places, |folder| {
        if args.json {
            output::print(view::json(&profile))
        } else if args.full {
            let answer = excerpt(model, prompt, &generated.tokens);
            let mut text = format!("{}{:9} {answer}\n", view::report(&profile), "text");
            if let Some(folder) = folder {
                text += &format!("{:9} {}\n", "run in", output::shown(folder));
            }
            output::print(text)
        } else {
            let is_noise = profile.model.as_ref().is_some_and(|model| model.synthetic);
            let answer = (!is_noise && !generated.tokens.is_empty())
                .then(|| format!("Text: {}", excerpt(model, prompt, &generated.tokens)));
            summary::print(&profile, folder, answer.as_deref())
        }
    })
}

fn described(
    args: &ProfileArgs,
    prompt: &[u32],
    backend: &str,
    threads: usize,
    n_generated: usize,
) -> Run {
    Run {
        command: crate::text::command_line(),
        backend: backend.to_owned(),
        threads: threads as u32,
        pinned: args.pin,
        prompt_tokens: prompt.len() as u64,
        generated_tokens: n_generated as u64,
        seed: args.temperature().map(|_| args.seed),
        ..Run::default()
    }
}

/// The beginning of the answer, quoted, on one line.
fn excerpt(model: &Model, prompt: &[u32], tokens: &[u32]) -> String {
    const WIDTH: usize = 64;
    let mut decoder = model.tokenizer.decoder();
    // Only the answer is printed, but how it begins depends on the end of the prompt.
    for &token in prompt {
        let _ = decoder.push(token);
    }
    let mut text = String::new();
    for &token in tokens {
        // The embedding may have more rows than the vocabulary has tokens.
        text.push_str(decoder.push(token).unwrap_or("\u{fffd}"));
    }
    text.push_str(&decoder.finish());
    let mut line: String = text.escape_debug().take(WIDTH).collect();
    if text.escape_debug().count() > WIDTH {
        line.push('…');
    }
    format!("\"{line}\"")
}
