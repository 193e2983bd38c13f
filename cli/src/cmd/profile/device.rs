//! A run on a device. The CPU only issues the work and waits for it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use brickscope::{Absent, BrickProfiler, DeviceError, SyncMode};
use brickscope_engine::{GenerateOptions, Model, generate};
use brickscope_kernels::Backend;
use brickscope_live::socket::Facts;

use super::{Limits, Ran, described, go_on, new_folder, publish, serve, show_ranges};
use crate::flags::profile::ProfileArgs;
use crate::live::Live;
use crate::measure::log_capacity;
use crate::runs::otlp::Target;
use crate::{device, machine_name, progress, source};

pub(super) fn measure(
    args: &ProfileArgs,
    model: &Model,
    prompt: &[u32],
    backend: Backend,
    (started, live): (&str, Live),
    target: Option<&Target>,
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
        !args.pin,
        "--pin is about the CPU's threads, and --backend {backend} runs on a device"
    );
    device::check(&args.executor, backend)?;
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));
    // Before the weights, since this needs memory as well.
    live.say("measuring what the device can do");
    let mut of_device = device::ceilings(backend);
    let what = "uploading the weights, warming up";
    live.say(what);
    let note = progress::note(what);
    let mut session = device::session(backend, model, context)?;
    let dir = new_folder(args, started)?;
    // The first dispatch of each kernel compiles it, on many drivers.
    for warm_up in [&prompt[..prompt.len().min(session.batch())], &prompt[..1]] {
        session.forward(warm_up)?;
        session.clear();
    }
    note.finish_and_clear();
    let capacity = log_capacity(session.model(), session.batch(), context);
    let profiler = Arc::new(BrickProfiler::new().with_log_capacity(capacity));
    profiler.set_sync_mode(args.sync.into());
    show_ranges(&profiler);
    let described_run = described(args, prompt, backend.name(), 0, args.tokens);
    let mut served = serve(args, target, session.model(), &profiler, described_run, None)?;
    profiler.enable();
    let absent = Absent { reason: device::NO_CEILINGS.to_owned() };
    let live = publish(args, live, &profiler, || Facts {
        run: Some(described(args, prompt, backend.name(), 0, args.tokens)),
        model: Some(source::describe(session.model())),
        machine: Some(brickscope::machine::detect()),
        ceilings_absent: Some(absent.clone()),
        device_ceilings: of_device.as_ref().ok().cloned(),
        device_ceilings_absent: of_device.as_ref().err().cloned(),
        ..Facts::default()
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
    let options = GenerateOptions { n_tokens: args.tokens, sampling: args.sampling() };
    let bar = progress::tokens("running", context as u64);
    let mut show = |done: usize| go_on(args, &bar, done);
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
            profile.machine = Some(brickscope::machine::detect());
            profile.run = Some(described(args, prompt, backend.name(), 0, 0));
            profile.named = machine_name::named();
            device::add_ceilings(&mut profile, of_device);
            let written = dir.write(|dir| dir.save(&profile));
            let kept = match (&written.folder, &written.trouble) {
                (_, Some(trouble)) => trouble.to_string(),
                (Some(folder), None) => format!("{} has what was measured", folder.display()),
                (None, None) => "nothing was written".to_owned(),
            };
            return Err(error).with_context(|| format!("the run ended early; {kept}"));
        }
    };
    session.finish(probe)?;
    profiler.disable();
    drop(live);
    let pushing = served.stop_pushing();
    let not_finite = generated.not_finite(&mut *session, prompt)?;
    drop(session);
    if let Ok(ceilings) = &mut of_device {
        device::measure_again(backend, ceilings);
    }
    let (limits, backend) = (Limits::OfDevice(of_device), backend.name());
    Ok(Ran { dir, limits, profiler, generated, not_finite, backend, threads: 0, pushing })
}
