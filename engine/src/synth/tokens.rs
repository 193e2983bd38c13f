//! Prompts of random tokens, for measurements: how long a token takes doesn't depend on which it is.

use super::random::Random;
use crate::tokenizer::{TokenType, Tokenizer};

/// `n` tokens drawn with a seed from those that stand for text; none of them begins or ends one. The
/// same vocabulary and seed give the same tokens on every machine, and the first of many are those
/// of few. Of a vocabulary without any text, all tokens are drawn from; of an empty one, none.
#[must_use]
pub fn random_tokens(tokenizer: &Tokenizer, seed: u64, n: usize) -> Vec<u32> {
    let all = 0..u32::try_from(tokenizer.n_tokens()).unwrap_or(u32::MAX);
    let is_text = |&id: &u32| {
        matches!(
            tokenizer.token_type(id),
            Ok(TokenType::Normal | TokenType::Byte | TokenType::Undefined)
        )
    };
    let mut drawn_from: Vec<u32> = all.clone().filter(is_text).collect();
    if drawn_from.is_empty() {
        drawn_from.extend(all);
    }
    if drawn_from.is_empty() {
        return Vec::new();
    }
    let mut random = Random::new(seed);
    let mut draw = || {
        // The upper half of the product: each token as likely as another to one in 2⁶⁴.
        let index = (u128::from(random.next()) * drawn_from.len() as u128) >> 64;
        drawn_from[index as usize]
    };
    (0..n).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{Model, Vocabulary};

    fn tokenizer(types: &[i32]) -> Tokenizer {
        Tokenizer::new(Vocabulary {
            model: Model::Spm,
            pre: String::new(),
            tokens: (0..types.len()).map(|i| format!("t{i}")).collect(),
            scores: vec![0.0; types.len()],
            types: types.iter().map(|&number| TokenType::from_gguf(number)).collect(),
            merges: vec![],
            bos: None,
            eos: None,
            unk: None,
            add_bos: false,
            add_eos: false,
            add_space_prefix: false,
        })
        .expect("a vocabulary")
    }

    #[test]
    fn tokens_are_text_and_the_same_for_a_seed() {
        // Unknown, control, control, then text.
        let tokenizer = tokenizer(&[2, 3, 3, 1, 1, 1, 1, 1]);
        let tokens = random_tokens(&tokenizer, 42, 1000);
        assert_eq!(tokens[..10], [6, 3, 4, 4, 3, 7, 4, 7, 4, 6], "for ever");
        assert_eq!(random_tokens(&tokenizer, 42, 10), tokens[..10]);
        assert_ne!(random_tokens(&tokenizer, 43, 1000), tokens);
        for id in 0..8 {
            let drawn = tokens.iter().filter(|&&token| token == id).count();
            assert!(if id < 3 { drawn == 0 } else { drawn > 140 }, "{id}: {drawn}");
        }
    }

    #[test]
    fn a_vocabulary_without_text_still_has_tokens() {
        assert_eq!(random_tokens(&tokenizer(&[3]), 1, 3), [0, 0, 0]);
    }
}
