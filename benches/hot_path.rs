//! `cargo bench --bench hot_path`: what a span costs here, beside the bare counter and beside other
//! profilers.
//!
//! The program is in a package of its own, `peers/`, so that nobody else compiles the peers; this target
//! builds and runs it.
//!
//! - `-- --quick` takes a tenth of the rounds;
//! - `-- --json` prints the table as JSON;
//! - `-- --check` exits with 1 if a target is missed.

#[path = "peers/launch.rs"]
mod launch;

use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let mut features: &[&str] = &[];
    if !has_cxx() {
        eprintln!("no C++ compiler `c++` here: the row of Tracy, which needs one, is left out");
        features = &["--no-default-features"];
    }
    launch::run("hot_path", features)
}

fn has_cxx() -> bool {
    let quiet =
        Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}
