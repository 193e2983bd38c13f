//! A probe that hands each value of a forward pass to a function.
//!
//! A tap sees a value between two kernels and may change it. That is how two executors are held
//! against each other ([`diverge`](crate::diverge)), and how a test plants a fault.

use std::cell::Cell;

use brickscope::{BrickId, Work};

use crate::kv_cache::Heads;
use crate::probe::{NoProbe, Probe};
use crate::routines::Routine;
use crate::value::{At, Operation, Value};

/// Hands every value of a pass to a function.
pub(crate) struct Tapped<'f> {
    position: usize,
    n_tokens: usize,
    layer: Cell<Option<usize>>,
    tap: &'f dyn Fn(At<'_>, &mut [f32]),
}

impl<'f> Tapped<'f> {
    /// For a pass of `n_tokens` tokens at `position`.
    pub(crate) fn new(
        position: usize,
        n_tokens: usize,
        tap: &'f dyn Fn(At<'_>, &mut [f32]),
    ) -> Self {
        Self { position, n_tokens, layer: Cell::new(None), tap }
    }
}

impl Probe for Tapped<'_> {
    fn layer(&self, index: usize, run: impl FnOnce()) {
        self.layer.set(Some(index));
        run();
        self.layer.set(None);
    }

    fn brick(&self, _: BrickId, _: Work, run: impl FnOnce()) {
        run();
    }

    fn brick_kernel(&self, _: BrickId, _: Routine, _: Work, run: impl FnOnce()) {
        run();
    }

    fn brick_kernels<'a>(&'a self, _: BrickId, _: Work, run: impl FnOnce(&mut Self::Kernels<'a>)) {
        run(&mut NoProbe);
    }

    fn tap(
        &self,
        value: Value,
        routine: Option<Routine>,
        operation: Operation<'_>,
        out: &mut [f32],
    ) {
        let Self { position, n_tokens, ref layer, tap } = *self;
        tap(At { position, n_tokens, layer: layer.get(), value, routine, operation }, out);
    }

    fn tap_cache(&self, value: Value, heads: &mut Heads<'_>, n_tokens: usize) -> Vec<f32> {
        let mut rows = heads.rows(n_tokens);
        self.tap(value, None, Operation::Exact, &mut rows);
        heads.put(0, &rows);
        rows
    }

    // A tap sees values, not kernels.
    type Kernels<'a>
        = NoProbe
    where
        Self: 'a;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::num::NonZeroUsize;
    use std::path::Path;

    use brickscope_kernels::Kernels;

    use super::*;
    use crate::cpu::Cpu;
    use crate::model::Model;
    use crate::session::Session;

    /// Runs three tokens, then one. `change` may change the values of layer 1; returns what it left, pass by pass.
    fn tapped(change: &dyn Fn(At<'_>, &mut [f32])) -> [Vec<(Value, Vec<f32>)>; 2] {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
        let model = Model::open(&models.join("tiny-F16.gguf")).expect("the fixture");
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).expect("one thread");
        let mut session = Session::new(&model, cpu, 4).expect("room for four tokens");
        [&[1, 2, 3][..], &[4]].map(|tokens| {
            let seen = RefCell::new(Vec::new());
            let tap = |at: At<'_>, out: &mut [f32]| {
                if at.layer == Some(1) {
                    change(at, out);
                    seen.borrow_mut().push((at.value, out.to_vec()));
                }
            };
            session.forward_tapped(tokens, &tap).expect("tokens");
            seen.into_inner()
        })
    }

    fn find(pass: &[(Value, Vec<f32>)], value: Value) -> &[f32] {
        &pass.iter().find(|(name, _)| *name == value).expect("the pass has it").1
    }

    #[test]
    fn the_cache_holds_new_keys_and_values_as_taps_left_them() {
        for (new, cached) in [(Value::RotatedK, Value::CachedKeys), (Value::V, Value::CachedValues)]
        {
            let passes = tapped(&|at, out| {
                if at.value == new {
                    (0..).zip(out).for_each(|(i, x)| *x = (100 * at.position + i) as f32);
                }
            });
            let [first, second] = passes.each_ref().map(|pass| find(pass, new));
            assert_eq!((first[1], second[1]), (1.0, 301.0));
            assert_eq!(find(&passes[0], cached), first);
            assert_eq!(find(&passes[1], cached), [first, second].concat());
        }
    }

    #[test]
    fn attention_reads_what_a_tap_of_the_cache_left() {
        // All values are alike, so the probabilities don't matter.
        let passes = tapped(&|at, out| {
            if at.value == Value::CachedValues {
                out.fill(0.5);
            }
        });
        for pass in &passes {
            let attention = find(pass, Value::Attention);
            assert!(attention.iter().all(|x| (x - 0.5).abs() < 1e-5), "{attention:?}");
        }
        // The tap leaves the first token's key, and that of the second pass's token.
        let passes = tapped(&|at, out| {
            if at.value == Value::CachedKeys && at.position == 0 {
                let row = out.len() / at.n_tokens;
                out[row..].fill(0.0);
            }
        });
        let keys = find(&passes[1], Value::CachedKeys);
        let row = keys.len() / 4;
        assert!(keys[..row].iter().all(|&x| x != 0.0));
        assert!(keys[row..3 * row].iter().all(|&x| x == 0.0));
        for (i, &score) in find(&passes[1], Value::Scores).iter().enumerate() {
            assert_eq!(score == 0.0, [1, 2].contains(&(i % 4)), "score {i} is {score}");
        }
    }
}
