//! `brickscope history`, on folders of made-up receipts.

use std::fs;
use std::path::Path;

use brickscope_analysis::receipt::Receipt;
use serde_json::{Value, json};
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};
use brickscope_testing::made::{Made, month};

/// A month of runs, each in its own folder.
fn a_month() -> TempDir {
    let dir = TempDir::new().expect("a temporary folder");
    for (i, made) in month().iter().enumerate() {
        save(made, &dir.path().join(format!("{i}/receipt.json")));
    }
    dir
}

fn save(made: &Made, path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    made.receipt().sealed().expect("it can be").save(path).expect("it is written");
}

fn history(dir: &TempDir, args: &[&str]) -> String {
    let path = dir.path().to_str().expect("UTF-8");
    text(&run(brickscope(&["history", path]).args(args)).stdout).to_owned()
}

fn refuse(dir: &Path, args: &[&str]) -> String {
    let path = dir.to_str().expect("UTF-8");
    let output = brickscope(&["history", path]).args(args).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?} printed a result");
    let said = text(&output.stderr).to_owned();
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn every_form_shows_the_change_and_its_brick() {
    let dir = a_month();
    let table = history(&dir, &[]);
    assert!(table.starts_with("30 receipts in 1 series; 30 not verified, see below\n"), "{table}");
    assert!(table.contains("> 2026-01-19 10:00:") && table.contains("slower"), "{table}");
    assert!(table.contains("\n    QkvProjection "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(history(&dir, &["-o", "md"]).contains("| **change** c |"));
    assert!(history(&dir, &["-o", "svg"]).ends_with("</svg>\n"));
    assert_eq!(history(&dir, &["-o", "csv"]).lines().count(), 31);
    let json: Value = serde_json::from_str(&history(&dir, &["-o", "json"])).expect("JSON");
    let change = &json["series"][0]["changes"][0];
    assert_eq!(change["at"], 18);
    assert_eq!(change["bricks"][0]["name"], "QkvProjection");
    let of_brick = history(&dir, &["--brick", "LmHead"]);
    assert!(of_brick.contains("no change of the level"), "{of_brick}");
}

#[test]
fn the_commit_is_the_one_that_was_named_at_the_run() {
    let dir = TempDir::new().expect("a temporary folder");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf");
    for (nth, commit) in ["c1", "c2"].iter().enumerate() {
        let mut real = brickscope(&["benchmark", "-p", "0", "-n", "4", "-r", "2"]);
        real.arg(&model).arg("--out").arg(dir.path().join(nth.to_string()));
        run(real.env("BRICKSCOPE_COMMIT", commit));
    }
    let json: Value = serde_json::from_str(&history(&dir, &["-o", "json"])).expect("JSON");
    let points = json["series"][0]["points"].as_array().expect("points").iter();
    let mut commits: Vec<_> = points.map(|point| point["commit"].as_str()).collect();
    // Two of one second are in any order.
    commits.sort();
    assert_eq!(commits, [Some("c1"), Some("c2")]);
}

#[test]
fn a_real_receipt_is_verified_and_a_forged_one_is_shown_as_not_verified() {
    let dir = TempDir::new().expect("a temporary folder");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf");
    let out = dir.path().join("real");
    let mut real = brickscope(&["benchmark", "-p", "0", "-n", "4", "-r", "2", "--overwrite"]);
    run(real.arg(model).arg("--out").arg(&out));
    let mut table = history(&dir, &[]);
    if table.contains("above-roof") {
        // In a virtual machine nobody sees that the host took the CPUs while the tests' ceilings were measured. By new
        // ones it must be verified.
        let cache = TempDir::new().expect("a temporary folder");
        run(real.env("BRICKSCOPE_CACHE", cache.path()));
        table = history(&dir, &[]);
    }
    assert!(table.starts_with("1 receipt in 1 series\n"), "{table}");

    // By its own words it never ran, and its walls are not those of its passes. It is sealed anew.
    let mut forged = Receipt::load(&out.join("receipt.json")).expect("it was written");
    forged.compute_path = "mock".to_owned();
    forged.timestamp = "2026-11-20T00:00:00Z".to_owned();
    for test in &mut forged.tests {
        test.samples.iter_mut().for_each(|sample| sample.wall_ns += 1);
    }
    let forged = forged.sealed().expect("it can be");
    forged.save(&dir.path().join("forged.receipt.json")).expect("it is written");
    let table = history(&dir, &[]);
    assert!(table.starts_with("2 receipts in 1 series; 1 not verified, see below\n"), "{table}");
    assert!(table.contains("\nnot verified:\n"), "{table}");
    let path = dir.path().to_str().expect("UTF-8");
    let csv = run(&mut brickscope(&["history", path, "-o", "csv"]));
    let said = text(&csv.stderr);
    assert!(said.contains("not verified: ") && said.contains("not-real"), "{said}");
}

#[test]
fn what_can_not_be_used_is_counted_and_named() {
    let dir = a_month();
    let at = |name: &str| dir.path().join(name);
    let torn = fs::read_to_string(at("0/receipt.json")).expect("it is there");
    fs::write(at("0/receipt.json"), &torn[..torn.len() / 2]).expect("it is written");
    let edited = fs::read_to_string(at("1/receipt.json")).expect("it is there");
    fs::write(at("1/receipt.json"), edited.replacen("q8_0", "q4_k", 1)).expect("it is written");
    Made::default().receipt().save(&at("bare.receipt.json")).expect("it is written");
    // A nested folder, another name, and files that aren't receipts.
    save(&Made { when: (30, 1), ..Made::default() }, &at("a/b/some.receipt.json"));
    fs::write(at("profile.json"), "{}").expect("it is written");

    let table = history(&dir, &[]);
    assert!(
        table.starts_with(
            "29 receipts in 1 series; 29 not verified, see below; 3 left out, see below\n"
        ),
        "{table}"
    );
    let (_, left_out) = table.split_once("\nleft out:\n").expect("a list");
    let left_out = left_out.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["not a whole receipt", "its seal is broken", "it has no seal"] {
        assert_eq!(left_out.matches(said).count(), 1, "{said}: {left_out}");
    }
    let json: Value = serde_json::from_str(&history(&dir, &["-o", "json"])).expect("JSON");
    let paths: Vec<&str> = json["left_out"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|left_out| left_out["path"].as_str().expect("a path"))
        .collect();
    assert!(paths[0].ends_with("0/receipt.json") && paths[1].ends_with("1/receipt.json"));
    assert!(paths[2].ends_with("bare.receipt.json"), "{paths:?}");
    // If the format has no place for it, it goes to standard error.
    let path = dir.path().to_str().expect("UTF-8");
    let csv = run(&mut brickscope(&["history", path, "-o", "csv"]));
    assert_eq!(text(&csv.stderr).matches("left out: ").count(), 3);
}

#[test]
fn one_of_several_tests_models_and_bricks_can_be_chosen() {
    let dir = a_month();
    let mut other: Receipt = Made::default().receipt();
    other.model.name = Some("other".to_owned());
    other.model.sha256 = "ab".repeat(32);
    other.tests[0].name = "tg32".to_owned();
    let other = other.sealed().expect("it can be");
    other.save(&dir.path().join("other.receipt.json")).expect("it is written");
    assert!(
        history(&dir, &[]).starts_with("31 receipts in 2 series; 31 not verified, see below\n")
    );
    for args in [["--test", "tg32"], ["--model", "other"], ["--model", "abab"]] {
        let table = history(&dir, &args);
        assert!(
            table.starts_with("1 receipt in 1 series; 1 not verified, see below\n"),
            "{args:?}: {table}"
        );
        assert!(table.contains("1 of the 12 points"), "{table}");
    }
    let said = refuse(dir.path(), &["--test", "pp512"]);
    assert!(said.contains("no receipt has a test `pp512`; available: tg16, tg32"), "{said}");
    let said = refuse(dir.path(), &["--model", "5f"]);
    assert!(said.contains("brickscope-synth-110m (5f5f5f5f), other (abababab)"), "{said}");
    let said = refuse(dir.path(), &["--brick", "Softmax"]);
    assert!(said.contains("available: LmHead, QkvProjection, unattributed"), "{said}");
}

#[test]
fn a_model_that_was_moved_is_chosen_by_either_path() {
    let dir = a_month();
    for (day, path) in [(40, "old.gguf"), (41, "new.gguf")] {
        let mut moved = Made { when: (day, 0), ..Made::default() }.receipt();
        moved.model.name = None;
        moved.model.path = path.to_owned();
        moved.model.sha256 = "cd".repeat(32);
        let moved = moved.sealed().expect("it can be");
        moved.save(&dir.path().join(format!("{day}.receipt.json"))).expect("it is written");
    }
    for asked in ["old.gguf", "new.gguf", "cdcd"] {
        let table = history(&dir, &["--model", asked]);
        assert!(
            table.starts_with("2 receipts in 1 series; 2 not verified, see below\n"),
            "{asked}: {table}"
        );
        assert!(table.contains("tg16: new.gguf q8_0 (cdcdcdcd)"), "{asked}: {table}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_waited_for() {
    let dir = a_month();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    let linked = dir.path().join("linked");
    fs::create_dir(&linked).expect("it is made");
    std::os::unix::fs::symlink(&pipe, linked.join("receipt.json")).expect("it is linked");
    fs::rename(&pipe, dir.path().join("a.receipt.json")).expect("it is renamed");
    std::os::unix::fs::symlink("../a.receipt.json", linked.join("b.receipt.json")).expect("linked");
    // A link to a receipt counts as a receipt, so there are two then.
    std::os::unix::fs::symlink("../3/receipt.json", linked.join("c.receipt.json")).expect("linked");
    let json: Value = serde_json::from_str(&history(&dir, &["-o", "json"])).expect("JSON");
    assert_eq!(json["runs"], 30);
    let said: Vec<(&str, &str)> = json["left_out"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|out| (out["path"].as_str().expect("a path"), out["reason"].as_str().expect("why")))
        .collect();
    assert_eq!(said.len(), 4, "{said:?}");
    let of = |end: &str| said.iter().find(|(path, _)| path.ends_with(end)).expect(end).1;
    assert_eq!(
        (of("/a.receipt.json"), of("b.receipt.json")),
        ("it is not a file", "it is not a file")
    );
    assert!(of("linked/receipt.json").contains("No such file"), "{said:?}");
    assert!(of("c.receipt.json").starts_with("the same receipt as "), "{said:?}");
}

#[test]
fn nothing_to_show_is_said_with_the_reason() {
    let dir = TempDir::new().expect("a temporary folder");
    let said = refuse(dir.path(), &[]);
    assert!(said.contains("there is no receipt in") && said.contains("benchmark"), "{said}");
    let said = refuse(&dir.path().join("none"), &[]);
    assert!(said.contains("there is no "), "{said}");
    fs::write(dir.path().join("receipt.json"), "{}").expect("it is written");
    let said = refuse(dir.path(), &[]);
    assert!(said.contains("schema_version"), "{said}");
}

#[test]
fn a_receipt_by_itself_is_a_point() {
    let dir = a_month();
    let path = dir.path().join("3/receipt.json");
    let output = run(&mut brickscope(&["history", path.to_str().expect("UTF-8")]));
    assert!(text(&output.stdout).starts_with("1 receipt in 1 series; 1 not verified, see below\n"));
}

/// A flamegraph with one brick of decode and time outside of it, with a hundred samples in each of twenty
/// blocks.
fn flamegraph(day: usize, in_brick: u64) -> Value {
    let blocks = |samples: u64| -> Vec<u64> {
        (0..20).map(|at| if at % 2 == 0 { samples + 1 } else { samples - 1 }).collect()
    };
    let rest: Vec<u64> = blocks(in_brick).iter().map(|samples| 100 - samples).collect();
    let share = |name: &str, by_block: &[u64]| {
        let weight: u64 = by_block.iter().sum();
        json!({ "name": name, "weight": weight, "self_weight": weight, "by_block": by_block })
    };
    let of_decode = |mut share: Value| {
        share["phase"] = json!("decode");
        share
    };
    let [brick, unattributed] = [("LmHead", blocks(in_brick)), ("unattributed", rest.clone())]
        .map(|(name, blocks)| of_decode(share(name, &blocks)));
    json!({
        "schema_version": 1,
        "brickscope_version": "0.1.0",
        "generated": format!("2026-11-{day:02}T10:00:00Z"),
        "source": { "via": "sampler", "event": "cpu-clock", "frequency": 999 },
        "unit": "samples",
        "total": 2000,
        "doubts": [],
        "model": null,
        "run": null,
        "machine": null,
        "command": ["llama-bench", "-m", "model.gguf"],
        "build": "rustc 1.90.0",
        "classes": [share("quantized", &blocks(in_brick)), share("other", &rest)],
        "bricks": [brick, unattributed],
        "functions": [share("q4_k_gemv", &blocks(in_brick))],
        "agreement": null,
        "agreement_absent": null,
    })
}

/// Five days of flamegraphs; a brick grows on the fourth.
fn add_flamegraphs(dir: &Path) {
    for day in 1..=5 {
        let folder = dir.join(format!("flame-{day}"));
        fs::create_dir_all(&folder).expect("it is made");
        let made = flamegraph(day, if day < 4 { 40 } else { 60 }).to_string();
        fs::write(folder.join("flamegraph.json"), made).expect("it is written");
    }
}

#[test]
fn flamegraphs_are_a_history_of_their_own() {
    let dir = TempDir::new().expect("a temporary folder");
    add_flamegraphs(dir.path());
    for args in [&[][..], &["--flamegraphs"]] {
        let table = history(&dir, args);
        assert!(table.starts_with("5 flamegraphs in 1 series\n"), "{table}");
        assert!(table.contains("llama-bench -m model.gguf"), "{table}");
        assert!(table.contains("\n> 2026-11-04 10:00: "), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
    let markdown = history(&dir, &["-o", "md"]);
    assert!(markdown.contains("| decode LmHead | 40.0% | 40.0% | 40.0% | **60.0%** | 60.0% |"));
    let csv = history(&dir, &["-o", "csv"]);
    assert_eq!(csv.lines().filter(|line| line.ends_with(",true")).count(), 5, "{csv}");
    let json: Value = serde_json::from_str(&history(&dir, &["-o", "json"])).expect("JSON");
    let moves = &json["flamegraphs"]["series"][0]["moves"];
    assert_eq!((&moves[0]["at"], moves.as_array().map(Vec::len)), (&json!(3), Some(1)));
    let said = refuse(dir.path(), &["-o", "svg"]);
    assert!(said.contains("no chart of flamegraphs"), "{said}");
    let one = dir.path().join("flame-2/flamegraph.json");
    let output = run(&mut brickscope(&["history", one.to_str().expect("UTF-8")]));
    assert!(text(&output.stdout).starts_with("1 flamegraph in 1 series\n"));
}

#[test]
fn flamegraphs_follow_the_speeds_and_change_nothing_of_them() {
    let dir = a_month();
    let speeds = history(&dir, &[]);
    let csv = history(&dir, &["-o", "csv"]);
    add_flamegraphs(dir.path());
    let both = history(&dir, &[]);
    let (before, after) = both.split_at(speeds.len());
    assert_eq!(before, speeds);
    assert!(after.starts_with("\n5 flamegraphs in 1 series\n"), "{after}");
    assert_eq!(history(&dir, &["-o", "csv"]), csv);
    assert_eq!(history(&dir, &["--test", "tg16"]), speeds);
    assert!(!history(&dir, &["--flamegraphs"]).contains("receipt"));
    let json: Value = serde_json::from_str(&history(&dir, &["-o", "json"])).expect("JSON");
    assert_eq!((&json["runs"], &json["flamegraphs"]["flamegraphs"]), (&json!(30), &json!(5)));
    let path = dir.path().to_str().expect("UTF-8");
    let output = run(&mut brickscope(&["history", path, "-o", "svg"]));
    assert!(text(&output.stderr).contains("not shown: 5 flamegraphs; --flamegraphs shows them"));
}

#[test]
fn bad_flamegraphs_are_left_out_with_the_reason() {
    let dir = TempDir::new().expect("a temporary folder");
    add_flamegraphs(dir.path());
    let at = |name: &str| dir.path().join(name);
    let good = flamegraph(6, 60).to_string();
    fs::write(at("cut.flamegraph.json"), &good[..good.len() / 2]).expect("it is written");
    let newer = good.replace("\"schema_version\":1", "\"schema_version\":9");
    fs::write(at("newer.flamegraph.json"), newer).expect("it is written");
    let more = good.replace("\"total\":2000", "\"total\":20");
    fs::write(at("more.flamegraph.json"), more).expect("it is written");
    fs::copy(at("flame-1/flamegraph.json"), at("again.flamegraph.json")).expect("it is copied");
    let table = history(&dir, &[]);
    assert!(table.starts_with("5 flamegraphs in 1 series; 4 left out, see below\n"), "{table}");
    let (_, left_out) = table.split_once("\nleft out:\n").expect("a list");
    let said = left_out.split_whitespace().collect::<Vec<_>>().join(" ");
    for reason in [
        "cut.flamegraph.json: a truncated flamegraph.json: it ends at byte ",
        "newer.flamegraph.json: its schema_version is 9, and this brickscope reads 1",
        "of 20 in all",
        "flame-1/flamegraph.json: the same flamegraph as ",
    ] {
        assert_eq!(said.matches(reason).count(), 1, "{reason}: {said}");
    }
    let json: Value = serde_json::from_str(&history(&dir, &["-o", "json"])).expect("JSON");
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(4));
    // If the format has no place for it, it goes to standard error.
    let path = dir.path().to_str().expect("UTF-8");
    let csv = run(&mut brickscope(&["history", path, "-o", "csv"]));
    assert_eq!(text(&csv.stderr).matches("left out: ").count(), 4);
    let only = TempDir::new().expect("a temporary folder");
    fs::write(only.path().join("flamegraph.json"), "{").expect("it is written");
    let said = refuse(only.path(), &["--flamegraphs"]);
    assert!(said.contains("no flamegraph in") && said.contains("it ends at byte 1"), "{said}");
}
