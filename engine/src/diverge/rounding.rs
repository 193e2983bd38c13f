//! Kernels that round activations to 8 bits beside kernels that don't.
//!
//! The two compute different sums on purpose, and differ by far more than a tolerance for the order of a sum
//! allows. But how `b` rounds is known, and so is what that does to the result: `W·(x_b − x_a)`, where `x_a`
//! and `x_b` are what the sides take the input for. With that added to what `a` has, `b` is held to the
//! same tolerance as any other kernel, and a fault in the rounding itself is found, too.

use brickscope_kernels::{Backend, Kernels};

use super::tolerance::Bounds;
use crate::tap::Operation;

/// The kernels of both sides; `None` for a device, which doesn't round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounding {
    sides: [Option<Kernels>; 2],
    /// What computes the difference: without rounding.
    exact: Kernels,
}

impl Rounding {
    pub(super) fn new(sides: [Option<Kernels>; 2]) -> Self {
        let exact = [Backend::Avx2, Backend::Neon, Backend::Scalar].map(Kernels::new);
        let exact = exact.into_iter().flatten().next().expect("every CPU has scalar kernels");
        Self { sides, exact }
    }

    /// What `a` would have if it rounded as `b` does; `None` if it does.
    pub(super) fn as_b_rounds(
        &self,
        operation: &Operation<'_>,
        a: &[f32],
        bounds: &Bounds<'_>,
    ) -> Option<Vec<f32>> {
        let Operation::Matmul { w: of_b, x } = *operation else { return None };
        // The sides may have models of their own.
        let of_a = bounds.matrix(of_b.index)?;
        let n = x.len().checked_div(of_a.cols)?;
        let sides = [(self.sides[0], of_a.kind), (self.sides[1], of_b.kind)];
        // In blocks of this length, if at all.
        let [a_rounds, b_rounds] = sides.map(|(kernels, kind)| {
            kernels.filter(|k| k.rounds_activations(kind, n)).map(|_| kind.block_len())
        });
        if a_rounds == b_rounds {
            return None;
        }
        let [x_a, mut x_b] = sides.map(|(kernels, kind)| match kernels {
            Some(kernels) => kernels.rounded_activations(kind, x, n),
            None => x.to_vec(),
        });
        x_b.iter_mut().zip(&x_a).for_each(|(b, a)| *b -= a);
        let mut out = vec![0.0; a.len()];
        self.exact.gemm(&mut out, of_a.matrix(&bounds.model().gguf), &x_b, n);
        out.iter_mut().zip(a).for_each(|(out, a)| *out += a);
        Some(out)
    }
}
