//! `cargo bench --bench graph`: the cost of building and analysing an execution graph with a million and with ten million
//! nodes, compared with brickscope's predecessor.
//!
//! The program is in a package of its own, `peers/`, which this target builds and runs.

#[path = "peers/launch.rs"]
mod launch;

use std::process::ExitCode;

fn main() -> ExitCode {
    // It doesn't need Tracy.
    launch::run("graph", &["--no-default-features"])
}
