//! Turns the times of marks into the tables of a [`DeviceProfile`].
//!
//! A settled pass is written as the rows that a thread's log would have for it, in the order in which spans end, so
//! that `fold/` computes the sums and `collect.rs` the tables. A stream runs one thing at a time: the time between
//! two of its marks belongs to one brick, or is a gap.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use brickscope_profile::{
    Absent, Alignment, BrickStats, ClockInfo, DeviceProfile, DeviceStream, Grain, GrainTotal,
    Latency, Launch, LaunchKind, LayerTotal, Name, Phase, Profile, Source, Work,
};

use crate::collect::{Part, Points, Tables};
use crate::device::budget::Budget;
use crate::device::executor::DeviceInfo;
use crate::device::issued::{Event, Issued, NEXT_MARK, What};
use crate::fold::Fold;
use crate::recorder::{Lane, Owner};
use crate::row::{self, Mark, NONE, PassEnd, Record, Span, SpanKind};
use crate::sync::lock_unmodelled as lock;

/// One device.
#[derive(Debug)]
pub(crate) struct DeviceLog {
    info: DeviceInfo,
    /// The number of single spans that each stream keeps.
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) alignment: Alignment,
    pub(crate) last_alignment: Option<Alignment>,
    /// How often the clocks were aligned.
    pub(crate) alignments: u64,
    /// The number of resets. Passes that began before the last one are discarded.
    generation: u64,
    /// Passes that have begun and are not settled.
    open: u64,
    /// Passes whose times could not be read back.
    pub(crate) lost_passes: u64,
    /// Passes whose marks were not in order.
    disordered_passes: u64,
    /// Passes that the caller gave up.
    pub(crate) abandoned_passes: u64,
    /// Passes with more marks than fit a set.
    pub(crate) overfull_passes: u64,
    /// Passes that ran without marks on purpose.
    pub(crate) unmarked_passes: u64,
    /// Why the device is gone.
    pub(crate) lost: Option<String>,
    /// The last failure after which the device still worked.
    pub(crate) failure: Option<String>,
    /// Why the cost of a mark is not known.
    pub(crate) stamp_absent: Option<String>,
    budget: Budget,
    /// The number of settled passes, and of the hand-offs in them.
    passes: u32,
    hand_offs: u64,
    streams: Vec<StreamLog>,
}

#[derive(Debug, Default)]
struct StreamLog {
    fold: Fold,
    records: Vec<Record>,
    /// The launches of spans that are neither layers nor bricks with kernels, by the order of the span.
    launches: Vec<Launched>,
    /// Spans that did not fit.
    dropped: u64,
    /// Bricks without an end.
    unfinished: u64,
    /// The number of spans so far.
    order: u32,
    /// When its last pass ended, by the host's clock.
    last_end: u64,
    grains: BTreeMap<(Phase, Grain), GrainTotal>,
    layers: BTreeMap<(Phase, Option<u16>), LayerTotal>,
}

/// A launch of the span with this order.
#[derive(Debug, Clone, Copy)]
struct Launched {
    issued_ns: u64,
    order: u32,
    kind: LaunchKind,
}

/// The clocks of a host and a device are never so far apart once they are aligned.
const MOST_APART_NS: u64 = 10_000_000;

const AFTER_NOW: &str = "resolve gave marks that come later than now: it is to give ticks of the \
                         clock that bracket reads, each as long as describe says";

impl DeviceLog {
    pub(crate) fn new(info: &DeviceInfo, alignment: Alignment, capacity: usize) -> Self {
        let streams = info.streams.iter().map(|_| StreamLog::new(capacity)).collect();
        let state = State {
            alignment,
            last_alignment: None,
            alignments: 1,
            generation: 0,
            open: 0,
            lost_passes: 0,
            disordered_passes: 0,
            abandoned_passes: 0,
            overfull_passes: 0,
            unmarked_passes: 0,
            lost: None,
            failure: None,
            stamp_absent: None,
            budget: Budget::new(info.marks),
            passes: 0,
            hand_offs: 0,
            streams,
        };
        Self { info: info.clone(), capacity, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
    }

    pub(crate) fn budget<R>(&self, use_it: impl FnOnce(&mut Budget) -> R) -> R {
        use_it(&mut self.state().budget)
    }

    /// Discards all settled passes and those in flight.
    pub(crate) fn reset(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.open = 0;
        state.lost_passes = 0;
        state.disordered_passes = 0;
        state.abandoned_passes = 0;
        state.overfull_passes = 0;
        state.unmarked_passes = 0;
        state.failure = None;
        let capacity = self.capacity;
        for stream in &mut state.streams {
            let last_end = stream.last_end;
            *stream = StreamLog { last_end, ..StreamLog::new(capacity) };
        }
    }

    /// Notes that a pass has begun. Returns the number of resets before it.
    pub(crate) fn begun(&self) -> u64 {
        let mut state = self.state();
        state.open += 1;
        state.generation
    }

    /// Notes that a pass won't be settled. Returns whether it counts: not if it began before a reset.
    pub(crate) fn forget(&self, pass: &Issued) -> bool {
        let mut state = self.state();
        let is_known = pass.generation == state.generation;
        if is_known {
            state.open = state.open.saturating_sub(1);
        }
        is_known
    }

    /// Notes that a pass has no times because they can't be read back.
    pub(crate) fn lose(&self, pass: &Issued, reason: String) {
        if self.forget(pass) {
            self.note(|state| {
                state.lost_passes += 1;
                state.failure = Some(reason);
            });
        }
    }

    /// Records a pass whose marks were at these `ticks`. With `is_budgeted`, the next one is timed as finely
    /// as this one allows. Marks that lie after `now` can't have been read back: then it has no times.
    pub(crate) fn settle(&self, pass: &Issued, ticks: &[u64], is_budgeted: bool, now: Option<u64>) {
        if !self.forget(pass) {
            return;
        }
        let (Some(&first), Some(phase)) = (ticks.first(), pass.phase) else { return };
        let clock = &self.info.ticks;
        // All moments are relative to one mark, so that their differences add up. On another stream a mark may
        // be earlier than the one that was issued first.
        let moments: Vec<i64> = ticks.iter().map(|&ticks| clock.near(first, ticks, 0)).collect();
        let moment = |event: &Event| moments.get(event.mark as usize).copied();
        let mut state = self.state();
        let State { alignment, last_alignment, streams, .. } = &mut *state;
        let starts: Option<Vec<Option<i64>>> = (0..streams.len())
            .map(|stream| {
                let marked = of_stream(pass, stream).filter(|event| event.mark != NEXT_MARK);
                let mut before: Option<i64> = None;
                let mut start = None;
                for event in marked {
                    let at =
                        moment(event).filter(|&at| before.is_none_or(|before| before <= at))?;
                    start.get_or_insert(at);
                    before = Some(at);
                }
                Some(start)
            })
            .collect();
        let Some(starts) = starts else {
            state.disordered_passes += 1;
            return;
        };
        let aligned = last_alignment.unwrap_or(*alignment);
        let begin = aligned.host_ns(clock, first, pass.issued_ns);
        let last = moments.iter().copied().max().unwrap_or(0);
        let end = i128::from(begin) + i128::from(last);
        if now.is_some_and(|now| end > i128::from(now) + i128::from(MOST_APART_NS)) {
            state.lost_passes += 1;
            state.failure = Some(AFTER_NOW.to_owned());
            return;
        }
        // A new alignment may place a pass before the end of the previous one. Then all streams of the pass are
        // moved to that end, with their lengths unchanged.
        let earliest = starts.iter().zip(streams.iter());
        let earliest = earliest.filter_map(|(start, stream)| {
            Some(i128::from(stream.last_end) - i128::from((*start)?))
        });
        let begin = earliest.fold(i128::from(begin), i128::max);
        let begin = u64::try_from(begin).unwrap_or(u64::MAX);
        let (serial, hand_offs) = (state.passes.wrapping_add(1).max(1), state.hand_offs);
        for (index, stream) in state.streams.iter_mut().enumerate() {
            let events = of_stream(pass, index).map(|event| (event, moment(event)));
            Pen::new(stream, self.capacity, pass, (phase, serial), begin, hand_offs)
                .write(pass, events);
        }
        state.passes = serial;
        let n_hand_offs = pass.events.iter().filter(|e| matches!(e.what, What::HandOff(_)));
        state.hand_offs += n_hand_offs.count() as u64;
        if is_budgeted {
            let (least, most) = (moments.iter().min(), moments.iter().max());
            let span = least.zip(most).map_or(0, |(least, most)| most.abs_diff(*least));
            state.budget.learn(phase, &pass.needs, span);
        }
    }

    /// Calls `f` with the sums of each stream.
    pub(crate) fn each_fold(&self, f: impl FnMut(&Fold)) {
        self.state().streams.iter().map(|stream| &stream.fold).for_each(f);
    }

    pub(crate) fn profile(&self, names: &[Name], with_others: bool) -> DeviceProfile {
        self.collected(names, with_others, true)
    }

    /// The same without single spans and dependencies, and with only the newest of the passes.
    pub(crate) fn sums(&self, names: &[Name], with_others: bool) -> DeviceProfile {
        self.collected(names, with_others, false)
    }

    fn collected(&self, names: &[Name], with_others: bool, is_whole: bool) -> DeviceProfile {
        let state = self.state();
        let mut points = Points::default();
        let mut n_taken_over = 0;
        let mut streams = Vec::new();
        for (index, (name, stream)) in self.info.streams.iter().zip(&state.streams).enumerate() {
            let mut tables = Tables::new(names, with_others);
            let thread = Owner { name: Some(name.clone()), tid: None };
            let fold = &stream.fold;
            let newest = fold.newest();
            let (passes, records) = match is_whole {
                true => (&fold.passes, stream.records.clone()),
                false => (&newest, Vec::new()),
            };
            tables.add(Part {
                fold,
                passes,
                lanes: vec![Lane { serial: 0, thread, records }],
                dropped: stream.dropped,
                begun: stream.fold.ended() + stream.unfinished,
                in_pass: false,
            });
            let mut filled = Profile::empty(ClockInfo::default());
            filled.names = names.to_vec();
            points.extend(tables.finish(&mut filled), index as u32);
            filled.latency = if is_whole {
                Latency::of(&filled.passes, &filled.spans, &filled.names)
            } else {
                let (mut prompts, mut tokens) = (BrickStats::new(""), BrickStats::new(""));
                fold.prompts().add_to(&mut prompts);
                fold.tokens.add_to(&mut tokens);
                Latency::of_sums(&prompts, &tokens)
            };
            // They are counted for the device as a whole.
            let taken_over = std::mem::take(&mut filled.dropped.dependencies);
            n_taken_over += if is_whole { taken_over } else { 0 };
            streams.push(DeviceStream {
                name: name.clone(),
                dropped: filled.dropped,
                phases: filled.phases,
                totals: filled.totals,
                latency: filled.latency,
                grains: stream.grains.values().cloned().collect(),
                layers: stream.layers.values().cloned().collect(),
                passes: filled.passes,
                spans: filled.spans,
                launches: if is_whole { stream.rows_of_launches() } else { Vec::new() },
            });
        }
        let dependencies = points.dependencies();
        let reason = match &state.stamp_absent {
            Some(reason) => reason.clone(),
            None => "it was not measured: `DeviceTimer::calibrate` measures it".to_owned(),
        };
        let stamp = state.budget.stamp;
        DeviceProfile {
            name: self.info.name.clone(),
            api: self.info.api.clone(),
            driver: self.info.driver.clone(),
            alignment: Some(state.alignment),
            last_alignment: state.last_alignment,
            alignments: state.alignments,
            stamp,
            stamp_absent: stamp.is_none().then_some(Absent { reason }),
            budget: stamp.map(|_| state.budget.share),
            grains: state.budget.choices(),
            unsettled_passes: state.open,
            lost_passes: state.lost_passes,
            disordered_passes: state.disordered_passes,
            abandoned_passes: state.abandoned_passes,
            overfull_passes: state.overfull_passes,
            unmarked_passes: state.unmarked_passes,
            lost: state.lost.clone(),
            failure: state.failure.clone(),
            dropped_dependencies: u64::saturating_sub(n_taken_over, dependencies.len() as u64),
            dependencies,
            streams,
            ..DeviceProfile::empty(self.info.ticks)
        }
    }
}

fn of_stream(pass: &Issued, stream: usize) -> impl Iterator<Item = &Event> {
    pass.events.iter().filter(move |event| usize::from(event.stream) == stream)
}

impl StreamLog {
    fn new(capacity: usize) -> Self {
        let mut log = Self::default();
        log.fold.is_small = capacity == 0;
        log
    }

    /// The launches by the rows of their spans, which `collect.rs` sorts by begin.
    fn rows_of_launches(&self) -> Vec<Launch> {
        let spans = self.records.iter().filter(|record| record.is_span());
        let mut orders: Vec<u32> = spans.map(|record| record.order).collect();
        orders.sort_unstable();
        let mut launches: Vec<Launch> = self
            .launches
            .iter()
            .filter_map(|&Launched { order, issued_ns, kind }| {
                let row = orders.binary_search(&order).ok()?;
                Some(Launch { span: u32::try_from(row).ok()?, issued_ns, kind })
            })
            .collect();
        launches.sort_unstable_by_key(|launch| launch.span);
        launches
    }
}

/// A span that has begun.
#[derive(Clone, Copy)]
struct Begun {
    /// The name, or the index if it is a layer.
    name: u16,
    work: Work,
    layer: u16,
    at: i64,
    order: u32,
    /// When it was launched; `None` for layers, and for bricks whose kernels have launches.
    issued_ns: Option<u64>,
}

/// Writes the rows of one pass on one stream.
struct Pen<'s> {
    stream: &'s mut StreamLog,
    capacity: usize,
    grain: Grain,
    phase: Phase,
    serial: u32,
    launches: LaunchKind,
    /// The origin of all moments, by the host's clock.
    begin: u64,
    /// The number of hand-offs in earlier passes.
    hand_offs: u64,
    layer: Option<Begun>,
    /// When the last brick of the open layer ended.
    layer_end: Option<i64>,
    brick: Option<Begun>,
    kernel: Option<Begun>,
    /// If the grain is the layer: the layer that runs, and since when.
    segment: Option<(Option<u16>, i64)>,
    /// The time attributed to bricks, or to layers if nothing smaller is timed.
    covered: u64,
    segments: u64,
    marks: u64,
}

impl<'s> Pen<'s> {
    fn new(
        stream: &'s mut StreamLog,
        capacity: usize,
        pass: &Issued,
        (phase, serial): (Phase, u32),
        begin: u64,
        hand_offs: u64,
    ) -> Self {
        Self {
            stream,
            capacity,
            grain: pass.grain,
            phase,
            serial,
            launches: pass.launches,
            begin,
            hand_offs,
            layer: None,
            layer_end: None,
            brick: None,
            kernel: None,
            segment: None,
            covered: 0,
            segments: 0,
            marks: 0,
        }
    }

    fn write<'e>(mut self, pass: &Issued, events: impl Iterator<Item = (&'e Event, Option<i64>)>) {
        let mut bounds: Option<(i64, i64)> = None;
        let mut last_mark = None;
        // They are taken over at the next mark.
        let mut takes: Vec<u32> = Vec::new();
        for (event, at) in events {
            let Some(at) = at else {
                if let What::TakeOver(number) = event.what {
                    takes.push(number);
                }
                continue;
            };
            bounds = Some((bounds.map_or(at, |(first, _)| first), at));
            self.marks += u64::from(last_mark.replace(event.mark) != Some(event.mark));
            let layer = event.layer.unwrap_or(NONE);
            match event.what {
                What::Whole => self.segment = Some((None, at)),
                What::Nothing => {}
                What::HandOff(number) => self.point(row::Event::HandOff, number, at),
                What::TakeOver(number) => takes.push(number),
                What::End => {
                    self.end_brick(at);
                    self.end_segment(at);
                }
                What::Layer => {
                    self.end_segment(at);
                    takes.drain(..).for_each(|number| self.point(row::Event::TakeOver, number, at));
                    self.segment = Some((event.layer, at));
                    self.begin_layer(layer, at);
                }
                What::Brick(name, work) => {
                    self.end_brick(at);
                    if self.layer.is_some_and(|open| open.name != layer) {
                        self.end_layer();
                    }
                    takes.drain(..).for_each(|number| self.point(row::Event::TakeOver, number, at));
                    if self.layer.is_none() {
                        self.begin_layer(layer, at);
                    }
                    let begun = self.begun(name, work, layer, at);
                    self.brick = Some(Begun { issued_ns: Some(event.issued_ns), ..begun });
                }
                What::Kernel(name, work) => {
                    self.end_kernel(at);
                    if let Some(brick) = &mut self.brick {
                        brick.issued_ns = None;
                    }
                    let begun = self.begun(name, work, layer, at);
                    self.kernel = Some(Begun { issued_ns: Some(event.issued_ns), ..begun });
                }
            }
        }
        // Recorded without an end, they have none.
        let unfinished = [self.kernel.take(), self.brick.take()];
        self.stream.unfinished += unfinished.iter().flatten().count() as u64;
        self.stream.unfinished += u64::from(self.segment.take().is_some());
        self.end_layer();
        if let Some((first, last)) = bounds {
            self.end_pass(pass, first, last);
        }
    }

    fn begun(&mut self, name: u16, work: Work, layer: u16, at: i64) -> Begun {
        let order = self.stream.order;
        self.stream.order = order.wrapping_add(1);
        Begun { name, work, layer, at, order, issued_ns: None }
    }

    fn record(&self, event: row::Event) -> Record {
        Record { pass: self.serial, order: self.stream.order, event }
    }

    fn time(&self, at: i64) -> u64 {
        self.begin.saturating_add_signed(at)
    }

    /// Whether it was kept.
    fn put(&mut self, record: Record) -> bool {
        let stream = &mut *self.stream;
        stream.fold.take(&record);
        if matches!(record.event, row::Event::Pass(_)) || self.capacity == 0 {
            return false;
        }
        let is_kept = stream.records.len() < self.capacity;
        if is_kept {
            stream.records.push(record);
        } else if record.is_span() {
            stream.dropped += 1;
        }
        is_kept
    }

    fn span(&mut self, kind: SpanKind, begun: Begun, end: i64) -> u64 {
        let duration = end.abs_diff(begun.at);
        let exclusive = if kind == SpanKind::Brick { duration } else { 0 };
        let event = row::Event::Span(Span {
            kind,
            start: self.time(begun.at),
            duration,
            exclusive,
            work: begun.work,
            name: if kind == SpanKind::Layer { NONE } else { begun.name },
            layer: begun.layer,
            flags: 0,
            source: Source::Device,
        });
        let is_kept = self.put(Record { order: begun.order, ..self.record(event) });
        if let Some(issued_ns) = begun.issued_ns.filter(|_| is_kept) {
            let (order, kind) = (begun.order, self.launches);
            self.stream.launches.push(Launched { issued_ns, order, kind });
        }
        duration
    }

    fn point(&mut self, event: impl FnOnce(Mark) -> row::Event, number: u32, at: i64) {
        let mark = Mark { at: self.time(at), number: self.hand_offs + u64::from(number) };
        self.put(self.record(event(mark)));
    }

    fn end_kernel(&mut self, at: i64) {
        if let Some(kernel) = self.kernel.take() {
            self.span(SpanKind::Kernel, kernel, at);
        }
    }

    fn end_brick(&mut self, at: i64) {
        self.end_kernel(at);
        if let Some(brick) = self.brick.take() {
            self.covered += self.span(SpanKind::Brick, brick, at);
            self.layer_end = Some(at);
        }
    }

    fn begin_layer(&mut self, layer: u16, at: i64) {
        if layer != NONE {
            self.layer = Some(self.begun(layer, Work::default(), layer, at));
            self.layer_end = None;
        }
    }

    /// Ends a layer of timed bricks, with the last of them.
    fn end_layer(&mut self) {
        if let (Some(layer), Some(end)) = (self.layer.take(), self.layer_end.take()) {
            let duration = self.span(SpanKind::Layer, layer, end);
            self.stream.add_layer(self.phase, Some(layer.name), duration);
        }
    }

    /// Ends a layer in which nothing smaller is timed.
    fn end_segment(&mut self, at: i64) {
        let Some((layer, since)) = self.segment.take() else { return };
        self.segments += at.abs_diff(since);
        if self.grain == Grain::Pass {
            return;
        }
        if self.layer.is_some() {
            self.layer_end = Some(at);
            self.end_layer();
        } else {
            self.stream.add_layer(self.phase, layer, at.abs_diff(since));
        }
    }

    fn end_pass(&mut self, pass: &Issued, first: i64, last: i64) {
        let (wall, covered) = (last.abs_diff(first), self.covered);
        self.put(self.record(row::Event::Pass(PassEnd {
            phase: self.phase,
            start: self.time(first),
            wall,
            covered,
            tokens: pass.tokens,
            position: pass.position,
        })));
        self.stream.last_end = self.begin.saturating_add_signed(last);
        let timed = match self.grain {
            Grain::Kernel | Grain::Brick => covered,
            Grain::Layer | Grain::Pass => self.segments,
        };
        let (phase, grain) = (self.phase, self.grain);
        let total = self.stream.grains.entry((phase, grain)).or_insert(GrainTotal {
            phase,
            grain,
            passes: 0,
            marks: 0,
            wall_ns: 0,
            timed_ns: 0,
            gaps_ns: 0,
        });
        total.passes += 1;
        total.marks = total.marks.saturating_add(self.marks);
        total.wall_ns = total.wall_ns.saturating_add(wall);
        total.timed_ns = total.timed_ns.saturating_add(timed);
        total.gaps_ns = total.gaps_ns.saturating_add(wall.saturating_sub(timed));
    }
}

impl StreamLog {
    fn add_layer(&mut self, phase: Phase, layer: Option<u16>, nanos: u64) {
        let total = self.layers.entry((phase, layer)).or_insert(LayerTotal {
            phase,
            layer,
            count: 0,
            total_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        });
        total.count += 1;
        total.total_ns = total.total_ns.saturating_add(nanos);
        total.min_ns = total.min_ns.min(nanos);
        total.max_ns = total.max_ns.max(nanos);
    }
}
