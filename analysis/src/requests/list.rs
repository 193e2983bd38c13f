//! The requests of a run as a list, and what names one of them.

use std::cmp::Reverse;
use std::collections::HashMap;

use brickscope_profile::text::{count, grouped, printable};
use brickscope_profile::{PartKind, Request};

use super::{Cause, Causes, KINDS, Order, Requests, Until, missing_passes};
use crate::text::cut_middle;

/// What names the request that waited longest for a token after its first.
pub const SLOWEST: &str = "slowest";
/// What names the one that waited longest for its first token.
pub const SLOWEST_FIRST: &str = "slowest-first";
/// What names the one that took longest from its arrival to its end.
pub const LONGEST: &str = "longest";
/// These, each with what it is the first by, and why there is none.
const NAMED: [(&str, Order, &str); 3] = [
    (SLOWEST, Order::Worst, "no request of this run has two tokens, so none is the slowest"),
    (
        SLOWEST_FIRST,
        Order::First,
        "no request of this run has a token, so none waited longest for its first",
    ),
    (LONGEST, Order::Total, "no request of this run ended, so none took longest"),
];
/// The most names in an error.
const MOST_NAMES: usize = 5;
/// The most columns of a name in an error.
const NAME: usize = 44;

/// A request, and its longest waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'p> {
    /// An index into [`Profile::requests`](brickscope_profile::Profile::requests).
    pub number: u32,
    /// The request, as it was told.
    pub of: &'p Request,
    /// Tokens of its prompt, as somebody said or as its passes had them; `None` if neither is known.
    pub prompt_tokens: Option<u64>,
    /// Tokens of its answer, or pieces of it where nobody said how many tokens these are. `None` if none was seen.
    pub answer_tokens: Option<u64>,
    /// From its arrival to its first token, in nanoseconds.
    pub first_ns: Option<u64>,
    /// Why that took so long, if it is slow and there are enough requests to say so.
    pub first_cause: Option<Cause>,
    /// The longest time between two of its tokens.
    pub worst_ns: Option<u64>,
    /// Why that took so long, if it is slow and there are enough tokens to say so.
    pub cause: Option<Cause>,
    /// With so many characters no other request begins as this one does; `None` if another has the same name, or goes on where
    /// this one ends.
    pub unique: Option<usize>,
}

impl<'p> Requests<'p> {
    /// The requests in their order, without those that are only there since they were in passes of others.
    #[must_use]
    pub fn list(&self) -> Vec<Listed<'p>> {
        let mut causes: HashMap<(u32, u32), Cause> = HashMap::new();
        let of_tokens = KINDS.into_iter().filter_map(|(_, is_wanted)| Causes::of(self, is_wanted));
        for slow in of_tokens.flat_map(|of| of.slow) {
            let nth = match slow.interval.until {
                Until::FirstToken => 0,
                Until::Token(nth) => nth,
                Until::End => continue,
            };
            causes.insert((slow.interval.request, nth), slow.cause);
        }
        let (prompts, unique) = (self.prompts(), self.unique());
        let listed = self.numbers().map(|number| {
            let of = &self.all()[number as usize];
            let worst = self.worst(number);
            let pieces = of.tokens_ns.len() as u64;
            Listed {
                number,
                of,
                prompt_tokens: of.prompt_tokens.or(prompts[number as usize]),
                answer_tokens: of.output_tokens.or((pieces > 0).then_some(pieces)),
                first_ns: self.rank_by(Order::First, number),
                first_cause: causes.get(&(number, 0)).copied(),
                worst_ns: worst.map(|(_, ns)| ns),
                cause: worst.and_then(|(nth, _)| causes.get(&(number, nth)).copied()),
                unique: unique[number as usize],
            }
        });
        listed.collect()
    }

    /// The same in another order: last those of which isn't known what they are sorted by.
    #[must_use]
    pub fn list_by(&self, order: Order) -> Vec<Listed<'p>> {
        let mut listed = self.list();
        listed.sort_by_cached_key(|of| Reverse(self.rank_by(order, of.number)));
        listed
    }

    /// The request that is meant: by its name, as [`SLOWEST`], [`SLOWEST_FIRST`] or [`LONGEST`], by its place in the list (from 1
    /// on), or by the beginning of its name, with or without `…` and its end.
    ///
    /// # Errors
    ///
    /// A sentence that names some, if none is meant or several.
    pub fn named(&self, wanted: &str) -> Result<u32, String> {
        let all = || self.all().iter().zip(0_u32..);
        if let Some((_, number)) = all().find(|(of, _)| of.id == wanted) {
            return Ok(number);
        }
        let shown = printable(wanted);
        if let Some((_, order, none)) = NAMED.iter().find(|(name, ..)| *name == wanted) {
            return self.first_by(*order).ok_or_else(|| (*none).to_owned());
        }
        let is_number = !wanted.is_empty() && wanted.bytes().all(|byte| byte.is_ascii_digit());
        let nth = wanted.parse::<u32>().ok().filter(|_| is_number);
        let nth = nth.and_then(|nth| nth.checked_sub(1));
        if let Some(number) = nth.filter(|&of| (of as usize) < self.all().len()) {
            return Ok(number);
        }
        let (begin, end) = wanted.split_once('…').unwrap_or((wanted, ""));
        let is_it = |id: &str| id.strip_prefix(begin).is_some_and(|rest| rest.ends_with(end));
        let found: Vec<(&Request, u32)> = all().filter(|(of, _)| is_it(&of.id)).collect();
        match found.as_slice() {
            [(_, number)] => Ok(*number),
            [] => {
                let n = count(self.all().len() as u64, "request");
                let names = names(all().map(|(of, _)| of));
                let or = NAMED.map(|(name, ..)| format!("`{name}`")).join(", ");
                Err(format!("no request `{shown}` among {n}{names}; or {or}"))
            }
            several => {
                let n = grouped(several.len() as u64);
                let names = names(several.iter().map(|(of, _)| *of));
                Err(format!("`{shown}` is the beginning of {n} requests{names}"))
            }
        }
    }

    /// The tokens of each prompt, as passes had them before the first token: of requests of which no pass is missing.
    fn prompts(&self) -> Vec<Option<u64>> {
        let profile = self.profile;
        let mut decodes: HashMap<u32, u32> = HashMap::new();
        for of in profile.parts.iter().filter(|of| of.part.kind == PartKind::Decode) {
            let first = decodes.entry(of.part.request).or_insert(of.pass);
            *first = of.pass.min(*first);
        }
        let mut reached: Vec<Option<u64>> = vec![None; profile.requests.len()];
        for of in profile.parts.iter().filter(|of| of.part.kind == PartKind::Prompt) {
            let is_before = decodes.get(&of.part.request).is_none_or(|first| of.pass < *first);
            if let Some(reached) = reached.get_mut(of.part.request as usize).filter(|_| is_before) {
                let to = of.part.position.saturating_add(of.part.tokens);
                *reached = Some(reached.unwrap_or(0).max(to));
            }
        }
        let is_whole = missing_passes(profile) == 0 && profile.dropped.requests == 0;
        let known = reached.into_iter().zip(&profile.requests).zip(0_u32..);
        let known = known.map(|((reached, of), number)| {
            let is_known = !of.tokens_ns.is_empty() && (is_whole || self.is_covered(number));
            reached.filter(|_| is_known)
        });
        known.collect()
    }

    /// See [`Listed::unique`].
    pub(crate) fn unique(&self) -> Vec<Option<usize>> {
        let mut sorted: Vec<(&str, usize)> =
            self.all().iter().enumerate().map(|(nth, of)| (of.id.as_str(), nth)).collect();
        sorted.sort_unstable();
        let mut unique = vec![None; sorted.len()];
        for (at, &(id, nth)) in sorted.iter().enumerate() {
            let beside = [at.checked_sub(1), at.checked_add(1)].into_iter().flatten();
            let beside = beside.filter_map(|at| sorted.get(at)).map(|(other, _)| alike(id, other));
            let needed = beside.max().unwrap_or(0) + 1;
            unique[nth] = (needed <= id.chars().count()).then_some(needed);
        }
        unique
    }
}

/// With how many characters two texts begin alike.
fn alike(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

/// `: a, b`, or `: a, b, c, d, e, …`.
fn names<'r>(requests: impl Iterator<Item = &'r Request>) -> String {
    let mut shown: Vec<String> = Vec::new();
    for of in requests.take(MOST_NAMES + 1) {
        shown.push(match shown.len() {
            MOST_NAMES => "…".to_owned(),
            _ => cut_middle(&printable(&of.id), 0, NAME),
        });
    }
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Part, PassPart, Profile};

    use super::*;

    fn profile(ids: &[&str]) -> Profile {
        let mut profile = Profile::empty(ClockInfo::default());
        for (id, nth) in ids.iter().zip(1_u64..) {
            let tokens_ns = vec![10, 20, 20 + 100 * nth, 130 + 100 * nth];
            let id = (*id).to_owned();
            profile.requests.push(Request { id, tokens_ns, ..Request::default() });
        }
        profile
    }

    #[test]
    fn a_request_is_named_by_a_beginning_a_number_or_as_the_slowest() {
        let mut profile = profile(&["chat-ab-1", "chat-b", "7", "chat-ab", "chat-ac-9"]);
        profile.requests[1].tokens_ns[0] = 15;
        profile.requests[0].ended_ns = Some(2_000);
        profile.requests[3].ended_ns = Some(3_000);
        let requests = Requests::of(&profile);
        for (wanted, number) in [
            ("chat-ab", 3),
            ("chat-ab-", 0),
            ("chat-b", 1),
            ("1", 0),
            ("5", 4),
            ("7", 2),
            ("chat-a…9", 4),
            (SLOWEST, 4),
            (SLOWEST_FIRST, 1),
            (LONGEST, 3),
        ] {
            assert_eq!(requests.named(wanted), Ok(number), "{wanted}");
        }
        let why = requests.named("chat-a").expect_err("three begin so");
        let said = "`chat-a` is the beginning of 3 requests: chat-ab-1, chat-ab, chat-ac-9";
        assert_eq!(why, said);
        for wanted in ["0", "6", "dog", "99999999999"] {
            let why = requests.named(wanted).expect_err("it isn't there");
            let said = format!("no request `{wanted}` among 5 requests: chat-ab-1, chat-b, 7, ");
            assert!(why.starts_with(&said), "{why}");
        }
        let many: Vec<String> = (0..9).map(|nth| format!("r{nth}")).collect();
        let profile = self::profile(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let why = Requests::of(&profile).named("x").expect_err("it isn't there");
        let said = ": r0, r1, r2, r3, r4, …; or `slowest`, `slowest-first`, `longest`";
        assert!(why.ends_with(said), "{why}");
        // Of each it is said why there is none.
        let none =
            Profile { requests: vec![Request::default()], ..Profile::empty(ClockInfo::default()) };
        let why = NAMED.map(|(name, ..)| Requests::of(&none).named(name));
        assert_eq!(why, NAMED.map(|(.., why)| Err(why.to_owned())));
    }

    #[test]
    fn a_list_is_sorted_by_what_is_asked_for_with_the_unknown_last() {
        let mut profile = profile(&["a", "b", "c", "d"]);
        for (request, (arrived, first, ended)) in
            profile.requests.iter_mut().zip([(3, 10, 700), (0, 12, 900), (2, 19, 800)])
        {
            request.arrived_ns = arrived;
            request.tokens_ns[0] = first;
            request.ended_ns = Some(ended);
        }
        profile.requests[3] = Request { id: "d".to_owned(), arrived_ns: 1, ..Request::default() };
        let requests = Requests::of(&profile);
        for (by, sorted) in
            [("first", "cbad"), ("worst", "cbad"), ("arrival", "bdca"), ("total", "bcad")]
        {
            let order = by.parse().expect("an order");
            let ids: String = requests.list_by(order).iter().map(|of| of.of.id.as_str()).collect();
            assert_eq!(ids, sorted, "{by}");
        }
        assert!("size".parse::<Order>().is_err());
    }

    #[test]
    fn a_list_has_what_is_known_and_nothing_else() {
        let mut profile = profile(&["chat-ab", "chat-ac", "same", "same"]);
        let part = |pass, part| PassPart { pass, part };
        profile.passes.push(brickscope_profile::Pass {
            serial: 1,
            phase: brickscope_profile::Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 0,
            start_ns: 0,
            wall_ns: 9,
            attributed_ns: 0,
            unattributed_ns: 9,
            disturbance: None,
            is_left_out: false,
        });
        profile.parts.extend([
            part(1, Part::prompt(0, 8, 4).with_cached(4)),
            part(2, Part::decode(0, 12)),
            // Its tokens were computed again.
            part(3, Part::prompt(0, 13, 0)),
        ]);
        profile.requests[1].prompt_tokens = Some(5);
        profile.requests[2].tokens_ns.clear();
        let requests = Requests::of(&profile);
        let list = requests.list();
        let of = |nth: usize| (list[nth].prompt_tokens, list[nth].answer_tokens);
        assert_eq!([of(0), of(1), of(2)], [(Some(12), Some(4)), (Some(5), Some(4)), (None, None)]);
        assert_eq!((list[0].first_ns, list[0].worst_ns), (Some(10), Some(110)));
        assert_eq!((list[1].first_ns, list[1].worst_ns), (Some(10), Some(200)));
        assert_eq!((list[2].first_ns, list[2].worst_ns), (None, None));
        let unique: Vec<_> = list.iter().map(|of| of.unique).collect();
        assert_eq!(unique, [Some(7), Some(7), None, None]);
        assert!(list.iter().all(|of| of.cause.is_none()), "too few tokens to tell");
        profile.dropped.passes = 1;
        assert_eq!(Requests::of(&profile).list()[0].prompt_tokens, None);
    }
}
