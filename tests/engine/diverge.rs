//! Planted faults are named, and nothing else is.
//!
//! Each run is of one of the tiny models, on random tokens, scalar against AVX2. In a faulty run `b`'s
//! values are changed before they are compared, in a random layer, at a random position. Everything
//! comes from seeded numbers, so a run that passes once passes always. `BRICKSCOPE_DIVERGE_RUNS` asks
//! for more runs of each kind, `BRICKSCOPE_DIVERGE_SEED` for others.

use brickscope::stats::SplitMix64;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use brickscope_engine::diverge::{Report, diverge};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{At, Model, Session, Value};
use brickscope_kernels::{Kernels, QuantType, RopePairs};
use brickscope_testing::models;

/// Runs of each kind, if the environment doesn't say.
const RUNS: u64 = 50;

/// The runs that the environment asks for, and where their seeds begin.
fn runs() -> (u64, u64) {
    let number = |name: &str, default| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name} is {text:?}: {e}")),
        Err(_) => default,
    };
    let seed: u64 = number("BRICKSCOPE_DIVERGE_SEED", 0);
    // Far from those of other runs.
    (number("BRICKSCOPE_DIVERGE_RUNS", RUNS), seed.wrapping_mul(1 << 32))
}

struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.bits()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// A prompt, and how many tokens to generate after it.
struct Run {
    prompt: Vec<u32>,
    n_tokens: usize,
}

impl Run {
    fn new(random: &mut Random, model: &Model) -> Self {
        let len = 1 + random.below(6);
        let prompt = (0..len).map(|_| random.below(model.config.n_vocab) as u32).collect();
        Self { prompt, n_tokens: 2 + random.below(3) }
    }

    /// Positions that are run: the last token is only chosen.
    fn n_positions(&self) -> usize {
        self.prompt.len() + self.n_tokens - 1
    }

    fn go(
        &self,
        model: &Model,
        kernels: [Kernels; 2],
        plant: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Report {
        let session = |kernels| {
            let cpu = Cpu::new(kernels, NonZeroUsize::MIN).unwrap();
            Session::new(model, cpu, self.n_positions()).unwrap()
        };
        let [mut a, mut b] = kernels.map(session);
        diverge(&mut a, &mut b, &self.prompt, self.n_tokens, plant, &mut |_| ()).unwrap()
    }
}

/// Scalar, and the fastest: on a machine with neither AVX2 nor AVX-512 the comparison is to the bit.
fn both() -> [Kernels; 2] {
    [Kernels::new(brickscope_kernels::Backend::Scalar).unwrap(), Kernels::best()]
}

/// The place of a fault that has to be named.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    layer: Option<usize>,
    value: Value,
    position: usize,
}

impl Place {
    /// The row of the place in a value of its pass, if this is it.
    fn row<'d>(&self, at: &At<'_>, data: &'d mut [f32]) -> Option<&'d mut [f32]> {
        let last = at.position + at.n_tokens;
        let is_here = (at.layer, at.value) == (self.layer, self.value)
            && (at.position..last).contains(&self.position);
        if !is_here {
            return None;
        }
        // Of the logits there is only the last token's row.
        let n = if at.value == Value::Logits { 1 } else { at.n_tokens };
        let width = data.len() / n;
        let row = if at.value == Value::Logits { 0 } else { self.position - at.position };
        Some(&mut data[row * width..][..width])
    }
}

/// Runs some runs with a fault, each on one of the models, and counts those in which just this
/// fault was named. `plan` says where it is and what it changes.
fn named<F: Fn(&At<'_>, &mut [f32])>(
    seed: u64,
    plan: impl Fn(&mut Random, &Model, &Run) -> (Place, F),
) {
    let models = models::all();
    let (n_runs, start) = runs();
    for run in 0..n_runs {
        let mut random = Random(SplitMix64(start.wrapping_add(seed * 1000 + run)));
        let (kind, model) = &models[random.below(models.len())];
        let run = Run::new(&mut random, model);
        let (place, change) = plan(&mut random, model, &run);
        let planted = Cell::new(None);
        let report = run.go(model, both(), &|at, data| {
            let before = data.to_vec();
            change(&at, data);
            let mut changed = before.iter().zip(&*data).filter(|(a, b)| a != b);
            planted.set(planted.get().or(changed.next().map(|(&a, &b)| (a, b))));
        });
        let changed = planted.get();
        assert!(changed.is_some(), "{kind:?}: nothing was changed at {place:?}");
        let first = report.first.unwrap_or_else(|| {
            panic!("{kind:?}: {place:?} was not found, from and to: {changed:?}")
        });
        let found = Place { layer: first.layer, value: first.value, position: first.position };
        assert_eq!(found, place, "{kind:?}: {first:?}");
        assert!(first.is_repeatable, "{kind:?}: {place:?}");
        // Fed with `a`'s values, nothing after the fault differs.
        assert_eq!(report.places.len(), 1, "{kind:?}: {:?}", report.places);
    }
}

const PROJECTIONS: [Value; 7] =
    [Value::Q, Value::K, Value::V, Value::Output, Value::Gate, Value::Up, Value::Down];

fn projection(random: &mut Random, model: &Model, run: &Run) -> Place {
    let position = random.below(run.n_positions());
    // One in eight is the head, which only the last token of a pass goes through.
    if random.below(8) == 0 {
        let position = run.prompt.len() - 1 + random.below(run.n_tokens);
        return Place { layer: None, value: Value::Logits, position };
    }
    let layer = Some(random.below(model.config.n_layers));
    Place { layer, value: random.pick(&PROJECTIONS), position }
}

#[test]
fn one_output_row_of_a_matrix_that_is_off_by_one_percent() {
    named(1, |random, model, run| {
        let place = projection(random, model, run);
        let i = random.next() as usize;
        (place, move |at: &At<'_>, data: &mut [f32]| {
            if let Some(row) = place.row(at, data) {
                row[i % row.len()] *= 1.01;
            }
        })
    });
}

#[test]
fn one_block_of_a_matrix_s_output_that_is_off_by_one_percent() {
    named(2, |random, model, run| {
        let place = projection(random, model, run);
        let i = random.next() as usize;
        (place, move |at: &At<'_>, data: &mut [f32]| {
            if let Some(row) = place.row(at, data) {
                let block = i % (row.len() / 32) * 32;
                row[block..block + 32].iter_mut().for_each(|x| *x *= 1.01);
            }
        })
    });
}

#[test]
fn a_whole_tensor_that_is_off_by_one_percent() {
    named(3, |random, model, run| {
        let place = projection(random, model, run);
        // All tokens of the prompt are one pass.
        let is_prompt = place.position < run.prompt.len() && place.value != Value::Logits;
        let place = Place { position: if is_prompt { 0 } else { place.position }, ..place };
        (place, move |at: &At<'_>, data: &mut [f32]| {
            if place.row(at, data).is_some() {
                data.iter_mut().for_each(|x| *x *= 1.01);
            }
        })
    });
}

#[test]
fn a_rope_pair_that_is_swapped() {
    named(4, |random, model, run| {
        let c = &model.config;
        let place = Place {
            layer: Some(random.below(c.n_layers)),
            value: random.pick(&[Value::RotatedQ, Value::RotatedK]),
            position: random.below(run.n_positions()),
        };
        let (head, pair) = (random.next() as usize, random.below(c.n_rot / 2));
        let (head_dim, n_pairs) = (c.head_dim, c.n_rot / 2);
        let (first, second) = match c.architecture.rope_pairs() {
            RopePairs::Norm => (2 * pair, 2 * pair + 1),
            RopePairs::Neox => (pair, pair + n_pairs),
        };
        (place, move |at: &At<'_>, data: &mut [f32]| {
            if let Some(row) = place.row(at, data) {
                let start = head % (row.len() / head_dim) * head_dim;
                row.swap(start + first, start + second);
            }
        })
    });
}

#[test]
fn one_nan_anywhere_in_a_layer() {
    const VALUES: [Value; 19] = [
        Value::AttentionNorm,
        Value::Q,
        Value::K,
        Value::V,
        Value::RotatedQ,
        Value::RotatedK,
        Value::Scores,
        Value::Probabilities,
        Value::Attention,
        Value::Output,
        Value::AttentionResidual,
        Value::FfnNorm,
        Value::Gate,
        Value::Up,
        Value::Activation,
        Value::Down,
        Value::FfnResidual,
        Value::CachedKeys,
        Value::CachedValues,
    ];
    named(5, |random, model, run| {
        let layer = Some(random.below(model.config.n_layers));
        let position = random.below(run.n_positions());
        let place = Place { layer, value: random.pick(&VALUES), position };
        let (n_heads, i) = (model.config.n_heads, random.next() as usize);
        (place, move |at: &At<'_>, data: &mut [f32]| match place.value {
            Value::CachedKeys | Value::CachedValues => {
                if let Some(row) = cached_row(&place, at, data) {
                    row[i % row.len()] = f32::NAN;
                }
            }
            Value::Scores | Value::Probabilities => {
                if let Some(row) = place.row(at, data) {
                    let context = row.len() / n_heads;
                    row[i % n_heads * context + i % (place.position + 1)] = f32::NAN;
                }
            }
            _ => {
                if let Some(row) = place.row(at, data) {
                    row[i % row.len()] = f32::NAN;
                }
            }
        })
    });
}

/// The row of a cached position, in any pass that reads it.
fn cached_row<'d>(place: &Place, at: &At<'_>, data: &'d mut [f32]) -> Option<&'d mut [f32]> {
    let context = at.position + at.n_tokens;
    let is_here = (at.layer, at.value) == (place.layer, place.value) && place.position < context;
    let width = data.len() / context;
    is_here.then(|| &mut data[place.position * width..][..width])
}

/// A row of the KV cache that holds what was there before: of another token.
#[test]
fn a_kv_row_that_is_stale_when_it_is_read() {
    named(6, |random, model, run| {
        // In one of the later passes, a row from before it.
        let pass = run.prompt.len() + random.below(run.n_tokens - 1);
        let place = Place {
            layer: Some(random.below(model.config.n_layers)),
            value: random.pick(&[Value::CachedKeys, Value::CachedValues]),
            position: random.below(pass),
        };
        let other = (place.position + 1 + random.below(pass)) % (pass + 1);
        (place, move |at: &At<'_>, data: &mut [f32]| {
            if at.position == pass && (at.layer, at.value) == (place.layer, place.value) {
                let width = data.len() / (pass + 1);
                let rows = [place.position, other].map(|row| row * width..(row + 1) * width);
                // The same token has the same values in the first layer: then nothing was ever
                // written.
                if data[rows[0].clone()] == data[rows[1].clone()] {
                    data[rows[0].clone()].fill(0.0);
                } else {
                    data.copy_within(rows[1].clone(), rows[0].start);
                }
            }
        })
    });
}

/// A row of the KV cache that a pass should have written and didn't.
#[test]
fn a_kv_row_that_is_not_written() {
    named(7, |random, model, run| {
        let place = Place {
            layer: Some(random.below(model.config.n_layers)),
            value: random.pick(&[Value::RotatedK, Value::V]),
            position: random.below(run.n_positions()),
        };
        (place, move |at: &At<'_>, data: &mut [f32]| {
            if let Some(row) = place.row(at, data) {
                row.fill(0.0);
            }
        })
    });
}

#[test]
fn a_fault_that_happens_once_is_told_from_one_that_repeats() {
    let model = &models::stored_as(QuantType::Q8_0);
    let run = Run { prompt: vec![1, 2, 3], n_tokens: 2 };
    let times = Cell::new(0);
    let report = run.go(model, both(), &|at, data| {
        if (at.layer, at.value, at.position) == (Some(1), Value::Gate, 0) {
            times.set(times.get() + 1);
            if times.get() == 1 {
                data[7] = -1e9;
            }
        }
    });
    let first = report.first.expect("it is found");
    assert_eq!(times.get(), 2, "the pass is run again");
    assert_eq!((first.is_repeatable, first.n_beyond), (false, 1));
    let worst = first.worst[0];
    assert_eq!((worst.position, worst.index, worst.b), (0, 7, -1e9));
}

#[test]
fn clean_runs_raise_nothing() {
    let mut most: BTreeMap<String, f64> = BTreeMap::new();
    let (n_runs, start) = runs();
    for (kind, model) in &models::all() {
        for run in 0..n_runs {
            let mut random = Random(SplitMix64(start.wrapping_add(run * 100 + *kind as u64)));
            let run = Run::new(&mut random, model);
            let report = run.go(model, both(), &|_, _| ());
            assert_eq!(report.first, None, "{kind:?}");
            assert!(report.n_tensors > 0 && report.n_passes == run.n_tokens);
            for pair in report.kernels {
                let most = most.entry(pair.kernels[1].clone()).or_default();
                *most = most.max(pair.most.unwrap_or(0.0));
            }
        }
    }
    // `docs/evidence/diverge.md` has these.
    for (kernel, most) in most {
        println!("{kernel:24} {most:.3}");
    }
}

#[test]
fn the_same_kernels_are_held_to_the_bit() {
    let best = [Kernels::best(); 2];
    for (kind, model) in &models::all() {
        let mut random = Random(SplitMix64(*kind as u64));
        let run = Run::new(&mut random, model);
        let report = run.go(model, best, &|_, _| ());
        assert_eq!((report.is_exact, report.first), (true, None), "{kind:?}");
        assert!(report.kernels.iter().all(|pair| pair.most.is_none()));
        // The last bit of one number.
        let report = run.go(model, best, &|at, data| {
            if (at.layer, at.value, at.position) == (Some(0), Value::Down, 0) {
                data[3] = f32::from_bits(data[3].to_bits() ^ 1);
            }
        });
        let first = report.first.expect("it is found");
        assert_eq!((first.value, first.worst[0].index, first.n_beyond), (Value::Down, 3, 1));
    }
}

#[test]
fn threads_make_no_difference() {
    let model = &models::stored_as(QuantType::Q8_0);
    let session = |threads| {
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::new(threads).unwrap()).unwrap();
        Session::new(model, cpu, 8).unwrap()
    };
    let (mut a, mut b) = (session(1), session(3));
    let report = diverge(&mut a, &mut b, &[1, 2, 3, 4], 3, &|_, _| (), &mut |_| ()).unwrap();
    assert_eq!((report.is_exact, report.first), (true, None));
    assert_eq!(report.tokens.len(), 6);
}

/// An infinity as `f16`.
const F16_INFINITY: [u8; 2] = 0x7c00_u16.to_le_bytes();

/// An infinity makes a tolerance that is no number. It must not pass for "may be anything".
#[test]
fn an_infinity_in_the_file_of_side_a() {
    let f16: &dyn Fn(&mut [u8]) = &|bytes| bytes[..2].copy_from_slice(&F16_INFINITY);
    let f32: &dyn Fn(&mut [u8]) = &|bytes| bytes[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    for (name, tensor, change, layer, value) in [
        ("tiny-F16", "blk.1.ffn_up.weight", f16, Some(1), Value::Up),
        ("tiny-F16", "blk.1.ffn_norm.weight", f32, Some(1), Value::FfnNorm),
        ("tiny-F16", "output_norm.weight", f32, None, Value::OutputNorm),
        // The scale of the first block.
        ("tiny-Q8_0", "blk.1.ffn_up.weight", f16, Some(1), Value::Up),
    ] {
        let whole = models::damaged(name, tensor, |_| ());
        let broken = models::damaged(name, tensor, change);
        for kernels in [both(), [Kernels::best(); 2]] {
            for models in [[&broken, &whole], [&whole, &broken]] {
                let [mut a, mut b] = [0, 1].map(|side| {
                    let cpu = Cpu::new(kernels[side], NonZeroUsize::MIN).unwrap();
                    Session::new(models[side], cpu, 8).unwrap()
                });
                let report = diverge(&mut a, &mut b, &[1, 2, 3], 2, &|_, _| (), &mut |_| ());
                let report = report.unwrap();
                let first = report.first.unwrap_or_else(|| panic!("{tensor} of {name}: not found"));
                assert_eq!((first.layer, first.value), (layer, value), "{name}: {first:?}");
                assert!(first.n_beyond > 0 && !report.places.is_empty());
            }
        }
    }
}

/// Both files have the infinity, so `a`'s values have it too; `b` has a number in its place.
#[test]
fn a_number_in_the_place_of_an_infinity() {
    let infinity = |bytes: &mut [u8]| bytes[..2].copy_from_slice(&F16_INFINITY);
    for (tensor, value) in [
        ("blk.1.ffn_up.weight", Value::Activation),
        ("blk.1.attn_q.weight", Value::RotatedQ),
        ("blk.1.attn_k.weight", Value::RotatedK),
    ] {
        let model = models::damaged("tiny-F16", tensor, infinity);
        let run = Run { prompt: vec![1], n_tokens: 1 };
        let report = run.go(&model, both(), &|at, data| {
            if (at.layer, at.value) == (Some(1), value) {
                assert!(!data[0].is_finite(), "{value:?} has the infinity");
                data[0] = 1.0;
            }
        });
        let first = report.first.unwrap_or_else(|| panic!("{value:?}: not found"));
        assert_eq!((first.layer, first.value, first.n_beyond), (Some(1), value, 1));
        assert_eq!((first.worst[0].index, first.worst[0].b), (0, 1.0));
        assert!(first.worst[0].tolerance.is_nan());
    }
}

#[test]
fn the_sign_of_a_zero_is_a_bit() {
    // The first row is zeros.
    let zeros = |bytes: &mut [u8]| bytes[..2 * 256].fill(0);
    let model = models::damaged("tiny-F16", "blk.1.ffn_up.weight", zeros);
    let run = Run { prompt: vec![1], n_tokens: 1 };
    let negated = |kernels| {
        run.go(&model, kernels, &|at, data| {
            if (at.layer, at.value) == (Some(1), Value::Up) {
                assert_eq!(data[0], 0.0);
                data[0] = -data[0];
            }
        })
    };
    let first = negated([Kernels::best(); 2]).first.expect("it is found");
    assert_eq!((first.value, first.worst[0].index, first.n_beyond), (Value::Up, 0, 1));
    assert_eq!((first.worst[0].difference, first.worst[0].tolerance), (0.0, 0.0));
    let report = negated(both());
    assert_eq!(report.first.is_some(), report.is_exact);
}

#[test]
fn a_bias_that_only_one_model_has() {
    let (whole, other) =
        (models::stored_as(QuantType::Q4_K), models::qwen2_without("blk.1.attn_k.bias"));
    let session = |model| {
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).unwrap();
        Session::new(model, cpu, 8).unwrap()
    };
    let (mut a, mut b) = (session(&whole), session(&other));
    let refused = diverge(&mut a, &mut b, &[1], 1, &|_, _| (), &mut |_| ());
    let said = refused.expect_err("no tensor of b belongs to a's K with bias").to_string();
    assert!(said.ends_with("biases: Q, K, V in layer 1 and Q, V in layer 1"), "{said}");
}
