//! What people see: the tree, DOT, tables and JSON of profiles whose times are known.

use brickscope::{
    Absent, Bandwidth, Began, BrickId, BrickProfiler, CacheCeiling, CacheLevel, Ceilings, EdgeType,
    ExecutionGraph, ExecutionNode, HostLaunch, Machine, MockClock, Model, Move, NameKind,
    NotFinite, Peak, Phase, Profile, Run, Survey, Tolerance, TransferDirection, TreeOptions,
    WeightGroup, Work,
};
use brickscope_analysis::Report;
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

/// A run of two layers: a prefill of 8 tokens and two tokens decoded, on a hand-turned clock.
fn profile() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let shape = "4096×4096 q4_k".to_owned();
    let gemv = profiler.kernel("gemv_q4_k_avx2", Some(HostLaunch { shape, threads: 2 }));
    let pass = |phase, tokens: u64, position| {
        let pass = profiler.begin_pass(phase);
        let brick = |brick, nanos: u64| {
            let timer = profiler.start_brick(brick);
            hand.advance(nanos * tokens);
            profiler.stop_brick_with(
                timer,
                Work { elements: 4096 * tokens, flops: 10, bytes: 20, ..Work::default() },
            );
        };
        brick(BrickId::Embedding, 1_000);
        for layer in 0..2 {
            let layer = profiler.begin_layer(layer);
            brick(BrickId::RmsNorm, 50_000);
            let timer = profiler.start_brick(BrickId::QkvProjection);
            hand.advance(2_000);
            let kernel = profiler.start_kernel(gemv);
            hand.advance(198_000 * tokens);
            profiler.stop_kernel(
                kernel,
                Work { elements: 4096, flops: 80, bytes: 40, ..Work::default() },
            );
            profiler.stop_brick(timer, 4096);
            profiler.end_layer(layer);
        }
        // A brick with a name of its own, and time that nobody explains.
        let timer = profiler.start("Detokenise");
        hand.advance(3_500);
        profiler.stop(timer, 1);
        hand.advance(1_500);
        profiler.end_pass(pass, tokens, position);
    };
    pass(Phase::Prefill, 8, 0);
    pass(Phase::Decode, 1, 8);
    pass(Phase::Decode, 1, 9);
    let mut profile = profiler.profile();
    // What differs between two machines, or two runs.
    profile.created = "2026-11-21T10:15:00Z".to_owned();
    profile.brickscope_version = "0.0.0".to_owned();
    profile.machine = Some(Machine {
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        cpu: Some("Example CPU".to_owned()),
        logical_cpus: Some(2),
        memory_bytes: None,
    });
    profile.model = Some(Model {
        path: "example.gguf".to_owned(),
        name: None,
        architecture: "llama".to_owned(),
        quantization: "q4_k".to_owned(),
        file_bytes: 1_000_000,
        parameters: 2_000_000,
        layers: 2,
        embedding_length: 4096,
        synthetic: true,
        weights_in: Some("large pages, rows interleaved".to_owned()),
        copied_in_ns: Some(150_000_000),
        interleaved_bytes: Some(900_000),
        interleaved_in_ns: Some(20_000_000),
        weights: vec![WeightGroup {
            name: "ffn_down".to_owned(),
            format: "q4_k".to_owned(),
            is_matrix: true,
            tensors: 2,
            parameters: 1_600_000,
            bytes: 900_000,
        }],
    });
    profile.run = Some(Run {
        backend: "avx2".to_owned(),
        threads: 2,
        prompt_tokens: 8,
        generated_tokens: 3,
        ..Run::default()
    });
    profile.lanes[0].name = None;
    profile.lanes[0].tid = None;
    profile
}

#[test]
fn the_report_shows_each_phase_with_bricks_and_what_they_do_not_explain() {
    let profile = profile();
    let report = brickscope_analysis::view::report(&profile);
    insta::assert_snapshot!("report", report);
    for line in report.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_profile_is_the_same_bytes_each_time_and_reads_back() {
    let profile = profile();
    let json = profile.to_json();
    insta::assert_snapshot!("profile_json", json);
    let read = Profile::from_json(&json, "profile.json".as_ref()).expect("it was just written");
    assert_eq!(read, profile);
    assert_eq!(read.to_json(), json);
    assert_eq!(read.check(), Ok(()));
}

#[test]
fn rates_are_read_back_to_the_last_bit() {
    let mut profile = profile();
    for i in 1..2_000 {
        let rate = 1e9 / f64::from(i) * 51.9;
        profile.ceilings = Some(Ceilings {
            read_bytes_per_second: rate,
            flops_per_second: rate.sqrt(),
            ..Ceilings::default()
        });
        let read = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
        assert_eq!(read.ceilings, profile.ceilings);
    }
}

/// [`profile`] with ceilings under which its bricks stand in every way.
fn profile_with_ceilings() -> Profile {
    let mut profile = profile();
    let cache = |level: &str, bytes, read_bytes_per_second| CacheCeiling {
        level: level.to_owned(),
        bytes,
        read_bytes_per_second,
    };
    profile.ceilings = Some(Ceilings {
        read_bytes_per_second: 50e9,
        flops_per_second: 200e9,
        basis: "made up: 2 threads, avx2".to_owned(),
        measured: Some("2026-11-21T10:00:00Z".to_owned()),
        caches: vec![cache("L1", 64_000, 400e9), cache("L3", 32_000_000, 180e9)],
        ..Ceilings::default()
    });
    // FLOPs, bytes of the whole phase, which takes 101 µs of norms and 400 µs of projections.
    for (name, flops, bytes) in [
        ("RmsNorm", 4_000, 30_000_000),
        ("QkvProjection", 140_000_000, 16_000_000),
        ("Embedding", 0, 60_000),
        ("Detokenise", 0, 0),
    ] {
        let totals = profile.totals.iter_mut().filter(|total| total.kind == NameKind::Brick);
        for total in totals.filter(|total| total.stats.name == name) {
            total.stats.total_flops = flops;
            total.stats.total_bytes = bytes;
        }
    }
    // All spans but one say what they did.
    let mut spans = profile.spans.iter_mut().filter(|span| span.pass.is_some());
    spans.by_ref().find(|span| span.name == Some(BrickId::QkvProjection as u16));
    spans.for_each(|span| span.work = Work { elements: 1, flops: 1, bytes: 1, ..Work::default() });
    profile
}

#[test]
fn the_roofline_is_a_table_and_a_plot_of_each_phase() {
    let text = brickscope_analysis::view::roofline(&profile_with_ceilings());
    insta::assert_snapshot!("roofline", text);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let report = brickscope_analysis::view::report(&profile_with_ceilings());
    for line in report.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(report.matches("Roofline: 50.0 GB/s, 200.0 GFLOP/s").count(), 2);
}

#[test]
fn the_roofline_as_a_picture_holds_whatever_things_are_called() {
    let mut profile = profile_with_ceilings();
    let name = "say \"hi\"\u{1b}</text>&\u{ffff}";
    for total in profile.totals.iter_mut().filter(|total| total.stats.name == "RmsNorm") {
        name.clone_into(&mut total.stats.name);
    }
    let svg = brickscope_analysis::view::roofline_svg(&profile);
    assert_eq!(svg, brickscope_analysis::view::roofline_svg(&profile));
    insta::assert_snapshot!("roofline_svg", svg);
    // Each name is text, so nothing of it opens or closes an element.
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    assert_eq!(svg.matches('<').count(), svg.matches('>').count(), "a bare one is no XML");
    assert!(!svg.contains(['\u{1b}', '\u{ffff}']), "{svg}");
}

#[test]
fn without_ceilings_there_is_no_roofline_but_a_reason() {
    let text = brickscope_analysis::view::roofline(&profile());
    let reason = "no roofline: this run has no ceilings: the machine was not measured";
    assert_eq!(text, format!("Decode: {reason}\n\nPrefill: {reason}\n"));
    assert!(
        brickscope_analysis::view::roofline_svg(&profile()).contains("this run has no ceilings")
    );
    let json: serde_json::Value =
        serde_json::from_str(&brickscope_analysis::view::json(&profile())).expect("JSON");
    assert_eq!(json["roofline"], serde_json::json!([]));
}

#[test]
fn the_json_view_is_the_profile_and_the_roofline() {
    let profile = profile_with_ceilings();
    let text = brickscope_analysis::view::json(&profile);
    let read = Profile::from_json(&text, "x".as_ref()).expect("what is derived is no hindrance");
    assert_eq!(read, profile);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let decode = &json["roofline"][0];
    assert_eq!((&decode["phase"], &decode["ridge"]), (&"decode".into(), &4.0.into()));
    let bricks = decode["bricks"].as_array().expect("bricks");
    let brick = |name: &str| bricks.iter().find(|brick| brick["name"] == name).expect(name);
    assert_eq!(brick("QkvProjection")["bound"], "compute");
    assert_eq!(brick("Detokenise")["absent"]["reason"], "its work was not stated");
    assert!(brick("Detokenise").get("of_roof").is_none());
}

#[test]
fn a_machine_is_a_table_of_its_ceilings() {
    let absent = |reason: &str| Some(Absent { reason: reason.to_owned() });
    let caches = [(1, 32 << 10, 1), (2, 1 << 20, 2)];
    let caches = caches.map(|(level, bytes, shared_by)| CacheLevel { level, bytes, shared_by });
    let mut survey = Survey {
        measured: "2026-11-21T10:00:00Z".to_owned(),
        backend: "avx2".to_owned(),
        caches: caches.into(),
        bandwidth: Vec::new(),
        peaks: Vec::new(),
        paces: Vec::new(),
    };
    for threads in [1, 2] {
        for (level, rate) in [("L1", 227.4e9), ("L2", 118.0e9), ("memory", 35.1e9)] {
            for how in Move::ALL {
                let is_absent = (level, threads) == ("L2", 2);
                survey.bandwidth.push(Bandwidth {
                    level: level.to_owned(),
                    how,
                    threads,
                    working_set: (!is_absent).then_some(u64::from(threads) * (16 << 10)),
                    bytes_per_second: (!is_absent).then_some(rate * f64::from(threads)),
                    absent: is_absent.then(|| absent("not measured: too little")).flatten(),
                });
            }
        }
        for (numbers, backend, instructions, ops_per_second, absent) in [
            ("f32", "scalar", "multiply, add", Some(47.25e9), None),
            ("f32", "avx2", "fused multiply-add", Some(1182.0e9), None),
            ("f32", "avx512", "", None, absent("not written yet")),
            ("int8", "avx2", "vpdpbusd (VNNI)", None, absent("this CPU has no AVX-512 VNNI")),
        ] {
            survey.peaks.push(Peak {
                numbers: numbers.to_owned(),
                backend: backend.to_owned(),
                instructions: instructions.to_owned(),
                is_used: numbers == "f32",
                threads,
                ops_per_second,
                absent,
            });
        }
    }
    let text = brickscope_analysis::view::machine(&survey);
    insta::assert_snapshot!("machine", text);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // What bounds a run: the reads, and the peak of the backend whose loops they were.
    let ceilings = survey.ceilings(2).expect("two threads were measured");
    assert_eq!((ceilings.read_bytes_per_second, ceilings.flops_per_second), (70.2e9, 1182.0e9));
    let caches: Vec<&str> = ceilings.caches.iter().map(|cache| cache.level.as_str()).collect();
    assert_eq!(caches, ["L1"], "nobody knows of L2 on two threads");
    assert_eq!(survey.ceilings(3), None);
}

#[test]
fn ceilings_that_are_no_rates_are_refused() {
    for (bytes, flops) in [(0.0, 1e9), (1e9, -1.0), (1e300, 1e9), (f64::NAN, 1e9)] {
        let mut profile = profile_with_ceilings();
        profile.ceilings = Some(Ceilings {
            read_bytes_per_second: bytes,
            flops_per_second: flops,
            ..Ceilings::default()
        });
        let text = brickscope_analysis::view::roofline(&profile);
        assert!(text.starts_with("Decode: no roofline: the ceilings of this run are not rates"));
    }
}

#[test]
fn without_stated_work_no_share_of_a_ceiling_is_claimed() {
    let mut profile = profile();
    profile.ceilings =
        Some(Ceilings { read_bytes_per_second: 1e9, flops_per_second: 1e9, ..Ceilings::default() });
    let stated = brickscope_analysis::view::headline(&profile);
    assert!(stated.contains(" GFLOP/s") || stated.contains(" GB/s"), "{stated}");
    for total in &mut profile.totals {
        total.stats.total_flops = 0;
        total.stats.total_bytes = 0;
    }
    assert_eq!(
        brickscope_analysis::view::headline(&profile),
        "Decode: QkvProjection takes the most time, 79.1% of it; what limits it is unknown, since \
         no work was stated."
    );
}

#[test]
fn logits_that_are_no_numbers_come_first_in_every_view_with_a_headline_and_stay_in_the_file() {
    let clean = profile();
    let before = brickscope_analysis::view::headline(&clean);
    let tensor = "blk.0.attn_q.weight".to_owned();
    for began in [
        None,
        Some(Began::Weights { tensor, is_nan: true, bad: 3, of: 4096, more_tensors: 1 }),
        Some(Began::Output {
            brick: "LmHead".to_owned(),
            layer: None,
            value: "logits".to_owned(),
            is_nan: false,
            bad: 1,
            of: 512,
            position: 9,
        }),
    ] {
        let mut profile = clean.clone();
        profile.not_finite = Some(NotFinite { passes: 2, of: 3, began });
        let sentence = profile.not_finite.as_ref().expect("set").to_string();
        let headline = brickscope_analysis::view::headline(&profile);
        assert_eq!(headline, format!("{sentence}. {before}"));
        let report = brickscope_analysis::view::report(&profile);
        assert!(report.starts_with("Not a number: the logits of 2 of 3 passes; "), "{report}");
        let json = profile.to_json();
        let again = Profile::from_json(&json, "profile.json".as_ref()).expect("a profile");
        assert_eq!((&again, again.to_json()), (&profile, json));
    }
    assert!(!clean.to_json().contains("not_finite"));
}

#[test]
fn a_profile_that_does_not_add_up_is_told_so() {
    let mut profile = profile();
    profile.phases[1].unattributed_ns += 1;
    assert_eq!(
        profile.check(),
        Err("the bricks of decode took 1009000 ns, and 3001 ns are unattributed, but the wall \
             time is 1012000 ns"
            .to_owned())
    );
}

#[test]
fn a_file_of_the_first_schema_is_read() {
    let mut json: serde_json::Value = serde_json::from_str(&profile().to_json()).expect("JSON");
    let file = json.as_object_mut().expect("an object");
    file.insert("schema_version".to_owned(), 1.into());
    file.remove("latency");
    for total in file["totals"].as_array_mut().expect("an array") {
        let total = total.as_object_mut().expect("an object");
        for later in ["squared_deviations", "histogram", "std_dev_ns", "p50_ns", "p99_ns"] {
            assert!(total.remove(later).is_some(), "{later}");
        }
    }
    let read = Profile::from_json(&json.to_string(), "x".as_ref()).expect("it is of schema 1");
    assert_eq!(read.phases, profile().phases);
    assert_eq!((read.totals[0].std_dev_ns, read.totals[0].stats.std_dev_ns()), (None, None));
}

#[test]
fn files_that_are_no_profiles_are_refused_in_a_sentence() {
    let refuse = |json: &str| {
        Profile::from_json(json, "run/profile.json".as_ref()).expect_err(json).to_string()
    };
    assert_eq!(
        refuse(&profile().to_json().replace("\"schema_version\": 2", "\"schema_version\": 3")),
        "run/profile.json has schema version 3, but this brickscope reads versions up to 2: use \
         a newer one"
    );
    let half = profile().to_json();
    assert_eq!(
        refuse(&half[..100]),
        "run/profile.json is not a whole brickscope profile: EOF while parsing a string at line 5 column 5"
    );
    assert!(refuse("{}").contains("missing field `schema_version`"), "{}", refuse("{}"));
    assert!(refuse("").starts_with("run/profile.json is not a whole brickscope profile"));
}

#[test]
fn a_profile_of_nothing_is_shown_without_numbers() {
    let report = BrickProfiler::with_clock(MockClock::default().clock()).report();
    assert_eq!(
        report,
        "Nothing was recorded.\n\n\
         overhead  absent: a mock clock can't measure a cost\n\
         clock     mock\n\
         others    unknown: profiling was not on, or its clock is a mock\ncounters  not asked for: `--counters`, or `BrickProfiler::enable_counters`\n"
    );
}

#[test]
fn the_summary_and_its_json_agree_with_what_was_recorded() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for (name, nanos) in [("RmsNorm", 50_000), ("a \"quoted\"\nname", 150_000)] {
        let timer = profiler.start(name);
        hand.advance(nanos);
        profiler.stop(timer, 2);
    }
    assert_eq!(
        profiler.summary(),
        "=== Brick Profiler Summary ===\n\
         Total: 4 tokens, 200.00µs, 20000.0 tok/s\n\n\
         Per-Brick Breakdown:\n  \
         a \"quoted\"\\nname       150.00µs avg ( 75.0%) [1 samples]\n  \
         RmsNorm                 50.00µs avg ( 25.0%) [1 samples]\n\n\
         Category Breakdown:\n  \
         Norm            50.00µs avg ( 25.0%)\n  \
         Other          150.00µs avg ( 75.0%)\n"
    );
    let json: serde_json::Value = serde_json::from_str(&profiler.to_json()).expect("JSON");
    assert_eq!(json["total_ns"], 200_000);
    assert_eq!(json["bricks"][0]["name"], "a \"quoted\"\nname");
    assert_eq!(json["bricks"][1]["pct"], 25.0);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile.json");
    profiler.write_json(&path).expect("the temporary folder can be written to");
    assert_eq!(std::fs::read_to_string(&path).expect("it was written"), profiler.to_json());
}

#[test]
fn checksums_name_the_kernel_that_diverged() {
    let (cpu, gpu) = (BrickProfiler::enabled(), BrickProfiler::enabled());
    for layer in 0..3 {
        let output = [layer as f32; 8];
        cpu.record_checksum("RopeNeox", layer, 5, &output);
        gpu.record_checksum("RopeNeox", layer, 5, &output);
    }
    assert_eq!(gpu.find_divergence(&cpu), None);
    gpu.record_checksum("Softmax", 2, 5, &[1.0, 2.0]);
    cpu.record_checksum("Softmax", 2, 5, &[1.0, 2.5]);
    let found = gpu.find_divergence(&cpu).expect("they differ");
    assert_eq!((found.kernel_name.as_str(), found.layer_idx, found.position), ("Softmax", 2, 5));
    assert_eq!(gpu.get_checksums().len(), 4);
    gpu.disable();
    gpu.record_checksum("Softmax", 2, 6, &[1.0]);
    assert_eq!(gpu.get_checksums().len(), 4);
}

#[test]
fn digests_tell_rounding_from_a_fault() {
    let (cpu, gpu) = (BrickProfiler::enabled(), BrickProfiler::enabled());
    let output: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7).cos()).collect();
    let rounded: Vec<f32> = output.iter().map(|x| x * (1.0 + f32::EPSILON)).collect();
    let mut fault = rounded.clone();
    // Past the 64 values that a checksum covers.
    fault[200] *= 1.01;
    for layer in 0..3 {
        cpu.checksums().record_digest("RopeNeox", layer, 5, &output);
        gpu.checksums().record_digest("RopeNeox", layer, 5, &rounded);
    }
    assert_eq!(gpu.checksums().find_fault(&cpu, Tolerance::default()), None);
    cpu.checksums().record_digest("Softmax", 2, 5, &output);
    gpu.checksums().record_digest("Softmax", 2, 5, &fault);
    let found = gpu.checksums().find_fault(&cpu, Tolerance::default()).expect("they differ");
    assert_eq!((found.name.as_str(), found.layer_idx, found.position), ("Softmax", 2, 5));
    let said = found.to_string();
    assert!(said.starts_with("DIVERGENCE at 'Softmax' (layer 2, pos 5): fault: "), "{said}");

    // They come through a file, and one from before they were there is read.
    let profile = gpu.profile();
    assert_eq!(profile.digests.len(), 4);
    let json = profile.to_json();
    let read = Profile::from_json(&json, "run".as_ref()).expect("it is one");
    assert_eq!(read.digests, profile.digests);
    assert_eq!(read.find_fault(&cpu.profile(), Tolerance::default()), Some(found));
    gpu.reset_checksums();
    let without = gpu.profile().to_json();
    assert!(!without.contains("\"digests\""));
    assert_eq!(Profile::from_json(&without, "run".as_ref()).expect("it is one").digests, []);
    gpu.disable();
    gpu.checksums().record_digest("Softmax", 2, 6, &output);
    assert_eq!(gpu.checksums().digests().len(), 0);
}

#[test]
fn what_was_observed_by_other_means_is_kept_as_that() {
    let profiler = BrickProfiler::new();
    assert_eq!((profiler.l2_cache_hit_rate(), profiler.is_zero_copy()), (None, false));
    // What nobody noted is not `false` in the file.
    assert_eq!(profiler.profile().observed.zero_copy, None);
    profiler.set_zero_copy(false);
    assert_eq!(profiler.profile().observed.zero_copy, Some(false));
    profiler.set_l2_cache_hit_rate(1.5);
    profiler.set_zero_copy(true);
    assert_eq!((profiler.l2_cache_hit_rate(), profiler.is_zero_copy()), (Some(1.0), true));
    profiler.set_l2_cache_hit_rate(f32::NAN);
    assert_eq!(profiler.l2_cache_hit_rate(), None);
}
