//! How long each thread of this process has run, and waited for a core; and who had that core meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::proc::{numbers, read_begin};
use crate::machine::list;

/// With more threads than this, reading each one's file would itself disturb a pass of milliseconds.
const MAX_THREADS: usize = 64;

/// How often it is asked how many threads there are, unless a pause has just ended.
const LIST_EVERY_NS: u64 = 10_000_000;

/// How often it is asked on which CPUs threads may run, at most.
const ALLOWED_EVERY_NS: u64 = 100_000_000;

/// How long each thread of this process has run, and waited for a core.
#[derive(Debug)]
pub(super) struct Waits {
    /// The folder `task` of this process.
    path: PathBuf,
    // Its number of links is the number of threads plus two, and reading that is far cheaper than
    // listing the folder.
    tasks: File,
    links: Option<u64>,
    // When that was last asked.
    pub(super) listed_ns: Option<u64>,
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
pub(super) struct Times {
    pub(super) run_ns: u64,
    pub(super) wait_ns: u64,
}

/// The times of the slots; 0 beyond the last used one.
pub(super) type SlotTimes = [Times; MAX_THREADS];

/// The slot of the thread that waited longest, and for how long.
pub(super) fn longest(times: &SlotTimes) -> (usize, u64) {
    let waits = times.iter().map(|times| times.wait_ns).enumerate();
    // The first of several.
    waits.rev().max_by_key(|&(_, wait_ns)| wait_ns).unwrap_or_default()
}

/// The part of the longest wait in which threads of this process had the waiting thread's CPU: at most as long as those
/// ran that were last seen on this CPU, and at least what the others can't have had of all CPUs that the process may
/// use.
pub(super) fn own_part(
    times: &SlotTimes,
    cpus: &[Option<u32>],
    gap_ns: u64,
    allowed: Option<u64>,
) -> u64 {
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

impl Waits {
    /// `None` if the kernel doesn't keep these figures.
    pub(super) fn open(proc: &Path) -> Option<Self> {
        let own = fs::read_to_string(proc.join("thread-self/schedstat")).ok()?;
        // Some kernels have the file but don't fill it: then it says that this thread has never run.
        schedstat(own.as_bytes()).filter(|own| own.timeslices > 0)?;
        let path = proc.join("self/task");
        let tasks = File::open(&path).ok()?;
        let (links, listed_ns) = (None, None);
        let (slots, too_many, allowed, allowed_asked_ns) = (Vec::new(), false, None, None);
        Some(Self { path, tasks, links, listed_ns, slots, too_many, allowed, allowed_asked_ns })
    }

    pub(super) fn read(&mut self, at_ns: u64) -> Option<SlotTimes> {
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
    pub(super) fn cpus(&mut self, grown: &SlotTimes) -> [Option<u32>; MAX_THREADS] {
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
    pub(super) fn allowed_cpus(&mut self, grown: &SlotTimes, at_ns: u64) -> Option<u64> {
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

#[cfg(target_os = "linux")]
fn links(dir: &File) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    dir.metadata().map(|metadata| metadata.nlink())
}

#[cfg(not(target_os = "linux"))]
fn links(_dir: &File) -> io::Result<u64> {
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
    #[cfg(all(target_os = "linux", not(miri)))]
    const HANG: std::time::Duration = std::time::Duration::from_secs(600);

    /// Threads that have to share one core wait for it, and the meter sees that in all of them: in
    /// those that were there when it was opened and in those that came later.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn threads_that_share_a_core_wait_for_it() {
        use std::hint::spin_loop;
        use std::sync::Barrier;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::thread;

        use super::super::LoadMeter;

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
