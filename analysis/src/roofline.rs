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
//! In terms of time, work of `F` FLOPs and `B` bytes takes at least `max(F / peak, B / bandwidth)`. That
//! also holds for `F` = 0, and everything here is computed from it.

use std::collections::{HashMap, HashSet};
use std::fmt;

use brickscope_profile::{Absent, Ceilings, NameKind, Phase, Profile, Source, Total};
use serde::{Serialize, Serializer};

/// Below this part of a roof, the roof isn't the limit. Nsight Compute draws the line at the same place:
/// below 60 % of both it names latency as the likely cause (*Kernel Profiling Guide*, "GPU Speed Of Light
/// Throughput").
pub const NEAR: f64 = 0.6;

/// Above this part of a roof, the roof or the work is wrong; the excess over 1 is the error of measurement.
pub const MOST: f64 = 1.02;

/// The bricks of a phase, compared with the machine's ceilings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roofline {
    /// The phase.
    pub phase: Phase,
    /// The measured peak of the run's machine, in FLOPs per second.
    pub peak_flops_per_second: f64,
    /// The measured bandwidth of memory, in bytes read per second.
    pub peak_bytes_per_second: f64,
    /// The ridge point, where the two roofs meet, in FLOPs per byte.
    pub ridge: f64,
    /// One for each brick, the longest first.
    pub bricks: Vec<RooflineBrick>,
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
    /// More than the bandwidth of memory; a level of cache has room for what a span moves.
    FromCache {
        /// The share of memory bandwidth.
        of_memory: f64,
        /// The level.
        level: String,
    },
    /// More than the bandwidth of memory, and no level of cache holds what a span moves.
    NoCacheHoldsIt(f64),
    /// More than the bandwidth of memory, and nothing is known of the caches.
    CachesUnknown(f64),
    /// More than the bandwidth of the level of cache that it is compared with.
    BeyondCache(f64),
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
            Self::FromCache { of_memory, level } => write!(
                f,
                "{} of measured memory bandwidth, so its data came from a cache: compared with {level}, \
                 which has room for what a span moves",
                percent(of_memory)
            ),
            Self::NoCacheHoldsIt(share) => write!(
                f,
                "{} of measured memory bandwidth, and no level of cache holds what a span moves: its \
                 stated bytes are wrong, or the machine is faster than when it was measured \
                 (`brickscope machine --fresh` measures it again)",
                percent(share)
            ),
            Self::CachesUnknown(share) => write!(
                f,
                "{} of measured memory bandwidth: its data came from a cache, or its stated bytes are \
                 wrong; this run has no cache bandwidths",
                percent(share)
            ),
            Self::BeyondCache(share) => write!(
                f,
                "{} of the measured bandwidth of its cache level: its stated bytes are wrong, or a nearer \
                 level held a part of them",
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
    /// The roof at this intensity, in FLOPs per second.
    pub roof_flops_per_second: f64,
    /// Where the data come from by this model: `memory` or, if memory is too slow for the measured time,
    /// the level of cache that holds what a span moves.
    pub level: String,
    /// The part of the roof that is reached: the least possible time over the measured one.
    pub of_roof: f64,
    /// The part of the bandwidth of `level` that is reached.
    pub of_bandwidth: f64,
    /// The part of the peak FLOP/s that is reached.
    pub of_peak: f64,
    /// What limits it.
    pub bound: Bound,
    /// Microseconds of a span beyond the least possible time; negative above the roof.
    pub us_to_roof: f64,
}

/// What limits a brick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// The bandwidth.
    Memory,
    /// The peak FLOP/s.
    Compute,
    /// Less than [`NEAR`] of both roofs is reached: the limit is the code, likely its latency,
    /// synchronisation or idle threads.
    Neither,
    /// More than [`MOST`] of the roof is reached: the model is wrong.
    Error,
}

impl Bound {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Neither => "neither",
            Self::Error => "ERROR",
        }
    }
}

impl Roofline {
    /// The bricks of a phase under the ceilings of their run.
    ///
    /// # Errors
    ///
    /// The reason, if there is no such pass, or there are no ceilings.
    pub fn of(profile: &Profile, phase: Phase) -> Result<Self, Absent> {
        if profile.phase(phase).is_none() {
            return Err(Absent { reason: format!("no pass of {phase} was recorded") });
        }
        let Some(ceilings) = &profile.ceilings else {
            return Err(profile.ceilings_absent.clone().unwrap_or_else(|| Absent {
                reason: "this run has no ceilings: the machine was not measured".to_owned(),
            }));
        };
        let (peak, bandwidth) = (ceilings.peak_per_second(), ceilings.read_bytes_per_second);
        // A file may contain anything.
        if !is_rate(peak) || !is_rate(bandwidth) {
            return Err(Absent {
                reason: format!(
                    "the ceilings of this run are not rates: {bandwidth} B/s, {peak} FLOP/s"
                ),
            });
        }
        let kept = kept_spans(profile, phase);
        let bricks = profile.bricks(Some(phase)).into_iter().map(|brick| {
            let mut row = RooflineBrick::of(brick, ceilings);
            if row.place.is_some() {
                let kept = kept.get(&(brick.stats.name.as_str(), brick.source));
                row.notes.extend(kept.copied().unwrap_or_default().note(brick.stats.count));
            }
            row
        });
        Ok(Self {
            phase,
            peak_flops_per_second: peak,
            peak_bytes_per_second: bandwidth,
            ridge: peak / bandwidth,
            bricks: bricks.collect(),
        })
    }

    /// The rooflines of all phases that have one.
    #[must_use]
    pub fn all(profile: &Profile) -> Vec<Self> {
        [Phase::Decode, Phase::Prefill]
            .into_iter()
            .filter_map(|phase| Self::of(profile, phase).ok())
            .collect()
    }
}

/// Whether a number from a file can be a rate, so that results stay finite.
pub(crate) fn is_rate(rate: f64) -> bool {
    (1.0..1e30).contains(&rate)
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
    fn of(total: &Total, ceilings: &Ceilings) -> Self {
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
                row.stand(ceilings);
                return row;
            }
        };
        row.absent = Some(Absent { reason: absent.to_owned() });
        row
    }

    fn stand(&mut self, ceilings: &Ceilings) {
        let flops = self.flops.unwrap_or(0) as f64;
        let bytes = self.bytes.unwrap_or(0) as f64;
        let peak = ceilings.peak_per_second();
        let seconds = self.total_ns as f64 / 1e9;
        let spans = self.spans as f64;
        let of_peak = flops / peak / seconds;
        let of_memory = bytes / ceilings.read_bytes_per_second / seconds;
        let (mut level, mut bandwidth) = ("memory", ceilings.read_bytes_per_second);
        if of_memory > MOST {
            let each = bytes / spans;
            let faster = ceilings.caches.iter().filter(|cache| {
                let rate = cache.read_bytes_per_second;
                is_rate(rate) && rate > bandwidth
            });
            self.notes.push(match faster.into_iter().find(|cache| cache.bytes as f64 >= each) {
                Some(cache) => {
                    (level, bandwidth) = (&cache.level, cache.read_bytes_per_second);
                    Note::FromCache { of_memory, level: cache.level.clone() }
                }
                None if ceilings.caches.is_empty() => Note::CachesUnknown(of_memory),
                None => Note::NoCacheHoldsIt(of_memory),
            });
        }
        let of_bandwidth = bytes / bandwidth / seconds;
        let of_roof = of_peak.max(of_bandwidth);
        if of_peak > MOST {
            self.notes.push(Note::BeyondPeak(of_peak));
        }
        if of_bandwidth > MOST && level != "memory" {
            self.notes.push(Note::BeyondCache(of_bandwidth));
        }
        if self.flops.is_none() {
            self.notes.push(Note::NoFlops);
        }
        let bound = match of_roof {
            _ if of_roof > MOST => Bound::Error,
            _ if of_roof < NEAR => Bound::Neither,
            _ if of_bandwidth >= of_peak => Bound::Memory,
            _ => Bound::Compute,
        };
        self.place = Some(Standing {
            intensity: flops / bytes,
            flops_per_second: flops / seconds,
            bytes_per_second: bytes / seconds,
            roof_flops_per_second: peak.min(flops / bytes * bandwidth),
            level: level.to_owned(),
            of_roof,
            of_bandwidth,
            of_peak,
            bound,
            us_to_roof: (1.0 - of_roof) * seconds * 1e6 / spans,
        });
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{BrickStats, CacheCeiling, Source, Work};
    use proptest::prelude::*;

    use super::*;

    fn ceilings() -> Ceilings {
        Ceilings {
            read_bytes_per_second: 50e9,
            flops_per_second: 200e9,
            caches: [("L1", 64_000, 400e9), ("L3", 32_000_000, 180e9)]
                .map(|(level, bytes, read_bytes_per_second)| CacheCeiling {
                    level: level.to_owned(),
                    bytes,
                    read_bytes_per_second,
                })
                .into(),
            ..Ceilings::default()
        }
    }

    fn row(ns: u64, flops: u64, bytes: u64) -> RooflineBrick {
        let mut stats = BrickStats::new("a");
        stats.add(ns, ns, Work { elements: 1, flops, bytes });
        let total = Total {
            phase: Some(Phase::Decode),
            kind: NameKind::Brick,
            category: None,
            source: Source::Host,
            host: None,
            device: None,
            stats,
            std_dev_ns: None,
            percentiles: Default::default(),
            counters: None,
        };
        RooflineBrick::of(&total, &ceilings())
    }

    #[test]
    fn each_bound_has_its_side_of_the_ridge() {
        // The ridge is at 4 FLOP/byte. 100 MB take 2 ms of memory, and 400 MFLOP 2 ms of compute.
        let memory = row(2_500_000, 100_000_000, 100_000_000).place.expect("work was stated");
        assert_eq!((memory.bound, memory.level.as_str()), (Bound::Memory, "memory"));
        assert!((memory.of_roof - 0.8).abs() < 1e-12 && (memory.us_to_roof - 500.0).abs() < 1e-6);
        assert!((memory.roof_flops_per_second - 50e9).abs() < 1.0);
        let compute = row(2_500_000, 400_000_000, 1_000_000).place.expect("work was stated");
        assert_eq!(compute.bound, Bound::Compute);
        assert!((compute.roof_flops_per_second - 200e9).abs() < 1.0);
        let neither = row(5_000_000, 100_000_000, 100_000_000).place.expect("work was stated");
        assert_eq!(neither.bound, Bound::Neither);
    }

    #[test]
    fn what_nobody_stated_is_absent_with_a_reason() {
        for (flops, bytes, reason) in
            [(0, 0, "its work was not stated"), (9, 0, "the bytes that it moves were not stated")]
        {
            let row = row(1000, flops, bytes);
            assert_eq!(row.place, None);
            assert_eq!(row.absent.expect("a reason").reason, reason);
        }
        let row = row(1000, 0, 40_000);
        assert_eq!(row.flops, None);
        assert!(row.notes.contains(&Note::NoFlops), "{row:?}");
        assert_eq!(row.place.expect("bytes were stated").intensity, 0.0);
    }

    #[test]
    fn what_memory_cannot_give_is_held_against_the_cache_that_holds_it() {
        // 100 GB/s: 20 kB fit L1, 1 MB fit L3, 100 MB fit nothing.
        for (bytes, level, bound) in [
            (20_000, "L1", Bound::Neither),
            (1_000_000, "L3", Bound::Neither),
            (100_000_000, "memory", Bound::Error),
        ] {
            let row = row(bytes / 100, bytes, bytes);
            assert_eq!(row.notes.len(), 1, "{row:?}");
            assert!(
                row.notes[0].to_string().starts_with("200 % of measured memory bandwidth"),
                "{row:?}"
            );
            let place = row.place.expect("work was stated");
            assert_eq!((place.level.as_str(), place.bound), (level, bound));
        }
        // 190 GB/s are more than L3 gives, too.
        let row = row(10_000, 1, 1_900_000);
        assert!(
            row.notes[1]
                .to_string()
                .starts_with("106 % of the measured bandwidth of its cache level"),
            "{row:?}"
        );
        assert_eq!(row.place.expect("work was stated").bound, Bound::Error);
    }

    #[test]
    fn more_than_the_peak_is_an_error_of_the_model() {
        let row = row(1_000, 300_000, 1_000);
        assert_eq!(row.place.expect("work was stated").bound, Bound::Error);
        assert_eq!(row.notes, [Note::BeyondPeak(1.5)]);
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
                profiler.stop_brick_with(timer, Work { elements: 1, flops: amount, bytes: amount });
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

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }

    proptest! {
        #[test]
        fn the_part_of_the_roof_is_attained_over_attainable(
            ns in 1u64..1 << 50,
            flops in 1u64..1 << 50,
            bytes in 1u64..1 << 50,
        ) {
            let place = row(ns, flops, bytes).place.expect("work was stated");
            // Two ways to the same figure: by rates, as Williams et al. put it, and by times.
            prop_assert!(close(place.of_roof, place.flops_per_second / place.roof_flops_per_second));
            let seconds = ns as f64 / 1e9;
            let least = seconds - place.us_to_roof / 1e6;
            // What is left of a difference of nearly equal numbers has fewer digits.
            prop_assert!((least - place.of_roof * seconds).abs() <= 1e-9 * seconds.max(least));
            prop_assert!(close(place.intensity, place.flops_per_second / place.bytes_per_second));
            prop_assert!(place.roof_flops_per_second <= ceilings().peak_per_second());
            prop_assert_eq!(place.bound == Bound::Error, place.of_roof > MOST);
            prop_assert_eq!(place.bound == Bound::Neither, place.of_roof < NEAR);
            prop_assert!(place.us_to_roof >= 0.0 || place.of_roof > 1.0);
        }

        #[test]
        fn twice_the_time_is_half_of_the_roof(
            ns in 1u64..1 << 40,
            flops in 1u64..1 << 40,
            bytes in 1u64..1 << 40,
        ) {
            let fast = row(ns, flops, bytes).place.expect("work was stated");
            let slow = row(2 * ns, flops, bytes).place.expect("work was stated");
            // Slower data may come from farther away.
            if fast.level == slow.level {
                prop_assert!(close(fast.of_roof, 2.0 * slow.of_roof));
                prop_assert!(close(fast.roof_flops_per_second, slow.roof_flops_per_second));
            }
        }

        #[test]
        fn no_figure_is_infinite_or_no_number(
            ns in any::<u64>(),
            flops in any::<u64>(),
            bytes in any::<u64>(),
        ) {
            if let Some(place) = row(ns, flops, bytes).place {
                for figure in [
                    place.intensity, place.flops_per_second, place.bytes_per_second,
                    place.roof_flops_per_second, place.of_roof, place.of_bandwidth,
                    place.of_peak, place.us_to_roof,
                ] {
                    prop_assert!(figure.is_finite(), "{:?}", place);
                }
            } else {
                prop_assert!(bytes == 0 || ns == 0);
            }
        }
    }
}
