//! What is recorded, against what truly happened.

use brickscope::{
    BrickProfiler, DeviceTimer, LaunchKind, NameKind, Phase, Profile, SimulatedDevice, StreamId,
    SyncMode, Work,
};
use proptest::prelude::*;

/// A brick: its stream, its layer, its kernels in nanoseconds, and how long the host does nothing for the
/// device after it.
#[derive(Debug, Clone)]
struct Brick {
    stream: u16,
    layer: Option<u16>,
    kernels: Vec<u64>,
    pause: Option<u64>,
}

fn brick(streams: u16) -> impl Strategy<Value = Brick> {
    let kernels = prop::collection::vec(0_u64..200_000, 1..4);
    let layer = prop::option::of(0_u16..3);
    let pause = prop::option::weighted(0.3, 0_u64..300_000);
    (0..streams, layer, kernels, pause).prop_map(|(stream, layer, kernels, pause)| Brick {
        stream,
        layer,
        kernels,
        pause,
    })
}

#[derive(Debug, Clone)]
struct Run {
    streams: u16,
    tick: u64,
    jitter: u64,
    drift: f64,
    sets: u32,
    passes: Vec<Vec<Brick>>,
}

fn run() -> impl Strategy<Value = Run> {
    let tick = prop_oneof![Just(1_u64), Just(32), Just(1_024)];
    let jitter = prop_oneof![2 => Just(0_u64), 1 => 1_u64..2_000];
    let drift = prop_oneof![2 => Just(0.0), 1 => -100.0_f64..100.0];
    (1_u16..4, tick, jitter, drift, 1_u32..4).prop_flat_map(
        |(streams, tick, jitter, drift, sets)| {
            let pass = prop::collection::vec(brick(streams), 1..12);
            prop::collection::vec(pass, 1..5).prop_map(move |passes| Run {
                streams,
                tick,
                jitter,
                drift,
                sets,
                passes,
            })
        },
    )
}

/// How long each brick of each pass truly takes: from when the device comes to it, to when it comes to
/// what is next on that stream.
type Truth = Vec<Vec<u64>>;

fn issue(
    run: &Run,
    profiler: &BrickProfiler,
    timer: &mut DeviceTimer<'_>,
    device: &mut SimulatedDevice,
) -> Truth {
    let kernel = profiler.device_kernel("kernel", Default::default());
    let host = device.clock();
    let mut truth: Truth = run.passes.iter().map(|pass| vec![0; pass.len()]).collect();
    // By stream: when it is done with what it has.
    let mut done = vec![0_u64; usize::from(run.streams)];
    for (position, pass) in run.passes.iter().enumerate() {
        timer.begin_pass(device, Phase::Decode, 1, position as u64).expect("no pass is open");
        // By stream: the brick that runs, and since when.
        let mut running: Vec<Option<(usize, u64)>> = vec![None; done.len()];
        for (index, brick) in pass.iter().enumerate() {
            let stream = StreamId(brick.stream);
            let at = usize::from(brick.stream);
            let now = done[at].max(host.now());
            if let Some((before, since)) = running[at].replace((index, now)) {
                truth[position][before] = now - since;
            }
            // The brick's place in its pass is its work, so that it is found again.
            let work = Work::elements(index as u64);
            let name = format!("brick {index}");
            timer.brick_named(device, stream, brick.layer, &name, work).expect("there is room");
            for &nanos in &brick.kernels {
                timer.kernel(device, stream, kernel, work).expect("a brick runs");
                done[at] = device.launch(stream, nanos).1;
            }
            if let Some(pause) = brick.pause {
                timer.end_brick(device, stream).expect("it runs");
                if let Some((index, since)) = running[at].take() {
                    truth[position][index] = done[at].max(host.now()) - since;
                }
                device.host_works(pause);
            }
        }
        for (stream, running) in running.into_iter().enumerate() {
            if let Some((index, since)) = running {
                truth[position][index] = done[stream].max(host.now()) - since;
            }
        }
        timer.end_pass(device).expect("it is open");
    }
    truth
}

fn recorded(run: &Run) -> (Profile, Truth) {
    let mut device = SimulatedDevice::new(run.streams)
        .with_issue(0)
        .with_tick(run.tick)
        .with_jitter(run.jitter, 7)
        .with_drift(run.drift)
        .with_sets(run.sets);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let truth = issue(run, &profiler, &mut timer, &mut device);
    timer.finish(&mut device).expect("it is there");
    (profiler.profile(), truth)
}

/// A kernel: its stream, what the host's clock read when it was issued, and when it truly began.
type Launched = (u16, u64, u64);

/// Issues a run on a host that takes its time for each launch and mark; says when each kernel was issued and
/// began.
fn launched(run: &Run, issue_ns: u64, stamp: (u64, u64)) -> (Profile, Vec<Launched>) {
    let mut device = SimulatedDevice::new(run.streams)
        .with_issue(issue_ns)
        .with_stamp(stamp.0, stamp.1)
        .with_tick(run.tick)
        .with_jitter(run.jitter, 7)
        .with_drift(run.drift)
        .with_sets(run.sets);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let kernel = profiler.device_kernel("kernel", Default::default());
    let host = device.clock();
    let mut truth = Vec::new();
    for (position, pass) in (0..).zip(&run.passes) {
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("no pass is open");
        for brick in pass {
            let (stream, work) = (StreamId(brick.stream), Work::elements(1));
            let mut issued = Some(host.now());
            timer.brick_named(&mut device, stream, brick.layer, "brick", work).expect("room");
            for &nanos in &brick.kernels {
                // The first begins with its brick, at one mark.
                let issued = issued.take().unwrap_or_else(|| host.now());
                timer.kernel(&mut device, stream, kernel, work).expect("a brick runs");
                let (start, _) = device.launch(stream, nanos);
                truth.push((brick.stream, issued, start));
            }
            if let Some(pause) = brick.pause {
                timer.end_brick(&mut device, stream).expect("it runs");
                device.host_works(pause);
            }
        }
        timer.end_pass(&mut device).expect("it is open");
    }
    timer.finish(&mut device).expect("it is there");
    (profiler.profile(), truth)
}

proptest! {
    /// Each kernel has one launch, which is the reading of the host's clock when it was issued; and nothing truly
    /// begins before its launch.
    #[test]
    fn every_kernel_has_its_launch_and_begins_after_it(
        run in run(),
        issue_ns in 0_u64..5_000,
        stamp in (0_u64..2_000, 0_u64..2_000),
    ) {
        let (profile, truth) = launched(&run, issue_ns, stamp);
        let profile = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
        for (number, stream) in (0..).zip(&profile.devices[0].streams) {
            let truth = truth.iter().filter(|(of, ..)| *of == number);
            let mut found = Vec::new();
            for (row, span) in (0..).zip(&stream.spans) {
                let kind = span.name.map(|name| profile.names[usize::from(name)].kind);
                let launch = stream.launch_of(row);
                prop_assert_eq!(launch.is_some(), kind == Some(NameKind::Kernel));
                found.extend(launch.map(|launch| (span, launch)));
            }
            prop_assert_eq!(found.len(), stream.launches.len());
            let truth: Vec<_> = truth.collect();
            prop_assert_eq!(found.len(), truth.len());
            for ((span, launch), (_, issued, start)) in found.into_iter().zip(truth) {
                prop_assert_eq!((launch.issued_ns, launch.kind), (*issued, LaunchKind::Issued));
                prop_assert!(issued <= start);
                // Where both clocks are one, what is shown is the truth.
                if run.tick == 1 && run.jitter == 0 && run.drift == 0.0 && issue_ns == 0 {
                    prop_assert!(launch.delay_ns(span) >= 0);
                }
            }
        }
    }

    /// What is coarser than kernels has the launch of its first kernel, and layers and passes have none.
    #[test]
    fn coarser_grains_have_launches_of_bricks_or_none(run in run()) {
        for grain in brickscope::Grain::ALL {
            let mut device = SimulatedDevice::new(run.streams).with_sets(run.sets);
            let profiler = BrickProfiler::with_clock(device.clock());
            profiler.enable();
            let mut timer = profiler.device().timer(&mut device).expect("a clock");
            timer.set_grain(grain);
            issue(&run, &profiler, &mut timer, &mut device);
            timer.finish(&mut device).expect("it is there");
            let profile = profiler.profile();
            for stream in &profile.devices[0].streams {
                let is_leaf = |row: u32| {
                    let is_named = stream.spans[row as usize].name.is_some();
                    is_named && stream.spans.iter().all(|span| span.parent != Some(row))
                };
                let leaves = (0..).zip(&stream.spans).filter(|&(row, _)| is_leaf(row));
                let leaves: Vec<u32> = leaves.map(|(row, _)| row).collect();
                let launched: Vec<u32> = stream.launches.iter().map(|launch| launch.span).collect();
                prop_assert_eq!(&launched, &leaves);
                prop_assert!(grain >= brickscope::Grain::Brick || launched.is_empty());
            }
        }
    }

    /// The error of a duration is less than a tick, or as late as a mark may be; and it does not grow with
    /// the number of bricks, since those that touch share a mark.
    #[test]
    fn every_duration_is_within_a_tick_of_the_truth_and_all_add_up(run in run()) {
        let (profile, truly) = recorded(&run);
        prop_assert_eq!(profile.check(), Ok(()));
        let n_bricks: usize = run.passes.iter().map(Vec::len).sum();
        let mut found = 0;
        for stream in 0..usize::from(run.streams) {
            let on = profile.on_device(0, stream).expect("a stream");
            prop_assert_eq!(on.check(), Ok(()));
            for pass in &on.passes {
                let issued = &run.passes[pass.position as usize];
                // What touches what came before it, and for how long in truth, since a gap.
                let mut chain: Option<(u64, u64, u64)> = None;
                let spans = on.spans.iter().filter(|span| span.pass == Some(pass.serial));
                for span in spans {
                    let Some(name) = span.name else { continue };
                    if on.names[usize::from(name)].kind != NameKind::Brick {
                        continue;
                    }
                    found += 1;
                    let brick = &issued[span.work.elements as usize];
                    prop_assert_eq!(usize::from(brick.stream), stream);
                    prop_assert_eq!(span.layer, brick.layer);
                    let truth = truly[pass.position as usize][span.work.elements as usize];
                    let begin = span.start_ns;
                    let end = begin + span.duration_ns;
                    let (start, sum) = match chain {
                        Some((start, before, sum)) if before == begin => (start, sum + truth),
                        _ => (begin, truth),
                    };
                    // The device's seconds are others than the host's.
                    let drift = sum as f64 * run.drift.abs() / 1e6;
                    let most = run.tick as f64 + run.jitter as f64 + drift + 1.0;
                    for (measured, truth) in [(span.duration_ns, truth), (end - start, sum)] {
                        let error = (measured as f64 - truth as f64).abs();
                        // A tick of 1 ns and no other error: exact.
                        let is_exact = run.tick == 1 && run.jitter == 0 && run.drift == 0.0;
                        prop_assert!(error < most && (!is_exact || error == 0.0), "{} {}", measured, truth);
                    }
                    chain = (brick.pause.is_none()).then_some((start, end, sum));
                }
            }
        }
        prop_assert_eq!(found, n_bricks);
    }

    /// Kernels lie in their bricks, begin to end.
    #[test]
    fn kernels_fill_their_bricks(run in run()) {
        let (profile, _) = recorded(&run);
        for stream in 0..usize::from(run.streams) {
            let on = profile.on_device(0, stream).expect("a stream");
            for (index, span) in on.spans.iter().enumerate() {
                let is = |kind| span.name.is_some_and(|n| on.names[usize::from(n)].kind == kind);
                if !is(NameKind::Brick) {
                    continue;
                }
                let inside = on.spans.iter().filter(|s| s.parent == Some(index as u32));
                prop_assert_eq!(inside.map(|s| s.duration_ns).sum::<u64>(), span.duration_ns);
            }
        }
    }

    /// What is coarser has the same spans as what is finer.
    #[test]
    fn every_grain_and_mode_has_the_same_passes(run in run()) {
        let run = Run { jitter: 0, drift: 0.0, tick: 1, ..run };
        let walls = |profile: &Profile| -> Vec<Vec<u64>> {
            let streams = profile.devices[0].streams.iter();
            streams.map(|s| s.passes.iter().map(|p| p.wall_ns).collect()).collect()
        };
        let fine = walls(&recorded(&run).0);
        for grain in brickscope::Grain::ALL {
            let mut device = SimulatedDevice::new(run.streams).with_issue(0).with_sets(run.sets);
            let profiler = BrickProfiler::with_clock(device.clock());
            profiler.enable();
            profiler.set_sync_mode(SyncMode::Deferred);
            let mut timer = profiler.device().timer(&mut device).expect("a clock");
            timer.set_grain(grain);
            issue(&run, &profiler, &mut timer, &mut device);
            timer.finish(&mut device).expect("it is there");
            let profile = profiler.profile();
            prop_assert_eq!(profile.check(), Ok(()));
            for (fine, coarse) in fine.iter().zip(walls(&profile)) {
                prop_assert_eq!(fine.len(), coarse.len());
                // What ends with a gap ends later where nothing marks where the gap begins.
                let is_no_longer = fine.iter().zip(&coarse).all(|(fine, coarse)| fine <= coarse);
                prop_assert!(is_no_longer, "{:?} {:?}", fine, coarse);
            }
        }
    }
}

/// Two clocks that drift apart: passes are placed by the newest look at both, and as long as they were.
#[test]
fn drift_moves_passes_only_until_the_clocks_are_aligned_again() {
    const PPM: f64 = 50.0;
    let mut device = SimulatedDevice::new(1).with_issue(10).with_drift(PPM);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let mut truth = Vec::new();
    for position in 0..100 {
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        timer.brick_named(&mut device, StreamId(0), None, "work", Work::default()).expect("room");
        truth.push(device.launch(StreamId(0), 1_000_000));
        timer.end_pass(&mut device).expect("it is open");
        device.host_works(999_000_000);
    }
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    let of = &profile.devices[0];
    let drift = of.drift().expect("two looks");
    assert!((drift.ppm - PPM).abs() <= drift.error_ppm + 1e-3, "{drift:?}");
    assert!(drift.error_ppm < 1e-3 && drift.over_ns > 99_000_000_000, "{drift:?}");
    assert!((10..=12).contains(&of.alignments), "{}", of.alignments);
    let on = profile.on_device(0, 0).expect("a stream");
    for (pass, (start, end)) in on.passes.iter().zip(truth) {
        // 50 ppm of a millisecond, and of at most 11 s.
        assert!(pass.wall_ns.abs_diff(end - start) <= 60, "{}", pass.wall_ns);
        assert!(pass.start_ns.abs_diff(start) < 560_000, "{} {start}", pass.start_ns);
    }
}

#[test]
fn a_clock_that_begins_again_every_millisecond_places_passes_of_a_long_run() {
    let mut device = SimulatedDevice::new(1).with_issue(0).with_valid_bits(20);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let mut truth = Vec::new();
    for position in 0..50 {
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        timer.brick_named(&mut device, StreamId(0), None, "work", Work::default()).expect("room");
        truth.push(device.launch(StreamId(0), 400_000));
        timer.end_pass(&mut device).expect("it is open");
        device.host_works(7_000_321);
    }
    timer.finish(&mut device).expect("it is there");
    let on = profiler.profile().on_device(0, 0).expect("a stream");
    let found: Vec<_> = on.passes.iter().map(|p| (p.start_ns, p.start_ns + p.wall_ns)).collect();
    assert_eq!(found, truth);
}
