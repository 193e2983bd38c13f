//! The work of products by the shapes in a trace, and limits of the device that a user gives. Traces are made here, in the
//! form that PyTorch's profiler writes with `record_shapes=True`.

use std::path::Path;

use brickscope::{NameKind, Phase, Profile};
use brickscope_analysis::findings::{Finding, FindingKind, Findings};
use brickscope_analysis::roofline::Roofline;
use brickscope_analysis::view;
use brickscope_formats::import::{Format, Options, add_limits, read_capture, state_limits};
use serde_json::{Value, json};

use super::{import, imported};

const HALF: &str = "c10::BFloat16";

/// An operation with the shapes of its tensors, an operation around it, and the kernels that it launches.
struct Op {
    name: &'static str,
    dims: Value,
    types: &'static [&'static str],
    around: Option<(&'static str, Value)>,
    /// Each with its microseconds.
    kernels: &'static [(&'static str, u64)],
}

/// 4 × 8 by 8 × 16 of two bytes: 1024 FLOPs, 448 bytes, 256 of them of the second factor.
fn mm(kernels: &'static [(&'static str, u64)]) -> Op {
    let dims = json!([[4, 8], [8, 16]]);
    Op { name: "aten::mm", dims, types: &[HALF, HALF], around: None, kernels }
}

fn event(category: &str, name: &str, at: u64, duration: u64, args: Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": duration, "args": args})
}

fn kernel(name: &str, at: u64, duration: u64, correlation: u64) -> Value {
    let args = json!({"device": 0, "stream": 7, "correlation": correlation});
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": duration, "args": args})
}

fn shapes(dims: &Value, types: &[&str]) -> Value {
    json!({"Input Dims": dims, "Input type": types})
}

/// The host's events of operations from 1000 on, and the kernels that they launch one by one. Calls state their kernels, as
/// HIP's do.
fn ops(ops: &[Op]) -> (Vec<Value>, Vec<(&'static str, u64)>) {
    let (mut events, mut kernels) = (Vec::new(), Vec::new());
    for (op, at) in ops.iter().zip((1000..).step_by(100)) {
        if let Some((around, dims)) = &op.around {
            events.push(event("cpu_op", around, at, 90, shapes(dims, op.types)));
        }
        events.push(event("cpu_op", op.name, at + 5, 80, shapes(&op.dims, op.types)));
        for (&(name, duration), nth) in op.kernels.iter().zip(1_u64..) {
            kernels.push((name, duration));
            let args = json!({"correlation": kernels.len(), "kernel": name});
            events.push(event("cuda_runtime", "hipLaunchKernel", at + 5 + 10 * nth, 5, args));
        }
    }
    (events, kernels)
}

fn trace(events: &[Value]) -> String {
    let devices = json!([{"id": 0, "name": "NVIDIA H200"}]);
    json!({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events}).to_string()
}

/// A pass of some tokens that launches all kernels of operations one by one, without those that are missing.
fn eager(of: &[Op], missing: &[&str]) -> String {
    let (mut events, kernels) = ops(of);
    let step = "execute_context_0(0)_generation_4(4)";
    events.insert(0, event("user_annotation", step, 990, 5000, json!({})));
    let mut at = 2000;
    for ((name, duration), correlation) in kernels.into_iter().zip(1..) {
        if !missing.contains(&name) {
            events.push(kernel(name, at, duration, correlation));
        }
        at += duration;
    }
    trace(&events)
}

/// FLOPs, bytes and bytes of weights of a kernel.
fn work(profile: &Profile, kernel: &str) -> [u64; 3] {
    let totals = &profile.devices[0].streams[0].totals;
    let of_kernel = |kind: NameKind| totals.iter().filter(move |total| total.kind == kind);
    let stats = &of_kernel(NameKind::Kernel)
        .find(|total| total.stats.name == kernel)
        .unwrap_or_else(|| panic!("no {kernel}"))
        .stats;
    // Bricks have as much as their kernels.
    let sum = |kind| of_kernel(kind).map(|total| total.stats.total_bytes).sum::<u64>();
    assert_eq!(sum(NameKind::Brick), sum(NameKind::Kernel));
    [stats.total_flops, stats.total_bytes, stats.data.weights]
}

fn lacks(profile: &Profile) -> String {
    let imported = profile.imported.as_ref().expect("it is imported");
    imported.lacks.iter().map(|lack| lack.reason.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_product_states_its_work_once() {
    let linear = json!([[4, 8], [16, 8]]);
    let of = [
        // Both state the same product.
        Op { around: Some(("aten::linear", linear)), ..mm(&[("gemm_a", 5)]) },
        // Two kernels, of which the longer one is the second.
        mm(&[("split", 3), ("gemm_b", 7)]),
        Op { name: "_C::rms_norm", ..mm(&[("norm", 5)]) },
    ];
    let profile = imported(&eager(&of, &[]), Format::Chrome);
    assert_eq!(work(&profile, "gemm_a"), [1024, 448, 256]);
    // Nobody says that these are weights.
    assert_eq!(work(&profile, "gemm_b"), [1024, 448, 0]);
    assert_eq!(work(&profile, "split"), [0, 0, 0]);
    assert_eq!(work(&profile, "norm"), [0, 0, 0]);
    // 15 of 20 µs.
    let said = "work of all but products and attention with shapes (75.0% of the devices' time)";
    assert!(lacks(&profile).contains(said), "{}", lacks(&profile));
}

#[test]
fn types_tell_bytes_and_unknown_ones_nothing() {
    let fp8 = Op {
        name: "_C::cutlass_scaled_mm",
        dims: json!([[4, 16], [4, 8], [8, 16]]),
        types: &[HALF, "c10::Float8_e4m3fn", "c10::Float8_e4m3fn"],
        ..mm(&[("fp8", 5)])
    };
    let packed = Op {
        name: "_C::gptq_marlin_gemm",
        dims: json!([[4, 8], [], [1, 16]]),
        types: &[HALF, "", "int"],
        ..mm(&[("marlin", 5)])
    };
    let unknown = Op { types: &[HALF, "my::Type"], ..mm(&[("odd", 5)]) };
    let profile = imported(&eager(&[fp8, packed, unknown], &[]), Format::Chrome);
    assert_eq!(work(&profile, "fp8"), [1024, 128 + 32 + 128, 128]);
    assert_eq!(work(&profile, "marlin"), [0, 64 + 64, 64]);
    assert_eq!(work(&profile, "odd"), [0, 0, 0]);
}

#[test]
fn a_product_whose_kernel_is_missing_has_no_work() {
    let of = [mm(&[("split", 3), ("gemm_b", 7)]), mm(&[("gemm_c", 5)])];
    let profile = imported(&eager(&of, &["gemm_b"]), Format::Chrome);
    assert_eq!(work(&profile, "split"), [0, 0, 0]);
    assert_eq!(work(&profile, "gemm_c"), [1024, 448, 0]);
}

/// The trace of a graph's capture, and that of a pass which replays it.
fn graph(of: &[Op], batch: u64, tokens: u64) -> Profile {
    graph_in(of, batch, &format!("execute_context_0(0)_generation_{tokens}({tokens})"))
}

fn graph_in(of: &[Op], batch: u64, step: &str) -> Profile {
    let (mut events, kernels) = ops(of);
    let bound = |name, at| event("cuda_runtime", name, at, 5, json!({"correlation": at}));
    events.push(bound("hipStreamBeginCapture", 900));
    events.push(bound("hipStreamEndCapture", 9000));
    let name = format!("capture_{batch}_FULL");
    events.push(event("user_annotation", &name, 890, 9000, json!({})));
    let captured = read_capture(&trace(&events), Path::new("capture.json"), &Options::default());
    let options = Options { captures: vec![captured.expect("a capture")], ..Options::default() };
    let mut events = vec![
        event("user_annotation", step, 1000, 2000, json!({})),
        event("cuda_runtime", "hipGraphLaunch", 1010, 20, json!({"correlation": 9})),
    ];
    let mut at = 1100;
    for (name, duration) in kernels {
        events.push(kernel(name, at, duration, 9));
        at += duration;
    }
    import(&trace(&events), Format::Chrome, &options).expect("a trace")
}

#[test]
fn kernels_of_a_graph_have_the_shapes_of_its_capture() {
    let of = || {
        let linear = json!([[4, 8], [16, 8]]);
        [
            Op { name: "_C::rms_norm", ..mm(&[("norm", 5)]) },
            Op { around: Some(("aten::linear", linear)), ..mm(&[("gemm_a", 5)]) },
            mm(&[("split", 3), ("gemm_b", 7)]),
        ]
    };
    let profile = graph(&of(), 4, 4);
    assert_eq!(work(&profile, "gemm_a"), [1024, 448, 256]);
    assert_eq!(work(&profile, "gemm_b"), [1024, 448, 0]);
    assert_eq!(work(&profile, "split"), [0, 0, 0]);
    assert_eq!(work(&profile, "norm"), [0, 0, 0]);
    // Three tokens may have run in this graph, or in another one whose kernels have the same names.
    let profile = graph(&of(), 4, 3);
    assert_eq!(work(&profile, "gemm_a"), [0, 0, 0]);
    let said = "work of 3 kernels of graphs: their passes have other numbers of tokens";
    assert!(lacks(&profile).contains(said), "{}", lacks(&profile));
}

#[test]
fn tokens_tell_no_size_of_a_graph_that_was_captured_for_requests() {
    for (step, is_known) in [
        ("step[DECODE bs=8]", true),
        // A capture for eight requests isn't that of two requests with eight tokens.
        ("step[VERIFY bs=2 toks=8]", false),
        ("step[EXTEND bs=1 toks=8]", false),
        // vLLM captures for tokens.
        ("execute_context_0(0)_generation_2(8)", true),
    ] {
        let profile = graph_in(&[mm(&[("gemm_a", 5)])], 8, step);
        let expected = if is_known { [1024, 448, 0] } else { [0, 0, 0] };
        assert_eq!(work(&profile, "gemm_a"), expected, "{step}");
        assert_eq!(lacks(&profile).contains("work of 1 kernels of graphs"), !is_known, "{step}");
    }
}

/// 10 µs of a product that moves 2 · (32 + 1000 + 32) · 1000 bytes, 212.8 GB/s, and 10 µs of which nothing is known.
fn half_known() -> Profile {
    let product = Op { dims: json!([[32, 1000], [1000, 1000]]), ..mm(&[("gemm_a", 10)]) };
    let other = Op { name: "_C::rms_norm", ..mm(&[("norm", 10)]) };
    imported(&eager(&[product, other], &[]), Format::Chrome)
}

fn roofline(profile: &Profile) -> Roofline {
    let device = profile.whole_device(0).expect("a device");
    Roofline::of(&device, Phase::Decode).expect("limits")
}

#[test]
fn stated_limits_are_called_stated_and_hold_what_is_known() {
    let mut profile = half_known();
    state_limits(&mut profile, "425.6 GB/s, 989 TFLOP/s").expect("two rates");
    let roof = roofline(&profile);
    let known = roof.known.expect("a part");
    assert_eq!((known.ns, known.of_ns), (10_000, 20_000));
    let says = roof.verdict().expect("a verdict").says();
    assert_eq!(
        says,
        "far from the memory roof: 50 % of the stated 426 GB/s, in the 50.0% of its time whose work is known"
    );
    let first = view::summary(&profile, view::Size::default(), None).to_string();
    assert!(first.contains("roof: stated limit"), "{first}");
    let unknown = Findings::of(&profile).unknown;
    let of_roof = unknown.iter().find(|of| of.rule == "far-from-the-roof").expect("it is told");
    assert!(of_roof.why.ends_with(&format!("decode on the device: {says}")), "{of_roof:?}");
    let screen = view::roofline(&profile.whole_device(0).expect("a device"));
    assert!(screen.contains("These limits are stated, not measured."), "{screen}");
    assert!(screen.contains("Of 50.0% of the device's time the work is known"), "{screen}");
    // The others stay in the table, in the order of their time.
    assert!(screen.contains("absent: its work was not stated"), "{screen}");
    // Faster than what was stated, it shows that this is wrong, and no limit is raised.
    state_limits(&mut profile, "180 GB/s, 989 TFLOP/s").expect("two rates");
    let roof = roofline(&profile);
    assert_eq!(roof.peak_bytes_per_second, 180e9);
    let says = roof.verdict().expect("a verdict").says();
    assert!(says.contains("118 % of the stated 180 GB/s"), "{says}");
    // What was compared with the limits is in the file that is written.
    let json = profile.to_json();
    let back = Profile::from_json(&json, Path::new("profile.json")).expect("it was written");
    assert_eq!(roofline(&back).verdict(), roof.verdict());
}

/// What is said of how little is known.
fn little_known(profile: &Profile) -> Option<Finding> {
    let mut found = Findings::of(profile).found.into_iter();
    found.find(|finding| finding.rule == "work-unknown")
}

/// 10 µs of a product with shapes, and 30 µs of one without.
fn quarter_known() -> String {
    let product = Op { dims: json!([[32, 1000], [1000, 1000]]), ..mm(&[("gemm_a", 10)]) };
    let other = Op { dims: json!([]), types: &[], ..mm(&[("gemm_b", 30)]) };
    eager(&[product, other], &[])
}

#[test]
fn that_little_is_known_is_found_where_shapes_would_tell_more() {
    let mut profile = imported(&quarter_known(), Format::Chrome);
    let found = little_known(&profile).expect("three quarters are unknown");
    assert_eq!((found.kind, found.phase), (FindingKind::Lack, Some(Phase::Decode)));
    assert_eq!(found.what, "the work of only 25.0% of the time of decode on the device is known");
    assert!(found.advice.contains("record_shapes=True"), "{found:?}");
    // The figures are those of the report.
    let report = view::report(&profile).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        report.contains("the work of 25.0% of its bricks' time. In that they moved 212.8 GB/s.")
    );
    assert_eq!(found.evidence[0].text, "in that, bricks moved 212.8 GB/s");
    assert!(found.evidence[1].text.contains("take 75.0% of"), "{found:?}");
    // It is no limit, and makes nothing faster.
    let text = view::findings(&profile, None);
    assert!(text.contains("What would tell more:") && !text.contains("faster:"), "{text}");
    // With limits, they are those of the roofline.
    state_limits(&mut profile, "425.6 GB/s, 989 TFLOP/s").expect("two rates");
    let found = little_known(&profile).expect("three quarters are unknown");
    assert_eq!(found.evidence[0].text, roofline(&profile).verdict().expect("a verdict").says());
}

#[test]
fn where_no_recording_would_tell_more_nothing_is_found() {
    // Norms state no shapes.
    assert_eq!(little_known(&half_known()), None);
    // These were recorded.
    let with = quarter_known().replacen('{', "{\"record_shapes\":1,", 1);
    assert_eq!(little_known(&imported(&with, Format::Chrome)), None);
    // Who gave no limits and recorded no shapes asked for none.
    let without = eager(&[Op { dims: json!([]), types: &[], ..mm(&[("gemm_b", 30)]) }], &[]);
    let mut profile = imported(&without, Format::Chrome);
    assert_eq!(little_known(&profile), None);
    state_limits(&mut profile, "425.6 GB/s, 989 TFLOP/s").expect("two rates");
    let found = little_known(&profile).expect("limits are of use for products");
    assert_eq!(found.what, "no work is known of what decode ran on the device");
}

#[test]
fn products_of_graphs_are_known_by_a_capture() {
    let step = "execute_context_0(0)_generation_4(4)";
    let mut profile = imported(
        &trace(&[
            event("user_annotation", step, 1000, 2000, json!({})),
            event("cuda_runtime", "hipGraphLaunch", 1010, 20, json!({"correlation": 9})),
            kernel("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 1100, 40, 9),
            kernel("rms_norm_f32", 1140, 10, 9),
        ]),
        Format::Chrome,
    );
    state_limits(&mut profile, "425.6 GB/s, 989 TFLOP/s").expect("two rates");
    let found = little_known(&profile).expect("the product is unknown");
    assert!(found.advice.contains("import --capture FILE"), "{found:?}");
    assert!(found.evidence[0].text.contains("take 80.0% of"), "{found:?}");
}

#[test]
fn measured_limits_are_of_a_device_of_that_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("limits.json");
    let write = |of: &str| {
        let limits = json!({"read_bytes_per_second": 425.6e9, "flops_per_second": 60e12,
            "basis": format!("measured before the run: {of}")});
        std::fs::write(&file, limits.to_string()).expect("it can be written");
    };
    let mut profile = half_known();
    write("NVIDIA H100 PCIe, cuda");
    let said = add_limits(&mut profile, &file).expect_err("another device");
    assert!(said.contains("NVIDIA H100 PCIe") && said.contains("NVIDIA H200"), "{said}");
    assert_eq!(profile.devices[0].ceilings, None);
    write("2 threads, avx2");
    let said = add_limits(&mut profile, &file).expect_err("a CPU");
    assert!(said.contains("has no limits of a device"), "{said}");
    write("NVIDIA H200, cuda");
    add_limits(&mut profile, &file).expect("this device");
    let says = roofline(&profile).verdict().expect("a verdict").says();
    assert!(says.starts_with("far from the memory roof: 50 % of 426 GB/s"), "{says}");
    // A peak of floats is none of matrix units.
    assert!(roofline(&profile).bricks.iter().all(|brick| brick.flops.is_none()));
    // A trace that names no device may be of any.
    profile.devices[0].name = "device 0, whose name isn't stated".to_owned();
    profile.devices[0].ceilings = None;
    add_limits(&mut profile, &file).expect("any device");
    let doubts = &profile.imported.as_ref().expect("it is imported").doubts;
    assert!(doubts.iter().any(|doubt| doubt.contains("names no device")), "{doubts:?}");
    // A run has them, too.
    let run = dir.path().join("run");
    std::fs::create_dir(&run).expect("a folder");
    let mut of = half_known();
    add_limits(&mut of, &file).expect("this device");
    of.save(&run.join("profile.json")).expect("it can be written");
    let mut profile = half_known();
    add_limits(&mut profile, &run).expect("limits");
    assert!(profile.devices[0].ceilings.is_some());
    // What somebody stated isn't measured.
    state_limits(&mut of, "425.6 GB/s, 989 TFLOP/s").expect("two rates");
    of.save(&run.join("profile.json")).expect("it can be written");
    assert!(add_limits(&mut profile, &run).is_err());
}
