//! How other processes disturbed this one: how they competed for its cores.
//!
//! A brick that shares its core with another program is timed correctly, and yet its time says nothing about
//! the model. So between passes the load is read from two cheap sources and one that is not, rarely enough
//! that passes of a few milliseconds share a reading:
//!
//! | source | says | one reading (2 CPUs, Linux 6.18) |
//! |---|---|---|
//! | `getrusage` | involuntary switches, all threads | 0.5 µs |
//! | `/proc/self/task/*/schedstat` | waiting for a core, one thread a file | 0.6 µs a thread |
//! | `/proc/stat` | CPU time of the whole machine, stolen time | 6 µs, more with more CPUs |
//!
//! `/proc/stat` counts in ticks of 10 ms, so reading it at every pass of 3 ms gains nothing: see
//! [`LoadMeter::read`].

use std::fs::{self, File};
use std::io;
use std::time::Instant;

use brickscope_profile::{Absent, Disturbance, OtherLoad};

use crate::machine::os;

/// With more threads than this, reading each one's file would itself disturb a pass of milliseconds.
const MAX_THREADS: usize = 64;

/// A meter reads `/proc/stat` at most this often: every ten of its ticks.
const STEAL_EVERY_NS: u64 = 100_000_000;
/// And at most so often that reading it takes one part in this many of the time, whatever number of CPUs
/// it lists.
const STEAL_COST: u64 = 1000;
/// Readings are so far apart that they take one part in this many of the time. Their side effects, such as
/// threads of a pool that fall asleep meanwhile, can take several times as much.
const READING_COST: u64 = 4000;
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
    involuntary_switches: Option<u64>,
    waits: Option<SlotWaits>,
    steal: Option<Steal>,
}

/// The stolen time at the last look, and the distance between looks.
#[derive(Debug, Clone, Copy)]
struct Steal {
    ns: u64,
    every_ns: u64,
}

impl LoadReading {
    /// What happened between an earlier reading of the same meter and this one.
    pub(crate) fn since(&self, earlier: &Self) -> Disturbance {
        let gap_ns = self.at_ns.saturating_sub(earlier.at_ns);
        let steal = |now: Steal, then: Steal| {
            let every_ns = now.every_ns.max(then.every_ns);
            let enough = gap_ns >= every_ns.saturating_mul(STEAL_LOOKS);
            if enough { now.ns.checked_sub(then.ns) } else { None }
        };
        let waits = self.waits.zip(earlier.waits).and_then(|(now, then)| {
            now.iter().zip(&then).try_fold((0_u64, 0), |(sum, longest), (now, then)| {
                let wait = now.checked_sub(*then)?;
                Some((sum.checked_add(wait)?, wait.max(longest)))
            })
        });
        Disturbance {
            passes: 0,
            wall_ns: 0,
            involuntary_switches: grown(self.involuntary_switches, earlier.involuntary_switches),
            run_queue_wait_ns: waits.map(|(sum, _)| sum),
            longest_wait_ns: waits.map(|(_, longest)| longest),
            steal_ns: self.steal.zip(earlier.steal).and_then(|(now, then)| steal(now, then)),
        }
    }
}

fn grown(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    now?.checked_sub(then?)
}

/// Reads the load on this process. Opens its files once; a reading allocates only if threads have begun
/// or ended since the last.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    origin: Instant,
    waits: Option<Waits>,
    stat: Option<Stat>,
    /// The cost of a reading, as of late: between passes caches are cold, and a reading costs ten times
    /// as much as in a loop.
    cost_ns: u64,
}

impl LoadMeter {
    /// Opens the files that exist. Values of the others will be `None` in each reading.
    pub(crate) fn open() -> Self {
        let origin = Instant::now();
        Self { origin, waits: Waits::open(), stat: Stat::open(origin), cost_ns: 0 }
    }

    /// Takes a reading: some 2.2 µs with two threads, and 0.6 µs more for each further one.
    ///
    /// It reads `/proc/stat` only if the last time was 100 ms ago, or a thousand times the cost of doing
    /// so, whichever is longer; other readings repeat the last value.
    pub(crate) fn read(&mut self) -> LoadReading {
        let at_ns = nanos_since(self.origin);
        let reading = LoadReading {
            at_ns,
            lasts_ns: 0,
            involuntary_switches: os::usage().map(|usage| usage.involuntary_switches),
            waits: self.waits.as_mut().and_then(Waits::read),
            steal: self.stat.as_mut().and_then(|stat| stat.steal(at_ns)),
        };
        let cost_ns = nanos_since(self.origin) - at_ns;
        self.cost_ns = (3 * self.cost_ns + cost_ns) / 4;
        LoadReading { lasts_ns: self.cost_ns.saturating_mul(READING_COST), ..reading }
    }
}

fn nanos_since(origin: Instant) -> u64 {
    // 2^64 ns are 584 years.
    origin.elapsed().as_nanos() as u64
}

/// How long each thread of this process has waited for a core.
#[derive(Debug)]
struct Waits {
    // Its number of links is the number of threads plus two, and reading that is far cheaper than
    // listing the folder.
    tasks: File,
    links: Option<u64>,
    slots: Vec<WaitSlot>,
    // There were more threads than slots.
    too_many: bool,
}

/// A place for one thread at a time. Its count never falls, whichever thread is in it.
#[derive(Debug, Default)]
struct WaitSlot {
    thread: Option<Thread>,
    // The waits of the threads that were here before, as last read.
    before_ns: u64,
    wait_ns: u64,
}

#[derive(Debug)]
struct Thread {
    id: u32,
    schedstat: File,
}

/// The counts of the slots; 0 beyond the last used one.
type SlotWaits = [u64; MAX_THREADS];

impl Waits {
    /// `None` if the kernel doesn't keep these figures.
    fn open() -> Option<Self> {
        let own = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        // Some kernels have the file but don't fill it: then it says that this thread has never run.
        schedstat(own.as_bytes()).filter(|own| own.timeslices > 0)?;
        let tasks = File::open("/proc/self/task").ok()?;
        Some(Self { tasks, links: None, slots: Vec::new(), too_many: false })
    }

    fn read(&mut self) -> Option<SlotWaits> {
        let links = links(&self.tasks).ok()?;
        if self.links != Some(links) {
            self.list().ok()?;
            self.links = Some(links);
        }
        if self.too_many {
            return None;
        }
        let mut waits = [0; MAX_THREADS];
        for (slot, wait) in self.slots.iter_mut().zip(&mut waits) {
            if let Some(thread) = &slot.thread {
                match read_schedstat(&thread.schedstat) {
                    Some(stat) => slot.wait_ns = stat.wait_ns,
                    // It ended; another may have taken its place, so the next reading lists again.
                    None => {
                        slot.leave();
                        self.links = None;
                    }
                }
            }
            *wait = slot.before_ns.checked_add(slot.wait_ns)?;
        }
        Some(waits)
    }

    /// Gives new threads a slot, and frees those of threads that have ended.
    fn list(&mut self) -> io::Result<()> {
        let mut ids: Vec<u32> = Vec::new();
        for entry in fs::read_dir("/proc/self/task")? {
            if let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
                ids.push(id);
            }
        }
        for slot in &mut self.slots {
            match &slot.thread {
                Some(thread) if !ids.contains(&thread.id) => slot.leave(),
                Some(thread) => ids.retain(|&id| id != thread.id),
                None => {}
            }
        }
        self.too_many = false;
        for id in ids {
            let room = self.slots.len() < MAX_THREADS;
            let free = self.slots.iter_mut().find(|slot| slot.thread.is_none());
            // If it can't be opened, the thread has ended since the listing.
            let schedstat = File::open(format!("/proc/self/task/{id}/schedstat"));
            let thread = schedstat.ok().map(|schedstat| Thread { id, schedstat });
            match free {
                Some(slot) => slot.thread = thread,
                None if room => {
                    self.slots.push(WaitSlot { thread, ..WaitSlot::default() });
                }
                None => {
                    self.too_many = true;
                    break;
                }
            }
        }
        Ok(())
    }
}

impl WaitSlot {
    fn leave(&mut self) {
        self.thread = None;
        self.before_ns = self.before_ns.saturating_add(self.wait_ns);
        self.wait_ns = 0;
    }
}

#[cfg(target_os = "linux")]
fn links(dir: &File) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    dir.metadata().map(|metadata| metadata.nlink())
}

#[cfg(not(target_os = "linux"))]
fn links(_dir: &File) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reads a file in `/proc` from its begin, whatever was read of it before.
#[cfg(unix)]
fn read_begin(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, 0)
}

#[cfg(not(unix))]
fn read_begin(_file: &File, _buffer: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

fn read_schedstat(file: &File) -> Option<Schedstat> {
    // Three numbers of at most 20 digits.
    let mut buffer = [0; 64];
    let len = read_begin(file, &mut buffer).ok()?;
    schedstat(&buffer[..len])
}

/// The scheduler's statistics of one thread.
#[derive(Debug, PartialEq, Eq)]
struct Schedstat {
    wait_ns: u64,
    timeslices: u64,
}

/// Reads `run wait timeslices`, as in `/proc/<pid>/schedstat`.
fn schedstat(text: &[u8]) -> Option<Schedstat> {
    let mut numbers = numbers(text);
    let _run_ns = numbers.next()??;
    Some(Schedstat { wait_ns: numbers.next()??, timeslices: numbers.next()?? })
}

/// The words of a line as numbers; `None` for those that are not.
fn numbers(text: &[u8]) -> impl Iterator<Item = Option<u64>> {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

/// `/proc/stat`, and how often to read it.
#[derive(Debug)]
struct Stat {
    file: File,
    tick_ns: u64,
    every_ns: u64,
    looked_ns: u64,
    last: Option<Steal>,
}

impl Stat {
    fn open(origin: Instant) -> Option<Self> {
        let file = File::open("/proc/stat").ok()?;
        let tick_ns = os::tick_ns()?;
        let looked_ns = nanos_since(origin);
        let mut stat = Self { file, tick_ns, every_ns: STEAL_EVERY_NS, looked_ns, last: None };
        // The first look is slower, and the distance between looks follows from the last.
        let mut cost_ns = u64::MAX;
        for _ in 0..3 {
            stat.looked_ns = nanos_since(origin);
            stat.look();
            cost_ns = cost_ns.min(nanos_since(origin).saturating_sub(stat.looked_ns));
            let cheap_enough = cost_ns.saturating_mul(STEAL_COST);
            stat.every_ns = STEAL_EVERY_NS.max(tick_ns).max(cheap_enough);
        }
        stat.look();
        Some(stat)
    }

    fn look(&mut self) {
        let steal = read_cpu_times(&self.file).and_then(|times| times.steal);
        let ns = steal.and_then(|ticks| ticks.checked_mul(self.tick_ns));
        self.last = ns.map(|ns| Steal { ns, every_ns: self.every_ns });
    }

    fn steal(&mut self, at_ns: u64) -> Option<Steal> {
        if at_ns.saturating_sub(self.looked_ns) >= self.every_ns {
            self.look();
            self.looked_ns = at_ns;
        }
        self.last
    }
}

/// The first line of `/proc/stat`: all CPUs together, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTimes {
    busy: u64,
    idle: u64,
    // Kernels before 2.6.11 lack it.
    steal: Option<u64>,
}

fn read_cpu_times(file: &File) -> Option<CpuTimes> {
    // Ten numbers of at most 20 digits. The kernel writes the whole file whatever part is asked for.
    let mut buffer = [0; 256];
    let len = read_begin(file, &mut buffer).ok()?;
    cpu_times(&buffer[..len])
}

fn cpu_times(text: &[u8]) -> Option<CpuTimes> {
    // A truncated line could end within a number.
    let line = &text[..text.iter().position(|&byte| byte == b'\n')?];
    let mut numbers = numbers(line.strip_prefix(b"cpu ")?);
    let mut next = || numbers.next().flatten();
    // `user` and `nice` already include the time of guests.
    let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
    let (iowait, irq, softirq) = (next().unwrap_or(0), next().unwrap_or(0), next().unwrap_or(0));
    let sum = |terms: &[u64]| terms.iter().try_fold(0_u64, |sum, &term| sum.checked_add(term));
    Some(CpuTimes {
        busy: sum(&[user, nice, system, irq, softirq])?,
        idle: sum(&[idle, iowait])?,
        steal: next(),
    })
}

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
    times: CpuTimes,
    own_ns: u64,
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
        Ok(Self { stat, tick_ns, times, own_ns: usage.cpu_ns })
    }

    /// What others used since the start.
    ///
    /// # Errors
    ///
    /// The reason, if less than ten ticks of CPU time have passed, or the system stopped reporting.
    pub fn so_far(&self) -> Result<OtherLoad, Absent> {
        let load = read_cpu_times(&self.stat)
            .zip(os::usage())
            .and_then(|(now, usage)| self.load(&now, usage.cpu_ns.saturating_sub(self.own_ns)));
        match load {
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
                reason: "load by others not measured: /proc/stat ran backwards".to_owned(),
            }),
        }
    }

    fn load(&self, now: &CpuTimes, own_ns: u64) -> Option<OtherLoad> {
        let nanos = |now: u64, then: u64| now.checked_sub(then)?.checked_mul(self.tick_ns);
        let busy_ns = nanos(now.busy, self.times.busy)?;
        // Idle and waiting time may decrease by ticks when CPUs go offline, according to proc(5).
        let idle_ns = nanos(now.idle, self.times.idle).unwrap_or(0);
        let steal_ns = now.steal.zip(self.times.steal).and_then(|(now, then)| nanos(now, then));
        Some(OtherLoad {
            machine_ns: busy_ns.checked_add(idle_ns)?.checked_add(steal_ns.unwrap_or(0))?,
            own_ns,
            others_ns: busy_ns.saturating_sub(own_ns),
            steal_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_three_numbers_and_nothing_else_will_do() {
        let stat = |text: &str| schedstat(text.as_bytes());
        assert_eq!(stat("408783 610787 2\n"), Some(Schedstat { wait_ns: 610_787, timeslices: 2 }));
        for garbage in ["", "\n", "1 2", "1 -2 3", "a b c", "18446744073709551616 1 1", "1 2 x"] {
            assert_eq!(stat(garbage), None, "{garbage:?}");
        }
        assert_eq!(schedstat(&[0xff, b' ', b'1', b' ', b'1']), None);
    }

    #[test]
    fn the_line_of_all_cpus_as_linux_writes_it() {
        let text = b"cpu  307721 257166 95800 1499044 3914 0 490 506 7 0\ncpu0 148645 1\n";
        assert_eq!(
            cpu_times(text),
            Some(CpuTimes {
                busy: 307_721 + 257_166 + 95_800 + 490,
                idle: 1_499_044 + 3_914,
                steal: Some(506)
            })
        );
        let old = cpu_times(b"cpu  1 2 3 4\n");
        assert_eq!(old, Some(CpuTimes { busy: 6, idle: 4, steal: None }));
        let most = u64::MAX;
        for garbage in [
            "".to_owned(),
            "cpu  1 2 3\n".to_owned(),
            "cpu0 1 2 3 4 5 6 7 8\n".to_owned(),
            "cpu  1 2 3 4 5 6 7 8".to_owned(),
            "cpu  1 x 3 4 5 6 7 8\n".to_owned(),
            format!("cpu  {most} {most} 3 4 5 6 7 8\n"),
        ] {
            assert_eq!(cpu_times(garbage.as_bytes()), None, "{garbage:?}");
        }
    }

    fn reading(at_ms: u64, switches: u64, wait_ns: u64, steal_ms: u64) -> LoadReading {
        LoadReading {
            lasts_ns: 0,
            at_ns: at_ms * 1_000_000,
            involuntary_switches: Some(switches),
            waits: Some(std::array::from_fn(
                |slot| if slot < 2 { wait_ns * slot as u64 } else { 7 },
            )),
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
                involuntary_switches: Some(2),
                run_queue_wait_ns: Some(40_000),
                longest_wait_ns: Some(40_000),
                steal_ns: None
            }
        );
        assert_eq!(reading(1_000, 5, 41_000, 30).since(&begin).steal_ns, Some(10_000_000));
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

    #[test]
    fn others_have_what_is_busy_and_not_own() {
        let Ok(file) = File::open("/proc/stat") else {
            eprintln!("skipped: no /proc/stat");
            return;
        };
        let times = CpuTimes { busy: 100, idle: 1000, steal: Some(5) };
        let watch = LoadWatch { stat: file, tick_ns: 10_000_000, times, own_ns: 0 };
        let now = CpuTimes { busy: 160, idle: 1130, steal: Some(15) };
        let load = watch.load(&now, 200_000_000).expect("a load");
        assert_eq!(load.machine_ns, 2_000_000_000);
        assert_eq!((load.others_ns, load.steal_ns), (400_000_000, Some(100_000_000)));
        assert_eq!((load.others_share(), load.steal_share()), (0.2, Some(0.05)));
        // This process used more than the ticks saw.
        assert_eq!(watch.load(&now, 900_000_000).map(|load| load.others_ns), Some(0));
        let backwards = CpuTimes { busy: 99, ..now };
        assert_eq!(watch.load(&backwards, 0), None);
    }

    #[test]
    fn a_watch_too_short_for_ticks_says_so_and_a_longer_one_knows() {
        let Ok(watch) = LoadWatch::start() else {
            eprintln!("skipped: no /proc/stat");
            return;
        };
        let load = loop {
            match watch.so_far() {
                Ok(load) => break load,
                Err(absent) => assert!(absent.reason.contains("ticks of"), "{absent:?}"),
            }
            std::thread::yield_now();
        };
        assert!(load.machine_ns >= 100_000_000);
        assert!((0.0..=1.0).contains(&load.others_share()), "{load:?}");
    }

    /// Threads that have to share one core wait for it, and the meter sees that in all of them: in
    /// those that were there when it was opened and in those that came later.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn threads_that_share_a_core_wait_for_it() {
        use std::hint::spin_loop;
        use std::sync::Barrier;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::thread;

        let mut meter = LoadMeter::open();
        let begin = meter.read();
        if begin.waits.is_none() {
            eprintln!("skipped: this kernel keeps no run-queue waits in /proc/self/schedstat");
            return;
        }
        let Some(cpu) = affinity::first_allowed() else {
            eprintln!("skipped: no CPU to pin threads to");
            return;
        };
        let (stop, start) = (AtomicBool::new(false), Barrier::new(3));
        let pinned = AtomicBool::new(true);
        let spin = || {
            pinned.fetch_and(affinity::pin(cpu), Ordering::Relaxed);
            start.wait();
            while !stop.load(Ordering::Relaxed) {
                spin_loop();
            }
        };
        let disturbance = thread::scope(|scope| {
            scope.spawn(spin);
            scope.spawn(spin);
            start.wait();
            // No limit of time: two that spin on one core can't but wait for one another.
            let disturbance = loop {
                let disturbance = meter.read().since(&begin);
                if !pinned.load(Ordering::Relaxed) {
                    break disturbance;
                }
                if disturbance.run_queue_wait_ns.expect("still kept") > 20_000_000 {
                    break disturbance;
                }
                thread::yield_now();
            };
            stop.store(true, Ordering::Relaxed);
            disturbance
        });
        if !pinned.load(Ordering::Relaxed) {
            eprintln!("skipped: threads may not be pinned here");
            return;
        }
        assert!(disturbance.involuntary_switches > Some(0), "{disturbance:?}");
        // Threads take nothing from the total with them when they end, some time after the scope.
        let in_slots = |meter: &LoadMeter| {
            let slots = meter.waits.iter().flat_map(|waits| &waits.slots);
            slots.map(|slot| slot.before_ns).sum::<u64>()
        };
        while in_slots(&meter) == 0 {
            let after = meter.read().since(&begin);
            assert!(after.run_queue_wait_ns >= disturbance.run_queue_wait_ns, "{after:?}");
        }
    }

    /// Which CPUs a thread may run on.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[allow(unsafe_code)]
    mod affinity {
        use std::mem::{size_of, zeroed};

        pub(super) fn first_allowed() -> Option<usize> {
            // SAFETY: a `cpu_set_t` is integers only; the pointer is to a whole one.
            unsafe {
                let mut set: libc::cpu_set_t = zeroed();
                let failed = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
                let most = libc::CPU_SETSIZE as usize;
                (0..most).find(|&cpu| failed == 0 && libc::CPU_ISSET(cpu, &set))
            }
        }

        pub(super) fn pin(cpu: usize) -> bool {
            // SAFETY: a `cpu_set_t` is integers only; the pointer is to a whole one.
            unsafe {
                let mut set: libc::cpu_set_t = zeroed();
                libc::CPU_SET(cpu, &mut set);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
            }
        }
    }
}
