//! From samples to figures. Writers and verifiers of receipts call the same functions, so that figures can be
//! checked against samples bit for bit. So nothing here may change while receipts of 1.0.0 are read.
//!
//! Who derives them without this code: in 64-bit floats, not fused, in this order, over samples with
//! `is_warm_up: false`; `null` if there are too few.
//!
//! | figure | is |
//! |---|---|
//! | a rate | `tokens · 10⁹ ÷ wall_ns`, multiplied first; 0 if `wall_ns` is 0 |
//! | a mean, from 1 on | `((x₁ + x₂) + x₃ + …) ÷ n` |
//! | a standard deviation, from 2 on | `√(s ÷ (n − 1))`, `s` the sum, likewise, of `(xᵢ − mean) · (xᵢ − mean)` |
//! | a median, from 1 on | the middle one; of an even number `(lower + upper) ÷ 2` |
//! | `low_ts`, `high_ts`, from 2 on | `mean − h` and `mean + h` of the rates, `h = t · (deviation ÷ √n)` |
//! | a percentile `q` of `per_token`, `first_token` | sorted, the one of rank `⌈q · n⌉`; from `⌈ln 0.01 ÷ ln q⌉` numbers on |
//! | `brick_total_ns`, `unattributed_total_ns` | whole sums; the latter `null` if one of them is |
//!
//! `per_token` is sorted before mean and deviation. `t` is the two-sided 95 % quantile of Student's t, as below.
//! `tokens_per_second` is `median_ts` of the first decode test at the least depth.

use brickscope_profile::Histogram;
use brickscope_profile::stats::{mean, median, std_dev};

use super::v1::{Aggregates, Sample, Spread};

impl Aggregates {
    /// The aggregates of the samples that don't belong to the warm-up.
    #[must_use]
    pub fn of(samples: &[Sample]) -> Self {
        let measured: Vec<&Sample> = samples.iter().filter(|sample| !sample.is_warm_up).collect();
        let walls: Vec<f64> = measured.iter().map(|sample| sample.wall_ns as f64).collect();
        let rates: Vec<f64> = measured.iter().map(|sample| sample.rate()).collect();
        let half = half_width(&rates);
        let bricks = measured.iter().map(|sample| sample.brick_ns.len()).max().unwrap_or(0);
        let brick_total = |brick: usize| {
            let times = measured.iter().filter_map(|sample| sample.brick_ns.get(brick));
            times.fold(0, |sum: u64, &ns| sum.saturating_add(ns))
        };
        let unattributed = |sum: u64, sample: &&Sample| sum.checked_add(sample.unattributed_ns?);
        Self {
            samples: measured.len() as u64,
            avg_ns: mean(&walls),
            stddev_ns: std_dev(&walls),
            median_ns: median(&walls),
            avg_ts: mean(&rates),
            stddev_ts: std_dev(&rates),
            median_ts: median(&rates),
            low_ts: mean(&rates).zip(half).map(|(mean, half)| mean - half),
            high_ts: mean(&rates).zip(half).map(|(mean, half)| mean + half),
            per_token: Spread::of(measured.iter().flat_map(|sample| &sample.token_ns).copied()),
            first_token: Spread::of(measured.iter().filter_map(|sample| sample.first_token_ns)),
            brick_total_ns: (0..bricks).map(brick_total).collect(),
            unattributed_total_ns: measured.iter().try_fold(0, unattributed),
            disturbed: measured.iter().filter(|s| s.disturbed == Some(true)).count() as u64,
        }
    }
}

impl Sample {
    /// Tokens per second of wall time; 0 if there is none.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.wall_ns == 0 { 0.0 } else { self.tokens as f64 * 1e9 / self.wall_ns as f64 }
    }
}

impl Spread {
    fn of(durations: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = durations.collect();
        sorted.sort_unstable();
        let floats: Vec<f64> = sorted.iter().map(|&ns| ns as f64).collect();
        let percentile = |quantile: f64| {
            let count = sorted.len() as u64;
            let enough = Histogram::least_count(quantile).is_some_and(|least| count >= least);
            let rank = (quantile * count as f64).ceil() as usize;
            enough.then(|| sorted.get(rank.saturating_sub(1)).copied()).flatten()
        };
        Self {
            count: sorted.len() as u64,
            mean_ns: mean(&floats),
            stddev_ns: std_dev(&floats),
            min_ns: sorted.first().copied(),
            max_ns: sorted.last().copied(),
            p50_ns: percentile(0.5),
            p90_ns: percentile(0.9),
            p95_ns: percentile(0.95),
            p99_ns: percentile(0.99),
        }
    }
}

/// Half the width of the 95 % interval of the mean, by Student's t.
fn half_width(values: &[f64]) -> Option<f64> {
    let error = std_dev(values)? / (values.len() as f64).sqrt();
    Some(student_t(values.len() - 1) * error)
}

/// The two-sided 95 % quantile of Student's t: a table up to 30 degrees of freedom, above that the expansion
/// of Cornish and Fisher (Abramowitz and Stegun, 26.7.5).
///
/// Frozen with receipt 1.0.0, whose figures are compared bit for bit: [`brickscope_profile::stats::student`] is more
/// exact, and would give other digits.
fn student_t(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
        2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
        2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
        2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
    ];
    const Z: f64 = 1.959_963_984_540_054;
    match degrees {
        0 => f64::INFINITY,
        1..=30 => TABLE[degrees - 1],
        _ => {
            let n = degrees as f64;
            let (z3, z5) = (Z.powi(3), Z.powi(5));
            Z + (z3 + Z) / (4.0 * n) + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * n * n)
        }
    }
}
