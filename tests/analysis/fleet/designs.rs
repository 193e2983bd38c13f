//! Fleets by their design: who ran what on which day, what changed, and whether that can be told from the machines at all.

use std::collections::HashMap;

use brickscope_analysis::compare::Outcome;
use brickscope_analysis::fleet::{Fleet, Limits, Observation};
use brickscope_profile::stats::{SplitMix64, median, student};

use super::made::Random;

/// What happens to a fleet. All but [`Case::Days`] is by `size`, as a part of the speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Nothing.
    Nothing,
    /// These commits are slower, from the first to the one before the last.
    Slow(usize, usize),
    /// So are these, twice.
    Twice([usize; 2], [usize; 2]),
    /// All machines are replaced by slower ones at this commit.
    Replaced(usize),
    /// All but so many of them, which stay as they are.
    NearlyReplaced(usize, usize),
    /// The newest commit is only on machines that ran nothing else, and are slower.
    NewestElsewhere,
    /// From this commit on, so many machines a day become slower.
    Rolling(usize, usize),
    /// On this day all machines are slower.
    Shock(usize),
    /// Each day all machines are faster or slower by chance; `size` is the standard deviation.
    Days,
    /// Each build is, likewise.
    Builds,
    /// Each commit has one machine of its own, of which the second is slower.
    Apart,
}

/// A fleet of one design.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Design {
    pub name: &'static str,
    pub case: Case,
    pub size: f64,
    pub machines: usize,
    pub commits: usize,
    /// Days that each commit is measured on.
    pub days: usize,
    /// Commits that are measured on one day.
    pub a_day: usize,
    /// What sessions vary by.
    pub noise: f64,
}

/// The figures of a design over many fleets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tally {
    pub fleets: usize,
    /// Those in which what was planted was named, and nothing else.
    pub right: usize,
    /// Those in which a commit was named that changed nothing.
    pub false_names: usize,
    /// Those in which something was said to be undecidable.
    pub undecided: usize,
    /// Those in which the interval of the commit's part held the truth, of those in which there was one.
    pub held: [usize; 2],
    /// Those in which a named change's interval held the truth, of all named.
    pub held_by_changes: [usize; 2],
    /// Those in which a gate calls the newest commit slower though it isn't slower than those before it.
    pub false_alarms: usize,
    /// How often an oracle that knows the places, the machines and the noise would find all.
    pub oracle: usize,
}

impl Design {
    pub(crate) fn new(name: &'static str, case: Case, size: f64) -> Self {
        Self { name, case, size, machines: 6, commits: 20, days: 1, a_day: 1, noise: 0.006 }
    }

    fn day(&self, commit: usize, nth: usize) -> usize {
        commit / self.a_day * self.days + nth
    }

    fn name_of(commit: usize) -> String {
        format!("c{commit:03}")
    }

    /// The machines that run a commit: their names, and their places.
    fn machines(&self, commit: usize) -> Vec<(String, usize)> {
        let of = |k: usize| {
            let is_new = match self.case {
                Case::Replaced(at) => commit >= at,
                Case::NearlyReplaced(at, stay) => commit >= at && k >= stay,
                Case::NewestElsewhere => commit + 1 == self.commits,
                _ => false,
            };
            (format!("{}{k:02}", if is_new { "new" } else { "m" }), k)
        };
        match self.case {
            Case::Apart => {
                vec![(format!("m{:02}", commit % self.machines), commit % self.machines)]
            }
            _ => (0..self.machines).map(of).collect(),
        }
    }

    /// By what the commit itself changes the logarithm of the speed.
    fn by_commit(&self, commit: usize) -> f64 {
        let slow = (1.0 - self.size).ln();
        let is_slow = match self.case {
            Case::Slow(from, to) => (from..to).contains(&commit),
            Case::Twice(one, other) => {
                (one[0]..one[1]).contains(&commit) || (other[0]..other[1]).contains(&commit)
            }
            _ => false,
        };
        if is_slow { slow } else { 0.0 }
    }

    /// What else slows it there.
    fn by_machine(&self, commit: usize, k: usize, day: usize) -> f64 {
        let slow = (1.0 - self.size).ln();
        let is_slow = match self.case {
            Case::Replaced(at) => commit >= at,
            Case::NearlyReplaced(at, stay) => commit >= at && k >= stay,
            Case::NewestElsewhere => commit + 1 == self.commits,
            Case::Rolling(at, of_day) => day >= at + k / of_day,
            Case::Shock(on) => day == on,
            Case::Apart => k == 1,
            _ => false,
        };
        0.002 * k as f64 + if is_slow { slow } else { 0.0 }
    }

    pub(crate) fn order(&self) -> Vec<String> {
        (0..self.commits).map(Self::name_of).collect()
    }

    pub(crate) fn runs(&self, seed: u64) -> Vec<Observation> {
        let mut random = Random(SplitMix64(SplitMix64(!seed ^ 0xde51).bits()));
        let days = self.day(self.commits, self.days);
        let of_days: Vec<f64> = (0..=days).map(|_| random.normal()).collect();
        let of_builds: Vec<f64> = (0..self.commits).map(|_| random.normal()).collect();
        let mut runs = Vec::new();
        for (commit, lucky) in of_builds.into_iter().enumerate() {
            let build = if self.case == Case::Builds { self.size * lucky } else { 0.0 };
            for nth in 0..self.days {
                let day = self.day(commit, nth);
                let shared = if self.case == Case::Days { self.size * of_days[day] } else { 0.0 };
                for (machine, k) in self.machines(commit) {
                    let level = self.by_commit(commit) + self.by_machine(commit, k, day);
                    let session = level + build + shared + self.noise * 0.8 * random.normal();
                    for run in 0..3 {
                        let log = session + self.noise * random.normal();
                        let minutes = (commit % self.a_day * 60 + k) as i64;
                        runs.push(Observation {
                            machine: machine.clone(),
                            commit: Self::name_of(commit),
                            session: format!("{day}.{commit}"),
                            time: 86_400 * day as i64 + 60 * minutes + run,
                            value: 100.0 * log.exp(),
                        });
                    }
                }
            }
        }
        runs
    }

    /// The commits that change the speed.
    fn steps(&self) -> Vec<usize> {
        let is_step = |commit: &usize| self.by_commit(*commit) != self.by_commit(commit - 1);
        (1..self.commits).filter(is_step).collect()
    }

    /// The commits whose difference is asked for: a planted step's, or where something else happens.
    fn asked(&self) -> usize {
        let of_case = match self.case {
            Case::Replaced(at) | Case::NearlyReplaced(at, _) => at,
            Case::Rolling(at, _) => at + 1,
            Case::Shock(day) => day / self.days * self.a_day,
            Case::NewestElsewhere => self.commits - 1,
            _ => self.commits / 2,
        };
        self.steps().first().copied().unwrap_or(of_case).max(1)
    }

    /// Whether the least of the steps is beyond the noise for one who knows the places and the noise of each session.
    fn is_known(&self, runs: &[Observation]) -> bool {
        let of_run = self.noise * self.noise * (0.64 + std::f64::consts::FRAC_PI_2 / 3.0);
        let steps = self.steps();
        let edges: Vec<usize> =
            [0].into_iter().chain(steps.clone()).chain([self.commits]).collect();
        let mut logs: HashMap<(&str, &str), Vec<f64>> = HashMap::new();
        for run in runs {
            let place = (run.commit.as_str(), run.machine.as_str());
            logs.entry(place).or_default().push(run.value.ln());
        }
        let log = |commit: usize, machine: &str| {
            let commit = Self::name_of(commit);
            let logs = logs.get(&(commit.as_str(), machine));
            logs.and_then(|logs| median(logs)).unwrap_or(0.0)
        };
        let level = |from: usize, to: usize| {
            let mut logs = Vec::new();
            for commit in from..to {
                logs.extend(
                    self.machines(commit).iter().map(|(m, k)| log(commit, m) - 0.002 * *k as f64),
                );
            }
            logs.iter().sum::<f64>() / logs.len() as f64
        };
        edges.windows(3).all(|edge| {
            let own =
                |from: usize, to: usize| of_run / ((to - from) * self.machines * self.days) as f64;
            let error = (own(edge[0], edge[1]) + own(edge[1], edge[2])).sqrt();
            let off = (level(edge[1], edge[2]) - level(edge[0], edge[1])).abs();
            student::two_sided(off / error, 1e6) < 0.003
        })
    }

    /// Whether nobody can tell the commit's part from such figures, and whoever asks should be told so.
    pub(crate) fn is_undecidable(&self) -> bool {
        let is_of_machines = matches!(
            self.case,
            Case::Replaced(_) | Case::NewestElsewhere | Case::Rolling(..) | Case::Apart
        );
        is_of_machines || matches!(self.case, Case::Shock(_)) && self.a_day == 1 && self.size > 0.05
    }

    /// Whether what is asked can be told from this design by somebody who knows the places and the noise.
    fn is_told(&self) -> bool {
        matches!(self.case, Case::Slow(..) | Case::Twice(..) | Case::Nothing | Case::Builds)
    }

    pub(crate) fn tally(&self, fleets: u64) -> Tally {
        let mut tally = Tally { fleets: fleets as usize, ..Tally::default() };
        let order = self.order();
        let steps: Vec<&String> = self.steps().into_iter().map(|at| &order[at]).collect();
        for seed in 0..fleets {
            let runs = self.runs(seed);
            let fleet = Fleet::fit(&runs, &order, false).expect("it has runs");
            let named: Vec<&String> =
                fleet.changes.iter().filter(|c| c.named).map(|c| &c.commit).collect();
            tally.right += usize::from(named == steps);
            tally.false_names += usize::from(named.iter().any(|name| !steps.contains(name)));
            tally.oracle += usize::from(self.is_told() && self.is_known(&runs));
            let of = |commit: usize| -> Vec<Observation> {
                runs.iter().filter(|run| run.commit == order[commit]).cloned().collect()
            };
            let asked = self.asked();
            let explained = fleet.explain(&of(asked - 1), &of(asked)).expect("it has runs");
            let truth = (self.by_commit(asked) - self.by_commit(asked - 1)).exp();
            let holds =
                |low: f64, truth: f64, high: f64| usize::from(low <= truth && truth <= high);
            if explained.commit.is_known() {
                tally.held[1] += 1;
                // What a build is lucky by is the build's.
                let is_of_builds = self.case == Case::Builds;
                let part = explained.commit;
                tally.held[0] += if is_of_builds { 1 } else { holds(part.low, truth, part.high) };
            }
            let is_undecided = fleet.changes.iter().any(|c| !c.named)
                || !fleet.doubts.is_empty()
                || !explained.commit.is_known();
            tally.undecided += usize::from(is_undecided);
            for change in fleet.changes.iter().filter(|change| steps.contains(&&change.commit)) {
                let at = order.iter().position(|name| *name == change.commit).expect("a commit");
                let truth = (self.by_commit(at) - self.by_commit(at - 1)).exp();
                tally.held_by_changes[1] += 1;
                tally.held_by_changes[0] += holds(change.low, truth, change.high);
            }
            let (new, known): (Vec<_>, Vec<_>) =
                runs.iter().cloned().partition(|run| run.commit == order[self.commits - 1]);
            let judged = Fleet::judge(&known, &new, false, Limits::default()).expect("it has runs");
            let newest = self.commits - 1;
            let is_slower = self.by_commit(newest) < self.by_commit(newest - 1);
            let is_alarm = judged.outcome == Outcome::Slower && !is_slower;
            // A build that is slower by luck is slower.
            tally.false_alarms += usize::from(is_alarm && self.case != Case::Builds);
        }
        tally
    }
}

/// All designs, by sizes of 5, 10 and 30 % where something is planted, and of 3, 8 and 20 % where nothing is.
pub(crate) fn all() -> Vec<Design> {
    let mut all = vec![Design::new("nothing", Case::Nothing, 0.0)];
    for size in [0.05, 0.1, 0.3] {
        let two =
            Design { commits: 2, days: 3, ..Design::new("two commits", Case::Slow(1, 2), size) };
        all.extend([
            two.clone(),
            Design { name: "two commits, 3 machines", machines: 3, ..two.clone() },
            Design { name: "three commits, the last", commits: 3, case: Case::Slow(2, 3), ..two },
            Design::new("from 10 on", Case::Slow(10, 20), size),
            Design::new("8 to 11, reverted", Case::Slow(8, 12), size),
            Design::new("8 and 9, reverted", Case::Slow(8, 10), size),
            Design { days: 2, ..Design::new("8, two days, reverted", Case::Slow(8, 9), size) },
            Design::new("twice, reverted", Case::Twice([4, 7], [12, 16]), size),
            Design { a_day: 4, ..Design::new("9, four a day, reverted", Case::Slow(9, 10), size) },
            Design { noise: 0.02, ..Design::new("8 to 11, noisy", Case::Slow(8, 12), size) },
            Design {
                machines: 12,
                commits: 60,
                ..Design::new("20 to 29 of 60", Case::Slow(20, 30), size)
            },
            Design { days: 2, ..Design::new("the newest, two days", Case::Slow(19, 20), size) },
        ]);
    }
    for size in [0.03, 0.08, 0.2] {
        all.extend([
            Design { machines: 12, ..Design::new("replaced at 10", Case::Replaced(10), size) },
            Design::new("replaced at 10 but for two", Case::NearlyReplaced(10, 2), size),
            Design::new("newest on new machines", Case::NewestElsewhere, size),
            Design::new("two a day, rolling", Case::Rolling(9, 2), size),
            Design::new("one a day, rolling", Case::Rolling(7, 1), size),
            Design {
                machines: 12,
                ..Design::new("three a day, rolling", Case::Rolling(9, 3), size)
            },
            Design::new("a day's shock", Case::Shock(12), size),
            Design::new("the newest day's shock", Case::Shock(19), size),
            Design { a_day: 4, ..Design::new("a shock, four commits", Case::Shock(2), size) },
            Design { commits: 2, ..Design::new("two commits, a day each", Case::Shock(1), size) },
            Design {
                machines: 2,
                commits: 2,
                ..Design::new("a commit a machine", Case::Apart, size)
            },
        ]);
    }
    for size in [0.005, 0.01, 0.03] {
        all.extend([
            Design::new("days vary", Case::Days, size),
            Design { a_day: 4, ..Design::new("days vary, four commits", Case::Days, size) },
            Design {
                days: 3,
                commits: 6,
                ..Design::new("days vary, three each", Case::Days, size)
            },
            Design {
                days: 3,
                commits: 2,
                ..Design::new("days vary, two commits", Case::Days, size)
            },
        ]);
    }
    for size in [0.005, 0.01] {
        all.extend([
            Design::new("builds vary", Case::Builds, size),
            Design { commits: 6, days: 2, ..Design::new("builds vary, six", Case::Builds, size) },
            Design { commits: 2, days: 3, ..Design::new("builds vary, two", Case::Builds, size) },
        ]);
    }
    all
}
