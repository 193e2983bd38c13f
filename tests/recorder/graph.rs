//! The execution graph: a schedule that independent computations agree with, contained time that counts once, and
//! exact slack.

use brickscope::{
    BrickId, BrickProfiler, Dependency, EdgeType, ExecutionGraph, ExecutionNode, ExecutionNodeId,
    Lane, MockClock, Name, NameKind, NodeTime, Pass, Phase, Point, Profile, Source, Span,
    TransferDirection, Work,
};
use proptest::prelude::*;

fn brick(id: BrickId, timing_ns: u64) -> ExecutionNode {
    ExecutionNode::Brick { id, timing_ns, elements: 1 }
}

/// Two paths from the projection to the end, one longer by 100 µs.
fn diamond() -> ExecutionGraph {
    let mut graph = ExecutionGraph::new();
    let [norm, qkv, score, gate] = [
        (BrickId::RmsNorm, 100_000),
        (BrickId::QkvProjection, 200_000),
        (BrickId::AttentionScore, 300_000),
        (BrickId::GateProjection, 400_000),
    ]
    .map(|(id, ns)| graph.add_node(brick(id, ns)));
    graph.add_dependency(norm, qkv);
    graph.add_dependency(qkv, score);
    graph.add_dependency(qkv, gate);
    graph
}

#[test]
fn the_summary_has_the_layout_that_existing_readers_know() {
    assert_eq!(
        diamond().critical_path_summary(),
        "Critical Path: 0.70ms (3 nodes)\n\
         ──────────────────────────────────────────────────\n\
         ┌ RmsNorm (100.0µs)\n\
         │ QkvProjection (200.0µs)\n\
         └ GateProjection (400.0µs)\n\
         \n\
         Parallelization Opportunities (high slack):\n  \
           AttentionScore slack=100.0µs\n"
    );
}

#[test]
fn slack_is_reported_for_every_node_in_order() {
    let graph = diamond();
    let (path, total) = graph.critical_path();
    assert_eq!((path.len(), total), (3, 700_000));
    let slack = graph.compute_slack();
    let nodes: Vec<_> = slack.iter().map(|(id, &ns)| (id.0, ns)).collect();
    assert_eq!(nodes, [(0, 0), (1, 0), (2, 100_000), (3, 0)]);
    for (node_id, slack_ns) in &slack {
        assert_eq!(slack.get(&node_id), Some(slack_ns));
    }
}

/// A layer of two bricks, each with a timed kernel inside.
#[test]
fn contained_time_counts_once_and_the_path_names_what_is_innermost() {
    let mut graph = ExecutionGraph::new();
    graph.push_scope(ExecutionNode::Layer { index: 0 });
    let mut bricks = Vec::new();
    for (id, ns, kernel_ns) in [(BrickId::QkvProjection, 200, 190), (BrickId::Activation, 50, 10)] {
        let brick = graph.push_scope(brick(id, ns));
        graph.record_kernel_launch_with_metrics(
            "k",
            1,
            (1, 1, 1),
            (1, 1, 1),
            0,
            kernel_ns,
            1.0,
            1.0,
        );
        graph.pop_scope();
        bricks.push(brick);
    }
    graph.pop_scope();
    graph.add_edge(bricks[0], bricks[1], EdgeType::Sequence);
    let schedule = graph.schedule().expect("no cycle");
    assert_eq!(schedule.makespan_ns(), 250);
    let steps: Vec<_> =
        schedule.critical_path().iter().map(|s| (s.node.0, s.own_ns, s.is_around_others)).collect();
    assert_eq!(steps, [(2, 190, false), (1, 10, true), (4, 10, false), (3, 40, true)]);
    // The projection is its kernel; the activation is mostly something else.
    let (path, _) = graph.critical_path();
    assert_eq!(path.iter().map(|id| id.0).collect::<Vec<_>>(), [2, 4, 3]);
}

#[test]
fn a_cycle_is_reported_with_its_nodes_and_has_no_path() {
    let mut graph = diamond();
    graph.add_dependency(ExecutionNodeId(3), ExecutionNodeId(0));
    let cycle = graph.schedule().expect_err("it goes round");
    assert_eq!(cycle.nodes.len(), 3);
    assert_eq!(
        cycle.to_string(),
        "the graph has a cycle, so it has no path: RmsNorm (node 0) → QkvProjection (node 1) → \
         GateProjection (node 3) → RmsNorm"
    );
    assert_eq!(graph.critical_path(), (Vec::new(), 0));
    assert!(graph.compute_slack().is_empty());
    assert!(graph.critical_path_summary().starts_with("the graph has a cycle"));
    // What waits for the end of what it lies in goes round, too.
    let mut graph = ExecutionGraph::new();
    let outer = graph.push_scope(brick(BrickId::LmHead, 5));
    let inner = graph.add_node_in_scope(brick(BrickId::RmsNorm, 5));
    graph.add_dependency(outer, inner);
    assert!(graph.schedule().is_err());
}

#[test]
fn a_chain_of_a_hundred_thousand_nested_nodes_needs_no_stack() {
    let mut graph = ExecutionGraph::new();
    for _ in 0..100_000 {
        graph.push_scope(brick(BrickId::RmsNorm, 7));
    }
    assert_eq!(graph.schedule().map(|s| s.makespan_ns()), Ok(7));
    for _ in 0..100_000 {
        graph.pop_scope();
    }
    assert!(graph.is_scope_balanced());
}

#[test]
fn a_deep_nest_is_reported_under_the_brick_around_it() {
    let mut graph = ExecutionGraph::new();
    graph.push_scope(brick(BrickId::LmHead, 9));
    for i in 0..50_000 {
        graph.push_scope(ExecutionNode::Function { name: format!("f{i}"), file: None, line: None });
    }
    graph.record_kernel_launch_with_metrics("k", 1, (1, 1, 1), (1, 1, 1), 0, 8, 1.0, 1.0);
    let table = brickscope_analysis::view::critical_path(&graph, &[("LmHead".to_owned(), 0.5)]);
    assert!(table.contains("LmHead › k"), "{table}");
    assert!(table.contains("between the kernels of bricks"), "{table}");
    // Half of 8 is 4, and half of 1 is rounded up.
    assert!(
        table.contains("what if LmHead × 0.5 (1 node): 0.005 µs instead of 0.009 (-0.004)"),
        "{table}"
    );
}

#[test]
fn what_if_changes_all_of_a_name_with_what_is_inside() {
    let graph = diamond();
    let gone = graph.what_if("GateProjection", 0.0).expect("no cycle").expect("it is there");
    // Then the scores decide.
    assert_eq!((gone.before_ns, gone.after_ns, gone.gain_ns()), (700_000, 600_000, 100_000));
    let slower = graph.what_if("AttentionScore", 2.0).expect("no cycle").expect("it is there");
    assert_eq!(slower.gain_ns(), -200_000);
    assert_eq!(graph.what_if("Nothing", 0.5), Ok(None));
}

/// In a graph of decode passes: layers of bricks with a kernel each, in sequence.
#[test]
fn a_node_with_its_edges_and_their_index_takes_less_than_a_hundred_bytes() {
    let mut graph = ExecutionGraph::new();
    let mut before = None;
    while graph.num_nodes() < 100_000 {
        graph.push_scope(ExecutionNode::Layer { index: 0 });
        for id in BrickId::ALL {
            let brick = graph.push_scope(brick(id, 7));
            if let Some(before) = before.replace(brick) {
                graph.add_edge(before, brick, EdgeType::Sequence);
            }
            graph.record_kernel_launch("q4_k_gemv", 7, (32, 1, 1), (256, 1, 1), 4096);
            graph.pop_scope();
        }
        graph.pop_scope();
    }
    assert_eq!(graph.incoming_edges(ExecutionNodeId(2)).count(), 1);
    let each = graph.heap_bytes() / graph.num_nodes();
    assert!((60..=100).contains(&each), "{each}");
}

#[test]
fn edges_and_names_are_found_without_a_search() {
    let mut graph = diamond();
    let qkv = ExecutionNodeId(1);
    let ends = |edges: Vec<brickscope::ExecutionEdge>| -> Vec<_> {
        edges.iter().map(|edge| (edge.src.0, edge.dst.0)).collect()
    };
    assert_eq!(ends(graph.outgoing_edges(qkv).collect()), [(1, 2), (1, 3)]);
    assert_eq!(ends(graph.incoming_edges(qkv).collect()), [(0, 1)]);
    let again = graph.add_node(brick(BrickId::RmsNorm, 1));
    graph.add_weighted_edge(qkv, again, EdgeType::Calls, 0.5);
    assert_eq!(graph.outgoing_edges(qkv).last().map(|edge| edge.weight), Some(0.5));
    assert_eq!(graph.nodes_by_name("RmsNorm").map(|id| id.0).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(graph.node_by_name("RmsNorm").map(|(id, _)| id.0), Some(0));
    assert_eq!(graph.outgoing_edges(ExecutionNodeId(99)).count(), 0);
    assert_eq!(graph.node(ExecutionNodeId(99)), None);
}

#[test]
fn every_kind_of_node_and_edge_comes_back_as_it_was_written() {
    let mut graph = ExecutionGraph::new();
    let nodes = [
        brick(BrickId::Sampling, u64::MAX - 1),
        ExecutionNode::NamedBrick { name: "moe".to_owned(), timing_ns: 0, elements: u64::MAX },
        ExecutionNode::Transfer {
            src: "a".to_owned(),
            dst: "b".to_owned(),
            bytes: 7,
            direction: TransferDirection::D2D,
            timing_ns: None,
        },
        ExecutionNode::Function { name: "f".to_owned(), file: None, line: Some(3) },
        ExecutionNode::Function { name: "f".to_owned(), file: Some("x".to_owned()), line: None },
        ExecutionNode::Layer { index: u32::MAX },
        ExecutionNode::AsyncTask {
            name: "t".to_owned(),
            poll_count: 1,
            yield_count: 2,
            total_poll_ns: 3,
        },
    ];
    let ids: Vec<_> = nodes.iter().map(|node| graph.add_node(node.clone())).collect();
    graph.record_kernel_launch("k", 9, (1, 2, 3), (4, 5, 6), 7);
    graph.record_kernel_launch_with_metrics("k", 9, (1, 2, 3), (4, 5, 6), 7, 8, 0.0, 2.5);
    let transfer = EdgeType::Transfer { bytes: 5, direction: TransferDirection::D2H };
    graph.add_weighted_edge(ids[0], ids[1], transfer, 2.0);
    graph.add_edge(
        ids[2],
        ids[0],
        EdgeType::Transfer { bytes: 0, direction: TransferDirection::D2D },
    );
    graph.set_time(ids[5], NodeTime { start_ns: 1, duration_ns: 2, lane: 3 });
    assert!(graph.nodes().take(nodes.len()).eq(nodes));
    assert_eq!(graph.timing_ns(ids[5]), Some(2));
    let json = serde_json::to_string(&graph).expect("plain data");
    let read: ExecutionGraph = serde_json::from_str(&json).expect("it was written");
    assert_eq!(read, graph);
    assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
}

#[test]
fn a_file_that_names_a_node_that_is_not_there_is_refused() {
    for (text, why) in [
        (
            r#"{"nodes":[],"edges":[{"src":0,"dst":0,"edge_type":{"kind":"calls"},"weight":1.0}]}"#,
            "edge 0 names node 0, but the graph has 0 nodes",
        ),
        (
            r#"{"nodes":[],"edges":[],"times":[[4,0,0,0]]}"#,
            "time 0 names node 4, but the graph has 0 nodes",
        ),
    ] {
        let error = serde_json::from_str::<ExecutionGraph>(text).expect_err("not there");
        assert!(error.to_string().starts_with(why), "{error}");
    }
}

#[test]
fn roofline_distances_are_those_of_the_model() {
    let mut graph = ExecutionGraph::new();
    let mut kernel = |intensity, tflops| {
        graph.record_kernel_launch_with_metrics(
            "matmul_kernel",
            1,
            (128, 1, 1),
            (256, 1, 1),
            16384,
            150_000,
            intensity,
            tflops,
        )
    };
    // 50 FLOPs a byte at 1008 GB/s are 50.4 TFLOP/s; 500 are above the 83 that it can compute.
    let [bandwidth, compute, above, nothing] =
        [(50.0, 42.0), (500.0, 41.5), (1.0, 2.0), (f32::NAN, 1.0)].map(|(i, t)| kernel(i, t));
    let distances = graph.roofline_distance(83.0, 1008.0);
    assert!((distances[&bandwidth] - (1.0 - 42.0 / 50.4)).abs() < 1e-6);
    assert!((distances[&compute] - 0.5).abs() < 1e-6);
    assert_eq!(distances[&above], 0.0);
    assert!(!distances.contains_key(&nothing));
    assert!(graph.roofline_distance(0.0, 0.0).is_empty());
}

/// A pass on one thread, and a share of one brick on another, which the brick waits for.
#[test]
fn the_path_of_a_recorded_pass_crosses_threads() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let pass = profiler.begin_pass(Phase::Decode);
    let norm = profiler.start_brick(BrickId::RmsNorm);
    hand.advance(10);
    profiler.stop_brick(norm, 1);
    let gate = profiler.start_brick(BrickId::GateProjection);
    hand.advance(1);
    let handed = profiler.hand_off();
    let back = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            profiler.take_over(handed);
            let share = profiler.start("share 1");
            hand.advance(100);
            profiler.stop(share, 1);
            profiler.hand_off()
        });
        worker.join().expect("no panic")
    });
    profiler.take_over(back);
    hand.advance(2);
    profiler.stop_brick(gate, 1);
    hand.advance(4);
    profiler.end_pass(pass, 1, 0);

    let profile = profiler.profile();
    assert_eq!(profile.dependencies.len(), 2);
    let graph = profile.execution_graph(profile.passes[0].serial).expect("it was kept");
    let schedule = graph.schedule().expect("no cycle");
    assert_eq!(schedule.makespan_ns(), profile.passes[0].wall_ns);
    let names = |name: &str| graph.node_by_name(name).expect("it is there").0;
    let steps: Vec<_> =
        schedule.critical_path().iter().map(|step| (step.node, step.own_ns)).collect();
    // What the brick did before the hand-off, and after it had the share back.
    let expected = [
        ("RmsNorm", 10),
        ("hand-off", 1),
        ("share 1", 100),
        ("GateProjection", 2),
        ("Decode pass", 4),
    ];
    assert_eq!(steps, expected.map(|(name, ns)| (names(name), ns)));
    assert_eq!(graph.time(names("share 1")).map(|time| time.lane), Some(1));
    // Without the share the brick would be 100 ns shorter.
    let what_if = graph.what_if("share 1", 0.0).expect("no cycle").expect("it is there");
    assert_eq!(what_if.gain_ns(), 100);
    // A file has it, too.
    let read = brickscope::Profile::from_json(&profile.to_json(), "x".as_ref()).expect("written");
    assert_eq!(read, profile);
}

#[test]
fn a_pipeline_of_two_threads_is_in_the_graph_by_its_hand_offs() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let run = |brick, ns| {
        let timer = profiler.start_brick(brick);
        hand.advance(ns);
        profiler.stop_brick(timer, 1);
    };
    let pass = profiler.begin_pass(Phase::Decode);
    run(BrickId::Embedding, 5);
    let handed = profiler.hand_off();
    let back = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            run(BrickId::Sampling, 1); // of something else
            profiler.take_over(handed);
            run(BrickId::UpProjection, 30);
            run(BrickId::Activation, 3);
            let back = profiler.hand_off();
            run(BrickId::LayerNorm, 9); // only the pass waits for it
            back
        });
        worker.join().expect("no panic")
    });
    run(BrickId::GateProjection, 20);
    profiler.take_over(back);
    run(BrickId::DownProjection, 7);
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    let graph = profile.execution_graph(profile.passes[0].serial).expect("it was kept");
    assert_eq!(graph.nodes_by_name("Sampling").count(), 0);
    let slack = graph.compute_slack();
    let slack = |name: &str| slack[&graph.node_by_name(name).expect("it is there").0];
    // 5 + 30 + 3 + 9 on the worker; 5 + 20 + 7 on the first thread, of which 7 wait for 38.
    for (name, expected) in [
        ("Embedding", 0),
        ("UpProjection", 0),
        ("LayerNorm", 0),
        ("DownProjection", 47 - 45),
        ("GateProjection", 47 - 7 - 25),
    ] {
        assert_eq!(slack(name), expected, "{name}");
    }
}

/// Lane, time, number among those of the lane, and the span around it.
type Mark = (u32, u64, u32, Option<u32>);

/// A pass on lane 0 from 0 to `wall`. Spans are lane, name, parent, begin and end.
fn recorded(
    wall: u64,
    spans: &[(u32, &str, Option<u32>, u64, u64)],
    hand_offs: &[[Mark; 2]],
) -> ExecutionGraph {
    let mut profile = Profile::empty(Default::default());
    profile.lanes = vec![Lane { name: None, tid: None }; 4];
    profile.passes = vec![Pass {
        serial: 1,
        phase: Phase::Decode,
        lane: 0,
        tokens: 1,
        position: 0,
        start_ns: 0,
        wall_ns: wall,
        attributed_ns: 0,
        unattributed_ns: wall,
        disturbance: None,
        is_left_out: false,
    }];
    for (index, &(lane, name, parent, begin, end)) in (0..).zip(spans) {
        let (name, kind) = (name.to_owned(), NameKind::Brick);
        profile.names.push(Name {
            name,
            kind,
            category: None,
            host: None,
            device: None,
            transfer: None,
        });
        profile.spans.push(Span {
            name: Some(index),
            source: Source::Host,
            lane,
            pass: (lane == 0).then_some(1),
            layer: None,
            parent,
            start_ns: begin,
            duration_ns: end - begin,
            exclusive_ns: 0,
            work: Work::default(),
        });
    }
    for ends in hand_offs {
        let [from, to] = ends.map(|(lane, at_ns, nth, inside)| Point { lane, at_ns, nth, inside });
        profile.dependencies.push(Dependency { from, to });
    }
    profile.execution_graph(1).expect("it has spans")
}

fn gain(graph: &ExecutionGraph, name: &str) -> i128 {
    graph.what_if(name, 0.0).expect("no cycle").expect("it is there").gain_ns()
}

#[test]
fn a_join_inside_the_brick_that_needs_it_is_waited_for() {
    let graph = recorded(
        165,
        &[
            (0, "first", None, 0, 10),
            (0, "up", None, 10, 110),
            (1, "work", None, 10, 160),
            (0, "down", None, 110, 165),
        ],
        &[[(0, 10, 0, None), (1, 10, 0, None)], [(1, 160, 1, None), (0, 160, 1, Some(3))]],
    );
    assert_eq!(graph.schedule().map(|s| s.makespan_ns()), Ok(165));
    assert_eq!((gain(&graph, "work"), gain(&graph, "up"), gain(&graph, "first")), (50, 0, 10));
}

#[test]
fn what_lies_before_a_hand_off_inside_a_brick_is_waited_for() {
    // The brick goes on for 5 after it handed off, and ends long before the worker does.
    let graph = recorded(
        255,
        &[(0, "first", None, 0, 105), (1, "work", None, 100, 250), (0, "last", None, 250, 255)],
        &[[(0, 100, 0, Some(0)), (1, 100, 0, None)], [(1, 250, 1, None), (0, 250, 1, None)]],
    );
    assert_eq!(graph.schedule().map(|s| s.makespan_ns()), Ok(255));
    assert_eq!((gain(&graph, "first"), gain(&graph, "work")), (100, 145));
}

#[test]
fn a_thread_without_spans_between_its_hand_offs_passes_the_order_on() {
    let graph = recorded(
        210,
        &[(1, "a", None, 0, 100), (2, "b", None, 105, 205), (0, "last", None, 205, 210)],
        &[
            [(0, 0, 0, None), (1, 0, 0, None)],
            [(1, 100, 1, None), (0, 100, 1, None)],
            [(0, 105, 2, None), (2, 105, 0, None)],
            [(2, 205, 1, None), (0, 205, 3, None)],
        ],
    );
    assert_eq!(graph.schedule().map(|s| s.makespan_ns()), Ok(210));
    assert_eq!((gain(&graph, "a"), gain(&graph, "b")), (100, 100));
}

#[test]
fn a_worker_that_farms_out_keeps_its_span_and_what_is_inside() {
    let graph = recorded(
        42,
        &[(1, "stage", None, 1, 41), (2, "sub", None, 5, 30), (0, "last", None, 41, 42)],
        &[
            [(0, 1, 0, None), (1, 1, 0, None)],
            [(1, 5, 1, Some(0)), (2, 5, 0, None)],
            [(2, 30, 1, None), (1, 30, 2, Some(0))],
            [(1, 41, 3, None), (0, 41, 1, None)],
        ],
    );
    let node = |name: &str| graph.node_by_name(name).expect("it is there").0;
    assert_eq!(graph.parent(node("sub")), Some(node("stage")));
    assert_eq!((gain(&graph, "sub"), gain(&graph, "stage")), (25, 40));
}

#[test]
fn all_that_a_worker_does_for_a_brick_is_inside_of_it() {
    let graph = recorded(
        31,
        &[
            (0, "outer", None, 0, 30),
            (1, "one", None, 1, 10),
            (1, "two", None, 10, 20),
            (1, "three", None, 20, 29),
        ],
        &[[(0, 1, 0, Some(0)), (1, 1, 0, None)], [(1, 29, 1, None), (0, 29, 1, Some(0))]],
    );
    let outer = graph.node_by_name("outer").expect("it is there").0;
    for name in ["one", "two", "three"] {
        let (id, _) = graph.node_by_name(name).expect("it is there");
        assert_eq!(graph.parent(id), Some(outer), "{name}");
    }
    assert_eq!(graph.what_if("outer", 0.0).expect("no cycle").map(|w| w.after_ns), Some(1));
    // Points order the spans, and no tree shows them.
    assert_eq!(graph.to_ascii_tree().lines().count(), 5);
}

/// A graph of nodes with durations, some inside others, with edges from earlier to later ones only.
fn graphs(least_ns: u64) -> impl Strategy<Value = ExecutionGraph> {
    let node = (least_ns..50, any::<bool>(), any::<prop::sample::Index>(), 0_u8..3);
    let edges =
        prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40);
    (prop::collection::vec(node, 1..25), edges).prop_map(move |(nodes, edges)| {
        let mut graph = ExecutionGraph::new();
        let n = nodes.len();
        for (i, (ns, is_timed, parent, depth)) in nodes.into_iter().enumerate() {
            let id = graph.add_node(ExecutionNode::Function {
                name: format!("n{i}"),
                file: None,
                line: None,
            });
            if is_timed || least_ns > 0 {
                graph.set_time(id, NodeTime { start_ns: 0, duration_ns: ns, lane: 0 });
            }
            if depth > 0 && i > 0 {
                let parent = ExecutionNodeId(parent.index(i) as u32);
                graph.add_edge(parent, id, EdgeType::Contains);
            }
        }
        for (a, b) in edges {
            let (a, b) = (a.index(n) as u32, b.index(n) as u32);
            if a < b {
                graph.add_dependency(ExecutionNodeId(a), ExecutionNodeId(b));
            }
        }
        graph
    })
}

/// The earliest ends, found the slow way: the rules are applied until nothing changes.
fn slowly(graph: &ExecutionGraph, own: &dyn Fn(usize, u64, u64) -> u64) -> Option<Vec<(u64, u64)>> {
    let n = graph.num_nodes();
    let mut times = vec![(0_u64, 0_u64); n];
    // As many rounds as there are events, and one to see that nothing changes any more.
    for _ in 0..2 * n + 1 {
        let before = times.clone();
        for (node, time) in times.iter_mut().enumerate() {
            let (mut begin, mut inner) = (0, 0);
            for edge in graph.edges() {
                let (src, dst) = (edge.src.0 as usize, edge.dst.0 as usize);
                let nests = edge.edge_type == EdgeType::Contains;
                if dst == node {
                    begin = begin.max(if nests { before[src].0 } else { before[src].1 });
                }
                if src == node && nests {
                    inner = inner.max(before[dst].1);
                }
            }
            let inner = inner.max(begin);
            *time = (begin, inner + own(node, begin, inner));
        }
        if times == before {
            return Some(times);
        }
    }
    None
}

proptest! {
    #[test]
    fn the_schedule_is_what_the_rules_say(graph in graphs(0)) {
        let whole = |node: usize| graph.timing_ns(ExecutionNodeId(node as u32)).unwrap_or(0);
        let measured = |node: usize, begin: u64, inner: u64| {
            (begin + whole(node)).max(inner) - inner
        };
        let Some(expected) = slowly(&graph, &measured) else {
            prop_assert!(graph.schedule().is_err());
            return Ok(());
        };
        let Ok(schedule) = graph.schedule() else {
            // Nothing took time on the cycle, so the rules settle all the same.
            return Ok(());
        };
        for (node, &times) in expected.iter().enumerate() {
            prop_assert_eq!(schedule.earliest(ExecutionNodeId(node as u32)), Some(times));
        }
        // At least the longest node, at most the sum of what is nobody else's.
        let makespan = schedule.makespan_ns();
        let longest = (0..graph.num_nodes()).map(whole).max().unwrap_or(0);
        prop_assert!(makespan >= longest);
        let owns = (0..graph.num_nodes()).map(|n| schedule.own_ns(ExecutionNodeId(n as u32)));
        prop_assert!(makespan <= owns.flatten().sum());
        let steps = schedule.critical_path();
        prop_assert_eq!(steps.iter().map(|step| step.own_ns).sum::<u64>(), makespan);
        let slack = schedule.slack();
        for step in &steps {
            prop_assert_eq!(slack[&step.node], 0);
        }
    }

    #[test]
    fn a_cycle_is_reported_if_and_only_if_there_is_one(graph in graphs(1)) {
        // Every node takes time, so the rules never settle on a cycle.
        let own = |node: usize, begin: u64, inner: u64| {
            let whole = graph.timing_ns(ExecutionNodeId(node as u32)).unwrap_or(0);
            (begin + whole).max(inner) - inner
        };
        prop_assert_eq!(graph.schedule().is_ok(), slowly(&graph, &own).is_some());
    }

    #[test]
    fn a_delay_by_the_slack_changes_nothing_and_by_more_just_that(
        graph in graphs(0),
        node in any::<prop::sample::Index>(),
        more in 1_u64..100,
    ) {
        let Ok(schedule) = graph.schedule() else { return Ok(()) };
        let node = ExecutionNodeId(node.index(graph.num_nodes()) as u32);
        let slack = schedule.slack()[&node];
        let delayed = |by: u64| {
            schedule.makespan_if(|id, own| if id == node { own + by } else { own })
        };
        prop_assert_eq!(delayed(0), schedule.makespan_ns());
        prop_assert_eq!(delayed(slack), schedule.makespan_ns());
        prop_assert_eq!(delayed(slack + more), schedule.makespan_ns() + more);
        // An independent computation with the same own times agrees.
        let own = |n: usize, _: u64, _: u64| {
            let id = ExecutionNodeId(n as u32);
            schedule.own_ns(id).unwrap_or(0) + if id == node { slack + more } else { 0 }
        };
        let slow = slowly(&graph, &own).expect("it has a schedule");
        let end = slow.iter().map(|&(_, end)| end).max();
        prop_assert_eq!(end, Some(schedule.makespan_ns() + more));
    }

    #[test]
    fn any_graph_at_all_has_a_schedule_or_a_cycle_that_is_one(
        n in 1_usize..12,
        edges in prop::collection::vec((0_u32..12, 0_u32..12, any::<bool>()), 0..30),
    ) {
        let mut graph = ExecutionGraph::new();
        for _ in 0..n {
            graph.add_node(brick(BrickId::RmsNorm, 1));
        }
        for (a, b, nests) in edges {
            let (a, b) = (ExecutionNodeId(a % n as u32), ExecutionNodeId(b % n as u32));
            let edge = if nests { EdgeType::Contains } else { EdgeType::DependsOn };
            graph.add_edge(a, b, edge);
        }
        match graph.schedule() {
            Ok(schedule) => prop_assert!(schedule.makespan_ns() >= 1),
            Err(cycle) => {
                prop_assert!(!cycle.nodes.is_empty());
                // Each waits for the one before it in some way: there is an edge between them.
                let around = cycle.nodes.iter().zip(cycle.nodes.iter().cycle().skip(1));
                for (a, b) in around {
                    let is_linked = |edge: brickscope::ExecutionEdge| {
                        (edge.src, edge.dst) == (*a, *b) || (edge.src, edge.dst) == (*b, *a)
                    };
                    prop_assert!(graph.edges().any(is_linked), "{:?}", cycle);
                }
            }
        }
    }
}
