//! Sentences that readers stumbled over don't come back, in code, help, output or documentation.

use std::fs;
use std::path::{Path, PathBuf};

/// Each with what is said now.
const STILTED: [(&str, &str); 13] = [
    ("with the linker that it needs itself", "and a C linker"),
    ("a second witness of them", "CUPTI's timings, an optional cross-check"),
    ("one that is told afterwards", "timestamps that are labelled after the pass"),
    ("if all is as it mostly is", "the fast path"),
    ("And the second time.", "Also `None` on a second call for the same pass."),
    ("who wants sums only", "the limit when only sums are kept"),
    ("nothing is known of what came of it", "Best effort"),
    ("processes nobody runs", "More processes than this counts as infeasible."),
    ("slows down nobody but himself", "colliding names slow only their own process"),
    ("say less of the model than of that", "excluded below"),
    ("of what this machine read in a test", "of measured memory bandwidth"),
    ("neither: below 60 % of both roofs", "neither: under 60 % of both limits"),
    ("nobody stated FLOPs", "no FLOP count; bandwidth only"),
];

fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                texts(&path, found);
            }
        } else if [".rs", ".md", ".html", ".snap"].iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

#[test]
fn no_sentence_needs_a_second_reading_again() {
    let root = brickscope_testing::root();
    let mut files = Vec::new();
    texts(root, &mut files);
    assert!(files.len() > 300, "{} files", files.len());
    for file in files.iter().filter(|file| !file.ends_with("tests/recorder/wording.rs")) {
        let text = fs::read_to_string(file).expect("UTF-8").replace("\n", " ");
        for (stilted, better) in STILTED {
            assert!(!text.contains(stilted), "{}: {stilted:?}; better: {better:?}", file.display());
        }
    }
}
