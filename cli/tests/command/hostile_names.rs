//! Files and folders may be called anything, and none of it reaches the terminal unescaped.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};

use brickscope::{BrickId, BrickProfiler, MockClock, Phase};
use tempfile::TempDir;

use brickscope_testing::command::{self, brickscope};
use brickscope_testing::hostile::{assert_harmless, forbidden};
use brickscope_testing::made::Made;

/// A name that a file can have, which clears the screen, sets the title, forges lines, and turns the text.
const NAME: &str = "x\nFORGED\rFORGED\t\u{1b}[2J\u{1b}]0;t\u{7}\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{2028}FORGED\u{feff}y";

/// Runs the command, checks what it prints, and returns its exit code and both outputs.
#[track_caller]
fn seen(args: &[&str]) -> (i32, String, String) {
    let output = brickscope(args).output().expect("the command starts");
    let code = output.status.code().expect("it isn't killed");
    let [out, said] = [&output.stdout, &output.stderr].map(|bytes| command::text(bytes).to_owned());
    let what = format!(
        "{:?}, {:?}",
        args.first(),
        args.iter().filter(|arg| arg.starts_with('-')).collect::<Vec<_>>()
    );
    if out.starts_with(['{', '[']) {
        assert_eq!(forbidden(&out), None, "{what}");
        serde_json::from_str::<serde_json::Value>(&out).expect("JSON");
    } else {
        assert_harmless(&what, &out.replace("\r\n", "\n").replace('\u{fe0f}', ""));
    }
    // A note may have several lines, of which only the first begins at the margin.
    assert!(said.lines().all(|line| !line.starts_with("FORGED")), "{what}: {said}");
    assert_harmless(&what, &said.replace("\n  ", " "));
    assert!(!said.contains("panicked"), "{said}");
    (code, out, said)
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A run in a folder with that name.
fn run_in(dir: &Path) -> PathBuf {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..3 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(1_000);
        profiler.stop_brick(timer, 1);
        profiler.end_pass(pass, 1, position);
    }
    let run = dir.join(NAME);
    fs::create_dir_all(&run).expect("it is made");
    profiler.profile().save(&run.join("profile.json")).expect("it is written");
    run
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

#[test]
fn a_run_in_a_folder_of_any_name_is_shown_exported_reported_and_compared() {
    let dir = folder();
    let run = run_in(dir.path());
    let run = utf8(&run);
    for view in ["report", "tree", "kernels", "path", "roofline", "json", "graph-json", "dot"] {
        assert_eq!(seen(&["show", run, "--as", view]).0, 0, "{view}");
    }
    for format in ["csv", "folded", "chrome"] {
        let (code, printed, _) = seen(&["export", run, "--format", format]);
        assert!(code == 0 && printed.contains("FORGED\\r"), "{printed}");
    }
    for flags in [&[][..], &["--json"]] {
        let (code, printed, _) = seen(&[&["report", run][..], flags].concat());
        assert!(code == 0 && printed.contains("FORGED\\r"), "{printed}");
    }
    for form in ["text", "md", "json", "bmf"] {
        let (code, printed, said) = seen(&["compare", run, run, "--force", "-o", form]);
        assert!(code == 2 || !printed.is_empty(), "{said}");
    }
    // What is missing, or is none, is named in an error of one line.
    let none = dir.path().join(format!("{NAME}2"));
    fs::write(&none, "no profile").expect("it is written");
    for file in [utf8(&none), &format!("{}3", utf8(&none))] {
        for command in
            ["show", "export", "report", "import", "history", "verify-receipt", "diverge"]
        {
            let format: &[&str] = if command == "export" { &["--format", "csv"] } else { &[] };
            let (code, printed, said) = seen(&[&[command, file][..], format].concat());
            assert!(code > 0 && (printed + &said).contains("FORGED"), "{command}: {said}");
        }
        let (code, _, said) = seen(&["compare", file, file]);
        assert!(code == 2 && said.contains("FORGED"), "{said}");
    }
}

#[test]
fn receipts_of_any_name_are_listed_compared_and_verified() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    for minute in 0..3 {
        let receipt = Made { when: (0, minute), ..Made::default() }.receipt();
        let folder = at(&format!("{NAME}{minute}"));
        fs::create_dir_all(&folder).expect("it is made");
        receipt.sealed().expect("it can be").save(&folder.join("receipt.json")).expect("written");
    }
    fs::write(at(&format!("{NAME}.receipt.json")), "none").expect("it is written");
    fs::write(at(&format!("{NAME}.flamegraph.json")), "none").expect("it is written");
    for form in ["text", "md", "json", "csv", "svg"] {
        let (code, printed, said) = seen(&["history", utf8(dir.path()), "-o", form]);
        assert_eq!(code, 0, "{said}");
        assert!(format!("{printed}{said}").contains("FORGED"), "{form}: {printed} {said}");
    }
    let one = at(&format!("{NAME}0"));
    for flags in [&[][..], &["--json"]] {
        let (_, printed, _) = seen(&[&["verify-receipt", utf8(&one)][..], flags].concat());
        assert!(printed.contains("FORGED"), "{printed}");
    }
    let two = at(&format!("{NAME}1"));
    for form in ["text", "md", "json"] {
        let (_, printed, said) = seen(&["compare", utf8(&one), utf8(&two), "--force", "-o", form]);
        assert!(format!("{printed}{said}").contains("FORGED"), "{printed} {said}");
    }
    let key = at("key");
    seen(&["receipt", "keygen", utf8(&key)]);
    let (code, printed, said) = seen(&["receipt", "sign", utf8(&one), "--key", utf8(&key)]);
    assert!(code == 0 && printed.contains("FORGED"), "{printed} {said}");
}

#[test]
fn models_of_any_name_diverge_or_do_not() {
    let dir = folder();
    let model = dir.path().join(format!("{NAME}.gguf"));
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    fs::copy(models.join("tiny-Q8_0.gguf"), &model).expect("the fixture");
    for flags in [&[][..], &["--json"]] {
        let args = ["diverge", utf8(&model), "--b", "scalar", "--tokens", "1", "--ids", "1,2"];
        let (code, printed, said) = seen(&[&args[..], flags].concat());
        assert!(code == 0 && printed.contains("FORGED"), "{printed} {said}");
    }
}

#[test]
fn a_word_that_is_no_argument_is_quoted_without_what_it_controls() {
    for word in [format!("--{NAME}"), NAME.to_owned()] {
        let (code, _, said) = seen(&["show", "a", &word]);
        assert!(code == 2 && said.contains("Usage:"), "{said}");
    }
}
