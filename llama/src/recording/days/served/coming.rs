//! Requests that have not ended, and the sums of all.

use brickscope::keep::KeptRequests;
use brickscope::{Ending, Request};

use crate::recording::events::Asked;
use crate::recording::requests::{Answer, Came, arrived};

/// The most tokens of a request that is kept.
const MOST_TOKENS: usize = 1 << 14;
/// The most texts that tokens are made of for one request; of more, those first are known.
const MOST_TEXTS: usize = 1 << 10;

/// A request, as far as it came.
#[derive(Debug, Clone)]
pub(super) struct Coming {
    /// How many came before it, and it.
    nth: u64,
    arrived: u64,
    answer: Answer,
    /// Pieces of its answer that were looked at, and are there.
    taken: usize,
    tokens: Vec<u64>,
    /// How many there were.
    n_tokens: u64,
    first: Option<u64>,
    last: Option<u64>,
    /// The longest time between two.
    pub(super) longest_ns: u64,
    /// Whether it has more tokens than there was room for.
    pub(super) is_cut: bool,
    /// Whether nobody looks for its turn any more.
    pub(super) is_given_up: bool,
}

impl Coming {
    pub(super) fn new(asked: &Asked, nth: u64, at: &impl Fn(u64) -> u64) -> Self {
        Self {
            nth,
            arrived: arrived(asked, at),
            answer: Answer::default(),
            taken: 0,
            tokens: Vec::new(),
            n_tokens: 0,
            first: None,
            last: None,
            longest_ns: 0,
            is_cut: false,
            is_given_up: false,
        }
    }

    /// Looks at what was sent since, and returns how many pieces that is. `room` is for how many tokens of all requests there is
    /// room.
    pub(super) fn look(
        &mut self,
        asked: &mut Asked,
        is_whole: bool,
        at: &impl Fn(u64) -> u64,
        (sums, room): (&mut Sums, &mut usize),
    ) -> usize {
        let n = asked.sent.len().saturating_sub(self.taken);
        for sent in asked.sent.iter().skip(self.taken) {
            let begin = at(sent.begin);
            // A client may have a piece before the call that sends it returns; nobody has one after the last.
            let is_late = self.answer.ended().is_some_and(|ended| begin > ended);
            let pieces = if is_late { 0 } else { sent.what.pieces };
            (0..pieces).for_each(|_| self.token(begin, sums, room));
            self.answer.add(sent, at);
        }
        self.taken = asked.sent.len();
        if !is_whole {
            asked.sent.clear();
            asked.tokenized.truncate(MOST_TEXTS);
            self.taken = 0;
        }
        n
    }

    fn token(&mut self, at: u64, sums: &mut Sums, room: &mut usize) {
        let before = self.last.unwrap_or(self.arrived);
        let at = at.max(before);
        if self.first.is_none() {
            sums.0.first_token.add(at - before);
            self.first = Some(at);
        } else {
            sums.0.between_tokens.add(at - before);
            self.longest_ns = self.longest_ns.max(at - before);
        }
        self.last = Some(at);
        self.n_tokens = self.n_tokens.saturating_add(1);
        if self.is_cut {
            return;
        }
        if *room == 0 || self.tokens.len() >= MOST_TOKENS {
            *room += self.tokens.len();
            self.tokens = Vec::new();
            self.is_cut = true;
            return;
        }
        *room -= 1;
        self.tokens.push(at);
    }

    pub(super) fn came(&self, number: u32, asked: &Asked, at: &impl Fn(u64) -> u64) -> Came {
        Came::with(number, asked, &self.answer, at)
    }

    /// How many tokens are there.
    pub(super) fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The time to its first token.
    pub(super) fn first_ns(&self) -> u64 {
        self.first.map_or(0, |first| first.saturating_sub(self.arrived))
    }

    /// When it arrived, and when its first token was sent, if one was.
    pub(super) fn until_first(&self) -> Option<[u64; 2]> {
        Some([self.arrived, self.first?])
    }

    /// What it was, now that nothing more comes. `ended` is `None` of one that goes on.
    pub(super) fn finish(
        self,
        asked: &Asked,
        admitted_ns: Option<u64>,
        ended: Option<(u64, Ending)>,
    ) -> Request {
        let Self { nth, arrived, is_cut, n_tokens, .. } = self;
        let mut tokens_ns = self.tokens;
        if let Some((ended_ns, _)) = ended {
            tokens_ns.retain(|at| *at <= ended_ns);
        }
        tokens_ns.shrink_to_fit();
        let latest = tokens_ns.first().copied().or(ended.map(|(at, _)| at)).unwrap_or(u64::MAX);
        Request {
            id: asked.name.clone().unwrap_or_else(|| format!("{} {nth}", asked.path)),
            arrived_ns: arrived,
            // One that was over before its turn had begun had none.
            admitted_ns: admitted_ns.filter(|at| (arrived..=latest).contains(at)),
            tokens_ns,
            ended_ns: ended.map(|(at, _)| at),
            ending: ended.map(|(_, ending)| ending),
            output_tokens: is_cut.then_some(n_tokens),
            ..Request::default()
        }
    }

    /// What a token after the first took on average.
    pub(super) fn mean_token_ns(&self) -> Option<u64> {
        let ns = self.last?.saturating_sub(self.first?);
        ns.checked_div(self.n_tokens.checked_sub(1)?)
    }
}

/// The sums of all requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums(pub(super) KeptRequests);

impl Sums {
    /// Adds one of which nothing more comes, that was tied or not.
    pub(super) fn add(
        &mut self,
        of: &Coming,
        came: &Came,
        ended: Option<(u64, Ending)>,
        is_tied: bool,
    ) {
        let Self(sums) = self;
        if let Some(ns) = of.mean_token_ns() {
            sums.per_token.add(ns);
        }
        sums.untied += u64::from(!is_tied && !came.has_failed && came.last.is_some());
        let Some((ended_ns, ending)) = ended else { return };
        if !matches!(ending, Ending::Error | Ending::Cancelled) {
            sums.whole.add(ended_ns.saturating_sub(of.arrived));
        }
        match sums.endings.iter_mut().find(|(of, _)| *of == ending) {
            Some((_, n)) => *n += 1,
            None => sums.endings.push((ending, 1)),
        }
    }
}
