//! Which of a graph's nodes llama.cpp calls back after.
//!
//! Versions differ, and none says which it is; but each leaves out some more of the nodes than the one before:
//!
//! | llama.cpp | leaves out |
//! |---|---|
//! | of 2025 (seen in the sources of llama-cpp-python 0.3.16) | nothing |
//! | later | what computes nothing: views |
//! | later | what isn't needed, which has no flag that says so |
//! | of 2026 (0.3.36) | products of a norm with its weights, which are computed with the norm |
//!
//! So the number of calls tells which it is. If it is none of these, it isn't known which call was of which node.

use crate::{Node, Then};

/// A node of a graph, as it was listed before the graph was computed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listed {
    /// The address of the tensor, which its users name it by.
    pub(crate) place: usize,
    pub(crate) node: Node,
    /// More of each of `node.src`.
    pub(crate) sources: Vec<Source>,
    pub(crate) is_computed: bool,
    pub(crate) is_output: bool,
    pub(crate) is_view: bool,
    /// The name of the buffer that the result is in; empty if it has none.
    pub(crate) buffer: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Source {
    pub(crate) place: usize,
    /// From one number to the next.
    pub(crate) element_bytes: usize,
}

/// The nodes that `calls` callbacks came after, in order. `None` if no version of llama.cpp that is known makes so many.
pub(crate) fn executed(nodes: &[Listed], calls: usize) -> Option<Vec<Node>> {
    let plain = |nodes: Vec<&Listed>| nodes.into_iter().map(|listed| listed.node.clone()).collect();
    if nodes.len() == calls {
        return Some(plain(nodes.iter().collect()));
    }
    let computing: Vec<&Listed> = nodes.iter().filter(|listed| !is_empty(listed)).collect();
    if computing.len() == calls {
        return Some(plain(computing));
    }
    let needed: Vec<&Listed> = computing.into_iter().filter(|listed| listed.is_computed).collect();
    if needed.len() == calls {
        return Some(plain(needed));
    }
    Some(fused(nodes)).filter(|nodes| nodes.len() == calls)
}

/// The nodes that are computed where norms are computed with the product that follows.
fn fused(nodes: &[Listed]) -> Vec<Node> {
    let mut run = Vec::new();
    let mut rest = nodes.iter().enumerate();
    while let Some((n, listed)) = rest.next() {
        if is_empty(listed) || !listed.is_computed {
            continue;
        }
        let mut node = listed.node.clone();
        if let Some(product) = nodes.get(n + 1)
            && is_fused(listed, product, nodes)
        {
            let Node { op, out, src, .. } = product.node.clone();
            node.then = Some(Then { op, out, src });
            rest.next();
        }
        run.push(node);
    }
    run
}

fn is_empty(listed: &Listed) -> bool {
    matches!(listed.node.op.as_str(), "NONE" | "RESHAPE" | "TRANSPOSE" | "VIEW" | "PERMUTE")
}

/// As `ggml_cpu_try_fuse_ops` and `ggml_can_fuse` decide.
fn is_fused(norm: &Listed, product: &Listed, nodes: &[Listed]) -> bool {
    let is_pair = norm.node.op == "RMS_NORM" && product.node.op == "MUL";
    if !is_pair || !product.is_computed || norm.is_output || norm.is_view {
        return false;
    }
    let uses =
        |listed: &Listed| listed.sources.iter().filter(|source| source.place == norm.place).count();
    let (Some(read), [_, _, ..]) = (norm.node.src.first(), &product.sources[..]) else {
        return false;
    };
    let other = usize::from(product.sources[0].place == norm.place);
    if uses(product) == 0 || nodes.iter().map(uses).sum::<usize>() != 1 {
        return false;
    }
    let (weights, source) = (&product.node.src[other], product.sources[other]);
    let is_f32 = |kind: &str| kind == "f32";
    norm.node.out.ne == product.node.out.ne
        && is_f32(&read.kind)
        && is_f32(&product.node.out.kind)
        && is_f32(&weights.kind)
        && weights.ne[0] == norm.node.out.ne[0]
        && source.element_bytes == 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    fn tensor(kind: &str) -> Tensor {
        Tensor {
            name: String::new(),
            kind: kind.to_owned(),
            ne: [64, 2, 1, 1],
            bytes: 512,
            numbers: None,
        }
    }

    fn listed(place: usize, op: &str, reads: &[usize]) -> Listed {
        let node = Node {
            op: op.to_owned(),
            out: tensor("f32"),
            src: vec![tensor("f32"); reads.len()],
            then: None,
        };
        let sources = reads.iter().map(|&place| Source { place, element_bytes: 4 }).collect();
        Listed {
            place,
            node,
            sources,
            is_computed: true,
            is_output: false,
            is_view: false,
            buffer: String::new(),
        }
    }

    /// A norm, its product, and what reads that.
    fn norm() -> Vec<Listed> {
        vec![
            listed(1, "RMS_NORM", &[100]),
            listed(2, "MUL", &[1, 101]),
            listed(3, "MUL_MAT", &[102, 2]),
        ]
    }

    #[test]
    fn a_norm_and_its_product_are_one_node() {
        let run = executed(&norm(), 2).expect("a version does so");
        assert_eq!(run[0].op, "RMS_NORM");
        assert_eq!(run[0].then.as_ref().map(|then| then.op.as_str()), Some("MUL"));
        assert_eq!((run[1].op.as_str(), &run[1].then), ("MUL_MAT", &None));
        let apart = executed(&norm(), 3).expect("others don't");
        assert!(apart.iter().all(|node| node.then.is_none()));
    }

    #[test]
    fn the_two_are_computed_apart_where_ggml_needs_the_first_or_has_no_kernel() {
        type Change = (&'static str, fn(&mut Vec<Listed>));
        let changes: [Change; 9] = [
            ("the result of the norm is read by another node", |nodes| {
                nodes[2].sources[0].place = 1;
            }),
            ("the product reads it twice", |nodes| nodes[1].sources[1].place = 1),
            ("the product reads other nodes", |nodes| nodes[1].sources[0].place = 103),
            ("the program asks for it", |nodes| nodes[0].is_output = true),
            ("it is a view", |nodes| nodes[0].is_view = true),
            ("it has another shape", |nodes| nodes[1].node.out.ne[1] = 4),
            ("the weights are narrower", |nodes| nodes[1].node.src[1].ne[0] = 1),
            ("the weights have another type", |nodes| {
                nodes[1].node.src[1].kind = "f16".to_owned();
            }),
            ("the weights have gaps", |nodes| nodes[1].sources[1].element_bytes = 8),
        ];
        for (why, change) in changes {
            let mut nodes = norm();
            change(&mut nodes);
            assert_eq!(executed(&nodes, 2), None, "{why}");
            assert!(executed(&nodes, 3).is_some(), "{why}");
        }
    }

    #[test]
    fn no_number_of_calls_is_a_panic() {
        let mut odd = norm();
        odd[1].sources.clear();
        odd[1].node.src.clear();
        for nodes in [Vec::new(), norm(), odd] {
            for calls in [0, 1, 2, 3, 4, usize::MAX] {
                let run = executed(&nodes, calls);
                assert!(run.is_none_or(|run| run.len() == calls));
            }
        }
    }
}
