//! Logits that aren't numbers are counted, and the tensor or the brick in which that began is named.

use std::num::NonZeroUsize;

use brickscope::{Began, NotFinite};
use brickscope_engine::executor::Cpu;
use brickscope_engine::forward::Outputs;
use brickscope_engine::gguf::Gguf;
use brickscope_engine::{
    AnySession, GenerateOptions, LogitsSeen, Model, Sampling, Session, generate, not_finite,
};
use brickscope_kernels::{Backend, Kernels, QuantType};

use brickscope_testing::models;
use brickscope_testing::models::{changed, stored_as, with_tensors};

const PROMPT: [u32; 5] = [1, 40, 300, 7, 8];
const N: usize = 4;

fn all_kernels() -> impl Iterator<Item = Kernels> {
    Backend::ALL.into_iter().filter_map(|backend| Kernels::new(backend).ok())
}

/// Answers the prompt, and returns what was found of its logits.
fn answered(model: &Model, kernels: Kernels) -> Option<NotFinite> {
    let cpu = Cpu::new(kernels, NonZeroUsize::new(2).unwrap()).unwrap();
    let mut session = Session::new(model, cpu, 16).unwrap();
    let options = GenerateOptions { n_tokens: N, sampling: Sampling::Greedy };
    let answer =
        generate(
            &mut session,
            None,
            &PROMPT,
            options,
            &mut |_| std::ops::ControlFlow::Continue(()),
        )
        .unwrap();
    assert_eq!(answer.logits.times, N as u64);
    answer.not_finite(&mut session, &PROMPT).unwrap()
}

/// The same with all kernels, with rows as in the file and interleaved.
#[track_caller]
fn each_finds(model: impl Fn() -> Model, expected: &Option<NotFinite>) {
    for kernels in all_kernels() {
        assert_eq!(answered(&model(), kernels), *expected, "{}", kernels.backend());
        let mut interleaved = model();
        let one = NonZeroUsize::MIN;
        if interleaved.interleave(kernels, one, &mut |_, _| ()).is_some() {
            assert_eq!(answered(&interleaved, kernels), *expected, "{}", kernels.backend());
        }
    }
}

/// In a tensor of the second layer.
fn weights(tensor: &str, is_nan: bool, bad: u64, of: u64) -> Option<NotFinite> {
    let tensor = tensor.to_owned();
    let began = Some(Began::Weights { tensor, is_nan, bad, of, more_tensors: 0 });
    Some(NotFinite { passes: N as u64, of: N as u64, began })
}

#[test]
fn all_that_healthy_models_compute_is_numbers() {
    for (_, model) in models::all() {
        for kernels in all_kernels() {
            assert_eq!(answered(&model, kernels), None);
        }
    }
}

/// Writes `value` at this byte of the tensor.
fn planted<const B: usize>(gguf: &Gguf, tensor: &str, at: usize, value: [u8; B]) -> Model {
    changed(gguf, tensor, |bytes| bytes[at..at + B].copy_from_slice(&value))
}

#[test]
fn one_bad_weight_of_each_width_is_found_in_its_tensor() {
    let (norm, gate) = ("blk.1.attn_norm.weight", "blk.1.ffn_gate.weight");
    let wide = with_tensors("tiny-F16", &[]);
    for (value, is_nan) in [(f32::NAN, true), (f32::INFINITY, false), (f32::NEG_INFINITY, false)] {
        let value = value.to_le_bytes();
        each_finds(|| planted(&wide, norm, 40, value), &weights(norm, is_nan, 1, 256));
        each_finds(|| planted(&wide, gate, 4_000, value), &weights(gate, is_nan, 1, 768 * 256));
    }
    for (value, is_nan) in [(0x7e00u16, true), (0x7c00, false), (0xfc00, false)] {
        let model = || planted(&stored_as(QuantType::F16).gguf, gate, 4_000, value.to_le_bytes());
        each_finds(model, &weights(gate, is_nan, 1, 768 * 256));
    }
    for (value, is_nan) in [(0x7fc0u16, true), (0x7f80, false), (0xff80, false)] {
        let model = || planted(&stored_as(QuantType::BF16).gguf, gate, 4_000, value.to_le_bytes());
        each_finds(model, &weights(gate, is_nan, 1, 768 * 256));
    }
}

#[test]
fn a_bad_scale_makes_its_whole_block_bad() {
    let gate = "blk.1.ffn_gate.weight";
    // Of NaN, all of the block is NaN. The scale is the first half of a block of 34 bytes.
    let model = |value: u16| {
        let q8_0 = stored_as(QuantType::Q8_0).gguf;
        move || planted(&q8_0, gate, 34 * 100, value.to_le_bytes())
    };
    each_finds(model(0x7e00), &weights(gate, true, 32, 768 * 256));
    // Infinity times a code of 0 is NaN, so the first may be one.
    for kernels in all_kernels() {
        let found = answered(&model(0x7c00)(), kernels).unwrap();
        let Some(Began::Weights { tensor, bad: 32, .. }) = found.began else { panic!("{found}") };
        assert_eq!((&*tensor, found.passes), (gate, N as u64));
    }
}

#[test]
fn a_bad_weight_under_squared_relu_is_not_lost() {
    // The scale of the whole matrix is behind its codes.
    let gate = "blk.1.ffn_gate.weight";
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../data/models/tiny-bitnet-b158-I2_S.gguf");
    let gguf = Gguf::open(&fixture).unwrap();
    let of = gguf.tensor(gate).unwrap().n_elements() as u64;
    let model = || {
        changed(&gguf, gate, |bytes| {
            let at = of as usize / 4;
            bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        })
    };
    each_finds(model, &weights(gate, true, of, of));
}

#[test]
fn further_bad_tensors_are_counted_and_the_first_of_the_file_is_named() {
    let gguf = stored_as(QuantType::F16).gguf;
    let names = ["blk.0.attn_norm.weight", "blk.1.attn_norm.weight", "output_norm.weight"];
    let model = || {
        names.iter().fold(stored_as(QuantType::F16), |model, name| {
            planted(&model.gguf, name, 0, f32::NAN.to_le_bytes())
        })
    };
    let at = |name: &str| gguf.tensors.iter().position(|info| info.name == name).unwrap();
    let first = names.into_iter().min_by_key(|name| at(name)).unwrap();
    let found = answered(&model(), Kernels::best()).unwrap();
    let Some(Began::Weights { tensor, more_tensors, .. }) = found.began else { panic!("{found}") };
    assert_eq!((&*tensor, more_tensors), (first, 2));
}

#[test]
fn an_overflow_is_found_in_the_brick_that_makes_it() {
    // Norms of 3e38: what is further than 1.13 from 0 becomes infinite.
    let gguf = stored_as(QuantType::F16).gguf;
    for (tensor, layer, value) in [
        ("blk.1.ffn_norm.weight", Some(1), "FFN norm"),
        ("blk.0.attn_norm.weight", Some(0), "attention norm"),
        ("output_norm.weight", None, "output norm"),
    ] {
        let huge = |bytes: &mut [u8]| {
            bytes.chunks_exact_mut(4).for_each(|w| w.copy_from_slice(&3e38f32.to_le_bytes()));
        };
        let model = changed(&gguf, tensor, huge);
        for kernels in all_kernels() {
            let found = answered(&model, kernels).unwrap();
            let Some(Began::Output { brick, layer: found_in, value: of, is_nan, .. }) =
                &found.began
            else {
                panic!("{tensor}: {found}")
            };
            assert_eq!((&**brick, *found_in, &**of), ("RmsNorm", layer, value));
            assert!(!is_nan, "an overflow is an infinity first: {found}");
            assert_eq!((found.passes, found.of), (N as u64, N as u64));
        }
    }
}

#[test]
fn passes_before_the_first_bad_one_are_run_again_in_order() {
    // The first number of a token overflows in the first norm, and only that of one token isn't 0.
    let gguf = with_tensors("tiny-F16", &[]);
    let overflows = planted(&gguf, "blk.0.attn_norm.weight", 0, 3e38f32.to_le_bytes());
    let model = changed(&overflows.gguf, "token_embd.weight", |bytes| {
        for (token, row) in bytes.chunks_exact_mut(4 * 256).enumerate() {
            let first: f32 = if token == 9 { 100.0 } else { 0.0 };
            row[..4].copy_from_slice(&first.to_le_bytes());
        }
    });
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).unwrap();
    let mut session = Session::new(&model, cpu, 16).unwrap();
    let seen = LogitsSeen { times: 3, not_finite: 1, first: Some(2) };
    let passes = [&PROMPT[..], &[2], &[9]];
    let found = not_finite(seen, &mut session, passes, Outputs::Last).unwrap().unwrap();
    let Some(Began::Output { position, .. }) = found.began else { panic!("{found}") };
    assert_eq!(position, PROMPT.len() as u64 + 1);
    // Without that token there is nothing to find.
    let found = not_finite(seen, &mut session, [&PROMPT[..], &[2]], Outputs::Last).unwrap();
    assert_eq!(found, Some(NotFinite { passes: 1, of: 3, began: None }));
    let none = LogitsSeen { times: 3, ..LogitsSeen::default() };
    assert_eq!(not_finite(none, &mut session, passes, Outputs::Last).unwrap(), None);
    assert_eq!(session.position(), PROMPT.len() + 1, "nothing was run again");
}

#[test]
fn long_prompts_are_run_again_in_batches() {
    let gguf = stored_as(QuantType::F16).gguf;
    let model = planted(&gguf, "output_norm.weight", 0, f32::NAN.to_le_bytes());
    let healthy = stored_as(QuantType::F16);
    for (model, is_bad) in [(&model, true), (&healthy, false)] {
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).unwrap();
        let session: &mut dyn AnySession<'_> = &mut Session::new(model, cpu, 300).unwrap();
        let long = [5; 290];
        let seen = LogitsSeen { times: 1, not_finite: 1, first: Some(0) };
        let found = not_finite(seen, session, [&long[..]], Outputs::Last).unwrap().unwrap();
        assert_eq!(found.began.is_some(), is_bad);
    }
}
