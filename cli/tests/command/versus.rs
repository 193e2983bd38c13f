//! `brickscope versus`: two commands in turns.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{self, text};
use brickscope_testing::patience::skipped;

use crate::run::programs;

fn versus(args: &[&str]) -> Output {
    let dir = TempDir::new().expect("a folder");
    brickscope_in(dir.path(), &[&["versus"], args].concat())
}

fn brickscope_in(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(command::program());
    command.args(args).current_dir(folder).env("BRICKSCOPE_CACHE", command::cache());
    command.output().expect("it starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"))
}

fn test<'v>(found: &'v Value, name: &str) -> (&'v Value, &'v Value) {
    let of = |list: &'v str, key: &str| {
        let list = found[list].as_array().expect("a list");
        list.iter().find(|of| of[key] == name).unwrap_or_else(|| panic!("no {name}: {found}"))
    };
    (of("tests", "name"), of("moved", "test"))
}

/// The program, in which a node takes four times as long.
fn slow(program: &str) -> String {
    format!("SLOW=l_out-1 TIMES=4 {program}")
}

#[test]
fn a_node_that_became_slower_is_named_with_what_the_pass_takes_more() {
    let program = programs().join("good/loads").display().to_string();
    let output = versus(&[&program, &slow(&program), "--json", "--within", "60s"]);
    let found = json(&output);
    let (decode, moved) = test(&found, "decode");
    if decode["whole"]["verdict"] == "inconclusive" {
        return skipped(&format!("the machine is too busy to compare: {}", decode["whole"]));
    }
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert_eq!(decode["whole"]["verdict"], "slower", "{found}");
    let parts = moved["parts"].as_array().expect("a list");
    assert_eq!(parts[0]["name"], "DownProjection", "{moved}");
    let ns = |value: &Value| value.as_f64().expect("a number");
    let whole = ns(&moved["b_ns"]) - ns(&moved["a_ns"]);
    let sum: f64 = parts.iter().map(|part| ns(&part["moved_ns"])).sum();
    assert!((sum - whole).abs() <= parts.len() as f64, "{moved}");
    // Whatever else moved is what the machine does.
    assert!(ns(&parts[0]["moved_ns"]) > 0.5 * whole, "{moved}");
    // The node is in the second layer.
    let layers = moved["layers"]["layers"].as_array().expect("a list");
    let most = layers.iter().max_by(|x, y| ns(&x["moved_ns"]).total_cmp(&ns(&y["moved_ns"])));
    assert_eq!(most.expect("there are layers")["layer"], 1, "{moved}");
    let in_layers: f64 = layers.iter().map(|of| ns(&of["moved_ns"])).sum();
    let outside = ns(&moved["layers"]["outside"]["moved_ns"]);
    assert!((in_layers + outside - whole).abs() <= 1.0, "{moved}");
    assert!(moved["kernels"].is_null(), "both run the same kernels: {moved}");
    let pairs = found["ran"]["pairs"].as_u64().expect("a number");
    assert!(pairs >= 5, "{found}");
}

#[test]
fn a_time_that_is_too_short_shows_what_there_is_without_a_verdict() {
    let dir = TempDir::new().expect("a folder");
    let out = dir.path().join("runs");
    let program = programs().join("good/loads").display().to_string();
    let out_text = out.display().to_string();
    let output = versus(&[&program, &slow(&program), "--within", "1ms", "--out", &out_text]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.starts_with("Inconclusive: one process only"), "{said}");
    for expected in ["DownProjection", "B − A", "%, inconclusive", "--within"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let is_short = |line: &str| line.chars().count() <= 80 || line.contains(&program);
    assert!(said.lines().all(is_short), "{said}");
    for run in ["a/1", "b/1"] {
        assert!(out.join(run).join("profile.json").is_file(), "{run}");
    }
    assert!(!out.join("a/0").exists(), "the run that doesn't count");
    // Those of another time stay.
    let again = versus(&[&program, &slow(&program), "--within", "1ms", "--out", &out_text]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(text(&again.stderr).contains("already"), "{again:?}");
    for run in ["a/1", "b/1"] {
        assert!(out.join(run).join("profile.json").is_file(), "{run}");
    }
}

#[test]
fn a_table_for_an_issue_has_no_folders() {
    let program = programs().join("good/loads").display().to_string();
    for form in ["--format=md", "--markdown"] {
        let output = versus(&[&program, &slow(&program), "--within", "1ms", form]);
        let said = text(&output.stdout);
        let again = "- to repeat it: `brickscope versus loads 'SLOW=l_out-1 TIMES=4 loads'` (A, then B), of [brickscope ";
        assert!(said.contains(again), "{said}");
        let folder = Path::new(&program).parent().expect("a folder").display().to_string();
        assert!(!said.contains(&folder), "{said}");
        assert!(said.contains("| DownProjection |"), "{said}");
    }
    let refused = versus(&[&program, &slow(&program), "--paths"]);
    assert_eq!(text(&refused.stderr), "brickscope: --paths is about --format md\n");
}

#[test]
fn the_runs_are_kept_and_compared_again_as_they_were() {
    let dir = TempDir::new().expect("a folder");
    let in_it = |args: &[&str]| brickscope_in(dir.path(), args);
    let program = programs().join("good/loads").display().to_string();
    let slow = slow(&program);
    let output = in_it(&["versus", &program, &slow, "--json", "--within", "20s"]);
    let said = text(&output.stdout);
    assert!(said.contains("DownProjection"), "{output:?}");
    // Whichever side ran first, B is the newer one.
    let again = in_it(&["compare", "@-1", "@", "--json"]);
    assert_eq!(text(&again.stdout), said, "{again:?}");
    assert_eq!(again.status.code(), output.status.code());
    // The other way about, and in another form.
    let other = in_it(&["compare", "@", "@-1", "--format", "md"]);
    let table = text(&other.stdout);
    assert!(table.contains("`brickscope versus 'SLOW=l_out-1 TIMES=4 loads' loads`"), "{other:?}");
    // Of one phase it is another comparison.
    let decode = json(&in_it(&["compare", "@-1", "@", "--phase", "decode", "--json"]));
    let tests = decode["tests"].as_array().expect("a list");
    assert!(tests.len() == 1 && tests[0]["name"] == "decode", "{decode}");
    // Without one of the runs they are two sets.
    let runs = dir.path().join("brickscope-runs");
    let mut folders: Vec<_> = std::fs::read_dir(&runs)
        .expect("the runs")
        .map(|entry| entry.expect("a folder").path())
        .collect();
    folders.sort();
    assert_eq!(folders.len(), 2, "{folders:?}");
    // All of one side: of the pairs, some may have been left out of the comparison.
    let away = dir.path().join("away");
    std::fs::create_dir(&away).expect("made");
    let runs_of = |folder: &Path| -> Vec<_> {
        let numbers = (1_u32..).map(|number| number.to_string());
        numbers.take_while(|number| folder.join(number).exists()).collect()
    };
    let numbers = runs_of(&folders[0]);
    for number in &numbers {
        std::fs::rename(folders[0].join(number), away.join(number)).expect("it is there");
    }
    let sides = [&folders[0], &folders[1]].map(|side| side.display().to_string());
    let gone = in_it(&["compare", &sides[0], &sides[1]]);
    assert!(text(&gone.stderr).contains("some are gone"), "{gone:?}");
    for number in &numbers {
        std::fs::rename(away.join(number), folders[0].join(number)).expect("it is there");
    }
    let listed = in_it(&["ls"]);
    for folder in &folders {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(text(&listed.stdout).contains(name), "{listed:?}");
    }
    let removed = in_it(&["gc", "--keep", "0", "--yes"]);
    assert!(removed.status.success(), "{removed:?}");
    assert!(folders.iter().all(|folder| !folder.exists()), "{removed:?}");
}

#[test]
fn a_side_that_fails_is_named_with_what_it_said() {
    let program = programs().join("good/loads").display().to_string();
    let output = versus(&[&program, "/nonexistent/llama-bench -m x"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("B: ") && said.contains("/nonexistent/llama-bench"), "{said}");
}

#[test]
fn what_fails_before_it_counts_leaves_no_run() {
    let dir = TempDir::new().expect("a folder");
    let program = programs().join("good/loads").display().to_string();
    let output = brickscope_in(dir.path(), &["versus", &program, &format!("{program} fail")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!dir.path().join("brickscope-runs").exists(), "{output:?}");
}
