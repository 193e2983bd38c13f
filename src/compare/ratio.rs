//! The ratio of two sides' times from their processes, with its interval.

use super::student;

/// From so many processes on, a fifth is trimmed at either end before the mean is taken. Of fewer too
/// few degrees of freedom would be left for intervals of 99.9 % and more.
const TRIMMED_FROM: usize = 20;

/// With fewer processes on a side there is no telling how far processes differ.
pub(super) const MIN_PROCESSES: usize = 2;

/// So many processes nobody runs: what would take more counts as out of reach.
const MOST_PROCESSES: usize = 100_000;

/// A logarithm of a ratio, how far it may be off, and by how many degrees of freedom that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) log: f64,
    pub(super) error: f64,
    degrees: f64,
    /// `error` with one process a side, if more processes spread as these do.
    error_of_one: f64,
    is_paired: bool,
}

impl Ratio {
    /// From pairs of processes that ran beside each other: the logarithms of b ÷ a.
    pub(super) fn paired(logs: &[f64]) -> Option<Self> {
        let mean = Trimmed::mean(logs)?;
        Some(Self {
            log: mean.mean,
            error: mean.error,
            degrees: mean.degrees,
            error_of_one: mean.error * (logs.len() as f64).sqrt(),
            is_paired: true,
        })
    }

    /// From processes that have nothing to do with each other: the logarithms of their times.
    ///
    /// The degrees of freedom are those of Welch, "The generalization of Student's problem when
    /// several different population variances are involved" (1947).
    pub(super) fn unpaired(a: &[f64], b: &[f64]) -> Option<Self> {
        let (of_a, of_b) = (Trimmed::mean(a)?, Trimmed::mean(b)?);
        let [square_a, square_b] = [of_a, of_b].map(|side| side.error * side.error);
        let square = square_a + square_b;
        let shares = square_a * square_a / of_a.degrees + square_b * square_b / of_b.degrees;
        Some(Self {
            log: of_b.mean - of_a.mean,
            error: square.sqrt(),
            // Two sides without any spread.
            degrees: if shares > 0.0 { square * square / shares } else { of_a.degrees },
            error_of_one: (square_a * a.len() as f64 + square_b * b.len() as f64).sqrt(),
            is_paired: false,
        })
    }

    /// How probable a ratio so far from 1 is where there is no difference.
    pub(super) fn probability(&self) -> f64 {
        if self.error > 0.0 {
            student::two_sided((self.log / self.error).abs(), self.degrees)
        } else if self.log == 0.0 {
            1.0
        } else {
            0.0
        }
    }

    /// The interval that leaves the truth out with probability `alpha`; of logarithms.
    pub(super) fn interval(&self, alpha: f64) -> (f64, f64) {
        let half = self.half(alpha);
        (self.log - half, self.log + half)
    }

    fn half(&self, alpha: f64) -> f64 {
        if self.error > 0.0 { student::quantile(alpha, self.degrees) * self.error } else { 0.0 }
    }

    /// The least logarithm that is told from 0 at `alpha` with probability 1 − `missed`.
    ///
    /// `(t(α/2) + t(β)) · s/√n`, the textbook's formula for the size of a sample, solved for the
    /// difference, with Student's t for the normal quantiles since s is an estimate.
    pub(super) fn visible(&self, alpha: f64, missed: f64) -> f64 {
        visible(self.error, self.degrees, alpha, missed)
    }

    /// How many processes a side it takes until the logarithm `least` is visible; `None` if more
    /// than anybody would run.
    pub(super) fn processes_to_see(&self, least: f64, alpha: f64, missed: f64) -> Option<usize> {
        let sees = |n: usize| {
            let error = self.error_of_one / (n as f64).sqrt();
            let degrees = (kept(n) - 1) as f64 * if self.is_paired { 1.0 } else { 2.0 };
            visible(error, degrees, alpha, missed) <= least
        };
        let (mut low, mut high) = (MIN_PROCESSES, MOST_PROCESSES);
        if !sees(high) {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if sees(middle) { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }
}

fn visible(error: f64, degrees: f64, alpha: f64, missed: f64) -> f64 {
    if error == 0.0 {
        return 0.0;
    }
    (student::quantile(alpha, degrees) + student::quantile(2.0 * missed, degrees)) * error
}

/// How many of `n` are left when the ends are trimmed.
fn kept(n: usize) -> usize {
    n - 2 * trimmed(n)
}

fn trimmed(n: usize) -> usize {
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
        if values.len() < MIN_PROCESSES {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (cut, kept) = (trimmed(sorted.len()), kept(sorted.len()));
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
