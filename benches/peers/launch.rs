// Builds and runs programs of the packages in `benches/`: what the bench targets at the root do.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs the program `name` of `peers/` with the arguments of this one; `options` are cargo's.
#[allow(dead_code, reason = "not every target runs just one")]
pub(super) fn run(name: &str, options: &[&str]) -> ExitCode {
    if !is_wanted(name) {
        return ExitCode::SUCCESS;
    }
    let mut cargo = command("peers", name, options);
    match cargo.status() {
        Ok(status) => exit_code(status.code()),
        Err(error) => {
            eprintln!("can't run {cargo:?}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether this program is to measure; `cargo test` runs it, too.
pub(super) fn is_wanted(name: &str) -> bool {
    let is_wanted = env::args().any(|arg| arg == "--bench");
    if !is_wanted {
        println!("nothing to test here: `cargo bench --bench {name}` runs this");
    }
    is_wanted
}

/// Builds and runs the program `name` of a package with the arguments of this one; `options` are cargo's.
pub(super) fn command(package: &str, name: &str, options: &[&str]) -> Command {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches").join(package);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&package).args(["run", "--release", "--bin", name]);
    cargo.arg("--target-dir").arg(target_dir()).args(options);
    cargo.arg("--").args(env::args().skip(1).filter(|arg| arg != "--bench"));
    cargo
}

/// What a program ended with. `None` if the system ended it.
pub(super) fn exit_code(code: Option<i32>) -> ExitCode {
    code.map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8))
}

/// Where this program was built: `target` of `target/release/deps/hot_path-…`, wherever that is.
fn target_dir() -> PathBuf {
    let this = env::current_exe().expect("the system knows which program runs");
    this.ancestors().nth(3).expect("cargo builds in `release/deps`").to_owned()
}
