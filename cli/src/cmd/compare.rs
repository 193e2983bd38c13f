//! `brickscope compare`: what became slower or faster between two sides.

use std::ffi::OsStr;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use brickscope::Profile;
use brickscope_analysis::compare::{Comparison, Options, Outcome, Side, compare};
use brickscope_analysis::view;

use crate::args::{CompareArgs, ComparisonArgs, ComparisonFormat};
use crate::run_dir::RunDir;
use crate::{progress, sides};

/// `benchmark` takes sets of 1000 at most, and both sides are one set.
const MOST_A_SIDE: u32 = 500;

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let [a, b] = match args.processes {
        Some(processes) => measure_in_turns(args, processes)?,
        None => [
            sides::load(&args.a, args.how.force).context("A")?,
            sides::load(&args.b, args.how.force).context("B")?,
        ],
    };
    let comparison = compared(&a, &b, &args.how)?;
    print(&comparison, &args.how)?;
    Ok(exit_code(&comparison))
}

pub(super) fn compared(a: &Side, b: &Side, how: &ComparisonArgs) -> Result<Comparison> {
    let options =
        Options { threshold: how.threshold, min_share: how.min_share, is_forced: how.force };
    compare(a, b, &options).map_err(|error| match error {
        brickscope_analysis::compare::CompareError::Unlike(_) => {
            anyhow::anyhow!("{error}; --force compares them all the same")
        }
        error => error.into(),
    })
}

pub(super) fn print(comparison: &Comparison, how: &ComparisonArgs) -> Result<()> {
    let format = if how.json { ComparisonFormat::Json } else { how.output };
    let text = match format {
        ComparisonFormat::Text => view::comparison(comparison),
        ComparisonFormat::Md => view::comparison_markdown(comparison),
        ComparisonFormat::Json => view::comparison_json(comparison),
        ComparisonFormat::Bmf => view::comparison_bmf(comparison),
    };
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}

/// As the help of both commands says.
pub(super) fn exit_code(comparison: &Comparison) -> ExitCode {
    ExitCode::from(match comparison.outcome() {
        Outcome::Pass => 0,
        Outcome::Slower => 1,
        Outcome::Inconclusive => 3,
    })
}

/// Runs the benchmark of both programs, A B B A A B …, and reads what they wrote.
fn measure_in_turns(args: &CompareArgs, processes: u32) -> Result<[Side; 2]> {
    if processes > MOST_A_SIDE {
        bail!("--processes {processes}: at most {MOST_A_SIDE}, since a set has at most 1000");
    }
    let programs = [&args.a, &args.b];
    for program in programs {
        if !program.is_file() {
            bail!("{} is no program: with --processes, A and B are run", program.display());
        }
    }
    let dir = RunDir::create(args.out.as_deref(), &Profile::empty(Default::default()).created)?;
    let folders = ["a", "b"].map(|side| dir.path().join(side));
    if let Some(folder) = folders.iter().find(|folder| folder.exists()) {
        bail!("{} is there already: name another folder with --out", folder.display());
    }
    let set = set_name();
    let total = 2 * processes;
    let bar = progress::steps("measuring", total.into());
    for turn in 0..total {
        let (pair, second) = (turn / 2, turn % 2);
        // A B, B A, A B, …
        let side = ((pair + second) % 2) as usize;
        bar.set_position(turn.into());
        let out = folders[side].join((pair + 1).to_string());
        benchmark(programs[side], args, &out, &set, turn + 1, total).with_context(|| {
            format!("{}, process {} of {processes}", programs[side].display(), pair + 1)
        })?;
    }
    bar.finish_and_clear();
    eprintln!("their runs: {} and {}", folders[0].display(), folders[1].display());
    let mut sides = [
        sides::load(&folders[0], args.how.force).context("A")?,
        sides::load(&folders[1], args.how.force).context("B")?,
    ];
    for (side, program) in sides.iter_mut().zip(programs) {
        side.name = program.display().to_string();
    }
    Ok(sides)
}

/// One process.
fn benchmark(
    program: &Path,
    args: &CompareArgs,
    out: &Path,
    set: &str,
    process: u32,
    processes: u32,
) -> Result<()> {
    // A bare name would be looked for among the system's commands.
    let program = std::path::absolute(program)?;
    let output = Command::new(&program)
        .arg("benchmark")
        .args(args.model.iter())
        .args(&args.benchmark)
        .arg("--out")
        .arg(out)
        .args([OsStr::new("--set"), OsStr::new(set)])
        .args(["--process", &process.to_string(), "--processes", &processes.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("it can't be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`benchmark` failed ({}): {}", output.status, said.trim());
    }
    Ok(())
}

/// A name that no other set has.
fn set_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("compare-{}-{now}", std::process::id())
}
