//! One run, one figure: what screens say of the same thing is the same.

use brickscope::{
    BrickId, BrickProfiler, Ceilings, Disturbance, MockClock, Part, Phase, Profile, Profiled,
    Repeated, Repetition, Run, TimedPass, TimedSpan, TimedWork, Work,
};
use brickscope_analysis::explain;
use brickscope_analysis::findings::Findings;
use brickscope_analysis::rate::{Overlapped, Rate, RateOf};
use brickscope_analysis::typical::{self, OnePass};
use brickscope_analysis::view::{self, Size};
use brickscope_formats::import::{Format, Options, read};

/// Twenty passes of a millisecond; those at `slow` take fifty, and others took the CPU.
fn run(slow: &[u64]) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..20 {
        let is_slow = slow.contains(&position);
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(600_000 + position);
        profiler.stop_brick(timer, 1);
        let timer = profiler.start_brick(BrickId::Sampling);
        hand.advance(if is_slow { 49_300_000 } else { 300_000 });
        profiler.stop_brick(timer, 1);
        hand.advance(100_000);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    for pass in profile.passes.iter_mut().filter(|pass| slow.contains(&pass.position)) {
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(49_000_000),
            run_queue_wait_ns: Some(49_000_000),
            own_wait_ns: Some(0),
            ..Disturbance::default()
        });
    }
    profile.phases[0].disturbed = slow.len() as u64;
    profile.dropped.disturbed_passes = slow.len() as u64;
    profile
}

/// A benchmark whose last repetition is the profile, and much slower than the others.
fn benchmark() -> Profile {
    let mut profile = run(&[3, 4]);
    let last = profile.phases[0];
    let of = |tokens, wall_ns| Repetition { tokens, wall_ns, disturbed: None };
    let test = Repeated {
        test: "tg20".to_owned(),
        phase: Phase::Decode,
        prompt_tokens: 0,
        generated_tokens: 20,
        depth: 0,
        repetitions: vec![of(20, 21_000_000), of(20, 20_000_000), of(20, last.wall_ns)],
        profiled: Profiled::Last,
    };
    let other = Repeated {
        test: "tg20 @ d64".to_owned(),
        depth: 64,
        repetitions: vec![of(20, 40_000_000); 2],
        profiled: Profiled::No,
        ..test.clone()
    };
    profile.run = Some(Run { repeated: vec![other, test], ..Run::default() });
    profile
}

fn explained(word: &str, profile: &Profile) -> String {
    let pages = explain::find_in(word, profile);
    let said: Vec<_> = pages.iter().map(|page| page.in_run(profile)).collect();
    view::explain(&pages, Some(("a", &said)))
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_screen_of_a_benchmark_says_the_median_of_its_repetitions_first() {
    let profile = benchmark();
    let rate = Rate::of(&profile, Phase::Decode).expect("it has one");
    // 20 tokens in 21 ms.
    assert_eq!((rate.of, rate.tokens_per_second.round()), (RateOf::Repetitions, 952.0));
    // 118 ms with the two passes, 18 without them.
    let beside = "tg20, median of 3 repetitions, 169 to 1000, mean 707; this profile is of the last: 169 tok/s, 1000 \
                  without the 2 passes left out";
    let summary = view::summary(&profile, Size { columns: 80, rows: 24 }, None).to_string();
    assert!(summary.starts_with("Decode   952 tok/s"), "{summary}");
    assert!(on_one_line(&summary).contains(beside), "{summary}");
    let report = on_one_line(&view::report(&profile));
    assert!(report.contains(&format!("Decode: 952.4 tokens/s: {beside}")), "{report}");
    assert!(report.contains("Profiled: 18 tokens token by token"), "{report}");
    let other = "decode 500.0 tokens/s: tg20 @ d64, median of 2 repetitions, 500 to 500, mean 500";
    assert!(report.contains(other), "{report}");
    let explained = on_one_line(&explained("decode", &profile));
    assert!(explained.contains(&format!("952 tokens a second: {beside}")), "{explained}");
    let json = view::json(&profile);
    let read = Profile::from_json(&json, "x".as_ref()).expect("a profile");
    assert_eq!(Rate::of(&read, Phase::Decode), Some(rate));
    let said = format!("{:?}", rate.tokens_per_second);
    assert!(json.contains(&said), "{json}");

    // Without repetitions it is the rate of the passes that tables are of.
    let plain = Profile { run: None, ..profile };
    let rate = Rate::of(&plain, Phase::Decode).expect("it has one");
    assert_eq!((rate.of, rate.tokens_per_second.round()), (RateOf::Passes, 1000.0));
}

#[test]
fn a_test_without_a_profile_has_its_rate_all_the_same() {
    let mut profile = benchmark();
    // Its decode test was cut short before the repetition that would have been profiled.
    profile.phases[0].phase = Phase::Prefill;
    profile.passes.iter_mut().for_each(|pass| pass.phase = Phase::Prefill);
    profile.totals.iter_mut().for_each(|total| total.phase = Some(Phase::Prefill));
    let run = profile.run.as_mut().expect("a run");
    run.repeated.retain(|of| of.profiled == Profiled::No);
    let summary = view::summary(&profile, Size { columns: 80, rows: 24 }, None).to_string();
    assert!(summary.starts_with("Decode   500 tok/s"), "{summary}");
    assert!(on_one_line(&summary).contains("none of them was profiled"), "{summary}");
}

#[test]
fn one_pass_is_a_clean_one_or_says_why_it_is_not() {
    // More than half are disturbed, so that the median is one of them.
    let slow: Vec<u64> = (0..12).collect();
    let profile = run(&slow);
    let median = profile.typical_pass(Phase::Decode).expect("passes");
    assert!(median.is_disturbed());
    let one = OnePass::of(&profile, Phase::Decode).expect("a pass");
    assert_eq!((one.pass.position, one.is_median, one.of, one.doubt), (15, true, 8, None));
    let report = view::report(&profile);
    assert!(
        report.contains("One decode pass on the host: 1.000 ms, the median of 8, at position 15"),
        "{report}"
    );
    // And what bricks are of.
    assert!(report.contains("Bricks by median spans: "), "{report}");

    let profile = run(&(0..20).collect::<Vec<_>>());
    let one = OnePass::of(&profile, Phase::Decode).expect("a pass");
    assert_eq!(one.doubt, Some("other programs took the CPU"));
    assert!(
        one.title()
            .ends_with("the median of 20, disturbed: other programs took the CPU, at position 9"),
        "{}",
        one.title()
    );
    // The same pass, whether or not passes were left out before.
    let few = run(&[9, 10]);
    let shown = typical::shown(&few);
    let [a, b] =
        [&few, &*shown].map(|of| OnePass::of(of, Phase::Decode).expect("a pass").pass.serial);
    assert_eq!(a, b);
}

/// Twenty disturbed passes, of which these many stall: the first half of them in one brick, the others in another.
fn stalling(stalls: u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..20 {
        let pass = profiler.begin_pass(Phase::Decode);
        for (brick, stalled) in
            [(BrickId::LmHead, 0..stalls / 2), (BrickId::Sampling, stalls / 2..stalls)]
        {
            let timer = profiler.start_brick(brick);
            hand.advance(if stalled.contains(&position) { 50_000_000 } else { 400_000 });
            profiler.stop_brick(timer, 1);
        }
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    for pass in &mut profile.passes {
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(pass.wall_ns / 2),
            run_queue_wait_ns: Some(pass.wall_ns / 2),
            own_wait_ns: Some(0),
            ..Disturbance::default()
        });
    }
    profile.phases[0].disturbed = 20;
    profile.dropped.disturbed_passes = 20;
    profile
}

#[test]
fn of_passes_that_were_all_disturbed_one_without_a_stall_is_shown() {
    // The median stalls.
    let profile = stalling(14);
    let median = profile.typical_pass(Phase::Decode).expect("passes");
    assert!(median.wall_ns > 50_000_000);
    let one = OnePass::of(&profile, Phase::Decode).expect("a pass");
    assert_eq!((one.pass.wall_ns, one.of), (800_000, 6));
    assert_eq!(one.doubts().as_deref(), Some("other programs took the CPU"));
    // Of those without one, not all spans were kept.
    let mut profile = stalling(14);
    profile.passes[14..].iter_mut().for_each(|pass| pass.attributed_ns += 1);
    let one = OnePass::of(&profile, Phase::Decode).expect("a pass");
    let said = "other programs took the CPU; no pass without a stall was kept";
    assert_eq!(one.doubts().as_deref(), Some(said));
}

/// Twenty passes of 1.02 ms at 97 % of what memory gives, in each of which other programs held up one projection for 3 ms. By
/// their sums projections take most, by median spans the head does.
fn all_disturbed() -> Profile {
    const RATE: f64 = 38.8;
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let brick = |id: BrickId, ns: u64, waited_ns: u64| {
        let timer = profiler.start_brick(id);
        hand.advance(ns + waited_ns);
        let bytes = (RATE * ns as f64) as u64;
        let work = Work { elements: 1, flops: 2 * bytes, bytes, ..Work::default() };
        profiler.stop_brick_with(timer, work);
    };
    for position in 0..20 {
        let pass = profiler.begin_pass(Phase::Decode);
        for nth in 0..4 {
            let waited_ns = if nth == position % 4 { 3_000_000 } else { 0 };
            brick(BrickId::QkvProjection, 100_000, waited_ns);
        }
        brick(BrickId::LmHead, 600_000, 0);
        hand.advance(20_000);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    for pass in &mut profile.passes {
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(3_000_000),
            run_queue_wait_ns: Some(3_000_000),
            own_wait_ns: Some(0),
            ..Disturbance::default()
        });
    }
    profile.phases[0].disturbed = 20;
    profile.dropped.disturbed_passes = 20;
    profile.ceilings = Some(Ceilings {
        read_bytes_per_second: 40e9,
        flops_per_second: 500e9,
        basis: "planted".to_owned(),
        ..Ceilings::default()
    });
    profile
}

#[test]
fn all_screens_of_a_disturbed_run_have_the_same_bricks_shares_and_verdict() {
    let profile = all_disturbed();
    let summary = view::summary(&profile, Size { columns: 80, rows: 24 }, None).to_string();
    let summary = on_one_line(&summary);
    for said in [
        "without the waits: memory-bound, 95 % of 40 GB/s",
        "bricks are by median spans (1.02 ms of 4.02 ms a pass): other programs took the CPU",
        "share median × a pass",
        "LmHead 58.8 % 600 µs × 1",
        "QkvProjection 39.2 % 100 µs × 4",
        "unattributed 2.0 %",
        "Next: stop other programs, which took the CPU in 20 of 20 passes",
    ] {
        assert!(summary.contains(said), "{said}: {summary}");
    }
    assert!(view::waits_most(&profile, Phase::Decode));

    let headline = view::headline(&profile);
    let said = "a pass takes 4.02 ms, 1.02 ms by median spans (other programs took the CPU). Without the waits, decode: \
                memory-bound: 95 % of 40 GB/s; LmHead takes the most time, 58.8% of it.";
    assert!(headline.ends_with(said), "{headline}");

    let report = view::report(&profile);
    let (_, table) = report.split_once("\nBrick ").expect("a table");
    let rows: Vec<String> = table.lines().skip(2).take(6).map(on_one_line).collect();
    let begins = [
        "LmHead 600.0 12000.0 20 58.8%",
        "QkvProjection 100.0 8000.0 80 39.2%",
        "unattributed 20.0 400.0 20 2.0%",
        "sum 1020.0 20400.0 20 100.0%",
        "beyond the sum 3000.0 60000.0 20",
        "wall 4020.0 80400.0 20",
    ];
    for (row, begin) in rows.iter().zip(begins) {
        assert!(row.starts_with(begin), "{begin}: {report}");
    }
    let report = on_one_line(&report);
    let said = "Bricks by median spans: 1.02 ms of the 4.02 ms that a pass took";
    assert!(report.contains(said), "{report}");
    assert!(report.contains(&headline), "{report}");

    let findings = Findings::of(&profile);
    let first = findings.first().expect("one");
    assert_eq!(first.rule, "other-programs");
    let said = "a pass takes 4.02 ms, by the medians of its bricks 1.02 ms";
    assert!(first.evidence.iter().any(|of| of.text == said), "{first:?}");

    let explained = on_one_line(&explained("decode", &profile));
    assert!(explained.contains("by median spans 1.02 ms each"), "{explained}");

    let json: serde_json::Value = serde_json::from_str(&view::json(&profile)).expect("JSON");
    let of = &json["typical"][0];
    assert_eq!(of["basis"], "spans", "{of}");
    assert_eq!(of["wall"]["ns"], 1_020_000.0, "{of}");
    assert_eq!(of["bricks"][0]["name"], "LmHead", "{of}");
    assert_eq!(of["bricks"][0]["ns"], 600_000.0, "{of}");
}

#[test]
fn a_mean_is_beside_a_median_that_says_something_else() {
    // 18 of 20 take 1 ms, and the mean is 5.9 ms.
    let mut slow = run(&[3, 4]);
    slow.passes.iter_mut().for_each(|pass| pass.disturbance = None);
    slow.spans.clear();
    let summary = view::summary(&slow, Size { columns: 80, rows: 24 }, None).to_string();
    assert!(on_one_line(&summary).contains("tok/s mean 5.90 ms, p50 1.00 ms"), "{summary}");
    let summary = view::summary(&run(&[]), Size { columns: 80, rows: 24 }, None).to_string();
    assert!(summary.contains(" p50 1.00 ms") && !summary.contains("mean "), "{summary}");
}

#[test]
fn layers_are_of_the_passes_that_tables_are_of() {
    let profile = run(&[3, 4]);
    let shown = typical::shown(&profile);
    let by_layer =
        |profile: &Profile| profile.by_layer().iter().map(|row| row.exclusive_ns).sum::<u64>();
    let in_tables = |profile: &Profile| profile.phases[0].attributed_ns;
    assert_eq!(by_layer(&shown), in_tables(&shown));
    assert_eq!(by_layer(&profile), in_tables(&profile));
    assert_ne!(by_layer(&shown), by_layer(&profile));
}

#[test]
fn findings_of_a_phase_that_was_disturbed_say_so() {
    let slow: Vec<u64> = (0..12).collect();
    let findings = Findings::of(&run(&slow));
    let of_decode: Vec<_> =
        findings.found.iter().filter(|of| of.phase == Some(Phase::Decode)).collect();
    assert!(!of_decode.is_empty());
    for finding in of_decode {
        let says = finding.evidence.iter().any(|of| of.place == "/passes, disturbance");
        assert!(says, "{finding:?}");
    }
}

/// 20 passes on each of two lanes, side by side, of 15 ms each.
fn side_by_side() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..20 {
        for lane in 0..2 {
            let (start_ns, work) = (position * 16_000_000 + lane * 1_000_000, Work::elements(1));
            let (end_ns, layer) = (start_ns + 15_000_000, None);
            let what = TimedWork::Brick(BrickId::LmHead.into());
            let span = TimedSpan { what, start_ns, end_ns, work, layer };
            let (phase, disturbance) = (Phase::Decode, None);
            let pass = TimedPass { phase, start_ns, end_ns, tokens: 1, position, disturbance };
            profiler.record_pass(&pass, &[span]).expect("it fits");
        }
    }
    profiler.profile()
}

#[test]
fn each_screen_says_that_passes_overlapped_and_how_fast_they_were_together() {
    let profile = side_by_side();
    // All the time one of them ran: 40 tokens in 20 · 16 ms.
    let said = "passes overlapped: 66.7 tokens/s each, 125 tokens/s together";
    let overlapped = Overlapped::of(&profile, Phase::Decode).expect("they did");
    assert_eq!(overlapped.to_string(), said);
    let summary = view::summary(&profile, Size { columns: 80, rows: 24 }, None).to_string();
    assert!(on_one_line(&summary).contains(said), "{summary}");
    assert!(summary.starts_with("Decode   66.7 tok/s"), "{summary}");
    let report = view::report(&profile);
    assert!(on_one_line(&report).contains(said), "{report}");
    let json: serde_json::Value = serde_json::from_str(&view::json(&profile)).expect("JSON");
    let of = &json["rates"][0]["passes_overlapped"];
    assert_eq!(of["tokens_per_second_together"], 125.0, "{of}");
    // One after the other they don't.
    assert_eq!(Overlapped::of(&run(&[]), Phase::Decode), None);
    let json: serde_json::Value = serde_json::from_str(&view::json(&run(&[]))).expect("JSON");
    assert_eq!(json["rates"][0].get("passes_overlapped"), None);
}

#[test]
fn tokens_of_a_run_whose_requests_share_passes_are_named_by_the_passes() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let requests = profiler.requests();
    let (a, b) = (requests.arrive("a"), requests.arrive("b"));
    // The second pass decodes, too, and its tokens are of prefill.
    let shared = [Part::prompt(b, 7, 0), Part::decode(a, 5)];
    for parts in [&[Part::prompt(a, 5, 0)][..], &shared, &[Part::decode(a, 6)]] {
        let pass = profiler.begin_pass_of(parts);
        hand.advance(1_000);
        profiler.end_pass(pass, parts.iter().map(|of| of.tokens).sum(), 0);
    }
    let mut profile = profiler.profile();
    let run = Run { backend: "any".to_owned(), threads: 1, ..Run::default() };
    profile.run = Some(Run { prompt_tokens: 13, generated_tokens: 1, ..run });
    let report = on_one_line(&view::report(&profile));
    assert!(report.contains("13 tokens in prefill passes, 1 in decode passes"), "{report}");
    let first = view::summary(&profile, Size { columns: 80, rows: 24 }, None).to_string();
    assert!(first.contains("13 tokens in prefill passes + 1"), "{first}");
    assert!(!report.contains(" generated"), "{report}");
}

#[test]
fn a_device_of_several_streams_has_the_same_shares_in_words_and_on_the_first_screen() {
    const STREAMS: &str = include_str!("../data/import/kineto-streams.json");
    let options = Options::default();
    let profile = read(STREAMS, "a.json".as_ref(), Format::Chrome, &options).expect("a trace");
    let size = Size { columns: 80, rows: 24 };
    let summary = on_one_line(&view::summary(&profile, size, None).to_string());
    for (shown, word, said) in [
        ("MatMul takes the most time, 72.5% of the span.", "share", "MatMul, 72.5 % of the span"),
        ("AllReduce 25.2 %", "own time", "decode 5 bricks; the longest is MatMul, 72.5 % of"),
        ("gaps 11.8 %", "unattributed", "a pass, 11.8 %"),
    ] {
        assert!(summary.contains(shown), "{summary}");
        let explained = on_one_line(&explained(word, &profile));
        assert!(explained.contains(said), "{explained}");
    }
}
