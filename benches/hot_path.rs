//! `cargo bench --bench hot_path`: what a span costs here, beside the bare counter and beside other
//! profilers.
//!
//! The rows of `embedder/` come first: they are what users pay, in a program that is built with Cargo's default release
//! profile. Those of `peers/` are built with thin link-time optimisation. Both are packages of their own, so that nobody
//! else compiles the peers; this target builds and runs them.
//!
//! - `-- --quick` takes a tenth of the rounds;
//! - `-- --json` prints the tables as one JSON object;
//! - `-- --check` exits with 1 if a target is missed.

#[path = "peers/launch.rs"]
mod launch;

use std::env;
use std::error::Error;
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

fn main() -> ExitCode {
    if !launch::is_wanted("hot_path") {
        return ExitCode::SUCCESS;
    }
    let mut features: &[&str] = &[];
    if !has_cxx() {
        eprintln!("no C++ compiler `c++` here: the row of Tracy, which needs one, is left out");
        features = &["--no-default-features"];
    }
    let embedder = launch::command("embedder", "brickscope-bench-embedder", &[]);
    let peers = launch::command("peers", "hot_path", features);
    let is_json = env::args().any(|arg| arg == "--json");
    match if is_json { as_json(embedder, peers) } else { as_text(embedder, peers) } {
        Ok(codes) => {
            let failed = codes.into_iter().find(|&code| code != Some(0));
            failed.map_or(ExitCode::SUCCESS, launch::exit_code)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Codes = Result<[Option<i32>; 2], Box<dyn Error>>;

fn as_text(mut embedder: Command, mut peers: Command) -> Codes {
    let first = embedder.status()?.code();
    println!();
    Ok([first, peers.status()?.code()])
}

/// The object of the peers, with the rows of the embedder before theirs, and its share of calm batches.
fn as_json(mut embedder: Command, mut peers: Command) -> Codes {
    let first = embedder.stderr(Stdio::inherit()).output()?;
    let second = peers.stderr(Stdio::inherit()).output()?;
    let mut of_embedder: Value = serde_json::from_slice(&first.stdout)?;
    let mut all: Value = serde_json::from_slice(&second.stdout)?;
    for list in ["rows", "remarks"] {
        let mut both = of_embedder[list].take().as_array().cloned().unwrap_or_default();
        both.extend(all[list].take().as_array().cloned().unwrap_or_default());
        all[list] = both.into();
    }
    let missed = |of: &Value| of["missed"].as_u64().unwrap_or_default();
    all["missed"] = (missed(&all) + missed(&of_embedder)).into();
    all["calm_share_of_embedder"] = of_embedder["calm_share"].take();
    println!("{all:#}");
    Ok([first.status.code(), second.status.code()])
}

fn has_cxx() -> bool {
    let quiet =
        Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}
