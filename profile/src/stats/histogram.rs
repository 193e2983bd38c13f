//! A histogram of durations: percentiles to within 1 %, in a few hundred numbers.

use serde::{Deserialize, Serialize};

/// The buckets of each power of two, all of the same width. A value lies at most half a width from the
/// middle of its bucket: 1/128 of it, 0.8 %. Below 128 every value has a bucket of its own.
const PARTS: u64 = 64;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// The number of values in each of a fixed set of buckets. Any two histograms can be added up.
///
/// The buckets are those of an HDR histogram (<https://hdrhistogram.org>): linear within each power
/// of two. Only the span between the smallest and the largest value takes memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Buckets", into = "Buckets")]
pub struct Histogram {
    /// The bucket that `counts[0]` counts; a multiple of [`PARTS`].
    first: usize,
    counts: Vec<u64>,
}

/// Equal if the same buckets have the same counts, however much room there is around them.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.buckets().eq(other.buckets())
    }
}

impl Eq for Histogram {}

/// The form in files: the lowest value of each bucket that isn't empty, and its count.
#[derive(Serialize, Deserialize)]
struct Buckets(Vec<(u64, u64)>);

impl From<Histogram> for Buckets {
    fn from(histogram: Histogram) -> Self {
        Self(histogram.buckets().map(|(bucket, count)| (lowest(bucket), count)).collect())
    }
}

impl From<Buckets> for Histogram {
    fn from(Buckets(buckets): Buckets) -> Self {
        let mut histogram = Self::default();
        for (value, count) in buckets {
            histogram.add(value, count);
        }
        histogram
    }
}

fn bucket_of(value: u64) -> usize {
    let shift = (u64::BITS - 1 - PART_BITS) - (value | PARTS).leading_zeros();
    (shift as usize) * PARTS as usize + (value >> shift) as usize
}

/// As [`bucket_of`], for values that a float holds exactly. Without `lzcnt`, counting leading zeros takes 8
/// operations on Zen 4; converting to a float takes fewer.
#[inline(always)]
fn bucket_of_common(value: u64) -> usize {
    debug_assert!(value <= Histogram::MOST_COMMON);
    if cfg!(not(target_arch = "x86_64")) || cfg!(target_feature = "lzcnt") {
        bucket_of(value)
    } else if value < 2 * PARTS {
        value as usize
    } else {
        bucket_by_float(value)
    }
}

/// As [`bucket_of`], for values from [`PARTS`] on: a float's exponent counts powers of two, and the highest
/// bits of its fraction are the bucket within one.
#[inline(always)]
fn bucket_by_float(value: u64) -> usize {
    // From a signed number the conversion is one instruction.
    let bits = (value as i64 as f64).to_bits() >> (f64::MANTISSA_DIGITS - 1 - PART_BITS);
    let exponent_of_parts = (f64::MAX_EXP - 1) as u64 + u64::from(PART_BITS);
    bits.wrapping_sub((exponent_of_parts - 1) << PART_BITS) as usize
}

/// The lowest value in a bucket.
fn lowest(bucket: usize) -> u64 {
    let shift = (bucket / PARTS as usize).saturating_sub(1);
    ((bucket - shift * PARTS as usize) as u64) << shift
}

/// The value that stands for all values of a bucket: the one in the middle.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket / PARTS as usize).saturating_sub(1);
    lowest(bucket) + ((1 << shift) >> 1)
}

impl Histogram {
    /// The largest value for [`record_common`](Self::record_common): a float holds it exactly, and all below.
    #[doc(hidden)]
    pub const MOST_COMMON: u64 = 1 << f64::MANTISSA_DIGITS;

    /// Adds a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_widening(value);
    }

    /// Adds a value. Returns whether that took more memory.
    #[doc(hidden)]
    pub fn record_widening(&mut self, value: u64) -> bool {
        let bucket = bucket_of(value);
        let has_room = self.record_in(bucket).is_some();
        if !has_room {
            self.make_room(bucket, 1);
        }
        !has_room
    }

    /// Adds a value of at most [`MOST_COMMON`](Self::MOST_COMMON), or returns `None` if that needs more memory.
    #[inline(always)]
    #[doc(hidden)]
    pub fn record_common(&mut self, value: u64) -> Option<()> {
        self.record_in(bucket_of_common(value))
    }

    #[inline(always)]
    fn record_in(&mut self, bucket: usize) -> Option<()> {
        let sum = self.counts.get_mut(bucket.wrapping_sub(self.first))?;
        // Counting one at a time, it takes centuries to wrap.
        *sum = sum.wrapping_add(1);
        Some(())
    }

    fn add(&mut self, value: u64, count: u64) {
        let bucket = bucket_of(value);
        match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => self.make_room(bucket, count),
        }
    }

    #[cold]
    fn make_room(&mut self, bucket: usize, count: u64) {
        let parts = PARTS as usize;
        let first = bucket / parts * parts;
        if self.counts.is_empty() {
            self.first = first;
        }
        if first < self.first {
            let missing = self.first - first;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = first;
        }
        let needed = first + parts - self.first;
        if self.counts.len() < needed {
            self.counts.resize(needed, 0);
        }
        let sum = &mut self.counts[bucket - self.first];
        *sum = sum.saturating_add(count);
    }

    /// Makes room for all values for which `other` has room.
    #[doc(hidden)]
    pub fn widen_to(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        // Both ends, so that everything between them has room.
        let last = other.first + other.counts.len() - 1;
        for end in [other.first, last] {
            if self.counts.get(end.wrapping_sub(self.first)).is_none() {
                self.make_room(end, 0);
            }
        }
    }

    /// Adds all the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        self.widen_to(other);
        let offset = other.first - self.first;
        for (mine, others) in self.counts[offset..].iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*others);
        }
    }

    /// Removes all values, and keeps the memory.
    #[doc(hidden)]
    pub fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (self.first..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// The buckets that aren't empty, lowest first: the least value in it, the least value above it, and the
    /// number of values. Bounds are the same in all histograms.
    pub fn bounds(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let above =
            |bucket| if bucket == bucket_of(u64::MAX) { u64::MAX } else { lowest(bucket + 1) };
        self.buckets().map(move |(bucket, count)| (lowest(bucket), above(bucket), count))
    }

    /// The number of values below `bound`: exact if a bucket begins there, as one does at every power of two
    /// and at each value below 128; otherwise without the values in the bucket of `bound`.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        let end = bucket_of(bound);
        self.buckets()
            .take_while(|&(bucket, _)| bucket < end)
            .fold(0, |sum, (_, count)| u64::saturating_add(sum, count))
    }

    /// How many values lie in buckets above that of `bound`, and their sum, in which each counts as the middle of its
    /// bucket: to within 0.8 %.
    #[must_use]
    pub fn above(&self, bound: u64) -> (u64, u64) {
        let end = bucket_of(bound);
        self.buckets().filter(|&(bucket, _)| bucket > end).fold(
            (0, 0),
            |(n, sum), (bucket, count)| {
                let of_bucket = middle(bucket).saturating_mul(count);
                (u64::saturating_add(n, count), u64::saturating_add(sum, of_bucket))
            },
        )
    }

    /// The value that the share `quantile` (0 to 1) of all values does not exceed, by nearest rank and to
    /// within 0.8 %; `None` if there are too few values to state it
    /// ([`least_count`](Self::least_count)).
    #[must_use]
    pub fn percentile(&self, quantile: f64) -> Option<u64> {
        let [percentile] = self.percentiles([quantile]);
        percentile
    }

    /// Several percentiles, with quantiles in ascending order: live views ask for them many times a second,
    /// so this takes a single pass over the buckets.
    #[doc(hidden)]
    pub fn percentiles<const N: usize>(&self, quantiles: [f64; N]) -> [Option<u64>; N] {
        let count = self.count();
        let ranks = quantiles.map(|quantile| {
            let is_enough = Self::least_count(quantile).is_some_and(|least| count >= least);
            is_enough.then(|| ((quantile * count as f64).ceil() as u64).clamp(1, count))
        });
        let mut found = [None; N];
        let (mut seen, mut next) = (0, 0);
        for (bucket, count) in self.buckets() {
            seen = u64::saturating_add(seen, count);
            while let Some(&rank) = ranks.get(next) {
                match rank {
                    Some(rank) if seen < rank => break,
                    Some(_) => found[next] = Some(middle(bucket)),
                    None => {}
                }
                next += 1;
            }
            if next == N {
                break;
            }
        }
        found
    }

    /// The number of values needed to state a percentile: enough that with 99 % confidence at least one of
    /// them lies above it, `ln 0.01 / ln quantile`. That is 7 for p50, 44 for p90, 90 for p95, 459 for p99.
    /// `None` if `quantile` doesn't lie between 0 and 1.
    ///
    /// The confidence is of the greatest value: it lies above the true percentile. It is not of the percentile that
    /// is shown, which lies below the true one about as often as above, however many values there are; with that many
    /// only its place among the values is no guess.
    ///
    /// The bound is that of MLPerf's early stopping without a miss (MLCommons inference rules, appendix on
    /// early stopping).
    #[must_use]
    pub fn least_count(quantile: f64) -> Option<u64> {
        let inside = quantile > 0.0 && quantile < 1.0;
        inside.then(|| (0.01_f64.ln() / quantile.ln()).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_percentile_takes_as_many_values_as_the_plan_says() {
        let least = [0.5, 0.9, 0.95, 0.99, 0.999].map(Histogram::least_count);
        assert_eq!(least, [Some(7), Some(44), Some(90), Some(459), Some(4603)]);
        assert_eq!([0.0, 1.0, f64::NAN].map(Histogram::least_count), [None; 3]);
        let mut histogram = Histogram::default();
        (0..43).for_each(|value| histogram.record(value));
        assert_eq!(histogram.percentile(0.9), None);
        histogram.record(43);
        assert_eq!(histogram.percentile(0.9), Some(39));
    }

    #[test]
    fn every_bucket_begins_where_the_one_before_it_ends() {
        for bucket in 0..bucket_of(u64::MAX) {
            assert_eq!(bucket_of(lowest(bucket)), bucket);
            assert_eq!(bucket_of(lowest(bucket + 1) - 1), bucket);
            assert_eq!(bucket_of(middle(bucket)), bucket);
        }
        assert_eq!(bucket_of(u64::MAX), 57 * 64 + 127);
    }

    #[test]
    fn a_float_says_the_same_bucket_as_leading_zeros() {
        let most = Histogram::MOST_COMMON;
        for bucket in 0..=bucket_of(most) {
            let last = lowest(bucket + 1) - 1;
            for value in [lowest(bucket), middle(bucket), last].map(|value| value.min(most)) {
                assert_eq!(bucket_of_common(value), bucket);
                if value >= PARTS {
                    assert_eq!(bucket_by_float(value), bucket);
                }
            }
        }
    }

    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let spread = prop_oneof![0u64..300, 1_000u64..100_000, any::<u64>()];
        prop::collection::vec(spread, 0..800)
    }

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    proptest! {
        #[test]
        fn a_percentile_is_within_a_hundredth_of_the_sorted_values(mut values in durations()) {
            let histogram = of(&values);
            values.sort_unstable();
            for quantile in [0.5, 0.9, 0.95, 0.99] {
                let enough = values.len() as u64 >= Histogram::least_count(quantile).unwrap();
                prop_assert_eq!(histogram.percentile(quantile).is_some(), enough);
                if let Some(found) = histogram.percentile(quantile) {
                    let rank = (quantile * values.len() as f64).ceil() as usize;
                    let exact = values[rank - 1];
                    prop_assert!(found.abs_diff(exact) as f64 <= 0.01 * exact as f64);
                }
            }
        }

        #[test]
        fn what_is_below_a_power_of_two_is_counted_exactly(values in durations(), power in 0..64) {
            let bound = 1_u64 << power;
            let below = values.iter().filter(|&&value| value < bound).count() as u64;
            prop_assert_eq!(of(&values).below(bound), below);
        }

        #[test]
        fn adding_up_is_the_same_as_recording_all(left in durations(), right in durations()) {
            let mut sum = of(&left);
            sum.merge(&of(&right));
            let all = of(&[left, right].concat());
            prop_assert_eq!(&sum, &all);
            let json = serde_json::to_string(&sum).expect("numbers");
            let read: Histogram = serde_json::from_str(&json).expect("it was written");
            prop_assert_eq!(read.buckets().collect::<Vec<_>>(), all.buckets().collect::<Vec<_>>());
        }
    }
}
