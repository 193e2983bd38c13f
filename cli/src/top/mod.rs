//! The live view: what a running engine publishes, made into snapshots.
//!
//! `snapshot.rs` is what frames add up to, `process.rs` what the system says of the engine's process,
//! `numbers.rs` the figures for scripts; `app/` what keys and frames do to the view, which is all that
//! `draw/` needs: neither touches a terminal. `engine.rs` is an engine of our own to watch, `session.rs`
//! the terminal.

pub(crate) mod app;
pub(crate) mod draw;
pub(crate) mod engine;
pub(crate) mod numbers;
pub(crate) mod process;
pub(crate) mod session;
pub(crate) mod snapshot;
