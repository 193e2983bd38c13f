//! Judges the runs of a commit by those of the commits before it: what a gate in CI asks.

use serde::Serialize;

use super::explain::{Cause, Explanation};
use super::{Fleet, FleetError, Limits, Observation};
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
}

impl Fleet {
    /// Judges the runs `new`, all of one commit, by the runs `known`, which may include more of that commit. It counts
    /// as the newest one; the others come in the order of their first runs.
    ///
    /// ```
    /// use brickscope_analysis::compare::Outcome;
    /// use brickscope_analysis::fleet::{Fleet, Limits, Observation};
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
    /// for day in 0..8 {
    ///     known.extend([run(day, 0, 100.0), run(day, 1, 101.0), run(day, 2, 80.0)]);
    /// }
    /// let judge = |rate| Fleet::judge(&known, &[run(8, 2, rate)], false, Limits::default());
    /// assert_eq!(judge(80.0)?.outcome, Outcome::Pass, "it is the machine");
    /// assert_eq!(judge(72.0)?.outcome, Outcome::Slower);
    /// # Ok::<(), brickscope_analysis::fleet::FleetError>(())
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
        let changed = |change: &super::CommitChange| {
            order.iter().position(|name| *name == change.commit && *name != commit)
        };
        let start = fleet.changes.iter().filter_map(changed).max().unwrap_or(0);
        let before = order[start..order.len() - 1].to_vec();
        let of = |is_of: &dyn Fn(&str) -> bool| {
            all.iter().filter(|run| is_of(&run.commit)).cloned().collect::<Vec<_>>()
        };
        let explanation = fleet
            .explain(&of(&|name| before.iter().any(|b| b == name)), &of(&|name| name == commit))?;
        let outcome = match explanation.cause {
            Cause::Commit | Cause::Both if (explanation.commit.ratio > 1.0) == is_time => {
                Outcome::Slower
            }
            Cause::Inconclusive => Outcome::Inconclusive,
            _ => Outcome::Pass,
        };
        Ok(Judged { commit, before, explanation, outcome })
    }
}
