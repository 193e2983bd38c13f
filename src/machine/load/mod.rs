//! How other processes disturbed this one: how they competed for its cores.
//!
//! A brick that shares its core with another program is timed correctly, and yet its time says nothing about
//! the model. So the load is read at the end of each pass, and at its begin if some time has passed since the end of
//! the last. Costs of one reading with 2 CPUs, Linux 6.18, in a loop and between passes that evict the caches:
//!
//! | source | says | in a loop | between passes | read |
//! |---|---|---|---|---|
//! | `/proc/self/task/*/schedstat` | running and waiting for a core, one thread a file | 0.6 µs a thread | 15 µs, and 2.5 µs for each further thread | always |
//! | `/proc/self/task` | how many threads there are | 0.4 µs | 6 µs | every 10 ms |
//! | `getrusage` | page faults; involuntary switches, used where there is no `schedstat`; all threads | 0.4 µs | 5 µs | always |
//! | `/proc/stat` | CPU time of the whole machine, stolen time | 5 µs, more with more CPUs | 40 µs | every 100 ms |
//! | `/proc/self/task/*/stat`, the group's `cpu.stat` | on which CPU threads ran; throttling | 2 µs a thread, 3 µs | | where threads waited |
//! | `/proc/self/task/*/status` | on which CPUs threads may run | 12 µs a thread | | where threads waited, every 100 ms |

mod budget;
mod proc;
mod stat;
mod throttle;
mod waits;
mod watch;

use std::fmt;
use std::path::Path;
use std::time::Instant;

use brickscope_profile::Disturbance;

use self::budget::Budget;
use self::stat::{Stat, Steal};
use self::throttle::Throttle;
use self::waits::{SlotTimes, Waits, longest, own_part};
pub use self::watch::LoadWatch;
use crate::machine::os;

/// Who made a thread wait is asked if it waited for more than one part in this many of an interval.
const LONG_WAIT: u64 = 200;

/// An interval has a figure for steal only if it is this many times longer than the distance between
/// looks, so that the uncertainty of the looks at its two ends is a small part of it.
const STEAL_LOOKS: u64 = 10;

/// One reading of a [`LoadMeter`], which is meaningful only together with an earlier one of the same
/// meter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoadReading {
    at_ns: u64,
    /// How long no other reading should follow, so that readings take no more than their part of the time.
    pub(crate) lasts_ns: u64,
    usage: Option<os::Usage>,
    waits: Option<SlotTimes>,
    steal: Option<Steal>,
    /// As last read.
    throttled_ns: Option<u64>,
}

impl LoadReading {
    /// What happened between an earlier reading of the same meter and this one, but for its cause.
    fn since(&self, earlier: &Self) -> Disturbance {
        let gap_ns = self.at_ns.saturating_sub(earlier.at_ns);
        let steal = |now: Steal, then: Steal| {
            let every_ns = now.every_ns.max(then.every_ns);
            let enough = gap_ns >= every_ns.saturating_mul(STEAL_LOOKS);
            if enough { now.ns.checked_sub(then.ns) } else { None }
        };
        let grown = self.grown(earlier);
        let sum = grown.and_then(|grown| {
            grown.iter().try_fold(0_u64, |sum, times| sum.checked_add(times.wait_ns))
        });
        let used = |of: fn(&os::Usage) -> u64| {
            difference(self.usage.as_ref().map(of), earlier.usage.as_ref().map(of))
        };
        // Where the waiting is known, nobody needs the switches.
        let is_needed = self.waits.is_none() || earlier.waits.is_none();
        Disturbance {
            involuntary_switches: used(|usage| usage.involuntary_switches).filter(|_| is_needed),
            page_faults: used(|usage| usage.page_faults),
            disk_faults: used(|usage| usage.disk_faults),
            run_queue_wait_ns: sum,
            longest_wait_ns: grown.map(|grown| longest(&grown).1),
            steal_ns: self.steal.zip(earlier.steal).and_then(|(now, then)| steal(now, then)),
            ..Disturbance::default()
        }
    }

    /// How long the thread in each slot has run and waited since an earlier reading.
    fn grown(&self, earlier: &Self) -> Option<SlotTimes> {
        let (now, then) = self.waits.as_ref().zip(earlier.waits.as_ref())?;
        let mut grown = *now;
        for (grown, then) in grown.iter_mut().zip(then) {
            grown.run_ns = grown.run_ns.checked_sub(then.run_ns)?;
            grown.wait_ns = grown.wait_ns.checked_sub(then.wait_ns)?;
        }
        Some(grown)
    }
}

fn difference(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    now?.checked_sub(then?)
}

/// Reads the load on this process. Opens its files once; a reading allocates only if threads have begun
/// or ended since the last, or waited for the first time.
pub(crate) struct LoadMeter {
    now_ns: Box<dyn Fn() -> u64 + Send>,
    waits: Option<Waits>,
    stat: Option<Stat>,
    throttle: Throttle,
    budget: Budget,
}

impl fmt::Debug for LoadMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadMeter").field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl LoadMeter {
    /// Opens the files that exist. Values of the others will be `None` in each reading.
    pub(crate) fn open() -> Self {
        let origin = Instant::now();
        Self {
            now_ns: Box::new(move || nanos_since(origin)),
            waits: Waits::open(Path::new("/proc")),
            stat: Stat::open(origin),
            throttle: Throttle::open(),
            budget: Budget::new(),
        }
    }

    /// As [`open`](Self::open), for what tests write into a folder in the place of `/proc`, by their own clock.
    #[cfg(all(test, target_os = "linux", not(miri)))]
    pub(crate) fn open_below(proc: &Path, now_ns: impl Fn() -> u64 + Send + 'static) -> Self {
        Self {
            now_ns: Box::new(now_ns),
            waits: Waits::open(proc),
            stat: None,
            throttle: Throttle::default(),
            budget: Budget::new(),
        }
    }

    /// Takes a reading after a pause, from which the next one counts: it looks for new threads, and at throttling.
    pub(crate) fn read_anew(&mut self) -> LoadReading {
        if let Some(waits) = &mut self.waits {
            waits.listed_ns = None;
        }
        self.throttle.look();
        self.read()
    }

    /// Takes a reading, see the table above for what it costs.
    ///
    /// It reads `/proc/stat` only if the last time was 100 ms ago, or a thousand times the cost of doing
    /// so, whichever is longer; other readings repeat the last value.
    pub(crate) fn read(&mut self) -> LoadReading {
        let reading = self.read_unpaid();
        self.pay(reading)
    }

    /// A reading whose cost the budget doesn't know yet.
    fn read_unpaid(&mut self) -> LoadReading {
        let at_ns = (self.now_ns)();
        let waits = self.waits.as_mut().and_then(|waits| waits.read(at_ns));
        LoadReading {
            at_ns,
            lasts_ns: 0,
            usage: os::usage(),
            waits,
            steal: self.stat.as_mut().and_then(|stat| stat.steal(at_ns)),
            throttled_ns: self.throttle.last_ns,
        }
    }

    /// The reading is taken, with all that belongs to it.
    fn pay(&mut self, reading: LoadReading) -> LoadReading {
        let lasts_ns = self.budget.spend(reading.at_ns, (self.now_ns)());
        LoadReading { lasts_ns, ..reading }
    }

    /// From this reading on counts what comes next.
    pub(crate) fn begin_anew(&mut self, reading: LoadReading) -> LoadReading {
        self.throttle.look();
        LoadReading { throttled_ns: self.throttle.last_ns, ..reading }
    }

    /// Takes a reading in the place of `before`, and tells what happened between the two. Where a thread waited long, it
    /// looks for who made it wait.
    pub(crate) fn read_since(&mut self, before: &mut LoadReading) -> Disturbance {
        let mut now = self.read_unpaid();
        let mut disturbance = now.since(before);
        let gap_ns = now.at_ns.saturating_sub(before.at_ns);
        if disturbance.longest_wait_ns.is_some_and(|wait_ns| wait_ns > gap_ns / LONG_WAIT) {
            self.throttle.look();
            now.throttled_ns = self.throttle.last_ns;
            disturbance.throttled_ns = difference(now.throttled_ns, before.throttled_ns);
            if let Some((grown, waits)) = now.grown(before).zip(self.waits.as_mut()) {
                let cpus = waits.cpus(&grown);
                let allowed = waits.allowed_cpus(&grown, now.at_ns);
                disturbance.own_wait_ns = Some(own_part(&grown, &cpus, gap_ns, allowed));
            }
        }
        *before = self.pay(now);
        disturbance
    }
}

fn nanos_since(origin: Instant) -> u64 {
    // 2^64 ns are 584 years.
    origin.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::stat::STEAL_EVERY_NS;
    use super::waits::Times;
    use super::*;

    fn reading(at_ms: u64, switches: u64, wait_ns: u64, steal_ms: u64) -> LoadReading {
        LoadReading {
            lasts_ns: 0,
            at_ns: at_ms * 1_000_000,
            usage: Some(os::Usage {
                involuntary_switches: switches,
                page_faults: 10 * switches,
                disk_faults: switches,
                cpu_ns: 0,
            }),
            waits: Some(std::array::from_fn(|slot| Times {
                run_ns: 0,
                wait_ns: if slot < 2 { wait_ns * slot as u64 } else { 7 },
            })),
            throttled_ns: None,
            steal: Some(Steal { ns: steal_ms * 1_000_000, every_ns: STEAL_EVERY_NS }),
        }
    }

    #[test]
    fn short_intervals_have_no_steal_since_its_ticks_are_longer() {
        let begin = reading(0, 3, 1_000, 20);
        let disturbance = reading(3, 5, 41_000, 30).since(&begin);
        assert_eq!(
            disturbance,
            Disturbance {
                passes: 0,
                wall_ns: 0,
                // The waits are known.
                involuntary_switches: None,
                run_queue_wait_ns: Some(40_000),
                longest_wait_ns: Some(40_000),
                page_faults: Some(20),
                disk_faults: Some(2),
                ..Disturbance::default()
            }
        );
        assert_eq!(reading(1_000, 5, 41_000, 30).since(&begin).steal_ns, Some(10_000_000));
        let without_waits = |reading: LoadReading| LoadReading { waits: None, ..reading };
        let switched = without_waits(reading(3, 5, 0, 30)).since(&without_waits(begin));
        assert_eq!(switched.involuntary_switches, Some(2));
    }

    #[test]
    fn what_ran_backwards_or_was_not_read_is_absent() {
        let nothing = LoadReading::default().since(&reading(0, 0, 0, 0));
        assert_eq!(nothing, Disturbance::default());
        let backwards = reading(200, 1, 1, 1).since(&reading(0, 2, 2, 2));
        assert_eq!(backwards, Disturbance::default());
        assert!(!during(nothing, 0).is_disturbed());
    }

    fn during(disturbance: Disturbance, wall_ns: u64) -> Disturbance {
        Disturbance { wall_ns, ..disturbance }
    }

    #[test]
    fn a_hundredth_of_the_pass_is_the_limit() {
        let waited = |ns| Disturbance {
            involuntary_switches: Some(9),
            run_queue_wait_ns: Some(64 * ns),
            longest_wait_ns: Some(ns),
            ..Disturbance::default()
        };
        assert!(!during(waited(30_000), 3_000_000).is_disturbed());
        assert!(during(waited(30_001), 3_000_000).is_disturbed());
        let stolen = Disturbance { steal_ns: Some(20_000_000), ..waited(0) };
        assert!(during(stolen, 1_000_000_000).is_disturbed());
        assert!(!during(stolen, 2_000_000_000).is_disturbed());
    }

    #[test]
    fn switches_decide_only_where_the_waiting_is_not_known() {
        let switched = Disturbance { involuntary_switches: Some(1), ..Disturbance::default() };
        assert!(during(switched, 3_000_000).is_disturbed());
        let known = Disturbance { longest_wait_ns: Some(0), ..switched };
        assert!(!during(known, 3_000_000).is_disturbed());
    }
}
