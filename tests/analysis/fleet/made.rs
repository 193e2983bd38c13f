//! Fleets whose truth is known, with the noise of a real machine.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use brickscope_analysis::fleet::{Fleet, Observation};
use brickscope_profile::stats::{SplitMix64, median};

/// What was recorded: prefill, whose processes vary by 4 % and of which each tenth was 17 % slower or more; and decode,
/// by 1.2 % and 9 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Noise {
    Prefill,
    Decode,
}

/// Logarithms of the processes' times, one after the other as they ran, their median taken off.
pub(crate) fn recorded(noise: Noise) -> &'static [f64] {
    #[derive(serde::Deserialize)]
    struct Recorded {
        /// For each process and test its samples, of which the wall is the first figure.
        processes: Vec<Vec<Vec<Vec<u64>>>>,
    }
    static LOGS: OnceLock<[Vec<f64>; 2]> = OnceLock::new();
    let logs = LOGS.get_or_init(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/noise.json");
        let text = std::fs::read_to_string(path).expect("it is there");
        let recorded: Recorded = serde_json::from_str(&text).expect("it is what was recorded");
        [0, 1].map(|test| {
            let log = |process: &Vec<Vec<Vec<u64>>>| {
                let logs: Vec<f64> = process[test].iter().map(|s| (s[0] as f64).ln()).collect();
                median(&logs).expect("repetitions")
            };
            let logs: Vec<f64> = recorded.processes.iter().map(log).collect();
            let middle = median(&logs).expect("processes");
            logs.iter().map(|log| log - middle).collect()
        })
    });
    &logs[noise as usize]
}

pub(crate) struct Random(pub SplitMix64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.bits()) * n as u128) >> 64) as usize
    }

    pub(crate) fn part(&mut self) -> f64 {
        (self.0.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn within(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.part()
    }

    /// Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.part()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.part()).cos()
    }
}

/// How a fleet is made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Made {
    pub machines: usize,
    pub commits: usize,
    /// The least and the most machines that run a commit.
    pub machines_a_commit: [usize; 2],
    /// Machines take turns, so that each is seen equally often; otherwise they are drawn.
    pub in_turns: bool,
    /// Sessions of a machine with a commit, and processes of a session, which follow each other in the recording.
    pub sessions: usize,
    pub processes: usize,
    /// A machine's sessions follow each other in the recording as well: what disturbs one may disturb the next.
    pub in_a_row: bool,
    pub noise: Noise,
    /// The standard deviation between machines, as a part.
    pub machine_sd: f64,
    /// What builds differ by without any reason in their commit, as a standard deviation.
    pub luck: f64,
    /// Machines that are slow, and by what part of their speed at least and at most.
    pub slow: usize,
    /// The least commits that a slow machine ran.
    pub slow_ran: usize,
    pub slow_by: [f64; 2],
    /// Commits that change the speed, half of them for the better, and by what part.
    pub steps: usize,
    pub step_by: [f64; 2],
}

impl Default for Made {
    fn default() -> Self {
        Self {
            machines: 200,
            commits: 50,
            machines_a_commit: [8, 20],
            in_turns: false,
            sessions: 2,
            processes: 3,
            in_a_row: false,
            noise: Noise::Decode,
            machine_sd: 0.02,
            luck: 0.0,
            slow: 3,
            slow_ran: 2,
            slow_by: [0.10, 0.25],
            steps: 2,
            step_by: [0.03, 0.08],
        }
    }
}

/// A fleet, and what is true of it.
pub(crate) struct Truth {
    pub runs: Vec<Observation>,
    pub order: Vec<String>,
    /// The commits that changed the speed, and whether that is a slow-down.
    pub steps: Vec<(String, bool)>,
    pub slow: Vec<String>,
    /// The logarithm of each machine's time.
    pub machine: Vec<f64>,
    /// That of each commit's.
    pub level: Vec<f64>,
}

impl Made {
    pub(crate) fn fleet(&self, seed: u64) -> Truth {
        // Neighbouring states of this generator would be the same numbers, one later.
        let mut random = Random(SplitMix64(SplitMix64(!seed).bits()));
        // Who runs what, first.
        let (mut ran, mut deck, mut counts) =
            (Vec::new(), Vec::new(), vec![0_usize; self.machines]);
        for _ in 0..self.commits {
            let [least, most] = self.machines_a_commit;
            let count = (least + random.below(most - least + 1)).min(self.machines);
            let mut used: Vec<usize> = Vec::new();
            while used.len() < count {
                if deck.is_empty() {
                    deck = (0..self.machines).collect();
                    random.0.shuffle(&mut deck);
                }
                let m = if self.in_turns {
                    deck.pop().unwrap_or(0)
                } else {
                    random.below(self.machines)
                };
                if !used.contains(&m) {
                    used.push(m);
                    counts[m] += 1;
                }
            }
            ran.push(used);
        }
        let mut machine: Vec<f64> =
            (0..self.machines).map(|_| self.machine_sd * random.normal()).collect();
        let mut shuffled: Vec<usize> = (0..self.machines).collect();
        random.0.shuffle(&mut shuffled);
        shuffled.retain(|&m| counts[m] >= self.slow_ran);
        let mut slow: Vec<usize> = shuffled[..self.slow].to_vec();
        slow.sort_unstable();
        for &m in &slow {
            machine[m] = -(1.0 - random.within(self.slow_by)).ln();
        }
        let mut steps: Vec<usize> = Vec::new();
        while steps.len() < self.steps {
            let at = 3 + random.below(self.commits - 5);
            if steps.iter().all(|step| step.abs_diff(at) >= 5) {
                steps.push(at);
            }
        }
        steps.sort_unstable();
        let sizes: Vec<f64> = steps
            .iter()
            .map(|_| {
                let size = random.within(self.step_by);
                if random.below(2) == 0 { -(1.0 - size).ln() } else { -(1.0 + size).ln() }
            })
            .collect();
        let order: Vec<String> = (0..self.commits).map(|c| format!("commit {c:03}")).collect();
        let (mut runs, mut time, mut levels) = (Vec::new(), 0_i64, Vec::new());
        let recorded = recorded(self.noise);
        let mut next: Vec<usize> =
            (0..self.machines).map(|_| random.below(recorded.len())).collect();
        for (c, commit) in order.iter().enumerate() {
            let luck = self.luck * random.normal();
            let changes = steps.iter().zip(&sizes).filter(|(at, _)| **at <= c);
            let level = luck + changes.map(|(_, size)| size).sum::<f64>();
            levels.push(level);
            for session in 0..self.sessions {
                // Each round of sessions has a day of its own, or several if there are many machines.
                time += 86_400;
                for &m in &ran[c] {
                    time += 600;
                    let mut from = random.below(recorded.len() - self.processes + 1);
                    if self.in_a_row {
                        // From its end the recording goes on at its start.
                        from = if next[m] + self.processes > recorded.len() { 0 } else { next[m] };
                        next[m] = from + self.processes;
                    }
                    for process in 0..self.processes {
                        let log = level + machine[m] + recorded[from + process];
                        runs.push(Observation {
                            machine: format!("machine {m:03}"),
                            commit: commit.clone(),
                            session: format!("{c}.{session}"),
                            time: time + 60 * process as i64,
                            value: 100.0 * (-log).exp(),
                        });
                    }
                }
            }
        }
        Truth {
            runs,
            machine,
            level: levels,
            steps: steps
                .iter()
                .zip(&sizes)
                .map(|(&c, size)| (order[c].clone(), *size > 0.0))
                .collect(),
            order,
            slow: slow.iter().map(|m| format!("machine {m:03}")).collect(),
        }
    }
}

/// Names slow machines, knowing all but which they are: what commits did, what machines vary by, how slow the slow ones are,
/// and how often sessions deviate by how much. No test of a machine's sessions is better than the ratio of their
/// likelihoods (Neyman and Pearson, "On the problem of the most efficient tests of statistical hypotheses", 1933).
pub(crate) struct Oracle {
    /// Of a session's deviation, from [`Self::FROM`] on, in steps of [`Self::STEP`].
    density: Vec<f64>,
    machine_sd: f64,
    slow_by: [f64; 2],
    /// The ratio that one in a hundred fleets of like machines exceeds.
    limit: f64,
}

impl Oracle {
    const FROM: f64 = -0.6;
    const STEP: f64 = 0.001;

    pub(crate) fn new(made: &Made) -> Self {
        const FLEETS: u64 = 500;
        let recorded = recorded(made.noise);
        let of = |processes: &[f64]| median(processes).expect("processes");
        let sessions: Vec<f64> = recorded.windows(made.processes).map(of).collect();
        let off: Vec<f64> = sessions.iter().map(|log| log.abs()).collect();
        // Silverman, "Density estimation for statistics and data analysis", 1986.
        let width = 0.9 * 1.4826 * median(&off).expect("sessions") / (off.len() as f64).powf(0.2);
        let density = |i: usize| {
            let at = Self::FROM + Self::STEP * i as f64;
            let of = |log: &f64| (-0.5 * ((at - log) / width).powi(2)).exp();
            1e-9 + sessions.iter().map(of).sum::<f64>() / sessions.len() as f64
        };
        let density = (0..1200).map(density).collect();
        let mut all = Self {
            density,
            machine_sd: made.machine_sd,
            slow_by: made.slow_by,
            limit: f64::INFINITY,
        };
        let without = Made { slow: 0, steps: 0, ..made.clone() };
        let most = |seed| {
            let ratios = all.ratios(&without.fleet(3_000_000 + seed));
            ratios.into_iter().map(|(_, ratio)| ratio).fold(f64::NEG_INFINITY, f64::max)
        };
        let mut chance: Vec<f64> = (0..FLEETS).map(most).collect();
        chance.sort_by(f64::total_cmp);
        all.limit = chance[(FLEETS - FLEETS / 100) as usize];
        all
    }

    /// Of each machine, the logarithm of the ratio.
    fn ratios(&self, truth: &Truth) -> Vec<(String, f64)> {
        let commits: BTreeMap<&str, f64> =
            truth.order.iter().map(String::as_str).zip(truth.level.iter().copied()).collect();
        let mut own: BTreeMap<&str, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
        for run in &truth.runs {
            let log = (100.0 / run.value).ln() - commits[run.commit.as_str()];
            own.entry(&run.machine).or_default().entry(&run.session).or_default().push(log);
        }
        let [least, most] = self.slow_by.map(|part| -(1.0 - part).ln());
        let ratio = |sessions: &BTreeMap<&str, Vec<f64>>| {
            let own: Vec<f64> = sessions.values().map(|of| median(of).expect("runs")).collect();
            let likelihood = |level: f64| -> f64 {
                let of = |log: &f64| {
                    let at = ((log - level - Self::FROM) / Self::STEP).round().max(0.0) as usize;
                    self.density.get(at).copied().unwrap_or(1e-9).ln()
                };
                own.iter().map(of).sum()
            };
            // Of levels so dense that sums do for integrals: those of like machines, and those of slow ones.
            let [mut like, mut slow] = [Vec::new(), Vec::new()];
            for i in 0..200 {
                let z = 0.05 * f64::from(i) - 5.0;
                like.push(likelihood(z * self.machine_sd) - 0.5 * z * z);
                slow.push(likelihood(least + (most - least) * (f64::from(i) + 0.5) / 200.0));
            }
            let sum = |logs: Vec<f64>| {
                let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                most + logs.iter().map(|log| (log - most).exp()).sum::<f64>().ln()
            };
            sum(slow) - sum(like)
        };
        own.iter().map(|(name, sessions)| ((*name).to_owned(), ratio(sessions))).collect()
    }

    /// Whether it names the slow machines and no other; and whether they are those of the largest ratios, so that a rule
    /// exists that does.
    pub(crate) fn is_right(&self, truth: &Truth) -> [bool; 2] {
        let mut ratios = self.ratios(truth);
        ratios.sort_by(|a, b| b.1.total_cmp(&a.1));
        let slow = truth.slow.len();
        let is_slow = |of: &(String, f64)| truth.slow.contains(&of.0);
        let named = ratios.iter().filter(|(_, ratio)| *ratio > self.limit).count();
        let are_first = ratios[..slow].iter().all(is_slow);
        [are_first && named == slow, are_first]
    }
}

/// How an answer differs from the truth.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Mistakes {
    /// Commits that changed the speed and aren't named, those named at a neighbour included.
    pub commits_missed: usize,
    /// Named commits that changed nothing, likewise.
    pub commits_added: usize,
    /// Of those missed: the interval of places has the true one.
    pub commits_nearby: usize,
    pub machines_missed: usize,
    pub machines_added: usize,
}

impl Mistakes {
    pub(crate) fn of(truth: &Truth, fleet: &Fleet) -> Self {
        let mut all = Self::default();
        let named: Vec<(String, bool)> = fleet
            .changes
            .iter()
            .filter(|change| change.named)
            .map(|change| (change.commit.clone(), change.is_slower))
            .collect();
        for step in &truth.steps {
            if !named.contains(step) {
                all.commits_missed += 1;
                let has = |c: &&brickscope_analysis::fleet::CommitChange| {
                    c.earliest <= step.0 && step.0 <= c.latest && c.is_slower == step.1
                };
                all.commits_nearby += fleet.changes.iter().filter(has).count().min(1);
            }
        }
        all.commits_added = named.iter().filter(|step| !truth.steps.contains(step)).count();
        let found: Vec<&String> = fleet
            .machines
            .iter()
            .filter(|machine| machine.slow == Some(true) || machine.since.is_some())
            .map(|machine| &machine.machine)
            .collect();
        all.machines_missed = truth.slow.iter().filter(|machine| !found.contains(machine)).count();
        all.machines_added = found.iter().filter(|machine| !truth.slow.contains(machine)).count();
        all
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.commits_missed += other.commits_missed;
        self.commits_added += other.commits_added;
        self.commits_nearby += other.commits_nearby;
        self.machines_missed += other.machines_missed;
        self.machines_added += other.machines_added;
    }

    pub(crate) fn none(&self) -> bool {
        *self == Self::default()
    }
}
