//! Sequences of calls that are wrong, each of which has to be found.

use super::*;

/// A driver in use, with a stream.
fn driver() -> (Driver, u64) {
    let mut driver = Driver::new(Settings::default()).expect("it needs nothing");
    driver.init().expect("there is a device");
    let context = driver.retain(0).expect("there is a device");
    driver.set_current(context).expect("it was retained");
    let stream = driver.create_stream().expect("a context is current");
    (driver, stream)
}

fn illegal<T: std::fmt::Debug>(answer: Answer<T>) -> String {
    match answer {
        Err(Fault::Illegal(what)) => what,
        other => panic!("{other:?}"),
    }
}

const PTX: &str = ".version 8.0\n.visible .entry add(.param .u64 x, .param .u32 n)\n{ ret; }\n";

/// A launch of `add` on this address.
fn add(driver: &mut Driver, address: u64) -> Launch {
    let module = driver.load(PTX).expect("it is PTX");
    let function = driver.function(module, "add").expect("it has one");
    let (grid, block) = ((1, 1, 1), (32, 1, 1));
    Launch { function, grid, block, shared: 0, values: vec![address, 4] }
}

#[test]
fn times_need_records_that_somebody_waited_for() {
    let (mut driver, stream) = driver();
    let [a, b] = [0, 0].map(|flags| driver.create_event(flags).expect("a context is current"));
    assert!(illegal(driver.elapsed(a, b)).contains("nobody recorded the first"));
    assert!(illegal(driver.synchronize_event(a)).contains("nobody recorded"));
    driver.record(a, stream, false).expect("both are there");
    let buffer = driver.allocate(1 << 24).expect("there is room");
    driver.copy("a copy", stream, buffer, 1 << 24).expect("it is there");
    driver.record(b, stream, false).expect("both are there");
    assert!(illegal(driver.elapsed(a, b)).contains("nobody waited"));
    assert_eq!(driver.query_event(b), Err(Fault::Code(NOT_READY)));
    driver.synchronize_event(b).expect("it was recorded");
    let ms = driver.elapsed(a, b).expect("it was waited for");
    assert!(ms >= 1.6, "{ms}");

    let untimed = driver.create_event(DISABLE_TIMING).expect("a context is current");
    driver.record(untimed, stream, false).expect("both are there");
    assert!(illegal(driver.elapsed(a, untimed)).contains("has no timing"));
}

#[test]
fn nobody_waits_during_a_capture() {
    let (mut driver, stream) = driver();
    let event = driver.create_event(0).expect("a context is current");
    driver.record(event, stream, false).expect("both are there");
    driver.begin_capture(stream).expect("it does not capture yet");
    assert!(illegal(driver.synchronize_stream(stream)).contains("during a capture"));
    assert!(illegal(driver.synchronize_event(event)).contains("during a capture"));
    assert!(illegal(driver.query_event(event)).contains("during a capture"));
    assert!(illegal(driver.allocate(4)).contains("during a capture"));
    assert!(illegal(driver.begin_capture(stream)).contains("already"));
    driver.end_capture(stream).expect("it captures");
    assert!(illegal(driver.end_capture(stream)).contains("does not capture"));
    driver.synchronize_stream(stream).expect("the capture is over");
}

#[test]
fn external_records_are_for_captures_and_only_they_have_times_there() {
    let (mut driver, stream) = driver();
    let [a, b] = [0, 0].map(|flags| driver.create_event(flags).expect("a context is current"));
    assert!(illegal(driver.record(a, stream, true)).contains("outside of a capture"));
    driver.begin_capture(stream).expect("it does not capture yet");
    driver.record(a, stream, false).expect("it is a dependency");
    driver.record(b, stream, true).expect("it is a node");
    let graph = driver.end_capture(stream).expect("it captures");
    assert_eq!(driver.graph(graph).expect("it was captured").nodes().count(), 1);
    assert!(illegal(driver.elapsed(a, b)).contains("without CU_EVENT_RECORD_EXTERNAL"));
    assert!(illegal(driver.synchronize_event(b)).contains("nobody recorded"));
    let exec = driver.instantiate(graph).expect("it is there");
    driver.launch_graph(exec, stream).expect("it is there");
    driver.synchronize_event(b).expect("the graph has recorded it");
    driver.destroy_event(b).expect("it is there");
    assert!(illegal(driver.launch_graph(exec, stream)).contains("there is not"));
}

#[test]
fn memory_is_used_where_it_is_and_as_long_as_it_is() {
    let (mut driver, stream) = driver();
    let buffer = driver.allocate(100).expect("there is room");
    driver.copy("a copy", stream, buffer + 60, 40).expect("it is inside");
    assert!(illegal(driver.copy("a copy", stream, buffer + 60, 41)).contains("40 are left"));
    let launch = add(&mut driver, buffer);
    driver.launch(stream, launch.clone()).expect("it is legal");
    let elsewhere = Launch { values: vec![buffer + 100, 4], ..launch.clone() };
    assert!(illegal(driver.launch(stream, elsewhere)).contains("nothing was allocated"));
    driver.begin_capture(stream).expect("it does not capture yet");
    driver.launch(stream, launch.clone()).expect("it is legal");
    let graph = driver.end_capture(stream).expect("it captures");
    let exec = driver.instantiate(graph).expect("it is there");
    driver.free(buffer).expect("it is there");
    assert!(illegal(driver.free(buffer)).contains("freed before"));
    assert!(illegal(driver.launch(stream, launch)).contains("was freed"));
    assert!(illegal(driver.launch_graph(exec, stream)).contains("was freed"));
    assert_eq!(driver.allocate(usize::MAX), Err(Fault::Code(OUT_OF_MEMORY)));
}

#[test]
fn only_known_kernels_are_launched_within_the_limits_of_devices() {
    let (mut driver, stream) = driver();
    let buffer = driver.allocate(100).expect("there is room");
    let launch = add(&mut driver, buffer);
    for (wrong, says) in [
        (Launch { function: 5, ..launch.clone() }, "no loaded module"),
        (Launch { grid: (0, 1, 1), ..launch.clone() }, "grid"),
        (Launch { grid: (1, 65_536, 1), ..launch.clone() }, "grid"),
        (Launch { block: (1_025, 1, 1), ..launch.clone() }, "blocks"),
        (Launch { shared: 49_153, ..launch.clone() }, "shared memory"),
    ] {
        assert!(illegal(driver.launch(stream, wrong)).contains(says), "{says}");
    }
    driver.allow_shared(launch.function, 64 << 10).expect("a device has it");
    driver.launch(stream, Launch { shared: 49_153, ..launch }).expect("it was allowed");
    assert_eq!(driver.load("no PTX"), Err(Fault::Code(INVALID_PTX)));
}

#[test]
fn what_is_left_when_the_context_goes_is_found() {
    let (mut driver, stream) = driver();
    assert!(illegal(driver.release(0)).contains("1 stream(s) left"));
    let (mut driver, other) = {
        driver.destroy_stream(stream).expect("it is there");
        super::tests::driver()
    };
    let event = driver.create_event(0).expect("a context is current");
    driver.destroy_stream(other).expect("it is there");
    driver.destroy_event(event).expect("it is there");
    driver.release(0).expect("nothing is left");
    assert!(illegal(driver.release(0)).contains("more often"));
    assert!(illegal(driver.create_stream()).contains("no context is current"));
}

#[test]
fn a_device_that_is_lost_stays_lost() {
    let settings = Settings { lose_at: Some(2), ..Settings::default() };
    let mut driver = Driver::new(settings).expect("it needs nothing");
    driver.init().expect("there is a device");
    let context = driver.retain(0).expect("there is a device");
    driver.set_current(context).expect("it was retained");
    let stream = driver.create_stream().expect("a context is current");
    let buffer = driver.allocate(100).expect("there is room");
    let launch = add(&mut driver, buffer);
    driver.launch(stream, launch.clone()).expect("the first one");
    driver.launch(stream, launch).expect("a launch doesn't hear of it");
    for _ in 0..2 {
        assert_eq!(driver.synchronize_stream(stream), Err(Fault::Code(LAUNCH_FAILED)));
    }
}
