//! What each fuzz target checks: `run` panics if an input is treated wrongly. The tests replay `fuzz/corpus`.

pub mod chrome;
pub mod folded;
pub mod forged_receipt;
pub mod forward_pass;
pub mod gguf;
#[cfg(unix)]
pub mod live;
pub mod llama_bench;
pub mod load_trace;
pub mod nccl_inspector;
pub mod nodes;
pub mod perf_data;
pub mod profile;
pub mod receipt;
pub mod rocprof;
pub mod run_folder;
#[cfg(unix)]
pub mod sockets;
pub mod vk_perf_logger;
pub mod whisper;

#[cfg(test)]
mod tests;
