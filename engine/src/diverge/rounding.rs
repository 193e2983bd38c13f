//! Comparing kernels that round activations to 8 bits with kernels that don't.
//!
//! The two compute different sums by design, and differ by far more than a tolerance for the order of a sum
//! allows. But how `b` rounds is known, and so is its effect on the result: `W·(x_b − x_a)`, where `x_a`
//! and `x_b` are the input as each side rounds it. With that added to `a`'s result, `b` is held to the
//! same tolerance as any other kernel, and a fault in the rounding itself is found, too.

use brickscope_kernels::{Backend, Kernels};

use super::tolerance::Bounds;
use crate::value::Operation;

/// The kernels of both sides; `None` for a device, which doesn't round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounding {
    sides: [Option<Kernels>; 2],
    /// Kernels without rounding, which compute the difference.
    exact: Kernels,
}

impl Rounding {
    pub(super) fn new(sides: [Option<Kernels>; 2]) -> Self {
        let exact = [Backend::Avx2, Backend::Neon, Backend::Scalar].map(Kernels::new);
        let exact = exact.into_iter().flatten().next().expect("every CPU has scalar kernels");
        Self { sides, exact }
    }

    /// `a`'s result if it rounded as `b` does; `None` if it does.
    pub(super) fn as_b_rounds(
        &self,
        operation: &Operation<'_>,
        a: &[f32],
        bounds: &Bounds<'_>,
    ) -> Option<Vec<f32>> {
        let Operation::Matmul { w: of_b, x } = *operation else { return None };
        // The sides may have different models.
        let of_a = bounds.matrix(of_b.index)?;
        let n = x.len().checked_div(of_a.cols)?;
        let sides = [(self.sides[0], of_a.kind), (self.sides[1], of_b.kind)];
        // The length of the blocks that each side rounds in, if it does.
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
