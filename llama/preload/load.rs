//! What others do to the threads of this process: how long each ran and waited for a CPU, and how often they waited for a disk.

use std::ffi::{c_int, c_long};
use std::fs;

use crate::count;
use crate::format::{NO_CPU, UNKNOWN, word};

unsafe extern "C" {
    fn getrusage(who: c_int, usage: *mut [c_long; 18]) -> c_int;
}

/// It is read once in so many counts at most: some milliseconds. A reading takes microseconds a thread.
const EVERY: u64 = 5_000_000;
/// With more threads than this, reading each one's file would itself disturb a pass.
const MOST_THREADS: usize = 64;

pub(crate) struct Load {
    due: u64,
    /// The least that reading a thread's figures took.
    least: u64,
    /// Pages that threads had waited for by the last pass.
    disk_faults: Option<u64>,
}

/// How many pages threads of this process have waited for that were read from a disk, if the system says so.
fn disk_faults() -> Option<u64> {
    const OF_PROCESS: c_int = 0;
    /// Of `ru_majflt` in `struct rusage`: two times come first, of two numbers each.
    const AT: usize = 9;
    let mut usage = [0; 18];
    // SAFETY: a `rusage` is 18 numbers of this size in glibc, and they outlive the call.
    let failed = unsafe { getrusage(OF_PROCESS, &raw mut usage) } != 0;
    if failed { None } else { u64::try_from(usage[AT]).ok() }
}

impl Load {
    pub(crate) fn new() -> Self {
        Self { due: 0, least: u64::MAX, disk_faults: None }
    }

    /// The count, and what [`file`](crate::file) says of each thread, if it is time to look.
    pub(crate) fn due(&mut self, now: u64) -> Option<Vec<u64>> {
        let disk_faults = disk_faults();
        let before = std::mem::replace(&mut self.disk_faults, disk_faults);
        // A pass that waited for a disk is looked at at once, so that few others are taken for one.
        let has_waited = disk_faults.zip(before).is_some_and(|(now, before)| now > before);
        if now < self.due && !has_waited {
            return None;
        }
        let mut words = vec![now];
        for (n, task) in fs::read_dir("/proc/self/task").ok()?.flatten().enumerate() {
            if n == MOST_THREADS {
                return None;
            }
            let task = task.path();
            let number: u32 = task.file_name()?.to_str()?.parse().ok()?;
            // A thread may end meanwhile.
            let Ok(schedule) = fs::read_to_string(task.join("schedstat")) else { continue };
            let mut figures = schedule.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(ran)), Some(Ok(waited))) = (figures.next(), figures.next()) else {
                continue;
            };
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            // The 39th field; the second one is a name in brackets, which may have spaces.
            let cpu = stat
                .rsplit_once(')')
                .and_then(|(_, rest)| rest.split_whitespace().nth(36)?.parse::<u32>().ok());
            words.extend([word([number, cpu.unwrap_or(NO_CPU)]), ran, waited]);
        }
        // So that readings take less than a 400th of the time. One that was itself kept waiting says nothing of what the next
        // ones take: else threads would be looked at least where others disturb them most.
        let threads = (words.len() as u64 / 3).max(1);
        self.least = self.least.min(count().saturating_sub(now) / threads);
        self.due = now + EVERY.max(self.least.saturating_mul(threads).saturating_mul(400));
        words.push(disk_faults.unwrap_or(UNKNOWN));
        Some(words)
    }
}
