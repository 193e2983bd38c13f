//! Tokens back to text, whole or as they come.

use super::{Error, TokenType, Tokenizer};

/// Turns tokens into text as they come, for printing while a model generates.
///
/// A character may be spread over several tokens, so [`push`](Self::push) holds back the bytes of
/// one that isn't complete. What can't become a character any more is a U+FFFD. All the texts
/// joined, with [`finish`](Self::finish), are what [`Tokenizer::decode`] makes of all the ids.
///
/// It begins at the beginning of a text, where a space prefix is dropped. To continue a prompt,
/// push the prompt's tokens first and don't print them.
#[derive(Clone, Debug)]
pub struct TokenDecoder<'t> {
    tokenizer: &'t Tokenizer,
    /// The beginning of a character: at most three bytes between two calls.
    pending: Vec<u8>,
    text: String,
    /// Would [`Tokenizer::encode`] have put a space before the next text?
    at_prefix: bool,
}

impl<'t> TokenDecoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Self {
        let at_prefix = tokenizer.adds_space_prefix();
        Self { tokenizer, pending: Vec::new(), text: String::new(), at_prefix }
    }

    /// The text that has become complete with this token, which is often none. Control and
    /// unknown tokens have no text.
    ///
    /// # Errors
    ///
    /// [`Error::IdPastEnd`]. The decoder can be used on.
    pub fn push(&mut self, id: u32) -> Result<&str, Error> {
        self.text.clear();
        let mut bytes = self.tokenizer.token_bytes(id)?;
        match self.tokenizer.token_type(id)? {
            TokenType::Unknown => return Ok(""),
            TokenType::Control => {
                self.at_prefix = self.tokenizer.adds_space_prefix();
                return Ok("");
            }
            TokenType::UserDefined => self.at_prefix = self.tokenizer.adds_space_prefix(),
            _ => {
                if self.at_prefix {
                    bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
                }
                self.at_prefix = false;
            }
        }

        self.pending.extend_from_slice(bytes);
        let held_back = incomplete_len(&self.pending);
        let complete = self.pending.len() - held_back;
        self.text.push_str(&String::from_utf8_lossy(&self.pending[..complete]));
        self.pending.drain(..complete);
        Ok(&self.text)
    }

    /// Ends the text: a U+FFFD if it ends within a character, and nothing otherwise.
    #[must_use = "it may end within a character"]
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// How many bytes at the end are the beginning of a character that could yet become complete.
fn incomplete_len(bytes: &[u8]) -> usize {
    let Some(last) = bytes.utf8_chunks().last() else { return 0 };
    let rest = last.invalid();
    match std::str::from_utf8(rest) {
        Err(error) if error.error_len().is_none() => rest.len(),
        _ => 0,
    }
}
