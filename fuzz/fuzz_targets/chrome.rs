//! Any text gives a consistent profile, with or without passes, or a readable error.
#![no_main]

#[path = "../bodies/chrome.rs"]
mod chrome;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| chrome::run(text));
