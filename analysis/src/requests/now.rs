//! Requests of a server that runs: those that go on, and those that ended lately.

use std::cmp::Reverse;

use brickscope_profile::{Ending, Lately, PartKind, Profile};
use serde::{Deserialize, Serialize};

use super::{Piece, Requests, Times, Until, missing_passes, times};

/// The most requests that are listed: those that go on, the oldest first, and those that ended, the newest first.
const MOST_GOING_ON: usize = 128;
const MOST_ENDED: usize = 32;
/// The most letters of a request's name that are kept: who asks chooses it.
const MOST_LETTERS: usize = 64;

/// The requests of a server at a moment, few enough to be sent each second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// When that is, in nanoseconds of the profiler's clock.
    pub at_ns: u64,
    /// How many of the newest requests are looked at.
    pub of: u64,
    /// How many earlier ones are not.
    pub left_out: u64,
    /// How long they took: [`times()`], as `brickscope requests` has them of the run.
    pub times: [Times; 4],
    /// How many go on.
    pub going_on: u64,
    /// How many have ended.
    pub ended: u64,
    /// How many have not, and are recorded no further: whether they go on isn't known.
    #[serde(default)]
    pub lost: u64,
    /// Requests, tokens of them, and parts of passes that had no room: newer ones are missing.
    #[serde(default)]
    pub dropped: u64,
    /// Passes that ran and aren't known: nor is what was done while no other ran.
    #[serde(default)]
    pub missing_passes: u64,
    /// Tokens in the KV cache of those that go on, by the positions that their passes state. `None` if one has tokens, and no
    /// pass says where it is.
    #[serde(default)]
    pub kv_tokens: Option<u64>,
    /// Those that go on, the oldest first, and then those that ended lately, the newest first.
    pub listed: Vec<RequestNow>,
}

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It has no place in the batch yet.
    Queue,
    /// Its prompt is processed.
    Prompt,
    /// It gets tokens.
    Decode,
    /// It has ended.
    Ended,
}

impl Stage {
    /// The word for it, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Prompt => "prompt",
            Self::Decode => "decode",
            Self::Ended => "ended",
        }
    }
}

/// A request at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestNow {
    /// What the server calls it, or the beginning of that.
    pub id: String,
    /// How far it is.
    pub stage: Stage,
    /// How it ended, if that is known.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// From its arrival to now, or to its end.
    pub age_ns: u64,
    /// Tokens of its prompt: as the server said, else as many as passes have processed or found in a cache so far.
    #[serde(default)]
    pub prompt_tokens: Option<u64>,
    /// How many tokens it has got.
    pub tokens: u64,
    /// How long it waited for its last token.
    #[serde(default)]
    pub last_ns: Option<u64>,
    /// Its longest interval.
    #[serde(default)]
    pub longest: Option<Longest>,
}

/// The longest interval of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// What ends it.
    pub until: Until,
    /// How long it is.
    pub ns: u64,
    /// What was done meanwhile, what took most first. `None` while a pass goes on that may be in it, or if passes that may be
    /// had no room.
    #[serde(default)]
    pub pieces: Option<Vec<(Piece, u64)>>,
}

impl Now {
    /// What is known of the newest requests at a time of the profiler's clock.
    #[must_use]
    pub fn of(lately: &Lately, at_ns: u64) -> Self {
        let Lately { profile, left_out, lost, .. } = lately;
        let all = profile.requests.len();
        let (mut ended, mut going_on): (Vec<usize>, Vec<usize>) =
            (0..all).partition(|&nth| profile.requests[nth].ended_ns.is_some());
        let is_lost = |nth: u32| lost.binary_search(&nth).is_ok();
        going_on.retain(|&nth| !u32::try_from(nth).is_ok_and(is_lost));
        let counts = [&going_on, &ended].map(|of| of.len() as u64);
        let parts = parts_of(profile);
        let kv_tokens = kv_tokens(profile, &going_on, &parts);
        ended.sort_by_key(|&nth| Reverse(profile.requests[nth].ended_ns));
        ended.truncate(MOST_ENDED);
        going_on.truncate(MOST_GOING_ON);
        let rows = Rows { lately, requests: Requests::of(profile), parts, at_ns };
        let listed = going_on.into_iter().chain(ended).map(|nth| rows.row(nth)).collect();
        let [going_on, ended] = counts;
        Self {
            at_ns,
            of: all as u64,
            left_out: *left_out,
            times: times(profile),
            going_on,
            ended,
            lost: lost.len() as u64,
            dropped: profile.dropped.requests,
            missing_passes: missing_passes(profile),
            kv_tokens,
            listed,
        }
    }
}

/// What the passes of a request have said.
#[derive(Debug, Clone, Copy, Default)]
struct OfParts {
    /// Tokens of its prompt that are in the KV cache.
    prompt: Option<u64>,
    has_decoded: bool,
    /// The newest of its passes, and its tokens in the KV cache after that.
    filled: Option<(u32, u64)>,
}

fn parts_of(profile: &Profile) -> Vec<OfParts> {
    let mut all = vec![OfParts::default(); profile.requests.len()];
    for of in &profile.parts {
        let Some(known) = all.get_mut(of.part.request as usize) else { continue };
        let so_far = of.part.position.saturating_add(of.part.tokens);
        known.filled = known.filled.max(Some((of.pass, so_far)));
        match of.part.kind {
            PartKind::Prompt => {
                known.prompt = known.prompt.max(Some(so_far));
            }
            PartKind::Decode => known.has_decoded = true,
        }
    }
    all
}

/// Of these requests together. One without a token and without a pass that has ended has none yet.
fn kv_tokens(profile: &Profile, going_on: &[usize], parts: &[OfParts]) -> Option<u64> {
    let of = |&nth: &usize| match parts[nth].filled {
        Some((_, tokens)) => Some(tokens),
        None => profile.requests[nth].tokens_ns.is_empty().then_some(0),
    };
    going_on.iter().map(of).try_fold(0, |sum: u64, tokens| Some(sum.saturating_add(tokens?)))
}

struct Rows<'l> {
    lately: &'l Lately,
    requests: Requests<'l>,
    parts: Vec<OfParts>,
    at_ns: u64,
}

impl Rows<'_> {
    fn row(&self, nth: usize) -> RequestNow {
        let of = &self.lately.profile.requests[nth];
        let parts = self.parts[nth];
        let stage = match () {
            () if of.ended_ns.is_some() => Stage::Ended,
            () if !of.tokens_ns.is_empty() || parts.has_decoded => Stage::Decode,
            () if of.admitted_ns.is_some() || parts.prompt.is_some() => Stage::Prompt,
            () => Stage::Queue,
        };
        let number = nth as u32;
        let tokens = self.requests.spans(number).filter(|(until, ..)| *until != Until::End);
        RequestNow {
            id: of.id.chars().take(MOST_LETTERS).collect(),
            stage,
            ending: of.ending,
            age_ns: of.ended_ns.unwrap_or(self.at_ns).saturating_sub(of.arrived_ns),
            prompt_tokens: of.prompt_tokens.or(parts.prompt),
            tokens: of.tokens_ns.len() as u64,
            last_ns: tokens.last().map(|(_, from, to)| to - from),
            longest: self.longest(number),
        }
    }

    fn longest(&self, number: u32) -> Option<Longest> {
        let spans = self.requests.spans(number);
        let (until, from, to) = spans.max_by_key(|(_, from, to)| to - from)?;
        let known = &self.lately.known_ns;
        let is_known = known.start <= from && to <= known.end;
        let pieces = is_known.then(|| {
            let of = self.requests.divided(number, from, to);
            let mut pieces: Vec<(Piece, u64)> = Piece::ALL.into_iter().zip(of).collect();
            pieces.retain(|(_, ns)| *ns > 0);
            pieces.sort_by_key(|(_, ns)| Reverse(*ns));
            pieces
        });
        Some(Longest { until, ns: to - from, pieces })
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Part, PassPart, Phase, Request};

    use super::*;

    fn lately() -> Lately {
        let request =
            |id: &str, arrived_ns| Request { id: id.to_owned(), arrived_ns, ..Request::default() };
        let requests = vec![
            Request {
                tokens_ns: vec![40, 95],
                admitted_ns: Some(10),
                ended_ns: Some(96),
                ending: Some(Ending::Stop),
                ..request(&"a".repeat(99), 0)
            },
            Request { tokens_ns: vec![100], admitted_ns: Some(50), ..request("b", 45) },
            Request { admitted_ns: Some(70), ..request("c", 60) },
            request("d", 80),
        ];
        let pass = |serial, start_ns, wall_ns| brickscope_profile::Pass {
            serial,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 0,
            start_ns,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
            disturbance: None,
            is_left_out: false,
        };
        let part = |pass, part| PassPart { pass, part };
        let profile = Profile {
            requests,
            passes: vec![pass(1, 10, 25), pass(2, 50, 40)],
            parts: vec![
                part(1, Part::prompt(0, 3, 4).with_cached(4)),
                part(2, Part::decode(0, 7)),
                part(2, Part::prompt(1, 9, 0)),
            ],
            ..Profile::empty(ClockInfo::default())
        };
        Lately { profile, known_ns: 0..97, left_out: 5, lost: Vec::new() }
    }

    #[test]
    fn each_request_says_how_far_it_is_and_what_its_longest_wait_was() {
        let lately = lately();
        let now = Now::of(&lately, 110);
        assert_eq!((now.of, now.left_out, now.going_on, now.ended), (4, 5, 3, 1));
        // Of those that go on one pass has ended; what has a token and no pass is somewhere.
        assert_eq!(now.kv_tokens, Some(9));
        let mut untold = lately.clone();
        untold.profile.parts.clear();
        assert_eq!(Now::of(&untold, 110).kv_tokens, None);
        assert_eq!(now.times, times(&lately.profile));
        let stages = now.listed.iter().map(|of| (of.stage, of.age_ns, of.prompt_tokens, of.tokens));
        assert_eq!(
            stages.collect::<Vec<_>>(),
            [
                (Stage::Decode, 65, Some(9), 1),
                (Stage::Prompt, 50, None, 0),
                (Stage::Queue, 30, None, 0),
                (Stage::Ended, 96, Some(7), 2),
            ]
        );
        let [b, c, _, a] = &now.listed[..] else { panic!("{now:?}") };
        // A pass may still run that was in it.
        let pending = Longest { until: Until::FirstToken, ns: 55, pieces: None };
        assert_eq!((b.last_ns, &b.longest), (Some(55), &Some(pending)));
        assert_eq!((c.last_ns, &c.longest), (None, &None));
        assert_eq!((a.id.len(), a.last_ns), (MOST_LETTERS, Some(55)));
        let longest = a.longest.as_ref().expect("it has tokens");
        let pieces = vec![(Piece::OwnBesidePrompts, 40), (Piece::Between, 15)];
        assert_eq!((longest.until, &longest.pieces), (Until::Token(1), &Some(pieces)));
        // Those that are recorded no further aren't said to go on, and what had no room is.
        let mut lost = Lately { lost: vec![1, 3], ..lately.clone() };
        lost.profile.dropped.requests = 7;
        lost.profile.dropped.passes = 2;
        let now = Now::of(&lost, 110);
        assert_eq!((now.of, now.going_on, now.ended, now.lost), (4, 1, 1, 2));
        assert_eq!((now.dropped, now.missing_passes), (7, 2));
        assert_eq!(now.listed.first().map(|of| &*of.id), Some("c"));
        assert_eq!(now.listed.len(), 2);
        // Passes before had no room.
        let cut = Lately { known_ns: 41..97, ..lately };
        let now = Now::of(&cut, 110);
        assert_eq!(now.listed[3].longest.as_ref().map(|of| &of.pieces), Some(&None));
    }

    #[test]
    fn what_is_written_is_read_and_has_a_limit() {
        let mut lately = lately();
        let now = Now::of(&lately, 110);
        let text = serde_json::to_string(&now).expect("it is data");
        assert_eq!(serde_json::from_str::<Now>(&text).expect("it was written"), now);
        // A publisher of another version may not have these.
        let without = text.replace("\"lost\":0,\"dropped\":0,\"missing_passes\":0,", "");
        assert_ne!(without, text);
        assert_eq!(serde_json::from_str::<Now>(&without).expect("they have defaults"), now);
        let other = text.replace("first token", "another");
        assert!(serde_json::from_str::<Now>(&other).is_err());
        let [ended, _, _, goes_on] = &lately.profile.requests[..] else { panic!("four") };
        let (ended, goes_on) = (ended.clone(), goes_on.clone());
        for _ in 0..500 {
            lately.profile.requests.extend([ended.clone(), goes_on.clone()]);
        }
        let now = Now::of(&lately, 110);
        assert_eq!(now.listed.len(), MOST_GOING_ON + MOST_ENDED);
        assert_eq!((now.going_on, now.ended), (503, 501));
        assert!(serde_json::to_string(&now).expect("it is data").len() < 64 << 10);
    }
}
