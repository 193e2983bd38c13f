//! Runs whose operations on a device ran one at a time: what is said of them, and what isn't.

use brickscope::{
    Absent, BrickId, BrickProfiler, Ceilings, MockClock, PairedRatio, Phase, Profile, Serialised,
    Work,
};
use brickscope_analysis::roofline::Roofline;
use brickscope_analysis::view::{self, Size};

/// Passes of 2 ms whose nodes were timed, beside whole ones of 1 ms.
fn profile() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..8 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(1_500_000);
        let work = Work { elements: 32_000, flops: 2_000_000, bytes: 1_000_000, ..Work::default() };
        profiler.stop_brick_with(timer, work);
        hand.advance(500_000);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    profile.ceilings = Some(Ceilings {
        read_bytes_per_second: 20e9,
        flops_per_second: 100e9,
        ..Ceilings::default()
    });
    profile.serialised.push(Serialised {
        phase: Phase::Decode,
        devices: vec!["CUDA0".to_owned()],
        whole_passes: 8,
        whole_tokens: 8,
        whole_wall_ns: 8_000_000,
        whole_p50_ns: Some(1_000_000),
        cost: PairedRatio::new(&[(1.0, 2.0); 8]).ok(),
        cost_absent: None,
    });
    profile
}

fn summary(profile: &Profile) -> String {
    view::summary(profile, Size::default(), None).to_string()
}

#[test]
fn the_rate_is_that_of_whole_passes_and_the_cost_is_said() {
    let profile = profile();
    let screen = summary(&profile);
    assert!(
        screen.starts_with("Decode   1000 tok/s       p50 1.00 ms no roof is known for CUDA0"),
        "{screen}"
    );
    assert!(screen.contains("nodes on CUDA0 ran one at a time"), "{screen}");
    assert!(screen.contains("beside whole ones: decode +100 % (+100 to +100 %)"), "{screen}");
    let report = view::report(&profile);
    assert!(
        report.contains("serialised on CUDA0: these times and the rate; 8 passes left whole"),
        "{report}"
    );
    assert!(view::headline(&profile).contains("CUDA0, and what limits it there is unknown"));
}

#[test]
fn without_whole_passes_the_rate_is_marked() {
    let mut profile = profile();
    let decode = &mut profile.serialised[0];
    (decode.whole_passes, decode.whole_tokens, decode.whole_wall_ns) = (0, 0, 0);
    (decode.whole_p50_ns, decode.cost) = (None, None);
    decode.cost_absent = Some(Absent { reason: "too few".to_owned() });
    let screen = summary(&profile);
    assert!(screen.starts_with("Decode   500 tok/s"), "{screen}");
    assert!(screen.contains("serialised; no roof is known for CUDA0"), "{screen}");
    assert!(screen.contains("its rate is of such passes"), "{screen}");
}

#[test]
fn no_roof_of_the_cpu_is_held_against_a_device() {
    let mut profile = profile();
    let why = Roofline::of(&profile, Phase::Decode).expect_err("it is the CPU's");
    assert!(why.reason.contains("CUDA0"), "{why:?}");
    profile.serialised.clear();
    assert!(Roofline::of(&profile, Phase::Decode).is_ok());
}

#[test]
fn files_keep_it_and_older_ones_have_none() {
    let profile = profile();
    let json = profile.to_json();
    let path = std::path::Path::new("profile.json");
    assert_eq!(Profile::from_json(&json, path).expect("it is ours").serialised, profile.serialised);
    let mut older: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    older.as_object_mut().expect("an object").remove("serialised");
    let older = Profile::from_json(&older.to_string(), path).expect("it is read");
    assert!(older.serialised.is_empty());
}
