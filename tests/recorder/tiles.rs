//! Tiles of matrix products: timed on request, summed by level and thread, and shown in the report.

use std::sync::Barrier;

use brickscope::{BrickProfiler, MockClock, Profile, TileLevel};

#[test]
fn tiles_are_timed_only_when_asked_for() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let tile = |nanos| {
        let timer = profiler.start_tile(TileLevel::Midi, 1, 2);
        assert_eq!(timer.place(), (1, 2));
        hand.advance(nanos);
        profiler.stop_tile(timer, 1_000, 64_000);
    };
    tile(10_000);
    assert_eq!(profiler.tile_stats(TileLevel::Midi).count, 0);
    profiler.enable_tile_profiling();
    tile(10_000);
    tile(30_000);
    let midi = profiler.tile_stats(TileLevel::Midi);
    assert_eq!((midi.count, midi.min_ns, midi.max_ns), (2, 10_000, 30_000));
    // 128 000 FLOPs in 40 µs; 128 000 FLOPs for 2 000 f32.
    assert_eq!((midi.gflops(), midi.arithmetic_intensity()), (3.2, 16.0));
    assert_eq!(
        profiler.tile_summary(),
        "=== Tile Profiling Summary ===\n\
         Level       Samples   Avg µs    GFLOP/s   AI      Elements\n\
         midi              2      20.0      3.20  16.00        1000\n"
    );
    assert!(profiler.tile_stats_to_json().contains("\"level\":\"midi\""));
    assert_eq!(profiler.total_ns(), 0, "a tile is no brick");
    profiler.reset_tile_stats();
    assert_eq!(profiler.all_tile_stats().map(|tile| tile.count), [0, 0, 0]);
}

/// Two threads share two products: 1.5 ms against 1 ms, then 1 ms each.
fn tiled() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    profiler.enable_tile_profiling();
    let now = || profiler.tiles().reading().expect("tiles are timed");
    let share = |micros: u64| {
        let begun = now();
        hand.advance(100_000);
        let unpacked = now();
        hand.advance(micros * 1_000 - 100_000);
        let done = now();
        profiler.tiles().add(TileLevel::Micro, unpacked..done, 22, 4_096, 200_000_000);
        profiler.tiles().add(TileLevel::Midi, begun..done, 1, 4_096, 200_000_000);
        profiler.tiles().add(TileLevel::Macro, begun..done, 1, 4_096, 200_000_000);
        begun..done
    };
    // Both threads are named, since the test runner names the test's own. They run one after the other, as there is
    // one clock, but both live to the end, since a new thread may reuse the log of one that ended.
    let (first_is_done, both_are_done) = (Barrier::new(2), Barrier::new(2));
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    std::thread::scope(|scope| {
        let engine = || {
            let shares = [1_500, 1_000].map(share);
            first_is_done.wait();
            both_are_done.wait();
            shares.into_iter().for_each(|slower| profiler.tiles().add_product(slower, 2));
        };
        let worker = || {
            first_is_done.wait();
            for micros in [1_000, 1_000] {
                share(micros);
            }
            both_are_done.wait();
        };
        named("kernels-1\u{1b}[31m").spawn_scoped(scope, worker).expect("a thread");
        named("engine").spawn_scoped(scope, engine).expect("a thread");
    });
    profiler.profile()
}

#[test]
fn the_report_has_tiles_by_level_and_by_thread() {
    let profile = tiled();
    let balance = profile.tile_balance.expect("products were noted");
    assert_eq!((balance.products, balance.slowest_ns), (2, 2_500_000));
    assert_eq!((balance.offered_ns, balance.worked_ns), (5_000_000, 4_500_000));
    let report = brickscope_analysis::view::report(&profile);
    let (_, tiles) = report.split_once("Tiles: ").expect("tiles");
    let (tiles, _) = tiles.split_once("\n\nNothing").expect("nothing else was recorded");
    insta::assert_snapshot!(tiles);
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
}

#[test]
fn tiles_come_back_from_a_file_and_are_not_there_in_files_of_before() {
    let profile = tiled();
    let mut json = serde_json::to_value(&profile).expect("JSON");
    let again: Profile = serde_json::from_value(json.clone()).expect("it was written so");
    assert_eq!((&again.tiles, &again.tile_threads), (&profile.tiles, &profile.tile_threads));
    assert_eq!(again.tile_balance, profile.tile_balance);
    let fields = json.as_object_mut().expect("an object");
    fields.remove("tile_threads");
    fields.remove("tile_balance");
    for tile in fields["tiles"].as_array_mut().expect("levels") {
        tile.as_object_mut().expect("an object").remove("tiles_in_runs");
    }
    let before: Profile = serde_json::from_value(json).expect("a file of before");
    assert!(before.tile_threads.is_empty() && before.tile_balance.is_none());
    assert!(brickscope_analysis::view::report(&before).contains("\nTiles: products"));
}

#[test]
fn tiles_of_no_time_have_no_rate_and_no_imbalance() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let reads = hand.reads();
    assert_eq!(profiler.tiles().reading(), None, "off, no clock is read");
    assert_eq!(hand.reads(), reads);
    profiler.enable_tile_profiling();
    profiler.tiles().add(TileLevel::Macro, 5..5, 1, 1, 2);
    profiler.tiles().add_product(5..5, 2);
    // Readings in the wrong order are no time.
    profiler.tiles().add_product(std::ops::Range { start: 7, end: 5 }, u64::MAX);
    let profile = profiler.profile();
    assert_eq!(profile.tile_balance.and_then(|balance| balance.imbalance()), None);
    let report = brickscope_analysis::view::report(&profile);
    assert!(
        report.contains("imbalance of 2 products: unknown, since no share took any time"),
        "{report}"
    );
    assert!(report.contains("no midi and micro tiles"), "{report}");
}
