//! `brickscope profile` as a newcomer runs it. In its own file, since tests of one file run in parallel
//! and would disturb its timings.

use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{adds_up, brickscope, run, text};

#[test]
fn without_a_model_one_is_made_and_all_but_two_percent_of_decoding_is_explained() {
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    let mut command = brickscope(&["profile", "--full", "--tokens", "24", "--out"]);
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
        "One decode pass: ",
        "└── Sampling",
        "Roofline: ",
        "Critical path",
        "overhead  ",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    assert!(text(&output.stderr).is_empty(), "no bar when nobody watches");
    assert!(report.lines().all(|line| line.chars().count() <= 80 || line.contains(" in ")));

    let json = std::fs::read_to_string(out.join("profile.json")).expect("the run was written");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    adds_up(&json);
    let decode = &json["phases"][1];
    assert_eq!(decode["phase"], "decode");
    let share = decode["unattributed_ns"].as_f64().expect("nanoseconds")
        / decode["wall_ns"].as_f64().expect("nanoseconds");
    assert!(share <= 0.02, "{:.2} % of decoding is unattributed", 100.0 * share);
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
    let mut again = brickscope(&["profile", "--tokens", "1", "--out"]);
    run(again.arg(dir.path().join("again")).env("BRICKSCOPE_CACHE", &cache));
    assert_eq!(made(), before);
}
