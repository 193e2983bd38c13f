//! Compares the work of bricks with the machine's ceilings: the roofline model.
//!
//! Samuel Williams, Andrew Waterman, David Patterson: *Roofline: An Insightful Visual Performance
//! Model for Multicore Architectures*, Communications of the ACM 52(4), 2009,
//! <https://doi.org/10.1145/1498765.1498785>:
//!
//! ```text
//! attainable FLOP/s = min(peak FLOP/s, arithmetic intensity × peak bandwidth)
//! ```
//!
//! In terms of time, work of `F` FLOPs takes at least `F / peak`, and for each level of the memory at least the
//! bytes that come from it or from farther away, divided by its bandwidth. The greatest of these is the least time.
//!
//! Where bytes come from follows from when they were last used, not from how fast they came: weights and the KV
//! cache come from the smallest cache that holds all that a pass touches, activations from the smallest that holds
//! what their span touches (their producer has just run), or else from memory. The distance between two uses of
//! the same data is the classical measure for that: R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger:
//! *Evaluation techniques for storage hierarchies*, IBM Systems Journal 9(2), 1970.

mod known;
mod limits;
mod pace;
mod place;
#[cfg(test)]
mod tests;
mod verdict;

use brickscope_profile::text::printable;
use brickscope_profile::{Absent, Ceilings, Phase, Profile, Total};
use serde::Serialize;

pub use self::known::Known;
pub(crate) use self::known::{is_known, known_part};
use self::limits::{Limits, Reused};
pub(crate) use self::pace::OURS;
pub use self::pace::OwnPace;
use self::pace::Paces;
use self::place::kept_spans;
pub use self::place::{Bound, Moved, Note, Reach, RooflineBrick, Standing};
pub use self::verdict::Verdict;
use crate::passes::with_bricks;
use crate::typical;
use crate::words::short;

/// The bricks that are products of matrices, whose shapes a trace can have.
pub(crate) const BRICKS_OF_PRODUCTS: [&str; 8] = [
    "MatMul",
    "QkvProjection",
    "OutputProjection",
    "GateProjection",
    "UpProjection",
    "GateUpProjection",
    "DownProjection",
    "LmHead",
];

/// Below this part of a roof, the roof isn't the limit. Nsight Compute draws the line at the same place:
/// below 60 % of both it names latency as the likely cause (*Kernel Profiling Guide*, "GPU Speed Of Light
/// Throughput").
pub const NEAR: f64 = 0.6;

/// From this part of a roof on, the roof is reached.
pub const AT: f64 = 0.9;

/// Above this part of a roof, the roof or the work is wrong; the excess over 1 is the error of measurement.
pub const MOST: f64 = Ceilings::MOST;

/// Measurements of a limit that differ by more than this many times leave no verdict, where it depends on them.
pub const SWINGS: f64 = Ceilings::SWINGS;

/// The name of the farthest level.
pub(crate) const MEMORY: &str = Ceilings::MEMORY;

/// The bricks of a phase, compared with the machine's ceilings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roofline {
    /// The phase.
    pub phase: Phase,
    /// The peak of the run's products, in FLOPs per second: the measured one, or that of the run if it was higher.
    pub peak_flops_per_second: f64,
    /// The bandwidth of memory, in bytes that as many threads as the run's read per second: the measured one, or that of the
    /// run if it was higher.
    pub peak_bytes_per_second: f64,
    /// The least bandwidth of memory by which the run can be judged, see [`Ceilings::memory_spread`].
    pub least_bytes_per_second: f64,
    /// What all CPUs read from memory, if the run had fewer threads and these read less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_bytes_per_second: Option<f64>,
    /// Whose spans showed that a limit is higher than it was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shown_by: Vec<ShownBy>,
    /// The ridge point, where the two roofs meet, in FLOPs per byte.
    pub ridge: f64,
    /// The bytes of weights and KV cache that a pass touches, on average: so much is used between two uses of the
    /// same weight.
    pub pass_bytes: u64,
    /// The level that holds as much, from which weights and the KV cache come: `L2`, …, `memory`. By sizes alone.
    pub pass_level: String,
    /// Whether that is a cache that reads about as fast as memory, or more slowly.
    #[serde(skip)]
    is_like_memory: bool,
    /// The wall time of the passes.
    pub wall_ns: u64,
    /// The least time that the stated work of the passes could take.
    pub least_ns: f64,
    /// The same if each limit were as low as it was measured to be around the run.
    pub slow_least_ns: f64,
    /// The same if memory gave the run's threads what it gives all CPUs.
    #[serde(skip)]
    machine_least_ns: f64,
    /// One for each brick, the longest first.
    pub bricks: Vec<RooflineBrick>,
    /// Of a device in another program's file: the part of its time whose work is known. All else is of that part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// Whether the limits were stated, and nobody measured them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_stated: bool,
    /// Why it isn't known how fast the kernels of its products are by themselves, where they could be: a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace_absent: Option<Absent>,
    /// The bytes of the largest cache.
    #[serde(skip)]
    largest_cache: u64,
    /// The threads of the run; 0 if unknown.
    #[serde(skip)]
    threads: u32,
    /// Each limit by its name, with the lowest that it was.
    #[serde(skip)]
    limits: Vec<(String, [f64; 2])>,
    /// The names of those that were measured to be about as high.
    #[serde(skip)]
    sure: Vec<String>,
    /// The names of those that others disturbed each time that they were measured around the run.
    #[serde(skip)]
    disturbed: Vec<String>,
    /// Whether products multiply bytes.
    #[serde(skip)]
    is_of_bytes: bool,
}

/// A brick that was faster than a limit was measured to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownBy {
    /// Which limit: `memory`, a level of cache, `f32` or `int8`.
    pub of: String,
    /// Its name.
    pub name: String,
    /// The phase of its spans.
    pub phase: Phase,
    /// What it reached, in bytes or FLOPs per second.
    pub per_second: f64,
    /// Which of its bytes that is of, if the limit is a bandwidth.
    pub moved: Moved,
    /// The limit that was measured.
    pub measured_per_second: f64,
    /// The highest single measurement that is kept beside it.
    pub highest_measured_per_second: f64,
}

impl Roofline {
    /// The bricks of a phase under the ceilings of their run, by what they [typically](crate::typical) take: passes
    /// that were disturbed or had a stall are left out, or where too few would remain, each span counts as the median
    /// of its brick.
    ///
    /// # Errors
    ///
    /// The reason, if there is no such pass, or there are no ceilings.
    pub fn of(profile: &Profile, phase: Phase) -> Result<Self, Absent> {
        Self::of_sums(&typical::judged(profile, phase), phase)
    }

    /// The same by the sums of all passes.
    ///
    /// # Errors
    ///
    /// As for [`of`](Self::of).
    pub fn of_sums(profile: &Profile, phase: Phase) -> Result<Self, Absent> {
        Self::of_sums_beside(profile, phase, &[])
    }

    /// The same, where runs of others on the same memory may have shown that it is faster than it was measured.
    pub(crate) fn of_sums_beside(
        profile: &Profile,
        phase: Phase,
        others: &[&Profile],
    ) -> Result<Self, Absent> {
        let whole = profile;
        let part = known::of(profile, phase)?;
        let (profile, of_known) = match &part {
            Some((part, known)) => (part, Some(*known)),
            None => (profile, None),
        };
        let Some(total) = profile.phase(phase).map(|total| with_bricks(profile, total)) else {
            return Err(Absent { reason: format!("no pass of {phase} was recorded") });
        };
        // The ceilings are those of the CPU.
        if let Some(serialised) = profile.serialised(phase) {
            return Err(serialised.no_roof());
        }
        let Some(ceilings) = &profile.ceilings else {
            return Err(profile.ceilings_absent.clone().unwrap_or_else(|| Absent {
                reason: "this run has no ceilings: the machine was not measured".to_owned(),
            }));
        };
        let (peak, measured) = (ceilings.peak_per_second(), ceilings.memory_limit());
        // A file may contain anything.
        if !Ceilings::is_rate(peak) || !Ceilings::is_rate(measured) {
            return Err(Absent {
                reason: format!(
                    "the ceilings of this run are not rates: {measured} B/s, {peak} FLOP/s"
                ),
            });
        }
        let totals = profile.bricks(Some(phase));
        let pass_bytes = pass_bytes(&totals, total.passes);
        let is_stated = ceilings.is_stated();
        // A run that is faster than what was stated shows that this is wrong, and no more.
        let shown_by = if is_stated { Vec::new() } else { limits::shown_by(profile, others) };
        let limits = Limits::of(ceilings, &shown_by, pass_bytes);
        let (slow, machine) = (limits.slow(ceilings), limits.machine(ceilings));
        let (first, known) = limits::first(ceilings);
        let of_others: Vec<ShownBy> =
            shown_by.iter().filter(|shown| !known.contains(&shown.of)).cloned().collect();
        let first = Limits::of(&first, &of_others, pass_bytes);
        let kept = kept_spans(profile, phase);
        let (paces, pace_absent) = match Paces::of(profile, phase) {
            Ok(paces) => (paces, None),
            Err(absent) => (None, Some(absent)),
        };
        let (mut least_ns, mut slow_least_ns, mut machine_least_ns) = (0.0, 0.0, 0.0);
        let bricks = totals.iter().map(|brick| {
            let (mut row, least) = RooflineBrick::of(
                brick,
                &limits,
                [&first, &slow],
                machine.as_ref(),
                paces.as_ref(),
            );
            least_ns += least.ns;
            slow_least_ns += least.slow_ns;
            machine_least_ns += least.machine_ns;
            if row.place.is_some() {
                let kept = kept.get(&(brick.stats.name.as_str(), brick.source));
                row.notes.extend(kept.copied().unwrap_or_default().note(brick.stats.count));
            }
            row
        });
        let mut bricks: Vec<RooflineBrick> = bricks.collect();
        let mut places = bricks.iter().filter_map(|brick| brick.place.as_ref());
        let is_paced = places.any(|place| place.pace.is_some());
        let none_known = paces.as_ref().filter(|_| !is_paced).map(Paces::absent);
        if of_known.is_some() {
            // In the order of all of their time, as other tables have them.
            let order = whole.bricks(Some(phase));
            let place = |of: &RooflineBrick| order.iter().position(|by| by.stats.name == of.name);
            bricks.sort_by_key(place);
        }
        Ok(Self {
            phase,
            peak_flops_per_second: limits.peak,
            peak_bytes_per_second: limits.memory(),
            least_bytes_per_second: slow.memory(),
            machine_bytes_per_second: machine.as_ref().map(Limits::memory),
            shown_by,
            ridge: limits.peak / limits.memory(),
            pass_bytes,
            pass_level: limits.pass_level().to_owned(),
            is_like_memory: limits.is_like_memory(),
            wall_ns: total.wall_ns,
            least_ns,
            slow_least_ns,
            machine_least_ns,
            bricks,
            known: of_known,
            is_stated,
            pace_absent: pace_absent.or(none_known),
            largest_cache: largest_cache(profile),
            threads: profile.run.as_ref().map_or(0, |run| run.threads),
            limits: limits.stated(&slow),
            sure: limits.sure(),
            disturbed: limits.disturbed(),
            is_of_bytes: limits.is_of_bytes,
        })
    }

    /// A limit by its name, as low as it was around the run and as it is stated: `memory`, a level of cache, or `f32`.
    #[must_use]
    pub fn limit_of(&self, name: &str) -> Option<[f64; 2]> {
        self.limits.iter().find(|(of, _)| of == name).map(|(_, limit)| *limit)
    }

    /// Where a pass's weights and KV cache come from, and by which limit: a sentence. `None` if it touches none.
    #[must_use]
    pub fn says_source(&self) -> Option<String> {
        let size = (self.pass_bytes > 0).then(|| short(self.pass_bytes as f64 / 1e6))?;
        let level = printable(&self.pass_level);
        let holds = if self.pass_level == MEMORY {
            "more than any cache holds: they come from memory.".to_owned()
        } else if self.is_like_memory {
            format!(
                "which {level} holds: they come from there. It reads no more than a quarter faster than memory here, so \
                 the higher limit of both stands."
            )
        } else {
            format!("which {level} holds: they come from there.")
        };
        Some(format!("A pass touches {size} MB of weights and KV cache, {holds}"))
    }

    /// The rooflines of all phases that have one.
    #[must_use]
    pub fn all(profile: &Profile) -> Vec<Self> {
        Phase::SHOWN.into_iter().filter_map(|phase| Self::of(profile, phase).ok()).collect()
    }
}

/// How near to its roof a device came in a phase, by its own clock. `None` where its limits aren't known, or where streams
/// shared its memory.
pub(crate) fn verdict_of_device(profile: &Profile, index: usize, phase: Phase) -> Option<Verdict> {
    let device = profile.devices.get(index)?;
    // Of a file's streams, one may have all but a few copies.
    let is_alone = match device.busy(Some(phase)) {
        Ok(busy) if profile.imported.is_some() => busy.overlap_ns <= busy.busy_ns / 50,
        _ => !device.has_streams_at_once(),
    };
    device.ceilings.as_ref().filter(|_| is_alone)?;
    let on = profile.whole_device(index)?;
    Roofline::of(&on, phase).ok()?.verdict()
}

/// The bytes of weights and KV cache that a pass touches, on average.
fn pass_bytes(bricks: &[&Total], passes: u64) -> u64 {
    let bytes = bricks.iter().map(|brick| Reused::of(&brick.stats).once_a_pass);
    bytes.fold(0, u64::saturating_add) / passes.max(1)
}

/// The bytes of the largest cache that was measured; 0 without one.
fn largest_cache(profile: &Profile) -> u64 {
    let caches = profile.ceilings.iter().flat_map(|ceilings| &ceilings.caches);
    caches.map(|cache| cache.bytes).max().unwrap_or_default()
}
