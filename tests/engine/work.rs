//! The bytes that bricks are stated to move, checked against the tensors in the file.
//!
//! A decoded token reads every weight once, but only one row of the embedding table (all of it
//! if it is also the head). So the stated bytes of the bricks that read weights, minus those of
//! their activations, are the sizes of the tensors.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;

use brickscope::BrickId::{self, *};
use brickscope::{BrickProfiler, DataSums, Phase};
use brickscope_engine::executor::Cpu;
use brickscope_engine::synth::{self, Shape, SynthQuant};
use brickscope_engine::{Model, Session};
use brickscope_kernels::Kernels;

/// The bricks that read weights.
const READERS: [BrickId; 8] = [
    Embedding,
    RmsNorm,
    QkvProjection,
    OutputProjection,
    GateProjection,
    UpProjection,
    DownProjection,
    LmHead,
];

/// What one decoded token states and what the file says, in bytes.
struct Bytes {
    stated: u64,
    in_file: u64,
    /// Of the file: biases and factors of RoPE, whose work is not stated (`docs/models.md`).
    unstated: u64,
}

fn bytes(path: &Path) -> Bytes {
    let model = Model::open(path).expect("a model");
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).expect("one thread");
    let mut session = Session::new(&model, cpu, 4).expect("room for four tokens");
    let profiler = BrickProfiler::enabled();
    session.forward_profiled(&profiler, &[1, 2, 3]).expect("a prompt");
    session.forward_profiled(&profiler, &[4]).expect("a token");
    let profile = profiler.profile();
    let decode = profile.phase(Phase::Decode).expect("a token was decoded");
    assert_eq!((decode.passes, decode.tokens), (1, 1));

    let bricks = profile.bricks(Some(Phase::Decode));
    let reader = |name: &str| READERS.iter().any(|brick| brick.name() == name);
    let readers: Vec<_> = bricks.iter().filter(|brick| reader(&brick.stats.name)).collect();
    assert_eq!(readers.len(), READERS.len());
    let rope = bricks.iter().find(|brick| brick.stats.name == RopeEmbedding.name());
    let rope = rope.expect("heads are rotated").stats.total_bytes;
    let all: u64 = readers.iter().map(|brick| brick.stats.total_bytes).sum();

    // Activations of a token are F32: a matrix reads its columns and writes its rows, a norm reads
    // and writes its width, and the embedding writes one row.
    let c = &model.config;
    let (dim, q, kv, ffn) = (c.dim as u64, c.q_dim() as u64, c.kv_dim() as u64, c.ffn_dim as u64);
    let layers = c.n_layers as u64;
    // Queries, keys and values in and out: the latter two into the KV cache.
    assert_eq!(rope, 8 * (q + 2 * kv) * layers);
    // The fourth token writes its keys and values, and attention reads all that were written.
    let cached = |brick: BrickId| {
        let found = bricks.iter().find(|total| total.stats.name == brick.name());
        found.expect("every brick ran").stats.data.kv
    };
    assert_eq!(cached(RopeEmbedding), 4 * kv * layers);
    assert_eq!([AttentionScore, AttentionOutput].map(cached), [4 * 4 * kv * layers; 2]);
    let has = |name: &str| model.gguf.tensor(name).is_some();
    let norms = 2 * dim * (2 * layers + 1)
        + if has("blk.0.attn_q_norm.weight") { 2 * (q + kv) * layers } else { 0 }
        + if has("blk.0.attn_sub_norm.weight") { 2 * q * layers } else { 0 }
        + if has("blk.0.ffn_sub_norm.weight") { 2 * ffn * layers } else { 0 };
    let matrices = [(q, dim), (kv, dim), (kv, dim), (dim, q), (ffn, dim), (ffn, dim), (dim, ffn)];
    let of_layer: u64 = matrices.iter().map(|(rows, cols)| rows + cols).sum();
    let activations = 4 * (dim + norms + layers * of_layer + c.n_vocab as u64 + dim);

    let rows_of_embedding = c.n_vocab as u64;
    let is_tied = !has("output.weight");
    let in_file = model.gguf.tensors.iter().map(|tensor| {
        let bytes = model.gguf.bytes(tensor).len() as u64;
        match tensor.name.as_str() {
            "token_embd.weight" if is_tied => bytes + bytes / rows_of_embedding,
            "token_embd.weight" => bytes / rows_of_embedding,
            _ => bytes,
        }
    });
    let in_file = in_file.sum();
    let is_unstated = |name: &str| name.ends_with(".bias") || name == "rope_freqs.weight";
    let unstated = model.gguf.tensors.iter().filter(|tensor| is_unstated(&tensor.name));
    let unstated = unstated.map(|tensor| model.gguf.bytes(tensor).len() as u64).sum();
    let weights: u64 = bricks.iter().map(|brick| brick.stats.data.weights).sum();
    assert_eq!(weights, all - activations, "said to be weights, and not said to be activations");
    let told = |data: DataSums| data.weights + data.kv + data.activations;
    for brick in &bricks {
        assert_eq!(told(brick.stats.data), brick.stats.total_bytes, "{}", brick.stats.name);
    }
    Bytes { stated: weights, in_file, unstated }
}

fn agrees(path: &Path) {
    let Bytes { stated, in_file, unstated } = bytes(path);
    let ratio = stated as f64 / in_file as f64;
    assert!((ratio - 1.0).abs() < 0.01, "{}: {stated} of {in_file} bytes", path.display());
    assert_eq!(stated + unstated, in_file, "{}", path.display());
}

#[test]
fn a_token_reads_each_weight_of_the_file_once() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/models");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(models).expect("the folder of models") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            agrees(&path);
            names.insert(path);
        }
    }
    assert!(names.len() >= 7, "{names:?}");
}

#[test]
fn synthetic_models_agree_in_every_format() {
    let folder = tempfile::tempdir().expect("a folder");
    for quant in SynthQuant::ALL {
        let path = synth::cached(Shape::Tiny, quant, 1, folder.path(), &mut |_, _| ());
        agrees(&path.expect("a model"));
    }
}
