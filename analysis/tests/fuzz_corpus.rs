//! Replays the corpus of each fuzz target that this package has the parser of, by the target's own code.

#[path = "../../fuzz/bodies/chrome.rs"]
mod chrome;
#[path = "../../fuzz/bodies/folded.rs"]
mod folded;
#[path = "../../fuzz/bodies/forged_receipt.rs"]
mod forged_receipt;
#[path = "../../fuzz/bodies/llama_bench.rs"]
mod llama_bench;
#[path = "../../fuzz/bodies/profile.rs"]
mod profile;
#[path = "../../fuzz/bodies/receipt.rs"]
mod receipt;
#[path = "../../fuzz/bodies/run_folder.rs"]
mod run_folder;
#[path = "../../fuzz/bodies/vk_perf_logger.rs"]
mod vk_perf_logger;

use std::fs;
use std::path::Path;

/// Calls `run` with each file of a folder, and with each of its first parts and some of its bytes changed.
fn replay(folder: &str, least: usize, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let files = fs::read_dir(folder).expect("the corpus is in the repository");
    let files: Vec<_> = files.map(|entry| entry.expect("a file").path()).collect();
    assert!(files.len() >= least, "{files:?} are left of the corpus");
    for file in files {
        let bytes = fs::read(&file).expect("it can be read");
        run(&bytes);
        for nth in 1..16_usize {
            run(&bytes[..bytes.len() * nth / 16]);
            let mut changed = bytes.clone();
            for at in (nth..changed.len()).step_by(997) {
                changed[at] = changed[at].wrapping_add(nth as u8);
            }
            run(&changed);
        }
    }
}

fn with_text(run: impl Fn(&str)) -> impl Fn(&[u8]) {
    move |bytes| run(&String::from_utf8_lossy(bytes))
}

#[test]
fn any_profile_can_be_shown_or_is_refused() {
    replay("fuzz/corpus/profile", 1, with_text(profile::run));
}

#[test]
fn any_receipt_has_a_verdict() {
    replay("fuzz/corpus/receipt", 12, receipt::run);
}

#[test]
fn any_forged_and_sealed_receipt_has_a_verdict_and_no_number_out_of_its_range() {
    replay("fuzz/corpus/forged_receipt", 8, forged_receipt::run);
}

#[test]
fn the_files_of_any_two_runs_can_be_shown_and_compared_or_are_refused() {
    replay("fuzz/corpus/run_folder", 3, with_text(run_folder::run));
}

#[test]
fn any_file_of_another_program_is_imported_or_refused() {
    replay("fuzz/corpus/folded", 3, with_text(folded::run));
    for run in [chrome::run, llama_bench::run, vk_perf_logger::run] {
        replay("analysis/tests/import/data", 4, with_text(run));
    }
}
