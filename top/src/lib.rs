//! The live view of a running engine, without its terminal: events in, a screen of any size out.
//!
//! Figures are those that `brickscope show` has of the same run, by the same functions of `brickscope-analysis`. A
//! figure that isn't known is absent, with the reason.
//!
//! | file | contents |
//! |---|---|
//! | `look.rs` | what the terminal can show |
//! | `snapshot.rs` | frames completed to snapshots, and what happened between two of them |
//! | `history.rs` | how fast the engine was lately |
//! | `process.rs` | the system's data on the engine's process |
//! | `numbers.rs` | the figures for scripts |
//! | `app/` | the state of the view: events and keys in; rows of the tables out |
//! | `draw/` | its screens |
//! | `text.rs`, `figures.rs` | text and numbers |
#![forbid(unsafe_code)]

mod app;
mod draw;
mod figures;
mod history;
mod look;
mod numbers;
mod process;
mod snapshot;
mod text;

/// What draws on the terminal, and reads its keys.
pub use ratatui;

pub use crate::app::{App, Death, Event, State};
pub use crate::draw::{draw, text};
pub use crate::look::Look;
pub use crate::process::{Process, Reading};
