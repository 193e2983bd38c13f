//! The limits that work is held against: levels of memory, and arithmetic.

use brickscope_profile::{
    BrickId, BrickStats, Ceilings, DataSums, Numbers, Phase, Profile, ReadingTime, Total,
};

use super::place::Moved;
use super::{MEMORY, SWINGS, ShownBy, largest_cache, pass_bytes};
use crate::passes::with_bricks;

/// A run that is faster than a limit was measured to be shows that the measurement was too low; a run that is more than this
/// many times as fast shows that its stated work is wrong.
const MOST_TOO_LOW: f64 = 2.5;

/// The same of a limit that others disturbed each time that it was measured.
const MOST_DISTURBED: f64 = 20.0;

/// A brick whose spans stream so many bytes shows how fast memory is: less may stay in a cache.
const STREAM: u64 = 64 << 10;

/// Spans that are shorter say little of caches and arithmetic: much of their time is that of the clock.
const SHOWING_NANOS: u64 = 1_000;

/// The limits of a machine.
#[derive(Debug, Clone)]
pub(super) struct Limits<'c> {
    /// The nearest first, and memory last.
    levels: Vec<Level<'c>>,
    /// The level that holds what a pass touches.
    far: usize,
    pass_bytes: u64,
    /// Multiplications and additions per second: of products.
    pub(super) peak: f64,
    /// Of floats, in a run whose products multiply bytes.
    peak_of_floats: f64,
    pub(super) is_of_bytes: bool,
    /// Those that only the run itself showed to be so high, by more than measurements may differ: a brick at such a limit is
    /// held against itself.
    unsure: Vec<String>,
    /// Those that others disturbed, see [`is_disturbed`].
    disturbed: Vec<String>,
    peak_name: &'static str,
    /// Whether they were stated, and nobody measured them.
    pub(super) is_stated: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Level<'c> {
    pub(super) name: &'c str,
    bytes: u64,
    /// What it reads.
    read: f64,
    /// The limit: what it reads, or what memory does if that is more.
    per_second: f64,
}

/// What a brick did, all spans together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) reused: Reused,
    spans: u64,
    pub(super) flops: f64,
    pub(super) is_of_floats: bool,
}

impl Work {
    pub(super) fn of(stats: &BrickStats, limits: &Limits<'_>) -> Self {
        // Only products of weights multiply bytes. Of a brick that isn't well known it isn't known, so it has the higher
        // peak.
        let is_no_product = BrickId::from_str(&stats.name).is_some_and(|brick| !is_product(brick));
        Self {
            reused: Reused::of(stats),
            spans: stats.count,
            flops: stats.total_flops as f64,
            is_of_floats: is_no_product && limits.is_of_bytes,
        }
    }
}

impl<'c> Limits<'c> {
    /// Those of the ceilings, or of what the run showed where that is higher.
    pub(super) fn of(ceilings: &'c Ceilings, shown: &[ShownBy], pass_bytes: u64) -> Self {
        let at_least = |of: &str, measured: f64| {
            let shown = shown.iter().find(|shown| shown.of == of);
            shown.map_or(measured, |shown| shown.per_second.max(measured))
        };
        let memory = at_least(MEMORY, ceilings.memory_limit());
        let is_of_bytes =
            ceilings.numbers == Some(Numbers::Int8) && Ceilings::is_rate(ceilings.flops_per_second);
        let peak = at_least(peak_name(ceilings), ceilings.peak_per_second());
        let peak_of_floats = match is_of_bytes {
            true => at_least(F32, ceilings.flops_per_second),
            false => peak,
        };
        let caches = ceilings.caches.iter().map(|cache| {
            let read = at_least(&cache.level, cache.read_bytes_per_second);
            Level { name: &cache.level, bytes: cache.bytes, read, per_second: read }
        });
        let limits = Self {
            levels: caches.collect(),
            far: 0,
            pass_bytes,
            peak,
            peak_of_floats,
            is_of_bytes,
            unsure: shown
                .iter()
                .filter(|of| of.per_second > SWINGS * of.measured_per_second)
                .map(|of| of.of.clone())
                .collect(),
            disturbed: [MEMORY, F32, "int8"]
                .into_iter()
                .chain(ceilings.caches.iter().map(|cache| &*cache.level))
                .filter(|of| is_disturbed(ceilings, of))
                .map(str::to_owned)
                .collect(),
            peak_name: peak_name(ceilings),
            is_stated: ceilings.is_stated(),
        };
        limits.with_memory(memory)
    }

    /// Each as low as it was around the run. A limit that the run raised was at least as high as that while it ran, and as
    /// low as it was measured beside it.
    pub(super) fn slow(&self, ceilings: &Ceilings) -> Self {
        let mut slow = self.clone();
        let lower = |of: &str, measured: f64, limit: f64| {
            let lowest = measured * ceilings.steadiness(of);
            if Ceilings::is_rate(lowest) { limit.min(lowest) } else { limit }
        };
        slow.peak = lower(peak_name(ceilings), ceilings.peak_per_second(), self.peak);
        slow.peak_of_floats = match self.is_of_bytes {
            true => lower(F32, ceilings.flops_per_second, self.peak_of_floats),
            false => slow.peak,
        };
        for level in &mut slow.levels {
            let mut caches = ceilings.caches.iter();
            if let Some(cache) = caches.find(|cache| cache.level == level.name) {
                level.read = lower(level.name, cache.read_bytes_per_second, level.read);
            }
        }
        let [lowest, _] = ceilings.memory_spread();
        let memory = self.memory();
        slow.with_memory(if Ceilings::is_rate(lowest) { lowest.min(memory) } else { memory })
    }

    /// With what memory gives all CPUs, if that is more than the run's threads can read.
    pub(super) fn machine(&self, ceilings: &Ceilings) -> Option<Self> {
        let memory = ceilings.machine_read_bytes_per_second?;
        (Ceilings::is_rate(memory) && memory > self.memory())
            .then(|| self.clone().with_memory(memory))
    }

    /// Memory of this bandwidth, behind the caches. A cache that was measured to be slower stays a level, and has memory's
    /// limit: where both read about as fast, it would come and go with each measurement, and bytes lie where they fit.
    fn with_memory(mut self, memory: f64) -> Self {
        self.levels.retain(|level| level.name != MEMORY && Ceilings::is_rate(level.read));
        for level in &mut self.levels {
            level.per_second = level.read.max(memory);
        }
        self.levels.sort_by_key(|level| level.bytes);
        let bytes = u64::MAX;
        self.levels.push(Level { name: MEMORY, bytes, read: memory, per_second: memory });
        self.far = self.holding(self.pass_bytes);
        self
    }

    pub(super) fn memory(&self) -> f64 {
        self.levels.last().map_or(f64::NAN, |level| level.per_second)
    }

    /// Whether a limit was measured to be about as high as it is stated.
    pub(super) fn is_sure(&self, name: &str) -> bool {
        !self.unsure.iter().any(|of| of == name)
    }

    /// Whether others disturbed it each time that it was measured around the run.
    pub(super) fn is_disturbed(&self, name: &str) -> bool {
        let name = if name == PRODUCTS { self.peak_name } else { name };
        self.disturbed.iter().any(|of| of == name)
    }

    /// The name of the peak that work is held to.
    pub(super) fn peak_of(&self, work: &Work) -> &'static str {
        if work.is_of_floats { F32 } else { self.peak_name }
    }

    /// Those of [`stated`](Self::stated) that others disturbed.
    pub(super) fn disturbed(&self) -> Vec<String> {
        let names = self.levels.iter().map(|level| level.name).chain([F32, PRODUCTS]);
        names.filter(|name| self.is_disturbed(name)).map(str::to_owned).collect()
    }

    /// Those of [`stated`](Self::stated) that are sure, by their names.
    pub(super) fn sure(&self) -> Vec<String> {
        let names = self.levels.iter().map(|level| level.name);
        let products = self.is_sure(self.peak_name).then_some(PRODUCTS);
        let names = names.chain([F32]).filter(|name| self.is_sure(name)).chain(products);
        names.map(str::to_owned).collect()
    }

    /// The level that weights and the KV cache come from.
    pub(super) fn pass_level(&self) -> &'c str {
        self.levels[self.far].name
    }

    /// Whether it is a cache that reads about as fast as memory, or more slowly.
    pub(super) fn is_like_memory(&self) -> bool {
        let level = self.levels[self.far];
        level.name != MEMORY && level.read <= SWINGS * self.memory()
    }

    /// Each limit by its name: as low as it was, and as it is stated.
    pub(super) fn stated(&self, slow: &Self) -> Vec<(String, [f64; 2])> {
        let mut all = vec![
            (F32.to_owned(), [slow.peak_of_floats, self.peak_of_floats]),
            (PRODUCTS.to_owned(), [slow.peak, self.peak]),
            (MEMORY.to_owned(), [slow.memory(), self.memory()]),
        ];
        let caches = self.levels.iter().filter(|level| level.name != MEMORY);
        all.extend(caches.map(|level| {
            let lowest = slow.levels.iter().find(|of| of.name == level.name);
            let lowest = lowest.map_or(slow.memory(), |of| of.per_second);
            (level.name.to_owned(), [lowest.min(level.per_second), level.per_second])
        }));
        all
    }

    /// The index of the smallest that holds so many bytes.
    fn holding(&self, bytes: u64) -> usize {
        let last = self.levels.len() - 1;
        self.levels[..last].iter().position(|level| level.bytes >= bytes).unwrap_or(last)
    }

    /// The least time by each level, in seconds: of bytes from there or from farther away.
    pub(super) fn by_level(
        &self,
        work: &Work,
    ) -> impl DoubleEndedIterator<Item = (&Level<'c>, (Moved, u64), f64)> {
        let Reused { once_a_pass, at_once, .. } = work.reused;
        let (far, near) = (self.far, self.holding(at_once / work.spans.max(1)));
        self.levels.iter().enumerate().map(move |(i, level)| {
            let (moved, bytes) = match (far >= i, near >= i) {
                (true, true) => (Moved::All, once_a_pass.saturating_add(at_once)),
                (true, false) => (Moved::OnceAPass, once_a_pass),
                (false, true) => (Moved::Activations, at_once),
                (false, false) => (Moved::All, 0),
            };
            (level, (moved, bytes), bytes as f64 / level.per_second)
        })
    }

    /// The level that limits work at best, what comes from there, and the least time by that in seconds. A cache that others
    /// disturbed while it was measured, so that it seems to read no faster than what lies behind it, limits nothing that
    /// comes from there: its name would say that a whole model lies in L1.
    pub(super) fn by_bandwidth(&self, work: &Work) -> Option<(&Level<'c>, (Moved, u64), f64)> {
        let all: Vec<_> = self.by_level(work).collect();
        let (nearest, _, most) = *all.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        let is_as_fast = |level: &Level<'_>| level.per_second >= nearest.per_second;
        // Its own bytes and time, so that a share of its limit is of what came from there.
        all.into_iter().rev().find(|(level, _, by)| is_as_fast(level) && *by >= most / 2.0)
    }

    /// The least time by arithmetic, in seconds.
    pub(super) fn by_peak(&self, work: &Work) -> f64 {
        work.flops / if work.is_of_floats { self.peak_of_floats } else { self.peak }
    }

    /// The least time by all limits, in seconds.
    pub(super) fn least_seconds(&self, work: &Work) -> f64 {
        let by_bandwidth = self.by_bandwidth(work).map_or(0.0, |(.., seconds)| seconds);
        self.by_peak(work).max(by_bandwidth)
    }
}

/// The name of the peak of floats.
pub(super) const F32: &str = "f32";
/// The name of the peak of a run's products among its limits.
pub(super) const PRODUCTS: &str = "products";

/// The name of a run's peak.
fn peak_name(ceilings: &Ceilings) -> &'static str {
    match ceilings.peak_field() {
        "int8_ops_per_second" => "int8",
        _ => F32,
    }
}

/// The ceilings as they were when the machine was first measured, and which limits that is known of. By these a brick's
/// bound has its name, so that it isn't another one in the next run.
pub(super) fn first(ceilings: &Ceilings) -> (Ceilings, Vec<String>) {
    let (mut first, mut known) = (ceilings.clone(), Vec::new());
    for spread in first.spreads.drain(..) {
        let rate = match &*spread.of {
            MEMORY => &mut first.read_bytes_per_second,
            F32 => &mut first.flops_per_second,
            "int8" => {
                let Some(peak) = &mut first.int8_ops_per_second else { continue };
                peak
            }
            level => {
                let mut caches = first.caches.iter_mut();
                let Some(cache) = caches.find(|cache| cache.level == level) else { continue };
                &mut cache.read_bytes_per_second
            }
        };
        if Ceilings::is_rate(spread.first_per_second) {
            *rate = spread.first_per_second;
            known.push(spread.of);
        }
    }
    let mut readings = first.readings.drain(..).map(|reading| reading.read_bytes_per_second);
    let memory = readings.find(|&rate| Ceilings::is_rate(rate) && !ceilings.has_own_memory());
    drop(readings);
    if let Some(memory) = memory {
        first.read_bytes_per_second = memory;
        known.push(MEMORY.to_owned());
    }
    (first, known)
}

/// The bytes of a brick, by when they are used again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reused {
    /// In the next pass.
    pub(super) once_a_pass: u64,
    /// By the next operation.
    at_once: u64,
    /// Of `once_a_pass`, bytes whose use is unknown: nobody stated it, and the name does not say.
    pub(super) unknown: u64,
}

impl Reused {
    /// As stated. Where nothing was stated, by what the brick is known for; where it was for some spans only, the
    /// bytes of the others count as activations.
    pub(super) fn of(stats: &BrickStats) -> Self {
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

/// Whether others disturbed a limit each time that it was measured around the run: then they likely disturbed the run, too.
pub(super) fn is_disturbed(ceilings: &Ceilings, of: &str) -> bool {
    if let Some(spread) = ceilings.spreads.iter().find(|spread| spread.of == of) {
        return spread.around.is_empty();
    }
    let around = || ceilings.readings.iter().filter(|of| of.when != ReadingTime::Kept);
    of == MEMORY && around().count() > 0 && around().all(|of| of.disturbed)
}

/// What the run was faster at than it was measured: memory, by this run and by others on the same memory, and caches and
/// arithmetic by this run.
pub(super) fn shown_by(profile: &Profile, others: &[&Profile]) -> Vec<ShownBy> {
    let Some(ceilings) = &profile.ceilings else { return Vec::new() };
    let mut shown: Vec<ShownBy> = Vec::new();
    let mut show = |next: ShownBy| {
        let is_disturbed = is_disturbed(ceilings, &next.of);
        let most = if is_disturbed { MOST_DISTURBED } else { MOST_TOO_LOW };
        let is_too_low = (1.0..=most).contains(&(next.per_second / next.measured_per_second));
        match shown.iter_mut().find(|shown| shown.of == next.of) {
            _ if !is_too_low => {}
            Some(known) if known.per_second < next.per_second => *known = next,
            Some(_) => {}
            None => shown.push(next),
        }
    };
    for of in [profile].into_iter().chain(others.iter().copied()) {
        memory(of, ceilings.memory_limit(), &mut show);
    }
    let limits = Limits::of(ceilings, &[], 0);
    for phase in Phase::ALL {
        let bricks = profile.bricks(Some(phase));
        let passes = profile.phase(phase).map_or(0, |total| with_bricks(profile, total).passes);
        let limits = Limits { pass_bytes: pass_bytes(&bricks, passes), ..limits.clone() };
        let limits = limits.clone().with_memory(limits.memory());
        for brick in bricks {
            nearer(brick, phase, &limits, ceilings, &mut show);
        }
    }
    shown
}

/// A brick shows how fast caches and arithmetic are.
fn nearer(
    brick: &Total,
    phase: Phase,
    limits: &Limits<'_>,
    ceilings: &Ceilings,
    show: &mut impl FnMut(ShownBy),
) {
    let stats = &brick.stats;
    if stats.total_ns / stats.count.max(1) < SHOWING_NANOS {
        return;
    }
    let work = Work::of(stats, limits);
    let seconds = stats.total_ns as f64 / 1e9;
    let shown = |of: &str, per_second: f64, moved: Moved, measured: f64| ShownBy {
        of: of.to_owned(),
        name: stats.name.clone(),
        phase,
        per_second,
        moved,
        measured_per_second: measured,
        highest_measured_per_second: measured,
    };
    let (peak, measured) = match work.is_of_floats {
        true => (F32, limits.peak_of_floats),
        false => (peak_name(ceilings), limits.peak),
    };
    show(shown(peak, work.flops / seconds, Moved::All, measured));
    // Of bytes that may be anything, the rate shows nothing.
    if work.reused.unknown > 0 {
        return;
    }
    let limiting = limits.by_bandwidth(&work).filter(|(level, ..)| level.name != MEMORY);
    if let Some((level, (moved, bytes), _)) = limiting {
        show(shown(level.name, bytes as f64 / seconds, moved, level.per_second));
    }
}

/// Bricks show how fast memory is in all phases whose passes touch more than any cache holds. Below the half of a cache it
/// would hold several; above, a part.
fn memory(profile: &Profile, measured: f64, show: &mut impl FnMut(ShownBy)) {
    let largest = largest_cache(profile);
    let readings = profile.ceilings.iter().flat_map(|ceilings| &ceilings.readings);
    let rates = readings
        .map(|reading| reading.read_bytes_per_second)
        .filter(|rate| Ceilings::is_rate(*rate));
    let highest = rates.fold(measured, f64::max);
    for phase in Phase::ALL {
        let bricks = profile.bricks(Some(phase));
        let passes = profile.phase(phase).map_or(0, |total| with_bricks(profile, total).passes);
        if pass_bytes(&bricks, passes) <= largest.saturating_mul(2) {
            continue;
        }
        for brick in bricks {
            let (stats, reused) = (&brick.stats, Reused::of(&brick.stats));
            // Of bytes that may be anything, or that a cache may hold, the rate shows nothing.
            let is_shown = reused.unknown == 0
                && reused.once_a_pass / stats.count.max(1) >= STREAM
                && stats.total_ns > 0;
            if is_shown {
                show(ShownBy {
                    of: MEMORY.to_owned(),
                    name: stats.name.clone(),
                    phase,
                    per_second: reused.once_a_pass as f64 * 1e9 / stats.total_ns as f64,
                    moved: Moved::OnceAPass,
                    measured_per_second: measured,
                    highest_measured_per_second: highest,
                });
            }
        }
    }
}
