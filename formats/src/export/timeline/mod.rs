//! A profile as a timeline: tracks with slices that nest, in the order of time, cut into parts.
//!
//! The slices of threads and streams are laid out here once, for all timeline formats. Any two slices of a
//! track nest or lie apart, as viewers require. Where the spans of a thread overlap otherwise, those that
//! began later get tracks of their own beside it.

mod order;
mod slice;
mod told;

use std::io;

use brickscope_profile::device::launch_of;
use brickscope_profile::{Launch, LaunchKind, Pass, Profile, Span};

use self::order::{borders, host_lanes, in_order, link_passes, of_lanes, orders};
use self::slice::Flow;
pub(super) use self::slice::{Counter, Group, Launched, Sink, Slice, Track, What};
pub use self::told::has_begins;
pub(super) use self::told::{SpanKind, kind_of, name_of, stated, told_tokens};
use super::refused;

/// The most tracks of a thread beside its own, for spans that overlap without nesting.
const MOST_OVERLAPS: usize = 16;

/// Spans between two calls of `progress`.
const SPANS_BETWEEN: u64 = 1 << 14;

/// A part of a timeline, as it was written: a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceFile {
    /// Its size in bytes.
    pub bytes: u64,
    /// Spans in it.
    pub spans: u64,
    /// Passes in it, of the host and of streams.
    pub passes: u64,
    /// When the first slice in it began, in nanoseconds of the profile's clock; `None` if there is none.
    pub first_ns: Option<u64>,
    /// When the last slice in it ended.
    pub last_ns: Option<u64>,
    /// Spans in no part at all: they overlap so many others that no track was left.
    pub left_out: u64,
}

/// Walks over a profile, part by part.
#[derive(Debug)]
pub(super) struct Timeline<'p> {
    profile: &'p Profile,
    /// A part is cut before it has this many bytes, where possible.
    part_bytes: u64,
    lanes: Vec<Lane<'p>>,
    tracks: Vec<Track>,
    /// Whether this part has announced each track.
    is_told: Vec<bool>,
    hand_offs: Vec<HandOff>,
    next_hand_off: usize,
    /// When passes begin: parts are cut there.
    borders: Vec<u64>,
    /// The stretch between borders, and the lane in it, that come next.
    stretch: usize,
    lane: usize,
    /// The bytes of the largest stretch so far.
    largest: u64,
    spans: u64,
    is_done: bool,
}

/// A thread or a stream.
#[derive(Debug)]
struct Lane<'p> {
    group: Group,
    name: String,
    tid: Option<u32>,
    spans: &'p [Span],
    order: Order,
    next: usize,
    passes: &'p [Pass],
    /// The passes of this lane, with their flow, in the order of time.
    pass_order: Vec<(u32, Option<Flow>)>,
    next_pass: usize,
    /// The first is the lane's own track.
    stacks: Vec<Stack>,
    /// The sums over the spans of each open pass.
    sums: Vec<PassSums>,
    /// For a stream, when the host launched its spans.
    launches: Launches<'p>,
}

/// When the host launched the spans of a stream.
#[derive(Debug, Default)]
struct Launches<'p> {
    of: &'p [Launch],
    /// The name of the track of launches.
    name: String,
    track: Option<u32>,
    /// The launch time of the newest graph in this part.
    graph: Option<u64>,
    /// The number of the first span's arrow.
    first_id: u64,
}

/// The spans of a lane in the order in which they began.
#[derive(Debug)]
enum Order {
    /// The order of the table.
    Rows(std::ops::Range<u32>),
    Sorted(Vec<u32>),
}

impl Order {
    fn get(&self, at: usize) -> Option<u32> {
        match self {
            Self::Rows(rows) => rows.clone().nth(at),
            Self::Sorted(rows) => rows.get(at).copied(),
        }
    }
}

#[derive(Debug, Default)]
struct Stack {
    track: Option<u32>,
    open: Vec<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    end_ns: u64,
    what: Opened,
    /// Whether the bytes of nested spans already count, in those of a span around them.
    counts_bytes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opened {
    /// An index into `passes`.
    Pass(u32),
    Span(u32),
}

#[derive(Debug)]
struct PassSums {
    serial: u32,
    attributed_ns: u64,
    bytes: Option<u64>,
}

/// Work that one lane gave to another.
#[derive(Debug, Clone, Copy)]
struct HandOff {
    from: (u32, u64),
    to: (u32, u64),
}

impl<'p> Timeline<'p> {
    pub(super) fn new(profile: &'p Profile, part_bytes: u64) -> Self {
        let mut lanes = host_lanes(profile);
        let mut hand_offs = of_lanes(&profile.dependencies, 0, lanes.len());
        for (group, device) in (1..).zip(&profile.devices) {
            let first = lanes.len();
            lanes.extend(device.streams.iter().zip(first as u64..).map(|(stream, nth)| {
                let every = |_: &Span| 0;
                let order = orders(&stream.spans, 1, every).pop().expect("one was asked for");
                Lane {
                    order,
                    pass_order: in_order(&stream.passes, |_| true),
                    launches: Launches {
                        of: &stream.launches,
                        name: format!("launches to {}, {}", device.name, stream.name),
                        first_id: nth.saturating_mul(1 << 32).saturating_add(LAUNCHES),
                        ..Launches::default()
                    },
                    ..Lane::new(group, stream.name.clone(), None, &stream.spans, &stream.passes)
                }
            }));
            hand_offs.extend(of_lanes(&device.dependencies, first, lanes.len() - first));
        }
        hand_offs.sort_by_key(|hand_off| hand_off.from.1);
        let borders = borders(profile);
        link_passes(profile, &mut lanes, &borders);
        Self {
            profile,
            part_bytes,
            lanes,
            tracks: Vec::new(),
            is_told: Vec::new(),
            hand_offs,
            next_hand_off: 0,
            borders,
            stretch: 0,
            lane: 0,
            largest: 0,
            spans: 0,
            is_done: false,
        }
    }

    /// Refuses profiles whose spans have no start times, since they can't be drawn.
    pub(super) fn check(&self) -> io::Result<()> {
        if has_begins(self.profile) {
            return Ok(());
        }
        Err(refused("there is no timeline: the imported file doesn't say when its spans began"))
    }

    /// Whether every part was written. There is at least one.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Writes the next part except its head and tail, which take about `tail` bytes. `progress` is called
    /// with the number of spans written so far.
    pub(super) fn write_part(
        &mut self,
        sink: &mut dyn Sink,
        tail: u64,
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<TraceFile> {
        let mut part = TraceFile::default();
        // Leaves room for the ends of what is open.
        let full = self.part_bytes - self.part_bytes / 16;
        let full = full.saturating_sub(tail);
        self.is_told.fill(false);
        while self.stretch <= self.borders.len() {
            let before = sink.bytes();
            let until = self.borders.get(self.stretch).copied();
            while self.lane < self.lanes.len() {
                while self.lanes[self.lane].is_next_before(until) {
                    // A single pass that is larger than a part.
                    if sink.bytes() >= full && part.spans + part.passes > 0 {
                        return self.close(sink, part);
                    }
                    self.step(sink, &mut part)?;
                    if self.spans.is_multiple_of(SPANS_BETWEEN) {
                        progress(self.spans);
                    }
                }
                self.lane += 1;
            }
            self.hand_off(sink, until)?;
            self.lane = 0;
            self.stretch += 1;
            self.largest = self.largest.max(sink.bytes() - before);
            let is_full = sink.bytes().saturating_add(self.largest) > full;
            if is_full && part.spans + part.passes > 0 && self.stretch <= self.borders.len() {
                return self.close(sink, part);
            }
        }
        self.is_done = true;
        progress(self.spans);
        self.close(sink, part)
    }

    /// Ends what is open, so that the part is complete; the next part does not continue it.
    fn close(&mut self, sink: &mut dyn Sink, mut part: TraceFile) -> io::Result<TraceFile> {
        for lane in &mut self.lanes {
            for stack in 0..lane.stacks.len() {
                lane.pop_until(self.profile, stack, sink, |_| true)?;
            }
            lane.sums.clear();
            lane.launches.graph = None;
        }
        part.bytes = sink.bytes();
        Ok(part)
    }

    /// Lays out the next pass or span of the lane.
    fn step(&mut self, sink: &mut dyn Sink, part: &mut TraceFile) -> io::Result<()> {
        let lane = &mut self.lanes[self.lane];
        let Some(Next { what, opened, flow }) = lane.take() else { return Ok(()) };
        let (start_ns, duration_ns) = match what {
            What::Pass(pass) => (pass.start_ns, pass.wall_ns),
            What::Span(_, span) => (span.start_ns, span.duration_ns),
        };
        let end_ns = start_ns.saturating_add(duration_ns);
        let mut found = None;
        for nth in 0..=MOST_OVERLAPS {
            if nth == lane.stacks.len() {
                lane.stacks.push(Stack::default());
            }
            let passes = lane.passes;
            lane.pop_until(self.profile, nth, sink, |open| {
                let is_inside = match (what, open.what) {
                    (What::Span(_, span), Opened::Span(outer)) => span.parent == Some(outer),
                    (What::Span(_, span), Opened::Pass(outer)) => {
                        passes.get(outer as usize).map(|pass| pass.serial) == span.pass
                    }
                    (What::Pass(_), _) => false,
                };
                // A slice without duration at the end of another may lie inside of it.
                open.end_ns < start_ns
                    || open.end_ns == start_ns && !(duration_ns == 0 && is_inside)
            })?;
            if lane.stacks[nth].open.last().is_none_or(|open| end_ns <= open.end_ns) {
                found = Some(nth);
                break;
            }
        }
        match what {
            What::Span(..) => self.spans += 1,
            What::Pass(_) => {}
        }
        let Some(nth) = found else {
            part.left_out += 1;
            return Ok(());
        };
        let around = lane.stacks[nth].open.last().is_some_and(|open| open.counts_bytes);
        let counts_bytes = match what {
            What::Pass(pass) => {
                lane.sums.push(PassSums { serial: pass.serial, attributed_ns: 0, bytes: None });
                around
            }
            What::Span(_, span) => {
                let is_brick = kind_of(self.profile, span) == SpanKind::Brick;
                lane.add(span, is_brick && !around);
                around || is_brick && span.work.bytes > 0
            }
        };
        let track = self.track(nth, sink)?;
        let (launch, arrow) = match what {
            What::Span(row, span) => self.launch(row, span, sink)?,
            What::Pass(_) => (None, None),
        };
        let flow = flow.or(arrow);
        let is_on_host = self.lanes[self.lane].group == 0;
        sink.begin(&Slice { track, start_ns, duration_ns, what, flow, launch, is_on_host })?;
        let lane = &mut self.lanes[self.lane];
        lane.stacks[nth].open.push(Open { end_ns, what: opened, counts_bytes });
        match what {
            What::Pass(_) => part.passes += 1,
            What::Span(..) => part.spans += 1,
        }
        part.first_ns = Some(part.first_ns.map_or(start_ns, |first| first.min(start_ns)));
        part.last_ns = Some(part.last_ns.map_or(end_ns, |last| last.max(end_ns)));
        Ok(())
    }

    /// The track of a stack of the lane, announced if this part doesn't have it yet.
    fn track(&mut self, nth: usize, sink: &mut dyn Sink) -> io::Result<u32> {
        track_of(&mut self.tracks, &mut self.is_told, &mut self.lanes[self.lane], nth, sink)
    }

    /// The launch of a span of the lane, with its arrow, so that both ends are in one part.
    fn launch(
        &mut self,
        row: u32,
        span: &Span,
        sink: &mut dyn Sink,
    ) -> io::Result<(Option<Launched>, Option<Flow>)> {
        let group = self.lanes[self.lane].group;
        let launches = &mut self.lanes[self.lane].launches;
        let Some(launch) = launch_of(launches.of, row) else { return Ok((None, None)) };
        let launch = Launched::new(self.profile, group, launch, span);
        // A graph is launched once, whatever it contains.
        let graph = (launch.kind == LaunchKind::Replayed).then_some(launch.issued_ns);
        if graph.is_some() && launches.graph == graph {
            return Ok((Some(launch), None));
        }
        launches.graph = graph;
        // A span that seems to begin before its launch, by imprecise clocks, has no arrow.
        let id = (launch.delay_ns >= 0).then(|| launches.first_id.saturating_add(row.into()));
        let track = match launches.track {
            Some(track) => track,
            None => {
                let name = launches.name.clone();
                self.tracks.push(Track { group: 0, name, tid: None, beside: None });
                *launches.track.insert((self.tracks.len() - 1) as u32)
            }
        };
        tell(&self.tracks, &mut self.is_told, track, sink)?;
        sink.launch(track, &launch, span, id)?;
        Ok((Some(launch), id.map(|id| Flow { id, is_end: true })))
    }

    /// The hand-offs before a border.
    fn hand_off(&mut self, sink: &mut dyn Sink, until: Option<u64>) -> io::Result<()> {
        while let Some(&HandOff { from, to }) = self.hand_offs.get(self.next_hand_off) {
            if until.is_some_and(|until| from.1 >= until) {
                break;
            }
            let id = HAND_OFFS + self.next_hand_off as u64;
            self.next_hand_off += 1;
            let [from, to] = [from, to].map(|(lane, at)| {
                let lane = &mut self.lanes[lane as usize];
                let track = track_of(&mut self.tracks, &mut self.is_told, lane, 0, sink);
                track.map(|track| (track, at))
            });
            sink.hand_off(id, from?, to?)?;
        }
        Ok(())
    }
}

/// The first arrow number of hand-offs; passes have the numbers below.
const HAND_OFFS: u64 = 1 << 32;

/// The first arrow number of launches: each stream has one for every span it could have.
const LAUNCHES: u64 = 2 << 32;

/// What comes next on a lane.
struct Next<'p> {
    what: What<'p>,
    opened: Opened,
    flow: Option<Flow>,
}

impl<'p> Lane<'p> {
    fn new(
        group: Group,
        name: String,
        tid: Option<u32>,
        spans: &'p [Span],
        passes: &'p [Pass],
    ) -> Self {
        Self {
            group,
            name,
            tid,
            spans,
            order: Order::Rows(0..0),
            next: 0,
            passes,
            pass_order: Vec::new(),
            next_pass: 0,
            stacks: Vec::new(),
            sums: Vec::new(),
            launches: Launches::default(),
        }
    }

    fn next_span(&self) -> Option<(u32, &'p Span)> {
        let row = self.order.get(self.next)?;
        Some((row, &self.spans[row as usize]))
    }

    fn next_pass(&self) -> Option<(u32, &'p Pass, Option<Flow>)> {
        let &(index, flow) = self.pass_order.get(self.next_pass)?;
        Some((index, &self.passes[index as usize], flow))
    }

    fn first_ns(&self) -> Option<u64> {
        let span = self.next_span().map(|(_, span)| span.start_ns);
        let pass = self.next_pass().map(|(_, pass, _)| pass.start_ns);
        span.into_iter().chain(pass).min()
    }

    fn is_next_before(&self, until: Option<u64>) -> bool {
        self.first_ns().is_some_and(|start| until.is_none_or(|until| start < until))
    }

    /// What begins next. Of what begins at the same time, passes come before their spans.
    fn take(&mut self) -> Option<Next<'p>> {
        let is_pass = match (self.next_pass(), self.next_span()) {
            (Some((_, pass, _)), Some((_, span))) => {
                let is_around = span.pass != Some(pass.serial) && span.duration_ns >= pass.wall_ns;
                (pass.start_ns, is_around) <= (span.start_ns, false)
            }
            (pass, _) => pass.is_some(),
        };
        if is_pass {
            let (index, pass, flow) = self.next_pass()?;
            self.next_pass += 1;
            return Some(Next { what: What::Pass(pass), opened: Opened::Pass(index), flow });
        }
        let (row, span) = self.next_span()?;
        self.next += 1;
        Some(Next { what: What::Span(row, span), opened: Opened::Span(row), flow: None })
    }

    /// Adds a span to the sums of its pass; its bytes only if no brick around it counts them.
    fn add(&mut self, span: &Span, with_bytes: bool) {
        // Passes rarely lie within passes.
        let mut newest = self.sums.iter_mut().rev().take(MOST_OVERLAPS);
        let Some(sums) = newest.find(|sums| Some(sums.serial) == span.pass) else { return };
        sums.attributed_ns = sums.attributed_ns.saturating_add(span.exclusive_ns);
        if with_bytes && span.work.bytes > 0 {
            sums.bytes = Some(sums.bytes.unwrap_or_default().saturating_add(span.work.bytes));
        }
    }

    /// Ends the open slices of a track, innermost first, while `is_over`.
    fn pop_until(
        &mut self,
        profile: &Profile,
        stack: usize,
        sink: &mut dyn Sink,
        is_over: impl Fn(&Open) -> bool,
    ) -> io::Result<()> {
        while let Some(open) = self.stacks[stack].open.pop_if(|open| is_over(open)) {
            let track = self.stacks[stack].track.expect("a slice is open on it");
            sink.end(track, open.end_ns)?;
            if let Opened::Pass(index) = open.what {
                let pass = &self.passes[index as usize];
                let at = self.sums.iter().rposition(|sums| sums.serial == pass.serial);
                let sums = at.map(|at| self.sums.remove(at));
                let told = told_tokens(profile, pass);
                self.count(pass, told, sums, sink)?;
            }
        }
        Ok(())
    }

    /// The figures of a pass that ended.
    fn count(
        &self,
        pass: &Pass,
        told: [Option<u64>; 2],
        sums: Option<PassSums>,
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        let at = pass.start_ns;
        if let [_, Some(position)] = told {
            sink.counter(self.group, Counter::Position, at, position as f64)?;
        }
        if pass.wall_ns == 0 {
            return Ok(());
        }
        let per_second = |count: u64, unit: f64| count as f64 * 1e9 / unit / pass.wall_ns as f64;
        if pass.tokens > 0 {
            let rate = per_second(pass.tokens, 1.0);
            sink.counter(self.group, Counter::TokensPerSecond, at, rate)?;
        }
        // The bytes of spans that were not kept are unknown.
        let whole = sums.filter(|sums| sums.attributed_ns == pass.attributed_ns);
        if let Some(bytes) = whole.and_then(|sums| sums.bytes) {
            let rate = per_second(bytes, 1e9);
            sink.counter(self.group, Counter::GigabytesPerSecond, at, rate)?;
        }
        Ok(())
    }
}

fn track_of(
    tracks: &mut Vec<Track>,
    is_told: &mut Vec<bool>,
    lane: &mut Lane<'_>,
    nth: usize,
    sink: &mut dyn Sink,
) -> io::Result<u32> {
    let mut new = |name: String, tid, beside| {
        tracks.push(Track { group: lane.group, name, tid, beside });
        (tracks.len() - 1) as u32
    };
    if lane.stacks.is_empty() {
        lane.stacks.push(Stack::default());
    }
    let own = *lane.stacks[0].track.get_or_insert_with(|| new(lane.name.clone(), lane.tid, None));
    let mut wanted = own;
    if nth > 0 {
        let name = || match nth {
            1 => format!("{}, overlapping", lane.name),
            _ => format!("{}, overlapping ({nth})", lane.name),
        };
        wanted = *lane.stacks[nth].track.get_or_insert_with(|| new(name(), None, Some(own)));
    }
    tell(tracks, is_told, own, sink)?;
    tell(tracks, is_told, wanted, sink)?;
    Ok(wanted)
}

/// Announces a track in this part, if it hasn't been yet.
fn tell(
    tracks: &[Track],
    is_told: &mut Vec<bool>,
    track: u32,
    sink: &mut dyn Sink,
) -> io::Result<()> {
    is_told.resize(tracks.len(), false);
    match std::mem::replace(&mut is_told[track as usize], true) {
        true => Ok(()),
        false => sink.track(track, &tracks[track as usize]),
    }
}
