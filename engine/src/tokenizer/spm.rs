//! SPM: the score-ordered merging of sentencepiece's BPE models, as in Llama 1 and 2.
//!
//! A space becomes U+2581 (`▁`), and the text its characters. Then the two neighbours that make
//! the token with the highest score become that token, the leftmost ones on a tie, until no two
//! neighbours make a token. A character that is no token becomes one token `<0xXX>` per byte.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::Error;
use super::merge::Merger;

/// What stands for a space in the vocabulary.
pub(super) const SPACE: char = '\u{2581}';

/// The vocabulary as SPM needs it.
#[derive(Debug)]
pub(super) struct Spm {
    scores: Vec<Score>,
    /// `<0x00>` to `<0xFF>`, where the vocabulary has them.
    bytes: Vec<Option<u32>>,
    unk: Option<u32>,
    add_space_prefix: bool,
    /// In bytes. A pair that would be longer needn't be looked up, so a look-up is O(1).
    longest: usize,
}

/// A score that can be compared: not NaN, and without a negative zero.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score(f32);

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Spm {
    pub(super) fn new(
        ids: &HashMap<String, u32>,
        scores: &[f32],
        n_tokens: usize,
        unk: Option<u32>,
        add_space_prefix: bool,
    ) -> Result<Self, Error> {
        if let Some(index) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::ScoreNotANumber { index });
        }
        // Files have both 0.0 and -0.0 and mean the same: adding 0.0 makes them the same bits.
        let mut scores: Vec<_> = scores.iter().map(|score| Score(score + 0.0)).collect();
        scores.resize(n_tokens, Score(0.0));
        let bytes =
            (0..=u8::MAX).map(|byte| ids.get(&format!("<0x{byte:02X}>")).copied()).collect();
        let longest = ids.keys().map(String::len).max().unwrap_or(0);
        Ok(Self { scores, bytes, unk, add_space_prefix, longest })
    }

    /// Appends the ids of a text without special tokens, which begins the whole text or comes
    /// after a special token: both get the prefix.
    pub(super) fn encode(
        &self,
        ids: &HashMap<String, u32>,
        text: &str,
        output: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let mut escaped = String::with_capacity(text.len() + SPACE.len_utf8());
        if self.add_space_prefix {
            escaped.push(SPACE);
        }
        escaped.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));

        let mut merger = Merger::new();
        for (start, c) in escaped.char_indices() {
            let len = c.len_utf8();
            merger.push(ids.get(&escaped[start..start + len]).copied(), len);
        }
        merger.merge(|left, right| {
            let len = left.len + right.len;
            if len > self.longest {
                return None;
            }
            let id = *ids.get(&escaped[left.start..left.start + len])?;
            Some((self.scores[id as usize], id))
        });

        for symbol in merger.symbols() {
            match symbol.id {
                Some(id) => output.push(id),
                None => {
                    let character = &escaped.as_bytes()[symbol.start..symbol.start + symbol.len];
                    self.fall_back(character, output)?;
                }
            }
        }
        Ok(())
    }

    /// Spells a character as bytes, or as one unknown token if a byte is missing too.
    fn fall_back(&self, character: &[u8], output: &mut Vec<u32>) -> Result<(), Error> {
        let before = output.len();
        for &byte in character {
            match (self.bytes[usize::from(byte)], self.unk) {
                (Some(id), _) => output.push(id),
                (None, Some(unk)) => {
                    output.truncate(before);
                    output.push(unk);
                    break;
                }
                (None, None) => return Err(Error::NoTokenForByte { byte }),
            }
        }
        Ok(())
    }
}

/// The byte that a token like `<0x0A>` stands for.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    // `from_str_radix` would take a sign as well.
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}
