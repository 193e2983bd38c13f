//! Turns the logs of threads into the tables of a [`Profile`]. Runs when a profile or snapshot is taken, never on the
//! hot path.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::layers::LayerTables;
use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::{
    BrickCategory, BrickStats, Data, Dependency, Dropped, Latency, Name, NameKind, Pass, Phase,
    PhaseTotal, Point, Preparation, Profile, Source, Span, Total, Work,
};

use crate::fold::{Fold, PassRecord, PassSums, Slot};
use crate::recorder::{Lane, Recorder};
use crate::row::{Event, Mark, NONE, NameIdx, Record};

/// Fills the tables of `profile`, which has the names already. `with_others`: there are sums of names
/// that did not fit the table of names.
pub(crate) fn fill(profile: &mut Profile, recorder: &Recorder, with_others: bool) {
    let names = std::mem::take(&mut profile.names);
    let mut tables = Tables::new(&names, with_others);
    let preparations = &mut profile.overhead.preparations;
    recorder.collect(|mut log| {
        preparations.extend(log.prepared().map(preparation));
        let lanes = log.lanes();
        tables.add(Part {
            fold: log.fold(),
            passes: &log.fold().passes,
            lanes,
            dropped: log.dropped(),
            begun: log.begun(),
            in_pass: log.in_pass(),
        });
    });
    preparations.sort_by_key(|of| of.start_ns);
    profile.dropped.homeless = recorder.homeless();
    let points = tables.finish(profile);
    profile.names = names;
    profile.dependencies = points.dependencies();
    profile.dropped.dependencies =
        u64::saturating_sub(profile.dropped.dependencies, profile.dependencies.len() as u64);
    profile.latency = Latency::of(&profile.passes, &profile.spans, &profile.names);
}

/// Fills the tables of `profile` except for single spans, dependencies, and all but the newest pass of each thread.
/// Takes no longer for a long run than for a short one. `with_details` adds histograms and percentiles to
/// `totals`, bricks by layer, and kernels by brick.
pub(crate) fn fill_with_sums(
    profile: &mut Profile,
    recorder: &Recorder,
    with_others: bool,
    with_details: bool,
) {
    let names = std::mem::take(&mut profile.names);
    let mut tables = Tables::new(&names, with_others);
    tables.totals.with_histograms = with_details;
    let mut layers = LayerTables::default();
    let mut unplaced = 0;
    let (mut prompts, mut tokens) = (BrickStats::new(""), BrickStats::new(""));
    recorder.collect(|log| {
        let fold = log.fold();
        tables.add(Part {
            fold,
            passes: &fold.newest(),
            lanes: vec![log.lane()],
            dropped: log.dropped(),
            begun: log.begun(),
            in_pass: log.in_pass(),
        });
        if let Some(sums) = &fold.layers {
            unplaced += sums.forgotten;
            if with_details {
                sums.add_to(&mut layers);
            }
        }
        fold.prompts().add_to(&mut prompts);
        fold.tokens.add_to(&mut tokens);
    });
    profile.dropped.homeless = recorder.homeless();
    tables.finish(profile);
    // Hand-offs are not matched here.
    profile.dropped.dependencies = 0;
    profile.dropped.unplaced_kernels = unplaced;
    (profile.layers, profile.brick_kernels) = layers.finish(&names);
    profile.names = names;
    profile.latency = Latency::of_sums(&prompts, &tokens);
}

/// Adds the passes that ended after `since`, and counts those that are missing. Returns up to when no other pass ran, by the
/// profiler's clock: where one is open, that is when the one before it on its thread had ended.
pub(crate) fn passes_since(profile: &mut Profile, recorder: &Recorder, since: u64) -> u64 {
    let end = |pass: &PassRecord| pass.start.saturating_add(pass.wall);
    let mut until = u64::MAX;
    // Before the passes are read: one that ends in between is among them.
    recorder.collect(|log| {
        if log.in_pass() {
            let newest = log.fold().newest().pop().or_else(|| log.fold().passes.last().copied());
            until = until.min(newest.as_ref().map_or(0, end));
        }
    });
    recorder.collect(|log| {
        let fold = log.fold();
        let lately = fold.passes.iter().filter(|pass| end(pass) > since);
        profile.passes.extend(lately.map(|pass| listed(pass, 0)));
        profile.dropped.passes += fold.oddities.passes_full;
        profile.dropped.abandoned_passes += fold.oddities.abandoned_passes;
    });
    profile.passes.sort_by_key(|pass| (pass.start_ns, pass.serial));
    until
}

fn preparation([start_ns, end]: [u64; 2]) -> Preparation {
    Preparation { start_ns, duration_ns: end.saturating_sub(start_ns) }
}

/// A pass as a profile lists it.
fn listed(pass: &PassRecord, lane: u32) -> Pass {
    Pass {
        serial: pass.serial,
        phase: pass.phase,
        lane,
        tokens: pass.tokens,
        position: pass.position,
        start_ns: pass.start,
        wall_ns: pass.wall,
        attributed_ns: pass.covered,
        unattributed_ns: pass.wall.saturating_sub(pass.covered),
        disturbance: pass.disturbance,
        is_left_out: false,
    }
}

/// The content of one log.
pub(crate) struct Part<'l> {
    pub(crate) fold: &'l Fold,
    /// The passes to list.
    pub(crate) passes: &'l [PassRecord],
    /// The records that were kept, by thread.
    pub(crate) lanes: Vec<Lane>,
    /// Spans that did not fit the trace.
    pub(crate) dropped: u64,
    /// Spans that began.
    pub(crate) begun: u64,
    /// Whether a pass is open.
    pub(crate) in_pass: bool,
}

/// The tables of a profile while logs are added to them.
pub(crate) struct Tables<'n> {
    totals: Totals<'n>,
    lanes: Vec<Lane>,
    passes: Vec<PassRecord>,
    /// Passes whose spans are not wanted.
    discarded: HashSet<u32>,
    /// With whether anybody looked, and of how many passes it is not known whether they were disturbed.
    phases: [(PassSums, BrickStats, (bool, u64)); Phase::ALL.len()],
    dropped: Dropped,
    begun: u64,
    ended: u64,
}

impl<'n> Tables<'n> {
    pub(crate) fn new(names: &'n [Name], with_others: bool) -> Self {
        Self {
            totals: Totals::new(names, with_others),
            lanes: Vec::new(),
            passes: Vec::new(),
            discarded: HashSet::new(),
            phases: Phase::ALL.map(|_| (PassSums::default(), BrickStats::new(""), (false, 0))),
            dropped: Dropped::default(),
            begun: 0,
            ended: 0,
        }
    }

    pub(crate) fn add(&mut self, part: Part<'_>) {
        let fold = part.fold;
        self.totals.add(fold);
        self.passes.extend(part.passes);
        self.discarded.extend(&fold.discarded);
        for ((all, walls, unwatched), sums) in self.phases.iter_mut().zip(&fold.phases) {
            all.tokens += sums.tokens;
            all.disturbed += sums.disturbed;
            // In a log that nobody looked at, it is not known of any, whoever looked at others.
            unwatched.0 |= sums.unwatched().is_some();
            unwatched.1 += sums.unwatched().unwrap_or_else(|| sums.unseen());
            sums.walls.add_to(walls);
        }
        add_oddities(&mut self.dropped, &part);
        self.begun += part.begun;
        self.ended += fold.oddities.ended;
        self.lanes.extend(part.lanes);
    }

    /// Moves the tables into `profile`. Dependencies and latency are left to the caller.
    pub(crate) fn finish(self, profile: &mut Profile) -> Points {
        let Self { totals, mut lanes, passes, discarded, phases, dropped, begun, ended } = self;
        profile.dropped = Dropped {
            homeless: profile.dropped.homeless,
            late: profile.dropped.late,
            names: profile.dropped.names,
            // Summed over all logs first, since a brick may begin on one thread and end on another.
            unfinished: u64::saturating_sub(begun, ended),
            disturbed_passes: phases.iter().map(|(sums, ..)| sums.disturbed).sum(),
            ..dropped
        };
        profile.overhead.spans = ended;
        profile.totals = totals.finish();
        profile.phases = Phase::ALL
            .into_iter()
            .zip(phases)
            .filter(|(_, (_, walls, _))| walls.count > 0)
            .map(|(phase, (sums, walls, (was_looked, unwatched)))| PhaseTotal {
                phase,
                passes: walls.count,
                disturbed: sums.disturbed,
                unwatched: was_looked.then_some(unwatched),
                tokens: sums.tokens,
                wall_ns: walls.total_ns,
                attributed_ns: walls.exclusive_ns,
                unattributed_ns: walls.total_ns.saturating_sub(walls.exclusive_ns),
            })
            .collect();

        lanes.sort_by_key(|lane| lane.serial);
        let numbers: HashMap<u32, u32> =
            lanes.iter().zip(0..).map(|(lane, number)| (lane.serial, number)).collect();
        let lane = |pass: &PassRecord| numbers.get(&pass.log).copied().unwrap_or_default();
        profile.passes = passes.iter().map(|pass| listed(pass, lane(pass))).collect();
        profile.passes.sort_by_key(|pass| (pass.start_ns, pass.serial));
        let mut points = Points::default();
        for (lane, number) in lanes.into_iter().zip(0..) {
            let crate::recorder::Owner { name, tid } = lane.thread;
            profile.lanes.push(brickscope_profile::span::Lane { name, tid });
            let mut records = lane.records;
            records.retain(|record| !record.is_span() || !discarded.contains(&record.pass));
            add_spans(&records, number, &mut profile.spans, |event, point| match event {
                Event::HandOff(mark) => drop(points.handed_off.insert(mark.number, point)),
                Event::TakeOver(mark) => points.taken_over.push((mark.number, point)),
                _ => {}
            });
        }
        points
    }
}

/// The points where work was handed off and taken over, by the numbers of the hand-offs.
#[derive(Default)]
pub(crate) struct Points {
    handed_off: HashMap<u64, Point>,
    taken_over: Vec<(u64, Point)>,
}

impl Points {
    /// Adds the points of another set of lanes, whose first lane gets the number `lane`.
    pub(crate) fn extend(&mut self, other: Self, lane: u32) {
        let moved = |point: Point| Point { lane: point.lane + lane, ..point };
        self.handed_off.extend(other.handed_off.into_iter().map(|(n, point)| (n, moved(point))));
        self.taken_over.extend(other.taken_over.into_iter().map(|(n, point)| (n, moved(point))));
    }

    /// The hand-offs of which both sides are known.
    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let found = self.taken_over.iter().filter_map(|&(number, to)| {
            let &from = self.handed_off.get(&number)?;
            Some(Dependency { from, to })
        });
        let mut dependencies: Vec<Dependency> = found.collect();
        dependencies.sort_by_key(|dependency| {
            (dependency.to.at_ns, dependency.to.lane, dependency.from.at_ns, dependency.from.lane)
        });
        dependencies
    }
}

fn add_oddities(dropped: &mut Dropped, part: &Part<'_>) {
    let odd = part.fold.oddities;
    dropped.spans += part.dropped;
    dropped.passes += odd.passes_full;
    dropped.moved += odd.moved;
    dropped.straddling += odd.straddling;
    dropped.overlapping += odd.overlapping;
    // All of them; those of which both sides are known are subtracted later.
    dropped.dependencies += odd.take_overs;
    dropped.nested_passes += odd.nested_passes;
    dropped.abandoned_passes += odd.abandoned_passes;
    dropped.open_passes += u64::from(part.in_pass);
}

/// The sums by name and phase.
struct Totals<'n> {
    /// By number; the two for names that did not fit the table come last.
    names: &'n [Name],
    with_others: bool,
    with_histograms: bool,
    /// In the order of the table: by phase, then by source, then by name.
    rows: BTreeMap<(u8, u8, usize), Total>,
}

impl<'n> Totals<'n> {
    fn new(names: &'n [Name], with_others: bool) -> Self {
        Self { names, with_others, with_histograms: true, rows: BTreeMap::new() }
    }

    fn add(&mut self, fold: &Fold) {
        for (index, source, slot, sums) in fold.all_sums().filter(|(.., sums)| sums.count > 0) {
            let (rank, phase) = match slot {
                Slot::Prefill => (0, Some(Phase::Prefill)),
                Slot::Decode => (1, Some(Phase::Decode)),
                Slot::Encode => (2, Some(Phase::Encode)),
                Slot::Training => (3, Some(Phase::Training)),
                Slot::Outside => (4, None),
                Slot::Open => continue,
            };
            let Some(place) = self.place_of(index) else { continue };
            let total = match self.rows.entry((rank, source as u8, place)) {
                Entry::Occupied(row) => row.into_mut(),
                Entry::Vacant(row) => {
                    row.insert(new_total(self.names.get(place), index, phase, source))
                }
            };
            match self.with_histograms {
                true => sums.add_to(&mut total.stats),
                false => sums.add_without_histogram(&mut total.stats),
            }
            if let Some(counters) = sums.counters() {
                total.counters.get_or_insert_default().merge(counters);
            }
        }
    }

    /// The position of a name in the table; `None` for a name that was added after the table was read.
    fn place_of(&self, index: NameIdx) -> Option<usize> {
        let n = self.names.len();
        match index {
            _ if usize::from(index) < n => Some(usize::from(index)),
            OTHER_BRICK if self.with_others => Some(n),
            OTHER_KERNEL if self.with_others => Some(n + 1),
            _ => None,
        }
    }

    fn finish(self) -> Vec<Total> {
        let finished = self.rows.into_values().map(|mut total| {
            total.std_dev_ns = total.stats.std_dev_ns();
            total.percentiles = total.stats.percentiles();
            total
        });
        finished.collect()
    }
}

/// Sums without any span yet; without a name, those of the names that did not fit the table.
fn new_total(name: Option<&Name>, index: NameIdx, phase: Option<Phase>, source: Source) -> Total {
    let (text, kind) = match name {
        Some(name) => (name.name.as_str(), name.kind),
        None if index == OTHER_BRICK => ("(other)", NameKind::Brick),
        None => ("(other)", NameKind::Kernel),
    };
    let stats = BrickStats::new(text);
    Total {
        phase,
        kind,
        category: match name {
            Some(name) => name.brick_category(),
            None => (kind == NameKind::Brick).then(BrickCategory::default),
        },
        source,
        host: name.and_then(|name| name.host.clone()),
        device: name.and_then(|name| name.device.clone()),
        percentiles: stats.percentiles(),
        stats,
        std_dev_ns: None,
        counters: None,
    }
}

/// Adds a thread's spans in the order in which they began, each with the span around it. Calls `point` for
/// each mark among them.
fn add_spans(
    records: &[Record],
    lane: u32,
    spans: &mut Vec<Span>,
    mut point: impl FnMut(&Event, Point),
) {
    let wanted =
        records.iter().enumerate().filter(|(_, record)| record.is_span() || record.is_mark());
    let mut records: Vec<_> = wanted.collect();
    // A mark has the same order as the span that begins next, and comes before it. Of two such marks, the
    // one that was logged first comes first.
    records.sort_by_key(|&(logged, record)| (record.order, record.is_span(), logged));
    // The spans that are open at this point: their indices in the log and in `spans`. A span contains
    // those that began after it and ended (so were logged) before it.
    let mut open: Vec<(usize, u32)> = Vec::new();
    // Marks, with their place in the log.
    let mut marks: Vec<(usize, &Event, Point)> = Vec::new();
    for (logged, record) in records {
        while open.last().is_some_and(|&(outer, _)| outer < logged) {
            open.pop();
        }
        let index = spans.len() as u32;
        let inside = open.last().map(|&(_, index)| index);
        match &record.event {
            &Event::HandOff(Mark { at, .. }) | &Event::TakeOver(Mark { at, .. }) => {
                marks.push((logged, &record.event, Point { lane, at_ns: at, nth: 0, inside }));
            }
            Event::Span(span) => {
                spans.push(Span {
                    name: (span.name != NONE).then_some(span.name),
                    source: span.source,
                    lane,
                    pass: (record.pass != 0).then_some(record.pass),
                    layer: (span.layer != NONE).then_some(span.layer),
                    parent: inside,
                    start_ns: span.start,
                    duration_ns: span.duration,
                    exclusive_ns: span.exclusive,
                    work: Work { data: Data::Unstated, ..span.work },
                });
                open.push((logged, index));
            }
            _ => {}
        }
    }
    marks.sort_by_key(|&(logged, ..)| logged);
    for (nth, (_, event, at)) in (0..).zip(marks) {
        point(event, Point { nth, ..at });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io;

    use brickscope_profile::{BrickId, ClockInfo, CounterReading, Disturbance, Work};

    use super::*;
    use crate::clock::MockClock;
    use crate::machine::{LoadReading, ReadCounters};
    use crate::recorder::Looked;

    fn recorder() -> (Recorder, MockClock) {
        let hand = MockClock::default();
        let recorder = Recorder::new(hand.clock(), 100);
        recorder.set_active(true);
        (recorder, hand)
    }

    fn collected(recorder: &Recorder) -> Profile {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.names = BrickId::ALL
            .iter()
            .map(|brick| Name {
                name: brick.name().to_owned(),
                kind: NameKind::Brick,
                category: None,
                host: None,
                device: None,
                transfer: None,
            })
            .collect();
        fill(&mut profile, recorder, false);
        profile.check().expect("it adds up");
        profile
    }

    fn brick(recorder: &Recorder, hand: &MockClock, nanos: u64) {
        let open = recorder.begin_brick(BrickId::LmHead as NameIdx);
        hand.advance(nanos);
        recorder.end_brick(open, Work::elements(1));
    }

    #[test]
    fn a_look_is_of_all_passes_since_the_one_before_and_what_it_finds_can_be_left_out() {
        let (recorder, hand) = recorder();
        let quiet = Disturbance { longest_wait_ns: Some(2), ..Disturbance::default() };
        let busy = Disturbance { longest_wait_ns: Some(40), ..Disturbance::default() };
        let passes =
            [(100, None), (140, Some(quiet)), (900, None), (1_000, Some(busy)), (120, None)];
        let looked = |look: Option<_>| look.map_or(Looked::No, Looked::Since);
        for (nanos, look) in passes {
            let pass =
                recorder.begin_pass(Phase::Decode, |_: &mut _| Looked::No).expect("none is open");
            brick(&recorder, &hand, nanos);
            recorder.end_pass(pass, Phase::Decode, 1, 0, |_: &mut _| looked(look));
        }
        let profile = collected(&recorder);
        let [phase] = profile.phases[..] else { panic!("{:?}", profile.phases) };
        assert_eq!((phase.passes, phase.disturbed), (5, 2));
        assert_eq!(profile.dropped.disturbed_passes, 2);
        let covered: Vec<_> = profile
            .passes
            .iter()
            .map(|pass| pass.disturbance.map(|d| (d.passes, d.wall_ns, d.is_disturbed())))
            .collect();
        let (first, second) = (Some((2, 240, false)), Some((2, 1_900, true)));
        assert_eq!(covered, [first, first, second, second, None]);

        let rest = profile.without_disturbed().expect("all was kept");
        rest.check().expect("it adds up");
        let [phase] = rest.phases[..] else { panic!("{:?}", rest.phases) };
        assert_eq!((phase.passes, phase.wall_ns, phase.tokens), (3, 360, 3));
        let stats = &rest.bricks(Some(Phase::Decode))[0].stats;
        assert_eq!((stats.count, stats.total_ns, stats.max_ns), (3, 360, 140));
        assert_eq!(rest.latency.per_token.max_ns, Some(140));
        assert_eq!((rest.dropped.disturbed_passes, rest.dropped.left_out_passes), (0, 2));
        assert_eq!(rest.typical_pass(Phase::Decode).map(|pass| pass.wall_ns), Some(120));
        let json = Profile::from_json(&rest.to_json(), "x".as_ref()).expect("it was written");
        assert_eq!(json, rest);
    }

    #[test]
    fn what_nobody_looked_at_is_not_known_and_takes_nothing_from_later_looks() {
        let busy = Disturbance { longest_wait_ns: Some(40), ..Disturbance::default() };
        let (recorder, hand) = recorder();
        // The thread ends before the load is read; the next one may get its number.
        let pass = |before: Looked, after: Looked| {
            let pass =
                recorder.begin_pass(Phase::Decode, |_: &mut _| before).expect("none is open");
            brick(&recorder, &hand, 100);
            recorder.end_pass(pass, Phase::Decode, 1, 0, |_: &mut _| after);
        };
        std::thread::scope(|scope| scope.spawn(|| pass(Looked::No, Looked::No)).join())
            .expect("no panic");
        std::thread::scope(|scope| scope.spawn(|| pass(Looked::No, Looked::Since(busy))).join())
            .expect("no panic");
        // After a pause, readings begin anew, too.
        pass(Looked::No, Looked::No);
        pass(Looked::Anew, Looked::Since(busy));
        let profile = collected(&recorder);
        let covered: Vec<_> =
            profile.passes.iter().map(|pass| pass.disturbance.map(|d| d.passes)).collect();
        assert_eq!(covered, [None, Some(1), None, Some(1)]);
        let [phase] = profile.phases[..] else { panic!("{:?}", profile.phases) };
        assert_eq!((phase.disturbed, phase.unwatched), (2, Some(2)));
    }

    #[test]
    fn a_look_after_a_pause_tells_of_the_passes_before_it_only_that_nothing_disturbed_them() {
        for (wait_ns, disturbance, unwatched) in [(1, true, 0), (2, false, 2)] {
            let (recorder, hand) = recorder();
            let waited = Disturbance { longest_wait_ns: Some(wait_ns), ..Disturbance::default() };
            let pass = |before: Looked| {
                let pass =
                    recorder.begin_pass(Phase::Decode, |_: &mut _| before).expect("none is open");
                brick(&recorder, &hand, 50);
                recorder.end_pass(pass, Phase::Decode, 1, 0, |_: &mut _| Looked::No);
            };
            pass(Looked::No);
            pass(Looked::No);
            hand.advance(1_000_000);
            pass(Looked::AtMost(waited));
            let profile = collected(&recorder);
            let known: Vec<_> =
                profile.passes.iter().map(|pass| pass.disturbance.is_some()).collect();
            assert_eq!(known, [disturbance, disturbance, false]);
            let [phase] = profile.phases[..] else { panic!("{:?}", profile.phases) };
            // The last one has not been looked at yet.
            assert_eq!((phase.disturbed, phase.unwatched), (0, Some(unwatched + 1)));
        }
    }

    #[test]
    fn the_last_look_blames_no_pass_for_the_pause_before_it() {
        for (pause_ns, disturbed, unwatched) in [(1_000, 1, 0), (1_000_000, 0, 1)] {
            let (recorder, hand) = recorder();
            let begins = |since: &mut Option<LoadReading>| {
                *since = Some(LoadReading::default());
                Looked::Anew
            };
            let pass = recorder.begin_pass(Phase::Decode, begins).expect("none is open");
            brick(&recorder, &hand, 100);
            // A look is due, and tells nothing yet.
            recorder.end_pass(pass, Phase::Decode, 1, 0, |_: &mut _| Looked::No);
            hand.advance(pause_ns);
            let busy = Disturbance { longest_wait_ns: Some(40), ..Disturbance::default() };
            recorder.look(|_: &mut _| Looked::Since(busy));
            let [phase] = collected(&recorder).phases[..] else { panic!("one phase") };
            assert_eq!((phase.disturbed, phase.unwatched), (disturbed, Some(unwatched)));
        }
    }

    #[test]
    fn a_look_without_a_figure_leaves_its_passes_unknown() {
        let (recorder, hand) = recorder();
        let quiet = Disturbance { longest_wait_ns: Some(0), ..Disturbance::default() };
        let stolen = Disturbance { steal_ns: Some(30), ..Disturbance::default() };
        for found in [Disturbance::default(), quiet, Disturbance::default(), stolen] {
            let pass =
                recorder.begin_pass(Phase::Decode, |_: &mut _| Looked::No).expect("none is open");
            brick(&recorder, &hand, 100);
            recorder.end_pass(pass, Phase::Decode, 1, 0, |_: &mut _| Looked::Since(found));
        }
        let profile = collected(&recorder);
        let known: Vec<_> = profile.passes.iter().map(|pass| pass.disturbance.is_some()).collect();
        assert_eq!(known, [false, true, false, true]);
        let [phase] = profile.phases[..] else { panic!("{:?}", profile.phases) };
        assert_eq!((phase.disturbed, phase.unwatched), (1, Some(2)));
    }

    #[test]
    fn what_the_bytes_of_the_passes_are_that_stay_is_known() {
        let (recorder, hand) = recorder();
        for nanos in [100, 100, 900] {
            let pass =
                recorder.begin_pass(Phase::Decode, |_: &mut _| Looked::No).expect("none is open");
            let open = recorder.begin_brick(BrickId::LmHead as NameIdx);
            hand.advance(nanos);
            let work = Work { elements: 1, flops: 80, bytes: 50, data: Data::Weights(40) };
            recorder.end_brick(open, work);
            let wait_ns = if nanos == 900 { 40 } else { 0 };
            let found = Disturbance { longest_wait_ns: Some(wait_ns), ..Disturbance::default() };
            recorder.end_pass(pass, Phase::Decode, 1, 0, |_: &mut _| Looked::Since(found));
        }
        let all = collected(&recorder);
        let rest = all.without_disturbed().expect("all was kept");
        let data = |profile: &Profile| profile.bricks(Some(Phase::Decode))[0].stats.data;
        assert_eq!((data(&all).weights, data(&all).activations), (120, 30));
        assert_eq!(rest.phases[0].passes, 2);
        assert_eq!((data(&rest).weights, data(&rest).activations), (80, 20));
    }

    #[test]
    fn what_was_only_summed_can_not_be_left_out() {
        let (_, hand) = recorder();
        let recorder = Recorder::new(hand.clock(), 0);
        recorder.set_active(true);
        let pass =
            recorder.begin_pass(Phase::Decode, |_: &mut _| Looked::No).expect("none is open");
        brick(&recorder, &hand, 5);
        recorder.end_pass(pass, Phase::Decode, 1, 0, |_: &mut _| Looked::No);
        let refused = collected(&recorder).without_disturbed().expect_err("nothing was kept");
        assert!(refused.reason.contains("only summed"), "{}", refused.reason);
    }

    /// Counts 10 cycles and 25 instructions more at each reading; the third fails.
    #[derive(Debug)]
    struct Made(u64);

    impl ReadCounters for Made {
        fn read(&mut self) -> io::Result<CounterReading> {
            self.0 += 1;
            if self.0 == 7 {
                return Err(io::ErrorKind::Other.into());
            }
            Ok(CounterReading {
                cycles: Some(10 * self.0),
                instructions: Some(25 * self.0),
                llc_misses: None,
                branch_misses: Some(0),
                wanted_ns: self.0,
                counted_ns: self.0,
            })
        }
    }

    #[test]
    fn what_is_counted_in_a_brick_is_added_to_it() {
        let (recorder, hand) = recorder();
        brick(&recorder, &hand, 1);
        recorder.count(Some(Box::new(Made(0))));
        // Readings 1 to 4: the outer brick has three of their distances, the inner one.
        let outer = recorder.begin_brick(BrickId::QkvProjection as NameIdx);
        brick(&recorder, &hand, 1);
        recorder.end_brick(outer, Work::elements(1));
        let profile = collected(&recorder);
        let of = |profile: &Profile, name: BrickId| {
            let bricks = profile.bricks(None);
            let brick = bricks.iter().find(|total| total.stats.name == name.name());
            brick.and_then(|total| total.counters).expect("it was counted")
        };
        let (qkv, head) = (of(&profile, BrickId::QkvProjection), of(&profile, BrickId::LmHead));
        assert_eq!((qkv.sums.cycles, qkv.sums.instructions), (Some(30), Some(75)));
        // The brick before counting began isn't one of them.
        assert_eq!((head.spans, head.sums.cycles), (1, Some(10)));
        assert_eq!(qkv.instructions_per_cycle(), Some(2.5));
        assert_eq!((qkv.sums.llc_misses, qkv.sums.branch_misses), (None, Some(0)));

        // Readings 5 to 7, of which the last fails. A lap takes one reading for both of its bricks.
        let first = recorder.begin_brick(BrickId::RmsNorm as NameIdx);
        let second = recorder.lap(first, Work::default(), BrickId::LmHead as NameIdx);
        recorder.end_brick(second, Work::default());
        let profile = collected(&recorder);
        assert_eq!(of(&profile, BrickId::RmsNorm).sums.cycles, Some(10));
        let head = of(&profile, BrickId::LmHead);
        assert_eq!((head.spans, head.sums.cycles), (2, None), "an unknown part makes it unknown");
    }
}
