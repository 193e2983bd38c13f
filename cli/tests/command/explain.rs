//! `brickscope explain`: words with and without a run, as text and as JSON; words that aren't known.

use brickscope::{BrickId, BrickProfiler, MockClock, Phase, Profile, Work};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

/// Ten decode passes of four layers; a product takes three times as long in one of them.
fn with_a_slow_layer() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..10 {
        let pass = profiler.begin_pass(Phase::Decode);
        for index in 0..4 {
            let layer = profiler.begin_layer(index);
            let timer = profiler.start_brick(BrickId::DownProjection);
            hand.advance(if index == 2 { 300_000 } else { 100_000 });
            let work = Work { elements: 1, flops: 2_000_000, bytes: 1_000_000, ..Work::default() };
            profiler.stop_brick_with(timer, work);
            profiler.end_layer(layer);
        }
        profiler.end_pass(pass, 1, position);
    }
    profiler.profile()
}

fn saved() -> TempDir {
    let dir = TempDir::new().expect("a temporary folder");
    with_a_slow_layer().save(&dir.path().join("profile.json")).expect("it is written");
    dir
}

#[test]
fn a_word_is_explained_in_any_spelling() {
    let printed = run(&mut brickscope(&["explain", "DownProjection"])).stdout;
    assert!(text(&printed).starts_with("DownProjection (brick; also Down, down_proj)\n\n"));
    assert!(text(&printed).contains("\n  decode      memory, since each weight is used once\n"));
    for spelling in ["down-projection", "DOWN_PROJECTION", "down", "down_proj"] {
        assert_eq!(run(&mut brickscope(&["explain", spelling])).stdout, printed, "{spelling}");
    }
    // What is both a rule and a term has both pages.
    let both = run(&mut brickscope(&["explain", "unattributed"])).stdout;
    assert!(text(&both).contains("unattributed (rule)\n"), "{}", text(&both));
    assert!(text(&both).contains("\nunattributed (term)\n"), "{}", text(&both));
}

#[test]
fn without_a_word_all_are_listed_by_group() {
    let listed = run(&mut brickscope(&["explain"])).stdout;
    let listed = text(&listed);
    for part in ["Bricks\n  RmsNorm, ", "\n\nRules\n  ", "\n\nTerms\n  ", "slow-layer", "roofline"]
    {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    let json = run(&mut brickscope(&["explain", "--json"])).stdout;
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json[0]["word"], "RmsNorm");
    assert!(json.as_array().is_some_and(|pages| pages.len() > 60));
}

#[test]
fn a_run_adds_its_figures() {
    let dir = saved();
    let explained = |word: &str| {
        let output = run(brickscope(&["explain", word]).arg(dir.path()));
        text(&output.stdout).to_owned()
    };
    let brick = explained("down-projection");
    assert!(
        brick.contains("  decode      600 µs a pass (150 µs × 4), 100.0 % of it; of 10 passes\n"),
        "{brick}"
    );
    assert!(
        brick.contains("  work        8.00 MFLOP and 4.0 MB a pass: 2.00 FLOP/byte\n"),
        "{brick}"
    );
    assert!(brick.contains("the median: layer 2 (300 µs)\n"), "{brick}");
    let rule = explained("slow-layer");
    assert!(rule.contains("  found       DownProjection of layer 2: 300 µs a pass"), "{rule}");
    let rule = explained("slow-sampling");
    assert!(rule.contains("  found       nothing: "), "{rule}");

    let json = run(brickscope(&["explain", "DownProjection", "--json"]).arg(dir.path())).stdout;
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json[0]["group"], "brick");
    assert_eq!(json[0]["sections"][0]["label"], "FLOPs");
    assert_eq!(json[0]["run"]["bricks"][0]["pass_ns"], 600_000.0);
    let json = run(brickscope(&["explain", "slow-layer", "--json"]).arg(dir.path())).stdout;
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json[0]["run"]["found"][0]["rule"], "slow-layer");
}

#[test]
fn a_word_that_is_not_known_names_close_ones_and_exits_with_2() {
    for (word, said) in [
        ("rms-nrom", "`rms-nrom` is not a known word: did you mean `RmsNorm`?"),
        ("qqqqqqqq", "`qqqqqqqq` is not a known word: `brickscope explain` lists all words"),
    ] {
        let output = brickscope(&["explain", word]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    let dir = saved();
    let output = brickscope(&["explain", "moe"]).arg(dir.path()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the run has no such brick"), "{}", text(&output.stderr));
    // A run that isn't there is another error.
    let output = brickscope(&["explain", "roofline", "no/such/run"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no/such/run"), "{}", text(&output.stderr));
}
