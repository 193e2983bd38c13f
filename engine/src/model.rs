//! A model: its file, its shape, its weights and its tokenizer.

use std::num::NonZeroUsize;
use std::path::Path;

use brickscope_kernels::{Kernels, QuantType};

use crate::config::{Config, is_a_model};
use crate::error::Error;
use crate::gguf::{Gguf, Pages};
use crate::interleave::{Interleaved, faster_interleaved, interleave_matrices};
use crate::tokenizer::{Model as TokenizerModel, Special, TokenType, Tokenizer, Vocabulary};
use crate::weights::Weights;

/// A model that can be run.
#[derive(Debug)]
pub struct Model {
    /// The file, mapped or copied into memory; there [`interleave`](Self::interleave) may have rearranged rows.
    pub gguf: Gguf,
    /// The shape.
    pub config: Config,
    /// Where the weights are.
    pub weights: Weights,
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    interleaved: Option<Interleaved>,
}

impl Model {
    /// Checks that `tokens` can be run where `taken` of `capacity` positions are taken.
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

    /// Checks that `prompt` can be run there and `n_tokens` be chosen after it. The last one is chosen and not run.
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
    /// If the file can't be read, or isn't a model that the engine supports.
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
    pub fn copy_into_memory(
        &mut self,
        pages: Pages,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        Ok(self.gguf.copy_into_memory(pages, progress)?)
    }

    /// The model in an open file.
    ///
    /// # Errors
    ///
    /// If it isn't a model that the engine supports.
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
        Ok(Self { gguf, config, weights, tokenizer, interleaved: None })
    }

    /// Interleaves the rows of those matrices that `kernels` read faster that way ([`Kernels::interleaves`]), in
    /// place and on at most `threads` threads. `progress` gets the bytes done and the bytes in all.
    ///
    /// Other kernels read interleaved rows too, though no faster. The embedding table stays as it is unless it is
    /// also the head, as do matrices whose rows aren't a multiple of
    /// [`GROUP_ROWS`](brickscope_kernels::GROUP_ROWS).
    ///
    /// Returns `None`, and changes nothing, if there is no such matrix or the bytes can't be changed: they are in a
    /// mapped file, or `gguf` has a clone.
    pub fn interleave(
        &mut self,
        kernels: Kernels,
        threads: NonZeroUsize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Option<Interleaved> {
        let Self { gguf, weights, .. } = self;
        let done = interleave_matrices(gguf, weights, kernels, threads, progress)?;
        let so_far = self.interleaved.get_or_insert_default();
        so_far.matrices += done.matrices;
        so_far.bytes += done.bytes;
        so_far.took += done.took;
        Some(done)
    }

    /// Whether [`interleave`](Self::interleave) would find matrices to rearrange, if it may change the bytes.
    #[must_use]
    pub fn is_faster_interleaved(&self, kernels: Kernels) -> bool {
        faster_interleaved(&self.weights, kernels).next().is_some()
    }

    /// What [`interleave`](Self::interleave) has done to this model so far.
    #[must_use]
    pub fn interleaved(&self) -> Option<Interleaved> {
        self.interleaved
    }

    /// The tokens of a text.
    ///
    /// # Errors
    ///
    /// If the vocabulary can't encode it.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, Error> {
        let fault = |cause| Error::Tokenizer { file: self.gguf.path.clone(), cause };
        self.tokenizer.encode(text, special).map_err(fault)
    }

    /// The number of weights; a tied head counts once.
    #[must_use]
    pub fn n_parameters(&self) -> u64 {
        self.gguf.tensors.iter().map(|tensor| tensor.n_elements() as u64).sum()
    }

    /// The type of most weights, in lower case: what people call the model's quantisation. An embedding that isn't
    /// also the head doesn't count, as nothing multiplies by it.
    #[must_use]
    pub fn quantization(&self) -> String {
        crate::quantization(&self.gguf)
    }

    /// The types of the weights that products multiply, each once.
    #[must_use]
    pub fn product_types(&self) -> Vec<QuantType> {
        let mut types = Vec::new();
        // All but the embedding, whose rows are looked up; a tied head comes again.
        for w in self.weights.matrices().skip(1) {
            if !types.contains(&w.kind) {
                types.push(w.kind);
            }
        }
        types
    }

    /// Whether any of this model's products would round activations to 8 bits with these kernels. The roof of such a
    /// run is the peak of 8-bit arithmetic.
    #[must_use]
    pub fn rounds_activations(&self, kernels: Kernels) -> bool {
        // All but the embedding, whose rows are looked up.
        let mut matrices = self.weights.matrices().skip(1);
        matrices.any(|w| [1, 2].iter().any(|&n| kernels.rounds_activations(w.kind, n)))
    }
}

/// The tokenizer in a model file's metadata, with llama.cpp's defaults for absent keys.
///
/// # Errors
///
/// If a key is missing or of the wrong type, or the vocabulary contradicts itself.
pub fn read_tokenizer(gguf: &Gguf) -> Result<Tokenizer, Error> {
    is_a_model(gguf)?;
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
