//! What is known of the clock behind a profile.

use serde::{Deserialize, Serialize};

/// What is known of the clock behind a profile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockInfo {
    /// `tsc`, `cntvct_el0`, `os` or `mock`.
    pub source: String,
    /// The smallest difference seen between two readings that differ, in nanoseconds.
    pub resolution_ns: Option<u64>,
    /// What one reading costs, in nanoseconds: the mean of many in a row.
    pub read_ns: Option<f64>,
    /// Of a counter: how often it counts in a second.
    pub hertz: Option<f64>,
    /// The most that `hertz` can be off the operating system's clock by, in millionths; `None` if the
    /// processor stated it.
    pub hertz_error_ppm: Option<f64>,
    /// Over how long `hertz` was measured against the operating system's clock.
    pub calibrated_over_ns: Option<u64>,
    /// By how many millionths the counter ran ahead of the operating system's clock since it was
    /// made; `None` until a millisecond or two allow to say it to one millionth.
    pub drift_ppm: Option<f64>,
    /// Over how long that was seen.
    pub drift_over_ns: Option<u64>,
    /// The same moments by this clock and by the system's, in the order of time: of a profile, when
    /// profiling was first turned on and when the profile was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub anchors: Vec<Anchor>,
    /// Why the clock is not the processor's counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Why a figure is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// One moment by several clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// By the clock of the profile.
    pub at_ns: u64,
    /// By `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// By `CLOCK_MONOTONIC_RAW`.
    pub monotonic_raw_ns: u64,
    /// How long the readings took: `at_ns` is in the middle, so half of it is the most that it is off
    /// by.
    pub width_ns: u64,
}
