//! How far apart two kernels may be that compute the same value from the same inputs.
//!
//! Both sides add the same products in another order, so each is off the true sum by rounding. With
//! the unit roundoff `u = 2⁻²⁴`, a sum of `n` products is off by at most `n·u·Σ|w·x|`, and with
//! rounding errors that are independent and of mean zero by `λ·√n·u·Σ|w·x|`, for a small `λ`
//! (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci.
//! Comput. 41, 2019). `Σ|w·x|` is at most `‖w‖·‖x‖` (Cauchy and Schwarz), which takes one number for
//! each row of a matrix and one for each token. So
//!
//! ```text
//! tolerance of out[t][r] = factor · √n · u · ‖w_r‖ · ‖x_t‖
//! ```
//!
//! Where terms don't cancel (norms, exponentials, softmax), it is relative to the result itself. The
//! factors are measured: the largest difference seen between scalar and AVX2, times [`MARGIN`].
//! `docs/evidence/diverge.md` has the figures and how to measure them again.

use brickscope_kernels::{QuantType, RopePairs};

use crate::model::Model;
use crate::value::{At, Operation};
use crate::weights::Tensor;

/// The unit roundoff of `f32`.
const U: f32 = f32::EPSILON / 2.0;

/// Bounds for the values of one model.
pub(super) struct Bounds<'m> {
    model: &'m Model,
    /// Whether both sides run the same kernels. Then every bit has to be equal, on any number of
    /// threads.
    is_exact: bool,
    /// By index.
    matrices: Vec<Option<MatrixRows<'m>>>,
}

/// A matrix with `‖w_r‖` of each of its rows, once computed.
struct MatrixRows<'m> {
    w: &'m Tensor,
    norms: Option<Vec<f32>>,
}

impl<'m> Bounds<'m> {
    pub(super) fn new(model: &'m Model, is_exact: bool) -> Self {
        let mut matrices = Vec::new();
        for tensor in model.weights.matrices() {
            if tensor.index >= matrices.len() {
                matrices.resize_with(tensor.index + 1, || None);
            }
            matrices[tensor.index] = Some(MatrixRows { w: tensor, norms: None });
        }
        Self { model, is_exact, matrices }
    }

    pub(super) fn model(&self) -> &'m Model {
        self.model
    }

    /// `a`'s matrix at this index.
    pub(super) fn matrix(&self, index: usize) -> Option<&'m Tensor> {
        Some(self.matrices.get(index)?.as_ref()?.w)
    }

    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Whether the tolerance is 0.
    pub(super) fn wants_equal(&self, operation: &Operation<'_>) -> bool {
        self.is_exact || matches!(operation, Operation::Exact)
    }

    /// The tolerance of each element of `a`; infinite for those without meaning, and only for those.
    /// If the inputs or the result give no finite one, it is NaN, which allows nothing: an infinity
    /// in a weight must not excuse its effects.
    pub(super) fn fill(&mut self, at: &At<'_>, a: &[f32], out: &mut Vec<f32>) {
        out.clear();
        out.resize(a.len(), 0.0);
        let c = &self.model.config;
        let context = at.position + at.n_tokens;
        let visible = |row: usize| at.position + row / c.n_heads + 1;
        if !self.is_exact {
            match at.operation {
                Operation::Exact => {}
                Operation::Matmul { w, x } => self.matmul(w, x, out),
                Operation::RmsNorm { width } => {
                    relative(RMS_NORM * root(width) * U, 0.0, a, out);
                }
                Operation::Rope => {
                    let pairs = c.architecture.rope_pairs();
                    let heads = a.chunks_exact(c.head_dim).zip(out.chunks_exact_mut(c.head_dim));
                    heads.for_each(|(a, out)| rope(&a[..c.n_rot], pairs, out));
                }
                Operation::Scores { q, keys } => {
                    let norms = |rows: &[f32]| -> Vec<f32> {
                        rows.chunks_exact(c.head_dim).map(norm).collect()
                    };
                    let (q, keys) = (norms(q), norms(keys));
                    let per_kv = c.n_heads / c.n_kv_heads;
                    // √head_dim from the sum and 1/√head_dim from the scale make one.
                    let factor = SCORES * U;
                    for (row, out) in out.chunks_exact_mut(context).enumerate() {
                        let head = row % c.n_heads / per_kv;
                        for (t, out) in out[..visible(row)].iter_mut().enumerate() {
                            *out = factor * q[row] * keys[t * c.n_kv_heads + head];
                        }
                    }
                }
                Operation::Softmax => {
                    let rows = a.chunks_exact(context).zip(out.chunks_exact_mut(context));
                    for (row, (a, out)) in rows.enumerate() {
                        let n = visible(row);
                        // Below the smallest normal number, one side may give 0.
                        let floor = f32::MIN_POSITIVE;
                        relative(SOFTMAX * root(n) * U, floor, &a[..n], &mut out[..n]);
                    }
                }
                Operation::WeightedSum { p, values } => {
                    let (head, kv_dim) = (c.head_dim, c.kv_dim());
                    let per_kv = c.n_heads / c.n_kv_heads;
                    for (row, out) in out.chunks_exact_mut(head).enumerate() {
                        let n = visible(row);
                        let first = row % c.n_heads / per_kv * head;
                        for (t, &p) in p[row * context..][..n].iter().enumerate() {
                            let values = &values[t * kv_dim + first..][..head];
                            out.iter_mut().zip(values).for_each(|(out, v)| *out += p * v.abs());
                        }
                        let factor = WEIGHTED_SUM * root(n) * U;
                        out.iter_mut().for_each(|out| *out *= factor);
                    }
                }
                Operation::SiluMul { up } => {
                    for ((out, a), up) in out.iter_mut().zip(a).zip(up) {
                        // Where `exp` overflows on one side, the other still computes
                        // 88.4·exp(-88.4) of `up`.
                        *out = SILU_MUL * U * a.abs() + 4e-37 * up.abs();
                    }
                }
                // Two products, each of which rounds once. Below the smallest normal number a rounding is off by
                // more than its share.
                Operation::ReluSquaredMul => relative(4.0 * U, f32::MIN_POSITIVE, a, out),
            }
        }
        out.iter_mut().filter(|out| !out.is_finite()).for_each(|out| *out = f32::NAN);
        if matches!(at.operation, Operation::Scores { .. } | Operation::Softmax) {
            for (row, out) in out.chunks_exact_mut(context).enumerate() {
                out[visible(row)..].fill(f32::INFINITY);
            }
        }
    }

    fn matmul(&mut self, w: &Tensor, x: &[f32], out: &mut [f32]) {
        let model = self.model;
        let Some(of_a) = self.matrices.get_mut(w.index).and_then(Option::as_mut) else {
            return;
        };
        let rows = of_a.norms.get_or_insert_with(|| row_norms(of_a.w, model));
        let factor = matmul_factor(of_a.w.kind).max(matmul_factor(w.kind));
        for (x, out) in x.chunks_exact(w.cols).zip(out.chunks_exact_mut(w.rows)) {
            let scale = factor * root(w.cols) * U * norm(x);
            out.iter_mut().zip(rows.iter()).for_each(|(out, row)| *out = scale * row);
        }
    }
}

/// `‖w_r‖` of each row.
fn row_norms(w: &Tensor, model: &Model) -> Vec<f32> {
    let matrix = w.matrix(&model.gguf);
    let mut row = vec![0.0; w.cols];
    (0..w.rows)
        .map(|r| {
            matrix.dequantize_row(r, &mut row);
            norm(&row)
        })
        .collect()
}

fn norm(x: &[f32]) -> f32 {
    let square = |x: &f32| f64::from(*x) * f64::from(*x);
    // Several sums, since each addition waits for the one before.
    let (chunks, rest) = x.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += square(x));
    }
    let all = sums.iter().sum::<f64>() + rest.iter().map(square).sum::<f64>();
    all.sqrt() as f32
}

fn root(n: usize) -> f32 {
    (n as f32).sqrt()
}

/// `factor · |a| + floor`.
fn relative(factor: f32, floor: f32, a: &[f32], out: &mut [f32]) {
    out.iter_mut().zip(a).for_each(|(out, a)| *out = factor * a.abs() + floor);
}

/// Both elements of a pair are sums of two products and at most the length of the pair, which a
/// rotation doesn't change. Elements that aren't rotated must be equal.
fn rope(a: &[f32], pairs: RopePairs, out: &mut [f32]) {
    let half = a.len() / 2;
    for i in 0..half {
        let (first, second) = match pairs {
            RopePairs::Norm => (2 * i, 2 * i + 1),
            RopePairs::Neox => (i, i + half),
        };
        let tolerance = ROPE * U * a[first].hypot(a[second]);
        (out[first], out[second]) = (tolerance, tolerance);
    }
}

/// A tolerance is this many times the largest measured difference. That was measured on tiny models with random
/// weights; sums whose terms have mostly one sign round worse.
const MARGIN: f32 = 8.0;

// Measured, in the units of the formulas above: see `docs/evidence/diverge.md`.
const RMS_NORM: f32 = MARGIN * 0.37;
const ROPE: f32 = MARGIN * 2.0;
const SCORES: f32 = MARGIN * 0.41;
const SOFTMAX: f32 = MARGIN * 3.0;
const WEIGHTED_SUM: f32 = MARGIN * 2.3;
const SILU_MUL: f32 = MARGIN * 5.4;

/// The factor for a matrix product, by how its weights are stored.
fn matmul_factor(kind: QuantType) -> f32 {
    let measured = match kind {
        QuantType::F32 => 0.28,
        QuantType::F16 => 0.29,
        QuantType::BF16 => 0.27,
        QuantType::Q4_0 => 0.26,
        QuantType::Q4_1 => 0.26,
        QuantType::Q5_0 => 0.26,
        QuantType::Q5_1 => 0.26,
        QuantType::Q8_0 => 0.25,
        QuantType::Q4_K => 0.26,
        QuantType::Q5_K => 0.26,
        QuantType::Q6_K => 0.29,
        QuantType::TQ1_0 => 0.23,
        QuantType::TQ2_0 => 0.23,
        QuantType::I2_S => 0.21,
    };
    MARGIN * measured
}

#[cfg(test)]
mod tests {
    use brickscope_kernels::quant::quantize_row;
    use brickscope_kernels::{Backend, Kernels, Matrix};

    use super::*;

    /// The largest difference between scalar and the fastest kernels, in tolerances, of a matrix of
    /// `n` columns; weights and activations are made by `number`, from random ones in 0 to 1.
    fn most(n: usize, number: impl Fn(f32) -> f32) -> f32 {
        const ROWS: usize = 256;
        // Xorshift64 (Marsaglia, 2003).
        let mut state = n as u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            number((state >> 40) as f32 / (1 << 24) as f32)
        };
        let weights: Vec<f32> = (0..ROWS * n).map(|_| random()).collect();
        let x: Vec<f32> = (0..n).map(|_| random()).collect();
        let mut bytes = Vec::new();
        quantize_row(QuantType::F32, &weights, &mut bytes);
        let w = Matrix::new(QuantType::F32, ROWS, n, &bytes).unwrap();
        let run = |kernels: Kernels| {
            let mut out = [0.0; ROWS];
            kernels.gemv(&mut out, w, &x);
            out
        };
        let (a, b) = (run(Kernels::new(Backend::Scalar).unwrap()), run(Kernels::best()));
        let factor = matmul_factor(QuantType::F32) * root(n) * U * norm(&x);
        let rows = a.iter().zip(&b).zip(weights.chunks_exact(n));
        rows.map(|((a, b), w)| (a - b).abs() / (factor * norm(w))).fold(0.0, f32::max)
    }

    /// The tolerances were measured on weights of both signs. Sums of one sign round worst.
    #[test]
    fn sums_of_one_sign_are_within_the_tolerance() {
        for n in [32, 256, 2048, 16384] {
            let (signed, positive) = (most(n, |x| x - 0.5), most(n, |x| x + 0.5));
            println!("{n:5} columns: {signed:.3} of both signs, {positive:.3} of one");
            assert!(signed < 0.25 && positive < 1.0, "{n} columns: {signed}, {positive}");
        }
    }

    #[test]
    fn a_rotation_is_held_to_the_length_of_its_pair() {
        let mut out = [0.0; 6];
        rope(&[3.0, 0.0, 4.0, 0.0], RopePairs::Neox, &mut out);
        // What isn't rotated, after the first four, is to be equal.
        assert_eq!(out, [5.0, 0.0, 5.0, 0.0, 0.0, 0.0].map(|x: f32| ROPE * U * x));
        rope(&[3.0, 4.0, 0.0, 1.0], RopePairs::Norm, &mut out);
        assert_eq!(out[..4], [5.0, 5.0, 1.0, 1.0].map(|x: f32| ROPE * U * x));
    }
}
