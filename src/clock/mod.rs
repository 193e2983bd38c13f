//! Clocks: where time comes from.
//!
//! There are three: the processor's counter, if it can be trusted; otherwise the operating system's
//! monotonic clock; and a mock clock that tests advance by hand. A reading is in nanoseconds since the
//! clock was made.

mod anchor;
mod counter;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use brickscope_profile::Absent;
#[doc(no_inline)]
pub use brickscope_profile::clock::{Anchor, ClockInfo};

use self::counter::Counter;
pub(crate) use self::counter::Ticks;

/// A source of monotonic time.
#[derive(Debug, Clone)]
pub struct Clock(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Counter(Counter),
    Os(Arc<Os>),
    Mock(MockClock),
}

#[derive(Debug)]
struct Os {
    origin: Instant,
    /// Why it isn't the counter, if the counter was wanted.
    instead: Option<String>,
}

// It shares a cache line with what the recorder needs for each span.
const _: () = assert!(size_of::<Clock>() <= 32);

/// A handle that advances a mock clock. Clones advance the same clock.
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
    /// The clock that this handle advances.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Kind::Mock(self.clone()))
    }

    /// Moves the clock forward.
    pub fn advance(&self, nanos: u64) {
        self.now.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How often the clock was read, so that a test can show that it wasn't.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Default for Clock {
    /// The processor's counter, if it can be trusted; otherwise the operating system's clock.
    fn default() -> Self {
        Self::counter().unwrap_or_else(|Absent { reason }| {
            Self(Kind::Os(Arc::new(Os { origin: Instant::now(), instead: Some(reason) })))
        })
    }
}

impl Clock {
    /// The processor's counter: the TSC on x86-64, `cntvct_el0` on AArch64.
    ///
    /// The first one in a process takes 5 ms, during which the counter's rate is measured against the
    /// operating system's clock; [`describe`](Self::describe) says how precisely.
    ///
    /// # Errors
    ///
    /// Why the counter can't be trusted.
    pub fn counter() -> Result<Self, Absent> {
        match Counter::new() {
            Ok(counter) => Ok(Self(Kind::Counter(counter))),
            Err(reason) => Err(Absent { reason }),
        }
    }

    /// The processor's counter, whose time 0 is a raw count that was read earlier: for what another process recorded before
    /// this clock was made.
    ///
    /// # Errors
    ///
    /// Why the counter can't be trusted; or if `count` is yet to come, as one from before the machine was started may be.
    pub fn counter_since(count: u64) -> Result<Self, Absent> {
        let counter = Counter::new().map_err(|reason| Absent { reason })?;
        if count > Ticks::count() {
            let reason =
                "it counts less now than it did then: the machine was started anew".to_owned();
            return Err(Absent { reason });
        }
        Ok(Self(Kind::Counter(counter.since(count))))
    }

    /// The operating system's monotonic clock.
    #[must_use]
    pub fn os() -> Self {
        Self(Kind::Os(Arc::new(Os { origin: Instant::now(), instead: None })))
    }

    /// Nanoseconds since this clock was made.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> u64 {
        match &self.0 {
            Kind::Counter(counter) => counter.ticks().now(),
            slower => slower.now(),
        }
    }

    /// The processor's counter as it is now, for [`time_of_count`](Self::time_of_count) and
    /// [`counter_since`](Self::counter_since). `None` if this clock isn't the counter.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.ticks().map(|_| Ticks::count())
    }

    /// The nanoseconds of a raw count of the processor's counter, which another thread or process may have read (`rdtsc`,
    /// `cntvct_el0`). `None` if this clock isn't the counter.
    #[must_use]
    pub fn time_of_count(&self, count: u64) -> Option<u64> {
        self.ticks().map(|ticks| ticks.at(count))
    }

    /// What a reading needs, if this is the processor's counter.
    pub(crate) fn ticks(&self) -> Option<Ticks> {
        match &self.0 {
            Kind::Counter(counter) => Some(counter.ticks()),
            _ => None,
        }
    }

    /// A description of this clock, without the figures that need many readings.
    pub(crate) fn describe_unmeasured(&self) -> ClockInfo {
        let mut info = ClockInfo { source: self.source().to_owned(), ..ClockInfo::default() };
        match &self.0 {
            Kind::Mock(_) => {
                let why = "a mock clock stands still between two turns of its hand";
                info.absent = Some(why.to_owned());
            }
            Kind::Os(os) => info.instead.clone_from(&os.instead),
            Kind::Counter(counter) => {
                info.hertz = Some(counter.rate().hertz);
                info.hertz_error_ppm = counter.rate().error_ppm;
                info.calibrated_over_ns = counter.rate().measured_over.map(nanos);
                if let Some((ppm, over)) = counter.drift() {
                    info.drift_ppm = Some(ppm);
                    info.drift_over_ns = Some(nanos(over));
                }
            }
        }
        info
    }

    /// A description of this clock, with its resolution and the cost of a reading as measured now, and its
    /// drift against the operating system's clock since it was made.
    ///
    /// Takes up to a millisecond for a real clock. A mock clock has no such figures.
    #[must_use]
    pub fn describe(&self) -> ClockInfo {
        let mut info = self.describe_unmeasured();
        if self.is_mock() {
            return info;
        }
        const READS: u32 = if cfg!(miri) { 100 } else { 20_000 };
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
        info.resolution_ns = (resolution != u64::MAX).then_some(resolution);
        info.read_ns = Some((last - first) as f64 / f64::from(READS));
        info
    }

    /// `tsc`, `cntvct_el0`, `os` or `mock`.
    #[must_use]
    pub fn source(&self) -> &'static str {
        match &self.0 {
            Kind::Counter(_) => counter::NAME,
            Kind::Os(_) => "os",
            Kind::Mock(_) => "mock",
        }
    }

    /// This moment on this clock and on the system's; `None` for a mock clock, and if the system has no
    /// clock that other programs can read too.
    #[must_use]
    pub fn anchor(&self) -> Option<Anchor> {
        if self.is_mock() { None } else { anchor::now(self) }
    }

    /// Whether its time 0 is from before it was made, so that it is for what another process recorded.
    pub(crate) fn counts_from_before(&self) -> bool {
        matches!(&self.0, Kind::Counter(counter) if counter.counts_from_before())
    }

    pub(crate) fn is_mock(&self) -> bool {
        matches!(self.0, Kind::Mock(_))
    }
}

impl Kind {
    /// Out of line, so that a reading of the counter is short enough to be inlined everywhere.
    #[inline(never)]
    fn now(&self) -> u64 {
        match self {
            Self::Counter(counter) => counter.ticks().now(),
            // 2^64 ns are 584 years.
            Self::Os(os) => os.origin.elapsed().as_nanos() as u64,
            Self::Mock(hand) => {
                hand.reads.fetch_add(1, Ordering::Relaxed);
                hand.now.load(Ordering::Relaxed)
            }
        }
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_clock_runs_backwards() {
        for clock in [Clock::os(), Clock::default()] {
            let mut last = clock.now();
            for _ in 0..if cfg!(miri) { 50 } else { 100_000 } {
                let now = clock.now();
                assert!(now >= last, "{clock:?}");
                last = now;
            }
        }
    }

    #[test]
    fn the_counter_keeps_the_time_of_the_operating_system() {
        let Ok(counter) = Clock::counter() else {
            eprintln!("skipped: no counter here");
            return;
        };
        // Read around each other, so that an interruption can only widen what is allowed.
        let os = Clock::os();
        let (before, start, after) = (counter.now(), os.now(), counter.now());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let (least, end, most) = (counter.now(), os.now(), counter.now());
        let (shortest, longest) = (least - after, most - before);
        let elapsed = end - start;
        // A thousandth: calibration over 5 ms errs by some millionths, and NTP may slew by 500.
        assert!(shortest as f64 <= 1.001 * elapsed as f64, "{shortest} {elapsed}");
        assert!(longest as f64 >= 0.999 * elapsed as f64, "{longest} {elapsed}");
        let mut info = counter.describe();
        assert!(info.hertz.is_some_and(|hertz| hertz > 1e6), "{info:?}");
        // What interrupts a reading is small beside the time between two, once that is long enough.
        for _ in 0..10_000 {
            if info.drift_ppm.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(30));
            info = counter.describe();
        }
        assert!(info.drift_ppm.is_some_and(|ppm| ppm.abs() < 1e3), "{info:?}");
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
