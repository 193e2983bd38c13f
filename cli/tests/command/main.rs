//! The command, as its users run it. What depends on how fast it runs is in `timed`.

mod attack;
mod bad_input;
mod benchmark;
mod bisect;
mod closed_pipe;
mod compare;
mod compare_backends;
mod cuda;
mod diverge;
mod doctor;
mod explain;
mod export;
mod findings;
mod history;
mod hostile_names;
mod import;
mod kill;
#[cfg(feature = "parquet")]
mod lake;
#[cfg(feature = "load")]
mod load;
mod man;
mod metrics;
mod names;
mod no_end;
mod not_finite;
#[cfg(feature = "otlp")]
mod otlp;
mod profile;
mod receipt;
mod report;
mod requests;
mod rescue;
mod run;
mod serve;
mod settings;
mod show;
mod trial;
mod tutorial;
mod versus;
#[cfg(feature = "wgpu")]
mod wgpu;
mod without;
