//! Any text gives a consistent profile, as of rocprofv3, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::rocprof;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| rocprof::run(text));
