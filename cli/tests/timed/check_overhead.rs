//! `profile --check-overhead`: the form of its output, not the times in it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{adds_up, brickscope, run, text};
use brickscope_testing::patience::skipped;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf")
}

/// Checks the overhead on the tiny model in one process, and returns the output.
fn check(args: &[&str]) -> String {
    check_often("1", args)
}

fn check_often(processes: &str, args: &[&str]) -> String {
    let args = [&["--overhead-processes", processes], args].concat();
    let mut command = brickscope(&["profile", "--check-overhead", "--prompt", "import os"]);
    // An empty folder shows that nothing is written.
    let dir = TempDir::new().expect("a temporary folder");
    let output = run(command.args(args).arg(model()).current_dir(dir.path()));
    assert!(text(&output.stderr).is_empty(), "no bar when nobody watches");
    let mut written = std::fs::read_dir(dir.path()).expect("the folder");
    assert!(written.next().is_none(), "it is a measurement, not a run");
    text(&output.stdout).to_owned()
}

/// Time limits, in seconds, until three quads fit into one: an interval takes so many. More are not measured at once, since
/// a quiet machine needs milliseconds.
const LIMITS: [&str; 5] = ["0.2", "1", "5", "25", "125"];

/// Checks with one time limit after the other until there are three quads.
fn check_three_quads(args: &[&str], has_three: impl Fn(&str) -> bool) -> Option<String> {
    let said = |limit: &&str| check(&[&["--overhead-seconds", limit], args].concat());
    let enough = LIMITS.iter().map(said).find(|said| has_three(said));
    if enough.is_none() {
        skipped(&format!("twelve passes of a tiny model took more than {} seconds", LIMITS[4]));
    }
    enough
}

#[test]
fn the_text_has_both_arms_and_the_interval_in_80_columns() {
    let _alone = crate::alone();
    let has_three = |said: &str| !said.contains("an interval takes 6 pairs of times, and there");
    let Some(said) = check_three_quads(&["--tokens", "4"], has_three) else { return };
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    for part in ["q8_0, ", "1 thread\n", "\nforward  ", "\nforward_profiled  ", "\nslow-down  "] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    for part in [" %  95 % interval ", " ABBA quads, decode, positions 7 to 9\n", "\ndisturbed  "] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn the_json_has_every_time_that_the_figures_are_from() {
    let _alone = crate::alone();
    let has_three = |said: &str| {
        let json: Value = serde_json::from_str(said).expect("JSON");
        json["quads"].as_array().expect("quads").len() >= 3
    };
    let args = ["--json", "--tokens", "5", "--backend", "scalar"];
    let Some(said) = check_three_quads(&args, has_three) else { return };
    let json: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&json["backend"], &json["phase"]), (&"scalar".into(), &"decode".into()));
    assert_eq!(json["model"]["layers"], 2);
    assert_eq!(json["prompt_tokens"], 7);

    let quads = json["quads"].as_array().expect("quads");
    assert!(quads.len() >= 3, "{}", quads.len());
    let mut times = [Vec::new(), Vec::new()];
    let mut pairs = Vec::new();
    for (i, quad) in quads.iter().enumerate() {
        // Four positions after the prompt, then from the first again.
        assert_eq!(quad["position"], 7 + i % 4);
        let order = quad["order"].as_str().expect("an order");
        assert_eq!(order, ["ABBA", "BAAB"][i % 2]);
        let ns: Vec<u64> =
            quad["ns"].as_array().expect("times").iter().filter_map(Value::as_u64).collect();
        assert_eq!(ns.len(), 4);
        for (arm, ns) in order.chars().zip(&ns) {
            times[usize::from(arm == 'B')].push(*ns);
        }
        for pair in [0, 2] {
            let (a, b) = if &order[pair..=pair] == "A" { (0, 1) } else { (1, 0) };
            pairs.push((ns[pair + a] as f64, ns[pair + b] as f64));
        }
    }
    for (arm, times) in ["forward", "forward_profiled"].iter().zip(&mut times) {
        times.sort_unstable();
        let n = times.len();
        let median = (times[n / 2] + times[(n - 1) / 2]) as f64 / 2.0;
        assert_eq!(json[arm]["passes"], n);
        assert_eq!(json[arm]["median_ns"].as_f64(), Some(median));
        let slow = times.iter().filter(|&&ns| ns as f64 > 1.25 * median).count();
        assert_eq!(json[arm]["slow_passes"], slow);
    }
    let ratio = brickscope::PairedRatio::new(&pairs).expect("an interval");
    let slow_down: brickscope::PairedRatio =
        serde_json::from_value(json["slow_down"].clone()).expect("a ratio");
    assert_eq!(slow_down, ratio, "it can be computed again from what was written");
    assert!(slow_down.low <= slow_down.estimate && slow_down.estimate <= slow_down.high);
    assert_eq!(slow_down.pairs as usize, 2 * quads.len());

    // Each brick and kernel of a decode pass and its layers, as in a recorded run.
    let dir = TempDir::new().expect("a temporary folder");
    let mut profile = brickscope(&["profile", "--tokens", "2", "--sync", "immediate", "--out"]);
    run(profile.arg(dir.path()).arg(model()));
    let path = dir.path().join("profile.json");
    let written = std::fs::read_to_string(&path).expect("the run was written");
    adds_up(&serde_json::from_str(&written).expect("JSON"));
    let profile = brickscope::Profile::load(&path).expect("a profile");
    let decode = profile.passes.last().expect("a decode pass");
    let spans = profile.spans.iter().filter(|span| span.pass == Some(decode.serial)).count();
    // The comparison excludes sampling.
    assert_eq!(json["spans_per_pass"], spans - 1);
}

#[test]
fn a_time_limit_that_is_over_at_once_still_gives_an_answer_with_the_reason() {
    let _alone = crate::alone();
    let args = ["--overhead-seconds", "1e-9"];
    let said = check(&args);
    assert!(said.contains("n/a  an interval takes 6 pairs of times, and there are 2\n"), "{said}");
    assert!(said.contains("\nfrom                         1 ABBA quad, decode,"), "{said}");
    let json: Value =
        serde_json::from_str(&check(&[&args[..], &["--json"]].concat())).expect("JSON");
    assert!(json["slow_down"].is_null());
    assert_eq!(json["stopped"], "time");
    let why = "an interval takes 6 pairs of times, and there are 2";
    assert_eq!(json["slow_down_absent"], why);
}

#[test]
fn several_processes_share_the_time_and_their_means_have_the_interval() {
    let _alone = crate::alone();
    let said = check_often("3", &["--overhead-seconds", "0.3", "--tokens", "4"]);
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    for part in ["q8_0, ", "1 thread\n", "\nprocess 1  ", "\nprocess 3  ", " of 3 processes\n"] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    // A process goes on until its quad is whole, which is most of a short time and little of a long one.
    let seconds = |one: &Value| one["seconds"].as_f64().expect("a time");
    let share_the_time = |limit: &f64| {
        let args = ["--overhead-seconds", &limit.to_string(), "--tokens", "4", "--json"];
        let json: Value = serde_json::from_str(&check_often("3", &args)).expect("JSON");
        let processes = json["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 3);
        let estimates: Option<Vec<f64>> =
            processes.iter().map(|one| one["slow_down"]["estimate"].as_f64()).collect();
        let of_all = brickscope::RatioOfRuns::new(&estimates.expect("each has one"));
        let said = serde_json::from_value(json["slow_down"].clone()).expect("an interval");
        assert_eq!(of_all, Some(said), "it can be computed again from what was written");
        processes.iter().all(|one| seconds(one) < *limit)
    };
    assert!([0.6, 6.0, 60.0, 300.0].iter().any(share_the_time), "each has a part of the time");

    // However little time there is, each process has an estimate. And a model may come after `--`.
    let json = check_often("2", &["--overhead-seconds", "1e-9", "--json", "--"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["slow_down"]["runs"], 2);
    assert!(json["processes"][1]["quads"].as_array().is_some_and(|quads| quads.len() == 3));
}
