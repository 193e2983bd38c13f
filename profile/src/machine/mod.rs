//! What is known of the machine behind a profile: its parts, its ceilings, and what disturbed the run.

mod ceilings;
mod counters;
mod load;
mod pace;
mod survey;

pub use ceilings::{CacheCeiling, CeilingReading, Ceilings, LimitSpread, Numbers, ReadingTime};
pub use counters::{CounterReading, CounterSums};
pub use load::{Disturbance, Disturber, OtherLoad};
pub use pace::KernelPace;
use serde::{Deserialize, Serialize};
pub use survey::{Bandwidth, Move, Peak, Survey};

/// The machine that a run was made on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The operating system: `linux`, `macos`, …
    pub os: String,
    /// The architecture: `x86_64`, `aarch64`, …
    pub arch: String,
    /// The processor, as it names itself.
    pub cpu: Option<String>,
    /// Logical processors that this process may use.
    pub logical_cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// One level of data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheLevel {
    /// 1, 2, 3, …
    pub level: u32,
    /// Bytes of one such cache.
    pub bytes: u64,
    /// Logical CPUs that share one.
    pub shared_by: u32,
}

impl CacheLevel {
    /// `L1`, `L2`, …
    #[must_use]
    pub fn name(&self) -> String {
        format!("L{}", self.level)
    }

    /// The part of it for each of `threads` busy threads, if they run as close together as they can.
    #[must_use]
    pub fn bytes_per_thread(&self, threads: u32) -> u64 {
        self.bytes / u64::from(threads.min(self.shared_by).max(1))
    }

    /// The size of this level for all `threads` together, if they run as close together as they can.
    #[must_use]
    pub fn bytes_of(&self, threads: u32) -> u64 {
        self.bytes.saturating_mul(threads.max(1).div_ceil(self.shared_by.max(1)).into())
    }
}
