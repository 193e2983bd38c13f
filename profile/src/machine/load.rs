//! What others did to a process's time.

use serde::{Deserialize, Serialize};

/// What happened to this process's threads between two readings, by the doing of others.
///
/// What could not be measured is `None`, never 0: on other systems than Linux that is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disturbance {
    /// How many passes these figures cover: more than one where passes are so short that readings
    /// around each would slow them down.
    pub passes: u64,
    /// The walls of these passes, summed, in nanoseconds.
    pub wall_ns: u64,
    /// How often a thread of this process was taken off its core though it had more to do. Covers
    /// all threads, those too that began or ended meanwhile.
    ///
    /// A thread that offers its core (`sched_yield`) counts too, if somebody takes the offer.
    pub involuntary_switches: Option<u64>,
    /// For how long threads of this process could have run but had no core, in nanoseconds, summed
    /// over the threads, so it can exceed the wall time. Threads of the same process wait for one
    /// another too, if there are more of them than cores.
    ///
    /// A wait counts when it ends, with the thread on a core. Doesn't cover the waits of a thread
    /// after its last reading, if it has ended since. `None` above 64 threads, and where the kernel
    /// doesn't keep the figure.
    pub run_queue_wait_ns: Option<u64>,
    /// The part of `run_queue_wait_ns` of the one thread that waited longest.
    pub longest_wait_ns: Option<u64>,
    /// For how long the hypervisor gave cores of this machine to others, in nanoseconds, summed over
    /// all cores of the machine whether or not this process used them.
    ///
    /// The kernel tells it in ticks of 10 ms, so it is `None` for less than a tenth of a second:
    /// [`OtherLoad`] has it for the whole run.
    pub steal_ns: Option<u64>,
}

impl Disturbance {
    /// Whether the times of these passes say less about the model than about others.
    ///
    /// True if one thread waited for a core, or the hypervisor kept cores from this machine, for more
    /// than a hundredth of the wall. One thread is enough, since the work is shared out evenly and
    /// the others wait for the one that waits. And it has to be one: in a quiet pass each thread
    /// waits some microseconds whenever it wakes (0.1 to 0.6 % of the time with a pool of two on a
    /// VM), which with many threads adds up to any sum.
    ///
    /// A switch says only that something else ran, not for how long; kernel threads that run for
    /// microseconds cause some in every quiet pass. So switches count only where the waiting
    /// wasn't measured: there a single one is reason to distrust the pass.
    ///
    /// Where nothing was measured, nothing is known, and the answer is `false`.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        let long = |ns: u64| ns > self.wall_ns / DISTURBED_PART;
        let waited = match self.longest_wait_ns {
            Some(ns) => long(ns),
            None => self.involuntary_switches.is_some_and(|switches| switches > 0),
        };
        waited || self.steal_ns.is_some_and(long)
    }
}

/// How much of this machine others used during a run, in CPU nanoseconds: a second of two CPUs is two
/// billion.
///
/// Others are all that is not this process, and its children are others. It says nothing of which
/// CPUs they used: on a large machine a pinned run may not have noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherLoad {
    /// All CPU time that there was, idle or not: what the others' is a part of.
    pub machine_ns: u64,
    /// What this process used, as `getrusage` says.
    pub own_ns: u64,
    /// Busy time of all CPUs less `own_ns`. The kernel samples busy time at its ticks, so this is
    /// good to some ticks of 10 ms, and 0 where this process used more than the ticks saw.
    pub others_ns: u64,
    /// For how long the hypervisor kept CPUs from this machine; part of `machine_ns`, and of neither
    /// of the others. `None` if the kernel doesn't tell.
    pub steal_ns: Option<u64>,
}

impl OtherLoad {
    /// The part of the machine's CPU time that others used, 0 to 1.
    #[must_use]
    pub fn others_share(&self) -> f64 {
        self.others_ns as f64 / self.machine_ns.max(1) as f64
    }

    /// The part of the machine's CPU time that its hypervisor kept from it, 0 to 1.
    #[must_use]
    pub fn steal_share(&self) -> Option<f64> {
        self.steal_ns.map(|ns| ns as f64 / self.machine_ns.max(1) as f64)
    }
}

/// A pass is disturbed if this part of it went to others: one in so many. Medians of bricks are told
/// apart at some percent, so what is below one percent can hide nothing.
const DISTURBED_PART: u64 = 100;
