//! When a measurement may begin: when the last repetitions agree.

use brickscope_analysis::receipt::v1::WarmUp;

/// When a warm-up is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// So many repetitions, the last ones, are to agree …
    pub(crate) window: usize,
    /// … within this part of their median.
    pub(crate) within: f64,
    /// Repetitions before it may end without that …
    pub(crate) least: usize,
    /// … which it does after so many …
    pub(crate) most: usize,
    /// … or so many nanoseconds.
    pub(crate) most_ns: u64,
}

impl Default for Rule {
    /// perf_analyzer looks at the last 3 windows, and gives up after 10; that they be within 5 % of
    /// the median is stricter than its 10 %. A repetition of a large model takes longer than 10 s:
    /// of those two have to do.
    fn default() -> Self {
        Self { window: 3, within: 0.05, least: 2, most: 10, most_ns: 10_000_000_000 }
    }
}

impl Rule {
    /// How the warm-up ended, if it is over after repetitions of these walls.
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

    /// After how many repetitions of these walls it is over, and whether they agree.
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
        // One that is off keeps it going until it has left the window.
        assert_eq!(ended(&[100, 106, 100, 100, 100]), Some((5, true)));
        assert_eq!(ended(&[100, 100, 106, 100, 100, 100]), Some((6, true)));
    }

    #[test]
    fn it_ends_unsteady_after_ten_repetitions_or_ten_seconds() {
        let falling: Vec<u64> = (0..12).map(|n| 1_000_000 >> n).collect();
        assert_eq!(ended(&falling), Some((10, false)));
        let second = 1_000_000_000;
        assert_eq!(ended(&[4 * second, 5 * second, 6 * second, 7 * second]), Some((3, false)));
        // Two at least, however long one takes.
        assert_eq!(ended(&[60 * second, 50 * second, 50 * second]), Some((2, false)));
        assert_eq!(ended(&[60 * second]), None);
    }
}
