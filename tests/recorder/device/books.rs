//! Passes on a device that are counted, discarded, abandoned, lost or replayed.

use brickscope::{
    Bracket, BrickId, BrickProfiler, Clock, Device, DeviceError, DeviceInfo, DeviceMisuse, Grain,
    Phase, Profile, SimulatedDevice, StreamId, SyncMode, TransferDirection, Work,
};

use super::STREAM;

/// A profiler on the clock of a device, on.
fn profiler(device: &SimulatedDevice) -> BrickProfiler {
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    profiler
}

/// A device that passes everything on, and spoils what is read back.
struct Spoilt {
    device: SimulatedDevice,
    spoil: fn(&mut Vec<u64>) -> Result<(), DeviceError>,
}

impl Device for Spoilt {
    fn describe(&self) -> DeviceInfo {
        self.device.describe()
    }

    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError> {
        self.device.begin_set(set)
    }

    fn mark(&mut self, stream: StreamId, set: u32, mark: u32) -> Result<(), DeviceError> {
        self.device.mark(stream, set, mark)
    }

    fn wait(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        self.device.wait(stream)
    }

    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError> {
        let are_there = self.device.resolve(set, n_marks, wait, ticks)?;
        (self.spoil)(ticks)?;
        Ok(are_there)
    }

    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError> {
        self.device.bracket(host)
    }
}

fn spoilt(spoil: fn(&mut Vec<u64>) -> Result<(), DeviceError>) -> Profile {
    let mut device = Spoilt { device: SimulatedDevice::new(1), spoil: |_| Ok(()) };
    let profiler = profiler(&device.device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..3 {
        device.spoil = if position == 1 { spoil } else { |_| Ok(()) };
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        for brick in [BrickId::RmsNorm, BrickId::LmHead] {
            timer.brick(&mut device, STREAM, None, brick, Work::default()).expect("room");
            device.device.launch(STREAM, 5_000);
        }
        timer.end_pass(&mut device).expect("the device goes on");
        timer.settle(&mut device, true).expect("the device goes on");
    }
    timer.finish(&mut device).expect("the device goes on");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    profile
}

#[test]
fn marks_out_of_order_are_no_times() {
    let profile = spoilt(|ticks| {
        ticks.reverse();
        Ok(())
    });
    let [device] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!((device.disordered_passes, device.unsettled_passes), (1, 0));
    let positions: Vec<u64> = device.streams[0].passes.iter().map(|pass| pass.position).collect();
    assert_eq!(positions, [0, 2]);
    assert!(brickscope_analysis::view::report(&profile).contains("marks were out of order: 1"));
}

#[test]
fn marks_that_are_not_all_read_back_say_how_many_are_missing() {
    let profile = spoilt(|ticks| {
        ticks.pop();
        Ok(())
    });
    let [device] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!((device.lost_passes, device.disordered_passes), (1, 0));
    let why = device.failure.as_deref().expect("it is said");
    assert!(why.starts_with("cannot read back all of "), "{why}");
    assert!(why.contains(" marks: resolve gave the ticks of "), "{why}");
}

/// Says that its ticks are of 100 ns, and gives nanoseconds where it reads marks back.
struct OtherUnit {
    clock: Clock,
    marks: Vec<u64>,
}

impl Device for OtherUnit {
    fn describe(&self) -> DeviceInfo {
        let mut info = SimulatedDevice::new(1).describe();
        info.ticks.ns_per_tick = 100.0;
        info
    }

    fn begin_set(&mut self, _: u32) -> Result<(), DeviceError> {
        self.marks.clear();
        Ok(())
    }

    fn mark(&mut self, _: StreamId, _: u32, _: u32) -> Result<(), DeviceError> {
        self.marks.push(self.clock.now());
        Ok(())
    }

    fn wait(&mut self, _: StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn resolve(
        &mut self,
        _: u32,
        _: u32,
        _: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError> {
        ticks.extend(&self.marks);
        Ok(true)
    }

    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError> {
        let host_before_ns = host.now();
        let device_ticks = host.now() / 100;
        Ok(Bracket { host_before_ns, device_ticks, host_after_ns: host.now() })
    }
}

#[test]
fn marks_that_come_later_than_now_are_no_times() {
    let profiler = BrickProfiler::enabled();
    // So that a hundred times as late is late.
    std::thread::sleep(std::time::Duration::from_millis(2));
    let mut device = OtherUnit { clock: profiler.clock().clone(), marks: Vec::new() };
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    timer.brick(&mut device, STREAM, None, BrickId::LmHead, Work::default()).expect("room");
    timer.end_pass(&mut device).expect("the device goes on");
    timer.finish(&mut device).expect("the device goes on");
    let profile = profiler.profile();
    let [device] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!((device.lost_passes, device.streams[0].passes.len()), (1, 0));
    let why = device.failure.as_deref().expect("it is said");
    assert!(why.contains("later than now"), "{why}");
}

#[test]
fn what_can_not_be_read_back_is_lost_and_the_rest_goes_on() {
    let profile = spoilt(|_| {
        let (what, reason) = ("read the marks".to_owned(), "the buffer is busy".to_owned());
        Err(DeviceError::Failed { what, reason })
    });
    let [device] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!((device.lost_passes, device.streams[0].passes.len()), (1, 2));
    assert_eq!(device.failure.as_deref(), Some("cannot read the marks: the buffer is busy"));
    assert_eq!(device.lost, None);
}

#[test]
fn a_lost_device_loses_what_is_in_flight_and_every_call_says_so() {
    let mut device = SimulatedDevice::new(1).with_sets(3);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..3 {
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        timer.brick(&mut device, STREAM, None, BrickId::LmHead, Work::default()).expect("room");
        device.launch(STREAM, 1_000_000);
        timer.end_pass(&mut device).expect("it is open");
        if position == 0 {
            timer.settle(&mut device, true).expect("it is there");
        }
    }
    device.lose();
    for _ in 0..2 {
        let lost = timer
            .begin_pass(&mut device, Phase::Decode, 1, 3)
            .err()
            .or_else(|| timer.settle(&mut device, true).err());
        assert!(matches!(lost, Some(DeviceError::Lost { .. })), "{lost:?}");
    }
    assert!(timer.finish(&mut device).is_err());
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    let [device] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!((device.lost_passes, device.unsettled_passes), (2, 0));
    assert_eq!(device.streams[0].passes.len(), 1);
    assert!(device.lost.is_some());
}

#[test]
fn misuse_is_an_error_and_harms_nothing() {
    let mut device = SimulatedDevice::new(2).with_issue(0);
    let profiler = profiler(&device);
    let kernel = profiler.device_kernel("k", Default::default());
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    let refused = timer.begin_pass(&mut device, Phase::Decode, 1, 1);
    assert_eq!(refused, Err(DeviceMisuse::PassInPass.into()));
    assert_eq!(timer.calibrate(&mut device).err(), Some(DeviceMisuse::PassInPass.into()));
    let refused = timer.kernel(&mut device, STREAM, kernel, Work::default());
    assert_eq!(refused, Err(DeviceMisuse::NoBrick.into()));
    let (stream, streams) = (7, 2);
    for refused in [
        timer.brick(&mut device, StreamId(7), None, BrickId::LmHead, Work::default()),
        timer.depends(&mut device, StreamId(7), STREAM),
        timer.depends(&mut device, STREAM, StreamId(7)),
        timer.end_brick(&mut device, StreamId(7)),
    ] {
        assert_eq!(refused, Err(DeviceMisuse::NoSuchStream { stream, streams }.into()));
    }
    timer.brick(&mut device, STREAM, None, BrickId::LmHead, Work::default()).expect("room");
    device.launch(STREAM, 5_000);
    timer.end_pass(&mut device).expect("it is open");
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    assert_eq!(profile.devices[0].untimed_passes(), 0);
    assert_eq!(profile.on_device(0, 0).expect("a stream").passes[0].wall_ns, 5_000);
}

#[test]
fn a_pass_that_was_given_up_is_counted_and_the_next_one_begins() {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..5 {
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        timer.brick(&mut device, STREAM, None, BrickId::LmHead, Work::default()).expect("room");
        if position % 2 == 0 {
            timer.abandon_pass();
        } else {
            device.launch(STREAM, 5_000);
            timer.end_pass(&mut device).expect("it is open");
        }
    }
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    let [device] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!((device.abandoned_passes, device.streams[0].passes.len()), (3, 2));
}

#[test]
fn a_reset_forgets_passes_in_flight_and_a_switch_does_not_cut_a_pass() {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let mut pass = |position, between: &dyn Fn()| {
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        timer.brick(&mut device, STREAM, None, BrickId::RmsNorm, Work::default()).expect("room");
        device.launch(STREAM, 1_000);
        between();
        timer.brick(&mut device, STREAM, None, BrickId::LmHead, Work::default()).expect("room");
        device.launch(STREAM, 2_000);
        timer.end_pass(&mut device).expect("it is open");
    };
    pass(0, &|| ());
    pass(1, &|| profiler.reset());
    pass(2, &|| profiler.disable());
    pass(3, &|| ());
    profiler.enable();
    pass(4, &|| ());
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    let of = &profile.devices[0];
    let passes = of.streams[0].passes.iter();
    let found: Vec<_> = passes.map(|pass| (pass.position, pass.wall_ns)).collect();
    assert_eq!(found, [(2, 3_000), (4, 3_000)]);
    assert_eq!(of.untimed_passes(), 0);
}

#[test]
fn settling_on_other_threads_makes_no_other_lanes() {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..4 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
                let brick = BrickId::LmHead;
                timer.brick(&mut device, STREAM, Some(0), brick, Work::default()).expect("room");
                device.launch(STREAM, 1_000);
                timer.end_pass(&mut device).expect("it is open");
                timer.settle(&mut device, true).expect("it is there");
            });
        });
    }
    timer.finish(&mut device).expect("it is there");
    let on = profiler.profile().on_device(0, 0).expect("a stream");
    on.check().expect("it adds up");
    assert_eq!((on.lanes.len(), on.passes.len(), on.spans.len()), (1, 4, 8));
    assert!(on.spans.iter().all(|span| span.lane == 0));
    assert!(on.spans.windows(2).all(|pair| pair[0].start_ns <= pair[1].start_ns));
}

#[test]
fn the_capacity_of_logs_is_that_of_streams_too() {
    for (capacity, kept) in [(0, 0), (3, 3), (100, 10)] {
        let mut device = SimulatedDevice::new(1).with_issue(0);
        let profiler = BrickProfiler::with_clock(device.clock()).with_log_capacity(capacity);
        profiler.enable();
        let mut timer = profiler.device().timer(&mut device).expect("a clock");
        timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
        for _ in 0..10 {
            timer.brick(&mut device, STREAM, None, BrickId::LmHead, Work::default()).expect("room");
            device.launch(STREAM, 1_000);
        }
        timer.end_pass(&mut device).expect("it is open");
        timer.finish(&mut device).expect("it is there");
        let on = profiler.profile().on_device(0, 0).expect("a stream");
        on.check().expect("it adds up");
        assert_eq!(on.spans.len(), kept);
        // A log of no capacity was not asked for; it drops nothing.
        assert_eq!(on.dropped.spans, if capacity == 3 { 7 } else { 0 });
        assert_eq!(on.totals[0].stats.count, 10);
    }
}

/// Two passes of three kernels in two bricks are recorded, each with a set of its own, and replayed.
#[test]
fn recorded_passes_are_replayed_with_their_own_sets_and_new_work() {
    for grain in [Grain::Kernel, Grain::Brick] {
        let mut device = SimulatedDevice::new(1).with_issue(0).with_sets(2);
        let profiler = profiler(&device);
        let kernels = ["a", "b", "c"].map(|name| profiler.device_kernel(name, Default::default()));
        let mut timer = profiler.device().timer(&mut device).expect("a clock");
        timer.set_grain(grain);
        let mut recorded = Vec::new();
        for _ in 0..2 {
            timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
            for (brick, kernels) in
                [(BrickId::RmsNorm, &kernels[..2]), (BrickId::LmHead, &kernels[2..])]
            {
                timer.brick(&mut device, STREAM, None, brick, Work::default()).expect("room");
                for &kernel in kernels {
                    timer.kernel(&mut device, STREAM, kernel, Work::default()).expect("it runs");
                }
            }
            timer.end_brick(&mut device, STREAM).expect("it runs");
            let pass = timer.issued().expect("one is open");
            // So that the second gets the other set.
            recorded.push(pass);
            if recorded.len() == 1 {
                timer.begin_pass(&mut device, Phase::Prefill, 1, 0).expect("none is open");
                let brick = BrickId::Embedding;
                timer.brick(&mut device, STREAM, None, brick, Work::default()).expect("room");
                device.launch(STREAM, 50_000);
                timer.end_pass(&mut device).expect("it is open");
            }
        }
        assert_ne!(recorded[0].set(), recorded[1].set());
        assert!(recorded.iter().all(|pass| pass.grain() == grain));
        for position in 0..6_u64 {
            let twin = &recorded[position as usize % 2];
            let mut work = |call, _| Work::elements(100 * position + call as u64);
            timer.replayed(&mut device, twin, 1, position, &mut work).expect("it fits");
            // What the graph does.
            let n = twin.n_marks();
            for mark in 0..n {
                device.mark(STREAM, twin.set(), mark).expect("it is there");
                if mark + 1 < n {
                    device.launch(STREAM, 1_000 * (position + 1));
                }
            }
        }
        timer.finish(&mut device).expect("it is there");
        let profile = profiler.profile();
        profile.check().expect("it adds up");
        let on = profile.on_device(0, 0).expect("a stream");
        let decode: Vec<_> = on.passes.iter().filter(|p| p.phase == Phase::Decode).collect();
        let marks = if grain == Grain::Kernel { 3 } else { 2 };
        for (position, pass) in (0..).zip(&decode) {
            assert_eq!((pass.position, pass.wall_ns), (position, marks * 1_000 * (position + 1)));
            let spans = on.spans.iter().filter(|span| span.pass == Some(pass.serial));
            let calls: Vec<u64> = spans.map(|span| span.work.elements - 100 * position).collect();
            // Bricks are calls 0 and 3; of the first one's kernels neither has a time of its own if there
            // is no mark between them.
            let expected: &[u64] =
                if grain == Grain::Kernel { &[0, 1, 2, 3, 4] } else { &[0, 3, 4] };
            assert_eq!(calls, expected);
        }
        assert_eq!(decode.len(), 6);
        assert_eq!(profile.devices[0].untimed_passes(), 0);
    }
}

/// However coarse, the last mark of a recorded pass is that of its end.
#[test]
fn recorded_passes_end_at_every_grain() {
    for (grain, n_marks, ends) in [
        (Grain::Pass, 3, true),
        (Grain::Pass, 3, false),
        (Grain::Layer, 5, true),
        (Grain::Layer, 5, false),
        (Grain::Brick, 6, true),
        (Grain::Kernel, 6, true),
        (Grain::Kernel, 6, false),
    ] {
        let mut device = SimulatedDevice::new(1).with_issue(0);
        let profiler = profiler(&device);
        let mut timer = profiler.device().timer(&mut device).expect("a clock");
        timer.set_grain(grain);
        timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
        for (index, layer) in [Some(0), Some(0), Some(1), None].into_iter().enumerate() {
            timer
                .brick(&mut device, STREAM, layer, BrickId::LmHead, Work::default())
                .expect("room");
            // Inside of layer 0 something else runs for a while.
            if index == 0 || index == 3 && ends {
                timer.end_brick(&mut device, STREAM).expect("it runs");
            }
        }
        let recorded = timer.end_recorded(&mut device).expect("room").expect("one is open");
        assert_eq!(recorded.n_marks(), n_marks, "{grain:?}");
        timer.replayed(&mut device, &recorded, 1, 0, &mut |_, work| work).expect("it fits");
        for mark in 0..n_marks {
            device.mark(STREAM, recorded.set(), mark).expect("it is there");
            device.launch(STREAM, 1_000);
        }
        timer.finish(&mut device).expect("it is there");
        let profile = profiler.profile();
        profile.check().expect("it adds up");
        let stream = &profile.devices[0].streams[0];
        assert_eq!(stream.dropped.unfinished, 0, "{grain:?}");
        assert_eq!(stream.passes[0].wall_ns, 1_000 * u64::from(n_marks - 1));
        let gaps = if grain > Grain::Layer { 1_000 } else { 0 };
        assert_eq!(stream.grains[0].gaps_ns, gaps, "{grain:?}");
    }
}

#[test]
fn a_pass_of_another_device_is_not_waited_for_forever() {
    let (mut one, mut other) = (SimulatedDevice::new(1).with_sets(5), SimulatedDevice::new(1));
    let profilers = [profiler(&one), profiler(&other)];
    let mut timer = profilers[0].device().timer(&mut one).expect("a clock");
    let mut passes = Vec::new();
    for position in 0..4 {
        timer.begin_pass(&mut one, Phase::Decode, 1, position).expect("none is open");
        timer.brick(&mut one, STREAM, None, BrickId::LmHead, Work::default()).expect("room");
        one.launch(STREAM, 1 << 40);
        if position < 3 {
            timer.end_pass(&mut one).expect("it is open");
        }
    }
    timer.end_brick(&mut one, STREAM).expect("it runs");
    passes.extend(timer.issued());
    let mut timer = profilers[1].device().timer(&mut other).expect("a clock");
    let refused = timer.replayed(&mut other, &passes[0], 1, 0, &mut |_, work| work);
    assert_eq!(refused, Err(DeviceMisuse::NoSuchSet { set: 3, sets: 2 }.into()));
}

#[test]
fn what_is_recorded_to_its_end_lasts_as_long_at_every_grain() {
    for grain in Grain::ALL {
        let mut device = SimulatedDevice::new(1).with_issue(0);
        let profiler = profiler(&device);
        let mut timer = profiler.device().timer(&mut device).expect("a clock");
        timer.set_grain(grain);
        timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
        for layer in 0..2 {
            let brick = BrickId::RmsNorm;
            timer.brick(&mut device, STREAM, Some(layer), brick, Work::default()).expect("room");
        }
        let recorded = timer.end_recorded(&mut device).expect("it is there").expect("one is open");
        timer.replayed(&mut device, &recorded, 1, 0, &mut |_, work| work).expect("it fits");
        // Two layers of one brick each: a mark before each, where they have any, and one at the end.
        let n = recorded.n_marks();
        assert_eq!(n, if grain == Grain::Pass { 2 } else { 3 }, "{grain:?}");
        for mark in 0..n {
            device.mark(STREAM, recorded.set(), mark).expect("it is there");
            if mark + 1 < n {
                device.launch(STREAM, 1_200 / u64::from(n - 1));
            }
        }
        timer.finish(&mut device).expect("it is there");
        let on = profiler.profile().on_device(0, 0).expect("a stream");
        assert_eq!(on.passes.iter().map(|pass| pass.wall_ns).collect::<Vec<_>>(), [1_200]);
    }
}

#[test]
fn work_that_is_known_at_the_end_of_a_brick_is_the_bricks() {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    for (brick, elements) in [(BrickId::RmsNorm, 7), (BrickId::LmHead, 9)] {
        timer.brick(&mut device, STREAM, None, brick, Work::default()).expect("room");
        device.launch(STREAM, 700);
        timer.end_brick_with(&mut device, STREAM, Work::elements(elements)).expect("it runs");
    }
    // Nothing runs any more.
    timer.end_brick_with(&mut device, STREAM, Work::elements(100)).expect("nothing happens");
    timer.end_pass(&mut device).expect("it is open");
    timer.finish(&mut device).expect("it is there");
    let on = profiler.profile().on_device(0, 0).expect("a stream");
    let elements: Vec<u64> = on.spans.iter().map(|span| span.work.elements).collect();
    assert_eq!(elements, [7, 9]);
}

#[test]
fn what_was_recorded_without_an_end_has_no_time() {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    for brick in [BrickId::RmsNorm, BrickId::LmHead] {
        timer.brick(&mut device, STREAM, Some(0), brick, Work::default()).expect("room");
    }
    let recorded = timer.issued().expect("one is open");
    timer.replayed(&mut device, &recorded, 1, 0, &mut |_, work| work).expect("it fits");
    device.mark(STREAM, recorded.set(), 0).expect("it is there");
    device.launch(STREAM, 700);
    device.mark(STREAM, recorded.set(), 1).expect("it is there");
    timer.finish(&mut device).expect("it is there");
    let on = profiler.profile().on_device(0, 0).expect("a stream");
    on.check().expect("it adds up");
    let bricks = on.bricks(Some(Phase::Decode));
    assert_eq!(bricks.len(), 1);
    assert_eq!((&*bricks[0].stats.name, bricks[0].stats.total_ns), ("RmsNorm", 700));
    assert_eq!(on.dropped.unfinished, 1);
}

#[test]
fn copies_have_device_times_and_those_that_undo_each_other_are_found() {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    timer.brick_named(&mut device, STREAM, Some(0), "moe", Work::default()).expect("room");
    device.launch(STREAM, 5_000);
    let (to_host, to_device) = (TransferDirection::D2H, TransferDirection::H2D);
    timer.transfer(&mut device, STREAM, "scores", "host", 4_096, to_host).expect("room");
    device.launch(STREAM, 2_000);
    timer.transfer(&mut device, STREAM, "host", "scores", 4_096, to_device).expect("room");
    device.launch(STREAM, 3_000);
    timer.end_pass(&mut device).expect("it is open");
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    let json = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
    assert_eq!(json, profile);
    let on = json.on_device(0, 0).expect("a stream");
    on.check().expect("it adds up");
    let graph = on.execution_graph(on.passes[0].serial).expect("its spans were kept");
    let [found] = &graph.ping_pong_findings()[..] else { panic!("one pair") };
    assert_eq!((&*found.tensor, found.bytes, found.total_ns), ("scores", 4_096, Some(5_000)));
    assert_eq!(super::of(&on, "D2H: scores → host"), (1, 2_000));
    assert_eq!(super::of(&on, "moe"), (1, 5_000));
}

#[test]
fn immediate_on_two_streams_adds_up_on_both_sides() {
    let mut device = SimulatedDevice::new(2).with_issue(100);
    let profiler = profiler(&device);
    profiler.set_sync_mode(SyncMode::Immediate);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let pass = profiler.begin_pass(Phase::Decode);
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    for (index, stream) in [0, 1, 0, 1, 1].into_iter().enumerate() {
        let (stream, name) = (StreamId(stream), format!("brick {index}"));
        timer.brick_named(&mut device, stream, None, &name, Work::default()).expect("room");
        device.launch(stream, 4_000);
    }
    timer.end_pass(&mut device).expect("it is open");
    profiler.end_pass(pass, 1, 0);
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    let host: u64 = profile.bricks(Some(Phase::Decode)).iter().map(|t| t.stats.count).sum();
    assert_eq!(host, 5);
    let on_device: u64 = (0..2)
        .flat_map(|stream| profile.on_device(0, stream).expect("a stream").totals)
        .map(|total| total.stats.count)
        .sum();
    assert_eq!((on_device, device.n_waits()), (5, 5));
}

#[test]
fn passes_without_marks_are_counted_and_failures_outside_are_reported() {
    let mut device = SimulatedDevice::new(1);
    let profiler = profiler(&device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.unmarked_pass();
    timer.unmarked_pass();
    profiler.set_sync_mode(SyncMode::None);
    timer.unmarked_pass();
    let reason = "it fell off the bus".to_owned();
    timer.note_error(&DeviceError::Lost { reason });
    let profile = profiler.profile();
    let [device_profile] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!(device_profile.unmarked_passes, 2, "none was to be timed in the third");
    assert!(device_profile.lost.as_deref().is_some_and(|why| why.contains("off the bus")));
    let report = brickscope_analysis::view::report(&profile);
    assert!(report.contains("2 passes ran without marks"), "{report}");
    profiler.set_sync_mode(SyncMode::Deferred);
    let refused = timer.begin_pass(&mut device, Phase::Decode, 1, 0);
    assert!(matches!(refused, Err(DeviceError::Lost { .. })), "a lost device stays lost");
}

#[test]
fn what_a_mark_costs_is_not_known_where_marks_were_not_in_order() {
    let mut device = Spoilt { device: SimulatedDevice::new(1), spoil: |_| Ok(()) };
    let profiler = profiler(&device.device);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    device.spoil = |ticks| {
        ticks.reverse();
        // The simulated marks have no cost, so they are all alike.
        if let Some(first) = ticks.first_mut() {
            *first += 1_000;
        }
        Ok(())
    };
    timer.calibrate(&mut device).expect_err("not in order");
    let profile = profiler.profile();
    assert_eq!(profile.devices[0].stamp, None);
    assert!(profile.devices[0].stamp_absent.is_some());
}
