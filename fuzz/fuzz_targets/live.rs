//! Any bytes from a publisher give frames that can be shown, or a readable error.
#![no_main]

#[path = "../bodies/live.rs"]
mod live;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| live::run(bytes));
