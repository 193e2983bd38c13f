//! Fleets of a few machines.

use brickscope_analysis::fleet::Observation;
use brickscope_profile::stats::SplitMix64;

use super::made::{Noise, Random, recorded};

/// How a small fleet is made. All machines run all commits, but for what is said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Little {
    pub machines: usize,
    pub commits: usize,
    /// Sessions of a machine with a commit.
    pub sessions: usize,
    /// What sessions vary by, as a standard deviation.
    pub noise: f64,
    /// As recorded, instead.
    pub recorded: Option<Noise>,
    pub machine_sd: f64,
    /// By how much machine 3, or the last if there are fewer, is slow.
    pub slow: f64,
    /// The commits that it runs: from the first to the one before the last.
    pub slow_runs: [usize; 2],
    /// The commits from which on all is slower, each by this part.
    pub at: Vec<usize>,
    pub step: f64,
    /// More sessions of machine 1 with the newest commit.
    pub extra: usize,
    /// The part of machines and commits that is missing.
    pub missing: f64,
    /// What builds differ by without any reason in their commit.
    pub luck: f64,
}

/// A cell: machine, commit, and the logarithm.
pub(crate) type Row = (usize, usize, f64);

impl Default for Little {
    fn default() -> Self {
        Self {
            machines: 7,
            commits: 6,
            sessions: 1,
            noise: 0.005,
            recorded: None,
            machine_sd: 0.005,
            slow: 0.2,
            slow_runs: [0, 1000],
            at: vec![4],
            step: 0.06,
            extra: 1,
            missing: 0.0,
            luck: 0.0,
        }
    }
}

impl Little {
    pub(crate) fn rows(&self, seed: u64) -> Vec<Row> {
        let mut random = Random(SplitMix64(SplitMix64(!seed).bits()));
        let slow = 3.min(self.machines - 1);
        // Which are missing is the same in all fleets of a kind, so that plain methods have one limit.
        let mut which = Random(SplitMix64(SplitMix64(77).bits()));
        let mut rows = Vec::new();
        let machine: Vec<f64> =
            (0..self.machines).map(|_| self.machine_sd * random.normal()).collect();
        let mut noise = || match self.recorded.map(recorded) {
            Some(recorded) => recorded[random.below(recorded.len())],
            None => self.noise * random.normal(),
        };
        let mut lucks = Random(SplitMix64(SplitMix64(!seed ^ 0xabcd).bits()));
        for commit in 0..self.commits {
            let luck = self.luck * lucks.normal();
            for (m, of_machine) in machine.iter().enumerate() {
                let is_missing = which.part() < self.missing;
                let [from, to] = self.slow_runs;
                if is_missing || (m == slow && !(from..to).contains(&commit)) {
                    continue;
                }
                let more = if m == 1 && commit + 1 == self.commits { self.extra } else { 0 };
                for _ in 0..self.sessions + more {
                    let own = if m == slow { self.slow.ln_1p() } else { 0.0 };
                    let steps = self.at.iter().filter(|at| commit >= **at).count();
                    let step = steps as f64 * self.step.ln_1p();
                    rows.push((m, commit, own + of_machine + step + luck + noise()));
                }
            }
        }
        rows
    }

    pub(crate) fn order(&self) -> Vec<String> {
        (0..self.commits).map(|c| format!("c{c:02}")).collect()
    }

    pub(crate) fn runs(&self, rows: &[Row]) -> Vec<Observation> {
        let of = |(day, &(machine, commit, log)): (usize, &Row)| Observation {
            machine: format!("m{machine:02}"),
            commit: format!("c{commit:02}"),
            session: format!("{day}"),
            time: 1000 * day as i64,
            value: 1e6 * log.exp(),
        };
        rows.iter().enumerate().map(of).collect()
    }

    /// The best step of a plain analysis of two ways: each machine has its own level, and all have the step. By how many
    /// standard errors, and where.
    pub(crate) fn two_way(&self, rows: &[Row]) -> (f64, usize) {
        let mut best = (0.0, 0);
        for at in 1..self.commits {
            let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
            let mut machines = 0;
            for m in 0..self.machines {
                let own: Vec<(f64, f64)> = rows
                    .iter()
                    .filter(|row| row.0 == m)
                    .map(|row| (f64::from(u8::from(row.1 >= at)), row.2))
                    .collect();
                if own.is_empty() {
                    continue;
                }
                machines += 1;
                let n = own.len() as f64;
                let [x, y] = [
                    own.iter().map(|o| o.0).sum::<f64>() / n,
                    own.iter().map(|o| o.1).sum::<f64>() / n,
                ];
                for o in own {
                    xx += (o.0 - x) * (o.0 - x);
                    xy += (o.0 - x) * (o.1 - y);
                    yy += (o.1 - y) * (o.1 - y);
                }
            }
            if xx < 1e-9 {
                continue;
            }
            let left = rows.len() as f64 - f64::from(machines) - 1.0;
            let t = (xy * xy / xx / ((yy - xy * xy / xx).max(1e-30) / left)).sqrt();
            if t > best.0 {
                best = (t, at);
            }
        }
        best
    }
}
