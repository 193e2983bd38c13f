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

use std::collections::{HashMap, HashSet};
use std::fmt;

use brickscope_profile::text::printable;
use brickscope_profile::{
    Absent, BrickId, BrickStats, Ceilings, DataSums, NameKind, Numbers, Pass, Phase, PhaseTotal,
    Profile, Source, Total,
};
use serde::{Serialize, Serializer};

use crate::typical;

/// Below this part of a roof, the roof isn't the limit. Nsight Compute draws the line at the same place:
/// below 60 % of both it names latency as the likely cause (*Kernel Profiling Guide*, "GPU Speed Of Light
/// Throughput").
pub const NEAR: f64 = 0.6;

/// From this part of a roof on, the roof is reached.
pub const AT: f64 = 0.9;

/// Above this part of a roof, the roof or the work is wrong; the excess over 1 is the error of measurement.
pub const MOST: f64 = 1.02;

/// A run that streams faster than memory was measured shows that the measurement was too low; a run that streams more
/// than this many times as fast shows that its bytes are wrong.
const MOST_TOO_LOW: f64 = 2.5;

/// A brick whose spans stream so many bytes shows how fast memory is: less may stay in a cache.
const STREAM: u64 = 64 << 10;

/// The name of the farthest level.
pub(crate) const MEMORY: &str = "memory";

/// The bricks of a phase, compared with the machine's ceilings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roofline {
    /// The phase.
    pub phase: Phase,
    /// The measured peak of the run's machine, in FLOPs per second.
    pub peak_flops_per_second: f64,
    /// The bandwidth of memory, in bytes read per second: the measured one, or that of the run if it was higher.
    pub peak_bytes_per_second: f64,
    /// The least bandwidth of memory that was measured right before or after the run.
    pub least_bytes_per_second: f64,
    /// Whose spans showed that bandwidth, if the measured one was too low.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_by: Option<ShownBy>,
    /// The ridge point, where the two roofs meet, in FLOPs per byte.
    pub ridge: f64,
    /// The bytes of weights and KV cache that a pass touches, on average: so much is used between two uses of the
    /// same weight.
    pub pass_bytes: u64,
    /// The level that holds as much, from which weights and the KV cache come: `L2`, …, `memory`.
    pub pass_level: String,
    /// The wall time of the passes.
    pub wall_ns: u64,
    /// The least time that the stated work of the passes could take.
    pub least_ns: f64,
    /// One for each brick, the longest first.
    pub bricks: Vec<RooflineBrick>,
    /// The bytes of the largest cache.
    #[serde(skip)]
    largest_cache: u64,
}

/// A brick that read memory faster than memory was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownBy {
    /// Its name.
    pub name: String,
    /// The phase of its spans.
    pub phase: Phase,
    /// The ceiling that was measured, in bytes per second.
    pub measured_bytes_per_second: f64,
    /// The highest single measurement that is kept beside it.
    pub highest_measured_bytes_per_second: f64,
}

/// One brick under the roof.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RooflineBrick {
    /// Its name.
    pub name: String,
    /// The number of spans.
    pub spans: u64,
    /// Their time from begin to end, summed.
    pub total_ns: u64,
    /// Their stated FLOPs; `None` if none were stated.
    pub flops: Option<u64>,
    /// Their stated bytes; `None` if none were stated.
    pub bytes: Option<u64>,
    /// Where it stands; `None` if that is unknown.
    #[serde(flatten)]
    pub place: Option<Standing>,
    /// Why that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
    /// Caveats about these figures; sentences in JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// A caveat about the figures of a brick. Shares are fractions of 1.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// More than the bandwidth of the level that its data come from.
    BeyondLevel {
        /// The share of that bandwidth.
        share: f64,
        /// The level.
        level: String,
    },
    /// More than the peak FLOP/s.
    BeyondPeak(f64),
    /// FLOPs were not stated.
    NoFlops,
    /// Some of its spans stated no work.
    Idle {
        /// Spans without stated work, among those that were kept.
        spans: u64,
        /// All spans, kept or not.
        of: u64,
        /// Whether not all were kept, so that there may be more.
        is_least: bool,
    },
    /// None of its spans was kept, so it is unknown which stated work.
    IdleUnknown,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &f64| format!("{:.0} %", 100.0 * share);
        match self {
            Self::BeyondLevel { share, level } if level == MEMORY => write!(
                f,
                "{} of measured memory bandwidth: its stated bytes are wrong, or a cache held a part of \
                 them that the model of their use expects in memory",
                percent(share)
            ),
            Self::BeyondLevel { share, level } => write!(
                f,
                "{} of the measured bandwidth of {}: its stated bytes are wrong, or a nearer level \
                 held a part of them",
                percent(share),
                printable(level)
            ),
            Self::BeyondPeak(share) => write!(
                f,
                "{} of the peak FLOP/s: the stated work or the peak is wrong",
                percent(share)
            ),
            Self::NoFlops => f.write_str("no FLOP count; bandwidth only"),
            Self::Idle { spans, of, is_least } => {
                let least = if *is_least { "at least " } else { "" };
                write!(f, "{least}{spans} of {of} spans stated no work; their time is included")
            }
            Self::IdleUnknown => f.write_str(
                "spans without stated work: unknown (none kept); their time is included",
            ),
        }
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a brick stands below the roof.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// The arithmetic intensity, in FLOPs per byte.
    pub intensity: f64,
    /// FLOPs per second.
    pub flops_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// The roof of this work, in FLOPs per second.
    pub roof_flops_per_second: f64,
    /// The level of the memory that limits it: `L1`, …, `memory`. Memory counts by its first measurement that is kept: its
    /// bandwidth changes from run to run, and the name shouldn't.
    pub level: String,
    /// The level whose least time is the greatest: nearly always the same one.
    pub least_level: String,
    /// Which of the bytes come from `least_level` or from farther away.
    pub moved: Moved,
    /// The part of the roof that is reached: the least possible time over the measured one.
    pub of_roof: f64,
    /// The part of the bandwidth of `least_level` that is reached.
    pub of_bandwidth: f64,
    /// The part of the peak FLOP/s that is reached.
    pub of_peak: f64,
    /// Whether that is the peak of `f32`, since it multiplies no weights, in a run whose products multiply bytes.
    pub is_of_floats: bool,
    /// What would limit it at best. It follows from the work and from ceilings that are kept, see `level`, so it is the
    /// same in each run.
    pub bound: Bound,
    /// How near to that limit it is.
    pub reach: Reach,
    /// Microseconds of a span beyond the least possible time, of the time that is the brick's own. Never negative.
    pub us_to_roof: f64,
}

/// The bytes of a brick that come from a level of the memory or from farther away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moved {
    /// All.
    All,
    /// Weights and the KV cache.
    OnceAPass,
    /// Activations.
    Activations,
}

impl Standing {
    /// What would limit it at best, as a word: `compute`, or the level of the memory.
    #[must_use]
    pub fn limit(&self) -> &str {
        if self.bound == Bound::Compute { Bound::Compute.name() } else { &self.level }
    }
}

/// What limits a brick, if nothing else does: the greatest of its least times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// The bandwidth of memory.
    Memory,
    /// The bandwidth of a level of cache.
    Cache,
    /// The peak FLOP/s.
    Compute,
}

impl Bound {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cache => "cache",
            Self::Compute => "compute",
        }
    }
}

/// How near to its roof a brick is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// Above it by more than [`MOST`]: the stated work or the ceiling is wrong.
    Above,
    /// At it: at least [`AT`] of it, or of what memory gave right before or after the run.
    At,
    /// At least [`NEAR`] of it.
    Near,
    /// Less. The limit is the code: likely its latency, synchronisation or idle threads.
    Far,
}

impl Reach {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Above => "ABOVE",
            Self::At => "at roof",
            Self::Near => "near",
            Self::Far => "far",
        }
    }

    /// Of parts of a roof: the highest that it may be, and the lowest.
    fn of(highest_roof: f64, lowest_roof: f64) -> Self {
        match highest_roof {
            _ if highest_roof > MOST => Self::Above,
            _ if highest_roof >= AT || lowest_roof >= AT => Self::At,
            _ if highest_roof >= NEAR => Self::Near,
            _ => Self::Far,
        }
    }
}

/// The levels of the memory, the nearest first and memory last, each with its size and bandwidth.
#[derive(Debug)]
struct Levels<'c> {
    all: Vec<Level<'c>>,
    /// The lowest bandwidth of memory that was measured around the run.
    least_memory: f64,
    /// The first that is kept of this machine: by it bounds have their names, so that these don't change with it.
    first_memory: f64,
}

#[derive(Debug, Clone, Copy)]
struct Level<'c> {
    name: &'c str,
    bytes: u64,
    per_second: f64,
}

impl<'c> Levels<'c> {
    fn new(ceilings: &'c Ceilings, memory: f64) -> Self {
        let caches = ceilings.caches.iter().map(|cache| Level {
            name: &cache.level,
            bytes: cache.bytes,
            per_second: cache.read_bytes_per_second,
        });
        // A level that is no faster than memory limits nothing.
        let mut all: Vec<Level> =
            caches.filter(|cache| is_rate(cache.per_second) && cache.per_second > memory).collect();
        all.sort_by_key(|cache| cache.bytes);
        all.push(Level { name: MEMORY, bytes: u64::MAX, per_second: memory });
        let [least, _] = ceilings.memory_spread();
        let least_memory = if is_rate(least) { least.min(memory) } else { memory };
        let mut readings = ceilings.readings.iter().map(|reading| reading.read_bytes_per_second);
        let first_memory = readings.find(|&rate| is_rate(rate));
        Self { all, least_memory, first_memory: first_memory.unwrap_or(memory) }
    }

    /// The index of the smallest that holds so many bytes.
    fn holding(&self, bytes: u64) -> usize {
        let last = self.all.len() - 1;
        self.all[..last].iter().position(|level| level.bytes >= bytes).unwrap_or(last)
    }
}

/// The bytes of a brick, by when they are used again.
#[derive(Debug, Clone, Copy, Default)]
struct Reused {
    /// In the next pass.
    once_a_pass: u64,
    /// By the next operation.
    at_once: u64,
    /// Of so many of the first kind nobody said what they are, and no name tells it.
    unknown: u64,
}

impl Reused {
    /// As stated. Where nothing was stated, by what the brick is known for; where it was for some spans only, the
    /// bytes of the others count as activations.
    fn of(stats: &BrickStats) -> Self {
        let DataSums { activations, .. } = stats.data;
        let all = stats.total_bytes;
        // A file may contain anything.
        let once_a_pass = stats.data.once_a_pass().min(all);
        let is_told = activations > 0 || once_a_pass > 0;
        match BrickId::from_str(&stats.name) {
            _ if is_told => {
                Self { once_a_pass, at_once: all.saturating_sub(once_a_pass), unknown: 0 }
            }
            None => Self { once_a_pass: all, at_once: 0, unknown: all },
            Some(brick) if is_product(brick) || reads_cache(brick) => {
                Self { once_a_pass: all, at_once: 0, unknown: 0 }
            }
            Some(_) => Self { once_a_pass: 0, at_once: all, unknown: 0 },
        }
    }
}

/// Whether a well-known brick multiplies or looks up weights.
fn is_product(brick: BrickId) -> bool {
    use BrickId::*;
    matches!(
        brick,
        QkvProjection
            | OutputProjection
            | GateProjection
            | UpProjection
            | DownProjection
            | LmHead
            | Embedding
    )
}

/// Whether a well-known brick reads the KV cache.
fn reads_cache(brick: BrickId) -> bool {
    matches!(brick, BrickId::AttentionScore | BrickId::AttentionOutput)
}

/// Whether a brick has the peak of floats in a run that multiplies bytes. Only products of weights multiply bytes. Of a
/// brick that isn't well known it isn't known, so it has the higher peak.
fn is_of_floats(name: &str, ceilings: &Ceilings) -> bool {
    let is_no_product = BrickId::from_str(name).is_some_and(|brick| !is_product(brick));
    is_no_product && ceilings.numbers == Some(Numbers::Int8) && is_rate(ceilings.flops_per_second)
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
        let (peak, measured) = (ceilings.peak_per_second(), ceilings.read_bytes_per_second);
        // A file may contain anything.
        if !is_rate(peak) || !is_rate(measured) {
            return Err(Absent {
                reason: format!(
                    "the ceilings of this run are not rates: {measured} B/s, {peak} FLOP/s"
                ),
            });
        }
        let totals = profile.bricks(Some(phase));
        let pass_bytes = pass_bytes(&totals, total.passes);
        let all = [profile].into_iter().chain(others.iter().copied());
        let (memory, shown_by) = all
            .map(|profile| memory_roof(profile, measured))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((measured, None));
        let levels = Levels::new(ceilings, memory);
        let far = levels.holding(pass_bytes);
        let kept = kept_spans(profile, phase);
        let mut least_ns = 0.0;
        let bricks = totals.iter().map(|brick| {
            let (mut row, least) = RooflineBrick::of(brick, ceilings, &levels, far);
            least_ns += least;
            if row.place.is_some() {
                let kept = kept.get(&(brick.stats.name.as_str(), brick.source));
                row.notes.extend(kept.copied().unwrap_or_default().note(brick.stats.count));
            }
            row
        });
        let bricks = bricks.collect();
        Ok(Self {
            phase,
            peak_flops_per_second: peak,
            peak_bytes_per_second: memory,
            least_bytes_per_second: levels.least_memory,
            shown_by,
            ridge: peak / memory,
            pass_bytes,
            pass_level: levels.all[far].name.to_owned(),
            wall_ns: total.wall_ns,
            least_ns,
            bricks,
            largest_cache: largest_cache(profile),
        })
    }

    /// The rooflines of all phases that have one.
    #[must_use]
    pub fn all(profile: &Profile) -> Vec<Self> {
        Phase::SHOWN.into_iter().filter_map(|phase| Self::of(profile, phase).ok()).collect()
    }

    /// What would limit the phase at best, how near to that limit it is, and the part of its wall time that the least
    /// time is. `None` if no brick has a place, or there was no time.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let mut by_bound: Vec<(Bound, &str, f64)> = Vec::new();
        for brick in &self.bricks {
            let Some(place) = &brick.place else { continue };
            let level = if place.bound == Bound::Compute { "" } else { place.level.as_str() };
            let least = place.of_roof * brick.total_ns as f64;
            match by_bound.iter_mut().find(|(bound, of, _)| (*bound, *of) == (place.bound, level)) {
                Some((.., sum)) => *sum += least,
                None => by_bound.push((place.bound, level, least)),
            }
        }
        let (bound, level, least) = by_bound.into_iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        if let Some(of_roof) = self.above(bound, level, least) {
            return Some(Verdict { bound, level: level.to_owned(), of_roof, reach: Reach::Above });
        }
        // What the machine gave around the run.
        let lowest = self.of_roof_by(self.least_bytes_per_second);
        let of_roof = self.least_ns / self.wall_ns as f64;
        of_roof.is_finite().then_some(Verdict {
            bound,
            level: level.to_owned(),
            of_roof,
            reach: Reach::of(of_roof, lowest),
        })
    }

    /// How far above the roof the bricks of a bound are, if they make up half of the phase and are above it by more than
    /// two measurements of a ceiling differ: `least` nanoseconds are what they would take at least.
    fn above(&self, bound: Bound, level: &str, least: f64) -> Option<f64> {
        let is_of_it = |brick: &&RooflineBrick| {
            let place = brick.place.as_ref();
            place.is_some_and(|place| {
                place.bound == bound && (bound == Bound::Compute || place.level == level)
            })
        };
        let total: f64 =
            self.bricks.iter().filter(is_of_it).map(|brick| brick.total_ns as f64).sum();
        let of_roof = least / total;
        // What a cache holds of a pass comes faster than memory gives it.
        let is_cached =
            bound == Bound::Memory && self.pass_bytes <= self.largest_cache.saturating_mul(2);
        let is_above = bound != Bound::Cache
            && !is_cached
            && 2.0 * total >= self.wall_ns as f64
            && of_roof > 1.0 + Ceilings::AGREE;
        (is_above && of_roof.is_finite()).then_some(of_roof)
    }

    /// The part of the phase's wall time that the least time would be if memory gave so many bytes a second: only what
    /// memory bounds takes longer by that.
    pub(crate) fn of_roof_by(&self, bytes_per_second: f64) -> f64 {
        let places = self.bricks.iter().filter_map(|brick| Some((brick, brick.place.as_ref()?)));
        let of_memory = places.filter(|(_, place)| place.bound == Bound::Memory);
        let of_memory: f64 =
            of_memory.map(|(brick, place)| place.of_roof * brick.total_ns as f64).sum();
        let slower = self.peak_bytes_per_second / bytes_per_second - 1.0;
        (self.least_ns + of_memory.min(self.least_ns) * slower) / self.wall_ns as f64
    }
}

/// What would limit a phase at best, and how near to that limit it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The limit of the bricks with the most of the least time.
    pub bound: Bound,
    /// The level whose bandwidth that is; empty for compute.
    pub level: String,
    /// The least time over the wall time; above the roof, over the time of the bricks that are.
    pub of_roof: f64,
    /// How near.
    pub reach: Reach,
}

/// Whether a profile is of a device by itself, see [`Profile::whole_device`]: its unattributed time is gaps, and its
/// ceilings are the device's.
pub(crate) fn is_of_device(profile: &Profile) -> bool {
    !profile.totals.is_empty() && profile.totals.iter().all(|total| total.source == Source::Device)
}

/// The passes of a phase in which bricks have times. On a device the others may have been timed by layers, or as a whole:
/// their bricks state no work.
pub(crate) fn with_bricks(profile: &Profile, total: &PhaseTotal) -> PhaseTotal {
    let of_phase = |pass: &&Pass| pass.phase == total.phase && !pass.is_left_out;
    let passes = || profile.passes.iter().filter(of_phase);
    let is_without = |pass: &Pass| pass.attributed_ns == 0;
    if !is_of_device(profile)
        || passes().count() as u64 != total.passes
        || !passes().any(is_without)
    {
        return *total;
    }
    let none = PhaseTotal { passes: 0, tokens: 0, wall_ns: 0, ..*total };
    let without = passes().filter(|pass| is_without(pass)).fold(none, |sum, pass| PhaseTotal {
        passes: sum.passes + 1,
        tokens: sum.tokens.saturating_add(pass.tokens),
        wall_ns: sum.wall_ns.saturating_add(pass.wall_ns),
        ..sum
    });
    if without.passes == total.passes {
        return *total;
    }
    // Where each span counts as its brick's median, the wall isn't that of the passes.
    PhaseTotal {
        passes: total.passes - without.passes,
        tokens: total.tokens.saturating_sub(without.tokens),
        wall_ns: total.wall_ns.saturating_sub(without.wall_ns),
        unattributed_ns: total.unattributed_ns.saturating_sub(without.wall_ns),
        ..*total
    }
}

/// Whether a number from a file can be a rate, so that results stay finite.
pub(crate) fn is_rate(rate: f64) -> bool {
    (1.0..1e30).contains(&rate)
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

/// The bandwidth of memory: what was measured, or what the run itself showed. Bricks show it in all phases whose
/// passes touch more than any cache holds. Below the half of a cache it would hold several; above, a part.
fn memory_roof(profile: &Profile, measured: f64) -> (f64, Option<ShownBy>) {
    let largest = largest_cache(profile);
    let shown = Phase::ALL.into_iter().flat_map(|phase| {
        let bricks = profile.bricks(Some(phase));
        let passes = profile.phase(phase).map_or(0, |total| with_bricks(profile, total).passes);
        let is_streamed = pass_bytes(&bricks, passes) > largest.saturating_mul(2);
        bricks.into_iter().filter(move |_| is_streamed).filter_map(move |brick| {
            let (stats, reused) = (&brick.stats, Reused::of(&brick.stats));
            // Of bytes that may be anything, or that a cache may hold, the rate shows nothing.
            let is_shown = reused.unknown == 0
                && reused.once_a_pass / stats.count.max(1) >= STREAM
                && stats.total_ns > 0;
            let rate = reused.once_a_pass as f64 * 1e9 / stats.total_ns as f64;
            is_shown.then_some((rate, phase, stats.name.as_str()))
        })
    });
    let shown = shown.filter(|(rate, ..)| (measured..=MOST_TOO_LOW * measured).contains(rate));
    let Some((rate, phase, name)) = shown.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return (measured, None);
    };
    let name = name.to_owned();
    let readings = profile.ceilings.iter().flat_map(|ceilings| &ceilings.readings);
    let rates = readings.map(|reading| reading.read_bytes_per_second).filter(|rate| is_rate(*rate));
    let shown = ShownBy {
        name,
        phase,
        measured_bytes_per_second: measured,
        highest_measured_bytes_per_second: rates.fold(measured, f64::max),
    };
    (rate, Some(shown))
}

/// The spans of a brick that were kept.
#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    spans: u64,
    /// How many of them state no work.
    idle: u64,
}

impl Kept {
    /// The caveat that follows for all `of` spans.
    fn note(self, of: u64) -> Option<Note> {
        match self {
            Self { spans: 0, .. } => Some(Note::IdleUnknown),
            Self { idle: 0, .. } => None,
            Self { spans, idle } => Some(Note::Idle { spans: idle, of, is_least: spans < of }),
        }
    }
}

/// The spans of a phase that were kept, by the name and source of their brick.
fn kept_spans(profile: &Profile, phase: Phase) -> HashMap<(&str, Source), Kept> {
    let mut kept: HashMap<_, Kept> = HashMap::new();
    let passes: HashSet<u32> = profile
        .passes
        .iter()
        .filter(|pass| pass.phase == phase && !pass.is_left_out)
        .map(|pass| pass.serial)
        .collect();
    for span in &profile.spans {
        if let (Some(name), Some(pass)) = (span.name, span.pass)
            && let Some(name) = profile.names.get(usize::from(name))
            && name.kind == NameKind::Brick
            && passes.contains(&pass)
        {
            let kept = kept.entry((name.name.as_str(), span.source)).or_default();
            kept.spans += 1;
            kept.idle += u64::from(span.work.flops == 0 && span.work.bytes == 0);
        }
    }
    kept
}

impl RooflineBrick {
    /// And the least time of all spans, but no more than the time that was the brick's own.
    fn of(total: &Total, ceilings: &Ceilings, levels: &Levels<'_>, far: usize) -> (Self, f64) {
        let stats = &total.stats;
        let stated = |amount: u64| (amount > 0).then_some(amount);
        let mut row = Self {
            name: stats.name.clone(),
            spans: stats.count,
            total_ns: stats.total_ns,
            flops: stated(stats.total_flops),
            bytes: stated(stats.total_bytes),
            place: None,
            absent: None,
            notes: Vec::new(),
        };
        let absent = match (row.bytes, row.flops) {
            (None, None) => "its work was not stated",
            (None, Some(_)) => "the bytes that it moves were not stated",
            _ if stats.total_ns == 0 || stats.count == 0 => {
                "it took no time that the clock can measure"
            }
            _ => match row.stand(stats, ceilings, levels, far) {
                Ok(least) => return (row, least),
                Err(why) => why,
            },
        };
        row.absent = Some(Absent { reason: absent.to_owned() });
        (row, 0.0)
    }

    fn stand(
        &mut self,
        stats: &BrickStats,
        ceilings: &Ceilings,
        levels: &Levels<'_>,
        far: usize,
    ) -> Result<f64, &'static str> {
        let flops = self.flops.unwrap_or(0) as f64;
        let bytes = self.bytes.unwrap_or(0) as f64;
        let is_of_floats = is_of_floats(&self.name, ceilings);
        let peak =
            if is_of_floats { ceilings.flops_per_second } else { ceilings.peak_per_second() };
        let seconds = self.total_ns as f64 / 1e9;
        let spans = self.spans as f64;
        let reused = Reused::of(stats);
        let near = levels.holding(reused.at_once / stats.count);
        // The least time by each level: of bytes from there or from farther away.
        let by_level = || {
            levels.all.iter().enumerate().map(|(i, level)| {
                let (moved, bytes) = match (far >= i, near >= i) {
                    (true, true) => (Moved::All, reused.once_a_pass.saturating_add(reused.at_once)),
                    (true, false) => (Moved::OnceAPass, reused.once_a_pass),
                    (false, true) => (Moved::Activations, reused.at_once),
                    (false, false) => (Moved::All, 0),
                };
                (level, (moved, bytes), bytes as f64 / level.per_second)
            })
        };
        // Of levels that are equally fast, the farthest.
        let (least_level, (moved, _), by_bandwidth) = by_level()
            .max_by(|a, b| a.2.total_cmp(&b.2))
            .ok_or("no level of the memory was measured")?;
        let by_peak = flops / peak;
        let least = by_bandwidth.max(by_peak);
        let from_memory = by_level().next_back().map_or(0, |(_, (_, bytes), _)| bytes);
        let (nearer, by_nearer) = by_level()
            .filter(|(level, ..)| level.name != MEMORY)
            .map(|(level, _, by)| (level.name, by))
            .fold((MEMORY, 0.0), |most, next| if next.1 >= most.1 { next } else { most });
        let is_memory = from_memory as f64 / levels.first_memory >= by_nearer.max(by_peak);
        let level = if is_memory { MEMORY } else { nearer };
        let of_bandwidth = by_bandwidth / seconds;
        if least_level.name == MEMORY && of_bandwidth > MOST && reused.unknown > 0 {
            return Err("faster than memory, and nobody said what its bytes are (`Work::data`)");
        }
        let of_peak = by_peak / seconds;
        let of_roof = least / seconds;
        if of_peak > MOST {
            self.notes.push(Note::BeyondPeak(of_peak));
        }
        if of_bandwidth > MOST {
            let level = least_level.name.to_owned();
            self.notes.push(Note::BeyondLevel { share: of_bandwidth, level });
        }
        if self.flops.is_none() {
            self.notes.push(Note::NoFlops);
        }
        let bound = match by_nearer >= by_peak {
            _ if is_memory => Bound::Memory,
            true => Bound::Cache,
            false => Bound::Compute,
        };
        // As slow as memory was at its slowest around the run.
        let slowest = by_bandwidth.max(from_memory as f64 / levels.least_memory);
        let own_ns = stats.exclusive_ns.min(stats.total_ns) as f64;
        let least_ns = (least * 1e9).min(own_ns);
        self.place = Some(Standing {
            intensity: flops / bytes,
            flops_per_second: flops / seconds,
            bytes_per_second: bytes / seconds,
            roof_flops_per_second: flops / least,
            level: level.to_owned(),
            least_level: least_level.name.to_owned(),
            moved,
            of_roof,
            of_bandwidth,
            of_peak,
            is_of_floats,
            bound,
            reach: Reach::of(of_roof, slowest.max(by_peak) / seconds),
            us_to_roof: (own_ns - least_ns) / 1e3 / spans,
        });
        Ok(least_ns)
    }
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickProfiler, MockClock};
    use brickscope_profile::{CacheCeiling, CeilingReading, Data, ReadingTime, Work};
    use proptest::prelude::*;

    use super::*;

    const GB: f64 = 1e9;

    /// 50 GB/s from memory, 200 GFLOP/s, and 800 of bytes.
    fn ceilings() -> Ceilings {
        Ceilings {
            read_bytes_per_second: 50e9,
            flops_per_second: 200e9,
            int8_ops_per_second: Some(800e9),
            caches: [("L1", 64_000, 400e9), ("L2", 1_000_000, 200e9), ("L3", 32_000_000, 100e9)]
                .map(|(level, bytes, read_bytes_per_second)| CacheCeiling {
                    level: level.to_owned(),
                    bytes,
                    read_bytes_per_second,
                })
                .into(),
            ..Ceilings::default()
        }
    }

    /// Ten decode passes, in each of which these bricks run once.
    fn run(bricks: &[(&str, u64, Work)]) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for _ in 0..10 {
            let pass = profiler.begin_pass(Phase::Decode);
            for &(name, nanos, work) in bricks {
                let timer = profiler.start(name);
                hand.advance(nanos);
                profiler.stop_brick_with(timer, work);
            }
            profiler.end_pass(pass, 1, 0);
        }
        let mut profile = profiler.profile();
        profile.ceilings = Some(ceilings());
        profile
    }

    fn roofline(profile: &Profile) -> Roofline {
        Roofline::of(profile, Phase::Decode).expect("passes and ceilings")
    }

    fn place<'r>(roofline: &'r Roofline, name: &str) -> &'r Standing {
        let brick = roofline.bricks.iter().find(|brick| brick.name == name);
        brick.and_then(|brick| brick.place.as_ref()).expect("work was stated")
    }

    fn weights(bytes: u64) -> Work {
        Work { elements: 1, flops: bytes / 2, bytes: bytes + 8_000, data: Data::Weights(bytes) }
    }

    const ACTIVATIONS: Work =
        Work { elements: 768, flops: 9_000, bytes: 9_000, data: Data::Activations };

    /// How long it takes to move so many bytes with so many GB/s.
    fn nanos(bytes: u64, gigabytes_per_second: f64) -> u64 {
        (bytes as f64 / gigabytes_per_second) as u64
    }

    #[test]
    fn weights_come_from_the_smallest_level_that_holds_a_pass() {
        // Far above all caches, below L3, below L2: the level doesn't depend on the speed.
        for (each, level, bound, gigabytes) in [
            (30_000_000, "memory", Bound::Memory, 50.0),
            (8_000_000, "L3", Bound::Cache, 100.0),
            (200_000, "L2", Bound::Cache, 200.0),
        ] {
            for speed in [0.2, 0.55, 0.65, 0.98] {
                let nanos = nanos(each, gigabytes * speed);
                let products = ["GateProjection", "UpProjection", "LmHead"];
                let mut bricks = products.map(|name| (name, nanos, weights(each))).to_vec();
                bricks.push(("RmsNorm", 700, ACTIVATIONS));
                let roofline = roofline(&run(&bricks));
                assert_eq!(roofline.pass_level, level);
                assert_eq!(roofline.pass_bytes, 3 * each);
                for name in products {
                    let place = place(&roofline, name);
                    assert_eq!((place.level.as_str(), place.bound), (level, bound), "{speed}");
                    assert!((place.of_roof - speed).abs() < 0.01, "{place:?}");
                }
                // What it touches fits L1, and its producer has just run.
                let norm = place(&roofline, "RmsNorm");
                assert_eq!((norm.level.as_str(), norm.reach), ("L1", Reach::Far));
            }
        }
    }

    #[test]
    fn the_same_bricks_a_little_faster_than_memory_was_measured_are_at_the_roof() {
        // As on a quiet run of a model of 117 MB: 37.2 to 39.4 GB/s, where 38.0 were measured.
        let products = [("GateProjection", 37.2), ("DownProjection", 39.2), ("UpProjection", 39.4)];
        let mut profile =
            run(&products
                .map(|(name, speed)| (name, nanos(39_000_000, speed), weights(39_000_000))));
        profile.ceilings.as_mut().expect("ceilings").read_bytes_per_second = 38.0 * GB;
        let roofline = roofline(&profile);
        for (name, _) in products {
            let place = place(&roofline, name);
            assert_eq!((place.level.as_str(), place.bound), ("memory", Bound::Memory));
            assert_eq!(place.reach, Reach::At, "{name}: {place:?}");
            assert!(place.of_roof < 1.001 && place.of_roof > 0.9, "{place:?}");
        }
        let shown = roofline.shown_by.as_ref().expect("the run read faster");
        assert_eq!((shown.name.as_str(), shown.measured_bytes_per_second), ("UpProjection", 38e9));
        assert!((roofline.peak_bytes_per_second / GB - 39.4).abs() < 0.01);
    }

    #[test]
    fn a_rate_that_no_measurement_error_explains_is_not_believed() {
        let profile = run(&[("LmHead", nanos(90_000_000, 300.0), weights(90_000_000))]);
        let roofline = roofline(&profile);
        assert_eq!((roofline.peak_bytes_per_second, &roofline.shown_by), (50e9, &None));
        let place = place(&roofline, "LmHead");
        assert_eq!((place.bound, place.reach), (Bound::Memory, Reach::Above));
        assert_eq!(place.us_to_roof, 0.0);
        let note = roofline.bricks[0].notes[0].to_string();
        assert!(note.starts_with("600 % of measured memory bandwidth: "), "{note}");
    }

    #[test]
    fn the_level_between_two_states_of_memory_keeps_its_name() {
        // Weights from memory and activations from L2 that take about as long.
        let (once, at_once) = (50_000, 200_000);
        let work = Work { elements: 1, flops: 0, bytes: once + at_once, data: Data::Weights(once) };
        let bricks = [("LmHead", nanos(90_000_000, 30.0), weights(90_000_000)), ("X", 9_000, work)];
        let (in_memory, in_l2) = (("memory", Bound::Memory), ("L2", Bound::Cache));
        for (first, memory, named, least_level) in [
            (36.0, 35.0, in_memory, "memory"),
            (36.0, 60.0, in_memory, "L2"),
            (61.0, 60.0, in_l2, "L2"),
            (61.0, 35.0, in_l2, "memory"),
        ] {
            let mut profile = run(&bricks);
            let ceilings = profile.ceilings.as_mut().expect("ceilings");
            ceilings.read_bytes_per_second = memory * GB;
            ceilings.readings = [first, memory]
                .map(|rate| CeilingReading {
                    when: ReadingTime::Kept,
                    measured: String::new(),
                    read_bytes_per_second: rate * GB,
                })
                .into();
            let roofline = roofline(&profile);
            let place = place(&roofline, "X");
            assert_eq!((place.level.as_str(), place.bound), named);
            assert_eq!(place.least_level, least_level);
            let least = (once as f64 / memory).max((once + at_once) as f64 / 200.0);
            assert!((place.of_roof - least / 9_000.0).abs() < 1e-9, "{place:?}");
        }
    }

    #[test]
    fn slow_memory_excuses_only_what_memory_bounds() {
        // Half of the time streams at 66 % of the roof, and the other half computes at 60 % of the peak.
        let half = nanos(90_000_000, 33.0);
        let flops = 120 * half;
        let compute = Work { elements: 1, flops, bytes: 9_000, data: Data::Activations };
        let bricks = [("LmHead", half, weights(90_000_000)), ("(product)", half, compute)];
        let mut profile = run(&bricks);
        let reading = CeilingReading {
            when: ReadingTime::After,
            measured: String::new(),
            read_bytes_per_second: 33e9,
        };
        profile.ceilings.as_mut().expect("ceilings").readings.push(reading);
        let verdict = roofline(&profile).verdict().expect("places");
        assert_eq!((verdict.bound, verdict.reach), (Bound::Memory, Reach::Near), "{verdict:?}");
        assert!((verdict.of_roof - 0.63).abs() < 0.01, "{verdict:?}");
    }

    #[test]
    fn what_memory_gave_around_the_run_is_enough_to_be_at_the_roof() {
        let mut profile = run(&[("LmHead", nanos(90_000_000, 33.0), weights(90_000_000))]);
        assert_eq!(place(&roofline(&profile), "LmHead").reach, Reach::Near);
        let reading = CeilingReading {
            when: ReadingTime::After,
            measured: String::new(),
            read_bytes_per_second: 34e9,
        };
        profile.ceilings.as_mut().expect("ceilings").readings.push(reading);
        let roofline = roofline(&profile);
        let place = place(&roofline, "LmHead");
        // What it could gain at best stays the same.
        assert_eq!(place.reach, Reach::At);
        assert!((place.of_roof - 0.66).abs() < 0.01, "{place:?}");
        assert_eq!(roofline.least_bytes_per_second, 34e9);
    }

    #[test]
    fn each_bound_has_its_side_of_the_ridge_and_each_kernel_its_peak() {
        let product = |flops| Work { flops, ..weights(100_000_000) };
        // 100 MB take 2 ms of memory, 400 MFLOP 2 ms of float arithmetic.
        let bricks = [
            ("LmHead", 2_500_000, product(100_000_000)),
            ("GateProjection", 10_000_000, product(1_600_000_000)),
            ("AttentionSoftmax", 10_000_000, Work { flops: 1_600_000_000, ..ACTIVATIONS }),
        ];
        let mut profile = run(&bricks);
        for (numbers, of_product) in [(Numbers::F32, 0.8), (Numbers::Int8, 0.2)] {
            profile.ceilings.as_mut().expect("ceilings").numbers = Some(numbers);
            let roofline = roofline(&profile);
            let head = place(&roofline, "LmHead");
            assert_eq!((head.bound, head.reach), (Bound::Memory, Reach::Near));
            assert!((head.us_to_roof - 500.0).abs() < 1.0, "{head:?}");
            let gate = place(&roofline, "GateProjection");
            assert!((gate.of_peak - of_product).abs() < 1e-9, "{gate:?}");
            // Floats, whatever the products multiply.
            let softmax = place(&roofline, "AttentionSoftmax");
            assert_eq!((softmax.bound, softmax.limit()), (Bound::Compute, "compute"));
            assert!((softmax.of_peak - 0.8).abs() < 1e-9, "{softmax:?}");
        }
    }

    #[test]
    fn bytes_that_nobody_told_apart_are_what_the_brick_is_known_for() {
        let unstated = |bytes| Work { elements: 1, flops: 1, bytes, ..Work::default() };
        let mut bricks = vec![
            ("LmHead", nanos(90_000_000, 45.0), unstated(90_000_000)),
            ("AttentionScore", nanos(90_000, 25.0), unstated(90_000)),
            ("RmsNorm", 1_000, unstated(9_000)),
            ("mine", nanos(90_000, 25.0), unstated(90_000)),
        ];
        let slow = roofline(&run(&bricks));
        for (name, level) in [
            ("LmHead", "memory"),
            ("AttentionScore", "memory"),
            ("RmsNorm", "L1"),
            ("mine", "memory"),
        ] {
            assert_eq!(place(&slow, name).level, level, "{name}");
        }
        // Faster than memory, and the name says nothing: unknown, not another level.
        bricks[3].1 = nanos(90_000, 60.0);
        let fast = roofline(&run(&bricks));
        let mine = fast.bricks.iter().find(|brick| brick.name == "mine").expect("recorded");
        assert_eq!(mine.place, None);
        let why = &mine.absent.as_ref().expect("a reason").reason;
        assert!(why.contains("nobody said what its bytes are"), "{why}");
    }

    #[test]
    fn what_nobody_stated_is_absent_with_a_reason() {
        let work = |flops, bytes| Work { flops, bytes, ..Work::default() };
        for (flops, bytes, reason) in
            [(0, 0, "its work was not stated"), (9, 0, "the bytes that it moves were not stated")]
        {
            let roofline = roofline(&run(&[("RmsNorm", 1000, work(flops, bytes))]));
            assert_eq!(roofline.bricks[0].place, None);
            assert_eq!(roofline.bricks[0].absent.as_ref().expect("a reason").reason, reason);
            assert_eq!(roofline.verdict(), None);
        }
        let roofline = roofline(&run(&[("RmsNorm", 1000, work(0, 40_000))]));
        assert_eq!(roofline.bricks[0].flops, None);
        assert!(roofline.bricks[0].notes.contains(&Note::NoFlops), "{roofline:?}");
        assert_eq!(place(&roofline, "RmsNorm").intensity, 0.0);
    }

    #[test]
    fn more_than_the_peak_is_an_error_of_the_model() {
        let work = Work { flops: 300_000, bytes: 1_000, ..ACTIVATIONS };
        let roofline = roofline(&run(&[("Activation", 1_000, work)]));
        assert_eq!(place(&roofline, "Activation").reach, Reach::Above);
        assert_eq!(roofline.bricks[0].notes, [Note::BeyondPeak(1.5)]);
    }

    #[test]
    fn a_pass_has_the_limit_of_most_of_its_least_time() {
        let mut profile = run(&[
            ("LmHead", nanos(90_000_000, 46.0), weights(90_000_000)),
            ("AttentionSoftmax", 100_000, Work { flops: 19_000_000, ..ACTIVATIONS }),
        ]);
        let verdict = roofline(&profile).verdict().expect("work was stated");
        assert_eq!((verdict.bound, verdict.level.as_str()), (Bound::Memory, "memory"));
        assert_eq!(verdict.reach, Reach::At);
        assert!((verdict.of_roof - 0.92).abs() < 0.01, "{verdict:?}");
        profile.ceilings.as_mut().expect("ceilings").read_bytes_per_second = 100e9;
        let verdict = roofline(&profile).verdict().expect("work was stated");
        assert_eq!(verdict.reach, Reach::Far);
    }

    #[test]
    fn spans_without_work_are_counted_only_as_far_as_they_were_kept() {
        // Every other of ten spans states no work.
        let notes = |capacity| {
            let hand = brickscope::MockClock::default();
            let profiler =
                brickscope::BrickProfiler::with_clock(hand.clock()).with_log_capacity(capacity);
            profiler.enable();
            let pass = profiler.begin_pass(Phase::Decode);
            for i in 0..10 {
                let timer = profiler.start_brick(brickscope::BrickId::LmHead);
                hand.advance(1_000);
                let amount = 1_000 * (i % 2);
                profiler.stop_brick_with(
                    timer,
                    Work { elements: 1, flops: amount, bytes: amount, ..Work::default() },
                );
            }
            profiler.end_pass(pass, 1, 0);
            let mut profile = profiler.profile();
            profile.ceilings = Some(ceilings());
            let roofline = Roofline::of(&profile, Phase::Decode).expect("a pass and ceilings");
            roofline.bricks[0].notes.clone()
        };
        assert_eq!(notes(100), [Note::Idle { spans: 5, of: 10, is_least: false }]);
        let some = notes(4);
        assert!(
            matches!(some[..], [Note::Idle { spans: 1..5, of: 10, is_least: true }]),
            "{some:?}"
        );
        assert!(some[0].to_string().starts_with("at least "), "{some:?}");
        assert_eq!(notes(0), [Note::IdleUnknown]);
    }

    proptest! {
        #[test]
        fn no_more_can_be_gained_than_the_wall_has_beyond_the_least_time(
            bricks in prop::collection::vec(
                (0usize..15, 1u64..1 << 30, 0u64..1 << 40, 0u64..1 << 40, 0u8..4),
                1..12,
            ),
            nested in any::<bool>(),
        ) {
            let hand = MockClock::default();
            let profiler = BrickProfiler::with_clock(hand.clock());
            profiler.enable();
            let pass = profiler.begin_pass(Phase::Decode);
            let mut open = Vec::new();
            for (brick, nanos, flops, bytes, data) in bricks {
                let data = match data {
                    0 => Data::Unstated,
                    1 => Data::Activations,
                    2 => Data::Weights(bytes / 2),
                    _ => Data::Kv(bytes),
                };
                let work = Work { elements: 1, flops, bytes, data };
                let timer = profiler.start_brick(BrickId::ALL[brick]);
                hand.advance(nanos);
                if nested {
                    open.push((timer, work));
                } else {
                    profiler.stop_brick_with(timer, work);
                }
            }
            while let Some((timer, work)) = open.pop() {
                profiler.stop_brick_with(timer, work);
            }
            profiler.end_pass(pass, 1, 0);
            let mut profile = profiler.profile();
            profile.ceilings = Some(ceilings());
            let roofline = roofline(&profile);
            let places = roofline.bricks.iter().filter_map(|brick| Some((brick, brick.place.as_ref()?)));
            let mut above = 0.0;
            for (brick, place) in places {
                prop_assert!(place.us_to_roof >= 0.0);
                // Two ways to the same figure: by rates, as Williams et al. put it, and by times.
                let by_rates = place.flops_per_second / place.roof_flops_per_second;
                prop_assert!(brick.flops.is_none() || close(place.of_roof, by_rates), "{place:?}");
                prop_assert_eq!(place.reach == Reach::Above, place.of_roof > MOST);
                above += place.us_to_roof * brick.spans as f64;
            }
            let rest = roofline.wall_ns as f64 - roofline.least_ns;
            prop_assert!(above * 1e3 <= rest + 1e-6 * roofline.wall_ns as f64, "{above} µs of {rest} ns");
        }

        #[test]
        fn no_figure_is_infinite_or_no_number(
            nanos in any::<u64>(),
            flops in any::<u64>(),
            bytes in any::<u64>(),
            once in any::<u64>(),
            rates in [any::<f64>(), any::<f64>(), any::<f64>()],
        ) {
            let [memory, peak, cache] = rates;
            let mut stats = BrickStats::new("LmHead");
            stats.add(nanos, nanos / 2, Work { elements: 1, flops, bytes, data: Data::Weights(once) });
            let mut profile = run(&[("LmHead", 1, weights(1))]);
            profile.totals[0].stats = stats;
            let ceilings = profile.ceilings.as_mut().expect("ceilings");
            (ceilings.read_bytes_per_second, ceilings.flops_per_second) = (memory, peak);
            ceilings.caches[1].read_bytes_per_second = cache;
            if let Ok(roofline) = Roofline::of(&profile, Phase::Decode) {
                prop_assert!(roofline.least_ns.is_finite());
                if let Some(place) = &roofline.bricks[0].place {
                    for figure in [
                        place.intensity, place.flops_per_second, place.bytes_per_second,
                        place.roof_flops_per_second, place.of_roof, place.of_bandwidth,
                        place.of_peak, place.us_to_roof,
                    ] {
                        prop_assert!(figure.is_finite(), "{:?}", place);
                    }
                }
            }
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }
}
