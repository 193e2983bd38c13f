//! Runs on a simulated device.

use brickscope::{SimulatedDevice, StreamId, TransferDirection};

use crate::roofline::Roofline;

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
    /// What each brick states.
    work: Work,
    /// The name of its bricks, if they are no QkvProjection.
    name: Option<&'static str>,
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
            let layer = Some(nth / 4);
            match planted.name {
                None => {
                    let brick = BrickId::QkvProjection;
                    timer.brick(&mut device, stream, layer, brick, planted.work)
                }
                Some(name) => timer.brick_named(&mut device, stream, layer, name, planted.work),
            }
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
    assert!(finding.advice.starts_with("launch less: "), "{finding:?}");
    // No launch takes 290 µs: then the host does something else.
    let late = first(&run(OnDevice { launch_ns: 300_000, ..OnDevice::default() }));
    assert_eq!(late.rule, "launch-bound");
    assert!(late.advice.starts_with("look at what the host does between its launches"), "{late:?}");
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

/// Limits of a device under which each brick of [`run`] takes so much of its time at least.
fn ceilings(of_roof: f64) -> Ceilings {
    // A brick has 2 FLOPs and reads 1000 bytes in 10 µs.
    Ceilings { read_bytes_per_second: 1e8 / of_roof, flops_per_second: 1e12, ..Ceilings::default() }
}

#[test]
fn a_device_at_its_roof_has_only_a_limit_and_one_far_from_it_a_brick_to_look_at() {
    let work = Work { flops: 2, bytes: 1000, ..Work::elements(1) };
    let mut profile = run(OnDevice { work, ..OnDevice::default() });
    let of = |profile: &Profile| {
        let found = Findings::of(profile);
        let unknown = found.unknown.iter().any(|of| of.rule == "far-from-the-roof");
        (found.found, unknown)
    };
    let (found, unknown) = of(&profile);
    assert!(found.is_empty() && unknown, "{found:?}");
    for (of_roof, rule, kind) in [
        (0.95, "memory-roof", FindingKind::Limit),
        (0.7, "memory-roof", FindingKind::Limit),
        (0.3, "far-from-the-roof", FindingKind::Slow),
        // Up to 2.5 times as fast shows that the device is faster.
        (3.0, "above-the-roof", FindingKind::Doubt),
    ] {
        profile.devices[0].ceilings = Some(ceilings(of_roof));
        let (found, unknown) = of(&profile);
        let [finding] = &found[..] else { panic!("{of_roof}: {found:?}") };
        assert_eq!((finding.rule, finding.kind, unknown), (rule, kind, false), "{finding:?}");
        assert_eq!(finding.phase, Some(Phase::Decode));
        let told = format!("{} {:?}", finding.what, finding.evidence);
        assert!(told.contains("decode on the device"), "{told}");
        assert!(!finding.advice.contains("threads`"), "{finding:?}");
        let screen = crate::view::headline(&profile);
        let share = format!("{:.0} % of {:.1} GB/s", 100.0 * of_roof, 0.1 / of_roof);
        assert!(screen.contains(&share) && screen.contains("the device: "), "{screen}");
    }
    // What each of the 320 bricks takes more than its roof allows: 7 of 10 µs.
    profile.devices[0].ceilings = Some(ceilings(0.3));
    assert_predicts(&first(&profile), 32.0 * 7_000.0);
    // Why they could not be measured.
    profile.devices[0].ceilings = None;
    profile.devices[0].ceilings_absent = Some(Absent { reason: "it was too full".to_owned() });
    let findings = Findings::of(&profile);
    let why = findings.unknown.iter().filter(|of| of.rule == "far-from-the-roof");
    let why: Vec<_> = why.map(|of| of.why.as_str()).collect();
    assert_eq!(why, ["how fast decode on the device could be is not known: it was too full"]);
}

#[test]
fn passes_that_were_timed_without_bricks_are_not_held_against_the_roof() {
    let work = Work { flops: 2, bytes: 1000, ..Work::elements(1) };
    let mut profile = run(OnDevice { work, ..OnDevice::default() });
    profile.devices[0].ceilings = Some(ceilings(0.95));
    let mut on = profile.whole_device(0).expect("a device");
    let before = Roofline::of_sums(&on, Phase::Decode).expect("ceilings");
    // As many more, each as a whole.
    let wholes: Vec<_> = on
        .passes
        .iter()
        .map(|pass| brickscope::Pass { attributed_ns: 0, unattributed_ns: pass.wall_ns, ..*pass })
        .collect();
    on.phases[0].passes *= 2;
    on.phases[0].unattributed_ns += on.phases[0].wall_ns;
    on.phases[0].wall_ns *= 2;
    on.passes.extend(wholes);
    let after = Roofline::of_sums(&on, Phase::Decode).expect("ceilings");
    assert_eq!(after, before);
    // A stalled one that was left out before.
    let stalled = brickscope::Pass { is_left_out: true, wall_ns: 1_000_000_000, ..on.passes[0] };
    on.passes.push(stalled);
    let after = Roofline::of_sums(&on, Phase::Decode).expect("ceilings");
    assert_eq!(after, before);
    // Where all have bricks, the sums stand as they are: they may be of medians.
    on.passes.retain(|pass| pass.attributed_ns > 0 && !pass.is_left_out);
    on.phases[0].passes /= 2;
    on.phases[0].wall_ns = before.wall_ns - 10;
    let after = Roofline::of_sums(&on, Phase::Decode).expect("ceilings");
    assert_eq!(after.wall_ns, before.wall_ns - 10);
}

#[test]
fn bricks_of_devices_say_what_their_bytes_are_whatever_their_names() {
    let work = Work { flops: 2, bytes: 1000, data: Data::Weights(900), ..Work::elements(1) };
    let mut profile = run(OnDevice { work, name: Some("GateUpProjection"), ..OnDevice::default() });
    profile.devices[0].ceilings = Some(ceilings(0.95));
    let on = profile.whole_device(0).expect("a device");
    let stats = &on.bricks(Some(Phase::Decode))[0].stats;
    assert_eq!((stats.data.weights, stats.data.activations), (900 * 320, 100 * 320));
    // Faster than memory, it still has its place.
    profile.devices[0].ceilings = Some(ceilings(3.0));
    let on = profile.whole_device(0).expect("a device");
    let roofline = Roofline::of_sums(&on, Phase::Decode).expect("ceilings");
    assert_eq!(roofline.bricks[0].absent, None);
    let verdict = roofline.verdict().expect("a brick with a place");
    assert_eq!(verdict.reach, crate::roofline::Reach::Above);
    assert!((verdict.of_roof - 3.0).abs() < 0.01, "{verdict:?}");
    // What a cache may hold of a pass comes faster than memory gives it.
    let mut cached = ceilings(3.0);
    cached.caches.push(CacheCeiling {
        level: "L2".to_owned(),
        bytes: 20_000,
        read_bytes_per_second: 1e12,
    });
    profile.devices[0].ceilings = Some(cached);
    let on = profile.whole_device(0).expect("a device");
    let verdict = Roofline::of_sums(&on, Phase::Decode).expect("ceilings").verdict();
    assert!(verdict.is_some_and(|verdict| verdict.reach != crate::roofline::Reach::Above));
}

#[test]
fn streams_that_run_at_once_have_no_roof_alone() {
    let work = Work { flops: 2, bytes: 1000, ..Work::elements(1) };
    let mut profile = run(OnDevice { work, ..OnDevice::default() });
    profile.devices[0].ceilings = Some(ceilings(0.3));
    assert_eq!(first(&profile).rule, "far-from-the-roof");
    let other = profile.devices[0].streams[0].clone();
    profile.devices[0].streams.push(other);
    let findings = Findings::of(&profile);
    assert!(!findings.found.iter().any(|of| of.rule == "far-from-the-roof"), "{findings:?}");
    let why = findings.unknown.iter().find(|of| of.rule == "far-from-the-roof");
    assert!(why.is_some_and(|of| of.why.contains("several streams ran at once")), "{findings:?}");
    assert!(!crate::view::headline(&profile).contains("roof"));
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
