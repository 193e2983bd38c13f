//! `profile --compare-backends`: the form of its output, not which backend is faster.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf")
}

/// Compares backends with the tiny model, and returns the output.
fn compare(args: &[&str]) -> String {
    let words = ["profile", "--compare-backends", "--prompt", "import os"];
    let mut command = brickscope(&[&words, args].concat());
    // An empty folder shows that nothing is written.
    let dir = TempDir::new().expect("a temporary folder");
    let output = run(command.arg(model()).current_dir(dir.path()));
    let mut written = std::fs::read_dir(dir.path()).expect("the folder");
    assert!(written.next().is_none(), "it is a measurement, not a run");
    text(&output.stdout).to_owned()
}

/// The backends that this CPU supports, according to the command itself.
fn backends(json: &Value) -> Vec<&str> {
    let facts = json["backends"].as_array().expect("backends");
    facts.iter().filter_map(|facts| facts["backend"].as_str()).collect()
}

#[test]
fn the_table_has_each_brick_on_each_backend_in_80_columns() {
    let said = compare(&["--tokens", "4", "--threads", "1", "--rounds", "2"]);
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].ends_with(", q8_0, 1 thread"), "{said}");
    assert_eq!(lines[2], "Decode: 3 tokens in 3 passes, median of 2 rounds");
    assert!(said.contains("\nPrefill: 7 tokens in 1 pass, median of 2 rounds\n"), "{said}");
    for brick in ["wall", "QkvProjection", "AttentionScore", "RmsNorm", "LmHead", "unattributed"] {
        let rows = lines.iter().filter(|line| line.starts_with(&format!("{brick} ")));
        let scalar: Vec<_> = rows.map(|row| row[17..23].trim_end().to_owned()).collect();
        assert_eq!(scalar, ["scalar", "scalar"], "{brick} in\n{said}");
    }
    for part in ["\nroof of scalar: ", "\nwithout cuda: ", "\nwithout wgpu: "] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn the_json_has_every_round_and_the_figures_follow_from_it() {
    let json: Value = serde_json::from_str(&compare(&["--json", "--tokens", "5"])).expect("JSON");
    let backends = backends(&json);
    assert_eq!(backends[0], "scalar");
    let left_out = json["left_out"].as_array().expect("those without a row");
    assert_eq!(backends.len() + left_out.len(), brickscope::Backend::ALL.len());
    assert!(left_out.iter().all(|one| one["reason"].as_str().is_some_and(|why| !why.is_empty())));
    assert_eq!((&json["rounds"], &json["decoded_tokens"]), (&3.into(), &4.into()));
    assert_eq!(json["prompt_tokens"], 7);

    let phases = json["phases"].as_array().expect("phases");
    assert_eq!(phases.len(), 2);
    for (phase, name, tokens) in [(&phases[0], "decode", 4), (&phases[1], "prefill", 7)] {
        assert_eq!((&phase["phase"], &phase["tokens"]), (&name.into(), &tokens.into()));
        let bricks = phase["bricks"].as_array().expect("bricks");
        let ns = |cell: &Value| -> Vec<u64> {
            let rounds = cell["round_ns"].as_array().expect("a time for each round");
            rounds.iter().filter_map(Value::as_u64).collect()
        };
        for row in bricks.iter().chain([&phase["wall"], &phase["unattributed"]]) {
            let cells = row["cells"].as_array().expect("cells");
            assert_eq!(cells.len(), backends.len());
            for (cell, backend) in cells.iter().zip(&backends) {
                assert_eq!(cell["backend"], *backend);
                let mut times = ns(cell);
                assert_eq!(times.len(), 3);
                let middle = cell["round"].as_u64().expect("a round") as usize;
                assert_eq!(cell["total_ns"], times[middle]);
                times.sort_unstable();
                assert_eq!(cell["total_ns"], times[1]);
            }
            if let Some(fastest) = row["fastest"].as_str() {
                let times = |is_it: bool| -> Vec<Vec<u64>> {
                    let cells = cells.iter().filter(|cell| (cell["backend"] == fastest) == is_it);
                    cells.map(ns).collect()
                };
                for other in times(false) {
                    assert!(times(true)[0].iter().zip(&other).all(|(own, other)| own < other));
                }
            } else {
                assert!(row["fastest_absent"]["reason"].is_string(), "{row}");
            }
        }
        // In each round of each backend, bricks + unattributed = wall, to the nanosecond.
        for backend in 0..backends.len() {
            for round in 0..3 {
                let of = |row: &Value| ns(&row["cells"][backend])[round];
                let sum: u64 = bricks.iter().map(of).sum();
                assert_eq!(sum + of(&phase["unattributed"]), of(&phase["wall"]));
            }
        }
    }
}

#[test]
fn what_goes_with_one_backend_only_is_refused() {
    for other in [
        &["--check-overhead"][..],
        &["--live"],
        &["--out", "x"],
        &["--backend", "scalar"],
        &["--counters"],
        &["--shares"],
        &["--tiles"],
        &["--metrics", "127.0.0.1:0"],
        &["--leave-out-disturbed"],
        &["--sync", "deferred"],
        &["--top-k", "3"],
        &["--seed", "3"],
        &["--await-watcher"],
        &["--metrics-public"],
        &["--overhead-processes", "3"],
    ] {
        for asked in [&["--compare-backends"][..], &["--compare-backends", "--rounds", "2"]] {
            let mut command = brickscope(&["profile"]);
            let output = command.args(asked).args(other).output().expect("it starts");
            assert_eq!(output.status.code(), Some(2), "{other:?}");
            let said = text(&output.stderr);
            assert!(said.contains("cannot be used with"), "{other:?}: {said}");
        }
    }
    for args in [&["--rounds", "2"][..], &["--compare-backends", "--rounds", "0"]] {
        let output = brickscope(&["profile"]).args(args).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
