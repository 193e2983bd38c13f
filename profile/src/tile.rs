//! Tiles: the cache-blocked pieces of a kernel, timed one by one.

use serde::{Deserialize, Serialize};

use crate::stats::{BrickStats, ratio};

/// The level of blocking that a tile belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TileLevel {
    /// A thread's share: last-level cache, or a GPU's global memory.
    #[default]
    Macro,
    /// A cache block: L2, or a GPU's shared memory.
    Midi,
    /// A register block.
    Micro,
}

impl TileLevel {
    /// Every level, from the largest tiles to the smallest.
    pub const ALL: [Self; 3] = [Self::Macro, Self::Midi, Self::Micro];

    /// The name in reports and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Macro => "macro",
            Self::Midi => "midi",
            Self::Micro => "micro",
        }
    }
}

/// The sums of the tiles of one level.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TileStats {
    /// The level.
    pub level: TileLevel,
    /// Tiles timed.
    pub count: u64,
    /// Their times, summed, in nanoseconds.
    pub total_ns: u64,
    /// The shortest tile, in nanoseconds; `u64::MAX` if there is none.
    pub min_ns: u64,
    /// The longest tile, in nanoseconds.
    pub max_ns: u64,
    /// Elements processed.
    pub total_elements: u64,
    /// Floating-point operations; in files `null` where none were stated.
    #[serde(with = "crate::stats::stated")]
    pub total_flops: u64,
    /// The number of tiles, if they are too short to be timed one by one. Then runs of consecutive tiles were
    /// timed, and `count`, `min_ns` and `max_ns` are those of the runs. `None` if each tile was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles_in_runs: Option<u64>,
}

/// The tiles that one thread computed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TileThread {
    /// The thread's name, if it has one.
    pub name: Option<String>,
    /// The system's id of the thread, if known.
    pub tid: Option<u32>,
    /// The levels that the thread had tiles of, from the largest to the smallest.
    pub tiles: Vec<TileStats>,
}

/// How evenly the threads shared the matrix products that the macro tiles are shares of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TileBalance {
    /// Products whose shares were timed.
    pub products: u64,
    /// The longest share of each product, summed, in nanoseconds.
    pub slowest_ns: u64,
    /// The same, with each longest share multiplied by the number of threads that shared the product: the
    /// time that all threads could have worked while the slowest did.
    pub offered_ns: u64,
    /// All shares, summed.
    pub worked_ns: u64,
}

impl TileBalance {
    /// How much longer the slowest share of a product took than the mean over all threads, weighted by time:
    /// 0.0 if all took equally long. This is "percent imbalance" as a fraction (Pearce et al., "Quantifying
    /// the effectiveness of load balance algorithms", ICS 2012).
    ///
    /// `None` if no time was measured, or if shares of other products were timed as well, as happens while
    /// products run.
    #[must_use]
    pub fn imbalance(&self) -> Option<f64> {
        let is_known = self.worked_ns > 0 && self.offered_ns >= self.worked_ns;
        is_known.then(|| self.offered_ns as f64 / self.worked_ns as f64 - 1.0)
    }
}

impl TileStats {
    /// A level without any tile yet.
    #[must_use]
    pub fn new(level: TileLevel) -> Self {
        Self { level, min_ns: u64::MAX, ..Self::default() }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn from_sums(level: TileLevel, runs: &BrickStats, tiles: u64) -> Self {
        Self {
            level,
            count: runs.count,
            total_ns: runs.total_ns,
            min_ns: runs.min_ns,
            max_ns: runs.max_ns,
            total_elements: runs.total_elements,
            total_flops: runs.total_flops,
            tiles_in_runs: Some(tiles).filter(|&tiles| tiles > runs.count),
        }
    }

    /// Adds one tile.
    pub fn add_sample(&mut self, elapsed_ns: u64, elements: u64, flops: u64) {
        self.count += 1;
        self.total_ns += elapsed_ns;
        self.min_ns = self.min_ns.min(elapsed_ns);
        self.max_ns = self.max_ns.max(elapsed_ns);
        self.total_elements += elements;
        self.total_flops += flops;
    }

    /// The mean time of a tile in microseconds; 0.0 if there is none.
    #[must_use]
    pub fn avg_us(&self) -> f64 {
        ratio(self.total_ns as f64 / 1e3, self.count as f64)
    }

    /// Elements per second; 0.0 if no tile was timed.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        ratio(self.total_elements as f64 * 1e9, self.total_ns as f64)
    }

    /// GFLOP/s; 0.0 if no tile was timed.
    #[must_use]
    pub fn gflops(&self) -> f64 {
        ratio(self.total_flops as f64, self.total_ns as f64)
    }

    /// FLOPs per byte of the elements, which are assumed to be `f32`: four bytes each.
    #[must_use]
    pub fn arithmetic_intensity(&self) -> f64 {
        ratio(self.total_flops as f64, self.total_elements as f64 * 4.0)
    }
}
