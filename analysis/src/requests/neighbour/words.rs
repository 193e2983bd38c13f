//! What prompts of others cost tokens, in sentences: those of every screen.

use std::fmt;

use brickscope_profile::text::{count, grouped};

use super::{Beside, Cost, Costs, FEWEST, NotKnown, PromptCost, is_distinct};
use crate::requests::rank;
use crate::words::{many, signed, time, whole_percent};

/// Of so many costs, 90 % lie in the middle; of fewer, the least and the most are shown.
const MANY: usize = 20;
/// Why a figure that is beyond its interval tells nothing.
pub(crate) const CHANCE: &str = "among passes with such prompts, as many are as slow by chance";

impl fmt::Display for NotKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FewPasses { found, disturbed, piece } => {
                let have = if found < 2 { "has" } else { "have" };
                let passes = if found == 0 { "no pass".to_owned() } else { count(found, "pass") };
                let prompts = piece.map_or("no prompt".to_owned(), in_pieces);
                write!(
                    f,
                    "{passes} of this run {have} as many decode tokens at like positions and {prompts}, {FEWEST} are needed"
                )?;
                match disturbed {
                    0 => Ok(()),
                    n => write!(f, "; left out, since disturbed: {n}"),
                }
            }
            Self::Disturbed => f.write_str("the pass was disturbed, which may cost it time, too"),
            Self::OwnPrompt => f.write_str("its own prompt was in the pass, too"),
            Self::NoLarger => {
                f.write_str("no pass of its own that had more lies mostly in its time")
            }
            Self::NoPass => {
                f.write_str("no pass of its own with prompts of others lies mostly in its time")
            }
        }
    }
}

/// `257 to 512 tokens of prompts`
fn in_pieces(most: u64) -> String {
    match (most / 2).saturating_add(1) {
        least if least < most => {
            format!("{} to {} of prompts", grouped(least), many(most, "token"))
        }
        _ => format!("{} of prompts", many(most, "token")),
    }
}

impl Costs {
    /// What prompts of others cost slow tokens: what is predicted, what isn't known and what was measured, a sentence each.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let cost =
            |figure: &str| format!("A prompt of another in the same pass cost its token {figure}");
        let unsure = "What a prompt of another in the same pass cost its token";
        let mut said: Vec<String> = Vec::new();
        said.extend(self.predicted(cost, unsure, "no prompt"));
        said.extend(self.together(""));
        said.extend(self.unknown("what a prompt cost"));
        if let Some(median) = rank(&self.alone_ns, 50) {
            said.push(format!(
                "Passes for prompts of others alone took {} of a token's time (median of {}): measured.",
                time(median as f64),
                grouped(self.alone_ns.len() as u64)
            ));
        }
        said
    }

    /// What smaller pieces of prompts would bring slow tokens, if these are [costs beyond such](super::WithoutPrompts::of_pieces).
    pub(crate) fn of_smaller(&self, piece: u64) -> Vec<String> {
        let prompts = in_pieces(piece);
        let brings =
            |figure: &str| format!("With {prompts}, a pass that had more would take {figure} less");
        let unsure = format!("What {prompts} would save a token");
        let mut said: Vec<String> = Vec::new();
        said.extend(self.predicted(brings, &unsure, &prompts));
        said.extend(self.together(" less"));
        said.extend(self.unknown("what smaller pieces of prompts would bring"));
        said
    }

    /// What is predicted of some tokens. None if nothing is.
    fn predicted(
        &self,
        cost: impl Fn(&str) -> String,
        unsure_of: &str,
        prompts: &str,
    ) -> Option<String> {
        let percentiles = [5, 50, 95].map(|nth| self.percentile(nth));
        let [Some(low), Some(median), Some(high)] = percentiles else { return None };
        let all = format!("median of {}", grouped(self.known.len() as u64));
        let (which, interval, part) = match self.known.as_slice() {
            // Of a single one its own interval says more.
            [one] => ("of one token".to_owned(), [one.low_ns, one.high_ns], covered(one)),
            known if known.len() < MANY => (all, [low, high], "for all".to_owned()),
            _ => (all, [low, high], "for the middle 90 %".to_owned()),
        };
        let unsure = self.known.iter().filter(|cost| !cost.is_distinct()).count();
        let of_these = if unsure == 0 || self.known.len() == 1 {
            String::new()
        } else {
            format!(", of which {} can't be told from 0", grouped(unsure as u64))
        };
        // Like costs may each have an interval with 0 in it.
        let are_distinct = is_distinct(interval) && 2 * unsure <= self.known.len();
        let chance = match are_distinct && self.is_by_chance {
            true => format!("; {CHANCE}"),
            false => String::new(),
        };
        let range = format!("{which}; {} {part}{of_these}", from_to(interval));
        let decode = match self.known.iter().map(|cost| cost.by).max() {
            Some(Beside::FewerAndMore) => "as much decode, or both less and more,",
            _ => "as much decode",
        };
        let by = format!(
            "predicted from {} passes with {decode} and {prompts}{}",
            grouped(self.beside),
            without(self.left_out)
        );
        Some(if are_distinct && !self.is_by_chance {
            format!("{} ({range}): {by}.", cost(&signed(median as f64)))
        } else {
            format!("{unsure_of} is not distinguishable from 0 ({range}): {by}{chance}.")
        })
    }

    /// All of it, or of how many tokens it is known. None of a single token, and where nothing is known.
    fn together(&self, less: &str) -> Option<String> {
        let (known, all) = (self.known.len() as u64, self.tokens());
        match self.sum() {
            Some(sum) if known > 1 => {
                let interval = from_to([sum.low_ns, sum.high_ns]);
                let cost = signed(sum.cost_ns as f64);
                let tokens = format!("These {} tokens together", grouped(known));
                Some(format!("{tokens}: {cost}{less} ({interval}): predicted."))
            }
            None if known > 0 && !self.not_known.is_empty() => {
                let (known, all) = (grouped(known), grouped(all));
                Some(format!("Known for {known} of these {all} tokens, so there is no sum of all."))
            }
            _ => None,
        }
    }

    /// Of how many tokens it isn't known, and why.
    fn unknown(&self, what: &str) -> impl Iterator<Item = String> {
        self.not_known.iter().map(move |(why, of)| {
            let most = match why {
                NotKnown::FewPasses { found: 1.., .. } if *of > 1 => "at most ",
                _ => "",
            };
            format!("Of {}, {what} is not known: {most}{why}.", grouped(*of))
        })
    }
}

impl PromptCost {
    /// What prompts of others cost one token, by what is predicted and by what was measured. Where it is [by
    /// chance](Costs::is_by_chance) that such tokens were slow, one of them isn't told from 0, either.
    #[must_use]
    pub fn sentences(&self, is_by_chance: bool) -> Vec<String> {
        const WHAT: &str = "prompts of others, in the same pass";
        let shared = self.shared.map(|shared| match shared {
            Ok(cost) => {
                let chance = match cost.is_distinct() && is_by_chance {
                    true => format!("; {CHANCE}"),
                    false => String::new(),
                };
                let figure = if cost.is_distinct() && !is_by_chance {
                    format!("cost {}", signed(cost.cost_ns as f64))
                } else {
                    "cost what is not distinguishable from 0".to_owned()
                };
                let interval = from_to([cost.low_ns, cost.high_ns]);
                let decode = match cost.by {
                    Beside::AsMany => "",
                    Beside::FewerAndMore => " with less and with more decode",
                };
                format!(
                    "{WHAT}, {figure} ({interval} {}): predicted from {} passes{decode}{}{chance}",
                    covered(&cost),
                    grouped(cost.beside),
                    without(cost.left_out)
                )
            }
            Err(why) => format!("what {WHAT}, cost is not known: {why}"),
        });
        let alone = (self.alone_ns > 0).then(|| {
            let took = time(self.alone_ns as f64);
            format!("prompts of others, in passes alone, took {took}: measured")
        });
        shared.into_iter().chain(alone).collect()
    }
}

/// That disturbed passes were left out, if some were.
fn without(disturbed: u64) -> String {
    match disturbed {
        0 => String::new(),
        n => format!(", without {} disturbed", grouped(n)),
    }
}

fn from_to([low_ns, high_ns]: [i64; 2]) -> String {
    format!("{} to {}", signed(low_ns as f64), signed(high_ns as f64))
}

/// How often such an interval is right.
fn covered(cost: &Cost) -> String {
    format!("in {} of such cases", whole_percent(cost.coverage))
}
