//! A device's clock, and how it lies beside the host's.

use serde::{Deserialize, Serialize};

/// How a device counts time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ticks {
    /// Nanoseconds of one tick.
    pub ns_per_tick: f64,
    /// The smallest step that its readings make, in nanoseconds, if it was measured or stated: no time is
    /// known better than that.
    pub resolution_ns: Option<f64>,
    /// How many low bits of a reading count; it begins again at 0 when they are full.
    pub valid_bits: u32,
}

impl Ticks {
    /// From one reading to a later one, in nanoseconds, rounded. `None` if `later` is earlier: more than
    /// half a turn of the counter away.
    #[must_use]
    pub fn between(&self, earlier: u64, later: u64) -> Option<u64> {
        let mask = u64::MAX.checked_shr(64 - self.valid_bits.clamp(1, 64)).unwrap_or(u64::MAX);
        let ticks = later.wrapping_sub(earlier) & mask;
        if ticks > mask / 2 {
            return None;
        }
        let nanos = ticks as f64 * self.ns_per_tick;
        // As it is, where a tick is a nanosecond: 53 bits of a float are 104 days.
        Some(if self.ns_per_tick == 1.0 { ticks } else { nanos.round() as u64 })
    }
}

/// The same moment by both clocks: the device's lies between two readings of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bracket {
    /// Before, in nanoseconds of the profiler's clock.
    pub host_before_ns: u64,
    /// The device's reading.
    pub device_ticks: u64,
    /// After.
    pub host_after_ns: u64,
}

impl Bracket {
    /// How far apart the host's readings are, in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.host_after_ns.saturating_sub(self.host_before_ns)
    }
}

/// How a device's clock lies beside the host's, and how well that is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alignment {
    /// A moment, in nanoseconds of the profiler's clock.
    pub host_ns: u64,
    /// The same moment, as the device reads it.
    pub device_ticks: u64,
    /// The most that these two can be apart: half the width of the narrowest bracket.
    pub error_ns: u64,
}

impl Alignment {
    /// By the narrowest of some brackets; `None` without any.
    #[must_use]
    pub fn of(brackets: &[Bracket]) -> Option<Self> {
        let best = brackets.iter().min_by_key(|bracket| bracket.width_ns())?;
        let half = best.width_ns() / 2;
        Some(Self {
            host_ns: best.host_before_ns + half,
            device_ticks: best.device_ticks,
            error_ns: best.width_ns().div_ceil(2),
        })
    }

    /// When the host's clock read what, as the device read `ticks`. Moments before that of the alignment
    /// are told from later ones by half a turn of the counter.
    #[must_use]
    pub fn host_ns(&self, clock: &Ticks, ticks: u64) -> u64 {
        match clock.between(self.device_ticks, ticks) {
            Some(after) => self.host_ns.saturating_add(after),
            None => {
                let before = clock.between(ticks, self.device_ticks).unwrap_or(0);
                self.host_ns.saturating_sub(before)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_again_goes_on() {
        let ticks = Ticks { ns_per_tick: 2.5, resolution_ns: None, valid_bits: 32 };
        assert_eq!(ticks.between(0xffff_fffe, 2), Some(10));
        assert_eq!(ticks.between(2, 0xffff_fffe), None);
        assert_eq!(ticks.between(7, 7), Some(0));
        let whole = Ticks { ns_per_tick: 1.0, resolution_ns: None, valid_bits: 64 };
        assert_eq!(whole.between(u64::MAX, 4), Some(5));
    }

    #[test]
    fn the_narrowest_bracket_aligns() {
        let bracket = |before, ticks, after| Bracket {
            host_before_ns: before,
            device_ticks: ticks,
            host_after_ns: after,
        };
        let brackets = [bracket(100, 5, 900), bracket(1_000, 8, 1_011), bracket(2_000, 9, 2_900)];
        let alignment = Alignment::of(&brackets).expect("there are some");
        assert_eq!((alignment.host_ns, alignment.error_ns), (1_005, 6));
        let ticks = Ticks { ns_per_tick: 100.0, resolution_ns: None, valid_bits: 64 };
        assert_eq!(alignment.host_ns(&ticks, 10), 1_205);
        assert_eq!(alignment.host_ns(&ticks, 7), 905);
        assert_eq!(Alignment::of(&[]), None);
    }
}
