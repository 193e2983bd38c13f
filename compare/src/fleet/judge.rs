//! Judges the runs of a commit by those of the commits before it: what a gate in CI asks.
//!
//! A session may be disturbed, and the newest commit may have been measured in a single one. So a commit is slower only if
//! sessions of the others are rarely as far from where they should be as its own are. That is counted, which needs no
//! distribution (Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005: conformal prediction).

use std::collections::BTreeMap;

use brickscope_profile::stats::median;
use serde::Serialize;

use super::explain::{Cause, Effect, Explanation, Reach};
use super::{Fleet, FleetError, Limits, Observation};
use crate::compare::{Outcome, Verdict};

/// A commit beside those before it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The commit.
    pub commit: String,
    /// The commits that it is compared with, oldest first: those since the speed last changed.
    pub before: Vec<String>,
    /// What the difference is made of.
    pub explanation: Explanation,
    /// How much slower the commit is, and the ends of its 95 % interval, as changes of a time: 0.03 takes 3 % longer, and
    /// below 0 is faster. Each machine is compared with itself. `None` if that isn't known. If the explanation only
    /// [`looks`](Explanation::looks) so, it is that.
    pub slower: Option<[f64; 3]>,
    /// How much slower the machines of the commit's runs are than those of the runs before, likewise, if they aren't the
    /// same and that is known. It isn't in `slower`.
    pub by_machines: Option<f64>,
    /// Whether the commit is slower, by the rule of [`Verdict::of`] and the limit of commits. A slow machine makes no
    /// commit slower.
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
        let sides = [of(&|name| before.iter().any(|b| b == name)), of(&|name| name == commit)];
        // A change that may reach the limit isn't the commit's if machines don't agree in it.
        let explanation = fleet.explained(&sides[0], &sides[1], Reach::Interval)?;
        let chance = fleet.chance();
        let is_named = fleet
            .changes
            .iter()
            .any(|change| change.commit == commit && change.named && change.is_slower);
        let slower = slower_by(&explanation, is_time);
        let machine = Some(explanation.machine).filter(|of| of.is_known() && of.low < of.high);
        let by_machines = machine.map(|of| of_time(of, is_time)[0]);
        let decided = slower.filter(|_| explanation.cause != Cause::Inconclusive);
        let (outcome, doubt) = match decided {
            Some(slower) => verdict(slower, chance.as_ref(), is_named, limits),
            None => (Outcome::Inconclusive, None),
        };
        let chance = chance.map(|chance| chance.p);
        Ok(Judged { commit, before, explanation, slower, by_machines, outcome, chance, doubt })
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

/// The commit's part as changes of a time, with the ends of its interval.
fn slower_by(explanation: &Explanation, is_time: bool) -> Option<[f64; 3]> {
    let part = Some(explanation.commit).filter(Effect::is_known).or(explanation.looks)?;
    Some(of_time(part, is_time))
}

/// A part as changes of a time, with the ends of its interval.
fn of_time(part: Effect, is_time: bool) -> [f64; 3] {
    match is_time {
        true => [part.ratio - 1.0, part.low - 1.0, part.high - 1.0],
        // A rate is divided by what a time is multiplied with.
        false => [1.0 / part.ratio - 1.0, 1.0 / part.high - 1.0, 1.0 / part.low - 1.0],
    }
}

/// Whether the commit is slower, and why if that isn't decided though the cause is known.
fn verdict(
    [_, low, high]: [f64; 3],
    chance: Option<&Chance>,
    is_named: bool,
    limits: Limits,
) -> (Outcome, Option<String>) {
    match Verdict::of(low, high, limits.commit) {
        Verdict::Unchanged | Verdict::Faster => (Outcome::Pass, None),
        Verdict::Slower if is_named || chance.is_some_and(|chance| chance.p <= ALPHA) => {
            (Outcome::Slower, None)
        }
        Verdict::Slower => {
            let why = match chance {
                None => {
                    "no machine has two sessions of other commits, to show how far off sessions are"
                        .to_owned()
                }
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
        Verdict::Inconclusive => {
            // Less than the limit is a doubt only beside how much faster it may be.
            let faster = match high < limits.commit {
                true => format!("{:.1} % faster or ", 100.0 * low.abs()),
                false => String::new(),
            };
            let doubt = format!(
                "the commit may be up to {faster}{:.1} % slower; measure it on another day, or on another machine",
                100.0 * high
            );
            (Outcome::Inconclusive, Some(doubt))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_goes_by_the_table_of_compare() {
        let limits = Limits { commit: 0.03, ..Limits::default() };
        let rare = Chance { p: 0.005, as_far: 0, known: 200, new: 1 };
        let often = Chance { p: 0.2, as_far: 7, known: 36, new: 1 };
        let of = |low, high, chance| verdict([0.0, low, high], Some(chance), false, limits).0;
        assert_eq!(of(0.015, 0.039, &rare), Outcome::Slower);
        assert_eq!(of(0.015, 0.039, &often), Outcome::Inconclusive);
        assert_eq!(of(0.001, 0.029, &rare), Outcome::Pass);
        assert_eq!(of(-0.05, -0.01, &rare), Outcome::Pass);
        assert_eq!(of(-0.01, 0.03, &rare), Outcome::Inconclusive);
        assert_eq!(of(-0.04, 0.01, &rare), Outcome::Inconclusive);
        let why = |low, high| verdict([0.0, low, high], Some(&rare), false, limits).1;
        let why = [why(-0.01, 0.04), why(-0.04, 0.01)].map(Option::unwrap_or_default);
        assert!(why[0].starts_with("the commit may be up to 4.0 % slower;"), "{why:?}");
        assert!(why[1].starts_with("the commit may be up to 4.0 % faster or 1.0 % slower;"));
    }

    /// The tokens per second of twelve nights on three machines, three nights a commit; the third commit is 8 % slower, and
    /// the third machine 20 %.
    const NIGHTS: [[f64; 3]; 12] = [
        [40.14, 39.95, 31.92],
        [39.70, 39.92, 31.96],
        [40.19, 40.11, 32.04],
        [40.18, 39.99, 32.03],
        [39.96, 39.98, 31.86],
        [40.21, 39.71, 31.85],
        [36.89, 36.69, 29.41],
        [37.37, 36.84, 29.62],
        [36.63, 36.95, 29.56],
        [36.76, 36.62, 29.43],
        [36.74, 36.80, 29.71],
        [36.59, 36.54, 29.71],
    ];

    fn run(night: usize, machine: usize, commit: &str, value: f64) -> Observation {
        Observation {
            machine: format!("ci-{}", machine + 1),
            commit: commit.to_owned(),
            session: format!("night {night}"),
            time: 1_794_798_000 + 86_400 * night as i64,
            value,
        }
    }

    #[test]
    fn what_may_be_slower_by_the_limit_does_not_pass_on_the_only_machine_that_ran_it() {
        let nights = NIGHTS.iter().enumerate();
        let known: Vec<Observation> = nights
            .flat_map(|(night, rates)| {
                let commit = ["aaa1111", "bbb2222", "ccc3333", "ddd4444"][night / 3];
                rates.iter().enumerate().map(move |(m, rate)| run(night, m, commit, *rate))
            })
            .collect();
        let limits = Limits { commit: 0.03, ..Limits::default() };
        let judge = |rate| {
            let new = [run(12, 0, "eee5555", rate)];
            Fleet::judge(&known, &new, false, limits).expect("runs")
        };
        let judged = judge(35.87);
        assert_eq!(judged.outcome, Outcome::Inconclusive, "{judged:?}");
        let [_, low, high] = judged.slower.expect("it is known if the machine stayed as it was");
        assert!(low > 0.0 && high >= 0.03, "{low} {high}");
        let explanation = &judged.explanation;
        assert!(explanation.reason.contains("only ci-1 ran"), "{explanation:?}");
        // That machine has run it, so it has to be once more.
        let wanted = explanation.wanted.as_ref().expect("a run that tells").to_string();
        assert_eq!(wanted, "commit ddd4444 on machine ci-1 again, after its runs of eee5555");
        let judged = judge(36.8);
        assert_eq!(judged.outcome, Outcome::Pass);
        // Of the three it is a fast one, whose rate is higher and whose time is shorter.
        let (of_rate, by) = (judged.explanation.machine.ratio, judged.by_machines.expect("known"));
        assert!(of_rate > 1.05 && by < -0.05, "{of_rate} {by}");
    }
}
