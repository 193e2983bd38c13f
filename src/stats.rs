//! Counts and sums of spans, per brick and per category.

use serde::{Deserialize, Serialize};

use crate::brick::{BrickCategory, Work};

/// What one brick did, over all its spans.
///
/// Rates and averages of nothing are 0.0, as in the predecessor's API; look at `count` first. Views
/// and exports never print them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BrickStats {
    /// The brick's name.
    pub name: String,
    /// Spans recorded.
    pub count: u64,
    /// Nanoseconds from begin to end, summed. A brick inside a brick counts in both.
    pub total_ns: u64,
    /// The part of `total_ns` that no brick inside this one accounts for. These add up, over all
    /// bricks of a thread, to the time that bricks explain. 0 for kernels, which explain no time
    /// of their own.
    pub exclusive_ns: u64,
    /// The shortest span, in nanoseconds; `u64::MAX` if there is none.
    pub min_ns: u64,
    /// The longest span, in nanoseconds.
    pub max_ns: u64,
    /// Elements processed.
    pub total_elements: u64,
    /// Floating-point operations, as far as they were stated; in files `null` where none were.
    #[serde(with = "stated")]
    pub total_flops: u64,
    /// Bytes moved, as far as they were stated; in files `null` where none were.
    #[serde(with = "stated")]
    pub total_bytes: u64,
}

impl BrickStats {
    /// A brick that has done nothing yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), min_ns: u64::MAX, ..Self::default() }
    }

    /// Adds a span of `elapsed_ns` with nothing inside it.
    pub fn add_sample(&mut self, elapsed_ns: u64, elements: u64) {
        self.add(elapsed_ns, elapsed_ns, Work::elements(elements));
    }

    /// Adds a span of which `exclusive_ns` were its own.
    pub(crate) fn add(&mut self, elapsed_ns: u64, exclusive_ns: u64, work: Work) {
        self.count = self.count.saturating_add(1);
        self.total_ns = self.total_ns.saturating_add(elapsed_ns);
        self.exclusive_ns = self.exclusive_ns.saturating_add(exclusive_ns);
        self.min_ns = self.min_ns.min(elapsed_ns);
        self.max_ns = self.max_ns.max(elapsed_ns);
        self.total_elements = self.total_elements.saturating_add(work.elements);
        self.total_flops = self.total_flops.saturating_add(work.flops);
        self.total_bytes = self.total_bytes.saturating_add(work.bytes);
    }

    /// Adds all the spans that `other` stands for.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.exclusive_ns = self.exclusive_ns.saturating_add(other.exclusive_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.total_elements = self.total_elements.saturating_add(other.total_elements);
        self.total_flops = self.total_flops.saturating_add(other.total_flops);
        self.total_bytes = self.total_bytes.saturating_add(other.total_bytes);
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

/// Work that nobody stated isn't written as 0: a reader would take that for a count.
pub(crate) mod stated {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(work: &u64, to: S) -> Result<S::Ok, S::Error> {
        some(*work).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Option::deserialize(from).map(Option::unwrap_or_default)
    }

    pub(crate) fn some(work: u64) -> Option<u64> {
        (work > 0).then_some(work)
    }
}

/// What the bricks of one category did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CategoryStats {
    /// Nanoseconds, counted once where one brick lies inside another
    /// ([`BrickStats::exclusive_ns`]).
    pub total_ns: u64,
    /// Elements processed.
    pub total_elements: u64,
    /// Spans recorded.
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

    pub(crate) fn add(&mut self, stats: &BrickStats) {
        self.total_ns += stats.exclusive_ns;
        self.total_elements += stats.total_elements;
        self.count += stats.count;
    }
}

/// Sums bricks by category. The array is indexed by `BrickCategory as usize`.
pub(crate) fn by_category<'a>(
    bricks: impl IntoIterator<Item = (BrickCategory, &'a BrickStats)>,
) -> [CategoryStats; BrickCategory::COUNT] {
    let mut sums = [CategoryStats::default(); BrickCategory::COUNT];
    for (category, stats) in bricks {
        sums[category as usize].add(stats);
    }
    sums
}

/// `a / b`, and 0.0 where there is nothing to divide by.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
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
        assert_eq!(left, all);
        assert_eq!((all.count, all.total_ns, all.min_ns, all.max_ns), (4, 964, 7, 900));
        assert_eq!(all.avg_us(), 0.241);
    }

    #[test]
    fn nothing_has_no_rate() {
        let none = BrickStats::new("x");
        assert_eq!((none.avg_us(), none.min_us(), none.throughput()), (0.0, 0.0, 0.0));
        assert_eq!(CategoryStats::default().percentage(0), 0.0);
    }
}
