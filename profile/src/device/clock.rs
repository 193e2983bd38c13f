//! A device's clock, and its alignment with the host's clock.

use serde::{Deserialize, Serialize};

/// How a device counts time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ticks {
    /// Nanoseconds per tick.
    pub ns_per_tick: f64,
    /// The smallest step between readings, in nanoseconds, if it was measured or stated. No time is more
    /// accurate than this.
    pub resolution_ns: Option<f64>,
    /// The number of valid low bits of a reading. The counter wraps to 0 when they are full.
    pub valid_bits: u32,
}

impl Ticks {
    /// From one reading to a later one, in nanoseconds, rounded. `None` if `later` is in fact earlier, that
    /// is, more than half of the counter's range away.
    #[must_use]
    pub fn between(&self, earlier: u64, later: u64) -> Option<u64> {
        let mask = u64::MAX.checked_shr(64 - self.valid_bits.clamp(1, 64)).unwrap_or(u64::MAX);
        let ticks = later.wrapping_sub(earlier) & mask;
        if ticks > mask / 2 {
            return None;
        }
        let nanos = ticks as f64 * self.ns_per_tick;
        // Without a float if a tick is a nanosecond: its 53 bits cover only 104 days.
        Some(if self.ns_per_tick == 1.0 { ticks } else { nanos.round() as u64 })
    }
}

impl Ticks {
    /// From one reading to another, in nanoseconds, rounded; negative if the other one was earlier. The
    /// counter may have wrapped in between: of all possible times, this is the one nearest to `about_ns`.
    #[must_use]
    pub fn near(&self, from: u64, to: u64, about_ns: i64) -> i64 {
        let bits = self.valid_bits.clamp(1, 64);
        let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(u64::MAX);
        let turn = i128::from(mask) + 1;
        let ticks = i128::from(to.wrapping_sub(from) & mask);
        let about = (about_ns as f64 / self.ns_per_tick) as i128;
        let away = about.saturating_sub(ticks).saturating_add(turn / 2);
        let ticks = ticks.saturating_add(away.div_euclid(turn).saturating_mul(turn));
        let nanos = if self.ns_per_tick == 1.0 {
            ticks
        } else {
            (ticks as f64 * self.ns_per_tick).round() as i128
        };
        nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// A reading of the device's clock between two readings of the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bracket {
    /// The host's reading before, in nanoseconds of the profiler's clock.
    pub host_before_ns: u64,
    /// The device's reading.
    pub device_ticks: u64,
    /// The host's reading after.
    pub host_after_ns: u64,
}

impl Bracket {
    /// The time between the host's readings, in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.host_after_ns.saturating_sub(self.host_before_ns)
    }
}

/// How a device's clock is aligned with the host's, and how accurately that is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alignment {
    /// A moment, in nanoseconds of the profiler's clock.
    pub host_ns: u64,
    /// The same moment, as the device reads it.
    pub device_ticks: u64,
    /// The largest possible time between these two readings: half the width of the narrowest bracket.
    pub error_ns: u64,
}

impl Alignment {
    /// The alignment by the narrowest of these brackets; `None` without any.
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

    /// The host's time at which the device read `ticks`. Since the counter wraps, it is the possible time
    /// nearest to `about_host_ns`.
    #[must_use]
    pub fn host_ns(&self, clock: &Ticks, ticks: u64, about_host_ns: u64) -> u64 {
        let about = difference(self.host_ns, about_host_ns);
        self.host_ns.saturating_add_signed(clock.near(self.device_ticks, ticks, about))
    }

    /// How far the device's clock has run ahead of the host's from this alignment to a later one. `None`
    /// if there is no time between them.
    #[must_use]
    pub fn drift(&self, clock: &Ticks, later: &Self) -> Option<Drift> {
        let over_ns = later.host_ns.checked_sub(self.host_ns).filter(|&over| over > 0)?;
        let host = difference(self.host_ns, later.host_ns);
        let device = clock.near(self.device_ticks, later.device_ticks, host);
        let millionth = over_ns as f64 / 1e6;
        Some(Drift {
            ppm: device.saturating_sub(host) as f64 / millionth,
            error_ppm: self.error_ns.saturating_add(later.error_ns) as f64 / millionth,
            over_ns,
        })
    }
}

fn difference(from: u64, to: u64) -> i64 {
    let apart = i128::from(to) - i128::from(from);
    apart.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// How much faster a device's clock runs than the host's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Parts per million.
    pub ppm: f64,
    /// The largest possible error of `ppm`, from the errors of both alignments.
    pub error_ppm: f64,
    /// The time over which it was measured, in nanoseconds of the host.
    pub over_ns: u64,
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
        assert_eq!(alignment.host_ns(&ticks, 10, 0), 1_205);
        assert_eq!(alignment.host_ns(&ticks, 7, 0), 905);
        assert_eq!(Alignment::of(&[]), None);
    }

    #[test]
    fn the_host_resolves_how_often_a_counter_of_few_bits_wrapped() {
        // It begins again every 256 µs.
        let clock = Ticks { ns_per_tick: 1_000.0, resolution_ns: None, valid_bits: 8 };
        let aligned = Alignment { host_ns: 5_000_000, device_ticks: 250, error_ns: 100 };
        for true_ns in [5_000_000_u64, 5_010_000, 4_900_000, 5_256_000, 9_999_000, 1_000_000] {
            let ticks = (250 + (true_ns as i64 - 5_000_000) / 1_000).rem_euclid(256) as u64;
            for off in [-100_000, 0, 100_000] {
                let about = true_ns.saturating_add_signed(off);
                assert_eq!(aligned.host_ns(&clock, ticks, about), true_ns);
            }
        }
    }

    #[test]
    fn drift_has_an_error() {
        let clock = Ticks { ns_per_tick: 1.0, resolution_ns: None, valid_bits: 64 };
        let first = Alignment { host_ns: 1_000, device_ticks: u64::MAX - 9, error_ns: 20 };
        let later = Alignment { host_ns: 1_000_001_000, device_ticks: 1_000_029_990, error_ns: 80 };
        let drift = first.drift(&clock, &later).expect("a second");
        assert_eq!((drift.ppm, drift.over_ns), (30.0, 1_000_000_000));
        assert!((drift.error_ppm - 0.1).abs() < 1e-9);
        assert_eq!(first.drift(&clock, &first), None);
    }
}
