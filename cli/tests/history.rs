//! `brickscope history`, of folders of receipts that were made.

// Of the shared helpers this test needs some.
#[allow(dead_code)]
mod command;
#[path = "../../tests/history/made.rs"]
mod made;

use std::fs;
use std::path::Path;

use brickscope::receipt::Receipt;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{brickscope, run, text};
use crate::made::{Made, month};

/// A month of runs, each in a folder of its own.
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
    assert!(table.starts_with("30 receipts in 1 series\n"), "{table}");
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
fn what_can_not_be_used_is_counted_and_named() {
    let dir = a_month();
    let at = |name: &str| dir.path().join(name);
    let torn = fs::read_to_string(at("0/receipt.json")).expect("it is there");
    fs::write(at("0/receipt.json"), &torn[..torn.len() / 2]).expect("it is written");
    let edited = fs::read_to_string(at("1/receipt.json")).expect("it is there");
    fs::write(at("1/receipt.json"), edited.replacen("q8_0", "q4_k", 1)).expect("it is written");
    Made::default().receipt().save(&at("bare.receipt.json")).expect("it is written");
    // A folder in a folder, a name of its own, and what isn't a receipt.
    save(&Made { when: (30, 1), ..Made::default() }, &at("a/b/some.receipt.json"));
    fs::write(at("profile.json"), "{}").expect("it is written");

    let table = history(&dir, &[]);
    assert!(table.starts_with("29 receipts in 1 series; 3 left out, see below\n"), "{table}");
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
    // Where the output has no place for it, it is said beside it.
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
    assert!(history(&dir, &[]).starts_with("31 receipts in 2 series\n"));
    for args in [["--test", "tg32"], ["--model", "other"], ["--model", "abab"]] {
        let table = history(&dir, &args);
        assert!(table.starts_with("1 receipt in 1 series\n"), "{args:?}: {table}");
        assert!(table.contains("1 of the 12 points"), "{table}");
    }
    let said = refuse(dir.path(), &["--test", "pp512"]);
    assert!(said.contains("no receipt has a test `pp512`; there are tg16, tg32"), "{said}");
    let said = refuse(dir.path(), &["--model", "5f"]);
    assert!(said.contains("brickscope-synth-110m (5f5f5f5f), other (abababab)"), "{said}");
    let said = refuse(dir.path(), &["--brick", "Softmax"]);
    assert!(said.contains("there are LmHead, QkvProjection, unattributed"), "{said}");
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
        assert!(table.starts_with("2 receipts in 1 series\n"), "{asked}: {table}");
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
    // A link to a receipt is one, of which there are two then.
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
    assert!(text(&output.stdout).starts_with("1 receipt in 1 series\n"));
}
