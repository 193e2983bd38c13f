//! What machines themselves say of commits: the level of each commit on each day, from differences within machines alone.
//!
//! A group is the runs of one commit on one day. Each group has a level of its own, and each machine too, so that nothing
//! is taken for a commit's that may be a machine's: of two commits that no machine ran both, nothing is known at all, however
//! many machines ran either. The levels are those of generalised least squares with pseudo-values (see `model.rs`), where
//! each group is its own, so that a group that is far from its neighbours isn't taken for an outlier.
//!
//! What two commits differ by is then a sum of groups' levels ([`Groups::contrast`]). Its error has two parts: what sessions
//! vary by within a group; and what all machines share on a day, or all runs of a build. The latter can't be told from within
//! a group. It is what groups vary by beyond their errors (Henderson, "Estimation of variance and covariance components",
//! 1953, method 3: the squares are as large as they are expected to be), once by days and once by commits.

use std::collections::BTreeMap;

use super::cells::Cells;
use super::model::{Factor, Model, Unit};

/// Beyond so many groups days are not told apart, and of more commits only the newest are looked at: the equations would
/// take too long.
pub(super) const MOST_GROUPS: usize = 1200;

/// What is shared by groups, and can't be told from within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shared {
    /// By all machines on a day, such as a hot summer's.
    Day,
    /// By all runs of a build: where a linker put a loop.
    Build,
}

/// An estimate of a variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Variance {
    pub(super) of: f64,
    /// The degrees of freedom that it is known from.
    pub(super) degrees: f64,
    /// Half of its own variance: what was taken off as noise makes it no surer.
    spread: f64,
    /// Those of the degrees of freedom that the figures have.
    seen: f64,
}

/// What builds and days vary by before anything is seen: as much as half a per cent, known as if from so many
/// degrees of freedom (a scaled inverse χ², as in Smyth, "Linear models and empirical Bayes methods for assessing differential
/// expression", 2004). Two commits say nothing of how builds differ by luck.
const USUAL: Variance = Variance::exact(0.005 * 0.005, 4.0);

impl Variance {
    const NONE: Self = Self::exact(0.0, 0.0);

    const fn exact(of: f64, degrees: f64) -> Self {
        let spread = if degrees > 0.0 { of * of / degrees } else { 0.0 };
        Self { of, degrees, spread, seen: 0.0 }
    }

    fn beside(self, usual: Self) -> Self {
        let degrees = self.degrees + usual.degrees;
        if degrees <= 0.0 {
            return USUAL;
        }
        let [own, other] = [self.degrees / degrees, usual.degrees / degrees];
        Self {
            of: own * self.of + other * usual.of,
            degrees,
            spread: own * own * self.spread + other * other * usual.spread,
            seen: self.seen,
        }
    }

    /// For naming something: no less than what is usual says, unless it is known to be more.
    pub(super) fn or_usual(self, shared: Shared) -> Self {
        let of = if self.of > USUAL.of { self } else { self.beside(USUAL) };
        // What was taken off as noise is known from all sessions, unless hardly a day is left to know it from.
        let is_unsure = shared == Shared::Day && self.degrees < USUAL.degrees;
        Self { spread: if is_unsure { of.spread } else { of.of * of.of / of.degrees }, ..of }
    }

    /// For an interval: where it is known from as much as what is usual, what is usual doesn't count.
    pub(super) fn known(self, shared: Shared) -> Self {
        let degrees = (USUAL.degrees - self.degrees).max(0.0);
        let of = match self.of > USUAL.of {
            true => self,
            false => self.beside(Variance::exact(USUAL.of, degrees)),
        };
        let spread = if shared == Shared::Day { of.spread } else { of.of * of.of / of.degrees };
        Self { spread, ..of }
    }
}

/// A difference of levels, its variance by sessions, and by how much the variances of days and builds count in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Contrast {
    pub(super) size: f64,
    pub(super) own: f64,
    pub(super) days: f64,
    pub(super) builds: f64,
}

impl Contrast {
    /// The standard error if this is shared, and its degrees of freedom (Satterthwaite, "An approximate distribution of
    /// estimates of variance components", 1946).
    pub(super) fn error(&self, groups: &Groups, shared: Shared, of: Variance) -> (f64, f64) {
        if groups.left < 1.0 && of.seen < 1.0 {
            // Nothing was measured twice.
            return (f64::INFINITY, 1.0);
        }
        let part = match shared {
            Shared::Day => self.days,
            Shared::Build => self.builds,
        };
        let more = part * of.of;
        let all = self.own + more;
        let of_own = self.own * self.own / groups.left.max(1.0);
        let of_more = part * part * of.spread;
        let degrees = (all * all / (of_own + of_more).max(1e-300)).clamp(1.0, 1e4);
        (all.sqrt(), degrees)
    }
}

/// The levels of commits on days.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Groups {
    /// The model whose commits are the groups, and in which machines are free.
    pub(super) model: Model,
    /// The commit of each group, in order.
    pub(super) commit_of: Vec<usize>,
    /// The day of each.
    pub(super) day_of: Vec<usize>,
    /// What is known of the groups: the inverse of the covariance of their levels, but for [`Self::scale`].
    precision: Vec<Vec<f64>>,
    /// The precision, times the levels.
    right: Vec<f64>,
    /// The variance of a unit of weight: 1 if noise is normal and independent, and known.
    pub(super) scale: f64,
    /// The degrees of freedom that sessions leave.
    pub(super) left: f64,
    /// Of each commit, the least commit that machines connect it with.
    pub(super) parts: Vec<usize>,
    /// Of each group, the least group that machines connect it with.
    tied: Vec<usize>,
}

impl Groups {
    pub(super) fn of(cells: &Cells, units: &[Unit]) -> Self {
        let key = |cell: &super::cells::Cell, by_day: bool| {
            (cell.commit, if by_day { cells.days[cell.session] } else { 0 })
        };
        let sorted = |by_day: bool| {
            let mut keys: Vec<(usize, usize)> =
                cells.cells.iter().map(|cell| key(cell, by_day)).collect();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        let mut keys = sorted(true);
        let by_day = keys.len() <= MOST_GROUPS;
        if !by_day {
            keys = sorted(false);
        }
        let mut of_groups = cells.clone();
        of_groups.commits = vec![String::new(); keys.len()];
        for cell in &mut of_groups.cells {
            let key = key(cell, by_day);
            cell.commit = keys.partition_point(|other| *other < key);
        }
        let free = units.iter().map(|unit| Unit { free: true, ..unit.clone() }).collect();
        let starts = (0..keys.len()).collect();
        let model = Model::of_groups(of_groups, free, starts);
        let unit_of = model.unit_of_session();
        let edges = |of: &dyn Fn(usize) -> usize| {
            model
                .cells
                .cells
                .iter()
                .map(|cell| (of(cell.commit), unit_of[cell.session]))
                .collect::<Vec<_>>()
        };
        let tied = components(keys.len(), model.units.len(), &edges(&|group| group));
        let parts =
            components(cells.commits.len(), model.units.len(), &edges(&|group| keys[group].0));
        let precision = model.precision();
        let right = {
            let mut out = Vec::new();
            model.inverse.times(&model.cells, &model.units, &model.values, &mut out);
            model.by_commit(&out)
        };
        let (sessions, of_units) = (model.cells.sessions.len() as f64, model.units.len() as f64);
        let left = (sessions - of_units - keys.len() as f64 + distinct(&tied) as f64).max(0.0);
        // The squares of what is left, as large as they are expected to be. Noise isn't taken for smaller than it looks.
        let free =
            model.cells.cells.len() as f64 - of_units - keys.len() as f64 + distinct(&tied) as f64;
        let squares = if free >= 1.0 { model.squares() / free } else { 1.0 };
        let scale = squares.max(1.0) * model.spread_by_clipping * model.persistence();
        Self {
            commit_of: keys.iter().map(|key| key.0).collect(),
            day_of: keys.iter().map(|key| key.1).collect(),
            precision,
            right,
            scale,
            left,
            parts,
            tied,
            model,
        }
    }

    /// The groups of these commits, as a range: commits are in order.
    fn range(&self, from: usize, to: usize) -> [usize; 2] {
        [from, to].map(|commit| self.commit_of.partition_point(|of| *of < commit))
    }

    /// What is known of levels, each of some groups: sums of the precision.
    fn of_levels(&self, levels: &[Vec<usize>]) -> Levels {
        self.of_levels_and_days(levels, &[], Variance::NONE)
    }

    /// The days on which several levels were measured: on these, levels are compared within the day.
    fn days_in_common(&self, levels: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut days: BTreeMap<usize, (usize, bool, Vec<usize>)> = BTreeMap::new();
        for (level, groups) in levels.iter().enumerate() {
            for &group in groups {
                let day = days.entry(self.day_of[group]).or_insert((level, false, Vec::new()));
                day.1 |= day.0 != level;
                day.2.push(group);
            }
        }
        days.into_values().filter(|day| day.1).map(|day| day.2).collect()
    }

    /// The same beside these days, which vary by so much (the mixed model's equations: Henderson 1975).
    fn of_levels_and_days(
        &self,
        levels: &[Vec<usize>],
        days: &[Vec<usize>],
        varied: Variance,
    ) -> Levels {
        let columns: Vec<&Vec<usize>> = levels.iter().chain(days).collect();
        let by_level: Vec<Vec<f64>> = columns
            .iter()
            .map(|level| {
                let mut sums = vec![0.0; self.commit_of.len()];
                for &group in level.iter() {
                    sums.iter_mut().zip(&self.precision[group]).for_each(|(sum, p)| *sum += p);
                }
                sums
            })
            .collect();
        let sum = |of: &[usize], values: &[f64]| of.iter().map(|&g| values[g]).sum::<f64>();
        let mut matrix: Vec<Vec<f64>> = by_level
            .iter()
            .map(|sums| columns.iter().map(|column| sum(column, sums)).collect())
            .collect();
        for (day, row) in matrix.iter_mut().enumerate().skip(levels.len()) {
            row[day] += self.scale / varied.of.max(1e-12);
        }
        let right: Vec<f64> = columns.iter().map(|column| sum(column, &self.right)).collect();
        let factor = Factor::of(matrix);
        let logs = factor.solve(&right);
        Levels { by_level, factor, logs, days: days.to_vec(), varied: varied.of }
    }

    /// The groups of each level: `starts` are commits, and only commits of this part count.
    fn levels(&self, part: usize, starts: &[usize]) -> Vec<Vec<usize>> {
        let mut levels = Vec::new();
        for (level, &start) in starts.iter().enumerate() {
            let end = starts.get(level + 1).copied().unwrap_or(self.parts.len());
            let [from, to] = self.range(start, end);
            let is_of = |group: &usize| self.parts[self.commit_of[*group]] == part;
            levels.push((from..to).filter(is_of).collect());
        }
        levels
    }

    /// The level of each commit by itself, whatever part it is of, and the inverse of its variance.
    pub(super) fn of_commits(&self) -> Vec<(f64, f64)> {
        let commits = self.parts.len();
        let all: Vec<usize> = (0..commits).collect();
        let mut of = vec![(0.0, 0.0); commits];
        for part in self.parts_once() {
            let own: Vec<usize> = all.iter().copied().filter(|&c| self.parts[c] == part).collect();
            let groups: Vec<Vec<usize>> = own.iter().map(|&c| self.of_commit(c)).collect();
            let levels = self.of_levels(&groups);
            for (nth, &commit) in own.iter().enumerate() {
                let weight: f64 = groups[nth].iter().map(|&g| levels.by_level[nth][g]).sum();
                of[commit] = (levels.logs[nth], weight / self.scale);
            }
        }
        of
    }

    /// The precision of these commits' levels, and that times the levels.
    pub(super) fn by_commit(&self, commits: &[usize]) -> (Vec<Vec<f64>>, Vec<f64>) {
        let groups: Vec<Vec<usize>> = commits.iter().map(|&c| self.of_commit(c)).collect();
        let sum = |a: &[usize], b: &[usize]| {
            a.iter().map(|&i| b.iter().map(|&j| self.precision[i][j]).sum::<f64>()).sum::<f64>()
        };
        let matrix = groups.iter().map(|a| groups.iter().map(|b| sum(a, b)).collect()).collect();
        (matrix, groups.iter().map(|of| of.iter().map(|&g| self.right[g]).sum()).collect())
    }

    fn of_commit(&self, commit: usize) -> Vec<usize> {
        let [from, to] = self.range(commit, commit + 1);
        (from..to).collect()
    }

    /// Each part once, in order.
    pub(super) fn parts_once(&self) -> Vec<usize> {
        let mut parts = self.parts.clone();
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// The steps between levels of one part that begin with these commits.
    pub(super) fn fitted(&self, part: usize, starts: &[usize]) -> Fitted {
        let groups = self.levels(part, starts);
        let levels = self.of_levels(&groups);
        let of_days = self.vary(&groups, &levels, Shared::Day);
        let days = self.days_in_common(&groups);
        let beside_days = self.of_levels_and_days(&groups, &days, of_days.or_usual(Shared::Day));
        // What days do is no build's.
        let shared = [of_days, self.vary(&groups, &beside_days, Shared::Build)];
        let contrast = |level: usize| {
            let mut weights = vec![0.0; groups.len()];
            weights[level] = 1.0;
            weights[level - 1] = -1.0;
            self.contrast_of(&beside_days, weights).0
        };
        let steps = (1..groups.len()).map(contrast).collect();
        Fitted { steps, levels: levels.logs, shared }
    }

    /// A sum of levels with these weights, and how much each group counts in it.
    fn contrast_of(&self, levels: &Levels, mut weights: Vec<f64>) -> (Contrast, Vec<f64>) {
        weights.resize(levels.logs.len(), 0.0);
        let solved = levels.factor.solve(&weights);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        // By how much each group counts.
        let mut of_groups = vec![0.0; self.commit_of.len()];
        for (solved, by_level) in solved.iter().zip(&levels.by_level) {
            of_groups.iter_mut().zip(by_level).for_each(|(sum, p)| *sum += solved * p);
        }
        let sum = |of: &Vec<usize>| of.iter().map(|&g| of_groups[g]).sum::<f64>();
        let of_days: f64 = levels.days.iter().map(|day| sum(day) * sum(day)).sum();
        let all = self.scale * dot(&weights, &solved);
        let contrast = Contrast {
            size: dot(&weights, &levels.logs),
            own: (all - levels.varied * of_days).max(0.0),
            days: squares(&self.day_of, &of_groups),
            builds: squares(&self.commit_of, &of_groups),
        };
        (contrast, of_groups)
    }

    /// What commits with these weights, which sum up to 0, differ by, if days vary by so much.
    pub(super) fn contrast(&self, weights: &BTreeMap<usize, f64>, days: Variance) -> Contrast {
        self.contrast_and_groups(weights, days).0
    }

    fn contrast_and_groups(
        &self,
        weights: &BTreeMap<usize, f64>,
        days: Variance,
    ) -> (Contrast, Vec<f64>) {
        let mut all = Contrast { size: 0.0, own: 0.0, days: 0.0, builds: 0.0 };
        let mut of_groups = vec![0.0; self.commit_of.len()];
        for part in self.parts_once() {
            let commits: Vec<usize> =
                (0..self.parts.len()).filter(|&c| self.parts[c] == part).collect();
            let weights: Vec<f64> =
                commits.iter().map(|c| weights.get(c).copied().unwrap_or(0.0)).collect();
            if weights.iter().all(|weight| *weight == 0.0) {
                continue;
            }
            let groups: Vec<Vec<usize>> = commits.iter().map(|&c| self.of_commit(c)).collect();
            let common = self.days_in_common(&groups);
            let levels = self.of_levels_and_days(&groups, &common, days);
            let (of, own) = self.contrast_of(&levels, weights);
            all.size += of.size;
            all.own += of.own;
            all.days += of.days;
            all.builds += of.builds;
            of_groups.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        (all, of_groups)
    }

    /// What machines with these weights, which sum up to 0, differ by: what their sessions differ by beyond their commits.
    pub(super) fn machines(&self, weights: &BTreeMap<usize, f64>, days: Variance) -> Contrast {
        let (model, inverse) = (&self.model, &self.model.inverse);
        let (mut log, mut own) = (0.0, 0.0);
        let mut of_groups = vec![0.0; self.commit_of.len()];
        let mut of_commits: BTreeMap<usize, f64> = BTreeMap::new();
        for (&u, weight) in weights {
            let each = weight / inverse.precision[u];
            own += weight * each;
            for s in model.units[u].sessions[0]..model.units[u].sessions[1] {
                for i in model.cells.in_session(s) {
                    let group = model.cells.cells[i].commit;
                    let counts = each * inverse.weights[i] * inverse.rest[s];
                    log += counts * model.values[i];
                    of_groups[group] += counts;
                    *of_commits.entry(self.commit_of[group]).or_insert(0.0) += counts;
                }
            }
        }
        let (commits, beside) = self.contrast_and_groups(&of_commits, days);
        of_groups.iter_mut().zip(beside).for_each(|(sum, beside)| *sum -= beside);
        Contrast {
            size: log - commits.size,
            own: self.scale * own.max(0.0) + commits.own,
            days: squares(&self.day_of, &of_groups),
            builds: 0.0,
        }
    }

    /// What days vary by, if each commit has its own level; of a commit a day nothing.
    pub(super) fn days_within_commits(&self) -> Variance {
        let groups: Vec<Vec<usize>> = (0..self.parts.len()).map(|c| self.of_commit(c)).collect();
        self.vary(&groups, &self.of_levels(&groups), Shared::Day)
    }

    /// The same if commits have one level from each of these on to the next.
    pub(super) fn days_within_levels(&self, starts: &[usize]) -> Variance {
        let starts: Vec<usize> = [0].into_iter().chain(starts.iter().copied()).collect();
        let parts = self.parts_once();
        let groups: Vec<Vec<usize>> = parts
            .into_iter()
            .flat_map(|part| self.levels(part, &starts))
            .filter(|groups| !groups.is_empty())
            .collect();
        self.vary(&groups, &self.of_levels(&groups), Shared::Day)
    }

    /// What is shared by groups varies by so much, if these are their levels.
    fn vary(&self, groups: &[Vec<usize>], levels: &Levels, shared: Shared) -> Variance {
        let of = match shared {
            Shared::Day => &self.day_of,
            Shared::Build => &self.commit_of,
        };
        let mut level_of = BTreeMap::new();
        for (level, own) in groups.iter().enumerate() {
            level_of.extend(own.iter().map(|&group| (group, level)));
        }
        let mut of_day = BTreeMap::new();
        for (day, own) in levels.days.iter().enumerate() {
            of_day.extend(own.iter().map(|&group| (group, levels.logs[groups.len() + day])));
        }
        let own: Vec<usize> = level_of.keys().copied().collect();
        // The level of a group by itself is the model's.
        let off = |group: &usize| {
            let day = of_day.get(group).copied().unwrap_or(0.0);
            self.model.levels[*group] - levels.logs[level_of[group]] - day
        };
        let squares: f64 = own.iter().map(|group| off(group) * self.right[*group]).sum();
        let mut blocks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &group in &own {
            blocks.entry(of[group]).or_default().push(group);
        }
        let mut trace = 0.0;
        for block in blocks.values() {
            let beside: Vec<f64> = levels
                .by_level
                .iter()
                .map(|sums| block.iter().map(|&group| sums[group]).sum())
                .collect();
            let known: f64 =
                levels.factor.solve(&beside).iter().zip(&beside).map(|(a, b)| a * b).sum();
            let row = |a: usize| block.iter().map(|&b| self.precision[a][b]).sum::<f64>();
            let all: f64 = block.iter().map(|&a| row(a)).sum();
            trace += (all - known).max(0.0);
        }
        // Levels and what machines tie together are taken off, but what both have in common only once.
        let used = |which: &dyn Fn(usize) -> usize, count: usize| {
            let mut ties: Vec<usize> = own.iter().map(|&group| self.tied[group]).collect();
            ties.sort_unstable();
            ties.dedup();
            let tie = |group: usize| ties.partition_point(|tie| *tie < self.tied[group]);
            let edges: Vec<(usize, usize)> =
                own.iter().map(|&group| (which(group), tie(group))).collect();
            let of = components(count, ties.len(), &edges);
            count as f64 + ties.len() as f64 - distinct(&of) as f64
        };
        let of_levels = used(&|group| level_of[&group], groups.len());
        let degrees = own.len() as f64 - of_levels;
        // Blocks that the levels leave something of.
        let order: BTreeMap<usize, usize> =
            blocks.keys().enumerate().map(|(nth, block)| (*block, nth)).collect();
        let free = used(&|group| order[&of[group]], order.len()) - of_levels;
        let free = free.min(blocks.len() as f64 - 1.0).min(degrees).max(0.0);
        if trace <= 1e-9 || free <= 0.0 {
            return Variance::NONE;
        }
        let more = (squares - self.scale * degrees).max(0.0);
        let all = squares.max(self.scale * degrees) / trace;
        Variance { of: more / trace, degrees: free, spread: all * all / free, seen: free }
    }
}

/// The squares of how much groups count, added up by what they share.
fn squares(of: &[usize], groups: &[f64]) -> f64 {
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    for (which, weight) in of.iter().zip(groups) {
        *sums.entry(*which).or_insert(0.0) += weight;
    }
    sums.values().map(|sum| sum * sum).sum()
}

/// What is known of levels.
struct Levels {
    /// Of each level, the sum of the precision over its groups, for each group.
    by_level: Vec<Vec<f64>>,
    factor: Factor,
    logs: Vec<f64>,
    /// The groups of days that are beside the levels, as columns after theirs, and what these vary by.
    days: Vec<Vec<usize>>,
    varied: f64,
}

/// Levels of one part, and the steps between them.
pub(super) struct Fitted {
    pub(super) steps: Vec<Contrast>,
    pub(super) levels: Vec<f64>,
    /// What days vary by, and what builds.
    shared: [Variance; 2],
}

impl Fitted {
    /// What may be shared, and by how much it varies.
    pub(super) fn each(&self) -> impl Iterator<Item = (Shared, Variance)> {
        [Shared::Day, Shared::Build].into_iter().zip(self.shared)
    }
}

/// Of each of `ones`, the least other that edges to `others` connect it with.
pub(super) fn components(ones: usize, others: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    fn root(parent: &mut [usize], mut of: usize) -> usize {
        while parent[of] != of {
            parent[of] = parent[parent[of]];
            of = parent[of];
        }
        of
    }
    let mut parent: Vec<usize> = (0..ones).collect();
    let mut first: Vec<Option<usize>> = vec![None; others];
    for &(one, other) in edges {
        match first[other] {
            None => first[other] = Some(one),
            Some(known) => {
                let (a, b) = (root(&mut parent, one), root(&mut parent, known));
                parent[a.max(b)] = a.min(b);
            }
        }
    }
    (0..ones).map(|one| root(&mut parent, one)).collect()
}

fn distinct(of: &[usize]) -> usize {
    of.iter().enumerate().filter(|(one, root)| one == *root).count()
}
