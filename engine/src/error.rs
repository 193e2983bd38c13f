//! What can go wrong with a model, and with a device that runs one.

use std::path::PathBuf;

use brickscope::DeviceError;

use crate::gguf::{self, TensorType};
use crate::tokenizer;

/// Why a model can't be run, or can't serve a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence above each variant says what its fields are")]
pub enum Error {
    /// The file isn't a model file that can be read.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),

    /// The vocabulary in the file can't be used, or can't spell a text.
    #[error("{}: {cause}", file.display())]
    Tokenizer { file: PathBuf, cause: tokenizer::Error },

    /// An architecture that the engine doesn't support.
    #[error(
        "{}: `general.architecture` is `{}` (byte {at}), but this engine supports llama, qwen2, qwen3, bitnet and bitnet-b1.58",
        file.display(), name.escape_debug()
    )]
    UnknownArchitecture { file: PathBuf, name: String, at: u64 },

    /// A file that goes with a model and is none itself.
    #[error("{}: {what}", file.display())]
    NoModel { file: PathBuf, what: &'static str },

    /// A number in the file that makes no sense, or asks for something that isn't there.
    #[error("{}: `{key}` is {value} (byte {at}), which {why}", file.display())]
    BadConfig { file: PathBuf, key: String, value: String, why: String, at: u64 },

    /// A tensor that the architecture needs is missing.
    #[error("{}: there is no tensor `{name}`, which the architecture needs", file.display())]
    MissingTensor { file: PathBuf, name: String },

    /// Tensors that the engine doesn't compute with. `names` are the first of them.
    #[error(
        "{}: for the architecture `{architecture}` the engine does not use {count} {} of the file: {} (the first at \
         byte {at}); without {} the result may be wrong",
        file.display(),
        if *count == 1 { "tensor" } else { "tensors" },
        listed(names, *count),
        if *count == 1 { "it" } else { "them" }
    )]
    UnusedTensors {
        file: PathBuf,
        architecture: &'static str,
        count: usize,
        names: Vec<String>,
        at: u64,
    },

    /// A tensor of another shape than the architecture needs.
    #[error(
        "{}: tensor `{name}` (at byte {at}) has the shape {found:?}, but should have {expected:?}",
        file.display()
    )]
    TensorShape { file: PathBuf, name: String, at: u64, found: Vec<usize>, expected: Vec<usize> },

    /// A tensor of a type that there are no kernels for.
    #[error(
        "{}: tensor `{name}` (at byte {at}) is stored as {kind}, for which there are no kernels yet",
        file.display()
    )]
    TensorKind { file: PathBuf, name: String, at: u64, kind: TensorType },

    /// More tokens than there is room for.
    #[error("{}: {asked} tokens do not fit the context, which has room for {room}: {limit}", file.display())]
    Context { file: PathBuf, asked: usize, room: usize, limit: String },

    /// More memory than there is.
    #[error(
        "{}: a context of {context} tokens takes {bytes} bytes of memory, which this system does not have",
        file.display()
    )]
    Memory { file: PathBuf, context: usize, bytes: u128 },

    /// Two models that can't be compared brick by brick.
    #[error(
        "{} and {} have different shapes and can't be compared brick by brick: {what}: {a} and {b}",
        file.display(), other.display()
    )]
    Shapes { file: PathBuf, other: PathBuf, what: &'static str, a: String, b: String },

    /// The device that runs the model failed.
    #[error(transparent)]
    Device(#[from] GpuError),

    /// The system has no room for another thread. The reason is a string, since errors are compared.
    #[error("can't start a thread: {0}")]
    Thread(String),

    /// A pass over no tokens.
    #[error("a forward pass needs at least one token")]
    NoTokens,

    /// A token that the vocabulary doesn't have.
    #[error("token {index} of the input is {id}, but the vocabulary has {n_vocab} tokens")]
    TokenId { index: usize, id: u32, n_vocab: usize },
}

/// The first of `count` tensors, and how many more there are.
fn listed(names: &[String], count: usize) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{}`", name.escape_debug())).collect();
    match count - names.len() {
        0 => quoted.join(", "),
        more => format!("{} and {more} more", quoted.join(", ")),
    }
}

/// Why a device can't run a model, or no longer can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no suitable device. One line, with what to do.
    #[error("no {api} device: {reason}")]
    NoDevice {
        /// `vulkan`, `cuda` …
        api: &'static str,
        /// Why.
        reason: String,
    },
    /// The model doesn't fit.
    #[error("{device}: {what} takes {bytes} bytes, {limit}")]
    TooLarge {
        /// The device.
        device: String,
        /// What doesn't fit: a tensor's name, the KV cache …
        what: String,
        /// Its size.
        bytes: u64,
        /// The limit that it exceeds.
        limit: String,
    },
    /// The model has something that only the CPU computes with.
    #[error(
        "{device}: {what}, which only the CPU computes with: use `--backend` avx512, avx2, neon or scalar"
    )]
    Unsupported {
        /// The device.
        device: String,
        /// What the model has.
        what: String,
    },
    /// A call failed, or the device is lost.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
