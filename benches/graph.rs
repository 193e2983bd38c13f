//! `cargo bench --bench graph`: what building and analysing an execution graph costs, a million and
//! ten million nodes, and beside the predecessor's.
//!
//! The program is in a package of its own, `peers/`; this target builds and runs it.

#[path = "peers/launch.rs"]
mod launch;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Nothing in it needs Tracy.
    launch::run("graph", &["--no-default-features"])
}
