//! The ratio of two sides' times, estimated from their processes, with its interval.

use brickscope_profile::stats::student;

use super::turns::is_balanced;

/// From this many processes on, a fifth is trimmed at either end before the mean is taken. With fewer,
/// too few degrees of freedom would be left for intervals of 99.9 % and more.
const TRIMMED_FROM: usize = 20;

/// With fewer processes on a side there is no verdict. On a machine whose memory changes between two states
/// every few seconds, two to four pairs now and then agree by chance; five that do so are rare enough.
pub(super) const MIN_PROCESSES: usize = 5;

/// From this many pairs on, it is rare enough that the order within them happens to be the one that puts the sides
/// furthest apart, whatever the noise is: that are 2 of the 252 orders in which either side goes first equally often.
pub(super) const PAIRS_THAT_DECIDE: usize = 9;

/// Up to this many pairs, each balanced order is tried; with more their sums are close to normal.
const EXCHANGED: usize = TRIMMED_FROM - 1;

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

/// A difference of two sides if the machine became steadily slower or faster, within them and between them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Drift {
    log: f64,
    error: f64,
    degrees: f64,
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

/// By how much more a difference has to be for the exchange of the sides of pairs to see it, too: from simulated
/// comparisons (see the tests). With fewer pairs the exchange says no more than t.
fn of_exchange(pairs: usize) -> f64 {
    if pairs < PAIRS_THAT_DECIDE { 1.0 } else { 1.09 }
}

/// Below this probability by Student's t, a second test has its say: above the levels of all rows.
const LOOKS_AGAIN: f64 = 0.02;

/// In which part of the balanced orders the mean of the pairs would be at least as far from 0, if who goes first or
/// second were all that mattered. 0 where no other order would put it further and t has to decide: where all pairs
/// agree or, from [`PAIRS_THAT_DECIDE`] on, where only the opposite order would put it as far.
fn exchanged(logs: &[f64], a_first: &[bool]) -> f64 {
    if logs.iter().all(|log| *log > 0.0) || logs.iter().all(|log| *log < 0.0) {
        return 0.0;
    }
    if logs.len() > EXCHANGED {
        return exchanged_many(logs, a_first);
    }
    let sum: f64 = logs.iter().sum();
    let as_far = sum.abs() * (1.0 - 1e-9);
    // One pair stays as it is, since exchanging all changes the sign only. The others in the order of a Gray code
    // (Gray, US patent 2632058, 1953): one exchange from each way to the next.
    let n = logs.len();
    let ways = 1_u32 << (n - 1);
    let mut is_a_first = a_first.to_vec();
    let mut firsts = a_first.iter().filter(|first| **first).count();
    let mut signs = vec![1.0; n];
    let (mut now, mut balanced, mut found) = (sum, 0_u32, 0_u32);
    for way in 1..=ways {
        if is_balanced(firsts, n) {
            balanced += 1;
            found += u32::from(now.abs() >= as_far);
        }
        if way < ways {
            let at = way.trailing_zeros() as usize;
            now -= 2.0 * signs[at] * logs[at];
            signs[at] = -signs[at];
            firsts = if is_a_first[at] { firsts - 1 } else { firsts + 1 };
            is_a_first[at] = !is_a_first[at];
        }
    }
    // Of few pairs, no order is rarer than that. From so many on it is rare enough.
    if found <= 1 && n >= PAIRS_THAT_DECIDE {
        return 0.0;
    }
    f64::from(found) / f64::from(balanced.max(1))
}

/// The same of many pairs, by a double saddlepoint approximation: of the sum's distribution, given how often A goes
/// first (Skovgaard, "Saddlepoint expansions for conditional distributions", 1987). Differences are clipped, so that
/// one odd pair says no more than others. Sums of balanced orders have steps, which are large where differences are of
/// one size; so the sum counts as nearer to 0 by most of half a step.
fn exchanged_many(logs: &[f64], a_first: &[bool]) -> f64 {
    let n = logs.len() as f64;
    let mut sizes: Vec<f64> = logs.iter().map(|log| log.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let most = sizes[sizes.len() - 1 - sizes.len() / 5];
    if most <= 0.0 {
        return 1.0;
    }
    // How much longer the second process of a pair took than the first, from its mean: a cost that all second ones
    // have is the same in all balanced orders. In units of the largest.
    let sign = |first: bool| if first { 1.0 } else { -1.0 };
    let later = |(log, first): (&f64, &bool)| sign(*first) * log.clamp(-most, most) / most;
    let mut later: Vec<f64> = logs.iter().zip(a_first).map(later).collect();
    let mean = later.iter().sum::<f64>() / n;
    later.iter_mut().for_each(|value| *value -= mean);
    let sum: f64 = later.iter().zip(a_first).map(|(value, first)| sign(*first) * value).sum();
    // By how many pairs more A goes first than B: 0, or 1 or −1. Turned around where the sum is negative.
    let turn = if sum < 0.0 { -1.0 } else { 1.0 };
    let surplus = turn * a_first.iter().map(|first| sign(*first)).sum::<f64>();
    let step = 1.5 * later.iter().map(|value| value.abs()).sum::<f64>() / n;
    let off = turn * sum - step;
    if off <= 0.0 {
        return 1.0;
    }
    let solved = |mut low: f64, mut high: f64, is_below: &dyn Fn(f64) -> bool| {
        for _ in 0..60 {
            let middle = low + (high - low) / 2.0;
            if is_below(middle) { low = middle } else { high = middle }
        }
        low + (high - low) / 2.0
    };
    let total = |f: &dyn Fn(f64) -> f64| later.iter().map(|value| f(*value)).sum::<f64>();
    // Both sums have to be as they are: that of the differences by `at`, that of who goes first by `shift`.
    let shift_at = |at: f64| {
        let end = 2.0 * at + 2.0;
        solved(-end, end, &|shift| total(&|value| (at * value + shift).tanh()) < surplus)
    };
    let is_nearer = |at: f64| {
        let shift = shift_at(at);
        total(&|value| value * (at * value + shift).tanh()) < off
    };
    let mut high = 1.0;
    while is_nearer(high) && high < 1e3 {
        high *= 2.0;
    }
    let at = solved(0.0, high, &is_nearer);
    let shift = shift_at(at);
    let alone = (surplus / n).atanh();
    // The logarithm of the hyperbolic cosine, which itself may be too large.
    let log_cosh = |x: f64| x.abs() + (-2.0 * x.abs()).exp().ln_1p() - std::f64::consts::LN_2;
    let bend_at = |value: f64| 1.0 - (at * value + shift).tanh().powi(2);
    let height = at * off + shift * surplus - total(&|value| log_cosh(at * value + shift));
    let height_alone = alone * surplus - n * log_cosh(alone);
    let bends = [
        total(&|value| value * value * bend_at(value)),
        total(&|value| value * bend_at(value)),
        total(&bend_at),
    ];
    let bend = bends[0] * bends[2] - bends[1] * bends[1];
    let bend_alone = n * (1.0 - alone.tanh().powi(2));
    let root = (2.0 * (height - height_alone)).max(0.0).sqrt();
    let scaled = at * (bend.max(0.0) / bend_alone).sqrt();
    if root < 1e-3 || scaled <= 0.0 {
        return 1.0;
    }
    let density = (-root * root / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let tail = student::two_sided(root, f64::from(u32::MAX)) / 2.0;
    (2.0 * (tail + density * (1.0 / scaled - 1.0 / root))).clamp(0.0, 1.0)
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

impl Drift {
    /// From the logarithms of both sides and when they were measured. Without times, the processes of a side
    /// followed each other evenly, and the sides were as far apart as one of them is long.
    fn taken_off(a: &[f64], b: &[f64], times: Option<[&[f64]; 2]>) -> Option<Self> {
        let even = |n: usize| (0..n).map(|i| i as f64).collect::<Vec<f64>>();
        let (even_a, even_b) = (even(a.len()), even(b.len()));
        let [times_a, times_b] = times.unwrap_or([&even_a, &even_b]);
        let (line_a, line_b) = (Line::of(times_a, a)?, Line::of(times_b, b)?);
        let squares = line_a.squares + line_b.squares;
        let slope = (line_a.products + line_b.products) / squares;
        let most = line_a.length + line_b.length;
        let apart = if times.is_some() { line_b.time - line_a.time } else { most };
        let apart = apart.clamp(-most, most);
        let degrees = (kept(a.len()) + kept(b.len())) as f64 - 3.0;
        // As with the winsorised error of a mean: fewer count than there are.
        let [n_a, n_b] = [a.len() as f64, b.len() as f64];
        let counted = (kept(a.len()) + kept(b.len())) as f64 / (n_a + n_b);
        let variance = (line_a.off(slope) + line_b.off(slope)) / degrees / counted;
        Some(Self {
            log: line_b.log - line_a.log - slope * apart,
            error: (variance * (1.0 / n_a + 1.0 / n_b + apart * apart / squares)).sqrt(),
            degrees,
        })
    }
}

/// The logarithms of a side against their times.
#[derive(Debug)]
struct Line {
    /// The mean time, and the time from the first process to one after the last.
    time: f64,
    length: f64,
    /// The mean logarithm.
    log: f64,
    /// Of the times' deviations from their mean; and those times the logarithms'.
    squares: f64,
    products: f64,
    /// Deviations of times and of logarithms.
    points: Vec<(f64, f64)>,
}

impl Line {
    /// `None` if all were measured at one time.
    fn of(times: &[f64], logs: &[f64]) -> Option<Self> {
        let logs = near_their_line(times, logs);
        let n = times.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
        let (time, log) = (mean(times), mean(&logs));
        let points: Vec<(f64, f64)> =
            times.iter().zip(&logs).map(|(t, l)| (t - time, l - log)).collect();
        let ends = times.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &t| {
            (least.min(t), most.max(t))
        });
        let squares: f64 = points.iter().map(|(t, _)| t * t).sum();
        (squares > 0.0).then(|| Self {
            time,
            length: (ends.1 - ends.0) * n / (n - 1.0),
            log,
            squares,
            products: points.iter().map(|(t, l)| t * l).sum(),
            points,
        })
    }

    /// The sum of the squares of the logarithms' distances from a line with this slope.
    fn off(&self, slope: f64) -> f64 {
        self.points.iter().map(|(t, l)| (l - slope * t) * (l - slope * t)).sum()
    }
}

/// The same logarithms; where trimming begins, the fifths that are farthest above and below their line are moved to
/// where the others end. The line is that of the median slope of two points (Theil 1950, Sen 1968).
fn near_their_line(times: &[f64], logs: &[f64]) -> Vec<f64> {
    let cut = trimmed(logs.len());
    if cut == 0 {
        return logs.to_vec();
    }
    let mut slopes = Vec::new();
    for (i, (t, l)) in times.iter().zip(logs).enumerate() {
        let before = times.iter().zip(logs).take(i);
        slopes.extend(before.map(|(t0, l0)| (l - l0) / (t - t0)).filter(|s| s.is_finite()));
    }
    let Some(slope) = brickscope_profile::stats::median(&slopes) else { return logs.to_vec() };
    let off = || times.iter().zip(logs).map(|(t, l)| l - slope * t);
    let mut sorted: Vec<f64> = off().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[cut], sorted[sorted.len() - 1 - cut]);
    off().zip(times).map(|(off, t)| off.clamp(low, high) + slope * t).collect()
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

/// The error of one process, estimated from these processes, for a plain and for a trimmed mean.
fn errors_of_one(values: &[f64]) -> Option<[f64; 2]> {
    let root = (values.len() as f64).sqrt();
    let error = |cut| Some(Trimmed::cut(values, cut)?.error * root);
    Some([error(0)?, error(values.len() / 5)?])
}

/// How many of `n` values remain after trimming.
fn kept(n: usize) -> usize {
    n - 2 * trimmed(n)
}

pub(super) fn trimmed(n: usize) -> usize {
    if n < TRIMMED_FROM { 0 } else { n / 5 }
}

/// A mean without the ends, and its standard error.
#[derive(Debug, Clone, Copy)]
struct Trimmed {
    mean: f64,
    error: f64,
    degrees: f64,
}

impl Trimmed {
    /// The trimmed mean, with the standard error by the winsorised sum of squares: Yuen, "The
    /// two-sample trimmed t for unequal population variances" (1974).
    fn mean(values: &[f64]) -> Option<Self> {
        Self::cut(values, trimmed(values.len()))
    }

    /// The trimmed mean of a block, which may be a single process.
    fn mean_only(values: &[f64]) -> f64 {
        Self::mean(values).map_or_else(|| values[0], |mean| mean.mean)
    }

    /// The mean without `cut` values at either end.
    fn cut(values: &[f64], cut: usize) -> Option<Self> {
        if values.len() < 2 {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let kept = sorted.len() - 2 * cut;
        let inner = &sorted[cut..cut + kept];
        let (least, greatest) = (inner[0], inner[kept - 1]);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        for value in &mut sorted {
            *value = value.clamp(least, greatest);
        }
        let middle = mean(&sorted);
        let squares: f64 = sorted.iter().map(|value| (value - middle) * (value - middle)).sum();
        let inner = &sorted[cut..cut + kept];
        let degrees = (kept - 1) as f64;
        Some(Self { mean: mean(inner), error: (squares / (kept as f64 * degrees)).sqrt(), degrees })
    }
}

/// Half of an interval of a mean, which misses it with probability `missed`: of those values whose `keys`, in ascending
/// order, are not among the `cut` ones at either end. `None` below five, and where a value isn't a number.
///
/// Trimming by the keys leaves all outliers in that a value has of its own: a brick that was interrupted in a pair of which
/// other bricks were, too. So their own ends must not be winsorised. As with Yuen's error, what was cut counts as if it were
/// where the others end; of values that are where the line through the kept ones is at the last key that was kept.
pub(super) fn half_interval_beside(
    keys: &[f64],
    values: &[f64],
    cut: usize,
    missed: f64,
) -> Option<f64> {
    let n = values.len();
    if n < MIN_PROCESSES || keys.len() != n {
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

/// The typical logarithm of a side and, from two processes on, its 95 % interval.
pub(super) fn typical(logs: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    match Trimmed::mean(logs) {
        None => Some((*logs.first()?, None)),
        Some(Trimmed { mean, error, degrees }) => {
            let half = if error > 0.0 { student::quantile(0.05, degrees) * error } else { 0.0 };
            Some((mean, Some((mean - half, mean + half))))
        }
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::stats::SplitMix64;

    use super::*;

    struct Random(SplitMix64);

    impl Random {
        /// Above 0 and below 1.
        fn uniform(&mut self) -> f64 {
            ((self.0.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
        }

        fn below(&mut self, n: usize) -> usize {
            ((u128::from(self.0.bits()) * n as u128) >> 64) as usize
        }

        /// Box and Muller, "A note on the generation of random normal deviates", 1958.
        fn normal(&mut self) -> f64 {
            let (u, v) = (self.uniform(), self.uniform());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        }
    }

    /// What makes one process slower than another: shares of its time.
    #[derive(Debug, Clone, Copy)]
    enum Noise {
        /// 1 %.
        Normal,
        /// Student's t with 2 degrees of freedom: no variance.
        HeavyTails,
        /// A process in seven takes 3 % longer and more, with a Pareto tail of 1.5.
        Spikes,
        /// Some processes in a row take 5 to 20 % longer.
        Bursts,
    }

    impl Noise {
        const EACH: [Self; 4] = [Self::Normal, Self::HeavyTails, Self::Spikes, Self::Bursts];

        /// The logarithms of the samples of a process.
        fn process(self, is_burst: &mut bool, random: &mut Random) -> Vec<f64> {
            let own = 0.002 * random.normal();
            let level = own
                + match self {
                    Self::Normal => 0.01 * random.normal(),
                    Self::HeavyTails => {
                        let chi = (random.normal().powi(2) + random.normal().powi(2)) / 2.0;
                        0.007 * random.normal() / chi.sqrt()
                    }
                    Self::Spikes if random.uniform() < 0.15 => {
                        (0.03 * random.uniform().powf(-1.0 / 1.5)).ln_1p()
                    }
                    Self::Spikes => 0.0,
                    Self::Bursts => {
                        *is_burst = random.uniform() < if *is_burst { 0.75 } else { 0.05 };
                        if *is_burst { 0.05 + 0.15 * random.uniform() } else { 0.0 }
                    }
                };
            let sample = |_| {
                let spike = if random.uniform() < 0.1 { 0.05 * random.uniform() } else { 0.0 };
                level + 0.005 * random.normal() + spike
            };
            (0..5).map(sample).collect()
        }

        /// `n` processes of either side that ran in turns.
        fn sides(self, n: usize, random: &mut Random) -> [Vec<Vec<f64>>; 2] {
            let mut is_burst = false;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for turn in 0..n {
                let one = self.process(&mut is_burst, random);
                let other = self.process(&mut is_burst, random);
                let (of_a, of_b) = if turn % 2 == 0 { (one, other) } else { (other, one) };
                a.push(of_a);
                b.push(of_b);
            }
            [a, b]
        }
    }

    /// For each pair, whether A goes first: each second time.
    fn by_turns(pairs: usize) -> Vec<bool> {
        (0..pairs).map(|pair| pair % 2 == 0).collect()
    }

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
    /// each of the probabilities.
    fn missed<const N: usize>(
        noise: Noise,
        n: usize,
        is_paired: bool,
        runs: usize,
        alphas: [f64; N],
    ) -> [f64; N] {
        let mut random = Random(SplitMix64(n as u64));
        let mut missed = [0; N];
        for _ in 0..runs {
            let ratio = ratio(&noise.sides(n, &mut random), is_paired);
            // As `interval` does, without solving for its ends each time.
            let probability = ratio.probability();
            for (missed, alpha) in missed.iter_mut().zip(alphas) {
                *missed += usize::from(probability < alpha);
            }
        }
        missed.map(|missed| missed as f64 / runs as f64)
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of runs")]
    fn the_interval_holds_its_level_whatever_the_noise() {
        for noise in Noise::EACH {
            for is_paired in [true, false] {
                for n in [5, 10, 20, 40] {
                    let [of_20, of_1000] = missed(noise, n, is_paired, 5000, [0.05, 0.001]);
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

    /// The number of ways to choose.
    fn choose(n: usize, k: usize) -> f64 {
        if k > n { 0.0 } else { (0..k).fold(1.0, |ways, i| ways * (n - i) as f64 / (i + 1) as f64) }
    }

    /// The exact probability of pairs of one size: how often A goes first among those in which the second process took
    /// longer is hypergeometric.
    fn of_one_size(pairs: &[f64], a_first: &[bool]) -> f64 {
        let n = pairs.len();
        let later = pairs.iter().zip(a_first).filter(|(log, first)| (**log > 0.0) == **first);
        let (later, firsts) = (later.count(), n / 2);
        let sum = |both: usize| {
            let against = (firsts - both) as f64;
            let second_longer = 2.0 * both as f64 - later as f64;
            second_longer - 2.0 * against + (n - later) as f64
        };
        let observed = pairs.iter().map(|log| log.signum()).sum::<f64>().abs();
        let ways = |both: usize| choose(later, both) * choose(n - later, firsts - both);
        let as_far = (0..=firsts).filter(|&both| sum(both).abs() >= observed);
        as_far.map(ways).sum::<f64>() / choose(n, firsts)
    }

    #[test]
    fn a_difference_is_as_rare_as_counting_the_balanced_orders_says() {
        // Of eight pairs of one size seven agree. In five the second process took longer: A goes first in four of
        // those, or in one, in 5 + 5 of 70 orders.
        let seven = [1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(exchanged(&seven, &by_turns(8)), 10.0 / 70.0);
        assert!((of_one_size(&seven, &by_turns(8)) - 10.0 / 70.0).abs() < 1e-12);
        // All agree: no order is further, and so few say nothing by that.
        assert_eq!(exchanged(&[0.5, 0.1, 0.2, 0.9, 0.3], &by_turns(5)), 0.0);
        // As many as 24 pairs of one size.
        for against in [1, 2, 3, 4, 5, 6] {
            let pairs: Vec<f64> = (0..24).map(|i| if i < against { -0.2 } else { 0.2 }).collect();
            for a_first in [by_turns(24), (0..24).map(|i| i < 12).collect()] {
                let (p, exact) = (exchanged(&pairs, &a_first), of_one_size(&pairs, &a_first));
                // Hardly too rare, and not at all where a verdict depends on it.
                let least = if exact <= LOOKS_AGAIN / 4.0 { 0.8 } else { 0.65 };
                assert!((least..2.0).contains(&(p / exact)), "{against} of 24: {p} for {exact}");
            }
        }
        // Two states of a machine: differences are of one size, and t takes that for certainty.
        let two: Vec<f64> = (0..20).map(|i| if i < 4 { -0.2 } else { 0.2 }).collect();
        let by_t = Trimmed::mean(&two).unwrap();
        assert!(by_t.error < 1e-15, "{by_t:?}");
        let near: Vec<f64> = two.iter().zip(0..).map(|(d, i)| d + 1e-4 * f64::from(i)).collect();
        let p = paired(&near).unwrap().probability();
        assert!(p > 0.005, "{p}");
    }

    #[test]
    fn of_all_orders_that_could_have_been_drawn_as_few_are_rare_as_the_probability_says() {
        let mut random = Random(SplitMix64(12));
        let states = |random: &mut Random| if random.uniform() < 0.5 { -1.0 } else { 1.0 };
        for pairs in [9, 10, 12] {
            // How much longer the second process of each pair took, whichever side it was: between two states, or not.
            for is_normal in [false, true] {
                let draw = |_| match is_normal {
                    true => 0.5 + random.normal(),
                    false => states(&mut random) + 1e-6 * random.normal(),
                };
                let later: Vec<f64> = (0..pairs).map(draw).collect();
                let mut found = Vec::new();
                for order in 0..1_u32 << pairs {
                    let a_first: Vec<bool> = (0..pairs).map(|i| order >> i & 1 == 1).collect();
                    if is_balanced(order.count_ones() as usize, pairs) {
                        let log =
                            |(value, first): (&f64, &bool)| if *first { *value } else { -value };
                        let logs: Vec<f64> = later.iter().zip(&a_first).map(log).collect();
                        found.push(exchanged(&logs, &a_first));
                    }
                }
                found.sort_by(f64::total_cmp);
                let agree = found.iter().take_while(|p| **p == 0.0).count();
                assert!(agree <= 2, "{agree} orders in which all pairs agree");
                for (rarer, p) in found.iter().enumerate().skip(agree) {
                    let part = (rarer + 1) as f64 / found.len() as f64;
                    assert!(
                        part <= p + 1e-9,
                        "{pairs} pairs: {part} of the orders have {p} or less"
                    );
                }
            }
        }
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
