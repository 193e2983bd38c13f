//! Any bytes give a verdict with readable sentences.
#![no_main]

use brickscope_fuzz_bodies::receipt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| receipt::run(bytes));
