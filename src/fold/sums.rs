//! The sums of some spans of one name: counts, times, work and their distribution.

use brickscope_profile::{BrickStats, CounterSums, DataSums, Histogram, Work};

/// The sums of some spans.
#[derive(Debug, Clone)]
pub(crate) struct Sums {
    pub(crate) count: u64,
    pub(crate) total: u64,
    pub(crate) exclusive: u64,
    min: u64,
    max: u64,
    /// `max`, but at most [`LONGEST_COMMON`].
    max_common: u64,
    /// Of the durations. Exact while it fits, and a lower bound from there on.
    squares: Squares,
    work: Work,
    data: DataSums,
    pub(super) histogram: Histogram,
    pub(super) counters: Option<Box<CounterSums>>,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            count: 0,
            total: 0,
            exclusive: 0,
            min: u64::MAX,
            max: 0,
            max_common: 0,
            squares: Squares::default(),
            work: Work::default(),
            data: DataSums::default(),
            histogram: Histogram::default(),
            counters: None,
        }
    }
}

impl Sums {
    /// Whether it took more memory.
    #[inline]
    pub(super) fn add(&mut self, duration: u64, exclusive: u64, work: Work) -> bool {
        self.widen_range(duration, duration);
        self.squares.add(square(duration));
        self.add_to_totals(duration, exclusive, work);
        self.histogram.record_widening(duration)
    }

    /// Adds it if it lies between the shortest and the longest so far, is at most [`LONGEST_COMMON`], its bucket has
    /// memory, and the sums don't overflow. Else `None`, and nothing is done.
    #[inline(always)]
    pub(super) fn add_common(&mut self, duration: u64, exclusive: u64, work: Work) -> Option<()> {
        // Where there are none yet, the shortest is longer than the longest.
        if duration < self.min || duration > self.max_common {
            return None;
        }
        let total = self.total.checked_add(duration)?;
        let exclusive = self.exclusive.checked_add(exclusive)?;
        let elements = self.work.elements.checked_add(work.elements)?;
        let low = self.squares.low.checked_add(duration * duration)?;
        self.histogram.record_common(duration)?;
        self.squares.low = low;
        self.count += 1;
        (self.total, self.exclusive, self.work.elements) = (total, exclusive, elements);
        if work.flops | work.bytes != 0 {
            self.work.flops = self.work.flops.saturating_add(work.flops);
            self.work.bytes = self.work.bytes.saturating_add(work.bytes);
            self.data.add(&work);
        }
        Some(())
    }

    fn widen_range(&mut self, min: u64, max: u64) {
        self.min = self.min.min(min);
        self.max = self.max.max(max);
        self.max_common = self.max.min(LONGEST_COMMON);
    }

    #[inline(always)]
    fn add_to_totals(&mut self, duration: u64, exclusive: u64, work: Work) {
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        self.exclusive = self.exclusive.saturating_add(exclusive);
        self.work.elements = self.work.elements.saturating_add(work.elements);
        if work.flops | work.bytes != 0 {
            self.work.flops = self.work.flops.saturating_add(work.flops);
            self.work.bytes = self.work.bytes.saturating_add(work.bytes);
            self.data.add(&work);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
        self.widen_range(other.min, other.max);
        self.squares.add(other.squares.get());
        self.work.elements = self.work.elements.saturating_add(other.work.elements);
        self.work.flops = self.work.flops.saturating_add(other.work.flops);
        self.work.bytes = self.work.bytes.saturating_add(other.work.bytes);
        self.data.merge(&other.data);
        self.histogram.merge(&other.histogram);
        if let Some(counters) = &other.counters {
            self.counters.get_or_insert_default().merge(counters);
        }
    }

    pub(crate) fn counters(&self) -> Option<&CounterSums> {
        self.counters.as_deref()
    }

    /// Forgets all spans, and keeps the memory.
    pub(super) fn clear(&mut self) {
        let mut histogram = std::mem::take(&mut self.histogram);
        histogram.clear();
        *self = Self { histogram, ..Self::default() };
    }

    /// Adds these spans to `stats`.
    pub(crate) fn add_to(&self, stats: &mut BrickStats) {
        self.add_without_histogram(stats);
        // By itself, without a copy in between.
        stats.histogram.merge(&self.histogram);
    }

    /// The same but for the distribution, which is most of what there is to read.
    pub(crate) fn add_without_histogram(&self, stats: &mut BrickStats) {
        if self.count == 0 {
            return;
        }
        // In whole numbers while they fit: sum of squares − sum² ÷ count, without the cancellation of
        // floats.
        let (count, total) = (u128::from(self.count), u128::from(self.total));
        let exact = count
            .checked_mul(self.squares.get())
            .and_then(|squares| Some(squares.saturating_sub(total.checked_mul(total)?)));
        let deviations = match exact {
            Some(scaled) => scaled as f64 / self.count as f64,
            None => {
                let mean = self.total as f64 / self.count as f64;
                (self.squares.get() as f64 - mean * self.total as f64).max(0.0)
            }
        };
        stats.merge(&BrickStats {
            name: String::new(),
            count: self.count,
            total_ns: self.total,
            exclusive_ns: self.exclusive,
            min_ns: self.min,
            max_ns: self.max,
            squared_deviations: deviations,
            total_elements: self.work.elements,
            total_flops: self.work.flops,
            total_bytes: self.work.bytes,
            data: self.data,
            histogram: Histogram::default(),
        });
    }
}

/// Some 2 s. The squares of a few that are no longer fit 64 bits.
const LONGEST_COMMON: u64 = (1 << 31) - 1;
const _: () = assert!(LONGEST_COMMON <= Histogram::MOST_COMMON);

/// A sum of squares. In halves, so that a square that has room in the lower one takes one addition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Squares {
    low: u64,
    high: u64,
}

impl Squares {
    fn get(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    fn add(&mut self, squares: u128) {
        let sum = self.get().saturating_add(squares);
        (self.low, self.high) = (sum as u64, (sum >> 64) as u64);
    }
}

fn square(duration: u64) -> u128 {
    u128::from(duration) * u128::from(duration)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_like_those_before_adds_up_as_all_else(
            spans in prop::collection::vec(
                (
                    // The squares of so few fit; beyond that the two are not the same.
                    prop_oneof![
                        0..300_u64,
                        1000..5000_u64,
                        LONGEST_COMMON - 3..LONGEST_COMMON + 3,
                        0..1_u64 << 59,
                    ],
                    any::<u64>(),
                    prop_oneof![Just(0_u64), 1..9_u64, any::<u64>()],
                ),
                0..200,
            ),
        ) {
            let (mut one_by_one, mut sums) = (Sums::default(), Sums::default());
            for (duration, exclusive, n) in spans {
                let work = Work { elements: n, flops: n / 2, bytes: n / 3, data: brickscope_profile::Data::Weights(n / 4) };
                let (min, max, count) = (sums.min, sums.max, sums.count);
                one_by_one.add(duration, exclusive, work);
                if sums.add_common(duration, exclusive, work).is_none() {
                    prop_assert_eq!(sums.count, count);
                    sums.add(duration, exclusive, work);
                } else {
                    prop_assert!((min..=max.min(LONGEST_COMMON)).contains(&duration));
                }
            }
            let all = |sums: &Sums| {
                let Sums { count, total, exclusive, min, max, squares, work, .. } = *sums;
                ([count, total, exclusive, min, max], squares, work)
            };
            prop_assert_eq!(all(&sums), all(&one_by_one));
            prop_assert_eq!(sums.histogram, one_by_one.histogram);
        }
    }

    #[test]
    fn what_is_common_lies_between_the_shortest_and_the_longest() {
        let mut sums = Sums::default();
        let is_common = |sums: &mut Sums, duration| {
            sums.add_common(duration, duration, Work::default()).is_some()
        };
        for duration in [0, 100, u64::MAX] {
            assert!(!is_common(&mut sums, duration));
        }
        for duration in [100, 200] {
            sums.add(duration, duration, Work::default());
        }
        let tried = [99, 100, 150, 200, 201].map(|duration| is_common(&mut sums, duration));
        assert_eq!(tried, [false, true, true, true, false]);
        assert_eq!((sums.count, sums.total), (5, 750));
        sums.clear();
        for duration in [0, 150, u64::MAX] {
            assert!(!is_common(&mut sums, duration));
        }
        for duration in [LONGEST_COMMON - 1, LONGEST_COMMON + 1] {
            sums.add(duration, duration, Work::default());
        }
        let tried = [0, 1].map(|more| is_common(&mut sums, LONGEST_COMMON + more));
        assert_eq!(tried, [true, false]);
    }
}
