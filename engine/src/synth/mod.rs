//! Models of real shapes with seeded random weights.
//!
//! A model's speed doesn't depend on the values of its weights, only on their number and
//! how they are stored. So speed can be measured without a download: these files have the shapes, the
//! metadata and the quantisation of real models, llama.cpp loads them, and the text they produce is
//! noise.
//!
//! ```no_run
//! use std::path::Path;
//! use brickscope_engine::synth::{self, Shape, SynthQuant};
//!
//! let model = synth::cached(Shape::M110, SynthQuant::Q8_0, 1, Path::new("cache"), &mut |done, total| {
//!     eprint!("\r{} %", done * 100 / total);
//! })?;
//! # Ok::<(), brickscope_engine::gguf::Error>(())
//! ```

mod random;
mod tokens;
mod vocabulary;

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use brickscope_kernels::quant::{QuantType, quantize_row};

use crate::gguf::{Error, TensorInfo, TensorType, Writer, write_atomically};
use random::Random;
use vocabulary::Vocabulary;

pub use tokens::random_tokens;

/// Part of the names of cached files. Raise it with any change to what is written, so that old
/// files aren't used as new ones.
const REVISION: u32 = 2;

/// How many numbers are made at a time. A multiple of all block lengths; 256 KiB of floats stay in
/// the cache of one core.
const PIECE: usize = 1 << 16;

/// How large a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// 1.8 million weights in two layers: for tests.
    Tiny,
    /// 110 million weights, as in stories110M: an answer in seconds.
    M110,
    /// 1.1 billion weights, TinyLlama's shape: what people run on a laptop.
    B1,
    /// 26 million weights in four layers of a mixture, of whose 32 experts each token chooses four. llama.cpp runs it;
    /// this engine doesn't.
    Moe,
}

/// How the weights are stored.
#[allow(non_camel_case_types, reason = "these are the names that people know from file names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SynthQuant {
    /// 8 bits and a scale per 32 weights.
    Q8_0,
    /// 6 bits.
    Q6_K,
    /// 4 bits in all layers; the head has 6. None of llama.cpp's mixtures: `Q4_K_S` comes nearest.
    Q4_K,
    /// llama.cpp's mixture of this name: 4 bits; 6 for the head, and for V and the down projection of about
    /// half of the layers.
    Q4_K_M,
    /// As that, with 5 bits instead of 4.
    Q5_K_M,
    /// 4 bits and a scale per 32 weights; the head has 6, as llama.cpp makes it.
    Q4_0,
    /// Ternary; the head has 6 bits, as llama.cpp makes it.
    TQ2_0,
    /// Half floats.
    F16,
    /// Floats.
    F32,
}

impl Shape {
    /// All shapes, the smallest first; then the mixture.
    pub const ALL: [Self; 4] = [Self::Tiny, Self::M110, Self::B1, Self::Moe];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::M110 => "110m",
            Self::B1 => "1b",
            Self::Moe => "moe",
        }
    }

    fn sizes(self) -> Sizes {
        match self {
            Self::Tiny => Sizes {
                dim: 256,
                n_layers: 2,
                n_heads: 4,
                n_kv_heads: 2,
                ffn_dim: 768,
                n_vocab: 512,
                n_context: 512,
                is_tied: false,
                experts: None,
            },
            Self::M110 => Sizes {
                dim: 768,
                n_layers: 12,
                n_heads: 12,
                n_kv_heads: 12,
                ffn_dim: 2048,
                n_vocab: 32_000,
                n_context: 2048,
                is_tied: true,
                experts: None,
            },
            Self::B1 => Sizes {
                dim: 2048,
                n_layers: 22,
                n_heads: 32,
                n_kv_heads: 4,
                ffn_dim: 5632,
                n_vocab: 32_000,
                n_context: 2048,
                is_tied: false,
                experts: None,
            },
            Self::Moe => Sizes {
                dim: 256,
                n_layers: 4,
                n_heads: 4,
                n_kv_heads: 2,
                ffn_dim: 256,
                n_vocab: 512,
                n_context: 2048,
                is_tied: false,
                experts: Some([32, 4]),
            },
        }
    }
}

impl SynthQuant {
    /// All of them, the smallest files first.
    pub const ALL: [Self; 9] = [
        Self::TQ2_0,
        Self::Q4_0,
        Self::Q4_K,
        Self::Q4_K_M,
        Self::Q5_K_M,
        Self::Q6_K,
        Self::Q8_0,
        Self::F16,
        Self::F32,
    ];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q6_K => "q6_k",
            Self::Q4_K => "q4_k",
            Self::Q4_K_M => "q4_k_m",
            Self::Q5_K_M => "q5_k_m",
            Self::Q4_0 => "q4_0",
            Self::TQ2_0 => "tq2_0",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }

    /// The types of linear weights, and of the matrix that makes the logits. [`type_in`](Self::type_in) knows
    /// of exceptions.
    fn types(self) -> (TensorType, TensorType) {
        match self {
            Self::Q8_0 => (TensorType::Q8_0, TensorType::Q8_0),
            Self::Q6_K => (TensorType::Q6_K, TensorType::Q6_K),
            Self::Q4_K | Self::Q4_K_M => (TensorType::Q4_K, TensorType::Q6_K),
            Self::Q5_K_M => (TensorType::Q5_K, TensorType::Q6_K),
            Self::Q4_0 => (TensorType::Q4_0, TensorType::Q6_K),
            Self::TQ2_0 => (TensorType::TQ2_0, TensorType::Q6_K),
            Self::F16 => (TensorType::F16, TensorType::F16),
            Self::F32 => (TensorType::F32, TensorType::F32),
        }
    }

    /// The type of V and the down projection in a layer, as `llama_tensor_get_type_impl` of llama.cpp's
    /// `src/llama-quant.cpp` chooses it for the architecture llama.
    fn type_in(self, layer: usize, n_layers: usize) -> TensorType {
        match self {
            Self::Q4_K_M | Self::Q5_K_M if uses_more_bits(layer, n_layers) => TensorType::Q6_K,
            _ => self.types().0,
        }
    }

    /// The type of a matrix in a model of any shape. `is_tied`: the embedding makes the logits, too.
    pub(crate) fn type_of(self, name: &str, is_tied: bool, n_layers: usize) -> TensorType {
        let (linear, head) = self.types();
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        match (name, layer) {
            (HEAD, _) => head,
            (EMBEDDING, _) => {
                if is_tied {
                    head
                } else {
                    linear
                }
            }
            (_, Some((layer, "attn_v.weight" | "ffn_down.weight"))) => {
                self.type_in(layer.parse().unwrap_or(0), n_layers)
            }
            _ => linear,
        }
    }

    /// llama.cpp's number for the mixture of types, `general.file_type`.
    pub(crate) fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q8_0 => 7,
            Self::Q4_K => 14,
            Self::Q4_K_M => 15,
            Self::Q5_K_M => 17,
            Self::Q6_K => 18,
            Self::TQ2_0 => 37,
        }
    }
}

/// The layers whose V and down projection get 6 bits in llama.cpp's mixtures: the first and the last eighth,
/// and every third between them. `use_more_bits` in its `src/llama-quant.cpp`.
fn uses_more_bits(layer: usize, n_layers: usize) -> bool {
    let eighth = n_layers / 8;
    layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for SynthQuant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Shape {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let unknown =
            || UnknownName { name: name.to_owned(), what: "shape", known: "tiny, 110m, 1b, moe" };
        Self::ALL.into_iter().find(|shape| shape.name() == name).ok_or_else(unknown)
    }
}

impl FromStr for SynthQuant {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let unknown = || UnknownName {
            name: name.to_owned(),
            what: "quantisation",
            known: "tq2_0, q4_0, q4_k, q4_k_m, q5_k_m, q6_k, q8_0, f16, f32",
        };
        Self::ALL.into_iter().find(|quant| quant.name() == name).ok_or_else(unknown)
    }
}

/// A name that stands for no [`Shape`] or [`SynthQuant`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no synthetic {what} `{name}`: choose one of {known}")]
pub struct UnknownName {
    name: String,
    what: &'static str,
    known: &'static str,
}

/// Makes the model file at `path`. The same shape, quantisation and seed give the same bytes on
/// every machine.
///
/// Takes a few seconds per billion weights on one core, and some megabytes of memory, most of them
/// for the vocabulary. `progress` repeatedly gets the bytes written so far and the length of the file.
/// The file appears only when it is complete.
///
/// # Errors
///
/// If the file can't be written.
pub fn write(
    shape: Shape,
    quant: SynthQuant,
    seed: u64,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let plan = plan(shape, quant, seed, path);
    write_atomically(path, |out| write_plan(&plan, seed, out, progress))
}

/// The model file in `cache_dir`, made if it isn't there.
///
/// A file of the wrong length, such as one truncated by a full disk, is made
/// again. The folder is created if it is missing.
///
/// # Errors
///
/// If the file can't be written.
pub fn cached(
    shape: Shape,
    quant: SynthQuant,
    seed: u64,
    cache_dir: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<PathBuf, Error> {
    let path = cache_dir.join(format!("synth-{shape}-{quant}-seed{seed}-r{REVISION}.gguf"));
    let plan = plan(shape, quant, seed, &path);
    let file_len = plan.file_len()?;
    let is_whole =
        fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == file_len);
    if !is_whole {
        fs::create_dir_all(cache_dir)
            .map_err(|cause| Error::Write { file: cache_dir.to_owned(), cause })?;
        write_atomically(&path, |out| write_plan(&plan, seed, out, progress))?;
    }
    Ok(path)
}

/// The sizes of a shape.
struct Sizes {
    dim: usize,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: usize,
    ffn_dim: usize,
    n_vocab: usize,
    n_context: usize,
    /// Whether the embedding is also the matrix that makes the logits.
    is_tied: bool,
    /// Of a mixture, how many experts a layer has, and how many of them each token chooses.
    experts: Option<[usize; 2]>,
}

/// The metadata and the tensors: all but the weights.
fn plan(shape: Shape, quant: SynthQuant, seed: u64, path: &Path) -> Writer {
    let Sizes { dim, n_layers, n_heads, n_kv_heads, ffn_dim, n_vocab, n_context, is_tied, experts } =
        shape.sizes();
    let head_dim = dim / n_heads;
    let kv_dim = n_kv_heads * head_dim;
    let mut writer = Writer::new(path);
    writer
        .set("general.architecture", "llama")
        .set("general.name", format!("brickscope-synth-{shape}"))
        .set(
            "general.description",
            format!("random weights (seed {seed}): timings are real, text is noise"),
        )
        .set("llama.context_length", n_context as u32)
        .set("llama.embedding_length", dim as u32)
        .set("llama.block_count", n_layers as u32)
        .set("llama.feed_forward_length", ffn_dim as u32)
        .set("llama.attention.head_count", n_heads as u32)
        .set("llama.attention.head_count_kv", n_kv_heads as u32)
        .set("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .set("llama.rope.freq_base", 10_000f32)
        .set("llama.rope.dimension_count", head_dim as u32)
        .set("llama.vocab_size", n_vocab as u32);
    if let Some([all, used]) = experts {
        // As Mixtral's: llama.cpp has it among this architecture.
        writer.set("llama.expert_count", all as u32).set("llama.expert_used_count", used as u32);
    }
    Vocabulary::new(n_vocab).describe(&mut writer);
    writer.set("general.quantization_version", 2u32).set("general.file_type", quant.file_type());

    let (linear, head) = quant.types();
    let norm = TensorType::F32;
    writer.tensor(EMBEDDING, &[dim, n_vocab], if is_tied { head } else { linear });
    for layer in 0..n_layers {
        let more = quant.type_in(layer, n_layers);
        let mut tensor = |part: &str, dims: &[usize], kind| {
            writer.tensor(format!("blk.{layer}.{part}.weight"), dims, kind);
        };
        tensor("attn_norm", &[dim], norm);
        tensor("attn_q", &[dim, dim], linear);
        tensor("attn_k", &[dim, kv_dim], linear);
        tensor("attn_v", &[dim, kv_dim], more);
        tensor("attn_output", &[dim, dim], linear);
        tensor("ffn_norm", &[dim], norm);
        if let Some([all, _]) = experts {
            // What chooses among them stays as it is in all of llama.cpp's mixtures.
            tensor("ffn_gate_inp", &[dim, all], TensorType::F32);
            tensor("ffn_gate_exps", &[dim, ffn_dim, all], linear);
            tensor("ffn_up_exps", &[dim, ffn_dim, all], linear);
            tensor("ffn_down_exps", &[ffn_dim, dim, all], more);
            continue;
        }
        tensor("ffn_gate", &[dim, ffn_dim], linear);
        tensor("ffn_up", &[dim, ffn_dim], linear);
        tensor("ffn_down", &[ffn_dim, dim], more);
    }
    writer.tensor("output_norm.weight", &[dim], norm);
    if !is_tied {
        writer.tensor(HEAD, &[dim, n_vocab], head);
    }
    writer
}

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

fn write_plan(
    plan: &Writer,
    seed: u64,
    out: impl Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let mut data = plan.begin(out)?;
    let mut numbers = vec![0.0f32; PIECE];
    let mut bytes = Vec::new();
    while let Some(tensor) = data.awaits() {
        let (mean, deviation) = distribution(tensor);
        let mut random = Random::for_tensor(seed, &tensor.name);
        let kind = QuantType::from_ggml(tensor.kind.id())
            .expect("the kernels know all types that are in a plan");
        let mut left = tensor.n_elements();
        while left > 0 {
            let numbers = &mut numbers[..left.min(PIECE)];
            random.fill(numbers, mean, deviation);
            bytes.clear();
            quantize_row(kind, numbers, &mut bytes);
            data.write(&bytes)?;
            let (done, total) = data.progress();
            progress(done, total);
            left -= numbers.len();
        }
    }
    data.finish().map(drop)
}

/// The mean and the standard deviation of a tensor's numbers.
///
/// A row of `n` weights with the deviation 1/√n keeps the size of what it is multiplied with, so a
/// residual stream grows like the root of the number of layers and stays finite. The logits get
/// twice that: their deviation is about 2, as in real models.
fn distribution(tensor: &TensorInfo) -> (f32, f32) {
    if tensor.dims.len() == 1 {
        return (1.0, 0.05);
    }
    let unit = 1.0 / (tensor.n_cols() as f32).sqrt();
    let makes_logits = tensor.name == HEAD || tensor.name == EMBEDDING;
    (0.0, if makes_logits { 2.0 * unit } else { unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixtures_give_more_bits_to_the_layers_that_llama_cpp_gives_them_to() {
        let layers = |n: usize| (0..n).filter(|&i| uses_more_bits(i, n)).collect::<Vec<_>>();
        // By hand, from the C++: of 22 layers 22 / 8 is 2 and 7 * 22 / 8 is 19.
        assert_eq!(layers(22), [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
        assert_eq!(layers(12), [0, 3, 6, 9, 10, 11]);
        assert_eq!(layers(2), [1]);
        assert_eq!(layers(1), [0]);
        assert!(layers(0).is_empty());
    }

    #[test]
    fn only_mixtures_have_two_types_in_their_layers() {
        for quant in SynthQuant::ALL {
            let has_two = (0..22).any(|i| quant.type_in(i, 22) != quant.types().0);
            assert_eq!(
                has_two,
                [SynthQuant::Q4_K_M, SynthQuant::Q5_K_M].contains(&quant),
                "{quant}"
            );
        }
    }
}
