//! `brickscope try`: a run is made again with a change and without it, and the result is kept with the run.

use std::fs;
use std::path::{Path, PathBuf};

use brickscope::{Change, Profile, RUN_FILE};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

/// A run of a small model by one thread.
fn profiled(args: &[&str]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary folder");
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    let out = dir.path().join("run");
    let mut command = brickscope(&["profile", "--tokens", "4", "--threads", "1", "--out"]);
    run(command.arg(&out).arg(models.join("tiny-Q4_K_M.gguf")).args(args));
    (dir, out)
}

#[test]
fn a_sweep_of_threads_is_kept_with_its_run() {
    let (_dir, out) = profiled(&[]);
    let mut command = brickscope(&["try", "--threads", "1,2", "--pairs", "6", "--json"]);
    let output = command.arg(&out).output().expect("it starts");
    // Which number is faster depends on the machine.
    assert!([Some(0), Some(1), Some(3)].contains(&output.status.code()), "{output:?}");
    let trials: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(trials.as_array().map(Vec::len), Some(1), "its own number is no change: {trials}");
    assert_eq!(trials[0]["change"]["threads"], 2);
    assert_eq!(trials[0]["ratio"]["pairs"], 6);
    let kept = Profile::load(&out.join(RUN_FILE)).expect("a run").trials;
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].change, Change::Threads(2));
    let found = run(brickscope(&["findings", "--json"]).arg(&out));
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let unknown = found["unknown"].as_array().expect("a list");
    assert!(unknown.iter().all(|unknown| unknown["rule"] != "number-of-threads"), "{found}");
}

#[test]
fn formats_side_by_side_are_a_table() {
    let (_dir, out) = profiled(&[]);
    let printed = run(brickscope(&["try", "--quant", "q8_0,f16", "--pairs", "6"]).arg(&out));
    let printed = text(&printed.stdout);
    assert!(
        printed.starts_with("A typical pass of decode, 6 pairs of runs in turns each\n"),
        "{printed}"
    );
    for row in ["   as it ran ", "   --quant q8_0 ", "   --quant f16 "] {
        assert!(printed.contains(row), "{printed}");
    }
    let path = out.display().to_string();
    let is_short = |line: &str| line.chars().count() <= 80 || line.contains(&path);
    assert!(printed.lines().all(is_short), "{printed}");
}

#[test]
fn a_command_makes_the_change_and_another_takes_it_back() {
    let (dir, out) = profiled(&[]);
    let log = dir.path().join("log");
    let [on, off] = ["on", "off"].map(|word| format!("echo {word} >> {}", log.display()));
    let mut command = brickscope(&["try", "--pairs", "6", "--on", &on, "--off", &off]);
    let kept = dir.path().join("kept");
    let output = command.arg(&out).arg("--out").arg(&kept).output().expect("it starts");
    assert!([Some(0), Some(1), Some(3)].contains(&output.status.code()), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.contains("   measured    "), "{printed}");
    let log = fs::read_to_string(log).expect("the commands ran");
    let count = |word| log.lines().filter(|line| *line == word).count();
    assert_eq!((count("on"), count("off")), (6, 7), "{log}");
    assert!(log.ends_with("off\n"), "it is taken back at the end: {log}");
    // The runs are kept as two sides.
    let mut compare = brickscope(&["compare", "--force"]);
    let sides = compare.arg(kept.join("0")).arg(kept.join("1")).output().expect("it starts");
    assert!(matches!(sides.status.code(), Some(0 | 1 | 3)), "{sides:?}");
    assert!(kept.join("1/6").join(RUN_FILE).is_file());
}

#[test]
fn what_can_not_be_tried_says_why() {
    let (dir, out) = profiled(&[]);
    let refused = |args: &[&str]| {
        let output = brickscope(&["try"]).arg(&out).args(args).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        text(&output.stderr).to_owned()
    };
    assert!(refused(&["no-such-rule"]).contains("has no finding `no-such-rule`"));
    assert!(refused(&["--huge-pages"]).contains("large pages already"));
    assert!(refused(&["--threads", "1"]).contains("1 is the number of threads that this run has"));
    assert!(refused(&["--on", "true"]).contains("--off"));
    assert!(refused(&["--program", "no/such/file"]).contains("no/such/file"));
    assert!(refused(&["--quant", "q9"]).contains("q9"));
    let words = refused(&["--", "--no-such-flag"]);
    assert!(words.contains("no-such-flag"), "{words}");
    // A run with requests is a server's: nothing is started, confirmed or not.
    let mut profile = Profile::load(&out.join(RUN_FILE)).expect("a run");
    let marker = dir.path().join("started");
    let run = profile.run.as_mut().expect("it says how it was made");
    run.command = vec!["touch".to_owned(), marker.display().to_string()];
    run.backend = "llama.cpp, CPU".to_owned();
    profile.requests.push(brickscope::Request::default());
    let served = dir.path().join("served");
    profile.save_run(&served).expect("a new folder");
    for yes in [&["--threads", "2"][..], &["--threads", "2", "--yes"]] {
        let output = brickscope(&["try"]).arg(&served).args(yes).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("is of a server") && !said.contains("--yes"), "{said}");
        assert!(!marker.exists(), "its command ran");
    }
    // An imported run.
    let mut profile = Profile::load(&out.join(RUN_FILE)).expect("a run");
    profile.imported =
        Some(brickscope::Imported { format: "chrome".to_owned(), ..Default::default() });
    let imported = dir.path().join("imported");
    profile.save_run(&imported).expect("a new folder");
    let mut command = brickscope(&["try", "--threads", "2"]);
    let output = command.arg(&imported).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("imported (chrome)"), "{output:?}");
}
