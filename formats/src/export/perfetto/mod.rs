//! Perfetto's traces, as <https://ui.perfetto.dev> and its trace processor read them.
//!
//! The messages are those parts of
//! <https://github.com/google/perfetto/blob/main/protos/perfetto/trace/trace_packet.proto> that are
//! needed. Threads are tracks of the process, streams are tracks of their device; passes, layers,
//! bricks and kernels are slices on them. Slices of a track nest. Each request of a server has a track of its own.

mod requests;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use brickscope_profile::{LaunchKind, Name, Phase, Profile, Span};
use prost::Message;

use self::requests::OfRequests;
use super::Counted;
use super::facts::{self, Fact, facts};
use super::timeline::{
    Counter, Group, Launched, Sink, Slice, SpanKind, Timeline, TraceFile, Track, What, kind_of,
    name_of, stated, told_tokens,
};

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "59")]
    trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
    #[prost(int32, optional, tag = "2")]
    primary_trace_clock: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    unit_multiplier_ns: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacketDefaults {
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "1")]
    event_categories: Vec<Text>,
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Text>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<Text>,
    #[prost(message, repeated, tag = "29")]
    debug_annotation_string_values: Vec<Text>,
}

/// `EventCategory`, `EventName`, `DebugAnnotationName` and `InternedString` have the same fields.
#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    text: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "15")]
    sibling_merge_behavior: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(uint64, repeated, tag = "3")]
    category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "17")]
    string_value_iid: Option<u64>,
}

// `TrackEvent.Type`.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

// `TracePacket.SequenceFlags`.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;

// `BuiltinClock`.
const MONOTONIC: u32 = 3;
const MONOTONIC_RAW: u32 = 5;
/// The profile's clock; those of devices follow. Numbers from 128 on are free, and each means one clock
/// throughout a trace.
const OUR_CLOCK: u32 = 128;

/// The number of counters of each group.
const N_COUNTERS: u64 = Counter::GigabytesPerSecond as u64 + 1;

/// Tracks of the same name are not merged.
const SIBLINGS_STAY_APART: i32 = 2;

const SEQUENCE: u32 = 1;

/// Name ids of slices that have no name in the profile.
const PASSES: u64 = 1 << 17;
const LAYERS: u64 = 1 << 18;
const HAND_OFF: u64 = PASSES + 8;
const TAKE_OVER: u64 = PASSES + 9;
const RUN: u64 = PASSES + 10;
const GRAPH: u64 = PASSES + 11;
const QUEUE: u64 = PASSES + 12;
const FIRST_TOKEN: u64 = PASSES + 13;
const TOKEN: u64 = PASSES + 14;
const TO_THE_END: u64 = PASSES + 15;
const BEFORE: u64 = PASSES + 18;
const FOR_A_REQUEST: u64 = PASSES + 16;
const OF_A_PASS: u64 = PASSES + 17;

const CATEGORIES: [&str; 8] =
    ["pass", "layer", "brick", "kernel", "hand-off", "run", "launch", "request"];

/// The keys of annotations.
const KEYS: [&str; 44] = [
    "row",
    "pass",
    "layer",
    "source",
    "exclusive_ns",
    "elements",
    "flops",
    "bytes",
    "shape",
    "threads",
    "grid",
    "block",
    "shared_mem",
    "ptx",
    "registers",
    "spill_bytes",
    "src",
    "dst",
    "direction",
    "tokens",
    "position",
    "attributed_ns",
    "unattributed_ns",
    "disturbed",
    "left_out",
    "phase",
    "launch",
    "issued_ns",
    "start_after_launch_ns",
    "clock_error_ns",
    "oddity",
    "token",
    "ending",
    // What lies in a stretch of a request: nanoseconds of each `Piece`.
    "before the engine",
    "queue",
    "own pass, alone",
    "own pass, beside prompts of others",
    "own pass, beside tokens of others",
    "own pass, beside prompts and tokens of others",
    "other pass: prompts of others",
    "other pass: tokens of others",
    "other pass: prompts and tokens of others",
    "between passes",
    "(unattributed)",
];

fn key(name: &str) -> Option<u64> {
    let at = KEYS.iter().position(|key| *key == name);
    debug_assert!(at.is_some(), "{name}");
    at.map(|at| at as u64 + 1)
}

fn category(name: &str) -> u64 {
    CATEGORIES.iter().position(|category| *category == name).map_or(0, |at| at as u64 + 1)
}

/// A profile as a trace, written part by part.
#[derive(Debug)]
pub struct Trace<'p> {
    profile: &'p Profile,
    timeline: Timeline<'p>,
    words: Words,
    requests: OfRequests<'p>,
    part_bytes: u64,
    parts: u64,
}

/// Writes a profile as one trace, however large.
///
/// # Errors
///
/// If writing to `out` fails, or for an imported run whose file doesn't say when its passes began.
pub fn write(profile: &Profile, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    Trace::new(profile, u64::MAX).write_part(out, &mut |_| {}).map(drop)
}

impl<'p> Trace<'p> {
    /// A trace in parts of at most `part_bytes` each, where possible: parts are cut between passes, and
    /// within a pass only if that pass alone would fill a part.
    #[must_use]
    pub fn new(profile: &'p Profile, part_bytes: u64) -> Self {
        let timeline = Timeline::new(profile, part_bytes);
        let requests = OfRequests::new(profile);
        Self { profile, timeline, words: Words::new(profile), requests, part_bytes, parts: 0 }
    }

    /// Whether every part was written. There is at least one.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.timeline.is_done()
    }

    /// Writes the next part, a trace of its own. `progress` is called now and then with the number of
    /// spans written so far, in all parts.
    ///
    /// # Errors
    ///
    /// If writing to `out` fails, or for an imported run whose file doesn't say when its passes began.
    pub fn write_part(
        &mut self,
        out: &mut (impl Write + ?Sized),
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<TraceFile> {
        self.timeline.check()?;
        self.parts += 1;
        let tail = facts::bytes(&facts(self.profile, self.parts, 0));
        // Requests may be more than fits; a part has passes, too.
        let tail = tail.saturating_add(self.requests.bytes().min(self.part_bytes / 2));
        let mut file = File {
            profile: self.profile,
            words: &self.words,
            has_requests: !self.profile.parts.is_empty(),
            passes: HashMap::new(),
            out: Counted::new(out),
            event: TrackEvent::default(),
            bytes: Vec::new(),
            groups: HashSet::new(),
            counters: HashSet::new(),
            names: HashSet::new(),
        };
        file.head()?;
        let mut part = self.timeline.write_part(&mut file, tail, progress)?;
        let until = if self.timeline.is_done() { u64::MAX } else { part.last_ns.unwrap_or(0) };
        self.requests.write(&mut file, until)?;
        let facts = facts(self.profile, self.parts, part.left_out);
        let at = part.first_ns.unwrap_or_default();
        file.facts(at, facts)?;
        part.bytes = file.out.bytes;
        file.out.flush()?;
        Ok(part)
    }
}

/// Interned texts, and the annotations of each name.
#[derive(Debug)]
struct Words {
    /// The annotations of each name.
    of_name: Vec<Vec<DebugAnnotation>>,
    /// Each text once, with its id.
    texts: HashMap<String, u64>,
    /// Text ids of the sources of times.
    sources: [u64; 3],
    /// Text ids of the kinds of launches.
    launches: [u64; 3],
}

impl Words {
    fn new(profile: &Profile) -> Self {
        let mut words =
            Self { of_name: Vec::new(), texts: HashMap::new(), sources: [0; 3], launches: [0; 3] };
        words.sources =
            brickscope_profile::brick::Source::ALL.map(|source| words.text(source.name()));
        for name in &profile.names {
            let of_name = words.of_launch(name);
            words.of_name.push(of_name);
        }
        for phase in Phase::ALL {
            words.text(phase.name());
        }
        words.launches = LaunchKind::ALL.map(|kind| words.text(kind.name()));
        words
    }

    fn text(&mut self, text: &str) -> u64 {
        let next = self.texts.len() as u64 + 1;
        *self.texts.entry(text.to_owned()).or_insert(next)
    }

    fn of_launch(&mut self, name: &Name) -> Vec<DebugAnnotation> {
        let mut told: Vec<DebugAnnotation> = Vec::new();
        for (name, value) in super::launch(name) {
            let (uint_value, string_value_iid) = match value {
                super::Value::Count(count) => (Some(count), None),
                super::Value::Text(text) => (None, Some(self.text(&text))),
            };
            let name_iid = key(name);
            told.push(DebugAnnotation {
                name_iid,
                uint_value,
                string_value_iid,
                ..Default::default()
            });
        }
        told
    }
}

/// A part while it is written.
struct File<'f, W: ?Sized> {
    profile: &'f Profile,
    words: &'f Words,
    has_requests: bool,
    /// Where and when passes of the host began that are in this part, by their serials.
    passes: HashMap<u32, (u64, u64)>,
    out: Counted<'f, W>,
    event: TrackEvent,
    bytes: Vec<u8>,
    /// The groups that this part has described.
    groups: HashSet<Group>,
    counters: HashSet<u64>,
    names: HashSet<u64>,
}

impl<W: Write + ?Sized> File<'_, W> {
    fn packet(&mut self, packet: &TracePacket) -> io::Result<()> {
        self.bytes.clear();
        packet.encode(&mut self.bytes).expect("a vector has room");
        let mut head = [0_u8; 11];
        // Field 1 of `Trace`: a packet, of this length.
        let mut rest = &mut head[..];
        prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, &mut rest);
        prost::encoding::encode_varint(self.bytes.len() as u64, &mut rest);
        let length = 11 - rest.len();
        self.out.write_all(&head[..length])?;
        self.out.write_all(&self.bytes)
    }

    /// Writes the state that holds for the whole part.
    fn head(&mut self) -> io::Result<()> {
        let text = |iid: u64, text: &str| Text { iid: Some(iid), text: Some(text.to_owned()) };
        let numbered = |list: &[&str]| (1..).zip(list).map(|(iid, name)| text(iid, name)).collect();
        let mut event_names: Vec<Text> =
            (1..).zip(&self.profile.names).map(|(iid, name)| text(iid, &name.name)).collect();
        for phase in Phase::ALL {
            event_names.push(text(PASSES + phase as u64, phase.name()));
        }
        event_names.extend([
            text(HAND_OFF, "hand-off"),
            text(TAKE_OVER, "take-over"),
            text(RUN, "what is known of this run"),
            text(GRAPH, "graph"),
            text(BEFORE, "before the engine"),
            text(QUEUE, "queue"),
            text(FIRST_TOKEN, "first token"),
            text(TOKEN, "token"),
            text(TO_THE_END, "to the end"),
            text(FOR_A_REQUEST, "for a request"),
            text(OF_A_PASS, "of a pass"),
        ]);
        let mut texts: Vec<Text> =
            self.words.texts.iter().map(|(words, &iid)| text(iid, words)).collect();
        texts.sort_by_key(|text| text.iid);
        // Without an anchor between the clocks, timestamps stay in the profile's own.
        let timestamp_clock_id = (!self.profile.clock.anchors.is_empty()).then_some(OUR_CLOCK);
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(STATE_CLEARED),
            interned_data: Some(InternedData {
                event_categories: numbered(&CATEGORIES),
                event_names,
                debug_annotation_names: numbered(&KEYS),
                debug_annotation_string_values: texts,
            }),
            trace_packet_defaults: Some(TracePacketDefaults { timestamp_clock_id }),
            ..Default::default()
        })?;
        self.clocks()
    }

    /// Writes moments read on several clocks.
    fn clocks(&mut self) -> io::Result<()> {
        let clock = |clock_id, timestamp| Clock {
            clock_id: Some(clock_id),
            timestamp: Some(timestamp),
            unit_multiplier_ns: None,
        };
        let mut snapshots: Vec<Vec<Clock>> = Vec::new();
        for anchor in &self.profile.clock.anchors {
            snapshots.push(vec![
                clock(OUR_CLOCK, anchor.at_ns),
                clock(MONOTONIC, anchor.monotonic_ns),
                clock(MONOTONIC_RAW, anchor.monotonic_raw_ns),
            ]);
        }
        for (nth, device) in (1..).zip(&self.profile.devices) {
            // A trace's clocks have whole nanoseconds as units.
            let ns = device.ticks.ns_per_tick;
            if snapshots.is_empty() || !(1.0..=1e9).contains(&ns) || ns.fract() != 0.0 {
                continue;
            }
            let looks = [device.alignment, device.last_alignment];
            let mut newest = None;
            for look in looks.into_iter().flatten() {
                let moment = (look.host_ns, look.device_ticks);
                // Neither clock runs backwards, though a counter begins again when it is full.
                if newest.is_some_and(|(host, ticks)| moment.0 <= host || moment.1 <= ticks) {
                    continue;
                }
                newest = Some(moment);
                let ticks = Clock {
                    unit_multiplier_ns: Some(ns as u64),
                    ..clock(OUR_CLOCK + nth, look.device_ticks)
                };
                snapshots.push(vec![clock(OUR_CLOCK, look.host_ns), ticks]);
            }
        }
        for clocks in snapshots {
            let primary_trace_clock = Some(MONOTONIC as i32);
            self.packet(&TracePacket {
                trusted_packet_sequence_id: Some(SEQUENCE),
                clock_snapshot: Some(ClockSnapshot { clocks, primary_trace_clock }),
                ..Default::default()
            })?;
        }
        Ok(())
    }

    /// The uuid that a group's tracks are under; described once in each part.
    fn group(&mut self, group: Group) -> io::Result<u64> {
        let uuid = group as u64 + 1;
        if !self.groups.insert(group) {
            return Ok(uuid);
        }
        let device = group.checked_sub(1).and_then(|nth| self.profile.devices.get(nth));
        let pid = self.pid().filter(|_| device.is_none());
        let name = match device {
            Some(device) => format!("{} ({})", device.name, device.api),
            None => "brickscope".to_owned(),
        };
        let process =
            pid.map(|pid| ProcessDescriptor { pid: Some(pid), process_name: Some(name.clone()) });
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid),
            name: process.is_none().then_some(name),
            sibling_merge_behavior: process.is_none().then_some(SIBLINGS_STAY_APART),
            process,
            ..Default::default()
        })?;
        Ok(uuid)
    }

    fn descriptor(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..Default::default()
        })
    }

    /// The process; 0 would be the system's idle task.
    fn pid(&self) -> Option<i32> {
        self.profile.process.and_then(|pid| i32::try_from(pid).ok()).filter(|&pid| pid > 0)
    }

    fn n_groups(&self) -> u64 {
        self.profile.devices.len() as u64 + 1
    }

    fn track_uuid(&self, track: u32) -> u64 {
        1 + self.n_groups() * (1 + N_COUNTERS) + u64::from(track)
    }

    /// Writes `self.event`, and clears it.
    fn event(&mut self, at_ns: u64, interned_data: Option<InternedData>) -> io::Result<()> {
        let mut event = std::mem::take(&mut self.event);
        let packet = TracePacket {
            timestamp: Some(at_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(NEEDS_STATE),
            track_event: Some(std::mem::take(&mut event)),
            interned_data,
            ..Default::default()
        };
        self.packet(&packet)?;
        if let Some(used) = packet.track_event {
            // Reuses its allocation.
            event = used;
        }
        event.category_iids.clear();
        event.debug_annotations.clear();
        event.flow_ids.clear();
        event.terminating_flow_ids.clear();
        (event.name_iid, event.double_counter_value) = (None, None);
        self.event = event;
        Ok(())
    }

    fn count(&mut self, name: &str, count: Option<u64>) {
        if let Some(count) = count {
            self.event.debug_annotations.push(DebugAnnotation {
                name_iid: key(name),
                uint_value: Some(count),
                ..Default::default()
            });
        }
    }

    fn facts(&mut self, at_ns: u64, facts: Vec<(String, Fact)>) -> io::Result<()> {
        let uuid = self.group(0)?;
        for (name, fact) in facts {
            let mut annotation = DebugAnnotation { name: Some(name), ..Default::default() };
            match fact {
                Fact::Text(text) => annotation.string_value = Some(text),
                Fact::Count(count) => annotation.uint_value = Some(count),
                Fact::Number(number) => annotation.double_value = Some(number),
            }
            self.event.debug_annotations.push(annotation);
        }
        self.event.r#type = Some(INSTANT);
        self.event.track_uuid = Some(uuid);
        self.event.name_iid = Some(RUN);
        self.event.category_iids.push(category("run"));
        self.event(at_ns, None)
    }

    /// The id of a span's name, and its text if the head didn't have it.
    fn span_name(&mut self, span: &Span) -> (u64, Option<InternedData>) {
        match span.name {
            None => {
                let layer = span.layer.map_or(0, |layer| u64::from(layer) + 1);
                let name = || match span.layer {
                    Some(layer) => format!("layer {layer}"),
                    None => "layer".to_owned(),
                };
                (LAYERS + layer, self.late(LAYERS + layer, name))
            }
            Some(index) => {
                let iid = u64::from(index) + 1;
                if usize::from(index) < self.words.of_name.len() {
                    return (iid, None);
                }
                let name = name_of(self.profile, index);
                (iid, self.late(iid, || name.map_or_else(|| format!("#{index}"), str::to_owned)))
            }
        }
    }

    fn annotate_launch(&mut self, launch: &Launched) {
        let annotation = |name: &str| DebugAnnotation { name_iid: key(name), ..Default::default() };
        self.event.debug_annotations.push(DebugAnnotation {
            string_value_iid: Some(self.words.launches[launch.kind as usize]),
            ..annotation("launch")
        });
        self.count("issued_ns", Some(launch.issued_ns));
        self.event.debug_annotations.push(DebugAnnotation {
            int_value: Some(launch.delay_ns),
            ..annotation("start_after_launch_ns")
        });
        self.count("clock_error_ns", launch.error_ns);
        self.event.debug_annotations.extend(launch.oddity().map(|oddity| DebugAnnotation {
            string_value: Some(oddity.to_owned()),
            ..annotation("oddity")
        }));
    }

    /// The text of a name that the head didn't have, at the name's first use.
    fn late(&mut self, iid: u64, text: impl FnOnce() -> String) -> Option<InternedData> {
        self.names.insert(iid).then(|| InternedData {
            event_names: vec![Text { iid: Some(iid), text: Some(text()) }],
            ..Default::default()
        })
    }
}

impl<W: Write + ?Sized> Sink for File<'_, W> {
    fn track(&mut self, id: u32, track: &Track) -> io::Result<()> {
        let group = self.group(track.group)?;
        let pid = self.pid().filter(|_| track.group == 0);
        let thread = pid.zip(track.tid).map(|(pid, tid)| ThreadDescriptor {
            pid: Some(pid),
            tid: Some(tid.into()),
            thread_name: Some(track.name.clone()),
        });
        self.descriptor(TrackDescriptor {
            uuid: Some(self.track_uuid(id)),
            name: thread.is_none().then(|| track.name.clone()),
            sibling_merge_behavior: thread.is_none().then_some(SIBLINGS_STAY_APART),
            parent_uuid: Some(track.beside.map_or(group, |beside| self.track_uuid(beside))),
            thread,
            ..Default::default()
        })
    }

    fn begin(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.event.r#type = Some(SLICE_BEGIN);
        self.event.track_uuid = Some(self.track_uuid(slice.track));
        if let Some(flow) = slice.flow {
            let ids = match flow.is_end {
                true => &mut self.event.terminating_flow_ids,
                false => &mut self.event.flow_ids,
            };
            ids.push(flow.id);
        }
        let (kind, name_iid, late) = match slice.what {
            What::Pass(pass) => {
                self.count("pass", Some(pass.serial.into()));
                let [tokens, position] = told_tokens(self.profile, pass);
                self.count("tokens", tokens);
                self.count("position", position);
                self.count("attributed_ns", Some(pass.attributed_ns));
                self.count("unattributed_ns", Some(pass.unattributed_ns));
                self.count("disturbed", pass.is_disturbed().then_some(1));
                self.count("left_out", pass.is_left_out.then_some(1));
                if slice.is_on_host && self.has_requests {
                    let track = self.track_uuid(slice.track);
                    self.passes.insert(pass.serial, (track, slice.start_ns));
                }
                ("pass", PASSES + pass.phase as u64, None)
            }
            What::Span(row, span) => {
                let kind = kind_of(self.profile, span);
                let words = self.words;
                let (name_iid, late) = self.span_name(span);
                self.count("row", Some(row.into()));
                self.count("pass", span.pass.map(Into::into));
                self.count("layer", span.layer.map(Into::into));
                if kind == SpanKind::Brick {
                    self.count("exclusive_ns", Some(span.exclusive_ns));
                }
                for (what, count) in stated(span.work) {
                    self.count(what, count);
                }
                self.event.debug_annotations.push(DebugAnnotation {
                    name_iid: key("source"),
                    string_value_iid: Some(words.sources[span.source as usize]),
                    ..Default::default()
                });
                let of_name = span.name.and_then(|index| words.of_name.get(usize::from(index)));
                if let Some(of_name) = of_name {
                    self.event.debug_annotations.extend_from_slice(of_name);
                }
                if let Some(launch) = &slice.launch {
                    self.annotate_launch(launch);
                }
                (kind.name(), name_iid, late)
            }
        };
        self.event.name_iid = Some(name_iid);
        self.event.category_iids.push(category(kind));
        self.event(slice.start_ns, late)
    }

    fn end(&mut self, track: u32, at_ns: u64) -> io::Result<()> {
        self.event.r#type = Some(SLICE_END);
        self.event.track_uuid = Some(self.track_uuid(track));
        self.event(at_ns, None)
    }

    fn launch(
        &mut self,
        track: u32,
        launch: &Launched,
        span: &Span,
        id: Option<u64>,
    ) -> io::Result<()> {
        let (name_iid, late) = match launch.kind {
            LaunchKind::Replayed => (GRAPH, None),
            _ => self.span_name(span),
        };
        self.event.r#type = Some(INSTANT);
        self.event.track_uuid = Some(self.track_uuid(track));
        self.event.name_iid = Some(name_iid);
        self.event.category_iids.push(category("launch"));
        self.event.flow_ids.extend(id);
        self.event(launch.issued_ns, late)
    }

    fn hand_off(&mut self, id: u64, from: (u32, u64), to: (u32, u64)) -> io::Result<()> {
        for ((track, at_ns), name_iid) in [(from, HAND_OFF), (to, TAKE_OVER)] {
            self.event.r#type = Some(INSTANT);
            self.event.track_uuid = Some(self.track_uuid(track));
            self.event.name_iid = Some(name_iid);
            self.event.category_iids.push(category("hand-off"));
            match name_iid {
                HAND_OFF => self.event.flow_ids.push(id),
                _ => self.event.terminating_flow_ids.push(id),
            }
            self.event(at_ns, None)?;
        }
        Ok(())
    }

    fn counter(&mut self, group: Group, what: Counter, at_ns: u64, value: f64) -> io::Result<()> {
        let uuid = 1 + self.n_groups() + group as u64 * N_COUNTERS + what as u64;
        if self.counters.insert(uuid) {
            let parent_uuid = Some(self.group(group)?);
            let unit_name = Some(what.unit().to_owned());
            self.descriptor(TrackDescriptor {
                uuid: Some(uuid),
                name: Some(what.name().to_owned()),
                parent_uuid,
                counter: Some(CounterDescriptor { unit_name }),
                ..Default::default()
            })?;
        }
        self.event.r#type = Some(COUNTER);
        self.event.track_uuid = Some(uuid);
        self.event.double_counter_value = Some(value);
        self.event(at_ns, None)
    }

    fn bytes(&self) -> u64 {
        self.out.bytes
    }
}
