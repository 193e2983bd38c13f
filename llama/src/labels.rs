//! The nodes of a graph with the names that a profiler has for them, and the spans of a pass that computed them.

use brickscope::{
    BrickId, BrickKey, BrickProfiler, Data, HostLaunch, KernelId, TimedSpan, TimedWork, Work,
};

use crate::Node;
use crate::bricks::{Attends, Brick, Described, describe};

/// What attention looks at in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LooksAt {
    /// Twice the tokens that each token of the pass looks at, on average: those before it in its sequence, and itself.
    twice: u64,
    /// The tokens of its sequences whose keys and values it reads.
    rows: u64,
}

impl LooksAt {
    /// Of tokens that follow `position` others in their sequence.
    #[must_use]
    pub fn one(position: u64, tokens: u64) -> Self {
        let twice = position.saturating_mul(2).saturating_add(tokens).saturating_add(1);
        Self { twice, rows: position.saturating_add(tokens) }
    }

    /// Of several sequences, each with the tokens that were in the cache before and after the pass. `None` if none grew.
    #[must_use]
    pub fn several(sequences: &[[u32; 2]]) -> Option<Self> {
        let (mut tokens, mut twice, mut rows) = (0_u64, 0_u64, 0_u64);
        for [before, after] in sequences.iter().map(|of| of.map(u64::from)) {
            let new = after.saturating_sub(before);
            let each = Self::one(before, new);
            tokens = tokens.saturating_add(new);
            twice = twice.saturating_add(new.saturating_mul(each.twice));
            rows = rows.saturating_add(if new > 0 { each.rows } else { 0 });
        }
        Some(Self { twice: twice.checked_div(tokens)?, rows })
    }
}

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
        Self::of(profiler, nodes, threads, None)
    }

    /// Labels nodes that another backend than the CPU computes one after the other. Their kernels say which:
    /// `mul_mat_q8_0 on CUDA0`.
    #[must_use]
    pub fn of_backend(profiler: &BrickProfiler, nodes: &[Node], backend: &str) -> Self {
        Self::of(profiler, nodes, 0, Some(backend))
    }

    fn of(profiler: &BrickProfiler, nodes: &[Node], threads: u32, on: Option<&str>) -> Self {
        let mut labels: Vec<Label> =
            nodes.iter().map(|node| label(profiler, node, threads, on)).collect();
        name_attention(nodes, &mut labels);
        join_norms(nodes, &mut labels);
        fill_layers(&mut labels);
        Self(labels)
    }

    /// The brick of each node, in order; `None` if it computes nothing.
    pub fn bricks(&self) -> impl Iterator<Item = Option<BrickKey>> {
        self.0.iter().map(|label| label.brick)
    }

    /// Adds the spans of the graph, in the order in which they began: layers, bricks of nodes that follow each other, and a
    /// kernel for each node. `times` has the begin and the end of each node, in nanoseconds of the profiler's clock; nodes
    /// without times are left out. If it is not known what attention looks at, it counts all that its shape has room for.
    pub fn add_spans(
        &self,
        spans: &mut Vec<TimedSpan>,
        times: &[[u64; 2]],
        looks_at: Option<LooksAt>,
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
                let work = work_at(&labels[k], looks_at);
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

fn label(profiler: &BrickProfiler, node: &Node, threads: u32, on: Option<&str>) -> Label {
    let described = describe(node);
    let brick = match described.brick {
        Brick::Known(brick) => Some(brick.into()),
        Brick::Named(name, category) => Some(profiler.named_brick(name, category)),
        Brick::None => None,
    };
    let launch = HostLaunch { shape: described.shape.clone(), threads };
    let name = on.map(|on| format!("{} on {on}", described.kernel));
    let kernel = profiler.kernel(name.as_ref().unwrap_or(&described.kernel), Some(launch));
    let Described { layer, work, attends, .. } = described;
    Label { brick, kernel, layer, work, attends }
}

/// Older versions don't name the steps of attention. They are known by what they read: scores are what a softmax reads, and
/// the product after it reads the softmax.
fn name_attention(nodes: &[Node], labels: &mut [Label]) {
    /// Between them are a mask or a scale at most.
    const NEAR: usize = 4;
    let is_nameless = |node: &Node| node.out.name.starts_with("node_");
    for (at, node) in nodes.iter().enumerate() {
        if node.op != "SOFT_MAX" || !is_nameless(node) {
            continue;
        }
        let reads = |node: &Node, of: &Node| node.src.iter().any(|src| src.name == of.out.name);
        let is_product = |node: &Node| node.op == "MUL_MAT" && is_nameless(node);
        let before = (at.saturating_sub(NEAR)..at).rev();
        let scores = before.into_iter().find(|&n| is_product(&nodes[n]) && reads(node, &nodes[n]));
        let after = at + 1..nodes.len().min(at + 1 + NEAR);
        let output =
            after.into_iter().find(|&n| nodes[n].op == "MUL_MAT" && reads(&nodes[n], node));
        if let (Some(scores), Some(output)) = (scores, output) {
            for (n, brick) in [
                (scores, BrickId::AttentionScore),
                (at, BrickId::AttentionSoftmax),
                (output, BrickId::AttentionOutput),
            ] {
                labels[n].brick = Some(brick.into());
            }
        }
    }
}

/// A norm that nothing names is of the layer of the weights that its result is multiplied by.
fn join_norms(nodes: &[Node], labels: &mut [Label]) {
    for (at, pair) in nodes.windows(2).enumerate() {
        let is_norm = matches!(&*pair[0].op, "NORM" | "RMS_NORM") && pair[1].op == "MUL";
        if is_norm && labels[at].layer.is_none() && labels[at].brick == labels[at + 1].brick {
            labels[at].layer = labels[at + 1].layer;
        }
    }
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

/// The work of a node in a pass whose attention looks at so much.
fn work_at(label: &Label, looks_at: Option<LooksAt>) -> Work {
    let Some(attends) = label.attends else { return label.work };
    let twice_room = attends.room.saturating_mul(2);
    let looked_at = looks_at.map_or(twice_room, |of| of.twice.min(twice_room));
    let in_cache = looks_at.map_or(attends.room, |of| of.rows.min(attends.room));
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

#[cfg(test)]
mod tests {
    use brickscope::{BrickCategory, BrickProfiler};

    use super::*;
    use crate::{Node, Tensor};

    fn tensor(name: &str) -> Tensor {
        Tensor {
            name: name.to_owned(),
            kind: "f32".to_owned(),
            ne: [64, 1, 1, 1],
            bytes: 256,
            numbers: None,
        }
    }

    fn node(op: &str, name: &str, src: &[&str]) -> Node {
        let src = src.iter().map(|name| tensor(name)).collect();
        Node { op: op.to_owned(), out: tensor(name), src, then: None }
    }

    #[test]
    fn each_sequence_looks_at_its_own_tokens() {
        // The third of three tokens after ten others looks at thirteen, and they at twelve on average.
        assert_eq!(LooksAt::one(10, 3), LooksAt { twice: 24, rows: 13 });
        assert_eq!(LooksAt::several(&[[10, 13]]), Some(LooksAt::one(10, 3)));
        // Two that decode: 101 and 11 tokens, and a cache that nobody grew.
        let two = LooksAt::several(&[[100, 101], [500, 500], [10, 11]]);
        assert_eq!(two, Some(LooksAt { twice: 112, rows: 112 }));
        assert_eq!(LooksAt::several(&[]), None);
        let hostile = LooksAt::several(&[[u32::MAX, 0], [0, u32::MAX]]);
        assert_eq!(hostile.map(|of| of.rows), Some(u32::MAX.into()));
    }

    #[test]
    fn kernels_of_other_backends_say_where_they_run() {
        let profiler = BrickProfiler::enabled();
        let nodes = [node("MUL_MAT", "Qcur-0", &["blk.0.attn_q.weight", "attn_norm-0"])];
        let [here, there] =
            [Labels::new(&profiler, &nodes, 1), Labels::of_backend(&profiler, &nodes, "CUDA0")];
        assert_eq!(here.bricks().collect::<Vec<_>>(), there.bricks().collect::<Vec<_>>());
        let names = profiler.profile().names;
        let kernel = |name: &str| names.iter().any(|of| of.name == name);
        assert!(kernel("mul_mat_f32") && kernel("mul_mat_f32 on CUDA0"), "{names:?}");
    }

    #[test]
    fn steps_of_attention_without_names_are_known_by_what_they_read() {
        let profiler = BrickProfiler::enabled();
        let nodes = [
            node("MUL_MAT", "Qcur-0", &["blk.0.attn_q.weight", "attn_norm-0"]),
            node("MUL_MAT", "node_9", &["cache_k_l0 (view)", "Qcur-0"]),
            node("SOFT_MAX", "node_10", &["node_9", "KQ_mask"]),
            node("MUL_MAT", "node_11", &["cache_v_l0 (view)", "node_10"]),
            node("MUL_MAT", "node_12", &["x", "y"]),
            node("SOFT_MAX", "node_13", &["z"]),
        ];
        let labels = Labels::new(&profiler, &nodes, 1);
        let other = |name: &str| profiler.named_brick(name, BrickCategory::Other);
        let expected: Vec<Option<BrickKey>> = vec![
            Some(BrickId::QkvProjection.into()),
            Some(BrickId::AttentionScore.into()),
            Some(BrickId::AttentionSoftmax.into()),
            Some(BrickId::AttentionOutput.into()),
            Some(other("MatMul")),
            Some(other("Elementwise")),
        ];
        assert_eq!(labels.bricks().collect::<Vec<_>>(), expected);
    }
}
