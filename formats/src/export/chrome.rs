//! Chrome's trace events as JSON, as Perfetto, `chrome://tracing` and many scripts read them
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>).
//!
//! Times are microseconds with three decimals: nanoseconds, exact. Slices (`X`) of a thread nest.

use std::collections::HashSet;
use std::io::{self, Write};

use brickscope_profile::{LaunchKind, Profile, Span};

use super::facts::{self, Fact, facts};
use super::timeline::{
    Counter, Group, Launched, Sink, Slice, SpanKind, Timeline, TraceFile, Track, What, kind_of,
    name_of, stated, told_tokens,
};
use super::{Counted, Value, launch};

/// Process and thread numbers from here on are for what is not a process or thread of the system.
const NOT_OF_SYSTEM: u64 = 1 << 30;

/// A profile as a trace, written part by part.
#[derive(Debug)]
pub struct Trace<'p> {
    profile: &'p Profile,
    timeline: Timeline<'p>,
    /// The annotations of slices of each name, as members of an object.
    of_name: Vec<String>,
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
        let of_name = profile.names.iter().map(|name| {
            let mut members = String::new();
            for (key, value) in launch(name) {
                let value = match value {
                    Value::Count(count) => count.to_string(),
                    Value::Text(text) => json(&text),
                };
                members.push_str(&format!(",\"{key}\":{value}"));
            }
            members
        });
        let timeline = Timeline::new(profile, part_bytes);
        Self { profile, timeline, of_name: of_name.collect(), parts: 0 }
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
        let mut file = File {
            profile: self.profile,
            of_name: &self.of_name,
            out: Counted::new(out),
            is_first: true,
            groups: HashSet::new(),
            threads: Vec::new(),
        };
        file.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut part = self.timeline.write_part(&mut file, tail, progress)?;
        let facts = facts(self.profile, self.parts, part.left_out);
        file.out.write_all(b"\n],\"otherData\":{")?;
        for (nth, (name, fact)) in facts.into_iter().enumerate() {
            let value = match fact {
                Fact::Text(text) => json(&text),
                Fact::Count(count) => count.to_string(),
                Fact::Number(number) => json(&number),
            };
            let comma = if nth > 0 { "," } else { "" };
            write!(file.out, "{comma}\n{}:{value}", json(&name))?;
        }
        file.out.write_all(b"\n}}\n")?;
        part.bytes = file.out.bytes;
        file.out.flush()?;
        Ok(part)
    }
}

/// JSON text, with control characters escaped, as serde_json does.
fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("texts and finite numbers are JSON")
}

/// A part while it is written.
struct File<'f, W: ?Sized> {
    profile: &'f Profile,
    of_name: &'f [String],
    out: Counted<'f, W>,
    is_first: bool,
    groups: HashSet<Group>,
    /// The process and thread numbers of each track.
    threads: Vec<(u64, u64)>,
}

/// Nanoseconds as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

impl<W: Write + ?Sized> File<'_, W> {
    /// Begins an event.
    fn next(&mut self) -> io::Result<()> {
        let first = std::mem::replace(&mut self.is_first, false);
        self.out.write_all(if first { b"\n" } else { b",\n" })
    }

    /// The process number of a group; its name is written once in each part.
    fn pid(&mut self, group: Group) -> io::Result<u64> {
        let device = group.checked_sub(1).and_then(|nth| self.profile.devices.get(nth));
        let (pid, name) = match device {
            Some(device) => {
                (NOT_OF_SYSTEM + group as u64, format!("{} ({})", device.name, device.api))
            }
            None => {
                let unknown = NOT_OF_SYSTEM as u32;
                let pid = self.profile.process.filter(|&pid| pid < unknown).unwrap_or(unknown);
                (pid.into(), "brickscope".to_owned())
            }
        };
        if self.groups.insert(group) {
            self.next()?;
            let name = json(&name);
            write!(
                self.out,
                r#"{{"ph":"M","pid":{pid},"name":"process_name","args":{{"name":{name}}}}}"#
            )?;
            self.next()?;
            write!(
                self.out,
                r#"{{"ph":"M","pid":{pid},"name":"process_sort_index","args":{{"sort_index":{group}}}}}"#
            )?;
        }
        Ok(pid)
    }

    fn thread(&self, track: u32) -> (u64, u64) {
        self.threads.get(track as usize).copied().unwrap_or_default()
    }

    fn count(&mut self, name: &str, count: Option<u64>) -> io::Result<()> {
        count.map_or(Ok(()), |count| write!(self.out, ",\"{name}\":{count}"))
    }

    /// The name of a span, as JSON.
    fn span_name(&self, span: &Span) -> String {
        match (span.name, span.layer) {
            (None, Some(layer)) => format!("\"layer {layer}\""),
            (None, None) => "\"layer\"".to_owned(),
            (Some(index), _) => {
                name_of(self.profile, index).map_or_else(|| format!("\"#{index}\""), json)
            }
        }
    }

    /// A slice without duration, since arrows are drawn from slice to slice.
    fn point(&mut self, at: (u32, u64), name: &str, category: &str) -> io::Result<()> {
        let (pid, tid) = self.thread(at.0);
        let ts = Micros(at.1);
        self.next()?;
        write!(
            self.out,
            r#"{{"ph":"X","pid":{pid},"tid":{tid},"ts":{ts},"dur":0.000,"name":{name},"cat":"{category}","args":{{}}}}"#
        )
    }

    /// One end of an arrow, in the slice that is there.
    fn arrow(&mut self, id: u64, is_end: bool, name: &str, at: (u32, u64)) -> io::Result<()> {
        let (pid, tid) = self.thread(at.0);
        let end = if is_end { r#""f","bp":"e""# } else { r#""s""# };
        let ts = Micros(at.1);
        self.next()?;
        write!(
            self.out,
            r#"{{"ph":{end},"id":{id},"pid":{pid},"tid":{tid},"ts":{ts},"name":"{name}","cat":"flow"}}"#
        )
    }
}

impl<W: Write + ?Sized> Sink for File<'_, W> {
    fn track(&mut self, id: u32, track: &Track) -> io::Result<()> {
        let pid = self.pid(track.group)?;
        let unknown = NOT_OF_SYSTEM + u64::from(id);
        let tid = track.tid.map_or(unknown, u64::from);
        let place = id as usize;
        if self.threads.len() <= place {
            self.threads.resize(place + 1, (0, 0));
        }
        self.threads[place] = (pid, tid);
        let name = json(&track.name);
        let sort_index = track.beside.unwrap_or(id);
        self.next()?;
        write!(
            self.out,
            r#"{{"ph":"M","pid":{pid},"tid":{tid},"name":"thread_name","args":{{"name":{name}}}}}"#
        )?;
        self.next()?;
        write!(
            self.out,
            r#"{{"ph":"M","pid":{pid},"tid":{tid},"name":"thread_sort_index","args":{{"sort_index":{sort_index}}}}}"#
        )
    }

    fn begin(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let (pid, tid) = self.thread(slice.track);
        let (ts, dur) = (Micros(slice.start_ns), Micros(slice.duration_ns));
        let (kind, name) = match slice.what {
            What::Pass(pass) => ("pass", json(pass.phase.name())),
            What::Span(_, span) => (kind_of(self.profile, span).name(), self.span_name(span)),
        };
        self.next()?;
        write!(
            self.out,
            r#"{{"ph":"X","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"name":{name},"cat":"{kind}","args":{{"#
        )?;
        match slice.what {
            What::Pass(pass) => {
                write!(self.out, "\"pass\":{}", pass.serial)?;
                let [tokens, position] = told_tokens(self.profile, pass);
                self.count("tokens", tokens)?;
                self.count("position", position)?;
                self.count("attributed_ns", Some(pass.attributed_ns))?;
                self.count("unattributed_ns", Some(pass.unattributed_ns))?;
                self.count("disturbed", pass.is_disturbed().then_some(1))?;
                self.count("left_out", pass.is_left_out.then_some(1))?;
            }
            What::Span(row, span) => {
                write!(self.out, "\"row\":{row}")?;
                self.count("pass", span.pass.map(Into::into))?;
                self.count("layer", span.layer.map(Into::into))?;
                if kind_of(self.profile, span) == SpanKind::Brick {
                    self.count("exclusive_ns", Some(span.exclusive_ns))?;
                }
                for (what, count) in stated(span.work) {
                    self.count(what, count)?;
                }
                write!(self.out, ",\"source\":\"{}\"", span.source.name())?;
                let of_name = span.name.and_then(|index| self.of_name.get(usize::from(index)));
                if let Some(of_name) = of_name {
                    self.out.write_all(of_name.as_bytes())?;
                }
                if let Some(launch) = &slice.launch {
                    write!(self.out, ",\"launch\":\"{}\"", launch.kind.name())?;
                    self.count("issued_ns", Some(launch.issued_ns))?;
                    write!(self.out, ",\"start_after_launch_ns\":{}", launch.delay_ns)?;
                    self.count("clock_error_ns", launch.error_ns)?;
                    if let Some(oddity) = launch.oddity() {
                        write!(self.out, ",\"oddity\":\"{oddity}\"")?;
                    }
                }
            }
        }
        self.out.write_all(b"}}")?;
        match slice.flow {
            Some(flow) => self.arrow(flow.id, flow.is_end, "launch", (slice.track, slice.start_ns)),
            None => Ok(()),
        }
    }

    fn end(&mut self, _: u32, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn launch(
        &mut self,
        track: u32,
        launch: &Launched,
        span: &Span,
        id: Option<u64>,
    ) -> io::Result<()> {
        let name = match launch.kind {
            LaunchKind::Replayed => "\"graph\"".to_owned(),
            _ => self.span_name(span),
        };
        let at = (track, launch.issued_ns);
        self.point(at, &name, "launch")?;
        id.map_or(Ok(()), |id| self.arrow(id, false, "launch", at))
    }

    fn hand_off(&mut self, id: u64, from: (u32, u64), to: (u32, u64)) -> io::Result<()> {
        for (is_end, name, at) in [(false, "hand-off", from), (true, "take-over", to)] {
            // Work is handed off between slices.
            self.point(at, &format!("\"{name}\""), "hand-off")?;
            self.arrow(id, is_end, "hand-off", at)?;
        }
        Ok(())
    }

    fn counter(&mut self, group: Group, what: Counter, at_ns: u64, value: f64) -> io::Result<()> {
        let pid = self.pid(group)?;
        let (ts, name, unit, value) = (Micros(at_ns), what.name(), what.unit(), json(&value));
        self.next()?;
        write!(
            self.out,
            r#"{{"ph":"C","pid":{pid},"ts":{ts},"name":"{name}","args":{{"{unit}":{value}}}}}"#
        )
    }

    fn bytes(&self) -> u64 {
        self.out.bytes
    }
}
