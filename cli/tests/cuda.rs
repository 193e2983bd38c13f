//! The command with `--backend cuda` on the fake driver. The figures of `selftest` mean nothing there, but it
//! runs to its end, and says what it is asked to.

#[path = "../../engine/tests/fake_cuda/mod.rs"]
mod fake_cuda;

use std::path::Path;
use std::process::{Command, Output};

/// `brickscope` with a command, a model and these arguments, and these settings of the fake driver.
fn brickscope(command: &str, args: &[&str], settings: &[(&str, &str)]) -> Output {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/data/models");
    Command::new(env!("CARGO_BIN_EXE_brickscope"))
        .arg(command)
        .arg(models.join("tiny-Q8_0.gguf"))
        .args(args)
        .env("LD_LIBRARY_PATH", fake_cuda::folder())
        .envs(settings.iter().copied())
        .output()
        .expect("it runs")
}

fn selftest(args: &[&str], settings: &[(&str, &str)]) -> Output {
    brickscope("selftest", &[&["--backend", "cuda"], args].concat(), settings)
}

#[test]
fn every_check_is_made_and_one_that_fails_is_the_exit_code() {
    // Kernels do nothing there, so the logits are not the CPU's.
    let output = selftest(&["--json"], &[("FAKE_CUDA_EVENT_NS", "10")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = json["checks"].as_array().expect("a list");
    let of = |name: &str| {
        let found = checks.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no check {name}: {json:#}"))
    };
    assert_eq!(of("device")["found"], "Fake CUDA device");
    assert_eq!(of("kernel nodes without a brick")["ok"], true);
    assert_eq!(of("kernels of zero duration")["ok"], true);
    assert_eq!(of("kernels that spill")["ok"], true);
    assert_eq!(of("logits against the CPU's")["ok"], false);
    // Each kernel has an event before it, of 10 ns where kernels take 2 µs and more.
    assert_eq!(of("sum of bricks against the graph")["ok"], true);
    let event = of("an event in a graph, device")["value"].as_f64().expect("a number");
    assert!((event - 10.0).abs() < 1.0, "{event}");
    for name in [
        "step of %globaltimer",
        "narrowest clock bracket",
        "an event in a stream, host",
        "an event in a stream, device",
        "Deferred against None, graphs on",
        "events against stamping kernels",
        "agreement with CUPTI's records",
    ] {
        of(name);
    }
    assert_eq!(json["ok"], false);
}

#[test]
fn the_table_is_for_80_columns() {
    let output = selftest(&[], &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("checks failed") || text.contains("check failed"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn without_a_device_there_is_one_line_and_an_exit_code() {
    for (command, args, code) in [
        ("selftest", &["--backend", "cuda"][..], 2),
        ("profile", &["--backend", "cuda", "--out", "never-written"], 1),
        ("diverge", &["--a", "cpu", "--b", "cuda", "--ids", "1"], 2),
    ] {
        let output = brickscope(command, args, &[("FAKE_CUDA_DEVICES", "0")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(output.stdout.is_empty(), "{command}");
        assert_eq!(said.trim_end().lines().count(), 1, "{command}: {said}");
        assert!(said.contains("offers no device"), "{command}: {said}");
    }
}

#[test]
fn a_device_lost_in_mid_run_is_one_line_and_an_exit_code() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    let args = ["--backend", "cuda", "--prompt", "Hi", "--out", out.to_str().expect("a path")];
    let output = brickscope("profile", &args, &[("FAKE_CUDA_LOSE_AT", "400")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(said.contains("the device is lost"), "{said}");
}
