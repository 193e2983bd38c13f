//! Traces of PyTorch's profiler, which Kineto writes as Chrome's trace events with categories and arguments of its own.
//! <https://github.com/pytorch/kineto>
//!
//! Host and devices have tables of their own, since their times pass at once. On the host, an operation has the time that
//! is in none of the operations inside of it; time in no operation is Python's and unattributed. A kernel has the layer
//! and the brick of the operation whose call launched it, which has the same `correlation`.
//!
//! `host.rs` makes the host's spans, `device.rs` those of the devices, `collective.rs` finds the collectives among these,
//! `experts.rs` sums those of experts, `table.rs` knows which brick an event is, and `stated.rs` which layer and expert.
//! `shapes.rs` tells the work of products, `attention.rs` and `attention_args.rs` that of attention, `work.rs` which kernels
//! do it. What is inside of graphs, `layers.rs` finds out: by a trace of their capture (`recorded.rs`, `counted.rs`,
//! `capture.rs`), by `annotations.rs`, or by the order of the kernels, where `missing.rs` sees that some aren't there
//! (`order.rs`, `sequence/`). `endless.rs` counts kernels whose durations can't be right. `merged.rs` reads each rank of a
//! file that was merged of several by itself.

mod annotations;
mod attention;
mod attention_args;
mod capture;
mod collective;
mod counted;
mod device;
mod endless;
mod experts;
mod host;
mod inside;
mod layers;
mod merged;
mod missing;
mod order;
mod recorded;
mod sequence;
mod shapes;
mod stated;
mod table;
mod unruled;
mod work;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::text::percent;
use brickscope_profile::{
    Absent, ClockMisfits, DeviceLaunch, DeviceProfile, HostLaunch, Name, NameKind, Phase, Profile,
    time_rfc3339,
};
use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) use self::annotations::note;
pub(super) use self::attention_args::Attentions;
pub(super) use self::collective::Collectives;
pub(super) use self::device::UNNAMED;
pub(super) use self::merged::{labelled, read};
pub use self::recorded::Captured;
pub(super) use self::recorded::captured;
pub(super) use self::shapes::Products;
pub(super) use self::table::{LISTS, OPERATION, Table};
use super::ranks;
use super::totals::{MOST_NAMES, phases, totals};
use super::trace::{self, Trace};
use super::values::words;
use super::{At, Format, ImportError, Options, UNDATED, lacks, left_out};

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EventKind {
    /// An operation, or any other work of the host.
    #[default]
    Op,
    /// A call of the runtime or driver of a device.
    Call,
    /// A range that a program named.
    Range,
    /// A call of an `nn.Module`.
    Module,
    /// A call of another function of Python.
    Function,
    /// A kernel, a copy or the like on a device.
    Work,
    /// A named range on a device, from the first of its kernels to the end of the last.
    RangeOfWork,
    /// The profiler itself.
    Profiler,
}

/// What HIP puts between kernels, so that they wait for each other: no kernel, though it is listed as one.
pub(super) const MARKER: &str = "Marker";

/// What the name of a module's call begins with.
const MODULE: &str = "nn.Module: ";

impl EventKind {
    /// The kind of an event by its category; `None` for those that only other programs write.
    pub(super) fn of(category: &str, name: &str) -> Option<Self> {
        Some(match category {
            // The older names are those of 2021.
            "cpu_op" | "Operator" => Self::Op,
            "user_annotation" => Self::Range,
            "python_function" if name.starts_with(MODULE) => Self::Module,
            "python_function" => Self::Function,
            "kernel" | "Kernel" | "concurrent_kernel" | "gpu_memcpy" | "Memcpy" | "gpu_memset"
            | "Memset" | "mtia_ccp_events" => Self::Work,
            "gpu_user_annotation" => Self::RangeOfWork,
            "Runtime" => Self::Call,
            "Trace" | "overhead" | "cuda_sync" | "cuda_event" => Self::Profiler,
            call if call.ends_with("_runtime") || call.ends_with("_driver") => Self::Call,
            _ => return None,
        })
    }

    /// Whether only PyTorch's profiler writes a category. Other programs may call theirs `my_runtime`.
    pub(super) fn is_sure(category: &str, name: &str) -> bool {
        let is_of_2021 = || name.starts_with("aten::") || name.starts_with("ProfilerStep#");
        category == "Operator" && is_of_2021()
            || matches!(
                category,
                "cpu_op"
                    | "python_function"
                    | "user_annotation"
                    | "gpu_user_annotation"
                    | "kernel"
                    | "gpu_memcpy"
                    | "gpu_memset"
                    | "cuda_runtime"
                    | "cuda_driver"
            )
    }

    /// Whether it has a [`Link`].
    pub(super) fn is_linked(self) -> bool {
        matches!(self, Self::Op | Self::Call | Self::Work | Self::RangeOfWork)
    }

    /// Whether people gave it its name.
    pub(super) fn is_range(self) -> bool {
        matches!(self, Self::Range | Self::RangeOfWork)
    }

    /// Whether it passed on a device.
    pub(super) fn is_of_device(self) -> bool {
        matches!(self, Self::Work | Self::RangeOfWork)
    }
}

/// What ties the work of a device to the call that launched it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Link {
    /// The number of the call.
    pub(super) correlation: Option<u64>,
    /// The number of the operation.
    pub(super) external: Option<u64>,
    pub(super) device: u64,
    pub(super) stream: u64,
    /// Whose stream it is, where several processes have one of this number.
    pub(super) process: Option<u64>,
    /// Blocks and their threads, and bytes of shared memory.
    pub(super) launch: Option<(Dimensions, Dimensions, u32)>,
    /// Of a kernel in a graph: its node, and the graph.
    pub(super) graph_node: Option<u64>,
    pub(super) graph: Option<u64>,
    /// What it is a part of by its own arguments: the number of a name, which is like that of a range.
    pub(super) scope: Option<u32>,
    /// Of a copy: the bytes that it moved, as the file states them.
    pub(super) bytes: Option<u64>,
}

pub(super) type Dimensions = (u32, u32, u32);

impl Link {
    /// The link of work of this device, on a stream of it.
    pub(super) fn on(device: u64, stream: u64) -> Self {
        Self { device, stream, ..Self::default() }
    }

    /// With the number of the call; 0 is none.
    pub(super) fn called(self, correlation: u64) -> Self {
        Self { correlation: Some(correlation).filter(|&number| number > 0), ..self }
    }

    /// With the blocks of a kernel, their threads, and bytes of shared memory.
    pub(super) fn launched(self, grid: Dimensions, block: Dimensions, shared: u32) -> Self {
        Self { launch: Some((grid, block, shared)), ..self }
    }

    /// With the number of a name that tells, like that of a range, what the work is a part of.
    pub(super) fn within(self, scope: Option<u32>) -> Self {
        Self { scope, ..self }
    }

    /// The link that an event's arguments state.
    pub(super) fn of(
        args: Option<&RawValue>,
        pid: Option<&RawValue>,
        tid: Option<&RawValue>,
    ) -> Self {
        #[derive(Deserialize)]
        struct Args<'a> {
            #[serde(borrow, default)]
            correlation: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "External id", alias = "external id")]
            external: Option<&'a RawValue>,
            #[serde(borrow, default)]
            device: Option<&'a RawValue>,
            #[serde(borrow, default)]
            stream: Option<&'a RawValue>,
            #[serde(borrow, default)]
            grid: Option<&'a RawValue>,
            #[serde(borrow, default)]
            block: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "shared memory")]
            shared: Option<&'a RawValue>,
            #[serde(borrow, default)]
            bytes: Option<&'a RawValue>,
        }
        let args = args.and_then(|args| serde_json::from_str::<Args<'_>>(args.get()).ok());
        // Who rewrites a file may write `1.0`.
        let number = |value: Option<&RawValue>| {
            let text = words(value);
            let whole = text.split_once('.').filter(|(_, rest)| rest.bytes().all(|c| c == b'0'));
            whole.map_or(&*text, |(whole, _)| whole).parse::<u64>().ok()
        };
        // "stream 7", in older files.
        let place = |value: Option<&RawValue>| {
            let text = words(value);
            let text = merged::labelled(&text).map_or(&*text, |(_, process)| process);
            text.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok()
        };
        let size = |value: Option<&RawValue>| {
            value.and_then(|value| serde_json::from_str::<Dimensions>(value.get()).ok())
        };
        let mut link = Self::default();
        let (mut device, mut stream) = (None, None);
        if let Some(args) = args {
            // 0 is none.
            link.correlation = number(args.correlation).filter(|&number| number > 0);
            link.external = number(args.external).filter(|&number| number > 0);
            link.bytes = number(args.bytes);
            (device, stream) = (number(args.device), number(args.stream));
            let shared = number(args.shared).and_then(|bytes| u32::try_from(bytes).ok());
            link.launch = size(args.grid)
                .zip(size(args.block))
                .map(|(grid, block)| (grid, block, shared.unwrap_or_default()));
        }
        link.device = device.or_else(|| place(pid)).unwrap_or_default();
        link.stream = stream.or_else(|| place(tid)).unwrap_or_default();
        link
    }
}

/// The table of bricks: ours, after the user's.
pub(super) fn table(options: &Options) -> Result<Table, ImportError> {
    let map = options.map.as_ref();
    Table::new(map.map(|map| &*map.text)).map_err(|(line, fault)| ImportError {
        path: map.map(|map| map.path.clone()).unwrap_or_default(),
        place: Some(format!("line {line}")),
        fault,
    })
}

/// Removes the work of devices that is there again: all that the file says of it, its times too. Returns how much it was.
fn without_doubled(trace: &Trace, timed: &mut Vec<trace::Timed>) -> u64 {
    let before = timed.len();
    // What begins at one time on one track is side by side.
    let mut place = None;
    let mut here: Vec<(i64, u32, Option<Link>)> = Vec::new();
    timed.retain(|event| {
        if event.kind != EventKind::Work || event.end == event.start {
            return true;
        }
        if place.replace((event.lane, event.start)) != Some((event.lane, event.start)) {
            here.clear();
        }
        let link = event.link.and_then(|link| trace.links.get(link as usize)).copied();
        let is_new = !here.contains(&(event.end, event.name, link));
        // More at once are no doubles.
        if is_new && here.len() < MOST_AT_ONE_TIME {
            here.push((event.end, event.name, link));
        }
        is_new
    });
    (before - timed.len()) as u64
}

/// So much work that begins at one time is looked at.
const MOST_AT_ONE_TIME: usize = 16;

/// So many names are left to what comes after a kernel that is launched in thousands of ways.
const AFTER_LAUNCHES: usize = 512;

/// So many names are kept for bricks that a table knows, whatever ranges and kernels a file has before them.
const KNOWN_BRICKS: usize = 256;

/// The names of a profile as they are met.
struct Names<'t> {
    table: &'t Table,
    names: Vec<Name>,
    of_name: HashMap<(NameKind, String, Option<DeviceLaunch>), u16>,
    /// The bricks of the table.
    known: HashSet<&'t str>,
    /// How often a launch was left out, since there are too many.
    without_launch: u64,
}

impl<'t> Names<'t> {
    fn new(table: &'t Table) -> Self {
        let known = table.bricks().collect();
        Self { table, names: Vec::new(), of_name: HashMap::new(), known, without_launch: 0 }
    }

    fn number(&mut self, kind: NameKind, name: &str, launch: Option<DeviceLaunch>) -> u16 {
        let key = (kind, name.to_owned(), launch);
        if let Some(&number) = self.of_name.get(&key) {
            return number;
        }
        // A kernel that is launched in thousands of ways is one: what comes after it needs names, too.
        if key.2.is_some() && self.names.len() >= MOST_NAMES - KNOWN_BRICKS - AFTER_LAUNCHES {
            self.without_launch += 1;
            return self.number(kind, name, None);
        }
        let room = match kind == NameKind::Brick && self.known.contains(name) {
            true => MOST_NAMES,
            false => MOST_NAMES - KNOWN_BRICKS,
        };
        if self.names.len() >= room {
            return if kind == NameKind::Brick { OTHER_BRICK } else { OTHER_KERNEL };
        }
        let number = self.names.len() as u16;
        let is_brick = kind == NameKind::Brick;
        // Without the launch of a device, it is a routine of which nothing more is known.
        let host =
            (!is_brick && key.2.is_none()).then(|| HostLaunch { shape: String::new(), threads: 0 });
        self.names.push(Name {
            name: key.1.clone(),
            kind,
            category: is_brick.then(|| self.table.category(name)),
            host,
            device: key.2.clone(),
            transfer: None,
        });
        self.of_name.insert(key, number);
        number
    }

    fn brick(&mut self, name: &str) -> u16 {
        self.number(NameKind::Brick, name, None)
    }

    fn kernel(&mut self, name: &str) -> u16 {
        self.number(NameKind::Kernel, name, None)
    }

    /// A kernel of a device, with the launch that its event states.
    fn kernel_of_device(&mut self, name: &str, link: Option<&Link>) -> u16 {
        let launch = link.and_then(|link| link.launch).map(|(grid, block, shared_mem)| {
            DeviceLaunch { grid, block, shared_mem, ..DeviceLaunch::default() }
        });
        self.number(NameKind::Kernel, name, launch)
    }
}

/// What wrote a trace.
pub(super) struct Writer {
    pub(super) format: Format,
    pub(super) program: String,
}

/// The profile of a trace.
pub(super) fn profile(
    trace: &mut Trace,
    at: &At<'_>,
    table: &Table,
    writer: Writer,
) -> Result<Profile, ImportError> {
    let clock = "of the program that wrote the trace";
    let mut profile = at.profile(writer.format, Some(writer.program), clock);
    let (mut timed, origin) = trace::sorted(trace, at)?;
    let doubled = without_doubled(trace, &mut timed);
    let mut names = Names::new(table);
    let host = host::spans(trace, &timed, origin, &mut names, &mut profile);
    let inside = layers::of(trace, &timed, &host, &profile.passes, &mut names);
    let device = device::profiles(trace, &timed, origin, &host, &inside, &mut names, &mut profile);
    let streams = profile.devices.iter().flat_map(|device| &device.streams);
    let of_passes = streams.flat_map(|stream| &stream.passes).map(|pass| u128::from(pass.wall_ns));
    // Sums must hold all of it: a pass goes from its first kernel to its last, however far apart.
    if of_passes.sum::<u128>() > u128::from(u64::MAX) {
        let why = "the times from the first kernels of its passes to their last ones add up to more than 64 bits \
                   of nanoseconds";
        return Err(at.whole(why));
    }
    let (collectives, numbers) = (&device.collectives, &device.numbers);
    profile.ranks =
        collective::ranks(trace, &timed, collectives, numbers, &profile).map(ranks::of_devices);
    profile.lanes = lanes(trace, &mut profile);
    profile.names = names.names;
    (profile.totals, profile.dropped.names) =
        totals(&profile.spans, &profile.passes, &profile.names);
    // What the device took for them is known, whatever the host's passes are.
    let tokens: HashMap<u32, u64> =
        profile.passes.iter().map(|pass| (pass.serial, pass.tokens)).collect();
    let misfits = clock_misfits(&profile);
    let late = if misfits.any() { phases_of(&profile) } else { late_phases(&profile) };
    for pass in profile.passes.iter_mut().filter(|pass| late.contains(&pass.phase)) {
        pass.tokens = 0;
    }
    profile.phases = phases(&profile.passes);
    for stream in profile.devices.iter_mut().flat_map(|device| &mut device.streams) {
        (stream.totals, stream.dropped.names) =
            totals(&stream.spans, &stream.passes, &profile.names);
        for pass in &mut stream.passes {
            pass.tokens = tokens.get(&pass.serial).copied().unwrap_or(0);
        }
        stream.phases = phases(&stream.passes);
        // A sum of spans lacks what lies between them, so it makes no rate of passes that follow each other.
        for total in stream.phases.iter_mut().filter(|total| late.contains(&total.phase)) {
            total.tokens = 0;
        }
    }
    about(trace, &mut profile);
    trace.left_out.flows = 0;
    trace.left_out(&mut profile, host.overlapping);
    // Most of them were counted as they were read.
    let functions = host.functions + trace.left_out.functions;
    left_out(&mut profile, "functions of Python that aren't modules", functions);
    let of_profiler = host.of_profiler + trace.left_out.of_profiler;
    left_out(&mut profile, "events of the profiler itself", of_profiler);
    left_out(&mut profile, "markers between kernels, which are no work", device.markers);
    let over = trace.products.over;
    left_out(&mut profile, "shapes of products, of which there are more than are kept", over);
    let over = trace.attentions.over;
    left_out(&mut profile, "shapes of attention, of which there are more than are kept", over);
    left_out(&mut profile, "work of a device that overlaps much other work", device.overlapping);
    left_out(&mut profile, "kernels and copies that the file has twice", doubled);
    let ways = "grids and blocks of kernels, of which there are more than are kept";
    left_out(&mut profile, ways, names.without_launch);
    let beyond = "work of streams, of which there are more than are kept";
    left_out(&mut profile, beyond, device.beyond);
    let mut doubts = inside.doubts.clone();
    if device.missing > 0 {
        doubts.push(format!(
            "{} of {} launches have no kernel in the file: the device did more than it says",
            device.missing, device.launches
        ));
    }
    if device.overrun > 0 {
        doubts.push(format!(
            "{} of {} kernels and copies begin before the one before them in their stream has ended, outside of graphs: \
             some times can't be right",
            device.overrun, device.work
        ));
    }
    if let Some(share) = device.share_in_no_pass().filter(|_| !profile.passes.is_empty()) {
        doubts.push(format!(
            "the launch of {} of {} kernels and copies is not in the file: they are in no pass, with {} of the devices' time",
            device.in_no_pass,
            device.work,
            percent(share, 1.0)
        ));
    }
    if device.endless > 0 {
        let last = if device.endless == 1 { "lasts" } else { "last" };
        doubts.push(format!(
            "{} of {} kernels and copies {last} far longer than such kernels can: some times can't be right",
            device.endless, device.work
        ));
    }
    doubts.extend(unfitting_clocks(misfits));
    if let Some(imported) = &mut profile.imported {
        imported.doubts = doubts;
        imported.graph_layers = inside.layers.clone();
    }
    let mut reasons = Vec::new();
    if profile.passes.is_empty() && device.passes == 0 {
        reasons.push("passes and phases: no event says that it is one".to_owned());
    }
    if !host.has_layers && !inside.has_layers() {
        let mut why = "layers: no range or module tells them".to_owned();
        let mut page = "docs/import.md says how to record them".to_owned();
        if let Some(unclear) = inside.unclear {
            why += &format!(", nor does the sequence of kernels ({unclear})");
            page += ", also those inside of graphs";
        }
        reasons.push(format!("{why}; {page}"));
    }
    if device.unlaunched > 0 {
        reasons.push(format!(
            "the launch of {} of {} kernels and copies: their layer and pass are unknown",
            device.unlaunched, device.work
        ));
    }
    if misfits.any() {
        let why = "a rate by the host's clock: whether its passes end before their work on a device does isn't known";
        reasons.push(why.to_owned());
    } else if !late.is_empty() {
        let why = "a rate by the host's clock where its passes end before their work on a device does: it would be that of \
                   launching";
        reasons.push(why.to_owned());
    }
    reasons.extend(profile.ranks.as_ref().and_then(ranks::unmatched));
    let tokens = if tokens.values().any(|&tokens| tokens > 0) { "" } else { "tokens, " };
    let work = match device.known_ns {
        0 => "work".to_owned(),
        ns => format!(
            "work of all but products and attention with shapes ({} of the devices' time)",
            percent(ns as f64, device.of_ns as f64)
        ),
    };
    reasons.push(format!("{tokens}{work}, and what measuring cost"));
    for (why, count) in &device.attentions_without_work {
        let calls = if *count == 1 { "call" } else { "calls" };
        reasons.push(format!("work of attention ({count} {calls}): {}", why.text()));
    }
    if inside.of_other_sizes > 0 {
        reasons.push(format!(
            "work of {} kernels of graphs: their passes have other numbers of tokens than the captures, so the shapes may \
             not be theirs",
            inside.of_other_sizes
        ));
    }
    lacks(&mut profile, &reasons.iter().map(String::as_str).collect::<Vec<_>>());
    Ok(profile)
}

/// How the times of all devices lie to those of their launches.
fn clock_misfits(profile: &Profile) -> ClockMisfits {
    let mut all = ClockMisfits::default();
    for of in profile.devices.iter().map(DeviceProfile::clock_misfits) {
        all.launched += of.launched;
        all.before += of.before;
        all.far_before += of.far_before;
        all.long_after += of.long_after;
    }
    all
}

/// That clocks don't fit, in a sentence for each way.
fn unfitting_clocks(of: ClockMisfits) -> Vec<String> {
    let ways = [(of.before, "before"), (of.long_after, "more than an hour after")];
    let told = ways.into_iter().filter(|&(count, _)| count > 0).map(|(count, when)| {
        format!(
            "{count} of {} kernels and copies begin {when} their launch: the clocks of host and device don't fit, so no \
             time of one is compared with the other's",
            of.launched
        )
    });
    told.collect()
}

/// The phases of the host's passes.
fn phases_of(profile: &Profile) -> BTreeSet<Phase> {
    profile.passes.iter().map(|pass| pass.phase).collect()
}

/// The phases of which a pass ends on the host before its work on a device does. Its tokens by the host's time would be a rate
/// of launching.
fn late_phases(profile: &Profile) -> BTreeSet<Phase> {
    let ends: HashMap<u32, u64> = profile
        .passes
        .iter()
        .map(|pass| (pass.serial, pass.start_ns.saturating_add(pass.wall_ns)))
        .collect();
    let streams = profile.devices.iter().flat_map(|device| &device.streams);
    let late = streams.flat_map(|stream| &stream.passes).filter(|pass| {
        ends.get(&pass.serial).is_some_and(|&end| pass.start_ns.saturating_add(pass.wall_ns) > end)
    });
    late.map(|pass| pass.phase).collect()
}

/// The threads of the host.
fn lanes(trace: &Trace, profile: &mut Profile) -> Vec<brickscope_profile::Lane> {
    let mut number = HashMap::new();
    let all = trace::lanes(trace);
    let mut lanes = Vec::new();
    let mut lane_of = |lane: u32| {
        *number.entry(lane).or_insert_with(|| {
            lanes.extend(all.get(lane as usize).cloned());
            lanes.len() as u32 - 1
        })
    };
    for pass in &mut profile.passes {
        pass.lane = lane_of(pass.lane);
    }
    for span in &mut profile.spans {
        span.lane = lane_of(span.lane);
    }
    lanes
}

/// From when on times count, in nanoseconds since 1970. Only newer files say so.
fn base_ns(trace: &Trace) -> Option<i64> {
    trace.field("baseTimeNanoseconds")?.parse().ok()
}

/// The rank that the file is of, and of how many it is.
fn rank_of(trace: &Trace) -> Option<(u64, Option<u64>)> {
    #[derive(Deserialize)]
    struct Distributed {
        rank: Option<u64>,
        world_size: Option<u64>,
    }
    let of = trace
        .field("distributedInfo")
        .and_then(|text| serde_json::from_str::<Distributed>(text).ok());
    // A merged file states that of one rank.
    if let Some(rank) = trace.rank.map(u64::from) {
        return Some((rank, of.and_then(|of| of.world_size).filter(|&size| rank < size)));
    }
    let of = of?;
    Some((of.rank?, of.world_size))
}

/// 2015: a clock that counts from another time than 1970 is behind it for long.
const EARLIEST_NS: i64 = 1_420_070_400_000_000_000;

/// What the file states beside its events.
fn about(trace: &Trace, profile: &mut Profile) {
    let field = |name: &str| trace.field(name);
    let began = trace.first_ns.and_then(|first| match base_ns(trace) {
        Some(base) => base.checked_add(first),
        // PyTorch before 2.1 counted from 1970 itself.
        None => Some(first).filter(|at| *at >= EARLIEST_NS),
    });
    match began.and_then(|at| u64::try_from(at).ok()).filter(|at| *at < 1 << 62) {
        Some(at) => profile.created = time_rfc3339(UNIX_EPOCH + Duration::from_nanos(at)),
        None => lacks(profile, &[UNDATED]),
    }
    let mut conditions = Vec::new();
    if let Some((rank, world_size)) = rank_of(trace) {
        let of = world_size.map_or(String::new(), |size| format!(" of {size}"));
        conditions.push(("rank".to_owned(), format!("{rank}{of}")));
    }
    // These make the host slower.
    for name in ["record_shapes", "with_stack", "profile_memory", "with_flops"] {
        if field(name).is_some_and(|value| !matches!(value, "0" | "false")) {
            conditions.push(("with".to_owned(), name.to_owned()));
        }
    }
    if let Some(imported) = &mut profile.imported {
        imported.conditions = conditions;
    }
    profile.counters_absent =
        Some(Absent { reason: "a trace has no hardware counters".to_owned() });
}

/// Names and drivers of devices, as the file states them.
struct Described {
    names: HashMap<u64, String>,
    driver: String,
}

fn described(trace: &Trace) -> Described {
    #[derive(Deserialize)]
    struct Properties {
        id: u64,
        name: String,
    }
    let field = |name: &str| trace.field(name);
    let properties = field("deviceProperties")
        .and_then(|text| serde_json::from_str::<Vec<Properties>>(text).ok())
        .unwrap_or_default();
    let version = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok());
    let driver = match version("cuda_driver_version").filter(|&number| number > 0) {
        // As CUDA writes 12.8.
        Some(number) => format!("driver for CUDA {}.{}", number / 1000, number % 1000 / 10),
        None => "driver not stated".to_owned(),
    };
    let names = properties.into_iter().map(|device| (device.id, device.name)).collect();
    Described { names, driver }
}
