//! Sampling, and reading what was sampled, as its users do.

mod perf;
#[cfg(target_arch = "x86_64")]
mod perf_data;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod sampling;
mod unwind;
