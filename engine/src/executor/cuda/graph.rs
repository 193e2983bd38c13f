//! Decode passes as graphs: captured once, replayed for each token, and timed as graphs.
//!
//! There are two: a plain one, and a twin that records the time at each boundary between bricks or kernels: in the kernels
//! themselves, or by a node for each. The twin is replayed every [`sample_every`](super::CudaOptions::sample_every)th pass, which spreads its
//! cost over all of them. Each kernel node is matched with the step that it was captured from; a node
//! without a step fails the pass.

use std::collections::{HashMap, HashSet};

use brickscope::{Grain, Issued, KernelId, PairedRatio, Phase, SyncMode};

use super::clock::OWN_SET;
use super::driver::{GraphExec, Node, NodeKind};
use super::error::CudaError;
use super::kernels::Launch;
use super::memory::lasted;
use super::{Cuda, Prepared};
use crate::executor::gpu::{Gpu as _, GpuError, Plan, Timed};
use crate::forward::Outputs;

/// The graphs of a decode pass.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    plain: Option<GraphExec>,
    twin: Option<Twin>,
    /// Timed decode passes so far.
    n_timed: u64,
    /// Whether plain replays lie between two events, and whether the last replay did.
    times_plain: bool,
    is_plain_timed: bool,
    /// How long a plain replay takes, once [`Cuda::graph_cost`] has measured it.
    plain_ns: Option<u64>,
}

/// Passes shorter than this are timed half as often.
const SHORT_NS: u64 = 500_000;

/// The graph with timestamps in it.
#[derive(Debug)]
struct Twin {
    exec: GraphExec,
    issued: Issued,
    set: u32,
    grain: Grain,
    /// The profiler's numbers for the steps, which label what was issued.
    names: Vec<KernelId>,
}

impl Graphs {
    pub(super) fn clear(&mut self) {
        (self.plain, self.twin) = (None, None);
    }
}

/// Whether a pass is replayed from a graph. Not in modes that wait within a pass, as nothing can wait in the
/// middle of a graph.
pub(super) fn is_replayed(plan: &Plan<'_>, timed: Option<&Timed<'_, '_>>) -> bool {
    let fits = timed.is_none_or(|timed| {
        let waits = matches!(timed.wanted_mode(), SyncMode::Immediate | SyncMode::PerLayer);
        timed.phase() == Phase::Decode && !waits
    });
    plan.n == 1 && plan.n_outputs == 1 && fits
}

/// The cost of the timestamps in a decode graph, by the device's clock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GraphCost {
    /// Kernel nodes; each belongs to a layer and a brick.
    pub kernels: usize,
    /// Places where the time is recorded.
    pub marks: usize,
    /// The median span of the plain graph, in nanoseconds.
    pub plain_ns: u64,
    /// The median span of the twin, in nanoseconds.
    pub instrumented_ns: u64,
    /// The twin against the plain one, in turns; `None` with too few turns.
    pub ratio: Option<PairedRatio>,
}

/// What a capture calls before each step (`Some`), and at its end (`None`).
type OnStep<'t> = &'t mut dyn FnMut(&mut Cuda<'_>, Option<usize>) -> Result<(), GpuError>;

impl Cuda<'_> {
    /// Runs a decode pass from its graph: from the twin, if it is this pass's turn to be timed.
    pub(super) fn replay(
        &mut self,
        plan: &Plan<'_>,
        timed: Option<&mut Timed<'_, '_>>,
    ) -> Result<(), GpuError> {
        if self.graphs.plain.is_none() {
            let captured = self.capture(plan, &mut |_, _| Ok(()))?;
            self.graphs.plain = Some(captured.exec);
        }
        let Some(timed) = timed.filter(|timed| timed.wanted_mode() != SyncMode::None) else {
            return self.launch_plain();
        };
        let turn = self.graphs.n_timed;
        self.graphs.n_timed += 1;
        let every = self.sample_every();
        if !turn.is_multiple_of(every.into()) {
            timed.timer().unmarked_pass();
            return self.launch_plain();
        }
        timed.timer().set_sampling(Phase::Decode, every);
        let grain = timed.timer().grain();
        let fits = |twin: &Twin| twin.grain == grain && twin.names == timed.kernels();
        let twin = match self.graphs.twin.take().filter(fits) {
            Some(twin) => twin,
            None => self.capture_twin(plan, timed, grain)?,
        };
        let replayed = self.replay_twin(&twin, timed);
        self.graphs.twin = Some(twin);
        replayed
    }

    /// One in this many passes is timed: what the options say, or half as often where passes are short. The host takes
    /// some 20 to 60 µs for a timed pass, whatever it timed.
    fn sample_every(&self) -> u32 {
        let every = self.options.sample_every.max(1);
        let is_short = self.graphs.plain_ns.is_some_and(|ns| ns < SHORT_NS);
        if is_short && every > 1 { every.saturating_mul(2) } else { every }
    }

    fn launch_plain(&mut self) -> Result<(), GpuError> {
        let is_timed = self.graphs.times_plain;
        self.graphs.is_plain_timed = is_timed;
        Ok(self.on_device(|this| {
            this.marks.flush(&this.stream)?;
            let Some(exec) = &this.graphs.plain else {
                return Err(CudaError::Capture { what: "there is no graph yet".to_owned() });
            };
            if !is_timed {
                return exec.launch(&this.stream);
            }
            let (start, end) = this.marks.pair();
            start.record(&this.stream)?;
            exec.launch(&this.stream)?;
            end.record(&this.stream)
        })?)
    }

    /// Whether to time replays without timestamps as a whole, by an event before and one after: to compare with the sum of
    /// the bricks of those with timestamps.
    pub fn time_plain_graphs(&mut self, times: bool) {
        self.graphs.times_plain = times;
    }

    /// How long the last replay took, if it was such a one. The device begins with the event, so this includes the time
    /// until the host has launched the graph. Call it before anything else is done on the device.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn plain_graph_ns(&mut self) -> Result<Option<u64>, GpuError> {
        if !self.graphs.is_plain_timed {
            return Ok(None);
        }
        Ok(self.on_device(|this| {
            let (start, end) = this.marks.pair();
            end.synchronize()?;
            Ok(lasted(end.since(start)?))
        })?)
    }

    fn replay_twin(&mut self, twin: &Twin, timed: &mut Timed<'_, '_>) -> Result<(), GpuError> {
        self.graphs.is_plain_timed = false;
        // First, read the times of the last replay, which this one overwrites.
        timed.replayed(self, &twin.issued)?;
        let launched = self.on_device(|this| {
            this.marks.flush(&this.stream)?;
            this.marks.begin(&this.stream, twin.set)?;
            twin.exec.launch(&this.stream)
        });
        if launched.is_err() {
            // With events, these still have the times of the replay before.
            self.marks.void(twin.set);
        }
        Ok(launched?)
    }

    fn capture_twin(
        &mut self,
        plan: &Plan<'_>,
        timed: &mut Timed<'_, '_>,
        grain: Grain,
    ) -> Result<Twin, GpuError> {
        // Before the capture, as this may settle passes.
        timed.begin(self)?;
        let mut issued = None;
        let captured = self.capture(plan, &mut |this, step| {
            match step {
                Some(step) => timed.step(this, step)?,
                None => issued = timed.timer().end_recorded(this)?,
            }
            Ok(())
        });
        if captured.is_err() {
            timed.timer().abandon_pass();
        }
        let captured = captured?;
        let (Some(issued), Some(set)) = (issued, captured.set) else {
            return Err(CudaError::Capture { what: "nothing was marked in it".to_owned() }.into());
        };
        let names = timed.kernels().to_vec();
        Ok(Twin { exec: captured.exec, issued, set, grain, names })
    }

    /// Captures the plan's steps. Calls `on_step` before each step is issued, and at the end.
    fn capture(&mut self, plan: &Plan<'_>, on_step: OnStep<'_>) -> Result<Captured, GpuError> {
        let prepared = self.on_device(|this| {
            let prepared = this.prepared(plan)?;
            // A mark of before doesn't belong into the graph.
            this.marks.flush(&this.stream)?;
            this.stream.begin_capture()?;
            Ok(prepared)
        })?;
        self.marks.captured = Some(CapturedMarks::default());
        self.marks.joins_kernels = true;
        let issued = self.issue_captured(&prepared, on_step);
        self.marks.joins_kernels = false;
        let marks = self.marks.captured.take().unwrap_or_default();
        // Also after an error, or the stream would go on capturing.
        let graph = self.stream.end_capture();
        let kernels = issued?;
        Ok(self.on_device(|this| {
            let graph = graph?;
            let steps: Vec<Captee> = plan
                .steps
                .iter()
                .zip(prepared.iter())
                .zip(&kernels)
                .map(|((step, prepared), &node)| Captee {
                    node,
                    launch: prepared.ready.launch,
                    what: match step.layer {
                        Some(layer) => format!("layer {layer}, {}", step.brick_name()),
                        None => step.brick_name().to_owned(),
                    },
                })
                .collect();
            map_nodes(&graph.nodes()?, &steps, &marks)?;
            let exec = graph.instantiate()?;
            exec.upload(&this.stream)?;
            Ok(Captured { exec, kernels: steps.len(), set: marks.set })
        })?)
    }

    fn issue_captured(
        &mut self,
        prepared: &[Prepared],
        on_step: OnStep<'_>,
    ) -> Result<Vec<Node>, GpuError> {
        let mut nodes = Vec::with_capacity(prepared.len());
        for (index, step) in prepared.iter().enumerate() {
            on_step(self, Some(index))?;
            nodes.push(self.on_device(|this| {
                this.launch_step(step)?;
                this.stream.last_captured()
            })?);
        }
        on_step(self, None)?;
        self.on_device(|this| this.marks.flush(&this.stream))?;
        Ok(nodes)
    }

    /// Replays the decode graph and its twin in turns, `2 · quads` times each, and compares their spans on
    /// the device. They run at the last position and overwrite its row of the KV cache.
    ///
    /// # Errors
    ///
    /// If the device fails, or a node belongs to no brick.
    pub fn graph_cost(&mut self, grain: Grain, quads: u32) -> Result<GraphCost, GpuError> {
        let model = self.model;
        let plan = self.fuse(Plan::new(&model.config, &model.weights, 1, Outputs::Last));
        self.start_pass(&plan, &[0], self.capacity - 1)?;
        let plain = self.capture(&plan, &mut |_, _| Ok(()))?;
        let mut n_marks = 0;
        let steps = &plan.steps;
        let twin = self.capture(&plan, &mut |this, step| {
            let is_border = step.is_none_or(|step| match grain {
                Grain::Kernel => true,
                Grain::Brick => steps[step].begins_brick,
                Grain::Layer => step == 0 || steps[step].layer != steps[step - 1].layer,
                Grain::Pass => step == 0,
            });
            if is_border {
                this.on_device(|this| this.marks.mark(&this.stream, OWN_SET, n_marks))?;
                n_marks += 1;
            }
            Ok(())
        })?;
        let mut span = |exec: &GraphExec| {
            self.on_device(|this| {
                let (start, end) = this.marks.pair();
                start.record(&this.stream)?;
                exec.launch(&this.stream)?;
                end.record(&this.stream)?;
                end.synchronize()?;
                end.since(start).map(|ms| f64::from(ms) * 1e6)
            })
        };
        for exec in [&plain.exec, &twin.exec] {
            span(exec)?;
        }
        let mut pairs = Vec::new();
        for _ in 0..quads.max(1) {
            let (a1, b1) = (span(&plain.exec)?, span(&twin.exec)?);
            let (b2, a2) = (span(&twin.exec)?, span(&plain.exec)?);
            pairs.extend([(a1, b1), (a2, b2)]);
        }
        let median = |arm: fn(&(f64, f64)) -> f64| {
            let mut times: Vec<f64> = pairs.iter().map(arm).collect();
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).map_or(0, |&ns| ns.round() as u64)
        };
        let plain_ns = median(|pair| pair.0);
        self.graphs.plain_ns = Some(plain_ns);
        Ok(GraphCost {
            kernels: twin.kernels,
            marks: n_marks as usize,
            plain_ns,
            instrumented_ns: median(|pair| pair.1),
            ratio: PairedRatio::new(&pairs).ok(),
        })
    }
}

/// A graph, ready to be launched.
struct Captured {
    exec: GraphExec,
    kernels: usize,
    set: Option<u32>,
}

/// The marks of a capture.
#[derive(Debug, Default)]
pub(super) struct CapturedMarks {
    pub(super) n_marks: usize,
    /// The nodes of marks that are kernels.
    pub(super) kernels: Vec<Node>,
    pub(super) set: Option<u32>,
}

/// A step that was captured.
#[derive(Debug, Clone)]
struct Captee {
    node: Node,
    launch: Launch,
    /// Its layer and brick.
    what: String,
}

/// Checks the nodes of a graph against what was issued: each node is a step or a mark, each step has one node with its
/// launch, and there are as many nodes for marks as were issued. What kernels note themselves is not looked at.
fn map_nodes(
    nodes: &[(Node, NodeKind)],
    steps: &[Captee],
    marks: &CapturedMarks,
) -> Result<(), CudaError> {
    let by_node: HashMap<Node, &Captee> = steps.iter().map(|step| (step.node, step)).collect();
    let is_stamp = |node: &Node, kind: &NodeKind| match kind {
        NodeKind::EventRecord => true,
        NodeKind::Kernel(_) => marks.kernels.contains(node),
        NodeKind::Other(_) => false,
    };
    let n_stamps = nodes.iter().filter(|(node, kind)| is_stamp(node, kind)).count();
    for (node, kind) in nodes.iter().filter(|(node, kind)| !is_stamp(node, kind)) {
        let unmapped = |what: String| CudaError::Unmapped {
            node: format!("{node:?}"),
            what,
            nodes: nodes.len() - n_stamps,
            steps: steps.len(),
        };
        let NodeKind::Kernel(launch) = kind else {
            return Err(unmapped(format!("{kind:?}")));
        };
        let Some(step) = by_node.get(node) else {
            return Err(unmapped(format!("a kernel on a grid of {:?}", launch.grid)));
        };
        if step.launch != *launch {
            let what = format!(
                "the node of {} runs on a grid of {:?}, but {:?} was issued",
                step.what, launch.grid, step.launch.grid
            );
            return Err(CudaError::Capture { what });
        }
    }
    let found: HashSet<Node> = nodes.iter().map(|&(node, _)| node).collect();
    if let Some(step) = steps.iter().find(|step| !found.contains(&step.node)) {
        let what = format!("the kernel of {} is not in it", step.what);
        return Err(CudaError::Capture { what });
    }
    if by_node.len() != steps.len() {
        let what = format!("{} kernel nodes for {} steps", by_node.len(), steps.len());
        return Err(CudaError::Capture { what });
    }
    if n_stamps != marks.n_marks {
        let what = format!("it has {n_stamps} time stamps of {}", marks.n_marks);
        return Err(CudaError::Capture { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(blocks: u32) -> Launch {
        Launch { grid: [blocks, 1, 1], block: [32, 1, 1], shared_bytes: 0 }
    }

    /// Three steps and two marks, as they were captured, and their graph.
    fn captured() -> (Vec<(Node, NodeKind)>, Vec<Captee>, CapturedMarks) {
        let bricks = ["layer 0, RmsNorm", "layer 0, LmHead", "Sampling"];
        let steps: Vec<Captee> = (1..)
            .zip(bricks)
            .map(|(n, what)| Captee {
                node: Node::numbered(n),
                launch: launch(n as u32),
                what: what.to_owned(),
            })
            .collect();
        let marks = CapturedMarks { n_marks: 2, ..CapturedMarks::default() };
        let kernels = steps.iter().map(|step| (step.node, NodeKind::Kernel(step.launch)));
        let records = [10, 11].map(|mark| (Node::numbered(mark), NodeKind::EventRecord));
        (records.into_iter().chain(kernels).collect(), steps, marks)
    }

    #[test]
    fn a_graph_of_what_was_issued_is_mapped() {
        let (nodes, steps, marks) = captured();
        assert_eq!(map_nodes(&nodes, &steps, &marks), Ok(()));
        // Kernels that stamp are no steps.
        let stamped = nodes.iter().map(|&(node, kind)| match kind {
            NodeKind::EventRecord => (node, NodeKind::Kernel(launch(1))),
            kind => (node, kind),
        });
        let marks =
            CapturedMarks { kernels: vec![Node::numbered(10), Node::numbered(11)], ..marks };
        assert_eq!(map_nodes(&stamped.collect::<Vec<_>>(), &steps, &marks), Ok(()));
    }

    #[test]
    fn a_node_that_belongs_to_no_brick_is_named() {
        let (mut nodes, steps, marks) = captured();
        nodes.push((Node::numbered(77), NodeKind::Kernel(launch(9))));
        let error = map_nodes(&nodes, &steps, &marks).expect_err("nobody issued it");
        let CudaError::Unmapped { node, nodes: n_kernels, steps: n_steps, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((&**node, *n_kernels, *n_steps), ("Node(77)", 4, 3));
        assert!(error.to_string().contains("belongs to no brick"), "{error}");
        nodes.pop();
        nodes.push((Node::numbered(78), NodeKind::Other(2)));
        assert!(matches!(map_nodes(&nodes, &steps, &marks), Err(CudaError::Unmapped { .. })));
    }

    #[test]
    fn a_step_or_a_mark_that_the_graph_lacks_is_named() {
        let (nodes, steps, marks) = captured();
        let without = |lost: Node| {
            let left: Vec<_> = nodes.iter().copied().filter(|&(node, _)| node != lost).collect();
            map_nodes(&left, &steps, &marks).expect_err("one is missing").to_string()
        };
        assert!(without(Node::numbered(2)).contains("the kernel of layer 0, LmHead is not in it"));
        assert!(without(Node::numbered(11)).contains("1 time stamps of 2"));
        let (mut nodes, ..) = captured();
        nodes.last_mut().expect("five nodes").1 = NodeKind::Kernel(launch(8));
        let error = map_nodes(&nodes, &steps, &marks).expect_err("it is launched otherwise");
        assert!(error.to_string().contains("the node of Sampling"), "{error}");
    }
}
