//! `cargo bench --bench hot_path`: what a span costs here, beside the bare counter and beside other
//! profilers.
//!
//! The program is a package of its own in `hot_path/`, so that nobody else compiles the peers; this
//! target builds and runs it.
//!
//! - `-- --quick` takes a tenth of the rounds;
//! - `-- --json` prints the table as JSON;
//! - `-- --check` exits with 1 if a target is missed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        println!("nothing to test here: `cargo bench --bench hot_path` runs this");
        return ExitCode::SUCCESS;
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/hot_path");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&package).args(["run", "--release"]);
    cargo.arg("--target-dir").arg(target_dir());
    if !has_cxx() {
        eprintln!("no C++ compiler `c++` here: the row of Tracy, which needs one, is left out");
        cargo.arg("--no-default-features");
    }
    cargo.arg("--").args(args.iter().filter(|&arg| arg != "--bench"));
    match cargo.status() {
        Ok(status) => status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)),
        Err(error) => {
            eprintln!("can't run {cargo:?}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where this program was built: `target` of `target/release/deps/hot_path-…`, wherever that is.
fn target_dir() -> PathBuf {
    let this = env::current_exe().expect("the system knows which program runs");
    this.ancestors().nth(3).expect("cargo builds in `release/deps`").to_owned()
}

fn has_cxx() -> bool {
    let quiet =
        Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}
