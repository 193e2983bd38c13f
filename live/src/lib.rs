//! Watch an engine that is profiled with `brickscope` while it runs.
//!
//! The library `brickscope` does no I/O; this package does. It sends live views over a local socket to
//! `brickscope top`, serves metrics over HTTP, and pushes them to collectors. All take snapshots
//! ([`BrickProfiler::snapshot`](brickscope::BrickProfiler::snapshot)) on threads of their own.
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `metrics.rs` | Prometheus text over HTTP (`docs/export.md`) |
//! | `otlp/` | metrics, stacks and requests, pushed to an OpenTelemetry collector (feature `otlp`, `docs/export.md`) |
//! | `socket/frame.rs` | the messages of the protocol (`live/format.md`) |
//! | `socket/delta.rs` | frames as differences from a whole one |
//! | `socket/lines.rs` | lines of bounded length, and messages from them |
//! | `socket/path.rs` | where sockets lie |
//! | `socket/listen.rs` | making private sockets and removing stale ones |
//! | `socket/connect.rs` | finding the socket of a process |
//! | `socket/so_far.rs` | asking a recording for what it has kept so far |
//! | `socket/snapshotter.rs` | snapshots as frames, each made once for all watchers |
//! | `socket/publisher/` | the engine's side |
//! | `socket/watch.rs` | the watcher's side |
//! | `socket/unsupported.rs` | both sides on systems without Unix sockets |
//!
//! `tests/` runs publishers and servers with clients that behave and clients that don't. `cargo bench -p
//! brickscope-live --bench watching` measures what being watched costs an engine.

pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod socket;

/// Documentation pages whose examples are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../docs/live.md")]
    struct Live;
}
