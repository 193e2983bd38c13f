//! Where time comes from.
//!
//! Two clocks: the operating system's monotonic one, and one that a test turns by hand. A reading
//! is in nanoseconds since the clock was made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// A source of monotonic time.
#[derive(Debug, Clone)]
pub struct Clock(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Os { origin: Instant },
    Mock(MockClock),
}

/// The hand that turns a mock clock. Clones turn the same clock.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, MockClock};
///
/// let hand = MockClock::default();
/// let profiler = BrickProfiler::with_clock(hand.clock());
/// profiler.enable();
/// let timer = profiler.start_brick(BrickId::LmHead);
/// hand.advance(310_000);
/// profiler.stop_brick(timer, 32_000);
/// assert_eq!(profiler.brick_stats(BrickId::LmHead).total_ns, 310_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct MockClock {
    now: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl MockClock {
    /// The clock that this hand turns.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Kind::Mock(self.clone()))
    }

    /// Moves the clock forward by so many nanoseconds.
    pub fn advance(&self, nanos: u64) {
        self.now.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How often the clock was read, so that a test can show that it was not.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::os()
    }
}

impl Clock {
    /// The operating system's monotonic clock.
    #[must_use]
    pub fn os() -> Self {
        Self(Kind::Os { origin: Instant::now() })
    }

    /// Nanoseconds since this clock was made.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        match &self.0 {
            // 2^64 ns are 584 years.
            Kind::Os { origin } => origin.elapsed().as_nanos() as u64,
            Kind::Mock(hand) => {
                hand.reads.fetch_add(1, Ordering::Relaxed);
                hand.now.load(Ordering::Relaxed)
            }
        }
    }

    /// What this clock is, with its resolution and the cost of a reading as measured now.
    ///
    /// Takes about a millisecond on a real clock. A mock clock has neither figure.
    #[must_use]
    pub fn describe(&self) -> ClockInfo {
        match &self.0 {
            Kind::Mock(_) => ClockInfo {
                source: "mock".to_owned(),
                resolution_ns: None,
                read_ns: None,
                absent: Some("a mock clock stands still between two turns of its hand".to_owned()),
            },
            Kind::Os { .. } => {
                const READS: u32 = 20_000;
                let mut resolution = u64::MAX;
                let first = self.now();
                let mut last = first;
                for _ in 0..READS {
                    let now = self.now();
                    if now > last {
                        resolution = resolution.min(now - last);
                    }
                    last = now;
                }
                ClockInfo {
                    source: "os".to_owned(),
                    resolution_ns: (resolution != u64::MAX).then_some(resolution),
                    read_ns: Some((last - first) as f64 / f64::from(READS)),
                    absent: None,
                }
            }
        }
    }

    pub(crate) fn is_mock(&self) -> bool {
        matches!(self.0, Kind::Mock(_))
    }
}

/// What is known of the clock behind a profile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClockInfo {
    /// `os` or `mock`.
    pub source: String,
    /// The smallest difference seen between two readings that differ, in nanoseconds.
    pub resolution_ns: Option<u64>,
    /// What one reading costs, in nanoseconds: the mean of many in a row.
    pub read_ns: Option<f64>,
    /// Why a figure is missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub absent: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_os_clock_never_runs_backwards() {
        let clock = Clock::os();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_mock_clock_moves_only_by_hand_and_counts_its_readings() {
        let hand = MockClock::default();
        let clock = hand.clock();
        assert_eq!((clock.now(), clock.now()), (0, 0));
        hand.advance(7);
        assert_eq!(clock.now(), 7);
        assert_eq!(hand.reads(), 3);
        assert_eq!(clock.describe().resolution_ns, None);
    }

    #[test]
    fn a_real_clock_says_what_a_reading_costs() {
        let info = Clock::os().describe();
        assert!(info.read_ns.is_some_and(|ns| ns > 0.0), "{info:?}");
    }
}
