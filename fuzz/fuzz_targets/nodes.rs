//! Any bytes are a recording of llama.cpp's nodes that can be recorded as passes, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::nodes;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nodes::run(bytes));
