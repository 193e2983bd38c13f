//! Replays the corpus of the fuzz target of `perf.data` files, by the target's own code.

#[path = "../../fuzz/bodies/perf_data.rs"]
mod perf_data;

use std::fs;
use std::path::Path;

#[test]
fn any_recording_is_read_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/perf_data");
    let files = fs::read_dir(folder).expect("the corpus is in the repository");
    let files: Vec<_> = files.map(|entry| entry.expect("a file").path()).collect();
    assert!(!files.is_empty(), "nothing is left of the corpus");
    for file in files {
        let bytes = fs::read(&file).expect("it can be read");
        perf_data::run(&bytes);
        for nth in 1..16 {
            perf_data::run(&bytes[..bytes.len() * nth / 16]);
        }
    }
}
