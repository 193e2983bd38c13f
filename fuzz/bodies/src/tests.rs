//! Replays the corpus of each fuzz target, by the target's own code.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The files of a folder of the repository.
fn files(folder: &str, least: usize) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let files = fs::read_dir(folder).expect("the corpus is in the repository");
    let files: Vec<_> = files.map(|entry| entry.expect("a file").path()).collect();
    assert!(files.len() >= least, "{files:?} are left of the corpus");
    files
}

/// Calls `run` with each file of a folder, and with each of its first parts and some of its bytes changed.
fn replay(folder: &str, least: usize, run: impl Fn(&[u8])) {
    for file in files(folder, least) {
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
    for run in [
        chrome::run,
        forward_pass::run,
        llama_bench::run,
        nccl_inspector::run,
        rocprof::run,
        vk_perf_logger::run,
    ] {
        replay("tests/data/import", 4, with_text(run));
    }
}

#[test]
fn any_trace_of_requests_is_a_plan_or_is_refused() {
    replay("fuzz/corpus/load_trace", 3, with_text(load_trace::run));
}

#[cfg(unix)]
#[test]
fn whatever_a_publisher_sends_is_shown_or_refused() {
    replay("fuzz/corpus/live", 2, live::run);
}

#[cfg(unix)]
#[test]
fn whatever_a_client_sends_the_next_one_is_served() {
    replay("fuzz/corpus/sockets", 8, sockets::run);
}

#[test]
fn whatever_was_recorded_is_passes_or_refused() {
    replay("fuzz/corpus/nodes", 5, nodes::run);
}

#[test]
fn any_model_of_whisper_is_read_or_refused() {
    replay("fuzz/corpus/whisper", 2, whisper::run);
}

#[test]
fn any_recording_is_read_or_refused() {
    replay("fuzz/corpus/perf_data", 1, perf_data::run);
}

/// Each file's name says what is in it. When the fuzzer finds a new one, its smallest form goes there, under such a
/// name.
#[test]
fn ok_files_read_and_all_others_are_refused() {
    for path in files("fuzz/corpus/gguf", 40) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let read =
            brickscope_engine::gguf::parse(&fs::read(&path).expect("a file"), Path::new(name));
        match read {
            Ok(_) => assert!(name.starts_with("ok-"), "{name} should be refused, but reads"),
            Err(error) => assert!(!name.starts_with("ok-"), "{error}"),
        }
    }
}
