//! The pairs of two sides' processes, and what of a pass moved between them.

use std::ops::Range;

use brickscope_profile::stats::{self, student};
use serde::Serialize;

use super::samples::test_of;
use super::{Side, Test, ratio, trimming};

/// The probability that an interval of a difference misses it.
const MISSED: f64 = 0.05;

/// What one part of a pass moved by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MovedPart {
    /// Its name.
    pub name: String,
    /// Nanoseconds of a pass of A that it took, without nested bricks; `None` if A has no such part.
    pub a_ns: Option<f64>,
    /// The same of B.
    pub b_ns: Option<f64>,
    /// B − A, where an absent part took none of the pass.
    pub moved_ns: f64,
    /// Its 95 % interval, over the pairs; `None` of fewer than five. Where the test as a whole is neither slower nor faster,
    /// all bricks together have 95 %, and so have all layers: of thirty that didn't move, one or two would seem to.
    pub interval_ns: Option<[f64; 2]>,
}

/// The pairs of two sides that have a test, each of one sample: by their ratio, the least first.
pub(super) struct Pairs<'t> {
    all: Vec<[&'t Test; 2]>,
    /// The logarithms of their ratios.
    logs: Vec<f64>,
    /// How many at either end no mean has.
    cut: usize,
    /// The probability that an interval misses its difference.
    missed: f64,
}

impl<'t> Pairs<'t> {
    pub(super) fn of(name: &str, sides: &'t [Side; 2], pairs: &[(usize, usize)]) -> Self {
        let of = |&(a, b): &(usize, usize)| -> Option<[&'t Test; 2]> {
            Some([test_of(&sides[0].processes[a], name)?, test_of(&sides[1].processes[b], name)?])
        };
        let mut all: Vec<[&Test; 2]> = pairs.iter().filter_map(of).collect();
        // The pairs that the verdict leaves out, too.
        let cut = trimming::trimmed(all.len());
        let log = |[a, b]: &[&Test; 2]| (wall(b).max(1.0) / wall(a).max(1.0)).ln();
        all.sort_by(|x, y| log(x).total_cmp(&log(y)));
        let logs = all.iter().map(log).collect();
        Self { all, logs, cut, missed: MISSED }
    }

    /// From here on so many intervals hold together with the probability that one has else.
    pub(super) fn share_among(&mut self, parts: usize) {
        self.missed = MISSED / parts.max(1) as f64;
    }

    /// The geometric mean of what a pass takes on a side: the ratio of both sides' is that of the verdict. 0 without pairs.
    pub(super) fn typical(&self, side: usize) -> f64 {
        if self.all.is_empty() {
            return 0.0;
        }
        mean(self.kept().map(|nth| wall(self.test(nth, side)).max(1.0).ln())).exp()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The places of those that means are of.
    pub(super) fn kept(&self) -> Range<usize> {
        self.cut..self.all.len() - self.cut
    }

    /// The test of a pair, on side A (0) or B (1).
    pub(super) fn test(&self, nth: usize, side: usize) -> &'t Test {
        self.all[nth][side]
    }

    /// The tests of the pairs that means are of.
    pub(super) fn tests(&self) -> impl Iterator<Item = &'t Test> {
        self.all[self.kept()].iter().flatten().copied()
    }

    /// A part of which `of` says what it took in a pair on a side; `None` if it isn't there.
    pub(super) fn part(&self, name: &str, of: &dyn Fn(usize, usize) -> Option<f64>) -> MovedPart {
        let [a_ns, b_ns] = [0, 1].map(|side| {
            let times: Vec<Option<f64>> = self.kept().map(|nth| of(nth, side)).collect();
            let is_there = times.iter().any(Option::is_some);
            is_there.then(|| mean(times.into_iter().map(|time| time.unwrap_or(0.0))))
        });
        let difference = |nth: usize| of(nth, 1).unwrap_or(0.0) - of(nth, 0).unwrap_or(0.0);
        MovedPart {
            name: name.to_owned(),
            a_ns,
            b_ns,
            moved_ns: mean(self.kept().map(difference)),
            interval_ns: self.interval(&difference),
        }
    }

    /// Around the mean of the pairs that are kept; what the others say of the error counts.
    fn interval(&self, of: &dyn Fn(usize) -> f64) -> Option<[f64; 2]> {
        let all: Vec<f64> = (0..self.all.len()).map(of).collect();
        let middle = mean(self.kept().map(|nth| all[nth]));
        let half = half_interval_beside(&self.logs, &all, self.cut, self.missed)?;
        Some([middle - half, middle + half])
    }
}

/// Half of an interval of a mean, which misses it with probability `missed`: of those values whose `keys`, in ascending
/// order, are not among the `cut` ones at either end. `None` below five, and where a value isn't a number.
///
/// Trimming by the keys leaves all outliers in that a value has of its own: a brick that was interrupted in a pair of which
/// other bricks were, too. So their own ends must not be winsorised. As with Yuen's error, what was cut counts as if it were
/// where the others end; of values that are where the line through the kept ones is at the last key that was kept.
fn half_interval_beside(keys: &[f64], values: &[f64], cut: usize, missed: f64) -> Option<f64> {
    let n = values.len();
    if n < ratio::MIN_PROCESSES || keys.len() != n {
        return None;
    }
    let (kept_keys, kept) = (&keys[cut..n - cut], &values[cut..n - cut]);
    let count = kept.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (key, middle) = (mean(kept_keys), mean(kept));
    let spread: f64 = kept_keys.iter().map(|of| (of - key) * (of - key)).sum();
    let products: f64 =
        kept_keys.iter().zip(kept).map(|(of, value)| (of - key) * (value - middle)).sum();
    let slope = if spread > 0.0 { products / spread } else { 0.0 };
    let ends: f64 = [kept_keys.first()?, kept_keys.last()?]
        .map(|end| slope * (end - key))
        .iter()
        .map(|off| off * off)
        .sum();
    let squares: f64 = kept.iter().map(|value| (value - middle) * (value - middle)).sum();
    let degrees = count - 1.0;
    let error = ((squares + cut as f64 * ends) / (count * degrees)).sqrt();
    let half = if error > 0.0 { student::quantile(missed, degrees) * error } else { 0.0 };
    half.is_finite().then_some(half)
}

/// Those that moved most first.
pub(super) fn most_first(parts: &mut [MovedPart]) {
    parts.sort_by(|x, y| y.moved_ns.abs().total_cmp(&x.moved_ns.abs()));
}

/// What a pass took in all; of a test of one sample.
pub(super) fn wall(test: &Test) -> f64 {
    test.wall_ns.first().map_or(0.0, |&ns| ns as f64)
}

/// The mean of at least one value.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    stats::mean(&values.collect::<Vec<_>>()).unwrap_or(0.0)
}
