//! Traces of JAX's profiler (XProf): Chrome's trace events, with a process for each device, such as
//! `/device:GPU:0`. Its tracks are streams, or on a TPU `XLA Ops`; others say of the same work in which
//! steps, modules and scopes it was.
//! <https://github.com/openxla/xprof>
//!
//! A kernel has the path of the scopes that the program computed it in (`tf_op`), which tells its layer and
//! its brick. Names of tracks may stand behind their events, so [`resolve`] comes last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use brickscope_profile::Profile;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::kineto::{EventKind, LISTS, Link, Table};
use super::left_out;
use super::trace::{Timed, Trace, Track};
use super::values::words;

/// XProf writes no more events than that.
const MOST_WRITTEN: usize = 1_000_000;

/// The most scopes of a path that the table is asked for.
const MOST_SCOPES: usize = 16;

/// By so much rounding moves an event's end, in nanoseconds.
const ROUNDED_NS: i64 = 2;

type Sizes = ((u32, u32, u32), (u32, u32, u32), u32);

/// What the arguments of events tell, before it is known what these events are.
#[derive(Default)]
pub(super) struct Hints {
    hints: Vec<Hint>,
    paths: Vec<String>,
    of_path: HashMap<String, usize>,
}

struct Hint {
    /// An index into the events of the trace.
    event: usize,
    /// An index into the paths.
    path: Option<usize>,
    /// 0 if there is none.
    correlation: u64,
    launch: Option<Sizes>,
}

impl Hints {
    /// Notes what the arguments of an event tell. Returns how many bytes of text that takes.
    pub(super) fn note(&mut self, event: usize, args: Option<&RawValue>) -> usize {
        #[derive(Deserialize)]
        struct Args<'a> {
            #[serde(borrow, default)]
            tf_op: Option<&'a RawValue>,
            /// The path of scopes, on GPUs.
            #[serde(borrow, default)]
            name: Option<&'a RawValue>,
            #[serde(borrow, default)]
            correlation_id: Option<&'a RawValue>,
            #[serde(borrow, default)]
            kernel_details: Option<&'a RawValue>,
        }
        let Some(args) = args else { return 0 };
        let tells = |key: &str| args.get().contains(key);
        if !tells("\"tf_op\"") && !tells("\"correlation_id\"") && !tells("\"hlo_op\"") {
            return 0;
        }
        let Ok(args) = serde_json::from_str::<Args<'_>>(args.get()) else { return 0 };
        let named = args.name.filter(|name| name.get().contains('/'));
        let path = args.tf_op.or(named).map(|path| words(Some(path)).into_owned());
        let (known, length) = (self.paths.len(), path.as_ref().map_or(0, String::len));
        let path = path.filter(|path| !path.is_empty()).map(|path| self.path(path));
        let correlation = words(args.correlation_id).parse::<u64>().unwrap_or_default();
        let launch = args.kernel_details.and_then(|details| sizes(&words(Some(details))));
        self.hints.push(Hint { event, path, correlation, launch });
        if self.paths.len() > known { 2 * length } else { 0 }
    }

    fn path(&mut self, path: String) -> usize {
        if let Some(&number) = self.of_path.get(&path) {
            return number;
        }
        self.paths.push(path.clone());
        self.of_path.insert(path, self.paths.len() - 1);
        self.paths.len() - 1
    }
}

/// The sizes of `regs:64 static_shared:0 dynamic_shared:1024 grid:132,1,1 block:128,1,1`.
fn sizes(details: &str) -> Option<Sizes> {
    let find = |key: &str| details.split_whitespace().find_map(|word| word.strip_prefix(key));
    let size = |key: &str| {
        let mut numbers = find(key)?.split(',').map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    };
    let bytes = |key: &str| find(key).and_then(|bytes| bytes.parse::<u32>().ok()).unwrap_or(0);
    let shared = bytes("static_shared:").saturating_add(bytes("dynamic_shared:"));
    Some((size("grid:")?, size("block:")?, shared))
}

/// What is on a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    /// Kernels and copies of a stream.
    Work {
        device: u64,
        stream: u64,
        /// A TPU lists a loop and what is in it on one track.
        nests: bool,
    },
    /// Steps and modules, as ranges of a device's work.
    Ranges {
        device: u64,
    },
    /// The same work once more.
    Again,
}

impl Place {
    fn of(process: &str, track: &str) -> Self {
        let Some((is_tpu, device, core)) = device_of(process) else { return Self::Host };
        match track {
            "XLA Ops" | "Sparse Core Ops" if is_tpu => {
                Self::Work { device, stream: core, nests: true }
            }
            "XLA Modules" | "Steps" => Self::Ranges { device },
            stream => match stream.strip_prefix("Stream #").and_then(leading) {
                Some((stream, _)) => Self::Work { device, stream, nests: false },
                None => Self::Again,
            },
        }
    }
}

/// Whether a process is a TPU, its number, and the number of its core: 0, and from 1 on those for sparse
/// work, which have processes of their own (`/device:TPU:0 SparseCore 1`). `None` if it is no device.
fn device_of(process: &str) -> Option<(bool, u64, u64)> {
    let unit = process.strip_prefix("/device:")?;
    let (is_tpu, number) = match unit.strip_prefix("TPU:") {
        Some(number) => (true, number),
        None => (false, unit.strip_prefix("GPU:")?),
    };
    let (device, rest) = leading(number)?;
    let core = rest.trim_start().strip_prefix("SparseCore").and_then(|rest| leading(rest.trim()));
    Some((is_tpu, device, core.map_or(0, |(core, _)| core.saturating_add(1))))
}

/// The number that a text begins with, and the rest.
fn leading(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Whether a trace has processes that are devices.
pub(super) fn is_it(trace: &Trace) -> bool {
    trace.processes.values().any(|name| device_of(name).is_some())
}

/// What isn't in the profile.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// Events that list work once more.
    pub(super) again: u64,
    /// Operations that others lie in.
    pub(super) around: u64,
    /// Whether there are as many events as XProf writes at most.
    pub(super) is_full: bool,
}

impl Resolved {
    /// Notes it in a profile.
    pub(super) fn tell(&self, profile: &mut Profile) {
        let again =
            "events that list a device's work once more, such as by scope or line of source";
        left_out(profile, again, self.again);
        let around = "operations of a TPU that others lie in, and of which only these count";
        left_out(profile, around, self.around);
        if let Some(imported) = profile.imported.as_mut().filter(|_| self.is_full) {
            imported.doubts.push(format!(
                "the file has {MOST_WRITTEN} events, the most that XProf writes: some may be missing"
            ));
        }
    }
}

/// Tells what events are, now that their tracks have names.
pub(super) fn resolve(trace: &mut Trace, hints: &Hints, table: &Table) -> Resolved {
    let mut resolved =
        Resolved { is_full: trace.timed.len() == MOST_WRITTEN, ..Resolved::default() };
    let place = |track: &Track| {
        let process = trace.processes.get(&track.pid).map_or("", String::as_str);
        Place::of(process, track.name.as_deref().unwrap_or_default())
    };
    let places: Vec<Place> = trace.tracks.iter().map(place).collect();
    let place_of = |event: &Timed| places.get(event.lane as usize).copied().unwrap_or(Place::Host);
    // Steps and modules are ranges of the stream that does the most.
    let mut busy: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for event in &trace.timed {
        if let Place::Work { device, stream, .. } = place_of(event) {
            let time = busy.entry((device, stream)).or_default();
            *time = time.saturating_add(event.end.abs_diff(event.start));
        }
    }
    let mut busiest: HashMap<u64, (u64, u64)> = HashMap::new();
    for ((device, stream), time) in busy {
        let most = busiest.entry(device).or_insert((stream, time));
        if time > most.1 {
            *most = (stream, time);
        }
    }
    for at in 0..trace.timed.len() {
        let event = trace.timed[at];
        let (kind, link) = match place_of(&event) {
            Place::Work { device, stream, .. } => (EventKind::Work, Some(Link::on(device, stream))),
            Place::Ranges { device } => {
                let stream = busiest.get(&device).map_or(0, |&(stream, _)| stream);
                (EventKind::RangeOfWork, Some(Link::on(device, stream)))
            }
            // A function of Python, as the profiler names it; it may be a pass.
            Place::Host
                if event.passes == 0 && trace.names[event.name as usize].starts_with('$') =>
            {
                (EventKind::Function, None)
            }
            // What the host does says little of the kernels that it launches meanwhile: not an operation, but
            // a range.
            Place::Host => (EventKind::Range, None),
            Place::Again => continue,
        };
        let link = link.map(|link| trace.link(link));
        let event = &mut trace.timed[at];
        (event.kind, event.link) = (kind, link);
    }
    let nests = |event: &Timed| matches!(place_of(event), Place::Work { nests: true, .. });
    let around = around_others(&trace.timed, nests);
    resolved.around = around.len() as u64;
    for at in around {
        trace.timed[at].kind = EventKind::RangeOfWork;
    }
    let mut scopes: HashMap<usize, u32> = HashMap::new();
    for hint in &hints.hints {
        let Some(&event) = trace.timed.get(hint.event) else { continue };
        if event.kind == EventKind::Work
            && let Some(link) = event.link
        {
            let path = hint.path.map(|path| {
                let name = || trace.name(&scope(&hints.paths[path], table));
                *scopes.entry(path).or_insert_with(name)
            });
            if let Some(link) = trace.links.get_mut(link as usize) {
                *link = link.called(hint.correlation).within(path);
                if let Some((grid, block, shared)) = hint.launch {
                    *link = link.launched(grid, block, shared);
                }
            }
        } else if place_of(&event) == Place::Host && hint.correlation > 0 {
            let name = &trace.names[event.name as usize];
            if name.starts_with("cu") || name.starts_with("hip") {
                let link = Some(trace.link(Link::default().called(hint.correlation)));
                trace.timed[hint.event] = Timed { kind: EventKind::Call, link, ..event };
            }
        }
    }
    let before = trace.timed.len();
    trace.timed.retain(|event| place_of(event) != Place::Again);
    resolved.again = (before - trace.timed.len()) as u64;
    resolved
}

/// The indices of those events that others of their track lie in.
fn around_others(timed: &[Timed], is_it: impl Fn(&Timed) -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..timed.len()).filter(|&at| is_it(&timed[at])).collect();
    order.sort_by_key(|&at| (timed[at].lane, timed[at].start, Reverse(timed[at].end)));
    let mut around = Vec::new();
    // Each with whether it is noted.
    let mut stack: Vec<(usize, bool)> = Vec::new();
    for at in order {
        let event = &timed[at];
        let is_past = |outer: &Timed| {
            outer.lane != event.lane || outer.end <= event.start.saturating_add(ROUNDED_NS)
        };
        while stack.pop_if(|(outer, _)| is_past(&timed[*outer])).is_some() {}
        if let Some((outer, is_noted)) = stack.last_mut()
            && event.end <= timed[*outer].end.saturating_add(ROUNDED_NS)
            && !std::mem::replace(is_noted, true)
        {
            around.push(*outer);
        }
        stack.push((at, false));
    }
    around
}

/// A path of scopes, `jit(f)/transformer/layers_3/attn/q_proj/dot_general`, as the name of a range that the
/// table knows: `transformer.layers.3.attn.q_proj`. The innermost scope that is a brick counts, before what
/// was computed there.
fn scope(path: &str, table: &Table) -> String {
    let path = path.trim_end_matches(':');
    // The first one is the whole program.
    let scopes = path.split('/').enumerate().filter(|(at, part)| *at > 0 || !part.contains("jit("));
    let parts: Vec<String> =
        scopes.map(|(_, part)| plain(part)).filter(|part| !part.is_empty()).collect();
    let inner = parts.len().saturating_sub(1);
    (inner.saturating_sub(MOST_SCOPES)..inner)
        .rev()
        .map(|last| parts[..=last].join("."))
        .find(|name| table.has_range(name))
        // The whole one ends with what was computed.
        .unwrap_or_else(|| parts.join("."))
}

/// A part of a path without what JAX puts around it, and with numbers of layers behind a dot: `layers.3` of
/// `layers_3`, `layers[3]` and `transpose(jvp(layers_3))`.
fn plain(part: &str) -> String {
    let mut part = part;
    while let Some((_, inner)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        part = inner;
    }
    let part = part.replace('[', ".").replace(']', "");
    let words = part.split('.').map(|word| match word.rsplit_once('_') {
        Some((list, number)) if LISTS.contains(&list) && number.parse::<u16>().is_ok() => {
            format!("{list}.{number}")
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{Options, kineto};

    #[test]
    fn paths_tell_layers_and_bricks() {
        let ours = kineto::table(&Options::default()).expect("it is well formed");
        for (path, name) in [
            (
                "jit(f)/transformer/layers_3/attn/q_proj/dot_general",
                "transformer.layers.3.attn.q_proj",
            ),
            ("jit(f)/layers[4]/q_proj/jit(_einsum)/dot_general:", "layers.4.q_proj"),
            ("jit(f)/h_11/mlp/jit(_einsum)/dot_general", "h.11.mlp._einsum.dot_general"),
            ("jit(f)/transpose(jvp(Model))/blocks_0/ln_1/mul", "Model.blocks.0.ln_1"),
            ("jit(f)/add", "add"),
            ("dot_general", "dot_general"),
            ("a.blocks[2].wq:", "a.blocks.2.wq"),
            ("", ""),
            ("/:/(/)", ":.(.)"),
        ] {
            assert_eq!(scope(path, &ours), name, "{path}");
        }
    }

    #[test]
    fn tracks_are_told_by_their_names() {
        let work = |device, stream, nests| Place::Work { device, stream, nests };
        for (process, track, is) in [
            ("/device:GPU:1", "Stream #7(Compute)", work(1, 7, false)),
            ("/device:GPU:1", "XLA Ops", Place::Again),
            ("/device:GPU:1", "XLA Modules", Place::Ranges { device: 1 }),
            ("/device:TPU:0", "XLA Ops", work(0, 0, true)),
            ("/device:TPU:0", "Framework Name Scope", Place::Again),
            ("/device:TPU:0 SparseCore 1", "Sparse Core Ops", work(0, 2, true)),
            ("/device:CPU:0", "XLA Ops", Place::Host),
            ("/host:CPU", "Steps", Place::Host),
            ("/device:GPU:", "Stream #7", Place::Host),
            ("/device:GPU:0", "Stream #", Place::Again),
        ] {
            assert_eq!(Place::of(process, track), is, "{process} {track}");
        }
    }

    #[test]
    fn a_path_takes_its_bytes_once() {
        let note = |hints: &mut Hints, args: &str| {
            let args: Box<RawValue> = serde_json::from_str(args).expect("JSON");
            hints.note(0, Some(&args))
        };
        let mut hints = Hints::default();
        for (args, bytes) in [
            (r#"{"tf_op": "jit(f)/a"}"#, 2 * 8),
            (r#"{"tf_op": "jit(f)/a"}"#, 0),
            (r#"{"tf_op": "jit(f)/ab"}"#, 2 * 9),
            (r#"{"correlation_id": 3}"#, 0),
        ] {
            assert_eq!(note(&mut hints, args), bytes, "{args}");
        }
    }

    #[test]
    fn sizes_of_kernels_are_read() {
        let details = "regs:64 static_shared:16 dynamic_shared:1024 grid:132,2,1 block:128,1,1";
        assert_eq!(sizes(details), Some(((132, 2, 1), (128, 1, 1), 1_040)));
        assert_eq!(sizes("grid:1,1 block:1,1,1"), None);
    }
}
