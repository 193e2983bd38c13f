//! What others did to a process's time.

use serde::{Deserialize, Serialize};

/// What other processes, and the system, did to the threads of this process between two readings.
///
/// Unmeasured values are `None`, never 0: on systems other than Linux that is all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disturbance {
    /// The number of passes that these figures cover: more than one if passes are so short that readings
    /// around each would slow them down.
    pub passes: u64,
    /// The wall times of these passes, summed, in nanoseconds.
    pub wall_ns: u64,
    /// How often a thread of this process was taken off its core although it had more to do. Covers all
    /// threads, including those that began or ended meanwhile.
    ///
    /// A thread that offers its core (`sched_yield`) counts too, if another thread takes it. Read only where
    /// `run_queue_wait_ns` is not known.
    pub involuntary_switches: Option<u64>,
    /// How long threads of this process were runnable without a core, in nanoseconds, summed over the
    /// threads, so it can exceed the wall time. If there are more threads than cores, threads of this
    /// process wait for each other too.
    ///
    /// A wait counts when it ends, with the thread on a core. Waits of a thread between its last reading
    /// and its end are not covered. `None` above 64 threads, and if the kernel doesn't keep the figure.
    pub run_queue_wait_ns: Option<u64>,
    /// The part of `run_queue_wait_ns` of the thread that waited longest.
    pub longest_wait_ns: Option<u64>,
    /// How long the hypervisor gave cores of this machine to others, in nanoseconds, summed over all
    /// cores of the machine whether or not this process used them.
    ///
    /// The kernel reports it in ticks of 10 ms, so it is `None` for less than a tenth of a second;
    /// [`OtherLoad`] has it for the whole run.
    pub steal_ns: Option<u64>,
    /// The part of `longest_wait_ns` in which other threads of this process had that thread's CPU, in nanoseconds.
    ///
    /// How long those threads ran (their `schedstat`) that were last seen on the same CPU (their `stat`), which is more
    /// where they ran elsewhere before; or, if that is longer, what others can't have had, since all CPUs that the
    /// process may use were busy with its own threads. Looked for only where a thread waited for more than a two-hundredth of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_wait_ns: Option<u64>,
    /// How long the process's control group stopped its threads, since the group had used up its quota of CPU time
    /// (`cpu.stat`), in nanoseconds. Looked for as `own_wait_ns`, and `None` without a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// How often threads of this process touched a page of memory that the system had to map first, without reading it
    /// from a disk (minor page faults, from `getrusage`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<u64>,
    /// How often they waited for a page that was read from a disk (major page faults).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_faults: Option<u64>,
}

/// Who disturbed a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disturber {
    /// Other programs had the CPU of one of the threads.
    Others,
    /// Other threads of this process had it.
    OwnThreads,
    /// The process had used up the quota of its control group.
    Quota,
    /// The hypervisor gave the machine's CPUs to others.
    Hypervisor,
    /// That was not looked for.
    Unknown,
}

impl Disturbance {
    /// Whether the times of these passes say less about the model than about other processes.
    ///
    /// True if one thread waited for a core, or the hypervisor took cores from this machine, for more than
    /// a hundredth of the wall time. One thread is enough, since the work is shared evenly and the others
    /// wait for the one that waits. And it has to be a single thread: even in a quiet pass each thread
    /// waits some microseconds whenever it wakes (0.1 to 0.6 % of the time with a pool of two on a VM),
    /// which adds up with many threads.
    ///
    /// A switch only says that something else ran, not for how long; kernel threads that run for
    /// microseconds cause some in every quiet pass. So switches count only if the waiting wasn't
    /// measured: then a single one is reason to distrust the pass.
    ///
    /// If nothing was measured, the answer is `false`.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        let long = |ns: u64| ns > self.wall_ns / DISTURBED_PART;
        let waited = match self.longest_wait_ns {
            Some(ns) => long(ns),
            None => self.involuntary_switches.is_some_and(|switches| switches > 0),
        };
        waited || self.steal_ns.is_some_and(long)
    }

    /// Who disturbed these passes: who has the largest part of the longest wait. `None` if they were not disturbed.
    ///
    /// What neither threads of this process nor a quota explain counts as other programs'.
    #[must_use]
    pub fn disturber(&self) -> Option<Disturber> {
        if !self.is_disturbed() {
            return None;
        }
        let stolen = self.steal_ns.filter(|&ns| ns > self.wall_ns / DISTURBED_PART).unwrap_or(0);
        let wait = self.longest_wait_ns.filter(|&ns| ns > self.wall_ns / DISTURBED_PART);
        let (wait, own) = match (wait, self.own_wait_ns) {
            (Some(wait), Some(own)) => (wait, own.min(wait)),
            _ if stolen > 0 => return Some(Disturber::Hypervisor),
            _ => return Some(Disturber::Unknown),
        };
        let throttled = self.throttled_ns.unwrap_or(0).min(wait);
        // While the group is stopped nobody of it runs, so the two are different parts.
        let others = wait.saturating_sub(own).saturating_sub(throttled);
        let mut parts = [
            (others, Disturber::Others),
            (own, Disturber::OwnThreads),
            (throttled, Disturber::Quota),
            (stolen, Disturber::Hypervisor),
        ];
        parts.sort_by_key(|&(ns, _)| std::cmp::Reverse(ns));
        Some(parts[0].1)
    }
}

/// How much of this machine other processes used during a run, in CPU nanoseconds: a second of two CPUs is
/// two billion.
///
/// Everything except this process counts as other, including its children. It doesn't say which CPUs they
/// used: on a large machine a pinned run may not have been affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherLoad {
    /// All CPU time, idle or not, of which the others' is a part.
    pub machine_ns: u64,
    /// The time that this process used, from `getrusage`.
    pub own_ns: u64,
    /// Busy time of all CPUs minus `own_ns`. The kernel samples busy time at its ticks, so this is accurate
    /// to some ticks of 10 ms, and 0 if this process used more than the ticks saw.
    pub others_ns: u64,
    /// How long the hypervisor took CPUs from this machine; part of `machine_ns`, but not of the other two.
    /// `None` if the kernel doesn't report it.
    pub steal_ns: Option<u64>,
}

impl OtherLoad {
    /// The part of the machine's CPU time that others used, 0 to 1.
    #[must_use]
    pub fn others_share(&self) -> f64 {
        self.others_ns as f64 / self.machine_ns.max(1) as f64
    }

    /// The part of the machine's CPU time that the hypervisor took, 0 to 1.
    #[must_use]
    pub fn steal_share(&self) -> Option<f64> {
        self.steal_ns.map(|ns| ns as f64 / self.machine_ns.max(1) as f64)
    }
}

/// A pass is disturbed if others took more than one part in this many of it. Comparisons distinguish
/// medians of bricks at some percent, so less than one percent can hide nothing.
const DISTURBED_PART: u64 = 100;
