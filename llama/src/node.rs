//! Nodes and tensors of ggml's graphs as plain data.

use serde::Deserialize;

/// An operation of a graph.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Node {
    /// What it computes, as `ggml_op_desc` says it: `MUL_MAT`; of a unary operation, which: `SILU`.
    pub op: String,
    /// Its result.
    #[serde(flatten)]
    pub out: Tensor,
    /// What it reads.
    #[serde(default)]
    pub src: Vec<Tensor>,
    /// The operation that was computed together with it, which reads its result.
    #[serde(default)]
    pub then: Option<Then>,
}

/// The second operation of two that were computed as one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Then {
    /// What it computes, as in [`Node`].
    pub op: String,
    /// Its result.
    #[serde(flatten)]
    pub out: Tensor,
    /// What it reads, the result of the first one included.
    #[serde(default)]
    pub src: Vec<Tensor>,
}

/// A tensor: its name, the type of its numbers, its shape (ggml's order: the contiguous dimension first), and its bytes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Tensor {
    /// ggml's name of it, such as `blk.3.attn_q.weight` or `Qcur-3`.
    pub name: String,
    /// The type of its numbers, as `ggml_type_name` says it: `q4_K`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Elements in each dimension; 1 in those that it doesn't have.
    pub ne: [u64; 4],
    /// The bytes that it spans, as `ggml_nbytes` says it.
    pub bytes: u64,
    /// What tells the numbers of a weight without a name from others', as [`whisper::numbers`](crate::whisper::numbers) has
    /// it.
    #[serde(default)]
    pub numbers: Option<u64>,
}

impl Tensor {
    /// How many numbers it has; at most 2⁶⁴ − 1.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.ne.iter().fold(1, |product, n| product.saturating_mul(*n))
    }
}
