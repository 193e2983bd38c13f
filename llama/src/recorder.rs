//! Passes of llama.cpp in one's own process.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use brickscope::{
    BrickCategory, BrickKey, BrickProfiler, Overhead, Phase, Profile, Run, TimedPass, TimedSpan,
    TimedWork, Work,
};

use crate::bricks::{Brick, describe};
use crate::executed::{Listed, executed};
use crate::ffi::{Bindings, Callbacks};
use crate::running::{Part, Running};
use crate::{Labels, LooksAt, Node};

/// Time in a pass that the recorder took: to list the nodes of a graph, and to describe one.
const OWN: &str = "(brickscope)";
/// Passes that warm up, of which nothing is recorded unless their phase has no others.
const MOST_WARM_UPS: usize = 256;

/// Records passes of llama.cpp that this process runs, brick by brick, by two callbacks of its public API.
///
/// Both callbacks are set in the parameters of a context, with any user data. Then each call of `llama_decode` is wrapped:
///
/// ```
/// use brickscope::{BrickProfiler, Phase};
/// use brickscope_llama::Recorder;
/// use llama_cpp_sys_2::*;
///
/// # let model = std::ptr::null_mut();
/// let profiler = BrickProfiler::enabled();
/// let recorder = Recorder::new(&profiler, brickscope_llama::bindings!(llama_cpp_sys_2));
///
/// let mut params = unsafe { llama_context_default_params() };
/// params.cb_eval = Some(brickscope_llama::on_node);
/// params.abort_callback = Some(brickscope_llama::after_node);
/// let context = unsafe { llama_init_from_model(model, params) };
///
/// let mut token = 1;
/// for position in 0..3 {
///     // How many tokens the batch has, and how many are in the cache before it.
///     let status = recorder.pass(Phase::Decode, 1, position, || unsafe {
///         llama_decode(context, llama_batch_get_one(&mut token, 1))
///     });
///     assert_eq!(status, 0);
/// }
/// let recorded = recorder.finish();
/// for note in &recorded.notes {
///     eprintln!("note: {note}"); // 1 pass left out: the first of each shape warms up, …
/// }
/// println!("{}", brickscope_analysis::view::report(&recorded.profile));
/// # assert_eq!((recorded.profile.passes.len(), recorded.notes.len()), (2, 1));
/// # unsafe { llama_free(context) };
/// ```
///
/// Only one pass at a time is recorded: others that run meanwhile are run, and counted.
#[derive(Debug)]
pub struct Recorder<'p> {
    profiler: &'p BrickProfiler,
    threads: u32,
    /// For the recorder's own time.
    own: BrickKey,
    state: Mutex<State>,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct State {
    callbacks: Callbacks,
    /// Of each graph that was described, by its index and by how many callbacks came: `None` if it isn't known after
    /// which nodes they came.
    labels: HashMap<(usize, usize), Option<Graph>>,
    warm_ups: Vec<(TimedPass, Vec<TimedSpan>)>,
    spans: Vec<TimedSpan>,
    times: Vec<[u64; 2]>,
}

/// The nodes of a graph with the profiler's names.
#[derive(Debug)]
struct Graph {
    /// The first node, with what is before it.
    start: BrickKey,
    /// The others.
    rest: Labels,
    /// The tokens that it looks up.
    tokens: u64,
}

/// What a [`Recorder`] has recorded.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The passes, with what is known of the run. Of the model, it doesn't know anything.
    pub profile: Profile,
    /// What isn't in it, or not as bricks, and why: sentences without a full stop.
    pub notes: Vec<String>,
}

/// What a pass returns: whether it has failed.
pub trait Outcome {
    /// Whether it has failed, so that it isn't counted.
    fn has_failed(&self) -> bool;
}

/// What `llama_decode` returns: 0 if it worked.
impl Outcome for i32 {
    fn has_failed(&self) -> bool {
        *self != 0
    }
}

impl<T, E> Outcome for Result<T, E> {
    fn has_failed(&self) -> bool {
        self.is_err()
    }
}

/// Nothing that could have failed.
impl Outcome for () {
    fn has_failed(&self) -> bool {
        false
    }
}

/// Why a pass has no bricks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Bare {
    NoCallbacks,
    NoNodes,
    NoReadings,
    /// A part of it is in this buffer.
    Elsewhere(String),
    /// So many nodes were listed, and so many ended, of results in such buffers.
    Other {
        listed: usize,
        ended: usize,
        buffers: String,
    },
    Full,
    Failed,
    Unfit,
}

impl fmt::Display for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCallbacks => write!(
                f,
                "no callback came: set `cb_eval` and `abort_callback` in the parameters of the context, and run its passes \
                 on the thread that calls `pass`"
            ),
            Self::NoNodes => {
                write!(f, "`cb_eval` was not called: set it in the parameters of the context")
            }
            Self::NoReadings => write!(
                f,
                "`abort_callback` was not called for a part of the graph: either it is not set, or another backend than \
                 the CPU computed that part (a GPU?)"
            ),
            Self::Elsewhere(buffer) => write!(
                f,
                "another backend than the CPU computed a part of the graph: results are in {buffer}. \
                 `n_gpu_layers = 0` computes on the CPU"
            ),
            Self::Other { listed, ended, buffers } => write!(
                f,
                "of {listed} nodes that were listed {ended} ended, which is not as the CPU backend computes them; their \
                 results are in {buffers}"
            ),
            Self::Full => {
                write!(f, "they have more nodes, or more different graphs, than there is room for")
            }
            Self::Failed => {
                write!(f, "brickscope failed in a callback, which is a mistake in brickscope")
            }
            Self::Unfit => {
                write!(f, "their readings do not fit, or another pass of the profiler was open")
            }
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    prompt_tokens: u64,
    generated_tokens: u64,
    failed: u64,
    at_once: u64,
    lost_warm_ups: u64,
    bare: BTreeMap<Bare, u64>,
    /// Passes that were recorded, by phase.
    recorded: HashMap<Phase, u64>,
}

impl<'p> Recorder<'p> {
    /// Records to a profiler, while that is [enabled](BrickProfiler::enable). Takes some megabytes of memory.
    ///
    /// `bindings` are of the llama.cpp whose contexts have the callbacks: see [`bindings!`](crate::bindings).
    #[must_use]
    pub fn new(profiler: &'p BrickProfiler, bindings: Bindings) -> Self {
        let running = Running::new(profiler.clock().clone());
        Self {
            profiler,
            threads: 0,
            own: profiler.named_brick(OWN, BrickCategory::Other),
            state: Mutex::new(State {
                callbacks: Callbacks { bindings, running },
                labels: HashMap::new(),
                warm_ups: Vec::new(),
                spans: Vec::new(),
                times: Vec::new(),
            }),
            counts: Mutex::default(),
        }
    }

    /// States how many threads compute, for reports: llama.cpp doesn't tell callbacks. 0, as it is by default, means that
    /// it isn't known.
    #[must_use]
    pub fn with_threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Runs a pass, and records it if it doesn't fail.
    ///
    /// `run` calls `llama_decode`, once and on this thread, and returns its status or a `Result`. `tokens` are those of its
    /// batch, and `position` is how many tokens are in the KV cache before it. What llama.cpp does later, as copying logits
    /// that a sampler asks for, isn't in it.
    ///
    /// A pass whose nodes aren't all known is recorded without bricks: all of it is unattributed, and a
    /// [note](Recorded::notes) says why.
    pub fn pass<R: Outcome>(
        &self,
        phase: Phase,
        tokens: u64,
        position: u64,
        run: impl FnOnce() -> R,
    ) -> R {
        if !self.profiler.is_enabled() {
            return run();
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            // A pass that panicked has left nothing half done: the next one begins anew.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.counts().at_once += 1;
                return run();
            }
        };
        let state = &mut *state;
        let clock = self.profiler.clock();
        state.callbacks.running.begin();
        let start_ns = clock.now();
        let outcome = state.callbacks.during(run);
        let end_ns = clock.now().max(start_ns);
        if outcome.has_failed() {
            self.counts().failed += 1;
            return outcome;
        }
        let pass = TimedPass { phase, start_ns, end_ns, tokens, position, disturbance: None };
        self.record(state, &pass);
        outcome
    }

    fn record(&self, state: &mut State, pass: &TimedPass) {
        let mut counts = self.counts();
        state.spans.clear();
        let labelled = self.label(state, pass);
        if let Err(why) = labelled {
            state.spans.clear();
            *counts.bare.entry(why).or_default() += 1;
        }
        let is_warm_up =
            state.callbacks.running.parts.iter().any(|part| part.described_at.is_some());
        if is_warm_up {
            if state.warm_ups.len() < MOST_WARM_UPS {
                state.warm_ups.push((*pass, state.spans.clone()));
            } else {
                counts.lost_warm_ups += 1;
            }
            return;
        }
        self.add(&mut counts, pass, &state.spans);
    }

    fn add(&self, counts: &mut Counts, pass: &TimedPass, spans: &[TimedSpan]) {
        if self.profiler.record_pass(pass, spans).is_err() {
            *counts.bare.entry(Bare::Unfit).or_default() += 1;
            if self.profiler.record_pass(pass, &[]).is_err() {
                return;
            }
        }
        *counts.recorded.entry(pass.phase).or_default() += 1;
        let tokens = match pass.phase {
            Phase::Prefill | Phase::Encode | Phase::Training => &mut counts.prompt_tokens,
            Phase::Decode => &mut counts.generated_tokens,
        };
        *tokens += pass.tokens;
    }

    /// The spans of a pass.
    fn label(&self, state: &mut State, pass: &TimedPass) -> Result<(), Bare> {
        let State { callbacks, labels, spans, times, .. } = state;
        let running = &callbacks.running;
        let Running { parts, graphs, .. } = running;
        let readings = running.readings();
        if running.has_failed {
            return Err(Bare::Failed);
        }
        if running.is_full() {
            return Err(Bare::Full);
        }
        if let Some(buffer) = &running.elsewhere {
            return Err(Bare::Elsewhere(buffer.clone()));
        }
        match (parts.first(), readings.len()) {
            (None, 0) => return Err(Bare::NoCallbacks),
            (None, _) => return Err(Bare::NoNodes),
            (Some(first), _) if first.first > 0 => return Err(Bare::NoNodes),
            _ => {}
        }
        let ends = parts.iter().skip(1).map(|part| part.first).chain([readings.len()]);
        // A pass of several micro-batches has a graph for each.
        let all = LooksAt::one(pass.position, pass.tokens);
        let mut before = 0_u64;
        for (part, end) in parts.iter().zip(ends) {
            let readings = readings.get(part.first..end).unwrap_or_default();
            let Some(index) = part.graph else { return Err(Bare::NoReadings) };
            let listed = graphs.get(index).map_or(&[][..], Vec::as_slice);
            let graph = labels.entry((index, readings.len())).or_insert_with(|| {
                let nodes = executed(listed, readings.len())?;
                Some(self.graph(&nodes))
            });
            let Some(graph) = graph else {
                let buffers = buffers_of(listed);
                return Err(Bare::Other { listed: listed.len(), ended: readings.len(), buffers });
            };
            let looks_at = match graph.tokens {
                0 => Some(all.clone()),
                tokens => all.part(before, tokens),
            };
            before = before.saturating_add(graph.tokens);
            self.add_part(spans, times, graph, part, readings, looks_at);
        }
        Ok(())
    }

    fn graph(&self, nodes: &[Node]) -> Graph {
        let start = match nodes.first().map(|node| describe(node).brick) {
            Some(Brick::Known(brick)) => (format!("Start + {}", brick.name()), brick.category()),
            Some(Brick::Named(name, category)) => (format!("Start + {name}"), category),
            Some(Brick::None) | None => ("Start".to_owned(), BrickCategory::Other),
        };
        let rest = nodes.get(1..).unwrap_or_default();
        Graph {
            start: self.profiler.named_brick(&start.0, start.1),
            rest: Labels::new(self.profiler, rest, self.threads),
            tokens: nodes.iter().map(Node::looked_up).fold(0, u64::saturating_add),
        }
    }

    /// The spans of a part: each node lasts from the end of the one before to its own. When the first one began isn't
    /// known, only when the last node was listed.
    fn add_part(
        &self,
        spans: &mut Vec<TimedSpan>,
        times: &mut Vec<[u64; 2]>,
        graph: &Graph,
        part: &Part,
        readings: &[u64],
        looks_at: Option<LooksAt>,
    ) {
        let Some((&first, rest)) = readings.split_first() else { return };
        let other = |what, start_ns, end_ns| TimedSpan {
            what: TimedWork::Brick(what),
            start_ns,
            end_ns,
            work: Work::default(),
            layer: None,
        };
        // The clock of the core that the thread has moved to may be some counts behind.
        let mut last = part.listed_at[0];
        let mut until = |end: u64| {
            let begin = last;
            last = end.max(begin);
            [begin, last]
        };
        let own = |spans: &mut Vec<TimedSpan>, [begin, end]: [u64; 2]| {
            if end > begin {
                spans.push(other(self.own, begin, end));
            }
        };
        own(spans, until(part.listed_at[1]));
        let [begin, end] = until(first);
        spans.push(other(graph.start, begin, end));
        if let Some(described_at) = part.described_at {
            own(spans, until(described_at));
        }
        times.clear();
        times.extend(rest.iter().map(|&end| until(end)));
        graph.rest.add_spans(spans, times, looks_at);
    }

    /// What was recorded until now. Passes that the profiler has from elsewhere are in it, too.
    ///
    /// The first pass of each shape warms up, and its graph is described in it. Such passes are left out, except where their
    /// phase has no others. Waits for a pass that runs.
    #[must_use]
    pub fn finish(&self) -> Recorded {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.counts();
        let has_others: Vec<Phase> = counts.recorded.keys().copied().collect();
        let warm_ups = std::mem::take(&mut state.warm_ups);
        let (out, only) = warm_ups
            .into_iter()
            .partition::<Vec<_>, _>(|(pass, _)| has_others.contains(&pass.phase));
        for (pass, spans) in &only {
            self.add(&mut counts, pass, spans);
        }
        state.warm_ups = out;
        let left_out = state.warm_ups.len() as u64 + counts.lost_warm_ups;
        drop(state);
        let mut profile = self.profiler.profile();
        profile.process = Some(std::process::id());
        profile.overhead = Overhead {
            span_ns: None,
            spans: profile.overhead.spans,
            basis: "absent: readings were taken in callbacks of llama.cpp, one for each node"
                .to_owned(),
            measured: None,
            preparations: Vec::new(),
        };
        profile.run = Some(Run {
            command: brickscope::secrets::without(
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()),
            ),
            backend: "llama.cpp in this program, CPU".to_owned(),
            threads: self.threads,
            prompt_tokens: counts.prompt_tokens,
            generated_tokens: counts.generated_tokens,
            ..Run::default()
        });
        Recorded { profile, notes: counts.notes(left_out) }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn notes(&self, left_out: u64) -> Vec<String> {
        let passes = |count| format!("{count} {}", if count == 1 { "pass" } else { "passes" });
        let mut notes = Vec::new();
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("{} {what}", passes(count)));
            }
        };
        say(
            left_out,
            "left out: the first of each shape warms up, and their graphs were described in them",
        );
        say(self.failed, "left out: llama.cpp returned an error");
        say(self.at_once, "left out: another one was being recorded at the same time");
        for (why, count) in &self.bare {
            say(*count, &format!("without bricks: {why}"));
        }
        notes
    }
}

/// The names of the buffers that results are in.
fn buffers_of(listed: &[Listed]) -> String {
    let mut names: Vec<&str> = listed.iter().map(|listed| listed.buffer.as_str()).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "no buffer that has a name".to_owned() } else { names.join(", ") }
}
