//! How long requests took: percentiles, where there are enough requests to tell them.

use brickscope_profile::keep::Times as AllTimes;
use brickscope_profile::{Profile, Request};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Requests, Until, rank_of};

/// Percentiles of some times, in nanoseconds. One is stated where the longest time is beyond it with a confidence of 99 %: of 7
/// times the median, of 90 the 95th percentile, of 459 the 99th (1 − 0.99⁴⁵⁹ is 0.99).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Times {
    /// What took these times.
    pub what: &'static str,
    /// How many there are.
    pub of: u64,
    /// The median.
    pub p50_ns: Option<u64>,
    /// What 95 of 100 don't exceed.
    pub p95_ns: Option<u64>,
    /// What 99 of 100 don't exceed.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub longest_ns: Option<u64>,
}

/// Those of [`times`].
const NAMES: [&str; 4] = ["first token", "between tokens", "time per token", "whole request"];

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            what: String,
            of: u64,
            p50_ns: Option<u64>,
            p95_ns: Option<u64>,
            p99_ns: Option<u64>,
            longest_ns: Option<u64>,
        }
        let Read { what, of, p50_ns, p95_ns, p99_ns, longest_ns } = Read::deserialize(from)?;
        let what = NAMES.into_iter().find(|name| *name == what);
        let what = what.ok_or_else(|| D::Error::custom("times of something that isn't known"))?;
        Ok(Self { what, of, p50_ns, p95_ns, p99_ns, longest_ns })
    }
}

impl Times {
    /// Of these times.
    #[must_use]
    pub fn of(what: &'static str, ns: impl Iterator<Item = u64>) -> Self {
        let mut ns: Vec<u64> = ns.collect();
        ns.sort_unstable();
        let at = |nth| percentile(&ns, nth).copied();
        Self {
            what,
            of: ns.len() as u64,
            p50_ns: at(50),
            p95_ns: at(95),
            p99_ns: at(99),
            longest_ns: ns.last().copied(),
        }
    }

    /// Of times that were added up, each of which is known to within 0.8 %.
    fn of_all(what: &'static str, all: &AllTimes) -> Self {
        // No time is longer than the longest, which is exact.
        let percentiles = all.histogram.percentiles([0.5, 0.95, 0.99]);
        let [p50_ns, p95_ns, p99_ns] = percentiles.map(|ns| Some(ns?.min(all.max_ns)));
        let longest_ns = (all.count > 0).then_some(all.max_ns);
        Self { what, of: all.count, p50_ns, p95_ns, p99_ns, longest_ns }
    }
}

/// The 50th, 95th or 99th percentile of what is sorted: one of them. `None` where [too few](Times) tell it.
#[must_use]
pub fn percentile<T>(sorted: &[T], nth: u32) -> Option<&T> {
    sorted.get(rank_of(sorted.len(), nth)).filter(|_| sorted.len() >= fewest(nth))
}

/// How many times a percentile is told by.
const fn fewest(nth: u32) -> usize {
    match nth {
        ..=50 => 7,
        51..=95 => 90,
        _ => 459,
    }
}

/// Why some percentiles of some times have no figure: how many each of them needs. `None` if all that have times have it.
#[must_use]
pub(crate) fn too_few(times: &[Times]) -> Option<String> {
    let lacking = |nth: u32, of: fn(&Times) -> Option<u64>| {
        let lacks = times.iter().any(|times| times.of > 0 && of(times).is_none());
        lacks.then(|| format!("a p{nth} needs {}", fewest(nth)))
    };
    let needs = [
        lacking(50, |times| times.p50_ns),
        lacking(95, |times| times.p95_ns),
        lacking(99, |times| times.p99_ns),
    ];
    let needs: Vec<String> = needs.into_iter().flatten().collect();
    (!needs.is_empty()).then(|| format!("- is of too few: {}.", needs.join(", ")))
}

/// How long requests took to their first tokens (TTFT), between tokens (ITL), for a further token on average (TPOT), and in all
/// if they were answered.
#[must_use]
pub fn times(profile: &Profile) -> [Times; 4] {
    let [first, between, per_token, in_all] = NAMES;
    if let Some(kept) = profile.kept.as_ref().and_then(|kept| kept.requests.as_ref()) {
        return [
            Times::of_all(first, &kept.first_token),
            Times::of_all(between, &kept.between_tokens),
            Times::of_all(per_token, &kept.per_token),
            Times::of_all(in_all, &kept.whole),
        ];
    }
    let requests = Requests::of(profile);
    let of = |wanted: fn(Until) -> bool| {
        requests.lengths().filter(move |(until, _)| wanted(*until)).map(|(_, ns)| ns)
    };
    let all = || profile.requests.iter();
    let answered = all().filter(|of| of.is_answered());
    let whole = answered.filter_map(|of| Some(of.ended_ns?.saturating_sub(of.arrived_ns)));
    [
        Times::of(first, of(|until| until == Until::FirstToken)),
        Times::of(between, of(|until| matches!(until, Until::Token(_)))),
        Times::of(per_token, all().filter_map(Request::mean_token_ns)),
        Times::of(in_all, whole),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_of_too_few_says_how_many_it_needs() {
        let of = |n: u64| Times::of(NAMES[0], 0..n);
        assert_eq!(too_few(&[of(459), of(0)]), None);
        let said = |n: u64| too_few(&[of(459), of(n)]).expect("it lacks some");
        assert_eq!(said(90), "- is of too few: a p99 needs 459.");
        assert_eq!(said(68), "- is of too few: a p95 needs 90, a p99 needs 459.");
        assert!(said(6).contains("a p50 needs 7, "));
    }

    #[test]
    fn no_percentile_of_times_that_were_added_up_is_longer_than_the_longest() {
        let mut all = AllTimes::default();
        // The least of its bucket.
        (0..10_000).for_each(|_| all.add(1 << 30));
        let times = Times::of_all(NAMES[0], &all);
        let longest_ns = Some(1_u64 << 30);
        let told = [times.p50_ns, times.p95_ns, times.p99_ns, times.longest_ns];
        assert_eq!(told, [longest_ns; 4]);
    }
}
