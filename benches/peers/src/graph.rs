//! What building and analysing an execution graph costs, and beside the predecessor's. Run it with
//! `cargo bench --bench graph` at the root of the repository.
//!
//! The graph is that of decoding: passes of 22 layers of twelve bricks of one kernel each, in sequence.
//! Each figure is the least of some rounds, in which the things to compare take turns.

use std::hint::black_box;
use std::time::Instant;

use brickscope::ExecutionGraph;

const LAYERS: u32 = 22;
/// The bricks of a layer, by their number: RmsNorm to OutputProjection, RmsNorm to DownProjection.
const BRICKS: [usize; 12] = [0, 2, 3, 4, 5, 6, 7, 0, 8, 9, 10, 11];

/// A graph of at least so many nodes, made with the calls that both libraries have.
macro_rules! decode_graph {
    ($library:path, $n_nodes:expr) => {{
        use $library as library;
        let mut graph = library::ExecutionGraph::new();
        let mut before = None;
        'all: loop {
            for index in 0..LAYERS {
                let layer = graph.push_scope(library::ExecutionNode::Layer { index });
                if let Some(before) = before.replace(layer) {
                    graph.add_edge(before, layer, library::EdgeType::Sequence);
                }
                let mut last = None;
                for (i, number) in BRICKS.into_iter().enumerate() {
                    let (id, timing_ns) = (library::BrickId::ALL[number], 1_000 + 10 * i as u64);
                    let node = library::ExecutionNode::Brick { id, timing_ns, elements: 1 };
                    let brick = graph.push_scope(node);
                    if let Some(last) = last.replace(brick) {
                        graph.add_edge(last, brick, library::EdgeType::Sequence);
                    }
                    graph.record_kernel_launch_with_metrics(
                        "q4_k_gemv_avx2",
                        1,
                        (32, 1, 1),
                        (256, 1, 1),
                        4096,
                        timing_ns - 5,
                        3.5,
                        0.02,
                    );
                    graph.pop_scope();
                }
                graph.pop_scope();
                if graph.num_nodes() >= $n_nodes {
                    break 'all;
                }
            }
        }
        graph
    }};
}

fn ours(n_nodes: usize) -> brickscope::ExecutionGraph {
    decode_graph!(brickscope, n_nodes)
}

fn theirs(n_nodes: usize) -> trueno::brick::ExecutionGraph {
    decode_graph!(trueno::brick, n_nodes)
}

/// Seconds that `run` takes.
fn seconds<R>(run: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = run();
    (start.elapsed().as_secs_f64(), result)
}

/// Path and slack, as both libraries offer them.
fn analyse(graph: &ExecutionGraph) -> u64 {
    let (path, total) = graph.critical_path();
    black_box((path, graph.compute_slack()));
    total
}

fn main() {
    println!("targets: 1 million nodes in 1 s, 10 million in 10 s, 100 bytes a node\n");
    println!("{:42} {:>10} {:>10} {:>12}", "", "1 million", "10 million", "ratio");
    let [small, large] = [(1_000_000, 5), (10_000_000, 2)].map(|(n, rounds)| {
        let mut best = [f64::INFINITY; 4];
        let mut bytes = 0.0;
        for _ in 0..rounds {
            let (build, graph) = seconds(|| ours(n));
            let (path, _) = seconds(|| black_box(graph.critical_path()));
            let (slack, _) = seconds(|| black_box(graph.compute_slack()));
            let (all, _) = seconds(|| {
                let schedule = graph.schedule().expect("no cycle");
                black_box((schedule.critical_path(), schedule.slack()));
                black_box(
                    graph.roofline_distance(1.0, 100.0).len() + graph.detect_ping_pong().len(),
                )
            });
            for (best, now) in best.iter_mut().zip([build, path, slack, all]) {
                *best = best.min(now);
            }
            bytes = graph.heap_bytes() as f64 / graph.num_nodes() as f64;
        }
        (best, bytes)
    });
    let names = ["build", "critical_path", "compute_slack", "all analyses, one schedule"];
    for (i, name) in names.into_iter().enumerate() {
        let (a, b) = (small.0[i], large.0[i]);
        let met = if a <= 1.0 && b <= 10.0 { "" } else { "  MISSED" };
        println!("{name:42} {a:>9.3}s {b:>9.3}s {:>12.1}{met}", b / a);
    }
    let met = if large.1 <= 100.0 { "" } else { "  MISSED" };
    println!(
        "{:42} {:>10.1} {:>10.1}{met}",
        "bytes a node, with edges and index", small.1, large.1
    );

    let n = 10_000;
    let (graph, other) = (ours(n), theirs(n));
    let (mut here, mut there) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        here = here.min(seconds(|| analyse(&graph)).0);
        let run = || black_box((other.critical_path(), other.compute_slack())).1.len();
        there = there.min(seconds(run).0);
    }
    let ratio = there / here;
    let met = if ratio >= 50.0 { "" } else { "  MISSED" };
    println!(
        "\npath and slack of {n} nodes: {:.2} ms, the predecessor {:.1} ms: {ratio:.0} x (50){met}",
        1e3 * here,
        1e3 * there
    );
}
