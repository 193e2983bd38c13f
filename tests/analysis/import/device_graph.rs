//! The graph of a pass on a device of another program's trace.

use brickscope::TreeOptions;
use brickscope_analysis::view;
use brickscope_formats::import::Format;
use brickscope_testing::gpu_trace::{Net, Recording};

use super::imported;

#[test]
fn a_pass_has_layers_around_their_kernels() {
    let recorded = Recording::of(Net::gpt_oss(24)).record();
    let profile = imported(&recorded.trace, Format::Chrome);
    let device = profile.whole_device(0).expect("a device");
    let pass = &device.passes[0];
    let graph = device.execution_graph(pass.serial).expect("its spans were kept");
    let truth = &recorded.truth;
    for layer in 0..24_u16 {
        let kernels = || truth.sound().filter(|kernel| kernel.layer == Some(layer));
        let begin = kernels().map(|kernel| kernel.start_ns).min().expect("it has kernels");
        let end = kernels().map(|kernel| kernel.end_ns()).max().expect("it has kernels");
        let (id, _) = graph.node_by_name(&format!("Layer {layer}")).expect("a layer");
        let time = graph.time(id).expect("it has one");
        assert_eq!((time.start_ns, time.duration_ns), (begin - truth.origin_ns, end - begin));
    }
    // The path is through all kernels, as it was without layers.
    assert_eq!(graph.schedule().expect("no cycle").makespan_ns(), pass.wall_ns);
    let path = view::path_summary(&graph, usize::MAX).expect("it has times");
    let named = path.rows.iter().filter(|row| row.saves_ns.is_some());
    assert_eq!(named.map(|row| row.own_ns).sum::<u64>(), pass.attributed_ns);
    assert!(path.slack.is_empty(), "{:?}", path.slack);
    // Alike layers are one line, and one can be looked at.
    let folded = graph.to_tree(&TreeOptions { fold: true, ..TreeOptions::default() });
    let lines = folded.lines().filter(|line| line.starts_with("├── Layer")).count();
    assert!((1..=4).contains(&lines), "{folded}");
    let one = graph.to_tree(&TreeOptions { layer: Some(3), ..TreeOptions::default() });
    assert!(one.contains("── Layer 3  ") && !one.contains("Layer 4"), "{one}");
}

#[test]
fn several_streams_without_waits_have_no_critical_path() {
    let report = |net: Net| {
        let recorded = Recording::of(net).record();
        view::report(&imported(&recorded.trace, Format::Chrome))
    };
    let why = "no critical path: the file tells no waits between the streams that worked";
    let one = report(Net::gpt_oss(24));
    assert!(one.contains("Critical path  ") && !one.contains(why), "{one}");
    let several = report(Net::of_shared_experts(24));
    assert!(!several.contains("Critical path  ") && several.contains(why), "{several}");
}
