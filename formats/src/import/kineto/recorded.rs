//! What the trace of a capture tells: while a stream is captured, kernels don't run, and each of the calls
//! that would launch one becomes a node of the graph. So the trace has a call for each kernel of the graph,
//! under its operation and module.
//!
//! vLLM and SGLang put a range `capture_32_FULL` around each capture, with the number of tokens or requests
//! that the graph is for: <https://github.com/vllm-project/vllm/pull/37524>,
//! <https://github.com/sgl-project/sglang/pull/24370>.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use brickscope_profile::{StepTold, Work};

use super::attention::{self, Noted, Why};
use super::host::Host;
use super::table::{Found, Table};
use super::{EventKind, Names, counted, host, merged};
use crate::import::trace::{self, Timed, Trace};
use crate::import::{At, Format, ImportError};

/// The most captures of a file that are kept.
const MOST_RUNS: usize = 1024;

/// The captures of graphs that a trace has, for [`Options::captures`](crate::import::Options::captures).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    path: PathBuf,
    texts: Texts,
    pub(super) runs: Vec<Run>,
    /// The work of products, by their shapes.
    products: Vec<Work>,
    /// Those that are attention, whose work depends on the step that runs them.
    attentions: HashMap<u32, Noted>,
}

/// The capture of a model for one size of batches: of one graph, or of one for each of its pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Run {
    /// That of the range around; empty if there is none.
    pub(super) name: String,
    /// How many tokens or requests it is for, if the name tells.
    pub(super) batch: Option<u64>,
    pub(super) graphs: Vec<Vec<Call>>,
    /// Whether the layers aren't in the file, but were counted.
    pub(super) is_counted: bool,
    /// Why there are no layers, if there are none.
    pub(super) without_layers: Option<String>,
}

/// A call that became a node of a graph. Texts are numbers of [`Captured::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    /// The kernel that it launches, as only HIP's calls state it.
    pub(super) kernel: Option<u32>,
    pub(super) brick: Option<u32>,
    pub(super) op: Option<u32>,
    pub(super) layer: Option<u16>,
    /// The product that it is a part of, a number of [`Captured::product`].
    pub(super) product: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    Kernel,
    Copy,
    Set,
}

impl CallKind {
    /// What a call of CUDA's or HIP's runtime or driver adds to a graph.
    fn of(name: &str) -> Option<Self> {
        if name.contains("Graph") {
            None
        } else if name.contains("Launch") && name.contains("Kernel") {
            Some(Self::Kernel)
        } else if name.contains("Memcpy") {
            Some(Self::Copy)
        } else {
            name.contains("Memset").then_some(Self::Set)
        }
    }
}

/// Texts by number, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Texts {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn text(&self, number: Option<u32>) -> Option<&str> {
        self.texts.get(number? as usize).map(String::as_str)
    }
}

impl Captured {
    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self, number: Option<u32>) -> Option<&str> {
        self.texts.text(number)
    }

    /// The work of a product, or of attention in a step of which this is told.
    pub(super) fn product(&self, number: u32, told: Option<&StepTold>) -> Result<Work, Why> {
        match self.attentions.get(&number) {
            Some(noted) => (*noted)?.work(told),
            None => self.products.get(number as usize).copied().ok_or(Why::Shapes),
        }
    }

    /// Calls of one capture tell of each other.
    fn settle(&mut self) {
        for run in &self.runs {
            let products = run.graphs.iter().flatten().filter_map(|call| call.product);
            let numbers: BTreeSet<u32> =
                products.filter(|number| self.attentions.contains_key(number)).collect();
            let of_run = numbers.iter().filter_map(|number| self.attentions.get(number));
            let doubts = attention::doubts(of_run);
            for number in numbers {
                if let Some(noted) = self.attentions.get_mut(&number) {
                    *noted = attention::settled(*noted, &doubts);
                }
            }
        }
    }
}

/// A capture by its times: those of the range around it, and of each graph in it.
struct Recording {
    name: String,
    lane: u32,
    end: i64,
    graphs: Vec<(i64, i64)>,
}

/// Reads the captures of a trace.
pub(in crate::import) fn captured(
    trace: &mut Trace,
    at: &At<'_>,
    table: &Table,
) -> Result<Captured, ImportError> {
    merged::is_of_one(trace, at)?;
    let (timed, origin) = trace::sorted(trace, at)?;
    let mut names = Names::new(table);
    // The host's spans are made as those of any trace, and what they are is all that counts here.
    let mut profile = at.profile(Format::Chrome, None, "");
    let host = host::spans(trace, &timed, origin, &mut names, &mut profile);
    drop(profile);
    let mut ran: HashSet<u64> = HashSet::new();
    for event in timed.iter().filter(|event| event.kind == EventKind::Work) {
        ran.extend(correlation(trace, event));
    }
    let mut captured = Captured { path: at.path.to_owned(), ..Captured::default() };
    for recording in recordings(trace, &timed).into_iter().take(MOST_RUNS) {
        let run = run(recording, trace, &timed, &host, &ran, &names, &mut captured.texts);
        captured.runs.extend(Some(run).filter(|run| run.graphs.iter().any(|one| !one.is_empty())));
    }
    captured.products = host.products.iter().map(|(work, _)| *work).collect();
    captured.attentions =
        host.attentions.iter().map(|(&number, (noted, _))| (number, *noted)).collect();
    captured.settle();
    match captured.runs.is_empty() {
        true => Err(at.whole(
            "has no capture of a graph: no launches between `StreamBeginCapture` and `StreamEndCapture`, or in a range \
             `capture_…`",
        )),
        false => Ok(captured),
    }
}

fn correlation(trace: &Trace, event: &Timed) -> Option<u64> {
    trace.links.get(event.link? as usize)?.correlation
}

/// Where the captures are: between the calls that begin and end them, or else in ranges of that name.
fn recordings(trace: &Trace, timed: &[Timed]) -> Vec<Recording> {
    let mut recordings: Vec<Recording> = Vec::new();
    let mut begun: Option<&Timed> = None;
    for event in timed {
        let name = &trace.names[event.name as usize];
        let (lane, end) = (event.lane, event.end);
        let is_inside = |around: &&mut Recording| around.lane == lane && event.start < around.end;
        match event.kind {
            EventKind::Range
                if name.starts_with("capture_")
                    && recordings.last_mut().filter(is_inside).is_none() =>
            {
                let graphs = Vec::new();
                recordings.push(Recording { name: name.clone(), lane, end, graphs });
            }
            EventKind::Call if name.contains("StreamBeginCapture") => begun = Some(event),
            EventKind::Call if name.contains("StreamEndCapture") => {
                let Some(begin) = begun.take().filter(|begin| begin.lane == lane) else { continue };
                let graph = (begin.end, event.start);
                match recordings.last_mut().filter(is_inside) {
                    Some(around) => around.graphs.push(graph),
                    None => {
                        let (name, graphs) = (String::new(), vec![graph]);
                        recordings.push(Recording { name, lane, end, graphs });
                    }
                }
            }
            _ => {}
        }
    }
    if recordings.iter().any(|recording| !recording.graphs.is_empty()) {
        recordings.retain(|recording| !recording.graphs.is_empty());
        return recordings;
    }
    // The calls themselves are in no such file: then the whole range is the capture.
    let ranges = timed.iter().filter(|event| event.kind == EventKind::Range);
    let mut ranges =
        ranges.filter(|event| trace.names[event.name as usize].starts_with("capture_"));
    for recording in &mut recordings {
        let (lane, end) = (recording.lane, recording.end);
        let of_it = ranges.find(|range| range.lane == lane && range.end == end);
        recording.graphs.extend(of_it.map(|range| (range.start, range.end)));
    }
    recordings
}

/// What became of the calls of one capture.
fn run(
    recording: Recording,
    trace: &Trace,
    timed: &[Timed],
    host: &Host,
    ran: &HashSet<u64>,
    names: &Names<'_>,
    texts: &mut Texts,
) -> Run {
    let Recording { name, lane, graphs: pieces, .. } = recording;
    let batch = batch_of(&name);
    let mut run = Run { name, batch, graphs: vec![Vec::new(); pieces.len()], ..Run::default() };
    let (Some(&(first, _)), Some(&(_, last))) = (pieces.first(), pieces.last()) else { return run };
    // Each call with the number of its graph. Of a model in pieces, attention isn't in any, but tells the
    // layers.
    let mut calls: Vec<(Call, Option<usize>)> = Vec::new();
    let (mut until, mut piece) = (i64::MIN, 0);
    let from = timed.partition_point(|event| (event.lane, event.start) < (lane, first));
    let events = timed.iter().skip(from);
    for event in events.take_while(|event| event.lane == lane && event.start < last) {
        let name = &trace.names[event.name as usize];
        // A call inside of a launch is the same launch, of a layer below.
        let kind = CallKind::of(name).filter(|_| event.kind == EventKind::Call);
        let Some(kind) = kind.filter(|_| event.start >= until) else { continue };
        until = event.end;
        let correlation = correlation(trace, event);
        let launch = correlation.and_then(|correlation| host.by_correlation.get(&correlation));
        let brick = launch.and_then(|launch| names.names.get(usize::from(launch.brick?)));
        let op = launch.and_then(|launch| trace.names.get(launch.op? as usize));
        let kernel = trace.notes.of(event.link).filter(|_| kind == CallKind::Kernel);
        let call = Call {
            kind,
            kernel: kernel.map(|kernel| texts.number(kernel)),
            brick: brick.map(|brick| texts.number(&brick.name)),
            op: op.map(|op| texts.number(op)),
            layer: launch.and_then(|launch| launch.layer),
            product: launch.and_then(|launch| launch.product),
        };
        while pieces.get(piece).is_some_and(|&(_, end)| end <= event.start) {
            piece += 1;
        }
        let is_inside = pieces.get(piece).is_some_and(|&(begin, _)| begin <= event.start);
        let is_recorded = correlation.is_none_or(|correlation| !ran.contains(&correlation));
        calls.push((call, Some(piece).filter(|_| is_inside && is_recorded)));
    }
    if calls.iter().all(|(call, _)| call.layer.is_none()) {
        let texts = &*texts;
        let bricks: Vec<Option<&str>> =
            calls.iter().map(|(call, _)| brick_of(call, texts, names.table)).collect();
        match counted::layers(&bricks) {
            Ok(layers) => {
                run.is_counted = true;
                for ((call, _), layer) in calls.iter_mut().zip(layers) {
                    call.layer = layer;
                }
            }
            Err(why) => run.without_layers = Some(why),
        }
    }
    for (call, graph) in calls {
        if let Some(graph) = graph.and_then(|graph| run.graphs.get_mut(graph)) {
            graph.push(call);
        }
    }
    run
}

/// The brick of a call by what is around it, else by the names of its operation and its kernel.
fn brick_of<'t>(call: &Call, texts: &'t Texts, table: &'t Table) -> Option<&'t str> {
    let by_name = |number: Option<u32>| match table.kernel(texts.text(number)?) {
        Some(Found::Brick(brick)) => Some(brick),
        _ => None,
    };
    texts.text(call.brick).or_else(|| by_name(call.op)).or_else(|| by_name(call.kernel))
}

/// 32 of `capture_32_FULL`.
fn batch_of(name: &str) -> Option<u64> {
    name.split('_').find_map(|part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_tell_what_they_add_to_a_graph() {
        for (call, kind) in [
            ("cudaLaunchKernel", Some(CallKind::Kernel)),
            ("cuLaunchKernelEx", Some(CallKind::Kernel)),
            ("cudaLaunchCooperativeKernel", Some(CallKind::Kernel)),
            ("hipExtModuleLaunchKernel", Some(CallKind::Kernel)),
            ("hipMemcpyAsync", Some(CallKind::Copy)),
            ("cudaMemsetAsync", Some(CallKind::Set)),
            ("cudaGraphLaunch", None),
            ("cudaGraphAddMemcpyNode", None),
            ("cudaLaunchHostFunc", None),
            ("hipStreamGetCaptureInfo", None),
        ] {
            assert_eq!(CallKind::of(call), kind, "{call}");
        }
        assert_eq!(batch_of("capture_32_FULL"), Some(32));
        assert_eq!(batch_of("capture_FULL"), None);
    }
}
