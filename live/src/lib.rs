//! The companion of `brickscope` for engines that somebody wants to watch while they run. The library
//! itself does no I/O; this package does: pictures over a local socket for `brickscope top`, and metrics
//! over HTTP. Both are functions of [`BrickProfiler::snapshot`](brickscope::BrickProfiler::snapshot),
//! taken on a thread of their own.

pub mod metrics;
pub mod socket;

/// The page about it, so that its example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/live.md")]
struct Page;
