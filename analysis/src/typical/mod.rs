//! What a run's passes and bricks typically take: without what disturbed them, and without single stalls.
//!
//! A sum is no good answer to "what takes the most time": one span that waited for 36 ms outweighs 700 of 0.05 ms. So
//! passes that were disturbed, and passes with a [`Stall`], are left out, and means are taken of the others. The same
//! passes count for the wall and for each brick, so that bricks and unattributed time still add up to the wall. Where
//! fewer than half of the passes remain, or too few, those say little of the run: the time is that of the median span, which
//! a minority of interrupted spans can't move.

#[cfg(test)]
mod tests;

mod groups;
mod one_pass;
mod profiles;
mod sentences;

use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::stats::{median_ns, student};
use brickscope_profile::{Disturbance, Disturber, Pass, Phase, Profile, Source};
use serde::Serialize;

use self::groups::{Group, OfBrick, grouped};
pub use self::one_pass::OnePass;
pub use self::profiles::{basis_in_words, is_of_medians, judged, median_pass_ns, shown};
pub use self::sentences::notes;
pub(crate) use self::sentences::passes_text;
use crate::passes::is_of_device;

/// A span is a stall if it took this many times the median of its brick, …
pub const STALL: u64 = 8;
/// … and if what it took longer is more than one part in this many of the median pass.
pub const STALL_OF_PASS: u64 = 20;
/// What more than one pass in this many has is no stall, but the rule.
const RULE: u64 = 10;
/// With fewer spans there is no median to speak of.
const LEAST_SPANS: usize = 7;
/// With fewer passes that nothing disturbed, medians of spans are used.
const LEAST_PASSES: usize = 5;

/// What the passes of a phase typically take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Typical {
    /// The phase.
    pub phase: Phase,
    /// What the times are.
    pub basis: Basis,
    /// The number of passes that they are of.
    pub passes: u64,
    /// Passes that were left out of them.
    pub left_out: LeftOut,
    /// Passes of which it isn't known whether they were disturbed; they are in. `None` if nobody looked at any.
    pub unwatched: Option<u64>,
    /// A pass.
    pub wall: Estimate,
    /// The part of it outside of all bricks.
    pub unattributed: Estimate,
    /// The bricks, the longest first. With [`Basis::Passes`] they and `unattributed` add up to `wall`.
    pub bricks: Vec<TypicalBrick>,
    /// Single spans that took far longer than others of their brick, the longest first.
    pub stalls: Vec<Stall>,
    /// With [`Basis::Spans`], the passes that nothing disturbed: too few to speak for the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean: Option<Clean>,
}

/// A minority of passes that nothing disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Clean {
    /// Their number.
    pub passes: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Their wall times, summed.
    pub wall_ns: u64,
}

impl Clean {
    /// Their rate.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.tokens > 0 && self.wall_ns > 0)
            .then(|| self.tokens as f64 * 1e9 / self.wall_ns as f64)
    }
}

/// What typical times are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Means of the passes that nothing disturbed and that had no stall.
    Passes,
    /// The median span of each brick, times the spans of a pass: most passes were disturbed, so that those which were not
    /// say little of the run. Of the time between bricks it is the median at each place of a pass. The wall is the sum.
    Spans,
    /// Means of all passes, since single spans were not kept.
    Sums,
}

/// A time in nanoseconds with its 95 % interval: of this run, whose passes may all be slower or faster than those of another
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Estimate {
    /// The time in a pass.
    pub ns: f64,
    /// Where the true one lies; `None` of a single pass, and of sums.
    pub interval_ns: Option<[f64; 2]>,
}

/// What a brick typically takes in a pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypicalBrick {
    /// Its name.
    pub name: String,
    /// How its times were obtained.
    pub source: Source,
    /// Its own time in a pass.
    #[serde(flatten)]
    pub time: Estimate,
}

/// Passes that typical times leave out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Their number.
    pub passes: u64,
    /// Their wall times, summed.
    pub wall_ns: u64,
    /// How many of them were disturbed, by whom.
    pub disturbed: BTreeMap<Disturber, u64>,
    /// How many of the others had a stall.
    pub stalled: u64,
}

/// A span that took far longer than others of its brick.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stall {
    /// The brick; `None` for the time between bricks.
    pub brick: Option<String>,
    /// The layer.
    pub layer: Option<u16>,
    /// The serial of its pass.
    pub pass: u32,
    /// Tokens in the KV cache when that pass began.
    pub position: u64,
    /// When it began, in nanoseconds after the first pass of the run. For the time between bricks, when its pass began.
    pub at_ns: u64,
    /// How long it took.
    pub ns: u64,
    /// The median of its brick.
    pub median_ns: u64,
    /// Its part of the phase's wall time.
    pub of_wall: f64,
    /// What the scheduler said of its pass; `None` if nobody looked.
    pub disturbance: Option<Disturbance>,
    /// What the profiler itself took meanwhile, as threads made the memory that they record into. Of the time between bricks:
    /// in its pass.
    #[serde(skip_serializing_if = "is_zero")]
    pub prepared_ns: u64,
}

fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

/// What was recorded in one pass, brick by brick.
struct Passes<'p> {
    all: Vec<&'p Pass>,
    /// The spans of bricks, pass by pass.
    spans: Vec<OfBrick>,
    /// What does the same.
    groups: Vec<Group>,
    /// The own times of the spans of each group.
    times: Vec<Vec<u64>>,
}

impl<'p> Passes<'p> {
    fn of(profile: &'p Profile, phase: Phase) -> Self {
        let in_phase = |pass: &&Pass| pass.phase == phase && !pass.is_left_out;
        let all: Vec<&Pass> = profile.passes.iter().filter(in_phase).collect();
        let (spans, groups) = grouped(profile, &all);
        let mut times = vec![Vec::new(); groups.len()];
        for of in &spans {
            times[of.group].push(profile.spans[of.index].exclusive_ns);
        }
        Self { all, spans, groups, times }
    }

    /// What lies outside of all bricks in a pass: the median at each place of it, between two bricks, before the first one and
    /// after the last one. As with bricks, a wait at one place in each pass moves none of them. `None` if what lies between
    /// the spans isn't what was summed up: then some bricks overlap, or were on other clocks.
    fn between(&self, profile: &Profile) -> Option<Estimate> {
        let mut ends: Vec<(u64, Vec<u64>)> =
            self.all.iter().map(|pass| (pass.start_ns, Vec::new())).collect();
        let lasted = |of: &OfBrick| {
            let span = &profile.spans[of.index];
            (of.pass, span.start_ns, span.start_ns.saturating_add(span.duration_ns))
        };
        let mut spans: Vec<(usize, u64, u64)> = self.spans.iter().map(lasted).collect();
        spans.sort_unstable();
        for (pass, start, end) in spans {
            let (covered, gaps) = &mut ends[pass];
            // Inside of another one.
            if end > *covered {
                gaps.push(start.saturating_sub(*covered));
                *covered = end;
            }
        }
        let mut places: BTreeMap<(u64, usize, usize), Vec<u64>> = BTreeMap::new();
        for ((covered, mut gaps), pass) in ends.into_iter().zip(&self.all) {
            gaps.push(pass.start_ns.saturating_add(pass.wall_ns).saturating_sub(covered));
            let sum: u64 = gaps.iter().fold(0, |sum, &gap| sum.saturating_add(gap));
            if sum.abs_diff(pass.unattributed_ns) > pass.unattributed_ns / 50 + 1_000 {
                return None;
            }
            let n = gaps.len();
            for (nth, gap) in gaps.into_iter().enumerate() {
                places.entry((pass.tokens, n, nth)).or_default().push(gap);
            }
        }
        let n = self.all.len().max(1) as f64;
        let none = Estimate { ns: 0.0, interval_ns: Some([0.0; 2]) };
        Some(places.into_values().fold(none, |sum, gaps| {
            let times = gaps.len() as f64 / n;
            sum.plus(middle(gaps), times)
        }))
    }

    /// That of each group that has enough spans.
    fn medians(&self) -> Vec<Option<u64>> {
        let enough = |times: &&Vec<u64>| times.len() >= LEAST_SPANS;
        let median = |times: &Vec<u64>| Some(times).filter(enough).cloned().and_then(median_ns);
        self.times.iter().map(median).collect()
    }

    /// The median of a field of the passes with as many tokens.
    fn median_of(&self, field: impl Fn(&Pass) -> u64) -> HashMap<u64, (usize, u64)> {
        let mut by_tokens: HashMap<u64, Vec<u64>> = HashMap::new();
        for pass in &self.all {
            by_tokens.entry(pass.tokens).or_default().push(field(pass));
        }
        let of = |(tokens, all): (u64, Vec<u64>)| Some((tokens, (all.len(), median_ns(all)?)));
        by_tokens.into_iter().filter_map(of).collect()
    }

    /// Whether each pass has fewer spans of bricks than most with as many tokens, where timers were dropped: what the lost
    /// bricks took lies between its others, and is no stall.
    fn lack_bricks(&self, profile: &Profile) -> Vec<bool> {
        if profile.dropped.unfinished == 0 {
            return vec![false; self.all.len()];
        }
        let mut spans = vec![0_u64; self.all.len()];
        self.spans.iter().for_each(|of| spans[of.pass] += 1);
        let mut by_tokens: HashMap<u64, Vec<u64>> = HashMap::new();
        for (pass, &spans) in self.all.iter().zip(&spans) {
            by_tokens.entry(pass.tokens).or_default().push(spans);
        }
        let of = |(tokens, all): (u64, Vec<u64>)| Some((tokens, median_ns(all)?));
        let typical: HashMap<u64, u64> = by_tokens.into_iter().filter_map(of).collect();
        let lacks = |(pass, spans): (&&Pass, &u64)| {
            typical.get(&pass.tokens).is_some_and(|typical| spans < typical)
        };
        self.all.iter().zip(&spans).map(lacks).collect()
    }

    fn stalls(&self, profile: &Profile, phase: Phase) -> Vec<Stall> {
        let medians = self.medians();
        let walls = self.median_of(|pass| pass.wall_ns);
        let wall = profile.phase(phase).map_or(0, |total| total.wall_ns) as f64;
        let first = profile.passes.iter().map(|pass| pass.start_ns).min().unwrap_or_default();
        let of_pass =
            |tokens: u64| walls.get(&tokens).map_or(u64::MAX, |(_, wall)| wall / STALL_OF_PASS);
        let is_stall = |tokens: u64, ns: u64, median_ns: u64| {
            ns > median_ns.saturating_mul(STALL) && ns - median_ns > of_pass(tokens)
        };
        let prepared = |start: u64, ns: u64| {
            profile.overhead.prepared_within_ns(start, start.saturating_add(ns))
        };
        let stall = |pass: &Pass, at: u64, ns: u64, median_ns: u64| Stall {
            brick: None,
            layer: None,
            pass: pass.serial,
            position: pass.position,
            at_ns: at.saturating_sub(first),
            ns,
            median_ns,
            of_wall: ns as f64 / wall.max(1.0),
            disturbance: pass.disturbance,
            prepared_ns: prepared(pass.start_ns, pass.wall_ns),
        };
        let mut stalls = Vec::new();
        for of in &self.spans {
            let Some(median_ns) = medians[of.group] else { continue };
            let (name, _, tokens, _) = self.groups[of.group];
            let (span, pass) = (&profile.spans[of.index], self.all[of.pass]);
            if is_stall(tokens, span.exclusive_ns, median_ns) {
                let name = profile.names.get(usize::from(name)).map(|name| name.name.clone());
                let prepared_ns = prepared(span.start_ns, span.duration_ns);
                let stall = stall(pass, span.start_ns, span.exclusive_ns, median_ns);
                stalls.push(Stall { brick: name, layer: span.layer, prepared_ns, ..stall });
            }
        }
        let between = self.median_of(|pass| pass.unattributed_ns);
        for (pass, lacks_bricks) in self.all.iter().zip(self.lack_bricks(profile)) {
            let (n, median_ns) = between.get(&pass.tokens).copied().unwrap_or_default();
            let is_known = n >= LEAST_SPANS && !lacks_bricks;
            if is_known && is_stall(pass.tokens, pass.unattributed_ns, median_ns) {
                stalls.push(stall(pass, pass.start_ns, pass.unattributed_ns, median_ns));
            }
        }
        // Those of disturbed passes don't count: others may disturb each of them.
        let mut passes_with: HashMap<Option<String>, HashSet<u32>> = HashMap::new();
        for stall in &stalls {
            if !stall.disturbance.is_some_and(|of| of.is_disturbed()) {
                passes_with.entry(stall.brick.clone()).or_default().insert(stall.pass);
            }
        }
        let most = (self.all.len() / RULE as usize).max(1);
        stalls.retain(|stall| passes_with.get(&stall.brick).is_none_or(|with| with.len() <= most));
        stalls.sort_by_key(|stall| (std::cmp::Reverse(stall.ns), stall.pass));
        stalls
    }
}

/// The mean of `n` passes, of which these took some time: the index of each, in order. With Student's interval of the means of
/// up to ten batches of consecutive ones: a pass is much as the one before it, so single ones would seem to say far more than
/// they do. (Batch means: A. M. Law, *Simulation Modeling and Analysis*, McGraw-Hill, section 9.5.3.)
fn mean(n: usize, times: impl Iterator<Item = (usize, u64)>) -> Estimate {
    const BATCHES: usize = 10;
    if n == 0 {
        return Estimate::default();
    }
    let batches = n.min(BATCHES);
    let begin = |batch: usize| batch * n / batches;
    let (mut sum, mut sums, mut batch) = (0.0_f64, [0.0_f64; BATCHES], 0);
    for (nth, ns) in times {
        while begin(batch + 1) <= nth {
            batch += 1;
        }
        sum += ns as f64;
        sums[batch] += ns as f64;
    }
    let mean = sum / n as f64;
    let interval_ns = (batches > 1).then(|| {
        let mean_of = |batch: usize| sums[batch] / (begin(batch + 1) - begin(batch)) as f64;
        let squares: f64 = (0..batches).map(|batch| (mean_of(batch) - mean).powi(2)).sum();
        let n = batches as f64;
        let half = student::quantile(0.05, n - 1.0) * (squares / (n - 1.0) / n).sqrt();
        [(mean - half).max(0.0), mean + half]
    });
    Estimate { ns: mean, interval_ns }
}

/// The median, with its interval.
fn middle(mut times: Vec<u64>) -> Estimate {
    times.sort_unstable();
    let n = times.len();
    if n == 0 {
        return Estimate::default();
    }
    let interval_ns = (n >= LEAST_SPANS).then(|| interval_of_median(&times).map(|ns| ns as f64));
    Estimate { ns: times[(n - 1) / 2] as f64, interval_ns }
}

/// The 95 % interval that order statistics give the median of sorted times, which needs no assumption about the
/// distribution. There is at least one.
pub(crate) fn interval_of_median(sorted: &[u64]) -> [u64; 2] {
    let n = sorted.len();
    let half = 0.98 * (n as f64).sqrt();
    let at = |index: f64| sorted[(index.max(0.0) as usize).min(n - 1)];
    [at((n as f64 / 2.0 - half).floor()), at((n as f64 / 2.0 + half).ceil())]
}

impl Typical {
    /// What the passes of a phase typically take. `None` if there was none.
    #[must_use]
    pub fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        let total = profile.phase(phase)?;
        if !has_all_spans(profile) {
            return Some(Self::of_sums(profile, phase));
        }
        let passes = Passes::of(profile, phase);
        let stalls = passes.stalls(profile, phase);
        let stalled: HashSet<u32> = stalls.iter().map(|stall| stall.pass).collect();
        let mut left_out = LeftOut::default();
        let mut kept = vec![true; passes.all.len()];
        for (pass, kept) in passes.all.iter().zip(&mut kept) {
            match disturber(pass) {
                Some(by) => *left_out.disturbed.entry(by).or_default() += 1,
                None if stalled.contains(&pass.serial) => left_out.stalled += 1,
                None => continue,
            }
            *kept = false;
            left_out.passes += 1;
            left_out.wall_ns = left_out.wall_ns.saturating_add(pass.wall_ns);
        }
        let n_kept = kept.iter().filter(|kept| **kept).count();
        let is_minority = 2 * n_kept < passes.all.len();
        let mut typical = Self {
            phase,
            basis: Basis::Passes,
            passes: n_kept as u64,
            left_out,
            unwatched: total.unwatched,
            wall: Estimate::default(),
            unattributed: Estimate::default(),
            bricks: Vec::new(),
            stalls,
            clean: None,
        };
        if typical.left_out.passes > 0 && (n_kept < LEAST_PASSES || is_minority) {
            typical.by_medians(profile, &passes);
            let clean = passes.all.iter().zip(&kept).filter(|(_, kept)| **kept);
            let sum = |of: fn(&Pass) -> u64| {
                clean.clone().map(|(pass, _)| of(pass)).fold(0, u64::saturating_add)
            };
            typical.clean = (n_kept > 0).then(|| Clean {
                passes: n_kept as u64,
                tokens: sum(|pass| pass.tokens),
                wall_ns: sum(|pass| pass.wall_ns),
            });
        } else {
            typical.by_passes(profile, &passes, &kept);
        }
        typical.bricks.sort_by(|a, b| b.time.ns.total_cmp(&a.time.ns));
        Some(typical)
    }

    fn by_passes(&mut self, profile: &Profile, passes: &Passes<'_>, kept: &[bool]) {
        let mut bricks: Vec<(u16, u8)> = passes.groups.iter().map(|of| (of.0, of.1)).collect();
        bricks.sort_unstable();
        bricks.dedup();
        let brick_of = |of: &Group| bricks.partition_point(|brick| *brick < (of.0, of.1));
        let of_groups: Vec<usize> = passes.groups.iter().map(brick_of).collect();
        // Only of the passes that have spans of a brick: a file may have many of both.
        let mut by_brick: Vec<Vec<(usize, u64)>> = vec![Vec::new(); bricks.len()];
        for of in &passes.spans {
            let ns = profile.spans[of.index].exclusive_ns;
            let times = &mut by_brick[of_groups[of.group]];
            match times.last_mut() {
                Some((last, sum)) if *last == of.pass => *sum = sum.saturating_add(ns),
                _ => times.push((of.pass, ns)),
            }
        }
        // The index of each pass among those that are kept.
        let mut n = 0;
        let place = |is_kept: &bool| {
            let place = is_kept.then_some(n);
            n += usize::from(*is_kept);
            place
        };
        let places: Vec<Option<usize>> = kept.iter().map(place).collect();
        let of_kept = |times: &[(usize, u64)]| {
            mean(n, times.iter().filter_map(|&(pass, ns)| Some((places[pass]?, ns))))
        };
        let each = |field: fn(&Pass) -> u64| -> Vec<(usize, u64)> {
            passes.all.iter().map(|pass| field(pass)).enumerate().collect()
        };
        self.wall = of_kept(&each(|pass| pass.wall_ns));
        self.unattributed = of_kept(&each(|pass| pass.unattributed_ns));
        self.bricks = bricks
            .iter()
            .zip(&by_brick)
            .filter_map(|(&(name, source), times)| brick(profile, name, source, of_kept(times)))
            .collect();
    }

    fn by_medians(&mut self, profile: &Profile, passes: &Passes<'_>) {
        self.basis = Basis::Spans;
        self.passes = passes.all.len() as u64;
        let n = passes.all.len().max(1) as f64;
        let mut by_brick: BTreeMap<(u16, u8), Estimate> = BTreeMap::new();
        let mut groups: Vec<(Group, &Vec<u64>)> =
            passes.groups.iter().copied().zip(&passes.times).collect();
        groups.sort_unstable();
        for ((name, source, ..), times) in groups {
            let in_a_pass = times.len() as f64 / n;
            let of_group = middle(times.clone());
            let sum = by_brick
                .entry((name, source))
                .or_insert(Estimate { ns: 0.0, interval_ns: Some([0.0; 2]) });
            *sum = sum.plus(of_group, in_a_pass);
        }
        self.unattributed = passes.between(profile).unwrap_or_else(|| {
            middle(passes.all.iter().map(|pass| pass.unattributed_ns).collect())
        });
        self.wall = by_brick.values().fold(self.unattributed, |sum, of| sum.plus(*of, 1.0));
        self.bricks = by_brick
            .into_iter()
            .filter_map(|((name, source), time)| brick(profile, name, source, time))
            .collect();
    }

    fn of_sums(profile: &Profile, phase: Phase) -> Self {
        let total = profile.phase(phase).copied();
        let passes = total.map_or(0, |total| total.passes);
        let each = |ns: u64| Estimate { ns: ns as f64 / passes.max(1) as f64, interval_ns: None };
        let bricks = profile.bricks(Some(phase)).into_iter().map(|brick| TypicalBrick {
            name: brick.stats.name.clone(),
            source: brick.source,
            time: each(brick.stats.exclusive_ns),
        });
        Self {
            phase,
            basis: Basis::Sums,
            passes,
            left_out: LeftOut::default(),
            unwatched: total.and_then(|total| total.unwatched),
            wall: each(total.map_or(0, |total| total.wall_ns)),
            unattributed: each(total.map_or(0, |total| total.unattributed_ns)),
            bricks: bricks.collect(),
            stalls: Vec::new(),
            clean: None,
        }
    }

    /// Those of all phases.
    #[must_use]
    pub fn all(profile: &Profile) -> Vec<Self> {
        let phases = Phase::SHOWN.into_iter();
        phases.filter_map(|phase| Self::of(profile, phase)).collect()
    }
}

impl Estimate {
    fn plus(self, other: Self, times: f64) -> Self {
        let ends = self.interval_ns.zip(other.interval_ns);
        Self {
            ns: self.ns + times * other.ns,
            interval_ns: ends.map(|([a, b], [c, d])| [a + times * c, b + times * d]),
        }
    }
}

fn brick(profile: &Profile, name: u16, source: u8, time: Estimate) -> Option<TypicalBrick> {
    let name = profile.names.get(usize::from(name))?.name.clone();
    let source = Source::ALL.into_iter().find(|of| *of as u8 == source)?;
    Some(TypicalBrick { name, source, time })
}

fn disturber(pass: &Pass) -> Option<Disturber> {
    pass.disturbance.and_then(|disturbance| disturbance.disturber())
}

/// Whether each pass and span was kept, of a run on this machine's CPU. What disturbs a device, nobody knows.
fn has_all_spans(profile: &Profile) -> bool {
    let dropped = &profile.dropped;
    profile.devices.is_empty()
        && !is_of_device(profile)
        && profile.imported.is_none()
        && dropped.spans == 0
        && dropped.passes == 0
        && !profile.spans.is_empty()
}
