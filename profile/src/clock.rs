//! What is known of the clock behind a profile.

use serde::{Deserialize, Serialize};

/// A description of the clock behind a profile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockInfo {
    /// `tsc`, `cntvct_el0`, `os` or `mock`.
    pub source: String,
    /// The smallest nonzero difference seen between two readings, in nanoseconds.
    pub resolution_ns: Option<u64>,
    /// The cost of one reading, in nanoseconds: the mean of many in a row.
    pub read_ns: Option<f64>,
    /// For a counter, its counts per second.
    pub hertz: Option<f64>,
    /// The most that `hertz` can differ from the operating system's clock, in parts per million; `None` if
    /// the processor stated it.
    pub hertz_error_ppm: Option<f64>,
    /// How long `hertz` was measured against the operating system's clock.
    pub calibrated_over_ns: Option<u64>,
    /// How far the counter ran ahead of the operating system's clock since it was made, in parts per
    /// million; `None` until a millisecond or two give it to one part per million.
    pub drift_ppm: Option<f64>,
    /// The time over which that drift was seen.
    pub drift_over_ns: Option<u64>,
    /// Moments on both this clock and the system's, in the order of time: in a profile, when profiling was
    /// first turned on and when the profile was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub anchors: Vec<Anchor>,
    /// Why the clock is not the processor's counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Why a figure is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// One moment on several clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The moment on the profile's clock.
    pub at_ns: u64,
    /// The moment on `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The moment on `CLOCK_MONOTONIC_RAW`.
    pub monotonic_raw_ns: u64,
    /// The moment in nanoseconds since 1970, by `CLOCK_REALTIME`; `None` in files from before it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ns: Option<u64>,
    /// How long the readings took. `at_ns` is in the middle, so its error is at most half of this.
    pub width_ns: u64,
}

impl ClockInfo {
    /// When a moment of this clock was on `CLOCK_MONOTONIC`, which all programs of a machine share. `None` if the clocks were
    /// never read together, or ran at different rates: the machine was suspended, say.
    #[must_use]
    pub fn monotonic_ns(&self, at_ns: u64) -> Option<u64> {
        let (first, last) = (self.anchors.first()?, self.anchors.last()?);
        let ours = last.at_ns.saturating_sub(first.at_ns);
        let system = last.monotonic_ns.saturating_sub(first.monotonic_ns);
        // Between two readings that are close, their own length counts as a rate.
        let rate = if ours >= LEAST_APART { system as f64 / ours as f64 } else { 1.0 };
        if !(0.999..1.001).contains(&rate) {
            return None;
        }
        let since = i128::from(at_ns) - i128::from(first.at_ns);
        // Some days at most, where `f64` has nanoseconds.
        let at = i128::from(first.monotonic_ns) + (since as f64 * rate).round() as i128;
        u64::try_from(at).ok()
    }

    /// When a moment of this clock was in nanoseconds since 1970, by the first reading of the calendar's clock beside this one.
    /// All moments are as far apart there as here, whatever corrected the calendar's clock since. `None` if it was never read.
    #[must_use]
    pub fn unix_ns(&self, at_ns: u64) -> Option<u64> {
        let read = |anchor: &Anchor| Some((anchor.at_ns, anchor.unix_ns?));
        let (here, there) = self.anchors.iter().find_map(read)?;
        match at_ns.checked_sub(here) {
            Some(since) => there.checked_add(since),
            None => there.checked_sub(here - at_ns),
        }
    }
}

/// So far apart in nanoseconds two readings tell how fast a clock runs.
const LEAST_APART: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(anchors: &[(u64, u64)]) -> ClockInfo {
        let anchors = anchors.iter().map(|&(at_ns, monotonic_ns)| Anchor {
            at_ns,
            monotonic_ns,
            monotonic_raw_ns: 0,
            unix_ns: None,
            width_ns: 50,
        });
        ClockInfo { anchors: anchors.collect(), ..ClockInfo::default() }
    }

    #[test]
    fn a_moment_is_found_on_the_system_s_clock() {
        const SECOND: u64 = 1_000_000_000;
        assert_eq!(clock(&[]).monotonic_ns(5), None);
        assert_eq!(clock(&[(100, 1_100)]).monotonic_ns(50), Some(1_050));
        // 20 nanoseconds in a microsecond say nothing of how fast it runs.
        assert_eq!(clock(&[(0, 1_000), (1_000, 2_020)]).monotonic_ns(SECOND), Some(SECOND + 1_000));
        let slow = clock(&[(0, 7 * SECOND), (10 * SECOND, 17 * SECOND + 10_000)]);
        assert_eq!(slow.monotonic_ns(5 * SECOND), Some(12 * SECOND + 5_000));
        assert_eq!(slow.monotonic_ns(20 * SECOND), Some(27 * SECOND + 20_000));
        assert_eq!(clock(&[(0, 0), (SECOND, 2 * SECOND)]).monotonic_ns(1), None);
        // Before the system's clock began.
        assert_eq!(clock(&[(100, 50)]).monotonic_ns(10), None);
    }

    #[test]
    fn moments_are_as_far_apart_in_the_calendar() {
        let mut clock = clock(&[(100, 0), (200, 0), (300, 0)]);
        assert_eq!(clock.unix_ns(5), None);
        clock.anchors[1].unix_ns = Some(5_000);
        clock.anchors[2].unix_ns = Some(1);
        let at = [0, 199, 200, 1_000].map(|at| clock.unix_ns(at));
        assert_eq!(at, [Some(4_800), Some(4_999), Some(5_000), Some(5_800)]);
        clock.anchors[1].unix_ns = Some(7);
        assert_eq!((clock.unix_ns(1), clock.unix_ns(u64::MAX)), (None, Some(u64::MAX - 193)));
    }
}
