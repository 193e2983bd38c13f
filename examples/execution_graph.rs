//! Two execution graphs, one filled by hand and one made from recorded spans, and their analyses.
//!
//! Run with `cargo run --release --example execution_graph`. It prints
//!
//! - the tree of two layers with GPU kernels, whose times and launches are given by hand, as an engine would know them;
//! - the critical path of another graph, a what-if, its distance to the roofline, and data that it copies in vain;
//! - the tree and the critical path of a pass that really ran;
//! - the first graph for Graphviz:
//!   `cargo run --release --example execution_graph | sed -n '/^digraph/,$p' | dot -Tsvg > graph.svg`
//!
//! With `--features presentar-tui`, a widget of presentar-terminal shows the first graph, too.

use std::hint::black_box;

use brickscope::{
    BrickId, BrickProfiler, ExecutionGraph, ExecutionNode, HostLaunch, Phase, PtxRegistry,
    TransferDirection, Work, simd,
};

fn main() {
    let profiler = BrickProfiler::new();
    profiler.enable();
    profiler.enable_graph();

    let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n";
    let mut registry = PtxRegistry::new();
    registry.register("batched_q4k_gemv", ptx, None);
    let ptx_hash = PtxRegistry::hash_ptx(ptx);

    for index in 0..2 {
        profiler.graph_push_scope(ExecutionNode::Layer { index });
        for (id, timing_ns, kernel, grid, shared_mem) in [
            (BrickId::RmsNorm, 50_000, "rmsnorm_kernel", 16, 1024),
            (BrickId::QkvProjection, 200_000, "batched_q4k_gemv", 32, 4096),
            (BrickId::AttentionScore, 150_000, "incremental_attention", 8, 2048),
            (BrickId::GateProjection, 300_000, "batched_q6k_gemv", 64, 8192),
        ] {
            profiler.graph_push_scope(ExecutionNode::Brick { id, timing_ns, elements: 4096 });
            profiler.graph_record_kernel(kernel, ptx_hash, (grid, 1, 1), (256, 1, 1), shared_mem);
            profiler.graph_pop_scope();
        }
        profiler.graph_pop_scope();
    }
    let graph = profiler.execution_graph();
    println!(
        "By hand: {} nodes, {} edges, balanced: {}",
        graph.num_nodes(),
        graph.num_edges(),
        graph.is_scope_balanced()
    );
    println!("{}\n", graph.to_ascii_tree());
    if let Some((_, node, timing_ns)) = graph.slowest_kernel() {
        println!("Slowest brick with a kernel: {}, {} µs", node.name(), timing_ns / 1000);
    }
    println!("PTX of the second kernel: {:?}\n", registry.lookup_name(ptx_hash));

    println!("Analysed:\n{}", analysed());
    println!("Recorded:\n{}", recorded());
    #[cfg(feature = "presentar-tui")]
    println!("As a widget:\n{}\n", widget(&graph));
    println!("{}", profiler.graph_to_dot());
}

/// Analyses of a graph with two branches, a kernel with known rates, and a tensor that is copied there and back.
fn analysed() -> String {
    let mut graph = ExecutionGraph::new();
    let [norm, qkv, score, gate] = [
        (BrickId::RmsNorm, 100_000),
        (BrickId::QkvProjection, 200_000),
        (BrickId::AttentionScore, 300_000),
        (BrickId::GateProjection, 400_000),
    ]
    .map(|(id, timing_ns)| graph.add_node(ExecutionNode::Brick { id, timing_ns, elements: 4096 }));
    for (before, after) in [(norm, qkv), (qkv, score), (qkv, gate)] {
        graph.add_dependency(before, after);
    }
    let mut text = graph.critical_path_summary();
    if let Ok(Some(what_if)) = graph.what_if("GateProjection", 0.5) {
        let after = what_if.after_ns / 1000;
        text.push_str(&format!("With a gate twice as fast: {after} µs\n"));
    }
    let grid = (128, 1, 1);
    graph.record_kernel_launch_with_metrics(
        "matmul_kernel",
        0,
        grid,
        (256, 1, 1),
        16384,
        150_000,
        50.0,
        42.0,
    );
    // An RTX 4090: 83 TFLOP/s and 1008 GB/s.
    for (id, distance) in &graph.roofline_distance(83.0, 1008.0) {
        let efficiency = 100.0 * (1.0 - distance);
        text.push_str(&format!("Kernel {} at {efficiency:.1}% of roofline\n", id.0));
    }
    let scores = 4 * 1024 * 1024;
    graph.record_transfer("scores", "host", scores, TransferDirection::D2H, Some(50_000));
    graph.record_transfer("host", "scores", scores, TransferDirection::H2D, Some(50_000));
    for found in graph.ping_pong_findings() {
        let (what, bytes) = (found.tensor, found.bytes);
        text.push_str(&format!("{what}: {bytes} bytes there and back, {} ×\n", found.times));
    }
    text
}

/// The tree and the critical path of a pass with two layers, each an RMS norm of 4096 elements.
fn recorded() -> String {
    let profiler = BrickProfiler::enabled();
    let launch = HostLaunch { shape: "4096".to_owned(), threads: 1 };
    let kernel = profiler.kernel("rms_norm_scalar", Some(launch));
    let (input, mut output) = (vec![0.5; 4096], vec![0.0; 4096]);
    let pass = profiler.begin_pass(Phase::Decode);
    for index in 0..2 {
        let layer = profiler.begin_layer(index);
        let brick = profiler.start_brick(BrickId::RmsNorm);
        let run = profiler.start_kernel(kernel);
        simd::rms_norm_scalar(&input, black_box(&mut output));
        let work = Work { elements: 4096, flops: 4 * 4096, bytes: 8 * 4096, ..Work::default() };
        profiler.stop_kernel(run, work);
        profiler.stop_brick_with(brick, work);
        profiler.end_layer(layer);
    }
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    let serial = profile.passes[0].serial;
    let graph = profile.execution_graph(serial).expect("its spans were kept");
    format!("{}\n\n{}", graph.to_ascii_tree(), graph.critical_path_summary())
}

/// Renders a graph with presentar-terminal's widget, all nodes unfolded, on a canvas without a terminal. Version 0.3 of
/// the widget doesn't indent.
#[cfg(feature = "presentar-tui")]
fn widget(graph: &brickscope::ExecutionGraph) -> String {
    use presentar_terminal::tools::HeadlessCanvas;
    use presentar_terminal::{Rect, Tree, Widget};

    let root = graph.to_tree_node();
    let size = format!("{} nodes, {} levels\n", root.count_nodes(), root.depth());
    let mut tree = Tree::new().with_root(root).expand_all();
    let lines = tree.visible_lines() as u16;
    let mut canvas = HeadlessCanvas::new(80, lines);
    tree.layout(Rect::new(0.0, 0.0, 80.0, f32::from(lines)));
    canvas.render_frame(|canvas| tree.paint(canvas));
    let text = canvas.dump();
    size + &text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
