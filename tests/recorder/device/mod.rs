//! Device times, on a simulated device whose clock is known.

mod books;
mod budget;
mod streams;
mod truth;
mod views;

use brickscope::{
    BrickId, BrickProfiler, DeviceTimer, NameKind, Phase, Profile, SimulatedDevice, Source,
    StreamId, SyncMode, Work,
};

const STREAM: StreamId = StreamId(0);

/// Two layers of two bricks, the second of two kernels, and a head.
fn pass(timer: &mut DeviceTimer<'_>, device: &mut SimulatedDevice, profiler: &BrickProfiler) {
    let kernels = ["gemv", "add"].map(|name| profiler.device_kernel(name, Default::default()));
    timer.begin_pass(device, Phase::Decode, 1, 3).expect("no pass is open");
    for layer in 0..2 {
        timer.brick(device, STREAM, Some(layer), BrickId::RmsNorm, Work::elements(8)).expect("ok");
        device.launch(STREAM, 3_000);
        let down = BrickId::DownProjection;
        timer.brick(device, STREAM, Some(layer), down, Work::elements(8)).expect("ok");
        for (kernel, nanos) in kernels.into_iter().zip([20_000, 1_000]) {
            timer.kernel(device, STREAM, kernel, Work::elements(8)).expect("a brick runs");
            device.launch(STREAM, nanos);
        }
    }
    timer.brick(device, STREAM, None, BrickId::LmHead, Work::elements(1)).expect("ok");
    device.launch(STREAM, 40_000);
    timer.end_pass(device).expect("ok");
}

fn run(mode: SyncMode, passes: usize) -> (Profile, SimulatedDevice) {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    profiler.set_sync_mode(mode);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for _ in 0..passes {
        pass(&mut timer, &mut device, &profiler);
    }
    timer.finish(&mut device).expect("ok");
    (profiler.profile(), device)
}

fn of(profile: &Profile, name: &str) -> (u64, u64) {
    let total = profile.totals.iter().find(|total| total.stats.name == name);
    total.map_or((0, 0), |total| (total.stats.count, total.stats.total_ns))
}

#[test]
fn deferred_bricks_have_their_own_device_times_and_nothing_waits_for_each() {
    let (profile, device) = run(SyncMode::Deferred, 3);
    let gpu = profile.on_device(0, 0).expect("a stream");
    gpu.check().expect("it adds up");
    assert_eq!(of(&gpu, "RmsNorm"), (6, 18_000));
    assert_eq!(of(&gpu, "DownProjection"), (6, 126_000));
    assert_eq!(of(&gpu, "gemv"), (6, 120_000));
    assert_eq!(of(&gpu, "add"), (6, 6_000));
    assert_eq!(of(&gpu, "LmHead"), (3, 120_000));
    let phase = gpu.phase(Phase::Decode).expect("three passes");
    assert_eq!((phase.passes, phase.wall_ns, phase.unattributed_ns), (3, 3 * 88_000, 0));
    assert!(gpu.totals.iter().all(|total| total.source == Source::Device));
    assert!(device.n_waits() <= 3, "{}", device.n_waits());
    // What a brick is in, the layer is.
    let layers = gpu.spans.iter().filter(|span| span.name.is_none()).count();
    assert_eq!(layers, 6);
    assert!(profile.totals.is_empty(), "the host timed none of it");
    let json = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
    assert_eq!(json, profile);
}

#[test]
fn immediate_has_both_times_and_waits_once_for_each_brick() {
    let (profile, device) = run(SyncMode::Immediate, 1);
    assert_eq!(device.n_waits(), 5);
    let gpu = profile.on_device(0, 0).expect("a stream");
    gpu.check().expect("it adds up");
    assert_eq!(of(&gpu, "LmHead"), (1, 40_000));
    let host = profile.totals.iter().find(|total| total.stats.name == "LmHead").expect("timed");
    assert_eq!(host.source, Source::Host);
    assert_eq!(host.stats.total_ns, 40_000);
}

#[test]
fn per_layer_times_layers_and_invents_no_bricks() {
    let (profile, device) = run(SyncMode::PerLayer, 1);
    assert_eq!(device.n_waits(), 3, "two layers, and what is after them");
    let gpu = profile.on_device(0, 0).expect("a stream");
    gpu.check().expect("it adds up");
    assert!(gpu.totals.iter().all(|total| total.kind != NameKind::Brick), "{:?}", gpu.totals);
    let layers: Vec<u64> =
        gpu.spans.iter().filter(|s| s.name.is_none()).map(|s| s.duration_ns).collect();
    assert_eq!(layers, [24_000, 24_000]);
}

#[test]
fn none_marks_nothing() {
    let (profile, device) = run(SyncMode::None, 2);
    assert_eq!(device.n_waits(), 0);
    let gpu = profile.on_device(0, 0).expect("a stream");
    assert!(gpu.passes.is_empty() && gpu.totals.is_empty());
}
