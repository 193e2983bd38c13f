//! The probes of `brickscope doctor`, one capability per file.

mod clock;
mod cpu;
mod cuda;
mod load;
mod perf;
mod shown;
#[cfg(feature = "wgpu")]
mod vulkan;

use brickscope_runs::settings;
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

/// The user's file of defaults, and what it says.
fn defaults() -> Finding {
    let settings = settings::current();
    let found = match &settings.file {
        None => format!(
            "no {} here, in a folder above or in ~/.config/brickscope: flags have their own",
            settings::FILE
        ),
        Some(file) if settings.lines().is_empty() => format!("{} says none", file.display()),
        Some(file) => format!("{}: {}", file.display(), settings.lines().join(", ")),
    };
    let lake = std::env::var("BRICKSCOPE_LAKE").ok().filter(|lake| !lake.is_empty());
    let lake = lake.map(|lake| format!("; BRICKSCOPE_LAKE wins: {lake}")).unwrap_or_default();
    Finding::good("defaults", found + &lake)
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
        #[cfg(feature = "flamegraph")]
        perf::sampling(),
        #[cfg(not(feature = "flamegraph"))]
        Finding::bad(
            "sampling",
            "this brickscope was built without it",
            "cargo install --path cli --profile dist --features full",
        ),
        cpu::simd(),
        cpu::huge_pages(),
        cpu::limit(),
        cpu::governor(),
        cuda::devices(),
        defaults(),
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
