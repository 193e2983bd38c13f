//! `brickscope rm`: removes runs.

use std::fs;
use std::io::{IsTerminal, stdin};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use brickscope_runs::view::size;
use brickscope_runs::{Contents, contents, remove, tag};

use crate::text::{count, printable_text};
use crate::{output, runs};

/// Remove runs.
///
/// Only files that brickscope writes are removed, and folders that are empty then: what else lies in a run's folder stays.
/// It asks before, and refuses what isn't the folder of a run, what only looks like one, and runs that are being written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope rm @\n  brickscope rm 20261129-1215 20261128-0900\n  brickscope rm runs/old --yes"
)]
pub(crate) struct RmArgs {
    /// The runs: their folders, their tags, the beginnings of their names, `@` for the newest or `@-1` for the one before.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,

    /// Remove them without asking.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

pub(crate) fn run(args: &RmArgs) -> Result<()> {
    // All are looked at before the first is removed.
    let mut all: Vec<Contents> = Vec::new();
    for word in &args.runs {
        let found = contents(&runs::named(word)?)?;
        // A path may be written in several ways.
        let whole = fs::canonicalize(&found.folder).ok();
        if !all.iter().any(|other| fs::canonicalize(&other.folder).ok() == whole) {
            all.push(found);
        }
    }
    if !args.yes {
        confirm(&all)?;
    }
    let mut kept = 0;
    for run in &all {
        let shown = output::shown(&run.folder);
        match remove(&run.folder) {
            Ok(removed) => {
                output::print(format!("removed {shown}, {}\n", size(removed.bytes)))?;
                if let Some(first) = removed.others.first() {
                    let first = printable_text(&first.to_string_lossy());
                    let left = removed.others.len() as u64;
                    tell!("note: {} left in {shown}, such as {first}", count(left, "file"));
                }
            }
            Err(error) => {
                tell!("not removed: {error:#}");
                kept += 1;
            }
        }
    }
    ensure!(kept == 0, "{} not removed", count(kept, "run"));
    Ok(())
}

fn confirm(all: &[Contents]) -> Result<()> {
    for run in all {
        let tag = tag::of(&run.folder).map_or_else(String::new, |tag| format!(" (`{tag}`)"));
        let files = count(run.files.len() as u64, "file");
        tell!("{}{tag}: {files}, {}", output::shown(&run.folder), size(run.bytes));
    }
    let runs = count(all.len() as u64, "run");
    if !stdin().is_terminal() {
        bail!("nobody can be asked whether to remove {runs}: --yes does it without asking");
    }
    tell!("Remove {runs}? [y/N]");
    let mut answer = String::new();
    stdin().read_line(&mut answer).context("can't read the answer")?;
    ensure!(answer.trim().eq_ignore_ascii_case("y"), "not confirmed: nothing was removed");
    Ok(())
}
