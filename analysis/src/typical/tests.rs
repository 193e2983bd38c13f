use brickscope::{BrickId, BrickProfiler, MockClock};
use brickscope_profile::text::percent;
use brickscope_profile::{CeilingReading, Ceilings, Data, Preparation, ReadingTime, Work};
use proptest::prelude::*;

use super::sentences::milliseconds;
use super::*;
use crate::roofline::{Bound, Reach, Roofline};
use crate::view;

const MB: u64 = 1_000_000;

/// Passes of an LmHead at 95 % of memory's bandwidth and a QkvProjection a tenth as long, twice a pass. `extra` is
/// what the first QkvProjection of a pass takes longer.
fn run(passes: usize, extra: impl Fn(usize) -> u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for nth in 0..passes {
        let pass = profiler.begin_pass(Phase::Decode);
        let products = [
            (BrickId::QkvProjection, 50_000, MB * 19 / 10, extra(nth)),
            (BrickId::QkvProjection, 50_000, MB * 19 / 10, 0),
            (BrickId::LmHead, 1_000_000 + 100 * (nth as u64 % 5), 38 * MB, 0),
        ];
        for (brick, nanos, bytes, extra) in products {
            let timer = profiler.start_brick(brick);
            hand.advance(nanos + extra);
            let data = Data::Weights(bytes);
            let work = Work { elements: 1, flops: bytes / 4, bytes, data };
            profiler.stop_brick_with(timer, work);
        }
        hand.advance(7_000);
        profiler.end_pass(pass, 1, 100 + nth as u64);
        hand.advance(100_000);
    }
    let mut profile = profiler.profile();
    profile.ceilings = Some(Ceilings {
        read_bytes_per_second: 40e9,
        flops_per_second: 500e9,
        basis: "made up".to_owned(),
        ..Ceilings::default()
    });
    profile
}

fn disturb(profile: &mut Profile, passes: impl IntoIterator<Item = usize>, own_ns: u64) {
    for pass in passes {
        profile.passes[pass].disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: profile.passes[pass].wall_ns,
            longest_wait_ns: Some(4_000_000),
            run_queue_wait_ns: Some(4_000_000),
            own_wait_ns: Some(own_ns),
            ..Disturbance::default()
        });
    }
    let disturbed = profile.passes.iter().filter(|pass| pass.is_disturbed()).count() as u64;
    profile.phases[0].disturbed = disturbed;
    profile.dropped.disturbed_passes = disturbed;
}

fn adds_up(typical: &Typical) {
    let bricks: f64 = typical.bricks.iter().map(|brick| brick.time.ns).sum();
    let sum = bricks + typical.unattributed.ns;
    assert!((sum - typical.wall.ns).abs() <= 1e-9 * typical.wall.ns, "{typical:?}");
}

#[test]
fn one_stall_decides_nothing_and_has_a_line_of_its_own() {
    let profile = run(64, |nth| if nth == 40 { 80_000_000 } else { 0 });
    let sums = &profile.bricks(Some(Phase::Decode))[0].stats;
    assert_eq!(
        (sums.name.as_str(), sums.count),
        ("QkvProjection", 128),
        "by its sum it is the first"
    );

    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!((typical.basis, typical.passes, typical.left_out.stalled), (Basis::Passes, 63, 1));
    assert_eq!(typical.bricks[0].name, "LmHead");
    let qkv = &typical.bricks[1].time;
    assert_eq!((qkv.ns, qkv.interval_ns), (100_000.0, Some([100_000.0; 2])));
    let [low, high] = typical.wall.interval_ns.expect("many passes");
    assert!(low < typical.wall.ns && typical.wall.ns < high && high - low < 200.0);
    adds_up(&typical);
    let [stall] = &typical.stalls[..] else { panic!("{:?}", typical.stalls) };
    assert_eq!((stall.brick.as_deref(), stall.position), (Some("QkvProjection"), 140));
    assert_eq!((stall.ns, stall.median_ns), (80_050_000, 50_000));
    // Forty passes of 1.107 ms and their pauses lie before it, and it began its pass.
    assert!((48 * MB..49 * MB).contains(&stall.at_ns), "{stall:?}");

    let headline = view::headline(&profile);
    assert!(headline.contains("LmHead takes the most time, 90.3% of it"), "{headline}");
    assert!(headline.contains("memory-bound: 94 % of 40 GB/s"), "{headline}");
    let roofline = Roofline::of(&profile, Phase::Decode).expect("ceilings");
    for brick in &roofline.bricks {
        let place = brick.place.as_ref().expect("its work was stated");
        assert_eq!((place.bound, place.reach), (Bound::Memory, Reach::At), "{}", brick.name);
    }
    let report = view::report(&profile);
    assert!(
        report.contains("stall: QkvProjection took 80.050 ms, 1601 times its median"),
        "{report}"
    );
    // The tables add up to the wall of their passes, and with the rest to that of all.
    let shown = shown(&profile);
    shown.check().expect("it adds up");
    let (all, kept) = (profile.phases[0].wall_ns, shown.phases[0].wall_ns);
    assert_eq!(all - kept, typical.left_out.wall_ns);
    let line = format!("64 passes, {} = {} + ", milliseconds(all), milliseconds(kept));
    assert!(report.contains(&line), "{report}");
    assert_eq!(super::shown(&shown), shown, "once is enough");
    let json = view::json(&profile);
    assert!(json.contains("\"typical\"") && json.contains("\"stalled\":1}"), "{json}");
}

#[test]
fn a_stall_in_which_a_thread_made_its_log_is_the_profilers_own() {
    let mut profile = run(64, |nth| if nth == 40 { 80_000_000 } else { 0 });
    let start_ns = profile.passes[40].start_ns + 1_000;
    profile.overhead.preparations = vec![Preparation { start_ns, duration_ns: 60_000_000 }];
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    let [stall] = &typical.stalls[..] else { panic!("{:?}", typical.stalls) };
    assert_eq!((stall.prepared_ns, stall.is_of_profiler()), (60_000_000, true));
    let note = stall.note(Phase::Decode);
    assert!(note.contains("brickscope itself: a thread made its log for 60.000 ms"), "{note}");
    assert_eq!(profile.prepared_ns(), 60_000_000);
    // Before the first pass it delays none.
    profile.overhead.preparations[0].start_ns = 0;
    profile.overhead.preparations[0].duration_ns = profile.passes[0].start_ns;
    assert_eq!(profile.prepared_ns(), 0);
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert!(!typical.stalls[0].is_of_profiler());
}

#[test]
fn a_pass_that_lacks_a_brick_whose_timer_was_dropped_has_no_stall() {
    let run = |lost: Option<usize>| {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for nth in 0..40 {
            let pass = profiler.begin_pass(Phase::Decode);
            for brick in [BrickId::QkvProjection, BrickId::LmHead] {
                let timer = profiler.start_brick(brick);
                hand.advance(100_000);
                if lost != Some(nth) || brick != BrickId::LmHead {
                    profiler.stop_brick(timer, 1);
                }
            }
            hand.advance(500);
            profiler.end_pass(pass, 1, nth as u64);
        }
        profiler.profile()
    };
    let profile = run(Some(30));
    assert_eq!(profile.dropped.unfinished, 1);
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!((typical.stalls.len(), typical.left_out.stalled), (0, 0));
    // Without a dropped timer the same time is a stall.
    let mut stalled = profile.clone();
    stalled.dropped.unfinished = 0;
    let typical = Typical::of(&stalled, Phase::Decode).expect("passes");
    assert_eq!((typical.stalls.len(), typical.left_out.stalled), (1, 1));
    assert_eq!(run(None).dropped.unfinished, 0);
}

#[test]
fn slow_spans_that_are_the_rule_are_no_stalls() {
    // Every other pass has it: then it is what the program does.
    let profile = run(64, |nth| if nth % 2 == 0 { 1_000_000 } else { 0 });
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!((typical.passes, typical.stalls.len()), (64, 0));
    // Ten times its median, but a hundredth of the pass.
    let small = run(64, |nth| if nth == 9 { 39_000 } else { 0 });
    assert!(Typical::of(&small, Phase::Decode).expect("passes").stalls.is_empty());
}

#[test]
fn disturbed_passes_are_left_out_and_it_is_told_who_disturbed_them() {
    let mut profile = run(64, |nth| if nth < 9 { 4_000_000 } else { 0 });
    disturb(&mut profile, 0..6, 0);
    disturb(&mut profile, 6..9, 3_900_000);
    profile.phases[0].unwatched = Some(2);
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    let left_out = &typical.left_out;
    assert_eq!((typical.passes, left_out.passes, left_out.stalled), (55, 9, 0));
    let by = [(Disturber::Others, 6), (Disturber::OwnThreads, 3)];
    assert_eq!(left_out.disturbed, BTreeMap::from(by));
    adds_up(&typical);
    let notes = notes(&profile).join("\n");
    for part in [
        "left out of the tables: 9 of 64 passes of decode",
        "other programs disturbed 6, threads of this process shared a CPU in 3",
        "whether they were disturbed is not known for 2 of 64 passes of decode",
        "a thread waited 4.000 ms for a CPU: other programs had it",
        "6 more such stalls in decode",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert!(view::headline(&profile).contains("94 % of 40 GB/s"));
}

#[test]
fn passes_that_warmed_up_do_not_keep_disturbed_ones_in_the_tables() {
    let mut profile = run(64, |nth| if nth < 9 { 4_000_000 } else { 0 });
    disturb(&mut profile, 6..9, 0);
    // As a run that was recorded without its first passes, which were slow, too.
    let mut profile = profile.without(|pass| pass.serial <= 6).expect("all spans were kept");
    profile.dropped.warm_up_passes = 6;
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!((typical.passes, typical.left_out.passes), (55, 3));
    let shown = shown(&profile);
    shown.check().expect("it adds up");
    assert_eq!((shown.phases[0].passes, shown.dropped.left_out_passes), (55, 9));
    assert_eq!(super::shown(&shown), shown, "once is enough");
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    assert!(screen.contains("3 of 58 decode passes left out"), "{screen}");
    // By what remains, as if the others had not been: 19.8 MB in 1.107 ms.
    assert!(screen.contains("Decode   903 tok/s"), "{screen}");
    assert!(view::report(&profile).contains("since they warm up: 6"));
}

#[test]
fn a_median_is_of_spans_that_have_as_much_work() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for nth in 0..20_u64 {
        let pass = profiler.begin_pass(Phase::Decode);
        for layer in 0..2 {
            let layer = profiler.begin_layer(layer);
            // Q, K and V; and attention to the text, which grows, and to the sound.
            for (brick, nanos, bytes) in [
                (BrickId::QkvProjection, 80_000, 8000),
                (BrickId::QkvProjection, 10_000, 1000),
                (BrickId::QkvProjection, 10_000, 1000),
                (BrickId::AttentionScore, 5_000, 10 + nth),
                (BrickId::AttentionScore, 900_000, 100_000),
            ] {
                let timer = profiler.start_brick(brick);
                hand.advance(nanos);
                profiler.stop_brick_with(timer, Work { bytes, ..Work::elements(1) });
            }
            profiler.end_layer(layer);
        }
        profiler.end_pass(pass, 1, nth);
    }
    let mut profile = profiler.profile();
    disturb(&mut profile, 0..20, 0);
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!(typical.basis, Basis::Spans);
    let times: Vec<_> = typical.bricks.iter().map(|of| (&*of.name, of.time.ns)).collect();
    assert_eq!(times, [("AttentionScore", 1_810_000.0), ("QkvProjection", 200_000.0)]);
}

#[test]
fn where_nearly_all_passes_were_disturbed_the_median_spans_say_what_limits_it() {
    // Each pass waits somewhere: no pass is clean, but most spans are.
    let mut profile = run(64, |nth| if nth < 62 { 500_000 + 1_000 * nth as u64 } else { 0 });
    disturb(&mut profile, 0..62, 0);
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!((typical.basis, typical.left_out.passes), (Basis::Spans, 62));
    assert_eq!(typical.bricks[0].name, "LmHead");
    assert_eq!(typical.bricks[1].time.ns, 100_000.0, "the median of 50 µs, twice");
    adds_up(&typical);
    let headline = view::headline(&profile);
    let begin = "62 of 64 passes were disturbed; a pass takes 1.62 ms, 1.11 ms by median spans (other programs took the CPU). \
                 Without the waits, decode: memory-bound";
    assert!(headline.starts_with(begin), "{headline}");
    // The tables have all passes, as nothing was left out.
    assert_eq!(*shown(&profile), profile);
    let report = view::report(&profile);
    assert!(
        report.contains("disturbed: 62 of 64 passes of decode; other programs disturbed 62"),
        "{report}"
    );
    // Without a verdict there is no sentence about one.
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.read_bytes_per_second = 60e9;
    for (when, gigabytes) in [(ReadingTime::Before, 60.0), (ReadingTime::After, 39.0)] {
        let read_bytes_per_second = 1e9 * gigabytes;
        let measured = String::new();
        let reading = CeilingReading { when, measured, read_bytes_per_second, disturbed: false };
        ceilings.readings.push(reading);
    }
    let headline = view::headline(&profile);
    let begin = "62 of 64 decode passes were disturbed: a pass takes 1.62 ms, 1.11 ms by median spans, so what limits \
                 decode has no verdict; by median spans, LmHead takes the most time, ";
    assert!(headline.starts_with(begin), "{headline}");
}

#[test]
fn a_stall_was_not_the_scheduler_only_if_threads_waited_for_far_less() {
    for (wait_ns, so) in [(3_000, true), (9_000, false)] {
        let mut profile = run(64, |nth| if nth == 40 { 1_000_000 } else { 0 });
        let wall_ns = profile.passes[40].wall_ns;
        profile.passes[40].disturbance = Some(Disturbance {
            passes: 1,
            // A hundredth of it is no disturbance.
            wall_ns: wall_ns * 100,
            longest_wait_ns: Some(wait_ns * 20),
            ..Disturbance::default()
        });
        let notes = notes(&profile).join("\n");
        assert_eq!(notes.contains("so it was not the scheduler"), so, "{notes}");
        assert!(notes.contains("no thread waited more than 0."), "{notes}");
    }
}

#[test]
fn a_run_that_was_imported_is_not_said_to_lack_spans() {
    let mut profile = run(10, |_| 0);
    disturb(&mut profile, 0..3, 0);
    profile.imported = Some(brickscope_profile::Imported::default());
    let notes = notes(&profile).join("\n");
    assert!(notes.contains("in the tables, since this run was imported"), "{notes}");
}

#[test]
fn what_was_only_summed_is_its_mean() {
    let mut profile = run(10, |_| 0);
    profile.spans.clear();
    profile.dropped.spans = 30;
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!((typical.basis, typical.passes), (Basis::Sums, 10));
    adds_up(&typical);
    assert_eq!(Typical::of(&profile, Phase::Prefill), None);
}

#[test]
fn a_stall_decides_nothing_where_only_sums_are_known_as_in_a_live_view() {
    let mut profile = run(64, |nth| if nth == 40 { 80_000_000 } else { 0 });
    profile.spans.clear();
    profile.dropped.spans = 192;
    assert_eq!(profile.bricks(Some(Phase::Decode))[0].stats.name, "QkvProjection");
    let judged = judged(&profile, Phase::Decode);
    let bricks = judged.bricks(Some(Phase::Decode));
    assert_eq!(bricks[0].stats.name, "LmHead");
    let qkv = &bricks[1];
    let off = qkv.stats.exclusive_ns as f64 / 6_400_000.0;
    // The histogram knows a span to a hundredth.
    assert!((0.95..1.05).contains(&off), "{off}");
    judged.check().expect("it adds up");
    let roofline = Roofline::of(&profile, Phase::Decode).expect("ceilings");
    let far = roofline
        .bricks
        .iter()
        .find(|brick| brick.place.as_ref().is_none_or(|p| p.reach != Reach::At));
    assert_eq!(far, None);
    // The headline has the same figures.
    let headline = view::headline(&profile);
    let verdict = roofline.verdict().expect("bricks with a place");
    let share = verdict.part();
    assert!(headline.contains(&share), "{share}: {headline}");
    let first = percent(bricks[0].stats.exclusive_ns as f64, roofline.wall_ns as f64);
    assert!(headline.contains(&format!("LmHead takes the most time, {first} of it")), "{headline}");
}

proptest! {
    #[test]
    fn bricks_and_the_rest_add_up_and_gains_stay_within_the_wall(
        extras in prop::collection::vec(prop_oneof![4 => Just(0u64), 1 => 0u64..60_000_000], 1..40),
        disturbed in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut profile = run(extras.len(), |nth| extras[nth]);
        disturb(&mut profile, (0..extras.len()).filter(|&nth| disturbed[nth]), 0);
        let typical = Typical::of(&profile, Phase::Decode).expect("passes");
        let bricks: f64 = typical.bricks.iter().map(|brick| brick.time.ns).sum();
        let sum = bricks + typical.unattributed.ns;
        prop_assert!((sum - typical.wall.ns).abs() <= 1e-9 * typical.wall.ns);
        let shown = shown(&profile);
        prop_assert_eq!(shown.check(), Ok(()));
        let left_out = profile.phases[0].wall_ns - shown.phases[0].wall_ns;
        match typical.basis {
            Basis::Passes => prop_assert_eq!(left_out, typical.left_out.wall_ns),
            _ => prop_assert_eq!(left_out, 0),
        }
        let roofline = Roofline::of(&profile, Phase::Decode).expect("ceilings");
        let above = roofline.bricks.iter().filter_map(|brick| {
            Some(brick.place.as_ref()?.us_to_roof * brick.spans as f64)
        });
        let rest = roofline.wall_ns as f64 - roofline.least_ns;
        prop_assert!(above.sum::<f64>() * 1e3 <= rest + 1e-6 * roofline.wall_ns as f64);
        // Whatever was planted, it renders.
        let _ = (view::report(&profile), view::json(&profile));
    }
}

#[test]
fn passes_that_nothing_disturbed_speak_for_the_run_only_if_they_are_most() {
    // 22 of 99 passes are clean, and twenty times as fast as the others.
    let mut profile = run(99, |nth| if nth < 77 { 20_000_000 } else { 0 });
    disturb(&mut profile, 0..77, 0);
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!((typical.basis, typical.passes, typical.left_out.passes), (Basis::Spans, 99, 77));
    let clean = typical.clean.expect("some are clean");
    assert_eq!((clean.passes, clean.tokens), (22, 22));
    let rate = clean.tokens_per_second().expect("time");
    assert!((rate - 903.0).abs() < 1.0, "{rate}");
    adds_up(&typical);
    // The rate is the run's, and both are said.
    assert_eq!(*shown(&profile), profile);
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    assert!(screen.contains("Decode   60.0 tok/s"), "{screen}");
    assert!(screen.contains("only 22 of 99 decode passes are clean (903 tok/s)"), "{screen}");
    // One more than the half is enough.
    disturb(&mut profile, 0..99, 0);
    let mut half = run(99, |_| 0);
    disturb(&mut half, 0..49, 0);
    let typical = Typical::of(&half, Phase::Decode).expect("passes");
    assert_eq!((typical.basis, typical.passes, typical.clean), (Basis::Passes, 50, None));
}

#[test]
fn time_between_bricks_is_that_of_the_median_at_each_place() {
    // In each pass something waits between two bricks, each time between others.
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for nth in 0..40_u64 {
        let pass = profiler.begin_pass(Phase::Decode);
        for place in 0..20 {
            let timer = profiler.start_brick(BrickId::LmHead);
            hand.advance(10_000);
            profiler.stop_brick_with(timer, Work::elements(1));
            hand.advance(if place == nth % 20 { 450_000 } else { 1_000 });
        }
        profiler.end_pass(pass, 1, nth);
    }
    let mut profile = profiler.profile();
    disturb(&mut profile, 0..40, 0);
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    assert_eq!(typical.basis, Basis::Spans);
    // Each pass has 469 µs of it; each place has 1 µs.
    assert_eq!(typical.unattributed.ns, 20_000.0);
    assert_eq!(typical.wall.ns, 220_000.0);
    adds_up(&typical);
}

#[test]
fn passes_that_lack_a_brick_count_in_its_mean() {
    let some = [(3, 900), (17, 100), (18, 200)];
    let mut all = [0_u64; 20];
    some.iter().for_each(|&(nth, ns)| all[nth] = ns);
    let of_some = mean(20, some.into_iter());
    assert_eq!(of_some.ns, 60.0);
    assert_eq!(of_some, mean(20, all.into_iter().enumerate()));
}

#[test]
fn the_interval_of_a_run_whose_passes_are_alike_holds_its_mean() {
    // Each pass is much as the one before it. By single passes 40 of 100 intervals would hold the mean.
    let held = (0..100_u64).filter(|&seed| {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut noise = 0.0;
        let times = (0..300).map(|_| {
            let uniform: f64 = (0..12)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 11) as f64 / (1_u64 << 53) as f64
                })
                .sum();
            noise = 0.8 * noise + uniform - 6.0;
            (1e6 + 1e4 * noise) as u64
        });
        let [low, high] = mean(300, times.enumerate()).interval_ns.expect("many");
        low < 1e6 && 1e6 < high
    });
    let held = held.count();
    assert!((88..=100).contains(&held), "{held} of 100");
}
