//! What several rules need to know of devices: gaps between bricks, what the host launched when, and copies.

use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::{
    Absent, Busy, DeviceProfile, DeviceStream, Launch, LaunchKind, NameKind, Pass, Phase, Profile,
    Span, SyncMode, TransferDirection,
};

use super::Findings;
use crate::idle::Idle;
use crate::passes::is_next;
use crate::ranks::{is_of_host, name_of_device};

/// The passes of a phase on a device, summed.
#[derive(Debug)]
pub(crate) struct OnDevice<'p> {
    pub(super) index: usize,
    pub(super) device: &'p DeviceProfile,
    pub(super) phase: Phase,
    pub(crate) busy: Busy,
    /// Whether its times can be compared with the host's. Else nothing is known of what it waited for.
    pub(super) has_fitting_clock: bool,
    /// Where a file ties what ran to the host's passes: how they lie to each other.
    pub(crate) around: Option<Around>,
    /// Time in which nothing ran and the host had not launched what came next.
    pub(crate) late_ns: u64,
    /// Time in which nothing ran though what came next was launched.
    pub(crate) queued_ns: u64,
    /// Time in which nothing ran, before work of which it isn't known when it was launched.
    pub(crate) unknown_ns: u64,
    /// Time between bricks of a pass in which the device did something else: another pass, or what is of none.
    pub(crate) others_ns: u64,
    /// The longest time within a pass in which nothing ran.
    pub(crate) longest: Option<Gap>,
    /// Launches by [`LaunchKind::ALL`].
    pub(super) launches: [u64; 3],
    /// How much of what was launched by itself began right after its launch: nothing else was queued.
    pub(super) dry: u64,
    /// Time in which data were copied between host and device.
    pub(super) copies_ns: u64,
    /// The part of it in which nothing else ran.
    pub(super) bare_ns: u64,
    /// From the end of each decode pass to the begin of the next token's.
    pub(super) between_ns: Vec<u64>,
}

/// A time within a pass in which nothing ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Without what ran in it of other passes.
    pub(crate) ns: u64,
    /// For how much of it the host had not launched what came next; `None` if that isn't known.
    pub(crate) late_ns: Option<u64>,
    /// What ran before it, and what comes next.
    between: [Place; 2],
    from_ns: u64,
    /// From its end to the end of the pass.
    pub(crate) rest_ns: u64,
    /// The part of that in which nothing ran.
    pub(crate) idle_ns: u64,
}

/// Where a brick is: the stream, and the row of its spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    stream: usize,
    row: u32,
}

/// What ran, by two names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran<'p> {
    pub(crate) brick: &'p str,
    /// The first kernel of it; the brick, if it has none.
    pub(crate) kernel: &'p str,
}

/// The host's passes, and what they launched on a device: sums over these passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Around {
    /// Of the host, from the begin of each pass to its end.
    pub(crate) host_ns: u64,
    /// From the begin of a pass to its first kernel, as long as the device did nothing else.
    pub(crate) before_ns: u64,
    /// The part of it in which the host had launched nothing yet.
    pub(crate) unlaunched_ns: u64,
    /// What else of it lies before all that the file has of the device: what ran then, the file can't tell.
    pub(crate) edge_ns: u64,
    /// What is left of the host's pass behind the last kernel, as long as the device did nothing else.
    pub(crate) behind_ns: u64,
    /// What is left of the kernels behind the end of the host's pass.
    pub(crate) after_ns: u64,
}

impl<'p> OnDevice<'p> {
    pub(super) fn a_pass(&self, sum: u64) -> f64 {
        sum as f64 / self.busy.passes.max(1) as f64
    }

    pub(super) fn span_ns(&self) -> f64 {
        self.a_pass(self.busy.span_ns)
    }

    /// Time before the first kernels of passes in which these were launched and did not begin. What ran before the file
    /// begins may have kept the first pass: that counts where it is longer than all work.
    pub(crate) fn before_first_ns(&self) -> u64 {
        let around = self.around.unwrap_or_default();
        let edge_ns = if around.edge_ns <= self.busy.busy_ns { around.edge_ns } else { 0 };
        let launched_ns = around.before_ns.saturating_sub(around.unlaunched_ns);
        launched_ns.saturating_sub(edge_ns)
    }

    /// The part of so much time of a pass in which it did nothing at all.
    pub(super) fn idle_ns(&self, whole_ns: f64) -> f64 {
        whole_ns - self.a_pass(self.busy.busy_ns.saturating_add(self.others_ns))
    }

    pub(super) fn place(&self, what: &str) -> String {
        format!("/devices/{}/streams, {what}", self.index)
    }

    /// What ran before and after the longest gap.
    pub(crate) fn around_longest(&self, profile: &'p Profile) -> Option<[Ran<'p>; 2]> {
        let [before, after] = self.longest?.between.map(|place| self.ran(profile, place));
        before.zip(after).map(|(before, after)| [before, after])
    }

    fn ran(&self, profile: &'p Profile, place: Place) -> Option<Ran<'p>> {
        let spans = &self.device.streams.get(place.stream)?.spans;
        let brick = name_of(profile, spans.get(place.row as usize)?)?;
        let inside = spans.get(place.row as usize + 1).filter(|of| of.parent == Some(place.row));
        let kernel = inside.and_then(|span| name_of(profile, span)).unwrap_or(brick);
        Some(Ran { brick, kernel })
    }

    /// Its name for sentences: only where there are others.
    pub(super) fn name(&self, profile: &Profile) -> String {
        name_of_device(profile, self.index)
    }
}

fn name_of<'p>(profile: &'p Profile, span: &Span) -> Option<&'p str> {
    Some(&*profile.names.get(usize::from(span.name?))?.name)
}

/// All devices and phases that can be judged; what can't goes to `unknown`. Of another rank's device the profile lacks the host:
/// how long its launches took isn't known, and its devices would repeat what is said of the first rank's.
pub(super) fn all<'p>(profile: &'p Profile, findings: &mut Findings) -> Vec<OnDevice<'p>> {
    let mut all = Vec::new();
    let devices = profile.devices.iter().enumerate();
    for (index, device) in devices.filter(|(_, device)| is_of_host(profile, device.rank)) {
        for phase in Phase::SHOWN {
            let has_passes = |stream: &DeviceStream| {
                stream.passes.iter().any(|pass| pass.phase == phase)
                    || stream.phases.iter().any(|total| total.phase == phase)
            };
            if !device.streams.iter().any(has_passes) {
                continue;
            }
            match profile.sync_mode {
                SyncMode::Immediate | SyncMode::PerLayer => {
                    findings.unknown(
                        "launch-bound",
                        format!(
                            "what slows {phase} down on a device is not known: the host waited after each brick or layer, \
                             so the gaps are the profiler's"
                        ),
                    );
                    continue;
                }
                SyncMode::Deferred | SyncMode::None => {}
            }
            match on_device(profile, index, device, phase) {
                Ok(of) => all.push(of),
                Err(Absent { reason }) => findings.unknown(
                    "launch-bound",
                    format!("what slows {phase} down on a device is not known: {reason}"),
                ),
            }
        }
    }
    all
}

/// What begins so soon after its launch found an idle device: drivers take some microseconds.
pub(super) const RIGHT_AFTER_NS: i64 = 10_000;

/// A brick on a stream.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    launch: Option<Launch>,
    is_copy: bool,
    place: Place,
}

pub(crate) fn on_device<'p>(
    profile: &'p Profile,
    index: usize,
    device: &'p DeviceProfile,
    phase: Phase,
) -> Result<OnDevice<'p>, Absent> {
    let busy = device.busy(Some(phase))?;
    let mut of = OnDevice {
        index,
        device,
        phase,
        busy,
        has_fitting_clock: profile.imported.is_none() || !device.clock_misfits().any(),
        around: None,
        late_ns: 0,
        queued_ns: 0,
        unknown_ns: 0,
        others_ns: 0,
        longest: None,
        launches: [0; 3],
        dry: 0,
        copies_ns: 0,
        bare_ns: 0,
        between_ns: between(device),
    };
    // Of the host of another rank, there are no spans.
    let is_of_host = is_of_host(profile, device.rank);
    let calls = if is_of_host { launching(profile) } else { HashMap::new() };
    let mut pieces: BTreeMap<u32, Vec<Piece>> =
        device.busy_by_pass(Some(phase)).into_keys().map(|serial| (serial, Vec::new())).collect();
    for (at, stream) in device.streams.iter().enumerate() {
        let inside = Inside::of(profile, stream);
        for (row, span) in (0_u32..).zip(&stream.spans) {
            let Some(pass) = span.pass.and_then(|serial| pieces.get_mut(&serial)) else { continue };
            if let Some(launch) = stream.launch_of(row) {
                of.launches[launch.kind as usize] += 1;
                let is_dry =
                    of.has_fitting_clock && (0..=RIGHT_AFTER_NS).contains(&launch.delay_ns(span));
                of.dry += u64::from(launch.kind == LaunchKind::Issued && is_dry);
            }
            // As `DeviceProfile::busy` counts.
            if span.exclusive_ns == 0 {
                continue;
            }
            let launch = stream.launch_of(row).or_else(|| inside.launches.get(&row)).copied();
            let launch = launch.filter(|_| of.has_fitting_clock);
            pass.push(Piece {
                start: span.start_ns,
                end: span.start_ns.saturating_add(span.duration_ns),
                launch: launch.map(|launch| launched(launch, &calls)),
                is_copy: is_copy(profile, span) || inside.copies.contains(&row),
                place: Place { stream: at, row },
            });
        }
    }
    // No launch is late by less than the clocks are aligned.
    let error = device.clock_error_ns().unwrap_or(0);
    let idle = Idle::of_device(device);
    for pieces in pieces.values_mut() {
        pieces.sort_by_key(|piece| (piece.start, piece.end));
        gaps(pieces, &idle, error, &mut of);
        copies(pieces, &mut of);
    }
    if profile.imported.is_some() && is_of_host && of.has_fitting_clock {
        of.around = around(profile, &idle, &pieces);
    }
    Ok(of)
}

/// Of files that tell it: when the host's launches of kernels began, and how long each took.
fn launching(profile: &Profile) -> HashMap<u64, u64> {
    let is_launch = |span: &&Span| {
        let name = span.name.and_then(|name| profile.names.get(usize::from(name)));
        name.is_some_and(|name| name.name == "Launch")
    };
    let spans = profile.imported.iter().flat_map(|_| &profile.spans);
    spans.filter(is_launch).map(|span| (span.start_ns, span.duration_ns)).collect()
}

/// A launch by when the host was done with it: the first one of a kernel may load it, for milliseconds. Kernels of a graph
/// begin while the host still launches it.
fn launched(launch: Launch, calls: &HashMap<u64, u64>) -> Launch {
    let call = calls.get(&launch.issued_ns).filter(|_| launch.kind == LaunchKind::Issued);
    let took = call.copied().unwrap_or(0);
    Launch { issued_ns: launch.issued_ns.saturating_add(took), ..launch }
}

/// How passes of the host lie to what they launched. `None` if the host has no such pass.
fn around(profile: &Profile, idle: &Idle, pieces: &BTreeMap<u32, Vec<Piece>>) -> Option<Around> {
    let mut of = Around::default();
    let mut passes = 0;
    for pass in &profile.passes {
        let Some(pieces) = pieces.get(&pass.serial).filter(|pieces| !pieces.is_empty()) else {
            continue;
        };
        let (begin, end) = (pass.start_ns, pass.start_ns.saturating_add(pass.wall_ns));
        let first = pieces[0];
        let last = pieces.iter().map(|piece| piece.end).max().unwrap_or(first.end);
        let launched = first.launch.map_or(first.start, |launch| launch.issued_ns.min(first.start));
        passes += 1;
        if idle.begins_at(first.start) {
            let before =
                idle.within(begin, first.start).saturating_sub(idle.within(begin, launched));
            of.edge_ns = of.edge_ns.saturating_add(before);
        }
        for (sum, part) in [
            (&mut of.host_ns, pass.wall_ns),
            (&mut of.before_ns, idle.within(begin, first.start)),
            (&mut of.unlaunched_ns, idle.within(begin, launched)),
            (&mut of.behind_ns, idle.within(last, end)),
            (&mut of.after_ns, last.saturating_sub(end.max(first.start))),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
    (passes > 0).then_some(of)
}

/// The gaps between decode passes that follow each other, if all passes were timed.
fn between(device: &DeviceProfile) -> Vec<u64> {
    if device.unmarked_passes > 0 || device.untimed_passes() > 0 {
        return Vec::new();
    }
    // On all streams.
    let mut passes: BTreeMap<u32, (Pass, u64)> = BTreeMap::new();
    for pass in device.streams.iter().flat_map(|stream| &stream.passes) {
        let end = pass.start_ns.saturating_add(pass.wall_ns);
        let (first, last) = passes.entry(pass.serial).or_insert((*pass, end));
        first.start_ns = first.start_ns.min(pass.start_ns);
        *last = (*last).max(end);
    }
    let mut passes: Vec<(Pass, u64)> = passes.into_values().collect();
    passes.sort_by_key(|(pass, _)| pass.start_ns);
    let follows =
        |a: &Pass, b: &Pass| a.phase == Phase::Decode && b.phase == Phase::Decode && is_next(a, b);
    let pairs = passes.windows(2).filter(|pair| follows(&pair[0].0, &pair[1].0));
    pairs.map(|pair| pair[1].0.start_ns.saturating_sub(pair[0].1)).collect()
}

/// Where passes overlap, as a server's that launches the next step before this one has ended, the device does not wait while it
/// works for another one.
fn gaps(pieces: &[Piece], idle: &Idle, error: u64, of: &mut OnDevice<'_>) {
    let Some(first) = pieces.first() else { return };
    let (mut until, mut last) = (first.start, first.place);
    let mut longest: Option<Gap> = None;
    for piece in pieces {
        let gap = idle.within(until, piece.start);
        of.others_ns =
            of.others_ns.saturating_add(piece.start.saturating_sub(until).saturating_sub(gap));
        let mut late_ns = None;
        match piece.launch {
            _ if gap == 0 => {}
            Some(Launch { issued_ns, kind: LaunchKind::Issued | LaunchKind::Replayed, .. }) => {
                let launched = issued_ns.saturating_sub(error).min(piece.start);
                let late = idle.within(until, launched);
                of.late_ns = of.late_ns.saturating_add(late);
                of.queued_ns = of.queued_ns.saturating_add(gap - late);
                late_ns = Some(late);
            }
            _ => of.unknown_ns = of.unknown_ns.saturating_add(gap),
        }
        if gap > longest.map_or(0, |of| of.ns) {
            let between = [last, piece.place];
            let from_ns = piece.start;
            longest = Some(Gap { ns: gap, late_ns, between, from_ns, rest_ns: 0, idle_ns: 0 });
        } else if let Some(longest) = &mut longest {
            longest.idle_ns = longest.idle_ns.saturating_add(gap);
        }
        if piece.end >= until {
            (until, last) = (piece.end, piece.place);
        }
    }
    let longest = longest.filter(|own| own.ns > of.longest.map_or(0, |of| of.ns));
    if let Some(own) = longest {
        of.longest = Some(Gap { rest_ns: until.saturating_sub(own.from_ns), ..own });
    }
}

fn copies(pieces: &[Piece], of: &mut OnDevice<'_>) {
    if !pieces.iter().any(|piece| piece.is_copy) {
        return;
    }
    let mut edges: Vec<(u64, i32, bool)> = pieces
        .iter()
        .flat_map(|piece| [(piece.start, 1, piece.is_copy), (piece.end, -1, piece.is_copy)])
        .collect();
    edges.sort_unstable();
    let (mut copying, mut others, mut since) = (0, 0, 0);
    for (at, change, is_copy) in edges {
        let ns = at.saturating_sub(since);
        if copying > 0 {
            of.copies_ns = of.copies_ns.saturating_add(ns);
            if others == 0 {
                of.bare_ns = of.bare_ns.saturating_add(ns);
            }
        }
        *(if is_copy { &mut copying } else { &mut others }) += change;
        since = at;
    }
}

/// What is known of bricks by the kernels inside of them.
#[derive(Default)]
struct Inside {
    /// The launch of the first kernel.
    launches: HashMap<u32, Launch>,
    copies: HashSet<u32>,
}

impl Inside {
    fn of(profile: &Profile, stream: &DeviceStream) -> Self {
        let mut inside = Self::default();
        for (row, span) in (0_u32..).zip(&stream.spans) {
            let name = span.name.and_then(|name| profile.names.get(usize::from(name)));
            let Some(parent) =
                span.parent.filter(|_| name.is_some_and(|name| name.kind == NameKind::Kernel))
            else {
                continue;
            };
            if is_copy(profile, span) {
                inside.copies.insert(parent);
            }
            // Spans are in the order of their begin.
            if let Some(&launch) = stream.launch_of(row) {
                inside.launches.entry(parent).or_insert(launch);
            }
        }
        inside
    }
}

/// Whether a span copies between the memories of host and device: as the engine said, or by CUPTI's and ROCm's names.
fn is_copy(profile: &Profile, span: &Span) -> bool {
    let name = span.name.and_then(|name| profile.names.get(usize::from(name)));
    name.is_some_and(|name| match &name.transfer {
        Some(route) => route.direction != TransferDirection::D2D,
        None => ["Memcpy HtoD", "Memcpy DtoH", "CopyHostToDevice", "CopyDeviceToHost"]
            .iter()
            .any(|begin| name.name.starts_with(begin)),
    })
}
