//! The files of any two runs can be shown, exported and compared, or are refused readably.
#![no_main]

use brickscope_fuzz_bodies::run_folder;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| run_folder::run(text));
