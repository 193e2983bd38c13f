//! What devices did, by their clocks: kernels and copies, a table for each stream.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::{
    Absent, DeviceProfile, DeviceStream, Launch, LaunchKind, Name, Pass, Phase, Profile, Source,
    Span, Ticks, Work,
};

use super::attention::Why;
use super::collective::{self, Placed as PlacedCollective};
use super::endless;
use super::experts::Experts;
use super::host::{self, Host, launch_of, phase_of};
use super::inside::Inside;
use super::stated::Stated;
use super::table::Found;
use super::unruled::Unruled;
use super::{EventKind, Link, MARKER, Names, described, work};
use crate::import::trace::{Timed, Trace, pass_of};

/// How many pieces of work may run at once on a stream: with programmatic dependent launch, the next kernel begins before
/// the last one ends.
const MOST_AT_ONCE: usize = 4;

/// How the name of a device ends that the file doesn't name.
pub(in crate::import) const UNNAMED: &str = "whose name isn't stated";

/// The most streams, of all devices together. A server has some tens.
const MOST_STREAMS: usize = 4096;

/// The most ranges around a kernel that are looked at.
const MOST_RANGES: usize = 64;

/// What is known of devices beside their profiles.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Kernels, copies and the like.
    pub(super) work: u64,
    /// Those of them whose launch is not in the file.
    pub(super) unlaunched: u64,
    pub(super) overlapping: u64,
    /// Work of streams of which there are more than are kept.
    pub(super) beyond: u64,
    /// What only marks a place in a queue.
    pub(super) markers: u64,
    pub(super) passes: usize,
    /// Calls that launched a kernel or a graph, and those of them of which nothing is there.
    pub(super) launches: u64,
    pub(super) missing: u64,
    /// Those that begin before the one before them in their stream has ended, as no device does it.
    pub(super) overrun: u64,
    /// Those that last longer than kernels do.
    pub(super) endless: u64,
    /// Kernels in which devices exchange data.
    pub(super) collectives: Vec<PlacedCollective>,
    /// The numbers that the file has for the devices, in their order in the profile.
    pub(super) numbers: Vec<u64>,
    /// Those of them that are in no pass for that, and how long they ran.
    pub(super) in_no_pass: u64,
    in_no_pass_ns: u64,
    /// How long all of it ran, and how long that whose work is known.
    pub(super) of_ns: u64,
    pub(super) known_ns: u64,
    /// How many attentions ran whose work isn't known, by what it lacks.
    pub(super) attentions_without_work: BTreeMap<Why, u64>,
}

impl Counts {
    /// The part of the devices' time that is in no pass since launches are missing, if it is worth a word.
    pub(super) fn share_in_no_pass(&self) -> Option<f64> {
        const LEAST: f64 = 0.05;
        let share = self.in_no_pass_ns as f64 / self.of_ns.max(1) as f64;
        (share >= LEAST).then_some(share)
    }
}

/// By so much a kernel may begin before the one before it has ended, as programs may ask for (programmatic launches).
const AT_ONCE_NS: i64 = 50_000;

/// Work of one stream that doesn't overlap.
#[derive(Default)]
struct Row {
    until: i64,
    spans: Vec<Span>,
    launches: Vec<Launch>,
    /// By serial.
    passes: BTreeMap<u32, Pass>,
}

/// Work that no number ties to a call: any may be what a launch without work has launched.
#[derive(Default)]
struct Unclaimed {
    /// Of no number, as files of 2021 and those with the numbers of operations alone have it.
    unnumbered: u64,
    /// Of a number that no call has, as some tools number the kernels of graphs.
    unmatched: u64,
}

impl Unclaimed {
    fn add(&mut self, link: Option<&Link>, host: &Host) {
        match link.and_then(|link| link.correlation) {
            None => self.unnumbered += 1,
            Some(of) => self.unmatched += u64::from(!host.by_correlation.contains_key(&of)),
        }
    }

    /// How many launches have no work at least.
    fn missing(&self, host: &Host, seen: &HashSet<u64>) -> u64 {
        let unseen = |of: &[u64]| of.iter().filter(|of| !seen.contains(of)).count() as u64;
        let (kernels, graphs) = (unseen(&host.launches), unseen(&host.graph_launches));
        let left = self.unnumbered.saturating_sub(kernels).saturating_add(self.unmatched);
        kernels.saturating_sub(self.unnumbered) + graphs.saturating_sub(left)
    }
}

/// A device, a stream of it, and the process that has the stream if several are told apart.
type StreamOf = (u64, u64, Option<u64>);

/// Makes the profiles of the devices.
pub(super) fn profiles(
    trace: &Trace,
    timed: &[Timed],
    origin: i64,
    host: &Host,
    inside: &Inside,
    names: &mut Names<'_>,
    profile: &mut Profile,
) -> Counts {
    let mut counts = Counts::default();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut unclaimed = Unclaimed::default();
    // By device, number and process.
    let mut streams: BTreeMap<StreamOf, Vec<(usize, &Timed)>> = BTreeMap::new();
    for (at, event) in timed.iter().enumerate().filter(|(_, event)| event.kind.is_of_device()) {
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        let place = link.map(|link| (link.device, link.stream, link.process)).unwrap_or_default();
        if streams.len() == MOST_STREAMS && !streams.contains_key(&place) {
            counts.beyond += u64::from(event.kind == EventKind::Work);
            seen.extend(link.and_then(|link| link.correlation));
            continue;
        }
        streams.entry(place).or_default().push((at, event));
    }
    let intervals = intervals(&profile.passes);
    let mut serial = profile.passes.len() as u32;
    let mut kernels: HashMap<u32, Option<u16>> = HashMap::new();
    let mut unruled = Unruled::default();
    let (works, without) = work::of_kernels(trace, timed, host, inside);
    counts.attentions_without_work = without;
    let copies = work::stated_copies(trace, timed);
    let mut scopes = Told::new();
    let mut experts = Experts::default();
    let mut devices: BTreeMap<u64, Vec<DeviceStream>> = BTreeMap::new();
    for ((device, stream, process), mut events) in streams {
        events.sort_by_key(|(_, event)| {
            (event.start, Reverse(event.end), event.kind == EventKind::Work)
        });
        let mut rows: Vec<Row> = Vec::new();
        // When all work so far has ended, if it was launched by itself.
        let mut last: Option<i64> = None;
        // The ranges around, each with its pass.
        let mut ranges: Vec<(&Timed, Option<(u32, Phase)>)> = Vec::new();
        for (at, event) in events {
            ranges.retain(|(range, _)| range.end > event.start);
            if event.kind == EventKind::RangeOfWork {
                let is_inside = ranges.iter().any(|(_, pass)| pass.is_some());
                // Where the host has passes, a kernel is in the one that launched it.
                let is_wanted = !is_inside && profile.passes.is_empty();
                let pass = event.phase().filter(|_| is_wanted).map(|phase| {
                    serial += 1;
                    (serial, phase)
                });
                if ranges.len() < MOST_RANGES {
                    ranges.push((event, pass));
                }
                continue;
            }
            let name = &trace.names[event.name as usize];
            let link = event.link.and_then(|link| trace.links.get(link as usize));
            if name == MARKER {
                counts.markers += 1;
                seen.extend(link.and_then(|link| link.correlation));
                continue;
            }
            counts.work += 1;
            unruled.of_ns = unruled.of_ns.saturating_add(event.end.abs_diff(event.start));
            let launch = link.and_then(|link| launch_of(host, link));
            counts.unlaunched += u64::from(launch.is_none());
            unclaimed.add(link, host);
            seen.extend(link.and_then(|link| link.correlation));
            let mut around = Around::of(trace, &ranges, &mut scopes, names);
            if let Some(scope) = link.and_then(|link| link.scope) {
                let told = || told_by(&trace.names[scope as usize], names);
                let (brick, stated) = *scopes.entry(scope).or_insert_with(told);
                (around.brick, around.stated) =
                    (brick.or(around.brick), stated.inside(around.stated));
            }
            let by_kernel =
                *kernels.entry(event.name).or_insert_with(|| match names.table.kernel(name) {
                    Some(Found::Brick(brick)) => Some(names.brick(brick)),
                    _ => None,
                });
            // What is around the launch of a graph tells nothing of each kernel in it.
            let alone = launch.filter(|launch| !launch.is_graph);
            let told =
                inside.brick(at).or_else(|| alone.and_then(|launch| launch.brick)).or(around.brick);
            let brick = by_kernel
                .filter(|kernel| told.is_some_and(|told| is_part(&names.names, *kernel, told)))
                .or(told)
                .or(by_kernel)
                .unwrap_or_else(|| {
                    unruled.add(event.name, event.end.abs_diff(event.start));
                    let op = alone.and_then(|launch| launch.op);
                    names.brick(op.map_or(name, |op| &trace.names[op as usize]))
                });
            let layer = alone
                .and_then(|launch| launch.layer)
                .or(around.stated.layer)
                .or_else(|| inside.layer(at));
            // A launch tells all that is around it.
            let expert = match alone {
                Some(launch) => launch.expert,
                None => around.stated.expert.or_else(|| inside.expert(at)),
            };
            let pass = match launch {
                Some(launch) => launch
                    .pass
                    .or_else(|| pass_at(&intervals, launch.issued_ns))
                    .and_then(|serial| Some((serial, phase_of(profile, serial)?)))
                    // Of the device's own, if the host has none.
                    .or(around.pass),
                None => around.pass,
            };
            if launch.is_none() && pass.is_none() {
                counts.in_no_pass += 1;
                let ns = event.end.abs_diff(event.start);
                counts.in_no_pass_ns = counts.in_no_pass_ns.saturating_add(ns);
            }
            let by_table = by_kernel.and_then(|brick| names.names.get(usize::from(brick)));
            if collective::is_one(trace, event, by_table.map(|brick| &*brick.name)) {
                let pass = pass.map(|(serial, _)| serial);
                counts.collectives.push(PlacedCollective { event: at, device, pass, layer });
            }
            // The first row that is free; a row more if there is none.
            let free = match rows.iter().position(|row| row.until <= event.start) {
                Some(free) => free,
                None if rows.len() == MOST_AT_ONCE => {
                    counts.overlapping += 1;
                    continue;
                }
                None => {
                    rows.push(Row { until: i64::MIN, ..Row::default() });
                    rows.len() - 1
                }
            };
            // A stream computes one thing after the other, but for what is in a graph.
            if let Some(last) = last.filter(|_| alone.is_some()) {
                counts.overrun += u64::from(last.saturating_sub(event.start) > AT_ONCE_NS);
            }
            last = alone.map(|_| last.map_or(event.end, |last| last.max(event.end)));
            let row = &mut rows[free];
            row.until = event.end;
            let work = works.get(&at).copied().unwrap_or_default();
            if work != Work::default() {
                counts.known_ns = counts.known_ns.saturating_add(event.end.abs_diff(event.start));
            }
            if let (Some(expert), Some((serial, phase))) = (expert, pass) {
                let ns = event.end.abs_diff(event.start);
                experts.add((phase, layer), expert, serial, ns);
            }
            let copied = link.and_then(|link| link.bytes).filter(|_| copies.contains(&event.name));
            let placed = Placed { brick, layer, pass, launch, link, work, copied };
            row.add(event, origin, placed, name, names);
        }
        for (nth, row) in rows.into_iter().enumerate() {
            // What runs on stream 7 while other work of it does is on "stream 7b".
            let more = ["", "b", "c", "d"][nth.min(MOST_AT_ONCE - 1)];
            let of = process.map_or(String::new(), |process| format!(" of process {process}"));
            let name = format!("stream {stream}{more}{of}");
            counts.passes += row.passes.len();
            devices.entry(device).or_default().push(row.stream(name));
        }
    }
    counts.endless = endless::count(trace, timed, host, names.table);
    profile.experts = experts.layers();
    counts.of_ns = unruled.of_ns;
    if let Some(imported) = &mut profile.imported {
        imported.unruled = unruled.told(trace, names.table);
    }
    counts.launches = (host.launches.len() + host.graph_launches.len()) as u64;
    counts.missing = unclaimed.missing(host, &seen);
    let described = described(trace);
    let calls = |begin: &str| trace.names.iter().any(|name| name.starts_with(begin));
    let api = match (calls("hip"), calls("cuda") || calls("cuLaunch")) {
        (true, _) => "hip",
        (false, true) => "cuda",
        (false, false) => "API not stated",
    };
    // Files of AMD's may number the only device otherwise there.
    let only = described.names.values().next().filter(|_| described.names.len() == 1);
    let only = only.filter(|_| devices.len() == 1);
    let ticks = Ticks { ns_per_tick: 1.0, resolution_ns: None, valid_bits: 64 };
    for (device, streams) in devices {
        counts.numbers.push(device);
        let name = described.names.get(&device).or(only).filter(|name| !name.is_empty()).cloned();
        profile.devices.push(DeviceProfile {
            name: name.unwrap_or_else(|| format!("device {device}, {UNNAMED}")),
            api: api.to_owned(),
            driver: described.driver.clone(),
            stamp_absent: Some(Absent { reason: "the file doesn't say it".to_owned() }),
            streams,
            ..DeviceProfile::empty(ticks)
        });
    }
    counts
}

/// The brick, and the layer and expert, that names tell, by their numbers.
type Told = HashMap<u32, (Option<u16>, Stated)>;

/// What the ranges around a kernel tell.
#[derive(Default)]
struct Around {
    brick: Option<u16>,
    stated: Stated,
    pass: Option<(u32, Phase)>,
}

impl Around {
    fn of(
        trace: &Trace,
        ranges: &[(&Timed, Option<(u32, Phase)>)],
        told: &mut Told,
        names: &mut Names<'_>,
    ) -> Self {
        let mut around = Self::default();
        for (range, pass) in ranges {
            around.pass = around.pass.or(*pass);
            let by_name = || told_by(&trace.names[range.name as usize], names);
            let (brick, stated) = *told.entry(range.name).or_insert_with(by_name);
            (around.brick, around.stated) = (brick.or(around.brick), stated.inside(around.stated));
        }
        around
    }
}

/// The brick, and the layer and expert, that the name of a range tells.
fn told_by(name: &str, names: &mut Names<'_>) -> (Option<u16>, Stated) {
    let brick = match names.table.range(name) {
        Some(Found::Brick(brick)) => Some(names.brick(brick)),
        _ => None,
    };
    (brick, Stated::by(name))
}

/// What a piece of work belongs to.
struct Placed<'h> {
    brick: u16,
    layer: Option<u16>,
    pass: Option<(u32, Phase)>,
    launch: Option<&'h host::Launch>,
    link: Option<&'h Link>,
    work: Work,
    /// The bytes of a copy.
    copied: Option<u64>,
}

impl Row {
    fn add(
        &mut self,
        event: &Timed,
        origin: i64,
        placed: Placed<'_>,
        name: &str,
        names: &mut Names<'_>,
    ) {
        let Placed { brick, layer, pass, launch, link, work, copied } = placed;
        let start_ns = event.start.abs_diff(origin);
        let duration_ns = event.end.abs_diff(event.start);
        let span = Span {
            name: Some(brick),
            source: Source::Device,
            lane: 0,
            pass: pass.map(|(serial, _)| serial),
            layer,
            parent: None,
            start_ns,
            duration_ns,
            exclusive_ns: duration_ns,
            work,
        };
        let row = self.spans.len() as u32;
        self.spans.push(span);
        // One that nothing tells more of is in a brick of its own name.
        let kernel = names.kernel_of_device(name, link);
        // What a copy moved goes over a link more often than through the device's memory, so bricks, which are held to the
        // limits of that, don't have it.
        let work = Work { bytes: copied.unwrap_or(work.bytes), ..work };
        self.spans.push(Span {
            name: Some(kernel),
            parent: Some(row),
            exclusive_ns: 0,
            work,
            ..span
        });
        let launched = row + 1;
        if let Some(launch) = launch {
            let kind = if launch.is_graph { LaunchKind::Replayed } else { LaunchKind::Issued };
            self.launches.push(Launch { span: launched, issued_ns: launch.issued_ns, kind });
        }
        if let Some((serial, phase)) = pass {
            let pass =
                self.passes.entry(serial).or_insert_with(|| pass_of(serial, phase, 0, start_ns, 0));
            // Work is in the order of its begin.
            pass.wall_ns = event.end.abs_diff(origin).abs_diff(pass.start_ns);
            pass.attributed_ns += duration_ns;
            pass.unattributed_ns = pass.wall_ns - pass.attributed_ns;
        }
    }

    fn stream(self, name: String) -> DeviceStream {
        let mut passes: Vec<Pass> = self.passes.into_values().collect();
        passes.sort_by_key(|pass| pass.start_ns);
        DeviceStream {
            name,
            passes,
            spans: self.spans,
            launches: self.launches,
            ..DeviceStream::default()
        }
    }
}

/// Whether what a kernel's name tells is a part of what the operation or module around it does: a mixture of experts has its
/// router, and attention writes the cache of keys and values.
fn is_part(names: &[Name], kernel: u16, told: u16) -> bool {
    let name = |of: u16| names.get(usize::from(of)).map_or("", |name| &*name.name);
    match name(told) {
        "Experts" => matches!(name(kernel), "Router" | "Dispatch" | "Combine" | "Communication"),
        "FlashAttention" => matches!(name(kernel), "KvCache"),
        _ => false,
    }
}

/// Begin, end and serial of the host's passes, if none begins in another one.
pub(super) fn intervals(passes: &[Pass]) -> Vec<(u64, u64, u32)> {
    let mut intervals: Vec<(u64, u64, u32)> = passes
        .iter()
        .map(|pass| (pass.start_ns, pass.start_ns.saturating_add(pass.wall_ns), pass.serial))
        .collect();
    intervals.sort_unstable();
    if intervals.windows(2).any(|two| two[1].0 < two[0].1) { Vec::new() } else { intervals }
}

/// The pass in which a thread of no pass launched something.
pub(super) fn pass_at(intervals: &[(u64, u64, u32)], at: u64) -> Option<u32> {
    let after = intervals.partition_point(|&(start, ..)| start <= at);
    let (_, end, serial) = *intervals.get(after.checked_sub(1)?)?;
    (at < end).then_some(serial)
}
