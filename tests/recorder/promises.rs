//! The promises of the profiler's documentation, each as a test.

use brickscope::{
    BrickCategory, BrickId, BrickIdTimer, BrickProfiler, Dropped, MockClock, Phase, SyncMode, Work,
};

/// A profiler that is on, and its mock clock.
fn on() -> (BrickProfiler, MockClock) {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    (profiler, hand)
}

/// Plays one brick of this many nanoseconds.
fn play(profiler: &BrickProfiler, hand: &MockClock, brick: BrickId, nanos: u64) {
    let timer = profiler.start_brick(brick);
    hand.advance(nanos);
    profiler.stop_brick(timer, 1);
}

#[test]
fn a_deferred_brick_that_was_recorded_is_settled_though_profiling_is_off_by_then() {
    let off: [fn(&BrickProfiler); 2] =
        [BrickProfiler::disable, |profiler| profiler.set_sync_mode(SyncMode::None)];
    for turn_off in off {
        let (profiler, hand) = on();
        profiler.reset_epoch();
        profiler.record_deferred(BrickId::LmHead, profiler.elapsed_ns(), 7);
        assert_eq!(profiler.profile().dropped.unfinished, 1, "it waits to be settled");
        hand.advance(50);
        turn_off(&profiler);
        // Off, so this one is not recorded.
        profiler.record_deferred(BrickId::LmHead, profiler.elapsed_ns(), 7);
        assert_eq!((profiler.pending_count(), profiler.snapshot().dropped.unfinished), (1, 1));
        profiler.finalize(profiler.elapsed_ns());
        let stats = profiler.brick_stats(BrickId::LmHead);
        assert_eq!((stats.count, stats.total_ns, stats.total_elements), (1, 50, 7));
        assert_eq!(profiler.profile().dropped, Dropped::default());
    }
}

#[test]
fn fifteen_bricks_are_known_and_each_has_a_name_of_its_own() {
    assert_eq!(BrickId::COUNT, 15);
    let mut names: Vec<_> = BrickId::ALL.iter().map(|brick| brick.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 15);
}

#[test]
fn every_brick_adds_to_its_own_category_and_to_no_other() {
    for brick in BrickId::ALL {
        let (profiler, hand) = on();
        play(&profiler, &hand, brick, 100);
        for (category, stats) in BrickCategory::ALL.into_iter().zip(profiler.category_stats()) {
            let expected = if category == brick.category() { 100 } else { 0 };
            assert_eq!(stats.total_ns, expected, "{brick} in {category}");
        }
    }
}

#[test]
fn deferred_bricks_wait_until_they_are_settled() {
    let (profiler, hand) = on();
    assert_eq!(profiler.sync_mode(), SyncMode::Deferred);
    for brick in [BrickId::RmsNorm, BrickId::QkvProjection] {
        let start = profiler.elapsed_ns();
        hand.advance(10);
        profiler.record_deferred(brick, start, 1);
    }
    assert_eq!((profiler.has_pending(), profiler.pending_count()), (true, 2));
    assert_eq!(profiler.brick_stats(BrickId::RmsNorm).count, 0);
    assert_eq!(profiler.total_ns(), 0);
}

#[test]
fn settling_empties_the_queue_and_partitions_the_time() {
    let (profiler, hand) = on();
    hand.advance(1_000);
    profiler.reset_epoch();
    // Four bricks of 10 µs. If each lasted to the end they would sum to 100 µs of a pass of 40.
    let bricks =
        [BrickId::RmsNorm, BrickId::QkvProjection, BrickId::AttentionScore, BrickId::LmHead];
    for brick in bricks {
        profiler.record_deferred(brick, profiler.elapsed_ns(), 1);
        hand.advance(10_000);
    }
    profiler.record_deferred_dynamic("Copy", profiler.elapsed_ns(), 1);
    hand.advance(5_000);
    profiler.finalize(profiler.elapsed_ns());
    assert!(!profiler.has_pending());
    for brick in bricks {
        assert_eq!(profiler.brick_stats(brick).total_ns, 10_000, "{brick}");
    }
    assert_eq!(profiler.stats("Copy").expect("it was recorded").total_ns, 5_000);
    assert_eq!(profiler.total_ns(), 45_000);
}

#[test]
fn off_costs_no_look_at_the_clock_and_records_nothing() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    play(&profiler, &hand, BrickId::LmHead, 10);
    let timer = profiler.start("Copy");
    profiler.stop(timer, 1);
    profiler.record_deferred(BrickId::LmHead, 0, 1);
    profiler.finalize(10);
    assert_eq!(hand.reads(), 0);
    assert_eq!((profiler.total_ns(), profiler.total_tokens()), (0, 0));
    assert!(profiler.brick_names().is_empty());
}

#[test]
fn the_number_of_a_brick_is_its_place_in_every_array() {
    let (profiler, hand) = on();
    // Custom names that come first must not move the well-known bricks.
    for i in 0..100 {
        let timer = profiler.start(&format!("custom {i}"));
        profiler.stop(timer, 1);
    }
    for (index, brick) in BrickId::ALL.into_iter().enumerate() {
        play(&profiler, &hand, brick, 1_000 + index as u64);
    }
    for (index, stats) in profiler.all_brick_stats().take(BrickId::COUNT).enumerate() {
        assert_eq!(stats.name, BrickId::ALL[index].name());
        assert_eq!(stats.total_ns, 1_000 + index as u64);
    }
}

#[test]
fn any_number_of_threads_record_through_a_shared_reference_and_nothing_is_lost() {
    fn shareable<T: Send + Sync + 'static>(_: &T) {}
    const THREADS: u64 = 8;
    const EACH: u64 = if cfg!(miri) { 20 } else { 5_000 };
    let profiler = BrickProfiler::enabled();
    shareable(&profiler);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let profiler = &profiler;
            scope.spawn(move || {
                for i in 0..EACH {
                    let brick = BrickId::ALL[(i % 15) as usize];
                    let timer = profiler.start_brick(brick);
                    profiler.stop_brick(timer, thread + 1);
                    let timer = profiler.start("Copy");
                    profiler.stop(timer, 1);
                }
            });
        }
    });
    let known: u64 = BrickId::ALL.iter().map(|&brick| profiler.brick_stats(brick).count).sum();
    assert_eq!(known, THREADS * EACH);
    assert_eq!(profiler.stats("Copy").map(|stats| stats.count), Some(THREADS * EACH));
    let elements = EACH * (1..=THREADS).sum::<u64>() + THREADS * EACH;
    assert_eq!(profiler.total_tokens(), elements);
    let profile = profiler.profile();
    assert_eq!(profile.lanes.len() as u64, THREADS);
    assert_eq!(profile.spans.len() as u64, 2 * THREADS * EACH);
}

#[test]
fn a_timer_fits_in_32_bytes() {
    assert!(size_of::<BrickIdTimer>() <= 32);
}

#[test]
fn elapsed_time_never_runs_backwards() {
    let profiler = BrickProfiler::enabled();
    profiler.reset_epoch();
    let mut last = profiler.elapsed_ns();
    for _ in 0..1_000 {
        let now = profiler.elapsed_ns();
        assert!(now >= last);
        last = now;
    }
    let (profiler, hand) = on();
    hand.advance(70);
    assert_eq!(profiler.elapsed_ns(), 70);
    profiler.reset_epoch();
    assert_eq!(profiler.elapsed_ns(), 0);
    hand.advance(3);
    assert_eq!(profiler.elapsed_ns(), 3);
}

#[test]
fn categories_add_up_to_the_total() {
    let (profiler, hand) = on();
    for (brick, nanos) in [
        (BrickId::RmsNorm, 50),
        (BrickId::QkvProjection, 200),
        (BrickId::AttentionScore, 150),
        (BrickId::GateProjection, 300),
        (BrickId::LmHead, 310),
    ] {
        play(&profiler, &hand, brick, nanos);
    }
    let timer = profiler.start("Copy");
    hand.advance(7);
    profiler.stop(timer, 1);
    let categories = profiler.category_stats();
    assert_eq!(categories.map(|category| category.total_ns), [50, 350, 300, 317]);
    assert_eq!(profiler.total_ns(), 50 + 350 + 300 + 317);
    let shares: f64 = categories.iter().map(|c| c.percentage(profiler.total_ns())).sum();
    assert!((shares - 100.0).abs() < 1e-9);
}

#[test]
fn kernels_of_one_brick_touch_end_to_end_and_the_brick_ends_with_the_last() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let [gemv, add] = ["gemv", "add"].map(|name| profiler.kernel(name, None));
    let pass = profiler.begin_pass(Phase::Decode);
    let timer = profiler.start_brick_kernel(BrickId::OutputProjection, gemv);
    hand.advance(70);
    // A brick inside of the first kernel: it is neither kernel's, and the time counts once.
    let inner = profiler.start_brick(BrickId::RmsNorm);
    hand.advance(10);
    profiler.stop_brick(inner, 1);
    let timer = profiler.next_kernel(timer, Work::elements(4), add);
    hand.advance(20);
    profiler.stop_kernels(timer, Work::elements(5), Work::elements(6));
    hand.advance(3);
    profiler.end_pass(pass, 1, 0);

    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(profile.phase(Phase::Decode).map(|phase| phase.unattributed_ns), Some(3));
    let brick = profiler.brick_stats(BrickId::OutputProjection);
    assert_eq!((brick.total_ns, brick.exclusive_ns, brick.total_elements), (100, 90, 6));
    let kernels = profile.kernels(Some(Phase::Decode));
    let kernels: Vec<_> = kernels
        .iter()
        .map(|k| (&*k.stats.name, k.stats.total_ns, k.stats.total_elements))
        .collect();
    assert_eq!(kernels, [("gemv", 80, 4), ("add", 20, 5)]);
    let parents: Vec<_> = profile.spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1), Some(0)]);
}

#[test]
fn kernels_that_begin_while_off_stay_off() {
    let profiler = BrickProfiler::new();
    let kernel = profiler.kernel("gemv", None);
    let timer = profiler.start_brick_kernel(BrickId::OutputProjection, kernel);
    let timer = profiler.next_kernel(timer, Work::default(), kernel);
    profiler.enable();
    profiler.stop_kernels(timer, Work::default(), Work::default());
    let profile = profiler.profile();
    assert_eq!((profile.totals.len(), profile.dropped.unfinished), (0, 0));
    // And the other way round: the kernel that ended meanwhile is counted as unfinished, the next one
    // never began, and the brick ended while it was on.
    let timer = profiler.start_brick_kernel(BrickId::OutputProjection, kernel);
    profiler.disable();
    let timer = profiler.next_kernel(timer, Work::default(), kernel);
    profiler.enable();
    profiler.stop_kernels(timer, Work::default(), Work::default());
    let profile = profiler.profile();
    assert_eq!((profile.kernels(None).len(), profile.bricks(None).len()), (0, 1));
    assert_eq!(profile.dropped.unfinished, 1);
    // What began before a reset is forgotten whole.
    let timer = profiler.start_brick_kernel(BrickId::OutputProjection, kernel);
    profiler.reset();
    let timer = profiler.next_kernel(timer, Work::default(), kernel);
    profiler.stop_kernels(timer, Work::default(), Work::default());
    let profile = profiler.profile();
    assert_eq!((profile.totals.len(), profile.dropped.unfinished), (0, 0));
}
