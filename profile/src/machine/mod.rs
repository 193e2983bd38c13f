//! What is known of the machine behind a profile: its parts, its ceilings, and what disturbed the run.

mod counters;
mod load;
mod survey;

pub use counters::{CounterReading, CounterSums};
pub use load::{Disturbance, Disturber, OtherLoad};
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
    /// Each time that memory's bandwidth was measured: on earlier days, right before the run, and right after it;
    /// oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<CeilingReading>,
}

/// One measurement of memory's bandwidth, by all CPUs that the process may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CeilingReading {
    /// Relative to the run.
    pub when: ReadingTime,
    /// RFC 3339 in UTC.
    pub measured: String,
    /// Bytes read from memory per second.
    pub read_bytes_per_second: f64,
}

/// When a ceiling was measured, relative to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadingTime {
    /// For an earlier run.
    Kept,
    /// Right before the run.
    Before,
    /// Right after it.
    After,
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

    /// Two measurements of one bandwidth that differ by less than this part agree.
    pub const AGREE: f64 = 0.1;

    /// The highest of some rates that another one confirms: they [agree](Self::AGREE). With no two that agree, the
    /// second highest, or the only one; `None` of none.
    #[must_use]
    pub fn confirmed(rates: impl IntoIterator<Item = f64>) -> Option<f64> {
        let mut rates: Vec<f64> = rates.into_iter().filter(|rate| rate.is_finite()).collect();
        rates.sort_by(|a, b| b.total_cmp(a));
        let pair = rates.windows(2).find(|pair| pair[1] >= (1.0 - Self::AGREE) * pair[0]);
        let alone = rates.get(1).or(rates.first()).copied();
        pair.map(|agreed| agreed[0]).or(alone)
    }

    /// The lowest and the highest bandwidth of memory by which this run can be judged: the lowest is that of the
    /// measurements right before and after it, the highest is [`read_bytes_per_second`](Self::read_bytes_per_second).
    /// Equal if memory was measured only once.
    #[must_use]
    pub fn memory_spread(&self) -> [f64; 2] {
        let highest = self.read_bytes_per_second;
        let beside = self.readings.iter().filter(|reading| reading.when != ReadingTime::Kept);
        [beside.map(|reading| reading.read_bytes_per_second).fold(highest, f64::min), highest]
    }

    /// The two bandwidths between which memory changes, if all measurements are near one of two that are at least a
    /// quarter apart, and both were seen twice. A virtual machine has two where its host moves its CPUs together and
    /// apart.
    #[must_use]
    pub fn memory_states(&self) -> Option<[f64; 2]> {
        let rates = self.readings.iter().map(|reading| reading.read_bytes_per_second);
        let mut rates: Vec<f64> = rates.filter(|rate| rate.is_finite()).collect();
        rates.sort_by(f64::total_cmp);
        let (gap, at) = (1..rates.len())
            .map(|at| (rates[at] / rates[at - 1], at))
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (slow, fast) = rates.split_at(at);
        // Twice as much scatter as two measurements that agree may have.
        let is_one = |state: &[f64]| {
            state.len() >= 2 && state[0] >= (1.0 - 2.0 * Self::AGREE) * state[state.len() - 1]
        };
        (gap > 1.25 && is_one(slow) && is_one(fast))
            .then(|| [slow, fast].map(|state| state[state.len() / 2]))
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

    fn read(rates: &[f64]) -> Ceilings {
        let reading = |&read_bytes_per_second| CeilingReading {
            when: ReadingTime::Kept,
            measured: String::new(),
            read_bytes_per_second,
        };
        Ceilings { readings: rates.iter().map(reading).collect(), ..Ceilings::default() }
    }

    #[test]
    fn a_ceiling_is_one_that_two_measurements_agree_on() {
        for (rates, confirmed) in [
            (&[][..], None),
            (&[38.0], Some(38.0)),
            // Alone at the top, once: not confirmed.
            (&[37.0, 60.0, 38.0], Some(38.0)),
            (&[60.0, 31.0, 38.0, 57.0], Some(60.0)),
            // Nothing agrees with anything.
            (&[31.0, 40.0, 60.0], Some(40.0)),
            (&[38.0, 60.0], Some(38.0)),
            (&[f64::NAN, 31.0], Some(31.0)),
        ] {
            assert_eq!(Ceilings::confirmed(rates.iter().copied()), confirmed, "{rates:?}");
        }
    }

    #[test]
    fn two_states_are_told_from_scatter() {
        assert_eq!(read(&[34.0, 62.0, 33.0, 64.0]).memory_states(), Some([34.0, 64.0]));
        for one in [&[][..], &[34.0], &[34.0, 62.0], &[34.0, 33.0, 62.0], &[34.0, 36.0, 35.0, 37.0]]
        {
            assert_eq!(read(one).memory_states(), None, "{one:?}");
        }
        // Anything between.
        assert_eq!(read(&[30.0, 36.0, 45.0, 53.0, 60.0]).memory_states(), None);
    }

    #[test]
    fn a_run_is_judged_by_what_was_measured_around_it() {
        let mut ceilings = read(&[20.0, 60.0]);
        ceilings.read_bytes_per_second = 60.0;
        assert_eq!(ceilings.memory_spread(), [60.0, 60.0]);
        ceilings.readings[1].when = ReadingTime::Before;
        let after = CeilingReading {
            when: ReadingTime::After,
            measured: String::new(),
            read_bytes_per_second: 34.0,
        };
        ceilings.readings.push(after);
        assert_eq!(ceilings.memory_spread(), [34.0, 60.0]);
    }

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
