//! Traces of PyTorch's profiler with a graph in them, and those of the graph's capture: made here, in the
//! form that real ones of vLLM and SGLang have.

use std::path::Path;

use brickscope::{GraphLayers, GraphLayersBy, NameKind, Profile};
use brickscope_formats::import::{Captured, Format, Options, read_capture, read_capture_file};
use serde_json::{Value, json};

use super::pytorch::GPU;
use super::{import, refused};

/// Operation and kernel of each part of a layer, and the brick that they are.
const LAYER: [(&str, &str, &str); 6] = [
    ("_C::rms_norm", "rms_norm_kernel", "RmsNorm"),
    ("aten::addmm", "Cijk_qkv", "MatMul"),
    ("vllm::unified_attention_with_output", "kernel_unified_attention_2d", "FlashAttention"),
    ("aten::addmm", "Cijk_o", "MatMul"),
    ("_C::rms_norm", "rms_norm_kernel", "RmsNorm"),
    ("aten::addmm", "Cijk_mlp", "MatMul"),
];

const COPY: &str = "Memcpy DtoD (Device -> Device)";

/// A node of a graph.
#[derive(Clone)]
struct Node {
    layer: Option<u16>,
    op: &'static str,
    kernel: String,
    brick: &'static str,
}

fn node(layer: Option<u16>, op: &'static str, kernel: &str, brick: &'static str) -> Node {
    Node { layer, op, kernel: kernel.to_owned(), brick }
}

/// The graph of a model: its embedding, its layers, its norm and a copy. Products have the name of a tile.
fn model(layers: u16, tile: &str) -> Vec<Node> {
    let mut nodes = vec![node(None, "aten::embedding", "gather_kernel", "Embedding")];
    for layer in 0..layers {
        for (op, kernel, brick) in LAYER {
            let tile = if brick == "MatMul" { tile } else { "" };
            nodes.push(node(Some(layer), op, &format!("{kernel}{tile}"), brick));
        }
    }
    nodes.push(node(None, "_C::rms_norm", "rms_norm_kernel", "RmsNorm"));
    nodes.push(node(None, "aten::copy_", COPY, "Copy"));
    nodes
}

fn event(category: &str, name: &str, at: u64, duration: u64, args: &Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": duration, "args": args})
}

/// How a capture is recorded.
#[derive(Clone, Copy)]
struct Recorder {
    /// Whether calls state their kernels, as HIP's do.
    is_named: bool,
    has_modules: bool,
}

const HIP: Recorder = Recorder { is_named: true, has_modules: true };
const CUDA: Recorder = Recorder { is_named: false, has_modules: true };

/// The trace of captures, each with the name of its range.
fn captures(recorder: Recorder, runs: &[(&str, &[Node])]) -> String {
    let api = if recorder.is_named { "hip" } else { "cuda" };
    let (mut events, mut at, mut correlation) = (Vec::new(), 1000, 0);
    for (name, nodes) in runs {
        let begin = at;
        let mut call = |name: String, at: u64, args: Value| {
            correlation += 1;
            let mut args = args;
            args["correlation"] = json!(correlation);
            event("cuda_runtime", &name, at, 5, &args)
        };
        // What fills the inputs runs, and is in no graph.
        events.push(call(format!("{api}LaunchKernel"), at, json!({"kernel": "fill_kernel"})));
        let ran = json!({"correlation": events.last().map(|event| &event["args"]["correlation"])});
        let fill = json!({"ph": "X", "cat": "kernel", "name": "fill_kernel", "pid": 0, "tid": 7, "ts": at + 3,
            "dur": 1, "args": ran});
        events.push(fill);
        events.push(call(format!("{api}StreamBeginCapture"), at + 10, json!({})));
        at += 20;
        let mut module: Option<(u16, u64)> = None;
        for node in nodes.iter().map(Some).chain([None]) {
            let layer = node.and_then(|node| node.layer);
            if module.map(|(layer, _)| layer) != layer {
                if let Some((layer, begin)) = module.filter(|_| recorder.has_modules) {
                    let name = format!("nn.Module: TinyDecoderLayer_{layer}");
                    let args = json!({});
                    events.push(event("python_function", &name, begin, at - begin, &args));
                }
                module = layer.map(|layer| (layer, at));
            }
            let Some(node) = node else { break };
            events.push(event("cpu_op", node.op, at + 1, 8, &json!({})));
            let (what, args) = match node.op {
                "aten::copy_" => ("MemcpyAsync", json!({})),
                _ if recorder.is_named => ("LaunchKernel", json!({"kernel": node.kernel})),
                _ => ("LaunchKernel", json!({})),
            };
            events.push(call(format!("{api}{what}"), at + 2, args));
            at += 10;
        }
        events.push(call(format!("{api}StreamEndCapture"), at, json!({})));
        at += 20;
        if !name.is_empty() {
            events.push(event("user_annotation", name, begin, at - begin, &json!({})));
        }
        at += 10;
    }
    json!({"schemaVersion": 1, "traceEvents": events}).to_string()
}

fn capture_of_32(recorder: Recorder, nodes: &[Node]) -> String {
    captures(recorder, &[("capture_32_FULL", nodes)])
}

/// The trace of a decode pass that replays a graph.
fn replay(tokens: u64, nodes: &[Node]) -> String {
    let step = format!("execute_context_0(0)_generation_{tokens}({tokens})");
    let mut events = vec![
        event("user_annotation", &step, 1000, 2000, &json!({})),
        event("cuda_runtime", "hipGraphLaunch", 1010, 20, &json!({"correlation": 9})),
    ];
    for (at, node) in (0_u64..).zip(nodes) {
        let category = if node.kernel == COPY { "gpu_memcpy" } else { "kernel" };
        let args = json!({"device": 0, "stream": 7, "correlation": 9});
        events.push(json!({"ph": "X", "cat": category, "name": node.kernel, "pid": 0, "tid": 7, "ts": 1100 + 10 * at,
            "dur": 9, "args": args}));
    }
    json!({"schemaVersion": 1, "traceEvents": events}).to_string()
}

fn captured(text: &str) -> Captured {
    read_capture(text, Path::new("capture.json"), &Options::default()).expect("a capture")
}

fn with(trace: &str, capture: &str) -> Profile {
    let options = Options { captures: vec![captured(capture)], ..Options::default() };
    import(trace, Format::Chrome, &options).expect("a trace")
}

/// The brick and the layer of each kernel, in order.
fn placed(profile: &Profile) -> Vec<(String, Option<u16>)> {
    let device = profile.on_device(0, 0).expect("a stream");
    let name = |at: u16| &device.names[usize::from(at)];
    let bricks = device.spans.iter().filter_map(|span| {
        let name = name(span.name?);
        (name.kind == NameKind::Brick).then(|| (name.name.clone(), span.layer))
    });
    bricks.collect()
}

/// Where the order of the kernels isn't clear, products are just that.
fn expected_of_capture(nodes: &[Node]) -> Vec<(String, Option<u16>)> {
    nodes.iter().map(|node| (node.brick.to_owned(), node.layer)).collect()
}

/// The place of a product in its layer tells which it is.
fn expected(nodes: &[Node]) -> Vec<(String, Option<u16>)> {
    let mut products = (None, 0);
    let of = |node: &Node| {
        if products.0 != node.layer {
            products = (node.layer, 0);
        }
        let is_product = node.layer.is_some() && node.brick == "MatMul";
        products.1 += usize::from(is_product);
        let brick = match products.1 {
            1 if is_product => "QkvProjection",
            2 if is_product => "OutputProjection",
            _ => node.brick,
        };
        (brick.to_owned(), node.layer)
    };
    nodes.iter().map(of).collect()
}

fn graph_layers(profile: &Profile) -> GraphLayers {
    let imported = profile.imported.as_ref().expect("it is imported");
    imported.graph_layers.clone().expect("they are known")
}

fn doubts(profile: &Profile) -> String {
    profile.imported.as_ref().expect("it is imported").doubts.join("\n")
}

#[test]
fn a_capture_that_names_kernels_tells_layers_and_bricks() {
    let nodes = model(3, "");
    let profile = with(&replay(32, &nodes), &capture_of_32(HIP, &nodes));
    assert_eq!(placed(&profile), expected(&nodes));
    let layers = graph_layers(&profile);
    assert_eq!((layers.by, layers.layers), (GraphLayersBy::Capture, 3));
    assert_eq!((layers.kernels, layers.of_kernels), (18, 21));
    assert_eq!(layers.detail, "the order of kernels alone tells the same layer of 18 of 18");
    assert_eq!(doubts(&profile), "");
    // Without it, their names tell some bricks, and their order the layers.
    let alone = import(&replay(32, &nodes), Format::Chrome, &Options::default()).expect("a trace");
    assert_eq!(placed(&alone)[0], ("Gather".to_owned(), None));
    let layers_of = |profile: &Profile| -> Vec<Option<u16>> {
        placed(profile).into_iter().map(|(_, layer)| layer).collect()
    };
    assert_eq!(layers_of(&alone), layers_of(&profile));
    assert_eq!(graph_layers(&alone).by, GraphLayersBy::Sequence);
    assert_eq!(alone.devices[0].streams[0].passes, profile.devices[0].streams[0].passes);
}

#[test]
fn a_capture_without_names_is_matched_by_order_if_that_holds() {
    let nodes = model(3, "");
    let trace = replay(32, &nodes);
    let profile = with(&trace, &capture_of_32(CUDA, &nodes));
    assert_eq!(placed(&profile), expected(&nodes));
    assert!(graph_layers(&profile).detail.contains("by their order alone"));
    // As many kernels, all moved by one: each is still of one operation, of another kind.
    let mut moved = nodes.clone();
    moved.remove(0);
    moved.insert(moved.len() - 1, node(None, "aten::addmm", "Cijk_head", "MatMul"));
    let profile = with(&trace, &capture_of_32(CUDA, &moved));
    assert!(doubts(&profile).contains("capture.json is not used: by order, kernels do something"));
    assert_eq!(graph_layers(&profile).by, GraphLayersBy::Sequence);
}

#[test]
fn a_capture_is_read_in_each_encoding() {
    let text = capture_of_32(HIP, &model(3, ""));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture.json");
    let expected = read_capture(&text, &path, &Options::default()).expect("a capture");
    let marked = format!("\u{feff}{text}");
    for bytes in [
        text.as_bytes().to_vec(),
        marked.as_bytes().to_vec(),
        marked.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
    ] {
        std::fs::write(&path, bytes).expect("it is written");
        assert_eq!(read_capture_file(&path, &Options::default()).as_ref(), Ok(&expected));
    }
}

#[test]
fn a_node_that_copies_may_be_missing() {
    let nodes = model(3, "");
    let trace = replay(32, &nodes[..nodes.len() - 1]);
    for recorder in [HIP, CUDA] {
        let profile = with(&trace, &capture_of_32(recorder, &nodes));
        assert_eq!(placed(&profile), expected(&nodes[..nodes.len() - 1]));
    }
    // A kernel copies, as on AMD's GPUs.
    let mut by_kernel = nodes.clone();
    by_kernel.last_mut().expect("a node").kernel = "__amd_rocclr_copyBuffer".to_owned();
    for recorder in [HIP, CUDA] {
        let capture = capture_of_32(recorder, &nodes);
        assert_eq!(placed(&with(&replay(32, &by_kernel), &capture)), expected(&nodes));
    }
}

#[test]
fn kernels_that_run_in_another_order_are_found_by_name() {
    let nodes = model(3, "");
    let mut turned = nodes.clone();
    turned.swap(8, 9);
    let profile = with(&replay(32, &turned), &capture_of_32(HIP, &nodes));
    assert_eq!(placed(&profile), expected_of_capture(&turned));
    // One that isn't in the capture has no layer, and is counted.
    let mut more = nodes.clone();
    more.insert(5, node(None, "", "new_kernel", "new_kernel"));
    let profile = with(&replay(32, &more), &capture_of_32(HIP, &nodes));
    assert_eq!(placed(&profile), expected_of_capture(&more));
    assert!(graph_layers(&profile).detail.contains("1 kernels of graphs are in no capture"));
}

#[test]
fn layers_of_a_compiled_model_are_counted() {
    let nodes = model(3, "");
    let recorder = Recorder { has_modules: false, ..HIP };
    let profile = with(&replay(32, &nodes), &capture_of_32(recorder, &nodes));
    assert_eq!(placed(&profile), expected(&nodes));
    let layers = graph_layers(&profile);
    assert_eq!((layers.layers, layers.kernels), (3, 18));
    assert!(layers.detail.contains("counted by their attention"));
    // One layer can't be told from what is around it; bricks are known all the same.
    let nodes = model(1, "");
    let profile = with(&replay(32, &nodes), &capture_of_32(recorder, &nodes));
    assert!(doubts(&profile).contains("tells no layers: of capture_32_FULL"));
    assert_eq!(placed(&profile)[0], ("Embedding".to_owned(), None));
}

#[test]
fn the_capture_of_another_model_is_refused() {
    let trace = replay(32, &model(3, ""));
    let alone = import(&trace, Format::Chrome, &Options::default()).expect("a trace");
    for (recorder, why) in [
        (HIP, "kernels of the graph are in it, by name and order"),
        (CUDA, "it launches 27 kernels and copies, and the graph has 21"),
    ] {
        let other = capture_of_32(recorder, &model(4, "_MT16"));
        let profile = with(&trace, &other);
        let doubts = doubts(&profile);
        assert!(doubts.contains("capture.json is not used: ") && doubts.contains(why), "{doubts}");
        assert_eq!(placed(&profile), placed(&alone));
        let by = profile.imported.as_ref().expect("it is").graph_layers.as_ref().map(|of| of.by);
        assert_eq!(by, Some(GraphLayersBy::Sequence));
    }
}

#[test]
fn of_two_sizes_of_batches_the_right_one_counts() {
    let nodes = model(3, "");
    // The layers of the larger one are other modules, so that it shows which was used.
    let mut larger = nodes.clone();
    for node in &mut larger {
        node.layer = node.layer.map(|layer| layer + 10);
    }
    let runs: [(&str, &[Node]); 2] =
        [("capture_64_FULL", &larger[..]), ("capture_32_FULL", &nodes[..])];
    let capture = captures(CUDA, &runs);
    for (tokens, used) in [(32, &nodes), (20, &nodes), (40, &larger), (64, &larger)] {
        assert_eq!(placed(&with(&replay(tokens, &nodes), &capture)), expected(used), "{tokens}");
    }
    // By names, those of the graph's own tiles count, whatever the pass.
    let small = model(3, "_MT16");
    let runs: [(&str, &[Node]); 2] =
        [("capture_64_FULL", &larger[..]), ("capture_32_FULL", &small[..])];
    let profile = with(&replay(64, &small), &captures(HIP, &runs));
    assert_eq!(placed(&profile), expected(&small));
}

#[test]
fn annotations_tell_layers_and_bricks() {
    let mut trace: Value = serde_json::from_str(&replay(32, &model(2, ""))).expect("JSON");
    let events = trace["traceEvents"].as_array_mut().expect("events");
    for (number, event) in events.iter_mut().skip(2).enumerate() {
        event["args"]["graph node id"] = json!(number + 1);
    }
    let names = ["model.layers.0.self_attn.q_proj", "L.model.layers.1.mlp"];
    events[3]["args"]["module_fqn"] = json!(names[0]);
    events[4]["args"]["name"] = json!(names[1]);
    let profile = import(&trace.to_string(), Format::Chrome, &Options::default()).expect("a trace");
    let found = placed(&profile);
    assert_eq!(found[1], ("QkvProjection".to_owned(), Some(0)));
    assert_eq!(found[2], ("MatMul".to_owned(), Some(1)));
    assert_eq!(found[3].1, None);
    let layers = graph_layers(&profile);
    assert_eq!((layers.by, layers.layers), (GraphLayersBy::Annotations, 2));
    assert_eq!((layers.kernels, layers.of_kernels), (2, 15));
}

#[test]
fn what_is_no_capture_is_told() {
    let error = read_capture(GPU, Path::new("gpu.json"), &Options::default());
    let error = error.expect_err("no capture").to_string();
    assert!(error.starts_with("gpu.json: has no capture of a graph"), "{error}");
    let nodes = model(3, "");
    let captures = vec![captured(&captures(HIP, &[("", &nodes[..])]))];
    let options = Options { captures, ..Options::default() };
    assert!(
        refused("a;b 3", Format::Folded, &options).contains("a trace of a capture is for files of")
    );
    let profile = import(GPU, Format::Chrome, &options).expect("a trace");
    assert!(doubts(&profile).contains("capture.json is not used"));
}
