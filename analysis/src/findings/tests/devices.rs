//! Runs on a simulated device.

use brickscope::{SimulatedDevice, StreamId, TransferDirection};

use super::*;

/// What a pass on the device has.
#[derive(Clone, Copy, Default)]
struct OnDevice {
    /// What the host does before each launch.
    launch_ns: u64,
    /// Whether bricks last until the next one begins.
    has_no_ends: bool,
    /// What it does after each pass.
    after_ns: u64,
    /// A copy of its own.
    copy_ns: u64,
    /// Whether it goes back at once.
    comes_back: bool,
}

/// Ten decode passes of 32 bricks of 10 µs.
fn run(planted: OnDevice) -> Profile {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let stream = StreamId(0);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..10 {
        let pass = profiler.begin_pass(Phase::Decode);
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        for nth in 0..32 {
            device.host_works(planted.launch_ns);
            let work = Work::elements(1);
            timer
                .brick(&mut device, stream, Some(nth / 4), BrickId::QkvProjection, work)
                .expect("room");
            device.launch(stream, 10_000);
            if !planted.has_no_ends {
                timer.end_brick(&mut device, stream).expect("it runs");
            }
        }
        let directions = [TransferDirection::D2H, TransferDirection::H2D];
        let copies = usize::from(planted.copy_ns > 0) + usize::from(planted.comes_back);
        for &direction in &directions[..copies] {
            let (src, dst) = match direction {
                TransferDirection::D2H => ("scores", "host"),
                _ => ("host", "scores"),
            };
            timer.transfer(&mut device, stream, src, dst, 4096, direction).expect("room");
            device.launch(stream, planted.copy_ns);
        }
        timer.end_pass(&mut device).expect("it is open");
        let wait = profiler.start("DeviceWait");
        timer.settle(&mut device, true).expect("it is there");
        profiler.stop(wait, 0);
        profiler.end_pass(pass, 1, position);
        device.host_works(planted.after_ns);
    }
    timer.finish(&mut device).expect("it is there");
    profiler.profile()
}

#[test]
fn a_busy_device_has_nothing() {
    let findings = Findings::of(&run(OnDevice::default()));
    assert_eq!(findings.found, []);
    assert!(findings.has_looked);
    assert!(findings.unknown.iter().any(|of| of.rule == "occupancy"), "{findings:?}");
}

#[test]
fn a_device_that_waits_for_launches() {
    let mut profile = run(OnDevice { launch_ns: 15_000, ..OnDevice::default() });
    let finding = first(&profile);
    assert_eq!((finding.rule, finding.phase), ("launch-bound", Some(Phase::Decode)));
    // 5 µs before each brick but the first.
    assert_predicts(&finding, 31.0 * 5_000.0);
    // Where there are graphs, none was used.
    profile.devices[0].api = "cuda".to_owned();
    assert_eq!(first(&profile).rule, "graphs-off");
    for launch in profile.devices[0].streams[0].launches.iter_mut().step_by(2) {
        launch.kind = brickscope::LaunchKind::Replayed;
    }
    assert_eq!(first(&profile).rule, "launch-bound");
    // Nobody knows when a list was submitted.
    for launch in &mut profile.devices[0].streams[0].launches {
        launch.kind = brickscope::LaunchKind::Recorded;
    }
    let findings = Findings::of(&profile);
    let of_launches = |rule: &str| ["launch-bound", "graphs-off"].contains(&rule);
    assert!(!findings.found.iter().any(|of| of_launches(of.rule)), "{findings:?}");
    assert!(findings.unknown.iter().any(|of| of.rule == "launch-bound"), "{findings:?}");
    // The gaps are the profiler's.
    profile.sync_mode = brickscope::SyncMode::Immediate;
    let findings = Findings::of(&profile);
    assert!(findings.unknown.iter().any(|of| of.rule == "launch-bound"), "{findings:?}");
}

#[test]
fn a_device_that_waits_within_its_bricks() {
    let planted = OnDevice { launch_ns: 15_000, has_no_ends: true, ..OnDevice::default() };
    let findings = Findings::of(&run(planted));
    let found = findings.found.iter().find(|of| of.rule == "launch-bound");
    let found = found.unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!(found.gain, None);
    assert!(found.evidence[0].text.contains("of 320 kernels began within 10.0"), "{found:?}");
    let busy = Findings::of(&run(OnDevice { has_no_ends: true, ..OnDevice::default() }));
    assert_eq!(busy.found, []);
}

#[test]
fn a_device_that_waits_between_passes() {
    let profile = run(OnDevice { after_ns: 80_000, ..OnDevice::default() });
    let finding = first(&profile);
    assert_eq!(finding.rule, "gaps-between-passes");
    assert_predicts(&finding, 80_000.0);
    // If not all passes are timed, what lies between is no gap.
    let mut some = profile.clone();
    some.devices[0].unmarked_passes = 3;
    assert_eq!(Findings::of(&some).found, []);
}

#[test]
fn a_copy_that_nothing_hides() {
    let finding = first(&run(OnDevice { copy_ns: 60_000, ..OnDevice::default() }));
    assert_eq!(finding.rule, "unhidden-copies");
    assert_predicts(&finding, 60_000.0);
}

#[test]
fn a_copy_that_comes_back() {
    let planted = OnDevice { copy_ns: 60_000, comes_back: true, ..OnDevice::default() };
    let findings = Findings::of(&run(planted));
    let found = findings.found.iter().find(|of| of.rule == "ping-pong");
    let found = found.unwrap_or_else(|| panic!("{findings:?}"));
    assert!(found.what.starts_with("scores is copied"), "{}", found.what);
    assert_predicts(found, 120_000.0);
}
