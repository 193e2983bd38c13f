//! A profile as a timeline: tracks with slices that nest, in the order of time, cut into parts.
//!
//! The slices of threads and streams are laid out here once, for all timeline formats. Any two slices of a
//! track nest or lie apart, as viewers require. Where the spans of a thread overlap otherwise, those that
//! began later get tracks of their own beside it.

use std::collections::HashSet;
use std::io;

use brickscope_profile::device::{issued, launch_of};
use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::run::Format;
use brickscope_profile::{
    Dependency, DeviceProfile, Launch, LaunchKind, NameKind, Pass, Profile, Span, Work,
};

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

/// Which tracks are shown together: 0 is the host, then come the devices.
pub(super) type Group = usize;

/// A track with slices.
#[derive(Debug, Clone)]
pub(super) struct Track {
    pub(super) group: Group,
    pub(super) name: String,
    /// The system's number of the thread, if no other track of the profile has it.
    pub(super) tid: Option<u32>,
    /// The track beside which this one lies, since their slices overlap.
    pub(super) beside: Option<u32>,
}

/// What a slice is of.
#[derive(Debug, Clone, Copy)]
pub(super) enum What<'p> {
    Pass(&'p Pass),
    /// The span at this row of its table.
    Span(u32, &'p Span),
}

/// The begin of a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice<'p> {
    pub(super) track: u32,
    pub(super) start_ns: u64,
    pub(super) duration_ns: u64,
    pub(super) what: What<'p>,
    /// The arrow that begins or ends here.
    pub(super) flow: Option<Flow>,
    pub(super) launch: Option<Launched>,
    pub(super) is_on_host: bool,
}

/// When the host launched a span of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Launched {
    pub(super) issued_ns: u64,
    /// From the launch to the begin of its slice.
    pub(super) delay_ns: i64,
    /// The most that this is off by, as far as the alignments of both clocks tell.
    pub(super) error_ns: Option<u64>,
    pub(super) kind: LaunchKind,
}

impl Launched {
    fn new(profile: &Profile, group: Group, launch: &Launch, span: &Span) -> Self {
        let device = group.checked_sub(1).and_then(|nth| profile.devices.get(nth));
        let error_ns = device.and_then(DeviceProfile::clock_error_ns);
        let Launch { issued_ns, kind, .. } = *launch;
        Self { issued_ns, delay_ns: launch.delay_ns(span), error_ns, kind }
    }

    /// What is impossible about it: nothing truly begins before its launch.
    pub(super) fn oddity(&self) -> Option<&'static str> {
        let is_within_error =
            self.error_ns.is_some_and(|error| self.delay_ns.unsigned_abs() <= error);
        match (self.delay_ns < 0, is_within_error) {
            (false, _) => None,
            (true, true) => Some("begins before its launch, within the error of the clocks"),
            (true, false) => Some(
                "begins before its launch, by more than the error of the clocks when they were aligned",
            ),
        }
    }
}

/// An end of an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) id: u64,
    pub(super) is_end: bool,
}

/// A figure of a pass, plotted where the pass begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counter {
    TokensPerSecond,
    Position,
    GigabytesPerSecond,
}

impl Counter {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TokensPerSecond => "tokens/s of the pass",
            Self::Position => "tokens in the KV cache",
            Self::GigabytesPerSecond => "GB/s of stated bytes",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::TokensPerSecond => "tokens/s",
            Self::Position => "tokens",
            Self::GigabytesPerSecond => "GB/s",
        }
    }
}

/// A format of timelines.
pub(super) trait Sink {
    /// Announces a track before its first slice; called once in each part.
    fn track(&mut self, id: u32, track: &Track) -> io::Result<()>;
    /// Begins a slice. The slices of a track come in the order in which they begin.
    fn begin(&mut self, slice: &Slice<'_>) -> io::Result<()>;
    /// Ends the innermost open slice of the track.
    fn end(&mut self, track: u32, at_ns: u64) -> io::Result<()>;
    /// The host launched a span, on a track of launches; `id` is that of the arrow from there.
    fn launch(
        &mut self,
        track: u32,
        launch: &Launched,
        span: &Span,
        id: Option<u64>,
    ) -> io::Result<()>;
    /// Work was handed off: the track and time, from and to.
    fn hand_off(&mut self, id: u64, from: (u32, u64), to: (u32, u64)) -> io::Result<()>;
    fn counter(&mut self, group: Group, what: Counter, at_ns: u64, value: f64) -> io::Result<()>;
    /// Bytes written of this part.
    fn bytes(&self) -> u64;
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

/// The threads, and one for spans of threads that the profile doesn't know.
fn host_lanes(profile: &Profile) -> Vec<Lane<'_>> {
    let n = profile.lanes.len();
    let number = |lane: u32| usize::try_from(lane).unwrap_or(usize::MAX).min(n);
    let mut tids = HashSet::new();
    let names = profile.lanes.iter().enumerate().map(|(at, lane)| {
        // A thread number that the system reused belongs to another thread.
        let tid = lane.tid.filter(|&tid| i32::try_from(tid).is_ok() && tids.insert(tid));
        (lane.name.clone().unwrap_or_else(|| format!("thread {at}")), tid)
    });
    let names: Vec<_> = names.chain([("threads without a name".to_owned(), None)]).collect();
    let orders = orders(&profile.spans, n + 1, |span| number(span.lane));
    let mut passes: Vec<Vec<u32>> = vec![Vec::new(); n + 1];
    for (at, pass) in (0..).zip(&profile.passes) {
        passes[number(pass.lane)].push(at);
    }
    names
        .into_iter()
        .zip(orders)
        .zip(passes)
        .map(|(((name, tid), order), mut of_lane)| {
            of_lane.sort_by_key(|&at| profile.passes[at as usize].start_ns);
            let pass_order = of_lane.into_iter().map(|at| (at, None)).collect();
            let lane = Lane::new(0, name, tid, &profile.spans, &profile.passes);
            Lane { order, pass_order, ..lane }
        })
        .collect()
}

fn in_order(passes: &[Pass], is_wanted: impl Fn(&Pass) -> bool) -> Vec<(u32, Option<Flow>)> {
    let mut order: Vec<u32> =
        (0..).zip(passes).filter(|(_, pass)| is_wanted(pass)).map(|(at, _)| at).collect();
    order.sort_by_key(|&at| passes[at as usize].start_ns);
    order.into_iter().map(|at| (at, None)).collect()
}

/// The spans of each lane in the order in which they began. Usually that is their order in the table; then
/// nothing is stored.
fn orders(spans: &[Span], n_lanes: usize, lane_of: impl Fn(&Span) -> usize) -> Vec<Order> {
    let mut rows: Vec<Option<std::ops::Range<u32>>> = vec![Some(0..0); n_lanes];
    for (row, span) in (0_u32..).zip(spans) {
        let of_lane = &mut rows[lane_of(span)];
        let Some(before) = of_lane.clone() else { continue };
        let is_after = before.end == row
            && before
                .clone()
                .next_back()
                .is_some_and(|last| spans[last as usize].start_ns <= span.start_ns);
        *of_lane = match before.is_empty() {
            true => Some(row..row + 1),
            false => is_after.then_some(before.start..row + 1),
        };
    }
    let mut orders: Vec<Order> =
        rows.into_iter().map(|rows| rows.map_or(Order::Sorted(Vec::new()), Order::Rows)).collect();
    for (row, span) in (0_u32..).zip(spans) {
        if let Order::Sorted(rows) = &mut orders[lane_of(span)] {
            rows.push(row);
        }
    }
    for order in &mut orders {
        if let Order::Sorted(rows) = order {
            // Stable: of spans that begin at once, outer ones come first, as in the table.
            rows.sort_by_key(|&row| spans[row as usize].start_ns);
        }
    }
    orders
}

/// The hand-offs between lanes; the first lane is number `first`.
fn of_lanes(dependencies: &[Dependency], first: usize, count: usize) -> Vec<HandOff> {
    let place = |lane: u32| {
        let lane = lane as usize;
        (lane < count).then(|| (first + lane) as u32)
    };
    let hand_off = |edge: &Dependency| {
        let from = (place(edge.from.lane)?, edge.from.at_ns);
        Some(HandOff { from, to: (place(edge.to.lane)?, edge.to.at_ns) })
    };
    dependencies.iter().filter_map(hand_off).collect()
}

/// When passes begin: those of the host or, where there are none, of the devices.
fn borders(profile: &Profile) -> Vec<u64> {
    let host = profile.passes.iter();
    let mut borders: Vec<u64> = host.map(|pass| pass.start_ns).collect();
    if borders.is_empty() {
        let streams = profile.devices.iter().flat_map(|device| &device.streams);
        borders = streams.flat_map(|stream| &stream.passes).map(|pass| pass.start_ns).collect();
    }
    borders.sort_unstable();
    borders.dedup();
    borders
}

/// Arrows from passes that the host issued to what a stream did for them, where
/// [that is known](brickscope_profile::DeviceStream::issued_by).
fn link_passes(profile: &Profile, lanes: &mut [Lane<'_>], borders: &[u64]) {
    let stretch = |at: u64| borders.partition_point(|&border| border <= at);
    // The lane of each pass of the host, and its index there.
    let n_host = profile.lanes.len() + 1;
    let mut issued_at = vec![(0, 0); profile.passes.len()];
    for (lane, of) in lanes.iter().enumerate().take(n_host) {
        for (at, &(index, _)) in of.pass_order.iter().enumerate() {
            issued_at[index as usize] = (lane, at);
        }
    }
    let mut id = 0;
    // A pass has one arrow, to the first stream that worked for it.
    for lane in n_host..lanes.len() {
        let of = &lanes[lane];
        let mut done_at = vec![0; of.passes.len()];
        for (at, &(index, _)) in of.pass_order.iter().enumerate() {
            done_at[index as usize] = at;
        }
        for (issued, done) in issued(&profile.passes, of.passes) {
            let (begin, start) =
                (profile.passes[issued].start_ns, lanes[lane].passes[done].start_ns);
            let ((from, from_at), at) = (issued_at[issued], done_at[done]);
            let is_free = lanes[from].pass_order[from_at].1.is_none();
            // Both ends must be in one part.
            if is_free && stretch(begin) == stretch(start) {
                id += 1;
                lanes[from].pass_order[from_at].1 = Some(Flow { id, is_end: false });
                lanes[lane].pass_order[at].1 = Some(Flow { id, is_end: true });
            }
        }
    }
}

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Layer,
    Brick,
    Kernel,
}

impl SpanKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer",
            Self::Brick => "brick",
            Self::Kernel => "kernel",
        }
    }
}

pub(super) fn kind_of(profile: &Profile, span: &Span) -> SpanKind {
    match span.name {
        None => SpanKind::Layer,
        Some(OTHER_KERNEL) => SpanKind::Kernel,
        Some(name) => match profile.names.get(usize::from(name)) {
            Some(name) if name.kind == NameKind::Kernel => SpanKind::Kernel,
            _ => SpanKind::Brick,
        },
    }
}

/// The name at an index; `None` if the profile has none and it is not one of the catch-all names.
pub(super) fn name_of(profile: &Profile, index: u16) -> Option<&str> {
    match profile.names.get(usize::from(index)) {
        Some(name) => Some(&name.name),
        None if index == OTHER_BRICK || index == OTHER_KERNEL => Some("(other)"),
        None => None,
    }
}

/// Whether the times at which passes and spans began are known: some imported files don't have them, and
/// zeros stand for them.
#[must_use]
pub fn has_begins(profile: &Profile) -> bool {
    let untold = [
        Format::LlamaBench,
        Format::NcclInspector,
        Format::ForwardPassMetrics,
        Format::VkPerfLogger,
        Format::Folded,
    ];
    let of = profile.imported.as_ref();
    of.is_none_or(|of| untold.iter().all(|format| format.name() != of.format))
}

/// The tokens of a pass and its position; an imported file may have neither, or tokens only. llama-bench states both.
pub(super) fn told_tokens(profile: &Profile, pass: &Pass) -> [Option<u64>; 2] {
    let of = profile.imported.as_ref();
    let is_bench = of.is_some_and(|of| of.format == Format::LlamaBench.name() && pass.tokens > 0);
    [pass.tokens, pass.position].map(|n| (of.is_none() || is_bench || n > 0).then_some(n))
}

/// The stated work: elements, FLOPs, bytes.
pub(super) fn stated(work: Work) -> [(&'static str, Option<u64>); 3] {
    let some = |count: u64| (count > 0).then_some(count);
    [("elements", some(work.elements)), ("flops", some(work.flops)), ("bytes", some(work.bytes))]
}
