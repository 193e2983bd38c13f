//! Counts, sums and percentiles of spans, per brick and per category.

#[doc(hidden)]
pub mod changes;
mod histogram;
mod paired;
mod random;
mod sample;
#[doc(hidden)]
pub mod student;

use serde::{Deserialize, Serialize};

pub use self::histogram::Histogram;
pub use self::paired::{PairedError, PairedRatio, RatioOfRuns};
#[doc(hidden)]
pub use self::random::SplitMix64;
#[doc(hidden)]
pub use self::sample::{mean, median, median_ns, std_dev};
use crate::brick::{BrickCategory, Data, Work};

/// The statistics of one brick, over all its spans.
///
/// Rates and averages of nothing are 0.0, as in the predecessor's API; check `count` first. Views and
/// exports never print such zeros.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BrickStats {
    /// The brick's name.
    pub name: String,
    /// The number of spans.
    pub count: u64,
    /// Nanoseconds from begin to end, summed. A brick inside a brick counts in both.
    pub total_ns: u64,
    /// The part of `total_ns` that lies in no nested brick. Over all bricks of a thread these add up to
    /// the time attributed to bricks. 0 for kernels, to which no time is attributed.
    pub exclusive_ns: u64,
    /// The shortest span, in nanoseconds; `u64::MAX` if there is none.
    pub min_ns: u64,
    /// The longest span, in nanoseconds.
    pub max_ns: u64,
    /// The sum over all spans of their squared deviation from the mean, in ns²; add up with
    /// [`merge`](Self::merge).
    #[serde(default)]
    pub squared_deviations: f64,
    /// Elements processed.
    pub total_elements: u64,
    /// Stated floating-point operations; in files `null` if none were stated.
    #[serde(with = "stated")]
    pub total_flops: u64,
    /// Stated bytes moved; in files `null` if none were stated.
    #[serde(with = "stated")]
    pub total_bytes: u64,
    /// What the stated bytes are, as far as that was stated.
    #[serde(default, skip_serializing_if = "DataSums::are_none")]
    pub data: DataSums,
    /// The histogram of durations.
    #[serde(default)]
    pub histogram: Histogram,
}

/// The stated bytes of some spans, by what they are. Those that are in neither sum were stated without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DataSums {
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of the KV cache.
    pub kv: u64,
    /// Bytes of activations.
    pub activations: u64,
}

impl DataSums {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the bytes of a span.
    #[doc(hidden)]
    #[inline]
    pub fn add(&mut self, work: &Work) {
        let Some(activations) = work.activations() else { return };
        let once = work.bytes - activations;
        self.activations = self.activations.saturating_add(activations);
        match work.data {
            Data::Weights(_) => self.weights = self.weights.saturating_add(once),
            Data::Kv(_) => self.kv = self.kv.saturating_add(once),
            Data::Unstated | Data::Activations => {}
        }
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: &Self) {
        self.weights = self.weights.saturating_add(other.weights);
        self.kv = self.kv.saturating_add(other.kv);
        self.activations = self.activations.saturating_add(other.activations);
    }

    /// Of the sums of `whole` bytes, those of `part` bytes that are made up alike.
    #[doc(hidden)]
    #[must_use]
    pub fn part(&self, part: u64, whole: u64) -> Self {
        let of = |bytes: u64| {
            let scaled = (u128::from(bytes) * u128::from(part)).checked_div(u128::from(whole));
            scaled.and_then(|scaled| u64::try_from(scaled).ok()).unwrap_or(bytes)
        };
        Self { weights: of(self.weights), kv: of(self.kv), activations: of(self.activations) }
    }

    /// The sums since `before`; `None` if these are less.
    #[doc(hidden)]
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            weights: self.weights.checked_sub(before.weights)?,
            kv: self.kv.checked_sub(before.kv)?,
            activations: self.activations.checked_sub(before.activations)?,
        })
    }

    /// Bytes that are touched once a pass: weights and the KV cache.
    #[must_use]
    pub fn once_a_pass(&self) -> u64 {
        self.weights.saturating_add(self.kv)
    }
}

impl BrickStats {
    /// The statistics of a brick without spans.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), min_ns: u64::MAX, ..Self::default() }
    }

    /// Adds a span of `elapsed_ns` with nothing inside it.
    pub fn add_sample(&mut self, elapsed_ns: u64, elements: u64) {
        self.add(elapsed_ns, elapsed_ns, Work::elements(elements));
    }

    /// Adds a span, of which `exclusive_ns` were its own.
    #[doc(hidden)]
    pub fn add(&mut self, elapsed_ns: u64, exclusive_ns: u64, work: Work) {
        let mut one = Self {
            count: 1,
            total_ns: elapsed_ns,
            exclusive_ns,
            min_ns: elapsed_ns,
            max_ns: elapsed_ns,
            total_elements: work.elements,
            total_flops: work.flops,
            total_bytes: work.bytes,
            ..Self::default()
        };
        one.data.add(&work);
        one.histogram.record(elapsed_ns);
        self.merge(&one);
    }

    /// Adds all spans of `other`.
    ///
    /// Deviations add up as in Chan, Golub, LeVeque: *Updating formulae and a pairwise algorithm
    /// for computing sample variances* (1979), eq. 2.1b.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (n, m) = (self.count as f64, other.count as f64);
        let apart = self.mean_ns().unwrap_or_default() - other.mean_ns().unwrap_or_default();
        self.squared_deviations += other.squared_deviations + apart * apart * n * m / (n + m);
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.exclusive_ns = self.exclusive_ns.saturating_add(other.exclusive_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.total_elements = self.total_elements.saturating_add(other.total_elements);
        self.total_flops = self.total_flops.saturating_add(other.total_flops);
        self.total_bytes = self.total_bytes.saturating_add(other.total_bytes);
        self.data.merge(&other.data);
        self.histogram.merge(&other.histogram);
    }

    /// Mean nanoseconds of a span, if there is one.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64)
    }

    /// The standard deviation of a span's duration in nanoseconds, as of a sample: over `count` − 1.
    /// `None` for fewer than two spans, and if the spread isn't known: files of schema 1 lack it.
    #[must_use]
    pub fn std_dev_ns(&self) -> Option<f64> {
        let is_known = self.histogram.count() == self.count;
        (self.count > 1 && is_known)
            .then(|| (self.squared_deviations / (self.count - 1) as f64).sqrt())
    }

    /// The duration in nanoseconds that the share `quantile` (0 to 1) of all spans does not exceed, to
    /// within 0.8 %; `None` if there are too few spans to state it
    /// ([`Histogram::least_count`]).
    #[must_use]
    pub fn percentile_ns(&self, quantile: f64) -> Option<u64> {
        self.histogram.percentile(quantile).map(|nanos| self.within(nanos))
    }

    /// The histogram knows values only to their bucket; the minimum and maximum are exact.
    fn within(&self, nanos: u64) -> u64 {
        // Not `clamp`, which panics if a file's minimum exceeds its maximum.
        nanos.max(self.min_ns).min(self.max_ns)
    }

    /// The percentiles that reports show.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let [p50_ns, p90_ns, p95_ns, p99_ns] = self
            .histogram
            .percentiles([0.5, 0.9, 0.95, 0.99])
            .map(|nanos| nanos.map(|nanos| self.within(nanos)));
        Percentiles { p50_ns, p90_ns, p95_ns, p99_ns }
    }

    /// Mean microseconds of a span.
    #[must_use]
    pub fn avg_us(&self) -> f64 {
        ratio(self.total_ns as f64 / 1e3, self.count as f64)
    }

    /// The shortest span in microseconds.
    #[must_use]
    pub fn min_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.min_ns as f64 / 1e3 }
    }

    /// The longest span in microseconds.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }

    /// Elements per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        ratio(self.total_elements as f64 * 1e9, self.total_ns as f64)
    }
}

/// Percentiles of durations, in nanoseconds; `None` if there are too few spans to state one
/// ([`Histogram::least_count`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half of all durations don't exceed it; stated from 7 spans on.
    pub p50_ns: Option<u64>,
    /// Nine in ten; from 44 on.
    pub p90_ns: Option<u64>,
    /// 19 in 20; from 90 on.
    pub p95_ns: Option<u64>,
    /// 99 in 100; from 459 on.
    pub p99_ns: Option<u64>,
}

/// Unstated work isn't written as 0, which a reader would take for a count.
#[doc(hidden)]
pub mod stated {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(work: &u64, to: S) -> Result<S::Ok, S::Error> {
        some(*work).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Option::deserialize(from).map(Option::unwrap_or_default)
    }

    #[doc(hidden)]
    pub fn some(work: u64) -> Option<u64> {
        (work > 0).then_some(work)
    }
}

/// The statistics of the bricks of one category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CategoryStats {
    /// Nanoseconds; time in nested bricks counts once
    /// ([`BrickStats::exclusive_ns`]).
    pub total_ns: u64,
    /// Elements processed.
    pub total_elements: u64,
    /// The number of spans.
    pub count: u64,
}

impl CategoryStats {
    /// Mean microseconds of a span.
    #[must_use]
    pub fn avg_us(&self) -> f64 {
        ratio(self.total_ns as f64 / 1e3, self.count as f64)
    }

    /// Elements per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        ratio(self.total_elements as f64 * 1e9, self.total_ns as f64)
    }

    /// This category's share of `total` nanoseconds, in percent.
    #[must_use]
    pub fn percentage(&self, total: u64) -> f64 {
        ratio(100.0 * self.total_ns as f64, total as f64)
    }

    #[doc(hidden)]
    pub fn add(&mut self, stats: &BrickStats) {
        self.total_ns = self.total_ns.saturating_add(stats.exclusive_ns);
        self.total_elements = self.total_elements.saturating_add(stats.total_elements);
        self.count = self.count.saturating_add(stats.count);
    }
}

/// Sums bricks by category. The array is indexed by `BrickCategory as usize`.
#[doc(hidden)]
pub fn by_category<'a>(
    bricks: impl IntoIterator<Item = (BrickCategory, &'a BrickStats)>,
) -> [CategoryStats; BrickCategory::COUNT] {
    let mut sums = [CategoryStats::default(); BrickCategory::COUNT];
    for (category, stats) in bricks {
        sums[category as usize].add(stats);
    }
    sums
}

/// `a / b`, or 0.0 if `b` is 0.
#[doc(hidden)]
pub fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_the_same_as_adding_every_sample() {
        let samples = [(50, 1), (7, 2), (900, 3), (7, 4)];
        let mut all = BrickStats::new("x");
        let (mut left, mut right) = (BrickStats::new("x"), BrickStats::new("x"));
        for (i, (ns, elements)) in samples.into_iter().enumerate() {
            all.add_sample(ns, elements);
            if i % 2 == 0 { &mut left } else { &mut right }.add_sample(ns, elements);
        }
        left.merge(&right);
        let (merged, added) = (left.std_dev_ns().unwrap(), all.std_dev_ns().unwrap());
        assert!((merged - added).abs() < 1e-9 * added);
        // Of 50, 7, 900 and 7, by hand.
        assert!((added - 439.800_712_444_5).abs() < 1e-6, "{added}");
        left.squared_deviations = all.squared_deviations;
        assert_eq!(left, all);
        assert_eq!((all.count, all.total_ns, all.min_ns, all.max_ns), (4, 964, 7, 900));
        assert_eq!(all.avg_us(), 0.241);
    }

    #[test]
    fn what_too_few_spans_can_not_tell_is_absent() {
        let mut stats = BrickStats::new("x");
        assert_eq!((stats.mean_ns(), stats.std_dev_ns()), (None, None));
        stats.add_sample(100, 1);
        assert_eq!((stats.mean_ns(), stats.std_dev_ns()), (Some(100.0), None));
        assert_eq!(stats.percentiles(), Percentiles::default());
        (0..89).for_each(|_| stats.add_sample(100, 1));
        let percentiles = stats.percentiles();
        assert_eq!((percentiles.p95_ns, percentiles.p99_ns), (Some(100), None));
        // As a file may say.
        stats.min_ns = 200;
        assert!(stats.percentile_ns(0.5).is_some());
    }

    #[test]
    fn nothing_has_no_rate() {
        let none = BrickStats::new("x");
        assert_eq!((none.avg_us(), none.min_us(), none.throughput()), (0.0, 0.0, 0.0));
        assert_eq!(CategoryStats::default().percentage(0), 0.0);
    }
}
