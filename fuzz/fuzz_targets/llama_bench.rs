//! Any text gives a consistent profile, as from llama-bench, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::llama_bench;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| llama_bench::run(text));
