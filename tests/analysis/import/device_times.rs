//! Times on devices that don't fit a model of one stream after another: streams that overlap, clocks that don't fit, and
//! kernels that aren't there.

use brickscope::{Phase, Profile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::{explain, view};
use brickscope_formats::import::Format;
use serde_json::{Value, json};

use super::imported;

const SMALL: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor>";

fn event(category: &str, name: &str, [at, duration]: [i64; 2], args: Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": 1_000_000 + at, "dur": duration, "args": args})
}

fn step(duration: i64) -> Value {
    event("user_annotation", "ProfilerStep#1", [0, duration], json!({}))
}

fn call(name: &str, at: i64, correlation: u64) -> Value {
    event("cuda_runtime", name, [at, 5], json!({"correlation": correlation}))
}

fn kernel(name: &str, stream: u64, at: [i64; 2], correlation: u64) -> Value {
    let args = json!({"device": 0, "stream": stream, "correlation": correlation});
    let mut kernel = event("kernel", name, at, args);
    (kernel["pid"], kernel["tid"]) = (json!(0), json!(stream));
    kernel
}

/// A launch, and its kernel.
fn launched(name: &str, stream: u64, launched: i64, at: [i64; 2]) -> [Value; 2] {
    let correlation = launched.unsigned_abs();
    [call("cudaLaunchKernel", launched, correlation), kernel(name, stream, at, correlation)]
}

fn profile_of(events: &[Value]) -> Profile {
    let trace = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
    let profile = imported(&trace, Format::Chrome);
    profile.check().expect("it adds up");
    profile
}

/// The first screen on one line, with its words one space apart.
fn screen(profile: &Profile) -> String {
    let text = view::summary(profile, view::Size { columns: 80, rows: 40 }, None).to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_brick_on_several_streams_at_once_has_its_time_once_in_all_shares() {
    // Two products at once for 280 of 310 µs, then 100 µs of another brick.
    let mut events = vec![step(470)];
    events.extend(launched("gemm", 7, 10, [50, 300]));
    events.extend(launched("gemm", 20, 30, [70, 290]));
    events.extend(launched(SMALL, 7, 40, [360, 100]));
    let profile = profile_of(&events);
    let busy = profile.devices[0].busy(Some(Phase::Decode)).expect("it is known");
    assert_eq!((busy.span_ns, busy.busy_ns, busy.overlap_ns), (410_000, 410_000, 280_000));
    let screen = screen(&profile);
    for said in [
        "MatMul takes the most time, 75.6% of the span.",
        // Each kernel has all of its time.
        "MatMul 75.6 % 295 µs × 2",
        "Elementwise 24.4 % 100 µs × 1",
        "look at MatMul, 75.6 % of the device's time there",
    ] {
        assert!(screen.contains(said), "{said}: {screen}");
    }
    let page = explain::find_in("MatMul", &profile);
    let said = page[0].in_run(&profile);
    let said = said.sections.iter().find(|section| section.label == "decode").expect("it ran");
    assert!(said.text.starts_with("590 µs a pass"), "{}", said.text);
    assert!(said.text.contains(" on streams that overlap, 75.6 % of it;"), "{}", said.text);
}

#[test]
fn layers_and_bricks_together_are_no_more_than_all_of_the_time() {
    let mut events = vec![step(470)];
    for (stream, at) in [(7, 50), (20, 60), (21, 70)] {
        events.push(event("user_annotation", "layers.0", [at - 40, 9], json!({})));
        events.extend(launched("gemm", stream, at - 39, [at, 300]));
    }
    // Too short for rows of their own.
    for n in 0..4 {
        for stream in [7, 20] {
            let at = 380 + 5 * n;
            let name = format!("own_{n}");
            let call = 100 + 20 * n + if stream == 7 { 10 } else { 0 };
            events.extend(launched(&name, stream, call, [at, 2]));
        }
    }
    let profile = profile_of(&events);
    let screen = screen(&profile);
    // 320 of 347 µs, and 2 µs of each other one.
    assert!(screen.contains("1 by ranges, 92.2 %"), "{screen}");
    assert!(screen.contains("MatMul 92.2 %"), "{screen}");
    assert!(screen.contains("2 more, 1.2 % together"), "{screen}");
}

/// Five kernels of 60 µs, each launched 15 µs before it begins, on a device whose clock is `ahead` µs behind the host's.
fn by_a_clock(ahead: i64) -> Profile {
    let mut events = vec![step(1000)];
    for n in 0..5 {
        let at = 10 + 100 * n;
        events.extend(launched("gemm", 7, at, [at + 15 - ahead, 60]));
    }
    profile_of(&events)
}

fn doubts(profile: &Profile) -> &[String] {
    profile.imported.as_ref().map_or(&[], |imported| &imported.doubts)
}

#[test]
fn clocks_that_do_not_fit_are_doubted_and_not_compared() {
    let right = by_a_clock(0);
    assert!(doubts(&right).is_empty(), "{:?}", doubts(&right));
    assert!(screen(&right).contains("the host's pass goes on for 515 µs"), "{}", screen(&right));
    assert!(Findings::of(&right).found.iter().any(|finding| finding.rule == "launch-bound"));
    // By some microseconds clocks differ that are aligned.
    assert!(doubts(&by_a_clock(24)).is_empty());
    let (early, hours) = (by_a_clock(2_000), by_a_clock(-8_000_000_000));
    for (profile, when) in [(&early, "before"), (&hours, "more than an hour after")] {
        let said = format!("5 of 5 kernels and copies begin {when} their launch: the clocks");
        assert!(doubts(profile).iter().any(|doubt| doubt.starts_with(&said)), "{said}");
        let screen = screen(profile);
        assert!(screen.contains("5 of 5 kernels and copies begin"), "{screen}");
        // What the device's own clock tells is kept.
        assert!(screen.contains("is busy 300 µs of 460 µs from its first kernel"), "{screen}");
        let report = view::report(profile);
        for compared in ["host's launches", "goes on for", "with work launched"] {
            let is_said = screen.contains(compared) || report.contains(compared);
            assert!(!is_said, "{compared}: {screen}");
        }
        let findings = Findings::of(profile);
        let rules = ["launch-bound", "graphs-off", "waits-with-work-launched"];
        assert!(findings.found.iter().all(|finding| !rules.contains(&finding.rule)));
        let why = "the clocks of host and device don't fit";
        assert!(findings.unknown.iter().any(|unknown| unknown.why.contains(why)));
    }
}

#[test]
fn one_kernel_at_an_absurd_time_is_doubted() {
    for at in [-1_000_000 + 1, -1_000_005, 1_000_000_000_000] {
        let mut events = vec![step(1000)];
        events.extend(launched("gemm", 7, 10, [50, 300]));
        events.extend(launched("gemm", 7, 20, [at, 20]));
        let profile = profile_of(&events);
        let said = "1 of 2 kernels and copies begin";
        let is_said = doubts(&profile).iter().any(|doubt| doubt.starts_with(said));
        assert!(is_said, "{at}: {:?}", doubts(&profile));
        assert!(!screen(&profile).contains("host's launches"), "{at}: {}", screen(&profile));
    }
}

/// The doubts about kernels of these names, begins and durations on one stream, launched one by one or as a graph.
fn doubts_of(kernels: &[(&str, [i64; 2])], is_graph: bool) -> Vec<String> {
    let mut events = vec![step(1000), call("cudaGraphLaunch", 1, 1)];
    for ((nth, correlation), &(name, at)) in (0_i64..).zip(100_u64..).zip(kernels) {
        let correlation = if is_graph { 1 } else { correlation };
        if !is_graph {
            events.push(call("cudaLaunchKernel", 10 * nth + 10, correlation));
        }
        events.push(kernel(name, 7, at, correlation));
    }
    if !is_graph {
        events.push(kernel("gemm", 7, [900, 10], 1));
    }
    doubts(&profile_of(&events)).to_vec()
}

#[test]
fn a_duration_that_overflowed_is_doubted_where_no_next_kernel_shows_it() {
    let many = |third: i64, name| {
        let at = |n: i64| [100 + 100 * n, if n == 2 { third } else { 90 }];
        doubts_of(&[0, 1, 2, 3, 4, 5].map(|n| (if n == 2 { name } else { "gemm" }, at(n))), true)
    };
    let said = "1 of 6 kernels and copies lasts far longer than such kernels can";
    // Over the next three kernels of its graph.
    for third in [30_000, 1_600_000] {
        let doubts = many(third, "gemm");
        assert!(doubts.iter().any(|doubt| doubt.starts_with(said)), "{third}: {doubts:?}");
    }
    // Branches of a graph run at once.
    assert!(many(390, "gemm").is_empty());
    // What waits for other ranks, or copies, may take long.
    assert!(many(1_600_000, "ncclDevKernel_AllReduce_Sum_bf16").is_empty());
    assert!(many(1_600_000, "Memcpy HtoD (Pageable -> Device)").is_empty());
    // The last one.
    for last in [1_600_000, 18_000_000_000_000] {
        let kernels = [("gemm", [100, 90]), ("gemm", [200, 90]), ("gemm", [1000, last])];
        let doubts = doubts_of(&kernels, false);
        let said = "1 of 4 kernels and copies lasts far longer";
        assert!(doubts.iter().any(|doubt| doubt.starts_with(said)), "{last}: {doubts:?}");
    }
    // Where it has no like, nothing of a kernel can be said but that nobody records one for an hour.
    assert!(doubts_of(&[("own", [1000, 5_000_000])], false).is_empty());
    assert!(!doubts_of(&[("own", [1000, 5_000_000_000])], false).is_empty());
}

/// The doubts about ten calls of this name, each 10 µs after the other, of which only these have a kernel.
fn doubts_of_calls(name: &str, kept: &[u64]) -> Vec<String> {
    let mut events = vec![step(1000)];
    for (at, correlation) in (0_i64..10).zip(1_u64..) {
        events.push(call(name, 10 + 50 * at, correlation));
        if kept.contains(&correlation) {
            events.push(kernel("gemm", 7, [30 + 50 * at, 10], correlation));
        }
    }
    doubts(&profile_of(&events)).to_vec()
}

#[test]
fn launches_of_which_nothing_is_there_are_doubted_however_they_launch() {
    for name in [
        "cudaLaunchKernel",
        "cuLaunchKernelEx",
        "cudaLaunchCooperativeKernel",
        "hipExtModuleLaunchKernel",
        "hipLaunchCooperativeKernel",
        "cudaGraphLaunch",
        "cuGraphLaunch",
        "hipGraphLaunch",
    ] {
        let all: Vec<u64> = (1..=10).collect();
        assert_eq!(doubts_of_calls(name, &all), Vec::<String>::new(), "{name}");
        for (kept, missing) in [(&all[4..], "4 of 10"), (&[][..], "10 of 10")] {
            let said = format!(
                "{missing} launches have no kernel in the file: the device did more than it says"
            );
            assert_eq!(doubts_of_calls(name, kept), [said], "{name}");
        }
    }
    // These launch nothing on a device.
    for name in ["cudaLaunchHostFunc", "cudaGraphInstantiate", "cudaMemcpyAsync"] {
        assert!(doubts_of_calls(name, &[1]).is_empty(), "{name}");
    }
}

#[test]
fn what_is_launched_into_a_capture_is_not_missed() {
    // Of five launches, the three within the capture of a graph launch nothing.
    let mut events = vec![step(1000)];
    for (at, correlation) in (0_i64..5).zip(1_u64..) {
        events.push(call("hipLaunchKernel", 10 + 50 * at, correlation));
        if correlation == 1 {
            events.push(kernel("gemm", 7, [30, 10], 1));
        }
    }
    let mut captured = events.clone();
    captured.push(call("hipStreamBeginCapture", 50, 10));
    captured.push(call("hipStreamEndCapture", 200, 11));
    let said = |events: &[Value]| doubts(&profile_of(events)).to_vec();
    let missing = |n: &str| {
        format!("{n} launches have no kernel in the file: the device did more than it says")
    };
    assert_eq!(said(&events), [missing("4 of 5")]);
    // The last one comes behind it.
    assert_eq!(said(&captured), [missing("1 of 2")]);
}

#[test]
fn a_kernel_with_the_number_of_its_operation_alone_is_the_one_that_was_launched() {
    let mut kernel = kernel("volta_sgemm_64x64_nt", 7, [50, 100], 0);
    kernel["args"] = json!({"device": 0, "stream": 7, "External id": 5});
    let operation = event("cpu_op", "aten::mm", [5, 20], json!({"External id": 5}));
    let profile = profile_of(&[step(1000), operation, call("cudaLaunchKernel", 10, 1), kernel]);
    assert!(doubts(&profile).is_empty(), "{:?}", doubts(&profile));
}
