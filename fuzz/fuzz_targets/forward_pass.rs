//! Any text gives a consistent profile, as of records of forward passes, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::forward_pass;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| forward_pass::run(text));
