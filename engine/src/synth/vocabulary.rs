//! A vocabulary in the layout of SentencePiece: three specials, 256 bytes, then pieces.
//!
//! Each piece of more than one character is two earlier pieces put together, because that is how a
//! SentencePiece tokenizer finds one: by merging neighbours. Words are therefore spelled out (`th`,
//! `the`, `▁th`, `▁the`), and the rest, which only has to be there in number, is built from
//! syllables.

use std::collections::HashSet;

use crate::gguf::Writer;

/// The piece that stands for a space.
const SPACE: char = '▁';

/// Ids that the metadata names.
pub(super) const UNKNOWN: u32 = 0;
pub(super) const BOS: u32 = 1;
pub(super) const EOS: u32 = 2;

/// What `tokenizer.ggml.token_type` says of a token.
mod kind {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const BYTE: i32 = 6;
}

/// The pairs of letters that English has most of, by frequency.
const BIGRAMS: &str = "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri \
    ro ic ne ea ra ce li ch ll be ma si om ur";

/// Common words. The short ones are first, so that a small vocabulary gets them.
const WORDS: &str = "a i the and of to in is it on he we you be as at or an by was for are with his her not but had that this \
    from they have she which one all were when there can been has more if will would who so no said what up out about them some \
    into then time its only could new my than first other people now down where over such may should well very after must any \
    even back these through good way our because each those how too little state world make between never under last long great \
    year come since against right himself few use house while without home during place around small found thought went say part \
    once general high upon school every does got united left number course war until always away something fact though water less \
    public put think almost hand enough far took head yet government system better set told nothing night end why called look \
    find going point next city business give group toward young days let room side given word best large open begin story light \
    example machine language model memory time layer token number data read write fast slow";

const ONSETS: &str =
    "b c d f g h j k l m n p r s t v w z br ch cl cr dr fl fr gl gr pl pr sh sk sl sp st th tr";
const VOWELS: &str = "a e i o u y";
const CODAS: &str = "n r s t l m d k p g";

/// Tokens, their scores and their types, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<String>,
    pub(super) scores: Vec<f32>,
    pub(super) types: Vec<i32>,
}

impl Vocabulary {
    /// The vocabulary of `n` tokens. Smaller ones are the beginnings of larger ones.
    pub(super) fn new(n: usize) -> Self {
        let mut vocabulary = Self::default();
        for (token, kind) in
            [("<unk>", kind::UNKNOWN), ("<s>", kind::CONTROL), ("</s>", kind::CONTROL)]
        {
            vocabulary.push(token.to_owned(), 0.0, kind);
        }
        for byte in 0..=u8::MAX {
            vocabulary.push(format!("<0x{byte:02X}>"), 0.0, kind::BYTE);
        }
        // Scores fall, so that of two possible merges the commoner piece's comes first.
        let mut score = 0.0;
        for piece in pieces(n - vocabulary.tokens.len()) {
            score -= 1.0;
            vocabulary.push(piece, score, kind::NORMAL);
        }
        vocabulary
    }

    fn push(&mut self, token: String, score: f32, kind: i32) {
        self.tokens.push(token);
        self.scores.push(score);
        self.types.push(kind);
    }

    /// Writes the tokenizer's metadata.
    pub(super) fn describe(self, writer: &mut Writer) {
        writer
            .set("tokenizer.ggml.model", "llama")
            .set("tokenizer.ggml.pre", "default")
            .set("tokenizer.ggml.tokens", self.tokens)
            .set("tokenizer.ggml.scores", self.scores)
            .set("tokenizer.ggml.token_type", self.types)
            .set("tokenizer.ggml.bos_token_id", BOS)
            .set("tokenizer.ggml.eos_token_id", EOS)
            .set("tokenizer.ggml.unknown_token_id", UNKNOWN)
            .set("tokenizer.ggml.add_bos_token", true)
            .set("tokenizer.ggml.add_eos_token", false)
            .set("tokenizer.ggml.add_space_prefix", true);
    }
}

/// The first `n` pieces.
fn pieces(n: usize) -> Vec<String> {
    let mut pieces = Pieces { n, list: Vec::with_capacity(n), known: HashSet::with_capacity(n) };
    pieces.add_all();
    assert_eq!(pieces.list.len(), n, "there are too few syllables for so many pieces");
    pieces.list
}

/// Pieces so far, without doubles.
struct Pieces {
    n: usize,
    list: Vec<String>,
    known: HashSet<String>,
}

impl Pieces {
    fn add_all(&mut self) {
        for c in '!'..='~' {
            self.add(&c.to_string());
        }
        self.add(&SPACE.to_string());
        for bigram in BIGRAMS.split_whitespace() {
            self.add(bigram);
        }
        for c in 'a'..='z' {
            self.add(&format!("{SPACE}{c}"));
        }
        for word in WORDS.split_whitespace() {
            self.spell(word);
            self.spell(&format!("{SPACE}{word}"));
        }
        // Two or three letters, then those with one more, then pairs of them: 240 + 2400 + 57 600.
        let open: Vec<String> = both(ONSETS, VOWELS);
        for syllable in &open {
            self.spell(syllable);
            self.spell(&format!("{SPACE}{syllable}"));
        }
        for syllable in &open {
            for coda in CODAS.split_whitespace() {
                self.add(&format!("{syllable}{coda}"));
                self.add(&format!("{SPACE}{syllable}{coda}"));
            }
        }
        for second in &open {
            for first in &open {
                if self.list.len() == self.n {
                    return;
                }
                self.add(&format!("{first}{second}"));
                self.add(&format!("{SPACE}{first}{second}"));
            }
        }
    }

    /// Adds a piece and, before it, all its beginnings.
    fn spell(&mut self, piece: &str) {
        let ends = piece.char_indices().map(|(at, c)| at + c.len_utf8());
        for end in ends {
            self.add(&piece[..end]);
        }
    }

    fn add(&mut self, piece: &str) {
        if self.list.len() < self.n && self.known.insert(piece.to_owned()) {
            self.list.push(piece.to_owned());
        }
    }
}

/// Each of the first with each of the second.
fn both(first: &str, second: &str) -> Vec<String> {
    let second = || second.split_whitespace();
    first.split_whitespace().flat_map(|a| second().map(move |b| format!("{a}{b}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_there_twice() {
        let Vocabulary { tokens, scores, types } = Vocabulary::new(32_000);
        assert_eq!((tokens.len(), scores.len(), types.len()), (32_000, 32_000, 32_000));
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 32_000);
    }

    #[test]
    fn each_piece_is_two_earlier_pieces() {
        let tokens = Vocabulary::new(32_000).tokens;
        let mut earlier = HashSet::new();
        for piece in &tokens[259..] {
            let mut cuts = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
            let is_reachable = cuts.any(|(a, b)| earlier.contains(a) && earlier.contains(b));
            assert!(is_reachable || piece.chars().count() == 1, "nothing merges into `{piece}`");
            earlier.insert(piece.as_str());
        }
    }

    #[test]
    fn scores_fall() {
        let vocabulary = Vocabulary::new(512);
        assert!(vocabulary.scores[..259].iter().all(|&score| score == 0.0));
        assert!(vocabulary.scores[258..].is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn a_small_vocabulary_begins_a_large_one() {
        assert_eq!(Vocabulary::new(512).tokens, Vocabulary::new(32_000).tokens[..512]);
    }
}
