//! What each thread did of bricks that several threads share, and how long it waited for a CPU.

use serde::{Deserialize, Serialize};

use crate::brick::Phase;

/// How long a thread worked at its shares of bricks, and how long it waited for other threads before it could go on. Both
/// are measured, each by two readings of the clock on that thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Share {
    /// How many shares.
    pub count: u64,
    /// In nanoseconds.
    pub worked_ns: u64,
    /// In nanoseconds: at barriers in the brick, and at the one that ends it.
    pub waited_ns: u64,
}

impl Share {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.worked_ns = self.worked_ns.saturating_add(other.worked_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }

    /// The part of the time that was waited, 0 to 1; `None` if no time was measured.
    #[must_use]
    pub fn waited(&self) -> Option<f64> {
        let all = self.worked_ns as f64 + self.waited_ns as f64;
        (all > 0.0).then(|| self.waited_ns as f64 / all)
    }
}

/// The [`Share`] of one thread in the bricks of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// The number of the thread, as the engine counts; 0 is mostly the one that runs the pass.
    pub thread: u32,
    /// The phase of the passes.
    pub phase: Phase,
    /// The brick's name.
    pub brick: String,
    /// What it did.
    #[serde(flatten)]
    pub share: Share,
}

/// How long a thread waited for a CPU while passes ran: it could have gone on, and another thread or the hypervisor had
/// the CPU. Read from the kernel (`schedstat`) every few passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuWait {
    /// The system's number of the thread, as `top -H` and `taskset -p` have it.
    pub thread: u32,
    /// The phase of the passes.
    pub phase: Phase,
    /// The CPU on which it was when it had waited longest, as far as that was seen.
    pub cpu: Option<u32>,
    /// For how long it was looked at, in nanoseconds.
    pub looked_ns: u64,
    /// How long it ran.
    pub ran_ns: u64,
    /// How long it waited.
    pub waited_ns: u64,
    /// The part of `waited_ns` in which other threads of this process had its CPU, see
    /// [`Disturbance::own_wait_ns`](crate::Disturbance::own_wait_ns).
    pub own_ns: u64,
}

impl CpuWait {
    /// The part of the time that it waited, 0 to 1.
    #[must_use]
    pub fn waited(&self) -> f64 {
        if self.looked_ns == 0 { 0.0 } else { self.waited_ns as f64 / self.looked_ns as f64 }
    }
}
