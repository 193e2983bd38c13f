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

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use brickscope_profile::{Absent, Disturbance, OtherLoad};

use crate::machine::{cgroup, list, os};

/// With more threads than this, reading each one's file would itself disturb a pass of milliseconds.
const MAX_THREADS: usize = 64;

/// A meter reads `/proc/stat` at most this often: every ten of its ticks.
const STEAL_EVERY_NS: u64 = 100_000_000;
/// And at most so often that reading it takes one part in this many of the time, whatever number of CPUs
/// it lists.
const STEAL_COST: u64 = 1000;
/// Readings take at most one part in this many of the time. What they don't use is saved up, so that the passes of a
/// burst have a reading each, however short they are.
const READING_COST: u64 = 100;
/// So much can be saved up: some two hundred readings.
const MOST_CREDIT_NS: u64 = 5_000_000;
/// How often it is asked how many threads there are, unless a pause has just ended.
const LIST_EVERY_NS: u64 = 10_000_000;
/// How often it is asked on which CPUs threads may run, at most.
const ALLOWED_EVERY_NS: u64 = 100_000_000;
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

/// The stolen time at the last look, and the distance between looks.
#[derive(Debug, Clone, Copy)]
struct Steal {
    ns: u64,
    every_ns: u64,
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

/// The slot of the thread that waited longest, and for how long.
fn longest(times: &SlotTimes) -> (usize, u64) {
    let waits = times.iter().map(|times| times.wait_ns).enumerate();
    // The first of several.
    waits.rev().max_by_key(|&(_, wait_ns)| wait_ns).unwrap_or_default()
}

/// The part of the longest wait in which threads of this process had the waiting thread's CPU: at most as long as those
/// ran that were last seen on this CPU, and at least what the others can't have had of all CPUs that the process may
/// use.
fn own_part(times: &SlotTimes, cpus: &[Option<u32>], gap_ns: u64, allowed: Option<u64>) -> u64 {
    let (waiter, wait_ns) = longest(times);
    let cpu_of = |slot: usize| cpus.get(slot).copied().flatten();
    let beside = |slot: &usize| *slot != waiter && cpu_of(*slot).is_some();
    let ran_there: u64 = (0..times.len())
        .filter(beside)
        .filter(|&slot| cpu_of(slot) == cpu_of(waiter))
        .map(|slot| times[slot].run_ns)
        .fold(0, u64::saturating_add);
    let ran = times.iter().map(|times| times.run_ns).fold(0, u64::saturating_add);
    let left = allowed.map_or(u64::MAX, |cpus| gap_ns.saturating_mul(cpus).saturating_sub(ran));
    wait_ns.min(ran_there.max(wait_ns.saturating_sub(left)))
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

/// How much time readings may take.
#[derive(Debug, Default)]
struct Budget {
    /// What the last readings took.
    costs: [u64; 8],
    readings: usize,
    credit_ns: u64,
    until_ns: u64,
}

impl Budget {
    fn new() -> Self {
        Self { credit_ns: MOST_CREDIT_NS, ..Self::default() }
    }

    /// A reading was taken; how long no other should follow.
    ///
    /// A reading during which the thread lost its core takes as long as the others had it. So what counts as the cost
    /// is the median of the last ones.
    fn spend(&mut self, began_ns: u64, ended_ns: u64) -> u64 {
        let slot = self.readings % self.costs.len();
        self.costs[slot] = ended_ns.saturating_sub(began_ns);
        self.readings += 1;
        let mut costs = self.costs;
        let costs = &mut costs[..self.readings.min(self.costs.len())];
        costs.sort_unstable();
        let cost_ns = costs[(costs.len() - 1) / 2];
        let earned_ns = ended_ns.saturating_sub(self.until_ns) / READING_COST;
        self.until_ns = ended_ns;
        self.credit_ns = (self.credit_ns + earned_ns).min(MOST_CREDIT_NS).saturating_sub(cost_ns);
        cost_ns.saturating_sub(self.credit_ns).saturating_mul(READING_COST)
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

/// How long each thread of this process has run, and waited for a core.
#[derive(Debug)]
struct Waits {
    /// The folder `task` of this process.
    path: PathBuf,
    // Its number of links is the number of threads plus two, and reading that is far cheaper than
    // listing the folder.
    tasks: File,
    links: Option<u64>,
    // When that was last asked.
    listed_ns: Option<u64>,
    slots: Vec<WaitSlot>,
    // There were more threads than slots.
    too_many: bool,
    // On how many CPUs threads may run, and when that was last asked.
    allowed: Option<u64>,
    allowed_asked_ns: Option<u64>,
}

/// A place for one thread at a time. Its counts never fall, whichever thread is in it.
#[derive(Debug, Default)]
struct WaitSlot {
    thread: Option<Thread>,
    // Of the threads that were here before, as last read.
    before: Times,
    times: Times,
}

#[derive(Debug)]
struct Thread {
    id: u32,
    schedstat: File,
    stat_path: PathBuf,
    status_path: PathBuf,
    // Opened when it is first needed.
    stat: Option<File>,
}

/// How long a thread has run, and waited for a core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    run_ns: u64,
    wait_ns: u64,
}

/// The times of the slots; 0 beyond the last used one.
type SlotTimes = [Times; MAX_THREADS];

impl Waits {
    /// `None` if the kernel doesn't keep these figures.
    fn open(proc: &Path) -> Option<Self> {
        let own = fs::read_to_string(proc.join("thread-self/schedstat")).ok()?;
        // Some kernels have the file but don't fill it: then it says that this thread has never run.
        schedstat(own.as_bytes()).filter(|own| own.timeslices > 0)?;
        let path = proc.join("self/task");
        let tasks = File::open(&path).ok()?;
        let (links, listed_ns) = (None, None);
        let (slots, too_many, allowed, allowed_asked_ns) = (Vec::new(), false, None, None);
        Some(Self { path, tasks, links, listed_ns, slots, too_many, allowed, allowed_asked_ns })
    }

    fn read(&mut self, at_ns: u64) -> Option<SlotTimes> {
        if self.listed_ns.is_none_or(|listed| at_ns.saturating_sub(listed) >= LIST_EVERY_NS) {
            let links = links(&self.tasks).ok()?;
            if self.links != Some(links) {
                self.list().ok()?;
                self.links = Some(links);
            }
            self.listed_ns = Some(at_ns);
        }
        if self.too_many {
            return None;
        }
        let mut all = [Times::default(); MAX_THREADS];
        for (slot, all) in self.slots.iter_mut().zip(&mut all) {
            if let Some(thread) = &slot.thread {
                match read_schedstat(&thread.schedstat) {
                    Some(stat) => slot.times = stat.times,
                    // It ended; another may have taken its place, so the next reading lists again.
                    None => {
                        slot.leave();
                        self.links = None;
                        self.listed_ns = None;
                    }
                }
            }
            all.run_ns = slot.before.run_ns.checked_add(slot.times.run_ns)?;
            all.wait_ns = slot.before.wait_ns.checked_add(slot.times.wait_ns)?;
        }
        Some(all)
    }

    /// The CPU on which the thread of each slot was last seen, if it has run meanwhile.
    fn cpus(&mut self, grown: &SlotTimes) -> [Option<u32>; MAX_THREADS] {
        let mut cpus = [None; MAX_THREADS];
        for ((slot, grown), cpu) in self.slots.iter_mut().zip(grown).zip(&mut cpus) {
            if *grown != Times::default() {
                *cpu = slot.thread.as_mut().and_then(Thread::cpu);
            }
        }
        cpus
    }

    /// On how many CPUs the threads that have run meanwhile may run, all together. `None` if one of them doesn't say. As
    /// asked in the last 100 ms.
    fn allowed_cpus(&mut self, grown: &SlotTimes, at_ns: u64) -> Option<u64> {
        let is_new = |asked_ns| at_ns.saturating_sub(asked_ns) < ALLOWED_EVERY_NS;
        if self.allowed_asked_ns.is_none_or(|asked_ns| !is_new(asked_ns)) {
            self.allowed = self.ask_allowed_cpus(grown);
            self.allowed_asked_ns = Some(at_ns);
        }
        self.allowed
    }

    fn ask_allowed_cpus(&self, grown: &SlotTimes) -> Option<u64> {
        let mut all = BTreeSet::new();
        for (slot, grown) in self.slots.iter().zip(grown) {
            if *grown != Times::default() {
                let status = fs::read(&slot.thread.as_ref()?.status_path).ok()?;
                all.append(&mut list::numbers(allowed_list(&status)?)?);
            }
        }
        Some(all.len() as u64).filter(|&count| count > 0)
    }

    /// Gives new threads a slot, and frees those of threads that have ended.
    fn list(&mut self) -> io::Result<()> {
        let mut ids: Vec<u32> = Vec::new();
        for entry in fs::read_dir(&self.path)? {
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
            let folder = self.path.join(id.to_string());
            let schedstat = File::open(folder.join("schedstat"));
            let thread = schedstat.ok().map(|schedstat| Thread {
                id,
                schedstat,
                stat_path: folder.join("stat"),
                status_path: folder.join("status"),
                stat: None,
            });
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
        let times = std::mem::take(&mut self.times);
        self.before.run_ns = self.before.run_ns.saturating_add(times.run_ns);
        self.before.wait_ns = self.before.wait_ns.saturating_add(times.wait_ns);
    }
}

impl Thread {
    fn cpu(&mut self) -> Option<u32> {
        if self.stat.is_none() {
            self.stat = File::open(&self.stat_path).ok();
        }
        // 52 numbers, and a name of at most 64 characters.
        let mut buffer = [0; 1024];
        let len = read_begin(self.stat.as_ref()?, &mut buffer).ok()?;
        last_cpu(&buffer[..len])
    }
}

/// The field `processor` of `/proc/<pid>/stat`, the 39th. The name, the second, may have any characters in it, but the
/// last `)` ends it.
fn last_cpu(text: &[u8]) -> Option<u32> {
    let name_ends = text.iter().rposition(|&byte| byte == b')')?;
    let processor = numbers(&text[name_ends + 1..]).nth(39 - 3)??;
    u32::try_from(processor).ok()
}

/// The line `Cpus_allowed_list` of `/proc/<pid>/status`: `0-3,8`.
fn allowed_list(status: &[u8]) -> Option<&str> {
    // The name of the thread, in the first line, need not be text.
    let mut lines = status.split(|&byte| byte == b'\n');
    let list = lines.find_map(|line| line.strip_prefix(b"Cpus_allowed_list:"))?;
    std::str::from_utf8(list).ok().map(str::trim)
}

/// How long the control groups of this process have stopped their threads for having used up their quota: those of this
/// process, and of all others in the group.
#[derive(Debug, Default)]
struct Throttle {
    /// `cpu.stat` of each group with a quota.
    files: Vec<File>,
    last_ns: Option<u64>,
}

impl Throttle {
    fn open() -> Self {
        let files = cgroup::stats_with_quota().into_iter().filter_map(|path| File::open(path).ok());
        let mut throttle = Self { files: files.collect(), last_ns: None };
        throttle.look();
        throttle
    }

    fn look(&mut self) {
        let mut all = self.files.iter().map(|file| {
            let mut buffer = [0; 512];
            let len = read_begin(file, &mut buffer).ok()?;
            cgroup::throttled_ns(&buffer[..len])
        });
        // One that can't be read may be the one that stopped it.
        let sum = all.try_fold(0, |sum: u64, ns| sum.checked_add(ns?));
        self.last_ns = sum.filter(|_| !self.files.is_empty());
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
    times: Times,
    timeslices: u64,
}

/// Reads `run wait timeslices`, as in `/proc/<pid>/schedstat`.
fn schedstat(text: &[u8]) -> Option<Schedstat> {
    let mut numbers = numbers(text);
    let times = Times { run_ns: numbers.next()??, wait_ns: numbers.next()?? };
    Some(Schedstat { times, timeslices: numbers.next()?? })
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
    fn schedstat_is_three_numbers_and_nothing_else_will_do() {
        let stat = |text: &str| schedstat(text.as_bytes());
        let times = Times { run_ns: 408_783, wait_ns: 610_787 };
        assert_eq!(stat("408783 610787 2\n"), Some(Schedstat { times, timeslices: 2 }));
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

    #[test]
    fn a_reading_that_was_interrupted_costs_no_more_than_the_others() {
        let mut budget = Budget { credit_ns: 0, ..Budget::new() };
        let mut now = 0;
        let mut spend = |cost: u64, every: u64| {
            now += every;
            budget.spend(now, now + cost)
        };
        for _ in 0..8 {
            assert!(spend(20_000, 3_000_000) <= 2_000_000, "a hundred times its cost");
        }
        // The thread lost its core during the reading.
        assert_eq!(spend(12_000_000, 3_000_000), 0, "the next pass of 3 ms has its reading");
        assert_eq!(spend(20_000, 15_000_000), 0);
    }

    #[test]
    fn readings_take_a_hundredth_of_the_time_and_pauses_are_saved_up_for_bursts() {
        // Passes of 100 µs, of which a reading takes 20: one in twenty has one of its own.
        let mut budget = Budget { credit_ns: 0, ..Budget::new() };
        let (mut now, mut due, mut readings) = (0, 0, 0);
        for _ in 0..10_000 {
            now += 100_000;
            if now >= due {
                let lasts_ns = budget.spend(now, now + 20_000);
                now += 20_000;
                due = now + lasts_ns;
                readings += 1;
            }
        }
        assert!((450..=550).contains(&readings), "{readings}");
        // Bursts of five such passes with pauses of 100 ms: each begin of a burst and each pass has one.
        let mut budget = Budget { credit_ns: 0, ..Budget::new() };
        let (mut now, mut due, mut readings) = (0, 0, 0);
        for burst in 0..100 {
            now += 100_000_000;
            for pass in 0..5 {
                for at in [now, now + 100_000] {
                    // After the begin of the burst, passes follow each other.
                    if (at == now) <= (pass == 0) && at >= due {
                        due = at + budget.spend(at, at + 20_000);
                        readings += u32::from(burst > 0);
                    }
                }
                now += 120_000;
            }
        }
        assert_eq!(readings, 99 * 6);
    }

    #[test]
    fn who_had_the_cpu_of_the_thread_that_waited() {
        let times = |all: &[[u64; 2]]| -> SlotTimes {
            std::array::from_fn(|slot| {
                let [run_ns, wait_ns] = all.get(slot).copied().unwrap_or_default();
                Times { run_ns, wait_ns }
            })
        };
        // Two threads took turns on one CPU, of two.
        let shared = times(&[[480, 510], [510, 480]]);
        assert_eq!(own_part(&shared, &[Some(1), Some(1)], 1000, Some(2)), 510);
        // Each had its own, and somebody else half of that of the first.
        let others = times(&[[490, 510], [1000, 0]]);
        assert_eq!(own_part(&others, &[Some(1), Some(0)], 1000, Some(2)), 0);
        // The same, where a third thread ran on that CPU for a while.
        let some = times(&[[490, 510], [1000, 0], [100, 0]]);
        assert_eq!(own_part(&some, &[Some(1), Some(0), Some(1)], 1000, Some(2)), 100);
        // They took turns on two CPUs and were last seen on different ones: nobody else can have had much.
        let moved = times(&[[700, 300], [600, 390], [680, 310]]);
        assert_eq!(own_part(&moved, &[Some(0), Some(1), None], 1000, Some(2)), 390 - 20);
        assert_eq!(own_part(&moved, &[None; 3], 1000, None), 0);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_process_may_use_the_cpus_of_all_its_threads() {
        let proc = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = proc.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("thread-self/schedstat", "1 0 1\n");
        for (thread, cpus) in [("11", "0"), ("12", "1,3"), ("13", "5-9")] {
            write(&format!("self/task/{thread}/schedstat"), "1 0 1\n");
            let status = format!("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t{cpus}\n");
            write(&format!("self/task/{thread}/status"), &status);
        }
        let mut waits = Waits::open(proc.path()).expect("it keeps figures");
        waits.read(0).expect("figures");
        let ids: Vec<u32> =
            waits.slots.iter().filter_map(|slot| Some(slot.thread.as_ref()?.id)).collect();
        // The last one hasn't run.
        let ran = |slot: usize| u64::from(ids.get(slot).is_some_and(|&id| id < 13));
        let grown: SlotTimes = std::array::from_fn(|slot| Times { run_ns: ran(slot), wait_ns: 0 });
        assert_eq!(waits.allowed_cpus(&grown, 0), Some(3));
        write("self/task/12/status", "Cpus_allowed_list:\t0\n");
        assert_eq!(waits.allowed_cpus(&grown, ALLOWED_EVERY_NS - 1), Some(3));
        assert_eq!(waits.allowed_cpus(&grown, ALLOWED_EVERY_NS), Some(1));
        write("self/task/11/status", "Name:\tx\n");
        assert_eq!(waits.allowed_cpus(&grown, 2 * ALLOWED_EVERY_NS), None);
    }

    #[test]
    fn the_cpu_of_a_thread_stands_after_its_name_whatever_that_is() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let text = format!("77 (a) R 1) S {}\n", numbers.join(" "));
        assert_eq!(last_cpu(text.as_bytes()), Some(39));
        assert_eq!(last_cpu(b"77 (a) S 1 2 3\n"), None);
        assert_eq!(last_cpu(b""), None);
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
            // Two that spin on one core can't but wait for one another, some time.
            let begun = std::time::Instant::now();
            let disturbance = loop {
                let disturbance = meter.read_since(&mut { begin });
                if !pinned.load(Ordering::Relaxed) || begun.elapsed() > HANG {
                    break disturbance;
                }
                let is_long = disturbance.run_queue_wait_ns.expect("still kept") > 20_000_000;
                // And it is seen that it was the other one who had the core.
                if is_long && disturbance.own_wait_ns > Some(0) {
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
        assert!(disturbance.run_queue_wait_ns > Some(20_000_000), "{disturbance:?}");
        assert!(disturbance.own_wait_ns > Some(0), "{disturbance:?}");
        assert!(disturbance.own_wait_ns <= disturbance.longest_wait_ns, "{disturbance:?}");
        // Threads take nothing from the total with them when they end, some time after the scope.
        let in_slots = |meter: &LoadMeter| {
            let slots = meter.waits.iter().flat_map(|waits| &waits.slots);
            slots.map(|slot| slot.before.wait_ns).sum::<u64>()
        };
        let begun = std::time::Instant::now();
        while in_slots(&meter) == 0 {
            assert!(begun.elapsed() < HANG, "the threads never end");
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
