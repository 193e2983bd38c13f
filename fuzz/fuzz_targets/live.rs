//! Any bytes from a publisher give frames that can be shown, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::live;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| live::run(bytes));
