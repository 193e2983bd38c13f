//! Chrome's trace events as JSON: an array of them, whose end may be missing, an object with `traceEvents`, or one event
//! after the other, as of a line each.
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>
//!
//! Spans are the complete events (`X`) and the pairs of begin and end (`B`, `E`, in any order) of each thread, which must
//! nest. Times are microseconds with fractions, here to the nearest nanosecond and from the first event on.
//!
//! Lines of a log may be before all of it, as a program writes them whose output goes to the same file.
//!
//! This file reads the events one at a time, so that traces larger than memory can be read, and makes a
//! profile of those of most programs. What PyTorch's profiler writes has more to tell, and goes to `kineto/`, as does what
//! JAX's and ONNX Runtime's write, by way of `jax.rs` and `onnx.rs`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Read;

use brickscope_profile::name::OTHER_BRICK;
use brickscope_profile::{Name, NameKind, Profile, Source, Span, Work};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::decimal::{nearest, scaled};
use super::kineto::{self, Captured, EventKind, Link};
use super::passes::Passes;
use super::totals::{MOST_NAMES, phases, totals};
use super::trace::{Timed, Trace, lanes, pass_of, sorted};
use super::values::{Fault, PIECE, Value, Values, line_and_column, parsed, text, words};
use super::{At, Format, ImportError, Options, UNDATED, jax, lacks, left_out, log_lines, onnx};

/// The most bytes of the fields outside of `traceEvents` that are kept.
const MOST_ABOUT: usize = 1 << 20;

/// What a trace is.
const EXPECTED: &str = "expected an array of trace events, or an object with `traceEvents`";

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

impl Event<'_> {
    fn is_empty(&self) -> bool {
        let Self { ph, name, cat, ts, dur, pid, tid, args } = self;
        [ph, name, cat, ts, dur, pid, tid, args].into_iter().all(Option::is_none)
    }
}

#[derive(Default)]
struct Reader {
    trace: Trace,
    events: usize,
    about_bytes: usize,
    /// Whether an event has a category that only PyTorch's profiler writes.
    has_kinds: bool,
    /// Whether it is the trace of a capture, whose calls state their kernels.
    is_capture: bool,
    passes: Passes,
    hints: jax::Hints,
    nodes: onnx::Nodes,
    /// How many lines of a log are before the trace, and the first of them.
    before: (u64, String),
    /// The number of the first event with nothing in it, and how many there are.
    empty: Option<(usize, u64)>,
}

/// Why reading ends before the end of the file.
enum Stop {
    Fault(Fault),
    /// There is more than can be kept.
    TooMuch(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Reads a trace. A byte of it may be of no character: those of names are replaced.
pub(super) fn read(text: &[u8], at: &At<'_>, options: &Options) -> Result<Profile, ImportError> {
    let values = Values::new(text, PIECE);
    read_values(values, at, options, |byte| line_and_column(text, byte))
}

/// Reads a trace of any length from a file, of which only the profile is kept in memory.
pub(super) fn read_from(
    file: impl Read,
    at: &At<'_>,
    options: &Options,
) -> Result<Profile, ImportError> {
    read_values(Values::new(file, PIECE), at, options, |byte| format!("byte {byte}"))
}

/// `place` names the place of a byte, counted from 1.
fn read_values<R: Read>(
    values: Values<R>,
    at: &At<'_>,
    options: &Options,
    place: impl Fn(u64) -> String,
) -> Result<Profile, ImportError> {
    // First of all, since a fault of it doesn't depend on the file.
    let table = kineto::table(options)?;
    let mut reader = Reader { passes: Passes::of(options), ..Reader::default() };
    let breaks_off = reader.read_all(values, at, place)?;
    let is_kineto = reader.has_kinds
        || reader.trace.about.iter().any(|(field, _)| {
            ["schemaVersion", "deviceProperties", "traceName"].contains(&field.as_str())
        });
    let is_jax = !is_kineto && jax::is_it(&reader.trace);
    let is_onnx = !is_kineto && !is_jax && reader.nodes.is_it();
    if !is_kineto && !is_jax && !is_onnx && options.map.is_some() {
        return Err(at.whole(
            "isn't a trace of PyTorch's profiler, JAX's or ONNX Runtime's, which the table of bricks is for",
        ));
    }
    // The objects that XProf writes end with one.
    let is_object = reader.trace.field("displayTimeUnit").is_some();
    reader.empty_ones(u64::from(is_object));
    let jax = is_jax.then(|| jax::resolve(&mut reader.trace, &reader.hints, &table));
    if is_onnx {
        let are_given = reader.passes.are_given();
        onnx::resolve(&mut reader.trace, &reader.nodes, &table, are_given);
    }
    reader.passes.choose(&mut reader.trace, at, is_kineto)?;
    reader.trace.captures = options.captures.clone();
    let writer =
        |program: &str| kineto::Writer { format: Format::Chrome, program: program.to_owned() };
    let trace = &mut reader.trace;
    let mut profile = match &jax {
        _ if is_kineto => kineto::read(trace, at, &table, || writer("PyTorch's profiler"))?,
        Some(_) => kineto::profile(trace, at, &table, writer("JAX's profiler (XProf)"))?,
        None if is_onnx => kineto::profile(trace, at, &table, writer("ONNX Runtime"))?,
        None => profile(trace, at)?,
    };
    if let Some(jax) = jax {
        jax.tell(&mut profile);
    }
    let (lines, first) = &reader.before;
    left_out(&mut profile, &format!("lines before the trace, such as `{first}`"), *lines);
    super::breaks_off(
        &mut profile,
        "the rest of the file, which is truncated",
        u64::from(breaks_off),
    );
    Ok(profile)
}

/// Reads the trace of a graph's capture, of any length.
pub(super) fn capture(
    file: impl Read,
    at: &At<'_>,
    options: &Options,
) -> Result<Captured, ImportError> {
    let table = kineto::table(options)?;
    let mut reader = Reader { is_capture: true, ..Reader::default() };
    reader.read_all(Values::new(file, PIECE), at, |byte| format!("byte {byte}"))?;
    kineto::captured(&mut reader.trace, at, &table)
}

/// An argument of an event, as text.
fn argument(args: Option<&RawValue>, key: &str) -> Option<String> {
    let args: HashMap<String, Box<RawValue>> = serde_json::from_str(args?.get()).ok()?;
    Some(words(args.get(key).map(|value| &**value)).into_owned()).filter(|_| args.contains_key(key))
}

impl Reader {
    /// Reads all events. Whether the file breaks off.
    fn read_all<R: Read>(
        &mut self,
        mut values: Values<R>,
        at: &At<'_>,
        place: impl Fn(u64) -> String,
    ) -> Result<bool, ImportError> {
        let stop = self.read(&mut values).err();
        match &stop {
            Some(Stop::TooMuch(fault)) => {
                return Err(at.place(format!("event {}", self.events), fault));
            }
            Some(Stop::Fault(Fault::Io(error))) => return Err(at.whole(error.to_string())),
            _ => {}
        }
        self.pairs();
        let is_empty = self.trace.is_empty();
        if is_empty {
            self.empty_ones(0);
        }
        if let Some((event, fault)) = self.trace.fault.take_if(|_| is_empty) {
            return Err(at.place(format!("event {event}"), fault));
        }
        match stop {
            Some(Stop::Fault(Fault::At(byte, fault))) => Err(at.place(place(byte), fault)),
            Some(_) if is_empty => {
                let fault = "breaks off before it has an event with a duration";
                Err(at.place(place(values.position()), fault))
            }
            // A killed program leaves out the rest, which the format allows.
            Some(_) => Ok(true),
            None if is_empty => {
                Err(at.whole("has no event with a duration (`X`, or `B` with `E`)"))
            }
            None => Ok(false),
        }
    }

    fn read<R: Read>(&mut self, values: &mut Values<R>) -> Result<(), Stop> {
        self.before = log_lines::counted(&values.skip_before(log_lines::before_trace)?);
        match values.peek()? {
            b'[' => self.events(values)?,
            b'{' => self.fields(values)?,
            _ => return Err(values.fault(EXPECTED).into()),
        }
        // Else the object is an event, and so are those behind it.
        let is_lines = self.trace.field("ph").is_some();
        if is_lines {
            self.fields_are_event();
        }
        loop {
            match values.peek() {
                Err(Fault::End) => return Ok(()),
                Err(fault) => return Err(fault.into()),
                Ok(b'{') if is_lines => self.element(values)?,
                Ok(_) => return Err(values.fault("there is more behind its end").into()),
            }
        }
    }

    /// Adds the event whose fields were read as those of a trace.
    fn fields_are_event(&mut self) {
        self.about_bytes = 0;
        let fields = std::mem::take(&mut self.trace.about).into_iter();
        let fields = fields.map(|(name, value)| format!("{}:{value}", Json::from(name)));
        let text = format!("{{{}}}", fields.collect::<Vec<_>>().join(","));
        match parsed::<Event<'_>>(text.as_bytes()) {
            Ok((event, _)) => self.event(&event),
            Err(fault) => self.odd(fault.to_string()),
        }
    }

    /// The array of events. There may be a comma behind the last one, as programs write it that don't know which it is.
    fn events<R: Read>(&mut self, values: &mut Values<R>) -> Result<(), Stop> {
        values.step();
        while values.peek()? != b']' {
            self.element(values)?;
            match values.peek()? {
                b',' => values.step(),
                b']' => {}
                _ => return Err(values.fault("expected `,` or `]`").into()),
            }
        }
        values.step();
        Ok(())
    }

    fn element<R: Read>(&mut self, values: &mut Values<R>) -> Result<(), Stop> {
        let mut is_object = true;
        let value = values.value(|text| {
            is_object = text.first() == Some(&b'{');
            if !is_object {
                return parsed::<IgnoredAny>(text).map(|(_, length)| length);
            }
            let (event, length) = parsed::<Event<'_>>(text)?;
            self.event(&event);
            Ok(length)
        })?;
        match value {
            Value::Read if is_object => {}
            Value::Read => self.odd("it is no object".to_owned()),
            Value::Odd(fault) => self.odd(fault),
        }
        match self.trace.too_much() {
            Some(fault) => Err(Stop::TooMuch(fault)),
            None => Ok(()),
        }
    }

    /// The fields of the object that has the events.
    fn fields<R: Read>(&mut self, values: &mut Values<R>) -> Result<(), Stop> {
        values.step();
        while values.peek()? != b'}' {
            if values.peek()? != b'"' {
                return Err(values.fault("expected the name of a field").into());
            }
            let mut field = String::new();
            values.value(|text| {
                let (name, length) = parsed::<String>(text)?;
                field = name;
                Ok(length)
            })?;
            if values.peek()? != b':' {
                return Err(values.fault("expected `:`").into());
            }
            values.step();
            let has_events = field == "traceEvents";
            match values.peek()? {
                b'[' if has_events => self.events(values)?,
                _ if has_events => return Err(values.fault(EXPECTED).into()),
                _ => self.field(values, field)?,
            }
            match values.peek()? {
                b',' => values.step(),
                b'}' => {}
                _ => return Err(values.fault("expected `,` or `}`").into()),
            }
        }
        values.step();
        Ok(())
    }

    /// A field beside the events.
    fn field<R: Read>(&mut self, values: &mut Values<R>, name: String) -> Result<(), Stop> {
        let is_kept = self.about_bytes < MOST_ABOUT;
        let mut kept = None;
        values.value(|text| {
            if !is_kept {
                return parsed::<IgnoredAny>(text).map(|(_, length)| length);
            }
            let (value, length) = parsed::<&RawValue>(text)?;
            kept = Some(value.get().to_owned());
            Ok(length)
        })?;
        if let Some(value) = kept {
            self.about_bytes = self.about_bytes.saturating_add(name.len() + value.len());
            self.trace.about.push((name, value));
        }
        Ok(())
    }

    /// One odd event says nothing against the others.
    fn odd(&mut self, fault: String) {
        self.events += 1;
        self.trace.left_out.odd += 1;
        self.trace.fault.get_or_insert((self.events, fault));
    }

    /// Events with nothing in them can't be read, but for so many.
    fn empty_ones(&mut self, but: u64) {
        let Some((first, count)) = self.empty.take().filter(|(_, count)| *count > but) else {
            return;
        };
        self.trace.left_out.odd += count - but;
        let fault = "`ph`, the kind of the event, is missing".to_owned();
        self.trace.fault.get_or_insert((first, fault));
    }

    fn event(&mut self, event: &Event<'_>) {
        if event.is_empty() {
            self.events += 1;
            self.empty.get_or_insert((self.events, 0)).1 += 1;
            return;
        }
        match self.add(event) {
            Ok(()) => self.events += 1,
            Err(fault) => self.odd(fault),
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
            let end = whole(start)?;
            let name = words(event.name);
            let name = (!name.is_empty()).then(|| self.trace.name(&name));
            if let Some(paired) = self.trace.end(lane, end, name) {
                self.pair(paired);
            }
            return Ok(());
        }
        let category = words(event.cat);
        let name = words(event.name);
        let of_kineto = EventKind::of(&category, &name);
        // In 2021 it was `Kernel`, as others may call theirs, but not with the call and the stream of one.
        let has = |key| argument(event.args, key).is_some();
        let is_of_2021 = || category == "Kernel" && has("correlation") && has("stream");
        self.has_kinds = self.has_kinds || EventKind::is_sure(&category, &name) || is_of_2021();
        let passes = self.passes.bits(&name, |key| argument(event.args, key));
        let kind_of_it = of_kineto.unwrap_or_default();
        let end = || -> Result<i64, String> {
            let end = start.checked_add(picos(event.dur, "dur")?);
            whole(end.ok_or("the sum of `ts` and `dur` is out of range")?)
        };
        if kind == "X" && self.is_only_counted(kind_of_it, passes) {
            self.trace.count_only(kind_of_it, &name, whole(start)?, end()?);
            return Ok(());
        }
        let link = of_kineto
            .is_some_and(EventKind::is_linked)
            .then(|| self.trace.link(Link::of(event.args, event.pid, event.tid)));
        if let Some(link) = link {
            self.trace.collectives.note(link, event.args);
        }
        if let Some(link) = link.filter(|_| kind_of_it == EventKind::Op) {
            self.trace.products.note(link, &name, event.args);
            self.trace.attentions.note(link, &name, event.args);
        }
        let note = kineto::note(kind_of_it, event.args, self.is_capture);
        if let (Some(link), Some(note)) = (link, note) {
            self.trace.note(link, &note);
        }
        let name = self.trace.name(&name);
        let begun =
            Timed { lane, name, start: whole(start)?, end: 0, kind: kind_of_it, passes, link };
        if kind == "B" {
            self.trace.begin(begun);
        } else {
            let number = self.trace.timed.len();
            self.trace.span(Timed { end: end()?, ..begun });
            if of_kineto.is_none() && self.trace.timed.len() > number {
                match self.hints.note(number, event.args) {
                    0 => {}
                    bytes => self.trace.takes(bytes),
                }
                if category == onnx::CATEGORY {
                    self.nodes.note(&mut self.trace, number, event.args);
                }
            }
        }
        Ok(())
    }

    /// Adds the pairs of begin and end, which a file may have in any order.
    fn pairs(&mut self) {
        for lane in 0..self.trace.tracks.len() {
            for paired in self.trace.paired(lane) {
                self.pair(paired);
            }
        }
    }

    fn pair(&mut self, paired: Timed) {
        match self.is_only_counted(paired.kind, paired.passes) {
            true => self.trace.count_only(paired.kind, "", paired.start, paired.end),
            false => self.trace.span(paired),
        }
    }

    /// Whether the number of events such as this is all that becomes of them in a trace of PyTorch's
    /// profiler.
    fn is_only_counted(&self, kind: EventKind, passes: u8) -> bool {
        let is_such = matches!(kind, EventKind::Function | EventKind::Profiler);
        is_such && passes == 0 && self.has_kinds
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
            "thread_name" => self.trace.name_track(text(event.pid), text(event.tid), name),
            "process_name" => self.trace.name_process(text(event.pid), name),
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
    lacks(&mut profile, &[passes, layers, "what measuring cost, and by which clock", UNDATED]);
    Ok(profile)
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

#[cfg(test)]
mod tests;
