//! The probes of `brickscope doctor`, one capability per file.

mod clock;
mod cpu;
mod cuda;
mod load;
mod perf;
mod shown;
#[cfg(feature = "wgpu")]
mod vulkan;

use serde::Serialize;

pub(crate) use self::shown::text;

/// A capability, whether it is available, and the fix if it isn't.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    /// The result, in words.
    pub(crate) found: String,
    /// The fix, if it isn't ok: a command to run, or a sentence.
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
    // The load comes first, before the probes cause some themselves.
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
        #[cfg(feature = "wgpu")]
        vulkan::devices(),
        #[cfg(not(feature = "wgpu"))]
        Finding::bad(
            "wgpu",
            "this brickscope was built without it",
            "cargo install --path cli --profile dist --features full,wgpu",
        ),
    ]
}
