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

use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::{
    BrickStats, Lane, Name, NameKind, Pass, Phase, PhaseTotal, Profile, Source, Span, Total, Work,
};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::decimal::{nearest, scaled};
use super::kineto::{self, EventKind, Link};
use super::pattern::Pattern;
use super::{At, Format, ImportError, Options, lacks, left_out, total};

/// The most events: each takes some 130 bytes, so all of them 2 GiB.
const MOST_EVENTS: usize = 1 << 24;

/// The most names that spans can refer to.
pub(super) const MOST_NAMES: usize = OTHER_KERNEL as usize;

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

/// By so much an event may miss the one that it nests in.
const ROUNDED_NS: i64 = 2_000;

/// A span of the file.
#[derive(Clone, Copy)]
pub(super) struct Timed {
    pub(super) lane: u32,
    pub(super) name: u32,
    /// In nanoseconds of the file's axis.
    pub(super) start: i64,
    pub(super) end: i64,
    /// What it is to PyTorch's profiler.
    pub(super) kind: EventKind,
    /// A bit for each of [`Phase::ALL`]: whether it is a pass of this phase.
    pub(super) passes: u8,
    /// An index into the reader's links.
    pub(super) link: Option<u32>,
}

impl Timed {
    /// The phase that it is a pass of. A pattern for decode is the more special one of two that both choose it.
    pub(super) fn phase(&self) -> Option<Phase> {
        Phase::ALL.into_iter().rev().find(|&phase| self.passes & bit(phase) != 0)
    }
}

fn bit(phase: Phase) -> u8 {
    1 << phase as u8
}

/// What the name of a server's step tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Of so many tokens, 0 if the name doesn't tell.
    Pass(Phase, u64),
    /// It computes no token: vLLM has such a step when its last request has ended, and SGLang where others compute.
    Empty,
}

impl Step {
    /// vLLM's `execute_context_1(128)_generation_4(4)` (requests, and their tokens) and its longer form
    /// `execute_132_context_1(sq128sk128…)_generation_4(sq4sk512…)`, and SGLang's `step[DECODE bs=4 …]`.
    fn of(name: &str) -> Option<Self> {
        if let Some(step) = name.strip_prefix("step[") {
            let (mode, rest) = step.split_once(" bs=")?;
            let tokens = rest.split_once(" toks=").map_or(0, |(_, tokens)| leading(tokens));
            return Some(match mode {
                "EXTEND" | "MIXED" | "DLLM_EXTEND" => Self::Pass(Phase::Prefill, tokens),
                "DECODE" => Self::Pass(Phase::Decode, leading(rest)),
                // It computes the tokens that a draft model guessed.
                "VERIFY" => Self::Pass(Phase::Decode, tokens),
                "IDLE" => Self::Empty,
                _ => return None,
            });
        }
        let (all, steps) = name.strip_prefix("execute_")?.split_once("context_")?;
        let is_all =
            |all: &str| all.strip_suffix('_').is_some_and(|all| all.parse::<u64>().is_ok());
        if !all.is_empty() && !is_all(all) {
            return None;
        }
        let (context, generation) = steps.split_once("_generation_")?;
        let tokens = |text: &str| {
            let (requests, tokens) = text.strip_suffix(')')?.split_once('(')?;
            requests.parse::<u64>().ok()?;
            let tokens = tokens.strip_prefix("sq").unwrap_or(tokens);
            tokens.starts_with(|c: char| c.is_ascii_digit()).then(|| leading(tokens))
        };
        Some(match (tokens(context)?, tokens(generation)?) {
            (0, 0) => Self::Empty,
            (0, tokens) => Self::Pass(Phase::Decode, tokens),
            (prompts, answers) => Self::Pass(Phase::Prefill, prompts.saturating_add(answers)),
        })
    }
}

/// The number that a text begins with, 0 if there is none.
fn leading(text: &str) -> u64 {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().unwrap_or(0)
}

/// A thread of the file.
#[derive(Default)]
pub(super) struct Track<'a> {
    pub(super) pid: &'a str,
    pub(super) tid: &'a str,
    pub(super) name: Option<String>,
    /// Spans that have begun and not ended.
    open: Vec<Timed>,
}

#[derive(Default)]
pub(super) struct Reader<'a> {
    events: usize,
    pub(super) timed: Vec<Timed>,
    pub(super) names: Vec<String>,
    of_name: HashMap<String, u32>,
    pub(super) tracks: Vec<Track<'a>>,
    of_track: HashMap<(&'a str, &'a str), u32>,
    pub(super) processes: HashMap<&'a str, String>,
    /// What calls and what ran on devices have in common.
    pub(super) links: Vec<Link>,
    /// The fields of the file beside `traceEvents`.
    about: Vec<(String, &'a str)>,
    about_bytes: usize,
    /// When the first event began, in nanoseconds of the file's axis.
    pub(super) first_ns: Option<i64>,
    /// Whether an event has a category that only PyTorch's profiler writes.
    has_kinds: bool,
    /// For each phase the pattern of its passes.
    patterns: [Option<Pattern>; 2],
    pub(super) left_out: LeftOut,
    /// The number of the event that was wrong, and what was wrong with it.
    fault: Option<(usize, String)>,
}

#[derive(Default)]
pub(super) struct LeftOut {
    instants: u64,
    counters: u64,
    asyncs: u64,
    pub(super) flows: u64,
    others: u64,
    unbegun: u64,
    backwards: u64,
    /// Steps of a server that computed no token.
    empty_steps: u64,
    /// Events that can't be read.
    odd: u64,
    /// Work of a device whose times are 0.
    untimed: u64,
    /// Events that end a little behind the one around them, or begin a little before the one before them ends.
    cut: u64,
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
    if result.as_ref().is_err_and(|error| !error.is_eof()) && reader.fault.is_none() {
        mended = mend(text);
        if let Some(mended) = &mended {
            reader = Reader { patterns: patterns(), ..Reader::default() };
            result = reader.read(mended);
        }
    }
    let mut breaks_off = 0;
    let is_too_long = reader.timed.len() > MOST_EVENTS;
    if let Some((event, fault)) = reader.fault.take_if(|_| is_too_long || reader.timed.is_empty()) {
        return Err(at.place(format!("event {event}"), fault));
    }
    if let Err(error) = result {
        // A killed program leaves out the rest, which the format allows.
        if !error.is_eof() || reader.timed.is_empty() {
            return Err(at.json(&error));
        }
        breaks_off = 1;
    }
    if reader.timed.is_empty() {
        return Err(at.whole("has no event with a duration (`X`, or `B` with `E`)"));
    }
    let is_kineto = reader.has_kinds
        || reader.about.iter().any(|(field, _)| {
            ["schemaVersion", "deviceProperties", "traceName"].contains(&field.as_str())
        });
    if !is_kineto && options.map.is_some() {
        return Err(
            at.whole("isn't a trace of PyTorch's profiler, which the table of bricks is for")
        );
    }
    if is_kineto && options.prefill.is_none() && options.decode.is_none() {
        reader.choose_steps();
    }
    reader.choose_nth();
    for (phase, text) in [(Phase::Prefill, &options.prefill), (Phase::Decode, &options.decode)] {
        let is_it = |event: &Timed| event.passes & bit(phase) != 0;
        if let (Some(text), false) = (text, reader.timed.iter().any(is_it)) {
            return Err(at.whole(format!(
                "has no event `{text}`, which should be a {phase} pass; it has {}",
                some(&reader)
            )));
        }
    }
    let mut profile = match is_kineto {
        true => kineto::profile(&mut reader, at, &table)?,
        false => profile(&mut reader, at)?,
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
                // One odd event says nothing against the others.
                self.0.left_out.odd += 1;
                self.0.fault.get_or_insert((self.0.events, fault));
            }
            if self.0.timed.len() > MOST_EVENTS {
                let fault = format!("there are more than {MOST_EVENTS} events with a duration");
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
            } else if self.0.about_bytes < MOST_ABOUT {
                let value = fields.next_value::<&RawValue>()?.get();
                self.0.about_bytes += field.len() + value.len();
                self.0.about.push((field.into_owned(), value));
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

/// An argument of an event, as text.
fn argument(args: Option<&RawValue>, key: &str) -> Option<String> {
    let args: HashMap<String, Box<RawValue>> = serde_json::from_str(args?.get()).ok()?;
    Some(words(args.get(key).map(|value| &**value)).into_owned()).filter(|_| args.contains_key(key))
}

impl<'a> Reader<'a> {
    /// The text of a field beside `traceEvents`.
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
        self.about.iter().find(|(field, _)| field == name).map(|&(_, value)| value)
    }

    fn read(&mut self, text: &'a str) -> serde_json::Result<()> {
        let mut json = serde_json::Deserializer::from_str(text);
        Events(self).deserialize(&mut json).and_then(|()| json.end())
    }

    /// Without patterns, the steps of a server are passes. If there are none, those of a profiler with a schedule are.
    fn choose_steps(&mut self) {
        let mut steps: Vec<Option<Step>> = self.names.iter().map(|name| Step::of(name)).collect();
        if !steps.iter().any(|step| matches!(step, Some(Step::Pass(..)))) {
            let is_step = |name: &String| name.starts_with("ProfilerStep#");
            // Only a step that trains goes backward or changes weights.
            let trains = self.names.iter().any(|name| {
                ["autograd::engine::evaluate_function", "Optimizer.step#"]
                    .iter()
                    .any(|begin| name.starts_with(begin))
            });
            let phase = if trains { Phase::Training } else { Phase::Decode };
            let step = |name| is_step(name).then_some(Step::Pass(phase, 0));
            steps = self.names.iter().map(step).collect();
        }
        for event in &mut self.timed {
            match steps[event.name as usize] {
                Some(Step::Pass(phase, _)) => event.passes = bit(phase),
                Some(Step::Empty) if !event.kind.is_of_device() => self.left_out.empty_steps += 1,
                _ => {}
            }
        }
    }

    /// How many tokens a pass has, if its name tells.
    pub(super) fn tokens(&self, pass: &Timed) -> u64 {
        match Step::of(&self.names[pass.name as usize]) {
            Some(Step::Pass(_, tokens)) => tokens,
            _ => 0,
        }
    }

    /// Keeps those passes whose number, in the order of time, the pattern names.
    fn choose_nth(&mut self) {
        for (phase, pattern) in Phase::ALL.into_iter().zip(&self.patterns) {
            let Some((from, to)) = pattern.as_ref().and_then(|pattern| pattern.nth) else {
                continue;
            };
            let mut chosen: Vec<&mut Timed> =
                self.timed.iter_mut().filter(|event| event.passes & bit(phase) != 0).collect();
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
                Some(begun) => self.span(Timed { end: whole(start)?, ..begun }),
                None => self.left_out.unbegun += 1,
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
            self.links.push(Link::of(event.args, event.pid, event.tid));
            self.links.len() as u32 - 1
        });
        let name = self.name(name);
        let begun =
            Timed { lane, name, start: whole(start)?, end: 0, kind: kind_of_it, passes, link };
        if kind == "B" {
            self.tracks[lane as usize].open.push(begun);
        } else {
            let end = start.checked_add(picos(event.dur, "dur")?);
            let end = end.ok_or("the sum of `ts` and `dur` is out of range")?;
            self.span(Timed { end: whole(end)?, ..begun });
        }
        Ok(())
    }

    fn span(&mut self, timed: Timed) {
        match timed.end < timed.start {
            true => self.left_out.backwards += 1,
            false => self.timed.push(timed),
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

/// Sorts the events of each thread, outer ones first, and returns when the first one began.
pub(super) fn sorted(
    reader: &mut Reader<'_>,
    at: &At<'_>,
) -> Result<(Vec<Timed>, i64), ImportError> {
    let mut timed = std::mem::take(&mut reader.timed);
    reader.left_out.untimed += without_times(&mut timed);
    let origin = timed.iter().map(|event| event.start).min().unwrap_or_default();
    reader.first_ns = Some(origin);
    // Sums must hold all of it.
    let sum: u128 = timed.iter().map(|event| u128::from(event.end.abs_diff(event.start))).sum();
    if sum > u128::from(u64::MAX) {
        return Err(at.whole("its durations (`dur`) add up to more than 64 bits of nanoseconds"));
    }
    // Of those that begin and end together the outer one is written last, when it ends.
    timed.reverse();
    timed.sort_by_key(|event| (event.lane, event.start, Reverse(event.end)));
    reader.left_out.cut += cut_to_nest(&mut timed);
    Ok((timed, origin))
}

/// Removes work of devices that has the time 0, as a profiler writes it that lost the real one, if all else is later.
/// Returns how much it was.
fn without_times(timed: &mut Vec<Timed>) -> u64 {
    let is_zero = |event: &Timed| event.kind.is_of_device() && event.start == 0;
    let Some(first) = timed.iter().filter(|event| !is_zero(event)).map(|event| event.start).min()
    else {
        return 0;
    };
    let before = timed.len();
    timed.retain(|event| !(is_zero(event) && event.end < first));
    (before - timed.len()) as u64
}

/// Events of a thread nest, but for what clocks and rounding make of their ends: up to [`ROUNDED_NS`] are cut from an event
/// that ends behind the one around it, or after the next one has begun. A pass isn't lost for an event that goes on into it,
/// however long: that ends where the pass begins. Returns how many were cut.
fn cut_to_nest(timed: &mut [Timed]) -> u64 {
    let mut cut = 0;
    let mut stack: Vec<usize> = Vec::new();
    for at in 0..timed.len() {
        let event = timed[at];
        if event.kind.is_of_device() {
            continue;
        }
        if stack.last().is_some_and(|&around| timed[around].lane != event.lane) {
            stack.clear();
        }
        while stack.pop_if(|around| timed[*around].end <= event.start).is_some() {}
        // Those that end where it begins, and where it ends itself, if it nests then.
        let (mut kept, mut end) = (stack.len(), event.end);
        let nests = loop {
            let Some(around) = kept.checked_sub(1).map(|top| timed[stack[top]]) else { break true };
            let late = end.saturating_sub(around.end);
            if late <= 0 {
                break true;
            }
            let is_pass_in_none = event.phase().is_some() && around.phase().is_none();
            if around.end.saturating_sub(event.start) <= ROUNDED_NS || is_pass_in_none {
                kept -= 1;
            } else if late <= ROUNDED_NS {
                end = around.end;
            } else {
                break false;
            }
        };
        // Else it is left out later.
        if nests {
            for before in stack.drain(kept..) {
                timed[before].end = event.start;
                cut += 1;
            }
            cut += u64::from(end != event.end);
            timed[at].end = end;
            stack.push(at);
        }
    }
    cut
}

fn profile(reader: &mut Reader<'_>, at: &At<'_>) -> Result<Profile, ImportError> {
    let mut profile = at.profile(Format::Chrome, None, "of the program that wrote the trace");
    profile.lanes = lanes(reader);
    let (timed, origin) = sorted(reader, at)?;
    let numbers = names(&reader.names, &timed, &mut profile);
    let overlapping = nest(&timed, origin, &numbers, &mut profile);
    (profile.totals, profile.dropped.names) =
        totals(&profile.spans, &profile.passes, &profile.names);
    profile.phases = phases(&profile.passes);
    reader.left_out(&mut profile, overlapping);
    let passes = match profile.passes.is_empty() {
        true => "passes, phases and tokens: events don't say which of them are passes",
        false => "tokens: events don't say how many a pass had",
    };
    let layers = "layers and work: an event has only a name and times";
    lacks(&mut profile, &[passes, layers, "what measuring cost, and by which clock"]);
    Ok(profile)
}

impl Reader<'_> {
    /// Notes what was left out of a profile.
    pub(super) fn left_out(&self, profile: &mut Profile, overlapping: u64) {
        let LeftOut {
            instants,
            counters,
            asyncs,
            flows,
            others,
            unbegun,
            backwards,
            empty_steps,
            ..
        } = self.left_out;
        let LeftOut { odd, untimed, cut, .. } = self.left_out;
        let odd_ones = match &self.fault {
            Some((event, fault)) => {
                format!("events that can't be read, such as event {event}: {fault}")
            }
            None => String::new(),
        };
        let unended = self.tracks.iter().map(|track| track.open.len() as u64).sum();
        for (why, count) in [
            (odd_ones.as_str(), odd),
            ("work of a device whose times are 0", untimed),
            ("the ends of events that don't quite nest, up to 2 µs of each", cut),
            ("events that overlap another of their thread without nesting", overlapping),
            ("begins without an end", unended),
            ("ends without a begin", unbegun),
            ("events that end before they begin", backwards),
            ("steps that computed no token", empty_steps),
            ("asynchronous events", asyncs),
            ("flows", flows),
            ("counters", counters),
            ("instants", instants),
            ("events of other kinds", others),
        ] {
            left_out(profile, why, count);
        }
    }
}

/// Some of the names, for an error message: those that people give first.
fn some(reader: &Reader<'_>) -> String {
    let mut ranks = vec![2_u8; reader.names.len()];
    for event in &reader.timed {
        let rank = match event.kind {
            kind if kind.is_range() => 0,
            // Thousands, of which hardly one is a pass.
            EventKind::Function => 2,
            _ => 1,
        };
        let least = &mut ranks[event.name as usize];
        *least = rank.min(*least);
    }
    let mut names: Vec<(u8, &String)> = ranks.into_iter().zip(&reader.names).collect();
    names.sort_by_key(|&(rank, _)| rank);
    let quoted: Vec<String> = names.iter().take(20).map(|(_, name)| format!("`{name}`")).collect();
    let more = if names.len() > 20 { ", and more" } else { "" };
    quoted.join(", ") + more
}

pub(super) fn lanes(reader: &Reader<'_>) -> Vec<Lane> {
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

/// A pass of which nothing is attributed yet.
pub(super) fn pass_of(serial: u32, phase: Phase, lane: u32, start_ns: u64, wall_ns: u64) -> Pass {
    Pass {
        serial,
        phase,
        lane,
        tokens: 0,
        position: 0,
        start_ns,
        wall_ns,
        attributed_ns: 0,
        unattributed_ns: wall_ns,
        disturbance: None,
        is_left_out: false,
    }
}

/// The sums of spans by phase and name, and how many spans have a name for which there is no room.
pub(super) fn totals(spans: &[Span], passes: &[Pass], names: &[Name]) -> (Vec<Total>, u64) {
    let phases: HashMap<u32, Phase> = passes.iter().map(|pass| (pass.serial, pass.phase)).collect();
    type Key = (Option<Phase>, Source, u16);
    let mut sums: Vec<(Key, BrickStats)> = Vec::new();
    let mut of_sum: HashMap<Key, usize> = HashMap::new();
    let mut others = 0;
    for span in spans {
        let number = span.name.unwrap_or(OTHER_BRICK);
        others += u64::from(number >= OTHER_KERNEL);
        let phase = span.pass.and_then(|serial| phases.get(&serial).copied());
        let key = (phase, span.source, number);
        let index = *of_sum.entry(key).or_insert_with(|| {
            let name = names.get(usize::from(number));
            sums.push((key, BrickStats::new(name.map_or("(other)", |name| &name.name))));
            sums.len() - 1
        });
        sums[index].1.add(span.duration_ns, span.exclusive_ns, span.work);
    }
    let total = |((phase, source, number), stats): (Key, BrickStats)| {
        let sum = total(phase, source, stats);
        let is_kernel = number == OTHER_KERNEL;
        match names.get(usize::from(number)) {
            None if is_kernel => Total { kind: NameKind::Kernel, category: None, ..sum },
            None => sum,
            Some(name) => Total {
                kind: name.kind,
                category: name.brick_category(),
                host: name.host.clone(),
                device: name.device.clone(),
                ..sum
            },
        }
    };
    (sums.into_iter().map(total).collect(), others)
}

/// The sums of passes by phase.
pub(super) fn phases(passes: &[Pass]) -> Vec<PhaseTotal> {
    let sum = |phase| {
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
        for pass in passes.iter().filter(|pass| pass.phase == phase) {
            sum.passes += 1;
            sum.tokens = sum.tokens.saturating_add(pass.tokens);
            sum.wall_ns += pass.wall_ns;
            sum.attributed_ns += pass.attributed_ns;
            sum.unattributed_ns += pass.unattributed_ns;
        }
        // Of a part of the passes they would make a rate of nothing.
        if passes.iter().any(|pass| pass.phase == phase && pass.tokens == 0) {
            sum.tokens = 0;
        }
        sum
    };
    Phase::ALL.map(sum).into_iter().filter(|sum| sum.passes > 0).collect()
}
