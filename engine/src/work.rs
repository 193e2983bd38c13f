//! The work of each brick: elements that it puts out, FLOPs, and bytes that must move.
//!
//! Bytes are those that a perfect cache couldn't avoid: weights once, activations in and out once.
//! The formulas are those of the table "per-layer bricks" in `docs/work.md`, for `n` tokens each.
//!
//! Nothing here can panic. A pass without a probe doesn't use these results, so the compiler removes their
//! computation; it couldn't remove a check that may panic.

use brickscope::Work;

use crate::weights::Tensor;

/// `W·x` for `n` tokens: a multiplication and an addition for each weight.
pub(crate) fn matmul(w: &Tensor, n: usize) -> Work {
    let (rows, cols, n) = (w.rows as u64, w.cols as u64, n as u64);
    Work {
        elements: n * rows,
        flops: 2 * n * rows * cols,
        bytes: w.n_bytes() + 4 * n * (rows + cols),
    }
}

/// The work of several operations in one brick.
pub(crate) fn sum<const N: usize>(parts: [Work; N]) -> Work {
    parts.into_iter().fold(Work::default(), |a, b| Work {
        elements: a.elements + b.elements,
        flops: a.flops + b.flops,
        bytes: a.bytes + b.bytes,
    })
}

/// A row of the table for each token.
pub(crate) fn embed(table: &Tensor, n: usize) -> Work {
    let (dim, n) = (table.cols as u64, n as u64);
    let row_bytes = table.n_bytes().checked_div(table.rows as u64).unwrap_or(0);
    Work { elements: n * dim, flops: 0, bytes: n * (row_bytes + 4 * dim) }
}

/// Squares, their sum, the scaling and the weight: four for each element, of rows of `dim`.
pub(crate) fn rms_norm(dim: usize, elements: usize) -> Work {
    let (dim, elements) = (dim as u64, elements as u64);
    Work { elements, flops: 4 * elements, bytes: 4 * (2 * elements + dim) }
}

/// Six for each pair.
pub(crate) fn rope(q_and_k_dim: usize, n: usize) -> Work {
    let elements = (n * q_and_k_dim) as u64;
    Work { elements, flops: 3 * elements, bytes: 8 * elements }
}

/// Copying values to the KV cache, which the CPU does in RoPE's brick. The keys that it copies are
/// `rope`'s output. A device projects both straight into its cache.
pub(crate) fn cache(kv_dim: usize, n: usize) -> Work {
    Work { elements: 0, flops: 0, bytes: 8 * (n * kv_dim) as u64 }
}

/// The (query head, visible token) pairs of a pass of `n` tokens at `pos`.
pub(crate) fn pairs(n_heads: usize, pos: usize, n: usize) -> usize {
    let visible = n * pos + n * (n + 1) / 2;
    n_heads * visible
}

/// `q·k` for each pair; each cached key is read once.
pub(crate) fn scores(n_heads: usize, head_dim: usize, kv_dim: usize, pos: usize, n: usize) -> Work {
    let pairs = pairs(n_heads, pos, n) as u64;
    let bytes = 4 * ((pos + n) * kv_dim + n * n_heads * head_dim) as u64 + 4 * pairs;
    Work { elements: pairs, flops: 2 * pairs * head_dim as u64, bytes }
}

/// Maximum, difference, exponential, sum and quotient: five for each pair.
pub(crate) fn softmax(n_heads: usize, pos: usize, n: usize) -> Work {
    let pairs = pairs(n_heads, pos, n) as u64;
    Work { elements: pairs, flops: 5 * pairs, bytes: 8 * pairs }
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
    Work { elements, flops: 10 * elements, bytes: 12 * elements }
}

/// `x += y`.
pub(crate) fn add(dim: usize, n: usize) -> Work {
    let elements = (n * dim) as u64;
    Work { elements, flops: elements, bytes: 12 * elements }
}

/// Looks at each logit once.
pub(crate) fn sample(n_vocab: usize) -> Work {
    Work { elements: 1, flops: 0, bytes: 4 * n_vocab as u64 }
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
