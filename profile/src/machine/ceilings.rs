//! How fast a machine can read and compute: its limits, and each time that they were measured.

use serde::{Deserialize, Serialize};

use crate::machine::KernelPace;

/// The measured peaks of a machine, and how they were obtained.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes read from memory per second, by as many threads as the run had.
    pub read_bytes_per_second: f64,
    /// The same by all CPUs that the process may use, if the run had fewer threads and all of them read more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_read_bytes_per_second: Option<f64>,
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
    /// How far the measurements of the other limits lie apart: of arithmetic, of caches, and of memory as the threads of
    /// the run read it, if these are fewer than the CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spreads: Vec<LimitSpread>,
    /// How fast the kernels of the run's products are by themselves; empty in files of earlier versions, and for kernels that
    /// aren't ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<KernelPace>,
    /// Whether only those spans are held to them whose work is known, in the profile of a device by itself: another program's
    /// file tells the work of some. No file has it.
    #[serde(skip)]
    pub of_known_work: bool,
}

/// The lowest and the highest that a limit was measured to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitSpread {
    /// Which limit: `f32`, `int8`, `memory`, a level of cache, or a kernel's pace ([`KernelPace::name`]).
    pub of: String,
    /// The lowest right before or after the run, or at an earlier time, if two measurements agree on that. Multiplications
    /// and additions per second, or bytes.
    pub lowest_per_second: f64,
    /// The limit: the highest around the run, or where those differ, the highest on which two of all measurements agree.
    pub highest_per_second: f64,
    /// What was measured of it when this machine was measured first.
    pub first_per_second: f64,
    /// What it was right before and after the run, where nobody disturbed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub around: Vec<f64>,
    /// How often it was measured.
    pub readings: u32,
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
    /// Whether others used the CPUs meanwhile, so that it may have been more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
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
    /// The begin of the basis of limits that nobody measured.
    pub const STATED: &str = "stated by the user, not measured";

    /// Whether nobody measured them: then each screen calls them stated.
    #[must_use]
    pub fn is_stated(&self) -> bool {
        self.basis.starts_with(Self::STATED)
    }

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

    /// The lowest of some rates that another one confirms: they [agree](Self::AGREE). `None` if no two do.
    #[must_use]
    pub fn lowest_confirmed(rates: impl IntoIterator<Item = f64>) -> Option<f64> {
        let mut rates: Vec<f64> = rates.into_iter().filter(|rate| rate.is_finite()).collect();
        rates.sort_by(f64::total_cmp);
        rates.windows(2).find(|pair| pair[0] >= (1.0 - Self::AGREE) * pair[1]).map(|pair| pair[0])
    }

    /// The bandwidth of memory that a run is held against: what it gave right before and after the run, if that differs by
    /// less than [`SWINGS`](Self::SWINGS) and nobody disturbed it; else
    /// [`read_bytes_per_second`](Self::read_bytes_per_second).
    #[must_use]
    pub fn memory_limit(&self) -> f64 {
        if self.has_own_memory() {
            return self.read_bytes_per_second;
        }
        let around =
            self.readings.iter().filter(|of| of.when != ReadingTime::Kept && !of.disturbed);
        let around = around.map(|reading| reading.read_bytes_per_second);
        Self::steady(around).unwrap_or(self.read_bytes_per_second)
    }

    /// Above this part of a limit, the limit or the work is wrong; the excess over 1 is the error of measurement.
    pub const MOST: f64 = 1.02;

    /// Whether a number from a file can be a rate, so that results stay finite.
    #[must_use]
    pub fn is_rate(rate: f64) -> bool {
        (1.0..1e30).contains(&rate)
    }

    /// Limits that differ by more than this many times differ too much to judge by them.
    pub const SWINGS: f64 = 1.25;

    /// The highest of some measurements, if none is lower by more than [`SWINGS`](Self::SWINGS). `None` of none.
    #[must_use]
    pub fn steady(rates: impl Iterator<Item = f64> + Clone) -> Option<f64> {
        let rates = rates.filter(|rate| rate.is_finite() && *rate > 0.0);
        let highest = rates.clone().reduce(f64::max)?;
        rates.reduce(f64::min).filter(|lowest| highest <= Self::SWINGS * lowest)?;
        Some(highest)
    }

    /// Whether memory was measured on the threads of the run by themselves, since they are fewer than the CPUs.
    #[doc(hidden)]
    #[must_use]
    pub fn has_own_memory(&self) -> bool {
        self.machine_read_bytes_per_second.is_some()
            || self.spreads.iter().any(|spread| spread.of == Self::MEMORY)
    }

    /// The lowest and the highest bandwidth of memory by which this run can be judged. The highest is
    /// [`memory_limit`](Self::memory_limit). The lowest is that of the measurements right before and after the run, or what
    /// two earlier ones agree on if that is lower: the run may have met memory in that state, too.
    #[must_use]
    pub fn memory_spread(&self) -> [f64; 2] {
        let highest = self.memory_limit();
        if let Some(spread) = self.spreads.iter().find(|spread| spread.of == Self::MEMORY) {
            return [highest.min(spread.lowest_per_second), highest];
        }
        if self.has_own_memory() {
            return [highest; 2];
        }
        let all = self.readings.iter().map(|reading| (reading.when, reading.read_bytes_per_second));
        [Self::lowest(all).map_or(highest, |lowest| lowest.min(highest)), highest]
    }

    /// The lowest of some measurements by which a run can be judged, see [`memory_spread`](Self::memory_spread).
    #[must_use]
    pub fn lowest(readings: impl Iterator<Item = (ReadingTime, f64)> + Clone) -> Option<f64> {
        let around = readings.clone().filter(|(when, _)| *when != ReadingTime::Kept);
        let around = around.map(|(_, rate)| rate).filter(|rate| rate.is_finite());
        let confirmed = Self::lowest_confirmed(readings.map(|(_, rate)| rate));
        around.chain(confirmed).reduce(f64::min)
    }

    /// The part of a limit that it was at its lowest, 1 if it was measured once: `of` is `f32`, `int8`, a level of cache, or
    /// a kernel's pace.
    #[must_use]
    pub fn steadiness(&self, of: &str) -> f64 {
        let spread = self.spreads.iter().find(|spread| spread.of == of);
        let part = spread.map(|spread| spread.lowest_per_second / spread.highest_per_second);
        part.filter(|part| (0.0..1.0).contains(part)).unwrap_or(1.0)
    }

    /// The name of memory among limits.
    pub const MEMORY: &str = "memory";

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

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(read_bytes_per_second: f64) -> CeilingReading {
        CeilingReading {
            when: ReadingTime::Kept,
            measured: String::new(),
            read_bytes_per_second,
            disturbed: false,
        }
    }

    fn read(rates: &[f64]) -> Ceilings {
        let readings = rates.iter().map(|&rate| reading(rate)).collect();
        Ceilings { readings, ..Ceilings::default() }
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
            disturbed: false,
        };
        ceilings.readings.push(after);
        assert_eq!(ceilings.memory_spread(), [34.0, 60.0]);
        // What one earlier measurement saw counts once another one agrees.
        ceilings.readings[0].read_bytes_per_second = 19.0;
        assert_eq!(ceilings.memory_spread(), [34.0, 60.0]);
        ceilings.readings.push(CeilingReading { when: ReadingTime::Kept, ..reading(20.0) });
        assert_eq!(ceilings.memory_spread(), [19.0, 60.0]);
        // The threads of the run are fewer than the CPUs.
        ceilings.spreads.push(LimitSpread {
            of: Ceilings::MEMORY.to_owned(),
            lowest_per_second: 25.0,
            highest_per_second: 26.0,
            first_per_second: 26.0,
            around: Vec::new(),
            readings: 2,
        });
        ceilings.read_bytes_per_second = 26.0;
        assert_eq!(ceilings.memory_spread(), [25.0, 26.0]);
    }

    #[test]
    fn a_run_is_held_against_what_memory_gave_around_it_if_that_is_one_speed() {
        // The host moves its CPUs: earlier days know both speeds.
        let mut ceilings = read(&[62.0, 34.0, 61.0, 35.0]);
        ceilings.read_bytes_per_second = 62.0;
        assert_eq!(ceilings.memory_limit(), 62.0);
        let around = |when, rate| CeilingReading { when, ..reading(rate) };
        ceilings.readings.push(around(ReadingTime::Before, 35.0));
        assert_eq!((ceilings.memory_limit(), ceilings.memory_spread()), (35.0, [34.0, 35.0]));
        ceilings.readings.push(around(ReadingTime::After, 36.0));
        assert_eq!(ceilings.memory_limit(), 36.0);
        // It changed meanwhile.
        ceilings.readings[5].read_bytes_per_second = 60.0;
        assert_eq!((ceilings.memory_limit(), ceilings.memory_spread()), (62.0, [34.0, 62.0]));
        // What others lowered is no limit.
        ceilings.readings[4].disturbed = true;
        assert_eq!((ceilings.memory_limit(), ceilings.memory_spread()), (60.0, [34.0, 60.0]));
    }

    #[test]
    fn a_limit_is_as_steady_as_its_measurements() {
        let spread = |of: &str, lowest_per_second, highest_per_second| LimitSpread {
            of: of.to_owned(),
            lowest_per_second,
            highest_per_second,
            first_per_second: highest_per_second,
            around: Vec::new(),
            readings: 9,
        };
        let spreads = vec![spread("f32", 118.0, 236.0), spread("L1", f64::NAN, 1.0)];
        let ceilings = Ceilings { spreads, ..Ceilings::default() };
        assert_eq!(["f32", "L1", "int8"].map(|of| ceilings.steadiness(of)), [0.5, 1.0, 1.0]);
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
