//! The place of each thread in a profile, at any moment of the system's clocks.

use std::collections::{HashMap, HashSet};

use brickscope::{Absent, Anchor, Pass, Profile, Source};
use brickscope_sampler::TimeBase;

/// Converts the system's time to that of a profile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    /// A moment by the system's clock and by the profile's.
    first: (u64, u64),
    /// Nanoseconds of the profile per nanosecond of the system.
    rate: f64,
}

impl Clocks {
    /// # Errors
    ///
    /// If the profile doesn't relate the clocks, or the samples have a clock that can't be read.
    pub(super) fn new(profile: &Profile, base: TimeBase) -> Result<Self, Absent> {
        let absent = |reason: &str| Absent { reason: reason.to_owned() };
        let by_system = |anchor: &Anchor| match base {
            TimeBase::MonotonicRaw => Some(anchor.monotonic_raw_ns),
            TimeBase::Monotonic => Some(anchor.monotonic_ns),
            TimeBase::Scheduler => None,
        };
        let anchors = &profile.clock.anchors;
        let (Some(first), Some(last)) = (anchors.first(), anchors.last()) else {
            return Err(absent(
                "the profile doesn't relate its clock to the system's: it was written by an older \
                brickscope, or on a system with an unknown clock",
            ));
        };
        let (Some(from), Some(to)) = (by_system(first), by_system(last)) else {
            return Err(absent(
                "the samples have timestamps of the kernel's own clock, which no program can read: record \
                with `perf record -k CLOCK_MONOTONIC_RAW`",
            ));
        };
        let (system, ours) = (to.saturating_sub(from), last.at_ns.saturating_sub(first.at_ns));
        let rate = if system > 0 && ours > 0 { ours as f64 / system as f64 } else { 1.0 };
        // The two clocks count the same seconds.
        if !(0.99..1.01).contains(&rate) {
            return Err(absent(
                "the profile's clock and the system's ran at different rates: the machine was \
                suspended meanwhile, or the profile is of another run",
            ));
        }
        Ok(Self { first: (from, first.at_ns), rate })
    }

    /// The profile's time of a moment of the system; `None` before the profile's clock began.
    pub(super) fn ours(&self, system_ns: u64) -> Option<u64> {
        let (system, ours) = self.first;
        let since = system_ns as i128 - i128::from(system);
        // A few hours at most, far below the range where `f64` loses nanoseconds.
        let at = i128::from(ours) + (since as f64 * self.rate).round() as i128;
        u64::try_from(at).ok()
    }
}

/// The place of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// An index into the passes of the profile.
    pub(super) pass: Option<usize>,
    /// The innermost span, an index into the spans of the profile.
    pub(super) span: Option<u32>,
}

const NOWHERE: Place = Place { pass: None, span: None };

/// The places of all threads, from their passes and spans.
#[derive(Debug)]
pub(super) struct Timeline {
    /// For each lane, the moments at which its place changes, with the place from then on.
    lanes: Vec<Vec<(u64, Place)>>,
    /// The lanes of each thread: several, if its number was reused.
    by_tid: HashMap<u32, Vec<usize>>,
    /// Lanes with passes.
    with_passes: Vec<usize>,
}

impl Timeline {
    pub(super) fn of(profile: &Profile) -> Self {
        let n_lanes = profile.lanes.len();
        let mut intervals: Vec<Vec<Interval>> = (0..n_lanes).map(|_| Vec::new()).collect();
        for (index, pass) in profile.passes.iter().enumerate() {
            if let Some(lane) = intervals.get_mut(pass.lane as usize) {
                lane.push(Interval {
                    start: pass.start_ns,
                    end: pass.start_ns.saturating_add(pass.wall_ns),
                    depth: 0,
                    what: What::Pass(index),
                });
            }
        }
        let depths = depths(profile);
        for (index, span) in (0..).zip(&profile.spans) {
            // Deferred bricks did not run on this thread at that time.
            if span.source != Source::Host {
                continue;
            }
            if let Some(lane) = intervals.get_mut(span.lane as usize) {
                lane.push(Interval {
                    start: span.start_ns,
                    end: span.start_ns.saturating_add(span.duration_ns),
                    depth: depths[index as usize],
                    what: What::Span(index),
                });
            }
        }
        let lanes: Vec<_> = intervals.into_iter().map(places).collect();
        let mut by_tid: HashMap<u32, Vec<usize>> = HashMap::new();
        for (lane, thread) in profile.lanes.iter().enumerate() {
            if let Some(tid) = thread.tid {
                by_tid.entry(tid).or_default().push(lane);
            }
        }
        let have_passes: HashSet<usize> =
            profile.passes.iter().map(|pass| pass.lane as usize).collect();
        let with_passes = (0..n_lanes).filter(|lane| have_passes.contains(lane)).collect();
        Self { lanes, by_tid, with_passes }
    }

    /// The place of a thread; `None` if it recorded nothing around that time.
    pub(super) fn of_thread(&self, tid: u32, at: u64) -> Option<Place> {
        let lanes = self.by_tid.get(&tid)?;
        lanes.iter().map(|&lane| self.at(lane, at)).find(|place| *place != NOWHERE)
    }

    /// The place of the thread that ran a pass at that time, if there was one, and whether there were
    /// several.
    pub(super) fn of_passes(&self, at: u64) -> (Option<Place>, bool) {
        let mut open = self
            .with_passes
            .iter()
            .map(|&lane| self.at(lane, at))
            .filter(|place| place.pass.is_some());
        let first = open.next();
        (first, open.next().is_some())
    }

    fn at(&self, lane: usize, at: u64) -> Place {
        let changes = &self.lanes[lane];
        let after = changes.partition_point(|(from, _)| *from <= at);
        after.checked_sub(1).map_or(NOWHERE, |last| changes[last].1)
    }
}

#[derive(Debug, Clone, Copy)]
enum What {
    Pass(usize),
    Span(u32),
}

#[derive(Debug, Clone, Copy)]
struct Interval {
    start: u64,
    end: u64,
    depth: u32,
    what: What,
}

/// The depth of each span, from 1 on. A span's parent comes before it.
fn depths(profile: &Profile) -> Vec<u32> {
    let mut depths: Vec<u32> = Vec::with_capacity(profile.spans.len());
    for span in &profile.spans {
        let above = span.parent.and_then(|parent| depths.get(parent as usize)).copied();
        depths.push(above.unwrap_or(0).saturating_add(1));
    }
    depths
}

/// The moments at which the place of a thread changes. Intervals that overlap without nesting, which are
/// rare, end where the enclosing one ends.
fn places(mut intervals: Vec<Interval>) -> Vec<(u64, Place)> {
    intervals.sort_by_key(|i| (i.start, i.depth, std::cmp::Reverse(i.end)));
    let mut changes: Vec<(u64, Place)> = Vec::with_capacity(2 * intervals.len());
    let mut open: Vec<(u64, Place)> = Vec::new();
    let mut change = |at: u64, place: Place| match changes.last_mut() {
        Some((last, of_last)) if *last == at => *of_last = place,
        _ => changes.push((at, place)),
    };
    for interval in intervals {
        while let Some(&(end, _)) = open.last()
            && end <= interval.start
        {
            open.pop();
            change(end, open.last().map_or(NOWHERE, |(_, place)| *place));
        }
        let around = open.last().copied().unwrap_or((u64::MAX, NOWHERE));
        let place = match interval.what {
            What::Pass(pass) => Place { pass: Some(pass), span: None },
            What::Span(span) => Place { span: Some(span), ..around.1 },
        };
        open.push((interval.end.min(around.0), place));
        change(interval.start, place);
    }
    while let Some((end, _)) = open.pop() {
        change(end, open.last().map_or(NOWHERE, |(_, place)| *place));
    }
    changes
}

/// Whether it is known when the bricks of a pass ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// For all bricks.
    Whole,
    /// Some spans weren't kept.
    InPart,
    /// Some bricks were timed by their order of issue.
    InOrder,
}

/// The same for each pass.
pub(super) fn known(profile: &Profile) -> Vec<Known> {
    let mut explained: HashMap<u32, u64> = HashMap::new();
    let mut in_order: HashSet<u32> = HashSet::new();
    for span in &profile.spans {
        if let Some(pass) = span.pass {
            let sum = explained.entry(pass).or_default();
            *sum = u64::saturating_add(*sum, span.exclusive_ns);
            if span.source != Source::Host {
                in_order.insert(pass);
            }
        }
    }
    let of = |pass: &Pass| {
        if in_order.contains(&pass.serial) {
            Known::InOrder
        } else if explained.get(&pass.serial).copied().unwrap_or_default() == pass.attributed_ns {
            Known::Whole
        } else {
            Known::InPart
        }
    };
    profile.passes.iter().map(of).collect()
}
