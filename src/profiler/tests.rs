//! What the parts of the handle promise each other. Promises to callers are in `tests/promises.rs`.

use brickscope_profile::{BrickId, ExecutionNode, Phase, TileLevel, Work};

use super::*;
use crate::clock::MockClock;
use crate::device::SimulatedDevice;

fn on() -> (BrickProfiler, MockClock) {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    (profiler, hand)
}

#[test]
fn debug_output_is_short_however_much_was_recorded() {
    let (profiler, mut device) = (BrickProfiler::enabled(), SimulatedDevice::new(1));
    let timer = profiler.device().timer(&mut device).expect("it has a clock");
    let pass = profiler.begin_pass(Phase::Decode);
    for _ in 0..100 {
        profiler.stop_brick(profiler.start_brick(BrickId::RmsNorm), 1);
    }
    let mut room = [0; 2];
    let readings = profiler.timestamps_of(&pass, &mut room);
    let texts = [
        format!("{profiler:?}"),
        format!("{profiler:#?}"),
        format!("{:?}", profiler.tiles()),
        format!("{:?}", profiler.brick(BrickId::LmHead)),
        format!("{pass:?}"),
        format!("{readings:?}"),
        format!("{timer:?}"),
    ];
    for text in texts {
        assert!(text.len() <= 300, "{} characters: {text}", text.len());
    }
}

#[test]
fn a_brick_of_several_kernels_that_is_stopped_as_one_of_a_single_kernel_loses_none() {
    let (profiler, hand) = on();
    let [gemv, add] = ["gemv", "add"].map(|name| profiler.kernel(name, None));
    let timer = profiler.start_brick_kernel(BrickId::OutputProjection, gemv);
    hand.advance(70);
    let timer = profiler.next_kernel(timer, Work::elements(4), add);
    hand.advance(20);
    profiler.stop_brick_kernel(timer, Work::elements(6));

    let brick = profiler.brick_stats(BrickId::OutputProjection);
    assert_eq!((brick.count, brick.total_ns, brick.total_elements), (1, 90, 6));
    let profile = profiler.profile();
    let kernels = profile.kernels(None);
    let kernels: Vec<_> = kernels
        .iter()
        .map(|kernel| (&*kernel.stats.name, kernel.stats.total_ns, kernel.stats.total_elements))
        .collect();
    assert_eq!(kernels, [("gemv", 70, 4), ("add", 20, 0)]);
}

#[test]
fn a_brick_of_one_kernel_can_be_stopped_with_work_of_its_own() {
    let (profiler, hand) = on();
    let gemv = profiler.kernel("gemv", None);
    let timer = profiler.start_brick_kernel(BrickId::LmHead, gemv);
    hand.advance(50);
    profiler.stop_kernels(timer, Work::elements(4), Work::elements(6));
    assert_eq!(profiler.brick_stats(BrickId::LmHead).total_elements, 6);
    let profile = profiler.profile();
    let kernel = &profile.kernels(None)[0].stats;
    assert_eq!((kernel.count, kernel.total_ns, kernel.total_elements), (1, 50, 4));
}

#[test]
fn a_name_and_the_number_it_stands_for_are_timed_alike() {
    let (profiler, hand) = on();
    let timer: BrickIdTimer = profiler.start("Rope");
    hand.advance(5);
    profiler.stop_brick_with(timer, Work { elements: 3, flops: 8, bytes: 2, ..Work::default() });
    let timer: BrickTimer = profiler.start_brick(BrickId::RopeEmbedding);
    hand.advance(7);
    profiler.stop(timer, 3);
    let rope = profiler.stats_for(BrickId::RopeEmbedding);
    assert_eq!((rope.count, rope.total_ns, rope.total_elements, rope.total_flops), (2, 12, 6, 8));
}

#[test]
fn the_predecessors_spellings_reach_the_same_state_as_the_handles() {
    let (profiler, hand) = on();

    profiler.enable_graph();
    assert!(profiler.graph().is_enabled() && profiler.is_graph_enabled());
    profiler.graph_push_scope(ExecutionNode::Layer { index: 0 });
    profiler.graph_record_brick(BrickId::LmHead, 10, 1);
    profiler.graph_record_kernel("gemv", 7, (1, 1, 1), (1, 1, 1), 0);
    assert!(!profiler.graph_is_scope_balanced());
    profiler.graph_pop_scope();
    assert!(profiler.graph_is_scope_balanced());
    assert_eq!(profiler.graph_to_dot(), profiler.graph().current().to_dot());
    assert_eq!(profiler.graph().current().num_nodes(), 3);
    profiler.graph_clear();
    assert_eq!(profiler.execution_graph().num_nodes(), 0);
    profiler.disable_graph();
    assert!(!profiler.graph().is_enabled());

    profiler.record_checksum("Rope", 0, 1, &[1.0]);
    assert_eq!(profiler.get_checksums(), profiler.checksums().all());
    assert_eq!(profiler.get_checksums().len(), 1);
    assert_eq!(profiler.find_divergence(&profiler), None);
    profiler.reset_checksums();
    assert_eq!(profiler.checksums().all(), []);

    profiler.enable_tile_profiling();
    let tile = profiler.start_tile(TileLevel::Midi, 0, 0);
    hand.advance(20);
    profiler.stop_tile(tile, 1, 2);
    assert!(profiler.is_tile_profiling_enabled());
    assert_eq!(profiler.tile_stats(TileLevel::Midi).total_ns, 20);
    assert_eq!(profiler.all_tile_stats(), profiler.tiles().all_stats());
    assert_eq!(profiler.tile_summary(), profiler.tiles().summary());
    assert_eq!(profiler.tile_stats_to_json(), profiler.tiles().to_json());
    profiler.reset_tile_stats();
    profiler.disable_tile_profiling();
    assert_eq!(profiler.tiles().stats(TileLevel::Midi).count, 0);
    assert!(!profiler.tiles().is_enabled());

    profiler.reset_epoch();
    profiler.record_deferred(BrickId::LmHead, profiler.elapsed_ns(), 1);
    profiler.record_deferred_dynamic("Copy", profiler.elapsed_ns(), 1);
    assert!(profiler.has_pending());
    assert_eq!((profiler.pending_count(), profiler.device().pending()), (2, 2));
    hand.advance(9);
    profiler.finalize(profiler.elapsed_ns());
    assert_eq!(profiler.device().pending(), 0);
    assert_eq!(profiler.brick_names(), ["LmHead", "Copy"]);
    assert_eq!((profiler.total_ns(), profiler.total_tokens()), (9, 2));
    profiler.print_category_stats();
}
