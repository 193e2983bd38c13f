//! The command with `--backend cuda` on the fake driver. The figures of `selftest` mean nothing there, but
//! it runs to its end and prints all checks.

#[path = "../../engine/tests/fake_cuda/mod.rs"]
mod fake_cuda;

use std::path::Path;
use std::process::{Command, Output};

/// `brickscope` with a command, a model, these arguments, and these settings of the fake driver.
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
    // Kernels do nothing there, so the logits differ from the CPU's.
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
    // There, a kernel takes some 2 µs, and the launch of a graph 1 µs more, which is in no brick.
    let sum = of("sum of bricks against the graph")["value"].as_f64().expect("a number");
    assert!((-6.0..0.0).contains(&sum), "{sum}");
    for name in [
        "step of %globaltimer",
        "narrowest clock bracket",
        "a time alone in a stream, host",
        "a time alone in a stream, device",
        "a time in a graph, device",
        "Deferred against None, graphs on",
        "agreement with CUPTI's records",
    ] {
        of(name);
    }
    assert_eq!(json["ok"], false);
    // The verdict doesn't depend on whether anybody reads it.
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/data/models");
    let mut unread = Command::new(env!("CARGO_BIN_EXE_brickscope"));
    unread.args(["selftest", "--backend", "cuda"]).arg(models.join("tiny-Q8_0.gguf"));
    unread.env("LD_LIBRARY_PATH", fake_cuda::folder()).env("FAKE_CUDA_EVENT_NS", "10");
    let closed = || std::io::pipe().expect("a pipe").1;
    let status = unread.stdout(closed()).stderr(closed()).status().expect("it runs");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn the_table_is_for_80_columns() {
    let library = fake_cuda::cupti();
    for settings in [
        &[][..],
        &[("BRICKSCOPE_CUPTI", "/no/such/file.so")],
        &[("BRICKSCOPE_CUPTI", &*library), ("FAKE_CUPTI_DROP", "500")],
        &[("BRICKSCOPE_CUPTI", &*library), ("FAKE_CUPTI_VERSION", "140000")],
    ] {
        let output = selftest(&[], settings);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("checks failed") || text.contains("check failed"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

/// The checks of a `selftest` with CUPTI and these settings, by name.
fn with_cupti(settings: &[(&str, &str)]) -> impl Fn(&str) -> serde_json::Value + use<> {
    let library = fake_cuda::cupti();
    let output = selftest(&["--json"], &[&[("BRICKSCOPE_CUPTI", &*library)], settings].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    move |name| {
        let mut checks = json["checks"].as_array().expect("a list").iter();
        let found = checks.find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no check {name}: {json:#}")).clone()
    }
}

fn text(check: &serde_json::Value) -> &str {
    check["found"].as_str().expect("a text")
}

#[test]
fn stamps_and_cuptis_records_of_the_same_kernels_agree() {
    let of = with_cupti(&[]);
    let agreement = of("agreement with CUPTI's records");
    assert_eq!(agreement["ok"], true, "{agreement}");
    assert_eq!(agreement["value"], 0.0, "{agreement}");
    assert!(text(&agreement).starts_with("0 of "), "{agreement}");
    assert!(!text(&agreement).starts_with("0 of 0 "), "{agreement}");
    // Kernels note their own begin, so that nothing comes between.
    let median = of("a kernel's stamps less its record")["value"].as_f64().expect("a number");
    assert!(median.abs() <= 2.0, "{median}");
    let records = of("CUPTI's records");
    assert!(text(&records).contains("kernels by version 28, "), "{records}");
    assert!(text(&records).contains(" of other kinds"), "{records}");
}

#[test]
fn a_record_that_differs_from_the_stamps_by_a_tenth_is_found_and_named() {
    // So that a tenth is more than 1 µs.
    let of = with_cupti(&[("FAKE_CUDA_SLOWNESS", "20"), ("FAKE_CUPTI_STRETCH", "attention 10")]);
    let agreement = of("agreement with CUPTI's records");
    assert_eq!(agreement["ok"], false, "{agreement}");
    let beyond = agreement["value"].as_f64().expect("a number");
    // Some in each of 40 passes, and not all.
    assert!(beyond >= 40.0 && beyond % 40.0 == 0.0, "{agreement}");
    let apart = of("a kernel's stamps less its record");
    assert!(text(&apart).ends_with("attention"), "{apart}");
    assert!(apart["value"].as_f64().expect("a number").abs() <= 2.0, "{apart}");
}

#[test]
fn records_that_cupti_lost_are_told_and_their_pass_is_in_no_pair() {
    for (setting, what) in
        [("FAKE_CUPTI_DROP", "1 dropped"), ("FAKE_CUPTI_UNTIMED", "1 without times")]
    {
        let of = with_cupti(&[(setting, "500")]);
        assert!(text(&of("CUPTI's records")).contains(what), "{}", of("CUPTI's records"));
        let agreement = of("agreement with CUPTI's records");
        assert_eq!(agreement["ok"], true, "{agreement}");
        assert!(text(&agreement).contains("1 of 40 passes lack"), "{agreement}");
    }
}

#[test]
fn without_cupti_its_check_is_not_measured_and_says_why() {
    let library = fake_cuda::cupti();
    for (settings, why) in [
        (&[("BRICKSCOPE_CUPTI", "/no/such/file.so")][..], "can't be loaded"),
        (&[("BRICKSCOPE_CUPTI", &library), ("FAKE_CUPTI_VERSION", "140000")], "version 140000"),
        (&[("BRICKSCOPE_CUPTI", &library), ("FAKE_CUPTI_REFUSE", "39")], "MULTIPLE_SUBSCRIBERS"),
    ] {
        let output = selftest(&["--json"], settings);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut checks = json["checks"].as_array().expect("a list").iter();
        let check = checks.find(|check| check["name"] == "agreement with CUPTI's records");
        let check = check.expect("it is there");
        assert!(check["ok"].is_null(), "{check}");
        assert!(text(check).starts_with("not measured: "), "{check}");
        assert!(text(check).contains(why), "{check}");
    }
}

#[test]
fn a_profile_does_without_cupti() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let (out, log) = (dir.path().join("run"), dir.path().join("calls"));
    let args = ["--backend", "cuda", "--prompt", "Hi", "--out", out.to_str().expect("a path")];
    let library = fake_cuda::cupti();
    let settings =
        [("BRICKSCOPE_CUPTI", &*library), ("FAKE_CUDA_LOG", log.to_str().expect("a path"))];
    let output = brickscope("profile", &args, &settings);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let calls = std::fs::read_to_string(&log).expect("the driver writes it");
    assert!(calls.contains("cuGraphLaunch") && !calls.contains("cupti"), "{calls}");
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
