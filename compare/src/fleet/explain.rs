//! What two groups of runs differ by: the commits' part, the machines' part, and the rest.
//!
//! Here each commit has a level of its own, and each machine, neither drawn towards others (see `groups.rs`). The error of
//! the machines' part is that of their own sessions and of the levels that were taken off these (Henderson, "Best linear
//! unbiased estimation and prediction under a selection model", 1975).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use brickscope_profile::stats::{median, student};
use serde::Serialize;

use super::design::{Design, Doubt};
use super::groups::{self, Shared, Variance};
use super::{Fleet, FleetError, Observation, least_log, ratio_of};

/// What made the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The commits.
    Commit,
    /// The machines.
    Machine,
    /// The commits, and the machines.
    Both,
    /// Neither: there is no difference worth naming, or sessions were disturbed.
    Neither,
    /// The data can't tell.
    Inconclusive,
}

/// What the commit, or the machine, has of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    /// After divided by before.
    pub ratio: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Effect {
    /// Nothing is known of it: this is only how it looks.
    const fn unknown(ratio: f64) -> Self {
        Self { ratio, low: 0.0, high: f64::INFINITY }
    }

    /// Whether anything is known of it. If not, its interval is from 0 to infinity, and the ratio is no estimate.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.high.is_finite()
    }

    fn is_unknown(&self) -> bool {
        !self.is_known()
    }
}

/// A run that would tell more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The commit to run.
    pub commit: String,
    /// The machine to run it on.
    pub machine: String,
    /// If that machine ran it already: what has to be different this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<String>,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "commit {} on machine {}", self.commit, self.machine)?;
        match &self.again {
            Some(again) => write!(f, " again, {again}"),
            None => Ok(()),
        }
    }
}

/// When a commit's part is so large that the machines have to agree in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// If it is as large as the limit.
    Estimate,
    /// If it may be: its 95 % interval reaches the limit.
    Interval,
}

/// The difference of two groups of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// What made it.
    pub cause: Cause,
    /// The geometric mean of the one group's sessions divided by that of the other's: the product of the three parts.
    pub total: f64,
    /// The commits' part of it; exactly 1 for one commit.
    #[serde(skip_serializing_if = "Effect::is_unknown")]
    pub commit: Effect,
    /// The machines' part of it.
    #[serde(skip_serializing_if = "Effect::is_unknown")]
    pub machine: Effect,
    /// If the commits' part is unknown since machines may have changed themselves: what it is if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks: Option<Effect>,
    /// What neither makes of it: sessions were off what their commits and machines usually do. `None` if the parts are
    /// unknown.
    pub sessions: Option<f64>,
    /// The machines of either group, by name. The machines' part is what the one's differ by from the other's, each as often
    /// as it has sessions there.
    pub machines: [Vec<String>; 2],
    /// A sentence.
    pub reason: String,
    /// What to run, if the data can't tell.
    pub wanted: Option<Wanted>,
}

/// A group, as weights that add up to 1.
struct Group {
    commits: BTreeMap<usize, f64>,
    units: BTreeMap<usize, f64>,
    /// Machine, and commit, of each session; and its time.
    seen: Vec<(usize, usize, i64)>,
    /// The median of its sessions, and their mean.
    middle: f64,
    mean: f64,
}

impl Group {
    fn newest(&self) -> usize {
        self.commits.keys().next_back().copied().unwrap_or(0)
    }
}

impl Fleet {
    /// Says what made the runs `after` differ from those `before`, such as the newest commit's from the commit's before
    /// it: commits, machines, or neither. Sessions count once, however many runs they have.
    ///
    /// A part counts if its 99 % interval leaves 1 out and it is no smaller than the limit of commits, and the
    /// machines' part no smaller than a quarter of the commits'; it doesn't if its 95 % interval lies near 1.
    ///
    /// # Errors
    ///
    /// If a group is empty, or has a commit or a machine of which the fleet has no run, or a commit that is too old to be
    /// looked at, or a value that isn't a number above 0.
    pub fn explain(
        &self,
        before: &[Observation],
        after: &[Observation],
    ) -> Result<Explanation, FleetError> {
        self.explained(before, after, Reach::Estimate)
    }

    /// The same; `reach` says of which parts the machines are asked whether they agree.
    pub(super) fn explained(
        &self,
        before: &[Observation],
        after: &[Observation],
        reach: Reach,
    ) -> Result<Explanation, FleetError> {
        let groups = [self.group(before)?, self.group(after)?];
        let doubt = self.undecidable(&groups);
        if let Some(doubt) = doubt {
            return Ok(Explanation {
                cause: Cause::Inconclusive,
                total: ratio_of(total(&groups)),
                commit: Effect::unknown(1.0),
                machine: Effect::unknown(1.0),
                looks: None,
                sessions: None,
                machines: self.machines_of(&groups),
                reason: doubt.said(),
                wanted: doubt.wanted,
            });
        }
        let (mut commits, mut units) = (BTreeMap::new(), BTreeMap::new());
        for (group, sign) in groups.iter().zip([-1.0, 1.0]) {
            for (&commit, weight) in &group.commits {
                *commits.entry(commit).or_insert(0.0) += sign * weight;
            }
            for (&unit, weight) in &group.units {
                *units.entry(unit).or_insert(0.0) += sign * weight;
            }
        }
        // What is left of equal weights is rounding.
        commits.retain(|_, weight: &mut f64| weight.abs() > 1e-12);
        units.retain(|_, weight: &mut f64| weight.abs() > 1e-12);
        let [commit, machine] = [self.commits(&groups, &commits), self.of_machines(&units)];
        Ok(self.verdict(&groups, commit, machine, reach))
    }

    /// The names of the machines of each group.
    fn machines_of(&self, groups: &[Group; 2]) -> [Vec<String>; 2] {
        groups.each_ref().map(|group| {
            let own: BTreeSet<usize> = group.seen.iter().map(|(machine, ..)| *machine).collect();
            own.into_iter().map(|machine| self.model.cells.machines[machine].clone()).collect()
        })
    }

    fn group(&self, runs: &[Observation]) -> Result<Group, FleetError> {
        if runs.is_empty() {
            return Err(FleetError::Empty);
        }
        let (model, cells) = (&self.model, &self.model.cells);
        let places: BTreeMap<&str, usize> =
            cells.commits.iter().enumerate().map(|(c, name)| (name.as_str(), c)).collect();
        let mut by_session: BTreeMap<(usize, &str, usize), (i64, Vec<f64>)> = BTreeMap::new();
        for (index, run) in runs.iter().enumerate() {
            let log = run.value.ln();
            if !log.is_finite() {
                return Err(FleetError::Value { index });
            }
            let Some(&commit) = places.get(run.commit.as_str()) else {
                let commit = run.commit.clone();
                let looked_at = cells.commits.len();
                return Err(match self.older.contains(&commit) {
                    true => FleetError::OldCommit { commit, looked_at },
                    false => FleetError::UnknownCommit { commit },
                });
            };
            let Ok(machine) = cells.machines.binary_search(&run.machine) else {
                return Err(FleetError::UnknownMachine { machine: run.machine.clone() });
            };
            let session =
                by_session.entry((machine, &run.session, commit)).or_insert((run.time, Vec::new()));
            session.0 = session.0.min(run.time);
            session.1.push(log);
        }
        let each = 1.0 / by_session.len() as f64;
        let (mut commits, mut units) = (BTreeMap::new(), BTreeMap::new());
        let (mut seen, mut logs) = (Vec::new(), Vec::new());
        for ((machine, _, commit), (time, of_session)) in by_session {
            let begun = |u: &usize| cells.sessions[model.units[*u].sessions[0]].time <= time;
            let first = model.units.partition_point(|unit| unit.machine < machine);
            let last = model.units.partition_point(|unit| unit.machine <= machine);
            let unit = (first..last).rev().find(begun).unwrap_or(first);
            *commits.entry(commit).or_insert(0.0) += each;
            *units.entry(unit).or_insert(0.0) += each;
            seen.push((machine, commit, time));
            logs.push(median(&of_session).unwrap_or(0.0));
        }
        // Commits and machines count by their sessions, too, so that means add up, as medians don't.
        let mean = logs.iter().sum::<f64>() * each;
        Ok(Group { commits, units, seen, middle: median(&logs).unwrap_or(0.0), mean })
    }

    /// The commits' part.
    fn commits(&self, of: &[Group; 2], weights: &BTreeMap<usize, f64>) -> Estimate {
        if weights.is_empty() {
            return Estimate { log: 0.0, errors: [(0.0, 1e4); 2] };
        }
        let groups = &self.groups;
        let days = self.days();
        let contrast = groups.contrast(weights, days);
        let by_sessions = contrast.error(groups, Shared::Day, days);
        // Machines that changed themselves differ in it by more than their sessions vary by.
        let side_of = |commit: usize| (0..2).find(|&side| of[side].commits.contains_key(&commit));
        let commits = of.each_ref().map(Group::newest);
        let cells = &self.model.cells;
        let by_machines = Design::of(cells, &self.model.units, commits, side_of).error();
        Estimate { log: contrast.size, errors: [by_sessions, by_machines.unwrap_or(by_sessions)] }
    }

    /// What days vary by: as commits say that were measured on several, else as the commits of a level do.
    fn days(&self) -> Variance {
        let within = self.groups.days_within_commits();
        if within.degrees >= 4.0 {
            return within.known(Shared::Day);
        }
        let between = self
            .groups
            .days_within_levels(&self.steps.iter().map(|(step, _)| step.at).collect::<Vec<_>>());
        if between.degrees > within.degrees {
            between.known(Shared::Day)
        } else {
            within.known(Shared::Day)
        }
    }

    /// The machines' part.
    fn of_machines(&self, weights: &BTreeMap<usize, f64>) -> Estimate {
        if weights.is_empty() {
            return Estimate { log: 0.0, errors: [(0.0, 1e4); 2] };
        }
        let days = self.days();
        let contrast = self.groups.machines(weights, days);
        // What machines did is told from the noise of their own sessions.
        let error = match self.groups.left < 1.0 {
            true => (f64::INFINITY, 1.0),
            false => contrast.error(&self.groups, Shared::Day, days),
        };
        Estimate { log: contrast.size, errors: [error; 2] }
    }

    fn verdict(
        &self,
        groups: &[Group; 2],
        commit: Estimate,
        machine: Estimate,
        reach: Reach,
    ) -> Explanation {
        let total = total(groups);
        // What is left by the commits' and the machines' part, so that all three add up to the whole.
        let sessions = total - commit.log - machine.log;
        let least = least_log(self.limits.commit);
        // So near to 1 that it is no cause: below two limits, and below half of what is explained. An outlier is nothing to
        // explain, so here the whole is the difference of medians.
        let near = (2.0 * least).max((groups[1].middle - groups[0].middle).abs() / 2.0);
        // Machines drawn by chance always differ a little on the whole; beside a much larger commit's part that is no cause.
        let least_machine = least.max(commit.log.abs() / 4.0);
        let is_cause =
            |of: &Estimate, least: f64| of.log.abs() > of.half(0.01) && of.log.abs() >= least;
        let is_none = |of: &Estimate| of.log.abs() + of.half(0.05) < near;
        let is_less = |a: &Estimate, b: &Estimate| a.log.abs() + a.half(0.05) < b.log.abs();
        let percent = |log: f64| format!("{:+.1} %", 100.0 * (ratio_of(log) - 1.0));
        let [of_commit, of_machine] = [percent(commit.log), percent(machine.log)];
        let parts = match is_shown(sessions) {
            false => format!("{of_commit} by the commit and {of_machine} by the machine"),
            true => format!(
                "{of_commit} by the commit, {of_machine} by the machine and {} by sessions that were off",
                percent(sessions)
            ),
        };
        let in_all = |rest: &str| format!("{} in all{rest}: {parts}", percent(total));
        let causes = [is_cause(&commit, least), is_cause(&machine, least_machine)];
        let (cause, reason, wanted) = match causes {
            [true, true] => (Cause::Both, in_all(""), None),
            [true, false] if is_none(&machine) || is_less(&machine, &commit) => {
                (Cause::Commit, in_all(""), None)
            }
            [false, true] if is_none(&commit) || is_less(&commit, &machine) => {
                (Cause::Machine, in_all(""), None)
            }
            [false, false] if is_none(&commit) && is_none(&machine) => {
                let is_small = total.abs() < near;
                let rest = if is_small {
                    "no more than sessions vary by"
                } else {
                    "sessions were disturbed"
                };
                (Cause::Neither, in_all(&format!(", {rest}")), None)
            }
            _ => {
                let wanted = self.wanted(groups);
                let run = wanted
                    .as_ref()
                    .map_or("more sessions of either".to_owned(), ToString::to_string);
                let what = match [&commit, &machine].map(Estimate::is_none_at_all) {
                    [false, true] => "the commit's part is uncertain by as much as it is large",
                    [true, false] => "the machine's part is uncertain by as much as it is large",
                    _ => "both parts are uncertain by as much as they are large",
                };
                let reason = format!("{what} ({parts}): run {run}");
                (Cause::Inconclusive, reason, wanted)
            }
        };
        // Whatever it is called, an interval that leaves out 1 has to be the commit's.
        let reached = match reach {
            Reach::Estimate => commit.log.abs(),
            Reach::Interval => commit.log.abs() + commit.half(0.05),
        };
        let is_seen = commit.log.abs() > commit.half_by_sessions(0.05) && reached >= least;
        let doubt = is_seen.then(|| self.disagreement(groups, commit.log)).flatten();
        if let Some(doubt) = doubt {
            return Explanation {
                cause: Cause::Inconclusive,
                total: ratio_of(total),
                commit: Effect::unknown(ratio_of(commit.log)),
                machine: Effect::unknown(ratio_of(machine.log)),
                looks: Some(commit.part()).filter(Effect::is_known),
                sessions: None,
                machines: self.machines_of(groups),
                reason: doubt.said(),
                wanted: doubt.wanted,
            };
        }
        let [commit, machine] = [commit.part(), machine.part()];
        let are_known = commit.is_known() && machine.is_known();
        Explanation {
            cause,
            total: ratio_of(total),
            commit,
            machine,
            looks: None,
            sessions: are_known.then(|| ratio_of(sessions)),
            machines: self.machines_of(groups),
            reason,
            wanted,
        }
    }

    /// Which machines ran the commits of both groups. Where the speed changed between them, all commits that are as fast
    /// as those of a group count as its own.
    fn design(&self, groups: &[Group; 2]) -> Design {
        let parts = &self.groups.parts;
        let level = |commit: usize| {
            (self.steps.iter().filter(|(step, _)| step.at <= commit).count(), parts[commit])
        };
        let of = |group: &Group| group.commits.keys().copied().collect::<BTreeSet<usize>>();
        let own = groups.each_ref().map(of);
        let levels =
            own.each_ref().map(|own| own.iter().map(|&c| level(c)).collect::<BTreeSet<_>>());
        let is_apart = levels[0].is_disjoint(&levels[1]);
        let side_of = |commit: usize| {
            let is_of = |side: &usize| match is_apart {
                true => levels[*side].contains(&level(commit)),
                false => own[*side].contains(&commit) && !own[1 - *side].contains(&commit),
            };
            [0, 1].into_iter().find(is_of)
        };
        let commits = groups.each_ref().map(Group::newest);
        let cells = &self.model.cells;
        Design::of(cells, &self.model.units, commits, side_of)
    }

    /// What can't be told from these groups whatever the figures are.
    fn undecidable(&self, groups: &[Group; 2]) -> Option<Doubt> {
        let cells = &self.model.cells;
        let [before, after] = groups;
        if before.commits.keys().eq(after.commits.keys()) {
            return None;
        }
        let design = self.design(groups);
        let is_connected = |parts: &[usize]| {
            let of = |group: &Group| group.commits.keys().map(|&c| parts[c]).collect::<Vec<_>>();
            of(before).iter().any(|part| of(after).contains(part))
        };
        if !is_connected(&self.groups.parts) {
            let mut doubt = design.of_no_machine(cells);
            // A machine may have run what was asked for already.
            doubt.wanted = self.wanted(groups).or(doubt.wanted);
            return Some(doubt);
        }
        // Beside others it has to show a difference first.
        let lone = design.lone().filter(|_| design.is_of_one())?;
        let is_without_it = is_connected(&self.parts_without(lone));
        (!is_without_it).then(|| design.of_one_machine(cells, lone))
    }

    /// The parts of the fleet that machines other than this one connect.
    fn parts_without(&self, machine: usize) -> Vec<usize> {
        let cells = &self.model.cells;
        let of = |cell: &super::cells::Cell| (cell.commit, cells.sessions[cell.session].machine);
        let edges: Vec<(usize, usize)> =
            cells.cells.iter().map(of).filter(|edge| edge.1 != machine).collect();
        groups::components(cells.commits.len(), cells.machines.len(), &edges)
    }

    /// Why a difference of this size between the groups isn't the commits'.
    fn disagreement(&self, groups: &[Group; 2], size: f64) -> Option<Doubt> {
        let cells = &self.model.cells;
        let range = groups.each_ref().map(|group| {
            let keys = || group.commits.keys().copied();
            [keys().min().unwrap_or(0), keys().max().unwrap_or(0)]
        });
        let is_between = |at: usize| {
            range[0][1] < at && at <= range[1][0] || range[1][1] < at && at <= range[0][0]
        };
        let mut between = self.steps.iter().filter(|(step, _)| is_between(step.at));
        between.find_map(|(_, doubt)| doubt.clone()).or_else(|| {
            let design = self.design(groups);
            let is_alone = |machine: &usize| {
                let parts = self.parts_without(*machine);
                let of = |group: &Group| parts[group.newest()];
                of(&groups[0]) != of(&groups[1])
            };
            let lone = design.lone().filter(is_alone);
            let of_one = lone.map(|machine| design.of_one_machine(cells, machine));
            of_one.or_else(|| design.of_one_day(cells)).or_else(|| design.disagreement(cells, size))
        })
    }

    /// A commit of the first group for a machine of the second that hasn't run it, or the other way round.
    fn wanted(&self, groups: &[Group; 2]) -> Option<Wanted> {
        let cells = &self.model.cells;
        let mut ran: Vec<(usize, usize)> = cells
            .cells
            .iter()
            .map(|cell| (cells.sessions[cell.session].machine, cell.commit))
            .collect();
        ran.sort_unstable();
        let [before, after] = groups;
        for (commits, machines) in [(before, after), (after, before)] {
            for &(machine, ..) in &machines.seen {
                for &commit in commits.commits.keys().rev() {
                    if ran.binary_search(&(machine, commit)).is_err() {
                        return Some(Wanted {
                            commit: cells.commits[commit].clone(),
                            machine: cells.machines[machine].clone(),
                            again: None,
                        });
                    }
                }
            }
        }
        None
    }
}

/// The difference of two groups: of the means of their sessions.
fn total(groups: &[Group; 2]) -> f64 {
    groups[1].mean - groups[0].mean
}

/// Whether a part with this logarithm is more than 0.0 % where it is printed.
fn is_shown(log: f64) -> bool {
    (ratio_of(log) - 1.0).abs() >= 0.000_5
}

/// A part of a difference: its logarithm, and how well it is known.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    log: f64,
    /// Standard errors, of which the larger one counts, with their degrees of freedom.
    errors: [(f64, f64); 2],
}

impl Estimate {
    /// Half of the interval that misses the truth with this probability.
    fn half(&self, probability: f64) -> f64 {
        self.errors.into_iter().map(|error| half(error, probability)).fold(0.0, f64::max)
    }

    /// The same by what sessions vary by.
    fn half_by_sessions(&self, probability: f64) -> f64 {
        half(self.errors[0], probability)
    }

    /// Whether both sides have the same of it, so that there is nothing to estimate.
    fn is_none_at_all(&self) -> bool {
        self.log == 0.0 && self.half(0.05) == 0.0
    }

    fn part(&self) -> Effect {
        let half = self.half(0.05);
        if !half.is_finite() {
            return Effect::unknown(ratio_of(self.log));
        }
        Effect {
            ratio: ratio_of(self.log),
            low: ratio_of(self.log - half),
            high: ratio_of(self.log + half),
        }
    }
}

fn half((error, degrees): (f64, f64), probability: f64) -> f64 {
    if error > 0.0 { error * student::quantile(probability, degrees) } else { 0.0 }
}
