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

impl Node {
    /// The tokens that it looks up in the model's table; 0 if it does something else.
    #[must_use]
    pub fn looked_up(&self) -> u64 {
        let table = self.src.first().map(|src| original(&src.name));
        if self.op == "GET_ROWS" && table == Some("token_embd.weight") { self.out.ne[1] } else { 0 }
    }
}

/// `blk.3.attn_q.weight` of `CUDA0#blk.3.attn_q.weight#0`, as a tensor is named that ggml's scheduler copies to another
/// backend.
pub(crate) fn original(name: &str) -> &str {
    let copied = name.split_once('#').and_then(|(_, rest)| rest.rsplit_once('#'));
    let copied = copied.filter(|(_, copy)| copy.bytes().all(|c| c.is_ascii_digit()));
    copied.map_or(name, |(original, _)| original)
}

impl Tensor {
    /// How many numbers it has; at most 2⁶⁴ − 1.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.ne.iter().fold(1, |product, n| product.saturating_mul(*n))
    }

    /// The bytes of its numbers. A view of some rows of a cache spans more, from the first to the last.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.bytes_of(self.elements()).map_or(self.bytes, |used| used.min(self.bytes))
    }

    /// The bytes of this many numbers of its type; `None` if the type isn't known.
    pub(crate) fn bytes_of(&self, numbers: u64) -> Option<u64> {
        let (numbers_of, bytes) = block(&self.kind)?;
        let all = u128::from(numbers) * u128::from(bytes) / u128::from(numbers_of);
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// How many numbers of a type are stored together, and in how many bytes.
fn block(kind: &str) -> Option<(u64, u64)> {
    Some(match kind.to_ascii_lowercase().as_str() {
        "i8" => (1, 1),
        "f16" | "bf16" | "i16" => (1, 2),
        "f32" | "i32" => (1, 4),
        "f64" | "i64" => (1, 8),
        "mxfp4" => (32, 17),
        "q4_0" | "iq4_nl" => (32, 18),
        "q4_1" => (32, 20),
        "q5_0" => (32, 22),
        "q5_1" => (32, 24),
        "q8_0" => (32, 34),
        "q8_1" => (32, 36),
        "nvfp4" => (64, 36),
        "iq1_s" => (256, 50),
        "tq1_0" => (256, 54),
        "iq1_m" => (256, 56),
        "iq2_xxs" | "tq2_0" => (256, 66),
        "iq2_xs" => (256, 74),
        "iq2_s" => (256, 82),
        "q2_k" => (256, 84),
        "iq3_xxs" => (256, 98),
        "q3_k" | "iq3_s" => (256, 110),
        "iq4_xs" => (256, 136),
        "q4_k" => (256, 144),
        "q5_k" => (256, 176),
        "q6_k" => (256, 210),
        "q8_k" => (256, 292),
        _ => return None,
    })
}
