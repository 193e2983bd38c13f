//! The pre-tokenizers: regexes that cut a text into the pieces that BPE merges within.
//!
//! A pre-tokenizer is one or more passes. A pass cuts each piece of the pass before it into the
//! matches of a regex and the stretches between them. The regexes are llama.cpp's, but for one
//! thing. All of them end in
//!
//! ```text
//! \s+(?!\S)|\s+     spaces, but leave the last one to the word that follows
//! ```
//!
//! which needs a look-ahead, thus a backtracking engine, thus a limit that a long run of spaces
//! reaches. Here they end in `\s+`, and [`Pass::split`] gives the last space back. What is left
//! is regular: the engine runs in linear time on any text and doesn't give up. The unit tests
//! hold the two against each other.

use fancy_regex::Regex;

use super::Error;

/// The names that [`PreTokenizer::new`] knows, except for the empty one.
pub(super) const KNOWN_PRE: &[&str] = &[
    "default",
    "gpt-2",
    "phi-2",
    "llama-bpe",
    "llama3",
    "llama-v3",
    "falcon3",
    "pixtral",
    "qwen2",
    "deepseek-r1-qwen",
    "stablelm2",
    "smollm",
    "starcoder",
    "refact",
    "command-r",
    "tekken",
];

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
// Mistral's own regex tells upper from lower case in all of Unicode. llama.cpp's, which this is,
// does so in ASCII and lets any other letter be either.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";

/// Cuts text into the pieces that BPE merges within.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    passes: Vec<Pass>,
    ignores_merges: bool,
}

#[derive(Debug)]
struct Pass {
    regex: Regex,
    last_space: LastSpace,
}

/// What becomes of the last space of a run that a word follows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LastSpace {
    /// The regex doesn't match spaces.
    Kept,
    /// It is left to the word.
    Left,
    /// It is left to the word if it isn't a line break: those are matched by `\s*[\r\n]+`.
    LeftUnlessNewline,
}

/// Do models with this pre-tokenizer begin a text with bos, if their file doesn't say?
pub(super) fn adds_bos(name: &str) -> bool {
    matches!(name, "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" | "tekken")
}

impl PreTokenizer {
    /// The pre-tokenizer of that name. No name is `default`, as in llama.cpp.
    pub(super) fn new(name: &str) -> Result<Self, Error> {
        use LastSpace::{Kept, Left, LeftUnlessNewline};
        let passes: &[_] = match name {
            "" | "default" => &[
                (r"[\p{P}\$\+<=>\^~\|]+", Kept),
                (GPT2, Left),
                (r"\p{N}+", Kept),
                ("[0-9][0-9][0-9]", Kept),
            ],
            "gpt-2" | "phi-2" => &[(GPT2, Left)],
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" => {
                &[(LLAMA3, LeftUnlessNewline)]
            }
            "qwen2" | "deepseek-r1-qwen" | "stablelm2" => &[(QWEN2, LeftUnlessNewline)],
            "smollm" | "starcoder" | "refact" | "command-r" => &[(r"\p{N}", Kept), (GPT2, Left)],
            "tekken" => &[(TEKKEN, LeftUnlessNewline)],
            _ => return Err(Error::UnknownPre { name: super::error::excerpt(name) }),
        };
        let passes = passes
            .iter()
            .map(|&(regex, last_space)| {
                Ok(Pass { regex: Regex::new(regex).map_err(gave_up)?, last_space })
            })
            .collect::<Result<_, _>>()?;
        // The same ones, in llama.cpp.
        Ok(Self { passes, ignores_merges: adds_bos(name) })
    }

    /// Is a piece that is in the vocabulary taken whole, even if the merges don't lead there?
    pub(super) fn ignores_merges(&self) -> bool {
        self.ignores_merges
    }

    /// The pieces. Joined, they are the text.
    pub(super) fn split<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, Error> {
        let mut pieces = vec![text];
        pieces.retain(|piece| !piece.is_empty());
        for pass in &self.passes {
            let mut cut = Vec::with_capacity(pieces.len());
            for piece in pieces {
                pass.split(piece, &mut cut)?;
            }
            pieces = cut;
        }
        Ok(pieces)
    }
}

impl Pass {
    fn split<'t>(&self, text: &'t str, pieces: &mut Vec<&'t str>) -> Result<(), Error> {
        let mut at = 0;
        while let Some(found) = self.regex.find_from_pos(text, at).map_err(gave_up)? {
            if at < found.start() {
                pieces.push(&text[at..found.start()]);
            }
            at = if found.end() < text.len() {
                found.start() + self.kept_len(found.as_str())
            } else {
                found.end()
            };
            pieces.push(&text[found.start()..at]);
        }
        if at < text.len() {
            pieces.push(&text[at..]);
        }
        Ok(())
    }

    /// How much of a match stays when text follows, which starts with no space: `\s+` is greedy.
    fn kept_len(&self, found: &str) -> usize {
        let Some((last_at, last)) = found.char_indices().next_back() else { return 0 };
        let leaves = match self.last_space {
            LastSpace::Kept => false,
            LastSpace::Left => last.is_whitespace(),
            LastSpace::LeftUnlessNewline => last.is_whitespace() && !matches!(last, '\r' | '\n'),
        };
        // Only `\s+` matches end in such a space, so the whole match is spaces.
        if leaves && last_at > 0 { last_at } else { found.len() }
    }
}

fn gave_up(error: fancy_regex::Error) -> Error {
    Error::PreTokenizer { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, text: &str, pieces: &[&str]) {
        assert_eq!(
            PreTokenizer::new(name).unwrap().split(text).unwrap(),
            pieces,
            "{name}: {text:?}"
        );
    }

    #[test]
    fn spaces_leave_the_last_one_to_the_word() {
        for name in ["gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"] {
            check(name, "a   b", &["a", "  ", " b"]);
            check(name, "a   ", &["a", "   "]);
            check(name, "", &[]);
        }
        check("gpt-2", "a\n\nb", &["a", "\n", "\n", "b"]);
        check("qwen2", "a\n\nb", &["a", "\n\n", "b"]);
        check("qwen2", "a \n \tb", &["a", " \n", " ", "\tb"]);
    }

    #[test]
    fn digits_go_together_as_the_model_was_trained() {
        check("gpt-2", "12345", &["12345"]);
        check("llama-bpe", "12345", &["123", "45"]);
        check("qwen2", "123", &["1", "2", "3"]);
        check("smollm", "a 12", &["a", " ", "1", "2"]);
        check("default", "a 1234+5", &["a", " ", "123", "4", "+", "5"]);
    }

    #[test]
    fn tekken_cuts_before_a_capital() {
        check("tekken", "helloWorld", &["hello", "World"]);
        check("tekken", "HTTPServer", &["HTTPServer"]);
        check("tekken", "a://b", &["a", "://", "b"]);
    }

    /// llama.cpp's regexes, look-ahead and all.
    const WITH_LOOK_AHEAD: &[(&str, &[&str])] = {
        const GPT2: &str =
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
        &[
            ("gpt-2", &[GPT2]),
            ("smollm", &[r"\p{N}", GPT2]),
            ("default", &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
            (
                "llama-bpe",
                &[
                    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ],
            ),
            (
                "qwen2",
                &[
                    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ],
            ),
            (
                "tekken",
                &[
                    r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ],
            ),
        ]
    };

    fn split_with_look_ahead<'t>(passes: &[Regex], text: &'t str) -> Vec<&'t str> {
        let mut pieces = vec![text];
        for pass in passes {
            let mut cut = Vec::new();
            for piece in pieces {
                let mut at = 0;
                for found in pass.find_iter(piece).map(Result::unwrap) {
                    cut.extend([&piece[at..found.start()], found.as_str()]);
                    at = found.end();
                }
                cut.push(&piece[at..]);
            }
            cut.retain(|piece| !piece.is_empty());
            pieces = cut;
        }
        pieces
    }

    #[test]
    fn giving_the_last_space_back_is_the_look_ahead() {
        for (name, regexes) in WITH_LOOK_AHEAD {
            let pre = PreTokenizer::new(name).unwrap();
            let passes: Vec<_> = regexes.iter().map(|regex| Regex::new(regex).unwrap()).collect();
            // Mostly what the regexes tell apart, and some of everything.
            let text = prop_oneof![
                "[ \t\r\n\u{a0}\u{3000}aAzZéÉßжЖ日ǅʰ\u{301}019²Ⅷ'stTrReEllvm.,+/$<_—😀\0\u{7f}\u{85}]{0,40}",
                any::<String>(),
            ];
            proptest!(|(text in text)| {
                prop_assert_eq!(pre.split(&text).unwrap(), split_with_look_ahead(&passes, &text), "{}", name);
            });
        }
    }

    #[test]
    fn each_known_name_is_known_and_never_backtracks() {
        for name in KNOWN_PRE {
            for pass in PreTokenizer::new(name).unwrap().passes {
                let regex = pass.regex.as_str();
                let impatient =
                    fancy_regex::RegexBuilder::new(regex).backtrack_limit(0).build().unwrap();
                for text in ["    a", "AAAAA", "it's 12345 \n\n, …"] {
                    assert!(impatient.is_match(text).is_ok(), "{regex}");
                    assert!(impatient.find_iter(text).all(|found| found.is_ok()), "{regex}");
                }
            }
        }
        // The limit is what it is thought to be.
        let look_ahead = fancy_regex::RegexBuilder::new(r"\s+(?!\S)").backtrack_limit(0).build();
        assert!(look_ahead.unwrap().is_match("    a").is_err());
    }
}
