//! Profiles as files of other programs, and files of other programs as profiles. Nothing here measures.
//!
//! | folder | contents |
//! |---|---|
//! | `export/` | flamegraphs, timelines, tables and metrics: `chrome.rs`, `perfetto/`, `prometheus.rs`, `folded.rs` … |
//! | `import/` | `llama_bench.rs`, `chrome.rs` …; `kineto/` traces of PyTorch; `ranks/` those of several ranks; `nccl_inspector/` NCCL's Inspector; `forward_pass/` SGLang's and Dynamo's records of passes; `rocprof/` rocprofv3; `sqlite/` Nsight Systems, rocpd |
#![forbid(unsafe_code)]

pub mod export;
pub mod import;
