//! When a warm-up is over: when the last repetitions agree.

use brickscope_analysis::receipt::v1::WarmUp;

/// The rule for the end of a warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// The number of last repetitions that must agree …
    pub(crate) window: usize,
    /// … within this share of their median.
    pub(crate) within: f64,
    /// The least repetitions before it ends without agreement …
    pub(crate) least: usize,
    /// … which it does after this many repetitions …
    pub(crate) most: usize,
    /// … or this many nanoseconds.
    pub(crate) most_ns: u64,
}

impl Default for Rule {
    /// Like perf_analyzer, looks at the last 3 windows and gives up after 10; 5 % of the median is stricter
    /// than its 10 %. A repetition of a large model takes longer than 10 s, so two of those are enough.
    fn default() -> Self {
        Self { window: 3, within: 0.05, least: 2, most: 10, most_ns: 10_000_000_000 }
    }
}

impl Rule {
    /// How the warm-up ended, if it is over after repetitions with these wall times.
    pub(crate) fn verdict(&self, walls_ns: &[u64], elapsed_ns: u64) -> Option<WarmUp> {
        let steady = self.agree(walls_ns);
        let n = walls_ns.len();
        let long = n >= self.least && (n >= self.most || elapsed_ns >= self.most_ns);
        let (window, within) = (self.window as u32, self.within);
        (steady || long).then_some(WarmUp { window, within, steady })
    }

    fn agree(&self, walls_ns: &[u64]) -> bool {
        let Some(first) = walls_ns.len().checked_sub(self.window) else { return false };
        let mut last = walls_ns[first..].to_vec();
        last.sort_unstable();
        let median = last[last.len() / 2] as f64;
        last.iter().all(|&wall| (wall as f64 - median).abs() <= self.within * median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of repetitions with these wall times after which it is over, and whether they agree.
    fn ended(walls: &[u64]) -> Option<(usize, bool)> {
        let rule = Rule::default();
        (1..=walls.len()).find_map(|n| {
            let elapsed = walls[..n].iter().sum();
            rule.verdict(&walls[..n], elapsed).map(|warm_up| (n, warm_up.steady))
        })
    }

    #[test]
    fn it_ends_when_the_last_three_agree() {
        assert_eq!(ended(&[100, 100, 100]), Some((3, true)));
        assert_eq!(ended(&[300, 100, 104, 96, 1]), Some((4, true)));
        assert_eq!(ended(&[100, 100]), None);
        // An outlier prolongs the warm-up until it has left the window.
        assert_eq!(ended(&[100, 106, 100, 100, 100]), Some((5, true)));
        assert_eq!(ended(&[100, 100, 106, 100, 100, 100]), Some((6, true)));
    }

    #[test]
    fn it_ends_unsteady_after_ten_repetitions_or_ten_seconds() {
        let falling: Vec<u64> = (0..12).map(|n| 1_000_000 >> n).collect();
        assert_eq!(ended(&falling), Some((10, false)));
        let second = 1_000_000_000;
        assert_eq!(ended(&[4 * second, 5 * second, 6 * second, 7 * second]), Some((3, false)));
        // At least two, however long one takes.
        assert_eq!(ended(&[60 * second, 50 * second, 50 * second]), Some((2, false)));
        assert_eq!(ended(&[60 * second]), None);
    }
}
