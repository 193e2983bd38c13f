//! Any text gives a consistent profile, with or without passes, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::chrome;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| chrome::run(text));
