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
