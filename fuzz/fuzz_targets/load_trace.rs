//! Any text gives requests in the order in which they are due, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::load_trace;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| load_trace::run(text));
