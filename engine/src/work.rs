//! The work of each brick: elements that it puts out, FLOPs, and bytes that must move.
//!
//! Bytes are those that a perfect cache couldn't avoid: weights once, activations in and out once.
//! The formulas are those of the table "per-layer bricks" in `docs/models.md`, for `n` tokens each.
//!
//! Nothing here can panic. A pass without a probe doesn't use these results, so the compiler removes their
//! computation; it couldn't remove a check that may panic.

use brickscope::{Data, Work};

use crate::config::Activation;
use crate::weights::Tensor;

/// `W·x` for `n` tokens: a multiplication and an addition for each weight.
pub(crate) fn matmul(w: &Tensor, n: usize) -> Work {
    let (rows, cols, n) = (w.rows as u64, w.cols as u64, n as u64);
    Work {
        elements: n * rows,
        flops: 2 * n * rows * cols,
        bytes: w.n_bytes() + 4 * n * (rows + cols),
        data: Data::Weights(w.n_bytes()),
    }
}

fn activations(elements: u64, flops: u64, bytes: u64) -> Work {
    Work { elements, flops, bytes, data: Data::Activations }
}

/// The work of several operations in one brick. Where some use weights and others the KV cache, the smaller part counts
/// with the larger one: both are used again in the next pass.
pub(crate) fn sum<const N: usize>(parts: [Work; N]) -> Work {
    parts.into_iter().fold(Work::default(), |a, b| Work {
        elements: a.elements + b.elements,
        flops: a.flops + b.flops,
        bytes: a.bytes + b.bytes,
        data: both(a.data, b.data),
    })
}

fn both(a: Data, b: Data) -> Data {
    match (a, b) {
        (Data::Weights(a), Data::Weights(b)) => Data::Weights(a + b),
        (Data::Kv(a), Data::Kv(b)) => Data::Kv(a + b),
        (Data::Weights(weights), Data::Kv(kv)) | (Data::Kv(kv), Data::Weights(weights)) => {
            let once = weights + kv;
            if weights >= kv { Data::Weights(once) } else { Data::Kv(once) }
        }
        // The sum begins with work of which nothing is stated.
        (Data::Activations | Data::Unstated, data) => data,
        (data, Data::Activations | Data::Unstated) => data,
    }
}

/// A row of the table for each token.
pub(crate) fn embed(table: &Tensor, n: usize) -> Work {
    let (dim, n) = (table.cols as u64, n as u64);
    let row_bytes = table.n_bytes().checked_div(table.rows as u64).unwrap_or(0);
    let weights = n * row_bytes;
    let bytes = weights + 4 * n * dim;
    Work { elements: n * dim, flops: 0, bytes, data: Data::Weights(weights) }
}

/// Squares, their sum, the scaling and the weight: four for each element, of rows of `dim`.
pub(crate) fn rms_norm(dim: usize, elements: usize) -> Work {
    let (dim, elements) = (dim as u64, elements as u64);
    let weights = 4 * dim;
    let bytes = 8 * elements + weights;
    Work { elements, flops: 4 * elements, bytes, data: Data::Weights(weights) }
}

/// Six for each pair.
pub(crate) fn rope(q_and_k_dim: usize, n: usize) -> Work {
    let elements = (n * q_and_k_dim) as u64;
    activations(elements, 3 * elements, 8 * elements)
}

/// Copying values to the KV cache, which the CPU does in RoPE's brick. The keys that it copies are
/// `rope`'s output. A device projects both straight into its cache.
pub(crate) fn cache(kv_dim: usize, n: usize) -> Work {
    let written = 4 * (n * kv_dim) as u64;
    Work { elements: 0, flops: 0, bytes: 2 * written, data: Data::Kv(written) }
}

/// The (query head, visible token) pairs of a pass of `n` tokens at `pos`.
pub(crate) fn pairs(n_heads: usize, pos: usize, n: usize) -> usize {
    let visible = n * pos + n * (n + 1) / 2;
    n_heads * visible
}

/// `q·k` for each pair; each cached key is read once.
pub(crate) fn scores(n_heads: usize, head_dim: usize, kv_dim: usize, pos: usize, n: usize) -> Work {
    let pairs = pairs(n_heads, pos, n) as u64;
    let cached = 4 * ((pos + n) * kv_dim) as u64;
    let bytes = cached + 4 * (n * n_heads * head_dim) as u64 + 4 * pairs;
    Work { elements: pairs, flops: 2 * pairs * head_dim as u64, bytes, data: Data::Kv(cached) }
}

/// Maximum, difference, exponential, sum and quotient: five for each pair.
pub(crate) fn softmax(n_heads: usize, pos: usize, n: usize) -> Work {
    let pairs = pairs(n_heads, pos, n) as u64;
    activations(pairs, 5 * pairs, 8 * pairs)
}

/// The values weighted by the scores: as many operations and bytes as the scores.
pub(crate) fn weighted_sum(
    n_heads: usize,
    head_dim: usize,
    kv_dim: usize,
    pos: usize,
    n: usize,
) -> Work {
    let elements = (n * n_heads * head_dim) as u64;
    Work { elements, ..scores(n_heads, head_dim, kv_dim, pos, n) }
}

/// `silu(gate)·up`: about ten for each element.
pub(crate) fn silu_mul(ffn_dim: usize, n: usize) -> Work {
    let elements = (n * ffn_dim) as u64;
    activations(elements, 10 * elements, 12 * elements)
}

/// `max(gate, 0)²·up`: a maximum and two products for each element.
pub(crate) fn relu_squared_mul(ffn_dim: usize, n: usize) -> Work {
    let elements = (n * ffn_dim) as u64;
    activations(elements, 3 * elements, 12 * elements)
}

/// The function of the gate.
pub(crate) fn activation(activation: Activation, ffn_dim: usize, n: usize) -> Work {
    match activation {
        Activation::Silu => silu_mul(ffn_dim, n),
        Activation::ReluSquared => relu_squared_mul(ffn_dim, n),
    }
}

/// `x += y`.
pub(crate) fn add(dim: usize, n: usize) -> Work {
    let elements = (n * dim) as u64;
    activations(elements, elements, 12 * elements)
}

/// `x *= factor`.
pub(crate) fn scale(elements: usize) -> Work {
    let elements = elements as u64;
    activations(elements, elements, 8 * elements)
}

/// Looks at each logit once.
pub(crate) fn sample(n_vocab: usize) -> Work {
    activations(1, 0, 4 * n_vocab as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_sees_itself_and_all_before_it() {
        // At position 3, four tokens see 4 + 5 + 6 + 7.
        assert_eq!(pairs(1, 3, 4), 22);
        assert_eq!(pairs(12, 0, 1), 12);
    }

    #[test]
    fn the_parts_of_attention_agree_with_the_closed_form() {
        // 2·n·heads·head_dim·c̄ each, with c̄ the mean number of visible tokens.
        let work = scores(4, 64, 128, 10, 1);
        assert_eq!(work.flops, 2 * 4 * 64 * 11);
        assert_eq!(work.bytes, 4 * (11 * 128 + 256) + 4 * 44);
        assert_eq!(weighted_sum(4, 64, 128, 10, 1).elements, 256);
    }
}
