//! Dot products of `f32` rows: the inner loop of [`gemm`](crate::gemm) and of attention's scores.

/// The reference.
pub mod scalar {
    /// `Σ a[i] * b[i]`, added from first to last.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn dot(a: &[f32], b: &[f32]) -> f32 {
        assert!(a.len() == b.len(), "dot: {} and {} elements", a.len(), b.len());
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }
}

/// Eight products at a time, for several rows at once.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod eight_lanes {
    use crate::lanes::{load, mul_add, sum, sum4, zero};

    /// The dot products of `R` rows with `N` others, all of one length.
    ///
    /// Each result has the same bits whatever `R` and `N` are, so it doesn't depend on how the work is cut into tiles
    /// and divided among threads.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    pub(crate) fn tile<const R: usize, const N: usize>(
        rows: [&[f32]; R],
        others: [&[f32]; N],
    ) -> [[f32; N]; R] {
        let len = rows[0].len();
        let steps = len / 8;
        // Cut to one length that the compiler can see, or each load would be bounds-checked.
        let mut r8: [&[[f32; 8]]; R] = [&[]; R];
        for (r8, row) in r8.iter_mut().zip(rows) {
            *r8 = &row[..len].as_chunks::<8>().0[..steps];
        }
        let mut o8: [&[[f32; 8]]; N] = [&[]; N];
        for (o8, other) in o8.iter_mut().zip(others) {
            *o8 = &other[..len].as_chunks::<8>().0[..steps];
        }

        let mut acc = [[zero(); N]; R];
        for k in 0..steps {
            let mut o = [zero(); N];
            for i in 0..N {
                o[i] = load(&o8[i][k]);
            }
            for r in 0..R {
                let row = load(&r8[r][k]);
                for i in 0..N {
                    acc[r][i] = mul_add(row, o[i], acc[r][i]);
                }
            }
        }

        let mut out = [[0.0; N]; R];
        for i in 0..N {
            if R == 4 {
                let sums = sum4([acc[0][i], acc[1 % R][i], acc[2 % R][i], acc[3 % R][i]]);
                for r in 0..R {
                    out[r][i] = sums[r];
                }
            } else {
                for r in 0..R {
                    out[r][i] = sum(acc[r][i]);
                }
            }
        }
        if len > 8 * steps {
            for r in 0..R {
                for i in 0..N {
                    out[r][i] +=
                        super::scalar::dot(&rows[r][8 * steps..], &others[i][8 * steps..len]);
                }
            }
        }
        out
    }
}
