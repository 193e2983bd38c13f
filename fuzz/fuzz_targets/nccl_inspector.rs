//! Any text gives a consistent profile, as of NCCL's Inspector, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::nccl_inspector;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| nccl_inspector::run(text));
