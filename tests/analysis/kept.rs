//! A run of days of which only some passes were kept: what is made of passes is not made of those.

use brickscope::keep::{Fired, Kept, KeptRequests, Sample};
use brickscope::{BrickId, BrickProfiler, Disturbance, Ending, MockClock, Part, Phase, Profile};
use brickscope_analysis::compare::{Process, UnusableProfile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::requests::{Interval, Piece, Requests, times};
use brickscope_analysis::typical::OnePass;
use brickscope_analysis::view::{self, Size};

/// A hundred passes. Ten wait for a disk and take twenty times as long; of the others each ninth was kept.
fn kept() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..100 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(if position % 10 == 9 { 20_000_000 } else { 1_000_000 });
        profiler.stop_brick(timer, 1);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    profile.passes.retain(|pass| matches!(pass.position % 10, 0 | 9));
    for pass in &mut profile.passes {
        let faults = Some(if pass.position % 10 == 9 { 5_000 } else { 0 });
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            disk_faults: faults,
            page_faults: faults,
            ..Disturbance::default()
        });
    }
    let sampled = profile.passes.iter().filter(|pass| pass.position % 10 == 0);
    let passes: Vec<u32> = sampled.map(|pass| pass.serial).collect();
    let there: Vec<u32> = profile.passes.iter().map(|pass| pass.serial).collect();
    profile.spans.retain(|span| span.pass.is_some_and(|pass| there.contains(&pass)));
    (profile.dropped.passes, profile.dropped.spans) = (80, 80);
    let sample = Sample { phase: Phase::Decode, tokens: 1, of: 90, passes };
    profile.kept = Some(Kept {
        passes: 100,
        slowest: 10,
        slower_than_ns: Some(1_000_000),
        samples: vec![sample],
        ..Kept::default()
    });
    profile.check().expect("it adds up");
    profile
}

#[test]
fn slow_passes_that_were_kept_are_no_sample_of_all() {
    let profile = kept();
    let typical = profile.typical_pass(Phase::Decode).expect("it decoded");
    assert_eq!(typical.wall_ns, 1_000_000);
    // A tenth of all waits, and half of what was kept.
    let findings = Findings::of(&profile);
    assert!(findings.found.iter().all(|of| of.rule != "disk-reads"), "{:?}", findings.found);
    assert!(findings.unknown.iter().any(|of| of.why.contains("by how slow they are")));
    let compared = Process::from_profile("a run", &profile).map(drop);
    assert_eq!(compared, Err(UnusableProfile::KeptSlow));
    assert!(view::requests(&profile).contains("This run has no requests"));
    let one = OnePass::of(&profile, Phase::Decode).expect("one was kept");
    assert_eq!((one.pass.wall_ns, &*one.which()), (1_000_000, "the median of 20 kept, by weight"));
    let said = view::report(&profile);
    let kept = "kept: the 10 slowest of 100 passes, a sample of 10; sums: all";
    assert!(said.contains(kept), "{said}");
}

#[test]
fn what_took_too_long_is_told_on_each_screen() {
    let when = "token>5ms".parse().expect("a condition");
    let mut profile = kept();
    profile.fired = Some(Fired { fired: 10, whole: 10, ..Fired::none(when) });
    profile.check().expect("it adds up");
    let said = "10 tokens took over 5 ms; 10 are kept whole";
    let first = view::summary(&profile, Size { columns: 80, rows: 24 }, None).to_string();
    assert!(first.contains(said), "{first}");
    let report = view::report(&profile);
    assert!(report.contains(&format!("note: {said}")), "{report}");
    let findings = view::findings(&profile, None);
    assert!(findings.starts_with(&format!("{said}.\n\n")), "{findings}");
    let json = profile.to_json();
    let read = Profile::from_json(&json, "profile.json".as_ref()).expect("a profile");
    assert_eq!(read.fired, profile.fired);
    profile.fired = Some(Fired { fired: 11, whole: 10, ..Fired::none(when) });
    assert!(profile.check().is_err_and(|why| why.contains("came true 11 times")));
}

/// One request that was kept, and one beside it of which only some passes are there, of a thousand.
fn with_requests() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let requests = profiler.requests();
    let beside = requests.arrive("beside");
    requests.admit(beside);
    hand.advance(5_000);
    let kept = requests.arrive("kept");
    requests.admit(kept);
    let pass = profiler.begin_pass_of(&[Part::prompt(kept, 8, 0), Part::decode(beside, 90)]);
    hand.advance(1_000);
    profiler.end_pass(pass, 9, 0);
    hand.advance(30);
    requests.token(kept);
    requests.token(beside);
    for position in 8..11 {
        hand.advance(20);
        let pass = profiler.begin_pass_of(&[Part::decode(kept, position)]);
        hand.advance(700);
        profiler.end_pass(pass, 1, position);
        hand.advance(10);
        requests.token(kept);
    }
    requests.end(kept, Ending::Stop);
    requests.end(beside, Ending::Stop);
    let mut profile = profiler.profile();
    let of = profile.requests.iter().position(|of| of.id == "kept").expect("it came");
    let (from, to) = (profile.requests[of].arrived_ns, profile.requests[of].ended_ns);
    let beside = profile.requests.iter().position(|of| of.id == "beside").expect("it came");
    let mut sums = KeptRequests {
        requests: 1_000,
        endings: vec![(Ending::Stop, 1_000)],
        sample: vec![of as u32],
        sample_of: 1_000,
        beside: vec![beside as u32],
        covered: vec![[from, to.expect("it ended")]],
        ..KeptRequests::default()
    };
    (0..5_000).for_each(|nth| sums.between_tokens.add(500 + nth % 100));
    profile.dropped.passes = 7;
    let passes = profile.passes.len() as u64;
    profile.kept = Some(Kept { passes, slowest: passes, requests: Some(sums), ..Kept::default() });
    profile.check().expect("it adds up");
    profile
}

#[test]
fn requests_that_were_kept_are_told_by_their_passes_and_times_are_of_all() {
    let profile = with_requests();
    let requests = Requests::of(&profile);
    let number = |id: &str| {
        let mut all = (0_u32..).zip(requests.all());
        all.find(|(_, of)| of.id == id).map(|(number, _)| number).expect("it came")
    };
    let kept: Vec<Interval> = requests.intervals(number("kept")).collect();
    assert!(kept.iter().all(|of| of.pieces.iter().sum::<u64>() == of.ns()));
    assert_eq!((kept[0].of(Piece::OwnBesideDecode), kept[0].of(Piece::Between)), (1_000, 30));
    assert_eq!((kept[1].of(Piece::OwnAlone), kept[1].of(Piece::Between)), (700, 30));
    // Of the other one nobody knows what ran before.
    let beside: Vec<Interval> = requests.intervals(number("beside")).collect();
    assert_eq!(beside[0].of(Piece::Unattributed), 5_000);
    assert_eq!((beside[0].of(Piece::OwnBesidePrompts), beside[0].of(Piece::Between)), (1_000, 30));
    // It stands for nothing.
    assert_eq!(requests.all_intervals().count(), kept.len());
    let [first, between, ..] = times(&profile);
    assert_eq!((first.of, between.of, between.longest_ns), (0, 5_000, Some(599)));
    let median = between.p50_ns.expect("there are enough");
    assert!((545..555).contains(&median), "{median}");
    let text = view::requests(&profile);
    assert!(text.starts_with("requests  1,000, ended: stop 1,000\n"), "{text}");
    assert_eq!(text.matches("what follows is of 1 kept").count(), 1, "{text}");
}
