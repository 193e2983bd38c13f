//! Judges the runs of a commit by those of the commits before it: what a gate in CI asks.
//!
//! A session may be disturbed, and the newest commit may have been measured in a single one. So a commit is slower only if
//! sessions of the others are rarely as far from where they should be as its own are. That is counted, which needs no
//! distribution (Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005: conformal prediction).

use std::collections::BTreeMap;

use brickscope_profile::stats::median;
use serde::Serialize;

use super::explain::{Cause, Explanation};
use super::{Fleet, FleetError, Limits, Observation, least_log};
use crate::compare::Outcome;

/// A commit beside those before it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The commit.
    pub commit: String,
    /// The commits that it is compared with, oldest first: those since the speed last changed.
    pub before: Vec<String>,
    /// What the difference is made of.
    pub explanation: Explanation,
    /// Whether the commit is slower by at least the limit. A slow machine makes no commit slower.
    pub outcome: Outcome,
    /// The probability that most sessions of an unchanged commit are as slow as its own, by how often sessions of the others
    /// were. `None` if no machine has two sessions of others.
    pub chance: Option<f64>,
    /// Why it isn't decided: a sentence.
    pub doubt: Option<String>,
}

/// The largest probability of calling a commit slower since its sessions were disturbed.
const ALPHA: f64 = 0.01;

impl Fleet {
    /// Judges the runs `new`, all of one commit, by the runs `known`, which may include more of that commit. It counts
    /// as the newest one; the others come in the order of their first runs.
    ///
    /// ```
    /// use brickscope_compare::compare::Outcome;
    /// use brickscope_compare::fleet::{Fleet, Limits, Observation};
    ///
    /// // Three machines, of which m2 is 20 % slow; the newest commit is measured on m2 only.
    /// let run = |day: i64, m: i64, rate: f64| Observation {
    ///     machine: format!("m{m}"),
    ///     commit: format!("c{day}"),
    ///     session: format!("day {day}"),
    ///     time: 86_400 * day,
    ///     value: rate * (1.0 + ((day * 31 + m * 17) % 13) as f64 / 2000.0),
    /// };
    /// let mut known = Vec::new();
    /// for day in 0..12 {
    ///     known.extend([run(day, 0, 100.0), run(day, 1, 101.0), run(day, 2, 80.0)]);
    /// }
    /// let judge = |rate| Fleet::judge(&known, &[run(12, 2, rate)], false, Limits::default());
    /// assert_eq!(judge(80.0)?.outcome, Outcome::Pass, "it is the machine");
    /// // Whatever slowed all machines that day looks the same, and doesn't last.
    /// assert_eq!(judge(72.0)?.outcome, Outcome::Inconclusive);
    /// let of = |day, m, rate| Observation { commit: "c12".to_owned(), ..run(day, m, rate) };
    /// let twice = [of(12, 2, 72.0), of(12, 0, 90.0), of(13, 0, 90.0), of(13, 1, 91.0)];
    /// let judged = Fleet::judge(&known, &twice, false, Limits::default())?;
    /// assert_eq!(judged.outcome, Outcome::Slower);
    /// # Ok::<(), brickscope_compare::fleet::FleetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If `new` is empty or has several commits, `known` has no other commit, or a value is not a number above 0.
    pub fn judge(
        known: &[Observation],
        new: &[Observation],
        is_time: bool,
        limits: Limits,
    ) -> Result<Judged, FleetError> {
        let Some(commit) = new.first().map(|run| run.commit.clone()) else {
            return Err(FleetError::Empty);
        };
        if let Some(other) = new.iter().find(|run| run.commit != commit) {
            return Err(FleetError::SecondCommit { commit, other: other.commit.clone() });
        }
        let others: Vec<Observation> =
            known.iter().filter(|run| run.commit != commit).cloned().collect();
        let mut order = Self::order_by_time(&others);
        if order.is_empty() {
            return Err(FleetError::Empty);
        }
        order.push(commit.clone());
        let all: Vec<Observation> = known.iter().chain(new).cloned().collect();
        let fleet = Self::fit_with(&all, &order, is_time, limits)?;
        // Every step counts, however small: `chance` looks at the last level, too.
        let cells = &fleet.model.cells;
        let newest = cells.commits.len() - 1;
        let start = fleet.steps.iter().map(|(step, _)| step.at).filter(|&at| at < newest).max();
        let first = &cells.commits[start.unwrap_or(0)];
        let start = order.iter().position(|name| name == first).unwrap_or(0);
        let before = order[start..order.len() - 1].to_vec();
        let of = |is_of: &dyn Fn(&str) -> bool| {
            all.iter().filter(|run| is_of(&run.commit)).cloned().collect::<Vec<_>>()
        };
        let explanation = fleet
            .explain(&of(&|name| before.iter().any(|b| b == name)), &of(&|name| name == commit))?;
        let chance = fleet.chance();
        let is_named = fleet
            .changes
            .iter()
            .any(|change| change.commit == commit && change.named && change.is_slower);
        let (outcome, doubt) = verdict(&explanation, chance.as_ref(), is_named, is_time, limits);
        let chance = chance.map(|chance| chance.p);
        Ok(Judged { commit, before, explanation, outcome, chance, doubt })
    }

    /// How likely it is that most of what an unchanged commit was measured by is as slow as that of the newest one. What
    /// machines did on a day on which they ran other commits, too, is beside those; of another day all that machines did is
    /// one figure, since whatever slowed one may have slowed all.
    fn chance(&self) -> Option<Chance> {
        /// So many sessions of other commits on a day say what the day was like.
        const ENOUGH: usize = 3;
        let model = &self.groups.model;
        let of_groups = &self.groups;
        let newest = self.model.cells.commits.len() - 1;
        let sign = if self.is_time { 1.0 } else { -1.0 };
        let starts: Vec<usize> = [0]
            .into_iter()
            .chain(self.steps.iter().map(|(step, _)| step.at).filter(|&at| at < newest))
            .chain([newest])
            .collect();
        let part = of_groups.parts[newest];
        let levels = of_groups.fitted(part, &starts).levels;
        let level_of = |commit: usize| starts.partition_point(|&start| start <= commit) - 1;
        let before = levels[levels.len() - 2];
        // By day: of each session how far it is from where it should be, of other commits and of the newest one.
        let mut by_day: BTreeMap<usize, [Vec<f64>; 2]> = BTreeMap::new();
        for (u, unit) in model.units.iter().enumerate() {
            let commit = |i: usize| of_groups.commit_of[model.cells.cells[i].commit];
            let others = (unit.sessions[0]..unit.sessions[1])
                .filter(|&s| model.cells.in_session(s).any(|i| commit(i) != newest))
                .count() as f64;
            for s in unit.sessions[0]..unit.sessions[1] {
                for i in model.cells.in_session(s).filter(|&i| of_groups.parts[commit(i)] == part) {
                    let cell = &model.cells.cells[i];
                    let off =
                        |level: f64| sign * (cell.log - level - model.machines[u]) / model.noise(i);
                    let sides = by_day.entry(model.cells.days[s]).or_default();
                    if commit(i) == newest {
                        sides[1].push(off(before));
                    } else if others > 1.0 {
                        // The machine's level comes from these sessions, but not from the newest commit's.
                        let wider = ((others + 1.0) / (others - 1.0)).sqrt();
                        sides[0].push(wider * off(levels[level_of(commit(i))]));
                    }
                }
            }
        }
        let (mut known, mut new, mut days, mut new_days) = (vec![], vec![], vec![], vec![]);
        // A day's figure varies the less the more sessions it has, so that other days have no more of them, either.
        let most = by_day.values().map(|[_, own]| own.len()).max().unwrap_or(0).max(1);
        for [others, own] in by_day.into_values() {
            let middle = median(&others);
            match middle.filter(|_| others.len() >= ENOUGH) {
                Some(middle) => {
                    known.extend(others.iter().map(|off| (off - middle).abs()));
                    new.extend(own.iter().map(|off| off - middle));
                }
                None => new_days.extend(median(&own)),
            }
            days.extend(median(&others[..most.min(others.len())]).map(f64::abs));
        }
        if new.is_empty() {
            (known, new) = (days, new_days);
        }
        if known.is_empty() {
            return None;
        }
        let as_far = |off: &f64| known.iter().filter(|known| *known >= off).count();
        let mut each: Vec<usize> = new.iter().map(as_far).collect();
        each.sort_unstable();
        // Of n independent probabilities, at least m are no larger than this with at most this probability.
        let (n, m) = (each.len(), each.len() / 2 + 1);
        let as_far = *each.get(m - 1)?;
        let largest = (1 + as_far) as f64 / (1 + known.len()) as f64;
        let ways = (0..m).fold(1.0, |ways, k| ways * (n - k) as f64 / (k + 1) as f64);
        let p = (ways * largest.powi(m as i32)).min(1.0);
        Some(Chance { p, as_far, known: known.len(), new: n })
    }
}

/// How often other sessions are as far off as most of the newest commit's.
struct Chance {
    p: f64,
    as_far: usize,
    known: usize,
    new: usize,
}

/// Whether the commit is slower, and why if that isn't decided though the cause is.
fn verdict(
    explanation: &Explanation,
    chance: Option<&Chance>,
    is_named: bool,
    is_time: bool,
    limits: Limits,
) -> (Outcome, Option<String>) {
    let part = &explanation.commit;
    // How much slower it is, and is at most: above 1 is slower.
    let [by, most] =
        if is_time { [part.ratio, part.high] } else { [1.0 / part.ratio, 1.0 / part.low] };
    match explanation.cause {
        Cause::Inconclusive => (Outcome::Inconclusive, None),
        Cause::Commit | Cause::Both if by > 1.0 && is_named => (Outcome::Slower, None),
        Cause::Commit | Cause::Both if by > 1.0 => match chance {
            Some(chance) if chance.p <= ALPHA => (Outcome::Slower, None),
            _ => {
                let why = match chance {
                    None => "no machine has two sessions of other commits, to show how far off sessions are"
                        .to_owned(),
                    Some(Chance { as_far, known, new, .. }) => format!(
                        "{as_far} of {known} sessions of other commits are as far off as {}, which doesn't rule it out",
                        if *new == 1 { "its only one" } else { "most of its own" },
                    ),
                };
                let doubt = format!(
                    "it looks slower, but its sessions may have been disturbed: {why}; measure it on another day, or on \
                     another machine"
                );
                (Outcome::Inconclusive, Some(doubt))
            }
        },
        // Within two limits: so near that more runs would hardly show a change that counts.
        _ if most.ln() < 2.0 * least_log(limits.commit) => (Outcome::Pass, None),
        _ => {
            let doubt = format!(
                "the commit may be up to {:.1} % slower; measure it on another day, or on another machine",
                100.0 * (most - 1.0)
            );
            (Outcome::Inconclusive, Some(doubt))
        }
    }
}
