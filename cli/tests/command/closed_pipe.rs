//! An exit code says the same whether anyone reads the text or not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, unread};

fn model() -> String {
    word(&root().join("tests/data/models/tiny-Q8_0.gguf"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn word(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// The exit code of a command, which must be the same whether somebody reads its output or not.
fn code(args: &[&str]) -> i32 {
    code_with(args, &mut || Vec::new())
}

/// Asserts that a command succeeds though nobody reads its output.
fn succeeds_unread(args: &[&str]) {
    assert_eq!(unread(&mut brickscope(args)).code(), Some(0), "nobody reads {args:?}");
    has_code_without_stdout(&mut brickscope(args), 0);
}

/// Asserts that a command ends with `code`, and says nothing of a broken pipe, though its standard output is closed.
fn has_code_without_stdout(command: &mut Command, code: i32) {
    let closed = std::io::pipe().expect("a pipe").1;
    let output = command.stdout(closed).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    assert!(!said.contains("roken pipe"), "{command:?}: {said}");
}

/// The same, with further arguments for each time that it runs.
fn code_with(args: &[&str], more: &mut dyn FnMut() -> Vec<String>) -> i32 {
    let mut brickscope = |args: &[&str]| {
        let mut command = brickscope(args);
        command.args(more());
        command
    };
    let read = brickscope(args).output().expect("it starts");
    let code = read.status.code().expect("it isn't killed");
    assert_eq!(unread(&mut brickscope(args)).code(), Some(code), "nobody reads {args:?}");
    has_code_without_stdout(&mut brickscope(args), code);
    code
}

#[test]
fn a_refused_receipt_is_refused_though_nobody_reads_why() {
    let honest = root().join("tests/data/receipt-v1.json");
    assert_eq!(code(&["verify-receipt", &word(&honest)]), 0);
    let dir = TempDir::new().expect("a folder");
    let forged = dir.path().join("receipt.json");
    let text = fs::read_to_string(honest).expect("the fixture");
    fs::write(&forged, text.replace("\"tiny\"", "\"huge\"")).expect("written");
    assert_eq!(code(&["verify-receipt", &word(&forged)]), 1);
    assert_eq!(code(&["verify-receipt", &word(&forged), "--json"]), 1);
    assert_eq!(code(&["verify-receipt", "/nowhere"]), 2);
    // As in a script, with a reader that doesn't read.
    let mut script = std::process::Command::new("bash");
    script.args(["-c", "set -o pipefail; \"$0\" verify-receipt \"$1\" | true"]);
    script.arg(brickscope(&[]).get_program()).arg(&forged).stderr(Stdio::null());
    assert_eq!(script.status().expect("bash").code(), Some(1));
}

#[test]
fn what_grew_and_what_diverges_is_the_exit_code_though_nobody_reads_it() {
    let dir = TempDir::new().expect("a folder");
    let at = |name: &str| word(&dir.path().join(name));
    fs::write(at("before.folded"), "main;work 900\nmain;copy 100\n").expect("written");
    fs::write(at("after.folded"), "main;work 900\nmain;copy 300\n").expect("written");
    let mut drawn = 0;
    let mut a_new_folder = || {
        drawn += 1;
        vec!["-o".to_owned(), at(&format!("drawn-{drawn}"))]
    };
    let mut diff =
        |new: &str, old: &str| code_with(&["flamegraph", new, "--diff", old], &mut a_new_folder);
    assert_eq!(diff(&at("after.folded"), &at("before.folded")), 1);
    assert_eq!(diff(&at("before.folded"), &at("before.folded")), 0);
    assert_eq!(diff(&at("before.folded"), "/nowhere"), 2);

    let other = word(&root().join("tests/data/models/tiny-F16.gguf"));
    let sides = ["diverge", &model(), "--b-model", &other, "--tokens", "2"];
    assert_eq!(code(&sides), 1);
    assert_eq!(code(&[&sides[..], &["--json"]].concat()), 1);
    assert_eq!(code(&["diverge", &model(), "--a", "scalar", "--b", "scalar"]), 0);
}

#[test]
fn to_print_for_nobody_is_no_error_and_the_run_is_written() {
    let model = model();
    let dir = TempDir::new().expect("a folder");
    let at = |name: &str| word(&dir.path().join(name));
    let small = ["--threads", "1", "--tokens", "2"];
    let profile = [&["profile", &model, "--prompt", "Hi"], &small[..]].concat();
    let mut command = brickscope(&profile);
    assert!(unread(command.arg("--out").arg(at("profile"))).success());
    let run_in = at("profile");
    assert!(dir.path().join("profile/profile.json").is_file());
    let bench = ["benchmark", &model, "--prompt-tokens", "2", "--repetitions", "1"];
    let mut command = brickscope(&[&bench[..], &small].concat());
    assert!(unread(command.arg("--out").arg(at("bench"))).success());
    assert!(dir.path().join("bench/receipt.json").is_file());

    for args in [
        &["show", &run_in][..],
        &["show", &run_in, "--as", "tree"],
        &["show", &run_in, "--as", "json"],
        &["export", &run_in, "--format", "csv", "-o", "-"],
        &["export", &run_in, "--format", "chrome", "-o", "-"],
        &["export", &run_in, "--format", "chrome", "-o", "/dev/stdout"],
        &["export", &run_in, "--format", "parquet", "-o", "-"],
        &["report", &run_in, "-o", "-"],
        &["report", &run_in, "--json"],
        &["history", &at("bench")],
        &["tokenize", &model, "Once"],
        &["flamegraph", &run_in, "--via", "spans"],
    ] {
        assert_eq!(code(args), 0, "{args:?}");
    }
    // These measure for seconds; that they succeed if somebody reads them is asserted of what they say.
    succeeds_unread(&["machine", "--threads", "1"]);
    succeeds_unread(&["doctor"]);
    assert_eq!(code(&["show", "/nowhere"]), 1);
    // The environment's traces are printed on standard error.
    let mut traced = brickscope(&profile);
    traced.env("BRICKSCOPE_TRACE_TIMING", "1").env("BITNET_TRACE_QUANT", "1");
    assert!(unread(traced.arg("--out").arg(at("traced"))).success());
    run(&mut brickscope(&["show", &at("traced")]));
}
