//! What this machine offers to a profiler, probed one capability a file.

mod clock;
mod cpu;
mod cuda;
mod load;
mod perf;
mod vulkan;

use serde::Serialize;

/// A capability, whether it is there, and what to do if it isn't.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    /// What was found, in words.
    pub(crate) found: String,
    /// What to do, if it isn't ok: a command to run, or a sentence.
    pub(crate) fix: Option<String>,
}

impl Finding {
    pub(crate) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, ok: true, found: found.into(), fix: None }
    }

    pub(crate) fn bad(
        name: &'static str,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name, ok: false, found: found.into(), fix: Some(fix.into()) }
    }
}

/// Probes everything, in about half a second.
pub(crate) fn examine() -> Vec<Finding> {
    // First the load, before the probes make some themselves.
    let load = load::others();
    vec![
        load,
        clock::counter(),
        clock::resolution(),
        perf::counters(),
        perf::sampling(),
        cpu::simd(),
        cpu::huge_pages(),
        cpu::limit(),
        cpu::governor(),
        cuda::devices(),
        vulkan::devices(),
    ]
}
