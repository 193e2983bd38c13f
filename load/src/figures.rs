//! What came of requests, in numbers. How long they took is in their run.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;

use brickscope_analysis::requests::Times;

use crate::answer::Answer;
use crate::drive::Driven;

/// What came of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Requests that were sent.
    pub sent: u64,
    /// Requests of the plan that were not sent.
    pub not_sent: u64,
    /// Those that have a whole answer.
    pub answered: u64,
    /// Why others have none, most first.
    pub failed: Vec<(String, u64)>,
    /// From the time at which the first one was due until the last one ended.
    pub lasted_ns: u64,
    /// The tokens of their prompts, by the server; `None` unless it said so of each one that was answered.
    pub prompt_tokens: Option<u64>,
    /// How many of these were found in a cache, by the server.
    pub cached_tokens: Option<u64>,
    /// The tokens of their answers, by the server.
    pub answer_tokens: Option<u64>,
    /// The pieces with text of their answers.
    pub pieces: u64,
    /// How long after they were due requests were sent.
    pub late: Times,
    /// How many were answered within limits, where there are some.
    pub good: Option<u64>,
}

impl Figures {
    /// Of what was asked, with the limits that answers should keep.
    #[must_use]
    pub fn of(driven: &Driven, slo: Option<&Slo>) -> Self {
        let answers = &driven.answers;
        let whole = || answers.iter().filter(|answer| is_whole(answer));
        let mut failed: BTreeMap<&str, u64> = BTreeMap::new();
        for answer in answers.iter().filter(|answer| !is_whole(answer)) {
            *failed.entry(answer.failure.as_deref().unwrap_or("cancelled")).or_default() += 1;
        }
        let mut failed: Vec<(String, u64)> =
            failed.into_iter().map(|(why, count)| (why.to_owned(), count)).collect();
        failed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let sum = |of: fn(&Answer) -> Option<u64>| {
            let mut all = whole().map(of);
            all.try_fold(0_u64, |sum, tokens| Some(sum.saturating_add(tokens?)))
        };
        let late = answers.iter().map(|answer| answer.sent_ns.saturating_sub(answer.due_ns));
        let good = slo.map(|slo| whole().filter(|answer| slo.keeps(answer)).count() as u64);
        Self {
            sent: answers.len() as u64,
            not_sent: driven.not_begun as u64,
            answered: whole().count() as u64,
            failed,
            lasted_ns: driven.ended_ns.saturating_sub(driven.began_ns),
            prompt_tokens: sum(|answer| answer.prompt_tokens),
            cached_tokens: sum(|answer| answer.cached_tokens),
            answer_tokens: sum(|answer| answer.answer_tokens),
            pieces: whole().map(|answer| answer.pieces_ns.len() as u64).sum(),
            late: Times::of("due until sent", late),
            good,
        }
    }

    /// So many in a second, of the time that it lasted.
    #[must_use]
    pub fn rate_of(&self, number: u64) -> f64 {
        number as f64 * 1e9 / self.lasted_ns.max(1) as f64
    }
}

fn is_whole(answer: &Answer) -> bool {
    answer.failure.is_none() && answer.ending != Some(brickscope_profile::Ending::Cancelled)
}

/// Limits that a request keeps or not, each from the time at which it was due: service level objectives. A request that keeps
/// all of them counts for the goodput.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slo {
    /// The longest time to the first piece, in nanoseconds.
    pub first_ns: Option<u64>,
    /// The longest mean time of a further token.
    pub token_ns: Option<u64>,
    /// The longest time to the end.
    pub whole_ns: Option<u64>,
}

impl Slo {
    /// Whether an answer keeps all limits. One that came as a whole has no first piece, so it keeps no limit of that.
    #[must_use]
    pub fn keeps(&self, answer: &Answer) -> bool {
        let since_due = |at: u64| at.saturating_sub(answer.due_ns);
        let first = answer.pieces_ns.first();
        let has_one = answer.pieces_ns.len() == 1 && answer.answer_tokens.is_none_or(|n| n <= 1);
        let is_in = |limit: Option<u64>, ns: Option<u64>| {
            limit.is_none_or(|limit| ns.is_some_and(|ns| ns <= limit))
        };
        let further = answer.request().mean_token_ns();
        is_in(self.first_ns, first.map(|at| since_due(*at)))
            // Of one token there is no further one.
            && (has_one || is_in(self.token_ns, further))
            && is_in(self.whole_ns, answer.ended_ns.map(since_due))
    }
}

impl FromStr for Slo {
    type Err = String;

    /// Such as `ttft=200ms,token=50ms,e2e=2s`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut slo = Self::default();
        for limit in text.split(',') {
            let (name, time) = limit
                .split_once('=')
                .ok_or_else(|| format!("`{limit}` is no limit such as ttft=200ms"))?;
            let place = match name.trim() {
                "ttft" => &mut slo.first_ns,
                "token" | "tpot" => &mut slo.token_ns,
                "e2e" => &mut slo.whole_ns,
                other => return Err(format!("`{other}` is none of ttft, token and e2e")),
            };
            *place = Some(nanoseconds(time.trim())?);
        }
        Ok(slo)
    }
}

/// A time such as `200ms`, `1.5s` or `80us`.
fn nanoseconds(time: &str) -> Result<u64, String> {
    let units = [("ms", 1e6), ("us", 1e3), ("µs", 1e3), ("ns", 1.0), ("s", 1e9)];
    let read = units.into_iter().find_map(|(unit, ns)| {
        let number = time.strip_suffix(unit)?.trim().parse::<f64>().ok()?;
        (number > 0.0 && number * ns < 1e18).then_some((number * ns) as u64)
    });
    read.ok_or_else(|| format!("`{time}` is no time such as 200ms or 1.5s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let slo: Slo = "ttft=200ms, token=1.5s,e2e=80us".parse().expect("limits");
        let expected = Slo {
            first_ns: Some(200_000_000),
            token_ns: Some(1_500_000_000),
            whole_ns: Some(80_000),
        };
        assert_eq!(slo, expected);
        for text in ["", "ttft", "ttft=5", "ttft=-5s", "x=5s", "ttft=nans", "ttft=infs"] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_answer_keeps_all_limits_or_not() {
        let answer = Answer {
            due_ns: 100,
            sent_ns: 150,
            pieces_ns: vec![300, 340, 420],
            ended_ns: Some(500),
            ..Answer::default()
        };
        let slo = |first_ns, token_ns, whole_ns| Slo { first_ns, token_ns, whole_ns };
        assert!(slo(Some(200), Some(60), Some(400)).keeps(&answer));
        // From when it was due, not from when it was sent.
        assert!(!slo(Some(199), None, None).keeps(&answer));
        assert!(!slo(None, Some(59), None).keeps(&answer));
        assert!(!slo(None, None, Some(399)).keeps(&answer));
        // Six tokens in three pieces.
        let answer = Answer { answer_tokens: Some(7), ..answer };
        assert!(slo(None, Some(20), None).keeps(&answer));
        let whole = Answer { pieces_ns: Vec::new(), ..answer.clone() };
        assert!(!slo(Some(10_000), None, None).keeps(&whole));
        let one = Answer { pieces_ns: vec![300], answer_tokens: Some(1), ..answer };
        assert!(slo(None, Some(1), None).keeps(&one));
        // How long the others took, nobody knows.
        assert!(!slo(None, Some(1), None).keeps(&Answer { answer_tokens: Some(9), ..one }));
    }
}
