//! Errors in vocabularies, texts and ids, worded so that their owner can fix them.

use super::split::KNOWN_PRE;

/// A vocabulary that can't be used, a text that can't be encoded or an id that can't be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `tokenizer.ggml.model` names an algorithm that isn't here.
    #[error(
        "tokenizer.ggml.model is {name:?}, but only \"llama\" (SPM) and \"gpt2\" (byte-level BPE) are known"
    )]
    UnknownModel {
        /// The name in the file.
        name: String,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer that isn't here. Another one's ids would be
    /// close, and wrong.
    #[error("tokenizer.ggml.pre is {name:?}, but only these are known: {}", KNOWN_PRE.join(", "))]
    UnknownPre {
        /// The name in the file.
        name: String,
    },
    /// There are no tokens.
    #[error("tokenizer.ggml.tokens is empty: a vocabulary needs at least one token")]
    NoTokens,
    /// There are more tokens than ids.
    #[error("tokenizer.ggml.tokens has {n_tokens} entries, more than a 32-bit id can name")]
    TooManyTokens {
        /// How many there are.
        n_tokens: usize,
    },
    /// An array that goes with the tokens is longer or shorter than they are.
    #[error("{field} has {len} entries, but tokenizer.ggml.tokens has {n_tokens}")]
    LengthMismatch {
        /// The key of the array.
        field: &'static str,
        /// How many entries it has.
        len: usize,
        /// How many tokens there are.
        n_tokens: usize,
    },
    /// A score can't be compared.
    #[error("tokenizer.ggml.scores[{index}] is not a number")]
    ScoreNotANumber {
        /// The token it belongs to.
        index: usize,
    },
    /// A token of type byte doesn't say which byte.
    #[error(
        "tokenizer.ggml.tokens[{index}] is {token:?} and of type byte, but a byte is spelled like \"<0x0A>\""
    )]
    BadByteToken {
        /// The token's id.
        index: usize,
        /// Its text.
        token: String,
    },
    /// A merge isn't two tokens with a space between them.
    #[error(
        "tokenizer.ggml.merges[{index}] is {merge:?}, but a merge is two tokens with a space between"
    )]
    BadMerge {
        /// Its rank.
        index: usize,
        /// Its text.
        merge: String,
    },
    /// A merge takes or makes a token that isn't in the vocabulary.
    #[error("tokenizer.ggml.merges[{index}] is {merge:?}, but {token:?} is not in the vocabulary")]
    MergeOfUnknownToken {
        /// Its rank.
        index: usize,
        /// Its text.
        merge: String,
        /// The token that is missing.
        token: String,
    },
    /// A special token's id is past the end of the vocabulary.
    #[error("{field} is {id}, but the vocabulary has {n_tokens} tokens")]
    SpecialPastEnd {
        /// The key that names it.
        field: &'static str,
        /// The id.
        id: u32,
        /// How many tokens there are.
        n_tokens: usize,
    },
    /// A special token is to be added, but the vocabulary doesn't say which.
    #[error("{flag} is true, but {field} is missing")]
    NoSpecial {
        /// The key that asks for it.
        flag: &'static str,
        /// The key that should name it.
        field: &'static str,
    },
    /// A character of the text has no token, its bytes have none, and there is no unknown token.
    #[error(
        "the byte {byte:#04x} of the text has no token, and the vocabulary has no unknown token to stand for it"
    )]
    NoTokenForByte {
        /// The byte.
        byte: u8,
    },
    /// The pre-tokenizer's regex engine gave up.
    #[error("the pre-tokenizer gave up: {reason}")]
    PreTokenizer {
        /// What the engine said.
        reason: String,
    },
    /// An id is past the end of the vocabulary.
    #[error("token id {id} is past the end of the vocabulary, which has {n_tokens} tokens")]
    IdPastEnd {
        /// The id.
        id: u32,
        /// How many tokens there are.
        n_tokens: usize,
    },
}

/// The beginning of a text from the file: a hostile one must not fill the terminal.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 48;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
