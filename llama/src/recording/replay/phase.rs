//! Which phase a pass is of, by its nodes and its tokens.

use brickscope::{BrickId, Phase};

use crate::Node;
use crate::bricks::{self, Brick};

/// More tokens than this of which each has an output are taken for a prompt, where sequences aren't known.
const MOST_OUTPUTS: u64 = 32;

/// The tokens that a graph looks up.
pub(crate) fn tokens_of(nodes: &[Node]) -> u64 {
    nodes.iter().map(Node::looked_up).fold(0, u64::saturating_add)
}

/// Whether a graph attends to nothing but its own tokens: it has attention, and writes to no cache.
pub(crate) fn keeps_nothing<'n>(nodes: impl Iterator<Item = &'n Node> + Clone) -> bool {
    let reads = |node: &Node| node.src.iter().any(|src| src.name.starts_with("cache_"));
    // A router has a softmax, too, without a mask.
    let is_attention = |node: &Node| match &*node.op {
        "SOFT_MAX" => node.src.len() > 1 || node.out.name.starts_with("kq"),
        op => op == "FLASH_ATTN_EXT",
    };
    nodes.clone().any(is_attention)
        && !nodes.clone().any(|node| reads(node) || node.out.name.starts_with("cache_"))
}

/// Tokens whose logits are computed.
pub(crate) fn output_rows(node: &Node) -> u64 {
    let is_head = bricks::describe(node).brick == Brick::Known(BrickId::LmHead);
    if is_head { node.out.ne[1] } else { 0 }
}

/// A pass that adds one token to each of its sequences decodes them. So does one that computes the logits of each of its
/// tokens after others that were there, to check what a draft model chose, or of sequences that aren't known. Others read a
/// prompt.
pub(crate) fn phase_of(tokens: u64, outputs: u64, sequences: &[[u32; 2]]) -> Phase {
    let is_one_each = sequences.len() as u64 == tokens
        && sequences.iter().all(|[before, after]| after.checked_sub(*before) == Some(1));
    let goes_on = sequences.iter().all(|[before, _]| *before > 0);
    if tokens == 1 || is_one_each || tokens == outputs && tokens <= MOST_OUTPUTS && goes_on {
        Phase::Decode
    } else {
        Phase::Prefill
    }
}
