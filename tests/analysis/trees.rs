//! Trees of graphs whose times are known, and DOT.

use brickscope::{
    BrickId, BrickProfiler, EdgeType, ExecutionGraph, ExecutionNode, MockClock, Phase, Profile,
    TransferDirection, TreeOptions, Work,
};
use proptest::prelude::*;

/// The graph of the seeds' full example: so many layers of four bricks with a kernel each.
fn example(layers: u32) -> ExecutionGraph {
    let mut graph = ExecutionGraph::new();
    for index in 0..layers {
        graph.push_scope(ExecutionNode::Layer { index });
        for (id, timing_ns, kernel, grid, shared_mem) in [
            (BrickId::RmsNorm, 50_000, "rmsnorm_kernel", 16, 1024),
            (BrickId::QkvProjection, 200_000, "batched_q4k_gemv", 32, 4096),
            (BrickId::AttentionScore, 150_000, "incremental_attention", 8, 2048),
            (BrickId::GateProjection, 300_000, "batched_q6k_gemv", 64, 8192),
        ] {
            graph.push_scope(ExecutionNode::Brick { id, timing_ns, elements: 4096 });
            graph.record_kernel_launch(kernel, 1, (grid, 1, 1), (256, 1, 1), shared_mem);
            graph.pop_scope();
        }
        graph.pop_scope();
    }
    graph
}

#[test]
fn the_tree_of_several_layers_has_a_root_of_its_own() {
    assert_eq!(
        example(2).to_ascii_tree(),
        "\
Execution Graph
├── Layer 0
│   ├── RmsNorm  50.0µs (4096 elem)
│   │   └── rmsnorm_kernel  <<<16,256,1>>> smem=1024B
│   ├── QkvProjection  200.0µs (4096 elem)
│   │   └── batched_q4k_gemv  <<<32,256,1>>> smem=4096B
│   ├── AttentionScore  150.0µs (4096 elem)
│   │   └── incremental_attention  <<<8,256,1>>> smem=2048B
│   └── GateProjection  300.0µs (4096 elem)
│       └── batched_q6k_gemv  <<<64,256,1>>> smem=8192B
└── Layer 1
    ├── RmsNorm  50.0µs (4096 elem)
    │   └── rmsnorm_kernel  <<<16,256,1>>> smem=1024B
    ├── QkvProjection  200.0µs (4096 elem)
    │   └── batched_q4k_gemv  <<<32,256,1>>> smem=4096B
    ├── AttentionScore  150.0µs (4096 elem)
    │   └── incremental_attention  <<<8,256,1>>> smem=2048B
    └── GateProjection  300.0µs (4096 elem)
        └── batched_q6k_gemv  <<<64,256,1>>> smem=8192B"
    );
}

#[test]
fn the_tree_of_one_layer_begins_with_it() {
    let tree = example(1).to_ascii_tree();
    assert!(
        tree.starts_with(
            "Layer 0\n\
             ├── RmsNorm  50.0µs (4096 elem)\n\
             │   └── rmsnorm_kernel  <<<16,256,1>>> smem=1024B\n\
             ├── QkvProjection  200.0µs (4096 elem)\n"
        ),
        "{tree}"
    );
}

const FOLDED: TreeOptions = TreeOptions { depth: None, layer: None, min_share: None, fold: true };

#[test]
fn layers_of_the_same_bricks_fold_into_one_with_sums() {
    let graph = example(22);
    assert_eq!(
        graph.to_tree(&FOLDED),
        "\
Layers 0–21  ×22, 15400.0µs sum, 700.0µs each
├── RmsNorm  1100.0µs sum, 50.0µs each (4096 elem)
│   └── rmsnorm_kernel  <<<16,256,1>>> smem=1024B
├── QkvProjection  4400.0µs sum, 200.0µs each (4096 elem)
│   └── batched_q4k_gemv  <<<32,256,1>>> smem=4096B
├── AttentionScore  3300.0µs sum, 150.0µs each (4096 elem)
│   └── incremental_attention  <<<8,256,1>>> smem=2048B
└── GateProjection  6600.0µs sum, 300.0µs each (4096 elem)
    └── batched_q6k_gemv  <<<64,256,1>>> smem=8192B"
    );
}

/// Layers with one brick and one kernel each, of these microseconds; the kernel's name says more.
fn layers(of: &[(u32, u64, &str)]) -> ExecutionGraph {
    let mut graph = ExecutionGraph::new();
    for &(index, us, kernel) in of {
        graph.push_scope(ExecutionNode::Layer { index });
        let name = "Ffn".to_owned();
        let brick = ExecutionNode::NamedBrick { name, timing_ns: 1_000 * us, elements: 8 };
        graph.push_scope(brick);
        let (grid, block, ns) = ((1, 1, 1), (32, 1, 1), 900 * us);
        graph.record_kernel_launch_with_metrics(kernel, 1, grid, block, 0, ns, 1.0, 1.0);
        graph.pop_scope();
        graph.pop_scope();
    }
    graph
}

#[test]
fn layers_that_differ_in_a_kernel_fold_apart_and_the_range_shows_the_slow_one() {
    // As quantisations mix types: some layers with more bits than others.
    let of = [(0, 10, "q6"), (1, 10, "q4"), (2, 11, "q4"), (3, 10, "q6"), (4, 50, "q4")];
    assert_eq!(
        layers(&of).to_tree(&FOLDED),
        "\
Execution Graph
├── Layers 0, 3  ×2, 20.0µs sum, 10.0µs each
│   └── Ffn  20.0µs sum, 10.0µs each (8 elem)
│       └── q6  <<<1,32,1>>> smem=0B  18.0µs sum
└── Layers 1–2, 4  ×3, 71.0µs sum, 10.0–50.0µs each
    └── Ffn  71.0µs sum, 10.0–50.0µs each (8 elem)
        └── q4  <<<1,32,1>>> smem=0B  63.9µs sum"
    );
}

#[test]
fn what_lies_between_layers_keeps_its_place_when_they_fold() {
    let mut graph = ExecutionGraph::new();
    let brick = |id, timing_ns| ExecutionNode::Brick { id, timing_ns, elements: 1 };
    for timing_ns in [500, 5] {
        for index in 0..2 {
            graph.push_scope(ExecutionNode::Layer { index });
            graph.add_node_in_scope(brick(BrickId::RmsNorm, timing_ns));
            graph.pop_scope();
        }
        graph.add_node(brick(BrickId::LmHead, 1_000));
    }
    assert_eq!(
        graph.to_tree(&TreeOptions { depth: Some(1), ..FOLDED }),
        "\
Execution Graph
├── Layers 0–1  ×2, 1.0µs sum, 0.5µs each  … 2 inside
├── LmHead  1.0µs (1 elem)
├── Layers 0–1  ×2, 0.010µs sum, 0.005µs each  … 2 inside
└── LmHead  1.0µs (1 elem)"
    );
}

#[test]
fn layers_whose_kernels_were_timed_do_not_fold_with_those_whose_were_not() {
    let mut graph = layers(&[(0, 10, "k")]);
    graph.push_scope(ExecutionNode::Layer { index: 1 });
    let (name, timing_ns, elements) = ("Ffn".to_owned(), 10_000, 8);
    graph.push_scope(ExecutionNode::NamedBrick { name, timing_ns, elements });
    graph.record_kernel_launch("k", 1, (1, 1, 1), (32, 1, 1), 0);
    graph.pop_scope();
    graph.pop_scope();
    assert_eq!(graph.to_tree(&FOLDED), graph.to_ascii_tree());
}

#[test]
fn a_long_list_of_layers_is_cut_short_and_says_how_many_there_are() {
    let of: Vec<(u32, u64, &str)> =
        (0..400).map(|i| (i, 1, if i % 2 == 0 { "even" } else { "odd" })).collect();
    let tree = layers(&of).to_tree(&TreeOptions { depth: Some(1), ..FOLDED });
    let first = tree.lines().nth(1).expect("a line");
    assert!(first.starts_with("├── Layers 0, 2, 4, 6, 8, 10, …  ×200, 200.0µs sum"), "{tree}");
    assert_eq!(tree.lines().count(), 3);
}

#[test]
fn what_a_tree_leaves_out_is_counted() {
    let graph = example(2);
    let tree = |options| graph.to_tree(&options);
    assert_eq!(
        tree(TreeOptions { depth: Some(1), ..TreeOptions::default() }),
        "\
Execution Graph
├── Layer 0  … 8 inside, 700.0µs sum
└── Layer 1  … 8 inside, 700.0µs sum"
    );
    // A fifth of 1400 µs is 280 µs.
    assert_eq!(
        tree(TreeOptions { min_share: Some(0.2), ..TreeOptions::default() }),
        "\
Execution Graph
├── Layer 0
│   ├── GateProjection  300.0µs (4096 elem)
│   │   └── batched_q6k_gemv  <<<64,256,1>>> smem=8192B
│   └── … 3 more with 3 inside, 400.0µs
└── Layer 1
    ├── GateProjection  300.0µs (4096 elem)
    │   └── batched_q6k_gemv  <<<64,256,1>>> smem=8192B
    └── … 3 more with 3 inside, 400.0µs"
    );
    assert_eq!(
        tree(TreeOptions { layer: Some(1), depth: Some(2), ..TreeOptions::default() }),
        "\
Execution Graph
├── Layer 1
│   ├── RmsNorm  50.0µs (4096 elem)  … 1 inside
│   ├── QkvProjection  200.0µs (4096 elem)  … 1 inside
│   ├── AttentionScore  150.0µs (4096 elem)  … 1 inside
│   └── GateProjection  300.0µs (4096 elem)  … 1 inside
└── … outside of this layer: 1 more with 8 inside, 700.0µs"
    );
    assert_eq!(tree(TreeOptions { layer: Some(9), ..TreeOptions::default() }), "(no layer 9)");
    let nothing = TreeOptions { depth: Some(0), ..TreeOptions::default() };
    assert_eq!(tree(nothing), "… 2 more with 16 inside, 1400.0µs");
}

#[test]
fn what_was_not_timed_is_never_left_out_for_its_share_nor_summed() {
    let mut graph = layers(&[(0, 10, "k"), (1, 10, "k")]);
    graph.push_scope(ExecutionNode::Layer { index: 2 });
    graph.record_transfer("host", "gpu", 8, TransferDirection::H2D, None);
    graph.pop_scope();
    let tree = graph.to_tree(&TreeOptions { min_share: Some(0.9), depth: Some(1), ..FOLDED });
    assert_eq!(
        tree,
        "\
Execution Graph
├── Layers 0–1  ×2, 20.0µs sum, 10.0µs each  … 4 inside
└── Layer 2  … 1 inside"
    );
}

#[test]
fn a_layer_inside_of_something_is_found_too() {
    let mut graph = ExecutionGraph::new();
    let (name, file, line) = ("main".to_owned(), None, None);
    graph.push_scope(ExecutionNode::Function { name, file, line });
    let brick = |id, timing_ns| ExecutionNode::Brick { id, timing_ns, elements: 1 };
    graph.add_node_in_scope(brick(BrickId::Embedding, 3_000));
    graph.push_scope(ExecutionNode::Layer { index: 4 });
    graph.add_node_in_scope(brick(BrickId::RmsNorm, 1_000));
    assert_eq!(
        graph.to_tree(&TreeOptions { layer: Some(4), ..TreeOptions::default() }),
        "\
Execution Graph
├── Layer 4
│   └── RmsNorm  1.0µs (1 elem)
└── … outside of this layer: 2 more, 3.0µs"
    );
}

/// How many nodes the lines of a tree stand for, with those that they say are left out.
fn nodes_told(tree: &str) -> u64 {
    let number = |text: &str| -> u64 {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    let after = |line: &str, what: &str| line.split_once(what).map(|(_, rest)| number(rest));
    let mut told = 0;
    // How many nodes a line stands for: as many as the folded layers above it are.
    let mut members: Vec<(usize, u64)> = Vec::new();
    for line in tree.lines().filter(|line| *line != "Execution Graph") {
        let text = line.trim_start_matches(['│', '├', '└', '─', ' ', '\u{a0}']);
        let indent = line.chars().count() - text.chars().count();
        members.retain(|&(above, _)| above < indent);
        if let Some(left_out) = text.strip_prefix("… ") {
            let left_out = left_out.rsplit(": ").next().expect("a part");
            told += number(left_out) + after(left_out, " with ").unwrap_or_default();
            continue;
        }
        if let Some(n) = after(text, "  ×") {
            members.push((indent, n));
        }
        told += members.last().map_or(1, |&(_, n)| n);
        told += after(text, "  … ").unwrap_or_default();
    }
    told
}

proptest! {
    /// Whatever is folded, too deep, too short, of another layer or in a circle: it is counted.
    #[test]
    fn no_node_vanishes_from_a_tree(
        nodes in prop::collection::vec((0..5u32, 0..3u64, any::<prop::sample::Index>()), 1..40),
        depth in prop::option::of(0..5usize),
        layer in prop::option::of(0..3u32),
        min_share in prop::option::of(0.0..0.5),
        fold in any::<bool>(),
        circle in any::<bool>(),
    ) {
        let mut graph = ExecutionGraph::new();
        let mut ids = Vec::new();
        for (kind, timing_ns, parent) in nodes {
            let id = graph.add_node(match kind {
                0 => ExecutionNode::Brick { id: BrickId::LmHead, timing_ns, elements: 1 },
                1 => ExecutionNode::Function { name: "f".to_owned(), file: None, line: None },
                kind => ExecutionNode::Layer { index: kind - 2 },
            });
            // Not more than a dozen levels, all of which are indented.
            let parents = ids.len().min(11);
            if parents > 0 && !parent.index(parents + 1).is_multiple_of(4) {
                graph.add_edge(ids[parent.index(parents)], id, EdgeType::Contains);
            }
            ids.push(id);
        }
        if circle {
            let a = graph.add_node(ExecutionNode::Layer { index: 0 });
            let b = graph.add_node(ExecutionNode::Layer { index: 1 });
            graph.add_edge(a, b, EdgeType::Contains);
            graph.add_edge(b, a, EdgeType::Contains);
        }
        let tree = graph.to_tree(&TreeOptions { depth, layer, min_share, fold });
        if !tree.starts_with("(no layer") {
            prop_assert_eq!(nodes_told(&tree), graph.num_nodes() as u64, "{}", tree);
        }
    }
}

#[test]
fn names_can_neither_break_a_line_nor_turn_its_direction() {
    let mut graph = ExecutionGraph::new();
    for name in ["a\r\nb\t\u{1b}[2J", "\u{202e}txet\u{2028}", "重み \"q\" é 🦀", ""] {
        let name = name.to_owned();
        graph.add_node(ExecutionNode::NamedBrick { name, timing_ns: 1_000, elements: 1 });
    }
    assert_eq!(
        graph.to_ascii_tree(),
        "\
Execution Graph
├── a\\r\\nb\\t\\u{1b}[2J  1.0µs (1 elem)
├── \\u{202e}txet\\u{2028}  1.0µs (1 elem)
├── 重み \"q\" é 🦀  1.0µs (1 elem)
└──   1.0µs (1 elem)"
    );
}

#[test]
fn a_registered_source_is_found_from_the_kernels_of_a_pass_and_survives_the_file() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let ptx = ".version 7.0\n";
    let hash = profiler.graph().register_ptx("gemv", ptx, Some("src/gemv.ptx".as_ref())).hash();
    profiler.reset();
    let kernel = profiler.kernel("gemv", None);
    let pass = profiler.begin_pass(Phase::Decode);
    let timer = profiler.start_brick_kernel(BrickId::LmHead, kernel);
    hand.advance(1_000);
    profiler.stop_brick_kernel(timer, Work::default());
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    let json = profile.to_json();
    let read = Profile::from_json(&json, "x".as_ref()).expect("it was just written");
    assert_eq!((&read, read.to_json()), (&profile, json));
    let graph = read.execution_graph(read.passes[0].serial).expect("its spans were kept");
    let (_, node) = graph.kernel_nodes().next().expect("a kernel");
    assert_eq!(node.ptx_hash(), Some(hash));
    assert_eq!(read.ptx.resolve(&node).map(|source| source.ptx.as_str()), Some(ptx));
}

#[test]
fn a_kernel_recorded_after_its_brick_hangs_under_it() {
    let profiler = BrickProfiler::enabled();
    profiler.enable_graph();
    profiler.graph_push_scope(ExecutionNode::Layer { index: 0 });
    profiler.graph_record_brick(BrickId::QkvProjection, 200_000, 4096);
    profiler.graph_record_kernel("batched_q4k_gemv", 7, (32, 1, 1), (256, 1, 1), 4096);
    profiler.graph_record_kernel("add_bias", 8, (8, 2, 1), (64, 1, 1), 0);
    profiler.graph_pop_scope();
    assert!(profiler.graph_is_scope_balanced());
    assert_eq!(
        profiler.execution_graph().to_ascii_tree(),
        "Layer 0\n\
         └── QkvProjection  200.0µs (4096 elem)\n    \
             ├── batched_q4k_gemv  <<<32,256,1>>> smem=4096B\n    \
             └── add_bias  <<<(8,2,1),(64,1,1)>>> smem=0B"
    );
    profiler.disable_graph();
    assert_eq!(profiler.graph_record_brick(BrickId::LmHead, 1, 1), None);
    assert_eq!(profiler.execution_graph().num_nodes(), 4);
}

#[test]
fn a_graph_of_nothing_and_one_that_goes_in_a_circle_say_so() {
    let mut graph = ExecutionGraph::new();
    assert_eq!(graph.to_ascii_tree(), "(empty graph)");
    let a = graph.add_node(ExecutionNode::Layer { index: 0 });
    let b = graph.add_node(ExecutionNode::Layer { index: 1 });
    graph.add_edge(a, b, EdgeType::Contains);
    graph.add_edge(b, a, EdgeType::Contains);
    assert!(graph.to_ascii_tree().contains("cycle"));
    // Beside a node that isn't in it, the circle is counted.
    graph.add_node(ExecutionNode::Layer { index: 2 });
    assert_eq!(graph.to_ascii_tree(), "Execution Graph\n├── Layer 2\n└── … in a cycle: 2 more");
}

#[test]
fn a_very_deep_graph_neither_exhausts_the_stack_nor_the_memory() {
    const LEVELS: usize = if cfg!(miri) { 300 } else { 100_000 };
    let mut graph = ExecutionGraph::new();
    for index in 0..LEVELS as u32 {
        graph.push_scope(ExecutionNode::Layer { index });
    }
    for options in [TreeOptions::default(), FOLDED, TreeOptions { depth: Some(LEVELS), ..FOLDED }] {
        let tree = graph.to_tree(&options);
        assert_eq!(tree.lines().count(), LEVELS);
        assert!(tree.len() < 200 * LEVELS, "{} bytes", tree.len());
        let widest = tree.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{widest:?}");
    }
    let tree = graph.to_ascii_tree();
    let line = |n: usize| tree.lines().nth(n).map(str::trim_start);
    assert_eq!((line(0), line(1)), (Some("Layer 0"), Some("└── Layer 1")));
    assert_eq!((line(16), line(17)), (Some("└── Layer 16"), Some("└─18─ Layer 17")));
}

#[test]
fn a_very_wide_graph_takes_a_line_for_each_child() {
    const CHILDREN: u64 = if cfg!(miri) { 300 } else { 1_000_000 };
    let mut graph = ExecutionGraph::new();
    graph.push_scope(ExecutionNode::Layer { index: 0 });
    for i in 0..CHILDREN {
        graph.add_node_in_scope(ExecutionNode::Brick {
            id: BrickId::LmHead,
            timing_ns: i,
            elements: i,
        });
    }
    assert_eq!(graph.to_ascii_tree().lines().count() as u64, CHILDREN + 1);
    let short = TreeOptions { min_share: Some(0.5), ..TreeOptions::default() };
    let sum = CHILDREN * (CHILDREN - 1) / 2;
    assert_eq!(
        graph.to_tree(&short),
        format!("Layer 0\n└── … {CHILDREN} more, {:.1}µs", sum as f64 / 1e3)
    );
}

#[test]
fn the_slowest_brick_with_a_kernel_is_found() {
    let graph = example(2);
    let (id, node, timing_ns) = graph.slowest_kernel().expect("there are kernels");
    assert_eq!((node.name().as_str(), timing_ns), ("GateProjection", 300_000));
    assert_eq!(graph.node(id), Some(node));
    assert_eq!(graph.kernel_nodes().count(), 8);
}

#[test]
fn dot_holds_whatever_things_are_called() {
    let mut graph = ExecutionGraph::new();
    let name = "say \"hi\"\\\n\u{1b}[31m<b>|{x}".to_owned();
    let f = graph.push_scope(ExecutionNode::Function {
        name,
        file: Some("src\\a.rs".to_owned()),
        line: Some(7),
    });
    let t =
        graph.record_transfer("host \"w\"", "gpu", 4 << 20, TransferDirection::H2D, Some(50_000));
    graph.record_kernel_launch("k;--", 1, (1, 1, 1), (32, 1, 1), 0);
    graph.add_dependency(f, t);
    let dot = graph.to_dot();
    insta::assert_snapshot!("dot_of_awkward_names", dot);
    // The tree keeps to one line a node, and sends no escape sequence to the terminal.
    let tree = graph.to_ascii_tree();
    assert_eq!(tree.lines().count(), 3, "{tree}");
    assert!(!tree.contains('\u{1b}'));
}
