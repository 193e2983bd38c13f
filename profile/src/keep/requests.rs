//! Which requests are kept of a run of days, and what a profile says of these.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Times;
use super::reservoir::below;
use crate::request::Ending;
use crate::stats::SplitMix64;
use crate::text::grouped;

/// Which requests a profile has of all that came. Sums are of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRequests {
    /// How many came.
    pub requests: u64,
    /// How those ended that did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<(Ending, u64)>,
    /// How many were answered, and nobody knows by which passes.
    #[serde(default)]
    pub untied: u64,
    /// How many had more tokens than there was room for: they are in the sums, and not kept.
    #[serde(default)]
    pub too_long: u64,
    /// How many of the slowest were kept: by the longest time between two of their tokens, or to their first one.
    pub slowest: u64,
    /// All in which a token took longer than this after the one before are among them. `None` if none was left out.
    pub slower_than_ns: Option<u64>,
    /// All whose first token took longer than this are among them. `None` if none was left out.
    pub first_slower_than_ns: Option<u64>,
    /// A sample of the others: indexes into [`Profile::requests`](crate::Profile::requests), in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample: Vec<u32>,
    /// For how many requests these stand, each for as many.
    #[serde(default)]
    pub sample_of: u64,
    /// Requests that are there because passes of the others were for them, too. They stand for nothing. In order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<u32>,
    /// Times in which each pass that ran is among the profile's, in order and apart from each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covered: Vec<[u64; 2]>,
    /// From the arrival of each request to its first token.
    pub first_token: Times,
    /// Between two tokens of one.
    pub between_tokens: Times,
    /// What a token after the first took on average in each.
    pub per_token: Times,
    /// From the arrival to the end of each that was answered.
    pub whole: Times,
}

impl KeptRequests {
    /// How many are there that stand for some.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.slowest.saturating_add(self.sample.len() as u64)
    }

    /// How many had not ended.
    #[must_use]
    pub fn going_on(&self) -> u64 {
        let ended = self.endings.iter().map(|(_, n)| *n).fold(0, u64::saturating_add);
        self.requests.saturating_sub(ended)
    }

    /// How much of a time is covered, in nanoseconds.
    #[must_use]
    pub fn covered_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let first = self.covered.partition_point(|[_, end]| *end <= from_ns);
        let within = self.covered.iter().skip(first).take_while(|[begin, _]| *begin < to_ns);
        let ns = within.map(|[begin, end]| (*end).min(to_ns).saturating_sub((*begin).max(from_ns)));
        ns.fold(0, u64::saturating_add)
    }

    /// What a reader is told: which figures are of all, and which of those that were kept.
    #[must_use]
    pub fn line(&self) -> String {
        let slowest = match self.slowest {
            0 => None,
            1 => Some("the slowest".to_owned()),
            n => Some(format!("the {} slowest", grouped(n))),
        };
        let by_chance = match self.sample.len() as u64 {
            0 => None,
            n => Some(format!("{} by chance", grouped(n))),
        };
        let which: Vec<String> = slowest.into_iter().chain(by_chance).collect();
        let what_follows = match which.is_empty() {
            true => "none was kept".to_owned(),
            false => {
                let kept = grouped(self.kept());
                format!("what follows is of {kept} kept: {}", which.join(", and "))
            }
        };
        let all = match self.requests {
            1 => "the one that came".to_owned(),
            n => format!("all {}", grouped(n)),
        };
        format!("times and counts are of {all}; {what_follows}")
    }

    /// Checks that each request is counted once, and that those that are named are there.
    pub(crate) fn check(&self, requests: usize) -> Result<(), String> {
        let counted = [self.slowest, self.sample_of, self.too_long].into_iter();
        let counted = counted.fold(0, u64::saturating_add);
        if counted != self.requests {
            return Err(format!(
                "what was kept stands for {counted} of {} requests",
                self.requests
            ));
        }
        let there = self.kept().saturating_add(self.beside.len() as u64);
        if there != requests as u64 {
            return Err(format!("{there} requests were kept, and {requests} are there"));
        }
        let mut named = self.sample.iter().chain(&self.beside);
        if let Some(number) = named.find(|number| **number as usize >= requests) {
            return Err(format!("request {number} was kept, and isn't there"));
        }
        let ends = self.covered.as_flattened();
        if ends.is_sorted() {
            Ok(())
        } else {
            Err("the times of which all passes were kept go backwards".to_owned())
        }
    }
}

/// What is known of a request when it is decided whether it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestOffer {
    /// Its number among all.
    pub number: u64,
    /// The longest time between two of its tokens.
    pub token_ns: u64,
    /// The time to its first token.
    pub first_ns: u64,
}

/// Says which requests are kept: a half of them has the slowest tokens, a quarter the slowest first tokens of the others, and a
/// quarter is a uniform sample of the rest. Who calls it has the requests, and says when they are too many.
#[derive(Debug, Clone)]
pub struct RequestKeeper {
    /// With the time to the first token. The fastest comes first; of equals, the last one.
    by_token: BTreeMap<(u64, Reverse<u64>), u64>,
    by_first: BTreeSet<(u64, Reverse<u64>)>,
    sample: Vec<u64>,
    sample_of: u64,
    /// Whether the sample has as many as it will ever have.
    is_full: bool,
    /// How slow the slowest is that was taken out: none that is no slower comes in.
    slower_than_ns: Option<u64>,
    first_slower_than_ns: Option<u64>,
    random: SplitMix64,
}

/// The requests that were kept, by their numbers, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenRequests {
    /// The slowest.
    pub slowest: Vec<u64>,
    /// A sample of the others.
    pub sample: Vec<u64>,
    /// For how many these stand.
    pub sample_of: u64,
    /// All with a token slower than this are among the slowest.
    pub slower_than_ns: Option<u64>,
    /// All with a first token slower than this are among them.
    pub first_slower_than_ns: Option<u64>,
}

/// The same requests are kept of the same offers.
const SEED: u64 = 0x7265_7173;

impl Default for RequestKeeper {
    fn default() -> Self {
        Self {
            by_token: BTreeMap::new(),
            by_first: BTreeSet::new(),
            sample: Vec::new(),
            sample_of: 0,
            is_full: false,
            slower_than_ns: None,
            first_slower_than_ns: None,
            random: SplitMix64(SEED),
        }
    }
}

impl RequestKeeper {
    /// Keeps a request. Returns the number of the one that is dropped for it: its own, another's, or none.
    pub fn add(&mut self, offer: RequestOffer) -> Option<u64> {
        let RequestOffer { number, token_ns, first_ns } = offer;
        if self.slower_than_ns.is_some_and(|floor| token_ns <= floor) {
            return self.add_first(number, first_ns);
        }
        self.by_token.insert((token_ns, Reverse(number)), first_ns);
        None
    }

    fn add_first(&mut self, number: u64, first_ns: u64) -> Option<u64> {
        if self.first_slower_than_ns.is_some_and(|floor| first_ns <= floor) {
            return self.add_to_sample(number);
        }
        self.by_first.insert((first_ns, Reverse(number)));
        None
    }

    fn add_to_sample(&mut self, number: u64) -> Option<u64> {
        self.sample_of += 1;
        if !self.is_full {
            self.sample.push(number);
            return None;
        }
        let at = usize::try_from(below(self.sample_of, &mut self.random)).unwrap_or(usize::MAX);
        match self.sample.get_mut(at) {
            Some(before) => Some(std::mem::replace(before, number)),
            None => Some(number),
        }
    }

    /// Drops one, and returns its number. `None` if there is but one of the sample left.
    pub fn shrink(&mut self) -> Option<u64> {
        loop {
            let all = self.len();
            let is_sample_short = self.sample.len() <= 1;
            let dropped = if self.by_token.len() * 2 > all
                || is_sample_short && self.by_first.is_empty() && !self.by_token.is_empty()
            {
                self.pop_token()
            } else if self.by_first.len() * 4 > all || is_sample_short && !self.by_first.is_empty()
            {
                self.pop_first()
            } else if is_sample_short {
                return None;
            } else {
                self.is_full = true;
                let at = below(self.sample.len() as u64, &mut self.random);
                Some(self.sample.swap_remove(usize::try_from(at).unwrap_or(0)))
            };
            if dropped.is_some() {
                return dropped;
            }
        }
    }

    fn pop_token(&mut self) -> Option<u64> {
        let ((token_ns, Reverse(number)), first_ns) = self.by_token.pop_first()?;
        self.slower_than_ns = self.slower_than_ns.max(Some(token_ns));
        self.add_first(number, first_ns)
    }

    fn pop_first(&mut self) -> Option<u64> {
        let (first_ns, Reverse(number)) = self.by_first.pop_first()?;
        self.first_slower_than_ns = self.first_slower_than_ns.max(Some(first_ns));
        self.add_to_sample(number)
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_token.len() + self.by_first.len() + self.sample.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was kept, and what it stands for.
    #[must_use]
    pub fn finish(self) -> ChosenRequests {
        let by_token = self.by_token.into_keys().map(|(_, Reverse(number))| number);
        let by_first = self.by_first.into_iter().map(|(_, Reverse(number))| number);
        let mut slowest: Vec<u64> = by_token.chain(by_first).collect();
        slowest.sort_unstable();
        let mut sample = self.sample;
        sample.sort_unstable();
        ChosenRequests {
            slowest,
            sample,
            sample_of: self.sample_of,
            slower_than_ns: self.slower_than_ns,
            first_slower_than_ns: self.first_slower_than_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each request once, and all that are slower than the keeper says.
        #[test]
        fn what_is_kept_stands_for_each_request_once_and_has_the_slowest(
            all in prop::collection::vec((0_u64..50, 0_u64..50), 1..300),
            most in 1_usize..60,
        ) {
            let mut keeper = RequestKeeper::default();
            let mut kept: BTreeSet<u64> = BTreeSet::new();
            for (number, &(token_ns, first_ns)) in (0_u64..).zip(&all) {
                kept.insert(number);
                if let Some(dropped) = keeper.add(RequestOffer { number, token_ns, first_ns }) {
                    prop_assert!(kept.remove(&dropped));
                }
                while keeper.len() > most {
                    let Some(dropped) = keeper.shrink() else { break };
                    prop_assert!(kept.remove(&dropped));
                }
                prop_assert!(keeper.len() <= most && !keeper.is_empty());
            }
            let chosen = keeper.finish();
            let told = chosen.slowest.iter().chain(&chosen.sample);
            let told: BTreeSet<u64> = told.copied().collect();
            prop_assert_eq!(&told, &kept);
            prop_assert_eq!(chosen.slowest.len() as u64 + chosen.sample_of, all.len() as u64);
            prop_assert_eq!(chosen.sample.is_empty(), chosen.sample_of == 0);
            for (number, &(token_ns, first_ns)) in (0_u64..).zip(&all) {
                let is_slow = chosen.slower_than_ns.is_none_or(|floor| token_ns > floor)
                    || chosen.first_slower_than_ns.is_none_or(|floor| first_ns > floor);
                prop_assert!(!is_slow || chosen.slowest.contains(&number));
            }
        }
    }

    /// Of requests that are alike each is as likely to be in the sample, whenever it came.
    #[test]
    fn a_sample_is_of_the_begin_as_of_the_end() {
        let mut keeper = RequestKeeper::default();
        for number in 0..100_000 {
            keeper.add(RequestOffer { number, token_ns: 7, first_ns: 7 });
            while keeper.len() > 2_000 && keeper.shrink().is_some() {}
        }
        let sample = keeper.finish().sample;
        let n = sample.len() as f64;
        assert!((400.0..=2_000.0).contains(&n), "{n}");
        for quarter in 0..4 {
            let from = quarter * 25_000;
            let part = sample.iter().filter(|of| (from..from + 25_000).contains(*of)).count();
            let part = part as f64 / n;
            assert!((part - 0.25).abs() < 4.0 * (0.25 * 0.75 / n).sqrt(), "{quarter}: {part}");
        }
    }

    #[test]
    fn a_reader_is_told_of_those_that_there_are() {
        let line = |requests, slowest, by_chance| {
            let sample = (0..by_chance).collect();
            KeptRequests { requests, slowest, sample, ..KeptRequests::default() }.line()
        };
        for (said, expected) in [
            (
                line(1_000, 300, 100),
                "all 1,000; what follows is of 400 kept: the 300 slowest, and 100 by chance",
            ),
            (line(9, 1, 2), "all 9; what follows is of 3 kept: the slowest, and 2 by chance"),
            (line(5, 0, 1), "all 5; what follows is of 1 kept: 1 by chance"),
            (line(2, 2, 0), "all 2; what follows is of 2 kept: the 2 slowest"),
            (line(1, 1, 0), "the one that came; what follows is of 1 kept: the slowest"),
            (line(7, 0, 0), "all 7; none was kept"),
        ] {
            assert_eq!(said, format!("times and counts are of {expected}"));
        }
    }

    #[test]
    fn only_what_adds_up_is_taken() {
        let of = KeptRequests {
            requests: 9,
            slowest: 2,
            sample: vec![1],
            sample_of: 7,
            beside: vec![3],
            covered: vec![[10, 20], [30, 40]],
            ..KeptRequests::default()
        };
        assert_eq!((of.check(4), of.kept(), of.going_on()), (Ok(()), 3, 9));
        let covered = [(0, 100), (15, 35), (20, 30)].map(|(from, to)| of.covered_ns(from, to));
        assert_eq!(covered, [20, 10, 0]);
        assert!(of.check(5).is_err_and(|why| why.contains("4 requests were kept, and 5")));
        let wrong = KeptRequests { requests: 8, ..of.clone() };
        assert!(wrong.check(4).is_err_and(|why| why.contains("9 of 8 requests")));
        let wrong = KeptRequests { beside: vec![4], ..of.clone() };
        assert!(wrong.check(4).is_err_and(|why| why.contains("request 4 ")));
        let wrong = KeptRequests { covered: vec![[30, 40], [10, 20]], ..of };
        assert!(wrong.check(4).is_err_and(|why| why.contains("go backwards")));
    }
}
