//! Chrome's trace events as JSON: an array of them, whose end may be missing, or an object with
//! `traceEvents`.
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>
//!
//! Spans are the complete events (`X`) and the pairs of begin and end (`B`, `E`) of each thread, which must
//! nest. Times are microseconds with fractions, here to the nearest nanosecond and from the first event on.
//!
//! This file reads the events, and makes a profile of those of most programs. What PyTorch's profiler writes has more
//! to tell, and goes to `kineto/`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use brickscope_profile::name::OTHER_BRICK;
use brickscope_profile::{Name, NameKind, Phase, Profile, Source, Span, Work};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::decimal::{nearest, scaled};
use super::kineto::{self, EventKind, Link};
use super::pattern::Pattern;
use super::trace::{
    MOST_EVENTS, MOST_NAMES, Timed, Trace, bit, lanes, pass_of, phases, sorted, totals,
};
use super::{At, Format, ImportError, Options, lacks, left_out};

/// The most bytes of the fields outside of `traceEvents` that are kept.
const MOST_ABOUT: usize = 1 << 20;

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

#[derive(Default)]
struct Reader {
    trace: Trace,
    events: usize,
    about_bytes: usize,
    /// Whether an event has a category that only PyTorch's profiler writes.
    has_kinds: bool,
    /// For each phase the pattern of its passes.
    patterns: [Option<Pattern>; 2],
}

pub(super) fn read(text: &str, at: &At<'_>, options: &Options) -> Result<Profile, ImportError> {
    // First of all, since a fault of it doesn't depend on the file.
    let table = kineto::table(options)?;
    let patterns = || {
        [&options.prefill, &options.decode]
            .map(|pattern| pattern.as_ref().map(|text| Pattern::parse(text)))
    };
    let mut reader = Reader { patterns: patterns(), ..Reader::default() };
    let mut result = reader.read(text);
    let mended;
    // PyTorch writes numbers and names as they come: `nan`, and control characters in names.
    if result.as_ref().is_err_and(|error| !error.is_eof()) && reader.trace.fault.is_none() {
        mended = mend(text);
        if let Some(mended) = &mended {
            reader = Reader { patterns: patterns(), ..Reader::default() };
            result = reader.read(mended);
        }
    }
    let mut breaks_off = 0;
    let is_too_long = reader.trace.timed.len() > MOST_EVENTS;
    if let Some((event, fault)) =
        reader.trace.fault.take_if(|_| is_too_long || reader.trace.timed.is_empty())
    {
        return Err(at.place(format!("event {event}"), fault));
    }
    if let Err(error) = result {
        // A killed program leaves out the rest, which the format allows.
        if !error.is_eof() || reader.trace.timed.is_empty() {
            return Err(at.json(&error));
        }
        breaks_off = 1;
    }
    if reader.trace.timed.is_empty() {
        return Err(at.whole("has no event with a duration (`X`, or `B` with `E`)"));
    }
    let is_kineto = reader.has_kinds
        || reader.trace.about.iter().any(|(field, _)| {
            ["schemaVersion", "deviceProperties", "traceName"].contains(&field.as_str())
        });
    if !is_kineto && options.map.is_some() {
        return Err(
            at.whole("isn't a trace of PyTorch's profiler, which the table of bricks is for")
        );
    }
    if is_kineto && options.prefill.is_none() && options.decode.is_none() {
        reader.trace.choose_steps();
    }
    reader.choose_nth();
    for (phase, text) in [(Phase::Prefill, &options.prefill), (Phase::Decode, &options.decode)] {
        let is_it = |event: &Timed| event.passes & bit(phase) != 0;
        if let (Some(text), false) = (text, reader.trace.timed.iter().any(is_it)) {
            return Err(at.whole(format!(
                "has no event `{text}`, which should be a {phase} pass; it has {}",
                some(&reader.trace)
            )));
        }
    }
    let writer =
        kineto::Writer { format: Format::Chrome, program: "PyTorch's profiler".to_owned() };
    let mut profile = match is_kineto {
        true => kineto::profile(&mut reader.trace, at, &table, writer)?,
        false => profile(&mut reader.trace, at)?,
    };
    left_out(&mut profile, "the rest of the file, which is truncated", breaks_off);
    Ok(profile)
}

/// The text with quotes around numbers that JSON has none for, and escapes for control characters within strings; `None`
/// if there is neither.
fn mend(text: &str) -> Option<String> {
    const WORDS: [&str; 7] = ["-nan", "nan", "NaN", "-inf", "inf", "-Infinity", "Infinity"];
    let mut mended = String::with_capacity(text.len());
    let (mut is_inside, mut is_escaped, mut is_mended) = (false, false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        if is_inside {
            if c < ' ' {
                is_mended = true;
                mended.push_str(&format!("\\u{:04x}", u32::from(c)));
            } else {
                mended.push(c);
            }
            is_inside = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else if let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
            is_mended = true;
            mended.extend(["\"", word, "\""]);
            taken = word.len();
        } else {
            is_inside = c == '"';
            mended.push(c);
        }
        rest = &rest[taken..];
    }
    is_mended.then_some(mended)
}

/// The events, wherever they are.
struct Events<'r>(&'r mut Reader);

impl<'a> DeserializeSeed<'a> for Events<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of trace events, or an object with `traceEvents`")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Event<'a>>()? {
            self.0.events += 1;
            if let Err(fault) = self.0.add(&event) {
                // One odd event says nothing against the others.
                self.0.trace.left_out.odd += 1;
                self.0.trace.fault.get_or_insert((self.0.events, fault));
            }
            if self.0.trace.timed.len() > MOST_EVENTS {
                let fault = format!("there are more than {MOST_EVENTS} events with a duration");
                self.0.trace.fault = Some((self.0.events, fault));
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<Cow<'a, str>>()? {
            if field == "traceEvents" {
                fields.next_value_seed(Events(self.0))?;
            } else if self.0.about_bytes < MOST_ABOUT {
                let value = fields.next_value::<&RawValue>()?.get();
                self.0.about_bytes += field.len() + value.len();
                self.0.trace.about.push((field.into_owned(), value.to_owned()));
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The text of a JSON string, or any other value as it is written.
pub(super) fn words(value: Option<&RawValue>) -> Cow<'_, str> {
    let text = value.map_or("", RawValue::get);
    match serde_json::from_str::<String>(text) {
        Ok(words) => Cow::Owned(words),
        Err(_) => Cow::Borrowed(text),
    }
}

/// A value as it is written; nothing if there is none.
fn text(value: Option<&RawValue>) -> &str {
    value.map_or("", RawValue::get)
}

/// An argument of an event, as text.
fn argument(args: Option<&RawValue>, key: &str) -> Option<String> {
    let args: HashMap<String, Box<RawValue>> = serde_json::from_str(args?.get()).ok()?;
    Some(words(args.get(key).map(|value| &**value)).into_owned()).filter(|_| args.contains_key(key))
}

impl Reader {
    fn read(&mut self, text: &str) -> serde_json::Result<()> {
        let mut json = serde_json::Deserializer::from_str(text);
        Events(self).deserialize(&mut json).and_then(|()| json.end())
    }

    /// Keeps those passes whose number, in the order of time, the pattern names.
    fn choose_nth(&mut self) {
        for (phase, pattern) in Phase::ALL.into_iter().zip(&self.patterns) {
            let Some((from, to)) = pattern.as_ref().and_then(|pattern| pattern.nth) else {
                continue;
            };
            let mut chosen: Vec<&mut Timed> = self
                .trace
                .timed
                .iter_mut()
                .filter(|event| event.passes & bit(phase) != 0)
                .collect();
            chosen.sort_by_key(|event| event.start);
            // PyTorch's ranges are on the host and on a device too.
            let mut numbers = [0_u64; 2];
            for event in chosen {
                let number = &mut numbers[usize::from(event.kind.is_of_device())];
                *number += 1;
                if !(from..=to).contains(number) {
                    event.passes &= !bit(phase);
                }
            }
        }
    }

    fn add(&mut self, event: &Event<'_>) -> Result<(), String> {
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
                    "i" | "I" | "R" => &mut self.trace.left_out.instants,
                    "C" => &mut self.trace.left_out.counters,
                    "b" | "e" | "n" | "S" | "T" | "p" | "F" => &mut self.trace.left_out.asyncs,
                    "s" | "t" | "f" => &mut self.trace.left_out.flows,
                    _ => &mut self.trace.left_out.others,
                } += 1;
                return Ok(());
            }
        }
        let start = picos(event.ts, "ts")?;
        let lane = self.trace.track(text(event.pid), text(event.tid));
        if kind == "E" {
            match self.trace.tracks[lane as usize].open.pop() {
                Some(begun) => self.trace.span(Timed { end: whole(start)?, ..begun }),
                None => self.trace.left_out.unbegun += 1,
            }
            return Ok(());
        }
        let category = words(event.cat);
        let name = words(event.name);
        let of_kineto = EventKind::of(&category, &name);
        self.has_kinds |= EventKind::is_sure(&category, &name);
        let mut passes = 0;
        for (phase, pattern) in Phase::ALL.into_iter().zip(&self.patterns) {
            let look = |key: &str| argument(event.args, key);
            if pattern.as_ref().is_some_and(|pattern| pattern.chooses(&name, look)) {
                passes |= bit(phase);
            }
        }
        let kind_of_it = of_kineto.unwrap_or_default();
        let link = of_kineto.is_some_and(EventKind::is_linked).then(|| {
            let link = self.trace.link(Link::of(event.args, event.pid, event.tid));
            self.trace.collectives.note(link, event.args);
            link
        });
        let name = self.trace.name(&name);
        let begun =
            Timed { lane, name, start: whole(start)?, end: 0, kind: kind_of_it, passes, link };
        if kind == "B" {
            self.trace.tracks[lane as usize].open.push(begun);
        } else {
            let end = start.checked_add(picos(event.dur, "dur")?);
            let end = end.ok_or("the sum of `ts` and `dur` is out of range")?;
            self.trace.span(Timed { end: whole(end)?, ..begun });
        }
        Ok(())
    }

    /// Names of threads and processes.
    fn metadata(&mut self, event: &Event<'_>) {
        #[derive(Deserialize)]
        struct Args {
            name: String,
        }
        let what = words(event.name);
        let args = event.args.and_then(|args| serde_json::from_str::<Args>(args.get()).ok());
        let Some(Args { name }) = args else { return };
        match &*what {
            "thread_name" => {
                let track = self.trace.track(text(event.pid), text(event.tid));
                self.trace.tracks[track as usize].name = Some(name);
            }
            "process_name" => {
                self.trace.processes.insert(text(event.pid).to_owned(), name);
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

fn profile(trace: &mut Trace, at: &At<'_>) -> Result<Profile, ImportError> {
    let mut profile = at.profile(Format::Chrome, None, "of the program that wrote the trace");
    profile.lanes = lanes(trace);
    let (timed, origin) = sorted(trace, at)?;
    let numbers = names(&trace.names, &timed, &mut profile);
    let overlapping = nest(&timed, origin, &numbers, &mut profile);
    (profile.totals, profile.dropped.names) =
        totals(&profile.spans, &profile.passes, &profile.names);
    profile.phases = phases(&profile.passes);
    trace.left_out(&mut profile, overlapping);
    let passes = match profile.passes.is_empty() {
        true => "passes, phases and tokens: events don't say which of them are passes",
        false => "tokens: events don't say how many a pass had",
    };
    let layers = "layers and work: an event has only a name and times";
    lacks(&mut profile, &[passes, layers, "what measuring cost, and by which clock"]);
    Ok(profile)
}

/// Some of the names, for an error message: those that people give first.
fn some(trace: &Trace) -> String {
    let mut ranks = vec![2_u8; trace.names.len()];
    for event in &trace.timed {
        let rank = match event.kind {
            kind if kind.is_range() => 0,
            // Thousands, of which hardly one is a pass.
            EventKind::Function => 2,
            _ => 1,
        };
        let least = &mut ranks[event.name as usize];
        *least = rank.min(*least);
    }
    let mut names: Vec<(u8, &String)> = ranks.into_iter().zip(&trace.names).collect();
    names.sort_by_key(|&(rank, _)| rank);
    let quoted: Vec<String> = names.iter().take(20).map(|(_, name)| format!("`{name}`")).collect();
    let more = if names.len() > 20 { ", and more" } else { "" };
    quoted.join(", ") + more
}

/// The names of the profile; returns the number that each name of the file has there. If there are too many, those have none
/// that take the least time.
fn names(names: &[String], timed: &[Timed], profile: &mut Profile) -> Vec<u16> {
    let kind = NameKind::Brick;
    let mut kept: Vec<usize> = (0..names.len()).collect();
    if names.len() > MOST_NAMES {
        let mut times = vec![0_u64; names.len()];
        for event in timed {
            let time = &mut times[event.name as usize];
            *time = time.saturating_add(event.end.abs_diff(event.start));
        }
        kept.sort_by_key(|&name| Reverse(times[name]));
        kept.truncate(MOST_NAMES);
        kept.sort_unstable();
    }
    let mut numbers = vec![OTHER_BRICK; names.len()];
    for (number, &name) in kept.iter().enumerate() {
        numbers[name] = number as u16;
    }
    profile.names = kept
        .into_iter()
        .map(|name| Name {
            name: names[name].clone(),
            kind,
            category: None,
            host: None,
            device: None,
            transfer: None,
        })
        .collect();
    numbers
}

/// Turns events in order into spans with parents, and those named as passes into passes. Returns how many
/// overlap others without nesting, and become neither.
fn nest(timed: &[Timed], origin: i64, numbers: &[u16], profile: &mut Profile) -> u64 {
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
        if let (Some(phase), None) = (event.phase(), pass) {
            // The time of a pass is not attributed to a span around it.
            if let Some(parent) = around.and_then(|around| around.span) {
                profile.spans[parent].exclusive_ns -= duration_ns;
            }
            let serial = profile.passes.len() as u32 + 1;
            profile.passes.push(pass_of(serial, phase, lane, start_ns, duration_ns));
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
            source: Source::Host,
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
