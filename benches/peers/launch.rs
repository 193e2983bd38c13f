// Builds and runs a program of this package: what the bench targets at the root do.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs the program `name` with the arguments of this one; `options` are cargo's.
pub(super) fn run(name: &str, options: &[&str]) -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        println!("nothing to test here: `cargo bench --bench {name}` runs this");
        return ExitCode::SUCCESS;
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&package).args(["run", "--release", "--bin", name]);
    cargo.arg("--target-dir").arg(target_dir()).args(options);
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
