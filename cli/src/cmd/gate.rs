//! `brickscope gate`: compares a run with a baseline, for CI.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use brickscope_analysis::compare::{Fact, Outcome, Pairing, Side};
use brickscope_analysis::receipt::Code;

use super::compare::{compared, exit_code, print};
use crate::flags::ComparisonArgs;
use crate::output;
use crate::sides;

/// Compare a run with a stored baseline, for CI.
///
/// The exit code is 0 if nothing is slower and every test has a verdict, 1 if something is slower, 3 if
/// the runs don't decide it (more processes are needed), 2 if the comparison can't be made.
///
/// A baseline was measured at another time, so what the machine has done since looks like a change of the
/// program. At most 1 in 100 gates of an unchanged program is called slower or faster if processes differ by
/// chance only, or the machine also drifts steadily within the sessions and for at most one session's length
/// between them. Where slow processes come in a row, up to 2 in 100 are. Nothing is promised of a machine that
/// drifts for longer, or stays in one of two states for minutes: use `compare OLD NEW --processes 20` there,
/// which runs both in turns. docs/compare.md has the figures.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope benchmark model.gguf --processes 20 --out run\n  brickscope gate --baseline baseline --update run\n  brickscope gate --baseline baseline run --threshold 3% -o md"
)]
pub(crate) struct GateArgs {
    /// The run to judge: a receipt, a run's folder, or a folder of run folders. By default the newest
    /// in `brickscope-runs`.
    pub(crate) run: Option<PathBuf>,

    /// The folder of the baseline.
    #[arg(long, value_name = "DIR")]
    pub(crate) baseline: PathBuf,

    /// Make the run the new baseline, instead of judging it.
    #[arg(long)]
    pub(crate) update: bool,

    #[command(flatten)]
    pub(crate) how: ComparisonArgs,
}

/// Where runs are written unless the user names a folder.
const RUNS: &str = "brickscope-runs";

pub(crate) fn run(args: &GateArgs) -> Result<ExitCode> {
    let run = match &args.run {
        Some(run) => run.clone(),
        None => newest(&args.baseline)?,
    };
    settle(&args.baseline)?;
    if args.update {
        let side = sides::load(&run, args.how.force)?;
        trust(&side)?;
        update(&run, &args.baseline)
            .with_context(|| format!("{} can't be made the baseline", run.display()))?;
        output::print(format!(
            "{} is now the baseline: {} processes of {}\n",
            output::shown(&args.baseline),
            side.processes.len(),
            output::shown(&run)
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.baseline.exists() {
        bail!(
            "there is no baseline at {0}: make {1} the first one with `brickscope gate --baseline {0} \
             --update {1}`",
            args.baseline.display(),
            run.display()
        );
    }
    let a = sides::load(&args.baseline, args.how.force).context("the baseline")?;
    let b = sides::load(&run, args.how.force).context("the run")?;
    let comparison = compared(&a, &b, &args.how)?;
    print(&comparison, &args.how)?;
    let is_unpaired = matches!(comparison.pairing, Pairing::Unpaired { .. });
    if is_unpaired && comparison.outcome() != Outcome::Pass {
        tell!(
            "the baseline was measured at another time, and nothing is promised if the machine has changed its \
             state since: `brickscope compare OLD NEW --processes 20` measures two builds in turns, which is \
             safe from that and detects smaller changes"
        );
    }
    Ok(exit_code(&comparison))
}

/// Refuses a run that later ones can't be judged by, whatever is forced: receipts that are refused, such as those of mock
/// kernels or above the machine's roof, a clock that a test turned by hand, and a process that is there twice.
fn trust(side: &Side) -> Result<()> {
    for process in &side.processes {
        // Nothing shows what ran without the profiler, and nothing speaks against it either.
        let is_off = |fact: &Fact| fact.name == "profiler" && fact.value == "off";
        let is_unprofiled = process.facts.iter().any(is_off);
        let why = process.not_verified.as_ref();
        if let Some(why) = why.filter(|why| !is_unprofiled || *why != Code::KernelIds.name()) {
            bail!(
                "{0} can't be a baseline, since it isn't verified ({why}): `brickscope verify-receipt {0}` says more",
                process.name
            );
        }
        let is_mock = |fact: &Fact| fact.name == "clock" && fact.value == "mock";
        if process.facts.iter().any(is_mock) {
            bail!(
                "{} can't be a baseline: its clock is a mock, so its times are made up",
                process.name
            );
        }
    }
    match side.copies() {
        Some((one, other)) => bail!(
            "{} can't be a baseline: {one} and {other} have the same measurements, so one is a copy",
            side.name
        ),
        None => Ok(()),
    }
}

/// The newest run of a benchmark, other than the baseline.
fn newest(baseline: &Path) -> Result<PathBuf> {
    let none = || format!("there is no run in {RUNS}: name one, or make one with `benchmark`");
    let base = fs::canonicalize(baseline).ok();
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    for entry in fs::read_dir(RUNS).with_context(none)? {
        let path = entry.with_context(|| RUNS.to_owned())?.path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_baseline = fs::canonicalize(&path).ok() == base && base.is_some();
        if is_hidden || is_baseline {
            continue;
        }
        let Ok(files) = sides::files(&path) else { continue };
        if files.iter().any(|file| file.ends_with("profile.json")) {
            continue;
        }
        let written = files.iter().filter_map(|file| fs::metadata(file).ok()?.modified().ok());
        let Some(written) = written.max() else { continue };
        if newest.as_ref().is_none_or(|(other, _)| written > *other) {
            newest = Some((written, path));
        }
    }
    Ok(newest.with_context(none)?.1)
}

/// Makes `run` the baseline. If this is interrupted, the baseline is either the old or the new one: the
/// new one is made beside it, and [`sides::files`] finds the old one if only its name is missing. If it fails, as on a
/// full disk, the old one stays and nothing else does.
fn update(run: &Path, baseline: &Path) -> Result<()> {
    let name = |which| {
        sides::beside(baseline, which)
            .with_context(|| format!("{} does not end in the name of a folder", baseline.display()))
    };
    let (next, last) = (name("next")?, name("last")?);
    remove(&next)?;
    let moved = |from: &Path, to: &Path| {
        fs::rename(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))
    };
    let exchanged = copy(run, &next).and_then(|()| {
        if baseline.exists() {
            moved(baseline, &last)?;
        }
        moved(&next, baseline).inspect_err(|_| {
            // If this fails too, the next gate tries it again.
            let _ = fs::rename(&last, baseline);
        })
    });
    if exchanged.is_err() {
        // What went wrong first matters more.
        let _ = remove(&next);
        return exchanged;
    }
    remove(&last)
}

/// Copies the files of a run to a new folder.
fn copy(run: &Path, next: &Path) -> Result<()> {
    for (number, file) in sides::files(run)?.iter().enumerate() {
        let name = file.file_name().context("a run's file has a name")?;
        // Under its usual name, so that later runs find it.
        let name = if name == "profile.json" { name } else { "receipt.json".as_ref() };
        let folder = next.join((number + 1).to_string());
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let copy = folder.join(name);
        fs::copy(file, &copy)
            .and_then(|_| File::open(&copy)?.sync_all())
            .with_context(|| copy.display().to_string())?;
    }
    Ok(())
}

/// Finishes an interrupted update.
fn settle(baseline: &Path) -> Result<()> {
    // A path without a name, such as `.`, was never exchanged.
    let Some(last) = sides::beside(baseline, "last") else { return Ok(()) };
    if !last.exists() {
        return Ok(());
    }
    if baseline.exists() {
        // The new one is in place, and the rest of the old one may be incomplete.
        remove(&last)
    } else {
        fs::rename(&last, baseline).with_context(|| last.display().to_string())
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| folder.display().to_string())
        }
        _ => Ok(()),
    }
}
