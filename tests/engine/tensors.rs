//! Every tensor of a file is computed with, or the file is refused.
//!
//! What is computed with it is held to a forward pass in f64 that shares no code with the engine's.

use std::num::NonZeroUsize;

use brickscope::{BrickProfiler, Phase};
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::Gguf;
use brickscope_engine::{Error, Model, Session};
use brickscope_kernels::{Backend, Kernels};

use crate::reference;
use crate::reference::Rounding;
use brickscope_testing::models::{Extra, with_key, with_tensors};

const TOKENS: [u32; 6] = [1, 40, 300, 7, 7, 511];

/// A tensor of values that differ from each other, around `mean`.
fn tensor(name: &str, dims: &[usize], mean: f32) -> Extra {
    let n: usize = dims.iter().product();
    let value = |i: usize| mean + ((i * 37 + name.len() * 11) % 101) as f32 / 101.0 - 0.5;
    (name.to_owned(), dims.to_vec(), (0..n).map(value).collect())
}

fn refused(model: &str, extra: &[Extra]) -> String {
    match Model::from_gguf(with_tensors(model, extra)) {
        Err(error @ Error::UnusedTensors { .. }) => error.to_string(),
        other => panic!("{model} with {:?} gives {other:?}", extra.iter().map(|e| &e.0)),
    }
}

/// Logits after each token, of all kernels that this machine has, each in one batch and token by token.
fn logits(gguf: &Gguf) -> Vec<(String, Vec<f32>)> {
    let model = Model::from_gguf(gguf.clone()).unwrap();
    let mut found = Vec::new();
    for backend in [Backend::Scalar, Backend::Avx2, Backend::Avx512, Backend::Neon] {
        let Ok(kernels) = Kernels::new(backend) else { continue };
        let session = || {
            let cpu = Cpu::new(kernels, NonZeroUsize::new(2).unwrap()).unwrap();
            Session::new(&model, cpu, 16).unwrap()
        };
        found.push((format!("{backend} at once"), session().all_logits(&TOKENS).unwrap()));
        let mut one_by_one = session();
        let steps = TOKENS.iter().flat_map(|&id| one_by_one.forward(&[id]).unwrap().to_vec());
        found.push((format!("{backend} one by one"), steps.collect()));
    }
    found
}

fn most(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).abs());
    // A NaN must not be lost in a comparison.
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// Checks that the tensors are computed with as in the reference, and that each of them matters.
fn is_computed_with(model: &str, extra: &[Extra]) {
    let with = with_tensors(model, extra);
    let expected = reference::logits(&with, &TOKENS, Rounding::None);
    for (what, logits) in logits(&with) {
        let most = most(&logits, &expected);
        println!("{model} with {} more tensors, {what}: max |d| {most:.1e}", extra.len());
        assert!(most < 1e-4, "{model}, {what}: {most}");
    }
    for left_out in 0..extra.len() {
        let mut others = extra.to_vec();
        let (name, ..) = others.remove(left_out);
        // A norm follows, which cancels a factor of all that goes into it.
        if name.ends_with("attn_v.scale") || name.ends_with("ffn_up.scale") {
            continue;
        }
        let without = reference::logits(&with_tensors(model, &others), &TOKENS, Rounding::None);
        let differences = without.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        assert!(differences.fold(0.0, f64::max) > 1e-3, "{model}: {name} changes nothing");
    }
}

/// A bias of each of these matrices, of the second layer.
fn biases(parts: &[(&str, usize)]) -> Vec<Extra> {
    parts.iter().map(|(part, n)| tensor(&format!("blk.1.{part}.bias"), &[*n], 0.1)).collect()
}

const ATTENTION: [(&str, usize); 3] = [("attn_q", 256), ("attn_k", 128), ("attn_v", 128)];
const OUTPUT: (&str, usize) = ("attn_output", 256);
const FFN: [(&str, usize); 3] = [("ffn_gate", 768), ("ffn_up", 768), ("ffn_down", 256)];

#[test]
fn the_biases_of_llama_are_added() {
    is_computed_with("tiny-F16", &biases(&[&ATTENTION[..], &[OUTPUT], &FFN].concat()));
}

#[test]
fn the_bias_of_qwen_2s_head_is_added() {
    is_computed_with("tiny-qwen2-Q4_K_M", &[tensor("output.bias", &[512], 0.0)]);
}

/// A scale of each matrix of the second layer.
fn scales() -> Vec<Extra> {
    let parts = [&ATTENTION[..], &[OUTPUT], &FFN].concat();
    let scale = |part: &str, i: usize| {
        (format!("blk.1.{part}.scale"), vec![1], vec![[0.4, 1.7, 0.9][i % 3]])
    };
    parts.iter().enumerate().map(|(i, (part, _))| scale(part, i)).collect()
}

#[test]
fn the_scales_of_bitnet_are_multiplied_with() {
    is_computed_with("tiny-bitnet-TQ2_0", &scales());
}

#[test]
fn factors_of_ropes_frequencies_are_divided_by() {
    let (name, dims, _) = tensor("rope_freqs.weight", &[32], 0.0);
    let factors = (0..32).map(|i| 1.0 + i as f32 / 8.0).collect();
    is_computed_with("tiny-F16", &[(name, dims, factors)]);
}

#[test]
fn bitnets_gate_has_the_function_that_the_file_names() {
    let (model, key) = ("tiny-bitnet-TQ2_0", "bitnet.hidden_activation");
    let silu = reference::logits(&with_tensors(model, &[]), &TOKENS, Rounding::None);
    for (name, differs) in [("silu", false), ("relu2", true)] {
        let gguf = with_key(model, key, name);
        let expected = reference::logits(&gguf, &TOKENS, Rounding::None);
        for (what, logits) in logits(&gguf) {
            assert!(most(&logits, &expected) < 1e-4, "{name}, {what}");
            assert_eq!(most(&logits, &silu) > 0.1, differs, "{name}, {what}");
        }
    }
    let said = Model::from_gguf(with_key(model, key, "gelu")).unwrap_err().to_string();
    assert!(said.contains("`bitnet.hidden_activation` is `gelu`"), "{said}");
    assert!(said.contains("which is a function that is not supported"), "{said}");
}

#[test]
fn a_tensor_that_nothing_computes_with_is_refused_by_name() {
    for (model, architecture, extra) in [
        ("tiny-F16", "llama", tensor("blk.1.attn_sub_norm.weight", &[256], 1.0)),
        ("tiny-F16", "llama", tensor("blk.0.attn_q_norm.weight", &[64], 1.0)),
        ("tiny-F16", "llama", tensor("blk.0.attn_q.scale", &[1], 1.0)),
        ("tiny-F16", "llama", tensor("output.bias", &[512], 0.0)),
        // The model has two layers.
        ("tiny-F16", "llama", tensor("blk.2.attn_q.weight", &[256, 256], 0.0)),
        ("tiny-F16", "llama", tensor("blk.0.ffn_gate_inp.weight", &[256, 8], 0.0)),
        ("tiny-qwen2-Q4_K_M", "qwen2", tensor("blk.0.ffn_down.bias", &[256], 0.0)),
        ("tiny-qwen2-Q4_K_M", "qwen2", tensor("blk.0.attn_output.bias", &[256], 0.0)),
        ("tiny-qwen2-Q4_K_M", "qwen2", tensor("rope_freqs.weight", &[32], 1.0)),
        ("tiny-bitnet-TQ2_0", "bitnet", tensor("output.weight", &[256, 512], 0.0)),
        ("tiny-bitnet-TQ2_0", "bitnet", tensor("blk.0.ffn_up.bias", &[768], 0.0)),
    ] {
        let (name, ..) = &extra;
        let said = refused(model, std::slice::from_ref(&extra));
        let expected = format!(
            "for the architecture `{architecture}` the engine does not use 1 tensor of the file: `{name}` (the first \
             at byte "
        );
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn many_tensors_are_counted_and_the_first_of_them_named() {
    let extra: Vec<_> = (0..5).map(|i| tensor(&format!("v.blk.{i}.norm"), &[8 + i], 0.0)).collect();
    let said = refused("tiny-F16", &extra);
    let expected =
        "5 tensors of the file: `v.blk.0.norm`, `v.blk.1.norm`, `v.blk.2.norm` and 2 more";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn every_scale_is_a_kernel_in_the_profile() {
    let model = Model::from_gguf(with_tensors("tiny-bitnet-TQ2_0", &scales())).unwrap();
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).unwrap();
    let mut session = Session::new(&model, cpu, 8).unwrap();
    let profiler = BrickProfiler::enabled();
    session.forward_profiled(&profiler, &[1, 2]).unwrap();
    session.forward_profiled(&profiler, &[3]).unwrap();
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    for phase in [Phase::Prefill, Phase::Decode] {
        let kernels = profile.kernels(Some(phase));
        let scales: Vec<_> =
            kernels.iter().filter(|kernel| kernel.stats.name.starts_with("scale_")).collect();
        let found: Vec<_> = kernels.iter().map(|kernel| &kernel.stats.name).collect();
        let count: u64 = scales.iter().map(|kernel| kernel.stats.count).sum();
        assert_eq!(count, 7, "{phase:?}: {found:?}");
    }
}
