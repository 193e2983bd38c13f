//! Finds the commits from which on the level is another.
//!
//! Each place between two commits is tried as a further step of the model, by its score: what generalised least squares
//! would give it, in standard errors, without fitting again. The best place of all counts if it is better than the best
//! of all but [`ALPHA`] of the fleets that have the same deviations in random order (Westfall and Young,
//! "Resampling-based multiple testing", 1993: the maximum over all places takes care of their number). Machines'
//! deviations change places with machines', sessions' with sessions' and cells' with cells' (Freedman and Lane, "A
//! nonstochastic interpretation of reported significance levels", 1983: residuals of the model without the step). Then
//! the model is fitted again, and the next step is searched for, until none counts (binary segmentation: Vostrikova,
//! "Detecting disorder in multidimensional random processes", 1981). Places are searched for again between their
//! neighbours when these are known (Bai, "Estimating multiple breaks one at a time", 1997).
//!
//! With a handful of sessions these orders are too few, and Student's t takes their place.
//!
//! Builds may differ by luck, such as where a linker puts a loop, and then each commit has a level of its own. So a step
//! must also be large beside what commits of one level vary by. That is known the better the more commits there are: of
//! four, luck of 0.5 to 1 % is taken for a change in one fleet in ten, of 20 in one in a hundred.

use std::collections::BTreeMap;

use brickscope_profile::stats::{SplitMix64, median, student};

use super::explain::{degrees, solve};
use super::model::{CLIP, Factor, Model};

/// The largest probability at which chance may find a step as good as the best that was found.
pub(super) const ALPHA: f64 = 0.003;

/// The least standard errors of a step for which orders are drawn at all.
const LEAST_SCORE: f64 = 3.0;

/// The most orders that are drawn.
const DRAWS: usize = 999;

/// The fewest: the least probability that they can give is one in 500.
const LEAST_DRAWS: usize = 499;

/// Cells in all draws together, beyond which fewer orders are drawn.
const WORK: usize = 30_000_000;

/// With fewer sessions, Student's t says how improbable a step is: they have too few orders, and many of these are nearly
/// the step itself.
const FEW: usize = 40;

/// How much worse than the best place another may be, as a difference of squared scores, and still be as likely as one
/// in twenty: as for two parameters, the place and the size.
const PLACES: f64 = 6.0;

/// A step in the level.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// The first commit of the new level.
    pub(super) at: usize,
    /// The new level minus the old, in logarithms.
    pub(super) size: f64,
    pub(super) error: f64,
    /// The first and the last commit that may be the place.
    pub(super) between: [usize; 2],
    pub(super) p: f64,
}

/// What each place would be as a further step.
struct Scan<'m> {
    model: &'m Model,
    starts: Vec<usize>,
    /// V⁻¹x, summed by commit, for x each level's indicator.
    by_commit: Vec<Vec<f64>>,
    factor: Factor,
    /// Of each commit that isn't the first of a level: the variance of its score.
    variances: Vec<f64>,
    /// Cells of each commit.
    cells_of: Vec<Vec<usize>>,
    level_of: Vec<usize>,
    unit_of: Vec<usize>,
}

impl<'m> Scan<'m> {
    fn new(model: &'m Model, starts: &[usize]) -> Self {
        let commits = model.cells.commits.len();
        let level_of: Vec<usize> = (0..commits)
            .map(|c| starts.partition_point(|&start| start <= c).saturating_sub(1))
            .collect();
        let mut cells_of = vec![Vec::new(); commits];
        for (i, cell) in model.cells.cells.iter().enumerate() {
            cells_of[cell.commit].push(i);
        }
        let cells = &model.cells.cells;
        let column = |level| {
            let x: Vec<f64> = cells
                .iter()
                .map(|cell| f64::from(u8::from(level_of[cell.commit] == level)))
                .collect();
            let mut out = Vec::new();
            model.inverse.times(&model.cells, &model.units, &x, &mut out);
            out
        };
        let columns: Vec<Vec<f64>> = (0..starts.len()).map(column).collect();
        let by_commit: Vec<Vec<f64>> =
            columns.iter().map(|column| model.by_commit(column)).collect();
        let mut scan = Self {
            model,
            starts: starts.to_vec(),
            factor: Factor::of(Vec::new()),
            by_commit,
            variances: vec![0.0; commits],
            cells_of,
            level_of,
            unit_of: model.unit_of_session(),
        };
        scan.factor = Factor::of(scan.by_commit.iter().map(|sums| scan.by_level(sums)).collect());
        scan.vary();
        scan
    }

    fn by_level(&self, of_commits: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.starts.len()];
        for (level, value) in self.level_of.iter().zip(of_commits) {
            sums[*level] += value;
        }
        sums
    }

    /// The end of the level that begins at `start`.
    fn end(&self, level: usize) -> usize {
        self.starts.get(level + 1).copied().unwrap_or(self.level_of.len())
    }

    fn vary(&mut self) {
        let (model, inverse) = (self.model, &self.model.inverse);
        for (level, &start) in self.starts.iter().enumerate() {
            let mut of_session = vec![0.0; model.cells.sessions.len()];
            let mut of_unit = vec![0.0; model.units.len()];
            let mut square = 0.0;
            let mut beside = vec![0.0; self.starts.len()];
            for commit in (start + 1..self.end(level)).rev() {
                for &i in &self.cells_of[commit] {
                    let s = model.cells.cells[i].session;
                    let (u, w) = (self.unit_of[s], inverse.weights[i]);
                    let own = w * inverse.rest[s];
                    square += w
                        - inverse.session[s] * w * (2.0 * of_session[s] + w)
                        - inverse.unit[u] * own * (2.0 * of_unit[u] + own);
                    of_session[s] += w;
                    of_unit[u] += own;
                }
                for (sum, by_commit) in beside.iter_mut().zip(&self.by_commit) {
                    *sum += by_commit[commit];
                }
                let solved = self.factor.solve(&beside);
                let known: f64 = solved.iter().zip(&beside).map(|(a, b)| a * b).sum();
                // A place that no machine's other runs can be compared across has none.
                let variance = square - known;
                self.variances[commit] = if variance > 1e-9 * square { variance } else { 0.0 };
            }
        }
    }

    /// Of each commit: xᵀV⁻¹x for x its indicator, and xᵀV⁻¹z for z that of the commit before it.
    fn precisions(&self) -> [Vec<f64>; 2] {
        let (model, inverse) = (self.model, &self.model.inverse);
        let commits = model.cells.commits.len();
        let mut all = [vec![0.0; commits], vec![0.0; commits]];
        let mut of_unit: BTreeMap<usize, f64> = BTreeMap::new();
        for (u, unit) in model.units.iter().enumerate() {
            of_unit.clear();
            for s in unit.sessions[0]..unit.sessions[1] {
                let mut before: Option<(usize, f64)> = None;
                for i in model.cells.in_session(s) {
                    let (commit, w) = (model.cells.cells[i].commit, inverse.weights[i]);
                    all[0][commit] += w - inverse.session[s] * w * w;
                    if let Some((_, v)) = before.filter(|(other, _)| other + 1 == commit) {
                        all[1][commit] -= inverse.session[s] * w * v;
                    }
                    before = Some((commit, w));
                    *of_unit.entry(commit).or_insert(0.0) += w * inverse.rest[s];
                }
            }
            for (&commit, own) in &of_unit {
                all[0][commit] -= inverse.unit[u] * own * own;
                if let Some(before) = commit.checked_sub(1).and_then(|c| of_unit.get(&c)) {
                    all[1][commit] -= inverse.unit[u] * own * before;
                }
            }
        }
        all
    }

    /// The score of each place, for these values.
    fn scores(&self, values: &[f64], out: &mut Vec<f64>) -> Vec<f64> {
        let model = self.model;
        model.inverse.times(&model.cells, &model.units, values, out);
        let mut sums = model.by_commit(out);
        let levels = self.factor.solve(&self.by_level(&sums));
        for (level, by_commit) in levels.iter().zip(&self.by_commit) {
            sums.iter_mut().zip(by_commit).for_each(|(sum, column)| *sum -= level * column);
        }
        for level in 0..self.starts.len() {
            for commit in (self.starts[level]..self.end(level).saturating_sub(1)).rev() {
                sums[commit] += sums[commit + 1];
            }
            sums[self.starts[level]] = 0.0;
        }
        sums
    }

    /// The best place: how many standard errors, and where.
    fn best(&self, scores: &[f64]) -> (f64, usize) {
        let mut best = (0.0, 0);
        for (commit, (score, variance)) in scores.iter().zip(&self.variances).enumerate() {
            if *variance > 0.0 && score.abs() / variance.sqrt() > best.0 {
                best = (score.abs() / variance.sqrt(), commit);
            }
        }
        best
    }

    fn places(&self) -> f64 {
        self.variances.iter().filter(|variance| **variance > 0.0).count() as f64
    }

    /// The probability that the best place is as good as `best`, in normal noise, of which so much is known.
    fn bonferroni(&self, best: f64, degrees: f64) -> f64 {
        (self.places() * student::two_sided(best, degrees)).min(1.0)
    }

    /// The part of all orders, as drawn, whose best place is as good as `best`; 1 if that is more than [`ALPHA`].
    fn probability(&self, best: f64) -> f64 {
        let model = self.model;
        // A clipped deviation lies within 2 × CLIP standard deviations, and a sum of such is rarely so large, in
        // whatever order they are (Hoeffding, "Probability inequalities for sums of bounded random variables", 1963,
        // theorem 2 and section 6). What that leaves no doubt about needs no draws.
        let bound = 2.0 * self.places() * (-best * best / (2.0 * CLIP * CLIP)).exp();
        if bound <= ALPHA / 10.0 {
            return bound.max(1.0 / (DRAWS + 1) as f64);
        }
        let cells = &model.cells;
        let n = cells.cells.len();
        let draws = (WORK / n.max(1)).clamp(LEAST_DRAWS, DRAWS);
        let mut deviations = Shuffled::of(model, self);
        let mut random = SplitMix64(0x5eed_f1ee);
        let (mut values, mut out, mut as_good) = (vec![0.0; n], Vec::new(), 0_usize);
        for _ in 0..draws {
            deviations.draw(&mut random, &mut values);
            let scores = self.scores(&values, &mut out);
            if self.best(&scores).0 >= best {
                as_good += 1;
                if (as_good + 1) as f64 > ALPHA * (draws + 1) as f64 {
                    return 1.0;
                }
            }
        }
        (as_good + 1) as f64 / (draws + 1) as f64
    }
}

/// Deviations in a random order.
struct Shuffled<'m> {
    model: &'m Model,
    unit_of: &'m [usize],
    units: Vec<f64>,
    sessions: Vec<f64>,
    cells: Vec<f64>,
}

impl<'m> Shuffled<'m> {
    fn of(model: &'m Model, scan: &'m Scan<'m>) -> Self {
        let (cells, inverse) = (&model.cells, &model.inverse);
        // The residuals of these levels, which may be others than the model's.
        let mut out = Vec::new();
        inverse.times(cells, &model.units, &model.values, &mut out);
        let levels = scan.factor.solve(&scan.by_level(&model.by_commit(&out)));
        let rest: Vec<f64> = cells
            .cells
            .iter()
            .zip(&model.values)
            .map(|(cell, value)| value - levels[scan.level_of[cell.commit]])
            .collect();
        let (mut used, mut units) = (scan.starts.len() as f64, Vec::new());
        let mut sessions = Vec::with_capacity(cells.sessions.len());
        let mut of_cells = Vec::with_capacity(rest.len());
        for (u, unit) in model.units.iter().enumerate() {
            let off = model.machines[u];
            let kept = inverse.precision[u] * inverse.unit[u];
            used += kept;
            // A prediction is smaller than what it predicts.
            units.push(if unit.free || kept <= 0.0 { 0.0 } else { off / kept.sqrt() });
            for s in unit.sessions[0]..unit.sessions[1] {
                let [from, to] = cells.sessions[s].cells;
                let sum: f64 = inverse.weights[from..to].iter().sum();
                let mean =
                    (from..to).map(|i| inverse.weights[i] * (rest[i] - off)).sum::<f64>() / sum;
                let sd = (model.sd.session * model.sd.session + 1.0 / sum).sqrt();
                sessions.push(mean / sd);
                let of_cell = |i: usize| (rest[i] - off - mean) * inverse.weights[i].sqrt();
                let size = (to - from) as f64;
                let wider = if size > 1.0 { (size / (size - 1.0)).sqrt() } else { 0.0 };
                of_cells.extend((from..to).map(|i| wider * of_cell(i)));
            }
        }
        let count = sessions.len() as f64;
        let mean = sessions.iter().sum::<f64>() / count;
        // What was estimated from the residuals made them smaller.
        let wider = (count / (count - used).max(count / 10.0)).sqrt();
        sessions.iter_mut().for_each(|session| *session = (*session - mean) * wider);
        Self { model, unit_of: &scan.unit_of, units, sessions, cells: of_cells }
    }

    fn draw(&mut self, random: &mut SplitMix64, values: &mut [f64]) {
        random.shuffle(&mut self.units);
        random.shuffle(&mut self.sessions);
        let model = self.model;
        let is_alone = model.cells.sessions.len() == model.cells.cells.len();
        if !is_alone {
            random.shuffle(&mut self.cells);
        }
        for (s, session) in model.cells.sessions.iter().enumerate() {
            let [from, to] = session.cells;
            let sum: f64 = model.inverse.weights[from..to].iter().sum();
            let sd = (model.sd.session * model.sd.session + 1.0 / sum).sqrt();
            let mean = self.units[self.unit_of[s]] + sd * self.sessions[s];
            // What cells vary by is in their session's mean already.
            let mut off = 0.0;
            if to - from > 1 {
                off = (from..to)
                    .map(|i| model.inverse.weights[i].sqrt() * self.cells[i])
                    .sum::<f64>()
                    / sum;
            }
            for i in model.cells.in_session(s) {
                let own = if to - from > 1 {
                    self.cells[i] / model.inverse.weights[i].sqrt() - off
                } else {
                    0.0
                };
                values[i] = mean + own;
            }
        }
    }
}

/// Finds all steps; the model that has them.
pub(super) fn find(mut model: Model) -> (Model, Vec<Step>) {
    /// More steps than this in one history are no steps.
    const MOST: usize = 100;
    let units = model.units.clone();
    let mut ps: Vec<(usize, f64)> = Vec::new();
    let mut out = Vec::new();
    while model.starts.len() <= MOST {
        let scan = Scan::new(&model, &model.starts);
        let scores = scan.scores(&model.values, &mut out);
        let (best, at) = scan.best(&scores);
        let mut starts = model.starts.clone();
        starts.push(at);
        starts.sort_unstable();
        if best < LEAST_SCORE {
            break;
        }
        // A place is as good as it is beside what machines' own states would do.
        let score = best / model.persistence().sqrt();
        let is_few = model.cells.sessions.len() < FEW;
        let mut p = if is_few { scan.bonferroni(score, 1e9) } else { scan.probability(score) };
        if p > ALPHA {
            break;
        }
        let next = model.clone().refitted(units.clone(), starts);
        if is_few {
            // The first limits outliers as if there was no step, and the second knows the noise without it. Twice, since
            // of three sessions of a commit two may be outliers, for which Student's t is too bold.
            p = p.max((2.0 * probability_of_few(&next, at)).min(1.0));
        }
        if p > ALPHA || beyond_luck(&next, at) < 1.0 {
            break;
        }
        ps.push((at, p));
        model = settled(next, &mut ps);
    }
    loop {
        let (steps, weakest) = steps(&model, &ps);
        let Some(weakest) = weakest else { return (model, steps) };
        let mut starts = model.starts.clone();
        starts.retain(|&start| start != weakest);
        model = model.refitted(units.clone(), starts);
        model = settled(model, &mut ps);
    }
}

/// The probability that fleets without this step of the model have one as good, from Student's t.
fn probability_of_few(model: &Model, at: usize) -> f64 {
    let mut others = model.starts.clone();
    others.retain(|&start| start != at);
    let scan = Scan::new(model, &others);
    let scores = scan.scores(&model.values, &mut Vec::new());
    let count = model.cells.sessions.len() as f64;
    // Cells of one session share its deviation, so that they don't count as more than one.
    let left = degrees(model) + count - model.cells.cells.len() as f64;
    if left < 1.0 {
        return 1.0;
    }
    // What was estimated from the residuals made them smaller.
    let inflation = model.inflation * model.persistence() * count / left;
    let t = (square(&scan, &scores, at) / inflation).sqrt();
    scan.bonferroni(t, left)
}

/// By how much a step of the model is larger than luck would make it.
fn beyond_luck(model: &Model, at: usize) -> f64 {
    let lucks = lucks(model, &model.starts);
    let Some(i) = model.starts.iter().position(|&start| start == at) else { return 0.0 };
    sized(model, i, &lucks).map_or(0.0, |sized| sized.part)
}

/// A step, as large as it is.
struct Sized<'m> {
    scan: Scan<'m>,
    scores: Vec<f64>,
    size: f64,
    error: f64,
    /// By how much it is larger than luck would make it.
    part: f64,
}

/// The size of the step at the start of this level. `None` if no machine can compare both sides.
fn sized<'m>(model: &'m Model, level: usize, lucks: &[Luck]) -> Option<Sized<'m>> {
    let at = model.starts[level];
    let to = model.starts.get(level + 1).copied().unwrap_or(model.cells.commits.len());
    let commits = [at - model.starts[level - 1], to - at];
    let mut others = model.starts.clone();
    others.remove(level);
    let scan = Scan::new(model, &others);
    let scores = scan.scores(&model.values, &mut Vec::new());
    let variance = scan.variances[at];
    if variance <= 0.0 {
        return None;
    }
    let size = scores[at] / variance;
    let own = model.inflation * model.persistence() / variance;
    let errors: Vec<(f64, f64)> = lucks.iter().map(|luck| luck.error(own, commits)).collect();
    let part = errors.iter().map(|(error, least)| size.abs() / error / least).fold(0.0, f64::max);
    Some(Sized { scan, scores, size, error: errors[0].0, part })
}

/// Moves each step to the best place between its neighbours, twice, since they affect each other.
fn settled(model: Model, ps: &mut [(usize, f64)]) -> Model {
    let mut starts = model.starts.clone();
    let mut out = Vec::new();
    for _ in 0..2 {
        for i in 1..starts.len() {
            let [from, to] = [
                starts[i - 1] + 1,
                starts.get(i + 1).copied().unwrap_or(model.cells.commits.len()),
            ];
            let mut others = starts.clone();
            let old = others.remove(i);
            let scan = Scan::new(&model, &others);
            let scores = scan.scores(&model.values, &mut out);
            let squared = |commit: usize| square(&scan, &scores, commit);
            let best =
                (from..to).max_by(|&a, &b| squared(a).total_cmp(&squared(b)).then(b.cmp(&a)));
            if let Some(best) = best {
                starts[i] = best;
                ps.iter_mut().filter(|(at, _)| *at == old).for_each(|(at, _)| *at = best);
            }
        }
    }
    if starts == model.starts {
        return model;
    }
    let units = model.units.clone();
    model.refitted(units, starts)
}

fn square(scan: &Scan<'_>, scores: &[f64], commit: usize) -> f64 {
    let variance = scan.variances[commit];
    if variance > 0.0 { scores[commit] * scores[commit] / variance } else { 0.0 }
}

/// The sizes of all steps, and the weakest of those that are no larger than luck would make them.
fn steps(model: &Model, ps: &[(usize, f64)]) -> (Vec<Step>, Option<usize>) {
    let lucks = lucks(model, &model.starts);
    let unlikely = PLACES * model.inflation * model.persistence();
    let (mut steps, mut weakest) = (Vec::new(), (1.0, None));
    for level in 1..model.starts.len() {
        let at = model.starts[level];
        let from = model.starts[level - 1];
        let to = model.starts.get(level + 1).copied().unwrap_or(model.cells.commits.len());
        let Some(Sized { scan, scores, size, error, part }) = sized(model, level, &lucks) else {
            weakest = (0.0, Some(at));
            continue;
        };
        if part < weakest.0 {
            weakest = (part, Some(at));
        }
        let best = square(&scan, &scores, at);
        let likely = |commit: &usize| square(&scan, &scores, *commit) >= best - unlikely;
        let between = [
            (from + 1..to).find(likely).unwrap_or(at).min(at),
            (from + 1..to).rev().find(likely).unwrap_or(at).max(at),
        ];
        let p = ps.iter().find(|(place, _)| *place == at).map_or(ALPHA, |(_, p)| *p);
        steps.push(Step { at, size, error, between, p });
    }
    (steps, weakest.1)
}

/// What commits of one level vary by beyond the error of their estimates: how builds differ by luck.
#[derive(Debug, Clone, Copy)]
struct Luck {
    variance: f64,
    /// What the variance is known from.
    degrees: f64,
    /// The probability at which a step is beyond it.
    p: f64,
}

impl Luck {
    /// The standard error of a step between levels of so many commits, of which `own` is the variance without luck; and
    /// how many of these a step needs.
    fn error(self, own: f64, commits: [usize; 2]) -> (f64, f64) {
        let lucky = self.variance * commits.iter().map(|&n| 1.0 / n.max(1) as f64).sum::<f64>();
        let all = own + lucky;
        // Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
        let degrees = (self.degrees * (all / lucky).powi(2)).clamp(1.0, 1e4);
        (all.sqrt(), student::quantile(self.p, degrees))
    }
}

/// What luck may be for these levels, the best estimate first. A step counts if it is beyond any of them, so they share
/// [`ALPHA`].
fn lucks(model: &Model, starts: &[usize]) -> Vec<Luck> {
    /// From fewer differences of neighbours nothing is estimated.
    const LEAST: usize = 8;
    let commits = model.cells.commits.len();
    let places = (commits - 1).max(1) as f64;
    let p = ALPHA / places / 3.0;
    let scan = Scan::new(model, starts);
    let [own, beside] = scan.precisions();
    let (off, luck) = luck(&scan, &own, p);
    let mut all = vec![luck];
    // A step that isn't known yet looks like luck, and would hide this one.
    let (best, further) = scan.best(&scan.scores(&model.values, &mut Vec::new()));
    if best >= LEAST_SCORE {
        let mut starts = starts.to_vec();
        starts.push(further);
        starts.sort_unstable();
        all.push(self::luck(&Scan::new(model, &starts), &own, p / places).1);
    }
    // Several of them hardly move a median. What a step adds, found or not, is in one difference only.
    let chosen: Vec<usize> = (1..commits)
        .filter(|&c| scan.level_of[c - 1] == scan.level_of[c] && own[c - 1] > 0.0 && own[c] > 0.0)
        .collect();
    if chosen.len() >= LEAST {
        let sizes: Vec<f64> = chosen.iter().map(|&c| (off[c] - off[c - 1]).abs()).collect();
        let known: Vec<f64> = chosen
            .iter()
            .map(|&c| {
                let (a, b, both) = (own[c - 1], own[c], beside[c]);
                model.inflation * (a + b + 2.0 * both) / (a * b - both * both) / 2.0
            })
            .collect();
        let total = 1.4826 * std::f64::consts::FRAC_1_SQRT_2 * median(&sizes).unwrap_or(0.0);
        let variance = (total * total - median(&known).unwrap_or(0.0)).max(0.0);
        // Two thirds of the information, since neighbouring differences share a commit, and of that the 37 % of a median.
        let degrees = 0.37 * 2.0 / 3.0 * chosen.len() as f64;
        all.push(Luck { variance, degrees, p });
    }
    all
}

/// By how much each commit differs from its level, and the variance of that beyond the error (Henderson, "Estimation of
/// variance and covariance components", 1953, method 3: the squares are as large as they are expected to be).
fn luck(scan: &Scan<'_>, own: &[f64], p: f64) -> (Vec<f64>, Luck) {
    let model = scan.model;
    let mut out = Vec::new();
    model.inverse.times(&model.cells, &model.units, &model.values, &mut out);
    let mut scores = model.by_commit(&out);
    let levels = scan.factor.solve(&scan.by_level(&scores));
    for (level, by_commit) in levels.iter().zip(&scan.by_commit) {
        scores.iter_mut().zip(by_commit).for_each(|(sum, column)| *sum -= level * column);
    }
    let off = solve(model, &scores);
    let squares: f64 = off.iter().zip(&scores).map(|(off, score)| off * score).sum();
    let of_levels = |commit: usize| {
        let of: Vec<f64> = scan.by_commit.iter().map(|column| column[commit]).collect();
        scan.factor.solve(&of).iter().zip(&of).map(|(a, b)| a * b).sum::<f64>()
    };
    let trace: f64 = own.iter().enumerate().map(|(c, own)| own - of_levels(c)).sum();
    let degrees = own.len() as f64 - scan.starts.len() as f64;
    let more = (squares - model.inflation * degrees).max(0.0);
    // Without a second commit in any level there is nothing to know it from.
    let variance = if degrees > 0.0 && trace > 0.0 { more / trace } else { f64::INFINITY };
    (off, Luck { variance, degrees, p })
}
