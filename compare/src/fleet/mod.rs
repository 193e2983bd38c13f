//! Is it the commit or the machine? Runs of many commits on many machines, taken apart.
//!
//! A benchmark in CI runs on whatever machine is free. If the newest commit's figure is 8 % lower, then the commit may be
//! slow, or the machine, or both, or it was one bad session. [`Fleet::fit`] estimates all of them together, by a mixed
//! model of the logarithms: commits have a level that stays until a commit changes it, while machines, and sessions of
//! one machine, deviate from it at random. Outliers don't move it. Then it names the commits that changed the level
//! ([`Fleet::changes`]) and the machines that are slow among their kind or became slow ([`Fleet::machines`]); of fleets
//! in which nothing is the matter at most 1 in 100 get any name. [`Fleet::explain`] answers for two groups of runs.
//!
//! ```
//! use brickscope_compare::fleet::{Cause, Fleet, Observation};
//!
//! let commits: Vec<String> = (0..10).map(|i| format!("c{i}")).collect();
//! let mut runs = Vec::new();
//! for (c, commit) in commits.iter().enumerate() {
//!     for m in 0..6 {
//!         // From c5 on 5 % fewer tokens per second; machines and runs vary by about 1 %.
//!         let noise = ((c * 31 + m * 17) % 13) as f64 / 1000.0 + (m % 3) as f64 / 100.0;
//!         let rate = if c < 5 { 100.0 } else { 95.0 } * (1.0 + noise);
//!         let (machine, session) = (format!("m{m}"), format!("day {c}"));
//!         let time = 86_400 * c as i64;
//!         runs.push(Observation { machine, session, commit: commit.clone(), time, value: rate });
//!     }
//! }
//! let fleet = Fleet::fit(&runs, &commits, false)?;
//! assert_eq!(fleet.changes.len(), 1);
//! assert_eq!(fleet.changes[0].commit, "c5");
//! assert!(fleet.machines.iter().all(|machine| machine.slow != Some(true)));
//!
//! let of = |commit: &str| -> Vec<Observation> {
//!     runs.iter().filter(|run| run.commit == commit).cloned().collect()
//! };
//! assert_eq!(fleet.explain(&of("c4"), &of("c5"))?.cause, Cause::Commit);
//! # Ok::<(), brickscope_compare::fleet::FleetError>(())
//! ```
//!
//! # What it can tell
//!
//! In 200 machines that vary by 2 to 2.5 %, 50 commits on 8 to 20 of them each, in two sessions of three processes, with the
//! noise of decode as recorded (1.2 %, with outliers of 30 %), all of three machines that are 10 to 25 % slow and two
//! commits that change the speed by 3 to 8 % are named, and nothing else, in 97 of 100 fleets. The test
//! `table` in `tests/fleet/` measures it, and what an oracle would name. What limits it:
//!
//! - A machine is slow if it is slower than the slowest of so many machines ever is by chance. For 200 machines that is
//!   about 4.1 of their standard deviations: 8 % where they vary by 2 %, 12 % where by 3 %; of three such machines each needs
//!   3.8. A machine needs three sessions to be judged at all, and with outliers four to eight.
//! - Builds that differ by luck look like changes. Two commits say nothing of how much they do; luck of half a per cent is taken
//!   for usual then, so that a change of 2 or 3 % between two commits gets no name.
//! - A commit of one day alone is never named, however slow it was: all machines may have been slow that day.
//! - With few runs and much noise a step may be found a commit too early or late
//!   ([`earliest`](CommitChange::earliest) and [`latest`](CommitChange::latest) say so): for noise of 4 % and steps of 3 to
//!   8 %, one in 40.
//! - Sessions of a machine are taken to be disturbed independently of each other. A machine that is disturbed for weeks is
//!   slow, whatever the reason.
//!
//! What the design can't tell is said before anything is estimated: commits that no machine ran both of, or one machine only,
//! one after the other; commits of one day, on which all machines may have been slow; machines that changed one after the
//! other.
//!
//! | file | contents |
//! |---|---|
//! | `cells.rs` | runs, sorted by machine, session and commit, and their days |
//! | `design.rs` | which machines ran both sides, on which days, and whether they agree |
//! | `groups.rs` | the level of each commit on each day, by differences within machines |
//! | `model.rs` | the mixed model and its robust estimates |
//! | `steps.rs` | which commits changed the level |
//! | `machines.rs` | which machines are slow, or became slow |
//! | `explain.rs` | what two groups of runs differ by |
//! | `judge.rs` | whether the newest commit is slower |

mod cells;
mod design;
mod explain;
mod groups;
mod judge;
mod machines;
mod model;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use brickscope_profile::stats::median;
pub use explain::{Cause, Effect, Explanation, Wanted};
pub use judge::Judged;
use serde::Serialize;

use self::cells::Cells;
use self::design::{Design, Doubt};
use self::groups::Groups;
use self::model::{Model, Unit};

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Observation {
    /// The machine. All machines of a fleet are of one kind, as far as anybody knows.
    pub machine: String,
    /// The commit that was measured.
    pub commit: String,
    /// What names the machine's runs close in time, such as a boot, a day or a CI job: what disturbs one of
    /// them may disturb all. Machines may use the same names.
    pub session: String,
    /// When it ran, in seconds from any origin.
    pub time: i64,
    /// The figure, above 0: tokens per second, nanoseconds, or another rate or time. All have one unit.
    pub value: f64,
}

/// What is too small to be named, however certain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limits {
    /// The least slow-down of a machine, as a part: 0.05 is 5 %.
    pub machine: f64,
    /// The least change by a commit, likewise.
    pub commit: f64,
}

impl Default for Limits {
    /// 5 % for machines, which always differ a little, and 1 % for commits.
    fn default() -> Self {
        Self { machine: 0.05, commit: 0.01 }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum FleetError {
    /// No runs.
    Empty,
    /// The value of the run with this index is not above 0, or infinite.
    Value {
        /// Which it is, from 0.
        index: usize,
    },
    /// The order of commits lacks this one, or the fleet has no run of it.
    UnknownCommit {
        /// Its name.
        commit: String,
    },
    /// Runs that should be of one commit are of two.
    SecondCommit {
        /// One.
        commit: String,
        /// The other.
        other: String,
    },
    /// The order of commits has this one twice.
    CommitTwice {
        /// Its name.
        commit: String,
    },
    /// Of so many commits only the newest are looked at, and this one is older.
    OldCommit {
        /// Its name.
        commit: String,
        /// How many are looked at.
        looked_at: usize,
    },
    /// The fleet has no run of this machine.
    UnknownMachine {
        /// Its name.
        machine: String,
    },
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no runs"),
            Self::Value { index } => write!(f, "the value of run {index} is not a number above 0"),
            Self::UnknownCommit { commit } => write!(f, "commit {commit:?} is unknown"),
            Self::SecondCommit { commit, other } => {
                write!(f, "its runs are of several commits, {commit:?} and {other:?}")
            }
            Self::CommitTwice { commit } => write!(f, "commit {commit:?} is twice in the order"),
            Self::OldCommit { commit, looked_at } => write!(
                f,
                "commit {commit:?} is older than the newest {looked_at} commits, and only these are looked at"
            ),
            Self::UnknownMachine { machine } => write!(f, "machine {machine:?} is unknown"),
        }
    }
}

impl std::error::Error for FleetError {}

/// What runs vary by, as standard deviations of logarithms, which are nearly parts of the value: 0.02 is 2 %. Outliers
/// count little.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    /// Between machines; `None` if hardly a machine has two sessions, and then sessions' has it as well.
    pub machines: Option<f64>,
    /// The most that it may be, with 90 % confidence: what can't be told from sessions is 0 there, and not here.
    pub machines_at_most: Option<f64>,
    /// Between sessions of one machine.
    pub sessions: f64,
    /// Between runs of one session; `None` if no session has two.
    pub runs: Option<f64>,
}

/// A commit with runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommitLevel {
    /// Its name.
    pub commit: String,
    /// Its own estimate, in the unit of the values, for a machine in the middle of the fleet.
    pub value: f64,
    /// Machines that ran it.
    pub machines: u64,
    /// Its runs.
    pub runs: u64,
}

/// A commit from which on the level is another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommitChange {
    /// The first commit of the new level.
    pub commit: String,
    /// The new level divided by the old one.
    pub ratio: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Whether that is a slow-down.
    pub is_slower: bool,
    /// The first commit that may be the place instead: it has fewer runs than would tell the two apart.
    pub earliest: String,
    /// The last such commit.
    pub latest: String,
    /// The probability that a fleet without any change has a step as good as this is no larger.
    pub p: f64,
    /// Whether it is the commit. If not, something changed here that can't be told from the machines.
    pub named: bool,
    /// Why it isn't named, and what to run: a sentence. `None` if it is.
    pub doubt: Option<String>,
}

/// A machine among its kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineLevel {
    /// Its name.
    pub machine: String,
    /// Its level divided by that of the machine in the middle; if it changed, its newest level. Of a machine
    /// that isn't slow it is drawn towards 1, the more the fewer runs there are of it. `None` if it can't be told from
    /// sessions, or there is no other machine.
    pub ratio: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// Whether it is slow: slower than machines of its kind vary by, and by at least the limit; or it became
    /// slower by that. `None` if that isn't known.
    pub slow: Option<bool>,
    /// Why it isn't known. `None` if it is.
    pub doubt: Option<String>,
    /// When its own level changed, if it did.
    pub since: Option<Since>,
    /// Its sessions.
    pub sessions: u64,
    /// Its runs.
    pub runs: u64,
}

/// A machine's own change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Since {
    /// The start of the first session of the new level, in seconds.
    pub time: i64,
    /// The new level divided by the old one.
    pub ratio: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Whether that is a slow-down.
    pub is_slower: bool,
}

/// Commits and machines, taken apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fleet {
    /// What runs vary by.
    pub spread: Spread,
    /// Commits with runs, oldest first.
    pub commits: Vec<CommitLevel>,
    /// Where the level changed, oldest first.
    pub changes: Vec<CommitChange>,
    /// If no commit changed it: the least slow-down that would have been seen, as a part. `None` if commits did, if there is
    /// only one, or if none would have been seen.
    pub least_change: Option<f64>,
    /// Machines, by name.
    pub machines: Vec<MachineLevel>,
    /// What the data can't tell at all, one sentence each.
    pub doubts: Vec<String>,
    #[serde(skip)]
    is_time: bool,
    #[serde(skip)]
    limits: Limits,
    #[serde(skip)]
    model: Model,
    #[serde(skip)]
    groups: Groups,
    /// Commits that are too old to be looked at.
    #[serde(skip)]
    older: Vec<String>,
    /// All of them, however small.
    #[serde(skip)]
    steps: Vec<(steps::Step, Option<Doubt>)>,
}

/// 95 % of a normal lie within so many standard deviations.
const WITHIN_95: f64 = 1.959_964;

/// In a smaller fleet hardly a machine is called slow, since nobody knows what machines vary by.
const FEW_MACHINES: usize = 8;

impl MachineLevel {
    /// Its ratio with its interval.
    #[must_use]
    pub fn level(&self) -> Option<[f64; 3]> {
        Some([self.ratio?, self.low?, self.high?])
    }
}

impl Fleet {
    /// Takes runs apart, given in any order. `order` has the commits, oldest first, and may have more than were
    /// measured ([`Fleet::order_by_time`] if there is none). `is_time` says whether more of the value is slower.
    ///
    /// 100,000 runs take a second or two. Of more than 1,200 commits with runs the newest 1,200 are looked at, and
    /// [`Fleet::doubts`] says so: time grows with the third power of commits.
    ///
    /// # Errors
    ///
    /// If there are no runs, or one has a value that isn't a number above 0 or a commit that `order` lacks.
    pub fn fit(
        observations: &[Observation],
        order: &[String],
        is_time: bool,
    ) -> Result<Self, FleetError> {
        Self::fit_with(observations, order, is_time, Limits::default())
    }

    /// As [`Fleet::fit`], with other limits than the usual.
    ///
    /// # Errors
    ///
    /// As for [`Fleet::fit`].
    pub fn fit_with(
        observations: &[Observation],
        order: &[String],
        is_time: bool,
        limits: Limits,
    ) -> Result<Self, FleetError> {
        Self::fit_newest(observations, order, is_time, limits, groups::MOST_GROUPS)
    }

    /// Of more commits than `most` only the newest are looked at.
    fn fit_newest(
        observations: &[Observation],
        order: &[String],
        is_time: bool,
        limits: Limits,
        most: usize,
    ) -> Result<Self, FleetError> {
        let mut cells = Cells::of(observations, order)?;
        let mut older = cells.commits.clone();
        older.truncate(older.len().saturating_sub(most));
        if !older.is_empty() {
            let left_out: BTreeSet<&String> = older.iter().collect();
            let is_new = |run: &&Observation| !left_out.contains(&run.commit);
            let newest: Vec<Observation> = observations.iter().filter(is_new).cloned().collect();
            cells = Cells::of(&newest, order)?;
        }
        let sign = if is_time { 1.0 } else { -1.0 };
        let least = least_log(limits.machine);
        let mut units: Vec<Unit> = Vec::new();
        for (s, session) in cells.sessions.iter().enumerate() {
            match units.last_mut() {
                Some(last) if last.machine == session.machine => last.sessions[1] = s + 1,
                _ => {
                    units.push(Unit { machine: session.machine, sessions: [s, s + 1], free: false })
                }
            }
        }
        // What a commit did is not a machine's change, and the other way round: so in turns.
        let mut rounds = 0;
        let (groups, steps, model, slow) = loop {
            let groups = Groups::of(&cells, &units);
            let steps = steps::find(&groups);
            let doubts = doubts_of(&cells, &units, &groups, &steps);
            // What most machines don't show is rather some machines' change.
            let is_of_few = |doubt: &Option<Doubt>| doubt.as_ref().is_some_and(|d| d.is_of_few);
            let common = steps.iter().zip(&doubts).filter(|(_, doubt)| !is_of_few(doubt));
            let starts = [0].into_iter().chain(common.map(|(step, _)| step.at)).collect();
            let steps: Vec<_> = steps.into_iter().zip(doubts).collect();
            let model = Model::fitted(cells.clone(), units.clone(), starts);
            let slow = machines::slow(&model, sign, least);
            let changed = machines::changed(&model, sign, least);
            let next = divided(&units, &slow, &changed);
            rounds += 1;
            if next == units || rounds == 4 {
                break (groups, steps, model, slow);
            }
            units = next;
        };
        let mut fleet = Self {
            spread: spread_of(&model),
            commits: Vec::new(),
            changes: Vec::new(),
            least_change: None,
            machines: Vec::new(),
            doubts: Vec::new(),
            is_time,
            limits,
            model,
            groups,
            older,
            steps: Vec::new(),
        };
        fleet.changes =
            steps.iter().map(|(step, doubt)| fleet.change(step, doubt.as_ref())).collect();
        let least_change = least_log(limits.commit);
        fleet.changes.retain(|change| change.ratio.ln().abs() >= least_change);
        fleet.machines = fleet.levels(&slow);
        fleet.commits = fleet.commit_levels();
        fleet.doubts = fleet.all_doubts();
        fleet.least_change = match fleet.changes.is_empty() {
            true => fleet.least_seen(),
            false => None,
        };
        fleet.steps = steps;
        Ok(fleet)
    }

    /// The commits in the order of their first runs; those that began together, by name.
    #[must_use]
    pub fn order_by_time(observations: &[Observation]) -> Vec<String> {
        let mut first: BTreeMap<&str, i64> = BTreeMap::new();
        for run in observations {
            let time = first.entry(&run.commit).or_insert(run.time);
            *time = run.time.min(*time);
        }
        let mut order: Vec<(i64, &str)> =
            first.into_iter().map(|(commit, time)| (time, commit)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, commit)| commit.to_owned()).collect()
    }

    /// Whether machines compare all commits with each other, if only by way of others.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.groups.parts_once().len() < 2
    }

    /// Whether more of what is compared is slower.
    #[must_use]
    pub const fn is_time(&self) -> bool {
        self.is_time
    }

    /// The least slow-down by a commit that would have got a name, as a part.
    fn least_seen(&self) -> Option<f64> {
        let least = steps::least(&self.groups)?.max(least_log(self.limits.commit));
        // A rate is divided by what a time is multiplied with.
        let part = if self.is_time { least.exp_m1() } else { -(-least).exp_m1() };
        part.is_finite().then_some(part)
    }

    /// The deviation of the machine in the middle.
    fn middle(&self) -> f64 {
        median(&self.newest().map(|u| self.model.machines[u]).collect::<Vec<_>>()).unwrap_or(0.0)
    }

    /// The newest unit of each machine.
    fn newest(&self) -> impl Iterator<Item = usize> + '_ {
        let units = &self.model.units;
        (0..units.len())
            .filter(|&u| units.get(u + 1).is_none_or(|next| next.machine != units[u].machine))
    }

    fn change(&self, step: &steps::Step, doubt: Option<&Doubt>) -> CommitChange {
        let name = |commit: usize| self.model.cells.commits[commit].clone();
        let doubt = doubt.map(Doubt::said);
        CommitChange {
            commit: name(step.at),
            ratio: ratio_of(step.size),
            low: ratio_of(step.size - step.half),
            high: ratio_of(step.size + step.half),
            is_slower: (step.size > 0.0) == self.is_time,
            earliest: name(step.between[0]),
            latest: name(step.between[1]),
            p: step.p,
            named: doubt.is_none(),
            doubt,
        }
    }

    fn levels(&self, slow: &[bool]) -> Vec<MachineLevel> {
        let (model, middle) = (&self.model, self.middle());
        let cells = &model.cells;
        let error = |u: usize| model.error_of(u).sqrt();
        // It has nothing beside which it could be slow, or to tell machines from sessions.
        let untold = match cells.machines.len() {
            1 => Some("there is no other machine"),
            _ => model.mixed.then_some("hardly a machine has two sessions"),
        };
        let least = least_log(self.limits.machine);
        let of = |u: usize| {
            let unit = &model.units[u];
            let (log, half) = (model.machines[u] - middle, WITHIN_95 * error(u));
            let earlier =
                u.checked_sub(1).filter(|&before| model.units[before].machine == unit.machine);
            let since = earlier.map(|before| {
                let size = model.machines[u] - model.machines[before];
                let half = WITHIN_95 * error(u).hypot(error(before));
                Since {
                    time: cells.sessions[unit.sessions[0]].time,
                    ratio: ratio_of(size),
                    low: ratio_of(size - half),
                    high: ratio_of(size + half),
                    is_slower: (size > 0.0) == self.is_time,
                }
            });
            let first =
                (0..=u).rev().take_while(|&v| model.units[v].machine == unit.machine).last();
            let from = model.units[first.unwrap_or(u)].sessions[0];
            let range =
                cells.sessions[from].cells[0]..cells.sessions[unit.sessions[1] - 1].cells[1];
            let is_slow = slow[u] || since.is_some_and(|since| since.is_slower);
            // Above 0 is slower.
            let off = if self.is_time { log } else { -log };
            let doubt = match untold {
                _ if is_slow => None,
                Some(doubt) => Some(doubt),
                None if cells.machines.len() >= FEW_MACHINES || off + half < least => None,
                None if off - half >= least => Some("too few machines tell what is usual"),
                None => Some("that is too wide an interval to tell"),
            };
            let known = |log: f64| untold.is_none().then(|| ratio_of(log));
            MachineLevel {
                machine: cells.machines[unit.machine].clone(),
                ratio: known(log),
                low: known(log - half),
                high: known(log + half),
                slow: doubt.is_none().then_some(is_slow),
                doubt: doubt.map(str::to_owned),
                since,
                sessions: (unit.sessions[1] - from) as u64,
                runs: cells.cells[range].iter().map(|cell| u64::from(cell.runs)).sum(),
            }
        };
        self.newest().map(of).collect()
    }

    fn commit_levels(&self) -> Vec<CommitLevel> {
        let cells = &self.model.cells;
        let of_commits = self.groups.of_commits();
        let machines: Vec<f64> = self.newest().map(|u| self.groups.model.machines[u]).collect();
        let middle = median(&machines).unwrap_or(0.0);
        let mut seen: Vec<Vec<usize>> = vec![Vec::new(); cells.commits.len()];
        let mut runs = vec![0_u64; cells.commits.len()];
        for cell in &cells.cells {
            seen[cell.commit].push(cells.sessions[cell.session].machine);
            runs[cell.commit] += u64::from(cell.runs);
        }
        let of = |(c, commit): (usize, &String)| {
            let mut machines = seen[c].clone();
            machines.dedup();
            CommitLevel {
                commit: commit.clone(),
                value: ratio_of(of_commits[c].0 + middle + cells.origin),
                machines: machines.len() as u64,
                runs: runs[c],
            }
        };
        cells.commits.iter().enumerate().map(of).collect()
    }

    fn all_doubts(&self) -> Vec<String> {
        /// Groups that are listed.
        const MOST: usize = 3;
        let cells = &self.model.cells;
        let mut doubts = Vec::new();
        if !self.older.is_empty() {
            let (newest, older) = (cells.commits.len(), self.older.len());
            doubts.push(format!(
                "only the newest {newest} of {} commits are looked at: more take too long",
                newest + older
            ));
        }
        if cells.machines.len() == 1 {
            doubts.push(format!(
                "all runs are of machine {}: what it did itself can't be told from what commits did",
                cells.machines[0]
            ));
        } else if self.model.mixed {
            doubts.push(
                "hardly a machine has two sessions: a slow machine can't be told from a disturbed session".to_owned(),
            );
        }
        let parts = self.groups.parts.clone();
        let mut known: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for cell in &cells.cells {
            known
                .entry(parts[cell.commit])
                .or_insert((cell.commit, cells.sessions[cell.session].machine));
        }
        let mut known = known.into_values();
        let Some((first, _)) = known.next() else { return doubts };
        let others = known.len().saturating_sub(MOST);
        doubts.extend(known.take(MOST).map(|(commit, machine)| {
            // The commit before it says most of what it changed.
            let before = commit.checked_sub(1).filter(|&c| parts[c] != parts[commit]);
            let [commit, before] = [commit, before.unwrap_or(first)].map(|c| &cells.commits[c]);
            let machine = &cells.machines[machine];
            format!(
                "can't tell: no machine ran both {commit}, or what was measured beside it, and {before}, so that they may differ \
                 by their machines: run commit {before} on machine {machine}"
            )
        }));
        if others > 0 {
            doubts.push(format!("so were {others} more groups of commits and machines"));
        }
        doubts
    }
}

/// What runs vary by. What nothing was measured of twice is absent.
fn spread_of(model: &Model) -> Spread {
    let cells = &model.cells;
    let mut of_machine = vec![0_usize; cells.machines.len()];
    cells.sessions.iter().for_each(|session| of_machine[session.machine] += 1);
    let repeated = of_machine.iter().filter(|sessions| **sessions > 1).count();
    let is_known = !model.mixed && of_machine.len() > 1 && (model.sd.machine > 0.0 || repeated > 1);
    // Runs of several commits in one session tell it, too.
    let runs: u64 = cells.cells.iter().map(|cell| u64::from(cell.runs)).sum();
    let has_two = runs > cells.sessions.len() as u64;
    Spread {
        machines: is_known.then_some(model.sd.machine),
        machines_at_most: is_known.then_some(model.most),
        sessions: model.sd.session,
        runs: has_two.then(|| model.sd.cell.hypot(model.sd.run)),
    }
}

/// Why each step isn't the commit's, if it isn't.
fn doubts_of(
    cells: &Cells,
    units: &[Unit],
    groups: &Groups,
    steps: &[steps::Step],
) -> Vec<Option<Doubt>> {
    let in_part = |step: &steps::Step| {
        let part = groups.parts[step.at];
        move |commit: usize| groups.parts[commit] == part
    };
    let design = |step: &steps::Step| {
        let [from, to] = step.within;
        let is_in = in_part(step);
        let before = (from..step.at).rev().find(|&commit| is_in(commit)).unwrap_or(from);
        let side_of = |commit: usize| {
            let is_near = (from..to).contains(&commit) && is_in(commit);
            is_near.then_some(usize::from(commit >= step.at))
        };
        Design::of(cells, units, [before, step.at], side_of)
    };
    let mut doubts: Vec<Option<Doubt>> = steps
        .iter()
        .map(|step| {
            let design = design(step);
            design.doubt(cells).or_else(|| design.disagreement(cells, step.size))
        })
        .collect();
    // Machines that change one after the other make several steps.
    for nth in 1..steps.len() {
        let [one, other] = [&steps[nth - 1], &steps[nth]];
        let are_next = one.within[1] == other.at && (one.size > 0.0) == (other.size > 0.0);
        if !are_next || doubts[nth - 1].is_some() && doubts[nth].is_some() {
            continue;
        }
        let edges = [one.within[0], one.at, other.at, other.within[1]];
        if design::is_staircase(cells, units, in_part(one), edges) {
            for which in [nth - 1, nth] {
                let doubt = || design(&steps[which]).staircase(cells);
                doubts[which].get_or_insert_with(doubt);
            }
        }
    }
    doubts
}

/// A limit as a logarithm: what takes 5 % longer.
fn least_log(part: f64) -> f64 {
    if part.is_finite() { part.max(0.0).ln_1p() } else { f64::INFINITY }
}

/// The ratio with this logarithm; never infinite, and never 0.
fn ratio_of(log: f64) -> f64 {
    log.clamp(-700.0, 700.0).exp()
}

/// Units, divided where they changed.
fn divided(units: &[Unit], slow: &[bool], changed: &[(usize, usize)]) -> Vec<Unit> {
    let mut all = Vec::with_capacity(units.len() + changed.len());
    for (u, unit) in units.iter().enumerate() {
        let is_part =
            |other: Option<&Unit>| other.is_some_and(|other| other.machine == unit.machine);
        let is_part =
            is_part(units.get(u + 1)) || u.checked_sub(1).is_some_and(|u| is_part(units.get(u)));
        match changed.iter().find(|(of, _)| *of == u) {
            Some(&(_, at)) => {
                all.push(Unit { sessions: [unit.sessions[0], at], free: true, ..unit.clone() });
                all.push(Unit { sessions: [at, unit.sessions[1]], free: true, ..unit.clone() });
            }
            None => all.push(Unit { free: slow[u] || is_part, ..unit.clone() }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_commits_the_newest_are_looked_at_and_that_is_said() {
        let runs: Vec<Observation> = (0..40)
            .map(|n| Observation {
                machine: format!("m{}", n % 2),
                session: format!("s{n}"),
                commit: format!("c{}", n / 4),
                time: 86_400 * n,
                value: 100.0 + (n * 7 % 5) as f64 / 10.0,
            })
            .collect();
        let order = Fleet::order_by_time(&runs);
        let fit = |most| Fleet::fit_newest(&runs, &order, false, Limits::default(), most);
        let of = |commit: &str| -> Vec<Observation> {
            runs.iter().filter(|run| run.commit == commit).cloned().collect()
        };
        let fleet = fit(6).expect("runs");
        let commits: Vec<&str> = fleet.commits.iter().map(|of| &*of.commit).collect();
        assert_eq!(commits, ["c4", "c5", "c6", "c7", "c8", "c9"]);
        assert_eq!(
            fleet.doubts,
            ["only the newest 6 of 10 commits are looked at: more take too long"]
        );
        assert!(fleet.explain(&of("c4"), &of("c9")).is_ok());
        let error = FleetError::OldCommit { commit: "c3".to_owned(), looked_at: 6 };
        assert_eq!(fleet.explain(&of("c3"), &of("c9")), Err(error));
        // It is as if the older ones weren't there.
        let newest: Vec<Observation> = runs[16..].to_vec();
        let alone = Fleet::fit(&newest, &order, false).expect("runs");
        assert_eq!((&fleet.machines, &fleet.commits), (&alone.machines, &alone.commits));
        let all = fit(10).expect("runs");
        assert_eq!((all.commits.len(), &all.doubts[..]), (10, &[][..]));
    }
}
