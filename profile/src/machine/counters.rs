//! What hardware counters counted.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;

/// Counts of the hardware counters, in user space, over all counted threads.
///
/// A counter is `None` if the machine lacks it, or if it wasn't counted all the time: see
/// [`absent`](Self::absent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CounterReading {
    /// Cycles of the cores while they ran these threads, at whatever frequency.
    pub cycles: Option<u64>,
    /// Instructions retired.
    pub instructions: Option<u64>,
    /// Loads that missed the last-level cache. Data that prefetchers fetch in time doesn't count.
    pub llc_misses: Option<u64>,
    /// Mispredicted branches.
    pub branch_misses: Option<u64>,
    /// How long the threads to be counted ran, in nanoseconds, summed over threads.
    pub wanted_ns: u64,
    /// How long of that the counters were on the hardware.
    pub counted_ns: u64,
}

impl CounterReading {
    /// The value that [`add`](Self::add) starts from.
    #[doc(hidden)]
    pub const ZERO: Self = Self {
        cycles: Some(0),
        instructions: Some(0),
        llc_misses: Some(0),
        branch_misses: Some(0),
        wanted_ns: 0,
        counted_ns: 0,
    };

    /// The counts between an earlier reading of the same counters and this one.
    #[doc(hidden)]
    pub fn since(&self, earlier: &Self) -> Self {
        let wanted_ns = self.wanted_ns.saturating_sub(earlier.wanted_ns);
        let counted_ns = self.counted_ns.saturating_sub(earlier.counted_ns);
        let grown = |now: Option<u64>, then: Option<u64>| {
            if counted_ns < wanted_ns { None } else { now?.checked_sub(then?) }
        };
        Self {
            cycles: grown(self.cycles, earlier.cycles),
            instructions: grown(self.instructions, earlier.instructions),
            llc_misses: grown(self.llc_misses, earlier.llc_misses),
            branch_misses: grown(self.branch_misses, earlier.branch_misses),
            wanted_ns,
            counted_ns,
        }
    }

    /// Adds the counts of another interval. A counter that is absent in either is absent in the sum.
    #[doc(hidden)]
    pub fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        self.cycles = sum(self.cycles, other.cycles);
        self.instructions = sum(self.instructions, other.instructions);
        self.llc_misses = sum(self.llc_misses, other.llc_misses);
        self.branch_misses = sum(self.branch_misses, other.branch_misses);
        self.wanted_ns = self.wanted_ns.saturating_add(other.wanted_ns);
        self.counted_ns = self.counted_ns.saturating_add(other.counted_ns);
    }

    /// Why counters that the machine has are `None`: they were not counted all the time.
    #[must_use]
    pub fn absent(&self) -> Option<Absent> {
        (self.counted_ns < self.wanted_ns).then(|| Absent {
            reason: format!(
                "the counters were on the hardware for {} of {} µs, since others use them too: \
                 end other profilers, or free one with `sudo sysctl kernel.nmi_watchdog=0`",
                self.counted_ns / 1000,
                self.wanted_ns / 1000
            ),
        })
    }
}

/// The counts of some spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterSums {
    /// The number of counted spans: fewer than all, if counting began or ended meanwhile.
    pub spans: u64,
    /// The sums over them.
    #[serde(flatten)]
    pub sums: CounterReading,
}

impl Default for CounterSums {
    fn default() -> Self {
        Self { spans: 0, sums: CounterReading::ZERO }
    }
}

impl CounterSums {
    #[doc(hidden)]
    pub fn add(&mut self, span: &CounterReading) {
        self.spans += 1;
        self.sums.add(span);
    }

    #[doc(hidden)]
    pub fn merge(&mut self, other: &Self) {
        self.spans += other.spans;
        self.sums.add(&other.sums);
    }

    /// Instructions per cycle.
    #[must_use]
    pub fn instructions_per_cycle(&self) -> Option<f64> {
        let cycles = self.sums.cycles.filter(|&cycles| cycles > 0)?;
        Some(self.sums.instructions? as f64 / cycles as f64)
    }
}
