//! `brickscope.toml`: the user's defaults.

use std::fs;
use std::path::Path;
use std::process::Command;

use brickscope_testing::command::{as_asked, run, text};
use serde_json::Value;
use tempfile::TempDir;

/// The command in a folder, without what the user of the tests has set.
fn in_folder(folder: &Path, words: &[&str]) -> Command {
    let mut command = as_asked(words);
    command.current_dir(folder).env_remove("BRICKSCOPE_LAKE").env("XDG_CONFIG_HOME", folder);
    command
}

/// What `doctor` says of the defaults.
fn told(command: &mut Command) -> String {
    let findings: Value = serde_json::from_slice(&run(command).stdout).expect("JSON");
    let mut findings = findings.as_array().expect("an array").iter();
    let defaults = findings.find(|of| of["name"] == "defaults").expect("it is told");
    defaults["found"].as_str().expect("words").to_owned()
}

#[test]
fn doctor_shows_the_file_and_its_values_and_the_nearest_wins() {
    let folder = TempDir::new().expect("a folder");
    let (near, own) = (folder.path().join("work/src"), folder.path().join("brickscope"));
    fs::create_dir_all(&near).expect("made");
    fs::create_dir_all(&own).expect("made");
    fs::create_dir(folder.path().join("work/.git")).expect("made");
    let doctor = || in_folder(folder.path(), &["doctor", "--json"]);
    let here = || {
        let mut command = doctor();
        command.current_dir(&near);
        command
    };
    assert!(told(&mut here()).starts_with("no brickscope.toml"), "{}", told(&mut here()));
    fs::write(own.join("brickscope.toml"), "threads = 3\n").expect("written");
    assert!(told(&mut here()).ends_with("brickscope/brickscope.toml: threads = 3"));
    fs::write(folder.path().join("work/brickscope.toml"), "threads = 2\nlake = \"lake\"\n")
        .expect("written");
    let said = told(&mut here());
    let lake = folder.path().join("work/lake").display().to_string();
    assert!(said.contains("work/brickscope.toml: threads = 2, lake = ") && said.contains(&lake));
    let said = told(here().env("BRICKSCOPE_LAKE", "other"));
    assert!(said.ends_with("; BRICKSCOPE_LAKE wins: other"), "{said}");
}

#[test]
fn a_mistake_in_the_file_is_told_with_line_and_key() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("brickscope.toml");
    for (content, said) in [
        ("out = \"a\"\nthread = 1\n", "brickscope.toml, line 2: there is no key `thread`"),
        ("threads = \"1\"\n", "brickscope.toml, line 1: `threads` must be a number of threads"),
        ("threads = \n", "brickscope.toml, line 1: "),
    ] {
        fs::write(&file, content).expect("written");
        let output = in_folder(folder.path(), &["ls"]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
        // Who asks for help gets it.
        let help = run(&mut in_folder(folder.path(), &["ls", "--help"])).stdout;
        assert!(text(&help).contains("Usage"));
    }
}

#[test]
fn threads_and_the_folder_of_runs_are_taken_and_flags_win() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("brickscope.toml");
    fs::write(&file, "threads = 2\nout = \"mine\"\n").expect("written");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf");
    let model = model.to_str().expect("UTF-8");
    let profile = |more: &[&str]| {
        let words = [&["profile", model, "--tokens", "2", "--json"], more].concat();
        let json = run(&mut in_folder(folder.path(), &words)).stdout;
        let profile: Value = serde_json::from_slice(&json).expect("JSON");
        profile["run"]["threads"].as_u64().expect("a number")
    };
    assert_eq!(profile(&[]), 2);
    assert_eq!(fs::read_dir(folder.path().join("mine")).expect("made").count(), 1);
    assert_eq!(profile(&["--threads", "1", "-o", "named"]), 1);
    assert!(folder.path().join("named/profile.json").is_file());
    assert!(!folder.path().join("brickscope-runs").exists());
    // Where runs are written they are looked for.
    let shown = run(&mut in_folder(folder.path(), &["show", "@", "--json"])).stdout;
    let shown: Value = serde_json::from_slice(&shown).expect("JSON");
    assert_eq!(shown["run"]["threads"], 2);
    assert_ne!(text(&run(&mut in_folder(folder.path(), &["ls"])).stdout), "");
}

#[test]
fn a_lake_is_that_of_the_file_unless_one_is_named() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("brickscope.toml"), "lake = \"ours\"\n").expect("written");
    fs::create_dir(folder.path().join("runs")).expect("made");
    let said =
        |command: &mut Command| text(&command.output().expect("it starts").stderr).to_owned();
    let check = || in_folder(folder.path(), &["lake", "check"]);
    assert!(said(&mut check()).contains("ours"), "{}", said(&mut check()));
    assert!(said(check().env("BRICKSCOPE_LAKE", "theirs")).contains("theirs"));
    assert!(said(check().args(["--lake", "named"])).contains("named"));
}
