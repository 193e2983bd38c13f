//! Bricks and unattributed time add up to the wall time, to the nanosecond, whatever happens.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use brickscope::{
    BrickId, BrickKernel, BrickProfiler, Dropped, MockClock, NameKind, Phase, Profile, Span,
};
use proptest::prelude::*;

use brickscope_testing::nesting::{Step, on, pass, play, steps};

/// Plays one pass. If it `panics`, the panic is caught outside of it.
fn pass_that_may_panic(profiler: &BrickProfiler, hand: &MockClock, steps: &[Step], panics: bool) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let timer = profiler.begin_pass(Phase::Prefill);
        let layer = profiler.begin_layer(7);
        play(profiler, hand, steps);
        if panics {
            std::panic::resume_unwind(Box::new(()));
        }
        profiler.end_layer(layer);
        profiler.end_pass(timer, 1, 0);
    }));
    assert_eq!(result.is_err(), panics);
}

/// The time that some intervals cover, each nanosecond once.
fn covered(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let mut until = 0;
    intervals.into_iter().fold(0, |sum, (start, end)| {
        let new = end.saturating_sub(start.max(until));
        until = until.max(end);
        sum + new
    })
}

/// Plays steps in which only bricks that begin and end here are timed, and notes them by a clock of its own.
fn play_and_note(
    profiler: &BrickProfiler,
    hand: &MockClock,
    now: &mut u64,
    steps: &[Step],
    seen: &mut Vec<(u64, u64)>,
) {
    for step in steps {
        match step {
            Step::Idle(nanos) | Step::Told(nanos) => {
                hand.advance(*nanos);
                *now += nanos;
            }
            Step::Brick(brick, inner) | Step::Forgotten(brick, inner) => {
                let start = *now;
                let timer = profiler.start_brick(BrickId::ALL[*brick]);
                play_and_note(profiler, hand, now, inner, seen);
                if matches!(step, Step::Brick(..)) {
                    profiler.stop_brick(timer, 1);
                    seen.push((start, *now));
                }
            }
            Step::Kernel(inner) | Step::Layer(_, inner) | Step::Panic(_, inner) => {
                let timer = profiler.start_kernel(profiler.kernel("kernel", None));
                play_and_note(profiler, hand, now, inner, seen);
                profiler.stop_kernel(timer, Default::default());
            }
            Step::Deferred(_) => {}
        }
    }
}

/// Kernels by the innermost brick around each, from the spans.
fn by_brick(profile: &Profile) -> Vec<BrickKernel> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    let name_of = |span: &Span| span.name.map(|name| &profile.names[usize::from(name)]);
    let kind_of = |span: &Span| name_of(span).map(|name| name.kind);
    for span in profile.spans.iter().filter(|span| kind_of(span) == Some(NameKind::Kernel)) {
        let mut around = span.parent;
        while let Some(parent) = around.map(|index| &profile.spans[index as usize]) {
            if kind_of(parent) == Some(NameKind::Brick) {
                let pass = profile.passes.iter().find(|pass| Some(pass.serial) == span.pass);
                let key = (pass.map(|pass| pass.phase as u8), parent.name, span.name);
                let (count, total) = sums.entry(key).or_default();
                *count += 1;
                *total += span.duration_ns;
                break;
            }
            around = parent.parent;
        }
    }
    let name =
        |index: Option<u16>| profile.names[usize::from(index.expect("it has one"))].name.clone();
    let phases = Phase::ALL;
    let rows = sums.into_iter().map(|((phase, brick, kernel), (count, total_ns))| BrickKernel {
        phase: phase.map(|phase| phases[usize::from(phase)]),
        brick: name(brick),
        kernel: name(kernel),
        count,
        total_ns,
    });
    rows.collect()
}

fn reconciles(profile: &Profile) {
    if let Err(why) = profile.check() {
        panic!("{why}");
    }
}

proptest! {
    #[test]
    fn on_one_thread(passes in prop::collection::vec(steps(), 1..4)) {
        let (profiler, hand) = on(10_000);
        for (i, steps) in passes.iter().enumerate() {
            // Bricks between passes must not leak into them.
            play(&profiler, &hand, steps);
            pass(&profiler, &hand, Phase::ALL[i % 2], steps);
        }
        let profile = profiler.profile();
        reconciles(&profile);
        let read = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
        prop_assert_eq!(read, profile);
    }

    #[test]
    fn with_passes_that_panic_and_profiles_taken_in_the_middle(
        passes in prop::collection::vec((steps(), any::<bool>()), 1..5),
    ) {
        let (profiler, hand) = on(10_000);
        for (steps, panics) in &passes {
            pass_that_may_panic(&profiler, &hand, steps, *panics);
            let open = profiler.begin_pass(Phase::Decode);
            play(&profiler, &hand, steps);
            let profile = profiler.profile();
            reconciles(&profile);
            prop_assert_eq!(profile.dropped.open_passes, 1);
            profiler.end_pass(open, 1, 0);
        }
        let profile = profiler.profile();
        reconciles(&profile);
        let abandoned = passes.iter().filter(|(_, panics)| *panics).count() as u64;
        prop_assert_eq!(profile.dropped.abandoned_passes, abandoned);
        prop_assert_eq!(profile.dropped.open_passes, 0);
        let count = |phase| profile.phase(phase).map_or(0, |total| total.passes);
        prop_assert_eq!(count(Phase::Decode), passes.len() as u64);
        prop_assert_eq!(count(Phase::Prefill), passes.len() as u64 - abandoned);
    }

    #[test]
    fn what_is_attributed_is_what_bricks_cover_by_an_independent_count(steps in steps()) {
        let (profiler, hand) = on(0);
        let (mut now, mut seen) = (0, Vec::new());
        let timer = profiler.begin_pass(Phase::Prefill);
        play_and_note(&profiler, &hand, &mut now, &steps, &mut seen);
        profiler.end_pass(timer, 1, 0);
        let profile = profiler.profile();
        reconciles(&profile);
        let total = profile.phase(Phase::Prefill).expect("there was a pass");
        prop_assert_eq!(total.wall_ns, now);
        prop_assert_eq!(total.attributed_ns, covered(seen));
    }

    #[test]
    fn on_many_threads_at_once(threads in prop::collection::vec(steps(), 2..5)) {
        // One clock for all: what others do is idle time here, which is the point.
        let (profiler, hand) = on(10_000);
        std::thread::scope(|scope| {
            for steps in &threads {
                scope.spawn(|| pass(&profiler, &hand, Phase::Decode, steps));
            }
        });
        let profile = profiler.profile();
        reconciles(&profile);
        prop_assert_eq!(profile.phases[0].passes, threads.len() as u64);
    }

    #[test]
    fn a_snapshot_has_the_sums_of_the_profile(
        passes in prop::collection::vec((steps(), any::<bool>(), 1u64..3), 1..5),
        sums_only in any::<bool>(),
    ) {
        let (profiler, hand) = on(10_000);
        // What is only summed is the same.
        let (small, other_hand) = on(if sums_only { 0 } else { 3 });
        for (profiler, hand) in [(&profiler, &hand), (&small, &other_hand)] {
            profiler.sum_layers(true);
            for (i, (steps, panics, tokens)) in passes.iter().enumerate() {
                play(profiler, hand, steps);
                pass_that_may_panic(profiler, hand, steps, *panics);
                let timer = profiler.begin_pass(Phase::ALL[i % 2]);
                play(profiler, hand, steps);
                profiler.end_pass(timer, *tokens, if i == 2 { 1 } else { 0 });
            }
        }
        let (profile, snapshot) = (profiler.profile(), profiler.snapshot());
        reconciles(&snapshot);
        prop_assert_eq!(&snapshot.phases, &profile.phases);
        prop_assert_eq!(&snapshot.totals, &profile.totals);
        // A prompt counts once something has come after it.
        let (counted, prompts) =
            (snapshot.latency.first_token.count, profile.latency.first_token.count);
        let goes_on = profile.passes.last().is_some_and(|pass| pass.phase == Phase::Prefill);
        prop_assert_eq!(counted + u64::from(goes_on), prompts);
        profiler.end_pass(profiler.begin_pass(Phase::Decode), 0, 0);
        let (profile, snapshot) = (profiler.profile(), profiler.snapshot());
        let [latency, expected] = [&snapshot, &profile].map(|of| {
            let mut latency = of.latency.clone();
            // One of them is summed in whole numbers.
            let deviations = [&mut latency.first_token, &mut latency.per_token]
                .map(|durations| durations.std_dev_ns.take().map(|dev| (1e3 * dev).round() as u64));
            (latency.first_token, latency.per_token, deviations)
        });
        prop_assert_eq!(latency, expected);
        prop_assert_eq!(&snapshot.layers, &profile.by_layer());
        prop_assert_eq!(&snapshot.brick_kernels, &by_brick(&profile));
        prop_assert_eq!(snapshot.passes.first(), profile.passes.last());
        prop_assert!(snapshot.spans.is_empty() && profile.layers.is_empty());
        let small = small.snapshot();
        prop_assert_eq!(&small.layers, &snapshot.layers);
        prop_assert_eq!(&small.brick_kernels, &snapshot.brick_kernels);
        prop_assert_eq!(&small.totals, &snapshot.totals);
    }

    #[test]
    fn with_a_log_too_small_for_the_spans(steps in steps()) {
        let (profiler, hand) = on(2);
        pass(&profiler, &hand, Phase::Decode, &steps);
        let profile = profiler.profile();
        reconciles(&profile);
        prop_assert!(profile.spans.len() <= 2);
    }
}

#[test]
fn time_outside_of_bricks_is_shown_and_time_inside_is_not_counted_twice() {
    let (profiler, hand) = on(100);
    let step = Step::Brick(
        BrickId::QkvProjection as usize,
        vec![Step::Idle(10), Step::Brick(BrickId::RmsNorm as usize, vec![Step::Idle(20)])],
    );
    pass(&profiler, &hand, Phase::Decode, &[Step::Idle(5), step, Step::Idle(2)]);
    let profile = profiler.profile();
    let total = profile.phase(Phase::Decode).expect("there was a pass");
    assert_eq!((total.wall_ns, total.attributed_ns, total.unattributed_ns), (43, 36, 7));
    let qkv = profiler.brick_stats(BrickId::QkvProjection);
    assert_eq!((qkv.total_ns, qkv.exclusive_ns), (36, 13));
    assert_eq!(profiler.total_ns(), 36);
    let [outer, inner] = profile.spans.as_slice() else { panic!("{:?}", profile.spans) };
    assert_eq!((outer.parent, inner.parent), (None, Some(0)));
}

#[test]
fn what_goes_wrong_is_counted_and_not_hidden() {
    let (profiler, hand) = on(100);
    let forgotten = profiler.start_brick(BrickId::RmsNorm);
    drop(forgotten);
    // Begun here, ended there.
    let moved = profiler.start_brick(BrickId::LmHead);
    hand.advance(10);
    std::thread::scope(|scope| {
        scope.spawn(|| profiler.stop_brick(moved, 1));
    });
    // Begun before the pass, ended in it.
    let straddling = profiler.start_brick(BrickId::Embedding);
    let outer = profiler.begin_pass(Phase::Decode);
    hand.advance(10);
    profiler.stop_brick(straddling, 1);
    let inner = profiler.begin_pass(Phase::Decode);
    profiler.end_pass(inner, 1, 0);
    // Ended in the order of their beginnings.
    let (a, b) = (profiler.start_brick(BrickId::RmsNorm), profiler.start_brick(BrickId::LmHead));
    hand.advance(10);
    profiler.stop_brick(a, 1);
    profiler.stop_brick(b, 1);
    // Later than the end that settles it.
    profiler.record_deferred(BrickId::LmHead, profiler.elapsed_ns() + 1, 1);
    profiler.finalize(profiler.elapsed_ns());
    profiler.end_pass(outer, 1, 0);
    let profile = profiler.profile();
    reconciles(&profile);
    let expected = Dropped {
        unfinished: 1,
        moved: 1,
        straddling: 1,
        nested_passes: 1,
        late: 1,
        ..Dropped::default()
    };
    assert_eq!(profile.dropped, expected);
    // Measured all the same: 10 ns each.
    assert_eq!(profiler.brick_stats(BrickId::LmHead).total_ns, 20);
    assert_eq!(profiler.brick_stats(BrickId::Embedding).total_ns, 10);
    let report = brickscope_analysis::view::report(&profiler.profile());
    assert!(
        report.contains("\nnote: deferred bricks that began after their settling time: 1\n"),
        "{report}"
    );
}

#[test]
fn a_full_log_drops_single_spans_and_says_so_while_sums_stay_exact() {
    let (profiler, _) = on(3);
    for _ in 0..10 {
        let timer = profiler.start_brick(BrickId::LmHead);
        profiler.stop_brick(timer, 2);
    }
    let profile = profiler.profile();
    assert_eq!((profile.spans.len(), profile.dropped.spans), (3, 7));
    let stats = profiler.brick_stats(BrickId::LmHead);
    assert_eq!((stats.count, stats.total_elements), (10, 20));
    assert!(
        brickscope_analysis::view::report(&profiler.profile())
            .contains("note: spans that did not fit the log: 7 (the totals")
    );
}

#[test]
fn turning_off_in_mid_brick_invents_no_time_and_turning_on_neither() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    let before = profiler.start_brick(BrickId::LmHead);
    profiler.enable();
    hand.advance(10);
    profiler.stop_brick(before, 1);
    let during = profiler.start_brick(BrickId::LmHead);
    hand.advance(10);
    profiler.disable();
    profiler.stop_brick(during, 1);
    assert_eq!(profiler.brick_stats(BrickId::LmHead).count, 0);
    assert_eq!(profiler.profile().dropped.unfinished, 1);
}

#[test]
fn a_reset_forgets_everything_and_what_is_open_too() {
    let (profiler, hand) = on(100);
    profiler.enable_tile_profiling();
    let open = profiler.start_brick(BrickId::LmHead);
    play(&profiler, &hand, &[Step::Brick(0, vec![Step::Idle(5)])]);
    let tile = profiler.start_tile(brickscope::TileLevel::Midi, 0, 0);
    profiler.stop_tile(tile, 1, 1);
    profiler.record_checksum("x", 0, 0, &[1.0]);
    profiler.record_deferred(BrickId::LmHead, 0, 1);
    profiler.enable_graph();
    profiler.graph_push_scope(brickscope::ExecutionNode::Layer { index: 0 });
    profiler.reset();
    hand.advance(5);
    profiler.stop_brick(open, 1);
    let profile = profiler.profile();
    assert_eq!(profiler.total_ns(), 0);
    assert_eq!(profile.dropped, Dropped::default());
    assert!(profile.tiles.is_empty() && profile.checksums.is_empty() && profile.graph.is_none());
    assert!(!profiler.has_pending() && profiler.graph_is_scope_balanced());
    assert!(profiler.is_enabled());
}

#[test]
fn an_abandoned_pass_loses_no_brick_and_leaves_no_layer_behind() {
    let (profiler, hand) = on(100);
    let brick = Step::Brick(BrickId::LmHead as usize, vec![Step::Idle(7)]);
    pass_that_may_panic(&profiler, &hand, std::slice::from_ref(&brick), true);
    play(&profiler, &hand, &[brick]);
    let profile = profiler.profile();
    assert!(profile.phases.is_empty());
    let [outside] = profile.bricks(None)[..] else { panic!("{:?}", profile.totals) };
    assert_eq!((outside.stats.count, outside.stats.exclusive_ns), (2, 20));
    let layers: Vec<_> = profile.spans.iter().map(|span| span.layer).collect();
    assert_eq!(layers, [Some(7), None], "the layer that never ended has no span");
}

#[test]
fn an_end_that_has_not_come_yet_explains_no_time_of_the_pass() {
    let (profiler, hand) = on(100);
    let timer = profiler.begin_pass(Phase::Decode);
    profiler.record_deferred(BrickId::LmHead, profiler.elapsed_ns(), 1);
    hand.advance(10);
    profiler.finalize(profiler.elapsed_ns() + 5);
    profiler.end_pass(timer, 1, 0);
    let profile = profiler.profile();
    reconciles(&profile);
    assert_eq!(profile.phases[0].unattributed_ns, 10);
}

#[test]
fn a_brick_around_a_pass_explains_only_what_the_pass_does_not() {
    let (profiler, hand) = on(100);
    let request = profiler.start("Request");
    let brick = Step::Brick(BrickId::LmHead as usize, vec![Step::Idle(87)]);
    pass(&profiler, &hand, Phase::Decode, &[brick, Step::Idle(10)]);
    profiler.stop(request, 1);
    let request = profiler.stats("Request").expect("it was recorded");
    assert_eq!((request.total_ns, request.exclusive_ns), (100, 10));
    assert_eq!(profiler.total_ns(), 100);
}

#[test]
fn names_without_room_are_counted_and_their_kernels_stay_kernels() {
    let (profiler, hand) = on(0);
    for i in 0..5_000 {
        profiler.kernel(&format!("kernel {i}"), None);
    }
    let refused = profiler.profile().dropped.names;
    assert!(refused > 900, "{refused}");
    let timer = profiler.begin_pass(Phase::Decode);
    let brick = profiler.start("a brick too many");
    let kernel = profiler.start_kernel(profiler.kernel("a kernel too many", None));
    hand.advance(10);
    profiler.stop_kernel(kernel, Default::default());
    profiler.stop(brick, 1);
    profiler.end_pass(timer, 1, 0);
    let profile = profiler.profile();
    reconciles(&profile);
    assert_eq!(profile.kernels(Some(Phase::Decode))[0].stats.name, "(other)");
    assert_eq!(profiler.total_ns(), 10);
}

#[test]
fn a_brick_from_another_thread_does_not_adopt_the_bricks_of_this_one() {
    let (profiler, hand) = on(100);
    let moved = std::thread::scope(|scope| {
        scope.spawn(|| profiler.start_brick(BrickId::LmHead)).join().expect("it returns")
    });
    let outer = profiler.start_brick(BrickId::QkvProjection);
    for _ in 0..3 {
        play(&profiler, &hand, &[Step::Brick(BrickId::RmsNorm as usize, vec![])]);
    }
    profiler.stop_brick(moved, 1);
    let unfinished = profiler.start_brick(BrickId::RmsNorm);
    profiler.stop_brick(outer, 1);
    let profile = profiler.profile();
    let parents: Vec<_> = profile.spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(0), Some(0), Some(0)]);
    assert_eq!((profile.dropped.moved, profile.dropped.unfinished), (1, 1));
    drop(unfinished);
}

#[test]
fn threads_that_come_and_go_leave_their_spans_behind() {
    let (profiler, hand) = on(1_000);
    for i in 0..40 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..i {
                    play(&profiler, &hand, &[Step::Brick(0, vec![Step::Idle(1)])]);
                }
            });
        });
    }
    let profile = profiler.profile();
    assert_eq!(profile.spans.len(), (0..40).sum::<usize>());
    assert!(profile.spans.iter().all(|span| span.duration_ns == 4));
    assert_eq!(profile.dropped, Dropped::default());
}

#[test]
fn layers_are_summed_for_threads_that_come_later_and_after_a_reset() {
    let (profiler, hand) = on(0);
    let step = [Step::Layer(2, vec![Step::Brick(0, vec![Step::Idle(1)])])];
    play(&profiler, &hand, &step);
    profiler.sum_layers(true);
    let in_layer = |profiler: &BrickProfiler| {
        let layers = profiler.snapshot().layers;
        layers.iter().map(|row| (row.layer, row.count, row.exclusive_ns)).collect::<Vec<_>>()
    };
    assert_eq!(in_layer(&profiler), [], "only from here on");
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| play(&profiler, &hand, &step));
        });
        play(&profiler, &hand, &step);
    }
    assert_eq!(in_layer(&profiler), [(Some(2), 6, 24)]);
    profiler.reset();
    play(&profiler, &hand, &step);
    assert_eq!(in_layer(&profiler), [(Some(2), 1, 4)]);
    let profiler = profiler.with_log_capacity(0);
    play(&profiler, &hand, &step);
    assert_eq!(in_layer(&profiler), [(Some(2), 1, 4)]);
}

#[test]
fn bricks_that_overlap_share_the_time_without_gap_or_double_count() {
    let (profiler, hand) = on(100);
    let timer = profiler.begin_pass(Phase::Decode);
    let first = profiler.start_brick(BrickId::RmsNorm);
    hand.advance(10);
    let second = profiler.start_brick(BrickId::LmHead);
    hand.advance(10);
    profiler.stop_brick(first, 1);
    hand.advance(10);
    profiler.stop_brick(second, 1);
    profiler.end_pass(timer, 1, 0);
    let profile = profiler.profile();
    reconciles(&profile);
    assert_eq!(profile.phases[0].unattributed_ns, 0);
    assert_eq!(profiler.brick_stats(BrickId::RmsNorm).exclusive_ns, 20);
    assert_eq!(profiler.brick_stats(BrickId::LmHead).exclusive_ns, 10);
    assert_eq!(profile.dropped.overlapping, 1);
}

#[test]
fn a_brick_that_overlaps_another_keeps_its_time_though_a_third_runs_late_inside_it() {
    for (forgotten, crossed_by_kernel) in [(false, false), (true, false), (false, true)] {
        let (profiler, hand) = on(100);
        let gemv = profiler.kernel("gemv", None);
        let pass = profiler.begin_pass(Phase::Decode);
        let kernel = crossed_by_kernel.then(|| profiler.start_kernel(gemv));
        let first = profiler.start_brick(BrickId::RmsNorm);
        if let Some(kernel) = kernel {
            profiler.stop_kernel(kernel, Default::default());
        }
        hand.advance(100);
        let second = profiler.start_brick(BrickId::LmHead);
        if forgotten {
            drop(profiler.start_brick(BrickId::Embedding));
        }
        hand.advance(1);
        profiler.stop_brick(first, 1);
        hand.advance(190);
        let late = profiler.start_brick(BrickId::AttentionScore);
        hand.advance(7);
        profiler.stop_brick(late, 1);
        hand.advance(3);
        profiler.stop_brick(second, 1);
        profiler.end_pass(pass, 1, 0);
        let profile = profiler.profile();
        reconciles(&profile);
        let exclusive = [BrickId::RmsNorm, BrickId::AttentionScore, BrickId::LmHead]
            .map(|brick| profiler.brick_stats(brick).exclusive_ns);
        // Of the 201 ns of the second, the first has one and the third seven.
        assert_eq!(exclusive, [101, 7, 193]);
        assert_eq!((profile.dropped.overlapping, profile.phases[0].unattributed_ns), (1, 0));
        assert_eq!(profile.dropped.unfinished, u64::from(forgotten));
    }
}

#[test]
fn a_timer_that_is_dropped_makes_no_brick_around_it_overlap() {
    let (profiler, hand) = on(1000);
    let outer = profiler.start_brick(BrickId::LmHead);
    for _ in 0..100 {
        let inner = profiler.start_brick(BrickId::RmsNorm);
        drop(profiler.start_brick(BrickId::Embedding));
        hand.advance(1);
        profiler.stop_brick(inner, 1);
    }
    profiler.stop_brick(outer, 1);
    let dropped = profiler.profile().dropped;
    assert_eq!((dropped.overlapping, dropped.unfinished), (0, 100));
    assert_eq!(profiler.brick_stats(BrickId::LmHead).exclusive_ns, 0);
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Begin,
    /// One of those that are open, counted from the last.
    End(usize),
    Drop(usize),
    BeginLayer,
    EndLayer,
    BeginKernel,
    EndKernel,
    Turn(u64),
}

proptest! {
    #[test]
    fn bricks_that_end_in_any_order_share_the_time_as_intervals_do(
        acts in prop::collection::vec(
            prop_oneof![
                5 => Just(Act::Begin),
                5 => (0..5_usize).prop_map(Act::End),
                1 => (0..5_usize).prop_map(Act::Drop),
                1 => Just(Act::BeginLayer),
                1 => Just(Act::EndLayer),
                1 => Just(Act::BeginKernel),
                1 => Just(Act::EndKernel),
                8 => (0..50_u64).prop_map(Act::Turn),
            ],
            1..80,
        ),
    ) {
        let (profiler, hand) = on(10_000);
        let kernel = profiler.kernel("kernel", None);
        let pass = profiler.begin_pass(Phase::Decode);
        let (mut now, mut begun, mut overlapping) = (0, 0, 0);
        let (mut open, mut layers, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let (mut kernels, mut exclusive) = (Vec::new(), Vec::new());
        for act in acts {
            match act {
                Act::Begin => {
                    open.push((begun, now, profiler.start_brick(BrickId::LmHead)));
                    begun += 1;
                }
                Act::End(which) if which < open.len() => {
                    let (order, start, timer) = open.remove(open.len() - 1 - which);
                    profiler.stop_brick(timer, 1);
                    let clipped = |from: u64| {
                        ended
                            .iter()
                            .map(|&(_, _, start, end): &(usize, usize, u64, u64)| (start.max(from), end))
                            .filter(|(start, end)| start < end)
                            .collect::<Vec<_>>()
                    };
                    exclusive.push(now - start - covered(clipped(start)));
                    // Of those that had begun before it, one ended after it began.
                    let crosses = ended
                        .iter()
                        .any(|&(first, begun, _, end)| {
                            first < order && order < begun && start < end && end < now
                        });
                    overlapping += u64::from(crosses);
                    ended.push((order, begun, start, now));
                }
                Act::Drop(which) if which < open.len() => {
                    drop(open.remove(open.len() - 1 - which));
                }
                Act::BeginLayer => layers.push(profiler.begin_layer(1)),
                Act::EndLayer if !layers.is_empty() => {
                    profiler.end_layer(layers.remove(0));
                }
                Act::BeginKernel => kernels.push(profiler.start_kernel(kernel)),
                Act::EndKernel if !kernels.is_empty() => {
                    profiler.stop_kernel(kernels.remove(0), Default::default());
                }
                Act::Turn(nanos) => {
                    hand.advance(nanos);
                    now += nanos;
                }
                _ => {}
            }
        }
        profiler.end_pass(pass, 1, 0);
        let profile = profiler.profile();
        reconciles(&profile);
        let bricks: Vec<u64> = profile
            .spans
            .iter()
            .filter(|span| span.name == Some(BrickId::LmHead as u16))
            .map(|span| span.exclusive_ns)
            .collect();
        let mut sorted = [bricks, exclusive];
        sorted.iter_mut().for_each(|all| all.sort_unstable());
        prop_assert_eq!(&sorted[0], &sorted[1]);
        prop_assert_eq!(profile.dropped.overlapping, overlapping);
        let all: Vec<_> = ended.iter().map(|&(_, _, start, end)| (start, end)).collect();
        prop_assert_eq!(profile.phases[0].unattributed_ns, now - covered(all));
    }
}

#[test]
fn bricks_settled_late_inside_others_add_no_time_to_the_wall() {
    let (profiler, hand) = on(100);
    profiler.reset_epoch();
    let pass = profiler.begin_pass(Phase::Decode);
    hand.advance(5);
    let outer = profiler.start_brick(BrickId::QkvProjection);
    hand.advance(5);
    profiler.record_deferred(BrickId::RmsNorm, profiler.elapsed_ns(), 1);
    hand.advance(10);
    let end = profiler.elapsed_ns();
    play(&profiler, &hand, &[Step::Brick(BrickId::LmHead as usize, vec![Step::Idle(77)])]);
    profiler.finalize(end);
    hand.advance(10);
    profiler.stop_brick(outer, 1);
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    reconciles(&profile);
    assert_eq!((profile.phases[0].wall_ns, profile.phases[0].unattributed_ns), (110, 5));
}

#[test]
fn resets_while_threads_come_and_go_leave_no_half_of_anything() {
    let profiler = BrickProfiler::enabled();
    profiler.watch_load(false);
    let rounds = if cfg!(miri) { 2 } else { 150 };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let few_spans = || {
        for _ in 0..100 {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start_brick(BrickId::LmHead);
            profiler.stop_brick(timer, 1);
            profiler.end_pass(pass, 1, 0);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_stopped() {
                    std::thread::scope(|scope| scope.spawn(few_spans).join()).expect("no panic");
                }
            });
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..rounds {
                profiler.reset();
                std::thread::yield_now();
                reconciles(&profiler.profile());
            }
        }));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        result.expect("each profile adds up");
    });
}

#[test]
fn turning_off_on_a_thread_that_never_recorded_makes_no_lane() {
    let (profiler, hand) = on(100);
    let brick = Step::Brick(BrickId::LmHead as usize, vec![]);
    std::thread::scope(|scope| {
        scope.spawn(|| play(&profiler, &hand, &[brick]));
    });
    profiler.disable();
    assert_eq!(profiler.profile().lanes.len(), 1);
}

#[test]
fn durations_beyond_all_bounds_are_read_back() {
    let (profiler, _) = on(100);
    for _ in 0..2 {
        profiler.record_elapsed("x", std::time::Duration::MAX, 1);
    }
    let profile = profiler.profile();
    let read = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
    assert_eq!(read.totals[0].stats.count, 2);
}

#[test]
fn disturbed_passes_are_left_out_with_bricks_whose_names_had_no_room() {
    let (profiler, hand) = on(100);
    for i in 0..5_000 {
        profiler.kernel(&format!("kernel {i}"), None);
    }
    for _ in 0..2 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start("a name too many");
        hand.advance(10);
        profiler.stop(timer, 1);
        profiler.end_pass(pass, 1, 0);
    }
    let mut profile = profiler.profile();
    let waited = brickscope::Disturbance {
        passes: 1,
        wall_ns: 10,
        longest_wait_ns: Some(10),
        ..Default::default()
    };
    profile.passes[0].disturbance = Some(waited);
    let rest = profile.without_disturbed().expect("all was kept");
    reconciles(&rest);
    assert_eq!((rest.phases[0].passes, rest.dropped.left_out_passes), (1, 1));
}
