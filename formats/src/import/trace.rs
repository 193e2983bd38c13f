//! What a profiler of a GPU and its host has recorded: timed events on tracks, with what ties the work of a device to the
//! call that launched it. Readers of several formats fill a [`Trace`], of which `kineto/` makes a profile.

use std::collections::HashMap;

use brickscope_profile::{Lane, Pass, Phase, Profile, StepTold};

use super::kineto::{Attentions, Captured, Collectives, EventKind, Link, Products};
use super::nest::{Event, Nested, nest};
use super::pairs::Edges;
use super::step::Step;
use super::{At, ImportError, left_out};

/// The most events that are kept: each takes some 130 bytes, so all of them 2 GiB.
pub(super) const MOST_EVENTS: usize = 1 << 24;

/// The most bytes of the names of events, threads and processes, and of other texts of theirs.
const MOST_TEXT: usize = 256 << 20;

/// What a name takes beside its text, in bytes.
const OF_A_NAME: usize = 100;

/// So many names of events that are only counted are kept, for an error message; and none that is longer.
const MOST_COUNTED_NAMES: usize = 21;
const LONGEST_COUNTED_NAME: usize = 1000;

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

impl Event for Timed {
    fn lane(&self) -> u32 {
        self.lane
    }

    fn start(&self) -> i64 {
        self.start
    }

    fn end(&self) -> i64 {
        self.end
    }

    fn put(&mut self, start: i64, end: i64) {
        (self.start, self.end) = (start, end);
    }

    fn is_of_device(&self) -> bool {
        self.kind.is_of_device()
    }

    fn is_pass(&self) -> bool {
        self.phase().is_some()
    }
}

pub(super) fn bit(phase: Phase) -> u8 {
    1 << phase as u8
}

/// A thread of the host, or a stream of a device.
#[derive(Default)]
pub(super) struct Track {
    pub(super) pid: String,
    pub(super) tid: String,
    pub(super) name: Option<String>,
    /// Begins and ends that aren't paired yet.
    edges: Edges<Timed>,
    /// Spans that begin and never end, once all are paired.
    pub(super) open: Vec<Timed>,
}

/// The events of a file.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) timed: Vec<Timed>,
    pub(super) names: Vec<String>,
    of_name: HashMap<String, u32>,
    pub(super) tracks: Vec<Track>,
    /// By process, then by thread: so a look needs no text of its own.
    of_track: HashMap<String, HashMap<String, u32>>,
    pub(super) processes: HashMap<String, String>,
    /// What calls and what ran on devices have in common.
    pub(super) links: Vec<Link>,
    pub(super) notes: Notes,
    /// What was captured of the graphs in it, if the user has a trace of that.
    pub(super) captures: Vec<Captured>,
    /// What the file states of collectives, by the number of a link.
    pub(super) collectives: Collectives,
    /// What shapes tell of the work of products, by the number of a link.
    pub(super) products: Products,
    /// What arguments tell of the work of attention, by the number of a link.
    pub(super) attentions: Attentions,
    /// The rank whose events these are, if those of several are in the file.
    pub(super) rank: Option<u32>,
    /// How many tokens passes have by their shapes, by track and begin.
    pub(super) run_tokens: HashMap<(u32, i64), u64>,
    /// What the file states beside its events, as JSON.
    pub(super) about: Vec<(String, String)>,
    /// When the first event began, in nanoseconds of the file's axis.
    pub(super) first_ns: Option<i64>,
    /// The same of those that were only counted, and names of some of them.
    first_counted: Option<i64>,
    counted_names: Vec<String>,
    /// How many bytes names take.
    text_bytes: usize,
    /// How many begins and ends aren't paired yet.
    edges: usize,
    pub(super) left_out: LeftOut,
    /// The number of the first event that can't be read, and what is wrong with it.
    pub(super) fault: Option<(usize, String)>,
}

/// Texts that events note beside their links.
#[derive(Default)]
pub(super) struct Notes {
    texts: Vec<String>,
    of_text: HashMap<String, u32>,
    of_link: HashMap<u32, u32>,
}

impl Notes {
    /// Notes the text of a link. Whether no other one has it.
    fn add(&mut self, link: u32, text: &str) -> bool {
        let next = self.texts.len() as u32;
        let number = self.of_text.get(text).copied().unwrap_or(next);
        if number == next {
            self.texts.push(text.to_owned());
            self.of_text.insert(text.to_owned(), number);
        }
        self.of_link.insert(link, number);
        number == next
    }

    pub(super) fn of(&self, link: Option<u32>) -> Option<&str> {
        let number = *self.of_link.get(&link?)?;
        self.texts.get(number as usize).map(String::as_str)
    }
}

#[derive(Default)]
pub(super) struct LeftOut {
    pub(super) instants: u64,
    pub(super) counters: u64,
    pub(super) asyncs: u64,
    pub(super) flows: u64,
    pub(super) others: u64,
    pub(super) unbegun: u64,
    pub(super) backwards: u64,
    /// Functions of Python that aren't modules, and events of the profiler itself, that aren't among the
    /// events.
    pub(super) functions: u64,
    pub(super) of_profiler: u64,
    /// Steps of a server that computed no token.
    pub(super) empty_steps: u64,
    /// Events that can't be read.
    pub(super) odd: u64,
    /// Work of a device whose times are 0.
    pub(super) untimed: u64,
    /// What was cut off events so that they nest, and which were removed.
    nested: Nested,
    /// Passes that end when they begin.
    pub(super) timeless: u64,
}

impl Trace {
    /// What the file states under a name, as JSON.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.about.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// The number of a name.
    pub(super) fn name(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.of_name.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.takes(2 * name.len());
        self.names.push(name.to_owned());
        self.of_name.insert(name.to_owned(), number);
        number
    }

    /// Notes a text beside a link.
    pub(super) fn note(&mut self, link: u32, text: &str) {
        if self.notes.add(link, text) {
            self.takes(2 * text.len());
        }
    }

    /// Counts the bytes of a text that is kept.
    pub(super) fn takes(&mut self, bytes: usize) {
        self.text_bytes = self.text_bytes.saturating_add(bytes).saturating_add(OF_A_NAME);
    }

    /// What there is too much of in the file, if there is.
    pub(super) fn too_much(&self) -> Option<String> {
        // A link may be of an event that was left out.
        let timed = self.timed.len().saturating_add(self.edges.div_ceil(2));
        if timed.max(self.links.len()) > MOST_EVENTS {
            return Some(format!("there are more than {MOST_EVENTS} events with a duration"));
        }
        let most = MOST_TEXT >> 20;
        (self.text_bytes > MOST_TEXT)
            .then(|| format!("the names of events and threads take more than {most} MiB"))
    }

    /// The number of a track.
    pub(super) fn track(&mut self, pid: &str, tid: &str) -> u32 {
        if let Some(&number) = self.of_track.get(pid).and_then(|tracks| tracks.get(tid)) {
            return number;
        }
        let number = self.tracks.len() as u32;
        self.takes(2 * (pid.len() + tid.len()));
        let track = Track { pid: pid.to_owned(), tid: tid.to_owned(), ..Track::default() };
        self.tracks.push(track);
        self.of_track.entry(pid.to_owned()).or_default().insert(tid.to_owned(), number);
        number
    }

    /// Names a track.
    pub(super) fn name_track(&mut self, pid: &str, tid: &str, name: String) {
        let track = self.track(pid, tid);
        self.takes(name.len());
        self.tracks[track as usize].name = Some(name);
    }

    /// Names a process.
    pub(super) fn name_process(&mut self, pid: &str, name: String) {
        self.takes(pid.len() + name.len());
        self.processes.insert(pid.to_owned(), name);
    }

    /// The number of a link, for [`Timed::link`].
    pub(super) fn link(&mut self, link: Link) -> u32 {
        self.links.push(link);
        self.links.len() as u32 - 1
    }

    /// Begins an event, whose end isn't known yet.
    pub(super) fn begin(&mut self, timed: Timed) {
        if let Some(track) = self.tracks.get_mut(timed.lane as usize) {
            track.edges.begin(timed.start, timed.name, timed);
            self.edges += 1;
        }
    }

    /// Ends an event of a track, which is paired with its begin later. Returns the event if it took no time.
    pub(super) fn end(&mut self, lane: u32, at: i64, name: Option<u32>) -> Option<Timed> {
        let begun = self.tracks.get_mut(lane as usize)?.edges.end(at, name);
        self.edges = if begun.is_some() { self.edges - 1 } else { self.edges + 1 };
        begun.map(|begun| Timed { end: at, ..begun })
    }

    /// The events of a track that begin and end, which are no longer with it.
    pub(super) fn paired(&mut self, lane: usize) -> Vec<Timed> {
        let Some(track) = self.tracks.get_mut(lane) else { return Vec::new() };
        let edges = std::mem::take(&mut track.edges);
        self.edges -= edges.len();
        let mut found = Vec::new();
        let (open, unbegun) = edges.pair(|begun, end| found.push(Timed { end, ..begun }));
        track.open = open;
        self.left_out.unbegun += unbegun;
        found
    }

    /// Adds an event, unless it ends before it begins.
    pub(super) fn span(&mut self, timed: Timed) {
        match timed.end < timed.start {
            true => self.left_out.backwards += 1,
            false => self.timed.push(timed),
        }
    }

    /// Counts an event that is of no use but for its number, a function of Python or one of the profiler
    /// itself, unless it ends before it begins. Most events of a large trace are such.
    pub(super) fn count_only(&mut self, kind: EventKind, name: &str, start: i64, end: i64) {
        if end < start {
            self.left_out.backwards += 1;
            return;
        }
        match kind {
            EventKind::Profiler => self.left_out.of_profiler += 1,
            _ => self.left_out.functions += 1,
        }
        self.first_counted = Some(self.first_counted.map_or(start, |first| first.min(start)));
        if self.counted_names.len() < MOST_COUNTED_NAMES
            && (1..=LONGEST_COUNTED_NAME).contains(&name.len())
            && !self.counted_names.iter().any(|known| known == name)
        {
            self.counted_names.push(name.to_owned());
        }
    }

    /// Whether no event has a duration, not even one that was only counted.
    pub(super) fn is_empty(&self) -> bool {
        self.timed.is_empty() && self.first_counted.is_none()
    }

    /// Names of events that were only counted, but for those that others have too.
    pub(super) fn counted_names(&self) -> impl Iterator<Item = &String> {
        self.counted_names.iter().filter(|name| !self.of_name.contains_key(*name))
    }

    /// Without patterns, the steps of a server are passes. If there are none, those of a profiler with a schedule are.
    pub(super) fn choose_steps(&mut self) {
        // Of steps the phase, which one that computes nothing lacks.
        let phase_of = |name: &String| Step::of(name).map(Step::phase);
        let mut steps: Vec<Option<Option<Phase>>> = self.names.iter().map(phase_of).collect();
        if !steps.iter().any(|step| matches!(step, Some(Some(_)))) {
            let is_step = |name: &String| name.starts_with("ProfilerStep#");
            // Only a step that trains goes backward or changes weights.
            let trains = self.names.iter().any(|name| {
                ["autograd::engine::evaluate_function", "Optimizer.step#"]
                    .iter()
                    .any(|begin| name.starts_with(begin))
            });
            let has_name = |name: u32| self.names.get(name as usize).is_some_and(is_step);
            let prompts = self.attentions.steps_of_prompts(&self.timed, has_name);
            let phase = |name: u32| match prompts.contains(&name) {
                _ if trains => Phase::Training,
                true => Phase::Prefill,
                false => Phase::Decode,
            };
            let step = |(number, name)| is_step(name).then(|| Some(phase(number)));
            steps = (0_u32..).zip(&self.names).map(step).collect();
        }
        for event in &mut self.timed {
            match steps[event.name as usize] {
                Some(Some(phase)) => event.passes = bit(phase),
                Some(None) if !event.kind.is_of_device() => self.left_out.empty_steps += 1,
                _ => {}
            }
        }
    }

    /// Whether it is a step of a server that computed no token.
    pub(super) fn is_idle(&self, event: &Timed) -> bool {
        Step::of(&self.names[event.name as usize]) == Some(Step::Empty)
    }

    /// How many tokens a pass has, if its name or shapes in it tell.
    pub(super) fn tokens(&self, pass: &Timed) -> u64 {
        match Step::of(&self.names[pass.name as usize]) {
            Some(Step::Pass { tokens, .. }) => tokens,
            _ => self.run_tokens.get(&(pass.lane, pass.start)).copied().unwrap_or(0),
        }
    }

    /// What the name of a pass tells of the work in it.
    pub(super) fn told(&self, pass: &Timed) -> Option<StepTold> {
        match Step::of(&self.names[pass.name as usize]) {
            Some(Step::Pass { told, .. }) => Some(told).filter(|told| *told != StepTold::default()),
            _ => None,
        }
    }

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
        let LeftOut { odd, untimed, timeless, nested, .. } = self.left_out;
        let Nested { cut, into_passes, .. } = nested;
        let odd_ones = match &self.fault {
            Some((event, fault)) => {
                format!("events that can't be read, such as event {event}: {fault}")
            }
            None => String::new(),
        };
        let cut_ones =
            format!("the ends of events that don't quite nest, up to {}", nested.most(" of each"));
        let overlapping_ones = format!(
            "events that overlap another of their thread without nesting, by more than {}",
            nested.most("")
        );
        let unended = self.tracks.iter().map(|track| track.open.len() as u64).sum();
        for (why, count) in [
            (odd_ones.as_str(), odd),
            ("work of a device whose times are 0", untimed),
            (cut_ones.as_str(), cut),
            ("events that go on into a pass, so that their own time isn't known", into_passes),
            (overlapping_ones.as_str(), overlapping),
            ("begins without an end", unended),
            ("ends without a begin", unbegun),
            ("events that end before they begin", backwards),
            ("passes of 0 ns", timeless),
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

/// Sorts the events of each thread, outer ones first, and returns when the first one began.
pub(super) fn sorted(trace: &mut Trace, at: &At<'_>) -> Result<(Vec<Timed>, i64), ImportError> {
    let mut timed = std::mem::take(&mut trace.timed);
    trace.left_out.untimed += without_times(&mut timed, trace.first_counted);
    let starts = timed.iter().map(|event| event.start);
    let origin = starts.chain(trace.first_counted).min().unwrap_or_default();
    trace.first_ns = Some(origin);
    // Sums must hold all of it.
    let sum: u128 = timed.iter().map(|event| u128::from(event.end.abs_diff(event.start))).sum();
    if sum > u128::from(u64::MAX) {
        return Err(at.whole("its durations (`dur`) add up to more than 64 bits of nanoseconds"));
    }
    // Of those that begin and end together the outer one is written last, when it ends.
    timed.reverse();
    trace.left_out.nested = nest(&mut timed);
    Ok((timed, origin))
}

/// Removes work of devices that has the time 0, as a profiler writes it that lost the real one, if all else is later: by far, if
/// it has a duration, since a file's times may begin at 0.
/// `first_counted` is when the first event began that isn't among these. Returns how much it was.
fn without_times(timed: &mut Vec<Timed>, first_counted: Option<i64>) -> u64 {
    let is_zero = |event: &Timed| event.kind.is_of_device() && event.start == 0;
    let others = timed.iter().filter(|event| !is_zero(event)).map(|event| event.start);
    let Some(first) = others.chain(first_counted).min() else { return 0 };
    let before = timed.len();
    let is_lost = |event: &Timed| {
        is_zero(event) && event.end < first && (event.end == 0 || first - event.end > FAR_NS)
    };
    timed.retain(|event| !is_lost(event));
    (before - timed.len()) as u64
}

/// No device waits that long for its second kernel.
const FAR_NS: i64 = 100_000_000;

pub(super) fn lanes(trace: &Trace) -> Vec<Lane> {
    let mut pids: Vec<&str> = trace.tracks.iter().map(|track| track.pid.as_str()).collect();
    pids.sort_unstable();
    pids.dedup();
    let lane = |track: &Track| {
        let tid = track.tid.parse::<u32>().ok();
        // A thread whose id is a word.
        let word = || tid.is_none().then(|| track.tid.trim_matches('"').to_owned());
        let name = track.name.clone().or_else(word).filter(|name| !name.is_empty());
        if pids.len() < 2 {
            return Lane { name, tid };
        }
        let process = trace.processes.get(&track.pid).cloned();
        let process = process.unwrap_or_else(|| format!("process {}", track.pid));
        let name = match name {
            Some(name) => format!("{process}: {name}"),
            None => process,
        };
        Lane { name: Some(name), tid }
    };
    trace.tracks.iter().map(lane).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_takes_its_bytes_once() {
        let mut trace = Trace::default();
        trace.note(0, "layers.0");
        trace.note(1, "layers.0");
        assert_eq!(trace.text_bytes, 2 * 8 + OF_A_NAME);
        trace.note(2, "layers.10");
        assert_eq!(trace.text_bytes, 2 * (8 + 9) + 2 * OF_A_NAME);
        let of = [0, 1, 2, 3].map(|link| trace.notes.of(Some(link)));
        assert_eq!(of, [Some("layers.0"), Some("layers.0"), Some("layers.10"), None]);
        // It counts towards what is too much.
        trace.takes(MOST_TEXT);
        assert!(trace.too_much().is_some_and(|fault| fault.contains("256 MiB")));
    }
}
