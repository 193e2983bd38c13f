//! The model, and its estimates: the logarithm of a cell is the level of its commit, plus the deviation of its machine,
//! plus that of its session, plus that of the cell.
//!
//! Levels of commits are constant between steps, and fixed; the other three vary at random, with a variance each. So the
//! covariance of all cells is nested (cells in sessions in machines), and its inverse needs no matrix: a sum over each
//! session, then one over each machine (Sherman and Morrison, "Adjustment of an inverse matrix corresponding to a change
//! in one element of a given matrix", 1950). Levels are those of generalised least squares, deviations are Henderson's
//! predictions ("Best linear unbiased estimation and prediction under a selection model", Biometrics 31, 1975).
//!
//! A cell further from what is expected of it than [`CLIP`] standard deviations counts as one at that distance: these are
//! the pseudo-values of Huber ("Robust statistics", 1981, section 7.8), for which least squares gives the estimate that
//! outliers don't move. Variances are from medians of absolute differences, except that between machines, which is the
//! one that makes the clipped squares of the deviations as large as they should be (Paule and Mandel, "Consensus values
//! and weighting factors", 1982).

use brickscope_profile::stats::median;

use super::cells::Cells;

/// The most standard deviations from its expectation that a cell, or a machine, counts as.
pub(super) const CLIP: f64 = 2.5;

/// The mean of the square of a standard normal that is limited to ±[`CLIP`]: 1 − 2Q − 2cφ(c) + 2c²Q with Q the
/// probability to be above c.
const CLIPPED_SQUARE: f64 = 0.977_56;

/// One in ten of a standard normal lies above.
const Z90: f64 = 1.281_552;

/// The standard deviation of a normal, in median absolute deviations.
const MAD: f64 = 1.4826;

/// The least standard deviation of a session, so that figures without any noise can be divided by it: a thousandth of a
/// per cent.
const LEAST_SD: f64 = 1e-5;

/// The variance of a machine whose deviation is estimated from its own runs alone: so large that nothing is shrunken.
const FREE: f64 = 1.0;

/// Standard deviations of logarithms, which are nearly parts of the value: 0.02 is 2 %.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Deviations {
    pub(super) machine: f64,
    pub(super) session: f64,
    pub(super) cell: f64,
    pub(super) run: f64,
}

/// A machine, from one change of its own level to the next: sessions from the first to the one after the last.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unit {
    pub(super) machine: usize,
    pub(super) sessions: [usize; 2],
    /// Known to be unlike the others, so that they say nothing of it.
    pub(super) free: bool,
}

impl Unit {
    pub(super) fn len(&self) -> usize {
        self.sessions[1] - self.sessions[0]
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Model {
    pub(super) cells: Cells,
    pub(super) units: Vec<Unit>,
    /// The first commit of each level; the first of them is 0.
    pub(super) starts: Vec<usize>,
    /// The level of each of these.
    pub(super) levels: Vec<f64>,
    /// Of each unit.
    pub(super) machines: Vec<f64>,
    pub(super) sd: Deviations,
    /// What machines may vary by at most, with 90 % confidence.
    pub(super) most: f64,
    /// Hardly a machine has two sessions, so what sessions vary by is machines' variation as well.
    pub(super) mixed: bool,
    /// How much larger the variance of an estimate is than if the noise were normal.
    pub(super) inflation: f64,
    /// The part of that which is due to outliers: how much larger the variance is since outliers are at their limit.
    pub(super) spread_by_clipping: f64,
    /// Pseudo-values of the cells.
    pub(super) values: Vec<f64>,
    /// The covariance, ready to be inverted.
    pub(super) inverse: Inverse,
}

/// V⁻¹, as sums over sessions and units.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Inverse {
    /// Of each cell: 1 ÷ its variance.
    pub(super) weights: Vec<f64>,
    /// Of each session: its variance ÷ (1 + its variance × the sum of its weights).
    pub(super) session: Vec<f64>,
    /// Of each session: what remains of a weight, 1 ÷ (1 + variance × sum).
    pub(super) rest: Vec<f64>,
    /// Of each unit: its variance ÷ (1 + its variance × its precision).
    pub(super) unit: Vec<f64>,
    /// Of each unit: the sum of what V⁻¹ makes of ones, without the machine's variance.
    pub(super) precision: Vec<f64>,
    /// Of each unit: its variance.
    pub(super) variance: Vec<f64>,
}

impl Inverse {
    fn of(cells: &Cells, units: &[Unit], sd: Deviations) -> Self {
        let mut all = Self::default();
        let floor = LEAST_SD * LEAST_SD;
        for cell in &cells.cells {
            all.weights.push(1.0 / cell_variance(sd, cell.runs).max(floor));
        }
        let variance = sd.session * sd.session;
        for session in &cells.sessions {
            let sum: f64 = all.weights[session.cells[0]..session.cells[1]].iter().sum();
            all.session.push(variance / (1.0 + variance * sum));
            all.rest.push(1.0 / (1.0 + variance * sum));
        }
        for unit in units {
            let precision: f64 = (unit.sessions[0]..unit.sessions[1])
                .map(|s| {
                    let [from, to] = cells.sessions[s].cells;
                    all.weights[from..to].iter().sum::<f64>() * all.rest[s]
                })
                .sum();
            let variance = if unit.free { FREE } else { sd.machine * sd.machine };
            all.precision.push(precision);
            all.variance.push(variance);
            all.unit.push(variance / (1.0 + variance * precision));
        }
        all
    }

    /// V⁻¹x.
    pub(super) fn times(&self, cells: &Cells, units: &[Unit], x: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.resize(x.len(), 0.0);
        for (u, unit) in units.iter().enumerate() {
            let mut of_unit = 0.0;
            for s in unit.sessions[0]..unit.sessions[1] {
                let sum: f64 = cells.in_session(s).map(|i| self.weights[i] * x[i]).sum();
                of_unit += sum * self.rest[s];
                for i in cells.in_session(s) {
                    out[i] = self.weights[i] * (x[i] - self.session[s] * sum);
                }
            }
            let off = self.unit[u] * of_unit;
            for s in unit.sessions[0]..unit.sessions[1] {
                for i in cells.in_session(s) {
                    out[i] -= self.weights[i] * self.rest[s] * off;
                }
            }
        }
    }

    /// The predicted deviation of each unit for what remains of the values.
    fn predictions(&self, cells: &Cells, units: &[Unit], rest: &[f64]) -> Vec<f64> {
        let of = |(u, unit): (usize, &Unit)| {
            let sum: f64 = (unit.sessions[0]..unit.sessions[1])
                .map(|s| {
                    cells.in_session(s).map(|i| self.weights[i] * rest[i]).sum::<f64>()
                        * self.rest[s]
                })
                .sum();
            self.unit[u] * sum
        };
        units.iter().enumerate().map(of).collect()
    }
}

/// The variance of the median of so many runs; from three runs on it is that of a normal's median, π ÷ 2 times the mean's.
fn cell_variance(sd: Deviations, runs: u32) -> f64 {
    let of_median = if runs > 2 { std::f64::consts::FRAC_PI_2 } else { 1.0 };
    sd.cell * sd.cell + of_median * sd.run * sd.run / f64::from(runs)
}

/// The median of many values, without sorting them all.
fn middle(mut values: Vec<f64>) -> Option<f64> {
    let half = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let is_odd = values.len() % 2 == 1;
    let (below, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let upper = *upper;
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(if is_odd { upper } else { lower / 2.0 + upper / 2.0 })
}

/// A robust standard deviation of values about 0.
fn about_zero(values: impl Iterator<Item = f64>) -> Option<f64> {
    middle(values.map(f64::abs).collect()).map(|median| MAD * median)
}

impl Model {
    /// The model with levels that begin at `starts`, fitted.
    pub(super) fn fitted(cells: Cells, units: Vec<Unit>, starts: Vec<usize>) -> Self {
        let mut model = Self::begun(cells, units, starts);
        model.fit();
        model
    }

    /// The model in which each commit has its own level. Outliers are looked for only when these are known: what is far
    /// from the start would hardly move from there.
    pub(super) fn of_groups(cells: Cells, units: Vec<Unit>, starts: Vec<usize>) -> Self {
        /// Rounds, and those of so many levels that each takes long.
        const ROUNDS: [usize; 2] = [40, 6];
        const LONG: usize = 300;
        /// Levels that move by a smaller part of the noise move nothing that is shown.
        const ENOUGH: f64 = 1e-4;
        let mut model = Self::begun(cells, units, starts);
        model.vary();
        model.inverse = Inverse::of(&model.cells, &model.units, model.sd);
        model.solve();
        for _ in 0..ROUNDS[usize::from(model.starts.len() > LONG)] {
            let before = model.levels.clone();
            model.vary();
            model.clip();
            model.inverse = Inverse::of(&model.cells, &model.units, model.sd);
            model.solve();
            let moved = model.levels.iter().zip(&before).map(|(now, was)| (now - was).abs());
            if moved.fold(0.0, f64::max) <= ENOUGH * model.sd.session {
                break;
            }
        }
        model
    }

    fn begun(cells: Cells, units: Vec<Unit>, starts: Vec<usize>) -> Self {
        let values: Vec<f64> = cells.cells.iter().map(|cell| cell.log).collect();
        let mut model = Self {
            levels: vec![0.0; starts.len()],
            machines: vec![0.0; units.len()],
            cells,
            units,
            starts,
            sd: Deviations::default(),
            most: 0.0,
            mixed: false,
            inflation: 1.0,
            spread_by_clipping: 1.0,
            values,
            inverse: Inverse::default(),
        };
        model.sd.run = about_zero(model.cells.repeats.iter().copied()).unwrap_or(0.0);
        model.begin();
        model
    }

    /// Which level the commit has.
    pub(super) fn level_of(&self, commit: usize) -> usize {
        self.starts.partition_point(|&start| start <= commit).saturating_sub(1)
    }

    /// What is left of each cell without its commit's level.
    pub(super) fn without_commits(&self, values: impl Fn(usize) -> f64) -> Vec<f64> {
        let of: Vec<f64> =
            (0..self.cells.commits.len()).map(|c| self.levels[self.level_of(c)]).collect();
        self.cells.cells.iter().enumerate().map(|(i, cell)| values(i) - of[cell.commit]).collect()
    }

    /// What is left of each session without its commits' levels, from the figures as they are: the median of its cells.
    pub(super) fn sessions(&self) -> Vec<f64> {
        let rest = self.without_commits(|i| self.cells.cells[i].log);
        let of = |s: &super::cells::Session| match rest[s.cells[0]..s.cells[1]] {
            [only] => only,
            ref several => median(several).unwrap_or(0.0),
        };
        self.cells.sessions.iter().map(of).collect()
    }

    /// A start that outliers don't move: medians, in turns (Tukey's median polish, "Exploratory data analysis", 1977).
    fn begin(&mut self) {
        for _ in 0..3 {
            let mut of_level: Vec<Vec<f64>> = vec![Vec::new(); self.starts.len()];
            for (u, unit) in self.units.iter().enumerate() {
                for s in unit.sessions[0]..unit.sessions[1] {
                    let [from, to] = self.cells.sessions[s].cells;
                    for cell in &self.cells.cells[from..to] {
                        of_level[self.level_of(cell.commit)].push(cell.log - self.machines[u]);
                    }
                }
            }
            self.levels = of_level.iter().map(|logs| median(logs).unwrap_or(0.0)).collect();
            let sessions = self.sessions();
            for (u, unit) in self.units.iter().enumerate() {
                // Of one or two sessions nothing is known yet of how far they can be trusted. Of more their middle is: what is
                // far from the start is limited by the noise, so that a machine's level would hardly move from there.
                let count = unit.len() as f64;
                let part = if unit.len() > 2 { 1.0 } else { count / (count + 1.0) };
                let middle = median(&sessions[unit.sessions[0]..unit.sessions[1]]);
                self.machines[u] = part * middle.unwrap_or(0.0);
            }
        }
    }

    fn fit(&mut self) {
        /// The most rounds of estimates; most fits need seven.
        const ROUNDS: usize = 14;
        /// Standard deviations that move by a smaller part of the noise than this move nothing that is shown.
        const ENOUGH: f64 = 1e-4;
        for _ in 0..ROUNDS {
            let before = self.sd;
            self.vary();
            self.clip();
            self.inverse = Inverse::of(&self.cells, &self.units, self.sd);
            self.solve();
            let moved = (self.sd.session - before.session).abs()
                + (self.sd.machine - before.machine).abs()
                + (self.sd.cell - before.cell).abs();
            if moved <= ENOUGH * self.sd.session {
                break;
            }
        }
        self.clip();
    }

    /// Estimates the variances.
    fn vary(&mut self) {
        /// From fewer differences of sessions nothing is estimated if there are more machines than that.
        const FEW: usize = 8;
        let rest = self.without_commits(|i| self.cells.cells[i].log);
        let half = std::f64::consts::FRAC_1_SQRT_2;
        // Between cells of a session: what is more than runs make of it.
        let (mut squares, mut known) = (Vec::new(), Vec::new());
        for session in &self.cells.sessions {
            for i in session.cells[0] + 1..session.cells[1] {
                squares.push((rest[i] - rest[i - 1]) * half);
                known.push(cell_variance(
                    Deviations { cell: 0.0, ..self.sd },
                    self.cells.cells[i].runs,
                ));
            }
        }
        let more = |total: Option<f64>, known: Vec<f64>| {
            let total = total.unwrap_or(0.0);
            (total * total - middle(known).unwrap_or(0.0)).max(0.0).sqrt()
        };
        self.sd.cell = more(about_zero(squares.into_iter()), known);
        // Between sessions of a unit: what is more than their cells make of it.
        let sessions = self.sessions();
        let (mut squares, mut known) = (Vec::new(), Vec::new());
        let within = |s: usize| {
            let [from, to] = self.cells.sessions[s].cells;
            1.0 / (from..to)
                .map(|i| 1.0 / cell_variance(self.sd, self.cells.cells[i].runs).max(1e-18))
                .sum::<f64>()
        };
        for unit in &self.units {
            for s in unit.sessions[0] + 1..unit.sessions[1] {
                squares.push((sessions[s] - sessions[s - 1]) * half);
                known.push(within(s));
            }
        }
        self.mixed = squares.len() < FEW.min(self.units.len());
        if self.mixed {
            // A session a machine: which of them varies can't be told, and need not be for what commits do.
            let middle = median(&sessions).unwrap_or(0.0);
            known.extend((0..sessions.len()).map(within));
            self.sd.session =
                more(about_zero(sessions.iter().map(|log| log - middle)), known).max(LEAST_SD);
            self.sd.machine = 0.0;
            return;
        }
        self.sd.session = more(about_zero(squares.iter().copied()), known).max(LEAST_SD);
        self.inverse = Inverse::of(&self.cells, &self.units, self.sd);
        let rest = self.without_commits(|i| self.values[i]);
        let like = self.like(&rest);
        self.sd.machine = between(&like, self.inflation, 1.0);
        // What sessions vary by is estimated as well; a median of absolute differences has 37 % of the information that
        // squares have (Hampel et al., "Robust statistics", 1986), and what sessions don't vary by, machines do.
        let surely = (1.0 - Z90 * (2.0 / 0.37 / squares.len() as f64).sqrt()).max(0.0);
        let degrees = like.len().saturating_sub(1) as f64;
        self.most = between(&like, self.inflation * surely, least_part(degrees));
    }

    /// Of each unit that may be like the others: its own mean, and the variance of that.
    fn like(&self, rest: &[f64]) -> Vec<[f64; 2]> {
        let mut like = Vec::new();
        for (u, unit) in self.units.iter().enumerate().filter(|(_, unit)| !unit.free) {
            let sum: f64 = (unit.sessions[0]..unit.sessions[1])
                .map(|s| {
                    self.cells.in_session(s).map(|i| self.inverse.weights[i] * rest[i]).sum::<f64>()
                        * self.inverse.rest[s]
                })
                .sum();
            like.push([sum / self.inverse.precision[u], 1.0 / self.inverse.precision[u]]);
        }
        like
    }

    /// The standard deviation between machines, each but unit `except` counted once.
    pub(super) fn between_others(&self, except: usize) -> f64 {
        let rest = self.without_commits(|i| self.values[i]);
        let mut like = self.like(&rest);
        if !self.units[except].free {
            like.remove(self.units[..except].iter().filter(|unit| !unit.free).count());
        }
        between(&like, self.inflation, 1.0)
    }

    /// The variance of the error of a unit's deviation. That between machines is only estimated, so what counts is how
    /// wrong the prediction is if machines vary by as much as they may.
    pub(super) fn error_of(&self, unit: usize) -> f64 {
        let kept = self.inverse.precision[unit] * self.inverse.unit[unit];
        let most = if self.units[unit].free { 0.0 } else { self.most };
        let own = self.inflation / self.inverse.precision[unit];
        (1.0 - kept) * (1.0 - kept) * most * most + kept * kept * own
    }

    /// What a session of this cell is expected to vary by.
    pub(super) fn noise(&self, cell: usize) -> f64 {
        let variance =
            self.sd.session * self.sd.session + cell_variance(self.sd, self.cells.cells[cell].runs);
        variance.sqrt().max(LEAST_SD)
    }

    /// Makes pseudo-values, and sees how much that costs.
    fn clip(&mut self) {
        let rest = self.without_commits(|i| self.cells.cells[i].log);
        let (mut squares, mut inside, mut all) = (0.0, 0.0, 0.0);
        for (u, unit) in self.units.iter().enumerate() {
            for s in unit.sessions[0]..unit.sessions[1] {
                for i in self.cells.in_session(s) {
                    // A machine with a session or two would follow an outlier, and hide it.
                    let (off, sd) = if unit.free || unit.len() > 2 {
                        (rest[i] - self.machines[u], self.noise(i))
                    } else {
                        (rest[i], self.noise(i).hypot(self.sd.machine))
                    };
                    let clipped = off.clamp(-CLIP * sd, CLIP * sd);
                    self.values[i] = self.cells.cells[i].log - off + clipped;
                    squares += (clipped / sd) * (clipped / sd);
                    inside += f64::from(u8::from(off == clipped));
                    all += 1.0;
                }
            }
        }
        // Huber 1964: the mean of ψ² by the square of the mean of ψ′. Not below what normal noise has.
        let part: f64 = (inside / all).max(0.5);
        self.spread_by_clipping = 1.0 / (part * part);
        self.inflation = (squares / all * self.spread_by_clipping).clamp(1.0, 25.0);
    }

    /// The levels and deviations for these variances and pseudo-values.
    fn solve(&mut self) {
        let mut out = Vec::new();
        self.inverse.times(&self.cells, &self.units, &self.values, &mut out);
        let right = self.by_level(&out);
        let levels = Factor::of(self.precision()).solve(&right);
        if levels.iter().all(|level| level.is_finite()) {
            self.levels = levels;
        }
        let rest = self.without_commits(|i| self.values[i]);
        self.machines = self.inverse.predictions(&self.cells, &self.units, &rest);
    }

    /// xᵀV⁻¹x with a column of x for each level.
    pub(super) fn precision(&self) -> Vec<Vec<f64>> {
        let mut all = vec![vec![0.0; self.starts.len()]; self.starts.len()];
        let level_of: Vec<usize> =
            (0..self.cells.commits.len()).map(|commit| self.level_of(commit)).collect();
        let mut of_unit: Vec<(usize, f64)> = Vec::new();
        for (u, unit) in self.units.iter().enumerate() {
            of_unit.clear();
            for s in unit.sessions[0]..unit.sessions[1] {
                let own: Vec<(usize, f64)> = self
                    .cells
                    .in_session(s)
                    .map(|i| (level_of[self.cells.cells[i].commit], self.inverse.weights[i]))
                    .collect();
                for &(a, w) in &own {
                    all[a][a] += w;
                    for &(b, v) in &own {
                        all[a][b] -= self.inverse.session[s] * w * v;
                    }
                }
                of_unit.extend(own.iter().map(|(a, w)| (*a, w * self.inverse.rest[s])));
            }
            of_unit.sort_unstable_by_key(|(level, _)| *level);
            of_unit.dedup_by(|next, one| {
                let is_same = next.0 == one.0;
                one.1 += if is_same { next.1 } else { 0.0 };
                is_same
            });
            for &(a, w) in &of_unit {
                for &(b, v) in &of_unit {
                    all[a][b] -= self.inverse.unit[u] * w * v;
                }
            }
        }
        all
    }

    /// What the levels leave of the values, as squares in units of the covariance.
    pub(super) fn squares(&self) -> f64 {
        let rest = self.without_commits(|i| self.values[i]);
        let mut out = Vec::new();
        self.inverse.times(&self.cells, &self.units, &rest, &mut out);
        rest.iter().zip(&out).map(|(a, b)| a * b).sum()
    }

    /// Sums by level.
    pub(super) fn by_level(&self, of_cells: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.starts.len()];
        for (cell, value) in self.cells.cells.iter().zip(of_cells) {
            sums[self.level_of(cell.commit)] += value;
        }
        sums
    }

    /// Sums by commit.
    pub(super) fn by_commit(&self, of_cells: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.cells.commits.len()];
        for (cell, value) in self.cells.cells.iter().zip(of_cells) {
            sums[cell.commit] += value;
        }
        sums
    }

    /// How much larger the variance of a mean is since a machine's sessions resemble the ones before them: (1 + φ) ÷ (1 −
    /// φ), if each keeps the part φ of its predecessor's deviation (Bayley and Hammersley, "The 'effective' number of
    /// independent observations in an autocorrelated time series", 1946).
    pub(super) fn persistence(&self) -> f64 {
        // As in `stats/changes.rs`: more can't be estimated.
        const MOST: f64 = 0.8;
        // What commits share is no persistence, whether or not it is known as a step.
        let mut rest = self.without_commits(|i| self.values[i]);
        for (u, unit) in self.units.iter().enumerate() {
            for s in unit.sessions[0]..unit.sessions[1] {
                let [from, to] = self.cells.sessions[s].cells;
                rest[from..to].iter_mut().for_each(|rest| *rest -= self.machines[u]);
            }
        }
        let mut of_commit = vec![Vec::new(); self.cells.commits.len()];
        for (cell, rest) in self.cells.cells.iter().zip(&rest) {
            of_commit[cell.commit].push(*rest);
        }
        let middles: Vec<f64> = of_commit.iter().map(|rest| median(rest).unwrap_or(0.0)).collect();
        let (mut products, mut squares) = (0.0, 0.0);
        for unit in self.units.iter().filter(|unit| unit.len() > 2) {
            let of = |s: usize| {
                let [from, to] = self.cells.sessions[s].cells;
                let off = (from..to).map(|i| rest[i] - middles[self.cells.cells[i].commit]);
                let sd = self.noise(from);
                (off.sum::<f64>() / (to - from) as f64).clamp(-CLIP * sd, CLIP * sd)
            };
            let own: Vec<f64> = (unit.sessions[0]..unit.sessions[1]).map(of).collect();
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            let variance: f64 = own.iter().map(|off| (off - mean) * (off - mean)).sum();
            // Deviations from their own mean are opposed to each other, by 1 in n.
            products += own.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum::<f64>()
                + variance / own.len() as f64;
            squares += variance;
        }
        let part = if squares > 0.0 { (products / squares).clamp(0.0, MOST) } else { 0.0 };
        (1.0 + part) / (1.0 - part)
    }

    /// The unit of each session.
    pub(super) fn unit_of_session(&self) -> Vec<usize> {
        let mut of = vec![0; self.cells.sessions.len()];
        for (u, unit) in self.units.iter().enumerate() {
            of[unit.sessions[0]..unit.sessions[1]].fill(u);
        }
        of
    }
}

/// The standard deviation of what means vary by beyond their own variances: the one for which the sum of squares is this
/// part of what it is expected to be.
fn between(like: &[[f64; 2]], inflation: f64, part: f64) -> f64 {
    if like.len() < 2 {
        return 0.0;
    }
    let means: Vec<f64> = like.iter().map(|[mean, _]| *mean).collect();
    let middle = median(&means).unwrap_or(0.0);
    let wanted = part * CLIPPED_SQUARE * (like.len() - 1) as f64;
    let squares = |variance: f64| -> f64 {
        let square = |[mean, own]: &[f64; 2]| {
            ((mean - middle) * (mean - middle) / (variance + inflation * own)).min(CLIP * CLIP)
        };
        like.iter().map(square).sum()
    };
    let widest = like
        .iter()
        .map(|[mean, own]| (mean - middle) * (mean - middle) + inflation * own)
        .fold(0.0, f64::max);
    if squares(0.0) <= wanted {
        return 0.0;
    }
    // Beyond this, the sum of all squares is less than what is wanted.
    let (mut low, mut high) = (0.0, widest * like.len() as f64 / wanted);
    for _ in 0..60 {
        let between = low + (high - low) / 2.0;
        if squares(between) > wanted { low = between } else { high = between }
    }
    high.sqrt()
}

/// The 10 % quantile of χ², by its mean (Wilson and Hilferty, "The distribution of chi-square", 1931).
fn least_part(degrees: f64) -> f64 {
    if degrees < 2.0 {
        // The approximation ends here.
        return 0.0158;
    }
    let part = 2.0 / (9.0 * degrees);
    (1.0 - part - Z90 * part.sqrt()).powi(3)
}

/// A symmetric positive matrix as LDLᵀ. It has a row for each level, and levels are few.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Factor {
    rows: Vec<Vec<f64>>,
}

impl Factor {
    pub(super) fn of(mut rows: Vec<Vec<f64>>) -> Self {
        for j in 0..rows.len() {
            for i in j..rows.len() {
                let mut sum = rows[i][j];
                sum -= (0..j).map(|k| rows[i][k] * rows[j][k] * rows[k][k]).sum::<f64>();
                rows[i][j] = if i == j { sum.max(1e-12) } else { sum / rows[j][j] };
            }
        }
        Self { rows }
    }

    pub(super) fn solve(&self, right: &[f64]) -> Vec<f64> {
        let n = self.rows.len();
        let mut x = right.to_vec();
        for i in 0..n {
            for k in 0..i {
                x[i] -= self.rows[i][k] * x[k];
            }
        }
        for i in (0..n).rev() {
            x[i] /= self.rows[i][i];
            for k in i + 1..n {
                x[i] -= self.rows[k][i] * x[k];
            }
        }
        x
    }
}
