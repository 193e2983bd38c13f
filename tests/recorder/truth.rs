//! The figures are true: compared with independent computations and with work of known length.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use brickscope::{
    BrickId, BrickProfiler, Dropped, MockClock, NameKind, Percentiles, Phase, PhaseTotal, Profile,
    Source, Work, brick,
};
#[cfg(not(miri))]
use brickscope_testing::patience::{first_to_judge, waited};
use proptest::prelude::*;

/// A profiler that is on, and its mock clock.
fn on(log_capacity: usize) -> (BrickProfiler, MockClock) {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(log_capacity);
    profiler.enable();
    (profiler, hand)
}

fn consistent(profile: &Profile) {
    if let Err(why) = profile.check() {
        panic!("{why}");
    }
}

fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

/// Other processes may take the processor at any moment. In the work itself that lengthens both
/// measurements alike, but between a reading of one clock and the next of the other it spoils the
/// comparison. So each comparison has some attempts: a wrong figure is wrong in all of them.
fn in_one_of_ten_attempts(attempt: impl Fn() -> Result<(), String>) {
    let mut failures = Vec::new();
    for _ in 0..10 {
        match attempt() {
            Ok(()) => return,
            Err(why) => failures.push(why),
        }
    }
    panic!("in no attempt: {failures:#?}");
}

fn near(what: &str, figure: u64, truth: Duration, tolerance: f64) -> Result<(), String> {
    let off = figure as f64 / nanos(truth) - 1.0;
    if off.abs() < tolerance {
        return Ok(());
    }
    Err(format!("{what}: {figure} ns instead of {truth:?}, {:+.2} % off", 100.0 * off))
}

/// The pass that an attempt has played.
fn the_pass(profile: &Profile) -> PhaseTotal {
    consistent(profile);
    assert_eq!(profile.dropped, Dropped::default());
    let [total] = profile.phases[..] else { panic!("{:?}", profile.phases) };
    assert_eq!(total.passes, 1);
    total
}

/// A profiler for work of known length. It doesn't watch the load, which takes longer than an empty
/// brick.
fn on_a_real_clock() -> BrickProfiler {
    let profiler = BrickProfiler::new();
    profiler.watch_load(false);
    profiler.enable();
    // The log is made at the first span.
    profiler.stop_brick(profiler.start_brick(BrickId::LmHead), 0);
    profiler.reset();
    profiler
}

#[test]
#[cfg_attr(miri, ignore = "to Miri, which interprets it, an empty brick is long")]
fn a_spin_planted_in_one_brick_shows_in_that_brick_and_in_no_other() {
    const PLANTED: BrickId = BrickId::AttentionScore;
    in_one_of_ten_attempts(|| {
        let profiler = on_a_real_clock();
        let pass = profiler.begin_pass(Phase::Decode);
        let mut truth = Duration::ZERO;
        for brick in BrickId::ALL {
            let timer = profiler.start_brick(brick);
            if brick == PLANTED {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(20) {
                    std::hint::spin_loop();
                }
                truth = start.elapsed();
            }
            profiler.stop_brick(timer, 1);
        }
        profiler.end_pass(pass, 1, 0);
        let profile = profiler.profile();
        let pass = the_pass(&profile);
        let (mut planted, mut others) = (0, 0);
        for total in profile.bricks(Some(Phase::Decode)) {
            assert_eq!(total.stats.count, 1);
            let sum = if total.stats.name == PLANTED.name() { &mut planted } else { &mut others };
            *sum += total.stats.exclusive_ns;
        }
        assert_eq!(planted + others, pass.attributed_ns);
        near("the brick", planted, truth, 0.02)?;
        for (what, figure) in [("other bricks", others), ("no brick", pass.unattributed_ns)] {
            if figure as f64 > 0.02 * nanos(truth) {
                return Err(format!("{what}: {figure} ns"));
            }
        }
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "to Miri, which interprets it, an empty brick is long")]
fn a_sleep_outside_of_bricks_shows_as_time_that_no_brick_explains() {
    in_one_of_ten_attempts(|| {
        let profiler = on_a_real_clock();
        let mut truth = Duration::ZERO;
        let pass = profiler.begin_pass(Phase::Prefill);
        for brick in BrickId::ALL {
            let timer = profiler.start_brick(brick);
            profiler.stop_brick(timer, 1);
            let start = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            truth += start.elapsed();
        }
        profiler.end_pass(pass, 1, 0);
        let pass = the_pass(&profiler.profile());
        assert!(truth >= Duration::from_millis(15));
        near("unattributed", pass.unattributed_ns, truth, 0.05)?;
        near("the wall", pass.wall_ns, truth, 0.05)
    });
}

/// Counts and sums of elements of the bricks, by name.
fn sums(profile: &Profile) -> HashMap<String, (u64, u64)> {
    let mut sums = HashMap::<_, (u64, u64)>::new();
    for total in &profile.totals {
        assert_eq!((total.kind, total.source), (NameKind::Brick, Source::Host));
        let (count, elements) = sums.entry(total.stats.name.clone()).or_default();
        *count += total.stats.count;
        *elements += total.stats.total_elements;
    }
    sums
}

#[test]
fn of_millions_of_spans_from_many_threads_none_is_lost_while_others_look_on() {
    const THREADS: u64 = if cfg!(miri) { 3 } else { 16 };
    // More than the trace and the tail of a log have room for, under Miri too.
    const EACH: u64 = if cfg!(miri) { 400 } else { 250_000 };
    const KEPT: u64 = if cfg!(miri) { 50 } else { 1_000 };
    const PER_PASS: u64 = 100;
    let profiler = BrickProfiler::new().with_log_capacity(KEPT as usize);
    profiler.watch_load(false);
    profiler.enable();
    let running = AtomicUsize::new(THREADS as usize);
    // So that the looks come while they record, however the threads are scheduled.
    let was_looked_at = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (profiler, running, was_looked_at) = (&profiler, &running, &was_looked_at);
            scope.spawn(move || {
                // Half of each thread's spans lie in passes.
                let mut pass = None;
                for i in 0..EACH {
                    while i == EACH / 2 && !was_looked_at.load(Acquire) {
                        std::thread::yield_now();
                    }
                    if i % (2 * PER_PASS) == 0 {
                        pass = Some(profiler.begin_pass(Phase::ALL[(thread % 2) as usize]));
                    }
                    let timer = profiler.start_brick(BrickId::ALL[(i % 15) as usize]);
                    profiler.stop_brick(timer, thread + i % 7);
                    if i % (2 * PER_PASS) == PER_PASS - 1 {
                        profiler.end_pass(pass.take().expect("it has begun"), 1, i);
                    }
                }
                running.fetch_sub(1, Release);
            });
        }
        let mut before = HashMap::new();
        loop {
            let is_last = running.load(Acquire) == 0;
            let profile = profiler.profile();
            consistent(&profile);
            let now = sums(&profile);
            for (name, &(count, elements)) in &before {
                let later = now.get(name).copied().unwrap_or_default();
                assert!(later.0 >= count && later.1 >= elements, "{name}: {later:?}");
            }
            let count: u64 = now.values().map(|(count, _)| count).sum();
            assert!(count <= THREADS * EACH, "{count}");
            before = now;
            if count > 0 {
                was_looked_at.store(true, Release);
            }
            if is_last {
                break;
            }
        }
    });

    let mut expected = HashMap::<String, (u64, u64)>::new();
    for i in 0..EACH {
        let name = BrickId::ALL[(i % 15) as usize].name();
        let (count, elements) = match expected.get_mut(name) {
            Some(sums) => sums,
            None => expected.entry(name.to_owned()).or_default(),
        };
        *count += THREADS;
        *elements += (0..THREADS).sum::<u64>() + THREADS * (i % 7);
    }
    let profile = profiler.profile();
    consistent(&profile);
    assert_eq!(sums(&profile), expected);
    let passes = EACH / (2 * PER_PASS);
    for (phase, threads) in Phase::ALL.into_iter().zip([THREADS.div_ceil(2), THREADS / 2]) {
        let total = profile.phase(phase).expect("threads had passes of it");
        assert_eq!((total.passes, total.tokens), (threads * passes, threads * passes));
        let bricks = profile.bricks(Some(phase));
        let count: u64 = bricks.iter().map(|total| total.stats.count).sum();
        assert_eq!(count, threads * passes * PER_PASS);
    }
    // The rows of passes are in the log, too, so the kept rows are not all spans.
    let kept = profile.spans.len() as u64;
    let passes_among = (0..KEPT).filter(|row| row % (2 * PER_PASS + 1) == PER_PASS).count() as u64;
    assert_eq!(kept, THREADS * (KEPT - passes_among));
    let expected = Dropped { spans: THREADS * EACH - kept, ..Dropped::default() };
    assert_eq!(profile.dropped, expected);
    assert_eq!(profile.overhead.spans, THREADS * EACH);
}

/// Statistics of one brick's durations and elements, worked out from the definitions.
#[derive(Debug, Default)]
struct Truth {
    durations: Vec<u64>,
    elements: u64,
}

impl Truth {
    fn std_dev(&self) -> Option<f64> {
        let n = self.durations.len() as f64;
        let mean = self.durations.iter().sum::<u64>() as f64 / n;
        let squares: f64 = self.durations.iter().map(|&ns| (ns as f64 - mean).powi(2)).sum();
        (n > 1.0).then(|| (squares / (n - 1.0)).sqrt())
    }

    /// By nearest rank; the share is `percent` of a hundred, so that the rank is a whole number
    /// without a float.
    fn percentile(&self, percent: usize) -> u64 {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        sorted[(percent * sorted.len()).div_ceil(100) - 1]
    }
}

/// Compares the totals with the truth, which is by phase and name.
fn totals_are(profile: &Profile, truth: &HashMap<(Option<Phase>, String), Truth>) {
    assert_eq!(profile.totals.len(), truth.len());
    for total in &profile.totals {
        let stats = &total.stats;
        let what = format!("{} in {:?}", stats.name, total.phase);
        let truth = &truth[&(total.phase, stats.name.clone())];
        assert_eq!(stats.count, truth.durations.len() as u64, "{what}");
        assert_eq!(stats.total_ns, truth.durations.iter().sum::<u64>(), "{what}");
        assert_eq!(stats.total_elements, truth.elements, "{what}");
        assert_eq!(Some(&stats.min_ns), truth.durations.iter().min(), "{what}");
        assert_eq!(Some(&stats.max_ns), truth.durations.iter().max(), "{what}");
        match (total.std_dev_ns, truth.std_dev()) {
            (None, None) => {}
            // Equal values have none, but the mean of floats may be off by a part in 10^16.
            (Some(found), Some(true_one)) => assert!(
                (found - true_one).abs() <= 1e-9 * true_one + 1e-12 * stats.max_ns as f64,
                "{what}: {found} instead of {true_one}"
            ),
            other => panic!("{what}: {other:?}"),
        }
        let Percentiles { p50_ns, p90_ns, p95_ns, p99_ns } = total.percentiles;
        let stated = [(50, 7, p50_ns), (90, 44, p90_ns), (95, 90, p95_ns), (99, 459, p99_ns)];
        for (percent, least, found) in stated {
            if truth.durations.len() < least {
                assert_eq!(found, None, "p{percent} of {what}, {} spans", stats.count);
                continue;
            }
            let found = found.unwrap_or_else(|| panic!("no p{percent} of {what}"));
            let true_one = truth.percentile(percent);
            assert!(
                found.abs_diff(true_one) as f64 <= 0.01 * true_one as f64,
                "p{percent} of {what}: {found} instead of {true_one}"
            );
        }
    }
}

/// The trace's statistics of each brick in each phase.
fn truth_of_trace(profile: &Profile) -> HashMap<(Option<Phase>, String), Truth> {
    let phases: HashMap<_, _> =
        profile.passes.iter().map(|pass| (pass.serial, pass.phase)).collect();
    let mut truth = HashMap::<_, Truth>::new();
    for span in &profile.spans {
        let name = &profile.names[usize::from(span.name.expect("there are no layers"))].name;
        let phase = span.pass.map(|pass| phases[&pass]);
        let brick = truth.entry((phase, name.clone())).or_default();
        brick.durations.push(span.duration_ns);
        brick.elements += span.work.elements;
    }
    truth
}

/// Durations over many orders of magnitude, as those of bricks are.
fn durations() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..300, 1_000u64..5_000, 10_000u64..10_000_000, Just(1 << 40)]
}

proptest! {
    #![proptest_config(brickscope_testing::cases(96))]

    #[test]
    fn statistics_are_those_of_the_trace_and_of_what_was_played(
        groups in prop::collection::vec(
            (
                // Outside of passes, or in one.
                prop::option::of(any::<bool>()),
                0usize..2,
                prop::collection::vec((durations(), 0u64..1_000), 0..if cfg!(miri) { 20 } else { 300 }),
            ),
            1..10,
        ),
    ) {
        let (profiler, hand) = on(if cfg!(miri) { 200 } else { 10_000 });
        let mut played = HashMap::<_, Truth>::new();
        for (phase, brick, spans) in &groups {
            let phase = phase.map(|is_decode| Phase::ALL[usize::from(is_decode)]);
            let pass = phase.map(|phase| profiler.begin_pass(phase));
            for &(duration, elements) in spans {
                let timer = profiler.start_brick(BrickId::ALL[*brick]);
                hand.advance(duration);
                profiler.stop_brick(timer, elements);
                let name = BrickId::ALL[*brick].name().to_owned();
                let truth: &mut Truth = played.entry((phase, name)).or_default();
                truth.durations.push(duration);
                truth.elements += elements;
            }
            if let Some(pass) = pass {
                profiler.end_pass(pass, 1, 0);
            }
        }
        let profile = profiler.profile();
        consistent(&profile);
        prop_assert_eq!(profile.dropped, Dropped::default());
        totals_are(&profile, &played);
        totals_are(&profile, &truth_of_trace(&profile));
    }
}

#[test]
fn a_percentile_is_withheld_until_there_are_enough_spans_to_state_it() {
    let (profiler, hand) = on(0);
    let mut changes = Vec::new();
    let mut before = [false; 4];
    for count in 1..=500 {
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(1_000);
        profiler.stop_brick(timer, 1);
        // To look each time would take Miri minutes.
        if cfg!(miri) && ![6, 7, 43, 44, 89, 90, 458, 459].contains(&count) {
            continue;
        }
        let Percentiles { p50_ns, p90_ns, p95_ns, p99_ns } =
            profiler.profile().totals[0].percentiles;
        let now = [p50_ns, p90_ns, p95_ns, p99_ns].map(|percentile| percentile.is_some());
        if now != before {
            changes.push((count, now));
        }
        before = now;
    }
    let expected = [
        (7, [true, false, false, false]),
        (44, [true, true, false, false]),
        (90, [true, true, true, false]),
        (459, [true, true, true, true]),
    ];
    assert_eq!(changes, expected);
}

/// Unlike `panic!`, this doesn't write to the terminal.
fn panic_quietly() {
    std::panic::resume_unwind(Box::new(()));
}

#[test]
fn a_panic_in_a_brick_leaves_it_unfinished_and_the_rest_true() {
    let (profiler, hand) = on(100);
    let pass = profiler.begin_pass(Phase::Decode);
    let outer = profiler.start_brick(BrickId::QkvProjection);
    let in_macro = catch_unwind(AssertUnwindSafe(|| {
        brick!(profiler, BrickId::LmHead, 1, {
            hand.advance(10);
            panic_quietly();
        })
    }));
    let in_guard = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = profiler.brick(BrickId::RmsNorm);
        guard.elements(5);
        hand.advance(20);
        brick!(profiler, BrickId::Embedding, 3, { hand.advance(5) });
        panic_quietly();
    }));
    assert!(in_macro.is_err() && in_guard.is_err());
    profiler.stop_brick(outer, 1);
    brick!(profiler, BrickId::LmHead, 7, { hand.advance(40) });
    hand.advance(2);
    profiler.end_pass(pass, 1, 0);

    let profile = profiler.profile();
    consistent(&profile);
    assert_eq!(profile.dropped, Dropped { unfinished: 2, ..Dropped::default() });
    // What the panics took is the outer brick's, since nothing inside it ended.
    let total = profile.phases[0];
    assert_eq!((total.wall_ns, total.attributed_ns, total.unattributed_ns), (77, 75, 2));
    let [outer, lm_head, embedding, rms_norm] =
        [BrickId::QkvProjection, BrickId::LmHead, BrickId::Embedding, BrickId::RmsNorm]
            .map(|brick| profiler.brick_stats(brick));
    assert_eq!((outer.total_ns, outer.exclusive_ns), (35, 30));
    assert_eq!((lm_head.count, lm_head.total_ns, lm_head.total_elements), (1, 40, 7));
    assert_eq!((embedding.count, embedding.total_ns, embedding.total_elements), (1, 5, 3));
    assert_eq!(rms_norm.count, 0);
}

#[test]
fn leaving_a_brick_early_without_a_panic_ends_it_with_no_elements() {
    fn early(profiler: &BrickProfiler, hand: &MockClock) -> Option<u64> {
        let never = brick!(profiler, BrickId::LmHead, 9, {
            hand.advance(10);
            None::<u64>?
        });
        Some(never)
    }
    let (profiler, hand) = on(100);
    assert_eq!(early(&profiler, &hand), None);
    let stats = profiler.brick_stats(BrickId::LmHead);
    assert_eq!((stats.count, stats.total_ns, stats.total_elements), (1, 10, 0));
    assert_eq!(profiler.profile().dropped, Dropped::default());
}

#[test]
fn bricks_that_touch_explain_the_whole_wall_and_take_one_reading_each() {
    let (profiler, hand) = on(100);
    let pass = profiler.begin_pass(Phase::Prefill);
    let reads = hand.reads();
    let mut timer = profiler.start_brick(BrickId::ALL[0]);
    let mut wall = 0;
    for (i, next) in (1..).zip(BrickId::ALL[1..].iter()) {
        hand.advance(i * i);
        wall += i * i;
        timer = profiler.lap(timer, i, *next);
    }
    hand.advance(1_000);
    wall += 1_000;
    profiler.stop_brick(timer, 15);
    assert_eq!(hand.reads() - reads, 1 + 15);
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    consistent(&profile);
    assert_eq!(profile.dropped, Dropped::default());
    let total = profile.phases[0];
    assert_eq!((total.wall_ns, total.attributed_ns, total.unattributed_ns), (wall, wall, 0));
    for (i, brick) in (1..).zip(BrickId::ALL) {
        let stats = profiler.brick_stats(brick);
        let expected = if i == 15 { 1_000 } else { i * i };
        assert_eq!((stats.count, stats.total_ns, stats.exclusive_ns), (1, expected, expected));
        assert_eq!(stats.total_elements, i);
    }
    for touching in profile.spans.windows(2) {
        assert_eq!(touching[0].start_ns + touching[0].duration_ns, touching[1].start_ns);
    }
}

#[test]
fn a_brick_of_a_single_kernel_and_its_kernel_are_equally_long() {
    let (profiler, hand) = on(100);
    let kernel = profiler.kernel("matmul", None);
    let work = Work { elements: 7, flops: 14, bytes: 28, ..Work::default() };
    let pass = profiler.begin_pass(Phase::Decode);
    let reads = hand.reads();
    for duration in [300, 17] {
        let timer = profiler.start_brick_kernel(BrickId::DownProjection, kernel);
        hand.advance(duration);
        profiler.stop_brick_kernel(timer, work);
    }
    assert_eq!(hand.reads() - reads, 4);
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    consistent(&profile);
    assert_eq!(profile.dropped, Dropped::default());
    assert_eq!(profile.phases[0].unattributed_ns, 0);
    let (bricks, kernels) =
        (profile.bricks(Some(Phase::Decode)), profile.kernels(Some(Phase::Decode)));
    let ([brick], [kernel]) = (&bricks[..], &kernels[..]) else { panic!("{:?}", profile.totals) };
    assert_eq!((brick.stats.total_ns, brick.stats.exclusive_ns), (317, 317));
    assert_eq!((kernel.stats.total_ns, kernel.stats.exclusive_ns), (317, 0));
    for stats in [&brick.stats, &kernel.stats] {
        assert_eq!((stats.count, stats.min_ns, stats.max_ns), (2, 17, 300));
        assert_eq!((stats.total_elements, stats.total_flops, stats.total_bytes), (14, 28, 56));
    }
    let parents: Vec<_> = profile.spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(0), None, Some(2)]);
    for pair in profile.spans.chunks(2) {
        let [brick, kernel] = pair else { panic!("{pair:?}") };
        assert_eq!((brick.start_ns, brick.duration_ns), (kernel.start_ns, kernel.duration_ns));
        let kind = |name: Option<u16>| profile.names[usize::from(name.unwrap())].kind;
        assert_eq!([kind(brick.name), kind(kernel.name)], [NameKind::Brick, NameKind::Kernel]);
    }
}

/// Runs a pass of two threads. On one thread, a brick spins for `gate` and then for `planted` in a nested brick; on the
/// other, a brick spins for `up`. Returns its profile, if neither thread had to wait for a processor meanwhile, as far as
/// the system tells.
#[cfg(not(miri))]
fn two_threads(gate: Duration, planted: Duration, up: Duration) -> Option<Profile> {
    let spin = |duration: Duration| {
        let start = Instant::now();
        while start.elapsed() < duration {
            std::hint::spin_loop();
        }
    };
    let until = |flag: &AtomicUsize| {
        while flag.load(Acquire) == 0 {
            std::hint::spin_loop();
        }
    };
    let profiler = on_a_real_clock();
    let handed = std::sync::OnceLock::new();
    let back = std::sync::OnceLock::new();
    let [is_ready, is_handed, is_back] = [(); 3].map(|()| AtomicUsize::new(0));
    let undisturbed = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            // Makes this thread's log.
            profiler.stop_brick(profiler.start_brick(BrickId::Sampling), 0);
            let before = waited();
            is_ready.store(1, Release);
            until(&is_handed);
            profiler.take_over(*handed.get().expect("it was handed off"));
            let timer = profiler.start_brick(BrickId::GateProjection);
            spin(gate);
            if !planted.is_zero() {
                let timer = profiler.start("planted");
                spin(planted);
                profiler.stop(timer, 1);
            }
            profiler.stop_brick(timer, 1);
            back.set(profiler.hand_off()).expect("once");
            is_back.store(1, Release);
            waited() == before
        });
        until(&is_ready);
        let before = waited();
        let pass = profiler.begin_pass(Phase::Decode);
        let norm = profiler.start_brick(BrickId::RmsNorm);
        spin(Duration::from_micros(50));
        profiler.stop_brick(norm, 1);
        handed.set(profiler.hand_off()).expect("once");
        is_handed.store(1, Release);
        let timer = profiler.start_brick(BrickId::UpProjection);
        spin(up);
        profiler.stop_brick(timer, 1);
        until(&is_back);
        profiler.take_over(*back.get().expect("it is back"));
        let down = profiler.start_brick(BrickId::DownProjection);
        spin(Duration::from_micros(50));
        profiler.stop_brick(down, 1);
        profiler.end_pass(pass, 1, 0);
        let here = waited() == before;
        other.join().expect("no panic") && here
    });
    undisturbed.then(|| profiler.profile())
}

/// A spin is planted in a brick on another thread, where it matters in full, in part, or not at all.
#[test]
#[cfg(not(miri))]
fn what_the_removal_of_a_planted_spin_gains_is_predicted_from_the_graph() {
    if std::thread::available_parallelism().map_or(1, |cpus| cpus.get()) < 2 {
        eprintln!("skipped: two threads that run at once take two processors");
        return;
    }
    let micros = Duration::from_micros;
    for (gate, planted, up) in [(300, 200, 100), (200, 400, 400), (100, 100, 400)] {
        let wall = |profile: &Profile| profile.passes[0].wall_ns;
        // Others may take a processor in either run, and only lengthen it: the shortest count, of those in which no thread
        // is known to have waited for one.
        let (mut with, mut without): (Option<Profile>, Option<Profile>) = (None, None);
        let mut counts = [0; 2];
        let judged = first_to_judge(|_| {
            for (best, count, planted) in
                [(&mut with, 0, micros(planted)), (&mut without, 1, Duration::ZERO)]
            {
                let Some(now) = two_threads(micros(gate), planted, micros(up)) else { continue };
                counts[count] += 1;
                if best.as_ref().is_none_or(|best| wall(&now) < wall(best)) {
                    *best = Some(now);
                }
            }
            let too_few =
                || format!("two threads ran at once, with the spin and without, {counts:?} times");
            let (Some(with), Some(without)) = (&with, &without) else { return Err(too_few()) };
            let graph = with.execution_graph(with.passes[0].serial).expect("it was kept");
            let removed = graph.what_if("planted", 0.0).expect("no cycle").expect("it is there");
            assert_eq!(removed.before_ns, wall(with));
            let gained = wall(with) as f64 - wall(without) as f64;
            // And it is the gain that the plan has, so that neither is wrong alike.
            let plan = nanos(micros((gate + planted).max(up) - gate.max(up)));
            let why =
                format!("predicted {} ns, gained {gained}, planned {plan}", removed.gain_ns());
            // Of the gain; where nothing is to be gained, of what was planted.
            let tenth = 0.1 * if plan > 0.0 { plan } else { nanos(micros(planted)) };
            let is_right =
                (removed.gain_ns() as f64 - gained).abs() < tenth && (gained - plan).abs() < tenth;
            match is_right || counts.iter().all(|count| *count >= 200) {
                true => Ok((is_right, why)),
                false => Err(format!("{}: {why}", too_few())),
            }
        });
        let Some((is_right, why)) = judged else { return };
        assert!(is_right, "{why}");
    }
}
