//! The nodes of a graph with the names that a profiler has for them, and the spans of a pass that computed them.

use brickscope::{BrickKey, BrickProfiler, Data, HostLaunch, KernelId, TimedSpan, TimedWork, Work};

use crate::Node;
use crate::bricks::{Attends, Brick, Described, describe};

/// What the nodes of a graph are, with a profiler's names. Made once for each graph.
#[derive(Debug, Clone)]
pub struct Labels(Vec<Label>);

#[derive(Debug, Clone)]
struct Label {
    /// `None` if it computes nothing.
    brick: Option<BrickKey>,
    kernel: KernelId,
    layer: Option<u16>,
    // Not all that describes it: labels are read after each pass, when no cache has them.
    work: Work,
    attends: Option<Attends>,
}

impl Labels {
    /// Labels the nodes of a graph, which are listed in the order in which they run, on so many threads.
    #[must_use]
    pub fn new(profiler: &BrickProfiler, nodes: &[Node], threads: u32) -> Self {
        let mut labels: Vec<Label> =
            nodes.iter().map(|node| label(profiler, node, threads)).collect();
        fill_layers(&mut labels);
        Self(labels)
    }

    /// The brick of each node, in order; `None` if it computes nothing.
    pub fn bricks(&self) -> impl Iterator<Item = Option<BrickKey>> {
        self.0.iter().map(|label| label.brick)
    }

    /// Adds the spans of the graph, in the order in which they began: layers, bricks of nodes that follow each other, and a
    /// kernel for each node. `times` has the begin and the end of each node, in nanoseconds of the profiler's clock; nodes
    /// without times are left out. `tokens` are those of the pass, and `position` is how many were in the cache before it;
    /// if that is not known, attention counts all that its shape has room for.
    pub fn add_spans(
        &self,
        spans: &mut Vec<TimedSpan>,
        times: &[[u64; 2]],
        tokens: u64,
        position: Option<u64>,
    ) {
        let labels = &self.0[..self.0.len().min(times.len())];
        let same = |n: usize, of: &dyn Fn(&Label) -> bool| {
            labels[n..].iter().take_while(|label| of(label)).count()
        };
        let mut n = 0;
        let mut layer_until = 0;
        while n < labels.len() {
            let label = &labels[n];
            if let Some(layer) = label.layer.filter(|_| n >= layer_until) {
                layer_until = n + same(n, &|other| other.layer == Some(layer));
                let [start_ns, end_ns] = [times[n][0], times[layer_until - 1][1]];
                let what = TimedWork::Layer(layer);
                spans.push(TimedSpan {
                    what,
                    start_ns,
                    end_ns,
                    work: Work::default(),
                    layer: None,
                });
            }
            let Some(brick) = label.brick else {
                n += 1;
                continue;
            };
            let count = same(n, &|other| other.brick == Some(brick) && other.layer == label.layer);
            let kernels = n..n + count;
            let mut sum = Work::default();
            let at = spans.len();
            let [start_ns, end_ns] = [times[n][0], times[kernels.end - 1][1]];
            let what = TimedWork::Brick(brick);
            spans.push(TimedSpan { what, start_ns, end_ns, work: sum, layer: None });
            for k in kernels.clone() {
                let work = work_at(&labels[k], tokens, position);
                sum = added(sum, work, k == n);
                let [start_ns, end_ns] = times[k];
                let what = TimedWork::Kernel(labels[k].kernel);
                spans.push(TimedSpan { what, start_ns, end_ns, work, layer: None });
            }
            spans[at].work = sum;
            n = kernels.end;
        }
    }
}

fn label(profiler: &BrickProfiler, node: &Node, threads: u32) -> Label {
    let described = describe(node);
    let brick = match described.brick {
        Brick::Known(brick) => Some(brick.into()),
        Brick::Named(name, category) => Some(profiler.named_brick(name, category)),
        Brick::None => None,
    };
    let launch = HostLaunch { shape: described.shape.clone(), threads };
    let kernel = profiler.kernel(&described.kernel, Some(launch));
    let Described { layer, work, attends, .. } = described;
    Label { brick, kernel, layer, work, attends }
}

/// A node whose names say no layer is of the layer that the nodes around it are of; between two layers, of the first.
fn fill_layers(labels: &mut [Label]) {
    let mut before = None;
    for at in 0..labels.len() {
        if labels[at].layer.is_none() {
            let follows = labels[at..].iter().any(|label| label.layer.is_some());
            // The last norm and the head follow no layer that they are of.
            if follows {
                labels[at].layer = before;
            }
        }
        before = labels[at].layer.or(before);
    }
}

/// The work of a node in a pass of so many tokens. Each token looks at those before it and at itself.
fn work_at(label: &Label, tokens: u64, position: Option<u64>) -> Work {
    let Some(attends) = label.attends else { return label.work };
    let in_cache = position.map_or(u64::MAX, |position| position.saturating_add(tokens));
    let in_cache = in_cache.min(attends.room);
    // On average, in halves.
    let all = attends.room.saturating_mul(2);
    let looked_at = position.map_or(all, |position| {
        position.saturating_mul(2).saturating_add(tokens).saturating_add(1)
    });
    let looked_at = looked_at.min(all);
    let read = attends.bytes.saturating_mul(in_cache);
    Work {
        flops: attends.flops.saturating_mul(looked_at) / 2,
        bytes: label.work.bytes.saturating_add(read),
        data: Data::Kv(read),
        ..label.work
    }
}

fn added(sum: Work, work: Work, is_first: bool) -> Work {
    let data = match (sum.data, work.data) {
        _ if is_first => work.data,
        (Data::Weights(a), Data::Weights(b)) => Data::Weights(a.saturating_add(b)),
        (Data::Kv(a), Data::Kv(b)) => Data::Kv(a.saturating_add(b)),
        (Data::Activations, Data::Activations) => Data::Activations,
        (Data::Weights(a), Data::Activations) | (Data::Activations, Data::Weights(a)) => {
            Data::Weights(a)
        }
        _ => Data::Unstated,
    };
    Work {
        elements: sum.elements.saturating_add(work.elements),
        flops: sum.flops.saturating_add(work.flops),
        bytes: sum.bytes.saturating_add(work.bytes),
        data,
    }
}
