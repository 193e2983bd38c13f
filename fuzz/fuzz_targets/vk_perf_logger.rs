//! Any text gives a consistent profile, as from ggml's Vulkan backend, or a readable error.
#![no_main]

use brickscope_fuzz_bodies::vk_perf_logger;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| vk_perf_logger::run(text));
