//! Whole passes: what they compute, what they are timed as, and what becomes of them when the device goes.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use brickscope::{BrickProfiler, DeviceError, Phase, Profile, SyncMode};
use brickscope_kernels::{Backend, Kernels as CpuKernels};

use super::*;
use crate::cpu::Cpu;
use crate::error::Error;
use crate::executor::gpu::{GpuSession, STREAM};
use crate::session::Session;

fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    let files = std::fs::read_dir(folder).expect("it is there").map(|f| f.expect("a file").path());
    let mut files: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == "gguf")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn session(model: &Model, context: usize) -> Option<GpuSession<'_, Wgpu>> {
    Wgpu::new(model, context).map_or_else(skipped, |wgpu| Some(GpuSession::new(model, wgpu)))
}

#[test]
fn passes_agree_with_the_cpu() {
    for path in models() {
        let model = Model::open(&path).expect("a model");
        let Some(mut device) = session(&model, 150) else { return };
        let kernels = CpuKernels::new(Backend::Scalar).expect("scalar");
        let cpu = Cpu::new(kernels, NonZeroUsize::MIN).expect("a thread");
        let mut host = Session::new(&model, cpu, 150).expect("it fits");
        let tokens: Vec<u32> = (0..140).map(|i| i * 7 % 512).collect();
        // Two passes, a token, a small batch; then back, once more a token and a batch.
        for (tokens, position) in
            [(&tokens[..], 0), (&[9], 140), (&tokens[..7], 141), (&[12], 20), (&tokens[..33], 21)]
        {
            host.truncate(position);
            device.truncate(position);
            let expected = host.forward(tokens).expect("they fit");
            let found = device.forward(tokens).expect("they fit");
            let apart = expected.iter().zip(found).map(|(a, b)| (a - b).abs());
            let apart = apart.fold(0.0, |max, d| if d > max || d.is_nan() { d } else { max });
            let what = format!("{}: {} tokens at {position}", path.display(), tokens.len());
            assert!(apart < 1e-4, "{what}: {apart:.1e}");
        }
        let expected = host.all_logits(&tokens[..3]).expect("they fit");
        let found = device.all_logits(&tokens[..3]).expect("they fit");
        assert_eq!(found.len(), expected.len());
        assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-4));
    }
}

#[test]
fn operands_are_read_and_written() {
    let model = Model::open(&models()[0]).expect("a model");
    let Some(mut device) = session(&model, 8) else { return };
    device.forward(&[1, 2]).expect("they fit");
    let gpu = device.gpu();
    let mut k = [0.0; 8];
    gpu.read(Operand::K(1), 4, &mut k).expect("it is there");
    assert!(k.iter().any(|&value| value != 0.0));
    gpu.write(Operand::K(1), 6, &[7.5, 8.5]).expect("it is there");
    let mut again = [0.0; 8];
    gpu.read(Operand::K(1), 4, &mut again).expect("it is there");
    assert_eq!(again, [k[0], k[1], 7.5, 8.5, k[4], k[5], k[6], k[7]]);
    let beyond = gpu.read(Operand::K(1), usize::MAX / 8, &mut k).expect_err("nothing is there");
    assert!(matches!(beyond, GpuError::Device(DeviceError::Failed { .. })), "{beyond}");
}

/// A prefill of three tokens, and `n` decodes.
fn profiled(mode: SyncMode, n: u32, change: impl FnOnce(&mut Wgpu)) -> Option<Profile> {
    let model = Model::open(&models()[0]).expect("a model");
    let mut session = session(&model, 8 + n as usize)?;
    change(session.gpu());
    let profiler = BrickProfiler::enabled();
    profiler.set_sync_mode(mode);
    let mut probe = session.profiled(&profiler).expect("a clock");
    session.forward_with(&mut probe, &[1, 2, 3]).expect("they fit");
    for i in 0..n {
        session.forward_with(&mut probe, &[4 + i]).expect("it fits");
    }
    session.finish(probe).expect("the clock is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    profile.on_device(0, 0).expect("a stream").check().expect("it adds up");
    assert_eq!(profile.devices[0].disordered_passes, 0);
    assert_eq!((profile.devices[0].lost_passes, profile.devices[0].unsettled_passes), (0, 0));
    Some(profile)
}

#[test]
fn every_kernel_has_a_time_of_its_own() {
    for cuts_passes in [false, true] {
        let by_passes = |wgpu: &mut Wgpu| {
            if cuts_passes && matches!(wgpu.gpu.stamps, Stamps::Kernels) {
                wgpu.gpu.stamps = Stamps::Passes;
            }
        };
        let Some(profile) = profiled(SyncMode::Deferred, 5, by_passes) else { return };
        let gpu = profile.on_device(0, 0).expect("a stream");
        let decode = gpu.phase(Phase::Decode).expect("there were some");
        assert_eq!((decode.passes, decode.tokens), (5, 5));
        let model = Model::open(&models()[0]).expect("a model");
        let plan = Plan::new(&model.config, &model.weights, 1, Outputs::Last);
        let spans = |phase| {
            let kernels = gpu.totals.iter().filter(|total| total.device.is_some());
            let of = kernels.filter(|total| total.phase == phase);
            of.map(|total| total.stats.count).sum::<u64>()
        };
        assert_eq!(spans(Some(Phase::Decode)), 5 * plan.steps.len() as u64);
        let bricks: u64 = gpu.bricks(Some(Phase::Decode)).iter().map(|b| b.stats.total_ns).sum();
        assert_eq!(bricks + decode.unattributed_ns, decode.wall_ns);
        // There is no end of a kernel that isn't the start of the next.
        assert_eq!(decode.unattributed_ns, 0);
        let shapes: Vec<_> = gpu.totals.iter().filter_map(|total| total.device.as_ref()).collect();
        assert!(shapes.iter().any(|on| on.shape == "512×256 f16"), "{shapes:?}");
        assert!(profile.devices[0].ticks.resolution_ns.is_some());
    }
}

#[test]
fn the_modes_time_what_they_say() {
    let Some(profile) = profiled(SyncMode::None, 2, |_| ()) else { return };
    assert!(profile.devices[0].streams[0].passes.is_empty());
    let profile = profiled(SyncMode::PerLayer, 2, |_| ()).expect("it was there");
    let gpu = profile.on_device(0, 0).expect("a stream");
    assert!(gpu.bricks(None).is_empty());
    // Two layers in each of three passes, and what is before and after them.
    assert_eq!(gpu.spans.iter().filter(|span| span.layer.is_some()).count(), 6);
    let profile = profiled(SyncMode::Immediate, 2, |_| ()).expect("it was there");
    let gpu = profile.on_device(0, 0).expect("a stream");
    let count = |profile: &Profile| -> u64 {
        let bricks = profile.bricks(Some(Phase::Decode));
        bricks.iter().filter(|b| b.stats.name == "RmsNorm").map(|b| b.stats.count).sum()
    };
    assert_eq!((count(&gpu), count(&profile)), (10, 10), "on the device, and as the host sees it");
}

#[test]
fn passes_are_timed_while_others_are_in_flight() {
    let model = Model::open(&models()[0]).expect("a model");
    let Some(mut expected) = session(&model, 8) else { return };
    let mut wgpu = Wgpu::new(&model, 8).expect("there was one");
    let profiler = BrickProfiler::enabled();
    let mut timer = profiler.device().timer(&mut wgpu).expect("a clock");
    let plan = Plan::new(&model.config, &model.weights, 1, Outputs::Last);
    // More than there are sets of marks, and nobody waits for a pass but for want of a set.
    for position in 0..7 {
        wgpu.start(&plan, &[position as u32], position).expect("it is there");
        timer.begin_pass(&mut wgpu, Phase::Decode, 1, position as u64).expect("none is open");
        for (i, step) in plan.steps.iter().enumerate() {
            if step.begins_brick {
                let work = step.work(&model.config, position);
                timer.brick(&mut wgpu, STREAM, step.layer, step.brick, work).expect("it is there");
            }
            wgpu.launch(&plan, i).expect("it is there");
        }
        timer.end_pass(&mut wgpu).expect("it is there");
        wgpu.finish(&plan).expect("it is there");
    }
    let mut logits = Vec::new();
    wgpu.logits(&mut logits).expect("they were computed");
    timer.finish(&mut wgpu).expect("it is there");
    for token in 0..6 {
        expected.forward(&[token]).expect("it fits");
    }
    assert_eq!(expected.forward(&[6]).expect("it fits"), logits);
    let profile = profiler.profile();
    let gpu = profile.on_device(0, 0).expect("a stream");
    gpu.check().expect("it adds up");
    let positions: Vec<u64> = gpu.passes.iter().map(|pass| pass.position).collect();
    assert_eq!(positions, [0, 1, 2, 3, 4, 5, 6]);
    assert!(gpu.passes.windows(2).all(|two| two[0].start_ns + two[0].wall_ns <= two[1].start_ns));
}

#[test]
fn stamps_have_a_cost_and_a_moment_by_both_clocks() {
    let model = Model::open(&models()[0]).expect("a model");
    let Some(mut session) = session(&model, 8) else { return };
    let profiler = BrickProfiler::enabled();
    let wgpu = session.gpu();
    let mut timer = profiler.device().timer(wgpu).expect("a clock");
    let cost = timer.calibrate(wgpu).expect("they are taken");
    assert!(cost.marks > 1 && cost.host_ns > 0.0 && cost.device_ns > 0.0, "{cost:?}");
    let [first, second] = [0; 2].map(|_| wgpu.bracket(profiler.clock()).expect("it is there"));
    assert!(first.host_before_ns < first.host_after_ns);
    assert!(first.host_after_ns <= second.host_before_ns);
    // What the device's clock says lies between, to the host's and the device's drift in that moment.
    let ticks = wgpu.describe().ticks;
    let apart = ticks.between(first.device_ticks, second.device_ticks).expect("it goes on");
    assert!(apart > 0);
    assert!(apart <= second.host_after_ns - first.host_before_ns + 1_000, "{first:?} {second:?}");
}

#[test]
fn a_lost_device_is_an_error_and_stays_one() {
    let model = Model::open(&models()[0]).expect("a model");
    let Some(mut session) = session(&model, 12) else { return };
    let profiler = BrickProfiler::enabled();
    let mut probe = session.profiled(&profiler).expect("a clock");
    session.forward_with(&mut probe, &[1, 2, 3]).expect("they fit");
    // Times of a pass are read while the next one runs.
    session.forward_with(&mut probe, &[4]).expect("it fits");
    session.gpu().gpu.device.destroy();
    for _ in 0..2 {
        let error = session.forward_with(&mut probe, &[4]).expect_err("it is gone");
        let lost = matches!(error, Error::Device(GpuError::Device(DeviceError::Lost { .. })));
        assert!(lost, "{error}");
    }
    assert_eq!(session.position(), 4);
    let error = session.forward(&[4]).expect_err("it is gone");
    assert!(error.to_string().contains("lost"), "{error}");
    session.gpu().read(Operand::X, 0, &mut [0.0; 4]).expect_err("it is gone");
    session.gpu().write(Operand::X, 0, &[0.0; 4]).expect_err("it is gone");
    session.finish(probe).expect_err("its clock is gone");
    // What was settled before is there.
    let profile = profiler.profile();
    // The last pass is there, too, if it had ended when times were read.
    let settled = profile.devices[0].streams[0].passes.len();
    assert!((1..=2).contains(&settled), "{settled}");
    assert!(profile.devices[0].lost.is_some());
}

#[test]
fn a_model_that_does_not_fit_is_refused_by_name() {
    let model = Model::open(&models()[0]).expect("a model");
    // Of 2^40 positions no device has the keys; those of the model don't count here.
    match Wgpu::new(&model, 1 << 40) {
        Err(GpuError::TooLarge { what, bytes, .. }) => {
            assert!(what.contains("scores") || what.contains("keys"), "{what}");
            assert!(bytes > 1 << 40);
        }
        Err(why) => assert_eq!(skipped::<()>(why), None),
        Ok(_) => panic!("it can't have the memory"),
    }
}
