//! What others do to the threads of this process: how long each ran and waited for a CPU.

use std::fs;

use crate::count;
use crate::format::{NO_CPU, word};

/// It is read once in so many counts at most: some milliseconds. A reading takes microseconds a thread.
const EVERY: u64 = 5_000_000;
/// With more threads than this, reading each one's file would itself disturb a pass.
const MOST_THREADS: usize = 64;

pub(crate) struct Load {
    due: u64,
    /// The least that reading a thread's figures took.
    least: u64,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self { due: 0, least: u64::MAX }
    }

    /// The count, and what [`file`](crate::file) says of each thread, if it is time to look.
    pub(crate) fn due(&mut self, now: u64) -> Option<Vec<u64>> {
        if now < self.due {
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
        Some(words)
    }
}
