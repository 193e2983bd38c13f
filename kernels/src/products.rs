//! Products of weights with tokens: one or several, on one thread or on all of a pool.

use std::ops::Range;

use crate::columns::Columns;
use crate::{Inputs, Kernels, Matrix, ThreadPool, TileWatch, gemm, gemv, matmul};

/// # Products
impl Kernels {
    /// `out = W·x`: `x` has `w.cols()` elements and `out` has `w.rows()`.
    ///
    /// # Panics
    ///
    /// If a length differs.
    pub fn gemv(self, out: &mut [f32], w: Matrix, x: &[f32]) {
        self.gemv_rows(out, w, 0..w.rows(), x);
    }

    /// `out = W[rows]·x`: some rows of [`gemv`](Self::gemv), with the same bits. `out` has `rows.len()` elements.
    ///
    /// # Panics
    ///
    /// If a length differs, or `w` doesn't have these rows.
    pub fn gemv_rows(self, out: &mut [f32], w: Matrix, rows: Range<usize>, x: &[f32]) {
        gemv::check(out.len(), &w, &rows, x.len());
        self.gemv_vector(out, w, rows, Inputs::new(x, 1).vector(self, &w));
    }

    /// [`gemv`](Self::gemv) of inputs that are multiplied with other matrices, too: what the kernels prepare from them is
    /// prepared once. The result has the same bits.
    ///
    /// # Panics
    ///
    /// If a length differs, or these are several tokens.
    pub fn gemv_inputs(self, out: &mut [f32], w: Matrix, x: &mut Inputs<'_>) {
        assert!(x.n() == 1, "gemv: one token is needed, and these are {}", x.n());
        let rows = 0..w.rows();
        gemv::check(out.len(), &w, &rows, x.x().len());
        self.gemv_vector(out, w, rows, x.vector(self, &w));
    }

    /// `out = X·Wᵀ` for `n` tokens: `x` is `(n, w.cols())` and `out` is `(n, w.rows())`, both row-major. One token is
    /// a [`gemv`](Self::gemv). Its result may differ in the last bits from the same token's among others.
    ///
    /// # Panics
    ///
    /// If a length differs.
    pub fn gemm(self, out: &mut [f32], w: Matrix, x: &[f32], n: usize) {
        self.gemm_inputs(out, w, &mut Inputs::new(x, n));
    }

    /// [`gemm`](Self::gemm) of inputs that are multiplied with other matrices, too: what the kernels prepare from them is
    /// prepared once. The result has the same bits.
    ///
    /// # Panics
    ///
    /// If a length differs.
    pub fn gemm_inputs(self, out: &mut [f32], w: Matrix, x: &mut Inputs<'_>) {
        let n = x.n();
        if n == 1 {
            return self.gemv_inputs(out, w, x);
        }
        let mut out = Columns::new(out, n, w.rows());
        gemm::check_tokens(&w, x.x().len(), n);
        self.gemm_columns(&mut out, w, x.tokens(self, None, w.kind()), n);
    }

    /// [`gemm`](Self::gemm) on all threads of `pool`. The result has the same bits on any number of threads.
    ///
    /// # Panics
    ///
    /// If a length differs, or if called from inside [`ThreadPool::run`] of the same pool.
    pub fn matmul(self, pool: &ThreadPool, out: &mut [f32], w: Matrix, x: &[f32], n: usize) {
        self.matmul_inputs(pool, out, w, &mut Inputs::new(x, n), None);
    }

    /// [`matmul`](Self::matmul) of inputs that are multiplied with other matrices, too: what the kernels prepare from
    /// them is prepared once. The result has the same bits.
    ///
    /// If `tiles` is given, it is told of the tiles of products of several tokens. Otherwise no clock is read.
    ///
    /// # Panics
    ///
    /// Like [`matmul`](Self::matmul).
    pub fn matmul_inputs(
        self,
        pool: &ThreadPool,
        out: &mut [f32],
        w: Matrix,
        x: &mut Inputs<'_>,
        tiles: Option<&dyn TileWatch>,
    ) {
        matmul::matmul(self, pool, out, w, x, tiles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, QuantType, quant};

    #[test]
    fn shared_inputs_give_the_same_bits() {
        let (rows, cols) = (5, 64);
        let weights: Vec<f32> = (0..rows * cols).map(|i| (i % 13) as f32 - 6.0).collect();
        let x: Vec<f32> = (0..cols).map(|i| (i % 7) as f32 - 3.0).collect();
        for kind in [QuantType::F32, QuantType::Q8_0] {
            let mut bytes = Vec::new();
            quant::quantize_row(kind, &weights, &mut bytes);
            let w = Matrix::new(kind, rows, cols, &bytes).expect("whole blocks");
            for kernels in Backend::ALL.into_iter().filter_map(|of| Kernels::new(of).ok()) {
                let mut expected = vec![0.0; rows];
                kernels.gemv(&mut expected, w, &x);
                let mut inputs = Inputs::new(&x, 1);
                for _ in 0..2 {
                    let mut out = vec![0.0; rows];
                    kernels.gemv_inputs(&mut out, w, &mut inputs);
                    assert_eq!(out, expected, "{kind} on {}", kernels.backend());
                }
                let tokens = x.repeat(3);
                let mut expected = vec![0.0; 3 * rows];
                kernels.gemm(&mut expected, w, &tokens, 3);
                let mut inputs = Inputs::new(&tokens, 3);
                for _ in 0..2 {
                    let mut out = vec![0.0; 3 * rows];
                    kernels.gemm_inputs(&mut out, w, &mut inputs);
                    assert_eq!(out, expected, "{kind} on {}", kernels.backend());
                }
            }
        }
    }
}
