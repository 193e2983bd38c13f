//! The live view of a running engine.
//!
//! `engine.rs` starts our own engine to watch. `snapshot.rs` turns frames into snapshots, `process.rs`
//! reads the system's data on the engine's process, and `numbers.rs` has the figures for scripts. `app.rs`
//! is the state of the view and `draw/` its screens; neither touches the terminal, which is in
//! `session.rs`.

pub(crate) mod app;
pub(crate) mod draw;
pub(crate) mod engine;
pub(crate) mod numbers;
pub(crate) mod process;
pub(crate) mod session;
pub(crate) mod snapshot;
