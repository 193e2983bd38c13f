//! The system's data on the engine's process. The watcher reads it, so it costs the engine nothing.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use brickscope_profile::Absent;
use serde::Serialize;

/// The most threads whose times are read.
const MOST_THREADS: usize = 256;
/// The least time between two readings: in less, the error of ticks dominates.
const LEAST_NS: u64 = 900_000_000;

/// A process to read.
#[derive(Debug)]
pub struct Process {
    folder: PathBuf,
    since: Instant,
    /// The names of threads, which are read once.
    names: HashMap<u32, String>,
}

/// One reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub(crate) at_ns: u64,
    pub(crate) memory: Option<Memory>,
    pub(crate) threads: Option<Vec<Thread>>,
    /// In ticks: this process, the watcher, and all CPUs.
    pub(crate) own: Option<u64>,
    pub(crate) watcher: Option<u64>,
    pub(crate) cpus: Option<Cpus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Memory in use, including the pages of a mapped file that were read.
    pub(crate) resident_bytes: u64,
    /// The peak so far.
    pub(crate) peak_bytes: Option<u64>,
    /// The part of the resident memory that is mapped from files, such as weights.
    pub(crate) file_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) name: String,
    pub(crate) run_ns: u64,
    pub(crate) wait_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus {
    pub(crate) busy: u64,
    pub(crate) all: u64,
    pub(crate) steal: Option<u64>,
}

/// The activity between two readings. Shares are 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Activity {
    pub(crate) ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<Vec<ThreadActivity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<MachineActivity>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ThreadActivity {
    pub(crate) tid: u32,
    pub(crate) name: String,
    /// The share of the time in which it ran.
    pub(crate) busy: f64,
    /// The share in which it was runnable, but had no core.
    pub(crate) waiting: f64,
}

/// Shares of the CPU time of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct MachineActivity {
    /// This process.
    pub(crate) own: f64,
    /// The live view.
    pub(crate) watcher: f64,
    /// All others.
    pub(crate) others: f64,
    /// Time stolen by a hypervisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stolen: Option<f64>,
}

impl Process {
    /// The process with this number.
    ///
    /// # Errors
    ///
    /// If the system has no data on processes.
    pub fn of(pid: u32) -> Result<Self, Absent> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        if !folder.join("stat").is_file() {
            let reason =
                format!("{} can't be read: memory and threads are unknown", folder.display());
            return Err(Absent { reason });
        }
        Ok(Self { folder, since: Instant::now(), names: HashMap::new() })
    }

    /// Takes a reading. What the system doesn't report is `None`.
    pub fn read(&mut self) -> Reading {
        let text = |path: PathBuf| fs::read_to_string(path).ok();
        let at_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Reading {
            at_ns,
            memory: text(self.folder.join("status")).as_deref().and_then(memory),
            threads: self.threads(),
            own: text(self.folder.join("stat")).as_deref().and_then(ticks),
            watcher: text("/proc/self/stat".into()).as_deref().and_then(ticks),
            cpus: text("/proc/stat".into()).as_deref().and_then(cpus),
        }
    }

    fn threads(&mut self) -> Option<Vec<Thread>> {
        let mut threads = Vec::new();
        let tasks = fs::read_dir(self.folder.join("task")).ok()?;
        for task in tasks.flatten().take(MOST_THREADS) {
            let Some(tid) = task.file_name().to_str().and_then(|tid| tid.parse().ok()) else {
                continue;
            };
            // It may have ended since.
            let Ok(stat) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            let Some((run_ns, wait_ns)) = schedstat(&stat) else { continue };
            let name = self.names.entry(tid).or_insert_with(|| {
                let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                name.trim_end().to_owned()
            });
            threads.push(Thread { tid, name: name.clone(), run_ns, wait_ns });
        }
        threads.sort_by_key(|thread| thread.tid);
        // A number may be another thread's later.
        let is_there = |tid: &u32| threads.binary_search_by_key(tid, |thread| thread.tid).is_ok();
        self.names.retain(|tid, _| is_there(tid));
        (!threads.is_empty()).then_some(threads)
    }
}

impl Reading {
    /// The activity since an earlier reading; `None` if too little time has passed.
    pub(crate) fn since(&self, earlier: &Self) -> Option<Activity> {
        let ns = self.at_ns.checked_sub(earlier.at_ns).filter(|&ns| ns >= LEAST_NS)?;
        let of_time = |ns_of: u64| ns_of as f64 / ns as f64;
        let threads = self.threads.as_ref().zip(earlier.threads.as_ref()).map(|(now, before)| {
            now.iter()
                .filter_map(|thread| {
                    let before = before.iter().find(|before| before.tid == thread.tid)?;
                    Some(ThreadActivity {
                        tid: thread.tid,
                        name: thread.name.clone(),
                        busy: of_time(thread.run_ns.checked_sub(before.run_ns)?),
                        waiting: of_time(thread.wait_ns.checked_sub(before.wait_ns)?),
                    })
                })
                .collect()
        });
        let machine = || {
            let (now, before) = (self.cpus?, earlier.cpus?);
            let all = now.all.checked_sub(before.all).filter(|&all| all > 0)? as f64;
            let grown = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
            let own = grown(self.own, earlier.own)?;
            let watcher = grown(self.watcher, earlier.watcher)?;
            let busy = now.busy.checked_sub(before.busy)?;
            Some(MachineActivity {
                own: own as f64 / all,
                watcher: watcher as f64 / all,
                // Busy time is counted in ticks, so it can be less than the exact times of the two processes.
                others: busy.saturating_sub(own + watcher) as f64 / all,
                stolen: grown(now.steal, before.steal).map(|stolen| stolen as f64 / all),
            })
        };
        Some(Activity { ns, threads, machine: machine() })
    }
}

/// Memory from `/proc/PID/status`.
fn memory(status: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let (number, unit) = line.trim().split_once(' ')?;
        (unit == "kB").then_some(())?;
        number.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory {
        resident_bytes: bytes("VmRSS")?,
        peak_bytes: bytes("VmHWM"),
        file_bytes: bytes("RssFile"),
    })
}

/// User and system time from `/proc/PID/stat`. The name before them is in parentheses, and may contain
/// more of them.
fn ticks(stat: &str) -> Option<u64> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

/// `run wait timeslices` of a thread; `None` if the kernel doesn't fill it.
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (run, wait, slices) = (numbers.next()??, numbers.next()??, numbers.next()??);
    (slices > 0).then_some((run, wait))
}

/// The line of all CPUs in `/proc/stat`.
fn cpus(stat: &str) -> Option<Cpus> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
    let sum = |indices: &[usize]| {
        indices.iter().try_fold(0_u64, |sum, &index| sum.checked_add(at(index)))
    };
    numbers.get(3)?;
    let steal = numbers.get(7).copied();
    // The time of guests is included in user time.
    let (busy, idle) = (sum(&[0, 1, 2, 5, 6])?, sum(&[3, 4])?);
    Some(Cpus { busy, all: busy.checked_add(idle)?.checked_add(steal.unwrap_or(0))?, steal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_as_the_manual_has_them() {
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\nRssFile:\t 512 kB\n";
        let memory = memory(status).expect("it says");
        assert_eq!((memory.resident_bytes, memory.peak_bytes), (1 << 20, Some(2 << 20)));
        // A name may contain anything.
        let stat = "7 (a) 1 (b) S 1 1 1 0 -1 0 0 0 0 0 30 12 0 0 20 0 3 0";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 a S"), None);
        assert_eq!(schedstat("5 6 7\n"), Some((5, 6)));
        assert_eq!(schedstat("0 0 0\n"), None, "a kernel that doesn't count");
        let cpus = cpus("cpu  10 1 2 100 5 3 4 6 0 0\ncpu0 1 1 1\n").expect("it says");
        assert_eq!(cpus, Cpus { busy: 20, all: 131, steal: Some(6) });
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let thread = |run_ns, wait_ns| Thread { tid: 7, name: "x".to_owned(), run_ns, wait_ns };
        let before = Reading {
            at_ns: 0,
            threads: Some(vec![thread(100, 0)]),
            own: Some(10),
            watcher: Some(0),
            cpus: Some(Cpus { busy: 50, all: 100, steal: None }),
            ..Reading::default()
        };
        let now = Reading {
            at_ns: 1_000_000_000,
            threads: Some(vec![thread(750_000_100, 50_000_000)]),
            own: Some(70),
            watcher: Some(2),
            cpus: Some(Cpus { busy: 140, all: 300, steal: None }),
            ..Reading::default()
        };
        let activity = now.since(&before).expect("a second");
        let thread = &activity.threads.as_ref().expect("known")[0];
        assert_eq!((thread.busy, thread.waiting), (0.75, 0.05));
        let machine = activity.machine.expect("known");
        assert_eq!((machine.own, machine.watcher, machine.others), (0.3, 0.01, 0.14));
        assert_eq!(machine.stolen, None, "the kernel doesn't tell");
        assert!(now.since(&now).is_none(), "no time has passed");
    }
}
