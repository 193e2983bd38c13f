//! The subcommands, one a file.

mod again;
pub(crate) mod benchmark;
mod benchmark_set;
pub(crate) mod bisect;
pub(crate) mod check_overhead;
mod check_overhead_set;
pub(crate) mod collect;
pub(crate) mod compare;
pub(crate) mod compare_backends;
pub(crate) mod completions;
pub(crate) mod diverge;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod findings;
pub(crate) mod flamegraph;
pub(crate) mod gate;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod lake;
mod limits;
pub(crate) mod logits;
pub(crate) mod machine;
pub(crate) mod man;
pub(crate) mod profile;
pub(crate) mod receipt;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod selftest;
pub(crate) mod show;
pub(crate) mod synth;
pub(crate) mod tokenize;
pub(crate) mod top;
#[cfg(feature = "top")]
mod top_view;
pub(crate) mod trial;
pub(crate) mod verify_receipt;
