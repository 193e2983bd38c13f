//! `brickscope bisect`: finds the commit that made a program slower.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use brickscope_analysis::bisect::{Bisect, Event, Next, Options, Outcome, Run, Verdict, Why};
use brickscope_analysis::compare::{self, Process, Side, Turn, compare};
use brickscope_analysis::receipt::{self, Receipt};
use serde::Serialize;

use crate::bisect::git::{Commit, Repo, short};
use crate::bisect::measure::{How, Measured, check_pattern, measure};
use crate::bisect::shown;
use crate::bisect::state::{State, lock};
use crate::bisect::trees::{Built, Trees};
use crate::flags::threshold;
use crate::text::{count, printable_text};
use crate::{interrupt, output};

/// Find the commit that made a program slower, on a machine whose times vary.
///
/// First it makes sure that the bad commit is slower than the good one at all. Then it measures commits between them in
/// turns with the good one, each as often as needed, and goes back where an answer was doubtful. At the end the commit
/// that it found runs in turns with the one before it, until the difference is beyond doubt.
///
/// --measure prints the result of one run: a number, JSON of llama-bench or of `brickscope benchmark`, the path of a
/// receipt, or text in which --pattern finds the number. Builds are made in worktrees of their own; your checkout is not
/// touched. Commits that can't be built or measured are left out.
///
/// What was measured is kept after each run. Ctrl-C stops, and --resume goes on.
///
/// The exit code is 0 if a commit was found, 4 if there is none to be found, 3 if that could not be decided, 1 after an
/// error.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope bisect --good v1.2 --bad HEAD --build 'cargo build --release' --measure './target/release/bench'\n  brickscope bisect --good b6100 --bad master --build 'cmake -B build && cmake --build build -t llama-bench' --measure './build/bin/llama-bench -m /models/m.gguf -p 0 -r 3 -o json'\n  brickscope bisect --good v1 --bad v2 --measure 'make -s run' --pattern 'eval time = {} ms' --less-is-better\n  brickscope bisect --resume"
)]
pub(crate) struct BisectArgs {
    /// A commit that is fast: an ancestor of the bad one.
    #[arg(long, value_name = "COMMIT", required_unless_present = "resume")]
    pub(crate) good: Option<String>,

    /// A commit that is slow.
    #[arg(long, value_name = "COMMIT", default_value = "HEAD", conflicts_with = "resume")]
    pub(crate) bad: String,

    /// The shell command that builds a commit, in its worktree.
    #[arg(long, value_name = "COMMAND", conflicts_with = "resume")]
    pub(crate) build: Option<String>,

    /// The shell command that measures a commit once, in its worktree. BRICKSCOPE_REVISION is its hash.
    #[arg(long, value_name = "COMMAND", required_unless_present = "resume")]
    pub(crate) measure: Option<String>,

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

    /// The folder for builds and for what was measured. By default `brickscope-bisect` in the folder `.git`.
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

    /// Discard the search that is in the folder.
    #[arg(long)]
    pub(crate) anew: bool,

    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The most measurements, unless the user says it.
const MOST: u64 = 1000;

/// Commits of a range that are looked up.
const MOST_COMMITS: usize = 1000;

pub(crate) fn run(args: &BisectArgs) -> Result<ExitCode> {
    let repo = Repo::at(&args.repo)?;
    let work = match &args.work {
        Some(work) => std::path::absolute(work).context("--work")?,
        None => repo.common_dir()?.join("brickscope-bisect"),
    };
    if args.resume {
        ensure!(
            State::file(&work).exists(),
            "there is no search to go on with in {}: begin one with --good, --bad and --measure",
            work.display()
        );
    }
    let _held = lock(&work)?;
    let mut state = if args.resume { State::load(&work)? } else { begun(args, &repo, &work)? };
    if let Some(most) = args.max_measurements {
        let ran = |event: &&Event| matches!(event, Event::Ran(..));
        let made = state.record.events.iter().filter(ran).count() as u64;
        ensure!(most >= made, "--max-measurements {most}: {made} were made already");
        state.record.options.max_measurements = most;
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
    let mut search = Search::new(args, &repo, &work, state, bisect);
    let Some(outcome) = search.run()? else {
        let named = |flag: &str, path: &Path| format!(" {flag} {}", output::shown(path));
        let repo =
            if args.repo == Path::new(".") { String::new() } else { named("--repo", &args.repo) };
        let work = args.work.as_deref().map(|work| named("--work", work)).unwrap_or_default();
        tell!("stopped; this goes on: brickscope bisect --resume{repo}{work}");
        return Err(interrupt::Nothing.into());
    };
    search.report(args, &outcome)?;
    Ok(ExitCode::from(match outcome.verdict {
        Verdict::Found { .. } => 0,
        // Nothing was decided then.
        Verdict::None { why: Why::Drift } | Verdict::Inconclusive { .. } => 3,
        Verdict::None { .. } => 4,
    }))
}

/// A new search.
fn begun(args: &BisectArgs, repo: &Repo, work: &Path) -> Result<State> {
    let file = State::file(work);
    ensure!(
        args.anew || !file.exists(),
        "{} has a search already: --resume goes on with it, --anew discards it",
        work.display()
    );
    let (Some(good), Some(measure)) = (&args.good, &args.measure) else {
        bail!("name the good commit (--good) and the command that measures (--measure)");
    };
    if let Some(pattern) = &args.pattern {
        check_pattern(pattern)?;
    }
    let good = repo.hash("--good", good)?;
    let bad = repo.hash("--bad", &args.bad)?;
    let revisions = repo.between(&good, &bad)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let options = Options {
        more_is_better: !args.less_is_better,
        least: args.least,
        false_alarm: args.false_alarm,
        wrong: args.wrong,
        max_measurements: args.max_measurements.unwrap_or(MOST),
        // The lower digits differ most.
        seed: args.seed.unwrap_or(now as u64),
    };
    let bisect = Bisect::new(revisions.len() - 1, options)?;
    if file.exists() {
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    // Whatever is there was built by another command, or for other commits.
    Trees::new(repo, work, None, false, 99).remove()?;
    let receipts = work.join("receipts");
    if receipts.exists() {
        fs::remove_dir_all(&receipts).with_context(|| receipts.display().to_string())?;
    }
    let mut state = State::new(revisions, measure, bisect.record().clone());
    state.build.clone_from(&args.build);
    state.pattern.clone_from(&args.pattern);
    state.test.clone_from(&args.test);
    state.warm_up = args.warm_up;
    state.fresh = args.fresh;
    Ok(state)
}

struct Search<'t> {
    repo: &'t Repo,
    work: &'t Path,
    state: State,
    bisect: Bisect,
    keep: usize,
    how: How,
    /// Runs of each revision that didn't count, since this process began or it was built.
    warmed: HashMap<usize, u32>,
    /// How long measurements took, in seconds, and how many there were.
    took: (f64, u32),
}

/// How one step of a search ended.
enum Step<T> {
    Done(T),
    /// The revision was left out.
    LeftOut,
    Interrupted,
}

impl<'t> Search<'t> {
    fn new(
        args: &BisectArgs,
        repo: &'t Repo,
        work: &'t Path,
        state: State,
        bisect: Bisect,
    ) -> Self {
        let how = How {
            pattern: state.pattern.clone(),
            test: state.test.clone(),
            less_is_better: !state.record.options.more_is_better,
        };
        let (keep, warmed) = (args.keep.into(), HashMap::new());
        Self { repo, work, state, bisect, keep, how, warmed, took: (0.0, 0) }
    }

    fn hash(&self, revision: usize) -> &str {
        self.state.revisions.get(revision).map_or("", String::as_str)
    }

    /// `None` if somebody asked to stop.
    fn run(&mut self) -> Result<Option<Outcome>> {
        let last = self.state.record.last;
        let (from, to) = (short(self.hash(0)), short(self.hash(last)));
        let most = self.state.record.options.max_measurements;
        tell!(
            "{} from {from} (good) to {to} (bad), at most {most} measurements",
            count(last as u64, "commit")
        );
        let build = self.state.build.clone();
        let (repo, fresh) = (self.repo, self.state.fresh);
        let mut trees = Trees::new(repo, self.work, build.as_deref(), fresh, self.keep);
        trees.find(&self.state.revisions);
        let mut is_headed = false;
        loop {
            let run = match self.bisect.next() {
                Next::Run(run) => run,
                Next::Done(outcome) => {
                    // A search that ran out of measurements may go on.
                    if !matches!(outcome.verdict, Verdict::Inconclusive { .. }) {
                        trees.remove()?;
                    }
                    return Ok(Some(*outcome));
                }
            };
            // Both, so that nothing is built between the two of a pair.
            let (a, b) = (run.revision.min(run.beside), run.revision.max(run.beside));
            let ready = match self.ready(a, b, &mut trees)? {
                Step::Done(first) => match self.ready(b, a, &mut trees)? {
                    Step::Done(second) => {
                        Step::Done(if run.revision == a { first } else { second })
                    }
                    other => other,
                },
                other => other,
            };
            let step = match ready {
                Step::Done(folder) => {
                    if !is_headed {
                        tell!(
                            "pair what    commit    slower (95 % interval)    commits that may be it"
                        );
                        is_headed = true;
                    }
                    self.once(run.revision, &folder)?
                }
                Step::LeftOut => Step::LeftOut,
                Step::Interrupted => Step::Interrupted,
            };
            match step {
                Step::Done((value, receipt)) => self.add(run, value, receipt)?,
                Step::LeftOut => {}
                Step::Interrupted => return Ok(None),
            }
            if interrupt::is_asked() {
                return Ok(None);
            }
        }
    }

    /// Takes a result, keeps it, and tells of a pair.
    fn add(&mut self, run: Run, value: f64, receipt: Option<PathBuf>) -> Result<()> {
        let number = self.bisect.record().events.iter();
        let number = number.filter(|event| matches!(event, Event::Ran(..))).count();
        let pairs = self.bisect.pairs();
        self.bisect.add(value)?;
        if let Some(path) = receipt {
            let name = format!("{number:06}.json");
            let folder = self.work.join("receipts");
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            fs::copy(&path, folder.join(&name)).with_context(|| path.display().to_string())?;
            self.state.receipts.insert(number, name);
        }
        self.save()?;
        if self.bisect.pairs() > pairs {
            let (a, b) = (run.revision.min(run.beside), run.revision.max(run.beside));
            let each = (self.took.1 > 0).then(|| self.took.0 / f64::from(self.took.1));
            let of = self.bisect.beside(a, b);
            let progress = self.bisect.progress();
            tell!("{}", shown::pair(pairs + 1, &run, self.hash(b), of.as_ref(), &progress, each));
        }
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        self.state.record = self.bisect.record().clone();
        self.state.save(self.work)
    }

    /// Builds a revision and warms it up, where that is needed.
    fn ready(
        &mut self,
        revision: usize,
        beside: usize,
        trees: &mut Trees<'_>,
    ) -> Result<Step<PathBuf>> {
        let hash = self.hash(revision).to_owned();
        let folder = match trees.build(revision, &hash, beside)? {
            Built::Here(folder) => folder,
            Built::New(folder) => {
                self.warmed.remove(&revision);
                folder
            }
            Built::Failed(why) => return self.left_out(revision, &why).map(|()| Step::LeftOut),
            Built::Interrupted => return Ok(Step::Interrupted),
        };
        while self.warmed.get(&revision).copied().unwrap_or(0) < self.state.warm_up {
            match self.once(revision, &folder)? {
                Step::Done(_) => *self.warmed.entry(revision).or_default() += 1,
                Step::LeftOut => return Ok(Step::LeftOut),
                Step::Interrupted => return Ok(Step::Interrupted),
            }
            if interrupt::is_asked() {
                return Ok(Step::Interrupted);
            }
        }
        Ok(Step::Done(folder))
    }

    /// Measures a revision. One failure may be bad luck.
    fn once(&mut self, revision: usize, folder: &Path) -> Result<Step<(f64, Option<PathBuf>)>> {
        let hash = self.hash(revision).to_owned();
        let mut attempts = 0;
        loop {
            let began = Instant::now();
            match measure(&self.state.measure, folder, &hash, self.work, &self.how)? {
                Measured::Value(reading) => {
                    self.took.0 += began.elapsed().as_secs_f64();
                    self.took.1 += 1;
                    return Ok(Step::Done((reading.value, reading.receipt)));
                }
                Measured::Interrupted => return Ok(Step::Interrupted),
                Measured::Failed(_) if attempts == 0 => attempts += 1,
                Measured::Failed(why) => {
                    return self.left_out(revision, &why).map(|()| Step::LeftOut);
                }
            }
        }
    }

    /// # Errors
    ///
    /// If there is no answer without the revision.
    fn left_out(&mut self, revision: usize, why: &str) -> Result<()> {
        let hash = short(self.hash(revision)).to_owned();
        if revision == 0 || revision == self.state.record.last {
            let which = if revision == 0 { "good" } else { "bad" };
            bail!("{hash} ({which}) can't be measured: {why}");
        }
        tell!("{hash} is left out: {why}");
        self.bisect.unusable(revision)?;
        self.state.left_out.insert(revision, why.to_owned());
        self.save()
    }

    fn report(&self, args: &BisectArgs, outcome: &Outcome) -> Result<()> {
        let named = match outcome.verdict {
            Verdict::Found { after, to } => after + 1..to + 1,
            _ => 0..0,
        };
        let commits =
            named.take(MOST_COMMITS).map(|revision| self.repo.commit(self.hash(revision)));
        let found = commits.collect::<Result<Vec<Commit>>>()?;
        let bricks = self.bricks(outcome).unwrap_or_default();
        let left_out = self.state.left_out.iter();
        let left_out = left_out.map(|(revision, why)| (self.hash(*revision), why.as_str()));
        let ran = self.state.record.events.iter().filter_map(|event| match event {
            Event::Ran(revision, _) => Some(*revision),
            _ => None,
        });
        let options = &self.state.record.options;
        let context = shown::Context {
            revisions: &self.state.revisions,
            outcome,
            found,
            left_out: left_out.collect(),
            false_alarm: options.false_alarm,
            wrong: options.wrong,
            least: options.least,
            bricks: bricks.iter().map(Moved::shown).collect(),
            measured: ran.collect::<BTreeSet<usize>>().len(),
        };
        if !args.json {
            return output::print(shown::outcome(&context));
        }
        let likely = outcome.likely;
        let json = Json {
            verdict: outcome.verdict,
            commits: &context.found,
            parent: match outcome.verdict {
                Verdict::Found { after, .. } => Some(self.hash(after)),
                _ => None,
            },
            good: self.hash(0),
            bad: self.hash(self.state.record.last),
            first_likely: self.hash(likely.first),
            last_likely: self.hash(likely.last),
            left_out: context.left_out.iter().map(|(hash, why)| LeftOut { hash, why }).collect(),
            bricks: &bricks,
            least: options.least,
            false_alarm: options.false_alarm,
            wrong: options.wrong,
            commits_measured: context.measured,
            outcome,
        };
        output::print(serde_json::to_string_pretty(&json)? + "\n")
    }

    /// The bricks that moved between the commit that was found and the one before it; `None` without receipts.
    fn bricks(&self, outcome: &Outcome) -> Option<Vec<Moved>> {
        let Verdict::Found { after, to } = outcome.verdict else { return None };
        let mut sides = [(); 2].map(|()| Side::default());
        let mut place = 0;
        for pair in self.state.receipts_of(after, to) {
            for (revision, name) in pair {
                let path = self.work.join("receipts").join(name);
                let receipt = Receipt::from_bytes(&receipt::read(&path).ok()?, &path).ok()?;
                let mut process = Process::from_receipt(name, &receipt);
                process.turns = vec![Turn { among: "bisect".to_owned(), place }];
                sides[usize::from(revision == to)].processes.push(process);
                place += 1;
            }
        }
        for (side, revision) in sides.iter_mut().zip([after, to]) {
            side.name = short(self.hash(revision)).to_owned();
        }
        let options = compare::Options { is_forced: true, ..compare::Options::default() };
        let comparison = compare(&sides[0], &sides[1], &options).ok()?;
        let wanted = self.state.test.as_deref();
        let tests = comparison.tests.iter();
        let tests = tests.filter(|test| wanted.is_none_or(|wanted| test.name == wanted));
        let mut moved: Vec<Moved> = tests
            .flat_map(|test| test.bricks.iter().map(move |brick| (test, brick)))
            .filter(|(_, brick)| {
                matches!(brick.verdict, compare::Verdict::Slower | compare::Verdict::Faster)
            })
            .filter_map(|(test, brick)| {
                Some(Moved {
                    test: test.name.clone(),
                    brick: brick.name.clone(),
                    change: brick.change?,
                    low: brick.low,
                    high: brick.high,
                    share: brick.share,
                    more_ns: brick.b_ns? - brick.a_ns?,
                })
            })
            .collect();
        moved.sort_by(|a, b| b.more_ns.abs().total_cmp(&a.more_ns.abs()));
        moved.truncate(8);
        Some(moved)
    }
}

/// A brick that takes longer, or less long, than before.
#[derive(Debug, Serialize)]
struct Moved {
    test: String,
    brick: String,
    /// 0.03 for 3 % longer.
    change: f64,
    low: Option<f64>,
    high: Option<f64>,
    /// Its part of the test before.
    share: Option<f64>,
    /// Nanoseconds of one sample.
    more_ns: f64,
}

impl Moved {
    fn shown(&self) -> String {
        let share = self.share.map_or(String::new(), |share| {
            format!(", which was {:.1} % of {}", 100.0 * share, printable_text(&self.test))
        });
        format!("{} {:+.1} %{share}", printable_text(&self.brick), 100.0 * self.change)
    }
}

#[derive(Debug, Serialize)]
struct LeftOut<'t> {
    hash: &'t str,
    why: &'t str,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Json<'t> {
    verdict: Verdict,
    commits: &'t [Commit],
    parent: Option<&'t str>,
    good: &'t str,
    bad: &'t str,
    first_likely: &'t str,
    last_likely: &'t str,
    left_out: Vec<LeftOut<'t>>,
    bricks: &'t [Moved],
    least: f64,
    false_alarm: f64,
    wrong: f64,
    commits_measured: usize,
    outcome: &'t Outcome,
}
