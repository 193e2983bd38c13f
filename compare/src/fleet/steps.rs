//! Finds the commits from which on the level is another.
//!
//! For each number of steps the best places are known exactly: those that leave the least squares of the commits' levels
//! (Auger and Lawrence, "Algorithms for the optimal identification of segment neighborhoods", 1989). A change that was
//! reverted takes two steps at once, of which neither does much alone, so steps are not searched for one by one: to those
//! that are known, as many as [`AHEAD`] more are tried at once. A number counts if each of its steps is so many standard
//! errors large as a step is in at most [`ALPHA`] of fleets without one, divided by the number of ways to place those that
//! are new (Bonferroni).
//!
//! The standard error has two parts (see `groups.rs`): what sessions vary by; and what all machines share on a day or all
//! runs of a build, which is large where the commits of one level differ by more than sessions make of it. A day on
//! which all machines are slow, or a build whose linker put a loop elsewhere, looks like a change. Of few commits
//! nothing says how much builds differ, and what they usually differ by counts beside it.

use brickscope_profile::stats::{median, student};

use super::groups::{Contrast, Fitted, Groups, Shared, Variance};
use super::model::Factor;

/// The largest probability at which chance may find a step as good as the best that was found.
pub(super) const ALPHA: f64 = 0.003;

/// The most steps that are tried at once beyond those that are known: three changes that were reverted.
const AHEAD: usize = 6;

/// More steps than this in one history are no steps.
const MOST: usize = 100;

/// How much worse than the best place another may be, as a difference of squared standard errors, and still be as likely
/// as one in twenty: as for two parameters, the place and the size.
const PLACES: f64 = 6.0;

/// A step in the level.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// The first commit of the new level.
    pub(super) at: usize,
    /// The first commit of the level before, and the one after the last of the new level.
    pub(super) within: [usize; 2],
    /// The new level minus the old, in logarithms.
    pub(super) size: f64,
    /// Half of its 95 % interval.
    pub(super) half: f64,
    /// The first and the last commit that may be the place.
    pub(super) between: [usize; 2],
    pub(super) p: f64,
}

/// All steps, by their commits: of each part of the fleet that machines connect.
pub(super) fn find(groups: &Groups) -> Vec<Step> {
    let of_commits = groups.of_commits();
    let mut steps: Vec<Step> = Vec::new();
    for part in groups.parts_once() {
        let search = Search::of(groups, part, &of_commits);
        steps.extend(search.steps());
    }
    // Two parts may have the same step.
    steps.sort_by(|a, b| a.at.cmp(&b.at).then(a.p.total_cmp(&b.p)));
    steps.dedup_by_key(|step| step.at);
    steps
}

/// The commits of a part.
struct Search<'g> {
    groups: &'g Groups,
    part: usize,
    commits: Vec<usize>,
    /// Sums of weights, of these times levels, and of these times levels again, of the commits before each place.
    sums: Vec<[f64; 3]>,
    /// The precision of the commits' levels; absent if builds and days vary by more than that says.
    exact: Option<Exact>,
}

impl<'g> Search<'g> {
    fn of(groups: &'g Groups, part: usize, of_commits: &[(f64, f64)]) -> Self {
        let commits: Vec<usize> =
            (0..of_commits.len()).filter(|&commit| groups.parts[commit] == part).collect();
        let own: Vec<f64> = commits.iter().map(|&c| 1.0 / of_commits[c].1.max(1e-12)).collect();
        let logs: Vec<f64> = commits.iter().map(|&c| of_commits[c].0).collect();
        // By how much neighbours differ is hardly moved by steps between some of them.
        let far: Vec<f64> = logs.windows(2).map(|two| (two[1] - two[0]).abs()).collect();
        let total = 1.4826 * median(&far).unwrap_or(0.0);
        let usual = median(&own).unwrap_or(0.0);
        let more = (total * total / 2.0 - usual).max(0.0);
        let mut sums = vec![[0.0; 3]];
        for (own, log) in own.iter().zip(&logs) {
            let weight = 1.0 / (own + more);
            let last = sums[sums.len() - 1];
            sums.push([last[0] + weight, last[1] + weight * log, last[2] + weight * log * log]);
        }
        let exact = (more <= usual).then(|| Exact::of(groups, &commits));
        Self { groups, part, commits, sums, exact }
    }

    /// The squares that one level leaves of the commits in a range.
    fn cost(&self, from: usize, to: usize) -> f64 {
        let [w, x, xx] = [0, 1, 2].map(|i| self.sums[to][i] - self.sums[from][i]);
        (xx - x * x / w).max(0.0)
    }

    fn steps(&self) -> Vec<Step> {
        let n = self.commits.len();
        let mut best = Best::new(n);
        let mut known: Vec<usize> = Vec::new();
        let mut ways = 1.0;
        loop {
            let more = (1..=AHEAD).find_map(|more| {
                let count = known.len() + more;
                if count + 1 > n || count > MOST {
                    return None;
                }
                let places = self.moved(best.places(count, |from, to| self.cost(from, to)));
                let ways = chosen(n - 1 - known.len(), more);
                let fitted = self.fitted(&places);
                let is_each = fitted
                    .steps
                    .iter()
                    .all(|step| ways * improbable(self.groups, step, &fitted) <= ALPHA);
                is_each.then_some((places, ways))
            });
            let Some((places, of)) = more else { break };
            (known, ways) = (places, of);
        }
        let fitted = self.fitted(&known);
        let commit = |place: usize| self.commits.get(place).copied();
        let step = |(nth, contrast): (usize, &Contrast)| {
            let from = if nth == 0 { 0 } else { known[nth - 1] };
            let to = known.get(nth + 1).copied().unwrap_or(n);
            let between = self.between(&known, nth, from + 1..to);
            Step {
                at: self.commits[known[nth]],
                within: [self.commits[from], commit(to).unwrap_or(self.groups.parts.len())],
                size: contrast.size,
                half: half(self.groups, contrast, &fitted),
                between: between.map(|place| self.commits[place]),
                p: (ways * improbable(self.groups, contrast, &fitted)).min(1.0),
            }
        };
        fitted.steps.iter().enumerate().map(step).collect()
    }

    fn fitted(&self, places: &[usize]) -> Fitted {
        let starts: Vec<usize> =
            [0].into_iter().chain(places.iter().map(|&place| self.commits[place])).collect();
        self.groups.fitted(self.part, &starts)
    }

    /// How good these places are, in squared standard errors.
    fn gain(&self, places: &[usize]) -> f64 {
        let n = self.commits.len();
        if let Some(exact) = &self.exact {
            return exact.gain(places) / self.groups.scale;
        }
        let edges = [&[0], places, &[n]].concat();
        -edges.windows(2).map(|two| self.cost(two[0], two[1])).sum::<f64>()
    }

    /// Each place moved to the best between its neighbours, twice, since they affect each other (Bai, "Estimating
    /// multiple breaks one at a time", 1997): the places are the best if commits don't share errors, which they do.
    fn moved(&self, mut places: Vec<usize>) -> Vec<usize> {
        if self.exact.is_none() {
            return places;
        }
        for _ in 0..2 {
            for nth in 0..places.len() {
                let from = if nth == 0 { 1 } else { places[nth - 1] + 1 };
                let to = places.get(nth + 1).copied().unwrap_or(self.commits.len());
                let gain = |place: usize| {
                    let mut others = places.clone();
                    others[nth] = place;
                    self.gain(&others)
                };
                let gains = (from..to).map(|place| (gain(place), place));
                let best = gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
                places[nth] = best.map_or(places[nth], |(_, place)| place);
            }
        }
        places
    }

    /// The first and the last place that may be this step's.
    fn between(&self, places: &[usize], nth: usize, range: std::ops::Range<usize>) -> [usize; 2] {
        let gain = |place: usize| {
            let mut others = places.to_vec();
            others[nth] = place;
            self.gain(&others)
        };
        let at = places[nth];
        let enough = gain(at) - PLACES;
        let likely = |place: &usize| gain(*place) >= enough;
        [
            range.clone().find(likely).unwrap_or(at).min(at),
            range.rev().find(likely).unwrap_or(at).max(at),
        ]
    }
}

/// The precision of the commits' levels, as sums over all before each two places.
struct Exact {
    sums: Vec<Vec<f64>>,
    right: Vec<f64>,
}

impl Exact {
    fn of(groups: &Groups, commits: &[usize]) -> Self {
        let n = commits.len();
        let (matrix, of_commits) = groups.by_commit(commits);
        let mut sums = vec![vec![0.0; n + 1]; n + 1];
        let mut right = vec![0.0; n + 1];
        for i in 0..n {
            let mut row = 0.0;
            for j in 0..n {
                row += matrix[i][j];
                sums[i + 1][j + 1] = sums[i][j + 1] + row;
            }
            right[i + 1] = right[i] + of_commits[i];
        }
        Self { sums, right }
    }

    /// By how much levels that begin at these places, and at 0, leave less of the squares than none.
    fn gain(&self, places: &[usize]) -> f64 {
        let n = self.right.len() - 1;
        let edges = [&[0], places, &[n]].concat();
        let levels = edges.len() - 1;
        let within = |a: usize, b: usize| {
            let [top, end] = [edges[a], edges[a + 1]];
            let [left, right] = [edges[b], edges[b + 1]];
            self.sums[end][right] - self.sums[top][right] - self.sums[end][left]
                + self.sums[top][left]
        };
        let matrix = (0..levels).map(|a| (0..levels).map(|b| within(a, b)).collect()).collect();
        let own: Vec<f64> =
            edges.windows(2).map(|two| self.right[two[1]] - self.right[two[0]]).collect();
        let solved = Factor::of(matrix).solve(&own);
        solved.iter().zip(&own).map(|(a, b)| a * b).sum()
    }
}

/// The best places of so many steps, by dynamic programming.
struct Best {
    n: usize,
    /// For each number of steps and each end: the least cost of what is before it, and where the last step is.
    layers: Vec<Vec<(f64, usize)>>,
}

impl Best {
    fn new(n: usize) -> Self {
        Self { n, layers: Vec::new() }
    }

    fn places(&mut self, count: usize, cost: impl Fn(usize, usize) -> f64) -> Vec<usize> {
        if self.layers.is_empty() {
            let none = (0..=self.n).map(|end| (if end > 0 { cost(0, end) } else { 0.0 }, 0));
            self.layers.push(none.collect());
        }
        while self.layers.len() <= count {
            let steps = self.layers.len();
            let before = &self.layers[steps - 1];
            let next = (0..=self.n).map(|end| {
                let of = |at: usize| (before[at].0 + cost(at, end), at);
                let best = (steps..end).map(of).min_by(|a, b| a.0.total_cmp(&b.0));
                best.unwrap_or((f64::INFINITY, 0))
            });
            let next = next.collect();
            self.layers.push(next);
        }
        let mut places = Vec::new();
        let mut end = self.n;
        for layer in self.layers[1..=count].iter().rev() {
            end = layer[end].1;
            places.push(end);
        }
        places.reverse();
        places
    }
}

/// The probability that chance makes a difference so large, whether days vary or builds do.
fn improbable(groups: &Groups, step: &Contrast, fitted: &Fitted) -> f64 {
    let of = |(shared, variance): (Shared, Variance)| {
        let (error, degrees) = step.error(groups, shared, variance.or_usual(shared));
        student::two_sided(step.size.abs() / error, degrees)
    };
    fitted.each().map(of).fold(0.0, f64::max)
}

/// Half of the 95 % interval.
fn half(groups: &Groups, step: &Contrast, fitted: &Fitted) -> f64 {
    let of = |(shared, variance): (Shared, Variance)| {
        let (error, degrees) = step.error(groups, shared, variance.known(shared));
        error * student::quantile(0.05, degrees)
    };
    fitted.each().map(of).fold(0.0, f64::max)
}

/// The least step that would have been found where there is none, at the place that shows it best; `None` if no step would
/// be. Places are as many as are asked in no time: the ends, and some between.
pub(super) fn least(groups: &Groups) -> Option<f64> {
    const MOST: usize = 8;
    let mut least: Option<f64> = None;
    for part in groups.parts_once() {
        let of_part = (0..groups.parts.len()).filter(|&commit| groups.parts[commit] == part);
        let commits: Vec<usize> = of_part.collect();
        let Some(ways) = commits.len().checked_sub(1).filter(|ways| *ways > 0) else { continue };
        let each = ways.div_ceil(MOST);
        for place in (1..=ways).step_by(each).chain([ways]) {
            let fitted = groups.fitted(part, &[0, commits[place]]);
            let Some(step) = fitted.steps.first() else { continue };
            let of = |(shared, variance): (Shared, Variance)| {
                let (error, degrees) = step.error(groups, shared, variance.or_usual(shared));
                error * student::quantile(ALPHA / ways as f64, degrees)
            };
            let size = fitted.each().map(of).fold(0.0, f64::max);
            if size.is_finite() {
                least = Some(least.map_or(size, |least| least.min(size)));
            }
        }
    }
    least
}

/// In how many ways `k` of `n` can be chosen.
fn chosen(n: usize, k: usize) -> f64 {
    (0..k).fold(1.0, |ways, i| ways * (n - i) as f64 / (i + 1) as f64)
}
