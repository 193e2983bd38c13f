//! Any bytes are a model of whisper.cpp, another kind of file, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::whisper;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| whisper::run(bytes));
