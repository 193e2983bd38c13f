//! Replays the corpus of the fuzz target of this package, by the target's own code.

#[path = "../../fuzz/bodies/nodes.rs"]
mod nodes;

use std::fs;
use std::path::Path;

#[test]
fn whatever_was_recorded_is_passes_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/nodes");
    let files: Vec<_> = fs::read_dir(folder)
        .expect("the corpus")
        .map(|file| file.expect("a file").path())
        .collect();
    assert!(files.len() >= 5, "{files:?} are left of the corpus");
    for file in files {
        let bytes = fs::read(&file).expect("it can be read");
        nodes::run(&bytes);
        for nth in 1..8 {
            nodes::run(&bytes[..bytes.len() * nth / 8]);
        }
    }
}
