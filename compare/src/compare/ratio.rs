//! The ratio of two sides' times, estimated from their processes, with its interval.

use brickscope_profile::stats::student;

use super::drift::Drift;
use super::exchange::{LOOKS_AGAIN, exchanged, of_exchange};
use super::trimming::{TRIMMED_FROM, Trimmed, errors_of_one, kept};

/// With fewer processes on a side there is no verdict. On a machine whose memory changes between two states
/// every few seconds, two to four pairs now and then agree by chance; five that do so are rare enough.
pub(super) const MIN_PROCESSES: usize = 5;

/// The number of blocks into which the processes of a side are put that did not run in turns. For the
/// recorded noise, 5, 6 and 8 hold the level, and more blocks see smaller changes.
const BLOCKS: usize = 6;

/// More processes than this count as infeasible: `brickscope compare` runs no more.
pub(super) const MOST_PROCESSES: usize = 500;

/// The logarithm of a ratio, with its error and the degrees of freedom of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) log: f64,
    pub(super) error: f64,
    degrees: f64,
    /// The `error` with one process a side, if more processes vary as these do: of a plain mean, and
    /// of a trimmed one.
    errors_of_one: [f64; 2],
    pub(super) is_paired: bool,
    /// Pairs of processes; 0 of sides that did not run in turns.
    pairs: usize,
    /// The same without steady drift, if the sides did not run in turns.
    without_drift: Option<Drift>,
}

impl Ratio {
    /// From pairs of processes that ran beside each other: the logarithms of b ÷ a.
    ///
    /// Student's t takes it that differences vary as the normal distribution does. Between two states of a
    /// machine they don't. So where it would see a difference, it is asked as well in how many of the orders that
    /// could have been drawn as large a one would have come about, had the sides no part in it (Fisher, "The design of
    /// experiments", 1935). If those are more, the error is widened until t says the same. What could have been drawn
    /// are balanced orders, as [`turns`](super::turns) draws them: `a_first` says which it was.
    pub(super) fn paired(logs: &[f64], a_first: &[bool]) -> Option<Self> {
        let mean = Trimmed::mean(logs)?;
        let mut ratio = Self {
            log: mean.mean,
            error: mean.error,
            degrees: mean.degrees,
            errors_of_one: errors_of_one(logs)?,
            is_paired: true,
            pairs: logs.len(),
            without_drift: None,
        };
        let by_t = ratio.probability();
        if by_t < LOOKS_AGAIN {
            let exchanged = exchanged(logs, a_first);
            if exchanged > by_t {
                let wider = ratio.log.abs() / student::quantile(exchanged, ratio.degrees);
                ratio.error = ratio.error.max(wider);
            }
        }
        Some(ratio)
    }

    /// From independent processes: the logarithms of their times, in the order in which they ran, and when each
    /// ran, if that is known, on one clock.
    ///
    /// A machine that becomes steadily slower makes the later side slower. So there are two estimates, and the
    /// interval spans both: one without drift between the sides, and one that takes off the slope of the two
    /// sides times their distance (analysis of covariance: Fisher, "Statistical methods for research workers",
    /// 4th edition, 1932). Its error grows with the distance; steady drift over more than one session's length
    /// between them is not allowed for.
    ///
    /// Each side's error is the larger of two: as if its processes were independent, and by the means of
    /// blocks of consecutive processes, which a drifting machine spreads further apart (batch means:
    /// Conway, "Some tactical problems in digital simulation", 1963). Few blocks leave few degrees of
    /// freedom: the variation between sessions is known no better.
    ///
    /// The degrees of freedom are those of Welch, "The generalization of Student's problem when
    /// several different population variances are involved" (1947).
    pub(super) fn unpaired(a: &[f64], b: &[f64], times: Option<[&[f64]; 2]>) -> Option<Self> {
        let (of_a, of_b) = (with_drift(a)?, with_drift(b)?);
        let [square_a, square_b] = [of_a, of_b].map(|side| side.error * side.error);
        let square = square_a + square_b;
        let shares = square_a * square_a / of_a.degrees + square_b * square_b / of_b.degrees;
        let of_one = |values: &[f64], with_drift: Trimmed| {
            let plain = Trimmed::mean(values)?;
            let more = if plain.error > 0.0 { with_drift.error / plain.error } else { 1.0 };
            errors_of_one(values).map(|errors| errors.map(|error| error * more))
        };
        let (ones_a, ones_b) = (of_one(a, of_a)?, of_one(b, of_b)?);
        Some(Self {
            log: of_b.mean - of_a.mean,
            error: square.sqrt(),
            // Two sides without any spread.
            degrees: if shares > 0.0 { square * square / shares } else { of_a.degrees },
            errors_of_one: [ones_a[0].hypot(ones_b[0]), ones_a[1].hypot(ones_b[1])],
            is_paired: false,
            pairs: 0,
            without_drift: Some(Drift::taken_off(a, b, times)?),
        })
    }

    /// The probability of a ratio so far from 1 if there is no difference.
    pub(super) fn probability(&self) -> f64 {
        let plain = probability(self.log, self.error, self.degrees);
        match self.without_drift {
            None => plain,
            // The interval spans both, so they have to agree on the sign.
            Some(drift) if drift.log * self.log < 0.0 => 1.0,
            Some(drift) => plain.max(probability(drift.log, drift.error, drift.degrees)),
        }
    }

    /// The interval of the logarithm that misses the true value with probability `alpha`.
    pub(super) fn interval(&self, alpha: f64) -> (f64, f64) {
        let (low, high) = interval(self.log, self.error, self.degrees, alpha);
        match self.without_drift {
            None => (low, high),
            Some(drift) => {
                let other = interval(drift.log, drift.error, drift.degrees, alpha);
                (low.min(other.0), high.max(other.1))
            }
        }
    }

    /// The smallest logarithm that can be distinguished from 0 at `alpha` with probability 1 − `missed`.
    ///
    /// The noncentral t distribution says how often a difference of so many errors exceeds the
    /// quantile; this solves its normal approximation (Abramowitz and Stegun, 26.7.10) for the
    /// difference. The textbook's sum of two quantiles promises too much with few processes.
    pub(super) fn visible(&self, alpha: f64, missed: f64) -> f64 {
        let more = if self.is_paired { of_exchange(self.pairs) } else { 1.0 };
        let plain = visible(self.error, self.degrees, alpha, missed) * more;
        let drift =
            self.without_drift.map(|drift| visible(drift.error, drift.degrees, alpha, missed));
        plain.max(drift.unwrap_or(0.0))
    }

    /// How many processes a side make the logarithm `least` visible; `None` if more than is feasible.
    pub(super) fn processes_to_see(&self, least: f64, alpha: f64, missed: f64) -> Option<usize> {
        let sees = |n: usize| self.visible_with(n, alpha, missed) <= least;
        // More processes see more, except that trimming loses degrees of freedom where it begins.
        let first = |(mut low, mut high): (usize, usize)| {
            if !sees(high) {
                return None;
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if sees(middle) { high = middle } else { low = middle + 1 }
            }
            Some(low)
        };
        first((MIN_PROCESSES, TRIMMED_FROM - 1)).or_else(|| first((TRIMMED_FROM, MOST_PROCESSES)))
    }

    /// The smallest logarithm that `n` processes a side would make visible.
    fn visible_with(&self, n: usize, alpha: f64, missed: f64) -> f64 {
        let error = self.errors_of_one[usize::from(n >= TRIMMED_FROM)] / (n as f64).sqrt();
        let kept = kept(n);
        let degrees = if self.is_paired { kept - 1 } else { 2 * (kept.min(BLOCKS) - 1) };
        // The drift between the sides is as well known as the sides are.
        let drift = self.without_drift.map_or(1.0, |drift| (drift.error / self.error).max(1.0));
        let more = if self.is_paired { of_exchange(n) } else { 1.0 };
        visible(error * drift, degrees as f64, alpha, missed) * more
    }
}

fn probability(log: f64, error: f64, degrees: f64) -> f64 {
    if error > 0.0 {
        student::two_sided((log / error).abs(), degrees)
    } else if log == 0.0 {
        1.0
    } else {
        0.0
    }
}

fn interval(log: f64, error: f64, degrees: f64, alpha: f64) -> (f64, f64) {
    let half = if error > 0.0 { student::quantile(alpha, degrees) * error } else { 0.0 };
    (log - half, log + half)
}

fn visible(error: f64, degrees: f64, alpha: f64, missed: f64) -> f64 {
    if error == 0.0 {
        return 0.0;
    }
    let t = student::quantile(alpha, degrees);
    let normal = student::quantile(2.0 * missed, f64::from(u32::MAX));
    error * (t * (1.0 - 0.25 / degrees) + normal * (1.0 + t * t / (2.0 * degrees)).sqrt())
}

/// A side's mean, with the error that allows for drift: see [`Ratio::unpaired`].
fn with_drift(values: &[f64]) -> Option<Trimmed> {
    let plain = Trimmed::mean(values)?;
    let (n, blocks) = (values.len(), values.len().min(BLOCKS));
    let block = |i: usize| Trimmed::mean_only(&values[i * n / blocks..(i + 1) * n / blocks]);
    let means: Vec<f64> = (0..blocks).map(block).collect();
    let of_blocks = Trimmed::cut(&means, 0)?;
    Some(Trimmed {
        error: plain.error.max(of_blocks.error),
        degrees: plain.degrees.min(of_blocks.degrees),
        ..plain
    })
}

#[cfg(test)]
mod tests {
    use brickscope_profile::stats::SplitMix64;

    use super::super::simulated::{Noise, Random, by_turns};
    use super::*;

    fn paired(logs: &[f64]) -> Option<Ratio> {
        Ratio::paired(logs, &by_turns(logs.len()))
    }

    fn medians(side: &[Vec<f64>]) -> Vec<f64> {
        side.iter().map(|process| median(process.clone())).collect()
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    fn ratio(sides: &[Vec<Vec<f64>>; 2], is_paired: bool) -> Ratio {
        let [a, b] = sides.each_ref().map(|side| medians(side));
        let ratio = if is_paired {
            paired(&a.iter().zip(&b).map(|(a, b)| b - a).collect::<Vec<f64>>())
        } else {
            Ratio::unpaired(&a, &b, None)
        };
        ratio.expect("enough processes")
    }

    /// In which share of `runs` comparisons of equal sides the interval does not have 0 in it, for
    /// each of the probabilities: in pairs, and not.
    fn missed<const N: usize>(
        noise: Noise,
        n: usize,
        runs: usize,
        alphas: [f64; N],
    ) -> [(bool, [f64; N]); 2] {
        let mut random = Random(SplitMix64(n as u64));
        let mut missed = [(true, [0; N]), (false, [0; N])];
        for _ in 0..runs {
            // Of both kinds, since to draw them takes longer than to compare them.
            let sides = noise.sides(n, &mut random);
            for (is_paired, missed) in &mut missed {
                // As `interval` does, without solving for its ends each time.
                let probability = ratio(&sides, *is_paired).probability();
                for (missed, alpha) in missed.iter_mut().zip(alphas) {
                    *missed += usize::from(probability < alpha);
                }
            }
        }
        missed.map(|(is_paired, missed)| {
            (is_paired, missed.map(|missed| missed as f64 / runs as f64))
        })
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn the_interval_holds_its_level_whatever_the_noise() {
        for noise in Noise::EACH {
            for n in [5, 10, 20, 40] {
                for (is_paired, of) in missed(noise, n, 5000, [0.05, 0.001]) {
                    let [of_20, of_1000] = of;
                    println!("{noise:?}, {n}, in pairs: {is_paired}: {of_20:.4}, {of_1000:.4}");
                    assert!(of_20 <= 0.065, "{noise:?}, {n}, {is_paired}: {of_20}");
                    assert!(of_1000 <= 0.003, "{noise:?}, {n}, {is_paired}: {of_1000}");
                }
            }
        }
    }

    #[test]
    fn the_interval_leaves_0_out_where_its_probability_says_so() {
        let mut random = Random(SplitMix64(1));
        for n in [3, 5, 25] {
            for is_paired in [true, false] {
                let ratio = ratio(&Noise::Normal.sides(n, &mut random), is_paired);
                for alpha in [0.9, 0.5, 0.05, 1e-4] {
                    let (low, high) = ratio.interval(alpha);
                    assert!(low < ratio.log && ratio.log < high);
                    assert_eq!(ratio.probability() < alpha, low > 0.0 || high < 0.0, "{ratio:?}");
                }
            }
        }
    }

    /// The percentile interval of a bootstrap that resamples processes and then their samples.
    fn hierarchical(sides: &[Vec<Vec<f64>>; 2], alpha: f64, random: &mut Random) -> (f64, f64) {
        let resampled = |side: &[Vec<f64>], random: &mut Random| {
            let draw = |process: &Vec<f64>, random: &mut Random| {
                median((0..process.len()).map(|_| process[random.below(process.len())]).collect())
            };
            let drawn = (0..side.len()).map(|_| draw(&side[random.below(side.len())], random));
            drawn.sum::<f64>() / side.len() as f64
        };
        let [a, b] = sides;
        let mut means: Vec<f64> =
            (0..1000).map(|_| resampled(b, random) - resampled(a, random)).collect();
        means.sort_by(f64::total_cmp);
        let at = |part: f64| means[((part * 1000.0) as usize).min(999)];
        (at(alpha / 2.0), at(1.0 - alpha / 2.0))
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn a_percentile_bootstrap_of_few_processes_promises_more_than_it_holds() {
        // The reason for not using it. Should this fail, it has become good: then use it.
        for noise in [Noise::Normal, Noise::HeavyTails, Noise::Spikes] {
            let mut random = Random(SplitMix64(5));
            let runs = 400;
            let misses = |_| {
                let (low, high) = hierarchical(&noise.sides(5, &mut random), 0.05, &mut random);
                usize::from(low > 0.0 || high < 0.0)
            };
            let missed = (0..runs).map(misses).sum::<usize>() as f64 / runs as f64;
            println!("{noise:?}, 5 processes: {missed:.3}");
            assert!(missed > 0.055, "{noise:?}: {missed}");
        }
    }

    #[test]
    fn hand_checked_figures() {
        // Student's t of 1, 2, 3, 4, 5: mean 3, error √(10/4/5).
        let ratio = paired(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((ratio.log, ratio.degrees), (3.0, 4.0));
        assert!((ratio.error - 0.5_f64.sqrt()).abs() < 1e-15);
        let (low, high) = ratio.interval(0.05);
        assert!((high - 3.0 - 2.776_445 * 0.5_f64.sqrt()).abs() < 1e-6 && low + high == 6.0);
        // Of 1 to 20 the four outermost are pulled to 5 and 16; 12 are left.
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let mut wild = values.clone();
        (wild[19], wild[0]) = (1e9, -1e9);
        for values in [&values, &wild] {
            let ratio = paired(values).unwrap();
            assert_eq!((ratio.log, ratio.degrees), (10.5, 11.0));
            if values == &wild {
                // One pair in the other direction: the exchange finds that less rare than t does.
                assert!(ratio.probability() < 2e-3, "{ratio:?}");
                continue;
            }
            let squares: f64 = values.iter().map(|x| (x.clamp(5.0, 16.0) - 10.5).powi(2)).sum();
            assert!((ratio.error - (squares / 12.0 / 11.0).sqrt()).abs() < 1e-12);
        }
        // Welch's own degrees of freedom, for equal sides twice those of one.
        let ratio = Ratio::unpaired(&[1.0, 2.0, 3.0], &[2.0, 3.0, 4.0], None).unwrap();
        assert!((ratio.log - 1.0).abs() < 1e-15 && (ratio.degrees - 4.0).abs() < 1e-12);
        assert_eq!(paired(&[1.0]), None);
        assert_eq!(Ratio::unpaired(&[1.0, 2.0], &[1.0], None), None);
    }

    #[test]
    fn steady_drift_is_taken_off_and_widens_the_interval() {
        let line = |from: f64| (0..10).map(|i| 0.002 * (from + f64::from(i))).collect::<Vec<f64>>();
        let wiggled = |mut line: Vec<f64>| {
            line.iter_mut().zip(0..).for_each(|(l, i)| *l += if i % 2 == 0 { 1e-3 } else { -1e-3 });
            line
        };
        let (a, b) = (wiggled(line(0.0)), wiggled(line(20.0)));
        let times =
            [line(0.0), line(20.0)].map(|l| l.iter().map(|l| l * 5e5).collect::<Vec<f64>>());
        let ratio = Ratio::unpaired(&a, &b, Some([&times[0], &times[1]])).unwrap();
        assert!((ratio.log - 0.04).abs() < 1e-3, "{ratio:?}");
        let (low, high) = ratio.interval(0.01);
        assert!(low < 0.0 && high > 0.04, "[{low}, {high}]");
        // Without times they count as one session's length apart, as they were.
        let unknown = Ratio::unpaired(&a, &b, None).unwrap();
        assert!((unknown.interval(0.01).0 - low).abs() < 1e-9);
        // A step and no drift is a change.
        let step: Vec<f64> = a.iter().zip(line(0.0)).map(|(a, l)| a - l + 0.2).collect();
        let flat: Vec<f64> = a.iter().zip(line(0.0)).map(|(a, l)| a - l).collect();
        assert!(Ratio::unpaired(&flat, &step, None).unwrap().interval(0.01).0 > 0.1);
        assert_eq!(Ratio::unpaired(&flat, &step, Some([&[1.0; 10], &[2.0; 10]])), None);
    }

    #[test]
    fn as_many_processes_as_it_says_see_what_it_says() {
        let mut random = Random(SplitMix64(4));
        for is_paired in [true, false] {
            let ratio = ratio(&Noise::Normal.sides(6, &mut random), is_paired);
            // Of sides that did not run in turns, drift hides more.
            let least = if is_paired { 0.005 } else { 0.02 };
            let n = ratio.processes_to_see(least, 0.01, 0.05).unwrap();
            let visible_with = |n| ratio.visible_with(n, 0.01, 0.05);
            assert!(visible_with(n) <= least && visible_with(n - 1) > least, "{n}");
            assert_eq!(ratio.processes_to_see(1e-6, 0.01, 0.05), None);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn a_change_of_the_visible_size_is_found_in_95_of_100_comparisons() {
        let mut random = Random(SplitMix64(95));
        // What is visible is an estimate too, so here it is one of many processes.
        let many = ratio(&Noise::Normal.sides(4000, &mut random), true);
        for n in [5, 8, 15, 40] {
            let planted = many.visible_with(n, 0.001, 0.05);
            let found = |_| {
                let mut sides = Noise::Normal.sides(n, &mut random);
                sides[1].iter_mut().flatten().for_each(|log| *log += planted);
                usize::from(ratio(&sides, true).interval(0.001).0 > 0.0)
            };
            let found = (0..1000).map(found).sum::<usize>();
            println!("{n} processes: {found}");
            // A trimmed mean over its winsorised error is not quite Student's t.
            let least = if n < TRIMMED_FROM { 930 } else { 915 };
            assert!((least..=985).contains(&found), "{n} processes: {found}");
        }
    }
}
