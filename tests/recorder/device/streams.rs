//! Several streams: parallel work, and dependencies between them.

use brickscope::{BrickProfiler, Phase, Profile, SimulatedDevice, StreamId, Work};
use brickscope_analysis::view;

const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(1);

/// `norm`, then `gate` beside `up` on another stream, then `down`, which waits for both.
fn fork_and_join(passes: u64) -> Profile {
    let mut device = SimulatedDevice::new(2).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..passes {
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        let mut brick = |device: &mut SimulatedDevice, stream, name, nanos| {
            timer.brick_named(device, stream, Some(0), name, Work::elements(1)).expect("room");
            device.launch(stream, nanos);
        };
        brick(&mut device, MAIN, "norm", 10_000);
        timer.depends(&mut device, SIDE, MAIN).expect("room");
        device.depend(SIDE, MAIN);
        let mut brick = |device: &mut SimulatedDevice, stream, name, nanos| {
            timer.brick_named(device, stream, Some(0), name, Work::elements(1)).expect("room");
            device.launch(stream, nanos);
        };
        brick(&mut device, MAIN, "gate", 30_000);
        brick(&mut device, SIDE, "up", 50_000);
        timer.depends(&mut device, MAIN, SIDE).expect("room");
        device.depend(MAIN, SIDE);
        timer.brick_named(&mut device, MAIN, Some(0), "down", Work::elements(1)).expect("room");
        device.launch(MAIN, 5_000);
        timer.end_brick(&mut device, SIDE).expect("it runs");
        timer.end_pass(&mut device).expect("it is open");
    }
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    profile
}

#[test]
fn the_critical_path_crosses_streams() {
    let profile = fork_and_join(3);
    let profile = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
    let whole = profile.whole_device(0).expect("a device");
    whole.check().expect("it adds up");
    assert_eq!(whole.lanes.len(), 2);
    for pass in &whole.passes {
        assert_eq!(pass.wall_ns, 65_000);
        let graph = whole.execution_graph(pass.serial).expect("its spans were kept");
        let schedule = graph.schedule().expect("no cycle");
        assert_eq!(schedule.makespan_ns(), 65_000);
        let path = view::critical_path(&graph, &[]);
        let takes = |name: &str, micros: &str| {
            let line = path.lines().find(|line| line.starts_with(name));
            line.is_some_and(|line| line.split_whitespace().any(|word| word == micros))
        };
        assert!(takes("norm", "10.0") && takes("up", "50.0") && takes("down", "5.0"), "{path}");
        assert!(!path.contains("gate"), "{path}");
        let gate = graph.node_by_name("gate").expect("it ran").0;
        assert_eq!(schedule.slack().get(&gate).copied(), Some(20_000));
    }
}

#[test]
fn what_streams_do_at_once_takes_its_time_once() {
    let profile = fork_and_join(3);
    let busy = profile.devices[0].busy(Some(Phase::Decode)).expect("all was kept");
    assert_eq!((busy.passes, busy.span_ns), (3, 3 * 65_000));
    assert_eq!((busy.busy_ns, busy.overlap_ns, busy.idle_ns), (3 * 65_000, 3 * 30_000, 0));
    assert!(profile.devices[0].busy(Some(Phase::Prefill)).is_err());
    // Waiting for the other stream is a gap of this one, and no brick's time.
    let main = profile.on_device(0, 0).expect("a stream");
    assert_eq!(super::of(&main, "gate"), (3, 90_000));
    assert_eq!(main.phases[0].unattributed_ns, 3 * 20_000);
}

#[test]
fn a_pass_that_is_done_before_the_previous_one_is_distinguished_from_it() {
    let mut device = SimulatedDevice::new(2).with_issue(0).with_sets(3);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    // Long and short in turns, each on a stream of its own.
    for position in 0..6_u16 {
        let (stream, nanos) = (StreamId(position % 2), [900_000, 1_000][usize::from(position % 2)]);
        timer.begin_pass(&mut device, Phase::Decode, 1, position.into()).expect("none is open");
        timer.brick_named(&mut device, stream, None, "work", Work::default()).expect("room");
        device.launch(stream, nanos);
        timer.end_pass(&mut device).expect("it is open");
    }
    timer.finish(&mut device).expect("it is there");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    let walls = |stream| -> Vec<(u32, u64, u64)> {
        let on = profile.on_device(0, stream).expect("a stream");
        on.passes.iter().map(|pass| (pass.serial, pass.position, pass.wall_ns)).collect()
    };
    assert_eq!(walls(0), [(1, 0, 900_000), (3, 2, 900_000), (5, 4, 900_000)]);
    assert_eq!(walls(1), [(2, 1, 1_000), (4, 3, 1_000), (6, 5, 1_000)]);
}

#[test]
fn a_stream_that_nobody_waits_for_is_of_the_pass_all_the_same() {
    let mut device = SimulatedDevice::new(2).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    timer.begin_pass(&mut device, Phase::Decode, 1, 0).expect("none is open");
    for (stream, name, nanos) in [(MAIN, "compute", 30_000), (SIDE, "copy", 20_000)] {
        timer.brick_named(&mut device, stream, None, name, Work::default()).expect("room");
        device.launch(stream, nanos);
    }
    timer.end_pass(&mut device).expect("it is open");
    timer.finish(&mut device).expect("it is there");
    let whole = profiler.profile().whole_device(0).expect("a device");
    whole.check().expect("it adds up");
    let graph = whole.execution_graph(whole.passes[0].serial).expect("its spans were kept");
    assert!(graph.node_by_name("copy").is_some());
    assert_eq!(graph.schedule().expect("no cycle").makespan_ns(), 30_000);
}
