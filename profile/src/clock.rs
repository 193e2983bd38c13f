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
    /// How long the readings took. `at_ns` is in the middle, so its error is at most half of this.
    pub width_ns: u64,
}
