mod pace;

use brickscope::{BrickProfiler, MockClock};
use brickscope_profile::{
    BrickId, BrickStats, CacheCeiling, CeilingReading, Data, LimitSpread, Numbers, ReadingTime,
    Run, Work,
};
use proptest::prelude::*;

use super::*;

const GB: f64 = 1e9;

/// 50 GB/s from memory, 200 GFLOP/s, and 800 of bytes.
fn ceilings() -> Ceilings {
    Ceilings {
        read_bytes_per_second: 50e9,
        flops_per_second: 200e9,
        int8_ops_per_second: Some(800e9),
        caches: [("L1", 64_000, 400e9), ("L2", 1_000_000, 200e9), ("L3", 32_000_000, 100e9)]
            .map(|(level, bytes, read_bytes_per_second)| CacheCeiling {
                level: level.to_owned(),
                bytes,
                read_bytes_per_second,
            })
            .into(),
        ..Ceilings::default()
    }
}

/// Ten decode passes, in each of which these bricks run once.
fn run(bricks: &[(&str, u64, Work)]) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for _ in 0..10 {
        let pass = profiler.begin_pass(Phase::Decode);
        for &(name, nanos, work) in bricks {
            let timer = profiler.start(name);
            hand.advance(nanos);
            profiler.stop_brick_with(timer, work);
        }
        profiler.end_pass(pass, 1, 0);
    }
    let mut profile = profiler.profile();
    profile.ceilings = Some(ceilings());
    profile
}

fn roofline(profile: &Profile) -> Roofline {
    Roofline::of(profile, Phase::Decode).expect("passes and ceilings")
}

fn place<'r>(roofline: &'r Roofline, name: &str) -> &'r Standing {
    let brick = roofline.bricks.iter().find(|brick| brick.name == name);
    brick.and_then(|brick| brick.place.as_ref()).expect("work was stated")
}

fn weights(bytes: u64) -> Work {
    Work { elements: 1, flops: bytes / 2, bytes: bytes + 8_000, data: Data::Weights(bytes) }
}

const ACTIVATIONS: Work =
    Work { elements: 768, flops: 9_000, bytes: 9_000, data: Data::Activations };

/// How long it takes to move so many bytes with so many GB/s.
fn nanos(bytes: u64, gigabytes_per_second: f64) -> u64 {
    (bytes as f64 / gigabytes_per_second) as u64
}

#[test]
fn weights_come_from_the_smallest_level_that_holds_a_pass() {
    // Far above all caches, below L3, below L2: the level doesn't depend on the speed.
    for (each, level, bound, gigabytes) in [
        (30_000_000, "memory", Bound::Memory, 50.0),
        (8_000_000, "L3", Bound::Cache, 100.0),
        (200_000, "L2", Bound::Cache, 200.0),
    ] {
        for speed in [0.2, 0.55, 0.65, 0.98] {
            let nanos = nanos(each, gigabytes * speed);
            let products = ["GateProjection", "UpProjection", "LmHead"];
            let mut bricks = products.map(|name| (name, nanos, weights(each))).to_vec();
            bricks.push(("RmsNorm", 700, ACTIVATIONS));
            let roofline = roofline(&run(&bricks));
            assert_eq!(roofline.pass_level, level);
            assert_eq!(roofline.pass_bytes, 3 * each);
            for name in products {
                let place = place(&roofline, name);
                assert_eq!((place.level.as_str(), place.bound), (level, bound), "{speed}");
                assert!((place.of_roof - speed).abs() < 0.01, "{place:?}");
            }
            // What it touches fits L1, and its producer has just run.
            let norm = place(&roofline, "RmsNorm");
            assert_eq!((norm.level.as_str(), norm.reach), ("L1", Reach::Far));
        }
    }
}

#[test]
fn a_bound_has_the_name_that_the_first_measurement_gives_it() {
    // Activations from L1 at 200 GB/s of 400; around this run L1 read less than memory.
    let work = Work { flops: 900, ..ACTIVATIONS };
    let mut profile = run(&[("RmsNorm", nanos(9_000, 200.0), work)]);
    let bound = |profile: &Profile| {
        let place = place(&roofline(profile), "RmsNorm").clone();
        (place.bound, place.level)
    };
    let expected = (Bound::Cache, "L1".to_owned());
    assert_eq!(bound(&profile), expected);
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.spreads.push(LimitSpread {
        of: "L1".to_owned(),
        lowest_per_second: 40e9,
        highest_per_second: 40e9,
        first_per_second: ceilings.caches[0].read_bytes_per_second,
        around: vec![40e9],
        readings: 2,
    });
    ceilings.caches[0].read_bytes_per_second = 40e9;
    assert_eq!(bound(&profile), expected);
    // Without what it was at first, too: what it touches fits there.
    profile.ceilings.as_mut().expect("ceilings").spreads.clear();
    assert_eq!(bound(&profile), expected);
}

#[test]
fn readings_that_jitter_around_each_other_leave_one_verdict() {
    let each = 8_000_000;
    let bricks = ["GateProjection", "UpProjection", "LmHead"];
    let mut profile = run(&bricks.map(|name| (name, nanos(each, 20.0), weights(each))));
    for (memory, cache) in [(50.0, 49.0), (49.0, 50.0), (50.0, 50.0), (48.0, 52.0), (52.0, 40.0)] {
        let ceilings = profile.ceilings.as_mut().expect("ceilings");
        ceilings.read_bytes_per_second = memory * GB;
        ceilings.caches[2].read_bytes_per_second = cache * GB;
        let roofline = roofline(&profile);
        let of = place(&roofline, "LmHead");
        assert_eq!((of.level.as_str(), of.least_level.as_str()), ("L3", "L3"));
        assert_eq!((of.bound, of.reach), (Bound::Cache, Reach::Far));
        assert!((of.of_roof - 20.0 / memory.max(cache)).abs() < 0.01, "{of:?}");
        assert_eq!(
            roofline.says_source().as_deref(),
            Some(
                "A pass touches 24.0 MB of weights and KV cache, which L3 holds: they come from there. It reads no \
                 more than a quarter faster than memory here, so the higher limit of both stands."
            )
        );
    }
    profile.ceilings = Some(ceilings());
    let says = roofline(&profile).says_source().expect("weights");
    assert!(says.ends_with("which L3 holds: they come from there."), "{says}");
}

#[test]
fn the_same_bricks_a_little_faster_than_memory_was_measured_are_at_the_roof() {
    // As on a quiet run of a model of 117 MB: 37.2 to 39.4 GB/s, where 38.0 were measured.
    let products = [("GateProjection", 37.2), ("DownProjection", 39.2), ("UpProjection", 39.4)];
    let mut profile =
        run(&products.map(|(name, speed)| (name, nanos(39_000_000, speed), weights(39_000_000))));
    profile.ceilings.as_mut().expect("ceilings").read_bytes_per_second = 38.0 * GB;
    let roofline = roofline(&profile);
    for (name, _) in products {
        let place = place(&roofline, name);
        assert_eq!((place.level.as_str(), place.bound), ("memory", Bound::Memory));
        assert_eq!(place.reach, Reach::At, "{name}: {place:?}");
        assert!(place.of_roof < 1.001 && place.of_roof > 0.9, "{place:?}");
    }
    let [shown] = &roofline.shown_by[..] else { panic!("{:?}", roofline.shown_by) };
    assert_eq!((shown.of.as_str(), shown.name.as_str()), ("memory", "UpProjection"));
    assert_eq!(shown.measured_per_second, 38e9);
    assert!((roofline.peak_bytes_per_second / GB - 39.4).abs() < 0.01);
}

#[test]
fn a_rate_that_no_measurement_error_explains_is_not_believed() {
    let profile = run(&[("LmHead", nanos(90_000_000, 300.0), weights(90_000_000))]);
    let roofline = roofline(&profile);
    assert_eq!((roofline.peak_bytes_per_second, &roofline.shown_by[..]), (50e9, &[][..]));
    let place = place(&roofline, "LmHead");
    assert_eq!((place.bound, place.reach), (Bound::Memory, Reach::Above));
    assert_eq!(place.us_to_roof, 0.0);
    let note = roofline.bricks[0].notes[0].to_string();
    assert!(note.starts_with("600 % of measured memory bandwidth: "), "{note}");
}

#[test]
fn the_level_between_two_states_of_memory_keeps_its_name() {
    // Weights from memory and activations from L2 that take about as long.
    let (once, at_once) = (50_000, 200_000);
    let work = Work { elements: 1, flops: 0, bytes: once + at_once, data: Data::Weights(once) };
    let bricks = [("LmHead", nanos(90_000_000, 30.0), weights(90_000_000)), ("X", 9_000, work)];
    let (in_memory, in_l2) = (("memory", Bound::Memory), ("L2", Bound::Cache));
    for (first, memory, named, least_level) in [
        (36.0, 35.0, in_memory, "memory"),
        (36.0, 60.0, in_memory, "L2"),
        (61.0, 60.0, in_l2, "L2"),
        (61.0, 35.0, in_l2, "memory"),
    ] {
        let mut profile = run(&bricks);
        let ceilings = profile.ceilings.as_mut().expect("ceilings");
        ceilings.read_bytes_per_second = memory * GB;
        ceilings.readings = [first, memory]
            .map(|rate| CeilingReading {
                when: ReadingTime::Kept,
                measured: String::new(),
                read_bytes_per_second: rate * GB,
                disturbed: false,
            })
            .into();
        let roofline = roofline(&profile);
        let place = place(&roofline, "X");
        assert_eq!((place.level.as_str(), place.bound), named);
        assert_eq!(place.least_level, least_level);
        let least = (once as f64 / memory).max((once + at_once) as f64 / 200.0);
        assert!((place.of_roof - least / 9_000.0).abs() < 1e-9, "{place:?}");
    }
}

#[test]
fn what_is_read_from_memory_is_never_said_to_lie_in_a_cache() {
    // Others disturbed the measurements of caches so much that memory seems to be faster.
    for slow in [&["L1"][..], &["L1", "L2", "L3"]] {
        let mut profile = run(&[("LmHead", nanos(90_000_000, 40.0), weights(90_000_000))]);
        let ceilings = profile.ceilings.as_mut().expect("ceilings");
        let caches = ceilings.caches.iter_mut().filter(|cache| slow.contains(&&*cache.level));
        caches.for_each(|cache| cache.read_bytes_per_second = 10e9);
        let roofline = roofline(&profile);
        let place = place(&roofline, "LmHead");
        let said = (place.bound, &*place.level, &*place.least_level);
        assert_eq!(said, (Bound::Memory, "memory", "memory"), "{slow:?}");
        // 90 MB with 40 of 50 GB/s: of the weights alone, since activations don't come from there.
        assert_eq!(place.moved, Moved::OnceAPass);
        assert!((place.of_bandwidth - 0.8).abs() < 1e-9, "{place:?}");
    }
}

#[test]
fn a_cache_behind_a_disturbed_one_is_held_to_the_bytes_that_came_from_there() {
    // Activations that L2 holds, with 120 GB/s of 150; others disturbed L1, which seems to read 100.
    let work = Work { flops: 1, bytes: 500_000, ..ACTIVATIONS };
    let mut profile = run(&[("X", nanos(500_000, 120.0), work)]);
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.caches[0].read_bytes_per_second = 100e9;
    ceilings.caches[1].read_bytes_per_second = 150e9;
    let roofline = roofline(&profile);
    let place = place(&roofline, "X");
    assert_eq!((place.level.as_str(), place.least_level.as_str()), ("L2", "L2"));
    assert!((place.of_bandwidth - 0.8).abs() < 0.001, "{place:?}");
    // It was never faster than L2 was measured.
    assert!(roofline.shown_by.is_empty(), "{roofline:?}");
    assert!(roofline.bricks[0].notes.is_empty(), "{roofline:?}");
}

#[test]
fn slow_memory_excuses_only_what_memory_bounds() {
    // Half of the time streams at 66 % of the roof, and the other half computes at 60 % of the peak.
    let half = nanos(90_000_000, 33.0);
    let flops = 120 * half;
    let compute = Work { elements: 1, flops, bytes: 9_000, data: Data::Activations };
    let bricks = [("LmHead", half, weights(90_000_000)), ("(product)", half, compute)];
    let mut profile = run(&bricks);
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.readings.push(read(ReadingTime::Before, 50.0));
    ceilings.readings.push(read(ReadingTime::After, 33.0));
    let verdict = roofline(&profile).verdict().expect("places");
    assert_eq!((verdict.bound, verdict.reach), (Bound::Memory, Reach::Unsettled), "{verdict:?}");
    assert!((verdict.of_roof - 0.63).abs() < 0.01, "{verdict:?}");
}

/// A measurement of memory, in GB/s.
fn read(when: ReadingTime, gigabytes: f64) -> CeilingReading {
    let read_bytes_per_second = gigabytes * GB;
    CeilingReading { when, measured: String::new(), read_bytes_per_second, disturbed: false }
}

#[test]
fn a_machine_whose_memory_swings_gives_no_verdict_that_depends_on_it() {
    let mut profile = run(&[("LmHead", nanos(90_000_000, 33.0), weights(90_000_000))]);
    let verdict = |profile: &Profile| roofline(profile).verdict().expect("places");
    assert_eq!(verdict(&profile).says(), "memory-bound: 66 % of 50 GB/s");
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.readings.push(read(ReadingTime::Before, 50.0));
    ceilings.readings.push(read(ReadingTime::After, 45.0));
    assert_eq!(verdict(&profile).says(), "memory-bound: 66 % of 50 GB/s (measured 45 to 50)");
    profile.ceilings.as_mut().expect("ceilings").readings[1].read_bytes_per_second = 34e9;
    let unsettled = verdict(&profile);
    assert_eq!(unsettled.says(), "memory swung 34 to 50 GB/s: no verdict");
    assert_eq!((unsettled.reach, unsettled.part().as_str()), (Reach::Unsettled, "66 % of 50 GB/s"));
    assert_eq!(place(&roofline(&profile), "LmHead").reach, Reach::Unsettled);
    // Far from the slow memory, too.
    let mut far = run(&[("LmHead", nanos(90_000_000, 15.0), weights(90_000_000))]);
    far.ceilings.clone_from(&profile.ceilings);
    assert_eq!(
        verdict(&far).says(),
        "far from the memory roof: 30 % of 50 GB/s (measured 34 to 50)"
    );
    // As fast as the fast memory.
    let mut at = run(&[("LmHead", nanos(90_000_000, 48.0), weights(90_000_000))]);
    at.ceilings.clone_from(&profile.ceilings);
    assert_eq!(verdict(&at).says(), "memory-bound: 96 % of 50 GB/s (measured 34 to 50)");
}

#[test]
fn one_speed_is_never_at_the_roof_in_one_run_and_far_from_it_in_another() {
    // A host that moves its CPUs together and apart, and readings before and after each run that may meet either state.
    let (slow, fast) = (44.0, 96.0);
    for speed in [20.0, 38.0, 43.0, 60.0, 88.0, 95.0] {
        let mut reached = Vec::new();
        for around in [[slow, slow], [slow, fast], [fast, slow], [fast, fast]] {
            let mut profile = run(&[("LmHead", nanos(90_000_000, speed), weights(90_000_000))]);
            let ceilings = profile.ceilings.as_mut().expect("ceilings");
            ceilings.readings =
                [slow, fast, slow, fast].map(|rate| read(ReadingTime::Kept, rate)).into();
            ceilings.readings.push(read(ReadingTime::Before, around[0]));
            ceilings.readings.push(read(ReadingTime::After, around[1]));
            ceilings.read_bytes_per_second = fast * GB;
            reached.push(roofline(&profile).verdict().expect("places").reach);
        }
        use Reach::{At, Far, Unsettled};
        let expected = match speed {
            ..26.0 => [Far, Far, Far, Far],
            // As the slow memory, or far from the fast one: both before and after the run say which, or nobody knows.
            ..39.0 => [Reach::Near, Unsettled, Unsettled, Unsettled],
            ..50.0 => [At, Unsettled, Unsettled, Unsettled],
            // Faster than it was measured by more than a quarter: nobody knows whether it could be faster still.
            ..80.0 => [Unsettled; 4],
            _ => [Unsettled, At, At, At],
        };
        assert_eq!(reached, expected, "{speed}");
    }
}

#[test]
fn arithmetic_that_the_run_shows_to_be_faster_is_the_roof() {
    // 248 of 200 GFLOP/s.
    let product = Work { flops: 24_800_000, ..weights(1_000) };
    let bricks = [("GateProjection", 100_000, product), ("UpProjection", 124_000, product)];
    let mut profile = run(&bricks);
    profile.ceilings.as_mut().expect("ceilings").spreads.push(LimitSpread {
        of: "f32".to_owned(),
        lowest_per_second: 190e9,
        highest_per_second: 200e9,
        first_per_second: 200e9,
        around: Vec::new(),
        readings: 3,
    });
    let roofline = roofline(&profile);
    let [shown] = &roofline.shown_by[..] else { panic!("{:?}", roofline.shown_by) };
    assert_eq!((shown.of.as_str(), shown.name.as_str()), ("f32", "GateProjection"));
    assert_eq!((shown.measured_per_second, shown.per_second), (200e9, 248e9));
    assert_eq!(roofline.peak_flops_per_second, 248e9);
    assert_eq!(place(&roofline, "GateProjection").reach, Reach::At);
    assert!((place(&roofline, "UpProjection").of_roof - 0.806).abs() < 0.001);
    assert!(roofline.bricks.iter().all(|brick| brick.notes.is_empty()), "{roofline:?}");
    // What the run showed lies more than a quarter above the lowest measurement.
    let verdict = roofline.verdict().expect("places");
    assert_eq!(verdict.says(), "arithmetic swung 190 to 248 GFLOP/s: no verdict");
    profile.ceilings.as_mut().expect("ceilings").flops_per_second = 230e9;
    let verdict = Roofline::of(&profile, Phase::Decode).expect("ceilings").verdict();
    assert_eq!(
        verdict.expect("places").says(),
        "compute-bound: 89 % of 248 GFLOP/s (measured 218 to 248)"
    );
}

#[test]
fn a_limit_that_others_lowered_is_what_the_run_reached_and_no_verdict() {
    // 35 of what are 100 GFLOP/s were measured, both times beside others.
    let product = Work { flops: 10_000_000, ..weights(1_000) };
    let mut profile = run(&[("GateProjection", 100_000, product)]);
    profile.ceilings.as_mut().expect("ceilings").flops_per_second = 35e9;
    let above = roofline(&profile).verdict().expect("places");
    assert_eq!(above.says(), "compute-bound: above the measured roof, 286 % of 35 GFLOP/s");
    profile.ceilings.as_mut().expect("ceilings").spreads.push(LimitSpread {
        of: "f32".to_owned(),
        lowest_per_second: 30e9,
        highest_per_second: 35e9,
        first_per_second: 35e9,
        around: Vec::new(),
        readings: 2,
    });
    let roofline = roofline(&profile);
    assert_eq!(place(&roofline, "GateProjection").reach, Reach::Unsettled);
    let verdict = roofline.verdict().expect("places");
    assert_eq!(verdict.says(), "arithmetic swung 30 to 100 GFLOP/s: no verdict");
}

#[test]
fn a_run_beside_others_is_not_far_for_itself() {
    let mut profile = run(&[("LmHead", nanos(90_000_000, 15.0), weights(90_000_000))]);
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    let beside = |when, rate| CeilingReading { disturbed: true, ..read(when, rate) };
    ceilings.readings = vec![beside(ReadingTime::Before, 49.0), beside(ReadingTime::After, 50.0)];
    let says = |profile: &Profile| roofline(profile).verdict().expect("places").says();
    assert_eq!(says(&profile), "memory was measured beside others: no verdict");
    let readings = &mut profile.ceilings.as_mut().expect("ceilings").readings;
    readings[0].disturbed = false;
    assert_eq!(says(&profile), "far from the memory roof: 31 % of 49 GB/s");
}

#[test]
fn a_cache_that_swung_below_memory_has_a_spread() {
    // Activations from L3 at 67 % of 60 GB/s, which was 30 at another time.
    let work = Work { flops: 1, bytes: 20_000_000, ..ACTIVATIONS };
    let mut profile = run(&[("X", nanos(20_000_000, 40.0), work)]);
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.read_bytes_per_second = 40e9;
    ceilings.caches[2].read_bytes_per_second = 60e9;
    ceilings.spreads.push(LimitSpread {
        of: "L3".to_owned(),
        lowest_per_second: 30e9,
        highest_per_second: 60e9,
        first_per_second: 60e9,
        around: vec![60e9],
        readings: 4,
    });
    let verdict = roofline(&profile).verdict().expect("places");
    assert_eq!(verdict.says(), "L3 swung 40 to 60 GB/s: no verdict");
}

#[test]
fn a_run_of_fewer_threads_is_held_to_what_they_read_and_to_what_the_machine_reads() {
    let mut profile = run(&[("LmHead", nanos(90_000_000, 25.0), weights(90_000_000))]);
    profile.run = Some(Run { threads: 1, ..Run::default() });
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.read_bytes_per_second = 45e9;
    ceilings.machine_read_bytes_per_second = Some(100e9);
    ceilings.readings.push(read(ReadingTime::Before, 100.0));
    let verdict = roofline(&profile).verdict().expect("places");
    assert_eq!(
        verdict.says(),
        "far from the memory roof: 56 % of the 45 GB/s that 1 thread reads, 25 % of the machine's"
    );
    // All CPUs read no more than these threads.
    profile.ceilings.as_mut().expect("ceilings").machine_read_bytes_per_second = Some(45e9);
    let verdict = roofline(&profile).verdict().expect("places");
    assert_eq!(verdict.says(), "far from the memory roof: 56 % of 45 GB/s");
}

#[test]
fn what_memory_gave_around_the_run_is_its_roof() {
    let mut profile = run(&[("LmHead", nanos(90_000_000, 33.0), weights(90_000_000))]);
    assert_eq!(place(&roofline(&profile), "LmHead").reach, Reach::Near);
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.readings.push(read(ReadingTime::Before, 33.5));
    ceilings.readings.push(read(ReadingTime::After, 34.0));
    let around = roofline(&profile);
    let place = place(&around, "LmHead");
    assert_eq!(place.reach, Reach::At);
    assert!((place.of_roof - 33.0 / 34.0).abs() < 0.01, "{place:?}");
    assert_eq!((around.peak_bytes_per_second, around.least_bytes_per_second), (34e9, 33.5e9));
}

#[test]
fn each_bound_has_its_side_of_the_ridge_and_each_kernel_its_peak() {
    let product = |flops| Work { flops, ..weights(100_000_000) };
    // 100 MB take 2 ms of memory, 400 MFLOP 2 ms of float arithmetic.
    let bricks = [
        ("LmHead", 2_500_000, product(100_000_000)),
        ("GateProjection", 10_000_000, product(1_600_000_000)),
        ("AttentionSoftmax", 10_000_000, Work { flops: 1_600_000_000, ..ACTIVATIONS }),
    ];
    let mut profile = run(&bricks);
    for (numbers, of_product) in [(Numbers::F32, 0.8), (Numbers::Int8, 0.2)] {
        profile.ceilings.as_mut().expect("ceilings").numbers = Some(numbers);
        let roofline = roofline(&profile);
        let head = place(&roofline, "LmHead");
        assert_eq!((head.bound, head.reach), (Bound::Memory, Reach::Near));
        assert!((head.us_to_roof - 500.0).abs() < 1.0, "{head:?}");
        let gate = place(&roofline, "GateProjection");
        assert!((gate.of_peak - of_product).abs() < 1e-9, "{gate:?}");
        // Floats, whatever the products multiply.
        let softmax = place(&roofline, "AttentionSoftmax");
        assert_eq!((softmax.bound, softmax.limit()), (Bound::Compute, "compute"));
        assert!((softmax.of_peak - 0.8).abs() < 1e-9, "{softmax:?}");
    }
}

#[test]
fn bytes_that_nobody_told_apart_are_what_the_brick_is_known_for() {
    let unstated = |bytes| Work { elements: 1, flops: 1, bytes, ..Work::default() };
    let mut bricks = vec![
        ("LmHead", nanos(90_000_000, 45.0), unstated(90_000_000)),
        ("AttentionScore", nanos(90_000, 25.0), unstated(90_000)),
        ("RmsNorm", 1_000, unstated(9_000)),
        ("mine", nanos(90_000, 25.0), unstated(90_000)),
    ];
    let slow = roofline(&run(&bricks));
    for (name, level) in
        [("LmHead", "memory"), ("AttentionScore", "memory"), ("RmsNorm", "L1"), ("mine", "memory")]
    {
        assert_eq!(place(&slow, name).level, level, "{name}");
    }
    // Faster than memory, and the name says nothing: unknown, not another level.
    bricks[3].1 = nanos(90_000, 60.0);
    let fast = roofline(&run(&bricks));
    let mine = fast.bricks.iter().find(|brick| brick.name == "mine").expect("recorded");
    assert_eq!(mine.place, None);
    let why = &mine.absent.as_ref().expect("a reason").reason;
    assert!(why.contains("nobody said what its bytes are"), "{why}");
}

#[test]
fn what_nobody_stated_is_absent_with_a_reason() {
    let work = |flops, bytes| Work { flops, bytes, ..Work::default() };
    for (flops, bytes, reason) in
        [(0, 0, "its work was not stated"), (9, 0, "the bytes that it moves were not stated")]
    {
        let roofline = roofline(&run(&[("RmsNorm", 1000, work(flops, bytes))]));
        assert_eq!(roofline.bricks[0].place, None);
        assert_eq!(roofline.bricks[0].absent.as_ref().expect("a reason").reason, reason);
        assert_eq!(roofline.verdict(), None);
    }
    let roofline = roofline(&run(&[("RmsNorm", 1000, work(0, 40_000))]));
    assert_eq!(roofline.bricks[0].flops, None);
    assert!(roofline.bricks[0].notes.contains(&Note::NoFlops), "{roofline:?}");
    assert_eq!(place(&roofline, "RmsNorm").intensity, 0.0);
}

#[test]
fn more_than_the_peak_is_an_error_of_the_model() {
    let work = Work { flops: 600_000, bytes: 1_000, ..ACTIVATIONS };
    let roofline = roofline(&run(&[("Activation", 1_000, work)]));
    assert_eq!(place(&roofline, "Activation").reach, Reach::Above);
    assert_eq!(roofline.bricks[0].notes, [Note::BeyondPeak(3.0)]);
}

#[test]
fn a_pass_has_the_limit_of_most_of_its_least_time() {
    let mut profile = run(&[
        ("LmHead", nanos(90_000_000, 46.0), weights(90_000_000)),
        ("AttentionSoftmax", 100_000, Work { flops: 19_000_000, ..ACTIVATIONS }),
    ]);
    let verdict = roofline(&profile).verdict().expect("work was stated");
    assert_eq!((verdict.bound, verdict.level.as_str()), (Bound::Memory, "memory"));
    assert_eq!(verdict.reach, Reach::At);
    assert!((verdict.of_roof - 0.92).abs() < 0.01, "{verdict:?}");
    profile.ceilings.as_mut().expect("ceilings").read_bytes_per_second = 100e9;
    let verdict = roofline(&profile).verdict().expect("work was stated");
    assert_eq!(verdict.reach, Reach::Far);
}

#[test]
fn spans_without_work_are_counted_only_as_far_as_they_were_kept() {
    // Every other of ten spans states no work.
    let notes = |capacity| {
        let hand = brickscope::MockClock::default();
        let profiler =
            brickscope::BrickProfiler::with_clock(hand.clock()).with_log_capacity(capacity);
        profiler.enable();
        let pass = profiler.begin_pass(Phase::Decode);
        for i in 0..10 {
            let timer = profiler.start_brick(brickscope::BrickId::LmHead);
            hand.advance(1_000);
            let amount = 1_000 * (i % 2);
            profiler.stop_brick_with(
                timer,
                Work { elements: 1, flops: amount, bytes: amount, ..Work::default() },
            );
        }
        profiler.end_pass(pass, 1, 0);
        let mut profile = profiler.profile();
        profile.ceilings = Some(ceilings());
        let roofline = Roofline::of(&profile, Phase::Decode).expect("a pass and ceilings");
        roofline.bricks[0].notes.clone()
    };
    assert_eq!(notes(100), [Note::Idle { spans: 5, of: 10, is_least: false }]);
    let some = notes(4);
    assert!(matches!(some[..], [Note::Idle { spans: 1..5, of: 10, is_least: true }]), "{some:?}");
    assert!(some[0].to_string().starts_with("at least "), "{some:?}");
    assert_eq!(notes(0), [Note::IdleUnknown]);
}

proptest! {
    #[test]
    fn no_more_can_be_gained_than_the_wall_has_beyond_the_least_time(
        bricks in prop::collection::vec(
            (0usize..15, 1u64..1 << 30, 0u64..1 << 40, 0u64..1 << 40, 0u8..4),
            1..12,
        ),
        nested in any::<bool>(),
    ) {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let pass = profiler.begin_pass(Phase::Decode);
        let mut open = Vec::new();
        for (brick, nanos, flops, bytes, data) in bricks {
            let data = match data {
                0 => Data::Unstated,
                1 => Data::Activations,
                2 => Data::Weights(bytes / 2),
                _ => Data::Kv(bytes),
            };
            let work = Work { elements: 1, flops, bytes, data };
            let timer = profiler.start_brick(BrickId::ALL[brick]);
            hand.advance(nanos);
            if nested {
                open.push((timer, work));
            } else {
                profiler.stop_brick_with(timer, work);
            }
        }
        while let Some((timer, work)) = open.pop() {
            profiler.stop_brick_with(timer, work);
        }
        profiler.end_pass(pass, 1, 0);
        let mut profile = profiler.profile();
        profile.ceilings = Some(ceilings());
        let roofline = roofline(&profile);
        let places = roofline.bricks.iter().filter_map(|brick| Some((brick, brick.place.as_ref()?)));
        let mut above = 0.0;
        for (brick, place) in places {
            prop_assert!(place.us_to_roof >= 0.0);
            // Two ways to the same figure: by rates, as Williams et al. put it, and by times.
            let by_rates = place.flops_per_second / place.roof_flops_per_second;
            prop_assert!(brick.flops.is_none() || close(place.of_roof, by_rates), "{place:?}");
            prop_assert_eq!(place.reach == Reach::Above, place.of_roof > MOST);
            above += place.us_to_roof * brick.spans as f64;
        }
        let rest = roofline.wall_ns as f64 - roofline.least_ns;
        prop_assert!(above * 1e3 <= rest + 1e-6 * roofline.wall_ns as f64, "{above} µs of {rest} ns");
    }

    #[test]
    fn no_figure_is_infinite_or_no_number(
        nanos in any::<u64>(),
        flops in any::<u64>(),
        bytes in any::<u64>(),
        once in any::<u64>(),
        rates in [any::<f64>(), any::<f64>(), any::<f64>()],
    ) {
        let [memory, peak, cache] = rates;
        let mut stats = BrickStats::new("LmHead");
        stats.add(nanos, nanos / 2, Work { elements: 1, flops, bytes, data: Data::Weights(once) });
        let mut profile = run(&[("LmHead", 1, weights(1))]);
        profile.totals[0].stats = stats;
        let ceilings = profile.ceilings.as_mut().expect("ceilings");
        (ceilings.read_bytes_per_second, ceilings.flops_per_second) = (memory, peak);
        ceilings.caches[1].read_bytes_per_second = cache;
        if let Ok(roofline) = Roofline::of(&profile, Phase::Decode) {
            prop_assert!(roofline.least_ns.is_finite());
            if let Some(place) = &roofline.bricks[0].place {
                for figure in [
                    place.intensity, place.flops_per_second, place.bytes_per_second,
                    place.roof_flops_per_second, place.of_roof, place.of_bandwidth,
                    place.of_peak, place.us_to_roof,
                ] {
                    prop_assert!(figure.is_finite(), "{:?}", place);
                }
            }
        }
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
