//! Special tokens, cut out of the text before it is tokenized.
//!
//! The longest are cut first, wherever they are, as llama.cpp does. So of `<a><b>` and `<a`,
//! the first takes its text even where the second begins further left.

use super::TokenType;

/// The tokens that are matched as a whole.
#[derive(Debug, Default)]
pub(super) struct SpecialTokens {
    /// Longest first, then by id.
    tokens: Vec<SpecialToken>,
    /// The indices in `tokens` of those that begin with a byte. One pass over the text with it
    /// finds the few that occur at all: some vocabularies have thousands.
    by_first_byte: Vec<Vec<usize>>,
}

#[derive(Debug)]
struct SpecialToken {
    id: u32,
    text: String,
    /// User-defined tokens are ordinary text that mustn't be cut up; the others are commands, and
    /// text from a stranger mustn't give any.
    is_command: bool,
}

/// A stretch of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fragment<'t> {
    /// Text, never empty. Comes first or after a token.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

impl SpecialTokens {
    pub(super) fn new<'v>(tokens: impl Iterator<Item = (u32, &'v str, TokenType)>) -> Self {
        let mut special: Vec<_> = tokens
            .filter(|(_, text, _)| !text.is_empty())
            .filter_map(|(id, text, kind)| {
                let is_command = match kind {
                    TokenType::Control | TokenType::Unknown => true,
                    TokenType::UserDefined => false,
                    _ => return None,
                };
                Some(SpecialToken { id, text: text.to_owned(), is_command })
            })
            .collect();
        special.sort_by_key(|token| (std::cmp::Reverse(token.text.len()), token.id));
        let mut by_first_byte = vec![Vec::new(); 256];
        for (index, token) in special.iter().enumerate() {
            by_first_byte[usize::from(token.text.as_bytes()[0])].push(index);
        }
        Self { tokens: special, by_first_byte }
    }

    /// Cuts the text at user-defined tokens, and at control and unknown ones if `parse`.
    pub(super) fn cut<'t>(&self, text: &'t str, parse: bool) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        if !text.is_empty() {
            fragments.push(Fragment::Text(text));
        }
        for token in self.candidates(text, parse) {
            let mut cut = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Token(_) => cut.push(fragment),
                    Fragment::Text(mut rest) => {
                        while let Some((before, after)) = rest.split_once(&token.text) {
                            if !before.is_empty() {
                                cut.push(Fragment::Text(before));
                            }
                            cut.push(Fragment::Token(token.id));
                            rest = after;
                        }
                        if !rest.is_empty() {
                            cut.push(Fragment::Text(rest));
                        }
                    }
                }
            }
            fragments = cut;
        }
        fragments
    }

    /// The tokens that may occur in the text, longest first: their first bytes do.
    fn candidates(&self, text: &str, parse: bool) -> impl Iterator<Item = &SpecialToken> {
        // Enough to tell `<|im_start|>` from `<|im_end|>`. Comparing whole tokens at each byte
        // would let a long token that almost matches everywhere take quadratic time.
        const ENOUGH: usize = 8;
        let text = text.as_bytes();
        let mut occurs = vec![false; self.tokens.len()];
        if self.tokens.iter().any(|token| parse || !token.is_command) {
            for (at, &byte) in text.iter().enumerate() {
                for &index in &self.by_first_byte[usize::from(byte)] {
                    let token = &self.tokens[index];
                    if !occurs[index] && (parse || !token.is_command) {
                        let first = &token.text.as_bytes()[..token.text.len().min(ENOUGH)];
                        occurs[index] = text[at..].starts_with(first);
                    }
                }
            }
        }
        self.tokens.iter().zip(occurs).filter_map(|(token, occurs)| occurs.then_some(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_cut_first_wherever_it_is() {
        use Fragment::{Text, Token};
        let tokens = [
            (0, "ab", TokenType::Control),
            (1, "bcd", TokenType::Control),
            (2, "", TokenType::Control),
            (3, "xy", TokenType::UserDefined),
            (4, "z", TokenType::Normal),
        ];
        let special = SpecialTokens::new(tokens.into_iter());
        assert_eq!(
            special.cut("abcd abz", true),
            [Text("a"), Token(1), Text(" "), Token(0), Text("z")]
        );
        assert_eq!(special.cut("xyxyab", false), [Token(3), Token(3), Text("ab")]);
        assert_eq!(special.cut("", true), []);
    }

    #[test]
    fn tokens_that_begin_alike_are_told_apart() {
        use Fragment::{Text, Token};
        let tokens =
            [(0, "<|reserved_0|>", TokenType::Control), (1, "<|reserved_1|>", TokenType::Control)];
        let special = SpecialTokens::new(tokens.into_iter());
        let text = "<|reserved_1|><|reserved_2|>";
        assert_eq!(special.cut(text, true), [Token(1), Text("<|reserved_2|>")]);
    }
}
