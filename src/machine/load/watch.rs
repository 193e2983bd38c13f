//! How much of the machine others use, over a whole run.

use std::fs::File;

use brickscope_profile::{Absent, OtherLoad};

use super::stat::{CpuTimes, read_cpu_times};
use crate::machine::os;

/// Measures how much of the machine others use, from [`start`](Self::start) on.
///
/// ```
/// use brickscope::LoadWatch;
///
/// match LoadWatch::start() {
///     Ok(watch) => {
///         // … the run …
///         match watch.so_far() {
///             Ok(load) => println!("others used {:.1} %", 100.0 * load.others_share()),
///             Err(absent) => println!("not known: {}", absent.reason),
///         }
///     }
///     Err(absent) => println!("not known: {}", absent.reason),
/// }
/// ```
#[derive(Debug)]
pub struct LoadWatch {
    stat: File,
    tick_ns: u64,
    since: Since,
    /// What was used until the last pause.
    before: Used,
}

/// When a [`LoadWatch`] began or went on.
#[derive(Debug, Clone, Copy)]
enum Since {
    /// The CPU times then, of the machine and in nanoseconds of this process.
    Then(CpuTimes, u64),
    Paused,
    /// It couldn't be read, so what was used in all won't be known.
    Lost,
}

/// What was used while it was watched.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    machine_ns: u64,
    busy_ns: u64,
    own_ns: u64,
    steal_ns: Option<u64>,
}

impl Used {
    /// Ticks and what this process used are counted differently, and in one spell the one may run ahead of the other. So
    /// what is left for others is taken of all spells together.
    fn load(&self) -> OtherLoad {
        OtherLoad {
            machine_ns: self.machine_ns,
            own_ns: self.own_ns,
            others_ns: self.busy_ns.saturating_sub(self.own_ns),
            steal_ns: self.steal_ns,
        }
    }
}

/// With fewer ticks of CPU time, an interval says more about ticks than about load.
const LEAST_TICKS: u64 = 10;

impl LoadWatch {
    /// Begins to measure.
    ///
    /// # Errors
    ///
    /// The reason, on systems without `/proc/stat`.
    pub fn start() -> Result<Self, Absent> {
        let absent = |reason: &str| Absent { reason: reason.to_owned() };
        let stat = File::open("/proc/stat").map_err(|error| Absent {
            reason: format!("load by others not measured: /proc/stat: {error}"),
        })?;
        let times = read_cpu_times(&stat)
            .ok_or_else(|| absent("load by others not measured: /proc/stat has no line `cpu`"))?;
        let own = os::usage().zip(os::tick_ns());
        let (usage, tick_ns) =
            own.ok_or_else(|| absent("load by others not measured: no getrusage here"))?;
        let since = Since::Then(times, usage.cpu_ns);
        Ok(Self { stat, tick_ns, since, before: Used::default() })
    }

    /// What is used from here on doesn't count.
    pub(crate) fn pause(&mut self) {
        if matches!(self.since, Since::Then(..)) {
            let used = self.used_now();
            self.since = if used.is_some() { Since::Paused } else { Since::Lost };
            self.before = used.unwrap_or(self.before);
        }
    }

    /// What is used from here on counts again.
    pub(crate) fn go_on(&mut self) {
        if matches!(self.since, Since::Paused) {
            let times = read_cpu_times(&self.stat).zip(os::usage());
            self.since =
                times.map_or(Since::Lost, |(times, usage)| Since::Then(times, usage.cpu_ns));
        }
    }

    fn used_now(&self) -> Option<Used> {
        match self.since {
            Since::Paused => Some(self.before),
            Since::Lost => None,
            Since::Then(times, own_ns) => {
                let own_ns = os::usage()?.cpu_ns.saturating_sub(own_ns);
                self.used(&times, &read_cpu_times(&self.stat)?, own_ns)
            }
        }
    }

    /// What others used since the start.
    ///
    /// # Errors
    ///
    /// The reason, if less than ten ticks of CPU time have passed, or the system stopped reporting.
    pub fn so_far(&self) -> Result<OtherLoad, Absent> {
        match self.used_now().map(|used| used.load()) {
            Some(load) if load.machine_ns >= self.tick_ns.saturating_mul(LEAST_TICKS) => Ok(load),
            Some(load) => Err(Absent {
                reason: format!(
                    "load by others not measured: /proc/stat counts in ticks of {} ms, \
                     and only {} ms of CPU time had passed",
                    self.tick_ns / 1_000_000,
                    load.machine_ns / 1_000_000
                ),
            }),
            None => Err(Absent {
                reason:
                    "load by others not measured: /proc/stat ran backwards, or couldn't be read"
                        .to_owned(),
            }),
        }
    }

    fn used(&self, times: &CpuTimes, now: &CpuTimes, own_ns: u64) -> Option<Used> {
        let nanos = |now: u64, then: u64| now.checked_sub(then)?.checked_mul(self.tick_ns);
        let busy_ns = nanos(now.busy, times.busy)?;
        // Idle and waiting time may decrease by ticks when CPUs go offline, according to proc(5).
        let idle_ns = nanos(now.idle, times.idle).unwrap_or(0);
        let steal_ns = now.steal.zip(times.steal).and_then(|(now, then)| nanos(now, then));
        let before = &self.before;
        let machine_ns = busy_ns.checked_add(idle_ns)?.checked_add(steal_ns.unwrap_or(0))?;
        Some(Used {
            machine_ns: before.machine_ns.checked_add(machine_ns)?,
            busy_ns: before.busy_ns.checked_add(busy_ns)?,
            own_ns: before.own_ns.checked_add(own_ns)?,
            steal_ns: steal_ns.map(|ns| ns.saturating_add(before.steal_ns.unwrap_or(0))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_what_is_busy_and_not_own() {
        let Ok(file) = File::open("/proc/stat") else {
            eprintln!("skipped: no /proc/stat");
            return;
        };
        let times = CpuTimes { busy: 100, idle: 1000, steal: Some(5) };
        let (tick_ns, since) = (10_000_000, Since::Paused);
        let mut watch = LoadWatch { stat: file, tick_ns, since, before: Used::default() };
        let load_of = |watch: &LoadWatch, then, now, own_ns| {
            watch.used(&then, &now, own_ns).map(|used| used.load())
        };
        let now = CpuTimes { busy: 160, idle: 1130, steal: Some(15) };
        let used = watch.used(&times, &now, 200_000_000).expect("a load");
        let load = used.load();
        assert_eq!(load.machine_ns, 2_000_000_000);
        assert_eq!((load.others_ns, load.steal_ns), (400_000_000, Some(100_000_000)));
        assert_eq!((load.others_share(), load.steal_share()), (0.2, Some(0.05)));
        // This process used more than the ticks saw.
        let all_own = load_of(&watch, times, now, 900_000_000);
        assert_eq!(all_own.map(|load| load.others_ns), Some(0));
        let backwards = CpuTimes { busy: 99, ..now };
        assert_eq!(load_of(&watch, times, backwards, 0), None);
        // After a pause, only what was used before it and what is used from then on counts.
        let later = CpuTimes { busy: 1_000, idle: 2_000, steal: Some(900) };
        let at_the_end = CpuTimes { busy: 1_010, idle: 2_000, steal: Some(900) };
        watch.before = used;
        let in_all = load_of(&watch, later, at_the_end, 100_000_000).expect("a load");
        assert_eq!((in_all.machine_ns, in_all.others_ns), (2_100_000_000, 400_000_000));
        // What this process used beyond the ticks of one spell is in those of another.
        let in_all = load_of(&watch, later, at_the_end, 150_000_000).expect("a load");
        assert_eq!(in_all.others_ns, 350_000_000);
        watch.pause();
        let now = watch.used_now().expect("nothing was lost").load();
        assert_eq!(now, load, "nothing counts in a pause");
        // Where the end of a spell can't be told, what was used in all is not known, ever.
        watch.since = Since::Then(CpuTimes { busy: u64::MAX, ..later }, 0);
        watch.pause();
        watch.go_on();
        assert!(watch.so_far().is_err(), "{watch:?}");
    }

    /// A limit that only a hang reaches, however busy the machine is.
    const HANG: std::time::Duration = std::time::Duration::from_secs(600);

    #[test]
    fn a_watch_too_short_for_ticks_says_so_and_a_longer_one_knows() {
        let Ok(watch) = LoadWatch::start() else {
            eprintln!("skipped: no /proc/stat");
            return;
        };
        let begun = std::time::Instant::now();
        let load = loop {
            match watch.so_far() {
                Ok(load) => break load,
                Err(absent) => {
                    assert!(absent.reason.contains("ticks of"), "{absent:?}");
                    assert!(begun.elapsed() < HANG, "{absent:?}");
                }
            }
            std::thread::yield_now();
        };
        assert!(load.machine_ns >= 100_000_000);
        assert!((0.0..=1.0).contains(&load.others_share()), "{load:?}");
    }
}
