//! Means without the ends, and their errors.

use brickscope_profile::stats::student;

/// From this many processes on, a fifth is trimmed at either end before the mean is taken. With fewer,
/// too few degrees of freedom would be left for intervals of 99.9 % and more.
pub(super) const TRIMMED_FROM: usize = 20;

/// How many of `n` values remain after trimming.
pub(super) fn kept(n: usize) -> usize {
    n - 2 * trimmed(n)
}

pub(super) fn trimmed(n: usize) -> usize {
    if n < TRIMMED_FROM { 0 } else { n / 5 }
}

/// A mean without the ends, and its standard error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trimmed {
    pub(super) mean: f64,
    pub(super) error: f64,
    pub(super) degrees: f64,
}

impl Trimmed {
    /// The trimmed mean, with the standard error by the winsorised sum of squares: Yuen, "The
    /// two-sample trimmed t for unequal population variances" (1974).
    pub(super) fn mean(values: &[f64]) -> Option<Self> {
        Self::cut(values, trimmed(values.len()))
    }

    /// The trimmed mean of a block, which may be a single process.
    pub(super) fn mean_only(values: &[f64]) -> f64 {
        Self::mean(values).map_or_else(|| values[0], |mean| mean.mean)
    }

    /// The mean without `cut` values at either end.
    pub(super) fn cut(values: &[f64], cut: usize) -> Option<Self> {
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

/// The error of one process, estimated from these processes, for a plain and for a trimmed mean.
pub(super) fn errors_of_one(values: &[f64]) -> Option<[f64; 2]> {
    let root = (values.len() as f64).sqrt();
    let error = |cut| Some(Trimmed::cut(values, cut)?.error * root);
    Some([error(0)?, error(values.len() / 5)?])
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
