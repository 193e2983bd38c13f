//! Forged and sealed receipts get a verdict with readable sentences, and none is accepted with a number out of range.
#![no_main]

use brickscope_fuzz_bodies::forged_receipt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| forged_receipt::run(bytes));
