//! Any bytes give a model or a readable error.
#![no_main]

use brickscope_fuzz_bodies::gguf;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| gguf::run(bytes));
