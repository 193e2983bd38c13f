//! What one more pass would take, by what passes like it took.
//!
//! Nothing is assumed of how times vary but that the pass is one more of them. Those of a server are skewed and have bursts, so
//! the ends of an interval are times that were measured. A pass that reads more of the KV cache takes longer: so all are moved to
//! what this one reads, along a line through the medians of the thirds that read least and most (the resistant line of Tukey,
//! "Exploratory Data Analysis", 1977), which a few slow passes do not move.

/// One prediction in this many may lie below its interval, and one above.
const TAIL: usize = 40;
/// A third of fewer passes has no median to draw a line through.
const LEAST_THIRD: usize = 5;
/// How much less sure than that of least squares the slope of a resistant line is: the ratio of their variances.
const RESISTANT: f64 = 2.0;

/// What one more pass would take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    pub(super) typical_ns: f64,
    pub(super) low_ns: f64,
    pub(super) high_ns: f64,
    /// How often it takes less than the interval has, or more, at most: parts of 1.
    pub(super) outside: f64,
}

impl Expected {
    /// Of one more pass of some. `None` if there are none.
    pub(super) fn one_more(mut walls_ns: Vec<f64>) -> Option<Self> {
        walls_ns.sort_by(f64::total_cmp);
        let n = walls_ns.len();
        // It lies in each of the n + 1 gaps between them with the same probability.
        let rank = ((n + 1) / TAIL).max(1);
        Some(Self {
            typical_ns: *walls_ns.get(n.checked_sub(1)? / 2)?,
            low_ns: *walls_ns.get(rank - 1)?,
            high_ns: *walls_ns.get(n.checked_sub(rank)?)?,
            outside: 2.0 * rank as f64 / (n + 1) as f64,
        })
    }

    /// Of a pass that reads so many tokens of the KV cache, by what others read and took: the least tokens first.
    pub(super) fn at(tokens: u64, others: &[(u64, u64)]) -> Option<Self> {
        let slope = slope(others);
        let moved = |&(read, ns): &(u64, u64)| ns as f64 - slope * (read as f64 - tokens as f64);
        let expected = Self::one_more(others.iter().map(moved).collect())?;
        // Without a line nothing was moved, and none of it can be wrong.
        let wider = if slope == 0.0 { 1.0 } else { widened(tokens, others) };
        let Self { typical_ns, low_ns, high_ns, .. } = expected;
        Some(Self {
            low_ns: typical_ns - (typical_ns - low_ns) * wider,
            high_ns: typical_ns + (high_ns - typical_ns) * wider,
            ..expected
        })
    }

    /// Of a pass that takes no less than one more of some do, and no more than one more of others. `None` if these take less.
    pub(super) fn between(fewer: Self, more: Self) -> Option<Self> {
        let middle_ns = f64::midpoint(fewer.typical_ns, more.typical_ns);
        (fewer.low_ns <= more.high_ns).then(|| Self {
            typical_ns: middle_ns.clamp(fewer.low_ns, more.high_ns),
            low_ns: fewer.low_ns,
            high_ns: more.high_ns,
            // Only one end of each counts.
            outside: f64::midpoint(fewer.outside, more.outside),
        })
    }
}

/// How much longer a pass takes for a token more that it reads, in nanoseconds. 0 where that can't be told.
fn slope(others: &[(u64, u64)]) -> f64 {
    let third = others.len() / 3;
    if third < LEAST_THIRD {
        return 0.0;
    }
    let ends = [&others[..third], &others[others.len() - third..]];
    let [least, most] = ends.map(|of| [middle(of, |of| of.0), middle(of, |of| of.1)]);
    let tokens = most[0] - least[0];
    if tokens > 0.0 { (most[1] - least[1]) / tokens } else { 0.0 }
}

fn middle(of: &[(u64, u64)], field: fn(&(u64, u64)) -> u64) -> f64 {
    let mut all: Vec<u64> = of.iter().map(field).collect();
    let at = all.len() / 2;
    *all.select_nth_unstable(at).1 as f64
}

/// How many times as wide an interval is so far from where the others are, since the slope isn't known exactly.
fn widened(tokens: u64, others: &[(u64, u64)]) -> f64 {
    let read = || others.iter().map(|&(read, _)| read as f64);
    let mean = read().sum::<f64>() / others.len() as f64;
    let spread: f64 = read().map(|read| (read - mean) * (read - mean)).sum();
    let away = tokens as f64 - mean;
    if spread > 0.0 { (1.0 + RESISTANT * away * away / spread).sqrt() } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_as_narrow_as_it_may_be_and_says_how_often_it_is_right() {
        let of = |n: u64| {
            let walls = (1..=n).rev().map(|ns| ns as f64).collect();
            let Expected { typical_ns, low_ns, high_ns, outside } =
                Expected::one_more(walls).expect("there are some");
            (low_ns as u64, typical_ns as u64, high_ns as u64, (outside * (n + 1) as f64).round())
        };
        assert_eq!(of(5), (1, 3, 5, 2.0));
        assert_eq!(of(39), (1, 20, 39, 2.0));
        assert_eq!(of(78), (1, 39, 78, 2.0));
        assert_eq!(of(79), (2, 40, 78, 4.0));
        assert_eq!(of(200), (5, 100, 196, 10.0));
        assert_eq!(Expected::one_more(Vec::new()), None);
    }

    #[test]
    fn what_reads_more_takes_longer_and_a_slow_one_does_not_matter() {
        // 1 µs, and 3 ns for each token; one in twelve takes a millisecond more.
        let wall = |read: u64| 1_000 + 3 * read + if read % 12 == 7 { 1_000_000 } else { 0 };
        let others: Vec<(u64, u64)> = (100..220).map(|read| (read, wall(read))).collect();
        for tokens in [100, 160, 230] {
            let of = Expected::at(tokens, &others).expect("there are some");
            let exact = (1_000 + 3 * tokens) as f64;
            assert!((of.typical_ns - exact).abs() < 1.0, "{of:?}");
            assert!((of.low_ns - exact).abs() < 1.0, "{of:?}");
            assert!(of.high_ns > 1_000_000.0, "{of:?}");
        }
    }

    #[test]
    fn away_from_the_others_an_interval_is_wider() {
        let others: Vec<(u64, u64)> =
            (0..60).map(|nth| (100 + nth, 1_000 + 2 * nth + 37 * nth % 11)).collect();
        let width = |tokens| {
            let of = Expected::at(tokens, &others).expect("there are some");
            of.high_ns - of.low_ns
        };
        assert!(width(130) < width(160) && width(160) < width(250));
    }

    #[test]
    fn between_two_kinds_only_the_outer_ends_count() {
        let of = |low_ns: f64, high_ns: f64, outside: f64| Expected {
            typical_ns: f64::midpoint(low_ns, high_ns),
            low_ns,
            high_ns,
            outside,
        };
        let between = Expected::between(of(10.0, 20.0, 0.1), of(40.0, 60.0, 0.2));
        let between = between.expect("more takes longer");
        assert_eq!((between.low_ns, between.typical_ns, between.high_ns), (10.0, 32.5, 60.0));
        assert!((between.outside - 0.15).abs() < 1e-9);
        assert_eq!(Expected::between(of(70.0, 80.0, 0.1), of(40.0, 60.0, 0.1)), None);
    }
}
