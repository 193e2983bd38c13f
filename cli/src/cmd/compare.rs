//! `brickscope compare`: says what became slower or faster from one side to the other.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use brickscope::{InSet, Profile, SET_VARIABLE};
use brickscope_analysis::compare::{Side, UnusableProfile, turns_at_random};
use brickscope_analysis::view;

use crate::comparison::{compared, exit_code, print};
use crate::flags::{ComparisonArgs, ComparisonFormat, MAX_PROCESSES};
use crate::runs::{RunDir, llama_bench, load, named, sides};
use crate::{family, in_turns, interrupt, output, progress};

/// Show what became slower or faster from A to B: tests, categories and bricks.
///
/// A and B are each a receipt, a run's folder, or a folder of run folders as `benchmark --processes`
/// writes it, or files of llama-bench (of those with rates alone both sides are shown, code 3). With --processes they are two builds of brickscope,
/// which are measured in turns, in pairs of random order. The comparison is between processes: 5 a side
/// show large changes, 20 a change of 3 %. Below 5 there is no verdict, and the output says so. Of the
/// two folders of runs that `versus` kept it says what that said.
///
/// With --processes A and B may also be two builds of an engine of your own: each process is started as `PROGRAM benchmark
/// ARGS --out DIR`, and has to save its run in DIR (`Profile::save_run`). What follows in its arguments, `--set NAME
/// --process I --processes N`, it may ignore: the variable BRICKSCOPE_SET tells a profile the same.
///
/// The exit code is 0 if nothing is slower and every test has a verdict, 1 if something is slower, 3 if
/// the runs don't decide it, 2 if the comparison can't be made. docs/compare.md explains the verdicts.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope compare runs/before runs/after\n  brickscope compare runs/before runs/after --threshold 5% --format md\n  brickscope compare old/brickscope new/brickscope --processes 20 --model model.gguf -- --tokens 32"
)]
pub(crate) struct CompareArgs {
    /// The side to compare with: a path, a tag, the beginning of a run's name, or `@-1` for the run before the newest.
    pub(crate) a: PathBuf,

    /// The side that may have changed; `@` is the newest run.
    pub(crate) b: PathBuf,

    #[command(flatten)]
    pub(crate) how: ComparisonArgs,

    /// Take A and B as programs, and run the benchmark in this many processes of each, in turns: pairs of
    /// an A and a B, each first equally often, in random order.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_PROCESSES))]
    pub(crate) processes: Option<u32>,

    /// With --processes: the GGUF file to run. By default the same model as for `profile`.
    #[arg(long, value_name = "FILE", requires = "processes")]
    pub(crate) model: Option<PathBuf>,

    /// With --processes: the folder for their runs, `a/1`, `b/1` and so on. By default a new one in
    /// `brickscope-runs`.
    #[arg(long, value_name = "DIR", requires = "processes")]
    pub(crate) out: Option<PathBuf>,

    /// With --processes: arguments for `benchmark`.
    #[arg(last = true, value_name = "BENCHMARK ARGS", requires = "processes")]
    pub(crate) benchmark: Vec<OsString>,
}

/// A set of `benchmark` has at most 1000 processes, and both sides together are one set.
const MOST_A_SIDE: u32 = 500;

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let (runs, [a, b]) = match args.processes {
        Some(processes) => (None, measure_in_turns(args, processes)?),
        None => {
            let [a, b] = [named(&args.a)?, named(&args.b)?];
            if let Some(code) = in_turns::again([&a, &b], &args.how)? {
                return Ok(code);
            }
            let side_a = or_rates(&a, sides::load(&a, args.how.force).context("A"))?;
            // What is no run at all was told before.
            are_two(&a, &b)?;
            let side_b = or_rates(&b, sides::load(&b, args.how.force).context("B"))?;
            let (Some(side_a), Some(side_b)) = (side_a, side_b) else {
                return of_rates([&a, &b], args.how.format());
            };
            (Some([a, b]), [side_a, side_b])
        }
    };
    let comparison = compared(&a, &b, &args.how, true)?;
    print(&comparison, &args.how)?;
    let are_single = comparison.a.processes == 1 && comparison.b.processes == 1;
    let is_text = args.how.format() == ComparisonFormat::Text;
    if let Some(runs) = runs.filter(|_| are_single && is_text)
        && let [Ok(a), Ok(b)] = runs.map(|run| load(&run))
        && let Some(command) = view::versus_command([&a, &b])
    {
        output::print(format!("\nBoth commands in turns: {command}\n"))?;
    }
    Ok(exit_code(comparison.outcome()))
}

/// A side; `None` of one file that has rates and no times.
fn or_rates(path: &Path, side: Result<Side>) -> Result<Option<Side>> {
    let is_one = || sides::files(path).is_ok_and(|files| files.len() == 1);
    match side {
        Err(error)
            if matches!(error.downcast_ref(), Some(UnusableProfile::OnlyRates)) && is_one() =>
        {
            Ok(None)
        }
        side => side.map(Some),
    }
}

/// Shows both sides' rates, from which no verdict follows.
fn of_rates(runs: [&Path; 2], format: ComparisonFormat) -> Result<ExitCode> {
    let read = |run: &Path| match &sides::files(run)?[..] {
        [file] => match llama_bench::read(file)? {
            Some(of_benchmark) => Ok(of_benchmark),
            None if sides::is_receipt(file)? => {
                bail!("{} has a receipt, and the other side rates alone", output::shown(run))
            }
            None => load(file),
        },
        _ => bail!("{} has several runs, and the other side rates alone", output::shown(run)),
    };
    let [a, b] = [read(runs[0])?, read(runs[1])?];
    if let Some((run, _)) = runs
        .iter()
        .zip([&a, &b])
        .find(|(_, of)| of.imported.as_ref().is_none_or(|imported| imported.tests.is_empty()))
    {
        bail!(
            "{} has no tests of llama-bench, and the other one has nothing else",
            output::shown(run)
        );
    }
    let rates = view::rates_compared(&a, &b);
    output::print(match format {
        ComparisonFormat::Text => rates.text(),
        ComparisonFormat::Md => rates.markdown(),
        ComparisonFormat::Json => rates.json(),
        ComparisonFormat::Bmf => bail!("--format bmf: rates without times have no such form"),
    })?;
    Ok(exit_code(rates.outcome))
}

/// Refuses one run for both sides.
fn are_two(a: &Path, b: &Path) -> Result<()> {
    // Of what isn't there, its side says so.
    let whole = [a, b].map(|path| fs::canonicalize(path).ok());
    if whole[0].is_some() && whole[0] == whole[1] {
        bail!("A and B are one run, {}: name another for one of them", output::shown(a));
    }
    Ok(())
}

/// Runs the benchmark of both programs, in pairs of random order, and reads what they wrote.
fn measure_in_turns(args: &CompareArgs, processes: u32) -> Result<[Side; 2]> {
    if processes > MOST_A_SIDE {
        bail!("--processes {processes}: at most {MOST_A_SIDE}, since a set has at most 1000");
    }
    let programs = [&args.a, &args.b];
    for program in programs {
        if !program.is_file() {
            bail!("{} is not a program: with --processes, A and B are programs", program.display());
        }
    }
    let dir = RunDir::create(args.out.as_deref(), &Profile::empty(Default::default()).created)?;
    let folders = ["a", "b"].map(|side| dir.path().join(side));
    // The folder must be removed if it is empty, so signals end the process that runs, and then this one.
    interrupt::watch()?;
    interrupt::keep();
    if let Some(folder) = folders.iter().find(|folder| folder.exists()) {
        bail!("{} exists already: name another folder with --out", folder.display());
    }
    let told = format!("their runs: {} and {}", folders[0].display(), folders[1].display());
    let (set, seed) = set_name();
    let order = turns_at_random(processes as usize, seed);
    let total = 2 * processes;
    let bar = progress::steps("measuring", total.into());
    for turn in 0..total {
        let (pair, second) = (turn / 2, turn % 2);
        // A first or B first.
        let is_a = order[pair as usize] == (second == 0);
        let side = usize::from(!is_a);
        bar.set_position(turn.into());
        if interrupt::is_asked() {
            tell!("{told}, as far as they ran");
            return Err(interrupt::Nothing.into());
        }
        let out = folders[side].join((pair + 1).to_string());
        let in_set = InSet { name: set.clone(), process: turn + 1, processes: total };
        let ran = benchmark(programs[side], args, &out, &in_set);
        if let Err(error) = ran {
            if turn > 0 {
                tell!("{told}, as far as they ran");
            }
            return Err(error).with_context(|| {
                format!("{}, process {} of {processes}", programs[side].display(), pair + 1)
            });
        }
    }
    bar.finish_and_clear();
    tell!("{told}");
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
fn benchmark(program: &Path, args: &CompareArgs, out: &Path, in_set: &InSet) -> Result<()> {
    let InSet { name, process, processes } = in_set;
    // A bare name would be looked up in PATH.
    let program = std::path::absolute(program)?;
    let mut command = Command::new(&program);
    let _tied = family::tie(&mut command)?;
    let output = command
        .arg("benchmark")
        .args(args.model.iter())
        .args(&args.benchmark)
        .arg("--out")
        .arg(out)
        .args(["--set", name.as_str()])
        .args(["--process", &process.to_string(), "--processes", &processes.to_string()])
        // Who reads no arguments can state it all the same.
        .env(SET_VARIABLE, in_set.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("can't start it")?;
    if interrupt::was_child(output.status) {
        return Err(interrupt::Nothing.into());
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`benchmark` failed ({}): {}", output.status, said.trim());
    }
    sides::files(out).context("`benchmark --out DIR` has to save its run there")?;
    Ok(())
}

/// A name that no other set has, and a seed for its order.
fn set_name() -> (String, u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    // The lower digits differ most.
    (format!("compare-{}-{now}", std::process::id()), now as u64)
}
