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

    /// `out = X·Wᵀ` for `n` tokens: `x` is `(n, w.cols())` and `out` is `(n, w.rows())`, both row-major. One token is
    /// a [`gemv`](Self::gemv). Its result may differ in the last bits from the same token's among others.
    ///
    /// # Panics
    ///
    /// If a length differs.
    pub fn gemm(self, out: &mut [f32], w: Matrix, x: &[f32], n: usize) {
        if n == 1 {
            return self.gemv(out, w, x);
        }
        let mut out = Columns::new(out, n, w.rows());
        gemm::check_tokens(&w, x.len(), n);
        self.gemm_columns(&mut out, w, Inputs::new(x, n).tokens(self, None, w.kind()), n);
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
