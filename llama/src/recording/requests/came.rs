//! Requests that came to a server by HTTP, and which turns may be theirs.

use brickscope::Ending;

use super::turns::{Joint, Turn};
use crate::recording::events::{Asked, SentPiece};

/// What a connection says in milliseconds is told by a clock that ticks as seldom as this, in nanoseconds.
const TICK_NS: u64 = 4_000_000;

/// What the pieces of an answer say, one after the other. Times are nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// When the first piece was sent that has text, or ends it; the first that says why it ends; and that after which it is
    /// whole.
    first: Option<[u64; 2]>,
    last: Option<[u64; 2]>,
    end: Option<[u64; 2]>,
    /// When the latest one was sent.
    latest: Option<u64>,
    /// How many tokens were sent, and how many it says that the prompt and the answer have.
    pieces: u64,
    stated: [Option<u32>; 2],
    is_limit: bool,
    has_failed: bool,
}

/// A request, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Came {
    /// Its number in the recording.
    pub(crate) number: u32,
    pub(crate) arrived: u64,
    /// When the first piece of its answer that has text, or ends it, was sent, and when the last one was, if it ended.
    pub(super) first: Option<[u64; 2]>,
    pub(crate) last: Option<[u64; 2]>,
    /// When nothing more of it happened.
    pub(crate) until: u64,
    pub(super) turn: Option<usize>,
    /// How long its prompt may be, if that is known: as it says itself, or as any text of it, or all.
    prompts: Vec<u32>,
    /// Whether the prompt that is stated is that of several texts together, each of which has a turn of its own.
    has_several: bool,
    pub(crate) has_failed: bool,
    is_limit: bool,
    pieces: u64,
    /// How many tokens it says that the answer has.
    stated: Option<u32>,
    /// When it ended, or who asked was found to have gone.
    pub(crate) ended: Option<u64>,
    /// Whether more may come of it than is known, of requests that are tied bit by bit.
    goes_on: bool,
}

impl Answer {
    pub(crate) fn add(&mut self, sent: &SentPiece, at: &impl Fn(u64) -> u64) {
        let what = sent.what;
        let times = [sent.begin, sent.end].map(at);
        if what.pieces > 0 || what.is_last {
            self.first.get_or_insert(times);
        }
        if what.is_last {
            self.last.get_or_insert(times);
        }
        if what.is_end {
            self.end.get_or_insert(times);
        }
        self.latest = Some(times[1]);
        self.pieces = self.pieces.saturating_add(what.pieces.into());
        for (stated, more) in self.stated.iter_mut().zip(sent.tokens) {
            *stated = (*stated).max(more);
        }
        self.is_limit |= what.is_limit;
        self.has_failed |= what.is_error || what.status >= 400;
    }

    /// When the piece was sent that says why it ends.
    pub(crate) fn ended(&self) -> Option<u64> {
        self.last.map(|[_, end]| end)
    }
}

/// When a request came.
pub(crate) fn arrived(asked: &Asked, at: &impl Fn(u64) -> u64) -> u64 {
    let [accepted, read] = [asked.accepted.unwrap_or(asked.read), asked.read].map(at);
    // A server that is busy reads late: what had come with the connection has waited since then.
    let waited = asked.idle_ms.map_or(0, |ms| ms.saturating_mul(1_000_000));
    let is_late =
        waited > 0 && accepted < read && waited.saturating_add(TICK_NS) >= read - accepted;
    if is_late { accepted } else { read }
}

/// How long the prompt of a request may be, as it says itself, or as any text of it, or all; and whether what it says is of
/// several texts.
fn prompts(asked: &Asked, stated: Option<u32>) -> (Vec<u32>, bool) {
    let made = &asked.tokenized;
    let all = made.iter().fold(0_u32, |sum, tokens| sum.saturating_add(*tokens));
    let has_several = made.len() > 1 && stated == Some(all) && !made.contains(&all);
    let prompts = match stated {
        Some(stated) => vec![stated],
        None if made.is_empty() => Vec::new(),
        None => made.iter().copied().chain([all]).collect(),
    };
    (prompts, has_several)
}

impl Came {
    /// Of a request whose pieces are all there.
    pub(super) fn of(number: u32, asked: &Asked, at: &impl Fn(u64) -> u64) -> Self {
        let mut answer = Answer::default();
        asked.sent.iter().for_each(|sent| answer.add(sent, at));
        Self::with(number, asked, &answer, at)
    }

    /// Of one whose pieces were looked at before.
    pub(crate) fn with(
        number: u32,
        asked: &Asked,
        answer: &Answer,
        at: &impl Fn(u64) -> u64,
    ) -> Self {
        let gone = asked.gone.map(at);
        // In the way of OpenAI a last one follows that has nothing new. Others don't say why they end. Nor does a server that ends
        // an answer since nobody waits for it.
        let is_waited_for = |[begin, _]: &[u64; 2]| gone.is_none_or(|gone| *begin < gone);
        let last = answer.last.or_else(|| answer.end.filter(is_waited_for));
        let (prompts, has_several) = prompts(asked, answer.stated[0]);
        Self {
            number,
            arrived: arrived(asked, at),
            first: answer.first.or(last),
            last,
            until: answer.latest.max(gone).unwrap_or(u64::MAX),
            turn: None,
            prompts,
            has_several,
            has_failed: answer.has_failed,
            is_limit: answer.is_limit,
            pieces: answer.pieces,
            stated: answer.stated[1],
            ended: last.map(|[_, end]| end).or(gone),
            goes_on: false,
        }
    }

    /// What is known of it at a time up to which all passes are known. Of one that goes on then, any pass may be.
    pub(super) fn as_of(&self, known_ns: u64) -> Self {
        let mut of = self.clone();
        of.first = of.first.filter(|[begin, _]| *begin <= known_ns);
        of.goes_on = of.ended.is_none() || of.until > known_ns;
        if of.goes_on {
            (of.last, of.until) = (None, u64::MAX);
        }
        of
    }

    /// Whether nothing of its answer left, and it has gone.
    pub(super) fn is_gone(&self) -> bool {
        self.first.is_none() && self.until < u64::MAX
    }

    /// Whether it may be any turn, or isn't known well enough to say so.
    pub(crate) fn is_any(&self) -> bool {
        self.first.is_none() && self.prompts.is_empty()
    }

    /// Whether it can be tied to a turn, ever.
    pub(crate) fn is_tieable(&self) -> bool {
        !self.has_failed && !self.is_any() && !self.has_several
    }

    pub(crate) fn ending(&self) -> Ending {
        match self.last {
            _ if self.has_failed => Ending::Error,
            None => Ending::Cancelled,
            Some(_) if self.is_limit => Ending::Length,
            Some(_) => Ending::Stop,
        }
    }

    /// Whether it may have gone here, before its prompt was done.
    pub(super) fn may_end_at(&self, joint: &Joint) -> bool {
        let [ended, begin] = joint.between;
        let prompts = &self.prompts;
        self.first.is_none()
            && (ended..=begin).contains(&self.until)
            && (prompts.is_empty() || prompts.iter().any(|&n| n > joint.before))
    }

    /// The turns that could be its own, or have a part that could: nothing of its answer left before that was computed. Those
    /// before `from` are for requests that came earlier.
    pub(super) fn may_be(&self, turns: &[Turn], from: usize, most: usize) -> Vec<usize> {
        if !self.is_tieable() {
            return Vec::new();
        }
        let later = (from..).zip(&turns[from..]).take_while(|(_, turn)| turn.begin <= self.until);
        let later = later.filter(|(_, turn)| self.arrived <= turn.latest());
        // The server learns that somebody has gone while a pass runs, and stops after it.
        let may_go_on = |turn: &Turn| self.last.is_some() || turn.begins[1] <= self.until;
        let may_be = later.filter(|(_, turn)| {
            let is_whole = self.first.is_none_or(|[begin, _]| begin >= turn.first)
                && self.last.is_none_or(|[begin, _]| begin >= turn.last)
                && self.is_as_long(turn)
                && may_go_on(turn);
            is_whole || turn.joints.iter().any(|joint| self.may_end_at(joint))
        });
        let may_be: Vec<usize> = may_be.map(|(nth, _)| nth).take(most + 1).collect();
        if may_be.len() > most { Vec::new() } else { may_be }
    }

    /// Whether a turn's prompt and its answer may be as long as its own.
    fn is_as_long(&self, turn: &Turn) -> bool {
        let prompts = &self.prompts;
        if self.goes_on {
            return true;
        }
        let is_as_long = match self.stated {
            _ if turn.has_drafts => true,
            // A token that ends an answer, but isn't part of it.
            Some(stated) => [stated, stated.saturating_add(1)].contains(&turn.outputs),
            None => self.pieces <= turn.outputs.into(),
        };
        is_as_long && (prompts.is_empty() || prompts.contains(&turn.prompt))
    }

    /// When the first token of its answer left. One that is sent as a whole doesn't tell.
    fn first_token(&self) -> Option<u64> {
        self.first.filter(|_| self.first != self.last).map(|[begin, _]| begin)
    }

    /// Whether the first token that a turn computed left soon, or may have, of an answer that was sent as a whole.
    pub(super) fn begins_soon(&self, turn: &Turn) -> bool {
        let first =
            self.first_token().map(|begin| turn.second.is_some_and(|second| begin <= second));
        first.unwrap_or(self.first.is_some())
    }

    /// Whether all that a turn computed left soon. Of one of which nothing left, only a known length tells.
    pub(super) fn is_soon(&self, turn: &Turn) -> bool {
        let first = self.first_token().zip(turn.second);
        let last = self.last.zip(turn.settled);
        (self.first.is_some() || !self.prompts.is_empty())
            && first.is_none_or(|(begin, second)| begin <= second)
            && last.is_none_or(|([begin, _], settled)| begin <= settled)
    }
}
