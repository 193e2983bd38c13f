//! A run of days of which only some passes were kept: what is made of passes is not made of those.

use brickscope::keep::{Kept, Sample};
use brickscope::{BrickId, BrickProfiler, Disturbance, MockClock, Phase, Profile};
use brickscope_analysis::compare::{Process, UnusableProfile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::typical::OnePass;
use brickscope_analysis::view;

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
