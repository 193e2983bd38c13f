//! The nodes of a graph with the names that a profiler has for them, and the spans of a pass that computed them.

use std::collections::HashMap;

use brickscope::{
    BrickId, BrickKey, BrickProfiler, Data, HostLaunch, KernelId, TimedSpan, TimedWork, Work,
};

use crate::bricks::{Brick, Described, described, norm_weight};
use crate::work::{CACHE, Counted, Experts, cache, stem};
use crate::{LooksAt, Node};

/// What a graph was computed with, as far as its shape doesn't tell.
#[derive(Debug, Clone, Default)]
pub struct Ran<'r> {
    /// What its attention looks at. If it is not known, it counts all that its shape has room for.
    pub looks_at: Option<LooksAt>,
    /// How many experts each product of experts used, in order. Where that isn't counted, and the shape doesn't tell, the
    /// bytes of their matrices are not stated.
    pub experts: &'r [Option<u32>],
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
    counted: Counted,
    /// Whether its attention looks at a sliding window, if that is known.
    is_window: Option<bool>,
}

impl Labels {
    /// Labels the nodes of a graph, which are listed in the order in which they run, on this many threads.
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
        name_norms(nodes, &mut labels);
        find_windows(nodes, &mut labels);
        join_norms(nodes, &mut labels);
        fill_layers(&mut labels);
        Self(labels)
    }

    /// The brick of each node, in order; `None` if it computes nothing.
    pub fn bricks(&self) -> impl Iterator<Item = Option<BrickKey>> {
        self.0.iter().map(|label| label.brick)
    }

    /// The products with experts' matrices, in order: the layer of each, and what experts it has.
    pub fn experts(&self) -> impl Iterator<Item = (Option<u16>, Experts)> {
        self.0.iter().filter_map(|label| Some((label.layer, label.counted.experts?)))
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
        self.add_spans_of(spans, times, &Ran { looks_at, experts: &[] });
    }

    /// The same of a graph of which more is known.
    pub fn add_spans_of(&self, spans: &mut Vec<TimedSpan>, times: &[[u64; 2]], ran: &Ran<'_>) {
        let mut experts = ran.experts.iter();
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
                let Label { counted, is_window, .. } = &labels[k];
                let used = counted.experts.and_then(|_| experts.next().copied().flatten());
                let work = counted.work(ran.looks_at.as_ref(), *is_window, used.map(u64::from));
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
    let (described, counted) = described(node);
    let brick = match described.brick {
        Brick::Known(brick) => Some(brick.into()),
        Brick::Named(name, category) => Some(profiler.named_brick(name, category)),
        Brick::None => None,
    };
    let launch = HostLaunch { shape: described.shape.clone(), threads };
    let name = on.map(|on| format!("{} on {on}", described.kernel));
    let kernel = profiler.kernel(name.as_ref().unwrap_or(&described.kernel), Some(launch));
    let Described { layer, .. } = described;
    Label { brick, kernel, layer, counted, is_window: None }
}

/// A norm's weights and its bias are of the brick of the norm whose result they are applied to, which the names of weights
/// don't tell.
fn name_norms(nodes: &[Node], labels: &mut [Label]) {
    // Results of norms, by name: the last ones, since a layer has several of one name.
    let mut results: HashMap<&str, Option<BrickKey>> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let is_norm = matches!(&*node.op, "NORM" | "RMS_NORM" | "GROUP_NORM" | "L2_NORM");
        if !is_norm {
            let of = || node.src.iter().find_map(|src| results.get(&*src.name).copied());
            let Some(brick) = norm_weight(node).and_then(|_| of()) else { continue };
            labels[at].brick = brick;
        }
        let out = node.then.as_ref().map_or(&node.out, |then| &then.out);
        results.insert(&out.name, labels[at].brick);
    }
}

/// Layers that look at a sliding window keep fewer tokens than others do, if they have a cache of their own. A graph without
/// any cache looks at its own tokens, all of which are in its shape.
fn find_windows(nodes: &[Node], labels: &mut [Label]) {
    let is_cache = |node: &Node| {
        node.out.name.starts_with(CACHE) || node.src.iter().any(|src| src.name.starts_with(CACHE))
    };
    let attends = |node: &Node| {
        node.op == "FLASH_ATTN_EXT" || node.op == "MUL_MAT" && stem(&node.out.name) == "kq"
    };
    if nodes.iter().any(attends) && !nodes.iter().any(is_cache) {
        labels.iter_mut().for_each(|label| label.counted.attends = None);
        return;
    }
    // The rows of each layer's keys, which its writes state.
    let mut rows: HashMap<u16, u64> = HashMap::new();
    for node in nodes.iter().filter(|node| node.op == "SET_ROWS") {
        if let Some((what, layer)) = cache(&node.out.name)
            && what == "k"
        {
            rows.insert(layer, node.out.ne[1]);
        }
    }
    let most = rows.values().copied().max();
    if rows.values().copied().min() == most {
        return;
    }
    for label in labels {
        let own = label.layer.and_then(|layer| rows.get(&layer)).copied();
        label.is_window = own.map(|own| Some(own) != most);
    }
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
