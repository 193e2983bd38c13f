//! Any text gives stacks, which every exporter writes and which survive a round trip, or a readable error.

use std::path::Path;

use brickscope_analysis::stacks::{Level, Stacks};
use brickscope_formats::export::{folded, speedscope};

/// Each stack's names and weight.
fn named(stacks: &Stacks) -> Vec<(Vec<&str>, u64)> {
    let names = |stack| stacks.frames_of(stack).map(|frame| frame.name.as_str()).collect();
    stacks.iter().map(|stack| (names(stack), stack.weight)).collect()
}

/// Panics if that is not so.
pub fn run(text: &str) {
    let path = Path::new("fuzz.folded");
    match folded::read(text, path) {
        Ok(stacks) => {
            let _ = (stacks.by_class(), stacks.inclusive(Level::Function));
            let mut written = Vec::new();
            folded::write(&stacks, &mut written).expect("there is a stack with frames");
            let written = String::from_utf8(written).expect("text");
            let back = folded::read(&written, path).expect("it was written");
            assert_eq!(named(&back), named(&stacks));
            speedscope::write(&stacks, text, &mut Vec::new()).expect("memory is written to");
        }
        Err(error) => assert!(error.to_string().contains("fuzz.folded")),
    }
}
