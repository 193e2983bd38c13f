//! `--otlp` where there is no collector. tests/otlp/run has collectors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use brickscope_testing::NOBODY_LISTENS;
use brickscope_testing::command::{brickscope, run, text};
use brickscope_testing::patience::first_to_judge;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q4_K_M.gguf")
}

/// Where nobody listens.
fn nowhere() -> String {
    format!("http://{NOBODY_LISTENS}")
}

/// What the command writes to standard error, after the first time-out within which the machine heard at all that nobody
/// listens.
fn refused(code: i32, command: impl Fn() -> Command) -> Option<String> {
    first_to_judge(|n| {
        let (millis, mut command) = (300 << n, command());
        command.env("OTEL_EXPORTER_OTLP_TIMEOUT", format!("{millis}"));
        let output = command.output().expect("it starts");
        let said = text(&output.stderr).to_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        match said.contains("no answer in time") {
            true => Err(format!("no answer in {millis} ms: {said}")),
            false => Ok(said),
        }
    })
}

#[test]
fn a_run_that_cannot_be_pushed_is_kept() {
    let (dir, url) = (TempDir::new().expect("a temporary folder"), nowhere());
    let fast = ["--tokens", "2", "--prompt-tokens", "4", "--repetitions", "1"];
    for (name, args) in [("profile", &["--tokens", "2"][..]), ("benchmark", &fast)] {
        let folder = dir.path().join(name);
        let said = refused(0, || {
            let _ = fs::remove_dir_all(&folder);
            let mut command = brickscope(&[name, "--otlp", &url, "--out"]);
            command.arg(&folder).args(args).arg(model());
            command
        });
        let Some(said) = said else { return };
        let warnings: Vec<&str> =
            said.lines().filter(|line| line.contains("was not pushed")).collect();
        let [warning] = warnings[..] else { panic!("{said}") };
        assert!(
            warning.starts_with(&format!("warning: the run was not pushed to {url}: ")),
            "{said}"
        );
        let later = format!("`brickscope export {} --otlp {url}`", folder.display());
        assert!(warning.contains(&later) && warning.contains("refused"), "{said}");
        // Pushing is all that this command is for.
        let said = refused(1, || {
            let mut command = brickscope(&["export", "--otlp", &url]);
            command.arg(&folder);
            command
        });
        let Some(said) = said else { return };
        assert!(said.contains("was not pushed") && said.contains("refused"), "{said}");
    }
}

#[test]
fn snapshots_that_nobody_took_are_one_line() {
    let (dir, url) = (TempDir::new().expect("a temporary folder"), nowhere());
    let mut command =
        brickscope(&["profile", "--prompt", "Hi", "--tokens", "300", "--otlp-every", "1"]);
    command.arg("--otlp").arg(&url).arg("--out").arg(dir.path().join("run")).arg(model());
    let output = run(command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "300"));
    let said = text(&output.stderr);
    // A fast machine is done before the first one is due.
    assert!(said.matches("were dropped on the way").count() <= 1, "{said}");
    assert!(said.contains("was not pushed"), "{said}");
}

#[test]
fn what_is_wrong_is_said_before_the_run() {
    let refused = |args: &[&str], variable: (&str, &str)| {
        let dir = TempDir::new().expect("a temporary folder");
        let mut command = brickscope(args);
        command.arg(model()).arg("--out").arg(dir.path().join("run"));
        let output = command.env(variable.0, variable.1).output().expect("it starts");
        let said = text(&output.stderr).to_owned();
        assert!(!output.status.success() && !dir.path().join("run").exists(), "{said}");
        said
    };
    let none = ("OTEL_SERVICE_NAME", "");
    let local = "http://localhost:4318";
    for (args, variable, why) in [
        (
            &["profile", "--otlp", "localhost:4318"][..],
            none,
            "--otlp: localhost:4318: it must begin",
        ),
        (&["benchmark", "--otlp", "http://a:b@c"], none, "OTEL_EXPORTER_OTLP_HEADERS takes"),
        (
            &["profile", "--otlp", local],
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            "_TIMEOUT: must be",
        ),
        (
            &["profile", "--otlp", local],
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            "_HEADERS: pair 1",
        ),
        (&["profile", "--otlp-every", "1"], none, "--otlp <URL>"),
        (&["profile", "--check-overhead", "--otlp", local], none, "--otlp"),
        (&["benchmark", "--no-profiler", "--otlp", local], none, "no metrics to push"),
        (
            &["benchmark", "--processes", "2", "--otlp", local, "--otlp-every", "1"],
            none,
            "--otlp-every",
        ),
    ] {
        let said = refused(args, variable);
        assert!(said.contains(why) && !said.contains("secret"), "{args:?}: {said}");
    }
}
