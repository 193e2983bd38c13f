//! The passes of a recording, with their graphs, and how their threads waited for a CPU.

use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;

use super::events::{Event, Graph, Load, Pass, Recorded};
use super::format::CALLS;
use brickscope::{CpuWait, Disturbance, Phase};

/// A pass, with its graphs.
#[derive(Debug)]
pub(crate) struct Found<'r> {
    pub(crate) pass: Pass,
    pub(crate) graphs: Vec<&'r Graph>,
    pub(crate) described: Vec<[u64; 2]>,
    /// What else was done in it: an index of `INSIDE` in `format.rs`, and when.
    pub(crate) inside: Vec<(usize, [u64; 2])>,
    /// When the pass before it ended, of its thread or its context, and what the thread called since then. `None` if it goes
    /// on with no sequence of the context's pass before.
    pub(crate) before: Option<Before>,
    /// What the threads did since somebody looked before, where somebody looked after this pass.
    pub(crate) looked: Option<Looked>,
}

/// What a thread did between two passes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    /// When the pass before ended.
    pub(crate) ended: u64,
    /// How many calls of each kind, and for how many counts.
    pub(crate) calls: [[u64; 2]; CALLS.len()],
}

/// What threads did between two looks at them.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Counts.
    pub(crate) from_to: [u64; 2],
    pub(crate) threads: Vec<Grown>,
    /// How many pages they waited for that were read from a disk.
    pub(crate) disk_faults: Option<u64>,
}

/// What one thread did, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grown {
    pub(crate) thread: u32,
    /// Where it was last seen.
    pub(crate) cpu: Option<u32>,
    pub(crate) ran_ns: u64,
    pub(crate) waited_ns: u64,
    /// How long others of this process ran that were last seen there, too.
    pub(crate) others_ran_ns: u64,
}

impl Grown {
    /// The part of its wait in which others of this process must have had its CPU: what they ran beyond the time in which
    /// it neither ran nor waited, as threads do that run one after another. `looked_ns` is how long it was looked at.
    pub(crate) fn own_ns(&self, looked_ns: u64) -> u64 {
        let slept_ns = looked_ns.saturating_sub(self.ran_ns).saturating_sub(self.waited_ns);
        self.others_ran_ns.saturating_sub(slept_ns).min(self.waited_ns)
    }
}

/// The passes of a recording, in order.
pub(crate) struct Passes<'r, I: Iterator<Item = &'r Event>> {
    pub(crate) events: Peekable<I>,
    /// Whether graphs are passes, since none were seen around them.
    pub(crate) graphs_are_passes: bool,
    pub(crate) load: Option<&'r Load>,
    /// What was computed and described since the last pass of each thread.
    pub(crate) graphs: Vec<&'r Graph>,
    pub(crate) described: Vec<([u64; 2], u16)>,
    inside: Vec<(u16, usize, [u64; 2])>,
    /// What each thread called since its last pass.
    calls: HashMap<u16, [[u64; 2]; CALLS.len()]>,
    /// When the last pass of each thread ended.
    ended: HashMap<u16, u64>,
    /// The last pass of each context.
    last: HashMap<Option<u16>, Last>,
}

/// The last pass of a context.
#[derive(Debug)]
struct Last {
    thread: u16,
    ended: u64,
    /// Tokens in the cache before and after it.
    sequences: Vec<[u32; 2]>,
}

impl<'r> Passes<'r, std::slice::Iter<'r, Event>> {
    pub(crate) fn of(recorded: &'r Recorded) -> Self {
        let has_passes = recorded.events.iter().any(|event| matches!(event, Event::Pass(_)));
        Self::over(recorded.events.iter(), !has_passes)
    }
}

impl<'r, I: Iterator<Item = &'r Event>> Passes<'r, I> {
    /// Those of some events.
    pub(crate) fn over(events: I, graphs_are_passes: bool) -> Self {
        Self {
            events: events.peekable(),
            graphs_are_passes,
            load: None,
            graphs: Vec::new(),
            described: Vec::new(),
            inside: Vec::new(),
            calls: HashMap::new(),
            ended: HashMap::new(),
            last: HashMap::new(),
        }
    }
}

impl<'r, I: Iterator<Item = &'r Event>> Iterator for Passes<'r, I> {
    type Item = Found<'r>;

    fn next(&mut self) -> Option<Found<'r>> {
        loop {
            match self.events.next()? {
                Event::Graph(graph) => {
                    self.graphs.push(graph);
                    if self.graphs_are_passes {
                        let Graph { begin, end, .. } = *graph;
                        let pass = Pass {
                            begin,
                            end,
                            graphs: 1,
                            is_decode: true,
                            is_graph: true,
                            of_thread: graph.of_thread,
                            ..Pass::default()
                        };
                        return Some(self.found(pass));
                    }
                }
                Event::Described(of, thread) => self.described.push((*of, *thread)),
                Event::Load(load) => self.load = Some(load),
                Event::Inside(thread, what, of) => self.inside.push((*thread, *what, *of)),
                Event::Calls(thread, sums) => drop(self.calls.insert(*thread, *sums)),
                Event::Pass(pass) => return Some(self.found(pass.clone())),
            }
        }
    }
}

impl<'r, I: Iterator<Item = &'r Event>> Passes<'r, I> {
    pub(crate) fn found(&mut self, pass: Pass) -> Found<'r> {
        let mut looked = None;
        if let Some(Event::Load(load)) = self.events.peek() {
            looked = self.load.map(|before| Looked::between(before, load));
            self.load = Some(load);
            self.events.next();
        }
        // Those of a pass that ended by an exception are of none.
        let is_its = |thread: u16, begin: u64| thread == pass.of_thread && begin >= pass.begin;
        let mut graphs = Vec::new();
        self.graphs.retain(|graph| {
            if is_its(graph.of_thread, graph.begin) {
                graphs.push(*graph);
            }
            graph.of_thread != pass.of_thread
        });
        let mut described = Vec::new();
        self.described.retain(|(of, thread)| {
            if is_its(*thread, of[0]) {
                described.push(*of);
            }
            *thread != pass.of_thread
        });
        let calls = self.calls.remove(&pass.of_thread).unwrap_or_default();
        let mut inside = Vec::new();
        self.inside.retain(|(thread, what, of)| {
            if is_its(*thread, of[0]) && of[1] <= pass.end {
                inside.push((*what, *of));
            }
            *thread != pass.of_thread
        });
        let ended = self.ended.insert(pass.of_thread, pass.end);
        let (thread, sequences) = (pass.of_thread, pass.sequences.clone());
        let last = Last { thread, ended: pass.end, sequences };
        let last = self.last.insert(pass.context, last);
        let before = last.and_then(|Last { thread, ended: last_ended, sequences }| {
            // A context may be used by one thread after another: then the pass of another one came before.
            let ended = last_ended.max(ended.unwrap_or(0));
            let is_own = thread == pass.of_thread || Some(ended) != Some(last_ended);
            let calls = if is_own { calls } else { Default::default() };
            // A request that begins anew came after a time in which nobody asked for anything.
            let goes_on = |[before, _]: &[u32; 2]| {
                sequences.iter().any(|of| of[0] < *before && *before <= of[1])
            };
            let is_same = sequences.is_empty() || pass.sequences.is_empty();
            let goes_on = is_same || pass.sequences.iter().any(goes_on);
            (goes_on && ended <= pass.begin).then_some(Before { ended, calls })
        });
        Found { pass, graphs, described, inside, before, looked }
    }
}

impl Looked {
    pub(crate) fn between(before: &Load, now: &Load) -> Self {
        let grown = now.threads.iter().filter_map(|thread| {
            let then = before.threads.iter().find(|then| then.thread == thread.thread)?;
            let ran_ns = thread.ran_ns.checked_sub(then.ran_ns)?;
            let waited_ns = thread.waited_ns.checked_sub(then.waited_ns)?;
            let (thread, cpu) = (thread.thread, thread.cpu);
            Some(Grown { thread, cpu, ran_ns, waited_ns, others_ran_ns: 0 })
        });
        let mut threads: Vec<Grown> = grown.collect();
        for at in 0..threads.len() {
            let Grown { thread, cpu, .. } = threads[at];
            // Those that were last seen on the CPU of the thread that waited.
            let is_there = |of: &&Grown| of.thread != thread && cpu.is_some() && of.cpu == cpu;
            let ran = threads.iter().filter(is_there).map(|of| of.ran_ns);
            threads[at].others_ran_ns = ran.fold(0, u64::saturating_add);
        }
        let disk_faults = now.disk_faults.zip(before.disk_faults);
        let disk_faults = disk_faults.and_then(|(now, before)| now.checked_sub(before));
        Self { from_to: [before.at, now.at], threads, disk_faults }
    }

    /// See [`Disturbance`] for what the figures mean. `ns` is the nanoseconds between two counts.
    pub(crate) fn disturbance(&self, ns: impl Fn([u64; 2]) -> u64) -> Option<Disturbance> {
        let longest = self.threads.iter().max_by_key(|of| of.waited_ns)?;
        let waited = self.threads.iter().map(|of| of.waited_ns);
        Some(Disturbance {
            run_queue_wait_ns: Some(waited.fold(0, u64::saturating_add)),
            longest_wait_ns: Some(longest.waited_ns),
            own_wait_ns: Some(longest.own_ns(ns(self.from_to))),
            disk_faults: self.disk_faults,
            ..Disturbance::default()
        })
    }
}

/// How long each thread waited for a CPU in the passes of each phase, and on which CPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits(pub(crate) BTreeMap<(Phase, u32), (CpuWait, BTreeMap<u32, u64>)>);

impl Waits {
    /// `ns` is the nanoseconds between two counts.
    pub(crate) fn add(
        &mut self,
        phase: Phase,
        looked: Option<&Looked>,
        ns: impl Fn([u64; 2]) -> u64,
    ) {
        let Some(Looked { from_to, threads, .. }) = looked else { return };
        let looked_ns = ns(*from_to);
        for grown in threads {
            let Grown { thread, cpu, ran_ns, waited_ns, .. } = *grown;
            let (sum, cpus) = self.0.entry((phase, thread)).or_insert_with(|| {
                let (looked_ns, ran_ns, waited_ns, own_ns) = (0, 0, 0, 0);
                let cpu = None;
                let none = CpuWait { thread, phase, cpu, looked_ns, ran_ns, waited_ns, own_ns };
                (none, BTreeMap::new())
            });
            for (sum, more) in [
                (&mut sum.looked_ns, looked_ns),
                (&mut sum.ran_ns, ran_ns),
                (&mut sum.waited_ns, waited_ns),
                (&mut sum.own_ns, grown.own_ns(looked_ns)),
            ] {
                *sum = sum.saturating_add(more);
            }
            if let Some(cpu) = cpu {
                let waited_there = cpus.entry(cpu).or_default();
                *waited_there = waited_there.saturating_add(waited_ns);
            }
        }
    }

    /// Without threads that did nothing.
    pub(crate) fn all(self) -> Vec<CpuWait> {
        let of_thread = |(wait, cpus): (CpuWait, BTreeMap<u32, u64>)| {
            let longest = cpus.into_iter().max_by_key(|&(_, ns)| ns);
            CpuWait { cpu: longest.map(|(cpu, _)| cpu), ..wait }
        };
        let all = self.0.into_values().map(of_thread);
        all.filter(|of| of.ran_ns > 0 || of.waited_ns > 0).collect()
    }
}
