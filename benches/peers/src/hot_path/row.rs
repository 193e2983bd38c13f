//! What is timed, and what it is held against.

use std::time::Instant;

/// Something that is timed in batches.
pub(crate) struct Row<'a> {
    /// How the JSON and other rows call it.
    pub(crate) id: &'static str,
    /// How the table calls it.
    pub(crate) name: String,
    /// Spans in a batch at most; some peers have no room for more.
    pub(crate) most: usize,
    /// Runs a batch of so many spans and returns the nanoseconds of one.
    pub(crate) batch: Box<dyn FnMut(usize) -> f64 + 'a>,
    pub(crate) target: Option<Target>,
}

/// A bound for the ratio of a row to another one of the same round.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) bound: Bound,
    /// The other row: its id, and its name in the table.
    pub(crate) base: &'static str,
    pub(crate) base_name: &'static str,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// The row costs at most so many times the base.
    AtMost(f64),
    /// The base is ours: the row costs more than so many times it.
    MoreThan(f64),
}

impl Bound {
    pub(crate) fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::MoreThan(limit) => ratio > limit,
        }
    }
}

/// The row that all others are held against.
pub(crate) const PAIR: &str = "raw_pair";

impl<'a> Row<'a> {
    pub(crate) fn new(
        id: &'static str,
        name: impl Into<String>,
        batch: impl FnMut(usize) -> f64 + 'a,
    ) -> Self {
        Self { id, name: name.into(), most: 1 << 16, batch: Box::new(batch), target: None }
    }

    /// Sets how many spans a batch may have.
    pub(crate) fn most(mut self, spans: usize) -> Self {
        self.most = spans;
        self
    }

    /// Sets a target against two raw readings.
    pub(crate) fn at_most(self, limit: f64) -> Self {
        self.at_most_times(limit, PAIR, "two raw readings")
    }

    /// Sets a target against another row.
    pub(crate) fn at_most_times(
        mut self,
        limit: f64,
        base: &'static str,
        base_name: &'static str,
    ) -> Self {
        self.target = Some(Target { bound: Bound::AtMost(limit), base, base_name });
        self
    }

    /// For a peer: says how many times ours it costs at least.
    pub(crate) fn more_than_ours(mut self, limit: f64, ours: &'static str) -> Self {
        self.target = Some(Target { bound: Bound::MoreThan(limit), base: ours, base_name: "ours" });
        self
    }
}

/// Runs `span` so many times; returns the nanoseconds of one.
#[inline(always)]
pub(crate) fn timed(spans: usize, mut span: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..spans {
        span();
    }
    start.elapsed().as_nanos() as f64 / spans as f64
}
