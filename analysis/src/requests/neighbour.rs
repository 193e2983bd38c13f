//! What prompts of others cost a token: the pass that computed it beside them is held against passes of the run with as much
//! decode and no prompt.
//!
//! A pass that several requests share is never divided among them. This is another figure: what the pass would have taken
//! without the prompts is predicted, with an interval, and what it took longer is what they cost.

mod like;
mod predict;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashSet;
use std::mem::discriminant;

use serde::Serialize;

use self::predict::Expected;
use super::{Cause, Caused, rank_of};

pub use self::like::WithoutPrompts;
pub(crate) use self::words::CHANCE;

/// With fewer passes like it, nobody knows what a pass would have taken.
const FEWEST: usize = 5;

/// Which passes one is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Beside {
    /// Those that decode as many tokens of as many sequences.
    AsMany,
    /// Those that decode fewer and read no more of the KV cache, and those that decode more and read no less: it takes no less
    /// than the ones, and no more than the others.
    FewerAndMore,
}

/// What prompts of others cost a token in passes that it shared with them, in nanoseconds: predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// What the pass took beyond what it typically takes without a prompt: the median of passes like it. Of several passes the
    /// sum.
    pub cost_ns: i64,
    /// The least that it may be: without the prompts, the pass may have been as slow as the slow ones of these.
    pub low_ns: i64,
    /// The most.
    pub high_ns: i64,
    /// How often such an interval holds what it is of, from 0 to 1: 0.95 or more, where there are 39 passes of its kind.
    pub coverage: f64,
    /// From how many passes it is predicted.
    pub beside: u64,
    /// How many others were like it, and disturbed: they are left out.
    pub left_out: u64,
    /// Which passes these are.
    pub by: Beside,
}

impl Cost {
    /// Of a pass, by what it would take without a prompt.
    fn of(wall_ns: u64, expected: &Expected, by: Beside) -> Self {
        let beyond = |ns: f64| difference(wall_ns, ns.round() as u64);
        Self {
            cost_ns: beyond(expected.typical_ns),
            low_ns: beyond(expected.high_ns),
            high_ns: beyond(expected.low_ns),
            coverage: 1.0 - expected.outside,
            beside: 0,
            left_out: 0,
            by,
        }
    }

    /// Both together. Either interval may fail to hold its own, so that both do is rarer.
    fn plus(self, other: Self) -> Self {
        Self {
            cost_ns: self.cost_ns.saturating_add(other.cost_ns),
            low_ns: self.low_ns.saturating_add(other.low_ns),
            high_ns: self.high_ns.saturating_add(other.high_ns),
            coverage: (self.coverage + other.coverage - 1.0).max(0.0),
            by: self.by.max(other.by),
            ..self
        }
    }

    fn citing(self, beside: u64, left_out: u64) -> Self {
        Self { beside, left_out, ..self }
    }

    /// Whether it can be told from 0: the interval doesn't include it.
    #[must_use]
    pub fn is_distinct(&self) -> bool {
        is_distinct([self.low_ns, self.high_ns])
    }
}

/// Whether an interval lies on one side of 0.
fn is_distinct([low_ns, high_ns]: [i64; 2]) -> bool {
    low_ns > 0 || high_ns < 0
}

fn difference(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Why nobody knows what prompts of others cost in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NotKnown {
    /// So few passes of the run have as much decode and no prompt, or the wanted one.
    FewPasses {
        /// How many have.
        found: u64,
        /// How many more have, and were disturbed.
        disturbed: u64,
        /// Not without a prompt, but with at most so many tokens of prompts.
        piece: Option<u64>,
    },
    /// The pass itself was disturbed, which may have taken of its time.
    Disturbed,
    /// The pass had a prompt of its own, too: without a prompt no pass is like it.
    OwnPrompt,
    /// None of its passes had more tokens of prompts than the wanted ones, or most of that one lies in the time of another token.
    NoLarger,
    /// None of its passes had prompts of others, or most of that one lies in the time of another token.
    NoPass,
}

/// What a token waited for prompts of others. The two figures aren't added: one is predicted, the other measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptCost {
    /// In passes that it shared with them. `None` if it shared none, and waited for passes for them alone.
    pub shared: Option<Result<Cost, NotKnown>>,
    /// In passes for them alone, as far as these lie in its time, in nanoseconds.
    pub alone_ns: u64,
}

/// What prompts of others cost all tokens that waited for them most.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Costs {
    /// Where it is known, the least cost first.
    pub known: Vec<Cost>,
    /// From how many passes these are predicted, together.
    pub beside: u64,
    /// How many others were like these, and disturbed: they are left out.
    pub left_out: u64,
    /// Of how many it isn't known, and why. Where passes are too few, the most that one has.
    pub not_known: Vec<(NotKnown, u64)>,
    /// The time in passes for prompts alone, of each that has some, in nanoseconds, the shortest first.
    pub alone_ns: Vec<u64>,
    /// Whether chance explains that these took longer: all passes of the run with such prompts are beyond their intervals as
    /// rarely as any others, so slow ones happen to have prompts. Then nothing can be told from 0.
    pub is_by_chance: bool,
}

/// What prompts cost some tokens together, in nanoseconds: predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// The costs, summed.
    pub cost_ns: i64,
    /// The lower ends of their intervals, summed: it is less only if many are below theirs.
    pub low_ns: i64,
    /// The upper ends, summed.
    pub high_ns: i64,
}

impl Costs {
    /// Of those that [waited for prompts of others](Cause::Prompts).
    #[must_use]
    pub fn of(without: &WithoutPrompts<'_, '_>, slow: &[Caused]) -> Self {
        let mut costs = Self::default();
        let [mut chosen, mut beside, mut left_out] =
            [HashSet::new(), HashSet::new(), HashSet::new()];
        for of in slow.iter().filter(|of| of.cause == Cause::Prompts) {
            let (PromptCost { shared, alone_ns }, cited) = without.cost_by(&of.interval);
            chosen.extend(cited.of);
            beside.extend(cited.passes);
            left_out.extend(cited.left_out);
            match shared {
                Some(Ok(cost)) => costs.known.push(cost),
                Some(Err(why)) => costs.add(why),
                None => {}
            }
            costs.alone_ns.extend(Some(alone_ns).filter(|ns| *ns > 0));
        }
        costs.known.sort_by_key(|cost| cost.cost_ns);
        costs.alone_ns.sort_unstable();
        costs.beside = beside.len() as u64;
        costs.left_out = left_out.len() as u64;
        costs.is_by_chance = without.is_by_chance(&chosen);
        costs
    }

    fn add(&mut self, why: NotKnown) {
        let is_it = |of: &NotKnown| discriminant(of) == discriminant(&why);
        match self.not_known.iter_mut().find(|(of, _)| is_it(of)) {
            Some((of, n)) => (*of, *n) = ((*of).max(why), *n + 1),
            None => self.not_known.push((why, 1)),
        }
    }

    /// Of how many tokens it is known or not known: those that shared a pass with prompts of others.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.not_known.iter().fold(self.known.len() as u64, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// All of it together. `None` where it isn't known of each, or of none, or chance explains it.
    #[must_use]
    pub fn sum(&self) -> Option<Sum> {
        let is_whole = self.not_known.is_empty() && !self.known.is_empty() && !self.is_by_chance;
        let sum = |ns: fn(&Cost) -> i64| self.known.iter().map(ns).fold(0, i64::saturating_add);
        is_whole.then(|| Sum {
            cost_ns: sum(|of| of.cost_ns),
            low_ns: sum(|of| of.low_ns),
            high_ns: sum(|of| of.high_ns),
        })
    }

    /// The least cost that this many in a hundred don't exceed, in nanoseconds. `None` if none is known.
    #[must_use]
    pub fn percentile(&self, nth: u32) -> Option<i64> {
        self.known.get(rank_of(self.known.len(), nth)).map(|cost| cost.cost_ns)
    }
}
