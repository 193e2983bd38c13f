//! `brickscope requests`, of a run that an engine recorded by the library's calls.

use brickscope::{BrickProfiler, Ending, MockClock, Part, Profile};
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

/// A request of 60 tokens; beside the 31st, the prompt of another one.
fn recorded() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let requests = profiler.requests();
    let a = requests.arrive("a");
    hand.advance(2_000_000);
    requests.admit(a);
    for nth in 0..60 {
        let mut parts =
            vec![if nth == 0 { Part::prompt(a, 9, 0) } else { Part::decode(a, 8 + nth) }];
        if nth == 30 {
            let b = requests.arrive("b");
            requests.admit(b);
            parts.push(Part::prompt(b, 1000, 24).with_cached(24));
        }
        let pass = profiler.begin_pass_of(&parts);
        hand.advance(if nth == 30 { 90_000_000 } else { 10_000_000 });
        profiler.end_pass(pass, 1, nth);
        requests.token(a);
    }
    requests.end(a, Ending::Stop);
    // A pass that isn't wanted is of none.
    let pass = profiler.begin_pass_of(&[Part::decode(a, 99)]);
    profiler.discard_pass(pass);
    let mut profile = profiler.profile();
    // What disturbs this test is no part of it.
    profile.passes.iter_mut().for_each(|pass| pass.disturbance = None);
    profile
}

#[test]
fn what_made_a_token_slow_is_named_in_every_form() {
    let dir = TempDir::new().expect("a temporary folder");
    let profile = recorded();
    assert_eq!(profile.check(), Ok(()));
    assert_eq!((profile.requests.len(), profile.parts.len()), (2, 61));
    profile.save(&dir.path().join("profile.json")).expect("it is written");

    let printed = run(brickscope(&["requests"]).arg(dir.path()));
    let printed = text(&printed.stdout);
    assert!(printed.starts_with("requests  2: stop 1, not ended 1\n"), "{printed}");
    assert!(printed.contains("own pass, beside prompts of others"), "{printed}");
    let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Prompts of others in these: b (1,000 tokens) in 1."), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");

    let one = run(brickscope(&["requests", "--request", "a"]).arg(dir.path()));
    assert!(text(&one.stdout).contains("own pass, alone 10.0 ms; queue 2.00 ms"));

    let json = run(brickscope(&["requests", "--json"]).arg(dir.path()));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["slow_tokens"]["neighbours"][0]["id"], "b");
    // Eighteen passes at positions 29 to 47 took 10 ms each.
    let slow = &json["causes_of_tokens"]["slow"][0];
    let cost = &slow["neighbour"];
    for ns in [&cost["cost_ns"], &cost["low_ns"], &cost["high_ns"]] {
        assert_eq!(ns, 80_000_000, "{cost}");
    }
    assert_eq!((&cost["beside"], &cost["left_out"]), (&18.into(), &0.into()), "{cost}");
    assert_eq!(cost["by"], "as-many");
    let coverage = cost["coverage"].as_f64().expect("a part");
    assert!((coverage - 17.0 / 19.0).abs() < 1e-9, "{cost}");
    let all = &json["causes_of_tokens"]["neighbours"];
    assert_eq!((&all["known"], &all["of"]), (&1.into(), &1.into()), "{all}");
    assert_eq!(all["sum"]["cost_ns"], 80_000_000, "{all}");
    assert_eq!(all["is_by_chance"], false);
    assert_eq!(slow["prompts_alone_ns"], 0);
    let intervals = json["requests"][0]["intervals"].as_array().expect("intervals");
    assert_eq!(intervals.len(), 61);
    for interval in intervals {
        let ns = |of: &serde_json::Value| of.as_u64().expect("nanoseconds");
        let pieces = interval["pieces"].as_object().expect("pieces");
        let sum: u64 = pieces.values().map(ns).sum();
        assert_eq!(sum, ns(&interval["to_ns"]) - ns(&interval["from_ns"]), "{interval}");
    }
}

#[test]
fn a_request_that_is_not_there_and_a_run_without_any_are_told() {
    let dir = TempDir::new().expect("a temporary folder");
    recorded().save(&dir.path().join("profile.json")).expect("it is written");
    let output = brickscope(&["requests", "--request", "c"]).arg(dir.path()).output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no request `c` among 2 requests"));

    let none = TempDir::new().expect("a temporary folder");
    let empty = BrickProfiler::enabled().profile();
    empty.save(&none.path().join("profile.json")).expect("it is written");
    let output = run(brickscope(&["requests"]).arg(none.path()));
    assert!(text(&output.stdout).starts_with("This run has no requests"));
}
