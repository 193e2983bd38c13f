//! The companion of `brickscope` for engines that somebody wants to watch while they run. The library
//! itself does no I/O; this package does: pictures over a local socket for `brickscope top`, and metrics
//! over HTTP. Both are functions of [`BrickProfiler::snapshot`](brickscope::BrickProfiler::snapshot),
//! taken on a thread of their own.

pub mod metrics;
pub mod socket;

/// Pages whose examples are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../docs/live.md")]
    struct Live;
    #[doc = include_str!("../../docs/metrics.md")]
    struct Metrics;
}
