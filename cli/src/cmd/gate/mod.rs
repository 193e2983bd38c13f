//! `brickscope gate`: compares a run with a baseline, for CI.

mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use brickscope_analysis::compare::{Fact, LEAST_PROCESSES, Limit, Outcome, Pairing, Side, Work};
use brickscope_analysis::fleet::{Fleet, Judged, Limits, Observation};
use brickscope_analysis::history::{Measure, Run, SeriesKind};
use brickscope_analysis::receipt::Code;
use brickscope_analysis::view;
use brickscope_runs::{By, Found, find};

use crate::comparison::{compared, exit_code, print};
use crate::flags::{ComparisonArgs, ComparisonFormat};
use crate::output;
use crate::runs::{self, home, llama_bench, receipt_files, sealed, sides};
use crate::text::{count, printable_text};

/// Compare a run with a stored baseline, or with absolute limits, for CI.
///
/// The exit code is 0 if nothing is slower and every test has a verdict, 1 if something is slower, 3 if
/// the runs don't decide it (more processes are needed), 2 if the comparison can't be made.
///
/// With --threshold T it fails (code 1) if something is certainly slower and may be slower by T or more: the interval's
/// low end is above 0 and its high end at least T. So an interval from +0.1 % to T fails, and one that ends below T doesn't.
///
/// A baseline was measured at another time, so what the machine has done since looks like a change of the
/// program. At most 1 in 100 gates of an unchanged program is called slower or faster if processes differ by
/// chance only, or the machine also drifts steadily within the sessions and for at most one session's length
/// between them. Where slow processes come in a row, up to 2 in 100 are. Nothing is promised of a machine that
/// drifts for longer, or stays in one of two states for minutes: use `compare OLD NEW --processes 20` there,
/// which runs both in turns. docs/evidence/compare.md has the figures.
///
/// If the runs are of several machines (BRICKSCOPE_MACHINE names them), commits and machines are taken apart, and only
/// a slower commit counts. The baseline may then be a lake: the run is judged by all runs of the same work in it since
/// the speed last changed. docs/fleet.md describes lakes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope benchmark model.gguf --processes 20 --out run\n  brickscope gate --baseline baseline --update run\n  brickscope gate --baseline baseline run --threshold 3% --format md\n  brickscope gate --baseline /shared/lake run\n  brickscope gate run --min-tokens-per-second 20 --max-p99 60"
)]
pub(crate) struct GateArgs {
    /// The run to judge: a receipt, a run's folder, a folder of run folders, or files of llama-bench (`-o jsonl`). By
    /// default the newest benchmark in `brickscope-runs`.
    pub(crate) run: Option<PathBuf>,

    /// The folder of the baseline, a benchmark in `brickscope-runs` by its tag or name, or a lake.
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) baseline: Option<PathBuf>,

    /// Make the run the new baseline, or add it to the lake, instead of judging it.
    #[arg(long, requires = "baseline")]
    pub(crate) update: bool,

    /// Instead of a baseline: the tokens per second that the decode test at the least depth has to reach. The mean of
    /// five processes or more is held against it, with its 95 % interval; of one run of `run` or `profile` its rate, with the
    /// interval over its passes.
    #[arg(long = "min-tokens-per-second", visible_alias = "assert-throughput", value_name = "TOKENS/S", value_parser = limit, conflicts_with_all = ["baseline", "threshold", "min_share", "phase"])]
    pub(crate) assert_throughput: Option<f64>,

    /// Likewise: the milliseconds that the 99th percentile of a token's time may take.
    #[arg(long = "max-p99", visible_alias = "assert-p99", value_name = "MS", value_parser = limit, conflicts_with_all = ["baseline", "threshold", "min_share", "phase"])]
    pub(crate) assert_p99: Option<f64>,

    #[command(flatten)]
    pub(crate) how: ComparisonArgs,
}

/// A limit: any number above 0.
fn limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(limit) if limit.is_finite() && limit > 0.0 => Ok(limit),
        _ => Err("must be a number above 0, such as 20".to_owned()),
    }
}

pub(crate) fn run(args: &GateArgs) -> Result<ExitCode> {
    ensure!(
        args.baseline.is_some() || args.assert_throughput.is_some() || args.assert_p99.is_some(),
        "say what to hold it against: --baseline DIR, or limits by --min-tokens-per-second N and --max-p99 MS"
    );
    let baseline = args.baseline.as_deref();
    // What is made may have the name of a run that is there.
    let baseline = match baseline.filter(|_| !args.update) {
        Some(word) => Some(baseline_of(word)?),
        None => baseline.map(Path::to_owned),
    };
    let run = match &args.run {
        Some(run) => runs::named(run)?,
        None => newest(baseline.as_deref())?,
    };
    let Some(baseline) = &baseline else {
        let rate = args.assert_throughput.map(Limit::Throughput);
        let asked: Vec<Limit> = rate.into_iter().chain(args.assert_p99.map(Limit::P99)).collect();
        return limits::run(&asked, &run, &args.how);
    };
    if is_lake(baseline) {
        return by_lake(args, baseline, &run);
    }
    settle(baseline)?;
    if args.update {
        let side = sides::load(&run, args.how.force)?;
        trust(&side)?;
        update(&run, baseline)
            .with_context(|| format!("{} can't be made the baseline", run.display()))?;
        output::print(format!(
            "{} is now the baseline: {} of {}\n",
            output::shown(baseline),
            count(side.processes.len() as u64, "process"),
            output::shown(&run)
        ))?;
        if side.processes.len() < LEAST_PROCESSES {
            tell!(
                "no run can get a verdict by it: that takes {LEAST_PROCESSES} processes a side \
                 (`benchmark --processes 20`)"
            );
        }
        let mut doubts = side.processes.iter().flat_map(|process| &process.doubts);
        if let Some(doubt) = doubts.find(|doubt| doubt.starts_with("no receipt: ")) {
            tell!("{}", printable_text(doubt));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !baseline.exists() {
        bail!(
            "there is no baseline at {0}: make {1} the first one with `brickscope gate --baseline {0} \
             --update {1}`",
            baseline.display(),
            run.display()
        );
    }
    let [of_baseline, of_run] = [baseline, &run].map(|path| fs::canonicalize(path).ok());
    ensure!(
        of_run.is_none() || of_baseline != of_run,
        "{} is both the run and the baseline: held against itself, nothing is slower",
        run.display()
    );
    if let Some(sides) = of_machines(baseline, &run, args.how.force)? {
        return judge(sides, &args.how);
    }
    let a = sides::load(baseline, args.how.force).context("the baseline")?;
    let b = sides::load(&run, args.how.force).context("the run")?;
    let comparison = compared(&a, &b, &args.how, false)?;
    print(&comparison, &args.how)?;
    let is_unpaired = matches!(comparison.pairing, Pairing::Unpaired { .. });
    if is_unpaired && comparison.outcome() != Outcome::Pass {
        tell!(
            "the baseline was measured at another time, and nothing is promised if the machine has changed its \
             state since: `brickscope versus 'OLD COMMAND' 'NEW COMMAND'` measures both in turns, which is safe \
             from that and detects smaller changes"
        );
    }
    Ok(exit_code(comparison.outcome()))
}

/// The baseline that was named: a folder or a lake, or a run or a set with receipts, by its tag, its place or its name.
fn baseline_of(word: &Path) -> Result<PathBuf> {
    // One whose update was interrupted is under another name for a while.
    if sides::beside(word, "last").is_some_and(|last| last.is_dir()) {
        return Ok(word.to_owned());
    }
    let Found { path, by } = match find(word, home()) {
        Err(error) if word.as_os_str().as_encoded_bytes().starts_with(b"@") => return Err(error),
        // The names of several runs may begin as that of a baseline which is yet to be made.
        Err(_) => return Ok(word.to_owned()),
        Ok(found) => found,
    };
    let what = match by {
        By::Tag => "a tag of",
        By::Place => "the place of",
        By::Name if path.file_name() == Some(word.as_os_str()) => "the name of",
        By::Name | By::Path => return Ok(word.to_owned()),
    };
    let has_receipts = receipt_files(&path).iter().all(|file| file.is_file());
    let is_llama_bench = || {
        let imported = runs::load(&path).ok().and_then(|profile| profile.imported);
        imported.is_some_and(|of| of.format == "llama-bench")
    };
    ensure!(
        has_receipts || is_llama_bench(),
        "`{0}` is {what} {1}, which has no receipt: --baseline takes what `benchmark` wrote, or a folder that \
         `brickscope gate --baseline {0} --update RUN` makes",
        output::shown(word),
        output::shown(&path)
    );
    tell!("note: the baseline {} is {what} {}", output::shown(word), output::shown(&path));
    Ok(path)
}

#[cfg(feature = "parquet")]
fn is_lake(baseline: &Path) -> bool {
    crate::runs::lake::Lake::is_at(baseline)
}

#[cfg(not(feature = "parquet"))]
fn is_lake(baseline: &Path) -> bool {
    baseline.to_string_lossy().contains("://") || baseline.join("lake.json").is_file()
}

#[cfg(not(feature = "parquet"))]
fn by_lake(_: &GateArgs, baseline: &Path, _: &Path) -> Result<ExitCode> {
    bail!(
        "{} is a lake, and this brickscope was built without Parquet; \
         `cargo install --path cli --profile dist --features full` has it",
        baseline.display()
    )
}

/// Judges a run by the runs of a lake, or adds it.
#[cfg(feature = "parquet")]
fn by_lake(args: &GateArgs, baseline: &Path, run: &Path) -> Result<ExitCode> {
    use crate::progress;
    use crate::runs::into_lake;
    use crate::runs::lake::{
        ALL_DAYS, HOST, Lake, NewRuns, Wanted, named as names_of, refresh, unify, works,
    };

    if args.update {
        NewRuns::at(run, &named()?, false, &HOST).context("it can't be a baseline")?;
        into_lake(Some(baseline), Some(run))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lake = Lake::open(baseline, &HOST)?;
    let new = NewRuns::at(run, &named()?, args.how.force, &HOST)?;
    refresh(&mut lake, ALL_DAYS)?;
    let note = progress::note("asking");
    let wanted = Wanted { cpu: new.cpu.as_deref(), without: new.ids.clone(), ..Wanted::default() };
    let known = works(&lake, &wanted);
    note.finish_and_clear();
    let mut known = known?;
    let mut sides = Vec::new();
    for (work, mut new) in new.works {
        if !known.contains_key(&work) {
            // Why there is none of a work that looks the same.
            let alike = known.keys().filter(|of| of.name == work.name).chain([&work]);
            for note in names_of(&alike.collect::<Vec<_>>()).1 {
                tell!("{}", printable_text(&note));
            }
        }
        let mut known = known.remove(&work).unwrap_or_default();
        let work = work.name;
        // All trees with changes have one name, whatever the changes are.
        for run in new.iter_mut().filter(|run| run.commit.ends_with("-dirty")) {
            run.commit = UNNAMED.to_owned();
        }
        // A commit and its abbreviation may be on different sides.
        let of_known = known.len();
        known.append(&mut new);
        unify(&mut known);
        let new = known.split_off(of_known);
        sides.push(Sides { work, known, new });
    }
    judge(sides, &args.how)
}

/// The commit of a run that doesn't state it.
#[cfg(feature = "parquet")]
fn named() -> Result<String> {
    Ok(crate::machine_name::commit()?.unwrap_or_else(|| UNNAMED.to_owned()))
}

/// Stands for the commit of the run that is judged.
const UNNAMED: &str = "the run";

/// The runs of one work on several machines.
struct Sides {
    work: String,
    known: Vec<Observation>,
    new: Vec<Observation>,
}

/// Both sides as runs of several machines; `None` unless their receipts name several.
fn of_machines(baseline: &Path, run: &Path, is_forced: bool) -> Result<Option<Vec<Sides>>> {
    let [mut known, mut new] = [Vec::new(), Vec::new()];
    let (mut machines, mut unnamed) = (BTreeSet::new(), BTreeSet::new());
    let mut not_verified = Vec::new();
    let mut by_hash: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut copies = None;
    for (path, side) in [(baseline, &mut known), (run, &mut new)] {
        for file in sides::files(path)? {
            // What can't be read, or was changed since, is told of where one machine's runs are compared.
            let Ok((run, refused)) = sealed(&file) else { return Ok(None) };
            match run.machine() {
                Some(machine) => _ = machines.insert(machine.to_owned()),
                None => _ = unnamed.insert(file.clone()),
            }
            if let Some(hash) = run.hash()
                && let Some(other) = by_hash.insert(hash.to_owned(), file.clone())
            {
                copies = copies.or(Some((other, file.clone())));
            }
            not_verified.extend(refused.map(|why| (file, why)));
            side.push(run);
        }
    }
    if machines.len() < 2 {
        return Ok(None);
    }
    if let Some(file) = unnamed.first() {
        bail!(
            "{}: it doesn't name its machine, while others are of several ones: set BRICKSCOPE_MACHINE where benchmarks \
             run, for all of them",
            file.display()
        );
    }
    if let Some((one, other)) = copies {
        bail!("{} and {} are the same receipt, so one is a copy", one.display(), other.display());
    }
    if !is_forced {
        whole(&known).context("the baseline")?;
        whole(&new).context("the run")?;
    }
    if let Some((file, why)) = not_verified.first().filter(|_| !is_forced) {
        let more = match not_verified.len() - 1 {
            0 => String::new(),
            more => format!("; {more} more aren't either"),
        };
        tell!("not verified: {}: {}{more}", output::shown(file), printable_text(why));
    }
    // Whatever it was built from, it is judged, unless it is what the baseline is of: nothing is slower than itself.
    let is_judged = |run: &Run| !known.iter().any(|known| known.is_same_build(run));
    let judged: Vec<bool> = new.iter().map(is_judged).collect();
    let by_kind = |runs: &[Run], judged: &[bool]| {
        let mut by_kind: BTreeMap<(SeriesKind, Work), Vec<Observation>> = BTreeMap::new();
        for (of, is_judged) in runs.iter().zip(judged) {
            for (kind, work, mut run) in of.observations(&Measure::TokensPerSecond) {
                if *is_judged {
                    UNNAMED.clone_into(&mut run.commit);
                }
                by_kind.entry((kind.clone(), work.clone())).or_default().push(run);
            }
        }
        by_kind
    };
    let of_baseline = known;
    let mut known = by_kind(&of_baseline, &vec![false; of_baseline.len()]);
    let model = |kind: &SeriesKind| {
        let mut runs = new.iter().chain(&of_baseline);
        let of_kind = runs.find(|run| run.kinds().any(|other| other == kind));
        of_kind.map_or("", Run::model)
    };
    let named = |kind: &SeriesKind| {
        format!(
            "{} {}, {}, {}",
            model(kind),
            kind.quantization,
            match &kind.device {
                None => format!(
                    "{} {}, {}",
                    kind.backend,
                    kind.kernels,
                    count(kind.threads.into(), "thread")
                ),
                Some(device) => format!("{} on {device}", kind.backend),
            },
            kind.test
        )
    };
    let sides = by_kind(&new, &judged).into_iter().map(|(of, new)| Sides {
        work: named(&of.0),
        known: known.remove(&of).unwrap_or_default(),
        new,
    });
    let sides = sides.collect();
    for (kind, _) in known.keys() {
        tell!("the baseline has {}, and the run doesn't: not judged", printable_text(&named(kind)));
    }
    Ok(Some(sides))
}

/// Refuses sets of which processes are missing.
fn whole(runs: &[Run]) -> Result<()> {
    let mut sets: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (name, processes) in runs.iter().filter_map(Run::set) {
        let (there, stated) = sets.entry(name).or_default();
        *there += 1;
        *stated = processes.max(*stated);
    }
    for (name, (there, stated)) in sets {
        // The half of a set is one side of `compare --processes`.
        ensure!(
            there >= stated || 2 * there == stated,
            "{} of the {stated} processes of set {name} are missing, which may change the result; --force judges by the \
             others",
            stated - there
        );
    }
    Ok(())
}

/// Takes commits and machines apart, and says whether the run's commit is slower.
fn judge(sides: Vec<Sides>, how: &ComparisonArgs) -> Result<ExitCode> {
    let format = how.format();
    ensure!(
        format != ComparisonFormat::Bmf,
        "--format bmf: it has figures of one machine, and these runs are of several"
    );
    ensure!(
        how.min_share.is_none(),
        "--min-share: it is about bricks, and runs of several machines are judged by their tokens per second"
    );
    ensure!(
        how.phase.is_none(),
        "--phase: runs of several machines are judged by each of their tests alone"
    );
    let limits = Limits { commit: how.threshold, ..Limits::default() };
    let mut judged: Vec<(String, Judged)> = Vec::new();
    let (mut unknown, mut is_any_known) = (Vec::new(), false);
    for Sides { work, known, new } in sides {
        if known.iter().all(|run| run.commit == new[0].commit) {
            is_any_known |= !known.is_empty();
            let why = match known.is_empty() {
                true => "the baseline has no run of it by another commit".to_owned(),
                false => format!(
                    "the baseline and the run are both of {}: what they differ by is the machines' and the sessions', never the \
                     commit's",
                    new[0].commit
                ),
            };
            unknown.push((work, why));
            continue;
        }
        let of_work = Fleet::judge(&known, &new, false, limits);
        judged.push((work.clone(), of_work.with_context(|| work)?));
    }
    if judged.is_empty() && !is_any_known {
        let works: Vec<&str> = unknown.iter().map(|(work, _)| &**work).collect();
        bail!(
            "the baseline has no run of another commit on such machines of {}",
            if works.is_empty() { "anything".to_owned() } else { works.join(" or ") }
        );
    }
    let text = judged.iter().map(|(work, of_work)| view::judged(of_work, work));
    let not_judged = unknown.iter().map(|(work, why)| {
        format!("{}: not decided\n{}\n", printable_text(work), printable_text(why))
    });
    let text = text.chain(not_judged).collect::<Vec<_>>().join("\n");
    output::print(match format {
        ComparisonFormat::Json => {
            let works: Vec<_> = judged
                .iter()
                .map(|(work, judged)| (work, Some(judged)))
                .chain(unknown.iter().map(|(work, _)| (work, None)))
                .map(|(work, judged)| serde_json::json!({ "work": work, "judged": judged }))
                .collect();
            serde_json::to_string_pretty(&works)? + "\n"
        }
        // Nothing in it ends the block.
        ComparisonFormat::Md => format!("```text\n{}```\n", text.replace('`', "'")),
        _ => text,
    })?;
    let any = |outcome| judged.iter().any(|(_, judged)| judged.outcome == outcome);
    Ok(ExitCode::from(if any(Outcome::Slower) {
        1
    } else if any(Outcome::Inconclusive) || !unknown.is_empty() {
        3
    } else {
        0
    }))
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
fn newest(baseline: Option<&Path>) -> Result<PathBuf> {
    let none = || {
        let home = output::shown(home());
        format!(
            "there is no benchmark in {home}: name a run, such as `@`, or make one with `benchmark`"
        )
    };
    let base = baseline.and_then(|baseline| fs::canonicalize(baseline).ok());
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    for entry in fs::read_dir(home()).with_context(none)? {
        let path = entry.with_context(|| output::shown(home()))?.path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_baseline = fs::canonicalize(&path).ok() == base && base.is_some();
        if is_hidden || is_baseline {
            continue;
        }
        let Ok(files) = sides::files(&path) else { continue };
        let is_receipt = |file: &PathBuf| file.to_string_lossy().ends_with("receipt.json");
        if !files.iter().all(is_receipt) {
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
        if let Some(profile) = llama_bench::read(file)? {
            profile.save(&folder.join("profile.json"))?;
            continue;
        }
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
