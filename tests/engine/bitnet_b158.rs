//! Microsoft's `bitnet-b1.58-2B-4T`, on a small file in its layout.
//!
//! `tiny-bitnet-b158-I2_S.logits.bin` and `….alone.logits.bin` hold what bitnet.cpp makes of that file: microsoft/BitNet
//! at 765741d with its llama.cpp at 40ed0f29 (May 2025), no line of which was changed, built with GCC 12.2 on x86-64
//! with AVX-512, without OpenMP; on one thread, in one batch, with its defaults (F16 KV cache, no flash attention). A
//! program of 60 lines called `llama_decode` and wrote what `llama_get_logits_ith` gave. `tests/logits.rs` reads
//! the former, too. The ids and tokens of texts below are from the same program.

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::Gguf;
use brickscope_engine::tokenizer::Special;
use brickscope_engine::{Architecture, GenerateOptions, Model, Sampling, Session, generate};
use brickscope_kernels::{Backend, Kernels};

use crate::bitnet;
use crate::reference;
use crate::reference::Rounding;

fn path() -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/models");
    models.join("tiny-bitnet-b158-I2_S.gguf")
}

/// With `BRICKSCOPE_WRITE_FIXTURES` set, the file is written instead.
#[test]
fn the_fixture_is_what_the_generator_writes() {
    let bytes = bitnet::file(bitnet::SEED);
    if std::env::var_os("BRICKSCOPE_WRITE_FIXTURES").is_some() {
        fs::write(path(), &bytes).unwrap();
    }
    assert!(fs::read(path()).unwrap() == bytes);
}

#[test]
fn it_is_read_as_the_file_says() {
    let model = Model::open(&path()).unwrap();
    assert_eq!(model.config.architecture, Architecture::BitNetB158);
    let (c, tokenizer) = (&model.config, &model.tokenizer);
    assert_eq!((c.n_heads, c.n_kv_heads, c.context_length, c.rope_base), (4, 1, 4096, 500_000.0));
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(502), Some(503)));
    assert_eq!(model.quantization(), "i2_s");
    // As in the real one: 7 matrices and 4 norms a layer, the embedding and a norm.
    assert_eq!(model.gguf.tensors.len(), 11 * c.n_layers + 2);
}

/// Texts with the ids that bitnet.cpp makes of them. The file names no pre-tokenizer, for which it takes `default`.
const TEXTS: [(&str, &[u32]); 4] = [
    ("2+2=", &[502, 17, 10, 17, 28]),
    (
        "Hello, world! 12345 is 2+2=4.\n   the  water",
        &[
            502, 39, 68, 75, 75, 78, 11, 305, 75, 67, 0, 220, 16, 17, 18, 19, 20, 270, 220, 17, 10,
            17, 28, 19, 13, 198, 256, 261, 220, 450,
        ],
    ),
    (
        "<|begin_of_text|>The answer (of course)... isn't 3.14—naïve? 東京",
        &[
            502, 27, 91, 65, 68, 70, 72, 77, 62, 78, 69, 62, 83, 68, 87, 83, 91, 29, 51, 71, 68,
            265, 82, 86, 68, 81, 220, 7, 78, 69, 413, 81, 82, 68, 8, 13, 13, 13, 270, 77, 6, 83,
            220, 18, 13, 16, 19, 158, 222, 242, 77, 64, 127, 107, 85, 68, 30, 220, 162, 251, 109,
            160, 118, 105,
        ],
    ),
    (
        "\tif x<=10^3: y+=~z|w $5",
        &[
            502, 197, 72, 69, 220, 87, 27, 28, 16, 15, 61, 18, 25, 338, 10, 28, 93, 89, 91, 86,
            220, 3, 20,
        ],
    ),
];

#[test]
fn texts_become_the_ids_that_bitnet_cpp_makes_of_them() {
    let model = Model::open(&path()).unwrap();
    for (text, ids) in TEXTS {
        assert_eq!(model.encode(text, Special::default()).unwrap(), ids, "{text}");
    }
}

/// What bitnet.cpp generates after `2+2=`, always taking the likeliest token. It leads by 0.4 or more each time.
const GREEDY: [u32; 16] =
    [407, 304, 91, 199, 201, 190, 361, 361, 236, 236, 236, 236, 236, 236, 423, 423];

fn backends() -> impl Iterator<Item = Kernels> {
    let all = [Backend::Scalar, Backend::Avx2, Backend::Avx512, Backend::Neon];
    all.into_iter().filter_map(|backend| Kernels::new(backend).ok())
}

#[test]
fn sixteen_tokens_after_the_prompt_are_those_of_bitnet_cpp() {
    let model = Model::open(&path()).unwrap();
    let prompt = model.encode("2+2=", Special::default()).unwrap();
    for kernels in backends() {
        let cpu = Cpu::new(kernels, NonZeroUsize::new(2).unwrap()).unwrap();
        let mut session = Session::new(&model, cpu, 32).unwrap();
        let options = GenerateOptions { n_tokens: 16, sampling: Sampling::Greedy };
        let answer =
            generate(&mut session, None, &prompt, options, &mut |_| ControlFlow::Continue(()))
                .unwrap();
        assert_eq!(answer.tokens, GREEDY, "{}", kernels.backend());
    }
}

/// The ids of a file of logits, and bitnet.cpp's logits: of `logits.bin`, after each id of a text of these; of
/// `alone.logits.bin`, of each id as the only one.
fn of_bitnet_cpp(extension: &str) -> (Vec<u32>, Vec<f64>) {
    let bytes = fs::read(path().with_extension(extension)).unwrap();
    let word = |i: usize| -> [u8; 4] { bytes[4 * i..][..4].try_into().unwrap() };
    let number = |i| u32::from_le_bytes(word(i)) as usize;
    let (n, n_vocab, n_greedy) = (number(1), number(2), number(3));
    let ids = (5..5 + n).map(|i| number(i) as u32).collect();
    let first = 5 + n + n_greedy;
    let logits = first..first + n * n_vocab;
    (ids, logits.map(|i| f64::from(f32::from_le_bytes(word(i)))).collect())
}

/// The mean Kullback–Leibler divergence of rows of 512 logits, and the largest difference.
fn distance(found: &[f64], expected: &[f64]) -> (f64, f64) {
    assert_eq!(found.len(), expected.len());
    let log_softmax = |row: &[f64]| {
        let most = row.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = row.iter().map(|l| (l - most).exp()).sum();
        row.iter().map(|l| l - most - sum.ln()).collect::<Vec<_>>()
    };
    let rows = found.chunks_exact(512).zip(expected.chunks_exact(512));
    let kl: f64 = rows
        .map(|(found, expected)| {
            let (q, p) = (log_softmax(found), log_softmax(expected));
            p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>()
        })
        .sum();
    let most = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    (kl / (found.len() / 512) as f64, most.fold(0.0, |most, d| if d <= most { most } else { d }))
}

#[test]
fn logits_are_those_of_a_forward_pass_in_f64_that_shares_no_code() {
    let model = Model::open(&path()).unwrap();
    let (ids, _) = of_bitnet_cpp("logits.bin");
    let expected = reference::logits(&model.gguf, &ids, Rounding::None);
    for kernels in backends() {
        let session = || {
            let cpu = Cpu::new(kernels, NonZeroUsize::new(2).unwrap()).unwrap();
            Session::new(&model, cpu, 32).unwrap()
        };
        let at_once = session().all_logits(&ids).unwrap();
        let mut session = session();
        let one_by_one: Vec<f32> =
            ids.iter().flat_map(|&id| session.forward(&[id]).unwrap().to_vec()).collect();
        for (what, logits) in [("at once", at_once), ("one by one", one_by_one)] {
            let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
            let (kl, most) = distance(&logits, &expected);
            println!("{} {what}: max |d| {most:.1e}, mean KL {kl:.1e}", kernels.backend());
            // AVX-512 rounds activations to 8 bits.
            let is_close = match kernels.backend() {
                Backend::Avx512 => kl < 5e-3,
                _ => most < 1e-4,
            };
            assert!(is_close, "{} {what}: {most}, {kl}", kernels.backend());
        }
    }
}

/// The largest difference of each row.
fn row_distances(found: &[f64], expected: &[f64]) -> Vec<f64> {
    let rows = found.chunks_exact(512).zip(expected.chunks_exact(512));
    rows.map(|(found, expected)| distance(found, expected).1).collect()
}

/// With bitnet.cpp's rounding of activations, the forward pass in f64 has bitnet.cpp's logits, where its codes are
/// bitnet.cpp's, too. Where a number lies between two codes, F32 may round it to one and F64 to the other. That
/// changes the codes after it, and the logits by some tenths. With SiLU in the gate, as in files of the architecture
/// `bitnet`, nothing agrees.
#[test]
fn the_forward_pass_in_f64_is_that_of_bitnet_cpp() {
    let gguf = Gguf::open(&path()).unwrap();
    let (ids, expected) = of_bitnet_cpp("alone.logits.bin");
    let each = |logits: &dyn Fn(&[u32]) -> Vec<f64>| -> Vec<f64> {
        ids.iter().flat_map(|&id| logits(&[id])).collect()
    };
    // For a single token bitnet.cpp also rounds the input of the head to F16.
    let n_equal = |distances: &[f64]| distances.iter().filter(|most| **most < 1e-2).count();
    let found = each(&|ids| reference::logits(&gguf, ids, Rounding::BitnetCpp));
    let distances = row_distances(&found, &expected);
    println!("alone: {distances:.4?}");
    assert!(n_equal(&distances) >= 14, "{distances:?}");
    let silu = each(&|ids| reference::logits_with_silu(&gguf, ids, Rounding::BitnetCpp));
    assert_eq!(n_equal(&row_distances(&silu, &expected)), 0);

    let (ids, expected) = of_bitnet_cpp("logits.bin");
    let found = reference::logits(&gguf, &ids, Rounding::BitnetCpp);
    let (distances, (kl, most)) = (row_distances(&found, &expected), distance(&found, &expected));
    println!("one after the other: mean KL {kl:.1e}, max |d| {most:.1e}: {distances:.4?}");
    // The first token and the third, which attends to three.
    assert!(distances[0] < 1e-4 && distances[2] < 1e-3, "{distances:?}");
    assert!(kl < 2.5e-3, "{kl}");
    let silu = reference::logits_with_silu(&gguf, &ids, Rounding::BitnetCpp);
    let (kl, _) = distance(&silu, &expected);
    assert!(kl > 0.1, "{kl}");
}
