//! Activations that several matrices are multiplied with.
//!
//! Integer kernels multiply activations rounded to 8 bits, in the order in which the codes of a weight type come out
//! of its blocks. The projections of one layer share their input, so it is rounded once for all of them, by the first
//! product that needs it. Weights of a type with other blocks or another order need a rounding of their own. So do
//! interleaved rows, and the kernels that put the floats of several tokens side by side.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use crate::gemm::Tokens;
use crate::gemv::Vector;
use crate::{Kernels, Matrix, QuantType, ThreadPool};
#[cfg(target_arch = "x86_64")]
use crate::{gemm, gemm::TILE_TOKENS, gemv};

/// Activations of `n` tokens, and what kernels have prepared from them so far.
///
/// ```
/// use std::num::NonZeroUsize;
/// use brickscope_kernels::{Inputs, Kernels, Matrix, QuantType, ThreadPool, quant};
///
/// let mut bytes = Vec::new();
/// quant::quantize_row(QuantType::Q8_0, &[0.5; 2 * 32], &mut bytes);
/// let w = Matrix::new(QuantType::Q8_0, 2, 32, &bytes)?;
/// let (kernels, pool) = (Kernels::best(), ThreadPool::new(NonZeroUsize::MIN).expect("a thread"));
///
/// let x = [1.0; 32];
/// let mut inputs = Inputs::new(&x, 1);
/// let (mut q, mut k) = ([0.0; 2], [0.0; 2]);
/// kernels.matmul_inputs(&pool, &mut q, w, &mut inputs, None);
/// kernels.matmul_inputs(&pool, &mut k, w, &mut inputs, None); // rounds nothing
/// assert_eq!(q, k);
/// # Ok::<(), brickscope_kernels::MatrixError>(())
/// ```
#[derive(Debug)]
pub struct Inputs<'x> {
    x: &'x [f32],
    n: usize,
    /// The type's [`representative`], whether rows are interleaved (where that matters), and what was prepared.
    prepared: Vec<(QuantType, bool, Prepared)>,
}

/// What kernels multiply in place of the floats.
#[derive(Debug)]
enum Prepared {
    /// One token.
    #[cfg(target_arch = "x86_64")]
    Arranged(gemv::int8::Arranged),
    /// Several tokens; each part has some of them.
    #[cfg(target_arch = "x86_64")]
    Rounded(Vec<gemm::int8::Rounded>),
    /// Several tokens as floats; each part has some of them.
    #[cfg(target_arch = "x86_64")]
    Packed(Vec<gemm::float::Packed>),
}

impl<'x> Inputs<'x> {
    /// `x` is `(n, columns)`, row-major: one row for each token.
    #[must_use]
    pub fn new(x: &'x [f32], n: usize) -> Self {
        Self { x, n, prepared: Vec::new() }
    }

    /// The activations as floats.
    #[must_use]
    pub fn x(&self) -> &'x [f32] {
        self.x
    }

    /// The number of tokens.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// How often the activations were rounded: once for each kind of block and, for a single token, for each layout.
    #[must_use]
    pub fn roundings(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        let are_rounded = |prepared: &Prepared| !matches!(prepared, Prepared::Packed(_));
        #[cfg(not(target_arch = "x86_64"))]
        let are_rounded = |_: &Prepared| true;
        self.prepared.iter().filter(|(.., prepared)| are_rounded(prepared)).count()
    }

    /// The only token, as [`Kernels::gemv_vector`] needs it for weights of this type and layout.
    pub(crate) fn vector(&mut self, kernels: Kernels, w: &Matrix<'_>) -> Vector<'_> {
        let (kind, is_interleaved) = (w.kind(), w.is_interleaved());
        debug_assert_eq!(self.n, 1);
        #[cfg(target_arch = "x86_64")]
        if kernels.rounds_activations(kind, 1) && !self.x.is_empty() {
            let x = self.x;
            let prepared = self.prepared(kind, is_interleaved, || {
                Prepared::Arranged(kernels.arranged(kind, is_interleaved, x))
            });
            let Prepared::Arranged(x) = prepared else {
                unreachable!("a single token isn't split")
            };
            return Vector::Arranged(x);
        }
        let _ = (kernels, kind, is_interleaved);
        Vector::Floats(self.x)
    }

    /// The tokens, as [`Kernels::gemm_columns`] needs them for weights of this type. If they must be prepared and are
    /// many, the threads of `pool` share that, as a job of its own.
    pub(crate) fn tokens(
        &mut self,
        kernels: Kernels,
        pool: Option<&ThreadPool>,
        kind: QuantType,
    ) -> Tokens<'_> {
        #[cfg(target_arch = "x86_64")]
        if kernels.rounds_activations(kind, self.n) && !self.x.is_empty() {
            let (x, n) = (self.x, self.n);
            let rounded = |x: &[f32], n| kernels.rounded(kind, x, n);
            let prepared =
                self.prepared(kind, false, || Prepared::Rounded(parts(pool, x, n, 1, rounded)));
            let Prepared::Rounded(parts) = prepared else { unreachable!("rounded above") };
            return Tokens::Rounded(parts);
        }
        #[cfg(target_arch = "x86_64")]
        if kernels.packs_activations() && !self.x.is_empty() {
            let (x, n) = (self.x, self.n);
            let packed = |x: &[f32], n| kernels.packed(x, n);
            let prepared = self
                .prepared(kind, false, || Prepared::Packed(parts(pool, x, n, TILE_TOKENS, packed)));
            let Prepared::Packed(parts) = prepared else { unreachable!("packed above") };
            return Tokens::Packed(parts);
        }
        let _ = (kernels, pool, kind);
        Tokens::Floats(self.x)
    }

    /// What was prepared for the type and the layout; prepares it if necessary.
    #[cfg(target_arch = "x86_64")]
    fn prepared(
        &mut self,
        kind: QuantType,
        is_interleaved: bool,
        make: impl FnOnce() -> Prepared,
    ) -> &Prepared {
        let key = (representative(kind), is_interleaved);
        let at = match self.prepared.iter().position(|(kind, layout, _)| (*kind, *layout) == key) {
            Some(at) => at,
            None => {
                self.prepared.push((key.0, key.1, make()));
                self.prepared.len() - 1
            }
        };
        &self.prepared[at].2
    }
}

/// The first of the types whose kernels read activations prepared in the same way.
#[cfg(target_arch = "x86_64")]
fn representative(kind: QuantType) -> QuantType {
    match kind {
        QuantType::Q5_1 => QuantType::Q4_1,
        QuantType::Q5_K => QuantType::Q4_K,
        QuantType::F16 | QuantType::BF16 => QuantType::F32,
        kind => kind,
    }
}

/// Prepares `n` rows, on several threads if that is worth it. Each takes a multiple of `together` rows.
#[cfg(target_arch = "x86_64")]
fn parts<T: Send + Sync>(
    pool: Option<&ThreadPool>,
    x: &[f32],
    n: usize,
    together: usize,
    make: impl Fn(&[f32], usize) -> T + Sync,
) -> Vec<T> {
    // About 10 µs of work: less isn't worth waking the threads for.
    const WORTH_SHARING: usize = 1 << 16;
    let Some(pool) = pool.filter(|pool| pool.threads() > 1 && x.len() >= WORTH_SHARING) else {
        return vec![make(x, n)];
    };
    let threads = pool.threads();
    let (size, cols) = (n.div_ceil(threads).next_multiple_of(together), x.len() / n);
    let parts: Vec<OnceLock<_>> = (0..threads).map(|_| OnceLock::new()).collect();
    pool.run(&|thread| {
        let some = (thread * size).min(n)..((thread + 1) * size).min(n);
        if !some.is_empty() {
            let x = &x[some.start * cols..some.end * cols];
            // Only this thread sets this cell.
            let _ = parts[thread].set(make(x, some.len()));
        }
    });
    parts.into_iter().filter_map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::tests::{encode, laid_out, noise};
    use crate::{Backend, can_be_interleaved};

    /// The types come in an order in which neighbours have different blocks, as in a mixture of types.
    #[test]
    fn what_is_made_once_gives_the_same_bits_as_what_is_made_anew() {
        let (rows, cols) = (48, 512);
        for backend in [Backend::Scalar, Backend::Avx2, Backend::Avx512, Backend::Neon] {
            let Ok(kernels) = Kernels::new(backend) else { continue };
            // The last case is large enough to be shared.
            for (threads, n) in [(1, 1), (2, 1), (1, 5), (3, 7), (2, 130), (3, 130)] {
                let pool = ThreadPool::new(NonZeroUsize::new(threads).unwrap()).unwrap();
                let x: Vec<f32> =
                    (0..n * cols).map(|i| ((i * 29 + 7) % 97) as f32 / 9.0 - 5.0).collect();
                let mut inputs = Inputs::new(&x, n);
                let kinds = QuantType::ALL.into_iter().map(|kind| (kind, false));
                let interleaved = QuantType::ALL.into_iter().map(|kind| (kind, true));
                let interleaved = interleaved.filter(|(kind, _)| can_be_interleaved(*kind));
                let all = kinds.clone().chain(interleaved.clone()).chain(kinds).chain(interleaved);
                for (kind, is_interleaved) in all {
                    let mut bytes = encode(kind, &noise(1, rows * cols));
                    let w = laid_out(kind, [rows, cols], is_interleaved, &mut bytes);
                    let (mut once, mut anew) = (vec![0.0; n * rows], vec![0.0; n * rows]);
                    kernels.matmul_inputs(&pool, &mut once, w, &mut inputs, None);
                    kernels.gemm(&mut anew, w, &x, n);
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&once), bits(&anew), "{w:?}, {n} tokens, {threads} threads");
                }
                // Eleven types of 8 bits or fewer, two of which reuse what was prepared for another. For a single token,
                // six types have orders of their own if interleaved, two of which are the same.
                let expected = match backend {
                    Backend::Avx512 if n == 1 => 14,
                    Backend::Avx512 => 9,
                    _ => 0,
                };
                assert_eq!(inputs.roundings(), expected, "{backend:?}, {n} tokens");
            }
        }
    }

    #[test]
    #[should_panic = "matmul: x has 31 elements"]
    fn inputs_of_another_length_are_refused() {
        let bytes = encode(QuantType::Q8_0, &noise(1, 2 * 32));
        let w = Matrix::new(QuantType::Q8_0, 2, 32, &bytes).unwrap();
        let pool = ThreadPool::new(NonZeroUsize::MIN).unwrap();
        let x = [0.0; 31];
        Kernels::best().matmul_inputs(&pool, &mut [0.0; 2], w, &mut Inputs::new(&x, 1), None);
    }
}
