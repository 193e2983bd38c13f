//! What attention looks at in a graph: the tokens that are in the cache, not those that it has room for.

/// What attention looks at: the tokens of each sequence, as far as a graph or a pass adds to it.
///
/// A pass of more tokens than a micro-batch has computes several graphs. Each looks at the tokens before it and at its own,
/// so each needs its own: [`part`](Self::part).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LooksAt {
    /// How many tokens of a sequence were in the cache before and after; those only that grew.
    sequences: Vec<[u64; 2]>,
    all: Sums,
    /// The tokens that a sliding window has, and what is looked at in it.
    within: Option<(u64, Sums)>,
    is_chunked: bool,
}

/// What all tokens of a graph look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// The tokens that look.
    pub(crate) tokens: u64,
    /// The sum over them of the tokens that each looks at: those before it in its sequence, and itself.
    pub(crate) looked: u64,
    /// The tokens whose keys and values are read.
    pub(crate) rows: u64,
}

impl LooksAt {
    /// Of tokens that follow `position` others in their sequence.
    #[must_use]
    pub fn one(position: u64, tokens: u64) -> Self {
        Self::of(vec![[position, position.saturating_add(tokens)]])
    }

    /// Of several sequences, each with the tokens that were in the cache before and after. `None` if none grew.
    #[must_use]
    pub fn several(sequences: &[[u32; 2]]) -> Option<Self> {
        let grown = sequences.iter().filter(|[before, after]| before < after);
        let grown: Vec<[u64; 2]> = grown.map(|of| of.map(u64::from)).collect();
        (!grown.is_empty()).then(|| Self::of(grown))
    }

    fn of(sequences: Vec<[u64; 2]>) -> Self {
        let all = Sums::of(&sequences, u64::MAX);
        Self { sequences, all, within: None, is_chunked: false }
    }

    /// Of a model some layers of which look at this many tokens at most, each token's own included: at a sliding window.
    #[must_use]
    pub fn within(self, window: u64) -> Self {
        let sums = Sums::of(&self.sequences, window);
        Self { within: (window > 0).then_some((window, sums)), is_chunked: false, ..self }
    }

    /// The same of chunks of the text, as Llama 4 has: a token looks at those of its own chunk.
    #[must_use]
    pub fn within_chunks(self, chunk: u64) -> Self {
        let sums = Sums::of_chunks(&self.sequences, chunk.max(1));
        Self { within: (chunk > 0).then_some((chunk, sums)), is_chunked: true, ..self }
    }

    /// What the graph looks at that has `tokens` of these, after `before` others of them. Of several sequences it is not
    /// known whose tokens those are, unless it has all.
    #[must_use]
    pub fn part(&self, before: u64, tokens: u64) -> Option<Self> {
        if before == 0 && tokens == self.all.tokens {
            return Some(self.clone());
        }
        let [[first, after]] = self.sequences[..] else { return None };
        let from = first.saturating_add(before);
        let until = from.saturating_add(tokens);
        let part = (until <= after && tokens > 0).then(|| Self::one(from, tokens))?;
        Some(match self.within {
            Some((chunk, _)) if self.is_chunked => part.within_chunks(chunk),
            Some((window, _)) => part.within(window),
            None => part,
        })
    }

    /// What a node looks at whose cache has room for so many tokens of a sequence, and of which it is known or not whether it
    /// looks at a window. `None` if that can't be told.
    pub(crate) fn sums(&self, room: u64, is_window: Option<bool>) -> Option<Sums> {
        let longest = self.sequences.iter().map(|[_, after]| *after).max().unwrap_or(0);
        // A cache that hasn't room for all tokens keeps those of a window.
        if is_window == Some(true) || longest > room {
            return self.within.map(|(_, sums)| sums);
        }
        match self.within {
            Some((window, _)) if is_window.is_none() && longest > window => None,
            _ => Some(self.all),
        }
    }
}

impl Sums {
    fn of(sequences: &[[u64; 2]], window: u64) -> Self {
        let mut sums = Self::default();
        for &[before, after] in sequences.iter().filter(|[before, after]| before < after) {
            sums.tokens = sums.tokens.saturating_add(after - before);
            // Tokens that have fewer before them than the window look at all of them.
            let all = until(after.min(window)).saturating_sub(until(before.min(window)));
            let full = u128::from(after.max(window) - before.max(window)) * u128::from(window);
            let looked = u64::try_from(all.saturating_add(full)).unwrap_or(u64::MAX);
            sums.looked = sums.looked.saturating_add(looked);
            let first = before.saturating_add(1).saturating_sub(window);
            sums.rows = sums.rows.saturating_add(after - first);
        }
        sums
    }
}

impl Sums {
    fn of_chunks(sequences: &[[u64; 2]], chunk: u64) -> Self {
        let before = |n: u64| {
            let whole = u128::from(n / chunk).saturating_mul(until(chunk));
            whole.saturating_add(until(n % chunk))
        };
        let mut sums = Self::default();
        for &[from, to] in sequences.iter().filter(|[from, to]| from < to) {
            sums.tokens = sums.tokens.saturating_add(to - from);
            let looked = u64::try_from(before(to) - before(from)).unwrap_or(u64::MAX);
            sums.looked = sums.looked.saturating_add(looked);
            sums.rows = sums.rows.saturating_add(to - from / chunk * chunk);
        }
        sums
    }
}

/// What the first `n` tokens look at.
fn until(n: u64) -> u128 {
    u128::from(n) * (u128::from(n) + 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token by token.
    fn counted(sequences: &[[u64; 2]], window: u64) -> Sums {
        let mut sums = Sums::default();
        for &[before, after] in sequences {
            let mut rows = std::collections::BTreeSet::new();
            for token in before..after {
                let seen = (0..=token).rev().take(window as usize);
                sums.tokens += 1;
                sums.looked += seen.clone().count() as u64;
                rows.extend(seen);
            }
            sums.rows += rows.len() as u64;
        }
        sums
    }

    fn counted_chunks(sequences: &[[u64; 2]], chunk: u64) -> Sums {
        let mut sums = Sums::default();
        for &[before, after] in sequences {
            let mut rows = std::collections::BTreeSet::new();
            for token in before..after {
                let seen = (0..=token).filter(|of| of / chunk == token / chunk);
                sums.tokens += 1;
                sums.looked += seen.clone().count() as u64;
                rows.extend(seen);
            }
            sums.rows += rows.len() as u64;
        }
        sums
    }

    #[test]
    fn sums_are_those_of_all_tokens() {
        for sequences in [
            &[[0, 1]][..],
            &[[0, 40]],
            &[[10, 13]],
            &[[39, 40]],
            &[[100, 140], [0, 7], [500, 501]],
            &[[15, 17], [16, 16], [17, 30]],
        ] {
            for window in [1, 2, 16, 17, 1000] {
                let [of, counted] = [Sums::of(sequences, window), counted(sequences, window)];
                assert_eq!(of, counted, "{sequences:?} {window}");
                let [of, counted] =
                    [Sums::of_chunks(sequences, window), counted_chunks(sequences, window)];
                assert_eq!(of, counted, "{sequences:?} in chunks of {window}");
            }
        }
        let most = Sums::of(&[[0, u64::MAX], [3, u64::MAX]], u64::MAX);
        assert_eq!((most.looked, most.rows), (u64::MAX, u64::MAX));
    }

    #[test]
    fn each_micro_batch_looks_at_the_tokens_before_it_and_its_own() {
        let pass = LooksAt::one(100, 2048);
        let parts = [0, 1, 2, 3].map(|n| pass.part(512 * n, 512).expect("one sequence"));
        assert_eq!(parts[2], LooksAt::one(100 + 1024, 512));
        let looked = |of: &LooksAt| of.all.looked;
        assert_eq!(parts.iter().map(looked).sum::<u64>(), looked(&pass));
        assert_eq!(pass.part(0, 2048), Some(pass.clone()));
        for (before, tokens) in [(2000, 49), (u64::MAX, 1), (1, u64::MAX), (0, 0)] {
            assert_eq!(pass.part(before, tokens), None, "{before} {tokens}");
        }
        let windows = pass.within(64).part(512, 512).expect("one sequence");
        assert_eq!(windows, LooksAt::one(612, 512).within(64));
        let two = LooksAt::several(&[[10, 20], [0, 5]]).expect("they grew");
        assert_eq!((two.part(0, 15), two.part(0, 10)), (Some(two.clone()), None));
        assert_eq!(LooksAt::several(&[[7, 7], [9, 3]]), None);
    }

    #[test]
    fn windows_are_those_of_caches_that_have_no_room_for_all() {
        let looks = |at: &LooksAt, room, is_window| at.sums(room, is_window).map(|of| of.rows);
        let long = LooksAt::one(8000, 1);
        assert_eq!(looks(&long, 8192, None), Some(8001));
        assert_eq!(looks(&long, 1024, None), None, "how long its window is isn't known");
        let long = long.within(512);
        assert_eq!(looks(&long, 1024, None), Some(512));
        assert_eq!(looks(&long, 8192, None), None, "whether it looks at a window isn't known");
        assert_eq!(looks(&long, 8192, Some(false)), Some(8001));
        assert_eq!(looks(&long, 8192, Some(true)), Some(512));
        let short = LooksAt::one(100, 1).within(512);
        assert_eq!(looks(&short, 256, None), Some(101));
        assert_eq!(looks(&short, 256, Some(true)), Some(101));
    }
}
