//! The views of a run on a device.

use brickscope::{
    BrickId, BrickProfiler, DeviceTimer, Phase, Profile, SimulatedDevice, SyncMode, TreeOptions,
    Work,
};
use brickscope_analysis::view;

use super::STREAM;

fn pass(
    profiler: &BrickProfiler,
    timer: &mut DeviceTimer<'_>,
    device: &mut SimulatedDevice,
    position: u64,
) {
    let gemv = profiler.device_kernel("gemv_q8_0", Default::default());
    let host = profiler.begin_pass(Phase::Decode);
    let issue = profiler.start("Issue");
    timer.begin_pass(device, Phase::Decode, 1, position).expect("none is open");
    let work = Work { elements: 768, flops: 2_000_000, bytes: 1_000_000, ..Work::default() };
    for layer in 0..2 {
        for (brick, nanos) in [(BrickId::RmsNorm, 4_000), (BrickId::GateProjection, 60_000)] {
            timer.brick(device, STREAM, Some(layer), brick, work).expect("room");
            timer.kernel(device, STREAM, gemv, work).expect("it runs");
            device.launch(STREAM, nanos);
        }
        timer.end_brick(device, STREAM).expect("it runs");
        device.host_works(150_000);
    }
    timer.brick(device, STREAM, None, BrickId::LmHead, work).expect("room");
    device.launch(STREAM, 90_000);
    timer.end_pass(device).expect("it is open");
    profiler.stop(issue, 0);
    let wait = profiler.start("DeviceWait");
    timer.settle(device, true).expect("it is there");
    profiler.stop(wait, 0);
    profiler.end_pass(host, 1, position);
}

fn run(mode: SyncMode) -> Profile {
    let mut device = SimulatedDevice::new(1).with_issue(100).with_stamp(50, 20).with_tick(10);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    profiler.set_sync_mode(mode);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.calibrate(&mut device).expect("it can be measured");
    for position in 0..8 {
        pass(&profiler, &mut timer, &mut device, position);
    }
    timer.finish(&mut device).expect("it is there");
    let mut profile = profiler.profile();
    profile.check().expect("it adds up");
    profile.brickscope_version = "0".to_owned();
    profile
}

fn is_narrow(text: &str) -> bool {
    text.lines().all(|line| line.chars().count() <= 80)
}

#[test]
fn the_report_of_a_device() {
    let report = view::report(&run(SyncMode::Deferred));
    assert!(is_narrow(&report), "{report}");
    insta::assert_snapshot!(report);
}

#[test]
fn the_report_of_layers() {
    let report = view::report(&run(SyncMode::PerLayer));
    assert!(is_narrow(&report), "{report}");
    insta::assert_snapshot!(report);
}

#[test]
fn immediate_is_labelled_serialised() {
    let report = view::report(&run(SyncMode::Immediate));
    assert!(is_narrow(&report), "{report}");
    assert!(report.contains("serialised: the host waited after every brick"), "{report}");
    assert!(view::headline(&run(SyncMode::Immediate)).contains("The run was serialised"));
}

#[test]
fn none_says_that_nothing_was_timed() {
    let report = view::report(&run(SyncMode::None));
    assert!(report.contains("the sync mode `none` times nothing"), "{report}");
}

#[test]
fn every_view_shows_a_device() {
    let profile = run(SyncMode::Deferred);
    let on = profile.on_device(0, 0).expect("a stream");
    let report = view::report(&on);
    assert!(
        report.contains("Decode on the device: GateProjection takes the most time"),
        "{report}"
    );
    assert!(report.contains("(gaps)"), "{report}");
    assert!(view::statistics(&on).contains("GateProjection"));
    assert!(view::kernels(&on).contains("gemv_q8_0"));
    assert!(view::roofline(&on).contains("the device's limits were not measured"));
    assert!(Profile::from_json(&view::json(&on), "x".as_ref()).is_ok());
    let pass = on.drawable_pass(Phase::Decode).expect("its spans were kept");
    let graph = on.execution_graph(pass.serial).expect("its spans were kept");
    let tree = graph.to_tree(&TreeOptions::default());
    assert!(tree.contains("GateProjection") && tree.contains("gemv_q8_0"), "{tree}");
    assert!(graph.to_dot().contains("GateProjection"));
    assert!(view::critical_path(&graph, &[]).contains("GateProjection"));
}
