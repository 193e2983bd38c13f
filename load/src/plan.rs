//! What is asked, and when.

use std::num::NonZeroUsize;

use brickscope_profile::stats::SplitMix64;

/// The tokens of a block of Mooncake's traces.
pub(crate) const BLOCK: u64 = 512;

/// Requests, in the order in which they are due.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What is asked.
    pub asks: Vec<Ask>,
    /// When.
    pub pace: Pace,
    /// What the words of prompts are chosen by.
    pub seed: u64,
    /// The tokens of a block.
    pub block_tokens: u64,
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each when it is due, whatever became of those before.
    Open,
    /// By this many clients, each of which asks again when it has its answer. A server that stalls is asked less, so what it
    /// does to others isn't seen: for how much it can do, not for how long who asks must wait.
    Closed(NonZeroUsize),
}

/// A request that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// When it is due, in nanoseconds from the beginning; 0 in a closed loop.
    pub due_ns: u64,
    /// The tokens of its prompt.
    pub prompt_tokens: u64,
    /// The blocks that its prompt begins with, as Mooncake's traces number them: prompts with the same numbers begin with the
    /// same words.
    pub blocks: Vec<u64>,
    /// The most tokens of its answer.
    pub answer_tokens: u64,
}

impl Plan {
    /// This many requests, due by chance: on average `rate` in a second, and none of them because of another one.
    #[must_use]
    pub fn poisson(rate: f64, requests: usize, prompt: u64, answer: u64, seed: u64) -> Self {
        let mut random = SplitMix64(seed);
        let mut at = 0.0;
        let due = (0..requests).map(|_| {
            let due_ns = (at * 1e9) as u64;
            // Above 0, so that it has a logarithm: https://en.wikipedia.org/wiki/Exponential_distribution#Random_variate_generation
            let uniform = ((random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            at += -uniform.ln() / rate;
            due_ns
        });
        Self::due_at(due, prompt, answer, seed)
    }

    /// This many requests, as far from each other.
    #[must_use]
    pub fn constant(rate: f64, requests: usize, prompt: u64, answer: u64, seed: u64) -> Self {
        let due = (0..requests).map(|nth| (nth as f64 * 1e9 / rate) as u64);
        Self::due_at(due, prompt, answer, seed)
    }

    /// This many requests, by so many clients at once.
    #[must_use]
    pub fn closed(
        clients: NonZeroUsize,
        requests: usize,
        prompt: u64,
        answer: u64,
        seed: u64,
    ) -> Self {
        let pace = Pace::Closed(clients);
        Self { pace, ..Self::due_at((0..requests).map(|_| 0), prompt, answer, seed) }
    }

    fn due_at(due: impl Iterator<Item = u64>, prompt: u64, answer: u64, seed: u64) -> Self {
        let ask = |due_ns| Ask {
            due_ns,
            prompt_tokens: prompt,
            blocks: Vec::new(),
            answer_tokens: answer,
        };
        Self { asks: due.map(ask).collect(), pace: Pace::Open, seed, block_tokens: BLOCK }
    }

    /// The requests a second that are due, on average; `None` in a closed loop, and of fewer than two.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = (self.asks.first()?, self.asks.last()?);
        let lasts_ns = last.due_ns.saturating_sub(first.due_ns);
        let is_open = self.pace == Pace::Open && lasts_ns > 0;
        is_open.then(|| (self.asks.len() - 1) as f64 * 1e9 / lasts_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_a_poisson_process_are_exponential() {
        let plan = Plan::poisson(10.0, 20_001, 8, 8, 7);
        let gaps = plan.asks.windows(2).map(|two| (two[1].due_ns - two[0].due_ns) as f64 / 1e9);
        let gaps: Vec<f64> = gaps.collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // Of 20,000, the mean is within five of its standard errors of 0.1 s: 0.0035 s.
        assert!((mean - 0.1).abs() < 0.0036, "{mean}");
        // How many exceed t: e to the -10 t; within five standard deviations of a binomial count.
        for t in [0.05, 0.1, 0.3] {
            let more = gaps.iter().filter(|&&gap| gap > t).count() as f64 / 2e4;
            let expected = (-10.0 * t).exp();
            let error = 5.0 * (expected * (1.0 - expected) / 2e4).sqrt();
            assert!((more - expected).abs() < error, "{t}: {more} beside {expected}");
        }
        assert_eq!(plan.asks[0].due_ns, 0);
        assert!((plan.rate().expect("a rate") - 10.0).abs() < 0.36);
        assert_eq!(plan, Plan::poisson(10.0, 20_001, 8, 8, 7));
    }

    #[test]
    fn a_constant_rate_has_equal_gaps() {
        let plan = Plan::constant(4.0, 5, 8, 8, 1);
        let due: Vec<u64> = plan.asks.iter().map(|ask| ask.due_ns).collect();
        assert_eq!(due, [0, 250_000_000, 500_000_000, 750_000_000, 1_000_000_000]);
        assert_eq!(plan.rate(), Some(4.0));
        assert_eq!(Plan::constant(4.0, 1, 8, 8, 1).rate(), None);
    }
}
