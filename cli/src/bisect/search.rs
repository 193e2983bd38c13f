//! A search: asks what to measure next, builds or fetches it, measures it, and keeps the result.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use brickscope_analysis::bisect::{
    Bisect, Event, Next, Options, Outcome, Purpose, Run, Verdict, Why,
};
use brickscope_analysis::compare::look_after;
use brickscope_analysis::view::bisect as shown;

use super::git::Repo;
use super::measure::{How, measure};
use super::reading::{Measured, Reading};
use super::runs::{self, Figure};
use super::state::State;
use super::trees::{Built, Trees};
use super::versions::Versions;
use crate::interrupt;
use crate::runs::again::Line;
use crate::runs::command::line;
use crate::text::{WIDTH, broken, count, printable};

/// A search that goes on.
#[derive(Debug)]
pub(crate) struct Search<'t> {
    /// `None` of versions.
    repo: Option<&'t Repo>,
    work: &'t Path,
    pub(super) state: State,
    bisect: Bisect,
    keep: usize,
    how: How,
    /// The command that is measured by its runs.
    line: Option<Line>,
    /// Runs of each revision that didn't count, since this process began or it was built.
    warmed: HashMap<usize, u32>,
    /// How long measurements took, in seconds, and how many there were.
    took: (f64, u32),
}

/// Where the builds are.
enum Folders<'t> {
    Trees(Trees<'t>),
    Versions(Versions<'t>),
}

impl Folders<'_> {
    fn ready(&mut self, revision: usize, name: &str, beside: usize) -> Result<Built> {
        match self {
            Self::Trees(trees) => trees.build(revision, name, beside),
            Self::Versions(versions) => versions.fetch(name),
        }
    }

    /// Removes what can be built again. What was fetched stays.
    fn remove(&mut self) -> Result<()> {
        match self {
            Self::Trees(trees) => trees.remove(),
            Self::Versions(_) => Ok(()),
        }
    }
}

/// How one step of a search ended.
enum Step<T> {
    Done(T),
    /// The revision was left out.
    LeftOut,
    Interrupted,
}

impl<'t> Search<'t> {
    /// Keeps at most `keep` worktrees.
    ///
    /// # Errors
    ///
    /// If the command that is measured is none.
    pub(crate) fn new(
        repo: Option<&'t Repo>,
        work: &'t Path,
        state: State,
        bisect: Bisect,
        keep: usize,
    ) -> Result<Self> {
        let how = How {
            pattern: state.pattern.clone(),
            test: state.test.clone(),
            less_is_better: !state.record.options.more_is_better,
        };
        let line = state.figure.is_some().then(|| line(&state.measure)).transpose()?;
        let warmed = HashMap::new();
        Ok(Self { repo, work, state, bisect, keep, how, line, warmed, took: (0.0, 0) })
    }

    /// The hash of a commit, or a version.
    pub(super) fn revision(&self, revision: usize) -> &str {
        self.state.revisions.get(revision).map_or("", String::as_str)
    }

    /// The same as it is told.
    pub(super) fn told(&self, revision: usize) -> &str {
        self.state.kind().told(self.revision(revision))
    }

    pub(super) fn work(&self) -> &Path {
        self.work
    }

    pub(super) fn repo(&self) -> Option<&Repo> {
        self.repo
    }

    /// `None` if somebody asked to stop.
    pub(crate) fn run(&mut self) -> Result<Option<Outcome>> {
        let last = self.state.record.last;
        let noun = self.state.kind().noun();
        tell!(
            "{} from {} (good) to {} (bad), at most {} measurements",
            count(last as u64 + 1, noun),
            self.told(0),
            self.told(last),
            self.state.record.options.max_measurements
        );
        let (build, fetch) = (self.state.build.clone(), self.state.fetch.clone());
        let mut folders = match (self.repo, &fetch) {
            (_, Some(script)) => Folders::Versions(Versions::new(self.work, script)),
            (Some(repo), None) => {
                let (fresh, keep) = (self.state.fresh, self.keep);
                let mut trees = Trees::new(repo, self.work, build.as_deref(), fresh, keep);
                trees.find(&self.state.revisions);
                Folders::Trees(trees)
            }
            (None, None) => bail!("commits need a repository"),
        };
        let mut is_headed = false;
        loop {
            let run = match self.bisect.next() {
                Next::Run(run) => run,
                Next::Done(outcome) => {
                    // A search that was killed before it asked for a brick asks now.
                    let before = self.state.figure.clone();
                    self.by_brick()?;
                    if self.state.figure != before {
                        continue;
                    }
                    // A search that ran out of measurements may go on.
                    if !matches!(outcome.verdict, Verdict::Inconclusive { .. }) {
                        folders.remove()?;
                    }
                    return Ok(Some(*outcome));
                }
            };
            // Both, so that nothing is built between the two of a pair.
            let (a, b) = (run.revision.min(run.beside), run.revision.max(run.beside));
            let ready = match self.ready(a, b, &mut folders)? {
                Step::Done(first) => match self.ready(b, a, &mut folders)? {
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
                            "pair what    {noun:<9} slower (95 % interval)    {noun}s that may be it"
                        );
                        is_headed = true;
                    }
                    self.once(run.revision, &folder)?
                }
                Step::LeftOut => Step::LeftOut,
                Step::Interrupted => Step::Interrupted,
            };
            match step {
                Step::Done(reading) => {
                    if self.add(run, reading)? && run.purpose == Purpose::Ends {
                        self.by_brick()?;
                    }
                }
                Step::LeftOut => {}
                Step::Interrupted => return Ok(None),
            }
            if interrupt::is_asked() {
                return Ok(None);
            }
        }
    }

    /// Takes a result, keeps it, and tells of a pair. Returns whether it was a pair's second one.
    fn add(&mut self, run: Run, reading: Reading) -> Result<bool> {
        let number = self.bisect.record().events.iter();
        let number = number.filter(|event| matches!(event, Event::Ran(..))).count();
        let pairs = self.bisect.pairs();
        self.bisect.add(reading.value)?;
        if reading.receipt.is_some() || reading.run.is_some() {
            let name = format!("{number:06}.json");
            let folder = self.state.kept(self.work);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let to = folder.join(&name);
            if let Some(path) = &reading.receipt {
                fs::copy(path, &to).with_context(|| path.display().to_string())?;
            }
            if let Some(run) = &reading.run {
                run.save(&to)?;
            }
            self.state.receipts.insert(number, name);
        }
        self.save()?;
        let is_pair = self.bisect.pairs() > pairs;
        if is_pair {
            let (a, b) = (run.revision.min(run.beside), run.revision.max(run.beside));
            let each = (self.took.1 > 0).then(|| self.took.0 / f64::from(self.took.1));
            let of = self.bisect.beside(a, b);
            let progress = self.bisect.progress();
            tell!("{}", shown::pair(pairs + 1, &run, self.told(b), of.as_ref(), &progress, each));
        }
        Ok(is_pair)
    }

    fn save(&mut self) -> Result<()> {
        self.state.record = self.bisect.record().clone();
        self.state.save(self.work)
    }

    /// Builds or fetches a revision and warms it up, where that is needed.
    fn ready(
        &mut self,
        revision: usize,
        beside: usize,
        folders: &mut Folders<'_>,
    ) -> Result<Step<PathBuf>> {
        let name = self.revision(revision).to_owned();
        let folder = match folders.ready(revision, &name, beside)? {
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
    fn once(&mut self, revision: usize, folder: &Path) -> Result<Step<Reading>> {
        let name = self.revision(revision).to_owned();
        let mut attempts = 0;
        loop {
            let began = Instant::now();
            let measured = match (&self.line, &self.state.figure) {
                (Some(line), Some(figure)) => {
                    runs::measure(line, folder, &name, self.work, figure)?
                }
                _ => measure(&self.state.measure, folder, &name, self.work, &self.how)?,
            };
            match measured {
                Measured::Value(reading) => {
                    self.took.0 += began.elapsed().as_secs_f64();
                    self.took.1 += 1;
                    return Ok(Step::Done(reading));
                }
                Measured::Interrupted => return Ok(Step::Interrupted),
                Measured::Failed(_) if attempts == 0 => attempts += 1,
                Measured::Failed(why) => {
                    return self.left_out(revision, &why).map(|()| Step::LeftOut);
                }
            }
        }
    }

    /// After a pair of good and bad: goes over to the time of one brick, where the whole pass doesn't tell them apart and one
    /// brick alone does. The looks come at the numbers of pairs at which `versus` looks, and at the end.
    ///
    /// The pairs that chose the brick can't also prove it, so the search begins anew.
    fn by_brick(&mut self) -> Result<()> {
        let figure = self.state.figure.as_ref().filter(|figure| figure.brick.is_none());
        let Some(figure) = figure.filter(|_| !self.bisect.ends_differ()) else { return Ok(()) };
        let options = &self.state.record.options;
        let last = self.state.record.last;
        let pairs = self.state.receipts_of(0, last);
        let look = match self.bisect.next() {
            Next::Run(_) => look_after(pairs.len()),
            Next::Done(outcome) => {
                let seen = (0..pairs.len()).filter_map(look_after).max().unwrap_or(0);
                let is_same = outcome.verdict == Verdict::None { why: Why::NoDifference };
                is_same.then_some(seen + 1)
            }
        };
        let made = self.bisect.progress().measurements;
        let most = options.max_measurements.saturating_sub(made);
        let Some(look) = look.filter(|_| most >= 2) else { return Ok(()) };
        let folder = self.state.kept(self.work);
        let ends = [0, last];
        let found = runs::beside(&folder, &pairs, ends, Some(look), options.least, options.seed)?;
        let Some(brick) = runs::only_slower(&found.versus, &figure.phase) else { return Ok(()) };
        let said = format!(
            "the whole {} pass doesn't tell good from bad, and of its bricks {} alone does: from here its time counts",
            figure.phase,
            printable(&brick)
        );
        broken(&said, WIDTH).iter().for_each(|line| tell!("{line}"));
        let phase = figure.phase.clone();
        let chosen = Figure { phase, brick: Some(brick), chosen_after: Some(made) };
        // Other coins than those that chose it.
        let seed = options.seed.wrapping_add(1);
        let options = Options { max_measurements: most, seed, ..options.clone() };
        self.bisect = Bisect::new(last, options)?;
        self.state.figure = Some(chosen);
        self.state.receipts.clear();
        self.save()?;
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
    }

    /// # Errors
    ///
    /// If there is no answer without the revision.
    fn left_out(&mut self, revision: usize, why: &str) -> Result<()> {
        let name = self.told(revision).to_owned();
        if revision == 0 || revision == self.state.record.last {
            let which = if revision == 0 { "good" } else { "bad" };
            bail!("{name} ({which}) can't be measured: {why}");
        }
        tell!("{name} is left out: {why}");
        self.bisect.unusable(revision)?;
        self.state.left_out.insert(revision, why.to_owned());
        self.save()
    }
}
