//! The times between two tokens of one sequence.

use std::collections::HashMap;

use crate::recording::events::Pass;

/// Where a sequence is.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    /// Tokens in the cache.
    after: u32,
    /// Those of its last pass.
    tokens: u32,
    end_ns: u64,
    /// Whether that computed a token of the answer.
    has_output: bool,
}

/// The sequences of each context, by their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Intervals(HashMap<(Option<u16>, u32), Sequence>);

impl Intervals {
    /// Adds a pass that ended at `end_ns`. Returns, for each sequence that got a further token by it, when it had the one
    /// before, and how long ago that was. What was drafted comes at once.
    pub(super) fn add(&mut self, pass: &Pass, end_ns: u64) -> Vec<(u64, u64)> {
        let mut intervals = Vec::new();
        if !pass.is_decode || pass.status != 0 {
            return intervals;
        }
        for (nth, &[before, after]) in (0_u32..).zip(&pass.sequences) {
            let at = usize::try_from(nth).unwrap_or(usize::MAX);
            let (number, outputs) = pass.numbers.get(at).copied().unwrap_or((nth, None));
            let tokens = after.saturating_sub(before);
            // Of what was drafted each token has an output; of a prompt, the last one.
            let is_answer = tokens == 1 && outputs != Some(0) || outputs == Some(tokens);
            let has_output = outputs.is_none_or(|outputs| outputs > 0);
            let now = Sequence { after, tokens, end_ns, has_output };
            let Some(last) = self.0.insert((pass.context, number), now) else { continue };
            // What was drafted and refused is taken out again.
            let taken = last.after.checked_sub(before);
            let goes_on = taken == Some(0) || taken.is_some_and(|taken| taken < last.tokens);
            if goes_on && last.has_output && is_answer {
                intervals.push((last.end_ns, end_ns.saturating_sub(last.end_ns)));
            }
        }
        intervals
    }
}
