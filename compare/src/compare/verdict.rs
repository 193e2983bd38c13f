//! The verdict on each change, and the outcome of a whole comparison.

use serde::Serialize;

use super::rows::{Row, Rows};
use super::{Comparison, LeftOutTest, Options, POWER};

/// The verdict on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// B takes less time: the interval is below 0, and reaches the threshold.
    Faster,
    /// B takes more time: the interval is above 0, and reaches the threshold.
    Slower,
    /// Whatever the change is, it is smaller than the threshold.
    Unchanged,
    /// The change may reach the threshold or not.
    Inconclusive,
}

impl Verdict {
    /// The verdict in a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Unchanged => "unchanged",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// The verdict on an interval of changes of a time: 0.03 takes 3 % longer. Whoever judges a change asks this.
    #[must_use]
    pub fn of(low: f64, high: f64, threshold: f64) -> Self {
        if -threshold < low && high < threshold {
            Self::Unchanged
        } else if low > 0.0 {
            Self::Slower
        } else if high < 0.0 {
            Self::Faster
        } else {
            Self::Inconclusive
        }
    }
}

/// The outcome of a whole comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Nothing is slower, and every whole test is unchanged or faster.
    Pass,
    /// Something is slower: a test, a category or a brick.
    Slower,
    /// Nothing is known to be slower, and some whole test is inconclusive.
    Inconclusive,
}

impl Comparison {
    /// The outcome of the whole comparison. Inconclusive bricks don't count if their whole test has a
    /// verdict, since that includes their time.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let all = |test: &super::TestChange| {
            let parts = test.categories.iter().chain(&test.bricks).map(|row| row.verdict);
            parts.chain([test.whole.verdict]).collect::<Vec<Verdict>>()
        };
        if self.tests.iter().flat_map(all).any(|verdict| verdict == Verdict::Slower) {
            Outcome::Slower
        } else if self.tests.iter().any(|test| test.whole.verdict == Verdict::Inconclusive)
            || self.left_out.iter().any(LeftOutTest::leaves_open)
        {
            Outcome::Inconclusive
        } else {
            Outcome::Pass
        }
    }
}

/// Fills in what follows from the ratios.
pub(super) fn judge(tests: &mut [Rows], options: &Options) {
    let families: [fn(&mut Rows) -> Vec<&mut Row>; 3] = [
        |test| vec![&mut test.whole],
        |test| test.categories.iter_mut().collect(),
        |test| test.bricks.iter_mut().collect(),
    ];
    let has_rows = |family: &&fn(&mut Rows) -> Vec<&mut Row>| {
        tests.iter_mut().any(|test| !family(test).is_empty())
    };
    let families: Vec<_> = families.iter().filter(has_rows).copied().collect();
    for family in &families {
        let rows = tests.iter_mut().flat_map(family).collect();
        judge_family(rows, options.level / 2.0 / families.len() as f64, options.threshold);
    }
}

/// Holm's procedure: the smallest probability is tested at `level` ÷ the number of rows, the next at
/// `level` ÷ one fewer, and so on until one is not below its level; that one and all after it are tested
/// at the level that was reached. Returns the level of each, in the order given: a row is rejected if its
/// probability is at most that.
#[must_use]
pub fn holm(probabilities: &[f64], level: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&x, &y| probabilities[x].total_cmp(&probabilities[y]));
    let mut levels = vec![level; probabilities.len()];
    let mut left = order.len();
    let mut is_rejecting = true;
    for row in order {
        let alpha = level / left as f64;
        is_rejecting &= probabilities[row] <= alpha;
        if is_rejecting {
            left -= 1;
        }
        levels[row] = alpha;
    }
    levels
}

/// Judges rows that share a level by [`holm`]. The interval of a row is at the level at which it was
/// tested, so that it excludes 0 exactly if the procedure rejects.
fn judge_family(mut rows: Vec<&mut Row>, level: f64, threshold: f64) {
    rows.retain(|row| row.ratio.is_some());
    let probability = |row: &Row| row.ratio.map_or(1.0, |ratio| ratio.probability());
    let probabilities: Vec<f64> = rows.iter().map(|row| probability(row)).collect();
    let count = rows.len();
    for (row, alpha) in rows.into_iter().zip(holm(&probabilities, level)) {
        let Some(ratio) = row.ratio else { continue };
        let (low, high) = ratio.interval(alpha);
        let (low, high) = (low.exp_m1(), high.exp_m1());
        // Before the rejected rows are known, each has to assume the first level.
        let first = level / count as f64;
        row.change.change = Some(ratio.log.exp_m1());
        row.change.low = Some(low);
        row.change.high = Some(high);
        row.change.visible = Some(ratio.visible(first, 1.0 - POWER).exp_m1());
        row.change.verdict = Verdict::of(low, high, threshold);
        let is_sure = matches!(row.change.verdict, Verdict::Slower | Verdict::Faster);
        if let Some(within) =
            row.within.filter(|within| is_sure && ratio.log.abs() <= 1.25 * within)
        {
            row.change.verdict = Verdict::Inconclusive;
            row.change.reason = Some(format!(
                "times change by {:.0} % within single processes, and so few of them may agree by chance: from \
                 {} a side on, there can be a verdict",
                100.0 * within.exp_m1(),
                super::exchange::PAIRS_THAT_DECIDE
            ));
        } else if row.change.verdict == Verdict::Inconclusive {
            row.change.processes_needed =
                ratio.processes_to_see(threshold.ln_1p(), first, 1.0 - POWER);
            // From half the middle to twice that, and more.
            let says_nothing = 1.0 + high > 4.0 * (1.0 + low);
            if says_nothing || row.change.processes_needed.is_none() {
                row.change.reason = Some(too_noisy(&row.change, threshold, ratio.is_paired));
            }
            if says_nothing {
                (row.change.low, row.change.high) = (None, None);
            }
            row.change.visible = row.change.visible.filter(|&visible| visible <= 1.0);
        }
    }
}

/// The sentence for a row that no feasible number of such processes would settle.
fn too_noisy(change: &super::Change, threshold: f64, is_paired: bool) -> String {
    // A whole test is all of itself, and a brick less.
    let whose = if change.share == Some(1.0) { "a pass's" } else { "its" };
    let sees = match change.visible {
        Some(visible) if visible <= 1.0 => {
            format!("only a change of {:.0} % or more would show", 100.0 * visible)
        }
        _ => format!("even a doubling of {whose} time couldn't be told from this noise"),
    };
    let in_turns = match is_paired {
        true => "",
        false => ", and let both run in turns (`brickscope versus 'OLD COMMAND' 'NEW COMMAND'`)",
    };
    format!(
        "too noisy: {sees}. To see a change of {} %, end other work on the machine or take a quieter one{in_turns}",
        (1e5 * threshold).round() / 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_held_to_what_those_below_it_leave() {
        let levels = holm(&[0.5, 0.001, 0.0034, 0.02], 0.01);
        assert_eq!(levels, [0.01 / 3.0, 0.01 / 4.0, 0.01 / 3.0, 0.01 / 3.0]);
        let all = holm(&[0.004, 0.009], 0.01);
        assert_eq!(all, [0.005, 0.01]);
        assert!(holm(&[], 0.01).is_empty());
    }

    #[test]
    fn a_change_matters_if_it_is_sure_and_may_be_as_large_as_the_threshold() {
        for (low, high, verdict) in [
            (0.021, 0.038, Verdict::Slower),
            (0.04, 0.05, Verdict::Slower),
            (-0.038, -0.021, Verdict::Faster),
            // Sure, and too small to matter.
            (0.001, 0.02, Verdict::Unchanged),
            (-0.02, -0.001, Verdict::Unchanged),
            (-0.029, 0.029, Verdict::Unchanged),
            // It might be nothing, or too much.
            (-0.001, 0.031, Verdict::Inconclusive),
            (-0.03, 0.0, Verdict::Inconclusive),
            (0.0, 0.03, Verdict::Inconclusive),
            (-0.5, 0.5, Verdict::Inconclusive),
        ] {
            assert_eq!(Verdict::of(low, high, 0.03), verdict, "[{low}, {high}]");
        }
    }
}
