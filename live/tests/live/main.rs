//! The live view, and metrics over HTTP, as their users have them.

mod metrics;
#[cfg(unix)]
mod socket;
