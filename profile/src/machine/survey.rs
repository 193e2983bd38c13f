//! All peaks of a machine: each way to move memory, each level of cache, each backend.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::machine::{CacheCeiling, CacheLevel, Ceilings, KernelPace, Numbers};

/// The result of `brickscope machine`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// When it was measured, RFC 3339 in UTC.
    pub measured: String,
    /// The backend whose loops moved the memory.
    pub backend: String,
    /// The data caches, as the system describes them; empty if it doesn't.
    pub caches: Vec<CacheLevel>,
    /// Bytes moved per second.
    pub bandwidth: Vec<Bandwidth>,
    /// Operations per second.
    pub peaks: Vec<Peak>,
    /// How fast the kernels of each backend take weights in, by format: on one thread and on all. Files of earlier versions
    /// have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<KernelPace>,
}

/// How fast some threads move data at one level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// `L1`, `L2`, … or `memory`.
    pub level: String,
    /// How it is moved.
    pub how: Move,
    /// The number of threads.
    pub threads: u32,
    /// The bytes that they touch together, again and again.
    pub working_set: Option<u64>,
    /// Bytes moved per second, by all of them. What a write reads first, because the line wasn't in the
    /// cache, isn't counted.
    pub bytes_per_second: Option<f64>,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
}

/// How fast some threads compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// `f32` or `int8`.
    pub numbers: String,
    /// The backend.
    pub backend: String,
    /// The instructions that multiply and add.
    pub instructions: String,
    /// Whether products of this backend's kernels use them.
    pub is_used: bool,
    /// The number of threads.
    pub threads: u32,
    /// Multiplications and additions per second, each counted as one.
    pub ops_per_second: Option<f64>,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
}

/// How memory is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Move {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// `a[i] = b[i]`, counted as two moves.
    Copy,
    /// `a[i] = b[i] + s·c[i]`, counted as three moves.
    Triad,
}

impl Move {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Copy, Self::Triad];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Triad => "triad",
        }
    }

    /// The number of arrays that it moves.
    #[doc(hidden)]
    #[must_use]
    pub const fn arrays(self) -> usize {
        match self {
            Self::Read | Self::Write => 1,
            Self::Copy => 2,
            Self::Triad => 3,
        }
    }
}

impl Survey {
    /// The ceilings for a run of this survey's backend on `threads` threads, if they were measured.
    #[must_use]
    pub fn ceilings(&self, threads: u32) -> Option<Ceilings> {
        let peak = |numbers: &str| {
            let mut peaks = self.peaks.iter().filter(|peak| {
                peak.backend == self.backend && peak.threads == threads && peak.is_used
            });
            peaks.find(|peak| peak.numbers == numbers)?.ops_per_second
        };
        let read = |level: &str| {
            let rows = self.bandwidth.iter();
            let mut rows = rows.filter(|row| row.how == Move::Read && row.threads == threads);
            rows.find(|row| row.level == level)?.bytes_per_second
        };
        // Whatever threads a run has, all of memory is there for it.
        let reads = self.bandwidth.iter().filter(|row| row.how == Move::Read);
        let of_memory = reads.filter(|row| row.level == "memory");
        let memory = of_memory.filter_map(|row| row.bytes_per_second).reduce(f64::max)?;
        let caches = self.caches.iter().filter_map(|cache| {
            Some(CacheCeiling {
                level: cache.name(),
                bytes: cache.bytes_of(threads),
                read_bytes_per_second: read(&cache.name())?,
            })
        });
        let end = format!("_{}", self.backend);
        let paces = self.paces.iter();
        let paces = paces.filter(|of| of.threads == threads && of.kernel.ends_with(&end)).cloned();
        Some(Ceilings {
            read_bytes_per_second: memory,
            flops_per_second: peak("f32")?,
            int8_ops_per_second: peak("int8"),
            numbers: Some(Numbers::F32),
            basis: Ceilings::basis("measured by `brickscope machine`", threads, &self.backend),
            measured: Some(self.measured.clone()),
            caches: caches.collect(),
            paces: paces.collect(),
            ..Ceilings::default()
        })
    }
}
