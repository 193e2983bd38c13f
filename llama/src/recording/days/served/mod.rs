//! The requests of a server that is recorded for days: all are counted, and some are kept whole.
//!
//! - **Sums** are of all requests, and exact: each token is added when it is read, each request when it is over.
//! - **Who was in a pass** is found as in a recording that is whole, but bit by bit: of the passes and requests of the last time
//!   ([`Live`]). A request is settled when it is over, two passes began after it, and either it is known which turn it had, or
//!   nobody who came before its end can change that any more.
//! - **Kept** are the requests with the slowest tokens, and a sample of the others ([`RequestKeeper`]), each with the passes that
//!   ran from its arrival to its end: when these ran and for whom, some hundred bytes each. The requests that these were for are
//!   there, too.
//! - **Memory**: as much for what is kept as for the passes of the last time, and again for the tokens of requests that go on.
//!   A request that has more tokens, or never ends, is in the sums and not kept; of passes that had no room it is known which
//!   time they are missing in.

mod coming;
mod ran;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use brickscope::keep::{Asked as AllOf, RequestKeeper, RequestOffer};
use brickscope::{Ending, Request};

use self::coming::{Coming, Sums};
use self::ran::Passes;
use crate::recording::events::{Asked, Pass, SentPiece};
use crate::recording::part::{Id, KeptOnes};
use crate::recording::requests::{Came, Live, Tie};

/// After so many passes requests are tied again.
const EVERY: u32 = 32;
/// The most requests that have not ended, of which more is known than sums.
const MOST_OPEN: usize = 1 << 12;
/// The most turns in which one is looked for.
const MOST_TURNS: usize = 1 << 12;
/// The most contexts whose passes are for requests.
const MOST_CONTEXTS: usize = 64;

/// Requests by their numbers in the recording.
type AllAsked = BTreeMap<u32, Asked>;

/// A request that is over, and is kept, or may be named by a pass that is.
#[derive(Debug, Clone)]
struct Known {
    request: Request,
    /// `None` of one that isn't kept.
    kept: Option<Beside>,
}

/// The passes that are kept with a request: the first and the last, and the time in which all are there.
#[derive(Debug, Clone, Copy)]
struct Beside {
    passes: Option<[u64; 2]>,
    covered: [u64; 2],
}

impl Known {
    fn bytes(&self) -> usize {
        // With what a tree has for each.
        size_of::<Self>() + 32 + self.request.id.len() + size_of_val(&*self.request.tokens_ns)
    }
}

/// The requests of a server.
#[derive(Debug, Clone)]
pub(super) struct Served {
    /// The most bytes of what is kept, and as many again of what isn't settled.
    most: usize,
    coming: BTreeMap<u32, Coming>,
    /// As they are known, in the order in which they came.
    came: Vec<Came>,
    /// Those that are over, as long as the recording is kept whole.
    over: HashSet<u32>,
    live: BTreeMap<Id, Live>,
    passes: Passes,
    /// Up to when all passes were known when requests were last tied.
    known_ns: u64,
    /// The bytes of all that came and was sent.
    looked_bytes: usize,
    /// Passes since requests were tied.
    since: u32,
    known: BTreeMap<u32, Known>,
    known_bytes: usize,
    /// Of these, the bytes of those that aren't kept themselves, and how many these were when it was last looked whether a pass
    /// names them.
    beside_bytes: usize,
    beside_before: usize,
    keeper: RequestKeeper,
    sums: Sums,
    /// For how many tokens of requests that go on there is room.
    room: usize,
    /// First tokens that took longer than this are noted.
    over_ns: Option<u64>,
    /// When these were asked for, and when they were sent.
    late: Vec<[u64; 2]>,
}

impl Served {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            coming: BTreeMap::new(),
            came: Vec::new(),
            over: HashSet::new(),
            live: BTreeMap::new(),
            passes: Passes::default(),
            known_ns: 0,
            looked_bytes: 0,
            since: 0,
            known: BTreeMap::new(),
            known_bytes: 0,
            beside_bytes: 0,
            beside_before: 0,
            keeper: RequestKeeper::default(),
            sums: Sums::default(),
            room: most / size_of::<u64>(),
            over_ns: None,
            late: Vec::new(),
        }
    }

    /// From now on first tokens that took longer are [noted](Self::take_late).
    pub(super) fn note_over(&mut self, over_ns: u64) {
        self.over_ns = Some(over_ns);
    }

    /// The first tokens that took too long since this was last asked: when each request arrived, and when its token was sent.
    pub(super) fn take_late(&mut self) -> Vec<[u64; 2]> {
        std::mem::take(&mut self.late)
    }

    /// How many requests came, and got a token.
    pub(super) fn asked(&self) -> AllOf {
        let sums = &self.sums.0;
        AllOf { requests: sums.requests, first_tokens: sums.first_token.count }
    }

    /// Looks at what came and was sent since. What isn't needed again is taken out, unless the recording is kept whole.
    pub(super) fn look(&mut self, asked: &mut AllAsked, is_whole: bool, at: &impl Fn(u64) -> u64) {
        if !is_whole {
            self.over.drain().for_each(|number| drop(asked.remove(&number)));
        }
        for (number, asked) in asked.iter_mut().filter(|(number, _)| !self.over.contains(*number)) {
            let coming = self.coming.entry(*number).or_insert_with(|| {
                self.sums.0.requests += 1;
                self.looked_bytes += size_of::<Asked>() + asked.path.len();
                Coming::new(asked, self.sums.0.requests, at)
            });
            let had_none = coming.until_first().is_none();
            let pieces = coming.look(asked, is_whole, at, (&mut self.sums, &mut self.room));
            self.looked_bytes += pieces * size_of::<SentPiece>();
            let first = coming.until_first().filter(|_| had_none);
            let is_late = |[from, to]: &[u64; 2]| {
                self.over_ns.is_some_and(|over_ns| to.saturating_sub(*from) > over_ns)
            };
            self.late.extend(first.filter(is_late));
        }
        self.came_anew(asked, at);
    }

    /// Whether all that came and was sent has more bytes than are kept.
    pub(super) fn is_large(&self) -> bool {
        self.looked_bytes > self.most
    }

    fn came_anew(&mut self, asked: &AllAsked, at: &impl Fn(u64) -> u64) {
        let came = self.coming.iter().filter(|(_, of)| !of.is_given_up);
        let came = came.filter_map(|(number, of)| Some(of.came(*number, asked.get(number)?, at)));
        self.came = came.collect();
        self.came.sort_by_key(|came| came.arrived);
    }

    /// Adds a pass that ended.
    pub(super) fn add(&mut self, pass: &Pass, id: Id, times: [u64; 2]) {
        // Of a program that is no server nothing is kept. Who comes first may have waited for this one, too.
        if self.sums.0.requests == 0 {
            self.passes.lost_ns = self.passes.lost_ns.max(times[1]);
            return;
        }
        if self.live.len() >= MOST_CONTEXTS && !self.live.contains_key(&id) {
            self.live.pop_first();
        }
        let does = self.live.entry(id).or_default().add(pass, times, &self.came);
        self.passes.add(pass, id, times, does);
        self.since += 1;
    }

    /// Settles the requests that are over and known. `asked` loses them, unless the recording is kept whole.
    pub(super) fn settle(
        &mut self,
        asked: &mut AllAsked,
        (is_whole, is_last): (bool, bool),
        at: &impl Fn(u64) -> u64,
    ) {
        let is_full = self.coming.len() > MOST_OPEN;
        if self.since >= EVERY || is_last || is_full {
            self.since = 0;
            let known_ns = if is_last { u64::MAX } else { self.passes.known_ns };
            self.end_all(asked, (is_whole, is_last), known_ns, at);
        }
        let first = self.came.first().map_or(self.passes.known_ns, |came| came.arrived);
        self.live.values_mut().for_each(|live| live.forget(first));
        if self.live.values().any(|live| live.len() > MOST_TURNS)
            && let Some(oldest) = self.came.first()
            && let Some(coming) = self.coming.get_mut(&oldest.number)
        {
            coming.is_given_up = true;
        }
        self.passes.forget(first, self.most);
    }

    /// Settles all requests as far as they came, of a recording that goes on: what was sent since the last pass may be of one
    /// that isn't known yet.
    pub(super) fn end_so_far(
        &mut self,
        asked: &mut AllAsked,
        is_whole: bool,
        at: &impl Fn(u64) -> u64,
    ) {
        self.end_all(asked, (is_whole, true), self.passes.known_ns, at);
    }

    /// Settles the requests that are over and known, or all of them. All passes are known up to a time.
    fn end_all(
        &mut self,
        asked: &mut AllAsked,
        (is_whole, are_all): (bool, bool),
        known_ns: u64,
        at: &impl Fn(u64) -> u64,
    ) {
        let mut ties: BTreeMap<u32, Vec<(Id, Tie)>> = BTreeMap::new();
        for (id, live) in &self.live {
            for tie in live.tie(&self.came, known_ns) {
                ties.entry(tie.number).or_default().push((*id, tie));
            }
        }
        // When the first of those came that go on; and of those that may be any turn.
        let open = || self.came.iter().filter(|came| came.ended.is_none() || came.until > known_ns);
        let open_ns = open().map(|came| came.arrived).min();
        let any_ns = open().filter(|came| came.is_any()).map(|came| came.arrived).min();
        let given_up = self.coming.iter().filter(|(_, of)| of.is_given_up);
        let given_up =
            given_up.filter_map(|(number, of)| Some(of.came(*number, asked.get(number)?, at)));
        let all: Vec<Came> = self.came.iter().cloned().chain(given_up).collect();
        self.known_ns = known_ns;
        let mut too_many = self.coming.len().saturating_sub(MOST_OPEN);
        for came in all {
            let ties = ties.remove(&came.number).unwrap_or_default();
            let is_after = |ns: Option<u64>| ns.is_none_or(|ns| ns > came.until);
            // One that can't have any turn waits for nobody.
            let is_known = !came.is_tieable()
                || if ties.is_empty() { is_after(open_ns) } else { is_after(any_ns) };
            let is_over = came.ended.is_some() && self.passes.has_two_after(came.until);
            let is_settled = is_over && is_known;
            if !(are_all || is_settled || too_many > 0) {
                continue;
            }
            too_many = too_many.saturating_sub(1);
            self.end(&came, &ties, asked);
            if is_whole {
                self.over.insert(came.number);
            } else {
                asked.remove(&came.number);
            }
        }
        self.came_anew(asked, at);
    }

    /// A request is over, or nobody waits for its end any more.
    fn end(&mut self, came: &Came, ties: &[(Id, Tie)], asked: &AllAsked) {
        let Came { number, arrived, .. } = *came;
        let (Some(coming), Some(asked)) = (self.coming.remove(&number), asked.get(&number)) else {
            return;
        };
        self.room += coming.tokens();
        let until = if came.ended.is_some() { came.until } else { u64::MAX };
        for (id, tie) in ties {
            self.passes.name(*id, *tie, until);
            if let Some(live) = self.live.get_mut(id) {
                live.take(tie.turn);
            }
        }
        if ties.is_empty() {
            self.live.values_mut().for_each(|live| live.doubt(came));
        }
        let ended: Option<(u64, Ending)> =
            came.ended.map(|ended| (ended.max(arrived), came.ending()));
        self.sums.add(&coming, came, ended, !ties.is_empty());
        let is_cut = coming.is_cut;
        let (token_ns, first_ns) = (coming.longest_ns, coming.first_ns());
        let admitted_ns = ties.iter().map(|(_, tie)| tie.begin).min();
        let request = coming.finish(asked, admitted_ns, ended);
        if is_cut {
            self.sums.0.too_long += 1;
            self.note(number, Known { request, kept: None });
        } else {
            let end_ns = request.ended_ns.or(request.tokens_ns.last().copied());
            let to_ns = end_ns.unwrap_or(arrived).min(self.known_ns).max(arrived);
            let from_ns = self.passes.lost_ns.clamp(arrived, to_ns);
            let passes = self.passes.within(from_ns, to_ns);
            if let Some(passes) = passes {
                self.passes.hold(passes);
            }
            let kept = Some(Beside { passes, covered: [from_ns, to_ns] });
            self.note(number, Known { request, kept });
            let offer = RequestOffer { number: number.into(), token_ns, first_ns };
            if let Some(dropped) = self.keeper.add(offer) {
                self.release(dropped);
            }
        }
        self.shrink();
    }

    fn note(&mut self, number: u32, known: Known) {
        let bytes = known.bytes();
        self.known_bytes += bytes;
        if known.kept.is_none() {
            self.beside_bytes += bytes;
        }
        self.known.insert(number, known);
    }

    /// A request is kept no more: its name may be.
    fn release(&mut self, number: u64) {
        let Ok(number) = u32::try_from(number) else { return };
        let Some(known) = self.known.get_mut(&number) else { return };
        if let Some(Beside { passes, .. }) = known.kept.take() {
            self.beside_bytes += known.bytes();
            if let Some(passes) = passes {
                self.passes.release(passes);
            }
        }
    }

    /// Keeps no more than there is room for.
    fn shrink(&mut self) {
        if self.beside_bytes > self.beside_before.saturating_add(self.most / 8) {
            self.forget_unnamed();
        }
        while self.known_bytes.saturating_add(self.passes.held_bytes()) > self.most {
            match self.keeper.shrink() {
                Some(dropped) => self.release(dropped),
                None => break,
            }
            if self.beside_bytes > self.beside_before.saturating_add(self.most / 8) {
                self.forget_unnamed();
            }
        }
    }

    /// Forgets the requests that aren't kept, and that no pass is for which is there.
    fn forget_unnamed(&mut self) {
        let named = self.passes.named();
        self.known.retain(|number, known| known.kept.is_some() || named.contains(number));
        self.known_bytes = self.known.values().map(Known::bytes).sum();
        let beside = self.known.values().filter(|known| known.kept.is_none());
        self.beside_bytes = beside.map(Known::bytes).sum();
        self.beside_before = self.beside_bytes;
    }

    /// What was kept, after all was [settled](Self::settle). `None` if nobody asked for anything.
    pub(super) fn finish(mut self) -> Option<KeptOnes> {
        if self.sums.0.requests == 0 {
            return None;
        }
        let mut covered: Vec<[u64; 2]> = Vec::new();
        let times = self.known.values().filter_map(|known| Some(known.kept?.covered));
        let mut times: Vec<[u64; 2]> = times.collect();
        times.sort_unstable();
        for [from_ns, to_ns] in times {
            match covered.last_mut() {
                Some([_, end]) if from_ns <= *end => *end = to_ns.max(*end),
                _ => covered.push([from_ns, to_ns]),
            }
        }
        // Only passes that are kept name those that are kept for them.
        self.passes.forget(u64::MAX, 0);
        self.forget_unnamed();
        let mut all: Vec<(u32, Known)> = std::mem::take(&mut self.known).into_iter().collect();
        all.sort_by_key(|(_, known)| known.request.arrived_ns);
        let places = (0_u32..).zip(&all).map(|(place, (number, _))| (*number, place));
        let places: BTreeMap<u32, u32> = places.collect();
        let beside = (0_u32..).zip(&all).filter(|(_, (_, known))| known.kept.is_none());
        let beside = beside.map(|(place, _)| place).collect();
        let mut names: BTreeSet<String> = BTreeSet::new();
        for (number, known) in &mut all {
            // A server may call two alike.
            if !names.insert(known.request.id.clone()) {
                known.request.id = format!("{} {number}", known.request.id);
                names.insert(known.request.id.clone());
            }
        }
        let chosen = self.keeper.finish();
        let place = |number: &u64| places.get(&u32::try_from(*number).ok()?).copied();
        let mut sample: Vec<u32> = chosen.sample.iter().filter_map(place).collect();
        sample.sort_unstable();
        let mut kept = self.sums.0;
        kept.slowest = chosen.slowest.len() as u64;
        (kept.slower_than_ns, kept.first_slower_than_ns) =
            (chosen.slower_than_ns, chosen.first_slower_than_ns);
        (kept.sample, kept.sample_of) = (sample, chosen.sample_of);
        (kept.beside, kept.covered) = (beside, covered);
        kept.endings.sort_by_key(|(ending, _)| ending.name());
        let passes = self.passes.finish(|number| places.get(&number).copied());
        let requests = all.into_iter().map(|(_, known)| known.request).collect();
        Some(KeptOnes { requests, passes, kept })
    }
}

#[cfg(test)]
mod tests;
