//! Code that was written for the predecessor: the names that it imports, the literals that it writes, the calls that it
//! makes.

/// Every name that the predecessor's module has of the profiler and its graph.
mod names {
    #![expect(unused_imports, reason = "that they are there is the test")]

    use brickscope::brick::{
        BrickCategory, BrickId, BrickIdTimer, BrickProfiler, BrickStats, BrickTimer, CategoryStats,
        DivergenceInfo, EdgeType, ExecutionEdge, ExecutionGraph, ExecutionNode, ExecutionNodeId,
        KernelChecksum, PtxRegistry, SyncMode, TileLevel, TileStats, TileTimer, TransferDirection,
        fnv1a_f32_checksum,
    };
    // And at the root, as the documents have them.
    use brickscope::{
        BrickCategory as _, BrickId as _, BrickIdTimer as _, BrickProfiler as _, BrickStats as _,
        BrickTimer as _, CategoryStats as _, DivergenceInfo as _, EdgeType as _,
        ExecutionEdge as _, ExecutionGraph as _, ExecutionNode as _, ExecutionNodeId as _,
        KernelChecksum as _, PtxRegistry as _, SyncMode as _, TileLevel as _, TileStats as _,
        TileTimer as _, TransferDirection as _,
    };
}

use brickscope::brick::{
    AsyncTaskProfiler, EdgeType, ExecutionGraph, ExecutionNode, TransferDirection,
};
use brickscope::{Backend, BrickId, BrickProfiler, HostLaunch, MockClock};
use brickscope_analysis::Report;

fn kernel() -> ExecutionNode {
    ExecutionNode::Kernel {
        name: "matmul".to_string(),
        ptx_hash: 0xDEAD_BEEF,
        grid: (128, 1, 1),
        block: (256, 1, 1),
        shared_mem: 16384,
        timing_ns: Some(150_000),
        arithmetic_intensity: Some(50.0),
        achieved_tflops: Some(42.0),
    }
}

#[test]
fn literals_of_all_nodes_compile_and_say_what_they_were_given() {
    let transfer = ExecutionNode::Transfer {
        src: "host".to_string(),
        dst: "device".to_string(),
        bytes: 4096,
        direction: TransferDirection::H2D,
        timing_ns: None,
    };
    let function =
        ExecutionNode::Function { name: "forward".to_string(), file: None, line: Some(7) };
    let nodes = [kernel(), transfer, function, ExecutionNode::Layer { index: 3 }];
    assert_eq!(nodes.each_ref().map(ExecutionNode::transfer_bytes), [None, Some(4096), None, None]);
    let intensity = nodes.each_ref().map(ExecutionNode::arithmetic_intensity);
    assert_eq!(intensity, [Some(50.0), None, None, None]);
    assert_eq!(nodes[0].achieved_tflops(), Some(42.0));
    assert_eq!((nodes[0].ptx_hash(), nodes[1].ptx_hash()), (Some(0xDEAD_BEEF), None));
}

#[test]
fn a_routine_of_the_cpu_is_a_kernel_without_a_launch_on_a_device() {
    let routine = ExecutionNode::Routine {
        name: "gemv".to_owned(),
        launch: HostLaunch { shape: "768×2048 q8_0".to_owned(), threads: 2 },
        timing_ns: Some(9_000),
        arithmetic_intensity: Some(2.0),
        achieved_tflops: None,
    };
    let mut graph = ExecutionGraph::new();
    graph.add_node(kernel());
    graph.add_node(routine.clone());
    assert_eq!(graph.kernel_nodes().count(), 2);
    assert_eq!(graph.node_by_name("gemv").map(|(_, node)| node), Some(routine.clone()));
    assert_eq!((routine.ptx_hash(), routine.arithmetic_intensity()), (None, Some(2.0)));
    assert_eq!(graph.to_ascii_tree().lines().count(), 3, "{}", graph.to_ascii_tree());

    // Files have both as they always had them.
    let json = serde_json::to_value(&graph).expect("it has no floats that JSON lacks");
    assert_eq!(json["nodes"][0]["host"], serde_json::Value::Null);
    assert_eq!(json["nodes"][1]["kind"], "kernel");
    assert_eq!(json["nodes"][1]["grid"], serde_json::json!([1, 1, 1]));
    assert_eq!(json["nodes"][1]["host"]["threads"], 2);
    let read: ExecutionGraph = serde_json::from_value(json).expect("it was written");
    assert_eq!(read, graph);
}

#[test]
fn an_asynchronous_task_says_how_many_of_its_polls_it_needed() {
    let hand = MockClock::default();
    let mut task = AsyncTaskProfiler::with_clock("request", hand.clock());
    for is_ready in [false, true] {
        task.on_poll_start();
        hand.advance(1_000);
        task.on_poll_end(is_ready);
    }
    let mut graph = ExecutionGraph::new();
    let first = graph.add_node(task.to_execution_node());
    let second = graph.add_node(ExecutionNode::Layer { index: 0 });
    graph.add_edge(first, second, EdgeType::Sequence);
    let tree = graph.to_ascii_tree();
    assert!(tree.contains("request  polls:2 yields:1 2.0µs (50% eff)"), "{tree}");
    assert!(graph.to_dot().contains("2.0µs (50%)"), "{}", graph.to_dot());
    let never = AsyncTaskProfiler::new("never").to_execution_node();
    assert_eq!(never.poll_efficiency(), None);
}

#[test]
fn a_report_names_the_backend_that_was_stated_and_no_other() {
    let profiler = BrickProfiler::enabled();
    let timer = profiler.start_brick(BrickId::RmsNorm);
    profiler.stop_brick(timer, 1);
    assert!(!profiler.report().contains("avx2"), "{}", profiler.report());
    profiler.set_backend(Backend::Avx2);
    let has_line =
        |text: &str| text.lines().any(|line| line.starts_with("run ") && line.ends_with(" avx2"));
    assert!(has_line(&profiler.report()), "{}", profiler.report());
    // A setting, as the sync mode is.
    profiler.reset();
    assert_eq!(profiler.profile().run.expect("it is stated").backend, "avx2");
}
