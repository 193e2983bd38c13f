//! Prompts of a wanted length. Only the server knows how many tokens a text is, so it is asked first.

use brickscope_profile::stats::SplitMix64;

use crate::plan::Plan;

/// How many tokens words are, by what a server said of two prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Words {
    /// Tokens of a prompt without words: a template for chats, say.
    pub base: f64,
    /// Tokens of a word.
    pub each: f64,
}

/// Without an answer from the server: a token each.
impl Default for Words {
    fn default() -> Self {
        Self { base: 0.0, each: 1.0 }
    }
}

/// A token each in most vocabularies, with the space before it.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "for", "on", "that", "with", "as", "was", "at", "by",
    "it", "from", "or", "an", "be", "are", "this", "not", "have", "all", "one", "new", "more",
    "can", "has", "but", "time", "what", "about", "which", "when", "there", "out", "other", "some",
    "so", "people", "like", "two", "may", "over", "only", "any", "first", "work", "after", "most",
    "such", "world", "day", "great", "long", "little", "own", "under", "old", "good", "high",
    "year", "place",
];

impl Words {
    /// By the tokens of two prompts with this many words.
    pub(crate) fn by(few: (u64, u64), many: (u64, u64)) -> Option<Self> {
        let words = many.0.checked_sub(few.0).filter(|words| *words > 0)?;
        let tokens = many.1.checked_sub(few.1).filter(|tokens| *tokens > 0)?;
        let each = tokens as f64 / words as f64;
        Some(Self { base: (few.1 as f64 - each * few.0 as f64).max(0.0), each })
    }

    /// How many words such a prompt has, one at least.
    fn of(self, tokens: u64) -> u64 {
        ((tokens as f64 - self.base) / self.each).round().max(1.0) as u64
    }

    /// The prompt of the `nth` request. It shares no beginning with others, but for blocks that both have.
    pub(crate) fn prompt(self, plan: &Plan, nth: usize) -> String {
        let (ask, seed) = (&plan.asks[nth], plan.seed);
        let mut left = self.of(ask.prompt_tokens);
        let in_block = ((plan.block_tokens as f64 / self.each).round() as u64).max(1);
        let mut text = String::with_capacity(left.min(1 << 20) as usize * 5);
        for block in &ask.blocks {
            let words = left.min(in_block);
            add(&mut text, words, seed ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            left -= words;
        }
        add(&mut text, left, !seed ^ (nth as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9));
        text
    }
}

/// This many words of no meaning.
pub(crate) fn words(number: u64, seed: u64) -> String {
    let mut text = String::new();
    add(&mut text, number, seed);
    text
}

/// Each word once in any order, and again: so that as many words are nearly as many tokens, whatever the seed.
fn add(text: &mut String, number: u64, seed: u64) {
    let mut random = SplitMix64(seed);
    let mut order = WORDS;
    for nth in 0..number as usize {
        if nth.is_multiple_of(WORDS.len()) {
            random.shuffle(&mut order);
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(order[nth % WORDS.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Ask, Pace};

    fn plan(asks: &[(u64, &[u64])], block_tokens: u64) -> Plan {
        let ask = |&(prompt_tokens, blocks): &(u64, &[u64])| Ask {
            due_ns: 0,
            prompt_tokens,
            blocks: blocks.to_vec(),
            answer_tokens: 1,
        };
        Plan { asks: asks.iter().map(ask).collect(), pace: Pace::Open, seed: 3, block_tokens }
    }

    fn number(text: &str) -> usize {
        text.split(' ').count()
    }

    #[test]
    fn a_prompt_has_as_many_words_as_make_its_tokens() {
        let of = |words: Words, tokens: u64| number(&words.prompt(&plan(&[(tokens, &[])], 512), 0));
        let words = Words::by((16, 30), (272, 542)).expect("two prompts");
        assert_eq!(words, Words { base: 0.0, each: 2.0 });
        assert_eq!(of(words, 400), 200);
        let chat = Words::by((16, 36), (272, 292)).expect("two prompts");
        assert_eq!(chat, Words { base: 20.0, each: 1.0 });
        assert_eq!(of(chat, 100), 80);
        // Shorter than it can be.
        assert_eq!(of(chat, 3), 1);
        // A server that says the same of both says nothing.
        assert_eq!(Words::by((16, 5), (272, 5)), None);
    }

    #[test]
    fn prompts_begin_alike_where_their_blocks_are() {
        let shared =
            |a: &str, b: &str| a.split(' ').zip(b.split(' ')).take_while(|(a, b)| a == b).count();
        // Also where all is a quarter as long.
        for (part, block) in [(1, 512), (4, 128)] {
            let asks: [(u64, &[u64]); 5] = [
                (1_100 / part, &[7, 8, 9]),
                (1_100 / part, &[7, 8, 10]),
                (700 / part, &[7]),
                (300 / part, &[]),
                (300 / part, &[]),
            ];
            let plan = plan(&asks, block as u64);
            let all: Vec<String> = (0..5).map(|nth| Words::default().prompt(&plan, nth)).collect();
            assert_eq!(
                all.iter().map(|text| number(text) as u64).collect::<Vec<_>>(),
                asks.map(|of| of.0)
            );
            assert!((2 * block..2 * block + 10).contains(&shared(&all[0], &all[1])));
            assert!((block..block + 10).contains(&shared(&all[0], &all[2])));
            // Others are alike by chance only.
            assert!(shared(&all[3], &all[4]) < 5);
            assert_eq!(all[3], Words::default().prompt(&plan, 3));
        }
    }
}
