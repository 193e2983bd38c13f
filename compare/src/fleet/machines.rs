//! Finds machines that are slow among their kind, and machines that became slow.
//!
//! Two things make a machine look slow that isn't: machines of one kind differ a little, and some of its sessions may
//! have been disturbed. The first is taken as Student's t. The second is far from normal on shared machines, where every
//! tenth session may be a fifth slower, so nothing is assumed of it: how often a session is slower than a size is counted
//! among all sessions of the fleet, and that k of n sessions of one machine are so by chance has a binomial probability
//! (as in the sign test; Conover, "Practical nonparametric statistics", 1999, section 3.2, on quantiles). Both together are a
//! convolution.
//!
//! Which of a machine's sessions is looked at, the median or a faster one, depends on the noise: where other work only slows
//! sessions, the fastest ones tell most. It is chosen once for each number of sessions, from what the sessions of all machines
//! deviate by, so that no machine is tried several times.
//!
//! The more machines are slow, the larger is the probability at which one counts (Benjamini and Hochberg, "Controlling the
//! false discovery rate", 1995). Of fleets whose machines are alike, at most [`ALPHA`] have a machine that counts as slow. Where
//! some are slow, at most that part of those that count aren't, on average.
//!
//! Whether a machine itself changed is asked of its median session, of the quartile and of the least; the least of the three
//! probabilities counts, times three.

use std::collections::BTreeMap;

use brickscope_profile::stats::{median, student};

use super::model::Model;

/// The largest probability that a fleet whose machines are alike has one that counts as slow.
///
/// With [`ALPHA_CHANGED`] and the one of steps it adds up to 1 in 100. Most of it is spent here, since slow machines are
/// what is missed most.
pub(super) const ALPHA: f64 = 0.006;

/// The same for one that changed.
pub(super) const ALPHA_CHANGED: f64 = 0.001;

/// The least sessions on either side of a machine's own change.
const LEAST_SESSIONS: usize = 4;

/// The least sessions from whose residuals probabilities are counted.
const LEAST_POOL: usize = 20;

/// What sessions deviate from their machine by, sorted.
pub(super) struct Pool {
    sorted: Vec<f64>,
}

impl Pool {
    /// Logarithms of times: above 0 is slower.
    fn of(model: &Model, slower: &[f64]) -> Option<Self> {
        let mut sorted = Vec::new();
        for unit in model.units.iter().filter(|unit| unit.len() > 2) {
            let own = &slower[unit.sessions[0]..unit.sessions[1]];
            let middle = median(own).unwrap_or(0.0);
            // Their own median is nearer to them than the machine's true level.
            let wider = (own.len() as f64 / (own.len() as f64 - 1.0)).sqrt();
            sorted.extend(own.iter().map(|log| (log - middle) * wider));
        }
        sorted.sort_by(f64::total_cmp);
        (sorted.len() >= LEAST_POOL).then_some(Self { sorted })
    }

    /// How many sessions aren't slower than their machine by `size`.
    fn below(&self, size: f64) -> usize {
        self.sorted.partition_point(|log| *log < size)
    }

    /// The part of sessions behind these; never none.
    fn not_below(&self, below: usize) -> f64 {
        (self.sorted.len() - below + 1) as f64 / (self.sorted.len() + 1) as f64
    }

    /// The part of sessions that are slower than their machine by `size` or more; never none.
    fn at_least(&self, size: f64) -> f64 {
        self.not_below(self.below(size))
    }

    /// The part that are so by `size` or less.
    fn at_most(&self, size: f64) -> f64 {
        let below = self.sorted.partition_point(|log| *log <= size);
        (below + 1) as f64 / (self.sorted.len() + 1) as f64
    }
}

/// The probability of k of n, also for k 0.
fn of_all(k: usize, n: usize, chance: f64) -> f64 {
    student::binomial_at_least(k as u64, n as u64, chance)
}

/// The ranks that are asked for, from the least: the median, the quartile below it, and the least of all.
fn ranks(n: usize) -> [usize; 3] {
    [n.div_ceil(2), n.div_ceil(4), 1]
}

/// The least of the probabilities of these ranks, times their number.
fn of_either(ranks: [usize; 3], of: impl Fn(usize) -> f64) -> f64 {
    let [median, quartile, least] = ranks;
    let number = 1 + usize::from(quartile < median) + usize::from(least < quartile);
    let least = (0..3).map(of).fold(1.0, f64::min);
    (number as f64 * least).min(1.0)
}

/// Student's t in slices: the middle of each, and its probability.
fn slices(degrees: f64) -> Vec<(f64, f64)> {
    const EDGE: f64 = 8.0;
    const STEP: f64 = 0.2;
    let above = |t: f64| {
        let half = 0.5 * student::two_sided(t.abs(), degrees);
        if t < 0.0 { 1.0 - half } else { half }
    };
    let count = (2.0 * EDGE / STEP).round() as usize;
    let edges: Vec<f64> = (0..=count).map(|i| STEP * i as f64 - EDGE).collect();
    let mut slices: Vec<(f64, f64)> =
        edges.windows(2).map(|two| (two[0] + STEP / 2.0, above(two[0]) - above(two[1]))).collect();
    slices.push((f64::INFINITY, above(EDGE)));
    slices
}

/// What like machines vary by, and how often their sessions deviate by how much.
struct Chance<'p> {
    pool: &'p Pool,
    slices: &'p [(f64, f64)],
    spread: f64,
}

/// The probability that k of n sessions are slower than their machine by a size. It depends on how many sessions of the pool
/// are, so it is computed once for each number of them.
struct Slower<'p> {
    pool: &'p Pool,
    k: usize,
    n: usize,
    /// By the number of sessions in the pool that aren't as slow.
    known: Vec<Option<f64>>,
}

impl<'p> Slower<'p> {
    fn new(pool: &'p Pool, k: usize, n: usize) -> Self {
        Self { pool, k, n, known: vec![None; pool.sorted.len() + 1] }
    }

    fn by(&mut self, size: f64) -> f64 {
        let below = self.pool.below(size);
        let chance = self.pool.not_below(below);
        *self.known[below].get_or_insert_with(|| of_all(self.k, self.n, chance))
    }
}

impl Chance<'_> {
    /// Of n sessions of a like machine, for the one of this rank, from the fastest.
    fn slower(&self, rank: usize, n: usize) -> Slower<'_> {
        Slower::new(self.pool, n + 1 - rank, n)
    }

    /// The probability that this session of a like machine is as slow as `reached`.
    fn of(&self, reached: f64, slower: &mut Slower<'_>) -> f64 {
        let of = |(t, part): &(f64, f64)| part * slower.by(reached - t * self.spread);
        self.slices.iter().map(of).sum()
    }

    /// The rank that finds the smallest slow-down of a machine with n sessions in nine of ten, if a probability counts
    /// that is no larger than `enough`.
    fn rank(&self, n: usize, enough: f64) -> usize {
        const OFTEN: f64 = 0.9;
        /// The largest t that is looked for: beyond it a machine is slow by any rank.
        const FAR: f64 = 10.0;
        let sorted = &self.pool.sorted;
        let found = |rank: usize| {
            let mut slower = self.slower(rank, n);
            let (mut low, mut high) = (sorted[0], sorted[sorted.len() - 1] + FAR * self.spread);
            for _ in 0..14 {
                let reached = low + (high - low) / 2.0;
                if self.of(reached, &mut slower) <= enough { high = reached } else { low = reached }
            }
            // Of this the sessions' own deviations reach so much.
            let own = sorted.partition_point(|log| slower.by(*log) >= OFTEN);
            high - sorted[own.saturating_sub(1)]
        };
        let median = n.div_ceil(2);
        // Neighbours of high ranks are nearly alike.
        let next = |rank: &usize| Some(rank + rank.div_ceil(4));
        let ranks = std::iter::successors(Some(1), next).take_while(|&rank| rank < median);
        let sizes = ranks.chain([median]).map(|rank| (found(rank), rank));
        sizes.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(median, |(_, rank)| rank)
    }
}

/// The units that are slow among their kind.
pub(super) fn slow(model: &Model, sign: f64, least: f64) -> Vec<bool> {
    let sessions: Vec<f64> = model.sessions().iter().map(|log| sign * log).collect();
    let mut is_slow = vec![false; model.units.len()];
    let kind: Vec<usize> = (0..model.units.len()).collect();
    let Some(pool) = Pool::of(model, &sessions) else { return is_slow };
    if kind.len() < 4 {
        return is_slow;
    }
    let middles: Vec<f64> = model
        .units
        .iter()
        .map(|unit| median(&sessions[unit.sessions[0]..unit.sessions[1]]).unwrap_or(0.0))
        .collect();
    let centre = median(&middles).unwrap_or(0.0);
    let machines = {
        let mut all: Vec<usize> = model.units.iter().map(|unit| unit.machine).collect();
        all.dedup();
        all.len()
    };
    let degrees = (machines as f64 - 2.0).max(1.0);
    let slices = slices(degrees);
    let each = ALPHA / model.units.len() as f64;
    let mut ps = vec![1.0; model.units.len()];
    let mut ranks: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    for &u in &kind {
        let unit = &model.units[u];
        let mut own: Vec<f64> =
            sessions[unit.sessions[0]..unit.sessions[1]].iter().map(|log| log - centre).collect();
        let n = own.len();
        if n < 3 || middles[u] - centre < least {
            continue;
        }
        own.sort_by(f64::total_cmp);
        // The others say what machines vary by; in a small fleet a slow one would hide itself.
        let spread = if machines <= 40 { model.between_others(u) } else { model.sd.machine };
        // What can't be told from none, since the machines' own errors vary by as much.
        let unseen = (2.0 / degrees).sqrt() * model.inflation / model.inverse.precision[u];
        let spread = spread.max(unseen.sqrt());
        let chance = Chance { pool: &pool, slices: &slices, spread };
        // It takes a while, and most machines have the same spread.
        let rank = *ranks.entry((n, spread.to_bits())).or_insert_with(|| chance.rank(n, each));
        ps[u] = chance.of(own[rank - 1], &mut chance.slower(rank, n));
    }
    // Among like machines that is as rare as with one limit for all (Simes, "An improved Bonferroni procedure for multiple tests
    // of significance", 1986).
    let mut sorted = ps.clone();
    sorted.sort_by(f64::total_cmp);
    let slow = (1..=sorted.len()).rev().find(|&k| sorted[k - 1] <= k as f64 * each).unwrap_or(0);
    is_slow.iter_mut().zip(&ps).for_each(|(is_slow, p)| *is_slow = *p <= slow as f64 * each);
    is_slow
}

/// The session from which on a unit has another level, for each unit that has one.
pub(super) fn changed(model: &Model, sign: f64, least: f64) -> Vec<(usize, usize)> {
    let sessions: Vec<f64> = model.sessions().iter().map(|log| sign * log).collect();
    let Some(pool) = Pool::of(model, &sessions) else { return Vec::new() };
    let tests: usize =
        model.units.iter().map(|unit| (unit.len() + 1).saturating_sub(2 * LEAST_SESSIONS)).sum();
    let mut changed = Vec::new();
    for (u, unit) in model.units.iter().enumerate() {
        let own = &sessions[unit.sessions[0]..unit.sessions[1]];
        if own.len() < 2 * LEAST_SESSIONS {
            continue;
        }
        let best = (LEAST_SESSIONS..=own.len() - LEAST_SESSIONS)
            .filter_map(|at| {
                let (before, after) = own.split_at(at);
                let size = median(after)? - median(before)?;
                if size.abs() < least {
                    return None;
                }
                // Squares about two medians, none of them larger than a lasting change would make them.
                let cost = |part: &[f64]| -> f64 {
                    let middle = median(part).unwrap_or(0.0);
                    part.iter().map(|log| (log - middle).abs().min(size.abs())).sum()
                };
                Some((cost(before) + cost(after), at, size))
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, at, size)) = best else { continue };
        let p = 2.0 * probability(&pool, &own[..at], &own[at..], size < 0.0);
        if p * tests as f64 <= ALPHA_CHANGED {
            changed.push((u, unit.sessions[0] + at));
        }
    }
    changed
}

/// The probability that sessions of one level are so far apart.
fn probability(pool: &Pool, before: &[f64], after: &[f64], is_faster: bool) -> f64 {
    // What became faster was slower before.
    let (low, high) = if is_faster { (after, before) } else { (before, after) };
    let sort = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let (low, high) = (sort(low), sort(high));
    let (n, m) = (low.len(), high.len());
    let of = |which: usize| {
        let (rank, other) = (ranks(m)[which], ranks(n)[which]);
        let apart = high[rank - 1] - low[n - other];
        // The low side's rank is `low` or less with this probability.
        let below = |size: f64| of_all(n + 1 - other, n, pool.at_most(size));
        let reach = |size: f64| of_all(m + 1 - rank, m, pool.at_least(size));
        let count = pool.sorted.len();
        let grid: Vec<f64> = (0..=60).map(|i| pool.sorted[(count - 1) * i / 60]).collect();
        let mut sum = below(grid[0]) * reach(apart + grid[0]);
        for two in grid.windows(2) {
            sum += (below(two[1]) - below(two[0])).max(0.0) * reach(apart + two[0]);
        }
        sum.min(1.0)
    };
    of_either(ranks(n.max(m)), of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_that_is_asked_for_depends_on_the_noise() {
        let slices = slices(198.0);
        let rank = |n: usize, noise: &dyn Fn(f64) -> f64| {
            let sorted = (0..1000).map(|i| noise((f64::from(i) + 0.5) / 1000.0)).collect();
            let pool = Pool { sorted };
            Chance { pool: &pool, slices: &slices, spread: 0.02 }.rank(n, 3e-5)
        };
        // Every fifth session is slower by up to 30 %, and none is faster by more than 2 %.
        let disturbed = |part: f64| {
            if part < 0.8 { 0.05 * part - 0.02 } else { 0.02 + 1.4 * (part - 0.8) }
        };
        assert_eq!([4, 8, 24].map(|n| rank(n, &disturbed)), [1, 1, 1]);
        // As often faster as slower, the further the rarer.
        let both = |part: f64| {
            let off = -0.03 * (1.0 - (2.0 * part - 1.0).abs()).ln();
            if part < 0.5 { -off } else { off }
        };
        assert_eq!([4, 6, 14, 40].map(|n| rank(n, &both)), [2, 3, 7, 20]);
    }
}
