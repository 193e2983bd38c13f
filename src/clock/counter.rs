//! The processor's counter: the cheapest clock, if it can be trusted.
//!
//! On x86-64 it is the time-stamp counter, whose rate no source states reliably: it is measured against the
//! operating system's clock. On AArch64 it is the virtual counter, which states its own rate.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A counter of known rate. A reading takes one instruction that waits for nothing, a multiplication, and a
/// shift of one number; on some processors, a shift of the product, which is in two registers, takes as
/// long as all of them.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    ticks: Ticks,
    about: Arc<About>,
}

/// All that a reading needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ticks {
    /// The count at nanosecond 0.
    origin: u64,
    /// Nanoseconds per count, times 2^(64 - [`SHIFT`]).
    scale: u64,
}

#[derive(Debug)]
struct About {
    /// The same moment on both clocks, to check the drift.
    start: Moment,
    rate: Rate,
}

pub(super) use self::hardware::NAME;

/// Counts are shifted by this, so that the upper half of the product is in nanoseconds. `scale` then fits
/// 64 bits from 125 MHz on (15 MHz on AArch64, where counters are slower), and counts last 18 years at
/// 4 GHz (9 years at 1 GHz).
const SHIFT: u32 = if cfg!(target_arch = "aarch64") { 6 } else { 3 };

/// How fast a counter counts, and how precisely that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) hertz: f64,
    /// The most that `hertz` can differ from the operating system's clock, in parts per million. `None` if
    /// the processor stated the rate.
    pub(super) error_ppm: Option<f64>,
    /// How long it was measured.
    pub(super) measured_over: Option<Duration>,
}

/// One moment on the counter and on the operating system's clock.
#[derive(Debug, Clone, Copy)]
struct Moment {
    count: u64,
    os: Instant,
    /// How many counts passed while both were read.
    width: u64,
}

/// NTP may slew the operating system's clock by this many parts per million.
const SLEW_PPM: f64 = 500.0;

impl Rate {
    /// The more precise of the two rates, or this one if they contradict each other. While a machine is
    /// suspended, its counter may go on while the operating system's clock stops: a rate over such a
    /// time is wrong, however long it was.
    fn or_better(self, later: Self) -> Self {
        let errors = self.error_ppm.unwrap_or(0.0) + later.error_ppm.unwrap_or(0.0);
        let apart = 1e6 * (later.hertz / self.hertz - 1.0).abs();
        let is_better = later.error_ppm < self.error_ppm;
        if is_better && apart <= errors + SLEW_PPM { later } else { self }
    }
}

impl Moment {
    fn now() -> Self {
        let read = || {
            let before = hardware::count();
            let os = Instant::now();
            let width = hardware::count().saturating_sub(before);
            Self { count: before + width / 2, os, width }
        };
        // An interrupt between the readings widens them; the narrowest had none.
        (0..32).map(|_| read()).min_by_key(|moment| moment.width).unwrap_or_else(read)
    }

    /// The rate between two moments. The uncertainty of each is half its width.
    fn rate_until(&self, later: &Self) -> Option<Rate> {
        let counts = later.count.checked_sub(self.count).filter(|&counts| counts > 0)? as f64;
        let over = later.os.checked_duration_since(self.os).filter(|over| !over.is_zero())?;
        let error_ppm = Some(1e6 * (self.width + later.width) as f64 / 2.0 / counts);
        Some(Rate { hertz: counts / over.as_secs_f64(), error_ppm, measured_over: Some(over) })
    }
}

/// The first moment at which this process needed a counter.
static FIRST: OnceLock<Moment> = OnceLock::new();
/// The best rate so far. One that was measured over a longer time replaces it.
static KNOWN: Mutex<Option<Rate>> = Mutex::new(None);

/// The least time over which a counter's rate is measured, once in a process.
const LEAST: Duration = Duration::from_millis(5);

impl Counter {
    /// # Errors
    ///
    /// Why this processor's counter can't be used as a clock.
    pub(super) fn new() -> Result<Self, String> {
        hardware::trusted()?;
        let rate = match hardware::stated_hertz() {
            Some(hertz) => Rate { hertz, error_ppm: None, measured_over: None },
            None => measured_rate()?,
        };
        let scale = 1e9 / rate.hertz * (1u128 << (64 - SHIFT)) as f64;
        if !(1.0..u64::MAX as f64).contains(&scale) {
            return Err(format!(
                "it counts at {:.0} Hz, which is not a rate for a clock",
                rate.hertz
            ));
        }
        let about = Arc::new(About { start: Moment::now(), rate });
        let ticks = Ticks { origin: hardware::count(), scale: scale as u64 };
        Ok(Self { ticks, about })
    }

    /// The same clock, whose time 0 is a count that was read before it was made.
    pub(super) fn since(mut self, count: u64) -> Self {
        self.ticks.origin = count;
        self
    }

    /// Whether its time 0 is from before it was made.
    pub(super) fn counts_from_before(&self) -> bool {
        self.ticks.origin < self.about.start.count
    }

    /// How fast it counts.
    pub(super) fn rate(&self) -> &Rate {
        &self.about.rate
    }

    #[inline(always)]
    pub(super) fn ticks(&self) -> Ticks {
        self.ticks
    }

    /// The drift between this counter and the operating system's clock since it was made, in parts per
    /// million (positive: the counter is ahead), and over how long. `None` until the uncertainty of the
    /// reading is below one part per million.
    pub(super) fn drift(&self) -> Option<(f64, Duration)> {
        let now = Moment::now();
        let seen = self.about.start.rate_until(&now)?;
        if seen.error_ppm? > 1.0 {
            return None;
        }
        Some((1e6 * (seen.hertz / self.about.rate.hertz - 1.0), seen.measured_over?))
    }
}

impl Ticks {
    /// Nanoseconds since this counter was made.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.at(Self::count())
    }

    /// The counter's raw value, for [`at`](Self::at).
    #[inline(always)]
    pub(crate) fn count() -> u64 {
        hardware::count()
    }

    /// The time of a raw value.
    #[inline(always)]
    pub(crate) fn at(&self, count: u64) -> u64 {
        // Saturating: this thread may have moved to a core that is a few counts behind.
        self.nanos(count.saturating_sub(self.origin))
    }

    #[inline(always)]
    fn nanos(&self, counts: u64) -> u64 {
        ((u128::from(counts << SHIFT) * u128::from(self.scale)) >> 64) as u64
    }
}

fn measured_rate() -> Result<Rate, String> {
    let first = FIRST.get_or_init(Moment::now);
    if let Some(rest) = LEAST.checked_sub(first.os.elapsed()) {
        std::thread::sleep(rest);
    }
    let seen = first
        .rate_until(&Moment::now())
        .ok_or_else(|| "it did not move on while the operating system's clock did".to_owned())?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let rate = known.map_or(seen, |known: Rate| known.or_better(seen));
    Ok(*known.insert(rate))
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod hardware {
    #![allow(unsafe_code, reason = "reading the counter takes an instruction")]

    use std::arch::x86_64::{__cpuid, _rdtsc};

    pub(in crate::clock) const NAME: &str = "tsc";

    #[inline(always)]
    pub(super) fn count() -> u64 {
        // SAFETY: every x86-64 processor has it, and no memory is touched.
        unsafe { _rdtsc() }
    }

    /// Whether the counter ticks at one rate in all states of the processor and, if there is a kernel that
    /// checks, synchronously on all cores.
    pub(super) fn trusted() -> Result<(), String> {
        const EXTENDED: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        #[allow(
            unused_unsafe,
            reason = "it is safe in later compilers than the oldest that builds this"
        )]
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        let cpuid = |leaf| unsafe { __cpuid(leaf) };
        let invariant = cpuid(EXTENDED).eax >= POWER && cpuid(POWER).edx & INVARIANT != 0;
        if !invariant {
            return Err(
                "this processor's counter changes its rate (CPUID has no invariant TSC)".to_owned()
            );
        }
        // Linux removes the counter from this list if cores disagree or it drifts.
        let file = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        match std::fs::read_to_string(file) {
            Ok(sources) if !sources.split_whitespace().any(|source| source == "tsc") => {
                Err(format!("the kernel does not trust the TSC: {file} lacks it"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn stated_hertz() -> Option<f64> {
        None
    }
}

#[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
mod hardware {
    #![allow(unsafe_code, reason = "reading the counter takes an instruction")]

    use std::arch::asm;

    pub(in crate::clock) const NAME: &str = "cntvct_el0";

    #[inline(always)]
    pub(super) fn count() -> u64 {
        let count: u64;
        // SAFETY: user space may read it on every system that Rust has a standard library for; no
        // memory and no flags are touched.
        unsafe {
            asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags))
        };
        count
    }

    pub(super) fn trusted() -> Result<(), String> {
        Ok(())
    }

    pub(super) fn stated_hertz() -> Option<f64> {
        let hertz: u64;
        // SAFETY: as above.
        unsafe {
            asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags))
        };
        // Firmware that doesn't set it leaves a 0.
        (hertz > 0).then_some(hertz as f64)
    }
}

#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod hardware {
    pub(in crate::clock) const NAME: &str = "none";

    pub(super) fn count() -> u64 {
        0
    }

    pub(super) fn trusted() -> Result<(), String> {
        Err("this processor has no counter that brickscope knows".to_owned())
    }

    pub(super) fn stated_hertz() -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(base: Instant, nanos: u64, width: u64) -> Moment {
        Moment { count: 1_000 + 3 * nanos, os: base + Duration::from_nanos(nanos), width }
    }

    #[test]
    fn a_rate_is_as_uncertain_as_its_ends_are_wide() {
        let base = Instant::now();
        let rate = moment(base, 0, 30).rate_until(&moment(base, 1_000_000, 60)).expect("it moves");
        assert!((rate.hertz - 3e9).abs() < 1.0, "{rate:?}");
        // Half of 30 and half of 60, of three million.
        assert_eq!(rate.error_ppm, Some(15.0));
    }

    #[test]
    fn a_longer_look_makes_a_rate_better_unless_the_machine_slept_meanwhile() {
        let rate = |hertz, ppm| Rate { hertz, error_ppm: Some(ppm), measured_over: None };
        let short = rate(3.000_01e9, 8.0);
        assert_eq!(short.or_better(rate(3e9, 0.1)).hertz, 3e9);
        assert_eq!(short.or_better(rate(3e9, 9.0)).hertz, short.hertz);
        assert_eq!(short.or_better(rate(21e9, 0.01)).hertz, short.hertz);
    }

    #[test]
    fn a_counter_that_stands_still_or_runs_backwards_has_no_rate() {
        let base = Instant::now();
        let (early, late) = (moment(base, 0, 0), moment(base, 10, 0));
        assert!(early.rate_until(&early).is_none());
        assert!(late.rate_until(&early).is_none());
    }

    #[test]
    fn counts_become_nanoseconds_without_losing_any_over_years() {
        let Ok(counter) = Counter::new() else {
            eprintln!("skipped: no counter here");
            return;
        };
        let year = 365.25 * 86_400.0 * 1e9;
        let nanos = counter.ticks.nanos((year * counter.rate().hertz / 1e9) as u64);
        assert!((nanos as f64 / year - 1.0).abs() < 1e-12, "{nanos}");
    }
}
