//! `brickscope benchmark`: how fast a model runs, measured so that others can check it.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use anyhow::{Context, Result, bail};
use brickscope::{Absent, Clock, CpuLimit, LoadWatch, Profile};
use brickscope_analysis::receipt::MAX_BYTES;
use brickscope_analysis::receipt::v1::{Load, Run};
use brickscope_engine::{Model, Session};
use brickscope_live::socket::{Facts, Publisher};

use super::profile::log_capacity;
use crate::args::{BenchmarkArgs, Format};
use crate::benchmark::measure::{Bench, Measured, Settings};
use crate::benchmark::plan::Plan;
use crate::benchmark::receipt::{self, After, Before};
use crate::benchmark::rows::{self, Measurement, ModelRow};
use crate::benchmark::warm_up::Rule;
use crate::benchmark::{processes, table};
use crate::live::Live;
use crate::run_dir::RunDir;
use crate::{kept, metrics, progress, source};

/// What was measured, by one process or by several.
struct Done {
    measurements: Vec<Measurement>,
    model: ModelRow,
    folder: PathBuf,
}

pub(crate) fn run(args: &BenchmarkArgs) -> Result<()> {
    let plans = Plan::all(args);
    if plans.is_empty() {
        bail!("there is nothing to measure: --prompt-tokens or --tokens must be above 0");
    }
    if args.processes > 1 && args.metrics.metrics.is_some() {
        bail!("--metrics: with --processes each would serve at the same address");
    }
    if args.processes > 1 && args.live {
        bail!("--live: with --processes it would be another process each time");
    }
    if args.process.is_some_and(|process| !(1..=args.processes).contains(&process)) {
        bail!("--process: a set of {} has no such process", args.processes);
    }
    let repetitions = u64::from(args.repetitions) + Rule::default().most as u64;
    let bytes: u64 = plans.iter().map(|plan| plan.receipt_bytes()).sum();
    let bytes = bytes.saturating_mul(repetitions);
    if bytes > MAX_BYTES {
        bail!(
            "--repetitions: the receipt would have some {:.0} MB, and one of more than {:.0} MB is not \
             read: ask for fewer repetitions, tokens or depths",
            bytes as f64 / 1e6,
            MAX_BYTES as f64 / 1e6
        );
    }
    let Done { measurements, model, folder } = if args.processes > 1 && args.process.is_none() {
        measure_apart(args)?
    } else {
        measure(args, &plans)?
    };
    let text = match args.format() {
        Format::Md => {
            let mut text = table::markdown(&measurements, &model);
            if let [measurement] = &measurements[..] {
                text += &table::notes(measurement);
            } else {
                text += &table::across(&measurements, &folder);
            }
            text
        }
        format => rows::render(&measurements, &model, format),
    };
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}

/// Has processes of their own measure, one after the other.
fn measure_apart(args: &BenchmarkArgs) -> Result<Done> {
    let started = Profile::empty(Default::default()).created;
    let model = source::model(args.model.as_deref())?;
    let dir = RunDir::open(args.out.as_deref(), &started, args.overwrite)?;
    let bar = progress::steps("processes", u64::from(args.processes));
    let mut show = |process: u32| bar.set_position(u64::from(process) - 1);
    let measurements = processes::run(args, &dir, &mut show)?;
    bar.finish_and_clear();
    Ok(Done { measurements, model: ModelRow::of(&model), folder: dir.path().to_owned() })
}

/// Measures in this process, and writes the run.
fn measure(args: &BenchmarkArgs, plans: &[Plan]) -> Result<Done> {
    let started = Profile::empty(Default::default()).created;
    let live = Live::begin(args.live, true)?;
    let mut model = source::model_telling(args.model.as_deref(), &|done, total| {
        live.say_bytes("making a model", done, total);
    })?;
    source::copy_weights(&mut model, &args.executor, &|done, total| {
        live.say_bytes("loading the weights", done, total);
    })?;
    let cpu = source::cpu(&args.executor)?;
    let context = plans.iter().map(Plan::context).max().unwrap_or_default();
    let mut session = Session::new(&model, cpu, context)?;
    let dir = RunDir::open(args.out.as_deref(), &started, args.overwrite)?;
    live.say("hashing the model, measuring what this machine can do");
    let before = before(args, &model, &session)?;

    let settings = Settings {
        seed: args.seed,
        repetitions: args.repetitions,
        profiled: !args.no_profiler,
        warm_up: Rule::default(),
    };
    // The profile is to have a prefill and a decode test: those at the least depth.
    let kept = |is_decode| {
        let plans = plans.iter().filter(|plan| plan.is_decode() == is_decode);
        plans.min_by_key(|plan| plan.n_depth).copied()
    };
    let kept = [kept(false), kept(true)];
    let tokens = kept.iter().flatten().map(|plan| plan.n_prompt + plan.n_gen).sum();
    let capacity = log_capacity(&model, session.batch(), tokens);
    let mut bench = Bench::new(&mut session, Clock::default(), settings, capacity)?;
    let _served = {
        let model = source::describe(&model);
        let ceilings = before.ceilings.as_ref().ok().cloned();
        metrics::serve(&args.metrics, bench.current(), move |profile| {
            profile.model = Some(model.clone());
            profile.ceilings = ceilings.clone();
        })?
    };
    let live = publish(live, &model, &before, &bench)?;
    let load_before = load_average();
    let throttled_before = throttled();
    let watch = LoadWatch::start();
    let note = progress::note("measuring");
    let mut show = |what: String| {
        note.set_message(what);
        note.tick();
    };
    let mut tests: Vec<Measured> = Vec::new();
    for &plan in plans {
        tests.push(bench.run(plan, kept.contains(&Some(plan)), &mut show)?);
    }
    note.finish_and_clear();
    drop(live);

    let load = load(load_before, watch);
    let throttled = throttled().saturating_sub(throttled_before);
    let mut profile = bench.profile();
    profile.model = Some(source::describe(&model));
    profile.machine = Some(brickscope::machine::detect());
    match &before.ceilings {
        Ok(ceilings) => profile.ceilings = Some(ceilings.clone()),
        Err(absent) => profile.ceilings_absent = Some(absent.clone()),
    }
    profile.run = Some(brickscope::Run {
        command: before.run.command.clone(),
        backend: before.run.kernels.clone(),
        threads: before.run.threads,
        prompt_tokens: kept[0].map_or(0, |plan| plan.n_prompt as u64),
        generated_tokens: kept[1].map_or(0, |plan| plan.n_gen as u64),
        seed: None,
    });
    let after =
        After { timestamp: profile.created.clone(), tests, profile: &profile, load, throttled };
    let receipt = receipt::receipt(before, after).sealed()?;
    dir.save_benchmark(&receipt, settings.profiled.then_some(&profile))?;
    let folder = dir.path().to_owned();
    let measurements = vec![Measurement { receipt, folder: folder.clone() }];
    Ok(Done { measurements, model: ModelRow::of(&model), folder })
}

/// Lets others watch, if that was asked for: the repetition that runs.
fn publish(
    live: Live,
    model: &Model,
    before: &Before,
    bench: &Bench<'_, '_>,
) -> Result<Option<Publisher>> {
    let facts = || Facts {
        run: Some(brickscope::Run {
            command: before.run.command.clone(),
            backend: before.run.kernels.clone(),
            threads: before.run.threads,
            ..brickscope::Run::default()
        }),
        model: Some(source::describe(model)),
        machine: Some(brickscope::machine::detect()),
        ceilings: before.ceilings.as_ref().ok().cloned(),
        ceilings_absent: before.ceilings.as_ref().err().cloned(),
    };
    let current = bench.current();
    let profiler = move || Arc::clone(&*current.lock().unwrap_or_else(PoisonError::into_inner));
    live.publish(profiler, facts)
}

fn before(args: &BenchmarkArgs, model: &Model, session: &Session<'_>) -> Result<Before> {
    let hashed = receipt::model(model)?;
    let note = progress::note("measuring what this machine can do");
    let cpu = session.cpu();
    let ceilings = kept::sure_ceilings(model, cpu.kernels, cpu.pool());
    note.finish_and_clear();
    let run = Run {
        command: std::env::args().collect(),
        kernels: session.cpu().kernels.backend().name().to_owned(),
        threads: session.cpu().threads() as u32,
        batch: session.batch() as u64,
        sampling: "greedy".to_owned(),
        seed: args.seed,
        repetitions: args.repetitions,
        process: args.process.unwrap_or(1),
        processes: args.processes,
        set: args.set.clone(),
        profiled: !args.no_profiler,
    };
    Ok(Before {
        model: hashed,
        run,
        weights: source::weights_in(model).unwrap_or_else(|| "buffer".to_owned()),
        ceilings,
    })
}

/// Periods so far in which the control group's CPU limit stopped this process.
fn throttled() -> u64 {
    CpuLimit::read().and_then(|limit| limit.throttled_periods).unwrap_or_default()
}

/// The system's load average over a minute.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn load(before: Option<f64>, watch: Result<LoadWatch, Absent>) -> Load {
    let load = Load { before, ..Load::default() };
    match watch.and_then(|watch| watch.so_far()) {
        Ok(others) => Load {
            others_share: Some(others.others_share()),
            steal_share: others.steal_share(),
            absent: others
                .steal_ns
                .is_none()
                .then(|| "the kernel doesn't tell stolen time".to_owned()),
            ..load
        },
        Err(absent) => Load { absent: Some(absent.reason), ..load },
    }
}
