//! The tests that a benchmark runs, named as in llama-bench.

/// Tokens of a prompt that a session runs in one pass: `Session::batch`, unless the context is shorter,
/// in which case the prompt is a single pass as well.
const BATCH: usize = 128;

/// Bricks in a forward pass.
const BRICKS: usize = 14;

/// One kind of work: prefill if it has a prompt, else decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Tokens of the prompt; 0 for decode.
    pub(crate) n_prompt: usize,
    /// Tokens to generate; 0 for prefill.
    pub(crate) n_gen: usize,
    /// Tokens in the KV cache before it.
    pub(crate) n_depth: usize,
}

impl Plan {
    /// The tests to run: prefill, then decode, at each depth.
    pub(crate) fn all(n_prompt: usize, n_gen: usize, depths: &[usize]) -> Vec<Self> {
        let mut plans = Vec::new();
        for &n_depth in depths {
            for plan in [Self { n_prompt, n_gen: 0, n_depth }, Self { n_prompt: 0, n_gen, n_depth }]
            {
                if plan.n_prompt + plan.n_gen > 0 && !plans.contains(&plan) {
                    plans.push(plan);
                }
            }
        }
        plans
    }

    /// `pp512`, `tg128`, `tg128 @ d512`.
    pub(crate) fn name(&self) -> String {
        let kind = match self.n_prompt {
            0 => format!("tg{}", self.n_gen),
            n => format!("pp{n}"),
        };
        if self.n_depth == 0 { kind } else { format!("{kind} @ d{}", self.n_depth) }
    }

    pub(crate) fn is_decode(&self) -> bool {
        self.n_gen > 0
    }

    /// Tokens in the KV cache when a repetition begins. A decode pass needs at least one.
    pub(crate) fn position(&self) -> usize {
        if self.is_decode() { self.n_depth.max(1) } else { self.n_depth }
    }

    /// Passes of a repetition.
    pub(crate) fn passes(&self) -> usize {
        self.n_prompt.div_ceil(BATCH) + self.n_gen
    }

    /// The approximate size of a repetition in the receipt: its names, and a figure of about ten digits for
    /// each brick and each pass, and in a decode test for each token.
    pub(crate) fn receipt_bytes(&self) -> u64 {
        (350 + 10 * BRICKS + 20 * self.passes()) as u64
    }

    /// Tokens in the KV cache at the end of a repetition.
    pub(crate) fn context(&self) -> usize {
        self.position() + self.n_prompt + self.n_gen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn plans(flags: &str) -> Vec<(String, usize)> {
        let words = ["brickscope", "benchmark"].into_iter().chain(flags.split_whitespace());
        let Command::Benchmark(args) = Args::parse_from(words).command else {
            panic!("{flags}");
        };
        Plan::all(args.prompt_tokens, args.tokens, &args.depth)
            .iter()
            .map(|plan| (plan.name(), plan.context()))
            .collect()
    }

    #[test]
    fn tests_are_named_as_llama_bench_names_them() {
        let named = |name: &str, context| (name.to_owned(), context);
        assert_eq!(plans(""), [named("pp512", 512), named("tg128", 129)]);
        assert_eq!(
            plans("-p 4 -n 2 -d 0,16"),
            [named("pp4", 4), named("tg2", 3), named("pp4 @ d16", 20), named("tg2 @ d16", 18)]
        );
        assert_eq!(plans("-p 0 -n 3 -d 8,8"), [named("tg3 @ d8", 11)], "each once");
        assert_eq!(plans("-p 0 -n 0"), []);
    }

    #[test]
    fn a_prompt_is_counted_by_its_batches_and_an_answer_by_its_tokens() {
        let passes = |n_prompt, n_gen| Plan { n_prompt, n_gen, n_depth: 16 }.passes();
        assert_eq!([1, 128, 129, 512].map(|n| passes(n, 0)), [1, 1, 2, 4]);
        assert_eq!([1, 128].map(|n| passes(0, n)), [1, 128]);
    }
}
