//! Any bytes are a recording of llama.cpp's nodes, of which profiles can be made, or a readable error.

use std::path::Path;

use brickscope::BrickProfiler;
use brickscope_llama::recording::{Recorded, groups, lacks, replay};

/// Panics if that is not so.
pub fn run(bytes: &[u8]) {
    let recorded = match Recorded::read(bytes, Path::new("1.nodes")) {
        Ok(recorded) => recorded,
        Err(error) => {
            assert!(error.to_string().starts_with("1.nodes, byte "), "{error}");
            return;
        }
    };
    let _ = lacks(&recorded);
    let groups = groups(&recorded);
    for group in &groups {
        let _ = group.name(&groups, None);
        let replayed = replay(&recorded, group, BrickProfiler::enabled());
        assert_eq!(replayed.profile.check(), Ok(()));
    }
}
