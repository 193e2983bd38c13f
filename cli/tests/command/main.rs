//! The command, as its users run it.

mod attack;
mod bad_input;
mod benchmark;
mod bisect;
mod check_overhead;
mod closed_pipe;
mod compare;
mod compare_backends;
mod cuda;
mod diverge;
mod doctor;
mod explain;
mod export;
mod findings;
mod flamegraph;
mod history;
mod honest;
mod hostile_names;
mod import;
#[cfg(feature = "top")]
mod interrupt;
mod kill;
#[cfg(feature = "parquet")]
mod lake;
mod machine;
mod main_job;
mod man;
mod metrics;
mod no_end;
mod not_finite;
#[cfg(feature = "otlp")]
mod otlp;
mod profile;
mod receipt;
mod report;
mod rescue;
mod roofline;
mod run;
mod show;
#[cfg(feature = "top")]
mod top;
mod trial;
#[cfg(feature = "wgpu")]
mod wgpu;
mod without;
