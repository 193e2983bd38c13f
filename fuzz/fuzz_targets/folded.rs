//! Any text gives stacks, which every exporter writes and which survive a round trip, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::folded;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| folded::run(text));
