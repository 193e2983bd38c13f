//! The latency that a user sees: of the first token, and of each one after it; and which bricks made slow
//! tokens slow.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::brick::{Phase, Work};
use crate::name::{Name, NameKind};
use crate::request::Request;
use crate::span::Span;
use crate::stats::{BrickStats, Percentiles};
use crate::sums::Pass;

/// The latencies of tokens: of requests, where these say when their tokens were there, else from the times of the passes
/// that made them.
///
/// Of passes, time between them is not included: an engine that samples or prints there should make that part of
/// the pass if it is to count.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// From the begin of a prompt's first prefill pass to the end of its last one; of requests, from arrival to first token.
    pub first_token: Durations,
    /// Decode passes of one token each; of requests, from one token to the next.
    pub per_token: Durations,
    /// Whether these are of requests.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_requests: bool,
    /// The bricks that made slow tokens slow.
    pub slow: Option<SlowTokens>,
    /// Why they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_absent: Option<Absent>,
}

/// The statistics of some durations, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_ns: Option<f64>,
    /// Their standard deviation, of a sample; from 2 on.
    pub std_dev_ns: Option<f64>,
    /// The shortest.
    pub min_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// Percentiles, those for which there are enough durations.
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

/// The slowest tenth of the decode passes compared with the faster half, brick by brick.
///
/// For each brick: the mean of its exclusive time in a slow pass, minus that in a pass of the faster half.
/// With `unattributed_extra_ns` they add up to `extra_ns`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlowTokens {
    /// The number of passes in the slowest tenth.
    pub slow: u64,
    /// The number of passes that they are compared with.
    pub fast: u64,
    /// The least wall time of a slow pass, in nanoseconds.
    pub least_ns: u64,
    /// How much longer a slow pass took, in nanoseconds.
    pub extra_ns: f64,
    /// Each brick's part of it, the largest first.
    pub bricks: Vec<SlowBrick>,
    /// The unattributed part of it.
    pub unattributed_extra_ns: f64,
}

/// A brick's part in slow tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlowBrick {
    /// The brick.
    pub name: String,
    /// How much longer it took in a slow pass, in nanoseconds; negative if less.
    pub extra_ns: f64,
}

/// The passes needed to state a p90.
const LEAST_PASSES: usize = 44;

impl Durations {
    fn of(durations: impl IntoIterator<Item = u64>) -> Self {
        let mut stats = BrickStats::new("");
        for nanos in durations {
            stats.add(nanos, nanos, Work::default());
        }
        Self::of_stats(&stats)
    }

    /// With the percentiles that tables of requests state, not those of a histogram.
    fn exactly(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        let at = |percent: usize, fewest: usize| {
            let rank = (ns.len() * percent).div_ceil(100).max(1) - 1;
            ns.get(rank).copied().filter(|_| ns.len() >= fewest)
        };
        let percentiles = Percentiles {
            p50_ns: at(50, 7),
            p90_ns: at(90, LEAST_PASSES),
            p95_ns: at(95, 90),
            p99_ns: at(99, 459),
        };
        Self { percentiles, ..Self::of(ns.iter().copied()) }
    }

    fn of_stats(stats: &BrickStats) -> Self {
        let any = stats.count > 0;
        Self {
            count: stats.count,
            mean_ns: stats.mean_ns(),
            std_dev_ns: stats.std_dev_ns(),
            min_ns: any.then_some(stats.min_ns),
            max_ns: any.then_some(stats.max_ns),
            percentiles: stats.percentiles(),
        }
    }
}

impl Latency {
    /// From sums only, since there may be too many passes to keep.
    #[doc(hidden)]
    pub fn of_sums(prompts: &BrickStats, tokens: &BrickStats) -> Self {
        Self {
            first_token: Durations::of_stats(prompts),
            per_token: Durations::of_stats(tokens),
            of_requests: false,
            slow: None,
            slow_absent: None,
        }
    }

    /// From passes and their spans.
    pub fn of(passes: &[Pass], spans: &[Span], names: &[Name]) -> Self {
        let is_token =
            |pass: &&Pass| pass.phase == Phase::Decode && pass.tokens == 1 && !pass.is_left_out;
        let tokens: Vec<&Pass> = passes.iter().filter(is_token).collect();
        let slow = slow_tokens(spans, names, &tokens);
        let (slow, slow_absent) = match slow {
            Ok(slow) => (Some(slow), None),
            Err(reason) => (None, Some(Absent { reason })),
        };
        Self {
            first_token: Durations::of(first_tokens(passes)),
            per_token: Durations::of(tokens.iter().map(|pass| pass.wall_ns)),
            of_requests: false,
            slow,
            slow_absent: slow_absent.filter(|_| !tokens.is_empty()),
        }
    }
}

impl Latency {
    /// Takes the times of first and further tokens from requests, if these say when their tokens were there. In a server a
    /// prompt waits for a place and may take several passes, and a pass has tokens of several requests.
    #[doc(hidden)]
    pub fn take_requests(&mut self, requests: &[Request]) {
        let to_first = |of: &Request| Some(of.tokens_ns.first()?.saturating_sub(of.arrived_ns));
        let first: Vec<u64> = requests.iter().filter_map(to_first).collect();
        if first.is_empty() {
            return;
        }
        let gaps = requests.iter().flat_map(|of| of.tokens_ns.windows(2));
        let further = gaps.map(|two| two[1].saturating_sub(two[0])).collect();
        self.first_token = Durations::exactly(first);
        self.per_token = Durations::exactly(further);
        self.of_requests = true;
    }

    /// Of a part of the passes of a run that has these latencies: what its requests waited stays what it was.
    pub(crate) fn beside_requests_of(self, run: &Self) -> Self {
        match run.of_requests {
            true => Self { slow: self.slow, slow_absent: self.slow_absent, ..run.clone() },
            false => self,
        }
    }
}

/// The time of each prompt from its first prefill pass to the end of its last. On a thread, a prefill pass
/// continues a prompt if it begins at the position where the one before ended. A prompt is left out if one
/// of its passes was.
fn first_tokens(passes: &[Pass]) -> Vec<u64> {
    /// A prompt that is being read.
    #[derive(Clone, Copy)]
    struct Reading {
        start: u64,
        end: u64,
        position: u64,
        is_whole: bool,
    }
    let mut done: Vec<Reading> = Vec::new();
    let mut reading: HashMap<u32, Reading> = HashMap::new();
    for pass in passes {
        let before = reading.remove(&pass.lane);
        if pass.phase == Phase::Prefill {
            let goes_on = before.filter(|before| before.position == pass.position);
            let is_whole = !pass.is_left_out && goes_on.is_none_or(|before| before.is_whole);
            let start = goes_on.map_or(pass.start_ns, |before| before.start);
            let end = pass.start_ns.saturating_add(pass.wall_ns);
            let position = pass.position.saturating_add(pass.tokens);
            reading.insert(pass.lane, Reading { start, end, position, is_whole });
            if goes_on.is_some() {
                continue;
            }
        }
        done.extend(before);
    }
    done.extend(reading.into_values());
    let whole = done.iter().filter(|reading| reading.is_whole);
    whole.map(|reading| reading.end.saturating_sub(reading.start)).collect()
}

fn slow_tokens(spans: &[Span], names: &[Name], tokens: &[&Pass]) -> Result<SlowTokens, String> {
    // The time of each pass in each brick, for passes whose spans were all kept.
    let mut spent: HashMap<u32, HashMap<u16, u64>> = HashMap::new();
    let is_brick =
        |name: u16| names.get(usize::from(name)).is_none_or(|name| name.kind == NameKind::Brick);
    for span in spans {
        if let Span { pass: Some(pass), name: Some(name), exclusive_ns, .. } = *span
            && is_brick(name)
        {
            let spent = spent.entry(pass).or_default().entry(name).or_default();
            *spent = u64::saturating_add(*spent, exclusive_ns);
        }
    }
    let is_whole = |pass: &&&Pass| {
        let explained = spent.get(&pass.serial).map_or(0, |bricks| {
            bricks.values().fold(0, |sum, &nanos| u64::saturating_add(sum, nanos))
        });
        explained == pass.attributed_ns
    };
    let mut whole: Vec<&Pass> = tokens.iter().filter(is_whole).copied().collect();
    if whole.len() < LEAST_PASSES {
        return Err(format!(
            "needs {LEAST_PASSES} decode passes whose spans were all kept, and there are {}",
            whole.len()
        ));
    }
    whole.sort_by_key(|pass| (pass.wall_ns, pass.serial));
    let fast = &whole[..whole.len() / 2];
    let slow = &whole[whole.len() - whole.len() / 10..];
    let mean = |passes: &[&Pass], of: &dyn Fn(&Pass) -> u64| {
        passes.iter().map(|pass| of(pass) as f64).sum::<f64>() / passes.len() as f64
    };
    let extra = |of: &dyn Fn(&Pass) -> u64| mean(slow, of) - mean(fast, of);
    let mut spent_names: Vec<u16> = spent.values().flat_map(HashMap::keys).copied().collect();
    spent_names.sort_unstable();
    spent_names.dedup();
    let mut bricks: Vec<SlowBrick> = spent_names
        .into_iter()
        .map(|name| SlowBrick {
            name: names
                .get(usize::from(name))
                .map_or_else(|| "(other)".to_owned(), |name| name.name.clone()),
            extra_ns: extra(&|pass| {
                spent.get(&pass.serial).and_then(|bricks| bricks.get(&name)).copied().unwrap_or(0)
            }),
        })
        .collect();
    bricks.sort_by(|a, b| b.extra_ns.total_cmp(&a.extra_ns));
    Ok(SlowTokens {
        slow: slow.len() as u64,
        fast: fast.len() as u64,
        least_ns: slow[0].wall_ns,
        extra_ns: extra(&|pass| pass.wall_ns),
        bricks,
        unattributed_extra_ns: extra(&|pass| pass.unattributed_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_what_their_tokens_took_and_passes_do_only_without_them() {
        let pass = |wall_ns: u64| Durations::of([wall_ns]);
        let of_passes = Latency { first_token: pass(7), per_token: pass(9), ..Latency::default() };
        let mut latency = of_passes.clone();
        let waiting = Request { arrived_ns: 5, ..Request::default() };
        latency.take_requests(std::slice::from_ref(&waiting));
        assert_eq!(latency, of_passes);

        let tokens_ns: Vec<u64> = (0..10).map(|nth| 100 + 10 * nth).collect();
        let answered = Request { arrived_ns: 40, tokens_ns, ..Request::default() };
        latency.take_requests(&[waiting, answered]);
        assert!(latency.of_requests);
        assert_eq!((latency.first_token.count, latency.first_token.max_ns), (1, Some(60)));
        assert_eq!((latency.per_token.count, latency.per_token.mean_ns), (9, Some(10.0)));
        let percentiles = latency.per_token.percentiles;
        assert_eq!((percentiles.p50_ns, percentiles.p90_ns), (Some(10), None));

        // A part of the passes is no part of what requests waited.
        assert_eq!(of_passes.clone().beside_requests_of(&latency), latency);
        assert_eq!(latency.beside_requests_of(&of_passes).per_token.count, 9);
    }
}
