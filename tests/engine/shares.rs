//! The shares of the pool's threads in the graph of a pass.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use brickscope::{BrickProfiler, ExecutionNode, Phase};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{Model, Session};
use brickscope_kernels::Kernels;

#[test]
fn every_kernel_that_threads_share_has_their_shares_inside() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/models/tiny-Q8_0.gguf");
    let model = Model::open(&path).expect("a fixture");
    let n_threads = 3;
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::new(n_threads).expect("not 0"));
    let mut session = Session::new(&model, cpu.expect("threads"), 8).expect("it fits");
    let profiler = Arc::new(BrickProfiler::enabled());
    session.profile_shares(Some(&profiler));
    session.forward_profiled(&profiler, &[1]).expect("it runs");
    session.forward_profiled(&profiler, &[2]).expect("it runs");
    session.profile_shares(None);
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));

    let pass = profile.typical_pass(Phase::Decode).expect("one was decoded");
    let graph = profile.execution_graph(pass.serial).expect("it was kept");
    let schedule = graph.schedule().expect("no cycle");
    assert_eq!(schedule.makespan_ns(), pass.wall_ns);
    let mut shared = 0;
    for (id, node) in graph.kernel_nodes() {
        let is_shared = matches!(
            &node,
            ExecutionNode::Routine { launch, .. } if launch.threads == n_threads as u32
        );
        let inside: Vec<String> =
            graph.inside(id).filter_map(|id| graph.node(id)).map(|node| node.name()).collect();
        let inside: Vec<_> = inside.iter().filter(|name| name.starts_with("share")).collect();
        let expected = if is_shared { n_threads } else { 0 };
        assert_eq!(inside.len(), expected, "{}: {inside:?}", node.name());
        shared += usize::from(is_shared);
        // Each on a thread of its own.
        let mut lanes: Vec<_> = graph.inside(id).filter_map(|id| graph.time(id)).collect();
        lanes.sort_by_key(|time| time.lane);
        lanes.dedup_by_key(|time| time.lane);
        assert_eq!(lanes.len(), expected);
    }
    // Seven matrices in each layer, and the head.
    assert_eq!(shared, 7 * model.config.n_layers + 1);

    // Unwatched, nothing of it is left.
    profiler.reset();
    session.forward_profiled(&profiler, &[3]).expect("it runs");
    assert!(profiler.profile().dependencies.is_empty());
}
