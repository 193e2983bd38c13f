//! The execution graph two ways: filled by hand, and made from what was recorded.
//!
//! Run with `cargo run --release --example execution_graph`. Prints the tree of two layers whose
//! kernels are those of a GPU (times and launches are given by hand, as an engine would know
//! them), then the tree of a pass that really ran, then the first tree for Graphviz:
//! `cargo run --release --example execution_graph | sed -n '/^digraph/,$p' | dot -Tsvg > graph.svg`
//!
//! With `--features presentar-tui` the first graph is shown by a widget of presentar-terminal, too.

use std::hint::black_box;

use brickscope::{
    BrickId, BrickProfiler, ExecutionNode, HostLaunch, Phase, PtxRegistry, Work, simd,
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

    println!("Recorded:\n{}\n", recorded());
    #[cfg(feature = "presentar-tui")]
    println!("As a widget:\n{}\n", widget(&graph));
    println!("{}", profiler.graph_to_dot());
}

/// The tree of a pass of two layers, each an RMS norm of 4096 elements.
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
        let work = Work { elements: 4096, flops: 4 * 4096, bytes: 8 * 4096 };
        profiler.stop_kernel(run, work);
        profiler.stop_brick_with(brick, work);
        profiler.end_layer(layer);
    }
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    let serial = profile.passes[0].serial;
    profile.execution_graph(serial).expect("its spans were kept").to_ascii_tree()
}

/// What the widget of presentar-terminal shows of a graph, all nodes unfolded, on a canvas without a
/// terminal. Its version 0.3 indents nothing.
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
