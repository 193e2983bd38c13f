//! Which sequences of llama.cpp are which requests of a server.
//!
//! A server uses a sequence for one request after another. Where one begins is found by the cache: the sequence doesn't go on
//! as it ended, or goes on with several tokens at once. What it does from there on, a [`Turn`], is tied to a request by time: it
//! begins after the request came, and each token of the answer leaves after the pass that computed it. Where two could be
//! meant, that an answer leaves soon decides; else neither is tied. A prompt or an answer of another length is never meant,
//! where the server tells how long they are.

mod came;
mod live;
mod turns;

use std::collections::{HashMap, HashSet};

use brickscope::{Part, Request};

pub(crate) use self::came::{Answer, Came, arrived};
pub(crate) use self::live::{DoesLive, Live, Tie};
use self::turns::{Does, Joint, Turn, Turns};
use super::events::Recorded;
use super::passes::Found;

/// A request that may be more turns than this is none of them.
const MOST_TURNS: usize = 1 << 12;
/// As many requests and turns that may be each other are looked at in all; later requests are none.
const MOST_PAIRS: usize = 1 << 22;
/// The most tokens that are listed with their times.
const MOST_TOKENS: usize = 1 << 25;

/// The requests of a recording, with what is known of the passes for them.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    turned: Turns,
    /// What each pass does, by its thread and when it begins, in counts.
    does: HashMap<(u16, u64), Vec<Does>>,
    came: Vec<Came>,
}

impl Requests {
    /// Of passes in the order in which they ended; `at` makes nanoseconds of counts. Nothing, of a program that is no server.
    pub(crate) fn of<'r>(
        recorded: &Recorded,
        passes: impl Iterator<Item = Found<'r>>,
        at: impl Fn(u64) -> u64,
    ) -> Self {
        let mut found = Self::default();
        if recorded.asked.is_empty() {
            return found;
        }
        let came = recorded.asked.iter().map(|(number, asked)| Came::of(*number, asked, &at));
        found.came = came.collect();
        found.came.sort_by_key(|came| came.arrived);
        let Self { turned, does, came } = &mut found;
        // Requests that were gone before anything of their answers left.
        let gone: Vec<&Came> = came.iter().filter(|came| came.is_gone()).collect();
        for Found { pass, .. } in passes {
            let may_be_gone = |latest: u64, joint: &Joint| {
                gone.iter().any(|came| came.arrived <= latest && came.may_end_at(joint))
            };
            let of_pass = turned.add(&pass, [pass.begin, pass.end].map(&at), may_be_gone);
            does.insert((pass.of_thread, pass.begin), of_pass);
        }
        tie(&found.turned.turns, &mut found.came);
        found
    }

    /// The requests, in the order in which they came; `at` makes nanoseconds of counts.
    pub(crate) fn all(&self, recorded: &Recorded, at: impl Fn(u64) -> u64) -> Vec<Request> {
        let mut names: HashSet<String> = HashSet::new();
        let mut room = MOST_TOKENS;
        let of_one = |(came, nth): (&Came, usize)| {
            let asked = recorded.asked.get(&came.number)?;
            let id = asked.name.clone().unwrap_or_else(|| format!("{} {nth}", asked.path));
            // A server may call two alike.
            let id = if names.contains(&id) { format!("{id} {nth}") } else { id };
            names.insert(id.clone());
            let ended = came.last.map(|[_, end]| end).or(asked.gone.map(&at));
            // A client may have a piece before the call that sends it returns.
            let sent = asked.sent.iter().map(|sent| (at(sent.begin), sent.what.pieces));
            let sent = sent.filter(|(begin, _)| ended.is_none_or(|ended| *begin <= ended));
            let tokens = sent.flat_map(|(begin, n)| std::iter::repeat_n(begin, usize::from(n)));
            let tokens_ns: Vec<u64> = tokens.take(room).collect();
            room -= tokens_ns.len();
            Some(Request {
                id,
                arrived_ns: came.arrived,
                admitted_ns: came.turn.map(|turn| self.turned.turns[turn].begin),
                tokens_ns,
                ended_ns: ended,
                ending: ended.map(|_| came.ending()),
                ..Request::default()
            })
        };
        self.came.iter().zip(1..).filter_map(of_one).collect()
    }

    /// How many requests were answered, and nobody knows by which passes.
    pub(crate) fn untied(&self) -> u64 {
        let untied = self.came.iter().filter(|came| came.turn.is_none() && !came.has_failed);
        untied.filter(|came| came.last.is_some()).count() as u64
    }

    /// Whom each pass is for, by the numbers that a profiler gave to requests.
    pub(crate) fn parts(&self, numbers: &[u32]) -> impl Fn(&Found<'_>) -> Vec<Part> {
        let tied = self.came.iter().zip(numbers);
        let tied = tied.filter_map(|(came, &number)| Some((came.turn?, number)));
        let tied: HashMap<usize, u32> = tied.collect();
        move |found| {
            let does = self.does.get(&(found.pass.of_thread, found.pass.begin));
            let part = |does: &Does| Part {
                request: tied.get(&does.turn).copied().unwrap_or(Part::NOBODY),
                kind: does.kind,
                tokens: does.tokens.into(),
                position: does.before.into(),
                cached: if does.is_first { does.before.into() } else { 0 },
            };
            does.into_iter().flatten().map(part).collect()
        }
    }
}

/// Ties requests to turns: those that times allow no other, and then those that fit each other and no others.
fn tie(turns: &[Turn], all: &mut [Came]) {
    // Of each turn, when a request came at the latest for which it is, or one before it.
    let latest = turns.iter().scan(0, |latest, turn| {
        *latest = turn.latest().max(*latest);
        Some(*latest)
    });
    let latest: Vec<u64> = latest.collect();
    let mut room = MOST_PAIRS;
    let may_be = all.iter().map(|came| {
        let from = latest.partition_point(|latest| *latest < came.arrived);
        let may_be = came.may_be(turns, from, MOST_TURNS.min(room));
        room -= may_be.len();
        may_be
    });
    let may_be: Vec<Vec<usize>> = may_be.collect();
    let mut who: Vec<Vec<usize>> = vec![Vec::new(); turns.len()];
    for (nth, may_be) in may_be.iter().enumerate() {
        may_be.iter().for_each(|&turn| who[turn].push(nth));
    }
    let taken = turns.iter().enumerate().filter(|(_, turn)| turn.is_taken);
    let mut taken: HashSet<usize> = taken.map(|(nth, _)| nth).collect();
    let mut look: Vec<usize> = (0..all.len()).rev().collect();
    loop {
        while let Some(nth) = look.pop() {
            // One of which nothing left may have gone before it was anybody's turn.
            if all[nth].turn.is_some() || all[nth].first.is_none() {
                continue;
            }
            let only = |nth: usize| only(&may_be[nth], &taken, turns);
            let Some((turn, n)) = only(nth) else { continue };
            // If more have no other turn than there are, one of them has a turn that wasn't found.
            let claims = |&&other: &&usize| {
                all[other].turn.is_none()
                    && all[other].first.is_some()
                    && only(other).is_some_and(|(of, _)| turns[of].passes == turns[turn].passes)
            };
            if who[turn].iter().filter(claims).count() <= n {
                all[nth].turn = Some(turn);
            }
            taken.insert(turn);
            look.extend(&who[turn]);
        }
        let came = &*all;
        // All pairs of a request and a turn that fit each other, and each of which fits no other. Who fits none is slow, and
        // may be any of its own. Whose turn may have been another's too is tied only if nobody else is left for this one.
        let mutual = |fits: fn(&Came, &Turn) -> bool| -> Vec<(usize, usize)> {
            let left = |(nth, may_be): (usize, &Vec<usize>)| -> Vec<usize> {
                let left = may_be.iter().copied().filter(|turn| !taken.contains(turn));
                let is_left = came[nth].turn.is_none();
                left.filter(|turn| is_left && fits(&came[nth], &turns[*turn])).collect()
            };
            let all_left: Vec<Vec<usize>> = may_be.iter().enumerate().map(left).collect();
            let of = |(nth, left): (usize, &Vec<usize>)| {
                let mut whole = left.iter().filter(|turn| turns[**turn].is_tieable());
                let (Some(&turn), None) = (whole.next(), whole.next()) else { return None };
                let is_whole = left.len() == 1;
                let may_be_anothers = |other: &usize| {
                    *other != nth
                        && came[*other].turn.is_none()
                        && (!is_whole
                            || all_left[*other].is_empty()
                            || fits(&came[*other], &turns[turn]))
                };
                (!who[turn].iter().any(may_be_anothers)).then_some((nth, turn))
            };
            all_left.iter().enumerate().filter_map(of).collect()
        };
        let mut pairs = mutual(Came::is_soon);
        if pairs.is_empty() {
            // Who reads slowly has what comes last late.
            pairs = mutual(Came::begins_soon);
        }
        if pairs.is_empty() {
            return;
        }
        for (nth, turn) in pairs {
            all[nth].turn = Some(turn);
            taken.insert(turn);
            look.extend(&who[turn]);
        }
    }
}

/// The only turn of these that isn't taken, or the first of several that are alike, and how many these are. None, of one that
/// may be several requests'.
fn only(of: &[usize], taken: &HashSet<usize>, turns: &[Turn]) -> Option<(usize, usize)> {
    let mut left = of.iter().copied().filter(|turn| !taken.contains(turn));
    let first = left.next()?;
    let mut n = 1;
    for other in left {
        if turns[other].passes != turns[first].passes {
            return None;
        }
        n += 1;
    }
    turns[first].is_tieable().then_some((first, n))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use brickscope::{Ending, PartKind};

    use super::super::events::{Asked, Pass, SentPiece};
    use super::super::format::Sent;
    use super::*;

    /// What somebody asks a server for.
    #[derive(Debug, Clone)]
    struct Asks {
        /// Microseconds after the one before.
        after: u64,
        prompt: u32,
        tokens: u32,
        /// How much of the prompt is in the cache, in hundredths, if the slot has as much.
        cached: u32,
        /// How long each piece takes to leave, in microseconds.
        late: u64,
        is_stream: bool,
        /// Whether the server tells how long the prompt and the answer are.
        tells: bool,
        /// After how many tokens who asked goes away.
        leaves: Option<u32>,
    }

    /// The requests of a pass: of each, what it processes, and how many tokens.
    type Done = Vec<(usize, PartKind, u32)>;

    /// A request that a server works at.
    struct At {
        nth: usize,
        position: u32,
        made: u32,
    }

    /// What a server with so many slots recorded, and which request each sequence was for in each pass, with its tokens.
    fn served(slots: usize, all: &[Asks]) -> (Recorded, Vec<Pass>, Vec<Done>) {
        const CHUNK: u32 = 64;
        let mut recorded = Recorded::default();
        let mut arrivals = Vec::new();
        let mut now = 1_000_000;
        for (nth, asks) in all.iter().enumerate() {
            now += asks.after * 1000;
            arrivals.push(now);
            let path = "/v1/completions".to_owned();
            let tokenized = vec![asks.prompt];
            let asked = Asked { read: now, path, tokenized, ..Asked::default() };
            recorded.asked.insert(nth as u32 + 1, asked);
        }
        let (mut passes, mut truth): (Vec<Pass>, Vec<Done>) = Default::default();
        let mut waiting: std::collections::VecDeque<usize> = (0..all.len()).collect();
        let mut at: Vec<Option<At>> = (0..slots).map(|_| None).collect();
        let mut kept = vec![0_u32; slots];
        let mut now = 1_000_000_u64;
        while !waiting.is_empty() || at.iter().any(Option::is_some) {
            for (slot, at) in at.iter_mut().enumerate() {
                if at.is_none()
                    && let Some(&nth) = waiting.front()
                    && arrivals[nth] <= now
                {
                    waiting.pop_front();
                    let cached = (all[nth].prompt - 1) * all[nth].cached / 100;
                    let mut position = cached.min(kept[slot]);
                    // An answer that goes on as a prompt's last token looks like one that never ended, unless the server says
                    // how long they are.
                    let tells = all.iter().all(|asks| asks.tells);
                    if position == kept[slot] && position + 1 == all[nth].prompt && !tells {
                        position -= 1;
                    }
                    *at = Some(At { nth, position, made: 0 });
                }
            }
            if at.iter().all(Option::is_none) {
                now = arrivals[waiting[0]].max(now);
                continue;
            }
            let mut pass = Pass { begin: now + 20_000, is_decode: true, ..Pass::default() };
            let mut does = Vec::new();
            for (slot, at) in at.iter_mut().enumerate() {
                let Some(at) = at else { continue };
                let left = all[at.nth].prompt.saturating_sub(at.position);
                let kind = if at.made == 0 { PartKind::Prompt } else { PartKind::Decode };
                let n = if at.made == 0 { left.min(CHUNK) } else { 1 };
                pass.sequences.push([at.position, at.position + n]);
                pass.numbers.push((slot as u32, Some(u32::from(n == left || at.made > 0))));
                does.push((at.nth, kind, n));
                at.position += n;
            }
            pass.end =
                pass.begin + 300_000 + 10_000 * does.iter().map(|of| u64::from(of.2)).sum::<u64>();
            now = pass.end;
            for (slot, of_slot) in at.iter_mut().enumerate() {
                let Some(at) = of_slot else { continue };
                let asks = &all[at.nth];
                if at.position < asks.prompt {
                    continue;
                }
                at.made += 1;
                kept[slot] = at.position;
                let asked = recorded.asked.get_mut(&(at.nth as u32 + 1)).expect("all are there");
                let begin =
                    (pass.end + asks.late * 1000).max(asked.sent.last().map_or(0, |of| of.end));
                let all = if asks.tells { [asks.prompt, asks.tokens].map(Some) } else { [None; 2] };
                let mut send = |what: Sent| {
                    let tokens = if what.is_last { all } else { [None; 2] };
                    asked.sent.push(SentPiece { begin, end: begin + 10, bytes: 1, tokens, what });
                };
                if asks.leaves.is_some_and(|after| at.made > after) {
                    asked.gone = Some(begin);
                    *of_slot = None;
                    continue;
                }
                if asks.is_stream {
                    send(Sent { pieces: 1, ..Sent::default() });
                }
                if at.made == asks.tokens {
                    send(Sent { is_last: true, ..Sent::default() });
                    *of_slot = None;
                }
            }
            passes.push(pass);
            truth.push(does);
        }
        (recorded, passes, truth)
    }

    fn found(pass: &Pass) -> Found<'static> {
        Found {
            pass: pass.clone(),
            graphs: Vec::new(),
            described: Vec::new(),
            inside: Vec::new(),
            before: None,
            looked: None,
        }
    }

    /// Holds what was tied against what happened. Returns how many were tied.
    fn is_true(slots: usize, all: &[Asks]) -> Result<usize, TestCaseError> {
        let (recorded, passes, truth) = served(slots, all);
        let requests = Requests::of(&recorded, passes.iter().map(found), |count| count);
        let numbers: Vec<u32> = (0..all.len() as u32).collect();
        let told = requests.all(&recorded, |count| count);
        let of = requests.parts(&numbers);
        let is_tied: Vec<bool> = told.iter().map(|of| of.admitted_ns.is_some()).collect();
        for (pass, truth) in passes.iter().zip(&truth) {
            let parts = of(&found(pass));
            prop_assert_eq!(parts.len(), truth.len());
            // In any order: which of two turns that are alike is whose can't be told.
            let in_order = |mut all: Vec<(u32, Option<u8>, u64)>| {
                all.sort_unstable();
                all
            };
            let true_ones = truth.iter().map(|(nth, kind, tokens)| {
                let who = if is_tied[*nth] { *nth as u32 } else { Part::NOBODY };
                (who, is_tied[*nth].then_some(*kind as u8), u64::from(*tokens))
            });
            let told = parts.iter().map(|part| {
                let is_known = part.request != Part::NOBODY;
                (part.request, is_known.then_some(part.kind as u8), part.tokens)
            });
            prop_assert_eq!(in_order(told.collect()), in_order(true_ones.collect()));
        }
        for (of, asks) in told.iter().zip(all) {
            let leaves = asks.leaves.filter(|after| *after < asks.tokens);
            let n = if asks.is_stream { leaves.unwrap_or(asks.tokens) } else { 0 };
            prop_assert_eq!(of.tokens_ns.len(), n as usize);
            let ending = if leaves.is_some() { Ending::Cancelled } else { Ending::Stop };
            prop_assert_eq!(of.ending, Some(ending));
        }
        Ok(is_tied.iter().filter(|tied| **tied).count())
    }

    prop_compose! {
        fn asks()(
            after in prop_oneof![Just(0), 0_u64..400, 0_u64..20_000],
            prompt in 2_u32..200,
            tokens in 1_u32..12,
            cached in prop_oneof![Just(0), Just(100), 0_u32..100],
            late in prop_oneof![9 => 1_u64..20, 1 => 0_u64..3_000],
            is_stream: bool,
            tells: bool,
            leaves in prop_oneof![9 => Just(None), 1 => (0_u32..12).prop_map(Some)],
        ) -> Asks {
            Asks { after, prompt, tokens, cached, late, is_stream, tells, leaves }
        }
    }

    proptest! {
        /// Whoever is tied is tied to what was for them.
        #[test]
        fn no_request_is_tied_to_what_was_for_another(
            slots in 1_usize..6,
            all in prop::collection::vec(asks(), 1..30),
        ) {
            is_true(slots, &all)?;
        }
    }

    /// The first one goes away while the last one's prompt is processed, so that this may be for both. That of the first one is
    /// as long, but isn't the last one's only turn.
    #[test]
    fn one_whose_turn_may_be_anothers_too_is_not_tied_to_what_is_left() {
        let asks = |prompt, tokens, leaves| Asks {
            after: 0,
            prompt,
            tokens,
            cached: 0,
            late: 1,
            is_stream: false,
            tells: false,
            leaves,
        };
        let all = [asks(199, 5, Some(3)), asks(65, 3, None), asks(199, 1, None)];
        assert_eq!(is_true(2, &all).expect("none is tied to another's"), 1);
    }

    /// The second one's answer is sent as a whole after its second token, which says nothing of its first one.
    #[test]
    fn an_answer_that_is_sent_as_a_whole_does_not_tell_when_its_first_token_left() {
        let asks = |prompt, tokens, cached, late| Asks {
            after: 0,
            prompt,
            tokens,
            cached,
            late,
            is_stream: false,
            tells: false,
            leaves: None,
        };
        let all = [asks(115, 1, 0, 671), asks(115, 2, 0, 1), asks(2, 2, 100, 1)];
        assert_eq!(is_true(2, &all).expect("none is tied to another's"), 1);
    }

    /// The first answer leaves so late that it would be a soon one of the second turn. The second one leaves late as well.
    #[test]
    fn where_one_reads_slowly_another_is_not_taken_for_the_soon_one() {
        let asks = |tokens, late, is_stream| Asks {
            after: 0,
            prompt: 22,
            tokens,
            cached: 0,
            late,
            is_stream,
            tells: false,
            leaves: None,
        };
        let all = [asks(7, 2310, false), asks(2, 331, true)];
        assert_eq!(is_true(1, &all).expect("none is tied to another's"), 0);
    }

    #[test]
    fn requests_that_differ_are_all_tied() {
        let asks = |nth: u64| Asks {
            after: nth % 7 * 900,
            prompt: 10 + nth as u32 * 3,
            tokens: 2 + nth as u32 % 9,
            cached: if nth.is_multiple_of(3) { 60 } else { 0 },
            late: 10,
            is_stream: !nth.is_multiple_of(4),
            tells: nth.is_multiple_of(2),
            leaves: None,
        };
        let all: Vec<Asks> = (0..60).map(asks).collect();
        for slots in [1, 4, 16] {
            assert_eq!(
                is_true(slots, &all).expect("none is tied to another's"),
                60,
                "{slots} slots"
            );
        }
    }

    /// One request with a prompt of ten tokens. A draft model guesses three tokens for each pass, of which so many are right.
    /// Either the others are taken out of the cache, or it goes back to before the pass and what was right is computed again.
    fn speculated(right: &[u32], goes_back: bool) -> (Recorded, Vec<Pass>) {
        let mut passes: Vec<Pass> = Vec::new();
        let mut sent: Vec<SentPiece> = Vec::new();
        let mut add = |[before, after]: [u32; 2], outputs, made: u64| {
            let begin = 2_000_000 + 1_000_000 * passes.len() as u64;
            let (end, sequences) = (begin + 500_000, vec![[before, after]]);
            let numbers = vec![(0, Some(outputs))];
            let pass = Pass { begin, end, is_decode: true, ..Pass::default() };
            passes.push(Pass { sequences, numbers, ..pass });
            // Each token leaves by itself.
            sent.extend((0..made).map(|nth| SentPiece {
                begin: end + 1_000 * (nth + 1),
                end: end + 1_000 * (nth + 1) + 10,
                bytes: 1,
                tokens: [None; 2],
                what: Sent { pieces: 1, ..Sent::default() },
            }));
        };
        add([0, 10], 1, 1);
        let mut at = 10;
        for &right in right {
            if goes_back && right < 3 {
                add([at, at + 4], 4, 0);
                add([at, at + right + 2], right + 2, u64::from(right) + 2);
                at += right + 2;
            } else {
                add([at, at + 4], 4, u64::from(right) + 1);
                at += right + 1;
            }
        }
        let n = sent.len() as u32;
        let (last, path) = (sent.last().map_or(0, |of| of.end), "/v1/completions".to_owned());
        let what = Sent { is_last: true, ..Sent::default() };
        let tokens = [Some(10), Some(n)];
        sent.push(SentPiece { begin: last + 1_000, end: last + 1_010, bytes: 1, tokens, what });
        let tokenized = vec![10];
        let asked = Asked { read: 1_000_000, path, tokenized, sent, ..Asked::default() };
        (Recorded { asked: [(1, asked)].into(), ..Recorded::default() }, passes)
    }

    #[test]
    fn tokens_that_a_draft_model_guessed_are_of_one_request_whether_right_or_not() {
        for goes_back in [false, true] {
            let (recorded, passes) = speculated(&[3, 0, 2, 1, 3, 0, 0], goes_back);
            let requests = Requests::of(&recorded, passes.iter().map(found), |count| count);
            assert_eq!((requests.turned.turns.len(), requests.untied()), (1, 0), "{goes_back}");
            let told = requests.all(&recorded, |count| count);
            let [of] = &told[..] else { panic!("{told:?}") };
            assert_eq!(of.admitted_ns, Some(passes[0].begin));
            // A pass with several right ones has as many tokens, and time per token is by tokens, not by passes.
            let of_passes = if goes_back { [4, 2, 4, 3, 4, 2, 2] } else { [4, 1, 3, 2, 4, 1, 1] };
            let tokens = 1 + of_passes.iter().sum::<usize>();
            assert_eq!(of.tokens_ns.len(), tokens);
            let (first, last) = (of.tokens_ns[0], of.tokens_ns[tokens - 1]);
            assert_eq!(of.mean_token_ns(), Some((last - first) / (tokens as u64 - 1)));
            let parts_of = requests.parts(&[0]);
            for (nth, pass) in passes.iter().enumerate() {
                let [before, after] = pass.sequences[0];
                let kind = if nth == 0 { PartKind::Prompt } else { PartKind::Decode };
                let (tokens, position) = (u64::from(after - before), u64::from(before));
                let part = Part { request: 0, kind, tokens, position, cached: 0 };
                assert_eq!(parts_of(&found(pass)), [part], "{goes_back}, pass {nth}");
            }
        }
    }

    /// Its prompt ends with a token behind the place to which the cache would go back.
    #[test]
    fn the_next_request_of_a_slot_is_not_taken_for_a_draft_that_is_computed_again() {
        let (mut recorded, mut passes) = speculated(&[3], false);
        let begin = 9_000_000;
        let (sequences, numbers) = (vec![[10, 11]], vec![(0, Some(1))]);
        let pass = Pass { begin, end: begin + 1, is_decode: true, ..Pass::default() };
        passes.push(Pass { sequences, numbers, ..pass });
        let path = "/v1/completions".to_owned();
        let asked = Asked { read: 8_000_000, path, tokenized: vec![11], ..Asked::default() };
        recorded.asked.insert(2, asked);
        let requests = Requests::of(&recorded, passes.iter().map(found), |count| count);
        assert_eq!(requests.turned.turns.len(), 2);
    }
}
