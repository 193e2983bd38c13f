//! How finely a device is timed, by what that costs.

use brickscope::{
    BrickId, BrickProfiler, DeviceMisuse, DeviceTimer, Grain, Phase, Profile, SimulatedDevice, Work,
};
use brickscope_analysis::view;

use super::STREAM;

/// Ten layers of four bricks, the last of two kernels.
fn pass(
    timer: &mut DeviceTimer<'_>,
    device: &mut SimulatedDevice,
    profiler: &BrickProfiler,
    phase: Phase,
    nanos: u64,
) {
    let kernel = profiler.device_kernel("gemv", Default::default());
    timer.begin_pass(device, phase, 1, 0).expect("none is open");
    for layer in 0..10 {
        for brick in [
            BrickId::RmsNorm,
            BrickId::QkvProjection,
            BrickId::OutputProjection,
            BrickId::DownProjection,
        ] {
            timer.brick(device, STREAM, Some(layer), brick, Work::default()).expect("room");
            for _ in 0..if brick == BrickId::DownProjection { 2 } else { 1 } {
                timer.kernel(device, STREAM, kernel, Work::default()).expect("it runs");
                device.launch(STREAM, nanos);
            }
        }
    }
    timer.end_pass(device).expect("it is open");
    timer.settle(device, true).expect("it is there");
}

/// Passes whose kernels take this long, on a device whose marks cost 100 ns of the host and 1 µs of the device.
fn run(kernels_ns: &[u64]) -> (Profile, Vec<Grain>) {
    let mut device = SimulatedDevice::new(1).with_issue(0).with_stamp(100, 1_000);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let cost = timer.calibrate(&mut device).expect("it can be measured");
    assert_eq!((cost.host_ns, cost.device_ns, cost.marks), (100.0, 1_000.0, 64));
    // Half of it is allowed, as marks in a row are cheaper than those of a pass.
    timer.set_budget(0.02);
    let mut grains = Vec::new();
    for &nanos in kernels_ns {
        grains.push(timer.grain_of(Phase::Prefill));
        pass(&mut timer, &mut device, &profiler, Phase::Prefill, nanos);
    }
    grains.push(timer.grain_of(Phase::Prefill));
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    (profile, grains)
}

#[test]
fn marks_that_cost_too_much_are_left_out_until_passes_are_longer_and_the_report_says_so() {
    use Grain::*;
    // 51 marks of kernels, 41 of bricks, 11 of layers, 2 of a pass.
    let (profile, grains) =
        run(&[200_000, 110_000, 90_000, 30_000, 2_000, 2_000, 300_000, 300_000]);
    assert_eq!(grains, [Kernel, Kernel, Kernel, Brick, Layer, Pass, Pass, Kernel, Kernel]);
    let [device] = &profile.devices[..] else { panic!("there is one") };
    let [choice] = &device.grains[..] else { panic!("one phase") };
    assert_eq!((choice.grain, choice.changes), (Kernel, 4));
    let by_grain: Vec<_> =
        device.streams[0].grains.iter().map(|g| (g.grain, g.passes, g.marks)).collect();
    assert_eq!(by_grain, [(Pass, 2, 4), (Layer, 1, 11), (Brick, 1, 41), (Kernel, 4, 204)]);
    // Prefill passes are all timed.
    assert_eq!(device.unmarked_passes, 0);
    let report = view::report(&profile);
    assert!(report.contains("bricks were not measured in 3 of 8 passes"), "{report}");
}

#[test]
fn the_reason_is_in_the_report_with_its_figures() {
    let (profile, _) = run(&[30_000]);
    let report = view::report(&profile);
    let said = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason = "prefill: layers only: the 41 stamps of 1.0 µs that bricks take would be 2.6 % of a \
                  pass, and 1 % are allowed";
    assert!(said.contains(reason), "{report}");
    assert!(said.contains("one costs the host 0.1 µs and the device 1.0 µs"), "{report}");
}

#[test]
fn marks_between_work_cost_what_they_add_to_it() {
    for filler_ns in [0, 700, 50_000] {
        let device = SimulatedDevice::new(1).with_issue(0).with_stamp(100, 1_000);
        let mut device = device.with_filler(filler_ns);
        let profiler = BrickProfiler::with_clock(device.clock());
        profiler.enable();
        let mut timer = profiler.device().timer(&mut device).expect("a clock");
        let cost = timer.calibrate(&mut device).expect("it can be measured");
        assert_eq!((cost.host_ns, cost.device_ns), (100.0, 1_000.0), "{filler_ns} ns");
        // This device brings them to the host for nothing; all that is left is what the host has no other work
        // to hide behind.
        assert_eq!(cost.pass_ns, Some(100.0), "{filler_ns} ns");
    }
}

#[test]
fn of_passes_shorter_than_their_marks_some_are_timed_and_the_others_counted() {
    let mut device = SimulatedDevice::new(1).with_issue(0).with_stamp(100, 1_000);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.calibrate(&mut device).expect("it can be measured");
    // 100 µs, of which two marks are 2 %.
    (0..9).for_each(|_| pass(&mut timer, &mut device, &profiler, Phase::Decode, 2_000));
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    let of = &profile.devices[0];
    let timed: u64 = of.streams[0].grains.iter().map(|grain| grain.passes).sum();
    // The first and, after seven without, the ninth.
    assert_eq!((timed, of.unmarked_passes), (2, 7), "{:?}", of.grains);
    let report = view::report(&profile);
    assert!(report.contains("7 passes ran without marks, to keep to the budget"), "{report}");
}

#[test]
fn without_a_known_cost_there_is_no_budget_and_the_reason_says_so() {
    let mut device = SimulatedDevice::new(1).with_issue(0).with_stamp(5_000, 5_000);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    pass(&mut timer, &mut device, &profiler, Phase::Decode, 10);
    assert_eq!(timer.grain_of(Phase::Decode), Grain::Kernel);
    timer.set_grain(Grain::Layer);
    pass(&mut timer, &mut device, &profiler, Phase::Decode, 10);
    let forced = profiler.profile().devices[0].grains[0].reason.clone();
    assert_eq!(forced, "layers only: set by the caller");
    timer.choose_grain();
    timer.finish(&mut device).expect("it is there");
    let [of] = &profiler.profile().devices[..] else { panic!("there is one") };
    assert_eq!((of.stamp, of.budget), (None, None));
    assert!(of.stamp_absent.as_ref().is_some_and(|absent| absent.reason.contains("calibrate")));
    assert!(of.grains[0].reason.contains("was not measured"), "{}", of.grains[0].reason);
}

#[test]
fn the_budget_can_be_set() {
    let mut device = SimulatedDevice::new(1).with_issue(0).with_stamp(100, 1_000);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.calibrate(&mut device).expect("it can be measured");
    timer.set_budget(0.5);
    pass(&mut timer, &mut device, &profiler, Phase::Decode, 20_000);
    assert_eq!(timer.grain_of(Phase::Decode), Grain::Kernel);
    timer.set_budget(f64::NAN);
    pass(&mut timer, &mut device, &profiler, Phase::Decode, 20_000);
    assert_eq!(timer.grain_of(Phase::Decode), Grain::Pass);
}

#[test]
fn where_there_is_no_room_for_marks_the_next_pass_has_fewer() {
    for (marks, grain, overfull) in
        [(51, Grain::Kernel, 0), (45, Grain::Brick, 1), (12, Grain::Layer, 2)]
    {
        let mut device = SimulatedDevice::new(1).with_issue(0).with_marks(marks);
        let profiler = BrickProfiler::with_clock(device.clock());
        profiler.enable();
        let mut timer = profiler.device().timer(&mut device).expect("a clock");
        for _ in 0..5 {
            pass(&mut timer, &mut device, &profiler, Phase::Decode, 1_000);
        }
        assert_eq!(timer.grain_of(Phase::Decode), grain);
        timer.finish(&mut device).expect("it is there");
        let profile = profiler.profile();
        profile.check().expect("it adds up");
        let of = &profile.devices[0];
        assert_eq!((of.overfull_passes, of.untimed_passes()), (overfull, overfull));
        assert_eq!(of.streams[0].passes.len() as u64, 5 - overfull);
    }
    // A grain that the caller sets is an error if its marks don't fit.
    let mut device = SimulatedDevice::new(1).with_marks(2);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.set_grain(Grain::Brick);
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    let refused = (0..3)
        .try_for_each(|_| timer.brick(&mut device, STREAM, None, BrickId::LmHead, Work::default()));
    assert_eq!(refused, Err(DeviceMisuse::TooManyMarks { room: 2 }.into()));
}
