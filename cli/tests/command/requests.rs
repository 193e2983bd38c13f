//! `brickscope requests`, of a run that an engine recorded by the library's calls.

use std::fs;
use std::io::Write as _;

use brickscope::{BrickProfiler, Disturbance, Ending, MockClock, Part, Profile};
use flate2::Compression;
use flate2::write::GzEncoder;
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
    assert!(printed.starts_with("requests  2, ended: stop 1; not ended: 1\n"), "{printed}");
    assert!(printed.contains("own pass, beside prompts of others"), "{printed}");
    let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Prompts of others in this one: b (1,000 tokens)."), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");

    let one = run(brickscope(&["requests", "--request", "a"]).arg(dir.path()));
    let one = text(&one.stdout);
    let first = "own pass, alone 10.0 ms, with 9 tokens of its prompt; queue 2.00 ms";
    let one_line = one.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one_line.contains(first), "{one}");
    let beside =
        "beside b (no. 2): 1,000 tokens of its prompt in 90.0 ms of passes slow: prompts of others";
    assert!(one_line.contains(beside), "{one}");
    assert_eq!(one.matches("slow: ").count(), 1, "{one}");
    assert!(one.contains("slow: prompts of others"), "{one}");
    for other in ["1", "slowest", "slowest-first", "longest"] {
        let same = run(brickscope(&["requests", "--request", other]).arg(dir.path()));
        assert_eq!(text(&same.stdout), one, "{other}");
    }
    for (by, first) in [("worst", "a"), ("first", "a"), ("arrival", "a"), ("total", "a")] {
        let sorted = run(brickscope(&["requests", "--sort", by]).arg(dir.path()));
        let row = text(&sorted.stdout).lines().nth(2).and_then(|row| row.split_whitespace().nth(1));
        assert_eq!(row, Some(first), "{by}");
    }
    let refused = brickscope(&["requests", "--sort", "size"]).arg(dir.path()).output();
    let refused = refused.expect("the command starts");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("`first`, `worst`, `arrival` or `total`"));
    // Packed, it is the same run.
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&fs::read(dir.path().join("profile.json")).expect("a run")).expect("memory");
    let gzip = dir.path().join("sent.json.gz");
    fs::write(&gzip, packed.finish().expect("memory")).expect("it is written");
    let same = run(brickscope(&["requests", "--request", "a"]).arg(&gzip));
    assert_eq!(text(&same.stdout), one);
    // Of few, the list is on the first screen, too.
    let list = run(brickscope(&["requests", "--list"]).arg(dir.path()));
    let list = text(&list.stdout);
    assert!(printed.contains(list), "{printed}");
    let row = list.lines().nth(2).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(row.as_deref(), Some("1 a 0 ns 9 60 12.0 ms - 90.0 ms prompts"), "{list}");

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
    let caused = |of: &serde_json::Value| of.get("cause").is_some();
    assert_eq!(intervals.iter().position(caused), Some(30));
    assert_eq!(intervals[30]["cause"], "prompts");
    let b = serde_json::json!({
        "id": "b", "number": 2, "prompt_tokens": 1000, "decode_tokens": 0, "ns": 90_000_000,
    });
    let beside_b = serde_json::json!({ "of": 1, "largest": [b] });
    assert_eq!(intervals[30]["neighbours"], beside_b);
    assert!(intervals[31].get("neighbours").is_none());
    assert_eq!(intervals[0]["own_prompt_tokens"], 9);
    assert!(intervals[30].get("own_prompt_tokens").is_none());
    let none = serde_json::json!({ "of": 0, "largest": [] });
    let of_one = run(brickscope(&["requests", "--json", "--request", "a"]).arg(dir.path()));
    let of_one: serde_json::Value = serde_json::from_slice(&of_one.stdout).expect("JSON");
    let each = &of_one["requests"][0]["intervals"];
    assert_eq!((&each[30]["neighbours"], &each[31]["neighbours"]), (&beside_b, &none));
    assert_eq!(each[0]["while_queued"], none);
    assert!(intervals[30].get("while_queued").is_none());
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
    assert!(text(&output.stderr).contains("no request `c` among 2 requests: a, b"));

    let none = TempDir::new().expect("a temporary folder");
    let empty = BrickProfiler::enabled().profile();
    empty.save(&none.path().join("profile.json")).expect("it is written");
    let output = run(brickscope(&["requests"]).arg(none.path()));
    assert!(text(&output.stdout).starts_with("This run has no requests"));
}

#[test]
fn requests_that_are_not_recorded_are_told_in_every_form() {
    let dir = TempDir::new().expect("a temporary folder");
    let mut profile = recorded();
    let printed = |profile: &Profile, form: Option<&str>| {
        profile.save(&dir.path().join("profile.json")).expect("it is written");
        text(&run(brickscope(&["requests"]).args(form).arg(dir.path())).stdout).to_owned()
    };
    let json = |profile: &Profile| -> serde_json::Value {
        serde_json::from_str(&printed(profile, Some("--json"))).expect("JSON")
    };
    assert!(json(&profile).get("missed_requests").is_none());
    profile.dropped.missed_requests = 3;
    assert_eq!(json(&profile)["missed_requests"], 3);
    for form in [None, Some("--list")] {
        let said = printed(&profile, form);
        assert!(said.contains("\nnot recorded: 3 more requests, in no figure here\n"), "{said}");
    }
    // All were missed.
    let mut none = BrickProfiler::enabled().profile();
    none.dropped.missed_requests = 3;
    assert_eq!(json(&none)["missed_requests"], 3);
    for form in [None, Some("--list")] {
        let said = printed(&none, form);
        assert!(said.contains("\nnot recorded: 3 requests, in no figure here\n"), "{said}");
    }
}

#[test]
fn why_nobody_knows_what_a_neighbour_cost_is_in_the_json() {
    let dir = TempDir::new().expect("a temporary folder");
    let mut profile = recorded();
    // The slow pass waited for a CPU for most of its time.
    let (longest_wait_ns, wall_ns) = (Some(85_000_000), 90_000_000);
    let waited = Disturbance { passes: 1, wall_ns, longest_wait_ns, ..Disturbance::default() };
    profile.passes[30].disturbance = Some(waited);
    profile.save(&dir.path().join("profile.json")).expect("it is written");
    let json = run(brickscope(&["requests", "--json", "--request", "a"]).arg(dir.path()));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let slow = &json["causes_of_tokens"]["slow"][0];
    assert_eq!(slow["cause"], "cpu", "{slow}");
    let why = &slow["neighbour"]["not_known"];
    assert_eq!(why, "the pass was disturbed, which may cost it time, too", "{slow}");
    assert_eq!(slow["waited_for_cpu_ns"], serde_json::json!([85_000_000, 85_000_000]), "{slow}");
    assert_eq!(json["slow_tokens"]["waited_for_cpu"], 1);

    // Both screens name the same cause, and how it overlaps with the prompts.
    let words = |args: &[&str]| {
        let printed = run(brickscope(args).arg(dir.path()));
        text(&printed.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let one = words(&["requests", "--request", "a"]);
    let said =
        "90.0 ms of passes slow: waiting for a CPU in its passes a thread waited 85.0 ms for a CPU";
    assert!(one.contains(said), "{one}");
    let all = words(&["requests"]);
    for said in [
        "b (1,000 tokens). A thread waited for a CPU in this one, too: 85.0 ms of 90.0 ms.",
        "The one that waited for a CPU had prompts of others, too: 90.0 ms of passes with these, and 85.0 ms of \
         waiting in all their passes.",
    ] {
        assert!(all.contains(said), "{said}: {all}");
    }
}
