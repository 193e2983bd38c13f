//! What the parts of the handle promise each other. Promises to callers are in `tests/recorder/promises.rs`.

use brickscope_profile::{
    BrickCategory, BrickId, ExecutionNode, Phase, TileLevel, TransferDirection, Work,
};

use super::*;
use crate::clock::MockClock;
use crate::device::{SimulatedDevice, StreamId};

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
fn what_making_a_log_took_is_known_and_forgotten_by_a_reset() {
    let profiler = BrickProfiler::enabled();
    let before = profiler.clock().now();
    profiler.prepare_thread();
    let after = profiler.clock().now();
    let made = profiler.profile().overhead.preparations;
    let [of] = made[..] else { panic!("{made:?}") };
    assert!(of.start_ns >= before && of.start_ns + of.duration_ns <= after, "{made:?}");
    profiler.stop_brick(profiler.start_brick(BrickId::RmsNorm), 1);
    assert_eq!(profiler.profile().overhead.preparations, made);
    profiler.reset();
    profiler.stop_brick(profiler.start_brick(BrickId::RmsNorm), 1);
    assert_eq!(profiler.profile().overhead.preparations, []);
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
fn the_graph_has_what_timers_recorded_while_it_was_on() {
    let (profiler, hand) = on();
    let gemv = profiler.kernel("gemv", None);
    let run = |nanos: u64| {
        let pass = profiler.begin_pass(Phase::Decode);
        let layer = profiler.begin_layer(3);
        let brick = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
        hand.advance(nanos);
        profiler.stop_brick_kernel(brick, Work::elements(4));
        profiler.end_layer(layer);
        hand.advance(1);
        profiler.end_pass(pass, 1, 0);
    };
    run(1_000);
    assert_eq!(profiler.execution_graph().num_nodes(), 0, "it is off");
    profiler.enable_graph();
    hand.advance(1);
    // Copied before the passes.
    profiler.graph().record_transfer("host", "device", 64, TransferDirection::H2D, Some(50));
    run(10);
    run(20);
    let brick = profiler.start_brick(BrickId::LmHead);
    hand.advance(7);
    profiler.stop_brick(brick, 1);
    profiler.disable_graph();
    hand.advance(1);
    run(2_000);

    let graph = profiler.execution_graph();
    let names: Vec<_> = graph.nodes().map(|node| node.name()).collect();
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(
        [count("Decode pass"), count("QkvProjection"), count("gemv"), count("LmHead")],
        [2, 2, 2, 1],
        "{names:?}"
    );
    let (path, total) = graph.critical_path();
    // The copy, two passes with a nanosecond each that no brick explains, and the last brick.
    assert_eq!(total, 50 + 11 + 21 + 7);
    let on_path: Vec<_> = path.iter().filter_map(|&id| Some(graph.node(id)?.name())).collect();
    assert!(on_path.iter().filter(|name| *name == "gemv").count() == 2, "{on_path:?}");
    assert!(graph.to_ascii_tree().contains("gemv"), "{}", graph.to_ascii_tree());
    assert_eq!(profiler.graph_to_dot(), graph.to_dot());
    // The profile has them as spans.
    let by_hand = profiler.profile().graph.expect("the copy");
    assert_eq!(by_hand.num_nodes(), 1);

    // Layers or bricks by hand are the graph.
    profiler.enable_graph();
    profiler.graph_record_brick(BrickId::RmsNorm, 5, 1);
    assert_eq!(profiler.execution_graph().num_nodes(), 2);
    profiler.graph_clear();
    assert_eq!(profiler.execution_graph().num_nodes(), 0);
    hand.advance(1);
    run(3);
    assert!(profiler.execution_graph().node_by_name("gemv").is_some());
}

#[test]
fn a_graph_is_built_by_hand_though_the_profiler_is_off() {
    let profiler = BrickProfiler::new();
    profiler.enable_graph();
    profiler.graph_push_scope(ExecutionNode::Layer { index: 0 });
    profiler.graph_record_brick(BrickId::LmHead, 10, 1);
    profiler.graph_record_kernel("gemv", 7, (1, 1, 1), (1, 1, 1), 0);
    profiler.graph_pop_scope();
    assert_eq!(profiler.execution_graph().num_nodes(), 3);
    assert!(!profiler.is_enabled());
}

#[test]
fn sums_of_bricks_have_those_of_devices_and_the_graph_their_passes() {
    let mut device = SimulatedDevice::new(1).with_issue(0).with_stamp(0, 0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    profiler.enable_graph();
    let mut timer = profiler.device().timer(&mut device).expect("it has a clock");
    let gemv = profiler.device_kernel("gemv", Default::default());
    let pass = profiler.begin_pass(Phase::Decode);
    let wait = profiler.start("DeviceWait");
    timer.begin_pass(&mut device, Phase::Decode, 1, 7).expect("room");
    timer
        .brick(&mut device, StreamId(0), Some(0), BrickId::AttentionScore, Work::elements(8))
        .expect("room");
    timer.kernel(&mut device, StreamId(0), gemv, Work::elements(8)).expect("room");
    device.launch(StreamId(0), 500);
    timer.end_pass(&mut device).expect("room");
    timer.settle(&mut device, true).expect("it is there");
    profiler.stop(wait, 0);
    profiler.end_pass(pass, 1, 7);
    let stats = profiler.brick_stats(BrickId::AttentionScore);
    assert_eq!((stats.count, stats.total_elements), (1, 8));
    let categories = profiler.category_stats();
    assert_eq!(categories[BrickCategory::Attention as usize].total_ns, stats.total_ns);
    assert_eq!(stats.total_ns, 500);
    // The host waited meanwhile: its time counts, and not the device's once more.
    let wait = profiler.stats("DeviceWait").expect("it ran");
    assert_eq!((profiler.total_ns(), profiler.total_tokens()), (wait.total_ns, 0));
    assert!(wait.total_ns >= 500, "{wait:?}");
    let json: serde_json::Value = serde_json::from_str(&profiler.to_json()).expect("JSON");
    assert_eq!(json["total_ns"], wait.total_ns);
    let names = |list: &str| json[list].as_array().map(|rows| rows[0]["name"].clone());
    assert_eq!(names("bricks"), Some("DeviceWait".into()));
    assert_eq!(names("device_bricks"), Some("AttentionScore".into()));
    let summary = profiler.summary();
    assert!(summary.contains("On devices"), "{summary}");
    let graph = profiler.execution_graph();
    let names: Vec<_> = graph.nodes().map(|node| node.name()).collect();
    assert!(names.iter().any(|name| name == "AttentionScore"), "{names:?}");
    assert!(!names.iter().any(|name| name == "DeviceWait"), "{names:?}");
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

#[test]
fn a_brick_and_its_kernel_follow_another_pair_without_a_gap() {
    let (profiler, hand) = on();
    let [gemv, add, store] = ["gemv", "add", "store"].map(|name| profiler.kernel(name, None));
    let cache = profiler.named_brick("KvCache", BrickCategory::Attention);
    let timer = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
    hand.advance(70);
    let timer = profiler.lap_kernel(timer, Work::elements(4), cache, store);
    hand.advance(5);
    let timer = profiler.lap_kernel(timer, Work::elements(2), BrickId::OutputProjection, gemv);
    hand.advance(20);
    // More than one kernel before the lap.
    let timer = profiler.next_kernel(timer, Work::elements(3), add);
    hand.advance(1);
    let timer = profiler.lap_kernel(timer, Work::elements(6), cache, store);
    hand.advance(8);
    profiler.stop_brick_kernel(timer, Work::elements(2));

    let profile = profiler.profile();
    let sums = |name: &str| {
        let found = profile.totals.iter().find(|total| total.stats.name == name);
        let stats = &found.expect("it ran").stats;
        (stats.count, stats.total_ns, stats.total_elements)
    };
    assert_eq!(sums("QkvProjection"), (1, 70, 4));
    assert_eq!(sums("OutputProjection"), (1, 21, 6));
    assert_eq!((sums("KvCache"), sums("store")), ((2, 13, 4), (2, 13, 4)));
    assert_eq!((sums("gemv"), sums("add")), ((2, 90, 7), (1, 1, 0)));
    assert!(profile.spans.windows(2).all(|two| two[0].start_ns <= two[1].start_ns));

    // Off, nothing is timed; turned on meanwhile, the next one is.
    profiler.disable();
    let timer = profiler.start_brick_kernel(BrickId::LmHead, gemv);
    profiler.enable();
    let timer = profiler.lap_kernel(timer, Work::default(), cache, store);
    hand.advance(1);
    profiler.stop_brick_kernel(timer, Work::default());
    assert_eq!(profiler.brick_stats(BrickId::LmHead).count, 0);
    assert_eq!(profiler.stats("KvCache").expect("it ran").count, 3);
}

/// A pass of two layers, of which one has a brick of one kernel.
fn small_pass(profiler: &BrickProfiler, hand: &MockClock) -> PassTimer {
    let gemv = profiler.kernel("gemv", None);
    let pass = profiler.begin_pass(Phase::Decode);
    for layer in 0..2 {
        let layer = profiler.begin_layer(layer);
        let timer = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
        hand.advance(10);
        profiler.stop_brick_kernel(timer, Work::elements(1));
        profiler.end_layer(layer);
    }
    hand.advance(3);
    pass
}

#[test]
fn of_a_discarded_pass_nothing_is_left() {
    let (profiler, hand) = on();
    profiler.sum_layers(true);
    profiler.discard_pass(small_pass(&profiler, &hand));
    profiler.end_pass(small_pass(&profiler, &hand), 1, 7);
    // In the middle of the pass its bricks are there, as those of any open pass.
    let open = small_pass(&profiler, &hand);
    assert_eq!(profiler.brick_stats(BrickId::QkvProjection).count, 4);
    profiler.discard_pass(open);

    let profile = profiler.profile();
    profile.check().expect("it adds up");
    assert_eq!(profile.dropped, brickscope_profile::Dropped::default());
    assert_eq!((profile.passes.len(), profile.passes[0].position), (1, 7));
    assert_eq!((profile.phases[0].attributed_ns, profile.phases[0].unattributed_ns), (20, 3));
    assert_eq!(profile.spans.len(), 6);
    assert!(profile.spans.iter().all(|span| span.pass == Some(profile.passes[0].serial)));
    for total in &profile.totals {
        assert_eq!((total.stats.count, total.phase), (2, Some(Phase::Decode)), "{total:?}");
    }
    let snapshot = profiler.snapshot();
    assert_eq!(snapshot.layers.iter().map(|brick| brick.count).sum::<u64>(), 2);
    assert_eq!(snapshot.brick_kernels.iter().map(|kernel| kernel.count).sum::<u64>(), 2);
}
