//! Text to token ids and back, with llama.cpp's ids.
//!
//! ```text
//! text ─ cut out special tokens ─┬─ SPM: prefix a space, " " → "▁", characters ─┬─ merge ─ ids
//!                                └─ BPE: regex into pieces, bytes ──────────────┘
//! ```
//!
//! Two kinds of vocabulary, the two that GGUF files of Llama-like models have:
//!
//! - [`Model::Spm`]: of two neighbours that together are a token, those with the highest score
//!   merge first. A character without a token is spelled as bytes, `<0xE2>`.
//! - [`Model::Bpe`]: the text is cut into words, numbers, signs and spaces by the regex that
//!   [`Vocabulary::pre`] names. Within such a piece, the pair that is first in the list of merges
//!   merges first.
//!
//! Ties go to the left. Both merge in O(n log n) for n bytes, whatever the text is, and need no
//! stack for it.
//!
//! # Where ids or texts differ from llama.cpp's
//!
//! - A text that the vocabulary has no tokens for (not even bytes) is the unknown token or an
//!   error. llama.cpp drops it (BPE) or throws (SPM).
//! - A merge whose tokens aren't in the vocabulary is an error here, and allowed there.
//! - Spaces around special tokens are kept. llama.cpp strips them for some models, which it knows
//!   by name (Phi-3).
//! - Token types are those of the file. llama.cpp makes some tokens control tokens by their text
//!   (`<|im_end|>`).
//! - Decoding drops one space wherever encoding adds one: at the beginning and after each special
//!   token. llama.cpp drops it at the beginning only. It also tidies up the spaces before full
//!   stops for some BPE models; here, decoding what was encoded gives the same text, but for
//!   U+2581 in SPM, which is a space then, and for text that became the unknown token.
//!
//! # Example
//!
//! ```
//! use brickscope_engine::tokenizer::{Model, Special, TokenType, Tokenizer, Vocabulary};
//!
//! let tokenizer = Tokenizer::new(Vocabulary {
//!     model: Model::Spm,
//!     pre: String::new(),
//!     tokens: ["<unk>", "<s>", "▁", "a", "b", "ab", "▁ab"].map(String::from).to_vec(),
//!     scores: vec![0.0, 0.0, -3.0, -3.0, -3.0, -2.0, -1.0],
//!     types: [2, 3, 1, 1, 1, 1, 1].map(TokenType::from_gguf).to_vec(),
//!     merges: vec![],
//!     bos: Some(1),
//!     eos: None,
//!     unk: Some(0),
//!     add_bos: true,
//!     add_eos: false,
//!     add_space_prefix: true,
//! })?;
//! let ids = tokenizer.encode("ab ba", Special::default())?;
//! assert_eq!(ids, [1, 6, 2, 4, 3]);
//! assert_eq!(tokenizer.decode(&ids)?, "ab ba");
//! # Ok::<(), brickscope_engine::tokenizer::Error>(())
//! ```

mod bpe;
mod decode;
mod error;
mod merge;
mod special;
mod split;
mod spm;

use std::collections::HashMap;
use std::str::FromStr;

pub use decode::TokenDecoder;
pub use error::Error;

use bpe::Bpe;
use special::{Fragment, SpecialTokens};
use spm::Spm;

/// A vocabulary as it is in a GGUF file. Each field names its key and what to fill in without it.
#[derive(Clone, Debug, PartialEq)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`, required.
    pub model: Model,
    /// `tokenizer.ggml.pre`: which regex cuts the text. BPE only; without it `""`, which is
    /// `default`.
    pub pre: String,
    /// `tokenizer.ggml.tokens`, required: the text of each id. SPM spells a space `▁`; BPE spells
    /// bytes in the GPT-2 alphabet. Of two equal tokens, encoding uses the last.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: one per token. SPM only; without it empty, which is all zeros.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: one per token. Without it empty, which is all normal.
    pub types: Vec<TokenType>,
    /// `tokenizer.ggml.merges`, required for BPE, which alone uses them: `"left right"`, the one
    /// to merge first first. Of two equal merges, the first counts.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`. Without it 1 for SPM and 11 for BPE, if there are as many
    /// tokens.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`. Without it 2 for SPM and 11 for BPE, if there are as many
    /// tokens.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`. Without it 0 for SPM and none for BPE.
    pub unk: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`. Without it [`Model::adds_bos`].
    pub add_bos: bool,
    /// `tokenizer.ggml.add_eos_token`. Without it `false`.
    pub add_eos: bool,
    /// `tokenizer.ggml.add_space_prefix`. SPM only; without it `true`.
    pub add_space_prefix: bool,
}

/// How a vocabulary is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `llama`: sentencepiece's BPE, merging by score.
    Spm,
    /// `gpt2`: byte-level BPE, merging by rank.
    Bpe,
}

impl Model {
    /// Does llama.cpp begin a text with bos if the file doesn't say? All of SPM does, and the
    /// pre-tokenizers of Llama 3 and of Mistral's tekken.
    pub fn adds_bos(self, pre: &str) -> bool {
        match self {
            Self::Spm => true,
            Self::Bpe => split::adds_bos(pre),
        }
    }
}

impl FromStr for Model {
    type Err = Error;

    /// Reads `tokenizer.ggml.model`.
    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "llama" => Ok(Self::Spm),
            "gpt2" => Ok(Self::Bpe),
            _ => Err(Error::UnknownModel { name: error::excerpt(name) }),
        }
    }
}

/// What a token is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenType {
    /// Text.
    #[default]
    Normal,
    /// Stands for text that has no token. Has no text itself.
    Unknown,
    /// A command such as `</s>`. Has no text.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// Text that isn't supposed to occur.
    Unused,
    /// One byte, spelled `<0x0A>`.
    Byte,
    /// A number that means nothing (yet). Taken as text.
    Undefined,
}

impl TokenType {
    /// Reads one entry of `tokenizer.ggml.token_type`.
    pub fn from_gguf(number: i32) -> Self {
        match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Undefined,
        }
    }
}

/// What [`Tokenizer::encode`] does about special tokens.
///
/// The default is right for a prompt: bos and eos as the vocabulary says, and what looks like a
/// control token in the text is only text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    /// Begin with bos and end with eos, if the vocabulary asks for it.
    pub add: bool,
    /// Take `</s>` in the text for the control token. For chat templates; with text from a
    /// stranger, it lets the stranger give commands. User-defined tokens are taken either way.
    pub parse: bool,
}

impl Default for Special {
    fn default() -> Self {
        Self { add: true, parse: false }
    }
}

/// Text to token ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    algorithm: Algorithm,
    /// The last of each text.
    ids: HashMap<String, u32>,
    special: SpecialTokens,
    types: Vec<TokenType>,
    /// What all tokens stand for, one after the other, and where each one ends.
    pieces: Vec<u8>,
    piece_ends: Vec<usize>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
}

#[derive(Debug)]
enum Algorithm {
    Spm(Spm),
    Bpe(Bpe),
}

impl Tokenizer {
    /// Checks the vocabulary and builds the look-up tables. Not cheap: once per model.
    ///
    /// # Errors
    ///
    /// If the vocabulary contradicts itself, with the field and the index.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, Error> {
        let Vocabulary { model, pre, tokens, scores, mut types, merges, .. } = vocabulary;
        let n_tokens = tokens.len();
        if n_tokens == 0 {
            return Err(Error::NoTokens);
        }
        if u32::try_from(n_tokens).is_err() {
            return Err(Error::TooManyTokens { n_tokens });
        }
        for (field, len) in
            [("tokenizer.ggml.scores", scores.len()), ("tokenizer.ggml.token_type", types.len())]
        {
            if len != 0 && len != n_tokens {
                return Err(Error::LengthMismatch { field, len, n_tokens });
            }
        }
        types.resize(n_tokens, TokenType::Normal);
        for (field, id) in [
            ("tokenizer.ggml.bos_token_id", vocabulary.bos),
            ("tokenizer.ggml.eos_token_id", vocabulary.eos),
            ("tokenizer.ggml.unknown_token_id", vocabulary.unk),
        ] {
            if let Some(id) = id.filter(|&id| id as usize >= n_tokens) {
                return Err(Error::SpecialPastEnd { field, id, n_tokens });
            }
        }
        if vocabulary.add_bos && vocabulary.bos.is_none() {
            let (flag, field) = ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id");
            return Err(Error::NoSpecial { flag, field });
        }
        if vocabulary.add_eos && vocabulary.eos.is_none() {
            let (flag, field) = ("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id");
            return Err(Error::NoSpecial { flag, field });
        }

        let mut pieces = Vec::new();
        let mut piece_ends = Vec::with_capacity(n_tokens);
        for (index, (token, &kind)) in tokens.iter().zip(&types).enumerate() {
            push_piece(&mut pieces, model, token, kind)
                .ok_or_else(|| Error::BadByteToken { index, token: error::excerpt(token) })?;
            piece_ends.push(pieces.len());
        }
        let special = SpecialTokens::new(
            (0..)
                .zip(tokens.iter().zip(&types))
                .map(|(id, (token, &kind))| (id, token.as_str(), kind)),
        );
        let ids = tokens.into_iter().zip(0..).collect();
        let algorithm = match model {
            Model::Spm => Algorithm::Spm(Spm::new(
                &ids,
                &scores,
                n_tokens,
                vocabulary.unk,
                vocabulary.add_space_prefix,
            )?),
            Model::Bpe => Algorithm::Bpe(Bpe::new(&ids, &pre, &merges, vocabulary.unk)?),
        };
        Ok(Self {
            algorithm,
            ids,
            special,
            types,
            pieces,
            piece_ends,
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            add_bos: vocabulary.add_bos,
            add_eos: vocabulary.add_eos,
            add_space_prefix: vocabulary.add_space_prefix,
        })
    }

    /// The ids of a text.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenForByte`], if the vocabulary can't spell the text.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        if special.add && self.add_bos {
            ids.extend(self.bos);
        }
        for fragment in self.special.cut(text, special.parse) {
            match (fragment, &self.algorithm) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Algorithm::Spm(spm)) => {
                    spm.encode(&self.ids, text, &mut ids)?
                }
                (Fragment::Text(text), Algorithm::Bpe(bpe)) => {
                    bpe.encode(&self.ids, text, &mut ids)?
                }
            }
        }
        if special.add && self.add_eos {
            ids.extend(self.eos);
        }
        Ok(ids)
    }

    /// The text of some ids. Bytes that are no UTF-8 become U+FFFD; control and unknown tokens
    /// have no text.
    ///
    /// # Errors
    ///
    /// [`Error::IdPastEnd`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, Error> {
        let mut decoder = self.decoder();
        let mut text = String::new();
        for &id in ids {
            text.push_str(decoder.push(id)?);
        }
        text.push_str(&decoder.finish());
        Ok(text)
    }

    /// Decodes tokens as they come, from the beginning of a text.
    pub fn decoder(&self) -> TokenDecoder<'_> {
        TokenDecoder::new(self)
    }

    /// The bytes that a token stands for, be they UTF-8 or not; the name of a control token. The
    /// space that encoding prefixes to a text is in them.
    ///
    /// # Errors
    ///
    /// [`Error::IdPastEnd`].
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], Error> {
        let index = self.index(id)?;
        let start = index.checked_sub(1).map_or(0, |before| self.piece_ends[before]);
        Ok(&self.pieces[start..self.piece_ends[index]])
    }

    /// What a token is.
    ///
    /// # Errors
    ///
    /// [`Error::IdPastEnd`].
    pub fn token_type(&self, id: u32) -> Result<TokenType, Error> {
        Ok(self.types[self.index(id)?])
    }

    /// The id of a token by its text in the vocabulary, `<|im_end|>` say.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// How many tokens there are.
    pub fn n_tokens(&self) -> usize {
        self.types.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    fn index(&self, id: u32) -> Result<usize, Error> {
        let n_tokens = self.n_tokens();
        usize::try_from(id)
            .ok()
            .filter(|&index| index < n_tokens)
            .ok_or(Error::IdPastEnd { id, n_tokens })
    }

    fn adds_space_prefix(&self) -> bool {
        matches!(self.algorithm, Algorithm::Spm(_)) && self.add_space_prefix
    }
}

/// Appends the bytes that a token stands for, or returns `None` if it's a byte that isn't
/// spelled like one.
fn push_piece(pieces: &mut Vec<u8>, model: Model, token: &str, kind: TokenType) -> Option<()> {
    use TokenType::{Byte, Control, Unknown, UserDefined};
    let mut buffer = [0; 4];
    match (kind, model) {
        (Byte, _) => pieces.push(spm::byte_of(token)?),
        (Control | Unknown | UserDefined, _) => pieces.extend_from_slice(token.as_bytes()),
        (_, Model::Spm) => pieces.extend_from_slice(token.replace(spm::SPACE, " ").as_bytes()),
        (_, Model::Bpe) => {
            for c in token.chars() {
                match bpe::byte_of(c) {
                    Some(byte) => pieces.push(byte),
                    // Not of the alphabet, so it can only stand for itself.
                    None => pieces.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
                }
            }
        }
    }
    Some(())
}
