//! `brickscope profile` as a newcomer runs it.

use std::path::Path;

use brickscope::{Pass, Phase, Profile};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{adds_up, as_asked, run, text};
use brickscope_testing::patience::{skipped, tries};

/// The share of these passes' time that no brick explains.
fn unattributed<'p>(passes: impl Iterator<Item = &'p Pass>) -> f64 {
    let (unattributed, wall) = passes.fold((0, 0), |(unattributed, wall), pass| {
        (unattributed + pass.unattributed_ns, wall + pass.wall_ns)
    });
    unattributed as f64 / wall as f64
}

/// Asserts that all but two percent of decoding is explained. While a thread waits for a CPU between two bricks, nothing
/// explains that: if all passes together have more, it is asserted of those that nobody disturbed.
fn almost_all_is_explained(first: &Path, mut run_again: impl FnMut(usize) -> Profile) {
    let mut profile = Profile::load(first).expect("a profile");
    let mut n = 0;
    for nth in tries() {
        let decoded = || profile.passes.iter().filter(|pass| pass.phase == Phase::Decode);
        let share = unattributed(decoded());
        if share <= 0.02 {
            return;
        }
        let quiet = || decoded().filter(|p| p.disturbance.is_some() && !p.is_disturbed());
        n = quiet().count();
        if n >= 10 {
            let share = unattributed(quiet());
            assert!(share <= 0.02, "{:.2} % of decoding is unattributed", 100.0 * share);
            return;
        }
        profile = run_again(24 << (nth + 1).min(2));
    }
    skipped(&format!("others disturbed all but {n} passes, so what is unattributed may be theirs"));
}

#[test]
fn without_a_model_one_is_made_and_all_but_two_percent_of_decoding_is_explained() {
    let _alone = crate::alone();
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    let mut command = as_asked(&["profile", "--full", "--tokens", "24", "--out"]);
    let cache = dir.path().join("cache");
    command.arg(&out).env("BRICKSCOPE_CACHE", &cache);
    let output = run(&mut command);
    let report = text(&output.stdout);
    for part in [
        "Decode ",
        "brickscope-synth-110m, llama, q8_0, 12 layers, 109.5 M weights",
        "random weights: the timings are real, the text is noise",
        "Prefill: ",
        // Without those of disturbed passes.
        " tokens token by token, ",
        "QkvProjection",
        "unattributed",
        "100.0%",
        "Category       Avg (µs)      Pct    Samples",
        "One decode pass on the host: ",
        "└── Sampling",
        "Roofline: ",
        "Critical path",
        "overhead  ",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    assert!(text(&output.stderr).is_empty(), "no bar when nobody watches");
    for line in report.lines() {
        assert!(line.chars().count() <= 80 || line.contains(" in "), "{line}");
    }

    let json = std::fs::read_to_string(out.join("profile.json")).expect("the run was written");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    adds_up(&json);
    let decode = &json["phases"][1];
    assert_eq!(decode["phase"], "decode");
    let mut count = 0;
    almost_all_is_explained(&out.join("profile.json"), |tokens| {
        count += 1;
        let out = dir.path().join(format!("again-{count}"));
        let mut command = as_asked(&["profile", "--tokens", &tokens.to_string(), "--out"]);
        run(command.arg(&out).env("BRICKSCOPE_CACHE", &cache));
        Profile::load(&out.join("profile.json")).expect("a profile")
    });
    assert_eq!(json["dropped"]["spans"], 0);
    assert_eq!(json["model"]["synthetic"], true);

    // The model is made once.
    let made = || {
        let entries = std::fs::read_dir(&cache).expect("the cache folder");
        let mut models = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
        let path = models.next().expect("the model");
        assert!(models.next().is_none());
        let modified = std::fs::metadata(&path).expect("metadata").modified().expect("a time");
        (path, modified)
    };
    let before = made();
    let mut again = as_asked(&["profile", "--tokens", "1", "--out"]);
    run(again.arg(dir.path().join("again")).env("BRICKSCOPE_CACHE", &cache));
    assert_eq!(made(), before);
}
