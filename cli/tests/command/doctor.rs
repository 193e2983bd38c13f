//! `brickscope doctor` on the machine that runs the tests.

use brickscope_testing::command::{brickscope, run, text};
use serde_json::Value;

#[test]
fn every_cross_has_a_fix_and_no_tick_has_one() {
    let output = run(&mut brickscope(&["doctor", "--json"]));
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = findings.as_array().expect("an array");
    let mut names = Vec::new();
    for finding in findings {
        let ok = finding["ok"].as_bool().expect("a verdict");
        let fix = finding["fix"].as_str();
        assert_eq!(ok, fix.is_none(), "{finding}");
        assert!(fix.is_none_or(|fix| !fix.is_empty()), "{finding}");
        assert!(!finding["found"].as_str().expect("words").is_empty(), "{finding}");
        names.push(finding["name"].as_str().expect("a name"));
    }
    for name in [
        "tsc",
        "clock",
        "counters",
        "sampling",
        "simd",
        "huge pages",
        "cpu limit",
        "other load",
        "frequency",
        "wgpu",
        "cuda",
        "defaults",
    ] {
        assert_eq!(names.iter().filter(|&&has| has == name).count(), 1, "{name} in {names:?}");
    }
}

#[test]
fn the_text_fits_80_columns_and_is_plain_in_a_pipe() {
    let output = run(brickscope(&["doctor"]).env("TERM", "xterm-256color").env_remove("NO_COLOR"));
    let text = text(&output.stdout);
    assert!(!text.contains('\x1b'), "{text}");
    let (mut crosses, mut fixes) = (0, 0);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(line.starts_with("✓ ") || line.starts_with("✗ ") || line.starts_with("    "));
        crosses += usize::from(line.starts_with('✗'));
        fixes += usize::from(line.trim_start().starts_with("fix: "));
    }
    assert!(text.lines().count() >= 11);
    assert_eq!(crosses, fixes, "{text}");
}

#[test]
fn help_has_an_example_and_says_that_crosses_are_no_failure() {
    let output = run(&mut brickscope(&["doctor", "--help"]));
    let help = text(&output.stdout);
    assert!(help.contains("brickscope doctor --json"), "{help}");
    assert!(help.contains("exit code is 0"), "{help}");
}
