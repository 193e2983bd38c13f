//! Where a brick stands below the roof.

use std::collections::HashMap;
use std::fmt;

use brickscope_profile::text::printable;
use brickscope_profile::{Absent, BrickStats, NameKind, Phase, Profile, Source, Total};
use serde::{Serialize, Serializer};

use super::limits::{Limits, Work};
use super::pace::{OwnPace, Paces, Times};
use super::{AT, MEMORY, MOST, NEAR, SWINGS};
use crate::passes::BySerial;

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
    /// More than the bandwidth of memory that was stated, and that nobody measured: its share.
    BeyondStated(f64),
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
    /// How fast it took its weights in, of what its own code reaches.
    Pace(OwnPace),
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
            Self::BeyondStated(share) => write!(
                f,
                "{} of the stated bandwidth of memory: that, or the bytes of its shapes are wrong, or a cache held a part of \
                 them",
                percent(share)
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
            Self::Pace(pace) if pace.is_limit() => write!(f, "kernel-bound: {}", pace.says()),
            Self::Pace(pace) => f.write_str(&pace.says()),
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
    /// The level of the memory that limits it: `L1`, …, `memory`, by the first measurement that is kept of each: bandwidths
    /// change from run to run, and the name shouldn't.
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
    /// How fast it took its weights in, of what its own code reaches; `None` if that isn't known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<OwnPace>,
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
    /// At it: at least [`AT`] of it.
    At,
    /// At least [`NEAR`] of it.
    Near,
    /// Less. The limit is the code: likely its latency, synchronisation or idle threads, unless its [`OwnPace`] is known.
    Far,
    /// The limit was measured to be so different that the run may be near it or far from it, see [`SWINGS`].
    Unsettled,
    /// Less than the machine allows, and as fast as its own code is anywhere: see [`OwnPace::is_limit`].
    Kernel,
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
            Self::Unsettled => "swings",
            Self::Kernel => "kernel",
        }
    }

    /// Of the part of the stated roof, and of that of the lowest roof which the machine showed. That part is never less.
    ///
    /// Where the two roofs differ by more than [`SWINGS`], there is a verdict only if what is far is far from the lowest, too,
    /// or what is at the roof is at the highest: so the same speed is never at the roof in one run and far from it in the
    /// next.
    ///
    /// A limit that only the run itself showed (`is_sure` is false) is no evidence of being at it.
    /// Beside a limit that others disturbed (`is_disturbed`) a run is slow for them, too, and not far for itself.
    pub(super) fn of(
        of_roof: f64,
        of_lowest: f64,
        swings: bool,
        is_sure: bool,
        is_disturbed: bool,
    ) -> Self {
        match of_roof {
            _ if of_roof > MOST => Self::Above,
            _ if of_roof >= AT && is_sure => Self::At,
            _ if swings && of_lowest >= NEAR => Self::Unsettled,
            _ if of_roof >= NEAR => Self::Near,
            _ if is_disturbed => Self::Unsettled,
            _ => Self::Far,
        }
    }

    /// The same beside what the kernels reach by themselves: that is nearer than a roof which isn't reached.
    pub(super) fn beside(self, pace: Option<&OwnPace>) -> Self {
        match self {
            Self::At | Self::Above => self,
            _ if pace.is_some_and(OwnPace::is_limit) => Self::Kernel,
            _ => self,
        }
    }
}

/// The spans of a brick that were kept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    spans: u64,
    /// How many of them state no work.
    idle: u64,
}

impl Kept {
    /// The caveat that follows for all `of` spans.
    pub(super) fn note(self, of: u64) -> Option<Note> {
        match self {
            Self { spans: 0, .. } => Some(Note::IdleUnknown),
            Self { idle: 0, .. } => None,
            Self { spans, idle } => Some(Note::Idle { spans: idle, of, is_least: spans < of }),
        }
    }
}

/// The spans of a phase that were kept, by the name and source of their brick.
pub(super) fn kept_spans(profile: &Profile, phase: Phase) -> HashMap<(&str, Source), Kept> {
    let passes: HashMap<u32, ()> = profile
        .passes
        .iter()
        .filter(|pass| pass.phase == phase && !pass.is_left_out)
        .map(|pass| (pass.serial, ()))
        .collect();
    let mut passes = BySerial::new(&passes);
    // By the number of the name, since there may be millions of spans.
    let mut counted = vec![[Kept::default(); Source::ALL.len()]; profile.names.len()];
    for span in &profile.spans {
        let (Some(name), Some(pass)) = (span.name, span.pass) else { continue };
        if let Some(of_name) = counted.get_mut(usize::from(name))
            && passes.get(pass).is_some()
        {
            let kept = &mut of_name[span.source as usize];
            kept.spans += 1;
            kept.idle += u64::from(span.work.flops == 0 && span.work.bytes == 0);
        }
    }
    let mut kept: HashMap<_, Kept> = HashMap::new();
    let names = profile.names.iter().zip(counted);
    for (name, of_name) in names.filter(|(name, _)| name.kind == NameKind::Brick) {
        for (source, of) in Source::ALL.into_iter().zip(of_name).filter(|(_, of)| of.spans > 0) {
            let sum = kept.entry((name.name.as_str(), source)).or_default();
            sum.spans += of.spans;
            sum.idle += of.idle;
        }
    }
    kept
}

/// The least time of all spans of a brick, but no more than the time that was the brick's own.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Least {
    pub(super) ns: f64,
    /// With each limit as low as it was around the run.
    pub(super) slow_ns: f64,
    /// With what memory gives all CPUs.
    pub(super) machine_ns: f64,
}

impl RooflineBrick {
    /// And its least times.
    pub(super) fn of(
        total: &Total,
        limits: &Limits<'_>,
        [first, slow]: [&Limits<'_>; 2],
        machine: Option<&Limits<'_>>,
        paces: Option<&Paces<'_>>,
    ) -> (Self, Least) {
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
            _ => {
                let work = Work::of(stats, limits);
                let own_ns = stats.exclusive_ns.min(stats.total_ns) as f64;
                let paced = paces.map(|paces| (paces, stats));
                match row.stand(&work, own_ns, limits, [first, slow], paced) {
                    Ok(least) => {
                        let of =
                            |limits: &Limits<'_>| (limits.least_seconds(&work) * 1e9).min(own_ns);
                        let least = Least {
                            ns: least,
                            slow_ns: of(slow).max(least),
                            machine_ns: machine.map_or(least, of),
                        };
                        return (row, least);
                    }
                    Err(why) => why,
                }
            }
        };
        row.absent = Some(Absent { reason: absent.to_owned() });
        (row, Least::default())
    }

    /// Finds its place, and its least time in nanoseconds.
    fn stand(
        &mut self,
        work: &Work,
        own_ns: f64,
        limits: &Limits<'_>,
        [first, slow]: [&Limits<'_>; 2],
        paced: Option<(&Paces<'_>, &BrickStats)>,
    ) -> Result<f64, &'static str> {
        let bytes = self.bytes.unwrap_or(0) as f64;
        let seconds = self.total_ns as f64 / 1e9;
        let (least_level, (moved, _), by_bandwidth) =
            limits.by_bandwidth(work).ok_or("no level of the memory was measured")?;
        let by_peak = limits.by_peak(work);
        let least = by_bandwidth.max(by_peak);
        let (level, _, by_first_level) =
            first.by_bandwidth(work).ok_or("no level of the memory was measured")?;
        let level = level.name;
        let by_first_peak = first.by_peak(work);
        let of_bandwidth = by_bandwidth / seconds;
        let is_known = work.reused.unknown == 0 || limits.is_stated;
        if least_level.name == MEMORY && of_bandwidth > MOST && !is_known {
            return Err("faster than memory, and nobody said what its bytes are (`Work::data`)");
        }
        let of_peak = by_peak / seconds;
        let of_roof = least / seconds;
        if of_peak > MOST {
            self.notes.push(Note::BeyondPeak(of_peak));
        }
        if of_bandwidth > MOST && limits.is_stated {
            self.notes.push(Note::BeyondStated(of_bandwidth));
        } else if of_bandwidth > MOST {
            let level = least_level.name.to_owned();
            self.notes.push(Note::BeyondLevel { share: of_bandwidth, level });
        }
        if self.flops.is_none() {
            self.notes.push(Note::NoFlops);
        }
        let bound = match by_first_level >= by_first_peak {
            true if level == MEMORY => Bound::Memory,
            true => Bound::Cache,
            false => Bound::Compute,
        };
        let least_ns = (least * 1e9).min(own_ns);
        // Where a slow cache is passed over for what lies behind it, that isn't less than at best.
        let slow_least = slow.least_seconds(work).max(least);
        let limit = if by_peak > by_bandwidth { limits.peak_of(work) } else { least_level.name };
        let times = Times { took: seconds, least, slow_least };
        let pace = paced.and_then(|(paces, stats)| paces.of_brick(stats, times));
        let reach = Reach::of(
            of_roof,
            slow_least / seconds,
            slow_least > SWINGS * least,
            limits.is_sure(limit),
            limits.is_disturbed(limit),
        );
        self.notes.extend(pace.clone().map(Note::Pace));
        self.place = Some(Standing {
            intensity: work.flops / bytes,
            flops_per_second: work.flops / seconds,
            bytes_per_second: bytes / seconds,
            roof_flops_per_second: work.flops / least,
            level: level.to_owned(),
            least_level: least_level.name.to_owned(),
            moved,
            of_roof,
            of_bandwidth,
            of_peak,
            is_of_floats: work.is_of_floats,
            bound,
            reach: reach.beside(pace.as_ref()),
            pace,
            us_to_roof: (own_ns - least_ns) / 1e3 / self.spans as f64,
        });
        Ok(least_ns)
    }
}
