//! Any bytes give a recording whose stacks lie within it, or an error.
#![no_main]

use brickscope_fuzz_bodies::perf_data;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| perf_data::run(bytes));
