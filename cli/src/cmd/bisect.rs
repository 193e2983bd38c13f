//! `brickscope bisect`: finds the commit, or the version, that made a program slower.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use brickscope_analysis::bisect::{Bisect, Event, Kind, Next, Options, Verdict, Why};

use crate::bisect::git::Repo;
use crate::bisect::measure::check_pattern;
use crate::bisect::report;
use crate::bisect::runs::Figure;
use crate::bisect::search::Search;
use crate::bisect::state::{State, lock};
use crate::bisect::trees::Trees;
use crate::bisect::versions;
use crate::flags::threshold;
use crate::in_turns::Form;
use crate::runs::command::line;
use crate::{interrupt, output};

/// Find the commit, or the version, that made a program slower, on a machine whose times vary.
///
/// First it makes sure that the bad commit is slower than the good one at all. Then it measures commits between them in
/// turns with the good one, each as often as needed, and goes back where an answer was doubtful. At the end the commit
/// that it found runs in turns with the one before it, until the difference is beyond doubt.
///
/// --measure prints the result of one run: a number, the output of llama-bench or of `brickscope benchmark`, the path of a
/// receipt, or text in which --pattern finds the number. Builds are made in worktrees of their own; your checkout is not
/// touched. Commits that can't be built or measured are left out.
///
/// --run names a command that `brickscope run` takes instead, such as llama-bench: what counts is the time of its decode
/// passes, or of one brick in them, and the result ends with a table of what moved. --versions searches among versions that
/// somebody else built, without a repository: the script of --fetch gets each.
///
/// What was measured is kept after each run. Ctrl-C stops, and --resume goes on.
///
/// The exit code is 0 if a commit was found, 4 if there is none to be found, 3 if that could not be decided, 1 after an
/// error.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").args(["measure", "run", "resume"]).required(true),
    after_help = "Examples:\n  brickscope bisect --good v1.2 --bad HEAD --build 'cargo build --release' --measure './target/release/bench'\n  brickscope bisect --good b6100 --bad master --build 'cmake -B build && cmake --build build -t llama-bench' --measure './build/bin/llama-bench -m /models/m.gguf -p 0 -r 3 -o json'\n  brickscope bisect --good v1 --bad v2 --measure 'make -s run' --pattern 'eval time = {} ms' --less-is-better\n  brickscope bisect --good b6100 --build 'cmake -B build && cmake --build build -t llama-bench' --run './build/bin/llama-bench -m /models/m.gguf -p 0'\n  brickscope bisect --versions 0.3.1,0.3.2,0.3.4 --fetch 'python3 -m venv env && env/bin/pip install -q llama-cpp-python==$1' --run 'env/bin/python /bench/generate.py'\n  brickscope bisect --resume"
)]
pub(crate) struct BisectArgs {
    /// A commit that is fast: an ancestor of the bad one.
    #[arg(long, value_name = "COMMIT", required_unless_present_any = ["resume", "versions"])]
    pub(crate) good: Option<String>,

    /// A commit that is slow.
    #[arg(long, value_name = "COMMIT", default_value = "HEAD", conflicts_with = "resume")]
    pub(crate) bad: String,

    /// Versions instead of commits, with commas between them: the first one is fast, the last one is slow.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "fetch", conflicts_with_all = ["good", "bad", "build", "fresh", "keep", "repo", "resume"])]
    pub(crate) versions: Option<Vec<String>>,

    /// The shell script that fetches a version, $1 in it and also BRICKSCOPE_VERSION, into the folder that it runs in. What
    /// it fetched stays in --work for later searches.
    #[arg(long, value_name = "SCRIPT", requires = "versions")]
    pub(crate) fetch: Option<String>,

    /// The shell command that builds a commit, in its worktree.
    #[arg(long, value_name = "COMMAND", conflicts_with = "resume")]
    pub(crate) build: Option<String>,

    /// The shell command that measures a commit or a version once, in its folder. BRICKSCOPE_REVISION is its hash or name.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) measure: Option<String>,

    /// Measure this command under `brickscope run`, in the folder of the commit or the version, by the time of its passes.
    /// It may also be `profile …`. It is no shell's: a script has to end with `exec`.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["pattern", "less_is_better", "test"])]
    pub(crate) run: Option<String>,

    /// With --run: the phase whose passes count.
    #[arg(long, value_name = "PHASE", value_parser = ["decode", "prefill", "encode"], requires = "run")]
    pub(crate) phase: Option<String>,

    /// With --run: the brick whose time in a pass counts. Without it the whole pass does, or the one brick that is slower if
    /// the whole pass doesn't tell good from bad.
    #[arg(long, value_name = "NAME", requires = "run")]
    pub(crate) brick: Option<String>,

    /// Where the number stands in what --measure prints: text with {} in its place, such as 'eval time = {} ms'. Of
    /// several the last counts; first standard output is searched, then standard error.
    #[arg(long, value_name = "TEXT", conflicts_with = "resume")]
    pub(crate) pattern: Option<String>,

    /// The number is a time, and not a rate.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) less_is_better: bool,

    /// Which test counts, if the result has several, such as tg128.
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub(crate) test: Option<String>,

    /// The smallest difference that matters. If good and bad differ by less, there is none to be found.
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = threshold, conflicts_with = "resume")]
    pub(crate) least: f64,

    /// How likely it may be to find something between equal ends, or to overlook a difference that matters.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = threshold, conflicts_with = "resume")]
    pub(crate) false_alarm: f64,

    /// How likely it may be to name a commit that is no slower than the one before it.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = threshold, conflicts_with = "resume")]
    pub(crate) wrong: f64,

    /// The most measurements. Those of a warm-up don't count. With --resume, a search that ran out of them goes on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    pub(crate) max_measurements: Option<u64>,

    /// Runs after each build whose result doesn't count, since files are read for the first time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=100), conflicts_with = "resume")]
    pub(crate) warm_up: u32,

    /// The seed for the order within pairs. By default the time.
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    pub(crate) seed: Option<u64>,

    /// The repository.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) repo: PathBuf,

    /// The folder for builds and for what was measured. By default `brickscope-bisect` in the folder `.git`; of versions, in
    /// this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,

    /// Keep so many builds at once. The good commit's is always kept.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(3..=99))]
    pub(crate) keep: u8,

    /// Build each commit from nothing. Otherwise it is built over what an earlier one left in the worktree, which takes
    /// less time; and from nothing only if that fails.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) fresh: bool,

    /// Go on with the search that is in the folder. What it searches stays as it was.
    #[arg(long, conflicts_with_all = ["good", "measure", "anew"])]
    pub(crate) resume: bool,

    /// Discard the search that is in the folder, if it isn't over. One that is over is replaced without it.
    #[arg(long)]
    pub(crate) anew: bool,

    /// Print the result as Markdown, to paste into an issue: with --run, with a table of what moved.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,

    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The name of the folder for builds and for what was measured.
const FOLDER: &str = "brickscope-bisect";

/// The most measurements, unless the user says it.
const MOST: u64 = 1000;

pub(crate) fn run(args: &BisectArgs) -> Result<ExitCode> {
    // clap doesn't ask for --run where --measure, which it conflicts with, is there.
    let of_run = args.phase.is_some() || args.brick.is_some();
    ensure!(
        !(of_run && args.resume),
        "--phase and --brick can't be used with --resume: what a search goes by stays as it was"
    );
    ensure!(
        args.run.is_some() || !of_run,
        "--phase and --brick are of the runs that --run makes: name the command by --run"
    );
    ensure!(
        args.fetch.is_none() || args.versions.is_some(),
        "--fetch is for --versions: a commit is built by --build"
    );
    let (repo, work) = place(args)?;
    if args.resume {
        ensure!(
            State::file(&work).exists(),
            "there is no search to go on with in {}: begin one with --good and --measure",
            work.display()
        );
    }
    let _held = lock(&work)?;
    let mut state =
        if args.resume { State::load(&work)? } else { begun(args, repo.as_ref(), &work)? };
    if let Some(most) = args.max_measurements {
        let ran = |event: &&Event| matches!(event, Event::Ran(..));
        let before = state.figure.as_ref().and_then(|figure| figure.chosen_after).unwrap_or(0);
        let made = before + state.record.events.iter().filter(ran).count() as u64;
        ensure!(most >= made, "--max-measurements {most}: {made} were made already");
        state.record.options.max_measurements = most - before;
    }
    let file = State::file(&work);
    let mut bisect =
        Bisect::resumed(state.record.clone()).with_context(|| file.display().to_string())?;
    if state.is_stale() {
        bisect.begin_pair_anew();
    }
    state.record = bisect.record().clone();
    state.save(&work)?;
    interrupt::watch()?;
    interrupt::keep();
    let mut search = Search::new(repo.as_ref(), &work, state, bisect, args.keep.into())?;
    let Some(outcome) = search.run()? else {
        let named = |flag: &str, path: &Path| format!(" {flag} {}", output::shown(path));
        let repo =
            if args.repo == Path::new(".") { String::new() } else { named("--repo", &args.repo) };
        let work = args.work.as_deref().map(|work| named("--work", work)).unwrap_or_default();
        tell!("stopped; this goes on: brickscope bisect --resume{repo}{work}");
        return Err(interrupt::Nothing.into());
    };
    let form = match (args.json, args.markdown) {
        (true, _) => Form::Json,
        (_, true) => Form::Md,
        _ => Form::Text,
    };
    report::print(&search, &outcome, form)?;
    Ok(ExitCode::from(match outcome.verdict {
        Verdict::Found { .. } => 0,
        Verdict::Inconclusive { .. } => 3,
        Verdict::None { .. } => 4,
    }))
}

/// The repository, which versions have none of, and the folder for builds and for what was measured.
fn place(args: &BisectArgs) -> Result<(Option<Repo>, PathBuf)> {
    let named = args.work.as_ref().map(std::path::absolute).transpose().context("--work")?;
    let here = std::path::absolute(FOLDER).context("this folder")?;
    if args.versions.is_some() {
        return Ok((None, named.unwrap_or(here)));
    }
    let of_repo = || -> Result<(Option<Repo>, PathBuf)> {
        let repo = Repo::at(&args.repo)?;
        let work = match &named {
            Some(work) => work.clone(),
            None => repo.common_dir()?.join(FOLDER),
        };
        Ok((Some(repo), work))
    };
    let is_search = |work: &Path| State::file(work).exists();
    // Whether it is among versions is known to the search.
    let work = named.as_deref().unwrap_or(&here);
    let may_be_of_versions =
        args.resume && (named.is_some() || args.repo == Path::new(".")) && is_search(work);
    if !may_be_of_versions || State::load(work)?.kind() == Kind::Commit {
        return of_repo();
    }
    if let (None, Ok((_, other))) = (&named, of_repo()) {
        ensure!(
            !is_search(&other),
            "there are two searches to go on with: --work says which, {} or {}",
            output::shown(work),
            output::shown(&other)
        );
    }
    Ok((None, work.to_owned()))
}

/// Whether the search in the folder has its answer: then nobody waits to go on with it. One that ran out of measurements may
/// go on with more.
fn is_over(work: &Path) -> bool {
    let bisect = State::load(work).map(|state| Bisect::resumed(state.record));
    let Ok(Ok(bisect)) = bisect else { return false };
    match bisect.next() {
        // A machine that drifted would with more of them, too.
        Next::Done(outcome) => match outcome.verdict {
            Verdict::Inconclusive { why } => why == Why::Drift,
            _ => true,
        },
        Next::Run(_) => false,
    }
}

/// Whether the search in the folder measured nothing yet, such as one whose command has a typo.
fn has_nothing(work: &Path) -> bool {
    State::load(work).is_ok_and(|state| {
        let is_first = state.figure.as_ref().is_none_or(|figure| figure.chosen_after.is_none());
        is_first && state.record.events.is_empty()
    })
}

/// A new search.
fn begun(args: &BisectArgs, repo: Option<&Repo>, work: &Path) -> Result<State> {
    let Some(measure) = args.run.as_ref().or(args.measure.as_ref()) else {
        bail!("name the command that measures (--measure), or that is measured (--run)");
    };
    if let Some(pattern) = &args.pattern {
        check_pattern(pattern)?;
    }
    if args.run.is_some() {
        line(measure).with_context(|| format!("--run {measure}"))?;
    }
    let file = State::file(work);
    let is_over = file.exists() && is_over(work);
    let is_empty = file.exists() && has_nothing(work);
    ensure!(
        args.anew || is_over || is_empty || !file.exists(),
        "{} has a search already: --resume goes on with it, --anew discards it",
        work.display()
    );
    let revisions = match (repo, &args.versions, &args.good) {
        (Some(repo), None, Some(good)) => {
            let good = repo.hash("--good", good)?;
            let bad = repo.hash("--bad", &args.bad)?;
            repo.between(&good, &bad)?
        }
        (None, Some(versions), None) => {
            let versions: Vec<String> = versions.iter().map(|of| of.trim().to_owned()).collect();
            versions::check(&versions)?;
            versions
        }
        _ => bail!("name the good commit (--good), or versions (--versions)"),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let options = Options {
        // A run counts by its time.
        more_is_better: !args.less_is_better && args.run.is_none(),
        least: args.least,
        false_alarm: args.false_alarm,
        wrong: args.wrong,
        max_measurements: args.max_measurements.unwrap_or(MOST),
        // The lower digits differ most.
        seed: args.seed.unwrap_or(now as u64),
    };
    let bisect = Bisect::new(revisions.len() - 1, options)?;
    if is_over {
        let place = output::shown(work);
        tell!("the search before this one is over, and this one replaces it in {place}");
    } else if is_empty && !args.anew {
        let place = output::shown(work);
        tell!("the search before this one measured nothing, and this one replaces it in {place}");
    }
    if file.exists() {
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    // Whatever is there was built by another command, or for other commits.
    if let Some(repo) = repo {
        Trees::new(repo, work, None, false, 99).remove()?;
    }
    for kept in ["receipts", "runs"].map(|name| work.join(name)) {
        if kept.exists() {
            fs::remove_dir_all(&kept).with_context(|| kept.display().to_string())?;
        }
    }
    let mut state = State::new(revisions, measure, bisect.record().clone());
    state.build.clone_from(&args.build);
    state.fetch.clone_from(&args.fetch);
    state.figure = args.run.is_some().then(|| Figure {
        phase: args.phase.clone().unwrap_or_else(|| "decode".to_owned()),
        brick: args.brick.clone(),
        chosen_after: None,
    });
    state.pattern.clone_from(&args.pattern);
    state.test.clone_from(&args.test);
    state.warm_up = args.warm_up;
    state.fresh = args.fresh;
    Ok(state)
}
