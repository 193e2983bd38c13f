//! `brickscope findings`: a planted bottleneck is named first, as text and as JSON.

use brickscope::{BrickProfiler, MockClock, Phase, Profile};
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

/// Twenty decode passes of a millisecond, with half a millisecond between them.
fn with_gaps() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..20 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start("Mlp");
        hand.advance(1_000_000);
        profiler.stop(timer, 1);
        profiler.end_pass(pass, 1, position);
        hand.advance(500_000);
    }
    profiler.profile()
}

#[test]
fn what_slows_a_run_down_is_named_with_its_gain() {
    let dir = TempDir::new().expect("a temporary folder");
    with_gaps().save(&dir.path().join("profile.json")).expect("it is written");
    let output = run(brickscope(&["findings"]).arg(dir.path()));
    let printed = text(&output.stdout);
    assert!(printed.starts_with("1  33.3 % of decoding lies between the passes\n"), "{printed}");
    assert!(printed.contains("   predicted   up to 33 % less: 500 µs of 1.50 ms\n"), "{printed}");
    assert!(printed.contains("\nNot known:\n"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");

    let json = run(brickscope(&["findings", "--json"]).arg(dir.path()));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["found"][0]["rule"], "gaps-between-passes");
    assert_eq!(json["found"][0]["gain"]["highest_ns"], 500_000.0);

    // The first screen says the same.
    let screen = run(brickscope(&["show"]).arg(dir.path()));
    let next = "Next: find out what runs between passes";
    assert!(text(&screen.stdout).contains(next), "{}", text(&screen.stdout));

    // So do the last lines of the report, the page and the metrics.
    let report = run(brickscope(&["show", "--full"]).arg(dir.path()));
    let last = "\nfinding   33.3 % of decoding lies between the passes; predicted: up to 33 %\n          less: 500 µs of \
                1.50 ms\n          brickscope findings RUN: its evidence, and how to test it\n";
    assert!(text(&report.stdout).ends_with(last), "{}", text(&report.stdout));
    let page = run(brickscope(&["report", "-o", "-"]).arg(dir.path()));
    let page = text(&page.stdout);
    let section = page.split("<section id=\"findings\"").nth(1).expect("a section");
    let section = section.split("</section>").next().expect("it ends");
    assert!(section.contains("33.3 % of decoding lies between the passes"), "{section}");
    assert!(section.contains("up to 33 % less: 500 µs of 1.50 ms"), "{section}");
    let args = ["export", "--format", "prometheus", "-o", "-"];
    let metrics = run(brickscope(&args).arg(dir.path()));
    let gain =
        "brickscope_finding_gain_seconds{rule=\"gaps-between-passes\",phase=\"decode\"} 0.00025\n";
    assert!(text(&metrics.stdout).contains(gain), "{}", text(&metrics.stdout));
}
