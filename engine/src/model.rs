//! A model: its file, its shape, its weights and its tokenizer.

use std::path::{Path, PathBuf};

use brickscope_kernels::Kernels;

use crate::config::Config;
use crate::gguf::{self, Gguf, TensorType};
use crate::tokenizer::{self, Model as TokenizerModel, Special, TokenType, Tokenizer, Vocabulary};
use crate::weights::Weights;

/// A model that can be run.
#[derive(Debug)]
pub struct Model {
    /// The file, mapped or copied into memory, where `weights` may have rows put side by side.
    pub gguf: Gguf,
    /// The shape.
    pub config: Config,
    /// Where the weights are.
    pub weights: Weights,
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
}

/// A model that can't be run, or a request that it can't serve.
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

    /// An architecture that the engine doesn't compute.
    #[error(
        "{}: `general.architecture` is `{}` (byte {at}), but this engine computes llama, qwen2, qwen3 and bitnet",
        file.display(), name.escape_debug()
    )]
    UnknownArchitecture { file: PathBuf, name: String, at: u64 },

    /// A number in the file that makes no sense, or asks for something that isn't there.
    #[error("{}: `{key}` is {value} (byte {at}), which {why}", file.display())]
    BadConfig { file: PathBuf, key: String, value: String, why: String, at: u64 },

    /// A tensor that the architecture needs.
    #[error("{}: there is no tensor `{name}`, which the architecture needs", file.display())]
    MissingTensor { file: PathBuf, name: String },

    /// A tensor that isn't of the shape that the architecture needs.
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
        "{}: a context of {context} tokens takes {bytes} bytes of memory, which this system does not give",
        file.display()
    )]
    Memory { file: PathBuf, context: usize, bytes: u128 },

    /// Two models that can't be compared brick by brick.
    #[error(
        "{} and {} have different shapes, which can't be compared brick by brick: {what}: {a} and {b}",
        file.display(), other.display()
    )]
    Shapes { file: PathBuf, other: PathBuf, what: &'static str, a: String, b: String },

    /// The device that runs the model.
    #[error(transparent)]
    Device(#[from] crate::executor::gpu::GpuError),

    /// A pass over no tokens.
    #[error("a forward pass needs at least one token")]
    NoTokens,

    /// A token that the vocabulary doesn't have.
    #[error("token {index} of the input is {id}, but the vocabulary has {n_vocab} tokens")]
    TokenId { index: usize, id: u32, n_vocab: usize },
}

impl Model {
    /// Whether `tokens` can be run where `taken` positions of `capacity` are.
    pub(crate) fn check_tokens(
        &self,
        tokens: &[u32],
        taken: usize,
        capacity: usize,
    ) -> Result<(), Error> {
        if tokens.is_empty() {
            return Err(Error::NoTokens);
        }
        let n_vocab = self.config.n_vocab;
        if let Some((index, &id)) = (0..).zip(tokens).find(|&(_, &id)| id as usize >= n_vocab) {
            return Err(Error::TokenId { index, id, n_vocab });
        }
        let limit = || format!("{taken} of {capacity} are taken");
        self.check_room(tokens.len(), capacity - taken, limit)
    }

    /// Whether `prompt` can be run there, and `n_tokens` be chosen after it. The last one is chosen and not
    /// run.
    pub(crate) fn check_run(
        &self,
        prompt: &[u32],
        n_tokens: usize,
        taken: usize,
        capacity: usize,
    ) -> Result<(), Error> {
        self.check_tokens(prompt, taken, capacity)?;
        let needed = prompt.len().saturating_add(n_tokens.saturating_sub(1));
        let limit = || format!("{} for the prompt, the rest for the answer", prompt.len());
        self.check_room(needed, capacity - taken, limit)
    }

    fn check_room(
        &self,
        asked: usize,
        room: usize,
        limit: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        if asked <= room {
            return Ok(());
        }
        Err(Error::Context { file: self.gguf.path.clone(), asked, room, limit: limit() })
    }

    /// Opens a model file. The weights stay in the file, and are read when they are first touched.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or isn't a model that the engine computes.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::from_gguf(Gguf::open(path)?)
    }

    /// Copies a model file into memory: see [`Gguf::load`].
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn load(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Self, Error> {
        Self::from_gguf(Gguf::load(path, progress)?)
    }

    /// Copies the weights of an open file into memory: see [`Gguf::copy_into_memory`].
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn copy_into_memory(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        Ok(self.gguf.copy_into_memory(progress)?)
    }

    /// The model in an open file.
    ///
    /// # Errors
    ///
    /// If it isn't a model that the engine computes.
    pub fn from_gguf(gguf: Gguf) -> Result<Self, Error> {
        let config = Config::read(&gguf)?;
        let weights = Weights::find(&gguf, &config)?;
        let tokenizer = read_tokenizer(&gguf)?;
        if tokenizer.n_tokens() > config.n_vocab {
            return Err(Error::BadConfig {
                file: gguf.path.clone(),
                key: "tokenizer.ggml.tokens".to_owned(),
                value: format!("a list of {} tokens", tokenizer.n_tokens()),
                why: format!("is more than the {} rows of token_embd.weight", config.n_vocab),
                at: gguf.metadata.at("tokenizer.ggml.tokens"),
            });
        }
        Ok(Self { gguf, config, weights, tokenizer })
    }

    /// The tokens of a text.
    ///
    /// # Errors
    ///
    /// If the vocabulary can't spell it.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, Error> {
        let fault = |cause| Error::Tokenizer { file: self.gguf.path.clone(), cause };
        self.tokenizer.encode(text, special).map_err(fault)
    }

    /// How many weights there are, a tied head counted once.
    #[must_use]
    pub fn n_parameters(&self) -> u64 {
        self.gguf.tensors.iter().map(|tensor| tensor.n_elements() as u64).sum()
    }

    /// The type that most weights have, in lower case: what people call the model's quantisation.
    /// An embedding that isn't the head, too, doesn't count: nothing multiplies by it.
    #[must_use]
    pub fn quantization(&self) -> String {
        let has_head = self.gguf.tensors.iter().any(|tensor| tensor.name == "output.weight");
        let counts = |name: &str| !(has_head && name == "token_embd.weight");
        let mut elements: Vec<(TensorType, usize)> = Vec::new();
        for tensor in self.gguf.tensors.iter().filter(|tensor| counts(&tensor.name)) {
            match elements.iter_mut().find(|(kind, _)| *kind == tensor.kind) {
                Some((_, n)) => *n += tensor.n_elements(),
                None => elements.push((tensor.kind, tensor.n_elements())),
            }
        }
        let most = elements.into_iter().max_by_key(|&(_, n)| n);
        most.map_or_else(String::new, |(kind, _)| kind.name().to_lowercase())
    }

    /// Whether any of this model's products would round activations to 8 bits with these kernels: then the
    /// peak of a run is that of bytes.
    #[must_use]
    pub fn rounds_activations(&self, kernels: Kernels) -> bool {
        // But for the first, of which rows are looked up.
        let mut matrices = self.weights.matrices().skip(1);
        matrices.any(|w| [1, 2].iter().any(|&n| kernels.rounds_activations(w.kind, n)))
    }
}

/// The tokenizer in a model file's metadata, with llama.cpp's defaults for absent keys.
///
/// # Errors
///
/// If a key is missing or of the wrong type, or the vocabulary contradicts itself.
pub(crate) fn read_tokenizer(gguf: &Gguf) -> Result<Tokenizer, Error> {
    let meta = &gguf.metadata;
    let fault = |cause| Error::Tokenizer { file: gguf.path.clone(), cause };
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let model: TokenizerModel = meta.str(&key("model"))?.parse().map_err(fault)?;
    let spm = model == TokenizerModel::Spm;
    let pre = meta.opt_str(&key("pre"))?.unwrap_or_default().to_owned();
    let tokens = meta.strings(&key("tokens"))?.to_vec();
    let n_tokens = tokens.len();
    let id = |name: &str, default: Option<u32>| {
        let default = default.filter(|&id| (id as usize) < n_tokens);
        Ok::<_, Error>(meta.opt_u32(&key(name))?.or(default))
    };
    let kinds = meta.opt_i32s(&key("token_type"))?.unwrap_or_default();
    let merges = if spm {
        meta.opt_strings(&key("merges"))?.unwrap_or_default()
    } else {
        meta.strings(&key("merges"))?
    };
    let vocabulary = Vocabulary {
        scores: meta.opt_f32s(&key("scores"))?.unwrap_or_default().to_vec(),
        types: kinds.into_iter().map(TokenType::from_gguf).collect(),
        merges: merges.to_vec(),
        bos: id("bos_token_id", Some(if spm { 1 } else { 11 }))?,
        eos: id("eos_token_id", Some(if spm { 2 } else { 11 }))?,
        unk: id("unknown_token_id", spm.then_some(0))?,
        add_bos: meta.opt_bool(&key("add_bos_token"))?.unwrap_or_else(|| model.adds_bos(&pre)),
        add_eos: meta.opt_bool(&key("add_eos_token"))?.unwrap_or(false),
        add_space_prefix: meta.opt_bool(&key("add_space_prefix"))?.unwrap_or(true),
        model,
        pre,
        tokens,
    };
    Tokenizer::new(vocabulary).map_err(fault)
}
