//! Time by expert, where ranges of a trace name the experts. Traces are made here, in the form of PyTorch's profiler.

use brickscope::{ExpertTime, LayerExperts, Phase, Profile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::view;
use brickscope_formats::import::Format;
use serde_json::{Value, json};

use super::imported;

fn event(category: &str, name: &str, at: u64, duration: u64, args: Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": duration, "args": args})
}

fn range(name: &str, at: u64, duration: u64) -> Value {
    event("user_annotation", name, at, duration, json!({}))
}

/// A launch, and its kernel of so many microseconds.
fn launch(name: &str, at: u64, kernel_at: u64, duration: u64) -> [Value; 2] {
    // No two begin at once.
    let call = event("cuda_runtime", "cudaLaunchKernel", at, 5, json!({"correlation": at}));
    let args = json!({"device": 0, "stream": 7, "correlation": at});
    [call, kernel(name, kernel_at, duration, args)]
}

fn kernel(name: &str, at: u64, duration: u64, args: Value) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": duration, "args": args})
}

/// A step whose first layer has one kernel for all experts, and whose second one goes over them: the second expert, and
/// another one.
fn step(at: u64, other: &str) -> Vec<Value> {
    let mut events = vec![
        range("execute_context_0(0)_generation_4(4)", at, 1_000),
        range("model.layers.0.mlp.experts", at + 10, 40),
        range("model.layers.1.mlp", at + 100, 300),
        range("model.layers.1.mlp.experts.2", at + 110, 80),
        range("model.layers.1.mlp.experts.2.w1", at + 115, 20),
        event("cpu_op", "aten::mul", at + 140, 20, json!({})),
        range(other, at + 200, 50),
    ];
    for (name, launched, kernel_at, duration) in [
        ("fused_moe_kernel", 20, 500, 50),
        ("gemm", 120, 560, 10),
        ("mul", 145, 570, 4),
        ("gemm", 210, 580, 30),
        // What adds up all of them.
        ("index_add", 300, 620, 6),
    ] {
        events.extend(launch(name, at + launched, at + kernel_at, duration));
    }
    events
}

fn trace(events: &[Value]) -> String {
    json!({"schemaVersion": 1, "traceEvents": events}).to_string()
}

fn times(of: &[(u32, u64, u64, u64)]) -> Vec<ExpertTime> {
    let time = |&(expert, ns, kernels, passes)| ExpertTime { expert, ns, kernels, passes };
    of.iter().map(time).collect()
}

fn only(profile: &Profile) -> &LayerExperts {
    let [of] = &profile.experts[..] else { panic!("{:?}", profile.experts) };
    of
}

#[test]
fn a_kernel_is_of_the_expert_in_whose_range_it_was_launched() {
    // By the name of the module, and by a range that somebody put into a loop.
    let other = "model.layers.1.mlp.experts.7";
    let profile =
        imported(&trace(&[step(1_000, "experts.5"), step(3_000, other)].concat()), Format::Chrome);
    let of = only(&profile);
    assert_eq!((of.phase, of.layer, of.timed_passes), (Phase::Decode, Some(1), 2));
    // The grouped kernel of the first layer has no split, and the sum of the second's is of no expert.
    assert_eq!(of.times, times(&[(2, 28_000, 4, 2), (5, 30_000, 1, 1), (7, 30_000, 1, 1)]));
    // What the file doesn't tell is no 0.
    let json: Value = serde_json::from_str(&profile.to_json()).expect("JSON");
    for absent in ["tokens", "reads", "passes", "n_expert", "experts"] {
        assert_eq!(json["experts"][0].get(absent), None, "{absent}");
    }
    let report = view::report(&profile);
    assert!(report.contains("\nTime of experts in decode\n"), "{report}");
    assert!(!report.contains("\nExperts in decode"), "{report}");
    assert!(!Findings::of(&profile).found.iter().any(|of| of.rule == "experts-read"));
}

#[test]
fn what_a_program_noted_of_kernels_in_a_graph_tells_their_expert() {
    let mut events = vec![
        range("execute_context_0(0)_generation_4(4)", 1_000, 1_000),
        event("cuda_runtime", "cudaGraphLaunch", 1_010, 5, json!({"correlation": 9})),
    ];
    for (node, noted, at) in
        [(1, "layers.2.mlp.experts.9.w1", 1_100), (2, "layers.2.mlp.experts", 1_200)]
    {
        let args = json!({"device": 0, "stream": 7, "correlation": 9, "graph node id": node, "name": noted});
        events.push(kernel("gemm", at, 10, args));
    }
    let profile = imported(&trace(&events), Format::Chrome);
    let of = only(&profile);
    assert_eq!((of.layer, &of.times), (Some(2), &times(&[(9, 10_000, 1, 1)])));
}

#[test]
fn the_number_of_a_class_is_no_expert() {
    // The profiler numbers the modules of a class as they are called first, over all layers.
    let module = "nn.Module: MixtralBlockSparseTop2MLP_17";
    let mut events = vec![
        range("execute_context_0(0)_generation_4(4)", 1_000, 1_000),
        event("python_function", module, 1_010, 100, json!({})),
    ];
    events.extend(launch("gemm", 1_020, 1_200, 10));
    let profile = imported(&trace(&events), Format::Chrome);
    assert_eq!(profile.experts, []);
    assert!(!view::report(&profile).contains("Time of experts"));
}
