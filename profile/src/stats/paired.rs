//! How much slower one arm of a measurement is than the other, when both were run in turns.
//!
//! On a shared machine two consecutive runs differ by more than the effect of interest: clocks change,
//! neighbours come and go. So the arms are interleaved, and each run of one is compared with a run of the
//! other right beside it. What changes slowly is the same in both, and drops out of their ratio.
//!
//! The ratio of each pair is taken as a logarithm. If the arms were equal, swapping them would only change
//! its sign; so the logarithms lie symmetrically around that of the true ratio, however heavy the tails and
//! however one-sided the disturbance of a single run. This uses an estimate and an interval that rely on
//! that symmetry and nothing else: the median of the means of all pairs of logarithms (Hodges and Lehmann,
//! "Estimates of location based on rank tests", 1963), and the interval that belongs to Wilcoxon's
//! signed-rank test (Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", 3rd ed., section
//! 3.3). To report the size of an effect, as a ratio with its interval, rather than whether there is one,
//! is the advice of Kalibera and Jones, "Rigorous benchmarking in reasonable time" (2013).
//!
//! In simulations with spikes, bursts, drift, order effects and heavy tails (100 quads A B B A; see the
//! tests), the interval of the median is up to 1.3 times as wide; that of a mean trimmed by a fifth is 0.9
//! to 1.7 times as wide and only approximate, and that of the plain mean up to 19 times. Each quad counts
//! as two pairs rather than as one ratio, since one disturbed run then spoils half as much: with a spike in
//! a tenth of the runs, that halves the width. Nothing here draws random numbers: the same pairs give the
//! same figures.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::student;

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// With fewer pairs no such interval has 95 %: all n signs agree by chance in one of 2^(n−1) cases, and
/// 1/16 is too many.
const MIN_PAIRS: usize = 6;

/// Times that can be compared: wide enough for any unit, while no sum or ratio overflows.
const TIMES: std::ops::RangeInclusive<f64> = 1e-100..=1e100;

/// How arm B compares with arm A: ratios of their times, minus 1. 0.003 means that B takes 0.3 % longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairedRatio {
    /// All pairs that were given. None is left out as an outlier.
    pub pairs: u64,
    /// The typical ratio minus 1: the Hodges–Lehmann estimate.
    pub estimate: f64,
    /// The lower end of its 95 % confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The ratio of the sums of all times, minus 1. A few disturbed runs can dominate it. Compared with
    /// `estimate`, it shows whether rare long runs are more frequent, or longer, in one arm.
    pub of_totals: f64,
}

impl PairedRatio {
    /// Compares the arms of `pairs`, each the time of A and the time of B beside it, in any unit.
    ///
    /// A and B must have gone first equally often, as in the pairs of quads A B B A, so that the cost of
    /// being first or second drops out.
    ///
    /// ```
    /// use brickscope::PairedRatio;
    ///
    /// // Each B takes 1 % longer than the A beside it, whatever else happens to the two.
    /// let pairs: Vec<_> = (1..=20).map(|load| (f64::from(load), 1.01 * f64::from(load))).collect();
    /// let b = PairedRatio::new(&pairs)?;
    /// assert!((b.estimate - 0.01).abs() < 1e-12);
    /// assert!(b.low <= b.estimate && b.estimate <= b.high);
    /// # Ok::<(), brickscope::PairedError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there are fewer than 6 pairs, or a time is not a number from 1e-100 to 1e100.
    pub fn new(pairs: &[(f64, f64)]) -> Result<Self, PairedError> {
        let bad = |&(a, b): &(f64, f64)| !TIMES.contains(&a) || !TIMES.contains(&b);
        if let Some(index) = pairs.iter().position(bad) {
            let (a, b) = pairs[index];
            return Err(PairedError::NotATime { index, a, b });
        }
        if pairs.len() < MIN_PAIRS {
            return Err(PairedError::TooFew { pairs: pairs.len(), needed: MIN_PAIRS });
        }
        let mut logs: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
        logs.sort_by(f64::total_cmp);
        let walsh = WalshMeans { of: &logs };
        let (len, rank) = (walsh.len(), outer_rank(logs.len()));
        // The middle one, or the mean of the two; each lies within the interval.
        let middle = (walsh.nth(len.div_ceil(2)) + walsh.nth(len / 2 + 1)) / 2.0;
        let sum = |arm: fn(&(f64, f64)) -> f64| pairs.iter().map(arm).sum::<f64>();
        Ok(Self {
            pairs: pairs.len() as u64,
            estimate: middle.exp_m1(),
            low: walsh.nth(rank).exp_m1(),
            high: walsh.nth(len + 1 - rank).exp_m1(),
            of_totals: sum(|pair| pair.1) / sum(|pair| pair.0) - 1.0,
        })
    }

    /// Half the width of the interval.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The same comparison in several runs of a program.
///
/// Each run has another layout of memory and threads, which moves a ratio by more than the interval of one
/// run says: two processes of one build may differ by 0.3 % where each has ±0.1 %. So each run is one figure
/// here, the logarithm of its estimate, and the interval is Student's for their mean: what varies from run to
/// run must be repeated in runs (Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioOfRuns {
    /// The number of runs.
    pub runs: u64,
    /// The mean of their ratios, as logarithms, minus 1.
    pub estimate: f64,
    /// The lower end of its 95 % confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl RatioOfRuns {
    /// From the [`estimate`](PairedRatio::estimate) of each run. `None` for fewer than two runs, or if an
    /// estimate isn't the ratio of two times, minus 1.
    ///
    /// ```
    /// use brickscope::RatioOfRuns;
    ///
    /// let all = RatioOfRuns::new(&[0.001, 0.003, 0.002]).expect("three runs");
    /// assert!((all.estimate - 0.002).abs() < 1e-5);
    /// assert!(all.low < 0.001 && all.high > 0.003);
    /// ```
    #[must_use]
    pub fn new(estimates: &[f64]) -> Option<Self> {
        let logs: Vec<f64> = estimates.iter().map(|estimate| estimate.ln_1p()).collect();
        if logs.len() < 2 || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        let half = student::quantile(0.05, n - 1.0) * error;
        let [estimate, low, high] = [mean, mean - half, mean + half].map(f64::exp_m1);
        Some(Self { runs: logs.len() as u64, estimate, low, high })
    }
}

/// The reason why pairs can't be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum PairedError {
    /// There are too few pairs for an interval.
    TooFew {
        /// The pairs given.
        pairs: usize,
        /// The pairs needed.
        needed: usize,
    },
    /// A time is zero, negative, not a number, or out of range.
    NotATime {
        /// The index of the pair.
        index: usize,
        /// The time of A.
        a: f64,
        /// The time of B.
        b: f64,
    },
}

impl fmt::Display for PairedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { pairs, needed } => {
                write!(f, "an interval takes {needed} pairs of times, and there are {pairs}")
            }
            Self::NotATime { index, a, b } => {
                write!(f, "pair {index} is {a} and {b}: both must be times above 0")
            }
        }
    }
}

impl std::error::Error for PairedError {}

/// The rank, from either end, of the mean of two logarithms that is the end of the interval for `n` pairs.
///
/// By the normal approximation of the signed-rank statistic, rounded outwards; a test holds it
/// against the exact distribution.
fn outer_rank(n: usize) -> usize {
    let n = n as f64;
    let (mean, variance) = (n * (n + 1.0) / 4.0, n * (n + 1.0) * (2.0 * n + 1.0) / 24.0);
    (mean - Z * variance.sqrt()).floor().max(1.0) as usize
}

/// The means of any two of some numbers, including of each number with itself.
struct WalshMeans<'n> {
    /// In ascending order.
    of: &'n [f64],
}

impl WalshMeans<'_> {
    fn len(&self) -> usize {
        self.of.len() * (self.of.len() + 1) / 2
    }

    /// The mean of rank `rank` from below, counted from 1: found by halving the range between the smallest
    /// and the largest number, so that no list of n² means is made.
    fn nth(&self, rank: usize) -> f64 {
        let (Some(&least), Some(&greatest)) = (self.of.first(), self.of.last()) else {
            return f64::NAN;
        };
        let (mut low, mut high) = (place(least), place(greatest));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.count_up_to(number(middle)) >= rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        number(low)
    }

    /// How many are at most `limit`.
    fn count_up_to(&self, limit: f64) -> usize {
        let mut count = 0;
        let mut end = self.of.len();
        for (i, &one) in self.of.iter().enumerate() {
            while end > i && (one + self.of[end - 1]) / 2.0 > limit {
                end -= 1;
            }
            if end <= i {
                break;
            }
            count += end - i;
        }
        count
    }
}

const SIGN: u64 = 1 << 63;

/// A number's rank among all numbers of its type, in ascending order.
fn place(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The number of a rank.
fn number(place: u64) -> f64 {
    f64::from_bits(if place & SIGN == 0 { !place } else { place & !SIGN })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive_walsh(sorted: &[f64]) -> Vec<f64> {
        let with = |i: usize| sorted[i..].iter().map(move |b| (sorted[i] + b) / 2.0);
        let mut means: Vec<f64> = (0..sorted.len()).flat_map(with).collect();
        means.sort_by(f64::total_cmp);
        means
    }

    #[test]
    fn the_interval_has_95_percent_by_the_exact_distribution() {
        // In how many of the 2^n ways to give the ranks 1 to n signs the positive ones sum to t.
        let mut ways = vec![1.0_f64];
        for n in 1..=120 {
            let mut more = ways.clone();
            more.resize(ways.len() + n, 0.0);
            for (sum, count) in ways.iter().enumerate() {
                more[sum + n] += count;
            }
            // Halved at each step, so that they are probabilities and stay finite.
            ways = more.iter().map(|count| count / 2.0).collect();
            if n >= MIN_PAIRS {
                let rank = outer_rank(n);
                let outside = |rank: usize| 2.0 * ways[..rank].iter().sum::<f64>();
                assert!(outside(rank) <= 0.05, "{n} pairs: {}", outside(rank));
                // Nor is it wider than it must be, once ranks are fine enough.
                assert!(n < 20 || outside(rank) > 0.04, "{n} pairs: {}", outside(rank));
            }
        }
        // And the least number of pairs is what it is for this reason.
        assert!(2.0 / f64::from(1 << (MIN_PAIRS - 1)) > 0.05);
        assert!(2.0 / f64::from(1 << MIN_PAIRS) <= 0.05);
    }

    #[test]
    fn hand_checked_figures() {
        // Logarithms of 1 to 6: 21 means, the 11th is 3.5, the outermost are 1 and 6.
        let pairs: Vec<_> = (1..=6).map(|x| (1.0, f64::from(x).exp())).collect();
        let ratio = PairedRatio::new(&pairs).unwrap();
        let near = |x: f64, log: f64| (x.ln_1p() - log).abs() < 1e-12;
        assert!(near(ratio.estimate, 3.5) && near(ratio.low, 1.0) && near(ratio.high, 6.0));
        let sum: f64 = pairs.iter().map(|pair| pair.1).sum();
        assert_eq!((ratio.pairs, ratio.of_totals), (6, sum / 6.0 - 1.0));
    }

    #[test]
    fn bad_input_is_refused_with_the_reason() {
        let good = [(3.0, 3.1); 8];
        assert!(PairedRatio::new(&good).is_ok());
        let few = PairedRatio::new(&good[..5]).unwrap_err();
        assert_eq!(few, PairedError::TooFew { pairs: 5, needed: 6 });
        assert_eq!(few.to_string(), "an interval takes 6 pairs of times, and there are 5");
        assert!(PairedRatio::new(&[]).is_err());
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, f64::MAX] {
            for pair in [(bad, 3.0), (3.0, bad)] {
                let mut pairs = good;
                pairs[7] = pair;
                let said = PairedRatio::new(&pairs).unwrap_err();
                assert!(matches!(said, PairedError::NotATime { index: 7, .. }), "{said}");
            }
        }
        assert_eq!(
            PairedRatio::new(&[(1.0, 0.0)]).unwrap_err().to_string(),
            "pair 0 is 1 and 0: both must be times above 0"
        );
    }

    #[test]
    fn a_third_of_the_pairs_may_be_disturbed_as_badly_as_can_be() {
        let mut pairs = [(1000.0, 1003.0); 40];
        for (i, pair) in pairs.iter_mut().enumerate() {
            pair.1 += (i % 7) as f64 / 100.0;
        }
        // The breakdown point of the estimate is 29 %.
        pairs[..11].fill((1000.0, 1e9));
        let ratio = PairedRatio::new(&pairs).unwrap();
        assert!((ratio.estimate - 0.003).abs() < 1e-4, "{ratio:?}");
        assert!(ratio.of_totals > 1e5, "{ratio:?}");
    }

    fn logs() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(prop_oneof![-0.1..0.1, -3.0..3.0, Just(0.0)], 6..60)
    }

    fn pairs() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((1e3..1e9, 1e3..1e9), 6..60)
    }

    fn near(a: f64, b: f64) -> bool {
        (a.ln_1p() - b.ln_1p()).abs() < 1e-9
    }

    proptest! {
        #[test]
        fn every_mean_is_found_where_a_sorted_list_has_it(mut logs in logs()) {
            logs.sort_by(f64::total_cmp);
            let walsh = WalshMeans { of: &logs };
            let naive = naive_walsh(&logs);
            prop_assert_eq!(walsh.len(), naive.len());
            for (rank, expected) in (1..).zip(naive) {
                prop_assert_eq!(walsh.nth(rank), expected);
            }
        }

        #[test]
        fn numbers_and_their_places_are_in_the_same_order(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(place(a).cmp(&place(b)), a.total_cmp(&b));
            prop_assert_eq!(number(place(a)).to_bits(), a.to_bits());
        }

        #[test]
        fn the_estimate_is_in_the_interval_and_the_order_of_pairs_is_nothing(pairs in pairs()) {
            let ratio = PairedRatio::new(&pairs).unwrap();
            prop_assert!(ratio.low <= ratio.estimate && ratio.estimate <= ratio.high);
            let backwards: Vec<_> = pairs.iter().rev().copied().collect();
            let again = PairedRatio::new(&backwards).unwrap();
            prop_assert_eq!((again.estimate, again.low, again.high),
                (ratio.estimate, ratio.low, ratio.high));
        }

        #[test]
        fn the_unit_is_nothing(pairs in pairs(), factor in 1e-9..1e9) {
            let ratio = PairedRatio::new(&pairs).unwrap();
            let scaled: Vec<_> = pairs.iter().map(|(a, b)| (a * factor, b * factor)).collect();
            let scaled = PairedRatio::new(&scaled).unwrap();
            prop_assert!(near(ratio.estimate, scaled.estimate) && near(ratio.low, scaled.low));
            prop_assert!(near(ratio.high, scaled.high) && near(ratio.of_totals, scaled.of_totals));
        }

        #[test]
        fn swapping_the_arms_inverts_the_ratio(pairs in pairs()) {
            let ratio = PairedRatio::new(&pairs).unwrap();
            let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let swapped = PairedRatio::new(&swapped).unwrap();
            let inverse = |x: f64| 1.0 / (1.0 + x) - 1.0;
            prop_assert!(near(inverse(ratio.estimate), swapped.estimate));
            prop_assert!(near(inverse(ratio.low), swapped.high));
            prop_assert!(near(inverse(ratio.high), swapped.low));
        }

        #[test]
        fn a_slower_b_moves_the_whole_by_that(pairs in pairs(), slower in 0.5..2.0) {
            let ratio = PairedRatio::new(&pairs).unwrap();
            let pairs: Vec<_> = pairs.iter().map(|&(a, b)| (a, b * slower)).collect();
            let moved = PairedRatio::new(&pairs).unwrap();
            let times = |x: f64| (1.0 + x) * slower - 1.0;
            prop_assert!(near(times(ratio.estimate), moved.estimate));
            prop_assert!(near(times(ratio.low), moved.low) && near(times(ratio.high), moved.high));
        }
    }

    /// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    struct Random(u64);

    impl Random {
        fn bits(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        /// Above 0 and below 1.
        fn uniform(&mut self) -> f64 {
            ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
        }

        /// Box and Muller, "A note on the generation of random normal deviates", 1958.
        fn normal(&mut self) -> f64 {
            let (u, v) = (self.uniform(), self.uniform());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        }
    }

    /// What else happens on the machine. Shares of a pass's time.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Noise {
        /// 1 %.
        Normal,
        /// Student's t with 2 degrees of freedom: no variance.
        HeavyTails,
        /// A tenth of the passes take 10 % longer and more, with a Pareto tail of 1.5.
        Spikes,
        /// Some dozens of passes in a row take a fifth to twice as long.
        Bursts,
        /// A fifth over the run, and waves.
        Drift,
        /// The first of four takes 2 % longer.
        First,
        /// Each pass is like the one before.
        Memory,
        All,
    }

    impl Noise {
        const EACH: [Self; 8] = [
            Self::Normal,
            Self::HeavyTails,
            Self::Spikes,
            Self::Bursts,
            Self::Drift,
            Self::First,
            Self::Memory,
            Self::All,
        ];

        /// The pairs of `quads` quads, A B B A and B A A B in turns.
        fn pairs(self, quads: usize, slower: f64, random: &mut Random) -> Vec<(f64, f64)> {
            let has = |noise| self == noise || self == Self::All;
            let (mut burst, mut memory) = (false, 0.0);
            let mut pass = |i: usize, is_b: bool| {
                let mut log = 0.003 * random.normal();
                if has(Self::Normal) {
                    log += 0.01 * random.normal();
                }
                if has(Self::HeavyTails) {
                    let chi = (random.normal().powi(2) + random.normal().powi(2)) / 2.0;
                    log += 0.005 * random.normal() / chi.sqrt();
                }
                if has(Self::Spikes) && random.uniform() < 0.1 {
                    log += (0.1 * random.uniform().powf(-1.0 / 1.5)).ln_1p();
                }
                if has(Self::Bursts) {
                    burst = random.uniform() < if burst { 29.0 / 30.0 } else { 0.003 };
                    log += if burst { 0.2 + 0.5 * random.uniform() } else { 0.0 };
                }
                if has(Self::Drift) {
                    let done = i as f64 / (4 * quads) as f64;
                    log += 0.2 * done + 0.05 * (20.0 * done).sin();
                }
                if has(Self::First) && i.is_multiple_of(4) {
                    log += 0.02;
                }
                if has(Self::Memory) {
                    memory = 0.95 * memory + 0.005 * random.normal();
                    log += memory;
                }
                3e6 * log.exp() * if is_b { 1.0 + slower } else { 1.0 }
            };
            let mut pairs = Vec::with_capacity(2 * quads);
            for quad in 0..quads {
                for half in 0..2 {
                    let b_first = (quad + half) % 2 == 1;
                    let i = 4 * quad + 2 * half;
                    let (first, second) = (pass(i, b_first), pass(i + 1, !b_first));
                    pairs.push(if b_first { (second, first) } else { (first, second) });
                }
            }
            pairs
        }
    }

    /// In how many of `runs` simulated runs the interval has the truth in it, and how far the
    /// ends are from each other, halved, in the median run.
    fn coverage(noise: Noise, quads: usize, slower: f64, runs: usize) -> (f64, f64) {
        let mut random = Random(2013);
        let mut hits = 0;
        let mut widths = Vec::with_capacity(runs);
        for _ in 0..runs {
            let ratio = PairedRatio::new(&noise.pairs(quads, slower, &mut random)).unwrap();
            hits += usize::from(ratio.low <= slower && slower <= ratio.high);
            widths.push(ratio.half_width());
        }
        widths.sort_by(f64::total_cmp);
        (hits as f64 / runs as f64, widths[runs / 2])
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn the_interval_holds_the_truth_in_95_of_100_runs_whatever_the_noise() {
        for noise in Noise::EACH {
            for (quads, slower) in [(10, 0.0), (100, 0.0), (100, 0.003)] {
                let (coverage, width) = coverage(noise, quads, slower, 1000);
                println!("{noise:?}, {quads} quads: {coverage:.3}, ± {:.3} %", 100.0 * width);
                assert!(coverage >= 0.93, "{noise:?}, {quads} quads, {slower}: {coverage}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn to_stop_at_the_first_narrow_interval_costs_little_if_looks_are_few() {
        // As `profile --check-overhead` does: from 20 quads on, after each eighth more of them.
        for noise in [Noise::Spikes, Noise::Bursts, Noise::Memory] {
            let mut random = Random(2013);
            let (runs, mut hits) = (1000, 0);
            for _ in 0..runs {
                let pairs = noise.pairs(400, 0.003, &mut random);
                let mut quads: usize = 20;
                let ratio = loop {
                    let ratio = PairedRatio::new(&pairs[..2 * quads.min(400)]).unwrap();
                    if ratio.half_width() <= 0.001 || quads >= 400 {
                        break ratio;
                    }
                    quads += quads.div_ceil(8);
                };
                hits += usize::from(ratio.low <= 0.003 && 0.003 <= ratio.high);
            }
            let coverage = f64::from(hits as u32) / f64::from(runs);
            println!("{noise:?}: {coverage:.3}");
            assert!(coverage >= 0.93, "{noise:?}: {coverage}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn the_interval_is_no_wider_than_it_must_be() {
        // For normal noise of s in each pass and n pairs, the mean's is 1.96 × s × √(2 / n), the
        // best there is; this one needs 1.05 times the pairs (Hodges and Lehmann 1956).
        let (_, width) = coverage(Noise::Normal, 100, 0.0, 1000);
        let best = Z * (0.01_f64.powi(2) + 0.003_f64.powi(2)).sqrt() * (2.0 / 200.0_f64).sqrt();
        assert!((0.9 * best..1.1 * best).contains(&width), "{width} and {best}");
        for (noise, limit) in
            [(Noise::Spikes, 0.0012), (Noise::Bursts, 0.001), (Noise::Drift, 0.0008)]
        {
            let (_, width) = coverage(noise, 100, 0.0, 1000);
            assert!(width <= limit, "{noise:?}: {width}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn a_slow_down_of_three_in_a_thousand_is_found_in_each_noise() {
        for noise in Noise::EACH {
            let pairs = noise.pairs(10_000, 0.003, &mut Random(1963));
            let ratio = PairedRatio::new(&pairs).unwrap();
            assert!((ratio.estimate - 0.003).abs() < 0.001, "{noise:?}: {ratio:?}");
            assert!(ratio.low > 0.0, "{noise:?}: {ratio:?}");
        }
    }
}
