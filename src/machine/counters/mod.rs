//! Hardware counters: the processor's own counts while bricks run.
//!
//! Nothing here estimates. A counter that the machine lacks is absent, and so is one that the kernel had to
//! multiplex, since its value would be an extrapolation.

#[cfg(all(target_os = "linux", feature = "counters"))]
mod perf;

use std::{fmt, io};

use brickscope_profile::{Absent, CounterReading};
#[cfg(all(target_os = "linux", feature = "counters"))]
pub(crate) use perf::Counters;
#[cfg(all(target_os = "linux", feature = "counters"))]
pub use perf::{probe_counters, probe_sampling};

/// A source of counts while bricks run.
pub(crate) trait ReadCounters: fmt::Debug + Send {
    /// The counts so far.
    fn read(&mut self) -> io::Result<CounterReading>;
}

impl ReadCounters for Counters {
    fn read(&mut self) -> io::Result<CounterReading> {
        Self::read(self)
    }
}

/// Something that this machine can't do, and what would enable it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is missing, as a part of a sentence.
    pub what: String,
    /// The remedy: a command to run, or a sentence.
    pub fix: String,
}

impl From<Missing> for Absent {
    fn from(missing: Missing) -> Self {
        Self { reason: format!("{}: {}", missing.what, missing.fix) }
    }
}

/// The fallback without counters: another system, or a build without them.
#[cfg(not(all(target_os = "linux", feature = "counters")))]
mod none {
    use std::convert::Infallible;
    use std::io;

    use brickscope_profile::{Absent, CounterReading};

    use super::Missing;

    /// Counters that can't exist.
    #[derive(Debug)]
    pub(crate) struct Counters(Infallible);

    impl Counters {
        pub(crate) fn open() -> Result<Self, Absent> {
            Err(missing().into())
        }

        pub(crate) fn read(&mut self) -> io::Result<CounterReading> {
            match self.0 {}
        }

        pub(crate) fn absent(&self) -> Vec<Absent> {
            match self.0 {}
        }
    }

    /// Opens the hardware counters and takes one reading; those that this machine lacks are `None`.
    ///
    /// # Errors
    ///
    /// The reason, if there are none.
    pub fn probe_counters() -> Result<CounterReading, Missing> {
        Err(missing())
    }

    /// Whether this process may sample itself with a software clock.
    ///
    /// # Errors
    ///
    /// The reason, if it may not.
    pub fn probe_sampling() -> Result<(), Missing> {
        Err(missing())
    }

    fn missing() -> Missing {
        if cfg!(target_os = "linux") {
            Missing {
                what: "built without performance counters".to_owned(),
                fix: "build brickscope with `--features counters`".to_owned(),
            }
        } else {
            Missing {
                what: format!("no performance counters on {}", std::env::consts::OS),
                fix: "run on Linux, which has `perf_event_open`".to_owned(),
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", feature = "counters")))]
pub(crate) use none::Counters;
#[cfg(not(all(target_os = "linux", feature = "counters")))]
pub use none::{probe_counters, probe_sampling};

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(cycles: u64, llc_misses: Option<u64>, wanted: u64, counted: u64) -> CounterReading {
        CounterReading {
            cycles: Some(cycles),
            instructions: Some(2 * cycles),
            llc_misses,
            branch_misses: Some(1),
            wanted_ns: wanted,
            counted_ns: counted,
        }
    }

    #[test]
    fn an_interval_is_a_difference_and_a_counter_that_is_not_there_stays_absent() {
        let interval = reading(150, None, 9_000, 9_000).since(&reading(100, None, 4_000, 4_000));
        assert_eq!((interval.cycles, interval.instructions), (Some(50), Some(100)));
        assert_eq!((interval.llc_misses, interval.branch_misses), (None, Some(0)));
        assert_eq!(interval.absent(), None);
    }

    #[test]
    fn counters_that_were_shared_out_are_absent_and_not_scaled() {
        let shared =
            reading(150, Some(3), 9_000, 6_500).since(&reading(100, Some(2), 4_000, 4_000));
        assert_eq!((shared.cycles, shared.branch_misses), (None, None));
        let reason = shared.absent().expect("a reason").reason;
        assert!(reason.contains("for 2 of 5 µs"), "{reason}");
        // What was lost before the interval doesn't matter to it.
        let later =
            reading(170, Some(4), 10_000, 7_500).since(&reading(150, Some(3), 9_000, 6_500));
        assert_eq!((later.cycles, later.llc_misses), (Some(20), Some(1)));
    }

    #[test]
    fn a_sum_lacks_what_one_of_its_terms_lacks() {
        let mut sum = CounterReading::ZERO;
        sum.add(&reading(10, Some(1), 1_000, 1_000));
        sum.add(&reading(20, None, 1_000, 1_000));
        assert_eq!((sum.cycles, sum.llc_misses, sum.wanted_ns), (Some(30), None, 2_000));
    }

    #[test]
    fn without_counters_there_is_a_reason_and_no_reading() {
        match Counters::open() {
            Ok(mut counters) => {
                let lacking = counters.absent();
                eprintln!("skipped: {:?}, lacking {lacking:?}", counters.read());
            }
            Err(Absent { reason }) => {
                let (what, fix) = reason.split_once(": ").expect("what is missing, and the fix");
                assert!(!what.is_empty() && !fix.is_empty());
                assert_eq!(probe_counters().map_err(Absent::from), Err(Absent { reason }));
            }
        }
    }
}
