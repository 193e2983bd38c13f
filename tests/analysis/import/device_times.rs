//! Times on devices that don't fit a model of one stream after another: streams that overlap, clocks that don't fit, and
//! kernels that aren't there.

use brickscope::{Phase, Profile};
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
            events.extend(launched(&name, stream, 100 + 10 * n + i64::from(stream == 7), [at, 2]));
        }
    }
    let profile = profile_of(&events);
    let screen = screen(&profile);
    // 320 of 347 µs, and 8 µs of the others.
    assert!(screen.contains("1 by ranges, 92.2 %"), "{screen}");
    assert!(screen.contains("MatMul 92.2 %"), "{screen}");
    assert!(screen.contains("4 more, 2.3 % together"), "{screen}");
}
