//! The threads of this process: their CPU time, and whether they are running.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::clock;

/// A thread of this process.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: i32,
    pub(super) name: String,
    state: Option<State>,
}

/// A file that tells whether a thread is running.
#[derive(Debug)]
enum State {
    /// `/proc/self/task/TID/syscall`: cheap, but not in every kernel.
    Call(File),
    /// `/proc/self/task/TID/stat`.
    Stat(File),
}

impl Thread {
    pub(super) fn new(tid: i32) -> Self {
        let file = |name| File::open(format!("/proc/self/task/{tid}/{name}")).ok();
        let readable = |file: &File| file.read_at(&mut [0], 0).is_ok();
        let call = file("syscall").filter(readable).map(State::Call);
        let state = call.or_else(|| file("stat").map(State::Stat));
        let mut thread = Self { tid, name: String::new(), state };
        thread.look_up_name();
        thread
    }

    /// Reads the name again, which a thread mostly gets just after its begin.
    pub(super) fn look_up_name(&mut self) {
        if let Ok(name) = fs::read(format!("/proc/self/task/{}/comm", self.tid)) {
            self.name = String::from_utf8_lossy(&name).trim_end().to_owned();
        }
    }

    /// Its CPU time, in nanoseconds; `None` if it has ended.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        // What `pthread_getcpuclockid` gives, which wants another kind of number: see
        // `make_thread_cpuclock` in the kernel's posix-timers.h.
        const THREAD: i32 = 4;
        const SCHEDULER: i32 = 2;
        clock::read(!self.tid << 3 | THREAD | SCHEDULER)
    }

    /// Whether it has a CPU, or waits for one.
    pub(super) fn is_running(&self) -> bool {
        let mut text = [0; 512];
        let mut read = |file: &File| file.read_at(&mut text, 0).unwrap_or(0);
        match &self.state {
            Some(State::Call(file)) => {
                let length = read(file);
                text[..length].starts_with(b"running")
            }
            Some(State::Stat(file)) => {
                let length = read(file);
                // The name, in brackets, may have any characters in it.
                let name_end = text[..length].iter().rposition(|&byte| byte == b')');
                name_end.is_some_and(|end| text.get(end + 2) == Some(&b'R'))
            }
            None => false,
        }
    }
}

/// The numbers of this process's threads.
pub(super) fn list() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
