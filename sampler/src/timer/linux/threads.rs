//! The threads of this process: their names and CPU clocks.

use std::fs;

use crate::clock;

/// A thread of this process.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: i32,
    pub(super) name: String,
}

impl Thread {
    pub(super) fn new(tid: i32) -> Self {
        let mut thread = Self { tid, name: String::new() };
        thread.look_up_name();
        thread
    }

    /// Reads the name again: most threads get it just after they start.
    pub(super) fn look_up_name(&mut self) {
        if let Ok(name) = fs::read(format!("/proc/self/task/{}/comm", self.tid)) {
            self.name = String::from_utf8_lossy(&name).trim_end().to_owned();
        }
    }

    /// The clock of its CPU time, as `pthread_getcpuclockid` would return it, which takes a pthread instead of this id. See
    /// `make_thread_cpuclock` in the kernel's posix-timers.h.
    pub(super) fn cpu_clock(&self) -> libc::clockid_t {
        const THREAD: i32 = 4;
        const SCHEDULER: i32 = 2;
        !self.tid << 3 | THREAD | SCHEDULER
    }

    /// Its CPU time, in nanoseconds; `None` if it has ended.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        clock::read(self.cpu_clock())
    }
}

/// The ids of this process's threads.
pub(super) fn list() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
