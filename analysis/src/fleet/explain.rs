//! What two groups of runs differ by: the commits' part, the machines' part, and the rest.
//!
//! Here each commit has a level of its own. What two of them differ by, and its error, is one system of equations with a
//! row for each commit, solved by conjugate gradients (Hestenes and Stiefel, "Methods of conjugate gradients for solving
//! linear systems", 1952) without a matrix. The error of the machines' part is that of the prediction (Henderson 1975).

use std::collections::BTreeMap;

use brickscope_profile::stats::{median, student};
use serde::Serialize;

use super::cells::Cells;
use super::model::Model;
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

/// A part of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    /// After divided by before.
    pub ratio: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A run that would tell more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The commit to run.
    pub commit: String,
    /// The machine to run it on.
    pub machine: String,
}

/// The difference of two groups of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// What made it.
    pub cause: Cause,
    /// The median of the one group's sessions divided by that of the other's.
    pub total: f64,
    /// The commits' part of it.
    pub commit: Part,
    /// The machines' part of it.
    pub machine: Part,
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
    middle: f64,
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
    /// If a group is empty, or has a commit or a machine of which the fleet has no run, or a value that isn't a
    /// number above 0.
    pub fn explain(
        &self,
        before: &[Observation],
        after: &[Observation],
    ) -> Result<Explanation, FleetError> {
        let groups = [self.group(before)?, self.group(after)?];
        let model = &self.model;
        let mut commits = vec![0.0; model.cells.commits.len()];
        let mut units = vec![0.0; model.units.len()];
        for (group, sign) in groups.iter().zip([-1.0, 1.0]) {
            group.commits.iter().for_each(|(&c, weight)| commits[c] += sign * weight);
            group.units.iter().for_each(|(&u, weight)| units[u] += sign * weight);
        }
        let [commit, machine] = self.parts(&commits, &units);
        let total = groups[1].middle - groups[0].middle;
        Ok(self.verdict(&groups, total, commit, machine))
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
                return Err(FleetError::UnknownCommit { commit: run.commit.clone() });
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
        Ok(Group { commits, units, seen, middle: median(&logs).unwrap_or(0.0) })
    }

    /// The commits' part and the machines' part: logarithm and standard error.
    fn parts(&self, commits: &[f64], units: &[f64]) -> [(f64, f64); 2] {
        let model = &self.model;
        let (cells, inverse) = (&model.cells, &model.inverse);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let commit = dot(commits, &self.effects);
        let solved = solve(model, commits);
        let commit_variance = dot(commits, &solved).max(0.0);
        // The predictions of this model, in which each commit has its own level.
        let (mut machine, mut machine_variance) = (0.0, 0.0);
        let mut beside = vec![0.0; cells.commits.len()];
        for (u, weight) in units.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            let mut sum = 0.0;
            for s in model.units[u].sessions[0]..model.units[u].sessions[1] {
                for i in cells.in_session(s) {
                    let own = inverse.weights[i] * inverse.rest[s];
                    sum += own * (model.values[i] - self.effects[cells.cells[i].commit]);
                    beside[cells.cells[i].commit] += weight * inverse.unit[u] * own;
                }
            }
            machine += weight * inverse.unit[u] * sum;
            machine_variance += weight * weight * model.error_of(u) / model.inflation;
        }
        machine_variance += dot(&beside, &solve(model, &beside)).max(0.0);
        if model.mixed {
            // Nothing is known of any machine but what all vary by.
            let noise = |u: usize| model.noise(cells.sessions[model.units[u].sessions[0]].cells[0]);
            machine_variance = units
                .iter()
                .enumerate()
                .map(|(u, weight)| weight * weight * noise(u) * noise(u))
                .sum();
        }
        let error = |variance: f64| (model.inflation * variance).sqrt();
        [(commit, error(commit_variance)), (machine, error(machine_variance))]
    }

    fn verdict(
        &self,
        groups: &[Group; 2],
        total: f64,
        commit: (f64, f64),
        machine: (f64, f64),
    ) -> Explanation {
        let degrees = degrees(&self.model);
        let [wide, wider] = [0.05, 0.01].map(|p| student::quantile(p, degrees));
        let part = |(log, error): (f64, f64)| Part {
            ratio: ratio_of(log),
            low: ratio_of(log - wide * error),
            high: ratio_of(log + wide * error),
        };
        let least = least_log(self.limits.commit);
        // So near to 1 that it is no cause: below two limits, and below half of what is explained.
        let near = (2.0 * least).max(total.abs() / 2.0);
        // Machines drawn by chance always differ a little on the whole; beside a much larger commit's part that is no cause.
        let least_machine = least.max(commit.0.abs() / 4.0);
        let is_cause =
            |(log, error): (f64, f64), least: f64| log.abs() > wider * error && log.abs() >= least;
        let is_none = |(log, error): (f64, f64)| log.abs() + wide * error < near;
        let percent = |log: f64| format!("{:+.1} %", 100.0 * (ratio_of(log) - 1.0));
        let parts = format!(
            "{} by the commit and {} by the machine",
            percent(commit.0),
            percent(machine.0)
        );
        let (cause, reason, wanted) = if let Some((reason, wanted)) = self.together(groups) {
            (Cause::Inconclusive, reason, wanted)
        } else {
            match (is_cause(commit, least), is_cause(machine, least_machine)) {
                (true, true) => (Cause::Both, format!("{} in all: {parts}", percent(total)), None),
                (true, false)
                    if is_none(machine) || machine.0.abs() + wide * machine.1 < commit.0.abs() =>
                {
                    (Cause::Commit, format!("{} in all: {parts}", percent(total)), None)
                }
                (false, true)
                    if is_none(commit) || commit.0.abs() + wide * commit.1 < machine.0.abs() =>
                {
                    (Cause::Machine, format!("{} in all: {parts}", percent(total)), None)
                }
                (false, false) if is_none(commit) && is_none(machine) => {
                    let rest = if total.abs() < near {
                        "no more than sessions vary by"
                    } else {
                        "sessions were disturbed"
                    };
                    (Cause::Neither, format!("{} in all, {rest}: {parts}", percent(total)), None)
                }
                _ => {
                    let wanted = self.wanted(groups);
                    let run =
                        wanted.as_ref().map_or("more sessions of either".to_owned(), |wanted| {
                            format!("commit {} on machine {}", wanted.commit, wanted.machine)
                        });
                    let reason = format!(
                        "inconclusive, because both parts are uncertain by as much as they are large ({parts}): run {run}"
                    );
                    (Cause::Inconclusive, reason, wanted)
                }
            }
        };
        Explanation {
            cause,
            total: ratio_of(total),
            commit: part(commit),
            machine: part(machine),
            reason,
            wanted,
        }
    }

    /// Why the commits of two groups can't be told from their machines.
    fn together(&self, groups: &[Group; 2]) -> Option<(String, Option<Wanted>)> {
        /// So many machines in either group, drawn by chance, are alike on the whole.
        const MANY: usize = 5;
        let cells = &self.model.cells;
        let [before, after] = groups;
        if before.commits.keys().eq(after.commits.keys()) {
            return None;
        }
        let machines = |group: &Group| {
            let mut machines: Vec<usize> = group.seen.iter().map(|seen| seen.0).collect();
            machines.sort_unstable();
            machines.dedup();
            machines
        };
        let [of_before, of_after] = [machines(before), machines(after)];
        let name = |machine: usize| &cells.machines[machine];
        if of_before == of_after && of_before.len() == 1 {
            let last = before.seen.iter().map(|seen| seen.2).max();
            let first = after.seen.iter().map(|seen| seen.2).min();
            if last < first {
                let wanted = Wanted {
                    commit: cells.commits[before.seen[0].1].clone(),
                    machine: name(of_before[0]).clone(),
                };
                let reason = format!(
                    "inconclusive, because all runs are of machine {0} and one commit's are older: {0} may have changed \
                     itself; run commit {1} on it again",
                    wanted.machine, wanted.commit
                );
                return Some((reason, Some(wanted)));
            }
        }
        let parts = components(cells);
        let of = |group: &Group| group.commits.keys().map(|&c| parts[c]).collect::<Vec<_>>();
        let is_connected = of(before).iter().any(|part| of(after).contains(part));
        if is_connected || of_before.len().min(of_after.len()) >= MANY {
            return None;
        }
        let wanted = self.wanted(groups);
        let run = wanted.as_ref().map_or(String::new(), |wanted| {
            format!(": run commit {} on machine {}", wanted.commit, wanted.machine)
        });
        let reason = format!(
            "inconclusive, because these commits and these machines were only ever seen together{run}"
        );
        Some((reason, wanted))
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
                        });
                    }
                }
            }
        }
        None
    }
}

/// What is left to estimate variances from.
pub(super) fn degrees(model: &Model) -> f64 {
    let used: f64 = model
        .inverse
        .precision
        .iter()
        .zip(&model.inverse.unit)
        .map(|(precision, unit)| precision * unit)
        .sum();
    (model.cells.cells.len() as f64 - model.starts.len() as f64 - used).max(1.0)
}

/// The level of each commit by itself.
pub(super) fn effects(model: &Model) -> Vec<f64> {
    // What is solved for is what differs from the steps' levels, which is small.
    let rest = model.without_commits(|i| model.values[i]);
    let mut out = Vec::new();
    model.inverse.times(&model.cells, &model.units, &rest, &mut out);
    let off = solve(model, &model.by_commit(&out));
    off.iter().enumerate().map(|(c, off)| model.levels[model.level_of(c)] + off).collect()
}

/// The solution of (XᵀV⁻¹X)x = `right`, with a column of X for each commit.
pub(super) fn solve(model: &Model, right: &[f64]) -> Vec<f64> {
    const MOST: usize = 400;
    let cells = &model.cells;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut scale = vec![0.0; right.len()];
    for (i, cell) in cells.cells.iter().enumerate() {
        scale[cell.commit] += model.inverse.weights[i] * model.inverse.rest[cell.session];
    }
    let mut x = vec![0.0; right.len()];
    let mut rest = right.to_vec();
    let scaled = |rest: &[f64]| {
        rest.iter().zip(&scale).map(|(rest, scale)| rest / scale).collect::<Vec<_>>()
    };
    let mut z = scaled(&rest);
    let mut direction = z.clone();
    let mut size = dot(&rest, &z);
    let enough = size * 1e-20;
    let (mut of_cells, mut out) = (vec![0.0; cells.cells.len()], Vec::new());
    for _ in 0..MOST {
        // Not above, so that a NaN ends it as well.
        if !(size > enough && size > 0.0) {
            break;
        }
        of_cells
            .iter_mut()
            .zip(&cells.cells)
            .for_each(|(value, cell)| *value = direction[cell.commit]);
        model.inverse.times(cells, &model.units, &of_cells, &mut out);
        let image = model.by_commit(&out);
        let step = size / dot(&direction, &image);
        if !step.is_finite() {
            break;
        }
        x.iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
        rest.iter_mut().zip(&image).for_each(|(rest, image)| *rest -= step * image);
        z = scaled(&rest);
        let next = dot(&rest, &z);
        let kept = next / size;
        direction.iter_mut().zip(&z).for_each(|(d, z)| *d = z + kept * *d);
        size = next;
    }
    x
}

/// Of each commit, which others machines connect it with: the least of them.
pub(super) fn components(cells: &Cells) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..cells.commits.len()).collect();
    fn root(parent: &mut [usize], mut of: usize) -> usize {
        while parent[of] != of {
            parent[of] = parent[parent[of]];
            of = parent[of];
        }
        of
    }
    let mut first: Vec<Option<usize>> = vec![None; cells.machines.len()];
    for cell in &cells.cells {
        let machine = cells.sessions[cell.session].machine;
        match first[machine] {
            None => first[machine] = Some(cell.commit),
            Some(other) => {
                let (a, b) = (root(&mut parent, cell.commit), root(&mut parent, other));
                parent[a.max(b)] = a.min(b);
            }
        }
    }
    (0..parent.len()).map(|c| root(&mut parent, c)).collect()
}
