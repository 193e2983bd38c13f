//! Recordings of programs that know nothing of it: `brickscope run` loads the library in `preload/` into an unmodified
//! program, which writes a file; here it is read, and made a profile.
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `format.rs` | the file, as writer and reader have it |
//! | `chosen.rs` | which experts were chosen, likewise |
//! | `events.rs` | what a recording has, as plain data |
//! | `read.rs` | from a file to that |
//! | `passes.rs` | passes with their graphs, and how threads waited for a CPU |
//! | `days/` | the same of a file that is still written: passes are summed, and some of them kept; `trigger.rs` those around what takes too long, and `served/` does that to requests |
//! | `part.rs` | the sums of all passes, where only some are there |
//! | `groups.rs` | which passes belong together: those of one model in one context |
//! | `replay/` | from a group to a profile: `graphs.rs` a pass and its spans, `phase.rs` its phase, `warm_up.rs` what warms up and `judge.rs` the same one by one, `turns.rs` passes in turns, with and without their nodes timed, `experts.rs` which experts ran |
//! | `requests.rs` | which sequences of llama.cpp are which requests of a server, at once or bit by bit |
//! | `unnamed.rs` | names of weights, from the file of the model |
//! | `program.rs` | whether a program can be recorded, and why nothing was |

#[allow(dead_code, reason = "each side uses its half")]
mod chosen;
mod days;
mod events;
#[allow(dead_code, reason = "each side uses its half")]
mod format;
mod groups;
mod part;
mod passes;
mod program;
mod read;
mod replay;
mod requests;
mod unnamed;

pub use chosen::{Chosen, Unread};
pub use days::Days;
pub use events::{
    Asked, Context, Event, Graph, Library, Load, Model, Pass, Recorded, SentPiece, ThreadLoad,
    ThreadShares,
};
pub use groups::{Group, groups};
pub use part::Part;
pub use program::{Loaded, Program, nothing};
pub use read::FileError;
pub use replay::{Replayed, lacks, replay};
pub use unnamed::{Files, name_weights};

/// The library that is loaded into programs, compiled from `preload/`; empty on systems that it can't be compiled for.
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libbrickscope_preload.so"));

/// Names the folder that the library writes to, in the environment of a program.
pub const FOLDER: &str = format::FOLDER;

/// Set in the environment of a program whose threads' shares are to be recorded.
pub const SHARES: &str = format::SHARES;

/// Set in the environment of a program of which only every other pass is to be looked at.
pub const TURNS: &str = format::TURNS;

/// Set in the environment of a program of which those that it starts are to be recorded, too.
pub const FOLLOW: &str = format::FOLLOW;

/// Set in the environment of a program whose recording is [read while it runs](Days).
pub const ENDLESS: &str = format::ENDLESS;

/// The bytes that the library writes at most, in one file; of one that is read while it runs, those that aren't read yet.
pub const MOST: u64 = format::MOST as u64;
