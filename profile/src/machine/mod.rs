//! What is known of the machine behind a profile: its parts, its ceilings, and what disturbed the run.

mod counters;
mod load;
mod survey;

pub use counters::{CounterReading, CounterSums};
pub use load::{Disturbance, OtherLoad};
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

/// The measured peaks of a machine, and how they were obtained.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes read from memory per second, by as many threads as the run had.
    pub read_bytes_per_second: f64,
    /// Multiplications and additions of `f32` per second, by the same threads with the run's instruction
    /// set. If `numbers` is absent they may be of bytes: of what the run's products multiplied.
    pub flops_per_second: f64,
    /// The same for bytes, if kernels of that instruction set multiply them and it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int8_ops_per_second: Option<f64>,
    /// The numbers that the products of the run multiply, and so which of the two peaks is its own; absent
    /// in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Numbers>,
    /// How the peaks were obtained.
    pub basis: String,
    /// When, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    /// Bytes read per second from each level of cache for which that could be measured; the smallest level
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheCeiling>,
}

/// The numbers whose multiplication has a peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbers {
    /// Floats of 32 bits.
    F32,
    /// Whole numbers of 8 bits.
    Int8,
}

impl Ceilings {
    /// The end of the basis of ceilings whose peak is of products of bytes.
    #[doc(hidden)]
    pub const OF_BYTES: &str = ", products of bytes";

    /// The same ceilings for a run with products whose kernels multiply bytes. If no peak for bytes was
    /// measured, or it is the lower one, that of `f32` stays.
    #[must_use]
    pub fn of_int8_products(mut self) -> Self {
        let is_higher = self.int8_ops_per_second.is_some_and(|peak| peak > self.flops_per_second);
        if is_higher && self.numbers != Some(Numbers::Int8) {
            self.numbers = Some(Numbers::Int8);
            self.basis.push_str(Self::OF_BYTES);
        }
        self
    }

    /// The peak that a run is compared with, in multiplications and additions per second.
    #[must_use]
    pub fn peak_per_second(&self) -> f64 {
        let bytes = self.int8_ops_per_second.filter(|_| self.numbers == Some(Numbers::Int8));
        bytes.unwrap_or(self.flops_per_second)
    }

    /// The name of the field with that peak.
    #[must_use]
    pub fn peak_field(&self) -> &'static str {
        match (self.numbers, self.int8_ops_per_second) {
            (Some(Numbers::Int8), Some(_)) => "int8_ops_per_second",
            _ => "flops_per_second",
        }
    }

    /// The text of a basis: when or by what it was measured, then with what.
    #[doc(hidden)]
    #[must_use]
    pub fn basis(when: &str, threads: u32, backend: &str) -> String {
        format!("{when}: {threads} thread{}, {backend}", if threads == 1 { "" } else { "s" })
    }

    /// The same ceilings, with a basis that says when they were measured and that they were kept.
    #[must_use]
    pub fn kept(mut self) -> Self {
        if let Some((_, with)) = self.basis.rsplit_once(": ") {
            let when = self.measured.as_deref().unwrap_or("before");
            self.basis = format!("measured {when} and kept: {with}");
        }
        self
    }
}

/// The measured peak bandwidth of a level of cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheCeiling {
    /// `L1`, `L2`, …
    pub level: String,
    /// The size that the threads of the run share.
    pub bytes: u64,
    /// Bytes read from it per second, by all of them.
    pub read_bytes_per_second: f64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_bytes_are_held_to_their_own_peak() {
        let floats = Ceilings {
            flops_per_second: 100e9,
            int8_ops_per_second: Some(400e9),
            numbers: Some(Numbers::F32),
            basis: Ceilings::basis("measured before the run", 2, "avx512"),
            ..Ceilings::default()
        };
        let bytes = floats.clone().of_int8_products();
        assert_eq!((bytes.peak_per_second(), bytes.peak_field()), (400e9, "int8_ops_per_second"));
        assert_eq!((floats.peak_per_second(), floats.peak_field()), (100e9, "flops_per_second"));
        assert_eq!(bytes.flops_per_second, 100e9, "what was measured of floats is kept");
        assert_eq!(bytes.basis, "measured before the run: 2 threads, avx512, products of bytes");
        assert_eq!(bytes.clone().of_int8_products(), bytes);
        for int8_ops_per_second in [None, Some(50e9)] {
            let slow = Ceilings { int8_ops_per_second, ..floats.clone() };
            assert_eq!(slow.clone().of_int8_products(), slow);
        }
    }
}
