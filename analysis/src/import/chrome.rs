//! Chrome's trace events as JSON: an array of them, whose end may be missing, or an object with
//! `traceEvents`.
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>
//!
//! Spans are the complete events (`X`) and the pairs of begin and end (`B`, `E`) of each thread, which must
//! nest. Times are microseconds with fractions, here to the nearest nanosecond and from the first event on.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::{
    BrickStats, Lane, Name, NameKind, Pass, Phase, PhaseTotal, Profile, Source, Span, Work,
};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::decimal::{nearest, scaled};
use super::{At, Format, ImportError, Options, lacks, left_out, total};

/// The most events: each takes some 130 bytes, so all of them 2 GiB.
const MOST_EVENTS: usize = 1 << 24;

/// The most names that spans can refer to.
const MOST_NAMES: usize = OTHER_KERNEL as usize;

/// PyTorch's categories of what ran on a device, by its clock. The last one is for ranges of the program,
/// from the first of its kernels to the end of the last.
const ON_DEVICE: [&str; 4] = ["kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"];

/// The fields of an event that matter. Numbers keep their digits; `pid` and `tid` may be words.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    ph: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cat: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dur: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

/// A span of the file.
#[derive(Clone, Copy)]
struct Timed {
    lane: u32,
    name: u32,
    /// In nanoseconds of the file's axis.
    start: i64,
    end: i64,
    source: Source,
}

/// A thread of the file.
#[derive(Default)]
struct Track<'a> {
    pid: &'a str,
    tid: &'a str,
    name: Option<String>,
    /// Spans that have begun and not ended.
    open: Vec<(u32, i64, Source)>,
}

#[derive(Default)]
struct Reader<'a> {
    events: usize,
    timed: Vec<Timed>,
    names: Vec<String>,
    of_name: HashMap<String, u32>,
    tracks: Vec<Track<'a>>,
    of_track: HashMap<(&'a str, &'a str), u32>,
    processes: HashMap<&'a str, String>,
    left_out: LeftOut,
    /// The number of the event that was wrong, and what was wrong with it.
    fault: Option<(usize, String)>,
}

#[derive(Default)]
struct LeftOut {
    instants: u64,
    counters: u64,
    asyncs: u64,
    flows: u64,
    others: u64,
    unbegun: u64,
    backwards: u64,
}

pub(super) fn read(text: &str, at: &At<'_>, options: &Options) -> Result<Profile, ImportError> {
    let mut reader = Reader::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let result = Events(&mut reader).deserialize(&mut json).and_then(|()| json.end());
    let mut breaks_off = 0;
    if let Err(error) = result {
        if let Some((event, fault)) = reader.fault.take() {
            return Err(at.place(format!("event {event}"), fault));
        }
        // A killed program leaves out the rest, which the format allows.
        if !error.is_eof() || reader.timed.is_empty() {
            return Err(at.json(&error));
        }
        breaks_off = 1;
    }
    if reader.timed.is_empty() {
        return Err(at.whole("has no event with a duration (`X`, or `B` with `E`)"));
    }
    let mut profile = profile(&mut reader, at, options)?;
    left_out(&mut profile, "the rest of the file, which is truncated", breaks_off);
    Ok(profile)
}

/// The events, wherever they are.
struct Events<'r, 'a>(&'r mut Reader<'a>);

impl<'a> DeserializeSeed<'a> for Events<'_, 'a> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Events<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of trace events, or an object with `traceEvents`")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Event<'a>>()? {
            self.0.events += 1;
            if let Err(fault) = self.0.add(&event) {
                self.0.fault = Some((self.0.events, fault));
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<Cow<'a, str>>()? {
            if field == "traceEvents" {
                fields.next_value_seed(Events(self.0))?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The text of a JSON string, or any other value as it is written.
fn words(value: Option<&RawValue>) -> Cow<'_, str> {
    let text = value.map_or("", RawValue::get);
    match serde_json::from_str::<String>(text) {
        Ok(words) => Cow::Owned(words),
        Err(_) => Cow::Borrowed(text),
    }
}

impl<'a> Reader<'a> {
    fn add(&mut self, event: &Event<'a>) -> Result<(), String> {
        let kind = words(event.ph);
        match &*kind {
            "X" | "B" | "E" => {}
            "M" => {
                self.metadata(event);
                return Ok(());
            }
            "" => return Err("`ph`, the kind of the event, is missing".to_owned()),
            kind => {
                *match kind {
                    "i" | "I" | "R" => &mut self.left_out.instants,
                    "C" => &mut self.left_out.counters,
                    "b" | "e" | "n" | "S" | "T" | "p" | "F" => &mut self.left_out.asyncs,
                    "s" | "t" | "f" => &mut self.left_out.flows,
                    _ => &mut self.left_out.others,
                } += 1;
                return Ok(());
            }
        }
        let start = picos(event.ts, "ts")?;
        let lane = self.track(event);
        if kind == "E" {
            match self.tracks[lane as usize].open.pop() {
                Some((name, begun, source)) => self.span(lane, name, begun, whole(start)?, source),
                None => self.left_out.unbegun += 1,
            }
            return self.bounded();
        }
        let source = match ON_DEVICE.contains(&&*words(event.cat)) {
            true => Source::Device,
            false => Source::Host,
        };
        let name = self.name(words(event.name));
        if kind == "B" {
            self.tracks[lane as usize].open.push((name, whole(start)?, source));
        } else {
            let end = start.checked_add(picos(event.dur, "dur")?);
            let end = end.ok_or("the sum of `ts` and `dur` is out of range")?;
            self.span(lane, name, whole(start)?, whole(end)?, source);
        }
        self.bounded()
    }

    fn span(&mut self, lane: u32, name: u32, start: i64, end: i64, source: Source) {
        match end < start {
            true => self.left_out.backwards += 1,
            false => self.timed.push(Timed { lane, name, start, end, source }),
        }
    }

    fn bounded(&self) -> Result<(), String> {
        match self.timed.len() <= MOST_EVENTS {
            true => Ok(()),
            false => Err(format!("there are more than {MOST_EVENTS} events with a duration")),
        }
    }

    fn name(&mut self, name: Cow<'_, str>) -> u32 {
        if let Some(&number) = self.of_name.get(&*name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone().into_owned());
        self.of_name.insert(name.into_owned(), number);
        number
    }

    fn track(&mut self, event: &Event<'a>) -> u32 {
        let (pid, tid) = (event.pid.map_or("", RawValue::get), event.tid.map_or("", RawValue::get));
        *self.of_track.entry((pid, tid)).or_insert_with(|| {
            self.tracks.push(Track { pid, tid, ..Track::default() });
            self.tracks.len() as u32 - 1
        })
    }

    /// Names of threads and processes.
    fn metadata(&mut self, event: &Event<'a>) {
        #[derive(Deserialize)]
        struct Args {
            name: String,
        }
        let what = words(event.name);
        let args = event.args.and_then(|args| serde_json::from_str::<Args>(args.get()).ok());
        let Some(Args { name }) = args else { return };
        match &*what {
            "thread_name" => {
                let track = self.track(event);
                self.tracks[track as usize].name = Some(name);
            }
            "process_name" => {
                self.processes.insert(event.pid.map_or("", RawValue::get), name);
            }
            _ => {}
        }
    }
}

/// Microseconds, in picoseconds.
fn picos(field: Option<&RawValue>, name: &str) -> Result<i128, String> {
    let Some(field) = field else { return Err(format!("`{name}` is missing")) };
    scaled(field.get(), 6).ok_or_else(|| format!("`{name}` is not a number of microseconds"))
}

/// Picoseconds as nanoseconds.
fn whole(picos: i128) -> Result<i64, String> {
    i64::try_from(nearest(picos)).map_err(|_| "`ts` is out of range".to_owned())
}

fn profile(
    reader: &mut Reader<'_>,
    at: &At<'_>,
    options: &Options,
) -> Result<Profile, ImportError> {
    let mut profile = at.profile(Format::Chrome, None, "of the program that wrote the trace");
    profile.lanes = lanes(reader);
    let mut timed = std::mem::take(&mut reader.timed);
    let origin = timed.iter().map(|event| event.start).min().unwrap_or_default();
    // Sums must hold all of it.
    let sum: u128 = timed.iter().map(|event| u128::from(event.end.abs_diff(event.start))).sum();
    if sum > u128::from(u64::MAX) {
        return Err(at.whole("its durations add up to more than 64 bits of nanoseconds"));
    }
    // Outer ones first. Of those that begin and end together the outer one is written last, when it ends.
    timed.reverse();
    timed.sort_by_key(|event| (event.lane, event.start, Reverse(event.end)));

    let wanted = |name: &Option<String>| name.as_ref().and_then(|name| reader.of_name.get(name));
    let phases = [(Phase::Prefill, &options.prefill), (Phase::Decode, &options.decode)];
    for (phase, name) in phases {
        if let (Some(name), None) = (name, wanted(name)) {
            return Err(at.whole(format!(
                "has no event `{name}`, which should be a {phase} pass; it has {}",
                some(&reader.names)
            )));
        }
    }
    let phases = phases.map(|(phase, name)| (phase, wanted(name).copied()));
    let numbers = names(&reader.names, &mut profile);
    let overlapping = nest(&timed, origin, phases, &numbers, &mut profile);
    tables(&mut profile);
    let LeftOut { instants, counters, asyncs, flows, others, unbegun, backwards } = reader.left_out;
    let unended = reader.tracks.iter().map(|track| track.open.len() as u64).sum();
    for (why, count) in [
        ("events that overlap another of their thread without nesting", overlapping),
        ("begins without an end", unended),
        ("ends without a begin", unbegun),
        ("events that end before they begin", backwards),
        ("asynchronous events", asyncs),
        ("flows", flows),
        ("counters", counters),
        ("instants", instants),
        ("events of other kinds", others),
    ] {
        left_out(&mut profile, why, count);
    }
    let passes = match profile.passes.is_empty() {
        true => "passes, phases and tokens: events don't say which of them are passes",
        false => "tokens: events don't say how many a pass had",
    };
    let layers = "layers and work: an event has only a name and times";
    lacks(&mut profile, &[passes, layers, "what measuring cost, and by which clock"]);
    Ok(profile)
}

/// Some of the names, for an error message.
fn some(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().take(20).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > 20 { ", and more" } else { "" };
    quoted.join(", ") + more
}

fn lanes(reader: &Reader<'_>) -> Vec<Lane> {
    let mut pids: Vec<&str> = reader.tracks.iter().map(|track| track.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let lane = |track: &Track<'_>| {
        let tid = track.tid.parse::<u32>().ok();
        // A thread whose id is a word.
        let word = || tid.is_none().then(|| track.tid.trim_matches('"').to_owned());
        let name = track.name.clone().or_else(word).filter(|name| !name.is_empty());
        if pids.len() < 2 {
            return Lane { name, tid };
        }
        let process = reader.processes.get(track.pid).cloned();
        let process = process.unwrap_or_else(|| format!("process {}", track.pid));
        let name = match name {
            Some(name) => format!("{process}: {name}"),
            None => process,
        };
        Lane { name: Some(name), tid }
    };
    reader.tracks.iter().map(lane).collect()
}

/// The names of the profile; returns the number that each name of the file has there.
fn names(names: &[String], profile: &mut Profile) -> Vec<u16> {
    let kind = NameKind::Brick;
    let known = names.iter().take(MOST_NAMES);
    profile.names = known
        .map(|name| Name {
            name: name.clone(),
            kind,
            category: None,
            host: None,
            device: None,
            transfer: None,
        })
        .collect();
    (0..names.len()).map(|n| if n < MOST_NAMES { n as u16 } else { OTHER_BRICK }).collect()
}

/// Turns events in order into spans with parents, and those named as passes into passes. Returns how many
/// overlap others without nesting, and become neither.
fn nest(
    timed: &[Timed],
    origin: i64,
    phases: [(Phase, Option<u32>); 2],
    numbers: &[u16],
    profile: &mut Profile,
) -> u64 {
    /// A span or pass that the next event may lie in.
    #[derive(Clone, Copy)]
    struct Around {
        end: i64,
        /// The index of the span, if it is one.
        span: Option<usize>,
        pass: Option<usize>,
    }
    let mut overlapping = 0;
    let mut stack: Vec<Around> = Vec::new();
    let mut lane = u32::MAX;
    for event in timed {
        if event.lane != lane {
            stack.clear();
            lane = event.lane;
        }
        while stack.pop_if(|around| around.end <= event.start).is_some() {}
        let around = stack.last().copied();
        if around.is_some_and(|around| event.end > around.end) {
            overlapping += 1;
            continue;
        }
        let duration_ns = event.end.abs_diff(event.start);
        let start_ns = event.start.abs_diff(origin);
        let pass = around.and_then(|around| around.pass);
        let phase = phases.iter().find(|(_, name)| *name == Some(event.name));
        if let (Some(&(phase, _)), None) = (phase, pass) {
            // The time of a pass is not attributed to a span around it.
            if let Some(parent) = around.and_then(|around| around.span) {
                profile.spans[parent].exclusive_ns -= duration_ns;
            }
            profile.passes.push(Pass {
                serial: profile.passes.len() as u32 + 1,
                phase,
                lane,
                tokens: 0,
                position: 0,
                start_ns,
                wall_ns: duration_ns,
                attributed_ns: 0,
                unattributed_ns: duration_ns,
                disturbance: None,
                is_left_out: false,
            });
            let pass = Some(profile.passes.len() - 1);
            stack.push(Around { end: event.end, span: None, pass });
            continue;
        }
        let parent = around.and_then(|around| around.span);
        match (parent, pass) {
            (Some(parent), _) => profile.spans[parent].exclusive_ns -= duration_ns,
            (None, Some(pass)) => {
                let pass = &mut profile.passes[pass];
                pass.attributed_ns += duration_ns;
                pass.unattributed_ns -= duration_ns;
            }
            (None, None) => {}
        }
        stack.push(Around { end: event.end, span: Some(profile.spans.len()), pass });
        let span = Span {
            name: Some(numbers[event.name as usize]),
            source: event.source,
            lane,
            pass: pass.map(|pass| profile.passes[pass].serial),
            layer: None,
            parent: parent.and_then(|parent| u32::try_from(parent).ok()),
            start_ns,
            duration_ns,
            exclusive_ns: duration_ns,
            work: Work::default(),
        };
        profile.spans.push(span);
    }
    overlapping
}

/// The sums of spans and passes.
fn tables(profile: &mut Profile) {
    let mut sums: Vec<((Option<Phase>, Source), BrickStats)> = Vec::new();
    let mut of_sum: HashMap<(Option<Phase>, Source, u16), usize> = HashMap::new();
    for span in &profile.spans {
        let number = span.name.unwrap_or(OTHER_BRICK);
        profile.dropped.names += u64::from(number == OTHER_BRICK);
        let phase = span.pass.map(|serial| profile.passes[serial as usize - 1].phase);
        let index = *of_sum.entry((phase, span.source, number)).or_insert_with(|| {
            let name = profile.names.get(usize::from(number));
            let name = name.map_or("(other)", |name| &name.name);
            sums.push(((phase, span.source), BrickStats::new(name)));
            sums.len() - 1
        });
        sums[index].1.add(span.duration_ns, span.exclusive_ns, span.work);
    }
    profile.totals =
        sums.into_iter().map(|((phase, source), stats)| total(phase, source, stats)).collect();
    for phase in Phase::ALL {
        let mut sum = PhaseTotal {
            phase,
            passes: 0,
            disturbed: 0,
            unwatched: None,
            tokens: 0,
            wall_ns: 0,
            attributed_ns: 0,
            unattributed_ns: 0,
        };
        for pass in profile.passes.iter().filter(|pass| pass.phase == phase) {
            sum.passes += 1;
            sum.wall_ns += pass.wall_ns;
            sum.attributed_ns += pass.attributed_ns;
            sum.unattributed_ns += pass.unattributed_ns;
        }
        if sum.passes > 0 {
            profile.phases.push(sum);
        }
    }
}
