//! Any text gives a profile that every view can show, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::profile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| profile::run(text));
