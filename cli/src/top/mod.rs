//! The loop of the live view: where its events come from, and the terminal. `brickscope-top` has the view itself.
//!
//! `engine.rs` starts our own engine to watch; `session.rs` reads frames, keys and the system's data on the engine's
//! process.

pub(crate) mod engine;
pub(crate) mod session;
