//! A run on the CPU.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use brickscope::{Absent, BrickProfiler, Ceilings};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{AnySession, GenerateOptions, Model, Session, generate};
use brickscope_live::socket::Facts;

use super::{Limits, Ran, described, go_on, new_folder, publish, serve, show_ranges};
use crate::flags::profile::ProfileArgs;
use crate::live::Live;
use crate::measure::{MAX_LOG, log_capacity, shares_capacity};
use crate::runs::RunDir;
use crate::runs::otlp::Target;
use crate::{ceilings_cache, progress, source};

/// What a run on the CPU knows before its model is in memory.
pub(super) struct Host {
    cpu: Cpu,
    dir: RunDir,
    ceilings: Result<Ceilings, Absent>,
    /// The number of tokens that the run has room for.
    context: usize,
}

pub(super) fn prepare(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    (started, live): (&str, &Live),
) -> Result<Host> {
    ensure!(args.grain.is_none(), "--grain is about a device's time: add --backend");
    let cpu = source::cpu(&args.executor)?;
    // The last token is chosen, but not run.
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));
    // Early, so that bad settings are refused before the model is loaded.
    drop(Session::new(model, cpu.clone(), context)?);
    // Before the run, so that an unwritable folder is reported before it and not after.
    let dir = new_folder(args, started)?;
    // Before the weights, since this needs memory as well.
    let what = "measuring what this machine can do";
    live.say(what);
    let note = progress::note(what);
    let ceilings = ceilings_cache::ceilings(model, cpu.kernels, cpu.pool());
    note.finish_and_clear();
    Ok(Host { cpu, dir, ceilings, context })
}

// The two halves of a run are separate functions to keep the stack small while the model runs:
// samplers copy only a few kilobytes of it.
#[inline(never)]
pub(super) fn measure(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    host: Host,
    live: Live,
    target: Option<&Target>,
) -> Result<Ran> {
    let Host { cpu, dir, mut ceilings, context } = host;
    let mut session = Session::new(model, cpu, context)?;
    live.say("warming up");
    let note = progress::note("warming up");

    let mut capacity = log_capacity(model, session.batch(), context);
    // A run that is never written needs no single spans.
    if args.endless {
        capacity = 0;
    }
    if args.shares {
        capacity = shares_capacity(capacity, session.cpu().threads());
    } else if args.tiles {
        // With shares all threads record, and all logs have the same capacity.
        capacity = capacity.min(MAX_LOG / session.cpu().threads());
    }
    let profiler = Arc::new(BrickProfiler::new().with_log_capacity(capacity));
    profiler.set_sync_mode(args.sync.into());
    show_ranges(&profiler);
    warm_up(&mut session, prompt)?;
    note.finish_and_clear();
    if args.counters
        && let Err(absent) = profiler.enable_counters()
    {
        // The report says so too, but at its end. The user asked for counters, so say it now.
        tell!("note: no hardware counters: {}", absent.reason);
    }
    if args.shares {
        session.profile_shares(Some(&profiler));
        // Each thread makes the log of its shares when it first records one, which takes as long as some passes.
        profiler.enable();
        warm_up(&mut session, prompt)?;
        profiler.disable();
        profiler.reset();
    }
    let (backend, threads) = (session.cpu().kernels.backend().name(), session.cpu().threads());
    let mut served = {
        let described = described(args, prompt, backend, threads, args.tokens);
        let ceilings = ceilings.as_ref().ok().cloned();
        serve(args, target, model, &profiler, described, ceilings)?
    };
    profiler.enable();
    if args.tiles {
        session.profile_tiles(&profiler);
    }
    let live = publish(args, live, &profiler, || Facts {
        run: Some(described(args, prompt, backend, threads, args.tokens)),
        model: Some(source::describe(model)),
        machine: Some(brickscope::machine::detect()),
        ceilings: ceilings.as_ref().ok().cloned(),
        ceilings_absent: ceilings.as_ref().err().cloned(),
        ..Facts::default()
    })?;
    let options = GenerateOptions { n_tokens: args.tokens, sampling: args.sampling() };
    let bar = progress::tokens("running", context as u64);
    let mut show = |done: usize| go_on(args, &bar, done);
    let mut probe = session.probe(&profiler)?;
    // All threads that don't run the model exist by now, since new ones stay on the CPU of the thread that starts them.
    let pool = session.cpu().clone();
    let pinned = args.pin.then(|| pool.pool().pin()).transpose();
    let pinned = pinned.context("--pin")?;
    let generated = loop {
        let generated = generate(&mut session, Some(&mut probe), prompt, options, &mut show)?;
        if !args.endless {
            break generated;
        }
        session.clear();
    };
    bar.finish_and_clear();
    drop(pinned);
    profiler.disable();
    drop(live);
    let pushing = served.stop_pushing();
    if let Ok(ceilings) = &mut ceilings {
        let cpu = session.cpu();
        ceilings_cache::measure_again(model, cpu.kernels, cpu.pool(), ceilings);
    }
    let not_finite = generated.not_finite(&mut session, prompt)?;
    let limits = Limits::OfHost(ceilings);
    Ok(Ran { dir, limits, profiler, generated, not_finite, backend, threads, pushing })
}

/// Runs unmeasured passes, which bring the weights into memory and warm up the caches.
fn warm_up(session: &mut Session<'_>, prompt: &[u32]) -> Result<()> {
    let prompt = &prompt[..prompt.len().min(session.batch())];
    session.forward(prompt)?;
    session.clear();
    Ok(())
}
