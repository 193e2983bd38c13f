//! Any bytes give a verdict with readable sentences.
#![no_main]

#[path = "../bodies/receipt.rs"]
mod receipt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| receipt::run(bytes));
